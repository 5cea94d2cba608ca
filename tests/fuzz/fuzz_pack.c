/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fuzz_pack.c - the end of a pack that is to be adopted: the input is the pack. Its postamble is looked for, and what
 * it points at is read as a local index, as if the seal had been opened (it would stop everything that is not ours).
 */
#include "tests/fuzz/fuzz.h"

#include "repo/pack.h"

#include <string.h>

#define NAME "pfeedfacefeedfacefeedfacefeedface-s0123456789abcdef144"

static uint64_t contents_end;

static int see_entry(const struct index_entry *n, void *arg)
{
    ++*(unsigned *)arg;
    MUST(!n->deleted && !strcmp(n->pack, NAME));
    MUST((uint64_t)n->offset + n->packed <= contents_end && n->packed > 0);
    MUST(n->id.len >= 1 && n->id.len <= 32);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct err e = ERR_INIT;
    struct postamble p;
    unsigned n = 0;
    size_t tail = len < 8192 ? len : 8192;
    if (postamble_parse(&p, data + len - tail, tail, len) < 0)
        return 0;
    MUST(p.iv_len <= sizeof p.iv);
    MUST(p.offset <= len && p.length <= len - p.offset);
    uint8_t *index = malloc(p.length ? p.length : 1); /* exactly: reads beyond it become visible */
    MUST(index);
    memcpy(index, data + p.offset, p.length);
    contents_end = p.offset;
    int rc = pack_local_entries(index, p.length, NAME, p.offset, see_entry, &n, &e);
    MUST(rc == 0 || e.cls == ERR_DAMAGE);
    free(index);
    return 0;
}
