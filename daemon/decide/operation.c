/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * operation.c - the states of one volume's backup or restore, from Queued to terminal
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
#include "base/cleanup.h"
#include "base/time.h"
#include "daemon/decide/decide.h"
#include "daemon/records/opaque.h"

#include <errno.h>
#include <string.h>

/* ---- exposing ---- */

/* Class of the intermediate. */
static const struct class_desc *operation_into(const struct operation *op)
{
    return is_none(op->into) ? op->own : op->into;
}

static void expose_done(struct decide *d, struct operation *op, struct work_result *s)
{
    const char *stage = operation_is_restore(op) ? "target" : "expose";
    char why[512];
    prepare_read(d, op); /* by a driver that copies */
    if (s->err.cls && s->timed_out && !op->read_begun && !op->cancel) {
        prepare_failed(d, op, &s->err);
        return;
    }
    if (s->err.cls) {
        operation_attempt_failed(d, op, stage, &s->err,
                                 s->err.cls != ERR_USAGE && s->err.cls != ERR_NOT_FOUND &&
                                     (s->err.cls != ERR_TARGET || target_is_away(&s->err)));
        return;
    }
    const bool restore = operation_is_restore(op);
    json_t *made = restore ? s->answer.target : s->out;
    const struct live *l = live_find(d, op->id);
    if (!restore && s->answer.nothing_made && l && l->expose_first) {
        records_intent_resolve(d->records, op->expose_intent, NULL);
        op->expose_intent = 0;
    } else {
        json_t *doc = restore
                          ? json_pack("{s:o,s:O}", "class", class_desc_to_json(op->own), "target", made)
                          : json_pack("{s:o,s:O}", "into", class_desc_to_json(operation_into(op)), "exposure", made);
        if (doc)
            records_intent_update(d->records, op->expose_intent, doc, NULL);
    }
    json_set(restore ? &op->target : &op->exposure, made);
    if (s->answer.filled) { /* by the storage: no mover says how much it was */
        op->filled = true;
        op->result.there = true;
        op->result.total = op->size;
    }
    if (s->fd >= 0 && !op->cancel && queue_may(d, op, true, why, sizeof why)) {
        /* It was opened by the same step. */
        changes_skip(d, op);
        if (operation_begin_start(d, op) == 0)
            plan_mover_start(d, op, s->fd);
        plan_crash_point(d, "engine-exposure-recorded");
        return;
    }
    if (restore || !op->policy->hook_prepare[0])
        prepare_pauses(d, op); /* until it may be moved */
    operation_write(d, op);
    plan_crash_point(d, "engine-exposure-recorded");
}

/* What a target is made of, and made again by to learn its names. */
static json_t *target_doc(const struct operation *op)
{
    const bool part = op->ranged && op->length && op->length < op->size - op->offset;
    json_t *doc = json_pack("{s:o,s:s,s:I,s:b}", "class", class_desc_to_json(op->own), "name", op->target_name, "size",
                            (json_int_t)(part ? op->offset + op->length : op->size), "overwrite", op->overwrite);
    if (op->differential || op->ranged)
        jset_str(doc, "keep", op->ranged ? "rest" : "equal");
    return doc;
}

/* ---- the hook before all ---- */

bool begin_hook(struct decide *d, const struct operation *op)
{
    const struct policy *policy = op->policy;
    const bool restore = operation_is_restore(op);
    const char *hook = restore ? policy->hook_pre_restore : policy->hook_pre_backup;
    if (!hook[0] || op->pre_hook_done)
        return true;
    plan_work(d, ROW_OPERATION, op->id, WORK_BEGIN_HOOK,
              json_pack("{s:s,s:s,s:s,s:s,s:o,s:s,s:s,s:I,s:s}", "program", hook, "phase",
                        restore ? "pre-restore" : "pre-backup", "backup", op->parent, "operation", op->id, "volume",
                        volume_desc_to_json(op->volume), "class", op->own->name, "job", op->job, "timeout_s",
                        (json_int_t)policy->hook_timeout_s, "device", restore ? op->target_name : ""),
              policy->hook_timeout_s + 10);
    return false;
}

/* It has ended once it is recorded, and is not run again by another attempt or daemon. */
bool begin_hook_ended(struct decide *d, struct operation *op, struct work_result *s)
{
    const char *stage = operation_is_restore(op) ? "pre-restore hook" : "pre-backup hook";
    if (op->cancel) {
        operation_finish(d, op, OUTCOME_CANCELED);
        return false;
    }
    op->pre_hook_done = !s->not_started;
    if (s->err.cls && (s->not_started || !op->policy->hook_continue)) {
        op->stage = operation_is_restore(op) ? op->stage : STAGE_SNAPPED;
        operation_attempt_failed(d, op, stage, &s->err, s->not_started);
        return false;
    }
    if (s->err.cls) {
        plan_log(d, LOG_LVL_WARNING, "%s: the %s: %s", operation_label(op), stage, s->err.msg);
        operation_degrade(op, s->err.msg);
    }
    return true;
}

/* The intent first, with a name that is found again. */
static int expose_intent(struct decide *d, struct operation *op)
{
    char alias[ALIAS_TEXT];
    struct err e = ERR_INIT;
    uint64_t id;
    json_t *doc;
    if (op->expose_intent)
        return 0;
    d->world.ids->alias(d->world.ids, alias);
    if (operation_is_restore(op))
        doc = target_doc(op);
    else
        doc = json_pack("{s:o}", "into", class_desc_to_json(operation_into(op)));
    if (records_intent_add(d->records, op->id, operation_is_restore(op) ? "target" : "exposure", alias, doc, &id, &e) <
        0) {
        plan_fail(d, &e);
        return -1;
    }
    op->expose_intent = id;
    str_set(&op->expose_alias, alias);
    op->expose_ns = decide_now(d);
    int rc = operation_write(d, op);
    plan_crash_point(d, "engine-expose-intent");
    return rc;
}

static json_t *target_request(const struct operation *op)
{
    json_t *in = target_doc(op);
    jset_str(in, "alias", op->expose_alias);
    if (in && !is_none(op->native_doc)) {
        json_object_set_new(in, "native", native_desc_to_json(op->native_doc));
        json_object_set_new(in, "own", class_desc_to_json(op->native_class));
        json_object_set_new(in, "volume", volume_desc_to_json(op->volume));
        if (op->policy->limits.write_limit) /* of a driver that copies */
            jset_int(in, "rate", op->policy->limits.write_limit);
    }
    return in;
}

static json_t *expose_request(struct decide *d, const struct operation *op)
{
    const struct policy *policy = op->policy;
    /* A built-in mover reads it as it is, and is given the descriptor, unless a list has to be made before. */
    const bool open = !policy->mover[0] && !policy->hook_prepare[0] && !changes_expected(d, op);
    json_t *in = json_pack("{s:o,s:o,s:o,s:b,s:s,s:I,s:b}", "own", class_desc_to_json(op->own), "native",
                           native_desc_to_json(op->native_doc), "volume", volume_desc_to_json(op->volume), "read_only",
                           policy->backup_read_only, "alias", op->expose_alias, "rate", (json_int_t)policy->copy_limit,
                           "open", open);
    if (in && changes_may_skip(d, op))
        json_object_set_new(in, "allocated", json_true());
    if (in && !is_none(op->into))
        json_object_set_new(in, "into", class_desc_to_json(op->into));
    /* Some time has passed since it was taken: it may have been removed, and no other one takes its place (RS-03). */
    if (in && (op->retry_of[0] || op->attempt))
        json_object_set_new(in, "again", json_true());
    return in;
}

static void exposure_begin(struct decide *d, struct operation *op)
{
    const bool restore = operation_is_restore(op);
    prepare_runs(d, op);
    if (op->state != OP_EXPOSING && operation_become(d, op, OP_EXPOSING) < 0)
        return;
    if (restore && op->target)
        return; /* begun by an earlier attempt, which goes on */
    if (restore && !begin_hook(d, op))
        return;
    /* Of the intent. What an earlier piece of work for it has left, maybe of another daemon, is found by its name. */
    const bool first = !op->expose_intent;
    struct live *l = live_get(d, op->id);
    if (l)
        l->expose_first = first;
    if (expose_intent(d, op) == 0)
        plan_work(d, ROW_OPERATION, op->id, restore ? WORK_TARGET : WORK_EXPOSE,
                  restore ? target_request(op) : expose_request(d, op), prepare_left_s(d, op));
}

/* A writable intermediate may be fixed up before it is read (PVC-25). */
static void prepare_done(struct decide *d, struct operation *op, struct work_result *s)
{
    if (s->err.cls && !op->policy->hook_continue) {
        operation_attempt_failed(d, op, "prepare hook", &s->err, false);
        return;
    }
    op->prepared = true;
    operation_write(d, op);
}

static bool prepare_begin(struct decide *d, struct operation *op)
{
    const struct policy *policy = op->policy;
    const struct exposed x = exposure_read(op->exposure);
    const char *hook = policy->hook_prepare;
    if (operation_is_restore(op) || !hook[0] || op->prepared || x.read_only)
        return true;
    json_t *in =
        json_pack("{s:s,s:s,s:s,s:s,s:o,s:s,s:s,s:I,s:s}", "program", hook, "phase", "prepare", "backup", op->parent,
                  "operation", op->id, "volume", volume_desc_to_json(op->volume), "class", op->own->name, "job",
                  op->job, "timeout_s", (json_int_t)policy->hook_timeout_s, "device", x.path);
    plan_work(d, ROW_OPERATION, op->id, WORK_PREPARE_HOOK, in, policy->hook_timeout_s + 10);
    return false;
}

static void open_done(struct decide *d, struct operation *op, struct work_result *s)
{
    if (s->err.cls) {
        if (s->timed_out)
            err_hint(&s->err, "open() of the device does not return; see dmesg and `dmsetup info`");
        operation_attempt_failed(d, op, "open", &s->err,
                                 s->err.cls != ERR_USAGE && (s->err.cls != ERR_TARGET || target_is_away(&s->err)));
    } else if (op->cancel) {
        operation_cancel(d, op);
    } else if (op->state == OP_STARTING) {
        plan_mover_start(d, op, s->fd);
    }
}

/* ---- end of a restore ---- */

static void commit_done(struct decide *d, struct operation *op, struct work_result *s)
{
    if (s->err.cls) {
        if (s->answer.kept) /* what it was to replace is as it was */
            op->filled = false;
        operation_attempt_failed(d, op, "commit of the target", &s->err, false);
        return;
    }
    op->committed = true;
    records_intent_resolve(d->records, op->expose_intent, NULL);
    operation_finish(d, op, OUTCOME_COMPLETED);
    plan_crash_point(d, "engine-target-committed");
}

static void commit_target(struct decide *d, struct operation *op)
{
    if (op->state == OP_RUNNING || operation_become(d, op, OP_RUNNING) == 0)
        plan_work(d, ROW_OPERATION, op->id, WORK_COMMIT,
                  json_pack("{s:o,s:O}", "class", class_desc_to_json(op->own), "target", op->target),
                  600 + operation_size_s(op));
}

/* ---- releasing ---- */

static int collect_intent(struct intent *i, void *arg)
{
    return json_array_append_new(
        arg, json_pack("{s:I,s:s,s:s,s:O?}", "id", (json_int_t)i->id, "kind", i->kind, "name", i->name, "doc", i->doc));
}

/* What the end of a backup's operation says about its volume. */
static void volume_ended(struct volume_row *v, const void *arg)
{
    const struct operation *op = arg;
    char source[SOURCE_TEXT];
    v->last_status = op->outcome;
    str_set(&v->last_backup, op->parent);
    v->last_end_ns = op->completed_ns;
    /* A cancel or a skip says nothing about how backups of the volume go. */
    if (op->outcome != OUTCOME_CANCELED && op->outcome != OUTCOME_SKIPPED)
        v->last_verdict = op->unverified[0] ? OUTCOME_PARTIALLY_FAILED : op->outcome;
    /* What was backed up later from an earlier snapshot than the last good one does not replace that. */
    const bool newest = !op->retry_of[0] || !v->last_good_backup[0] || op->snapshot_ns >= v->last_snapshot_ns;
    if (op->outcome == OUTCOME_COMPLETED && !op->unverified[0] && newest) {
        v->last_success_ns = op->completed_ns;
        v->last_snapshot_ns = op->snapshot_ns;
        str_set(&v->last_good_backup, op->parent);
        str_set(&v->last_good_repository, op->policy->repository);
        str_clear(&v->last_good_lost);
        if (op->result.as[0]) {
            operation_source(op, source);
            str_set(&v->source, source);
        }
        str_set(&v->last_good_evidence, operation_evidence(op));
        v->last_changed_bytes = operation_changed_bytes(op);
        op_error_clear(&v->last_error);
    } else if (op->error.code) {
        op_error_copy(&v->last_error, &op->error);
    }
}

/* What a restore has left. A staging object was removed; what it would have become is as it was, unless its way into
 * place failed: nobody knows how far that went. */
static enum target_state target_left(const struct operation *op)
{
    const struct target_paths to = target_paths_read(op->target);
    const bool in_place = to.path[0] && !strcmp(to.path, to.final);
    if (op->committed)
        return TARGET_COMPLETE;
    if (in_place)
        return op->running_ns ? TARGET_INCOMPLETE : TARGET_UNTOUCHED;
    return op->filled && op->target ? TARGET_UNKNOWN : TARGET_UNTOUCHED;
}

/* A part is no whole restore, but may leave the whole incomplete. What may have been replaced is whole in any case. */
static void note_target(struct decide *d, const struct operation *op)
{
    CLEANUP(volume_row_clear) struct volume_row v = ROW_INIT;
    struct err e = ERR_INIT;
    const bool left = op->target_state == TARGET_INCOMPLETE;
    if ((!left && (op->target_state != TARGET_COMPLETE || op->ranged)) || volume_find(d, op->target_name, &v) < 0)
        return;
    if (!left && !v.half_restored[0])
        return;
    str_set(&v.half_restored, left ? op->parent : "");
    if (volume_row_save(d->records, &v, &e) < 0)
        plan_log(d, LOG_LVL_WARNING, "volume %s: %s", v.volume->name, e.msg);
}

static void operation_end_now(struct decide *d, struct operation *op)
{
    if (op->outcome == OUTCOME_NONE)
        op->outcome = OUTCOME_FAILED;
    if (op->unverified[0]) {
        operation_disproved_error(d, op);
        operation_is_gone(d, op, op->unverified);
    }
    natives_leave_check(d, op); /* it had no snapshot yet */
    op->completed_ns = decide_now(d);
    count_operation_ended(d, op, op->outcome);
    if (operation_is_restore(op)) {
        op->target_state = target_left(op);
        if (op->target_state == TARGET_INCOMPLETE)
            plan_log(d, LOG_LVL_WARNING, "%s: %s is incomplete: parts of it were overwritten", operation_label(op),
                     op->target_name);
        else if (op->target_state == TARGET_UNKNOWN)
            plan_log(d, LOG_LVL_WARNING, "%s: it is not known whether %s was replaced", operation_label(op),
                     op->target_name);
        note_target(d, op);
    }
    if (operation_become(d, op, op_state_of(op->outcome)) < 0)
        return;
    if (!operation_is_restore(op))
        volume_note(d, op->volume, op->own->name, volume_ended, op);
    /* Before it was disproved it may have taken the place of another that was found damaged. */
    if (op->unverified[0])
        volume_is_disproved(d, op);
    plan_operation_ended(d, op);
    plan_mover_forget(d, op->id, NULL, NULL);
    /* Asked for already unless a daemon died in between; idempotent. */
    if (op->plugin_id[0] && !strncmp(op->policy->mover, "plugin:", 7))
        plan_mover_forget(d, op->id, op->policy->mover + 7, op->plugin_id);
    plan_live_drop(d, op->id);
}

static void native_gone_unmade(struct decide *d, const struct operation *op)
{
    CLEANUP(native_row_clear) struct native_row n;
    native_row_init(&n);
    const char *alias = op->native;
    if (!operation_is_restore(op) && alias[0] && native_row_read(d, alias, &n) == 0 && n.state == NATIVE_CREATING)
        native_row_delete(d->records, alias, NULL);
}

static void undo_done(struct decide *d, struct operation *op, struct work_result *s)
{
    const struct step_item *undone = s->answer.intents.v;
    const struct op_error *left = step_items_error(&s->answer.intents);
    for (unsigned i = 0; i < s->answer.intents.n; i++)
        if (!undone[i].error.code)
            records_intent_resolve(d->records, undone[i].id, NULL);
    if (s->err.cls || left) {
        const char *why = s->err.cls ? s->err.msg : left->message;
        int64_t tries = op->cleanup_tries;
        op->cleanup_tries = tries + 1;
        str_set(&op->cleanup_error, why);
        op->wake_ns = decide_now(d) + (tries > 6 ? 300 : 5 << tries) * NS_PER_S;
        plan_log(d, LOG_LVL_WARNING, "%s: what it created cannot be removed yet, retrying: %s", operation_label(op),
                 why);
        operation_write(d, op);
        return;
    }
    native_gone_unmade(d, op);
    op->undone = true;
    str_clear(&op->cleanup_error);
    op->wake_ns = 0;
    operation_write(d, op);
    plan_crash_point(d, "engine-cleaned");
}

/* Which natives of the volume stay now that this one's fate is known; the rest goes. A removal that fails is left to
 * the sweep after some tries: until then its record says "removing". */
static bool retention_begin(struct decide *d, struct operation *op)
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
        operation_write(d, op);
    }
    native_rules(&rules, op->policy, op->job, -1, false, decide_now(d));
    int rc = natives_make_room(d, op, &rules, op->ended_ns, &v, &e);
    if (rc < 0)
        plan_log(d, LOG_LVL_WARNING, "%s: %s", operation_label(op), e.msg);
    return rc <= 0;
}

/* What the repository has to be asked before natives are pruned is asked while the intermediate is removed. */
static void ask_ahead(struct decide *d, struct operation *op)
{
    struct native_rules rules;
    if (operation_is_restore(op) || !op->native[0] || op->check_operation[0] || op->cleanup_tries)
        return;
    native_rules(&rules, op->policy, op->job, -1, false, decide_now(d));
    if (natives_ask_ahead(d, op, &rules, op->ended_ns))
        operation_write(d, op);
}

static void clean_up(struct decide *d, struct operation *op)
{
    struct err e = ERR_INIT;
    if (op->wake_ns > decide_now(d))
        return;
    if (has_mover(d, op->id))
        return; /* its end comes; nothing is taken away under it */
    if (!op->undone) {
        CLEANUP_JSON json_t *list = json_array();
        if (records_intents(d->records, op->id, collect_intent, list, &e) < 0) {
            plan_log(d, LOG_LVL_WARNING, "%s: %s", operation_label(op), e.msg);
            return;
        }
        if (json_array_size(list)) {
            ask_ahead(d, op);
            const int64_t timeout = op->policy->snapshot_timeout_s;
            plan_work(d, ROW_OPERATION, op->id, WORK_UNDO, json_pack("{s:O}", "intents", list),
                      (timeout > 60 ? timeout : 60) + operation_size_s(op));
            return;
        }
        op->undone = true;
    }
    if (retention_begin(d, op))
        operation_end_now(d, op);
}

/* ---- the function ---- */

/* Its repository is unavailable: it waits, with its native snapshot and what was made of it, for repo-outage-max
 * (AO-31). */
static void wait_for_repository(struct decide *d, struct operation *op)
{
    const char *down = queue_outage(d, op);
    const int64_t since = op->outage_ns, gives_up_ns = operation_gives_up_ns(op);
    if (down && gives_up_ns && decide_now(d) > gives_up_ns) {
        struct err e = ERR_INIT;
        err_set(&e, ERR_NO_REPO, 0, "%s, for longer than repo-outage-max", down);
        operation_attempt_failed(d, op, "repository", &e, false);
    } else if (!down != !since) {
        op->outage_ns = down ? decide_now(d) : 0;
        operation_write(d, op);
    }
}

static void state_queued(struct decide *d, struct operation *op)
{
    char why[512] = "";
    if (!operation_is_restore(op) && is_none(op->native_doc))
        return; /* phase 1 first: the backup's */
    if (!queue_may(d, op, false, why, sizeof why)) {
        wait_for_repository(d, op);
        return;
    }
    op->outage_ns = 0;
    exposure_begin(d, op);
}

static void state_exposing(struct decide *d, struct operation *op)
{
    char why[512] = "";
    if (!(operation_is_restore(op) ? op->target : op->exposure)) {
        exposure_begin(d, op);
        return;
    }
    if (operation_is_restore(op) && op->filled) {
        commit_target(d, op);
        return;
    }
    if (!prepare_begin(d, op))
        return;
    if (!queue_may(d, op, true, why, sizeof why)) {
        if (op->prepare_deadline_ns) {
            prepare_pauses(d, op);
            operation_write(d, op);
        }
        wait_for_repository(d, op);
        return;
    }
    op->outage_ns = 0;
    operation_start(d, op);
}

static void state_retrying(struct decide *d, struct operation *op)
{
    if (op->wake_ns > decide_now(d))
        return;
    op->wake_ns = 0;
    operation_configure(d, op);
    str_clear(&op->identity);
    str_clear(&op->plugin_id);
    if (!operation_is_restore(op) && is_none(op->native_doc)) {
        op->stage = STAGE_NEW;
        operation_become(d, op, OP_SNAPSHOTTING);
        return;
    }
    /* The intermediate is looked at again: after a reboot it may be gone (idempotent by alias). A device that a restore
     * has begun to overwrite is not: it is no longer empty, and the restore goes on where it was. */
    if (!operation_is_restore(op))
        json_set(&op->exposure, NULL);
    else if (!op->running_ns || !target_paths_read(op->target).device[0])
        json_set(&op->target, NULL);
    op->prepared = false;
    prepare_pauses(d, op);
    operation_become(d, op, OP_QUEUED);
}

void operation_work_ended(struct decide *d, struct operation *op, enum work w, struct work_result *s)
{
    switch (w) {
    case WORK_PRUNE:
        natives_pruned(d, op, s);
        break;
    case WORK_EXPOSE:
    case WORK_TARGET:
        expose_done(d, op, s);
        break;
    case WORK_BEGIN_HOOK:
        if (begin_hook_ended(d, op, s))
            operation_write(d, op);
        break;
    case WORK_PREPARE_HOOK:
        prepare_done(d, op, s);
        break;
    case WORK_CHANGES:
        changes_listed(d, op, s);
        break;
    case WORK_OPEN:
    case WORK_TARGET_OPEN:
        open_done(d, op, s);
        break;
    case WORK_COMMIT:
        commit_done(d, op, s);
        break;
    case WORK_UNDO:
        undo_done(d, op, s);
        break;
    case WORK_ASK_PLUGIN:
        plugin_admin_work_ended(d, op, s);
        break;
    case WORK_NONE:
    case WORK_POOL:
    case WORK_PRE_HOOK:
    case WORK_SNAPSHOT:
    case WORK_POST_HOOK:
    case WORK_DELETE_NATIVES:
    case WORK_DELETE_PLUGIN:
    case WORK_RUN_HOOK:
    case WORK_LOOK:
    case WORKS:
        break;
    }
}

/* Complete and on its way into place: too late to cancel, and half-done would be worse. */
static bool is_filled(const struct operation *op)
{
    return operation_is_restore(op) && op->filled && op->target;
}

/* Its native snapshot is taken by its backup, whose record could not be used and was set aside. */
static bool has_lost_backup(struct decide *d, struct operation *op)
{
    struct err e = ERR_INIT;
    if (!op->parent[0] || backup_peek(d->records, op->parent) ||
        !(op->state == OP_SNAPSHOTTING || (op->state == OP_QUEUED && is_none(op->native_doc))))
        return false;
    err_plain(&e, ERR_GENERIC, ENOENT,
              "backup %s is no longer in the records, and this operation had no native snapshot", op->parent);
    operation_attempt_failed(d, op, "snapshot", &e, false);
    return true;
}

void decide_operation(struct decide *d, struct operation *op)
{
    const bool running = op->state == OP_RUNNING || op->state == OP_CANCELLING;
    if (op->cancel && op->state != OP_CLEANING_UP && !is_filled(op) && (!running || has_mover(d, op->id))) {
        operation_cancel(d, op);
        return;
    }
    if (busy(d, op->id) || on_restart_failed(d, op) || prepare_is_late(d, op) || has_lost_backup(d, op))
        return;
    switch (op->state) {
    case OP_QUEUED:
        state_queued(d, op);
        break;
    case OP_EXPOSING:
        state_exposing(d, op);
        break;
    case OP_STARTING:
        operation_start(d, op);
        break;
    case OP_RUNNING:
    case OP_CANCELLING:
        if (operation_is_restore(op) && op->filled)
            commit_target(d, op);
        else
            operation_adopt(d, op);
        break;
    case OP_RETRYING:
        state_retrying(d, op);
        break;
    case OP_CLEANING_UP:
        clean_up(d, op);
        break;
    case OP_NONE:
    case OP_SNAPSHOTTING: /* the backup's: decide_snapshots() */
    case OP_COMPLETED:
    case OP_PARTIALLY_FAILED:
    case OP_FAILED:
    case OP_CANCELED:
    case OP_SKIPPED:
    case OP_STATES:
        break;
    }
}
