/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which volumes reach which contents: random sets, sorted in files in so little memory that files of files are made,
 * and counted by hand. Contents that are in the index and reached by nobody, and the other way round, are among them.
 */
#include "base/bytes.h"
#include "daemon/mover/reach.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OK(call) assert_int_equal((call) < 0 ? (print_error("%s\n", e.msg), -1) : 0, 0)

#define CONTENTS 3000u
#define VOLUMES_MAX 70u

/* xorshift64: the same each time. */
static uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
static uint64_t random_below(uint64_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % n;
}

struct content {
    struct content_id id;
    uint32_t packed;
    bool indexed;
    bool by[VOLUMES_MAX];
};
static struct content all[CONTENTS];

static int by_id(const void *a, const void *b)
{
    return content_id_cmp(&((const struct content *)a)->id, &((const struct content *)b)->id);
}

/* Some that differ in their last byte only, some with prefixes, some long, some short. */
static void make_contents(unsigned volumes, unsigned percent)
{
    static const char prefixes[] = {0, 0, 'k', 'm', 'x'};
    for (uint32_t i = 0; i < CONTENTS; i++) {
        struct content *c = &all[i];
        memset(c, 0, sizeof *c);
        c->id.len = i % 7 == 0 ? 26 : 16;
        c->id.prefix = prefixes[random_below(sizeof prefixes)];
        put_be64(c->id.hash, i % 3 ? random_below(UINT64_MAX) : 7);
        put_be32(c->id.hash + 8, i); /* each once */
        c->id.hash[c->id.len - 1] = (uint8_t)random_below(256);
        c->packed = (uint32_t)random_below(1u << 20);
        c->indexed = random_below(10) > 0;
        for (unsigned v = 0; v < volumes; v++)
            c->by[v] = random_below(100) < percent;
    }
    qsort(all, CONTENTS, sizeof *all, by_id);
}

static void count_by_hand(unsigned volumes, struct reach_volume *each, struct reach_total *total)
{
    for (size_t i = 0; i < CONTENTS; i++) {
        const struct content *c = &all[i];
        unsigned n = 0;
        for (unsigned v = 0; v < volumes; v++)
            n += c->by[v];
        if (!c->indexed) {
            total->missing += n > 0;
        } else {
            struct reach_sum *s = n == 0 ? &total->unreached : n == 1 ? &total->exclusive : &total->shared;
            s->n++;
            s->bytes += c->packed;
        }
        for (unsigned v = 0; v < volumes; v++) {
            if (!c->by[v])
                continue;
            if (!c->indexed) {
                each[v].missing++;
                continue;
            }
            struct reach_sum *s = n == 1 ? &each[v].exclusive : &each[v].shared;
            s->n++;
            s->bytes += c->packed;
        }
    }
}

static void same_sum(const struct reach_sum *a, const struct reach_sum *b)
{
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->bytes, b->bytes);
}

static void counted_as_by_hand(unsigned volumes, unsigned percent, size_t memory, unsigned times)
{
    struct err e = ERR_INIT;
    struct reach *x = NULL;
    static struct reach_volume is[VOLUMES_MAX], want[VOLUMES_MAX];
    struct reach_total total = {.missing = 0}, want_total = {.missing = 0};
    memset(is, 0, sizeof is);
    memset(want, 0, sizeof want);
    make_contents(volumes, percent);
    count_by_hand(volumes, want, &want_total);
    OK(reach_new(&x, "/tmp", memory, &e));
    /* Volume by volume, as they are walked, in random order, some of them several times; then the rest. */
    for (unsigned turn = 0; turn < times; turn++)
        for (unsigned v = 0; v < volumes; v++)
            for (uint32_t n = 0; n < CONTENTS; n++) {
                const struct content *c = turn ? &all[random_below(CONTENTS)] : &all[CONTENTS - 1 - n];
                if (c->by[v])
                    OK(reach_add(x, &c->id, v, &e));
            }
    OK(reach_settle(x, &e));
    for (size_t i = 0; i < CONTENTS; i++)
        if (all[i].indexed)
            OK(reach_count(x, &all[i].id, all[i].packed, is, &total, &e));
    OK(reach_end(x, is, &total, &e));
    for (unsigned v = 0; v < volumes; v++) {
        same_sum(&is[v].exclusive, &want[v].exclusive);
        same_sum(&is[v].shared, &want[v].shared);
        assert_int_equal(is[v].missing, want[v].missing);
    }
    same_sum(&total.exclusive, &want_total.exclusive);
    same_sum(&total.shared, &want_total.shared);
    same_sum(&total.unreached, &want_total.unreached);
    assert_int_equal(total.missing, want_total.missing);
    reach_free(x);
}

static void in_memory(void **s)
{
    (void)s;
    counted_as_by_hand(1, 50, REACH_MEMORY, 1);
    counted_as_by_hand(2, 50, REACH_MEMORY, 3);
    counted_as_by_hand(0, 0, REACH_MEMORY, 1);
}

static void in_files(void **s)
{
    (void)s;
    counted_as_by_hand(7, 30, 64 << 10, 3);
    counted_as_by_hand(VOLUMES_MAX, 2, 64 << 10, 3);
}

/* 64 pairs in memory: 64,000 and more of them make files of files of files. */
static void in_files_of_files(void **s)
{
    (void)s;
    counted_as_by_hand(VOLUMES_MAX, 90, 4 << 10, 2);
    counted_as_by_hand(VOLUMES_MAX, 1, 4 << 10, 9);
}

static void no_room(void **s)
{
    (void)s;
    struct err e = ERR_INIT;
    struct reach *x = NULL;
    struct content_id id = {.len = 16};
    int rc = 0;
    OK(reach_new(&x, "/nowhere/at/all", 4 << 10, &e));
    for (uint32_t i = 0; i < 1000 && rc == 0; i++) {
        put_be32(id.hash, i);
        rc = reach_add(x, &id, 0, &e);
    }
    assert_int_equal(rc, -2);
    assert_non_null(strstr(e.msg, "cannot create a table in /nowhere/at/all"));
    reach_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_memory),
        cmocka_unit_test(in_files),
        cmocka_unit_test(in_files_of_files),
        cmocka_unit_test(no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
