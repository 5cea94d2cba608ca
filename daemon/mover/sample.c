/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/sample.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "chunker/hash.h"
#include "io/reader.h"
#include "repo/item.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define ROUND 256 /* positions chosen at a time */

/* splitmix64 (Steele, Lea, Flood 2014): positions need to be spread, not secret from anybody. */
static uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static int by_position(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Number of chunks to look at. */
static uint64_t sample_count(const struct sample_setup *s)
{
    const struct splitter *p = s->splitter;
    const uint64_t mean = p->kind == SPLITTER_FIXED ? p->max : p->min + ((uint64_t)p->mask + 1) * 3 / 4;
    const double n = s->share * (double)s->size / (double)mean;
    return n <= 0 ? 0 : (uint64_t)n + 1;
}

/* Reads one chunk of the source and compares it. 1: it differs. */
static int chunk_compare(const struct sample_setup *s, const struct object_part *part, void *buf,
                         struct sample_result *ret, struct err *e)
{
    const struct hasher *h = sealer_hasher(repo_sealer(s->repo));
    const uint8_t *data;
    throttle_wait(s->limit, part->len);
    int rc = source_read(s->source, part->start, (size_t)part->len, buf, &data, e);
    if (rc < 0)
        return rc;
    uint8_t digest[64];
    hasher_digest(h, data, (size_t)part->len, digest);
    if (memcmp(digest, part->id.content.hash, part->id.content.len) == 0) {
        ret->chunks++;
        ret->bytes += part->len;
        return 0;
    }
    ret->differs = true;
    ret->start = part->start;
    ret->len = part->len;
    return 1;
}

/* Whether a chunk was taken over as it is: not changed, within what both images have, and of a usual kind. */
static bool is_candidate(const struct sample_setup *s, const struct object_part *part, size_t *cursor)
{
    const struct content_id *id = &part->id.content;
    struct change x;
    if (part->len == 0 || part->len > s->splitter->max || part->start + part->len > s->size || part->id.indirection ||
        part->id.compressed || id->prefix || id->len != hasher_size(sealer_hasher(repo_sealer(s->repo))))
        return false;
    return !changes_after(s->changes, cursor, part->start, &x) || x.start >= part->start + part->len;
}

static bool is_over(const struct sample_setup *s, int64_t began)
{
    return s->seconds && mono_ns() - began >= (int64_t)s->seconds * NS_PER_S;
}

/* One walk over the parent's table, past `n` sorted positions. 1: a chunk differs. */
static int round_run(const struct sample_setup *s, const uint64_t *at, size_t n, void *buf, int64_t began,
                     struct sample_result *ret, struct err *e)
{
    struct object_parts *parts CLEANUP(object_parts_freep) = NULL;
    struct object_part part = {0};
    size_t cursor = 0;
    int rc = object_parts_open(&parts, s->repo, s->image, e);
    for (size_t i = 0; i < n && rc == 0 && !is_over(s, began); i++) {
        if (s->cancel && atomic_load_explicit(&s->cancel->requested, memory_order_relaxed))
            return err_set(e, ERR_INTERRUPTED, ECANCELED, "backup interrupted");
        if (at[i] < part.start + part.len)
            continue; /* in the chunk that was just looked at */
        rc = object_parts_seek(parts, at[i], e);
        while (rc >= 0 && (rc = object_parts_next(parts, &part, e)) > 0 && part.start + part.len <= at[i])
            ;
        if (rc == 0)
            return err_set(e, ERR_DAMAGE, EBADMSG, "the chunk list of the parent snapshot ends too early");
        if (rc > 0)
            rc = is_candidate(s, &part, &cursor) ? chunk_compare(s, &part, buf, ret, e) : 0;
    }
    return rc;
}

int sample_run(const struct sample_setup *s, struct sample_result *ret, struct err *e)
{
    const int64_t began = mono_ns();
    uint64_t at[ROUND], state = s->seed;
    *ret = (struct sample_result){0};
    uint64_t left = s->size ? sample_count(s) : 0;
    if (!left)
        return 0;
    if (!state && getrandom(&state, sizeof state, 0) != (ssize_t)sizeof state)
        return err_set(e, ERR_GENERIC, errno, "getrandom");
    void *buf CLEANUP_FREE = aligned_alloc(4096, s->splitter->max + SOURCE_READ_EXTRA);
    if (!buf)
        return err_nomem(e);
    int rc = 0;
    while (left && rc == 0 && !is_over(s, began)) {
        const size_t n = left < ROUND ? (size_t)left : ROUND;
        for (size_t i = 0; i < n; i++)
            at[i] = random_next(&state) % s->size;
        qsort(at, n, sizeof *at, by_position);
        rc = round_run(s, at, n, buf, began, ret, e);
        left -= n;
    }
    return rc < 0 ? rc : 0;
}

/* ---- zeros ---- */

#define ZEROS ((size_t)64 << 10) /* the smallest chunk of a thin pool */

/* The block at `pos`, if none of it is allocated. 1: it is not zeros. */
static int zeros_compare(const struct sample_zeros_setup *s, uint64_t pos, size_t *cursor, void *buf,
                         struct sample_result *ret, struct err *e)
{
    const uint64_t size = source_info(s->source)->size, start = pos - pos % ZEROS;
    const size_t len = size - start < ZEROS ? (size_t)(size - start) : ZEROS;
    const uint8_t *data;
    struct change x;
    if (changes_after(s->allocated, cursor, start, &x) && x.start < start + len)
        return 0;
    int rc = source_read(s->source, start, len, buf, &data, e);
    if (rc < 0)
        return rc;
    if (zeros_only(data, len)) {
        ret->chunks++;
        ret->bytes += len;
        return 0;
    }
    ret->differs = true;
    ret->start = start;
    ret->len = len;
    return 1;
}

int sample_zeros(const struct sample_zeros_setup *s, struct sample_result *ret, struct err *e)
{
    const int64_t began = mono_ns();
    const uint64_t size = source_info(s->source)->size;
    uint64_t at[ROUND], state = s->seed, left = (uint64_t)(s->share * (double)size / (double)ZEROS);
    *ret = (struct sample_result){0};
    if (s->share <= 0 || !size)
        return 0;
    if (left < ROUND) /* of a small volume a look at some hundred places costs nothing */
        left = ROUND;
    if (!state && getrandom(&state, sizeof state, 0) != (ssize_t)sizeof state)
        return err_set(e, ERR_GENERIC, errno, "getrandom");
    void *buf CLEANUP_FREE = aligned_alloc(4096, ZEROS + SOURCE_READ_EXTRA);
    if (!buf)
        return err_nomem(e);
    int rc = 0;
    while (left && rc == 0) {
        const size_t n = left < ROUND ? (size_t)left : ROUND;
        size_t cursor = 0;
        for (size_t i = 0; i < n; i++)
            at[i] = random_next(&state) % size;
        qsort(at, n, sizeof *at, by_position);
        for (size_t i = 0; i < n && rc == 0; i++) {
            if (s->seconds && mono_ns() - began >= (int64_t)s->seconds * NS_PER_S)
                return 0;
            rc = zeros_compare(s, at[i], &cursor, buf, ret, e);
        }
        left -= n;
    }
    return rc < 0 ? rc : 0;
}
