/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * lists.c - lists of records in pages, and describe
 *
 * Rows that have not ended come first, all on the first page; then ended ones, newest first.
 */
#include "base/nearest.h"
#include "base/time.h"
#include "daemon/answers/answers.h"
#include "daemon/control/control-impl.h"
#include "daemon/records/names.h"

#include <errno.h>
#include <string.h>

#define PAGE_DEFAULT 50
#define RECENT_NS (7 * NS_PER_DAY)

struct page {
    struct engine *engine;
    enum row_kind kind;
    json_t *list;
    const char *volume, *backup, *state;
    uint64_t before, last;
    int64_t since_ns;
    size_t limit, bytes;
    bool live, more;
};

static json_t *row_json(struct engine *g, enum row_kind k, const void *row)
{
    return k == ROW_OPERATION ? engine_operation_json(g, row)
           : k == ROW_BACKUP  ? engine_backup_json(g, row, false)
                              : engine_native_json(g, row);
}

static bool has_ended(enum row_kind k, int state)
{
    return k == ROW_OPERATION ? op_state_terminal((enum op_state)state)
                              : backup_state_terminal((enum backup_state)state);
}

static int page_add(const void *any, void *arg)
{
    const struct row *r = any;
    struct page *p = arg;
    const int state = row_state(p->kind, any);
    if (has_ended(p->kind, state) == p->live)
        return 0;
    if (!p->live && p->before && r->seq >= p->before)
        return 0;
    if (p->state && *p->state && strcmp(p->state, enum_name(row_types[p->kind].states, state)) != 0)
        return 0;
    if (p->backup && *p->backup && strcmp(p->backup, r->parent) != 0)
        return 0;
    if (!p->live && r->updated_ns < p->since_ns)
        return 0;
    if (json_array_size(p->list) >= p->limit || p->bytes >= CONTROL_PAGE_BYTES) {
        p->more = true;
        return 1;
    }
    CLEANUP_JSON json_t *row = row_json(p->engine, p->kind, any);
    if (!row)
        return -ENOMEM;
    if (p->volume && *p->volume && strcmp(p->volume, r->volume_id) != 0 && strcmp(p->volume, jstr(row, "volume")) != 0)
        return 0;
    json_object_del(row, "details"); /* `describe` has them */
    p->bytes += json_dumpb(row, NULL, 0, JSON_COMPACT);
    if (!p->live)
        p->last = r->seq;
    return json_array_append(p->list, row) < 0 ? -ENOMEM : 0;
}

/* An empty list for an unknown volume or backup is an error. */
static int explain_none(const struct page *p, struct err *e)
{
    struct records *r = engine_records(p->engine);
    CLEANUP(backup_clear) struct backup b;
    int rc = 0;
    backup_init(&b);
    if (json_array_size(p->list))
        return 0;
    if (p->volume && *p->volume)
        rc = volume_known(r, p->volume, e);
    if (rc >= 0 && p->backup && *p->backup && backup_get(r, p->backup, &b, NULL) < 0) {
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "there is no backup or restore \"%.256s\"", p->backup);
        err_hint(e, "snapferry backups --all lists them");
    }
    return rc;
}

static void page_reply(struct request *q, const json_t *args, enum row_kind k, const char *name)
{
    int64_t limit = jint(args, "limit");
    struct page p = {
        .engine = q->control->engine,
        .kind = k,
        .list = json_array(),
        .volume = jstr(args, "volume"),
        .backup = jstr(args, "backup"),
        .state = jstr(args, "state"),
        .before = (uint64_t)jint(args, "before"),
        .limit = limit > 0 ? (size_t)limit : PAGE_DEFAULT,
        .since_ns = jbool(args, "all") ? INT64_MIN : now_ns() - RECENT_NS,
        .live = true,
    };
    struct err e = ERR_INIT;
    struct records *r = engine_records(p.engine);
    struct row_filter f = {.newest_first = true, .live = true};
    int rc = p.list ? 0 : err_nomem(&e);
    if (rc >= 0 && *p.state)
        rc = state_known(p.state, &e);
    if (rc >= 0 && !p.before)
        rc = row_each(r, k, &f, page_add, &p, &e);
    p.live = f.live = false;
    if (rc >= 0 && !p.more)
        rc = row_each(r, k, &f, page_add, &p, &e);
    if (rc >= 0)
        rc = explain_none(&p, &e);
    if (rc < 0) {
        json_decref(p.list);
        if (!e.cls)
            err_set(&e, ERR_GENERIC, -rc, "cannot list the %s", name);
        request_fail(q, &e);
        return;
    }
    json_t *answer = json_pack("{s:o, s:b}", name, p.list, "more", (int)p.more);
    /* Only ended rows are paged: after a page filled by live ones, the newest ended one is next. */
    if (answer && p.more)
        json_object_set_new(answer, "next", json_integer(p.last ? (json_int_t)p.last : INT64_MAX));
    request_answer(q, answer);
}

void control_operations(struct request *q, const json_t *args)
{
    page_reply(q, args, ROW_OPERATION, "operations");
}

void control_backups(struct request *q, const json_t *args)
{
    page_reply(q, args, ROW_BACKUP, "backups");
}

static int native_add(const struct native_row *n, void *arg)
{
    struct page *p = arg;
    CLEANUP_JSON json_t *row = engine_native_json(p->engine, n);
    if (!row)
        return -ENOMEM;
    if (*p->volume && strcmp(p->volume, n->volume_id) != 0 && strcmp(p->volume, jstr(row, "volume")) != 0)
        return 0;
    json_object_del(row, "details");
    return json_array_append(p->list, row) < 0 ? -ENOMEM : 0;
}

void control_natives(struct request *q, const json_t *args)
{
    struct page p = {
        .engine = q->control->engine, .kind = ROW_NATIVE, .list = json_array(), .volume = jstr(args, "volume")};
    struct err e = ERR_INIT;
    const struct native_row_filter f = {.newest_first = true};
    int rc = p.list ? native_row_each(engine_records(p.engine), &f, native_add, &p, &e) : err_nomem(&e);
    if (rc >= 0)
        rc = explain_none(&p, &e);
    if (rc < 0) {
        json_decref(p.list);
        if (!e.cls)
            err_set(&e, ERR_GENERIC, -rc, "cannot list the native snapshots");
        request_fail(q, &e);
        return;
    }
    request_answer(q, json_pack("{s:o}", "natives", p.list));
}

void control_jobs(struct request *q, const json_t *args)
{
    struct engine *g = q->control->engine;
    (void)args;
    request_answer(q, json_pack("{s:o}", "jobs", answer_jobs(engine_schedule(g), engine_records(g), now_ns())));
}

/* ---- describe ---- */

static json_t *describe_row(struct engine *g, enum row_kind k, const char *id)
{
    struct records *r = engine_records(g);
    CLEANUP(backup_clear) struct backup b;
    CLEANUP(operation_clear) struct operation op;
    CLEANUP(native_row_clear) struct native_row n;
    backup_init(&b);
    operation_init(&op);
    native_row_init(&n);
    if (k == ROW_BACKUP)
        return backup_get(r, id, &b, NULL) < 0 ? NULL : engine_backup_json(g, &b, true);
    if (k == ROW_OPERATION)
        return operation_get(r, id, &op, NULL) < 0 ? NULL : engine_operation_json(g, &op);
    return native_row_get(r, id, &n, NULL) < 0 ? NULL : engine_native_json(g, &n);
}

static void describe_answer(struct request *q, enum row_kind k, const char *id)
{
    const char *kind = k == ROW_BACKUP ? "backup" : k == ROW_OPERATION ? "operation" : "native";
    json_t *doc = describe_row(q->control->engine, k, id);
    request_answer(q, doc ? json_pack("{s:s, s:o}", "kind", kind, kind, doc) : NULL);
}

static void on_volumes(json_t *answer, const struct err *e, void *arg)
{
    struct request *q = arg;
    if (!q->control || !answer) {
        request_reply(answer, e, q);
        return;
    }
    size_t i;
    json_t *v;
    json_array_foreach(jarr(answer, "volumes"), i, v)
    {
        if (!strcmp(q->what, jstr(v, "name")) || !strcmp(q->what, jstr(v, "id"))) {
            request_answer(q, json_pack("{s:s, s:O}", "kind", "volume", "volume", v));
            return;
        }
    }
    struct err none = ERR_INIT;
    err_set(&none, ERR_NOT_FOUND, 0, "there is no backup, restore, operation, native snapshot or volume \"%s\"",
            q->what);
    CLEANUP_JSON json_t *near = volume_near(engine_records(q->control->engine), q->what);
    nearest_hint(&none, json_string_value(near), "see snapferry backups, operations, volumes and native list");
    request_fail(q, &none);
}

void control_describe(struct request *q, const json_t *args)
{
    struct engine *g = q->control->engine;
    const char *id = jstr(args, "id");
    struct err e = ERR_INIT;
    enum row_kind k;
    char found[NAME_ID_MAX];
    if (name_find(engine_records(g), id, NAME_BACKUP | NAME_OPERATION | NAME_NATIVE, &k, found, &e) >= 0) {
        describe_answer(q, k, found);
        return;
    }
    CLEANUP_JSON json_t *all = json_object();
    q->what = strdup(id);
    if (e.cls == ERR_NOT_FOUND && q->what && all) {
        engine_volumes(g, all, on_volumes, q);
        return;
    }
    if (e.cls == ERR_NOT_FOUND)
        err_nomem(&e);
    request_fail(q, &e);
}
