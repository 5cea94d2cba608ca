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
#include "daemon/movers/plugin-movers.h"
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

/* ---- records ---- */

int save(struct engine *g, enum rec_kind k, struct rec *r)
{
    struct err e = ERR_INIT;
    int rc = records_save(g->records, k, r, &e);
    if (k == REC_OPERATION)
        g->queue_known = false;
    if (rc < 0) {
        log_warning("the record of %s cannot be saved, it is tried again: %s", r->id, e.msg);
        return rc;
    }
    tell_waiters(g, k, r, false);
    return 0;
}

int save_state(struct engine *g, enum rec_kind k, struct rec *r, const char *state)
{
    char old[sizeof r->state];
    snprintf(old, sizeof old, "%s", r->state);
    snprintf(r->state, sizeof r->state, "%s", state);
    records_counters_hold(g->records);
    if (k == REC_OPERATION && strcmp(old, state) && !state_terminal(state)) {
        operation_spent(r, old);
        if (!strcmp(old, "Queued"))
            count_queue_wait(g, r, state);
    }
    if (strcmp(old, state))
        jset_int(r->doc, "state_since_ns", now_ns());
    int rc = save(g, k, r);
    records_counters_settle(g->records);
    if (rc == 0 && strcmp(old, state)) {
        log_debug("%s: %s -> %s", rec_label(r), old, state);
        engine_kick(g);
    }
    return rc;
}

void doc_error(json_t *doc, const char *stage, const struct err *e)
{
    json_t *o = json_object();
    if (!o)
        return;
    jset_str(o, "class", err_class_name(e->cls));
    jset_int(o, "code", e->cls);
    jset_str(o, "stage", stage);
    jset_str(o, "message", e->msg);
    jset_str(o, "hint", e->hint);
    jset_int(o, "errno", e->sys);
    jset_int(o, "at_ns", now_ns());
    jset_int(o, "attempt", jint(doc, "attempt"));
    json_object_set_new(doc, "error", o);
}

int rec_get(struct engine *g, enum rec_kind k, const char *id, struct rec *ret)
{
    struct err e = ERR_INIT;
    int rc = records_get(g->records, k, id, ret, &e);
    if (rc < 0 && e.cls != ERR_NOT_FOUND)
        log_warning("%s", e.msg);
    return rc;
}

/* ---- what runs for a record ---- */

struct live *live_find(struct engine *g, const char *id)
{
    for (struct live *l = g->live; l; l = l->next)
        if (!strcmp(l->id, id))
            return l;
    return NULL;
}

struct live *live_get(struct engine *g, enum rec_kind k, const char *id)
{
    struct live *l = live_find(g, id);
    if (l)
        return l;
    l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->engine = g;
    l->kind = k;
    snprintf(l->id, sizeof l->id, "%s", id);
    l->next = g->live;
    g->live = l;
    return l;
}

void live_drop(struct engine *g, const char *id)
{
    for (struct live **p = &g->live; *p; p = &(*p)->next) {
        struct live *l = *p;
        if (strcmp(l->id, id) || l->step)
            continue;
        *p = l->next;
        json_decref(l->progress);
        free(l);
        return;
    }
}

bool busy(struct engine *g, const char *id)
{
    struct live *l = live_find(g, id);
    return l && l->step;
}

static void work_done(struct step_result *s, void *arg)
{
    struct live *l = arg;
    struct engine *g = l->engine;
    CLEANUP(rec_clearp) struct rec r = REC_INIT;
    void (*done)(struct engine *, struct rec *, struct step_result *) = l->done;
    l->step = NULL;
    l->done = NULL;
    if (rec_get(g, l->kind, l->id, &r) == 0)
        done(g, &r, s);
    engine_kick(g);
}

int work(struct engine *g, enum rec_kind k, const struct rec *r, const char *doing, step_fn *fn, json_t *in,
         int64_t timeout_s, void (*done)(struct engine *g, struct rec *r, struct step_result *s), struct err *e)
{
    CLEANUP_JSON json_t *owned = in;
    struct live *l = live_get(g, k, r->id);
    char name[640];
    if (!owned || !l)
        return err_nomem(e);
    if (l->step)
        return err_set(e, ERR_BUSY, EBUSY, "%s is still busy with %s", r->id, l->doing);
    snprintf(name, sizeof name, "%s %s", doing, r->id);
    l->doing = doing;
    l->done = done;
    l->step_since_ns = now_ns();
    if (timeout_s < 1)
        timeout_s = 60;
    return step_start(g->steps, name, fn, owned, (unsigned)(timeout_s > 864000 ? 864000 : timeout_s), work_done, l,
                      &l->step, e);
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

void tell_waiters(struct engine *g, enum rec_kind k, const struct rec *r, bool progress_only)
{
    int64_t now = now_ns();
    g->telling++;
    for (struct waiter *w = g->waiters; w; w = w->next) {
        if (!w->fn || (strcmp(w->id, r->id) && (k != REC_OPERATION || strcmp(w->id, r->parent))))
            continue;
        bool own = !strcmp(w->id, r->id);
        /* The whole of a backup is not told anew with each step of each of its operations. */
        if ((progress_only || !own) && now - w->told_ns < NS_PER_S * 9 / 10)
            continue;
        w->told_ns = now;
        bool terminal = own && state_terminal(r->state);
        CLEANUP_JSON json_t *state = k == REC_BACKUP ? engine_backup_json(g, r, true) : engine_operation_json(g, r);
        if (!own && k == REC_OPERATION) {
            /* Someone waits for the backup: it sees the whole. */
            CLEANUP(rec_clearp) struct rec b = REC_INIT;
            if (rec_get(g, REC_BACKUP, r->parent, &b) < 0)
                continue;
            json_decref(state);
            state = engine_backup_json(g, &b, true);
        }
        if (state && w->fn)
            w->fn(state, terminal, w->arg);
    }
    if (--g->telling == 0)
        purge_waiters(g);
}

int engine_wait(struct engine *g, const char *id, engine_wait_fn *fn, void *arg, struct err *e)
{
    CLEANUP(rec_clearp) struct rec r = REC_INIT;
    enum rec_kind k = REC_BACKUP;
    if (records_get(g->records, k, id, &r, NULL) < 0) {
        k = REC_OPERATION;
        if (records_get(g->records, k, id, &r, NULL) < 0) {
            err_set(e, ERR_NOT_FOUND, 0, "there is no backup, restore or operation %s", id);
            return err_hint(e, "`snapferry backups` and `snapferry operations --all` list them");
        }
    }
    CLEANUP_JSON json_t *state = k == REC_BACKUP ? engine_backup_json(g, &r, true) : engine_operation_json(g, &r);
    bool terminal = state_terminal(r.state);
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

static int visit_backup(struct rec *b, void *arg)
{
    reconcile_backup(arg, b);
    return 0;
}

static void look_at_operation(struct engine *g, const char *id)
{
    /* What counts is what is on disk now: an earlier look of this round may have changed it. */
    CLEANUP(rec_clearp) struct rec op = REC_INIT;
    if (rec_get(g, REC_OPERATION, id, &op) < 0 || state_terminal(op.state) || (busy(g, id) && !jbool(op.doc, "cancel")))
        return;
    const char *kind = jstr(op.doc, "kind");
    if (!strcmp(kind, "admin") || !strcmp(kind, "verify"))
        reconcile_admin(g, &op);
    else if (!strcmp(kind, "delete"))
        reconcile_delete(g, &op);
    else
        reconcile_operation(g, &op);
}

/* Every operation that is not finished, but for those that only wait for others to go first. */
static int look_at_operations(struct engine *g)
{
    typedef char id_text[sizeof g->queue->id];
    int rc = queue_view(g);
    if (rc < 0)
        return rc;
    unsigned n = 0;
    CLEANUP_FREE id_text *ids = calloc(g->n_queue + 1, sizeof *ids);
    if (!ids)
        return -ENOMEM;
    for (unsigned i = 0; i < g->n_queue; i++)
        if (queue_worth_a_look(g, i))
            memcpy(ids[n++], g->queue[i].id, sizeof *ids);
    for (unsigned i = 0; i < n; i++)
        look_at_operation(g, ids[i]);
    return 0;
}

static void reconcile(struct engine *g)
{
    struct err e = ERR_INIT;
    struct rec_filter live = {.live = true};
    if (look_at_operations(g) < 0)
        log_warning("the operations cannot be read, it is tried again");
    if (records_each(g->records, REC_BACKUP, &live, visit_backup, g, &e) < 0)
        log_warning("the records cannot be read, it is tried again: %s", e.msg);
}

/* The next look at the clock: the earliest stored deadline, at most the sweep's period away. */
static void arm(struct engine *g)
{
    int64_t now = now_ns(), at = g->sweep_ns + cfg_daemon(g->cfg)->sweep_s * NS_PER_S;
    if (at > now + cfg_daemon(g->cfg)->sweep_s * NS_PER_S)
        at = now; /* the clock was set back */
    if (queue_view(g) == 0)
        for (unsigned i = 0; i < g->n_queue; i++)
            if (g->queue[i].wake_ns && g->queue[i].wake_ns < at)
                at = g->queue[i].wake_ns;
    /* Not more often than this, whatever a record says. */
    int64_t wait = at - now < NS_PER_S / 5 ? NS_PER_S / 5 : at - now;
    sd_event_source_set_time_relative(g->sweep, (uint64_t)(wait / 1000));
    sd_event_source_set_enabled(g->sweep, SD_EVENT_ONESHOT);
}

static int on_kick(sd_event_source *s, void *arg)
{
    struct engine *g = arg;
    (void)s;
    g->kicked = false;
    g->queue_known = false; /* others than save() write records too */
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
        repositories_refresh(g, false);
        if (records_recoveries(g->records) != g->recoveries) { /* rows may be missing: look at everything (E-04) */
            g->recoveries = records_recoveries(g->records);
            g->news.recovered = true;
            g->orphans_ns = 0;
        }
        sweep_storage(g);
        sweep_volumes(g);
        sweep_room(g);
        volumes_expect(g);
        count_write_errors(g);
        if (records_flush(g->records, &e) < 0)
            log_warning("counters cannot be written: %s", e.msg);
        if (records_prune(g->records, d->keep_records_s, 200, &e) < 0)
            log_warning("old records cannot be removed: %s", e.msg);
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
    jset_bool(req, "from_timer", true);
    jset_bool(req, "caught_up", caught_up);
    jset_int(req, "planned_ns", planned);
    engine_submit_backup(g, req, NULL, NULL);
}

/* on-restart = fail: what was in phase 1 when the daemon ended is not gone on with. */
static int fail_unfinished(struct rec *b, void *arg)
{
    struct engine *g = arg;
    if (strcmp(b->state, "Snapshotting"))
        return 0;
    jset_bool(b->doc, "cancel", true);
    struct err e = ERR_INIT;
    err_set(&e, ERR_INTERRUPTED, 0, "the daemon was restarted while snapshots were taken, and on-restart = fail");
    doc_error(b->doc, "snapshot", &e);
    save(g, REC_BACKUP, b);
    return 0;
}

int engine_new(struct engine **ret, sd_event *loop, const struct engine_paths *p, struct cfg *c, struct err *e)
{
    struct engine *g = calloc(1, sizeof *g);
    if (!g)
        return err_nomem(e);
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
    struct movers_opts mo = {
        loop, g->paths.runtime_dir, g->paths.state_dir, g->paths.mover_program, &engine_mover_events, g};
    rc = movers_new(&g->movers, &mo, e);
    if (rc < 0)
        goto fail;
    struct plugin_movers_opts po = {
        .loop = loop, .steps = g->steps, .events = &engine_mover_events, .arg = g, .runtime_dir = g->paths.runtime_dir};
    rc = plugin_movers_new(&g->plugins, &po, e);
    if (rc < 0)
        goto fail;
    if (sd_event_add_defer(loop, &g->kick, on_kick, g) < 0 ||
        sd_event_add_time_relative(loop, &g->sweep, CLOCK_MONOTONIC, 0, 100000, on_sweep, g) < 0) {
        rc = err_set(e, ERR_GENERIC, ENOMEM, "the event loop takes no more sources");
        goto fail;
    }
    sd_event_source_set_enabled(g->kick, SD_EVENT_OFF);
    if (cfg_daemon(c)->on_restart == ON_RESTART_FAIL) {
        struct rec_filter live = {.live = true};
        records_each(g->records, REC_BACKUP, &live, fail_unfinished, g, NULL);
    }
    struct schedule_opts so = {loop, g->records, g->paths.command, g->paths.runtime_dir, systemd_runs(), job_due, g};
    rc = schedule_new(&g->schedule, &so, e);
    if (rc < 0)
        goto fail;
    rc = schedule_apply(g->schedule, c, e);
    if (rc < 0)
        goto fail;
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
    plugin_movers_free(g->plugins);
    movers_free(g->movers);
    steps_free(g->steps);
    sd_event_source_disable_unref(g->kick);
    sd_event_source_disable_unref(g->sweep);
    while (g->live) {
        struct live *l = g->live;
        g->live = l->next;
        json_decref(l->progress);
        free(l);
    }
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
    free(g->queue);
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

void engine_stop(struct engine *g)
{
    g->stopping = true;
}

struct records *engine_records(struct engine *g)
{
    return g->records;
}

const struct cfg *engine_cfg(const struct engine *g)
{
    return g->cfg;
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
        schedule_apply(g->schedule, fresh, &e);
    if (e.cls) {
        cfg_free(fresh);
        reload_refused(g, &e);
    } else {
        cfg_free(g->cfg);
        g->cfg = fresh;
        g->reload_ok = true;
        g->reload_error[0] = '\0';
        g->reload_ns = now_ns();
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
