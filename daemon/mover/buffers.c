/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/buffers.h"

#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define ALIGN ((size_t)4096)

struct buffers {
    uint8_t *mapping;
    size_t mapped;
    unsigned n_free;
    uint8_t *idle[];
};

int buffers_new(struct buffers **ret, unsigned n, size_t size, struct err *e)
{
    struct buffers *b = calloc(1, sizeof *b + n * sizeof b->idle[0]);
    if (!b)
        return err_nomem(e);
    const size_t stride = (size + ALIGN - 1) & ~(ALIGN - 1);
    b->mapped = n * stride + HUGE_PAGE;
    void *p = mmap(NULL, b->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        free(b);
        return err_nomem(e);
    }
    b->mapping = p;
    madvise(p, b->mapped, MADV_DONTDUMP);
    if (stride >= HUGE_PAGE)
        madvise(p, b->mapped, MADV_HUGEPAGE);
    uint8_t *first = b->mapping + (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
    for (unsigned i = n; i-- > 0;)
        b->idle[b->n_free++] = first + i * stride;
    *ret = b;
    return 0;
}

void buffers_free(struct buffers *b)
{
    if (!b)
        return;
    munmap(b->mapping, b->mapped);
    free(b);
}

uint8_t *buffers_take(struct buffers *b)
{
    return b->n_free > 0 ? b->idle[--b->n_free] : NULL;
}

void buffers_return(struct buffers *b, uint8_t *buf)
{
    b->idle[b->n_free++] = buf;
}
