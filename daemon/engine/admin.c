/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine-admin.c - what the daemon needs from a repository, done by movers of kind admin and verify
 *
 * The daemon never opens a repository itself. An admin operation carries a list of small steps (check, delete, expire,
 * policy, scan), runs outside the slots, and leaves its answers in its record.
 */
#include "base/crash.h"
#include "base/nearest.h"
#include "daemon/records/names.h"
#include "daemon/engine/volumes.h"
#include "daemon/protocol/mover-wire.h"

#include <errno.h>
#include <string.h>

#define ADMIN_RETRIES 3

const json_t *admin_answer(const struct rec *op, unsigned i)
{
    return json_array_get(jarr(jobj(op->doc, "result"), "answers"), i);
}

static int add_operation(struct engine *g, const char *kind, const char *prefix, const char *repository, json_t *extra,
                         const char *parent, char id[512], struct err *e)
{
    CLEANUP(rec_clearp) struct rec op = {.doc = json_object()};
    struct cfg_policy p = {.effective = NULL};
    char stamp[32];
    CLEANUP_JSON json_t *owned = extra;
    if (!cfg_repository(g->cfg, repository)) {
        err_set(e, ERR_USAGE, 0, "there is no [repository \"%s\"] in the configuration", repository);
        return nearest_hint(e, cfg_near_repository(g->cfg, repository),
                            "`snapferry check-config` lists the repositories");
    }
    stamp_text(stamp);
    snprintf(op.id, sizeof op.id, "%s-%s", prefix, stamp);
    snprintf(op.parent, sizeof op.parent, "%s", parent ? parent : "");
    snprintf(op.state, sizeof op.state, "Queued");
    int rc = cfg_policy(g->cfg, "", NULL, &p, e);
    if (rc < 0)
        return rc;
    json_t *policy = policy_doc(&p);
    cfg_policy_clear(&p);
    jset_str(policy, "repository", repository);
    jset_int(policy, "retries", ADMIN_RETRIES);
    json_object_set_new(op.doc, "policy", policy);
    jset_str(op.doc, "kind", kind);
    json_object_set_new(op.doc, "own", json_pack("{s:s,s:s}", "name", "", "node", cfg_daemon(g->cfg)->node_name));
    json_object_update(op.doc, owned);
    rc = records_add(g->records, REC_OPERATION, &op, e);
    if (rc < 0)
        return rc;
    snprintf(id, 512, "%s", op.id);
    engine_kick(g);
    return 0;
}

int admin_submit(struct engine *g, const char *repository, json_t *steps, const char *parent, const char *prefix,
                 char id[512], struct err *e)
{
    return add_operation(g, "admin", prefix, repository, json_pack("{s:o}", "do", steps), parent, id, e);
}

static void start(struct engine *g, struct rec *op)
{
    const json_t *policy = jobj(op->doc, "policy");
    const char *props[33], *repo = jstr(policy, "repository"), *kind = jstr(op->doc, "kind");
    const struct cfg_repository *r = cfg_repository(g->cfg, repo);
    struct cfg_mover view;
    struct err e = ERR_INIT;
    CLEANUP_FREE char *password = NULL;
    if (!r)
        err_set(&e, ERR_USAGE, 0, "repository \"%s\" is no longer in the configuration", repo);
    else if (repository_password(g->cfg, repo, &password, &e) < 0)
        repositories_refresh(g, true); /* the next attempt waits until it can be read */
    if (e.cls) {
        operation_attempt_failed(g, op, "start", &e, r != NULL);
        return;
    }
    if (strcmp(op->state, "Starting") && save_state(g, REC_OPERATION, op, "Starting") < 0)
        return;
    CLEANUP_JSON json_t *job =
        json_pack("{s:i,s:s,s:s,s:s,s:{s:s,s:s,s:s},s:s}", "protocol", MOVER_PROTOCOL, "operation", op->id, "kind",
                  kind, "node", cfg_daemon(g->cfg)->node_name, "repository", "name", repo, "type", r->type, "path",
                  r->path, "cache_dir", g->paths.cache_dir);
    limits_job(job, policy);
    if (jarr(op->doc, "do"))
        json_object_set(job, "do", jarr(op->doc, "do"));
    if (json_object_get(op->doc, "read_percent"))
        json_object_set(job, "read_percent", json_object_get(op->doc, "read_percent"));
    if (json_object_get(op->doc, "snapshots"))
        json_object_set(job, "snapshots", json_object_get(op->doc, "snapshots"));
    limits_view(&view, policy, props);
    struct mover_spec s = {.operation = op->id,
                           .kind = kind,
                           .job = job,
                           .device_fd = -1,
                           .password = password,
                           .limits = &view,
                           .go_timeout_s = jint(policy, "go_timeout_s"),
                           .stall_timeout_s = jint(policy, "stall_timeout_s"),
                           .cancel_grace_s = jint(policy, "cancel_grace_s")};
    int rc = movers_start(g->movers, &s, &e);
    explicit_bzero(password, strlen(password));
    if (rc < 0 && rc != -EEXIST)
        operation_attempt_failed(g, op, "start", &e, true);
}

static void end(struct engine *g, struct rec *op)
{
    const char *outcome = jstr(op->doc, "outcome");
    if (movers_has(g->movers, op->id))
        return;
    jset_int(op->doc, "completed_ns", now_ns());
    records_counters_hold(g->records);
    count_operation_ended(g, op, outcome);
    int rc = save_state(g, REC_OPERATION, op, outcome[0] ? outcome : "Failed");
    records_counters_settle(g->records);
    if (rc < 0)
        return;
    movers_forget(g->movers, op->id, NULL);
    live_drop(g, op->id);
    engine_kick(g);
}

void reconcile_admin(struct engine *g, struct rec *op)
{
    const char *s = op->state;
    if (jbool(op->doc, "cancel") && strcmp(s, "CleaningUp") && strcmp(s, "Running") && strcmp(s, "Cancelling")) {
        operation_cancel(g, op, jstr(op->doc, "cancel_reason"));
        return;
    }
    if (!strcmp(s, "Queued")) {
        const char *down = repository_down(g, jstr(jobj(op->doc, "policy"), "repository"));
        if (down) {
            if (strcmp(jstr(op->doc, "waiting"), down)) {
                jset_str(op->doc, "waiting", down);
                save(g, REC_OPERATION, op);
            }
            /* Somebody may wait for the answer: a repository that stays away is an answer as well. */
            if (now_ns() - op->created_ns > 60 * NS_PER_S) {
                struct err e = ERR_INIT;
                err_set(&e, ERR_NO_REPO, 0, "%s", down);
                operation_attempt_failed(g, op, "repository", &e, false);
            }
            return;
        }
        start(g, op);
    } else if (!strcmp(s, "Starting")) {
        if (!movers_has(g->movers, op->id))
            start(g, op);
    } else if (!strcmp(s, "Running") || !strcmp(s, "Cancelling")) {
        reconcile_operation(g, op); /* adoption is the same for all movers */
    } else if (!strcmp(s, "Retrying")) {
        if (op->wake_ns > now_ns())
            return;
        op->wake_ns = 0;
        json_object_del(op->doc, "identity");
        save_state(g, REC_OPERATION, op, "Queued");
        engine_kick(g);
    } else if (!strcmp(s, "CleaningUp")) {
        end(g, op);
    }
}

/* ---- requests ---- */

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
    struct err e = ERR_INIT;
    char id[512] = "";
    const char *kind = jstr(req, "kind");
    json_t *extra = json_object();
    if (!strcmp(kind, "verify")) {
        const json_t *p = json_object_get(req, "read_percent");
        double percent = json_is_number(p) ? json_number_value(p) : 100;
        if (percent < 0 || percent > 100)
            err_set(&e, ERR_USAGE, 0, "read_percent must be between 0 and 100");
        json_object_set_new(extra, "read_percent", json_real(percent));
        if (jarr(req, "snapshots"))
            json_object_set(extra, "snapshots", jarr(req, "snapshots"));
    } else if (!strcmp(kind, "admin") && jarr(req, "do")) {
        json_object_set(extra, "do", jarr(req, "do"));
    } else {
        err_set(&e, ERR_USAGE, 0, "there is no operation of kind \"%s\" that can be asked for", kind);
    }
    if (e.cls)
        json_decref(extra);
    else
        add_operation(g, kind, kind, repository_of(g, req), extra, NULL, id, &e);
    answer_id(reply, arg, id, &e);
}

void engine_expire(struct engine *g, const json_t *req, engine_reply_fn *reply, void *arg)
{
    struct err e = ERR_INIT;
    char id[512] = "", source[700] = "";
    const char *volume = jstr(req, "volume");
    CLEANUP_JSON json_t *sources = volume[0] ? json_array() : json_null(); /* null: all of this node */
    if (volume[0]) {
        CLEANUP(rec_clearp) struct rec v = REC_INIT;
        if (volume_find(g, volume, &v) < 0) {
            volume_known(g->records, volume, &e);
        } else {
            snprintf(source, sizeof source, "snapferry@%s:/%s", cfg_daemon(g->cfg)->node_name, v.id);
        }
        json_array_append_new(sources, json_pack("{s:s,s:n}", "source", source, "keep"));
    }
    if (!e.cls) {
        json_t *steps = json_pack("[{s:s,s:O,s:b,s:b}]", "verb", "expire", "sources", sources, "dry_run",
                                  jbool(req, "dry_run"), "explain", jbool(req, "explain"));
        admin_submit(g, repository_of(g, req), steps, NULL, "admin-expire", id, &e);
    }
    answer_id(reply, arg, id, &e);
}
