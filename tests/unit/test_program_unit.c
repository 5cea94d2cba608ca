/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_program_unit.c - programs in transient units of their own, where systemd runs (AP-21) */
#include "tests/unit/test.h"

#include "proc/program-path.h"
#include "proc/program.h"
#include "proc/systemd.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static char dir[] = "/var/tmp/snapferry-unit.XXXXXX";

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) && chmod(dir, 0755) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static void need_systemd(void)
{
    if (!systemd_runs()) {
        print_message("SKIP: systemd is not PID 1 here\n");
        skip();
    }
}

static char *script(const char *text)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/s", dir);
    unlink(path);
    CLEANUP_FCLOSE FILE *f = fopen(path, "we");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\nD=%s\n%s\n", dir, text);
    assert_int_equal(fchmod(fileno(f), 0755), 0);
    return path;
}

/* 0: no unit is left. systemd collects those that have ended a little later. */
static int units(void)
{
    return system("for i in $(seq 100); do test -z \"$(systemctl list-units --all --no-legend 'snapferry-run-*')\" && "
                  "exit 0; sleep 0.1; done; exit 1");
}

static void test_what_it_is_told(void **state)
{
    (void)state;
    need_systemd();
    const char *env[] = {"ONE=1 $HOME ${x} %n", NULL};
    char *argv[] = {script("echo \"[$1][$2]\"; env | grep -v -E '^(PWD|SHLVL|_)='; cat; id -un; echo oops >&2;"
                           " grep ^0:: /proc/self/cgroup; exit 7"),
                    (char *)"a $HOME ${y} $$", (char *)"%i \\x", NULL};
    struct program p = {.argv = argv,
                        .env = env,
                        .label = "hook \"test\" %n",
                        .user = "nobody",
                        .input = "input\n",
                        .input_len = 6,
                        .timeout_s = 20};
    CLEANUP_FREE char *out = NULL;
    size_t len;
    int status = -1;
    struct err e = ERR_INIT;
    assert_ok(program_run(&p, &out, &len, &status, &e), &e);
    assert_int_equal(status, 7);
    const char *want = "[a $HOME ${y} $$][%i \\x]\nONE=1 $HOME ${x} %n\ninput\nnobody\n0::/system.slice/snapferry-run-";
    if (strncmp(out, want, strlen(want)) != 0)
        fail_msg("%s", out);
    assert_non_null(strstr(e.msg, "ended with exit code 7: oops"));
    assert_int_equal(units(), 0);
}

static void test_timeout_ends_the_unit(void **state)
{
    (void)state;
    need_systemd();
    char *argv[] = {script("setsid sleep 100 & echo $! >$D/pid; trap '' TERM; sleep 100; sleep 100"), NULL};
    struct program p = {.argv = argv, .label = "x", .timeout_s = 1};
    struct err e = ERR_INIT;
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    assert_int_equal(program_run(&p, NULL, NULL, NULL, &e), -ETIMEDOUT);
    clock_gettime(CLOCK_MONOTONIC, &b);
    assert_true(b.tv_sec - a.tv_sec < 10);
    assert_int_equal(units(), 0);
    char cmd[160];
    snprintf(cmd, sizeof cmd, "! kill -0 $(cat %s/pid) 2>/dev/null", dir); /* it had even left the session */
    assert_int_equal(system(cmd), 0);
}

static void test_dies_with_its_caller(void **state)
{
    (void)state;
    need_systemd();
    char *argv[] = {script("echo $$ >$D/pid2; sleep 100"), NULL};
    pid_t caller = fork();
    if (caller == 0) {
        struct program p = {.argv = argv, .label = "x", .timeout_s = 100};
        program_run(&p, NULL, NULL, NULL, NULL);
        _exit(0);
    }
    char cmd[160];
    snprintf(cmd, sizeof cmd, "for i in $(seq 50); do test -s %s/pid2 && exit 0; sleep 0.1; done; exit 1", dir);
    assert_int_equal(system(cmd), 0);
    kill(caller, SIGKILL);
    waitpid(caller, NULL, 0);
    assert_int_equal(units(), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], PROGRAM_RUN_OPTION))
        return program_run_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_it_is_told),
        cmocka_unit_test(test_timeout_ends_the_unit),
        cmocka_unit_test(test_dies_with_its_caller),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
