/* SPDX-License-Identifier: GPL-2.0-or-later */
/* records.h - what the tests of the records share: a state directory of their own, rows, looking behind the scenes */
#ifndef SNAPFERRY_TESTS_UNIT_RECORDS_H
#define SNAPFERRY_TESTS_UNIT_RECORDS_H

#include "tests/unit/test.h"

#include "daemon/records/records.h"
#include "daemon/records/records-impl.h"

#include <math.h>
#include <sys/wait.h>

static char base[64], dir[128];
static struct records_news news;
static unsigned logged;
static char last_line[1536];

static inline void keep_line(enum log_level lvl, const char *line, void *arg)
{
    (void)lvl;
    (void)arg;
    logged++;
    snprintf(last_line, sizeof last_line, "%s", line);
}

/* Path of a file in the state directory; four buffers in turn. */
static inline const char *in_dir(const char *name)
{
    static char buf[4][256];
    static unsigned turn;
    char *p = buf[turn++ % 4];
    snprintf(p, sizeof buf[0], "%s/%s", dir, name);
    return p;
}

static inline struct records *open_again(void)
{
    struct records *r;
    struct err e = ERR_INIT;
    assert_ok(records_open(&r, dir, &news, &e), &e);
    return r;
}

/* A state directory that does not exist yet, for the tests that open by themselves. */
static inline void new_dir(void)
{
    static unsigned n;
    snprintf(dir, sizeof dir, "%s/state%u", base, n++);
}

static inline struct records *fresh(void)
{
    new_dir();
    return open_again();
}

static inline struct records *reopen(struct records *r)
{
    records_close(r);
    return open_again();
}

static inline void done(struct records *r)
{
    records_close(r);
}

/* As if the process had died here: nothing is flushed, the log is not folded in, the lock is gone. */
static inline void records_abandon(struct records *r)
{
    sqlite3_db_config(r->writer.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    r->counters_dirty = false;
    records_close(r);
}

/* A new row; its document is `doc` (JSON text, NULL: none). */
#define MAKE(X, STATE)                                                                                                 \
    static inline struct X make_##X(const char *id, STATE state, const char *doc) {                                    \
        struct X x;                                                                                                    \
        X##_init(&x);                                                                                                  \
        if (doc) {                                                                                                     \
            json_t *j = json_loads(doc, 0, NULL);                                                                      \
            assert_int_equal(fields_load(&X##_fields, &x, j), 0);                                                      \
            json_decref(j);                                                                                            \
            x.id = x.parent = x.volume_id = str_empty;                                                                 \
        }                                                                                                              \
        str_set(&x.id, id);                                                                                            \
        x.state = state;                                                                                               \
        return x;                                                                                                      \
    }
MAKE(operation, enum op_state)
MAKE(backup, enum backup_state)
MAKE(native_row, enum native_state)
MAKE(volume_row, enum known_state)
MAKE(job_run, enum job_state)

#define COUNT_ROWS(X)                                                                                                  \
    static inline uint64_t count_##X(struct records *r, const struct X##_filter *f)                                    \
    {                                                                                                                  \
        uint64_t n;                                                                                                    \
        struct err e = ERR_INIT;                                                                                       \
        assert_ok(X##_count(r, f, &n, &e), &e);                                                                        \
        return n;                                                                                                      \
    }
COUNT_ROWS(operation)
COUNT_ROWS(backup)
COUNT_ROWS(native_row)

static inline void exec(struct records *r, const char *sql)
{
    char *msg = NULL;
    if (sqlite3_exec(r->writer.db, sql, NULL, NULL, &msg) != SQLITE_OK)
        fail_msg("%s: %s", sql, msg);
}

static inline int64_t number(struct records *r, const char *sql)
{
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_prepare_v2(r->writer.db, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return n;
}

/* All parts, one after the other: how many rows went. */
static inline int prune_all(struct records *r, int64_t keep_s, unsigned keep_n, struct err *e)
{
    bool more = true;
    int rc = 0;
    while (more && (rc = records_prune_start(r, keep_s, keep_n, e)) > 0) {
        assert_true(records_pruning(r));
        rc = records_prune_end(r, &more, e);
        assert_false(records_committing(r));
    }
    return rc;
}

static inline int records_setup(void **state)
{
    (void)state;
    /* In memory where that is possible: thousands of syncs are made here, and counted, but not measured. */
    snprintf(base, sizeof base, "%s/snapferry-records-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    log_to(keep_line, NULL);
    return mkdtemp(base) ? 0 : -1;
}

static inline int records_teardown(void **state)
{
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s", base);
    return system(cmd) == 0 ? 0 : -1;
}

#endif
