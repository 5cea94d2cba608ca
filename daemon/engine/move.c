/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine-move.c - the process that moves an operation's data: its job, its start, its adoption, what it says
 *
 * Crash points: engine-unit-intent, engine-mover-started, engine-running, engine-result-recorded.
 */
#include "base/crash.h"
#include "daemon/engine/engine-impl.h"
#include "daemon/movers/plugin-movers.h"
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

static json_t *backup_job(struct engine *g, const struct rec *op)
{
    const json_t *policy = jobj(op->doc, "policy"), *v = jobj(op->doc, "volume"), *x = jobj(op->doc, "exposure"),
                 *n = jobj(op->doc, "native_doc");
    char as[700];
    snprintf(as, sizeof as, "snapferry@%s:/%s", jstr(jobj(op->doc, "own"), "node"), op->volume);
    json_t *source =
        json_pack("{s:s,s:s,s:s,s:s,s:b,s:s,s:b,s:I,s:{s:s,s:I,s:s}}", "name", jstr(v, "name"), "id", jstr(v, "id"),
                  "class", jstr(jobj(op->doc, "own"), "name"), "driver", jstr(jobj(op->doc, "own"), "driver"),
                  "crash_consistent", jbool(n, "crash_consistent"), "mechanism", jstr(x, "mechanism"), "block",
                  jbool(v, "block"), "size", (json_int_t)jint(x, "size"), "native", "alias", jstr(op->doc, "native"),
                  "created_ns", (json_int_t)jint(op->doc, "snapshot_ns"), "handle", jstr(n, "handle"));
    /* What a node that was installed anew needs to know again (RS-15). */
    json_t *tags =
        json_pack("{s:s,s:s,s:s,s:s,s:s}", "backup", op->parent, "operation", op->id, "volume-id", op->volume, "class",
                  jstr(jobj(op->doc, "own"), "name"), "native", jstr(op->doc, "native"));
    char size[24];
    snprintf(size, sizeof size, "%lld", (long long)jint(x, "size"));
    jset_str(tags, "size", size);
    jset_str(tags, "volume", jstr(v, "name"));
    if (jstr(op->doc, "job")[0])
        jset_str(tags, "job", jstr(op->doc, "job"));
    if (jstr(policy, "group")[0])
        jset_str(tags, "group", jstr(policy, "group"));
    json_t *job = json_pack(
        "{s:i,s:s,s:s,s:s,s:s,s:o?,s:s,s:o?,s:s,s:o?,s:s,s:s,s:b,s:b,s:s}", "protocol", MOVER_PROTOCOL, "operation",
        op->id, "kind", "backup", "backup", op->parent, "node", jstr(jobj(op->doc, "own"), "node"), "repository",
        repository_job(g, jstr(policy, "repository")), "cache_dir", g->paths.cache_dir, "source", source, "as", as,
        "tags", tags, "splitter", jstr(policy, "splitter"), "compression", jstr(policy, "compression"), "map_bad",
        jbool(policy, "map_bad"), "full", jbool(policy, "full"), "description", jstr(op->doc, "description"));
    limits_job(job, policy);
    if (job && json_object_get(policy, "keep"))
        json_object_set(job, "keep", json_object_get(policy, "keep"));
    return job;
}

static json_t *restore_job(struct engine *g, const struct rec *op)
{
    const json_t *policy = jobj(op->doc, "policy");
    json_t *job =
        json_pack("{s:i,s:s,s:s,s:s,s:s,s:o?,s:s,s:s,s:s,s:I,s:b,s:s}", "protocol", MOVER_PROTOCOL, "operation", op->id,
                  "kind", "restore", "backup", op->parent, "node", cfg_daemon(g->cfg)->node_name, "repository",
                  repository_job(g, jstr(policy, "repository")), "cache_dir", g->paths.cache_dir, "snapshot",
                  jstr(op->doc, "snapshot"), "path", "volume.img", "size", (json_int_t)jint(op->doc, "size"), "verify",
                  jbool(op->doc, "verify"), "target", jstr(op->doc, "target_name"));
    limits_job(job, policy);
    return job;
}

static void spec_times(struct mover_spec *s, const json_t *policy)
{
    s->go_timeout_s = jint(policy, "go_timeout_s");
    s->stall_timeout_s = jint(policy, "stall_timeout_s");
    s->cancel_grace_s = jint(policy, "cancel_grace_s");
    s->max_duration_s = jint(policy, "max_duration_s");
}

static void start_with(struct engine *g, struct rec *op, int device)
{
    const json_t *policy = jobj(op->doc, "policy");
    const char *props[33];
    struct cfg_mover limits;
    struct err e = ERR_INIT;
    CLEANUP_FREE char *password = NULL;
    CLEANUP_JSON json_t *job = operation_is_restore(op) ? restore_job(g, op) : backup_job(g, op);
    if (!job)
        err_set(&e, ERR_USAGE, 0, "repository \"%s\" is no longer in the configuration", jstr(policy, "repository"));
    else if (repository_password(g->cfg, jstr(policy, "repository"), &password, &e) < 0)
        repositories_refresh(g, true); /* the next attempt waits until it can be read */
    if (e.cls) {
        operation_attempt_failed(g, op, "start", &e, job != NULL);
        return;
    }
    limits_view(&limits, policy, props);
    struct mover_spec s = {.operation = op->id,
                           .kind = jstr(op->doc, "kind"),
                           .job = job,
                           .device_fd = device,
                           .password = password,
                           .limits = &limits,
                           .debug = jbool(op->doc, "debug")};
    spec_times(&s, policy);
    int rc = movers_start(g->movers, &s, &e);
    explicit_bzero(password, strlen(password));
    crash_point("engine-mover-started");
    if (rc == -EEXIST)
        return; /* ours, under way: its events come */
    if (rc < 0)
        operation_attempt_failed(g, op, "start", &e, e.cls != ERR_USAGE);
}

static void open_done(struct engine *g, struct rec *op, struct step_result *s)
{
    if (s->err.cls) {
        if (s->timed_out)
            err_hint(&s->err, "the device does not answer open(); its state is shown by dmesg and `dmsetup info`");
        operation_attempt_failed(g, op, "open", &s->err, s->err.cls != ERR_USAGE && s->err.cls != ERR_TARGET);
        return;
    }
    if (strcmp(op->state, "Starting"))
        return; /* cancelled meanwhile */
    start_with(g, op, s->fd);
}

const struct cfg_plugin *operation_plugin(struct engine *g, const struct rec *op)
{
    const char *m = jstr(jobj(op->doc, "policy"), "mover");
    return !strncmp(m, "plugin:", 7) ? cfg_plugin(g->cfg, m + 7) : NULL;
}

static json_t *plugin_request(const struct rec *op)
{
    const json_t *x = operation_is_restore(op) ? jobj(op->doc, "target") : jobj(op->doc, "exposure");
    json_t *r =
        json_pack("{s:s,s:s,s:s,s:O?,s:s,s:I,s:s}", "direction", operation_is_restore(op) ? "restore" : "backup",
                  "operation", op->id, "backup", op->parent, "volume", jobj(op->doc, "volume"), "device",
                  jstr(x, "path"), "size", (json_int_t)jint(x, "size"), "node", jstr(jobj(op->doc, "own"), "node"));
    if (r && jobj(jobj(op->doc, "policy"), "options"))
        json_object_set(r, "options", jobj(jobj(op->doc, "policy"), "options"));
    if (r && operation_is_restore(op) && json_object_get(op->doc, "stored"))
        json_object_set(r, "stored", json_object_get(op->doc, "stored"));
    return r;
}

static void plugin_times(struct plugin_movers_times *t, const json_t *policy)
{
    t->stall_timeout_s = jint(policy, "stall_timeout_s");
    t->max_duration_s = jint(policy, "max_duration_s");
    t->cancel_grace_s = jint(policy, "cancel_grace_s");
}

static void start_plugin(struct engine *g, struct rec *op)
{
    const struct cfg_plugin *p = operation_plugin(g, op);
    struct plugin_movers_times t = {0};
    struct err e = ERR_INIT;
    CLEANUP_JSON json_t *req = plugin_request(op);
    if (!p) {
        err_set(&e, ERR_USAGE, 0, "plugin %s is not installed: there is no such [plugin] section",
                jstr(jobj(op->doc, "policy"), "mover") + 7);
        operation_attempt_failed(g, op, "start", &e, false);
        return;
    }
    plugin_times(&t, jobj(op->doc, "policy"));
    int rc = jstr(op->doc, "plugin_id")[0]
                 ? plugin_movers_resume(g->plugins, op->id, p, jstr(op->doc, "plugin_id"), req, &t, &e)
                 : plugin_movers_start(g->plugins, op->id, p, req, &t, &e);
    if (rc < 0 && rc != -EEXIST)
        operation_attempt_failed(g, op, "start", &e, false);
}

void operation_start(struct engine *g, struct rec *op)
{
    struct err e = ERR_INIT;
    json_t *in;
    if (strcmp(op->state, "Starting")) {
        jset_int(op->doc, "moving_ns", now_ns());
        if (save_state(g, REC_OPERATION, op, "Starting") < 0)
            return;
        crash_point("engine-unit-intent");
    }
    if (movers_has(g->movers, op->id) || plugin_movers_has(g->plugins, op->id))
        return;
    if (jstr(jobj(op->doc, "policy"), "mover")[0]) {
        start_plugin(g, op);
        return;
    }
    if (operation_is_restore(op)) {
        in = json_pack("{s:O}", "target", jobj(op->doc, "target"));
        if (work(g, REC_OPERATION, op, "open the target of", step_target_open, in, 60, open_done, &e) == 0)
            return;
    } else {
        in = json_pack("{s:O,s:O,s:O*}", "own", jobj(op->doc, "own"), "exposure", jobj(op->doc, "exposure"), "into",
                       jobj(op->doc, "into"));
        if (work(g, REC_OPERATION, op, "open the intermediate of", step_open, in, 60, open_done, &e) == 0)
            return;
    }
    operation_attempt_failed(g, op, "open", &e, true);
}

/* Running, but the daemon is a new one: the mover is taken over, or what it left is taken for its end (MS-50, MS-53).
 */
void operation_adopt(struct engine *g, struct rec *op)
{
    struct mover_identity id;
    struct cfg_mover limits;
    const char *props[33];
    struct err e = ERR_INIT;
    const json_t *policy = jobj(op->doc, "policy");
    if (movers_has(g->movers, op->id) || plugin_movers_has(g->plugins, op->id))
        return;
    if (jstr(policy, "mover")[0]) {
        start_plugin(g, op);
        return;
    }
    limits_view(&limits, policy, props);
    struct mover_spec s = {.operation = op->id, .kind = jstr(op->doc, "kind"), .device_fd = -1, .limits = &limits};
    spec_times(&s, policy);
    int rc = mover_identity_from_json(&id, jobj(op->doc, "identity"), &e);
    if (rc == 0)
        rc = movers_adopt(g->movers, op->id, &id, &s, &e);
    if (rc == 0) {
        log_info("%s: its mover (process %d) still runs and is watched again", rec_label(op), (int)id.pid);
        if (jbool(op->doc, "cancel"))
            movers_cancel(g->movers, op->id, jint(op->doc, "cancel_deadline_ns"), NULL);
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
static bool of_earlier_boot(const struct rec *op)
{
    sd_id128_t now, then;
    return sd_id128_get_boot(&now) >= 0 &&
           sd_id128_from_string(jstr(jobj(op->doc, "identity"), "bootId"), &then) >= 0 && !sd_id128_equal(now, then);
}

static void mover_ready(const char *operation, const struct mover_identity *id, void *arg)
{
    struct engine *g = arg;
    CLEANUP(rec_clearp) struct rec op = REC_INIT;
    struct err e = ERR_INIT;
    if (rec_get(g, REC_OPERATION, operation, &op) < 0)
        return;
    if (strcmp(op.state, "Starting") && strcmp(op.state, "Running"))
        return;
    json_object_set_new(op.doc, "identity", mover_identity_to_json(id));
    if (jbool(op.doc, "cancel")) {
        operation_cancel(g, &op, jstr(op.doc, "cancel_reason"));
        return;
    }
    if (plugin_movers_has(g->plugins, operation))
        jset_str(op.doc, "plugin_id", plugin_movers_id(g->plugins, operation));
    if (!jint(op.doc, "running_ns"))
        jset_int(op.doc, "running_ns", now_ns());
    /* Only when this is durable may it begin: no result can be lost before somebody listens (MS-19). */
    if (save_state(g, REC_OPERATION, &op, "Running") < 0)
        return;
    crash_point("engine-running");
    if (movers_has(g->movers, operation) && movers_go(g->movers, operation, &e) < 0)
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
    struct live *l = live_get(g, REC_OPERATION, operation);
    int64_t now = now_ns();
    if (!l)
        return;
    if (!l->progress || got_on(l->progress, p))
        l->moved_ns = now;
    json_decref(l->progress);
    l->progress = json_deep_copy(p);
    l->progress_ns = now;
    CLEANUP(rec_clearp) struct rec op = REC_INIT;
    if (rec_get(g, REC_OPERATION, operation, &op) < 0)
        return;
    const struct pace_sample sample = {.t = (double)now / 1e9,
                                       .phase = jstr(p, "phase"),
                                       .total = amount(p, "total"),
                                       .done = amount(p, "done"),
                                       .skipped = amount(p, "skipped"),
                                       .zero = amount(p, "zero"),
                                       .allocated = amount(jobj(op.doc, "volume"), "allocated")};
    pace_add(&l->pace, &sample);
    if (now - l->saved_ns > 30 * NS_PER_S) {
        l->saved_ns = now;
        json_object_set(op.doc, "progress", l->progress);
        save(g, REC_OPERATION, &op);
    }
    tell_waiters(g, REC_OPERATION, &op, true);
}

static void mover_started(const char *operation, void *arg)
{
    struct engine *g = arg;
    struct live *l = live_get(g, REC_OPERATION, operation);
    if (l)
        l->moved_ns = l->progress_ns = now_ns();
}

static void ended(struct engine *g, const char *operation, const struct mover_end *end)
{
    CLEANUP(rec_clearp) struct rec op = REC_INIT;
    const char *kind;
    if (rec_get(g, REC_OPERATION, operation, &op) < 0 || state_terminal(op.state) || !strcmp(op.state, "CleaningUp"))
        return;
    kind = jstr(op.doc, "kind");
    json_object_set_new(op.doc, "mover",
                        json_pack("{s:s,s:i,s:I,s:I,s:f}", "outcome", mover_outcome_name(end->outcome), "status",
                                  end->status, "memory_peak", (json_int_t)end->memory_peak, "oom_kills",
                                  (json_int_t)end->oom_kills, "cpu_seconds", end->cpu_seconds));
    struct live *l = live_find(g, operation);
    if (l && l->progress)
        json_object_set(op.doc, "progress", l->progress);
    if (end->result)
        json_object_set(op.doc, "result", end->result);
    if (!jbool(op.doc, "filled")) /* of a restore that is told again after a restart */
        count_mover_ended(g, &op, end);
    if (end->outcome == MOVER_OK) {
        /* Complete, but not all is well: unreadable ranges were stored as zeros, or retention could not be noted. */
        if (jbool(end->result, "partial") || jstr(end->result, "policyError")[0])
            jset_bool(op.doc, "degraded", true);
        if (jstr(end->result, "policyError")[0])
            log_warning("%s: its retention could not be written into the repository: %s", rec_label(&op),
                        jstr(end->result, "policyError"));
        if (jstr(end->result, "skip")[0]) {
            jset_str(op.doc, "skip_reason", jstr(end->result, "skip"));
            operation_finish(g, &op, "Skipped");
            return;
        }
        /* A result is a fact also when a cancel came too late. */
        if (!strcmp(kind, "restore")) {
            jset_bool(op.doc, "filled", true);
            save_state(g, REC_OPERATION, &op, "Running");
        } else {
            operation_finish(g, &op, "Completed");
        }
        crash_point("engine-result-recorded");
    } else if (end->outcome == MOVER_CANCELED && jbool(op.doc, "cancel")) {
        operation_finish(g, &op, "Canceled");
    } else if (jbool(op.doc, "cancel")) {
        if (end->err.cls)
            doc_error(op.doc, "cancel", &end->err);
        operation_finish(g, &op, "Canceled");
    } else {
        bool transient = end->outcome == MOVER_TRANSIENT || end->outcome == MOVER_DIED || end->outcome == MOVER_HUNG ||
                         (end->outcome == MOVER_NEVER_STARTED && end->err.cls != ERR_USAGE) ||
                         end->outcome == MOVER_CANCELED;
        struct err e = end->err;
        if (!e.cls)
            err_set(&e, ERR_GENERIC, 0, "the mover ended with outcome \"%s\"", mover_outcome_name(end->outcome));
        movers_forget(g->movers, operation, NULL); /* the next attempt starts with an empty result file */
        const bool rebooted = of_earlier_boot(&op);
        if (rebooted || (end->outcome == MOVER_CANCELED && !jstr(jobj(op.doc, "policy"), "mover")[0]))
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
}

const struct movers_events engine_mover_events = {mover_ready, mover_started, mover_progress, mover_ended};
