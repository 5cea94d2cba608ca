/* SPDX-License-Identifier: GPL-2.0-or-later */
/* test_s2.c - S2 streams: golden ones, every element of the block format made by hand, hostile input. */
#include "repo/s2.h"

#include "tests/unit/test.h"

#include <jansson.h>

/* A block under construction together with what it expands to. */
struct sample {
    uint8_t block[1 << 16], plain[1 << 20];
    size_t n, len, offset;
};

static void put(struct sample *s, uint64_t v, int bytes)
{
    for (; bytes--; v >>= 8)
        s->block[s->n++] = (uint8_t)v;
}

static void add_literal(struct sample *s, const void *p, size_t len, int length_bytes)
{
    s->block[s->n++] = (uint8_t)((length_bytes ? 59 + (size_t)length_bytes : len - 1) << 2);
    put(s, len - 1, length_bytes);
    memcpy(s->block + s->n, p, len);
    memcpy(s->plain + s->len, p, len);
    s->n += len;
    s->len += len;
}

static void copy_plain(struct sample *s, size_t offset, size_t len)
{
    assert_true(offset && offset <= s->len && s->len + len <= sizeof s->plain);
    for (; len; len--, s->len++)
        s->plain[s->len] = s->plain[s->len - offset];
    s->offset = offset;
}

static void add_copy(struct sample *s, int offset_bytes, size_t offset, size_t len)
{
    if (offset_bytes == 1) {
        s->block[s->n++] = (uint8_t)(1 | (len - 4) << 2 | offset >> 8 << 5);
        s->block[s->n++] = (uint8_t)offset;
    } else {
        s->block[s->n++] = (uint8_t)((offset_bytes == 2 ? 2 : 3) | (len - 1) << 2);
        put(s, offset, offset_bytes);
    }
    copy_plain(s, offset, len);
}

static void add_repeat(struct sample *s, size_t len)
{
    int extra = len <= 8 ? 0 : len < 264 ? 1 : len < 65796 ? 2 : 3;
    static const size_t base[4] = {4, 8, 260, 65540};
    s->block[s->n++] = (uint8_t)(1 | (extra ? 4 + (size_t)extra : len - 4) << 2);
    s->block[s->n++] = 0;
    put(s, len - base[extra], extra);
    copy_plain(s, s->offset, len);
}

static size_t varint(uint8_t *p, uint64_t v)
{
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        p[n++] = (uint8_t)(v | 0x80);
    p[n++] = (uint8_t)v;
    return n;
}

static uint32_t masked(const uint8_t *p, size_t n) /* bit by bit: independent of ISA-L's CRC */
{
    uint32_t c = ~0u;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++)
            c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
    }
    c = ~c;
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

static size_t add_chunk(uint8_t *out, unsigned type, const void *body, size_t len)
{
    put_le32(out, (uint32_t)(len << 8 | type));
    memcpy(out + 4, body, len);
    return 4 + len;
}

/* The whole block with its length in front; *n gets its length. */
static uint8_t *finish(const struct sample *s, size_t *n)
{
    uint8_t *p = malloc(s->n + 10);
    assert_non_null(p);
    *n = varint(p, s->len);
    memcpy(p + *n, s->block, s->n);
    *n += s->n;
    return p;
}

static void check_block(const struct sample *s)
{
    size_t n;
    CLEANUP_FREE uint8_t *b = finish(s, &n), *out = malloc(s->len + 1);
    struct err e = ERR_INIT;
    out[s->len] = 0xa5;
    assert_int_equal(s2_expand_block(b, n, out, s->len, &e), s->len);
    assert_memory_equal(out, s->plain, s->len);
    assert_int_equal(out[s->len], 0xa5);
    if (s->len) {
        assert_true(s2_expand_block(b, n, out, s->len - 1, &e) < 0);
        assert_int_equal(e.cls, ERR_DAMAGE);
    }
    for (size_t cut = 0; cut < n; cut += cut < 200 ? 1 : 97)
        assert_true(s2_expand_block(b, cut, out, s->len, &e) < 0);
}

static struct sample *new_sample(void)
{
    struct sample *s = calloc(1, sizeof *s);
    assert_non_null(s);
    return s;
}

static void every_element_expands(void **state)
{
    (void)state;
    size_t noise_len;
    CLEANUP_FREE uint8_t *noise = recipe_expand("prng:1:40000", &noise_len);
    CLEANUP_FREE struct sample *s = new_sample();
    check_block(s); /* empty */
    static const size_t lits[] = {1, 2, 59, 60, 61, 255, 256, 257, 3000};
    for (size_t i = 0; i < sizeof lits / sizeof lits[0]; i++)
        for (int lb = 0; lb <= 4; lb++) {
            if ((lb == 0 && lits[i] > 60) || (lb == 1 && lits[i] > 256))
                continue;
            s->n = s->len = 0;
            add_literal(s, noise, lits[i], lb);
            check_block(s);
        }
    for (size_t offset = 1; offset < 2048; offset = offset * 3 / 2 + 1)
        for (size_t len = 4; len <= 11; len++) {
            s->n = s->len = 0;
            add_literal(s, noise, 2048, 2);
            add_copy(s, 1, offset, len);
            check_block(s);
        }
    static const size_t offsets[] = {1, 2, 3, 4, 7, 8, 15, 16, 31, 63, 64, 65, 2047, 2048, 30000, 40000};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++)
        for (size_t len = 1; len <= 64; len += 3)
            for (int ob = 2; ob <= 4; ob += 2) {
                s->n = s->len = 0;
                add_literal(s, noise, noise_len, 2);
                add_copy(s, ob, offsets[i], len);
                check_block(s);
            }
    static const size_t repeats[] = {4, 5, 7, 8, 9, 10, 262, 263, 264, 265, 65794, 65795, 65796, 65797, 900000};
    for (size_t i = 0; i < sizeof repeats / sizeof repeats[0]; i++)
        for (size_t offset = 1; offset < 300; offset = offset * 5 / 2 + 1) {
            s->n = s->len = 0;
            add_literal(s, noise, 300, 2);
            add_copy(s, 2, offset, 7);
            add_literal(s, noise, 3, 0); /* a literal between does not make the offset forgotten */
            add_repeat(s, repeats[i]);
            add_repeat(s, 4);
            check_block(s);
        }
}

static void random_blocks_expand(void **state)
{
    (void)state;
    size_t noise_len;
    CLEANUP_FREE uint8_t *noise = recipe_expand("prng:2:5000", &noise_len);
    CLEANUP_FREE struct sample *s = new_sample();
    uint64_t seed = 3;
    for (int round = 0; round < 400; round++) {
        s->n = s->len = s->offset = 0;
        while (s->n < 20000 && s->len < 500000) {
            uint64_t r = splitmix64(&seed), len = r >> 8 & 0x3f, back = r >> 20;
            switch (s->len ? r & 3 : 0) {
            case 0:
                add_literal(s, noise + (r >> 40) % 4000, len + 1, len < 60 ? (int)(r >> 60 & 3) : 1);
                break;
            case 1: {
                size_t max = s->len < 2047 ? s->len : 2047;
                add_copy(s, 1, 1 + back % max, 4 + len % 8);
                break;
            }
            case 2:
                add_copy(s, back & 1 ? 2 : 4, 1 + (back >> 1) % (s->len < 65535 ? s->len : 65535), len + 1);
                break;
            default:
                if (s->offset)
                    add_repeat(s, 4 + (r >> 32) % (r >> 62 ? 400 : 70000));
            }
        }
        size_t n;
        CLEANUP_FREE uint8_t *b = finish(s, &n), *out = malloc(s->len);
        struct err e = ERR_INIT;
        assert_int_equal(s2_expand_block(b, n, out, s->len, &e), s->len);
        assert_memory_equal(out, s->plain, s->len);
    }
}

static void malformed_blocks_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = {
        {"", 0},                          /* no length */
        {"\x80", 1},                      /* length goes on */
        {"\xff\xff\xff\xff\xff\x01", 6},  /* length of more than 32 bits */
        {"\xff\xff\xff\xff\x0f\x00z", 7}, /* 4 GiB */
        {"\x04", 1},                      /* nothing comes */
        {"\x04\x00z", 3},                 /* too little comes */
        {"\x04\x10zzzzz", 7},             /* more than announced */
        {"\x08\x0czzzz\x01\x00", 8},      /* repeat before any copy */
        {"\x08\x0czzzz\x01\x05", 8},      /* offset 5 of 4 */
        {"\x08\x0czzzz\x0e\x00\x00", 9},  /* copy with offset 0 */
        {"\x08\x0czzzz\x0e\x05\x00", 9},  /* offset 5 of 4 */
        {"\x08\x0czzzz\x0f\x00\x00\x00\x00", 11},
        {"\x08\x0czzzz\x0f\xff\xff\xff\xff", 11},
        {"\x08\x0czzzz\x12\x04\x00", 9}, /* copy of 5 for 4 */
        {"\x08\x0czzzz\x0e\x04", 8},     /* cut in an offset */
        {"\x08\x0czzzz\x01", 7},
        {"\x40\xf0", 2},                      /* cut in the length of a literal */
        {"\x40\xfc\xff\xff\xff\xffz", 7},     /* literal of 4 GiB */
        {"\x10\x0czzzz\x01\x04\x15\x00", 10}, /* cut in the length of a repeat */
        {"\x10\x0czzzz\x01\x04\x1d\x00\xff\xff\xff", 13},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint8_t out[64];
        struct err e = ERR_INIT;
        CLEANUP_FREE uint8_t *exact = malloc(bad[i].n + !bad[i].n);
        memcpy(exact, bad[i].bytes, bad[i].n);
        if (s2_expand_block(exact, bad[i].n, out, sizeof out, &e) >= 0)
            fail_msg("malformed block %zu was taken", i);
        assert_int_equal(e.cls, ERR_DAMAGE);
    }
}

static void streams_have_their_chunks(void **state)
{
    (void)state;
    uint8_t p[400], body[64], out[64];
    size_t n = add_chunk(p, 0xff, "S2sTwO", 6);
    put_le32(body, masked((const uint8_t *)"hello", 5));
    memcpy(body + 4, "hello", 5);
    n += add_chunk(p + n, 0x01, body, 9);
    n += add_chunk(p + n, 0xfe, "\0\0\0", 3);           /* padding */
    n += add_chunk(p + n, 0x99, "s2idx\0whatever", 14); /* index */
    n += add_chunk(p + n, 0x80, "", 0);
    n += add_chunk(p + n, 0xff, "sNaPpY", 6); /* another stream follows */
    put_le32(body, masked((const uint8_t *)"aaaaaaaa", 8));
    memcpy(body + 4,
           "\x08\x00"
           "a\x0d\x01",
           5); /* 8 bytes: literal a, copy of 7 from 1 back */
    n += add_chunk(p + n, 0x00, body, 9);
    struct err e = ERR_INIT;
    assert_int_equal(s2_expand(p, n, out, sizeof out, &e), 13);
    assert_memory_equal(out, "helloaaaaaaaa", 13);
    assert_int_equal(s2_expand(p, n, out, 13, &e), 13);
    assert_true(s2_expand(p, n, out, 12, &e) < 0);
    assert_true(s2_expand(p, n, out, 4, &e) < 0);
    assert_int_equal(s2_expand("", 0, out, 0, &e), 0); /* nothing compressed is nothing */
    /* wherever it is cut, it is refused, or cut between two chunks */
    for (size_t cut = 0; cut < n; cut++) {
        CLEANUP_FREE uint8_t *exact = malloc(cut + !cut);
        memcpy(exact, p, cut);
        int64_t got = s2_expand(exact, cut, out, sizeof out, &e);
        assert_true(got < 0 || got == 0 || got == 5);
    }
    for (size_t bit = 0; bit < n * 8; bit++) {
        p[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CLEANUP_FREE uint8_t *exact = malloc(n);
        memcpy(exact, p, n);
        int64_t got = s2_expand(exact, n, out, sizeof out, &e);
        p[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (got == 13)
            assert_memory_equal(out, "helloaaaaaaaa", 13);
        else
            assert_true(got < 13); /* a chunk that became skippable is missing; the length tells */
    }
    n = add_chunk(p, 0x01, body, 9);
    assert_true(s2_expand(p, n, out, sizeof out, &e) < 0); /* no identifier */
    n = add_chunk(p, 0xff, "S2sTwo", 6);
    assert_true(s2_expand(p, n, out, sizeof out, &e) < 0);
    n = add_chunk(p, 0xff, "S2sTwO", 6);
    size_t m = n + add_chunk(p + n, 0x02, "x", 1); /* reserved, not to be skipped */
    assert_true(s2_expand(p, m, out, sizeof out, &e) < 0);
    m = n + add_chunk(p + n, 0x01, "xyz", 3);
    assert_true(s2_expand(p, m, out, sizeof out, &e) < 0);
}

static void golden_streams_expand_or_fail_when_cut(void **state)
{
    (void)state;
    CLEANUP_FCLOSE FILE *f = fopen(fixture_path("vectors/compression.jsonl"), "r");
    assert_non_null(f);
    CLEANUP_FREE char *line = NULL;
    size_t room = 0, checked = 0;
    while (getline(&line, &room, f) > 0) {
        if (!strstr(line, "\"compressor\":\"s2-"))
            continue;
        json_t *j = json_loads(line, 0, NULL);
        assert_non_null(j);
        const char *hex = json_string_value(json_object_get(j, "hex"));
        size_t len, n = strlen(hex) / 2;
        CLEANUP_FREE uint8_t *want = recipe_expand(json_string_value(json_object_get(j, "input")), &len);
        CLEANUP_FREE uint8_t *in = malloc(n), *out = malloc(len + 1);
        hex_decode(in, hex, 2 * n);
        struct err e = ERR_INIT;
        assert_int_equal(s2_expand(in + 4, n - 4, out, len, &e), len);
        assert_memory_equal(out, want, len);
        for (size_t cut = n - 4; cut-- > 0; cut -= cut > 300 ? 299 : 0)
            if (s2_expand(in + 4, cut, out, len, &e) == (int64_t)len && len)
                fail_msg("cut at %zu of %zu went unnoticed", cut, n - 4);
        checked++;
        json_decref(j);
    }
    assert_int_equal(checked, 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_expands),
        cmocka_unit_test(random_blocks_expand),
        cmocka_unit_test(malformed_blocks_are_refused),
        cmocka_unit_test(streams_have_their_chunks),
        cmocka_unit_test(golden_streams_expand_or_fail_when_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
