/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plugin-progress.c - progress of a mover plugin by answer, stream or end of a process, and its effects */
#include "base/cleanup.h"
#include "base/json-bounds.h"
#include "base/time.h"
#include "daemon/movers/plugin-movers-impl.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

void pm_process_clear(struct pm_process *w)
{
    sd_event_source_disable_unref(w->on_exit);
    tail_free(w->out);
    tail_free(w->log);
    closep(&w->pidfd);
    *w = (struct pm_process){.pidfd = -1};
}

void pm_outcome(struct pm_op *o, enum mover_outcome m, enum err_class cls, int sys, const char *text)
{
    if (o->decided)
        return;
    o->decided = true;
    o->outcome = m;
    o->why = (struct err)ERR_INIT;
    if (m == MOVER_OK)
        return;
    err_set(&o->why, cls, 0, "%.840s%s%s", text,
            strstr(text, ", plugin: ") ? "" : ", plugin: ", strstr(text, ", plugin: ") ? "" : o->prog.name);
    o->why.sys = sys;
}

void pm_doubt(struct pm_op *o, const char *why)
{
    char more[sizeof o->why.msg];
    snprintf(more, sizeof more, "%.500s; it may still be working: %.400s", o->why.msg, why);
    memcpy(o->why.msg, more, sizeof more);
}

void pm_conclude(struct pm_op *o)
{
    o->state = o->outcome != MOVER_OK                                    ? PM_CLEANING
               : (o->abilities & PA_RESULT) && !o->skip[0] && !o->stored ? PM_RESULT
                                                                         : PM_ENDING;
    o->tries = 0;
    o->next_usec = 0;
}

void pm_stop(struct pm_op *o, enum mover_outcome m, enum err_class cls, const char *text, uint64_t deadline)
{
    if (!o->stopping) {
        o->stopping = true;
        o->stop_outcome = m;
        o->stop_cls = cls;
        snprintf(o->stop_text, sizeof o->stop_text, "%s", text);
        o->deadline = deadline;
        log_info("%s: stopping plugin %s: %s", o->operation, o->prog.name, text);
    } else if (deadline < o->deadline) {
        o->deadline = deadline;
    }
}

void pm_stop_now(struct pm_op *o, enum mover_outcome m, const char *text)
{
    pm_stop(o, m, ERR_GENERIC, text, (uint64_t)mono_ns() / 1000 + (uint64_t)o->times.cancel_grace_s * 1000000);
}

void pm_outcome_stopped(struct pm_op *o)
{
    pm_outcome(o, o->stop_outcome, o->stop_cls, o->stop_outcome == MOVER_CANCELED ? ECANCELED : ETIMEDOUT,
               o->stop_text);
}

/* ---- what the plugin says ---- */

uint64_t pm_backoff_usec(const struct pm_op *o, unsigned n)
{
    uint64_t ms = (uint64_t)o->pm->backoff_ms << (n > 16 ? 16 : n ? n - 1 : 0);
    return (ms > 60000 ? 60000 : ms) * 1000;
}

void pm_progress_failed(struct pm_op *o, const struct err *e)
{
    char text[900], in_a_row[40] = "";
    if (o->state != PM_RUNNING || o->decided)
        return;
    o->failures++;
    if (e->cls == ERR_NOT_FOUND) {
        /* The plugin reports that the operation does not exist: further calls are pointless. */
        if (o->stopping)
            pm_outcome_stopped(o);
        else
            pm_outcome(o, MOVER_DIED, ERR_GENERIC, ESRCH, e->msg);
        pm_conclude(o);
        return;
    }
    o->next_usec = (uint64_t)mono_ns() / 1000 + pm_backoff_usec(o, o->failures);
    log_warning("%s: %s (%u in a row)", o->operation, e->msg, o->failures);
    if (o->failures <= o->plugin.progress_retry || o->stopping)
        return;
    if (o->failures > 1)
        snprintf(in_a_row, sizeof in_a_row, " %u times in a row", o->failures);
    snprintf(text, sizeof text, "progress failed%s: %.600s", in_a_row, e->msg);
    pm_stop_now(o, MOVER_FAILED, text);
}

static void note_change(struct pm_op *o, const struct plugin_progress *g)
{
    if (!o->heard || g->done != o->last.done || strcmp(g->stage, o->last.stage) != 0)
        o->changed_usec = (uint64_t)mono_ns() / 1000;
    o->heard = true;
    o->last = *g;
}

/* The meaning of its last document. A result is a fact, even if it arrived too late for a cancel. */
static void progress_apply(struct pm_op *o, const struct plugin_progress *g)
{
    if (g->skip[0]) {
        snprintf(o->skip, sizeof o->skip, "%s", g->skip);
        pm_outcome(o, MOVER_OK, ERR_NONE, 0, "");
    } else if (g->completed && !g->error[0] && !g->canceled) {
        pm_outcome(o, MOVER_OK, ERR_NONE, 0, "");
    } else if (o->stopping) {
        pm_outcome_stopped(o);
    } else if (g->canceled) {
        pm_outcome(o, MOVER_CANCELED, ERR_INTERRUPTED, ECANCELED, g->error[0] ? g->error : "canceled");
    } else {
        /* AO-26 */
        pm_outcome(o, g->transient ? MOVER_TRANSIENT : MOVER_FAILED, ERR_GENERIC, EIO, g->error);
    }
}

/* One document of progress from whatever channel. */
void pm_heard(struct pm_op *o, enum plugin_verb v, const json_t *doc)
{
    struct plugin_progress g;
    struct err e = ERR_INIT;
    if (o->state != PM_RUNNING || o->decided)
        return;
    if (plugin_progress_read(&o->prog, v, doc, &g, &e) < 0) {
        pm_progress_failed(o, &e);
        return;
    }
    o->failures = 0;
    note_change(o, &g);
    bool last = g.completed || g.canceled || g.skip[0];
    if (last) {
        if (json_is_object(json_object_get(doc, "result")) && !o->stored)
            o->stored = json_incref(json_object_get(doc, "result"));
        progress_apply(o, &g);
        if (!o->style_run) /* the process of `run` is still to end */
            pm_conclude(o);
    }
    if (!o->told_started && (g.started[0] || g.completed)) {
        o->told_started = true;
        o->pm->events->started(o->operation, o->pm->arg);
    }
    CLEANUP_PLUGIN_JSON json_t *p = plugin_progress_json(&g);
    if (p)
        o->pm->events->progress(o->operation, p, o->pm->arg);
}

/* Of a line, which the event loop parses: they come by the hundred. */
static const struct json_bounds line_bounds = {8192, 64};

static void progress_line(const char *line, size_t len, void *arg)
{
    struct pm_op *o = arg;
    struct err e = ERR_INIT;
    enum plugin_verb v = o->style_run ? PV_RUN : PV_WATCH;
    if (o->state != PM_RUNNING || o->decided)
        return;
    if (!json_within(line, len, &line_bounds)) {
        plugin_lies(&o->prog, v, &e, "a line of more than %zu values", line_bounds.values);
        pm_progress_failed(o, &e);
        return;
    }
    CLEANUP_PLUGIN_JSON json_t *doc = plugin_parse(&o->prog, v, line, len, &e);
    if (doc)
        pm_heard(o, v, doc);
    else
        pm_progress_failed(o, &e);
}

static void plugin_log_line(const char *line, size_t len, void *arg)
{
    struct pm_op *o = arg;
    char text[1024];
    if (len > sizeof text - 1)
        len = sizeof text - 1;
    for (size_t i = 0; i < len; i++)
        text[i] = (unsigned char)line[i] < 0x20 || line[i] == 0x7f ? ' ' : line[i];
    text[len] = '\0';
    log_info("%s: plugin %s: %s", o->operation, o->prog.name, text);
}

/* ---- long-running processes ---- */

void pm_kill_process(struct pm_op *o, int sig)
{
    if (!o->proc.gone)
        service_signal(&o->proc.id, o->proc.pidfd, sig);
}

bool pm_read_process(struct pm_op *o, bool last)
{
    int rc = tail_read(o->proc.out, last, progress_line, o);
    int lg = tail_read(o->proc.log, last, plugin_log_line, o);
    if (rc == -EFBIG || lg == -EFBIG) {
        if (!o->proc.flood)
            log_warning("%s: plugin %s floods its output; killed", o->operation, o->prog.name);
        o->proc.flood = true;
        pm_kill_process(o, SIGKILL);
        return false;
    }
    return rc == 1 || lg == 1;
}

void pm_run_ended(struct pm_op *o)
{
    if (o->proc.flood)
        pm_outcome(o, MOVER_FAILED, ERR_GENERIC, EFBIG, "its process flooded its output; killed");
    else if (o->stopping)
        pm_outcome_stopped(o);
    else if (!o->decided) {
        char text[200];
        snprintf(text, sizeof text, "its process ended without reporting completion (last: %llu of %llu %s)",
                 (unsigned long long)o->last.done, (unsigned long long)o->last.total,
                 o->last.units[0] ? o->last.units : "Bytes");
        pm_outcome(o, MOVER_DIED, ERR_GENERIC, ESRCH, text);
    }
    pm_conclude(o);
}

void pm_watch_ended(struct pm_op *o)
{
    if (o->state != PM_RUNNING)
        return;
    o->watch_failures++;
    o->watch_again_usec = (uint64_t)mono_ns() / 1000 + pm_backoff_usec(o, o->watch_failures);
    o->next_usec = 0; /* poll immediately */
}

static int on_exit_of_process(sd_event_source *s, int fd, uint32_t revents, void *arg)
{
    struct pm_op *o = arg;
    (void)fd;
    (void)revents;
    service_kill_group(&o->proc.id);
    sd_event_source_set_enabled(s, SD_EVENT_OFF);
    o->proc.gone = true;
    pm_wake(o, (uint64_t)mono_ns() / 1000);
    return 0;
}

/* Watches a process that a step started or an earlier daemon left. The output of a process that has ended is still
 * read. */
int pm_attach(struct pm_op *o, const char *id, enum plugin_verb v, struct err *e)
{
    char path[4200];
    struct process_identity i;
    if (process_id_parse(&i, id) < 0)
        return err_set(e, ERR_GENERIC, EINVAL, "\"%.100s\" is not a process id, plugin: %s", id, o->prog.name);
    pm_process_clear(&o->proc);
    plugin_run_path(path, sizeof path, o->pm->dir, o->operation, v, "out");
    int rc = tail_open(&o->proc.out, path, e);
    plugin_run_path(path, sizeof path, o->pm->dir, o->operation, v, "log");
    if (rc == 0)
        rc = tail_open(&o->proc.log, path, e);
    if (rc < 0) {
        pm_process_clear(&o->proc);
        return rc;
    }
    o->proc.id = i;
    o->proc.pidfd = process_open_running(&i);
    o->proc.gone = o->proc.pidfd < 0;
    o->proc.there = o->unit_left = true;
    if (!o->proc.gone)
        rc = sd_event_add_io(o->pm->loop, &o->proc.on_exit, o->proc.pidfd, EPOLLIN, on_exit_of_process, o);
    return rc < 0 ? err_set(e, ERR_GENERIC, -rc, "cannot watch process %d", (int)i.pid) : 0;
}
