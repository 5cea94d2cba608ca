/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * delete.c - a backup goes, with everything it owns: native snapshots, repository snapshots, records (RS-23,
 * AO-49)
 *
 * It is an operation of its own (kind "delete"), gone on with after a crash and retried for as long as something
 * refuses; the backup shows as Deleting with the reason. Its records go last, so that nothing is half-forgotten.
 *
 * Crash points: engine-delete-submitted, engine-delete-natives, engine-delete-snapshots.
 */
#include "base/cleanup.h"
#include "base/time.h"
#include "base/units.h"
#include "daemon/decide/decide.h"

#include <errno.h>
#include <string.h>

struct owned {
    struct decide *decide;
    const char *backup;
    bool only_backups;
    json_t *natives, *plugins, *operations;
    json_t *snapshots; /* repository -> [{snapshot id: the operation that wrote it, null: known}], see add_claim() */
    json_t *volumes;   /* names by snapshot id */
    json_t *volume_ids;
    char held[64], restore[512];
    struct native_row inspected; /* the first one that is kept for inspection */
    unsigned n_inspected;
    struct strs kept; /* native snapshots of another backup, which tried it again: what is kept with them is of this */
};

static int own_inspected(struct owned *o, const struct native_row *n)
{
    const bool first = n->kept.there && !n->kept.released && !o->n_inspected++;
    return first && native_row_copy(&o->inspected, n) < 0 ? -ENOMEM : 0;
}

static int own_native(const struct native_row *n, void *arg)
{
    struct owned *o = arg;
    if (n->hold.held)
        snprintf(o->held, sizeof o->held, "%s", n->id);
    if (own_inspected(o, n) < 0)
        return -ENOMEM;
    return json_array_append_new(o->natives, native_removal(n));
}

/* The native snapshot is that of a retry since, what was kept of the failure is not. */
static int own_kept(struct owned *o, const struct operation *op)
{
    const struct native_row *n = kept_of(o->decide->records, op);
    if (!n || !strcmp(n->parent, o->backup))
        return 0;
    return strs_add(&o->kept, n->id) < 0 ? -ENOMEM : own_inspected(o, n);
}

static json_t *claims_of(struct owned *o, const char *repository)
{
    if (!json_object_get(o->snapshots, repository))
        json_object_set_new(o->snapshots, repository, json_pack("[{}]"));
    return json_object_get(o->snapshots, repository);
}

/* An id is its mover's word, for which the repository is asked who wrote it; a record that was made from the
 * repository is the repository's. Where two operations name the same snapshot one of their movers was wrong: each claim
 * is judged by itself then, or the wrong one would keep a snapshot that the other one wrote. */
static void add_claim(struct owned *o, const struct operation *op, const char *id)
{
    json_t *claims = claims_of(o, op->policy->repository), *c;
    json_t *writer = op->rebuilt ? json_null() : json_string(op->id);
    size_t i;
    json_array_foreach(claims, i, c) if (!json_object_get(c, id))
    {
        json_object_set_new(c, id, writer);
        return;
    }
    json_array_append_new(claims, json_pack("{s:o}", id, writer));
}

static int own_operation(const struct operation *op, void *arg)
{
    struct owned *o = arg;
    const char *id = op->result.snapshot;
    json_array_append_new(o->operations, json_string(op->id));
    if (op->kind != KIND_BACKUP)
        return 0;
    json_array_append_new(o->volume_ids, json_string(op->volume_id));
    if (own_kept(o, op) < 0)
        return -ENOMEM;
    if (op->policy->mover[0] && (op->state == OP_SKIPPED || op->lost || op->result.skip[0]))
        return 0; /* the plugin stores nothing of it */
    if (op->policy->mover[0] && op->result.there)
        json_array_append_new(o->plugins, json_string(op->id));
    else if (id[0]) {
        add_claim(o, op, id);
        json_object_set_new(o->volumes, id, json_string(op->volume->name));
    }
    return 0;
}

static int reads_it(const struct operation *op, void *arg)
{
    struct owned *o = arg;
    const json_t *v;
    size_t i;
    if (op->kind != KIND_RESTORE)
        return 0;
    json_array_foreach(o->operations, i, v) if (!strcmp(json_string_value(v), op->of))
        snprintf(o->restore, sizeof o->restore, "%s", op->id);
    return 0;
}

static int owned_look(struct decide *d, const char *backup, struct owned *o, struct err *e)
{
    struct native_row_filter natives = {.parent = backup};
    struct operation_filter f = {.parent = backup}, live = {.live = true};
    *o = (struct owned){.decide = d,
                        .backup = backup,
                        .natives = json_array(),
                        .snapshots = json_object(),
                        .plugins = json_array(),
                        .operations = json_array(),
                        .volumes = json_object(),
                        .volume_ids = json_array(),
                        .inspected = ROW_INIT};
    int rc = native_row_each(d->records, &natives, own_native, o, e);
    if (rc == 0)
        rc = operation_each(d->records, &f, own_operation, o, e);
    if (rc == 0)
        rc = operation_each(d->records, &live, reads_it, o, e);
    return rc;
}

/* Where no snapshot of it is left, or never was, there is a record of its outcome. */
static void add_recorded(struct owned *o, const struct backup *b)
{
    const char *repository;
    json_t *v;
    json_object_foreach(b->recorders, repository, v) claims_of(o, repository);
}

static void owned_clear(struct owned *o)
{
    json_decref(o->natives);
    json_decref(o->snapshots);
    json_decref(o->plugins);
    json_decref(o->operations);
    json_decref(o->volumes);
    json_decref(o->volume_ids);
    native_row_clear(&o->inspected);
    strs_clear(&o->kept);
}

/* What the repositories no longer have protects nothing, whatever of the backup is still to be removed. */
static int tell_volumes(struct decide *d, const struct owned *o, struct err *e)
{
    const json_t *v;
    size_t i;
    int rc = 0;
    json_array_foreach(o->volume_ids, i, v) if (rc == 0) rc =
        volume_backup_lost(d, json_string_value(v), o->backup, "was deleted", e);
    return rc;
}

static void wait_for(struct decide *d, struct operation *op, const char *why)
{
    op->wake_ns = decide_now(d) + 2 * NS_PER_S;
    if (strcmp(op->waiting, why)) {
        str_set(&op->waiting, why);
        plan_log(d, LOG_LVL_INFO, "%s: %s", operation_label(op), why);
    }
    operation_write(d, op);
}

/* Something could not be deleted and is tried again: a problem of status until all of it is (status.c). */
static void retry_in(struct decide *d, struct operation *op, const struct op_error *error, int64_t seconds)
{
    op_error_copy(&op->error, error);
    if (strcmp(op->waiting, error->message)) {
        str_set(&op->waiting, error->message);
        plan_log(d, LOG_LVL_WARNING, "%s: %s", operation_label(op), error->message);
    }
    op->wake_ns = decide_now(d) + seconds * NS_PER_S;
}
static void retry_error(struct decide *d, struct operation *op, const struct err *e, int64_t seconds)
{
    struct op_error error = OP_ERROR_INIT;
    if (op_error_set(&error, "delete", e, decide_now(d), op->attempt) == 0)
        retry_in(d, op, &error, seconds);
    op_error_clear(&error);
}

/* What is not ours to remove is forgotten with --force; false: it stays, or there is none. */
static bool forget_foreign(struct decide *d, const struct operation *op, const struct step_item *item)
{
    CLEANUP(native_row_clear) struct native_row n = ROW_INIT;
    if (!op->force || native_row_read(d, item->alias, &n) < 0 || !native_is_foreign(&n))
        return false;
    native_forget(d, &n, "forgotten");
    plan_log(d, LOG_LVL_WARNING, "%s: native snapshot %s is forgotten, not removed: %s", operation_label(op),
             item->alias, item->error.message);
    return true;
}

static void natives_done(struct decide *d, struct operation *op, const struct work_result *s)
{
    const struct step_item *item = s->answer.items.v;
    const struct op_error *why = NULL;
    if (!s->err.cls)
        natives_removed(d, &s->answer);
    for (unsigned i = 0; !s->err.cls && i < s->answer.items.n; i++)
        if (item[i].error.code && !forget_foreign(d, op, &item[i]) && !why)
            why = &item[i].error;
    if (s->err.cls)
        retry_error(d, op, &s->err, 5);
    else if (why)
        retry_in(d, op, why, 30);
    operation_write(d, op);
    plan_crash_point(d, "engine-delete-natives");
}

static void plugin_done(struct decide *d, struct operation *op, const struct work_result *s)
{
    if (s->err.cls)
        retry_error(d, op, &s->err, 60);
    else
        op->plugins_done = op->plugins_done + 1;
    operation_write(d, op);
}

/* What a mover plugin stored is deleted by the plugin; one that cannot is told about, not assumed (decisions: plugins).
 */
static bool delete_plugins(struct decide *d, struct operation *op, const struct owned *o)
{
    const json_t *id = json_array_get(o->plugins, (size_t)op->plugins_done);
    CLEANUP(operation_clear) struct operation of;
    operation_init(&of);
    if (!id || operation_read(d, json_string_value(id), &of) < 0)
        return true;
    const char *plugin = of.policy->mover + strlen("plugin:");
    if (!cfg_plugin(d->world.cfg, plugin)) {
        if (op->force)
            return true;
        wait_for(d, op,
                 "its mover plugin is no longer in the configuration; --force deletes the record and leaves the stored "
                 "data");
        return false;
    }
    plan_work(d, ROW_OPERATION, op->id, WORK_DELETE_PLUGIN,
              json_pack("{s:s,s:{s:s,s:s,s:O?}}", "plugin", plugin, "args", "operation", of.id, "id", of.result.id,
                        "stored", of.result.stored),
              600);
    return false;
}

static void delete_ended(struct decide *d, struct operation *op, enum outcome outcome)
{
    op->outcome = outcome;
    op->completed_ns = decide_now(d);
    op->wake_ns = 0;
    str_clear(&op->waiting);
    if (outcome != OUTCOME_FAILED)
        op_error_clear(&op->error);
    count_operation_ended(d, op, outcome);
    operation_become(d, op, op_state_of(outcome));
    plan_live_drop(d, op->id);
}

/* The repository knows snapshots; a person asks which volume, and what to do. */
static void note_refusal(struct operation *op, const struct owned *o, const struct op_error *error)
{
    const char *id;
    json_t *volume;
    op_error_copy(&op->error, error);
    json_object_foreach(o->volumes, id, volume)
    {
        if (strstr(error->message, id))
            str_setf(&op->error.message, "%s: %s", json_string_value(volume), error->message);
    }
    if (error->sys == EPERM)
        str_setf(&op->error.hint, "`snapferry delete %s --even-kept` deletes it all the same", op->deletes);
}

/* The backup is as it was before the request. */
static void keep_backup(struct decide *d, const struct operation *op)
{
    CLEANUP(backup_clear) struct backup b;
    if (backup_read(d, op->deletes, &b) == 0) {
        str_clear(&b.deleting);
        if (backup_record_dropped(&b))
            backup_record(d, &b, NULL);
        backup_write(d, &b);
    }
}

/* A refusal for good (pinned, the last good copy): the backup stays as it is. */
static void delete_refuse(struct decide *d, struct operation *op, const struct owned *o, const struct op_error *error)
{
    keep_backup(d, op);
    note_refusal(op, o, error);
    delete_ended(d, op, OUTCOME_FAILED);
}

/* What the repository is asked for; with the first step the record of the outcome is removed. */
static json_t *delete_steps(const struct operation *op, const struct owned *o, const json_t *claims)
{
    json_t *steps = json_array();
    const json_t *c;
    size_t i;
    json_array_foreach(claims, i, c)
    {
        json_t *ids = json_array(), *writers = json_object(), *writer;
        const char *id;
        json_object_foreach((json_t *)(uintptr_t)c, id, writer)
        {
            json_array_append_new(ids, json_string(id));
            if (!json_is_null(writer))
                json_object_set(writers, id, writer);
        }
        json_array_append_new(steps, json_pack("{s:s,s:o,s:o,s:b,s:b,s:s*}", "verb", "delete", "snapshots", ids,
                                               "operations", writers, "last_good", op->even_kept, "pinned",
                                               op->even_kept, "backup", i == 0 ? o->backup : NULL));
    }
    return steps;
}

/* True when all snapshots of the repositories are gone. */
static bool delete_snapshots(struct decide *d, struct operation *op, const struct owned *o)
{
    json_t *asked =
        op->deletions ? json_copy(op->deletions) : json_object(); /* documents of rows are not written into */
    const char *repo;
    json_t *claims;
    bool done = true;
    json_take(&op->deletions, asked);
    json_object_foreach(o->snapshots, repo, claims)
    {
        CLEANUP(operation_clear) struct operation admin;
        operation_init(&admin);
        const char *id = json_string_value(json_object_get(asked, repo));
        struct err e = ERR_INIT;
        if (id && operation_read(d, id, &admin) == 0) {
            if (admin.state == OP_COMPLETED)
                continue;
            if (!op_state_terminal(admin.state)) {
                done = false;
                wait_for(d, op, admin.waiting[0] ? admin.waiting : "deleting its snapshots in the repository");
                continue;
            }
            const bool answered = admin.state != OP_CANCELED;
            const enum err_class code = admin.error.code;
            const bool kept = admin.error.sys == EPERM;
            if (answered && op->force && !kept) {
                plan_log(d, LOG_LVL_WARNING, "%s: the snapshots in repository \"%s\" are forgotten, not deleted: %s",
                         operation_label(op), repo, admin.error.message);
                continue;
            }
            if (answered &&
                (kept || code == ERR_USAGE || code == ERR_BUSY || code == ERR_EXISTS || code == ERR_NOT_FOUND)) {
                delete_refuse(d, op, o, &admin.error);
                return false;
            }
            done = false;
            if (answered)
                retry_in(d, op, &admin.error, 60);
            else
                wait_for(d, op, "the request to the repository was canceled, retrying");
            op->wake_ns = decide_now(d) + 60 * NS_PER_S;
            json_object_del(asked, repo); /* asked again then */
            operation_write(d, op);
            continue;
        }
        char fresh[512];
        json_t *steps = delete_steps(op, o, claims);
        if (admin_submit(d, repo, steps, NULL, "admin-delete", fresh, &e) < 0) {
            if (op->force)
                continue;
            done = false;
            wait_for(d, op, e.msg);
            continue;
        }
        done = false;
        jset_str(asked, repo, fresh);
        operation_write(d, op);
    }
    return done;
}

/* True when nothing is left of what was kept of it with native snapshots of other backups. */
static bool delete_kept(struct decide *d, struct operation *op, const struct owned *o)
{
    char why[700] = "removing what was kept for inspection";
    bool done = true;
    for (unsigned i = 0; i < o->kept.n; i++) {
        CLEANUP(native_row_clear) struct native_row n = ROW_INIT;
        if (native_row_read(d, o->kept.v[i], &n) < 0)
            continue;
        if (kept_release(d, &n))
            native_row_write(d, &n);
        if (n.kept.there && n.kept.error[0])
            snprintf(why, sizeof why, "%s", n.kept.error);
        done = done && !n.kept.there;
    }
    if (!done)
        wait_for(d, op, why);
    return done;
}

/* The backup leaves the records, in one transaction with the end of this operation. */
static void backup_forget(struct decide *d, struct operation *op, const struct owned *o)
{
    struct err e = ERR_INIT;
    const json_t *v;
    size_t i;
    int rc = 0;
    json_array_foreach(o->operations, i, v) if (rc == 0) rc = operation_delete(d->records, json_string_value(v), &e);
    if (rc == 0)
        rc = backup_delete(d->records, o->backup, &e);
    if (rc < 0 && rc != -ENOENT) {
        plan_fail(d, &e);
        return;
    }
    delete_ended(d, op, OUTCOME_COMPLETED);
    plan_log(d, LOG_LVL_INFO, "%s: backup %s and all that it owned is deleted", operation_label(op), o->backup);
}

void decide_delete(struct decide *d, struct operation *op)
{
    const char *backup = op->deletes;
    CLEANUP(backup_clear) struct backup b;
    backup_init(&b);
    CLEANUP(owned_clear) struct owned o = {.natives = NULL};
    struct err e = ERR_INIT;
    if (busy(d, op->id))
        return;
    if (op->cancel && !op->begun) {
        keep_backup(d, op);
        delete_ended(d, op, OUTCOME_CANCELED);
        return;
    }
    if (op->wake_ns > decide_now(d))
        return;
    if (owned_look(d, backup, &o, &e) < 0) {
        plan_log(d, LOG_LVL_WARNING, "%s: %s", operation_label(op), e.msg);
        return;
    }
    if (backup_read(d, backup, &b) == 0 && !backup_state_terminal(b.state)) {
        wait_for(d, op, "waiting for the backup to be canceled");
        return;
    }
    add_recorded(&o, &b);
    if (o.restore[0]) {
        char why[640];
        snprintf(why, sizeof why, "waiting for restore %s, which reads it", o.restore);
        wait_for(d, op, why);
        return;
    }
    if (backup_record_runs(d, &b)) {
        wait_for(d, op, "waiting until its outcome is recorded in the repository");
        return;
    }
    backup_record_drop(d, &b);
    if (!op->begun) {
        op->begun = true; /* from here on there is no way back */
        op->wake_ns = 0;
        if (operation_become(d, op, OP_RUNNING) < 0)
            return;
    }
    op->wake_ns = 0;
    /* The repository first: if it refuses (the last good copy), the native snapshots are still there. */
    if (!delete_snapshots(d, op, &o) || !delete_plugins(d, op, &o))
        return;
    plan_crash_point(d, "engine-delete-snapshots");
    if (tell_volumes(d, &o, &e) < 0) {
        plan_log(d, LOG_LVL_WARNING, "%s: %s", op->id, e.msg);
        e = (struct err)ERR_INIT;
    }
    if (json_array_size(o.natives)) {
        plan_work(d, ROW_OPERATION, op->id, WORK_DELETE_NATIVES, json_pack("{s:O}", "items", o.natives), 600);
        return;
    }
    if (delete_kept(d, op, &o))
        backup_forget(d, op, &o);
}

void delete_work_ended(struct decide *d, struct operation *op, enum work w, struct work_result *s)
{
    if (w == WORK_DELETE_NATIVES)
        natives_done(d, op, s);
    else if (w == WORK_DELETE_PLUGIN)
        plugin_done(d, op, s);
}

/* ---- requests ---- */

/* What somebody may want to look at is not removed by the way (PVC-11). */
static int refuse_inspected(const struct backup *b, const struct owned *o, struct err *e)
{
    const struct native_row *n = &o->inspected;
    CLEANUP(operation_clear) struct operation failed = ROW_INIT;
    char more[64] = "";
    if (o->n_inspected > 1)
        snprintf(more, sizeof more, ", and of %u other volume%s", o->n_inspected - 1, plural(o->n_inspected - 1));
    if (operation_read(o->decide, n->kept.operation, &failed) == 0 && strcmp(failed.parent, b->id) != 0)
        err_set(e, ERR_BUSY, 0, "native snapshot %s of %s is kept for inspection%s%s, since backup %s failed%s", n->id,
                n->volume->name, n->kept.alias[0] ? " with its intermediate " : "", n->kept.alias, failed.parent, more);
    else
        err_set(e, ERR_BUSY, 0, "backup %s failed and is kept for inspection: native snapshot %s of %s%s%s%s", b->id,
                n->id, n->volume->name, n->kept.alias[0] ? " with its intermediate " : "", n->kept.alias, more);
    return err_hint(e, "`snapferry unhold %s` removes what was kept, --even-kept also deletes it with the backup",
                    o->n_inspected > 1 ? b->id : n->id);
}

static int delete_check(struct decide *d, const struct backup *b, bool force, bool even_kept, struct err *e)
{
    CLEANUP(owned_clear) struct owned o = {.natives = NULL};
    int rc = owned_look(d, b->id, &o, e);
    if (rc < 0)
        return rc;
    if (!backup_state_terminal(b->state) && !force) {
        err_set(e, ERR_BUSY, 0, "backup %s is still %s", b->id, backup_state_name(b->state));
        return err_hint(e, "--force cancels it and deletes it then");
    }
    if (o.held[0] && !even_kept) {
        err_set(e, ERR_BUSY, 0, "native snapshot %s of backup %s is held", o.held, b->id);
        return err_hint(e, "`snapferry unhold %s` first, or --even-kept", o.held);
    }
    if (o.n_inspected && !even_kept)
        return refuse_inspected(b, &o, e);
    return 0;
}

static json_t *delete_answer(const struct backup *b)
{
    return json_pack("{s:s,s:s,s:s}", "id", b->id, "operation", b->deleting, "state", "Deleting");
}

/* One that waits for what is unavailable need not be waited for any longer. */
static int delete_force(struct decide *d, const char *id, struct err *e)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    if (operation_read(d, id, &op) < 0 || op.force)
        return 0;
    op.force = true;
    op.wake_ns = 0;
    return operation_save(d->records, &op, e);
}

int delete_submit(struct decide *d, const char *id, bool force, bool even_kept, json_t **answer, struct err *e)
{
    CLEANUP(backup_clear) struct backup b;
    CLEANUP(operation_clear) struct operation op;
    char stamp[32];
    operation_init(&op);
    *answer = NULL;
    if (backup_read(d, id, &b) < 0) {
        err_set(e, ERR_NOT_FOUND, 0, "there is no backup or restore %s in the records", id);
        return err_hint(e, "`snapferry backups` lists them");
    }
    if (b.deleting[0]) {
        *answer = delete_answer(&b);
        return force ? delete_force(d, b.deleting, e) : 0;
    }
    if (b.node[0]) {
        err_set(e, ERR_PERMISSION, 0, "backup %s is of node %s, which alone deletes it", id, b.node);
        return err_hint(e, "`snapferry delete` on that node; here it can be listed and restored");
    }
    int rc = delete_check(d, &b, force, even_kept, e);
    if (rc < 0)
        return rc;
    d->world.ids->stamp(d->world.ids, decide_now(d), stamp);
    str_setf(&op.id, "delete-%s", stamp);
    op.state = OP_QUEUED;
    op.kind = KIND_DELETE;
    str_set(&op.deletes, id);
    op.force = force;
    op.even_kept = even_kept;
    str_set(&b.deleting, op.id);
    if (!backup_state_terminal(b.state)) {
        b.cancel = true;
        b.cancel_ns = decide_now(d);
    }
    rc = operation_add(d->records, &op, e);
    if (rc >= 0)
        rc = backup_save(d->records, &b, e);
    if (rc >= 0)
        *answer = delete_answer(&b);
    return rc < 0 ? rc : 0;
}
