/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * unchanged.h - what a backup takes over from its parent snapshot without reading it (internal to the mover)
 *
 * A cut depends only on the bytes since the previous cut. So if a chunk of the new image begins where a chunk of the
 * parent image begins, and no byte of that chunk has changed, it is a chunk of the new image, with the same content. A
 * range has to be read from the last cut of the parent before a change to the first cut behind it that both images
 * have. Normally that is the end of the parent's chunk in which the change ends, and that much is read ahead; where the
 * images meet later, the pipeline reads what is missing by itself.
 *
 * The result is the object that a full read would have produced, if the list of changes is complete.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_UNCHANGED_H
#define SNAPFERRY_DAEMON_MOVER_UNCHANGED_H

#include "chunker/splitter.h"
#include "daemon/mover/hints.h"
#include "io/changes.h"
#include "io/source.h"

struct unchanged;

/*
 * `image`, `parent_size`: the parent image and its size, > 0; made with the same splitter and sections as the new image
 * of `size` bytes. `changes`: ranges that differ (finished; must outlive the result); if the sizes differ, it must
 * contain the last byte of the shorter image and all behind it. Nothing is read yet.
 */
int unchanged_new(struct unchanged **ret, struct repo *r, const struct object_id *image, uint64_t parent_size,
                  const struct changes *changes, uint64_t size, struct err *e);
void unchanged_free(struct unchanged *u); /* NULL allowed */
static inline void unchanged_freep(struct unchanged **u)
{
    unchanged_free(*u);
}

/* Bytes of memory for walking the parent's table, three times. */
size_t unchanged_memory(const struct unchanged *u, size_t longest);

/* The parent's chunk at `pos`, which the new image has too: its end lies `left` bytes or less behind pos, where the
 * section ends. 1; 0: there is none; or an error: the parent's table cannot be read. One thread (the pipeline's);
 * positions never decrease. */
int unchanged_at(struct unchanged *u, const struct splitter *s, uint64_t pos, uint64_t left, struct hint *ret,
                 struct err *e);

/*
 * *ret: the end of the bytes from `pos` on, at most `limit`, that are zeros in the parent (chunks of the splitter's
 * shortest length with the id `zero`) and have not changed; `pos` if there are none. Behind a change in a long range of
 * zeros all cuts are at other places than the parent's, but nothing has to be read there. 0, or an error: the parent's
 * table cannot be read. Same thread and order as unchanged_at().
 */
int unchanged_zeros(struct unchanged *u, const struct splitter *s, const struct content_id *zero, uint64_t pos,
                    uint64_t limit, uint64_t *ret, struct err *e);

/* reader_opts.range: the chunks of the parent that contain changes. One thread (the reader's). */
int unchanged_range(uint64_t pos, struct extent *ret, void *unchanged, struct err *e);

/* Whether the parent's table turned out to be unreadable: the run has failed, a full read may succeed. Any thread. */
bool unchanged_is_broken(const struct unchanged *u);

#endif
