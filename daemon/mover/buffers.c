/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/buffers.h"

#include "base/pages.h"

#include <stdlib.h>

#define LARGE ((size_t)2 << 20)
#define ALIGN ((size_t)4096)

struct buffers {
    struct pages pages;
    unsigned n_free;
    uint8_t *idle[];
};

int buffers_new(struct buffers **ret, unsigned n, size_t size, struct err *e)
{
    struct buffers *b = calloc(1, sizeof *b + n * sizeof b->idle[0]);
    if (!b)
        return err_nomem(e);
    const size_t stride = (size + ALIGN - 1) & ~(ALIGN - 1);
    if (!pages_map(&b->pages, n * stride, stride >= LARGE)) {
        free(b);
        return err_nomem(e);
    }
    for (unsigned i = n; i-- > 0;)
        b->idle[b->n_free++] = b->pages.memory + i * stride;
    *ret = b;
    return 0;
}

void buffers_free(struct buffers *b)
{
    if (!b)
        return;
    pages_unmap(&b->pages);
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
