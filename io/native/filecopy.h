/* SPDX-License-Identifier: GPL-2.0-or-later */
/* filecopy.h - full copies of snapshots into a class that lies elsewhere (EXPOSE_COPY; internal to io/native) */
#ifndef SNAPFERRY_IO_SNAPSHOT_FILECOPY_H
#define SNAPFERRY_IO_SNAPSHOT_FILECOPY_H

#include "io/native/tag.h"

struct filecopy {
    int src;
    const char *src_path;
    uint64_t size; /* bytes to copy from src */
    bool block;    /* src is a device: it has no holes, runs of zeros become some */
    uint64_t rate; /* bytes per second, 0 unlimited */
};

/* Bytes that a copy will occupy at most: the data extents. */
int filecopy_needs(const struct filecopy *c, uint64_t *ret, struct err *e);
/* Copies into an empty file and gives it the exact size. *copied: bytes written. A source that ends early is
 * ERR_SOURCE. */
int filecopy_run(const struct filecopy *c, int dst, const char *dst_path, uint64_t *copied, struct err *e);

/* ERR_NO_SPACE unless the file system of the open directory has room for that much, and some for itself. */
int space_check(int dir, const char *path, uint64_t need, struct err *e);

/*
 * The intermediate of EXPOSE_CLONE or EXPOSE_COPY as a tagged file in HIDDEN_DIR of `dir_path`: clone of `src`, or
 * copy. An existing one with this alias in the class `into` is returned as it is. `n` tells what it is made from.
 */
struct intermediate {
    const struct driver_class *into;
    const struct native *n;
    const char *alias, *dir_path;
    enum expose_mechanism mechanism;
    bool read_only;
    struct filecopy from;
};
int intermediate_make(const struct intermediate *m, struct exposure *ret, struct err *e);
/* The same three for every driver whose intermediates are files of a class with directories. */
int intermediate_remove(const struct driver_class *into, const struct exposure *x, struct err *e);
/* What unexpose has to do for any exposure of this machine's making: nothing for a native one (no alias), the overlay
 * hook for an overlay, a file for a clone or copy; with an alias only (a crash came before the rest was known)
 * whichever it is. Gone already is success. */
int exposure_undo(const struct driver_class *into, const struct exposure *x, struct err *e);
int intermediate_each(const struct driver_class *into, exposure_fn *fn, void *arg, struct err *e);
int intermediate_open(const struct exposure *x, int *fd, struct err *e);

#endif
