/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * types.h - what the records hold: one struct for each kind of row, one table of fields for each struct
 *
 * Strings (`char *`) are never NULL and are set with str_set(); see fields.h. Numbers that are not known are 0, or -1
 * where it says so. Pointers to shared structs (policy, class_desc, volume_desc, native_desc, tag_desc) are never NULL
 * either: *_none stands for "there is none", and is_none() asks for it. They are immutable: who wants another value
 * copies one (policy_copy()), changes the copy and makes it a shared one (policy_make()). A json_t is opaque or foreign
 * (what a driver, a plugin or a mover said), NULL where there is none, and never changed in place.
 *
 * Names of members on disk and on the wire are those of the tables in types.c, which docs/records.md shows.
 */
#ifndef SNAPFERRY_DAEMON_RECORDS_TYPES_H
#define SNAPFERRY_DAEMON_RECORDS_TYPES_H

#include "daemon/protocol/mover-limits.h"
#include "daemon/records/fields.h"
#include "daemon/records/results.h"

#include "base/cleanup.h"

/* ---- words ---- */

enum row_kind {
    ROW_BACKUP,    /* a run over volumes; also restores ("restore-..." with one operation) */
    ROW_OPERATION, /* one volume of a backup, or one restore, verify, admin, delete run */
    ROW_NATIVE,    /* a native snapshot on this node's storage; id = alias */
    ROW_VOLUME,    /* what is known of a volume; id = volume id */
    ROW_JOB,       /* last runs of a job's schedule; id = job name; or of maintenance, see struct maintain_memory */
    ROW_KINDS
};

enum op_kind {
    KIND_NONE,
    KIND_BACKUP,
    KIND_RESTORE,
    KIND_VERIFY,
    KIND_ADMIN,
    KIND_DELETE,
    KIND_MAINTAIN,
    KIND_COPY, /* of a repository: target_name is the name of its [copy] section */
    KINDS
};

enum op_state {
    OP_NONE,
    OP_QUEUED,
    OP_SNAPSHOTTING,
    OP_EXPOSING,
    OP_STARTING,
    OP_RUNNING,
    OP_RETRYING,
    OP_CANCELLING,
    OP_CLEANING_UP,
    OP_COMPLETED, /* from here on terminal */
    OP_PARTIALLY_FAILED,
    OP_FAILED,
    OP_CANCELED,
    OP_SKIPPED,
    OP_STATES
};

enum backup_state {
    BACKUP_NONE,
    BACKUP_QUEUED,
    BACKUP_SNAPSHOTTING,
    BACKUP_MOVING,
    BACKUP_FINALIZING,
    BACKUP_DELETING,  /* may follow a terminal state (RS-23) */
    BACKUP_COMPLETED, /* from here on terminal */
    BACKUP_PARTIALLY_FAILED,
    BACKUP_FAILED,
    BACKUP_CANCELED,
    BACKUP_SKIPPED,
    BACKUP_STATES
};

enum native_state { NATIVE_NONE, NATIVE_CREATING, NATIVE_PRESENT, NATIVE_REMOVING, NATIVE_MISSING, NATIVE_STATES };

enum known_state { VOL_NONE, VOL_KNOWN, VOL_GONE, VOL_STATES }; /* of a volume's row */

enum job_state { JOB_NONE, JOB_STATES }; /* rows of jobs have no state */

enum outcome {
    OUTCOME_NONE,
    OUTCOME_COMPLETED,
    OUTCOME_PARTIALLY_FAILED,
    OUTCOME_FAILED,
    OUTCOME_CANCELED,
    OUTCOME_SKIPPED,
    OUTCOMES
};

/* How far phase 1 of an operation is (CF-47). */
enum op_stage {
    STAGE_NEW,
    STAGE_BEGIN, /* pre-backup hook */
    STAGE_POOL,  /* how full the storage is */
    STAGE_PRUNE, /* room for the new snapshot (RS-17) */
    STAGE_HOOK,  /* pre-snapshot hook */
    STAGE_SNAPSHOT,
    STAGE_POST, /* post-snapshot hook, which always runs */
    STAGE_SNAPPED,
    STAGES
};

enum origin { ORIGIN_NONE, ORIGIN_REQUEST, ORIGIN_TIMER, ORIGINS };   /* of a backup */
enum restore_from { FROM_NONE, FROM_NATIVE, FROM_REPOSITORY, FROMS }; /* of a restore */
enum target_state {
    TARGET_STATE_NONE,
    TARGET_UNTOUCHED,
    TARGET_INCOMPLETE,
    TARGET_COMPLETE,
    TARGET_UNKNOWN,
    TARGET_STATES
};
/* Why all data of a volume was read (CF-10). NONE: only what had changed; or changes
 * are not asked for (changed-blocks = no), or nothing keeps track of them there. */
enum full_reason {
    FULL_NONE,
    FULL_FORCED,       /* type = full, --full */
    FULL_PERIODIC,     /* full-every */
    FULL_WRITABLE,     /* what is read may have been modified (backup-read-only = no) */
    FULL_NO_PARENT,    /* no earlier backup with a native snapshot that is still there */
    FULL_PARENT_LOST,  /* its native snapshot is no longer on the storage */
    FULL_PARENT_OTHER, /* what is there is another one */
    FULL_PARENT_UNFIT, /* its snapshot in the repository is gone, or cannot be used (splitter, ...) */
    FULL_UNSUPPORTED,  /* the driver cannot list changes here */
    FULL_UNCERTAIN,    /* what the storage lists cannot be relied on */
    FULL_BUSY,         /* another program uses what is needed */
    FULL_FAILED,       /* an error while changes were listed */
    FULL_TIMEOUT,      /* it took too long */
    FULL_MISMATCH,     /* the list was found to be wrong (verify-sample) */
    FULL_DISTRUSTED,   /* ... by an earlier backup */
    FULL_REASONS
};
enum op_reason { REASON_NONE, REASON_PREPARE_TIMEOUT, REASONS }; /* of a failure, beside its error */

extern const struct enum_names op_kind_names, op_state_names, backup_state_names, native_state_names, known_state_names,
    outcome_names, op_stage_names, origin_names, restore_from_names, target_state_names, op_reason_names,
    full_reason_names;

/* "" for none; the words of disk and wire ("backup", "CleaningUp", "present"). */
static inline const char *full_reason_name(enum full_reason r)
{
    return enum_name(&full_reason_names, (int)r);
}
static inline const char *op_kind_name(enum op_kind k)
{
    return enum_name(&op_kind_names, (int)k);
}
static inline const char *op_state_name(enum op_state s)
{
    return enum_name(&op_state_names, (int)s);
}
static inline const char *backup_state_name(enum backup_state s)
{
    return enum_name(&backup_state_names, (int)s);
}
static inline const char *native_state_name(enum native_state s)
{
    return enum_name(&native_state_names, (int)s);
}
static inline const char *known_state_name(enum known_state s)
{
    return enum_name(&known_state_names, (int)s);
}
static inline const char *outcome_name(enum outcome o)
{
    return enum_name(&outcome_names, (int)o);
}
static inline const char *op_stage_name(enum op_stage s)
{
    return enum_name(&op_stage_names, (int)s);
}
static inline const char *origin_name(enum origin o)
{
    return enum_name(&origin_names, (int)o);
}
static inline const char *target_state_name(enum target_state s)
{
    return enum_name(&target_state_names, (int)s);
}
static inline const char *restore_from_name(enum restore_from f)
{
    return enum_name(&restore_from_names, (int)f);
}

static inline bool op_state_terminal(enum op_state s)
{
    return s >= OP_COMPLETED;
}
static inline bool backup_state_terminal(enum backup_state s)
{
    return s >= BACKUP_COMPLETED;
}
/* By the word of the wire: "Completed". */
bool state_terminal(const char *state);
/* How a backup is shown that was rebuilt without a record of its outcome; no row has it as its state. */
#define STATE_UNKNOWN "Unknown"
/* Likewise one that ended well and of which nothing is left. */
#define STATE_EXPIRED "Expired"
/* Every state, as it is shown. */
#define OPERATION_STATES_SHOWN                                                                                         \
    "Queued Snapshotting Exposing Starting Running Retrying Cancelling CleaningUp Completed Failed Canceled Skipped"
#define BACKUP_STATES_SHOWN                                                                                            \
    "Queued Snapshotting Moving Finalizing Deleting Completed PartiallyFailed Failed Canceled Skipped " STATE_UNKNOWN  \
    " " STATE_EXPIRED
/* The terminal state of an outcome; none is Failed. */
enum op_state op_state_of(enum outcome o);
enum backup_state backup_state_of(enum outcome o);

/* ---- parts ---- */

/* What failed, as doc_error() of the engine noted it. There is one if `code` is not ERR_NONE. */
struct op_error {
    enum err_class code;
    int64_t sys; /* errno */
    int64_t at_ns, attempt;
    char *stage, *message, *hint;
    json_t *unknown;
};
#define OP_ERROR_INIT                                                                                                  \
    {                                                                                                                  \
        .stage = str_empty, .message = str_empty, .hint = str_empty                                                    \
    }
extern const struct fields op_error_fields;
int op_error_set(struct op_error *ret, const char *stage, const struct err *e, int64_t at_ns, int64_t attempt);
int op_error_copy(struct op_error *ret, const struct op_error *x); /* ret is initialized */
void op_error_clear(struct op_error *x);
json_t *op_error_to_json(const struct op_error *x);
/* Message, hint, class and errno; the stage is not in it. */
void op_error_to_err(struct err *ret, const struct op_error *x);

/* Limits of a mover: those of the configuration when the operation was submitted. */
#define MOVER_TEXT(name, size) char *name;
#define MOVER_NUMBER(name, ...) int64_t name;
#define MOVER_LIST(name) struct strs name;
struct mover_limits {
    MOVER_LIMITS(MOVER_TEXT, MOVER_NUMBER, MOVER_NUMBER, MOVER_LIST)
    json_t *unknown;
};
#undef MOVER_TEXT
#undef MOVER_NUMBER
#undef MOVER_LIST
extern const struct fields mover_limits_fields;

/* Repository retention: -1 is inherited. */
struct policy_keep {
    int64_t latest, hourly, daily, weekly, monthly, annual;
    json_t *unknown;
};
extern const struct fields policy_keep_fields;
/* Whether any is set. */
bool policy_keeps(const struct policy_keep *k);
/* The object of the mover's job ("latest": 3, ...); json_null() where none is set. */
json_t *policy_keep_to_json(const struct policy_keep *k);

/* What an operation takes along from the configuration (RS-10). Shared. */
struct policy {
    struct shared shared;
    char *repository, *group;
    bool group_strict;
    int64_t group_max_skew_ms;
    bool move_data, job_retain, keep_on_failure, prune_before;
    int64_t snapshots_to_retain, retain_max_age_s, max_snapshots_per_volume, pool_high_water, snapshot_only_keep,
        snapshot_only_max_age_s;
    char *backup_storage_class;
    bool backup_read_only, expose_keep_on_failure;
    json_t *options; /* object of strings, NULL: none */
    int64_t copy_limit;
    int64_t snapshot_timeout_s, prepare_timeout_s, go_timeout_s, stall_timeout_s, max_duration_s, cancel_grace_s,
        repo_outage_max_s;
    int64_t retries, retry_first_s, retry_max_s;
    char *mover, *splitter, *compression;
    bool map_bad, full;
    bool changed_blocks;                     /* = auto */
    int64_t full_every_s, verify_sample_ppm; /* -1: not recorded; only with it */
    struct mover_limits limits;
    char *hook_pre_snapshot, *hook_post_snapshot, *hook_post_backup, *hook_prepare, *hook_post_restore,
        *hook_pre_backup, *hook_pre_restore;
    int64_t hook_timeout_s;
    bool hook_continue;
    struct policy_keep keep;
    int64_t max_per_class, max_per_device, priority;
    json_t *unknown;
};

/* Whether native snapshots of that driver are the volume itself, and not something that stays as it is: nothing is
 * retained, removed or found missing. */
bool driver_is_raw(const char *driver);

/* A storage class as the drivers need it: struct driver_class is a view of it. Shared. */
struct class_desc {
    struct shared shared;
    char *name, *driver;
    struct strs match; /* patterns, and names of volumes that name the class themselves */
    struct strs peers; /* of a driver with peers: those of its other classes, an empty one after each class */
    char *target, *node;
    int64_t max;
    char *plugin, *plugin_user;
    json_t *options; /* object of strings, NULL: none */
    bool accept_inconsistent;
    bool point_in_time;  /* driver nbd */
    int64_t cow_percent; /* driver lvm; 0: the default */
    char *overlay_hook;
    json_t *unknown;
};

/* A volume as its driver saw it (io/native: struct volume). Shared. */
struct volume_desc {
    struct shared shared;
    char *name, *id, *pool;
    char *labels; /* words KIND:VALUE: struct cfg_subject */
    int64_t size;
    int64_t allocated; /* -1: unknown */
    int64_t sector;
    bool block, in_use, same_pool;
    json_t *unknown;
};

/* Owner tag of a snapshot that is to be made (io/native: struct native_tag). Shared. */
struct tag_desc {
    struct shared shared;
    char *alias, *volume_id, *volume_name, *backup, *operation, *repository;
    int64_t created_ns;
    uint64_t seq;
    json_t *unknown;
};

/* A native snapshot as its driver described it (io/native: struct native); the handle is the driver's own. Shared. */
struct native_desc {
    struct shared shared;
    char *alias, *volume_id, *volume_name, *backup, *operation, *repository;
    int64_t created_ns;
    uint64_t seq;
    char *handle;
    int64_t size;
    int64_t used; /* bytes it holds alone, -1: unknown */
    bool crash_consistent;
    char *change_id; /* what it is compared by; "": nothing is known */
    json_t *unknown;
};

/*
 * For each shared struct X (policy, class_desc, volume_desc, tag_desc, native_desc):
 *   X_fields, X_none
 *   X_init(&x)                      an own one, to be filled in
 *   X_clear(&x)                     what was not made a shared one
 *   X_copy(&x, shared)              an own copy, to be changed
 *   const struct X *X_make(&x)      takes over the contents of x; a new reference
 *   X_set(&op.member, shared)       member becomes another reference to it (NULL: X_none)
 *   X_take(&op.member, X_make(&x))  member takes the reference over
 *   X_unref(shared)
 *   const struct X *X_from_json(doc)  a new reference; what is no object is X_none
 *   json_t *X_to_json(shared)       a new reference
 */
#define TYPES_SHARED(X)                                                                                                \
    extern const struct fields X##_fields;                                                                             \
    extern const struct X X##_none;                                                                                    \
    static inline void X##_init(struct X *x)                                                                           \
    {                                                                                                                  \
        fields_init(&X##_fields, x);                                                                                   \
    }                                                                                                                  \
    static inline void X##_clear(struct X *x)                                                                          \
    {                                                                                                                  \
        fields_clear(&X##_fields, x);                                                                                  \
    }                                                                                                                  \
    static inline int X##_copy(struct X *ret, const struct X *x)                                                       \
    {                                                                                                                  \
        return fields_copy(&X##_fields, ret, x);                                                                       \
    }                                                                                                                  \
    static inline const struct X *X##_make(struct X *x)                                                                \
    {                                                                                                                  \
        return (const struct X *)shared_make(&X##_fields, x);                                                          \
    }                                                                                                                  \
    static inline void X##_unref(const struct X *x)                                                                    \
    {                                                                                                                  \
        shared_unref(x);                                                                                               \
    }                                                                                                                  \
    static inline void X##_take(const struct X **at, const struct X *x)                                                \
    {                                                                                                                  \
        shared_unref(*at);                                                                                             \
        *at = x;                                                                                                       \
    }                                                                                                                  \
    static inline void X##_set(const struct X **at, const struct X *x)                                                 \
    {                                                                                                                  \
        X##_take(at, (const struct X *)shared_ref(x ? x : &X##_none));                                                 \
    }                                                                                                                  \
    static inline void X##_unrefp(const struct X **at)                                                                 \
    {                                                                                                                  \
        X##_take(at, &X##_none);                                                                                       \
    }                                                                                                                  \
    static inline const struct X *X##_from_json(const json_t *doc)                                                     \
    {                                                                                                                  \
        return (const struct X *)shared_from_json(&X##_fields, doc);                                                   \
    }                                                                                                                  \
    static inline json_t *X##_to_json(const struct X *x)                                                               \
    {                                                                                                                  \
        return fields_to_json(&X##_fields, x);                                                                         \
    }
TYPES_SHARED(policy)
TYPES_SHARED(class_desc)
TYPES_SHARED(volume_desc)
TYPES_SHARED(tag_desc)
TYPES_SHARED(native_desc)

/* Whether a member of a row stands for nothing: is_none(op->into). */
#define is_none(p)                                                                                                     \
    _Generic((p), const struct policy *: shared_is_none, const struct class_desc *: shared_is_none,                    \
             const struct volume_desc *: shared_is_none, const struct tag_desc *: shared_is_none,                      \
             const struct native_desc *: shared_is_none)(p)

/* ---- rows ---- */

/* What every row begins with. */
#define ROW_MEMBERS                                                                                                    \
    char *id;                                                                                                          \
    char *parent;        /* operation: its backup; native: the backup it was taken for */                              \
    char *volume_id;     /* operation, native: id of its volume */                                                     \
    uint64_t seq;        /* creation order over all kinds, given by *_add(); never reused */                           \
    uint64_t generation; /* given by *_add() and *_save() */                                                           \
    int64_t created_ns, updated_ns;                                                                                    \
    int64_t wake_ns; /* stored deadline or next attempt (CLOCK_REALTIME), 0: none */
struct row {
    ROW_MEMBERS
};
#define ROW_HEAD                                                                                                       \
    union {                                                                                                            \
        struct row row;                                                                                                \
        struct {                                                                                                       \
            ROW_MEMBERS                                                                                                \
        };                                                                                                             \
    }

/* Milliseconds that an operation spent in its states. */
struct op_spent {
    int64_t ms[OP_STATES];
    json_t *unknown;
};

/* What a run of maintenance is to do. */
struct maintain_order {
    bool there, full, dry_run, unsafe;
    bool scheduled; /* by the daemon itself */
    json_t *unknown;
};

struct operation {
    ROW_HEAD;
    enum op_state state;
    enum op_kind kind;
    enum op_stage stage;
    enum outcome outcome; /* decided, durable before anything is released */
    enum op_reason reason;
    enum restore_from from;
    enum target_state target_state;
    const struct policy *policy;
    const struct class_desc *own;  /* class of the volume; of a restore, of the target */
    const struct class_desc *into; /* class of the intermediate, where it is another */
    const struct volume_desc *volume;
    char *job, *description;
    char *degraded_why;    /* the first reason */
    int64_t configured_ns; /* when it took over a changed configuration */
    char *config_kept;     /* why it did not take over a part of it */
    bool debug, rebuilt, degraded, queue_counted, cancel, pre_hook_done, post_hook_done;
    bool prepared; /* the prepare hook has run (among others of one byte: the size of this matters) */
    int64_t state_since_ns, started_ns, ended_ns, completed_ns;
    int64_t clock_ns; /* by how much the clock was set since it was started, or made: no part of how long it took */
    struct op_spent spent_ms;
    int64_t cancel_ns, cancel_deadline_ns;
    char *cancel_reason;
    /* attempts */
    struct op_error error;
    struct list_of_structs attempts; /* of struct op_error */
    int64_t attempt, interruptions, outage_ns;
    int64_t adoptions; /* of its mover by daemons that started since it was last heard of */
    char *waiting, *skip_reason;
    /* phase 1 */
    char *native; /* alias of the snapshot that it makes or reads */
    const struct native_desc *native_doc;
    const struct tag_desc *tag;
    uint64_t native_intent, hook_intent;
    double pool_ratio; /* 0..1, -1: unknown */
    bool snapshot_failed, snapshot_transient;
    int64_t hook_began_ns, frozen_ms, snapshot_ns, snapshot_ms, group_skew_ms;
    int64_t prune_rounds, checks;
    char *check_operation; /* admin operation that asks the repository */
    /* exposing */
    uint64_t expose_intent;
    char *expose_alias;
    int64_t expose_ns;
    json_t *exposure;                             /* opaque but for path, size, mechanism, read_only */
    int64_t prepare_deadline_ns, prepare_left_ms; /* prepare-timeout: while it runs, while it pauses (0: all of it) */
    char *prepare_boot;                           /* boot id of the deadline */
    bool read_begun;                              /* a mover has read the first byte */
    /* what is read */
    enum full_reason full_reason;
    char *full_why;                          /* a sentence, "" if the reason says all */
    char *base, *base_snapshot, *base_state; /* of the list: alias, snapshot in the repository, change id */
    int64_t list_ranges, list_bytes;
    /* moving */
    int64_t moving_ns, running_ns;
    char *identity; /* mover_identity_to_json(), as text */
    char *plugin_id;
    json_t *progress;           /* what the mover reported last */
    char *mover;                /* how it ended: JSON, only shown */
    struct mover_result result; /* what it left, or what a plugin's retention or verification has done so far */
    /* releasing */
    bool undone, releasing;
    bool lost; /* its snapshot is no longer in the repository */
    int64_t cleanup_tries;
    char *cleanup_error;
    /* another process than its mover has found the snapshot, and it is what was asked for; what it found instead */
    int64_t verified_ns;
    char *unverified;
    /* since when it is known that the repository does not have what was backed up, and why; 0: it is not known */
    int64_t gone_ns;
    char *gone_why;
    char *retry_of; /* operation that failed, whose native snapshot this one moves (RS-03) */
    /* restore */
    char *of, *why, *target_name, *snapshot, *stored_id;
    int64_t size;
    int64_t offset, length; /* of a range; length 0: to the end */
    bool overwrite, verify, differential, ranged, onto_itself, in_place, filled, committed;
    const struct class_desc *native_class;
    json_t *stored; /* what a mover plugin stored */
    json_t *target; /* opaque but for path, size */
    /* verify, admin */
    json_t *does;    /* array of steps ("do") */
    json_t *aliases; /* of a check: snapshot id -> alias */
    json_t *snapshots;
    double read_percent;   /* -1: not set */
    int64_t read_from_ppm; /* by schedule: where, by their hashes, the contents begin that it reads; -1: on request */
    bool anew;             /* what an interrupted one has read is read again */
    /* maintain */
    struct maintain_order maintain;
    /* delete */
    char *deletes;
    int64_t plugins_done;
    json_t *deletions; /* repository -> admin operation */
    bool force, even_kept, begun;
    /* record */
    bool requested;      /* a check of a repository: not only operations wait for its answer */
    bool tried;          /* it has failed at least once: nobody waits for it any more */
    bool first_run;      /* restore: running_ns is of this attempt */
    struct strs records; /* ids of the backups whose outcome it writes into its repository */
    int64_t proved;      /* of these backups, what was found of so many is noted; of the next one up to this number */
    uint64_t proved_seq;
    json_t *unknown;
};

struct backup_counts {
    int64_t attempted, completed, failed, canceled, skipped;
    json_t *unknown;
};
struct backup_bytes {
    int64_t total, incremental, uploaded;
    json_t *unknown;
};

struct backup {
    ROW_HEAD;
    enum backup_state state;
    enum op_kind kind; /* KIND_BACKUP or KIND_RESTORE */
    enum origin origin;
    enum restore_from from;
    char *job, *description;
    bool caught_up, rebuilt;
    bool unproven; /* rebuilt from snapshots alone: the state Completed is that of what was found */
    int64_t planned_ns;
    struct strs volume_ids;
    json_t *skipped; /* array of {"volume", "reason"} */
    char *blocked_by;
    int64_t position;
    int64_t state_since_ns, started_ns, snapshots_done_ns, completed_ns;
    int64_t clock_ns; /* as of an operation */
    bool degraded, degraded_phase;
    bool cancel;
    int64_t cancel_ns;
    bool expired; /* retention of the repositories was asked for */
    char *post_hook_operation, *deleting;
    enum outcome outcome; /* decided in Finalizing: from then on it is recorded in the repositories */
    bool disproved;       /* since then a snapshot of it was not found: it is decided, and recorded, again */
    int64_t gone;         /* of how many volumes the repository does not have what was backed up (gone_ns of each), */
    int64_t gone_ns;      /* since when that is known, */
    char *gone_why;       /* and why, of the first one */
    int64_t alone;        /* of how many completed volumes only a native snapshot was made (move-data = no) */
    int64_t lost;    /* of how many volumes the snapshot is no longer in the repository, expired or deleted there, */
    int64_t lost_ns; /* when that was known, */
    char *lost_why;  /* and why, of the last one */
    bool looked;     /* its native snapshots were looked at again (AO-38) */
    struct list_of_structs natives_seen; /* of struct native_seen: what was found */
    json_t *recorders;                   /* repository -> operation that writes its record there */
    char *node;                          /* whose it is, if it is another node's: nothing of it is changed here */
    struct backup_counts counts;
    struct backup_bytes bytes;
    json_t *read_fully; /* reason -> of how many volumes all data was read for it (CF-10) */
    struct strs failed_volumes;
    json_t *errors; /* array of {"operation", "volume", "error"} */
    struct op_error error;
    char *of, *of_job, *target; /* restore */
    char *retry_of;             /* backup: the one whose failed volumes it backs up again (RS-03) */
    json_t *unknown;
};

/* How a native snapshot was found when its backup finished (AO-38). */
enum seen_state { SEEN_NONE, SEEN_PRESENT, SEEN_MISSING, SEEN_UNKNOWN, SEEN_STATES };
struct native_seen {
    char *alias;
    enum seen_state state;
    char *why; /* of unknown */
    json_t *unknown;
};
extern const struct fields native_seen_fields;

/*
 * The outcome of a backup as its repositories keep it, in documents of at most RECORD_VOLUMES volumes each
 * (daemon/protocol/backup-record.h). Names are those of Velero's volumeinfo where the meaning is the same (CF-49);
 * times are RFC 3339.
 */
enum record_state { RECORD_STATE_NONE, RECORD_STATE_PROVISIONAL, RECORD_STATE_FINAL, RECORD_STATES };
extern const struct enum_names record_state_names, seen_state_names;

struct record_native { /* as it was found when the backup finished (AO-38) */
    char *alias, *handle, *created;
    enum seen_state state;
    char *why; /* of unknown */
    int64_t size;
    json_t *unknown;
};
struct record_movement {
    char *operation, *repository, *snapshot, *retained, *handle;
    enum outcome phase;
    int64_t size, incremental;
    json_t *unknown;
};
struct record_volume {
    char *name, *id, *klass, *driver, *path;
    int64_t size;
    char *started, *ended, *snapshot_at;
    bool moved;     /* snapshotDataMoved */
    bool preserved; /* preserveLocalSnapshot */
    bool skipped, degraded;
    char *skipped_reason;
    enum outcome outcome;
    char *failure, *stage;
    struct record_movement movement;
    struct list_of_structs natives; /* of struct record_native: none or one */
    json_t *unknown;
};
struct backup_record {
    int64_t version;
    char *backup, *job, *node, *machine, *description;
    char *repository; /* the one in which it lies, by the name that its node has for it */
    enum origin reason;
    enum record_state state;
    int64_t part, parts;
    char *started, *ended, *snapshots_done; /* the point in time that can be restored (AO-42) */
    enum outcome outcome;
    char *failure;
    struct backup_counts counts;
    int64_t snapshots;              /* of this part: volumes with data in a repository */
    struct list_of_structs volumes; /* of struct record_volume */
    json_t *unknown;
};
extern const struct fields record_volume_fields, record_native_fields, backup_record_fields;

/* Kept until it is released. */
struct native_hold {
    bool held;
    char *note;
    int64_t at_ns;
    json_t *unknown;
};

/* Why the storage could not remove it, the last time. There was such a time if it has a message. */
struct remove_error {
    char *message, *hint;
    int64_t cls, sys; /* enum err_class, errno */
    json_t *unknown;
};

/* Kept for inspection because its backup failed, with the intermediate that was made of it (expose-keep-on-failure):
 * until somebody releases it, and then until the intermediate is removed. */
struct native_kept {
    bool there;
    bool released;
    int64_t at_ns;
    char *operation, *why;         /* which failed, and its error */
    char *alias;                   /* of the intermediate, "": there is none */
    const struct class_desc *into; /* the class in which it lies */
    json_t *exposure;              /* opaque but for path, size, mechanism; NULL: maybe it was never made */
    char *error;                   /* why it cannot be removed */
    json_t *unknown;
};
extern const struct fields native_kept_fields;
void native_kept_clear(struct native_kept *x);

struct native_row {
    ROW_HEAD;
    enum native_state state;
    const struct class_desc *klass;
    const struct volume_desc *volume;
    const struct policy *policy;
    const struct native_desc *native;
    char *driver, *operation, *job, *snapshot, *source, *why_removed;
    int64_t state_since_ns;
    int64_t effective_retain; /* -1: not recorded */
    bool job_retain, snapshot_only, moved, moved_verified, failed, cbt_parent, expired, adopted;
    bool bookmark; /* there is one of it; while a base is being removed: that stays */
    int64_t moved_ns, verified_ns;
    int64_t disproved_ns; /* when it was found damaged in the repository, or another; 0: it is whole, or is not there */
    int64_t full_ns;      /* when all data was read last, of this backup or one that it is based on */
    int64_t moved_size;   /* bytes of the volume that were moved, 0: not recorded */
    struct native_hold hold;
    struct native_kept kept;
    struct remove_error remove_error;
    json_t *unknown;
};

struct volume_row {
    ROW_HEAD;
    enum known_state state;
    const struct volume_desc *volume;
    char *klass; /* name */
    int64_t gone_ns, expected_ns;
    int64_t unscheduled_ns; /* since when no job with a schedule names it, which one did before; 0: one does, or never
                               did */
    int64_t appeared_ns;    /* when it came to a class whose others had been listed before; 0: that is not known */
    enum outcome last_status, last_verdict;
    char *half_restored; /* the restore that has left it incomplete, since when none has completed; "": none */
    char *last_backup;
    int64_t last_end_ns, last_success_ns, last_snapshot_ns;
    int64_t last_changed_bytes; /* -1: not known */
    char *last_good_backup, *last_good_repository, *last_good_lost;
    int64_t distrusted_ns;    /* when a list of its changes was found to be wrong, 0: never, or trusted again */
    char *source;             /* of its snapshots in the repository; "": as earlier versions named it */
    char *last_good_evidence; /* operation_evidence() */
    struct op_error last_error;
    json_t *unknown;
};

/* The last start of a job came to nothing. */
struct job_failure {
    bool there;
    char *message, *hint;
    int64_t at_ns;
    json_t *unknown;
};

/* The last run of one kind, quick or full; a full one is a quick one, too. */
struct maintain_cycle {
    int64_t tried_ns, good_ns; /* when the last one ended, and the last one that did all; 0: never */
    enum outcome outcome;      /* of the last one; Skipped: it was refused */
    char *operation, *error;   /* of the last one */
    json_t *unknown;
};

/*
 * What is known of the maintenance of a repository. It is part of a row of ROW_JOB whose id is "[repository NAME]",
 * which is no job's name.
 */
struct maintain_memory {
    bool there;
    int64_t since_ns;              /* since when this node looks after it */
    enum maintain_refusal refused; /* NONE: this node maintains it, or has not tried yet */
    char *owner, *why, *hint;      /* why: it is not maintained from here */
    int64_t silent_ns;             /* since when the owner, another one, has not run it; 0: it does */
    int64_t quick_s, full_s;       /* intervals; 0: disabled; -1: not known yet */
    struct maintain_cycle quick, full;
    /* of the last full run that did all: as in struct mover_maintenance */
    int64_t freed, packs, reclaimable, trapped, back_from_ns;
    json_t *unknown;
};
#define MAINTAIN_ROW_MAX 160
/* The id of its row. */
char *maintain_row_id(const char *repository, char out[MAINTAIN_ROW_MAX]);

/* What is known of the verification of a repository; in the same row. */
struct verify_memory {
    bool there;
    int64_t since_ns;        /* since when there is a schedule; 0: there is none */
    int64_t tried_ns;        /* when the last one by schedule ended */
    enum outcome outcome;    /* of it */
    char *operation, *error; /* likewise; error: that it was not complete */
    int64_t done_ns;         /* when the last one ended that looked at all that it was to, with damage or without */
    /* The last damage. It is forgotten when all has been read since, and is whole. */
    int64_t damaged_ns, damages;
    char *damaged_by; /* operation */
    /* What error correction had to restore when it was read, and was not stored again by maintenance since: contents
     * and index blobs; when; the operation. It is forgotten when all has been read since, and is as it was written. */
    int64_t corrected_ns, corrected, corrected_indexes;
    char *corrected_by;
    /* Finished backups whose snapshots were found damaged, or not to be what was backed up: ids of operations, of which
     * those count that still are gone (damaged.c). When the last one was found. */
    struct strs affected;
    int64_t affected_ns;
    /* Each by schedule reads the share that follows the last one's, so that all contents are read again and again. */
    int64_t from_ppm;             /* where the next one begins */
    int64_t round_ns;             /* when the first run of this round began */
    int64_t all_began_ns, all_ns; /* of the last round that is complete; 0: none yet */
    json_t *unknown;
};

/* What is known of a copy of a repository. It is part of a row of ROW_JOB whose id is "[copy NAME]". */
struct copy_memory {
    bool there;
    int64_t since_ns;        /* since when there is a schedule; 0: there is none */
    int64_t tried_ns;        /* when the last one ended */
    enum outcome outcome;    /* of it */
    char *operation, *error; /* likewise */
    int64_t good_ns;         /* when the last one ended that was complete */
    char *place;             /* where that one was made: another place is another copy */
    /* of that one: what it copied, and what is in the copy now; of this what the repository does not have any more */
    int64_t copied, copied_bytes, blobs, bytes, surplus, surplus_bytes;
    int64_t deleted_bytes, held_bytes, lost; /* as of struct mover_copy */
    json_t *unknown;
};
char *copy_row_id(const char *copy, char out[MAINTAIN_ROW_MAX]);

struct job_run {
    ROW_HEAD;
    enum job_state state;
    char *on_calendar, *last_backup;
    bool active;
    int64_t since_ns, last_planned_ns, last_run_ns;
    struct job_failure failed;
    json_t *missing; /* array of {"volume", "reason"} */
    struct maintain_memory maintain;
    struct verify_memory verification;
    struct copy_memory copy;
    json_t *unknown;
};

/*
 * For each row X (operation, backup, native_row, volume_row, job_run):
 *   X_fields
 *   X_init(&x), X_clear(&x), X_copy(&x, row)
 *   CLEANUP(X_clear) struct X x = ROW_INIT;   nothing yet: for X_init(), X_copy() or X_get() to fill
 *   X_to_json(row)     its document, without the head and state
 */
#define TYPES_ROW(X)                                                                                                   \
    extern const struct fields X##_fields;                                                                             \
    static inline void X##_init(struct X *x)                                                                           \
    {                                                                                                                  \
        row_init(&X##_fields, x);                                                                                      \
    }                                                                                                                  \
    static inline void X##_clear(struct X *x)                                                                          \
    {                                                                                                                  \
        row_clear(&X##_fields, x);                                                                                     \
    }                                                                                                                  \
    static inline int X##_copy(struct X *ret, const struct X *x)                                                       \
    {                                                                                                                  \
        return row_copy(&X##_fields, ret, x);                                                                          \
    }                                                                                                                  \
    static inline json_t *X##_to_json(const struct X *x)                                                               \
    {                                                                                                                  \
        return fields_to_json(&X##_fields, x);                                                                         \
    }
#define ROW_INIT                                                                                                       \
    {                                                                                                                  \
        .id = NULL                                                                                                     \
    }
void row_init(const struct fields *t, void *row);
void row_clear(const struct fields *t, void *row);
int row_copy(const struct fields *t, void *ret, const void *row);
TYPES_ROW(operation)
TYPES_ROW(backup)
TYPES_ROW(native_row)
TYPES_ROW(volume_row)
TYPES_ROW(job_run)

/* It was held in records that were lost, and has not been seen on the storage since: nothing else is known of it. */
static inline bool native_row_awaited(const struct native_row *n)
{
    return n->state == NATIVE_MISSING && n->adopted && !n->klass->name[0];
}

/* It is gone, and the base of the next incremental backup all the same: by its bookmark. */
static inline bool native_row_is_bookmark(const struct native_row *n)
{
    return n->state == NATIVE_MISSING && n->bookmark && n->cbt_parent;
}

/* What the store knows of each kind. */
struct row_type {
    const char *table; /* of the database */
    const struct fields *fields;
    const struct enum_names *states;
    size_t state; /* its offset */
    int terminal; /* the first of the terminal states; INT_MAX: there is none */
};
extern const struct row_type row_types[ROW_KINDS];
static inline int row_state(enum row_kind k, const void *row)
{
    return *(const int *)(const void *)((const char *)row + row_types[k].state);
}
static inline void row_set_state(enum row_kind k, void *row, int state)
{
    *(int *)(void *)((char *)row + row_types[k].state) = state;
}

/* Adds to natives_seen, in any order; backup_seen_end() after the last. Fails for lack of memory. */
int backup_note_seen(struct backup *b, const char *alias, enum seen_state state, const char *why);
void backup_seen_end(struct backup *b);
/* NULL: it was not looked at. */
const struct native_seen *backup_native_seen(const struct backup *b, const char *alias);
/* Adds a copy of op->error to the attempts. */
int operation_attempt_add(struct operation *op);

#endif
