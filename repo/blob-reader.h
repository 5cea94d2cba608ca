/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blob-reader.h - ranges of blobs, read in pieces by one thread (internal to repo/)
 *
 * Where a store keeps blobs in files, the last two remain open: reading a piece needs no path look-up, the kernel
 * detects sequential access, and readahead can be requested. Blobs never change, so that an open file remains valid; a
 * deleted one can still be read to its end.
 */
#ifndef SNAPFERRY_REPO_BLOB_READER_H
#define SNAPFERRY_REPO_BLOB_READER_H

#include "repo/blob.h"

struct blob_reader {
    struct blobs *b;
    struct blob_file {
        char name[BLOB_NAME_MAX + 1]; /* "": none */
        int fd;
        uint64_t next; /* end of the last read: a read that continues there counts as the same read */
    } file[2];
    unsigned last; /* index of the one used last */
};

void blob_reader_init(struct blob_reader *r, struct blobs *b);
void blob_reader_clear(struct blob_reader *r);

/* As blobs_read(). */
int blob_reader_read(struct blob_reader *r, const char *name, uint64_t offset, void *dst, size_t len, struct err *e);

/* The range will be read soon: the device may start reading it. */
void blob_reader_ahead(struct blob_reader *r, const char *name, uint64_t offset, uint64_t len);

#endif
