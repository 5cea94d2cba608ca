/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * step-answer.h - what steps answer, decoded once into a struct
 *
 * A step is a child of the daemon; its request and its answer are documents. The same table serves both, as far as the
 * members are the same: which operations and native snapshots a step was to work on is read from its request where it
 * failed as a whole. Not thread-safe, as fields.h.
 */
#ifndef SNAPFERRY_DAEMON_RECORDS_STEP_ANSWER_H
#define SNAPFERRY_DAEMON_RECORDS_STEP_ANSWER_H

#include "daemon/records/types.h"

/* One of the things that a step was to do: to take or remove a native snapshot, to measure a pool, to undo an intent.
 */
struct step_item {
    char *operation, *alias;
    char *volume_id;       /* of a pool that was measured */
    uint64_t id;           /* of the intent */
    struct op_error error; /* code ERR_NONE: it was done */
    bool gone;             /* there was nothing to remove */
    bool there;            /* it had been missing, and is back */
    bool bookmark;         /* of what was taken: it was made, too; of what was removed: it is left */
    char *no_bookmark;     /* why it was not made; "": it was, or was not asked for */
    const struct native_desc *native;
    const struct volume_desc *volume;
    int64_t begin_ns, end_ns; /* of taking it */
    uint64_t instant;         /* those with the same number were taken at one instant; 0: it was taken by itself */
    double used_ratio;        /* of the pool: 0..1, -1: unknown */
    json_t *unknown;
};
struct step_answer {
    struct list_of_structs items, intents; /* of struct step_item */
    struct list_of_structs natives;        /* of struct native_seen */
    struct strs aliases;                   /* of a request to look at native snapshots */
    bool filled;                           /* the target, from a native snapshot */
    bool nothing_made;                     /* to expose it nothing was created */
    bool kept;                             /* what a restore was to replace is as it was */
    json_t *target;                        /* opaque, NULL: none */
    bool listed;                           /* what changed; the list is the descriptor that came with it */
    enum full_reason doubt;                /* why there is no list */
    char *why;                             /* ... a sentence */
    int64_t ranges, bytes;                 /* of the list */
    json_t *unknown;
};

FIELDS_DOCUMENT(step_answer)

/* An intermediate on the storage of a class; what else its driver says of it is among the unknown members. */
struct exposure_seen {
    char *alias, *handle;
    int64_t created_ns;
    json_t *unknown;
};
extern const struct fields exposure_seen_fields;
/* Everything of ours on the storage of a class. */
struct class_swept {
    const struct class_desc *klass;
    struct list_of_structs natives;   /* of struct native_desc */
    struct list_of_structs exposures; /* of struct exposure_seen */
    struct list_of_structs bookmarks; /* of struct native_desc: of the native snapshots of which they were made */
    struct op_error error;            /* code ERR_NONE: the class has answered */
    json_t *unknown;
};
struct storage_seen {
    struct list_of_structs classes; /* of struct class_swept */
    json_t *unknown;
};
FIELDS_DOCUMENT(storage_seen)

/* Built-in movers of this daemon's runtime directory that run, and units that such have left. */
struct mover_process {
    int64_t pid;
    uint64_t start_time; /* tells it from another process that has got its number */
    json_t *unknown;
};
struct mover_listed {
    char *operation;
    struct list_of_structs processes; /* of struct mover_process; none: there is a unit only */
    json_t *unknown;
};
struct movers_listed {
    struct list_of_structs movers; /* of struct mover_listed, each operation once */
    json_t *unknown;
};
FIELDS_DOCUMENT(movers_listed)

/* A volume of an answer of step_volumes(), which may have thousands: borrowed from the document; "" for what is absent.
 */
struct volume_seen {
    const char *name, *id, *labels;
    int64_t size;
    bool same_pool; /* the other class could clone it natively */
};
struct volume_seen volume_seen_of(const json_t *volume);
/* What kept a class, or a volume that was named, from being listed. */
struct unseen {
    const char *volume;      /* "": the class itself */
    const char *id, *labels; /* of a volume that was listed, though nothing tells it from another one; else "" */
    enum err_class class;
    const char *message, *hint;
    bool twice; /* it is there: another one has its identity */
};
struct unseen unseen_of(const json_t *missing);
/* What it says of one class. */
struct class_seen {
    const char *name;
    json_t *volumes;
    json_t *missing; /* for unseen_of(): those named that are not there, those listed that are not unique */
    json_t *passed;  /* texts: what was passed over */
    json_t *places;  /* pool -> true: file systems on which volumes were looked for; of some drivers */
    bool all;        /* no names were given: all that the class has */
    bool whole;      /* ... and no place of it was passed over: what is not listed is not there */
    unsigned abilities;
    bool failed; /* it could not be listed: ... */
    struct unseen error;
};
struct class_seen class_seen_of(const json_t *answer);
/* What is at the path of a restore's target. */
struct target_found {
    bool exists, block;
};
struct target_found target_found_of(const json_t *answer);
/* What check-config has found. */
struct config_checked {
    const char *hash;         /* of the configuration */
    unsigned errors;          /* ... */
    const char *where, *text; /* of the first; "": there is none */
    unsigned warnings;
};
struct config_checked config_checked_of(const json_t *answer);
/* Timers of an earlier version that were stopped. */
int64_t timers_stopped_of(const json_t *answer);
/* Room of a file system, in bytes. */
struct room_found {
    int64_t free, total;
};
struct room_found room_found_of(const json_t *answer);
/* What a look at a repository's storage found. */
struct repository_found {
    int64_t free, total; /* bytes */
    bool exposed, read_only;
    const char *stamp;
};
struct repository_found repository_found_of(const json_t *answer);
/* The first item that failed; NULL: none did. */
const struct op_error *step_items_error(const struct list_of_structs *items);

#endif
