/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * sample.h - whether what is said to be unchanged really is (internal to the mover)
 *
 * A list of changes that omits one makes a backup silently wrong, and each one after it. So with each run a random
 * share of the chunks that were taken over is read and compared with the parent's content ids. A chunk is chosen by a
 * random byte: every byte of the volume is as likely to be looked at. Positions are chosen in rounds, each in the order
 * of the volume, so that a run that ends for lack of time has looked at all parts of it.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_SAMPLE_H
#define SNAPFERRY_DAEMON_MOVER_SAMPLE_H

#include "base/throttle.h"
#include "chunker/splitter.h"
#include "daemon/mover/mover.h"
#include "io/changes.h"

struct sample_setup {
    struct repo *repo;
    struct source *source;
    const struct object_id *image; /* of the parent */
    const struct changes *changes;
    uint64_t size; /* bytes that both images have */
    const struct splitter *splitter;
    double share;     /* of the bytes, 0 to 1; 0: nothing is read */
    unsigned seconds; /* at most so long; 0: no limit */
    uint64_t seed;    /* 0: random */
    struct throttle *limit;
    const struct mover_cancel *cancel; /* NULL: none */
};
struct sample_result {
    uint64_t chunks, bytes; /* read and equal */
    bool differs;
    uint64_t start, len; /* the chunk that differs, if one does; the first one ends the run */
};

/* 0 (also where a chunk differs or time ran out), or an error: the source or the parent's table cannot be read, or
 * -ECANCELED. Takes splitter->max bytes of memory. */
int sample_run(const struct sample_setup *s, struct sample_result *ret, struct err *e);

/* Of what is not allocated. */
struct sample_zeros_setup {
    struct source *source;
    const struct changes *allocated;
    double share;     /* of the bytes that are not; 0: nothing is read */
    unsigned seconds; /* as above */
    uint64_t seed;
};
/* Reads random blocks of 64 KiB that are said to be zeros. 0 (found->differs: one is not), or an error. */
int sample_zeros(const struct sample_zeros_setup *s, struct sample_result *ret, struct err *e);

#endif
