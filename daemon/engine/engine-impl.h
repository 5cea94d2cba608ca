/* SPDX-License-Identifier: GPL-2.0-or-later */
/* engine-impl.h - what the engine's files share; nobody else includes it */
#ifndef SNAPFERRY_DAEMON_ENGINE_IMPL_H
#define SNAPFERRY_DAEMON_ENGINE_IMPL_H

#include "base/cleanup.h"
#include "daemon/engine/board.h"
#include "daemon/engine/engine.h"
#include "base/json.h"
#include "base/time.h"
#include "base/pace.h"
#include "io/native/driver.h"

#include <limits.h>
#include <string.h>

typedef void operation_done_fn(struct engine *g, struct operation *op, struct step_result *s);
typedef void backup_done_fn(struct engine *g, struct backup *b, struct step_result *s);

/* A piece of work of one record that runs in a child, and what is known of a record only while the daemon lives. */
struct live {
    struct live *next;
    struct engine *engine;
    enum row_kind kind;
    struct step *step; /* NULL: nothing runs */
    const char *doing; /* "snapshot", "expose": static text */
    int64_t step_since_ns;
    operation_done_fn *operation_done; /* of an operation */
    backup_done_fn *backup_done;       /* of a backup */
    json_t *progress;                  /* last message of the mover, NULL: none */
    int64_t progress_ns, saved_ns;
    int64_t moved_ns; /* when the mover last got on: it says each second where it is, also while it hangs */
    struct pace pace; /* how fast it is */
    char id[];
};
#define LIVE_BUCKETS 4096 /* a power of two */

struct waiter {
    struct waiter *next;
    char id[512];
    engine_wait_fn *fn;
    void *arg;
    int64_t told_ns;
};

/* What is known of a repository's storage (seen by a step, never by the loop). */
struct repo_health {
    struct repo_health *next;
    char name[128];
    bool known, up, checking;
    int64_t since_ns, checked_ns;   /* since: of the present state */
    int64_t free_bytes, size_bytes; /* of its file system; -1: not known */
    char why[512], hint[512];
    struct engine *engine;
};

/* Below this share of free room a repository is called full, here and by the alert of the shipped rules. */
#define REPOSITORY_FULL 0.05
bool repository_full(const struct repo_health *h);

struct engine {
    sd_event *loop;
    struct engine_paths paths;
    struct cfg *cfg;
    struct records *records;
    struct records_news news;
    struct steps *steps;
    struct movers *movers;
    struct schedule *schedule;
    struct live **live;  /* LIVE_BUCKETS, by id */
    struct facts *facts; /* facts.h */
    bool room_running;
    struct board *board;
    bool board_stale;     /* it has to be made again from the rows */
    bool backups_changed; /* which of the queued ones may begin is to be found out */
    bool undone;          /* a change of this turn of the loop was undone */
    bool was_degraded;    /* when it was last looked: the records could not be written */
    struct waiter *waiters;
    unsigned telling; /* waiters are being told: none may be freed */
    struct repo_health *repos;
    struct class_look *looks; /* engine-looks.c */
    sd_event_source *kick, *sweep;
    bool kicked, stopping;
    int64_t started_ns, sweep_ns, orphans_ns;
    bool orphans_running;
    int64_t strays_ns; /* when stray movers were looked for */
    bool strays_running;
    enum { OLD_TIMERS_GONE, OLD_TIMERS_LEFT, OLD_TIMERS_STOPPING } old_timers;
    int64_t looked_ns;          /* when the look at the storage that runs, or ran last, began */
    unsigned recoveries;        /* of the records, as last seen */
    uint64_t write_errors_kept; /* of this life's failed writes of the records, those that their counter has */
    unsigned orphans;           /* objects with our tag that no record knows */
    json_t *orphan_list;
    json_t *pools;                          /* volume id -> how full its pool is, as last seen */
    const struct engine_observer *observer; /* NULL: none */
    /* the last reload */
    bool reload_ok;
    int64_t reload_ns;
    char reload_error[1200];
    bool reloading;
};

/* "20261121T020000-3f9a" for ids. */
void stamp_text(char out[32]);

/*
 * Rows. X_read: a copy to be changed; a failure other than "there is none" is logged. X_write: a failure is logged and
 * the next sweep tries again from what is on disk; who waits for the row is told. X_become: the same under a new state.
 */
int operation_read(struct engine *g, const char *id, struct operation *ret);
int operation_write(struct engine *g, struct operation *op);
int operation_become(struct engine *g, struct operation *op, enum op_state state);
int backup_read(struct engine *g, const char *id, struct backup *ret);
int backup_write(struct engine *g, struct backup *b);
int backup_become(struct engine *g, struct backup *b, enum backup_state state);
int native_row_read(struct engine *g, const char *alias, struct native_row *ret);
int native_row_write(struct engine *g, struct native_row *n);
int native_row_become(struct engine *g, struct native_row *n, enum native_state state);
int volume_row_read(struct engine *g, const char *id, struct volume_row *ret);
int volume_row_write(struct engine *g, struct volume_row *v);
/* Notes an error in a row: when, and in which attempt. */
void operation_error(struct operation *op, const char *stage, const struct err *e);
void backup_error(struct backup *b, const char *stage, const struct err *e);
void tell_operation_waiters(struct engine *g, const struct operation *op, bool progress_only);
void tell_backup_waiters(struct engine *g, const struct backup *b);
struct live *live_find(struct engine *g, const char *id);
struct live *live_get(struct engine *g, enum row_kind k, const char *id);
void live_drop(struct engine *g, const char *id);
bool busy(struct engine *g, const char *id);
/* A row has to be looked at although it was not written; all have. */
void engine_look_at(struct engine *g, enum row_kind k, const char *id);
void engine_look_at_all(struct engine *g);
/* Runs a step for a row: when it ends the row is read again and handed to done. Takes over `in`. */
int operation_work(struct engine *g, const struct operation *op, const char *doing, step_fn *fn, json_t *in,
                   int64_t timeout_s, operation_done_fn *done, struct err *e);
int backup_work(struct engine *g, const struct backup *b, const char *doing, step_fn *fn, json_t *in, int64_t timeout_s,
                backup_done_fn *done, struct err *e);

/* ---- the journal ---- */

/* How lines of the journal begin that are about a record: its id, and its volume in brackets. Two of them may be in
 * use. */
const char *operation_label(const struct operation *op);
/* The line of an operation of a volume, and of a backup or restore, that has ended. */
void journal_operation(const struct operation *op);
void journal_run(const struct backup *b);

/* ---- policies and classes as rows take them along ---- */
/* An own one, which may be changed before policy_make(). */
int policy_from_cfg(struct policy *ret, const struct cfg_policy *p);
/* New references. */
const struct class_desc *class_from_cfg(const struct cfg *c, const struct cfg_class *k, const struct cfg_policy *p);
/* The same as a document for a step. */
json_t *class_doc(const struct cfg *c, const struct cfg_class *k, const struct cfg_policy *p);
/* A class for a restore target; if no class matches, one of the name CLASS_OF_TARGET, which counts as none. */
#define CLASS_OF_TARGET "(target)"
const struct class_desc *class_for_path(const struct cfg *c, const char *path, bool block);
/* The borrowed view of a class document; class_view_clear() frees the arrays. */
struct class_view {
    struct driver_class c;
    const char **match;
};
int class_view(struct class_view *ret, const json_t *doc, struct err *e);
void class_view_clear(struct class_view *v);
/* Limits of a mover from a policy document; the strings stay the document's. `props` has room for 33 pointers. */
/* Adds to a mover's job what it keeps to by itself. */
void limits_job(json_t *job, const struct policy *policy);
/* Reads the password of a repository into malloc()ed text, stripped of white space at both ends. */
int repository_password(const struct cfg *c, const char *name, char **ret, struct err *e);

/* ---- steps (in the child) ---- */
int step_volumes(const json_t *in, json_t **out, int *fd,
                 struct err *e); /* {"classes":[{"class":doc,"names":[..]|absent}]} */
int step_snapshot(const json_t *in, json_t **out, int *fd, struct err *e); /* {"items":[{class,volume,tag,policy}]} */
int step_remove(const json_t *in, json_t **out, int *fd, struct err *e);   /* {"items":[{class,native}]} */
int step_expose(const json_t *in, json_t **out, int *fd,
                struct err *e); /* {own,into|null,native,volume,read_only,alias,...} */
int step_open(const json_t *in, json_t **out, int *fd, struct err *e); /* {own,exposure} */
int step_undo(const json_t *in, json_t **out, int *fd, struct err *e); /* {"intents":[{id,kind,name,doc}]} */
int step_target(const json_t *in, json_t **out, int *fd,
                struct err *e); /* {class,name,size,alias,overwrite,native|null} */
int step_target_open(const json_t *in, json_t **out, int *fd, struct err *e);
int step_target_commit(const json_t *in, json_t **out, int *fd, struct err *e);
int step_storage(const json_t *in, json_t **out, int *fd,
                 struct err *e); /* everything of ours on the classes' storage */
int step_repository(const json_t *in, json_t **out, int *fd, struct err *e); /* {"path"} */
int step_room(const json_t *in, json_t **out, int *fd, struct err *e);       /* {"path"}: {"free", "total"} */
int step_find(const json_t *in, json_t **out, int *fd, struct err *e);       /* {class,volume,alias,hint} */
int step_pool(const json_t *in, json_t **out, int *fd, struct err *e);       /* {"items":[{class,volume}]} */

/* ---- the parts of the state machine ---- */
void reconcile_backup(struct engine *g, const char *id);
/* Begins the queued backups that may begin now, the oldest first. */
void begin_backups(struct engine *g);
/* Place of a queued backup in the order, from 1, and the id of the one with the same volumes that goes first ("":
 * none). */
unsigned backup_position(struct engine *g, const struct backup *b, char by[192]);
/* Phase 1 of a backup: prune, hooks, native snapshots. True when all its operations have left it. */
bool reconcile_snapshots(struct engine *g, struct backup *b);
void reconcile_operation(struct engine *g, struct operation *op);
void operation_fail(struct engine *g, struct operation *op, const char *stage, const struct err *e);
/* Decides the outcome ("Completed", ...) and begins releasing what the operation owns. */
void operation_finish(struct engine *g, struct operation *op, enum outcome outcome);
void operation_cancel(struct engine *g, struct operation *op, const char *why);
/* A failed attempt: retried with backoff if the class of error and the budget allow, else finished as Failed. */
void operation_attempt_failed(struct engine *g, struct operation *op, const char *stage, const struct err *e,
                              bool transient);
/* Its mover was ended from outside: it goes on from its last checkpoint, of the same native snapshot, and no attempt is
 * counted; at once after a boot. */
void operation_interrupted(struct engine *g, struct operation *op, const struct err *e, bool rebooted);
static inline bool operation_is_restore(const struct operation *op)
{
    return op->kind == KIND_RESTORE;
}
/* The plugin that moves its data, NULL: the built-in mover, or it is not configured any more. */
const struct cfg_plugin *operation_plugin(struct engine *g, const struct operation *op);
/* Exposed, and its turn: a mover is started. */
void operation_start(struct engine *g, struct operation *op);
/* Running under a daemon that is not this one: taken over, or what it left is taken for its end. */
void operation_adopt(struct engine *g, struct operation *op);
extern const struct movers_events engine_mover_events;
/* Slots and order: whether `op` may expose (or move) now; else `why` names what it waits for. */
bool queue_may(struct engine *g, const struct operation *op, bool move, char *why, size_t cap);
/* Marks the operations that may go next. */
void queue_mark_next(struct engine *g);
/* Marks those that wait for a repository that is unavailable. */
void queue_mark_down(struct engine *g);
/* What an operation waits for before it may be exposed or moved; "": nothing. */
void operation_waits_for(struct engine *g, const struct operation *op, char *why, size_t cap);

/* Admin operations: a mover of kind admin with a list of steps; *id gets the operation's id. */
int admin_submit(struct engine *g, const char *repository, json_t *steps, const char *parent, const char *prefix,
                 char id[512], struct err *e);
void reconcile_admin(struct engine *g, struct operation *op);
/* Result of step number i of an admin operation, NULL; borrowed from op. */
const json_t *admin_answer(const struct operation *op, unsigned i);

/* The work behind `delete`. */
void reconcile_delete(struct engine *g, struct operation *op);

/* ---- what is counted (engine-count.c): between records_counters_hold() and _settle(), in front of the save ---- */
/* Adds the stages of a mover's result to the counters stage_busy_seconds_total and stage_stall_seconds_total, and its
 * bottleneck to bottleneck_total; labels direction and stage. Nothing for a result without stages. */
void engine_count_stages(struct records *r, const char *direction, const json_t *result);
/* Label values: of a fixed set whatever is asked. */
const char *count_direction(enum op_kind kind);
const char *count_result(enum outcome outcome);
/* All values of the labels reason (of failures) and code (of requests to a repository); NULL behind the last one. */
const char *count_reason_at(unsigned i);
const char *count_code_at(unsigned i);
/* Adds the time since the last change of state to what the operation spent in `state`. */
void operation_spent(struct operation *op, enum op_state state);
/* It leaves the queue for `state`; the first time counts. */
void count_queue_wait(struct engine *g, struct operation *op, enum op_state state);
void count_operation_ended(struct engine *g, struct operation *op, enum outcome outcome);
void count_retry(struct engine *g, const struct operation *op);
void count_mover_ended(struct engine *g, const struct operation *op, const struct mover_end *end);
void count_backup_begun(struct engine *g, const char *schedule, bool restore);
/* A job could not be started: an attempt and a failure of its. */
void count_start_failed(struct engine *g, const char *schedule);
void count_backup_ended(struct engine *g, const struct backup *b, enum outcome outcome);
void count_snapshot(struct engine *g, const struct operation *op, bool taken, double seconds);
/* Failed writes of the records, once they can be written again: until then the metric adds what is not counted yet. */
#define WRITE_ERRORS "record_write_errors_total"
void count_write_errors(struct engine *g);
/* Counters that an earlier version kept under other names or labels. */
void count_migrate(struct records *r);

void sweep_storage(struct engine *g);
void sweep_movers(struct engine *g);
void sweep_room(struct engine *g);
void repositories_refresh(struct engine *g, bool force);
/* NULL, or why operations on this repository must wait. */
const char *repository_down(struct engine *g, const char *name);

/*
 * Removes what a plan for the operation's volume says should go. 1: something is under way, look again later; 0: done,
 * `v` says whether a new one may be made. `done` is the step's end: natives_pruned(), or one that calls it.
 */
int natives_make_room(struct engine *g, struct operation *op, const struct native_rules *rules, int64_t since_ns,
                      const char *trust, operation_done_fn *done, struct native_verdict *v, struct err *e);
/* While it has asked the repository and waits for the answer: "waits for admin-check-...: why"; else false. */
bool natives_asked(struct engine *g, const struct operation *op, char *out, size_t cap);
void natives_pruned(struct engine *g, struct operation *op, struct step_result *s);
void natives_removed(struct engine *g, const json_t *answers);
/* native_rules() at this moment. */
static inline void native_rules_from(struct native_rules *r, const struct policy *policy, const char *job,
                                     double pool_ratio, bool create)
{
    native_rules(r, policy, job, pool_ratio, create, now_ns());
}

#endif
