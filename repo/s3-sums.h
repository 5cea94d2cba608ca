/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * s3-sums.h - the sums of what is uploaded; packs that are whole at about the same time are summed together (internal
 * to blob-s3.c)
 *
 * A pack alone costs several times what it costs among others (chunker/sums.h). So a whole one waits for more, as long
 * as others are being written: half a second at most, and not at all when nothing is.
 */
#ifndef SNAPFERRY_REPO_S3_SUMS_H
#define SNAPFERRY_REPO_S3_SUMS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the headers of an upload say: base64 and hex; `sha` is "" where it was not asked for. */
struct s3_sums {
    char md5[25], sha[65];
};

struct s3_summer; /* thread-safe but for new and free */
struct s3_summer *s3_summer_new(bool sha, struct err *e);
void s3_summer_free(struct s3_summer *s); /* nobody is waiting; NULL allowed */

/* How many packs more than are uploaded at a time should be on their way, so that some can wait for others. */
unsigned s3_summer_ahead(void);
/* Something was written to a pack that is not whole. */
void s3_summer_written(struct s3_summer *s);
/* The sums of the first `length` bytes of a file. ERR_MEMORY, ERR_GENERIC; *read: negative errno if it was reading that
 * failed, of which e says nothing. */
int s3_summer_file(struct s3_summer *s, int fd, uint64_t length, struct s3_sums *ret, int *read, struct err *e);
/* The sums of `len` bytes of memory. */
int s3_summer_memory(const struct s3_summer *s, const void *data, size_t len, struct s3_sums *ret, struct err *e);

#endif
