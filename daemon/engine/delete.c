/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine-delete.c - a backup goes, with everything it owns: native snapshots, repository snapshots, records (RS-23,
 * AO-49)
 *
 * It is an operation of its own (kind "delete"), gone on with after a crash and retried for as long as something
 * refuses; the backup shows as Deleting with the reason. Its records go last, so that nothing is half-forgotten.
 *
 * Crash points: engine-delete-submitted, engine-delete-natives, engine-delete-snapshots.
 */
#include "base/crash.h"
#include "daemon/engine/volumes.h"
#include "daemon/movers/plugin.h"

#include <errno.h>
#include <string.h>

struct owned {
    const char *backup;
    bool only_backups;
    json_t *natives, *snapshots, *plugins, *operations;
    json_t *volumes; /* names by snapshot id */
    json_t *volume_ids;
    char held[64], restore[512];
};

static int own_native(const struct native_row *n, void *arg)
{
    struct owned *o = arg;
    if (n->hold.held)
        snprintf(o->held, sizeof o->held, "%s", n->id);
    return json_array_append_new(o->natives,
                                 json_pack("{s:s,s:o,s:o}", "alias", n->id, "class", class_desc_to_json(n->klass),
                                           "native", native_desc_to_json(n->native)));
}

static int own_operation(const struct operation *op, void *arg)
{
    struct owned *o = arg;
    const char *id = jstr(op->result, "snapshotID"), *repo = op->policy->repository;
    json_array_append_new(o->operations, json_string(op->id));
    if (op->kind != KIND_BACKUP)
        return 0;
    json_array_append_new(o->volume_ids, json_string(op->volume_id));
    if (op->policy->mover[0] && op->result)
        json_array_append_new(o->plugins, json_pack("{s:s,s:s,s:O}", "operation", op->id, "mover", op->policy->mover,
                                                    "result", op->result));
    else if (id[0]) {
        if (!jarr(o->snapshots, repo))
            json_object_set_new(o->snapshots, repo, json_array());
        json_array_append_new(jarr(o->snapshots, repo), json_string(id));
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

static int look(struct engine *g, const char *backup, struct owned *o, struct err *e)
{
    struct native_row_filter natives = {.parent = backup};
    struct operation_filter f = {.parent = backup}, live = {.live = true};
    *o = (struct owned){.backup = backup,
                        .natives = json_array(),
                        .snapshots = json_object(),
                        .plugins = json_array(),
                        .operations = json_array(),
                        .volumes = json_object(),
                        .volume_ids = json_array()};
    int rc = native_row_each(g->records, &natives, own_native, o, e);
    if (rc == 0)
        rc = operation_each(g->records, &f, own_operation, o, e);
    if (rc == 0)
        rc = operation_each(g->records, &live, reads_it, o, e);
    return rc;
}

static void owned_clear(struct owned *o)
{
    json_decref(o->natives);
    json_decref(o->snapshots);
    json_decref(o->plugins);
    json_decref(o->operations);
    json_decref(o->volumes);
    json_decref(o->volume_ids);
}

/* What the repositories no longer have protects nothing, whatever of the backup is still to be removed. */
static int tell_volumes(struct engine *g, const struct owned *o, struct err *e)
{
    const json_t *v;
    size_t i;
    int rc = 0;
    json_array_foreach(o->volume_ids, i, v) if (rc == 0) rc =
        volume_backup_lost(g, json_string_value(v), o->backup, "was deleted", e);
    return rc;
}

static void wait_for(struct engine *g, struct operation *op, const char *why)
{
    op->wake_ns = now_ns() + 2 * NS_PER_S;
    if (strcmp(op->waiting, why)) {
        str_set(&op->waiting, why);
        log_info("%s: %s", operation_label(op), why);
    }
    operation_write(g, op);
}

static void natives_done(struct engine *g, struct operation *op, struct step_result *s)
{
    natives_removed(g, s->err.cls ? NULL : s->out);
    const json_t *a, *bad = NULL;
    size_t i;
    json_array_foreach(json_object_get(s->out, "items"), i, a) if (jobj(a, "error")) bad = jobj(a, "error");
    if (s->err.cls || bad) {
        str_set(&op->waiting, s->err.cls ? s->err.msg : jstr(bad, "message"));
        op->wake_ns = now_ns() + 30 * NS_PER_S;
    }
    operation_write(g, op);
    crash_point("engine-delete-natives");
}

static void plugin_done(struct engine *g, struct operation *op, struct step_result *s)
{
    if (s->err.cls) {
        str_set(&op->waiting, s->err.msg);
        op->wake_ns = now_ns() + 60 * NS_PER_S;
    } else {
        op->plugins_done = op->plugins_done + 1;
    }
    operation_write(g, op);
}

/* What a mover plugin stored is deleted by the plugin; one that cannot is told about, not assumed (decisions: plugins).
 */
static bool delete_plugins(struct engine *g, struct operation *op, const struct owned *o)
{
    const json_t *q = json_array_get(o->plugins, (size_t)op->plugins_done);
    struct err e = ERR_INIT;
    if (!q)
        return true;
    const struct cfg_plugin *p = cfg_plugin(g->cfg, jstr(q, "mover") + strlen("plugin:"));
    if (!p) {
        if (op->force)
            return true;
        wait_for(g, op, "its mover plugin is not in the configuration any more; --force forgets what it stored");
        return false;
    }
    CLEANUP_JSON json_t *args =
        json_pack("{s:s,s:s,s:O?}", "operation", jstr(q, "operation"), "id", jstr(jobj(q, "result"), "id"), "stored",
                  json_object_get(jobj(q, "result"), "stored"));
    if (operation_work(g, op, "delete by plugin", plugin_step, plugin_step_in(p, PV_DELETE, args),
                       plugin_step_timeout(p, PV_DELETE), plugin_done, &e) < 0)
        log_warning("%s", e.msg);
    return false;
}

static void delete_ended(struct engine *g, struct operation *op, enum outcome outcome)
{
    records_counters_hold(g->records);
    count_operation_ended(g, op, outcome);
    operation_become(g, op, op_state_of(outcome));
    records_counters_settle(g->records);
}

/* A refusal for good (pinned, the last good copy): the backup stays as it is. */
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
static void keep_backup(struct engine *g, const struct operation *op)
{
    CLEANUP(backup_clear) struct backup b;
    if (backup_read(g, op->deletes, &b) == 0) {
        str_clear(&b.deleting);
        backup_write(g, &b);
    }
}

static void refuse(struct engine *g, struct operation *op, const struct owned *o, const struct op_error *error)
{
    keep_backup(g, op);
    note_refusal(op, o, error);
    str_clear(&op->waiting);
    op->completed_ns = now_ns();
    op->wake_ns = 0;
    delete_ended(g, op, OUTCOME_FAILED);
    live_drop(g, op->id);
}

/* True when all snapshots of the repositories are gone. */
static bool delete_snapshots(struct engine *g, struct operation *op, const struct owned *o)
{
    json_t *asked =
        op->deletions ? json_copy(op->deletions) : json_object(); /* documents of rows are not written into */
    const char *repo;
    json_t *ids;
    bool done = true;
    json_take(&op->deletions, asked);
    json_object_foreach(o->snapshots, repo, ids)
    {
        CLEANUP(operation_clear) struct operation admin;
        operation_init(&admin);
        const char *id = jstr(asked, repo);
        struct err e = ERR_INIT;
        if (id[0] && operation_read(g, id, &admin) == 0) {
            if (admin.state == OP_COMPLETED)
                continue;
            done = false;
            if (!op_state_terminal(admin.state)) {
                wait_for(g, op, admin.waiting[0] ? admin.waiting : "the repository deletes its snapshots");
                continue;
            }
            const enum err_class code = admin.error.code;
            const bool kept = admin.error.sys == EPERM;
            if (op->force && !kept) {
                log_warning("%s: the snapshots in repository \"%s\" are forgotten, not deleted: %s",
                            operation_label(op), repo, admin.error.message);
                done = true;
                continue;
            }
            if (kept || code == ERR_USAGE || code == ERR_BUSY || code == ERR_EXISTS || code == ERR_NOT_FOUND) {
                refuse(g, op, o, &admin.error);
                return false;
            }
            wait_for(g, op, admin.error.message);
            op->wake_ns = now_ns() + 60 * NS_PER_S;
            json_object_del(asked, repo); /* asked again then */
            operation_write(g, op);
            continue;
        }
        done = false;
        char fresh[512];
        json_t *steps = json_pack("[{s:s,s:O,s:b,s:b}]", "verb", "delete", "snapshots", ids, "last_good", op->even_kept,
                                  "pinned", op->even_kept);
        if (admin_submit(g, repo, steps, NULL, "admin-delete", fresh, &e) < 0) {
            if (op->force) {
                done = true;
                continue;
            }
            wait_for(g, op, e.msg);
            continue;
        }
        jset_str(asked, repo, fresh);
        operation_write(g, op);
    }
    return done;
}

static void forget(struct engine *g, struct operation *op, const struct owned *o)
{
    struct err e = ERR_INIT;
    const json_t *v;
    size_t i;
    int rc = records_begin(g->records, &e);
    if (rc < 0) {
        log_warning("%s", e.msg);
        return;
    }
    json_array_foreach(o->operations, i, v) if (rc == 0) rc = operation_delete(g->records, json_string_value(v), &e);
    if (rc == 0)
        rc = backup_delete(g->records, o->backup, &e);
    if (rc == 0)
        rc = tell_volumes(g, o, &e);
    if (rc == 0) {
        op->completed_ns = now_ns();
        str_clear(&op->waiting);
        op->state = OP_COMPLETED;
        op->wake_ns = 0;
        rc = operation_save(g->records, op, &e);
    }
    if (rc < 0) {
        records_rollback(g->records);
        log_warning("%s: %s", operation_label(op), e.msg);
        return;
    }
    records_counters_hold(g->records);
    count_operation_ended(g, op, OUTCOME_COMPLETED);
    rc = records_commit(g->records, &e);
    records_counters_settle(g->records);
    if (rc < 0) {
        log_warning("%s: %s", operation_label(op), e.msg);
        return;
    }
    log_info("%s: backup %s and all it owned is gone", operation_label(op), o->backup);
    tell_operation_waiters(g, op, false);
    live_drop(g, op->id);
}

void reconcile_delete(struct engine *g, struct operation *op)
{
    const char *backup = op->deletes;
    CLEANUP(backup_clear) struct backup b;
    backup_init(&b);
    CLEANUP(owned_clear) struct owned o = {.natives = NULL};
    struct err e = ERR_INIT;
    if (busy(g, op->id) || op->wake_ns > now_ns())
        return;
    if (op->cancel && !op->begun) {
        keep_backup(g, op);
        delete_ended(g, op, OUTCOME_CANCELED);
        return;
    }
    if (look(g, backup, &o, &e) < 0) {
        log_warning("%s: %s", operation_label(op), e.msg);
        return;
    }
    if (backup_read(g, backup, &b) == 0 && !backup_state_terminal(b.state)) {
        wait_for(g, op, "the backup is being cancelled first");
        return;
    }
    if (o.restore[0]) {
        char why[640];
        snprintf(why, sizeof why, "restore %s still reads it", o.restore);
        wait_for(g, op, why);
        return;
    }
    if (!op->begun) {
        op->begun = true; /* from here on there is no way back */
        op->wake_ns = 0;
        if (operation_become(g, op, OP_RUNNING) < 0)
            return;
    }
    op->wake_ns = 0;
    /* The repository first: if it refuses (the last good copy), the native snapshots are still there. */
    if (!delete_snapshots(g, op, &o) || !delete_plugins(g, op, &o))
        return;
    crash_point("engine-delete-snapshots");
    if (tell_volumes(g, &o, &e) < 0) {
        log_warning("%s: %s", op->id, e.msg);
        e = (struct err)ERR_INIT;
    }
    if (json_array_size(o.natives)) {
        json_t *in = json_pack("{s:O}", "items", o.natives);
        if (operation_work(g, op, "remove the native snapshots of", step_remove, in, 600, natives_done, &e) < 0)
            log_warning("%s", e.msg);
        return;
    }
    forget(g, op, &o);
}

void engine_delete(struct engine *g, const json_t *req, engine_reply_fn *reply, void *arg)
{
    const char *id = jstr(req, "id");
    CLEANUP(backup_clear) struct backup b;
    CLEANUP(operation_clear) struct operation op;
    CLEANUP(owned_clear) struct owned o = {.natives = NULL};
    CLEANUP_JSON json_t *answer = NULL;
    struct err e = ERR_INIT;
    const bool force = jbool(req, "force"), even_kept = jbool(req, "even_kept");
    char stamp[32];
    operation_init(&op);
    if (backup_read(g, id, &b) < 0) {
        err_set(&e, ERR_NOT_FOUND, 0, "there is no backup or restore %s in the records", id);
        err_hint(&e, "`snapferry backups` lists them");
    } else if (b.deleting[0]) {
        answer = json_pack("{s:s,s:s,s:s}", "id", id, "operation", b.deleting, "state", "Deleting");
    } else if (look(g, id, &o, &e) == 0) {
        if (!backup_state_terminal(b.state) && !force) {
            err_set(&e, ERR_BUSY, 0, "backup %s is still %s", id, backup_state_name(b.state));
            err_hint(&e, "--force cancels it and deletes it then");
        } else if (o.held[0] && !even_kept) {
            err_set(&e, ERR_BUSY, 0, "native snapshot %s of backup %s is held", o.held, id);
            err_hint(&e, "`snapferry unhold %s` first, or --even-kept", o.held);
        }
    }
    if (!e.cls && !answer) {
        stamp_text(stamp);
        str_setf(&op.id, "delete-%s", stamp);
        op.state = OP_QUEUED;
        op.kind = KIND_DELETE;
        str_set(&op.deletes, id);
        op.force = force;
        op.even_kept = even_kept;
        str_set(&b.deleting, op.id);
        if (!backup_state_terminal(b.state)) {
            b.cancel = true;
            b.cancel_ns = now_ns();
        }
        if (records_begin(g->records, &e) == 0) {
            if (operation_add(g->records, &op, &e) < 0 || backup_save(g->records, &b, &e) < 0)
                records_rollback(g->records);
            else
                records_commit(g->records, &e);
        }
        crash_point("engine-delete-submitted");
        if (!e.cls)
            answer = json_pack("{s:s,s:s,s:s}", "id", id, "operation", op.id, "state", "Deleting");
    }
    engine_kick(g);
    reply(answer, e.cls ? &e : NULL, arg);
}
