/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test.h - cmocka with its prerequisites, and the few helpers that every unit test of snapferry uses. */
#ifndef SNAPFERRY_TESTS_UNIT_TEST_H
#define SNAPFERRY_TESTS_UNIT_TEST_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/err.h"

/* A new directory, in TMPDIR, which the runner of the tests has in memory where it can, unless its name were longer
 * than the usual one. NULL: errno. */
static inline char *scratch_new(char *ret, size_t size)
{
    static const char usual[] = "/tmp/snapferry-test-XXXXXX";
    const char *tmp = getenv("TMPDIR");
    if (!tmp || strlen(tmp) + sizeof "/XXXXXX" > sizeof usual)
        snprintf(ret, size, "%s", usual);
    else
        snprintf(ret, size, "%s/XXXXXX", tmp);
    return mkdtemp(ret);
}

/* Path of a golden file: $SNAPFERRY_FIXTURES (default tests/fixtures) + "/" + name. Static buffer, four in turn. */
static inline const char *fixture_path(const char *name)
{
    static char buf[4][4096];
    static unsigned turn;
    const char *dir = getenv("SNAPFERRY_FIXTURES");
    char *p = buf[turn++ % 4];
    snprintf(p, sizeof buf[0], "%s/%s", dir ? dir : "tests/fixtures", name);
    return p;
}

/* Path in the unpacked golden repositories: $SNAPFERRY_GOLDEN (default build/golden) + "/" + name ("hash-blake2s-128",
 * "hash-blake2s-128.expected.json"). Never write there: copy. Static buffer, four in turn. */
static inline const char *golden_path(const char *name)
{
    static char buf[4][4096];
    static unsigned turn;
    const char *dir = getenv("SNAPFERRY_GOLDEN");
    char *p = buf[turn++ % 4];
    snprintf(p, sizeof buf[0], "%s/%s", dir ? dir : "build/golden", name);
    return p;
}

/* SplitMix64, the generator of all recipes (see tests/fixtures/README.md). */
static inline uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* For repositories whose id does not matter. */
static const uint8_t test_unique_id[32] __attribute__((unused)) = "snapferry: the id of unit tests";

/* Fails the test with the sentence of `e` when `rc` is negative. */
#define assert_ok(rc, e)                                                                                               \
    do {                                                                                                               \
        long assert_ok_rc_ = (long)(rc);                                                                               \
        if (assert_ok_rc_ < 0)                                                                                         \
            fail_msg("%s = %ld: %s", #rc, assert_ok_rc_, (e)->msg);                                                    \
    } while (0)

/* Expands a recipe ("prng:SEED:LEN+fill:HH:LEN+lines:SEED:LEN+count:MOD:LEN+str:TEXT") into malloc()ed bytes. */
uint8_t *recipe_expand(const char *recipe, size_t *len);

#endif
