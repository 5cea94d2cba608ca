/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blockdev.h - information of the kernel about a block device (internal to io/)
 *
 * Sources are sysfs (Documentation/ABI/stable/sysfs-block), /proc/self/mountinfo (proc(5)) and /proc/swaps. They are
 * used for messages and defaults; restore targets are checked by in-use.h. All functions are thread-safe and never
 * fail: unavailable information is absent.
 */
#ifndef SNAPFERRY_IO_BLOCKDEV_H
#define SNAPFERRY_IO_BLOCKDEV_H

#include "io/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Real path of the device's directory in sysfs ("/sys/devices/.../block/sda/sda1"); false if unknown. */
bool blockdev_sysfs(dev_t dev, char *out, size_t size);

/* First line of the attribute file `dir`/`name`, without leading and trailing blanks. False if missing or empty. */
bool sysfs_line(const char *dir, const char *name, char *out, size_t size);

/* Device number in the attribute file `dir`/`name` ("8:1"). */
bool sysfs_dev(const char *dir, const char *name, dev_t *ret);

/* Calls fn(device, name, depth, arg) for the devices in the directory `dir`/`sub` of sysfs (sub "": the partitions in
 * `dir`) until it returns true, which is then returned. */
bool blockdev_children(const char *dir, const char *sub, bool (*fn)(dev_t, const char *, int, void *), int depth,
                       void *arg);

/* Size in bytes by BLKGETSIZE64; 0 if the device no longer exists. */
uint64_t blockdev_size(int fd);
/* A restore target that is read-only is refused: no other attempt changes that. */
int blockdev_writable(int fd, const char *path, struct err *e);

/* Medium of a device, determined through partitions, dm and md members, and the file of a loop device. */
enum source_media blockdev_media(dev_t dev);

/* Medium of an open regular file; MEDIA_NETWORK for network file systems. */
enum source_media file_media(int fd);

/* Whether the device, one of its partitions, or a device stacked on it is mounted (read-write, if `rw`). */
bool blockdev_mounted(dev_t dev, bool rw);

/* User of the device for an error message: "mounted at /srv", "used as swap", "held by dm-3". False if unknown. */
bool blockdev_user(dev_t dev, char *out, size_t size);

const char *blockdev_sysfs_root(void); /* "/sys" */
void blockdev_sysfs_test(const char *root);

#endif
