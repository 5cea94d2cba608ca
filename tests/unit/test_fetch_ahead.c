/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Reads ahead of a worker: what it gets is what it would have read itself, in its order, whatever the places are. */
#include "tests/unit/test.h"

#include "daemon/mover/fetch-ahead.h"
#include "repo/blob.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PACK_LEN 300000u
#define PACKS 3
#define ITEMS 200
#define MOST 20000u

static char dir[64];
static struct blobs *store;
static uint8_t packs[PACKS][PACK_LEN];
static struct fetch_item items[ITEMS];

static void pack_name(char *out, size_t cap, unsigned n)
{
    snprintf(out, cap, "p0011223344556677889900112233445%u-s0123456789abcdef147", n);
}

static int setup(void **state)
{
    struct err e = ERR_INIT;
    char name[64];
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/test_fetch_ahead.XXXXXX");
    if (!mkdtemp(dir) || blobs_open_dir(&store, dir, BLOBS_CREATE, NULL, 0, &e) < 0)
        return -1;
    for (unsigned p = 0; p < PACKS; p++) {
        for (unsigned i = 0; i < PACK_LEN; i++)
            packs[p][i] = (uint8_t)(i * 31 + i / 251 + p);
        pack_name(name, sizeof name, p);
        if (blobs_put(store, name, packs[p], PACK_LEN, &e) < 0)
            return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    char cmd[128];
    (void)state;
    blobs_free(store);
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

static void put(size_t i, unsigned pack, uint32_t offset, uint32_t packed)
{
    items[i] = (struct fetch_item){.entry = {.offset = offset, .packed = packed}};
    pack_name(items[i].entry.pack, sizeof items[i].entry.pack, pack);
}

static unsigned pack_of(const struct fetch_item *it)
{
    return (unsigned)(it->entry.pack[32] - '0');
}

/* Takes `n` items of those from `at` on; returns how many groups had their bytes. */
static unsigned take(struct fetch_ahead *a, size_t at, size_t n)
{
    unsigned with_bytes = 0;
    while (n) {
        const uint8_t *sealed;
        uint64_t from;
        const size_t got = fetch_ahead_next(a, &sealed, &from);
        assert_in_range(got, 1, n);
        for (size_t i = 0; sealed && i < got; i++) {
            const struct index_entry *x = &items[at + i].entry;
            assert_true(x->offset >= from);
            assert_memory_equal(sealed + (x->offset - from), packs[pack_of(&items[at + i])] + x->offset, x->packed);
        }
        with_bytes += sealed != NULL;
        at += got;
        n -= got;
    }
    return with_bytes;
}

static uint64_t gets(void)
{
    struct blob_stats s;
    blobs_stats(store, &s);
    return s.gets;
}

static struct fetch_ahead *ahead(unsigned reads)
{
    struct err e = ERR_INIT;
    struct fetch_ahead *a = NULL;
    assert_ok(fetch_ahead_new(&a, store, reads, MOST, FETCH_GROUP_GAP, &e), &e);
    return a;
}

static void neighbours_are_one_read(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 40; i++)
        put(i, i / 20, (i % 20) * 1000, 1000);
    struct fetch_ahead *a = ahead(4);
    const uint64_t before = gets();
    fetch_ahead_begin(a, items, 40);
    assert_int_equal(take(a, 0, 40), 2);
    assert_int_equal(gets() - before, 2);
    fetch_ahead_free(a);
}

/* Too long, beyond the end, in a pack that is not there: left to whoever reads one by one. */
static void what_cannot_be_read_has_no_bytes(void **state)
{
    (void)state;
    put(0, 0, 0, 1000);
    put(1, 0, 5000, MOST + 1);
    put(2, 1, PACK_LEN - 10, 1000);
    put(3, 7, 0, 1000);
    put(4, 2, 0, MOST);
    struct fetch_ahead *a = ahead(2);
    fetch_ahead_begin(a, items, 5);
    assert_int_equal(take(a, 0, 5), 2);
    fetch_ahead_free(a);
}

/* Runs that follow each other: what follows is read while the run before it is taken, and taken after it. */
static void the_next_run_is_read_meanwhile(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 60; i++)
        put(i, i / 20, (i % 20) * 15000, 11000);
    struct fetch_ahead *a = ahead(4);
    const uint64_t before = gets();
    fetch_ahead_begin(a, items, 20);
    assert_false(fetch_ahead_wants(a));
    assert_int_equal(take(a, 0, 17), 17);
    assert_true(fetch_ahead_wants(a)); /* three wait to be taken, the fourth buffer is with the worker */
    fetch_ahead_follow(a, items + 20, 40);
    assert_false(fetch_ahead_wants(a));
    assert_int_equal(take(a, 17, 3), 3);
    for (unsigned i = 0; i < 500 && gets() - before < 22; i++)
        usleep(10000);
    assert_true(gets() - before >= 22); /* of the run that follows, before any of it is taken */
    assert_int_equal(take(a, 20, 40), 40);
    assert_int_equal(gets() - before, 60);
    fetch_ahead_free(a);
}

static bool have_been_read(uint64_t n)
{
    for (unsigned i = 0; i < 500 && gets() < n; i++)
        usleep(10000);
    return gets() >= n;
}

/* What was taken is done with: its buffer is read into before the next one is taken, or has come. */
static void a_buffer_is_free_at_once(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 10; i++)
        put(i, 0, i * 15000, 11000);
    struct fetch_ahead *a = ahead(2);
    const uint64_t before = gets();
    fetch_ahead_begin(a, items, 10);
    assert_int_equal(take(a, 0, 1), 1);
    assert_true(have_been_read(before + 2));
    fetch_ahead_done(a);
    assert_true(have_been_read(before + 3));
    fetch_ahead_done(a); /* nothing is with the worker */
    assert_int_equal(take(a, 1, 9), 9);
    fetch_ahead_free(a);
}

static void any_run_any_number_of_reads(void **state)
{
    (void)state;
    srand(7);
    for (unsigned round = 0; round < 200; round++) {
        struct fetch_ahead *a = ahead(1 + (unsigned)rand() % FETCH_AHEAD_MAX);
        for (unsigned run = 0; run < 4; run++) {
            const size_t n = 1 + (size_t)rand() % ITEMS;
            uint32_t offset = 0;
            unsigned pack = 0;
            for (size_t i = 0; i < n; i++) {
                const uint32_t len = 1 + (uint32_t)rand() % (rand() % 4 ? 900 : 9000);
                if (offset + len > PACK_LEN || rand() % 50 == 0) {
                    pack = (pack + 1) % PACKS;
                    offset = 0;
                }
                put(i, pack, offset, len);
                offset += len + (rand() % 8 ? 0 : (uint32_t)rand() % 40000);
                offset = offset < PACK_LEN ? offset : 0;
            }
            fetch_ahead_begin(a, items, n);
            if (rand() % 4 == 0) { /* an error of the worker's: the rest is not wanted */
                const uint8_t *sealed;
                uint64_t from;
                fetch_ahead_next(a, &sealed, &from);
                fetch_ahead_drop(a);
            } else {
                assert_true(take(a, 0, n) > 0);
            }
        }
        fetch_ahead_free(a);
    }
}

static void ended_in_the_middle(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ITEMS; i++)
        put(i, i % PACKS, i * 1000, 1000);
    for (unsigned round = 0; round < 100; round++) {
        struct fetch_ahead *a = ahead(4);
        fetch_ahead_begin(a, items, ITEMS);
        take(a, 0, round % 5);
        fetch_ahead_free(a);
    }
}

static unsigned refuse_at; /* the thread that cannot be started, by --wrap; 0: none */

int __real_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    if (refuse_at && --refuse_at == 0)
        return EAGAIN;
    return __real_pthread_create(t, attr, fn, arg);
}

static void a_thread_cannot_be_started(void **state)
{
    (void)state;
    for (unsigned at = 1; at <= 4; at++) {
        struct err e = ERR_INIT;
        struct fetch_ahead *a = NULL;
        refuse_at = at;
        assert_int_equal(fetch_ahead_new(&a, store, 4, MOST, FETCH_GROUP_GAP, &e), -EAGAIN);
        assert_null(a);
        assert_non_null(strstr(e.msg, "cannot start a thread that reads ahead: "));
    }
    refuse_at = 0;
    fetch_ahead_free(ahead(4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_are_one_read),        cmocka_unit_test(what_cannot_be_read_has_no_bytes),
        cmocka_unit_test(the_next_run_is_read_meanwhile), cmocka_unit_test(a_buffer_is_free_at_once),
        cmocka_unit_test(any_run_any_number_of_reads),    cmocka_unit_test(ended_in_the_middle),
        cmocka_unit_test(a_thread_cannot_be_started),
    };
    return cmocka_run_group_tests_name("fetch_ahead", tests, setup, teardown);
}
