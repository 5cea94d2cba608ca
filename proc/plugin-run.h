/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * plugin-run.h - plugin processes that run for long: `run` (the plugin is the mover) and `watch` (it streams progress)
 *
 * Such a process belongs to nobody: it is started by a step, outlives the daemon, writes into files of
 * RUNTIME-DIR/plugins, and is found again by the identity in its .id file, which is durable before its program begins.
 * Under systemd it is a transient unit of its own, elsewhere a process group. Whoever watches it reads its output from
 * the file and gives read parts back to the file system, so that a process that talks for days needs no space.
 */
#ifndef SNAPFERRY_PROC_PLUGIN_RUN_H
#define SNAPFERRY_PROC_PLUGIN_RUN_H

#include "proc/plugin-call.h"

#include <sys/types.h>

struct plugin_process {
    pid_t pid;
    uint64_t start_time; /* /proc/PID/stat field 22 */
    char boot_id[40];
};
/* "run:PID:START:BOOT", fits into PLUGIN_ID_MAX. */
void plugin_process_text(const struct plugin_process *i, char *out, size_t cap);
int plugin_process_parse(struct plugin_process *ret, const char *text);
/* A pidfd of the living process, -ESRCH: it is gone (or the machine was restarted). */
int plugin_process_open(const struct plugin_process *i);

/* Step: starts `verb` for an operation unless it runs already. The argument has the members of plugin_step_in() and
 * "dir" and "operation". Answers {"id": text of the identity}. */
int plugin_run_step(const json_t *in, json_t **out, int *fd, struct err *e);
/* Step: ends the process if it still runs, and what is left of its unit. The same argument. */
int plugin_run_stop_step(const json_t *in, json_t **out, int *fd, struct err *e);

/* DIR/plugins/HASH.VERB.SUFFIX, suffix "in", "out", "log", "id". */
void plugin_run_path(char *out, size_t cap, const char *dir, const char *operation, enum plugin_verb v,
                     const char *suffix);
/* Removes these files. */
void plugin_run_forget(const char *dir, const char *operation, enum plugin_verb v);

/* Lines of such a file as they come. */
struct plugin_tail;
typedef void plugin_tail_fn(const char *line, size_t len, void *arg);
int plugin_tail_open(struct plugin_tail **ret, const char *path, struct err *e);
void plugin_tail_free(struct plugin_tail *t);
/* Hands on what is new, at most 256 KiB (1: there is more). -EFBIG: the process writes faster than anybody could want,
 * or a line is longer than 64 KiB. `last`: the process is gone, a last line may lack its end. */
int plugin_tail_read(struct plugin_tail *t, bool last, plugin_tail_fn *fn, void *arg);

#endif
