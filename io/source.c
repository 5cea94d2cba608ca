/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/source.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "io/blockdev.h"
#include "io/changes.h"
#include "io/nbd-link.h"

#include <blkid.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

struct source {
    struct source_info info;
    int fd;                          /* -1: an NBD export */
    struct nbd_link *nbd;            /* NULL: a descriptor */
    const struct changes *allocated; /* NULL: not known */
};

/*
 * Appends `s` to the id, encoded as part of a repository path so that different strings remain different: bytes that
 * are not allowed are written as \xHH, as in udev. `component`: slashes are not allowed, either.
 */
static bool id_append(char *id, size_t size, const char *s, bool component)
{
    size_t n = strlen(id);
    bool dots = component && (strcmp(s, ".") == 0 || strcmp(s, "..") == 0);
    while (*s) {
        unsigned char c = (unsigned char)*s;
        size_t seq = 1;
        bool plain = c > 0x1f && c < 0x7f && c != '\\' && !(component && (c == '/' || c == ' ')) && !dots;
        if (c >= 0xc2 && c < 0xf5) { /* well-formed UTF-8 other than C1 controls (U+0080 to U+009F) is kept */
            size_t want = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
            while (seq < want && ((unsigned char)s[seq] & 0xc0) == 0x80)
                seq++;
            unsigned char d = (unsigned char)s[1];
            plain = seq == want && !(c == 0xc2 && d < 0xa0) && !(c == 0xe0 && d < 0xa0) && !(c == 0xed && d > 0x9f) &&
                    !(c == 0xf0 && d < 0x90) && !(c == 0xf4 && d > 0x8f);
            if (!plain)
                seq = 1;
        }
        if (n + 5 > size)
            return false;
        if (plain) {
            memcpy(id + n, s, seq);
            n += seq;
        } else {
            n += (size_t)snprintf(id + n, size - n, "\\x%02x", c);
        }
        s += seq;
    }
    id[n] = '\0';
    return true;
}

static bool id_set(struct source_info *i, const char *kind, const char *prefix, const char *s, const char *sub)
{
    if (!s || !*s)
        return false;
    i->id[0] = '\0';
    if (!id_append(i->id, sizeof i->id, prefix, false) || !id_append(i->id, sizeof i->id, s, true))
        return false;
    if (sub && *sub && (!id_append(i->id, sizeof i->id, "/", false) || !id_append(i->id, sizeof i->id, sub, true)))
        return false;
    snprintf(i->id_kind, sizeof i->id_kind, "%s", kind);
    return true;
}

/* Results of libblkid for the device and for the partition table that contains it. */
struct probed {
    char uuid[256], uuid_sub[256], part_uuid[256], table_uuid[256];
};

static void blkid_value(blkid_probe pr, const char *name, char *out, size_t size)
{
    const char *v;
    size_t n;
    if (blkid_probe_lookup_value(pr, name, &v, &n) == 0)
        snprintf(out, size, "%.*s", (int)n, v);
}

static void blkid_probe_fd(int fd, struct probed *p)
{
    blkid_probe pr = blkid_new_probe();
    if (!pr)
        return;
    if (blkid_probe_set_device(pr, fd, 0, 0) == 0) {
        blkid_probe_enable_superblocks(pr, 1);
        blkid_probe_set_superblocks_flags(pr, BLKID_SUBLKS_UUID | BLKID_SUBLKS_TYPE);
        blkid_probe_enable_partitions(pr, 1);
        blkid_probe_set_partitions_flags(pr, BLKID_PARTS_ENTRY_DETAILS);
        /* Safe probing: an ambiguous result, for example after mkfs over another signature, counts as none. */
        if (blkid_do_safeprobe(pr) == 0) {
            blkid_value(pr, "UUID", p->uuid, sizeof p->uuid);
            blkid_value(pr, "UUID_SUB", p->uuid_sub, sizeof p->uuid_sub);
            blkid_value(pr, "PART_ENTRY_UUID", p->part_uuid, sizeof p->part_uuid);
            blkid_value(pr, "PTUUID", p->table_uuid, sizeof p->table_uuid);
        }
    }
    blkid_free_probe(pr);
}

/* A property of the device in udev's database: lines "E:NAME=VALUE". */
static bool udev_value(dev_t dev, const char *name, char *out, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/run/udev/data/b%u:%u", major(dev), minor(dev));
    CLEANUP_FCLOSE FILE *f = fopen(path, "re");
    CLEANUP_FREE char *line = NULL;
    size_t cap = 0, n = strlen(name);
    while (f && getline(&line, &cap, f) >= 0) {
        if (strncmp(line, "E:", 2) != 0 || strncmp(line + 2, name, n) != 0 || line[2 + n] != '=')
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(out, size, "%s", line + 3 + n);
        return *out != '\0';
    }
    return false;
}

/* Persistent names, in order of preference (source.h). The superblock is probed before udev is queried: udev's database
 * may be older than the file system, or absent. */
static bool device_id(struct source_info *i, int fd)
{
    struct probed p = {"", "", "", ""};
    char dir[PATH_MAX], v[PATH_MAX], off[64];
    dev_t dev = i->rdev;
    blkid_probe_fd(fd, &p);
    if (!p.uuid[0] && udev_value(dev, "ID_FS_UUID", p.uuid, sizeof p.uuid))
        udev_value(dev, "ID_FS_UUID_SUB", p.uuid_sub, sizeof p.uuid_sub);
    /* Members of one btrfs, RAID or pool share the UUID and differ in the second one. */
    if (id_set(i, "fs-uuid", "/fs-uuid/", p.uuid, p.uuid_sub))
        return true;
    if (!blockdev_sysfs(dev, dir, sizeof dir))
        return false;
    if (sysfs_line(dir, "dm/uuid", v, sizeof v))
        return id_set(i, "dm-uuid", "/dm-uuid/", v, NULL);
    if (sysfs_line(dir, "partition", v, sizeof v)) {
        if (!p.part_uuid[0])
            udev_value(dev, "ID_PART_ENTRY_UUID", p.part_uuid, sizeof p.part_uuid);
        return id_set(i, "partuuid", "/partuuid/", p.part_uuid, NULL);
    }
    if (sysfs_line(dir, "loop/backing_file", v, sizeof v)) {
        struct stat st;
        if (v[0] != '/' || stat(v, &st) < 0) /* the line may end in " (deleted)" */
            return false;
        i->id[0] = '\0';
        if (!id_append(i->id, sizeof i->id, "/loop", false) || !id_append(i->id, sizeof i->id, v, false))
            return false;
        if (sysfs_line(dir, "loop/offset", off, sizeof off) && strcmp(off, "0") != 0 &&
            (!id_append(i->id, sizeof i->id, "@", false) || !id_append(i->id, sizeof i->id, off, true)))
            return false;
        snprintf(i->id_kind, sizeof i->id_kind, "loop");
        return true;
    }
    if (sysfs_line(dir, "wwid", v, sizeof v) || sysfs_line(dir, "device/wwid", v, sizeof v))
        return id_set(i, "wwid", "/wwid/", v, NULL);
    if (sysfs_line(dir, "device/serial", v, sizeof v) || sysfs_line(dir, "serial", v, sizeof v) ||
        udev_value(dev, "ID_SERIAL", v, sizeof v))
        return id_set(i, "serial", "/serial/", v, NULL);
    return id_set(i, "ptuuid", "/ptuuid/", p.table_uuid, NULL);
}

static bool file_id(struct source_info *i, int fd, nlink_t links)
{
    char link[64], real[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, real, sizeof real - 1);
    if (n <= 0 || real[0] != '/' || links == 0) /* a deleted file and a memfd have no path */
        return false;
    real[n] = '\0';
    i->id[0] = '\0';
    snprintf(i->id_kind, sizeof i->id_kind, "file");
    return id_append(i->id, sizeof i->id, real, false);
}

static unsigned default_depth(enum source_media m)
{
    switch (m) {
    case MEDIA_HDD:
        return 2; /* reads are sequential; a higher depth causes seeks */
    case MEDIA_SSD:
        return 4;
    case MEDIA_NVME:
        return 12;
    case MEDIA_NETWORK:
        return 16; /* to hide latency */
    case MEDIA_UNKNOWN:
        break;
    }
    return 8;
}

/* Alignment of O_DIRECT for a file: from the kernel since 6.1 (STATX_DIOALIGN), before that by a test read. */
static uint32_t file_sector(int fd)
{
#ifdef STATX_DIOALIGN
    struct statx sx;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) == 0 && (sx.stx_mask & STATX_DIOALIGN)) {
        uint32_t a = sx.stx_dio_offset_align;
        if (a >= 512 && a <= 65536 && (a & (a - 1)) == 0)
            return a;
    }
#endif
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    CLEANUP_CLOSE int d = open(link, O_RDONLY | O_DIRECT | O_CLOEXEC);
    CLEANUP_FREE void *buf = NULL;
    if (d < 0 || posix_memalign(&buf, 4096, 4096) != 0)
        return 512;
    return pread(d, buf, 512, 512) < 0 && errno == EINVAL ? 4096 : 512;
}

static int64_t mtime_of(const struct stat *st)
{
    return timespec_ns(st->st_mtim);
}

static int describe_device(struct source *s, const struct stat *st, struct err *e)
{
    struct source_info *i = &s->info;
    i->is_block = true;
    i->rdev = st->st_rdev;
    if (ioctl(s->fd, BLKGETSIZE64, &i->size) < 0)
        return err_set(e, ERR_SOURCE, errno, "cannot determine the size of device %s", i->path);
    int logical = 0;
    unsigned physical = 0;
    if (ioctl(s->fd, BLKSSZGET, &logical) < 0 || logical < 512 || (logical & (logical - 1)) != 0)
        logical = 512;
    i->sector = (uint32_t)logical;
    if (ioctl(s->fd, BLKPBSZGET, &physical) == 0)
        i->physical = physical;
    i->mounted_rw = blockdev_mounted(st->st_rdev, true);
    i->media = blockdev_media(st->st_rdev);
    return 0;
}

static int source_setup(struct source **ret, struct source *s, const char *id, struct err *e)
{
    struct source_info *i = &s->info;
    struct stat st;
    int rc = 0;
    if (fstat(s->fd, &st) < 0)
        return err_set(e, ERR_SOURCE, errno, "cannot stat %s", i->path);
    if (S_ISBLK(st.st_mode)) {
        rc = describe_device(s, &st, e);
    } else if (S_ISREG(st.st_mode)) {
        if (st.st_size < 0)
            return err_set(e, ERR_SOURCE, 0, "cannot determine the size of %s", i->path);
        i->size = (uint64_t)st.st_size;
        i->sector = file_sector(s->fd);
        i->mtime_ns = mtime_of(&st);
        i->media = file_media(s->fd);
    } else {
        return err_set(e, ERR_SOURCE, 0, "%s is neither a block device nor a regular file%s", i->path,
                       S_ISDIR(st.st_mode) ? " (it is a directory)" : "");
    }
    if (rc < 0)
        return rc;
    i->depth = default_depth(i->media);
    if (id) {
        snprintf(i->id, sizeof i->id, "%s", id);
        snprintf(i->id_kind, sizeof i->id_kind, "given");
    } else if (i->is_block ? !device_id(i, s->fd) : !file_id(i, s->fd, st.st_nlink)) {
        err_set(e, ERR_USAGE, 0, "%s has no persistent name: no file system UUID, serial number or similar was found",
                i->path);
        err_hint(e, "set the source with --as USER@HOST:/PATH");
        return -EINVAL;
    }
    *ret = s;
    return 0;
}

/* ---- NBD ---- */

int source_nbd_id(const struct nbd_uri *u, char *id, size_t size)
{
    char host[sizeof u->host + sizeof u->port];
    snprintf(host, sizeof host, "%s:%s", u->host, u->port);
    snprintf(id, size, "%s", u->socket[0] ? "/nbd-unix" : "/nbd/");
    const bool fits = (u->socket[0] ? id_append(id, size, u->socket, false) : id_append(id, size, host, true)) &&
                      id_append(id, size, "/", false) && (!u->export[0] || id_append(id, size, u->export, true));
    return fits ? 0 : -ENAMETOOLONG;
}

/* Takes the connected socket. */
static int nbd_setup(struct source **ret, int fd, const struct nbd_uri *u, const char *id, struct err *e)
{
    struct source *s = calloc(1, sizeof *s);
    if (!s) {
        close(fd);
        return err_nomem(e);
    }
    struct source_info *i = &s->info;
    s->fd = -1;
    int rc = nbd_link_open(&s->nbd, fd, u, NULL, e);
    if (rc < 0) {
        free(s);
        return rc;
    }
    const struct nbd_facts *f = nbd_link_facts(s->nbd);
    nbd_uri_text(u, i->path);
    i->size = f->size;
    i->sector = f->min_block > 512 ? f->min_block : 512;
    i->is_block = i->is_nbd = true;
    i->media = MEDIA_NETWORK;
    i->depth = u->socket[0] ? 8 : default_depth(MEDIA_NETWORK); /* the latency of a Unix socket is that of the disk */
    if (id) {
        snprintf(i->id, sizeof i->id, "%s", id);
        snprintf(i->id_kind, sizeof i->id_kind, "given");
    } else if (source_nbd_id(u, i->id, sizeof i->id) < 0) {
        source_free(s);
        return err_set(e, ERR_USAGE, ENAMETOOLONG, "the address of the NBD export is too long for an id");
    } else {
        snprintf(i->id_kind, sizeof i->id_kind, "nbd");
    }
    *ret = s;
    return 0;
}

static int nbd_open(struct source **ret, const char *path, struct err *e)
{
    struct nbd_uri u;
    int fd = -1, rc = nbd_uri_parse(&u, path, e);
    if (rc == 0)
        rc = nbd_dial(&u, &fd, NULL, e);
    return rc < 0 ? rc : nbd_setup(ret, fd, &u, NULL, e);
}

static int nbd_from_socket(struct source **ret, int fd, const char *name, const char *id, struct err *e)
{
    struct nbd_uri u;
    int rc = nbd_uri_parse(&u, name, e);
    if (rc == 0)
        return nbd_setup(ret, fd, &u, id, e);
    close(fd);
    return rc;
}

static int64_t nbd_pread_at(void *arg, void *buf, size_t len, uint64_t pos)
{
    struct source *s = arg;
    return nbd_link_pread(s->nbd, buf, len, pos);
}

/* A server whose volume has become smaller than its export refuses what lies behind the new end, as if the medium were
 * bad there. A bad medium has an end that can be read, except in the rarest case. */
static int nbd_probe(struct source *s, source_pread_fn *read_at, void *arg, struct err *e)
{
    const struct source_info *i = &s->info;
    CLEANUP_FREE void *buf = NULL;
    const uint64_t unit = i->sector > 4096 ? i->sector : 4096, len = i->size < unit ? i->size : unit;
    const uint64_t at = i->size ? (i->size - 1) / unit * unit : 0;
    if (posix_memalign(&buf, 4096, unit) != 0)
        return err_nomem(e);
    const int64_t n = i->size ? read_at(arg, buf, (size_t)(i->size - at < len ? i->size - at : len), at) : 0;
    int rc = nbd_link_check(s->nbd, e);
    if (rc < 0 || n >= 0)
        return rc;
    err_set(e, ERR_SOURCE, (int)-n, "the last bytes of NBD export %s cannot be read", i->path);
    return err_hint(e, "if the volume behind it has become smaller, export it again; bad-reads = map does not replace "
                       "the end of an export by zeros");
}

static int open_error(const char *path, int sys, struct err *e)
{
    switch (sys) {
    case ENOENT:
    case ENOTDIR:
        return err_set(e, ERR_NOT_FOUND, sys, "cannot open source %s", path);
    case EACCES:
    case EPERM:
        return err_set(e, ERR_PERMISSION, sys, "cannot open source %s for reading", path);
    default:
        return err_set(e, ERR_SOURCE, sys, "cannot open source %s for reading", path);
    }
}

int source_from_fd(struct source **ret, int fd, const char *name, const char *id, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode))
        return nbd_from_socket(ret, fd, name, id, e);
    struct source *s = calloc(1, sizeof *s);
    if (!s) {
        close(fd);
        return err_nomem(e);
    }
    s->fd = fd;
    snprintf(s->info.path, sizeof s->info.path, "%s", name);
    int rc = source_setup(ret, s, id, e);
    if (rc < 0)
        source_free(s);
    return rc;
}

int source_open(struct source **ret, const char *path, struct err *e)
{
    struct stat st;
    if (nbd_uri_is(path))
        return nbd_open(ret, path, e);
    if (strlen(path) >= sizeof((struct source_info *)0)->path)
        return open_error("(a path of more than 4095 bytes)", ENAMETOOLONG, e);
    /* Only possible sources are opened: opening a FIFO blocks, opening a tape rewinds it. */
    if (stat(path, &st) < 0)
        return open_error(path, errno, e);
    if (!S_ISBLK(st.st_mode) && !S_ISREG(st.st_mode))
        return err_set(e, ERR_SOURCE, 0, "%s is neither a block device nor a regular file%s", path,
                       S_ISDIR(st.st_mode) ? " (it is a directory)" : "");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return open_error(path, errno, e);
    return source_from_fd(ret, fd, path, NULL, e);
}

void source_free(struct source *s)
{
    if (!s)
        return;
    closep(&s->fd);
    nbd_link_free(s->nbd);
    free(s);
}

const struct source_info *source_info(const struct source *s)
{
    return &s->info;
}

int source_fd(const struct source *s)
{
    return s->fd;
}

void source_set_allocated(struct source *s, const struct changes *c)
{
    s->allocated = c;
}

struct nbd_link *source_nbd(const struct source *s)
{
    return s->nbd;
}

int source_read(struct source *s, uint64_t pos, size_t len, void *buf, const uint8_t **ret, struct err *e)
{
    const uint64_t unit = s->info.sector > 4096 ? s->info.sector : 4096;
    const uint64_t from = pos - pos % unit, to = (pos + len + unit - 1) / unit * unit;
    uint8_t *p = buf;
    uint64_t at = from;
    while (at < pos + len) {
        ssize_t n = s->nbd ? (ssize_t)nbd_link_pread(s->nbd, p + (at - from), (size_t)(to - at), at)
                           : pread(s->fd, p + (at - from), (size_t)(to - at), (off_t)at);
        if (s->nbd && n < 0) {
            int rc = nbd_link_check(s->nbd, e);
            if (rc < 0)
                return rc;
            errno = (int)-n;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(e, ERR_SOURCE, errno, "cannot read %zu bytes at %" PRIu64 " of %s", len, pos, s->info.path);
        if (n == 0)
            return err_set(e, ERR_SOURCE, EIO, "%s ends at %" PRIu64 " instead of %" PRIu64 " bytes", s->info.path, at,
                           s->info.size);
        at += (uint64_t)n;
    }
    *ret = p + (pos - from);
    return 0;
}

/* The end of a truncated file looks like a hole and must not be stored as zeros. */
static int check_size(const struct source *s, uint64_t *now, struct err *e)
{
    const struct source_info *i = &s->info;
    uint64_t size = 0;
    if (i->is_block) {
        if (ioctl(s->fd, BLKGETSIZE64, &size) < 0 || (size == 0 && i->size > 0))
            return err_set(e, ERR_SOURCE, ENODEV, "device %s no longer exists", i->path);
    } else {
        struct stat st;
        if (fstat(s->fd, &st) < 0)
            return err_set(e, ERR_SOURCE, errno, "cannot stat %s", i->path);
        size = (uint64_t)st.st_size;
    }
    if (now)
        *now = size;
    if (size < i->size) {
        err_set(e, ERR_SOURCE, 0,
                "source %s became smaller during the read: its size was %" PRIu64
                " bytes when it was opened and is now %" PRIu64,
                i->path, i->size, size);
        return err_hint(e, "back up a snapshot of the volume, or do not shrink it during a backup");
    }
    return 0;
}

/* Sets the extent at its begin; a range of the list is clipped. */
static void extent_allocated(const struct source *s, struct extent *ret)
{
    struct change x;
    size_t cursor = 0;
    if (!changes_after(s->allocated, &cursor, ret->start, &x)) {
        ret->hole = true;
        return;
    }
    ret->hole = x.start > ret->start;
    const uint64_t end = ret->hole ? x.start : x.start + x.len;
    if (end - ret->start < ret->len)
        ret->len = end - ret->start;
}

int source_extent(struct source *s, uint64_t pos, struct extent *ret, struct err *e)
{
    const struct source_info *i = &s->info;
    if (pos >= i->size)
        return err_set(e, ERR_GENERIC, EINVAL, "%s has no byte %" PRIu64, i->path, pos);
    *ret = (struct extent){pos, i->size - pos, false};
    if (i->is_nbd)
        return nbd_link_extent(s->nbd, pos, &ret->len, &ret->hole, e);
    if (s->allocated)
        extent_allocated(s, ret);
    if (i->is_block || s->allocated)
        return 0;
    off_t data = lseek(s->fd, (off_t)pos, SEEK_DATA);
    int sys = data < 0 ? errno : 0;
    if (data < 0 && sys != ENXIO) {
        if (sys != EINVAL && sys != EOPNOTSUPP && sys != ENOTTY)
            return err_set(e, ERR_SOURCE, sys, "cannot read the extents of %s at byte %" PRIu64, i->path, pos);
        return 0; /* not supported by the file system: all is data */
    }
    uint64_t end = i->size;
    if (data < 0 || (uint64_t)data > pos) {
        ret->hole = true;
        if (data >= 0 && (uint64_t)data < end)
            end = (uint64_t)data;
    } else {
        off_t hole = lseek(s->fd, (off_t)pos, SEEK_HOLE);
        if (hole < 0 && errno != ENXIO)
            return err_set(e, ERR_SOURCE, errno, "cannot read the extents of %s at byte %" PRIu64, i->path, pos);
        if (hole > (off_t)pos && (uint64_t)hole < end)
            end = (uint64_t)hole;
    }
    ret->len = end - pos;
    return ret->hole ? check_size(s, NULL, e) : 0;
}

int source_recheck(struct source *s, bool *grown, bool *changed, struct err *e)
{
    const struct source_info *i = &s->info;
    uint64_t now = i->size;
    struct stat st;
    int rc = i->is_nbd ? nbd_link_check(s->nbd, e) : check_size(s, &now, e);
    if (rc < 0)
        return rc;
    if (grown)
        *grown = now > i->size;
    if (changed)
        *changed = !i->is_block && (fstat(s->fd, &st) < 0 || mtime_of(&st) != i->mtime_ns);
    return 0;
}

/* A COW snapshot of LVM lies on a device whose UUID ends in "-cow". */
static bool is_cow_snapshot(dev_t dev)
{
    char dir[PATH_MAX], slave[PATH_MAX + 32], uuid[256];
    glob_t found;
    bool cow = false;
    if (!blockdev_sysfs(dev, dir, sizeof dir))
        return false;
    snprintf(slave, sizeof slave, "%s/slaves/*", dir);
    if (glob(slave, GLOB_NOSORT, NULL, &found) != 0)
        return false;
    for (size_t i = 0; i < found.gl_pathc && !cow; i++) {
        const size_t n = sysfs_line(found.gl_pathv[i], "dm/uuid", uuid, sizeof uuid) ? strlen(uuid) : 0;
        cow = n > 4 && strncmp(uuid, "LVM-", 4) == 0 && strcmp(uuid + n - 4, "-cow") == 0;
    }
    globfree(&found);
    return cow;
}

int source_probe(struct source *s, source_pread_fn *read_at, void *arg, struct err *e)
{
    const struct source_info *i = &s->info;
    if (i->is_nbd)
        return nbd_probe(s, read_at, arg, e);
    const uint64_t unit = i->sector > 4096 ? i->sector : 4096, last = i->size / unit ? i->size / unit - 1 : 0;
    const uint64_t at[] = {0, last * unit, last / 2 * unit};
    CLEANUP_FREE void *buf = NULL;
    int64_t n = 0;
    if (i->size < unit)
        return 0;
    if (posix_memalign(&buf, unit, unit) != 0)
        return err_nomem(e);
    for (size_t k = 0; k < sizeof at / sizeof *at; k++)
        if ((n = read_at(arg, buf, unit, at[k])) > 0)
            return 0;
    if (i->is_block && is_cow_snapshot(i->rdev)) {
        /* Either way the kernel refuses all reads with one error. Only its log knows the reason. */
        err_set(e, ERR_SOURCE, n ? (int)-n : EIO,
                "the COW snapshot of %s cannot be read any more: it has overflowed, or a disk below it failed",
                i->path);
        return err_hint(e, "if dmesg has \"Invalidating snapshot: Unable to allocate exception\" it overflowed: set a "
                           "larger cow-size in its storage class, or back up while less is written to the volume");
    }
    err_set(e, ERR_SOURCE, n ? (int)-n : EIO,
            "%s cannot be read any more, neither at its begin nor in its middle nor at its end", i->path);
    return err_hint(e, "see dmesg for errors of the device");
}

static int64_t probe_pread(void *arg, void *buf, size_t len, uint64_t pos)
{
    const struct source *s = arg;
    ssize_t n = pread(s->fd, buf, len, (off_t)pos);
    return n < 0 ? -errno : n;
}

int source_readable(struct source *s, struct err *e)
{
    if (s->info.is_nbd)
        return nbd_probe(s, nbd_pread_at, s, e);
    if (!s->info.is_block)
        return 0;
    const int flags = fcntl(s->fd, F_GETFL);
    if (flags < 0 || fcntl(s->fd, F_SETFL, flags | O_DIRECT) < 0)
        return err_set(e, ERR_SOURCE, errno, "cannot check that %s is still readable", s->info.path);
    int rc = source_probe(s, probe_pread, s, e);
    fcntl(s->fd, F_SETFL, flags);
    return rc;
}
