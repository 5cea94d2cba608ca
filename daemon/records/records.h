/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * records.h - what the daemon remembers: typed rows (types.h) in SQLite (WAL, synchronous=FULL), STATE-DIR/records.db
 *
 * Only the daemon writes (MS-11); one process at a time (lock file). A row is changed by get, modify, save, which
 * compares the generation: a stale copy is refused (-ESTALE). A terminal state is absorbing: save refuses to leave it
 * (MS-62); only a backup may go from there to BACKUP_DELETING, which it leaves by being deleted. Everything a call
 * wrote is durable (fsync) when it returns, or when the transaction around it commits.
 *
 * What is not finished, and all that is known of native snapshots, volumes and jobs, is in memory: reading it reads no
 * disk. Finished operations and backups are only on disk. Not thread-safe: one thread, the event loop's.
 */
#ifndef SNAPFERRY_DAEMON_RECORDS_H
#define SNAPFERRY_DAEMON_RECORDS_H

#include "base/err.h"
#include "daemon/records/types.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define RECORDS_SCHEMA 2

struct records;

/* How opening went, for status and log. */
struct records_news {
    bool created;   /* there was no database */
    bool migrated;  /* from an older schema (a copy records.db.v<N> is kept) */
    bool recovered; /* it was corrupt: set aside as records.db.corrupt-<time>, a new one is empty */
    char text[512];
};
/*
 * Opens or makes the database. A newer schema: ERR_FORMAT, nothing is touched. Corrupt: it is set aside and a new one
 * is made, news->recovered is set; what was in it is found again from storage and repositories. Held by another
 * process: ERR_BUSY. Disk full: ERR_NO_SPACE.
 */
int records_open(struct records **ret, const char *state_dir, struct records_news *news, struct err *e);
/* Read-only view for the command while the daemon is down (works on a copy of the state, takes no lock). */
int records_open_read_only(struct records **ret, const char *state_dir, struct err *e);
/* The process that has the records of this directory open for writing, a daemon; 0: none, or it cannot be seen. Any
 * thread. */
pid_t records_holder(const char *state_dir);
void records_close(struct records *r);

/* ---- rows ---- */

/*
 * For each row X (operation, backup, native_row, volume_row, job_run):
 *
 * X_add(r, &x, e): a new one. id, parent, volume_id, state, wake_ns and the fields are the caller's, the rest is filled
 * in. -EEXIST if the id exists.
 *
 * X_save(r, &x, e): writes one that was read before. -ESTALE: it was saved meanwhile. -EINVAL: it left a terminal
 * state. On success generation and updated_ns of x are the new ones.
 *
 * X_get(r, id, &x, e): a copy into x, which holds nothing before; it is initialized in any case, and empty on failure.
 * -ENOENT with class ERR_NOT_FOUND.
 *
 * X_peek(r, id): the row in memory, valid until the records are written again or a commit has ended. NULL: there is
 * none, or it is a finished operation or backup.
 *
 * X_delete(r, id, e).
 *
 * X_each(r, filter, fn, arg, e): calls fn for each row that matches (NULL: all). No row that is added meanwhile is
 * among them, and each is as it is when its turn comes; what is gone or no longer matches by then is left out. Finished
 * rows are read as their turn comes: one that ends early, or has a limit, reads no others. fn may write to the records;
 * the row it was given stays as it was until it returns. A non-zero return ends it and is returned. A row whose
 * document cannot be used is set aside and logged, never handed out.
 *
 * X_count(r, filter, &n, e).
 */
struct row_filter {
    const char *parent, *volume_id; /* NULL: any */
    int state;                      /* 0: any */
    bool live;                      /* only rows whose state is not terminal */
    bool newest_first;              /* by seq; default oldest first */
    unsigned limit;                 /* 0: none */
    uint64_t before;                /* only those with a smaller seq; 0: any */
    int64_t since_ns;               /* only those changed since; 0: any */
    uint64_t after;                 /* only those with a greater seq; 0: any */
};
typedef int row_fn(const void *row, void *arg);
int row_add(struct records *r, enum row_kind k, void *row, struct err *e);
int row_save(struct records *r, enum row_kind k, void *row, struct err *e);
int row_get(struct records *r, enum row_kind k, const char *id, void *ret, struct err *e);
int row_delete(struct records *r, enum row_kind k, const char *id, struct err *e);
int row_each(struct records *r, enum row_kind k, const struct row_filter *f, row_fn *fn, void *arg, struct err *e);
/* Rows whose id begins with `head` and ends with `tail` ("": any): all of those that are in memory, the newest first,
 * then `limit` of the others at most, the last ids first. No other row is read from disk. */
int row_each_part(struct records *r, enum row_kind k, const char *head, const char *tail, unsigned limit, row_fn *fn,
                  void *arg, struct err *e);
int row_count(struct records *r, enum row_kind k, const struct row_filter *f, uint64_t *ret, struct err *e);
const void *row_peek(const struct records *r, enum row_kind k, const char *id);

/*
 * Called for each change of a row when it is made in memory, which is before it is durable: `was` and `now` are a
 * struct operation, ..., NULL: there was none, there is none any more. When a transaction is undone (rollback, or a
 * commit that failed) it is called once more for each row that the transaction had left changed, `was` as the
 * transaction had made it and `now` as it is again. What failed on its own has changed nothing and is not reported.
 * k ROW_KINDS: anything may have changed (the database was replaced). fn must not use the records.
 */
typedef void rows_watch_fn(enum row_kind k, const char *id, const void *was, const void *now, void *arg);
int rows_watch(struct records *r, rows_watch_fn *fn, void *arg);
void rows_unwatch(struct records *r, const void *arg);

#define RECORDS_ROW(X, KIND, STATE)                                                                                    \
    struct X##_filter {                                                                                                \
        const char *parent, *volume_id;                                                                                \
        STATE state;                                                                                                   \
        bool live, newest_first;                                                                                       \
        unsigned limit;                                                                                                \
        uint64_t after;                                                                                                \
    };                                                                                                                 \
    typedef int X##_fn(const struct X *row, void *arg);                                                                \
    struct X##_visit {                                                                                                 \
        X##_fn *fn;                                                                                                    \
        void *arg;                                                                                                     \
    };                                                                                                                 \
    static inline int X##_visit_row(const void *row, void *arg)                                                        \
    {                                                                                                                  \
        const struct X##_visit *v = (const struct X##_visit *)arg;                                                     \
        return v->fn((const struct X *)row, v->arg);                                                                   \
    }                                                                                                                  \
    static inline struct row_filter X##_row_filter(const struct X##_filter *f)                                         \
    {                                                                                                                  \
        return f ? (struct row_filter){f->parent, f->volume_id, (int)f->state, f->live, f->newest_first, f->limit, 0,  \
                                       0,         f->after}                                                            \
                 : (struct row_filter){.parent = NULL};                                                                \
    }                                                                                                                  \
    static inline int X##_add(struct records *r, struct X *x, struct err *e)                                           \
    {                                                                                                                  \
        return row_add(r, KIND, x, e);                                                                                 \
    }                                                                                                                  \
    static inline int X##_save(struct records *r, struct X *x, struct err *e)                                          \
    {                                                                                                                  \
        return row_save(r, KIND, x, e);                                                                                \
    }                                                                                                                  \
    static inline int X##_get(struct records *r, const char *id, struct X *ret, struct err *e)                         \
    {                                                                                                                  \
        return row_get(r, KIND, id, ret, e);                                                                           \
    }                                                                                                                  \
    static inline const struct X *X##_peek(const struct records *r, const char *id)                                    \
    {                                                                                                                  \
        return (const struct X *)row_peek(r, KIND, id);                                                                \
    }                                                                                                                  \
    static inline int X##_delete(struct records *r, const char *id, struct err *e)                                     \
    {                                                                                                                  \
        return row_delete(r, KIND, id, e);                                                                             \
    }                                                                                                                  \
    static inline int X##_each(struct records *r, const struct X##_filter *f, X##_fn *fn, void *arg, struct err *e)    \
    {                                                                                                                  \
        struct X##_visit v = {fn, arg};                                                                                \
        const struct row_filter any = X##_row_filter(f);                                                               \
        return row_each(r, KIND, &any, X##_visit_row, &v, e);                                                          \
    }                                                                                                                  \
    static inline int X##_count(struct records *r, const struct X##_filter *f, uint64_t *ret, struct err *e)           \
    {                                                                                                                  \
        const struct row_filter any = X##_row_filter(f);                                                               \
        return row_count(r, KIND, &any, ret, e);                                                                       \
    }
RECORDS_ROW(operation, ROW_OPERATION, enum op_state)
RECORDS_ROW(backup, ROW_BACKUP, enum backup_state)
RECORDS_ROW(native_row, ROW_NATIVE, enum native_state)
RECORDS_ROW(volume_row, ROW_VOLUME, enum known_state)
RECORDS_ROW(job_run, ROW_JOB, enum job_state)

/* Makes the next number of the sequence greater than `seq`: before a native snapshot with a number of its own (its tag)
 * is adopted. */
int records_seq_at_least(struct records *r, uint64_t seq, struct err *e);
/* Whether these records may have given that number at that time. If not, what has it is of records that were lost,
 * replaced, or newer than the copy that took their place. */
bool records_may_have_given(const struct records *r, uint64_t seq, int64_t at_ns);

/* Several writes as one. Nesting counts; rollback undoes all: what follows in the outer ones fails with -ECANCELED.
 * commit ends its level whether it succeeds or not; rollback without a transaction does nothing. */
int records_begin(struct records *r, struct err *e);
int records_commit(struct records *r, struct err *e);
void records_rollback(struct records *r);
/*
 * A part of a transaction that can be undone alone: what was written and counted since records_savepoint(). There is
 * one at a time, and no records_rollback() within it. It ends by one of the other two.
 */
void records_savepoint(struct records *r);
void records_savepoint_keep(struct records *r);
void records_savepoint_undo(struct records *r);
/* The transaction writes something even if it changes nothing: whether the records can be written is to be found out.
 */
void records_probe(struct records *r);
/*
 * The commit of the outermost level in a thread of its own. From here on the changes can be read; no other transaction
 * begins before they are written: a call that writes rows waits for the end first, one that reads does not wait, and
 * what is counted goes with the next commit. 1: it is under way, and its result must be taken before the next start.
 * 0: it has ended, since there was nothing to write or no thread. < 0: as records_commit().
 */
int records_commit_start(struct records *r, struct err *e);
/* The next commit that writes something calls fn first, in its thread: what has to be durable before it. < 0: as if the
 * commit had failed. Once; NULL: nothing. */
typedef int records_before_fn(void *arg, struct err *e);
void records_commit_before(struct records *r, records_before_fn *fn, void *arg);
/* Readable when a commit that was started has ended and its result was not taken. */
int records_commit_fd(const struct records *r);
/* Whether one was started whose result was not taken. */
bool records_committing(const struct records *r);
/* Takes the result, waiting for the end: 0, or < 0 and all of the transaction was undone. */
int records_commit_end(struct records *r, struct err *e);

/* ---- intents: names of objects before they are created (E-04) ---- */

struct intent {
    uint64_t id;
    char owner[512]; /* operation or backup */
    char kind[32];   /* "native", "exposure", "unit", "target", "hook-post" */
    char name[512];  /* alias, unit name, path */
    json_t *doc;     /* what undoing needs; owned */
};
void intent_clear(struct intent *i);
/* Takes the reference to `doc` (NULL: an empty object), also when it fails. Ids are numbers of the one sequence. */
int records_intent_add(struct records *r, const char *owner, const char *kind, const char *name, json_t *doc,
                       uint64_t *id, struct err *e);
/* Replaces the document (the object exists now: its handle); takes the reference, also when it fails. */
int records_intent_update(struct records *r, uint64_t id, json_t *doc, struct err *e);
int records_intent_resolve(struct records *r, uint64_t id, struct err *e);
/* Of one owner (NULL: all), newest first: the order of undoing. */
typedef int intent_fn(struct intent *i, void *arg);
int records_intents(struct records *r, const char *owner, intent_fn *fn, void *arg, struct err *e);

/* ---- counters that survive restart (metrics) ---- */

/* `labels`: object of strings, borrowed, may be NULL. Written with the next commit, which may be one of nothing else.
 */
int records_counter_add(struct records *r, const char *name, const json_t *labels, double delta, struct err *e);
typedef int counter_fn(const char *name, const json_t *labels, double value, void *arg);
int records_counters(struct records *r, counter_fn *fn, void *arg, struct err *e);
/* Value of one; false if it was never counted. */
bool records_counter_get(struct records *r, const char *name, const json_t *labels, double *value);
/* The same store for what is not added up but known since somebody last looked. */
int records_counter_set(struct records *r, const char *name, const json_t *labels, double value, struct err *e);
/* Forgets one; it is gone from the disk with the next commit. */
int records_counter_remove(struct records *r, const char *name, const json_t *labels, struct err *e);
/*
 * Exactly once: what is counted between hold and settle is written by the commit of the record that it belongs to (the
 * next one), and taken back by settle if there was none: then the same will happen, and be counted, again. Nests.
 */
void records_counters_hold(struct records *r);
void records_counters_settle(struct records *r);
/* While a transaction is open and its owner does something else: what is counted from here on is true whatever becomes
 * of the savepoint and of the hold, until it is called with false or the outermost hold ends. */
void records_counters_apart(struct records *r, bool apart);

/* Bounds of distributions of durations, in seconds: 1 s to 24 h; and for what takes milliseconds, 1 ms to 1 min. */
#define HISTOGRAM_BOUNDS 12
extern const double histogram_bounds[HISTOGRAM_BOUNDS], histogram_bounds_short[HISTOGRAM_BOUNDS];
/*
 * A distribution in the same store: counters NAME_bucket with a label "le" for each of the `n` ascending bounds and
 * "+Inf", each counting what is not above it; NAME_sum; NAME_count. A negative value counts as 0.
 */
int records_histogram_observe(struct records *r, const char *name, const json_t *labels, const double *bounds, size_t n,
                              double value, struct err *e);
/* Adds a distribution that somebody else kept: counts[i] of values in (bounds[i-1], bounds[i]], counts[n] above all. */
int records_histogram_add(struct records *r, const char *name, const json_t *labels, const double *bounds, size_t n,
                          const uint64_t *counts, double sum, struct err *e);
/* Label "le" of a bound. */
const char *records_bound_text(double bound, char out[32]);

/* Write failures so far (metric, MS-21), and whether the last write failed: the daemon is degraded then. */
uint64_t records_write_errors(const struct records *r);
bool records_degraded(const struct records *r);
/* Why it failed: errno, or 0. */
int records_degraded_by(const struct records *r);
/* Holds of native snapshots are kept in a file of their own, too. Why it does not have what the records have; "": it
 * has. */
const char *records_holds_failing(const struct records *r);
/* Whether the records began without what was held before: neither a database nor that file was there. */
bool records_holds_unknown(const struct records *r);
/* Counter: the Unix time in seconds at which something was found again that the records did not have. */
#define RECORDS_REBUILT "records_rebuilt_timestamp_seconds"

/* Whether the database file was removed, renamed or replaced by another program since it was opened: what is written
 * is lost when it is closed. Of the thread that uses the records. */
bool records_detached(struct records *r);
/* How often the database was replaced after damage met while running (when it rises: sweep). */
unsigned records_recoveries(const struct records *r);

/*
 * Removes finished rows older than keep_s beyond the newest keep_n of each kind; rows that others refer to stay. A part
 * at a time, in the thread of the commits, and announced as their ends are (records_commit_fd()). start: 1: a part is
 * under way, and its result must be taken before the next start of anything; 0: not now, a commit is under way. end:
 * takes the result, waiting for it: how many went since the first part. *more: there are more to go.
 */
int records_prune_start(struct records *r, int64_t keep_s, unsigned keep_n, struct err *e);
/* Whether a part was started whose result was not taken. */
bool records_pruning(const struct records *r);
int records_prune_end(struct records *r, bool *more, struct err *e);

#endif
