/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine.c - the engine's life: start, turns, sweeps, reload, stop
 *
 * Nothing depends on an event having been seen: events only make a turn come soon, and a sweep looks at every row that
 * is not finished.
 */
#include "base/time.h"
#include "daemon/check/check.h"
#include "daemon/engine/orphans.h"
#include "daemon/engine/facts.h"
#include "daemon/schedule/old-timers.h"
#include "proc/notify.h"
#include "proc/parser.h"
#include "proc/systemd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

/* ---- turns ---- */

static void row_changed(enum row_kind k, const char *id, const void *was, const void *now, void *arg)
{
    struct engine *g = arg;
    decide_row_changed(&g->d, k, id, was, now);
    kept_row(g, k, id, was, now);
    sweep_row(g, k, id, was, now);
    pools_row(g, k, now);
    if (k == ROW_OPERATION || k == ROW_BACKUP) {
        const struct row *row = now ? now : was;
        waiters_note(g, id, k == ROW_OPERATION && row ? row->parent : "");
        engine_kick(g);
    } else if (k == ROW_KINDS) {
        engine_kick(g);
    }
}

/* The next look at the clock: the earliest stored deadline, at most the sweep's period away. */
static void timer_arm(struct engine *g)
{
    const int64_t now = now_ns(), period = cfg_daemon(g->cfg)->sweep_s * NS_PER_S;
    const int64_t wake = decide_wake(&g->d), retry = g->retry_ns ? g->retry_ns - mono_ns() : INT64_MAX;
    int64_t wait = g->sweep_ns + period - now;
    if (wait > period)
        wait = 0; /* the clock was set back */
    if (wake && wake - now < wait && !g->retry_ns)
        wait = wake - now;
    if (retry < wait)
        wait = retry;
    const int64_t tell = waiters_due_ns(g), look = g->stopping ? INT64_MAX : repositories_due_ns(g);
    if (tell < wait)
        wait = tell;
    if (look < wait)
        wait = look;
    if (g->open_ns)
        wait = 0;
    /* Not more often than this, whatever a record says. */
    if (wait < NS_PER_S / 5)
        wait = NS_PER_S / 5;
    /* An earlier one is not put off: turns may follow one another more quickly, and it would never come. */
    const int64_t at = mono_ns() + wait;
    if (g->armed_ns && g->armed_ns <= at)
        return;
    sd_event_source_set_time_relative(g->sweep, (uint64_t)(wait / NS_PER_US));
    sd_event_source_set_enabled(g->sweep, SD_EVENT_ONESHOT);
    g->armed_ns = at;
}

/* Requests, and the ends of movers and steps, come first: each is short. */
#define ENGINE_PRIORITY (SD_EVENT_PRIORITY_NORMAL + 10)
#define ENGINE_WAITS_NS (200 * NS_PER_MS) /* at most, however many of them there are */

static void set_priority(struct engine *g, int64_t priority)
{
    sd_event_source_set_priority(g->kick, priority);
    sd_event_source_set_priority(g->commit, priority);
    sd_event_source_set_priority(g->sweep, priority);
    sd_event_source_set_priority(g->soon, priority);
}

/* Called before the loop looks for events. */
static int before_waiting(sd_event_source *s, void *arg)
{
    struct engine *g = arg;
    (void)s;
    if (!g->waits_ns && (g->kicked || records_committing(g->records)))
        g->waits_ns = mono_ns();
    else if (g->waits_ns && mono_ns() - g->waits_ns > ENGINE_WAITS_NS)
        set_priority(g, SD_EVENT_PRIORITY_NORMAL);
    return 0;
}

static void clients_served(struct engine *g)
{
    if (mono_ns() - g->waits_ns > ENGINE_WAITS_NS)
        set_priority(g, ENGINE_PRIORITY);
    g->waits_ns = 0;
}

static int on_soon(sd_event_source *s, uint64_t usec, void *arg)
{
    (void)s, (void)usec;
    engine_kick(arg);
    return 0;
}

static void turn_soon(struct engine *g, int64_t ns)
{
    sd_event_source_set_time_relative(g->soon, (uint64_t)(ns / NS_PER_US + 1));
    sd_event_source_set_enabled(g->soon, SD_EVENT_ONESHOT);
}

static int on_kick(sd_event_source *s, void *arg)
{
    struct engine *g = arg;
    (void)s;
    clients_served(g);
    g->kicked = false;
    if (g->stopping)
        return 0;
    /* They act upon rows, and what is being written of these is not durable yet. */
    const bool durable = !engine_is_writing(g) && !g->open_ns;
    if (g->storage_wanted && durable) {
        g->storage_wanted = false;
        sweep_storage(g);
    }
    if (g->results_wanted && durable) {
        g->results_wanted = false;
        sweep_results(g);
    }
    /* One part for each turn. Not while a commit is under way: its end is of the same priority, and would wait. */
    const bool writing = engine_is_writing(g), started = !writing && mover_start_part(g);
    const int64_t waits = engine_turn_waits(g);
    if (waits)
        turn_soon(g, waits);
    else
        engine_turn(g);
    if (started && !engine_is_writing(g))
        engine_kick(g);
    /* What is left or new is for the next turn, so that requests are served in between. */
    if (!waits && !g->retry_ns && !engine_is_writing(g) && (g->failed.probe || decide_is_due(&g->d)))
        engine_kick(g);
    if (!g->open_ns && !engine_is_writing(g))
        waiters_tell(g);
    timer_arm(g);
    return 0;
}

static int on_commit(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    struct engine *g = arg;
    (void)s, (void)fd, (void)events;
    clients_served(g);
    engine_committed(g);
    if (g->failed.probe || g->prune_wanted || g->storage_wanted || g->results_wanted || g->starting ||
        decide_is_due(&g->d))
        engine_kick(g);
    return 0;
}

static void old_timers_stopped(struct step_result *r, void *arg)
{
    struct engine *g = arg;
    const int64_t stopped = timers_stopped_of(r->out);
    g->old_timers = r->err.cls ? OLD_TIMERS_LEFT : OLD_TIMERS_GONE;
    if (r->err.cls)
        log_warning("timers of an earlier version cannot be removed, retrying: %s", r->err.msg);
    else if (stopped > 0)
        log_info("removed %" PRId64 " timer%s of an earlier version: the daemon runs its jobs itself", stopped,
                 stopped == 1 ? "" : "s");
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
    g->armed_ns = 0;
    if (g->stopping)
        return 0;
    clock_look(g);
    const int64_t now = now_ns();
    const struct cfg_daemon *d = cfg_daemon(g->cfg);
    repositories_look_again(g, false);
    own_scans_look(g);
    if (now - g->sweep_ns >= d->sweep_s * NS_PER_S || now < g->sweep_ns) {
        g->sweep_ns = now;
        stop_old_timers(g);
        repositories_refresh(g, false);
        other_nodes_look(g);
        maintenance_look(g);
        if (records_recoveries(g->records) != g->recoveries) { /* rows may be missing: look at everything (E-04) */
            g->recoveries = records_recoveries(g->records);
            g->news.recovered = true;
            own_scans_again(g);
            records_are_rebuilt(g);
            g->orphans_ns = g->strays_ns = 0;
        }
        sweep_movers(g);
        g->storage_wanted = true;
        sweep_volumes(g);
        sweep_room(g);
        volumes_expect(g);
        complaints_look(g);
        count_write_errors(g);
        jobs_record(g);
        kept_refresh(g);
        g->prune_wanted = true;
        engine_look_at_all(g);
        waiters_remind(g);
    }
    engine_kick(g);
    return 0;
}

static void job_due(const char *job, int64_t planned, bool caught_up, void *arg)
{
    struct engine *g = arg;
    CLEANUP(request_args_clear) struct request_args req;
    request_args_init(&req);
    str_set(&req.job, job);
    req.caught_up = caught_up;
    req.planned_ns = planned;
    engine_submit_backup(g, &req, NULL, NULL);
}

static void jobs_changed(void *arg)
{
    struct engine *g = arg;
    if (g->schedule) /* else it is being made */
        jobs_record(g);
}

/* All of them or none: a daemon that dies meanwhile counts nothing twice. */
static void migrate_counters(struct records *r)
{
    struct err e = ERR_INIT;
    if (records_begin(r, &e) == 0) {
        count_migrate(r);
        records_commit(r, &e);
    }
    if (e.cls)
        log_warning("counters of an earlier version keep their names until the next start: %s", e.msg);
}

static void take_log_level(const struct cfg *c)
{
    static const char *const words[] = {"debug", "info", "warning", "error"};
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(cfg_daemon(c)->log_level, words[i]))
            log_least_set((enum log_level)i);
}

/* ---- the configuration, as what waits takes it over ---- */

struct reload {
    struct engine *engine;
    engine_reply_fn *reply;
    void *arg;
    json_t *answer;
    struct configured operations;
};

static int write_configured(struct decide *d, void *arg, struct err *e)
{
    struct reload *r = arg;
    (void)e;
    r->operations = configure_waiting(d);
    return 0;
}

/* The configuration is in force, whether this could be recorded or not. */
static void config_loaded(const struct err *e, void *arg)
{
    struct reload *r = arg;
    const struct configured *n = &r->operations;
    if (e->cls && !r->engine->stopping)
        log_warning("operations that wait keep their configuration: %s", e->msg);
    else if (!e->cls && (n->changed || n->kept))
        log_info("%u waiting operation%s taken over the configuration, %u in part or not", n->changed,
                 n->changed == 1 ? " has" : "s have", n->kept);
    if (r->answer && !e->cls)
        json_object_set_new(r->answer, "operations",
                            json_pack("{s:i,s:i}", "changed", (int)n->changed, "kept", (int)n->kept));
    if (r->reply)
        r->reply(r->answer, NULL, r->arg);
    json_decref(r->answer);
    free(r);
}

/* A daemon that was stopped may find another configuration. */
static void configure_at_start(struct engine *g)
{
    const struct operation_filter live = {.live = true};
    uint64_t n = 0;
    struct reload *r = operation_count(g->records, &live, &n, NULL) == 0 && n ? calloc(1, sizeof *r) : NULL;
    if (!r)
        return;
    r->engine = g;
    engine_request(g, write_configured, config_loaded, r);
}

int engine_new(struct engine **ret, sd_event *loop, const struct engine_paths *p, struct cfg *c, struct err *e)
{
    struct engine *g = calloc(1, sizeof *g);
    if (!g)
        return err_nomem(e);
    g->loop = loop;
    g->paths = *p;
    g->cfg = cfg_ref(c);
    take_log_level(c);
    g->started_ns = g->reload_ns = now_ns();
    g->clock_ns = g->started_ns - boot_ns();
    g->reload_ok = true;
    int rc = records_open(&g->records, p->state_dir, &g->news, e);
    if (rc < 0)
        goto fail;
    if (g->news.recovered)
        log_warning("%s", g->news.text);
    migrate_counters(g->records);
    engine_ids(&g->ids);
    g->d.records = g->records;
    g->d.world = (struct world){.clock = now_ns, .cfg = g->cfg, .ids = &g->ids, .writable = true};
    if (sd_id128_get_boot(&g->d.world.boot) < 0)
        g->d.world.boot = SD_ID128_NULL;
    rc = decide_init(&g->d, e);
    if (rc < 0)
        goto fail;
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
    if (sd_event_add_defer(loop, &g->kick, on_kick, g) < 0 ||
        sd_event_add_io(loop, &g->commit, records_commit_fd(g->records), EPOLLIN, on_commit, g) < 0 ||
        sd_event_add_time_relative(loop, &g->sweep, CLOCK_MONOTONIC, 0, 100000, on_sweep, g) < 0 ||
        sd_event_add_time_relative(loop, &g->soon, CLOCK_MONOTONIC, 0, 1000, on_soon, g) < 0 ||
        sd_event_add_time_relative(loop, &g->status_due, CLOCK_MONOTONIC, 0, 1000, status_asked_due, g) < 0) {
        rc = err_set(e, ERR_GENERIC, ENOMEM, "the event loop takes no more sources");
        goto fail;
    }
    sd_event_source_set_enabled(g->kick, SD_EVENT_OFF);
    sd_event_source_set_enabled(g->soon, SD_EVENT_OFF);
    sd_event_source_set_enabled(g->status_due, SD_EVENT_OFF);
    set_priority(g, ENGINE_PRIORITY);
    sd_event_source_set_prepare(g->commit, before_waiting);
    struct schedule_opts so = {
        .records = g->records, .loop = loop, .start = job_due, .changed = jobs_changed, .arg = g};
    rc = schedule_new(&g->schedule, &so, e);
    if (rc < 0)
        goto fail;
    rc = schedule_apply(g->schedule, c, now_ns(), e);
    if (rc < 0)
        goto fail;
    rc = kept_new(g, e);
    if (rc < 0)
        goto fail;
    rc = rows_watch(g->records, row_changed, g);
    if (rc < 0) {
        err_set(e, ERR_GENERIC, -rc, "the records cannot be watched");
        goto fail;
    }
    jobs_record(g);
    if (systemd_runs())
        g->old_timers = OLD_TIMERS_LEFT;
    repositories_refresh(g, true);
    other_nodes_changed(g);
    clock_begin(g);
    configure_at_start(g);
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
    struct err e = ERR_INIT;
    g->stopping = true;
    err_set(&e, ERR_BUSY, 0, "the daemon is stopping and takes no new work");
    if (g->d.events_end)
        requests_refuse(&g->d, &e);
    waiters_stop(g, &e);
    status_asked_stop(g, &e);
    scans_stop(g, &e);
    schedule_free(g->schedule);
    movers_free(g->movers);
    steps_free(g->steps);
    parser_free(g->parser);
    sd_event_source_disable_unref(g->kick);
    sd_event_source_disable_unref(g->sweep);
    sd_event_source_disable_unref(g->commit);
    sd_event_source_disable_unref(g->soon);
    sd_event_source_disable_unref(g->status_due);
    while (g->waiters) {
        struct waiter *w = g->waiters;
        g->waiters = w->next;
        free(w);
    }
    if (g->records)
        rows_unwatch(g->records, g);
    kept_free(g);
    volumes_free(g);
    repositories_free(g);
    recorded_free(g);
    movers_start_free(g);
    other_nodes_free(g);
    own_scans_free(g);
    facts_free(g);
    orphans_free(g);
    strs_clear(&g->removed);
    json_decref(g->kept_out);
    json_decref(g->pools);
    decide_free(&g->d);
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
    engine_turn_end(g); /* what is durable is acted upon: a mover that may begin is told so */
    struct err e = ERR_INIT;
    g->stopping = true;
    err_set(&e, ERR_BUSY, 0, "the daemon is stopping and takes no new work");
    requests_refuse(&g->d, &e);
    waiters_stop(g, &e);
    scans_stop(g, &e);
    orphans_stop(g, &e);
    int n = snprintf(out, cap, "stopping");
    if (movers)
        n += snprintf(out + n, cap - (size_t)n, "; %u running mover%s", movers,
                      movers == 1 ? " continues" : "s continue");
    if (schedule_active(g->schedule))
        snprintf(out + n, cap - (size_t)n, "; no jobs run until the daemon is started again");
}

/* ---- reload ---- */

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
    const struct config_checked checked = config_checked_of(s->out);
    if (!e.cls && checked.errors > 0) {
        err_set(&e, ERR_USAGE, 0, "%s: %s%s", checked.where, checked.text,
                checked.errors > 1 ? " (and more errors)" : "");
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
        take_log_level(fresh);
        g->d.world.cfg = fresh;
        g->reload_ok = true;
        g->reload_error[0] = '\0';
        g->reload_ns = now_ns();
        complaints_take(g, s->out);
        movers_forget_keys(g->movers); /* password files may have changed */
        engine_look_at_all(g);
        log_info("the configuration was read again (%.12s)", cfg_hash(fresh));
        repositories_reopen(g, NULL);
        other_nodes_changed(g);
        volumes_look_again(g);
        movers_limit_again(g);
        g->storage_wanted = true; /* native snapshots of a class that is new */
        g->orphans_ns = 0;
        kept_configure(g);
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
    if (e.cls) {
        if (r->reply)
            r->reply(NULL, &e, r->arg);
        free(r);
    } else {
        r->answer = json_incref(answer);
        engine_request(g, write_configured, config_loaded, r);
    }
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
        *r = (struct reload){.engine = g, .reply = reply, .arg = arg};
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
