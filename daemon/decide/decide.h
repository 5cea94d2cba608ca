/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * decide.h - what should happen next
 *
 *   observe (events, rows, clock) -> decide -> plan -> commit -> act -> observe
 *
 * The functions of this room read rows and facts and write into a plan: changes of rows, intents and counters (one
 * transaction of the records, which the caller begins and commits) and actions, which the caller carries out in order
 * once the changes are durable. They start nothing, wait for nothing, and look at no clock and no disk, but that
 * finished rows are read through the records. So the same functions run in the daemon and, with a clock, movers and a
 * storage of its own, in the model test (tests/unit/test_model.c).
 *
 * They are level-triggered: a decision follows from the row and the facts as they are, never from having seen a change.
 * An event (the end of a piece of work, what became of a mover) is a fact until what follows from it is durable; if the
 * commit fails it is handed in again.
 *
 * Not thread-safe: the event loop's thread.
 */
#ifndef SNAPFERRY_DAEMON_DECIDE_DECIDE_H
#define SNAPFERRY_DAEMON_DECIDE_DECIDE_H

#include "base/json.h"
#include "base/pace.h"
#include "cfg/cfg.h"
#include "daemon/decide/board.h"
#include "daemon/decide/natives-plan.h"
#include "daemon/protocol/mover-outcome.h"
#include "daemon/records/records.h"
#include "daemon/records/request-args.h"
#include "daemon/records/step-answer.h"

#include <systemd/sd-id128.h>

struct decide;

/* ---- the world ---- */

#define ALIAS_TEXT 37 /* a UUID as text */

/* Where names come from. */
struct ids {
    void (*stamp)(struct ids *ids, int64_t now_ns, char out[32]); /* "20261121T020000-3f9a"; no two of a second alike */
    void (*alias)(struct ids *ids, char out[ALIAS_TEXT]);         /* a random UUID */
    bool begun;
    uint16_t next; /* what the next stamp ends with */
};

struct world {
    int64_t (*clock)(void); /* CLOCK_REALTIME in ns */
    int64_t now_ns;         /* when the turn began: constant during it */
    sd_id128_t boot;
    const struct cfg *cfg;
    struct ids *ids;
    bool writable; /* the records could be written when that was last tried */
};

/* What is known of a repository's storage. */
struct repo_health {
    struct repo_health *next;
    char name[128];
    bool known, up, checking;
    bool exposed;                   /* others can read its password file, which its section allows */
    bool read_only;                 /* its file system is mounted so */
    int64_t since_ns, checked_ns;   /* since: of the present state */
    int64_t seen_ns;                /* when that state was seen last: of a bucket, when it was opened last */
    int64_t free_bytes, size_bytes; /* of its file system; -1: not known */
    char why[512], hint[512];
    enum err_class cls; /* of why */
    /* admin operations that ask it whether snapshots can be read: one that runs, and one that waits and takes in what
     * is asked meanwhile; "": none */
    char checking_id[BOARD_ID_MAX], next_check_id[BOARD_ID_MAX];
    char recorder_id[BOARD_ID_MAX]; /* the newest operation that records outcomes in it; "": none */
};
/* The time of the turn, or now outside of one. */
int64_t decide_now(const struct decide *d);

/* Below this share of free room a repository is called full, here and by the alert of the shipped rules. */
#define REPOSITORY_FULL 0.05
bool repository_full(const struct repo_health *h);
/* Makes it if there is none; NULL: no memory. */
struct repo_health *repository_health(struct decide *d, const char *name);
/* NULL, or why operations on this repository must wait; valid until the next call. */
const char *repository_down(struct decide *d, const char *name);

/* ---- work: what runs in a process of its own for one row, one piece at a time ---- */

enum work {
    WORK_NONE,
    WORK_POOL,         /* how full is the storage of the volume? */
    WORK_PRUNE,        /* remove native snapshots */
    WORK_PRE_HOOK,     /* pre-snapshot hook; member "watchdog" of its input: request of the post-snapshot hook */
    WORK_SNAPSHOT,     /* take native snapshots */
    WORK_POST_HOOK,    /* post-snapshot hook; its end ends the watchdog */
    WORK_EXPOSE,       /* make a native snapshot readable */
    WORK_TARGET,       /* make the target of a restore */
    WORK_BEGIN_HOOK,   /* hook before a backup or restore */
    WORK_PREPARE_HOOK, /* fix up a writable intermediate */
    WORK_CHANGES,      /* list what changed: answers a descriptor */
    WORK_OPEN,         /* open the intermediate: answers a descriptor */
    WORK_TARGET_OPEN,  /* open the target: answers a descriptor */
    WORK_COMMIT,       /* put a restored target into place */
    WORK_UNDO,         /* remove what intents name */
    WORK_DELETE_NATIVES,
    WORK_DELETE_PLUGIN, /* let a mover plugin delete what it stored: {"plugin", "args"} */
    WORK_ASK_PLUGIN,    /* let one delete or verify what an operation stored: {"plugin", "verb", "args"} */
    WORK_RUN_HOOK,      /* hook after a backup or restore */
    WORK_LOOK,          /* which native snapshots of a backup are still there */
    WORKS
};
/* "snapshot": what it does, for status and log. */
const char *work_name(enum work w);

/* How a piece of work ended. */
struct work_result {
    json_t *in;                       /* what it was started with, NULL: unknown */
    json_t *out;                      /* NULL: none */
    struct step_answer asked, answer; /* of both, once it is looked at; asked: of snapshots and looks alone */
    int fd;                           /* -1: none */
    bool timed_out, canceled;
    bool not_started; /* no process could be made */
    bool fired;       /* of WORK_POST_HOOK: the watchdog had run the hook before */
    struct err err;   /* cls ERR_NONE: it succeeded */
};

/* How a mover ended. */
struct mover_report {
    enum mover_outcome outcome;
    json_t *result; /* NULL: none */
    int status;     /* of wait(2), -1: unknown */
    uint64_t memory_peak, oom_kills;
    double cpu_seconds;
    bool looked_for; /* of an earlier daemon: it was gone when it was to be adopted */
    struct err err;
};

/* ---- what is known of a row only while the daemon lives ---- */

struct live {
    struct live *next;
    enum work working;        /* WORK_NONE: nothing runs */
    int64_t pool_ns;          /* when the pool of its volume began to be measured */
    int64_t working_since_ns; /* boot_ns() */
    bool mover;               /* there is one, or it is being started */
    bool cancel_failed;       /* the mover could not be asked to end */
    bool undone;              /* the turn that started the mover was undone, and it is being ended */
    bool expose_first;        /* the work that exposes is the first one of its intent */
    bool found;               /* an earlier daemon had begun it, and on-restart = fail */
    unsigned events;          /* that wait for their turn */
    uint64_t planned;         /* number of the turn that planned an action for it */
    /* of the mover, as it reports */
    json_t *progress; /* last message, NULL: none */
    int64_t progress_ns;
    int64_t saved_ns; /* boot_ns() */
    int64_t moved_ns; /* when a counter of it last moved: it reports each second, also while it hangs */
    struct pace pace;
    bool changes_asked; /* of this attempt: what changed was listed, or cannot be */
    int changes_fd;     /* the list, of what changed or of what is allocated, -1: none; owned */
    void *step;         /* the caller's handle of the work */
    char id[];
};
#define LIVE_BUCKETS 4096 /* a power of two */

struct live *live_find(const struct decide *d, const char *id);
/* Makes it if there is none; NULL: no memory. */
struct live *live_get(struct decide *d, const char *id);
/* The list of changes was handed over, or is not needed: the next attempt asks again. */
void live_forget_changes(struct live *l);
/* Not while work of it runs. */
void live_drop(struct decide *d, const char *id);
/* If there is nothing to be remembered of it. What the turn has planned for it was carried out. */
void live_tidy(struct decide *d, const char *id);
/* The mover, if there is one, was started by a turn that was undone: no record knows of it. */
bool mover_was_undone(const struct live *l, const struct operation *op);
/* Work runs for the row, has ended and was not yet looked at, or was planned in this turn. */
bool busy(const struct decide *d, const char *id);
/* A mover of it is there or was planned in this turn. */
bool has_mover(const struct decide *d, const char *id);

/* ---- events ---- */

enum event_kind {
    EVENT_WORK,        /* a piece of work has ended */
    EVENT_READY,       /* a mover is there and has its job */
    EVENT_ENDED,       /* a mover is gone, and what it left was read */
    EVENT_PROGRESS,    /* a mover has got on: that is saved now and then */
    EVENT_NOT_STARTED, /* a mover could not be started */
    EVENT_REQUEST      /* something is to be recorded that follows from no row */
};

/*
 * A request of a client, or what was found by looking. write() makes its changes in the transaction of a turn, with
 * functions that belong to one, and once more if that transaction cannot be committed. < 0: what it has changed,
 * counted and planned is undone, and nothing else. > 0: there is more, and it is called again in the same turn and
 * transaction, so that others are answered between two parts of one that changes many rows; request_goes_on() tells
 * whether it is such a call. ended() is called once: when the changes are durable (e->cls
 * ERR_NONE), or when they are not made; it may use the records and post events.
 */
typedef int request_write_fn(struct decide *d, void *arg, struct err *e);
typedef void request_ended_fn(const struct err *e, void *arg);
struct request {
    request_write_fn *write;
    request_ended_fn *ended;
    void *arg;
};
struct event {
    struct event *next;
    enum event_kind kind;
    enum row_kind row;
    enum work work;
    struct work_result result;  /* of EVENT_WORK */
    json_t *identity;           /* of EVENT_READY: what the record needs to find the mover again */
    struct mover_report report; /* of EVENT_ENDED */
    struct err err;             /* of EVENT_NOT_STARTED */
    bool transient;             /* of EVENT_NOT_STARTED: worth another attempt */
    bool reduced;               /* what it says cannot be recorded, and was left out */
    struct request request;     /* of EVENT_REQUEST; `err` is why it was refused */
    char plugin_id[256];        /* of EVENT_READY: "" for the built-in mover */
    char id[BOARD_ID_MAX];
};
/* NULL: no memory. */
struct event *event_new(enum event_kind kind, enum row_kind row, const char *id);
/* Closes its descriptor, too. */
void event_free(struct event *ev);
/* Adds it behind those that wait. Takes it over. */
void event_post(struct decide *d, struct event *ev);
/* For write(): what an earlier call has changed is still there. False: it begins anew. */
bool request_goes_on(const struct decide *d);
/* -ENOMEM: it was not posted, and ended() is not called. */
int request_post(struct decide *d, const struct request *q);
/* Whether one waits for a turn. */
bool requests_wait(const struct decide *d);
/* Nothing can be recorded: ends those that wait. */
void requests_refuse(struct decide *d, const struct err *e);

/* ---- the plan ---- */

enum act_kind {
    ACT_WORK,              /* start `work` with `doc` */
    ACT_WORK_CANCEL,       /* end it now; its end is an event as any other */
    ACT_MOVER_START,       /* for an operation, with descriptor `fd` (-1: none), borrowed from an event */
    ACT_MOVER_GO,          /* it may begin */
    ACT_MOVER_ADOPT,       /* take over one that an earlier daemon started, or read what it left */
    ACT_MOVER_CANCEL,      /* ask it to end until op->cancel_deadline_ns */
    ACT_MOVER_FORGET,      /* remove what it left behind; with `text` (a plugin) and `doc` (its id) that one's, too */
    ACT_LIVE_DROP,         /* nothing is remembered of the row any more */
    ACT_LOG,               /* `text` at `level` */
    ACT_JOURNAL_OPERATION, /* the line of an operation that has ended */
    ACT_JOURNAL_RUN,       /* the line of a backup or restore that has ended */
    ACT_NATIVES,           /* what was planned for the native snapshots of one volume */
    ACT_SWEEP_KEPT,        /* remove what was kept for inspection and is released */
    ACT_REQUEST_ENDED,     /* of `event`: call its ended() with its `err` */
    ACT_CRASH_POINT        /* a place where tests kill the process */
};
struct act {
    enum act_kind kind;
    enum row_kind row;
    enum work work;
    enum log_level level;
    int fd;
    int64_t timeout_s;
    json_t *doc;
    char *id, *text;
    const char *name; /* of ACT_CRASH_POINT: static */
    bool done;        /* carried out while the turn goes on (decide_go_on()) */
    struct operation *op;
    struct backup *backup;
    struct native_facts *natives;
    size_t n_natives;
    const struct event *event; /* borrowed, of this turn */
};
struct plan {
    struct act *acts;
    size_t n, cap;
    bool failed;    /* no memory, or a row that cannot be written: nothing of it may be committed */
    struct err err; /* why; cls ERR_NONE: no memory */
};
/* Frees what it holds; it is empty then. */
void plan_clear(struct plan *p);

void plan_work(struct decide *d, enum row_kind k, const char *id, enum work w, json_t *in, int64_t timeout_s);
/* The row is not decided about again in this turn: part of its work is that of another one. */
void plan_note(struct decide *d, const char *id);
void plan_work_cancel(struct decide *d, const char *id);
void plan_mover_start(struct decide *d, const struct operation *op, int fd);
void plan_mover_go(struct decide *d, const struct operation *op);
void plan_mover_adopt(struct decide *d, const struct operation *op);
void plan_mover_cancel(struct decide *d, const struct operation *op);
void plan_mover_forget(struct decide *d, const char *id, const char *plugin, const char *plugin_id);
void plan_live_drop(struct decide *d, const char *id);
void plan_sweep_kept(struct decide *d);
/* Outside a turn it is logged at once. */
void plan_log(struct decide *d, enum log_level level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void plan_operation_ended(struct decide *d, const struct operation *op);
void plan_run_ended(struct decide *d, const struct backup *b);
void plan_natives(struct decide *d, const struct native_facts *f, size_t n);
void plan_crash_point(struct decide *d, const char *name);
void plan_request_ended(struct decide *d, const struct event *ev);
/* What was to be written cannot be: the unit is undone and tried again. */
void plan_fail(struct decide *d, const struct err *e);
/* Drops all actions behind the first `n`. */
void plan_cut(struct plan *p, size_t n);

/* ---- what cannot be recorded (aside.c) ---- */

/*
 * A turn consists of units: one event, one row that is looked at, one backup that begins. A unit whose changes cannot
 * be recorded is undone alone and kept aside: its row is not looked at, its events wait, until it is tried again after
 * 10 s, and after twice as long each time, 5 minutes at most.
 */
struct aside {
    struct aside *next;
    enum row_kind kind;
    struct err err;
    int64_t since_ns, until_ns;
    unsigned tries;
    bool tried; /* in this turn, and it could be written */
    char id[];
};
bool is_aside(const struct decide *d, const char *id);
void aside_add(struct decide *d, enum row_kind k, const char *id, const struct err *e);
/* Whose time has come is looked at. */
void asides_due(struct decide *d);
/* Its unit was written; asides_settle(): and is durable, or not. */
void aside_tried(struct decide *d, const char *id);
void asides_settle(struct decide *d, bool durable);
/* The next time that one is tried; 0: never. */
int64_t asides_wake(const struct decide *d);
void asides_free(struct decide *d);
/* What a unit changes, counts and plans between the two stays, or is undone and d->plan.err is why (false). */
void unit_begin(struct decide *d);
bool unit_end(struct decide *d);
/* As a unit of its own: the row is kept aside if it cannot be recorded. */
typedef void unit_fn(struct decide *d, const char *id);
void unit_of_row(struct decide *d, enum row_kind k, const char *id, unit_fn *fn);

/* ---- the room ---- */

/* What is removed from pools: only once it is gone is it worth to measure them. */
struct pool_pruning {
    json_t *busy;     /* pool -> until when to wait for a removal */
    json_t *removed;  /* pool -> when the last one was removed from it */
    int64_t since_ns; /* since when this is known */
};

struct decide {
    struct world world;
    struct records *records;
    struct board *board;
    struct live **live; /* LIVE_BUCKETS, by id */
    struct repo_health *repos;
    struct event *events, **events_end; /* that wait for their turn */
    struct event *taken, **taken_end;   /* of this turn */
    struct plan plan;
    struct aside *asides;
    struct pool_pruning pruning;  /* of pools over their high-water marks (natives.c) */
    json_t *no_bookmarks;         /* class -> true: why it has none was logged (snapshots.c); NULL: of no class */
    struct run_tally *tallies;    /* of backups in Finalizing (backup.c) */
    struct evidence_at *evidence; /* how far the answers of recorders were noted (evidence.c) */
    struct strs again, again_ops; /* backups, operations that are looked at again in the next turn */
    struct event *part;           /* a request that has more to change: its unit is open, and it is called next */
    size_t unit_acts;             /* how many actions were planned before the unit */
    unsigned units;               /* of this turn */
    struct event *unit;           /* the last one: an event, NULL: a row */
    enum row_kind unit_row;
    char unit_id[BOARD_ID_MAX];
    uint64_t turn; /* number of the turn */
    bool in_turn;
    bool in_flight;       /* what the turn has changed is being written, its actions wait */
    bool goes_on;         /* more is decided in the same turn */
    bool board_stale;     /* it has to be made again from the rows */
    const char *later;    /* while begin_backups() ends retries: the backup for which */
    bool backups_changed; /* which of the queued ones may begin is to be found out */
};

/* Reads the rows into the board. `d` is zero but for records and world. */
int decide_init(struct decide *d, struct err *e);
void decide_free(struct decide *d);
/* A row was changed, or a change was undone (rows_watch()). */
void decide_row_changed(struct decide *d, enum row_kind k, const char *id, const void *was, const void *now);

/*
 * One turn, in the open transaction of the caller: events first, then rows that are marked on the board, at most about
 * `n` units, exactly one if n is 1. Then the caller commits, carries out the plan and calls decide_acted(), or rolls
 * back and calls decide_undone(). No other turn begins before that.
 */
void decide_turn(struct decide *d, unsigned n);
/*
 * A mover that was started waits for its go, and that is never given before what the turn has changed is durable
 * (MS-19): it can be started before. If a turn plans nothing else, its commit can wait until the mover is ready, and
 * be one with that of its go: the caller carries out what act_is_early(), marks it as done, calls decide_go_on(), and
 * later decide_turn() again in the same transaction. If that is undone, the caller ends these movers.
 */
bool decide_may_go_on(const struct decide *d);
bool act_is_early(const struct act *a);
void decide_go_on(struct decide *d);
/*
 * A request has changed a part of its rows: decide_turn() is called again in the same transaction, with the rest of the
 * turn, and nothing is committed before. Until then the records are written by nobody else. decide_part_undo() drops
 * what the request has changed so far: it waits again, and begins anew.
 */
bool decide_pauses(const struct decide *d);
void decide_part_undo(struct decide *d);
/* What was decided is durable: the plan's actions may be carried out, in order; the events are forgotten afterwards
 * (decide_acted()). */
void decide_acted(struct decide *d);
/* Nothing of it happened: the plan is dropped, the events wait again, and the rows are marked again. */
void decide_undone(struct decide *d);
/* The turn that was undone last had one unit, which is why it cannot be recorded: a request is refused, anything else
 * is kept aside. */
void decide_blame(struct decide *d, const struct err *e);
/* When there will be something to be decided without an event: the earliest stored deadline; 0: never. */
int64_t decide_wake(const struct decide *d);
/* There is something to be decided now. */
bool decide_is_due(const struct decide *d);
/* Rows are to be looked at although they were not written. */
void decide_look_at(struct decide *d, enum row_kind k, const char *id);
/* The same of a backup or an operation, but not in this turn: what is looked at takes long, and requests are answered
 * in between. */
void decide_look_again(struct decide *d, enum row_kind k, const char *id);
void decide_look_at_all(struct decide *d);

/* ---- rows ---- */

/*
 * X_read: a copy to be changed; a failure other than "there is none" is logged. X_write: a failure is logged and
 * returned; within a turn it makes the plan fail. X_become: the same under a new state.
 */
int operation_read(struct decide *d, const char *id, struct operation *ret);
int operation_write(struct decide *d, struct operation *op);
int operation_become(struct decide *d, struct operation *op, enum op_state state);
int backup_read(struct decide *d, const char *id, struct backup *ret);
int backup_write(struct decide *d, struct backup *b);
int backup_become(struct decide *d, struct backup *b, enum backup_state state);
int native_row_read(struct decide *d, const char *alias, struct native_row *ret);
int native_row_write(struct decide *d, struct native_row *n);
/* Of a repository: maintenance and verification. `ret` is initialized; without a row it gets an empty one. */
int repository_row_read(struct decide *d, const char *repository, struct job_run *ret, struct err *e);
/* Likewise of any row of ROW_JOB, by its id. */
int memory_row_read(struct decide *d, const char *id, struct job_run *ret, struct err *e);
int repository_row_write(struct decide *d, struct job_run *row, struct err *e);
int native_row_become(struct decide *d, struct native_row *n, enum native_state state);
int volume_row_read(struct decide *d, const char *id, struct volume_row *ret);
/* Notes an error in a row: when, and in which attempt. */
void operation_error(struct decide *d, struct operation *op, const char *stage, const struct err *e);
/* Done, but with something missing: what, of which the first is kept. */
void operation_degrade(struct operation *op, const char *why);
void backup_error(struct decide *d, struct backup *b, const char *stage, const struct err *e);
/* How lines of the journal begin that are about a record: its id, and its volume in brackets. Two of them may be in
 * use. */
const char *operation_label(const struct operation *op);
/* The source of its volume's snapshots in the repository: what its mover named after it had looked for the history, or
 * as earlier versions named it, "snapferry@NODE:/VOLUME-ID". */
#define SOURCE_TEXT 4600
void operation_source(const struct operation *op, char out[SOURCE_TEXT]);
void volume_source(const struct volume_row *v, const char *node, char out[SOURCE_TEXT]);
/* Storage may have to copy, to look at or to remove each part of a volume to restore into: what steps of a restore may
 * take beyond their limits. 0 for others. */
int64_t operation_size_s(const struct operation *op);
static inline bool operation_is_restore(const struct operation *op)
{
    return op->kind == KIND_RESTORE;
}

/* ---- policies and classes as rows take them along (policy.c) ---- */

/* The clock was set by so many nanoseconds: what waits does so as long as it would have (clock.c). 0: it may have been
 * while no daemon ran, which is seen by what was written in the future. In the transaction of the caller. Returns the
 * number of operations that were changed. */
unsigned clock_was_set(struct decide *d, int64_t by_ns);

/* What waits takes over the configuration as far as that is possible (configure.c). */
struct configured {
    unsigned changed, kept; /* operations: that have changed; that keep a part of what was configured before */
};
/* One; true: it has changed and is to be written. */
bool operation_configure(struct decide *d, struct operation *op);
/* All, in the transaction of the caller. */
struct configured configure_waiting(struct decide *d);
/* An own one, which may be changed before policy_make(). */
int policy_from_cfg(struct policy *ret, const struct cfg_policy *p);
/* New references. */
const struct class_desc *class_from_cfg(const struct cfg *c, const struct cfg_class *k, const struct cfg_policy *p);
/* The same as a document for a step. */
json_t *class_doc(const struct cfg *c, const struct cfg_class *k, const struct cfg_policy *p);
/* A class for a restore target; if no class matches, one of the name CLASS_OF_TARGET with that driver, which counts as
 * none. */
#define CLASS_OF_TARGET "(target)"
const struct class_desc *class_for_path(const struct cfg *c, struct cfg_subject v, const char *driver);

/* A restore target by its name (restore-target.c). */
struct target_named {
    struct cfg_subject subject;
    const char *driver; /* that fills it if it is in no class */
    const char *own;    /* the class of the volume that was backed up */
};
/* Its class, as class_for_path(): where a class has to say in which cluster it is, another one of the driver if none
 * selects it. */
const struct class_desc *class_of_target(const struct cfg *c, const struct target_named *t);
/* Whether what was stored by `of` cannot be restored to it as it is named: ERR_USAGE. */
int target_refused(const struct cfg *c, const struct target_named *t, const struct operation *of, struct err *e);
/* Whether operations that have not ended forbid it: another restore has this target, or a backup takes a snapshot of
 * it, or reads it without one (`in_place`: the restore would change it meanwhile). ERR_BUSY. */
int target_in_use(struct decide *d, const char *target, bool in_place, struct err *e);
/* Whether a restore that has not ended writes in place what is backed up by `op`, so that a backup would store a half
 * of it: ERR_BUSY. */
int restore_under_way(struct decide *d, const struct operation *op, struct err *e);
/* Whether what is there forbids it: ERR_TARGET. */
int target_found_refused(const struct request_args *req, const struct target_found *found, struct err *e);
/* What a restore reads (restore-source.c). A native snapshot is cloned as a whole: what is compared with something, or
 * is a part, is done with the repository's contents, by their hashes. Returns the option that asks for that, or NULL.
 */
const char *restore_only_of_repository(const struct request_args *req);
/* Whether the request contradicts itself: ERR_USAGE. `named`: its target is a path, or something that a driver knows.
 */
int restore_refused(const struct request_args *req, bool named, struct err *e);
/* Whether a native snapshot may be what a restore reads, as far as its record tells: then the storage is asked. */
bool restore_native_recorded(const struct native_row *n);
struct native_offer {
    bool usable;
    const char *why; /* it is not; never NULL */
};
#define RESTORE_WHY 700
/* Of the operation that made the backup; `why`: the reason, which the restore keeps. FROM_NONE: it is refused, by `e`.
 */
enum restore_from restore_source(const struct operation *of, const struct request_args *req,
                                 const struct native_offer *native, char why[RESTORE_WHY], struct err *e);
/* A copy has rates of its own, in its section; NULL: it is gone. */
void limits_of_copy(struct mover_limits *l, const struct cfg_copy *k);
/* The limits that the configuration has by now for an operation, for fields_clear(&mover_limits_fields, ret) also where
 * it has none any more (negative). */
int limits_of(const struct cfg *c, const struct operation *op, struct mover_limits *ret);
/* Adds to a mover's job what it keeps to by itself. */
void limits_job(json_t *job, const struct policy *policy);

/* ---- who may go next (queue.c) ---- */

/* Slots and order: whether `op` may expose (or move) now; else `why` names what it waits for. */
bool queue_may(struct decide *d, const struct operation *op, bool move, char *why, size_t cap);
/* Why it cannot go whoever else does: its repository is unavailable. NULL: nothing. */
const char *queue_outage(struct decide *d, const struct operation *op);
/* Marks the operations that may go next. */
void queue_mark_next(struct decide *d);
/* Marks those that wait for a repository that is unavailable. */
void queue_mark_down(struct decide *d);
/* What an operation waits for before it may be exposed or moved; "": nothing. */
void operation_waits_for(struct decide *d, const struct operation *op, char *why, size_t cap);
/* Begins the queued backups that may begin now, the oldest first, at most `n`. */
void begin_backups(struct decide *d, unsigned n);
/* What has ended of a backup that has not: kept as they end, read once in the life of a daemon. False: not known. */
bool backup_ended_operations(struct decide *d, const struct backup *b, struct board_ended *ret);
/* Place of a queued backup in the order, from 1, and the id of the one with the same volumes that goes first ("":
 * none). */
unsigned backup_position(struct decide *d, const struct backup *b, char by[192]);

/* ---- the state machines ---- */

void decide_operation(struct decide *d, struct operation *op);
void decide_admin(struct decide *d, struct operation *op);
void decide_plugin_admin(struct decide *d, struct operation *op);
void decide_delete(struct decide *d, struct operation *op);
void decide_backup(struct decide *d, struct backup *b);
/* What was read of the operations of backups that end is forgotten. */
void tallies_forget(struct decide *d);
/* Its operations move data and there is nothing to decide about itself: it is not copied, with all its volumes. */
bool backup_only_waits(struct decide *d, const char *id);
/* Phase 1 of a backup: prune, hooks, native snapshots. True when all its operations have left it. */
bool decide_snapshots(struct decide *d, const struct backup *b);

/* The ends of work, by who asked for it. */
void snapshots_work_ended(struct decide *d, struct operation *op, enum work w, struct work_result *s);
void operation_work_ended(struct decide *d, struct operation *op, enum work w, struct work_result *s);
void plugin_admin_work_ended(struct decide *d, struct operation *op, const struct work_result *s);
void delete_work_ended(struct decide *d, struct operation *op, enum work w, struct work_result *s);
void backup_work_ended(struct decide *d, struct backup *b, enum work w, struct work_result *s);

/* The pre-backup or pre-restore hook: true: there is none, or it has ended; else it is planned. */
bool begin_hook(struct decide *d, const struct operation *op);
/* Its end: true: the operation goes on. */
bool begin_hook_ended(struct decide *d, struct operation *op, struct work_result *s);

/* What becomes of movers (move.c). */
void mover_ready(struct decide *d, struct operation *op, const struct event *ev);
void mover_ended(struct decide *d, struct operation *op, const struct mover_report *r);
/* Exposed, and its turn: a mover is started. */
void operation_start(struct decide *d, struct operation *op);
/* Starting, but for the mover. */
int operation_begin_start(struct decide *d, struct operation *op);
/* Running under a daemon that is not this one: taken over, or what it left is taken for its end. */
void operation_adopt(struct decide *d, struct operation *op);

/* on-restart = fail (on-restart.c): what this daemon has found begun; to be called before the first turn. */
int on_restart_note(struct decide *d, struct err *e);
/* True: it was one of them, and fails. */
bool on_restart_failed(struct decide *d, struct operation *op);
bool on_restart_mover_gone(struct decide *d, struct operation *op, const struct mover_report *r);

/*
 * prepare-timeout (prepare.c). Its clock begins with the snapshot, runs while the intermediate is made and a mover is
 * started, and pauses while the operation waits for its turn; each changes the row only.
 */
void prepare_begins(struct decide *d, struct operation *op);
void prepare_runs(struct decide *d, struct operation *op);
void prepare_pauses(struct decide *d, struct operation *op);
void prepare_ends(struct operation *op);
/* A mover of an earlier daemon has some time to tell what it has read. */
void prepare_adopted(struct decide *d, struct operation *op);
/* Ends for good with the first byte, if its mover has told of one. */
void prepare_read(struct decide *d, struct operation *op);
void prepare_over(struct operation *op);
/* What is left for a piece of work, at least 1 s. */
int64_t prepare_left_s(struct decide *d, const struct operation *op);
/* The time is up: why, for the record. `last`: the error of the attempt that ends with it, NULL: that in the record. */
void prepare_error(const struct operation *op, const struct err *last, char stage[32], struct err *ret);
/* True: all of the time begins anew, since the machine was started or the clock was set back. */
bool prepare_renews(struct decide *d, struct operation *op);
/* True: the time is up; the operation fails, or its mover was asked to end (late.c). */
bool prepare_is_late(struct decide *d, struct operation *op);
/* Another attempt at that time would come too late. */
bool prepare_forbids(struct decide *d, const struct operation *op, int64_t at_ns);
/* It fails because the time is up; `last` is the error it ended with (outcome.c). */
void prepare_failed(struct decide *d, struct operation *op, const struct err *last);

/* Whether only what changed is read (changes.c). A parent is there, so that a list will be asked for. */
bool changes_expected(struct decide *d, const struct operation *op);
/* Of the native snapshot that it takes a bookmark is to be made: it may become a parent. */
bool changes_want_bookmark(const struct operation *op);
/* Whether a list of what is allocated may be used: all data is to be read, but nobody has asked for just that. */
bool changes_may_skip(struct decide *d, const struct operation *op);
/* Before the mover is started. True: the list is being made (WORK_CHANGES); false: go on. */
bool changes_list(struct decide *d, struct operation *op);
void changes_listed(struct decide *d, struct operation *op, struct work_result *s);
/* The mover is started at once, since no parent was expected: only the reason is noted. The caller writes it. */
void changes_skip(struct decide *d, struct operation *op);
/* Of a mover that gets a list: member "incremental" of its job (docs/mover.md), or "allocated". */
const char *changes_member(const struct operation *op);
json_t *changes_job(const struct operation *op);
/* The mover has ended well: what it made of the list is noted and counted. */
void changes_used(struct decide *d, struct operation *op);
/* The backup is complete: `n`, its native snapshot, becomes the parent of the next one. The caller writes it. */
void changes_keep_parent(struct decide *d, const struct operation *op, struct native_row *n);

/* Ends of attempts and of operations (outcome.c). */
void operation_fail(struct decide *d, struct operation *op, const char *stage, const struct err *e);
/* Decides the outcome ("Completed", ...) and begins releasing what the operation owns. */
void operation_finish(struct decide *d, struct operation *op, enum outcome outcome);
/* Notes that it is to be canceled; what that takes follows when it is looked at. */
int operation_ask_cancel(struct decide *d, struct operation *op, const char *why);
/* Does it. */
void operation_cancel(struct decide *d, struct operation *op);
/* The connection to the server of an NBD export that is restored to is lost, or cannot be made: it may be back later.
 */
bool target_is_away(const struct err *e);
/* A failed attempt: retried with backoff if the class of error and the budget allow, else finished as Failed. */
void operation_attempt_failed(struct decide *d, struct operation *op, const char *stage, const struct err *e,
                              bool transient);
enum interruption {
    BY_OTHERS,
    BY_REBOOT,
    BY_OUTAGE, /* of its repository */
};
/* It has ended through no fault of its own: it resumes from its last checkpoint, of the same native snapshot, and no
 * attempt is counted; at once after a boot. */
void operation_interrupted(struct decide *d, struct operation *op, const struct err *e, enum interruption by);

/* ---- the outcome of a backup in its repositories (record.c) ---- */

/* Its native snapshots are looked at again (AO-38). True: that was done, or there is none. */
bool backup_looked(struct decide *d, struct backup *b);
void backup_look_ended(struct decide *d, struct backup *b, const struct work_result *s);
/* Adds the repository that a mover of the operation began to write into: nothing of its backup is in another one. */
void backup_record_into(const struct operation *op, json_t *repositories);
/* Its outcome is decided: what records it is added, and noted in the backup, which the caller writes. `into`: what
 * backup_record_into() made of all its operations; NULL: they are read. False: nothing of it is in a repository. */
bool backup_record(struct decide *d, struct backup *b, const json_t *into);
/* What recorded it has found that a snapshot of it is not what was backed up. True: a backup that has ended is recorded
 * again; the outcome of another one is to be decided again. */
bool backup_record_again(struct decide *d, struct backup *b);
/* The first try has not ended yet. */
bool backup_record_waits(struct decide *d, const struct backup *b);
/* It was canceled: what writes its record is looked at, so that it does not wait for long. */
void backup_record_hurry(struct decide *d, const struct backup *b);
/* A mover is about to write it. */
bool backup_record_runs(struct decide *d, const struct backup *b);
/* It is to be deleted: nobody writes its record any more; whether that has happened. */
void backup_record_drop(struct decide *d, struct backup *b);
bool backup_record_dropped(const struct backup *b);

/* ---- requests ---- */

/* Admin operations: a mover of kind admin with a list of steps; id gets the operation's id. Takes over `steps`. */
int admin_submit(struct decide *d, const char *repository, json_t *steps, const char *parent, const char *prefix,
                 char id[512], struct err *e);
/* A question that is to be added waits a moment for those of other backups, if there are some under way. */
void admin_gather(struct decide *d, struct operation *op);
/* A queued operation of `kind` (admin, verify); `op` is initialized and has what is special about it, also its id where
 * `prefix` is NULL. */
int admin_add(struct decide *d, enum op_kind kind, const char *prefix, const char *repository, struct operation *op,
              const char *parent, char id[512], struct err *e);
/* The same of a mover plugin ("plugin:NAME"; "": the built-in mover), which needs no repository. */
int admin_add_mover(struct decide *d, enum op_kind kind, const char *prefix, const char *repository, const char *mover,
                    struct operation *op, const char *parent, char id[512], struct err *e);
/* Steps of a mover plugin, about operations whose data it stores: [{"verb": "delete"|"verify", "operation"}]. Takes
 * over `steps`. */
int plugin_admin_submit(struct decide *d, enum op_kind kind, const char *mover, json_t *steps, const char *parent,
                        const char *prefix, char id[512], struct err *e);
/* All that a mover plugin stores is verified, or `percent` of the backups, the newest one among them. */
/* Reads `most` finished operations at a time, and adds the operation when all were read: 0. 1: there are more, to be
 * called again in the same transaction. `x` is zero at first; plugin_verify_clear() afterwards. */
struct plugin_verify {
    json_t *steps;
    double due;
    uint64_t before; /* number of the last one that was read */
};
int plugin_verify_submit(struct decide *d, const char *mover, double percent, unsigned most, struct plugin_verify *x,
                         char id[512], struct err *e);
void plugin_verify_clear(struct plugin_verify *x);
/* Adds the steps that the keep-* of a completed operation's policy ask for. */
int plugin_retention_steps(struct decide *d, const struct operation *op, json_t *steps, struct err *e);
/* Result of step number i of an admin operation, NULL; borrowed from op. */
const json_t *admin_answer(const struct operation *op, unsigned i);
/* Deletes a backup with all that it owns (RS-23), in the transaction of the caller.
 * *answer: a new reference. */
int delete_submit(struct decide *d, const char *id, bool force, bool even_kept, json_t **answer, struct err *e);

/* ---- native snapshots (natives.c) ---- */

/* Asks the repository what natives_make_room() will have to know once the operation has released its own native
 * snapshot. True: op->check_operation is set, and is to be written. */
bool natives_ask_ahead(struct decide *d, struct operation *op, const struct native_rules *rules, int64_t since_ns);
/*
 * Removes what a plan for the operation's volume has due for pruning. 1: something is under way, look again later; 0:
 * done, `v` says whether a new one may be made.
 */
int natives_make_room(struct decide *d, struct operation *op, const struct native_rules *rules, int64_t since_ns,
                      struct native_verdict *v, struct err *e);
/* While it has asked the repository and waits for the answer: "waits for admin-check-...: why"; else false. */
bool natives_asked(struct decide *d, const struct operation *op, char *out, size_t cap);
/* A native snapshot is being removed since the pool is over its high-water mark: it is not worth to measure it now. */
bool natives_pool_busy(struct decide *d, const char *driver, const struct volume_desc *v);
/* Its record goes; `what`: "removed". */
void native_forget(struct decide *d, const struct native_row *r, const char *what);
/* One that was missing is there. */
int native_seen_again(struct decide *d, struct native_row *r);
/* The end of WORK_PRUNE. */
void natives_pruned(struct decide *d, struct operation *op, const struct work_result *s);
/* An item for the removal: with the intermediate that was kept with it, which is removed first, and its bookmark, which
 * is the last. New reference. */
json_t *native_removal(const struct native_row *n);
/* The same of one that is being pruned: its bookmark stays if it is still a base (natives_plan()). */
json_t *native_pruning(const struct native_row *n);
/* What the removal of native snapshots answered (NULL: nothing). */
void natives_removed(struct decide *d, const struct step_answer *answer);
/*
 * What a plan would remove, as items for the removal. One whose data is in a repository is due only when the repository
 * was asked after `since_ns` and could read it (RS-18): until then it is in *check (snapshot id -> alias), not in
 * *items: a move counts once somebody else than its mover has seen it. The records say "removing" before anything is
 * removed.
 */
int natives_plan_prune(struct decide *d, const char *volume_id, const struct native_rules *rules, int64_t since_ns,
                       json_t **items, json_t **check, struct native_verdict *v, struct err *e);
/* Adds to *check those of the volume that stay since this repository did not have their data when it was asked before
 * `since_ns`: it may be whole again. */
int natives_ask_again(struct decide *d, const char *volume_id, const char *repository, int64_t since_ns, json_t *check,
                      struct err *e);
/* Retention has removed these snapshots from the repository: native snapshots whose data was seen there may go without
 * them, once the number of those that are retained allows it, and the newest is seen in the repository. */
void natives_note_expired(struct decide *d, const struct operation *expiry);
/* Likewise of the operations that made them. */
void operations_note_expired(struct decide *d, const struct operation *expiry);
/* The answer that it waits for is of no use to it any more: a check that nobody waits for is canceled. */
void natives_leave_check(struct decide *d, struct operation *op);
/* What the repository answered about the snapshots behind native snapshots. */
void natives_note_checked(struct decide *d, const struct operation *check);
enum asking {
    ASK_NOW,
    ASK_PATIENT, /* other backups that are under way will ask, too: it may wait for them for a moment */
    ASK_REQUEST  /* somebody else than operations waits for the answer */
};
/* Asks it by an admin operation; id gets its name. What waits to be asked goes along. */
int natives_ask_repository(struct decide *d, const char *repository, json_t *check, enum asking how, char id[512],
                           struct err *e);

/* ---- what a failed backup leaves for inspection (kept.c): expose-keep-on-failure, PVC-11 ---- */

/* The operation fails: notes in the record of its native snapshot, which the caller writes, what stays, and takes the
 * intermediate over from its intent. Nothing, if that is not wanted, or something of the volume is kept already. */
void kept_note(struct decide *d, const struct operation *op, struct native_row *n);
/* The native snapshot that is kept since this operation failed; it may be that of a retry by now. NULL: none. */
const struct native_row *kept_of(struct records *r, const struct operation *op);
/* It is no longer wanted: changes the row, which the caller writes; its intermediate is removed then. False: it was not
 * kept. */
bool kept_release(struct decide *d, struct native_row *n);
/* Whether an intermediate of that alias is kept, or released and not removed yet. */
bool kept_has(struct records *r, const char *alias);
/* Intermediates that were released, as intents to undo; their ids are numbers of the rows. New reference, NULL: none.
 */
json_t *kept_released(struct records *r);
/* What became of them: {"intents": [{"id", "error"}]}. True: at least one is gone. */
bool kept_removed(struct decide *d, const json_t *out);

/* ---- another attempt from the native snapshot of a backup that failed (retry.c): RS-03 ---- */

/*
 * A new backup of the volumes of `backup` that failed (`volume`: the name or id of one, "": all), of the native
 * snapshots that were taken then: of no other, so that no volume of it is of another time. `seen`: what a look at the
 * storage has found of them. In the transaction of the caller. *answer: a new reference.
 */
int retry_submit(struct decide *d, const char *backup, const char *volume, const struct step_answer *seen,
                 json_t **answer, struct err *e);
/* Which natives a retry would need, for a look at the storage: {"classes": [...], "aliases": [alias]}. New
 * reference; NULL: `e`. */
json_t *retry_look(struct decide *d, const char *backup, const char *volume, struct err *e);
/* Phase 1 of an operation that is one: its native snapshot is there, or it fails. */
void retry_begin(struct decide *d, struct operation *op);

/* ---- volumes (volumes.c) ---- */

/* Remembers what is known of a volume: `volume` replaces what was known; `change` (NULL: none) changes the rest. */
typedef void volume_change_fn(struct volume_row *v, const void *arg);
void volume_note(struct decide *d, const struct volume_desc *volume, const char *klass, volume_change_fn *change,
                 const void *arg);
/* By id or name. */
int volume_find(struct decide *d, const char *what, struct volume_row *ret);
/*
 * A backup of this volume is no more (or soon will not be). If it was the last good one, the newest of the others that
 * still exists is that from now on; if there is none, `why` ("was deleted") says where it went. To be called before or
 * after its record goes, also within a transaction.
 */
int volume_backup_lost(struct decide *d, const char *volume_id, const char *backup, const char *why, struct err *e);
/* The same where more are lost of which that is not recorded yet: `gone` says which, so that none of them becomes the
 * last good one, and the others are looked through once. */
typedef bool operation_gone_fn(const struct operation *op, void *arg);
int volume_backup_lost_of(struct decide *d, const char *volume_id, const char *backup, const char *why,
                          operation_gone_fn *gone, void *arg, struct err *e);
/* Some that counted as lost are there again: the volume's backups are looked through. */
void volume_backup_found(struct decide *d, const char *volume_id);
/* This one is: it alone is compared with the last good one. */
void volume_backup_there(struct decide *d, const struct operation *op);
/* Bytes that had changed since the backup before; -1: not known (a native snapshot alone, a plugin that does not
 * count). */
int64_t operation_changed_bytes(const struct operation *op);
/* What shows that it can be restored: "" another process than its mover has found its snapshot in the repository;
 * "mover" that alone says so; "plugin:NAME" so does the plugin that stored the data; "native" its native snapshot. */
const char *operation_evidence(const struct operation *op);
/* Whether its backup is the one that protects its volume. */
bool operation_is_last_good(struct records *r, const struct operation *op);
/* ---- what shows that a backup can be restored (evidence.c) ---- */

/* The snapshot in the repository that one of our own movers has reported and that nobody else has seen; "": none.
 * Borrowed from `op`. */
const char *operation_unproven(const struct operation *op);
/* What the snapshot that was reported must be, for the step "check" of a mover of this repository (docs/mover.md), a
 * new reference; NULL: it is not asked about: in another repository, missed before, or no longer the newest good one of
 * its volume. */
json_t *operation_expected(struct records *r, const struct operation *op, const char *repository);
/* When its snapshot was begun: between the native snapshot and the end of the mover, by a clock that may have been set
 * back in between. 0: not known. */
void expect_between(json_t *x, int64_t created_ns, int64_t ended_ns);
/* It is not there, or something else; the caller writes the row. */
void operation_disproved(struct operation *op, const char *why);
/* Its volume is not protected by it, if it was taken for its newest good backup. */
void volume_is_disproved(struct decide *d, const struct operation *op);
/* The repository does not have what a finished operation has backed up, or has it again: noted in the operation, which
 * the caller writes, and in its backup. What has ended stays as it ended (MS-62); what is shown of it says so. */
void operation_is_gone(struct decide *d, struct operation *op, const char *why);
void operation_is_back(struct decide *d, struct operation *op);
/* Its snapshot is no longer in the repository, as retention wants it, or a client that deletes; or it is there after
 * all, which is operation_is_back(), too. Likewise noted in the operation, which the caller writes, and in its backup.
 */
void operation_is_lost(struct decide *d, struct operation *op, const char *why);
void operation_is_there(struct decide *d, struct operation *op);
/* Sets and logs the error that follows from operation_disproved(). */
void operation_disproved_error(struct decide *d, struct operation *op);
/* Takes over what the recorder of backups has found of their snapshots. False: that goes on in the next turn. Else its
 * row is changed, and the caller writes it. */
bool evidence_noted(struct decide *d, struct operation *recorder);
/* A turn was undone: what it has noted is noted again. */
void evidence_forget(struct decide *d);

/* The repository that has a volume's last good backup; "": none. */
void volume_repository(struct decide *d, const struct volume_row *v, char *out, size_t cap);

/* ---- what is counted (count.c): in the transaction that makes it a fact ---- */

/* Adds the stages of a mover's result to the counters stage_busy_seconds_total and stage_stall_seconds_total, and its
 * bottleneck to bottleneck_total; labels direction and stage. Nothing for a result without stages. */
#define STAGES_OF_A_RESULT 16 /* more are not counted */
void count_stages(struct records *r, const char *direction, const struct mover_figures *f);
/* Label values: of a fixed set whatever is asked. */
const char *count_direction(enum op_kind kind);
const char *count_result(enum outcome outcome);
/* All values of the labels reason (of failures) and code (of requests to a repository); NULL behind the last one. */
const char *count_reason_at(unsigned i);
const char *count_code_at(unsigned i);
/* Adds the time since the last change of state to what the operation spent in `state`. */
void operation_spent(struct operation *op, enum op_state state, int64_t now_ns);
/* It leaves the queue for `state`; the first time counts. */
void count_queue_wait(struct decide *d, struct operation *op, enum op_state state);
void count_operation_ended(struct decide *d, struct operation *op, enum outcome outcome);
void count_retry(struct decide *d, const struct operation *op);
void count_mover_ended(struct decide *d, const struct operation *op, const struct mover_report *r,
                       const struct mover_figures *f);
void count_backup_begun(struct decide *d, const char *schedule, bool restore);
/* A job could not be started: an attempt and a failure of its. */
void count_start_failed(struct decide *d, const char *schedule);
/* A run of maintenance that was to change something. */
void count_maintained(struct decide *d, const struct operation *op);
void count_copied(struct decide *d, const struct operation *op);
void count_backup_ended(struct decide *d, const struct backup *b, enum outcome outcome);
void count_snapshot(struct decide *d, const struct operation *op, bool taken, double seconds);
/* Counters that an earlier version kept under other names or labels. */
void count_migrate(struct records *r);

#endif
