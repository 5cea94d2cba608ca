/* SPDX-License-Identifier: GPL-2.0-or-later */
/* device.h - parts of the device driver (internal to io/native) */
#ifndef SNAPFERRY_IO_SNAPSHOT_DEVICE_H
#define SNAPFERRY_IO_SNAPSHOT_DEVICE_H

#include "io/native/driver.h"

#include <sys/stat.h>

/* A stable name of io/source.h ("/fs-uuid/...") as a volume id: "device" + it with every slash as a colon and every
 * other byte that has no place there as _HH; what would be too long ends in a hash. Different names stay different. */
void device_id_text(const char *stable, char ret[VOLUME_ID_MAX]);

/* The overlay hook (docs/drivers.md): makes, removes and lists writable overlays over a read-only device. */
int overlay_create(const struct driver_class *c, const struct native *n, const struct driver_class *into,
                   bool read_only, const char *alias, struct exposure *ret, struct err *e);
int overlay_remove(const struct driver_class *into, const struct exposure *x, struct err *e);
int overlay_each(const struct driver_class *into, exposure_fn *fn, void *arg, struct err *e);

#endif
