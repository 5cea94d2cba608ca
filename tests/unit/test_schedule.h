/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_schedule.h - a schedule with records, a configuration and a clock that the test sets, and what it started */
#ifndef SNAPFERRY_TESTS_UNIT_TEST_SCHEDULE_H
#define SNAPFERRY_TESTS_UNIT_TEST_SCHEDULE_H

#include "base/json.h"
#include "base/time.h"
#include "daemon/schedule/schedule.h"
#include "tests/unit/test.h"

#include <sys/stat.h>
#include <unistd.h>

#define JOB(name, on_calendar) "[job \"" name "\"]\nvolumes = /srv/a.img\non-calendar = " on_calendar "\n"

struct bench_run {
    char job[64];
    int64_t planned_ns, at_ns;
    bool caught_up;
};

struct bench {
    char dir[64], conf[80], state[80];
    struct records *records;
    struct schedule *s;
    int64_t now;
    enum { NOTE, HOLD, FAIL } answer; /* to a start: it runs, no answer yet, it fails for a reason that passes */
    unsigned n_runs, cap;
    struct bench_run *runs; /* everything that was started */
    unsigned n_held;        /* the last so many have no answer */
};

static inline int64_t utc(const char *text)
{
    char rfc[40];
    int64_t ns;
    snprintf(rfc, sizeof rfc, "%.10sT%sZ", text, text + 11);
    assert_int_equal(time_parse(&ns, rfc), 0);
    return ns;
}

static inline void bench_ran(struct bench *b, const struct bench_run *r)
{
    struct err e = ERR_INIT;
    char id[96];
    snprintf(id, sizeof id, "%s-1", r->job);
    assert_ok(schedule_ran(b->s, r->job, r->planned_ns, id, NULL, b->now, &e), &e);
}

static inline void bench_fails(struct bench *b, const struct bench_run *r, bool again)
{
    struct err e = ERR_INIT, why = ERR_INIT;
    err_set(&why, ERR_MEMORY, ENOMEM, "no process");
    assert_ok(schedule_failed(b->s, r->job, r->planned_ns, &why, again, NULL, b->now, &e), &e);
}

static inline void bench_start(const char *job, int64_t planned_ns, bool caught_up, void *arg)
{
    struct bench *b = arg;
    if (b->n_runs == b->cap) {
        b->cap = b->cap ? b->cap * 2 : 64;
        b->runs = realloc(b->runs, b->cap * sizeof *b->runs);
        assert_non_null(b->runs);
    }
    struct bench_run *r = &b->runs[b->n_runs++];
    *r = (struct bench_run){.planned_ns = planned_ns, .at_ns = b->now, .caught_up = caught_up};
    snprintf(r->job, sizeof r->job, "%s", job);
    if (b->answer == NOTE)
        bench_ran(b, r);
    else if (b->answer == FAIL)
        bench_fails(b, r, true);
    else
        b->n_held++;
}

/* Answers the oldest start that has no answer. */
static inline void bench_release(struct bench *b)
{
    assert_true(b->n_held > 0);
    bench_ran(b, &b->runs[b->n_runs - b->n_held--]);
}

static inline void bench_changed(void *arg)
{
    const struct bench *b = arg;
    struct err e = ERR_INIT;
    if (records_begin(b->records, &e) < 0)
        return;
    int rc = schedule_write(b->s, &e);
    if (rc < 0)
        records_rollback(b->records);
    else if (records_commit(b->records, &e) >= 0)
        schedule_written(b->s);
}

static inline void bench_open(struct bench *b)
{
    struct err e = ERR_INIT;
    struct records_news news;
    assert_ok(records_open(&b->records, b->state, &news, &e), &e);
    const struct schedule_opts o = {.records = b->records, .start = bench_start, .changed = bench_changed, .arg = b};
    assert_ok(schedule_new(&b->s, &o, &e), &e);
    b->n_held = 0;
}

static inline void bench_close(struct bench *b)
{
    schedule_free(b->s);
    records_close(b->records);
}

static inline void bench_new(struct bench *b, const char *now)
{
    *b = (struct bench){.now = utc(now)};
    snprintf(b->dir, sizeof b->dir, "%s/snapferry-schedule.XXXXXX", access("/dev/shm", W_OK) ? "/var/tmp" : "/dev/shm");
    assert_non_null(mkdtemp(b->dir));
    snprintf(b->conf, sizeof b->conf, "%s/conf", b->dir);
    snprintf(b->state, sizeof b->state, "%s/state", b->dir);
    assert_int_equal(mkdir(b->conf, 0755) | mkdir(b->state, 0755), 0);
    bench_open(b);
}

/* The daemon ends, whatever it had begun, and starts again. */
static inline void bench_restart(struct bench *b)
{
    bench_close(b);
    bench_open(b);
}

static inline void bench_free(struct bench *b)
{
    char cmd[128];
    bench_close(b);
    free(b->runs);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", b->dir);
    assert_int_equal(system(cmd), 0);
}

static inline int bench_cfg(struct bench *b, const char *jobs, struct cfg **ret, struct err *e)
{
    char path[128];
    snprintf(path, sizeof path, "%s/snapferry.ini", b->conf);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fprintf(f,
            "[daemon]\nnode-name = node-1\n[repository \"main\"]\ntype = filesystem\npath = /srv/backup\n"
            "password-file = /etc/snapferry/main.password\n[storage-class \"images\"]\ndriver = reflink\n"
            "match = /srv/*.img\nrepository = main\n%s",
            jobs);
    assert_int_equal(fclose(f), 0);
    return cfg_load_dir(ret, b->conf, e);
}

static inline void bench_apply(struct bench *b, const char *jobs)
{
    struct cfg *c = NULL;
    struct err e = ERR_INIT;
    assert_ok(bench_cfg(b, jobs, &c, &e), &e);
    assert_ok(schedule_apply(b->s, c, b->now, &e), &e);
    cfg_free(c);
}

/* Looks whenever the schedule wants to, up to that time. */
static inline void bench_until(struct bench *b, int64_t to)
{
    for (int64_t next; (next = schedule_look(b->s, b->now)) <= to;) {
        assert_true(next >= b->now);
        b->now = next > b->now ? next : b->now + 1;
    }
    b->now = to;
    schedule_look(b->s, b->now);
}

static inline void bench_later(struct bench *b, int64_t by_ns)
{
    bench_until(b, b->now + by_ns);
}

/* The clock is another, without anybody having looked meanwhile: set, or the machine slept. */
static inline void bench_jump(struct bench *b, int64_t by_ns)
{
    b->now += by_ns;
    schedule_look(b->s, b->now);
}

static inline struct job_view bench_view(struct bench *b, const char *job)
{
    unsigned n;
    struct job_view *v = schedule_views(b->s, b->now, &n), found = {.name = NULL};
    for (unsigned i = 0; i < n; i++)
        if (!strcmp(v[i].name, job))
            found = v[i];
    assert_non_null(found.name);
    free(v);
    return found;
}

#endif
