/* SPDX-License-Identifier: GPL-2.0-or-later */
/* sql.c - SQLite: connections, statements, transactions of its own, and what its failures mean */
#include "daemon/records/records-impl.h"

#include "base/cleanup.h"
#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define BUSY_MS 2000          /* how long somebody with sqlite3(1) may make the daemon wait */
#define LOG_NEEDS (128 << 10) /* bytes: a log and its index */

int64_t (*records_clock)(void) = now_ns;

int records_thread(pthread_t *ret, void *(*fn)(void *), void *arg)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(ret, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

int records_sync_dir(const char *dir, struct err *e)
{
    CLEANUP_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot sync the directory %s", dir);
    return 0;
}

/* ---- failures ---- */

/* Whether there is room where the database lies: asked by a file without a name. ENOSPC, EDQUOT or 0. */
static int no_room(const char *path)
{
    struct statvfs s;
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    if (statvfs(dir, &s) == 0 && (uint64_t)s.f_bavail * s.f_frsize < LOG_NEEDS)
        return ENOSPC;
    CLEANUP_CLOSE int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    int sys = fd < 0 ? errno : posix_fallocate(fd, 0, LOG_NEEDS);
    return sys == ENOSPC || sys == EDQUOT ? sys : 0;
}

/* SQLite reports some failures for lack of space as others: its index of the log as plain I/O error, a log that cannot
 * be made as one that is not there. */
static int io_errno(sqlite3 *db, const char *path)
{
    int sys = db ? sqlite3_system_errno(db) : 0;
    if (sys == ENOSPC || sys == EDQUOT || sys == EACCES || sys == EPERM || sys == EROFS)
        return sys;
    int full = no_room(path);
    return full ? full : sys > 0 ? sys : EIO;
}

bool records_is_damage(sqlite3 *db, int rc)
{
    /* The statements are fixed, and the schema was checked when the database was opened. */
    return (rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB ||
           ((rc & 0xff) == SQLITE_ERROR && db && !strncmp(sqlite3_errmsg(db), "no such table: ", 15));
}

int records_sqlite_fail(sqlite3 *db, int rc, const char *path, struct err *e, const char *what)
{
    const char *text = db ? sqlite3_errmsg(db) : sqlite3_errstr(rc);
    switch (records_is_damage(db, rc) ? SQLITE_CORRUPT : rc & 0xff) {
    case SQLITE_FULL:
        err_set(e, ERR_NO_SPACE, ENOSPC, "cannot %s %s", what, path);
        return err_hint(e, "free space on the file system of %s; operations then resume by themselves", path);
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
        return err_set(e, ERR_GENERIC, io_errno(db, path), "cannot %s %s: %s", what, path, text);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return err_set(e, ERR_DAMAGE, EBADMSG, "cannot %s %s: it is damaged (%s)", what, path, text);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        err_set(e, ERR_BUSY, EBUSY, "cannot %s %s: another program has locked it", what, path);
        return err_hint(e, "end the program that has it open (fuser %s)", path);
    case SQLITE_READONLY:
        return err_set(e, ERR_PERMISSION, EROFS, "cannot %s %s", what, path);
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return err_set(e, ERR_PERMISSION, EACCES, "cannot %s %s", what, path);
    case SQLITE_NOMEM:
        return err_nomem(e);
    case SQLITE_TOOBIG:
        return err_set(e, ERR_GENERIC, E2BIG, "cannot %s %s", what, path);
    case SQLITE_CONSTRAINT:
        return err_set(e, ERR_GENERIC, EINVAL, "cannot %s %s: %s", what, path, text);
    default:
        return err_set(e, ERR_GENERIC, EIO, "cannot %s %s: %s", what, path, text);
    }
}

int records_fail(struct connection *c, int rc, bool writing, struct err *e, const char *what)
{
    struct err own = ERR_INIT, *x = e ? e : &own;
    int ret = records_sqlite_fail(c->db, rc, c->path, x, what);
    c->noted->corrupt |= records_is_damage(c->db, rc);
    if (writing && (rc & 0xff) != SQLITE_CONSTRAINT && (rc & 0xff) != SQLITE_TOOBIG) {
        c->noted->write_errors++;
        c->noted->degraded = true;
        c->noted->sys = x->sys;
    }
    return ret;
}

int records_refuse_read_only(const struct records *r, struct err *e)
{
    return r->read_only
               ? err_set(e, ERR_PERMISSION, EROFS, "these records are a copy for reading: only the daemon writes them")
               : 0;
}

/* ---- connections ---- */

int records_exec(sqlite3 *db, const char *path, const char *sql, struct err *e, const char *what)
{
    int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : records_sqlite_fail(db, rc, path, e, what);
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

/* ---- statements ---- */

int records_prepare(struct connection *c, sqlite3_stmt **slot, const char *sql, struct err *e)
{
    if (*slot)
        return 0;
    if (!c->db)
        return err_set(e, ERR_DAMAGE, EBADMSG, "%s is not open", c->path);
    int rc = sqlite3_prepare_v3(c->db, sql, -1, SQLITE_PREPARE_PERSISTENT, slot, NULL);
    return rc == SQLITE_OK ? 0 : records_fail(c, rc, false, e, "read");
}

static const char *const one_text[OS_N] = {
    [OS_BEGIN] = "BEGIN IMMEDIATE",
    [OS_COMMIT] = "COMMIT",
    [OS_META_SET] = "INSERT INTO meta(key,value) VALUES(?1,?2) ON CONFLICT(key) DO UPDATE SET value=excluded.value",
    [OS_INTENT_ADD] = "INSERT INTO intents(id,owner,kind,name,doc,created_ns) VALUES(?1,?2,?3,?4,?5,?6)",
    [OS_INTENT_UPDATE] = "UPDATE intents SET doc=?2 WHERE id=?1",
    [OS_INTENT_RESOLVE] = "DELETE FROM intents WHERE id=?1",
    [OS_COUNTER_NAME] = "INSERT INTO counter_names(n,name,labels) VALUES(?1,?2,?3)",
    [OS_COUNTER_DELETE] = "DELETE FROM counter_names WHERE n=?1",
    [OS_COUNTER_VALUES] = ("INSERT INTO counter_values(page,numbers) VALUES(?1,?2)"
                           " ON CONFLICT(page) DO UPDATE SET numbers=excluded.numbers"),
    [OS_ASIDE_TRIM] = "DELETE FROM set_aside WHERE n NOT IN (SELECT n FROM set_aside ORDER BY n DESC LIMIT ?1)",
};

int records_stmt(struct connection *c, enum one_stmt which, sqlite3_stmt **ret, struct err *e)
{
    int rc = records_prepare(c, &c->stmts[which], one_text[which], e);
    *ret = c->stmts[which];
    return rc;
}

/* Text before and after the name of the table. */
static const char *const kind_text[KS_N][2] = {
    [KS_BY_ID] = {"SELECT " ROW_COLUMNS " FROM ", " WHERE id=?1"},
    [KS_BY_SEQ] = {"SELECT " ROW_COLUMNS " FROM ", " WHERE seq=?1"},
    [KS_HAS_ID] = {"SELECT seq FROM ", " WHERE id=?1"},
    /* From the end of the index of ids: of one job these are the newest. */
    [KS_BY_PART] = {"SELECT seq FROM ",
                    " WHERE id>=?1 AND id<?2 AND (?3='' OR substr(id,-length(?3))=?3) AND " RECORDS_ENDED_SQL(
                        "state") " ORDER BY id DESC LIMIT ?4"},
    [KS_INSERT] = {"INSERT INTO ", "(" ROW_COLUMNS ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)"},
    /* An index is written for each column that is named, changed or not. */
    [KS_UPDATE] = {"UPDATE ", " SET generation=?2,state=?6,updated_ns=?8,wake_ns=?9,doc=?10 WHERE seq=?1 AND id=?3"},
    [KS_UPDATE_PLACE] = {"UPDATE ", " SET generation=?2,parent=?4,volume=?5,state=?6,updated_ns=?8,wake_ns=?9,doc=?10"
                                    " WHERE seq=?1 AND id=?3"},
    [KS_DELETE] = {"DELETE FROM ", " WHERE seq=?1"},
    [KS_ASIDE_COPY] = {"INSERT INTO set_aside(kind,seq,id,parent,volume,state,doc,reason,at_ns)"
                       " SELECT ?2,seq,id,parent,volume,state,doc,?3,?4 FROM ",
                       " WHERE seq=?1"},
    [KS_ASIDE_DELETE] = {"DELETE FROM ", " WHERE seq=?1"},
};

int records_kind_stmt(struct connection *c, enum row_kind k, enum kind_stmt which, sqlite3_stmt **ret, struct err *e)
{
    sqlite3_stmt **slot = &c->kind_stmts[k][which];
    int rc = 0;
    if (!*slot) {
        char sql[512];
        snprintf(sql, sizeof sql, "%s%s%s", kind_text[which][0], row_types[k].table, kind_text[which][1]);
        rc = records_prepare(c, slot, sql, e);
    }
    *ret = *slot;
    return rc;
}

static void finalize_all(sqlite3_stmt **st, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sqlite3_finalize(st[i]);
        st[i] = NULL;
    }
}

void records_finalize(struct connection *c)
{
    for (int k = 0; k < ROW_KINDS; k++) {
        finalize_all(c->kind_stmts[k], KS_N);
        finalize_all(c->lists[k], LIST_SHAPES);
    }
    finalize_all(c->stmts, OS_N);
}

void records_disconnect(struct connection *c)
{
    records_finalize(c);
    sqlite3_close(c->db);
    c->db = NULL;
}

int records_step(struct connection *c, sqlite3_stmt *st, struct err *e, const char *what)
{
    int rc = sqlite3_step(st);
    int ret = rc == SQLITE_DONE ? 0 : records_fail(c, rc == SQLITE_ROW ? SQLITE_INTERNAL : rc, true, e, what);
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    return ret;
}

int records_collect(struct connection *c, sqlite3_stmt *st, uint64_t **ret, size_t *n, struct err *e)
{
    size_t cap = 0;
    int rc, fail = 0;
    *ret = NULL;
    *n = 0;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (*n == cap) {
            cap = cap ? 2 * cap : 64;
            uint64_t *more = reallocarray(*ret, cap, sizeof **ret);
            if (!more) {
                fail = err_nomem(e);
                break;
            }
            *ret = more;
        }
        (*ret)[(*n)++] = (uint64_t)sqlite3_column_int64(st, 0);
    }
    if (!fail && rc != SQLITE_DONE)
        fail = records_fail(c, rc, false, e, "read");
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    if (fail < 0) {
        free(*ret);
        *ret = NULL;
        *n = 0;
    }
    return fail;
}

/* ---- transactions ---- */

static int run(struct connection *c, enum one_stmt which, struct err *e)
{
    sqlite3_stmt *st;
    int rc = records_stmt(c, which, &st, e);
    return rc < 0 ? rc : records_step(c, st, e, "write");
}

int records_sql_begin(struct connection *c, struct err *e)
{
    return run(c, OS_BEGIN, e);
}

int records_sql_end(struct connection *c, int rc, struct err *e)
{
    if (rc >= 0) {
        int fail = run(c, OS_COMMIT, e);
        rc = fail < 0 ? fail : rc;
    }
    /* SQLite may or may not have undone it by itself. */
    if (rc < 0 && !sqlite3_get_autocommit(c->db))
        sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
    /* On a full disk the log may be all that can be had: folded in, it can be written again from its start. */
    if (rc == -ENOSPC)
        sqlite3_wal_checkpoint_v2(c->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    return rc;
}
