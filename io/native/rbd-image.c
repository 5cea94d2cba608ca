/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rbd-image.c - names, labels and owner tags of images */
#include "io/native/rbd.h"

#include "base/cleanup.h"
#include "io/native/json-fields.h"

#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1
#define WILD "*?[\\"

/* ---- names ---- */

void rbd_name_of(const struct rbd_image *i, char ret[VOLUME_NAME_MAX])
{
    snprintf(ret, VOLUME_NAME_MAX, "%s/%s%s%s", i->pool, i->space, *i->space ? "/" : "", i->name);
}

int rbd_name_check(const char *name, struct err *e)
{
    const char *a = strchr(name, '/'), *b = a ? strchr(a + 1, '/') : NULL, *last = b ? b : a;
    if (a && a > name && last[1] && (!b || b > a + 1) && !strchr(last + 1, '/') && !strchr(name, '@') &&
        strlen(name) < RBD_PART_MAX * 3 && name[0] != '=')
        return 0;
    return err_set(e, ERR_USAGE, EINVAL, "\"%.256s\" is not of the form POOL/IMAGE or POOL/NAMESPACE/IMAGE", name);
}

bool rbd_is_label(const char *word)
{
    return strncmp(word, "pool:", 5) == 0 || strncmp(word, "tag:", 4) == 0;
}

static bool match_label(const char *pattern, const char *labels)
{
    CLEANUP_FREE char *copy = strdup(labels);
    char *save = NULL;
    for (char *s = copy ? strtok_r(copy, " ", &save) : NULL; s; s = strtok_r(NULL, " ", &save))
        if (fnmatch(pattern, s, FNM_PATHNAME) == 0)
            return true;
    return false;
}

bool rbd_is_matched(const struct driver_class *c, const struct volume *v)
{
    for (size_t i = 0; c->match && c->match[i]; i++)
        if (rbd_is_label(c->match[i]) ? match_label(c->match[i], v->labels)
                                      : fnmatch(c->match[i], v->name, FNM_PATHNAME) == 0)
            return true;
    return false;
}

/* ---- patterns ---- */

struct words {
    char **v;
    size_t n, room;
};

static int words_add(struct words *w, const char *text, size_t len, const char *tail, struct err *e)
{
    if (w->n + 1 >= w->room)
        return err_set(e, ERR_USAGE, E2BIG, "too many patterns");
    if (asprintf(&w->v[w->n], "%.*s%s", (int)len, text, tail) < 0) {
        w->v[w->n] = NULL;
        return err_nomem(e);
    }
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->v[i], w->v[w->n]) == 0) {
            free(w->v[w->n]);
            w->v[w->n] = NULL;
            return 0;
        }
    w->n++;
    return 0;
}

void rbd_patterns_free(char ***patterns)
{
    for (size_t i = 0; *patterns && (*patterns)[i]; i++)
        free((*patterns)[i]);
    free(*patterns);
}

int rbd_patterns(const struct driver_class *c, bool wide, char ***ret, struct err *e)
{
    size_t n = 0;
    while (c->match && c->match[n])
        n++;
    struct words w = {calloc(2 * n + 1, sizeof *w.v), 0, 2 * n + 1};
    int rc = w.v ? 0 : err_nomem(e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const char *word = c->match[i], *pool = strncmp(word, "pool:", 5) == 0 ? word + 5 : "*";
        if (rbd_is_label(word)) {
            rc = words_add(&w, pool, strlen(pool), "/*", e);
            if (rc == 0)
                rc = words_add(&w, pool, strlen(pool), "/*/*", e);
        } else if (wide) {
            rc = words_add(&w, word, (size_t)(strrchr(word, '/') - word), "/*", e);
        } else {
            rc = words_add(&w, word, strlen(word), "", e);
        }
    }
    *ret = w.v;
    return rc;
}

/* ---- volumes ---- */

static void label_add(struct volume *v, const char *kind, const char *text)
{
    const size_t used = strlen(v->labels), room = sizeof v->labels - used;
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7f)
            return;
    if (*text && used + strlen(kind) + strlen(text) + 2 < sizeof v->labels)
        snprintf(v->labels + used, room, "%s%s%s", used ? " " : "", kind, text);
}

static void label_words(struct volume *v, const char *text)
{
    CLEANUP_FREE char *copy = strdup(text);
    char *save = NULL;
    for (char *s = copy ? strtok_r(copy, " ,\t", &save) : NULL; s; s = strtok_r(NULL, " ,\t", &save))
        label_add(v, "tag:", s);
}

void rbd_describe(const struct rbd_report *r, const struct rbd_image *i, struct volume *ret)
{
    const char *key;
    json_t *value;
    memset(ret, 0, sizeof *ret);
    rbd_name_of(i, ret->name);
    snprintf(ret->id, sizeof ret->id, "rbd:%s:%" PRIu64 ":%s", r->fsid, i->pool_id, i->id);
    snprintf(ret->pool, sizeof ret->pool, "rbd:%s:%" PRIu64, r->fsid, i->pool_id);
    ret->size = i->size;
    ret->allocated = UINT64_MAX;
    ret->sector = 512;
    ret->block = true;
    ret->in_use = i->watched;
    label_add(ret, "pool:", i->pool);
    json_object_foreach((json_t *)(uintptr_t)i->meta, key, value)
    {
        char text[512];
        if (strcmp(key, RBD_WORDS) == 0)
            label_words(ret, json_string_value(value));
        else if (strncmp(key, "snapferry.", 10) != 0 && /* ours */
                 snprintf(text, sizeof text, "%s=%s", key, json_string_value(value)) < (int)sizeof text)
            label_add(ret, "tag:", text);
    }
}

bool rbd_id_split(char id[VOLUME_ID_MAX], struct rbd_image *ret, const char **fsid)
{
    char *save = NULL, *end = NULL;
    const char *kind = strtok_r(id, ":", &save), *cluster = strtok_r(NULL, ":", &save);
    const char *pool = strtok_r(NULL, ":", &save), *image = strtok_r(NULL, "", &save);
    *ret = (struct rbd_image){.id = image};
    if (!image || strcmp(kind, "rbd") != 0)
        return false;
    ret->pool_id = strtoull(pool, &end, 10);
    *fsid = cluster;
    return end && !*end;
}

bool rbd_snap_find(const struct rbd_image *i, const char *name, struct rbd_snap *ret)
{
    const json_t *j;
    size_t n;
    json_array_foreach(i->snaps, n, j)
    {
        const char *s = json_string_value(json_object_get(j, "name"));
        if (!s || strcmp(s, name) != 0)
            continue;
        *ret = (struct rbd_snap){s, (uint64_t)json_integer_value(json_object_get(j, "id")),
                                 (uint64_t)json_integer_value(json_object_get(j, "size"))};
        return true;
    }
    return false;
}

/* ---- marks ---- */

int rbd_mark_write(const struct driver_class *c, const char *fsid, const struct rbd_image *i, json_t *own, char **ret,
                   struct err *e)
{
    json_t *j = json_pack("{s:i, s:s, s:s}", "version", VERSION, "node", c->node, "cluster", fsid);
    json_t *of = i ? json_pack("{s:o, s:s}", "pool_id", u64_json(i->pool_id), "image", i->id) : json_object();
    const bool good = own && j && of && json_object_update(own, j) == 0 && json_object_update(own, of) == 0;
    *ret = good ? json_dumps(own, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(own);
    json_decref(of);
    json_decref(j);
    return *ret ? 0 : err_nomem(e);
}

static bool is_of(const json_t *j, const char *key, const char *text)
{
    const char *s = json_string_value(json_object_get(j, key));
    return s && strcmp(s, text) == 0;
}

json_t *rbd_mark_read(const struct driver_class *c, const struct rbd_report *r, const struct rbd_image *i,
                      const char *key, const char *alias)
{
    static const char what[] = "tag";
    uint64_t version, pool;
    const char *text = json_string_value(json_object_get(i->meta, key));
    json_t *j = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (json_is_object(j) && field_u64(j, what, "version", &version, true, NULL) == 0 && version == VERSION &&
        is_of(j, "cluster", r->fsid) && is_of(j, "image", i->id) &&
        field_u64(j, what, "pool_id", &pool, true, NULL) == 0 && pool == i->pool_id && is_of(j, "node", c->node) &&
        is_of(j, "alias", alias))
        return j;
    json_decref(j);
    return NULL;
}

/* ---- the owner tag ---- */

void rbd_tag_key(const char *alias, char ret[64])
{
    snprintf(ret, 64, RBD_OWNER "%.36s", alias);
}

int rbd_tag_write(const struct driver_class *c, const struct rbd_report *r, const struct rbd_image *i,
                  const struct native_tag *tag, char **ret, struct err *e)
{
    return rbd_mark_write(c, r->fsid, i, native_tag_json(tag), ret, e);
}

int rbd_tag_read(const struct driver_class *c, const struct rbd_report *r, const struct rbd_image *i, const char *alias,
                 struct rbd_tag *ret)
{
    char key[64];
    memset(ret, 0, sizeof *ret);
    rbd_tag_key(alias, key);
    json_t *j = rbd_mark_read(c, r, i, key, alias);
    const bool good = j && native_tag_from_json(&ret->tag, j, "tag", NULL) == 0;
    const json_int_t snap = json_integer_value(json_object_get(j, "snap"));
    ret->snap = snap > 0 ? (uint64_t)snap : 0;
    json_decref(j);
    return good ? 0 : -ENODATA;
}

bool rbd_native_of(const struct rbd_report *r, const struct rbd_image *i, const struct rbd_tag *t, struct native *ret)
{
    char name[VOLUME_NAME_MAX], snap[64];
    struct rbd_snap s;
    memset(ret, 0, sizeof *ret);
    ret->tag = t->tag;
    ret->used = UINT64_MAX;
    ret->crash_consistent = true;
    rbd_name_of(i, name);
    snprintf(snap, sizeof snap, RBD_PREFIX "%.36s", t->tag.alias);
    snprintf(ret->handle, sizeof ret->handle, "%.4000s@%s", name, snap);
    if (!t->snap || !rbd_snap_find(i, snap, &s) || s.id != t->snap)
        return false;
    ret->size = s.size;
    snprintf(ret->change_id, sizeof ret->change_id, "rbd:%s:%" PRIu64 ":%s:%" PRIu64, r->fsid, i->pool_id, i->id, s.id);
    return true;
}

int rbd_tags(const struct driver_class *c, const struct rbd_report *r, rbd_tag_fn *fn, void *arg, struct err *e)
{
    CLEANUP_FREE struct rbd_tag *t = malloc(sizeof *t);
    int rc = t ? 0 : err_nomem(e);
    for (size_t i = 0; rc == 0 && i < r->n; i++) {
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)(uintptr_t)r->image[i].meta, key, value)
        {
            if (rc == 0 && strncmp(key, RBD_OWNER, sizeof RBD_OWNER - 1) == 0 &&
                alias_valid(key + sizeof RBD_OWNER - 1) &&
                rbd_tag_read(c, r, &r->image[i], key + sizeof RBD_OWNER - 1, t) == 0)
                rc = fn(r, &r->image[i], t, arg);
        }
    }
    return rc;
}

/* ---- finding ---- */

int rbd_report_of(struct rbd_report *ret, const struct driver_class *c, const char *name, struct err *e)
{
    char exact[VOLUME_NAME_MAX + 1];
    const char *const names[] = {exact, NULL};
    *ret = (struct rbd_report){.doc = NULL};
    int rc = rbd_name_check(name, e);
    if (rc < 0)
        return rc;
    snprintf(exact, sizeof exact, "=%s", name);
    rc = rbd_report_read(ret, c, names, e);
    if (rc == 0 && ret->n == 0)
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "there is no image %s", name);
    return rc;
}

static const struct rbd_image *image_with(const struct driver_class *c, const struct rbd_report *r, const char *alias,
                                          struct rbd_tag *t)
{
    for (size_t i = 0; i < r->n; i++)
        if (rbd_tag_read(c, r, &r->image[i], alias, t) == 0)
            return &r->image[i];
    return NULL;
}

int rbd_find_ours(const struct driver_class *c, struct rbd_report *r, const char *hint, const char *alias,
                  const struct rbd_image **image, struct rbd_tag *t, struct err *e)
{
    char exact[VOLUME_NAME_MAX + 1];
    CLEANUP(rbd_patterns_free) char **patterns = NULL;
    *r = (struct rbd_report){.doc = NULL};
    if (!alias_valid(alias))
        return err_set(e, ERR_USAGE, EINVAL, "invalid alias \"%.64s\"", alias);
    snprintf(exact, sizeof exact, "=%.*s", (int)strcspn(hint, "@"), hint);
    if (*hint && rbd_name_check(exact + 1, NULL) == 0) {
        const char *const names[] = {exact, NULL};
        int rc = rbd_report_read(r, c, names, e);
        if (rc < 0)
            return rc;
        if ((*image = image_with(c, r, alias, t)))
            return 0;
        rbd_report_free(r);
    }
    int rc = rbd_patterns(c, true, &patterns, e);
    if (rc == 0 && patterns[0])
        rc = rbd_report_read(r, c, (const char *const *)patterns, e);
    if (rc < 0)
        return rc;
    return (*image = image_with(c, r, alias, t)) ? 0 : -ENOENT;
}
