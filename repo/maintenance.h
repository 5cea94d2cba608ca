/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * maintenance.h - what clients that maintain a repository agree on: who does it, what was done when, and what may be
 * done next (Kopia repository format, section 14)
 *
 * The history of runs is state that safety depends on: entries of an index are dropped, and packs deleted, by the times
 * of earlier runs, of whichever client. A document is kept as JSON, so that members of other clients survive.
 */
#ifndef SNAPFERRY_REPO_MAINTENANCE_H
#define SNAPFERRY_REPO_MAINTENANCE_H

#include "repo/manifest.h"

/* Delays before what is no longer needed is removed; nanoseconds. */
struct maintenance_safety {
    int64_t content_age;       /* before an unreferenced content is marked deleted */
    int64_t gc_margin;         /* between the two collections that must both find it unreferenced */
    int64_t drop_margin;       /* before the first of them */
    int64_t pack_age;          /* before an unreferenced pack is deleted */
    int64_t session_age;       /* since the last sign of life of the session that wrote it */
    int64_t rewrite_age;       /* before a content is stored again in another pack */
    int64_t rewrite_to_delete; /* from rewriting contents to deleting packs */
    bool two_collections;      /* false: one is enough */
};
extern const struct maintenance_safety maintenance_safety_full, maintenance_safety_none;

enum maintenance_task {
    MAINT_SNAPSHOT_GC,
    MAINT_DROP_DELETED,
    MAINT_DELETE_BLOBS,
    MAINT_REWRITE,
    MAINT_SINGLE_EPOCH,
    MAINT_ADVANCE_EPOCH,
    MAINT_RANGE,
    MAINT_MARKERS,
    MAINT_SUPERSEDED,
    MAINT_CLEANUP_LOGS,
    MAINT_EXTEND_LOCKS,
    MAINT_MANIFESTS, /* no task of stock clients, which keep its history */
    MAINT_TASKS
};
/* "snapshot-gc", as in the history. */
const char *maintenance_task_name(enum maintenance_task t);

/* Who maintains, and how often. */
struct maintenance_params {
    bool present;                             /* false: no client has written them yet */
    char owner[512];                          /* "USER@HOST", "": nobody */
    int64_t quick_ns, full_ns;                /* intervals; 0: disabled */
    int64_t log_bytes, log_count, log_age_ns; /* what is kept of the logs of clients */
    bool extend_locks;                        /* full maintenance is to extend object locks */
    int64_t taken_ns;    /* when one of us became the owner by maintenance_take(); INT64_MIN: was not taken */
    int64_t modified_ns; /* when they were last written */
    char machine[64];    /* of the owner, if it is one of us; "": not known */
};
/* Of the newest manifest of type "maintenance". ERR_DAMAGE: malformed. */
int maintenance_params_load(struct repo *r, struct maintenance_params *ret, struct err *e);
/* Makes `owner` on `machine` ("": not told) the owner, in a session of its own. All other parameters stay, or get
 * Kopia's defaults. */
int maintenance_take(struct repo *r, const char *owner, const char *machine, struct err *e);
/* Notes the machine of the owner, if that is `owner` still and none is noted: stock clients may drop it. */
int maintenance_note_machine(struct repo *r, const char *owner, const char *machine, struct err *e);

#define MAINTENANCE_SCHEDULE "kopia.maintenance" /* blob */

/* The schedule with the history. */
struct maintenance_schedule {
    json_t *doc;       /* object */
    int64_t mtime_ns;  /* of the blob, by the storage's clock; INT64_MIN: there was none */
    uint8_t nonce[12]; /* of the blob: differs each time it is stored, by whomever */
};
/* A missing blob is an empty schedule. ERR_DAMAGE: cannot be read, or has a malformed history. */
int maintenance_load(struct repo *r, struct maintenance_schedule *ret, struct err *e);
/* -ESTALE (ERR_BUSY): another client has stored a schedule since it was loaded or stored here, so it runs maintenance.
 */
int maintenance_current(struct repo *r, const struct maintenance_schedule *s, struct err *e);
/* Stores it if it is current; mtime_ns becomes the storage's time. */
int maintenance_store(struct repo *r, struct maintenance_schedule *s, struct err *e);
void maintenance_clear(struct maintenance_schedule *s);
/* Adds a run to the history, of which the newest 50 of each task are kept. `error`: NULL if it succeeded. */
int maintenance_note(struct maintenance_schedule *s, enum maintenance_task t, int64_t start_ns, int64_t end_ns,
                     const char *error, struct err *e);
/* Advances the time of the next quick maintenance, and with `full` of the next full one. */
int maintenance_next(struct maintenance_schedule *s, const struct maintenance_params *p, bool full, int64_t now_ns,
                     struct err *e);

/*
 * The gates. Pure: histories in, times out.
 *
 * maintenance_drop_time(): contents that were marked deleted at or before this time may be dropped from the index;
 * INT64_MIN: none. Runs that start after `now_ns` are ignored: a clock was wrong.
 * maintenance_delete_time(): from when on packs may be deleted; INT64_MIN: at any time.
 * maintenance_rewrite_due(): packs have been deleted since contents were last rewritten, or they never were.
 */
int64_t maintenance_drop_time(const json_t *schedule, const struct maintenance_safety *s, int64_t now_ns);
int64_t maintenance_delete_time(const json_t *schedule, const struct maintenance_safety *s);
bool maintenance_rewrite_due(const json_t *schedule);
/*
 * Since when the owner has done nothing, by the newest of: the time of the schedule blob, the runs in the history, and
 * the time at which the parameters were written. INT64_MIN: it is not silent, which takes three of its intervals, and
 * 72 hours at least; or it is not to run, as all its cycles are disabled. Times after `now_ns` are ignored as above,
 * but for what two clocks may differ by. Pure.
 */
int64_t maintenance_silent_since(const struct maintenance_params *p, const struct maintenance_schedule *s,
                                 int64_t now_ns);
/* From when on a collection can drop what was marked deleted at `marked_ns`. *runs: how many more collections that
 * takes, 1 or 2 (the first finds it unneeded again). */
int64_t maintenance_drop_from(const json_t *schedule, const struct maintenance_safety *s, int64_t marked_ns,
                              unsigned *runs);

#endif
