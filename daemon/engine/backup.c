/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine-backup.c - the phases of a backup: Queued, Snapshotting, Moving, Finalizing, and how it ends
 *
 * A restore is a backup record with one operation and without phase 1. Finalizing needs no slot: repository retention
 * by an admin operation, the post-backup hook, the summary.
 *
 * Crash points: engine-backup-snapshotting, engine-backup-moving, engine-backup-finalizing, engine-backup-ended.
 */
#include "base/crash.h"
#include "daemon/engine/engine-impl.h"
#include "daemon/engine/hooks.h"

#include <errno.h>
#include <string.h>

static bool is_restore(const struct rec *b)
{
    return !strcmp(jstr(b->doc, "kind"), "restore");
}

/* ---- may it begin? ---- */

struct blockers {
    const struct rec *b;
    unsigned running, position;
    char by[192];
};

static bool overlap(const struct rec *a, const struct rec *b)
{
    const json_t *va = jarr(a->doc, "volume_ids"), *vb = jarr(b->doc, "volume_ids"), *x, *y;
    size_t i, k;
    json_array_foreach(va, i, x) json_array_foreach(vb, k, y) if (json_equal(x, y)) return true;
    return false;
}

static int find_blocker(struct rec *r, void *arg)
{
    struct blockers *x = arg;
    if (!strcmp(r->id, x->b->id) || is_restore(r))
        return 0;
    if (!strcmp(r->state, "Snapshotting"))
        x->running++;
    bool queued = !strcmp(r->state, "Queued");
    if (queued && r->seq > x->b->seq)
        return 0;
    x->position += queued;
    /* Never before an earlier one with the same volumes: no starvation (AO-47). */
    if (!x->by[0] && overlap(r, x->b))
        snprintf(x->by, sizeof x->by, "%s", r->id);
    return 0;
}

static void begin(struct engine *g, struct rec *b)
{
    struct blockers x = {.b = b};
    struct rec_filter live = {.live = true};
    if (records_each(g->records, REC_BACKUP, &live, find_blocker, &x, NULL) < 0)
        return;
    bool full = !x.by[0] && x.running >= cfg_daemon(g->cfg)->concurrent_backups;
    if (x.by[0] || full) {
        if (strcmp(jstr(b->doc, "blocked_by"), x.by) || jint(b->doc, "position") != x.position) {
            jset_str(b->doc, "blocked_by", x.by);
            jset_int(b->doc, "position", x.position);
            save(g, REC_BACKUP, b);
        }
        return;
    }
    json_object_del(b->doc, "blocked_by");
    json_object_del(b->doc, "position");
    jset_int(b->doc, "started_ns", now_ns());
    if (save_state(g, REC_BACKUP, b, is_restore(b) ? "Moving" : "Snapshotting") == 0)
        crash_point("engine-backup-snapshotting");
    engine_kick(g);
}

/* ---- counting ---- */

struct tally {
    unsigned n, completed, failed, canceled, skipped, admin_live;
    bool degraded;
    int64_t bytes, incremental, uploaded;
    json_t *failed_names, *errors;
};

static int add_up(struct rec *op, void *arg)
{
    struct tally *t = arg;
    if (strcmp(jstr(op->doc, "kind"), "backup") && strcmp(jstr(op->doc, "kind"), "restore")) {
        t->admin_live += !state_terminal(op->state);
        return 0;
    }
    t->n++;
    t->degraded |= jbool(op->doc, "degraded");
    if (!state_terminal(op->state))
        return 0;
    const json_t *r = jobj(op->doc, "result");
    t->bytes += jint(r, "totalBytes");
    t->incremental += jint(r, "incrementalBytes");
    t->uploaded += jint(r, "uploadedBytes");
    if (!strcmp(op->state, "Completed"))
        t->completed++;
    else if (!strcmp(op->state, "Skipped"))
        t->skipped++;
    else {
        if (!strcmp(op->state, "Canceled"))
            t->canceled++;
        else
            t->failed++;
        json_array_append_new(t->failed_names, json_string(jstr(jobj(op->doc, "volume"), "name")));
        if (jobj(op->doc, "error"))
            json_array_append_new(t->errors,
                                  json_pack("{s:s,s:s,s:O}", "operation", op->id, "volume",
                                            jstr(jobj(op->doc, "volume"), "name"), "error", jobj(op->doc, "error")));
    }
    return 0;
}

static int tally_up(struct engine *g, const struct rec *b, struct tally *t)
{
    struct rec_filter f = {.parent = b->id};
    memset(t, 0, sizeof *t);
    t->failed_names = json_array();
    t->errors = json_array();
    return records_each(g->records, REC_OPERATION, &f, add_up, t, NULL);
}

static void tally_clear(struct tally *t)
{
    json_decref(t->failed_names);
    json_decref(t->errors);
}

/* ---- finalizing ---- */

struct expiry {
    json_t *by_repository; /* repository -> [{"source"}] */
};
static int collect_keep(struct rec *op, void *arg)
{
    struct expiry *x = arg;
    const json_t *policy = jobj(op->doc, "policy");
    if (strcmp(jstr(op->doc, "kind"), "backup") || strcmp(op->state, "Completed") || !jbool(policy, "move_data") ||
        jstr(policy, "mover")[0] || !jobj(policy, "keep"))
        return 0;
    const char *repo = jstr(policy, "repository");
    json_t *list = jarr(x->by_repository, repo);
    char source[700];
    if (!list) {
        list = json_array();
        json_object_set_new(x->by_repository, repo, list);
    }
    snprintf(source, sizeof source, "snapferry@%s:/%s", jstr(jobj(op->doc, "own"), "node"), op->volume);
    return json_array_append_new(list, json_pack("{s:s}", "source", source));
}

/* Retention where the volumes' keep-* ask for it, one admin operation per repository. True when it is done. */
static bool finalize_retention(struct engine *g, struct rec *b)
{
    struct expiry x = {json_object()};
    struct rec_filter f = {.parent = b->id};
    const char *repo;
    json_t *list;
    bool started = false;
    if (jbool(b->doc, "expired")) {
        json_decref(x.by_repository);
        struct tally t;
        tally_up(g, b, &t);
        bool done = t.admin_live == 0;
        tally_clear(&t);
        return done;
    }
    records_each(g->records, REC_OPERATION, &f, collect_keep, &x, NULL);
    json_object_foreach(x.by_repository, repo, list)
    {
        struct err e = ERR_INIT;
        char id[512];
        /* The mover has written keep-* into the source's policy; what is in force is Kopia's inheritance of it. */
        json_t *steps = json_pack("[{s:s,s:O,s:b}]", "verb", "expire", "sources", list, "dry_run", 0);
        if (admin_submit(g, repo, steps, b->id, "admin-expire", id, &e) < 0)
            log_warning("%s: retention of repository \"%s\" is left to the next backup: %s", b->id, repo, e.msg);
        else
            started = true;
    }
    json_decref(x.by_repository);
    jset_bool(b->doc, "expired", true);
    save(g, REC_BACKUP, b);
    return !started;
}

/* The hook of each volume that has one, one after the other. */
static void post_backup_done(struct engine *g, struct rec *b, struct step_result *s)
{
    CLEANUP(rec_clearp) struct rec op = REC_INIT;
    if (s->err.cls) {
        log_warning("%s: the hook after it: %s", b->id, s->err.msg);
        jset_bool(b->doc, "degraded", true);
        doc_error(b->doc, "post-backup hook", &s->err);
        save(g, REC_BACKUP, b);
    }
    if (rec_get(g, REC_OPERATION, jstr(b->doc, "post_hook_operation"), &op) == 0) {
        jset_bool(op.doc, "post_hook_done", true);
        save(g, REC_OPERATION, &op);
    }
}

struct find_hook {
    struct rec op;
    bool found;
};
static const char *post_hook_of(const struct rec *op)
{
    return jstr(jobj(op->doc, "policy"),
                !strcmp(jstr(op->doc, "kind"), "restore") ? "hook_post_restore" : "hook_post_backup");
}
static int find_post_hook(struct rec *op, void *arg)
{
    struct find_hook *h = arg;
    if (h->found || !post_hook_of(op)[0] || jbool(op->doc, "post_hook_done"))
        return 0;
    h->op = *op;
    op->doc = NULL;
    h->found = true;
    return 0;
}

static bool post_hook(struct engine *g, struct rec *b)
{
    struct find_hook h = {.op = REC_INIT};
    struct rec_filter f = {.parent = b->id};
    struct err e = ERR_INIT;
    bool done = true;
    records_each(g->records, REC_OPERATION, &f, find_post_hook, &h, NULL);
    if (!h.found)
        return true;
    int64_t timeout = jint(jobj(h.op.doc, "policy"), "hook_timeout_s");
    json_t *in = json_pack("{s:s,s:s,s:s,s:s,s:O?,s:s,s:I,s:s}", "program", post_hook_of(&h.op), "phase",
                           is_restore(b) ? "post-restore" : "post-backup", "backup", b->id, "operation", h.op.id,
                           "volume", jobj(h.op.doc, "volume"), "class", jstr(jobj(h.op.doc, "own"), "name"),
                           "timeout_s", (json_int_t)timeout, "result", h.op.state);
    jset_str(b->doc, "post_hook_operation", h.op.id);
    if (save(g, REC_BACKUP, b) < 0)
        json_decref(in);
    else if (work(g, REC_BACKUP, b, "post hook of", hook_step, in, timeout + 10, post_backup_done, &e) < 0)
        log_warning("%s: %s", b->id, e.msg);
    else
        done = false;
    rec_clear(&h.op);
    return done;
}

/* PartiallyFailed names its volumes (AO-12). */
static const char *outcome_of(const struct tally *t, const struct rec *b)
{
    if (t->completed + t->skipped == t->n)
        return t->degraded || jbool(b->doc, "degraded") ? "PartiallyFailed" : "Completed";
    if (t->canceled == t->n || (jbool(b->doc, "cancel") && t->completed == 0))
        return "Canceled";
    if (t->completed == 0)
        return "Failed";
    return "PartiallyFailed";
}

static void summary(struct rec *b, const struct tally *t)
{
    json_object_set_new(b->doc, "counts",
                        json_pack("{s:i,s:i,s:i,s:i,s:i}", "attempted", t->n, "completed", t->completed, "failed",
                                  t->failed, "canceled", t->canceled, "skipped", t->skipped));
    json_object_set_new(b->doc, "bytes",
                        json_pack("{s:I,s:I,s:I}", "total", (json_int_t)t->bytes, "incremental",
                                  (json_int_t)t->incremental, "uploaded", (json_int_t)t->uploaded));
    json_object_set(b->doc, "failed_volumes", t->failed_names);
    json_object_set(b->doc, "errors", t->errors);
    const json_t *first = json_array_get(t->errors, 0);
    if (first && !jobj(b->doc, "error"))
        json_object_set(b->doc, "error", jobj(first, "error"));
}

static void end(struct engine *g, struct rec *b)
{
    struct tally t;
    if (tally_up(g, b, &t) < 0) {
        tally_clear(&t);
        return;
    }
    if (post_hook(g, b)) {
        const char *outcome = outcome_of(&t, b);
        summary(b, &t);
        jset_int(b->doc, "completed_ns", now_ns());
        records_counters_hold(g->records);
        count_backup_ended(g, b, outcome);
        if (save_state(g, REC_BACKUP, b, outcome) == 0) {
            journal_run(b);
            live_drop(g, b->id);
        }
        records_counters_settle(g->records);
        crash_point("engine-backup-ended");
    }
    tally_clear(&t);
}

/* ---- the function ---- */

static int cancel_op(struct rec *op, void *arg)
{
    struct engine *g = arg;
    CLEANUP(rec_clearp) struct rec fresh = REC_INIT;
    if (jbool(op->doc, "cancel") ||
        (strcmp(jstr(op->doc, "kind"), "backup") && strcmp(jstr(op->doc, "kind"), "restore")))
        return 0;
    if (rec_get(g, REC_OPERATION, op->id, &fresh) == 0)
        operation_cancel(g, &fresh, "its backup was cancelled");
    return 0;
}

static int count_ops(struct engine *g, const struct rec *b, const char *state, bool live, uint64_t *n)
{
    struct rec_filter f = {.parent = b->id, .state = state, .live = live};
    return records_count(g->records, REC_OPERATION, &f, n, NULL);
}

void reconcile_backup(struct engine *g, struct rec *seen)
{
    CLEANUP(rec_clearp) struct rec b = REC_INIT;
    if (rec_get(g, REC_BACKUP, seen->id, &b) < 0 || state_terminal(b.state) || busy(g, b.id))
        return;
    if (jbool(b.doc, "cancel")) {
        struct rec_filter f = {.parent = b.id, .live = true};
        records_each(g->records, REC_OPERATION, &f, cancel_op, g, NULL);
    }
    /* Columns are enough here: until Finalizing a backup has no operations but those of its volumes. */
    uint64_t left = 0, failed = 0, canceled = 0, snapshotting = 0;
    if (count_ops(g, &b, NULL, true, &left) < 0 || count_ops(g, &b, "Failed", false, &failed) < 0 ||
        count_ops(g, &b, "Canceled", false, &canceled) < 0 ||
        count_ops(g, &b, "Snapshotting", false, &snapshotting) < 0)
        return;
    bool all_ended = left == 0, degraded = failed || canceled;
    if (degraded && !jbool(b.doc, "degraded_phase")) {
        jset_bool(b.doc, "degraded_phase", true); /* seen while others go on (AO-13) */
        save(g, REC_BACKUP, &b);
    }
    if (!strcmp(b.state, "Queued")) {
        if (all_ended)
            save_state(g, REC_BACKUP, &b, "Finalizing");
        else if (!jbool(b.doc, "cancel"))
            begin(g, &b);
        return;
    }
    if (!strcmp(b.state, "Snapshotting") || !strcmp(b.state, "Moving")) {
        /* Later, too, where one of them is tried again without a native snapshot. */
        bool phase_1 = !is_restore(&b) && (!strcmp(b.state, "Snapshotting") || snapshotting);
        bool snapshots_done = !phase_1 || reconcile_snapshots(g, &b);
        if (all_ended) {
            if (save_state(g, REC_BACKUP, &b, "Finalizing") == 0)
                crash_point("engine-backup-finalizing");
            engine_kick(g);
        } else if (snapshots_done && !strcmp(b.state, "Snapshotting")) {
            jset_int(b.doc, "snapshots_done_ns", now_ns()); /* the point in time that can be restored (AO-42) */
            if (save_state(g, REC_BACKUP, &b, "Moving") == 0)
                crash_point("engine-backup-moving");
            engine_kick(g);
        }
        return;
    }
    if (!strcmp(b.state, "Finalizing") && finalize_retention(g, &b))
        end(g, &b);
}
