/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_schedule.c - jobs by the daemon's own clock (CF-45): what is due, what was missed, clocks that jump, jitter,
 * pausing, other nodes, reload; and the names of timers
 */
#include "base/time.h"
#include "daemon/schedule/schedule-impl.h"

#include "tests/unit/test.h"
#include "tests/unit/test_schedule.h"

#include <sys/timex.h>

#define HOUR (3600 * NS_PER_S)
#define DAY (24 * HOUR)

static int64_t utc(const char *text)
{
    struct tm tm = {0};
    assert_non_null(strptime(text, "%Y-%m-%d %H:%M:%S", &tm));
    return timegm(&tm) * NS_PER_S;
}

/* ---- judging ---- */

static struct sched_job job(const char *on_calendar, int64_t since)
{
    struct sched_job j = {.persistent = true, .since_ns = since};
    struct err e = ERR_INIT;
    assert_ok(calendar_parse(&j.calendar, on_calendar, &e), &e);
    return j;
}

struct judged {
    struct sched_verdict v;
    bool forgotten;
};

static struct judged judge(struct sched_job *j, int64_t now, int64_t patience)
{
    struct judged r;
    sched_judge(j, now, patience, &r.v, &r.forgotten);
    return r;
}

static void due_once_each_time(void **state)
{
    (void)state;
    int64_t now = utc("2026-11-21 12:00:00");
    struct sched_job j = job("02:00 UTC", now);
    struct judged r = judge(&j, now, 0);
    assert_false(r.v.due);
    assert_int_equal(r.v.next_ns, utc("2026-11-22 02:00:00"));
    assert_int_equal(r.v.look_ns, r.v.next_ns);
    r = judge(&j, r.v.look_ns, 0);
    assert_true(r.v.due);
    assert_false(r.v.caught_up);
    assert_int_equal(r.v.planned_ns, utc("2026-11-22 02:00:00"));
    assert_int_equal(r.v.next_ns, utc("2026-11-23 02:00:00"));
    r = judge(&j, utc("2026-11-22 02:00:01"), 0); /* asked already, noted or not */
    assert_false(r.v.due);
    j.asked_ns = 0;
    j.last_planned_ns = utc("2026-11-22 02:00:00"); /* after a restart: noted */
    assert_false(judge(&j, utc("2026-11-22 02:00:01"), 0).v.due);
    calendar_free(j.calendar);
}

static void missed_runs_are_one(void **state)
{
    (void)state;
    struct sched_job j = job("02:00 UTC", utc("2026-11-01 00:00:00"));
    j.last_planned_ns = utc("2026-11-10 02:00:00");
    struct judged r = judge(&j, utc("2026-11-21 12:00:00"), 0);
    assert_true(r.v.due && r.v.caught_up);
    assert_int_equal(r.v.planned_ns, utc("2026-11-21 02:00:00"));
    assert_int_equal(r.v.next_ns, utc("2026-11-22 02:00:00"));
    assert_false(judge(&j, utc("2026-11-21 12:00:01"), 0).v.due);
    /* Years of minutes are found as fast. */
    struct sched_job m = job("minutely", 1);
    r = judge(&m, utc("2026-11-21 12:00:30"), 0);
    assert_true(r.v.due && r.v.caught_up);
    assert_int_equal(r.v.planned_ns, utc("2026-11-21 12:00:00"));
    calendar_free(m.calendar);
    /* Not persistent: what was missed is let go, what is due now is not. */
    j = (struct sched_job){.calendar = j.calendar, .since_ns = utc("2026-11-20 00:00:00")};
    r = judge(&j, utc("2026-11-21 12:00:00"), 0);
    assert_false(r.v.due);
    assert_int_equal(r.v.next_ns, utc("2026-11-22 02:00:00"));
    r = judge(&j, utc("2026-11-22 02:00:20"), 0);
    assert_true(r.v.due);
    assert_false(r.v.caught_up);
    calendar_free(j.calendar);
    /* A time that never comes. */
    struct sched_job never = job("*-02-30", 1);
    r = judge(&never, utc("2026-11-21 12:00:00"), 0);
    assert_false(r.v.due);
    assert_int_equal(r.v.next_ns, INT64_MAX);
    assert_int_equal(r.v.look_ns, INT64_MAX);
    calendar_free(never.calendar);
}

static void jitter_and_patience(void **state)
{
    (void)state;
    struct sched_job j = job("02:00 UTC", utc("2026-11-21 12:00:00"));
    j.jitter_s = 600;
    j.offset_ns = 420 * NS_PER_S;
    struct judged r = judge(&j, utc("2026-11-22 02:06:59"), 0);
    assert_false(r.v.due);
    assert_int_equal(r.v.look_ns, utc("2026-11-22 02:07:00"));
    r = judge(&j, utc("2026-11-22 02:07:00"), 0);
    assert_true(r.v.due);
    assert_false(r.v.caught_up);
    assert_int_equal(r.v.planned_ns, utc("2026-11-22 02:00:00"));
    /* A timer of systemd is given its time; then it counts as missed. */
    j.asked_ns = 0;
    r = judge(&j, utc("2026-11-22 02:10:00"), 300 * NS_PER_S);
    assert_false(r.v.due);
    r = judge(&j, utc("2026-11-22 02:12:00"), 300 * NS_PER_S);
    assert_true(r.v.due && r.v.caught_up);
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
    j.last_planned_ns = utc("2026-11-21 02:00:00");
    struct judged r = judge(&j, utc("2026-11-21 01:55:00"), 0);
    assert_false(r.v.due || r.forgotten);
    assert_false(judge(&j, utc("2026-11-21 02:00:00"), 0).v.due);
    /* Back by years: the future that was is forgotten, or no job would run until then. */
    j.last_planned_ns = utc("2031-11-21 02:00:00");
    j.last_run_ns = utc("2031-11-21 02:00:05");
    r = judge(&j, utc("2026-11-21 12:00:00"), 0);
    assert_true(r.forgotten);
    assert_false(r.v.due);
    assert_int_equal(r.v.next_ns, utc("2026-11-22 02:00:00"));
    assert_true(judge(&j, utc("2026-11-22 02:00:00"), 0).v.due);
    /* A job of each minute does not wait for an hour. */
    struct sched_job m = job("minutely", 1);
    m.last_planned_ns = utc("2026-11-21 12:30:00");
    r = judge(&m, utc("2026-11-21 12:00:00"), 0);
    assert_true(r.forgotten);
    assert_int_equal(r.v.next_ns, utc("2026-11-21 12:01:00"));
    /* Forth: missed, once. */
    j.asked_ns = 0;
    j.last_planned_ns = utc("2026-11-22 02:00:00");
    r = judge(&j, utc("2028-01-01 00:00:00"), 0);
    assert_true(r.v.due && r.v.caught_up && !r.forgotten);
    assert_int_equal(r.v.planned_ns, utc("2027-12-31 02:00:00"));
    calendar_free(j.calendar);
    calendar_free(m.calendar);
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
        if (sched_interval_s(j.calendar, utc(of[i].now)) != of[i].interval / NS_PER_S)
            fail_msg("%s at %s: %lld s, not %lld", of[i].text, of[i].now,
                     (long long)sched_interval_s(j.calendar, utc(of[i].now)), (long long)(of[i].interval / NS_PER_S));
        calendar_free(j.calendar);
    }
}

static void names_of_timers(void **state)
{
    (void)state;
    char a[UNIT_TEXT], b[UNIT_TEXT], job_name[128];
    assert_string_equal(unit_name_of_job("nightly", ".timer", a), "snapferry-job-nightly.timer");
    assert_string_equal(unit_name_of_job("A-b_c.d:1", ".service", a), "snapferry-job-A-b_c.d:1.service");
    assert_string_equal(unit_name_of_job("a b/\xc3\xa4\\x20", ".timer", a),
                        "snapferry-job-a\\x20b\\x2f\\xc3\\xa4\\x5cx20.timer");
    assert_string_not_equal(unit_name_of_job("a\\x20b", ".timer", a), unit_name_of_job("a b", ".timer", b));
    memset(job_name, '/', 127);
    job_name[127] = '\0';
    unit_name_of_job(job_name, ".timer", a);
    assert_true(strlen(a) < 256 && strlen(a) > 200);
    job_name[126] = '!';
    unit_name_of_job(job_name, ".timer", b);
    assert_string_not_equal(a, b);
}

/* ---- with a loop, records and a configuration ---- */

static void runs_come(void **state)
{
    (void)state;
    struct bench b;
    bench_new(&b, false);
    bench_apply(&b, JOB("each-second", "*:*:*") JOB("later", "2199-01-01") JOB("by-hand", ""));
    bench_run(&b, 3500);
    assert_in_range(b.n_due, 3, 4);
    for (unsigned i = 0; i < b.n_due; i++) {
        assert_string_equal(b.due[i].job, "each-second");
        assert_false(b.due[i].caught_up);
        assert_int_equal(b.due[i].planned_ns % NS_PER_S, 0);
        assert_true(!i || b.due[i].planned_ns > b.due[i - 1].planned_ns);
        assert_in_range(b.due[i].at_ns - b.due[i].planned_ns, 0, NS_PER_S / 2);
    }
    json_t *all = schedule_to_json(b.s), *first = json_array_get(all, 0);
    assert_int_equal(json_array_size(all), 3);
    assert_int_equal(json_integer_value(json_object_get(first, "interval_s")), 1);
    assert_string_equal(json_string_value(json_object_get(first, "runs_by")), "daemon");
    assert_true(json_is_string(json_object_get(first, "last")) && json_is_string(json_object_get(first, "next")));
    assert_string_equal(json_string_value(json_object_get(json_array_get(all, 1), "next")), "2199-01-01T00:00:00Z");
    assert_true(json_is_null(json_object_get(json_array_get(all, 2), "next")));
    assert_string_equal(json_string_value(json_object_get(json_array_get(all, 2), "idle_because")),
                        "it has no on-calendar");
    json_decref(all);
    bench_free(&b);
}

static void a_restart_catches_up_from_the_records(void **state)
{
    (void)state;
    struct bench b;
    bench_new(&b, false);
    int64_t now = bench_now();
    bench_apply(&b, JOB("nightly", "daily") JOB("lazy", "daily\npersistent = no") JOB("fresh", "daily"));
    bench_run(&b, 300);
    assert_int_equal(b.n_due, 0); /* nothing is missed by a job that is new */
    struct err e = ERR_INIT;
    assert_ok(schedule_ran(b.s, "nightly", now - 3 * DAY, NULL, &e), &e);
    assert_ok(schedule_ran(b.s, "lazy", now - 3 * DAY, NULL, &e), &e);
    bench_age(&b, "nightly", 10 * DAY); /* they are known for long */
    bench_age(&b, "lazy", 10 * DAY);
    bench_restart(&b);
    bench_apply(&b, JOB("nightly", "daily") JOB("lazy", "daily\npersistent = no") JOB("fresh", "daily"));
    bench_run(&b, 300);
    assert_int_equal(b.n_due, 1);
    assert_string_equal(b.due[0].job, "nightly");
    assert_true(b.due[0].caught_up);
    assert_in_range(now - b.due[0].planned_ns, 0, DAY + HOUR);
    /* Noted, so not again; not noted (the daemon died before), so again. */
    bench_restart(&b);
    bench_apply(&b, JOB("nightly", "daily"));
    bench_run(&b, 200);
    assert_int_equal(b.n_due, 1);
    bench_age(&b, "nightly", 5 * DAY);
    b.note = false;
    for (unsigned i = 2; i <= 3; i++) {
        bench_restart(&b);
        bench_apply(&b, JOB("nightly", "daily"));
        bench_run(&b, 200);
        assert_int_equal(b.n_due, i);
        bench_apply(&b, JOB("nightly", "daily")); /* a reload does not ask twice */
        bench_run(&b, 200);
        assert_int_equal(b.n_due, i);
    }
    bench_free(&b);
}

static void by_hand_makes_up_for_it(void **state)
{
    (void)state;
    struct bench b;
    struct err e = ERR_INIT;
    int64_t planned = 0;
    bench_new(&b, false);
    bench_apply(&b, JOB("nightly", "daily"));
    bench_age(&b, "nightly", 10 * DAY);
    assert_true(schedule_claims(b.s, "nightly", &planned));
    assert_in_range(bench_now() - planned, 0, DAY + HOUR);
    assert_ok(schedule_ran(b.s, "nightly", 0, NULL, &e), &e);
    assert_false(schedule_claims(b.s, "nightly", &planned)); /* a timer that comes late has nothing to run */
    assert_false(schedule_claims(b.s, "no such job", &planned));
    bench_restart(&b);
    bench_apply(&b, JOB("nightly", "daily"));
    bench_run(&b, 200);
    assert_int_equal(b.n_due, 0);
    assert_ok(schedule_ran(b.s, "gone from the configuration", 0, NULL, &e), &e);
    bench_free(&b);
}

static void paused_elsewhere_and_changed(void **state)
{
    (void)state;
    struct bench b;
    bench_new(&b, false);
    bench_apply(&b, JOB("a", "*:*:*\npaused = yes") JOB("b", "*:*:*\nonly-on-node = other*")
                        JOB("c", "*:*:*\nonly-on-node = other* node-?"));
    bench_run(&b, 1500);
    assert_true(b.n_due >= 1);
    for (unsigned i = 0; i < b.n_due; i++)
        assert_string_equal(b.due[i].job, "c");
    json_t *all = schedule_to_json(b.s);
    assert_true(json_is_true(json_object_get(json_array_get(all, 0), "paused")));
    assert_true(json_is_null(json_object_get(json_array_get(all, 0), "next")));
    assert_non_null(strstr(json_string_value(json_object_get(json_array_get(all, 1), "idle_because")), "only-on-node"));
    json_decref(all);
    /* What was missed while it was paused, or by an older calendar, is not made up for. */
    struct err e = ERR_INIT;
    int64_t now = bench_now();
    bench_apply(&b, JOB("a", "daily") JOB("c", "daily"));
    assert_ok(schedule_ran(b.s, "a", now - 3 * DAY, NULL, &e), &e);
    assert_ok(schedule_ran(b.s, "c", now - 3 * DAY, NULL, &e), &e);
    bench_age(&b, "a", 10 * DAY);
    bench_age(&b, "c", 10 * DAY);
    bench_restart(&b);
    b.n_due = 0;
    bench_apply(&b, JOB("a", "daily\npaused = yes") JOB("c", "weekly"));
    bench_run(&b, 200);
    bench_apply(&b, JOB("a", "daily") JOB("c", "weekly"));
    bench_run(&b, 200);
    assert_int_equal(b.n_due, 0);
    bench_free(&b);
}

/* Systemd is wanted but its bus is not there: the daemon's clock does it. */
static void without_a_bus(void **state)
{
    (void)state;
    struct bench b;
    setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/socket", 1);
    bench_new(&b, true);
    bench_apply(&b, JOB("a", "*:*:*"));
    bench_run(&b, 1500);
    assert_true(b.n_due >= 1);
    bench_free(&b);
    unsetenv("DBUS_SYSTEM_BUS_ADDRESS");
}

static void count_clock(enum log_level lvl, const char *line, void *arg)
{
    (void)lvl;
    *(unsigned *)arg += strstr(line, "the clock was set") != NULL;
}

/* A microsecond forth and back again: to everybody who waits for that, the clock was set. */
static void the_clock_is_set(void **state)
{
    (void)state;
    struct bench b;
    struct timex forth = {.modes = ADJ_SETOFFSET, .time = {.tv_usec = 1}},
                 back = {.modes = ADJ_SETOFFSET, .time = {.tv_sec = -1, .tv_usec = 999999}};
    unsigned n = 0;
    bench_new(&b, false);
    bench_apply(&b, JOB("a", "2199-01-01"));
    bench_run(&b, 100);
    if (adjtimex(&forth) < 0) {
        print_message("SKIP: the clock cannot be set here: %s\n", strerror(errno));
        bench_free(&b);
        skip();
    }
    log_to(count_clock, &n);
    bench_run(&b, 100);
    unsigned first = n;
    adjtimex(&back); /* and it is watched on */
    bench_run(&b, 100);
    log_to(NULL, NULL);
    assert_int_equal(first, 1);
    assert_int_equal(n, 2);
    assert_int_equal(b.n_due, 0);
    bench_free(&b);
}

/* A wrong calendar is refused as a whole: the jobs that are there go on. */
static void a_reload_that_fails(void **state)
{
    (void)state;
    struct bench b;
    bench_new(&b, false);
    bench_apply(&b, JOB("a", "*:*:*"));
    struct cfg *c = NULL;
    struct err e = ERR_INIT;
    int rc = bench_cfg(&b, JOB("a", "*:*:61"), &c, &e);
    if (rc == 0)
        rc = schedule_apply(b.s, c, &e);
    cfg_free(c);
    assert_true(rc < 0);
    bench_run(&b, 1500);
    assert_true(b.n_due >= 1);
    bench_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(due_once_each_time),
        cmocka_unit_test(missed_runs_are_one),
        cmocka_unit_test(jitter_and_patience),
        cmocka_unit_test(clocks_that_jump),
        cmocka_unit_test(latest_events),
        cmocka_unit_test(intervals),
        cmocka_unit_test(names_of_timers),
        cmocka_unit_test(runs_come),
        cmocka_unit_test(a_restart_catches_up_from_the_records),
        cmocka_unit_test(by_hand_makes_up_for_it),
        cmocka_unit_test(paused_elsewhere_and_changed),
        cmocka_unit_test(without_a_bus),
        cmocka_unit_test(the_clock_is_set),
        cmocka_unit_test(a_reload_that_fails),
    };
    setenv("TZ", "UTC", 1);
    tzset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
