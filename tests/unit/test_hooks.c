/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_hooks.c - what a hook is told, how it may fail, and that the post-snapshot hook runs whatever happens (CF-48,
 * E-18) */
#include "tests/unit/test.h"

#include "daemon/engine/hooks.h"
#include "proc/step.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static char dir[] = "/tmp/snapferry-hooks.XXXXXX";

static int setup(void **state)
{
    (void)state;
    setenv("SNAPFERRY_NO_SYSTEMD", "1", 1);
    return mkdtemp(dir) && chmod(dir, 0755) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

/* A hook in the scratch directory, which is its $D. Static buffer. */
static const char *hook(const char *body)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/hook", dir);
    unlink(path);
    CLEANUP_FCLOSE FILE *f = fopen(path, "we");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\nD=%s\n%s\n", dir, body);
    assert_int_equal(fchmod(fileno(f), 0755), 0);
    return path;
}

/* Contents of a file there, "" if there is none. Static buffer. */
static const char *slurp(const char *name)
{
    static char buf[8192];
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CLEANUP_FCLOSE FILE *f = fopen(path, "re");
    size_t n = f ? fread(buf, 1, sizeof buf - 1, f) : 0;
    buf[n] = '\0';
    return buf;
}

static bool appears(const char *name, double seconds)
{
    for (int i = 0; i < (int)(seconds * 100); i++) {
        if (slurp(name)[0])
            return true;
        usleep(10000);
    }
    return false;
}

static json_t *request(const char *phase, const char *operation, int timeout)
{
    char path[128];
    snprintf(path, sizeof path, "%s/hook", dir);
    json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:{s:s, s:s, s:i}, s:s, s:s, s:i}", "program", path, "phase", phase,
                          "backup", "nightly-1", "operation", operation, "volume", "name", "/srv/vm/a b.img", "id",
                          "file-1", "size", 4096, "class", "images", "result", "ok", "timeout_s", timeout);
    assert_non_null(j);
    return j;
}

static void test_what_a_hook_is_told(void **state)
{
    (void)state;
    hook("cat >$D/facts; echo \"$#|$1|$2\" >$D/args; env | grep SNAPFERRY_ | sort >$D/env; echo printed");
    json_t *in = request("pre-snapshot", "up-1", 5), *out = NULL;
    struct err e = ERR_INIT;
    int fd = -1;
    assert_ok(hook_step(in, &out, &fd, &e), &e);
    assert_string_equal(slurp("args"), "2|pre-snapshot|/srv/vm/a b.img\n");
    assert_string_equal(slurp("env"), "SNAPFERRY_BACKUP=nightly-1\nSNAPFERRY_CLASS=images\nSNAPFERRY_DEVICE=\n"
                                      "SNAPFERRY_JOB=\nSNAPFERRY_OPERATION=up-1\nSNAPFERRY_PHASE=pre-snapshot\n"
                                      "SNAPFERRY_RESULT=ok\nSNAPFERRY_VOLUME=/srv/vm/a b.img\n"
                                      "SNAPFERRY_VOLUME_ID=file-1\n");
    json_t *facts = json_loads(slurp("facts"), 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(facts, "version")), 1);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(facts, "volume"), "size")), 4096);
    assert_null(json_object_get(facts, "program"));
    json_decref(facts);
    assert_int_equal(json_integer_value(json_object_get(out, "exit_code")), 0);
    assert_string_equal(json_string_value(json_object_get(out, "output")), "printed");
    json_decref(out);
    json_decref(in);
}

static void test_failures(void **state)
{
    (void)state;
    struct {
        const char *body, *word;
    } c[] = {{"echo no such database >&2; exit 3", "pre-snapshot hook of /srv/vm/a b.img: "},
             {"echo no such database >&2; exit 3", "exit code 3: no such database"},
             {"kill -9 $$", "killed by signal 9"},
             {"sleep 30", "timed out after 1 s"},
             {"yes", "wrote more than"}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        hook(c[i].body);
        json_t *in = request("pre-snapshot", "up-1", 1), *out = NULL;
        struct err e = ERR_INIT;
        int fd = -1;
        assert_true(hook_step(in, &out, &fd, &e) < 0);
        assert_non_null(strstr(e.msg, c[i].word));
        json_decref(in);
        json_decref(out);
    }
    /* What it prints may be anything. */
    hook("printf '\\377\\0\\n\\n'");
    json_t *in = request("x", "up-1", 5), *out = NULL;
    struct err e = ERR_INIT;
    int fd = -1;
    assert_ok(hook_step(in, &out, &fd, &e), &e);
    assert_string_equal(json_string_value(json_object_get(out, "output")), "??");
    json_decref(out);
    json_object_del(in, "phase");
    assert_true(hook_step(in, &out, &fd, &e) < 0);
    json_decref(in);
}

static int seen;
static struct err seen_err;
static void done(struct step_result *r, void *arg)
{
    (void)arg;
    seen++;
    seen_err = r->err;
}

/* As the engine uses it; a canceled step leaves nothing of the hook behind. */
static void test_as_a_step(void **state)
{
    (void)state;
    sd_event *loop;
    struct steps *steps;
    struct step *t;
    struct err e = ERR_INIT;
    assert_return_code(sd_event_new(&loop), errno);
    assert_ok(steps_new(&steps, loop, &e), &e);
    hook("sleep 100 & echo $! >$D/sleeper; wait");
    json_t *in = request("pre-snapshot", "up-1", 60);
    assert_ok(step_start(steps, "hook", hook_step, in, 70, done, NULL, &t, &e), &e);
    assert_true(appears("sleeper", 5));
    step_cancel(t);
    for (int i = 0; i < 50 && !seen; i++)
        sd_event_run(loop, 100000);
    assert_int_equal(seen, 1);
    pid_t sleeper = atoi(slurp("sleeper"));
    for (int i = 0; i < 300 && kill(sleeper, 0) == 0; i++)
        usleep(10000);
    assert_int_equal(kill(sleeper, 0), -1);
    hook("exit 9");
    assert_ok(step_start(steps, "hook", hook_step, in, 70, done, NULL, NULL, &e), &e);
    for (int i = 0; i < 50 && seen < 2; i++)
        sd_event_run(loop, 100000);
    assert_non_null(strstr(seen_err.msg, "exit code 9"));
    json_decref(in);
    steps_free(steps);
    sd_event_unref(loop);
}

static void test_watchdog_told_in_time(void **state)
{
    (void)state;
    hook("echo $1 >>$D/ran1");
    json_t *in = request("post-snapshot", "up-2", 5);
    struct err e = ERR_INIT;
    assert_ok(hook_watchdog_start(in, 1, &e), &e);
    assert_ok(hook_watchdog_start(in, 1, &e), &e); /* there is one already */
    assert_int_equal(hook_watchdogs_test(), 1);
    assert_false(hook_watchdog_stop("up-2"));
    assert_false(hook_watchdog_stop("up-2"));
    assert_int_equal(hook_watchdogs_test(), 0);
    usleep(1300000);
    assert_string_equal(slurp("ran1"), "");
    hook_watchdogs_test();
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no zombie */
    json_object_set_new(in, "program", json_string(""));
    assert_ok(hook_watchdog_start(in, 1, &e), &e);
    assert_int_equal(hook_watchdogs_test(), 0);
    json_decref(in);
}

static void test_watchdog_fires_at_the_deadline(void **state)
{
    (void)state;
    /* Fails the first time: what is stopped must go on, so it tries again. */
    hook("echo $1 >>$D/ran2; test $(wc -l <$D/ran2) -ge 2");
    json_t *in = request("post-snapshot", "up-3", 5);
    struct err e = ERR_INIT;
    assert_ok(hook_watchdog_start(in, 1, &e), &e);
    assert_true(appears("ran2", 3));
    for (int i = 0; i < 400 && strcmp(slurp("ran2"), "post-snapshot\npost-snapshot\n") != 0; i++)
        usleep(10000);
    assert_string_equal(slurp("ran2"), "post-snapshot\npost-snapshot\n");
    assert_true(hook_watchdog_stop("up-3"));
    json_decref(in);
}

/* The daemon dies by SIGKILL between freeze and thaw. */
static void test_watchdog_outlives_the_daemon(void **state)
{
    (void)state;
    hook("echo $1 >>$D/ran3");
    json_t *in = request("post-snapshot", "up-4", 5);
    pid_t daemon_pid = fork();
    if (daemon_pid == 0) {
        if (hook_watchdog_start(in, 100, NULL) == 0)
            pause();
        _exit(1);
    }
    usleep(200000);
    assert_string_equal(slurp("ran3"), "");
    kill(daemon_pid, SIGKILL);
    waitpid(daemon_pid, NULL, 0);
    assert_true(appears("ran3", 5));
    json_decref(in);
}

/* Signals that end a service are none of its business. */
static void test_watchdog_ignores_the_end_of_the_service(void **state)
{
    (void)state;
    hook("echo $1 >>$D/ran4");
    json_t *in = request("post-snapshot", "up-5", 5);
    struct err e = ERR_INIT;
    pid_t probe = fork();
    if (probe == 0) {
        if (hook_watchdog_start(in, 2, &e) < 0)
            _exit(1);
        usleep(200000);
        signal(SIGTERM, SIG_IGN);
        /* Itself and, by its parent, the watchdog: it is the only child. */
        char cmd[64];
        snprintf(cmd, sizeof cmd, "pkill -TERM -P %d snapferryd-thaw", (int)getpid());
        _exit(system(cmd) == 0 ? (usleep(300000), 0) : 2);
    }
    int status;
    waitpid(probe, &status, 0);
    assert_int_equal(status, 0);
    assert_true(appears("ran4", 4));
    json_decref(in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_hook_is_told),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_as_a_step),
        cmocka_unit_test(test_watchdog_told_in_time),
        cmocka_unit_test(test_watchdog_fires_at_the_deadline),
        cmocka_unit_test(test_watchdog_outlives_the_daemon),
        cmocka_unit_test(test_watchdog_ignores_the_end_of_the_service),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
