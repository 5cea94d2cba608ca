/* SPDX-License-Identifier: GPL-2.0-or-later */
/* reader-lists.c - the lists of holes and of their skipped middles */
#include "io/reader-impl.h"

struct hole *reader_hole_at(struct reader *r, size_t i)
{
    return &r->holes[(r->hole_head + i) % r->list_cap];
}

struct skip *reader_skip_at(struct reader *r, size_t i)
{
    return &r->skips[(r->skip_head + i) % r->list_cap];
}

size_t reader_holes_until(struct reader *r, uint64_t pos)
{
    size_t lo = 0, hi = r->hole_len;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (reader_hole_at(r, mid)->start <= pos)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

size_t reader_skips_until(struct reader *r, uint64_t pos)
{
    size_t lo = 0, hi = r->skip_len;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (reader_skip_at(r, mid)->from <= pos)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

uint64_t reader_v_of(struct reader *r, uint64_t pos)
{
    size_t n = reader_skips_until(r, pos);
    if (n == 0)
        return pos - r->base_first;
    const struct skip *k = reader_skip_at(r, n - 1);
    if (pos < k->to)
        return k->from - k->base;
    return pos - (k->base + (k->to - k->from));
}

void reader_forget_released(struct reader *r)
{
    uint64_t pos = min64(r->released, r->cursor);
    while (r->hole_len && reader_hole_at(r, 0)->end <= pos) {
        r->hole_head = (r->hole_head + 1) % r->list_cap;
        r->hole_len--;
    }
    while (r->skip_len && reader_skip_at(r, 0)->to <= pos) {
        const struct skip *k = reader_skip_at(r, 0);
        r->base_first = k->base + (k->to - k->from);
        r->skip_head = (r->skip_head + 1) % r->list_cap;
        r->skip_len--;
    }
}
