/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Sets of ids that are added in random order, more than are kept at a time: all of them are in it, each once. Tables
 * larger than memory should be: a small part of them is resident. */
#include "base/bytes.h"
#include "base/resident.h"
#include "daemon/mover/mapped.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include <cmocka.h>

#define OK(call) assert_int_equal((call) < 0 ? (print_error("%s\n", e.msg), -1) : 0, 0)

#define MANY 530000u /* over the 2^19 that are kept */

static struct content_id id_of(uint64_t n)
{
    struct content_id id = {.len = 16};
    uint64_t x = (n + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    put_le64(id.hash, x ^ x >> 27);
    put_le64(id.hash + 8, n);
    return id;
}

static void all_are_found(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct id_set *s = NULL;
    OK(id_set_new(&s, "/tmp", 1000, &e)); /* it grows */
    for (unsigned turn = 0; turn < 2; turn++) {
        for (uint64_t i = 0; i < MANY; i++) {
            struct content_id id = id_of(i);
            OK(id_set_add_later(s, &id, 0, &e));
        }
        assert_true(id_set_count(s) > MANY - 1); /* not fewer than there are before it is settled */
        OK(id_set_settle(s, &e));
        assert_int_equal(id_set_count(s), MANY);
    }
    for (uint64_t i = 0; i < 2 * MANY; i += 1 + i % 13) {
        struct content_id id = id_of(i);
        assert_int_equal(id_set_has(s, &id, 0), i < MANY);
    }
    struct content_id first = id_of(0);
    assert_false(id_set_has(s, &first, 1));
    assert_int_equal(id_set_add(s, &first, 0, &e), 0);
    assert_int_equal(id_set_add(s, &first, 1, &e), 1);
    OK(id_set_settle(s, &e));
    assert_int_equal(id_set_count(s), MANY + 1);
    id_set_free(s);
}

/* ---- memory ---- */

#define SETTLED 3u
#define EXTRA ((uint64_t)4 << 20)

/* A table of 128 MiB, filled and looked up in its order and at random: what is resident of it stays small. */
static void few_pages_of_a_large_set(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct id_set *s = NULL;
    const uint64_t before = resident_shared();
    uint64_t most = 0;
    OK(id_set_new(&s, "/var/tmp", 2600000, &e));
    for (uint64_t i = 0; i < SETTLED * MANY; i++) {
        const struct content_id id = id_of(i);
        OK(id_set_add_later(s, &id, 0, &e));
        if (i % 4096 == 0 || i % (1u << 19) == 0)
            most = MAX(most, resident_shared());
    }
    OK(id_set_settle(s, &e));
    most = MAX(most, resident_shared());
    for (uint64_t at = 0; at < 1u << 18; at++) {
        struct content_id id = {.len = 16};
        put_be64(id.hash, at << (64 - 18));
        assert_false(id_set_has(s, &id, 0));
        id = id_of(at * 6);
        assert_true(id_set_has(s, &id, 0));
        if (at % 64 == 0)
            most = MAX(most, resident_shared());
    }
    id_set_free(s);
    print_message("%llu KiB resident at most\n", (unsigned long long)(most - before) >> 10);
    assert_true(before > 0);
    assert_true(most < before + MAPPED_RESIDENT + EXTRA);
}

static void few_pages_of_many_packs(void **state)
{
    (void)state;
    enum { PACKS = 300000 }; /* 48 MB */
    struct err e = ERR_INIT;
    struct pack_table *t = NULL;
    char name[64];
    const uint64_t before = resident_shared();
    uint64_t most = 0, seed = 1;
    OK(pack_table_new(&t, "/var/tmp", &e));
    for (unsigned i = 0; i < PACKS; i++) {
        snprintf(name, sizeof name, "p%032x-s0123456789abcdef144", i);
        OK(pack_table_add(t, name, i, &e));
        if (i % 1024 == 0)
            most = MAX(most, resident_shared());
    }
    OK(pack_table_index(t, &e));
    most = MAX(most, resident_shared());
    const struct pack_record *last = NULL;
    for (unsigned i = 0; i < 100000; i++) {
        const unsigned n = (unsigned)((seed = seed * UINT64_C(6364136223846793005) + 1) >> 33) % PACKS;
        snprintf(name, sizeof name, "p%032x-s0123456789abcdef144", n);
        struct pack_record *r = pack_table_find(t, name);
        assert_non_null(r);
        assert_int_equal(r->length, n);
        r->dead++;
        if (i % 64 == 0)
            most = MAX(most, resident_shared());
        if (n == PACKS - 1)
            last = r;
    }
    uint64_t found = 0;
    for (unsigned i = 0; i < PACKS; i++) {
        snprintf(name, sizeof name, "p%032x-s0123456789abcdef144", i);
        const struct pack_record *r = pack_table_find(t, name);
        found += r->dead;
        if (last && i % 1000 == 0)
            assert_string_equal(pack_table_name(t, last), "p000000000000000000000000000493df-s0123456789abcdef144");
        if (i % 64 == 0)
            most = MAX(most, resident_shared());
    }
    assert_int_equal(found, 100000);
    pack_table_free(t);
    print_message("%llu KiB resident at most\n", (unsigned long long)(most - before) >> 10);
    assert_true(most < before + 2 * MAPPED_RESIDENT + EXTRA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_are_found), cmocka_unit_test(few_pages_of_a_large_set),
                                       cmocka_unit_test(few_pages_of_many_packs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
