/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fetch-group.c - which contents are read with one request */
#include "daemon/mover/fetch.h"

#include <string.h>

size_t fetch_group(const struct fetch_item *items, size_t n, uint64_t most, uint64_t gap, uint64_t *from, uint64_t *to)
{
    const struct index_entry *first = &items[0].entry;
    const uint64_t limit = (uint64_t)first->offset + most;
    *from = first->offset;
    *to = *from + first->packed;
    size_t len = 1;
    /* The first one alone may be longer than a group: whatever lies within it is read by itself. */
    for (; len < n && *to <= limit; len++) {
        const struct index_entry *x = &items[len].entry;
        const uint64_t end = (uint64_t)x->offset + x->packed;
        if (strcmp(x->pack, first->pack) != 0 || x->offset < *from || x->offset > *to + gap || end > limit)
            break;
        if (end > *to)
            *to = end;
    }
    return len;
}
