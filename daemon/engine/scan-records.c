/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * scan-records.c - the outcomes that a repository has are taken over (AO-16 to AO-18)
 *
 * Anybody who can write the repository can write records. One is taken for what it claims only about backups that the
 * records do not know, with ids that are made from its own; what is malformed is counted. Whether a snapshot that it
 * names is there is found out by the scan of the snapshots.
 */
#include "base/time.h"
#include "daemon/engine/scan-impl.h"
#include "daemon/records/opaque.h"
#include "daemon/records/outcome-record.h"
#include "daemon/records/scanned.h"

#include <string.h>

#define INTERRUPTED "scan" /* stage of the error of a backup that was */

static int64_t time_of(const char *text)
{
    int64_t ns;
    return text[0] && time_parse(&ns, text) == 0 && ns > 0 ? ns : 0;
}

/* ---- volumes ---- */

static void volume_ended(struct volume_row *v, const void *arg)
{
    const struct operation *op = arg;
    if (!v->source[0])
        str_set(&v->source, op->result.as);
    if (op->completed_ns <= v->last_end_ns)
        return;
    v->last_status = op->outcome;
    if (op->outcome != OUTCOME_CANCELED && op->outcome != OUTCOME_SKIPPED)
        v->last_verdict = op->outcome;
    v->last_end_ns = op->completed_ns;
    str_set(&v->last_backup, op->parent);
    if (op->outcome != OUTCOME_COMPLETED)
        op_error_copy(&v->last_error, &op->error);
}

void scan_note_volume(struct scan *s, const struct operation *op)
{
    struct engine *g = s->engine;
    CLEANUP(volume_row_clear) struct volume_row v;
    struct err e = ERR_INIT;
    volume_row_init(&v);
    if (s->foreign || !op->volume_id[0])
        return;
    /* What is known of a volume by other means is newer than what a repository says of it. */
    if (volume_row_read(&g->d, op->volume_id, &v) < 0) {
        volume_note(&g->d, op->volume, op->own->name, volume_ended, op);
    } else {
        volume_ended(&v, op);
        if (volume_row_save(g->records, &v, &e) < 0)
            plan_log(&g->d, LOG_LVL_WARNING, "volume %s: %s", v.volume->name, e.msg);
    }
}

/* ---- rows ---- */

/* In this repository, or in another one that the record names. */
static void place_of(const struct scan *s, const struct backup_record *r, const struct record_volume *v,
                     struct operation *op)
{
    const char *name = v->movement.repository;
    struct policy policy;
    policy_init(&policy);
    policy.move_data = name[0] != '\0';
    if (name[0] && !strcmp(name, r->repository))
        str_set(&policy.repository, s->repository);
    else if (s->foreign)
        op->lost = name[0] != '\0'; /* by a name that is only that node's */
    else
        str_set(&policy.repository, name);
    policy_take(&op->policy, policy_make(&policy));
}

static void operation_of(const struct scan *s, const struct backup_record *r, const struct record_volume *v,
                         struct operation *op)
{
    struct class_desc own;
    struct volume_desc desc;
    operation_init(op);
    str_setf(&op->id, "up-%s.%s", r->backup, v->id);
    str_set(&op->parent, r->backup);
    str_set(&op->volume_id, v->id);
    op->outcome = v->outcome;
    op->state = op_state_of(v->outcome);
    op->kind = KIND_BACKUP;
    op->rebuilt = true;
    op->degraded = v->degraded;
    str_set(&op->job, r->job);
    op->started_ns = time_of(v->started);
    op->snapshot_ns = time_of(v->snapshot_at);
    op->completed_ns = scan_past(s, time_of(v->ended[0] ? v->ended : r->ended));
    if (op->state == OP_SKIPPED)
        str_set(&op->skip_reason, v->skipped_reason);
    if (v->natives.n && !s->foreign)
        str_set(&op->native, ((const struct record_native *)v->natives.v)->alias);
    if (v->failure[0]) {
        struct err e = ERR_INIT;
        err_set(&e, ERR_FAILED_OP, 0, "%s", v->failure);
        op_error_set(&op->error, v->stage, &e, op->completed_ns, 0);
    }
    if (v->moved) {
        op->result.there = true;
        str_set(&op->result.snapshot, v->movement.snapshot);
        str_set(&op->result.as, v->path);
        op->result.total = v->movement.size;
        op->result.incremental = v->movement.incremental;
    }
    place_of(s, r, v, op);
    class_desc_init(&own);
    str_set(&own.name, v->klass);
    str_set(&own.driver, v->driver);
    str_set(&own.node, s->foreign ? s->node : "");
    class_desc_take(&op->own, class_desc_make(&own));
    volume_desc_init(&desc);
    str_set(&desc.id, v->id);
    str_set(&desc.name, v->name[0] ? v->name : v->id);
    desc.size = v->size;
    volume_desc_take(&op->volume, volume_desc_make(&desc));
}

/* False: the records have it, or it could not be added. */
static bool operation_added(struct scan *s, struct operation *op)
{
    struct engine *g = s->engine;
    CLEANUP(operation_clear) struct operation there = ROW_INIT;
    struct err e = ERR_INIT;
    if (operation_get(g->records, op->id, &there, NULL) == 0)
        return false;
    if (s->total.added + s->page.added >= SNAPSHOTS_MAX) {
        s->page.passed++;
        return false;
    }
    if (operation_add(g->records, op, &e) < 0) {
        plan_log(&g->d, LOG_LVL_WARNING, "%s: %s", op->id, e.msg);
        return false;
    }
    scan_note_volume(s, op);
    if (!s->foreign && op->state == OP_COMPLETED && !op->policy->move_data)
        volume_backup_found(&g->d, op->volume_id); /* if its native snapshot was found on the storage */
    s->page.added++;
    return true;
}

/* Whether it may be taken over: not what this daemon made, or has in another way, or is another node's. */
static bool backup_is_open(struct scan *s, const char *id, struct backup *b, bool *there)
{
    *there = backup_get(s->engine->records, id, b, NULL) == 0;
    return !*there || (b->rebuilt && backup_state_terminal(b->state) && !b->deleting[0] &&
                       !strcmp(b->node, s->foreign ? s->node : ""));
}

static void backup_of(struct scan *s, const struct backup_record *r, struct backup *b)
{
    str_set(&b->id, r->backup);
    b->kind = KIND_BACKUP;
    b->origin = r->reason;
    b->rebuilt = true;
    b->unproven = false;
    str_set(&b->job, r->job);
    str_set(&b->description, r->description);
    str_set(&b->node, s->foreign ? s->node : "");
    b->started_ns = time_of(r->started);
    b->snapshots_done_ns = time_of(r->snapshots_done);
    json_take(&b->recorders, json_pack("{s:s}", s->repository, ""));
}

/* `unproven`: it was in the records, without its outcome. */
static void backup_put(struct scan *s, struct backup *b, bool there, bool unproven)
{
    struct records *r = s->engine->records;
    struct err e = ERR_INIT;
    CLEANUP(backup_clear) struct backup old = ROW_INIT;
    int rc = there ? backup_get(r, b->id, &old, &e) : 0;
    /* No row changes its end: what was rebuilt without its outcome is rebuilt anew. */
    const bool anew = there && old.state != b->state;
    if (rc >= 0 && anew)
        rc = backup_delete(r, b->id, &e);
    if (rc >= 0)
        rc = there && !anew ? backup_save(r, b, &e) : backup_add(r, b, &e);
    if (rc < 0)
        plan_log(&s->engine->d, LOG_LVL_WARNING, "%s: %s", b->id, e.msg);
    else
        s->page.records += !there || unproven || anew; /* of its parts the first one */
}

static bool has_text(const struct strs *list, const char *text)
{
    for (unsigned i = 0; i < list->n; i++)
        if (!strcmp(list->v[i], text))
            return true;
    return false;
}

static void add_skipped(struct backup *b, const struct record_volume *v)
{
    for (size_t i = 0; i < json_array_size(b->skipped); i++)
        if (!strcmp(skipped_at(b->skipped, i).volume, v->name))
            return;
    json_t *skipped = b->skipped ? json_copy(b->skipped) : json_array();
    json_array_append_new(skipped, json_pack("{s:s,s:s}", "volume", v->name, "reason", v->skipped_reason));
    json_take(&b->skipped, skipped);
}

/* Parts come in any order, and a scan may be repeated: what the backup has already changes nothing. */
static void add_volume(struct scan *s, const struct backup_record *r, const struct record_volume *v, struct backup *b)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    if (!v->movement.operation[0]) {
        add_skipped(b, v);
        return;
    }
    if (has_text(&b->volume_ids, v->id))
        return;
    operation_of(s, r, v, &op);
    operation_added(s, &op);
    strs_add(&b->volume_ids, v->id);
    b->bytes.total += v->movement.size;
    b->bytes.incremental += v->movement.incremental > 0 ? v->movement.incremental : 0;
    if (v->outcome != OUTCOME_COMPLETED && v->outcome != OUTCOME_SKIPPED)
        strs_add(&b->failed_volumes, op.volume->name);
}

static void take_final(struct scan *s, const struct backup_record *r)
{
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    bool there;
    if (!backup_is_open(s, r->backup, &b, &there))
        return;
    if (!there)
        backup_init(&b);
    const bool unproven = b.unproven;
    backup_of(s, r, &b);
    b.state = backup_state_of(r->outcome);
    b.outcome = r->outcome;
    b.completed_ns = scan_past(s, time_of(r->ended));
    b.counts = r->counts;
    b.counts.unknown = NULL;
    if (r->failure[0]) {
        struct err e = ERR_INIT;
        err_set(&e, ERR_FAILED_OP, 0, "%s", r->failure);
        op_error_set(&b.error, "backup", &e, b.completed_ns, 0);
    }
    for (unsigned i = 0; i < r->volumes.n; i++)
        add_volume(s, r, (const struct record_volume *)r->volumes.v + i, &b);
    backup_put(s, &b, there, unproven);
}

/*
 * Of this node's name, by another machine, and since this daemon knows the repository: either a second machine has the
 * name by mistake, or the records are an old copy. What an earlier installation of this node left is older, and its
 * own.
 */
static bool of_another_machine(const struct scan *s, const struct backup_record *r, int64_t modified_ns)
{
    const int64_t ttl_ns = cfg_daemon(s->engine->cfg)->provisional_ttl_s * NS_PER_S;
    return !s->foreign && strcmp(r->machine, record_machine()) != 0 && s->recorded_ns && modified_ns > s->recorded_ns &&
           modified_ns > s->began_ns - ttl_ns;
}

void scan_record(struct scan *s, const json_t *record)
{
    struct backup_record r;
    const bool right = backup_record_from_json(&r, record, s->node);
    const bool elsewhere = right && of_another_machine(s, &r, scanned_record_modified_ns(record));
    s->page.elsewhere += elsewhere && r.part == 0;
    if (!right)
        s->page.malformed++;
    else if (elsewhere && r.state != RECORD_STATE_FINAL)
        ; /* it may be running there: interrupted only after provisional-ttl */
    else if (r.state == RECORD_STATE_FINAL)
        take_final(s, &r);
    else if (!s->foreign && json_array_size(s->provisional) < PROVISIONAL_PARTS)
        json_array_append(s->provisional, (json_t *)(uintptr_t)record);
    backup_record_clear(&r);
}

/* ---- without the outcome ---- */

int scan_add_backup(struct scan *s, const char *id, const char *job, int64_t end_ns, struct err *e)
{
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    if (backup_get(s->engine->records, id, &b, NULL) == 0)
        return 0;
    backup_init(&b);
    str_set(&b.id, id);
    b.state = BACKUP_COMPLETED;
    b.kind = KIND_BACKUP;
    str_set(&b.job, job);
    str_set(&b.node, s->foreign ? s->node : "");
    b.rebuilt = true;
    b.unproven = true; /* until its record is found */
    b.completed_ns = end_ns;
    return backup_add(s->engine->records, &b, e);
}

/* What has no snapshot was not moved, as far as anybody will know. */
static void interrupted_volume(struct scan *s, const struct backup_record *r, struct record_volume *v, struct backup *b)
{
    CLEANUP(operation_clear) struct operation there = ROW_INIT;
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    char id[BOARD_ID_MAX];
    if (!v->id[0] || has_text(&b->volume_ids, v->id))
        return;
    snprintf(id, sizeof id, "up-%s.%s", r->backup, v->id);
    strs_add(&b->volume_ids, v->id);
    b->counts.attempted++;
    if (operation_get(s->engine->records, id, &there, NULL) == 0) {
        b->counts.completed += there.state == OP_COMPLETED;
        b->counts.failed += there.state != OP_COMPLETED;
        return;
    }
    if (v->outcome == OUTCOME_NONE || v->moved) {
        v->outcome = OUTCOME_FAILED;
        v->moved = false;
        str_set(&v->stage, INTERRUPTED);
        str_set(&v->failure, "interrupted: the repository has no snapshot of it, and the records of the node were lost "
                             "before the backup ended");
    }
    operation_of(s, r, v, &op);
    operation_added(s, &op);
    if (v->outcome == OUTCOME_SKIPPED)
        b->counts.skipped++;
    else if (v->outcome == OUTCOME_CANCELED)
        b->counts.canceled++;
    else
        b->counts.failed++;
    if (v->outcome != OUTCOME_SKIPPED)
        strs_add(&b->failed_volumes, op.volume->name);
}

static void take_interrupted(struct scan *s, struct backup_record *r)
{
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    struct err e = ERR_INIT;
    bool there;
    if (!backup_is_open(s, r->backup, &b, &there))
        return;
    if (!there)
        backup_init(&b);
    if (there && !b.unproven && strcmp(b.error.stage, INTERRUPTED) != 0)
        return; /* its final record was found as well */
    const bool unproven = b.unproven;
    backup_of(s, r, &b);
    for (unsigned i = 0; i < r->volumes.n; i++)
        interrupted_volume(s, r, (struct record_volume *)r->volumes.v + i, &b);
    b.outcome = b.counts.completed ? OUTCOME_PARTIALLY_FAILED : OUTCOME_FAILED;
    b.state = backup_state_of(b.outcome);
    b.degraded = true;
    if (!b.completed_ns)
        b.completed_ns = b.started_ns;
    err_set(&e, ERR_INTERRUPTED, 0, "interrupted: the records of the node were lost before the backup ended");
    err_hint(&e, "its Completed volumes can be restored; the others have no snapshot of it");
    op_error_set(&b.error, INTERRUPTED, &e, b.completed_ns, 0);
    backup_put(s, &b, there, unproven);
}

void scan_interrupted(struct scan *s)
{
    const json_t *v;
    size_t i;
    json_array_foreach(s->provisional, i, v)
    {
        struct backup_record r;
        if (backup_record_from_json(&r, v, s->node))
            take_interrupted(s, &r);
        backup_record_clear(&r);
    }
}
