/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * snapshots.c - phase 1 of a backup: room is made, hooks run, native snapshots are taken
 *
 * Each operation goes through the stages of its row: "begin" (pre-backup hook), "pool" (how full the storage is),
 * "prune" (RS-17: before create), "hook" (pre-snapshot), "snapshot", "post" (post-snapshot hook, which always runs),
 * "snapped". Members of a group wait for each other before hook, snapshot and post, and are snapshotted by one step: at
 * one instant where the storage can, else in quick succession (CF-47).
 *
 * Crash points: engine-native-intent (names are recorded, nothing exists), engine-snapshot-taken (in the child),
 * engine-snapshot-recorded, engine-native-removed, engine-hook-intent.
 */
#include "base/cleanup.h"
#include "base/time.h"
#include "daemon/decide/decide.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROUPS_AT_ONCE 4
#define POOL_PAUSE_MS 500 /* before a pool is measured from which something is being removed */

static int stage_set(struct decide *d, struct operation *op, enum op_stage s)
{
    op->stage = s;
    return operation_become(d, op, OP_SNAPSHOTTING);
}

/* The snapshot cannot be had: the reason waits until the post-snapshot hook has run. */
static void snapshot_failed(struct decide *d, struct operation *op, const char *stage, const struct err *e)
{
    op->snapshot_failed = true;
    op->snapshot_transient = e->cls != ERR_USAGE && e->cls != ERR_NOT_FOUND && e->cls != ERR_PERMISSION;
    if (!op->cancel) { /* else it was ended, and did not fail */
        operation_error(d, op, stage, e);
        if (!strcmp(stage, "snapshot"))
            count_snapshot(d, op, false, 0);
    }
    stage_set(d, op, STAGE_POST);
}

/* ---- room for the new one ---- */

static void pool_done(struct decide *d, struct operation *op, struct work_result *s)
{
    const struct step_item *pool = s->answer.items.v;
    struct live *l = live_get(d, op->id);
    /* Not knowing how full it is forbids nothing: the storage itself will refuse. */
    op->pool_ratio = s->answer.items.n ? pool->used_ratio : -1;
    if (l)
        l->pool_ns = s->answer.items.n ? pool->begin_ns : 0;
    stage_set(d, op, STAGE_PRUNE);
}

static int stop_at_first(const struct native_row *n, void *arg)
{
    (void)n;
    *(bool *)arg = true;
    return 1;
}

/* How full it is prunes earlier snapshots of the volume, or forbids one that is the only copy. */
static bool pool_matters(struct decide *d, const struct operation *op)
{
    const struct native_row_filter of_volume = {.volume_id = op->volume_id};
    bool found = false;
    if (op->policy->move_data)
        native_row_each(d->records, &of_volume, stop_at_first, &found, NULL);
    return found || !op->policy->move_data;
}

static void look_at_pool(struct decide *d, struct operation *op)
{
    if (!pool_matters(d, op)) {
        op->pool_ratio = -1;
        stage_set(d, op, STAGE_PRUNE);
        return;
    }
    if (op->stage != STAGE_POOL && stage_set(d, op, STAGE_POOL) < 0)
        return;
    json_t *item =
        json_pack("{s:o,s:o}", "class", class_desc_to_json(op->own), "volume", volume_desc_to_json(op->volume));
    if (item && natives_pool_busy(d, op->own->driver, op->volume))
        jset_int(item, "pause_ms", POOL_PAUSE_MS);
    plan_work(d, ROW_OPERATION, op->id, WORK_POOL, json_pack("{s:[o]}", "items", item), 60);
}

/* A volume that is half restored is nobody's backup (AO-47): the attempt fails, and is made again later. */
static bool is_being_restored(struct decide *d, struct operation *op)
{
    struct err e = ERR_INIT;
    if (op->retry_of[0] || restore_under_way(d, op, &e) == 0)
        return false;
    if (op->stage == STAGE_NEW && stage_set(d, op, STAGE_BEGIN) < 0)
        return true;
    op->stage = STAGE_SNAPPED; /* its next attempt begins phase 1 anew */
    operation_attempt_failed(d, op, "snapshot", &e, true);
    return true;
}

/* The pre-backup hook comes before all that is done for the volume. */
static void begin_operation(struct decide *d, struct operation *op)
{
    if (is_being_restored(d, op))
        return;
    if (!op->policy->hook_pre_backup[0] || op->pre_hook_done)
        op->retry_of[0] ? retry_begin(d, op) : look_at_pool(d, op);
    else if (op->stage == STAGE_BEGIN || stage_set(d, op, STAGE_BEGIN) == 0)
        begin_hook(d, op);
}

static void room_prune(struct decide *d, struct operation *op)
{
    struct native_rules rules;
    struct native_verdict v;
    struct err e = ERR_INIT;
    native_rules(&rules, op->policy, op->job, op->pool_ratio, true, decide_now(d));
    const struct live *l = live_find(d, op->id);
    rules.pool_ns = l ? l->pool_ns : 0; /* of an earlier daemon's time: it is measured again before it counts */
    int rc = natives_make_room(d, op, &rules, op->started_ns, &v, &e);
    if (rc < 0) {
        op->stage = STAGE_SNAPPED; /* its next attempt begins phase 1 anew, when it is time for it */
        operation_attempt_failed(d, op, "snapshot", &e, true);
    } else if (rc == 0 && v.measure_again) {
        stage_set(d, op, STAGE_POOL);
    } else if (rc == 0 && !v.may_create) {
        err_set(&e, ERR_NO_SPACE, 0, "no native snapshot of %s is taken: %s", op->volume->name, v.why);
        err_hint(&e, "`snapferry native prune --explain --dry-run` shows what can be pruned and what is held");
        operation_fail(d, op, "snapshot", &e);
    } else if (rc == 0) {
        stage_set(d, op, STAGE_HOOK);
    }
}

/* What it has freed is only known once it is measured (RS-30). */
static void room_pruned(struct decide *d, struct operation *op, struct work_result *s)
{
    natives_pruned(d, op, s);
    if (op->pool_ratio >= 0 && op->state == OP_SNAPSHOTTING && op->stage == STAGE_PRUNE)
        stage_set(d, op, STAGE_POOL);
}

/* ---- hooks ---- */

static json_t *hook_request(const struct operation *op, const char *phase, const char *program)
{
    const struct policy *policy = op->policy;
    return json_pack("{s:s,s:s,s:s,s:s,s:o,s:s,s:s,s:I,s:b,s:s}", "program", program, "phase", phase, "backup",
                     op->parent, "operation", op->id, "volume", volume_desc_to_json(op->volume), "class", op->own->name,
                     "job", op->job, "timeout_s", (json_int_t)policy->hook_timeout_s, "continue", policy->hook_continue,
                     "result", op->snapshot_failed ? "failed" : "ok");
}

static void pre_hook_done(struct decide *d, struct operation *op, struct work_result *s)
{
    op->hook_began_ns = decide_now(d);
    if (s->err.cls && !op->policy->hook_continue) {
        snapshot_failed(d, op, "pre-snapshot hook", &s->err);
        return;
    }
    if (s->err.cls) {
        plan_log(d, LOG_LVL_WARNING, "%s: the pre-snapshot hook: %s", operation_label(op), s->err.msg);
        operation_degrade(op, s->err.msg);
    }
    stage_set(d, op, STAGE_SNAPSHOT);
}

static void pre_hook(struct decide *d, struct operation *op)
{
    const struct policy *policy = op->policy;
    const char *pre = policy->hook_pre_snapshot, *post = policy->hook_post_snapshot;
    struct err e = ERR_INIT;
    /* The post hook's intent comes first: whatever happens from here on, it runs. */
    if (post[0] && op->hook_intent == 0) {
        uint64_t id;
        if (records_intent_add(d->records, op->id, "hook-post", post, hook_request(op, "post-snapshot", post), &id,
                               &e) < 0) {
            plan_fail(d, &e);
            return;
        }
        op->hook_intent = id;
        if (operation_write(d, op) < 0)
            return;
        plan_crash_point(d, "engine-hook-intent");
    }
    if (!pre[0]) {
        stage_set(d, op, STAGE_SNAPSHOT);
        return;
    }
    json_t *in = hook_request(op, "pre-snapshot", pre);
    if (in && post[0]) /* what it stops is released at a deadline, whatever becomes of the daemon */
        json_object_set_new(in, "watchdog",
                            json_pack("{s:o,s:I}", "hook", hook_request(op, "post-snapshot", post), "deadline_s",
                                      (json_int_t)(policy->hook_timeout_s + policy->snapshot_timeout_s + 10)));
    plan_work(d, ROW_OPERATION, op->id, WORK_PRE_HOOK, in, policy->hook_timeout_s + 10);
}

/* What was taken is not what was promised (its group's skew, a hook that ran too early): the next attempt takes another
 * one, and this one is pruned as that of a failed backup. */
static void snapshot_abandon(struct decide *d, struct operation *op)
{
    CLEANUP(native_row_clear) struct native_row n;
    native_row_init(&n);
    if (native_row_read(d, op->native, &n) == 0) {
        n.failed = true;
        native_row_write(d, &n);
    }
    str_clear(&op->native);
    native_desc_set(&op->native_doc, NULL);
    op->native_intent = 0;
    operation_write(d, op);
}

static void after_post(struct decide *d, struct operation *op)
{
    const struct policy *policy = op->policy;
    if (op->hook_began_ns)
        op->frozen_ms = (decide_now(d) - op->hook_began_ns) / 1000000;
    op->stage = STAGE_SNAPPED;
    if (op->snapshot_failed) {
        struct err e;
        char stage[32];
        op_error_to_err(&e, &op->error);
        snprintf(stage, sizeof stage, "%s", op->error.stage);
        op->snapshot_failed = false;
        operation_attempt_failed(d, op, stage, &e, op->snapshot_transient);
        if (op->state == OP_RETRYING && !is_none(op->native_doc))
            snapshot_abandon(d, op);
        return;
    }
    if (!policy->move_data) {
        operation_finish(d, op, OUTCOME_COMPLETED);
        return;
    }
    prepare_begins(d, op);
    operation_become(d, op, OP_QUEUED);
}

static void post_hook_done(struct decide *d, struct operation *op, struct work_result *s)
{
    if (s->err.cls) {
        plan_log(d, LOG_LVL_WARNING, "%s: the post-snapshot hook: %s", operation_label(op), s->err.msg);
        operation_degrade(op, s->err.msg);
        if (!op->error.code)
            operation_error(d, op, "post-snapshot hook", &s->err);
    }
    records_intent_resolve(d->records, op->hook_intent, NULL);
    if (s->fired && !op->snapshot_failed) {
        /* What the hook had stopped went on before the snapshot was finished: it is not what was promised. */
        struct err e = ERR_INIT;
        err_set(&e, ERR_GENERIC, 0, "the watchdog ran the post-snapshot hook before the native snapshot was finished");
        err_hint(&e, "raise snapshot-timeout or hook-timeout, or find out why the snapshot took so long");
        operation_error(d, op, "snapshot", &e);
        op->snapshot_failed = true;
        op->snapshot_transient = true;
    }
    op->hook_intent = 0;
    after_post(d, op);
}

static void post_hook(struct decide *d, struct operation *op)
{
    const struct policy *policy = op->policy;
    const char *post = policy->hook_post_snapshot;
    if (!post[0] || op->hook_intent == 0) {
        after_post(d, op);
        return;
    }
    plan_work(d, ROW_OPERATION, op->id, WORK_POST_HOOK, hook_request(op, "post-snapshot", post),
              policy->hook_timeout_s + 10);
}

/* ---- taking them ---- */

struct members {
    struct operation *op;
    unsigned n;
};

static const struct tag_desc *tag_of(const struct decide *d, const struct operation *op, const char *alias,
                                     uint64_t seq)
{
    struct tag_desc t;
    tag_desc_init(&t);
    str_set(&t.alias, alias);
    str_set(&t.volume_id, op->volume->id);
    str_set(&t.volume_name, op->volume->name);
    str_set(&t.backup, op->parent);
    str_set(&t.operation, op->id);
    str_set(&t.repository, op->policy->repository);
    t.created_ns = decide_now(d);
    t.seq = seq;
    return tag_desc_make(&t);
}

/* The name is in the records before anything exists under it. */
static bool native_intent(struct decide *d, struct operation *op)
{
    char alias[ALIAS_TEXT];
    const struct policy *policy = op->policy;
    struct err e = ERR_INIT;
    uint64_t intent;
    if (op->native[0])
        return true; /* after a crash: the same alias again */
    d->world.ids->alias(d->world.ids, alias);
    CLEANUP(native_row_clear) struct native_row n;
    native_row_init(&n);
    str_set(&n.id, alias);
    str_set(&n.parent, op->parent);
    str_set(&n.volume_id, op->volume_id);
    n.state = NATIVE_CREATING;
    class_desc_set(&n.klass, op->own);
    volume_desc_set(&n.volume, op->volume);
    policy_set(&n.policy, policy);
    str_set(&n.driver, op->own->driver);
    str_set(&n.operation, op->id);
    str_set(&n.job, op->job);
    n.effective_retain = policy->snapshots_to_retain;
    n.job_retain = policy->job_retain;
    n.snapshot_only = !policy->move_data;
    json_t *doc =
        json_pack("{s:o,s:o}", "class", class_desc_to_json(op->own), "volume", volume_desc_to_json(op->volume));
    if (native_row_add(d->records, &n, &e) < 0) {
        json_decref(doc);
        plan_fail(d, &e);
        return false;
    }
    if (records_intent_add(d->records, op->id, "native", alias, doc, &intent, &e) < 0) {
        plan_fail(d, &e);
        return false;
    }
    tag_desc_take(&op->tag, tag_of(d, op, alias, n.seq));
    str_set(&op->native, alias);
    op->native_intent = intent;
    return operation_write(d, op) == 0;
}

/* Once for each class, until the daemon starts anew: incremental backups work without. */
static void tell_no_bookmark(struct decide *d, const struct operation *op, const char *why)
{
    if (!d->no_bookmarks)
        d->no_bookmarks = json_object();
    if (json_object_get(d->no_bookmarks, op->own->name))
        return;
    jset_bool(d->no_bookmarks, op->own->name, true);
    plan_log(d, LOG_LVL_WARNING,
             "class \"%s\": without bookmarks all data is read when the parent's native snapshot is gone: %s",
             op->own->name, why);
}

/* The snapshot exists: the native's record takes over from the intent. */
static bool native_recorded(struct decide *d, struct operation *op, const struct step_item *item)
{
    CLEANUP(native_row_clear) struct native_row n;
    native_row_init(&n);
    if (native_row_read(d, op->native, &n) < 0)
        return false;
    native_desc_set(&n.native, item->native);
    n.bookmark = item->bookmark;
    n.state = NATIVE_PRESENT;
    n.state_since_ns = decide_now(d);
    if (native_row_write(d, &n) < 0)
        return false;
    records_intent_resolve(d->records, op->native_intent, NULL);
    native_desc_set(&op->native_doc, n.native);
    if (!is_none(item->volume))
        volume_desc_set(&op->volume, item->volume);
    if (item->no_bookmark[0])
        tell_no_bookmark(d, op, item->no_bookmark);
    op->snapshot_ns = item->end_ns;
    op->snapshot_ms = (item->end_ns - item->begin_ns) / 1000000;
    op->stage = STAGE_POST;
    count_snapshot(d, op, true, (double)(item->end_ns - item->begin_ns) / 1e9);
    const bool done = operation_write(d, op) == 0;
    plan_crash_point(d, "engine-snapshot-recorded");
    return done;
}

/* When the native snapshots of a group were taken. */
struct span {
    int64_t first_ns, last_ns;
    uint64_t instant;
    unsigned n;
    bool apart; /* not all of them at one instant */
};

static void span_add(struct span *x, int64_t begin_ns, int64_t end_ns, uint64_t instant)
{
    if (x->n && (!instant || instant != x->instant))
        x->apart = true;
    x->instant = instant;
    if (x->n == 0 || begin_ns < x->first_ns)
        x->first_ns = begin_ns;
    if (x->n++ == 0 || end_ns > x->last_ns)
        x->last_ns = end_ns;
}

struct earlier {
    const struct list_of_structs *items;
    const char *group;
    struct span *span;
};

static int add_earlier(const struct operation *op, void *arg)
{
    const struct earlier *x = arg;
    const struct step_item *item = x->items->v;
    if (strcmp(op->policy->group, x->group) != 0 || is_none(op->native_doc))
        return 0;
    for (unsigned i = 0; i < x->items->n; i++)
        if (!strcmp(item[i].operation, op->id))
            return 0;
    span_add(x->span, op->snapshot_ns - op->snapshot_ms * NS_PER_MS, op->snapshot_ns, 0);
    return 0;
}

/* A member of a group whose first attempt it is not; NULL: none. */
static const struct operation *find_again(struct decide *d, const struct list_of_structs *items)
{
    const struct step_item *item = items->v;
    for (unsigned i = 0; i < items->n; i++) {
        const struct operation *op = operation_peek(d->records, item[i].operation);
        if (op && op->attempt && op->policy->group[0])
            return op;
    }
    return NULL;
}

/* Between the first and the last that was taken. A member that is tried again is of another time than the others, too,
 * whose snapshots exist since the attempt before. */
static int64_t skew_ms(struct decide *d, const struct list_of_structs *items)
{
    const struct step_item *item = items->v;
    struct span span = {.n = 0};
    for (unsigned i = 0; i < items->n; i++)
        if (item[i].end_ns)
            span_add(&span, item[i].begin_ns, item[i].end_ns, item[i].instant);
    const struct operation *again = span.n ? find_again(d, items) : NULL;
    if (again) {
        const struct operation_filter f = {.parent = again->parent};
        struct earlier x = {items, again->policy->group, &span};
        operation_each(d->records, &f, add_earlier, &x, NULL);
    }
    return span.apart ? (span.last_ns - span.first_ns) / NS_PER_MS : 0;
}

/* What the work of a group says of one member. */
static void member_done(struct decide *d, const struct step_item *item, const struct err *whole, int64_t skew)
{
    CLEANUP(operation_clear) struct operation op;
    struct err e = ERR_INIT;
    operation_init(&op);
    if (operation_read(d, item->operation, &op) < 0 || op.state != OP_SNAPSHOTTING || op.stage != STAGE_SNAPSHOT)
        return;
    const struct policy *policy = op.policy;
    if (whole->cls) {
        snapshot_failed(d, &op, "snapshot", whole);
        return;
    }
    if (policy->group[0] && !item->error.code)
        op.group_skew_ms = skew;
    if (item->error.code) {
        op_error_to_err(&e, &item->error);
        snapshot_failed(d, &op, "snapshot", &e);
    } else if (native_recorded(d, &op, item) && policy->group_strict && skew > policy->group_max_skew_ms) {
        err_set(&e, ERR_GENERIC, 0, "group \"%s\": its snapshots are %lld ms apart, more than %lld ms", policy->group,
                (long long)skew, (long long)policy->group_max_skew_ms);
        err_hint(&e, "pause its writers in a pre-snapshot hook, or set group-consistency = best-effort");
        snapshot_failed(d, &op, "snapshot", &e);
    }
}

static void snapshot_done(struct decide *d, struct work_result *s)
{
    const struct list_of_structs *items = s->err.cls ? &s->asked.items : &s->answer.items;
    const struct step_item *item = items->v;
    const int64_t skew = skew_ms(d, items);
    if (s->timed_out)
        err_hint(&s->err, "check for a frozen file system or hung storage; snapshot-timeout is the limit");
    for (unsigned i = 0; i < items->n; i++)
        member_done(d, &item[i], &s->err, skew);
}

static void snapshots_take(struct decide *d, struct members *m)
{
    json_t *items = json_array();
    int64_t timeout = 1;
    struct operation *first = NULL;
    struct err e = ERR_INIT;
    for (unsigned i = 0; i < m->n; i++) {
        struct operation *op = &m->op[i];
        if (op->stage != STAGE_SNAPSHOT || op->cancel)
            continue;
        if (restore_under_way(d, op, &e) < 0) { /* submitted after its hooks */
            snapshot_failed(d, op, "snapshot", &e);
            e = (struct err)ERR_INIT;
            continue;
        }
        if (!native_intent(d, op)) {
            json_decref(items);
            return;
        }
        if (!first)
            first = op;
        if (op->policy->snapshot_timeout_s > timeout)
            timeout = op->policy->snapshot_timeout_s;
        plan_note(d, op->id); /* one piece of work for all members of a group */
        json_t *item = json_pack("{s:s,s:o,s:o,s:o}", "operation", op->id, "class", class_desc_to_json(op->own),
                                 "volume", volume_desc_to_json(op->volume), "tag", tag_desc_to_json(op->tag));
        if (item && changes_want_bookmark(op))
            jset_bool(item, "bookmark", true);
        json_array_append_new(items, item);
    }
    if (!first) {
        json_decref(items);
        return;
    }
    plan_crash_point(d, "engine-native-intent");
    plan_work(d, ROW_OPERATION, first->id, WORK_SNAPSHOT, json_pack("{s:o}", "items", items), timeout);
}

/* ---- groups ---- */

static bool in_phase_1(const struct operation *op)
{
    return !op_state_terminal(op->state) && op->state != OP_CLEANING_UP && op->stage != STAGE_SNAPPED;
}

/* The next thing for the members of one group; all have the same backup. */
static void group_step(struct decide *d, struct members *m)
{
    enum op_stage least = STAGE_SNAPPED;
    bool failed = false;
    for (unsigned i = 0; i < m->n; i++)
        failed |= on_restart_failed(d, &m->op[i]);
    if (failed)
        return;
    for (unsigned i = 0; i < m->n; i++)
        if (m->op[i].stage < least)
            least = m->op[i].stage;
    if (least == STAGE_SNAPSHOT) {
        snapshots_take(d, m);
        return;
    }
    for (unsigned i = 0; i < m->n; i++) {
        struct operation *op = &m->op[i];
        if (op->stage != least || op->cancel)
            continue;
        switch (least) {
        case STAGE_NEW:
            op->started_ns = decide_now(d);
            op->clock_ns = 0;
            begin_operation(d, op);
            break;
        case STAGE_BEGIN: /* after a restart: the step is gone */
            begin_operation(d, op);
            break;
        case STAGE_POOL: /* after a restart: the step is gone */
            look_at_pool(d, op);
            break;
        case STAGE_PRUNE:
            room_prune(d, op);
            break;
        case STAGE_HOOK:
            pre_hook(d, op);
            break;
        case STAGE_POST:
            post_hook(d, op);
            break;
        case STAGE_SNAPSHOT: /* of all members at once, above */
        case STAGE_SNAPPED:
        case STAGES:
            break;
        }
    }
}

static const char *group_of(const struct operation *op)
{
    const char *group = op->policy->group;
    return group[0] ? group : op->id;
}

/* The members of the groups whose turn it is: own copies. */
static struct operation *read_members(struct decide *d, const char *backup, unsigned *n)
{
    unsigned found = 0, all = 0;
    CLEANUP_FREE const char **ids = board_phase_1(d->board, backup, GROUPS_AT_ONCE, &all);
    struct operation *op = ids ? calloc(all + 1, sizeof *op) : NULL;
    for (unsigned i = 0; op && i < all; i++) {
        if (operation_get(d->records, ids[i], &op[found], NULL) == 0 && in_phase_1(&op[found]))
            found++;
        else
            operation_clear(&op[found]);
    }
    *n = found;
    return op;
}

void snapshots_work_ended(struct decide *d, struct operation *op, enum work w, struct work_result *s)
{
    if (w == WORK_BEGIN_HOOK && begin_hook_ended(d, op, s))
        op->retry_of[0] ? retry_begin(d, op) : (void)stage_set(d, op, STAGE_POOL);
    else if (w == WORK_POOL)
        pool_done(d, op, s);
    else if (w == WORK_PRUNE)
        room_pruned(d, op, s);
    else if (w == WORK_PRE_HOOK)
        pre_hook_done(d, op, s);
    else if (w == WORK_SNAPSHOT)
        snapshot_done(d, s);
    else if (w == WORK_POST_HOOK)
        post_hook_done(d, op, s);
}

bool decide_snapshots(struct decide *d, const struct backup *b)
{
    unsigned n = 0;
    struct operation *op = read_members(d, b->id, &n);
    CLEANUP_FREE struct operation *member = calloc(n + 1, sizeof *member);
    const struct board_run *run = board_run(d->board, b->id);
    const bool done = run && run->n_phase_1 == 0;
    /* Each group's members one after the other, groups side by side; a group's members lie together. */
    for (unsigned i = 0, end; op && member && i < n; i = end) {
        struct members m = {member, 0};
        bool waits = false;
        for (end = i; end < n && (end == i || !strcmp(group_of(&op[end]), group_of(&op[i]))); end++) {
            waits |= busy(d, op[end].id);
            member[m.n++] = op[end]; /* a loan: group_step() may change it */
        }
        if (!waits)
            group_step(d, &m);
        memcpy(op + i, member, m.n * sizeof *op);
    }
    for (unsigned i = 0; op && i < n; i++)
        operation_clear(&op[i]);
    free(op);
    return done;
}
