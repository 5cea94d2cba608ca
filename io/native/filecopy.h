/* SPDX-License-Identifier: GPL-2.0-or-later */
/* filecopy.h - full copies of snapshots into a class on other storage (EXPOSE_COPY; internal to io/native) */
#ifndef SNAPFERRY_IO_NATIVE_FILECOPY_H
#define SNAPFERRY_IO_NATIVE_FILECOPY_H

#include "io/native/driver.h"
#include "io/native/tag.h"

struct filecopy {
    int src;
    const char *src_path;
    uint64_t size;              /* bytes to copy from src */
    bool block;                 /* src is a device: it has no holes, runs of zeros become holes */
    uint64_t rate;              /* bytes per second, 0 unlimited */
    const struct fill *watched; /* its progress; NULL: nobody watches */
};

/* Bytes that a copy will occupy at most: the data extents. */
int filecopy_needs(const struct filecopy *c, uint64_t *ret, struct err *e);
/* Copies into an empty file and gives it the exact size. *copied: bytes written. A source that ends early is
 * ERR_SOURCE. */
int filecopy_run(const struct filecopy *c, int dst, const char *dst_path, uint64_t *copied, struct err *e);

/* ERR_NO_SPACE unless the file system of the open directory has that much free space, and some for its metadata. */
int space_check(int dir, const char *path, uint64_t need, struct err *e);

#endif
