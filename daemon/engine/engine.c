/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine.c - the reconcile loop: what runs when, and what every part of the engine shares
 *
 * Nothing here depends on an event having been seen: events only ask for a reconcile, which looks at every record that
 * is not terminal and does the next thing for it.
 */
#include "base/time.h"
#include "proc/systemd.h"
#include "daemon/engine/facts.h"
#include "daemon/check/check.h"
#include "daemon/schedule/old-timers.h"
#include "proc/notify.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

void stamp_text(char out[32])
{
    char stamp[TIME_STAMP];
    uint16_t r = 0;
    if (getrandom(&r, sizeof r, 0) != sizeof r)
        r = (uint16_t)now_ns();
    snprintf(out, 32, "%s-%04x", time_stamp(now_ns(), stamp), r);
}

/* ---- rows ---- */

static int wrote(const char *id, int rc, const struct err *e)
{
    if (rc < 0)
        log_warning("the record of %s cannot be saved, it is tried again: %s", id, e->msg);
    return rc;
}

static int was_read(int rc, const struct err *e)
{
    if (rc < 0 && e->cls != ERR_NOT_FOUND)
        log_warning("%s", e->msg);
    return rc;
}

int operation_write(struct engine *g, struct operation *op)
{
    struct err e = ERR_INIT;
    int rc = wrote(op->id, operation_save(g->records, op, &e), &e);
    if (rc == 0)
        tell_operation_waiters(g, op, false);
    return rc;
}

int backup_write(struct engine *g, struct backup *b)
{
    struct err e = ERR_INIT;
    int rc = wrote(b->id, backup_save(g->records, b, &e), &e);
    if (rc == 0)
        tell_backup_waiters(g, b);
    return rc;
}

int native_row_write(struct engine *g, struct native_row *n)
{
    struct err e = ERR_INIT;
    return wrote(n->id, native_row_save(g->records, n, &e), &e);
}

int volume_row_write(struct engine *g, struct volume_row *v)
{
    struct err e = ERR_INIT;
    return wrote(v->id, volume_row_save(g->records, v, &e), &e);
}

int operation_become(struct engine *g, struct operation *op, enum op_state state)
{
    const enum op_state old = op->state;
    op->state = state;
    records_counters_hold(g->records);
    if (old != state && !op_state_terminal(state)) {
        operation_spent(op, old);
        if (old == OP_QUEUED)
            count_queue_wait(g, op, state);
    }
    if (old != state)
        op->state_since_ns = now_ns();
    int rc = operation_write(g, op);
    records_counters_settle(g->records);
    if (rc == 0 && old != state) {
        log_debug("%s: %s -> %s", operation_label(op), op_state_name(old), op_state_name(state));
        engine_kick(g);
    }
    return rc;
}

int backup_become(struct engine *g, struct backup *b, enum backup_state state)
{
    const enum backup_state old = b->state;
    b->state = state;
    if (old != state)
        b->state_since_ns = now_ns();
    int rc = backup_write(g, b);
    if (rc == 0 && old != state) {
        log_debug("%s: %s -> %s", b->id, backup_state_name(old), backup_state_name(state));
        engine_kick(g);
    }
    return rc;
}

int native_row_become(struct engine *g, struct native_row *n, enum native_state state)
{
    const enum native_state old = n->state;
    n->state = state;
    if (old != state)
        n->state_since_ns = now_ns();
    int rc = native_row_write(g, n);
    if (rc == 0 && old != state)
        engine_kick(g);
    return rc;
}

void operation_error(struct operation *op, const char *stage, const struct err *e)
{
    op_error_set(&op->error, stage, e, now_ns(), op->attempt);
}

void backup_error(struct backup *b, const char *stage, const struct err *e)
{
    op_error_set(&b->error, stage, e, now_ns(), 0);
}

int operation_read(struct engine *g, const char *id, struct operation *ret)
{
    struct err e = ERR_INIT;
    return was_read(operation_get(g->records, id, ret, &e), &e);
}

int backup_read(struct engine *g, const char *id, struct backup *ret)
{
    struct err e = ERR_INIT;
    return was_read(backup_get(g->records, id, ret, &e), &e);
}

int native_row_read(struct engine *g, const char *alias, struct native_row *ret)
{
    struct err e = ERR_INIT;
    return was_read(native_row_get(g->records, alias, ret, &e), &e);
}

int volume_row_read(struct engine *g, const char *id, struct volume_row *ret)
{
    struct err e = ERR_INIT;
    return was_read(volume_row_get(g->records, id, ret, &e), &e);
}

/* ---- what runs for a record ---- */

static struct live **live_bucket(struct engine *g, const char *id)
{
    uint32_t h = 2166136261u;
    for (const char *p = id; *p; p++)
        h = (h ^ (uint8_t)*p) * 16777619u;
    return &g->live[h & (LIVE_BUCKETS - 1)];
}

struct live *live_find(struct engine *g, const char *id)
{
    for (struct live *l = *live_bucket(g, id); l; l = l->next)
        if (!strcmp(l->id, id))
            return l;
    return NULL;
}

struct live *live_get(struct engine *g, enum row_kind k, const char *id)
{
    struct live *l = live_find(g, id), **bucket = live_bucket(g, id);
    if (l)
        return l;
    const size_t len = strlen(id) + 1;
    l = calloc(1, sizeof *l + len);
    if (!l)
        return NULL;
    l->engine = g;
    l->kind = k;
    memcpy(l->id, id, len);
    l->next = *bucket;
    *bucket = l;
    return l;
}

void live_drop(struct engine *g, const char *id)
{
    for (struct live **p = live_bucket(g, id); *p; p = &(*p)->next) {
        struct live *l = *p;
        if (strcmp(l->id, id) != 0 || l->step)
            continue;
        *p = l->next;
        json_decref(l->progress);
        free(l);
        return;
    }
}

static void live_free(struct engine *g)
{
    for (unsigned i = 0; g->live && i < LIVE_BUCKETS; i++)
        while (g->live[i]) {
            struct live *l = g->live[i];
            g->live[i] = l->next;
            json_decref(l->progress);
            free(l);
        }
    free(g->live);
}

bool busy(struct engine *g, const char *id)
{
    struct live *l = live_find(g, id);
    return l && l->step;
}

static void operation_work_done(struct engine *g, const struct live *l, operation_done_fn *done, struct step_result *s)
{
    CLEANUP(operation_clear) struct operation op;
    if (operation_read(g, l->id, &op) == 0)
        done(g, &op, s);
}

static void backup_work_done(struct engine *g, const struct live *l, backup_done_fn *done, struct step_result *s)
{
    CLEANUP(backup_clear) struct backup b;
    if (backup_read(g, l->id, &b) == 0)
        done(g, &b, s);
}

static void work_done(struct step_result *s, void *arg)
{
    struct live *l = arg;
    struct engine *g = l->engine;
    const enum row_kind kind = l->kind;
    char id[BOARD_ID_MAX]; /* `l` may be gone then */
    snprintf(id, sizeof id, "%s", l->id);
    operation_done_fn *operation_done = l->operation_done;
    backup_done_fn *backup_done = l->backup_done;
    l->step = NULL;
    l->operation_done = NULL;
    l->backup_done = NULL;
    if (operation_done)
        operation_work_done(g, l, operation_done, s);
    else
        backup_work_done(g, l, backup_done, s);
    engine_look_at(g, kind, id);
}

static int work(struct engine *g, struct live *l, const char *id, const char *doing, step_fn *fn, json_t *in,
                int64_t timeout_s, operation_done_fn *operation_done, backup_done_fn *backup_done, struct err *e)
{
    CLEANUP_JSON json_t *owned = in;
    char name[640];
    if (!owned || !l)
        return err_nomem(e);
    if (l->step)
        return err_set(e, ERR_BUSY, EBUSY, "%s is still busy with %s", id, l->doing);
    snprintf(name, sizeof name, "%s %s", doing, id);
    l->doing = doing;
    l->operation_done = operation_done;
    l->backup_done = backup_done;
    l->step_since_ns = now_ns();
    if (timeout_s < 1)
        timeout_s = 60;
    return step_start(g->steps, name, fn, owned, (unsigned)(timeout_s > 864000 ? 864000 : timeout_s), work_done, l,
                      &l->step, e);
}

int operation_work(struct engine *g, const struct operation *op, const char *doing, step_fn *fn, json_t *in,
                   int64_t timeout_s, operation_done_fn *done, struct err *e)
{
    return work(g, live_get(g, ROW_OPERATION, op->id), op->id, doing, fn, in, timeout_s, done, NULL, e);
}

int backup_work(struct engine *g, const struct backup *b, const char *doing, step_fn *fn, json_t *in, int64_t timeout_s,
                backup_done_fn *done, struct err *e)
{
    return work(g, live_get(g, ROW_BACKUP, b->id), b->id, doing, fn, in, timeout_s, NULL, done, e);
}

/* ---- waiting clients ---- */

/* Those that went away while they were told something. */
static void purge_waiters(struct engine *g)
{
    for (struct waiter **p = &g->waiters; *p;) {
        struct waiter *w = *p;
        if (!w->fn) {
            *p = w->next;
            free(w);
        } else {
            p = &w->next;
        }
    }
}

/* `own`: the waiter's record itself has changed, not one of its operations. */
static bool due(struct waiter *w, bool own, bool progress_only, int64_t now)
{
    /* A backup is not reported anew with each step of each of its operations. */
    if ((progress_only || !own) && now - w->told_ns < NS_PER_S * 9 / 10)
        return false;
    w->told_ns = now;
    return true;
}

static void tell(struct waiter *w, json_t *state, bool terminal)
{
    CLEANUP_JSON json_t *owned = state;
    if (owned && w->fn)
        w->fn(owned, terminal, w->arg);
}

void tell_operation_waiters(struct engine *g, const struct operation *op, bool progress_only)
{
    const int64_t now = now_ns();
    g->telling++;
    for (struct waiter *w = g->waiters; w; w = w->next) {
        const bool own = !strcmp(w->id, op->id);
        if (!w->fn || (!own && strcmp(w->id, op->parent) != 0) || !due(w, own, progress_only, now))
            continue;
        if (own) {
            tell(w, engine_operation_json(g, op), op_state_terminal(op->state));
            continue;
        }
        CLEANUP(backup_clear) struct backup b;
        if (backup_read(g, op->parent, &b) == 0)
            tell(w, engine_backup_json(g, &b, true), false);
    }
    if (--g->telling == 0)
        purge_waiters(g);
}

void tell_backup_waiters(struct engine *g, const struct backup *b)
{
    const int64_t now = now_ns();
    g->telling++;
    for (struct waiter *w = g->waiters; w; w = w->next)
        if (w->fn && !strcmp(w->id, b->id) && due(w, true, false, now))
            tell(w, engine_backup_json(g, b, true), backup_state_terminal(b->state));
    if (--g->telling == 0)
        purge_waiters(g);
}

int engine_wait(struct engine *g, const char *id, engine_wait_fn *fn, void *arg, struct err *e)
{
    CLEANUP(backup_clear) struct backup b;
    CLEANUP(operation_clear) struct operation op;
    CLEANUP_JSON json_t *state = NULL;
    bool terminal;
    operation_init(&op);
    if (backup_get(g->records, id, &b, NULL) == 0) {
        terminal = backup_state_terminal(b.state);
        state = engine_backup_json(g, &b, true);
    } else if (operation_get(g->records, id, &op, NULL) == 0) {
        terminal = op_state_terminal(op.state);
        state = engine_operation_json(g, &op);
    } else {
        err_set(e, ERR_NOT_FOUND, 0, "there is no backup, restore or operation %s", id);
        return err_hint(e, "`snapferry backups` and `snapferry operations --all` list them");
    }
    if (!terminal) {
        struct waiter *w = calloc(1, sizeof *w);
        if (!w)
            return err_nomem(e);
        snprintf(w->id, sizeof w->id, "%s", id);
        w->fn = fn;
        w->arg = arg;
        w->told_ns = now_ns();
        w->next = g->waiters;
        g->waiters = w;
    }
    if (state)
        fn(state, terminal, arg);
    return 0;
}

void engine_unwait(struct engine *g, void *arg)
{
    for (struct waiter *w = g->waiters; w; w = w->next)
        if (w->arg == arg)
            w->fn = NULL;
    if (!g->telling)
        purge_waiters(g);
}

/* ---- the loop ---- */

#define ROUND 64          /* rows that one turn of the loop looks at */
#define UNDONE_AGAIN_S 10 /* until a change that was undone is tried again */

static void look_at_operation(struct engine *g, const char *id)
{
    /* What counts is what is on disk now: an earlier look of this round may have changed it. */
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    if (operation_read(g, id, &op) < 0 || op_state_terminal(op.state) || (busy(g, id) && !op.cancel))
        return;
    switch (op.kind) {
    case KIND_ADMIN:
    case KIND_VERIFY:
        reconcile_admin(g, &op);
        break;
    case KIND_DELETE:
        reconcile_delete(g, &op);
        break;
    case KIND_BACKUP:
    case KIND_RESTORE:
        reconcile_operation(g, &op);
        break;
    case KIND_NONE: /* of a newer version */
    case KINDS:
        break;
    }
}

static int board_add_operation(const struct operation *op, void *arg)
{
    struct engine *g = arg;
    return board_operation(g->board, op->id, op);
}

static int board_add_backup(const struct backup *b, void *arg)
{
    struct engine *g = arg;
    return board_backup(g->board, b->id, b);
}

/* Makes the board from the rows. */
static int board_load(struct engine *g, struct err *e)
{
    const struct operation_filter operations = {.live = true};
    const struct backup_filter backups = {.live = true};
    board_free(g->board);
    g->board = board_new();
    if (!g->board)
        return err_nomem(e);
    int rc = backup_each(g->records, &backups, board_add_backup, g, e);
    if (rc >= 0)
        rc = operation_each(g->records, &operations, board_add_operation, g, e);
    g->board_stale = rc < 0;
    g->backups_changed = true;
    return rc < 0 ? rc : 0;
}

/* Whether a change of a row is one that goes back. A new row that is removed is taken for one: looking again a little
 * later does no harm. */
static bool goes_back(const struct row *was, const struct row *now)
{
    return was && now ? now->generation < was->generation : now ? now->generation > 1 : was && was->generation == 1;
}

/* A row was changed, or a change was undone. */
static void row_changed(enum row_kind k, const char *id, const void *was, const void *now, void *arg)
{
    struct engine *g = arg;
    int rc = 0;
    if ((k == ROW_OPERATION || k == ROW_BACKUP) && goes_back(was, now)) {
        g->undone = true;
        g->board_stale |= was && now && row_state(k, was) >= row_types[k].terminal; /* it had been counted as ended */
    }
    if (k == ROW_OPERATION) {
        rc = board_operation(g->board, id, now);
    } else if (k == ROW_BACKUP) {
        rc = board_backup(g->board, id, now);
        g->backups_changed = true;
    } else if (k == ROW_KINDS) {
        g->board_stale = true;
    }
    g->board_stale |= rc < 0;
    if (k == ROW_OPERATION || k == ROW_BACKUP || k == ROW_KINDS)
        engine_kick(g);
}

void engine_look_at(struct engine *g, enum row_kind k, const char *id)
{
    if (k == ROW_BACKUP)
        board_mark_backup(g->board, id);
    else
        board_mark(g->board, id);
    engine_kick(g);
}

void engine_look_at_all(struct engine *g)
{
    board_mark_all(g->board);
    queue_mark_down(g);
    g->backups_changed = true;
    engine_kick(g);
}

/* The next look at the clock: the earliest stored deadline, at most the sweep's period away. What was undone is not
 * tried again at once: records that cannot be written now would be tried without end. */
static void arm(struct engine *g)
{
    int64_t now = now_ns(), at = g->sweep_ns + cfg_daemon(g->cfg)->sweep_s * NS_PER_S, wake = board_wake(g->board);
    if (g->undone && g->kicked) {
        g->kicked = false;
        sd_event_source_set_enabled(g->kick, SD_EVENT_OFF);
        if (at > now + UNDONE_AGAIN_S * NS_PER_S)
            at = now + UNDONE_AGAIN_S * NS_PER_S;
    }
    if (at > now + cfg_daemon(g->cfg)->sweep_s * NS_PER_S)
        at = now; /* the clock was set back */
    if (wake && wake < at)
        at = wake;
    /* Not more often than this, whatever a record says. */
    int64_t wait = at - now < NS_PER_S / 5 ? NS_PER_S / 5 : at - now;
    sd_event_source_set_time_relative(g->sweep, (uint64_t)(wait / 1000));
    sd_event_source_set_enabled(g->sweep, SD_EVENT_ONESHOT);
}

/* A round looks at what is marked; what the round itself changes is for the next one, so that requests are served in
 * between. */
static void reconcile(struct engine *g)
{
    struct err e = ERR_INIT;
    char id[BOARD_ID_MAX];
    if (g->board_stale && board_load(g, &e) < 0) {
        log_warning("the records cannot be read, retrying: %s", e.msg);
        return;
    }
    if (g->was_degraded && !records_degraded(g->records))
        engine_look_at_all(g);
    g->was_degraded = records_degraded(g->records);
    board_mark_due(g->board, now_ns());
    queue_mark_next(g);
    for (unsigned n = 0; n < ROUND && board_take(g->board, id); n++)
        look_at_operation(g, id);
    if (g->backups_changed) {
        g->backups_changed = false;
        begin_backups(g);
    }
    for (unsigned n = 0; n < ROUND && board_take_backup(g->board, id); n++)
        reconcile_backup(g, id);
    if (board_is_marked(g->board) || g->backups_changed)
        engine_kick(g);
}

static int on_kick(sd_event_source *s, void *arg)
{
    struct engine *g = arg;
    (void)s;
    g->kicked = g->undone = false;
    if (!g->stopping) {
        reconcile(g);
        arm(g);
    }
    return 0;
}

void engine_kick(struct engine *g)
{
    if (g->kicked || g->stopping)
        return;
    g->kicked = true;
    sd_event_source_set_enabled(g->kick, SD_EVENT_ONESHOT);
}

static void old_timers_stopped(struct step_result *r, void *arg)
{
    struct engine *g = arg;
    g->old_timers = r->err.cls ? OLD_TIMERS_LEFT : OLD_TIMERS_GONE;
    if (r->err.cls)
        log_warning("timers of an earlier version cannot be removed, retrying: %s", r->err.msg);
    else if (jint(r->out, "stopped") > 0)
        log_info("removed %lld timer%s of an earlier version: the daemon runs its jobs itself",
                 (long long)jint(r->out, "stopped"), jint(r->out, "stopped") == 1 ? "" : "s");
}

/* What an earlier version left with systemd. */
static void stop_old_timers(struct engine *g)
{
    CLEANUP_JSON json_t *none = json_object();
    struct err e = ERR_INIT;
    if (g->old_timers == OLD_TIMERS_LEFT &&
        step_start(g->steps, "remove old timers", old_timers_step, none, 60, old_timers_stopped, g, NULL, &e) == 0)
        g->old_timers = OLD_TIMERS_STOPPING;
}

static int on_sweep(sd_event_source *s, uint64_t usec, void *arg)
{
    struct engine *g = arg;
    (void)s, (void)usec;
    int64_t now = now_ns();
    const struct cfg_daemon *d = cfg_daemon(g->cfg);
    if (g->stopping)
        return 0;
    if (now - g->sweep_ns >= d->sweep_s * NS_PER_S || now < g->sweep_ns) {
        struct err e = ERR_INIT;
        g->sweep_ns = now;
        stop_old_timers(g);
        repositories_refresh(g, false);
        if (records_recoveries(g->records) != g->recoveries) { /* rows may be missing: look at everything (E-04) */
            g->recoveries = records_recoveries(g->records);
            g->news.recovered = true;
            g->orphans_ns = g->strays_ns = 0;
        }
        sweep_movers(g);
        sweep_storage(g);
        sweep_volumes(g);
        sweep_room(g);
        volumes_expect(g);
        count_write_errors(g);
        if (records_flush(g->records, &e) < 0)
            log_warning("counters cannot be written: %s", e.msg);
        if (records_prune(g->records, d->keep_records_s, 200, &e) < 0)
            log_warning("old records cannot be removed: %s", e.msg);
        engine_look_at_all(g);
    }
    engine_kick(g);
    return 0;
}

/* ---- life ---- */

static void job_due(const char *job, int64_t planned, bool caught_up, void *arg)
{
    struct engine *g = arg;
    CLEANUP_JSON json_t *req = json_object();
    jset_str(req, "job", job);
    jset_bool(req, "caught_up", caught_up);
    jset_int(req, "planned_ns", planned);
    engine_submit_backup(g, req, NULL, NULL);
}

/* on-restart = fail: what was in phase 1 when the daemon ended is not gone on with. */
static int fail_unfinished(const struct backup *b, void *arg)
{
    struct engine *g = arg;
    CLEANUP(backup_clear) struct backup own;
    struct err e = ERR_INIT;
    if (b->state != BACKUP_SNAPSHOTTING || backup_read(g, b->id, &own) < 0)
        return 0;
    own.cancel = true;
    err_set(&e, ERR_INTERRUPTED, 0, "the daemon was restarted while snapshots were taken, and on-restart = fail");
    backup_error(&own, "snapshot", &e);
    backup_write(g, &own);
    return 0;
}

int engine_new(struct engine **ret, sd_event *loop, const struct engine_paths *p, struct cfg *c, struct err *e)
{
    struct engine *g = calloc(1, sizeof *g);
    if (!g)
        return err_nomem(e);
    g->live = calloc(LIVE_BUCKETS, sizeof *g->live);
    if (!g->live) {
        free(g);
        return err_nomem(e);
    }
    g->loop = loop;
    g->paths = *p;
    g->cfg = cfg_ref(c);
    g->started_ns = g->reload_ns = now_ns();
    g->reload_ok = true;
    int rc = records_open(&g->records, p->state_dir, &g->news, e);
    if (rc < 0)
        goto fail;
    if (g->news.recovered)
        log_warning("%s", g->news.text);
    count_migrate(g->records);
    rc = facts_new(g, e);
    if (rc < 0)
        goto fail;
    rc = steps_new(&g->steps, loop, e);
    if (rc < 0)
        goto fail;
    const struct movers_opts mo = {.loop = loop,
                                   .steps = g->steps,
                                   .runtime_dir = g->paths.runtime_dir,
                                   .state_dir = g->paths.state_dir,
                                   .program = g->paths.mover_program,
                                   .events = &engine_mover_events,
                                   .arg = g};
    rc = movers_new(&g->movers, &mo, e);
    if (rc < 0)
        goto fail;
    rc = board_load(g, e);
    if (rc < 0)
        goto fail;
    rc = rows_watch(g->records, row_changed, g);
    if (rc < 0) {
        err_set(e, ERR_GENERIC, -rc, "the records cannot be watched");
        goto fail;
    }
    if (sd_event_add_defer(loop, &g->kick, on_kick, g) < 0 ||
        sd_event_add_time_relative(loop, &g->sweep, CLOCK_MONOTONIC, 0, 100000, on_sweep, g) < 0) {
        rc = err_set(e, ERR_GENERIC, ENOMEM, "the event loop takes no more sources");
        goto fail;
    }
    sd_event_source_set_enabled(g->kick, SD_EVENT_OFF);
    /* Requests and the end of movers and steps come first. */
    sd_event_source_set_priority(g->kick, SD_EVENT_PRIORITY_NORMAL + 10);
    if (cfg_daemon(c)->on_restart == ON_RESTART_FAIL) {
        struct backup_filter live = {.live = true};
        backup_each(g->records, &live, fail_unfinished, g, NULL);
    }
    struct schedule_opts so = {.records = g->records, .loop = loop, .start = job_due, .arg = g};
    rc = schedule_new(&g->schedule, &so, e);
    if (rc < 0)
        goto fail;
    rc = schedule_apply(g->schedule, c, now_ns(), e);
    if (rc < 0)
        goto fail;
    if (systemd_runs())
        g->old_timers = OLD_TIMERS_LEFT;
    repositories_refresh(g, true);
    engine_kick(g);
    *ret = g;
    return 0;
fail:
    engine_free(g);
    return rc;
}

void engine_free(struct engine *g)
{
    if (!g)
        return;
    schedule_free(g->schedule);
    movers_free(g->movers);
    steps_free(g->steps);
    sd_event_source_disable_unref(g->kick);
    sd_event_source_disable_unref(g->sweep);
    live_free(g);
    while (g->waiters) {
        struct waiter *w = g->waiters;
        g->waiters = w->next;
        free(w);
    }
    while (g->repos) {
        struct repo_health *h = g->repos;
        g->repos = h->next;
        free(h);
    }
    if (g->records)
        rows_unwatch(g->records, g);
    board_free(g->board);
    volumes_free(g);
    facts_free(g);
    json_decref(g->orphan_list);
    json_decref(g->pools);
    records_close(g->records);
    cfg_free(g->cfg);
    free(g);
}

void engine_observe(struct engine *g, const struct engine_observer *o)
{
    g->observer = o;
}

void engine_stop(struct engine *g, char *out, size_t cap)
{
    const unsigned movers = movers_count(g->movers);
    g->stopping = true;
    int n = snprintf(out, cap, "stopping");
    if (movers)
        n += snprintf(out + n, cap - (size_t)n, "; %u running mover%s", movers,
                      movers == 1 ? " continues" : "s continue");
    if (schedule_active(g->schedule))
        snprintf(out + n, cap - (size_t)n, "; no jobs run until the daemon is started again");
}

struct records *engine_records(struct engine *g)
{
    return g->records;
}

const struct cfg *engine_cfg(const struct engine *g)
{
    return g->cfg;
}

const struct schedule *engine_schedule(const struct engine *g)
{
    return g->schedule;
}

/* ---- reload ---- */

struct reload {
    struct engine *engine;
    engine_reply_fn *reply;
    void *arg;
};

static void reload_refused(struct engine *g, const struct err *e)
{
    g->reload_ok = false;
    snprintf(g->reload_error, sizeof g->reload_error, "%s", e->msg);
    log_warning("the new configuration is refused, the old one stays in force: %s", e->msg);
}

static void reload_done(struct step_result *s, void *arg)
{
    struct reload *r = arg;
    struct engine *g = r->engine;
    struct err e = s->err;
    struct cfg *fresh = NULL;
    CLEANUP_JSON json_t *answer = NULL;
    g->reloading = false;
    if (!e.cls && jint(s->out, "errors") > 0) {
        const json_t *first = NULL, *c;
        size_t i;
        json_array_foreach(json_object_get(s->out, "complaints"), i,
                           c) if (!first && !strcmp(jstr(c, "severity"), "error")) first = c;
        err_set(&e, ERR_USAGE, 0, "%s: %s%s", jstr(first, "where"), jstr(first, "text"),
                jint(s->out, "errors") > 1 ? " (and more errors)" : "");
        err_hint(&e, "`snapferry check-config` lists all errors");
    }
    if (!e.cls)
        cfg_load_dir(&fresh, g->paths.config_dir, &e);
    if (!e.cls)
        schedule_apply(g->schedule, fresh, now_ns(), &e);
    if (e.cls) {
        cfg_free(fresh);
        reload_refused(g, &e);
    } else {
        cfg_free(g->cfg);
        g->cfg = fresh;
        g->reload_ok = true;
        g->reload_error[0] = '\0';
        g->reload_ns = now_ns();
        movers_forget_keys(g->movers); /* password files may have changed */
        engine_look_at_all(g);
        log_info("the configuration was read again (%.12s)", cfg_hash(fresh));
        repositories_refresh(g, true);
        volumes_look_again(g);
        if (g->observer)
            g->observer->configured(fresh, g->observer->arg);
        answer = json_pack("{s:b,s:s}", "reloaded", 1, "hash", cfg_hash(fresh));
        if (s->out && json_object_get(s->out, "complaints"))
            json_object_set(answer, "complaints", json_object_get(s->out, "complaints"));
    }
    char line[1024];
    engine_headline(g, line, sizeof line);
    notify_status(line); /* `systemctl status` right after a reload shows its result */
    notify_ready();
    if (r->reply)
        r->reply(answer, e.cls ? &e : NULL, r->arg);
    free(r);
    engine_kick(g);
}

void engine_reload(struct engine *g, engine_reply_fn *reply, void *arg)
{
    struct err e = ERR_INIT;
    CLEANUP_JSON json_t *in = json_pack("{s:s}", "config_dir", g->paths.config_dir);
    struct reload *r = calloc(1, sizeof *r);
    if (!r || !in)
        err_nomem(&e);
    else if (g->reloading)
        err_set(&e, ERR_BUSY, EBUSY, "a reload is under way");
    if (!e.cls) {
        *r = (struct reload){g, reply, arg};
        g->reloading = true;
        notify_reloading();
        if (step_start(g->steps, "check the new configuration", config_check_step, in, 120, reload_done, r, NULL, &e) ==
            0)
            return;
        g->reloading = false;
        notify_ready();
    }
    free(r);
    if (reply)
        reply(NULL, &e, arg);
}
