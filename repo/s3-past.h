/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * s3-past.h - a bucket as it was at a time, by the versions of its objects: read only (internal to blob-s3.c)
 *
 * Kopia repository format, section 2.3: of each key the newest version not newer than the time, a delete marker being
 * absence. Versions of a bucket do not change, they can only be removed, so which version a name has is remembered, of
 * some thousand names. Lists are pages of versions; memory does not grow with their number.
 */
#ifndef SNAPFERRY_REPO_S3_PAST_H
#define SNAPFERRY_REPO_S3_PAST_H

#include "repo/s3-call.h"

struct s3_past;

/* Makes s->past, and requests the versioning of the bucket: ERR_USAGE if it has none, or if a repository is to be
 * created (`create`). The location gets the time. s3_free() frees it. */
int s3_past_open(struct s3_store *s, int64_t at_ns, bool create, struct err *e);
void s3_past_free(struct s3_past *p); /* NULL allowed */

/* The query that gets the version of a blob: "versionId=ID"; "" if the store is not of the past. -ENOENT: there was no
 * such blob. */
#define S3_PAST_QUERY (3 * S3_VERSION_MAX + 16)
int s3_past_query(struct s3_store *s, const char *name, char out[S3_PAST_QUERY], struct err *e);

/* Operations of blob-ops.h. What writes is -EROFS (ERR_USAGE). */
int s3_past_stat(struct blobs *b, const char *name, struct blob_info *ret, struct err *e);
int s3_past_list(struct blobs *b, const char *prefix, blob_list_fn *fn, void *arg, struct err *e);
int s3_past_put(struct blobs *b, const char *name, const void *data, size_t len, struct err *e);
int s3_past_delete(struct blobs *b, const char *name, struct err *e);
int s3_past_writer_new(struct blob_writer **ret, struct blobs *b, const char *name, struct err *e);

#endif
