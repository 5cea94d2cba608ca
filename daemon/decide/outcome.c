/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * outcome.c - ends of attempts and of operations: another attempt, cancel, the outcome
 *
 * The outcome is durable before anything is released (E-04). Crash point: engine-outcome.
 */
#include "base/cleanup.h"
#include "base/time.h"
#include "daemon/decide/decide.h"
#include "daemon/records/opaque.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define INTERRUPTIONS_MAX 10
#define ATTEMPTS_KEPT 32 /* errors of attempts that are recorded */

static void source_by_id(char out[SOURCE_TEXT], const char *node, const char *volume_id)
{
    snprintf(out, SOURCE_TEXT, "snapferry@%s:/%s", node, volume_id);
}

void operation_source(const struct operation *op, char out[SOURCE_TEXT])
{
    char own[300];
    const char *as = op->result.as;
    if (op->rebuilt && !op->own->node[0]) /* made again from what the repository has of this node */
        snprintf(own, sizeof own, "snapferry@");
    else
        snprintf(own, sizeof own, "snapferry@%s:/", op->own->node);
    if (!strncmp(as, own, strlen(own)) && strlen(as) < SOURCE_TEXT)
        snprintf(out, SOURCE_TEXT, "%s", as);
    else
        source_by_id(out, op->own->node, op->volume_id);
}

void volume_source(const struct volume_row *v, const char *node, char out[SOURCE_TEXT])
{
    if (v->source[0])
        snprintf(out, SOURCE_TEXT, "%s", v->source);
    else
        source_by_id(out, node, v->id);
}

void operation_finish(struct decide *d, struct operation *op, enum outcome outcome)
{
    if (op->state == OP_CLEANING_UP || op_state_terminal(op->state))
        return;
    op->outcome = outcome;
    if (outcome != OUTCOME_FAILED)
        op->reason = REASON_NONE;
    op->ended_ns = decide_now(d);
    op->wake_ns = 0;
    prepare_ends(op);
    if (operation_become(d, op, OP_CLEANING_UP) < 0)
        return;
    plan_crash_point(d, "engine-outcome");
    /* The native's record learns what became of its data before anyone decides about it. */
    CLEANUP(native_row_clear) struct native_row n;
    native_row_init(&n);
    char source[SOURCE_TEXT];
    const char *alias = op->native;
    if (!operation_is_restore(op) && alias[0] && native_row_read(d, alias, &n) == 0) {
        bool moved = outcome == OUTCOME_COMPLETED && op->policy->move_data;
        n.moved = moved;
        n.moved_verified =
            moved; /* its mover's word: nothing is removed for it before the repository was asked (RS-18) */
        n.failed = !moved && op->policy->move_data;
        str_set(&n.snapshot, op->result.snapshot);
        if (moved && op->result.as[0]) {
            operation_source(op, source);
            str_set(&n.source, source);
        }
        n.moved_ns = moved ? decide_now(d) : 0;
        n.moved_size = moved ? exposure_read(op->exposure).size : 0;
        if (outcome == OUTCOME_FAILED)
            kept_note(d, op, &n);
        if (moved)
            changes_keep_parent(d, op, &n);
        native_row_write(d, &n);
    }
}

void operation_fail(struct decide *d, struct operation *op, const char *stage, const struct err *e)
{
    operation_error(d, op, stage, e);
    plan_log(d, LOG_LVL_WARNING, "%s: %s: %s", operation_label(op), stage, e->msg);
    operation_finish(d, op, op->cancel ? OUTCOME_CANCELED : OUTCOME_FAILED);
}

void prepare_failed(struct decide *d, struct operation *op, const struct err *last)
{
    char stage[32];
    struct err e = ERR_INIT;
    prepare_error(op, last, stage, &e);
    if (!op->cancel)
        op->reason = REASON_PREPARE_TIMEOUT;
    operation_fail(d, op, stage, &e);
}

/* Another attempt would be refused as this one was. A file system that became read-only may recover. */
bool target_is_away(const struct err *e)
{
    return e->cls == ERR_TARGET && e->sys == ESHUTDOWN;
}

static bool is_refusal(const struct err *e)
{
    switch (e->cls) {
    case ERR_USAGE:
    case ERR_NOT_FOUND:
    case ERR_EXISTS:
    case ERR_FORMAT:
        return true;
    case ERR_TARGET:
        return !target_is_away(e);
    case ERR_PERMISSION:
        return e->sys != EROFS;
    case ERR_SOURCE: /* mounted or held; no device; another one of that name; two of one identity */
        return e->sys == EBUSY || e->sys == ENOTBLK || e->sys == ESTALE || e->sys == ENOTUNIQ;
    default:
        return false;
    }
}

/* The outcome of a backup is owed until it is recorded: what forbids it may be mended, and until then is a problem of
 * the repository. Damage is one at once, when its operation has failed. */
static bool is_owed(const struct operation *op, const struct err *e)
{
    return op->records.n && e->cls != ERR_USAGE && e->cls != ERR_FORMAT && e->cls != ERR_DAMAGE;
}

void operation_attempt_failed(struct decide *d, struct operation *op, const char *stage, const struct err *e,
                              bool transient)
{
    const struct policy *policy = op->policy;
    int64_t attempt = op->attempt, first = policy->retry_first_s, most = policy->retry_max_s;
    if (op->cancel) {
        operation_finish(d, op, OUTCOME_CANCELED);
        return;
    }
    if (op->reason == REASON_PREPARE_TIMEOUT) { /* which it was asked to end for */
        operation_finish(d, op, OUTCOME_FAILED);
        return;
    }
    char name[32]; /* the caller's may lie in the error that is replaced now */
    snprintf(name, sizeof name, "%s", stage);
    stage = name;
    operation_error(d, op, stage, e);
    if (op->attempts.n < ATTEMPTS_KEPT)
        operation_attempt_add(op);
    if (!is_owed(op, e) && (!transient || is_refusal(e) || attempt >= policy->retries)) {
        operation_fail(d, op, stage, e);
        return;
    }
    int64_t wait = first;
    for (int64_t i = 0; i < attempt && wait < most; i++)
        wait *= 2;
    if (wait > most)
        wait = most;
    if (prepare_forbids(d, op, decide_now(d) + wait * NS_PER_S)) {
        prepare_failed(d, op, e);
        return;
    }
    records_counters_hold(d->records);
    count_retry(d, op);
    op->attempt = attempt + 1;
    op->wake_ns = decide_now(d) + wait * NS_PER_S;
    plan_log(d, LOG_LVL_WARNING, "%s: %s: %s; attempt %lld of %lld in %lld s", operation_label(op), stage, e->msg,
             (long long)attempt + 2, (long long)policy->retries + 1, (long long)wait);
    operation_become(d, op, OP_RETRYING);
    records_counters_settle(d->records);
}

void operation_interrupted(struct decide *d, struct operation *op, const struct err *e, enum interruption by)
{
    static const char *const what[] = {
        [BY_OTHERS] = "its mover was terminated externally",
        [BY_REBOOT] = "its mover was terminated by a reboot",
        [BY_OUTAGE] = "its repository is not available",
    };
    const int64_t times = op->interruptions, first = op->policy->retry_first_s;
    /* It may be the operation itself that brings the machine down. */
    if (times >= INTERRUPTIONS_MAX || op->cancel) {
        operation_attempt_failed(d, op, "move", e, true);
        return;
    }
    operation_error(d, op, "move", e);
    op->interruptions = times + 1;
    op->wake_ns = decide_now(d) + (by == BY_REBOOT ? 1 : first) * NS_PER_S;
    plan_log(d, LOG_LVL_INFO, "%s: %s; resuming from the last checkpoint", operation_label(op), what[by]);
    operation_become(d, op, OP_RETRYING);
}

int operation_ask_cancel(struct decide *d, struct operation *op, const char *why)
{
    const int64_t grace = op->policy->cancel_grace_s;
    if (op->cancel)
        return 0;
    op->cancel = true;
    op->cancel_ns = decide_now(d);
    op->cancel_deadline_ns = op->cancel_ns + (grace > 0 ? grace : 30) * NS_PER_S;
    str_set(&op->cancel_reason, why);
    return operation_write(d, op);
}

void operation_cancel(struct decide *d, struct operation *op)
{
    struct live *l = live_find(d, op->id);
    const bool running = op->state == OP_RUNNING || op->state == OP_CANCELLING;
    if (op_state_terminal(op->state) || op->state == OP_CLEANING_UP)
        return;
    if (l && (l->mover || (running && has_mover(d, op->id)))) { /* it is there, or adopted in this turn */
        const bool again = op->state == OP_CANCELLING && !l->cancel_failed;
        if (mover_was_undone(l, op))
            return; /* it ends by itself */
        if (again || (op->state != OP_CANCELLING && operation_become(d, op, OP_CANCELLING) < 0))
            return; /* asked already: its end is an event */
        l->cancel_failed = false;
        plan_mover_cancel(d, op);
    } else if (l && l->working == WORK_POST_HOOK) {
        return; /* what the pre-snapshot hook stopped has to go on: it runs to its end */
    } else if (l && l->working == WORK_SNAPSHOT && op->policy->group[0]) {
        return; /* it is of the other members as well */
    } else if (busy(d, op->id)) {
        plan_work_cancel(d, op->id); /* its end is an event */
    } else {
        operation_finish(d, op, OUTCOME_CANCELED);
    }
}
