/* SPDX-License-Identifier: GPL-2.0-or-later */
/* report.c - pools, namespaces, images and their snapshots */
#include "io/rbd/commands.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WILD "*?[\\"
#define NAME_MAX_RBD 1024
#define META_PAGE 256

struct report {
    const struct cluster *c;
    char *const *patterns;
    json_t *images, *skipped;
};

static void skip(const struct report *r, const char *what, const struct err *why)
{
    json_t *text = json_sprintf("%s: %s", what, why->msg);
    json_array_append_new(r->skipped, text ? text : json_string("a name that is no text"));
}

/* POOL, NAMESPACE ("") and IMAGE of a pattern. */
static int pattern_split(const char *word, char part[3][NAME_MAX_RBD], struct err *e)
{
    const char *a = strchr(word, '/'), *b = a ? strchr(a + 1, '/') : NULL;
    const char *last = b ? b : a;
    if (!a || a == word || !last[1] || (b && b == a + 1) || strchr(last + 1, '/') || strlen(word) >= NAME_MAX_RBD)
        return err_set(e, ERR_USAGE, EINVAL, "\"%.256s\" is not of the form POOL/IMAGE or POOL/NAMESPACE/IMAGE", word);
    snprintf(part[0], NAME_MAX_RBD, "%.*s", (int)(a - word), word);
    snprintf(part[1], NAME_MAX_RBD, "%.*s", b ? (int)(b - a - 1) : 0, a + 1);
    snprintf(part[2], NAME_MAX_RBD, "%s", last + 1);
    return 0;
}

static bool part_matches(bool exact, const char *pattern, const char *name)
{
    return exact ? strcmp(pattern, name) == 0 : fnmatch(pattern, name, 0) == 0;
}

/* How many parts of a name any pattern matches: 1 its pool, 2 its namespace, 3 its image. */
static bool matches(const struct report *r, unsigned parts, const char *const *name)
{
    char part[3][NAME_MAX_RBD];
    for (char *const *p = r->patterns; *p; p++) {
        const bool exact = **p == '=';
        bool all = pattern_split(*p + exact, part, NULL) == 0;
        /* The default namespace is no match of an asterisk. */
        if (parts > 1)
            all = all && !part[1][0] == !name[1][0];
        for (unsigned i = 0; all && i < parts; i++)
            all = part_matches(exact, part[i], name[i]);
        if (all)
            return true;
    }
    return false;
}

/* ---- an image ---- */

static int add_snaps(const struct image *x, json_t *into, struct err *e)
{
    struct snaps s;
    int rc = snaps_read(&s, x, e);
    for (int i = 0; rc == 0 && i < s.n; i++) {
        /* One with a name that is no text is none of ours. */
        json_t *name = json_string(s.v[i].name);
        json_t *j = name ? json_pack("{s:I, s:o, s:I}", "id", (json_int_t)s.v[i].id, "name", name, "size",
                                     (json_int_t)s.v[i].size)
                         : NULL;
        if (j && json_array_append_new(into, j) < 0)
            rc = err_nomem(e);
    }
    snaps_free(&s, x);
    return rc;
}

/* `n` keys and values, each with a NUL (which they may contain, too); *last: the key before, and then the last one, of
 * malloc(). */
static int add_page(json_t *into, const char *keys, size_t n_keys, const char *values, size_t n_values, char **last,
                    struct err *e)
{
    const char *k = keys, *v = values, *at = *last;
    while (k < keys + n_keys && v < values + n_values) {
        json_t *text = json_string(v);
        if (text && json_object_set_new(into, k, text) < 0 && json_string(k))
            return err_nomem(e);
        at = k;
        k += strlen(k) + 1;
        v += strlen(v) + 1;
    }
    /* By a part of a key the list would begin before it again. */
    if (strcmp(at, *last) <= 0)
        return err_set(e, ERR_SOURCE, EILSEQ, "a key of its metadata contains a zero byte");
    char *copy = strdup(at);
    if (!copy)
        return err_nomem(e);
    free(*last);
    *last = copy;
    return 0;
}

static int add_meta(const struct image *x, json_t *into, struct err *e)
{
    CLEANUP_FREE char *last = strdup("");
    if (!last)
        return err_nomem(e);
    for (;;) {
        CLEANUP_FREE char *keys = NULL, *values CLEANUP(freep) = NULL;
        size_t n_keys = 16384, n_values = 65536;
        int rc;
        do {
            free(keys);
            free(values);
            keys = malloc(n_keys);
            values = malloc(n_values);
            if (!keys || !values)
                return err_nomem(e);
            rc = x->cluster->lib->rbd_metadata_list(x->rbd, last, META_PAGE, keys, &n_keys, values, &n_values);
        } while (rc == -ERANGE);
        if (rc < 0)
            return ceph_error(e, rc, "cannot list the metadata of image %s", x->name);
        if (!n_keys)
            return 0;
        rc = add_page(into, keys, n_keys, values, n_values, &last, e);
        if (rc < 0)
            return rc;
    }
}

/* Clients that have it open for writing, without this one. */
static bool is_watched(const struct image *x)
{
    struct rbd_image_watcher w[16];
    size_t n = sizeof w / sizeof *w;
    const int rc = x->cluster->lib->rbd_watchers_list(x->rbd, w, &n);
    if (rc == 0)
        x->cluster->lib->rbd_watchers_list_cleanup(w, n);
    return rc == -ERANGE || (rc == 0 && n > 0);
}

static int add_image(const struct report *r, const char *const name[3], const char *id, struct err *e)
{
    struct image x;
    uint64_t size = 0;
    json_t *snaps = json_array(), *meta = json_object();
    int rc = snaps && meta ? ceph_image_open(&x, r->c, name[0], name[1], id, false, e) : err_nomem(e);
    if (rc < 0) {
        json_decref(snaps);
        json_decref(meta);
        if (rc != -ENOMEM)
            ceph_image_close(&x);
        return rc;
    }
    rc = r->c->lib->rbd_get_size(x.rbd, &size);
    if (rc < 0)
        ceph_error(e, rc, "cannot read the size of image %s", x.name);
    if (rc == 0)
        rc = add_snaps(&x, snaps, e);
    if (rc == 0)
        rc = add_meta(&x, meta, e);
    struct timespec created = {.tv_sec = 0};
    (void)(rc == 0 && r->c->lib->rbd_get_create_timestamp(x.rbd, &created)); /* of an old image it is not known */
    json_t *j = json_pack("{s:s, s:I, s:s, s:s, s:s, s:I, s:I, s:b, s:o, s:o}", "pool", name[0], "pool_id",
                          (json_int_t)r->c->lib->rados_ioctx_get_id(x.io), "namespace", name[1], "name", name[2], "id",
                          id, "size", (json_int_t)size, "created", (json_int_t)created.tv_sec, "watched",
                          (int)is_watched(&x), "snaps", snaps, "meta", meta);
    ceph_image_close(&x);
    if (rc == 0 && (!j || json_array_append(r->images, j) < 0))
        rc = err_set(e, ERR_SOURCE, EILSEQ, "the name of image %s is no text", x.name);
    json_decref(j);
    return rc;
}

/* ---- namespaces and pools ---- */

static int list_images(const struct report *r, rados_ioctx_t io, const char *pool, struct rbd_image_spec **ret,
                       size_t *n, struct err *e)
{
    int rc;
    *n = 256;
    *ret = NULL;
    do {
        free(*ret);
        if (!(*ret = calloc(*n, sizeof **ret)))
            return err_nomem(e);
        rc = r->c->lib->rbd_list2(io, *ret, n);
    } while (rc == -ERANGE);
    if (rc >= 0)
        return 0;
    free(*ret);
    *ret = NULL;
    return ceph_error(e, rc, "cannot list the images of pool %s", pool);
}

static int each_image(const struct report *r, rados_ioctx_t io, const char *pool, const char *space, bool named,
                      struct err *e)
{
    struct rbd_image_spec *spec;
    size_t n;
    int rc = list_images(r, io, pool, &spec, &n, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const char *const name[3] = {pool, space, spec[i].name};
        struct err why = ERR_INIT;
        if (!matches(r, 3, name) || add_image(r, name, spec[i].id, &why) == 0)
            continue;
        if (why.cls == ERR_MEMORY || (named && why.cls != ERR_NOT_FOUND)) {
            if (e)
                *e = why;
            rc = -EIO;
        } else if (why.cls != ERR_NOT_FOUND) { /* removed meanwhile */
            skip(r, spec[i].name, &why);
        }
    }
    if (spec)
        r->c->lib->rbd_image_spec_list_cleanup(spec, n);
    free(spec);
    return rc;
}

static int each_namespace(const struct report *r, rados_ioctx_t io, const char *pool, bool named, struct err *e)
{
    CLEANUP_FREE char *names = NULL;
    size_t n = 16384;
    int rc;
    do {
        free(names);
        if (!(names = malloc(n)))
            return err_nomem(e);
        rc = r->c->lib->rbd_namespace_list(io, names, &n);
    } while (rc == -ERANGE);
    if (rc < 0)
        return ceph_error(e, rc, "cannot list the namespaces of pool %s", pool);
    rc = 0;
    for (const char *s = names; rc == 0 && s < names + n && *s; s += strlen(s) + 1) {
        const char *const name[2] = {pool, s};
        if (!matches(r, 2, name))
            continue;
        r->c->lib->rados_ioctx_set_namespace(io, s);
        rc = each_image(r, io, pool, s, named, e);
    }
    return rc;
}

static bool has_namespaces(const struct report *r)
{
    for (char *const *p = r->patterns; *p; p++)
        if (strchr(strchr(*p, '/') + 1, '/'))
            return true;
    return false;
}

static int each_pool(const struct report *r, const char *pool, bool named, struct err *e)
{
    const char *const name[2] = {pool, ""};
    rados_ioctx_t io;
    int rc = cluster_pool(r->c, pool, "", &io, e);
    if (rc < 0)
        return rc;
    if (matches(r, 2, name))
        rc = each_image(r, io, pool, "", named, e);
    if (rc == 0 && has_namespaces(r))
        rc = each_namespace(r, io, pool, named, e);
    r->c->lib->rados_ioctx_destroy(io);
    return rc;
}

/* Whether all patterns are exact names: what is wrong with them is an error then. */
static bool are_exact(const struct report *r)
{
    bool exact = true;
    for (char *const *p = r->patterns; *p; p++)
        exact = exact && **p == '=';
    return exact;
}

/* A pool that a pattern names, and that is not there: a mistake, or another cluster. */
static void skip_absent(const struct report *r, const char *pools)
{
    char part[3][NAME_MAX_RBD];
    for (char *const *p = r->patterns; *p; p++) {
        bool there = **p == '=' || pattern_split(*p, part, NULL) < 0 || part[0][strcspn(part[0], WILD)];
        for (const char *s = pools; !there && *s; s += strlen(s) + 1)
            there = strcmp(s, part[0]) == 0;
        if (!there)
            json_array_append_new(r->skipped, json_sprintf("%s: there is no such pool in Ceph", part[0]));
    }
}

static int walk_pools(const struct report *r, struct err *e)
{
    CLEANUP_FREE char *pools = NULL;
    int n = 16384, room = 0;
    const bool exact = are_exact(r);
    while (n > room) {
        room = n;
        free(pools);
        if (!(pools = malloc((size_t)room)))
            return err_nomem(e);
        n = r->c->lib->rados_pool_list(r->c->rados, pools, (size_t)room);
        if (n < 0)
            return ceph_error(e, n, "cannot list the pools of Ceph");
    }
    int rc = 0;
    skip_absent(r, pools);
    for (const char *s = pools; rc == 0 && *s; s += strlen(s) + 1) {
        struct err why = ERR_INIT;
        if (!matches(r, 1, &s))
            continue;
        rc = each_pool(r, s, exact, &why);
        if (rc < 0 && !exact && why.cls != ERR_MEMORY) {
            skip(r, s, &why);
            rc = 0;
        } else if (rc < 0 && e) {
            *e = why;
        }
    }
    return rc;
}

int report_make(const struct cluster *c, char *const *patterns, json_t **ret, struct err *e)
{
    char part[3][NAME_MAX_RBD];
    struct report r = {c, patterns, json_array(), json_array()};
    int rc = r.images && r.skipped ? 0 : err_nomem(e);
    for (char *const *p = patterns; rc == 0 && *p; p++)
        rc = pattern_split(*p + (**p == '='), part, e);
    if (rc == 0)
        rc = walk_pools(&r, e);
    if (rc < 0) {
        json_decref(r.images);
        json_decref(r.skipped);
        return rc;
    }
    *ret = json_pack("{s:s, s:o, s:o}", "fsid", c->fsid, "images", r.images, "skipped", r.skipped);
    return *ret ? 0 : err_nomem(e);
}
