/* SPDX-License-Identifier: GPL-2.0-or-later */
/* device.h - parts of the device driver (internal to io/native) */
#ifndef SNAPFERRY_IO_NATIVE_DEVICE_H
#define SNAPFERRY_IO_NATIVE_DEVICE_H

#include "io/native/driver.h"

#include <sys/stat.h>

/* A stable name of io/source.h ("/fs-uuid/...") as a volume id: "device" + it with every slash as a colon and every
 * invalid byte as _HH; one that would be too long ends in a hash. Different names remain different. */
void device_id_text(const char *stable, char ret[VOLUME_ID_MAX]);

#endif
