/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * plugin.h - plugins as the daemon and the command see them: sections of the configuration, calls as steps
 *
 * The protocol itself is proc/plugin-call.h; running mover plugins are daemon/movers/plugin-movers.h.
 */
#ifndef SNAPFERRY_DAEMON_PLUGIN_H
#define SNAPFERRY_DAEMON_PLUGIN_H

#include "cfg/cfg.h"
#include "proc/plugin-call.h"

/* The program of a section; strings belong to the section. A privileged plugin runs as the daemon's user. */
struct plugin_program plugin_program_of(const struct cfg_plugin *p);

/*
 * Any verb as a step (proc/step.h). plugin_step_in() makes the step's argument (new reference, NULL: no memory);
 * plugin_step() calls describe first (kind and ability: -ENOTSUP), then the verb, and returns the plugin's document.
 * `args` is borrowed. For delete and verify: {"operation", "id", "stored": result of the backup}.
 */
json_t *plugin_step_in(const struct cfg_plugin *p, enum plugin_verb v, const json_t *args);
int plugin_step(const json_t *in, json_t **out, int *fd, struct err *e);
/* The verb logs as a step: what it answers is in the file plugin_log_path(). */
json_t *plugin_logs_in(const struct cfg_plugin *p, const char *state_dir, const char *operation, const char *id,
                       bool restore);
int plugin_logs_step(const json_t *in, json_t **out, int *fd, struct err *e);
/* Timeout of such a step in seconds: a little more than its calls may take together. */
unsigned plugin_step_timeout(const struct cfg_plugin *p, enum plugin_verb v);

/* ---- progress of a mover plugin (AO-36) ---- */

struct plugin_progress {
    bool completed, canceled, transient;
    char skip[256];       /* a reason: nothing to do (AP-06); "" none */
    bool has_done;        /* nCompleted was given */
    uint64_t done, total; /* nCompleted, nTotal; 0 if not given */
    char units[32];       /* operationUnits: "Bytes" */
    char error[600];      /* "" none */
    char description[256], stage[64];
    char started[64], updated[64], eta[64];
};
/* Reads and validates such a document; `v` is its verb, for messages. */
int plugin_progress_read(const struct plugin_program *p, enum plugin_verb v, const json_t *doc,
                         struct plugin_progress *ret, struct err *e);
/* As the daemon's own progress messages (docs/mover.md): phase, total, done, and the members of AO-36. */
json_t *plugin_progress_json(const struct plugin_progress *g);

enum plugin_ack { PLUGIN_ACCEPTED, PLUGIN_ALREADY_DONE, PLUGIN_IMPOSSIBLE };
int plugin_ack_read(const struct plugin_program *p, const json_t *doc, enum plugin_ack *ret, struct err *e);

/* The answer of start and restore: an id, or a reason why there is nothing to do, and whether all is done already. */
struct plugin_begun {
    char id[PLUGIN_ID_MAX + 1]; /* "": skipped */
    char skip[256];
    bool completed;
    char error[600]; /* with completed: it failed */
};
int plugin_begun_read(const struct plugin_program *p, enum plugin_verb v, const json_t *doc, struct plugin_begun *ret,
                      struct err *e);

#endif
