/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/unchanged.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

/* A walk over the parts of the parent image; it only moves forward. */
struct walk {
    struct object_parts *parts;
    struct object_part part; /* the current one; len 0: none yet */
};

struct unchanged {
    struct repo *repo;
    struct object_id image;
    uint64_t parent_size, size;
    const struct changes *changes;
    _Atomic bool broken;

    /* the pipeline's thread */
    struct hints *hints;
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
    int rc = hints_new(&u->hints, r, e);
    if (rc < 0) {
        unchanged_free(u);
        return rc;
    }
    hints_add(u->hints, image);
    *ret = u;
    return 0;
}

void unchanged_free(struct unchanged *u)
{
    if (!u)
        return;
    hints_free(u->hints);
    object_parts_free(u->ranges.parts);
    object_parts_free(u->zeros.parts);
    free(u);
}

size_t unchanged_memory(const struct unchanged *u, size_t longest)
{
    return 3 * hints_memory(u->hints, longest);
}

bool unchanged_is_broken(const struct unchanged *u)
{
    return atomic_load(&u->broken);
}

bool unchanged_at(struct unchanged *u, const struct splitter *s, uint64_t pos, uint64_t left, struct hint *ret)
{
    if (!hints_at(u->hints, pos, ret))
        return false;
    if (ret->len == 0 || ret->len > left || ret->len > s->max || ret->id.prefix)
        return false;
    /* An end is no cut, unless the section ends here too. */
    if (ret->len < left && (ret->end || ret->len < s->min))
        return false;
    struct change x;
    return !changes_after(u->changes, &u->chunk_cursor, pos, &x) || x.start >= pos + ret->len;
}

/* Moves a walk to the part of the parent that contains `pos`. */
static int part_at(struct unchanged *u, struct walk *w, uint64_t pos, struct err *e)
{
    int rc = 0;
    if (w->part.len && pos < w->part.start + w->part.len)
        return 0;
    if (!w->parts)
        rc = object_parts_open(&w->parts, u->repo, &u->image, e);
    if (rc == 0)
        rc = object_parts_seek(w->parts, pos, e);
    while (rc >= 0) {
        rc = object_parts_next(w->parts, &w->part, e);
        if (rc == 0)
            return err_set(e, ERR_DAMAGE, EBADMSG, "the chunk list of the parent snapshot ends too early");
        if (rc > 0 && w->part.len && pos < w->part.start + w->part.len)
            return 0;
    }
    return rc;
}

uint64_t unchanged_zeros(struct unchanged *u, const struct splitter *s, const struct content_id *zero, uint64_t pos,
                         uint64_t limit)
{
    struct change x = {UINT64_MAX, 0};
    if (pos >= u->parent_size)
        return pos;
    changes_after(u->changes, &u->zero_cursor, pos, &x);
    uint64_t end = pos;
    if (limit > u->parent_size)
        limit = u->parent_size;
    if (limit > x.start)
        limit = x.start;
    while (end < limit && part_at(u, &u->zeros, end, NULL) == 0) {
        const struct object_part *p = &u->zeros.part;
        if (p->len != s->min || p->id.indirection || p->id.compressed || !content_id_equal(&p->id.content, zero))
            break;
        end = p->start + p->len;
    }
    return end < limit || limit < pos ? end : limit;
}

int unchanged_range(uint64_t pos, struct extent *ret, void *unchanged, struct err *e)
{
    struct unchanged *u = unchanged;
    struct change x;
    if (!changes_after(u->changes, &u->range_cursor, pos, &x) || x.start >= u->size)
        return 0;
    const uint64_t last = (u->size - x.start < x.len ? u->size : x.start + x.len) - 1;
    const uint64_t common = u->parent_size < u->size ? u->parent_size : u->size;
    int rc = part_at(u, &u->ranges, x.start < common ? x.start : common - 1, e);
    uint64_t start = u->ranges.part.start < x.start ? u->ranges.part.start : x.start;
    if (rc == 0)
        rc = part_at(u, &u->ranges, last < common ? last : common - 1, e);
    if (rc < 0) {
        atomic_store(&u->broken, true);
        return err_wrap(e, "cannot read the chunk list of the parent snapshot");
    }
    uint64_t end = last < common ? u->ranges.part.start + u->ranges.part.len : u->size;
    *ret = (struct extent){.start = start, .len = (end < u->size ? end : u->size) - start};
    return 1;
}
