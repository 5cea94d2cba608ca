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
    uint64_t id;           /* of the intent */
    struct op_error error; /* code ERR_NONE: it was done */
    bool gone;             /* there was nothing to remove */
    bool there;            /* it had been missing, and is back */
    const struct native_desc *native;
    const struct volume_desc *volume;
    int64_t begin_ns, end_ns; /* of taking it */
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

/* Into an initialized one, whose contents are replaced; NULL: there is none. Fails for lack of memory only. */
int step_answer_load(struct step_answer *a, const json_t *doc);
void step_answer_init(struct step_answer *a);
void step_answer_clear(struct step_answer *a);
/* A volume of an answer of step_volumes(), which may have thousands: borrowed from the document; "" for what is absent.
 */
struct volume_seen {
    const char *name, *id, *labels;
    int64_t size;
};
struct volume_seen volume_seen_of(const json_t *volume);
/* What kept a class, or a volume that was named, from being listed. */
struct unseen {
    const char *volume; /* "": the class itself */
    enum err_class class;
    const char *message, *hint;
};
struct unseen unseen_of(const json_t *missing);
/* What it says of one class. */
struct class_seen {
    const char *name;
    json_t *volumes;
    json_t *missing; /* for unseen_of() */
    json_t *passed;  /* texts: what was passed over */
    bool all;        /* no names were given: all that the class has */
    bool failed;     /* it could not be listed: ... */
    struct unseen error;
};
struct class_seen class_seen_of(const json_t *answer);
/* What is at the path of a restore's target. */
struct target_found {
    bool exists, block;
};
struct target_found target_found_of(const json_t *answer);
/* What a look at a repository's storage found. */
struct repository_found {
    int64_t free, total; /* bytes */
    bool exposed;
    const char *stamp;
};
struct repository_found repository_found_of(const json_t *answer);
/* The first item that failed; NULL: none did. */
const struct op_error *step_items_error(const struct list_of_structs *items);

#endif
