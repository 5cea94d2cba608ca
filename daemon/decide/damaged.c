/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/decide/damaged.h"

#include "base/cleanup.h"

#include <stdio.h>
#include <string.h>

#define DAMAGED "damaged: " /* why something is not whole */
#define AFFECTED_MAX 100    /* named in the records of a repository; each is noted with its operation, too */

/* The finished operation that moved it, if that is the snapshot it has reported. */
static bool operation_of(struct decide *d, const char *repository, const struct native_row *n, struct operation *op)
{
    return n->operation[0] && operation_read(d, n->operation, op) == 0 && op->kind == KIND_BACKUP &&
           op->state == OP_COMPLETED && !strcmp(op->policy->repository, repository) &&
           !strcmp(op->result.snapshot, n->snapshot);
}

static bool still_affected(const struct operation *op)
{
    return op->gone_ns && !op->lost;
}

static bool is_still_affected(struct records *r, const char *id)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    return operation_get(r, id, &op, NULL) == 0 && still_affected(&op);
}

/* Adds an operation to those of a repository, or removes it; others that are no longer affected are left out. */
static void note_affected(struct decide *d, const struct operation *op, bool affected)
{
    CLEANUP(job_run_clear) struct job_run row;
    struct strs kept = {NULL, 0};
    struct err e = ERR_INIT;
    job_run_init(&row);
    if (repository_row_read(d, op->policy->repository, &row, &e) < 0) {
        plan_fail(d, &e);
        return;
    }
    struct verify_memory *m = &row.verification;
    if (!affected && !m->affected.n)
        return;
    int rc = 0;
    for (unsigned i = 0; i < m->affected.n && rc == 0; i++)
        if (strcmp(m->affected.v[i], op->id) != 0 && is_still_affected(d->records, m->affected.v[i]))
            rc = strs_add(&kept, m->affected.v[i]);
    if (affected && kept.n < AFFECTED_MAX && rc == 0)
        rc = strs_add(&kept, op->id);
    strs_clear(&m->affected);
    m->affected = kept;
    m->there = true;
    if (affected)
        m->affected_ns = decide_now(d);
    if (rc < 0)
        err_nomem(&e);
    if (rc < 0 || repository_row_write(d, &row, &e) < 0)
        plan_fail(d, &e);
}

/* ---- not as it has to be ---- */

static void volume_lost(struct decide *d, const struct operation *op, const char *what)
{
    struct err e = ERR_INIT;
    char why[300];
    snprintf(why, sizeof why, "%s repository \"%s\"", what, op->policy->repository);
    if (volume_backup_lost(d, op->volume_id, op->parent, why, &e) < 0)
        plan_fail(d, &e);
}

/* Retention of another client may have removed an older one: only of what a volume is restored from first it is said
 * that it is missing. */
static void found_absent(struct decide *d, struct operation *op, const char *why)
{
    if (op->lost)
        return;
    if (operation_is_last_good(d->records, op))
        operation_is_gone(d, op, why);
    operation_is_lost(d, op, "a check did not find it");
    if (operation_write(d, op) == 0)
        volume_lost(d, op, "is no longer in");
}

static void found_damaged(struct decide *d, struct operation *op, const char *why)
{
    char text[700];
    snprintf(text, sizeof text, DAMAGED "%.600s", why);
    operation_is_gone(d, op, text);
    if (operation_write(d, op) < 0)
        return;
    note_affected(d, op, true);
    volume_lost(d, op, "is damaged in");
}

static void found_other(struct decide *d, struct operation *op, const char *why)
{
    operation_disproved(op, why);
    operation_disproved_error(d, op);
    operation_is_gone(d, op, op->unverified);
    if (operation_write(d, op) < 0)
        return;
    note_affected(d, op, true);
    volume_lost(d, op, "is not what was backed up in");
}

void damaged_found_unfit(struct decide *d, const char *repository, const struct native_row *n, enum unfit unfit,
                         const char *why)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    if (unfit == UNFIT_UNKNOWN || !operation_of(d, repository, n, &op))
        return;
    if (unfit == UNFIT_ABSENT)
        found_absent(d, &op, why);
    else if (unfit == UNFIT_DAMAGED)
        found_damaged(d, &op, why);
    else if (!op.unverified[0])
        found_other(d, &op, why);
}

struct verified {
    struct decide *decide;
    const char *repository;
    const json_t *damaged; /* snapshot -> why */
    const json_t *sources; /* of these snapshots */
};

static int note_verified(const struct operation *op, void *arg)
{
    const struct verified *x = arg;
    const json_t *why = json_object_get(x->damaged, op->result.snapshot);
    CLEANUP(operation_clear) struct operation own = ROW_INIT;
    if (!why || op->kind != KIND_BACKUP || op->state != OP_COMPLETED || op->gone_ns || op->lost ||
        strcmp(op->policy->repository, x->repository) != 0 || operation_copy(&own, op) < 0)
        return 0;
    found_damaged(x->decide, &own, json_string_value(why));
    return 0;
}

/* Of the volumes that are named: all finished operations may be very many. */
static int look_at_volume(const struct volume_row *v, void *arg)
{
    struct verified *x = arg;
    char source[SOURCE_TEXT];
    const struct operation_filter its = {.volume_id = v->id};
    volume_source(v, cfg_daemon(x->decide->world.cfg)->node_name, source);
    return json_object_get(x->sources, source) ? operation_each(x->decide->records, &its, note_verified, x, NULL) : 0;
}

void damaged_verified(struct decide *d, const struct operation *verification)
{
    CLEANUP_JSON json_t *sources = json_object();
    CLEANUP_JSON json_t *damaged = mover_result_damaged(&verification->result, sources);
    struct verified x = {d, verification->policy->repository, damaged, sources};
    if (damaged)
        volume_row_each(d->records, NULL, look_at_volume, &x, NULL);
}

/* ---- whole again ---- */

static void damaged_heal(struct decide *d, struct operation *op)
{
    operation_is_there(d, op);
    str_clear(&op->unverified);
    plan_log(d, LOG_LVL_INFO, "snapshot %s of %s is whole in repository \"%s\" again", op->result.snapshot,
             op->volume->name, op->policy->repository);
    if (operation_write(d, op) == 0)
        volume_backup_there(d, op);
}

void damaged_found_fit(struct decide *d, const char *repository, const struct native_row *n)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    if (!operation_of(d, repository, n, &op) || !(op.gone_ns || op.lost || op.unverified[0]))
        return;
    op.verified_ns = decide_now(d);
    damaged_heal(d, &op);
    note_affected(d, &op, false);
}

/* More are affected than are named. */
static int heal_one(const struct operation *op, void *arg)
{
    CLEANUP(operation_clear) struct operation own = ROW_INIT;
    const struct verified *x = arg;
    if (op->kind == KIND_BACKUP && op->gone_ns && !op->lost && !op->unverified[0] &&
        !strncmp(op->gone_why, DAMAGED, strlen(DAMAGED)) && !strcmp(op->policy->repository, x->repository) &&
        operation_copy(&own, op) == 0)
        damaged_heal(x->decide, &own);
    return 0;
}

/* Backups tell whether any of theirs is affected: they are fewer than operations. */
static int heal_of_backup(const struct backup *b, void *arg)
{
    struct verified *x = arg;
    const struct operation_filter its = {.parent = b->id};
    return b->gone ? operation_each(x->decide->records, &its, heal_one, x, NULL) : 0;
}

void damaged_all_whole(struct decide *d, const char *repository, const struct strs *affected)
{
    struct verified x = {.decide = d, .repository = repository};
    if (affected->n >= AFFECTED_MAX)
        backup_each(d->records, NULL, heal_of_backup, &x, NULL);
    for (unsigned i = 0; i < affected->n; i++) {
        CLEANUP(operation_clear) struct operation op = ROW_INIT;
        if (operation_read(d, affected->v[i], &op) == 0 && op.gone_ns && !op.lost && !op.unverified[0])
            damaged_heal(d, &op);
    }
}

void damaged_expired(struct decide *d, const struct operation *expiry)
{
    CLEANUP_JSON json_t *removed = mover_result_expired(&expiry->result);
    CLEANUP(job_run_clear) struct job_run row;
    job_run_init(&row);
    if (!removed || repository_row_read(d, expiry->policy->repository, &row, NULL) < 0)
        return;
    for (unsigned i = 0; i < row.verification.affected.n; i++) {
        CLEANUP(operation_clear) struct operation op = ROW_INIT;
        if (operation_read(d, row.verification.affected.v[i], &op) < 0 || op.lost ||
            !json_object_get(removed, op.result.snapshot))
            continue;
        operation_is_lost(d, &op, "it has expired");
        operation_write(d, &op);
    }
}

/* ---- what is known ---- */

unsigned damaged_known(struct records *r, const struct verify_memory *m, struct operation *last)
{
    unsigned n = 0;
    for (unsigned i = m ? m->affected.n : 0; i-- > 0;) {
        CLEANUP(operation_clear) struct operation op = ROW_INIT;
        if (operation_get(r, m->affected.v[i], &op, NULL) < 0 || !still_affected(&op))
            continue;
        if (n++ == 0 && last)
            operation_copy(last, &op);
    }
    return n;
}
