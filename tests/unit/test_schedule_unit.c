/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_schedule_unit.c - jobs by transient timers, where systemd runs (CF-45) */
#include "proc/program.h"
#include "proc/systemd.h"
#include "daemon/schedule/schedule-impl.h"

#include "tests/unit/test.h"
#include "tests/unit/test_schedule.h"

static struct bench b;

static int setup(void **state)
{
    (void)state;
    if (!systemd_runs())
        return 0; /* each test says that it is skipped: a set-up that skips is a failure for cmocka */
    static char command[96];
    char text[256];
    bench_new(&b, true);
    snprintf(command, sizeof command, "%s/run it", b.dir); /* a space is nothing special */
    snprintf(text, sizeof text, "#!/bin/sh\necho \"$@\" >>'%s/ran'\n", b.dir);
    FILE *f = fopen(command, "we");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f) | chmod(command, 0755), 0);
    b.command = command;
    bench_restart(&b);
    return 0;
}

static void needs_systemd(void)
{
    if (!systemd_runs()) {
        print_message("SKIP: systemd is not PID 1 here\n");
        skip();
    }
}

static int teardown(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    if (!systemd_runs())
        return 0;
    assert_ok(schedule_clear(b.s, &e), &e);
    bench_free(&b);
    return 0;
}

/* What a command prints, without the last newline. Static buffer. */
__attribute__((format(printf, 1, 2))) static char *output(const char *fmt, ...)
{
    static char out[8192];
    char cmd[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(cmd, sizeof cmd, fmt, ap);
    va_end(ap);
    FILE *p = popen(cmd, "r");
    assert_non_null(p);
    size_t n = fread(out, 1, sizeof out - 1, p);
    pclose(p);
    while (n && out[n - 1] == '\n')
        n--;
    out[n] = '\0';
    return out;
}

static int timers(void)
{
    return atoi(output("systemctl list-units --no-legend 'snapferry-job-*.timer' | grep -c active"));
}

static void wait_for_timers(int n)
{
    int seen = timers(); /* looked at once: one that is replaced goes for a moment */
    for (int i = 0; i < 50 && seen != n; i++) {
        bench_run(&b, 100);
        seen = timers();
    }
    assert_int_equal(seen, n);
}

static char *property(const char *unit, const char *name)
{
    return output("systemctl show --value -p %s '%s'", name, unit);
}

static const char *member(const char *job, const char *key)
{
    static char text[256];
    json_t *all = schedule_to_json(b.s), *x;
    size_t i;
    text[0] = '\0';
    json_array_foreach(all, i, x)
    {
        if (!strcmp(jstr(x, "job"), job))
            snprintf(text, sizeof text, "%s", jstr(x, key));
    }
    json_decref(all);
    return text;
}

static void timers_run_jobs(void **state)
{
    (void)state;
    needs_systemd();
    bench_apply(&b, JOB("each-second", "*:*:*") JOB("nightly", "02:00\njitter = 10min") JOB("by-hand", "")
                        JOB("paused", "daily\npaused = yes") JOB("elsewhere", "daily\nonly-on-node = x"));
    wait_for_timers(2);
    assert_non_null(strstr(output("systemctl list-timers --no-legend"), "snapferry-job-nightly.timer"));
    assert_non_null(strstr(property("snapferry-job-nightly.timer", "TimersCalendar"), "02:00"));
    assert_string_equal(property("snapferry-job-nightly.timer", "RandomizedDelayUSec"), "10min");
    assert_string_equal(property("snapferry-job-nightly.timer", "FixedRandomDelay"), "yes");
    assert_string_equal(property("snapferry-job-nightly.timer", "Unit"), "snapferry-job-nightly.service");
    assert_string_equal(property("snapferry-job-nightly.service", "SuccessExitStatus"), "23"); /* nobody listens */
    assert_string_equal(member("nightly", "runs_by"), "systemd");
    bench_run(&b, 3500);
    int n = atoi(output("grep -c . '%s/ran'", b.dir));
    assert_in_range(n, 2, 5);
    char want[256];
    snprintf(want, sizeof want, "--runtime-dir %s backup --job each-second --from-timer", b.runtime);
    assert_string_equal(output("sort -u '%s/ran'", b.dir), want);
    assert_int_equal(b.n_due, 0); /* not by us too */
}

static void reload_keeps_what_is_unchanged(void **state)
{
    (void)state;
    needs_systemd();
    char before[64];
    bench_apply(&b, JOB("same", "02:00") JOB("changed", "03:00") JOB("gone", "04:00") JOB("pause", "05:00"));
    wait_for_timers(4);
    snprintf(before, sizeof before, "%s", property("snapferry-job-same.timer", "InvocationID"));
    assert_true(before[0]);
    bench_apply(&b, JOB("pause", "05:00\npaused = yes") JOB("changed", "03:30") JOB("same", "02:00"));
    wait_for_timers(2);
    for (int i = 0; i < 50 && !strstr(property("snapferry-job-changed.timer", "TimersCalendar"), "03:30"); i++)
        bench_run(&b, 100);
    assert_non_null(strstr(property("snapferry-job-changed.timer", "TimersCalendar"), "03:30"));
    assert_string_equal(property("snapferry-job-same.timer", "InvocationID"), before);
    assert_string_equal(member("changed", "runs_by"), "systemd");
    /* The daemon ends: timers stay. It comes back: what is as it should be is left alone, the rest is put right. */
    bench_close(&b);
    assert_int_equal(timers(), 2);
    assert_int_equal(system("systemctl stop snapferry-job-changed.timer"), 0);
    assert_int_equal(system("systemd-run --quiet --unit=snapferry-job-old --on-calendar=02:00 true"), 0);
    bench_open(&b);
    bench_apply(&b, JOB("changed", "03:30") JOB("same", "02:00"));
    for (int i = 0; i < 50 && (timers() != 2 || !*property("snapferry-job-changed.timer", "TimersCalendar")); i++)
        bench_run(&b, 100);
    assert_string_equal(property("snapferry-job-same.timer", "InvocationID"), before);
    assert_string_equal(property("snapferry-job-old.timer", "ActiveState"), "inactive");
    assert_string_equal(property("snapferry-job-changed.timer", "ActiveState"), "active");
    /* Quick changes in a row end in the last one. */
    for (int i = 0; i < 6; i++) {
        bench_apply(&b, i % 2 ? JOB("same", "02:00") : JOB("same", "06:00") JOB("more", "07:00"));
        bench_run(&b, i * 20);
    }
    wait_for_timers(1);
    for (int i = 0; i < 50 && !strstr(property("snapferry-job-same.timer", "TimersCalendar"), "02:00"); i++)
        bench_run(&b, 100);
    assert_non_null(strstr(property("snapferry-job-same.timer", "TimersCalendar"), "02:00"));
    struct err e = ERR_INIT;
    assert_ok(schedule_clear(b.s, &e), &e);
    for (int i = 0; i < 50 && timers(); i++)
        usleep(100000);
    assert_int_equal(timers(), 0);
}

/* A name with all sorts of bytes, and an event that we know and systemd 252 refuses (its list of last days). */
static void what_is_odd(void **state)
{
    (void)state;
    needs_systemd();
    bench_apply(&b, JOB("it's-50%$x", "02:00") JOB("last", "*-*~1,2,28"));
    for (int i = 0; i < 50 && !*member("last", "problem"); i++)
        bench_run(&b, 100);
    char unit[UNIT_TEXT];
    unit_name_of_job("it's-50%$x", ".timer", unit);
    assert_string_equal(property(unit, "ActiveState"), "active");
    if (timers() == 1) {
        assert_string_equal(member("last", "runs_by"), "daemon");
        assert_non_null(strstr(member("last", "problem"), "snapferry-job-last.timer"));
    } else {
        assert_string_equal(member("last", "runs_by"), "systemd"); /* a systemd that takes it */
    }
    unit_name_of_job("it's-50%$x", ".service", unit);
    char cmd[UNIT_TEXT + 32];
    snprintf(cmd, sizeof cmd, "systemctl start '%s'", unit);
    assert_int_equal(system(cmd), 0);
    char want[256];
    snprintf(want, sizeof want, "--runtime-dir %s backup --job it's-50%%$x --from-timer", b.runtime);
    assert_string_equal(output("cat '%s/ran'", b.dir), want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(timers_run_jobs, setup, teardown),
        cmocka_unit_test_setup_teardown(reload_keeps_what_is_unchanged, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_odd, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
