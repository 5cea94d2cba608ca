/* SPDX-License-Identifier: GPL-2.0-or-later */
/* decide.c - a turn: events, then the rows that are marked */
#include "base/cleanup.h"
#include "daemon/decide/decide.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the board ---- */

static int board_add_operation(const struct operation *op, void *arg)
{
    struct decide *d = arg;
    return board_operation(d->board, op->id, op);
}

static int board_add_backup(const struct backup *b, void *arg)
{
    struct decide *d = arg;
    return board_backup(d->board, b->id, b);
}

/* Makes the board from the rows. */
static int board_load(struct decide *d, struct err *e)
{
    const struct operation_filter operations = {.live = true};
    const struct backup_filter backups = {.live = true};
    board_free(d->board);
    d->board = board_new();
    if (!d->board)
        return err_nomem(e);
    int rc = backup_each(d->records, &backups, board_add_backup, d, e);
    if (rc >= 0)
        rc = operation_each(d->records, &operations, board_add_operation, d, e);
    d->board_stale = rc < 0;
    d->backups_changed = true;
    return rc < 0 ? rc : 0;
}

static bool is_terminal(enum row_kind k, const void *row)
{
    return row && row_state(k, row) >= row_types[k].terminal;
}

/* The end of a row was counted, and is undone: the row goes on, or the transaction that ended it had made it, too. */
static bool end_is_undone(const struct decide *d, enum row_kind k, const void *was, const void *now)
{
    if (k >= ROW_KINDS || !is_terminal(k, was))
        return false;
    return now ? !is_terminal(k, now)
               : k == ROW_OPERATION && board_has_run(d->board, ((const struct operation *)was)->parent);
}

void decide_row_changed(struct decide *d, enum row_kind k, const char *id, const void *was, const void *now)
{
    int rc = 0;
    d->board_stale |= end_is_undone(d, k, was, now);
    if (k == ROW_OPERATION) {
        rc = board_operation(d->board, id, now);
        d->backups_changed |= board_released(d->board);
    } else if (k == ROW_BACKUP) {
        rc = board_backup(d->board, id, now);
        d->backups_changed = true;
    } else if (k == ROW_KINDS) {
        d->board_stale = true;
    }
    d->board_stale |= rc < 0;
}

void decide_look_at_all(struct decide *d)
{
    board_mark_all(d->board);
    queue_mark_down(d);
    d->backups_changed = true;
}

bool decide_is_due(const struct decide *d)
{
    const struct event *ev = d->events;
    while (ev && d->asides && is_aside(d, ev->id))
        ev = ev->next;
    return ev || d->backups_changed || d->board_stale || board_is_marked(d->board);
}

int64_t decide_wake(const struct decide *d)
{
    const int64_t board = board_wake(d->board), aside = asides_wake(d);
    return !board || (aside && aside < board) ? aside : board;
}

/* ---- events ---- */

/* Work that has to be done whatever happens: it is tried again when the row is looked at next. */
static bool must_be_done(enum work w)
{
    return w == WORK_POST_HOOK || w == WORK_UNDO || w == WORK_DELETE_NATIVES || w == WORK_DELETE_PLUGIN ||
           w == WORK_RUN_HOOK || w == WORK_PRUNE;
}

static void note_progress(struct decide *d, struct operation *op)
{
    const struct live *l = live_find(d, op->id);
    if (!l || !l->progress || op_state_terminal(op->state))
        return;
    json_set(&op->progress, l->progress);
    op->adoptions = 0;
    operation_write(d, op);
}

static void operation_event(struct decide *d, struct event *ev)
{
    CLEANUP(operation_clear) struct operation op;
    if (operation_read(d, ev->id, &op) < 0) {
        if (ev->kind == EVENT_ENDED && !operation_peek(d->records, ev->id)) { /* the turn that added it was undone */
            plan_mover_forget(d, ev->id, NULL, NULL);
            plan_live_drop(d, ev->id);
        }
        return;
    }
    switch (ev->kind) {
    case EVENT_WORK:
        if (ev->result.not_started && must_be_done(ev->work))
            plan_log(d, LOG_LVL_WARNING, "%s: %s", operation_label(&op), ev->result.err.msg);
        else if (op.kind == KIND_DELETE)
            delete_work_ended(d, &op, ev->work, &ev->result);
        else if (op.state == OP_SNAPSHOTTING)
            snapshots_work_ended(d, &op, ev->work, &ev->result);
        else if (!op_state_terminal(op.state))
            operation_work_ended(d, &op, ev->work, &ev->result);
        break;
    case EVENT_READY:
        if (!mover_was_undone(live_find(d, ev->id), &op)) /* else it gets no go: it is being ended */
            mover_ready(d, &op, ev);
        break;
    case EVENT_ENDED:
        mover_ended(d, &op, &ev->report);
        break;
    case EVENT_PROGRESS:
        note_progress(d, &op);
        break;
    case EVENT_NOT_STARTED:
        if (mover_was_undone(live_find(d, ev->id), &op))
            plan_mover_forget(d, ev->id, NULL, NULL);
        else if (!op_state_terminal(op.state) && op.state != OP_CLEANING_UP)
            operation_attempt_failed(d, &op, "start", &ev->err, ev->transient);
        break;
    case EVENT_REQUEST:
        break;
    }
}

static void backup_event(struct decide *d, struct event *ev)
{
    CLEANUP(backup_clear) struct backup b;
    if (backup_read(d, ev->id, &b) < 0)
        return;
    if (ev->result.not_started)
        plan_log(d, LOG_LVL_WARNING, "%s: %s", b.id, ev->result.err.msg);
    else
        backup_work_ended(d, &b, ev->work, &ev->result);
}

/* What the event says of the row's work and mover holds while it is looked at; `back`: no longer. */
static void apply(struct live *l, const struct event *ev, bool back)
{
    l->events = back ? l->events + 1 : l->events ? l->events - 1 : 0;
    if (ev->kind == EVENT_WORK)
        l->working = back ? ev->work : WORK_NONE;
    else if (ev->kind == EVENT_ENDED || ev->kind == EVENT_NOT_STARTED)
        l->mover = false; /* also while the event waits again */
}

static void apply_to_all(struct decide *d, const struct event *ev, bool back)
{
    struct live *l = live_find(d, ev->id);
    const struct step_item *item = ev->result.asked.items.v;
    if (l)
        apply(l, ev, back);
    if (ev->kind != EVENT_WORK || ev->work != WORK_SNAPSHOT)
        return;
    /* One piece of work for all members of a group. */
    for (unsigned i = 0; i < ev->result.asked.items.n; i++) {
        struct live *member = live_find(d, item[i].operation);
        if (member && member != l)
            member->working = back ? ev->work : WORK_NONE;
        if (!back)
            decide_look_at(d, ROW_OPERATION, item[i].operation);
    }
}

/* What cannot be recorded for good because of what it says: it becomes a failure that can. */
static bool answer_reduce(struct event *ev, const struct err *e)
{
    struct err why = ERR_INIT;
    if (ev->reduced || (e->sys != E2BIG && e->sys != EINVAL))
        return false;
    ev->reduced = true;
    err_plain(&why, ERR_GENERIC, e->sys, "its result cannot be recorded: %s", e->msg);
    if (ev->kind == EVENT_ENDED) {
        json_take(&ev->report.result, NULL);
        ev->report.outcome = MOVER_FAILED;
        ev->report.err = why;
    } else if (ev->kind == EVENT_WORK && ev->result.out) {
        json_take(&ev->result.out, NULL);
        step_answer_clear(&ev->result.answer);
        ev->result.err = why;
    } else {
        return false;
    }
    return true;
}

/* Documents become structs here, and nowhere else in this room. */
static void answer_decode(struct decide *d, struct event *ev)
{
    struct work_result *s = &ev->result;
    const bool of_several = ev->work == WORK_SNAPSHOT || ev->work == WORK_LOOK;
    if (ev->kind == EVENT_WORK &&
        (step_answer_load(&s->answer, s->out) < 0 || (of_several && step_answer_load(&s->asked, s->in) < 0)))
        d->plan.failed = true;
}

static void event_apply(struct decide *d, struct event *ev)
{
    answer_decode(d, ev);
    apply_to_all(d, ev, false);
    if (ev->row == ROW_BACKUP)
        backup_event(d, ev);
    else
        operation_event(d, ev);
    decide_look_at(d, ev->row, ev->id);
}

/* False: it is kept aside, and waits. */
static bool take_row_event(struct decide *d, struct event *ev)
{
    do {
        unit_begin(d);
        event_apply(d, ev);
        if (unit_end(d)) {
            aside_tried(d, ev->id);
            return true;
        }
        apply_to_all(d, ev, true);
    } while (answer_reduce(ev, &d->plan.err));
    aside_add(d, ev->row, ev->id, &d->plan.err);
    return false;
}

/* False: there is more of it. */
static bool take_request(struct decide *d, struct event *ev)
{
    if (!d->part) {
        unit_begin(d);
        ev->err = (struct err)ERR_INIT;
    }
    const int rc = ev->request.write(d, ev->request.arg, &ev->err);
    d->part = rc > 0 && !d->plan.failed ? ev : NULL;
    if (d->part)
        return false;
    if (rc < 0 && !ev->err.cls)
        err_set(&ev->err, ERR_GENERIC, -rc, "the request cannot be recorded");
    if (rc < 0)
        d->plan.failed = true;
    if (!unit_end(d) && !ev->err.cls)
        ev->err = d->plan.err;
    plan_request_ended(d, ev);
    return true;
}

static void event_taken(struct decide *d, struct event **at)
{
    struct event *ev = *at;
    d->unit = ev;
    d->unit_row = ev->row;
    snprintf(d->unit_id, sizeof d->unit_id, "%s", ev->id);
    *at = ev->next;
    if (!ev->next)
        d->events_end = at;
    ev->next = NULL;
    *d->taken_end = ev;
    d->taken_end = &ev->next;
}

/* The next part of a request, before anything else is looked at. False: there is more of it. */
static bool take_part(struct decide *d)
{
    struct event **at = &d->events;
    while (*at != d->part)
        at = &(*at)->next;
    if (!take_request(d, *at))
        return false;
    event_taken(d, at);
    return true;
}

/* Those of rows that are kept aside go on waiting. */
static unsigned take_events(struct decide *d, unsigned n)
{
    struct event **at = &d->events;
    unsigned taken = 0;
    while (*at && taken < n && !d->plan.failed) {
        struct event *ev = *at;
        if (is_aside(d, ev->id)) {
            at = &ev->next;
            continue;
        }
        taken++;
        if (ev->kind != EVENT_REQUEST) {
            if (!take_row_event(d, ev)) {
                at = &ev->next;
                continue;
            }
        } else if (!take_request(d, ev)) {
            break;
        }
        event_taken(d, at);
    }
    return taken;
}

/* ---- rows ---- */

static void look_at_operation(struct decide *d, const char *id)
{
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    if (operation_read(d, id, &op) < 0 || op_state_terminal(op.state) || (busy(d, id) && !op.cancel))
        return;
    switch (op.kind) {
    case KIND_ADMIN:
    case KIND_VERIFY:
    case KIND_MAINTAIN:
    case KIND_COPY:
        (op.policy->mover[0] ? decide_plugin_admin : decide_admin)(d, &op);
        break;
    case KIND_DELETE:
        decide_delete(d, &op);
        break;
    case KIND_BACKUP:
    case KIND_RESTORE:
        decide_operation(d, &op);
        break;
    case KIND_NONE: /* of a newer version */
    case KINDS:
        break;
    }
}

static void look_at_backup(struct decide *d, const char *id)
{
    CLEANUP(backup_clear) struct backup b;
    backup_init(&b);
    if (!backup_only_waits(d, id) && backup_read(d, id, &b) == 0)
        decide_backup(d, &b);
}

static void decide_rows(struct decide *d, unsigned n)
{
    struct err e = ERR_INIT;
    char id[BOARD_ID_MAX];
    if (d->board_stale && board_load(d, &e) < 0) {
        plan_fail(d, &e);
        return;
    }
    if (d->part && (!take_part(d) || --n == 0))
        return;
    asides_due(d);
    const unsigned events = take_events(d, n);
    if (d->part)
        return;
    n = events <= n / 2 ? n - events : n / 2; /* many events do not keep rows from being looked at */
    board_mark_due(d->board, d->world.now_ns);
    queue_mark_next(d);
    struct board_usage used = board_usage(d->board, "");
    for (unsigned looks = 0, before = 1; looks != before && looks < n && !d->plan.failed;) {
        before = looks;
        for (; looks < n && board_take(d->board, id); looks++)
            unit_of_row(d, ROW_OPERATION, id, look_at_operation);
        if (d->backups_changed && looks < n) {
            const unsigned units = d->units;
            d->backups_changed = false;
            begin_backups(d, n - looks);
            looks += d->units - units;
        }
        for (; looks < n && board_take_backup(d->board, id); looks++)
            unit_of_row(d, ROW_BACKUP, id, look_at_backup);
        /* What has become free is for those that wait: nothing else may happen for long. */
        const struct board_usage now = board_usage(d->board, "");
        if (now.freed != used.freed)
            queue_mark_next(d);
        used = now;
    }
}

void decide_turn(struct decide *d, unsigned n)
{
    if (!d->part) { /* else it is still the same turn: what it has planned for a row is not done */
        d->turn++;
        d->world.now_ns = d->world.clock();
        if (!d->goes_on)
            d->units = 0;
        d->goes_on = false;
    }
    d->in_turn = true;
    records_counters_apart(d->records, false);
    decide_rows(d, n);
    records_counters_apart(d->records, true); /* the turn may go on: what is counted until then is not of it */
    d->in_turn = false;
    d->in_flight = !d->part;
}

bool decide_pauses(const struct decide *d)
{
    return d->part != NULL;
}

bool request_goes_on(const struct decide *d)
{
    return d->part != NULL;
}

void decide_part_undo(struct decide *d)
{
    if (!d->part)
        return;
    records_savepoint_undo(d->records);
    plan_cut(&d->plan, d->unit_acts);
    d->part = NULL;
    d->in_flight = true;
}

static void look_again(struct decide *d)
{
    d->in_flight = false;
    for (unsigned i = 0; i < d->again.n; i++)
        decide_look_at(d, ROW_BACKUP, d->again.v[i]);
    for (unsigned i = 0; i < d->again_ops.n; i++)
        decide_look_at(d, ROW_OPERATION, d->again_ops.v[i]);
    strs_clear(&d->again);
    strs_clear(&d->again_ops);
}

static void end_turn(struct decide *d)
{
    plan_clear(&d->plan);
    d->goes_on = false;
    look_again(d);
}

bool act_is_early(const struct act *a)
{
    return a->kind == ACT_MOVER_START && !a->op->policy->mover[0];
}

bool decide_may_go_on(const struct decide *d)
{
    bool starts = false;
    for (size_t i = 0; i < d->plan.n; i++) {
        const struct act *a = &d->plan.acts[i];
        if (!act_is_early(a) && a->kind != ACT_CRASH_POINT && a->kind != ACT_NATIVES)
            return false; /* it waits for the commit */
        starts |= act_is_early(a);
    }
    return starts && !d->plan.failed;
}

void decide_go_on(struct decide *d)
{
    d->goes_on = true;
    look_again(d);
}

void decide_acted(struct decide *d)
{
    while (d->taken) {
        struct event *ev = d->taken;
        d->taken = ev->next;
        if (ev->kind != EVENT_REQUEST)
            live_tidy(d, ev->id);
        event_free(ev);
    }
    d->taken_end = &d->taken;
    d->unit = NULL;
    asides_settle(d, true);
    end_turn(d);
}

/* A mover that was started in this turn has ended already, or could not be started: that event waits. */
static bool start_is_over(const struct decide *d, const char *id)
{
    const struct event *const lists[] = {d->taken, d->events};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const struct event *ev = lists[i]; ev; ev = ev->next)
            if ((ev->kind == EVENT_ENDED || ev->kind == EVENT_NOT_STARTED) && !strcmp(ev->id, id))
                return true;
    return false;
}

void decide_undone(struct decide *d)
{
    d->part = NULL; /* it begins anew */
    for (const struct event *ev = d->taken; ev; ev = ev->next)
        if (ev->kind != EVENT_REQUEST)
            apply_to_all(d, ev, true);
    for (size_t i = 0; i < d->plan.n; i++) {
        const struct act *a = &d->plan.acts[i];
        struct live *l = a->id ? live_find(d, a->id) : NULL;
        if (l && a->kind == ACT_MOVER_CANCEL)
            l->cancel_failed = true; /* it was to be asked to end, and was not */
        if (l && a->done)
            l->undone = l->mover || start_is_over(d, a->id);
    }
    *d->taken_end = d->events;
    if (!d->events)
        d->events_end = d->taken_end;
    d->events = d->taken;
    if (!d->events)
        d->events_end = &d->events;
    d->taken = NULL;
    d->taken_end = &d->taken;
    asides_settle(d, false);
    tallies_forget(d);
    evidence_forget(d);
    end_turn(d);
    decide_look_at_all(d);
}

static void refuse_request(struct decide *d, const struct event *blamed, const struct err *e)
{
    for (struct event **at = &d->events; *at; at = &(*at)->next) {
        struct event *ev = *at;
        if (ev != blamed)
            continue;
        *at = ev->next;
        if (!ev->next)
            d->events_end = at;
        d->unit = NULL;
        ev->request.ended(e, ev->request.arg);
        event_free(ev);
        return;
    }
}

void decide_blame(struct decide *d, const struct err *e)
{
    if (d->unit && d->unit->kind == EVENT_REQUEST)
        refuse_request(d, d->unit, e);
    else if (d->unit_id[0] && (!d->unit || !answer_reduce(d->unit, e)))
        aside_add(d, d->unit_row, d->unit_id, e);
}

/* ---- life ---- */

static void free_events(struct event *first)
{
    for (struct event *ev = first, *next; ev; ev = next) {
        next = ev->next;
        event_free(ev);
    }
}

int decide_init(struct decide *d, struct err *e)
{
    d->events_end = &d->events;
    d->taken_end = &d->taken;
    d->pruning.since_ns = decide_now(d);
    d->live = calloc(LIVE_BUCKETS, sizeof *d->live);
    if (!d->live)
        return err_nomem(e);
    const int rc = board_load(d, e);
    return rc < 0 ? rc : on_restart_note(d, e);
}

void decide_free(struct decide *d)
{
    for (unsigned i = 0; d->live && i < LIVE_BUCKETS; i++)
        while (d->live[i]) {
            struct live *l = d->live[i];
            d->live[i] = l->next;
            json_decref(l->progress);
            free(l);
        }
    free(d->live);
    free_events(d->events);
    free_events(d->taken); /* of a turn that was not carried out */
    asides_free(d);
    json_decref(d->pruning.busy);
    json_decref(d->pruning.removed);
    json_decref(d->no_bookmarks);
    tallies_forget(d);
    evidence_forget(d);
    strs_clear(&d->again);
    strs_clear(&d->again_ops);
    while (d->repos) {
        struct repo_health *h = d->repos;
        d->repos = h->next;
        free(h);
    }
    if (d->events_end) {
        plan_clear(&d->plan);
        board_free(d->board);
    }
}
