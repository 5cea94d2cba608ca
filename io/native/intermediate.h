/* SPDX-License-Identifier: GPL-2.0-or-later */
/* intermediate.h - clones and copies of native snapshots as tagged files (internal to io/native) */
#ifndef SNAPFERRY_IO_NATIVE_INTERMEDIATE_H
#define SNAPFERRY_IO_NATIVE_INTERMEDIATE_H

#include "io/native/filecopy.h"

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
/* What unexpose must undo for any exposure of this machine: nothing for a native one (no alias), the overlay hook
 * for an overlay, a file for a clone or copy; with only an alias (after a crash) whichever it is. Already removed is
 * success. */
int exposure_undo(const struct driver_class *into, const struct exposure *x, struct err *e);
int intermediate_each(const struct driver_class *into, exposure_fn *fn, void *arg, struct err *e);
int intermediate_open(const struct exposure *x, int *fd, struct err *e);

#endif
