/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine-snapshots.c - phase 1 of a backup: room is made, hooks run, native snapshots are taken
 *
 * Each operation goes through the stages of its document: "pool" (how full the storage is), "prune" (RS-17: before
 * create), "hook" (pre-snapshot), "snapshot", "post" (post-snapshot hook, which always runs), "snapped". Members of a
 * group wait for each other before hook, snapshot and post, and are snapshotted by one step in quick succession
 * (CF-47).
 *
 * Crash points: engine-native-intent (names are recorded, nothing exists), engine-snapshot-taken (in the child, after
 * each snapshot), engine-snapshot-recorded, engine-native-removed, engine-hook-intent.
 */
#include "base/crash.h"
#include "daemon/engine/engine-impl.h"
#include "daemon/engine/hooks.h"

#include <errno.h>
#include <string.h>

#define GROUPS_AT_ONCE 4

static enum op_stage stage_of(const struct rec *op)
{
    return (enum op_stage)enum_value(&op_stage_names, jstr(op->doc, "stage"));
}

static int stage_set(struct engine *g, struct rec *op, enum op_stage s)
{
    jset_str(op->doc, "stage", op_stage_name(s));
    engine_kick(g);
    return save_state(g, REC_OPERATION, op, "Snapshotting");
}

/* The snapshot cannot be had: the reason waits until the post-snapshot hook has run. */
static void snapshot_failed(struct engine *g, struct rec *op, const char *stage, const struct err *e)
{
    doc_error(op->doc, stage, e);
    jset_bool(op->doc, "snapshot_failed", true);
    jset_bool(op->doc, "snapshot_transient",
              e->cls != ERR_USAGE && e->cls != ERR_NOT_FOUND && e->cls != ERR_PERMISSION);
    records_counters_hold(g->records);
    if (!strcmp(stage, "snapshot"))
        count_snapshot(g, op, false, 0);
    stage_set(g, op, STAGE_POST);
    records_counters_settle(g->records);
}

static void err_from(struct err *e, const json_t *doc)
{
    *e = (struct err)ERR_INIT;
    e->cls = (enum err_class)jint(doc, "class");
    if (!e->cls)
        e->cls = ERR_GENERIC;
    e->sys = (int)jint(doc, "errno");
    snprintf(e->msg, sizeof e->msg, "%s", jstr(doc, "message"));
    snprintf(e->hint, sizeof e->hint, "%s", jstr(doc, "hint"));
}

/* ---- room for the new one ---- */

static void pool_done(struct engine *g, struct rec *op, struct step_result *s)
{
    const json_t *a = json_array_get(json_object_get(s->out, "items"), 0);
    const json_t *v = a ? json_object_get(a, "used_ratio") : NULL;
    /* Not knowing how full it is forbids nothing: the storage itself will refuse. */
    json_object_set_new(op->doc, "pool_ratio", json_real(json_is_number(v) ? json_number_value(v) : -1));
    stage_set(g, op, STAGE_PRUNE);
}

static void look_at_pool(struct engine *g, struct rec *op)
{
    struct err e = ERR_INIT;
    json_t *in =
        json_pack("{s:[{s:O,s:O}]}", "items", "class", jobj(op->doc, "own"), "volume", jobj(op->doc, "volume"));
    if (stage_set(g, op, STAGE_POOL) < 0)
        json_decref(in);
    else if (work(g, REC_OPERATION, op, "look at the pool of", step_pool, in, 60, pool_done, &e) < 0)
        operation_attempt_failed(g, op, "snapshot", &e, true);
}

static void prune(struct engine *g, struct rec *op)
{
    const json_t *policy = jobj(op->doc, "policy"), *ratio = json_object_get(op->doc, "pool_ratio");
    struct native_rules rules;
    struct native_verdict v;
    struct err e = ERR_INIT;
    native_rules_from(&rules, policy, jstr(op->doc, "job"), json_is_number(ratio) ? json_number_value(ratio) : -1,
                      true);
    int rc = natives_make_room(g, op, &rules, jint(op->doc, "started_ns"), NULL, natives_pruned, &v, &e);
    if (rc < 0) {
        operation_attempt_failed(g, op, "snapshot", &e, true);
    } else if (rc == 0 && !v.may_create) {
        err_set(&e, ERR_NO_SPACE, 0, "no native snapshot of %s is taken: %s", jstr(jobj(op->doc, "volume"), "name"),
                v.why);
        err_hint(&e, "`snapferry native prune --explain --dry-run` shows what could go, `snapferry hold` what is held");
        operation_fail(g, op, "snapshot", &e);
    } else if (rc == 0) {
        stage_set(g, op, STAGE_HOOK);
    }
}

/* ---- hooks ---- */

static json_t *hook_request(const struct rec *op, const char *phase, const char *program)
{
    const json_t *policy = jobj(op->doc, "policy"), *volume = jobj(op->doc, "volume");
    return json_pack("{s:s,s:s,s:s,s:s,s:O,s:s,s:I,s:b,s:s}", "program", program, "phase", phase, "backup", op->parent,
                     "operation", op->id, "volume", (json_t *)volume, "class", jstr(jobj(op->doc, "own"), "name"),
                     "timeout_s", (json_int_t)jint(policy, "hook_timeout_s"), "continue",
                     jbool(policy, "hook_continue"), "result", jbool(op->doc, "snapshot_failed") ? "failed" : "ok");
}

static void pre_hook_done(struct engine *g, struct rec *op, struct step_result *s)
{
    jset_int(op->doc, "hook_began_ns", now_ns());
    if (s->err.cls && !jbool(jobj(op->doc, "policy"), "hook_continue")) {
        snapshot_failed(g, op, "pre-snapshot hook", &s->err);
        return;
    }
    if (s->err.cls) {
        log_warning("%s: the pre-snapshot hook: %s", rec_label(op), s->err.msg);
        jset_bool(op->doc, "degraded", true);
    }
    stage_set(g, op, STAGE_SNAPSHOT);
}

static void pre_hook(struct engine *g, struct rec *op)
{
    const json_t *policy = jobj(op->doc, "policy");
    const char *pre = jstr(policy, "hook_pre_snapshot"), *post = jstr(policy, "hook_post_snapshot");
    struct err e = ERR_INIT;
    /* The post hook's intent comes first: whatever happens from here on, it runs. */
    if (post[0] && jint(op->doc, "hook_intent") == 0) {
        uint64_t id;
        if (records_intent_add(g->records, op->id, "hook-post", post, hook_request(op, "post-snapshot", post), &id,
                               &e) < 0) {
            operation_attempt_failed(g, op, "snapshot", &e, true);
            return;
        }
        jset_int(op->doc, "hook_intent", (int64_t)id);
        if (save(g, REC_OPERATION, op) < 0)
            return;
        crash_point("engine-hook-intent");
    }
    if (!pre[0]) {
        stage_set(g, op, STAGE_SNAPSHOT);
        return;
    }
    if (post[0]) {
        CLEANUP_JSON json_t *thaw = hook_request(op, "post-snapshot", post);
        int64_t bound = jint(policy, "hook_timeout_s") + jint(policy, "snapshot_timeout_s") + 10;
        if (hook_watchdog_start(thaw, (unsigned)bound, &e) < 0) {
            snapshot_failed(g, op, "pre-snapshot hook", &e);
            return;
        }
    }
    if (work(g, REC_OPERATION, op, "pre-snapshot hook of", hook_step, hook_request(op, "pre-snapshot", pre),
             jint(policy, "hook_timeout_s") + 10, pre_hook_done, &e) < 0)
        snapshot_failed(g, op, "pre-snapshot hook", &e);
}

static void after_post(struct engine *g, struct rec *op)
{
    const json_t *policy = jobj(op->doc, "policy");
    if (jint(op->doc, "hook_began_ns"))
        jset_int(op->doc, "frozen_ms", (now_ns() - jint(op->doc, "hook_began_ns")) / 1000000);
    jset_str(op->doc, "stage", op_stage_name(STAGE_SNAPPED));
    if (jbool(op->doc, "snapshot_failed")) {
        struct err e;
        err_from(&e, jobj(op->doc, "error"));
        const json_t *d = jobj(op->doc, "error");
        e.cls = (enum err_class)jint(d, "code");
        bool transient = jbool(op->doc, "snapshot_transient");
        jset_bool(op->doc, "snapshot_failed", false);
        operation_attempt_failed(g, op, jstr(d, "stage"), &e, transient);
        return;
    }
    if (!jbool(policy, "move_data"))
        operation_finish(g, op, "Completed");
    else
        save_state(g, REC_OPERATION, op, "Queued");
}

static void post_hook_done(struct engine *g, struct rec *op, struct step_result *s)
{
    if (s->err.cls) {
        log_warning("%s: the post-snapshot hook: %s", rec_label(op), s->err.msg);
        jset_bool(op->doc, "degraded", true);
        if (!jobj(op->doc, "error"))
            doc_error(op->doc, "post-snapshot hook", &s->err);
    }
    records_intent_resolve(g->records, (uint64_t)jint(op->doc, "hook_intent"), NULL);
    if (hook_watchdog_stop(op->id) && !jbool(op->doc, "snapshot_failed")) {
        /* What the hook had stopped went on before the snapshot was finished: it is not what was promised. */
        struct err e = ERR_INIT;
        err_set(&e, ERR_GENERIC, 0, "the watchdog ran the post-snapshot hook before the native snapshot was finished");
        err_hint(&e, "raise snapshot-timeout or hook-timeout, or find out why the snapshot took so long");
        doc_error(op->doc, "snapshot", &e);
        jset_bool(op->doc, "snapshot_failed", true);
        jset_bool(op->doc, "snapshot_transient", true);
    }
    jset_int(op->doc, "hook_intent", 0);
    after_post(g, op);
}

static void post_hook(struct engine *g, struct rec *op)
{
    const json_t *policy = jobj(op->doc, "policy");
    const char *post = jstr(policy, "hook_post_snapshot");
    struct err e = ERR_INIT;
    if (!post[0] || jint(op->doc, "hook_intent") == 0) {
        after_post(g, op);
        return;
    }
    if (work(g, REC_OPERATION, op, "post-snapshot hook of", hook_step, hook_request(op, "post-snapshot", post),
             jint(policy, "hook_timeout_s") + 10, post_hook_done, &e) < 0)
        log_warning("%s", e.msg);
}

/* ---- taking them ---- */

struct members {
    struct rec *op;
    unsigned n;
};

static json_t *tag_doc(const struct rec *op, const char *alias, uint64_t seq)
{
    const json_t *v = jobj(op->doc, "volume");
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:I,s:I}", "alias", alias, "volume_id", jstr(v, "id"), "volume_name",
                     jstr(v, "name"), "backup", op->parent, "operation", op->id, "repository",
                     jstr(jobj(op->doc, "policy"), "repository"), "created_ns", (json_int_t)now_ns(), "seq",
                     (json_int_t)seq);
}

/* The name is in the records before anything exists under it. */
static int native_intent(struct engine *g, struct rec *op, struct err *e)
{
    char alias[ALIAS_LEN + 1];
    const json_t *policy = jobj(op->doc, "policy");
    uint64_t intent;
    if (jstr(op->doc, "native")[0])
        return 0; /* after a crash: the same alias again */
    alias_new(alias);
    CLEANUP(rec_clearp) struct rec n = {.doc = json_object()};
    snprintf(n.id, sizeof n.id, "%s", alias);
    snprintf(n.parent, sizeof n.parent, "%s", op->parent);
    snprintf(n.volume, sizeof n.volume, "%s", op->volume);
    snprintf(n.state, sizeof n.state, "creating");
    json_object_set(n.doc, "class", jobj(op->doc, "own"));
    json_object_set(n.doc, "volume", jobj(op->doc, "volume"));
    json_object_set(n.doc, "policy", (json_t *)policy);
    jset_str(n.doc, "driver", jstr(jobj(op->doc, "own"), "driver"));
    jset_str(n.doc, "operation", op->id);
    jset_str(n.doc, "job", jstr(op->doc, "job"));
    jset_int(n.doc, "effective_retain", jint(policy, "snapshots_to_retain"));
    jset_bool(n.doc, "job_retain", jbool(policy, "job_retain"));
    jset_bool(n.doc, "snapshot_only", !jbool(policy, "move_data"));
    jset_bool(n.doc, "moved", false);
    int rc = records_begin(g->records, e);
    if (rc < 0)
        return rc;
    rc = records_add(g->records, REC_NATIVE, &n, e);
    if (rc == 0)
        rc = records_intent_add(
            g->records, op->id, "native", alias,
            json_pack("{s:O,s:O}", "class", jobj(op->doc, "own"), "volume", jobj(op->doc, "volume")), &intent, e);
    if (rc == 0) {
        json_object_set_new(op->doc, "tag", tag_doc(op, alias, n.seq));
        jset_str(op->doc, "native", alias);
        jset_int(op->doc, "native_intent", (int64_t)intent);
        rc = records_save(g->records, REC_OPERATION, op, e);
    }
    if (rc < 0) {
        records_rollback(g->records);
        return rc;
    }
    return records_commit(g->records, e);
}

/* The snapshot exists: the native's record takes over from the intent. */
static int native_recorded(struct engine *g, struct rec *op, const json_t *item, struct err *e)
{
    CLEANUP(rec_clearp) struct rec n = REC_INIT;
    int rc = records_get(g->records, REC_NATIVE, jstr(op->doc, "native"), &n, e);
    if (rc < 0)
        return rc;
    rc = records_begin(g->records, e);
    if (rc < 0)
        return rc;
    json_object_set(n.doc, "native", jobj(item, "native"));
    snprintf(n.state, sizeof n.state, "present");
    rc = records_save(g->records, REC_NATIVE, &n, e);
    if (rc == 0)
        rc = records_intent_resolve(g->records, (uint64_t)jint(op->doc, "native_intent"), e);
    if (rc == 0) {
        json_object_set(op->doc, "native_doc", jobj(item, "native"));
        if (jobj(item, "volume"))
            json_object_set(op->doc, "volume", jobj(item, "volume"));
        jset_int(op->doc, "snapshot_ns", jint(item, "end_ns"));
        jset_int(op->doc, "snapshot_ms", (jint(item, "end_ns") - jint(item, "begin_ns")) / 1000000);
        jset_str(op->doc, "stage", op_stage_name(STAGE_POST));
        rc = records_save(g->records, REC_OPERATION, op, e);
    }
    if (rc < 0) {
        records_rollback(g->records);
        return rc;
    }
    records_counters_hold(g->records);
    count_snapshot(g, op, true, (double)(jint(item, "end_ns") - jint(item, "begin_ns")) / 1e9);
    rc = records_commit(g->records, e);
    records_counters_settle(g->records);
    crash_point("engine-snapshot-recorded");
    return rc;
}

static void skew_of(const json_t *items, int64_t *ms)
{
    int64_t first = INT64_MAX, last = 0;
    const json_t *a;
    size_t i;
    json_array_foreach(items, i, a)
    {
        if (jint(a, "begin_ns") && jint(a, "begin_ns") < first)
            first = jint(a, "begin_ns");
        if (jint(a, "end_ns") > last)
            last = jint(a, "end_ns");
    }
    *ms = last > first ? (last - first) / 1000000 : 0;
}

static void snapshot_done(struct engine *g, struct rec *first, struct step_result *s)
{
    const json_t *items = json_object_get(s->out, "items"), *a;
    int64_t skew = 0;
    size_t i;
    if (s->err.cls) { /* the step as a whole: each member that waits for it fails with the same words */
        if (s->timed_out)
            err_hint(&s->err,
                     "is the file system frozen, or the storage hung? snapshot-timeout says how long it is waited for");
        snapshot_failed(g, first, "snapshot", &s->err);
        return;
    }
    skew_of(items, &skew);
    json_array_foreach(items, i, a)
    {
        CLEANUP(rec_clearp) struct rec op = REC_INIT;
        struct err e = ERR_INIT;
        if (rec_get(g, REC_OPERATION, jstr(a, "operation"), &op) < 0 || stage_of(&op) != STAGE_SNAPSHOT)
            continue;
        const json_t *policy = jobj(op.doc, "policy");
        if (jstr(policy, "group")[0])
            jset_int(op.doc, "group_skew_ms", skew);
        if (jobj(a, "error")) {
            err_from(&e, jobj(a, "error"));
            snapshot_failed(g, &op, "snapshot", &e);
        } else if (native_recorded(g, &op, a, &e) < 0) {
            log_warning("%s: %s", op.id, e.msg);
        } else if (jbool(policy, "group_strict") && skew > jint(policy, "group_max_skew_ms")) {
            err_set(&e, ERR_GENERIC, 0, "group \"%s\": its snapshots lie %lld ms apart, more than %lld ms",
                    jstr(policy, "group"), (long long)skew, (long long)jint(policy, "group_max_skew_ms"));
            err_hint(&e, "pause its writers in a pre-snapshot hook, or set group-consistency = best-effort");
            snapshot_failed(g, &op, "snapshot", &e);
        }
    }
}

static void take(struct engine *g, struct members *m)
{
    CLEANUP_JSON json_t *items = json_array();
    struct err e = ERR_INIT;
    int64_t timeout = 60;
    struct rec *first = NULL;
    for (unsigned i = 0; i < m->n; i++) {
        struct rec *op = &m->op[i];
        if (stage_of(op) != STAGE_SNAPSHOT)
            continue;
        if (native_intent(g, op, &e) < 0) {
            log_warning("%s: %s", rec_label(op), e.msg);
            return;
        }
        if (!first)
            first = op;
        if (jint(jobj(op->doc, "policy"), "snapshot_timeout_s") > timeout)
            timeout = jint(jobj(op->doc, "policy"), "snapshot_timeout_s");
        json_array_append_new(items, json_pack("{s:s,s:O,s:O,s:O}", "operation", op->id, "class", jobj(op->doc, "own"),
                                               "volume", jobj(op->doc, "volume"), "tag", jobj(op->doc, "tag")));
    }
    if (!first)
        return;
    crash_point("engine-native-intent");
    if (work(g, REC_OPERATION, first, "snapshot", step_snapshot, json_pack("{s:O}", "items", items), timeout,
             snapshot_done, &e) < 0)
        snapshot_failed(g, first, "snapshot", &e);
}

/* ---- groups ---- */

static bool in_phase_1(const struct rec *op)
{
    return !state_terminal(op->state) && strcmp(op->state, "CleaningUp") && stage_of(op) != STAGE_SNAPPED;
}

/* The next thing for the members of one group; all have the same backup. */
static void group_step(struct engine *g, struct members *m)
{
    enum op_stage least = STAGE_SNAPPED;
    for (unsigned i = 0; i < m->n; i++)
        if (stage_of(&m->op[i]) < least)
            least = stage_of(&m->op[i]);
    if (least == STAGE_SNAPSHOT) {
        take(g, m);
        return;
    }
    for (unsigned i = 0; i < m->n; i++) {
        struct rec *op = &m->op[i];
        if (stage_of(op) != least || jbool(op->doc, "cancel"))
            continue;
        switch (least) {
        case STAGE_NEW:
            jset_int(op->doc, "started_ns", now_ns());
            look_at_pool(g, op);
            break;
        case STAGE_POOL: /* after a restart: the step is gone */
            look_at_pool(g, op);
            break;
        case STAGE_PRUNE:
            prune(g, op);
            break;
        case STAGE_HOOK:
            pre_hook(g, op);
            break;
        case STAGE_POST:
            post_hook(g, op);
            break;
        default:
            break;
        }
    }
}

struct gather {
    struct rec *op;
    unsigned n, cap;
};
static int gather_op(struct rec *op, void *arg)
{
    struct gather *x = arg;
    if (x->n == x->cap) {
        unsigned cap = x->cap ? 2 * x->cap : 16;
        struct rec *p = realloc(x->op, cap * sizeof *p);
        if (!p)
            return -ENOMEM;
        x->op = p;
        x->cap = cap;
    }
    x->op[x->n++] = *op;
    op->doc = NULL;
    return 0;
}

static const char *group_of(const struct rec *op)
{
    const char *group = jstr(jobj(op->doc, "policy"), "group");
    return group[0] ? group : op->id;
}

bool reconcile_snapshots(struct engine *g, struct rec *b)
{
    struct gather all = {NULL, 0, 0};
    struct rec_filter f = {.parent = b->id, .live = true};
    unsigned left = 0, active = 0;
    if (records_each(g->records, REC_OPERATION, &f, gather_op, &all, NULL) < 0)
        left = 1;
    for (unsigned i = 0; i < all.n; i++) {
        if (!in_phase_1(&all.op[i]) || !strcmp(jstr(all.op[i].doc, "kind"), "admin")) {
            rec_clear(&all.op[i]);
            continue;
        }
        all.op[left++] = all.op[i];
    }
    all.n = left;
    /* Each group's members one after the other, groups side by side. */
    for (unsigned i = 0; i < all.n; i++) {
        if (!all.op[i].doc)
            continue;
        CLEANUP_FREE struct rec *member = calloc(all.n, sizeof *member);
        struct members m = {member, 0};
        bool waits = false;
        char group[600];
        if (!member)
            break;
        snprintf(group, sizeof group, "%s", group_of(&all.op[i]));
        for (unsigned k = i; k < all.n; k++) {
            if (!all.op[k].doc || strcmp(group_of(&all.op[k]), group))
                continue;
            waits |= busy(g, all.op[k].id);
            member[m.n++] = all.op[k];
            all.op[k].doc = NULL;
        }
        if (waits)
            active++;
        else if (active < GROUPS_AT_ONCE) {
            active++;
            group_step(g, &m);
        }
        for (unsigned k = 0; k < m.n; k++)
            rec_clear(&member[k]);
    }
    free(all.op);
    return left == 0;
}
