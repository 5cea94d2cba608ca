/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * records_salvage.c - what can be read of a damaged database goes into a new one
 *
 * The new database is built beside the old one as records.db.salvage, made durable and renamed to records.db.rebuilt:
 * from then on the change is decided, and every opening finishes it. The old database and its log are kept as
 * records.db.corrupt-TIME; TIME is that of the rebuilt file, so that a swap which is finished later uses the same name.
 *
 * Crash points: records-salvaged (the new one is whole, not decided), records-rebuilt (decided), records-log-aside and
 * records-aside (old log, old database under their new names), records-swapped.
 */
#include "daemon/records/records-impl.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SALVAGE "records.db.salvage"
#define REBUILT "records.db.rebuilt"
#define CORRUPT "records.db.corrupt-"
#define ROWS_MAX 10000000 /* a page chain that runs in a circle ends here */

struct table {
    const char *name;
    const char *index; /* lists the rows without the table itself; NULL: none */
};
static const struct table tables[] = {
    {"backups", "backups_id"},
    {"operations", "operations_id"},
    {"natives", "natives_id"},
    {"volumes", "volumes_id"},
    {"jobs", "jobs_id"},
    {"intents", "intents_owner"},
    {"counters", NULL},
    {"set_aside", NULL},
    {"meta", NULL},
};

struct salvage {
    sqlite3 *from, *to;
    const char *path; /* of the new one */
    uint64_t kept, lost;
    bool unsure; /* more may be lost than is known */
    /* of the table at hand */
    const char *table;
    char columns[512], marks[128];
    int n;
    sqlite3_stmt *insert;
};

static bool has_column(sqlite3 *db, const char *table, const char *column)
{
    sqlite3_stmt *st = NULL;
    char *sql = sqlite3_mprintf("SELECT \"%w\".\"%w\" FROM \"%w\" LIMIT 0", table, column, table);
    bool ok = sql && sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK;
    sqlite3_finalize(st);
    sqlite3_free(sql);
    return ok;
}

/* The columns that both have: the damaged one may be of an older schema. */
static int common_columns(struct salvage *s, struct err *e)
{
    sqlite3_stmt *st = NULL;
    char sql[96];
    snprintf(sql, sizeof sql, "PRAGMA table_info(%s)", s->table);
    s->n = 0;
    s->columns[0] = s->marks[0] = '\0';
    int rc = sqlite3_prepare_v2(s->to, sql, -1, &st, NULL);
    while (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW) {
        const char *column = (const char *)sqlite3_column_text(st, 1);
        if (!column || !has_column(s->from, s->table, column))
            continue;
        size_t c = strlen(s->columns), m = strlen(s->marks);
        snprintf(s->columns + c, sizeof s->columns - c, "%s%s", c ? "," : "", column);
        snprintf(s->marks + m, sizeof s->marks - m, "%s?", m ? "," : "");
        s->n++;
    }
    sqlite3_finalize(st);
    return rc == SQLITE_OK ? 0 : records_sqlite_fail(s->to, rc, s->path, e, "rebuild");
}

/* Puts the row that `st` stands on (rowid, then the columns) into the new table. */
static int copy_row(struct salvage *s, sqlite3_stmt *st, struct err *e)
{
    for (int i = 0; i < s->n; i++)
        sqlite3_bind_value(s->insert, i + 1, sqlite3_column_value(st, i + 1));
    int rc = sqlite3_step(s->insert);
    sqlite3_reset(s->insert);
    sqlite3_clear_bindings(s->insert);
    if (rc == SQLITE_DONE) {
        if (sqlite3_changes(s->to) > 0)
            s->kept++;
        return 0;
    }
    if ((rc & 0xff) == SQLITE_CONSTRAINT || (rc & 0xff) == SQLITE_MISMATCH) {
        s->lost++; /* it is no row of ours any more */
        return 0;
    }
    return records_sqlite_fail(s->to, rc, s->path, e, "rebuild");
}

/* Walks from `*last` on (or back, down to `stop`) until the end or the damage. *damaged tells which. */
static int walk(struct salvage *s, bool back, sqlite3_int64 stop, sqlite3_int64 *last, bool *damaged, struct err *e)
{
    sqlite3_stmt *st = NULL;
    char *sql = sqlite3_mprintf("SELECT rowid,%s FROM %s WHERE rowid > ?1 ORDER BY rowid%s", s->columns, s->table,
                                back ? " DESC" : "");
    if (!sql)
        return err_nomem(e);
    int rc = sqlite3_prepare_v2(s->from, sql, -1, &st, NULL), fail = 0;
    sqlite3_free(sql);
    if (rc == SQLITE_OK)
        sqlite3_bind_int64(st, 1, stop);
    bool first = true;
    uint64_t rows = 0;
    while (rc == SQLITE_OK && !fail && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        sqlite3_int64 id = sqlite3_column_int64(st, 0);
        if (!first && (back ? id >= *last : id <= *last)) {
            rc = SQLITE_CORRUPT; /* out of order: the pages are not what they say */
            break;
        }
        first = false;
        *last = id;
        fail = copy_row(s, st, e);
        rc = ++rows < ROWS_MAX ? SQLITE_OK : SQLITE_CORRUPT;
    }
    sqlite3_finalize(st);
    if ((rc & 0xff) == SQLITE_NOMEM)
        return err_nomem(e);
    *damaged = rc != SQLITE_DONE;
    return fail;
}

/* Rows between the two walks, one by one, as the index names them. */
static int probe_between(struct salvage *s, const char *index, sqlite3_int64 lo, sqlite3_int64 hi, struct err *e)
{
    sqlite3_stmt *list = NULL, *row = NULL;
    char *sql = sqlite3_mprintf("SELECT rowid FROM %s INDEXED BY %s WHERE rowid > %lld AND rowid < %lld", s->table,
                                index, lo, hi);
    char *one = sqlite3_mprintf("SELECT rowid,%s FROM %s WHERE rowid=?1", s->columns, s->table);
    int rc = sql && one ? sqlite3_prepare_v2(s->from, sql, -1, &list, NULL) : SQLITE_NOMEM, fail = 0;
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(s->from, one, -1, &row, NULL);
    uint64_t rows = 0;
    while (rc == SQLITE_OK && !fail && (rc = sqlite3_step(list)) == SQLITE_ROW) {
        sqlite3_bind_int64(row, 1, sqlite3_column_int64(list, 0));
        if (sqlite3_step(row) == SQLITE_ROW)
            fail = copy_row(s, row, e);
        else
            s->lost++;
        sqlite3_reset(row);
        rc = ++rows < ROWS_MAX ? SQLITE_OK : SQLITE_CORRUPT;
    }
    if (!fail && rc != SQLITE_DONE)
        s->unsure = true;
    sqlite3_finalize(list);
    sqlite3_finalize(row);
    sqlite3_free(sql);
    sqlite3_free(one);
    return fail;
}

static int copy_rows(struct salvage *s, const struct table *t, struct err *e)
{
    sqlite3_int64 lo = INT64_MIN, hi = INT64_MAX;
    bool damaged;
    int rc = walk(s, false, INT64_MIN, &lo, &damaged, e);
    if (rc < 0 || !damaged)
        return rc;
    if ((rc = walk(s, true, lo, &hi, &damaged, e)) < 0 || !damaged)
        return rc;
    if (t->index)
        return probe_between(s, t->index, lo, hi, e);
    s->unsure = true;
    return 0;
}

static int copy_table(struct salvage *s, const struct table *t, struct err *e)
{
    s->table = t->name;
    int rc = common_columns(s, e);
    if (rc < 0)
        return rc;
    if (s->n == 0) {
        s->unsure = true; /* the table itself cannot be found */
        return 0;
    }
    char *sql = sqlite3_mprintf("INSERT OR IGNORE INTO %s(%s) VALUES(%s)", t->name, s->columns, s->marks);
    rc = sql ? sqlite3_prepare_v2(s->to, sql, -1, &s->insert, NULL) : SQLITE_NOMEM;
    sqlite3_free(sql);
    if (rc != SQLITE_OK)
        return records_sqlite_fail(s->to, rc, s->path, e, "rebuild");
    rc = copy_rows(s, t, e);
    sqlite3_finalize(s->insert);
    s->insert = NULL;
    return rc;
}

static int fill(struct salvage *s, unsigned version, struct err *e)
{
    int rc = records_exec(s->to, s->path, "PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL;", e, "set up");
    if (rc < 0 || (rc = records_schema_create(s->to, s->path, version, e)) < 0 ||
        (rc = records_exec(s->to, s->path, "BEGIN", e, "rebuild")) < 0)
        return rc;
    for (size_t i = 0; rc >= 0 && s->from && i < sizeof tables / sizeof *tables; i++)
        rc = copy_table(s, &tables[i], e);
    if (rc < 0 || (rc = records_exec(s->to, s->path, "COMMIT", e, "rebuild")) < 0)
        return rc;
    return records_exec(s->to, s->path, "PRAGMA wal_checkpoint(TRUNCATE)", e, "rebuild");
}

static void remove_salvage(const char *path)
{
    char p[PATH_MAX + 64];
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        snprintf(p, sizeof p, "%s%s", path, suffixes[i]);
        unlink(p);
    }
}

static int make_salvage(struct salvage *s, const struct records *r, struct err *e)
{
    remove_salvage(s->path);
    CLEANUP_CLOSE int fd = open(s->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot make %s", s->path);
    int rc = records_connect(&s->to, s->path, e);
    if (rc < 0)
        return rc;
    struct stat st; /* of an empty file SQLite would remove the log, which may be wanted for a closer look */
    if (stat(r->path, &st) < 0 || st.st_size == 0 || records_connect(&s->from, r->path, NULL) < 0)
        s->from = NULL;
    rc = fill(s, r->schema->version, e);
    /* Nothing of the new one may stay in a log; nothing of the old one's log may be folded in. */
    sqlite3_db_config(s->to, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    if (sqlite3_close(s->to) != SQLITE_OK && rc >= 0)
        rc = err_set(e, ERR_GENERIC, EBUSY, "cannot close %s", s->path);
    sqlite3_close(s->from);
    /* The descriptor of our own was only for the mode; its sync covers the file whoever wrote it. */
    if (rc >= 0 && fsync(fd) < 0)
        rc = err_set(e, ERR_GENERIC, errno, "cannot write %s", s->path);
    return rc;
}

static int rename_in(const char *dir, const char *from, const char *to, struct err *e)
{
    char a[PATH_MAX + 64], b[PATH_MAX + 64];
    snprintf(a, sizeof a, "%s/%s", dir, from);
    snprintf(b, sizeof b, "%s/%s", dir, to);
    if (rename(a, b) < 0 && errno != ENOENT)
        return err_set(e, ERR_GENERIC, errno, "cannot rename %s to %s", a, to);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names end with the time: all but the newest few go. Best effort. */
static void drop_old_kept(const char *dir)
{
    CLEANUP_CLOSEDIR DIR *d = opendir(dir);
    char *names[256];
    size_t n = 0;
    struct dirent *de;
    while (d && n < 256 && (de = readdir(d))) {
        size_t len = strlen(de->d_name);
        if (strncmp(de->d_name, CORRUPT, strlen(CORRUPT)) != 0 ||
            (len > 4 && strcmp(de->d_name + len - 4, "-wal") == 0))
            continue;
        char *name = strdup(de->d_name);
        if (name)
            names[n++] = name;
    }
    qsort(names, n, sizeof *names, by_name);
    for (size_t i = 0; i < n; i++) {
        if (i + RECORDS_CORRUPT_KEPT < n) {
            char p[PATH_MAX + 300];
            snprintf(p, sizeof p, "%s/%s", dir, names[i]);
            remove_salvage(p);
        }
        free(names[i]);
    }
}

int records_finish_swap(const char *dir, bool *done, char *kept, size_t cap, struct err *e)
{
    char path[PATH_MAX + 64], aside[64], log[80], stamp[TIME_STAMP];
    struct stat st;
    *done = false;
    snprintf(path, sizeof path, "%s/" REBUILT, dir);
    if (stat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_set(e, ERR_GENERIC, errno, "cannot look at %s", path);
    snprintf(aside, sizeof aside, CORRUPT "%s-%06ld", time_stamp(timespec_ns(st.st_mtim), stamp),
             st.st_mtim.tv_nsec / 1000);
    snprintf(log, sizeof log, "%s-wal", aside);
    snprintf(kept, cap, "%s/%s", dir, aside);
    snprintf(path, sizeof path, "%s/" RECORDS_DB "-wal", dir);
    if (stat(path, &st) == 0 && st.st_size == 0)
        unlink(path);
    int rc = rename_in(dir, RECORDS_DB "-wal", log, e);
    if (rc < 0)
        return rc;
    crash_point("records-log-aside");
    if ((rc = rename_in(dir, RECORDS_DB, aside, e)) < 0)
        return rc;
    crash_point("records-aside");
    snprintf(path, sizeof path, "%s/" RECORDS_DB "-shm", dir);
    unlink(path);
    if ((rc = records_sync_dir(dir, e)) < 0 || (rc = rename_in(dir, REBUILT, RECORDS_DB, e)) < 0 ||
        (rc = records_sync_dir(dir, e)) < 0)
        return rc;
    crash_point("records-swapped");
    drop_old_kept(dir);
    *done = true;
    return 0;
}

int records_salvage(struct records *r, const char *why, struct records_news *news, struct err *e)
{
    char path[PATH_MAX + 64], kept[PATH_MAX + 64], reason[200];
    bool done;
    snprintf(reason, sizeof reason, "%s", why); /* it may be text of the connection that is closed */
    snprintf(path, sizeof path, "%s/" SALVAGE, r->dir);
    struct salvage s = {.path = path};
    int rc = make_salvage(&s, r, e);
    if (rc < 0) {
        remove_salvage(path);
        return err_wrap(e, "the records are damaged (%s) and cannot be rebuilt", reason);
    }
    crash_point("records-salvaged");
    if ((rc = rename_in(r->dir, SALVAGE, "records.db.rebuilt", e)) < 0 || (rc = records_sync_dir(r->dir, e)) < 0)
        return rc;
    remove_salvage(path); /* only its log's index can be left */
    crash_point("records-rebuilt");
    if ((rc = records_finish_swap(r->dir, &done, kept, sizeof kept, e)) < 0)
        return rc;
    news->recovered = true;
    news->created = false;
    news->lost_rows = (unsigned)(s.lost + (s.unsure && s.lost == 0));
    snprintf(news->text, sizeof news->text,
             "the records were damaged (%s): rebuilt with %llu rows, %s%llu lost; the old ones are %s", reason,
             (unsigned long long)s.kept, s.unsure ? "at least " : "", (unsigned long long)news->lost_rows, kept);
    return 0;
}
