/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * rbd-target.c - images to restore into
 *
 * What is done to images, in which order, and the crash points are in io/rbd/commands.h. An image that is restored into
 * in place is rolled back only on behalf of its own operation (target_abort): the sweep, which knows no operation,
 * leaves it to the administrator, since whatever is in it now may be what somebody wants.
 */
#include "io/native/rbd.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "io/native/json-fields.h"
#include "io/nbd-uri.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

/* Parts of a name that rbd_name_check() accepts. */
struct name {
    char pool[RBD_PART_MAX * 3], space[RBD_PART_MAX * 3], image[RBD_PART_MAX * 3];
};

static int name_split(const char *text, struct name *ret, struct err *e)
{
    int rc = rbd_name_check(text, e);
    if (rc < 0)
        return rc;
    const char *a = strchr(text, '/'), *b = strchr(a + 1, '/');
    snprintf(ret->pool, sizeof ret->pool, "%.*s", (int)(a - text), text);
    snprintf(ret->space, sizeof ret->space, "%.*s", b ? (int)(b - a - 1) : 0, a + 1);
    snprintf(ret->image, sizeof ret->image, "%s", (b ? b : a) + 1);
    return 0;
}

static void name_join(const struct name *n, const char *image, char ret[VOLUME_NAME_MAX])
{
    snprintf(ret, VOLUME_NAME_MAX, "%s/%s%s%s", n->pool, n->space, n->space[0] ? "/" : "", image);
}

bool rbd_is_staged(const char *name)
{
    return strncmp(name, RBD_PREFIX, sizeof RBD_PREFIX - 1) == 0 && alias_valid(name + sizeof RBD_PREFIX - 1);
}

/* ---- tags ---- */

static void tag_key(const char *alias, char ret[64])
{
    snprintf(ret, 64, RBD_TARGET "%.36s", alias);
}

static int tag_write(const struct driver_class *c, const char *fsid, const struct rbd_image *i, const char *alias,
                     const struct restore_target *t, char **ret, struct err *e)
{
    json_t *own = json_pack("{s:s, s:s, s:o, s:I, s:b}", "alias", alias, "final", t->final, "size", u64_json(t->size),
                            "created_ns", (json_int_t)now_ns(), "in_place", i != NULL);
    return rbd_mark_write(c, fsid, i, own, ret, e);
}

int rbd_target_tag_read(const struct driver_class *c, const struct rbd_report *r, const struct rbd_image *i,
                        const char *alias, struct rbd_target_tag *ret)
{
    static const char what[] = "tag";
    char key[64];
    memset(ret, 0, sizeof *ret);
    tag_key(alias, key);
    json_t *j = rbd_mark_read(c, r, i, key, alias);
    const bool good = j && field_text(j, what, "final", ret->final, sizeof ret->final, true, NULL) == 0 &&
                      field_u64(j, what, "size", &ret->size, true, NULL) == 0 &&
                      field_i64(j, what, "created_ns", &ret->created_ns, NULL) == 0 &&
                      field_bool(j, what, "in_place", &ret->in_place, NULL) == 0;
    ret->committed = json_is_true(json_object_get(j, "committed"));
    snprintf(ret->alias, sizeof ret->alias, "%s", alias);
    json_decref(j);
    return good ? 0 : -ENODATA;
}

static bool was_restored_by(const struct rbd_image *i, const char *alias)
{
    char key[64];
    tag_key(alias, key);
    const char *text = json_string_value(json_object_get(i->meta, RBD_RESTORED));
    return text && strcmp(text, key) == 0;
}

/* Any tag of a restore, of whatever node: its alias. */
static const char *other_restore(const struct rbd_image *i, const char *alias)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)i->meta, key, value)
    {
        const char *of = key + sizeof RBD_TARGET - 1;
        if (strncmp(key, RBD_TARGET, sizeof RBD_TARGET - 1) == 0 && alias_valid(of) && strcmp(of, alias) != 0)
            return of;
    }
    return NULL;
}

/* ---- what is there ---- */

/* Of one restore; pointers into `r`, NULL: not there. */
struct found {
    struct rbd_report r;
    struct name name;
    char final[VOLUME_NAME_MAX], staged_name[VOLUME_NAME_MAX];
    char key[64], before[64];
    const struct rbd_image *staged, *image, *tagged;
    struct rbd_target_tag tag; /* of `tagged`, which is one of both, or has been renamed */
};

static void found_freep(struct found **f)
{
    if (*f)
        rbd_report_free(&(*f)->r);
    free(*f);
}

static void sort_out(const struct driver_class *c, struct found *f, const char *alias)
{
    char name[VOLUME_NAME_MAX];
    struct rbd_target_tag *t = &f->tag;
    f->staged = f->image = f->tagged = NULL;
    for (size_t i = 0; i < f->r.n; i++) {
        const struct rbd_image *x = &f->r.image[i];
        rbd_name_of(x, name);
        if (strcmp(name, f->final) == 0)
            f->image = x;
        else if (strcmp(name, f->staged_name) == 0)
            f->staged = x;
        if (!f->tagged && rbd_target_tag_read(c, &f->r, x, alias, t) == 0)
            f->tagged = x;
    }
}

/* The image of that name, and what the alias has made; one that was renamed is looked for beside it. */
static int look(const struct driver_class *c, struct found **ret, const char *name, const char *alias, struct err *e)
{
    char exact[2][VOLUME_NAME_MAX + 1];
    struct found *f = calloc(1, sizeof *f);
    if (!f)
        return err_nomem(e);
    *ret = f;
    if (!alias_valid(alias))
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", alias);
    int rc = name_split(name, &f->name, e);
    if (rc < 0)
        return rc;
    char image[64];
    snprintf(image, sizeof image, RBD_PREFIX "%s", alias);
    snprintf(f->final, sizeof f->final, "%s", name);
    name_join(&f->name, image, f->staged_name);
    tag_key(alias, f->key);
    snprintf(f->before, sizeof f->before, RBD_BEFORE "%.36s", alias);
    snprintf(exact[0], sizeof exact[0], "=%s", f->final);
    snprintf(exact[1], sizeof exact[1], "=%s", f->staged_name);
    const char *const names[] = {exact[0], exact[1], NULL};
    rc = rbd_report_read(&f->r, c, names, e);
    if (rc < 0)
        return rc;
    sort_out(c, f, alias);
    return 0;
}

/* The same of one that may have been renamed: in its pool and namespace. */
static int look_wide(const struct driver_class *c, struct found **ret, const char *name, const char *alias,
                     struct err *e)
{
    char all[VOLUME_NAME_MAX];
    int rc = look(c, ret, name, alias, e);
    struct found *f = *ret;
    if (rc < 0 || f->tagged || f->staged || (f->image && was_restored_by(f->image, alias)))
        return rc;
    name_join(&f->name, "*", all);
    const char *const names[] = {all, NULL};
    rbd_report_free(&f->r);
    rc = rbd_report_read(&f->r, c, names, e);
    if (rc == 0)
        sort_out(c, f, alias);
    return rc;
}

/* ---- making ---- */

static int refuse_existing(const struct found *f, struct err *e)
{
    err_plain(e, ERR_TARGET, EEXIST, "restore target %s exists (%" PRIu64 " bytes)", f->final, f->image->size);
    return err_hint(e, "use another name, or allow it to be overwritten");
}

static int claim(const struct driver_class *c, const struct found *f, const char *alias, const char *what,
                 const struct restore_target *t, struct err *e)
{
    const struct rbd_image *i = f->image;
    const char *other = other_restore(i, alias);
    CLEANUP_FREE char *value = NULL;
    if (other) {
        err_plain(e, ERR_TARGET, EBUSY, "%s: a restore into it has not ended (%s)", what, other);
        return err_hint(e,
                        "wait for it; if no node has it any more: rbd snap rollback IMAGE@" RBD_BEFORE
                        "%.36s, or leave it as it is; then rbd snap rm, and rbd image-meta rm IMAGE " RBD_TARGET
                        "%.36s",
                        other, other);
    }
    int rc = tag_write(c, f->r.fsid, i, alias, t, &value, e);
    if (rc < 0)
        return rc;
    const char *const args[] = {"claim", i->pool, i->space, i->id, f->key, NULL};
    return rbd_change(c, what, args, value, e);
}

static int make(const struct driver_class *c, const struct found *f, const char *alias, const char *what,
                const struct restore_target *t, struct err *e)
{
    char image[64];
    CLEANUP_FREE char *value = NULL;
    int rc = tag_write(c, f->r.fsid, NULL, alias, t, &value, e);
    if (rc < 0)
        return rc;
    snprintf(image, sizeof image, RBD_PREFIX "%.36s", alias);
    const char *const args[] = {"make", f->name.pool, f->name.space, image, f->key, NULL};
    return rbd_change(c, what, args, value, e);
}

/* POOL/IMAGE@SNAPSHOT for one in place, else the name that it has until it is complete. */
static int describe(const struct found *f, bool in_place, const char *image, struct restore_target *ret, struct err *e)
{
    struct nbd_uri u = {.socket = RBD_SERVER};
    if ((size_t)snprintf(u.export, sizeof u.export, "%s", image) >= sizeof u.export)
        return err_set(e, ERR_USAGE, ENAMETOOLONG, "the name of %.200s is too long", image);
    nbd_uri_text(&u, ret->path);
    if (in_place)
        snprintf(ret->handle, sizeof ret->handle, "%.4000s@%s", image, f->before);
    else
        snprintf(ret->handle, sizeof ret->handle, "%s", image);
    return 0;
}

int rbd_target(const struct driver_class *c, const char *name, uint64_t size, const char *alias, enum target_use use,
               struct restore_target *ret, struct err *e)
{
    char what[512];
    CLEANUP(found_freep) struct found *f = NULL;
    memset(ret, 0, sizeof *ret);
    ret->size = size;
    int rc = look(c, &f, name, alias, e);
    if (rc < 0)
        return rc;
    snprintf(ret->final, sizeof ret->final, "%s", f->final);
    snprintf(what, sizeof what, "cannot make restore target %.300s", f->final);
    if (strncmp(f->name.image, RBD_PREFIX, sizeof RBD_PREFIX - 1) == 0)
        return err_set(e, ERR_USAGE, EINVAL, "%s: names that begin with " RBD_PREFIX " are reserved", f->final);
    if (f->tagged) { /* by an earlier call */
        ret->size = f->tag.size;
        return describe(f, f->tag.in_place, f->tag.in_place ? f->final : f->staged_name, ret, e);
    }
    if (f->image && use == TARGET_NEW)
        return refuse_existing(f, e);
    if (f->image && use == TARGET_PATCH && f->image->size > size)
        ret->size = f->image->size;
    rc = f->image ? claim(c, f, alias, what, ret, e) : make(c, f, alias, what, ret, e);
    return rc < 0 ? rc : describe(f, f->image != NULL, f->image ? f->final : f->staged_name, ret, e);
}

/* ---- afterwards ---- */

/* The alias at the end of a handle. */
static int alias_of(const char *handle, char ret[ALIAS_LEN + 1], struct err *e)
{
    const size_t n = strlen(handle);
    if (n > ALIAS_LEN && alias_valid(handle + n - ALIAS_LEN)) {
        memcpy(ret, handle + n - ALIAS_LEN, ALIAS_LEN + 1);
        return 0;
    }
    return err_set(e, ERR_USAGE, EINVAL, "\"%.512s\" is not a restore target of driver rbd", handle);
}

/* What a call has made that was before: tagged, or restored by it and complete. ERR_NOT_FOUND: neither. */
static int look_again(const struct driver_class *c, struct found **ret, const struct restore_target *t,
                      char alias[ALIAS_LEN + 1], struct err *e)
{
    int rc = alias_of(t->handle, alias, e);
    if (rc == 0)
        rc = look_wide(c, ret, t->final, alias, e);
    if (rc == 0 && !(*ret)->tagged && !((*ret)->image && was_restored_by((*ret)->image, alias)))
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "restore target %s is no longer there", t->handle);
    return rc;
}

int rbd_target_open(const struct driver_class *c, const struct restore_target *t, int *fd, struct err *e)
{
    char alias[ALIAS_LEN + 1];
    CLEANUP(found_freep) struct found *f = NULL;
    int rc = look_again(c, &f, t, alias, e);
    if (rc < 0)
        return rc;
    const struct rbd_image *i = f->tagged;
    if (!i)
        return err_plain(e, ERR_NOT_FOUND, ENOENT, "restore target %s is complete already", t->final);
    const char *const args[] = {"fill", i->pool, i->space, i->id, f->key, f->before, NULL};
    return rbd_serve(c, args, t->final, fd, e);
}

/* Into place; and what is left to do of one that is there. */
static int complete(const struct driver_class *c, const struct found *f, const char *what, struct err *e)
{
    const struct rbd_image *i = f->tagged;
    const char *const place[] = {"place", i->pool, i->space, i->id, f->key, f->name.image, RBD_RESTORED, NULL};
    const char *const settle[] = {"settle", i->pool, i->space, i->id, f->key, f->before, RBD_RESTORED, NULL};
    return rbd_change_all(c, what, f->tag.in_place ? settle : place, NULL, i->size, e);
}

int rbd_target_commit(const struct driver_class *c, const struct restore_target *t, struct err *e)
{
    char what[512], alias[ALIAS_LEN + 1];
    CLEANUP(found_freep) struct found *f = NULL;
    int rc = look_again(c, &f, t, alias, e);
    if (rc < 0 || !f->tagged) /* complete, by an earlier call */
        return rc;
    snprintf(what, sizeof what, "cannot put restore target %.300s into place", t->final);
    if (strcmp(f->tag.final, t->final) != 0)
        return err_set(e, ERR_USAGE, EINVAL, "%s was made for %s, not for %s", t->handle, f->tag.final, t->final);
    if (!f->tag.in_place && f->image && f->image != f->tagged)
        return err_plain(e, ERR_TARGET, EEXIST, "%s: another image has got that name meanwhile", what);
    return complete(c, f, what, e);
}

bool rbd_target_kept(const struct driver_class *c, const struct restore_target *t)
{
    char alias[ALIAS_LEN + 1];
    CLEANUP(found_freep) struct found *f = NULL;
    if (alias_of(t->handle, alias, NULL) < 0 || look(c, &f, t->final, alias, NULL) < 0)
        return false;
    /* In place it has been written to. */
    return !(f->tagged && f->tag.in_place) && f->image != f->tagged && !(f->image && was_restored_by(f->image, alias));
}

/* Nothing is left of a new image, also if it cannot be opened any more. */
static int discard(const struct driver_class *c, const struct found *f, const char *alias, const char *what,
                   struct err *e)
{
    char image[64];
    snprintf(image, sizeof image, RBD_PREFIX "%.36s", alias);
    const char *const args[] = {"discard", f->name.pool, f->name.space, image, f->key, NULL};
    struct err why = ERR_INIT;
    int rc = rbd_change_all(c, what, args, NULL, f->staged ? f->staged->size : 0, &why);
    if (rc < 0 && why.cls == ERR_NOT_FOUND) /* its pool */
        return 0;
    if (rc < 0 && e)
        *e = why;
    return rc;
}

static int revert(const struct driver_class *c, const struct found *f, const struct rbd_image *i, const char *what,
                  struct err *e)
{
    const char *const args[] = {"revert", i->pool, i->space, i->id, f->key, f->before, NULL};
    return rbd_change_all(c, what, args, NULL, i->size, e);
}

/* All that is left of one whose tag the administrator has removed. */
static bool has_writers(const struct found *f)
{
    char key[80];
    snprintf(key, sizeof key, "%s.writers", f->key);
    return json_object_get(f->image->meta, key) != NULL;
}

/* `own`: of an operation, which may roll an image back. */
static int undo(const struct driver_class *c, const char *final, const char *alias, bool own, struct err *e)
{
    char what[512];
    CLEANUP(found_freep) struct found *f = NULL;
    int rc = look_wide(c, &f, final, alias, e);
    if (rc < 0)
        return rc;
    const struct rbd_image *i = f->tagged;
    snprintf(what, sizeof what, "cannot remove the restore target of %s", alias);
    if (!i && f->image && was_restored_by(f->image, alias))
        return 0;
    if (!i && f->image && has_writers(f))
        return revert(c, f, f->image, what, e);
    if (!i || (!f->tag.in_place && i == f->staged))
        return discard(c, f, alias, what, e);
    if (!f->tag.in_place && i != f->image) {
        const char *const args[] = {"remove", i->pool, i->space, i->id, f->before, f->key, NULL};
        log_warning("image %s/%s is an incomplete restore that somebody has renamed: it is left alone", i->pool,
                    i->name);
        return rbd_change(c, what, args, NULL, e);
    }
    if (!f->tag.in_place || f->tag.committed)
        return complete(c, f, what, e);
    if (!own) {
        err_set(e, ERR_PERMISSION, EPERM, "a restore into %s has not ended, and no record has it: it is left alone",
                f->final);
        return err_hint(e,
                        "rbd snap rollback %.100s@%s, or leave it as it is; then rbd snap rm the same, and rbd "
                        "image-meta rm %.100s %s",
                        f->final, f->before, f->final, f->key);
    }
    return revert(c, f, i, what, e);
}

int rbd_target_abort(const struct driver_class *c, const struct restore_target *t, struct err *e)
{
    char alias[ALIAS_LEN + 1];
    int rc = alias_of(t->handle, alias, e);
    return rc < 0 ? rc : undo(c, t->final, alias, true, e);
}

/* ---- the sweep ---- */

struct exposing {
    const struct driver_class *into;
    exposure_fn *fn;
    void *arg;
    struct exposure x;
    struct native_tag of;
};

static int report_one(struct exposing *l, const struct rbd_image *i, const struct rbd_target_tag *t)
{
    struct exposure *x = &l->x;
    memset(x, 0, sizeof *x);
    memset(&l->of, 0, sizeof l->of);
    x->mechanism = EXPOSE_CLONE;
    rbd_name_of(i, x->handle);
    snprintf(x->alias, sizeof x->alias, "%s", t->alias);
    snprintf(x->klass, sizeof x->klass, "%s", l->into->name);
    snprintf(x->where, sizeof x->where, "%s", t->final[0] ? t->final : x->handle);
    memcpy(x->path, x->handle, sizeof x->path);
    x->size = i->size;
    memcpy(l->of.alias, x->alias, sizeof l->of.alias);
    memcpy(l->of.volume_name, x->where, sizeof l->of.volume_name);
    snprintf(l->of.volume_id, sizeof l->of.volume_id, "rbd:0");
    l->of.created_ns = t->created_ns;
    return l->fn(x, &l->of, l->arg);
}

static int report_image(struct exposing *l, const struct rbd_report *r, const struct rbd_image *i,
                        struct rbd_target_tag *t)
{
    const char *key;
    json_t *value;
    bool tagged = false;
    int rc = 0;
    json_object_foreach((json_t *)(uintptr_t)i->meta, key, value)
    {
        const char *alias = key + sizeof RBD_TARGET - 1;
        const bool is = strncmp(key, RBD_TARGET, sizeof RBD_TARGET - 1) == 0 && alias_valid(alias);
        tagged = tagged || is;
        if (rc == 0 && is && rbd_target_tag_read(l->into, r, i, alias, t) == 0)
            rc = report_one(l, i, t);
    }
    /* Of whatever node: its call ended before it had a tag, and it has no data. */
    if (rc == 0 && !tagged && i->size == 0 && rbd_is_staged(i->name)) {
        memset(t, 0, sizeof *t);
        snprintf(t->alias, sizeof t->alias, "%s", i->name + sizeof RBD_PREFIX - 1);
        t->created_ns = i->created_ns;
        rc = report_one(l, i, t);
    }
    return rc;
}

int rbd_exposures(const struct driver_class *into, exposure_fn *fn, void *arg, struct err *e)
{
    CLEANUP(rbd_report_free) struct rbd_report r = {.doc = NULL};
    CLEANUP(rbd_patterns_free) char **patterns = NULL;
    CLEANUP_FREE struct exposing *l = calloc(1, sizeof *l);
    CLEANUP_FREE struct rbd_target_tag *t = calloc(1, sizeof *t);
    if (!l || !t)
        return err_nomem(e);
    l->into = into;
    l->fn = fn;
    l->arg = arg;
    int rc = rbd_patterns(into, true, &patterns, e);
    if (rc < 0 || !patterns[0])
        return rc;
    rc = rbd_report_read(&r, into, (const char *const *)patterns, e);
    for (size_t i = 0; rc == 0 && i < r.n; i++)
        rc = report_image(l, &r, &r.image[i], t);
    return rc;
}

int rbd_unexpose(const struct driver_class *into, const struct exposure *x, struct err *e)
{
    /* A server ends with its client. */
    return x->handle[0] && alias_valid(x->alias) ? undo(into, x->where, x->alias, false, e) : 0;
}
