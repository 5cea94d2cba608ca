/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * plugin-movers.c - the state machine of a mover plugin's operation
 *
 * Beginning -> Running -> (Asking for the result | Cleaning) -> ended. One verb at a time is called, as a step; its
 * answer, a line of output, the end of a process or a timer each lead to op_turn(), which evaluates the whole state and
 * performs the next action. The reason for stopping an operation (a cancel, a stall, a plugin that no longer answers)
 * is recorded and becomes its outcome, unless the plugin reports completion: a result is a fact.
 */
#include "base/cleanup.h"
#include "base/time.h"
#include "daemon/movers/plugin-movers-impl.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static struct pm_op *op_find(const struct plugin_movers *pm, const char *operation)
{
    for (struct pm_op *o = pm->first; o; o = o->next)
        if (!o->aftermath && strcmp(o->operation, operation) == 0)
            return o;
    return NULL;
}

/* ---- making and freeing ---- */

static void op_free(struct pm_op *o)
{
    pm_process_clear(&o->proc);
    sd_event_source_disable_unref(o->timer);
    json_decref(o->request);
    json_decref(o->stored);
    free(o);
}

static void op_unlink(struct pm_op *o)
{
    for (struct pm_op **p = &o->pm->first; *p; p = &(*p)->next)
        if (*p == o) {
            *p = o->next;
            break;
        }
}

static void op_turn(struct pm_op *o);

static int on_timer(sd_event_source *s, uint64_t usec, void *arg)
{
    (void)s;
    (void)usec;
    op_turn(arg);
    return 0;
}

static int op_new(struct pm_op **ret, struct plugin_movers *pm, const char *operation, const struct cfg_plugin *p,
                  const json_t *request, const struct mover_times *t, struct err *e)
{
    if (strlen(operation) >= sizeof((struct pm_op *)NULL)->operation)
        return err_set(e, ERR_GENERIC, ENAMETOOLONG, "operation id %.60s... is too long", operation);
    struct pm_op *o = calloc(1, sizeof *o);
    if (!o)
        return err_nomem(e);
    o->pm = pm;
    o->proc.pidfd = -1;
    snprintf(o->operation, sizeof o->operation, "%s", operation);
    o->plugin = *p;
    o->plugin.match_class = o->plugin.match_path = NULL;
    o->prog = plugin_program_of(&o->plugin);
    if (t)
        o->times = *t;
    if (o->times.stall_timeout_s <= 0)
        o->times.stall_timeout_s = 900;
    if (o->times.cancel_grace_s <= 0)
        o->times.cancel_grace_s = 30;
    o->restore = strcmp(json_string_value(json_object_get(request, "direction")) ?: "", "restore") == 0;
    o->request = request ? json_deep_copy(request) : json_object();
    int rc = o->request && json_object_set_new(o->request, "operation", json_string(operation)) == 0 ? 0 : -ENOMEM;
    if (rc == 0)
        rc = sd_event_add_time(pm->loop, &o->timer, CLOCK_MONOTONIC, (uint64_t)mono_ns() / 1000, 1000, on_timer, o);
    if (rc < 0) {
        op_free(o);
        return err_set(e, ERR_GENERIC, -rc, "cannot watch operation %s", operation);
    }
    *ret = o;
    return 0;
}

static void op_link(struct pm_op *o)
{
    o->next = o->pm->first;
    o->pm->first = o;
}

/* ---- the end ---- */

static void on_aftermath(struct step_result *r, void *arg)
{
    struct pm_op *o = arg;
    if (r->err.cls && r->err.sys != ENOTSUP)
        log_warning("%s: cleanup failed: %s", o->operation, r->err.msg);
    op_unlink(o);
    op_free(o);
}

/* Nothing waits for it. */
static bool begin_aftermath(struct pm_op *o)
{
    if (!(o->abilities & PA_CLEANUP))
        return false;
    CLEANUP_PLUGIN_JSON json_t *args = json_pack("{s:s, s:s}", "operation", o->operation, "id", o->id);
    CLEANUP_PLUGIN_JSON json_t *in = args ? plugin_step_in(&o->plugin, PV_CLEANUP, args) : NULL;
    char name[256];
    snprintf(name, sizeof name, "cleanup by plugin %s", o->prog.name);
    o->aftermath = true;
    sd_event_source_set_enabled(o->timer, SD_EVENT_OFF);
    return in && step_start(o->pm->steps, name, plugin_step, in, plugin_step_timeout(&o->plugin, PV_CLEANUP),
                            on_aftermath, o, NULL, NULL) == 0;
}

static json_t *result_of(const struct pm_op *o)
{
    if (o->skip[0])
        return json_pack("{s:s, s:s}", "skip", o->skip, "plugin", o->prog.name);
    json_t *r = json_pack("{s:s, s:s, s:I, s:s}", "plugin", o->prog.name, "id", o->id, "bytes",
                          (json_int_t)o->last.done, "operation", o->operation);
    if (r && o->stored)
        json_object_set(r, "stored", o->stored);
    return r;
}

static void op_finish(struct pm_op *o)
{
    struct mover_end end = {.outcome = o->outcome, .status = -1};
    if (o->outcome == MOVER_OK)
        end.result = result_of(o);
    else
        end.err = o->why;
    pm_process_clear(&o->proc);
    if (o->style_run)
        plugin_run_forget(o->pm->dir, o->operation, PV_RUN);
    if (o->abilities & PA_WATCH)
        plugin_run_forget(o->pm->dir, o->operation, PV_WATCH);
    struct plugin_movers *pm = o->pm;
    char operation[sizeof o->operation];
    memcpy(operation, o->operation, sizeof operation);
    op_unlink(o);
    pm->events->ended(operation, &end, pm->arg);
    json_decref(end.result);
    op_free(o);
}

/* ---- steps and their answers ---- */

static void on_answer(struct step_result *r, void *arg);

static bool op_call_with(struct pm_op *o, enum pm_question q, step_fn *fn, json_t *in, unsigned timeout_s)
{
    static const char *const words[] = {
        [PM_Q_BEGIN] = "start",   [PM_Q_WATCH] = "watch", [PM_Q_PROGRESS] = "progress", [PM_Q_CANCEL] = "cancel",
        [PM_Q_RESULT] = "result", [PM_Q_LOGS] = "logs",   [PM_Q_CLEANUP] = "cleanup",   [PM_Q_STOP_UNIT] = "stop"};
    CLEANUP_PLUGIN_JSON json_t *held = in;
    struct err e = ERR_INIT;
    char name[700];
    snprintf(name, sizeof name, "%s of %s by plugin %s", words[q], o->operation, o->prog.name);
    o->question = q;
    if (held && step_start(o->pm->steps, name, fn, held, timeout_s, on_answer, o, &o->step, &e) == 0)
        return true;
    o->step = NULL;
    if (!held)
        err_nomem(&e);
    log_warning("%s: %s", o->operation, e.msg);
    o->next_usec = (uint64_t)mono_ns() / 1000 + pm_backoff_usec(o, 4);
    return false;
}

static bool op_call(struct pm_op *o, enum pm_question q, enum plugin_verb v)
{
    CLEANUP_PLUGIN_JSON json_t *args = json_pack("{s:s, s:s, s:s}", "operation", o->operation, "id", o->id, "direction",
                                                 o->restore ? "restore" : "backup");
    return op_call_with(o, q, plugin_step, args ? plugin_step_in(&o->plugin, v, args) : NULL,
                        plugin_step_timeout(&o->plugin, v));
}

static json_t *process_in(struct pm_op *o, enum plugin_verb v)
{
    CLEANUP_PLUGIN_JSON json_t *args = json_copy(o->request);
    if (!args || json_object_set_new(args, "id", json_string(o->id)) < 0)
        return NULL;
    json_t *in = plugin_step_in(&o->plugin, v, args);
    if (in && (json_object_set_new(in, "dir", json_string(o->pm->dir)) < 0 ||
               json_object_set_new(in, "operation", json_string(o->operation)) < 0)) {
        json_decref(in);
        return NULL;
    }
    return in;
}

static void op_call_begin(struct pm_op *o)
{
    enum plugin_verb v = o->restore ? PV_RESTORE : PV_START;
    json_t *in = process_in(o, v);
    if (in) {
        json_object_set_new(in, "resume", json_string(o->id));
        json_object_set_new(in, "restore", json_boolean(o->restore));
    }
    op_call_with(o, PM_Q_BEGIN, pm_begin_step, in,
                 plugin_step_timeout(&o->plugin, v) + plugin_verb_at(PV_APPLIES)->timeout_s + 15);
}

static void op_begin_failed(struct pm_op *o, const struct err *e, bool timed_out)
{
    /* sys 0: the step itself died, not the plugin. */
    bool never = timed_out || e->sys == ETIMEDOUT || e->sys == 0;
    pm_outcome(o,
               never              ? MOVER_NEVER_STARTED
               : e->sys == EAGAIN ? MOVER_TRANSIENT
                                  : MOVER_FAILED,
               e->cls, e->sys, e->msg);
    snprintf(o->why.hint, sizeof o->why.hint, "%s", e->hint);
    /* Killed meanwhile: the plugin may have started work, which it finds by the operation's id. */
    if (never) {
        o->abilities |= PA_CLEANUP;
        o->style_run = o->unit_left = true; /* in case it is one */
    }
    o->state = never ? PM_CLEANING : PM_ENDING;
    o->tries = never ? PM_CLEANUP_TRIES - 2 : 0;
    o->next_usec = 0;
}

static void op_begun(struct pm_op *o, const json_t *out)
{
    struct process_identity id = {.pid = 0};
    struct err e = ERR_INIT;
    o->abilities = (unsigned)json_integer_value(json_object_get(out, "abilities"));
    o->style_run = o->abilities & PA_RUN;
    snprintf(o->id, sizeof o->id, "%s", json_string_value(json_object_get(out, "id")) ?: "");
    snprintf(o->skip, sizeof o->skip, "%s", json_string_value(json_object_get(out, "skip")) ?: "");
    o->changed_usec = o->began_usec = (uint64_t)mono_ns() / 1000;
    if (o->skip[0]) {
        pm_outcome(o, MOVER_OK, ERR_NONE, 0, "");
        pm_conclude(o);
        return;
    }
    o->state = PM_RUNNING;
    if (o->style_run) {
        if (pm_attach(o, o->id, PV_RUN, &e) < 0) {
            pm_outcome(o, MOVER_DIED, e.cls, e.sys, e.msg);
            pm_conclude(o);
            return;
        }
        id = o->proc.id;
    }
    o->pm->events->ready(o->operation, &(struct mover_ready){.identity = &id, .plugin_id = o->id}, o->pm->arg);
    if (json_is_true(json_object_get(out, "completed"))) {
        const char *error = json_string_value(json_object_get(out, "error"));
        o->told_started = true;
        o->pm->events->started(o->operation, o->pm->arg);
        if (json_is_object(json_object_get(out, "result")))
            o->stored = json_incref(json_object_get(out, "result"));
        pm_outcome(o, error ? MOVER_FAILED : MOVER_OK, ERR_GENERIC, EIO, error ? error : "");
        pm_conclude(o);
    }
}

static void cancel_answered(struct pm_op *o, struct step_result *r)
{
    enum plugin_ack ack;
    struct err e = r->err;
    if (o->state != PM_RUNNING)
        return;
    o->tries++;
    o->cancel_usec = (uint64_t)mono_ns() / 1000 + pm_backoff_usec(o, o->tries);
    if (!e.cls && plugin_ack_read(&o->prog, r->out, &ack, &e) == 0) {
        static const char *const words[] = {"accepted", "already ended", "cannot cancel"};
        log_info("%s: cancel sent, plugin %s: %s", o->operation, o->prog.name, words[ack]);
        o->cancel_acked = true;
        o->next_usec = 0; /* poll progress immediately */
    } else {
        log_warning("%s: %s", o->operation, e.msg);
    }
}

/* Limited attempts: what cannot be cleaned up is logged and left. */
static void cleanup_answered(struct pm_op *o, const struct err *e)
{
    bool hopeless = e->sys == ENOPKG || e->sys == ENOTSUP;
    o->tries++;
    if (!e->cls || hopeless || o->tries >= PM_CLEANUP_TRIES) {
        if (e->cls && !(hopeless && o->outcome == MOVER_NEVER_STARTED))
            pm_doubt(o, e->msg);
        o->state = PM_ENDING;
        return;
    }
    log_warning("%s: %s (attempt %u)", o->operation, e->msg, o->tries);
    o->next_usec = (uint64_t)mono_ns() / 1000 + pm_backoff_usec(o, o->tries);
}

static void result_answered(struct pm_op *o, const struct step_result *r)
{
    o->tries++;
    o->next_usec = (uint64_t)mono_ns() / 1000 + pm_backoff_usec(o, o->tries);
    if (!r->err.cls && json_is_object(json_object_get(r->out, "result")))
        o->stored = json_incref(json_object_get(r->out, "result"));
    else
        log_warning("%s: no result: %s", o->operation, r->err.cls ? r->err.msg : "answer without object \"result\"");
    if (o->stored || o->tries > o->plugin.progress_retry)
        o->state = PM_ENDING;
}

static uint64_t poll_usec(const struct pm_op *o)
{
    uint64_t s = o->plugin.poll_s > 0 ? (uint64_t)o->plugin.poll_s : 10;
    if (o->stopping && s > 2)
        s = 2;
    return o->proc.there && !o->stopping ? PM_WATCH_POLL_USEC : s * 1000000;
}

static void progress_answered(struct pm_op *o, const struct step_result *r)
{
    if (o->state != PM_RUNNING)
        return;
    o->next_usec = (uint64_t)mono_ns() / 1000 + poll_usec(o);
    if (r->err.cls)
        pm_progress_failed(o, &r->err);
    else
        pm_heard(o, PV_PROGRESS, r->out);
}

static void on_answer(struct step_result *r, void *arg)
{
    struct pm_op *o = arg;
    o->step = NULL;
    switch (o->question) {
    case PM_Q_BEGIN:
        if (r->err.cls)
            op_begin_failed(o, &r->err, r->timed_out);
        else
            op_begun(o, r->out);
        break;
    case PM_Q_WATCH:
        if (r->err.cls || pm_attach(o, json_string_value(json_object_get(r->out, "id")) ?: "", PV_WATCH, &r->err) < 0) {
            log_warning("%s: cannot watch it, polling instead: %s", o->operation, r->err.msg);
            pm_watch_ended(o);
        }
        break;
    case PM_Q_PROGRESS:
        progress_answered(o, r);
        break;
    case PM_Q_CANCEL:
        cancel_answered(o, r);
        break;
    case PM_Q_RESULT:
        result_answered(o, r);
        break;
    case PM_Q_LOGS:
        if (r->err.cls)
            log_warning("%s: its log is not available: %s", o->operation, r->err.msg);
        break;
    case PM_Q_CLEANUP:
        cleanup_answered(o, &r->err);
        break;
    case PM_Q_STOP_UNIT:
        if (r->err.cls)
            log_warning("%s: %s", o->operation, r->err.msg);
        break;
    }
    op_turn(o);
}

/* ---- what is next ---- */

static void op_check_deadlines(struct pm_op *o, uint64_t now)
{
    char text[300];
    if (o->stopping || o->state != PM_RUNNING)
        return;
    if (o->times.max_duration_s > 0 && now >= o->began_usec + (uint64_t)o->times.max_duration_s * 1000000) {
        snprintf(text, sizeof text, "max-duration of %lld s exceeded", (long long)o->times.max_duration_s);
        pm_stop_now(o, MOVER_FAILED, text);
    } else if (now >= o->changed_usec + (uint64_t)o->times.stall_timeout_s * 1000000) {
        snprintf(text, sizeof text, "no progress for %lld s (last: %llu of %llu %s%s%s)",
                 (long long)o->times.stall_timeout_s, (unsigned long long)o->last.done,
                 (unsigned long long)o->last.total, o->last.units[0] ? o->last.units : "Bytes",
                 o->last.stage[0] ? ", " : "", o->last.stage);
        pm_stop_now(o, MOVER_HUNG, text);
    }
}

static void op_turn_process(struct pm_op *o, uint64_t now)
{
    bool more = pm_read_process(o, o->proc.gone);
    if (o->stopping && o->style_run && !o->proc.gone) {
        if (!o->term_sent)
            pm_kill_process(o, SIGTERM);
        o->term_sent = true;
        if (now >= o->deadline)
            pm_kill_process(o, SIGKILL);
        if (now >= o->deadline + PM_DIE_USEC) { /* stuck in the kernel: it cannot be killed */
            pm_outcome_stopped(o);
            pm_doubt(o, "its process does not end on SIGKILL");
            pm_conclude(o);
            return;
        }
    }
    if (!o->proc.gone || more)
        return;
    bool run = o->style_run;
    if (run)
        pm_run_ended(o);
    pm_process_clear(&o->proc);
    if (!run)
        pm_watch_ended(o);
}

/* Style (a), no call in progress. */
static void op_turn_running(struct pm_op *o, uint64_t now)
{
    if (o->stopping) {
        if (now >= o->deadline) {
            pm_outcome_stopped(o);
            if (!(o->abilities & PA_CLEANUP))
                pm_doubt(o, "no ability \"cleanup\"");
            pm_conclude(o);
            return;
        }
        if ((o->abilities & PA_CANCEL) && !o->cancel_acked && now >= o->cancel_usec) {
            op_call(o, PM_Q_CANCEL, PV_CANCEL);
            return;
        }
    }
    bool watchable = (o->abilities & PA_WATCH) && !o->proc.there && o->watch_failures < PM_WATCH_TRIES && !o->stopping;
    if (watchable && now >= o->watch_again_usec) {
        o->next_usec = now + PM_WATCH_POLL_USEC;
        op_call_with(o, PM_Q_WATCH, plugin_run_step, process_in(o, PV_WATCH), 60);
    } else if (now >= o->next_usec) {
        op_call(o, PM_Q_PROGRESS, PV_PROGRESS);
    }
}

static uint64_t is_earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void op_arm(struct pm_op *o, uint64_t now)
{
    uint64_t at = o->state == PM_RUNNING && o->style_run ? UINT64_MAX : o->next_usec;
    if (o->proc.there)
        at = is_earlier(at, now + PM_TAIL_USEC);
    if (o->state == PM_RUNNING && !o->decided) {
        if (o->stopping) {
            at = is_earlier(at, o->deadline > now ? o->deadline : now + PM_TAIL_USEC);
            if ((o->abilities & PA_CANCEL) && !o->cancel_acked && !o->style_run)
                at = is_earlier(at, o->cancel_usec);
        } else {
            at = is_earlier(at, o->changed_usec + (uint64_t)o->times.stall_timeout_s * 1000000);
            if (o->times.max_duration_s > 0)
                at = is_earlier(at, o->began_usec + (uint64_t)o->times.max_duration_s * 1000000);
        }
    }
    pm_wake(o, at > now ? at : now + 1000);
}

/* Before the plugin forgets it. One that does not even answer cancels is not asked: its end must not wait. */
static bool logs_wanted(const struct pm_op *o)
{
    return (o->abilities & PA_LOGS) && !o->logs_asked && !o->skip[0] && o->outcome != MOVER_NEVER_STARTED &&
           !(o->stopping && !o->style_run && !o->cancel_acked);
}

static bool op_call_logs(struct pm_op *o)
{
    const unsigned most = plugin_step_timeout(&o->plugin, PV_LOGS);
    return op_call_with(o, PM_Q_LOGS, plugin_logs_step,
                        plugin_logs_in(&o->plugin, o->pm->state_dir, o->operation, o->id, o->restore),
                        o->stopping && most > PM_LOGS_S ? PM_LOGS_S : most);
}

/* States after the last progress; no call in progress. False: o was freed. */
static bool op_turn_end(struct pm_op *o, uint64_t now)
{
    if (o->proc.there) {
        pm_kill_process(o, SIGKILL); /* the watch is no longer needed */
        pm_process_clear(&o->proc);
    }
    if (o->state != PM_RESULT && logs_wanted(o)) {
        o->logs_asked = true; /* once */
        if (op_call_logs(o))
            return true;
    }
    if (o->state == PM_CLEANING && !(o->abilities & PA_CLEANUP))
        o->state = PM_ENDING;
    if (o->state == PM_ENDING && o->unit_left) {
        o->unit_left = false;
        if (op_call_with(o, PM_Q_STOP_UNIT, plugin_run_stop_step, process_in(o, o->style_run ? PV_RUN : PV_WATCH), 60))
            return true;
    }
    if (o->state == PM_ENDING) {
        op_finish(o);
        return false;
    }
    if (now >= o->next_usec)
        op_call(o, o->state == PM_CLEANING ? PM_Q_CLEANUP : PM_Q_RESULT,
                o->state == PM_CLEANING ? PV_CLEANUP : PV_RESULT);
    return true;
}

/* May free o: it must not be used afterwards. */
static void op_turn(struct pm_op *o)
{
    uint64_t now = (uint64_t)mono_ns() / 1000;
    op_check_deadlines(o, now);
    if (o->proc.there && o->state == PM_RUNNING)
        op_turn_process(o, now);
    if (!o->step) {
        if (o->state == PM_BEGINNING && o->stopping && !o->id[0]) { /* nothing has started */
            pm_outcome_stopped(o);
            o->state = PM_ENDING;
        }
        if (o->state == PM_BEGINNING && now >= o->next_usec)
            op_call_begin(o);
        else if (o->state == PM_RUNNING && !o->style_run)
            op_turn_running(o, now);
        if (!o->step && o->state > PM_RUNNING && !op_turn_end(o, now))
            return;
    }
    op_arm(o, now);
}

/* ---- the interface ---- */

int plugin_movers_new(struct plugin_movers **ret, const struct movers_opts *opts, struct err *e)
{
    struct plugin_movers *pm = calloc(1, sizeof *pm);
    if (!pm)
        return err_nomem(e);
    pm->loop = sd_event_ref(opts->loop);
    pm->steps = opts->steps;
    pm->events = opts->events;
    pm->arg = opts->arg;
    pm->backoff_ms = opts->plugin_backoff_ms ? opts->plugin_backoff_ms : 1000;
    snprintf(pm->dir, sizeof pm->dir, "%s", opts->runtime_dir);
    snprintf(pm->state_dir, sizeof pm->state_dir, "%s", opts->state_dir);
    *ret = pm;
    return 0;
}

void plugin_movers_free(struct plugin_movers *pm)
{
    if (!pm)
        return;
    for (struct pm_op *o = pm->first, *next; o; o = next) {
        next = o->next;
        op_free(o);
    }
    sd_event_unref(pm->loop);
    free(pm);
}

static int begin(struct plugin_movers *pm, const struct mover_spec *s, const char *id, struct err *e)
{
    struct pm_op *o;
    if (!pm->steps)
        return err_set(e, ERR_GENERIC, ENOTSUP, "operation %s: plugins are not supported here", s->operation);
    int rc = op_new(&o, pm, s->operation, s->plugin, s->job, &s->times, e);
    if (rc < 0)
        return rc;
    snprintf(o->id, sizeof o->id, "%s", id);
    op_link(o);
    pm_wake(o, (uint64_t)mono_ns() / 1000);
    return 0;
}

int plugin_movers_start(struct plugin_movers *pm, const struct mover_spec *s, struct err *e)
{
    return begin(pm, s, "", e);
}

int plugin_movers_adopt(struct plugin_movers *pm, const struct mover_spec *s, struct err *e)
{
    if (!s->plugin_id || !*s->plugin_id || strlen(s->plugin_id) > PLUGIN_ID_MAX)
        return err_set(e, ERR_GENERIC, EINVAL, "operation %s has no id of plugin %s to resume", s->operation,
                       s->plugin->name);
    return begin(pm, s, s->plugin_id, e);
}

int plugin_movers_cancel(struct plugin_movers *pm, const char *operation, int64_t deadline_ns, struct err *e)
{
    struct pm_op *o = op_find(pm, operation);
    if (!o)
        return err_set(e, ERR_NOT_FOUND, ESRCH, "no plugin is working for operation %s", operation);
    uint64_t now = (uint64_t)mono_ns() / 1000, grace = (uint64_t)o->times.cancel_grace_s * 1000000;
    if (deadline_ns > 0) {
        const int64_t left = deadline_ns - now_ns();
        const uint64_t us = left > 0 ? (uint64_t)left / 1000 : 0;
        grace = us < grace ? us : grace; /* more: the clock was set back */
    }
    pm_stop(o, MOVER_CANCELED, ERR_INTERRUPTED, "canceled", now + grace);
    /* Not from here: the caller may be one of our own events. */
    pm_wake(o, now);
    return 0;
}

int plugin_movers_forget(struct plugin_movers *pm, const char *operation, const struct cfg_plugin *p,
                         const char *plugin_id, struct err *e)
{
    struct pm_op *o;
    int rc = op_new(&o, pm, operation, p, NULL, NULL, e);
    if (rc < 0)
        return rc;
    snprintf(o->id, sizeof o->id, "%s", plugin_id ? plugin_id : "");
    plugin_run_forget(pm->dir, operation, PV_RUN);
    plugin_run_forget(pm->dir, operation, PV_WATCH);
    o->abilities = PA_CLEANUP; /* the step determines the actual abilities */
    op_link(o);
    if (begin_aftermath(o))
        return 0;
    op_unlink(o);
    op_free(o);
    return err_set(e, ERR_GENERIC, EAGAIN, "cannot request cleanup of operation %s", operation);
}

bool plugin_movers_has(const struct plugin_movers *pm, const char *operation)
{
    return op_find(pm, operation) != NULL;
}

unsigned plugin_movers_count(const struct plugin_movers *pm)
{
    unsigned n = 0;
    for (const struct pm_op *o = pm->first; o; o = o->next)
        n += !o->aftermath;
    return n;
}

json_t *plugin_movers_to_json(const struct plugin_movers *pm, const char *operation)
{
    static const char *const states[] = {"beginning", "running", "result", "cleaning", "ending"};
    const struct pm_op *o = op_find(pm, operation);
    if (!o)
        return NULL;
    uint64_t now = (uint64_t)mono_ns() / 1000;
    return json_pack("{s:s, s:s, s:s, s:s, s:b, s:b, s:i, s:f}", "plugin", o->prog.name, "id", o->id, "state",
                     states[o->state], "style", o->style_run ? "run" : "start", "watching",
                     o->proc.there && !o->style_run, "stopping", o->stopping, "failures", (int)o->failures,
                     "last_progress_s", o->changed_usec ? (double)(now - o->changed_usec) / 1e6 : 0.0);
}
