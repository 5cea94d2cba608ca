/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Sets of ids that are added in random order, more than are kept at a time: all of them are in it, each once. */
#include "base/bytes.h"
#include "daemon/mover/mapped.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_are_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
