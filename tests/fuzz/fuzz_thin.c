/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fuzz_thin.c - byte 0: even: what thin_delta prints, odd: thin_dump; it comes in pieces of byte 0 / 2 + 1 bytes.
 * Ranges ascend, and a document that is refused stays refused. */
#include "tests/fuzz/fuzz.h"

#include "io/native/thin-xml.h"

#define BLOCK ((uint64_t)64 << 10)

static int range(uint64_t begin, uint64_t blocks, uint64_t block_bytes, void *arg, struct err *e)
{
    uint64_t *next = arg;
    (void)e;
    MUST(block_bytes == BLOCK && blocks > 0 && begin >= *next && begin + blocks > begin);
    MUST(begin + blocks <= ((uint64_t)1 << 63) / BLOCK);
    *next = begin + blocks;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint64_t next = 0;
    if (len < 1)
        return 0;
    const size_t piece = data[0] / 2 + 1;
    const struct thin_wanted w = {.print = data[0] & 1 ? THIN_DUMP : THIN_DELTA,
                                  .id = data[0] & 1 ? 3 : 2,
                                  .right = 3,
                                  .block_bytes = BLOCK,
                                  .fn = range,
                                  .arg = &next};
    struct thin_parser *p = NULL;
    struct thin_device d = {0};
    struct err e = ERR_INIT;
    int rc = 0;
    MUST(thin_parser_new(&p, &w, &e) == 0);
    for (size_t at = 1; rc == 0 && at < len; at += piece)
        rc = thin_parser_feed(p, (const char *)data + at, len - at < piece ? len - at : piece, &e);
    const int end = thin_parser_end(p, &d, &e);
    MUST(rc == 0 || end == rc);
    thin_parser_free(p);
    return 0;
}
