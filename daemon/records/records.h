/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * records.h - what the daemon remembers: SQLite (WAL, synchronous=FULL) in STATE-DIR/records.db
 *
 * Only the daemon writes (MS-11); one process at a time (lock file). Each row has the columns that queries need and a
 * JSON document for all the rest, so that a new field needs no migration. A row is changed by read, modify,
 * records_save(), which compares the generation: a stale copy is refused (-ESTALE). A terminal state is absorbing: save
 * refuses to leave it (MS-62); only a backup may go from there to "Deleting", which it leaves by records_delete().
 * Everything a call wrote is durable (fsync) when it returns, or when the transaction around it commits. Not
 * thread-safe: one thread, the event loop's.
 */
#ifndef SNAPFERRY_DAEMON_RECORDS_H
#define SNAPFERRY_DAEMON_RECORDS_H

#include "base/err.h"
#include "daemon/records/types.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define RECORDS_SCHEMA 1

enum rec_kind {
    REC_BACKUP,    /* a run over volumes; also restores ("restore-..." with one operation) */
    REC_OPERATION, /* one volume of a backup, or one restore, verify, maintain, admin run */
    REC_NATIVE,    /* a native snapshot on this node's storage; id = alias */
    REC_VOLUME,    /* what is known of a volume; id = volume id */
    REC_JOB,       /* last runs of a job's schedule; id = job name */
    REC_KINDS
};

struct rec {
    char id[512];
    char parent[192];    /* operation: its backup; native: the backup it was taken for */
    char volume[256];    /* operation, native: volume id */
    char state[24];      /* phase or state; see engine.h; natives: "creating", "present", "removing", "missing" */
    uint64_t seq;        /* creation order over all kinds, given by records_add(); never reused */
    uint64_t generation; /* given by records_add() and records_save() */
    int64_t created_ns, updated_ns;
    int64_t wake_ns; /* stored deadline or next attempt (CLOCK_REALTIME), 0: none */
    json_t *doc;     /* object, never NULL; owned by the rec */
};
#define REC_INIT                                                                                                       \
    {                                                                                                                  \
        .doc = NULL                                                                                                    \
    }
void rec_clear(struct rec *r);
static inline void rec_clearp(struct rec *r)
{
    rec_clear(r);
}
/* Deep copy. */
int rec_copy(struct rec *ret, const struct rec *r, struct err *e);

struct records;

/* How opening went, for status and log. */
struct records_news {
    bool created;       /* there was no database */
    bool migrated;      /* from an older schema (a copy records.db.v<N> is kept) */
    bool recovered;     /* it was corrupt: set aside as records.db.corrupt-<time>, rebuilt from what could be read */
    unsigned lost_rows; /* rows that could not be read then, as far as is known */
    char text[512];
};
/*
 * Opens or makes the database. A newer schema: ERR_FORMAT, nothing is touched. Corrupt: what can be read is salvaged
 * into a new database, the old one is kept, news->recovered is set (natives and intents missing then are found again by
 * the sweep). Held by another process: ERR_BUSY. Disk full: ERR_NO_SPACE.
 */
int records_open(struct records **ret, const char *state_dir, struct records_news *news, struct err *e);
/* Read-only view for the command while the daemon is down (works on a copy of the state, takes no lock). */
int records_open_read_only(struct records **ret, const char *state_dir, struct err *e);
void records_close(struct records *r);

/* New row: id, parent, volume, state, wake_ns, doc are the caller's; the rest is filled in. -EEXIST if the id exists.
 */
int records_add(struct records *r, enum rec_kind k, struct rec *rec, struct err *e);
/* Writes a row that was read before. -ESTALE: somebody saved it meanwhile. -EINVAL: it left a terminal state. On
 * success generation and updated_ns of *rec are the new ones. */
int records_save(struct records *r, enum rec_kind k, struct rec *rec, struct err *e);
/* -ENOENT with class ERR_NOT_FOUND. */
int records_get(struct records *r, enum rec_kind k, const char *id, struct rec *ret, struct err *e);
int records_delete(struct records *r, enum rec_kind k, const char *id, struct err *e);

struct rec_filter {
    const char *parent, *volume, *state; /* NULL: any */
    bool live;                           /* only rows whose state is not terminal */
    bool newest_first;                   /* by seq; default oldest first */
    unsigned limit;                      /* 0: none */
};
/* Calls fn for each row (cleared afterwards; fn may move it out and set doc to NULL). The rows are those of the moment
 * of the call, each as it is when its turn comes; what is gone or no longer matches by then is left out. fn may write
 * to the records. A non-zero return ends it and is returned. A row whose document cannot be used is set aside, counted
 * and logged, never handed out. */
typedef int rec_fn(struct rec *rec, void *arg);
int records_each(struct records *r, enum rec_kind k, const struct rec_filter *f, rec_fn *fn, void *arg, struct err *e);
int records_count(struct records *r, enum rec_kind k, const struct rec_filter *f, uint64_t *ret, struct err *e);

/* ---- typed rows ---- */

/*
 * Tells of each row that a transaction has changed, when that is durable: `was` and `now` are a struct operation, ...,
 * NULL: there was none, there is none any more. k ROW_KINDS: anything may have changed (the database was replaced). fn
 * must not use the records.
 */
typedef void rows_watch_fn(enum row_kind k, const char *id, const void *was, const void *now, void *arg);
void rows_watch(struct records *r, rows_watch_fn *fn, void *arg);

/*
 * For each row X (operation, backup, native_row, volume_row, job_run):
 *   X_add(r, &x, e)       new: id, parent, volume_id, state, wake_ns and the fields are the caller's, the rest is
 * filled in. -EEXIST if the id exists X_save(r, &x, e)      writes one that was read before. -ESTALE: it was saved by
 * others meanwhile. -EINVAL: it left a terminal state. On success generation and updated_ns of x are the new ones
 *   X_get(r, id, &x, e)   a copy; x is initialized in any case, and empty on failure. -ENOENT with class ERR_NOT_FOUND
 *   X_delete(r, id, e)
 *   X_each(r, filter, fn, arg, e)
 *                         calls fn for each row that matches (NULL: all). The rows are those of the moment of the call,
 *                         each as it is when its turn comes; what is gone or no longer matches by then is left out. fn
 *                         may write to the records; the row it was given stays as it is until it returns. A non-zero
 *                         return ends it and is returned
 *   X_count(r, filter, &n, e)
 */
struct row_filter {
    const char *parent, *volume_id; /* NULL: any */
    int state;                      /* 0: any */
    bool live;                      /* only rows whose state is not terminal */
    bool newest_first;              /* by seq; default oldest first */
    unsigned limit;                 /* 0: none */
};
typedef int row_fn(const void *row, void *arg);
int row_add(struct records *r, enum row_kind k, void *row, struct err *e);
int row_save(struct records *r, enum row_kind k, void *row, struct err *e);
int row_get(struct records *r, enum row_kind k, const char *id, void *ret, struct err *e);
int row_delete(struct records *r, enum row_kind k, const char *id, struct err *e);
int row_each(struct records *r, enum row_kind k, const struct row_filter *f, row_fn *fn, void *arg, struct err *e);
int row_count(struct records *r, enum row_kind k, const struct row_filter *f, uint64_t *ret, struct err *e);

/* Between typed and untyped rows, as long as there are both; row: initialized. */
int row_to_rec(enum row_kind k, const void *row, struct rec *ret, struct err *e);
int row_from_rec(enum row_kind k, const struct rec *rec, void *row, struct err *e);

#define RECORDS_ROW(X, KIND, STATE)                                                                                    \
    struct X##_filter {                                                                                                \
        const char *parent, *volume_id;                                                                                \
        STATE state;                                                                                                   \
        bool live, newest_first;                                                                                       \
        unsigned limit;                                                                                                \
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
        return f ? (struct row_filter){f->parent, f->volume_id, (int)f->state, f->live, f->newest_first, f->limit}     \
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

/* Every state of backups and operations. */
#define RECORDS_STATES                                                                                                 \
    "Queued Snapshotting Exposing Starting Running Moving CleaningUp Retrying Cancelling Finalizing Deleting "         \
    "Completed PartiallyFailed Failed Canceled Skipped"
/* Terminal states: "Completed", "PartiallyFailed", "Failed", "Canceled", "Skipped". */
bool state_terminal(const char *state);

/* Several writes as one. Nesting counts; rollback undoes all: what follows in the outer ones fails with -ECANCELED.
 * commit ends its level whether it succeeds or not; rollback without a transaction does nothing. */
int records_begin(struct records *r, struct err *e);
int records_commit(struct records *r, struct err *e);
void records_rollback(struct records *r);

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

/* `labels`: object of strings, borrowed, may be NULL. Not fsynced by itself: goes with the next commit or within 30 s.
 */
int records_counter_add(struct records *r, const char *name, const json_t *labels, double delta, struct err *e);
typedef int counter_fn(const char *name, const json_t *labels, double value, void *arg);
int records_counters(struct records *r, counter_fn *fn, void *arg, struct err *e);
/* Value of one; false if it was never counted. */
bool records_counter_get(struct records *r, const char *name, const json_t *labels, double *value);
/* The same store for what is not added up but known since somebody last looked. */
int records_counter_set(struct records *r, const char *name, const json_t *labels, double value, struct err *e);
/* Forgets one; it is gone from the disk with the next commit. */
void records_counter_remove(struct records *r, const char *name, const json_t *labels);
/*
 * Exactly once: what is counted between hold and settle is written by the commit of the record that it belongs to (the
 * next one), and taken back by settle if there was none: then the same will happen, and be counted, again. Nests.
 */
void records_counters_hold(struct records *r);
void records_counters_settle(struct records *r);

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

/*
 * Tells of every row that is written: `rec` as it is now, for one that is gone with doc NULL. k REC_KINDS (rec NULL):
 * anything may have changed (a transaction was undone, the database was rebuilt). fn must not use the records.
 */
typedef void records_watch_fn(enum rec_kind k, const struct rec *rec, void *arg);
void records_watch(struct records *r, records_watch_fn *fn, void *arg);

/* Writes counters that wait now; for the timer of who counts without writing anything else. */
int records_flush(struct records *r, struct err *e);

/* Small values by name (machine id, last sweep, ...). NULL text: not set. Get: -ENOENT if it is not set. */
int records_meta_set(struct records *r, const char *key, const char *text, struct err *e);
int records_meta_get(struct records *r, const char *key, char *ret, size_t cap, struct err *e);

/* Write failures so far (metric, MS-21), and whether the last write failed: the daemon is degraded then. */
uint64_t records_write_errors(const struct records *r);
bool records_degraded(const struct records *r);
/* How often the database was rebuilt after damage met while running (when it rises: sweep), and how many rows whose
 * document could not be used were set aside since the start. */
unsigned records_recoveries(const struct records *r);
unsigned records_set_aside(const struct records *r);

/* Removes finished rows older than keep_s beyond the newest keep_n of each kind; rows that others refer to stay.
 * Returns how many went. */
int records_prune(struct records *r, int64_t keep_s, unsigned keep_n, struct err *e);

#endif
