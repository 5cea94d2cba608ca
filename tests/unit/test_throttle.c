/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Rates are kept: how long something takes at least is certain, how long at most is not, on a machine that others use;
 * but by a clock of the test's own it is.
 */
#include "tests/unit/test.h"

#include "base/throttle.h"
#include "base/time.h"

#include <pthread.h>
#include <time.h>

/* ---- a clock that only sleeping moves ---- */

static bool own_clock;
static int64_t clock_ns, change_ns; /* when the rate is changed, 0: never */
static uint64_t change_to;
static _Atomic uint64_t the_rate;

int64_t __real_mono_ns(void);
int64_t __wrap_mono_ns(void);
int __real_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left);

int64_t __wrap_mono_ns(void)
{
    return own_clock ? clock_ns : __real_mono_ns();
}

int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
    if (!own_clock)
        return __real_nanosleep(t, left);
    clock_ns += timespec_ns(*t);
    if (change_ns && clock_ns >= change_ns) {
        atomic_store(&the_rate, change_to);
        change_ns = 0;
    }
    return 0;
}

static int clock_begin(void **state)
{
    (void)state;
    own_clock = true;
    clock_ns = 1000 * NS_PER_S;
    change_ns = 0;
    atomic_store(&the_rate, 0);
    return 0;
}

static int clock_end(void **state)
{
    (void)state;
    own_clock = false;
    return 0;
}

static double since(int64_t from)
{
    return (double)(clock_ns - from) / 1e9;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void none(void **state)
{
    (void)state;
    struct throttle t = {0};
    assert_int_equal(throttle_ahead_ns(NULL), 0);
    throttle_take(NULL, 1);
    throttle_wait(NULL, 1);
    throttle_wait(&t, UINT64_MAX);
    throttle_take(&t, UINT64_MAX);
    assert_int_equal(throttle_ahead_ns(&t), 0);
    _Atomic uint64_t passed = 0;
    t.passed = &passed;
    throttle_wait(&t, 12345);
    throttle_take(&t, 1);
    assert_int_equal(passed, 12345);
    assert_int_equal(throttle_piece(NULL, 4096, 1 << 20), 1 << 20);
    assert_int_equal(throttle_piece(&t, 4096, 1 << 20), 1 << 20);
}

static void *large_taker(void *arg)
{
    throttle_wait(arg, 1 << 19);
    return NULL;
}

/* The first goes at once, each one after it when the one before has had its time. */
static void one_after_another(void **state)
{
    (void)state;
    struct throttle t = {.rate = 1 << 20};
    const double began = now();
    assert_int_equal(throttle_ahead_ns(&t), 0);
    for (int i = 0; i < 5; i++)
        throttle_wait(&t, 1 << 16);
    assert_true(now() - began >= 4.0 / 16);
    const uint64_t ahead = throttle_ahead_ns(&t);
    assert_true(ahead <= 1000000000 / 16);
    throttle_wait(&t, 0); /* its turn, and nothing more */
    assert_true(now() - began >= 5.0 / 16);
    assert_int_equal(throttle_ahead_ns(&t), 0);
}

/* Many bytes at once are not a jump: others have their turns, and the counter moves with time. */
static void many_at_once(void **state)
{
    (void)state;
    _Atomic uint64_t passed = 0;
    struct throttle t = {.rate = 1 << 20, .passed = &passed};
    pthread_t thread;
    const double began = now();
    assert_int_equal(pthread_create(&thread, NULL, large_taker, &t), 0);
    for (uint64_t is; (is = atomic_load(&passed)) < 1 << 19;) {
        /* An eighth of a second's worth is ahead of its time. */
        if ((double)is > (now() - began) * (1 << 20) + (1 << 17))
            fail_msg("%llu bytes after %g s", (unsigned long long)is, now() - began);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    pthread_join(thread, NULL);
    assert_true(now() - began >= 3.0 / 8);
}

/* What nobody used is lost: after a pause there is no burst. */
static void no_burst(void **state)
{
    (void)state;
    struct throttle t = {.rate = 1 << 20};
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    const double began = now();
    for (int i = 0; i < 3; i++)
        throttle_wait(&t, 1 << 16);
    assert_true(now() - began >= 2.0 / 16);
}

/* Bytes that wait for two limits do so at once. (A busy machine makes it longer, but hardly each time.) */
static void two_limits(void **state)
{
    (void)state;
    struct throttle none = {0};
    assert_int_equal(throttle_reserve(NULL, 1), 0);
    assert_int_equal(throttle_reserve(&none, 1), 0);
    throttle_until(NULL, 0);
    throttle_until(&none, 0);
    double least = 10;
    for (int k = 0; k < 5 && least > 10.0 / 16; k++) {
        struct throttle a = {.rate = 1 << 20}, b = {.rate = 1 << 20};
        const double began = now();
        for (int i = 0; i < 8; i++) {
            const uint64_t at = throttle_reserve(&b, 1 << 16);
            throttle_wait(&a, 1 << 16);
            throttle_until(&b, at);
        }
        const double took = now() - began;
        assert_true(took >= 7.0 / 16);
        least = took < least ? took : least;
    }
    assert_true(least < 12.0 / 16); /* not 14 sixteenths */
}

static void *taker(void *arg)
{
    for (int i = 0; i < 8; i++)
        throttle_wait(arg, 1 << 14);
    return NULL;
}

static void threads_share_it(void **state)
{
    (void)state;
    struct throttle t = {.rate = 1 << 20};
    pthread_t threads[4];
    const double began = now();
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, taker, &t), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_true(now() - began >= 31.0 / 64);
}

static _Atomic bool stop;
static void *stopper(void *arg)
{
    (void)arg;
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    atomic_store(&stop, true);
    return NULL;
}

/* An hour's wait ends when it should. */
static void stops(void **state)
{
    (void)state;
    pthread_t thread;
    struct throttle t = {.rate = THROTTLE_MIN, .stop = &stop};
    throttle_take(&t, 3600 * THROTTLE_MIN);
    assert_true(throttle_ahead_ns(&t) > UINT64_C(3000) * 1000000000);
    assert_int_equal(pthread_create(&thread, NULL, stopper, NULL), 0);
    const double began = now();
    throttle_wait(&t, 1);
    assert_true(atomic_load(&stop));
    assert_true(now() - began < 600);
    throttle_wait(&t, 1);
    assert_int_equal(throttle_ahead_ns(&t), 0);
    pthread_join(thread, NULL);
}

/* What another thread sets counts for what is taken from then on. */
static void another_rate(void **state)
{
    (void)state;
    _Atomic uint64_t changed = 0;
    struct throttle t = {.rate = 1 << 20, .changed = &changed};
    throttle_take(&t, 1 << 20);
    assert_true(throttle_ahead_ns(&t) > 0);
    atomic_store(&changed, THROTTLE_NONE);
    assert_int_equal(throttle_ahead_ns(&t), 0);
    assert_int_equal(throttle_piece(&t, 4096, 1 << 20), 1 << 20);
    const double began = now();
    throttle_wait(&t, UINT64_C(3600) << 20);
    assert_true(now() - began < 600);
    atomic_store(&changed, 4 * THROTTLE_MIN); /* what waited before there was no limit does not any more */
    throttle_take(&t, 40 * THROTTLE_MIN);
    const uint64_t ahead = throttle_ahead_ns(&t);
    assert_true(ahead > UINT64_C(9) * 1000000000 && ahead <= UINT64_C(10) * 1000000000);
    assert_int_equal(throttle_piece(&t, 4096, 1 << 20), THROTTLE_MIN / 2);
    /* Of one without a rate, too. */
    struct throttle free_one = {.changed = &changed};
    throttle_take(&free_one, 40 * THROTTLE_MIN);
    assert_true(throttle_ahead_ns(&free_one) > UINT64_C(9) * 1000000000);
}

static _Atomic uint64_t lifted;
static void *lifter(void *arg)
{
    (void)arg;
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    atomic_store(&lifted, THROTTLE_NONE);
    return NULL;
}

/* Who waits for an hour does not when the limit is no more. */
static void no_rate_any_more(void **state)
{
    (void)state;
    pthread_t thread;
    struct throttle t = {.rate = THROTTLE_MIN, .changed = &lifted};
    throttle_take(&t, 3600 * THROTTLE_MIN);
    const uint64_t at = throttle_reserve(&t, 1);
    assert_int_equal(pthread_create(&thread, NULL, lifter, NULL), 0);
    const double began = now();
    throttle_until(&t, at);
    assert_true(atomic_load(&lifted) == THROTTLE_NONE);
    assert_true(now() - began < 600);
    pthread_join(thread, NULL);
}

/* What waits goes on at the rate of now, higher, lower or none, within the tenth of a second in which it looks. */
static void what_waits_has_the_new_rate(void **state)
{
    (void)state;
    static const struct {
        uint64_t from, to;
        double change, least, most; /* seconds */
    } cases[] = {
        {1 << 20, 8 << 20, 2, 3, 3.1},                                             /* 2 of 10 MiB, and 8 in a second */
        {1 << 20, UINT64_C(1) << 50, 2, 2, 2.2},                                   /* as good as none */
        {1 << 20, THROTTLE_NONE, 2, 2, 2.2},     {10 << 20, 1 << 20, 0.5, 5, 5.6}, /* 5 MiB or somewhat more are left */
        {1 << 20, 1 << 20, 2, 10, 10.1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int waits = 0; waits < 2; waits++) {
            atomic_store(&the_rate, 0);
            struct throttle t = {.rate = cases[i].from, .changed = &the_rate};
            throttle_take(&t, 10 << 20);
            const uint64_t place = throttle_reserve(&t, 1);
            const int64_t began = clock_ns;
            change_ns = began + (int64_t)(cases[i].change * 1e9);
            change_to = cases[i].to;
            if (waits)
                throttle_wait(&t, 0);
            else
                throttle_until(&t, place);
            if (since(began) < cases[i].least || since(began) > cases[i].most)
                fail_msg("case %zu: %g s", i, since(began));
        }
}

/* As a restore does: each buffer has its place when it is fetched, and waits for it when it is written. Each one has
 * its own time, the first one none, and so has each behind a change. */
static void places_are_taken_one_by_one(void **state)
{
    (void)state;
    struct throttle t = {.rate = 1 << 20, .changed = &the_rate};
    uint64_t place[20];
    const int64_t began = clock_ns;
    for (int i = 0; i < 20; i++) {
        place[i] = throttle_reserve(&t, 1 << 20);
        assert_true(place[i] != 0); /* which is that there is no limit */
    }
    change_ns = began + 10 * NS_PER_S;
    change_to = 4 << 20;
    for (int i = 0; i < 20; i++) {
        throttle_until(&t, place[i]);
        const double due = i <= 10 ? i : 10 + (i - 10) / 4.0;
        if (since(began) < due - 0.001 || since(began) > due + 0.11)
            fail_msg("%d after %g s", i, since(began));
    }
    /* A later one does not overtake: it has waited for those before it. */
    const int64_t then = clock_ns;
    for (int i = 0; i < 20; i++)
        throttle_until(&t, place[i]);
    assert_int_equal(clock_ns, then);
}

/* While there was no limit nothing was counted, and nothing of before is left. */
static void a_limit_that_is_back(void **state)
{
    (void)state;
    struct throttle t = {.rate = 1 << 20, .changed = &the_rate};
    throttle_take(&t, UINT64_C(3600) << 20);
    assert_true(throttle_ahead_ns(&t) > UINT64_C(3599) * 1000000000);
    atomic_store(&the_rate, THROTTLE_NONE);
    throttle_wait(&t, UINT64_C(3600) << 20);
    atomic_store(&the_rate, 2 << 20);
    assert_int_equal(throttle_ahead_ns(&t), 0);
    throttle_take(&t, 2 << 20);
    assert_in_range(throttle_ahead_ns(&t), NS_PER_S - 1, NS_PER_S + 1);
    atomic_store(&the_rate, 0); /* that of its own again */
    assert_in_range(throttle_ahead_ns(&t), 2 * NS_PER_S - 1, 2 * NS_PER_S + 1);
}

/* Rates that change at any time: never more is due than they allow, but for the last piece; and whoever always wants
 * more gets it all. */
static void rates_are_kept_whatever_they_become(void **state)
{
    (void)state;
    struct throttle t = {.rate = 1 << 20, .changed = &the_rate};
    uint64_t random = 88172645463325252u, rate = 1 << 20;
    double allowed = 0, taken = 0;
    for (int i = 0; i < 20000; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        const uint64_t n = random % (1 << 18);
        if (taken - allowed > 1)
            fail_msg("%d: %g bytes, %g were allowed", i, taken, allowed);
        throttle_take(&t, n);
        taken += (double)n;
        if (i % 7 == 0) {
            rate = THROTTLE_MIN + (random >> 20) % (64 << 20);
            atomic_store(&the_rate, rate);
        }
        for (uint64_t ns; (ns = throttle_ahead_ns(&t)) > 0;) {
            const uint64_t step = ns / (1 + (random >> 50) % 3) + 1;
            clock_ns += (int64_t)step;
            allowed += (double)step * (double)rate / 1e9;
        }
        if (allowed - taken > (double)rate / 1e6 + 2)
            fail_msg("%d: %g bytes of %g that were allowed", i, taken, allowed);
        allowed = taken; /* what was not used is lost */
    }
}

static void pieces(void **state)
{
    (void)state;
    static const struct {
        uint64_t rate;
        size_t piece;
    } cases[] = {
        {1, 65536},
        {65536, 65536},
        {8 * 65536, 65536},
        {16 * 65536 - 1, 65536},
        {16 * 65536, 131072},
        {8 << 20, 1 << 20},
        {UINT64_C(100) << 30, 1 << 20},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct throttle t = {.rate = cases[i].rate};
        assert_int_equal(throttle_piece(&t, 65536, 1 << 20), cases[i].piece);
    }
    const struct throttle t = {.rate = 65536};
    assert_int_equal(throttle_piece(&t, 4096, 4096), 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none),
        cmocka_unit_test(one_after_another),
        cmocka_unit_test(many_at_once),
        cmocka_unit_test(no_burst),
        cmocka_unit_test(threads_share_it),
        cmocka_unit_test(stops),
        cmocka_unit_test(pieces),
        cmocka_unit_test(two_limits),
        cmocka_unit_test(another_rate),
        cmocka_unit_test(no_rate_any_more),
        cmocka_unit_test_setup_teardown(what_waits_has_the_new_rate, clock_begin, clock_end),
        cmocka_unit_test_setup_teardown(places_are_taken_one_by_one, clock_begin, clock_end),
        cmocka_unit_test_setup_teardown(a_limit_that_is_back, clock_begin, clock_end),
        cmocka_unit_test_setup_teardown(rates_are_kept_whatever_they_become, clock_begin, clock_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
