/* SPDX-License-Identifier: GPL-2.0-or-later */
/* walk.c - rows by what they have in common: those in memory, and finished ones from disk */
#include "daemon/records/records-impl.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct row_filter no_filter;

/* Whether rows that are only on disk may match. */
static bool wants_disk(enum row_kind k, const struct row_filter *f)
{
    int terminal = row_types[k].terminal;
    return terminal != INT_MAX && !f->live && (!f->state || f->state >= terminal);
}

static bool matches(enum row_kind k, const struct row_filter *f, struct version *v)
{
    const struct row *h = version_row(v);
    int state = version_state(v);
    return (!f->parent || !strcmp(f->parent, h->parent)) && (!f->volume_id || !strcmp(f->volume_id, h->volume_id)) &&
           (!f->state || f->state == state) && (!f->live || state < row_types[k].terminal);
}

/* ---- in memory ---- */

/* The shortest list that has all that match. */
static enum order order_of(const struct row_filter *f)
{
    return f->parent ? BY_PARENT : f->volume_id ? BY_VOLUME : BY_AGE;
}

static struct object *first_of(const struct records *r, enum row_kind k, const struct row_filter *f, enum order o)
{
    return image_first(&r->image, k, o, o == BY_PARENT ? f->parent : f->volume_id);
}

struct numbers {
    uint64_t *v;
    size_t n, cap;
};

static int put_number(struct numbers *x, uint64_t seq)
{
    if (x->n == x->cap) {
        size_t cap = x->cap ? 2 * x->cap : 64;
        uint64_t *more = reallocarray(x->v, cap, sizeof *more);
        if (!more)
            return -ENOMEM;
        x->v = more;
        x->cap = cap;
    }
    x->v[x->n++] = seq;
    return 0;
}

static int numbers_in_memory(const struct records *r, enum row_kind k, const struct row_filter *f, struct numbers *ret)
{
    enum order o = order_of(f);
    for (const struct object *obj = first_of(r, k, f, o); obj; obj = obj->younger[o])
        if (matches(k, f, obj->now) && put_number(ret, obj->seq) < 0)
            return -ENOMEM;
    return 0;
}

/* ---- on disk ---- */

enum { SHAPE_PARENT = 1, SHAPE_VOLUME = 2, SHAPE_STATE = 4, SHAPE_NEWEST = 8, SHAPE_COUNT = 16 };

/* The statement for finished rows, with its values bound: ?1 parent, ?2 volume, ?3 state, ?4 limit. */
static int list_stmt(struct records *r, enum row_kind k, const struct row_filter *f, bool count, sqlite3_stmt **ret,
                     struct err *e)
{
    unsigned s = (f->parent ? SHAPE_PARENT : 0u) | (f->volume_id ? SHAPE_VOLUME : 0u) | (f->state ? SHAPE_STATE : 0u) |
                 (f->newest_first && !count ? SHAPE_NEWEST : 0u) | (count ? SHAPE_COUNT : 0u);
    struct connection *c = records_reader(r);
    sqlite3_stmt **slot = &c->lists[k][s];
    char sql[512];
    snprintf(sql, sizeof sql, "SELECT %s FROM %s WHERE state IN " RECORDS_TERMINAL_SQL "%s%s%s%s",
             count ? "count(*)" : "seq", row_types[k].table, s & SHAPE_PARENT ? " AND parent=?1" : "",
             s & SHAPE_VOLUME ? " AND volume=?2" : "", s & SHAPE_STATE ? " AND state=?3" : "",
             count              ? ""
             : s & SHAPE_NEWEST ? " ORDER BY seq DESC LIMIT ?4"
                                : " ORDER BY seq LIMIT ?4");
    int rc = records_prepare(c, slot, sql, e);
    if (rc < 0)
        return rc;
    *ret = *slot;
    if (f->parent)
        sqlite3_bind_text(*slot, 1, f->parent, -1, SQLITE_STATIC);
    if (f->volume_id)
        sqlite3_bind_text(*slot, 2, f->volume_id, -1, SQLITE_STATIC);
    if (f->state)
        sqlite3_bind_text(*slot, 3, enum_name(row_types[k].states, f->state), -1, SQLITE_STATIC);
    if (!count)
        sqlite3_bind_int64(*slot, 4, f->limit ? (sqlite3_int64)f->limit : -1);
    return 0;
}

static int numbers_on_disk(struct records *r, enum row_kind k, const struct row_filter *f, struct numbers *ret,
                           struct err *e)
{
    sqlite3_stmt *st;
    int rc = list_stmt(r, k, f, false, &st, e);
    if (rc < 0 || (rc = records_collect(records_reader(r), st, &ret->v, &ret->n, e)) < 0)
        return rc;
    ret->cap = ret->n;
    return 0;
}

/* ---- both ---- */

static int oldest_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int newest_first(const void *a, const void *b)
{
    return oldest_first(b, a);
}

/* What matches now. A transaction's own changes are in memory, and may be on disk as they were before. */
static int numbers(struct records *r, enum row_kind k, const struct row_filter *f, struct numbers *ret, struct err *e)
{
    int rc = 0;
    if (wants_disk(k, f))
        rc = numbers_on_disk(r, k, f, ret, e);
    if (rc >= 0 && numbers_in_memory(r, k, f, ret) < 0)
        rc = err_nomem(e);
    if (rc < 0)
        return rc;
    if (ret->n && (wants_disk(k, f) || f->newest_first))
        qsort(ret->v, ret->n, sizeof *ret->v, f->newest_first ? newest_first : oldest_first);
    size_t n = 0;
    for (size_t i = 0; i < ret->n; i++)
        if ((n == 0 || ret->v[n - 1] != ret->v[i]) && !image_replaces(&r->image, k, ret->v[i]))
            ret->v[n++] = ret->v[i];
    ret->n = n;
    return 0;
}

/* The row of a number as it is now, with a reference; NULL: it is gone, or cannot be used. */
static int version_at(struct records *r, enum row_kind k, uint64_t seq, bool disk, struct version **ret, struct err *e)
{
    sqlite3_stmt *st;
    const struct object *obj = image_find_seq(&r->image, k, seq);
    *ret = NULL;
    if (obj) {
        *ret = obj->now ? version_ref(obj->now) : NULL;
        return 0;
    }
    if (!disk)
        return 0;
    int rc = records_kind_stmt(records_reader(r), k, KS_BY_SEQ, &st, e);
    if (rc < 0)
        return rc;
    sqlite3_bind_int64(st, 1, (sqlite3_int64)seq);
    rc = records_fetch(r, k, st, ret, e);
    return rc == -ENOENT || (rc == -EBADMSG && !r->noted.corrupt) ? 0 : rc; /* gone meanwhile, or set aside */
}

int row_each(struct records *r, enum row_kind k, const struct row_filter *f, row_fn *fn, void *arg, struct err *e)
{
    struct numbers x = {.v = NULL};
    unsigned left;
    if (!f)
        f = &no_filter;
    left = f->limit;
    int rc = records_ready(r, e);
    if (rc >= 0)
        rc = numbers(r, k, f, &x, e);
    /* One that was finished after the numbers were taken is on disk. */
    const bool disk = wants_disk(k, f);
    for (size_t i = 0; rc == 0 && i < x.n && (!f->limit || left); i++) {
        struct version *v;
        rc = version_at(r, k, x.v[i], disk, &v, e);
        if (rc == 0 && v && matches(k, f, v)) {
            left--;
            rc = fn(v->data, arg);
        }
        version_unref(v);
    }
    free(x.v);
    return rc;
}

static int count_both(struct records *r, enum row_kind k, const struct row_filter *f, uint64_t *ret, struct err *e)
{
    struct numbers x = {.v = NULL};
    struct row_filter all = *f;
    all.limit = 0;
    int rc = numbers(r, k, &all, &x, e);
    for (size_t i = 0; rc >= 0 && i < x.n; i++) {
        /* On disk and not in memory it is as it was found. */
        const struct object *obj = image_find_seq(&r->image, k, x.v[i]);
        *ret += !obj || (obj->now && matches(k, f, obj->now));
    }
    free(x.v);
    return rc;
}

int row_count(struct records *r, enum row_kind k, const struct row_filter *f, uint64_t *ret, struct err *e)
{
    sqlite3_stmt *st;
    CLEANUP_FREE uint64_t *one = NULL;
    size_t n = 0;
    *ret = 0;
    if (!f)
        f = &no_filter;
    int rc = records_ready(r, e);
    if (rc < 0)
        return rc;
    if (image_is_changed(&r->image) && wants_disk(k, f)) {
        rc = count_both(r, k, f, ret, e);
    } else {
        enum order o = order_of(f);
        if (wants_disk(k, f) && ((rc = list_stmt(r, k, f, true, &st, e)) < 0 ||
                                 (rc = records_collect(records_reader(r), st, &one, &n, e)) < 0))
            return rc;
        *ret = n ? one[0] : 0;
        if (o == BY_AGE)
            for (int s = 0; s < OP_STATES; s++)
                *ret +=
                    (!f->state || f->state == s) && (!f->live || s < row_types[k].terminal) ? r->image.states[k][s] : 0;
        else
            for (const struct object *obj = first_of(r, k, f, o); obj; obj = obj->younger[o])
                *ret += matches(k, f, obj->now);
    }
    if (f->limit && *ret > f->limit)
        *ret = f->limit;
    return rc;
}
