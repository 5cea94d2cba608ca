/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Rate, time left and percent on made-up courses: steady, stalled, in bursts, sparse, of unknown size, begun again. */
#include "tests/unit/test.h"

#include "base/pace.h"

#include <math.h>

#define MB 1e6
#define STEP 0.2

struct course {
    struct pace p;
    struct pace_sample s;
    double rate_min, rate_max, jump, left_jump; /* of the rate, as a factor; of the time left, in seconds */
    double last_rate, last_left;
    unsigned told; /* samples with a time left */
};

static void settle(struct course *c)
{
    c->rate_min = INFINITY;
    c->rate_max = c->jump = c->left_jump = 0;
    c->told = 0;
}

/* `seconds` at `data` bytes a second, with zeros and holes that go by on top. */
static void go(struct course *c, double seconds, double data, double zero, double hole)
{
    for (double t = 0; t < seconds - STEP / 2; t += STEP) {
        c->s.t += STEP;
        c->s.done += (uint64_t)((data + zero + hole) * STEP);
        c->s.zero += (uint64_t)(zero * STEP);
        c->s.skipped += (uint64_t)(hole * STEP);
        pace_add(&c->p, &c->s);
        double rate = pace_rate(&c->p), left = pace_left(&c->p, c->s.t);
        c->rate_min = fmin(c->rate_min, rate);
        c->rate_max = fmax(c->rate_max, rate);
        if (c->last_rate > 0 && rate > 0)
            c->jump = fmax(c->jump, fmax(rate / c->last_rate, c->last_rate / rate));
        if (left >= 0 && c->last_left >= 0 && c->told)
            c->left_jump = fmax(c->left_jump, fabs(left - (c->last_left - STEP)));
        c->told += left >= 0;
        c->last_rate = rate;
        c->last_left = left;
    }
}

static struct course begin(double total)
{
    struct course c = {.s = {.t = 1000, .total = (uint64_t)total, .phase = "moving"}, .last_left = -1};
    settle(&c);
    pace_add(&c.p, &c.s);
    return c;
}

static void close_to(double a, double b, double part)
{
    if (fabs(a - b) > fabs(b) * part)
        fail_msg("%g is not within %g of %g", a, part, b);
}

static void test_steady(void **state)
{
    (void)state;
    struct course c = begin(20000 * MB);
    assert_true(pace_left(&c.p, c.s.t) < 0);
    go(&c, 4.6, 200 * MB, 0, 0);
    assert_int_equal(c.told, 0); /* it does not mean anything yet */
    close_to(c.rate_min, 200 * MB, 0.001);
    go(&c, 45.4, 200 * MB, 0, 0);
    close_to(c.rate_max, 200 * MB, 0.001);
    close_to(pace_left(&c.p, c.s.t), 50, 0.01);
    assert_true(c.left_jump < 0.05);
    /* Between two looks it counts down. */
    close_to(pace_left(&c.p, c.s.t + 10), 40, 0.02);
}

/* From a tenth of a steady run on the time left is within a fifth of what is really left, however long the run, however
 * often it reports, whatever of it is no work. */
static void is_foretold(const char *what, double seconds, double step, double data, double zero, double hole,
                        bool allocated)
{
    struct pace p = {0};
    const double rate = data + zero + hole;
    struct pace_sample s = {.t = 500, .phase = "moving", .total = (uint64_t)(rate * seconds)};
    s.allocated = allocated ? (uint64_t)((data + zero) * seconds) : 0;
    pace_add(&p, &s);
    for (double t = step; t < seconds - step / 2; t += step) {
        s.t = 500 + t;
        s.done = (uint64_t)(rate * t);
        s.zero = (uint64_t)(zero * t);
        s.skipped = (uint64_t)(hole * t);
        pace_add(&p, &s);
        const double left = pace_left(&p, s.t), really = seconds - t;
        if (t >= seconds / 10 && (left < 0.8 * really || left > 1.2 * really))
            fail_msg("%s of %g s, a report each %g s: after %g s %g s are left, not %g", what, seconds, step, t, really,
                     left);
    }
}

static void test_steady_runs_are_foretold(void **state)
{
    (void)state;
    static const double lengths[] = {15, 30, 60, 600, 7200, 86400}, steps[] = {0.2, 1};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
            is_foretold("a backup", lengths[i], steps[k], 100 * MB, 0, 0, false);
            is_foretold("a backup of a sparse volume", lengths[i], steps[k], 50 * MB, 20 * MB, 400 * MB, true);
            is_foretold("a restore with holes", lengths[i], steps[k], 50 * MB, 20 * MB, 130 * MB, false);
            is_foretold("a verification", lengths[i], steps[k], 0.2 * MB, 0, 0, false);
        }
}

/* Some of preparation, then a lump of 2 MiB at a time: a short run that is slow. */
static void is_foretold_in_lumps(double seconds, double prepare, double rate, double lump)
{
    struct pace p = {0};
    struct pace_sample s = {.t = 500, .phase = "moving", .total = (uint64_t)(rate * seconds)};
    unsigned told = 0;
    pace_add(&p, &s);
    for (double t = 0.2; t < prepare + seconds - 0.1; t += 0.2) {
        s.t = 500 + t;
        s.done = t < prepare ? 0 : (uint64_t)(floor((t - prepare) * rate / lump) * lump);
        pace_add(&p, &s);
        const double left = pace_left(&p, s.t), really = prepare + seconds - t;
        if (left < 0 || really < 2)
            continue;
        told++;
        if (fabs(left - really) > 0.2 * really)
            fail_msg("%g s after %g, lumps of %g at %g a second: after %g s %g s are left, not %g", seconds, prepare,
                     lump, rate, t, really, left);
    }
    assert_true(told > 0.5 * seconds / 0.2);
}

static void test_lumps_after_preparation(void **state)
{
    (void)state;
    is_foretold_in_lumps(14, 1, 1 * MB, 2 * MB);
    is_foretold_in_lumps(14, 0.5, 1 * MB, 1 * MB);
    is_foretold_in_lumps(20, 3, 1 * MB, 1 * MB);
    is_foretold_in_lumps(60, 2, 1 * MB, 2 * MB);
    is_foretold_in_lumps(60, 5, 0.8 * MB, 2 * MB);
}

/* A half-life later half of what was is forgotten. */
static void test_half_life(void **state)
{
    (void)state;
    struct course c = begin(1e12);
    go(&c, 100, 100 * MB, 0, 0);
    go(&c, PACE_HALF_LIFE, 300 * MB, 0, 0);
    close_to(pace_rate(&c.p), 200 * MB, 0.01);
    assert_true(c.jump < 1.05);
}

static void test_stall(void **state)
{
    (void)state;
    struct course c = begin(100000 * MB);
    go(&c, 60, 100 * MB, 0, 0);
    double before = pace_left(&c.p, c.s.t);
    close_to(before, 940, 0.01);
    settle(&c);
    go(&c, 14, 0, 0, 0);
    assert_true(pace_left(&c.p, c.s.t) > before); /* it gets later, and does not leap */
    assert_true(c.jump < 1.05);
    close_to(pace_stalled(&c.p, c.s.t), 14, 0.03);
    go(&c, 6, 0, 0, 0);
    assert_true(pace_left(&c.p, c.s.t) < 0); /* nobody knows when */
    close_to(pace_stalled(&c.p, c.s.t), 20, 0.03);
    assert_true(pace_rate(&c.p) < 30 * MB);
    go(&c, 60, 100 * MB, 0, 0);
    close_to(pace_rate(&c.p), 100 * MB, 0.02);
    assert_true(pace_left(&c.p, c.s.t) > 0);
}

/* 1 s of much, 4 s of nothing, again and again: the mean is what counts. */
static void test_bursts(void **state)
{
    (void)state;
    struct course c = begin(1e12);
    for (unsigned i = 0; i < 20; i++) {
        go(&c, 1, 500 * MB, 0, 0);
        go(&c, 4, 0, 0, 0);
    }
    settle(&c);
    for (unsigned i = 0; i < 10; i++) {
        go(&c, 1, 500 * MB, 0, 0);
        go(&c, 4, 0, 0, 0);
    }
    assert_true(c.rate_min > 75 * MB && c.rate_max < 135 * MB);
    assert_true(c.jump < 1.1);
    assert_int_equal(c.told, 250);
}

/* Holes and zeros neither inflate the rate nor shorten what is promised. */
static void test_sparse_then_dense(void **state)
{
    (void)state;
    struct course c = begin(100000 * MB);
    c.s.allocated = 20000 * (uint64_t)MB;
    go(&c, 10, 100 * MB, 0, 0);
    settle(&c);
    go(&c, 4, 0, 0, 20000 * MB); /* 80 GB of holes in 4 s */
    assert_true(c.rate_max < 100.1 * MB && c.rate_min > 99 * MB);
    assert_true(c.left_jump < 2);
    close_to(pace_left(&c.p, c.s.t), 190, 0.04);
    go(&c, 100, 100 * MB, 0, 0);
    close_to(pace_left(&c.p, c.s.t), 90, 0.04);
    assert_true(c.left_jump < 2);
}

static void test_zeros(void **state)
{
    (void)state;
    struct course c = begin(100000 * MB);
    go(&c, 30, 100 * MB, 0, 0);
    settle(&c);
    go(&c, 10, 0, 1500 * MB, 0);
    assert_true(c.rate_max < 100.1 * MB && c.rate_min > 99.9 * MB);
    go(&c, 30, 100 * MB, 20 * MB, 0); /* mixed: what is data is told */
    close_to(pace_rate(&c.p), 100 * MB, 0.01);
    assert_true(pace_left(&c.p, c.s.t) > 0);
}

/* A storage that compresses has less allocated than is read. */
static void test_more_than_allocated(void **state)
{
    (void)state;
    struct course c = begin(10000 * MB);
    c.s.allocated = 2000 * (uint64_t)MB;
    go(&c, 60, 100 * MB, 0, 0);
    close_to(pace_left(&c.p, c.s.t), 40, 0.3);
}

static void test_unknown_total(void **state)
{
    (void)state;
    struct course c = begin(0);
    go(&c, 60, 100 * MB, 0, 0);
    close_to(pace_rate(&c.p), 100 * MB, 0.001);
    assert_int_equal(c.told, 0);
    assert_int_equal(pace_percent((int64_t)c.s.done, 0, false), -1);
    c.s.total = 20000 * (uint64_t)MB; /* it becomes known */
    go(&c, 5, 100 * MB, 0, 0);
    assert_true(pace_left(&c.p, c.s.t) > 0);
}

static void test_again(void **state)
{
    (void)state;
    struct course c = begin(10000 * MB);
    go(&c, 20, 100 * MB, 0, 0);
    assert_int_equal(c.p.setbacks, 0);
    c.s.done = c.s.skipped = c.s.zero = 0;
    go(&c, 1, 100 * MB, 0, 0);
    assert_int_equal(c.p.setbacks, 1);
    assert_true(pace_left(&c.p, c.s.t) < 0); /* a new attempt is judged by itself */
    /* A new phase counts from 0 and is no setback. */
    c.s.phase = "checking";
    c.s.done = 0;
    go(&c, 1, 100 * MB, 0, 0);
    assert_int_equal(c.p.setbacks, 1);
    close_to(pace_rate(&c.p), 100 * MB, 0.001);
}

static void test_end(void **state)
{
    (void)state;
    struct course c = begin(2000 * MB);
    go(&c, 19, 100 * MB, 0, 0);
    assert_true(pace_left(&c.p, c.s.t) < 2);
    go(&c, 1, 100 * MB, 0, 0);
    assert_true(pace_left(&c.p, c.s.t) < 0); /* nothing is left, yet it has not ended */
    assert_int_equal(pace_percent(10, 10, false), 99);
    assert_int_equal(pace_percent(9999, 10000, false), 99);
    assert_int_equal(pace_percent(10, 10, true), 100);
    assert_int_equal(pace_percent(0, 10, false), 0);
    assert_int_equal(pace_percent(INT64_MAX, INT64_MAX, false), 99);
    assert_int_equal(pace_percent(-1, 10, false), -1);
    assert_int_equal(pace_percent(20, 10, true), 100);
}

/* Looks that come at once, late, or from a clock that jumped do no harm. */
static void test_odd_times(void **state)
{
    (void)state;
    struct course c = begin(1e12);
    go(&c, 20, 100 * MB, 0, 0);
    for (unsigned i = 0; i < 100; i++)
        pace_add(&c.p, &c.s);
    close_to(pace_rate(&c.p), 100 * MB, 0.001);
    c.s.t += 3600;
    c.s.done += (uint64_t)(360000 * MB);
    pace_add(&c.p, &c.s);
    close_to(pace_rate(&c.p), 100 * MB, 0.001);
    c.s.t -= 10000;
    pace_add(&c.p, &c.s);
    assert_true(pace_rate(&c.p) >= 0 && pace_left(&c.p, c.s.t) < 0);
    assert_true(pace_stalled(&c.p, c.s.t - 5) >= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steady),
        cmocka_unit_test(test_steady_runs_are_foretold),
        cmocka_unit_test(test_lumps_after_preparation),
        cmocka_unit_test(test_half_life),
        cmocka_unit_test(test_stall),
        cmocka_unit_test(test_bursts),
        cmocka_unit_test(test_sparse_then_dense),
        cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_more_than_allocated),
        cmocka_unit_test(test_unknown_total),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_odd_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
