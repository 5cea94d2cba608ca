/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lvm-native.c - native snapshots: thin snapshots and COW snapshots
 *
 * One command creates, tags and commits a snapshot. LVM flushes and freezes the file system on the volume for the
 * moment of the snapshot (dm-thin and dm-snapshot are suspended with lockfs), so nothing else has to freeze it. A thin
 * snapshot is read-only and not activated (activation-skip flag): neither at boot, nor until it is exposed. A COW
 * snapshot is active as long as its origin.
 *
 * Crash points: lvm-native-made, lvm-native-removed.
 */
#include "io/native/lvm.h"

#include "base/cleanup.h"
#include "base/crash.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGS 64
#define EXTENT_SLACK ((uint64_t)8 << 20) /* chunk table and rounding to extents */

static void describe(const struct lvm_report *r, const struct lvm_lv *lv, const struct lvm_tag *t, struct native *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->tag = t->tag;
    snprintf(ret->handle, sizeof ret->handle, "%s", lv->path);
    ret->size = t->size;
    ret->used = UINT64_MAX;
    if (lvm_is_cow(lv) && lv->cow >= 0)
        ret->used = (uint64_t)((double)lv->size * (lv->cow < 100 ? lv->cow : 100) / 100);
    ret->crash_consistent = true;
    lvm_change_id(r, lv, ret->change_id);
}

int lvm_native_healthy(const struct lvm_report *r, const struct lvm_lv *lv, const struct lvm_tag *t, struct err *e)
{
    const uint64_t size = lvm_is_cow(lv) ? lv->origin_size : lv->size;
    if (lvm_is_cow(lv) && (lv->invalid || lv->cow >= 100)) {
        err_plain(e, ERR_DAMAGE, ENOSPC,
                  "native snapshot %s of %s has overflowed: more was written to the volume than its %" PRIu64
                  " MiB hold, so it is invalid",
                  lv->path, t->tag.volume_name, lv->size >> 20);
        return err_hint(e, "set a larger cow-size in its class, or back it up when less is written");
    }
    if (size != t->size)
        return err_set(e, ERR_DAMAGE, 0, "native snapshot %s has %" PRIu64 " bytes, %" PRIu64 " when it was taken",
                       lv->path, size, t->size);
    const struct lvm_lv *pool = lvm_is_thin(lv) ? lvm_find(r, lv->vg, lv->pool) : NULL;
    if (pool && strcmp(pool->health, "failed") == 0)
        return err_plain(e, ERR_SOURCE, EIO, "native snapshot %s cannot be read: thin pool %s/%s has failed", lv->path,
                         pool->vg, pool->name);
    return 0;
}

/* ---- taking ---- */

static int check_group(const struct lvm_lv *lv, const char *what, struct err *e)
{
    const char *why = lv->vg_attr[2] == 'x'   ? "is exported"
                      : lv->vg_attr[3] == 'p' ? "lacks physical volumes"
                      : lv->vg_attr[0] != 'w' ? "is read-only"
                                              : NULL;
    return why ? err_plain(e, ERR_SOURCE, EROFS, "%s: volume group %s %s", what, lv->vg, why) : 0;
}

/* COW space, from cow-size of the class: percent of the volume. Never more than the volume needs. */
static int cow_bytes(const struct driver_class *c, const struct lvm_lv *lv, const char *what, uint64_t *ret,
                     struct err *e)
{
    const unsigned percent = c->cow_percent ? c->cow_percent : 20;
    *ret = ((lv->size / 100 * percent) >> 20 << 20) + EXTENT_SLACK;
    if (lv->vg_free >= *ret)
        return 0;
    err_plain(e, ERR_NO_SPACE, ENOSPC,
              "%s: its COW snapshot needs %" PRIu64 " MiB (cow-size is %u %%), volume group %s has %" PRIu64
              " MiB free",
              what, *ret >> 20, percent, lv->vg, lv->vg_free >> 20);
    return err_hint(e, "extend the volume group (vgextend), or set a smaller cow-size in the class");
}

static int take(const struct driver_class *c, const struct lvm_report *r, const struct lvm_lv *lv,
                const struct native_tag *tag, const char *what, struct err *e)
{
    char name[ALIAS_LEN + sizeof LVM_PREFIX], origin[2 * LVM_NAME_MAX + 2], size[32];
    CLEANUP_FREE struct lvm_tag *t = calloc(1, sizeof *t);
    CLEANUP_FREE struct lvm_tags *tags = malloc(sizeof *tags);
    const char *args[ARGS] = {"lvcreate", "--snapshot", "--permission", "r", "--name", name};
    size_t n = 6;
    uint64_t cow = 0;
    if (!t || !tags)
        return err_nomem(e);
    int rc = check_group(lv, what, e);
    if (rc == 0)
        rc = lvm_is_thin(lv) ? lvm_pool_check(r, lvm_find(r, lv->vg, lv->pool), what, e)
                             : cow_bytes(c, lv, what, &cow, e);
    if (rc == 0 && !lvm_is_thin(lv) && !lv->active) {
        err_plain(e, ERR_SOURCE, ENXIO, "%s: it is not active", what);
        rc = err_hint(e, "activate it: lvchange --activate y %.64s/%.64s", lv->vg, lv->name);
    }
    t->kind = LVM_NATIVE;
    t->tag = *tag;
    t->size = lv->size;
    snprintf(t->node, sizeof t->node, "%s", c->node);
    snprintf(t->vg_uuid, sizeof t->vg_uuid, "%s", lv->vg_uuid);
    lvm_volume_id(lv, t->tag.volume_id);
    snprintf(t->tag.volume_name, sizeof t->tag.volume_name, "%s", lv->path);
    if (rc == 0)
        rc = lvm_tag_write(t, tags, e);
    if (rc < 0)
        return rc;
    snprintf(name, sizeof name, LVM_PREFIX "%s", tag->alias);
    snprintf(origin, sizeof origin, "%s/%s", lv->vg, lv->name);
    if (cow) {
        snprintf(size, sizeof size, "%" PRIu64 "b", cow);
        args[n++] = "--size";
        args[n++] = size;
    } else {
        args[n++] = "--setactivationskip";
        args[n++] = "y";
    }
    for (unsigned i = 0; i < tags->n; i++) {
        args[n++] = "--addtag";
        args[n++] = tags->text[i];
    }
    args[n++] = origin;
    args[n] = NULL;
    rc = lvm_change(what, args, e);
    crash_point("lvm-native-made");
    return rc;
}

static int snapshot_of(const struct driver_class *c, const struct volume *v, const struct native_tag *tag,
                       struct lvm_report *r, const char *what, struct err *e)
{
    char vg[LVM_NAME_MAX], name[LVM_NAME_MAX];
    CLEANUP_FREE struct volume *now = malloc(sizeof *now);
    if (!now)
        return err_nomem(e);
    int rc = lvm_describe_volume(c, v->name, r, now, e);
    if (rc == 0 && strcmp(now->id, v->id) != 0)
        rc = err_plain(e, ERR_SOURCE, ESTALE, "%s is no longer the volume that was looked up (%s, now %s)", v->name,
                       v->id, now->id);
    if (rc == 0)
        rc = lvm_path_split(v->name, vg, name, e);
    return rc < 0 ? rc : take(c, r, lvm_find(r, vg, name), tag, what, e);
}

int lvm_snapshot(const struct driver_class *c, const struct volume *v, const struct native_tag *tag, struct native *ret,
                 struct err *e)
{
    char what[512];
    struct lvm_report r = LVM_REPORT_INIT;
    const struct lvm_lv *lv = NULL;
    CLEANUP_FREE struct lvm_tag *t = malloc(sizeof *t);
    if (!t)
        return err_nomem(e);
    snprintf(what, sizeof what, "cannot take a native snapshot of %.300s", v->name);
    if (!alias_valid(tag->alias))
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", tag->alias);
    /* Of a call that was interrupted. */
    int rc = lvm_find_ours_in(c, &r, v->name, LVM_NATIVE, tag->alias, &lv, t, e);
    if (rc == -ENOENT) {
        rc = snapshot_of(c, v, tag, &r, what, e);
        lvm_report_free(&r);
        if (rc == 0) {
            rc = lvm_find_ours_in(c, &r, v->name, LVM_NATIVE, tag->alias, &lv, t, e);
            if (rc == -ENOENT)
                rc = err_set(e, ERR_GENERIC, ENOENT, "native snapshot %s disappeared after its creation", tag->alias);
        }
    }
    if (rc == 0)
        describe(&r, lv, t, ret);
    lvm_report_free(&r);
    return rc;
}

/* ---- finding ---- */

int lvm_native_find(const struct driver_class *c, const struct volume *v, const char *alias, const char *hint,
                    struct native *ret, struct err *e)
{
    struct lvm_report r = LVM_REPORT_INIT;
    const struct lvm_lv *lv = NULL;
    CLEANUP_FREE struct lvm_tag *t = malloc(sizeof *t);
    if (!t)
        return err_nomem(e);
    int rc = lvm_find_ours(c, &r, hint && *hint ? hint : v ? v->name : "", LVM_NATIVE, alias, &lv, t, e);
    if (rc == -ENOENT)
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "native snapshot %s of %s is no longer on the storage", alias,
                       v ? v->name : "a volume");
    if (rc == 0)
        rc = lvm_native_healthy(&r, lv, t, e);
    if (rc == 0)
        describe(&r, lv, t, ret);
    lvm_report_free(&r);
    return rc;
}

int lvm_native_list(const struct driver_class *c, native_fn *fn, void *arg, struct err *e)
{
    struct lvm_report r = LVM_REPORT_INIT;
    CLEANUP_FREE struct lvm_tag *t = malloc(sizeof *t);
    CLEANUP_FREE struct native *n = malloc(sizeof *n);
    if (!t || !n)
        return err_nomem(e);
    int rc = lvm_report_read(&r, NULL, e);
    for (size_t i = 0; rc == 0 && i < r.n; i++)
        if ((lvm_thin_class(c) ? lvm_is_thin(&r.lv[i]) : lvm_is_cow(&r.lv[i])) && lvm_tag_read(&r.lv[i], t) == 0 &&
            t->kind == LVM_NATIVE && strcmp(t->node, c->node) == 0) {
            describe(&r, &r.lv[i], t, n);
            rc = fn(n, arg);
        }
    lvm_report_free(&r);
    return rc;
}

/* ---- removing ---- */

/* Whether `r` has anything in the place of n. */
static int in_its_place(const struct lvm_report *r, const struct native *n, struct err *e)
{
    const struct lvm_lv *other = lvm_find_path(r, n->handle);
    return other ? native_foreign(other->path, n->tag.alias, "remove (lvremove) or rename it", e) : 0;
}

int lvm_native_untagged(const struct driver_class *c, const struct native *n, struct err *e)
{
    struct lvm_report r = LVM_REPORT_INIT;
    (void)c;
    int rc = lvm_report_read(&r, NULL, e);
    if (rc == 0)
        rc = in_its_place(&r, n, e);
    lvm_report_free(&r);
    return rc;
}

int lvm_native_remove(const struct driver_class *c, const struct native *n, bool *gone, struct err *e)
{
    char what[512];
    struct lvm_report r = LVM_REPORT_INIT;
    const struct lvm_lv *lv = NULL;
    CLEANUP_FREE struct lvm_tag *t = malloc(sizeof *t);
    if (!t)
        return err_nomem(e);
    *gone = false;
    snprintf(what, sizeof what, "cannot remove native snapshot %s", n->tag.alias);
    int rc = lvm_find_ours(c, &r, n->handle[0] ? n->handle : n->tag.volume_name, LVM_NATIVE, n->tag.alias, &lv, t, e);
    if (rc == -ENOENT) {
        rc = in_its_place(&r, n, e);
        *gone = rc == 0;
    } else if (rc == 0) {
        rc = lvm_remove_lv(lv, what, e);
        crash_point("lvm-native-removed");
    }
    lvm_report_free(&r);
    return rc;
}
