/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * s3-put.h - what is written into a bucket: whole blobs, and packs by way of a file (internal to blob-s3.c)
 *
 * A put is one PutObject with Content-MD5 (and, without TLS, the SHA-256 of the body in its signature). A pack is
 * written into a file without a name in the directory of the store, and summed (s3-sums.h) and uploaded when it is
 * whole. Files are used again for the next packs: a new file costs as much as a copy of its bytes.
 */
#ifndef SNAPFERRY_REPO_S3_PUT_H
#define SNAPFERRY_REPO_S3_PUT_H

#include "repo/s3-call.h"
#include "repo/s3-sums.h"

/* Files for packs, in the directory `dir`, which exists or can be created; at most `keep` are kept for another pack,
 * and `puts` uploaded at a time. Thread-safe but for new and free. */
struct s3_spool *s3_spool_new(const char *dir, unsigned keep, unsigned puts, struct err *e);
void s3_spool_free(struct s3_spool *p); /* no writer is left; NULL allowed */

/* Operations of blob-ops.h. */
int s3_put(struct blobs *b, const char *name, const void *data, size_t len, struct err *e);
int s3_writer_new(struct blob_writer **ret, struct blobs *b, const char *name, struct err *e);
int s3_writer_write(struct blob_writer *w, uint64_t offset, const void *data, size_t len, struct err *e);
int s3_writer_read(struct blob_writer *w, uint64_t offset, void *data, size_t len, struct err *e);
int s3_writer_commit(struct blob_writer *w, uint64_t length, struct err *e);
void s3_writer_abort(struct blob_writer *w);

#endif
