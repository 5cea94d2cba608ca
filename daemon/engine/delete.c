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

static int own_native(struct rec *n, void *arg)
{
    struct owned *o = arg;
    if (jobj(n->doc, "hold"))
        snprintf(o->held, sizeof o->held, "%s", n->id);
    return json_array_append_new(
        o->natives, json_pack("{s:s,s:O,s:o}", "alias", n->id, "class", jobj(n->doc, "class"), "native",
                              jobj(n->doc, "native") ? json_incref(jobj(n->doc, "native")) : json_object()));
}

static int own_operation(struct rec *op, void *arg)
{
    struct owned *o = arg;
    const json_t *policy = jobj(op->doc, "policy");
    const char *id = jstr(jobj(op->doc, "result"), "snapshotID"), *repo = jstr(policy, "repository");
    json_array_append_new(o->operations, json_string(op->id));
    if (strcmp(jstr(op->doc, "kind"), "backup"))
        return 0;
    json_array_append_new(o->volume_ids, json_string(op->volume));
    if (jstr(policy, "mover")[0] && jobj(op->doc, "result"))
        json_array_append_new(o->plugins, json_pack("{s:s,s:s,s:O}", "operation", op->id, "mover",
                                                    jstr(policy, "mover"), "result", jobj(op->doc, "result")));
    else if (id[0]) {
        if (!jarr(o->snapshots, repo))
            json_object_set_new(o->snapshots, repo, json_array());
        json_array_append_new(jarr(o->snapshots, repo), json_string(id));
        json_object_set_new(o->volumes, id, json_string(jstr(jobj(op->doc, "volume"), "name")));
    }
    return 0;
}

static int reads_it(struct rec *op, void *arg)
{
    struct owned *o = arg;
    const json_t *v;
    size_t i;
    if (strcmp(jstr(op->doc, "kind"), "restore"))
        return 0;
    json_array_foreach(o->operations, i, v) if (!strcmp(json_string_value(v), jstr(op->doc, "of")))
        snprintf(o->restore, sizeof o->restore, "%s", op->id);
    return 0;
}

static int look(struct engine *g, const char *backup, struct owned *o, struct err *e)
{
    struct rec_filter f = {.parent = backup}, live = {.live = true};
    *o = (struct owned){.backup = backup,
                        .natives = json_array(),
                        .snapshots = json_object(),
                        .plugins = json_array(),
                        .operations = json_array(),
                        .volumes = json_object(),
                        .volume_ids = json_array()};
    int rc = records_each(g->records, REC_NATIVE, &f, own_native, o, e);
    if (rc == 0)
        rc = records_each(g->records, REC_OPERATION, &f, own_operation, o, e);
    if (rc == 0)
        rc = records_each(g->records, REC_OPERATION, &live, reads_it, o, e);
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

static void wait_for(struct engine *g, struct rec *op, const char *why)
{
    op->wake_ns = now_ns() + 2 * NS_PER_S;
    if (strcmp(jstr(op->doc, "waiting"), why)) {
        jset_str(op->doc, "waiting", why);
        log_info("%s: %s", rec_label(op), why);
    }
    save(g, REC_OPERATION, op);
}

static void natives_done(struct engine *g, struct rec *op, struct step_result *s)
{
    natives_removed(g, s->err.cls ? NULL : s->out);
    const json_t *a, *bad = NULL;
    size_t i;
    json_array_foreach(json_object_get(s->out, "items"), i, a) if (jobj(a, "error")) bad = jobj(a, "error");
    if (s->err.cls || bad) {
        jset_str(op->doc, "waiting", s->err.cls ? s->err.msg : jstr(bad, "message"));
        op->wake_ns = now_ns() + 30 * NS_PER_S;
    }
    save(g, REC_OPERATION, op);
    crash_point("engine-delete-natives");
}

static void plugin_done(struct engine *g, struct rec *op, struct step_result *s)
{
    if (s->err.cls) {
        jset_str(op->doc, "waiting", s->err.msg);
        op->wake_ns = now_ns() + 60 * NS_PER_S;
    } else {
        jset_int(op->doc, "plugins_done", jint(op->doc, "plugins_done") + 1);
    }
    save(g, REC_OPERATION, op);
}

/* What a mover plugin stored is deleted by the plugin; one that cannot is told about, not assumed (decisions: plugins).
 */
static bool delete_plugins(struct engine *g, struct rec *op, const struct owned *o)
{
    const json_t *q = json_array_get(o->plugins, (size_t)jint(op->doc, "plugins_done"));
    struct err e = ERR_INIT;
    if (!q)
        return true;
    const struct cfg_plugin *p = cfg_plugin(g->cfg, jstr(q, "mover") + strlen("plugin:"));
    if (!p) {
        if (jbool(op->doc, "force"))
            return true;
        wait_for(g, op, "its mover plugin is not in the configuration any more; --force forgets what it stored");
        return false;
    }
    CLEANUP_JSON json_t *args =
        json_pack("{s:s,s:s,s:O?}", "operation", jstr(q, "operation"), "id", jstr(jobj(q, "result"), "id"), "stored",
                  json_object_get(jobj(q, "result"), "stored"));
    if (work(g, REC_OPERATION, op, "delete by plugin", plugin_step, plugin_step_in(p, PV_DELETE, args),
             plugin_step_timeout(p, PV_DELETE), plugin_done, &e) < 0)
        log_warning("%s", e.msg);
    return false;
}

static void delete_ended(struct engine *g, struct rec *op, const char *outcome)
{
    records_counters_hold(g->records);
    count_operation_ended(g, op, outcome);
    save_state(g, REC_OPERATION, op, outcome);
    records_counters_settle(g->records);
}

/* A refusal for good (pinned, the last good copy): the backup stays as it is. */
/* The repository knows snapshots; a person asks which volume, and what to do. */
static json_t *explain_refusal(const struct rec *op, const struct owned *o, const json_t *error)
{
    json_t *better = json_copy((json_t *)(uintptr_t)error), *volume;
    const char *id, *message = jstr(error, "message");
    char text[900];
    json_object_foreach(o->volumes, id, volume)
    {
        if (!strstr(message, id))
            continue;
        snprintf(text, sizeof text, "%s: %s", json_string_value(volume), message);
        jset_str(better, "message", text);
    }
    if (jint(error, "errno") == EPERM) {
        snprintf(text, sizeof text, "`snapferry delete %s --even-kept` deletes it all the same",
                 jstr(op->doc, "deletes"));
        jset_str(better, "hint", text);
    }
    return better;
}

static void refuse(struct engine *g, struct rec *op, const struct owned *o, const json_t *error)
{
    CLEANUP(rec_clearp) struct rec b = REC_INIT;
    if (rec_get(g, REC_BACKUP, jstr(op->doc, "deletes"), &b) == 0) {
        json_object_del(b.doc, "deleting");
        save(g, REC_BACKUP, &b);
    }
    json_object_set_new(op->doc, "error", explain_refusal(op, o, error));
    json_object_del(op->doc, "waiting");
    jset_int(op->doc, "completed_ns", now_ns());
    op->wake_ns = 0;
    delete_ended(g, op, "Failed");
    live_drop(g, op->id);
}

/* True when all snapshots of the repositories are gone. */
static bool delete_snapshots(struct engine *g, struct rec *op, const struct owned *o)
{
    json_t *asked = jobj(op->doc, "deletions");
    const char *repo;
    json_t *ids;
    bool done = true;
    if (!asked) {
        asked = json_object();
        json_object_set_new(op->doc, "deletions", asked);
    }
    json_object_foreach(o->snapshots, repo, ids)
    {
        CLEANUP(rec_clearp) struct rec admin = REC_INIT;
        const char *id = jstr(asked, repo);
        struct err e = ERR_INIT;
        if (id[0] && rec_get(g, REC_OPERATION, id, &admin) == 0) {
            if (!strcmp(admin.state, "Completed"))
                continue;
            done = false;
            if (!state_terminal(admin.state)) {
                wait_for(g, op,
                         jstr(admin.doc, "waiting")[0] ? jstr(admin.doc, "waiting")
                                                       : "the repository deletes its snapshots");
                continue;
            }
            const int64_t code = jint(jobj(admin.doc, "error"), "code");
            const bool kept = jint(jobj(admin.doc, "error"), "errno") == EPERM;
            if (jbool(op->doc, "force") && !kept) {
                log_warning("%s: the snapshots in repository \"%s\" are forgotten, not deleted: %s", rec_label(op),
                            repo, jstr(jobj(admin.doc, "error"), "message"));
                done = true;
                continue;
            }
            if (kept || code == ERR_USAGE || code == ERR_BUSY || code == ERR_EXISTS || code == ERR_NOT_FOUND) {
                refuse(g, op, o, jobj(admin.doc, "error"));
                return false;
            }
            wait_for(g, op, jstr(jobj(admin.doc, "error"), "message"));
            op->wake_ns = now_ns() + 60 * NS_PER_S;
            json_object_del(asked, repo); /* asked again then */
            save(g, REC_OPERATION, op);
            continue;
        }
        done = false;
        char fresh[512];
        json_t *steps = json_pack("[{s:s,s:O,s:b,s:b}]", "verb", "delete", "snapshots", ids, "last_good",
                                  jbool(op->doc, "even_kept"), "pinned", jbool(op->doc, "even_kept"));
        if (admin_submit(g, repo, steps, NULL, "admin-delete", fresh, &e) < 0) {
            if (jbool(op->doc, "force")) {
                done = true;
                continue;
            }
            wait_for(g, op, e.msg);
            continue;
        }
        jset_str(asked, repo, fresh);
        save(g, REC_OPERATION, op);
    }
    return done;
}

static void forget(struct engine *g, struct rec *op, const struct owned *o)
{
    struct err e = ERR_INIT;
    const json_t *v;
    size_t i;
    int rc = records_begin(g->records, &e);
    if (rc < 0) {
        log_warning("%s", e.msg);
        return;
    }
    json_array_foreach(o->operations, i, v) if (rc == 0) rc =
        records_delete(g->records, REC_OPERATION, json_string_value(v), &e);
    if (rc == 0)
        rc = records_delete(g->records, REC_BACKUP, o->backup, &e);
    if (rc == 0)
        rc = tell_volumes(g, o, &e);
    if (rc == 0) {
        jset_int(op->doc, "completed_ns", now_ns());
        json_object_del(op->doc, "waiting");
        snprintf(op->state, sizeof op->state, "Completed");
        op->wake_ns = 0;
        rc = records_save(g->records, REC_OPERATION, op, &e);
    }
    if (rc < 0) {
        records_rollback(g->records);
        log_warning("%s: %s", rec_label(op), e.msg);
        return;
    }
    records_counters_hold(g->records);
    count_operation_ended(g, op, "Completed");
    rc = records_commit(g->records, &e);
    records_counters_settle(g->records);
    if (rc < 0) {
        log_warning("%s: %s", rec_label(op), e.msg);
        return;
    }
    log_info("%s: backup %s and all it owned is gone", rec_label(op), o->backup);
    tell_waiters(g, REC_OPERATION, op, false);
    live_drop(g, op->id);
}

void reconcile_delete(struct engine *g, struct rec *op)
{
    const char *backup = jstr(op->doc, "deletes");
    CLEANUP(rec_clearp) struct rec b = REC_INIT;
    CLEANUP(owned_clear) struct owned o = {.natives = NULL};
    struct err e = ERR_INIT;
    if (busy(g, op->id) || op->wake_ns > now_ns())
        return;
    if (jbool(op->doc, "cancel") && !jbool(op->doc, "begun")) {
        if (rec_get(g, REC_BACKUP, backup, &b) == 0) {
            json_object_del(b.doc, "deleting");
            save(g, REC_BACKUP, &b);
        }
        delete_ended(g, op, "Canceled");
        return;
    }
    if (look(g, backup, &o, &e) < 0) {
        log_warning("%s: %s", rec_label(op), e.msg);
        return;
    }
    if (rec_get(g, REC_BACKUP, backup, &b) == 0 && !state_terminal(b.state)) {
        wait_for(g, op, "the backup is being cancelled first");
        return;
    }
    if (o.restore[0]) {
        char why[640];
        snprintf(why, sizeof why, "restore %s still reads it", o.restore);
        wait_for(g, op, why);
        return;
    }
    if (!jbool(op->doc, "begun")) {
        jset_bool(op->doc, "begun", true); /* from here on there is no way back */
        op->wake_ns = 0;
        if (save_state(g, REC_OPERATION, op, "Running") < 0)
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
        if (work(g, REC_OPERATION, op, "remove the native snapshots of", step_remove, in, 600, natives_done, &e) < 0)
            log_warning("%s", e.msg);
        return;
    }
    forget(g, op, &o);
}

void engine_delete(struct engine *g, const json_t *req, engine_reply_fn *reply, void *arg)
{
    const char *id = jstr(req, "id");
    CLEANUP(rec_clearp) struct rec b = REC_INIT, op = {.doc = json_object()};
    CLEANUP(owned_clear) struct owned o = {.natives = NULL};
    CLEANUP_JSON json_t *answer = NULL;
    struct err e = ERR_INIT;
    const bool force = jbool(req, "force"), even_kept = jbool(req, "even_kept");
    char stamp[32];
    if (rec_get(g, REC_BACKUP, id, &b) < 0) {
        err_set(&e, ERR_NOT_FOUND, 0, "there is no backup or restore %s in the records", id);
        err_hint(&e, "`snapferry backups` lists them");
    } else if (jstr(b.doc, "deleting")[0]) {
        answer = json_pack("{s:s,s:s,s:s}", "id", id, "operation", jstr(b.doc, "deleting"), "state", "Deleting");
    } else if (look(g, id, &o, &e) == 0) {
        if (!state_terminal(b.state) && !force) {
            err_set(&e, ERR_BUSY, 0, "backup %s is still %s", id, b.state);
            err_hint(&e, "--force cancels it and deletes it then");
        } else if (o.held[0] && !even_kept) {
            err_set(&e, ERR_BUSY, 0, "native snapshot %s of backup %s is held", o.held, id);
            err_hint(&e, "`snapferry unhold %s` first, or --even-kept", o.held);
        }
    }
    if (!e.cls && !answer) {
        stamp_text(stamp);
        snprintf(op.id, sizeof op.id, "delete-%s", stamp);
        snprintf(op.state, sizeof op.state, "Queued");
        jset_str(op.doc, "kind", "delete");
        jset_str(op.doc, "deletes", id);
        jset_bool(op.doc, "force", force);
        jset_bool(op.doc, "even_kept", even_kept);
        jset_str(b.doc, "deleting", op.id);
        if (!state_terminal(b.state)) {
            jset_bool(b.doc, "cancel", true);
            jset_int(b.doc, "cancel_ns", now_ns());
        }
        if (records_begin(g->records, &e) == 0) {
            if (records_add(g->records, REC_OPERATION, &op, &e) < 0 || records_save(g->records, REC_BACKUP, &b, &e) < 0)
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
