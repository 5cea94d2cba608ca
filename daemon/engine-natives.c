/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine-natives.c - native snapshots in the records: which go, holds, prune on demand, deletion of backups
 */
#include "base/crash.h"
#include "daemon/engine-impl.h"

#include <errno.h>
#include <string.h>

void native_rules_from(struct native_rules *r, const json_t *policy, double pool_ratio, bool create)
{
    *r = (struct native_rules){
        .retain = (unsigned)jint(policy, "snapshots_to_retain"),
        .retain_max_age_s = jint(policy, "retain_max_age_s"),
        .max_per_volume = (unsigned)jint(policy, "max_snapshots_per_volume"),
        .snapshot_only_keep = (unsigned)jint(policy, "snapshot_only_keep"),
        .snapshot_only_max_age_s = jint(policy, "snapshot_only_max_age_s"),
        .keep_on_failure = jbool(policy, "keep_on_failure"),
        .about_to_create = create,
        .pool_used_ratio = pool_ratio,
        .pool_high_water = (double)jint(policy, "pool_high_water") / 100,
        .now_ns = now_ns(),
    };
}

/* What a plan would remove, as items for step_remove; *check: snapshot id -> alias of those whose backup has not been
 * seen readable since it was written. The records say "removing" before anything is removed. */
int natives_to_prune(struct engine *g, const char *volume_id, const struct native_rules *rules, json_t **items,
                     json_t **check, struct native_verdict *v, struct err *e)
{
    CLEANUP_FREE struct native_facts *f = NULL;
    size_t n = 0;
    int rc = natives_gather(g->records, volume_id, &f, &n, e);
    if (rc < 0)
        return rc;
    natives_plan(rules, f, n, v);
    *items = json_array();
    *check = json_object();
    for (size_t i = 0; i < n; i++) {
        CLEANUP(rec_clearp) struct rec r = REC_INIT;
        if (rec_get(g, REC_NATIVE, f[i].alias, &r) < 0 || !strcmp(r.state, "creating"))
            continue;
        if (f[i].prune) {
            if (strcmp(r.state, "removing")) {
                jset_str(r.doc, "why_removed", f[i].why);
                if (save_state(g, REC_NATIVE, &r, "removing") < 0)
                    continue;
            }
            json_t *native = jobj(r.doc, "native") ? json_incref(jobj(r.doc, "native")) : json_object();
            json_array_append_new(
                *items, json_pack("{s:s,s:O,s:o}", "alias", r.id, "class", jobj(r.doc, "class"), "native", native));
        } else if (jbool(r.doc, "moved") && !jbool(r.doc, "moved_verified") && jstr(r.doc, "snapshot")[0]) {
            jset_str(*check, jstr(r.doc, "snapshot"), r.id);
        }
    }
    return 0;
}

void natives_removed(struct engine *g, const json_t *out)
{
    const json_t *a;
    size_t i;
    json_array_foreach(json_object_get(out, "items"), i, a)
    {
        const char *alias = jstr(a, "alias");
        CLEANUP(rec_clearp) struct rec r = REC_INIT;
        if (!alias[0] || rec_get(g, REC_NATIVE, alias, &r) < 0)
            continue;
        if (jobj(a, "error")) {
            json_object_set(r.doc, "remove_error", jobj(a, "error"));
            save(g, REC_NATIVE, &r);
            records_counter_add(g->records, "snapshot_delete_failures_total", NULL, 1, NULL);
            continue;
        }
        if (jbool(a, "gone"))
            log_warning("native snapshot %s of %s was already gone", alias, jstr(jobj(r.doc, "volume"), "name"));
        records_delete(g->records, REC_NATIVE, alias, NULL);
    }
}

/* ---- holds ---- */

static int hold_one(struct engine *g, struct rec *n, bool hold, const char *note)
{
    if (hold)
        json_object_set_new(n->doc, "hold", json_pack("{s:s,s:I}", "note", note, "at_ns", (json_int_t)now_ns()));
    else
        json_object_del(n->doc, "hold");
    return save(g, REC_NATIVE, n);
}

struct hold {
    struct engine *engine;
    bool hold;
    const char *note;
    json_t *changed;
};
static int visit_hold(struct rec *n, void *arg)
{
    struct hold *h = arg;
    if (hold_one(h->engine, n, h->hold, h->note) == 0)
        json_array_append_new(h->changed, json_string(n->id));
    return 0;
}

void engine_hold(struct engine *g, const json_t *req, engine_reply_fn *reply, void *arg)
{
    const char *what = jstr(req, "native");
    struct err e = ERR_INIT;
    CLEANUP_JSON json_t *answer = json_object();
    CLEANUP(rec_clearp) struct rec n = REC_INIT;
    struct hold h = {g, jbool(req, "hold"), jstr(req, "note"), json_array()};
    json_object_set_new(answer, "held", h.changed);
    jset_bool(answer, "hold", h.hold);
    if (records_get(g->records, REC_NATIVE, what, &n, NULL) == 0) {
        visit_hold(&n, &h);
    } else {
        struct rec_filter f = {.parent = what};
        if (what[0])
            records_each(g->records, REC_NATIVE, &f, visit_hold, &h, &e);
    }
    if (!e.cls && json_array_size(h.changed) == 0) {
        err_set(&e, ERR_NOT_FOUND, 0, "there is no native snapshot %s, and no backup of that name that has one", what);
        err_hint(&e, "`snapferry native list` shows them");
    }
    reply(answer, e.cls ? &e : NULL, arg);
}

/* ---- prune on demand ---- */

struct prune {
    struct engine *engine;
    engine_reply_fn *reply;
    void *arg;
    json_t *natives, *items, *seen;
    const char *volume;
    bool dry_run;
};

static void list_plan(struct prune *p, const char *volume_id, const json_t *policy)
{
    CLEANUP_FREE struct native_facts *f = NULL;
    struct native_rules rules;
    struct native_verdict v;
    size_t n = 0;
    native_rules_from(&rules, policy, -1, false);
    if (natives_gather(p->engine->records, volume_id, &f, &n, NULL) < 0)
        return;
    natives_plan(&rules, f, n, &v);
    for (size_t i = 0; i < n; i++) {
        CLEANUP(rec_clearp) struct rec r = REC_INIT;
        char reasons[160];
        if (rec_get(p->engine, REC_NATIVE, f[i].alias, &r) < 0)
            continue;
        json_t *j = engine_native_json(p->engine, &r);
        jset_bool(j, "prune", f[i].prune);
        jset_str(j, "why", f[i].why);
        jset_str(j, "reasons", native_reasons_text(f[i].reasons, reasons, sizeof reasons));
        json_array_append_new(p->natives, j);
    }
}

static int visit_prune(struct rec *n, void *arg)
{
    struct prune *p = arg;
    if (json_object_get(p->seen, n->volume))
        return 0;
    if (p->volume[0] && strcmp(p->volume, n->volume) && strcmp(p->volume, jstr(jobj(n->doc, "volume"), "name")))
        return 0;
    json_object_set_new(p->seen, n->volume, json_true());
    /* The policy in force now, where the volume still has one. */
    CLEANUP_JSON json_t *policy = NULL;
    struct cfg_policy now = {.effective = NULL};
    const char *name = jstr(jobj(n->doc, "volume"), "name");
    if (cfg_class_of(p->engine->cfg, name) && cfg_policy(p->engine->cfg, name, NULL, &now, NULL) == 0) {
        policy = policy_doc(&now);
        cfg_policy_clear(&now);
    } else {
        policy = json_incref(jobj(n->doc, "policy"));
    }
    list_plan(p, n->volume, policy);
    if (!p->dry_run) {
        CLEANUP_JSON json_t *items = NULL, *check = NULL;
        struct native_rules rules;
        struct native_verdict v;
        native_rules_from(&rules, policy, -1, false);
        if (natives_to_prune(p->engine, n->volume, &rules, &items, &check, &v, NULL) == 0)
            json_array_extend(p->items, items);
    }
    return 0;
}

static void prune_finish(struct prune *p, const struct err *e, unsigned removed)
{
    CLEANUP_JSON json_t *answer = json_pack("{s:O,s:i}", "natives", p->natives, "started", (int)removed);
    if (p->reply)
        p->reply(e ? NULL : answer, e, p->arg);
    json_decref(p->natives);
    json_decref(p->items);
    json_decref(p->seen);
    free(p);
}

static void prune_done(struct step_result *s, void *arg)
{
    struct prune *p = arg;
    unsigned removed = 0;
    const json_t *a;
    size_t i;
    natives_removed(p->engine, s->err.cls ? NULL : s->out);
    json_array_foreach(json_object_get(s->out, "items"), i, a) removed += jobj(a, "error") == NULL;
    prune_finish(p, s->err.cls ? &s->err : NULL, removed);
}

void engine_native_prune(struct engine *g, const json_t *req, engine_reply_fn *reply, void *arg)
{
    struct prune *p = calloc(1, sizeof *p);
    struct err e = ERR_INIT;
    if (!p) {
        err_nomem(&e);
        reply(NULL, &e, arg);
        return;
    }
    *p = (struct prune){
        g, reply, arg, json_array(), json_array(), json_object(), jstr(req, "volume"), jbool(req, "dry_run")};
    if (records_each(g->records, REC_NATIVE, NULL, visit_prune, p, &e) < 0) {
        prune_finish(p, &e, 0);
        return;
    }
    p->volume = ""; /* the request's; it does not outlive this call */
    if (json_array_size(p->items) == 0) {
        prune_finish(p, NULL, 0);
        return;
    }
    CLEANUP_JSON json_t *in = json_pack("{s:O}", "items", p->items);
    if (step_start(g->steps, "native prune", step_remove, in, 600, prune_done, p, NULL, &e) < 0)
        prune_finish(p, &e, 0);
}
