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
    sqlite3_db_config(r->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    r->counters_dirty = false;
    records_close(r);
}

static inline struct rec make_rec(const char *id, const char *state, const char *doc)
{
    struct rec r = REC_INIT;
    snprintf(r.id, sizeof r.id, "%s", id);
    snprintf(r.state, sizeof r.state, "%s", state);
    r.doc = json_loads(doc, 0, NULL);
    assert_non_null(r.doc);
    return r;
}

static inline uint64_t count(struct records *r, enum rec_kind k, const struct rec_filter *f)
{
    uint64_t n;
    struct err e = ERR_INIT;
    assert_ok(records_count(r, k, f, &n, &e), &e);
    return n;
}

static inline void exec(struct records *r, const char *sql)
{
    char *msg = NULL;
    if (sqlite3_exec(r->db, sql, NULL, NULL, &msg) != SQLITE_OK)
        fail_msg("%s: %s", sql, msg);
}

static inline int64_t number(struct records *r, const char *sql)
{
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_prepare_v2(r->db, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return n;
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
