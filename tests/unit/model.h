/* SPDX-License-Identifier: GPL-2.0-or-later */
/* model.h - a world for test_model.c and test_decide.c, and daemons that live in it: movers, actions, turns; include it
 * in one file of a program */
#ifndef SNAPFERRY_TESTS_UNIT_MODEL_H
#define SNAPFERRY_TESTS_UNIT_MODEL_H

#include "tests/unit/model-states.h"
#include "tests/unit/model-world.h"

/* ---- movers ---- */

static struct model_mover *mover_of(const char *id)
{
    for (unsigned i = 0; i < m.n_movers; i++)
        if (!strcmp(m.movers[i].id, id))
            return &m.movers[i];
    return NULL;
}

static void drop_mover(struct model_mover *v)
{
    json_decref(v->job);
    *v = m.movers[--m.n_movers];
}

/* It was written by another operation than the one in whose record it is: it is not deleted. */
static bool is_foreign(const json_t *step, const char *id)
{
    const char *writer = jstr(jobj(step, "operations"), id);
    const json_t *s = json_object_get(m.snapshots, id);
    return writer[0] && s && strcmp(jstr(s, "operation"), writer) != 0;
}

/* By the numbers of the questions, in their order (run-check.c). */
static void answer_numbers(json_t *a, const json_t *readable, const json_t *of)
{
    json_t *proven = json_array(), *refused = json_object();
    const char *id;
    json_t *v;
    char key[24];
    json_object_foreach((json_t *)(uintptr_t)readable, id, v)
    {
        const json_int_t number = jint(of, id);
        size_t at = json_array_size(proven);
        if (json_is_true(v)) {
            while (at && json_integer_value(json_array_get(proven, at - 1)) > number)
                at--;
            json_array_insert_new(proven, at, json_integer(number));
        } else {
            snprintf(key, sizeof key, "%lld", (long long)number);
            json_object_set_new(refused, key, json_string(""));
        }
    }
    json_object_set_new(a, "proven", proven);
    json_object_set_new(a, "refused", refused);
}

/* What a mover of kind admin does and answers. */
static json_t *admin_result(const json_t *steps)
{
    json_t *answers = json_array();
    const json_t *step, *id;
    size_t i, k;
    json_array_foreach(steps, i, step)
    {
        json_t *a = json_object();
        json_array_append_new(answers, a);
        if (!strcmp(jstr(step, "verb"), "check")) {
            json_t *readable = json_object(), *of = json_object();
            json_array_foreach(jarr(step, "snapshots"), k, id)
            {
                const json_t *s = json_object_get(m.snapshots, json_string_value(id));
                const json_t *x = jobj(jobj(step, "expect"), json_string_value(id));
                const bool same = !jstr(x, "operation")[0] || !strcmp(jstr(x, "operation"), jstr(s, "operation"));
                json_object_set_new(readable, json_string_value(id), json_boolean(s && jbool(s, "readable") && same));
                if (json_object_get(x, "of"))
                    json_object_set(of, json_string_value(id), json_object_get(x, "of"));
            }
            if (jbool(step, "numbers")) {
                answer_numbers(a, readable, of);
                json_decref(readable);
                json_decref(of);
                continue;
            }
            json_object_set_new(a, "readable", readable);
            json_object_set_new(a, "of", of);
        } else if (!strcmp(jstr(step, "verb"), "delete")) {
            json_array_foreach(jarr(step, "snapshots"), k, id) if (!is_foreign(step, json_string_value(id)))
                json_object_del(m.snapshots, json_string_value(id));
        }
    }
    return json_pack("{s:o}", "answers", answers);
}

/* What is written is what the rows have at that moment, and that is decided (AO-43). */
static void record_outcomes(const struct operation *op)
{
    char key[BOARD_ID_MAX + 200];
    for (unsigned i = 0; op && i < op->records.n; i++) {
        CLEANUP(backup_clear) struct backup b = ROW_INIT;
        if (backup_get(m.records, op->records.v[i], &b, NULL) < 0)
            continue;
        if (b.outcome == OUTCOME_NONE || (b.state != BACKUP_FINALIZING && !backup_state_terminal(b.state)))
            violated("AO-43", "%s is %s and its outcome is recorded in the repository", b.id,
                     backup_state_name(b.state));
        snprintf(key, sizeof key, "%s/%s", op->policy->repository, b.id);
        json_object_set_new(m.recorded, key, json_integer((json_int_t)b.outcome));
    }
}

static int add_expected(const struct operation *op, void *arg)
{
    json_t *x = operation_expected(m.records, op, jstr(arg, "repository"));
    if (x && json_object_get(jobj(arg, "expect"), op->result.snapshot))
        json_decref(x);
    else if (x)
        json_object_set_new(jobj(arg, "expect"), op->result.snapshot, x);
    return 0;
}

/* The check that belongs to the record of a backup's outcome. */
static json_t *record_steps(const struct operation *op)
{
    CLEANUP_JSON json_t *x = json_pack("{s:s,s:{}}", "repository", op->policy->repository, "expect");
    json_t *ids = json_array();
    const char *id;
    json_t *v;
    for (unsigned i = 0; i < op->records.n; i++) {
        const struct operation_filter f = {.parent = op->records.v[i]};
        operation_each(m.records, &f, add_expected, x, NULL);
    }
    json_object_foreach(jobj(x, "expect"), id, v) json_array_append_new(ids, json_string(id));
    /* A mover of an older version answers by ids. */
    return json_pack("[{s:s},{s:s,s:b,s:o,s:O}]", "verb", "record", "verb", "check", "numbers", !one_in(4), "snapshots",
                     ids, "expect", jobj(x, "expect"));
}

/* What it made of the list of changes that it was given: it used it, could not, or found a lie in it. */
static json_t *with_use_of_list(const struct model_mover *v, json_t *result)
{
    if (!jstr(v->job, "base")[0] || one_in(10))
        return result;
    const bool used = !one_in(4);
    json_object_set_new(result, "incremental",
                        json_pack("{s:b,s:b,s:s}", "used", used, "distrusted", !used && maybe(), "why",
                                  used ? "" : "the model does not like it"));
    return result;
}

/* The result of a mover that succeeds, and what it has done. */
static json_t *mover_result(const struct model_mover *v)
{
    char id[64];
    switch (v->kind) {
    case KIND_BACKUP:
        if (one_in(8) && json_object_size(m.snapshots)) { /* it lies: that is somebody else's */
            put(m.liars, v->id);
            snprintf(id, sizeof id, "%s", json_object_iter_key(json_object_iter(m.snapshots)));
            return json_pack("{s:s,s:i,s:i,s:i}", "snapshotID", id, "totalBytes", 1 << 20, "incrementalBytes", 4096,
                             "uploadedBytes", 1024);
        }
        snprintf(id, sizeof id, "snap%llu", (unsigned long long)++m.moves);
        json_object_set_new(m.snapshots, id,
                            json_pack("{s:s,s:s,s:b,s:b}", "operation", v->id, "volume", jstr(v->job, "volume"),
                                      "readable", !one_in(15), "kept", (int)one_in(6)));
        return with_use_of_list(v, json_pack("{s:s,s:i,s:i,s:i}", "snapshotID", id, "totalBytes", 1 << 20,
                                             "incrementalBytes", 4096, "uploadedBytes", 1024));
    case KIND_MAINTAIN:
        if (one_in(3))
            return json_pack("{s:s,s:{s:s,s:s}}", "skip", "maintained by me@here", "maintenance", "refused",
                             pick(2) ? "owner" : "busy", "owner", "me@here");
        return json_pack("{s:{s:s,s:i,s:i,s:b,s:i,s:i,s:f}}", "maintenance", "owner", "us@here", "quickSeconds", 3600,
                         "fullSeconds", (int)pick(2) * 86400, "full", 1, "freedBytes", 1 << 20, "reclaimableBytes",
                         4096, "seconds", 1.5);
    case KIND_COPY:
        return json_pack("{s:{s:i,s:i,s:i,s:i,s:i,s:i}}", "copy", "copiedBlobs", 3, "copiedBytes", 1 << 20,
                         "presentBlobs", 7, "presentBytes", 4 << 20, "surplusBlobs", 1, "surplusBytes", 4096);
    case KIND_ADMIN:
        record_outcomes(operation_peek(m.records, v->id));
        return admin_result(jarr(v->job, "do") ? jarr(v->job, "do") : jarr(v->job, "records"));
    case KIND_RESTORE:
    case KIND_VERIFY:
    case KIND_NONE:
    case KIND_DELETE:
    case KINDS:
        break;
    }
    return json_pack("{s:i}", "totalBytes", 1 << 20);
}

static void report_of(struct mover_report *r, const char *id, enum mover_outcome outcome, json_t *result)
{
    *r = (struct mover_report){.outcome = outcome, .result = result, .status = outcome == MOVER_OK ? 0 : -1};
    if (outcome != MOVER_OK && outcome != MOVER_CANCELED)
        err_set(&r->err, outcome == MOVER_SOURCE_LOST ? ERR_SOURCE : ERR_GENERIC, 0, "the mover of %s ended", id);
}

/* RS-23: pinned, or the last good copy of its volume. */
static bool refuses_to_delete(const struct model_mover *v)
{
    const json_t *step, *id;
    size_t i, k;
    json_array_foreach(jarr(v->job, "do"), k, step)
    {
        if (strcmp(jstr(step, "verb"), "delete") != 0 || jbool(step, "last_good"))
            return false;
        json_array_foreach(jarr(step, "snapshots"), i, id)
        {
            const char *snapshot = json_string_value(id);
            if (!is_foreign(step, snapshot) && jbool(json_object_get(m.snapshots, snapshot), "kept"))
                return true;
        }
    }
    return false;
}

static void end_mover(struct model_mover *v, enum mover_outcome outcome)
{
    char id[BOARD_ID_MAX];
    const bool deletes = !strcmp(jstr(json_array_get(jarr(v->job, "do"), 0), "verb"), "delete");
    const bool refuses = outcome == MOVER_OK && refuses_to_delete(v);
    if (refuses || (outcome == MOVER_OK && deletes && one_in(6)))
        outcome = MOVER_FAILED;
    const json_t *asked;
    size_t i;
    json_array_foreach(jarr(json_array_get(jarr(v->job, "do"), 0), "snapshots"), i, asked) if (refuses)
        put(m.refused, json_string_value(asked));
    else if (deletes) json_object_del(m.refused, json_string_value(asked));
    json_t *result = outcome == MOVER_OK ? mover_result(v) : NULL;
    snprintf(id, sizeof id, "%s", v->id);
    trace("the mover of %s ends: %s%s", id, mover_outcome_name(outcome), v->here ? "" : ", seen by nobody");
    if (result)
        json_object_set(m.results, id, result);
    count_cell(id, outcome == MOVER_OK ? CELL_OK : CELL_FAILED);
    if (v->here) {
        struct event *ev = event_new(EVENT_ENDED, ROW_OPERATION, id);
        report_of(&ev->report, id, outcome, json_incref(result));
        if (refuses) {
            ev->report.err = (struct err)ERR_INIT;
            err_set(&ev->report.err, ERR_GENERIC, EPERM, "it is the last good copy");
        } else if (deletes && outcome == MOVER_FAILED && pick(2)) {
            ev->report.err = (struct err)ERR_INIT;
            err_set(&ev->report.err, ERR_BUSY, 0, "the repository is locked");
        }
        event_post(&m.d, ev);
    }
    json_decref(result);
    drop_mover(v);
}

static void ready_mover(struct model_mover *v)
{
    struct event *ev = event_new(EVENT_READY, ROW_OPERATION, v->id);
    char boot[SD_ID128_STRING_MAX];
    ev->identity =
        json_pack("{s:i,s:s,s:s}", "pid", 4711, "bootId", sd_id128_to_string(m.d.world.boot, boot), "unit", v->id);
    v->told = true;
    trace("the mover of %s is ready", v->id);
    count_cell(v->id, CELL_READY);
    event_post(&m.d, ev);
}

/* It tells that it has read something. */
static void read_mover(struct model_mover *v)
{
    struct live *l = live_find(&m.d, v->id);
    v->read = true;
    if (!l)
        return;
    json_take(&l->progress, json_pack("{s:i}", "done", 4096));
    const struct operation *op = operation_peek(m.records, v->id);
    if (op && op->reason != REASON_PREPARE_TIMEOUT) /* else it comes too late */
        put(m.read, v->id);
}

/* ---- acting ---- */

static bool post_hook_wanted(const struct operation *op)
{
    return (op->kind == KIND_BACKUP ? op->policy->hook_post_backup : op->policy->hook_post_restore)[0] != '\0';
}

struct in_batch {
    const struct operation *of;
    const json_t *items;
};
static int check_batch(const struct operation *op, void *arg)
{
    const struct in_batch *x = arg;
    const json_t *item;
    size_t i;
    if (strcmp(op->policy->group, x->of->policy->group) != 0 || op->state != OP_SNAPSHOTTING || op->cancel)
        return 0;
    if (op->stage < STAGE_SNAPSHOT)
        violated("CF-47", "%s is snapshotted before %s of its group is ready", x->of->id, op->id);
    if (op->stage != STAGE_SNAPSHOT)
        return 0;
    json_array_foreach(x->items, i, item) if (!strcmp(jstr(item, "operation"), op->id)) return 0;
    violated("CF-47", "%s is snapshotted without %s of its group", x->of->id, op->id);
}

/* One backup of a volume at a time, the earlier one first. */
static int check_volume_free(const struct operation *other, void *arg)
{
    const struct operation *op = arg;
    if (other->kind == KIND_BACKUP && other->seq < op->seq && strcmp(other->parent, op->parent) != 0)
        violated("AO-47", "%s begins while %s, of the same volume, is %s", op->id, other->id,
                 op_state_name(other->state));
    return 0;
}

/* Nothing is resumed after a restart with on-restart = fail. */
static void check_not_given_up(const char *id, const char *what)
{
    if (json_object_get(m.given_up, id))
        violated("AO-41: on-restart = fail", "%s for %s, which a restart has found begun", what, id);
}

/* RS-03: what is tried again is of the time of the first attempt, of one backup or of another. */
static void check_same_time(const struct operation *op)
{
    CLEANUP(operation_clear) struct operation of = ROW_INIT;
    const char *exposed = jstr(m.first_exposed, op->id);
    const bool known = op->retry_of[0] && operation_get(m.records, op->retry_of, &of, NULL) == 0;
    if (known && (strcmp(of.native, op->native) != 0 || of.snapshot_ns != op->snapshot_ns))
        violated("RS-03", "%s reads native snapshot %s, and %s had %s", op->id, op->native, of.id, of.native);
    if (exposed[0] && strcmp(exposed, op->native) != 0)
        violated("RS-03", "%s reads native snapshot %s, and %s in an attempt before", op->id, op->native, exposed);
    jset_str(m.first_exposed, op->id, op->native);
}

struct half_restored {
    const char *name;
    bool found;
};
static int note_in_place(const struct operation *op, void *arg)
{
    struct half_restored *x = arg;
    x->found |= operation_is_restore(op) && op->in_place && !strcmp(op->target_name, x->name);
    return 0;
}

/* What a restore is writing in place is no backup. */
static void check_not_half_restored(const char *id)
{
    const struct operation_filter live = {.live = true};
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    if (operation_get(m.records, id, &op, NULL) < 0)
        return;
    struct half_restored x = {op.volume->name, false};
    operation_each(m.records, &live, note_in_place, &x, NULL);
    if (x.found)
        violated("AO-47", "the snapshot of %s is taken while a restore writes to %s", id, x.name);
}

/* Of each piece of work before it begins. */
static void check_work(const struct act *a)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    if (a->work == WORK_RUN_HOOK) {
        if (operation_get(m.records, jstr(a->doc, "operation"), &op, NULL) < 0 || op.post_hook_done ||
            !op_state_terminal(op.state) || !post_hook_wanted(&op))
            violated("CF-48", "the hook after %s runs, its operation %s is %s%s", a->id, jstr(a->doc, "operation"),
                     op_state_name(op.state), op.post_hook_done ? " and its hook has run" : "");
        if (backup_get(m.records, a->id, &b, NULL) < 0 || b.state != BACKUP_FINALIZING)
            violated("CF-48", "the hook after %s runs before its end", a->id);
        return;
    }
    if (a->work == WORK_LOOK) {
        if (backup_get(m.records, a->id, &b, NULL) < 0 || b.state != BACKUP_FINALIZING || b.looked)
            violated("AO-38", "the native snapshots of %s are looked at before its end", a->id);
        return;
    }
    if (operation_get(m.records, a->id, &op, NULL) < 0)
        violated("AO-41", "%s for %s, which is not there", work_name(a->work), a->id);
    if (a->work == WORK_SNAPSHOT || a->work == WORK_EXPOSE || a->work == WORK_TARGET || a->work == WORK_OPEN)
        check_not_given_up(a->id, work_name(a->work));
    if (a->work == WORK_POOL || a->work == WORK_SNAPSHOT) {
        const struct operation_filter f = {.volume_id = op.volume_id, .live = true};
        operation_each(m.records, &f, check_volume_free, &op, NULL);
    }
    if (a->work == WORK_BEGIN_HOOK &&
        (op.pre_hook_done || op.expose_intent || (op.kind == KIND_BACKUP && op.native[0] && !op.retry_of[0])))
        violated("CF-48", "the hook before %s runs %s", op.id, op.pre_hook_done ? "again" : "too late");
    if (a->work == WORK_EXPOSE)
        check_same_time(&op);
    if (a->work == WORK_PREPARE_HOOK && (op.prepared || !op.exposure || jbool(op.exposure, "read_only")))
        violated("PVC-25", "the prepare hook of %s runs on what is no writable intermediate", a->id);
    if (a->work == WORK_OPEN && op.policy->hook_prepare[0] && !op.prepared && !jbool(op.exposure, "read_only"))
        violated("PVC-25", "%s is moved and its prepare hook has not run", a->id);
    if (a->work == WORK_SNAPSHOT) {
        const json_t *item;
        size_t i;
        json_array_foreach(jarr(a->doc, "items"), i, item) check_not_half_restored(jstr(item, "operation"));
    }
    if (a->work == WORK_SNAPSHOT && op.policy->group[0]) {
        const struct operation_filter f = {.parent = op.parent, .live = true};
        struct in_batch x = {&op, jarr(a->doc, "items")};
        operation_each(m.records, &f, check_batch, &x, NULL);
    }
}

static void act_work(const struct act *a)
{
    if (work_of(a->id))
        violated("PVC-23: one piece of work for one record", "%s is begun while %s runs for %s", work_name(a->work),
                 work_name(work_of(a->id)->work), a->id);
    if (m.n_works == WORKS_MAX)
        violated("E-02", "more than %u pieces of work run", WORKS_MAX);
    struct live *l = live_get(&m.d, a->id);
    const json_t *item;
    size_t i;
    check_work(a);
    l->working = a->work;
    if (a->work == WORK_SNAPSHOT)
        json_array_foreach(jarr(a->doc, "items"), i, item) live_get(&m.d, jstr(item, "operation"))->working = a->work;
    struct model_work *w = &m.works[m.n_works++];
    *w = (struct model_work){.row = a->row, .work = a->work, .in = json_incref(a->doc)};
    snprintf(w->id, sizeof w->id, "%s", a->id);
    if (one_in(60)) { /* no process can be made */
        struct event *ev = event_new(EVENT_WORK, w->row, w->id);
        ev->work = w->work;
        ev->result.in = json_incref(w->in);
        ev->result.not_started = true;
        err_set(&ev->result.err, ERR_GENERIC, EAGAIN, "cannot start a process");
        drop_work(m.n_works - 1);
        event_post(&m.d, ev);
    }
}

static void act_start(const struct act *a)
{
    struct model_mover *old = mover_of(a->id);
    if (old && old->undone && old->here) { /* it is still there, and its end comes */
        live_get(&m.d, a->id)->mover = true;
        return;
    }
    if (old && (old->here || old->go))
        violated("MS-11", "a second mover of %s is started", a->id);
    if (old) /* of a daemon that died: it waits for its go, which never comes */
        drop_mover(old);
    live_get(&m.d, a->id)->undone = false;
    if (a->op->state != OP_STARTING)
        violated("MS-19", "a mover of %s is started while it is %s", a->id, op_state_name(a->op->state));
    check_not_given_up(a->id, "a mover");
    const struct backup *of = a->op->kind == KIND_ADMIN ? NULL : backup_peek(m.records, a->op->parent);
    if (of && (of->state == BACKUP_FINALIZING || backup_state_terminal(of->state)))
        violated("AO-40", "data of %s is moved and %s is %s", a->id, of->id, backup_state_name(of->state));
    if (one_in(25)) {
        struct event *ev = event_new(EVENT_NOT_STARTED, ROW_OPERATION, a->id);
        ev->transient = pick(3) != 0;
        err_set(&ev->err, ev->transient ? ERR_PASSWORD : ERR_USAGE, 0, "the password cannot be read");
        event_post(&m.d, ev);
        return;
    }
    if (m.n_movers == MOVERS_MAX)
        violated("E-02", "more than %u movers run", MOVERS_MAX);
    struct model_mover *v = &m.movers[m.n_movers++];
    *v = (struct model_mover){.kind = a->op->kind, .here = true};
    v->job = json_pack("{s:s,s:s,s:O?,s:o?}", "volume", a->op->volume_id, "base", a->op->base, "do", a->op->does,
                       "records", a->op->records.n ? record_steps(a->op) : NULL);
    snprintf(v->id, sizeof v->id, "%s", a->id);
    json_object_del(m.results, a->id); /* it begins with an empty result file */
    live_get(&m.d, a->id)->mover = true;
}

static void act_go(const struct act *a)
{
    struct model_mover *v = mover_of(a->id);
    const struct operation *op = operation_peek(m.records, a->id);
    const bool known = op && op->identity[0] && (op->state == OP_RUNNING || op->state == OP_CANCELLING);
    if (v && !known) /* no mover: it has ended in the same turn */
        violated("MS-19", "the mover of %s may begin and its record says %s", a->id,
                 op ? op_state_name(op->state) : "nothing");
    if (v)
        v->go = true;
}

static void note_given_up(const struct operation *op)
{
    const bool meant = op->kind == KIND_BACKUP || op->kind == KIND_RESTORE || op->kind == KIND_VERIFY;
    if (meant && !op->filled && cfg_daemon(m.cfg[m.cfg_now])->on_restart == ON_RESTART_FAIL)
        put(m.given_up, op->id);
}

static void act_adopt(const struct act *a)
{
    struct model_mover *v = mover_of(a->id);
    if (v) {
        if (v->here)
            violated("MS-50", "the mover of %s is adopted twice", a->id);
        v->here = true;
        v->told = true;
        v->cancel |= a->op->cancel || a->op->state == OP_CANCELLING;
        live_get(&m.d, a->id)->mover = true;
        if (v->read)
            read_mover(v);
        if (!v->go && !v->cancel) /* its go was lost with the daemon: it gives up by itself */
            v->cancel = true;
        return;
    }
    struct event *ev = event_new(EVENT_ENDED, ROW_OPERATION, a->id);
    json_t *result = json_object_get(m.results, a->id);
    if (!result)
        note_given_up(a->op);
    report_of(&ev->report, a->id, result ? MOVER_OK : MOVER_DIED, json_incref(result));
    ev->report.looked_for = true;
    count_cell(a->id, result ? CELL_OK : CELL_FAILED);
    event_post(&m.d, ev);
}

static void act_one(const struct act *a)
{
    struct model_mover *v;
    switch (a->kind) {
    case ACT_WORK:
        act_work(a);
        break;
    case ACT_WORK_CANCEL:
        for (unsigned i = 0; i < m.n_works; i++)
            if (!strcmp(m.works[i].id, a->id)) {
                end_work(i, maybe() ? 2 : 1, true);
                break;
            }
        break;
    case ACT_MOVER_START:
        act_start(a);
        break;
    case ACT_MOVER_GO:
        act_go(a);
        break;
    case ACT_MOVER_ADOPT:
        act_adopt(a);
        break;
    case ACT_MOVER_CANCEL:
        if (one_in(20) && live_find(&m.d, a->id))
            live_find(&m.d, a->id)->cancel_failed = true;
        else if ((v = mover_of(a->id)))
            v->cancel = true;
        break;
    case ACT_MOVER_FORGET:
        if (!mover_of(a->id))
            json_object_del(m.results, a->id);
        if (live_find(&m.d, a->id) && !live_find(&m.d, a->id)->mover)
            live_find(&m.d, a->id)->undone = false;
        break;
    case ACT_LIVE_DROP:
        live_drop(&m.d, a->id);
        break;
    case ACT_LOG:
        trace("log: %s", a->text);
        break;
    case ACT_JOURNAL_OPERATION:
    case ACT_JOURNAL_RUN:
    case ACT_NATIVES:
    case ACT_SWEEP_KEPT: /* sooner or later: by sweep_kept() */
    case ACT_CRASH_POINT:
        break;
    case ACT_REQUEST_ENDED:
        a->event->request.ended(&a->event->err, a->event->request.arg);
        break;
    }
}

/* ---- daemons ---- */

static int count_missing(const struct operation *op, void *arg)
{
    *(int *)arg += op->unverified[0] != '\0';
    return 0;
}

static bool is_whole(const char *backup)
{
    const struct operation_filter f = {.parent = backup};
    int missing = 0;
    operation_each(m.records, &f, count_missing, &missing, NULL);
    return !missing;
}

/* A row that has ended counts once its transaction is durable. */
static void note_end(enum row_kind k, const char *id, const void *was, const void *now)
{
    const struct operation *o = now, *p = was;
    const struct backup *b = now, *c = was;
    if (k == ROW_OPERATION && o && op_state_terminal(o->state) && p && !op_state_terminal(p->state))
        json_array_append_new(m.ending,
                              json_pack("{s:s,s:i,s:s,s:s,s:i,s:b,s:b,s:b,s:I}", "operation", id, "kind", (int)k,
                                        "backup", o->parent, "volume", o->kind == KIND_BACKUP ? o->volume_id : "",
                                        "outcome", (int)o->outcome, "moved", (int)o->policy->move_data, "completed",
                                        (int)(o->state == OP_COMPLETED && !o->unverified[0]), "retry",
                                        (int)(o->retry_of[0] != '\0'), "snapshot_ns", (json_int_t)o->snapshot_ns));
    else if (k == ROW_BACKUP && b && backup_state_terminal(b->state) && c && !backup_state_terminal(c->state))
        json_array_append_new(m.ending,
                              json_pack("{s:s,s:i,s:b}", "operation", id, "kind", (int)k, "whole", (int)is_whole(id)));
}

static void ends_durable(bool durable)
{
    const json_t *x;
    size_t i;
    json_array_foreach(m.ending, i, x)
    {
        const char *id = jstr(x, "operation"), *volume = jstr(x, "volume");
        if (!durable)
            continue;
        if (json_object_get(m.ended, id))
            violated("exactly once", "%s ends a second time", id);
        json_object_set(m.ended, id, json_object_get(x, "kind"));
        if (jbool(x, "whole"))
            json_object_set_new(m.whole, id, json_true());
        if (volume[0])
            json_object_set(m.last_ended, volume, (json_t *)(uintptr_t)x);
        const json_t *before = jobj(m.last_completed, volume);
        const bool older = before && jbool(x, "retry") && jint(x, "snapshot_ns") < jint(before, "snapshot_ns");
        if (volume[0] && jbool(x, "completed") && !older)
            json_object_set(m.last_completed, volume, (json_t *)(uintptr_t)x);
    }
    json_array_clear(m.ending);
}

static void row_changed(enum row_kind k, const char *id, const void *was, const void *now, void *arg)
{
    (void)arg;
    note_end(k, id, was, now);
    note_state_change(k, id, was, now);
    if (m.changing)
        m.changing(k, id, was, now);
    decide_row_changed(&m.d, k, id, was, now);
}

static void set_repository(void)
{
    struct repo_health *h = repository_health(&m.d, "main");
    h->known = true;
    h->up = m.repo_up;
    snprintf(h->why, sizeof h->why, "%s", m.repo_up ? "" : "it is away");
}

static void records_start(void)
{
    struct err e = ERR_INIT;
    struct records_news news;
    if (records_open(&m.records, m.dir, &news, &e) < 0)
        violated("AO-41", "the records do not open: %s", e.msg);
}

/* Reads the records unless they are open. */
static void daemon_start(void)
{
    struct err e = ERR_INIT;
    m.d = (struct decide){.world = {.clock = model_clock, .cfg = m.cfg[m.cfg_now], .ids = &m.ids, .writable = true}};
    m.d.world.boot.qwords[0] = m.boot;
    if (!m.records)
        records_start();
    m.d.records = m.records;
    if (decide_init(&m.d, &e) < 0 || rows_watch(m.records, row_changed, &m) < 0)
        violated("AO-41", "it does not start: %s", e.msg);
    set_repository();
    decide_look_at_all(&m.d);
}

static void daemon_end(bool keep_records)
{
    rows_unwatch(m.records, &m);
    decide_free(&m.d);
    if (keep_records)
        return;
    records_close(m.records);
    m.records = NULL;
}

static int note_restart(const struct operation *op, void *arg)
{
    (void)arg;
    if (op->state == OP_SNAPSHOTTING || op->state == OP_EXPOSING || op->state == OP_STARTING ||
        op->state == OP_RETRYING)
        note_given_up(op);
    return 0;
}

/* The daemon dies, with the machine or alone; another one is started. */
static void restart(bool reboot)
{
    const struct operation_filter live = {.live = true};
    trace(reboot ? "the machine reboots" : "the daemon dies");
    json_object_clear(m.answered); /* what it was told is lost */
    json_object_clear(m.unprepared);
    json_object_clear(m.late);
    json_object_clear(m.read);
    count_all(CELL_RESTART);
    operation_each(m.records, &live, note_restart, NULL, NULL);
    while (m.n_works) { /* its children die with it, at any point of what they do */
        if (maybe() && m.works[0].work != WORK_COMMIT)
            json_decref(apply(&m.works[0]));
        drop_work(0);
    }
    /* What is durable is what the records have in memory now: to read all of it again takes long, and is done by some.
     */
    daemon_end(!m.quiet && pick(4));
    for (unsigned i = m.n_movers; i-- > 0;) {
        struct model_mover *v = &m.movers[i];
        v->here = false;
        if (reboot)
            drop_mover(v);
        else if (!v->told && maybe())
            drop_mover(v); /* it was only being started */
    }
    if (reboot) {
        m.boot++;
        m.now += NS_PER_MIN;
    }
    daemon_start();
    if (m.died)
        m.died();
}

/* ---- turns ---- */

/* What moves in each class and on each device, and the highest limit of those that do: each found the others below its
 * own when it began. */
#define LIMITS 14 /* four classes, ten devices */
struct limits {
    unsigned n[LIMITS], most[LIMITS];
};

static void note_limit(struct limits *x, unsigned i, int64_t limit)
{
    const unsigned most = limit ? (unsigned)limit : UINT_MAX;
    x->n[i]++;
    if (most > x->most[i])
        x->most[i] = most;
}

static void note_limits(const struct operation *op, struct limits *x)
{
    const bool moving = op->state == OP_STARTING || op->state == OP_RUNNING || op->state == OP_CANCELLING;
    int64_t per_device = op->policy->max_per_device;
    if (!moving || (op->kind != KIND_BACKUP && op->kind != KIND_RESTORE) || op->filled)
        return;
    for (unsigned i = 0; i < 3 && !op->policy->max_per_device; i++)
        if (cfg_daemon(m.cfg[i])->per_device > per_device)
            per_device = cfg_daemon(m.cfg[i])->per_device;
    note_limit(x, (unsigned)(op->own->name[0] - 'a') % 4, op->own->max);
    note_limit(x, 4 + (unsigned)(op->volume->pool[4] - '0') % 10, per_device);
}

static int check_operation(const struct operation *op, void *arg)
{
    const char *was = jstr(m.outcomes, op->id), *now = outcome_name(op->outcome);
    /* MS-62, AO-09: an outcome that is recorded does not change. */
    if (was[0] && strcmp(was, now) != 0)
        violated("MS-62", "the outcome of %s was %s and is %s", op->id, was, now);
    if (now[0] && !was[0])
        json_object_set_new(m.outcomes, op->id, json_string(now));
    const struct policy *p = op->policy;
    if (op->attempt > p->retries)
        violated("MS-17", "%s is in attempt %lld, retries are %lld", op->id, (long long)op->attempt + 1,
                 (long long)p->retries);
    if (op->state == OP_RETRYING && !op->interruptions && op->wake_ns &&
        (op->wake_ns < op->state_since_ns + p->retry_first_s * NS_PER_S ||
         op->wake_ns > op->state_since_ns + p->retry_max_s * NS_PER_S))
        violated("MS-17", "%s is tried again after %lld s", op->id,
                 (long long)((op->wake_ns - op->state_since_ns) / NS_PER_S));
    if (op->prepare_deadline_ns && op->state != OP_RETRYING && op->wake_ns != op->prepare_deadline_ns)
        violated("PVC-20", "%s has a deadline, and is not looked at then", op->id);
    if (op->prepare_deadline_ns && (op->state == OP_QUEUED || op->state == OP_CLEANING_UP || op->read_begun))
        violated("PVC-20", "the clock of prepare-timeout of %s runs while it is %s", op->id, op_state_name(op->state));
    note_limits(op, arg);
    return 0;
}

static void check_limits(const struct limits *x)
{
    for (unsigned i = 0; i < LIMITS; i++)
        if (x->n[i] > x->most[i])
            violated(i < 4 ? "CF-20: max-per-class" : "CF-20: max-per-device", "%u operations move, %u may", x->n[i],
                     x->most[i]);
}

struct running {
    unsigned backups, restores;
};

static void check_slots(void)
{
    struct running x = {0};
    for (unsigned i = 0; i < m.n_movers; i++) {
        if ((!m.movers[i].here || m.movers[i].undone) && !m.movers[i].go)
            continue; /* of a daemon that died, or of a turn that was undone: it has no go */
        x.backups += m.movers[i].kind == KIND_BACKUP;
        x.restores += m.movers[i].kind == KIND_RESTORE;
    }
    unsigned slots = 0, reserved = 0;
    for (unsigned i = 0; i < 3; i++) { /* a reload may have lowered them */
        const struct cfg_daemon *c = cfg_daemon(m.cfg[i]);
        slots = c->slots > slots ? c->slots : slots;
        reserved = c->restore_reserved > reserved ? c->restore_reserved : reserved;
    }
    if (x.backups > slots || x.backups + x.restores > slots + reserved)
        violated("E-02", "%u backups and %u restores move with %u and %u slots", x.backups, x.restores, slots,
                 reserved);
}

/* A request has more to change in the same turn. False: the daemon dies. */
static bool parts_go_on(void)
{
    while (decide_pauses(&m.d)) {
        trace("a request goes on");
        if (m.between)
            m.between();
        for (unsigned n = m.meanwhile ? pick(3) : 0; n; n--)
            m.meanwhile();
        if (m.meanwhile && one_in(60))
            return false;
        if (m.meanwhile && one_in(60))
            decide_part_undo(&m.d);
        else
            decide_turn(&m.d, m.narrow ? 1 : one_in(4) ? 1 + pick(4) : 256);
    }
    return true;
}

/* Movers are started before the commit, and more is decided in the same turn. False: the daemon dies. */
static bool turn_goes_on(void)
{
    while (m.meanwhile && decide_may_go_on(&m.d) && maybe()) {
        bool starts = false;
        trace("the turn goes on");
        for (size_t i = 0; i < m.d.plan.n; i++) {
            struct act *a = &m.d.plan.acts[i];
            starts |= act_is_early(a);
            if (a->done || !act_is_early(a))
                continue;
            a->done = true;
            act_one(a);
        }
        if (!starts || m.d.plan.failed)
            violated("AO-41", "a turn goes on that %s", starts ? "has failed" : "has started nothing");
        decide_go_on(&m.d);
        for (unsigned n = pick(4); n; n--)
            m.meanwhile();
        if (one_in(60))
            return false;
        decide_turn(&m.d, one_in(4) ? 2 + pick(4) : 256);
        if (!parts_go_on())
            return false;
    }
    return true;
}

/* What it has started waits for its go, and is asked to end. */
static void end_early(void)
{
    for (size_t i = 0; i < m.d.plan.n; i++) {
        struct model_mover *v = m.d.plan.acts[i].done ? mover_of(m.d.plan.acts[i].id) : NULL;
        if (v)
            v->undone = v->cancel = true;
    }
}

static void roll_back(void)
{
    rows_undone = true;
    records_rollback(m.records);
    rows_undone = false;
}

/* Nothing of it is recorded, because of what its one unit has changed (`e`); the next one is of one unit alone. */
static void turn_undone(const struct err *e)
{
    ends_durable(false);
    records_counters_settle(m.records);
    end_early();
    decide_undone(&m.d);
    if (!m.quiet || !e->cls)
        return;
    if (m.d.units == 1)
        decide_blame(&m.d, e);
    m.narrow = m.d.units > 1;
    m.fail_commit = m.narrow && e == &m.blame; /* until it stands alone */
    if (!m.fail_commit)
        m.blame = (struct err)ERR_INIT;
}

static void turn(void)
{
    const struct operation_filter live = {.live = true};
    struct err e = ERR_INIT;
    if (records_begin(m.records, &e) < 0)
        violated("AO-41", "no transaction: %s", e.msg);
    records_counters_hold(m.records);
    m.d.world.cfg = m.cfg[m.cfg_now];
    decide_turn(&m.d, m.narrow ? 1 : one_in(4) ? 1 + pick(4) : 256);
    if (!parts_go_on() || (!m.narrow && !turn_goes_on())) {
        roll_back();
        ends_durable(false);
        records_counters_settle(m.records);
        restart(false);
        return;
    }
    m.narrow = false;
    if (m.d.plan.failed || (m.d.asides && !m.blamed))
        violated("AO-41", "a plan fails without a cause");
    if (odd_state[0])
        violated("the table of states", "%s", odd_state);
    if (m.fail_commit) {
        trace("the commit fails");
        m.fail_commit = false;
        roll_back();
        turn_undone(&m.blame);
        if (m.d.units == 1 && (m.blamed = true) && !m.quiet &&
            err_set(&e, ERR_GENERIC, pick(2) ? EIO : E2BIG, "a bad page"))
            decide_blame(&m.d, &e);
        return;
    }
    rows_undone = m.blamed; /* what cannot be written is */
    const int rc = records_commit(m.records, &e);
    rows_undone = false;
    if (rc < 0 && !m.quiet)
        violated("AO-41", "no commit: %s", e.msg);
    if (rc < 0) {
        turn_undone(&e);
        return;
    }
    ends_durable(true);
    records_counters_settle(m.records);
    const size_t n = m.d.plan.n, until = one_in(80) ? pick((unsigned)n + 1) : n;
    for (size_t i = 0; i < until; i++) {
        if (m.d.plan.acts[i].done)
            continue;
        if (m.acting)
            m.acting(&m.d.plan.acts[i]);
        act_one(&m.d.plan.acts[i]);
    }
    decide_acted(&m.d);
    check_slots();
    struct limits limits = {.n = {0}};
    operation_each(m.records, &live, check_operation, &limits, NULL);
    check_limits(&limits);
    if (until < n)
        restart(false); /* between commit and act */
}

#endif
