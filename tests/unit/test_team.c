/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The same work for many things by several threads: each once, the first failure ends it (issue 15). */
#include "tests/unit/test.h"

#include "base/team.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define THINGS 1000

struct work {
    atomic_uint done[THINGS];
    size_t fails_at; /* THINGS: none */
    pthread_barrier_t *meet;
    pthread_t caller;
    atomic_bool others;
};

static int one(void *arg, size_t i, struct err *e)
{
    struct work *w = arg;
    assert_true(i < THINGS);
    atomic_fetch_add(&w->done[i], 1);
    if (!pthread_equal(pthread_self(), w->caller))
        atomic_store(&w->others, true);
    if (w->meet && i < TEAM_FAR)
        pthread_barrier_wait(w->meet);
    return i == w->fails_at ? err_set(e, ERR_GENERIC, EIO, "thing %zu", i) : 0;
}

static size_t done_of(const struct work *w)
{
    size_t n = 0;
    for (size_t i = 0; i < THINGS; i++) {
        assert_true(w->done[i] <= 1);
        n += w->done[i];
    }
    return n;
}

/* As many as there are threads meet at the barrier: with one less it would not end. */
static void each_is_done_once_by_all_threads(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    pthread_barrier_t meet;
    pthread_barrier_init(&meet, NULL, TEAM_FAR);
    struct work w = {.fails_at = THINGS, .meet = &meet, .caller = pthread_self()};
    assert_ok(team_run(TEAM_FAR, THINGS, one, &w, &e), &e);
    assert_int_equal(done_of(&w), THINGS);
    pthread_barrier_destroy(&meet);
}

static void one_thread_is_the_callers(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct work w = {.fails_at = THINGS, .caller = pthread_self()};
    assert_ok(team_run(1, THINGS, one, &w, &e), &e);
    assert_int_equal(done_of(&w), THINGS);
    assert_false(w.others);
    assert_ok(team_run(TEAM_FAR, 0, one, &w, &e), &e);
    assert_int_equal(done_of(&w), THINGS);
}

static void a_failure_ends_it(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= TEAM_MOST; threads *= 4) {
        struct err e = ERR_INIT;
        struct work w = {.fails_at = 10, .caller = pthread_self()};
        assert_int_equal(team_run(threads, THINGS, one, &w, &e), -EIO);
        assert_non_null(strstr(e.msg, "thing 10"));
        const size_t done = done_of(&w);
        assert_true(done >= 11);
        if (threads == 1)
            assert_int_equal(done, 11);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_done_once_by_all_threads),
        cmocka_unit_test(one_thread_is_the_callers),
        cmocka_unit_test(a_failure_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
