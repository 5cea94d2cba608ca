/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * service.h - a program that runs for long as a service of its own: it outlives its caller, and can be found again
 *
 * It reads its standard input from a file and writes to files, and its identity is in a file that is durable before the
 * program begins. Under systemd it is a transient unit, elsewhere a session and process group. A supervisor has its
 * pidfd (process.h) and reads its output as it comes (tail.h). Thread-safe; start and stop block.
 *
 * Crash points: plugin-run-forked (the process waits, nothing is written), plugin-run-identified (identity durable, the
 * program has not begun).
 */
#ifndef SNAPFERRY_PROC_SERVICE_H
#define SNAPFERRY_PROC_SERVICE_H

#include "base/err.h"
#include "proc/process.h"

#include <stddef.h>

/* All borrowed. */
struct service {
    const char *dir, *name; /* files DIR/NAME.in, .out, .log and .id; the directory exists */
    const char *unit;       /* where systemd runs; the same name cannot run twice */
    const char *label;      /* for errors: "plugin tape" */
    const char *const *argv, *const *env;
    const char *user;  /* NULL or "": no change */
    const char *input; /* standard input */
};

/* Starts it unless it runs already; *ret gets its identity, of no living process if it has ended immediately. */
int service_start(const struct service *s, struct process_identity *ret, struct err *e);
/* Ends it if it still runs, and the remains of its unit. */
int service_stop(const struct service *s, struct err *e);
/* To its whole process group, if it still runs according to `pidfd` (from process_open() of `i`). */
void service_signal(const struct process_identity *i, int pidfd, int sig);
/* It has ended: SIGKILL to the rest of its process group. Its pid must not have been reused. */
void service_kill_group(const struct process_identity *i);

/* DIR/NAME.SUFFIX, suffix "in", "out", "log" or "id". */
void service_path(char *out, size_t cap, const char *dir, const char *name, const char *suffix);
/* Removes these files. */
void service_forget(const char *dir, const char *name);

#endif
