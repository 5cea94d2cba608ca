/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Lists of changes of which some parts are known to be zeros (CF-12): all that has changed is in the list, and nothing
 * but what was named as zeros, and as nothing else, is taken for zeros. */
#include "io/changes.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 4000

enum mark { MARK_DATA = 1, MARK_ZEROS = 2 };

static struct changes *no_changes(void)
{
    struct err e = ERR_INIT;
    struct changes *c;
    assert_ok(changes_new(&c, &e), &e);
    return c;
}

/* The list as a map of single bytes: 0 not in it, MARK_DATA, MARK_ZEROS. */
static void map_of(const struct changes *c, uint8_t map[SIZE])
{
    struct changes_cursor cursor = {0};
    struct change x;
    bool zeros;
    uint64_t sum = 0, of_zeros = 0;
    memset(map, 0, SIZE);
    for (uint64_t pos = 0; changes_part_after(c, &cursor, pos, &x, &zeros); pos = x.start + x.len) {
        assert_true(x.len > 0 && x.start >= pos && x.start + x.len <= SIZE);
        memset(map + x.start, zeros ? MARK_ZEROS : MARK_DATA, x.len);
        sum += x.len;
        of_zeros += zeros ? x.len : 0;
    }
    assert_int_equal(changes_bytes(c), sum);
    assert_int_equal(changes_zero_bytes(c), of_zeros);
}

/* Of each run of zeros that was added, what precedes the first byte that was added otherwise. */
static void map_wanted(const uint8_t added[SIZE], uint8_t map[SIZE])
{
    for (size_t i = 0; i < SIZE; i++) {
        const bool goes_on = i && (added[i - 1] & MARK_ZEROS);
        map[i] = !added[i]                                                          ? 0
                 : added[i] == MARK_ZEROS && (!goes_on || map[i - 1] == MARK_ZEROS) ? MARK_ZEROS
                                                                                    : MARK_DATA;
    }
}

static struct changes *random_changes(uint64_t *seed, uint8_t added[SIZE])
{
    struct err e = ERR_INIT;
    struct changes *c = no_changes();
    memset(added, 0, SIZE);
    for (unsigned n = (unsigned)(splitmix64(seed) % 80); n; n--) {
        const uint64_t start = splitmix64(seed) % (SIZE - 60), len = splitmix64(seed) % 60;
        const bool zeros = splitmix64(seed) % 2;
        for (uint64_t i = start; i < start + len; i++)
            added[i] |= zeros ? MARK_ZEROS : MARK_DATA;
        assert_ok(zeros ? changes_add_zeros(c, start, len, &e) : changes_add(c, start, len, &e), &e);
    }
    changes_finish(c);
    return c;
}

static void zeros_are_what_a_map_says(void **state)
{
    (void)state;
    uint64_t seed = 2016;
    for (unsigned round = 0; round < 500; round++) {
        uint8_t added[SIZE], want[SIZE], got[SIZE];
        struct changes *CLEANUP(changes_freep) c = random_changes(&seed, added);
        map_wanted(added, want);
        map_of(c, got);
        assert_memory_equal(got, want, SIZE);
        changes_finish(c); /* once more changes nothing */
        map_of(c, got);
        assert_memory_equal(got, want, SIZE);
    }
}

static void copies_are_the_same(void **state)
{
    (void)state;
    uint64_t seed = 2022;
    struct err e = ERR_INIT;
    for (unsigned round = 0; round < 300; round++) {
        uint8_t added[SIZE], want[SIZE], got[SIZE], *p;
        size_t len;
        struct changes *CLEANUP(changes_freep) c = random_changes(&seed, added);
        struct changes *CLEANUP(changes_freep) all = no_changes(), *CLEANUP(changes_freep) part = no_changes();
        struct changes *CLEANUP(changes_freep) back = no_changes(), *CLEANUP(changes_freep) unknown = no_changes();
        map_of(c, want);
        assert_ok(changes_add_all(all, c, &e), &e);
        changes_finish(all);
        map_of(all, got);
        assert_memory_equal(got, want, SIZE);

        assert_ok(changes_pack(c, CHANGES_DIFFER, SIZE, &p, &len, &e), &e);
        assert_int_equal(p[7], changes_zero_bytes(c) ? 2 : 1); /* the version */
        assert_ok(changes_unpack(back, CHANGES_DIFFER, p, len, SIZE, &e), &e);
        free(p);
        changes_finish(back);
        map_of(back, got);
        assert_memory_equal(got, want, SIZE);

        const uint64_t size = splitmix64(&seed) % (SIZE + 1);
        assert_ok(changes_add_within(part, c, size, &e), &e);
        changes_finish(part);
        map_of(part, got);
        assert_memory_equal(got, want, size);
        for (size_t i = size; i < SIZE; i++)
            assert_int_equal(got[i], 0);

        assert_ok(changes_add_unknown(unknown, c, size, &e), &e);
        changes_finish(unknown);
        map_of(unknown, got);
        for (size_t i = 0; i < SIZE; i++)
            assert_int_equal(got[i], i < size && want[i] != MARK_ZEROS ? MARK_DATA : 0);
    }
}

/* What is added to a finished list may be part of its zeros. */
static void later_additions_end_the_knowledge(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct changes *CLEANUP(changes_freep) c = no_changes();
    assert_ok(changes_add_zeros(c, 0, 4096, &e), &e);
    changes_finish(c);
    assert_int_equal(changes_zero_bytes(c), 4096);
    assert_ok(changes_add_zeros(c, 8192, 4096, &e), &e);
    changes_finish(c);
    assert_int_equal(changes_bytes(c), 8192);
    assert_int_equal(changes_zero_bytes(c), 0);
    assert_int_equal(changes_add_zeros(c, UINT64_MAX, 1, &e), -EINVAL);
    assert_int_equal(changes_add_zeros(c, INT64_MAX, 2, &e), -EINVAL);
}

/* Of a list of what is allocated nothing can be zeros, and a length is one. */
static void words_of_another_kind(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    uint8_t *p;
    size_t len;
    struct changes *CLEANUP(changes_freep) c = no_changes(), *CLEANUP(changes_freep) back = no_changes();
    assert_ok(changes_add_zeros(c, 0, 4096, &e), &e);
    changes_finish(c);
    assert_ok(changes_pack(c, CHANGES_DIFFER, SIZE * 2, &p, &len, &e), &e);
    p[6] = CHANGES_ALLOCATED;
    assert_int_equal(changes_unpack(back, CHANGES_ALLOCATED, p, len, SIZE * 2, &e), -EINVAL);
    p[6] = CHANGES_DIFFER;
    p[7] = 1;
    assert_int_equal(changes_unpack(back, CHANGES_DIFFER, p, len, SIZE * 2, &e), -EINVAL);
    p[7] = 3;
    assert_int_equal(changes_unpack(back, CHANGES_DIFFER, p, len, SIZE * 2, &e), -EINVAL);
    free(p);
}

/* More than a list holds: what has changed is covered all the same, and no more is zeros than was named. */
static void more_than_a_list_holds(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct changes *CLEANUP(changes_freep) c = no_changes();
    const uint64_t n = CHANGES_MAX / 8 * 5;
    for (uint64_t i = 0; i < n; i++) {
        assert_ok(changes_add_zeros(c, i * 7 % n * 100000 + 50000, 4096, &e), &e);
        assert_ok(changes_add(c, i * 7 % n * 100000, 4096, &e), &e);
    }
    changes_finish(c);
    assert_true(changes_count(c) <= CHANGES_MAX);
    assert_true(changes_memory(c) <= (CHANGES_MAX + CHANGES_MAX / 4) * sizeof(struct change));
    size_t cursor = 0;
    struct change x;
    for (uint64_t i = 0; i < 2 * n; i++) {
        const uint64_t start = i * 50000;
        assert_true(changes_after(c, &cursor, start, &x));
        assert_true(x.start <= start && x.start + x.len >= start + 4096);
    }
    struct changes_cursor parts = {0};
    uint64_t known = 0;
    bool zeros;
    for (uint64_t pos = 0; changes_part_after(c, &parts, pos, &x, &zeros); pos = x.start + x.len) {
        if (!zeros)
            continue;
        assert_int_equal(x.start % 100000, 50000);
        assert_int_equal(x.len, 4096);
        known++;
    }
    assert_int_equal(known * 4096, changes_zero_bytes(c));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeros_are_what_a_map_says),
        cmocka_unit_test(copies_are_the_same),
        cmocka_unit_test(later_additions_end_the_knowledge),
        cmocka_unit_test(words_of_another_kind),
        cmocka_unit_test(more_than_a_list_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
