/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * prune.c - finished rows that are old go, in small transactions, each in the thread of the commits
 *
 * A backup goes with all its operations, and stays as long as a native snapshot was taken for it, an operation of it is
 * not finished, an intent is open, or a mover plugin stores data of it. An operation without a backup in the records
 * goes by itself. What is known of volumes, jobs and native snapshots has no terminal state and is not touched.
 */
#include "daemon/records/records-impl.h"

#include "base/cleanup.h"
#include "base/time.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#define WINDOW 500 /* rows that are looked at, and may go, together */
#define WINDOW_TEXT "500"
#define FREE_PAGES_KEPT 64 /* for the next rows */

/* Only the record knows what a mover plugin stored: without it nobody could restore or delete that. */
#define PLUGIN_STORES                                                                                                  \
    "(o.state = 'Completed' AND instr(o.doc, '\"plugin\"') AND json_valid(o.doc)"                                      \
    " AND o.doc ->> '$.kind' = 'backup' AND o.doc ->> '$.result.plugin' IS NOT NULL"                                   \
    " AND o.doc ->> '$.result.skip' IS NULL AND coalesce(o.doc ->> '$.lost', 0) = 0)"

/* ?1 updated before, ?2 seq below, ?3 seq above; of the next WINDOW rows. */
static const char old_backups[] =
    "SELECT b.seq FROM (SELECT seq,id,state,updated_ns FROM backups WHERE seq > ?3 ORDER BY seq LIMIT " WINDOW_TEXT
    ") b"
    " WHERE " RECORDS_ENDED_SQL(
        "b.state") " AND b.updated_ns < ?1 AND b.seq < ?2"
                   " AND NOT EXISTS (SELECT 1 FROM operations o WHERE o.parent = b.id AND (" RECORDS_LIVE_SQL(
                       "o.state") "   OR EXISTS (SELECT 1 FROM intents i WHERE i.owner = o.id) OR " PLUGIN_STORES "))"
                                  " AND NOT EXISTS (SELECT 1 FROM natives n WHERE n.parent = b.id)"
                                  " AND NOT EXISTS (SELECT 1 FROM intents i WHERE i.owner = b.id)";
static const char old_operations[] =
    "SELECT o.seq FROM (SELECT seq,id,parent,state,updated_ns,doc FROM operations WHERE seq > ?3 ORDER BY seq "
    "LIMIT " WINDOW_TEXT ") o WHERE " RECORDS_ENDED_SQL(
        "o.state") " AND o.updated_ns < ?1 AND o.seq < ?2"
                   " AND NOT EXISTS (SELECT 1 FROM backups b WHERE b.id = o.parent)"
                   " AND NOT EXISTS (SELECT 1 FROM intents i WHERE i.owner = o.id) AND NOT (" PLUGIN_STORES ")";
/* The last row of the window after ?3 if any of it is old enough; else nothing that follows is, since rows are changed
 * roughly in the order in which they were made. */
static const char last_of_backups[] =
    "SELECT max(seq) FROM (SELECT seq,updated_ns FROM backups WHERE seq > ?3 ORDER BY seq LIMIT " WINDOW_TEXT ")"
    " HAVING min(updated_ns) < ?1 AND min(seq) < ?2";
static const char last_of_operations[] =
    "SELECT max(seq) FROM (SELECT seq,updated_ns FROM operations WHERE seq > ?3 ORDER BY seq LIMIT " WINDOW_TEXT ")"
    " HAVING min(updated_ns) < ?1 AND min(seq) < ?2";

static void finalizep(sqlite3_stmt **st)
{
    sqlite3_finalize(*st);
}
#define CLEANUP_STMT CLEANUP(finalizep)

/* All that one statement with up to three numbers yields. */
static int numbers(struct connection *w, const char *sql, sqlite3_int64 a, sqlite3_int64 b, sqlite3_int64 c,
                   uint64_t **ret, size_t *n, struct err *e)
{
    CLEANUP_STMT sqlite3_stmt *st = NULL;
    *ret = NULL;
    *n = 0;
    int rc = records_prepare(w, &st, sql, e);
    if (rc < 0)
        return rc;
    sqlite3_bind_int64(st, 1, a);
    sqlite3_bind_int64(st, 2, b);
    sqlite3_bind_int64(st, 3, c);
    return records_collect(w, st, ret, n, e);
}

/* Rows with a smaller number are beyond the newest `keep_n`. */
static int bound(struct connection *w, const char *sql, unsigned keep_n, sqlite3_int64 *ret, struct err *e)
{
    CLEANUP_FREE uint64_t *seq = NULL;
    size_t n;
    *ret = INT64_MAX;
    if (keep_n == 0)
        return 0;
    int rc = numbers(w, sql, (sqlite3_int64)keep_n - 1, 0, 0, &seq, &n, e);
    *ret = n ? (sqlite3_int64)seq[0] : 0;
    return rc;
}

/* Runs `sql` for one number; counts the rows. */
static int change(struct connection *w, const char *sql, sqlite3_int64 seq, int *removed, struct err *e)
{
    CLEANUP_STMT sqlite3_stmt *st = NULL;
    int rc = records_prepare(w, &st, sql, e);
    if (rc < 0)
        return rc;
    sqlite3_bind_int64(st, 1, seq);
    if ((rc = records_step(w, st, e, "write")) >= 0)
        *removed += sqlite3_changes(w->db);
    return rc;
}

static int remove_batch(struct connection *w, const uint64_t *seq, size_t n, bool backups, int *removed, struct err *e)
{
    int rc = n ? records_sql_begin(w, e) : 0, gone = 0;
    if (rc < 0 || !n)
        return rc;
    for (size_t i = 0; rc >= 0 && i < n; i++) {
        if (backups)
            rc = change(w, "DELETE FROM operations WHERE parent = (SELECT id FROM backups WHERE seq=?1)",
                        (sqlite3_int64)seq[i], &gone, e);
        if (rc >= 0)
            rc = change(w, backups ? "DELETE FROM backups WHERE seq=?1" : "DELETE FROM operations WHERE seq=?1",
                        (sqlite3_int64)seq[i], &gone, e);
    }
    rc = records_sql_end(w, rc, e);
    if (rc >= 0)
        *removed += gone;
    return rc;
}

static int begin_stage(struct connection *w, struct pruning *p, enum prune_stage stage, struct err *e)
{
    const bool backups = stage == PRUNE_BACKUPS;
    p->stage = stage;
    p->from = INT64_MIN;
    return bound(w,
                 backups ? "SELECT seq FROM backups ORDER BY seq DESC LIMIT 1 OFFSET ?1"
                         : "SELECT seq FROM operations ORDER BY seq DESC LIMIT 1 OFFSET ?1",
                 p->keep_n, &p->below, e);
}

/* The next window of a stage; 0: it was the last one. */
static int remove_window(struct connection *w, struct pruning *p, struct err *e)
{
    CLEANUP_FREE uint64_t *last = NULL, *seq = NULL;
    const bool backups = p->stage == PRUNE_BACKUPS;
    size_t some, n;
    int rc =
        numbers(w, backups ? last_of_backups : last_of_operations, p->before_ns, p->below, p->from, &last, &some, e);
    if (rc < 0 || !some)
        return rc;
    rc = numbers(w, backups ? old_backups : old_operations, p->before_ns, p->below, p->from, &seq, &n, e);
    if (rc >= 0)
        rc = remove_batch(w, seq, n, backups, &p->removed, e);
    p->from = (sqlite3_int64)last[0];
    return rc < 0 ? rc : 1;
}

/* Gives pages back and empties the log; what cannot be done now is done next time. */
static void shrink(struct connection *w)
{
    CLEANUP_FREE uint64_t *pages = NULL;
    size_t n;
    char *sql;
    if (numbers(w, "SELECT freelist_count FROM pragma_freelist_count", 0, 0, 0, &pages, &n, NULL) < 0)
        return;
    if (n && pages[0] > FREE_PAGES_KEPT &&
        (sql = sqlite3_mprintf("PRAGMA incremental_vacuum(%lld)", (long long)pages[0] - FREE_PAGES_KEPT))) {
        sqlite3_exec(w->db, sql, NULL, NULL, NULL);
        sqlite3_free(sql);
    }
    sqlite3_exec(w->db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL);
}

static int finish(struct connection *w, struct pruning *p, struct err *e)
{
    int removed = 0, rc = records_sql_begin(w, e);
    if (rc >= 0)
        rc = records_sql_end(w, change(w, "DELETE FROM set_aside WHERE at_ns < ?1", p->before_ns, &removed, e), e);
    p->removed += removed;
    p->stage = PRUNE_DONE;
    if (rc >= 0 && p->removed)
        shrink(w);
    return rc;
}

/* Removes some rows; p->stage is PRUNE_DONE when there are no more. */
static int prune_part(struct connection *w, void *arg, struct err *e)
{
    struct pruning *p = arg;
    const int before = p->removed;
    int rc = 0;
    while (rc >= 0 && p->stage != PRUNE_DONE && p->removed == before) {
        if (p->stage == PRUNE_FIRST)
            rc = begin_stage(w, p, PRUNE_BACKUPS, e);
        else if (p->stage == PRUNE_LAST)
            rc = finish(w, p, e);
        else if ((rc = remove_window(w, p, e)) == 0 && p->stage == PRUNE_OPERATIONS)
            p->stage = PRUNE_LAST;
        else if (rc == 0)
            rc = begin_stage(w, p, PRUNE_OPERATIONS, e);
    }
    if (rc < 0)
        p->stage = PRUNE_DONE;
    return rc < 0 ? rc : 0;
}

int records_prune_start(struct records *r, int64_t keep_s, unsigned keep_n, struct err *e)
{
    struct pruning *p = &r->pruning;
    int rc = records_refuse_read_only(r, e);
    if (rc < 0 || records_committing(r) || (rc = records_ready(r, e)) < 0)
        return rc;
    if (r->depth > 0)
        return err_set(e, ERR_GENERIC, EBUSY, "the records cannot be pruned inside a transaction");
    const int64_t now = records_clock();
    if (p->stage == PRUNE_DONE)
        *p = (struct pruning){
            .keep_n = keep_n, .before_ns = keep_s > now / NS_PER_S ? 0 : now - keep_s * NS_PER_S, .stage = PRUNE_FIRST};
    records_beside(r, prune_part, p);
    return 1;
}

bool records_pruning(const struct records *r)
{
    return records_committing(r) && r->commit.work;
}

int records_prune_end(struct records *r, bool *more, struct err *e)
{
    struct pruning *p = &r->pruning;
    *more = false;
    if (!records_pruning(r))
        return err_set(e, ERR_GENERIC, EINVAL, "the records are not being pruned");
    const int rc = records_commit_end(r, e);
    image_forget_recent(&r->image);
    *more = rc >= 0 && p->stage != PRUNE_DONE;
    return rc < 0 ? rc : p->removed;
}
