/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * prepare.c - prepare-timeout: from the native snapshot to the first byte that is read (PVC-11, PVC-12, PVC-20)
 *
 * One deadline for all attempts, in the record: neither a new mover nor a new daemon gives an operation more time. What
 * it waits for its turn, in the queue or for a repository that is unavailable, is not counted; after a boot it has all
 * of the time again, since the machine's down time is nobody's fault. What was waited for and the last error are
 * recorded with the outcome, before anything is removed.
 */
#include "base/cleanup.h"
#include "base/time.h"
#include "base/units.h"
#include "daemon/decide/decide.h"
#include "daemon/records/opaque.h"

#include <stdio.h>
#include <string.h>

#define ADOPTED_S 15 /* in which a mover that was adopted tells what it has read */

#define STORAGE_BYTES_PER_S (INT64_C(4) << 20) /* of slow storage */

int64_t operation_size_s(const struct operation *op)
{
    return operation_is_restore(op) ? op->size / STORAGE_BYTES_PER_S : 0;
}

/* The driver may have to copy the volume, for the target of some restores. One that copies from a native snapshot obeys
 * write-limit. */
static int64_t whole_s(const struct operation *op)
{
    const bool native = op->from == FROM_NATIVE, copies = native || op->differential || op->ranged;
    const int64_t limit = op->policy->limits.write_limit;
    const int64_t copy_s = native && limit && limit < STORAGE_BYTES_PER_S ? op->size / limit : operation_size_s(op);
    return op->policy->prepare_timeout_s + (copies ? copy_s : 0);
}

static int64_t whole_ns(const struct operation *op)
{
    return whole_s(op) * NS_PER_S;
}

static void set_deadline(struct decide *d, struct operation *op, int64_t at_ns)
{
    char boot[SD_ID128_STRING_MAX];
    op->prepare_deadline_ns = op->wake_ns = at_ns;
    op->prepare_left_ms = 0;
    str_set(&op->prepare_boot, sd_id128_to_string(d->world.boot, boot));
}

void prepare_runs(struct decide *d, struct operation *op)
{
    if (op->read_begun || op->prepare_deadline_ns)
        return;
    set_deadline(d, op, decide_now(d) + (op->prepare_left_ms ? op->prepare_left_ms * NS_PER_MS : whole_ns(op)));
}

void prepare_pauses(struct decide *d, struct operation *op)
{
    if (!op->prepare_deadline_ns)
        return;
    const int64_t left = op->prepare_deadline_ns - decide_now(d);
    op->prepare_left_ms = left >= whole_ns(op) ? 0 : left > NS_PER_MS ? left / NS_PER_MS : 1;
    op->prepare_deadline_ns = op->wake_ns = 0;
}

void prepare_ends(struct operation *op)
{
    op->prepare_deadline_ns = op->prepare_left_ms = 0;
    str_clear(&op->prepare_boot);
}

void prepare_begins(struct decide *d, struct operation *op)
{
    op->prepare_deadline_ns = op->snapshot_ns + whole_ns(op);
    prepare_pauses(d, op);
}

void prepare_adopted(struct decide *d, struct operation *op)
{
    const int64_t least = decide_now(d) + ADOPTED_S * NS_PER_S;
    if (op->prepare_deadline_ns && op->prepare_deadline_ns < least && op->reason != REASON_PREPARE_TIMEOUT)
        op->prepare_deadline_ns = op->wake_ns = least;
}

int64_t prepare_left_s(struct decide *d, const struct operation *op)
{
    const int64_t left = op->prepare_deadline_ns - decide_now(d);
    if (!op->prepare_deadline_ns)
        return whole_s(op);
    return left < NS_PER_S ? 1 : (left + NS_PER_S - 1) / NS_PER_S;
}

/* ---- the first byte ---- */

/* Before a chunk is complete nothing is done, but something was read; holes are done without reading. */
static bool any_read(const json_t *progress)
{
    const struct mover_progress p = progress_read(progress);
    return p.read > 0 || p.done > 0;
}

static bool has_read(const struct decide *d, const struct operation *op)
{
    const struct live *l = live_find(d, op->id);
    return (l && any_read(l->progress)) || any_read(op->progress);
}

void prepare_over(struct operation *op)
{
    op->read_begun = true;
    if (op->wake_ns == op->prepare_deadline_ns)
        op->wake_ns = 0;
    prepare_ends(op);
}

void prepare_read(struct decide *d, struct operation *op)
{
    if (!op->read_begun && has_read(d, op))
        prepare_over(op);
}

/* ---- the deadline ---- */

static const char *waits_for(const struct operation *op, const char **stage, char *out, size_t cap)
{
    const bool restore = operation_is_restore(op);
    const char *into = is_none(op->into) ? op->own->name : op->into->name, *phase = progress_read(op->progress).phase;
    *stage = "move";
    snprintf(out, cap, "its mover had read nothing%s%.60s", phase[0] ? ", phase " : "", phase);
    switch (op->state) {
    case OP_EXPOSING:
        *stage = restore ? "target" : op->exposure ? "prepare hook" : "expose";
        if (restore)
            snprintf(out, cap, "the target %.300s was not ready", op->target_name);
        else if (op->exposure)
            snprintf(out, cap, "the prepare hook had not ended");
        else
            snprintf(out, cap, "the intermediate in class \"%.100s\" was not ready", into);
        break;
    case OP_STARTING:
        *stage = "start";
        snprintf(out, cap, "its mover had not started");
        break;
    case OP_RETRYING:
        *stage = op->error.stage[0] ? op->error.stage : "move";
        snprintf(out, cap, "attempt %lld would begin too late", (long long)op->attempt + 2);
        break;
    case OP_NONE:
    case OP_QUEUED:
    case OP_SNAPSHOTTING:
    case OP_RUNNING:
    case OP_CANCELLING:
    case OP_CLEANING_UP:
    case OP_COMPLETED:
    case OP_PARTIALLY_FAILED:
    case OP_FAILED:
    case OP_CANCELED:
    case OP_SKIPPED:
    case OP_STATES:
        break;
    }
    return out;
}

void prepare_error(const struct operation *op, const struct err *last, char stage[32], struct err *ret)
{
    char what[400];
    const char *at, *message = last ? last->msg : op->error.message;
    waits_for(op, &at, what, sizeof what);
    snprintf(stage, 32, "%s", at);
    err_set(ret, last ? last->cls : ERR_GENERIC, 0, "nothing was %s within prepare-timeout (%s): %s%s%.600s",
            operation_is_restore(op) ? "restored" : "read", duration_words(whole_s(op)), what,
            message[0] ? "; last error: " : "", message);
    err_hint(ret, "%s",
             last && last->hint[0]      ? last->hint
             : op->error.hint[0]        ? op->error.hint
             : !strcmp(stage, "expose") ? "`snapferry explain` shows which intermediate is created, and how"
                                        : "`snapferry logs` shows what it waited for");
}

static bool has_booted(const struct decide *d, const struct operation *op)
{
    char boot[SD_ID128_STRING_MAX];
    return strcmp(op->prepare_boot, sd_id128_to_string(d->world.boot, boot)) != 0;
}

bool prepare_forbids(struct decide *d, const struct operation *op, int64_t at_ns)
{
    return op->prepare_deadline_ns && at_ns >= op->prepare_deadline_ns && !has_booted(d, op);
}

bool prepare_renews(struct decide *d, struct operation *op)
{
    const int64_t now = decide_now(d), wake = op->wake_ns;
    if (!has_booted(d, op) && op->prepare_deadline_ns <= now + whole_ns(op)) /* else the clock was set back */
        return false;
    set_deadline(d, op, now + whole_ns(op));
    if (op->state == OP_RETRYING)
        op->wake_ns = wake;
    return true;
}
