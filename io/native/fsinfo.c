/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/native/fsinfo.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/btrfs.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define F2FS_MAGIC 0xF2F52010
#define XFS_MAGIC 0x58465342
#define BTRFS_TREE_ROOT_DIR 256 /* object id of the top directory of each subvolume */

/* The kernel's XFS_IOC_FSGEOMETRY_V1 (fs/xfs/libxfs/xfs_fs.h; its header is not in linux-libc-dev). */
struct xfs_geometry {
    uint32_t blocksize, rtextsize, agblocks, agcount, logblocks, sectsize, inodesize, imaxpct;
    uint64_t datablocks, rtblocks, rtextents, logstart;
    uint8_t uuid[16];
    uint32_t sunit, swidth;
    int32_t version;
    uint32_t flags, logsectsize, rtsectsize, dirblocksize;
};
#define XFS_GEOMETRY _IOR('X', 100, struct xfs_geometry)
#define XFS_GEOMETRY_REFLINK (1u << 20)

/* The kernel's XFS_IOC_FREE_EOFBLOCKS. */
struct xfs_eofblocks {
    uint32_t version, flags;
    uint32_t uid, gid, project, pad32;
    uint64_t min_file_size;
    uint64_t pad[12];
};
#define XFS_FREE_EOFBLOCKS _IOR('X', 58, struct xfs_eofblocks)
#define XFS_EOFBLOCKS_VERSION 1
#define XFS_EOFBLOCKS_MINFILESIZE (1u << 4)

static void uuid_text(char *out, size_t size, const uint8_t u[16])
{
    snprintf(out, size, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3],
             u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

static void read_xfs(int fd, struct fs_info *ret)
{
    struct xfs_geometry g;
    memset(&g, 0, sizeof g);
    if (ioctl(fd, XFS_GEOMETRY, &g) < 0)
        return;
    uuid_text(ret->pool, sizeof ret->pool, g.uuid);
    ret->reflink = (g.flags & XFS_GEOMETRY_REFLINK) != 0;
}

static int read_btrfs(int fd, const char *path, struct fs_info *ret, struct err *e)
{
    struct btrfs_ioctl_fs_info_args info;
    struct btrfs_ioctl_ino_lookup_args look;
    memset(&info, 0, sizeof info);
    memset(&look, 0, sizeof look);
    look.objectid = BTRFS_TREE_ROOT_DIR; /* with tree 0: "in which subvolume am I" */
    if (ioctl(fd, BTRFS_IOC_FS_INFO, &info) < 0 || ioctl(fd, BTRFS_IOC_INO_LOOKUP, &look) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot determine the btrfs subvolume of %s", path);
    uuid_text(ret->pool, sizeof ret->pool, info.fsid);
    ret->subvol = look.treeid;
    ret->reflink = true;
    return 0;
}

int fs_info_fd(int fd, const char *path, struct fs_info *ret, struct err *e)
{
    struct statfs s;
    uint8_t id[8];
    memset(ret, 0, sizeof *ret);
    if (fstatfs(fd, &s) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot determine the file system of %s", path);
    memcpy(id, &s.f_fsid, sizeof id);
    snprintf(ret->pool, sizeof ret->pool, "fsid-%02x%02x%02x%02x%02x%02x%02x%02x", id[0], id[1], id[2], id[3], id[4],
             id[5], id[6], id[7]);
    ret->holds_files = true;
    switch ((unsigned long)s.f_type & 0xffffffff) {
    case XFS_MAGIC:
        snprintf(ret->type, sizeof ret->type, "xfs");
        read_xfs(fd, ret);
        return 0;
    case BTRFS_SUPER_MAGIC:
        snprintf(ret->type, sizeof ret->type, "btrfs");
        return read_btrfs(fd, path, ret, e);
    case EXT4_SUPER_MAGIC:
        snprintf(ret->type, sizeof ret->type, "ext4");
        return 0;
    case TMPFS_MAGIC:
        snprintf(ret->type, sizeof ret->type, "tmpfs");
        return 0;
    case F2FS_MAGIC:
        snprintf(ret->type, sizeof ret->type, "f2fs");
        return 0;
    default:
        ret->holds_files = false;
        snprintf(ret->type, sizeof ret->type, "0x%lx", (unsigned long)s.f_type & 0xffffffff);
        return 0;
    }
}

int fs_info_path(const char *path, struct fs_info *ret, struct err *e)
{
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return err_set(e, errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND : ERR_GENERIC, errno, "cannot open %s",
                       path);
    return fs_info_fd(fd, path, ret, e);
}

int file_object_id(int fd, const char *path, char ret[VOLUME_ID_MAX], struct err *e)
{
    struct fs_info fs;
    struct stat st;
    long generation = 0; /* the kernel writes an int */
    char subvol[32] = "";
    int rc = fs_info_fd(fd, path, &fs, e);
    if (rc < 0)
        return rc;
    if (fstat(fd, &st) < 0)
        return err_set(e, ERR_SOURCE, errno, "cannot stat %s", path);
    /* tmpfs has no generations; its inode numbers are not reused. */
    if (ioctl(fd, FS_IOC_GETVERSION, &generation) < 0 && errno != ENOTTY && errno != EOPNOTSUPP)
        return err_set(e, ERR_SOURCE, errno, "cannot determine the generation of %s", path);
    int g;
    memcpy(&g, &generation, sizeof g);
    if (fs.subvol)
        snprintf(subvol, sizeof subvol, "%" PRIx64 "-", fs.subvol);
    snprintf(ret, VOLUME_ID_MAX, "reflink.%s.%s%jx.%x", fs.pool, subvol, (uintmax_t)st.st_ino, (unsigned)g);
    return 0;
}

void match_clone_flags(int src, int dst)
{
    long buf = 0;
    int flags = 0;
    if (ioctl(src, FS_IOC_GETFLAGS, &buf) < 0)
        return;
    memcpy(&flags, &buf, sizeof flags); /* an int, as above */
    int want = flags & FS_NOCOW_FL;
    buf = 0;
    if (ioctl(dst, FS_IOC_GETFLAGS, &buf) < 0)
        return;
    memcpy(&flags, &buf, sizeof flags);
    if ((flags & FS_NOCOW_FL) == want)
        return;
    flags = (flags & ~FS_NOCOW_FL) | want;
    buf = 0;
    memcpy(&buf, &flags, sizeof flags);
    ioctl(dst, FS_IOC_SETFLAGS, &buf); /* on failure, FICLONE reports it */
}

/* A background worker of the kernel frees the space of a removed file (inodegc), which this call waits for. It trims
 * what files have preallocated, too: none is as large as those that are asked for. */
static void settle_xfs(int fd)
{
    struct xfs_eofblocks x = {
        .version = XFS_EOFBLOCKS_VERSION, .flags = XFS_EOFBLOCKS_MINFILESIZE, .min_file_size = INT64_MAX};
    ioctl(fd, XFS_FREE_EOFBLOCKS, &x);
}

/* The space is free with the end of the transaction: within 30 s if nobody asks for it. Nothing else is written out. */
static void settle_btrfs(int fd)
{
    uint64_t transaction = 0;
    if (ioctl(fd, BTRFS_IOC_START_SYNC, &transaction) == 0)
        ioctl(fd, BTRFS_IOC_WAIT_SYNC, &transaction);
}

void fs_free_settle(int fd)
{
    struct statfs s;
    if (fstatfs(fd, &s) < 0)
        return;
    if (s.f_type == XFS_MAGIC)
        settle_xfs(fd);
    else if (s.f_type == BTRFS_SUPER_MAGIC)
        settle_btrfs(fd);
}
