/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * records_db.c - opening and closing the records, the lock of the one writer, recovery while running
 *
 * Crash points: records-created (the file exists, no tables yet).
 */
#include "daemon/records/records-impl.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define BUSY_MS 2000   /* how long somebody with sqlite3(1) may make the daemon wait */
#define LOCK_TRIES 100 /* times LOCK_PAUSE_US: how long a dead daemon's children may hold its lock */
#define LOCK_PAUSE_US 50000
#define RECOVER_AGAIN_S 30      /* between attempts to rebuild, when one failed */
#define SEQ_GAP_SALVAGE 1000000 /* above what was found: the newest rows may be among the lost */

int records_exec(sqlite3 *db, const char *path, const char *sql, struct err *e, const char *what)
{
    int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : records_sqlite_fail(db, rc, path, e, what);
}

int records_sync_dir(const char *dir, struct err *e)
{
    CLEANUP_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot sync the directory %s", dir);
    return 0;
}

int records_connect(sqlite3 **ret, const char *path, struct err *e)
{
    sqlite3 *db = NULL;
    int rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
    if (rc != SQLITE_OK) {
        int fail = records_sqlite_fail(db, rc, path, e, "open");
        sqlite3_close(db);
        return fail;
    }
    sqlite3_busy_timeout(db, BUSY_MS);
    sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 64 << 20);
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    *ret = db;
    return 0;
}

/* ---- the state directory and its lock ---- */

/* Makes the directory and its parents; the last one is ours alone. */
static int make_dir(const char *dir, struct err *e)
{
    char p[PATH_MAX];
    if (snprintf(p, sizeof p, "%s", dir) >= (int)sizeof p || !p[0])
        return err_set(e, ERR_USAGE, EINVAL, "\"%s\" is no state directory", dir);
    for (char *s = p + 1; (s = strchr(s, '/')); s++) {
        *s = '\0';
        if (mkdir(p, 0755) < 0 && errno != EEXIST)
            return err_set(e, ERR_GENERIC, errno, "cannot make the directory %s", p);
        *s = '/';
    }
    if (mkdir(p, 0700) < 0 && errno != EEXIST)
        return err_set(e, ERR_GENERIC, errno, "cannot make the state directory %s", p);
    struct stat st;
    if (stat(p, &st) < 0 || !S_ISDIR(st.st_mode))
        return err_set(e, ERR_GENERIC, ENOTDIR, "the state directory %s cannot be used", p);
    if (st.st_mode & 0022)
        log_warning("the state directory %s can be written by others than its owner", p);
    return 0;
}

static int take_lock(struct records *r, struct err *e)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/records.lock", r->dir);
    r->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (r->lock_fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot open %s", path);
    for (unsigned tries = 0; flock(r->lock_fd, LOCK_EX | LOCK_NB) < 0; tries++) {
        if (errno == EINTR)
            continue;
        if (errno != EWOULDBLOCK)
            return err_set(e, ERR_GENERIC, errno, "cannot lock %s", path);
        char holder[24] = "";
        ssize_t n = pread(r->lock_fd, holder, sizeof holder - 1, 0);
        holder[n > 0 ? strspn(holder, "0123456789") : 0] = '\0';
        /* A daemon that was killed while it forked leaves the lock to a child that is about to end or to close it. */
        long pid = strtol(holder, NULL, 10);
        if (pid > 0 && kill((pid_t)pid, 0) < 0 && errno == ESRCH && tries < LOCK_TRIES) {
            usleep(LOCK_PAUSE_US);
            continue;
        }
        err_set(e, ERR_BUSY, EBUSY, "the records in %s are held by another process%s%s", r->dir,
                holder[0] ? ", number " : "", holder);
        return err_hint(e, "one snapferryd at a time may use a state directory");
    }
    /* For the other one's message only: a failure to write it harms nothing. */
    char me[24];
    int n = snprintf(me, sizeof me, "%ld\n", (long)getpid());
    if (ftruncate(r->lock_fd, 0) < 0 || pwrite(r->lock_fd, me, (size_t)n, 0) < 0)
        log_debug("cannot write %s", path);
    return 0;
}

/* ---- the database ---- */

struct found {
    bool empty;       /* no tables: new, or made by a crash just after */
    unsigned version; /* of the schema */
    bool damaged;
    char why[256];
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

static bool is_damage(int rc)
{
    return (rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB;
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
    int rc = one_value(r->db, "SELECT count(*) FROM sqlite_schema", text, sizeof text);
    if (rc == SQLITE_OK) {
        f->empty = strcmp(text, "0") == 0;
        if (f->empty)
            return 0;
        rc = one_value(r->db, "SELECT value FROM meta WHERE key='schema'", text, sizeof text);
    }
    if (is_damage(rc) || (rc & 0xff) == SQLITE_ERROR)
        set_damaged(f, sqlite3_errmsg(r->db));
    else if (rc != SQLITE_OK)
        return records_sqlite_fail(r->db, rc, r->path, e, "read");
    else if (!parse_version(text, &f->version))
        set_damaged(f, "it does not say which schema it has");
    return 0;
}

static int check_integrity(struct records *r, struct found *f, struct err *e)
{
    char text[256];
    int rc = one_value(r->db, "PRAGMA integrity_check(1)", text, sizeof text);
    text[strcspn(text, "\n")] = '\0';
    if (is_damage(rc))
        set_damaged(f, sqlite3_errmsg(r->db));
    else if (rc != SQLITE_OK)
        return records_sqlite_fail(r->db, rc, r->path, e, "check");
    else if (strcmp(text, "ok") != 0)
        set_damaged(f, text);
    return 0;
}

static int set_modes(struct records *r, struct err *e)
{
    /* auto_vacuum must come before the first table; it is remembered by the file. One file on disk is enough for a
     * private copy: nobody else opens it. */
    if (r->read_only)
        return records_exec(r->db, r->path, "PRAGMA locking_mode=EXCLUSIVE; PRAGMA synchronous=OFF", e, "set up");
    return records_exec(r->db, r->path,
                        "PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                        "PRAGMA wal_autocheckpoint=500; PRAGMA journal_size_limit=4194304; PRAGMA foreign_keys=ON;"
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

/* The next number: what is remembered, and in any case above all there is. */
static int load_seq(struct records *r, uint64_t gap, struct err *e)
{
    char text[64];
    uint64_t next = 0, max = 0;
    int rc = one_value(r->db, "SELECT value FROM meta WHERE key='seq'", text, sizeof text);
    if (rc == SQLITE_OK)
        next = strtoull(text, NULL, 10);
    for (int k = 0; rc == SQLITE_OK && k <= REC_KINDS; k++) {
        char sql[96];
        snprintf(sql, sizeof sql, "SELECT max(%s) FROM %s", k == REC_KINDS ? "id" : "seq",
                 k == REC_KINDS ? "intents" : records_tables[k]);
        rc = one_value(r->db, sql, text, sizeof text);
        uint64_t m = strtoull(text, NULL, 10);
        max = m > max && m < INT64_MAX / 2 ? m : max;
    }
    if (rc != SQLITE_OK)
        return records_sqlite_fail(r->db, rc, r->path, e, "read");
    if (next >= INT64_MAX / 2)
        next = 0;
    r->next_seq = max + 1 > next ? max + 1 : next;
    if (next == 0 && seq_seed() > r->next_seq)
        r->next_seq = seq_seed();
    r->next_seq += gap;
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

static int open_salvaged(struct records *r, const char *why, struct records_news *news, struct err *e)
{
    records_close_database(r);
    int rc = records_salvage(r, why, news, e);
    if (rc < 0 || (rc = records_connect(&r->db, r->path, e)) < 0 || (rc = set_modes(r, e)) < 0)
        return rc;
    return load_seq(r, SEQ_GAP_SALVAGE, e);
}

static int open_good(struct records *r, struct found *f, struct records_news *news, struct err *e)
{
    int rc = set_modes(r, e);
    if (rc < 0)
        return rc;
    if (f->empty) {
        if ((rc = records_schema_create(r->db, r->path, r->schema->version, e)) < 0)
            return rc;
        news->created = true;
    } else if (f->version < r->schema->version) {
        if ((rc = records_migrate(r, f->version, e)) < 0)
            return rc;
        news->migrated = true;
        snprintf(news->text, sizeof news->text, "the records were migrated from schema %u to %u; %s.v%u is the old one",
                 f->version, r->schema->version, r->path, f->version);
    }
    return load_seq(r, 0, e);
}

int records_open_database(struct records *r, bool check, struct records_news *news, struct err *e)
{
    struct found f = {0};
    bool swapped, had_log = exists(r, "-wal");
    char kept[PATH_MAX + 64] = "";
    int rc = records_finish_swap(r->dir, &swapped, kept, sizeof kept, e);
    if (rc < 0 || (rc = make_file(r, news, e)) < 0)
        return rc;
    if (log_without_database(r))
        set_damaged(&f, "it is empty, and its log is not");
    else if ((rc = records_connect(&r->db, r->path, e)) < 0 || (rc = look_at_schema(r, &f, e)) < 0)
        return rc;
    if (!f.damaged && f.version > r->schema->version)
        return refuse_newer(r, f.version, had_log, e);
    if (!f.damaged && check && !f.empty && (rc = check_integrity(r, &f, e)) < 0)
        return rc;
    rc = f.damaged ? open_salvaged(r, f.why, news, e) : open_good(r, &f, news, e);
    if (rc < 0)
        return rc;
    if (swapped && !news->recovered) {
        news->recovered = true;
        news->created = false;
        snprintf(news->text, sizeof news->text, "the records were damaged and have been rebuilt; the old ones are %s",
                 kept);
    }
    /* From now on the log is folded into the database when it is closed. */
    sqlite3_db_config(r->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    return 0;
}

void records_close_database(struct records *r)
{
    records_finalize(r);
    sqlite3_close(r->db);
    r->db = NULL;
}

int records_recover(struct records *r, struct err *e)
{
    struct records_news news = {0};
    struct err first = ERR_INIT;
    if (r->read_only)
        return err_set(e, ERR_DAMAGE, EBADMSG, "the copy of the records is damaged");
    r->recover_after = mono_ns() + RECOVER_AGAIN_S * NS_PER_S;
    /* Closing must not fold a log into a damaged database. */
    sqlite3_db_config(r->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    records_close_database(r);
    uint64_t next = r->next_seq;
    int rc = records_salvage(r, "damage was met while working", &news, &first);
    if (rc >= 0)
        rc = records_open_database(r, false, &news, &first);
    if (rc < 0) {
        r->write_errors++;
        r->degraded = true;
        if (!r->db && records_connect(&r->db, r->path, NULL) < 0)
            log_line(LOG_LVL_ERROR, "the records cannot be opened again: %s", first.msg);
        if (e)
            *e = first;
        return err_wrap(e, "the records are damaged and could not be rebuilt");
    }
    r->corrupt = false;
    r->recover_after = 0;
    r->recoveries++;
    r->next_seq = (r->next_seq > next ? r->next_seq : next) + SEQ_GAP_SALVAGE;
    for (size_t i = 0; i < r->counter_n; i++)
        r->counters[i]->dirty = r->counters_dirty = true;
    records_tell_all(r);
    log_line(LOG_LVL_ERROR, "%s", news.text);
    return 0;
}

unsigned records_recoveries(const struct records *r)
{
    return r->recoveries;
}

unsigned records_set_aside(const struct records *r)
{
    return r->set_aside;
}

void records_free(struct records *r)
{
    if (!r)
        return;
    records_close_database(r);
    if (r->lock_fd >= 0)
        close(r->lock_fd);
    records_counters_free(r);
    free(r);
}

static int open_locked(struct records *r, struct records_news *news, struct err *e)
{
    int rc = take_lock(r, e);
    if (rc < 0 || (rc = records_open_database(r, true, news, e)) < 0)
        return rc;
    return records_counters_load(r, e);
}

int records_open_with(struct records **ret, const char *state_dir, const struct records_schema *schema,
                      struct records_news *news, struct err *e)
{
    struct records_news unused;
    if (!news)
        news = &unused;
    *news = (struct records_news){0};
    int rc = make_dir(state_dir, e);
    if (rc < 0)
        return rc;
    struct records *r = calloc(1, sizeof *r);
    if (!r)
        return err_nomem(e);
    r->lock_fd = -1;
    r->schema = schema;
    snprintf(r->dir, sizeof r->dir, "%s", state_dir);
    snprintf(r->path, sizeof r->path, "%s/%s", r->dir, RECORDS_DB);
    if ((rc = open_locked(r, news, e)) < 0) {
        records_free(r);
        return rc;
    }
    *ret = r;
    return 0;
}

int records_open(struct records **ret, const char *state_dir, struct records_news *news, struct err *e)
{
    return records_open_with(ret, state_dir, &records_schema_shipped, news, e);
}

void records_close(struct records *r)
{
    if (!r)
        return;
    struct err e = ERR_INIT;
    if (r->depth > 0) {
        r->depth = 1;
        records_rollback(r);
    }
    if (!r->read_only && !r->corrupt && r->counters_dirty && records_flush(r, &e) < 0)
        log_warning("the counters could not be saved: %s", e.msg);
    if (r->corrupt && r->db)
        sqlite3_db_config(r->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    records_free(r);
}
