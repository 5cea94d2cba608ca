/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine-operation.c - the states of one volume's backup or restore, from Queued to terminal
 *
 * Exposing makes the snapshot readable (or a target writable), Starting hands descriptors to a mover, Running waits for
 * its end, Retrying for the next attempt; CleaningUp(outcome) releases what intents name, in reverse, for as long as it
 * takes. The outcome is durable before anything is released, and the state becomes terminal only when nothing is left
 * (E-04).
 *
 * Crash points: engine-expose-intent, engine-exposed (in the child), engine-exposure-recorded, engine-outcome,
 * engine-unexposed (in the child),
 * engine-cleaned, engine-target-made (in the child), engine-target-committed.
 */
#include "base/crash.h"
#include "daemon/engine/volumes.h"
#include "daemon/engine/hooks.h"
#include "daemon/movers/plugin-movers.h"

#include <errno.h>
#include <string.h>

#define INTERRUPTIONS_MAX 10

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
    if (!operation_is_restore(op) && alias[0] && rec_get(g, REC_NATIVE, alias, &n) == 0) {
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
    log_warning("%s: %s: %s", rec_label(op), stage, e->msg);
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
    char name[32]; /* the caller's may lie in the error that is replaced now */
    snprintf(name, sizeof name, "%s", stage);
    stage = name;
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
    records_counters_hold(g->records);
    count_retry(g, op);
    jset_int(op->doc, "attempt", attempt + 1);
    op->wake_ns = now_ns() + wait * NS_PER_S;
    log_warning("%s: %s: %s; attempt %lld of %lld in %lld s", rec_label(op), stage, e->msg, (long long)attempt + 2,
                (long long)jint(policy, "retries") + 1, (long long)wait);
    save_state(g, REC_OPERATION, op, "Retrying");
    records_counters_settle(g->records);
}

void operation_interrupted(struct engine *g, struct rec *op, const struct err *e, bool rebooted)
{
    const int64_t times = jint(op->doc, "interruptions"), first = jint(jobj(op->doc, "policy"), "retry_first_s");
    /* Should it be the operation that brings the machine down, this ends, too. */
    if (times >= INTERRUPTIONS_MAX || jbool(op->doc, "cancel")) {
        operation_attempt_failed(g, op, "move", e, true);
        return;
    }
    doc_error(op->doc, "move", e);
    jset_int(op->doc, "interruptions", times + 1);
    op->wake_ns = now_ns() + (rebooted ? 1 : first > 0 ? first : 30) * NS_PER_S;
    log_info("%s: its mover was ended %s; it goes on from its last checkpoint", rec_label(op),
             rebooted ? "with the machine" : "by somebody");
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
    if (operation_is_restore(op) && jbool(op->doc, "filled"))
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
    const char *stage = operation_is_restore(op) ? "target" : "expose";
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
    const char *member = operation_is_restore(op) ? "target" : "exposure";
    const json_t *made = operation_is_restore(op) ? jobj(s->out, "target") : s->out;
    json_t *doc =
        operation_is_restore(op)
            ? json_pack("{s:O,s:O}", "class", jobj(op->doc, "own"), "target", (json_t *)made)
            : json_pack("{s:O,s:O}", "into", jobj(op->doc, "into") ? jobj(op->doc, "into") : jobj(op->doc, "own"),
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
    if (operation_is_restore(op))
        doc = json_pack("{s:O,s:s,s:I,s:b}", "class", jobj(op->doc, "own"), "name", jstr(op->doc, "target_name"),
                        "size", (json_int_t)jint(op->doc, "size"), "overwrite", jbool(op->doc, "overwrite"));
    else
        doc = json_pack("{s:O}", "into", jobj(op->doc, "into") ? jobj(op->doc, "into") : jobj(op->doc, "own"));
    int rc = records_begin(g->records, e);
    if (rc < 0) {
        json_decref(doc);
        return rc;
    }
    rc = records_intent_add(g->records, op->id, operation_is_restore(op) ? "target" : "exposure", alias, doc, &id, e);
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
        log_warning("%s: %s", rec_label(op), e.msg);
        return;
    }
    if (operation_is_restore(op)) {
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
    if (operation_is_restore(op) || !hook[0] || jbool(op->doc, "prepared") || jbool(x, "read_only"))
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
    jset_int(op->doc, "completed_ns", now_ns());
    records_counters_hold(g->records);
    count_operation_ended(g, op, outcome);
    int rc = save_state(g, REC_OPERATION, op, outcome[0] ? outcome : "Failed");
    records_counters_settle(g->records);
    if (rc < 0)
        return;
    journal_operation(op);
    movers_forget(g->movers, op->id, NULL);
    /* Asked for already unless a daemon died in between; idempotent. */
    const struct cfg_plugin *plugin = jstr(op->doc, "plugin_id")[0] ? operation_plugin(g, op) : NULL;
    if (plugin)
        plugin_movers_forget(g->plugins, op->id, plugin, jstr(op->doc, "plugin_id"), NULL);
    live_drop(g, op->id);
    if (!operation_is_restore(op)) {
        CLEANUP_JSON json_t *more = json_pack("{s:s,s:s,s:I}", "last_status", outcome, "last_backup", op->parent,
                                              "last_end_ns", (json_int_t)jint(op->doc, "completed_ns"));
        const json_t *result = jobj(op->doc, "result");
        /* A cancel or a skip says nothing about how backups of the volume go. */
        if (strcmp(outcome, "Canceled") != 0 && strcmp(outcome, "Skipped") != 0)
            jset_str(more, "last_verdict", outcome);
        if (!strcmp(outcome, "Completed")) {
            jset_int(more, "last_success_ns", jint(op->doc, "completed_ns"));
            jset_int(more, "last_snapshot_ns", jint(op->doc, "snapshot_ns"));
            jset_str(more, "last_good_backup", op->parent);
            jset_str(more, "last_good_repository", jstr(jobj(op->doc, "policy"), "repository"));
            jset_str(more, "last_good_lost", "");
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
    if (!operation_is_restore(op) && alias[0] && rec_get(g, REC_NATIVE, alias, &n) == 0 && !strcmp(n.state, "creating"))
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
        log_warning("%s: what it made cannot be removed yet, it is tried again: %s", rec_label(op), why);
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
    if (operation_is_restore(op) || !jstr(op->doc, "native")[0])
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
        log_warning("%s: %s", rec_label(op), e.msg);
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
            log_warning("%s: %s", rec_label(op), e.msg);
            return;
        }
        if (json_array_size(list)) {
            int64_t timeout = jint(jobj(op->doc, "policy"), "snapshot_timeout_s");
            if (work(g, REC_OPERATION, op, "clean up", step_undo, json_pack("{s:O}", "intents", list),
                     timeout > 60 ? timeout : 60, undo_done, &e) < 0)
                log_warning("%s: %s", rec_label(op), e.msg);
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
    if (!operation_is_restore(op) && !jobj(op->doc, "native_doc"))
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
        if (down && !since) {
            jset_int(op->doc, "outage_ns", now_ns());
            save(g, REC_OPERATION, op);
        }
        operation_waits(g, op, why);
        return;
    }
    operation_waits(g, op, "");
    json_object_del(op->doc, "outage_ns");
    expose(g, op);
}

static void exposing(struct engine *g, struct rec *op)
{
    char why[512] = "";
    if (!jobj(op->doc, operation_is_restore(op) ? "target" : "exposure")) {
        expose(g, op);
        return;
    }
    if (operation_is_restore(op) && jbool(op->doc, "filled")) {
        commit_target(g, op);
        return;
    }
    if (!prepare(g, op))
        return;
    if (!queue_may(g, op, true, why, sizeof why)) {
        operation_waits(g, op, why);
        return;
    }
    operation_waits(g, op, "");
    operation_start(g, op);
}

static void retrying(struct engine *g, struct rec *op)
{
    if (op->wake_ns > now_ns())
        return;
    op->wake_ns = 0;
    json_object_del(op->doc, "identity");
    json_object_del(op->doc, "plugin_id");
    if (!operation_is_restore(op) && !jobj(op->doc, "native_doc")) {
        jset_str(op->doc, "stage", "");
        save_state(g, REC_OPERATION, op, "Snapshotting");
        return;
    }
    /* The intermediate is looked at again: after a reboot it may be gone (idempotent by alias). */
    json_object_del(op->doc, operation_is_restore(op) ? "target" : "exposure");
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
        operation_start(g, op);
    else if (!strcmp(s, "Running") || !strcmp(s, "Cancelling")) {
        if (operation_is_restore(op) && jbool(op->doc, "filled"))
            commit_target(g, op);
        else
            operation_adopt(g, op);
    } else if (!strcmp(s, "Retrying"))
        retrying(g, op);
    else if (!strcmp(s, "CleaningUp"))
        clean_up(g, op);
    /* Snapshotting: the backup's reconcile_snapshots() */
}
