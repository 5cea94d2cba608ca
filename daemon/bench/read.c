/* SPDX-License-Identifier: GPL-2.0-or-later */
/* read.c - how fast a device or file is read, and what that costs, by the reader that backups use */
#include "daemon/bench/bench.h"

#include "base/cleanup.h"
#include "io/reader.h"

#include <stdio.h>

#define MIB ((size_t)1 << 20)
#define WINDOW (4 * MIB)

/* Continues from *pos for some seconds, to the end, or until so many bytes have been read. */
static int consume(struct reader *r, uint64_t *pos, uint64_t end, double seconds, uint64_t bytes,
                   const _Atomic bool *cancel, struct err *e)
{
    struct reader_stats st;
    double begin = bench_wall();
    while (*pos < end && bench_wall() - begin < seconds) {
        int rc = bench_interrupted(cancel, e);
        if (rc < 0)
            return rc;
        reader_stats(r, &st);
        if (st.read_bytes >= bytes)
            return 0;
        struct view v;
        rc = reader_peek(r, *pos, MIB, &v, e);
        if (rc < 0)
            return rc;
        bool jump = v.zero_end > *pos + v.avail && v.zero_end - *pos > WINDOW;
        *pos = jump ? v.zero_end - WINDOW : *pos + v.avail;
        reader_release(r, *pos);
    }
    return 0;
}

int bench_read(struct bench_read *t, struct source *s, uint64_t *pos, uint64_t end, double seconds, bool warm_up,
               const _Atomic bool *cancel, struct err *e)
{
    const size_t block = t->block ? t->block : MIB, ring = 2 * block * t->depth + 2 * WINDOW + 2 * block;
    const struct reader_opts ro = {.start = *pos,
                                   .ring = ring < 32 * MIB ? 32 * MIB : ring,
                                   .window = WINDOW,
                                   .block = t->block,
                                   .depth = t->depth,
                                   .no_uring = t->no_uring,
                                   .no_direct = t->no_direct};
    CLEANUP(reader_freep) struct reader *r = NULL;
    struct reader_stats before = {0}, after;
    double wall = bench_wall(), cpu = bench_process_cpu();
    int rc = reader_new(&r, s, &ro, e);
    if (rc >= 0 && warm_up)
        rc = consume(r, pos, end, seconds / 2, ro.ring, cancel, e);
    if (rc >= 0 && warm_up && *pos < end) { /* of a small file there is nothing more: then the beginning counts */
        reader_stats(r, &before);
        wall = bench_wall();
        cpu = bench_process_cpu();
    }
    if (rc >= 0)
        rc = consume(r, pos, end, seconds, UINT64_MAX, cancel, e);
    if (rc < 0)
        return rc;
    wall = bench_wall() - wall;
    reader_stats(r, &after);
    reader_free(take_ptr(&r)); /* what the kernel still does for it is charged, too */
    cpu = bench_process_cpu() - cpu;
    t->uring = after.uring;
    t->direct = after.direct;
    t->fixed_buffers = after.fixed_buffers;
    snprintf(t->fallback, sizeof t->fallback, "%s", after.fallback);
    t->bytes = after.read_bytes - before.read_bytes;
    t->rate = wall > 0 ? (double)t->bytes / wall * 1e-9 : 0;
    t->cost = t->bytes ? cpu / ((double)t->bytes * 1e-9) : 0;
    return 0;
}
