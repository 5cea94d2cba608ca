/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * session-impl.h - internals of a writing session; for session.c, put.c, rounds.c and packing.c only
 *
 * Contents put between two flushes form a round. Each round has a session id, a marker and packs of its own, so that
 * puts continue in the next round while a flush publishes the last one:
 *
 *   put: claim the id in the current round -> compress -> reserve a range in the round's open pack -> seal into it
 *   a full pack: last writer queues it -> a finishing thread closes and commits it
 *   flush: seal the round -> wait for its claims -> close its open packs -> wait for all packs -> index -> drop
 *
 * One lock protects everything here; no slow operation holds it. The first failure of anything that was reported as
 * successful to a caller stops the session: later puts and flushes report it.
 */
#ifndef SNAPFERRY_REPO_SESSION_IMPL_H
#define SNAPFERRY_REPO_SESSION_IMPL_H

#include "repo/adopt.h"
#include "repo/marker.h"
#include "repo/pack.h"
#include "repo/pending.h"
#include "repo/repo-impl.h"

/* Entries that are made into a table at a time: an entry is large (320 bytes) while it has its pack's name. Packs with
 * more contents are closed, indexes with more are split. */
#define TABLE_ENTRIES 16384

struct round;

struct pack {
    struct pack_writer *out; /* NULL: not (or no longer) being written */
    struct round *round;
    struct pack *next;   /* of the round */
    struct pack *queued; /* next to be finished */
    uint32_t number;     /* in session.packs */
    uint32_t first;      /* of its entries, linked by pending_entry.next */
    uint32_t entries;
    uint32_t end; /* where the next content goes */
    unsigned writers, readers;
    bool closed, committing;
    bool durable; /* written by us, visible in the store */
    bool counted; /* adopted: in the statistics */
    char name[];
};

struct round {
    struct session *session;
    struct round *next; /* younger */
    char id[SESSION_ID_TEXT];
    struct session_record *record;
    char (*markers)[BLOB_NAME_MAX + 1];
    size_t n_markers;
    int64_t started_ns, marked_ns;
    bool marking, marks; /* a thread puts the first marker; it is to be waited for */
    pthread_t marker;
    struct pack *packs;
    struct pack *open[2]; /* without, with prefix letter */
    bool opening[2];
    unsigned claims;     /* puts in progress */
    unsigned unfinished; /* closed packs not yet durable */
    bool sealed;         /* no new claims */
};

struct session {
    struct repo *repo;
    struct session *next; /* in repo.sessions */
    pthread_mutex_t lock;
    pthread_cond_t finish; /* a pack is in the queue, or the session ends */
    pthread_cond_t changed;
    pthread_mutex_t flush_lock; /* one flush at a time; taken before lock */
    pthread_mutex_t begin_lock; /* putting markers */
    pthread_mutex_t table_lock; /* one table of large entries at a time */
    struct err failure;
    bool failed;
    struct segments *segments; /* memory of packs being filled */
    struct pending pending;
    uint32_t flush_at;
    struct pack **packs;
    uint32_t n_packs;
    struct round *rounds, *current;
    struct pack *queue, *queue_end;
    unsigned unfinished;
    bool stopping;
    unsigned uploads; /* blobs_uploads(): closed packs not yet durable, before a new one is opened */
    pthread_t *finishers;
    unsigned n_finishers;
    uint64_t flushes; /* rounds that went from pending to the index */
    struct dead_sessions dead;
    bool adopting;
    struct session_stats stats;
    _Atomic uint64_t *appended, *closed; /* session_opts; NULL: none */
};

/* rounds.c */

/* With `lock` held: records the first failure; wakes all waiters. */
void session_fail(struct session *s, const struct err *e);
/* With `lock` held: 0, or the failure again. */
int session_check(const struct session *s, struct err *e);

/* With `lock` held: the round that takes new contents. NULL: error. */
struct round *session_round(struct session *s, struct err *e);
/* Without `lock`: record and marker of a round, unless they are there and young. */
int round_begin(struct session *s, struct round *r, struct err *e);
/* The record alone. */
int round_record(struct session *s, struct round *r, struct err *e);
/* With `lock` held: waits for the first marker of a round, before which none of its packs may be in the store. */
int round_marked(struct session *s, const struct round *r, struct err *e);
/* The round was removed from the list. Its markers are deleted, unless `leave`: then a later run must find them and
 * the record. */
void round_end(struct session *s, struct round *r, bool leave);

/* session.c */

/* Flushes if the number of pending contents requires it. */
int session_make_room(struct session *s, struct err *e);

/* packing.c; all with `lock` held unless they say otherwise */
struct pack *pack_add(struct session *s, struct round *r, const char *name, struct err *e);
void pack_link(struct session *s, struct pack *p, uint32_t entry);
void pack_unlink(struct session *s, struct pack *p, uint32_t entry);
/* Reserves room in the round's open pack, opening one if needed (drops the lock meanwhile). The caller writes, then
 * calls pack_written(). */
struct pack *pack_reserve(struct session *s, struct round *r, bool prefixed, uint32_t len, uint32_t *offset,
                          struct err *e);
void pack_written(struct session *s, struct pack *p);
void pack_close(struct session *s, struct pack *p);
void session_entry(const struct session *s, uint32_t i, struct index_entry *ret);
void *session_finisher(void *session);

#endif
