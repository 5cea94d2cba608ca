/* SPDX-License-Identifier: GPL-2.0-or-later */
/* late.c - what follows when prepare-timeout has passed: the operation fails, its mover is ended first */
#include "base/cleanup.h"
#include "base/time.h"
#include "daemon/decide/decide.h"

#include <stdio.h>

/* It fails, at once or when its mover has ended. */
static void snapshot_late(struct decide *d, struct operation *op)
{
    struct live *l = live_find(d, op->id);
    char stage[32];
    struct err e = ERR_INIT;
    const int64_t grace = op->policy->cancel_grace_s;
    if (op->reason != REASON_PREPARE_TIMEOUT) {
        if (l && l->progress)
            json_set(&op->progress, l->progress);
        prepare_error(op, NULL, stage, &e);
        op->reason = REASON_PREPARE_TIMEOUT;
        operation_error(d, op, stage, &e);
    } else {
        snprintf(stage, sizeof stage, "%s", op->error.stage);
        op_error_to_err(&e, &op->error);
    }
    if (!has_mover(d, op->id)) {
        operation_fail(d, op, stage, &e);
        return;
    }
    if (op->state == OP_CANCELLING && l && !l->cancel_failed)
        return; /* asked already: its end is an event */
    op->cancel_deadline_ns = decide_now(d) + (grace > 0 ? grace : 30) * NS_PER_S;
    if (op->state == OP_CANCELLING ? operation_write(d, op) < 0 : operation_become(d, op, OP_CANCELLING) < 0)
        return;
    if (l)
        l->cancel_failed = false;
    plan_mover_cancel(d, op);
}

bool prepare_is_late(struct decide *d, struct operation *op)
{
    const int64_t now = decide_now(d);
    const bool running = op->state == OP_RUNNING || op->state == OP_CANCELLING;
    if (!op->prepare_deadline_ns || op->cancel || op->state == OP_CLEANING_UP)
        return false;
    if (op->reason == REASON_PREPARE_TIMEOUT) {
        if (running && !has_mover(d, op->id))
            return false; /* adopted first */
        snapshot_late(d, op);
        return true;
    }
    if (prepare_renews(d, op)) {
        operation_write(d, op);
        return false;
    }
    if (now < op->prepare_deadline_ns || (running && !has_mover(d, op->id)))
        return false;
    prepare_read(d, op);
    if (op->read_begun) {
        operation_write(d, op);
        return false;
    }
    snapshot_late(d, op);
    return true;
}
