/* SPDX-License-Identifier: GPL-2.0-or-later */
/* shards.c - the sharding of the file system provider: document .shards and the paths derived from it */
#include "repo/shards.h"
#include "base/cleanup.h"
#include "repo/blob.h"
#include "repo/json-member.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* More levels or overrides than a name of 255 characters could use: malformed. */
#define LEVELS_MAX 256
#define OVERRIDES_MAX 4096

struct shape {
    int *lengths;
    size_t n;
};

struct override {
    char *prefix;
    struct shape shape;
};

struct shards {
    int64_t max_unsharded; /* names of at most this length lie in the root */
    struct shape def;
    struct override *overrides;
    size_t n_overrides;
};

void shards_free(struct shards *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_overrides; i++) {
        free(s->overrides[i].prefix);
        free(s->overrides[i].shape.lengths);
    }
    free(s->overrides);
    free(s->def.lengths);
    free(s);
}

static bool shape_same(const struct shape *a, const struct shape *b)
{
    return a->n == b->n && (!a->n || memcmp(a->lengths, b->lengths, a->n * sizeof *a->lengths) == 0);
}

bool shards_same(const struct shards *a, const struct shards *b)
{
    bool same =
        a->max_unsharded == b->max_unsharded && shape_same(&a->def, &b->def) && a->n_overrides == b->n_overrides;
    for (size_t i = 0; same && i < a->n_overrides; i++)
        same = !strcmp(a->overrides[i].prefix, b->overrides[i].prefix) &&
               shape_same(&a->overrides[i].shape, &b->overrides[i].shape);
    return same;
}

static int shards_malformed(struct err *e, const char *what)
{
    err_set(e, ERR_DAMAGE, EBADMSG, "not a document of shard lengths (%s)", what);
    if (e)
        e->sys = EINVAL;
    return -EINVAL;
}

static int read_shape(struct shape *ret, const json_t *list, struct err *e)
{
    if (!list)
        return 0;
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > LEVELS_MAX)
        return shards_malformed(e, "the shards must be a list of numbers");
    ret->lengths = calloc(n ? n : 1, sizeof *ret->lengths);
    if (!ret->lengths)
        return err_nomem(e);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT_MAX)
            return shards_malformed(e, "a shard's length must be a non-negative number");
        ret->lengths[i] = (int)json_integer_value(v);
    }
    ret->n = n;
    return 0;
}

static int read_override(struct override *ret, const json_t *doc, struct err *e)
{
    const char *prefix = "";
    if (!json_is_object(doc) || !json_member_text(doc, "prefix", &prefix))
        return shards_malformed(e, "an override must have a prefix and shards");
    ret->prefix = strdup(prefix);
    if (!ret->prefix)
        return err_nomem(e);
    return read_shape(&ret->shape, json_member(doc, "shards"), e);
}

static int read_document(struct shards *s, const json_t *doc, struct err *e)
{
    if (!json_is_object(doc))
        return shards_malformed(e, "it must be an object");
    s->max_unsharded = 0; /* what stock clients take for a missing member; 20 is only written */
    if (!json_member_int(doc, "maxNonShardedLength", INT_MIN, INT_MAX, &s->max_unsharded))
        return shards_malformed(e, "maxNonShardedLength must be a number");
    int rc = read_shape(&s->def, json_member(doc, "default"), e);
    if (rc < 0)
        return rc;
    const json_t *list = json_member(doc, "overrides");
    if (!list)
        return 0;
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > OVERRIDES_MAX)
        return shards_malformed(e, "overrides must be a list");
    s->overrides = calloc(n ? n : 1, sizeof *s->overrides);
    if (!s->overrides)
        return err_nomem(e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        s->n_overrides = i + 1;
        rc = read_override(&s->overrides[i], json_array_get(list, i), e);
    }
    return rc;
}

int shards_parse(struct shards **ret, const char *json, size_t len, struct err *e)
{
    json_error_t je;
    json_t *doc = json_loadb(json, len, 0, &je);
    if (!doc)
        return shards_malformed(e, je.text);
    CLEANUP(shards_freep) struct shards *s = calloc(1, sizeof *s);
    int rc = s ? read_document(s, doc, e) : err_nomem(e);
    json_decref(doc);
    if (rc == 0)
        *ret = take_ptr(&s);
    return rc;
}

int shards_make(struct shards **ret, const int *lengths, size_t n, struct err *e)
{
    CLEANUP(shards_freep) struct shards *s = calloc(1, sizeof *s);
    if (!s)
        return err_nomem(e);
    s->max_unsharded = 20;
    s->def.lengths = calloc(n ? n : 1, sizeof *s->def.lengths);
    if (!s->def.lengths)
        return err_nomem(e);
    s->def.n = n;
    for (size_t i = 0; i < n; i++) {
        if (n > LEVELS_MAX || lengths[i] < 0)
            return err_set(e, ERR_USAGE, EINVAL, "shard lengths must not be negative");
        s->def.lengths[i] = lengths[i];
    }
    *ret = take_ptr(&s);
    return 0;
}

char *shards_document(const struct shards *s)
{
    size_t cap = 64 + s->def.n * 12;
    char *out = malloc(cap);
    if (!out)
        return NULL;
    size_t at = (size_t)snprintf(out, cap, "{\"default\":[");
    for (size_t i = 0; i < s->def.n; i++)
        at += (size_t)snprintf(out + at, cap - at, "%s%d", i ? "," : "", s->def.lengths[i]);
    snprintf(out + at, cap - at, "],\"maxNonShardedLength\":%d}\n", (int)s->max_unsharded);
    return out;
}

static const struct shape *shape_of(const struct shards *s, const char *name)
{
    for (size_t i = 0; i < s->n_overrides; i++)
        if (strncmp(name, s->overrides[i].prefix, strlen(s->overrides[i].prefix)) == 0)
            return &s->overrides[i].shape;
    return &s->def;
}

int shards_locate(const struct shards *s, const char *name, char *out)
{
    size_t at = 0;
    const char *rest = name;
    size_t len = strlen(name);
    if (len == 0 || len > BLOB_NAME_MAX || strchr(name, '/'))
        return -EINVAL;
    if ((int64_t)len > s->max_unsharded) {
        const struct shape *shape = shape_of(s, name);
        for (size_t i = 0; i < shape->n; i++) {
            size_t n = (size_t)shape->lengths[i];
            if (len <= n)
                break;
            /* Stock clients clean their paths: empty components and "." disappear. ".." would leave the root. */
            if (n == 2 && memcmp(rest, "..", 2) == 0)
                return -EINVAL;
            if (n > 1 || (n == 1 && rest[0] != '.')) {
                memcpy(out + at, rest, n);
                at += n;
                out[at++] = '/';
            }
            rest += n;
            len -= n;
        }
    }
    memcpy(out + at, rest, len);
    memcpy(out + at + len, BLOB_SUFFIX, sizeof BLOB_SUFFIX);
    return 0;
}
