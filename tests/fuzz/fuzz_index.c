/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fuzz_index.c - index tables: every entry, searches, merging; and the same bytes as the end of a pack. */
#include "tests/fuzz/fuzz.h"

#include "repo/index.h"

#include <string.h>

static void search(const struct index_table *t, const struct content_id *id)
{
    struct err e = ERR_INIT;
    struct index_entry x;
    struct index_trace tr = {.n = 0};
    MUST(index_lower_bound(t, id) <= t->count);
    int r = index_find_traced(t, id, &x, &tr, &e);
    MUST(r >= 0 || e.cls == ERR_DAMAGE);
    MUST(r != 1 || content_id_equal(&x.id, id));
    MUST(tr.n <= INDEX_TRACE_MAX);
    for (unsigned i = 0; i < tr.n; i++)
        MUST(tr.at[i] >= t->data && tr.at[i] < t->data + t->size);
}

/* What could be read can be written, if it is within what we write, and reads the same again. */
static void rebuild(struct index_entry *x, size_t n)
{
    struct err e = ERR_INIT;
    uint8_t *data;
    size_t len;
    n = index_sort(x, n);
    for (unsigned version = 1; version <= 2; version++) {
        if (index_build(x, n, version, false, &data, &len, &e) < 0)
            continue;
        struct index_table t;
        MUST(index_parse(&t, data, len, &e) == 0 && t.count == n);
        for (size_t i = 0; i < n; i++) {
            struct index_entry y;
            MUST(index_find_traced(&t, &x[i].id, &y, NULL, &e) == 1);
            MUST(strcmp(x[i].pack, y.pack) == 0 && x[i].offset == y.offset && x[i].packed == y.packed);
            MUST(x[i].length == y.length && x[i].time == y.time && x[i].deleted == y.deleted);
        }
        free(data);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct index_entry kept[256];
    struct postamble p;
    if (postamble_parse(&p, data, len, 1 << 20) == 0) {
        uint8_t again[128];
        MUST(p.iv_len <= sizeof p.iv && p.offset + p.length <= 1 << 20);
        MUST(postamble_build(&p, again) <= sizeof again);
    }
    struct index_table t;
    struct err e = ERR_INIT;
    if (index_parse(&t, data, len, &e) < 0) {
        MUST(e.cls == ERR_DAMAGE);
        return 0;
    }
    size_t n = 0;
    for (uint64_t i = 0; i < t.count; i++) {
        struct content_id id = {.prefix = (char)*index_key_at(&t, i), .len = (uint8_t)(t.key_len - 1)};
        struct index_entry x;
        memcpy(id.hash, index_key_at(&t, i) + 1, id.len);
        search(&t, &id);
        id.hash[0] ^= 0x80;
        search(&t, &id);
        int r = index_entry_at(&t, i, &x, &e);
        MUST(r == 0 || e.cls == ERR_DAMAGE);
        if (r == 0 && n < sizeof kept / sizeof kept[0])
            kept[n++] = x;
    }
    rebuild(kept, n);
    return 0;
}
