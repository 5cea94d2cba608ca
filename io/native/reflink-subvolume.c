/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * reflink-subvolume.c - btrfs: a snapshot of the subvolume, from which several images are cloned as of one instant
 *
 * It lies as ALIAS.group in HIDDEN_DIR beside the image whose native snapshot has that alias, for as long as it takes
 * to clone; its name is known before it is made. It has what was written and synced, or written with O_DIRECT, before
 * its instant. Of what is only in the page cache it has what was written before the call, and perhaps some of what
 * is written during it.
 *
 * Crash points: subvolume-made, subvolume-removed.
 */
#include "io/native/reflink.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "io/native/path.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#define TOP_INODE 256 /* of the top directory of each subvolume */

/* Else what was made could not be removed. */
static bool may_remove(void)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3];
    memset(d, 0, sizeof d);
    return syscall(SYS_capget, &h, d) == 0 && (d[CAP_SYS_ADMIN / 32].effective & (1u << (CAP_SYS_ADMIN % 32)));
}

/* The last `levels` components of the path of an open directory. */
static int path_below(int dir, unsigned levels, char below[VOLUME_NAME_MAX])
{
    char self[64], path[VOLUME_NAME_MAX];
    snprintf(self, sizeof self, "/proc/self/fd/%d", dir);
    const ssize_t n = readlink(self, path, sizeof path - 1);
    if (n < 1 || (size_t)n >= sizeof path - 1)
        return -ENAMETOOLONG;
    path[n] = '\0';
    const char *at = path + n;
    for (unsigned i = 0; i < levels; i++) {
        while (at > path && *--at != '/')
            ;
        if (*at != '/')
            return -ENOENT;
    }
    snprintf(below, VOLUME_NAME_MAX, "%s", levels ? at + 1 : "");
    return 0;
}

int subvolume_top(int dir, int *top, char below[VOLUME_NAME_MAX])
{
    struct stat st, up;
    unsigned levels = 0;
    CLEANUP_CLOSE int at = fcntl(dir, F_DUPFD_CLOEXEC, 3);
    if (!may_remove())
        return -EPERM;
    if (at < 0 || fstat(at, &st) < 0)
        return -errno;
    for (up = st; up.st_ino != TOP_INODE; levels++) {
        CLEANUP_CLOSE int parent = openat(at, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (parent < 0 || fstat(parent, &up) < 0)
            return -errno;
        close(at);
        at = take_fd(&parent);
        if (up.st_dev != st.st_dev) /* a part of it alone is mounted */
            return -EXDEV;
    }
    int rc = path_below(dir, levels, below);
    if (rc == 0)
        *top = take_fd(&at);
    return rc;
}

static void snapshot_name(const char *alias, char ret[ALIAS_LEN + 16])
{
    snprintf(ret, ALIAS_LEN + 16, "%s.group", alias);
}

/* A removal that a power failure undoes would be nobody's. */
static void commit(int fd)
{
    uint64_t transaction = 0;
    if (ioctl(fd, BTRFS_IOC_START_SYNC, &transaction) < 0 || ioctl(fd, BTRFS_IOC_WAIT_SYNC, &transaction) < 0)
        syncfs(fd);
}

int subvolume_snapshot_remove(int hidden, const char *hidden_path, const char *alias, struct err *e)
{
    struct btrfs_ioctl_vol_args args = {.fd = 0};
    char name[ALIAS_LEN + 16];
    struct stat st;
    snapshot_name(alias, name);
    if (fstatat(hidden, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_set(e, ERR_GENERIC, errno, "cannot stat %s/%s", hidden_path, name);
    if (!S_ISDIR(st.st_mode) || st.st_ino != TOP_INODE)
        return err_set(e, ERR_PERMISSION, EPERM, "%s/%s is no snapshot of a subvolume: not removed", hidden_path, name);
    snprintf(args.name, sizeof args.name, "%s", name);
    if (ioctl(hidden, BTRFS_IOC_SNAP_DESTROY, &args) < 0 && errno != ENOENT)
        return err_set(e, ERR_GENERIC, errno, "cannot remove the snapshot of a subvolume %s/%s", hidden_path, name);
    crash_point("subvolume-removed");
    commit(hidden);
    return 0;
}

int subvolume_snapshot(int top, int hidden, const char *hidden_path, const char *alias, int *fd, struct err *e)
{
    struct btrfs_ioctl_vol_args_v2 args = {.fd = top, .flags = BTRFS_SUBVOL_RDONLY};
    char name[ALIAS_LEN + 16];
    snapshot_name(alias, name);
    snprintf(args.name, sizeof args.name, "%s", name);
    if (ioctl(hidden, BTRFS_IOC_SNAP_CREATE_V2, &args) < 0) {
        const int sys = errno;
        err_set(e, sys == ENOSPC || sys == EDQUOT ? ERR_NO_SPACE : ERR_SOURCE, sys,
                "cannot take a snapshot of the subvolume at %s/%s", hidden_path, name);
        return sys == EPERM || sys == EXDEV || sys == EINVAL ? -ENOTSUP : -sys;
    }
    crash_point("subvolume-made");
    *fd = openat(hidden, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *fd < 0 ? err_set(e, ERR_GENERIC, errno, "cannot open %s/%s", hidden_path, name) : 0;
}
