/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fsinfo.h - the file system of a file, its identity, and the file's own identity (internal to io/native) */
#ifndef SNAPFERRY_IO_NATIVE_FSINFO_H
#define SNAPFERRY_IO_NATIVE_FSINFO_H

#include "io/native/driver.h"

struct fs_info {
    char type[16];    /* "xfs", "btrfs", "ext4", "tmpfs"; else its magic number in hex */
    char pool[64];    /* UUID of the file system; "fsid-..." if it has none */
    uint64_t subvol;  /* btrfs: id of the subvolume; else 0 */
    bool reflink;     /* files can share blocks (FICLONE) */
    bool holds_files; /* has what intermediates and restored files need: unnamed files and extended attributes */
};

/* ERR_NOT_FOUND, ERR_PERMISSION, ERR_GENERIC. */
int fs_info_fd(int fd, const char *path, struct fs_info *ret, struct err *e);
int fs_info_path(const char *path, struct fs_info *ret, struct err *e);

/* Waits until what was freed by files that are removed is counted as free space (`fd`: any file of the file system).
 * Not that of files that others still have open. Best effort: what cannot be waited for is counted later. */
void fs_free_settle(int fd);

/*
 * Identity of an open file: "reflink.FS-UUID.INODE.GENERATION" (hex), on btrfs
 * "reflink.FS-UUID.SUBVOL-INODE.GENERATION". It survives rename, move within the file system (btrfs: within the
 * subvolume) and reboot; a file that is made anew has another generation even if it gets the same inode.
 */
int file_object_id(int fd, const char *path, char ret[VOLUME_ID_MAX], struct err *e);

/* Makes dst (still empty) share the property of src that FICLONE insists on: btrfs clones only between files that both
 * have checksums or both have none (chattr +C). */
void match_clone_flags(int src, int dst);

#endif
