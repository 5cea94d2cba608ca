/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which contents are read with one request, also where an index is forged: lengths that are not true, places that
 * overlap (issue 13: hostile neighbours). */
#include "tests/unit/test.h"

#include "daemon/mover/fetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 8

static struct fetch_item items[N];
static uint64_t from, to;

static void put(size_t i, const char *pack, uint32_t offset, uint32_t packed)
{
    items[i] = (struct fetch_item){.entry = {.offset = offset, .packed = packed}};
    snprintf(items[i].entry.pack, sizeof items[i].entry.pack, "%s", pack);
}

static void neighbours_are_read_together(void **state)
{
    (void)state;
    put(0, "p1", 1000, 500);
    put(1, "p1", 1500, 500);
    put(2, "p1", 10000, 96);
    put(3, "p2", 10096, 96);
    assert_int_equal(fetch_group(items, 4, FETCH_GROUP_BYTES, FETCH_GROUP_GAP, &from, &to), 3);
    assert_int_equal(from, 1000);
    assert_int_equal(to, 10096);
    assert_int_equal(fetch_group(items, 2, FETCH_GROUP_BYTES, FETCH_GROUP_GAP, &from, &to), 2);
    assert_int_equal(to, 2000);
    assert_int_equal(fetch_group(items + 3, 1, FETCH_GROUP_BYTES, FETCH_GROUP_GAP, &from, &to), 1);
}

static void distant_ones_are_not(void **state)
{
    (void)state;
    put(0, "p1", 0, 1000);
    put(1, "p1", 1000 + (16u << 10) + 1, 1000);
    assert_int_equal(fetch_group(items, 2, FETCH_GROUP_BYTES, FETCH_GROUP_GAP, &from, &to), 1);
    put(1, "p1", 1000 + (16u << 10), 1000);
    assert_int_equal(fetch_group(items, 2, FETCH_GROUP_BYTES, FETCH_GROUP_GAP, &from, &to), 2);
}

static void a_group_is_bounded(void **state)
{
    (void)state;
    put(0, "p1", 64, FETCH_GROUP_BYTES - 100);
    put(1, "p1", 64 + FETCH_GROUP_BYTES - 100, 100);
    put(2, "p1", 64 + FETCH_GROUP_BYTES, 1);
    assert_int_equal(fetch_group(items, 3, FETCH_GROUP_BYTES, FETCH_GROUP_GAP, &from, &to), 2);
    assert_int_equal(to - from, FETCH_GROUP_BYTES);
}

/* Found by mutations inside the encryption: the second one lies within the first, which is longer than a group. */
static void one_that_is_too_long_is_alone(void **state)
{
    (void)state;
    put(0, "p1", 4096, 377484);
    put(1, "p1", 8192, 100);
    assert_int_equal(fetch_group(items, 2, FETCH_GROUP_BYTES, FETCH_GROUP_GAP, &from, &to), 1);
    put(0, "p1", UINT32_MAX, UINT32_MAX);
    put(1, "p1", UINT32_MAX, 1);
    assert_int_equal(fetch_group(items, 2, FETCH_GROUP_BYTES, FETCH_GROUP_GAP, &from, &to), 1);
    assert_true(to == 2 * (uint64_t)UINT32_MAX);
}

static void one_before_the_first_is_not_of_it(void **state)
{
    (void)state;
    put(0, "p1", 4096, 100);
    put(1, "p1", 4000, 50);
    assert_int_equal(fetch_group(items, 2, FETCH_GROUP_BYTES, FETCH_GROUP_GAP, &from, &to), 1);
}

static uint32_t below(unsigned *seed, uint32_t n)
{
    return (uint32_t)rand_r(seed) % n;
}

static void whatever_the_index_says(void **state)
{
    (void)state;
    unsigned seed = 7, several = 0;
    for (int round = 0; round < 200000; round++) {
        static const uint32_t lengths[] = {10, 5000, 120000, 400000, UINT32_MAX};
        for (size_t i = 0; i < N; i++)
            put(i, below(&seed, 8) ? "p1" : "p2", below(&seed, 30000), below(&seed, lengths[below(&seed, 5)]));
        const size_t n = fetch_group(items, N, FETCH_GROUP_BYTES, FETCH_GROUP_GAP, &from, &to);
        assert_in_range(n, 1, N);
        several += n > 1;
        assert_true(n == 1 || to - from <= FETCH_GROUP_BYTES);
        for (size_t i = 0; i < n; i++) {
            const struct index_entry *x = &items[i].entry;
            assert_true(x->offset >= from && (uint64_t)x->offset + x->packed <= to);
            assert_string_equal(x->pack, items[0].entry.pack);
        }
    }
    assert_true(several > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_are_read_together),
        cmocka_unit_test(distant_ones_are_not),
        cmocka_unit_test(a_group_is_bounded),
        cmocka_unit_test(one_that_is_too_long_is_alone),
        cmocka_unit_test(one_before_the_first_is_not_of_it),
        cmocka_unit_test(whatever_the_index_says),
    };
    return cmocka_run_group_tests_name("fetch_group", tests, NULL, NULL);
}
