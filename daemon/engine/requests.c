/* SPDX-License-Identifier: GPL-2.0-or-later */
/* requests.c - requests that only change rows: cancel, delete, hold, forget, and what the repository is asked */
#include "base/crash.h"
#include "base/nearest.h"
#include "daemon/engine/engine-impl.h"
#include "daemon/records/names.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- verify, expire ---- */

static const char *repository_of(struct engine *g, const json_t *req)
{
    const char *name = jstr(req, "repository");
    const struct cfg_repository *only = cfg_repository_at(g->cfg, 0);
    return !name[0] && only && !cfg_repository_at(g->cfg, 1) ? only->name : name;
}

static void answer_id(engine_reply_fn *reply, void *arg, const char *id, const struct err *e)
{
    CLEANUP_JSON json_t *answer = json_pack("{s:s}", "operation", id);
    if (reply)
        reply(e->cls ? NULL : answer, e->cls ? e : NULL, arg);
}

void engine_submit_other(struct engine *g, const json_t *req, engine_reply_fn *reply, void *arg)
{
    CLEANUP(operation_clear) struct operation op;
    struct err e = ERR_INIT;
    char id[512] = "";
    const char *kind = jstr(req, "kind");
    operation_init(&op);
    if (!strcmp(kind, "verify")) {
        const json_t *p = json_object_get(req, "read_percent");
        op.read_percent = json_is_number(p) ? json_number_value(p) : 100;
        if (op.read_percent < 0 || op.read_percent > 100)
            err_set(&e, ERR_USAGE, 0, "read_percent must be between 0 and 100");
        json_set(&op.snapshots, jarr(req, "snapshots"));
    } else if (!strcmp(kind, "admin") && jarr(req, "do")) {
        json_set(&op.does, jarr(req, "do"));
    } else {
        err_set(&e, ERR_USAGE, 0, "there is no operation of kind \"%s\" that can be asked for", kind);
    }
    if (!e.cls)
        admin_add(&g->d, !strcmp(kind, "verify") ? KIND_VERIFY : KIND_ADMIN, kind, repository_of(g, req), &op, NULL, id,
                  &e);
    answer_id(reply, arg, id, &e);
}

void engine_expire(struct engine *g, const json_t *req, engine_reply_fn *reply, void *arg)
{
    struct err e = ERR_INIT;
    char id[512] = "", source[700] = "";
    const char *volume = jstr(req, "volume");
    CLEANUP_JSON json_t *sources = volume[0] ? json_array() : json_null(); /* null: all of this node */
    if (volume[0]) {
        CLEANUP(volume_row_clear) struct volume_row v;
        volume_row_init(&v);
        if (volume_find(&g->d, volume, &v) < 0) {
            volume_known(g->records, volume, &e);
        } else {
            snprintf(source, sizeof source, "snapferry@%s:/%s", cfg_daemon(g->cfg)->node_name, v.id);
        }
        json_array_append_new(sources, json_pack("{s:s,s:n}", "source", source, "keep"));
    }
    if (!e.cls) {
        json_t *steps = json_pack("[{s:s,s:O,s:b,s:b}]", "verb", "expire", "sources", sources, "dry_run",
                                  jbool(req, "dry_run"), "explain", jbool(req, "explain"));
        admin_submit(&g->d, repository_of(g, req), steps, NULL, "admin-expire", id, &e);
    }
    answer_id(reply, arg, id, &e);
}

/* ---- holds ---- */

struct hold {
    struct engine *engine;
    bool hold;
    const char *note;
    json_t *changed;
    char removing[ALIAS_LEN + 1]; /* one whose removal has begun */
};
static int visit_hold(const struct native_row *row, void *arg)
{
    struct hold *h = arg;
    CLEANUP(native_row_clear) struct native_row n;
    if (native_row_copy(&n, row) < 0)
        return -ENOMEM;
    if (h->hold && n.state == NATIVE_REMOVING) {
        snprintf(h->removing, sizeof h->removing, "%s", n.id);
        return 0;
    }
    n.hold.held = h->hold;
    str_set(&n.hold.note, h->hold ? h->note : "");
    n.hold.at_ns = h->hold ? now_ns() : 0;
    if (native_row_write(&h->engine->d, &n) == 0)
        json_array_append_new(h->changed, json_string(n.id));
    return 0;
}

void engine_hold(struct engine *g, const json_t *req, engine_reply_fn *reply, void *arg)
{
    const char *what = jstr(req, "native");
    struct err e = ERR_INIT;
    CLEANUP_JSON json_t *answer = json_object();
    CLEANUP(native_row_clear) struct native_row n;
    struct hold h = {g, jbool(req, "hold"), jstr(req, "note"), json_array(), ""};
    native_row_init(&n);
    json_object_set_new(answer, "held", h.changed);
    jset_bool(answer, "hold", h.hold);
    if (native_row_get(g->records, what, &n, NULL) == 0) {
        visit_hold(&n, &h);
    } else {
        struct native_row_filter f = {.parent = what};
        if (what[0])
            native_row_each(g->records, &f, visit_hold, &h, &e);
    }
    if (!e.cls && h.removing[0] && json_array_size(h.changed) == 0) {
        err_set(&e, ERR_BUSY, 0, "native snapshot %s cannot be held: its removal has begun", h.removing);
        err_hint(&e, "`snapferry native list` shows what is left");
    } else if (!e.cls && json_array_size(h.changed) == 0) {
        err_set(&e, ERR_NOT_FOUND, 0, "there is no native snapshot %s, and no backup of that name that has one", what);
        err_hint(&e, "`snapferry native list` shows them");
    }
    reply(answer, e.cls ? &e : NULL, arg);
}

/* ---- cancel ---- */

static json_t *cancel_answer(const char *id, bool already, const char *state)
{
    return json_pack("{s:s,s:b,s:s}", "id", id, "already", already, "state", state);
}

void engine_cancel(struct engine *g, const json_t *req, engine_reply_fn *reply, void *arg)
{
    const char *id = jstr(req, "id");
    struct err e = ERR_INIT;
    CLEANUP_JSON json_t *answer = NULL;
    CLEANUP(backup_clear) struct backup b;
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    if (backup_read(&g->d, id, &b) == 0) {
        const bool already = backup_state_terminal(b.state);
        if (!already) {
            b.cancel = true;
            b.cancel_ns = now_ns();
        }
        if (already || backup_save(g->records, &b, &e) == 0)
            answer = cancel_answer(id, already, backup_state_name(b.state));
    } else if (operation_read(&g->d, id, &op) == 0) {
        answer = cancel_answer(id, op_state_terminal(op.state) || op.state == OP_CLEANING_UP, op_state_name(op.state));
        operation_ask_cancel(&g->d, &op, "canceled by request");
    } else {
        err_set(&e, ERR_NOT_FOUND, 0, "there is no backup, restore or operation %s", id);
        err_hint(&e, "`snapferry operations` lists what runs");
    }
    engine_kick(g);
    reply(answer, e.cls ? &e : NULL, arg);
}

/* ---- delete ---- */

void engine_delete(struct engine *g, const json_t *req, engine_reply_fn *reply, void *arg)
{
    struct err e = ERR_INIT;
    CLEANUP_JSON json_t *answer = NULL;
    if (delete_submit(&g->d, req, &answer, &e) == 0)
        crash_point("engine-delete-submitted");
    engine_kick(g);
    reply(e.cls ? NULL : answer, e.cls ? &e : NULL, arg);
}

/* ---- forgetting one that is gone ---- */

struct forget {
    struct engine *engine;
    const char *what;
    unsigned forgotten, there;
    struct err *err;
};
static int forget_one(const struct volume_row *v, void *arg)
{
    struct forget *x = arg;
    const char *name = v->volume->name;
    if (strcmp(name, x->what) && strcmp(v->id, x->what))
        return 0;
    if (v->state != VOL_GONE && cfg_class_of(x->engine->cfg, name)) {
        x->there++;
        return 0;
    }
    x->forgotten++;
    return volume_row_delete(x->engine->records, v->id, x->err);
}

void engine_forget(struct engine *g, const json_t *req, engine_reply_fn *reply, void *arg)
{
    struct err e = ERR_INIT;
    struct forget x = {.engine = g, .what = jstr(req, "volume"), .err = &e};
    CLEANUP_JSON json_t *answer = NULL;
    volume_row_each(g->records, NULL, forget_one, &x, &e);
    if (!e.cls && !x.forgotten && x.there) {
        err_set(&e, ERR_BUSY, 0, "volume %s is there: the next look would find it again", x.what);
        err_hint(&e, "exclude = yes in [volume \"%s\"] leaves it out", x.what);
    } else if (!e.cls && !x.forgotten) {
        err_set(&e, ERR_NOT_FOUND, 0, "no volume %s is known", x.what);
        err_hint(&e, "`snapferry volumes` lists them");
    } else if (!e.cls) {
        log_info("volume %s is forgotten", x.what);
        answer = json_pack("{s:s,s:i}", "volume", x.what, "forgotten", (int)x.forgotten);
    }
    reply(answer, e.cls ? &e : NULL, arg);
}
