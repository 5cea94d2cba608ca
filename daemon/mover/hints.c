/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/hints.h"

#include "base/cleanup.h"

#include <stdlib.h>

struct hints {
    struct repo *repo;
    struct object_id parents[HINT_PARENTS_MAX];
    unsigned n, at; /* parents; the one being walked */
    struct object_parts *parts;
    struct object_part now, next; /* valid if have_* */
    bool have_now, have_next;
};

int hints_new(struct hints **ret, struct repo *r, struct err *e)
{
    struct hints *h = calloc(1, sizeof *h);
    if (!h)
        return err_nomem(e);
    h->repo = r;
    *ret = h;
    return 0;
}

void hints_free(struct hints *h)
{
    if (!h)
        return;
    object_parts_free(h->parts);
    free(h);
}

void hints_add(struct hints *h, const struct object_id *image)
{
    if (h->n < HINT_PARENTS_MAX)
        h->parents[h->n++] = *image;
}

bool hints_any(const struct hints *h)
{
    return h->at < h->n;
}

size_t hints_walk_memory(struct repo *r, const struct object_id *image, size_t longest)
{
    struct index_entry x;
    if (!image->indirection)
        return 0;
    const size_t top = repo_find(r, &image->content, &x, NULL) == 0 ? x.length : longest;
    return top + (size_t)(image->indirection - 1) * longest + ((size_t)1 << 20);
}

size_t hints_memory(const struct hints *h, size_t longest)
{
    size_t most = 0;
    for (unsigned i = 0; i < h->n; i++) {
        const size_t n = hints_walk_memory(h->repo, &h->parents[i], longest);
        most = n > most ? n : most;
    }
    return most;
}

/* Ends the walk of the current parent; the next one follows. */
static void parent_leave(struct hints *h)
{
    object_parts_free(h->parts);
    h->parts = NULL;
    h->have_now = h->have_next = false;
    h->at++;
}

/* Moves on by one part that is not empty. False: the parent cannot be read any further. */
static bool part_next(struct hints *h)
{
    struct err e = ERR_INIT;
    h->now = h->next;
    h->have_now = h->have_next;
    int rc;
    do
        rc = object_parts_next(h->parts, &h->next, &e);
    while (rc > 0 && h->next.len == 0);
    h->have_next = rc > 0;
    if (rc < 0)
        log_warning("parent's chunk list not usable any further: %s", e.msg);
    return rc >= 0;
}

static bool parent_enter(struct hints *h, uint64_t pos)
{
    struct err e = ERR_INIT;
    int rc = object_parts_open(&h->parts, h->repo, &h->parents[h->at], &e);
    if (rc == 0)
        rc = object_parts_seek(h->parts, pos, &e);
    if (rc < 0) {
        log_warning("cannot read the parent's chunk list: %s", e.msg);
        return false;
    }
    return part_next(h) && part_next(h);
}

bool hints_at(struct hints *h, uint64_t pos, struct hint *ret)
{
    while (h->at < h->n) {
        bool ok = h->parts || parent_enter(h, pos);
        if (ok && h->have_next && h->next.start + h->next.len <= pos)
            ok = object_parts_seek(h->parts, pos, NULL) == 0;
        while (ok && h->have_now && h->now.start < pos)
            ok = part_next(h);
        /* The last chunk proves less than a chunk of the next parent may. */
        bool last = ok && h->have_now && !h->have_next && h->at + 1 < h->n;
        if (!ok || !h->have_now || last) {
            parent_leave(h);
            continue;
        }
        if (h->now.start != pos || h->now.id.indirection || h->now.id.compressed)
            return false;
        *ret = (struct hint){.len = h->now.len, .id = h->now.id.content, .end = !h->have_next};
        return true;
    }
    return false;
}
