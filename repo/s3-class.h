/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * s3-class.h - which storage class an object of a bucket gets (internal to blob-s3.c)
 *
 * Kopia repository format, section 2.3: the object `.storageconfig` beside the blobs says it, as stock clients read it:
 * {"blobOptions": [{"prefix": "p", "storageClass": "STANDARD_IA"}]}. The first entry with which the name of a blob
 * begins counts. It is read once; whoever changes it waits for the next opening.
 */
#ifndef SNAPFERRY_REPO_S3_CLASS_H
#define SNAPFERRY_REPO_S3_CLASS_H

#include "repo/s3-call.h"

#define S3_CLASS_OBJECT ".storageconfig"
#define S3_CLASS_BYTES_MAX ((size_t)64 << 10)
#define S3_CLASS_ENTRIES_MAX 256
#define S3_CLASS_MAX 63 /* bytes of the name of a class */

struct s3_classes;

struct s3_classes *s3_classes_new(struct err *e); /* not read yet */
void s3_classes_free(struct s3_classes *c);       /* NULL allowed */

/*
 * The document. ERR_USAGE: malformed; or an archive, whose objects cannot be read before they are restored there, for
 * what has to be readable at any time: all but packs of data. `where` is the repository, for messages. On failure *c
 * is unchanged. Not thread-safe.
 */
int s3_classes_parse(struct s3_classes *c, const void *text, size_t len, const char *where, struct err *e);

/* The class for a blob by the document that was parsed last, "": that of the bucket. It is *c's until the next one is
 * parsed. Not thread-safe. */
const char *s3_classes_find(const struct s3_classes *c, const char *blob);

/* Reads the object if that was not done yet: one request. None is no error. Thread-safe. */
int s3_classes_read(struct s3_store *s, struct err *e);
/* The class for a blob, read before if need be; "": that of the bucket. Thread-safe. */
int s3_class_of(struct s3_store *s, const char *blob, char out[S3_CLASS_MAX + 1], struct err *e);

#endif
