/* SPDX-License-Identifier: GPL-2.0-or-later */
/* model-rules.h - what must hold once all has come to rest; include it behind model.h in one file */
#ifndef SNAPFERRY_TESTS_UNIT_MODEL_RULES_H
#define SNAPFERRY_TESTS_UNIT_MODEL_RULES_H

#include "daemon/decide/copies.h"
#include "daemon/decide/maintain.h"
#include "daemon/decide/verification.h"
#include "tests/unit/model.h"

static bool is_of_backup(const char *operation, const char *backup)
{
    const size_t n = strlen(backup);
    return !strncmp(operation, "up-", 3) && !strncmp(operation + 3, backup, n) && operation[3 + n] == '.';
}

/* ---- native snapshots ---- */

static int rest_native(const struct native_row *n, void *arg)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    const char *answer = jstr(m.answered, n->id);
    (void)arg;
    if (n->state == NATIVE_CREATING)
        violated("E-04: nothing leaks", "native snapshot %s is Creating and nobody creates it", n->id);
    if (n->state == NATIVE_REMOVING && !n->why_removed[0])
        violated("RS-16", "native snapshot %s is Removing and nobody knows why", n->id);
    if (!strcmp(answer, "gone"))
        violated("RS-26", "native snapshot %s was removed and is recorded as %s", n->id, native_state_name(n->state));
    if (!strcmp(answer, "error") && !n->remove_error.message[0])
        violated("RS-26", "the storage refused to remove native snapshot %s, and its record has no error", n->id);
    if (operation_get(m.records, n->operation, &op, NULL) < 0)
        return 0;
    if (strcmp(op.native, n->id) != 0) /* of an attempt that was given up */
        return n->failed ? 0 : (violated("RS-16", "native snapshot %s is no longer of %s", n->id, op.id), 0);
    const bool moved = op.state == OP_COMPLETED && op.policy->move_data;
    if (n->moved != moved || n->failed != (op.policy->move_data && !moved) || (n->moved_ns != 0) != moved)
        violated("RS-18", "native snapshot %s of %s, which is %s, is recorded as %smoved and %sfailed", n->id, op.id,
                 op_state_name(op.state), n->moved ? "" : "not ", n->failed ? "" : "not ");
    if (moved && strcmp(n->snapshot, op.result.snapshot) != 0)
        violated("RS-18", "native snapshot %s has snapshot %s, its operation %s", n->id, n->snapshot,
                 op.result.snapshot);
    return 0;
}

/* PVC-11: what is kept of a backup that failed is there, each intermediate once, and of each volume one. */
struct kept_rest {
    json_t *aliases, *volumes;
};
static int rest_kept(const struct native_row *n, void *arg)
{
    struct kept_rest *x = arg;
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    if (!n->kept.there)
        return 0;
    const bool known = operation_get(m.records, n->kept.operation, &op, NULL) == 0;
    if (n->kept.released)
        violated("PVC-11", "what was kept with native snapshot %s was released, and is not removed", n->id);
    if (!json_object_get(m.natives, n->id) || n->state != NATIVE_PRESENT)
        violated("PVC-11", "native snapshot %s is kept for inspection and is not there", n->id);
    if (!known)
        violated("PVC-11", "native snapshot %s is kept for %s, whose record was deleted", n->id, n->kept.operation);
    else if (op.state != OP_FAILED || strcmp(op.native, n->id) != 0)
        violated("PVC-11", "native snapshot %s is kept for %s, which is %s", n->id, op.id, op_state_name(op.state));
    if (json_object_get(x->volumes, n->volume_id))
        violated("PVC-11", "two native snapshots of volume %s are kept for inspection", n->volume_id);
    put(x->volumes, n->volume_id);
    if (n->kept.alias[0] && json_object_get(x->aliases, n->kept.alias))
        violated("PVC-11", "intermediate %s is kept twice", n->kept.alias);
    if (n->kept.alias[0])
        put(x->aliases, n->kept.alias);
    return 0;
}

static void rest_all_kept(void)
{
    CLEANUP_JSON json_t *aliases = json_object(), *volumes = json_object();
    struct kept_rest x = {aliases, volumes};
    const char *alias;
    json_t *v;
    native_row_each(m.records, NULL, rest_kept, &x, NULL);
    json_object_foreach(m.exposures, alias, v) if (!json_object_get(aliases, alias))
        violated("E-04: nothing leaks", "intermediate %s is left", alias);
}

/* ---- operations ---- */

/* CF-47: two native snapshots of a group are no further apart than one of their operations says, whichever attempt took
 * them. */
static int check_apart(const struct operation *other, void *arg)
{
    const struct operation *op = arg;
    const int64_t ns = llabs(op->snapshot_ns - other->snapshot_ns);
    const int64_t said = op->group_skew_ms > other->group_skew_ms ? op->group_skew_ms : other->group_skew_ms;
    if (other == op || strcmp(op->policy->group, other->policy->group) != 0 || is_none(other->native_doc) ||
        other->group_skew_ms < 0)
        return 0;
    if (ns / NS_PER_MS > said)
        violated("CF-47", "%s and %s are %lld ms apart, the skew that they have is %lld ms", op->id, other->id,
                 (long long)(ns / NS_PER_MS), (long long)said);
    return 0;
}

static void check_skew(const struct operation *op)
{
    const struct operation_filter f = {.parent = op->parent};
    const struct policy *p = op->policy;
    const bool done = op->state == OP_COMPLETED;
    if (!p->group[0] || op->retry_of[0] || is_none(op->native_doc))
        return;
    if (done && op->group_skew_ms < 0)
        violated("CF-47", "%s of a group is Completed and no skew was measured", op->id);
    if (done && p->group_strict && op->group_skew_ms > p->group_max_skew_ms)
        violated("CF-47", "%s is Completed with a skew of %lld ms", op->id, (long long)op->group_skew_ms);
    operation_each(m.records, &f, check_apart, (void *)(uintptr_t)op, NULL);
}

static int rest_operation(const struct operation *op, void *arg)
{
    const struct policy *p = op->policy;
    (void)arg;
    if (!json_object_get(m.ended, op->id))
        violated("AO-41", "%s is %s and never ended", op->id, op_state_name(op->state));
    if (op->kind != KIND_BACKUP && op->kind != KIND_RESTORE)
        return 0;
    const bool done = op->state == OP_COMPLETED;
    if (!done && op->state != OP_FAILED && op->state != OP_CANCELED)
        violated("AO-09", "%s ends as %s", op->id, op_state_name(op->state));
    if (op->state == OP_FAILED && !op->error.code)
        violated("AO-33", "%s failed and nobody knows why", op->id);
    const struct op_error *errors = op->attempts.v;
    for (unsigned i = 1; i < op->attempts.n; i++)
        if (errors[i].attempt <= errors[i - 1].attempt)
            violated("AO-33", "attempt %lld of %s is recorded twice", (long long)errors[i].attempt, op->id);
    if (op->verified_ns && json_object_get(m.liars, op->id))
        violated("RS-18", "the snapshot of %s counts as found, and its mover named another one", op->id);
    if (json_object_get(m.unprepared, op->id) && done)
        violated("PVC-25", "the prepare hook of %s failed and it is Completed", op->id);
    if (op->kind == KIND_BACKUP && p->hook_continue && !strcmp(op->error.stage, "prepare hook") &&
        op->reason != REASON_PREPARE_TIMEOUT)
        violated("PVC-25", "the prepare hook of %s failed, hook-on-error is continue, and it failed", op->id);
    if (json_object_get(m.late, op->id) && (done || (op->state == OP_FAILED && op->reason != REASON_PREPARE_TIMEOUT)))
        violated("PVC-20", "prepare-timeout of %s passed; it is %s%s", op->id, op_state_name(op->state),
                 op->reason == REASON_PREPARE_TIMEOUT ? "" : " for another reason");
    if (op->reason == REASON_PREPARE_TIMEOUT && (done || json_object_get(m.read, op->id)))
        violated("PVC-20", "%s is %s for its prepare-timeout%s", op->id, op_state_name(op->state),
                 done ? "" : ", and its mover had read");
    if (op->reason == REASON_PREPARE_TIMEOUT && !strstr(op->error.message, "prepare-timeout"))
        violated("PVC-11", "%s failed for its prepare-timeout, and its record says %s", op->id, op->error.message);
    if (op->kind != KIND_BACKUP)
        return 0;
    check_skew(op);
    if (done && p->move_data && !json_object_get(m.liars, op->id) && !json_object_get(m.snapshots, op->result.snapshot))
        violated("RS-23", "snapshot %s of %s is gone", op->result.snapshot, op->id);
    if (post_hook_wanted(op) && !op->post_hook_done)
        violated("CF-48", "the post-backup hook of %s has not run", op->id);
    return 0;
}

/* ---- backups ---- */

struct members_of {
    unsigned n, by[OP_STATES], errors, wants_expire, expires;
    int64_t total, incremental, uploaded;
    bool degraded, disproved; /* a snapshot was not found */
};
static int add_member(const struct operation *op, void *arg)
{
    struct members_of *x = arg;
    if (op->kind == KIND_ADMIN) {
        x->expires++;
        return 0;
    }
    x->n++;
    x->by[op->state]++;
    x->degraded |= op->degraded && !op->unverified[0];
    x->disproved |= op->unverified[0] != '\0';
    x->errors += op->state != OP_COMPLETED && op->error.code;
    x->total += result_bytes(op->result.total);
    x->incremental += result_bytes(op->result.incremental);
    x->uploaded += result_bytes(op->result.uploaded);
    x->wants_expire |= op->kind == KIND_BACKUP && op->state == OP_COMPLETED && op->policy->move_data &&
                       policy_keeps(&op->policy->keep);
    return 0;
}

static int rest_backup(const struct backup *b, void *arg)
{
    const struct operation_filter f = {.parent = b->id};
    struct members_of x = {.n = 0};
    enum backup_state want;
    (void)arg;
    operation_each(m.records, &f, add_member, &x, NULL);
    const unsigned good = x.by[OP_COMPLETED], canceled = x.by[OP_CANCELED], failed = x.by[OP_FAILED];
    if (!json_object_get(m.ended, b->id))
        violated("AO-41", "%s is %s and never ended", b->id, backup_state_name(b->state));
    if (good == x.n)
        want = x.degraded || b->degraded || x.disproved ? BACKUP_PARTIALLY_FAILED : BACKUP_COMPLETED;
    else if (good)
        want = BACKUP_PARTIALLY_FAILED;
    else
        want = canceled == x.n || b->cancel ? BACKUP_CANCELED : BACKUP_FAILED;
    if (b->cancel && want == BACKUP_CANCELED && b->state == BACKUP_FAILED && b->outcome == OUTCOME_FAILED)
        want = BACKUP_FAILED; /* it was decided when the request came */
    if (good == x.n && !x.degraded && !b->degraded && json_object_get(m.whole, b->id) && b->state == BACKUP_COMPLETED)
        want = BACKUP_COMPLETED; /* it had ended by then */
    if (b->state != want)
        violated("AO-12", "%s is %s: %u of %u operations are Completed, %u failed, %u were canceled", b->id,
                 backup_state_name(b->state), good, x.n, failed, canceled);
    if (b->counts.attempted != x.n || b->counts.completed != good || b->counts.failed != failed ||
        b->counts.canceled != canceled || b->counts.skipped)
        violated("AO-12", "the counts of %s are wrong", b->id);
    if (b->failed_volumes.n != failed + canceled || json_array_size(b->errors) != x.errors ||
        (b->error.code == ERR_NONE && x.errors))
        violated("AO-12", "%s names %u volumes and %zu errors; %u operations are not Completed, %u have an error",
                 b->id, b->failed_volumes.n, json_array_size(b->errors), failed + canceled, x.errors);
    if (b->bytes.total != x.total || b->bytes.incremental != x.incremental || b->bytes.uploaded != x.uploaded)
        violated("AO-12", "the bytes of %s are wrong", b->id);
    if (b->degraded_phase != (failed + canceled > 0))
        violated("AO-13", "%s is %s, and %u operations are not Completed", b->id,
                 b->degraded_phase ? "degraded" : "not degraded", failed + canceled);
    if (b->kind == KIND_BACKUP && !b->looked)
        violated("AO-38", "the native snapshots of %s were not looked at again", b->id);
    const char *repository;
    json_t *recorder;
    json_object_foreach(b->recorders, repository, recorder)
    {
        char key[BOARD_ID_MAX + 200];
        CLEANUP(operation_clear) struct operation by = ROW_INIT;
        const bool there = operation_get(m.records, json_string_value(recorder), &by, NULL) == 0;
        snprintf(key, sizeof key, "%s/%s", repository, b->id);
        const json_int_t outcome = json_integer_value(json_object_get(m.recorded, key));
        /* Decided again, and the operation that was to record that was canceled, or failed for good: the earlier record
         * stays, and describe says that the outcome is not recorded. */
        const bool given_up = there && (by.state == OP_CANCELED || by.state == OP_FAILED);
        if (outcome && outcome != (json_int_t)b->outcome && !given_up)
            violated("AO-16", "%s is %s and recorded as %s", b->id, backup_state_name(b->state),
                     outcome_name((enum outcome)outcome));
        if (!outcome && there && by.state == OP_COMPLETED)
            violated("AO-16", "%s is recorded by %s, and repository %s does not have it", b->id, by.id, repository);
    }
    if (b->kind == KIND_BACKUP && backup_state_of(b->outcome) != b->state)
        violated("AO-43", "%s is %s, decided was %s", b->id, backup_state_name(b->state), outcome_name(b->outcome));
    if (x.expires != x.wants_expire)
        violated("AO-11", "retention of %s was asked for %u times", b->id, x.expires);
    if (b->deleting[0])
        violated("RS-23", "%s is being deleted by %s, which has ended", b->id, b->deleting);
    if (!b->completed_ns || (b->kind == KIND_BACKUP && good && !b->started_ns))
        violated("AO-16", "%s has no time of its begin or end", b->id);
    return 0;
}

/* ---- deletions ---- */

static int any_operation(const struct operation *op, void *arg)
{
    violated("RS-23", "%s was deleted, %s is left", (const char *)arg, op->id);
    return 0;
}
static int any_native(const struct native_row *n, void *arg)
{
    violated("RS-23", "%s was deleted, native snapshot %s is in the records", (const char *)arg, n->id);
    return 0;
}

static int rest_delete(const struct operation *op, void *arg)
{
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    const char *key;
    json_t *x;
    (void)arg;
    if (op->kind != KIND_DELETE || op->state != OP_COMPLETED)
        return 0;
    const struct operation_filter operations = {.parent = op->deletes};
    const struct native_row_filter natives = {.parent = op->deletes};
    char id[BOARD_ID_MAX];
    snprintf(id, sizeof id, "%s", op->deletes);
    if (backup_get(m.records, id, &b, NULL) == 0)
        violated("RS-23", "%s was deleted and is still there", id);
    operation_each(m.records, &operations, any_operation, id, NULL);
    native_row_each(m.records, &natives, any_native, id, NULL);
    json_object_foreach(m.natives, key, x) if (is_of_backup(jstr(x, "operation"), id) &&
                                               !native_row_peek(m.records, key) && /* else of its retry */
                                               !json_object_get(m.forced, id) && !json_object_get(m.forced, key))
        violated("RS-23", "%s was deleted, its native snapshot %s is on the storage", id, key);
    json_object_foreach(m.snapshots, key, x) if (is_of_backup(jstr(x, "operation"), id) && !op->force)
        violated("RS-23", "%s was deleted, its snapshot %s is in the repository", id, key);
    else if (is_of_backup(jstr(x, "operation"), id) && json_object_get(m.refused, key) && !op->even_kept)
        violated("RS-23", "%s was forgotten, and the repository keeps its snapshot %s", id, key);
    return 0;
}

/* ---- volumes ---- */

struct good_of {
    const char *volume, *backup;
    bool any, this_one;
};
static int note_good(const struct operation *op, void *arg)
{
    struct good_of *x = arg;
    if (op->kind != KIND_BACKUP || op->state != OP_COMPLETED)
        return 0;
    x->any |= op->policy->move_data && !op->unverified[0];
    x->this_one |= !strcmp(op->parent, x->backup);
    return 0;
}

struct same_snapshot {
    const struct operation *op;
    bool other;
};
static int note_same_snapshot(const struct operation *op, void *arg)
{
    struct same_snapshot *x = arg;
    x->other |= strcmp(op->id, x->op->id) != 0 && !strcmp(op->result.snapshot, x->op->result.snapshot);
    return 0;
}

/* Once the outcome is recorded, what protects a volume was found by another process than its mover. */
static void rest_proven(const struct volume_row *v, const struct operation *op)
{
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    CLEANUP(operation_clear) struct operation by = ROW_INIT;
    struct same_snapshot x = {.op = op};
    if (strcmp(v->last_good_evidence, "mover") != 0 || strcmp(v->last_good_backup, op->parent) != 0 ||
        backup_get(m.records, op->parent, &b, NULL) < 0 ||
        operation_get(m.records, jstr(b.recorders, op->policy->repository), &by, NULL) < 0 || by.state != OP_COMPLETED)
        return;
    operation_each(m.records, NULL, note_same_snapshot, &x, NULL);
    /* One whose mover has lied may name another's snapshot: then it may not have been asked about. */
    if (!x.other && !json_object_get(m.liars, op->id))
        violated("RS-18", "volume %s is protected by %s, which only its mover has seen", v->id, op->id);
}

static int rest_volume(const struct volume_row *v, void *arg)
{
    const json_t *last = json_object_get(m.last_ended, v->id), *good = json_object_get(m.last_completed, v->id);
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    struct good_of x = {.volume = v->id, .backup = v->last_good_backup};
    const struct operation_filter f = {.volume_id = v->id};
    (void)arg;
    operation_each(m.records, &f, note_good, &x, NULL);
    if (v->last_status != (enum outcome)jint(last, "outcome"))
        violated("AO-16", "volume %s: its last backup was %s, recorded is %s", v->id,
                 outcome_name((enum outcome)jint(last, "outcome")), outcome_name(v->last_status));
    const bool there = last && backup_get(m.records, jstr(last, "backup"), &b, NULL) == 0;
    if (strcmp(v->last_backup, there ? jstr(last, "backup") : "") != 0)
        violated("AO-16", "volume %s: its last backup is %s, recorded is \"%s\"", v->id,
                 there ? jstr(last, "backup") : "none", v->last_backup);
    if (v->last_good_backup[0] && !x.this_one)
        violated("AO-16", "volume %s: its last good backup %s does not exist", v->id, v->last_good_backup);
    if (!v->last_good_backup[0] && x.any)
        violated("AO-16", "volume %s has a good backup and its record names none", v->id);
    const bool known =
        good && jbool(good, "moved") && operation_get(m.records, jstr(good, "operation"), &op, NULL) == 0;
    if (known && !op.unverified[0])
        rest_proven(v, &op);
    if (known && !op.unverified[0] && strcmp(v->last_good_backup, op.parent) != 0)
        violated("AO-16", "volume %s: its last good backup is %s, recorded is \"%s\"", v->id, op.parent,
                 v->last_good_backup);
    return 0;
}

/* ---- counters ---- */

/* ---- maintenance ---- */

struct maintained {
    unsigned ended;
    char last[2][BOARD_ID_MAX]; /* quick, full; of repository main */
    enum outcome outcome[2];
};
static int rest_maintained(const struct operation *op, void *arg)
{
    struct maintained *x = arg;
    if (op->kind != KIND_MAINTAIN || op->maintain.dry_run)
        return 0;
    x->ended++;
    snprintf(x->last[op->maintain.full], sizeof x->last[0], "%s", op->id);
    x->outcome[op->maintain.full] = op->outcome;
    if (op->state == OP_SKIPPED && !op->skip_reason[0])
        violated("CF-41", "%s was refused and nobody knows why", op->id);
    return 0;
}

static int add_maintained(const char *name, const json_t *labels, double value, void *arg)
{
    (void)labels;
    if (!strcmp(name, "maintenance_total"))
        *(double *)arg += value;
    return 0;
}

/* What is known of a repository is what its last runs have said, and each was counted once (CF-37). */
static void rest_maintenance(void)
{
    struct maintained x = {.ended = 0};
    double counted = 0;
    operation_each(m.records, NULL, rest_maintained, &x, NULL);
    records_counters(m.records, add_maintained, &counted, NULL);
    const struct maintain_memory *k = maintain_known(m.records, "main");
    if (counted != x.ended)
        violated("exactly once", "%g runs of maintenance were counted, %u ended", counted, x.ended);
    for (unsigned full = 0; full < 2; full++) {
        const struct maintain_cycle *c = !k ? NULL : full ? &k->full : &k->quick;
        if (x.last[full][0] && (!c || strcmp(c->operation, x.last[full]) != 0 || c->outcome != x.outcome[full]))
            violated("CF-37", "the last %s maintenance is %s, %s is remembered", full ? "full" : "quick", x.last[full],
                     c ? c->operation : "nothing");
    }
}

/* ---- verification ---- */

struct last_verified {
    uint64_t seq;
    char id[BOARD_ID_MAX];
    enum outcome outcome;
};
static int rest_verified(const struct operation *op, void *arg)
{
    struct last_verified *x = arg;
    if (op->kind != KIND_VERIFY || op->read_from_ppm < 0 || op->seq < x->seq)
        return 0;
    x->seq = op->seq;
    x->outcome = op->outcome;
    snprintf(x->id, sizeof x->id, "%s", op->id);
    return 0;
}

/* What is known of a repository is what its last verification by schedule, one at a time, has said (E-12). */
static void rest_verification(void)
{
    struct last_verified x = {.id = ""};
    operation_each(m.records, NULL, rest_verified, &x, NULL);
    const struct verify_memory *k = verification_known(m.records, "main");
    if (x.id[0] && (!k || strcmp(k->operation, x.id) != 0 || k->outcome != x.outcome))
        violated("E-12", "the last verification by schedule is %s, %s is remembered", x.id,
                 k ? k->operation : "nothing");
    if (k && (k->from_ppm < 0 || k->from_ppm >= VERIFY_SHARES || (k->from_ppm && !k->round_ns)))
        violated("E-12", "the next share begins at %lld, in no round", (long long)k->from_ppm);
}

/* ---- copies ---- */

struct copied {
    unsigned ended;
    uint64_t seq, good_seq;
    char id[BOARD_ID_MAX];
    enum outcome outcome;
    int64_t good_ns;
};
static int rest_copied(const struct operation *op, void *arg)
{
    struct copied *x = arg;
    if (op->kind != KIND_COPY)
        return 0;
    x->ended++;
    if (op->outcome == OUTCOME_COMPLETED && op->seq > x->good_seq) {
        x->good_seq = op->seq;
        x->good_ns = op->completed_ns;
    }
    if (op->seq < x->seq)
        return 0;
    x->seq = op->seq;
    x->outcome = op->outcome;
    snprintf(x->id, sizeof x->id, "%s", op->id);
    return 0;
}

static int add_copied(const char *name, const json_t *labels, double value, void *arg)
{
    (void)labels;
    if (!strcmp(name, "copies_total"))
        *(double *)arg += value;
    return 0;
}

/* What is known of a copy is what its last run has said, one at a time, and each was counted once. A good one is not
 * forgotten by one that failed. */
static void rest_copies(void)
{
    struct copied x = {.ended = 0};
    double counted = 0;
    operation_each(m.records, NULL, rest_copied, &x, NULL);
    records_counters(m.records, add_copied, &counted, NULL);
    const struct copy_memory *k = copy_known(m.records, "offsite");
    if (counted != x.ended)
        violated("exactly once", "%g copies were counted, %u ended", counted, x.ended);
    if (x.id[0] && (!k || strcmp(k->operation, x.id) != 0 || k->outcome != x.outcome || k->good_ns != x.good_ns))
        violated("copies", "the last copy is %s, %s is remembered", x.id, k ? k->operation : "nothing");
}

struct sums {
    double operations, backups;
};
static int add_counter(const char *name, const json_t *labels, double value, void *arg)
{
    struct sums *x = arg;
    (void)labels;
    if (!strcmp(name, "operations_total"))
        x->operations += value;
    else if (!strcmp(name, "backups_total"))
        x->backups += value;
    return 0;
}

static void rest_counters(void)
{
    struct sums x = {0, 0};
    unsigned operations = 0, backups = 0;
    const char *id;
    json_t *v;
    records_counters(m.records, add_counter, &x, NULL);
    json_object_foreach(m.ended, id, v) * (json_integer_value(v) == ROW_BACKUP ? &backups : &operations) += 1;
    if (x.operations != operations || x.backups != backups)
        violated("exactly once", "%g operations and %g backups were counted, %u and %u ended", x.operations, x.backups,
                 operations, backups);
}

static void rules_at_rest(void)
{
    native_row_each(m.records, NULL, rest_native, NULL, NULL);
    rest_all_kept();
    operation_each(m.records, NULL, rest_operation, NULL, NULL);
    operation_each(m.records, NULL, rest_delete, NULL, NULL);
    backup_each(m.records, NULL, rest_backup, NULL, NULL);
    volume_row_each(m.records, NULL, rest_volume, NULL, NULL);
    rest_counters();
    rest_maintenance();
    rest_verification();
    rest_copies();
}

#endif
