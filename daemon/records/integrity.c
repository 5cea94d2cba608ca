/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * integrity.c - looks for damage in a large database while it is in use
 *
 * SQLite's check reads the whole file at once: that would hold up the start for minutes, and keep the log from being
 * folded in for as long. What the daemon works with is read, and so checked, at start; all other rows are read here,
 * piece by piece, in a thread with a connection of its own that leaves the disk to others most of the time. An index
 * that is damaged is found when it is used.
 */
#include "daemon/records/records-impl.h"

#include "base/time.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE "500" /* rows that are read at once */
#define REST 2      /* times as long as the reading took */

struct integrity {
    pthread_t thread;
    char path[PATH_MAX + 16];
    atomic_bool stop, done, bad;
    char why[256]; /* when done */
};

/* Reads the rows of a piece; the last number, 0: there are no more. An SQLite code. */
static int read_piece(sqlite3_stmt *st, sqlite3_int64 *last)
{
    int rc;
    sqlite3_bind_int64(st, 1, *last);
    *last = 0;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW)
        *last = sqlite3_column_int64(st, 0);
    sqlite3_reset(st);
    return rc;
}

static int read_table(struct integrity *x, sqlite3 *db, const char *table)
{
    sqlite3_stmt *st = NULL;
    sqlite3_int64 last = INT64_MIN;
    char sql[120];
    /* The length of a text is known when all of it was read. */
    snprintf(sql, sizeof sql, "SELECT seq, length(doc) FROM %s WHERE seq > ?1 ORDER BY seq LIMIT " PIECE, table);
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
    for (bool more = true; rc == SQLITE_OK && more && !atomic_load(&x->stop);) {
        int64_t began = mono_ns();
        rc = read_piece(st, &last);
        if (rc == SQLITE_DONE || (rc & 0xff) == SQLITE_BUSY)
            rc = SQLITE_OK;
        more = last != 0;
        struct timespec rest = ns_timespec((mono_ns() - began) * REST % NS_PER_S);
        nanosleep(&rest, NULL);
    }
    sqlite3_finalize(st);
    return rc;
}

static void check(struct integrity *x, sqlite3 *db)
{
    sqlite3_exec(db, "PRAGMA cell_size_check=ON", NULL, NULL, NULL);
    for (enum row_kind k = 0; k < ROW_KINDS && !atomic_load(&x->bad); k++) {
        int rc = read_table(x, db, row_types[k].table);
        if (!records_is_damage(db, rc))
            continue;
        snprintf(x->why, sizeof x->why, "%s", sqlite3_errmsg(db));
        atomic_store(&x->bad, true);
    }
}

static void *run(void *arg)
{
    struct integrity *x = arg;
    sqlite3 *db = NULL;
    if (records_connect(&db, x->path, NULL) == 0)
        check(x, db);
    sqlite3_close(db);
    atomic_store(&x->done, true);
    return NULL;
}

void records_integrity_start(struct records *r)
{
    struct integrity *x = calloc(1, sizeof *x);
    if (!x)
        return;
    snprintf(x->path, sizeof x->path, "%s", r->path);
    int rc = records_thread(&x->thread, run, x);
    if (rc == 0) {
        r->integrity = x;
        return;
    }
    log_warning("%s is not checked for damage: %s", r->path, strerror(rc));
    free(x);
}

bool records_integrity_bad(struct records *r)
{
    struct integrity *x = r->integrity;
    if (!x || !atomic_load(&x->done))
        return false;
    bool bad = atomic_load(&x->bad);
    if (bad)
        log_warning("%s is damaged: %s", r->path, x->why);
    records_integrity_stop(r);
    return bad;
}

void records_integrity_stop(struct records *r)
{
    struct integrity *x = r->integrity;
    if (!x)
        return;
    r->integrity = NULL;
    atomic_store(&x->stop, true);
    pthread_join(x->thread, NULL);
    free(x);
}
