/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine-operation.c - the states of one volume's backup or restore, from Queued to terminal
 *
 * Exposing makes the snapshot readable (or a target writable), Starting hands descriptors to a mover, Running waits for
 * its end, Retrying for the next attempt; CleaningUp(outcome) releases what intents name, in reverse, for as long as it
 * takes. The outcome is durable before anything is released, and the state becomes terminal only when nothing is left
 * (E-04).
 *
 * Crash points: engine-expose-intent, engine-exposed (in the child), engine-exposure-recorded, engine-unit-intent,
 * engine-mover-started, engine-running, engine-result-recorded, engine-outcome, engine-unexposed (in the child),
 * engine-cleaned, engine-target-made (in the child), engine-target-committed.
 */
#include "base/crash.h"
#include "daemon/engine-impl.h"
#include "daemon/hooks.h"
#include "daemon/plugin-movers.h"

#include <errno.h>
#include <string.h>

static bool is_restore(const struct rec *op)
{
    return !strcmp(jstr(op->doc, "kind"), "restore");
}

/* ---- outcomes ---- */

void operation_finish(struct engine *g, struct rec *op, const char *outcome)
{
    if (!strcmp(op->state, "CleaningUp") || state_terminal(op->state))
        return;
    jset_str(op->doc, "outcome", outcome);
    jset_int(op->doc, "ended_ns", now_ns());
    op->wake_ns = 0;
    if (save_state(g, REC_OPERATION, op, "CleaningUp") < 0)
        return;
    crash_point("engine-outcome");
    /* The native's record learns what became of its data before anyone decides about it. */
    CLEANUP(rec_clearp) struct rec n = REC_INIT;
    const char *alias = jstr(op->doc, "native");
    if (!is_restore(op) && alias[0] && rec_get(g, REC_NATIVE, alias, &n) == 0) {
        bool moved = !strcmp(outcome, "Completed") && jbool(jobj(op->doc, "policy"), "move_data");
        jset_bool(n.doc, "moved", moved);
        jset_bool(n.doc, "moved_verified", moved); /* just written and read back as a manifest by the mover */
        jset_bool(n.doc, "failed", !moved && jbool(jobj(op->doc, "policy"), "move_data"));
        jset_str(n.doc, "snapshot", jstr(jobj(op->doc, "result"), "snapshotID"));
        jset_int(n.doc, "moved_ns", moved ? now_ns() : 0);
        save(g, REC_NATIVE, &n);
    }
    engine_kick(g);
}

void operation_fail(struct engine *g, struct rec *op, const char *stage, const struct err *e)
{
    doc_error(op->doc, stage, e);
    log_warning("%s: %s: %s", op->id, stage, e->msg);
    operation_finish(g, op, jbool(op->doc, "cancel") ? "Canceled" : "Failed");
}

void operation_attempt_failed(struct engine *g, struct rec *op, const char *stage, const struct err *e, bool transient)
{
    const json_t *policy = jobj(op->doc, "policy");
    int64_t attempt = jint(op->doc, "attempt"), first = jint(policy, "retry_first_s"),
            most = jint(policy, "retry_max_s");
    json_t *attempts = jarr(op->doc, "attempts");
    if (jbool(op->doc, "cancel")) {
        operation_finish(g, op, "Canceled");
        return;
    }
    doc_error(op->doc, stage, e);
    if (!attempts) {
        attempts = json_array();
        json_object_set_new(op->doc, "attempts", attempts);
    }
    if (json_array_size(attempts) < 32)
        json_array_append(attempts, jobj(op->doc, "error"));
    if (!transient || attempt >= jint(policy, "retries")) {
        operation_fail(g, op, stage, e);
        return;
    }
    int64_t wait = first > 0 ? first : 30;
    for (int64_t i = 0; i < attempt && wait < most; i++)
        wait *= 2;
    if (most > 0 && wait > most)
        wait = most;
    jset_int(op->doc, "attempt", attempt + 1);
    op->wake_ns = now_ns() + wait * NS_PER_S;
    log_warning("%s: %s: %s; attempt %lld of %lld in %lld s", op->id, stage, e->msg, (long long)attempt + 2,
                (long long)jint(policy, "retries") + 1, (long long)wait);
    save_state(g, REC_OPERATION, op, "Retrying");
}

void operation_cancel(struct engine *g, struct rec *op, const char *why)
{
    struct err e = ERR_INIT;
    struct live *l = live_find(g, op->id);
    if (state_terminal(op->state) || !strcmp(op->state, "CleaningUp"))
        return;
    if (!jbool(op->doc, "cancel")) {
        int64_t grace = jint(jobj(op->doc, "policy"), "cancel_grace_s");
        jset_bool(op->doc, "cancel", true);
        jset_int(op->doc, "cancel_ns", now_ns());
        jset_int(op->doc, "cancel_deadline_ns", now_ns() + (grace > 0 ? grace : 30) * NS_PER_S);
        jset_str(op->doc, "cancel_reason", why);
        if (save(g, REC_OPERATION, op) < 0)
            return;
    }
    if (movers_has(g->movers, op->id) || plugin_movers_has(g->plugins, op->id)) {
        int64_t deadline = jint(op->doc, "cancel_deadline_ns");
        if (strcmp(op->state, "Cancelling") && save_state(g, REC_OPERATION, op, "Cancelling") < 0)
            return;
        int rc = movers_has(g->movers, op->id) ? movers_cancel(g->movers, op->id, deadline, &e)
                                               : plugin_movers_cancel(g->plugins, op->id, deadline, &e);
        if (rc < 0)
            log_warning("%s cannot be told to stop, it is tried again: %s", op->id, e.msg);
        return;
    }
    if (is_restore(op) && jbool(op->doc, "filled"))
        return; /* complete and on its way into place: too late, and half-done would be worse */
    if (l && l->step) {
        step_cancel(l->step); /* its end comes back here */
        return;
    }
    operation_finish(g, op, "Canceled");
}

/* ---- exposing ---- */

static void expose_done(struct engine *g, struct rec *op, struct step_result *s)
{
    const char *stage = is_restore(op) ? "target" : "expose";
    if (s->err.cls) {
        if (s->timed_out) {
            jset_str(op->doc, "reason", "prepare-timeout");
            err_hint(
                &s->err,
                "prepare-timeout says how long the intermediate may take; `snapferry explain` shows which one is made");
        }
        operation_attempt_failed(g, op, stage, &s->err,
                                 !s->timed_out && s->err.cls != ERR_USAGE && s->err.cls != ERR_TARGET &&
                                     s->err.cls != ERR_NOT_FOUND);
        return;
    }
    const char *member = is_restore(op) ? "target" : "exposure";
    const json_t *made = is_restore(op) ? jobj(s->out, "target") : s->out;
    json_t *doc = is_restore(op) ? json_pack("{s:O,s:O}", "class", jobj(op->doc, "own"), "target", (json_t *)made)
                                 : json_pack("{s:O,s:O}", "into",
                                             jobj(op->doc, "into") ? jobj(op->doc, "into") : jobj(op->doc, "own"),
                                             "exposure", (json_t *)made);
    if (doc)
        records_intent_update(g->records, (uint64_t)jint(op->doc, "expose_intent"), doc, NULL);
    json_object_set(op->doc, member, (json_t *)made);
    if (jbool(s->out, "filled"))
        jset_bool(op->doc, "filled", true);
    save(g, REC_OPERATION, op);
    crash_point("engine-exposure-recorded");
}

/* The intent first, with a name that is found again. */
static int expose_intent(struct engine *g, struct rec *op, struct err *e)
{
    char alias[ALIAS_LEN + 1];
    uint64_t id;
    json_t *doc;
    if (jint(op->doc, "expose_intent"))
        return 0;
    alias_new(alias);
    if (is_restore(op))
        doc = json_pack("{s:O,s:s,s:I,s:b}", "class", jobj(op->doc, "own"), "name", jstr(op->doc, "target_name"),
                        "size", (json_int_t)jint(op->doc, "size"), "overwrite", jbool(op->doc, "overwrite"));
    else
        doc = json_pack("{s:O}", "into", jobj(op->doc, "into") ? jobj(op->doc, "into") : jobj(op->doc, "own"));
    int rc = records_begin(g->records, e);
    if (rc < 0) {
        json_decref(doc);
        return rc;
    }
    rc = records_intent_add(g->records, op->id, is_restore(op) ? "target" : "exposure", alias, doc, &id, e);
    if (rc == 0) {
        jset_int(op->doc, "expose_intent", (int64_t)id);
        jset_str(op->doc, "expose_alias", alias);
        jset_int(op->doc, "expose_ns", now_ns());
        rc = records_save(g->records, REC_OPERATION, op, e);
    }
    if (rc < 0) {
        records_rollback(g->records);
        return rc;
    }
    rc = records_commit(g->records, e);
    crash_point("engine-expose-intent");
    return rc;
}

static void expose(struct engine *g, struct rec *op)
{
    const json_t *policy = jobj(op->doc, "policy");
    struct err e = ERR_INIT;
    json_t *in;
    if (strcmp(op->state, "Exposing") && save_state(g, REC_OPERATION, op, "Exposing") < 0)
        return;
    if (expose_intent(g, op, &e) < 0) {
        log_warning("%s: %s", op->id, e.msg);
        return;
    }
    if (is_restore(op)) {
        in = json_pack("{s:O,s:s,s:I,s:s,s:b}", "class", jobj(op->doc, "own"), "name", jstr(op->doc, "target_name"),
                       "size", (json_int_t)jint(op->doc, "size"), "alias", jstr(op->doc, "expose_alias"), "overwrite",
                       jbool(op->doc, "overwrite"));
        if (in && jobj(op->doc, "native_doc")) {
            json_object_set(in, "native", jobj(op->doc, "native_doc"));
            json_object_set(in, "own", jobj(op->doc, "native_class"));
            json_object_set(in, "volume", jobj(op->doc, "volume"));
        }
        if (work(g, REC_OPERATION, op, "make the target of", step_target, in, jint(policy, "prepare_timeout_s"),
                 expose_done, &e) < 0)
            operation_attempt_failed(g, op, "target", &e, true);
        return;
    }
    in = json_pack("{s:O,s:O,s:O,s:b,s:s,s:I}", "own", jobj(op->doc, "own"), "native", jobj(op->doc, "native_doc"),
                   "volume", jobj(op->doc, "volume"), "read_only", jbool(policy, "backup_read_only"), "alias",
                   jstr(op->doc, "expose_alias"), "rate", (json_int_t)jint(policy, "copy_limit"));
    if (in && jobj(op->doc, "into"))
        json_object_set(in, "into", jobj(op->doc, "into"));
    if (work(g, REC_OPERATION, op, "expose the snapshot of", step_expose, in, jint(policy, "prepare_timeout_s"),
             expose_done, &e) < 0)
        operation_attempt_failed(g, op, "expose", &e, true);
}

/* A writable intermediate may be fixed up before it is read (PVC-25). */
static void prepare_done(struct engine *g, struct rec *op, struct step_result *s)
{
    if (s->err.cls && !jbool(jobj(op->doc, "policy"), "hook_continue")) {
        operation_attempt_failed(g, op, "prepare hook", &s->err, false);
        return;
    }
    jset_bool(op->doc, "prepared", true);
    save(g, REC_OPERATION, op);
}

static bool prepare(struct engine *g, struct rec *op)
{
    const json_t *policy = jobj(op->doc, "policy"), *x = jobj(op->doc, "exposure");
    const char *hook = jstr(policy, "hook_prepare");
    struct err e = ERR_INIT;
    if (is_restore(op) || !hook[0] || jbool(op->doc, "prepared") || jbool(x, "read_only"))
        return true;
    json_t *in =
        json_pack("{s:s,s:s,s:s,s:s,s:O,s:s,s:I,s:s}", "program", hook, "phase", "prepare", "backup", op->parent,
                  "operation", op->id, "volume", jobj(op->doc, "volume"), "class", jstr(jobj(op->doc, "own"), "name"),
                  "timeout_s", (json_int_t)jint(policy, "hook_timeout_s"), "device", jstr(x, "path"));
    if (work(g, REC_OPERATION, op, "prepare hook of", hook_step, in, jint(policy, "hook_timeout_s") + 10, prepare_done,
             &e) < 0)
        operation_attempt_failed(g, op, "prepare hook", &e, false);
    return false;
}

/* ---- the mover ---- */

static json_t *repository_job(struct engine *g, const char *name)
{
    const struct cfg_repository *r = cfg_repository(g->cfg, name);
    return r ? json_pack("{s:s,s:s,s:s}", "name", name, "type", r->type, "path", r->path) : NULL;
}

static json_t *backup_job(struct engine *g, const struct rec *op)
{
    const json_t *policy = jobj(op->doc, "policy"), *v = jobj(op->doc, "volume"), *x = jobj(op->doc, "exposure"),
                 *n = jobj(op->doc, "native_doc"), *limits = jobj(policy, "limits");
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
        "{s:i,s:s,s:s,s:s,s:s,s:o?,s:s,s:o?,s:s,s:o?,s:s,s:s,s:b,s:b,s:I,s:I,s:I,s:s}", "protocol", MOVER_PROTOCOL,
        "operation", op->id, "kind", "backup", "backup", op->parent, "node", jstr(jobj(op->doc, "own"), "node"),
        "repository", repository_job(g, jstr(policy, "repository")), "cache_dir", g->paths.cache_dir, "source", source,
        "as", as, "tags", tags, "splitter", jstr(policy, "splitter"), "compression", jstr(policy, "compression"),
        "map_bad", jbool(policy, "map_bad"), "full", jbool(policy, "full"), "memory",
        (json_int_t)jint(limits, "memory"), "index_memory", (json_int_t)jint(limits, "index_memory"), "workers",
        (json_int_t)jint(limits, "workers"), "description", jstr(op->doc, "description"));
    if (job && json_object_get(policy, "keep"))
        json_object_set(job, "keep", json_object_get(policy, "keep"));
    return job;
}

static json_t *restore_job(struct engine *g, const struct rec *op)
{
    const json_t *policy = jobj(op->doc, "policy"), *limits = jobj(policy, "limits");
    return json_pack("{s:i,s:s,s:s,s:s,s:s,s:o?,s:s,s:s,s:s,s:I,s:b,s:I,s:I,s:I,s:s}", "protocol", MOVER_PROTOCOL,
                     "operation", op->id, "kind", "restore", "backup", op->parent, "node",
                     cfg_daemon(g->cfg)->node_name, "repository", repository_job(g, jstr(policy, "repository")),
                     "cache_dir", g->paths.cache_dir, "snapshot", jstr(op->doc, "snapshot"), "path", "volume.img",
                     "size", (json_int_t)jint(op->doc, "size"), "verify", jbool(op->doc, "verify"), "memory",
                     (json_int_t)jint(limits, "memory"), "index_memory", (json_int_t)jint(limits, "index_memory"),
                     "workers", (json_int_t)jint(limits, "workers"), "target", jstr(op->doc, "target_name"));
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
    CLEANUP_JSON json_t *job = is_restore(op) ? restore_job(g, op) : backup_job(g, op);
    if (!job)
        err_set(&e, ERR_USAGE, 0, "repository \"%s\" is no longer in the configuration", jstr(policy, "repository"));
    else
        repository_password(g->cfg, jstr(policy, "repository"), &password, &e);
    if (e.cls) {
        operation_attempt_failed(g, op, "start", &e, e.cls != ERR_USAGE);
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

static const struct cfg_plugin *plugin_of(struct engine *g, const struct rec *op)
{
    const char *m = jstr(jobj(op->doc, "policy"), "mover");
    return !strncmp(m, "plugin:", 7) ? cfg_plugin(g->cfg, m + 7) : NULL;
}

static json_t *plugin_request(const struct rec *op)
{
    const json_t *x = is_restore(op) ? jobj(op->doc, "target") : jobj(op->doc, "exposure");
    json_t *r =
        json_pack("{s:s,s:s,s:s,s:O?,s:s,s:I,s:s}", "direction", is_restore(op) ? "restore" : "backup", "operation",
                  op->id, "backup", op->parent, "volume", jobj(op->doc, "volume"), "device", jstr(x, "path"), "size",
                  (json_int_t)jint(x, "size"), "node", jstr(jobj(op->doc, "own"), "node"));
    if (r && jobj(jobj(op->doc, "policy"), "options"))
        json_object_set(r, "options", jobj(jobj(op->doc, "policy"), "options"));
    if (r && is_restore(op) && json_object_get(op->doc, "stored"))
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
    const struct cfg_plugin *p = plugin_of(g, op);
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

static void start(struct engine *g, struct rec *op)
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
    if (is_restore(op)) {
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
static void adopt(struct engine *g, struct rec *op)
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
        log_info("%s: its mover (process %d) still runs and is watched again", op->id, (int)id.pid);
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

static void mover_progress(const char *operation, const json_t *p, void *arg)
{
    struct engine *g = arg;
    struct live *l = live_get(g, REC_OPERATION, operation);
    int64_t now = now_ns(), done = jint(p, "done");
    if (!l)
        return;
    if (l->rate_ns && now > l->rate_ns && done >= (int64_t)l->rate_done) {
        double dt = (double)(now - l->rate_ns) / 1e9, r = (double)(done - (int64_t)l->rate_done) / dt;
        l->rate = l->rate > 0 ? l->rate + (r - l->rate) * (dt > 10 ? 1 : dt / 10) : r;
    }
    l->rate_ns = now;
    l->rate_done = (uint64_t)(done > 0 ? done : 0);
    json_decref(l->progress);
    l->progress = json_deep_copy(p);
    l->progress_ns = now;
    CLEANUP(rec_clearp) struct rec op = REC_INIT;
    if (rec_get(g, REC_OPERATION, operation, &op) < 0)
        return;
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
        l->progress_ns = now_ns();
}

static void mover_ended(const char *operation, const struct mover_end *end, void *arg)
{
    struct engine *g = arg;
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
    CLEANUP_JSON json_t *labels = json_pack("{s:s,s:s}", "kind", kind, "outcome", mover_outcome_name(end->outcome));
    records_counter_add(g->records, "mover_exits_total", labels, 1, NULL);
    if (end->outcome == MOVER_OK) {
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
                         end->outcome == MOVER_NEVER_STARTED || end->outcome == MOVER_CANCELED;
        struct err e = end->err;
        if (!e.cls)
            err_set(&e, ERR_GENERIC, 0, "the mover ended with outcome \"%s\"", mover_outcome_name(end->outcome));
        movers_forget(g->movers, operation, NULL); /* the next attempt starts with an empty result file */
        operation_attempt_failed(g, &op, "move", &e, transient);
    }
    engine_kick(g);
}

const struct movers_events engine_mover_events = {mover_ready, mover_started, mover_progress, mover_ended};

/* ---- end of a restore ---- */

static void commit_done(struct engine *g, struct rec *op, struct step_result *s)
{
    if (s->err.cls) {
        operation_attempt_failed(g, op, "commit of the target", &s->err, false);
        return;
    }
    crash_point("engine-target-committed");
    jset_bool(op->doc, "committed", true);
    records_intent_resolve(g->records, (uint64_t)jint(op->doc, "expose_intent"), NULL);
    operation_finish(g, op, "Completed");
}

static void commit_target(struct engine *g, struct rec *op)
{
    struct err e = ERR_INIT;
    json_t *in = json_pack("{s:O,s:O}", "class", jobj(op->doc, "own"), "target", jobj(op->doc, "target"));
    if (strcmp(op->state, "Running") && save_state(g, REC_OPERATION, op, "Running") < 0) {
        json_decref(in);
        return;
    }
    if (work(g, REC_OPERATION, op, "put into place", step_target_commit, in, 600, commit_done, &e) < 0)
        operation_attempt_failed(g, op, "commit of the target", &e, true);
}

/* ---- releasing ---- */

struct undo {
    json_t *list;
    const struct rec *op;
};
static int collect_intent(struct intent *i, void *arg)
{
    struct undo *u = arg;
    /* Diagnosis instead of removal, when asked for (PVC-11). */
    if (!strcmp(i->kind, "exposure") && jbool(jobj(u->op->doc, "policy"), "expose_keep_on_failure") &&
        !strcmp(jstr(u->op->doc, "outcome"), "Failed"))
        return 0;
    return json_array_append_new(u->list, json_pack("{s:I,s:s,s:s,s:O?}", "id", (json_int_t)i->id, "kind", i->kind,
                                                    "name", i->name, "doc", i->doc));
}

static void terminal(struct engine *g, struct rec *op)
{
    const char *outcome = jstr(op->doc, "outcome");
    CLEANUP_JSON json_t *labels = json_pack("{s:s,s:s,s:s}", "kind", jstr(op->doc, "kind"), "class",
                                            jstr(jobj(op->doc, "own"), "name"), "result", outcome);
    jset_int(op->doc, "completed_ns", now_ns());
    if (save_state(g, REC_OPERATION, op, outcome[0] ? outcome : "Failed") < 0)
        return;
    records_counter_add(g->records, "operations_total", labels, 1, NULL);
    movers_forget(g->movers, op->id, NULL);
    /* Asked for already unless a daemon died in between; idempotent. */
    const struct cfg_plugin *plugin = jstr(op->doc, "plugin_id")[0] ? plugin_of(g, op) : NULL;
    if (plugin)
        plugin_movers_forget(g->plugins, op->id, plugin, jstr(op->doc, "plugin_id"), NULL);
    live_drop(g, op->id);
    if (!is_restore(op)) {
        CLEANUP_JSON json_t *more = json_pack("{s:s,s:s,s:I}", "last_status", outcome, "last_backup", op->parent,
                                              "last_end_ns", (json_int_t)now_ns());
        const json_t *result = jobj(op->doc, "result");
        if (!strcmp(outcome, "Completed")) {
            jset_int(more, "last_success_ns", now_ns());
            jset_int(more, "last_snapshot_ns", jint(op->doc, "snapshot_ns"));
            jset_str(more, "last_good_backup", op->parent);
            jset_int(more, "last_changed_bytes", jint(result, "incrementalBytes"));
            json_object_set_new(more, "last_error", json_null());
        } else if (jobj(op->doc, "error")) {
            json_object_set(more, "last_error", jobj(op->doc, "error"));
        }
        volume_note(g, jobj(op->doc, "volume"), jstr(jobj(op->doc, "own"), "name"), more);
    }
    engine_kick(g);
}

static void native_gone_unmade(struct engine *g, const struct rec *op)
{
    CLEANUP(rec_clearp) struct rec n = REC_INIT;
    const char *alias = jstr(op->doc, "native");
    if (!is_restore(op) && alias[0] && rec_get(g, REC_NATIVE, alias, &n) == 0 && !strcmp(n.state, "creating"))
        records_delete(g->records, REC_NATIVE, alias, NULL);
}

static void undo_done(struct engine *g, struct rec *op, struct step_result *s)
{
    const json_t *a, *left = NULL;
    size_t i;
    json_array_foreach(json_object_get(s->out, "intents"), i, a)
    {
        if (!jobj(a, "error"))
            records_intent_resolve(g->records, (uint64_t)jint(a, "id"), NULL);
        else
            left = jobj(a, "error");
    }
    if (s->err.cls || left) {
        const char *why = s->err.cls ? s->err.msg : jstr(left, "message");
        int64_t tries = jint(op->doc, "cleanup_tries");
        jset_int(op->doc, "cleanup_tries", tries + 1);
        jset_str(op->doc, "cleanup_error", why);
        op->wake_ns = now_ns() + (tries > 6 ? 300 : 5 << tries) * NS_PER_S;
        log_warning("%s: what it made cannot be removed yet, it is tried again: %s", op->id, why);
        save(g, REC_OPERATION, op);
        return;
    }
    native_gone_unmade(g, op);
    jset_bool(op->doc, "undone", true);
    json_object_del(op->doc, "cleanup_error");
    op->wake_ns = 0;
    save(g, REC_OPERATION, op);
    crash_point("engine-cleaned");
}

/* Which natives of the volume stay now that this one's fate is known; the rest goes. A removal that fails is left to
 * the sweep after some tries: until then its record says "removing". */
static bool retain(struct engine *g, struct rec *op)
{
    struct native_rules rules;
    struct native_verdict v;
    struct err e = ERR_INIT;
    if (is_restore(op) || !jstr(op->doc, "native")[0])
        return true;
    if (!jbool(op->doc, "releasing")) {
        jset_bool(op->doc, "releasing", true); /* it no longer counts as a user of its native */
        jset_int(op->doc, "prune_rounds", 0);
        jset_int(op->doc, "checks", 0);
        if (save(g, REC_OPERATION, op) < 0)
            return false;
    }
    native_rules_from(&rules, jobj(op->doc, "policy"), jstr(op->doc, "job"), -1, false);
    int rc =
        natives_make_room(g, op, &rules, jint(op->doc, "ended_ns"), jstr(op->doc, "native"), natives_pruned, &v, &e);
    if (rc < 0)
        log_warning("%s: %s", op->id, e.msg);
    return rc <= 0;
}

static void clean_up(struct engine *g, struct rec *op)
{
    struct err e = ERR_INIT;
    if (op->wake_ns > now_ns())
        return;
    if (movers_has(g->movers, op->id) || plugin_movers_has(g->plugins, op->id))
        return; /* its end comes; nothing is taken away under it */
    if (!jbool(op->doc, "undone")) {
        CLEANUP_JSON json_t *list = json_array();
        struct undo u = {list, op};
        if (records_intents(g->records, op->id, collect_intent, &u, &e) < 0) {
            log_warning("%s: %s", op->id, e.msg);
            return;
        }
        if (json_array_size(list)) {
            int64_t timeout = jint(jobj(op->doc, "policy"), "snapshot_timeout_s");
            if (work(g, REC_OPERATION, op, "clean up", step_undo, json_pack("{s:O}", "intents", list),
                     timeout > 60 ? timeout : 60, undo_done, &e) < 0)
                log_warning("%s: %s", op->id, e.msg);
            return;
        }
        native_gone_unmade(g, op);
        jset_bool(op->doc, "undone", true);
    }
    if (retain(g, op))
        terminal(g, op);
}

/* ---- the function ---- */

static void queued(struct engine *g, struct rec *op)
{
    char why[512] = "";
    if (!is_restore(op) && !jobj(op->doc, "native_doc"))
        return; /* phase 1 first: the backup's */
    if (!queue_may(g, op, false, why, sizeof why)) {
        const char *down = repository_down(g, jstr(jobj(op->doc, "policy"), "repository"));
        int64_t most = jint(jobj(op->doc, "policy"), "repo_outage_max_s"), since = jint(op->doc, "outage_ns");
        if (down && since && most && now_ns() - since > most * NS_PER_S) {
            struct err e = ERR_INIT;
            err_set(&e, ERR_NO_REPO, 0, "%s, for longer than repo-outage-max", down);
            operation_attempt_failed(g, op, "repository", &e, false); /* AO-31 */
            return;
        }
        if (down && !since)
            jset_int(op->doc, "outage_ns", now_ns());
        if (strcmp(jstr(op->doc, "waiting"), why) || (down && !since)) {
            jset_str(op->doc, "waiting", why);
            save(g, REC_OPERATION, op);
        }
        return;
    }
    json_object_del(op->doc, "waiting");
    json_object_del(op->doc, "outage_ns");
    expose(g, op);
}

static void exposing(struct engine *g, struct rec *op)
{
    char why[512] = "";
    if (!jobj(op->doc, is_restore(op) ? "target" : "exposure")) {
        expose(g, op);
        return;
    }
    if (is_restore(op) && jbool(op->doc, "filled")) {
        commit_target(g, op);
        return;
    }
    if (!prepare(g, op))
        return;
    if (!queue_may(g, op, true, why, sizeof why)) {
        if (strcmp(jstr(op->doc, "waiting"), why)) {
            jset_str(op->doc, "waiting", why);
            save(g, REC_OPERATION, op);
        }
        return;
    }
    json_object_del(op->doc, "waiting");
    start(g, op);
}

static void retrying(struct engine *g, struct rec *op)
{
    if (op->wake_ns > now_ns())
        return;
    op->wake_ns = 0;
    json_object_del(op->doc, "identity");
    json_object_del(op->doc, "plugin_id");
    if (!is_restore(op) && !jobj(op->doc, "native_doc")) {
        jset_str(op->doc, "stage", "");
        save_state(g, REC_OPERATION, op, "Snapshotting");
        return;
    }
    /* The intermediate is looked at again: after a reboot it may be gone (idempotent by alias). */
    json_object_del(op->doc, is_restore(op) ? "target" : "exposure");
    json_object_del(op->doc, "prepared");
    save_state(g, REC_OPERATION, op, "Queued");
}

void reconcile_operation(struct engine *g, struct rec *op)
{
    const char *s = op->state;
    if (jbool(op->doc, "cancel") && strcmp(s, "CleaningUp") && strcmp(s, "Running") && strcmp(s, "Cancelling")) {
        operation_cancel(g, op, jstr(op->doc, "cancel_reason"));
        return;
    }
    if (busy(g, op->id))
        return;
    if (!strcmp(s, "Queued"))
        queued(g, op);
    else if (!strcmp(s, "Exposing"))
        exposing(g, op);
    else if (!strcmp(s, "Starting"))
        start(g, op);
    else if (!strcmp(s, "Running") || !strcmp(s, "Cancelling")) {
        if (is_restore(op) && jbool(op->doc, "filled"))
            commit_target(g, op);
        else
            adopt(g, op);
    } else if (!strcmp(s, "Retrying"))
        retrying(g, op);
    else if (!strcmp(s, "CleaningUp"))
        clean_up(g, op);
    /* Snapshotting: the backup's reconcile_snapshots() */
}
