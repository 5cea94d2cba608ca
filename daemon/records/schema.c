/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * schema.c - tables of the records, and the way from an older schema to this one
 *
 * seq is the rowid of every row: the order of creation. There are no foreign keys on
 * purpose: records are rebuilt from storage and repository in any order (RS-15), and a reference to what is not known
 * (any more) is a fact that reconcile deals with, not an error.
 *
 * Crash points: records-migrate-copied (the older database's copy is durable), records-migrate-steps (before the
 * commit), records-migrated.
 */
#include "daemon/records/records-impl.h"

#include "base/cleanup.h"
#include "base/crash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define TEXT_OF(x) #x
#define DIGITS(x) TEXT_OF(x)
#define PAGE_SQL DIGITS(COUNTERS_OF_PAGE)
#define WIDTH_SQL DIGITS(COUNTER_WIDTH)

/* The view is for people. */
#define COUNTERS_SQL                                                                                                   \
    "CREATE TABLE counter_names(n INTEGER PRIMARY KEY, name TEXT NOT NULL, labels TEXT NOT NULL) STRICT;"              \
    "CREATE TABLE counter_values(page INTEGER PRIMARY KEY, numbers TEXT NOT NULL) STRICT;"                             \
    "CREATE VIEW counters(name, labels, value) AS SELECT name, labels,"                                                \
    " CAST(substr(numbers, " WIDTH_SQL " * (n % " PAGE_SQL ") + 1, " WIDTH_SQL ") AS REAL)"                            \
    " FROM counter_names JOIN counter_values ON page = n / " PAGE_SQL ";"

#define NO_INDEX(table) "DROP INDEX IF EXISTS " table "_live;DROP INDEX IF EXISTS " table "_ended;"
#define UNFINISHED(table) "CREATE INDEX " table "_unfinished ON " table "(seq) WHERE " RECORDS_LIVE_SQL("state") ";"

/* Until schema 2 each counter was a row that was written whenever it changed, up to ninety of them for an operation;
 * and the indexes of finished and unfinished rows were slow to write. */
static const char to_schema_2[] =
    "ALTER TABLE counters RENAME TO counters_1;" COUNTERS_SQL
    "INSERT INTO counter_names SELECT row_number() OVER (ORDER BY name, labels) - 1, name, labels FROM counters_1;"
    "INSERT INTO counter_values SELECT page, group_concat(value, '') FROM"
    " (SELECT n / " PAGE_SQL " AS page, printf('%-!" WIDTH_SQL ".17g', value) AS value FROM counter_names"
    "  JOIN counters_1 USING (name, labels) ORDER BY n) GROUP BY page;"
    "DROP TABLE counters_1;" NO_INDEX("backups") NO_INDEX("operations") NO_INDEX("natives") NO_INDEX("volumes")
        NO_INDEX("jobs") UNFINISHED("backups") UNFINISHED("operations");

static const struct records_migration shipped[] = {{1, to_schema_2}};
const struct records_schema records_schema_shipped = {RECORDS_SCHEMA, shipped, sizeof shipped / sizeof *shipped};

static const char other_tables[] =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;"
    "CREATE TABLE intents(id INTEGER PRIMARY KEY, owner TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,"
    " doc TEXT NOT NULL, created_ns INTEGER NOT NULL) STRICT;"
    "CREATE INDEX intents_owner ON intents(owner);" COUNTERS_SQL
    "CREATE TABLE set_aside(n INTEGER PRIMARY KEY, kind TEXT NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL,"
    " parent TEXT NOT NULL, volume TEXT NOT NULL, state TEXT NOT NULL, doc TEXT NOT NULL, reason TEXT NOT NULL,"
    " at_ns INTEGER NOT NULL) STRICT;";

static int create_rows_table(sqlite3 *db, const char *path, const char *t, struct err *e)
{
    char *sql = sqlite3_mprintf(
        "CREATE TABLE %s(seq INTEGER PRIMARY KEY, generation INTEGER NOT NULL, id TEXT NOT NULL, parent TEXT NOT NULL,"
        " volume TEXT NOT NULL, state TEXT NOT NULL, created_ns INTEGER NOT NULL, updated_ns INTEGER NOT NULL,"
        " wake_ns INTEGER NOT NULL, doc TEXT NOT NULL) STRICT;"
        "CREATE UNIQUE INDEX %s_id ON %s(id);"
        "CREATE INDEX %s_parent ON %s(parent);"
        "CREATE INDEX %s_volume ON %s(volume);",
        t, t, t, t, t, t, t);
    if (!sql)
        return err_nomem(e);
    int rc = records_exec(db, path, sql, e, "make the tables of");
    sqlite3_free(sql);
    return rc;
}

int records_schema_index(sqlite3 *db, const char *path, struct err *e)
{
    int rc = 0;
    for (enum row_kind k = 0; rc >= 0 && k < ROW_KINDS; k++) {
        char sql[400];
        const char *t = row_types[k].table;
        snprintf(sql, sizeof sql,
                 "CREATE INDEX IF NOT EXISTS %s_finished ON %s(seq,state,updated_ns) WHERE " RECORDS_ENDED_SQL("state"),
                 t, t);
        if (row_types[k].terminal != INT_MAX)
            rc = records_exec(db, path, sql, e, "make an index of");
    }
    return rc;
}

static int set_version(sqlite3 *db, const char *path, unsigned version, struct err *e)
{
    char sql[160];
    snprintf(sql, sizeof sql,
             "INSERT INTO meta(key,value) VALUES('schema','%u') ON CONFLICT(key) DO UPDATE SET value=excluded.value",
             version);
    return records_exec(db, path, sql, e, "set the schema of");
}

int records_schema_tidy(sqlite3 *db, const char *path, struct err *e)
{
    return records_exec(db, path,
                        "DELETE FROM counter_values WHERE page NOT IN (SELECT n / " PAGE_SQL " FROM counter_names)", e,
                        "tidy the counters of");
}

int records_schema_create(sqlite3 *db, const char *path, unsigned version, struct err *e)
{
    int rc = records_exec(db, path, "BEGIN IMMEDIATE", e, "write");
    for (int k = 0; rc >= 0 && k < ROW_KINDS; k++)
        rc = create_rows_table(db, path, row_types[k].table, e);
    if (rc >= 0)
        rc = records_exec(db, path, UNFINISHED("backups") UNFINISHED("operations"), e, "make the indexes of");
    if (rc >= 0)
        rc = records_exec(db, path, other_tables, e, "make the tables of");
    if (rc >= 0)
        rc = records_schema_index(db, path, e);
    if (rc >= 0)
        rc = set_version(db, path, version, e);
    if (rc >= 0)
        rc = records_exec(db, path, "COMMIT", e, "write");
    if (rc < 0 && !sqlite3_get_autocommit(db))
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

/* A consistent copy of the database, write-ahead log included, under its own name for good. */
static int keep_copy(struct records *r, unsigned version, struct err *e)
{
    char tmp[PATH_MAX + 64], kept[PATH_MAX + 64];
    snprintf(kept, sizeof kept, "%s.v%u", r->path, version);
    snprintf(tmp, sizeof tmp, "%s.tmp", kept);
    unlink(tmp);
    /* Made here so that it is never readable by others; SQLite takes an empty file. */
    CLEANUP_CLOSE int fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot make %s", tmp);
    char *sql = sqlite3_mprintf("VACUUM INTO %Q", tmp);
    if (!sql)
        return err_nomem(e);
    int rc = records_exec(r->writer.db, r->path, sql, e, "copy");
    sqlite3_free(sql);
    if (rc >= 0 && fsync(fd) < 0)
        rc = err_set(e, ERR_GENERIC, errno, "cannot write %s", tmp);
    if (rc >= 0 && rename(tmp, kept) < 0)
        rc = err_set(e, ERR_GENERIC, errno, "cannot rename %s", tmp);
    if (rc < 0) {
        unlink(tmp);
        return rc;
    }
    return records_sync_dir(r->dir, e);
}

static const struct records_migration *step_from(const struct records_schema *s, unsigned from)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->migrations[i].from == from)
            return &s->migrations[i];
    return NULL;
}

int records_migrate(struct records *r, unsigned from, struct err *e)
{
    for (unsigned v = from; v < r->schema->version; v++)
        if (!step_from(r->schema, v))
            return err_set(e, ERR_FORMAT, ENOTSUP, "%s has schema %u, and this version knows no way from there to %u",
                           r->path, from, r->schema->version);
    int rc = keep_copy(r, from, e);
    if (rc < 0)
        return rc;
    crash_point("records-migrate-copied");
    rc = records_exec(r->writer.db, r->path, "BEGIN IMMEDIATE", e, "write");
    for (unsigned v = from; rc >= 0 && v < r->schema->version; v++) {
        const struct records_migration *m = step_from(r->schema, v);
        rc = m ? records_exec(r->writer.db, r->path, m->sql, e, "migrate") : -ENOTSUP;
    }
    if (rc >= 0)
        rc = set_version(r->writer.db, r->path, r->schema->version, e);
    if (rc >= 0) {
        crash_point("records-migrate-steps");
        rc = records_exec(r->writer.db, r->path, "COMMIT", e, "write");
    }
    if (rc < 0) {
        if (!sqlite3_get_autocommit(r->writer.db))
            sqlite3_exec(r->writer.db, "ROLLBACK", NULL, NULL, NULL);
        return rc;
    }
    crash_point("records-migrated");
    return 0;
}
