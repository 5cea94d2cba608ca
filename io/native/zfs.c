/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * zfs.c - driver zfs (zvols): classes, volumes, pools
 *
 * A volume is called by the path of its device, /dev/zvol/POOL/PATH. Its id is the guid of the zvol, which renaming,
 * exporting the pool and a reboot leave as it is.
 */
#include "io/native/zfs.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A word of `match`: the path of volumes, or what is said of them. */
static int check_word(const struct driver_class *c, const char *word, struct err *e)
{
    const size_t n = sizeof ZFS_DEV - 1;
    if (zfs_is_label(word) || (strncmp(word, ZFS_DEV, n) == 0 && strchr(word + n, '/') && word[n] != '/'))
        return 0;
    err_set(e, ERR_USAGE, EINVAL, "storage class \"%s\": pattern \"%s\" is not of the form " ZFS_DEV "POOL/PATH",
            c->name, word);
    return err_hint(e, "or dataset:POOL/PATH, pool:POOL, and tag:NAME for volumes with the property " ZFS_WORDS
                       "=NAME, tag:MODULE:NAME=VALUE for any user property");
}

static int zfs_abilities(const struct driver_class *c, unsigned *ret, struct err *e)
{
    char target[ZFS_NAME_MAX];
    int rc = 0;
    *ret = 0;
    for (size_t i = 0; rc == 0 && c->match && c->match[i]; i++)
        rc = check_word(c, c->match[i], e);
    if (rc == 0)
        rc = zfs_class_target(c, target, e);
    if (rc == 0 && (rc = zfs_installed(e)) < 0)
        err_wrap(e, "storage class \"%s\"", c->name);
    if (rc == 0)
        *ret = DRIVER_SNAPSHOT | DRIVER_NATIVE_RO | DRIVER_CLONE | DRIVER_TARGET | DRIVER_POOL | DRIVER_ALLOCATED |
               DRIVER_CHANGED;
    return rc;
}

/* ---- volumes ---- */

struct labeling {
    struct volume *v;
    size_t n, room;
    const char *class_name;
    bool warn;
};

static int by_volume_name(const void *a, const void *b)
{
    return strcmp(((const struct volume *)a)->name, ((const struct volume *)b)->name);
}

static int label_one(const char *name, const char *labels, bool full, void *arg)
{
    struct labeling *l = arg;
    struct volume *key = malloc(sizeof *key);
    if (!key)
        return -ENOMEM;
    zfs_path(name, key->name);
    struct volume *v = l->n ? bsearch(key, l->v, l->n, sizeof *l->v, by_volume_name) : NULL;
    free(key);
    if (!v || !*labels)
        return 0;
    const size_t used = strlen(v->labels), room = sizeof v->labels - used;
    if (full || strlen(labels) + 2 > room) {
        if (l->warn)
            log_warning("class \"%s\": %s has more properties than can be compared: the last ones select nothing",
                        l->class_name, v->name);
        if (strlen(labels) + 2 > room)
            return 0;
    }
    snprintf(v->labels + used, room, "%s%s", used ? " " : "", labels);
    return 0;
}

/* User properties of one volume, or of all. Inherited ones count: a property of a file system is one of its volumes. */
static int add_labels(struct labeling *l, const char *dataset, struct err *e)
{
    const char *args[] = {
        "get", "-Hp",   "-t", "volume", "-s", "local,inherited,received", "-o", "name,property,source,value",
        "all", dataset, NULL};
    CLEANUP_FREE char *out = NULL;
    int rc = zfs_look(args, &out, e);
    return rc == -ENOENT ? 0 : rc < 0 ? rc : zfs_labels_parse(out, label_one, l, e);
}

static int zfs_resolve(const struct driver_class *c, const char *name, struct volume *ret, struct err *e)
{
    char dataset[ZFS_NAME_MAX];
    struct zfs_report r = ZFS_REPORT_INIT;
    memset(ret, 0, sizeof *ret);
    int rc = zfs_path_split(name, dataset, e);
    if (rc == 0)
        rc = zfs_report_volume(&r, dataset, e);
    const struct zfs_row *row = rc == 0 ? zfs_find(&r, dataset) : NULL;
    if (rc == 0 && !row)
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "there is no volume of ZFS %s", name);
    if (rc == 0 && row)
        rc = zfs_refuse(row, e);
    if (rc == 0 && row) {
        struct labeling l = {.v = ret, .n = 1, .class_name = c->name};
        zfs_describe(row, ret);
        rc = add_labels(&l, dataset, e);
    }
    zfs_report_free(&r);
    return rc;
}

/* A pattern that names a pool which is not there is a mistake, or the pool is not imported. */
static void warn_of_pools(const struct driver_class *c, const struct zfs_report *r)
{
    char pool[ZFS_NAME_MAX], other[ZFS_NAME_MAX];
    for (size_t i = 0; c->match && c->match[i]; i++) {
        const char *word = c->match[i];
        bool there = false;
        if (strncmp(word, "tag:", 4) == 0)
            continue;
        word += zfs_is_label(word) ? strcspn(word, ":") + 1 : strlen(ZFS_DEV);
        zfs_pool_of(word, pool);
        if (pool[strcspn(pool, "*?[\\")])
            continue;
        for (size_t k = 0; k < r->n && !there; k++) {
            zfs_pool_of(r->row[k].name, other);
            there = strcmp(pool, other) == 0;
        }
        if (!there)
            log_warning("class \"%s\": ZFS pool %s is not imported, or has no volumes", c->name, pool);
    }
}

/* One that has none of its volumes any more was emptied, else it is not imported. */
static int tell_pools(const struct zfs_report *r, volume_fn *fn, void *arg, struct err *e)
{
    char pool[ZFS_NAME_MAX], before[ZFS_NAME_MAX] = "";
    CLEANUP_FREE struct volume *v = calloc(1, sizeof *v);
    int rc = v ? 0 : err_nomem(e);
    for (size_t i = 0; rc == 0 && i < r->n; i++) {
        zfs_pool_of(r->row[i].name, pool);
        if (!strcmp(pool, before))
            continue;
        memcpy(before, pool, sizeof before);
        snprintf(v->pool, sizeof v->pool, "%s", pool);
        rc = fn(v, arg);
    }
    return rc;
}

static int zfs_volumes(const struct driver_class *c, volume_fn *fn, void *arg, struct err *e)
{
    struct zfs_report r = ZFS_REPORT_INIT;
    struct labeling l = {.class_name = c->name, .warn = zfs_selects_labels(c)};
    CLEANUP_FREE struct volume *v = NULL;
    int rc = zfs_report_read(&r, NULL, e);
    if (rc == 0)
        warn_of_pools(c, &r);
    if (rc == 0)
        rc = tell_pools(&r, fn, arg, e);
    if (rc == 0 && r.n && !(v = l.v = calloc(r.n, sizeof *l.v)))
        rc = err_nomem(e);
    for (size_t i = 0; rc == 0 && i < r.n; i++) {
        struct err why = ERR_INIT;
        zfs_path(r.row[i].name, v[l.n].name);
        v[l.n].labels[0] = '\0';
        if (!l.warn && !zfs_is_matched(c, &v[l.n]))
            continue;
        if (zfs_refuse(&r.row[i], &why) == 0) {
            zfs_describe(&r.row[i], &v[l.n++]);
        } else if (why.cls != ERR_USAGE) { /* ours: no news */
            log_warning("class \"%s\": ignored: %s", c->name, why.msg);
        }
    }
    if (rc == 0 && l.n) {
        qsort(v, l.n, sizeof *v, by_volume_name);
        rc = add_labels(&l, NULL, e);
    }
    for (size_t i = 0; rc == 0 && i < l.n; i++)
        rc = fn(&v[i], arg);
    zfs_report_free(&r);
    return rc;
}

/* ---- pools ---- */

struct space {
    uint64_t used, available, quota;
};

static int read_space(const char *dataset, struct space *ret, struct err *e)
{
    const char *args[] = {"get", "-Hp", "-o", "value", "used,available,quota", dataset, NULL};
    CLEANUP_FREE char *out = NULL;
    unsigned long long used, available, quota;
    int rc = zfs_look(args, &out, e);
    if (rc == -ENOENT)
        return err_plain(e, ERR_NOT_FOUND, ENOENT, "there is no dataset %s", dataset);
    if (rc < 0)
        return rc;
    const int n = sscanf(out, "%llu %llu %llu", &used, &available, &quota);
    if (n < 2) /* a volume has no quota: "-" */
        return err_set(e, ERR_GENERIC, EINVAL, "cannot read the space of %s: \"%.100s\"", dataset, out);
    *ret = (struct space){used, available, n == 3 ? quota : 0};
    return 0;
}

/* The worst of the pool and of all quotas above the volume. Reservations of others are no free space. What destroyed
 * snapshots have left is freed later, by the pool's root; nothing more has to be removed for that. */
static int zfs_pool(const struct driver_class *c, const struct volume *v, struct pool_usage *ret, struct err *e)
{
    char dataset[ZFS_NAME_MAX], at[ZFS_NAME_MAX], up[ZFS_NAME_MAX];
    struct zfs_pool pool;
    struct space s = {0, 0, 0};
    memset(ret, 0, sizeof *ret);
    ret->used_ratio = -1;
    int rc = v ? zfs_path_split(v->name, dataset, e) : zfs_class_target(c, dataset, e);
    if (rc == 0 && !dataset[0])
        rc = err_set(e, ERR_NOT_FOUND, ENOENT, "storage class \"%s\" has no target", c->name);
    if (rc == 0)
        rc = zfs_pool_read(&pool, dataset, e);
    if (rc < 0)
        return rc;
    double worst = pool.size ? (double)(pool.allocated - pool.freeing) / (double)pool.size : 0;
    uint64_t free = UINT64_MAX;
    if (v)
        zfs_parent_of(dataset, at);
    else
        snprintf(at, sizeof at, "%s", dataset);
    for (; rc == 0 && at[0]; snprintf(at, sizeof at, "%s", up)) {
        rc = read_space(at, &s, e);
        zfs_parent_of(at, up);
        free = rc == 0 && s.available < free ? s.available : free;
        const uint64_t all = s.quota ? s.quota : s.used + s.available;
        const uint64_t leaving = !up[0] && pool.freeing < s.used ? pool.freeing : 0;
        const double ratio = (s.quota || !up[0]) && all ? (double)(s.used - leaving) / (double)all : 0;
        worst = ratio > worst ? ratio : worst;
    }
    if (rc < 0)
        return rc;
    snprintf(ret->name, sizeof ret->name, "%s", pool.name);
    ret->size = s.used + s.available; /* of the whole pool */
    ret->free = free < ret->size ? free : ret->size;
    ret->used_ratio = worst < 1 ? worst : 1;
    return 0;
}

static bool zfs_same_pool(const struct driver_class *c, const struct volume *v, const struct driver_class *into)
{
    char target[ZFS_NAME_MAX], pool[ZFS_NAME_MAX], dataset[ZFS_NAME_MAX], own[ZFS_NAME_MAX];
    (void)c;
    if (zfs_class_target(into, target, NULL) < 0 || !target[0] || zfs_path_split(v->name, dataset, NULL) < 0)
        return false;
    zfs_pool_of(target, pool);
    zfs_pool_of(dataset, own);
    return strcmp(pool, own) == 0;
}

const struct driver driver_zfs = {
    .name = ZFS_DRIVER,
    .text = "volumes of ZFS (zvols); a native snapshot is a snapshot of ZFS",
    .traits = DRIVER_BOOKMARKS,
    .abilities = zfs_abilities,
    .volumes = zfs_volumes,
    .resolve = zfs_resolve,
    .snapshot = zfs_snapshot,
    .group_domain = zfs_group_domain,
    .group = zfs_group,
    .find = zfs_native_find,
    .list = zfs_native_list,
    .remove = zfs_native_remove,
    .untagged = zfs_native_untagged,
    .bookmark = zfs_bookmark,
    .bookmark_find = zfs_bookmark_find,
    .bookmark_remove = zfs_bookmark_remove,
    .bookmarks = zfs_bookmarks,
    .same_pool = zfs_same_pool,
    .expose = zfs_expose,
    .unexpose = zfs_unexpose,
    .exposures = zfs_exposures,
    .open = zfs_open,
    .changed = zfs_changed,
    .allocated = zfs_allocated,
    .pool = zfs_pool,
    .target = zfs_target,
    .target_commit = zfs_target_commit,
    .target_abort = zfs_target_abort,
    .target_from_native = zfs_target_from_native,
};
