/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Mover plugins under way: started, watched, cancelled, lost and found (AO-06, AO-24..28, AO-34..36, AP-05..10). */
#include "proc/program.h"
#include "daemon/movers/movers.h"
#include "proc/plugin-run.h"
#include "proc/process.h"
#include "proc/tail.h"
#include "daemon/movers/plugin.h"
#include "daemon/protocol/mover-files.h"
#include "tests/unit/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char dir[256];
static sd_event *loop;
static struct steps *steps;
static struct movers *movers;

/* What the events said. */
static struct {
    int ready, started, progress, ended;
    enum mover_outcome outcome;
    json_t *result;
    struct err err;
    uint64_t done;
    char id[PLUGIN_ID_MAX + 1], operation[512];
    pid_t pid;
    bool had_at_end, cancel_when_ready;
} seen;

static void on_ready(const char *operation, const struct mover_ready *r, void *arg)
{
    assert_ptr_equal(arg, &seen);
    seen.ready++;
    seen.pid = r->identity->pid;
    snprintf(seen.id, sizeof seen.id, "%s", r->plugin_id);
    if (seen.cancel_when_ready)
        movers_cancel(movers, operation, 0, NULL);
    assert_int_equal(movers_go(movers, operation, NULL), 0); /* as of any mover */
}
static void on_started(const char *operation, void *arg)
{
    (void)operation;
    (void)arg;
    seen.started++;
}
static void on_progress(const char *operation, const json_t *p, void *arg)
{
    (void)operation;
    (void)arg;
    seen.progress++;
    seen.done = (uint64_t)json_integer_value(json_object_get(p, "done"));
}
static void on_ended(const char *operation, const struct mover_end *end, void *arg)
{
    (void)arg;
    seen.ended++;
    seen.outcome = end->outcome;
    seen.result = json_incref(end->result);
    seen.err = end->err;
    seen.had_at_end = movers_has(movers, operation);
    snprintf(seen.operation, sizeof seen.operation, "%s", operation);
}
static const struct movers_events events = {on_ready, on_started, on_progress, on_ended, NULL};

static void make_movers(void)
{
    struct err e = ERR_INIT;
    const struct movers_opts o = {.loop = loop,
                                  .steps = steps,
                                  .runtime_dir = dir,
                                  .state_dir = dir,
                                  .program = "/bin/true",
                                  .plugin_backoff_ms = 20,
                                  .events = &events,
                                  .arg = &seen};
    assert_ok(movers_new(&movers, &o, &e), &e);
}

static void show(enum log_level lvl, const char *line, void *arg)
{
    (void)arg;
    if (getenv("VERBOSE"))
        fprintf(stderr, "# %d %s\n", (int)lvl, line);
}

static int set_up(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    log_to(show, NULL);
    setenv("SNAPFERRY_NO_SYSTEMD", "1", 1);
    snprintf(dir, sizeof dir, "%s/snapferry-movers.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(dir) || sd_event_new(&loop) < 0 || steps_new(&steps, loop, &e) < 0)
        return -1;
    chmod(dir, 0755);
    json_decref(seen.result);
    memset(&seen, 0, sizeof seen);
    make_movers();
    return 0;
}
static int tear_down(void **state)
{
    (void)state;
    char cmd[600];
    movers_free(movers);
    steps_free(steps);
    sd_event_unref(loop);
    json_decref(seen.result);
    seen.result = NULL;
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    return system(cmd) == -1;
}

/*
 * A mover in shell. `abilities` are quoted words with commas; `cases` are further branches of the case on $1. It keeps
 * its state in $D; each call leaves its verb in $D/calls.
 */
static struct cfg_plugin plugin(const char *abilities, const char *cases)
{
    struct cfg_plugin p = {.start_timeout_s = 2, .poll_s = 1, .max_timeout_s = 3, .progress_retry = 2};
    snprintf(p.name, sizeof p.name, "tape");
    snprintf(p.kind, sizeof p.kind, "mover");
    snprintf(p.program, sizeof p.program, "%s/plugin", dir);
    FILE *f = fopen(p.program, "w");
    assert_non_null(f);
    fprintf(f,
            "#!/bin/sh\nD=%s\necho $1 >>$D/calls\nP='\"protocol\":1'\n"
            "case $1 in\n%s\ndescribe) echo \"{$P,\\\"name\\\":\\\"t\\\",\\\"version\\\":\\\"1\\\",\\\"kind\\\":"
            "\\\"mover\\\",\\\"abilities\\\":[\"'%s'\"]}\";;\napplies) echo \"{$P,\\\"applies\\\":true}\";;\n"
            "start) echo \"{$P,\\\"id\\\":\\\"id-1\\\"}\";;\ncancel) touch $D/canceled; echo "
            "\"{$P,\\\"ack\\\":\\\"accepted\\\"}\";;\ncleanup) touch $D/cleaned; echo \"{$P}\";;\n*) exit 64;; esac\n",
            dir, cases, abilities);
    fclose(f);
    chmod(p.program, 0755);
    return p;
}

static void turn_until(bool (*done)(void), int seconds)
{
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    do {
        sd_event_run(loop, 50000);
        clock_gettime(CLOCK_MONOTONIC, &b);
    } while (!done() && b.tv_sec - a.tv_sec < seconds);
}
static void again(void)
{
    seen.ended = 0;
    json_decref(seen.result);
    seen.result = NULL;
}
static bool has_ended(void)
{
    return seen.ended;
}
static bool is_ready(void)
{
    return seen.ready;
}
static bool has_progress(void)
{
    return seen.progress;
}
static bool no_steps(void)
{
    return steps_running(steps) == 0;
}

static void start(const struct cfg_plugin *p, const struct mover_times *t)
{
    struct err e = ERR_INIT;
    CLEANUP_PLUGIN_JSON json_t *q =
        json_pack("{s:s, s:s, s:i}", "direction", "backup", "device", "/dev/null", "size", 0);
    struct mover_spec s = {.operation = "up-1.v", .plugin = p, .job = q, .device_fd = -1};
    if (t)
        s.times = *t;
    assert_ok(movers_start(movers, &s, &e), &e);
    assert_true(movers_has(movers, "up-1.v"));
    assert_int_equal(movers_start(movers, &s, &e), -EEXIST);
    assert_int_equal(movers_adopt(movers, NULL, &s, &e), -EEXIST);
    assert_int_equal(movers_forget(movers, "up-1.v", p, "", &e), -EBUSY);
}
static int adopt(const struct cfg_plugin *p, const char *id, struct err *e)
{
    const struct mover_spec s = {.operation = "up-1.v", .plugin = p, .plugin_id = id, .device_fd = -1};
    return movers_adopt(movers, NULL, &s, e);
}
static void run(const struct cfg_plugin *p, const struct mover_times *t, int seconds)
{
    start(p, t);
    turn_until(has_ended, seconds);
    assert_int_equal(seen.ended, 1);
    assert_false(seen.had_at_end);
    assert_string_equal(seen.operation, "up-1.v");
    turn_until(no_steps, 5);
    assert_int_equal(movers_count(movers), 0);
}
static unsigned calls(const char *verb)
{
    char path[300], line[64];
    unsigned n = 0;
    snprintf(path, sizeof path, "%s/calls", dir);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        n += strcmp(line, verb) == 0;
    }
    if (f)
        fclose(f);
    return n;
}
static bool there(const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}
static void assert_ended(enum mover_outcome m, const char *says)
{
    if (seen.outcome != m || !strstr(seen.err.msg, says))
        fail_msg("outcome %d, \"%s\"; wanted %d, \"%s\"", (int)seen.outcome, seen.err.msg, (int)m, says);
    if (m != MOVER_OK && !strstr(seen.err.msg, ", plugin: tape"))
        fail_msg("no plugin in \"%s\" (AO-26)", seen.err.msg);
    assert_true(m == MOVER_OK || seen.err.cls != ERR_NONE);
}

#define ALL "progress\",\"cancel\",\"result\",\"cleanup"
#define SAYS(json) "echo \"{$P," json "}\""

/* ---- good ends ---- */

/* The plugin is asked to clean up when what it did is durable, and never before: the owner of the record says when. */
static void clean_up(const struct cfg_plugin *p)
{
    struct err e = ERR_INIT;
    assert_int_equal(calls("cleanup"), 0);
    assert_false(there("cleaned"));
    assert_ok(movers_forget(movers, "up-1.v", p, seen.id, &e), &e);
    turn_until(no_steps, 5);
    assert_true(there("cleaned"));
    assert_int_equal(calls("cleanup"), 1);
}

static void test_start_progress_result(void **state)
{
    (void)state;
    struct cfg_plugin p =
        plugin("\"" ALL "\"", "progress) n=$(grep -c progress $D/calls); if [ $n -ge 3 ]; then\n"
                              "echo \"{$P,\\\"completed\\\":true,\\\"nCompleted\\\":30,\\\"nTotal\\\":30}\"; else\n"
                              "echo \"{$P,\\\"nCompleted\\\":${n}0,\\\"nTotal\\\":30,\\\"started\\\":\\\"now\\\"}\"; "
                              "fi;;\nresult) echo \"{$P,\\\"result\\\":{\\\"tape\\\":\\\"T7\\\"}}\";;");
    run(&p, NULL, 15);
    assert_ended(MOVER_OK, "");
    assert_int_equal(seen.ready, 1);
    assert_int_equal(seen.started, 1);
    assert_int_equal(seen.progress, 3);
    assert_int_equal(seen.done, 30);
    assert_string_equal(seen.id, "id-1");
    json_t *stored = json_object_get(seen.result, "stored");
    assert_string_equal(json_string_value(json_object_get(stored, "tape")), "T7");
    assert_string_equal(json_string_value(json_object_get(seen.result, "id")), "id-1");
    assert_int_equal(json_integer_value(json_object_get(seen.result, "bytes")), 30);
    assert_int_equal(calls("start"), 1);
    clean_up(&p);
}

/* AP-06: an id that is empty, or a reason; AP-04: it declines. */
static void test_skipped(void **state)
{
    (void)state;
    struct cfg_plugin p = plugin("\"" ALL "\"", "start) " SAYS("\\\"skip\\\":\\\"too small\\\"") ";;");
    run(&p, NULL, 5);
    assert_ended(MOVER_OK, "");
    assert_string_equal(json_string_value(json_object_get(seen.result, "skip")), "too small");
    assert_int_equal(seen.ready, 0);
    again();
    p = plugin("\"" ALL "\"", "start) " SAYS("\\\"id\\\":\\\"\\\"") ";;");
    run(&p, NULL, 5);
    assert_non_null(json_object_get(seen.result, "skip"));
    again();
    p = plugin("\"" ALL "\"", "applies) " SAYS("\\\"applies\\\":false,\\\"reason\\\":\\\"no tapes\\\"") ";;");
    run(&p, NULL, 5);
    assert_string_equal(json_string_value(json_object_get(seen.result, "skip")), "no tapes");
}

/* AO-09: a plugin without progress does all in start. */
static void test_all_in_start(void **state)
{
    (void)state;
    struct cfg_plugin p =
        plugin("", "start) " SAYS("\\\"id\\\":\\\"x\\\",\\\"completed\\\":true,\\\"result\\\":{\\\"a\\\":1}") ";;");
    run(&p, NULL, 5);
    assert_ended(MOVER_OK, "");
    assert_non_null(json_object_get(json_object_get(seen.result, "stored"), "a"));
    again();
    p = plugin("", "start) " SAYS("\\\"id\\\":\\\"x\\\",\\\"completed\\\":true,\\\"error\\\":\\\"no tape\\\"") ";;");
    run(&p, NULL, 5);
    assert_ended(MOVER_FAILED, "no tape, plugin: tape");
    again();
    p = plugin("", "");
    run(&p, NULL, 5);
    assert_ended(MOVER_FAILED, "without the ability");
}

/* AP-10: a stream is preferred; progress is asked for only when it dries up. */
static void test_watch(void **state)
{
    (void)state;
    struct cfg_plugin p =
        plugin("\"watch\",\"" ALL "\"",
               "watch) echo 'to the journal' >&2; for i in 1 2 3 4 5; do echo "
               "\"{\\\"nCompleted\\\":$i,\\\"nTotal\\\":5,\\\"started\\\":\\\"now\\\"}\"; sleep 0.1; done\n"
               "printf '{\"completed\":true,\"nCompleted\":5,\"result\":{\"tape\":\"T8\"}}';;");
    run(&p, NULL, 10);
    assert_ended(MOVER_OK, "");
    assert_int_equal(seen.progress, 6);
    assert_int_equal(calls("progress"), 0);
    assert_string_equal(json_string_value(json_object_get(json_object_get(seen.result, "stored"), "tape")), "T8");
}

static void test_watch_breaks(void **state)
{
    (void)state;
    struct cfg_plugin p =
        plugin("\"watch\",\"" ALL "\"",
               "watch) exit 1;;\nprogress) n=$(grep -c progress $D/calls)\n"
               "[ $n -ge 5 ] && c=true || c=false; echo \"{$P,\\\"completed\\\":$c,\\\"nCompleted\\\":$n}\""
               ";;\nresult) " SAYS("\\\"result\\\":{}") ";;");
    run(&p, NULL, 15);
    assert_ended(MOVER_OK, "");
    assert_in_range(calls("watch"), 1, 3); /* then it is only asked */
}

/* ---- bad beginnings ---- */

static void test_not_installed(void **state)
{
    (void)state;
    struct cfg_plugin p = plugin("", "");
    unlink(p.program);
    run(&p, NULL, 5);
    assert_ended(MOVER_FAILED, "plugin tape not installed"); /* AO-24 */
    assert_int_equal(seen.err.sys, ENOPKG);
}

static void test_bad_starts(void **state)
{
    (void)state;
    static const struct {
        const char *cases;
        enum mover_outcome outcome;
        const char *says;
    } t[] = {
        {"start) echo nonsense;;", MOVER_FAILED, "not JSON"},
        {"start) " SAYS("\\\"id\\\":5") ";;", MOVER_FAILED, "not text"},
        {"start) " SAYS("\\\"x\\\":5") ";;", MOVER_FAILED, "neither \"id\" nor \"skip\""},
        {"start) " SAYS("\\\"id\\\":\\\"a\\\",\\\"skip\\\":\\\"b\\\"") ";;", MOVER_FAILED, "both"},
        {"start) printf '{\"protocol\":1,\"id\":\"'; head -c 129 /dev/zero | tr '\\0' x; printf '\"}';;", MOVER_FAILED,
         "129 characters"},
        {"start) " SAYS("\\\"id\\\":\\\"a\\tb\\\"") ";;", MOVER_FAILED, "not JSON"},
        {"start) echo '{\"error\":\"no tape\"}'; exit 1;;", MOVER_FAILED, "start: no tape, plugin: tape"},
        {"start) echo '{\"error\":\"drive in use\"}'; exit 75;;", MOVER_TRANSIENT, "drive in use"},
        {"describe) exit 1;;", MOVER_FAILED, "describe"},
        {"describe) " SAYS("\\\"name\\\":\\\"t\\\",\\\"version\\\":\\\"1\\\",\\\"kind\\\":\\\"driver\\\","
                           "\\\"abilities\\\":[]") ";;",
         MOVER_FAILED, "it is a driver plugin"},
        {"describe) echo '{\"protocol\":7}';;", MOVER_FAILED, "version 7"},
        {"applies) exit 1;;", MOVER_FAILED, "applies"},
        {"start) exec sleep 100;;", MOVER_NEVER_STARTED, "timed out after 2 s"}, /* AP-05 */
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct cfg_plugin p = plugin("\"" ALL "\"", t[i].cases);
        again();
        run(&p, NULL, 10);
        assert_ended(t[i].outcome, t[i].says);
        assert_int_equal(seen.ready, 0);
    }
    assert_true(there("cleaned")); /* the one that was killed may have begun something */
}

static void test_no_restore(void **state)
{
    (void)state;
    struct cfg_plugin p = plugin("\"" ALL "\"", "");
    struct err e = ERR_INIT;
    CLEANUP_PLUGIN_JSON json_t *q = json_pack("{s:s}", "direction", "restore");
    const struct mover_spec s = {.operation = "down-1.v", .plugin = &p, .job = q, .device_fd = -1};
    assert_ok(movers_start(movers, &s, &e), &e);
    turn_until(has_ended, 5);
    assert_ended(MOVER_FAILED, "restore: not among its abilities");
    assert_int_equal(calls("start"), 0);
}

/* ---- bad middles ---- */

static void test_completed_with_error(void **state)
{
    (void)state;
    struct cfg_plugin p = plugin("\"" ALL "\"", "progress) " SAYS("\\\"completed\\\":true,\\\"error\\\":\\\"tape "
                                                                  "tore\\\"") ";;");
    run(&p, NULL, 5);
    assert_ended(MOVER_FAILED, "tape tore, plugin: tape"); /* AO-26 */
    assert_true(there("cleaned"));
    again();
    p = plugin("\"" ALL "\"",
               "progress) " SAYS("\\\"completed\\\":true,\\\"transient\\\":true,\\\"error\\\":\\\"busy\\\"") ";;");
    run(&p, NULL, 5);
    assert_ended(MOVER_TRANSIENT, "busy");
    again();
    p = plugin("\"" ALL "\"", "progress) exit 16;;");
    run(&p, NULL, 5);
    assert_ended(MOVER_DIED, "progress"); /* it lost the operation */
}

/* AO-25: errors are retried; given up, it is cancelled, and the end waits for the plugin or its cleanup. */
static void test_progress_errors(void **state)
{
    (void)state;
    struct cfg_plugin p = plugin(
        "\"" ALL "\"", "progress) n=$(grep -c progress $D/calls); case $n in 1) exit 1;; 2) echo nonsense;;\n"
                       "*) echo \"{$P,\\\"completed\\\":true}\";; esac;;\nresult) " SAYS("\\\"result\\\":{}") ";;");
    run(&p, NULL, 5);
    assert_ended(MOVER_OK, "");
    assert_int_equal(calls("cancel"), 0);
    again();
    p = plugin("\"" ALL "\"",
               "progress) [ -e $D/canceled ] && echo \"{$P,\\\"completed\\\":true,\\\"canceled\\\":true}\" || "
               "echo '{\"protocol\":1,\"nCompleted\":-4}';;");
    run(&p, NULL, 10);
    assert_ended(MOVER_FAILED, "progress failed 3 times in a row");
    assert_int_equal(calls("cancel"), 1);
    again();
    /* It never says anything of use again: cleanup ends it. */
    p = plugin("\"" ALL "\"", "progress) exit 1;;\ncancel) exit 1;;");
    struct mover_times t = {.cancel_grace_s = 1};
    char path[300];
    snprintf(path, sizeof path, "%s/cleaned", dir);
    unlink(path);
    run(&p, &t, 10);
    assert_ended(MOVER_FAILED, "progress failed");
    assert_true(there("cleaned"));
    assert_true(calls("cancel") > 1);
}

static void test_stall_and_duration(void **state)
{
    (void)state;
    struct cfg_plugin p =
        plugin("\"" ALL "\"", "progress) [ -e $D/canceled ] && c=true || c=false\n"
                              "echo \"{$P,\\\"completed\\\":$c,\\\"canceled\\\":$c,\\\"nCompleted\\\":7,"
                              "\\\"nTotal\\\":9}\";;");
    struct mover_times t = {.stall_timeout_s = 2};
    run(&p, &t, 10);
    assert_ended(MOVER_HUNG, "no progress for 2 s (last: 7 of 9 Bytes)");
    assert_true(there("cleaned"));
    again();
    p = plugin("\"" ALL "\"", "progress) [ -e $D/canceled ] && c=true || c=false; n=$(grep -c progress $D/calls)\n"
                              "echo \"{$P,\\\"completed\\\":$c,\\\"canceled\\\":$c,\\\"nCompleted\\\":$n}\";;");
    char path[300];
    snprintf(path, sizeof path, "%s/canceled", dir);
    unlink(path);
    t = (struct mover_times){.max_duration_s = 2, .stall_timeout_s = 60};
    run(&p, &t, 10);
    assert_ended(MOVER_FAILED, "max-duration of");
}

/* ---- cancel (AP-08, AO-34, AO-35) ---- */

static void test_cancel(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct cfg_plugin p =
        plugin("\"" ALL "\"", "progress) [ -e $D/canceled ] && c=true || c=false\n"
                              "echo \"{$P,\\\"completed\\\":$c,\\\"canceled\\\":$c,\\\"nCompleted\\\":7}\";;");
    assert_int_equal(movers_cancel(movers, "up-1.v", 0, &e), -ESRCH);
    start(&p, NULL);
    turn_until(has_progress, 5);
    assert_ok(movers_cancel(movers, "up-1.v", 0, &e), &e);
    assert_ok(movers_cancel(movers, "up-1.v", 0, &e), &e);
    turn_until(has_ended, 5);
    assert_ended(MOVER_CANCELED, "canceled");
    assert_int_equal(seen.err.cls, ERR_INTERRUPTED);
    assert_int_equal(calls("cancel"), 1);
    assert_true(there("cleaned"));
}

/* Deaf to cancel: at the deadline cleanup ends it. */
static void test_cancel_deaf(void **state)
{
    (void)state;
    struct cfg_plugin p =
        plugin("\"" ALL "\"",
               "progress) " SAYS("\\\"nCompleted\\\":7") ";;\ncancel) " SAYS("\\\"ack\\\":\\\"impossible\\\"") ";;");
    start(&p, NULL);
    turn_until(has_progress, 5);
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    movers_cancel(movers, "up-1.v", ((int64_t)t.tv_sec + 2) * 1000000000, NULL);
    turn_until(has_ended, 8);
    assert_ended(MOVER_CANCELED, "canceled");
    assert_true(there("cleaned"));
    assert_true(calls("progress") >= 2); /* AO-35: asked on after the cancel */
}

static void test_cancel_early_and_late(void **state)
{
    (void)state;
    struct cfg_plugin p = plugin(
        "\"" ALL "\"",
        "start) sleep 0.5; " SAYS("\\\"id\\\":\\\"x\\\"") ";;\n"
                                                          "progress) [ -e $D/canceled ] && c=true || c=false\n"
                                                          "echo \"{$P,\\\"completed\\\":$c,\\\"canceled\\\":$c}\";;");
    /* before anything was asked */
    start(&p, NULL);
    movers_cancel(movers, "up-1.v", 0, NULL);
    turn_until(has_ended, 5);
    assert_ended(MOVER_CANCELED, "canceled");
    assert_int_equal(calls("start"), 0);
    /* while start runs: its id is known first, then it is cancelled */
    again();
    start(&p, NULL);
    sd_event_run(loop, 100000);
    sd_event_run(loop, 100000);
    movers_cancel(movers, "up-1.v", 0, NULL);
    turn_until(has_ended, 5);
    assert_ended(MOVER_CANCELED, "canceled");
    /* from within the event */
    char path[300];
    snprintf(path, sizeof path, "%s/canceled", dir);
    unlink(path);
    again();
    seen.ready = 0;
    seen.cancel_when_ready = true;
    start(&p, NULL);
    turn_until(has_ended, 5);
    assert_ended(MOVER_CANCELED, "canceled");
    seen.cancel_when_ready = false;
    /* too late: the result is a fact */
    again();
    p = plugin("\"" ALL "\"",
               "progress) " SAYS("\\\"completed\\\":true") ";;\nresult) " SAYS("\\\"result\\\":{}") ";;");
    start(&p, NULL);
    turn_until(is_ready, 5);
    movers_cancel(movers, "up-1.v", 0, NULL);
    turn_until(has_ended, 5);
    assert_ended(MOVER_OK, "");
}

/* Bounded in time: a cleanup that never works is said. */
static void test_cleanup_fails(void **state)
{
    (void)state;
    struct cfg_plugin p = plugin("\"" ALL "\"", "progress) " SAYS("\\\"nCompleted\\\":7") ";;\ncleanup) exit 1;;");
    struct mover_times t = {.cancel_grace_s = 1};
    start(&p, &t);
    turn_until(has_progress, 5);
    movers_cancel(movers, "up-1.v", 0, NULL);
    turn_until(has_ended, 15);
    assert_ended(MOVER_CANCELED, "it may still be working");
    assert_int_equal(calls("cleanup"), 8);
    again();
    seen.progress = 0;
    p = plugin("\"progress\"", "progress) " SAYS("\\\"nCompleted\\\":7") ";;");
    start(&p, &t);
    turn_until(has_progress, 5);
    movers_cancel(movers, "up-1.v", 0, NULL);
    turn_until(has_ended, 15);
    assert_ended(MOVER_CANCELED, "no ability \"cleanup\"");
}

/* ---- after a restart of the daemon ---- */

static void test_resume(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct cfg_plugin p =
        plugin("\"" ALL "\"",
               "progress) [ -e $D/finish ] && c=true || c=false\n"
               "echo \"{$P,\\\"completed\\\":$c,\\\"nCompleted\\\":7}\";;\nresult) " SAYS("\\\"result\\\":{}") ";;");
    start(&p, NULL);
    turn_until(has_progress, 5);
    char id[PLUGIN_ID_MAX + 1], path[300];
    snprintf(id, sizeof id, "%s", seen.id);
    movers_free(movers);
    steps_free(steps);
    assert_ok(steps_new(&steps, loop, &e), &e);
    make_movers();
    snprintf(path, sizeof path, "%s/finish", dir);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(adopt(&p, "", &e), -EINVAL);
    assert_ok(adopt(&p, id, &e), &e);
    turn_until(has_ended, 5);
    assert_ended(MOVER_OK, "");
    assert_int_equal(calls("start"), 1);
    assert_int_equal(seen.ready, 2);
}

/* ---- style (b): run ---- */

static void test_run(void **state)
{
    (void)state;
    struct cfg_plugin p =
        plugin("\"run\",\"cleanup\"",
               "run) cat >$D/request; echo 'to the log' >&2; for i in 1 2 3; do echo "
               "\"{\\\"nCompleted\\\":$i,\\\"nTotal\\\":3,\\\"started\\\":\\\"now\\\"}\"; sleep 0.2; done\n"
               "echo '{\"completed\":true,\"nCompleted\":3,\"result\":{\"tape\":\"T9\"}}';;");
    run(&p, NULL, 10);
    assert_ended(MOVER_OK, "");
    assert_int_equal(seen.ready, 1);
    assert_true(seen.pid > 1);
    assert_memory_equal(seen.id, "run:", 4);
    assert_int_equal(seen.progress, 4);
    assert_string_equal(json_string_value(json_object_get(json_object_get(seen.result, "stored"), "tape")), "T9");
    assert_int_equal(calls("start"), 0);
    assert_true(there("request"));
    clean_up(&p);
    char path[4200];
    plugin_run_path(path, sizeof path, dir, "up-1.v", PV_RUN, "out");
    assert_true(access(path, F_OK) < 0); /* nothing left behind */
}

/* Not a zombie: who inherits an orphan may not be quick to reap it. */
static bool alive(pid_t pid)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    char *got = fgets(text, sizeof text, f);
    fclose(f);
    return got && strrchr(text, ')') && strncmp(strrchr(text, ')'), ") Z", 3) != 0;
}

static void test_run_bad_ends(void **state)
{
    (void)state;
    static const struct {
        const char *cases;
        enum mover_outcome outcome;
        const char *says;
    } t[] = {
        {"run) exit 0;;", MOVER_DIED, "without reporting completion"},
        {"run) echo '{\"nCompleted\":5,\"nTotal\":9}'; kill -9 $$;;", MOVER_DIED, "5 of 9 Bytes"},
        {"run) echo '{\"completed\":true,\"error\":\"tore\"}';;", MOVER_FAILED, "tore, plugin: tape"},
        {"run) echo '{\"skip\":\"nothing\"}';;", MOVER_OK, ""},
        {"run) echo '{\"completed\":tru';;", MOVER_DIED, "without reporting"},
        {"run) while :; do echo garbage; sleep 0.1; done;;", MOVER_FAILED, "progress failed"},
        {"run) exec yes '{\"nCompleted\":1}';;", MOVER_FAILED, "flooded"},
        {"run) exec cat /dev/zero;;", MOVER_FAILED, "flooded"},
        {"run) exec yes >&2;;", MOVER_FAILED, "flooded"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct cfg_plugin p = plugin("\"run\"", t[i].cases);
        struct mover_times times = {.cancel_grace_s = 1};
        again();
        run(&p, &times, 20);
        assert_ended(t[i].outcome, t[i].says);
    }
}

/* SIGTERM, and for the deaf SIGKILL, to all of its group. */
static void test_run_cancel(void **state)
{
    (void)state;
    char path[300];
    int child = 0;
    struct cfg_plugin p =
        plugin("\"run\"", "run) trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >'$D'/child; exec sleep 500' &\n"
                          "while :; do echo '{\"nCompleted\":1}'; sleep 0.2; done;;");
    struct mover_times t = {.cancel_grace_s = 1};
    start(&p, &t);
    turn_until(has_progress, 5);
    movers_cancel(movers, "up-1.v", 0, NULL);
    turn_until(has_ended, 8);
    assert_ended(MOVER_CANCELED, "canceled");
    snprintf(path, sizeof path, "%s/child", dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &child), 1);
    fclose(f);
    usleep(200000);
    assert_false(alive(child) || alive(seen.pid));
    /* A polite one says so itself. */
    again();
    seen.progress = 0;
    p = plugin("\"run\"", "run) trap 'echo \"{\\\"completed\\\":true,\\\"canceled\\\":true}\"; exit 0' TERM\n"
                          "while :; do echo '{\"nCompleted\":1}'; sleep 0.1; done;;");
    t.cancel_grace_s = 60;
    start(&p, &t);
    turn_until(has_progress, 5);
    movers_cancel(movers, "up-1.v", 0, NULL);
    turn_until(has_ended, 8);
    assert_ended(MOVER_CANCELED, "canceled");
}

/* The daemon goes and comes back: the process keeps its PID, and what it said meanwhile is not lost. */
static void test_run_resume(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct cfg_plugin p =
        plugin("\"run\"", "run) echo '{\"nCompleted\":1}'; while [ ! -e $D/finish ]; do sleep 0.1; done\n"
                          "echo '{\"completed\":true,\"nCompleted\":2}';;");
    start(&p, NULL);
    turn_until(has_progress, 5);
    char id[PLUGIN_ID_MAX + 1], path[300];
    pid_t pid = seen.pid;
    snprintf(id, sizeof id, "%s", seen.id);
    movers_free(movers);
    steps_free(steps);
    assert_true(alive(pid));
    assert_ok(steps_new(&steps, loop, &e), &e);
    make_movers();
    assert_ok(adopt(&p, id, &e), &e);
    seen.ready = 0;
    turn_until(is_ready, 5);
    assert_int_equal(seen.pid, pid);
    /* again, and this time it ends while nobody looks */
    movers_free(movers);
    snprintf(path, sizeof path, "%s/finish", dir);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    for (int i = 0; i < 50 && alive(pid); i++)
        usleep(50000);
    make_movers();
    assert_ok(adopt(&p, id, &e), &e);
    turn_until(has_ended, 5);
    assert_ended(MOVER_OK, "");
    assert_int_equal(json_integer_value(json_object_get(seen.result, "bytes")), 2);
    /* an id of another life */
    again();
    assert_ok(adopt(&p, "run:4711:1:00000000-0000-0000-0000-000000000000", &e), &e);
    turn_until(has_ended, 5);
    assert_ended(MOVER_DIED, "");
}

/* Asked twice for the same operation, as after a crash between the start and the record: one process. */
static void test_run_twice(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct cfg_plugin p = plugin("\"run\"", "run) exec sleep 300;;");
    CLEANUP_PLUGIN_JSON json_t *in = plugin_step_in(&p, PV_RUN, NULL), *a = NULL, *b = NULL;
    json_object_set_new(in, "dir", json_string(dir));
    json_object_set_new(in, "operation", json_string("up-2.v"));
    int fd = -1;
    assert_ok(plugin_run_step(in, &a, &fd, &e), &e);
    assert_ok(plugin_run_step(in, &b, &fd, &e), &e);
    assert_true(json_equal(a, b));
    struct process_identity i;
    assert_int_equal(process_id_parse(&i, json_string_value(json_object_get(a, "id"))), 0);
    kill(-i.pid, SIGKILL);
    waitpid(i.pid, NULL, 0);
    assert_int_equal(process_open_running(&i), -ESRCH);
    static const char *const bad[] = {"",
                                      "run:",
                                      "run:1:2:x",
                                      "run:0:1:00000000-0000-0000-0000-000000000000",
                                      "run:5:1:00000000-0000-0000-0000-000000000000x",
                                      "id-1"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        assert_int_equal(process_id_parse(&i, bad[k]), -EINVAL);
    i = (struct process_identity){.pid = getpid(), .start_time = 1};
    assert_int_equal(process_open_running(&i), -ESRCH);
}

/* Killed at each crash point of the beginning; the next attempt works, and nothing ran beside it. */
static void test_crashes_at_the_beginning(void **state)
{
    (void)state;
    static const struct {
        const char *point, *abilities;
        unsigned runs; /* how often the program of `run` (or start) began in all */
    } t[] = {{"plugin-run-forked", "\"run\",\"cleanup\"", 1},
             {"plugin-run-identified", "\"run\",\"cleanup\"", 1},
             {"plugin-started", "\"run\",\"cleanup\"", 2},
             {"plugin-started", "\"" ALL "\"", 2}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/calls", dir);
        unlink(path);
        struct cfg_plugin p =
            plugin(t[i].abilities,
                   "run) sleep 1; echo '{\"completed\":true}';;\nprogress) " SAYS("\\\"completed\\\":true") ";;");
        setenv("SNAPFERRY_CRASH_AT", t[i].point, 1);
        again();
        run(&p, NULL, 10);
        unsetenv("SNAPFERRY_CRASH_AT");
        assert_ended(MOVER_NEVER_STARTED, "killed by signal 9");
        again();
        run(&p, NULL, 10);
        assert_ended(MOVER_OK, "");
        assert_int_equal(calls("run") + calls("start"), t[i].runs);
    }
}

/* ---- reading output ---- */

struct got {
    unsigned n;
    char last[80];
};
static void got_line(const char *line, size_t len, void *arg)
{
    struct got *g = arg;
    g->n++;
    snprintf(g->last, sizeof g->last, "%.*s", (int)len, line);
}
static void test_tail(void **state)
{
    (void)state;
    char path[300], line[100];
    struct err e = ERR_INIT;
    struct got g = {0};
    struct stat st;
    struct tail *t;
    snprintf(path, sizeof path, "%s/out", dir);
    int fd = open(path, O_CREAT | O_WRONLY | O_APPEND, 0600);
    assert_true(fd >= 0);
    assert_ok(tail_open(&t, path, &e), &e);
    assert_int_equal(write(fd, "one\n\ntw", 7), 7);
    assert_int_equal(tail_read(t, false, got_line, &g), 0);
    assert_int_equal(g.n, 1);
    assert_int_equal(write(fd, "o\nthree", 7), 7);
    assert_int_equal(tail_read(t, false, got_line, &g), 0);
    assert_string_equal(g.last, "two");
    assert_int_equal(tail_read(t, true, got_line, &g), 0);
    assert_string_equal(g.last, "three");
    /* What was read is given back, and a later reader begins at a whole line. */
    for (unsigned i = 0; i < 60000; i++) {
        int n = snprintf(line, sizeof line, "%089u\n", i);
        assert_int_equal(write(fd, line, (size_t)n), n);
        if (i % 1000 == 0)
            while (tail_read(t, false, got_line, &g) == 1)
                ;
    }
    while (tail_read(t, false, got_line, &g) == 1)
        ;
    tail_free(t);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_blocks * 512 < 2 << 20);
    assert_ok(tail_open(&t, path, &e), &e);
    g.n = 0;
    while (tail_read(t, false, got_line, &g) == 1)
        ;
    assert_true(g.n > 5000 && g.n < 30000);
    assert_int_equal(strlen(g.last), 79);
    tail_free(t);
    close(fd);
    assert_true(tail_open(&t, "/nonexistent", &e) < 0);
}

/* ---- steps: delete, verify, logs; forget ---- */

static json_t *answer;
static struct err answer_err;
static bool answered;
static void on_step(struct step_result *r, void *arg)
{
    (void)arg;
    answer = json_incref(r->out);
    answer_err = r->err;
    answered = true;
}
static bool has_answer(void)
{
    return answered;
}
static void step(const struct cfg_plugin *p, enum plugin_verb v)
{
    struct err e = ERR_INIT;
    CLEANUP_PLUGIN_JSON json_t *args = json_pack("{s:s, s:s}", "operation", "up-1", "id", "x");
    CLEANUP_PLUGIN_JSON json_t *in = plugin_step_in(p, v, args);
    json_decref(answer);
    answer = NULL;
    answered = false;
    assert_ok(step_start(steps, "test", plugin_step, in, plugin_step_timeout(p, v), on_step, NULL, NULL, &e), &e);
    turn_until(has_answer, 10);
    assert_true(answered);
}
static void test_steps(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct cfg_plugin p = plugin("\"delete\",\"cleanup\"", "delete) " SAYS("\\\"gone\\\":true") ";;");
    step(&p, PV_DELETE);
    assert_int_equal(answer_err.cls, ERR_NONE);
    assert_true(json_is_true(json_object_get(answer, "gone")));
    step(&p, PV_VERIFY); /* an ability that it lacks: not even asked */
    assert_int_equal(answer_err.sys, ENOTSUP);
    assert_int_equal(calls("verify"), 0);
    json_decref(answer);
    answer = NULL;
    assert_ok(movers_forget(movers, "up-9.v", &p, "x", &e), &e);
    assert_false(movers_has(movers, "up-9.v"));
    turn_until(no_steps, 5);
    assert_true(there("cleaned"));
}

/* AP-16: the plugin's own log is kept before it cleans up; what is no log is refused, and the backup counts. */
static void test_logs(void **state)
{
    (void)state;
    static const char done[] = "progress) " SAYS("\\\"completed\\\":true,\\\"nCompleted\\\":1") ";;\n";
    static const struct {
        const char *says;
        const char *text; /* NULL: none is kept */
    } cases[] = {
        {"logs) printf %s '{\"protocol\":1,\"text\":\"drive 2\\nwrote \\u001b[31m7\"}';;", "drive 2\nwrote  [31m7\n"},
        {"logs) printf %s '{\"protocol\":1,\"text\":\"\"}';;", ""},
        {"logs) printf %s '{\"protocol\":1,\"text\":7}';;", NULL},
        {"logs) printf %s '{\"protocol\":1,\"text\":\"a\\u0000b\"}';;", NULL},
        {"logs) printf %s '{\"protocol\":1}';;", NULL},
        {"logs) head -c 3000000 /dev/zero | tr '\\0' x;;", NULL},
        {"logs) echo nonsense;;", NULL},
        {"logs) exit 16;;", NULL}};
    char path[600], logs[300], cases_text[600], text[64];
    snprintf(logs, sizeof logs, "%s/logs", dir);
    assert_int_equal(plugin_log_path(path, sizeof path, dir, "up-1.v"), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(cases_text, sizeof cases_text, "%s%s", done, cases[i].says);
        struct cfg_plugin p = plugin("\"progress\",\"logs\",\"cleanup\"", cases_text);
        unlink(path);
        run(&p, NULL, 15);
        assert_ended(MOVER_OK, "");
        assert_int_equal(calls("logs"), i + 1);
        assert_int_equal(calls("cleanup"), 0);
        FILE *f = fopen(path, "r");
        assert_int_equal(f != NULL, cases[i].text != NULL);
        if (f) {
            text[fread(text, 1, sizeof text - 1, f)] = '\0';
            assert_string_equal(text, cases[i].text);
            fclose(f);
        }
        again();
    }
}

/* A daemon that ends in the middle of a question: nothing is called, nothing leaks. */
static void test_free_in_the_middle(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct cfg_plugin p = plugin("\"" ALL "\"", "start) sleep 100;;");
    start(&p, NULL);
    for (int i = 0; i < 5; i++)
        sd_event_run(loop, 50000);
    movers_free(movers);
    steps_free(steps);
    assert_ok(steps_new(&steps, loop, &e), &e);
    make_movers();
    assert_int_equal(seen.ended, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_start_progress_result),
        T(test_skipped),
        T(test_all_in_start),
        T(test_watch),
        T(test_watch_breaks),
        T(test_not_installed),
        T(test_bad_starts),
        T(test_no_restore),
        T(test_completed_with_error),
        T(test_progress_errors),
        T(test_stall_and_duration),
        T(test_cancel),
        T(test_cancel_deaf),
        T(test_cancel_early_and_late),
        T(test_cleanup_fails),
        T(test_resume),
        T(test_run),
        T(test_run_bad_ends),
        T(test_run_cancel),
        T(test_run_resume),
        T(test_run_twice),
        T(test_crashes_at_the_beginning),
        T(test_tail),
        T(test_steps),
        T(test_logs),
        T(test_free_in_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
