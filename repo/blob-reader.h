/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blob-reader.h - ranges of blobs, read in pieces by one thread (internal to repo/)
 *
 * Where a store keeps blobs in files, the last two of them stay open: pieces cost no look-up of the path, the kernel
 * sees that they follow each other, and what comes next can be asked for ahead. Blobs never change, so that an open one
 * stays right; one that was deleted can still be read to its end.
 */
#ifndef SNAPFERRY_REPO_BLOB_READER_H
#define SNAPFERRY_REPO_BLOB_READER_H

#include "repo/blob.h"

struct blob_reader {
    struct blobs *b;
    struct blob_file {
        char name[BLOB_NAME_MAX + 1]; /* "": none */
        int fd;
        uint64_t next; /* end of the last read: what goes on there counts as the same read */
    } file[2];
    unsigned last; /* of the two, the one used last */
};

void blob_reader_init(struct blob_reader *r, struct blobs *b);
void blob_reader_clear(struct blob_reader *r);

/* As blobs_read(). */
int blob_reader_read(struct blob_reader *r, const char *name, uint64_t offset, void *dst, size_t len, struct err *e);

/* The range will be read soon: the device may begin with it. */
void blob_reader_ahead(struct blob_reader *r, const char *name, uint64_t offset, uint64_t len);

#endif
