/* SPDX-License-Identifier: GPL-2.0-or-later */
/* maintain-impl.h - one run of maintenance; for maintain.c and the files maintain-*.c only */
#ifndef SNAPFERRY_DAEMON_MOVER_MAINTAIN_IMPL_H
#define SNAPFERRY_DAEMON_MOVER_MAINTAIN_IMPL_H

#include "base/time.h"
#include "daemon/mover/maintain.h"
#include "daemon/mover/mapped.h"
#include "repo/marker.h"

#include <errno.h>

struct run {
    struct repo *r;
    const struct maintain_opts *o;
    struct maintain_result *ret;
    const struct maintenance_safety *safety;
    struct maintenance_params params;
    struct maintenance_schedule schedule;
    struct maintain_mark mark;
    int64_t started_ns;       /* by the storage's clock */
    int64_t task_ns;          /* of the task, by ours */
    int64_t wall_ns, boot_ns; /* of the begin, by ours: whether it was set since */
    struct session_marker *markers;
    size_t n_markers;
    struct pack_table *packs;
    uint64_t missing; /* contents that snapshots need, and whose pack was not listed */
    bool lean;        /* there is little room: as little as possible is written */
    struct err *e;
};

static inline int run_interrupted(const struct run *m, struct err *e)
{
    return maintain_stopped(m->o->cancel, e);
}
/* Waits, but ends with ERR_INTERRUPTED (-ECANCELED) soon after a cancel. */
int run_pause(const struct run *m, int64_t ns, struct err *e);
static inline void run_phase(const struct run *m, enum mover_phase phase)
{
    if (m->o->progress)
        atomic_store(&m->o->progress->phase, phase);
}
static inline void sum_add(struct maintain_sum *s, uint64_t bytes)
{
    s->n++;
    s->bytes += bytes;
}

#define CLOCK_LIMIT_NS (5 * NS_PER_MIN) /* between two clocks */

/* Whether something is damaged, or on a bad sector, which keeps nothing else from being done. */
static inline bool is_unreadable(int64_t rc, const struct err *e)
{
    return rc < 0 && (e->cls == ERR_DAMAGE || e->sys == EIO);
}

/* Flags of pack records. */
#define PACK_KNOWN 1u    /* some entry of the index points to it */
#define PACK_REFERRED 2u /* one that stands does */
#define PACK_MOVABLE 4u  /* it has contents that may be stored again elsewhere */
#define PACK_COUNTED 8u  /* among the short ones */
#define PACK_LIVE 16u    /* some entry that does not mark a content deleted points to it */

/* ---- maintain-packs.c ---- */

/*
 * Session markers, then the index, then the packs: what a session puts after its marker was listed is younger than the
 * run; what it had put before is indexed if its marker is gone. Then: a pack that no index knows, of a session without
 * marker, with a manifest that no index has, is an index that was lost (ERR_DAMAGE): snapshots may be missing.
 */
int run_look(struct run *m, struct err *e);
/* Deletes packs and markers that nothing needs, or counts them (dry run): *late (dry run): contents that were marked
 * deleted until then count as dropped, INT64_MIN: none. */
int run_delete(struct run *m, int64_t late_s, struct err *e);

/* ---- maintain-lookup.c ---- */

/* What a pack says of itself. */
struct pack_said {
    bool unknown, manifest; /* contents that no index has; manifests among them */
    bool unreadable;        /* its own index */
    bool needed;            /* a copy of a content that snapshots need, and whose pack is missing */
};
/* Called for one pack at a time, by any thread; not for those that were deleted since they were listed. 1: it is
 * deleted (not in a dry run) and counted. Negative ends all. */
typedef int pack_said_fn(struct run *m, const struct blob_info *i, const struct pack_said *said, struct err *e);
struct pack_lookups;
int pack_lookups_new(struct pack_lookups **ret, struct run *m, pack_said_fn *judge, struct err *e);
void pack_lookups_freep(struct pack_lookups **x); /* NULL allowed */
/* The pack is asked by pack_lookups_end() at the latest, which may be called several times. */
int pack_lookups_add(struct pack_lookups *x, const struct blob_info *i, struct err *e);
int pack_lookups_end(struct pack_lookups *x, struct err *e);

/* ---- maintain-locks.c ---- */

/* Whether the repository wants the object locks of its blobs to be extended by maintenance. */
bool run_extends(const struct run *m);
/* Extends them, or counts the blobs (dry run). Where that fails for some, the others are done all the same. */
int run_extend(struct run *m, struct err *e);

/* ---- maintain-gc.c ---- */

/* Begins a task: nobody else has begun maintenance, no clock was set. */
int run_task_begin(struct run *m, struct err *e);
/* ERR_CLOCK: the storage's time `then` and the local times before and after it was learnt differ. */
int run_check_times(const struct run *m, int64_t before, int64_t then, int64_t after, struct err *e);
/* Without delays nobody else may use the repository. */
int run_check_alone(const struct run *m, struct err *e);
int run_clean_logs(struct run *m, struct err *e);
/* Files of killed writers, older than a day, are deleted. */
int run_leftovers(struct run *m, struct err *e);
/* What snapshots need, by the current view of the index: all of it is in the index. */
int run_mark(struct run *m, struct err *e);
void run_forget(struct run *m); /* what run_look() and run_mark() have found */
/* Marks, restores what is needed, and marks deleted what is not. */
int run_collect(struct run *m, struct err *e);
/* Drops what two collections found unneeded. *late_s: watermark that a dry run would set. */
int run_drop(struct run *m, int64_t *late_s, struct err *e);

/* ---- maintain-room.c ---- */

#define ENTRY_ROOM 64 /* bytes of an index blob for each content that is marked deleted, and some to spare */

/* Little is free in the repository. */
bool run_is_short(struct run *m);
/* Whether so much can be written; else it is added to what the rest of the run needs. */
bool run_has_room(struct run *m, uint64_t bytes);
/* Behind a run that ended with rc: an error for lack of room says what was freed and how much the rest needs, and what
 * was left undone for lack of room is logged. Returns rc. */
int run_explain_full(struct run *m, int rc, struct err *e);

/* ---- maintain-first.c ---- */

/*
 * Deletes what the rules allow to delete by what is written already: files of killed writers, old logs, superseded
 * index blobs, packs that nothing refers to. Writes nothing into the repository, not even that it did so. What cannot
 * be done is left to later, with a warning.
 */
int run_free_first(struct run *m, struct err *e);

/* ---- maintain-manifests.c ---- */

/* Stores manifests together, or counts what would be (dry run). What cannot be read, or finds no room, is left to later
 * runs with a warning. */
int run_manifests(struct run *m, struct err *e);

/* ---- maintain-rewrite.c ---- */

/* Stores the contents of short packs again, and those that error correction had to restore, or counts them (dry run).
 * Those that cannot be read are counted. */
int run_rewrite(struct run *m, struct err *e);
/* Which of so many parts a pack belongs to: 0 and up, the same each time. */
uint64_t run_part_of(const char *name, uint64_t parts);
/* The compression with which a content is stored again: its own, or none where that can only be read. */
uint32_t run_compression(uint32_t id);

#endif
