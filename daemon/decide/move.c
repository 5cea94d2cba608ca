/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * move.c - the process that moves an operation's data: when it is started and adopted, what follows from what it says
 *
 * Crash points: engine-unit-intent, engine-running, engine-result-recorded.
 */
#include "base/cleanup.h"
#include "base/json.h"
#include "base/time.h"
#include "daemon/decide/decide.h"
#include "daemon/records/opaque.h"

#include <string.h>
#include <sys/wait.h>

#define ADOPTIONS_MAX 20

int operation_begin_start(struct decide *d, struct operation *op)
{
    if (op->state == OP_STARTING)
        return 0;
    struct live *l = live_find(d, op->id);
    if (l)
        live_forget_changes(l); /* of an earlier attempt, perhaps of another native snapshot */
    op->moving_ns = decide_now(d);
    prepare_runs(d, op);
    int rc = operation_become(d, op, OP_STARTING);
    if (rc >= 0)
        plan_crash_point(d, "engine-unit-intent");
    return rc;
}

static int64_t open_s(struct decide *d, const struct operation *op)
{
    const int64_t left = prepare_left_s(d, op);
    return left < 60 ? left : 60;
}

void operation_start(struct decide *d, struct operation *op)
{
    if (operation_begin_start(d, op) < 0)
        return;
    if (has_mover(d, op->id))
        return;
    if (changes_list(d, op))
        return;
    if (op->policy->mover[0]) {
        plan_mover_start(d, op, -1);
    } else if (operation_is_restore(op)) {
        plan_work(d, ROW_OPERATION, op->id, WORK_TARGET_OPEN,
                  json_pack("{s:o,s:O}", "class", class_desc_to_json(op->own), "target", op->target), open_s(d, op));
    } else {
        json_t *in = json_pack("{s:o,s:O}", "own", class_desc_to_json(op->own), "exposure", op->exposure);
        if (in && !is_none(op->into))
            json_object_set_new(in, "into", class_desc_to_json(op->into));
        plan_work(d, ROW_OPERATION, op->id, WORK_OPEN, in, open_s(d, op));
    }
}

/* Counted before it is tried: what a mover left must not end each daemon that looks at it. */
void operation_adopt(struct decide *d, struct operation *op)
{
    if (has_mover(d, op->id))
        return;
    if (op->adoptions >= ADOPTIONS_MAX) {
        struct err e = ERR_INIT;
        err_set(&e, ERR_GENERIC, 0,
                "the daemon ended %d times in a row after it took over its mover or read its result", ADOPTIONS_MAX);
        err_hint(&e, "see the journal of snapferryd for the reason; the result was removed");
        plan_mover_forget(d, op->id, NULL, NULL);
        operation_attempt_failed(d, op, "move", &e, false);
        return;
    }
    op->adoptions++;
    prepare_adopted(d, op);
    if (operation_write(d, op) == 0)
        plan_mover_adopt(d, op);
}

/* The machine went down, in good order or not. */
static bool of_earlier_boot(const struct decide *d, const struct operation *op)
{
    sd_id128_t then;
    CLEANUP_JSON json_t *identity = text_document(op->identity);
    return sd_id128_from_string(identity_boot(identity), &then) >= 0 && !sd_id128_equal(d->world.boot, then);
}

void mover_ready(struct decide *d, struct operation *op, const struct event *ev)
{
    if (op->state != OP_STARTING && op->state != OP_RUNNING)
        return;
    text_set(&op->identity, ev->identity);
    if (ev->plugin_id[0])
        str_set(&op->plugin_id, ev->plugin_id);
    if (op->cancel) {
        operation_cancel(d, op);
        return;
    }
    if (op->kind == KIND_RESTORE && op->state == OP_STARTING)
        op->first_run = !op->running_ns;
    if (!op->running_ns)
        op->running_ns = decide_now(d);
    if (op->policy->mover[0])
        prepare_over(op); /* a plugin need not tell what it has read */
    /* Only when this is durable may it begin: no result can be lost before somebody reads it (MS-19). */
    if (operation_become(d, op, OP_RUNNING) < 0)
        return;
    plan_crash_point(d, "engine-running");
    plan_mover_go(d, op);
}

/* Complete, but not all is well: unreadable ranges were stored as zeros, or retention could not be noted. */
static void note_degraded(struct decide *d, struct operation *op, const struct mover_figures *f)
{
    char why[700];
    if (f->partial)
        operation_degrade(op, "ranges of the volume could not be read and are stored as zeros (bad-reads = map)");
    if (!f->policy_error[0])
        return;
    snprintf(why, sizeof why, "its retention could not be written into the repository: %.500s", f->policy_error);
    operation_degrade(op, why);
    plan_log(d, LOG_LVL_WARNING, "%s: %s", operation_label(op), why);
}

static void mover_succeeded(struct decide *d, struct operation *op, const struct mover_figures *f)
{
    prepare_ends(op);
    if (op->reason == REASON_PREPARE_TIMEOUT) { /* it was quicker than the request to end */
        op->reason = REASON_NONE;
        op_error_clear(&op->error);
    }
    note_degraded(d, op, f);
    if (f->result.skip[0]) {
        str_set(&op->skip_reason, f->result.skip);
        operation_finish(d, op, OUTCOME_SKIPPED);
        return;
    }
    /* A result is a fact also when a cancel came too late. */
    changes_used(d, op);
    if (op->kind == KIND_RESTORE) {
        op->filled = true;
        operation_become(d, op, OP_RUNNING);
    } else {
        operation_finish(d, op, OUTCOME_COMPLETED);
    }
    plan_crash_point(d, "engine-result-recorded");
}

/* Killed when its result was there already. */
static bool was_killed_late(const struct mover_report *r)
{
    return r->outcome == MOVER_MISMATCH && r->status >= 0 && WIFSIGNALED(r->status);
}

static void mover_failed(struct decide *d, struct operation *op, const struct mover_report *r)
{
    const bool transient = r->outcome == MOVER_TRANSIENT || r->outcome == MOVER_DIED || r->outcome == MOVER_HUNG ||
                           (r->outcome == MOVER_NEVER_STARTED && r->err.cls != ERR_USAGE) ||
                           r->outcome == MOVER_CANCELED || was_killed_late(r);
    const bool rebooted = of_earlier_boot(d, op);
    struct err e = r->err;
    if (!e.cls)
        err_set(&e, ERR_GENERIC, 0, "the mover ended with outcome \"%s\"", mover_outcome_name(r->outcome));
    if (op->reason == REASON_PREPARE_TIMEOUT) {
        operation_finish(d, op, OUTCOME_FAILED); /* its error is in the record */
        return;
    }
    if (on_restart_mover_gone(d, op, r)) {
        plan_mover_forget(d, op->id, NULL, NULL);
        return;
    }
    /* Its repository went away before anybody saw it: it waits for repo-outage-max like those that had not begun
     * (AO-31), whatever retries are left. */
    const bool lost_repository =
        transient && e.cls == ERR_NO_REPO && !op->policy->mover[0] && op->attempt >= op->policy->retries;
    if (lost_repository)
        operation_interrupted(d, op, &e, BY_OUTAGE);
    else if (rebooted || (r->outcome == MOVER_CANCELED && !op->policy->mover[0]))
        operation_interrupted(d, op, &e, rebooted ? BY_REBOOT : BY_OTHERS);
    else
        operation_attempt_failed(d, op, "move", &e, transient);
    plan_mover_forget(d, op->id, NULL, NULL); /* the next attempt starts with an empty result file */
}

/* A device that no attempt has begun to write to is as it was. */
static void note_untouched(struct operation *op, const struct mover_report *r, const struct mover_figures *f)
{
    const bool ended = r->outcome == MOVER_FAILED || r->outcome == MOVER_TRANSIENT || r->outcome == MOVER_CANCELED;
    if (op->first_run && (r->outcome == MOVER_NEVER_STARTED || (ended && f->untouched)))
        op->running_ns = 0;
    op->first_run = false;
}

void mover_ended(struct decide *d, struct operation *op, const struct mover_report *r)
{
    const struct live *l = live_find(d, op->id);
    if (op_state_terminal(op->state) || op->state == OP_CLEANING_UP)
        return;
    if (mover_was_undone(l, op)) { /* the record knows of none, or of one that is to be started */
        plan_mover_forget(d, op->id, NULL, NULL);
        return;
    }
    CLEANUP_JSON json_t *ended = json_pack("{s:s,s:i,s:I,s:I,s:f}", "outcome", mover_outcome_name(r->outcome), "status",
                                           r->status, "memory_peak", (json_int_t)r->memory_peak, "oom_kills",
                                           (json_int_t)r->oom_kills, "cpu_seconds", r->cpu_seconds);
    text_set(&op->mover, ended);
    if (l && l->progress)
        json_set(&op->progress, l->progress);
    prepare_read(d, op);
    CLEANUP(mover_figures_clear) struct mover_figures f;
    if (mover_figures_load(&f, r->result) < 0)
        d->plan.failed = true;
    if (f.there && mover_result_copy(&op->result, &f.result) < 0)
        d->plan.failed = true;
    if (!op->filled) /* of a restore that is reported again after a restart */
        count_mover_ended(d, op, r, &f);
    note_untouched(op, r, &f);
    if (r->outcome == MOVER_OK) {
        mover_succeeded(d, op, &f);
    } else if (op->cancel) {
        if (r->outcome != MOVER_CANCELED && r->err.cls)
            operation_error(d, op, "cancel", &r->err);
        operation_finish(d, op, OUTCOME_CANCELED);
    } else {
        mover_failed(d, op, r);
    }
}
