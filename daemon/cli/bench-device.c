/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench-device.c - read performance of a device or file
 *
 * With several block sizes at the default depth, then with several depths at the best size. Each measurement starts
 * where the previous one ended, so that nothing is read from a cache. Nothing is written.
 */
#include "daemon/cli/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

static const char *media_name(enum source_media m)
{
    static const char *const names[] = {"unknown", "hdd", "ssd", "nvme", "network"};
    return names[m];
}

struct sweep {
    struct bench_device *d;
    struct source *s;
    const struct options *o;
    const _Atomic bool *cancel;
    double seconds;
    uint64_t pos;
};

static int try_way(struct sweep *w, size_t block, unsigned depth, struct err *e)
{
    struct bench_device *d = w->d;
    for (unsigned i = 0; i < d->n; i++)
        if (d->reads[i].block == block && d->reads[i].depth == depth)
            return 0;
    struct bench_read *t = &d->reads[d->n];
    *t = (struct bench_read){.block = block, .depth = depth, .no_uring = w->o->no_uring, .no_direct = w->o->no_direct};
    /* The rest of the source may be too short. */
    if (w->pos > source_info(w->s)->size / 2) {
        w->pos = 0;
        posix_fadvise(source_fd(w->s), 0, 0, POSIX_FADV_DONTNEED);
    }
    int rc = bench_read(t, w->s, &w->pos, source_info(w->s)->size, w->seconds, true, w->cancel, e);
    if (rc < 0)
        return rc;
    d->uring = t->uring;
    d->direct = t->direct;
    snprintf(d->fallback, sizeof d->fallback, "%s", t->fallback);
    d->n++;
    return 0;
}

static size_t best_block(const struct bench_device *d)
{
    unsigned best = d->usual;
    for (unsigned i = 0; i < d->n; i++)
        if (d->reads[i].rate > d->reads[best].rate * 1.03)
            best = i;
    return d->reads[best].block;
}

int bench_device(struct bench_device *d, const struct options *o, double seconds, const _Atomic bool *cancel,
                 struct err *e)
{
    static const size_t blocks[] = {MIB, MIB / 4, MIB * 4};
    static const unsigned depths[] = {1, 2, 4, 8, 16, 32, 64};
    CLEANUP(source_freep) struct source *s = NULL;
    int rc = source_open(&s, o->device, e);
    if (rc < 0)
        return rc;
    const struct source_info *i = source_info(s);
    snprintf(d->path, sizeof d->path, "%s", i->path);
    d->size = i->size;
    d->is_block = i->is_block;
    snprintf(d->media, sizeof d->media, "%s", media_name(i->media));
    struct extent x;
    if (i->size == 0 || (rc = source_extent(s, 0, &x, e)) < 0 || (x.hole && x.len == i->size))
        return rc < 0 ? rc : err_set(e, ERR_SOURCE, 0, "%s contains no data", i->path);
    posix_fadvise(source_fd(s), 0, 0, POSIX_FADV_DONTNEED);
    /* The ring is a little more than twice the data in flight. */
    uint64_t memory = o->memory ? o->memory : MEMORY_DEFAULT;
    unsigned usual = o->depth ? o->depth : i->depth;
    struct sweep w = {.d = d, .s = s, .o = o, .cancel = cancel, .seconds = seconds};
    for (size_t b = 0; rc >= 0 && b < sizeof blocks / sizeof *blocks; b++)
        if (blocks[b] == MIB || blocks[b] * usual <= memory / 4)
            rc = try_way(&w, blocks[b], usual, e);
    size_t block = rc >= 0 ? best_block(d) : 0;
    for (size_t k = 0; rc >= 0 && k < sizeof depths / sizeof *depths; k++)
        if (block * depths[k] <= memory / 4)
            rc = try_way(&w, block, depths[k], e);
    return rc;
}
