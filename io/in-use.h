/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * in-use.h - whether a device or file is used by something that an overwrite would damage
 *
 * O_EXCL on a device is refused by the kernel while the device itself is mounted, swap, or part of another device. It
 * does not notice users that never claim it: a loop device, a process that opened it (a virtual machine, an NBD
 * server), and whatever uses the same bytes by another device. This looks for them.
 */
#ifndef SNAPFERRY_IO_IN_USE_H
#define SNAPFERRY_IO_IN_USE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

enum use {
    USE_NONE,
    USE_HELD,  /* mounted, swap, below another device */
    USE_OPENED /* by a process, perhaps only for a moment */
};

/*
 * Whether a block device or regular file is in use; `out` gets by what: "mounted at /srv", "it backs loop device
 * /dev/loop3", "open for writing by qemu-nbd (process 12)". Sought are, for the target, the partitions and devices
 * above it, and the files and devices that it stands on: mounts in all mount namespaces, swap, loop devices over the
 * same bytes, holders, other tables of device mapper over the same device, targets of the kernel (configfs), processes
 * that opened it for writing (a file: at all). The calling process does not count, and neither do processes whose
 * descriptors the caller may not see (without CAP_SYS_PTRACE those of other users). Thread- safe.
 */
enum use in_use(const struct stat *st, char *out, size_t size);

/* The same for loop devices directly over it only: cheap. */
bool in_use_loop(const struct stat *st, char *out, size_t size);

/*
 * Whether an open directory is, or lies in, the directory of a Kopia repository, also if a part of that is mounted
 * elsewhere; of a file whether it is itself mounted from there. `out` gets the path of the repository.
 * (in-repository.c)
 */
bool in_repository(int fd, char *out, size_t size);

/* Tests: where targets of the kernel are configured, in place of /sys/kernel/config. */
void in_use_configfs_test(const char *root);

#endif
