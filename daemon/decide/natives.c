/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * natives.c - native snapshots in the records: making room, and what the storage and the repository answer
 */
#include "base/cleanup.h"
#include "base/time.h"
#include "daemon/decide/damaged.h"
#include "daemon/records/opaque.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CHECKS_MAX 4       /* questions to a repository for one operation */
#define PRUNE_ROUNDS_MAX 6 /* removals for one operation */
#define POOL_WAIT_S 60     /* for one that does not come to an end */
#define POOL_TEXT 320

/* A time in the future is of before the clock was set back: of how long ago is not known. */
static bool is_proved(const struct decide *d, const struct native_row *r, int64_t since_ns)
{
    return r->verified_ns >= since_ns && r->verified_ns <= decide_now(d);
}

/* A raw device has no snapshot that would be removed. */
static bool is_trusted(const struct decide *d, const struct native_facts *f, const struct native_row *r,
                       int64_t since_ns)
{
    return !f->moved || is_proved(d, r, since_ns) || r->state == NATIVE_REMOVING || !r->snapshot[0] ||
           driver_is_raw(r->driver);
}

/* What retention has removed from the repository goes only while the volume's newest data is seen there, by a mover
 * that was started for it: the one that says what has expired may lie (RS-18). */
static bool newer_is_safe(struct decide *d, const struct native_facts *f, size_t n, const struct native_facts *of,
                          int64_t since_ns, json_t *check)
{
    const struct native_facts *newest = NULL;
    for (size_t i = 0; i < n; i++)
        if (f[i].moved && f[i].seq > of->seq && (!newest || f[i].seq > newest->seq))
            newest = &f[i];
    CLEANUP(native_row_clear) struct native_row r;
    native_row_init(&r);
    if (!newest || native_row_read(d, newest->alias, &r) < 0 || !r.snapshot[0])
        return false;
    const bool proved = is_proved(d, &r, since_ns);
    if (!proved)
        jset_str(check, r.snapshot, r.id);
    return proved;
}

/* ---- pools over their high-water mark ---- */

static void pool_name(const char *driver, const struct volume_desc *v, char out[POOL_TEXT])
{
    snprintf(out, POOL_TEXT, "%s:%s", driver, v->pool[0] ? v->pool : v->id);
}

bool natives_pool_busy(struct decide *d, const char *driver, const struct volume_desc *v)
{
    char pool[POOL_TEXT];
    pool_name(driver, v, pool);
    return json_integer_value(json_object_get(d->pruning.busy, pool)) > decide_now(d);
}

/* All volumes of a pool are over its mark at once: one native snapshot is removed, and then the pool is measured again
 * before another one is, of whichever volume (RS-30). True: not this one, as matters stand. */
static bool pool_unsettled(struct decide *d, const struct native_row *r, int64_t measured_ns)
{
    char pool[POOL_TEXT];
    pool_name(r->driver, r->volume, pool);
    const json_t *last = json_object_get(d->pruning.removed, pool);
    const int64_t removed = last ? json_integer_value(last) : d->pruning.since_ns;
    return natives_pool_busy(d, r->driver, r->volume) || (removed > measured_ns && removed <= decide_now(d));
}

static void pool_prune(struct decide *d, const struct native_row *r)
{
    char pool[POOL_TEXT];
    pool_name(r->driver, r->volume, pool);
    if (!d->pruning.busy)
        d->pruning.busy = json_object();
    jset_int(d->pruning.busy, pool, decide_now(d) + POOL_WAIT_S * NS_PER_S);
}

static void pool_pruned(struct decide *d, const struct native_row *r)
{
    char pool[POOL_TEXT];
    pool_name(r->driver, r->volume, pool);
    json_object_del(d->pruning.busy, pool);
    if (!d->pruning.removed)
        d->pruning.removed = json_object();
    jset_int(d->pruning.removed, pool, decide_now(d));
}

/* ---- the plan of one volume ---- */

int natives_plan_prune(struct decide *d, const char *volume_id, const struct native_rules *rules, int64_t since_ns,
                       json_t **items, json_t **check, struct native_verdict *v, struct err *e)
{
    CLEANUP_FREE struct native_facts *f = NULL;
    size_t n = 0;
    int rc = natives_gather(d->records, volume_id, &f, &n, e);
    if (rc < 0)
        return rc;
    struct native_rules now = *rules;
    natives_note_jobs(d->records, d->world.cfg, &now, f, n);
    natives_plan(&now, f, n, v);
    plan_natives(d, f, n);
    *items = json_array();
    *check = json_object();
    for (size_t i = 0; i < n; i++) {
        CLEANUP(native_row_clear) struct native_row r;
        native_row_init(&r);
        if (!f[i].prune || native_row_read(d, f[i].alias, &r) < 0 || r.state == NATIVE_CREATING)
            continue;
        if (!is_trusted(d, &f[i], &r, since_ns)) {
            jset_str(*check, r.snapshot, r.id);
            continue;
        }
        if (r.expired && r.moved && f[i].expired && r.state != NATIVE_REMOVING &&
            !newer_is_safe(d, f, n, &f[i], since_ns, *check))
            continue;
        if (f[i].for_pool && pool_unsettled(d, &r, rules->pool_ns)) {
            v->measure_again = true;
            continue;
        }
        /* Of one that is missing only the record goes, and only if it still is: its storage may have come back. */
        const bool missing = r.state == NATIVE_MISSING;
        if (!missing && r.state != NATIVE_REMOVING) {
            str_set(&r.why_removed, f[i].why);
            if (r.bookmark && !f[i].leaves_bookmark)
                r.cbt_parent = false; /* the bookmark is removed, too */
            if (native_row_become(d, &r, NATIVE_REMOVING) < 0)
                continue;
        }
        if (f[i].for_pool)
            pool_prune(d, &r);
        json_t *item = native_pruning(&r);
        jset_bool(item, "missing", missing && !json_object_get(item, "only_bookmark"));
        json_array_append_new(*items, item);
    }
    return 0;
}

void natives_note_checked(struct decide *d, const struct operation *check)
{
    const char *snapshot, *why;
    const json_t *alias;
    json_object_foreach(check->aliases, snapshot, alias)
    {
        CLEANUP(native_row_clear) struct native_row n;
        native_row_init(&n);
        const enum checked found = mover_result_checked(&check->result, snapshot, &why);
        const struct native_row *known = native_row_peek(d->records, json_string_value(alias));
        /* All that have asked note it: those that come later find it noted, or the snapshot gone. */
        const int64_t noted_ns = !known ? 0 : found == CHECKED_READABLE ? known->verified_ns : known->disproved_ns;
        if (!known || (noted_ns && noted_ns >= check->completed_ns))
            continue;
        if (found == CHECKED_NONE || native_row_read(d, json_string_value(alias), &n) < 0)
            continue;
        if (found == CHECKED_READABLE) {
            n.verified_ns = decide_now(d);
            n.moved_verified |= n.disproved_ns != 0;
            n.disproved_ns = 0;
            damaged_found_fit(d, check->policy->repository, &n);
        } else if (n.expired) {
            plan_log(d, LOG_LVL_INFO,
                     "snapshot %s of %s has expired from the repository; its native snapshot is removed, too", snapshot,
                     n.volume->name);
            n.moved_verified = false;
        } else {
            plan_log(d, LOG_LVL_WARNING, "snapshot %s of %s cannot replace its native snapshot, which is kept: %.300s",
                     snapshot, n.volume->name, why[0] ? why : "not readable");
            n.moved_verified = false;
            const enum unfit unfit = mover_result_unfit(&check->result, snapshot);
            n.disproved_ns = unfit == UNFIT_ABSENT ? 0 : decide_now(d); /* what was removed is not asked about again */
            damaged_found_unfit(d, check->policy->repository, &n, unfit, why[0] ? why : "not readable");
        }
        native_row_write(d, &n);
    }
}

/* What the snapshot must be to count as this native snapshot's data (RS-18): a mover may have named any that exists.
 * What the record does not know is not compared. */
static json_t *native_expected(struct decide *d, const char *alias)
{
    CLEANUP(native_row_clear) struct native_row n;
    CLEANUP(operation_clear) struct operation op;
    char source[SOURCE_TEXT];
    json_t *x = json_object();
    native_row_init(&n);
    operation_init(&op);
    if (native_row_read(d, alias, &n) < 0)
        return x;
    if (n.source[0]) {
        jset_str(x, "source", n.source);
    } else if (n.operation[0] && operation_read(d, n.operation, &op) == 0 && op.result.as[0]) {
        operation_source(&op, source);
        jset_str(x, "source", source);
    } else if (!n.adopted && n.klass->node[0]) { /* of an earlier version, which named sources so */
        snprintf(source, sizeof source, "snapferry@%s:/%s", n.klass->node, n.volume_id);
        jset_str(x, "source", source);
    }
    jset_str(x, "volume", n.volume_id);
    if (n.operation[0])
        jset_str(x, "operation", n.operation);
    expect_between(x, n.native->created_ns, n.moved_ns);
    if (n.moved_size > 0)
        jset_int(x, "size", n.moved_size);
    return x;
}

/* `before`: what is asked already (NULL: nothing), and stays as it is. */
static json_t *check_steps(struct decide *d, const struct check_step *before, const json_t *aliases)
{
    json_t *ids = before ? json_copy(before->snapshots) : json_array();
    json_t *expect = before ? json_copy(before->expect) : json_object(), *alias;
    const char *snapshot;
    json_object_foreach((json_t *)(uintptr_t)aliases, snapshot, alias)
    {
        if (!json_object_get(expect, snapshot))
            json_array_append_new(ids, json_string(snapshot));
        json_object_set_new(expect, snapshot, native_expected(d, json_string_value(alias)));
    }
    return json_pack("[{s:s,s:o,s:o}]", "verb", "check", "snapshots", ids, "expect", expect);
}

struct again {
    const char *repository;
    int64_t since_ns;
    json_t *check;
};
static int ask_again(const struct native_row *n, void *arg)
{
    const struct again *x = arg;
    if (n->moved && !n->moved_verified && n->disproved_ns && n->disproved_ns < x->since_ns && !n->expired &&
        n->snapshot[0] && n->state != NATIVE_CREATING && n->state != NATIVE_REMOVING &&
        !strcmp(n->policy->repository, x->repository))
        jset_str(x->check, n->snapshot, n->id);
    return 0;
}

int natives_ask_again(struct decide *d, const char *volume_id, const char *repository, int64_t since_ns, json_t *check,
                      struct err *e)
{
    const struct native_row_filter f = {.volume_id = volume_id};
    struct again x = {repository, since_ns, check};
    return native_row_each(d->records, &f, ask_again, &x, e);
}

/* Who is asked about others anyway is asked about it, too. */
static void ask_about_own(const struct operation *op, json_t *check)
{
    const char *snapshot = operation_unproven(op);
    if (snapshot[0] && json_object_size(check))
        jset_str(check, snapshot, op->native);
}

static void note_proven(struct decide *d, struct operation *op, const struct operation *check)
{
    const char *snapshot = operation_unproven(op), *why;
    if (strcmp(asked_alias(check->aliases, snapshot), op->native) != 0)
        return; /* it was asked about for another native snapshot: what was expected was that one's */
    const enum checked found = mover_result_checked(&check->result, snapshot, &why);
    if (found == CHECKED_READABLE)
        op->verified_ns = decide_now(d);
    else if (found == CHECKED_UNREADABLE)
        operation_disproved(op, why);
}

/* A check that has not begun takes in more. */
static bool check_extend(struct decide *d, const char *id, const json_t *check, enum asking how)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    const struct operation *there = id[0] ? operation_peek(d->records, id) : NULL;
    if (!there || there->state != OP_QUEUED || there->cancel || busy(d, id) || operation_read(d, id, &op) < 0)
        return false;
    const struct check_step before = check_step_read(op.does);
    json_t *all = json_copy(op.aliases);
    if (!all || json_object_update(all, (json_t *)(uintptr_t)check) < 0) {
        json_decref(all);
        return false;
    }
    json_take(&op.does, check_steps(d, &before, check));
    json_take(&op.aliases, all);
    if (how != ASK_PATIENT)
        op.wake_ns = 0;
    op.requested |= how == ASK_REQUEST;
    return operation_write(d, &op) == 0;
}

int natives_ask_repository(struct decide *d, const char *repository, json_t *check, enum asking how, char id[512],
                           struct err *e)
{
    CLEANUP(operation_clear) struct operation op = ROW_INIT;
    struct repo_health *h = repository_health(d, repository);
    if (h && check_extend(d, h->next_check_id, check, how)) {
        snprintf(id, 512, "%s", h->next_check_id);
        return 0;
    }
    operation_init(&op);
    op.does = check_steps(d, NULL, check);
    json_set(&op.aliases, check);
    op.requested = how == ASK_REQUEST;
    if (how == ASK_PATIENT)
        admin_gather(d, &op);
    int rc = admin_add(d, KIND_ADMIN, "admin-check", repository, &op, NULL, id, e);
    if (rc == 0 && h)
        snprintf(h->next_check_id, sizeof h->next_check_id, "%s", id);
    return rc;
}

bool natives_asked(struct decide *d, const struct operation *op, char *out, size_t cap)
{
    CLEANUP(operation_clear) struct operation asked;
    operation_init(&asked);
    const char *id = op->check_operation, *why;
    if (!id[0] || operation_read(d, id, &asked) < 0 || op_state_terminal(asked.state))
        return false;
    why = asked.state == OP_RETRYING ? asked.error.message : asked.state == OP_QUEUED ? asked.waiting : "";
    snprintf(out, cap, "waiting for %s: %.700s", id,
             why[0] ? why : "checking snapshots in the repository before pruning");
    return true;
}

bool natives_ask_ahead(struct decide *d, struct operation *op, const struct native_rules *rules, int64_t since_ns)
{
    CLEANUP_FREE struct native_facts *f = NULL;
    CLEANUP_JSON json_t *check = json_object();
    struct native_verdict v;
    char id[512];
    size_t n = 0;
    if (!check || natives_gather(d->records, op->volume_id, &f, &n, NULL) < 0)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!strcmp(f[i].alias, op->native))
            f[i].in_use = false; /* as it will be */
    natives_plan(rules, f, n, &v);
    for (size_t i = 0; i < n; i++) {
        const struct native_row *r = f[i].prune ? native_row_peek(d->records, f[i].alias) : NULL;
        if (r && r->state != NATIVE_CREATING && !is_trusted(d, &f[i], r, since_ns))
            jset_str(check, r->snapshot, r->id);
    }
    if (natives_ask_again(d, op->volume_id, op->policy->repository, since_ns, check, NULL) < 0)
        return false;
    ask_about_own(op, check);
    if (!json_object_size(check) || natives_ask_repository(d, op->policy->repository, check, ASK_PATIENT, id, NULL) < 0)
        return false;
    str_set(&op->check_operation, id);
    return true;
}

void natives_leave_check(struct decide *d, struct operation *op)
{
    CLEANUP(operation_clear) struct operation check = ROW_INIT;
    char id[BOARD_ID_MAX];
    snprintf(id, sizeof id, "%s", op->check_operation);
    str_clear(&op->check_operation);
    if (!id[0] || operation_write(d, op) < 0 || !operation_peek(d->records, id) || board_waits_for(d->board, id) ||
        operation_read(d, id, &check) < 0)
        return;
    if (!check.requested && !op_state_terminal(check.state) && check.state != OP_CLEANING_UP)
        operation_ask_cancel(d, &check, "what asked for it was canceled");
}

static void drop_missing(json_t *items)
{
    for (size_t i = json_array_size(items); i-- > 0;)
        if (json_is_true(json_object_get(json_array_get(items, i), "missing")))
            json_array_remove(items, i);
}

int natives_make_room(struct decide *d, struct operation *op, const struct native_rules *rules, int64_t since_ns,
                      struct native_verdict *v, struct err *e)
{
    CLEANUP_JSON json_t *items = NULL, *check = NULL;
    CLEANUP(operation_clear) struct operation asked;
    operation_init(&asked);
    const char *id = op->check_operation;
    if (id[0] && operation_read(d, id, &asked) == 0) {
        const bool ended = op_state_terminal(asked.state);
        if (!ended && !op->cancel)
            return 1;
        if (ended) {
            natives_note_checked(d, &asked);
            note_proven(d, op, &asked);
            str_clear(&op->check_operation);
        } else {
            natives_leave_check(d, op);
        }
        /* One that failed has had its retries: the next would fail as well. Nor is one waited for after a cancel: it
         * may read for minutes. What is not known to be safe stays. */
        op->checks = asked.state != OP_COMPLETED ? CHECKS_MAX : op->checks + 1;
        int rc = operation_write(d, op);
        if (rc < 0)
            return rc;
    }
    int rc = natives_plan_prune(d, op->volume_id, rules, since_ns, &items, &check, v, e);
    if (rc < 0)
        return rc;
    if (op->releasing)
        rc = natives_ask_again(d, op->volume_id, op->policy->repository, since_ns, check, e);
    if (rc < 0)
        return rc;
    ask_about_own(op, check);
    if (json_object_size(check) && op->checks < CHECKS_MAX && !op->cancel) {
        char fresh[512];
        if (natives_ask_repository(d, op->policy->repository, check, op->releasing ? ASK_PATIENT : ASK_NOW, fresh,
                                   NULL) == 0)
            str_set(&op->check_operation, fresh);
        else
            op->checks = CHECKS_MAX; /* nobody to ask: what is not known to be safe stays */
        rc = operation_write(d, op);
        return rc < 0 ? rc : 1;
    }
    if (op->prune_rounds > 0)
        drop_missing(items); /* they were looked for */
    if (json_array_size(items) && op->prune_rounds < PRUNE_ROUNDS_MAX) {
        plan_work(d, ROW_OPERATION, op->id, WORK_PRUNE, json_pack("{s:O}", "items", items),
                  op->policy->snapshot_timeout_s);
        return 1;
    }
    return 0;
}

void natives_pruned(struct decide *d, struct operation *op, const struct work_result *s)
{
    if (!s->err.cls)
        natives_removed(d, &s->answer);
    else
        plan_log(d, LOG_LVL_WARNING, "%s: native snapshots cannot be pruned: %s", operation_label(op), s->err.msg);
    /* What could not be removed is planned again; a storage that is full will say so itself. */
    op->prune_rounds = op->prune_rounds + 1;
    operation_write(d, op);
}

int native_seen_again(struct decide *d, struct native_row *r)
{
    str_clear(&r->remove_error.message);
    str_clear(&r->remove_error.hint);
    r->remove_error.cls = r->remove_error.sys = 0;
    str_clear(&r->why_removed);
    return native_row_become(d, r, NATIVE_PRESENT);
}

/* What is in its place and has no tag of ours is not ours to remove, however often: of the native snapshot nothing is
 * left but the record, which stays while that is there (RS-11). */
static void removal_failed(struct decide *d, struct native_row *r, const struct op_error *error)
{
    const bool news = strcmp(r->remove_error.message, error->message) != 0;
    records_counter_add(d->records, "snapshot_delete_failures_total", NULL, 1, NULL);
    if (news)
        plan_log(d, LOG_LVL_WARNING, "native snapshot %s of %s cannot be removed: %s", r->id, r->volume->name,
                 error->message);
    str_set(&r->remove_error.message, error->message);
    str_set(&r->remove_error.hint, error->hint);
    r->remove_error.cls = error->code;
    r->remove_error.sys = error->sys;
    if (r->state == NATIVE_REMOVING && native_is_foreign(r))
        native_row_become(d, r, NATIVE_MISSING);
    else if (news)
        native_row_write(d, r);
}

void native_forget(struct decide *d, const struct native_row *r, const char *what)
{
    char why[100];
    snprintf(why, sizeof why, "was a native snapshot alone, which was %s", what);
    if (native_row_delete(d->records, r->id, NULL) == 0 && r->snapshot_only)
        volume_backup_lost(d, r->volume_id, r->parent, why, NULL);
}

void natives_removed(struct decide *d, const struct step_answer *answer)
{
    const struct step_item *a = answer->items.v;
    for (unsigned i = 0; i < answer->items.n; i++, a++) {
        const char *alias = a->alias;
        CLEANUP(native_row_clear) struct native_row r;
        native_row_init(&r);
        if (!alias[0] || native_row_read(d, alias, &r) < 0)
            continue;
        pool_pruned(d, &r);
        if (a->error.code) {
            removal_failed(d, &r, &a->error);
            continue;
        }
        if (a->there) {
            plan_log(d, LOG_LVL_INFO, "native snapshot %s of %s is on the storage again", alias, r.volume->name);
            native_seen_again(d, &r);
            if (r.snapshot_only)
                volume_backup_found(d, r.volume_id);
            continue;
        }
        if (a->gone && !(r.bookmark && r.state == NATIVE_MISSING))
            plan_log(d, LOG_LVL_WARNING, "native snapshot %s of %s was already gone", alias, r.volume->name);
        /* It may have ceased to be a base meanwhile: then the next plan removes the bookmark. */
        if (!a->bookmark)
            native_forget(d, &r, "removed");
        else if (r.state == NATIVE_REMOVING) {
            if (a->gone) /* it was not us, which concerns who uses the bookmark */
                str_clear(&r.why_removed);
            native_row_become(d, &r, NATIVE_MISSING);
        }
    }
}
