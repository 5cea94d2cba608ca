/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/volume-json.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHECKPOINTED_PREFIX ".checkpointed." VOLUME_IMAGE_NAME "."

/* A string that may not be UTF-8, as paths may not: then every byte above 0x7f is percent-encoded. */
static json_t *text(const char *s)
{
    json_t *j = json_string(s);
    if (j)
        return j;
    char *out CLEANUP_FREE = malloc(3 * strlen(s) + 1);
    if (!out)
        return NULL;
    char *p = out;
    for (; *s; s++) {
        if ((unsigned char)*s < 0x80 && *s != '%')
            *p++ = *s;
        else
            p += sprintf(p, "%%%02X", (unsigned char)*s);
    }
    *p = '\0';
    return json_string(out);
}

static json_t *number(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *when(int64_t ns)
{
    char t[TIME_TEXT];
    return json_string(time_text(ns, t));
}

static const char *media_name(enum source_media m)
{
    switch (m) {
    case MEDIA_HDD:
        return "hdd";
    case MEDIA_SSD:
        return "ssd";
    case MEDIA_NVME:
        return "nvme";
    case MEDIA_NETWORK:
        return "network";
    case MEDIA_UNKNOWN:
        break;
    }
    return "unknown";
}

static json_t *source_object(const struct source_info *s)
{
    json_t *o = json_object();
    int rc = json_object_set_new(o, "path", text(s->path));
    rc |= json_object_set_new(o, "id", text(s->id));
    rc |= json_object_set_new(o, "idKind", text(s->id_kind));
    rc |= json_object_set_new(o, "media", json_string(media_name(s->media)));
    rc |= json_object_set_new(o, "mountedReadWrite", json_boolean(s->mounted_rw));
    if (rc == 0)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *coverage_object(const struct volume_doc *v)
{
    const struct pipeline_stats *st = v->stats;
    json_t *o = json_object();
    int rc = json_object_set_new(o, "hole", number(st->hole_bytes));
    rc |= json_object_set_new(o, "zero", number(st->zero_bytes));
    rc |= json_object_set_new(o, "duplicate", number(st->duplicate_bytes));
    rc |= json_object_set_new(o, "new", number(st->new_bytes));
    rc |= json_object_set_new(o, "hinted", number(st->hinted_bytes));
    rc |= json_object_set_new(o, "cloned", number(st->cloned_bytes));
    rc |= json_object_set_new(o, "read", number(v->read_bytes));
    rc |= json_object_set_new(o, "bad", number(v->bad_bytes));
    if (rc == 0)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *bad_list(const struct volume_doc *v)
{
    json_t *list = json_array();
    int rc = list ? 0 : -1;
    for (size_t i = 0; i < v->n_bad && rc == 0; i++) {
        json_t *range = json_array();
        rc = json_array_append_new(range, number(v->bad[i].pos));
        rc |= json_array_append_new(range, number(v->bad[i].len));
        rc |= json_array_append_new(range, json_integer(v->bad[i].sys));
        rc |= json_array_append_new(list, range);
    }
    if (rc == 0)
        return list;
    json_decref(list);
    return NULL;
}

json_t *volume_json_new(const struct volume_doc *v)
{
    const struct source_info *s = v->source;
    json_t *o = json_object();
    int rc = json_object_set_new(o, "version", json_integer(1));
    rc |= json_object_set_new(o, "snapferry", json_string(SNAPFERRY_VERSION));
    rc |= json_object_set_new(o, "driver", json_string(s->is_nbd ? "nbd" : s->is_block ? "device" : "file"));
    rc |= json_object_set_new(o, "source", source_object(s));
    rc |= json_object_set_new(o, "size", number(s->size));
    rc |= json_object_set_new(o, "sectorSize", number(s->sector));
    rc |= json_object_set_new(o, "physicalSectorSize", number(s->physical));
    rc |= json_object_set_new(o, "splitter", json_string(v->splitter->name));
    rc |= json_object_set_new(o, "section", number(v->section == UINT64_MAX ? 0 : v->section));
    const char *compression = v->compression ? compress_name(v->compression) : NULL;
    rc |= json_object_set_new(o, "compression", json_string(compression ? compression : "none"));
    rc |= json_object_set_new(o, "parent", *v->parent ? json_string(v->parent) : json_null());
    rc |= json_object_set_new(o, "startTime", when(v->start_ns));
    rc |= json_object_set_new(o, "endTime", when(v->end_ns));
    rc |= json_object_set_new(o, "complete", json_boolean(v->complete));
    rc |= json_object_set_new(o, "covered", number(v->stats->pos));
    rc |= json_object_set_new(o, "coverage", coverage_object(v));
    rc |= json_object_set_new(o, "badRanges", bad_list(v));
    if (v->facts)
        rc |= json_object_update(o, v->facts);
    if (rc == 0)
        return o;
    json_decref(o);
    return NULL;
}

/* ---- reading ---- */

struct lookup {
    struct object_id image, doc;
};

static int keep_entry(struct dir_entry *d, void *arg)
{
    struct lookup *l = arg;
    if (d->type != 'f')
        return 0;
    if (strcmp(d->name, VOLUME_IMAGE_NAME) == 0 ||
        strncmp(d->name, CHECKPOINTED_PREFIX, sizeof CHECKPOINTED_PREFIX - 1) == 0)
        l->image = d->obj;
    else if (strcmp(d->name, VOLUME_JSON_NAME) == 0)
        l->doc = d->obj;
    return 0;
}

static void jsonp(json_t **j)
{
    json_decref(*j);
}

/* Adds the parent's unreadable ranges to the list. False: they cannot be read. */
static bool bad_parse(struct changes *bad, const json_t *list)
{
    size_t i;
    const json_t *range;
    if (!json_is_array(list))
        return false;
    json_array_foreach(list, i, range)
    {
        const json_t *pos = json_array_get(range, 0), *len = json_array_get(range, 1);
        if (!json_is_integer(pos) || !json_is_integer(len) || json_integer_value(pos) < 0 ||
            json_integer_value(len) <= 0 ||
            changes_add(bad, (uint64_t)json_integer_value(pos), (uint64_t)json_integer_value(len), NULL) < 0)
            return false;
    }
    return true;
}

static bool parse(struct volume_parent *ret, const uint8_t *p, size_t len, struct changes *bad)
{
    json_t *o CLEANUP(jsonp) = json_loadb((const char *)p, len, JSON_REJECT_DUPLICATES, NULL);
    const char *splitter = json_string_value(json_object_get(o, "splitter"));
    const json_t *section = json_object_get(o, "section"), *covered = json_object_get(o, "covered");
    if (json_integer_value(json_object_get(o, "version")) != 1 || !splitter ||
        strlen(splitter) >= sizeof ret->splitter || !json_is_integer(section) || json_integer_value(section) < 0 ||
        !json_is_integer(covered) || json_integer_value(covered) < 0 ||
        (bad && !bad_parse(bad, json_object_get(o, "badRanges"))))
        return false;
    strcpy(ret->splitter, splitter);
    ret->section = (uint64_t)json_integer_value(section);
    if (!ret->section)
        ret->section = UINT64_MAX;
    ret->covered = (uint64_t)json_integer_value(covered);
    const char *state = json_string_value(json_object_get(o, "changeId"));
    if (state && strlen(state) < sizeof ret->state)
        strcpy(ret->state, state);
    return true;
}

void volume_parent_read(struct volume_parent *ret, struct repo *r, const struct snapshot *s, struct changes *bad)
{
    struct err e = ERR_INIT;
    struct lookup l = {0};
    *ret = (struct volume_parent){0};
    int64_t rc = s->root.type == 'd' ? dir_each(r, &s->root.obj, keep_entry, &l, &e) : 0;
    uint8_t *doc CLEANUP_FREE = NULL;
    if (rc == 0 && l.doc.content.len && l.image.content.len)
        rc = object_get(r, &l.doc, &doc, VOLUME_JSON_MAX, &e);
    if (rc < 0) {
        log_warning("cannot use the parent snapshot %s: %s", s->id, e.msg);
        return;
    }
    if (!doc || !parse(ret, doc, (size_t)rc, bad)) {
        log_warning("the parent snapshot %s is not a volume: its chunk boundaries are not used", s->id);
        return;
    }
    ret->image = l.image;
    ret->usable = true;
}
