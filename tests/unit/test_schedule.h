/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_schedule.h - a schedule with records, a configuration and a loop of its own, and what became due */
#ifndef SNAPFERRY_TESTS_UNIT_TEST_SCHEDULE_H
#define SNAPFERRY_TESTS_UNIT_TEST_SCHEDULE_H

#include "base/json.h"
#include "base/time.h"
#include "daemon/schedule/schedule.h"
#include "tests/unit/test.h"

#include <sys/stat.h>
#include <unistd.h>

#define JOB(name, on_calendar) "[job \"" name "\"]\nvolumes = /srv/a.img\non-calendar = " on_calendar "\n"

struct bench {
    char dir[64], conf[80], state[80], runtime[80];
    const char *command;
    sd_event *loop;
    struct records *records;
    struct schedule *s;
    bool systemd, note; /* note: each run is put into the records */
    unsigned n_due;
    struct {
        char job[128];
        int64_t planned_ns, at_ns;
        bool caught_up;
    } due[64];
};

static inline int64_t bench_now(void)
{
    return now_ns();
}

static inline void bench_due(const char *job, int64_t planned_ns, bool caught_up, void *arg)
{
    struct bench *b = arg;
    struct err e = ERR_INIT;
    assert_true(b->n_due < 64);
    snprintf(b->due[b->n_due].job, sizeof b->due[0].job, "%s", job);
    b->due[b->n_due].planned_ns = planned_ns;
    b->due[b->n_due].at_ns = bench_now();
    b->due[b->n_due++].caught_up = caught_up;
    if (b->note)
        assert_ok(schedule_ran(b->s, job, planned_ns, NULL, &e), &e);
}

static inline void bench_open(struct bench *b)
{
    struct err e = ERR_INIT;
    struct records_news news;
    assert_ok(sd_event_new(&b->loop), &e);
    assert_ok(records_open(&b->records, b->state, &news, &e), &e);
    struct schedule_opts o = {.loop = b->loop,
                              .records = b->records,
                              .command = b->command ? b->command : "/usr/bin/snapferry",
                              .runtime_dir = b->runtime,
                              .systemd = b->systemd,
                              .due = bench_due,
                              .arg = b};
    assert_ok(schedule_new(&b->s, &o, &e), &e);
}

static inline void bench_close(struct bench *b)
{
    schedule_free(b->s);
    records_close(b->records);
    sd_event_unref(b->loop);
}

static inline void bench_new(struct bench *b, bool systemd)
{
    *b = (struct bench){.dir = "/var/tmp/snapferry-schedule.XXXXXX", .systemd = systemd, .note = true};
    assert_non_null(mkdtemp(b->dir));
    snprintf(b->conf, sizeof b->conf, "%s/conf", b->dir);
    snprintf(b->state, sizeof b->state, "%s/state", b->dir);
    snprintf(b->runtime, sizeof b->runtime, "%s/run", b->dir);
    assert_int_equal(mkdir(b->conf, 0755) | mkdir(b->state, 0755) | mkdir(b->runtime, 0755), 0);
    bench_open(b);
}

static inline void bench_restart(struct bench *b)
{
    bench_close(b);
    bench_open(b);
}

static inline void bench_free(struct bench *b)
{
    char cmd[128];
    bench_close(b);
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
    assert_ok(schedule_apply(b->s, c, &e), &e);
    cfg_free(c);
}

static inline void bench_run(struct bench *b, int64_t ms)
{
    int64_t end = bench_now() + ms * 1000000, left;
    while ((left = end - bench_now()) > 0)
        assert_true(sd_event_run(b->loop, (uint64_t)left / 1000 + 1) >= 0);
}

/* Makes all that is remembered of a job older. */
static inline void bench_age(struct bench *b, const char *job, int64_t by_ns)
{
    static const char *const members[] = {"since_ns", "last_planned_ns", "last_run_ns"};
    struct rec r = REC_INIT;
    struct err e = ERR_INIT;
    assert_ok(records_get(b->records, REC_JOB, job, &r, &e), &e);
    for (int i = 0; i < 3; i++)
        if (jint(r.doc, members[i]))
            jset_int(r.doc, members[i], jint(r.doc, members[i]) - by_ns);
    assert_ok(records_save(b->records, REC_JOB, &r, &e), &e);
    rec_clear(&r);
}

#endif
