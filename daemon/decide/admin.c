/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * admin.c - what the daemon needs from a repository, done by movers of kind admin, verify, maintain and copy
 *
 * The daemon never opens a repository itself. An admin operation carries a list of small steps (check, delete, expire,
 * policy, scan), runs outside the slots, and leaves its answers in its record.
 */
#include "base/nearest.h"
#include "base/time.h"
#include "base/cleanup.h"
#include "daemon/decide/copies.h"
#include "daemon/decide/damaged.h"
#include "daemon/decide/maintain.h"
#include "daemon/decide/verification.h"

#include <errno.h>
#include <string.h>

#define ADMIN_RETRIES 3
#define RECORD_RETRIES 1000000 /* an outcome is owed until it is recorded */
#define RECORD_RETRY_MAX_S 3600
#define MAINTAIN_MEMORY (INT64_C(96) << 20) /* of buffers, and of index pages: 256 MiB with what the program needs */
#define MAINTAIN_MEMORY_MAX (INT64_C(256) << 20)
#define CANCELED_WAIT_S 5 /* of a canceled backup for its record */
#define GATHER_S 2        /* that a question waits for others while backups are under way */
#define GATHER_MAX 64     /* snapshots that it then is about */

const json_t *admin_answer(const struct operation *op, unsigned i)
{
    return json_array_get(op->result.answers, i);
}

/* Maintenance needs no more, whatever the size of the repository (CF-40). */
static void limit_memory(struct mover_limits *l)
{
    if (!l->memory || l->memory > MAINTAIN_MEMORY)
        l->memory = MAINTAIN_MEMORY;
    if (!l->index_memory || l->index_memory > MAINTAIN_MEMORY)
        l->index_memory = MAINTAIN_MEMORY;
    if (l->memory_max > MAINTAIN_MEMORY_MAX)
        l->memory_max = MAINTAIN_MEMORY_MAX;
}

int admin_add_mover(struct decide *d, enum op_kind kind, const char *prefix, const char *repository, const char *mover,
                    struct operation *op, const char *parent, char id[512], struct err *e)
{
    struct cfg_policy p = {.effective = NULL};
    struct policy policy;
    struct class_desc own;
    char stamp[32];
    if (!mover[0] && !cfg_repository(d->world.cfg, repository)) {
        err_set(e, ERR_USAGE, 0, "there is no [repository \"%s\"] in the configuration", repository);
        return nearest_hint(e, cfg_near_repository(d->world.cfg, repository),
                            "`snapferry check-config` lists the repositories");
    }
    int rc = cfg_policy(d->world.cfg, cfg_named(""), NULL, &p, e);
    if (rc < 0)
        return rc;
    if (prefix) {
        d->world.ids->stamp(d->world.ids, decide_now(d), stamp);
        str_setf(&op->id, "%s-%s", prefix, stamp);
    }
    str_set(&op->parent, parent);
    op->state = OP_QUEUED;
    op->kind = kind;
    policy_from_cfg(&policy, &p);
    cfg_policy_clear(&p);
    str_set(&policy.repository, repository);
    str_set(&policy.mover, mover);
    if (kind == KIND_MAINTAIN)
        limit_memory(&policy.limits);
    if (kind == KIND_COPY)
        limits_of_copy(&policy.limits, cfg_copy(d->world.cfg, op->target_name));
    policy.retries = op->records.n ? RECORD_RETRIES : ADMIN_RETRIES;
    if (op->records.n)
        policy.retry_max_s = RECORD_RETRY_MAX_S;
    policy_take(&op->policy, policy_make(&policy));
    class_desc_init(&own);
    str_set(&own.node, cfg_daemon(d->world.cfg)->node_name);
    class_desc_take(&op->own, class_desc_make(&own));
    rc = operation_add(d->records, op, e);
    if (rc < 0)
        return rc;
    snprintf(id, 512, "%s", op->id);
    return 0;
}

int admin_add(struct decide *d, enum op_kind kind, const char *prefix, const char *repository, struct operation *op,
              const char *parent, char id[512], struct err *e)
{
    return admin_add_mover(d, kind, prefix, repository, "", op, parent, id, e);
}

int admin_submit(struct decide *d, const char *repository, json_t *steps, const char *parent, const char *prefix,
                 char id[512], struct err *e)
{
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    op.does = steps;
    return admin_add(d, KIND_ADMIN, prefix, repository, &op, parent, id, e);
}

/* Other backups will ask as well, maybe soon. */
static bool others_come(const struct decide *d)
{
    return board_usage(d->board, "").coming > 0;
}

void admin_gather(struct decide *d, struct operation *op)
{
    if (others_come(d))
        op->wake_ns = decide_now(d) + GATHER_S * NS_PER_S;
}

static bool batch_gathers(struct decide *d, const struct operation *op)
{
    const int64_t left = op->wake_ns - decide_now(d);
    return left > 0 && left <= GATHER_S * NS_PER_S && json_object_size(op->aliases) < GATHER_MAX && others_come(d);
}

/* One check of a repository at a time: what is asked meanwhile is asked together. */
static bool check_may_start(struct decide *d, const struct operation *op)
{
    struct repo_health *h = repository_health(d, op->policy->repository);
    if (!op->aliases || !h)
        return true;
    const struct operation *running = h->checking_id[0] ? operation_peek(d->records, h->checking_id) : NULL;
    if (running && strcmp(running->id, op->id) != 0 && running->state != OP_RETRYING)
        return false;
    snprintf(h->checking_id, sizeof h->checking_id, "%s", op->id);
    if (!strcmp(h->next_check_id, op->id))
        h->next_check_id[0] = '\0';
    return true;
}

static void check_ended(struct decide *d, const struct operation *op)
{
    struct repo_health *h = repository_health(d, op->policy->repository);
    if (h && op->aliases && h->next_check_id[0])
        decide_look_at(d, ROW_OPERATION, h->next_check_id);
}

/* It has ended, or has failed and will be retried: the backups that it records wait for it no more. */
static void recorder_tried(struct decide *d, struct operation *op)
{
    if (!op->tried && !op_state_terminal(op->state)) {
        op->tried = true;
        operation_write(d, op);
    }
    for (unsigned i = 0; i < op->records.n; i++)
        decide_look_at(d, ROW_BACKUP, op->records.v[i]);
}

/* A canceled backup does not wait for a repository that hangs: what is not written by then stays owed. */
static void record_hangs(struct decide *d, struct operation *op)
{
    if (!op->records.n || op->tried)
        return;
    if (op->wake_ns && op->wake_ns <= decide_now(d)) {
        op->wake_ns = 0;
        recorder_tried(d, op);
    }
    for (unsigned i = 0; !op->tried && !op->wake_ns && i < op->records.n; i++) {
        const struct backup *b = backup_peek(d->records, op->records.v[i]);
        if (!b || !b->cancel)
            continue;
        op->wake_ns = decide_now(d) + CANCELED_WAIT_S * NS_PER_S;
        operation_write(d, op);
    }
}

static void admin_end(struct decide *d, struct operation *op)
{
    if (has_mover(d, op->id) || !evidence_noted(d, op))
        return;
    if (op->outcome == OUTCOME_NONE)
        op->outcome = OUTCOME_FAILED;
    op->completed_ns = decide_now(d);
    if (op->kind == KIND_ADMIN && !op->policy->mover[0]) {
        natives_note_expired(d, op);
        operations_note_expired(d, op);
        damaged_expired(d, op);
    }
    count_operation_ended(d, op, op->outcome);
    if (op->kind == KIND_MAINTAIN)
        maintain_ended(d, op);
    const bool damage = op->outcome == OUTCOME_FAILED && op->error.code == ERR_DAMAGE && op->kind == KIND_ADMIN;
    if ((op->kind == KIND_VERIFY || damage) && !op->policy->mover[0])
        verification_ended(d, op);
    if (op->kind == KIND_COPY)
        copy_ended(d, op);
    if (operation_become(d, op, op_state_of(op->outcome)) < 0)
        return;
    plan_mover_forget(d, op->id, NULL, NULL);
    plan_live_drop(d, op->id);
    check_ended(d, op);
    if (op->records.n)
        recorder_tried(d, op);
}

static void admin_queued(struct decide *d, struct operation *op)
{
    const char *down = repository_down(d, op->policy->repository);
    const bool back = !down && op->waiting[0];
    if (back) { /* what it waited for is told no longer, by it or by what comes of it */
        str_clear(&op->waiting);
        op->outage_ns = 0;
    }
    if (!down && batch_gathers(d, op)) {
        if (back)
            operation_write(d, op);
        return;
    }
    const bool waited = op->wake_ns != 0;
    op->wake_ns = 0;
    if (!down && !check_may_start(d, op)) {
        if (waited || back)
            operation_write(d, op);
        return;
    }
    if (!down) {
        if (operation_become(d, op, OP_STARTING) == 0)
            plan_mover_start(d, op, -1);
        return;
    }
    if (waited || strcmp(op->waiting, down) != 0) {
        str_set(&op->waiting, down);
        if (!op->outage_ns)
            op->outage_ns = decide_now(d);
        operation_write(d, op);
    }
    if (op->records.n) {
        if (!op->tried)
            recorder_tried(d, op);
        return;
    }
    const int64_t gives_up_ns = operation_gives_up_ns(op);
    if (gives_up_ns && decide_now(d) > gives_up_ns) {
        struct err e = ERR_INIT;
        const struct repo_health *h = repository_health(d, op->policy->repository);
        err_set(&e, h && h->cls != ERR_NONE ? h->cls : ERR_NO_REPO, 0, "%s", down);
        if (h && h->hint[0])
            err_hint(&e, "%s", h->hint);
        operation_attempt_failed(d, op, "repository", &e, false);
    }
}

void decide_admin(struct decide *d, struct operation *op)
{
    const bool running = op->state == OP_RUNNING || op->state == OP_CANCELLING;
    if (op->cancel && op->state != OP_CLEANING_UP && (!running || has_mover(d, op->id))) {
        operation_cancel(d, op);
        return;
    }
    if (busy(d, op->id) || on_restart_failed(d, op))
        return;
    switch (op->state) {
    case OP_QUEUED:
        admin_queued(d, op);
        break;
    case OP_STARTING:
        if (!has_mover(d, op->id))
            plan_mover_start(d, op, -1);
        break;
    case OP_RUNNING:
    case OP_CANCELLING:
        record_hangs(d, op);
        operation_adopt(d, op); /* the same for all movers */
        break;
    case OP_RETRYING:
        if (op->records.n && !op->tried)
            recorder_tried(d, op);
        if (op->wake_ns > decide_now(d))
            break;
        op->wake_ns = 0;
        str_clear(&op->identity);
        operation_become(d, op, OP_QUEUED);
        break;
    case OP_CLEANING_UP:
        admin_end(d, op);
        break;
    case OP_NONE:
    case OP_SNAPSHOTTING:
    case OP_EXPOSING:
    case OP_COMPLETED:
    case OP_PARTIALLY_FAILED:
    case OP_FAILED:
    case OP_CANCELED:
    case OP_SKIPPED:
    case OP_STATES:
        break;
    }
}
