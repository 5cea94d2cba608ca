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

const json_t *admin_answer(const struct operation *op, unsigned i)
{
    return json_array_get(jarr(op->result, "answers"), i);
}

/* Adds a queued operation of `kind`; `op` is initialized and has what is special about it. */
static int add_operation(struct engine *g, enum op_kind kind, const char *prefix, const char *repository,
                         struct operation *op, const char *parent, char id[512], struct err *e)
{
    struct cfg_policy p = {.effective = NULL};
    struct policy policy;
    struct class_desc own;
    char stamp[32];
    if (!cfg_repository(g->cfg, repository)) {
        err_set(e, ERR_USAGE, 0, "there is no [repository \"%s\"] in the configuration", repository);
        return nearest_hint(e, cfg_near_repository(g->cfg, repository),
                            "`snapferry check-config` lists the repositories");
    }
    int rc = cfg_policy(g->cfg, "", NULL, &p, e);
    if (rc < 0)
        return rc;
    stamp_text(stamp);
    str_setf(&op->id, "%s-%s", prefix, stamp);
    str_set(&op->parent, parent);
    op->state = OP_QUEUED;
    op->kind = kind;
    policy_from_cfg(&policy, &p);
    cfg_policy_clear(&p);
    str_set(&policy.repository, repository);
    policy.retries = ADMIN_RETRIES;
    policy_take(&op->policy, policy_make(&policy));
    class_desc_init(&own);
    str_set(&own.node, cfg_daemon(g->cfg)->node_name);
    class_desc_take(&op->own, class_desc_make(&own));
    rc = operation_add(g->records, op, e);
    if (rc < 0)
        return rc;
    snprintf(id, 512, "%s", op->id);
    engine_kick(g);
    return 0;
}

int admin_submit(struct engine *g, const char *repository, json_t *steps, const char *parent, const char *prefix,
                 char id[512], struct err *e)
{
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    op.does = steps;
    return add_operation(g, KIND_ADMIN, prefix, repository, &op, parent, id, e);
}

static void start(struct engine *g, struct operation *op)
{
    const struct policy *policy = op->policy;
    const char *repo = policy->repository, *kind = op_kind_name(op->kind);
    const struct cfg_repository *r = cfg_repository(g->cfg, repo);
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
    if (op->state != OP_STARTING && operation_become(g, op, OP_STARTING) < 0)
        return;
    CLEANUP_JSON json_t *job =
        json_pack("{s:i,s:s,s:s,s:s,s:{s:s,s:s,s:s},s:s}", "protocol", MOVER_PROTOCOL, "operation", op->id, "kind",
                  kind, "node", cfg_daemon(g->cfg)->node_name, "repository", "name", repo, "type", r->type, "path",
                  r->path, "cache_dir", g->paths.cache_dir);
    limits_job(job, policy);
    if (op->does)
        json_object_set(job, "do", op->does);
    if (op->read_percent >= 0)
        json_object_set_new(job, "read_percent", json_real(op->read_percent));
    if (op->snapshots)
        json_object_set(job, "snapshots", op->snapshots);
    struct mover_spec s = {.operation = op->id,
                           .kind = kind,
                           .job = job,
                           .device_fd = -1,
                           .password = password,
                           .limits = &policy->limits,
                           .times = {.go_timeout_s = policy->go_timeout_s,
                                     .stall_timeout_s = policy->stall_timeout_s,
                                     .cancel_grace_s = policy->cancel_grace_s}};
    int rc = movers_start(g->movers, &s, &e);
    explicit_bzero(password, strlen(password));
    if (rc < 0 && rc != -EEXIST)
        operation_attempt_failed(g, op, "start", &e, true);
}

static void end(struct engine *g, struct operation *op)
{
    if (movers_has(g->movers, op->id))
        return;
    if (op->outcome == OUTCOME_NONE)
        op->outcome = OUTCOME_FAILED;
    op->completed_ns = now_ns();
    records_counters_hold(g->records);
    count_operation_ended(g, op, op->outcome);
    int rc = operation_become(g, op, op_state_of(op->outcome));
    records_counters_settle(g->records);
    if (rc < 0)
        return;
    movers_forget(g->movers, op->id, NULL, NULL, NULL);
    live_drop(g, op->id);
    engine_kick(g);
}

static void queued(struct engine *g, struct operation *op)
{
    const char *down = repository_down(g, op->policy->repository);
    if (!down) {
        start(g, op);
        return;
    }
    if (strcmp(op->waiting, down) != 0) {
        str_set(&op->waiting, down);
        operation_write(g, op);
    }
    /* Somebody may wait for the answer: a repository that stays away is an answer as well. */
    if (now_ns() - op->created_ns > 60 * NS_PER_S) {
        struct err e = ERR_INIT;
        err_set(&e, ERR_NO_REPO, 0, "%s", down);
        operation_attempt_failed(g, op, "repository", &e, false);
    }
}

void reconcile_admin(struct engine *g, struct operation *op)
{
    if (op->cancel && op->state != OP_CLEANING_UP && op->state != OP_RUNNING && op->state != OP_CANCELLING) {
        operation_cancel(g, op, op->cancel_reason);
        return;
    }
    switch (op->state) {
    case OP_QUEUED:
        queued(g, op);
        break;
    case OP_STARTING:
        if (!movers_has(g->movers, op->id))
            start(g, op);
        break;
    case OP_RUNNING:
    case OP_CANCELLING:
        reconcile_operation(g, op); /* adoption is the same for all movers */
        break;
    case OP_RETRYING:
        if (op->wake_ns > now_ns())
            break;
        op->wake_ns = 0;
        json_set(&op->identity, NULL);
        operation_become(g, op, OP_QUEUED);
        engine_kick(g);
        break;
    case OP_CLEANING_UP:
        end(g, op);
        break;
    case OP_NONE:
    case OP_SNAPSHOTTING:
    case OP_EXPOSING:
    case OP_COMPLETED:
    case OP_PARTIALLY_FAILED:
    case OP_FAILED:
    case OP_CANCELED:
    case OP_SKIPPED:
    case OP_STATES:
        break;
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
        add_operation(g, !strcmp(kind, "verify") ? KIND_VERIFY : KIND_ADMIN, kind, repository_of(g, req), &op, NULL, id,
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
