/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/incremental.h"

#include "base/cleanup.h"
#include "daemon/mover/volume-json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CONTENT_BYTES_MAX ((size_t)1 << 28) /* the format's limit (section 8.2) */

static int refuse(struct incremental *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Everything is read: that is no error. */
static int refuse(struct incremental *x, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(x->why, sizeof x->why, fmt, ap);
    va_end(ap);
    return 0;
}

/* Adds what the list cannot know: from the last byte of the shorter image on nothing is common. The last chunk of the
 * parent ended where the volume did, which is no cut. */
static int add_difference_of_sizes(struct incremental *x, uint64_t size, struct err *e)
{
    x->common = x->parent_size < size ? x->parent_size : size;
    if (x->parent_size == size)
        return 0;
    return changes_add(x->changes, x->common - 1, size - (x->common - 1), e);
}

static int parent_use(struct incremental *x, struct repo *r, const struct snapshot *s, const struct splitter *splitter,
                      uint64_t section, uint64_t size, const char *state, struct err *e)
{
    struct volume_parent v;
    if (*s->incomplete)
        return refuse(x, "snapshot %s is incomplete", s->id);
    volume_parent_read(&v, r, s, x->changes);
    if (!v.usable)
        return refuse(x, "snapshot %s cannot be read, or has no image", s->id);
    if (state && strcmp(v.state, state) != 0)
        return refuse(x, "snapshot %s was not made of the native snapshot that the changes refer to", s->id);
    if (strcmp(v.splitter, splitter->name) != 0)
        return refuse(x, "snapshot %s was split by %s, this one is split by %s", s->id, v.splitter, splitter->name);
    if (v.section != section)
        return refuse(x, "snapshot %s has sections of another length", s->id);
    if (v.covered == 0 || size == 0)
        return refuse(x, "%s is empty", v.covered ? "the volume" : "the image of the parent snapshot");
    memcpy(x->parent, s->id, sizeof x->parent);
    x->image = v.image;
    x->parent_size = v.covered;
    int rc = add_difference_of_sizes(x, size, e);
    changes_finish(x->changes);
    if (rc == 0)
        rc = unchanged_new(&x->unchanged, r, &v.image, v.covered, x->changes, size, e);
    return rc;
}

int incremental_open(struct incremental *x, struct repo *r, const struct backup_opts *o,
                     const struct splitter *splitter, uint64_t section, uint64_t size, struct err *e)
{
    struct err why = ERR_INIT;
    struct snapshot s;
    *x = (struct incremental){0};
    int rc = changes_new(&x->changes, e);
    if (rc == 0)
        rc = changes_add_all(x->changes, o->incremental->changes, e);
    if (rc < 0)
        return rc;
    rc = snapshot_find(r, o->incremental->parent, &o->as, &s, &why);
    if (rc < 0 && (why.cls == ERR_NOT_FOUND || why.cls == ERR_USAGE))
        return refuse(x, "%.200s", why.msg);
    if (rc < 0) {
        if (e)
            *e = why;
        return rc;
    }
    if (snapshot_source_equal(&s.source, &o->as)) {
        rc = parent_use(x, r, &s, splitter, section, size, o->incremental->state, e);
    } else {
        rc = refuse(x, "snapshot %s is of another source", s.id);
    }
    snapshot_clear(&s);
    return rc;
}

void incremental_close(struct incremental *x)
{
    unchanged_free(x->unchanged);
    changes_free(x->changes);
    x->unchanged = NULL;
    x->changes = NULL;
}

/* Whether each content of one level of an object exists: documents, or at last its data. An error counts as no: the run
 * will meet it. */
static bool level_is_there(struct repo *r, const struct object_id *level)
{
    struct object_parts *parts CLEANUP(object_parts_freep) = NULL;
    struct object_part part;
    struct content_id last = {.len = 0};
    uint64_t count;
    int rc = object_parts_open(&parts, r, level, NULL);
    while (rc >= 0 && (rc = object_parts_next_run(parts, &part, &count, NULL)) > 0) {
        if (content_id_equal(&part.id.content, &last)) /* zeros, mostly */
            continue;
        if (repo_has(r, &part.id.content, NULL) <= 0)
            return false;
        last = part.id.content;
    }
    return rc == 0;
}

bool incremental_is_same(const struct incremental *x, struct repo *r, uint64_t size)
{
    if (!x->unchanged || x->parent_size != size || changes_count(x->changes) > 0)
        return false;
    for (unsigned level = 0; level <= x->image.indirection; level++) {
        struct object_id o = x->image;
        o.indirection = (uint8_t)level;
        if (!level_is_there(r, &o))
            return false;
    }
    return true;
}

void incremental_find_damage(const struct incremental *x, struct repo *r)
{
    struct content_reader *c CLEANUP(content_reader_freep) = NULL;
    if (content_reader_new(&c, r, NULL) < 0)
        return;
    for (unsigned level = 0; level < x->image.indirection; level++) {
        struct object_parts *parts CLEANUP(object_parts_freep) = NULL;
        struct object_part part;
        struct object_id o = x->image;
        o.indirection = (uint8_t)level;
        int rc = object_parts_open(&parts, r, &o, NULL);
        while (rc >= 0 && object_parts_next(parts, &part, NULL) > 0) {
            uint8_t *data CLEANUP_FREE = NULL;
            content_get(c, &part.id.content, &data, CONTENT_BYTES_MAX, NULL);
        }
    }
}

uint64_t incremental_memory(const struct incremental *x, const struct splitter *splitter)
{
    const uint64_t chunk = splitter->max + SOURCE_READ_EXTRA; /* one read apart, one of the sample */
    return unchanged_memory(x->unchanged, splitter->max) + changes_memory(x->changes) + 2 * chunk;
}

size_t incremental_block(const struct splitter *splitter)
{
    return splitter->max >= (4u << 20) ? (size_t)256 << 10 : (size_t)128 << 10;
}
