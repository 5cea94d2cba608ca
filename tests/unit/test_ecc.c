/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_ecc.c - error correction: Kopia's parameters, encodings and repairs; worked examples; hostile input. */
#include "repo/ecc.h"

#include "tests/unit/test.h"

#include <jansson.h>
#include <openssl/evp.h>

static void ecc_freep(struct ecc **x)
{
    ecc_free(*x);
}

static struct ecc *new_ecc(unsigned percent)
{
    struct err e = ERR_INIT;
    struct ecc *x;
    assert_ok(ecc_new(&x, percent, &e), &e);
    return x;
}

static void *xmalloc(size_t n)
{
    void *p = malloc(n ? n : 1);
    assert_non_null(p);
    return p;
}

static const char *sha256_hex(const void *p, size_t n)
{
    static char hex[65];
    uint8_t md[32];
    assert_int_equal(EVP_Digest(p, n, md, NULL, EVP_sha256(), NULL), 1);
    return hex_encode(hex, md, 32);
}

/* Encodes into a buffer of exactly the promised length. */
static uint8_t *encode(const struct ecc *x, const uint8_t *in, size_t len, size_t *stored)
{
    struct err e = ERR_INIT;
    *stored = ecc_encoded_len(x, len);
    uint8_t *out = xmalloc(*stored);
    memset(out, 0xa5, *stored);
    assert_ok(ecc_encode(x, in, len, out, &e), &e);
    return out;
}

static int64_t decode(const struct ecc *x, const uint8_t *in, size_t stored, uint8_t **out, bool *repaired)
{
    struct err e = ERR_INIT;
    size_t cap = ecc_decoded_max(x, stored);
    *out = xmalloc(cap);
    int64_t n = ecc_decode(x, in, stored, *out, cap, repaired, &e);
    if (n < 0)
        assert_int_equal(e.cls, ERR_DAMAGE);
    assert_true(n <= (int64_t)cap);
    return n;
}

typedef void line_fn(json_t *j, struct ecc *x, unsigned percent);

static size_t each_line(const char *name, line_fn *fn)
{
    CLEANUP_FCLOSE FILE *f = fopen(fixture_path(name), "r");
    assert_non_null(f);
    CLEANUP_FREE char *line = NULL;
    CLEANUP(ecc_freep) struct ecc *x = NULL;
    size_t room = 0, n = 0;
    unsigned have = 0;
    for (; getline(&line, &room, f) > 0; n++) {
        json_t *j = json_loads(line, 0, NULL);
        assert_non_null(j);
        unsigned percent = (unsigned)json_integer_value(json_object_get(j, "percent"));
        if (percent != have) {
            ecc_free(x);
            x = new_ecc(have = percent);
        }
        fn(j, x, percent);
        json_decref(j);
    }
    return n;
}

static size_t number(json_t *j, const char *key)
{
    json_t *v = json_object_get(j, key);
    assert_true(json_is_integer(v));
    return (size_t)json_integer_value(v);
}

static void check_parameters(json_t *j, struct ecc *x, unsigned percent)
{
    (void)percent;
    size_t d = number(j, "dataShards"), q = number(j, "parityShards"), m = number(j, "maxShardSize");
    size_t t1 = number(j, "thresholdParityInput"), t2 = number(j, "thresholdBlocksInput");
    assert_int_equal(t1, 8 * (d + q));
    assert_int_equal(t2, d * m);
    assert_int_equal(ecc_encoded_len(x, t1 - 4), number(j, "thresholdParityOutput"));
    assert_int_equal(ecc_encoded_len(x, t2 - 4), number(j, "thresholdBlocksOutput"));
    assert_int_equal(ecc_encoded_len(x, t1 - 3), (d + q) * (4 + (t1 + d) / d));
    assert_int_equal(ecc_encoded_len(x, t2 - 3), 2 * q * (4 + m) + d * (4 + m) + 4 + 1);
}

static void parameters_are_kopias(void **state)
{
    (void)state;
    assert_int_equal(each_line("vectors/ecc-parameters.jsonl", check_parameters), 100);
    struct ecc *x;
    struct err e = ERR_INIT;
    assert_true(ecc_new(&x, 0, &e) < 0);
    assert_int_equal(e.cls, ERR_FORMAT);
    assert_true(ecc_new(&x, 101, &e) < 0);
}

static void check_encoding(json_t *j, struct ecc *x, unsigned percent)
{
    (void)percent;
    size_t len, stored;
    CLEANUP_FREE uint8_t *in = recipe_expand(json_string_value(json_object_get(j, "input")), &len);
    CLEANUP_FREE uint8_t *out = encode(x, in, len, &stored), *back = NULL;
    assert_int_equal(stored, number(j, "storedLength"));
    assert_string_equal(sha256_hex(out, stored), json_string_value(json_object_get(j, "sha256")));
    bool repaired = true;
    assert_int_equal(decode(x, out, stored, &back, &repaired), len);
    assert_memory_equal(in, back, len);
    assert_false(repaired);
}

static void encodings_are_kopias(void **state)
{
    (void)state;
    assert_int_equal(each_line("vectors/ecc.jsonl", check_encoding), 653);
}

static size_t n_wrong;

static void check_repair(json_t *j, struct ecc *x, unsigned percent)
{
    (void)percent;
    size_t len, stored;
    CLEANUP_FREE uint8_t *in = recipe_expand(json_string_value(json_object_get(j, "input")), &len);
    CLEANUP_FREE uint8_t *out = encode(x, in, len, &stored), *back = NULL;
    size_t i;
    json_t *flip, *cut = json_object_get(j, "cutAtEnd"), *ok = json_object_get(j, "ok");
    json_array_foreach(json_object_get(j, "flips"), i, flip)
    {
        assert_true(number(flip, "offset") < stored);
        out[number(flip, "offset")] ^= (uint8_t)number(flip, "xor");
    }
    if (cut)
        stored -= number(j, "cutAtEnd");
    CLEANUP_FREE uint8_t *exact = xmalloc(stored);
    memcpy(exact, out, stored);
    int64_t n = decode(x, exact, stored, &back, NULL);
    if (!ok) { /* an error in Kopia */
        assert_non_null(json_object_get(j, "error"));
        assert_true(n < 0);
    } else if (json_is_true(ok)) {
        assert_int_equal(n, len);
        assert_memory_equal(in, back, len);
    } else { /* wrong bytes without an error: AEAD's job */
        n_wrong++;
        assert_true(n < 0 || (size_t)n != len || memcmp(in, back, len));
    }
}

static void repairs_are_kopias(void **state)
{
    (void)state;
    n_wrong = 0;
    assert_int_equal(each_line("vectors/ecc-repair.jsonl", check_repair), 315);
    assert_int_equal(n_wrong, 9);
}

static void worked_examples(void **state)
{
    (void)state;
    CLEANUP(ecc_freep) struct ecc *x = new_ecc(2);
    uint8_t in[200000];
    char hex[400];
    size_t n;
    CLEANUP_FREE uint8_t *a = encode(x, (const uint8_t *)"\1", 1, &n);
    assert_string_equal(hex_encode(hex, a, n),
                        "4c667a2e074c667a2e07d202ef8d00d202ef8d00d202ef8d00a505df1b01a505df1b01d202ef8d00");
    for (size_t i = 0; i < 100; i++)
        in[i] = (uint8_t)i;
    CLEANUP_FREE uint8_t *b = encode(x, in, 100, &n);
    assert_string_equal(
        hex_encode(hex, b, n),
        "54ce67542c2a60476c6d4e4f6061222334350300797a186db59c2225783a7e7f5051727304050607292b4d4f170dc0c200000064000102"
        "030405060708090a0b0c0da0a858230e0f101112131415161718191a1b1c1d1e1fdbc2ca91202122232425262728292a2b2c2d2e2f3031"
        "dbe3727e32333435363738393a3b3c3d3e3f40414243d2dcebc24445464748494a4b4c4d4e4f50515253545529fb1904565758595a5b5c"
        "5d5e5f6061626300000000");
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)(i % 255 + 1);
    CLEANUP_FREE uint8_t *c = encode(x, in, 5000, &n);
    assert_int_equal(n, 5810);
    assert_string_equal(sha256_hex(c, n), "f9517dfc161d9dd93bb152afb256bd96233f9d483eb704ab2912502f311beed4");
    CLEANUP_FREE uint8_t *d = encode(x, in, 200000, &n);
    assert_int_equal(n, 204664);
    assert_string_equal(sha256_hex(d, n), "79592d6bf501336cc02773aa9da4f535dcfbd56214ac71ad547aa2ce9c1c223c");
}

/* Damages as many whole shards of each block as there are parity shards, data and parity mixed, then one more. */
static void any_loss_up_to_the_parity_is_repaired(void **state)
{
    (void)state;
    static const unsigned percents[] = {1, 2, 4, 6, 7, 8, 11, 20, 50, 99, 100};
    static const size_t lens[] = {0, 1, 7, 1000, 2044, 8188, 8189, 20011, 262141, 600000};
    uint64_t seed = 99;
    for (size_t p = 0; p < sizeof percents / sizeof percents[0]; p++) {
        CLEANUP(ecc_freep) struct ecc *x = new_ecc(percents[p]);
        for (size_t l = 0; l < sizeof lens / sizeof lens[0]; l++) {
            char recipe[64];
            snprintf(recipe, sizeof recipe, "prng:%zu:%zu", l + 1, lens[l]);
            size_t len, stored, max = ecc_decoded_max(x, ecc_encoded_len(x, lens[l]));
            CLEANUP_FREE uint8_t *in = recipe_expand(recipe, &len);
            CLEANUP_FREE uint8_t *out = encode(x, in, len, &stored), *bad = xmalloc(stored), *back = NULL;
            assert_true(max >= len);
            /* the shape, told from the outside: see parameters_are_kopias for the numbers */
            static const struct {
                unsigned percent, d, q, m;
            } shapes[] = {{1, 254, 2, 1024}, {2, 164, 2, 512},   {4, 228, 2, 128},   {6, 128, 3, 128},
                          {7, 254, 2, 64},   {8, 128, 2, 64},    {11, 128, 6, 64},   {20, 128, 17, 64},
                          {50, 128, 56, 64}, {99, 128, 118, 64}, {100, 128, 120, 64}};
            size_t d = shapes[p].d, q = shapes[p].q, z = shapes[p].m, n = len + 4, blocks = 1;
            if (n <= 8 * (d + q)) {
                d = 6;
                q = 2;
                z = (n + 5) / 6;
            } else if (n <= d * z) {
                z = (n + d - 1) / d;
            } else {
                blocks = (n + d * z - 1) / (d * z);
            }
            for (size_t losses = 1; losses <= q + 1; losses += losses == q || q < 4 ? 1 : q - 1) {
                memcpy(bad, out, stored);
                bool data_hit = false, enough = true;
                for (size_t b = 0; b < blocks; b++) {
                    bool hit[384] = {false};
                    size_t hits = 0, want = losses > q ? q + 1 : losses;
                    for (size_t tries = 0; hits < want && tries < 100000; tries++) {
                        size_t i = splitmix64(&seed) % (d + q);
                        size_t at = i < q ? (b * q + i) * (4 + z) : (blocks * q + b * d + i - q) * (4 + z);
                        if (hit[i] || at + 5 > stored)
                            continue;
                        hit[i] = true;
                        hits++;
                        data_hit |= i >= q;
                        size_t room = stored - at < 4 + z ? stored - at : 4 + z;
                        bad[at + splitmix64(&seed) % room] ^= (uint8_t)(1 + splitmix64(&seed) % 255);
                    }
                    enough &= hits <= q;
                }
                bool repaired = false;
                free(take_ptr(&back));
                int64_t got = decode(x, bad, stored, &back, &repaired);
                if (enough) {
                    assert_int_equal(got, len);
                    assert_memory_equal(in, back, len);
                    assert_int_equal(repaired, data_hit);
                } else if (got >= 0) { /* with one parity shard too many hit, all data may be intact */
                    assert_int_equal(got, len);
                    assert_memory_equal(in, back, len);
                }
            }
        }
    }
}

static void every_cut_and_flip_is_survived(void **state)
{
    (void)state;
    static const unsigned percents[] = {1, 8, 100};
    static const size_t lens[] = {0, 3, 100, 2200};
    for (size_t p = 0; p < 3; p++) {
        CLEANUP(ecc_freep) struct ecc *x = new_ecc(percents[p]);
        for (size_t l = 0; l < sizeof lens / sizeof lens[0]; l++) {
            char recipe[64];
            snprintf(recipe, sizeof recipe, "prng:%zu:%zu", l + 1, lens[l]);
            size_t len, stored;
            CLEANUP_FREE uint8_t *in = recipe_expand(recipe, &len);
            CLEANUP_FREE uint8_t *out = encode(x, in, len, &stored);
            for (size_t cut = 0; cut < stored; cut++) {
                CLEANUP_FREE uint8_t *exact = xmalloc(cut), *back = NULL;
                memcpy(exact, out, cut);
                decode(x, exact, cut, &back, NULL); /* bytes or an error: both may be */
            }
            for (size_t bit = 0; bit < stored * 8; bit++) {
                CLEANUP_FREE uint8_t *back = NULL;
                out[bit / 8] ^= (uint8_t)(1 << bit % 8);
                assert_int_equal(decode(x, out, stored, &back, NULL), len);
                assert_memory_equal(in, back, len);
                out[bit / 8] ^= (uint8_t)(1 << bit % 8);
            }
        }
        for (size_t n = 0; n < 70000; n = n * 5 / 4 + 1) { /* noise */
            char recipe[64];
            snprintf(recipe, sizeof recipe, "prng:%zu:%zu", n, n);
            size_t len;
            CLEANUP_FREE uint8_t *in = recipe_expand(recipe, &len), *back = NULL;
            decode(x, in, len, &back, NULL);
        }
    }
}

static void room_is_respected(void **state)
{
    (void)state;
    CLEANUP(ecc_freep) struct ecc *x = new_ecc(10);
    size_t len, stored;
    CLEANUP_FREE uint8_t *in = recipe_expand("prng:1:5000", &len);
    CLEANUP_FREE uint8_t *out = encode(x, in, len, &stored);
    uint8_t back[5000];
    struct err e = ERR_INIT;
    assert_int_equal(ecc_decode(x, out, stored, back, 5000, NULL, &e), 5000);
    assert_true(ecc_decode(x, out, stored, back, 4999, NULL, &e) < 0);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_true(ecc_decode(x, out, 0, back, 5000, NULL, &e) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_kopias),
        cmocka_unit_test(encodings_are_kopias),
        cmocka_unit_test(repairs_are_kopias),
        cmocka_unit_test(worked_examples),
        cmocka_unit_test(any_loss_up_to_the_parity_is_repaired),
        cmocka_unit_test(every_cut_and_flip_is_survived),
        cmocka_unit_test(room_is_respected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
