/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "base/pages.h"

#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

bool pages_map(struct pages *p, size_t len, bool huge)
{
    *p = (struct pages){.len = len, .mapped = len + (huge ? HUGE_PAGE : 0)};
    void *at = mmap(NULL, p->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        *p = (struct pages){0};
        return false;
    }
    p->mapping = at;
    p->memory = at;
    if (huge)
        p->memory += -(uintptr_t)at & (HUGE_PAGE - 1);
    /* Both may fail: they are for speed, and for core dumps triggered externally. */
    madvise(at, p->mapped, MADV_DONTDUMP);
    if (huge)
        madvise(p->memory, len, MADV_HUGEPAGE);
    return true;
}

void pages_unmap(struct pages *p)
{
    if (p->mapping)
        munmap(p->mapping, p->mapped);
    *p = (struct pages){0};
}
