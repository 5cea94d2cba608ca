/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * copy-gone.h - what the original of a copy does not have any more is deleted in the copy, on request and after a time
 *
 * A blob in the copy records since when each blob was missed in the original, by the clock of the copy's storage. One
 * that was missed by an earlier run for so long, and now, and that the original answers not to have, is deleted:
 * indexes first, then packs. A pack that the index of the original refers to was not deleted but lost: the copy keeps
 * it. Where more than half of the copy would go nothing is deleted: an original that was emptied must not empty its
 * copy (internal to the copy of repositories).
 */
#ifndef SNAPFERRY_REPO_COPY_GONE_H
#define SNAPFERRY_REPO_COPY_GONE_H

#include "repo/copy.h"

#define COPY_GONE "_snapferry.copy-gone"

struct gone_opts {
    struct repo *from;
    struct blobs *to;
    int64_t after_ns;
    int64_t now_ns;                               /* by the clock of the copy's storage */
    uint64_t copy_bytes;                          /* in the copy, all */
    bool empty;                                   /* the original has no index or no pack */
    bool most;                                    /* also more than half of it */
    bool (*surplus)(const char *name, void *arg); /* the original has not listed this blob of the copy */
    int (*go_on)(void *arg, struct err *e);       /* asked before each blob */
    void *arg;
};
/* Sets deleted, held and lost of `ret`, as far as it came. Memory: 40 bytes and the name for each surplus blob. */
int copy_delete_gone(const struct gone_opts *o, struct copy_result *ret, struct err *e);

#endif
