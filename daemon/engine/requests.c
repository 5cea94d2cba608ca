/* SPDX-License-Identifier: GPL-2.0-or-later */
/* requests.c - requests that only change rows: cancel, delete, hold, forget, and what the repository is asked */
#include "base/crash.h"
#include "base/nearest.h"
#include "daemon/decide/copies.h"
#include "daemon/decide/maintain.h"
#include "daemon/engine/engine-impl.h"
#include "daemon/records/names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Each is recorded in the next turn, and answered when that is durable. write() may run more than once: it begins with
 * what is asked, not with what an earlier run has left.
 */
struct ask {
    struct engine *engine;
    engine_reply_fn *reply;
    void *arg;
    struct request_args req;
    json_t *answer;
    const char *crash; /* crash point behind it, NULL: none */
    struct plugin_verify verify;
};

static void ask_ended(const struct err *e, void *arg)
{
    struct ask *a = arg;
    if (!e->cls && a->crash)
        crash_point(a->crash);
    a->reply(e->cls ? NULL : a->answer, e->cls ? e : NULL, a->arg);
    request_args_clear(&a->req);
    json_decref(a->answer);
    plugin_verify_clear(&a->verify);
    free(a);
}

static void ask(struct engine *g, const struct request_args *req, request_write_fn *write, const char *crash,
                engine_reply_fn *reply, void *arg)
{
    struct ask *a = calloc(1, sizeof *a);
    struct err e = ERR_INIT;
    if (a)
        *a = (struct ask){.engine = g, .reply = reply, .arg = arg, .crash = crash};
    if (a && request_args_copy(&a->req, req) == 0) {
        engine_request(g, write, ask_ended, a);
        return;
    }
    free(a);
    err_nomem(&e);
    reply(NULL, &e, arg);
}

/* ---- verify, maintenance, copy, expire ---- */

static const char *repository_of(const struct ask *a)
{
    const struct cfg *c = a->engine->cfg;
    const struct cfg_repository *only = cfg_repository_at(c, 0);
    return !a->req.repository[0] && only && !cfg_repository_at(c, 1) ? only->name : a->req.repository;
}

static int answer_id(struct ask *a, int rc, const char *id)
{
    json_take(&a->answer, rc < 0 ? NULL : json_pack("{s:s}", "operation", id));
    return rc;
}

static int write_verify(struct decide *d, void *arg, struct err *e)
{
    struct ask *a = arg;
    CLEANUP(operation_clear) struct operation op;
    char id[512] = "";
    const char *repository = a->req.repository;
    const double percent = a->req.read_percent;
    operation_init(&op);
    op.read_percent = percent;
    op.anew = a->req.anew;
    if (percent < 0 || percent > 100)
        return err_set(e, ERR_USAGE, 0, "read_percent must be between 0 and 100");
    if (!strncmp(repository, "plugin:", 7)) {
        if (!request_goes_on(d))
            plugin_verify_clear(&a->verify);
        return answer_id(a, plugin_verify_submit(d, repository, percent, ENGINE_PART, &a->verify, id, e), id);
    }
    return answer_id(a, admin_add(d, KIND_VERIFY, "verify", repository_of(a), &op, NULL, id, e), id);
}

void engine_verify(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    ask(g, req, write_verify, NULL, reply, arg);
}

static int write_maintain(struct decide *d, void *arg, struct err *e)
{
    struct ask *a = arg;
    char id[512] = "";
    const struct maintain_order order = {
        .there = true, .full = a->req.full, .dry_run = a->req.dry_run, .unsafe = a->req.unsafe};
    return answer_id(a, maintain_submit(d, repository_of(a), &order, id, e), id);
}

void engine_maintain(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    ask(g, req, write_maintain, NULL, reply, arg);
}

static int write_copy(struct decide *d, void *arg, struct err *e)
{
    struct ask *a = arg;
    const struct cfg *c = a->engine->cfg;
    const struct cfg_copy *only = cfg_copy_at(c, 0);
    const char *name = !a->req.copy[0] && only && !cfg_copy_at(c, 1) ? only->name : a->req.copy;
    const struct cfg_copy *k = cfg_copy(c, name);
    char id[512] = "";
    if (!k && !name[0])
        return err_set(e, ERR_USAGE, 0, only ? "there are several [copy] sections" : "there is no [copy] section");
    if (!k) {
        err_set(e, ERR_USAGE, 0, "there is no [copy \"%s\"] in the configuration", name);
        return nearest_hint(e, cfg_near_copy(c, name), "`snapferry status` shows the copies");
    }
    return answer_id(a, copy_submit(d, k, (struct copy_allow){a->req.only_new, a->req.force}, id, e), id);
}

void engine_copy(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    ask(g, req, write_copy, NULL, reply, arg);
}

static int write_expire(struct decide *d, void *arg, struct err *e)
{
    struct ask *a = arg;
    struct engine *g = a->engine;
    char id[512] = "", source[SOURCE_TEXT] = "";
    const char *volume = a->req.volume;
    CLEANUP_JSON json_t *sources = volume[0] ? json_array() : json_null(); /* null: all of this node */
    if (volume[0]) {
        CLEANUP(volume_row_clear) struct volume_row v;
        volume_row_init(&v);
        if (volume_find(d, volume, &v) < 0)
            return volume_known(g->records, volume, e);
        volume_source(&v, cfg_daemon(g->cfg)->node_name, source);
        json_array_append_new(sources, json_pack("{s:s,s:n}", "source", source, "keep"));
    }
    json_t *steps = json_pack("[{s:s,s:O,s:b,s:b}]", "verb", "expire", "sources", sources, "dry_run", a->req.dry_run,
                              "explain", a->req.explain);
    return answer_id(a, admin_submit(d, repository_of(a), steps, NULL, "admin-expire", id, e), id);
}

void engine_expire(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    ask(g, req, write_expire, NULL, reply, arg);
}

/* ---- holds ---- */

struct hold {
    struct decide *decide;
    bool hold;
    const char *note;
    json_t *changed, *released;   /* released: of those, what was kept for inspection */
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
    n.hold.at_ns = h->hold ? decide_now(h->decide) : 0;
    const bool released = !h->hold && kept_release(h->decide, &n);
    if (native_row_write(h->decide, &n) == 0)
        json_array_append_new(h->changed, json_string(n.id));
    if (released)
        json_array_append_new(h->released, json_string(n.id));
    return 0;
}

/* What was kept of the operation, with a native snapshot that is of the backup which tried it again. */
static int visit_kept(const struct operation *op, void *arg)
{
    struct hold *h = arg;
    CLEANUP(native_row_clear) struct native_row n = ROW_INIT;
    const struct native_row *row = kept_of(h->decide->records, op);
    if (!row || !strcmp(row->parent, op->parent) || native_row_copy(&n, row) < 0 || !kept_release(h->decide, &n))
        return 0;
    if (native_row_write(h->decide, &n) == 0) {
        json_array_append_new(h->changed, json_string(n.id));
        json_array_append_new(h->released, json_string(n.id));
    }
    return 0;
}

static int write_hold(struct decide *d, void *arg, struct err *e)
{
    struct ask *a = arg;
    const char *what = a->req.native;
    CLEANUP(native_row_clear) struct native_row n;
    struct hold h = {d, a->req.hold, a->req.note, json_array(), json_array(), ""};
    int rc = 0;
    native_row_init(&n);
    json_take(&a->answer, json_pack("{s:o,s:o,s:b}", "held", h.changed, "released", h.released, "hold", (int)h.hold));
    if (native_row_get(d->records, what, &n, NULL) == 0) {
        rc = visit_hold(&n, &h);
    } else {
        const struct native_row_filter f = {.parent = what};
        const struct operation_filter members = {.parent = what};
        if (what[0])
            rc = native_row_each(d->records, &f, visit_hold, &h, e);
        if (what[0] && !h.hold && rc >= 0)
            rc = operation_each(d->records, &members, visit_kept, &h, e);
    }
    if (rc < 0 || json_array_size(h.changed) > 0)
        return rc;
    if (h.removing[0]) {
        err_set(e, ERR_BUSY, 0, "native snapshot %s cannot be held: its removal has begun", h.removing);
        return err_hint(e, "`snapferry native list` shows what is left");
    }
    err_set(e, ERR_NOT_FOUND, 0, "there is no native snapshot %s, and no backup of that name that has one", what);
    return err_hint(e, "`snapferry native list` shows them");
}

void engine_hold(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    ask(g, req, write_hold, NULL, reply, arg);
}

/* ---- cancel ---- */

static json_t *cancel_answer(const char *id, bool already, const char *state)
{
    return json_pack("{s:s,s:b,s:s}", "id", id, "already", already, "state", state);
}

/* What it has removed cannot be brought back, and what is left of the backup is no backup. */
static int refuse_cancel(const struct operation *op, struct err *e)
{
    err_set(e, ERR_BUSY, 0, "%s has begun to delete backup %s and cannot be canceled: part of it is already removed",
            op->id, op->deletes);
    return err_hint(e,
                    "it is tried again until all of it is deleted (`snapferry wait %.100s`); `snapferry delete --force "
                    "%.200s` does without what cannot be reached",
                    op->id, op->deletes);
}

static int write_cancel(struct decide *d, void *arg, struct err *e)
{
    struct ask *a = arg;
    const char *id = a->req.id;
    CLEANUP(backup_clear) struct backup b;
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    if (backup_read(d, id, &b) == 0) {
        const bool already = backup_state_terminal(b.state);
        json_take(&a->answer, cancel_answer(id, already, backup_state_name(b.state)));
        if (already)
            return 0;
        b.cancel = true;
        b.cancel_ns = decide_now(d);
        return backup_save(d->records, &b, e);
    }
    if (operation_read(d, id, &op) == 0) {
        if (op.kind == KIND_DELETE && op.begun && !op_state_terminal(op.state))
            return refuse_cancel(&op, e);
        json_take(&a->answer, cancel_answer(id, op_state_terminal(op.state) || op.state == OP_CLEANING_UP,
                                            op_state_name(op.state)));
        operation_ask_cancel(d, &op, "canceled by request");
        return 0;
    }
    err_set(e, ERR_NOT_FOUND, 0, "there is no backup, restore or operation %s", id);
    return err_hint(e, "`snapferry operations` lists what runs");
}

void engine_cancel(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    ask(g, req, write_cancel, NULL, reply, arg);
}

/* ---- delete ---- */

static int write_delete(struct decide *d, void *arg, struct err *e)
{
    struct ask *a = arg;
    json_t *answer = NULL;
    const int rc = delete_submit(d, a->req.id, a->req.force, a->req.even_kept, &answer, e);
    json_take(&a->answer, answer);
    return rc;
}

void engine_delete(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    ask(g, req, write_delete, "engine-delete-submitted", reply, arg);
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
    if (v->state != VOL_GONE && cfg_class_of(x->engine->cfg, volume_subject(v->volume))) {
        x->there++;
        return 0;
    }
    x->forgotten++;
    return volume_row_delete(x->engine->records, v->id, x->err);
}

static int write_forget(struct decide *d, void *arg, struct err *e)
{
    struct ask *a = arg;
    struct forget x = {.engine = a->engine, .what = a->req.volume, .err = e};
    const int rc = volume_row_each(d->records, NULL, forget_one, &x, e);
    if (rc < 0)
        return rc;
    if (!x.forgotten && x.there) {
        err_set(e, ERR_BUSY, 0, "volume %s is there: the next search would find it again", x.what);
        return err_hint(e, "exclude = yes in [volume \"%s\"] excludes it", x.what);
    }
    if (!x.forgotten) {
        err_set(e, ERR_NOT_FOUND, 0, "no volume %s is known", x.what);
        return err_hint(e, "`snapferry volumes` lists them");
    }
    plan_log(d, LOG_LVL_INFO, "volume %s is removed from the records", x.what);
    json_take(&a->answer, json_pack("{s:s,s:i}", "volume", x.what, "forgotten", (int)x.forgotten));
    return 0;
}

void engine_forget(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    ask(g, req, write_forget, NULL, reply, arg);
}
