/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * verify-packs.h - whether a pack that a list lacks is there all the same
 *
 * Maintenance of another node stores contents again, in packs that are newer than the list of packs with which a check
 * began, while its index is read anew; and lists of some object stores lag. So the store is asked for a pack before it
 * is called missing.
 */
#ifndef SNAPFERRY_MOVER_VERIFY_PACKS_H
#define SNAPFERRY_MOVER_VERIFY_PACKS_H

#include "repo/blob.h"

/* The last answer: contents of one pack follow each other. {"", 0} before the first. Used by one thread. */
struct pack_asked {
    char name[BLOB_NAME_MAX + 1];
    uint64_t length; /* bytes; 0: it is not there */
};
/* 1: it is there, with at least `least` bytes; 0: it is not, or shorter. Negative: the store could not say so (a
 * timeout, a server that is busy, no permission, canceled), with its error: that is no damage, and is asked again. */
int pack_is_there(struct blobs *b, const char *name, uint64_t least, struct pack_asked *last, struct err *e);

#endif
