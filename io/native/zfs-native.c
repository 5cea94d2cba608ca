/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * zfs-native.c - native snapshots of zvols
 *
 * One command takes a snapshot and sets its owner tag, in one transaction group. What is mounted from the volume is
 * frozen meanwhile (freeze.h).
 *
 * Crash points: zfs-native-made, zfs-native-removed.
 */
#include "io/native/zfs.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "io/native/freeze.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void zfs_native_describe(const struct zfs_row *row, const struct zfs_tag *t, struct native *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->tag = t->tag;
    snprintf(ret->handle, sizeof ret->handle, "%s", row->name);
    ret->size = row->size;
    ret->used = row->used;
    ret->crash_consistent = true;
    snprintf(ret->change_id, sizeof ret->change_id, "zfs:%" PRIu64, row->guid);
}

/* ---- taking ---- */

int zfs_volume_now(const struct volume *v, struct zfs_report *r, const struct zfs_row **row, struct volume *now,
                   struct err *e)
{
    char dataset[ZFS_NAME_MAX];
    int rc = zfs_path_split(v->name, dataset, e);
    if (rc == 0)
        rc = zfs_report_volume(r, dataset, e);
    *row = rc == 0 ? zfs_find(r, dataset) : NULL;
    if (rc == 0 && !*row)
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "there is no volume of ZFS %s", v->name);
    if (rc == 0)
        rc = zfs_refuse(*row, e);
    if (rc < 0)
        return rc;
    zfs_describe(*row, now);
    if (strcmp(now->id, v->id) != 0)
        return err_plain(e, ERR_SOURCE, ESTALE, "%s is no longer the volume that was looked up (%s, now %s)", v->name,
                         v->id, now->id);
    return 0;
}

void zfs_native_tag(const struct driver_class *c, const struct zfs_row *row, const struct volume *now,
                    const struct native_tag *tag, uint64_t pool, struct zfs_tag *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->kind = ZFS_NATIVE;
    ret->tag = *tag;
    ret->size = row->size;
    ret->pool = pool;
    ret->volume = row->guid;
    snprintf(ret->node, sizeof ret->node, "%s", c->node);
    memcpy(ret->tag.volume_id, now->id, sizeof ret->tag.volume_id);
    memcpy(ret->tag.volume_name, now->name, sizeof ret->tag.volume_name);
}

int zfs_native_name(const char *dataset, const char *alias, const char *what, char ret[ZFS_NAME_MAX], struct err *e)
{
    const int n = snprintf(ret, ZFS_NAME_MAX, "%s@" ZFS_PREFIX "%s", dataset, alias);
    return n < ZFS_NAME_MAX
               ? 0
               : err_set(e, ERR_USAGE, ENAMETOOLONG, "%s: the name of its snapshot would be longer than %d characters",
                         what, ZFS_NAME_MAX - 1);
}

static int take(const struct driver_class *c, const struct zfs_row *row, const struct volume *now,
                const struct native_tag *tag, const char *what, struct err *e)
{
    char snapshot[ZFS_NAME_MAX];
    struct zfs_pool pool;
    CLEANUP_FREE struct zfs_tag *t = malloc(sizeof *t);
    CLEANUP_FREE char *value = malloc(ZFS_VALUE_MAX), *option = malloc(ZFS_VALUE_MAX + 64);
    if (!t || !value || !option)
        return err_nomem(e);
    int rc = zfs_pool_read(&pool, row->name, e);
    if (rc == 0)
        rc = zfs_pool_check(&pool, what, e);
    if (rc < 0)
        return rc;
    zfs_native_tag(c, row, now, tag, pool.guid, t);
    rc = zfs_tag_write(t, value, e);
    if (rc == 0)
        rc = zfs_native_name(row->name, tag->alias, what, snapshot, e);
    if (rc < 0)
        return rc;
    snprintf(option, ZFS_VALUE_MAX + 64, ZFS_OWNER "=%s", value);
    const char *const args[] = {"snapshot", "-o", option, snapshot, NULL};
    const char *const device[] = {now->name};
    struct frozen *frozen = freeze_devices(device, 1, c->unfrozen);
    rc = zfs_change(what, args, e);
    frozen_thaw(frozen);
    crash_point("zfs-native-made");
    return rc;
}

static int snapshot_of(const struct driver_class *c, const struct volume *v, const struct native_tag *tag,
                       const char *what, struct err *e)
{
    struct zfs_report r = ZFS_REPORT_INIT;
    const struct zfs_row *row;
    CLEANUP_FREE struct volume *now = malloc(sizeof *now);
    if (!now)
        return err_nomem(e);
    int rc = zfs_volume_now(v, &r, &row, now, e);
    if (rc == 0)
        rc = take(c, row, now, tag, what, e);
    zfs_report_free(&r);
    return rc;
}

/* In its volume alone: that is where an interrupted call has made it. */
int zfs_native_taken(const struct driver_class *c, const char *dataset, const char *alias, struct native *ret,
                     bool *unfinished, struct err *e)
{
    char name[2 * ZFS_NAME_MAX];
    struct zfs_report r = ZFS_REPORT_INIT;
    struct zfs_pool pool;
    CLEANUP_FREE struct zfs_tag *t = malloc(sizeof *t);
    if (!t)
        return err_nomem(e);
    snprintf(name, sizeof name, "%s@" ZFS_PREFIX "%s", dataset, alias);
    int rc = zfs_report_read(&r, dataset, e);
    const struct zfs_row *row = rc == 0 ? zfs_find(&r, name) : NULL;
    if (rc == 0)
        rc = row ? zfs_pool_read(&pool, dataset, e) : -ENOENT;
    if (rc == 0 && (zfs_tag_read(row, pool.guid, zfs_volume_guid(&r, name), t) < 0 || t->kind != ZFS_NATIVE ||
                    strcmp(t->tag.alias, alias) != 0 || strcmp(t->node, c->node) != 0))
        rc = err_set(e, ERR_TARGET, EEXIST, "there is a snapshot %s, and it is not ours", name);
    if (rc == 0) {
        zfs_native_describe(row, t, ret);
        *unfinished = t->unfinished;
    }
    zfs_report_free(&r);
    return rc;
}

int zfs_snapshot(const struct driver_class *c, const struct volume *v, const struct native_tag *tag, struct native *ret,
                 struct err *e)
{
    char what[512], dataset[ZFS_NAME_MAX];
    bool unfinished = false, gone;
    snprintf(what, sizeof what, "cannot take a native snapshot of %.300s", v->name);
    if (!alias_valid(tag->alias))
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", tag->alias);
    int rc = zfs_path_split(v->name, dataset, e);
    if (rc == 0)
        rc = zfs_native_taken(c, dataset, tag->alias, ret, &unfinished, e);
    if (rc == 0 && unfinished) { /* the group that it was taken with has failed */
        rc = zfs_native_remove(c, ret, &gone, e);
        rc = rc < 0 ? rc : -ENOENT;
    }
    if (rc != -ENOENT)
        return rc;
    rc = snapshot_of(c, v, tag, what, e);
    if (rc == 0) {
        rc = zfs_native_taken(c, dataset, tag->alias, ret, &unfinished, e);
        if (rc == -ENOENT)
            rc = err_set(e, ERR_GENERIC, ENOENT, "native snapshot %s disappeared after its creation", tag->alias);
    }
    return rc;
}

/* ---- finding ---- */

int zfs_native_find(const struct driver_class *c, const struct volume *v, const char *alias, const char *hint,
                    struct native *ret, struct err *e)
{
    struct zfs_report r = ZFS_REPORT_INIT;
    const struct zfs_row *row = NULL;
    CLEANUP_FREE struct zfs_tag *t = malloc(sizeof *t);
    if (!t)
        return err_nomem(e);
    int rc = zfs_find_ours(c, &r, hint && *hint ? hint : v ? v->name : "", ZFS_NATIVE, alias, &row, t, e);
    if (rc == -ENOENT || (rc == 0 && t->unfinished))
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "native snapshot %s of %s is no longer on the storage", alias,
                       v ? v->name : "a volume");
    if (rc == 0)
        rc = zfs_native_healthy(row, t, e);
    if (rc == 0)
        zfs_native_describe(row, t, ret);
    zfs_report_free(&r);
    return rc;
}

struct listing {
    native_fn *fn;
    void *arg;
    struct native n;
};

static int list_one(const struct zfs_row *row, const struct zfs_row *volume, const struct zfs_tag *t, void *arg)
{
    struct listing *l = arg;
    (void)volume;
    if (t->kind != ZFS_NATIVE || !row->snapshot)
        return 0;
    zfs_native_describe(row, t, &l->n);
    return l->fn(&l->n, l->arg);
}

int zfs_native_list(const struct driver_class *c, native_fn *fn, void *arg, struct err *e)
{
    CLEANUP_FREE struct listing *l = calloc(1, sizeof *l);
    if (!l)
        return err_nomem(e);
    l->fn = fn;
    l->arg = arg;
    return zfs_each(c, list_one, l, e);
}

/* ---- removing ---- */

/* A volume that a restore has replaced stays as long as it has snapshots. */
static int remove_replaced(const struct zfs_report *r, const struct zfs_row *snapshot, const char *what, struct err *e)
{
    char dataset[ZFS_NAME_MAX];
    struct zfs_pool pool;
    CLEANUP_FREE struct zfs_tag *t = malloc(sizeof *t);
    size_t others = 0;
    if (!t)
        return err_nomem(e);
    zfs_dataset_of(snapshot->name, dataset);
    const struct zfs_row *volume = zfs_find(r, dataset);
    for (size_t i = 0; i < r->n; i++)
        others += r->row[i].snapshot && &r->row[i] != snapshot;
    if (!volume || !volume->owner[0] || others)
        return 0;
    int rc = zfs_pool_read(&pool, dataset, e);
    if (rc == 0 && zfs_tag_read(volume, pool.guid, 0, t) == 0 && t->kind == ZFS_REPLACED && zfs_is_ours(volume, t))
        rc = zfs_destroy(volume, false, what, e);
    return rc;
}

int zfs_native_untagged(const struct driver_class *c, const struct native *n, struct err *e)
{
    (void)c;
    struct zfs_report r = ZFS_REPORT_INIT;
    int rc = strchr(n->handle, '@') ? zfs_report_read(&r, n->handle, e) : 0;
    if (rc == 0 && r.n) {
        rc = native_foreign(n->handle, n->tag.alias, "remove (zfs destroy) or rename it", e);
    }
    zfs_report_free(&r);
    return rc;
}

int zfs_native_remove(const struct driver_class *c, const struct native *n, bool *gone, struct err *e)
{
    char what[512];
    struct zfs_report r = ZFS_REPORT_INIT;
    const struct zfs_row *row = NULL;
    CLEANUP_FREE struct zfs_tag *t = malloc(sizeof *t);
    if (!t)
        return err_nomem(e);
    *gone = false;
    snprintf(what, sizeof what, "cannot remove native snapshot %s", n->tag.alias);
    int rc = zfs_find_ours(c, &r, n->handle[0] ? n->handle : n->tag.volume_name, ZFS_NATIVE, n->tag.alias, &row, t, e);
    if (rc == -ENOENT) {
        rc = zfs_native_untagged(c, n, e);
        *gone = rc == 0;
    } else if (rc == 0) {
        const char *const args[] = {"destroy", row->name, NULL};
        rc = zfs_release_all(c, row, e);
        if (rc == 0)
            rc = zfs_change(what, args, e);
        if (rc == -ENOENT) { /* one of another tool that waited for the last hold */
            rc = 0;
            *gone = true;
        }
        crash_point("zfs-native-removed");
        if (rc == 0)
            zfs_settle(row->name, false);
        if (rc == 0)
            rc = remove_replaced(&r, row, what, e);
    }
    zfs_report_free(&r);
    return rc;
}
