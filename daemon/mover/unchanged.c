/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/unchanged.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

/* A walk over the parts of the parent image; it only moves forward. */
struct walk {
    struct object_parts *parts;
    struct object_part part; /* the current one; len 0: none yet */
    uint64_t count;          /* of so many that are the same but for their place */
    bool runs;               /* these are taken together */
};

struct unchanged {
    struct repo *repo;
    struct object_id image;
    uint64_t parent_size, size;
    const struct changes *changes;
    _Atomic bool broken;

    /* the pipeline's thread */
    struct walk chunks;
    size_t chunk_cursor;
    struct walk zeros;
    size_t zero_cursor;

    /* the reader's thread */
    struct walk ranges;
    size_t range_cursor;
};

int unchanged_new(struct unchanged **ret, struct repo *r, const struct object_id *image, uint64_t parent_size,
                  const struct changes *changes, uint64_t size, struct err *e)
{
    struct unchanged *u = calloc(1, sizeof *u);
    if (!u)
        return err_nomem(e);
    u->repo = r;
    u->image = *image;
    u->parent_size = parent_size;
    u->size = size;
    u->changes = changes;
    u->zeros.runs = true;
    *ret = u;
    return 0;
}

void unchanged_free(struct unchanged *u)
{
    if (!u)
        return;
    object_parts_free(u->chunks.parts);
    object_parts_free(u->ranges.parts);
    object_parts_free(u->zeros.parts);
    free(u);
}

size_t unchanged_memory(const struct unchanged *u, size_t longest)
{
    return 3 * hints_walk_memory(u->repo, &u->image, longest);
}

bool unchanged_is_broken(const struct unchanged *u)
{
    return atomic_load(&u->broken);
}

/* Moves a walk to the part of the parent that contains `pos`. */
static int part_at(struct unchanged *u, struct walk *w, uint64_t pos, struct err *e)
{
    int rc = 0;
    if (w->part.len && pos < w->part.start + w->part.len * w->count)
        return 0;
    if (!w->parts)
        rc = object_parts_open(&w->parts, u->repo, &u->image, e);
    if (rc == 0)
        rc = object_parts_seek(w->parts, pos, e);
    while (rc >= 0) {
        w->count = 1;
        rc = w->runs ? object_parts_next_run(w->parts, &w->part, &w->count, e)
                     : object_parts_next(w->parts, &w->part, e);
        if (rc == 0)
            return err_set(e, ERR_DAMAGE, EBADMSG, "the chunk list of the parent snapshot ends too early");
        if (rc > 0 && w->part.len && pos < w->part.start + w->part.len * w->count)
            return 0;
    }
    return rc;
}

/* The part of the parent that contains `pos`, or the error that makes its list useless. */
static int part_find(struct unchanged *u, struct walk *w, uint64_t pos, struct err *e)
{
    int rc = part_at(u, w, pos, e);
    if (rc == 0)
        return 0;
    atomic_store(&u->broken, true);
    return err_wrap(e, "cannot read the chunk list of the parent snapshot");
}

int unchanged_at(struct unchanged *u, const struct splitter *s, uint64_t pos, uint64_t left, struct hint *ret,
                 struct err *e)
{
    struct change x;
    if (pos >= u->parent_size)
        return 0;
    int rc = part_find(u, &u->chunks, pos, e);
    if (rc < 0)
        return rc;
    const struct object_part *p = &u->chunks.part;
    const bool end = p->start + p->len >= u->parent_size;
    if (p->start != pos || p->len > left || p->len > s->max || p->id.indirection || p->id.compressed ||
        p->id.content.prefix)
        return 0;
    /* An end is no cut, unless the section ends here too. */
    if (p->len < left && (end || p->len < s->min))
        return 0;
    if (changes_after(u->changes, &u->chunk_cursor, pos, &x) && x.start < pos + p->len)
        return 0;
    *ret = (struct hint){.len = p->len, .id = p->id.content, .end = end};
    return 1;
}

int unchanged_zeros(struct unchanged *u, const struct splitter *s, const struct content_id *zero, uint64_t pos,
                    uint64_t limit, uint64_t *ret, struct err *e)
{
    struct change x = {UINT64_MAX, 0};
    *ret = pos;
    if (pos >= u->parent_size)
        return 0;
    changes_after(u->changes, &u->zero_cursor, pos, &x);
    uint64_t end = pos;
    if (limit > u->parent_size)
        limit = u->parent_size;
    if (limit > x.start)
        limit = x.start;
    while (end < limit) {
        int rc = part_find(u, &u->zeros, end, e);
        if (rc < 0)
            return rc;
        const struct object_part *p = &u->zeros.part;
        if (p->len != s->min || p->id.indirection || p->id.compressed || !content_id_equal(&p->id.content, zero))
            break;
        end = p->start + p->len * u->zeros.count;
    }
    *ret = end < limit || limit < pos ? end : limit;
    return 0;
}

int unchanged_range(uint64_t pos, struct extent *ret, void *unchanged, struct err *e)
{
    struct unchanged *u = unchanged;
    struct change x;
    if (!changes_after(u->changes, &u->range_cursor, pos, &x) || x.start >= u->size)
        return 0;
    const uint64_t last = (u->size - x.start < x.len ? u->size : x.start + x.len) - 1;
    const uint64_t common = u->parent_size < u->size ? u->parent_size : u->size;
    int rc = part_find(u, &u->ranges, x.start < common ? x.start : common - 1, e);
    uint64_t start = u->ranges.part.start < x.start ? u->ranges.part.start : x.start;
    if (rc == 0)
        rc = part_find(u, &u->ranges, last < common ? last : common - 1, e);
    if (rc < 0)
        return rc;
    uint64_t end = last < common ? u->ranges.part.start + u->ranges.part.len : u->size;
    *ret = (struct extent){.start = start, .len = (end < u->size ? end : u->size) - start};
    return 1;
}
