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

#include <errno.h>
#include <string.h>

#define INTERRUPTIONS_MAX 10
#define ATTEMPTS_KEPT 32 /* errors of attempts that are recorded */

/* ---- outcomes ---- */

void operation_finish(struct engine *g, struct operation *op, enum outcome outcome)
{
    if (op->state == OP_CLEANING_UP || op_state_terminal(op->state))
        return;
    op->outcome = outcome;
    op->ended_ns = now_ns();
    op->wake_ns = 0;
    if (operation_become(g, op, OP_CLEANING_UP) < 0)
        return;
    crash_point("engine-outcome");
    /* The native's record learns what became of its data before anyone decides about it. */
    CLEANUP(native_row_clear) struct native_row n;
    native_row_init(&n);
    const char *alias = op->native;
    if (!operation_is_restore(op) && alias[0] && native_row_read(g, alias, &n) == 0) {
        bool moved = outcome == OUTCOME_COMPLETED && op->policy->move_data;
        n.moved = moved;
        n.moved_verified = moved; /* just written and read back as a manifest by the mover */
        n.failed = !moved && op->policy->move_data;
        str_set(&n.snapshot, jstr(op->result, "snapshotID"));
        n.moved_ns = moved ? now_ns() : 0;
        native_row_write(g, &n);
    }
    engine_kick(g);
}

void operation_fail(struct engine *g, struct operation *op, const char *stage, const struct err *e)
{
    operation_error(op, stage, e);
    log_warning("%s: %s: %s", operation_label(op), stage, e->msg);
    operation_finish(g, op, op->cancel ? OUTCOME_CANCELED : OUTCOME_FAILED);
}

void operation_attempt_failed(struct engine *g, struct operation *op, const char *stage, const struct err *e,
                              bool transient)
{
    const struct policy *policy = op->policy;
    int64_t attempt = op->attempt, first = policy->retry_first_s, most = policy->retry_max_s;
    if (op->cancel) {
        operation_finish(g, op, OUTCOME_CANCELED);
        return;
    }
    char name[32]; /* the caller's may lie in the error that is replaced now */
    snprintf(name, sizeof name, "%s", stage);
    stage = name;
    operation_error(op, stage, e);
    if (op->attempts.n < ATTEMPTS_KEPT)
        operation_attempt_add(op);
    if (!transient || attempt >= policy->retries) {
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
    op->attempt = attempt + 1;
    op->wake_ns = now_ns() + wait * NS_PER_S;
    log_warning("%s: %s: %s; attempt %lld of %lld in %lld s", operation_label(op), stage, e->msg,
                (long long)attempt + 2, (long long)policy->retries + 1, (long long)wait);
    operation_become(g, op, OP_RETRYING);
    records_counters_settle(g->records);
}

void operation_interrupted(struct engine *g, struct operation *op, const struct err *e, bool rebooted)
{
    const int64_t times = op->interruptions, first = op->policy->retry_first_s;
    /* Should it be the operation that brings the machine down, this ends, too. */
    if (times >= INTERRUPTIONS_MAX || op->cancel) {
        operation_attempt_failed(g, op, "move", e, true);
        return;
    }
    operation_error(op, "move", e);
    op->interruptions = times + 1;
    op->wake_ns = now_ns() + (rebooted ? 1 : first > 0 ? first : 30) * NS_PER_S;
    log_info("%s: its mover was ended %s; it goes on from its last checkpoint", operation_label(op),
             rebooted ? "with the machine" : "by somebody");
    operation_become(g, op, OP_RETRYING);
}

void operation_cancel(struct engine *g, struct operation *op, const char *why)
{
    struct err e = ERR_INIT;
    struct live *l = live_find(g, op->id);
    if (op_state_terminal(op->state) || op->state == OP_CLEANING_UP)
        return;
    if (!op->cancel) {
        int64_t grace = op->policy->cancel_grace_s;
        op->cancel = true;
        op->cancel_ns = now_ns();
        op->cancel_deadline_ns = now_ns() + (grace > 0 ? grace : 30) * NS_PER_S;
        str_set(&op->cancel_reason, why);
        if (operation_write(g, op) < 0)
            return;
    }
    if (movers_has(g->movers, op->id)) {
        int64_t deadline = op->cancel_deadline_ns;
        if (op->state != OP_CANCELLING && operation_become(g, op, OP_CANCELLING) < 0)
            return;
        if (movers_cancel(g->movers, op->id, deadline, &e) < 0)
            log_warning("%s cannot be told to stop, it is tried again: %s", op->id, e.msg);
        return;
    }
    if (operation_is_restore(op) && op->filled)
        return; /* complete and on its way into place: too late, and half-done would be worse */
    if (l && l->step) {
        step_cancel(l->step); /* its end comes back here */
        return;
    }
    operation_finish(g, op, OUTCOME_CANCELED);
}

/* ---- exposing ---- */

/* Class of the intermediate. */
static const struct class_desc *operation_into(const struct operation *op)
{
    return is_none(op->into) ? op->own : op->into;
}

static void expose_done(struct engine *g, struct operation *op, struct step_result *s)
{
    const char *stage = operation_is_restore(op) ? "target" : "expose";
    if (s->err.cls) {
        if (s->timed_out) {
            op->reason = REASON_PREPARE_TIMEOUT;
            err_hint(
                &s->err,
                "prepare-timeout says how long the intermediate may take; `snapferry explain` shows which one is made");
        }
        operation_attempt_failed(g, op, stage, &s->err,
                                 !s->timed_out && s->err.cls != ERR_USAGE && s->err.cls != ERR_TARGET &&
                                     s->err.cls != ERR_NOT_FOUND);
        return;
    }
    const bool restore = operation_is_restore(op);
    json_t *made = restore ? jobj(s->out, "target") : s->out;
    json_t *doc = restore ? json_pack("{s:o,s:O}", "class", class_desc_to_json(op->own), "target", made)
                          : json_pack("{s:o,s:O}", "into", class_desc_to_json(operation_into(op)), "exposure", made);
    if (doc)
        records_intent_update(g->records, op->expose_intent, doc, NULL);
    json_set(restore ? &op->target : &op->exposure, made);
    if (jbool(s->out, "filled"))
        op->filled = true;
    operation_write(g, op);
    crash_point("engine-exposure-recorded");
}

/* The intent first, with a name that is found again. */
static int expose_intent(struct engine *g, struct operation *op, struct err *e)
{
    char alias[ALIAS_LEN + 1];
    uint64_t id;
    json_t *doc;
    if (op->expose_intent)
        return 0;
    alias_new(alias);
    if (operation_is_restore(op))
        doc = json_pack("{s:o,s:s,s:I,s:b}", "class", class_desc_to_json(op->own), "name", op->target_name, "size",
                        (json_int_t)op->size, "overwrite", op->overwrite);
    else
        doc = json_pack("{s:o}", "into", class_desc_to_json(operation_into(op)));
    int rc = records_begin(g->records, e);
    if (rc < 0) {
        json_decref(doc);
        return rc;
    }
    rc = records_intent_add(g->records, op->id, operation_is_restore(op) ? "target" : "exposure", alias, doc, &id, e);
    if (rc == 0) {
        op->expose_intent = id;
        str_set(&op->expose_alias, alias);
        op->expose_ns = now_ns();
        rc = operation_save(g->records, op, e);
    }
    if (rc < 0) {
        records_rollback(g->records);
        return rc;
    }
    rc = records_commit(g->records, e);
    crash_point("engine-expose-intent");
    return rc;
}

static void expose(struct engine *g, struct operation *op)
{
    const struct policy *policy = op->policy;
    struct err e = ERR_INIT;
    json_t *in;
    if (op->state != OP_EXPOSING && operation_become(g, op, OP_EXPOSING) < 0)
        return;
    if (expose_intent(g, op, &e) < 0) {
        log_warning("%s: %s", operation_label(op), e.msg);
        return;
    }
    if (operation_is_restore(op)) {
        in = json_pack("{s:o,s:s,s:I,s:s,s:b}", "class", class_desc_to_json(op->own), "name", op->target_name, "size",
                       (json_int_t)op->size, "alias", op->expose_alias, "overwrite", op->overwrite);
        if (in && !is_none(op->native_doc)) {
            json_object_set_new(in, "native", native_desc_to_json(op->native_doc));
            json_object_set_new(in, "own", class_desc_to_json(op->native_class));
            json_object_set_new(in, "volume", volume_desc_to_json(op->volume));
        }
        if (operation_work(g, op, "make the target of", step_target, in, policy->prepare_timeout_s, expose_done, &e) <
            0)
            operation_attempt_failed(g, op, "target", &e, true);
        return;
    }
    in = json_pack("{s:o,s:o,s:o,s:b,s:s,s:I}", "own", class_desc_to_json(op->own), "native",
                   native_desc_to_json(op->native_doc), "volume", volume_desc_to_json(op->volume), "read_only",
                   policy->backup_read_only, "alias", op->expose_alias, "rate", (json_int_t)policy->copy_limit);
    if (in && !is_none(op->into))
        json_object_set_new(in, "into", class_desc_to_json(op->into));
    if (operation_work(g, op, "expose the snapshot of", step_expose, in, policy->prepare_timeout_s, expose_done, &e) <
        0)
        operation_attempt_failed(g, op, "expose", &e, true);
}

/* A writable intermediate may be fixed up before it is read (PVC-25). */
static void prepare_done(struct engine *g, struct operation *op, struct step_result *s)
{
    if (s->err.cls && !op->policy->hook_continue) {
        operation_attempt_failed(g, op, "prepare hook", &s->err, false);
        return;
    }
    op->prepared = true;
    operation_write(g, op);
}

static bool prepare(struct engine *g, struct operation *op)
{
    const struct policy *policy = op->policy;
    const json_t *x = op->exposure;
    const char *hook = policy->hook_prepare;
    struct err e = ERR_INIT;
    if (operation_is_restore(op) || !hook[0] || op->prepared || jbool(x, "read_only"))
        return true;
    json_t *in = json_pack("{s:s,s:s,s:s,s:s,s:o,s:s,s:I,s:s}", "program", hook, "phase", "prepare", "backup",
                           op->parent, "operation", op->id, "volume", volume_desc_to_json(op->volume), "class",
                           op->own->name, "timeout_s", (json_int_t)policy->hook_timeout_s, "device", jstr(x, "path"));
    if (operation_work(g, op, "prepare hook of", hook_step, in, policy->hook_timeout_s + 10, prepare_done, &e) < 0)
        operation_attempt_failed(g, op, "prepare hook", &e, false);
    return false;
}

/* ---- end of a restore ---- */

static void commit_done(struct engine *g, struct operation *op, struct step_result *s)
{
    if (s->err.cls) {
        operation_attempt_failed(g, op, "commit of the target", &s->err, false);
        return;
    }
    crash_point("engine-target-committed");
    op->committed = true;
    records_intent_resolve(g->records, op->expose_intent, NULL);
    operation_finish(g, op, OUTCOME_COMPLETED);
}

static void commit_target(struct engine *g, struct operation *op)
{
    struct err e = ERR_INIT;
    json_t *in = json_pack("{s:o,s:O}", "class", class_desc_to_json(op->own), "target", op->target);
    if (op->state != OP_RUNNING && operation_become(g, op, OP_RUNNING) < 0) {
        json_decref(in);
        return;
    }
    if (operation_work(g, op, "put into place", step_target_commit, in, 600, commit_done, &e) < 0)
        operation_attempt_failed(g, op, "commit of the target", &e, true);
}

/* ---- releasing ---- */

struct undo {
    json_t *list;
    const struct operation *op;
};
static int collect_intent(struct intent *i, void *arg)
{
    struct undo *u = arg;
    /* Diagnosis instead of removal, when asked for (PVC-11). */
    if (!strcmp(i->kind, "exposure") && u->op->policy->expose_keep_on_failure && u->op->outcome == OUTCOME_FAILED)
        return 0;
    return json_array_append_new(u->list, json_pack("{s:I,s:s,s:s,s:O?}", "id", (json_int_t)i->id, "kind", i->kind,
                                                    "name", i->name, "doc", i->doc));
}

/* What the end of a backup's operation says about its volume. */
static void volume_ended(struct volume_row *v, const void *arg)
{
    const struct operation *op = arg;
    v->last_status = op->outcome;
    str_set(&v->last_backup, op->parent);
    v->last_end_ns = op->completed_ns;
    /* A cancel or a skip says nothing about how backups of the volume go. */
    if (op->outcome != OUTCOME_CANCELED && op->outcome != OUTCOME_SKIPPED)
        v->last_verdict = op->outcome;
    if (op->outcome == OUTCOME_COMPLETED) {
        v->last_success_ns = op->completed_ns;
        v->last_snapshot_ns = op->snapshot_ns;
        str_set(&v->last_good_backup, op->parent);
        str_set(&v->last_good_repository, op->policy->repository);
        str_clear(&v->last_good_lost);
        v->last_changed_bytes = jint(op->result, "incrementalBytes");
        op_error_clear(&v->last_error);
    } else if (op->error.code) {
        op_error_copy(&v->last_error, &op->error);
    }
}

static void terminal(struct engine *g, struct operation *op)
{
    if (op->outcome == OUTCOME_NONE)
        op->outcome = OUTCOME_FAILED;
    op->completed_ns = now_ns();
    records_counters_hold(g->records);
    count_operation_ended(g, op, op->outcome);
    int rc = operation_become(g, op, op_state_of(op->outcome));
    records_counters_settle(g->records);
    if (rc < 0)
        return;
    journal_operation(op);
    movers_forget(g->movers, op->id, NULL, NULL, NULL);
    /* Asked for already unless a daemon died in between; idempotent. */
    const struct cfg_plugin *plugin = op->plugin_id[0] ? operation_plugin(g, op) : NULL;
    if (plugin)
        movers_forget(g->movers, op->id, plugin, op->plugin_id, NULL);
    live_drop(g, op->id);
    if (!operation_is_restore(op))
        volume_note(g, op->volume, op->own->name, volume_ended, op);
    engine_kick(g);
}

static void native_gone_unmade(struct engine *g, const struct operation *op)
{
    CLEANUP(native_row_clear) struct native_row n;
    native_row_init(&n);
    const char *alias = op->native;
    if (!operation_is_restore(op) && alias[0] && native_row_read(g, alias, &n) == 0 && n.state == NATIVE_CREATING)
        native_row_delete(g->records, alias, NULL);
}

static void undo_done(struct engine *g, struct operation *op, struct step_result *s)
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
        int64_t tries = op->cleanup_tries;
        op->cleanup_tries = tries + 1;
        str_set(&op->cleanup_error, why);
        op->wake_ns = now_ns() + (tries > 6 ? 300 : 5 << tries) * NS_PER_S;
        log_warning("%s: what it made cannot be removed yet, it is tried again: %s", operation_label(op), why);
        operation_write(g, op);
        return;
    }
    native_gone_unmade(g, op);
    op->undone = true;
    str_clear(&op->cleanup_error);
    op->wake_ns = 0;
    operation_write(g, op);
    crash_point("engine-cleaned");
}

/* Which natives of the volume stay now that this one's fate is known; the rest goes. A removal that fails is left to
 * the sweep after some tries: until then its record says "removing". */
static bool retain(struct engine *g, struct operation *op)
{
    struct native_rules rules;
    struct native_verdict v;
    struct err e = ERR_INIT;
    if (operation_is_restore(op) || !op->native[0])
        return true;
    if (!op->releasing) {
        op->releasing = true; /* it no longer counts as a user of its native */
        op->prune_rounds = 0;
        op->checks = 0;
        if (operation_write(g, op) < 0)
            return false;
    }
    native_rules_from(&rules, op->policy, op->job, -1, false);
    int rc = natives_make_room(g, op, &rules, op->ended_ns, op->native, natives_pruned, &v, &e);
    if (rc < 0)
        log_warning("%s: %s", operation_label(op), e.msg);
    return rc <= 0;
}

static void clean_up(struct engine *g, struct operation *op)
{
    struct err e = ERR_INIT;
    if (op->wake_ns > now_ns())
        return;
    if (movers_has(g->movers, op->id))
        return; /* its end comes; nothing is taken away under it */
    if (!op->undone) {
        CLEANUP_JSON json_t *list = json_array();
        struct undo u = {list, op};
        if (records_intents(g->records, op->id, collect_intent, &u, &e) < 0) {
            log_warning("%s: %s", operation_label(op), e.msg);
            return;
        }
        if (json_array_size(list)) {
            int64_t timeout = op->policy->snapshot_timeout_s;
            if (operation_work(g, op, "clean up", step_undo, json_pack("{s:O}", "intents", list),
                               timeout > 60 ? timeout : 60, undo_done, &e) < 0)
                log_warning("%s: %s", operation_label(op), e.msg);
            return;
        }
        native_gone_unmade(g, op);
        op->undone = true;
    }
    if (retain(g, op))
        terminal(g, op);
}

/* ---- the function ---- */

static void queued(struct engine *g, struct operation *op)
{
    char why[512] = "";
    if (!operation_is_restore(op) && is_none(op->native_doc))
        return; /* phase 1 first: the backup's */
    if (!queue_may(g, op, false, why, sizeof why)) {
        const char *down = repository_down(g, op->policy->repository);
        int64_t most = op->policy->repo_outage_max_s, since = op->outage_ns;
        if (down && since && most && now_ns() - since > most * NS_PER_S) {
            struct err e = ERR_INIT;
            err_set(&e, ERR_NO_REPO, 0, "%s, for longer than repo-outage-max", down);
            operation_attempt_failed(g, op, "repository", &e, false); /* AO-31 */
            return;
        }
        if (down && !since) {
            op->outage_ns = now_ns();
            operation_write(g, op);
        }
        return;
    }
    op->outage_ns = 0;
    expose(g, op);
}

static void exposing(struct engine *g, struct operation *op)
{
    char why[512] = "";
    if (!(operation_is_restore(op) ? op->target : op->exposure)) {
        expose(g, op);
        return;
    }
    if (operation_is_restore(op) && op->filled) {
        commit_target(g, op);
        return;
    }
    if (!prepare(g, op))
        return;
    if (!queue_may(g, op, true, why, sizeof why))
        return;
    operation_start(g, op);
}

static void retrying(struct engine *g, struct operation *op)
{
    if (op->wake_ns > now_ns())
        return;
    op->wake_ns = 0;
    json_set(&op->identity, NULL);
    str_clear(&op->plugin_id);
    if (!operation_is_restore(op) && is_none(op->native_doc)) {
        op->stage = STAGE_NEW;
        operation_become(g, op, OP_SNAPSHOTTING);
        return;
    }
    /* The intermediate is looked at again: after a reboot it may be gone (idempotent by alias). */
    json_set(operation_is_restore(op) ? &op->target : &op->exposure, NULL);
    op->prepared = false;
    operation_become(g, op, OP_QUEUED);
}

void reconcile_operation(struct engine *g, struct operation *op)
{
    if (op->cancel && op->state != OP_CLEANING_UP && op->state != OP_RUNNING && op->state != OP_CANCELLING) {
        operation_cancel(g, op, op->cancel_reason);
        return;
    }
    if (busy(g, op->id))
        return;
    switch (op->state) {
    case OP_QUEUED:
        queued(g, op);
        break;
    case OP_EXPOSING:
        exposing(g, op);
        break;
    case OP_STARTING:
        operation_start(g, op);
        break;
    case OP_RUNNING:
    case OP_CANCELLING:
        if (operation_is_restore(op) && op->filled)
            commit_target(g, op);
        else
            operation_adopt(g, op);
        break;
    case OP_RETRYING:
        retrying(g, op);
        break;
    case OP_CLEANING_UP:
        clean_up(g, op);
        break;
    case OP_NONE:
    case OP_SNAPSHOTTING: /* the backup's reconcile_snapshots() */
    case OP_COMPLETED:
    case OP_PARTIALLY_FAILED:
    case OP_FAILED:
    case OP_CANCELED:
    case OP_SKIPPED:
    case OP_STATES:
        break;
    }
}
