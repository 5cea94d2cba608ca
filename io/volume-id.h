/* SPDX-License-Identifier: GPL-2.0-or-later */
/* volume-id.h - the id of a volume that is a device, the same for the daemon and for -r */
#ifndef SNAPFERRY_IO_VOLUME_ID_H
#define SNAPFERRY_IO_VOLUME_ID_H

#define DEVICE_ID_MAX 256

/* A stable name of io/source.h ("/fs-uuid/...") as a volume id: "device" + it with every slash as a colon and every
 * invalid byte as _HH; one that would be too long ends in a hash. Different names remain different. */
void device_id_text(const char *stable, char ret[DEVICE_ID_MAX]);

#endif
