/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/badmap.h"

#include <stdlib.h>
#include <string.h>

void badmap_init(struct badmap *m)
{
    memset(m, 0, sizeof *m);
    pthread_mutex_init(&m->lock, NULL);
}

void badmap_destroy(struct badmap *m)
{
    pthread_mutex_destroy(&m->lock);
}

/* Merges entries i and i+1. */
static void entries_merge(struct badmap *m, size_t i)
{
    struct bad_range *a = &m->list[i], *b = a + 1;
    uint64_t end = a->pos + a->len, other = b->pos + b->len;
    a->len = (end > other ? end : other) - a->pos;
    m->n--;
    memmove(b, b + 1, (m->n - i - 1) * sizeof *b);
}

void badmap_add(struct badmap *m, uint64_t pos, uint64_t len, int sys)
{
    if (!len)
        return;
    pthread_mutex_lock(&m->lock);
    m->bytes += len;
    size_t i = m->n;
    while (i > 0 && m->list[i - 1].pos > pos)
        i--;
    memmove(&m->list[i + 1], &m->list[i], (m->n - i) * sizeof m->list[0]);
    m->list[i] = (struct bad_range){.pos = pos, .len = len, .sys = sys};
    m->n++;
    /* Adjacent on both sides: the right one first, so that i remains valid. */
    for (size_t k = i + 1; k-- > (i ? i - 1 : 0);) {
        if (k + 1 >= m->n)
            continue;
        struct bad_range *a = &m->list[k], *b = a + 1;
        if (a->pos + a->len > b->pos || (a->pos + a->len == b->pos && a->sys == b->sys))
            entries_merge(m, k);
    }
    if (m->n > BAD_RANGES_MAX) {
        size_t best = 0;
        uint64_t gap = UINT64_MAX;
        for (size_t k = 0; k + 1 < m->n; k++) {
            uint64_t g = m->list[k + 1].pos - (m->list[k].pos + m->list[k].len);
            if (g < gap) {
                gap = g;
                best = k;
            }
        }
        entries_merge(m, best);
    }
    pthread_mutex_unlock(&m->lock);
}

int badmap_copy(struct badmap *m, struct bad_range **ret, size_t *n, uint64_t *bytes, struct err *e)
{
    int rc = 0;
    pthread_mutex_lock(&m->lock);
    *ret = NULL;
    *n = m->n;
    *bytes = m->bytes;
    if (m->n) {
        *ret = malloc(m->n * sizeof **ret);
        if (*ret)
            memcpy(*ret, m->list, m->n * sizeof **ret);
        else
            rc = err_nomem(e);
    }
    pthread_mutex_unlock(&m->lock);
    return rc;
}
