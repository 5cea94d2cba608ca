/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Names that the configuration takes are those that the data path knows, and no others. */
#include "tests/unit/test.h"

#include "cfg/internal.h"
#include "chunker/splitter.h"
#include "repo/compress.h"

static const struct key *key_of(const char *name, bool of_repository)
{
    for (unsigned i = 0; i < n_keys; i++)
        if (!strcmp(key_table[i].pub.name, name) && !strcmp(key_table[i].pub.sections, "repository") == of_repository)
            return &key_table[i];
    fail_msg("there is no key %s", name);
    return NULL;
}

static unsigned words(const char *choices, bool (*known)(const char *word))
{
    char copy[1024];
    unsigned n = 0;
    snprintf(copy, sizeof copy, "%s", choices);
    for (char *w = strtok(copy, " "); w; w = strtok(NULL, " "), n++)
        if (!known(w))
            fail_msg("the configuration takes %s, the data path does not", w);
    return n;
}

static bool compressor(const char *word)
{
    return compress_id_by_name(word, NULL) >= 0;
}

static bool splitter(const char *word)
{
    struct splitter s;
    return splitter_by_name(&s, word) == 0;
}

static bool has_word(const char *choices, const char *word)
{
    char all[1200], one[80];
    snprintf(all, sizeof all, " %s ", choices);
    snprintf(one, sizeof one, " %s ", word);
    return strstr(all, one) != NULL;
}

static void compressors(void **state)
{
    (void)state;
    for (int repo = 0; repo < 2; repo++) {
        const char *choices = key_of("compression", repo)->choices;
        unsigned n = words(choices, compressor), writable = 0;
        for (; compress_writable(writable); writable++)
            if (!has_word(choices, compress_writable(writable)))
                fail_msg("the configuration does not take %s", compress_writable(writable));
        assert_int_equal(n, writable + 1); /* and "none" */
    }
}

static void splitters(void **state)
{
    (void)state;
    static const char *const sizes[] = {"128K", "256K", "512K", "1M", "2M", "4M", "8M"};
    static const char *const kinds[][2] = {{"DYNAMIC-", "-BUZHASH"}, {"DYNAMIC-", "-RABINKARP"}, {"FIXED-", ""}};
    for (int repo = 0; repo < 2; repo++) {
        const char *choices = key_of("splitter", repo)->choices;
        assert_int_equal(words(choices, splitter), 3 * 7 + 2);
        for (unsigned i = 0; i < 21; i++) {
            char name[40];
            snprintf(name, sizeof name, "%s%s%s", kinds[i / 7][0], sizes[i % 7], kinds[i / 7][1]);
            assert_true(splitter(name) && has_word(choices, name));
        }
    }
}

/* Documented as keys, not as members of records and jobs. */
static void each_limit_of_a_mover_is_a_key(void **state)
{
    (void)state;
#define OFFSET(name, ...) offsetof(struct cfg_policy, limits.name),
    static const size_t offsets[] = {MOVER_LIMITS(OFFSET, OFFSET, OFFSET, OFFSET)};
    for (size_t n = 0; n < sizeof offsets / sizeof *offsets; n++) {
        unsigned keys = 0;
        for (unsigned i = 0; i < n_keys; i++)
            keys += key_table[i].place == IN_POLICY && key_table[i].offset == offsets[n];
        if (keys != 1)
            fail_msg("limit %zu of MOVER_LIMITS has %u keys", n, keys);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compressors),
        cmocka_unit_test(splitters),
        cmocka_unit_test(each_limit_of_a_mover_is_a_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
