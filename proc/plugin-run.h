/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * plugin-run.h - plugin processes that run for long: `run` (the plugin is the mover) and `watch` (it streams progress)
 *
 * Such a process is a service of its own (service.h, AP-07), started by a step, with its files in RUNTIME-DIR/plugins.
 */
#ifndef SNAPFERRY_PROC_PLUGIN_RUN_H
#define SNAPFERRY_PROC_PLUGIN_RUN_H

#include "proc/plugin-call.h"

/* Step: starts `verb` for an operation unless it runs already. The argument has "name", "program", "user", "verb",
 * "args" (as plugin_call()), "dir" and "operation". Answers {"id": process_id_text() of it}. */
int plugin_run_step(const json_t *in, json_t **out, int *fd, struct err *e);
/* Step: ends the process if it still runs, and the remains of its unit. The same argument. */
int plugin_run_stop_step(const json_t *in, json_t **out, int *fd, struct err *e);

/* DIR/plugins/HASH.VERB.SUFFIX, suffix "in", "out", "log", "id". */
void plugin_run_path(char *out, size_t cap, const char *dir, const char *operation, enum plugin_verb v,
                     const char *suffix);
/* Removes these files. */
void plugin_run_forget(const char *dir, const char *operation, enum plugin_verb v);

#endif
