/* SPDX-License-Identifier: GPL-2.0-or-later */
/* native-prune.c - native snapshots are pruned on demand, and looked at with each sweep of the storage */
#include "daemon/engine/facts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct prune {
    struct engine *engine;
    engine_reply_fn *reply;
    void *arg;
    json_t *natives, *items, *seen, *check; /* check: repository -> {snapshot id: alias} */
    json_t *ratios;                         /* volume id -> how full its pool is, 0..1 */
    char volume[VOLUME_NAME_MAX];
    bool dry_run, asked;
    int64_t since_ns;
    unsigned pending;
};

static double ratio_of(const struct prune *p, const char *volume_id)
{
    const json_t *r = json_object_get(p->ratios, volume_id);
    return json_is_number(r) ? json_number_value(r) : -1;
}

static void list_plan(struct prune *p, const char *volume_id, const struct policy *policy)
{
    CLEANUP_FREE struct native_facts *f = NULL;
    struct native_rules rules;
    struct native_verdict v;
    size_t n = 0;
    native_rules(&rules, policy, "", ratio_of(p, volume_id), false, now_ns());
    if (natives_gather(p->engine->records, volume_id, &f, &n, NULL) < 0)
        return;
    natives_plan(&rules, f, n, &v);
    for (size_t i = 0; i < n; i++) {
        CLEANUP(native_row_clear) struct native_row r;
        native_row_init(&r);
        char reasons[160];
        if (native_row_read(&p->engine->d, f[i].alias, &r) < 0)
            continue;
        json_t *j = engine_native_json(p->engine, &r);
        jset_bool(j, "prune", f[i].prune);
        jset_str(j, "why", f[i].why);
        jset_str(j, "reasons", native_reasons_text(f[i].reasons, reasons, sizeof reasons));
        json_array_append_new(p->natives, j);
    }
}

static int visit_prune(const struct native_row *n, void *arg)
{
    struct prune *p = arg;
    const char *name = n->volume->name;
    if (json_object_get(p->seen, n->volume_id))
        return 0;
    if (p->volume[0] && strcmp(p->volume, n->volume_id) != 0 && strcmp(p->volume, name) != 0)
        return 0;
    json_object_set_new(p->seen, n->volume_id, json_true());
    /* The policy in force now, where the volume still has one. */
    CLEANUP(policy_unrefp) const struct policy *policy = &policy_none;
    struct cfg_policy now = {.effective = NULL};
    if (cfg_class_of(p->engine->cfg, name) && cfg_policy(p->engine->cfg, name, NULL, &now, NULL) == 0) {
        struct policy own;
        policy_from_cfg(&own, &now);
        policy_take(&policy, policy_make(&own));
        cfg_policy_clear(&now);
    } else {
        policy_set(&policy, n->policy);
    }
    list_plan(p, n->volume_id, policy);
    if (!p->dry_run) {
        CLEANUP_JSON json_t *items = NULL, *check = NULL;
        struct native_rules rules;
        struct native_verdict v;
        native_rules(&rules, policy, "", ratio_of(p, n->volume_id), false, now_ns());
        if (natives_plan_prune(&p->engine->d, n->volume_id, &rules, p->since_ns, &items, &check, &v, NULL) == 0) {
            const char *repo = policy->repository;
            json_array_extend(p->items, items);
            if (json_object_size(check)) {
                if (!jobj(p->check, repo))
                    json_object_set_new(p->check, repo, json_object());
                json_object_update(jobj(p->check, repo), check);
            }
        }
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
    json_decref(p->check);
    json_decref(p->ratios);
    free(p);
}

static void prune_done(struct step_result *s, void *arg)
{
    struct prune *p = arg;
    unsigned removed = 0;
    const json_t *a;
    size_t i;
    natives_removed(&p->engine->d, s->err.cls ? NULL : s->out);
    json_array_foreach(json_object_get(s->out, "items"), i, a) removed += jobj(a, "error") == NULL;
    prune_finish(p, s->err.cls ? &s->err : NULL, removed);
}

static void prune_run(struct prune *p);

/* One repository has answered (or not: then what it was asked about stays). */
static void prune_checked(const json_t *state, bool terminal, void *arg)
{
    struct prune *p = arg;
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    if (!terminal)
        return;
    if (operation_read(&p->engine->d, jstr(state, "id"), &op) == 0)
        natives_note_checked(&p->engine->d, &op);
    if (--p->pending == 0) {
        engine_unwait(p->engine, p);
        prune_run(p);
    }
}

static void prune_run(struct prune *p)
{
    struct err e = ERR_INIT;
    json_object_clear(p->seen);
    json_object_clear(p->check);
    json_array_clear(p->items);
    json_array_clear(p->natives);
    if (native_row_each(p->engine->records, NULL, visit_prune, p, &e) < 0) {
        prune_finish(p, &e, 0);
        return;
    }
    if (json_object_size(p->check) && !p->asked) {
        const char *repo;
        json_t *check;
        p->asked = true;
        p->pending = 1;
        json_object_foreach(p->check, repo, check)
        {
            char id[512];
            if (natives_ask_repository(&p->engine->d, repo, check, id, NULL) == 0 &&
                engine_wait(p->engine, id, prune_checked, p, NULL) == 0)
                p->pending++;
        }
        if (--p->pending > 0)
            return;
    }
    if (json_array_size(p->items) == 0) {
        prune_finish(p, NULL, 0);
        return;
    }
    CLEANUP_JSON json_t *in = json_pack("{s:O}", "items", p->items);
    if (step_start(p->engine->steps, "native prune", step_remove, in, 600, prune_done, p, NULL, &e) < 0)
        prune_finish(p, &e, 0);
}

/* How full the pools are is a fact of the plan (RS-30), and worth an alarm by itself. */
static void pools_seen(struct step_result *s, void *arg)
{
    struct prune *p = arg;
    const json_t *a;
    size_t i;
    json_array_foreach(json_object_get(s->out, "items"), i, a)
    {
        const json_t *r = json_object_get(a, "used_ratio");
        if (json_is_number(r) && json_number_value(r) >= 0)
            json_object_set(p->ratios, jstr(a, "volume"), (json_t *)r);
    }
    json_decref(p->engine->pools);
    p->engine->pools = json_deep_copy(p->ratios);
    prune_run(p);
}

struct pool_items {
    json_t *items, *seen;
};
static int pool_item(const struct native_row *n, void *arg)
{
    struct pool_items *x = arg;
    if (json_object_get(x->seen, n->volume_id) || n->state != NATIVE_PRESENT)
        return 0;
    json_object_set_new(x->seen, n->volume_id, json_true());
    return json_array_append_new(x->items, json_pack("{s:o,s:o}", "class", class_desc_to_json(n->klass), "volume",
                                                     volume_desc_to_json(n->volume)));
}

void engine_native_prune(struct engine *g, const json_t *req, engine_reply_fn *reply, void *arg)
{
    struct prune *p = calloc(1, sizeof *p);
    struct err e = ERR_INIT;
    CLEANUP_JSON json_t *items = json_array(), *seen = json_object();
    struct pool_items x = {items, seen};
    if (!p) {
        err_nomem(&e);
        if (reply)
            reply(NULL, &e, arg);
        return;
    }
    *p = (struct prune){.engine = g,
                        .reply = reply,
                        .arg = arg,
                        .natives = json_array(),
                        .items = json_array(),
                        .seen = json_object(),
                        .check = json_object(),
                        .ratios = json_object(),
                        .dry_run = jbool(req, "dry_run"),
                        .since_ns = now_ns()};
    snprintf(p->volume, sizeof p->volume, "%s", jstr(req, "volume"));
    native_row_each(g->records, NULL, pool_item, &x, NULL);
    CLEANUP_JSON json_t *in = json_pack("{s:O}", "items", items);
    if (json_array_size(items) == 0 ||
        step_start(g->steps, "look at the pools", step_pool, in, 60, pools_seen, p, NULL, &e) < 0)
        prune_run(p);
}
