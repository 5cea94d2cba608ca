/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine-move.c - the process that moves an operation's data: its job, its start, its adoption, what it says
 *
 * Crash points: engine-unit-intent, engine-mover-started, engine-running, engine-result-recorded.
 */
#include "base/crash.h"
#include "daemon/engine/engine-impl.h"
#include "daemon/protocol/mover-wire.h"

#include <errno.h>
#include <string.h>
#include <systemd/sd-id128.h>

/* ---- jobs ---- */

static json_t *repository_job(struct engine *g, const char *name)
{
    const struct cfg_repository *r = cfg_repository(g->cfg, name);
    return r ? json_pack("{s:s,s:s,s:s}", "name", name, "type", r->type, "path", r->path) : NULL;
}

static json_t *backup_job(struct engine *g, const struct operation *op)
{
    const struct policy *policy = op->policy;
    const struct volume_desc *v = op->volume;
    const struct native_desc *n = op->native_doc;
    const json_t *x = op->exposure;
    char as[700];
    snprintf(as, sizeof as, "snapferry@%s:/%s", op->own->node, op->volume_id);
    json_t *source =
        json_pack("{s:s,s:s,s:s,s:s,s:b,s:s,s:b,s:I,s:{s:s,s:I,s:s}}", "name", v->name, "id", v->id, "class",
                  op->own->name, "driver", op->own->driver, "crash_consistent", n->crash_consistent, "mechanism",
                  jstr(x, "mechanism"), "block", v->block, "size", (json_int_t)jint(x, "size"), "native", "alias",
                  op->native, "created_ns", (json_int_t)op->snapshot_ns, "handle", n->handle);
    /* What a node that was installed anew needs to know again (RS-15). */
    json_t *tags = json_pack("{s:s,s:s,s:s,s:s,s:s}", "backup", op->parent, "operation", op->id, "volume-id",
                             op->volume_id, "class", op->own->name, "native", op->native);
    char size[24];
    snprintf(size, sizeof size, "%lld", (long long)jint(x, "size"));
    jset_str(tags, "size", size);
    jset_str(tags, "volume", v->name);
    if (op->job[0])
        jset_str(tags, "job", op->job);
    if (policy->group[0])
        jset_str(tags, "group", policy->group);
    json_t *job = json_pack("{s:i,s:s,s:s,s:s,s:s,s:o?,s:s,s:o?,s:s,s:o?,s:s,s:s,s:b,s:b,s:s,s:o}", "protocol",
                            MOVER_PROTOCOL, "operation", op->id, "kind", "backup", "backup", op->parent, "node",
                            op->own->node, "repository", repository_job(g, policy->repository), "cache_dir",
                            g->paths.cache_dir, "source", source, "as", as, "tags", tags, "splitter", policy->splitter,
                            "compression", policy->compression, "map_bad", policy->map_bad, "full", policy->full,
                            "description", op->description, "keep", policy_keep_to_json(&policy->keep));
    limits_job(job, policy);
    return job;
}

static json_t *restore_job(struct engine *g, const struct operation *op)
{
    const struct policy *policy = op->policy;
    json_t *job =
        json_pack("{s:i,s:s,s:s,s:s,s:s,s:o?,s:s,s:s,s:s,s:I,s:b,s:s}", "protocol", MOVER_PROTOCOL, "operation", op->id,
                  "kind", "restore", "backup", op->parent, "node", cfg_daemon(g->cfg)->node_name, "repository",
                  repository_job(g, policy->repository), "cache_dir", g->paths.cache_dir, "snapshot", op->snapshot,
                  "path", "volume.img", "size", (json_int_t)op->size, "verify", op->verify, "target", op->target_name);
    limits_job(job, policy);
    return job;
}

static struct mover_times times_of(const struct policy *policy)
{
    return (struct mover_times){.go_timeout_s = policy->go_timeout_s,
                                .stall_timeout_s = policy->stall_timeout_s,
                                .cancel_grace_s = policy->cancel_grace_s,
                                .max_duration_s = policy->max_duration_s};
}

static void start_with(struct engine *g, struct operation *op, int device)
{
    const struct policy *policy = op->policy;
    struct err e = ERR_INIT;
    CLEANUP_FREE char *password = NULL;
    CLEANUP_JSON json_t *job = operation_is_restore(op) ? restore_job(g, op) : backup_job(g, op);
    if (!job)
        err_set(&e, ERR_USAGE, 0, "repository \"%s\" is no longer in the configuration", policy->repository);
    else if (repository_password(g->cfg, policy->repository, &password, &e) < 0)
        repositories_refresh(g, true); /* the next attempt waits until it can be read */
    if (e.cls) {
        operation_attempt_failed(g, op, "start", &e, job != NULL);
        return;
    }
    struct mover_spec s = {.operation = op->id,
                           .times = times_of(policy),
                           .kind = op_kind_name(op->kind),
                           .job = job,
                           .device_fd = device,
                           .password = password,
                           .limits = &policy->limits,
                           .debug = op->debug};
    int rc = movers_start(g->movers, &s, &e);
    explicit_bzero(password, strlen(password));
    crash_point("engine-mover-started");
    if (rc == -EEXIST)
        return; /* ours, under way: its events come */
    if (rc < 0)
        operation_attempt_failed(g, op, "start", &e, e.cls != ERR_USAGE);
}

static void open_done(struct engine *g, struct operation *op, struct step_result *s)
{
    if (s->err.cls) {
        if (s->timed_out)
            err_hint(&s->err, "the device does not answer open(); its state is shown by dmesg and `dmsetup info`");
        operation_attempt_failed(g, op, "open", &s->err, s->err.cls != ERR_USAGE && s->err.cls != ERR_TARGET);
        return;
    }
    if (op->state != OP_STARTING)
        return; /* cancelled meanwhile */
    start_with(g, op, s->fd);
}

const struct cfg_plugin *operation_plugin(struct engine *g, const struct operation *op)
{
    const char *m = op->policy->mover;
    return !strncmp(m, "plugin:", 7) ? cfg_plugin(g->cfg, m + 7) : NULL;
}

static json_t *plugin_request(const struct operation *op)
{
    const json_t *x = operation_is_restore(op) ? op->target : op->exposure;
    json_t *r = json_pack("{s:s,s:s,s:s,s:o,s:s,s:I,s:s}", "direction", operation_is_restore(op) ? "restore" : "backup",
                          "operation", op->id, "backup", op->parent, "volume", volume_desc_to_json(op->volume),
                          "device", jstr(x, "path"), "size", (json_int_t)jint(x, "size"), "node", op->own->node);
    if (r && op->policy->options)
        json_object_set(r, "options", op->policy->options);
    if (r && operation_is_restore(op) && op->stored)
        json_object_set(r, "stored", op->stored);
    return r;
}

/* A plugin that has begun under an earlier daemon is found again by its id. */
static void start_plugin(struct engine *g, struct operation *op)
{
    const struct cfg_plugin *p = operation_plugin(g, op);
    struct err e = ERR_INIT;
    CLEANUP_JSON json_t *req = plugin_request(op);
    if (!p) {
        err_set(&e, ERR_USAGE, 0, "plugin %s is not installed: there is no such [plugin] section",
                op->policy->mover + 7);
        operation_attempt_failed(g, op, "start", &e, false);
        return;
    }
    const struct mover_spec s = {.operation = op->id,
                                 .plugin = p,
                                 .plugin_id = op->plugin_id,
                                 .times = times_of(op->policy),
                                 .job = req,
                                 .device_fd = -1};
    int rc = op->plugin_id[0] ? movers_adopt(g->movers, NULL, &s, &e) : movers_start(g->movers, &s, &e);
    if (rc < 0 && rc != -EEXIST)
        operation_attempt_failed(g, op, "start", &e, false);
}

void operation_start(struct engine *g, struct operation *op)
{
    struct err e = ERR_INIT;
    json_t *in;
    if (op->state != OP_STARTING) {
        op->moving_ns = now_ns();
        if (operation_become(g, op, OP_STARTING) < 0)
            return;
        crash_point("engine-unit-intent");
    }
    if (movers_has(g->movers, op->id))
        return;
    if (op->policy->mover[0]) {
        start_plugin(g, op);
        return;
    }
    if (operation_is_restore(op)) {
        in = json_pack("{s:O}", "target", op->target);
        if (operation_work(g, op, "open the target of", step_target_open, in, 60, open_done, &e) == 0)
            return;
    } else {
        in = json_pack("{s:o,s:O}", "own", class_desc_to_json(op->own), "exposure", op->exposure);
        if (in && !is_none(op->into))
            json_object_set_new(in, "into", class_desc_to_json(op->into));
        if (operation_work(g, op, "open the intermediate of", step_open, in, 60, open_done, &e) == 0)
            return;
    }
    operation_attempt_failed(g, op, "open", &e, true);
}

/* Running, but the daemon is a new one: the mover is taken over, or what it left is taken for its end (MS-50, MS-53).
 */
void operation_adopt(struct engine *g, struct operation *op)
{
    struct process_identity id;
    struct err e = ERR_INIT;
    const struct policy *policy = op->policy;
    if (movers_has(g->movers, op->id))
        return;
    if (policy->mover[0]) {
        start_plugin(g, op);
        return;
    }
    const struct mover_spec s = {.operation = op->id,
                                 .times = times_of(policy),
                                 .kind = op_kind_name(op->kind),
                                 .device_fd = -1,
                                 .limits = &policy->limits};
    int rc = mover_identity_from_json(&id, op->identity, &e);
    if (rc == 0)
        rc = movers_adopt(g->movers, &id, &s, &e);
    if (rc == 0) {
        log_info("%s: its mover (process %d) still runs and is watched again", operation_label(op), (int)id.pid);
        if (op->cancel)
            movers_cancel(g->movers, op->id, op->cancel_deadline_ns, NULL);
        return;
    }
    struct mover_end end = {.status = -1};
    e = (struct err)ERR_INIT;
    if (movers_result(g->movers, op->id, &end, &e) < 0) {
        end.outcome = MOVER_DIED;
        end.err = e;
    }
    engine_mover_events.ended(op->id, &end, g);
    json_decref(end.result);
}

/* ---- events of movers ---- */

/* The machine went down, with or without a word. */
static bool of_earlier_boot(const struct operation *op)
{
    sd_id128_t now, then;
    return sd_id128_get_boot(&now) >= 0 && sd_id128_from_string(jstr(op->identity, "bootId"), &then) >= 0 &&
           !sd_id128_equal(now, then);
}

static void mover_ready(const char *operation, const struct mover_ready *r, void *arg)
{
    struct engine *g = arg;
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    struct err e = ERR_INIT;
    if (operation_read(g, operation, &op) < 0)
        return;
    if (op.state != OP_STARTING && op.state != OP_RUNNING)
        return;
    json_take(&op.identity, mover_identity_to_json(r->identity));
    if (op.cancel) {
        operation_cancel(g, &op, op.cancel_reason);
        return;
    }
    if (r->plugin_id[0])
        str_set(&op.plugin_id, r->plugin_id);
    if (!op.running_ns)
        op.running_ns = now_ns();
    /* Only when this is durable may it begin: no result can be lost before somebody listens (MS-19). */
    if (operation_become(g, &op, OP_RUNNING) < 0)
        return;
    crash_point("engine-running");
    if (movers_go(g->movers, operation, &e) < 0)
        log_warning("%s: %s", operation, e.msg);
}

/* What a mover says is not believed blindly. */
static uint64_t amount(const json_t *o, const char *member)
{
    int64_t n = jint(o, member);
    return n > 0 ? (uint64_t)n : 0;
}

/* Whether another phase or another amount of anything is told. */
static bool got_on(const json_t *before, const json_t *now)
{
    const char *member;
    json_t *v;
    if (strcmp(jstr(before, "phase"), jstr(now, "phase")) != 0)
        return true;
    json_object_foreach((json_t *)now, member, v)
    {
        if (json_is_integer(v) && json_integer_value(v) != jint(before, member))
            return true;
    }
    return false;
}

static void mover_progress(const char *operation, const json_t *p, void *arg)
{
    struct engine *g = arg;
    struct live *l = live_get(g, ROW_OPERATION, operation);
    int64_t now = now_ns();
    if (!l)
        return;
    if (!l->progress || got_on(l->progress, p))
        l->moved_ns = now;
    json_decref(l->progress);
    l->progress = json_deep_copy(p);
    l->progress_ns = now;
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    if (operation_read(g, operation, &op) < 0)
        return;
    const struct pace_sample sample = {.t = (double)now / 1e9,
                                       .phase = jstr(p, "phase"),
                                       .total = amount(p, "total"),
                                       .done = amount(p, "done"),
                                       .skipped = amount(p, "skipped"),
                                       .zero = amount(p, "zero"),
                                       .allocated = op.volume->allocated > 0 ? (uint64_t)op.volume->allocated : 0};
    pace_add(&l->pace, &sample);
    if (now - l->saved_ns > 30 * NS_PER_S) {
        l->saved_ns = now;
        json_set(&op.progress, l->progress);
        operation_write(g, &op);
    }
    tell_operation_waiters(g, &op, true);
}

static void mover_started(const char *operation, void *arg)
{
    struct engine *g = arg;
    struct live *l = live_get(g, ROW_OPERATION, operation);
    if (l)
        l->moved_ns = l->progress_ns = now_ns();
}

static void ended(struct engine *g, const char *operation, const struct mover_end *end)
{
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    if (operation_read(g, operation, &op) < 0 || op_state_terminal(op.state) || op.state == OP_CLEANING_UP)
        return;
    json_take(&op.mover, json_pack("{s:s,s:i,s:I,s:I,s:f}", "outcome", mover_outcome_name(end->outcome), "status",
                                   end->status, "memory_peak", (json_int_t)end->memory_peak, "oom_kills",
                                   (json_int_t)end->oom_kills, "cpu_seconds", end->cpu_seconds));
    struct live *l = live_find(g, operation);
    if (l && l->progress)
        json_set(&op.progress, l->progress);
    if (end->result)
        json_set(&op.result, end->result);
    if (!op.filled) /* of a restore that is told again after a restart */
        count_mover_ended(g, &op, end);
    if (end->outcome == MOVER_OK) {
        /* Complete, but not all is well: unreadable ranges were stored as zeros, or retention could not be noted. */
        if (jbool(end->result, "partial") || jstr(end->result, "policyError")[0])
            op.degraded = true;
        if (jstr(end->result, "policyError")[0])
            log_warning("%s: its retention could not be written into the repository: %s", operation_label(&op),
                        jstr(end->result, "policyError"));
        if (jstr(end->result, "skip")[0]) {
            str_set(&op.skip_reason, jstr(end->result, "skip"));
            operation_finish(g, &op, OUTCOME_SKIPPED);
            return;
        }
        /* A result is a fact also when a cancel came too late. */
        if (op.kind == KIND_RESTORE) {
            op.filled = true;
            operation_become(g, &op, OP_RUNNING);
        } else {
            operation_finish(g, &op, OUTCOME_COMPLETED);
        }
        crash_point("engine-result-recorded");
    } else if (end->outcome == MOVER_CANCELED && op.cancel) {
        operation_finish(g, &op, OUTCOME_CANCELED);
    } else if (op.cancel) {
        if (end->err.cls)
            operation_error(&op, "cancel", &end->err);
        operation_finish(g, &op, OUTCOME_CANCELED);
    } else {
        bool transient = end->outcome == MOVER_TRANSIENT || end->outcome == MOVER_DIED || end->outcome == MOVER_HUNG ||
                         (end->outcome == MOVER_NEVER_STARTED && end->err.cls != ERR_USAGE) ||
                         end->outcome == MOVER_CANCELED;
        struct err e = end->err;
        if (!e.cls)
            err_set(&e, ERR_GENERIC, 0, "the mover ended with outcome \"%s\"", mover_outcome_name(end->outcome));
        movers_forget(g->movers, operation, NULL, NULL, NULL); /* the next attempt starts with an empty result file */
        const bool rebooted = of_earlier_boot(&op);
        if (rebooted || (end->outcome == MOVER_CANCELED && !op.policy->mover[0]))
            operation_interrupted(g, &op, &e, rebooted);
        else
            operation_attempt_failed(g, &op, "move", &e, transient);
    }
    engine_kick(g);
}

/* What it counted is a fact with the record that it ended (its first save), or is told and counted again. */
static void mover_ended(const char *operation, const struct mover_end *end, void *arg)
{
    struct engine *g = arg;
    records_counters_hold(g->records);
    ended(g, operation, end);
    records_counters_settle(g->records);
    engine_look_at(g, ROW_OPERATION, operation);
}

const struct movers_events engine_mover_events = {mover_ready, mover_started, mover_progress, mover_ended};
