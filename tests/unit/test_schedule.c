/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_schedule.c - jobs and the clock (CF-45): what is due, what was missed, many at once, clocks that jump, jitter,
 * daylight saving, pausing, other nodes, reload, restart, starts that fail
 *
 * The clock is the test's, nothing here waits.
 */
#include "daemon/schedule/job.h"

#include "tests/unit/test.h"
#include "tests/unit/test_schedule.h"

#define HOUR NS_PER_H
#define DAY NS_PER_DAY

/* ---- judging ---- */

static struct sched_job job(const char *on_calendar, int64_t since)
{
    struct sched_job j = {.persistent = true};
    struct err e = ERR_INIT;
    job_run_init(&j.memory);
    j.memory.since_ns = since;
    assert_ok(calendar_parse(&j.calendar, on_calendar, &e), &e);
    return j;
}

/* True if something became due, which then is taken. */
static bool due(struct sched_job *j, int64_t now)
{
    assert_false(sched_job_judge(j, now));
    bool is = j->due;
    j->due = false;
    return is;
}

static void due_once_each_time(void **state)
{
    (void)state;
    int64_t now = utc("2026-11-21 12:00:00");
    struct sched_job j = job("02:00 UTC", now);
    assert_false(due(&j, now));
    assert_int_equal(j.look_ns, utc("2026-11-22 02:00:00"));
    assert_false(due(&j, j.look_ns - 1));
    assert_true(due(&j, j.look_ns));
    assert_false(j.caught_up);
    assert_int_equal(j.planned_ns, utc("2026-11-22 02:00:00"));
    assert_int_equal(j.look_ns, utc("2026-11-23 02:00:00"));
    assert_false(due(&j, utc("2026-11-22 02:00:01"))); /* it was due already, noted or not */
    j.asked_ns = 0;
    j.memory.last_planned_ns = utc("2026-11-22 02:00:00"); /* after a restart: noted */
    assert_false(due(&j, utc("2026-11-22 02:00:01")));
    calendar_free(j.calendar);
}

static void missed_runs_are_one(void **state)
{
    (void)state;
    struct sched_job j = job("02:00 UTC", utc("2026-11-01 00:00:00"));
    j.memory.last_planned_ns = utc("2026-11-10 02:00:00");
    assert_true(due(&j, utc("2026-11-21 12:00:00")));
    assert_true(j.caught_up);
    assert_int_equal(j.planned_ns, utc("2026-11-21 02:00:00"));
    assert_int_equal(j.look_ns, utc("2026-11-22 02:00:00"));
    assert_false(due(&j, utc("2026-11-21 12:00:01")));
    /* Years of minutes are found as fast. */
    struct sched_job m = job("minutely", 1);
    assert_true(due(&m, utc("2026-11-21 12:00:30")) && m.caught_up);
    assert_int_equal(m.planned_ns, utc("2026-11-21 12:00:00"));
    calendar_free(m.calendar);
    /* Not persistent: what was missed is let go, what is due now is not, whatever was missed before. */
    calendar_free(j.calendar);
    j = job("02:00 UTC", utc("2026-11-20 00:00:00"));
    j.persistent = false;
    assert_false(due(&j, utc("2026-11-21 12:00:00")));
    assert_int_equal(j.look_ns, utc("2026-11-22 02:00:00"));
    assert_true(due(&j, utc("2026-11-23 02:00:20")));
    assert_int_equal(j.planned_ns, utc("2026-11-23 02:00:00"));
    calendar_free(j.calendar);
    /* A time that never comes. */
    struct sched_job never = job("*-02-30", 1);
    assert_false(due(&never, utc("2026-11-21 12:00:00")));
    assert_int_equal(never.look_ns, INT64_MAX);
    calendar_free(never.calendar);
}

static void jitter(void **state)
{
    (void)state;
    struct sched_job j = job("02:00 UTC", utc("2026-11-21 12:00:00"));
    j.jitter_s = 600;
    j.offset_ns = 420 * NS_PER_S;
    assert_false(due(&j, utc("2026-11-22 02:06:59")));
    assert_int_equal(j.look_ns, utc("2026-11-22 02:07:00"));
    bool is_due;
    assert_int_equal(sched_job_next(&j, utc("2026-11-22 02:06:59"), &is_due), utc("2026-11-22 02:07:00"));
    assert_false(is_due);
    assert_true(due(&j, utc("2026-11-22 02:07:00")));
    assert_false(j.caught_up);
    assert_int_equal(j.planned_ns, utc("2026-11-22 02:00:00"));
    calendar_free(j.calendar);

    /* Fixed, within bounds, and not the same for all. */
    int64_t sum = 0;
    for (int i = 0; i < 200; i++) {
        char node[32];
        snprintf(node, sizeof node, "node%d", i);
        int64_t o = sched_offset_ns(node, "nightly", 600);
        assert_in_range(o, 0, 600 * NS_PER_S);
        assert_int_equal(o, sched_offset_ns(node, "nightly", 600));
        assert_int_not_equal(o, sched_offset_ns(node, "weekly", 600));
        sum += o / 200;
    }
    assert_in_range(sum, 200 * NS_PER_S, 400 * NS_PER_S);
    assert_int_equal(sched_offset_ns("n", "j", 0), 0);
}

static void clocks_that_jump(void **state)
{
    (void)state;
    /* Back by a little after a run: it is not run again. */
    struct sched_job j = job("02:00 UTC", utc("2026-11-01 00:00:00"));
    j.memory.last_planned_ns = utc("2026-11-21 02:00:00");
    assert_false(due(&j, utc("2026-11-21 01:55:00")));
    assert_false(due(&j, utc("2026-11-21 02:00:00")));
    /* Back by years: the future that was is forgotten, or no job would run until then. */
    j.memory.last_planned_ns = utc("2031-11-21 02:00:00");
    j.memory.last_run_ns = utc("2031-11-21 02:00:05");
    assert_true(sched_job_judge(&j, utc("2026-11-21 12:00:00")));
    assert_false(j.due);
    assert_int_equal(j.look_ns, utc("2026-11-22 02:00:00"));
    assert_true(due(&j, utc("2026-11-22 02:00:00")));
    /* What became due in that future and has not been started is not due any more. */
    j.asked_ns = j.planned_ns = utc("2031-11-21 02:00:00");
    j.due = true;
    assert_true(sched_job_judge(&j, utc("2026-11-22 12:00:00")));
    assert_false(j.due);
    /* A job of each minute does not wait for an hour. */
    struct sched_job m = job("minutely", 1);
    m.memory.last_planned_ns = utc("2026-11-21 12:30:00");
    assert_true(sched_job_judge(&m, utc("2026-11-21 12:00:00")));
    assert_int_equal(m.look_ns, utc("2026-11-21 12:01:00"));
    /* Forth: missed, once. */
    j.memory.last_planned_ns = utc("2026-11-22 02:00:00");
    assert_true(due(&j, utc("2028-01-01 00:00:00")) && j.caught_up);
    assert_int_equal(j.planned_ns, utc("2027-12-31 02:00:00"));
    calendar_free(j.calendar);
    calendar_free(m.calendar);
}

static void the_clock_is_set_back(void **state)
{
    (void)state;
    struct bench b;
    bench_new(&b, "2026-11-22 12:30:00");
    bench_apply(&b, JOB("a", "hourly"));
    bench_later(&b, HOUR);
    assert_int_equal(b.n_runs, 1);
    bench_jump(&b, -DAY);
    assert_int_equal(bench_view(&b, "a").next_ns, utc("2026-11-21 14:00:00"));
    bench_later(&b, HOUR);
    assert_int_equal(b.n_runs, 2);
    assert_int_equal(b.runs[1].planned_ns, utc("2026-11-21 14:00:00"));
    bench_restart(&b); /* the records have forgotten it, too */
    bench_apply(&b, JOB("a", "hourly"));
    bench_later(&b, HOUR);
    assert_int_equal(b.n_runs, 3);
    bench_free(&b);
}

/* A run is planned for each day, for the hour that is left out too; the hour that comes twice has one. */
static void daylight_saving(void **state)
{
    (void)state;
    struct bench b;
    bench_new(&b, "2026-03-27 12:00:00");
    bench_apply(&b, JOB("night", "02:30 Europe/Berlin") JOB("half", "*:30 Europe/Berlin\npersistent = no"));
    bench_until(&b, utc("2026-03-30 12:00:00"));
    static const char *const spring[] = {"2026-03-28 01:30:00", "2026-03-29 01:00:00", "2026-03-30 00:30:00"};
    unsigned n = 0, halves = 0;
    for (unsigned i = 0; i < b.n_runs; i++) {
        halves += b.runs[i].job[0] == 'h';
        assert_false(b.runs[i].caught_up);
        if (b.runs[i].job[0] == 'n')
            assert_int_equal(b.runs[i].planned_ns, utc(spring[n++]));
    }
    assert_int_equal(n, 3);
    assert_int_equal(halves, 3 * 24 + 1); /* what is left out runs as soon as the clock has gone over it */
    b.n_runs = n = 0;
    bench_jump(&b, utc("2026-10-24 12:00:00") - b.now);
    assert_int_equal(b.n_runs, 1); /* the summer: one run of the persistent job */
    bench_until(&b, utc("2026-10-26 12:00:00"));
    for (unsigned i = 1; i < b.n_runs; i++)
        n += b.runs[i].job[0] == 'n';
    assert_int_equal(n, 2);
    assert_int_equal(b.runs[b.n_runs - 1].planned_ns % HOUR, HOUR / 2);
    bench_free(&b);
}

static void latest_events(void **state)
{
    (void)state;
    static const char *const texts[] = {"*:*:*",          "minutely", "hourly",    "daily",
                                        "Mon..Fri 02:00", "*-02-29",  "2026-01-01"};
    int64_t now = utc("2026-11-21 12:00:30");
    setenv("TZ", "UTC", 1);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct sched_job j = job(texts[i], 1);
        int64_t t = calendar_latest(j.calendar, 0, now);
        assert_true(t > 0 && t <= now);
        assert_true(calendar_next(j.calendar, t) > now);
        assert_int_equal(calendar_next(j.calendar, t - 1), t);
        assert_int_equal(calendar_latest(j.calendar, t, now), 0); /* strictly after */
        calendar_free(j.calendar);
    }
    struct sched_job j = job("2030-01-01", 1);
    assert_int_equal(calendar_latest(j.calendar, 0, now), 0);
    calendar_free(j.calendar);
}

/* What goes by at night, at weekends and between a month's first days is known at every hour, while it lasts too. */
static void intervals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *now;
        int64_t interval;
    } of[] = {
        {"Mon..Fri *-*-* *:00", "2026-11-22 10:33:00", 49 * HOUR}, /* a Sunday */
        {"Mon..Fri *-*-* *:00", "2026-11-23 00:00:00", 49 * HOUR},
        {"Mon..Fri *-*-* *:00", "2026-11-25 12:10:00", 49 * HOUR},
        {"Mon..Fri *-*-* *:00", "2026-11-27 23:59:59", 49 * HOUR},
        {"Mon..Fri *-*-* *:0/5", "2026-11-25 12:10:00", 48 * HOUR + 5 * HOUR / 60},
        {"*-*-* 11..23:00", "2026-11-22 10:33:00", 12 * HOUR},
        {"*-*-* 11..23:00", "2026-11-22 11:00:00", 12 * HOUR},
        {"*-*-* 11..23:00", "2026-11-22 23:30:00", 12 * HOUR},
        {"*-*-* 11..23:00", "2026-11-22 04:00:00", 12 * HOUR},
        {"*:0..30", "2026-11-22 04:00:00", HOUR / 2},
        {"*:0..30", "2026-11-22 04:40:00", HOUR / 2},
        {"*:*:0..30", "2026-11-22 04:00:00", 30 * NS_PER_S},
        {"*-*-1..7 *:00", "2026-11-02 09:30:00", 24 * DAY + HOUR},
        {"*-*-1..7 *:00", "2026-11-20 09:30:00", 24 * DAY + HOUR},
        {"*:*:*", "2026-11-22 10:33:00", NS_PER_S},
        {"minutely", "2026-11-22 10:33:00", HOUR / 60},
        {"hourly", "2026-11-22 10:33:00", HOUR},
        {"daily", "2026-11-22 10:33:00", DAY},
        {"weekly", "2026-11-22 10:33:00", 7 * DAY},
        {"monthly", "2026-11-22 10:33:00", 31 * DAY},
        {"yearly", "2026-11-22 10:33:00", 366 * DAY},
        {"Mon,Thu 02:00", "2026-11-22 10:33:00", 4 * DAY},
        {"2199-01-01", "2026-11-22 10:33:00", 0},
        {"*-02-30", "2026-11-22 10:33:00", 0},
        {"2026-12-*", "2026-12-30 10:00:00", DAY},
        {"2026-12-*", "2026-12-31 10:00:00", 0}, /* that was the last */
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct sched_job j = job(of[i].text, 1);
        if (calendar_interval_s(j.calendar, utc(of[i].now)) != of[i].interval / NS_PER_S)
            fail_msg("%s at %s: %lld s, not %lld", of[i].text, of[i].now,
                     (long long)calendar_interval_s(j.calendar, utc(of[i].now)),
                     (long long)(of[i].interval / NS_PER_S));
        calendar_free(j.calendar);
    }
}

/* ---- with records and a configuration ---- */

static void runs_come(void **state)
{
    (void)state;
    struct bench b;
    bench_new(&b, "2026-11-21 12:00:00");
    bench_apply(&b, JOB("each-second", "*:*:*") JOB("later", "2199-01-01") JOB("by-hand", ""));
    bench_later(&b, 3500 * NS_PER_MS);
    assert_int_equal(b.n_runs, 3);
    for (unsigned i = 0; i < b.n_runs; i++) {
        assert_string_equal(b.runs[i].job, "each-second");
        assert_false(b.runs[i].caught_up);
        assert_int_equal(b.runs[i].planned_ns, utc("2026-11-21 12:00:01") + i * NS_PER_S);
        assert_int_equal(b.runs[i].at_ns, b.runs[i].planned_ns);
    }
    struct job_view v = bench_view(&b, "each-second");
    assert_int_equal(v.interval_s, 1);
    assert_int_equal(v.last_ns, utc("2026-11-21 12:00:03"));
    assert_int_equal(v.next_ns, utc("2026-11-21 12:00:04"));
    assert_string_equal(v.last_backup, "each-second-1");
    assert_false(v.due);
    assert_int_equal(bench_view(&b, "later").next_ns, utc("2199-01-01 00:00:00"));
    v = bench_view(&b, "by-hand");
    assert_true(v.next_ns == 0 && v.last_ns == 0);
    assert_string_equal(v.idle_because, "no on-calendar");
    assert_int_equal(schedule_active(b.s), 2);
    bench_free(&b);
}

static void a_restart_catches_up_from_the_records(void **state)
{
    (void)state;
    struct bench b;
    const char *jobs = JOB("nightly", "daily") JOB("lazy", "daily\npersistent = no");
    bench_new(&b, "2026-11-21 12:00:00");
    bench_apply(&b, jobs);
    bench_later(&b, HOUR);
    assert_int_equal(b.n_runs, 0); /* nothing is missed by a job that is new */
    bench_later(&b, DAY);
    assert_int_equal(b.n_runs, 2);
    b.now += 3 * DAY;
    bench_restart(&b);
    bench_apply(&b, jobs);
    bench_later(&b, HOUR);
    assert_int_equal(b.n_runs, 3);
    assert_string_equal(b.runs[2].job, "nightly");
    assert_true(b.runs[2].caught_up);
    assert_int_equal(b.runs[2].planned_ns, utc("2026-11-25 00:00:00"));
    assert_true(bench_view(&b, "nightly").last_ns >= utc("2026-11-25 13:00:00"));
    /* Noted, so not again; not noted (the daemon died before), so again. */
    bench_restart(&b);
    bench_apply(&b, jobs);
    bench_later(&b, HOUR);
    assert_int_equal(b.n_runs, 3);
    b.now += 5 * DAY;
    b.answer = HOLD;
    for (unsigned i = 4; i <= 5; i++) {
        bench_restart(&b);
        bench_apply(&b, jobs);
        bench_later(&b, HOUR);
        assert_int_equal(b.n_runs, i);
        bench_apply(&b, jobs); /* a reload does not start it twice */
        bench_later(&b, HOUR);
        assert_int_equal(b.n_runs, i);
    }
    bench_free(&b);
}

/* A daemon that is restarted just when a job is due costs no run, of one that is not persistent either. */
static void a_restart_at_the_time(void **state)
{
    (void)state;
    struct bench b;
    const char *jobs = JOB("keen", "daily") JOB("lazy", "daily\npersistent = no");
    bench_new(&b, "2026-11-21 12:00:00");
    bench_apply(&b, jobs);
    bench_until(&b, utc("2026-11-21 23:59:58"));
    b.now = utc("2026-11-22 00:00:40");
    bench_restart(&b);
    bench_apply(&b, jobs);
    bench_later(&b, NS_PER_S);
    assert_int_equal(b.n_runs, 2);
    assert_false(b.runs[0].caught_up || b.runs[1].caught_up);
    bench_restart(&b);
    bench_apply(&b, jobs);
    bench_later(&b, HOUR);
    assert_int_equal(b.n_runs, 2);
    bench_free(&b);
}

static void by_hand_makes_up_for_it(void **state)
{
    (void)state;
    struct bench b;
    struct err e = ERR_INIT;
    bench_new(&b, "2026-11-21 12:00:00");
    bench_apply(&b, JOB("nightly", "daily"));
    b.now += 10 * DAY;
    bench_restart(&b);
    bench_apply(&b, JOB("nightly", "daily"));
    assert_true(bench_view(&b, "nightly").due);
    assert_ok(schedule_ran(b.s, "nightly", 0, "nightly-1", NULL, b.now, &e), &e);
    assert_false(bench_view(&b, "nightly").due);
    bench_later(&b, NS_PER_S);
    assert_int_equal(b.n_runs, 0);
    bench_restart(&b);
    bench_apply(&b, JOB("nightly", "daily"));
    bench_later(&b, NS_PER_S);
    assert_int_equal(b.n_runs, 0);
    assert_ok(schedule_ran(b.s, "gone from the configuration", 0, "x-1", NULL, b.now, &e), &e);
    bench_free(&b);
}

static void paused_elsewhere_and_changed(void **state)
{
    (void)state;
    struct bench b;
    bench_new(&b, "2026-11-21 12:00:00");
    bench_apply(&b, JOB("a", "*:*:*\npaused = yes") JOB("b", "*:*:*\nonly-on-node = other*")
                        JOB("c", "*:*:*\nonly-on-node = other* node-?") JOB("d", "*:*:*\nonly-on-node = !node-1"));
    bench_later(&b, 1500 * NS_PER_MS);
    assert_int_equal(b.n_runs, 1);
    assert_string_equal(b.runs[0].job, "c");
    struct job_view v = bench_view(&b, "a");
    assert_true(v.paused && v.next_ns == 0 && !v.due);
    v = bench_view(&b, "b");
    assert_true(v.elsewhere && v.next_ns == 0);
    assert_non_null(strstr(v.idle_because, "only-on-node"));
    assert_int_equal(schedule_active(b.s), 1);
    /* What was missed while it was paused, or by an older calendar, is not made up for. */
    bench_apply(&b, JOB("a", "daily") JOB("c", "daily"));
    b.now += 10 * DAY;
    bench_restart(&b);
    b.n_runs = 0;
    bench_apply(&b, JOB("a", "daily\npaused = yes") JOB("c", "weekly"));
    bench_later(&b, HOUR);
    bench_apply(&b, JOB("a", "daily") JOB("c", "weekly"));
    bench_later(&b, HOUR);
    assert_int_equal(b.n_runs, 0);
    bench_free(&b);
}

/* A wrong calendar is refused as a whole: the jobs that are there go on. */
static void a_reload_that_fails(void **state)
{
    (void)state;
    struct bench b;
    struct cfg *c = NULL;
    struct err e = ERR_INIT;
    bench_new(&b, "2026-11-21 12:00:00");
    bench_apply(&b, JOB("a", "*:*:*"));
    int rc = bench_cfg(&b, JOB("a", "*:*:61"), &c, &e);
    if (rc == 0)
        rc = schedule_apply(b.s, c, b.now, &e);
    cfg_free(c);
    assert_true(rc < 0);
    bench_later(&b, 1500 * NS_PER_MS);
    assert_int_equal(b.n_runs, 1);
    bench_free(&b);
}

/* ---- many at once ---- */

#define MANY 4900

static char *many_jobs(unsigned n, const char *on_calendar)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    for (unsigned i = 0; i < n; i++)
        fprintf(f, "[job \"job-%u\"]\nvolumes = /srv/a.img\non-calendar = %s\n", i, on_calendar);
    assert_int_equal(fclose(f), 0);
    return text;
}

/* Each of the first `n` jobs was started `times` times. */
static void each_ran(const struct bench *b, unsigned n, unsigned times)
{
    unsigned *count = calloc(n, sizeof *count);
    for (unsigned i = 0; i < b->n_runs; i++) {
        unsigned at = (unsigned)atoi(b->runs[i].job + 4);
        assert_true(at < n);
        count[at]++;
    }
    for (unsigned i = 0; i < n; i++)
        if (count[i] != times)
            fail_msg("job-%u was started %u times, not %u", i, count[i], times);
    free(count);
}

/* All are due in the same second, and a start takes 20 ms: in order, a few at a time, none twice, none lost. In the
 * middle the configuration is read again, with the schedule of each of them changed. */
static void none_is_lost_for_being_one_of_many(void **state)
{
    (void)state;
    struct bench b;
    struct err e = ERR_INIT;
    char *jobs = many_jobs(MANY, "02:00"), *changed = many_jobs(MANY, "03:00\npersistent = no");
    unsigned most = 0;
    bench_new(&b, "2026-11-21 12:00:00");
    bench_apply(&b, jobs);
    bench_until(&b, utc("2026-11-22 01:59:59"));
    assert_int_equal(b.n_runs, 0);
    b.answer = HOLD;
    b.now = utc("2026-11-22 02:00:00");
    assert_ok(records_begin(b.records, &e), &e);
    for (unsigned i = 0; i < MANY; i++) {
        schedule_look(b.s, b.now);
        most = b.n_held > most ? b.n_held : most;
        b.now += 20 * NS_PER_MS;
        bench_release(&b);
        if (i == MANY / 2) {
            assert_ok(records_commit(b.records, &e), &e);
            bench_apply(&b, changed);
            assert_ok(records_begin(b.records, &e), &e);
        }
    }
    assert_ok(records_commit(b.records, &e), &e);
    schedule_look(b.s, b.now);
    assert_int_equal(b.n_runs, MANY);
    assert_in_range(most, 2, 32);
    each_ran(&b, MANY, 1);
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(atoi(b.runs[i].job + 4), i);
        assert_int_equal(b.runs[i].planned_ns, utc("2026-11-22 02:00:00"));
        assert_false(b.runs[i].caught_up);
    }
    /* As before they are, the next hour. */
    b.answer = NOTE;
    assert_ok(records_begin(b.records, &e), &e);
    bench_until(&b, utc("2026-11-22 03:00:00"));
    assert_ok(records_commit(b.records, &e), &e);
    each_ran(&b, MANY, 2);
    free(jobs);
    free(changed);
    bench_free(&b);
}

/* The daemon dies in the middle of them: the rest follows when it is back. */
static void many_and_a_restart(void **state)
{
    (void)state;
    struct bench b;
    struct err e = ERR_INIT;
    char *jobs = many_jobs(300, "02:00");
    bench_new(&b, "2026-11-21 12:00:00");
    bench_apply(&b, jobs);
    b.now = utc("2026-11-22 02:00:00");
    b.answer = HOLD;
    for (unsigned i = 0; i < 100; i++) {
        schedule_look(b.s, b.now);
        bench_release(&b);
    }
    b.n_runs -= b.n_held; /* of these nothing is in the records */
    b.now += 2 * HOUR;
    bench_restart(&b);
    b.answer = NOTE;
    bench_apply(&b, jobs);
    assert_ok(records_begin(b.records, &e), &e);
    bench_later(&b, NS_PER_S);
    assert_ok(records_commit(b.records, &e), &e);
    each_ran(&b, 300, 1);
    free(jobs);
    bench_free(&b);
}

/* What is due when it is paused, removed, or made for another node is not started any more. */
static void a_reload_of_what_is_due(void **state)
{
    (void)state;
    struct bench b;
    char *jobs = many_jobs(20, "02:00");
    bench_new(&b, "2026-11-22 01:00:00");
    bench_apply(&b, jobs);
    b.answer = HOLD;
    bench_until(&b, utc("2026-11-22 02:00:00"));
    const unsigned first = b.n_runs;
    assert_in_range(first, 1, 16);
    bench_apply(&b, JOB("job-0", "02:00") JOB("job-17", "02:00\npaused = yes") JOB("job-18", "04:00")
                        JOB("job-19", "02:00\nonly-on-node = other"));
    while (b.n_held)
        bench_release(&b); /* most of them are not in the configuration any more */
    bench_later(&b, NS_PER_S);
    assert_int_equal(b.n_runs, first + 1);
    assert_string_equal(b.runs[first].job, "job-18");
    assert_int_equal(b.runs[first].planned_ns, utc("2026-11-22 02:00:00"));
    bench_release(&b);
    bench_apply(&b, jobs);
    bench_until(&b, utc("2026-11-22 12:00:00")); /* paused means that it is not made up for */
    assert_int_equal(b.n_runs, first + 1);
    free(jobs);
    bench_free(&b);
}

/* The time came just before the configuration was read that has another one. */
static void a_reload_at_the_time(void **state)
{
    (void)state;
    struct bench b;
    bench_new(&b, "2026-11-22 01:00:00");
    bench_apply(&b, JOB("a", "02:00"));
    b.now = utc("2026-11-22 02:00:00");
    bench_apply(&b, JOB("a", "03:00"));
    schedule_look(b.s, b.now);
    assert_int_equal(b.n_runs, 1);
    assert_int_equal(b.runs[0].planned_ns, utc("2026-11-22 02:00:00"));
    assert_int_equal(bench_view(&b, "a").next_ns, utc("2026-11-22 03:00:00"));
    bench_free(&b);
}

/* A start that takes longer than the distance of two runs: the next run follows it, one for all that became due. */
static void slow_starts(void **state)
{
    (void)state;
    struct bench b;
    bench_new(&b, "2026-11-21 12:00:00");
    bench_apply(&b, JOB("a", "*:*:*"));
    b.answer = HOLD;
    bench_later(&b, 10 * NS_PER_S);
    assert_int_equal(b.n_runs, 1);
    bench_release(&b);
    schedule_look(b.s, b.now);
    assert_int_equal(b.n_runs, 2);
    assert_true(b.runs[1].caught_up);
    assert_int_equal(b.runs[1].planned_ns, utc("2026-11-21 12:00:10"));
    /* It fails: the time that came meanwhile stands for it, at once. */
    b.now = utc("2026-11-21 12:00:15");
    schedule_look(b.s, b.now);
    b.n_held = 0;
    bench_fails(&b, &b.runs[1], true);
    schedule_look(b.s, b.now);
    assert_int_equal(b.n_runs, 3);
    assert_int_equal(b.runs[2].planned_ns, utc("2026-11-21 12:00:15"));
    bench_free(&b);
}

/* ---- starts that fail ---- */

static void a_start_that_fails(void **state)
{
    (void)state;
    struct bench b;
    const char *job, *why;
    bench_new(&b, "2026-11-21 23:00:00");
    bench_apply(&b, JOB("a", "daily") JOB("lazy", "daily\npersistent = no"));
    b.answer = FAIL;
    bench_until(&b, utc("2026-11-22 00:00:00"));
    assert_int_equal(b.n_runs, 2);
    assert_int_equal(schedule_failing(b.s, &job, &why), 2);
    assert_string_equal(job, "a");
    assert_non_null(strstr(why, "no process"));
    assert_true(bench_view(&b, "a").due && bench_view(&b, "a").failed && !bench_view(&b, "lazy").due);
    /* Again after a while, which grows, for as long as it takes. */
    bench_until(&b, utc("2026-11-22 02:00:00"));
    assert_in_range(b.n_runs, 8, 16);
    for (unsigned i = 2; i < b.n_runs; i++) {
        assert_string_equal(b.runs[i].job, "a");
        assert_int_equal(b.runs[i].planned_ns, utc("2026-11-22 00:00:00"));
    }
    b.answer = NOTE;
    const unsigned failed = b.n_runs;
    bench_until(&b, utc("2026-11-22 12:00:00"));
    assert_int_equal(b.n_runs, failed + 1);
    assert_int_equal(schedule_failing(b.s, &job, &why), 1);
    assert_null(bench_view(&b, "a").failed);
    assert_int_equal(bench_view(&b, "a").next_ns, utc("2026-11-23 00:00:00"));
    /* For a reason that does not pass: the next time is the next one. */
    b.answer = HOLD;
    bench_until(&b, utc("2026-11-23 00:00:00"));
    assert_int_equal(b.n_held, 2);
    b.n_held = 0;
    bench_fails(&b, &b.runs[b.n_runs - 2], false);
    bench_fails(&b, &b.runs[b.n_runs - 1], false);
    bench_until(&b, utc("2026-11-23 12:00:00"));
    assert_int_equal(b.n_runs, failed + 3);
    bench_free(&b);
}

/* The run was noted, but the transaction with its backup came to nothing. */
static void a_note_that_is_taken_back(void **state)
{
    (void)state;
    struct bench b;
    struct err e = ERR_INIT;
    bench_new(&b, "2026-11-21 23:00:00");
    bench_apply(&b, JOB("a", "daily"));
    b.answer = HOLD;
    bench_until(&b, utc("2026-11-22 00:00:00"));
    assert_int_equal(b.n_runs, 1);
    assert_ok(records_begin(b.records, &e), &e);
    assert_ok(schedule_ran(b.s, "a", b.runs[0].planned_ns, "a-1", NULL, b.now, &e), &e);
    records_rollback(b.records);
    bench_fails(&b, &b.runs[0], true);
    assert_int_equal(bench_view(&b, "a").last_ns, 0);
    assert_string_equal(bench_view(&b, "a").last_backup, "");
    b.answer = NOTE;
    bench_later(&b, 5 * NS_PER_MIN);
    assert_int_equal(b.n_runs, 2);
    assert_int_equal(b.runs[1].planned_ns, b.runs[0].planned_ns);
    assert_true(bench_view(&b, "a").last_ns > 0);
    bench_free(&b);
}

/* ---- only to be looked at ---- */

static void looking_changes_nothing(void **state)
{
    (void)state;
    struct bench b;
    struct err e = ERR_INIT;
    struct cfg *c = NULL;
    const char *jobs = JOB("old", "daily") JOB("new", "hourly");
    bench_new(&b, "2026-11-21 12:00:00");
    bench_apply(&b, JOB("old", "daily"));
    bench_until(&b, utc("2026-11-22 12:00:00"));
    bench_close(&b);
    b.now += 3 * DAY;
    assert_ok(records_open_read_only(&b.records, b.state, &e), &e);
    const struct schedule_opts o = {.records = b.records};
    assert_ok(schedule_new(&b.s, &o, &e), &e);
    assert_ok(bench_cfg(&b, jobs, &c, &e), &e);
    assert_ok(schedule_apply(b.s, c, b.now, &e), &e);
    cfg_free(c);
    struct job_view v = bench_view(&b, "old");
    assert_true(v.due); /* when the daemon is started */
    assert_int_equal(v.next_ns, utc("2026-11-25 00:00:00"));
    assert_int_equal(v.last_ns, utc("2026-11-22 00:00:00"));
    assert_string_equal(v.last_backup, "old-1");
    assert_int_equal(bench_view(&b, "new").next_ns, utc("2026-11-25 13:00:00"));
    schedule_look(b.s, b.now);
    bench_close(&b);
    bench_open(&b);
    bench_apply(&b, jobs);
    bench_later(&b, NS_PER_S);
    assert_int_equal(b.n_runs, 2);
    assert_string_equal(b.runs[1].job, "old");
    assert_true(b.runs[1].caught_up);
    bench_free(&b);
}

/* ---- at random ---- */

/* Time passes, the clock jumps, starts take time, fail or die with the daemon, the configuration is read again.
 * Whatever happens: no time of a job is run twice, or has two starts at a time, and when all has calmed down each
 * persistent job has had its run for the latest time that came. */
static void at_random(void **state)
{
    (void)state;
    static const char *const jobs[] = {
        JOB("a", "daily") JOB("b", "hourly\njitter = 10min") JOB("c", "*:0/7") JOB("d", "Mon..Fri 02:30 Europe/Berlin")
            JOB("e", "*:*:0/20\npersistent = no") JOB("f", ""),
        JOB("a", "daily\npaused = yes") JOB("b", "hourly") JOB("c", "*:0/7") JOB("e", "*:*:0/20"),
        JOB("f", "minutely") JOB("c", "*:0/5") JOB("b", "hourly\njitter = 10min") JOB("d", "02:30 Europe/Berlin"),
    };
    for (uint64_t round = 0; round < 30; round++) {
        uint64_t seed = round + 1;
        const bool odd = round % 2; /* the clock goes back, too, and starts fail for good */
        struct bench b;
        struct err e = ERR_INIT;
        int64_t newest[256] = {0}; /* the latest time that was noted, by the first letter */
        unsigned which = 0, checked = 0;
        bench_new(&b, "2026-10-20 12:00:00");
        bench_apply(&b, jobs[0]);
        b.answer = HOLD;
        for (unsigned step = 0; step < 120; step++) {
            const unsigned what = (unsigned)(splitmix64(&seed) % 100);
            const int64_t r = (int64_t)(splitmix64(&seed) >> 1);
            if (what < 40)
                bench_later(&b, r % (2 * HOUR));
            else if (what < 50)
                bench_jump(&b, r % (3 * DAY)); /* suspended, or set forth */
            else if (what < 53 && odd)
                bench_jump(&b, -(r % (2 * DAY)));
            else if (what < 80)
                for (unsigned n = 1 + r % 4; n && b.n_held; n--) {
                    struct bench_run *run = &b.runs[b.n_runs - b.n_held];
                    if (!odd && run->planned_ns <= newest[(unsigned char)run->job[0]])
                        fail_msg("round %u step %u: a time of job %s is run twice", (unsigned)round, step, run->job);
                    newest[(unsigned char)run->job[0]] = run->planned_ns;
                    bench_release(&b);
                }
            else if (what < 85 && b.n_held)
                bench_fails(&b, &b.runs[b.n_runs - b.n_held--], !odd || r % 2);
            else if (what < 95)
                bench_apply(&b, jobs[which = r % 3]);
            else {
                bench_restart(&b);
                b.answer = HOLD;
                bench_apply(&b, jobs[which]);
            }
            for (unsigned i = b.n_runs - b.n_held; i < b.n_runs; i++)
                for (unsigned k = i + 1; k < b.n_runs; k++)
                    assert_false(b.runs[i].planned_ns == b.runs[k].planned_ns && !strcmp(b.runs[i].job, b.runs[k].job));
            assert_true(b.n_held <= 8);
        }
        while (b.n_held)
            bench_release(&b);
        b.answer = NOTE;
        bench_later(&b, 20 * NS_PER_MIN);
        unsigned n;
        struct job_view *v = schedule_views(b.s, b.now, &n);
        for (unsigned i = 0; i < n; i++) {
            if (v[i].idle_because[0] || v[i].name[0] == 'e')
                continue;
            struct calendar *c;
            assert_ok(calendar_parse(&c, v[i].on_calendar, &e), &e);
            assert_false(v[i].due);
            const int64_t latest = calendar_latest(c, 0, b.now - 10 * NS_PER_MIN);
            if (latest > v[i].since_ns && !odd) {
                struct job_run m;
                assert_ok(job_run_get(b.records, v[i].name, &m, &e), &e);
                assert_true(m.last_planned_ns >= latest);
                job_run_clear(&m);
                checked++;
            }
            calendar_free(c);
        }
        free(v);
        assert_true(odd || checked);
        bench_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(due_once_each_time),
        cmocka_unit_test(missed_runs_are_one),
        cmocka_unit_test(jitter),
        cmocka_unit_test(clocks_that_jump),
        cmocka_unit_test(the_clock_is_set_back),
        cmocka_unit_test(daylight_saving),
        cmocka_unit_test(latest_events),
        cmocka_unit_test(intervals),
        cmocka_unit_test(runs_come),
        cmocka_unit_test(a_restart_catches_up_from_the_records),
        cmocka_unit_test(a_restart_at_the_time),
        cmocka_unit_test(by_hand_makes_up_for_it),
        cmocka_unit_test(paused_elsewhere_and_changed),
        cmocka_unit_test(a_reload_that_fails),
        cmocka_unit_test(none_is_lost_for_being_one_of_many),
        cmocka_unit_test(many_and_a_restart),
        cmocka_unit_test(a_reload_of_what_is_due),
        cmocka_unit_test(a_reload_at_the_time),
        cmocka_unit_test(slow_starts),
        cmocka_unit_test(a_start_that_fails),
        cmocka_unit_test(a_note_that_is_taken_back),
        cmocka_unit_test(looking_changes_nothing),
        cmocka_unit_test(at_random),
    };
    setenv("TZ", "UTC", 1);
    tzset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
