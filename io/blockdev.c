/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/blockdev.h"

#include "base/cleanup.h"
#include "io/mounts.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* Devices may be stacked (partition on md on dm on loop ...); this limits the depth. */
#define STACK_MAX 8

static const char *sysfs_root = "/sys";

void blockdev_sysfs_test(const char *root)
{
    sysfs_root = root;
}

const char *blockdev_sysfs_root(void)
{
    return sysfs_root;
}

bool blockdev_sysfs(dev_t dev, char *out, size_t size)
{
    char link[PATH_MAX], real[PATH_MAX];
    snprintf(link, sizeof link, "%s/dev/block/%u:%u", sysfs_root, major(dev), minor(dev));
    if (!realpath(link, real) || strlen(real) >= size)
        return false;
    memcpy(out, real, strlen(real) + 1);
    return true;
}

bool sysfs_line(const char *dir, const char *name, char *out, size_t size)
{
    char path[PATH_MAX + 64];
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return false;
    CLEANUP_FCLOSE FILE *f = fopen(path, "re");
    if (!f || !fgets(out, (int)size, f))
        return false;
    char *p = out;
    while (isspace((unsigned char)*p))
        p++;
    size_t n = strcspn(p, "\n");
    while (n && isspace((unsigned char)p[n - 1]))
        n--;
    memmove(out, p, n);
    out[n] = '\0';
    return n > 0;
}

bool sysfs_dev(const char *dir, const char *name, dev_t *ret)
{
    char line[64];
    unsigned maj, min;
    if (!sysfs_line(dir, name, line, sizeof line) || sscanf(line, "%u:%u", &maj, &min) != 2)
        return false;
    *ret = makedev(maj, min);
    return true;
}

int blockdev_writable(int fd, const char *path, struct err *e)
{
    int read_only = 0;
    if (ioctl(fd, BLKROGET, &read_only) < 0 || !read_only)
        return 0;
    err_plain(e, ERR_TARGET, EROFS, "restore target %s is a read-only device", path);
    err_hint(e, "restore to another device, or allow writing with `blockdev --setrw %s`", path);
    return -EROFS;
}

uint64_t blockdev_size(int fd)
{
    uint64_t size = 0;
    return ioctl(fd, BLKGETSIZE64, &size) < 0 ? 0 : size;
}

struct mount_query {
    dev_t dev;
    bool rw;
    int id;
    char point[PATH_MAX];
    char type[64];
    dev_t found;
};

static bool mount_of_device(const struct mount_row *m, void *arg)
{
    struct mount_query *q = arg;
    if ((q->rw && !m->rw) || mount_device(m) != q->dev)
        return false;
    snprintf(q->point, sizeof q->point, "%s", m->point);
    return true;
}

static bool mount_of_id(const struct mount_row *m, void *arg)
{
    struct mount_query *q = arg;
    if (m->id != q->id)
        return false;
    snprintf(q->type, sizeof q->type, "%s", m->type);
    q->found = mount_device(m);
    return true;
}

bool blockdev_children(const char *dir, const char *sub, bool (*fn)(dev_t, const char *, int, void *), int depth,
                       void *arg)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, sub);
    CLEANUP_CLOSEDIR DIR *d = opendir(path);
    const struct dirent *de;
    while (d && (de = readdir(d))) {
        char name[PATH_MAX + 512];
        dev_t dev;
        if (de->d_name[0] == '.')
            continue;
        /* Among the subdirectories of a disk only partitions are block devices (an NVMe's "device" is a character
         * device). */
        snprintf(name, sizeof name, "%s/%s/partition", path, de->d_name);
        if (!*sub && access(name, F_OK) != 0)
            continue;
        snprintf(name, sizeof name, "%s/dev", de->d_name);
        if (sysfs_dev(path, name, &dev) && fn(dev, de->d_name, depth, arg))
            return true;
    }
    return false;
}

static bool mounted_above(dev_t dev, const char *name, int depth, void *arg)
{
    (void)name;
    struct mount_query *q = arg;
    q->dev = dev;
    if (mounts_each("/proc/self/mountinfo", mount_of_device, q))
        return true;
    char dir[PATH_MAX];
    if (depth >= STACK_MAX || !blockdev_sysfs(dev, dir, sizeof dir))
        return false;
    return blockdev_children(dir, "", mounted_above, depth + 1, q) ||
           blockdev_children(dir, "holders", mounted_above, depth + 1, q);
}

bool blockdev_mounted(dev_t dev, bool rw)
{
    struct mount_query q = {.rw = rw};
    return mounted_above(dev, "", 0, &q);
}

static bool is_swap(dev_t dev)
{
    const struct stat st = {.st_mode = S_IFBLK, .st_rdev = dev};
    return mounts_is_swap(&st);
}

struct holder_words {
    char *out;
    size_t size;
};

static bool name_holder(dev_t dev, const char *name, int depth, void *arg)
{
    (void)depth;
    struct holder_words *w = arg;
    char dir[PATH_MAX], dm[256];
    if (blockdev_sysfs(dev, dir, sizeof dir) && sysfs_line(dir, "dm/name", dm, sizeof dm))
        snprintf(w->out, w->size, "held by the device-mapper device %s (%s)", dm, name);
    else
        snprintf(w->out, w->size, "held by %s", name);
    return true;
}

bool blockdev_user(dev_t dev, char *out, size_t size)
{
    struct mount_query q = {.rw = false};
    if (mounted_above(dev, "", 0, &q)) {
        snprintf(out, size, q.dev == dev ? "mounted at %s" : "a device stacked on it is mounted at %s", q.point);
        return true;
    }
    if (is_swap(dev)) {
        snprintf(out, size, "used as swap");
        return true;
    }
    char dir[PATH_MAX];
    struct holder_words w = {out, size};
    return blockdev_sysfs(dev, dir, sizeof dir) && blockdev_children(dir, "holders", name_holder, 0, &w);
}

/* Of several members, the slowest medium determines the depth. */
static enum source_media slower_media(enum source_media a, enum source_media b)
{
    static const int rank[] = {
        [MEDIA_UNKNOWN] = 0, [MEDIA_NVME] = 1, [MEDIA_SSD] = 2, [MEDIA_NETWORK] = 3, [MEDIA_HDD] = 4};
    return rank[a] >= rank[b] ? a : b;
}

static enum source_media path_media(const char *path, int depth);

struct media_walk {
    enum source_media media;
    bool any;
};

static enum source_media media_at(dev_t dev, int depth);

static bool add_member(dev_t dev, const char *name, int depth, void *arg)
{
    (void)name;
    struct media_walk *w = arg;
    w->media = slower_media(w->media, media_at(dev, depth));
    w->any = true;
    return false;
}

static enum source_media media_at(dev_t dev, int depth)
{
    char dir[PATH_MAX], line[PATH_MAX];
    if (depth > STACK_MAX || !blockdev_sysfs(dev, dir, sizeof dir))
        return MEDIA_UNKNOWN;
    if (sysfs_line(dir, "partition", line, sizeof line))
        *strrchr(dir, '/') = '\0'; /* attributes are those of the disk */
    const char *slash = strrchr(dir, '/');
    const char *name = slash ? slash + 1 : dir;
    struct media_walk w = {MEDIA_UNKNOWN, false};
    blockdev_children(dir, "slaves", add_member, depth + 1, &w);
    if (w.any)
        return w.media;
    if (strncmp(name, "nvme", 4) == 0) {
        if (sysfs_line(dir, "device/transport", line, sizeof line) && strcmp(line, "pcie") != 0)
            return MEDIA_NETWORK;
        return MEDIA_NVME;
    }
    if (strncmp(name, "rbd", 3) == 0 || strncmp(name, "nbd", 3) == 0 || strncmp(name, "drbd", 4) == 0)
        return MEDIA_NETWORK;
    if (strncmp(name, "pmem", 4) == 0)
        return MEDIA_NVME;
    if (strncmp(name, "loop", 4) == 0)
        return sysfs_line(dir, "loop/backing_file", line, sizeof line) ? path_media(line, depth + 1) : MEDIA_UNKNOWN;
    if (strstr(dir, "/session") && strstr(dir, "/target")) /* .../host3/session1/target3:0:0/...: iSCSI */
        return MEDIA_NETWORK;
    bool rotational = sysfs_line(dir, "queue/rotational", line, sizeof line) && line[0] == '1';
    /* Paravirtual disks report "rotational" regardless of the underlying medium. */
    if (rotational && (strncmp(name, "vd", 2) == 0 || strncmp(name, "xvd", 3) == 0))
        return MEDIA_UNKNOWN;
    return rotational ? MEDIA_HDD : MEDIA_SSD;
}

enum source_media blockdev_media(dev_t dev)
{
    return media_at(dev, 0);
}

static enum source_media fd_media(int fd, int depth)
{
    static const char *const network[] = {"nfs",  "nfs4",  "cifs",           "smb3",       "ceph",
                                          "9p",   "afs",   "fuse.glusterfs", "fuse.sshfs", "virtiofs",
                                          "gfs2", "ocfs2", "lustre"};
    struct statx sx;
    struct mount_query q = {.id = -1};
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &sx) < 0)
        return MEDIA_UNKNOWN;
    dev_t dev = makedev(sx.stx_dev_major, sx.stx_dev_minor);
    if (sx.stx_mask & STATX_MNT_ID) {
        q.id = (int)sx.stx_mnt_id;
        if (mounts_each("/proc/self/mountinfo", mount_of_id, &q)) {
            for (size_t i = 0; i < sizeof network / sizeof network[0]; i++)
                if (strcmp(q.type, network[i]) == 0)
                    return MEDIA_NETWORK;
            dev = q.found;
        }
    }
    return major(dev) ? media_at(dev, depth) : MEDIA_UNKNOWN;
}

static enum source_media path_media(const char *path, int depth)
{
    /* O_PATH: only looks up the name; opening it could block or have side effects. */
    CLEANUP_CLOSE int fd = open(path, O_PATH | O_CLOEXEC);
    return fd < 0 ? MEDIA_UNKNOWN : fd_media(fd, depth);
}

enum source_media file_media(int fd)
{
    return fd_media(fd, 0);
}
