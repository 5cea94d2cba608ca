/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * keeper.h - the thread that maintains the session of a long backup (internal to the mover)
 *
 * While the pipeline runs it flushes the session by size and by time, refreshes the view of the repository, passes a
 * cancellation on to the pipeline, and updates the progress counters of the reader.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_KEEPER_H
#define SNAPFERRY_DAEMON_MOVER_KEEPER_H

#include "daemon/mover/mover.h"
#include "daemon/mover/pipeline.h"

struct keeper;

struct keeper_setup {
    struct session *session;
    struct reader *reader; /* NULL allowed */
    struct pipeline *pipeline;
    uint64_t flush_bytes;
    unsigned flush_s;
    struct mover_progress *progress;
    struct mover_cancel *cancel;
};

int keeper_new(struct keeper **ret, const struct keeper_setup *s, struct err *e);
/* Ends the thread after a flush that may be in progress. Numbers of flushes are added to *flushes, their time (ns)
 * to *flush_ns. NULL allowed. */
void keeper_end(struct keeper *k, uint64_t *flushes, uint64_t *flush_ns);
/* Asks for a flush soon, and does not wait for it. */
void keeper_flush(struct keeper *k);

#endif
