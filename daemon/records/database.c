/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * database.c - opening and closing the database, and what is done about damage
 *
 * Crash points: records-created (the file exists, no tables yet).
 */
#include "daemon/records/records-impl.h"

#include "base/crash.h"
#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECOVER_AGAIN_S 30 /* between attempts to replace a damaged database, when one failed */
#define SEQ_GAP 1000000    /* above the last number that is known of a damaged one */

int64_t records_check_max = RECORDS_CHECK_MAX;
bool records_volatile;

struct found {
    bool empty;       /* no tables: new, or made by a crash just after */
    unsigned version; /* of the schema */
    bool damaged;
    char why[256];
    uint64_t least; /* numbers below were given already */
};

/* First column of the first row; "" if there is none. Returns an SQLite code. */
static int one_value(sqlite3 *db, const char *sql, char *out, size_t cap)
{
    sqlite3_stmt *st = NULL;
    out[0] = '\0';
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        const char *t = (const char *)sqlite3_column_text(st, 0);
        snprintf(out, cap, "%s", t ? t : "");
    }
    sqlite3_finalize(st);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static bool parse_version(const char *text, unsigned *ret)
{
    char *end;
    errno = 0;
    unsigned long v = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || v == 0 || v > 1000000)
        return false;
    *ret = (unsigned)v;
    return true;
}

static void set_damaged(struct found *f, const char *why)
{
    f->damaged = true;
    snprintf(f->why, sizeof f->why, "%s", why);
}

/* Which schema it has, read only: nothing of a newer one may be touched. */
static int look_at_schema(struct records *r, struct found *f, struct err *e)
{
    char text[64];
    int rc = one_value(r->writer.db, "SELECT count(*) FROM sqlite_schema", text, sizeof text);
    if (rc == SQLITE_OK) {
        f->empty = strcmp(text, "0") == 0;
        if (f->empty)
            return 0;
        rc = one_value(r->writer.db, "SELECT value FROM meta WHERE key='schema'", text, sizeof text);
    }
    if (records_is_damage(r->writer.db, rc) || (rc & 0xff) == SQLITE_ERROR)
        set_damaged(f, sqlite3_errmsg(r->writer.db));
    else if (rc != SQLITE_OK)
        return records_sqlite_fail(r->writer.db, rc, r->path, e, "read");
    else if (!parse_version(text, &f->version))
        set_damaged(f, "it does not say which schema it has");
    return 0;
}

static int check_integrity(struct records *r, struct found *f, struct err *e)
{
    char text[256];
    int rc = one_value(r->writer.db, "PRAGMA integrity_check(1)", text, sizeof text);
    text[strcspn(text, "\n")] = '\0';
    if (records_is_damage(r->writer.db, rc))
        set_damaged(f, sqlite3_errmsg(r->writer.db));
    else if (rc != SQLITE_OK)
        return records_sqlite_fail(r->writer.db, rc, r->path, e, "check");
    else if (strcmp(text, "ok") != 0)
        set_damaged(f, text);
    return 0;
}

static int set_modes(struct records *r, struct err *e)
{
    /* auto_vacuum must come before the first table; it is remembered by the file. One file on disk is enough for a
     * private copy: nobody else opens it. */
    if (r->read_only)
        return records_exec(r->writer.db, r->path, "PRAGMA locking_mode=EXCLUSIVE; PRAGMA synchronous=OFF", e,
                            "set up");
    if (records_volatile)
        return records_exec(r->writer.db, r->path,
                            "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF;"
                            "PRAGMA temp_store=MEMORY",
                            e, "set up");
    return records_exec(r->writer.db, r->path,
                        "PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                        "PRAGMA wal_autocheckpoint=1000; PRAGMA journal_size_limit=4194304; PRAGMA foreign_keys=ON;"
                        "PRAGMA temp_store=MEMORY; PRAGMA cell_size_check=ON",
                        e, "set up");
}

/* A new database counts from the seconds of today, so that what a re-installed node makes is younger than what it finds
 * on its storage (RS-15); from there on the clock does not matter. */
static uint64_t seq_seed(void)
{
    int64_t s = records_clock() / NS_PER_S;
    return s > 0 ? (uint64_t)s : 1;
}

uint64_t records_meta_number(struct records *r, const char *key)
{
    char sql[96], text[64];
    snprintf(sql, sizeof sql, "SELECT value FROM meta WHERE key='%s'", key);
    return one_value(r->writer.db, sql, text, sizeof text) == SQLITE_OK ? strtoull(text, NULL, 10) : 0;
}

/* Number and time at which these records began. A database of an earlier version does not have them: below the first
 * number that is still in it. Without room they are found again by the next start. */
static void load_beginning(struct records *r)
{
    char text[64], sql[200];
    uint64_t first = 0;
    struct err e = ERR_INIT;
    r->first_seq = records_meta_number(r, "first");
    r->began_ns = (int64_t)records_meta_number(r, "began");
    for (int k = 0; !r->first_seq && k < ROW_KINDS; k++) {
        snprintf(sql, sizeof sql, "SELECT min(seq) FROM %s", row_types[k].table);
        const uint64_t m = one_value(r->writer.db, sql, text, sizeof text) == SQLITE_OK ? strtoull(text, NULL, 10) : 0;
        first = m && (!first || m < first) ? m : first;
    }
    if (r->first_seq || r->read_only)
        return;
    r->first_seq = first ? first : r->next_seq;
    r->began_ns = first ? 0 : records_clock();
    snprintf(sql, sizeof sql,
             "INSERT INTO meta(key,value) VALUES('first','%llu'),('began','%lld') "
             "ON CONFLICT(key) DO UPDATE SET value=excluded.value",
             (unsigned long long)r->first_seq, (long long)r->began_ns);
    if (records_exec(r->writer.db, r->path, sql, &e, "write") < 0)
        log_warning("when the records began is not kept: %s", e.msg);
}

/* The next number: what is remembered, and in any case above all there is. */
static int load_seq(struct records *r, uint64_t least, struct err *e)
{
    char text[64];
    uint64_t next = 0, max = 0;
    int rc = one_value(r->writer.db, "SELECT value FROM meta WHERE key='seq'", text, sizeof text);
    if (rc == SQLITE_OK)
        next = strtoull(text, NULL, 10);
    for (int k = 0; rc == SQLITE_OK && k <= ROW_KINDS; k++) {
        char sql[96];
        snprintf(sql, sizeof sql, "SELECT max(%s) FROM %s", k == ROW_KINDS ? "id" : "seq",
                 k == ROW_KINDS ? "intents" : row_types[k].table);
        rc = one_value(r->writer.db, sql, text, sizeof text);
        uint64_t m = strtoull(text, NULL, 10);
        max = m > max && m < INT64_MAX / 2 ? m : max;
    }
    if (rc != SQLITE_OK)
        return records_sqlite_fail(r->writer.db, rc, r->path, e, "read");
    if (next >= INT64_MAX / 2)
        next = 0;
    r->next_seq = max + 1 > next ? max + 1 : next;
    if (next == 0 && seq_seed() > r->next_seq)
        r->next_seq = seq_seed();
    if (r->next_seq < least)
        r->next_seq = least;
    r->seq_written = next;
    load_beginning(r);
    return 0;
}

/* Makes the empty file, which SQLite would make readable by others. */
static int make_file(struct records *r, struct records_news *news, struct err *e)
{
    struct stat st;
    if (stat(r->path, &st) == 0) {
        if (!S_ISREG(st.st_mode))
            return err_set(e, ERR_GENERIC, EINVAL, "%s is no regular file", r->path);
        if ((st.st_mode & 07777) != 0600 && chmod(r->path, 0600) < 0)
            return err_set(e, ERR_GENERIC, errno, "cannot make %s private", r->path);
        return 0;
    }
    int fd = open(r->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot make %s", r->path);
    close(fd);
    news->created = true;
    crash_point("records-created");
    return records_sync_dir(r->dir, e);
}

/* SQLite takes an empty file for a new database and throws its log away. */
static bool log_without_database(const struct records *r)
{
    char wal[PATH_MAX + 32];
    struct stat db, log;
    snprintf(wal, sizeof wal, "%s-wal", r->path);
    return stat(r->path, &db) == 0 && db.st_size == 0 && stat(wal, &log) == 0 && log.st_size > 32;
}

static bool exists(const struct records *r, const char *suffix)
{
    char path[PATH_MAX + 32];
    struct stat st;
    snprintf(path, sizeof path, "%s%s", r->path, suffix);
    return lstat(path, &st) == 0;
}

/* Looking made SQLite put two files beside the database. */
static int refuse_newer(struct records *r, unsigned version, bool had_log, struct err *e)
{
    char path[PATH_MAX + 32];
    records_close_database(r);
    for (int i = 0; i < 2 && !had_log; i++) {
        snprintf(path, sizeof path, "%s%s", r->path, i ? "-shm" : "-wal");
        unlink(path);
    }
    err_set(e, ERR_FORMAT, ENOTSUP, "%s was written by a newer snapferry (schema %u, this one knows %u)", r->path,
            version, r->schema->version);
    return err_hint(e,
                    "install the newer version again, or move %s away: native snapshots and backups are then found"
                    " again from storage and repository",
                    r->path);
}

/* The damaged one is set aside; an empty one takes its place. What can be read of it is its last number. */
static int open_replaced(struct records *r, struct found *f, struct records_news *news, struct err *e)
{
    char text[64] = "";
    if (r->writer.db &&
        one_value(r->writer.db, "SELECT value FROM meta WHERE key='seq'", text, sizeof text) == SQLITE_OK) {
        uint64_t n = strtoull(text, NULL, 10);
        f->least = n && n < INT64_MAX / 2 ? n + SEQ_GAP : 0;
    }
    records_close_database(r);
    image_free(&r->image);
    r->noted.corrupt = false;
    int rc = records_replace(r, f->why, news, e);
    if (rc < 0 || (rc = records_connect(&r->writer.db, r->path, e)) < 0 || (rc = set_modes(r, e)) < 0)
        return rc;
    return load_seq(r, f->least, e);
}

/* The connection that rows are read with while a commit is under way. A private copy has one connection only. */
static int open_reader(struct records *r, struct err *e)
{
    const bool alone = r->read_only || records_volatile;
    int rc = alone ? 0 : records_connect(&r->reader.db, r->path, e);
    return rc < 0 || alone
               ? rc
               : records_exec(r->reader.db, r->path,
                              "PRAGMA query_only=ON; PRAGMA temp_store=MEMORY; PRAGMA cell_size_check=ON", e, "set up");
}

static int open_good(struct records *r, const struct found *f, struct records_news *news, struct err *e)
{
    int rc = set_modes(r, e);
    if (rc < 0)
        return rc;
    if (f->empty) {
        if ((rc = records_schema_create(r->writer.db, r->path, r->schema->version, e)) < 0)
            return rc;
        news->created = true;
    } else if (f->version < r->schema->version) {
        if ((rc = records_migrate(r, f->version, e)) < 0)
            return rc;
        news->migrated = true;
        snprintf(news->text, sizeof news->text, "the records were migrated from schema %u to %u; %s.v%u is the old one",
                 f->version, r->schema->version, r->path, f->version);
    }
    struct err why = ERR_INIT;
    if (!r->read_only && records_schema_index(r->writer.db, r->path, &why) < 0)
        log_warning("lists of finished operations are slower: %s", why.msg);
    why.msg[0] = '\0';
    if (!r->read_only && records_schema_tidy(r->writer.db, r->path, &why) < 0)
        log_warning("%s", why.msg);
    return load_seq(r, 0, e);
}

/* A copy for reading is not repaired: the daemon does that to the original. */
static int refuse_damaged(const struct records *r, const struct found *f, struct err *e)
{
    err_set(e, ERR_DAMAGE, EBADMSG, "the records are damaged: %s", f->why);
    (void)r;
    return err_hint(e, "snapferryd sets them aside and rebuilds them when it starts");
}

/* A large one is checked while it is in use. */
static bool is_small(const struct records *r)
{
    struct stat st;
    return stat(r->path, &st) == 0 && st.st_size <= records_check_max;
}

/* Whether tables and columns have their names: damage may lie there, too. */
static int check_names(struct records *r, struct found *f, struct err *e)
{
    static const char *const others[] = {
        "SELECT key,value FROM meta LIMIT 0", "SELECT id,owner,kind,name,doc,created_ns FROM intents LIMIT 0",
        "SELECT n,name,labels FROM counter_names LIMIT 0", "SELECT page,numbers FROM counter_values LIMIT 0",
        ("SELECT n,kind,seq,id,parent,volume,state,doc,reason,at_ns FROM set_aside "
         "LIMIT 0")};
    char sql[200], text[8];
    for (unsigned i = 0; !f->damaged && i < ROW_KINDS + sizeof others / sizeof *others; i++) {
        if (i < ROW_KINDS)
            snprintf(sql, sizeof sql, "SELECT " ROW_COLUMNS " FROM %s LIMIT 0", row_types[i].table);
        int rc = one_value(r->writer.db, i < ROW_KINDS ? sql : others[i - ROW_KINDS], text, sizeof text);
        if (records_is_damage(r->writer.db, rc) || (rc & 0xff) == SQLITE_ERROR)
            set_damaged(f, sqlite3_errmsg(r->writer.db));
        else if (rc != SQLITE_OK)
            return records_sqlite_fail(r->writer.db, rc, r->path, e, "read");
    }
    return 0;
}

static int look_for_damage(struct records *r, bool check, struct found *f, struct err *e)
{
    if (f->damaged || f->empty || !check || records_volatile)
        return 0;
    int rc = f->version == r->schema->version ? check_names(r, f, e) : 0;
    return rc < 0 || f->damaged || !is_small(r) ? rc : check_integrity(r, f, e);
}

/* The rows that are kept in memory; what they lie on is read, and so checked. */
static int load(struct records *r, struct found *f, struct err *e)
{
    struct err why = ERR_INIT;
    int rc = records_load(r, &why);
    if (rc >= 0)
        rc = records_histograms_load(r, &why);
    if (rc < 0 && r->noted.corrupt) {
        set_damaged(f, why.msg);
        return 0;
    }
    if (rc < 0 && e)
        *e = why;
    return rc;
}

/* first: at start; else memory has what is to be in it. */
int records_open_database(struct records *r, bool first, struct records_news *news, struct err *e)
{
    struct found f = {0};
    bool swapped, had_log = exists(r, "-wal");
    char kept[PATH_MAX + 64] = "";
    int rc = records_finish_swap(r->dir, &swapped, kept, sizeof kept, e);
    if (rc < 0 || (rc = make_file(r, news, e)) < 0)
        return rc;
    if (log_without_database(r))
        set_damaged(&f, "it is empty, and its log is not");
    else if ((rc = records_connect(&r->writer.db, r->path, e)) < 0 || (rc = look_at_schema(r, &f, e)) < 0)
        return rc;
    if (!f.damaged && f.version > r->schema->version)
        return refuse_newer(r, f.version, had_log, e);
    if ((rc = look_for_damage(r, first, &f, e)) < 0)
        return rc;
    if (!f.damaged && (rc = open_good(r, &f, news, e)) < 0)
        return rc;
    if (!f.damaged && first && (rc = load(r, &f, e)) < 0)
        return rc;
    if (f.damaged && (rc = r->read_only ? refuse_damaged(r, &f, e) : open_replaced(r, &f, news, e)) < 0)
        return rc;
    if (swapped && !news->recovered) {
        news->recovered = true;
        news->created = false;
        snprintf(news->text, sizeof news->text, "the records were corrupt and are set aside as %s", kept);
    }
    if ((rc = open_reader(r, e)) < 0)
        return rc;
    /* From now on the log is folded into the database when it is closed. */
    sqlite3_db_config(r->writer.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    if (first && !r->read_only && !is_small(r))
        records_integrity_start(r);
    return 0;
}

void records_close_database(struct records *r)
{
    records_integrity_stop(r);
    records_disconnect(&r->reader); /* the last one folds the log in */
    records_disconnect(&r->writer);
}

int records_recover(struct records *r, struct err *e)
{
    struct records_news news = {0};
    struct err first = ERR_INIT;
    struct counted_list written;
    if (r->read_only)
        return err_set(e, ERR_DAMAGE, EBADMSG, "the copy of the records is damaged");
    r->recover_after = mono_ns() + RECOVER_AGAIN_S * NS_PER_S;
    /* Closing must not fold a log into a damaged database. */
    if (r->writer.db)
        sqlite3_db_config(r->writer.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    records_close_database(r);
    uint64_t next = r->next_seq;
    int rc = records_replace(r, "damage was met while working", &news, &first);
    image_forget_recent(&r->image); /* the new database has only what was in memory for good */
    if (rc >= 0)
        rc = records_open_database(r, false, &news, &first);
    r->next_seq = r->next_seq > next ? r->next_seq : next;
    if (rc < 0) {
        r->noted.write_errors++;
        r->noted.degraded = true;
        r->noted.sys = first.sys;
        if (!r->writer.db && records_connect(&r->writer.db, r->path, NULL) < 0)
            log_line(LOG_LVL_ERROR, "the records cannot be opened again: %s", first.msg);
        if (e)
            *e = first;
        return err_wrap(e, "the records are damaged and could not be replaced");
    }
    r->noted.corrupt = false;
    r->recover_after = 0;
    r->recoveries++;
    if (records_counters_take(r, false, &written, NULL) == 0)
        records_counters_ended(r, &written, true, 0);
    log_line(LOG_LVL_ERROR, "%s", news.text);
    return 0;
}

unsigned records_recoveries(const struct records *r)
{
    return r->recoveries;
}
