/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine.h - what is decided: backups, operations and their states, from request to terminal state
 *
 * One level-triggered function maps (record, observed facts) to the next action; it runs at start, on every event and
 * each minute. A backup is Queued, Snapshotting, Moving, Finalizing, then Completed, PartiallyFailed, Failed or
 * Canceled (Deleting on the way out). An operation is Queued, Snapshotting, Exposing, Starting, Running, Retrying,
 * Cancelling, CleaningUp, then Completed, Failed, Canceled or Skipped. Requests are validated before anything is
 * stored: a refused request leaves nothing behind.
 *
 * The control room calls these functions; all answer from memory and records and never block. Documents are described
 * in docs/control.md.
 */
#ifndef SNAPFERRY_DAEMON_ENGINE_H
#define SNAPFERRY_DAEMON_ENGINE_H

#include "cfg/cfg.h"
#include "daemon/movers/movers.h"
#include "daemon/decide/natives-plan.h"
#include "daemon/records/records.h"
#include "daemon/records/request-args.h"
#include "daemon/schedule/schedule.h"
#include "proc/step.h"

struct engine_paths {
    char config_dir[4096], state_dir[4096], runtime_dir[4096], cache_dir[4096];
    char mover_program[4096];
};

struct engine;
int engine_new(struct engine **ret, sd_event *loop, const struct engine_paths *p, struct cfg *c, struct err *e);
void engine_free(struct engine *g);
struct records *engine_records(struct engine *g);
const struct cfg *engine_cfg(const struct engine *g);
const struct schedule *engine_schedule(const struct engine *g);

/* Asks for a reconcile soon (in this loop iteration). */
void engine_kick(struct engine *g);

/* A request's answer may need a step (resolving volumes looks at storage): `reply` is called once, from the event loop,
 * maybe before the function returns. On success `answer` (borrowed) is the documented object; else e is set. */
typedef void engine_reply_fn(json_t *answer, const struct err *e, void *arg);
/* See engine_wait(). */
typedef void engine_wait_fn(const json_t *state, bool terminal, void *arg);

/* {"volumes": [names or patterns]} or {"job": NAME}; optional "full", "move-data", "description". Answer: {"backup":
 * ID, "operations": [{"id","volume"}], "skipped":
 * [{"volume","reason"}], "position": n, "blocked_by": ID|null}. */
void engine_submit_backup(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg);
/* {"backup": ID, "volume": NAME|absent, "target": PATH, "from": "auto|native|repository", "overwrite": bool, "new":
 * bool, "allow_incomplete": bool, "class_map": {..}, "verify": bool, "differential": bool, "offset": n, "length": n};
 * the last four are done with the repository's contents. Answer: {"restore": ID, "operation": ID, "from":
 * "native"|"repository", "why": ".."} */
void engine_submit_restore(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg);
/* {"repository": NAME, "read_percent": n} */
void engine_verify(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg);
/* {"repository": NAME, "full", "dry_run", "unsafe"}: bool, all optional. ERR_BUSY: a run is under way. */
void engine_maintain(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg);
void engine_copy(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg);
/* Backup, restore or operation id. Valid in every state; terminal: answers "already" with the state. */
void engine_cancel(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg); /* {"id"} */
/* {"id", "force": bool}: backup with all that it owns; a running one is cancelled first (needs force). */
void engine_delete(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg);
/* {"backup", "volume"}: what failed of it is tried again from the native snapshots taken then (RS-03). */
void engine_retry(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg);
/* {"native": ALIAS or backup id, "hold": bool, "note": ".."} */
void engine_hold(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg);
/* {"volume": NAME|absent, "dry_run": bool}: plan and, unless dry_run, its execution. Answer {"natives": [{alias,
 * volume, created, reasons, prune, why, used}], "started": n}. */
void engine_native_prune(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg);
/* {"native": beginning of an ALIAS | "all": true, "dry_run"}: what has the tag of this node on the storage and is in no
 * record is removed now, after a look at the storage, and not when its grace is over. Answer {"objects": [{kind, alias,
 * ..., "released", "error"}]}. */
void engine_native_release(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg);
/* {"volume": NAME|absent, "dry_run", "explain"}: repository retention through an admin mover. */
/* {"id"} -> {"fetched"}: the log of an operation that a mover plugin carries out was written into its file. */
void engine_logs(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg);
void engine_expire(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg);
/* {"repository"}: rebuild records from the repository and the storage (RS-15). What it asks the repository with is told
 * meanwhile, as by engine_wait(), until it replies. */
void engine_scan(struct engine *g, const struct request_args *req, engine_wait_fn *told, engine_reply_fn *reply,
                 void *arg);
/* {"repository"}: forgets the backups whose data is only there, and that their native snapshots had been moved (CF-55).
 * The repository itself is not touched. Answer {"repository", "backups", "natives"}. Refused while something uses it.
 */
void engine_detach(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg);
/* {"volume"}: what is remembered of a volume that is gone leaves the records; its backups stay. */
void engine_forget(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg);
/* {"class"|absent}: volumes that the classes match now, with policy, last results, next run, and why not protected.
 * {"recorded": true, "limit", "after"}: a page of those that the records have, without a look at the storage. */
void engine_volumes(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg);
/* The same of one volume, by its name or id; none if there is no such volume. */
void engine_volume(struct engine *g, const char *what, engine_reply_fn *reply, void *arg);
/* {"volume"}: policy with origins, class choice, mechanism of exposing, what will be deleted when. */
void engine_explain(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg);

/* Reads the configuration again; the answer comes when it is in force or refused (old one stays). */
void engine_reload(struct engine *g, engine_reply_fn *reply, void *arg);

/* Read-only answers (new references, NULL only for no memory). */
json_t *engine_status(struct engine *g); /* one screen: daemon, config, slots, running, problems, freshness */
/* The same, after a look at the repositories: those that are local answer at once, or are not waited for longer than a
 * second. */
void engine_status_asked(struct engine *g, engine_reply_fn *reply, void *arg);
/* Calls reply(NULL, NULL, arg) once the pools of native snapshots have been looked at, or within a second: then answers
 * about native snapshots are of now. With an error if the daemon ends. */
void engine_pools_asked(struct engine *g, engine_reply_fn *reply, void *arg);
/* One line of it, cheap: "2 backups running, 1 queued; repository \"main\": ...". */
void engine_headline(struct engine *g, char *out, size_t cap);
/* What the builders of daemon/answers need for lists and rows; answer_facts_clear() frees it. Valid until the records
 * are written. */
struct answer_facts;
void engine_facts(struct engine *g, struct answer_facts *f);
json_t *engine_operation_json(struct engine *g, const struct operation *op); /* record + live progress */
/* For those that wait for it: one that has not ended is without `details`. */
json_t *engine_backup_json(struct engine *g, const struct backup *b, bool with_operations);
/* For the debug bundle: {"counters": [{"name", "labels", "value"}], ...}. */
json_t *engine_debug_json(struct engine *g);

/* What another room takes part in, connected by main(): `configured` is called with each configuration that comes into
 * force, `status` returns what `status` shows under "metrics" (new reference) and adds its problems to the list
 * [{"severity", "text", "hint"}]. NULL: none. Borrowed. */
struct engine_observer {
    void (*configured)(struct cfg *c, void *arg);
    json_t *(*status)(json_t *problems, void *arg);
    void *arg;
};
void engine_observe(struct engine *g, const struct engine_observer *o);

/* Waits: fn is called when the backup, restore or operation becomes terminal, and for each progress change at most once
 * a second (terminal false). Cancelled by engine_unwait with the same arg. */
int engine_wait(struct engine *g, const char *id, engine_wait_fn *fn, void *arg, struct err *e);
void engine_unwait(struct engine *g, void *arg);

/* Ordered end of the daemon (SIGTERM): no new work, records flushed, movers stay. `out`: what that means for movers and
 * jobs, in one line. */
void engine_stop(struct engine *g, char *out, size_t cap);

#endif
