/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fuzz_s2.c - S2 streams (byte 0 even) and single blocks (odd); byte 0 / 2 * 512 = room for the output. A block gets no
 * checksum in its way. */
#include "tests/fuzz/fuzz.h"

#include "repo/s2.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (!len)
        return 0;
    struct err e = ERR_INIT;
    size_t cap = (size_t)(data[0] >> 1) * 512;
    uint8_t *out = malloc(cap ? cap : 1);
    MUST(out);
    int64_t n =
        data[0] & 1 ? s2_expand_block(data + 1, len - 1, out, cap, &e) : s2_expand(data + 1, len - 1, out, cap, &e);
    MUST(n <= (int64_t)cap);
    MUST(n >= 0 || e.cls == ERR_DAMAGE);
    free(out);
    return 0;
}
