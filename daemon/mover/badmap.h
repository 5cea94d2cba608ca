/* SPDX-License-Identifier: GPL-2.0-or-later */
/* badmap.h - the unreadable ranges of a source, a bounded list (internal to the mover) */
#ifndef SNAPFERRY_DAEMON_MOVER_BADMAP_H
#define SNAPFERRY_DAEMON_MOVER_BADMAP_H

#include "daemon/mover/mover.h"

#include <pthread.h>

/* Sorted, without overlap; adjacent ranges with the same errno are one. When BAD_RANGES_MAX are listed the two with
 * the smallest gap are merged (with the gap: the list then covers more bytes than are bad, `bytes` does not). */
struct badmap {
    pthread_mutex_t lock;
    struct bad_range list[BAD_RANGES_MAX + 1];
    size_t n;
    uint64_t bytes;
};

void badmap_init(struct badmap *m);
void badmap_destroy(struct badmap *m);
void badmap_add(struct badmap *m, uint64_t pos, uint64_t len, int sys); /* any thread */
/* Copies the list into malloc()ed memory (NULL if empty). */
int badmap_copy(struct badmap *m, struct bad_range **ret, size_t *n, uint64_t *bytes, struct err *e);

#endif
