/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * program.h - running other programs: no shell, a clean environment, a deadline, bounded output
 */
#ifndef SNAPFERRY_PROC_PROGRAM_H
#define SNAPFERRY_PROC_PROGRAM_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * Runs a program (hooks, plugins, tools) and waits for it; made for a process that may block, never the daemon's loop:
 * argv[0] absolute, no shell, own process group, environment exactly `env` (NULL-terminated "KEY=value"; NULL: only
 * PATH and LANG). Under systemd it runs in a transient unit of its own (outside the daemon's sandbox, `systemd-run
 * --pipe --wait --collect`), elsewhere as a child with `user` if we are root. `input` (may be NULL) goes to its
 * standard input; standard output up to out_max bytes comes back malloc()ed and NUL-terminated (more is an error: the
 * program is killed); standard error goes to the log line by line with `label`, and its last 2 KiB into the error.
 * Killed with its whole group after timeout_s. *status is the exit code. The program is checked before
 * (program-path.h), and what was checked is executed. What the program left running in its process
 * group is killed when it ends. `input` is a file in memory, so a program that does not read it hurts nobody.
 *
 * A program that could not be started, was killed, timed out or flooded us is an error. One that ended with an exit
 * code other than 0 is an error if `status` is NULL; else program_run() returns 0, *status and *out are set, and e
 * holds the sentence for a caller who takes the code for a failure ("LABEL: PROGRAM ended with exit code 3: last words
 * on standard error"). *out is malloc()ed whenever 0 is returned (out may be NULL: the output is dropped).
 */
struct program {
    char *const *argv;
    const char *const *env;
    const char *user;  /* NULL: no change */
    const char *label; /* "hook pre-snapshot of vg0/db1" */
    const char *input;
    size_t input_len;
    size_t out_max; /* 0: 1 MiB */
    /* Gets standard output in pieces, as it comes, instead of `out`; out_max 0: of any length. Not 0: the program is
     * killed, and that and its error are returned. */
    int (*sink)(const void *p, size_t n, void *arg, struct err *e);
    void *sink_arg;
    unsigned timeout_s;
    bool finish; /* never killed: by its deadline (an error is returned, it goes on) nor with its caller; for programs
                    that must not be interrupted, such as those of LVM while devices are suspended */
};
int program_run(const struct program *p, char **out, size_t *out_len, int *status, struct err *e);

#endif
