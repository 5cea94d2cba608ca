/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blockdev.h - what the kernel tells about a block device (internal to io/)
 *
 * Facts come from sysfs (Documentation/ABI/stable/sysfs-block), /proc/self/mountinfo (proc(5)) and /proc/swaps. None of
 * it is trusted to decide safety: the kernel's O_EXCL does that. All functions are thread-safe and never fail loudly: a
 * fact that cannot be had is absent.
 */
#ifndef SNAPFERRY_IO_BLOCKDEV_H
#define SNAPFERRY_IO_BLOCKDEV_H

#include "io/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Real path of the device's directory in sysfs ("/sys/devices/.../block/sda/sda1"). */
bool blockdev_sysfs(dev_t dev, char *out, size_t size);

/* First line of the attribute file `dir`/`name`, without blanks at its ends. False if missing or empty. */
bool sysfs_line(const char *dir, const char *name, char *out, size_t size);

/* Size in bytes by BLKGETSIZE64; 0 if the device is gone. */
uint64_t blockdev_size(int fd);

/* Medium under a device, through partitions, dm and md members, and the file behind a loop device. */
enum source_media blockdev_media(dev_t dev);

/* Medium under an open regular file; MEDIA_NETWORK for network file systems. */
enum source_media file_media(int fd);

/* Whether the device, one of its partitions, or a device stacked upon it is mounted (read-write, if `rw`). */
bool blockdev_mounted(dev_t dev, bool rw);

/* Who uses the device, for an error message: "mounted at /srv", "used as swap", "held by dm-3". False if unknown. */
bool blockdev_user(dev_t dev, char *out, size_t size);

#endif
