/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * record.c - the outcome of a backup is recorded in the repositories that have its data (AO-16, AO-18, AO-38)
 *
 * In Finalizing, when the outcome is decided, one admin operation for each repository writes it; one that has not begun
 * takes in other backups. The backup waits for its first try, and ends with that outcome whatever becomes of it: what
 * could not be written stays owed, in the row of the operation, which is retried until the repository has it. The same
 * mover checks the snapshots of the backup (evidence.c): if one is not what was backed up, the backup is decided and
 * recorded again; one that had ended by then keeps its outcome, and its record gets what was found.
 */
#include "base/cleanup.h"
#include "daemon/decide/decide.h"

#include <stdio.h>
#include <string.h>

#define BACKUPS_MAX 64     /* of one operation */
#define VOLUMES_MAX 8192   /* of these together */
#define LOOK_TIMEOUT_S 120 /* at native snapshots */

/* ---- native snapshots are looked at again ---- */

struct kept {
    json_t *classes, *aliases;
    struct strs names; /* of classes */
};
static int add_kept(const struct native_row *n, void *arg)
{
    struct kept *k = arg;
    if (n->state != NATIVE_PRESENT || driver_is_raw(n->driver))
        return 0;
    json_array_append_new(k->aliases, json_string(n->id));
    for (unsigned i = 0; i < k->names.n; i++)
        if (!strcmp(k->names.v[i], n->klass->name))
            return 0;
    strs_add(&k->names, n->klass->name);
    return json_array_append_new(k->classes, class_desc_to_json(n->klass));
}

bool backup_looked(struct decide *d, struct backup *b)
{
    const struct native_row_filter f = {.parent = b->id};
    CLEANUP_JSON json_t *classes = json_array(), *aliases = json_array();
    struct kept k = {.classes = classes, .aliases = aliases};
    const int rc = b->looked ? -1 : native_row_each(d->records, &f, add_kept, &k, NULL);
    strs_clear(&k.names);
    if (rc < 0 || !json_array_size(aliases)) {
        b->looked = true;
        return true;
    }
    plan_work(d, ROW_BACKUP, b->id, WORK_LOOK, json_pack("{s:O,s:O}", "classes", classes, "aliases", aliases),
              LOOK_TIMEOUT_S);
    return false;
}

static void note_missing(struct decide *d, const char *alias)
{
    CLEANUP(native_row_clear) struct native_row n;
    native_row_init(&n);
    if (native_row_read(d, alias, &n) < 0 || n.state != NATIVE_PRESENT)
        return;
    plan_log(d, LOG_LVL_WARNING, "native snapshot %s of %s is no longer found on the storage", alias, n.volume->name);
    native_row_become(d, &n, NATIVE_MISSING);
}

/* The answer has them in the order of the request. */
static const struct native_seen *found_of(const struct step_answer *answer, unsigned i, const char *alias)
{
    const struct native_seen *v = answer->natives.v;
    return i < answer->natives.n && !strcmp(v[i].alias, alias) ? &v[i] : NULL;
}

void backup_look_ended(struct decide *d, struct backup *b, const struct work_result *s)
{
    const struct strs *aliases = &s->asked.aliases;
    for (unsigned i = 0; i < aliases->n; i++) {
        const struct native_seen *found = s->err.cls ? NULL : found_of(&s->answer, i, aliases->v[i]);
        const enum seen_state state = found && found->state ? found->state : SEEN_UNKNOWN;
        const char *why = s->err.cls ? s->err.msg : found ? found->why : "its class could not be listed";
        if (backup_note_seen(b, aliases->v[i], state, why) < 0)
            d->plan.failed = true;
        if (state == SEEN_MISSING)
            note_missing(d, aliases->v[i]);
    }
    backup_seen_end(b);
    b->looked = true;
    backup_write(d, b);
}

/* ---- the operation ---- */

void backup_record_into(const struct operation *op, json_t *repositories)
{
    if (op->kind == KIND_BACKUP && op->policy->move_data && !op->policy->mover[0] && op->running_ns)
        json_object_set_new(repositories, op->policy->repository, json_string(""));
}

static int add_repository(const struct operation *op, void *arg)
{
    backup_record_into(op, arg);
    return 0;
}

/* One that fails by itself may do so because of what it has to record. */
static bool fails_by_itself(const struct operation *op)
{
    return op->state == OP_RETRYING && op->error.code != ERR_NO_REPO;
}

static bool recorder_has(const struct operation *op, const struct backup *b)
{
    for (unsigned i = 0; i < op->records.n; i++)
        if (!strcmp(op->records.v[i], b->id))
            return true;
    return false;
}

static bool recorder_extend(struct decide *d, const char *id, const struct backup *b)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    const struct operation *there = id[0] ? operation_peek(d->records, id) : NULL;
    if (!there || (there->state != OP_QUEUED && there->state != OP_RETRYING) || there->cancel || busy(d, id) ||
        has_mover(d, id) || fails_by_itself(there) || there->records.n >= BACKUPS_MAX ||
        there->size + b->volume_ids.n > VOLUMES_MAX || operation_read(d, id, &op) < 0)
        return false;
    if (recorder_has(&op, b))
        return true;
    strs_add(&op.records, b->id);
    op.size += b->volume_ids.n;
    return operation_write(d, &op) == 0;
}

/* `n`: which of the backup's repositories, from 0. */
static int recorder_add(struct decide *d, const char *repository, const struct backup *b, unsigned n, char id[512],
                        struct err *e)
{
    CLEANUP(operation_clear) struct operation there = ROW_INIT;
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    struct repo_health *h = repository_health(d, repository);
    if (h && recorder_extend(d, h->recorder_id, b)) {
        snprintf(id, 512, "%s", h->recorder_id);
        return 0;
    }
    operation_init(&op);
    str_setf(&op.id, n ? "record-%s.%u" : "record-%s", b->id, n);
    const bool again = operation_get(d->records, op.id, &there, NULL) == 0;
    /* It may have been taken out of that one (recorder_leave()), which goes on for others. */
    if (again && !op_state_terminal(there.state) && recorder_has(&there, b)) {
        snprintf(id, 512, "%s", op.id);
        return 0;
    }
    strs_add(&op.records, b->id);
    op.size = b->volume_ids.n;
    int rc = admin_add(d, KIND_ADMIN, again ? "record" : NULL, repository, &op, NULL, id, e);
    if (rc == 0 && h)
        snprintf(h->recorder_id, sizeof h->recorder_id, "%s", id);
    return rc;
}

bool backup_record(struct decide *d, struct backup *b, const json_t *into)
{
    const struct operation_filter f = {.parent = b->id};
    json_t *repositories = into ? json_copy((json_t *)(uintptr_t)into) : json_object();
    const char *name;
    void *next;
    json_t *v;
    unsigned n = 0;
    if (!into)
        operation_each(d->records, &f, add_repository, repositories, NULL);
    json_object_foreach_safe(repositories, next, name, v)
    {
        char id[512];
        struct err e = ERR_INIT;
        if (recorder_add(d, name, b, n++, id, &e) == 0) {
            json_object_set_new(repositories, name, json_string(id));
            continue;
        }
        plan_log(d, LOG_LVL_WARNING, "%s: its outcome is not recorded in repository \"%s\": %s", b->id, name, e.msg);
        json_object_del(repositories, name);
    }
    const bool any = json_object_size(repositories) > 0;
    json_take(&b->recorders, repositories);
    return any;
}

/* What one of them has found is not noted yet, and it would take in no other record. */
static bool notes_are_taken(struct decide *d, const struct backup *b)
{
    const char *name;
    json_t *id;
    json_object_foreach(b->recorders, name, id)
    {
        const struct operation *op = operation_peek(d->records, json_string_value(id));
        if (op && op->state == OP_CLEANING_UP)
            return true;
    }
    return false;
}

bool backup_record_again(struct decide *d, struct backup *b)
{
    if (!b->disproved || notes_are_taken(d, b))
        return false;
    b->disproved = false;
    if (!backup_state_terminal(b->state)) {
        b->outcome = OUTCOME_NONE;
        return true;
    }
    if (!b->deleting[0])
        backup_record(d, b, b->recorders);
    backup_write(d, b);
    return true;
}

bool backup_record_waits(struct decide *d, const struct backup *b)
{
    const char *name;
    json_t *id;
    json_object_foreach(b->recorders, name, id)
    {
        const struct operation *op = operation_peek(d->records, json_string_value(id));
        if (op && !op_state_terminal(op->state) && !op->tried)
            return true;
    }
    return false;
}

void backup_record_hurry(struct decide *d, const struct backup *b)
{
    const char *name;
    json_t *id;
    json_object_foreach(b->recorders, name, id) decide_look_at(d, ROW_OPERATION, json_string_value(id));
}

/* Takes the backup out of an operation that has not begun; what has none left is canceled. */
static void recorder_leave(struct decide *d, const char *id, const struct backup *b)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    struct strs left = {.v = NULL};
    if (!operation_peek(d->records, id) || operation_read(d, id, &op) < 0 || op_state_terminal(op.state))
        return;
    for (unsigned i = 0; i < op.records.n; i++)
        if (strcmp(op.records.v[i], b->id) != 0)
            strs_add(&left, op.records.v[i]);
    strs_clear(&op.records);
    op.records = left;
    if (op.records.n)
        operation_write(d, &op);
    else
        operation_ask_cancel(d, &op, "its backup is deleted");
}

void backup_record_drop(struct decide *d, struct backup *b)
{
    const char *name;
    json_t *id, *left = json_object();
    bool dropped = false;
    json_object_foreach(b->recorders, name, id)
    {
        const struct operation *op = operation_peek(d->records, json_string_value(id));
        const bool live = op && !op_state_terminal(op->state);
        if (live)
            recorder_leave(d, json_string_value(id), b);
        /* Still named: there may be a record of an earlier time. */
        json_object_set_new(left, name, live ? json_string("") : json_incref(id));
        dropped |= live;
    }
    if (dropped) {
        json_set(&b->recorders, left);
        backup_write(d, b);
    }
    json_decref(left);
}

bool backup_record_dropped(const struct backup *b)
{
    const char *name;
    json_t *id;
    json_object_foreach(b->recorders, name, id) if (!json_string_length(id)) return !b->rebuilt;
    return false;
}

bool backup_record_runs(struct decide *d, const struct backup *b)
{
    const char *name;
    json_t *id;
    json_object_foreach(b->recorders, name, id) if (has_mover(d, json_string_value(id))) return true;
    return false;
}
