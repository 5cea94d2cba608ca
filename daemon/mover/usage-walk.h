/* SPDX-License-Identifier: GPL-2.0-or-later */
/* usage-walk.h - the contents that snapshots of one volume reach; for usage.c only */
#ifndef SNAPFERRY_DAEMON_MOVER_USAGE_WALK_H
#define SNAPFERRY_DAEMON_MOVER_USAGE_WALK_H

#include "daemon/mover/mapped.h"
#include "daemon/mover/mover.h"
#include "daemon/mover/reach.h"

struct usage_walk {
    struct repo *r;
    struct reach *reach;
    const struct mover_cancel *cancel;
    struct id_set *seen;                /* objects, blocks of index documents and pairs of blocks, of this volume */
    uint32_t volume;                    /* its number */
    struct content_id last;             /* what was added last: a sparse image has the same one many times */
    unsigned documents;                 /* index documents in each other that are read */
    uint64_t blocks_read, blocks_known; /* of index documents, of all volumes: read; not read again */
    uint64_t unreadable;                /* objects of this volume */
    uint64_t warned;                    /* of all volumes */
    bool broken;                        /* it is not the repository that has failed */
    char source[4500];                  /* for warnings */
};

/* ERR_INTERRUPTED (-ECANCELED) if it was requested. */
int usage_stopped(const struct mover_cancel *c, struct err *e);
/* Adds what an object reaches that was not walked before for this volume; of a directory, what is in it. What cannot be
 * read is counted, with a warning. `ahead` may be NULL. */
int usage_walk_object(struct usage_walk *w, struct content_ahead *ahead, const struct object_id *o, bool dir,
                      struct err *e);

#endif
