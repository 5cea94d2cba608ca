/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lvm.c - drivers lvm-thin (thin volumes) and lvm (COW snapshots): classes, volumes, pools
 *
 * A volume is called by its path, /dev/GROUP/VOLUME. Its id is the UUID of the logical volume, which renaming, pvmove
 * and a reboot leave as it is.
 */
#include "io/native/lvm.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "/dev/", and two components after it. */
static bool is_pattern_of_volumes(const char *p)
{
    const char *slash = strncmp(p, "/dev/", 5) == 0 ? strchr(p + 5, '/') : NULL;
    return slash && slash[1] && !strchr(slash + 1, '/') && strncmp(p, "/dev/mapper/", 12) != 0;
}

/* A word of `match`: the path of volumes, or what is said of them. */
static int check_word(const struct driver_class *c, const char *word, struct err *e)
{
    const char *value = strchr(word, ':');
    if (is_pattern_of_volumes(word))
        return 0;
    if (!lvm_is_label(word)) {
        err_set(e, ERR_USAGE, EINVAL, "storage class \"%s\": pattern \"%s\" is not of the form /dev/GROUP/VOLUME",
                c->name, word);
        return err_hint(e, "a whole group is /dev/GROUP/* or vg:GROUP; tag:NAME selects by a tag of LVM; `lvs -o "
                           "lv_path,lv_tags` shows both");
    }
    if (word[0] != 'p')
        return 0;
    if (!lvm_thin_class(c))
        return err_set(e, ERR_USAGE, EINVAL, "storage class \"%s\": \"%s\": volumes of driver %s are in no thin pool",
                       c->name, word, c->driver);
    if (!strchr(value, '/'))
        return err_set(e, ERR_USAGE, EINVAL, "storage class \"%s\": \"%s\" is not of the form pool:GROUP/POOL", c->name,
                       word);
    return 0;
}

static int lvm_abilities(const struct driver_class *c, unsigned *ret, struct err *e)
{
    char vg[LVM_NAME_MAX], pool[LVM_NAME_MAX];
    int rc = 0;
    *ret = 0;
    for (size_t i = 0; rc == 0 && c->match && c->match[i]; i++)
        rc = check_word(c, c->match[i], e);
    if (rc == 0)
        rc = lvm_class_target(c, vg, pool, e);
    if (rc == 0 && (rc = lvm_installed(e)) < 0)
        err_wrap(e, "storage class \"%s\"", c->name);
    if (rc < 0)
        return rc;
    if (lvm_thin_class(c))
        *ret = DRIVER_SNAPSHOT | DRIVER_NATIVE_RO | DRIVER_CLONE | DRIVER_TARGET | DRIVER_POOL | DRIVER_ALLOCATED |
               DRIVER_CHANGED;
    else
        *ret = DRIVER_SNAPSHOT | DRIVER_NATIVE_RO | DRIVER_TARGET;
    return 0;
}

/* ---- volumes ---- */

static int lvm_resolve(const struct driver_class *c, const char *name, struct volume *ret, struct err *e)
{
    char vg[LVM_NAME_MAX], lv_name[LVM_NAME_MAX];
    struct lvm_report r = LVM_REPORT_INIT;
    memset(ret, 0, sizeof *ret);
    int rc = lvm_path_split(name, vg, lv_name, e);
    if (rc == 0)
        rc = lvm_report_read(&r, vg, e);
    if (rc == 0)
        rc = lvm_describe_volume(c, name, &r, ret, e);
    lvm_report_free(&r);
    return rc;
}

/* A pattern that names a group which is not there is a mistake, or the group's disks are missing. */
static void warn_of_groups(const struct driver_class *c, const struct lvm_report *r)
{
    char vg[LVM_NAME_MAX];
    for (size_t i = 0; c->match && c->match[i]; i++) {
        const char *word = c->match[i];
        if (strncmp(word, "tag:", 4) == 0)
            continue;
        word += lvm_is_label(word) ? strcspn(word, ":") + 1 : strlen("/dev/");
        const size_t n = strcspn(word, "/");
        bool there = false;
        if (n >= sizeof vg || strcspn(word, "*?[\\") < n)
            continue;
        snprintf(vg, sizeof vg, "%.*s", (int)n, word);
        for (size_t k = 0; k < r->n; k++)
            there |= strcmp(r->lv[k].vg, vg) == 0;
        if (!there)
            log_warning("class \"%s\": volume group %s is missing or empty", c->name, vg);
    }
}

/* The group, and the thin pool that this is: one of them that has none of its volumes any more was emptied, else it has
 * disappeared. */
static int tell_places(const struct lvm_report *r, size_t i, struct volume *v, volume_fn *fn, void *arg)
{
    const struct lvm_lv *lv = &r->lv[i];
    int rc = 0;
    memset(v, 0, sizeof *v);
    snprintf(v->pool, sizeof v->pool, "%s", lv->vg);
    if (i == 0 || strcmp(lv->vg, r->lv[i - 1].vg) != 0)
        rc = fn(v, arg);
    if (rc < 0 || !lvm_is_pool(lv))
        return rc;
    snprintf(v->pool, sizeof v->pool, "%.120s/%.120s", lv->vg, lv->name);
    return fn(v, arg);
}

static int lvm_volumes(const struct driver_class *c, volume_fn *fn, void *arg, struct err *e)
{
    struct lvm_report r = LVM_REPORT_INIT;
    CLEANUP_FREE struct volume *v = malloc(sizeof *v);
    const bool labels = lvm_selects_labels(c);
    if (!v)
        return err_nomem(e);
    int rc = lvm_report_read(&r, NULL, e);
    if (rc == 0)
        warn_of_groups(c, &r);
    for (size_t i = 0; rc == 0 && i < r.n; i++) {
        struct err why = ERR_INIT;
        if ((rc = tell_places(&r, i, v, fn, arg)) < 0)
            break;
        snprintf(v->name, sizeof v->name, "%s", r.lv[i].path);
        v->labels[0] = '\0';
        if (!v->name[0] || (!labels && !lvm_is_matched(c, v)))
            continue;
        const bool all = lvm_describe(&r.lv[i], v), matched = lvm_is_matched(c, v);
        if (lvm_refuse(c, &r, &r.lv[i], &why) == 0) {
            if (!all && labels)
                log_warning("class \"%s\": %s has more tags than can be compared: the last ones select nothing",
                            c->name, v->name);
            rc = fn(v, arg);
        } else if (matched && why.cls != ERR_USAGE) { /* of another kind, or ours: no news */
            log_warning("class \"%s\": ignored: %s", c->name, why.msg);
        }
    }
    lvm_report_free(&r);
    return rc;
}

/* ---- pools ---- */

static const struct lvm_lv *pool_of(const struct driver_class *c, const struct lvm_report *r, const struct volume *v)
{
    char vg[LVM_NAME_MAX], name[LVM_NAME_MAX];
    if (lvm_path_split(v->name, vg, name, NULL) == 0) {
        const struct lvm_lv *lv = lvm_find(r, vg, name);
        if (lv && lvm_is_thin(lv))
            return lvm_find(r, vg, lv->pool);
    }
    return lvm_class_target(c, vg, name, NULL) == 0 && vg[0] ? lvm_find(r, vg, name) : NULL;
}

static int lvm_pool(const struct driver_class *c, const struct volume *v, struct pool_usage *ret, struct err *e)
{
    char vg[LVM_NAME_MAX], name[LVM_NAME_MAX];
    struct lvm_report r = LVM_REPORT_INIT;
    memset(ret, 0, sizeof *ret);
    ret->used_ratio = -1;
    int rc = lvm_path_split(v->name, vg, name, e);
    if (rc == 0)
        rc = lvm_report_read(&r, vg, e);
    const struct lvm_lv *p = rc == 0 ? pool_of(c, &r, v) : NULL;
    if (rc == 0 && !p)
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "no thin pool of %s", v->name);
    if (rc == 0 && p && (p->data < 0 || p->metadata < 0))
        rc = err_plain(e, ERR_SOURCE, ENODATA, "thin pool %s/%s is not active: its usage is not known", p->vg, p->name);
    if (rc == 0 && p) {
        const double data = p->data < 100 ? p->data : 100, metadata = p->metadata < 100 ? p->metadata : 100;
        snprintf(ret->name, sizeof ret->name, "%.120s/%.120s", p->vg, p->name);
        ret->size = p->size;
        ret->free = (uint64_t)((double)p->size * (100 - data) / 100);
        ret->used_ratio = (data > metadata ? data : metadata) / 100;
    }
    lvm_report_free(&r);
    return rc;
}

static bool lvm_same_pool(const struct driver_class *c, const struct volume *v, const struct driver_class *into)
{
    char vg[LVM_NAME_MAX], pool[LVM_NAME_MAX], want[VOLUME_ID_MAX];
    struct volume found;
    if (lvm_class_target(into, vg, pool, NULL) < 0 || !vg[0])
        return false;
    snprintf(want, sizeof want, "%.120s/%.120s", vg, pool);
    if (v->pool[0])
        return strcmp(v->pool, want) == 0;
    return lvm_resolve(c, v->name, &found, NULL) == 0 && strcmp(found.pool, want) == 0;
}

#define COMMON                                                                                                         \
    .abilities = lvm_abilities, .volumes = lvm_volumes, .resolve = lvm_resolve, .snapshot = lvm_snapshot,              \
    .find = lvm_native_find, .list = lvm_native_list, .remove = lvm_native_remove, .untagged = lvm_native_untagged,    \
    .expose = lvm_expose, .unexpose = lvm_unexpose, .exposures = lvm_exposures, .open = lvm_open,                      \
    .target = lvm_target, .target_commit = lvm_target_commit, .target_abort = lvm_target_abort

const struct driver driver_lvm_thin = {
    .name = LVM_THIN_NAME,
    .text = "thin volumes of LVM; a native snapshot is a thin snapshot in the same pool",
    COMMON,
    .same_pool = lvm_same_pool,
    .pool = lvm_pool,
    .allocated = lvm_allocated,
    .changed = lvm_changed,
    .target_from_native = lvm_target_from_native,
};

const struct driver driver_lvm = {
    .name = LVM_THICK_NAME,
    .traits = DRIVER_COW_SIZE,
    .text = "other logical volumes; a native snapshot is a COW snapshot in the same volume group",
    COMMON,
};
