/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * evidence.c - what another process than its mover has found of a backup's data in the repository
 *
 * The mover that records the outcome of a backup looks for its snapshots as well (record.c): source, tag of the
 * operation, time, size, and of those that nobody else has looked at contents and a sample of the data. One that the
 * check before pruning has read may be gone since. Only the newest of a volume counts: of older ones retention may have
 * removed the snapshot since.
 */
#include "base/cleanup.h"
#include "daemon/decide/decide.h"
#include "daemon/records/opaque.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART 100 /* operations that are looked at in one turn */

/* That one of our own movers has reported, and that has not been missed. */
static const char *reported_snapshot(const struct operation *op)
{
    const bool reported = op->kind == KIND_BACKUP && op->outcome == OUTCOME_COMPLETED && !op->unverified[0] &&
                          !op->lost && !op->rebuilt && op->policy->move_data && !op->policy->mover[0];
    return reported ? op->result.snapshot : "";
}

const char *operation_unproven(const struct operation *op)
{
    return operation_evidence(op)[0] ? reported_snapshot(op) : "";
}

void expect_between(json_t *x, int64_t created_ns, int64_t ended_ns)
{
    if (created_ns > 0)
        jset_int(x, "afterNs", ended_ns > 0 && ended_ns < created_ns ? ended_ns : created_ns);
    if (ended_ns > 0)
        jset_int(x, "beforeNs", ended_ns > created_ns ? ended_ns : created_ns);
}

json_t *operation_expected(struct records *r, const struct operation *op, const char *repository)
{
    char source[SOURCE_TEXT];
    if (!reported_snapshot(op)[0] || strcmp(op->policy->repository, repository) != 0 || !operation_is_last_good(r, op))
        return NULL;
    json_t *x = json_object();
    const int64_t size = exposure_read(op->exposure).size;
    operation_source(op, source);
    jset_int(x, "of", (json_int_t)op->seq);
    jset_str(x, "source", source);
    jset_str(x, "volume", op->volume_id);
    jset_str(x, "operation", op->id);
    expect_between(x, op->native_doc->created_ns, op->ended_ns);
    if (size > 0)
        jset_int(x, "size", size);
    if (op->verified_ns)
        jset_bool(x, "seen", true);
    return x;
}

void operation_disproved(struct operation *op, const char *why)
{
    op->degraded = true;
    str_setf(&op->unverified, "repository \"%s\" does not have what was backed up: snapshot %s: %.300s",
             op->policy->repository, op->result.snapshot, why[0] ? why : "not readable");
}

void operation_is_gone(struct decide *d, struct operation *op, const char *why)
{
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    if (!op->gone_ns && backup_read(d, op->parent, &b) == 0) {
        if (b.gone++ == 0) {
            b.gone_ns = decide_now(d);
            str_set(&b.gone_why, why);
        }
        backup_write(d, &b);
    }
    if (!op->gone_ns)
        op->gone_ns = decide_now(d);
    str_set(&op->gone_why, why);
}

void operation_is_back(struct decide *d, struct operation *op)
{
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    if (op->gone_ns && backup_read(d, op->parent, &b) == 0 && b.gone > 0) {
        if (--b.gone == 0) {
            b.gone_ns = 0;
            str_clear(&b.gone_why);
        }
        backup_write(d, &b);
    }
    op->gone_ns = 0;
    str_clear(&op->gone_why);
}

void operation_is_lost(struct decide *d, struct operation *op, const char *why)
{
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    if (!op->lost && backup_read(d, op->parent, &b) == 0) {
        b.lost++;
        b.lost_ns = decide_now(d);
        str_set(&b.lost_why, why);
        backup_write(d, &b);
    }
    op->lost = true;
}

void operation_is_there(struct decide *d, struct operation *op)
{
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    if (op->lost && backup_read(d, op->parent, &b) == 0 && b.lost > 0) {
        if (--b.lost == 0) {
            b.lost_ns = 0;
            str_clear(&b.lost_why);
        }
        backup_write(d, &b);
    }
    op->lost = false;
    operation_is_back(d, op);
}

void operation_disproved_error(struct decide *d, struct operation *op)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_DAMAGE, 0, "%s", op->unverified);
    err_hint(&e, "`snapferry verify` reads the repository; back up the volume again");
    operation_error(d, op, "check", &e);
    plan_log(d, LOG_LVL_WARNING, "%s: %s", operation_label(op), e.msg);
}

/* ---- the answer, when the outcome has been recorded ---- */

static void volume_is_proven(struct decide *d, const struct operation *op)
{
    CLEANUP(volume_row_clear) struct volume_row v;
    struct err e = ERR_INIT;
    volume_row_init(&v);
    if (volume_row_read(d, op->volume_id, &v) < 0 || strcmp(v.last_good_backup, op->parent) != 0)
        return;
    str_set(&v.last_good_evidence, operation_evidence(op));
    if (volume_row_save(d->records, &v, &e) < 0)
        plan_fail(d, &e);
}

void volume_is_disproved(struct decide *d, const struct operation *op)
{
    CLEANUP(volume_row_clear) struct volume_row before, v;
    struct err e = ERR_INIT;
    volume_row_init(&before);
    volume_row_init(&v);
    if (volume_row_read(d, op->volume_id, &before) < 0)
        return;
    if (volume_backup_lost(d, op->volume_id, op->parent, "is not in the repository as it was backed up", &e) < 0)
        plan_fail(d, &e);
    if (strcmp(before.last_backup, op->parent) != 0 || volume_row_read(d, op->volume_id, &v) < 0)
        return;
    /* It is the last one that ended, whatever protects the volume now. */
    str_set(&v.last_backup, op->parent);
    v.last_verdict = OUTCOME_PARTIALLY_FAILED;
    op_error_copy(&v.last_error, &op->error);
    if (volume_row_save(d->records, &v, &e) < 0)
        plan_fail(d, &e);
}

/* Nothing is pruned in favour of what is not there. */
static void native_is_disproved(struct decide *d, const struct operation *op)
{
    CLEANUP(native_row_clear) struct native_row n;
    native_row_init(&n);
    if (!op->native[0] || native_row_read(d, op->native, &n) < 0 || strcmp(n.operation, op->id) != 0)
        return;
    n.moved_verified = false;
    n.disproved_ns = decide_now(d);
    native_row_write(d, &n);
}

static void backup_is_disproved(struct decide *d, const struct operation *op)
{
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    if (backup_read(d, op->parent, &b) < 0 || b.disproved)
        return;
    b.disproved = true;
    backup_write(d, &b);
}

/* The answer is about the operation that was asked about: another one may name the same snapshot. */
static enum checked answer_about(const struct operation *recorder, const struct operation *op, const char **why)
{
    const char *snapshot = reported_snapshot(op);
    const enum checked found = mover_result_checked_number(&recorder->result, (int64_t)op->seq, why);
    if (found != CHECKED_NONE || mover_result_checked_of(&recorder->result, snapshot) != (int64_t)op->seq)
        return found;
    return mover_result_checked(&recorder->result, snapshot, why); /* of a mover that was started by an older version */
}

static void note_answer(struct decide *d, const struct operation *reported, const struct operation *recorder)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    const char *why;
    const enum checked found = answer_about(recorder, reported, &why);
    if (found == CHECKED_NONE || (found == CHECKED_READABLE && reported->verified_ns))
        return;
    if (operation_copy(&op, reported) < 0) {
        d->plan.failed = true;
    } else if (found == CHECKED_READABLE) {
        op.verified_ns = decide_now(d);
        if (operation_write(d, &op) == 0)
            volume_is_proven(d, &op);
    } else if (operation_is_last_good(d->records, &op)) {
        operation_disproved(&op, why);
        operation_disproved_error(d, &op);
        operation_is_gone(d, &op, op.unverified);
        if (operation_write(d, &op) < 0)
            return;
        volume_is_disproved(d, &op);
        native_is_disproved(d, &op);
        backup_is_disproved(d, &op);
    }
}

/* ---- what retention has removed ---- */

struct expiring {
    struct decide *d;
    const struct operation *expiry;
    const json_t *snapshots; /* that it has removed */
};

/* By another process than the one that moved it. */
static bool was_seen(struct decide *d, const struct native_row *n)
{
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    return n->verified_ns > 0 || (n->operation[0] && operation_get(d->records, n->operation, &op, NULL) == 0 &&
                                  !strcmp(op.result.snapshot, n->snapshot) && op.verified_ns > 0);
}

static int note_expired(const struct native_row *row, void *arg)
{
    const struct expiring *x = arg;
    CLEANUP(native_row_clear) struct native_row n;
    native_row_init(&n);
    if (row->expired || !row->moved || !row->moved_verified || !row->snapshot[0] ||
        strcmp(row->policy->repository, x->expiry->policy->repository) != 0 ||
        !json_object_get(x->snapshots, row->snapshot) || !was_seen(x->d, row) || native_row_read(x->d, row->id, &n) < 0)
        return 0;
    n.expired = true;
    native_row_write(x->d, &n);
    return 0;
}

void natives_note_expired(struct decide *d, const struct operation *expiry)
{
    struct err e = ERR_INIT;
    CLEANUP_JSON json_t *removed = mover_result_expired(&expiry->result);
    struct expiring x = {.d = d, .expiry = expiry, .snapshots = removed};
    if (removed && native_row_each(d->records, NULL, note_expired, &x, &e) < 0)
        plan_fail(d, &e);
}

#define EXPIRED_MAX 2000 /* as many as a mover names; what names more is none of ours, and the turn is to end */

/* Its word is taken for what is shown of a backup, never for the newest good one of a volume: that does not expire. */
void operations_note_expired(struct decide *d, const struct operation *expiry)
{
    const char *snapshot;
    json_t *made_by;
    unsigned n = 0;
    CLEANUP_JSON json_t *removed = mover_result_expired(&expiry->result);
    json_object_foreach(removed, snapshot, made_by)
    {
        if (n++ == EXPIRED_MAX)
            break;
        CLEANUP(operation_clear) struct operation op = ROW_INIT;
        if (operation_read(d, json_string_value(made_by), &op) < 0 || op.lost || op.kind != KIND_BACKUP ||
            op.state != OP_COMPLETED || strcmp(op.result.snapshot, snapshot) != 0 ||
            strcmp(op.policy->repository, expiry->policy->repository) != 0 || operation_is_last_good(d->records, &op))
            continue;
        operation_is_lost(d, &op, "it has expired");
        operation_write(d, &op);
    }
}

/* ---- in parts: how far one has come is known in memory, and its row is written once, at the end ---- */

struct evidence_at {
    struct evidence_at *next;
    unsigned backups; /* that it records: with fewer of them it begins anew */
    int64_t proved;   /* of these so many are done, */
    uint64_t after;   /* and of the next one the operations up to this number */
    char recorder[];
};

static struct evidence_at *at_of(struct decide *d, const struct operation *recorder)
{
    struct evidence_at *at = d->evidence;
    while (at && strcmp(at->recorder, recorder->id) != 0)
        at = at->next;
    if (at && at->backups == recorder->records.n)
        return at;
    if (!at) {
        at = calloc(1, sizeof *at + strlen(recorder->id) + 1);
        if (!at)
            return NULL;
        strcpy(at->recorder, recorder->id);
        at->next = d->evidence;
        d->evidence = at;
        at->proved = recorder->proved;
        at->after = recorder->proved_seq;
    } else {
        at->proved = 0;
        at->after = 0;
    }
    at->backups = recorder->records.n;
    return at;
}

static void at_forget(struct decide *d, const struct evidence_at *at)
{
    struct evidence_at **link = &d->evidence;
    while (*link != at)
        link = &(*link)->next;
    struct evidence_at *gone = *link;
    *link = gone->next;
    free(gone);
}

void evidence_forget(struct decide *d)
{
    while (d->evidence)
        at_forget(d, d->evidence);
}

struct evidence_part {
    struct decide *d;
    const struct operation *recorder;
    struct evidence_at *at;
    unsigned seen;
};

static int note_operation(const struct operation *op, void *arg)
{
    struct evidence_part *x = arg;
    x->at->after = op->seq;
    x->seen++;
    if (reported_snapshot(op)[0])
        note_answer(x->d, op, x->recorder);
    return x->d->plan.failed ? -1 : 0;
}

/* False: it could not be written, and begins anew. */
static bool part_noted(struct decide *d, const struct operation *recorder, struct evidence_at *at)
{
    struct evidence_part x = {.d = d, .recorder = recorder, .at = at};
    const struct operation_filter f = {.parent = recorder->records.v[at->proved], .after = at->after, .limit = PART};
    if (operation_each(d->records, &f, note_operation, &x, NULL) < 0) {
        d->plan.failed = true;
        return false;
    }
    if (x.seen < PART) {
        at->proved++;
        at->after = 0;
    }
    return true;
}

bool evidence_noted(struct decide *d, struct operation *recorder)
{
    const unsigned n = recorder->records.n;
    if (recorder->outcome != OUTCOME_COMPLETED || recorder->proved >= n)
        return true;
    struct evidence_at *at = at_of(d, recorder);
    if (!at) {
        d->plan.failed = true;
        return false;
    }
    const bool noted = part_noted(d, recorder, at);
    if (noted && at->proved < n) {
        decide_look_again(d, ROW_OPERATION, recorder->id);
        return false;
    }
    at_forget(d, at);
    if (noted) {
        recorder->proved = n; /* the caller writes the row */
        recorder->proved_seq = 0;
    }
    return noted;
}
