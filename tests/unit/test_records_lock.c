/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_records_lock.c - one daemon at a time, and a killed one does not stand in the way of the next (MS-11, E-03) */
#include "tests/unit/test.h"

#include "daemon/records/records.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static char dir[] = "/tmp/snapferry-lock.XXXXXX";

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A process that holds the records, and beside it a child of it that has inherited the lock and lives for `child_ms`.
 */
static pid_t holder(unsigned child_ms)
{
    int p[2];
    assert_int_equal(pipe(p), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct records *r = NULL;
        struct records_news news;
        if (records_open(&r, dir, &news, NULL) < 0)
            _exit(1);
        if (child_ms && fork() == 0) {
            usleep(child_ms * 1000);
            _exit(0);
        }
        if (write(p[1], "x", 1) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    char c;
    close(p[1]);
    assert_int_equal(read(p[0], &c, 1), 1);
    close(p[0]);
    return pid;
}

static void a_living_holder_is_refused_at_once(void **state)
{
    (void)state;
    pid_t pid = holder(0);
    struct records *r = NULL;
    struct records_news news;
    struct err e = ERR_INIT;
    double began = now();
    int rc = records_open(&r, dir, &news, &e);
    double took = now() - began;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_true(rc < 0);
    assert_int_equal(e.cls, ERR_BUSY);
    char number[24];
    snprintf(number, sizeof number, "%d", (int)pid);
    assert_non_null(strstr(e.msg, number));
    assert_true(took < 1);
}

static void a_dead_ones_child_is_waited_for(void **state)
{
    (void)state;
    pid_t pid = holder(700);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    struct records *r = NULL;
    struct records_news news;
    struct err e = ERR_INIT;
    double began = now();
    assert_ok(records_open(&r, dir, &news, &e), &e);
    assert_true(now() - began > 0.3); /* it did hold it */
    records_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_living_holder_is_refused_at_once),
        cmocka_unit_test(a_dead_ones_child_is_waited_for),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
