/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * plugin-movers.h - mover plugins under way, looking to the engine like daemon/movers/movers.h
 *
 * Two styles, one state machine. (a) `start` or `restore` begins the work elsewhere and returns an id; `watch` or
 * `progress` tell how far it is. (b) `run`: the plugin's process is the mover; it outlives the daemon and is found
 * again by the identity in its id. Nothing is stored here: what a restarted daemon needs is the id in the operation's
 * record.
 *
 * Events are those of daemon/movers/movers.h, with these differences: when ready() returns, the record must have the id
 * (plugin_movers_id()) and the plugin goes on by itself, there is no "go"; the identity is all zeros for style (a). A
 * plugin that declines ends with MOVER_OK and the result {"skip": reason}. Other results: {"plugin", "id", "bytes",
 * "stored": what `result` answered}. After any end but MOVER_OK the plugin has been asked to clean up, so that a
 * further attempt of the same operation begins anew; after MOVER_OK it is asked when ended() has returned.
 */
#ifndef SNAPFERRY_DAEMON_PLUGIN_MOVERS_H
#define SNAPFERRY_DAEMON_PLUGIN_MOVERS_H

#include "cfg/cfg.h"
#include "daemon/movers/movers.h"
#include "proc/step.h"

struct plugin_movers;

struct plugin_movers_opts {
    sd_event *loop;
    struct steps *steps;
    const struct movers_events *events;
    void *arg;
    const char *runtime_dir; /* for requests and output of `run`; NULL: /run/snapferry */
    unsigned backoff_ms;     /* first pause after a failed question, doubled each time; 0: 1000 */
};
int plugin_movers_new(struct plugin_movers **ret, const struct plugin_movers_opts *o, struct err *e);
/* Leaves the plugins alone: they go on and are resumed by the next daemon. */
void plugin_movers_free(struct plugin_movers *pm);

struct plugin_movers_times {
    int64_t stall_timeout_s; /* neither nCompleted nor stage changed for so long: cancelled; 0: 15 min */
    int64_t cancel_grace_s;  /* from cancel to cleanup; 0: 30 s */
    int64_t max_duration_s;  /* 0: none */
};
/*
 * `request` (borrowed): {"direction": "backup"|"restore", "volume", "device": path, "size", ...}; "operation" and
 * "device" come from here. All else goes to the plugin as it is. -EEXIST: that operation is under way. -ENOPKG: plugin
 * not installed (AO-24). Later failures come by ended().
 */
int plugin_movers_start(struct plugin_movers *pm, const char *operation, const struct cfg_plugin *p,
                        const json_t *request, const struct plugin_movers_times *t, struct err *e);
/* After a restart of the daemon (AO-06). ready() is called again. */
int plugin_movers_resume(struct plugin_movers *pm, const char *operation, const struct cfg_plugin *p,
                         const char *plugin_id, const json_t *request, const struct plugin_movers_times *t,
                         struct err *e);
/* `cancel` (or SIGTERM to `run`), then at `deadline_ns` (realtime; 0: cancel_grace_s from now) `cleanup` (SIGKILL).
 * ended() comes in any case. Repeated calls are harmless. */
int plugin_movers_cancel(struct plugin_movers *pm, const char *operation, int64_t deadline_ns, struct err *e);
/* The record is terminal: `cleanup` for an operation that is not under way (again), in the background. Idempotent. */
int plugin_movers_forget(struct plugin_movers *pm, const char *operation, const struct cfg_plugin *p,
                         const char *plugin_id, struct err *e);

bool plugin_movers_has(const struct plugin_movers *pm, const char *operation);
/* The plugin's id of an operation under way, "" if there is none yet. */
const char *plugin_movers_id(const struct plugin_movers *pm, const char *operation);
/* Live facts for status: plugin, id, state, style, watching, failures in a row; NULL if it is not under way. */
json_t *plugin_movers_to_json(const struct plugin_movers *pm, const char *operation);

#endif
