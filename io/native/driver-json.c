/* SPDX-License-Identifier: GPL-2.0-or-later */
/* driver-json.c - volumes, native snapshots, exposures and restore targets as JSON documents */
#include "io/native/driver.h"
#include "io/native/json-fields.h"

#include <errno.h>
#include <string.h>

static int load_object(const json_t *j, const char *what, struct err *e)
{
    return json_is_object(j) ? 0 : err_set(e, ERR_GENERIC, EINVAL, "%s: not a JSON object", what);
}

json_t *volume_to_json(const struct volume *v)
{
    return json_pack("{s:s, s:s, s:s, s:s*, s:o, s:o, s:I, s:b, s:b}", "name", v->name, "id", v->id, "pool", v->pool,
                     "labels", v->labels[0] ? v->labels : NULL, "size", u64_json(v->size), "allocated",
                     u64_json(v->allocated), "sector", (json_int_t)v->sector, "block", (int)v->block, "in_use",
                     (int)v->in_use);
}

/* Only what identifies it is required: a volume found by its native snapshot has nothing else. */
int volume_from_json(struct volume *ret, const json_t *j, struct err *e)
{
    static const char what[] = "volume";
    uint64_t sector = 0;
    int rc;
    memset(ret, 0, sizeof *ret);
    if ((rc = load_object(j, what, e)) < 0 ||
        (rc = field_text(j, what, "name", ret->name, sizeof ret->name, true, e)) < 0 ||
        (rc = field_text(j, what, "id", ret->id, sizeof ret->id, true, e)) < 0 ||
        (rc = field_text(j, what, "pool", ret->pool, sizeof ret->pool, false, e)) < 0 ||
        (rc = field_text(j, what, "labels", ret->labels, sizeof ret->labels, false, e)) < 0 ||
        (rc = field_u64(j, what, "size", &ret->size, true, e)) < 0 ||
        (rc = field_u64(j, what, "allocated", &ret->allocated, false, e)) < 0 ||
        (rc = field_u64(j, what, "sector", &sector, false, e)) < 0 ||
        (json_object_get(j, "block") && (rc = field_bool(j, what, "block", &ret->block, e)) < 0) ||
        (json_object_get(j, "in_use") && (rc = field_bool(j, what, "in_use", &ret->in_use, e)) < 0))
        return rc;
    if (sector != UINT64_MAX && sector > UINT32_MAX)
        return field_bad(what, "sector", "is too large", e);
    ret->sector = sector == UINT64_MAX ? 512 : (uint32_t)sector;
    return 0;
}

json_t *native_tag_json(const struct native_tag *t)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:o}", "alias", t->alias, "volume_id", t->volume_id,
                     "volume_name", t->volume_name, "backup", t->backup, "operation", t->operation, "repository",
                     t->repository, "created_ns", (json_int_t)t->created_ns, "seq", u64_json(t->seq));
}

int native_tag_from_json(struct native_tag *t, const json_t *j, const char *what, struct err *e)
{
    int rc;
    memset(t, 0, sizeof *t);
    if ((rc = load_object(j, what, e)) < 0 || (rc = field_alias(j, what, "alias", t->alias, true, e)) < 0 ||
        (rc = field_text(j, what, "volume_id", t->volume_id, sizeof t->volume_id, true, e)) < 0 ||
        (rc = field_text(j, what, "volume_name", t->volume_name, sizeof t->volume_name, true, e)) < 0 ||
        (rc = field_text(j, what, "backup", t->backup, sizeof t->backup, false, e)) < 0 ||
        (rc = field_text(j, what, "operation", t->operation, sizeof t->operation, false, e)) < 0 ||
        (rc = field_text(j, what, "repository", t->repository, sizeof t->repository, false, e)) < 0 ||
        (rc = field_i64(j, what, "created_ns", &t->created_ns, e)) < 0 ||
        (rc = field_u64(j, what, "seq", &t->seq, true, e)) < 0)
        return rc;
    return 0;
}

json_t *native_to_json(const struct native *n)
{
    json_t *j = native_tag_json(&n->tag);
    json_t *more =
        json_pack("{s:s, s:o, s:o, s:b, s:s}", "handle", n->handle, "size", u64_json(n->size), "used",
                  u64_json(n->used), "crash_consistent", (int)n->crash_consistent, "change_id", n->change_id);
    if (!j || !more || json_object_update(j, more) < 0) {
        json_decref(j);
        j = NULL;
    }
    json_decref(more);
    return j;
}

int native_from_json(struct native *ret, const json_t *j, struct err *e)
{
    static const char what[] = "native snapshot";
    int rc;
    memset(ret, 0, sizeof *ret);
    if ((rc = native_tag_from_json(&ret->tag, j, what, e)) < 0 ||
        (rc = field_text(j, what, "handle", ret->handle, sizeof ret->handle, true, e)) < 0 ||
        (rc = field_u64(j, what, "size", &ret->size, true, e)) < 0 ||
        (rc = field_u64(j, what, "used", &ret->used, false, e)) < 0 ||
        (rc = field_bool(j, what, "crash_consistent", &ret->crash_consistent, e)) < 0 ||
        (rc = field_text(j, what, "change_id", ret->change_id, sizeof ret->change_id, false, e)) < 0 ||
        (json_object_get(j, "gone") && (rc = field_bool(j, what, "gone", &ret->gone, e)) < 0) ||
        (json_object_get(j, "removed") && (rc = field_bool(j, what, "removed", &ret->removed, e)) < 0))
        return rc;
    return 0;
}

json_t *exposure_to_json(const struct exposure *x)
{
    return json_pack("{s:s, s:b, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:f}", "mechanism",
                     expose_mechanism_name(x->mechanism), "read_only", (int)x->read_only, "path", x->path, "handle",
                     x->handle, "alias", x->alias, "class", x->klass, "where", x->where, "size", u64_json(x->size),
                     "copied", u64_json(x->copied), "seconds", x->seconds);
}

int exposure_from_json(struct exposure *ret, const json_t *j, struct err *e)
{
    static const char what[] = "exposure";
    int rc;
    memset(ret, 0, sizeof *ret);
    if ((rc = load_object(j, what, e)) < 0 || (rc = field_mechanism(j, what, "mechanism", &ret->mechanism, e)) < 0 ||
        (rc = field_bool(j, what, "read_only", &ret->read_only, e)) < 0 ||
        (rc = field_text(j, what, "path", ret->path, sizeof ret->path, true, e)) < 0 ||
        (rc = field_text(j, what, "handle", ret->handle, sizeof ret->handle, true, e)) < 0 ||
        (rc = field_alias(j, what, "alias", ret->alias, false, e)) < 0 ||
        (rc = field_text(j, what, "class", ret->klass, sizeof ret->klass, true, e)) < 0 ||
        (rc = field_text(j, what, "where", ret->where, sizeof ret->where, true, e)) < 0 ||
        (rc = field_u64(j, what, "size", &ret->size, true, e)) < 0 ||
        (rc = field_u64(j, what, "copied", &ret->copied, true, e)) < 0 ||
        (rc = field_real(j, what, "seconds", &ret->seconds, e)) < 0)
        return rc;
    return 0;
}

json_t *target_to_json(const struct restore_target *t)
{
    return json_pack("{s:s, s:s, s:s, s:o}", "path", t->path, "handle", t->handle, "final", t->final, "size",
                     u64_json(t->size));
}

int target_from_json(struct restore_target *ret, const json_t *j, struct err *e)
{
    static const char what[] = "restore target";
    int rc;
    memset(ret, 0, sizeof *ret);
    if ((rc = load_object(j, what, e)) < 0 ||
        (rc = field_text(j, what, "path", ret->path, sizeof ret->path, true, e)) < 0 ||
        (rc = field_text(j, what, "handle", ret->handle, sizeof ret->handle, true, e)) < 0 ||
        (rc = field_text(j, what, "final", ret->final, sizeof ret->final, true, e)) < 0 ||
        (rc = field_u64(j, what, "size", &ret->size, true, e)) < 0)
        return rc;
    return 0;
}
