/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hints.h - positions of the parent snapshot's chunks (internal to the mover)
 *
 * A hint is a chunk of the parent image that begins at a given position: its length and content id. If the new bytes of
 * that range have the same id they are the same bytes, and because a cut depends only on bytes since the previous cut,
 * the range is a chunk of the new image too. A hint does not prove a boundary that was an end and not a cut (the last
 * chunk of the parent image), so such chunks are only returned if they extend to the end of the section.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_HINTS_H
#define SNAPFERRY_DAEMON_MOVER_HINTS_H

#include "repo/object.h"

struct hints;

struct hint {
    uint64_t len;
    struct content_id id;
    bool end; /* its end is the parent image's end: no proof of a cut there */
};

#define HINT_PARENTS_MAX 2

int hints_new(struct hints **ret, struct repo *r, struct err *e);
void hints_free(struct hints *h);
static inline void hints_freep(struct hints **h)
{
    hints_free(*h);
}

/* Adds a parent image; the first one that reaches a position is used for it. */
void hints_add(struct hints *h, const struct object_id *image);
bool hints_any(const struct hints *h);

/* Bytes that walking the parents takes at most (one parent is walked at a time, one document per level is held). */
size_t hints_memory(const struct hints *h, size_t longest);
/* The same for one walk over an image. */
size_t hints_walk_memory(struct repo *r, const struct object_id *image, size_t longest);

/* The parent's chunk that begins at `pos`. Positions never decrease. Unreadable parents are skipped with a warning:
 * hints are optional. */
bool hints_at(struct hints *h, uint64_t pos, struct hint *ret);

#endif
