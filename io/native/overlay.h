/* SPDX-License-Identifier: GPL-2.0-or-later */
/* overlay.h - writable overlays over a device, made by a program of the administrator (internal to io/native) */
#ifndef SNAPFERRY_IO_NATIVE_OVERLAY_H
#define SNAPFERRY_IO_NATIVE_OVERLAY_H

#include "io/native/driver.h"

/* The overlay hook (docs/devices.md): creates, removes and lists writable overlays over a read-only device. */
int overlay_create(const struct driver_class *c, const struct native *n, const struct driver_class *into,
                   bool read_only, const char *alias, struct exposure *ret, struct err *e);
int overlay_remove(const struct driver_class *into, const struct exposure *x, struct err *e);
int overlay_each(const struct driver_class *into, exposure_fn *fn, void *arg, struct err *e);

#endif
