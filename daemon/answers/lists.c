/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lists.c - operations and backups in pages, and what `describe` shows
 *
 * Rows that have not ended are in memory. Ended ones are read from disk, the newest first and no more of them than a
 * page needs.
 */
#include "daemon/answers/answers-impl.h"

#include "base/nearest.h"
#include "base/time.h"
#include "daemon/records/names.h"
#include "daemon/records/step-answer.h"

#include <errno.h>

#define RECENT_NS (7 * NS_PER_DAY)

struct page {
    const struct answer_facts *facts;
    const struct answer_query *query;
    enum row_kind kind;
    json_t *list;
    uint64_t last, last_live; /* the last ended row of the page, and the last one that has not ended */
    size_t bytes;
    int state;            /* only rows that are shown with it, STATE_ANY: all */
    bool expired;         /* only such backups */
    bool more, live_left; /* there are others; that have not ended */
};

static bool has_ended(enum row_kind k, int state)
{
    return k == ROW_OPERATION ? op_state_terminal((enum op_state)state)
                              : backup_state_terminal((enum backup_state)state);
}

/* States as they are shown, where they are not those of the row: none is an enum's. */
enum { STATE_ANY = 0, STATE_IS_UNKNOWN = -1 };

/* One that has expired is Completed as far as its row shows. */
static int state_wanted(enum row_kind k, const char *state)
{
    return !*state                                            ? STATE_ANY
           : k == ROW_BACKUP && !strcmp(state, STATE_UNKNOWN) ? STATE_IS_UNKNOWN
           : k == ROW_BACKUP && !strcmp(state, STATE_EXPIRED) ? (int)BACKUP_COMPLETED
                                                              : enum_value(row_types[k].states, state);
}

static int state_shown(enum row_kind k, const void *row)
{
    const struct backup *b = k == ROW_BACKUP ? row : NULL;
    return b && b->deleting[0] ? (int)BACKUP_DELETING : b && b->unproven ? STATE_IS_UNKNOWN : row_state(k, row);
}

static bool page_wants(const struct page *p, const void *row)
{
    const struct answer_query *q = p->query;
    const struct row *r = row;
    const char *name = p->kind == ROW_OPERATION ? ((const struct operation *)row)->volume->name : "";
    return (p->state == STATE_ANY || p->state == state_shown(p->kind, row)) &&
           (!*q->backup || !strcmp(q->backup, r->parent)) &&
           (!*q->volume || !strcmp(q->volume, r->volume_id) || !strcmp(q->volume, name));
}

/* 1: the page is full. */
static int page_add(struct page *p, const void *row)
{
    const struct answer_query *q = p->query;
    if (p->expired && !backup_has_expired(p->facts, row))
        return 0;
    if ((q->limit && json_array_size(p->list) >= q->limit) || (q->max_bytes && p->bytes >= q->max_bytes)) {
        p->more = true;
        return 1;
    }
    json_t *o = p->kind == ROW_OPERATION ? operation_line(p->facts, row) : backup_line(p->facts, row);
    if (!o)
        return -ENOMEM;
    if (q->max_bytes)
        p->bytes += json_dumpb(o, NULL, 0, JSON_COMPACT);
    return json_array_append_new(p->list, o) < 0 ? -ENOMEM : 0;
}

static int add_live_row(const void *row, void *arg)
{
    struct page *p = arg;
    const int rc = page_wants(p, row) ? page_add(p, row) : 0;
    if (rc == 0)
        p->last_live = ((const struct row *)row)->seq;
    return rc;
}

static int add_ended_row(const void *row, void *arg)
{
    struct page *p = arg;
    if (!has_ended(p->kind, row_state(p->kind, row)) || !page_wants(p, row))
        return 0;
    int rc = page_add(p, row);
    if (rc == 0)
        p->last = ((const struct row *)row)->seq;
    return rc;
}

/* Numbers of pages that begin with one that has not ended; ended ones have their own number, INT64_MAX is the first of
 * them. */
#define AMONG_LIVE (UINT64_C(1) << 62)

static bool among_live(uint64_t before)
{
    return !before || (before & AMONG_LIVE && before != INT64_MAX);
}

static int add_ended(struct page *p, struct err *e)
{
    const struct answer_query *q = p->query;
    struct row_filter f = {.parent = *q->backup ? q->backup : NULL,
                           .newest_first = true,
                           .before = among_live(q->before) ? 0 : q->before,
                           .since_ns = q->since_ns > 0 ? q->since_ns : 0};
    /* One that is deleted, or was found without its outcome, has another state in its row. */
    const bool other = p->kind == ROW_BACKUP && (p->state == STATE_IS_UNKNOWN || p->state == BACKUP_DELETING);
    if (p->state != STATE_ANY && !other)
        f.state = p->state;
    if (f.state && !has_ended(p->kind, f.state))
        return 0; /* no ended one has that state */
    return row_each(p->facts->records, p->kind, &f, add_ended_row, p, e);
}

int64_t answer_list_since(bool all, int64_t now_ns)
{
    return all ? INT64_MIN : now_ns - RECENT_NS;
}

/* An empty list for an unknown volume or backup is an error. */
static int explain_none(const struct page *p, struct err *e)
{
    struct records *r = p->facts->records;
    CLEANUP(backup_clear) struct backup b;
    int rc = 0;
    backup_init(&b);
    if (json_array_size(p->list))
        return 0;
    if (*p->query->volume)
        rc = volume_known(r, p->query->volume, e);
    if (rc >= 0 && *p->query->backup && backup_get(r, p->query->backup, &b, NULL) < 0) {
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "there is no backup or restore \"%.256s\"", p->query->backup);
        err_hint(e, "snapferry backups --all lists them");
    }
    return rc;
}

static int64_t next_page(const struct page *p)
{
    return p->last ? (int64_t)p->last : p->live_left ? (int64_t)(AMONG_LIVE | p->last_live) : INT64_MAX;
}

int answer_list(const struct answer_facts *f, enum row_kind k, const struct answer_query *q, json_t **ret,
                struct err *e)
{
    const struct row_filter live = {.newest_first = true, .live = true, .before = q->before & ~AMONG_LIVE};
    const char *name = k == ROW_OPERATION ? "operations" : "backups";
    struct answer_facts own = *f;
    CLEANUP(overview_freep) struct overview *made = k == ROW_OPERATION ? overview_of_facts(&own) : NULL;
    (void)made;
    struct page p = {.facts = &own,
                     .query = q,
                     .kind = k,
                     .list = json_array(),
                     .state = state_wanted(k, q->state),
                     .expired = k == ROW_BACKUP && !strcmp(q->state, STATE_EXPIRED)};
    int rc = *q->state ? state_known(k, q->state, e) : 0;
    if (rc >= 0 && among_live(q->before))
        rc = row_each(f->records, k, &live, add_live_row, &p, e);
    p.live_left = p.more;
    if (rc >= 0 && !p.more)
        rc = add_ended(&p, e);
    if (rc >= 0)
        rc = explain_none(&p, e);
    if (rc < 0) {
        json_decref(p.list);
        return e->cls ? rc : err_set(e, ERR_GENERIC, -rc, "cannot list the %s", name);
    }
    *ret = json_pack("{s:o, s:b}", name, p.list, "more", (int)p.more);
    if (*ret && p.more)
        json_object_set_new(*ret, "next", json_integer((json_int_t)next_page(&p)));
    return *ret ? 0 : err_nomem(e);
}

/* ---- describe ---- */

static json_t *row_document(const struct answer_facts *facts, enum row_kind k, const char *id)
{
    struct answer_facts own = *facts;
    const struct answer_facts *f = &own;
    CLEANUP(backup_clear) struct backup b;
    CLEANUP(operation_clear) struct operation op;
    CLEANUP(native_row_clear) struct native_row n;
    backup_init(&b);
    operation_init(&op);
    native_row_init(&n);
    CLEANUP(overview_freep) struct overview *made = k == ROW_NATIVE ? NULL : overview_of_facts(&own);
    (void)made;
    if (k == ROW_BACKUP)
        return backup_get(f->records, id, &b, NULL) < 0 ? NULL : answer_backup(f, &b, true);
    if (k == ROW_OPERATION)
        return operation_get(f->records, id, &op, NULL) < 0 ? NULL : answer_operation(f, &op);
    return native_row_get(f->records, id, &n, NULL) < 0 ? NULL : answer_native(f, &n);
}

int answer_describe(const struct answer_facts *f, const char *name, json_t **ret, struct err *e)
{
    enum row_kind k;
    char id[NAME_ID_MAX];
    int rc = name_find(f->records, name, NAME_BACKUP | NAME_OPERATION | NAME_NATIVE, &k, id, e);
    if (rc < 0)
        return rc;
    const char *kind = k == ROW_BACKUP ? "backup" : k == ROW_OPERATION ? "operation" : "native";
    json_t *doc = row_document(f, k, id);
    *ret = doc ? json_pack("{s:s, s:o}", "kind", kind, kind, doc) : NULL;
    return *ret ? 0 : err_nomem(e);
}

int answer_describe_volume(const struct answer_facts *f, const json_t *volumes, const char *name, json_t **ret,
                           struct err *e)
{
    size_t i;
    const json_t *v;
    json_array_foreach(volumes, i, v)
    {
        const struct volume_seen seen = volume_seen_of(v);
        if (strcmp(name, seen.name) != 0 && strcmp(name, seen.id) != 0)
            continue;
        const struct volume_row *row = volume_row_peek(f->records, seen.id);
        json_t *o = json_copy((json_t *)(uintptr_t)v);
        if (row)
            json_object_set_new(o, "details", volume_row_to_json(row));
        *ret = json_pack("{s:s, s:o}", "kind", "volume", "volume", o);
        return *ret ? 0 : err_nomem(e);
    }
    CLEANUP_JSON json_t *near = volume_near(f->records, name);
    int rc =
        err_set(e, ERR_NOT_FOUND, 0, "there is no backup, restore, operation, native snapshot or volume \"%s\"", name);
    nearest_hint(e, json_string_value(near), "see snapferry backups, operations, volumes and native list");
    return rc;
}
