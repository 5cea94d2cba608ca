/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/in-use.h"

#include "base/cleanup.h"
#include "io/blockdev.h"
#include "io/mounts.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/loop.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define STACK_MAX 16       /* depth of devices upon devices */
#define NAMESPACES_MAX 512 /* mount namespaces that are remembered as seen */

/* A block device, or a file. */
struct node {
    bool block;
    dev_t dev; /* of a file: of its file system */
    ino_t ino;
};

struct walk {
    char *out;
    size_t size;
    struct stat target;
    dev_t skip[STACK_MAX]; /* loop devices on the way from the target down */
    unsigned skipped;
    enum use use; /* what was found */
};

static struct node node_of_stat(const struct stat *st)
{
    const bool block = S_ISBLK(st->st_mode);
    return (struct node){block, block ? st->st_rdev : st->st_dev, block ? 0 : st->st_ino};
}

static bool node_equal(struct node a, struct node b)
{
    return a.block == b.block && a.dev == b.dev && (a.block || a.ino == b.ino);
}

static bool is_target(const struct walk *w, struct node n)
{
    return node_equal(n, node_of_stat(&w->target));
}

static void device_name(dev_t dev, char *out, size_t size)
{
    char dir[PATH_MAX], name[256];
    if (!blockdev_sysfs(dev, dir, sizeof dir))
        snprintf(out, size, "device %u:%u", major(dev), minor(dev));
    else if (sysfs_line(dir, "dm/name", name, sizeof name))
        snprintf(out, size, "/dev/mapper/%s", name);
    else
        snprintf(out, size, "/dev/%s", strrchr(dir, '/') + 1);
}

/* "mounted at /srv", or for another node than the target "/dev/sda1, which shares its data, is mounted at /srv". */
static bool found(struct walk *w, struct node n, const char *what)
{
    char name[300] = "";
    w->use = USE_HELD;
    if (!is_target(w, n) && n.block) {
        device_name(n.dev, name, sizeof name);
        snprintf(w->out, w->size, "%s, which shares its data, is %s", name, what);
    } else if (!is_target(w, n)) {
        snprintf(w->out, w->size, "the file below it is %s", what);
    } else {
        snprintf(w->out, w->size, "%s", what);
    }
    return true;
}

/* ---- mounts of all namespaces ---- */

struct mount_search {
    dev_t dev;
    char point[PATH_MAX];
};

static bool mount_matches(const struct mount_row *m, void *arg)
{
    struct mount_search *s = arg;
    if (mount_device(m) != s->dev)
        return false;
    snprintf(s->point, sizeof s->point, "%s", m->point);
    return true;
}

/* Calls fn for each process until it returns true. */
static bool each_process(bool (*fn)(const char *pid, void *), void *arg)
{
    CLEANUP_CLOSEDIR DIR *d = opendir("/proc");
    const struct dirent *de;
    while (d && (de = readdir(d)))
        if (isdigit((unsigned char)de->d_name[0]) && fn(de->d_name, arg))
            return true;
    return false;
}

struct namespace_search {
    struct mount_search m;
    ino_t seen[NAMESPACES_MAX];
    unsigned n;
    char pid[32];
};

static bool mounted_in_namespace_of(const char *pid, void *arg)
{
    struct namespace_search *s = arg;
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%.20s/ns/mnt", pid);
    /* Those of other users' processes cannot be identified, but their mounts can be read. */
    if (stat(path, &st) == 0) {
        for (unsigned i = 0; i < s->n; i++)
            if (s->seen[i] == st.st_ino)
                return false;
        if (s->n < NAMESPACES_MAX)
            s->seen[s->n++] = st.st_ino;
    }
    snprintf(path, sizeof path, "/proc/%.20s/mountinfo", pid);
    if (!mounts_each(path, mount_matches, &s->m))
        return false;
    snprintf(s->pid, sizeof s->pid, "%.20s", pid);
    return true;
}

static bool is_mounted(struct walk *w, dev_t dev)
{
    char text[PATH_MAX + 128];
    CLEANUP_FREE struct namespace_search *s = calloc(1, sizeof *s);
    if (!s)
        return false;
    s->m.dev = dev;
    if (mounts_each("/proc/self/mountinfo", mount_matches, &s->m))
        snprintf(text, sizeof text, "mounted at %s", s->m.point);
    else if (each_process(mounted_in_namespace_of, s))
        snprintf(text, sizeof text, "mounted at %s in the mount namespace of process %s", s->m.point, s->pid);
    else
        return false;
    return found(w, (struct node){true, dev, 0}, text);
}

/* ---- processes ---- */

struct process_search {
    struct node node;
    char text[200];
};

static bool opened_by(const char *pid, void *arg)
{
    struct process_search *s = arg;
    char path[PATH_MAX], comm[64] = "?";
    if (atoi(pid) == (int)getpid())
        return false;
    snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
    CLEANUP_CLOSEDIR DIR *d = opendir(path);
    const struct dirent *de;
    while (d && (de = readdir(d))) {
        struct stat st;
        unsigned flags = 0;
        char line[128];
        if (fstatat(dirfd(d), de->d_name, &st, 0) < 0 || (!S_ISBLK(st.st_mode) && !S_ISREG(st.st_mode)) ||
            !node_equal(node_of_stat(&st), s->node))
            continue;
        snprintf(path, sizeof path, "/proc/%.20s/fdinfo/%.20s", pid, de->d_name);
        CLEANUP_FCLOSE FILE *f = fopen(path, "re");
        while (f && fgets(line, sizeof line, f))
            if (sscanf(line, "flags: %o", &flags) == 1)
                break;
        const bool writes = (flags & O_ACCMODE) != O_RDONLY;
        snprintf(path, sizeof path, "/proc/%.20s", pid);
        sysfs_line(path, "comm", comm, sizeof comm);
        /* udev, multipathd and others read devices at any time; an NBD server that reads serves somebody. */
        if (!f || (flags & O_PATH) || (!writes && s->node.block && !strstr(comm, "nbd")))
            continue;
        snprintf(s->text, sizeof s->text, "open for %s by %s (process %.20s)", writes ? "writing" : "reading", comm,
                 pid);
        return true;
    }
    return false;
}

static bool is_opened(struct walk *w, struct node n)
{
    struct process_search s = {.node = n};
    if (!each_process(opened_by, &s))
        return false;
    found(w, n, s.text);
    w->use = USE_OPENED;
    return true;
}

/* ---- loop devices ---- */

struct loop {
    dev_t dev;
    struct node backing;
    bool known;             /* backing */
    uint64_t offset, limit; /* bytes; limit 0: to the end */
};

static bool loop_read(const char *name, struct loop *ret)
{
    char dir[PATH_MAX], line[PATH_MAX];
    struct loop_info64 info;
    struct stat st;
    snprintf(dir, sizeof dir, "%s/block/%.64s", blockdev_sysfs_root(), name);
    *ret = (struct loop){.known = false};
    if (!sysfs_line(dir, "loop/backing_file", line, sizeof line) || !sysfs_dev(dir, "dev", &ret->dev))
        return false;
    char path[300], number[32];
    ret->offset = sysfs_line(dir, "loop/offset", number, sizeof number) ? strtoull(number, NULL, 10) : 0;
    ret->limit = sysfs_line(dir, "loop/sizelimit", number, sizeof number) ? strtoull(number, NULL, 10) : 0;
    /* The device itself knows its file also where the path has another meaning (namespaces, deleted files). */
    snprintf(path, sizeof path, "/dev/%.64s", name);
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISBLK(st.st_mode) && st.st_rdev == ret->dev &&
        ioctl(fd, LOOP_GET_STATUS64, &info) == 0) {
        /* For a file older kernels return the device of its file system twice. */
        const bool block = info.lo_rdevice && info.lo_rdevice != info.lo_device;
        ret->known = true;
        ret->backing = (struct node){block, block ? info.lo_rdevice : info.lo_device, block ? 0 : info.lo_inode};
    } else if (stat(line, &st) == 0 && (S_ISBLK(st.st_mode) || S_ISREG(st.st_mode))) {
        ret->known = true;
        ret->backing = node_of_stat(&st);
    }
    return true;
}

/* Bytes [offset, offset+limit) of both overlap; limit 0: to the end. */
static bool overlaps(uint64_t a, uint64_t a_len, uint64_t b, uint64_t b_len)
{
    return (!a_len || b < a + a_len) && (!b_len || a < b + b_len);
}

/* A loop device over the node's bytes [offset, offset+limit), other than those that the walk came from. */
static bool is_looped(struct walk *w, struct node n, uint64_t offset, uint64_t limit)
{
    char blocks[PATH_MAX];
    snprintf(blocks, sizeof blocks, "%s/block", blockdev_sysfs_root());
    CLEANUP_CLOSEDIR DIR *d = opendir(blocks);
    const struct dirent *de;
    while (d && (de = readdir(d))) {
        struct loop l;
        char text[300];
        if (strncmp(de->d_name, "loop", 4) != 0 || !loop_read(de->d_name, &l) || !l.known ||
            !node_equal(l.backing, n) || !overlaps(l.offset, l.limit, offset, limit))
            continue;
        bool skip = false;
        for (unsigned i = 0; i < w->skipped; i++)
            skip = skip || w->skip[i] == l.dev;
        if (skip)
            continue;
        snprintf(text, sizeof text, "the backing store of loop device /dev/%.64s", de->d_name);
        return found(w, n, text);
    }
    return false;
}

/* ---- targets of iSCSI, Fibre Channel, NVMe over Fabrics ---- */

static const char *configfs_root = "/sys/kernel/config";

void in_use_configfs_test(const char *root)
{
    configfs_root = root;
}

static bool path_is(const char *path, struct node n)
{
    struct stat st;
    return stat(path, &st) == 0 && (S_ISBLK(st.st_mode) || S_ISREG(st.st_mode)) && node_equal(node_of_stat(&st), n);
}

/* Whether the attribute of a configfs object names the node: "path", or what has "File: path " in it (fileio). */
static bool attribute_names(const char *dir, const char *name, struct node n)
{
    char line[PATH_MAX];
    if (!sysfs_line(dir, name, line, sizeof line))
        return false;
    if (path_is(line, n))
        return true;
    char *file = strstr(line, "File: ");
    if (!file)
        return false;
    file += 6;
    file[strcspn(file, " ")] = '\0';
    return path_is(file, n);
}

struct export_search {
    struct walk *w;
    struct node node;
    const char *const *levels; /* of directories below, ended by NULL */
    const char *what;
    const char *const *attributes;
};

static bool export_below(const struct export_search *s, const char *dir, const char *const *level)
{
    char path[PATH_MAX], line[64], text[PATH_MAX + 64];
    if (!*level) {
        /* A namespace or backstore that is not enabled serves nobody. */
        if (sysfs_line(dir, "enable", line, sizeof line) && line[0] == '0')
            return false;
        for (const char *const *a = s->attributes; *a; a++)
            if (attribute_names(dir, *a, s->node)) {
                snprintf(text, sizeof text, "%s (%s)", s->what, dir);
                return found(s->w, s->node, text);
            }
        return false;
    }
    if (**level) {
        snprintf(path, sizeof path, "%s/%s", dir, *level);
        return export_below(s, path, level + 1);
    }
    CLEANUP_CLOSEDIR DIR *d = opendir(dir);
    const struct dirent *de;
    while (d && (de = readdir(d))) {
        if (de->d_name[0] == '.' || snprintf(path, sizeof path, "%s/%s", dir, de->d_name) >= (int)sizeof path)
            continue;
        if (export_below(s, path, level + 1))
            return true;
    }
    return false;
}

/* "" stands for every name. */
static bool is_exported(struct walk *w, struct node n)
{
    static const char *const lio[] = {"target", "core", "", "", NULL},
                             *const lio_attributes[] = {"udev_path", "info", NULL},
                             *const nvme[] = {"nvmet", "subsystems", "", "namespaces", "", NULL},
                             *const nvme_attributes[] = {"device_path", NULL};
    const struct export_search iscsi = {w, n, lio, "exported by an iSCSI or Fibre Channel target", lio_attributes},
                               nvmet = {w, n, nvme, "exported by an NVMe target", nvme_attributes};
    return export_below(&iscsi, configfs_root, lio) || export_below(&nvmet, configfs_root, nvme);
}

/* ---- the stack ---- */

static bool is_swap(struct walk *w, struct node n)
{
    struct stat st = {.st_mode = n.block ? S_IFBLK : S_IFREG, .st_rdev = n.dev, .st_dev = n.dev, .st_ino = n.ino};
    return mounts_is_swap(&st) && found(w, n, "used as swap");
}

struct holder {
    struct walk *w;
    struct node node;
};

static bool name_holder(dev_t dev, const char *name, int depth, void *arg)
{
    (void)name, (void)depth;
    const struct holder *h = arg;
    char held[300], text[320];
    device_name(dev, held, sizeof held);
    snprintf(text, sizeof text, "part of %s", held);
    return found(h->w, h->node, text);
}

/* Users of the node itself; of a range of it, as far as loop devices go. */
static bool is_used(struct walk *w, struct node n, uint64_t offset, uint64_t limit, bool holders, bool processes)
{
    char dir[PATH_MAX];
    struct holder h = {w, n};
    if ((n.block && is_mounted(w, n.dev)) || is_swap(w, n) || is_exported(w, n))
        return true;
    if (n.block && holders && blockdev_sysfs(n.dev, dir, sizeof dir) &&
        blockdev_children(dir, "holders", name_holder, 0, &h))
        return true;
    return is_looped(w, n, offset, limit) || (processes && is_opened(w, n));
}

static bool partition_used(dev_t dev, const char *name, int depth, void *arg)
{
    (void)name, (void)depth;
    return is_used(arg, (struct node){true, dev, 0}, 0, 0, true, true);
}

static bool used_below(struct walk *w, dev_t dev, int depth);

struct descent {
    struct walk *w;
    dev_t upper; /* that is descended from */
};

/* The tables of logical volumes, and of partitions that device mapper makes, have no bytes in common with their
 * siblings; of others nothing is known but the devices that they stand on. */
static bool is_disjoint(dev_t dev)
{
    char dir[PATH_MAX], uuid[160];
    if (!blockdev_sysfs(dev, dir, sizeof dir) || !sysfs_line(dir, "dm/uuid", uuid, sizeof uuid))
        return false;
    return !strncmp(uuid, "LVM-", 4) || (!strncmp(uuid, "part", 4) && isdigit((unsigned char)uuid[4]));
}

struct sibling_search {
    struct walk *w;
    dev_t upper, lower;
};

static bool sibling_overlaps(dev_t dev, const char *name, int depth, void *arg)
{
    (void)name, (void)depth;
    const struct sibling_search *s = arg;
    char sibling[300], text[340];
    if (dev == s->upper || (is_disjoint(dev) && is_disjoint(s->upper)))
        return false;
    device_name(dev, sibling, sizeof sibling);
    snprintf(text, sizeof text, "also part of %s", sibling);
    return found(s->w, (struct node){true, s->lower, 0}, text);
}

static bool member_used(dev_t dev, const char *name, int depth, void *arg)
{
    (void)name;
    struct descent *s = arg;
    char dir[PATH_MAX];
    struct sibling_search others = {s->w, s->upper, dev};
    /* Logical volumes of one group hold parts of the same member: these are no users of the target. */
    return is_used(s->w, (struct node){true, dev, 0}, 0, 0, false, true) ||
           (blockdev_sysfs(dev, dir, sizeof dir) &&
            blockdev_children(dir, "holders", sibling_overlaps, depth, &others)) ||
           used_below(s->w, dev, depth);
}

/* Other users of what the device stands on. */
static bool used_below(struct walk *w, dev_t dev, int depth)
{
    char dir[PATH_MAX], line[64];
    struct loop l;
    struct descent s = {w, dev};
    if (depth >= STACK_MAX || !blockdev_sysfs(dev, dir, sizeof dir))
        return false;
    if (blockdev_children(dir, "slaves", member_used, depth + 1, &s))
        return true;
    uint64_t start = 0, length = 0;
    if (sysfs_line(dir, "partition", line, sizeof line)) {
        if (sysfs_line(dir, "start", line, sizeof line))
            start = strtoull(line, NULL, 10) * 512;
        if (sysfs_line(dir, "size", line, sizeof line))
            length = strtoull(line, NULL, 10) * 512;
        *strrchr(dir, '/') = '\0';
        if (!sysfs_dev(dir, "dev", &dev))
            return false;
        const struct node disk = {true, dev, 0};
        return is_used(w, disk, start, length, true, true) || used_below(w, dev, depth + 1);
    }
    if (!loop_read(strrchr(dir, '/') + 1, &l) || !l.known || w->skipped == STACK_MAX)
        return false;
    w->skip[w->skipped++] = dev;
    return is_used(w, l.backing, l.offset, l.limit, true, true) ||
           (l.backing.block && used_below(w, l.backing.dev, depth + 1));
}

enum use in_use(const struct stat *st, char *out, size_t size)
{
    struct walk w = {.out = out, .size = size, .target = *st};
    const struct node n = node_of_stat(st);
    char dir[PATH_MAX];
    if (is_used(&w, n, 0, 0, true, true) || !n.block)
        return w.use;
    if (!blockdev_sysfs(n.dev, dir, sizeof dir) || !blockdev_children(dir, "", partition_used, 1, &w))
        used_below(&w, n.dev, 0);
    return w.use;
}

bool in_use_loop(const struct stat *st, char *out, size_t size)
{
    struct walk w = {.out = out, .size = size, .target = *st};
    return is_looped(&w, node_of_stat(st), 0, 0);
}
