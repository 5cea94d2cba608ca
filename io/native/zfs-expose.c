/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * zfs-expose.c - making native snapshots readable: their own device, or a clone
 *
 * A snapshot has a device while the property snapdev of its volume is "visible". That is set for as long as one of its
 * snapshots is exposed, and how it was before is kept in a property beside it, set by the same command. It concerns all
 * snapshots of the volume: with many of them, or where the property may not be set, a read-only clone is made instead.
 *
 * A snapshot that is exposed is held (zfs hold), by which no other tool can destroy it, and what a crash leaves exposed
 * is found: the hold has the alias of the exposure. It is the first to be made and the last to be released. A clone
 * needs no hold, its origin cannot be destroyed.
 *
 * Crash points: zfs-held, zfs-exposed, zfs-hidden, zfs-clone-made, zfs-clone-removed.
 */
#include "io/native/zfs.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

/* Each snapshot of a volume gets a device: more than this are too many for udev. */
#define DEVICES_MAX 50

/* ---- holds ---- */

typedef int hold_fn(const char *snapshot, const char *tag, const struct zfs_hold *h, void *arg);

/* Holds of ours, of this node, on these snapshots. */
static int holds_each(const struct driver_class *c, const char *const *snapshots, size_t n, hold_fn *fn, void *arg,
                      struct err *e)
{
    const char *args[64] = {"holds", "-H"};
    CLEANUP_FREE char *out = NULL;
    size_t k = 2;
    if (n > 60)
        return err_set(e, ERR_GENERIC, E2BIG, "too many snapshots at once");
    for (size_t i = 0; i < n; i++)
        args[k++] = snapshots[i];
    int rc = n ? zfs_look(args, &out, e) : 0;
    if (rc == -ENOENT || !out)
        return rc == -ENOENT ? 0 : rc;
    char *rest = out;
    for (char *line; rc == 0 && (line = strsep(&rest, "\n"));) {
        struct zfs_hold h;
        char *name = strsep(&line, "\t"), *tag = line ? strsep(&line, "\t") : NULL;
        if (name && tag && zfs_hold_read(tag, &h) && strcmp(h.node, c->node) == 0)
            rc = fn(name, tag, &h, arg);
    }
    return rc;
}

struct counting {
    const char *alias;
    size_t all, others;
    char tag[ZFS_NAME_MAX]; /* of this alias */
    char snapshot[ZFS_NAME_MAX];
};

static int count_hold(const char *snapshot, const char *tag, const struct zfs_hold *h, void *arg)
{
    struct counting *x = arg;
    x->all++;
    if (strcmp(h->alias, x->alias) == 0) {
        snprintf(x->tag, sizeof x->tag, "%s", tag);
        snprintf(x->snapshot, sizeof x->snapshot, "%s", snapshot);
    } else {
        x->others++;
    }
    return 0;
}

/* All snapshots of a volume that something holds. */
static int count_holds(const struct driver_class *c, const struct zfs_report *r, struct counting *x, struct err *e)
{
    const char *held[50];
    size_t n = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < r->n; i++) {
        if (r->row[i].snapshot && r->row[i].users)
            held[n++] = r->row[i].name;
        if (n == 50 || (i + 1 == r->n && n)) {
            rc = holds_each(c, held, n, count_hold, x, e);
            n = 0;
        }
    }
    return rc;
}

static int release(const char *tag, const char *snapshot, const char *what, struct err *e)
{
    struct err why = ERR_INIT;
    const char *const args[] = {"release", tag, snapshot, NULL};
    int rc = zfs_change(what, args, &why);
    if (rc < 0 && (rc == -ENOENT || strstr(why.msg, "no such tag")))
        return 0;
    if (rc < 0 && e)
        *e = why;
    return rc;
}

/* ---- the property snapdev ---- */

static int show(const struct zfs_row *volume, const char *what, struct err *e)
{
    char was[64];
    if (strcmp(volume->snapdev, "visible") == 0)
        return 0;
    snprintf(was, sizeof was, ZFS_SNAPDEV "=%s", strcmp(volume->snapdev_from, "local") == 0 ? "hidden" : "inherit");
    const char *const args[] = {"set", "snapdev=visible", was, volume->name, NULL};
    return zfs_change(what, args, e);
}

/* As it was found; what an administrator has set meanwhile stays. */
static int hide(const struct zfs_row *volume, const char *what, struct err *e)
{
    const char *const set[] = {"set", "snapdev=hidden", volume->name, NULL};
    const char *const inherit[] = {"inherit", "snapdev", volume->name, NULL};
    const char *const forget[] = {"inherit", ZFS_SNAPDEV, volume->name, NULL};
    int rc = 0;
    if (!volume->snapdev_was[0])
        return 0;
    if (strcmp(volume->snapdev, "visible") == 0)
        rc = zfs_change(what, strcmp(volume->snapdev_was, "hidden") == 0 ? set : inherit, e);
    crash_point("zfs-hidden");
    return rc == 0 ? zfs_change(what, forget, e) : rc;
}

/* ---- the native snapshot itself ---- */

static int expose_device(const struct driver_class *c, const struct zfs_report *r, const struct zfs_row *row,
                         const char *alias, const char *what, struct exposure *ret, struct err *e)
{
    char dataset[ZFS_NAME_MAX], tag[ZFS_NAME_MAX];
    struct counting x = {.alias = alias};
    int rc = 0, fd = -1;
    zfs_dataset_of(row->name, dataset);
    const struct zfs_row *volume = zfs_find(r, dataset);
    if (!volume)
        return err_plain(e, ERR_SOURCE, ENOENT, "%s: its volume %s is gone", what, dataset);
    if (*alias && row->users)
        rc = holds_each(c, &row->name, 1, count_hold, &x, e);
    if (rc == 0 && *alias && !x.tag[0]) {
        struct zfs_hold h = {.created_ns = now_ns()};
        const char *const args[] = {"hold", tag, row->name, NULL};
        snprintf(h.alias, sizeof h.alias, "%s", alias);
        snprintf(h.node, sizeof h.node, "%s", c->node);
        rc = zfs_hold_write(&h, tag, e);
        if (rc == 0)
            rc = zfs_change(what, args, e);
        crash_point("zfs-held");
    }
    if (rc == 0)
        rc = show(volume, what, e);
    crash_point("zfs-exposed");
    if (rc == 0)
        rc = zfs_open_device(row->name, O_RDONLY, &fd, e);
    if (fd >= 0)
        close(fd);
    if (rc < 0)
        return rc;
    ret->mechanism = EXPOSE_NATIVE;
    ret->read_only = true;
    ret->size = row->size;
    zfs_path(row->name, ret->path);
    snprintf(ret->alias, sizeof ret->alias, "%s", alias);
    snprintf(ret->klass, sizeof ret->klass, "%s", c->name);
    zfs_pool_of(row->name, dataset);
    snprintf(ret->where, sizeof ret->where, "%s", dataset);
    return 0;
}

/* Of the alias, or of no alias (a look at it): visible only as long as somebody exposes one. */
static int unexpose_device(const struct driver_class *c, const char *snapshot, const char *alias, struct err *e)
{
    char dataset[ZFS_NAME_MAX], what[512];
    struct zfs_report r = ZFS_REPORT_INIT;
    struct counting x = {.alias = alias};
    snprintf(what, sizeof what, "cannot hide native snapshot %.300s", snapshot);
    zfs_dataset_of(snapshot, dataset);
    int rc = zfs_report_read(&r, dataset, e);
    if (rc == 0)
        rc = count_holds(c, &r, &x, e);
    const struct zfs_row *volume = rc == 0 ? zfs_find(&r, dataset) : NULL;
    if (rc == 0 && volume && !x.others)
        rc = hide(volume, what, e);
    if (rc == 0 && x.tag[0])
        rc = release(x.tag, x.snapshot, what, e);
    zfs_report_free(&r);
    return rc;
}

struct releasing {
    const char *what;
    struct err *e;
};

static int release_one(const char *snapshot, const char *tag, const struct zfs_hold *h, void *arg)
{
    const struct releasing *x = arg;
    (void)h;
    return release(tag, snapshot, x->what, x->e);
}

int zfs_release_all(const struct driver_class *c, const struct zfs_row *row, struct err *e)
{
    char dataset[ZFS_NAME_MAX], what[512];
    struct zfs_report r = ZFS_REPORT_INIT;
    struct counting here = {.alias = ""}, all = {.alias = ""};
    if (!row->users)
        return 0;
    snprintf(what, sizeof what, "cannot release native snapshot %.300s", row->name);
    struct releasing x = {what, e};
    zfs_dataset_of(row->name, dataset);
    int rc = zfs_report_read(&r, dataset, e);
    if (rc == 0)
        rc = holds_each(c, &row->name, 1, count_hold, &here, e);
    if (rc == 0)
        rc = count_holds(c, &r, &all, e);
    const struct zfs_row *volume = rc == 0 ? zfs_find(&r, dataset) : NULL;
    if (rc == 0 && volume && here.all == all.all)
        rc = hide(volume, what, e);
    if (rc == 0)
        rc = holds_each(c, &row->name, 1, release_one, &x, e);
    zfs_report_free(&r);
    return rc;
}

/* ---- clones ---- */

static void describe_clone(const struct zfs_row *row, const struct zfs_tag *t, struct exposure *ret)
{
    char pool[ZFS_NAME_MAX];
    memset(ret, 0, sizeof *ret);
    ret->mechanism = t->kind == ZFS_INTERMEDIATE ? EXPOSE_CLONE : EXPOSE_COPY;
    ret->read_only = t->read_only;
    ret->size = t->size;
    zfs_path(row->name, ret->path);
    memcpy(ret->handle, ret->path, sizeof ret->handle);
    snprintf(ret->alias, sizeof ret->alias, "%s", t->tag.alias);
    snprintf(ret->klass, sizeof ret->klass, "%s", t->klass);
    zfs_pool_of(row->name, pool);
    snprintf(ret->where, sizeof ret->where, "%s", pool);
}

/* A clone lies beside its volume, or in the target of the class. */
static int clone_name(const struct zfs_row *of, const struct driver_class *into, const char *alias,
                      char ret[2 * ZFS_NAME_MAX], struct err *e)
{
    char dataset[ZFS_NAME_MAX], parent[ZFS_NAME_MAX], pool[ZFS_NAME_MAX], target[ZFS_NAME_MAX];
    int rc = zfs_class_target(into, target, e);
    if (rc < 0)
        return rc;
    zfs_dataset_of(of->name, dataset);
    zfs_parent_of(dataset, parent);
    zfs_pool_of(target, pool);
    const size_t n = strlen(pool);
    const bool same = n && strncmp(of->name, pool, n) == 0 && (of->name[n] == '/' || of->name[n] == '@');
    if (snprintf(ret, 2 * ZFS_NAME_MAX, "%s/" ZFS_PREFIX "%s", same ? target : parent, alias) >= ZFS_NAME_MAX)
        return err_set(e, ERR_USAGE, ENAMETOOLONG, "the name of a clone of %s would be too long", of->name);
    return 0;
}

static int clone_make(const struct zfs_row *of, const struct zfs_tag *from, const struct driver_class *into,
                      const char *name, bool read_only, const char *alias, const char *what, struct err *e)
{
    struct zfs_pool pool;
    CLEANUP_FREE struct zfs_tag *t = calloc(1, sizeof *t);
    CLEANUP_FREE char *value = malloc(ZFS_VALUE_MAX), *option = malloc(ZFS_VALUE_MAX + 64);
    if (!t || !value || !option)
        return err_nomem(e);
    int rc = zfs_pool_read(&pool, of->name, e);
    if (rc == 0)
        rc = zfs_pool_check(&pool, what, e);
    if (rc < 0)
        return rc;
    t->kind = ZFS_INTERMEDIATE;
    t->tag = from->tag;
    snprintf(t->tag.alias, sizeof t->tag.alias, "%s", alias);
    t->tag.created_ns = now_ns();
    t->size = of->size;
    t->read_only = read_only;
    t->pool = pool.guid;
    snprintf(t->node, sizeof t->node, "%s", into->node);
    snprintf(t->klass, sizeof t->klass, "%s", into->name);
    rc = zfs_tag_write(t, value, e);
    if (rc < 0)
        return rc;
    snprintf(option, ZFS_VALUE_MAX + 64, ZFS_OWNER "=%s", value);
    /* volmode=dev: the kernel does not look for partitions in it. */
    const char *const args[] = {
        "clone",          "-o",     option, "-o", read_only ? "readonly=on" : "readonly=off", "-o", "volmode=dev", "-o",
        "snapdev=hidden", of->name, name,   NULL};
    rc = zfs_change(what, args, e);
    crash_point("zfs-clone-made");
    return rc;
}

static int expose_clone(const struct zfs_row *of, const struct zfs_tag *from, const struct driver_class *into,
                        bool read_only, const char *alias, const char *what, struct exposure *ret, struct err *e)
{
    char name[2 * ZFS_NAME_MAX];
    struct zfs_report now = ZFS_REPORT_INIT;
    const struct zfs_row *row = NULL;
    CLEANUP_FREE struct zfs_tag *t = malloc(sizeof *t);
    const double began = mono_s();
    int fd = -1;
    if (!t)
        return err_nomem(e);
    int rc = clone_name(of, into, alias, name, e);
    if (rc == 0)
        rc = zfs_find_ours(into, &now, name, ZFS_INTERMEDIATE, alias, &row, t, e);
    if (rc == -ENOENT) {
        zfs_report_free(&now);
        rc = clone_make(of, from, into, name, read_only, alias, what, e);
        if (rc == 0)
            rc = zfs_find_ours(into, &now, name, ZFS_INTERMEDIATE, alias, &row, t, e);
        if (rc == -ENOENT)
            rc = err_set(e, ERR_GENERIC, ENOENT, "intermediate %s disappeared after its creation", alias);
    }
    if (rc == 0)
        rc = zfs_open_device(row->name, O_RDONLY, &fd, e);
    if (fd >= 0)
        close(fd);
    if (rc == 0) {
        describe_clone(row, t, ret);
        ret->seconds = mono_s() - began;
    }
    zfs_report_free(&now);
    return rc;
}

/* ---- the driver's functions ---- */

/* The inverse of zfs_path(), also of a snapshot. */
static bool dataset_of_path(const char *path, char ret[ZFS_NAME_MAX])
{
    const size_t n = sizeof ZFS_DEV - 1;
    if (strncmp(path, ZFS_DEV, n) != 0 || strlen(path + n) >= ZFS_NAME_MAX)
        return false;
    snprintf(ret, ZFS_NAME_MAX, "%s", path + n);
    for (char *p = ret; *p; p++)
        *p = *p == '+' ? ' ' : *p;
    return true;
}

/* Whether the devices of all snapshots of its volume may be made for this one. */
static bool devices_bearable(const struct zfs_report *r, const struct zfs_row *row)
{
    char dataset[ZFS_NAME_MAX];
    zfs_dataset_of(row->name, dataset);
    const struct zfs_row *volume = zfs_find(r, dataset);
    size_t snapshots = 0;
    for (size_t i = 0; i < r->n; i++)
        snapshots += r->row[i].snapshot;
    return (volume && strcmp(volume->snapdev, "visible") == 0) || snapshots <= DEVICES_MAX;
}

static int expose_native(const struct driver_class *c, const struct zfs_report *r, const struct zfs_row *row,
                         const struct zfs_tag *t, const char *alias, const char *what, struct exposure *ret,
                         struct err *e)
{
    struct err why = ERR_INIT;
    if (!*alias || devices_bearable(r, row)) {
        int rc = expose_device(c, r, row, alias, what, ret, &why);
        if (rc == 0)
            return 0;
        if (e)
            *e = why;
        if (!*alias || why.cls != ERR_PERMISSION)
            return rc;
        log_info("%s; a clone is made instead", why.msg);
        rc = unexpose_device(c, row->name, alias, e);
        if (rc < 0)
            return rc;
    }
    return expose_clone(row, t, c, true, alias, what, ret, e);
}

int zfs_expose(const struct driver_class *c, const struct native *n, const struct driver_class *into,
               enum expose_mechanism m, bool read_only, const char *alias, struct exposure *ret, struct err *e)
{
    char what[512];
    struct zfs_report r = ZFS_REPORT_INIT;
    const struct zfs_row *row = NULL;
    CLEANUP_FREE struct zfs_tag *t = malloc(sizeof *t);
    if (!t)
        return err_nomem(e);
    memset(ret, 0, sizeof *ret);
    if (m != EXPOSE_NATIVE && m != EXPOSE_CLONE)
        return err_set(e, ERR_USAGE, ENOTSUP, "storage class \"%s\": driver %s supports neither overlays nor copies",
                       c->name, c->driver);
    if (m == EXPOSE_NATIVE && !read_only)
        return err_set(e, ERR_USAGE, EINVAL, "native snapshot %s is never made writable", n->handle);
    if ((m == EXPOSE_CLONE || *alias) && !alias_valid(alias))
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", alias);
    snprintf(what, sizeof what, "cannot expose native snapshot %s", n->tag.alias);
    int rc = zfs_find_ours(c, &r, n->handle, ZFS_NATIVE, n->tag.alias, &row, t, e);
    if (rc == -ENOENT)
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "native snapshot %s of %s is no longer on the storage", n->tag.alias,
                       n->tag.volume_name);
    if (rc == 0)
        rc = zfs_native_healthy(row, t, e);
    if (rc == 0)
        rc = m == EXPOSE_NATIVE ? expose_native(c, &r, row, t, alias, what, ret, e)
                                : expose_clone(row, t, into, read_only, alias, what, ret, e);
    zfs_report_free(&r);
    return rc;
}

struct seeking {
    const struct driver_class *c;
    struct counting x;
    struct err *e;
};

static int seek_hold(const struct zfs_row *row, const struct zfs_row *volume, const struct zfs_tag *t, void *arg)
{
    struct seeking *s = arg;
    (void)volume;
    int rc = t->kind == ZFS_NATIVE && row->snapshot && row->users
                 ? holds_each(s->c, &row->name, 1, count_hold, &s->x, s->e)
                 : 0;
    return rc < 0 ? rc : s->x.tag[0] != '\0';
}

int zfs_unexpose(const struct driver_class *into, const struct exposure *x, struct err *e)
{
    char what[512], dataset[ZFS_NAME_MAX];
    struct zfs_report r = ZFS_REPORT_INIT;
    const struct zfs_row *row = NULL;
    CLEANUP_FREE struct zfs_tag *t = malloc(sizeof *t);
    CLEANUP_FREE struct seeking *s = calloc(1, sizeof *s);
    if (!t || !s)
        return err_nomem(e);
    /* Exposed without an alias (a look): what was recorded of it is its device. */
    if (!x->alias[0])
        return dataset_of_path(x->path, dataset) && strchr(dataset, '@') ? unexpose_device(into, dataset, "", e) : 0;
    /* Only its alias may be known, and not of which kind it is. */
    if (!x->handle[0]) {
        *s = (struct seeking){into, {.alias = x->alias}, e};
        int rc = zfs_each(into, seek_hold, s, e);
        if (rc != 0)
            return rc < 0 ? rc : unexpose_device(into, s->x.snapshot, x->alias, e);
    }
    int rc = zfs_find_ours(into, &r, x->handle, ZFS_INTERMEDIATE, x->alias, &row, t, e);
    if (rc == -ENOENT) {
        rc = zfs_target_undo(into, x->alias, e);
        if (rc == 0 && x->handle[0] && zfs_path_split(x->handle, dataset, NULL) == 0)
            zfs_settle(dataset, false);
    } else if (rc == 0) {
        snprintf(what, sizeof what, "cannot remove intermediate %s", row->name);
        rc = zfs_destroy(row, true, what, e);
        crash_point("zfs-clone-removed");
    }
    zfs_report_free(&r);
    return rc;
}

struct exposing {
    const struct driver_class *into;
    const struct zfs_tag *t;
    const struct zfs_row *row;
    struct exposure x;
    exposure_fn *fn;
    void *arg;
    struct err *e;
};

static int list_hold(const char *snapshot, const char *tag, const struct zfs_hold *h, void *arg)
{
    struct exposing *l = arg;
    char pool[ZFS_NAME_MAX];
    CLEANUP_FREE struct native_tag *of = malloc(sizeof *of);
    (void)tag;
    if (!of)
        return -ENOMEM;
    *of = l->t->tag;
    of->created_ns = h->created_ns;
    memset(&l->x, 0, sizeof l->x);
    l->x.mechanism = EXPOSE_NATIVE;
    l->x.read_only = true;
    l->x.size = l->row->size;
    zfs_path(snapshot, l->x.path);
    snprintf(l->x.alias, sizeof l->x.alias, "%s", h->alias);
    snprintf(l->x.klass, sizeof l->x.klass, "%s", l->into->name);
    zfs_pool_of(snapshot, pool);
    snprintf(l->x.where, sizeof l->x.where, "%s", pool);
    return l->fn(&l->x, of, l->arg);
}

/* A replaced volume that only its snapshots keep is not left over. */
static int is_kept(const struct zfs_row *row, bool *ret, struct err *e)
{
    struct zfs_report r = ZFS_REPORT_INIT;
    int rc = zfs_report_read(&r, row->name, e);
    *ret = r.n > 1;
    zfs_report_free(&r);
    return rc;
}

static int list_exposure(const struct zfs_row *row, const struct zfs_row *volume, const struct zfs_tag *t, void *arg)
{
    struct exposing *l = arg;
    bool kept = false;
    int rc = 0;
    (void)volume;
    l->t = t;
    l->row = row;
    if (t->kind == ZFS_NATIVE)
        return row->snapshot && row->users ? holds_each(l->into, &row->name, 1, list_hold, l, l->e) : 0;
    if (!row->snapshot && !zfs_is_ours(row, t))
        return 0;
    if (t->kind == ZFS_REPLACED && (rc = is_kept(row, &kept, l->e)) == 0 && kept)
        return 0;
    if (rc < 0)
        return rc;
    describe_clone(row, t, &l->x);
    if (t->kind != ZFS_INTERMEDIATE) /* of a restore: treated by the sweep like any writable copy */
        snprintf(l->x.klass, sizeof l->x.klass, "%s", l->into->name);
    return l->fn(&l->x, &t->tag, l->arg);
}

int zfs_exposures(const struct driver_class *into, exposure_fn *fn, void *arg, struct err *e)
{
    CLEANUP_FREE struct exposing *l = calloc(1, sizeof *l);
    if (!l)
        return err_nomem(e);
    l->into = into;
    l->fn = fn;
    l->arg = arg;
    l->e = e;
    return zfs_each(into, list_exposure, l, e);
}

/* ---- opening ---- */

int zfs_open(const struct driver_class *c, const struct exposure *x, int *fd, struct err *e)
{
    char dataset[ZFS_NAME_MAX];
    uint64_t size = 0;
    int f = -1;
    (void)c;
    if (!dataset_of_path(x->path, dataset))
        return err_set(e, ERR_GENERIC, EINVAL, "the record of an exposure names no device of ZFS");
    int rc = zfs_open_device(dataset, x->read_only ? O_RDONLY : O_RDWR, &f, e);
    if (rc == 0 && (ioctl(f, BLKGETSIZE64, &size) < 0 || size != x->size))
        rc = err_set(e, ERR_SOURCE, 0, "%s has %" PRIu64 " bytes, %" PRIu64 " were exposed", x->path, size, x->size);
    if (rc < 0 && f >= 0)
        close(f);
    else
        *fd = f;
    return rc;
}
