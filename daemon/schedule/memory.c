/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/schedule/memory.h"

#include "base/cleanup.h"

#include <string.h>

/* A job without a row gets an empty one. */
static int memory_read(struct records *r, const char *name, struct job_run *ret, struct err *e)
{
    struct err why = ERR_INIT;
    int rc = job_run_get(r, name, ret, &why);
    if (rc == 0)
        return 0;
    if (why.cls == ERR_NOT_FOUND)
        return str_set(&ret->id, name) < 0 ? err_nomem(e) : 0;
    if (e)
        *e = why;
    return rc;
}

static int memory_write(struct records *r, struct job_run *m, struct err *e)
{
    return m->seq ? job_run_save(r, m, e) : job_run_add(r, m, e);
}

int memory_load(struct records *r, struct sched_job *j, int64_t now, bool *changed, struct err *e)
{
    struct job_run *m = &j->memory;
    *changed = true;
    job_run_clear(m);
    int rc = memory_read(r, j->name, m, e);
    const bool same = rc == 0 && m->active && !strcmp(m->on_calendar, j->on_calendar);
    if (!same)
        m->since_ns = now;
    *changed = same != sched_job_active(j);
    return rc;
}

int memory_keep(struct records *r, const struct sched_job *j, struct err *e)
{
    CLEANUP(job_run_clear) struct job_run m = ROW_INIT;
    int rc = memory_read(r, j->name, &m, e);
    if (rc < 0)
        return rc;
    if (str_set(&m.on_calendar, j->on_calendar) < 0)
        return err_nomem(e);
    m.active = sched_job_active(j);
    m.since_ns = j->memory.since_ns;
    m.last_planned_ns = j->memory.last_planned_ns;
    return memory_write(r, &m, e);
}

static void set_missing(struct job_run *to, const struct job_run *from)
{
    json_decref(to->missing);
    to->missing = json_incref(from->missing);
}

int memory_ran(struct records *r, const char *job, const struct job_run *from, struct err *e)
{
    CLEANUP(job_run_clear) struct job_run m = ROW_INIT;
    int rc = memory_read(r, job, &m, e);
    if (rc < 0)
        return rc;
    m.last_planned_ns = from->last_planned_ns;
    m.last_run_ns = from->last_run_ns;
    m.failed.there = false;
    set_missing(&m, from);
    return str_set(&m.last_backup, from->last_backup) < 0 ? err_nomem(e) : memory_write(r, &m, e);
}

int memory_failed(struct records *r, const char *job, const struct job_run *from, struct err *e)
{
    CLEANUP(job_run_clear) struct job_run m = ROW_INIT;
    int rc = memory_read(r, job, &m, e);
    if (rc < 0)
        return rc;
    m.failed.there = from->failed.there;
    m.failed.at_ns = from->failed.at_ns;
    set_missing(&m, from);
    if (str_set(&m.failed.message, from->failed.message) < 0 || str_set(&m.failed.hint, from->failed.hint) < 0)
        return err_nomem(e);
    return memory_write(r, &m, e);
}

struct active {
    memory_fn *fn;
    void *arg;
};

static int row_visit(const struct job_run *m, void *arg)
{
    const struct active *x = arg;
    return m->active ? x->fn(m->id, x->arg) : 0;
}

int memory_each_active(struct records *r, memory_fn *fn, void *arg)
{
    struct active x = {fn, arg};
    return job_run_each(r, NULL, row_visit, &x, NULL);
}

int memory_forget(struct records *r, const char *job, struct err *e)
{
    CLEANUP(job_run_clear) struct job_run m = ROW_INIT;
    int rc = memory_read(r, job, &m, e);
    if (rc < 0)
        return rc;
    m.active = false;
    return memory_write(r, &m, e);
}

int64_t memory_last_planned(struct records *r, const char *job)
{
    CLEANUP(job_run_clear) struct job_run m = ROW_INIT;
    return memory_read(r, job, &m, NULL) < 0 ? 0 : m.last_planned_ns;
}
