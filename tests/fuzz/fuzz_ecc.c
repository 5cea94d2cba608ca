/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fuzz_ecc.c - error correction: byte 0 = percentage (modulo 100, plus 1), byte 1:
 *   even: decode the rest
 *   odd: encode the rest; damage (byte 1 / 2) shards of the stored form, two at most, which every code repairs; decode
 */
#include "tests/fuzz/fuzz.h"

#include "repo/ecc.h"

#include <string.h>

static void decode(const struct ecc *x, const uint8_t *in, size_t len)
{
    struct err e = ERR_INIT;
    size_t cap = ecc_decoded_max(x, len);
    uint8_t *out = malloc(cap ? cap : 1);
    MUST(out);
    int64_t n = ecc_decode(x, in, len, out, cap, NULL, &e);
    MUST(n <= (int64_t)cap);
    MUST(n >= 0 || e.cls == ERR_DAMAGE);
    free(out);
}

static void round_trip(const struct ecc *x, const uint8_t *in, size_t len, unsigned damage)
{
    struct err e = ERR_INIT;
    size_t stored = ecc_encoded_len(x, len), cap = ecc_decoded_max(x, stored);
    uint8_t *out = malloc(stored), *back = malloc(cap);
    MUST(out && back && cap >= len);
    MUST(ecc_encode(x, in, len, out, &e) == 0);
    for (unsigned i = 0; i < damage % 3; i++)
        out[(stored / 3 * (i + 1) + damage * 37u) % stored] ^= (uint8_t)(damage | 1);
    MUST(ecc_decode(x, out, stored, back, cap, NULL, &e) == (int64_t)len);
    MUST(!memcmp(in, back, len));
    free(out);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct ecc *codes[101];
    if (len < 2)
        return 0;
    unsigned percent = data[0] % 100 + 1;
    if (!codes[percent])
        MUST(ecc_new(&codes[percent], percent, NULL) == 0);
    if (data[1] & 1)
        round_trip(codes[percent], data + 2, len - 2, data[1] >> 1);
    else
        decode(codes[percent], data + 2, len - 2);
    return 0;
}
