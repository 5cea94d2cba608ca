/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * systemd.c - a mover as a transient unit, snapferry-mover@OPERATION-ESCAPED.service
 *
 * Starting, killing and reading the exit status are asynchronous (proc/unit.h). A unit remains after its process has
 * ended (RemainAfterExit), so that its status can be read, until movers_forget().
 */
#include "daemon/movers/builtin-impl.h"

#include "base/time.h"

#include <string.h>
#include <sys/wait.h>

#define TRIES_MAX 10 /* a unit of an earlier attempt must be removed first */
#define RETRY_NS (NS_PER_S / 2)
#define LOOK_NS (3 * NS_PER_S)
#define EXEC_STATUS_FIRST 200 /* systemd.exec(5): statuses of its own, when it cannot execute the program */

/* ---- the end ---- */

static void unit_read_facts(struct mover *v, const struct unit_facts *f)
{
    v->status = f->status;
    v->oom = !strcmp(f->result, "oom-kill");
    if (f->cpu_seconds > 0)
        v->cpu_seconds = f->cpu_seconds;
    if (f->memory_peak > v->memory_peak)
        v->memory_peak = f->memory_peak;
    if (!v->start_seen && f->status >= 0 && WIFEXITED(f->status) && WEXITSTATUS(f->status) >= EXEC_STATUS_FIRST &&
        !v->begin_error[0])
        snprintf(v->begin_error, sizeof v->begin_error, "systemd could not execute it (status %d, see systemd.exec(5))",
                 WEXITSTATUS(f->status));
}

static void on_end_facts(const struct unit_facts *f, void *arg)
{
    struct mover *v = arg;
    if (f) {
        /* The pidfd is faster than systemd's SIGCHLD: its status follows shortly. The timer ends this after 5 s. */
        if (!f->ended && mono_ns() - v->gone_ns < LOOK_NS && systemd_ask_end(v))
            return;
        unit_read_facts(v, f);
    }
    v->owner->ops->known(v);
}

bool systemd_ask_end(struct mover *v)
{
    return unit_ask(v->owner->units, v->id.unit, on_end_facts, v, &v->call) >= 0;
}

void systemd_read_end(struct mover *v)
{
    struct unit_facts f;
    char unit[UNIT_NAME_TEXT];
    mover_unit_name(unit, sizeof unit, v->operation);
    if (unit_ask_wait(v->owner->units, unit, &f) < 0 || f.status < 0)
        return;
    v->status = f.status;
    v->oom = !strcmp(f.result, "oom-kill");
    memcpy(v->id.unit, unit, sizeof v->id.unit);
}

/* ---- the beginning ---- */

static void ended_early(struct mover *v)
{
    v->gone = true;
    v->gone_ns = mono_ns();
    v->owner->ops->known(v);
}

static void on_begin_facts(const struct unit_facts *f, void *arg)
{
    struct mover *v = arg;
    struct err e = ERR_INIT;
    if (v->id.pid || v->gone || !f)
        return;
    if (f->pid && mover_watch(v, f->pid, &e) == 0)
        return;
    if (!f->pid && !f->ended)
        return; /* not yet: the timer repeats it */
    unit_read_facts(v, f);
    ended_early(v);
}

void systemd_job_ended(const char *job, const char *unit, const char *result, void *arg)
{
    struct builtin_movers *m = arg;
    (void)unit;
    for (struct mover *v = m->list; v; v = v->next) {
        /* Other jobs of that unit are those of an earlier attempt. */
        if (v->id.pid || v->gone || !v->unit_job[0] || strcmp(v->unit_job, job) != 0)
            continue;
        if (strcmp(result, "done") != 0 && !v->begin_error[0])
            snprintf(v->begin_error, sizeof v->begin_error, "systemd could not start its unit: %s", result);
        unit_ask(m->units, v->id.unit, on_begin_facts, v, &v->call);
        return;
    }
}

static void on_started(const char *job, bool exists, const char *why, void *arg)
{
    struct mover *v = arg;
    if (job) {
        snprintf(v->unit_job, sizeof v->unit_job, "%s", job);
        v->asked_ns = mono_ns();
    } else if (exists && ++v->unit_tries < TRIES_MAX) {
        /* The unit of an earlier attempt is stopped, and this one waits for that. */
        unit_forget(v->owner->units, v->id.unit);
        v->retry_ns = mono_ns() + RETRY_NS;
    } else {
        snprintf(v->begin_error, sizeof v->begin_error, "systemd rejected its unit: %.300s", why);
        ended_early(v);
    }
}

static int unit_submit(struct mover *v, struct err *e)
{
    return unit_start(v->owner->units, v->id.unit, mover_unit_describe, v, on_started, v, &v->call, e);
}

int systemd_start(struct mover *v, struct err *e)
{
    mover_unit_name(v->id.unit, sizeof v->id.unit, v->operation);
    return unit_submit(v, e);
}

void systemd_tick(struct mover *v)
{
    struct err e = ERR_INIT;
    const int64_t now = mono_ns();
    if (!v->id.unit[0] || v->gone)
        return;
    if (v->retry_ns && now >= v->retry_ns) {
        v->retry_ns = 0;
        if (unit_submit(v, &e) < 0)
            log_warning("mover of %s: %s", v->operation, e.msg);
    } else if (!v->id.pid && v->asked_ns && now - v->asked_ns > LOOK_NS) {
        v->asked_ns = now;
        unit_ask(v->owner->units, v->id.unit, on_begin_facts, v, &v->call);
    }
    if (v->id.pid && !v->cgroup.path[0])
        cgroup_of(v->id.pid, v->cgroup.path, sizeof v->cgroup.path);
}
