/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * replace.c - a new database in the place of a damaged one
 *
 * The new one is built beside the old one as records.db.new of what is in memory: nothing at start, and while the
 * daemon runs all that is not finished. It is made durable and renamed to records.db.rebuilt: from then on the change
 * is decided, and every opening finishes it. The old database and its log are kept as records.db.corrupt-TIME; TIME is
 * that of the rebuilt file, so that a swap which is finished later uses the same name. What else was in it is found
 * again from storage and repository.
 *
 * Crash points: records-new (the new one is whole, not decided), records-rebuilt (decided), records-log-aside and
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

#define FRESH "records.db.new"
#define REBUILT "records.db.rebuilt"
#define CORRUPT "records.db.corrupt-"

static void remove_database(const char *path)
{
    char p[PATH_MAX + 300];
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        snprintf(p, sizeof p, "%s%s", path, suffixes[i]);
        unlink(p);
    }
}

/* Into the database of the writing connection, which is the new one. Counters count as written when it is in place. */
static int fill(struct records *r, const char *path, struct err *e)
{
    struct counted_list counters;
    int rc = records_exec(r->writer.db, path, "PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL;", e, "set up");
    if (rc < 0 || (rc = records_schema_create(r->writer.db, path, r->schema->version, e)) < 0 ||
        (rc = records_counters_take(r, true, &counters, e)) < 0)
        return rc;
    if ((rc = records_sql_begin(&r->writer, e)) >= 0)
        rc = records_sql_end(&r->writer, records_write_all(r, &counters, e), e);
    records_counters_ended(r, &counters, false, r->hold);
    if (rc < 0)
        return rc;
    return records_exec(r->writer.db, path, "PRAGMA wal_checkpoint(TRUNCATE)", e, "rebuild");
}

static int make_new(struct records *r, const char *path, struct err *e)
{
    remove_database(path);
    CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot make %s", path);
    int rc = records_connect(&r->writer.db, path, e);
    if (rc < 0)
        return rc;
    rc = fill(r, path, e);
    /* Nothing of the new one may stay in a log. */
    sqlite3_db_config(r->writer.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    records_finalize(&r->writer);
    if (sqlite3_close(r->writer.db) != SQLITE_OK && rc >= 0)
        rc = err_set(e, ERR_GENERIC, EBUSY, "cannot close %s", path);
    r->writer.db = NULL;
    /* The descriptor of our own was only for the mode; its sync covers the file whoever wrote it. */
    if (rc >= 0 && fsync(fd) < 0)
        rc = err_set(e, ERR_GENERIC, errno, "cannot write %s", path);
    return rc;
}

/* ---- the swap ---- */

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
            remove_database(p);
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

static size_t rows_in_memory(const struct records *r)
{
    size_t n = 0;
    for (enum row_kind k = 0; k < ROW_KINDS; k++)
        n += r->image.ids[k].n;
    return n;
}

int records_replace(struct records *r, const char *why, struct records_news *news, struct err *e)
{
    char path[PATH_MAX + 64], kept[PATH_MAX + 64], reason[200];
    bool done;
    snprintf(reason, sizeof reason, "%s", why); /* it may be text of the connection that is closed */
    snprintf(path, sizeof path, "%s/" FRESH, r->dir);
    int rc = make_new(r, path, e);
    if (rc < 0) {
        remove_database(path);
        return err_wrap(e, "the records are damaged (%s) and cannot be replaced", reason);
    }
    crash_point("records-new");
    if ((rc = rename_in(r->dir, FRESH, REBUILT, e)) < 0 || (rc = records_sync_dir(r->dir, e)) < 0)
        return rc;
    remove_database(path); /* only its log's index can be left */
    crash_point("records-rebuilt");
    if ((rc = records_finish_swap(r->dir, &done, kept, sizeof kept, e)) < 0)
        return rc;
    news->recovered = true;
    news->created = false;
    char some[64] = "";
    if (rows_in_memory(r))
        snprintf(some, sizeof some, ", but for %zu record%s in memory", rows_in_memory(r),
                 rows_in_memory(r) == 1 ? " that was" : "s that were");
    snprintf(news->text, sizeof news->text,
             "the records were corrupt (%s) and are set aside as %s; they are rebuilt from storage and repositories%s",
             reason, kept, some);
    return 0;
}
