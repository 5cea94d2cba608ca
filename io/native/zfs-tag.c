/* SPDX-License-Identifier: GPL-2.0-or-later */
/* zfs-tag.c - properties and holds of ours */
#include "io/native/zfs.h"

#include "base/cleanup.h"
#include "io/native/json-fields.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1
#define HOLD "snapferry:"
#define GROUP "group"

static const char *const kinds[] = {"native", "intermediate", "staging", "replaced"};
#define N_KINDS (sizeof kinds / sizeof *kinds)

/* ---- the owner tag ---- */

/* Guids have 64 bits, integers of JSON one less. */
static json_t *guid_json(uint64_t guid)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, guid);
    return json_string(text);
}

static int guid_read(const json_t *j, const char *key, uint64_t *ret)
{
    char text[24], *end;
    if (field_text(j, "tag", key, text, sizeof text, true, NULL) < 0)
        return -ENODATA;
    errno = 0;
    *ret = strtoull(text, &end, 10);
    return text[0] < '0' || text[0] > '9' || *end || errno ? -ENODATA : 0;
}

static json_t *tag_document(const struct zfs_tag *t)
{
    json_t *j = native_tag_json(&t->tag);
    json_t *more =
        json_pack("{s:i, s:s, s:s, s:o, s:o, s:o}", "version", VERSION, "kind", kinds[t->kind], "node", t->node, "pool",
                  guid_json(t->pool), "volume", guid_json(t->volume), "size", u64_json(t->size));
    json_t *last = NULL;
    if (t->kind == ZFS_INTERMEDIATE)
        last = json_pack("{s:b, s:s}", "read_only", (int)t->read_only, "class", t->klass);
    else if (t->kind != ZFS_NATIVE)
        last = json_pack("{s:b, s:b, s:s}", "overwrite", (int)t->overwrite, "thick", (int)t->thick, "final", t->final);
    bool good = j && more && json_object_update(j, more) == 0 && (t->kind == ZFS_NATIVE || last) &&
                (!last || json_object_update(j, last) == 0);
    json_decref(more);
    json_decref(last);
    if (!good) {
        json_decref(j);
        return NULL;
    }
    return j;
}

/* Takes `list` over. */
static int value_write(json_t *list, char ret[ZFS_VALUE_MAX], const char *of, struct err *e)
{
    CLEANUP_FREE char *text = list ? json_dumps(list, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(list);
    if (!text)
        return err_nomem(e);
    if (strlen(text) >= ZFS_VALUE_MAX)
        return err_set(e, ERR_USAGE, E2BIG, "the owner tag of %.256s is too long for a property of ZFS", of);
    memcpy(ret, text, strlen(text) + 1);
    return 0;
}

int zfs_tag_write(const struct zfs_tag *t, char ret[ZFS_VALUE_MAX], struct err *e)
{
    return value_write(json_pack("[o]", tag_document(t)), ret, t->tag.volume_name, e);
}

static int tag_fields(const json_t *j, struct zfs_tag *t)
{
    static const char what[] = "tag";
    char kind[32];
    uint64_t version;
    if (!json_is_object(j) || field_u64(j, what, "version", &version, true, NULL) < 0 || version != VERSION ||
        field_text(j, what, "kind", kind, sizeof kind, true, NULL) < 0 ||
        field_text(j, what, "node", t->node, sizeof t->node, true, NULL) < 0 || !t->node[0] ||
        field_u64(j, what, "size", &t->size, true, NULL) < 0 || guid_read(j, "pool", &t->pool) < 0 ||
        guid_read(j, "volume", &t->volume) < 0 || native_tag_from_json(&t->tag, j, what, NULL) < 0)
        return -ENODATA;
    size_t k = 0;
    while (k < N_KINDS && strcmp(kinds[k], kind) != 0)
        k++;
    t->kind = (enum zfs_kind)k;
    if (k == N_KINDS)
        return -ENODATA;
    if (t->kind == ZFS_INTERMEDIATE && (field_bool(j, what, "read_only", &t->read_only, NULL) < 0 ||
                                        field_text(j, what, "class", t->klass, sizeof t->klass, true, NULL) < 0))
        return -ENODATA;
    if ((t->kind == ZFS_STAGING || t->kind == ZFS_REPLACED) &&
        (field_bool(j, what, "overwrite", &t->overwrite, NULL) < 0 ||
         field_bool(j, what, "thick", &t->thick, NULL) < 0 ||
         field_text(j, what, "final", t->final, sizeof t->final, true, NULL) < 0))
        return -ENODATA;
    return 0;
}

/* ---- the tag of a group ---- */

static json_t *group_document(const struct zfs_tag *const *t, size_t n)
{
    json_t *members = json_object();
    for (size_t i = 0; i < n; i++) {
        char guid[24];
        snprintf(guid, sizeof guid, "%" PRIu64, t[i]->volume);
        if (json_object_set_new(members, guid, json_string(t[i]->tag.alias)) < 0) {
            json_decref(members);
            return NULL;
        }
    }
    return json_pack("{s:i, s:s, s:s, s:o, s:I, s:o}", "version", VERSION, "kind", GROUP, "node", t[0]->node, "pool",
                     guid_json(t[0]->pool), "created_ns", (json_int_t)t[0]->tag.created_ns, "members", members);
}

int zfs_group_tag_write(const struct zfs_tag *const *t, size_t n, char ret[ZFS_VALUE_MAX], struct err *e)
{
    return value_write(json_pack("[o]", group_document(t, n)), ret, "a group", e);
}

/* The member that a snapshot is by the guid of its volume. */
static int group_fields(const json_t *j, const struct zfs_row *row, uint64_t volume, struct zfs_tag *t)
{
    static const char what[] = "tag";
    char kind[32], guid[24], dataset[ZFS_NAME_MAX];
    uint64_t version;
    snprintf(guid, sizeof guid, "%" PRIu64, volume);
    if (!row->snapshot || !json_is_object(j) || field_u64(j, what, "version", &version, true, NULL) < 0 ||
        version != VERSION || field_text(j, what, "kind", kind, sizeof kind, true, NULL) < 0 ||
        strcmp(kind, GROUP) != 0 || field_text(j, what, "node", t->node, sizeof t->node, true, NULL) < 0 ||
        !t->node[0] || guid_read(j, "pool", &t->pool) < 0 ||
        field_i64(j, what, "created_ns", &t->tag.created_ns, NULL) < 0 ||
        field_alias(json_object_get(j, "members"), what, guid, t->tag.alias, true, NULL) < 0)
        return -ENODATA;
    t->kind = ZFS_NATIVE;
    t->unfinished = true;
    t->volume = volume;
    t->size = row->size;
    snprintf(t->tag.volume_id, sizeof t->tag.volume_id, "zfs:%s", guid);
    zfs_dataset_of(row->name, dataset);
    zfs_path(dataset, t->tag.volume_name);
    return 0;
}

int zfs_tag_read(const struct zfs_row *row, uint64_t pool, uint64_t volume, struct zfs_tag *ret)
{
    if (!row->owner[0])
        return -ENODATA;
    json_t *list = json_loads(row->owner, JSON_REJECT_DUPLICATES, NULL);
    const json_t *j = json_is_array(list) && json_array_size(list) == 1 ? json_array_get(list, 0) : NULL;
    memset(ret, 0, sizeof *ret);
    int rc = tag_fields(j, ret);
    if (rc < 0) {
        memset(ret, 0, sizeof *ret);
        rc = group_fields(j, row, volume, ret);
    }
    json_decref(list);
    return rc == 0 && ret->pool == pool ? 0 : -ENODATA;
}

bool zfs_has_our_name(const char *name)
{
    const char *slash = strrchr(name, '/');
    return strncmp(slash ? slash + 1 : name, ZFS_PREFIX, sizeof ZFS_PREFIX - 1) == 0;
}

bool zfs_is_ours(const struct zfs_row *row, const struct zfs_tag *t)
{
    return t->kind == ZFS_STAGING || t->kind == ZFS_REPLACED ? zfs_has_our_name(row->name) : true;
}

/* ---- the id that a volume has inherited ---- */

void zfs_inherited_write(const char *id, uint64_t guid, const char *restored, char ret[ZFS_VALUE_MAX])
{
    snprintf(ret, ZFS_VALUE_MAX, "%" PRIu64 " %s %s", guid, restored, id);
}

static bool inherited_read(const struct zfs_row *row, char id[VOLUME_ID_MAX], char restored[ALIAS_LEN + 1])
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-";
    char guid[24];
    const char *s = row->volume;
    const int n = snprintf(guid, sizeof guid, "%" PRIu64 " ", row->guid);
    if (strncmp(s, guid, (size_t)n) != 0 || strlen(s) < (size_t)n + ALIAS_LEN + 2)
        return false;
    s += n;
    snprintf(restored, ALIAS_LEN + 1, "%.*s", ALIAS_LEN, s);
    s += ALIAS_LEN;
    if (!alias_valid(restored) || *s++ != ' ' || !*s || s[strspn(s, allowed)] || strlen(s) >= VOLUME_ID_MAX)
        return false;
    snprintf(id, VOLUME_ID_MAX, "%s", s);
    return true;
}

void zfs_volume_id(const struct zfs_row *row, char ret[VOLUME_ID_MAX])
{
    char restored[ALIAS_LEN + 1];
    if (!inherited_read(row, ret, restored))
        snprintf(ret, VOLUME_ID_MAX, "zfs:%" PRIu64, row->guid);
}

bool zfs_restored_by(const struct zfs_row *row, const char *alias)
{
    char id[VOLUME_ID_MAX], restored[ALIAS_LEN + 1];
    return inherited_read(row, id, restored) && strcmp(restored, alias) == 0;
}

/* ---- holds ---- */

int zfs_hold_write(const struct zfs_hold *h, char ret[ZFS_NAME_MAX], struct err *e)
{
    const int n = snprintf(ret, ZFS_NAME_MAX, HOLD "%s:%" PRId64 ":%s", h->alias, h->created_ns, h->node);
    if (n >= ZFS_NAME_MAX)
        return err_set(e, ERR_USAGE, E2BIG, "the name of node %.64s is too long for a hold of ZFS", h->node);
    return 0;
}

bool zfs_hold_read(const char *tag, struct zfs_hold *ret)
{
    char *end;
    memset(ret, 0, sizeof *ret);
    if (strncmp(tag, HOLD, sizeof HOLD - 1) != 0 || strlen(tag) < sizeof HOLD - 1 + ALIAS_LEN + 2)
        return false;
    tag += sizeof HOLD - 1;
    snprintf(ret->alias, sizeof ret->alias, "%.*s", ALIAS_LEN, tag);
    tag += ALIAS_LEN;
    if (!alias_valid(ret->alias) || *tag++ != ':')
        return false;
    errno = 0;
    ret->created_ns = strtoll(tag, &end, 10);
    if (end == tag || *end != ':' || errno || strlen(end + 1) >= sizeof ret->node || !end[1])
        return false;
    snprintf(ret->node, sizeof ret->node, "%s", end + 1);
    return true;
}
