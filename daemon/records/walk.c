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
           (!f->state || f->state == state) && (!f->live || state < row_types[k].terminal) &&
           (!f->before || h->seq < f->before) && (!f->since_ns || h->updated_ns >= f->since_ns);
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
        if (obj->seq > f->after && matches(k, f, obj->now) && put_number(ret, obj->seq) < 0)
            return -ENOMEM;
    return 0;
}

/* ---- on disk ---- */

enum { SHAPE_PARENT = 1, SHAPE_VOLUME = 2, SHAPE_STATE = 4, SHAPE_NEWEST = 8, SHAPE_COUNT = 16 };

/* Numbers between these two. */
struct range {
    sqlite3_int64 above, below;
};
static const struct range all_numbers = {-1, INT64_MAX};

/* The statement for finished rows, with its values bound: ?1 parent, ?2 volume, ?3 state, ?4 limit, ?5 and ?6 the range
 * of numbers, ?7 the oldest time of change. */
static int list_stmt(struct records *r, enum row_kind k, const struct row_filter *f, struct range range, int limit,
                     sqlite3_stmt **ret, struct err *e)
{
    const bool count = limit == 0;
    unsigned s = (f->parent ? SHAPE_PARENT : 0u) | (f->volume_id ? SHAPE_VOLUME : 0u) | (f->state ? SHAPE_STATE : 0u) |
                 (f->newest_first && !count ? SHAPE_NEWEST : 0u) | (count ? SHAPE_COUNT : 0u);
    struct connection *c = records_reader(r);
    sqlite3_stmt **slot = &c->lists[k][s];
    char sql[700];
    snprintf(
        sql, sizeof sql,
        "SELECT %s FROM %s WHERE " RECORDS_ENDED_SQL("state") " AND seq > ?5 AND seq < ?6 AND updated_ns >= ?7%s%s%s%s",
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
        sqlite3_bind_int(*slot, 4, limit);
    sqlite3_bind_int64(*slot, 5, range.above);
    sqlite3_bind_int64(*slot, 6,
                       f->before && f->before < (uint64_t)range.below ? (sqlite3_int64)f->before : range.below);
    sqlite3_bind_int64(*slot, 7, f->since_ns ? f->since_ns : INT64_MIN);
    return 0;
}

/* ---- both ---- */

#define PAGE 100 /* numbers of finished rows that are read at once */

/* The rows in memory as they are when it begins, merged with those on disk page by page. A transaction's own changes
 * are in memory, and may be on disk as they were before or as they are now. */
struct walk {
    struct records *r;
    enum row_kind kind;
    const struct row_filter *f;
    struct numbers memory, page;
    size_t memory_at, page_at;
    struct range left; /* on disk */
    bool more;         /* there may be rows in it */
};

static int walk_begin(struct walk *w, struct err *e)
{
    struct numbers *m = &w->memory;
    w->more = wants_disk(w->kind, w->f);
    /* None that is added meanwhile. */
    w->left = (struct range){w->f->after ? (sqlite3_int64)w->f->after : -1, (sqlite3_int64)w->r->next_seq};
    if (numbers_in_memory(w->r, w->kind, w->f, m) < 0)
        return err_nomem(e);
    for (size_t i = 0; w->f->newest_first && i < m->n / 2; i++) {
        uint64_t x = m->v[i];
        m->v[i] = m->v[m->n - 1 - i];
        m->v[m->n - 1 - i] = x;
    }
    return 0;
}

static int walk_page(struct walk *w, struct err *e)
{
    const int most = w->f->limit && w->f->limit < PAGE ? (int)w->f->limit : PAGE;
    sqlite3_stmt *st;
    if (w->page_at < w->page.n || !w->more)
        return 0;
    free(w->page.v);
    w->page = (struct numbers){.v = NULL};
    w->page_at = 0;
    int rc = list_stmt(w->r, w->kind, w->f, w->left, most, &st, e);
    if (rc < 0 || (rc = records_collect(records_reader(w->r), st, &w->page.v, &w->page.n, e)) < 0)
        return rc;
    w->more = w->page.n == (size_t)most;
    if (w->more)
        *(w->f->newest_first ? &w->left.below : &w->left.above) = (sqlite3_int64)w->page.v[w->page.n - 1];
    return 0;
}

/* The number of the next row. 0: there is none. */
static int walk_next(struct walk *w, uint64_t *ret, struct err *e)
{
    int rc = walk_page(w, e);
    if (rc < 0)
        return rc;
    const uint64_t *a = w->memory_at < w->memory.n ? &w->memory.v[w->memory_at] : NULL;
    const uint64_t *b = w->page_at < w->page.n ? &w->page.v[w->page_at] : NULL;
    if (!a && !b)
        return 0;
    const uint64_t next = !b || (a && (*a < *b) != w->f->newest_first) ? *a : *b;
    w->memory_at += a && *a == next;
    w->page_at += b && *b == next;
    *ret = next;
    return 1;
}

static void walk_end(struct walk *w)
{
    free(w->memory.v);
    free(w->page.v);
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
    if (!disk || image_replaces(&r->image, k, seq))
        return 0;
    if ((*ret = image_recent(&r->image, k, seq))) {
        version_ref(*ret);
        return 0;
    }
    int rc = records_kind_stmt(records_reader(r), k, KS_BY_SEQ, &st, e);
    if (rc < 0)
        return rc;
    sqlite3_bind_int64(st, 1, (sqlite3_int64)seq);
    rc = records_fetch(r, k, st, ret, e);
    if (rc == 0)
        image_note_recent(&r->image, *ret);
    return rc == -ENOENT || (rc == -EBADMSG && !r->noted.corrupt) ? 0 : rc; /* gone meanwhile, or set aside */
}

int row_each(struct records *r, enum row_kind k, const struct row_filter *f, row_fn *fn, void *arg, struct err *e)
{
    struct walk w = {.r = r, .kind = k, .f = f ? f : &no_filter};
    uint64_t seq = 0, left = w.f->limit ? w.f->limit : UINT64_MAX;
    int rc = records_ready(r, e);
    if (rc >= 0)
        rc = walk_begin(&w, e);
    /* One that was finished after the walk began is on disk. */
    const bool disk = wants_disk(k, w.f);
    while (rc == 0 && left && (rc = walk_next(&w, &seq, e)) > 0) {
        struct version *v;
        rc = version_at(r, k, seq, disk, &v, e);
        if (rc == 0 && v && matches(k, w.f, v)) {
            left--;
            rc = fn(v->data, arg);
        }
        version_unref(v);
    }
    walk_end(&w);
    return rc;
}

/* ---- by a part of the id ---- */

struct part {
    const char *head, *tail;
    row_fn *fn;
    void *arg;
};

static int visit_part(const void *row, void *arg)
{
    const struct part *p = arg;
    const char *id = ((const struct row *)row)->id;
    const size_t n = strlen(id), head = strlen(p->head), tail = strlen(p->tail);
    const bool is = n >= head + tail && !strncmp(id, p->head, head) && !strcmp(id + n - tail, p->tail);
    return is ? p->fn(row, p->arg) : 0;
}

int row_each_part(struct records *r, enum row_kind k, const char *head, const char *tail, unsigned limit, row_fn *fn,
                  void *arg, struct err *e)
{
    const struct row_filter live = {.live = true, .newest_first = true};
    struct part p = {head, tail, fn, arg};
    CLEANUP_FREE uint64_t *found = NULL;
    char after[1024];
    sqlite3_stmt *st;
    size_t n = 0;
    int rc = row_each(r, k, &live, visit_part, &p, e);
    if (rc || row_types[k].terminal == INT_MAX)
        return rc;
    /* No id has the last character of Unicode: all that begin with the head come before this. */
    snprintf(after, sizeof after, "%.1000s\xf4\x8f\xbf\xbf", head);
    if ((rc = records_kind_stmt(records_reader(r), k, KS_BY_PART, &st, e)) < 0)
        return rc;
    sqlite3_bind_text(st, 1, head, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 2, after, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 3, tail, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 4, limit);
    rc = records_collect(records_reader(r), st, &found, &n, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct version *v;
        rc = version_at(r, k, found[i], true, &v, e);
        if (rc == 0 && v && version_state(v) >= row_types[k].terminal)
            rc = visit_part(v->data, &p);
        version_unref(v);
    }
    return rc;
}

/* ---- counting ---- */

static int count_on_disk(struct records *r, enum row_kind k, const struct row_filter *f, struct range range,
                         uint64_t *ret, struct err *e)
{
    CLEANUP_FREE uint64_t *one = NULL;
    sqlite3_stmt *st;
    size_t n;
    int rc = list_stmt(r, k, f, range, 0, &st, e);
    if (rc < 0 || (rc = records_collect(records_reader(r), st, &one, &n, e)) < 0)
        return rc;
    *ret = n ? one[0] : 0;
    return 0;
}

/* The row of one number is on disk as it was before the transaction or as it is now, and is counted in memory. */
static int leave_out(struct records *r, enum row_kind k, const struct row_filter *f, struct version *v, uint64_t *ret,
                     struct err *e)
{
    uint64_t n;
    const sqlite3_int64 seq = v ? (sqlite3_int64)version_row(v)->seq : 0;
    int rc = v ? count_on_disk(r, k, f, (struct range){seq - 1, seq + 1}, &n, e) : 0;
    if (v && rc >= 0)
        *ret -= n;
    return rc;
}

/* Finished rows that are not in memory. */
static int count_others(struct records *r, enum row_kind k, const struct row_filter *f, uint64_t *ret, struct err *e)
{
    int rc = count_on_disk(r, k, f, all_numbers, ret, e);
    for (const struct object *obj = r->image.changed; rc >= 0 && obj; obj = obj->next_changed) {
        if (obj->kind != k)
            continue;
        rc = leave_out(r, k, f, obj->was, ret, e);
        if (rc >= 0 && obj->now && (!obj->was || version_row(obj->was)->seq != obj->seq))
            rc = leave_out(r, k, f, obj->now, ret, e);
    }
    return rc;
}

static uint64_t count_in_memory(const struct records *r, enum row_kind k, const struct row_filter *f)
{
    const enum order o = order_of(f);
    uint64_t n = 0;
    if (o != BY_AGE || f->before || f->since_ns) {
        for (const struct object *obj = first_of(r, k, f, o); obj; obj = obj->younger[o])
            n += matches(k, f, obj->now);
        return n;
    }
    for (int s = 0; s < OP_STATES; s++)
        if ((!f->state || f->state == s) && (!f->live || s < row_types[k].terminal))
            n += r->image.states[k][s];
    return n;
}

int row_count(struct records *r, enum row_kind k, const struct row_filter *f, uint64_t *ret, struct err *e)
{
    *ret = 0;
    if (!f)
        f = &no_filter;
    int rc = records_ready(r, e);
    if (rc >= 0 && wants_disk(k, f)) {
        /* One state of the database for all that is read: a commit may end meanwhile. */
        sqlite3 *db = r->image.changed ? records_reader(r)->db : NULL;
        if (db)
            sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
        rc = count_others(r, k, f, ret, e);
        if (db)
            sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    }
    if (rc < 0)
        return rc;
    *ret += count_in_memory(r, k, f);
    if (f->limit && *ret > f->limit)
        *ret = f->limit;
    return 0;
}
