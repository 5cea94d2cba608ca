/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * changes.h - the ranges of a volume that differ from an earlier state of it
 *
 * Made by what knows them (thin_delta, a dirty bitmap, a comparison of extents, a file given by the administrator) and
 * used by a backup to read only these. All that a list does not contain is claimed to be unchanged, so a list is only
 * ever made larger: ranges are rounded outward and merged, never dropped.
 *
 * Of some ranges it may be known that they are zeros now (freed blocks): these need not be read. That, too, is a claim,
 * so it is only ever made of less: such ranges are neither rounded nor merged over gaps.
 *
 * A list holds at most CHANGES_MAX ranges, 16 bytes each, and a quarter of that of zeros. If more are added, those with
 * the smallest gaps between them are merged, and zeros are taken for data. Not thread-safe while it is made; afterwards
 * any number of threads may read it, each with a cursor of its own.
 */
#ifndef SNAPFERRY_IO_CHANGES_H
#define SNAPFERRY_IO_CHANGES_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHANGES_MAX ((size_t)1 << 20)

struct change {
    uint64_t start, len; /* bytes; len > 0 */
};

struct changes;

/* An empty list. -ENOMEM. */
int changes_new(struct changes **ret, struct err *e);
void changes_free(struct changes *c); /* NULL allowed */
static inline void changes_freep(struct changes **c)
{
    changes_free(*c);
}

/* Adds bytes [start, start + len), in any order, overlapping others or not. len 0: nothing. ERR_USAGE (-EINVAL): the
 * end is beyond 2^63 bytes. -ENOMEM. */
int changes_add(struct changes *c, uint64_t start, uint64_t len, struct err *e);

/* As changes_add(), of what is known to be zeros now, unless changes_add() names some of it, in whatever order. */
int changes_add_zeros(struct changes *c, uint64_t start, uint64_t len, struct err *e);

/* Adds all ranges of another list, which is finished, as they are: zeros as zeros. */
int changes_add_all(struct changes *c, const struct changes *from, struct err *e);
/* Likewise, but none that begins at or behind byte `size`, and none behind it of those that end there. */
int changes_add_within(struct changes *c, const struct changes *from, uint64_t size, struct err *e);
/* Adds all of [0, size) that is not known to be zeros by the other list, which is finished. */
int changes_add_unknown(struct changes *c, const struct changes *from, uint64_t size, struct err *e);

/*
 * Reads a list from a text file: one range in each line, "START LENGTH", in bytes, decimal; empty lines and those that
 * begin with '#' are skipped. Errors name the file and the line: ERR_USAGE for anything else than that, including a
 * line of over 200 characters; ERR_NOT_FOUND, ERR_PERMISSION; not a regular file: ERR_USAGE.
 */
int changes_read(struct changes *c, const char *path, struct err *e);

/* Sorts and merges. Must be called after the last add and before the following functions. If more is added later
 * nothing is known to be zeros any more. */
void changes_finish(struct changes *c);

size_t changes_count(const struct changes *c);
uint64_t changes_bytes(const struct changes *c);      /* sum of all lengths */
uint64_t changes_zero_bytes(const struct changes *c); /* of these, known to be zeros */
size_t changes_memory(const struct changes *c);       /* bytes of memory that the list takes */

/* What a list of ranges means; one must never be taken for the other. */
enum changes_kind {
    CHANGES_DIFFER,   /* all else is as in the parent */
    CHANGES_ALLOCATED /* all else is zeros */
};
/* As bytes, for another process: `size` is that of the volume, which all ranges lie in. *ret: of malloc(). -ENOMEM. */
int changes_pack(const struct changes *c, enum changes_kind kind, uint64_t size, uint8_t **ret, size_t *len,
                 struct err *e);
/* Adds what was packed for a volume of `size` bytes. ERR_USAGE: malformed, or of another kind. */
int changes_unpack(struct changes *c, enum changes_kind kind, const uint8_t *p, size_t len, uint64_t size,
                   struct err *e);

/* The first range that ends after `pos`. `*cursor` begins as 0 and is kept by the caller between calls; positions must
 * not decrease from call to call. False: there is none. */
bool changes_after(const struct changes *c, size_t *cursor, uint64_t pos, struct change *ret);

/* As changes_after(), but of one kind: the next part of a range, from `pos` on, of which all is known to be zeros
 * (*zeros), or nothing is. `*cursor` begins as zeros. */
struct changes_cursor {
    size_t list, zeros;
};
bool changes_part_after(const struct changes *c, struct changes_cursor *cursor, uint64_t pos, struct change *ret,
                        bool *zeros);

#endif
