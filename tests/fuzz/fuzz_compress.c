/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fuzz_compress.c - codecs: byte 0 says what is done with the rest
 *   even: expand it, into (byte 0 / 2) * 512 bytes at most
 *   odd: compress it with writable compressor number (byte 0 / 2), expand that again
 */
#include "tests/fuzz/fuzz.h"

#include "repo/compress.h"

#include <string.h>

static void expand(struct compressor *c, size_t cap, const uint8_t *in, size_t len)
{
    struct err e = ERR_INIT;
    uint8_t *out = malloc(cap ? cap : 1);
    MUST(out);
    int64_t n = compressor_expand_upto(c, 0, in, len, out, cap, &e);
    MUST(n <= (int64_t)cap);
    MUST(n >= 0 || e.cls == ERR_DAMAGE || e.cls == ERR_FORMAT);
    if (n >= 0) /* and the exact form agrees */
        MUST(compressor_expand(c, 0, in, len, out, (size_t)n, &e) == 0);
    free(out);
}

static void round_trip(struct compressor *c, unsigned codec, const uint8_t *in, size_t len)
{
    struct err e = ERR_INIT;
    const char *name = compress_writable(codec % 13);
    MUST(name);
    uint32_t id = (uint32_t)compress_id_by_name(name, &e);
    uint8_t *out = malloc(len + 100), *back = malloc(len ? len : 1);
    MUST(out && back);
    int64_t n = compressor_compress(c, id, in, len, out, len + 100, codec & 64, &e);
    MUST(n >= 0 && (n == 0 || n < (int64_t)len));
    if (n) {
        MUST(compressor_expand(c, id, out, (size_t)n, back, len, &e) == 0);
        MUST(!memcmp(in, back, len));
    }
    free(out);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct compressor *c; /* contexts are reused for every content, damaged ones included */
    if (!c)
        MUST(compressor_new(&c, NULL) == 0);
    if (!len)
        return 0;
    if (data[0] & 1)
        round_trip(c, data[0] >> 1, data + 1, len - 1);
    else
        expand(c, (size_t)(data[0] >> 1) * 512, data + 1, len - 1);
    return 0;
}
