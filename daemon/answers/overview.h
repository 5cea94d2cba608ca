/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * overview.h - what status says of all volumes, native snapshots and operations, kept as their rows change
 *
 * Counts, and the order in which they are listed: an answer reads the first ones of each list and no others. Operations
 * are up to date with each change. A change that concerns a volume (its own row, its native snapshots, what uses them)
 * only notes it; overview_work() looks at the volumes that were noted, so many at a time, and at those whose judgement
 * changes with time. Until then they are listed as they were.
 *
 * Memory depends on the number of rows that are not finished. The event loop's thread only; nothing blocks.
 */
#ifndef SNAPFERRY_DAEMON_ANSWERS_OVERVIEW_H
#define SNAPFERRY_DAEMON_ANSWERS_OVERVIEW_H

#include "daemon/decide/judge.h"
#include "daemon/records/records.h"

struct overview;
/* Reads the operations that are not finished and notes all volumes; the records are borrowed. NULL: no memory. */
struct overview *overview_new(struct records *r);
void overview_free(struct overview *s);
/* A rows_watch_fn: `arg` is the struct overview. */
void overview_row(enum row_kind k, const char *id, const void *was, const void *now, void *arg);
/* Another configuration or other intervals of its jobs; notes all volumes. c NULL: it cannot be read. `jobs` is read
 * during the call only. */
void overview_configure(struct overview *s, struct cfg *c, const struct jobs_now *jobs);
/* Looks at `most` volumes at most; how many are left. */
size_t overview_work(struct overview *s, size_t most, int64_t now_ns);
/* Whether something is noted. */
bool overview_is_behind(const struct overview *s);
/* How many volumes were looked at since overview_new(). */
uint64_t overview_looks_test(const struct overview *s);

/* ---- volumes ---- */

unsigned overview_volumes(const struct overview *s, enum volume_state state);
/* Id of the volume at that place of the order of need (unprotected ones first, then the oldest backup; those that do
 * not count at the end); NULL: there are not so many. Borrowed until the next call of overview_work(), as all ids. */
const char *overview_volume_at(const struct overview *s, size_t place);
/* The first one whose id comes after `id`; "": the first of all. */
const char *overview_volume_after(const struct overview *s, const char *id);
/* As overview_volume_at(), of the protected ones whose last backup failed, or that no job backs up any more. */
const char *overview_failing_at(const struct overview *s, size_t place);
/* ... of those whose list of changes was found to be wrong. */
const char *overview_distrusted_at(const struct overview *s, size_t place);
/* How many volumes of a class of the configuration, by its number, there are, and how many are gone. */
void overview_class(const struct overview *s, unsigned number, unsigned *there, unsigned *gone);
/* Whether a job, by its number, has a volume to back up. */
bool overview_job_is_busy(const struct overview *s, unsigned number);

/* ---- native snapshots ---- */

struct overview_natives {
    unsigned n, next, removing; /* next: pruned by the next backups; removing: has begun, the daemon goes on with it */
    int64_t used;
    unsigned kept, intermediates; /* for inspection (expose-keep-on-failure), with how many intermediates */
    int64_t kept_used;            /* bytes of these */
    unsigned unremoved;           /* the storage could not remove them */
};
bool native_is_unremoved(const struct native_row *n);
struct overview_natives overview_natives(const struct overview *s);
/* Id of a volume of which the next backup prunes a native snapshot, the one with the oldest snapshot first. */
const char *overview_due_at(const struct overview *s, size_t place);

/* ---- operations ---- */

struct overview_counts {
    unsigned running[KINDS], queued, retrying; /* running: neither of the others */
    unsigned used;                             /* slots */
};
struct overview_counts overview_counts(const struct overview *s);
/* Ids: those that wait, in the order in which they run, then those that need no slot; all others by age; of all, those
 * that are retried or that something is wrong with. */
const char *overview_queued_at(const struct overview *s, size_t place);
const char *overview_running_at(const struct overview *s, size_t place);
const char *overview_troubled_at(const struct overview *s, size_t place);
/* Place of one that waits, from 1: among those that need a slot, or among the others; 0: it does not wait. */
unsigned overview_place(const struct overview *s, const struct operation *op);

/* Nothing moves yet: it is queued, or prepared and without a slot or its repository. */
bool operation_waits(const struct operation *op);

/* ---- outcomes that are not recorded in their repository yet ---- */

struct overview_owed {
    int64_t backups, since_ns; /* since when the oldest one waits */
    const char *oldest;        /* id of the operation that has to record that one; NULL: there is none */
};
struct overview_owed overview_owed(const struct overview *s, const char *repository);

#endif
