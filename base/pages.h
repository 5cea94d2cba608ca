/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pages.h - memory for large buffers of a whole run: huge pages where available
 *
 * Fewer faults and TLB misses; excluded from core dumps, since it contains data of volumes. Zeroed at first.
 */
#ifndef SNAPFERRY_BASE_PAGES_H
#define SNAPFERRY_BASE_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pages {
    uint8_t *memory; /* `len` bytes; aligned to 2 MiB if `huge`, else to a page; NULL: none */
    size_t len;
    /* private */
    void *mapping;
    size_t mapped;
};

/* false: no memory (errno). `huge`: ask for huge pages, which makes sense from about 1 MiB a buffer on. Address space
 * only, until it is touched. */
bool pages_map(struct pages *p, size_t len, bool huge);
/* Of a zeroed struct, too. */
void pages_unmap(struct pages *p);

#endif
