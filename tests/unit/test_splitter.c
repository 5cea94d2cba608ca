/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/test.h"

#include "chunker/rolling.h"
#include "chunker/splitter.h"
#include "tests/unit/levels.h"

#include <openssl/sha.h>

#include <jansson.h>
#include <stdbool.h>

/*
 * The definition, byte by byte (format, section 11.4): a circular window and the hash of it, both carried over cuts. It
 * keeps the window of Rabin-Karp by its own arithmetic, not by the tables under test.
 */
struct reference {
    enum splitter_kind kind;
    uint32_t min, max, mask;
    uint8_t window[64];
    unsigned oldest;
    uint32_t buz;
    uint64_t rabin;
    uint64_t out[256];
    uint32_t count;
};

static uint64_t poly_append(uint64_t v, uint8_t b)
{
    for (int i = 7; i >= 0; i--) {
        v = v << 1 | (b >> i & 1);
        if (v >> 53 & 1)
            v ^= UINT64_C(0x2e3e3e4a305605);
    }
    return v;
}

static void reference_init(struct reference *r, enum splitter_kind kind, uint32_t min, uint32_t max, uint32_t mask)
{
    memset(r, 0, sizeof *r);
    r->kind = kind;
    r->min = min;
    r->max = max;
    r->mask = mask;
    for (unsigned b = 0; b < 256; b++) {
        r->out[b] = poly_append(0, (uint8_t)b);
        for (unsigned i = 0; i < 63; i++)
            r->out[b] = poly_append(r->out[b], 0);
    }
}

/* True if there is a cut after this byte. */
static bool reference_byte(struct reference *r, uint8_t b)
{
    uint8_t out = r->window[r->oldest];
    r->window[r->oldest] = b;
    r->oldest = (r->oldest + 1) % 64;
    uint64_t hash;
    if (r->kind == SPLITTER_BUZHASH) {
        r->buz = (r->buz << 1 | r->buz >> 31) ^ buzhash_table[out] ^ buzhash_table[b];
        hash = r->buz;
    } else {
        r->rabin = poly_append(r->rabin ^ r->out[out], b);
        hash = r->rabin;
    }
    r->count++;
    if (r->count < r->min || ((hash & r->mask) && r->count < r->max))
        return false;
    r->count = 0;
    return true;
}

static FILE *open_vectors(const char *name)
{
    FILE *f = fopen(fixture_path(name), "r");
    if (!f)
        fail_msg("%s: %s", fixture_path(name), strerror(errno));
    return f;
}

static const char *member(const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));
    if (!s)
        fail_msg("no string %s in the vector", name);
    return s;
}

struct vector {
    json_t *json;
    const char *input;
};

static int by_input(const void *a, const void *b)
{
    return strcmp(((const struct vector *)a)->input, ((const struct vector *)b)->input);
}

static void all_names_cut_as_kopia(void **state)
{
    (void)state;
    CLEANUP_FCLOSE FILE *f = open_vectors("vectors/splitter.jsonl");
    struct vector v[2000];
    size_t n = 0;
    for (json_t *j; (j = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL));) {
        assert_true(n < sizeof v / sizeof v[0]);
        v[n].json = j;
        v[n++].input = member(j, "input");
    }
    assert_int_equal(n, 1272);
    /* Many vectors share an input: expand each once. */
    qsort(v, n, sizeof v[0], by_input);
    uint8_t *data = NULL;
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(v[i].input, v[i - 1].input) != 0) {
            free(data);
            data = recipe_expand(v[i].input, &len);
        }
        const char *name = member(v[i].json, "splitter");
        const json_t *cuts = json_object_get(v[i].json, "cuts");
        struct splitter s;
        assert_int_equal(splitter_by_name(&s, name), 0);
        assert_string_equal(s.name, name);
        size_t pos = 0;
        for (size_t c = 0; c < json_array_size(cuts); c++) {
            size_t cut = splitter_cut(&s, data + pos, len - pos, 0);
            if ((json_int_t)cut != json_integer_value(json_array_get(cuts, c)))
                fail_msg("%s of %s: chunk %zu at %zu has %zu bytes", name, v[i].input, c, pos, cut);
            pos += cut;
        }
        if (splitter_cut(&s, data + pos, len - pos, 0) != 0)
            fail_msg("%s of %s: one cut too many", name, v[i].input);
        assert_int_equal(len - pos, json_integer_value(json_object_get(v[i].json, "tail")));
    }
    free(data);
    for (size_t i = 0; i < n; i++)
        json_decref(v[i].json);
}

/* A splitter of any size. Below min == 64 only the reference can follow the window across cuts. */
static struct splitter custom(enum splitter_kind kind, uint32_t average)
{
    struct splitter s = {.kind = kind, .min = average / 2, .max = average * 2, .mask = average - 1};
    if (kind == SPLITTER_FIXED)
        s.min = s.max = average;
    return s;
}

static void tiny_averages_cut_as_kopia(void **state)
{
    (void)state;
    CLEANUP_FCLOSE FILE *f = open_vectors("vectors/splitter-small.jsonl");
    size_t n = 0, by_cut = 0;
    for (json_t *j; (j = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)); n++) {
        size_t len;
        CLEANUP_FREE uint8_t *data = recipe_expand(member(j, "input"), &len);
        const char *alg = member(j, "algorithm");
        uint32_t average = (uint32_t)json_integer_value(json_object_get(j, "average"));
        enum splitter_kind kind = !strcmp(alg, "BUZHASH") ? SPLITTER_BUZHASH
                                  : !strcmp(alg, "FIXED") ? SPLITTER_FIXED
                                                          : SPLITTER_RABINKARP;
        struct splitter s = custom(kind, average);
        struct reference ref;
        reference_init(&ref, kind, s.min, s.max, s.mask);
        if (kind != SPLITTER_FIXED) {
            assert_int_equal(s.min, json_integer_value(json_object_get(j, "min")));
            assert_int_equal(s.max, json_integer_value(json_object_get(j, "max")));
        }
        const json_t *cuts = json_object_get(j, "cuts");
        size_t found = 0, start = 0;
        for (size_t i = 0; i < len; i++) {
            if (kind == SPLITTER_FIXED ? (i + 1) % average != 0 : !reference_byte(&ref, data[i]))
                continue;
            assert_int_equal(i + 1 - start, json_integer_value(json_array_get(cuts, found)));
            if (s.min >= 64) {
                assert_int_equal(splitter_cut(&s, data + start, len - start, 0), i + 1 - start);
                by_cut++;
            }
            start = i + 1;
            found++;
        }
        assert_int_equal(found, json_array_size(cuts));
        assert_int_equal(len - start, json_integer_value(json_object_get(j, "tail")));
        if (s.min >= 64)
            assert_int_equal(splitter_cut(&s, data + start, len - start, 0), 0);
        json_decref(j);
    }
    assert_int_equal(n, 90);
    assert_true(by_cut > 500);
}

/* Data with everything that a rolling hash may meet: noise, runs of equal bytes of any length, short periods. */
static void fill_random(uint8_t *p, size_t len, uint64_t *seed)
{
    for (size_t i = 0; i < len;) {
        uint64_t r = splitmix64(seed);
        size_t run = 1 + (r >> 8) % (1U << (3 + (r >> 56) % 10));
        run = run < len - i ? run : len - i;
        switch (r % 4) {
        case 0:
            memset(p + i, (int)(r >> 40 & 0xff), run);
            break;
        case 1:
            memset(p + i, 0, run);
            break;
        case 2:
            for (size_t k = 0; k < run; k++)
                p[i + k] = (uint8_t)(k % (1 + (r >> 40) % 67));
            break;
        default:
            for (size_t k = 0; k < run; k++)
                p[i + k] = (uint8_t)splitmix64(seed);
        }
        i += run;
    }
}

/* splitter_cut() on random data, given in random pieces at random alignments, against the definition. */
static void cuts_equal_the_definition(void **state)
{
    (void)state;
    uint64_t seed = 20260101;
    for (int round = 0; round < 600; round++) {
        enum splitter_kind kind = round % 2 ? SPLITTER_BUZHASH : SPLITTER_RABINKARP;
        struct splitter s = custom(kind, 128U << splitmix64(&seed) % 10);
        size_t len = splitmix64(&seed) % (4 * s.max);
        /* An allocation that ends with the data, so that a sanitizer sees a byte read past it. */
        size_t offset = splitmix64(&seed) % 64;
        CLEANUP_FREE uint8_t *mem = malloc(offset + len + 1);
        assert_non_null(mem);
        uint8_t *data = mem + offset;
        mem = realloc(mem, offset + len ? offset + len : 1);
        data = mem + offset;
        fill_random(data, len, &seed);
        struct reference ref;
        reference_init(&ref, kind, s.min, s.max, s.mask);
        size_t start = 0, have = 0, scanned = 0, pos = 0;
        while (start < len) {
            /* A few more bytes arrive. */
            size_t more = 1 + splitmix64(&seed) % (splitmix64(&seed) % 3 ? s.max : 100);
            have = have + more < len ? have + more : len;
            size_t cut;
            while ((cut = splitter_cut(&s, data + start, have - start, scanned)) != 0) {
                while (!reference_byte(&ref, data[pos++]))
                    assert_true(pos < len);
                if (start + cut != pos)
                    fail_msg("round %d: chunk at %zu ends at %zu, not %zu", round, start, start + cut, pos);
                start = pos;
                scanned = 0;
            }
            scanned = have - start;
            assert_true(have - start < s.max);
            if (have == len)
                break;
        }
        for (; pos < len; pos++)
            assert_false(reference_byte(&ref, data[pos]));
    }
}

/* Every end of a scan range, and a hit at every place of it: what kernels that cut the range in pieces get wrong. */
static void hits_are_found_at_every_position(void **state)
{
    (void)state;
    uint64_t seed = 7;
    enum { MIN = 64, LEN = 120000 };
    CLEANUP_FREE uint8_t *data = malloc(LEN);
    assert_non_null(data);
    for (size_t i = 0; i < LEN; i++)
        data[i] = (uint8_t)(splitmix64(&seed) | 1); /* no zero byte but those below */
    for (size_t hit = MIN; hit <= LEN; hit += hit < 1200 || hit > LEN - 300 ? 1 : 1 + splitmix64(&seed) % 211) {
        uint8_t saved[64], decoy[64];
        memcpy(saved, data + hit - 64, 64);
        memset(data + hit - 64, 0, 64); /* hashes to 0 under either */
        size_t later = hit + 64 + splitmix64(&seed) % LEN;
        if (later <= LEN) {
            memcpy(decoy, data + later - 64, 64);
            memset(data + later - 64, 0, 64);
        }
        for (int kind = SPLITTER_BUZHASH; kind <= SPLITTER_RABINKARP; kind++) {
            struct splitter s = {.kind = (enum splitter_kind)kind, .min = MIN, .max = 1U << 30, .mask = 0xffffffff};
            size_t len = hit + splitmix64(&seed) % (LEN - hit + 1);
            size_t scanned = splitmix64(&seed) % 2 ? splitmix64(&seed) % hit : 0;
            assert_int_equal(splitter_cut(&s, data, len, scanned), hit);
            assert_int_equal(splitter_cut(&s, data, hit - 1, 0), 0);
        }
        if (later <= LEN)
            memcpy(data + later - 64, decoy, 64);
        memcpy(data + hit - 64, saved, 64);
    }
}

/* The last candidates: max - 1 still is one, and max is a cut whatever the hash. */
static void a_hit_just_before_the_maximum_counts(void **state)
{
    (void)state;
    uint64_t seed = 9;
    enum { MAX = 40000, LEN = MAX + 100 };
    CLEANUP_FREE uint8_t *data = malloc(LEN);
    assert_non_null(data);
    for (size_t hit = MAX - 3; hit <= MAX + 1; hit++) {
        for (size_t i = 0; i < LEN; i++)
            data[i] = (uint8_t)(splitmix64(&seed) | 1);
        memset(data + hit - 64, 0, 64);
        for (int kind = SPLITTER_BUZHASH; kind <= SPLITTER_RABINKARP; kind++) {
            struct splitter s = {.kind = (enum splitter_kind)kind, .min = 64, .max = MAX, .mask = 0xffffffff};
            size_t want = hit < MAX ? hit : MAX;
            assert_int_equal(splitter_cut(&s, data, LEN, 0), want);
            assert_int_equal(splitter_cut(&s, data, MAX, 0), want);
            assert_int_equal(splitter_cut(&s, data, MAX, MAX - 4), want);
            assert_int_equal(splitter_cut(&s, data, MAX, want - 1), want);
            assert_int_equal(splitter_cut(&s, data, MAX - 1, 0), want < MAX ? want : 0);
        }
    }
}

static void names_are_those_of_kopia(void **state)
{
    (void)state;
    struct splitter s, t;
    unsigned n = 0;
    for (const char *name; (name = splitter_name(n)); n++) {
        assert_int_equal(splitter_by_name(&s, name), 0);
        assert_string_equal(s.name, name);
        for (unsigned k = 0; k < n; k++)
            assert_string_not_equal(name, splitter_name(k));
    }
    assert_int_equal(n, 21);
    assert_string_equal(splitter_name(0), "DYNAMIC-4M-BUZHASH");
    assert_null(splitter_name(1000));

    assert_int_equal(splitter_by_name(&s, "DYNAMIC"), 0);
    assert_int_equal(splitter_by_name(&t, "DYNAMIC-4M-BUZHASH"), 0);
    assert_true(s.kind == t.kind && s.min == t.min && s.max == t.max && s.mask == t.mask);
    assert_int_equal(s.min, 2097152);
    assert_int_equal(s.max, 8388608);
    assert_int_equal(s.mask, 4194303);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(splitter_by_name(&s, i ? "" : "FIXED"), 0);
        assert_int_equal(s.kind, SPLITTER_FIXED);
        assert_int_equal(s.max, 4194304);
    }

    static const char *const bad[] = {
        "fixed",
        "FIXED-",
        "FIXED-3M",
        "FIXED-1M ",
        "FIXED-1M-BUZHASH",
        "DYNAMIC-",
        "DYNAMIC-M",
        "DYNAMIC-4M",
        "DYNAMIC-4M-",
        "DYNAMIC-4M-BUZHAS",
        "DYNAMIC-4M-BUZHASH-",
        "DYNAMIC--BUZHASH",
        "DYNAMIC-4-BUZHASH",
        "DYNAMIC-4MM-RABINKARP",
        "-",
        "DYNAMIC-16M-BUZHASH",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(splitter_by_name(&s, bad[i]), -EINVAL);
}

static void constants_are_those_of_the_format(void **state)
{
    (void)state;
    uint8_t table[1024], digest[32];
    char hex[65];
    uint32_t all = 0;
    for (unsigned i = 0; i < 256; i++) {
        put_be32(table + 4 * i, buzhash_table[i]);
        all ^= buzhash_table[i];
    }
    SHA256(table, sizeof table, digest);
    assert_string_equal(hex_encode(hex, digest, 32),
                        "9f95254df5585a4957a754ceac4fba2a8af24ad015e84f56db59dfc1e218f6dd");
    assert_int_equal(all, 0x5ea4c370);
    /* Known answers of Kopia's own tests (format, section 16.1). */
    assert_true(rabinkarp_residue((const uint8_t *)"abcdef", 6) == UINT64_C(0x616263646566));
    assert_true(rabinkarp_residue((const uint8_t *)"abcdefg", 7) == UINT64_C(0x132021ba359c68));
    assert_true(rabinkarp_residue((const uint8_t *)"abcdefghij", 10) == UINT64_C(0xe9781880ddab2));
}

static void worked_examples_agree(void **state)
{
    (void)state;
    /* Format, section 16.2: 20 MiB of noise with ten of them zeroed. */
    static const size_t want[2][8] = {{3145792, 2097152, 2097152, 2097152, 2097152, 4924068},
                                      {2157069, 2097152, 2097152, 2097152, 2097152, 2097152, 4589290, 3419351}};
    static const char *const names[2] = {"DYNAMIC-4M-BUZHASH", "DYNAMIC-4M-RABINKARP"};
    size_t len;
    CLEANUP_FREE uint8_t *data = recipe_expand("prng:1:20971520", &len);
    memset(data + (3U << 20), 0, 10U << 20);
    for (int i = 0; i < 2; i++) {
        struct splitter s;
        assert_int_equal(splitter_by_name(&s, names[i]), 0);
        size_t pos = 0;
        for (size_t k = 0; k < 8 && want[i][k]; k++) {
            assert_int_equal(splitter_cut(&s, data + pos, len - pos, 0), want[i][k]);
            pos += want[i][k];
        }
        assert_int_equal(splitter_cut(&s, data + pos, len - pos, 0), 0);
        assert_int_equal(len - pos, i ? 320050 : 4513052);
    }
}

static void the_kernel_is_the_one_asked_for(void **state)
{
    (void)state;
    const char *want = getenv("SNAPFERRY_KERNEL_BUZHASH");
    if (want)
        assert_string_equal(splitter_kernel(SPLITTER_BUZHASH), want);
    want = getenv("SNAPFERRY_KERNEL_RABINKARP");
    if (want)
        assert_string_equal(splitter_kernel(SPLITTER_RABINKARP), want);
    assert_string_equal(splitter_kernel(SPLITTER_FIXED), "scalar");
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_those_of_kopia),         cmocka_unit_test(constants_are_those_of_the_format),
        cmocka_unit_test(the_kernel_is_the_one_asked_for),  cmocka_unit_test(worked_examples_agree),
        cmocka_unit_test(hits_are_found_at_every_position), cmocka_unit_test(a_hit_just_before_the_maximum_counts),
        cmocka_unit_test(cuts_equal_the_definition),        cmocka_unit_test(tiny_averages_cut_as_kopia),
        cmocka_unit_test(all_names_cut_as_kopia),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    const char *const kernels[] = {"BUZHASH", "RABINKARP", NULL};
    return run_at_every_level(kernels, run);
}
