/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * mounts.h - mount tables and swap areas of the kernel (internal to io/)
 *
 * Sources are mountinfo (proc(5)) of any process and /proc/swaps. All functions are thread-safe and never fail:
 * unavailable information is absent.
 */
#ifndef SNAPFERRY_IO_MOUNTS_H
#define SNAPFERRY_IO_MOUNTS_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

/* One line of mountinfo. Octal escapes in paths (space, tab, newline, backslash) are decoded. */
struct mount_row {
    int id;
    dev_t dev;
    char root[PATH_MAX]; /* which directory of the file system */
    char point[PATH_MAX], type[64], source[PATH_MAX];
    bool
        rw; /* of the superblock, not of this mount point: the file system may write if any of its mount points is rw */
    bool nouuid; /* XFS: mounted without asking whether another one has its UUID */
};

/* Calls fn for each line of `file` (/proc/PID/mountinfo) until it returns true, which is then returned. */
bool mounts_each(const char *file, bool (*fn)(const struct mount_row *, void *), void *arg);

/* The device of a mount. btrfs and others have anonymous device numbers; then the device node of the source is used. */
dev_t mount_device(const struct mount_row *m);

/* Whether a block device or a file is used as swap. */
bool mounts_is_swap(const struct stat *of);

#endif
