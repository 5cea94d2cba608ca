/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * budget.h - division of the memory budget of a backup (internal to the mover)
 */
#ifndef SNAPFERRY_DAEMON_MOVER_BUDGET_H
#define SNAPFERRY_DAEMON_MOVER_BUDGET_H

#include "chunker/splitter.h"
#include "daemon/mover/hints.h"
#include "daemon/mover/mover.h"

struct budget {
    /* By the caller, before budget_plan(): memory that the run takes besides; the largest read, 0: no limit. */
    uint64_t reserved;
    size_t block_max;
    uint64_t memory; /* budget in bytes */
    unsigned workers;
    unsigned batch;             /* chunks that a worker waits for, to hash them side by side */
    size_t ring, window, block; /* reader */
    size_t slots;               /* chunks in work at a time */
    size_t pack_buffer;         /* memory of packs being filled */
    size_t max_pending;         /* contents that the session holds until it must flush */
    bool hints;                 /* the parents' chunk lists fit in */
};

/* ERR_USAGE: `o->limits.memory` below MEMORY_MIN. ERR_MEMORY: the repository needs more; the message has both
 * numbers. */
int budget_plan(struct budget *ret, struct repo *r, const struct splitter *s, const struct backup_opts *o,
                uint64_t size, const struct hints *hints, struct err *e);

/* Keeps malloc from using memory for arenas and freed buffers outside the budget. Process-wide. */
void budget_tame_malloc(void);

#endif
