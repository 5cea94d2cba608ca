/* SPDX-License-Identifier: GPL-2.0-or-later */
/* recipe.c - source data of the golden repositories, from their recipes (tests/fixtures/README.md). */
#include "tests/unit/test.h"

static void append_prng(uint8_t *out, uint64_t seed, size_t len)
{
    size_t i = 0;
    for (; len - i >= 8; i += 8)
        put_le64(out + i, splitmix64(&seed));
    uint8_t w[8];
    put_le64(w, splitmix64(&seed));
    memcpy(out + i, w, len - i);
}

static void append_lines(uint8_t *out, uint64_t seed, size_t len)
{
    uint8_t line[64 + 1] = "00000000 the quick brown fox jumps over the lazy dog 0123456789\n";
    for (size_t i = 0; i < len; i += 64) {
        uint32_t w = (uint32_t)splitmix64(&seed);
        for (unsigned k = 0; k < 8; k++)
            line[k] = (uint8_t) "0123456789abcdef"[w >> (28 - 4 * k) & 15];
        memcpy(out + i, line, len - i < 64 ? len - i : 64);
    }
}

static void append_count(uint8_t *out, uint64_t mod, size_t len)
{
    uint64_t c = 0;
    for (size_t i = 0; i < len; i++) {
        out[i] = (uint8_t)c;
        c = c + 1 == mod ? 0 : c + 1;
    }
}

uint8_t *recipe_expand(const char *recipe, size_t *len)
{
    size_t n = 0;
    uint8_t *out = malloc(1);
    assert_non_null(out);
    const char *p = recipe;
    while (*p) {
        const char *end = strchr(p, '+');
        if (!end)
            end = p + strlen(p);
        char seg[4096];
        assert_true((size_t)(end - p) < sizeof seg);
        memcpy(seg, p, (size_t)(end - p));
        seg[end - p] = '\0';
        char *colon = strchr(seg, ':');
        assert_non_null(colon);
        *colon = '\0';
        if (!strcmp(seg, "str")) {
            const char *s = colon + 1;
            out = realloc(out, n + strlen(s) + 1);
            assert_non_null(out);
            for (; *s; s++) {
                if (s[0] == '\\' && s[1] == 'n') {
                    out[n++] = '\n';
                    s++;
                } else {
                    out[n++] = (uint8_t)*s;
                }
            }
        } else {
            char *rest = NULL;
            uint64_t a = strtoull(colon + 1, &rest, !strcmp(seg, "fill") ? 16 : 10);
            assert_int_equal(*rest, ':');
            size_t l = strtoull(rest + 1, NULL, 10);
            out = realloc(out, n + l + 1);
            assert_non_null(out);
            if (!strcmp(seg, "prng"))
                append_prng(out + n, a, l);
            else if (!strcmp(seg, "lines"))
                append_lines(out + n, a, l);
            else if (!strcmp(seg, "fill"))
                memset(out + n, (int)a, l);
            else if (!strcmp(seg, "count"))
                append_count(out + n, a, l);
            else
                fail_msg("unknown recipe segment %s", seg);
            n += l;
        }
        p = *end ? end + 1 : end;
    }
    *len = n;
    return out;
}
