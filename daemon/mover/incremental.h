/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * incremental.h - whether a backup can take over its parent's unchanged parts, and what these are (internal to the
 * mover)
 */
#ifndef SNAPFERRY_DAEMON_MOVER_INCREMENTAL_H
#define SNAPFERRY_DAEMON_MOVER_INCREMENTAL_H

#include "daemon/mover/mover.h"
#include "daemon/mover/unchanged.h"

struct incremental {
    struct changes *changes;     /* as given, and what the parent does not have (bad ranges, another size) */
    struct unchanged *unchanged; /* NULL: everything is read */
    struct object_id image;      /* of the parent */
    uint64_t common;             /* bytes that both images have */
    uint64_t parent_size;
    char parent[33];
    char why[256]; /* why everything is read */
};

/*
 * Finds out whether o->incremental (not NULL) can be used for an image of `size` bytes, made with `splitter` and
 * sections of `section` bytes. If not, x->unchanged is NULL and x->why has the reason. Errors: memory, a repository
 * that cannot be read. incremental_close() in any case.
 */
int incremental_open(struct incremental *x, struct repo *r, const struct backup_opts *o,
                     const struct splitter *splitter, uint64_t section, uint64_t size, struct err *e);
void incremental_close(struct incremental *x);

/* Whether nothing at all has changed, and each content of the parent's image is in the index and in a pack that exists:
 * it is the new one. What is no longer there is read and stored again. */
bool incremental_is_same(const struct incremental *x, struct repo *r, uint64_t size);

/* The parent's chunk list has turned out to be damaged: reads all of its documents that can be found, so that those
 * that are damaged are stored again and not taken for existing. */
void incremental_find_damage(const struct incremental *x, struct repo *r);

/* Memory that it takes besides the pipeline's, including a sample (sample.h). */
uint64_t incremental_memory(const struct incremental *x, const struct splitter *splitter);

/* The largest useful read: ranges are widened to whole ones. */
size_t incremental_block(const struct splitter *splitter);

#endif
