/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine-natives.c - native snapshots in the records: which go, holds, prune on demand, deletion of backups
 */
#include "base/crash.h"
#include "daemon/engine/facts.h"

#include <errno.h>
#include <string.h>

#define CHECKS_MAX 4 /* questions to a repository for one operation */

/*
 * What a plan would remove, as items for step_remove. One whose data is in a repository goes only when the repository
 * was asked after `since_ns` and could read it (RS-18): until then it is in *check (snapshot id -> alias), not in
 * *items. `trust` (alias or NULL) needs no asking: its mover has just committed it. The records say "removing" before
 * anything is removed.
 */
static int plan_prune(struct engine *g, const char *volume_id, const struct native_rules *rules, int64_t since_ns,
                      const char *trust, json_t **items, json_t **check, struct native_verdict *v, struct err *e)
{
    CLEANUP_FREE struct native_facts *f = NULL;
    size_t n = 0;
    int rc = natives_gather(g->records, volume_id, &f, &n, e);
    if (rc < 0)
        return rc;
    natives_plan(rules, f, n, v);
    facts_plan(g, f, n);
    *items = json_array();
    *check = json_object();
    for (size_t i = 0; i < n; i++) {
        CLEANUP(native_row_clear) struct native_row r;
        native_row_init(&r);
        if (!f[i].prune || native_row_read(g, f[i].alias, &r) < 0 || r.state == NATIVE_CREATING)
            continue;
        bool trusted = !f[i].moved || r.verified_ns >= since_ns || (trust && !strcmp(trust, r.id)) ||
                       r.state == NATIVE_REMOVING || !r.snapshot[0];
        if (!trusted) {
            jset_str(*check, r.snapshot, r.id);
            continue;
        }
        /* Of one that is missing only the record goes, and only if it still is: its storage may have come back. */
        bool missing = r.state == NATIVE_MISSING;
        if (!missing && r.state != NATIVE_REMOVING) {
            str_set(&r.why_removed, f[i].why);
            if (native_row_become(g, &r, NATIVE_REMOVING) < 0)
                continue;
        }
        json_array_append_new(*items,
                              json_pack("{s:s,s:o,s:o,s:b}", "alias", r.id, "class", class_desc_to_json(r.klass),
                                        "native", native_desc_to_json(r.native), "missing", (int)missing));
    }
    return 0;
}

/* What the repository said about the snapshots behind natives. */
static void note_checked(struct engine *g, const struct operation *check)
{
    const json_t *readable = json_object_get(admin_answer(check, 0), "readable"), *alias;
    const char *snapshot;
    json_object_foreach(check->aliases, snapshot, alias)
    {
        CLEANUP(native_row_clear) struct native_row n;
        native_row_init(&n);
        const json_t *v = json_object_get(readable, snapshot);
        if (!v || native_row_read(g, json_string_value(alias), &n) < 0)
            continue;
        if (json_is_true(v)) {
            n.verified_ns = now_ns();
        } else {
            log_warning("snapshot %s of %s is not readable in its repository: its native snapshot stays", snapshot,
                        n.volume->name);
            n.moved_verified = false;
        }
        native_row_write(g, &n);
    }
}

static int ask_repository(struct engine *g, const char *repository, const char *parent, json_t *check, char id[512],
                          struct err *e)
{
    json_t *ids = json_array(), *alias;
    const char *snapshot;
    json_object_foreach(check, snapshot, alias) json_array_append_new(ids, json_string(snapshot));
    json_t *steps = json_pack("[{s:s,s:o}]", "verb", "check", "snapshots", ids);
    int rc = admin_submit(g, repository, steps, parent, "admin-check", id, e);
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    if (rc < 0)
        return rc;
    rc = operation_read(g, id, &op);
    if (rc < 0)
        return rc;
    json_set(&op.aliases, check);
    return operation_write(g, &op);
}

bool natives_asked(struct engine *g, const struct operation *op, char *out, size_t cap)
{
    CLEANUP(operation_clear) struct operation asked;
    operation_init(&asked);
    const char *id = op->check_operation, *why;
    if (!id[0] || operation_read(g, id, &asked) < 0 || op_state_terminal(asked.state))
        return false;
    why = asked.state == OP_RETRYING ? asked.error.message : asked.state == OP_QUEUED ? asked.waiting : "";
    snprintf(out, cap, "waits for %s: %.700s", id,
             why[0] ? why : "is what older native snapshots hold in the repository?");
    return true;
}

int natives_make_room(struct engine *g, struct operation *op, const struct native_rules *rules, int64_t since_ns,
                      const char *trust, operation_done_fn *done, struct native_verdict *v, struct err *e)
{
    CLEANUP_JSON json_t *items = NULL, *check = NULL;
    CLEANUP(operation_clear) struct operation asked;
    operation_init(&asked);
    const char *id = op->check_operation;
    if (id[0] && operation_read(g, id, &asked) == 0) {
        if (!op_state_terminal(asked.state))
            return 1;
        note_checked(g, &asked);
        str_clear(&op->check_operation);
        /* One that failed has had its retries: the next would fail as well. What is not known to be safe stays. */
        op->checks = asked.state != OP_COMPLETED ? CHECKS_MAX : op->checks + 1;
        int rc = operation_write(g, op);
        if (rc < 0)
            return rc;
    }
    int rc = plan_prune(g, op->volume_id, rules, since_ns, trust, &items, &check, v, e);
    if (rc < 0)
        return rc;
    if (json_object_size(check) && op->checks < CHECKS_MAX) {
        char fresh[512];
        if (ask_repository(g, op->policy->repository, NULL, check, fresh, NULL) == 0)
            str_set(&op->check_operation, fresh);
        else
            op->checks = CHECKS_MAX; /* nobody to ask: what is not known to be safe stays */
        rc = operation_write(g, op);
        engine_kick(g);
        return rc < 0 ? rc : 1;
    }
    if (json_array_size(items) && op->prune_rounds < 6) {
        rc = operation_work(g, op, "prune for", step_remove, json_pack("{s:O}", "items", items),
                            op->policy->snapshot_timeout_s, done, e);
        return rc < 0 ? rc : 1;
    }
    return 0;
}

void natives_pruned(struct engine *g, struct operation *op, struct step_result *s)
{
    natives_removed(g, s->err.cls ? NULL : s->out);
    if (s->err.cls)
        log_warning("%s: native snapshots cannot be pruned: %s", operation_label(op), s->err.msg);
    /* What could not be removed is planned again; a storage that is full will say so itself. */
    const json_t *a;
    size_t i;
    json_array_foreach(json_object_get(s->out, "items"), i, a)
    {
        if (jobj(a, "error"))
            log_warning("native snapshot %s cannot be removed: %s", jstr(a, "alias"),
                        jstr(jobj(a, "error"), "message"));
    }
    op->prune_rounds = op->prune_rounds + 1;
    operation_write(g, op);
}

void natives_removed(struct engine *g, const json_t *out)
{
    const json_t *a;
    size_t i;
    json_array_foreach(json_object_get(out, "items"), i, a)
    {
        const char *alias = jstr(a, "alias");
        CLEANUP(native_row_clear) struct native_row r;
        native_row_init(&r);
        if (!alias[0] || native_row_read(g, alias, &r) < 0)
            continue;
        if (jobj(a, "error")) {
            json_set(&r.remove_error, jobj(a, "error"));
            records_counter_add(g->records, "snapshot_delete_failures_total", NULL, 1, NULL);
            native_row_write(g, &r);
            continue;
        }
        if (jbool(a, "there")) {
            log_info("native snapshot %s of %s is on the storage again", alias, r.volume->name);
            native_row_become(g, &r, NATIVE_PRESENT);
            if (r.snapshot_only)
                volume_backup_found(g, r.volume_id);
            continue;
        }
        if (jbool(a, "gone"))
            log_warning("native snapshot %s of %s was already gone", alias, r.volume->name);
        native_row_delete(g->records, alias, NULL);
        if (r.snapshot_only)
            volume_backup_lost(g, r.volume_id, r.parent, "was a native snapshot alone, which was removed", NULL);
    }
}

/* ---- holds ---- */

struct hold {
    struct engine *engine;
    bool hold;
    const char *note;
    json_t *changed;
};
static int visit_hold(const struct native_row *row, void *arg)
{
    struct hold *h = arg;
    CLEANUP(native_row_clear) struct native_row n;
    if (native_row_copy(&n, row) < 0)
        return -ENOMEM;
    n.hold.held = h->hold;
    str_set(&n.hold.note, h->hold ? h->note : "");
    n.hold.at_ns = h->hold ? now_ns() : 0;
    if (native_row_write(h->engine, &n) == 0)
        json_array_append_new(h->changed, json_string(n.id));
    return 0;
}

void engine_hold(struct engine *g, const json_t *req, engine_reply_fn *reply, void *arg)
{
    const char *what = jstr(req, "native");
    struct err e = ERR_INIT;
    CLEANUP_JSON json_t *answer = json_object();
    CLEANUP(native_row_clear) struct native_row n;
    struct hold h = {g, jbool(req, "hold"), jstr(req, "note"), json_array()};
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
    native_rules_from(&rules, policy, "", ratio_of(p, volume_id), false);
    if (natives_gather(p->engine->records, volume_id, &f, &n, NULL) < 0)
        return;
    natives_plan(&rules, f, n, &v);
    for (size_t i = 0; i < n; i++) {
        CLEANUP(native_row_clear) struct native_row r;
        native_row_init(&r);
        char reasons[160];
        if (native_row_read(p->engine, f[i].alias, &r) < 0)
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
        native_rules_from(&rules, policy, "", ratio_of(p, n->volume_id), false);
        if (plan_prune(p->engine, n->volume_id, &rules, p->since_ns, NULL, &items, &check, &v, NULL) == 0) {
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
    natives_removed(p->engine, s->err.cls ? NULL : s->out);
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
    if (operation_read(p->engine, jstr(state, "id"), &op) == 0)
        note_checked(p->engine, &op);
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
            if (ask_repository(p->engine, repo, NULL, check, id, NULL) == 0 &&
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
