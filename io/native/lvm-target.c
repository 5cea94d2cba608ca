/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lvm-target.c - logical volumes to restore into
 *
 * A new volume is made under a name of ours, filled, and renamed (lvrename). A thin volume is replaced in the same way:
 * it stays as it is until the new one is complete; a differential restore, or that of a range, fills a thin snapshot of
 * it. Then both change their names, the new one inherits the volume's id and the administrator's tags, and the old one
 * is removed. Another logical volume that exists is written to in place, by the driver for devices.
 *
 * The order of a replacement, each a commit of LVM: the old volume is tagged as replaced; gets a name of ours; the new
 * one gets its final name; loses its owner tag; the old one is removed. lvm_target_undo() takes back what came before
 * the new one had its name, and completes what came after.
 *
 * Crash points: lvm-target-made, lvm-target-marked, lvm-target-moved-away, lvm-target-renamed, lvm-target-untagged,
 * lvm-target-removed.
 */
#include "io/native/lvm.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGS 60
#define OLD_SUFFIX "-old"

struct args {
    const char *v[ARGS + 1];
    size_t n;
};

static void add(struct args *a, const char *s)
{
    if (a->n < ARGS)
        a->v[a->n++] = s;
}

static void full_name(const struct lvm_lv *lv, char out[2 * LVM_NAME_MAX + 2])
{
    snprintf(out, 2 * LVM_NAME_MAX + 2, "%s/%s", lv->vg, lv->name);
}

/* LVM takes whole sectors, and rounds up to extents. */
static uint64_t lvm_size(uint64_t size)
{
    return size ? (size + 511) / 512 * 512 : 512;
}

static int rename_lv(const struct lvm_lv *lv, const char *to, const char *what, struct err *e)
{
    const char *const args[] = {"lvrename", "--yes", lv->vg, lv->name, to, NULL};
    return lvm_change(what, args, e);
}

struct untagging {
    struct args *args;
    char (*text)[LVM_TAG_MAX];
    size_t n;
};

static int gather_owner(const char *tag, void *arg)
{
    struct untagging *u = arg;
    if (strncmp(tag, "snapferry+", 10) == 0 && u->n < LVM_TAGS_MAX) {
        snprintf(u->text[u->n], LVM_TAG_MAX, "%s", tag);
        add(u->args, "--deltag");
        add(u->args, u->text[u->n++]);
    }
    return 0;
}

static int drop_owner(const struct lvm_lv *lv, const char *what, struct err *e)
{
    char full[2 * LVM_NAME_MAX + 2];
    CLEANUP_FREE struct lvm_tags *text = malloc(sizeof *text);
    struct args a = {{"lvchange"}, 1};
    if (!text)
        return err_nomem(e);
    struct untagging u = {.args = &a, .text = text->text};
    lvm_each_tag(lv->tags, gather_owner, &u);
    if (!u.n)
        return 0;
    full_name(lv, full);
    add(&a, full);
    return lvm_change(what, a.v, e);
}

/* ---- what is there ---- */

/* Of one restore. */
struct found {
    struct lvm_report r;
    const struct lvm_lv *staging, *replaced, *final;
    struct lvm_tag staging_tag, replaced_tag;
};

static void found_free(struct found *f)
{
    if (f) {
        lvm_report_free(&f->r);
        free(f);
    }
}

static void found_freep(struct found **f)
{
    found_free(*f);
}

static void look_in(const struct driver_class *c, struct found *f, const char *alias, const char *final)
{
    CLEANUP_FREE struct lvm_tag *t = malloc(sizeof *t);
    f->staging = f->replaced = NULL;
    for (size_t i = 0; t && i < f->r.n; i++) {
        const struct lvm_lv *lv = &f->r.lv[i];
        if (!strstr(lv->tags, alias) || lvm_tag_read(lv, t) < 0 || strcmp(t->tag.alias, alias) != 0 ||
            strcmp(t->node, c->node) != 0)
            continue;
        if (t->kind == LVM_STAGING) {
            f->staging = lv;
            f->staging_tag = *t;
        } else if (t->kind == LVM_REPLACED) {
            f->replaced = lv;
            f->replaced_tag = *t;
        }
    }
    if (!final)
        final = f->staging ? f->staging_tag.final : f->replaced ? f->replaced_tag.final : "";
    f->final = lvm_find_path(&f->r, final);
}

static int look(const struct driver_class *c, struct found **ret, const char *alias, const char *final, struct err *e)
{
    char vg[LVM_NAME_MAX], name[LVM_NAME_MAX];
    struct found *f = *ret ? *ret : calloc(1, sizeof *f);
    if (!f)
        return err_nomem(e);
    *ret = f;
    int rc = lvm_path_split(final, vg, name, e);
    lvm_report_free(&f->r);
    if (rc == 0)
        rc = lvm_report_read(&f->r, vg, e);
    if (rc == 0)
        look_in(c, f, alias, final);
    return rc;
}

static bool has_our_name(const struct lvm_lv *lv)
{
    return strncmp(lv->name, LVM_PREFIX, sizeof LVM_PREFIX - 1) == 0;
}

/* ---- making ---- */

static int final_path(const struct driver_class *c, const char *name, char ret[VOLUME_NAME_MAX], struct err *e)
{
    char vg[LVM_NAME_MAX], pool[LVM_NAME_MAX];
    int rc = 0;
    if (name[0] == '/') {
        snprintf(ret, VOLUME_NAME_MAX, "%s", name);
        if (strlen(name) >= VOLUME_NAME_MAX)
            return err_set(e, ERR_USAGE, ENAMETOOLONG, "the name of the restore target is too long");
    } else {
        rc = lvm_class_target(c, vg, pool, e);
        if (rc == 0 && !vg[0])
            rc = err_set(e, ERR_USAGE, EINVAL,
                         "storage class \"%s\" has no target: use the path of the volume, /dev/GROUP/%.128s", c->name,
                         name);
        if (rc == 0)
            snprintf(ret, VOLUME_NAME_MAX, "/dev/%s/%.256s", vg, name);
    }
    if (rc == 0)
        rc = lvm_path_split(ret, vg, pool, e);
    if (rc == 0 && strncmp(pool, LVM_PREFIX, sizeof LVM_PREFIX - 1) == 0)
        rc = err_set(e, ERR_USAGE, EINVAL, "%s: names that begin with " LVM_PREFIX " are reserved", ret);
    return rc;
}

/* The pool of a new thin volume: that of the volume which it replaces, of the class's target, or the only one. */
static const struct lvm_lv *pool_for(const struct driver_class *c, const struct found *f, const char *vg,
                                     const char *final, struct err *e)
{
    char target_vg[LVM_NAME_MAX], pool[LVM_NAME_MAX];
    const struct lvm_lv *only = NULL;
    if (f->final)
        return lvm_find(&f->r, vg, f->final->pool);
    if (lvm_class_target(c, target_vg, pool, NULL) == 0 && strcmp(target_vg, vg) == 0) {
        const struct lvm_lv *p = lvm_find(&f->r, vg, pool);
        if (!p || !lvm_is_pool(p))
            err_plain(e, ERR_NOT_FOUND, ENOENT, "storage class \"%s\": there is no thin pool %s/%s (target)", c->name,
                      vg, pool);
        return p && lvm_is_pool(p) ? p : NULL;
    }
    for (size_t i = 0; i < f->r.n; i++) {
        if (!lvm_is_pool(&f->r.lv[i]))
            continue;
        if (only) {
            err_plain(e, ERR_USAGE, EINVAL, "cannot make %s: volume group %s has several thin pools", final, vg);
            err_hint(e, "set target = GROUP/POOL in its class");
            return NULL;
        }
        only = &f->r.lv[i];
    }
    if (!only)
        err_plain(e, ERR_NOT_FOUND, ENOENT, "cannot make %s: volume group %s %s", final, vg,
                  f->r.n ? "has no thin pool" : "is missing or empty");
    return only;
}

static int make(const struct driver_class *c, const struct found *f, const struct restore_target *t, const char *alias,
                enum target_use use, const struct lvm_lv *copy_of, const char *what, struct err *e)
{
    char vg[LVM_NAME_MAX], name[LVM_NAME_MAX], size[32], of[2 * LVM_NAME_MAX + 2], pool[2 * LVM_NAME_MAX + 2];
    char staging[ALIAS_LEN + sizeof LVM_PREFIX];
    CLEANUP_FREE struct lvm_tag *tag = calloc(1, sizeof *tag);
    CLEANUP_FREE struct lvm_tags *tags = malloc(sizeof *tags);
    struct args a = {{"lvcreate", "--yes"}, 2};
    if (!tag || !tags)
        return err_nomem(e);
    int rc = lvm_path_split(t->final, vg, name, e);
    if (rc < 0)
        return rc;
    if (f->r.n == 0)
        return err_plain(e, ERR_NOT_FOUND, ENOENT, "%s: volume group %s is missing or empty", what, vg);
    snprintf(staging, sizeof staging, LVM_PREFIX "%s", alias);
    snprintf(size, sizeof size, "%" PRIu64 "b", lvm_size(t->size));
    add(&a, "--name");
    add(&a, staging);
    add(&a, "--setactivationskip");
    add(&a, "y");
    if (lvm_thin_class(c)) {
        const struct lvm_lv *p = pool_for(c, f, vg, t->final, e);
        if (!p)
            return e && e->sys ? -e->sys : -ENOENT;
        if ((rc = lvm_pool_check(&f->r, p, what, e)) < 0)
            return rc;
        full_name(p, pool);
    }
    if (copy_of) {
        full_name(copy_of, of);
        add(&a, "--snapshot");
        add(&a, "--permission");
        add(&a, "rw");
    } else {
        if (!lvm_thin_class(c)) { /* of what was stored there; the mover writes all of it */
            add(&a, "--wipesignatures");
            add(&a, "n");
            add(&a, "--zero");
            add(&a, "n");
        }
        add(&a, lvm_thin_class(c) ? "--virtualsize" : "--size");
        add(&a, size);
        if (lvm_thin_class(c)) {
            add(&a, "--thinpool");
            add(&a, pool);
        }
        snprintf(of, sizeof of, "%s", vg);
    }
    tag->kind = LVM_STAGING;
    snprintf(tag->tag.alias, sizeof tag->tag.alias, "%s", alias);
    snprintf(tag->tag.volume_name, sizeof tag->tag.volume_name, "%s", t->final);
    tag->tag.created_ns = now_ns();
    tag->size = t->size;
    tag->overwrite = use == TARGET_REPLACE || (f->final && use != TARGET_NEW);
    snprintf(tag->node, sizeof tag->node, "%s", c->node);
    snprintf(tag->vg_uuid, sizeof tag->vg_uuid, "%s", f->r.lv[0].vg_uuid);
    snprintf(tag->final, sizeof tag->final, "%s", t->final);
    rc = lvm_tag_write(tag, tags, e);
    for (unsigned i = 0; rc == 0 && i < tags->n; i++) {
        add(&a, "--addtag");
        add(&a, tags->text[i]);
    }
    if (copy_of || !lvm_thin_class(c))
        add(&a, of);
    if (rc == 0)
        rc = lvm_change(what, a.v, e);
    crash_point("lvm-target-made");
    return rc;
}

static int check_existing(const struct lvm_lv *lv, bool overwrite, struct err *e)
{
    if (!overwrite) {
        err_plain(e, ERR_TARGET, EEXIST, "restore target %s exists (%" PRIu64 " bytes)", lv->path, lv->size);
        err_hint(e, "use another name, or allow it to be overwritten");
        return -EEXIST;
    }
    if (!lv->open)
        return 0;
    err_plain(e, ERR_TARGET, EBUSY, "restore target %s is in use", lv->path);
    err_hint(e, "unmount it, or stop its user; `dmsetup ls --tree` and `lsof` show it");
    return -EBUSY;
}

/* A differential restore needs the size that is asked for. */
static int resize(const struct lvm_lv *lv, uint64_t size, const char *what, struct err *e)
{
    char text[32], full[2 * LVM_NAME_MAX + 2];
    if (lv->size >= size)
        return 0;
    full_name(lv, full);
    snprintf(text, sizeof text, "%" PRIu64 "b", lvm_size(size));
    const char *const args[] = {"lvextend", "--size", text, full, NULL};
    return lvm_change(what, args, e);
}

int lvm_target(const struct driver_class *c, const char *name, uint64_t size, const char *alias, enum target_use use,
               struct restore_target *ret, struct err *e)
{
    char what[512], vg[LVM_NAME_MAX], lv_name[LVM_NAME_MAX];
    CLEANUP(found_freep) struct found *f = NULL;
    memset(ret, 0, sizeof *ret);
    ret->size = size;
    if (!alias_valid(alias))
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", alias);
    int rc = final_path(c, name, ret->final, e);
    if (rc == 0)
        rc = lvm_path_split(ret->final, vg, lv_name, e);
    if (rc == 0)
        rc = look(c, &f, alias, ret->final, e);
    if (rc < 0)
        return rc;
    snprintf(what, sizeof what, "cannot make restore target %.300s", ret->final);
    if (!f->staging && f->final && !(lvm_is_thin(f->final) && lvm_thin_class(c))) {
        char path[2 * LVM_NAME_MAX + 8];
        snprintf(path, sizeof path, "%s", ret->final); /* *ret is cleared first */
        return driver_device.target(c, path, size, alias, use, ret, e);
    }
    if (f->final && f->final != f->staging && (rc = check_existing(f->final, use != TARGET_NEW, e)) < 0)
        return rc;
    const bool keep = f->final && (use == TARGET_UPDATE || use == TARGET_PATCH);
    if (use == TARGET_PATCH && f->final && f->final->size > size)
        ret->size = f->final->size;
    if (!f->staging) {
        rc = make(c, f, ret, alias, use, keep ? f->final : NULL, what, e);
        if (rc == 0)
            rc = look(c, &f, alias, ret->final, e);
        if (rc == 0 && !f->staging)
            rc = err_set(e, ERR_GENERIC, ENOENT, "restore target %s disappeared after its creation", ret->final);
    }
    if (rc == 0)
        rc = resize(f->staging, ret->size, what, e);
    if (rc == 0)
        rc = lvm_activate(f->staging, what, e);
    if (rc < 0)
        return rc;
    snprintf(ret->path, sizeof ret->path, "%s", f->staging->dm_path);
    snprintf(ret->handle, sizeof ret->handle, "/dev/%s/" LVM_PREFIX "%s", f->staging->vg, alias);
    return 0;
}

/* ---- into place ---- */

static int alias_of(const struct restore_target *t, char ret[ALIAS_LEN + 1], struct err *e)
{
    const size_t n = strlen(t->handle);
    if (n > ALIAS_LEN && alias_valid(t->handle + n - ALIAS_LEN)) {
        memcpy(ret, t->handle + n - ALIAS_LEN, ALIAS_LEN + 1);
        return 0;
    }
    return err_set(e, ERR_USAGE, EINVAL, "\"%.512s\" is not a staging volume of a restore", t->handle);
}

static int sync_device(const struct lvm_lv *lv, const char *what, struct err *e)
{
    int fd = -1;
    int rc = lvm_activate(lv, what, e);
    if (rc == 0)
        rc = lvm_open_device(lv, O_RDWR, &fd, e);
    if (rc == 0 && fsync(fd) < 0)
        rc = err_set(e, ERR_TARGET, errno, "cannot sync restore target %s", lv->path);
    if (fd >= 0)
        close(fd);
    return rc;
}

static int mark_replaced(const struct driver_class *c, const struct lvm_lv *lv, const struct lvm_tag *staging,
                         const char *what, struct err *e)
{
    char full[2 * LVM_NAME_MAX + 2];
    CLEANUP_FREE struct lvm_tag *t = calloc(1, sizeof *t);
    CLEANUP_FREE struct lvm_tags *tags = malloc(sizeof *tags);
    struct args a = {{"lvchange"}, 1};
    if (!t || !tags)
        return err_nomem(e);
    *t = *staging;
    t->kind = LVM_REPLACED;
    t->size = lv->size;
    snprintf(t->node, sizeof t->node, "%s", c->node);
    int rc = lvm_tag_write(t, tags, e);
    for (unsigned i = 0; rc == 0 && i < tags->n; i++) {
        add(&a, "--addtag");
        add(&a, tags->text[i]);
    }
    full_name(lv, full);
    add(&a, full);
    if (rc == 0)
        rc = lvm_change(what, a.v, e);
    crash_point("lvm-target-marked");
    return rc;
}

struct inheriting {
    struct args *args;
    char (*text)[LVM_TAG_MAX];
    size_t n;
};

/* What the administrator has tagged stays tagged. */
static int gather_admin(const char *tag, void *arg)
{
    struct inheriting *h = arg;
    if (!lvm_is_our_tag(tag) && h->n < LVM_TAGS_MAX) {
        snprintf(h->text[h->n], LVM_TAG_MAX, "%s", tag);
        add(h->args, "--addtag");
        add(h->args, h->text[h->n++]);
    }
    return 0;
}

/* The staging volume gets all that makes it the volume, but its name. */
static int inherit(const struct found *f, const struct lvm_lv *old, const char *alias, const char *what, struct err *e)
{
    char id[VOLUME_ID_MAX], mark[LVM_TAG_MAX], full[2 * LVM_NAME_MAX + 2];
    CLEANUP_FREE struct lvm_tags *text = malloc(sizeof *text);
    struct args a = {{"lvchange", "--setactivationskip", "n"}, 3};
    if (!text)
        return err_nomem(e);
    lvm_volume_id(old ? old : f->staging, id);
    int rc = lvm_inherited_write(id, f->staging->vg_uuid, alias, mark, e);
    if (rc < 0)
        return rc;
    if (!strstr(f->staging->tags, mark)) {
        add(&a, "--addtag");
        add(&a, mark);
    }
    struct inheriting h = {&a, text->text, 0};
    if (old)
        lvm_each_tag(old->tags, gather_admin, &h);
    full_name(f->staging, full);
    add(&a, full);
    return lvm_change(what, a.v, e);
}

/* The new volume has its final name: what is left to do, at once or by whoever finds it. */
static int complete(const struct found *f, const char *what, struct err *e)
{
    int rc = f->staging ? drop_owner(f->staging, what, e) : 0;
    crash_point("lvm-target-untagged");
    if (rc == 0 && f->replaced && has_our_name(f->replaced)) {
        rc = lvm_remove_lv(f->replaced, what, e);
        crash_point("lvm-target-removed");
    }
    return rc;
}

static bool is_restored_by(const struct lvm_lv *lv, const char *alias)
{
    return lv && lvm_restored_by(lv, alias);
}

static int put_into_place(const struct driver_class *c, struct found *f, const struct restore_target *t,
                          const char *alias, const char *what, struct err *e)
{
    char old_name[ALIAS_LEN + sizeof LVM_PREFIX + sizeof OLD_SUFFIX];
    const struct lvm_lv *old = f->replaced ? f->replaced : f->final;
    int rc = 0;
    if (strcmp(f->staging_tag.final, t->final) != 0)
        return err_set(e, ERR_USAGE, EINVAL, "%s was made for %s, not for %s", t->handle, f->staging_tag.final,
                       t->final);
    if (f->staging->size < t->size)
        return err_set(e, ERR_TARGET, 0, "%s has %" PRIu64 " bytes, not %" PRIu64, t->handle, f->staging->size,
                       t->size);
    if (f->final && f->final != f->replaced) {
        if (f->replaced)
            return err_plain(e, ERR_TARGET, EEXIST, "%s: another volume has got that name meanwhile", what);
        rc = check_existing(f->final, f->staging_tag.overwrite, e);
    } else if (f->final) {
        rc = check_existing(f->final, true, e);
    }
    if (rc == 0)
        rc = inherit(f, old, alias, what, e);
    if (rc == 0 && old && !f->replaced)
        rc = mark_replaced(c, old, &f->staging_tag, what, e);
    if (rc == 0 && f->final) {
        snprintf(old_name, sizeof old_name, LVM_PREFIX "%s" OLD_SUFFIX, alias);
        rc = rename_lv(f->final, old_name, what, e);
        crash_point("lvm-target-moved-away");
    }
    if (rc == 0) {
        rc = rename_lv(f->staging, strrchr(t->final, '/') + 1, what, e);
        crash_point("lvm-target-renamed");
    }
    if (rc == 0)
        rc = look(c, &f, alias, t->final, e);
    return rc < 0 ? rc : complete(f, what, e);
}

int lvm_target_commit(const struct driver_class *c, const struct restore_target *t, struct err *e)
{
    char what[512], alias[ALIAS_LEN + 1];
    CLEANUP(found_freep) struct found *f = NULL;
    if (!t->handle[0])
        return driver_device.target_commit(c, t, e);
    snprintf(what, sizeof what, "cannot put restore target %.300s into place", t->final);
    int rc = alias_of(t, alias, e);
    if (rc == 0)
        rc = look(c, &f, alias, t->final, e);
    /* That may take minutes: whether the volume is in use is looked at afterwards. */
    if (rc == 0 && f->staging && has_our_name(f->staging)) {
        rc = sync_device(f->staging, what, e);
        if (rc == 0)
            rc = look(c, &f, alias, t->final, e);
    }
    if (rc < 0)
        return rc;
    if (f->staging && has_our_name(f->staging))
        return put_into_place(c, f, t, alias, what, e);
    if (is_restored_by(f->final, alias))
        return complete(f, what, e);
    return err_plain(e, ERR_NOT_FOUND, ENOENT, "no staging volume %s", t->handle);
}

int lvm_target_undo(const struct driver_class *c, const struct lvm_report *r, const char *alias, struct err *e)
{
    char what[512];
    int rc = 0;
    struct found *f = calloc(1, sizeof *f);
    if (!f)
        return err_nomem(e);
    f->r = *r; /* borrowed */
    look_in(c, f, alias, NULL);
    snprintf(what, sizeof what, "cannot remove the restore target of %s", alias);
    if (f->staging && !has_our_name(f->staging)) {
        rc = complete(f, what, e); /* it has its final name */
    } else {
        if (f->replaced && has_our_name(f->replaced) && !f->final)
            rc = rename_lv(f->replaced, strrchr(f->replaced_tag.final, '/') + 1, what, e);
        if (rc == 0 && f->replaced && is_restored_by(f->final, alias)) {
            rc = lvm_remove_lv(f->replaced, what, e);
        } else if (rc == 0 && f->replaced) {
            struct lvm_lv now = *f->replaced;
            if (!f->final)
                now.name = strrchr(f->replaced_tag.final, '/') + 1;
            /* Under another name only if somebody else has taken the volume's: then it stays for the administrator. */
            if (has_our_name(&now))
                log_warning("%s is the volume that was %s, a name that another volume has got: it is left alone",
                            now.path, f->replaced_tag.final);
            rc = drop_owner(&now, what, e);
        }
        if (rc == 0 && f->staging)
            rc = lvm_remove_lv(f->staging, what, e);
    }
    free(f);
    return rc;
}

int lvm_target_abort(const struct driver_class *c, const struct restore_target *t, struct err *e)
{
    char alias[ALIAS_LEN + 1], vg[LVM_NAME_MAX], name[LVM_NAME_MAX];
    struct lvm_report r = LVM_REPORT_INIT;
    if (!t->handle[0])
        return 0; /* in place */
    int rc = alias_of(t, alias, e);
    if (rc == 0)
        rc = lvm_path_split(t->final, vg, name, e);
    if (rc == 0)
        rc = lvm_report_read(&r, vg, e);
    if (rc == 0)
        rc = lvm_target_undo(c, &r, alias, e);
    lvm_report_free(&r);
    return rc;
}

/* ---- from a native snapshot ---- */

int lvm_target_from_native(const struct driver_class *c, const struct native *n, const struct restore_target *t,
                           const struct fill *how, struct err *e)
{
    (void)how; /* it is a clone */
    char alias[ALIAS_LEN + 1], what[512];
    CLEANUP(found_freep) struct found *f = NULL;
    const struct lvm_lv *of = NULL;
    CLEANUP_FREE struct lvm_tag *tag = malloc(sizeof *tag);
    if (!tag)
        return err_nomem(e);
    snprintf(what, sizeof what, "cannot fill restore target %.300s", t->final);
    int rc = t->handle[0] ? alias_of(t, alias, e)
                          : err_set(e, ERR_USAGE, ENOTSUP,
                                    "%s: it is no thin volume, and is written to in place: restore it from the "
                                    "repository (--from repository)",
                                    what);
    if (rc == 0)
        rc = look(c, &f, alias, t->final, e);
    if (rc < 0)
        return rc;
    if (!f->staging)
        return err_plain(e, ERR_NOT_FOUND, ENOENT, "no staging volume %s", t->handle);
    for (size_t i = 0; i < f->r.n && !of; i++)
        if (strstr(f->r.lv[i].tags, n->tag.alias) && lvm_tag_read(&f->r.lv[i], tag) == 0 && tag->kind == LVM_NATIVE &&
            strcmp(tag->tag.alias, n->tag.alias) == 0 && strcmp(tag->node, c->node) == 0)
            of = &f->r.lv[i];
    if (!of || !lvm_is_thin(of) || strcmp(of->pool, f->staging->pool) != 0) {
        err_set(e, ERR_USAGE, ENOTSUP, "%s from native snapshot %s: that is not in the same thin pool", what,
                n->tag.alias);
        return err_hint(e, "restore from the repository: --from repository");
    }
    rc = lvm_native_healthy(&f->r, of, tag, e);
    if (rc == 0 && tag->size != t->size)
        rc = err_set(e, ERR_USAGE, EINVAL, "native snapshot %s has %" PRIu64 " bytes, the target %" PRIu64, of->path,
                     tag->size, t->size);
    if (rc == 0 && strcmp(f->staging->origin, of->name) == 0)
        return lvm_activate(f->staging, what, e); /* done by an earlier call */
    if (rc == 0)
        rc = lvm_remove_lv(f->staging, what, e);
    if (rc == 0)
        rc = make(c, f, t, alias, f->staging_tag.overwrite ? TARGET_REPLACE : TARGET_NEW, of, what, e);
    if (rc == 0)
        rc = look(c, &f, alias, t->final, e);
    if (rc == 0 && !f->staging)
        rc = err_set(e, ERR_GENERIC, ENOENT, "restore target %s disappeared after its creation", t->final);
    return rc < 0 ? rc : lvm_activate(f->staging, what, e);
}
