/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * zfs_lies - a send stream of a volume without one of its blocks
 *
 * zfs_lies OFFSET <STREAM >STREAM: leaves out the block that begins at this byte, and computes the checksums of all
 * that follows again: the stream is sound, and tells that nothing was written there. Exit code 3: it was not in the
 * stream, which is passed on as it is. Only streams in the machine's own order of bytes.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORD 312
#define SUM_AT 280
#define PAYLOAD_MAX ((uint64_t)16 << 20)

enum { BEGIN, OBJECT, WRITE = 3, END = 5, SPILL = 7, WRITE_EMBEDDED };

static uint64_t sum[4];
static uint8_t record[RECORD], payload[PAYLOAD_MAX];

static uint64_t number(size_t at, size_t bytes)
{
    uint64_t v = 0;
    memcpy(&v, record + at, bytes);
    return v;
}

static void put(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i += 4) {
        uint32_t w;
        memcpy(&w, p + i, sizeof w);
        sum[0] += w;
        for (size_t k = 1; k < 4; k++)
            sum[k] += sum[k - 1];
    }
    if (fwrite(p, 1, n, stdout) != n)
        exit(4);
}

static uint64_t payload_len(uint32_t type)
{
    switch (type) {
    case BEGIN:
        return number(4, 4);
    case OBJECT:
        return number(36, 4) ? number(36, 4) : (number(28, 4) + 7) / 8 * 8;
    case WRITE:
        return record[50] ? number(96, 8) : number(32, 8);
    case SPILL:
        return record[33] ? number(40, 8) : number(16, 8);
    case WRITE_EMBEDDED:
        return (number(52, 4) + 7) / 8 * 8;
    default:
        return 0;
    }
}

int main(int argc, char **argv)
{
    const uint64_t omitted = argc == 2 ? strtoull(argv[1], NULL, 10) : 1;
    bool begun = false, told = false;
    while (fread(record, 1, RECORD, stdin) == RECORD) {
        const uint32_t type = (uint32_t)number(0, 4);
        const uint64_t n = payload_len(type);
        if (n > PAYLOAD_MAX || fread(payload, 1, n, stdin) != n)
            return 5;
        if ((type == WRITE && number(24, 8) == omitted) || (type == WRITE_EMBEDDED && number(16, 8) == omitted)) {
            told = true;
            continue;
        }
        if (type == END)
            memcpy(record + 8, sum, sizeof sum);
        put(record, SUM_AT);
        if (begun)
            memcpy(record + SUM_AT, sum, sizeof sum);
        put(record + SUM_AT, RECORD - SUM_AT);
        put(payload, n);
        begun = true;
    }
    return fflush(stdout) || ferror(stdin) ? 4 : told ? 0 : 3;
}
