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
#include <unistd.h>

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

/* The devices that the patterns of all classes of devices match, and what identifies them: each is opened once. */
struct identity {
    char *path, *id; /* id NULL: it has none, or cannot be opened */
    dev_t dev;
    bool listed;
};
struct identities {
    struct identity *v;   /* by number of the device */
    struct identity **by; /* those that have one, by id */
    size_t n, n_by;
};

static int by_device(const void *a, const void *b)
{
    const struct identity *x = a, *y = b;
    return x->dev != y->dev ? (x->dev < y->dev ? -1 : 1) : strcmp(x->path, y->path);
}

static int by_id(const void *a, const void *b)
{
    const struct identity *x = *(struct identity *const *)a, *y = *(struct identity *const *)b;
    const int c = strcmp(x->id, y->id);
    return c ? c : strcmp(x->path, y->path);
}

static void identities_free(struct identities *t)
{
    for (size_t i = 0; i < t->n; i++) {
        free(t->v[i].path);
        free(t->v[i].id);
    }
    free(t->v);
    free(t->by);
    memset(t, 0, sizeof *t);
}

/* Takes the names of the devices that are there. */
static int identities_add(struct identities *t, struct paths *p, struct err *e)
{
    struct stat st;
    struct identity *v = p->n ? reallocarray(t->v, t->n + p->n, sizeof *v) : t->v;
    if (p->n && !v)
        return err_nomem(e);
    t->v = v;
    for (size_t i = 0; i < p->n; i++) {
        if (stat(p->path[i], &st) < 0 || !S_ISBLK(st.st_mode))
            continue;
        t->v[t->n++] = (struct identity){.path = p->path[i], .dev = st.st_rdev};
        p->path[i] = NULL;
    }
    return 0;
}

static int identities_add_class(struct identities *t, const char *const *match, struct err *e)
{
    struct paths p;
    if (pattern_paths(match, &p, NULL) < 0)
        return 0; /* told where the class itself is used */
    int rc = identities_add(t, &p, e);
    paths_free(&p);
    return rc;
}

/* A device has several names. */
static void identities_unique(struct identities *t)
{
    size_t k = 0;
    if (t->n)
        qsort(t->v, t->n, sizeof *t->v, by_device);
    for (size_t i = 0; i < t->n; i++) {
        if (k && t->v[k - 1].dev == t->v[i].dev)
            free(t->v[i].path);
        else
            t->v[k++] = t->v[i];
    }
    t->n = k;
}

static int identities_look(struct identities *t, struct err *e)
{
    CLEANUP_FREE struct volume *v = malloc(sizeof *v);
    t->by = calloc(t->n + 1, sizeof(struct identity *));
    if (!v || !t->by)
        return err_nomem(e);
    for (size_t i = 0; i < t->n; i++) {
        struct source *src = NULL;
        const bool seen = device_look(t->v[i].path, &src, v, NULL) == 0 && v->size > 0;
        source_free(src);
        if (!seen)
            continue;
        if (!(t->v[i].id = strdup(v->id)))
            return err_nomem(e);
        t->by[t->n_by++] = &t->v[i];
    }
    qsort(t->by, t->n_by, sizeof *t->by, by_id);
    return 0;
}

#define PATTERNS_MAX 1024 /* of a class, that are compared */

static int identities_of(const struct driver_class *c, struct identities *ret, struct err *e)
{
    CLEANUP_FREE const char **match = c->peers ? calloc(PATTERNS_MAX + 1, sizeof *match) : NULL;
    size_t n = 0;
    memset(ret, 0, sizeof *ret);
    int rc = c->peers && !match ? err_nomem(e) : identities_add_class(ret, c->match, e);
    for (size_t i = 0; rc == 0 && match && c->peers[i]; i++) {
        if (c->peers[i][0]) {
            if (n < PATTERNS_MAX)
                match[n++] = c->peers[i];
            continue;
        }
        match[n] = NULL;
        rc = identities_add_class(ret, match, e);
        n = 0;
    }
    identities_unique(ret);
    if (rc == 0)
        rc = identities_look(ret, e);
    if (rc < 0)
        identities_free(ret);
    return rc;
}

/* A copy of a disk has its UUID: two devices with one identity would become one source, of whatever classes they are.
 */
static int refuse_twins(const struct identities *t, const struct volume *v, dev_t dev, struct err *e)
{
    size_t low = 0, high = t->n_by;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strcmp(t->by[middle]->id, v->id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < t->n_by && strcmp(t->by[low]->id, v->id) == 0; low++) {
        if (t->by[low]->dev == dev)
            continue;
        err_plain(e, ERR_SOURCE, ENOTUNIQ, "%s and %s have the same identity (%s): neither is backed up", v->name,
                  t->by[low]->path, v->id);
        err_hint(e, "give one another UUID (xfs_admin -U generate, tune2fs -U random), or remove it from the "
                    "match of its class");
        return -ENOTUNIQ;
    }
    return 0;
}

static int resolve_among(const struct identities *t, const char *name, struct volume *ret, struct err *e)
{
    struct source *src;
    int rc = device_look(name, &src, ret, e);
    const dev_t dev = rc == 0 ? source_info(src)->rdev : 0;
    source_free(src);
    return rc == 0 && ret->size > 0 ? refuse_twins(t, ret, dev, e) : rc;
}

static int device_resolve(const struct driver_class *c, const char *name, struct volume *ret, struct err *e)
{
    struct identities t;
    int rc = identities_of(c, &t, e);
    if (rc == 0)
        rc = resolve_among(&t, name, ret, e);
    identities_free(&t);
    return rc;
}

/* Whether this is the first of its names. */
static bool identity_list(struct identities *t, dev_t dev)
{
    const struct identity key = {.path = (char *)"", .dev = dev};
    size_t low = 0, high = t->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (by_device(&t->v[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == t->n || t->v[low].dev != dev) /* it came meanwhile */
        return false;
    const bool first = !t->v[low].listed;
    t->v[low].listed = true;
    return first;
}

static int device_volumes(const struct driver_class *c, volume_fn *fn, void *arg, struct err *e)
{
    struct paths p;
    struct identities t = {0};
    int rc = pattern_paths(c->match, &p, e);
    if (rc == 0 && (rc = identities_of(c, &t, e)) < 0)
        paths_free(&p);
    for (size_t i = 0; rc == 0 && i < p.n; i++) {
        struct stat st;
        struct volume v;
        struct err why = ERR_INIT;
        if (stat(p.path[i], &st) < 0 || !S_ISBLK(st.st_mode) || !identity_list(&t, st.st_rdev))
            continue;
        const int bad = resolve_among(&t, p.path[i], &v, &why);
        if (bad == -ENOTUNIQ)
            v.doubt = &why;
        else if (bad < 0)
            log_warning("class \"%s\": ignored: %s", c->name, why.msg);
        if ((bad == 0 && v.size > 0) || v.doubt) /* without: an unused loop device, an empty card reader */
            rc = fn(&v, arg);
    }
    paths_free(&p);
    identities_free(&t);
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

/* What was unmounted or closed a moment ago, or is just being probed, is soon free. */
#define RELEASE_WAIT_MS 2000
#define POLL_MS 50

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
    /* The kernel holds mounted devices, even read-only ones; the latter do not change. */
    for (int waited = 0; !rw && held && !blockdev_mounted(i->rdev, false) && waited < RELEASE_WAIT_MS;
         waited += POLL_MS) {
        usleep(POLL_MS * 1000);
        fd = open(i->path, O_RDONLY | O_EXCL | O_NONBLOCK | O_CLOEXEC);
        held = fd < 0 && errno == EBUSY;
        rw = blockdev_mounted(i->rdev, true);
    }
    bool known = blockdev_user(i->rdev, who, sizeof who);
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
    if (rc >= 0)
        rc = blockdev_writable(fd, name, e);
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

/* They are passed to the hook that makes overlays. */
static bool device_takes_option(const struct driver_class *c, const char *key)
{
    (void)key;
    return c->overlay_hook != NULL;
}

const struct driver driver_device = {
    .name = "device",
    .text = "raw block devices, read without a snapshot: images are not crash-consistent if anything writes",
    .traits = DRIVER_RAW | DRIVER_PEERS,
    .abilities = device_abilities,
    .takes_option = device_takes_option,
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
