/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * device.c - raw block devices, which have no snapshots
 *
 * What the other drivers do with a native snapshot is done here with the device itself, and recorded so: a pseudo
 * native snapshot with crash_consistent = false, whose handle is the device. No object is created, so nothing can be
 * listed or leak. Restore writes in place. Every call opens the device again: its name may refer to another one by
 * then.
 *
 * Crash points: none of its own; device-target-synced before a restore in place is declared complete.
 */
#include "base/cleanup.h"
#include "base/crash.h"
#include "io/blockdev.h"
#include "io/native/intermediate.h"
#include "io/native/overlay.h"
#include "io/native/path.h"
#include "io/native/pattern.h"
#include "io/source.h"
#include "io/volume-id.h"

#include <blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

_Static_assert(DEVICE_ID_MAX <= VOLUME_ID_MAX, "an id of a device is an id of a volume");

/* ---- volumes ---- */

/* Name of the whole disk of the device: operations on one disk wait for each other. */
static void disk_name(dev_t dev, char *out, size_t size)
{
    char dir[PATH_MAX], part[32];
    *out = '\0';
    if (!blockdev_sysfs(dev, dir, sizeof dir))
        return;
    if (sysfs_line(dir, "partition", part, sizeof part))
        *strrchr(dir, '/') = '\0';
    const char *name = strrchr(dir, '/') + 1;
    size_t n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
    snprintf(out, size, "%.*s", (int)n, name);
}

/* Opens the current device of `name` and describes it. */
static int device_look(const char *name, struct source **src, struct volume *ret, struct err *e)
{
    struct stat st;
    char user[VOLUME_NAME_MAX];
    memset(ret, 0, sizeof *ret);
    *src = NULL;
    if (name[0] != '/' || strlen(name) >= sizeof ret->name || !name_is_text(name))
        return err_set(e, ERR_USAGE, EINVAL, "\"%.512s\" is not the absolute path of a device", name);
    if (path_plain(name, e) < 0)
        return -EINVAL;
    if (stat(name, &st) < 0)
        return err_set(e, errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND : ERR_SOURCE, errno,
                       "cannot find device %s", name);
    if (!S_ISBLK(st.st_mode))
        return err_set(e, ERR_USAGE, ENOTBLK, "%s is not a block device", name);
    int rc = source_open(src, name, e);
    if (rc < 0) {
        if (e && e->cls == ERR_USAGE)
            err_hint(e, "a volume needs a persistent identity: create a file system, or a partition table (GPT) on it");
        return rc;
    }
    const struct source_info *i = source_info(*src);
    snprintf(ret->name, sizeof ret->name, "%s", name);
    device_id_text(i->id, ret->id);
    disk_name(i->rdev, ret->pool, sizeof ret->pool);
    ret->size = i->size;
    ret->allocated = UINT64_MAX;
    ret->sector = i->sector;
    ret->block = true;
    ret->in_use = blockdev_user(i->rdev, user, sizeof user);
    return 0;
}

static int refuse_twin_of(const char *const *match, const struct volume *v, dev_t dev, struct err *e)
{
    struct paths p;
    int rc = pattern_paths(match, &p, NULL);
    CLEANUP_FREE struct volume *other = malloc(sizeof *other);
    for (size_t i = 0; rc == 0 && other && i < p.n; i++) {
        struct source *src = NULL;
        struct stat st;
        if (stat(p.path[i], &st) < 0 || !S_ISBLK(st.st_mode) || st.st_rdev == dev)
            continue;
        if (device_look(p.path[i], &src, other, NULL) == 0 && other->size > 0 && !strcmp(other->id, v->id)) {
            rc = err_plain(e, ERR_SOURCE, ENOTUNIQ, "%s and %s have the same identity (%s): neither is backed up",
                           v->name, other->name, v->id);
            err_hint(e, "give one another UUID (xfs_admin -U generate, tune2fs -U random), or remove it from the "
                        "match of its class");
        }
        source_free(src);
    }
    paths_free(&p);
    return rc < 0 && e && e->cls ? rc : 0;
}

#define PATTERNS_MAX 1024 /* of a class, that are compared */

/* A copy of a disk has its UUID: two devices with one identity would become one source, of whatever classes they are.
 */
static int refuse_twins(const struct driver_class *c, const struct volume *v, dev_t dev, struct err *e)
{
    int rc = refuse_twin_of(c->match, v, dev, e);
    CLEANUP_FREE const char **match = c->peers ? calloc(PATTERNS_MAX + 1, sizeof *match) : NULL;
    size_t n = 0;
    for (size_t i = 0; rc == 0 && match && c->peers[i]; i++) {
        if (c->peers[i][0]) {
            if (n < PATTERNS_MAX)
                match[n++] = c->peers[i];
            continue;
        }
        match[n] = NULL;
        rc = refuse_twin_of(match, v, dev, e);
        n = 0;
    }
    return rc;
}

static int device_resolve(const struct driver_class *c, const char *name, struct volume *ret, struct err *e)
{
    struct source *src;
    struct err twins = ERR_INIT;
    int rc = device_look(name, &src, ret, e);
    const dev_t dev = rc == 0 ? source_info(src)->rdev : 0;
    source_free(src);
    if (rc == 0 && ret->size > 0 && (rc = refuse_twins(c, ret, dev, &twins)) < 0 && e)
        *e = twins;
    return rc;
}

static int device_volumes(const struct driver_class *c, volume_fn *fn, void *arg, struct err *e)
{
    struct paths p;
    int rc = pattern_paths(c->match, &p, e);
    CLEANUP_FREE dev_t *seen = rc == 0 && p.n ? calloc(p.n, sizeof *seen) : NULL;
    size_t known = 0;
    if (rc == 0 && p.n && !seen) {
        paths_free(&p);
        return err_nomem(e);
    }
    for (size_t i = 0; rc == 0 && i < p.n; i++) {
        struct stat st;
        struct volume v;
        struct err why = ERR_INIT;
        bool twice = false;
        if (stat(p.path[i], &st) < 0 || !S_ISBLK(st.st_mode))
            continue;
        for (size_t k = 0; k < known; k++)
            twice |= seen[k] == st.st_rdev;
        if (twice)
            continue;
        seen[known++] = st.st_rdev;
        if (device_resolve(c, p.path[i], &v, &why) < 0)
            log_warning("class \"%s\": ignored: %s", c->name, why.msg);
        else if (v.size > 0) /* an unused loop device, an empty card reader */
            rc = fn(&v, arg);
    }
    paths_free(&p);
    return rc;
}

static int device_abilities(const struct driver_class *c, unsigned *ret, struct err *e)
{
    *ret = 0;
    for (size_t i = 0; c->match && c->match[i]; i++)
        if (c->match[i][0] != '/')
            return err_set(e, ERR_USAGE, EINVAL, "storage class \"%s\": pattern \"%s\" is not an absolute path",
                           c->name, c->match[i]);
    *ret = DRIVER_NATIVE_RO | DRIVER_TARGET;
    if (c->overlay_hook && *c->overlay_hook) {
        if (c->overlay_hook[0] != '/')
            return err_set(e, ERR_USAGE, EINVAL, "storage class \"%s\": overlay hook %s is not an absolute path",
                           c->name, c->overlay_hook);
        *ret |= DRIVER_OVERLAY;
    }
    return 0;
}

/* ---- the pseudo native snapshot ---- */

static int same_volume(const struct volume *now, const struct volume *v, struct err *e)
{
    if (strcmp(now->id, v->id) == 0)
        return 0;
    return err_set(e, ERR_SOURCE, ESTALE, "%s is no longer the device that was looked up (%s, now %s)", v->name, v->id,
                   now->id);
}

/* Refuses devices that are being written to. A device that is free may still be written to by a process that opened
 * it without O_EXCL. */
static int refuse_if_in_use(const struct driver_class *c, const struct source_info *i, struct err *e)
{
    char who[VOLUME_NAME_MAX];
    if (c->accept_inconsistent)
        return 0;
    bool rw = blockdev_mounted(i->rdev, true);
    CLEANUP_CLOSE int fd = open(i->path, O_RDONLY | O_EXCL | O_NONBLOCK | O_CLOEXEC);
    bool held = fd < 0 && errno == EBUSY;
    bool known = blockdev_user(i->rdev, who, sizeof who);
    /* The kernel holds mounted devices, even read-only ones; the latter do not change. */
    if (!rw && (!held || blockdev_mounted(i->rdev, false)))
        return 0;
    err_set(e, ERR_SOURCE, EBUSY, "device %s is in use (%s): without a snapshot its image would be inconsistent",
            i->path, known ? who : "held by another program or the kernel");
    err_hint(e, "unmount it, mount it read-only, or stop its user; or set accept-inconsistent = yes");
    return -EBUSY;
}

static void native_of_device(const struct volume *v, const struct native_tag *tag, struct native *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->tag = *tag;
    memcpy(ret->tag.volume_id, v->id, sizeof ret->tag.volume_id);
    memcpy(ret->tag.volume_name, v->name, sizeof ret->tag.volume_name);
    memcpy(ret->handle, v->name, sizeof ret->handle);
    ret->size = v->size;
    ret->used = 0;
    ret->crash_consistent = false;
}

static int device_snapshot(const struct driver_class *c, const struct volume *v, const struct native_tag *tag,
                           struct native *ret, struct err *e)
{
    struct source *src;
    struct volume now;
    int rc = alias_valid(tag->alias) ? 0 : err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", tag->alias);
    if (rc < 0)
        return rc;
    rc = device_look(v->name, &src, &now, e);
    if (rc == 0)
        rc = same_volume(&now, v, e);
    if (rc == 0)
        rc = refuse_if_in_use(c, source_info(src), e);
    if (rc == 0)
        native_of_device(&now, tag, ret);
    source_free(src);
    return rc;
}

static int device_find(const struct driver_class *c, const struct volume *v, const char *alias, const char *hint,
                       struct native *ret, struct err *e)
{
    struct native_tag tag = {.created_ns = 0};
    struct volume now;
    (void)hint;
    if (!alias_valid(alias) || !v)
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", alias);
    int rc = device_resolve(c, v->name, &now, e);
    if (rc == 0)
        rc = same_volume(&now, v, e);
    if (rc < 0)
        return rc;
    memcpy(tag.alias, alias, sizeof tag.alias);
    native_of_device(&now, &tag, ret);
    return 0;
}

static int device_list(const struct driver_class *c, native_fn *fn, void *arg, struct err *e)
{
    (void)c, (void)fn, (void)arg, (void)e;
    return 0; /* nothing was created */
}

static int device_remove(const struct driver_class *c, const struct native *n, bool *gone, struct err *e)
{
    (void)c, (void)n, (void)e;
    *gone = false;
    return 0;
}

/* ---- exposing ---- */

static int device_expose(const struct driver_class *c, const struct native *n, const struct driver_class *into,
                         enum expose_mechanism m, bool read_only, const char *alias, struct exposure *ret,
                         struct err *e)
{
    struct volume now, v = {.size = n->size};
    memcpy(v.name, n->handle, sizeof v.name);
    memcpy(v.id, n->tag.volume_id, sizeof v.id);
    int rc = device_resolve(c, n->handle, &now, e);
    if (rc == 0)
        rc = same_volume(&now, &v, e);
    if (rc < 0)
        return rc;
    if (now.size != n->size)
        return err_set(e, ERR_SOURCE, ESTALE,
                       "size of device %s is %" PRIu64 " bytes, was %" PRIu64 " when it was looked up", n->handle,
                       now.size, n->size);
    if (m == EXPOSE_OVERLAY)
        return overlay_create(c, n, into, read_only, alias, ret, e);
    if (m == EXPOSE_COPY)
        return err_set(e, ERR_USAGE, ENOTSUP, "storage class \"%s\" (driver %s) cannot hold a copy of a device",
                       into->name, into->driver);
    if (m == EXPOSE_CLONE)
        return err_set(e, ERR_USAGE, ENOTSUP, "driver device does not support clones (storage class \"%s\")", c->name);
    if (!read_only)
        return err_set(e, ERR_USAGE, EINVAL, "backups never open device %s for writing", n->handle);
    memset(ret, 0, sizeof *ret);
    ret->mechanism = EXPOSE_NATIVE;
    ret->read_only = true;
    ret->size = n->size;
    memcpy(ret->path, n->handle, sizeof ret->path);
    memcpy(ret->where, n->handle, sizeof ret->where);
    snprintf(ret->klass, sizeof ret->klass, "%s", c->name);
    return 0;
}

static int device_open(const struct driver_class *c, const struct exposure *x, int *fd, struct err *e)
{
    struct stat st;
    uint64_t size = 0;
    (void)c;
    /* A copy lies in a class of files. */
    if (x->mechanism == EXPOSE_COPY || x->mechanism == EXPOSE_CLONE)
        return intermediate_open(x, fd, e);
    bool write = x->mechanism == EXPOSE_OVERLAY && !x->read_only;
    CLEANUP_CLOSE int f = open(x->path, (write ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (f < 0)
        return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_SOURCE, errno, "cannot open device %s", x->path);
    if (fstat(f, &st) < 0 || !S_ISBLK(st.st_mode))
        return err_set(e, ERR_SOURCE, 0, "%s is not a block device", x->path);
    if (ioctl(f, BLKGETSIZE64, &size) < 0 || size != x->size)
        return err_set(e, ERR_SOURCE, 0, "size of device %s is %" PRIu64 " bytes, was %" PRIu64 " when it was exposed",
                       x->path, size, x->size);
    *fd = take_fd(&f);
    return 0;
}

/* ---- restore ---- */

/* What libblkid recognises on the device: "ext4", "LVM2_member", "gpt"; false if nothing. */
static bool probe_contents(int fd, char *out, size_t size)
{
    blkid_probe pr = blkid_new_probe();
    const char *v;
    bool found = false;
    if (pr && blkid_probe_set_device(pr, fd, 0, 0) == 0) {
        blkid_probe_enable_superblocks(pr, 1);
        blkid_probe_set_superblocks_flags(pr, BLKID_SUBLKS_TYPE);
        blkid_probe_enable_partitions(pr, 1);
        int rc = blkid_do_safeprobe(pr);
        found = rc == 0 || rc == -2; /* -2: several things at once */
        if (found && (blkid_probe_lookup_value(pr, "TYPE", &v, NULL) == 0 ||
                      blkid_probe_lookup_value(pr, "PTTYPE", &v, NULL) == 0))
            snprintf(out, size, "%s", v);
        else
            snprintf(out, size, "something");
    }
    blkid_free_probe(pr);
    return found;
}

static int device_target(const struct driver_class *c, const char *name, uint64_t size, const char *alias,
                         enum target_use use, struct restore_target *ret, struct err *e)
{
    struct stat st;
    uint64_t have = 0;
    char type[64];
    (void)c, (void)alias;
    memset(ret, 0, sizeof *ret);
    if (name[0] != '/' || strlen(name) >= sizeof ret->final || !name_is_text(name))
        return err_set(e, ERR_USAGE, EINVAL, "\"%.512s\" is not the absolute path of a device", name);
    if (path_plain(name, e) < 0)
        return -EINVAL;
    if (stat(name, &st) < 0)
        return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_TARGET, errno,
                       "no restore target %s: driver device restores to existing devices only", name);
    if (!S_ISBLK(st.st_mode))
        return err_set(e, ERR_TARGET, ENOTBLK, "restore target %s is not a block device", name);
    CLEANUP_CLOSE int fd = -1;
    int rc = driver_target_open(name, &fd, e);
    if (rc < 0)
        return rc;
    if (ioctl(fd, BLKGETSIZE64, &have) < 0 || have < size) {
        err_set(e, ERR_TARGET, 0, "restore target %s is too small: it has %" PRIu64 " bytes, the image has %" PRIu64,
                name, have, size);
        err_hint(e, "restore to a device of at least that size, or to a file");
        return -ENOSPC;
    }
    if (use == TARGET_NEW && probe_contents(fd, type, sizeof type)) {
        err_plain(e, ERR_TARGET, EEXIST, "restore target %s is not empty: %s found", name, type);
        err_hint(e, "use another device, or allow it to be overwritten; wipefs(8) clears it");
        return -EEXIST;
    }
    snprintf(ret->path, sizeof ret->path, "%s", name);
    snprintf(ret->final, sizeof ret->final, "%s", name);
    ret->size = size;
    return 0;
}

static int device_target_commit(const struct driver_class *c, const struct restore_target *t, struct err *e)
{
    (void)c;
    CLEANUP_CLOSE int fd = open(t->final, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_TARGET, errno, "cannot open restore target %s",
                       t->final);
    if (fsync(fd) < 0)
        return err_set(e, ERR_TARGET, errno, "cannot sync restore target %s", t->final);
    crash_point("device-target-synced");
    /* The image may contain a partition table. Refused if partitions are in use; the kernel keeps the old one. */
    ioctl(fd, BLKRRPART);
    return 0;
}

static int device_target_abort(const struct driver_class *c, const struct restore_target *t, struct err *e)
{
    (void)c, (void)t, (void)e;
    return 0; /* whether anything was written to it is known to whoever started the mover */
}

const struct driver driver_device = {
    .name = "device",
    .text = "raw block devices, read without a snapshot: images are not crash-consistent if anything writes",
    .abilities = device_abilities,
    .volumes = device_volumes,
    .resolve = device_resolve,
    .snapshot = device_snapshot,
    .find = device_find,
    .list = device_list,
    .remove = device_remove,
    .expose = device_expose,
    .unexpose = exposure_undo,
    .exposures = overlay_each,
    .open = device_open,
    .target = device_target,
    .target_commit = device_target_commit,
    .target_abort = device_target_abort,
};
