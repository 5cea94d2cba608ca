/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * epoch-parts.h - the pieces that the epoch rules are made of: numbers in names, complete sets, the range chain
 * (Kopia repository format, sections 9.1 and 9.2). For epoch.c, index maintenance and tests.
 */
#ifndef SNAPFERRY_REPO_EPOCH_PARTS_H
#define SNAPFERRY_REPO_EPOCH_PARTS_H

#include "repo/blob.h"

struct epoch_range {
    int64_t min, max; /* inclusive */
};

/* Bounds in "xr0_7_..."; false: not such a name. */
bool epoch_range_of_name(const char *name, struct epoch_range *ret);
/* Seconds in "xw1717171717"; false: not such a name. */
bool epoch_watermark_of_name(const char *name, int64_t *seconds);

/*
 * The set completed earliest in the order given: marks its members and returns how many there are (0: no set is
 * complete; nothing is marked), -ENOMEM. Anybody who can write blobs makes as many names as he likes: the time it takes
 * is that of sorting them.
 */
int64_t epoch_first_complete(const char *const *names, size_t n, bool *member);

/*
 * The chain of ranges from epoch 0 on that reaches farthest, with the fewest links. `ranges` is sorted by min; chain[]
 * (room for n) gets the numbers of its links in order. Returns how many, -ENOMEM. As above.
 */
int64_t epoch_chain(const struct epoch_range *ranges, size_t n, size_t *chain);

#endif
