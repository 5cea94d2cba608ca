/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rows.c - rows are read, changed and written by decisions */
#include "daemon/decide/decide.h"
#include "daemon/records/states.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int row_written(struct decide *d, const char *id, int rc, const struct err *e)
{
    if (rc < 0)
        log_warning("the record of %s cannot be saved, retrying: %s", id, e->msg);
    if (rc < 0 && d->in_turn) {
        if (!d->plan.failed)
            d->plan.err = *e;
        d->plan.failed = true;
    }
    return rc;
}

static int was_read(int rc, const struct err *e)
{
    if (rc < 0 && e->cls != ERR_NOT_FOUND)
        log_warning("%s", e->msg);
    return rc;
}

int operation_write(struct decide *d, struct operation *op)
{
    struct err e = ERR_INIT;
    return row_written(d, op->id, operation_save(d->records, op, &e), &e);
}

int backup_write(struct decide *d, struct backup *b)
{
    struct err e = ERR_INIT;
    return row_written(d, b->id, backup_save(d->records, b, &e), &e);
}

int native_row_write(struct decide *d, struct native_row *n)
{
    struct err e = ERR_INIT;
    return row_written(d, n->id, native_row_save(d->records, n, &e), &e);
}

int memory_row_read(struct decide *d, const char *id, struct job_run *ret, struct err *e)
{
    struct err why = ERR_INIT;
    int rc = job_run_get(d->records, id, ret, &why);
    if (rc < 0 && why.cls == ERR_NOT_FOUND)
        rc = str_set(&ret->id, id) < 0 ? err_nomem(e) : 0;
    else if (rc < 0 && e)
        *e = why;
    return rc;
}

int repository_row_read(struct decide *d, const char *repository, struct job_run *ret, struct err *e)
{
    char id[MAINTAIN_ROW_MAX];
    return memory_row_read(d, maintain_row_id(repository, id), ret, e);
}

int repository_row_write(struct decide *d, struct job_run *row, struct err *e)
{
    return row->seq ? job_run_save(d->records, row, e) : job_run_add(d->records, row, e);
}

/* It is written all the same: refused, it would be stuck. The model test fails on one (model-rules.h). */
static void states_check(struct decide *d, const char *id, enum machine m, int from, int to)
{
    if (states_allow(m, from, to))
        return;
    plan_log(d, LOG_LVL_WARNING, "%s: %s became %s, which is not in the table of states; please report this", id,
             enum_name(states_machines[m].names, from), enum_name(states_machines[m].names, to));
}

int operation_become(struct decide *d, struct operation *op, enum op_state state)
{
    const enum op_state old = op->state;
    states_check(d, op->id, states_machine_of(op->kind), (int)old, (int)state);
    op->state = state;
    records_counters_hold(d->records);
    if (old != state && !op_state_terminal(state)) {
        operation_spent(op, old, decide_now(d));
        if (old == OP_QUEUED)
            count_queue_wait(d, op, state);
    }
    if (old != state)
        op->state_since_ns = decide_now(d);
    int rc = operation_write(d, op);
    records_counters_settle(d->records);
    return rc;
}

int backup_become(struct decide *d, struct backup *b, enum backup_state state)
{
    states_check(d, b->id, MACHINE_BACKUP, (int)b->state, (int)state);
    if (b->state != state)
        b->state_since_ns = decide_now(d);
    b->state = state;
    return backup_write(d, b);
}

int native_row_become(struct decide *d, struct native_row *n, enum native_state state)
{
    states_check(d, n->id, MACHINE_NATIVE, (int)n->state, (int)state);
    if (n->state != state)
        n->state_since_ns = decide_now(d);
    n->state = state;
    return native_row_write(d, n);
}

void operation_error(struct decide *d, struct operation *op, const char *stage, const struct err *e)
{
    op_error_set(&op->error, stage, e, decide_now(d), op->attempt);
}

void operation_degrade(struct operation *op, const char *why)
{
    op->degraded = true;
    if (!op->degraded_why[0])
        str_set(&op->degraded_why, why);
}

void backup_error(struct decide *d, struct backup *b, const char *stage, const struct err *e)
{
    op_error_set(&b->error, stage, e, decide_now(d), 0);
}

int operation_read(struct decide *d, const char *id, struct operation *ret)
{
    struct err e = ERR_INIT;
    return was_read(operation_get(d->records, id, ret, &e), &e);
}

int backup_read(struct decide *d, const char *id, struct backup *ret)
{
    struct err e = ERR_INIT;
    return was_read(backup_get(d->records, id, ret, &e), &e);
}

int native_row_read(struct decide *d, const char *alias, struct native_row *ret)
{
    struct err e = ERR_INIT;
    return was_read(native_row_get(d->records, alias, ret, &e), &e);
}

int volume_row_read(struct decide *d, const char *id, struct volume_row *ret)
{
    struct err e = ERR_INIT;
    return was_read(volume_row_get(d->records, id, ret, &e), &e);
}

const char *operation_label(const struct operation *op)
{
    static char text[2][2048]; /* two in one line */
    static unsigned which;
    char *ret = text[which++ % 2];
    snprintf(ret, sizeof text[0], op->volume->name[0] ? "%s (%s)" : "%s", op->id, op->volume->name);
    return ret;
}

/* ---- repositories ---- */

struct repo_health *repository_health(struct decide *d, const char *name)
{
    for (struct repo_health *h = d->repos; h; h = h->next)
        if (!strcmp(h->name, name))
            return h;
    struct repo_health *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    snprintf(h->name, sizeof h->name, "%s", name);
    h->since_ns = decide_now(d);
    h->free_bytes = h->size_bytes = -1;
    h->next = d->repos;
    d->repos = h;
    return h;
}

bool repository_full(const struct repo_health *h)
{
    return h->up && h->free_bytes >= 0 && h->size_bytes > 0 &&
           (double)h->free_bytes < REPOSITORY_FULL * (double)h->size_bytes;
}

const char *repository_down(struct decide *d, const char *name)
{
    static char text[700];
    const struct repo_health *h = repository_health(d, name);
    if (!h || !h->known) {
        snprintf(text, sizeof text, "repository \"%s\" has not been looked at yet", name);
        return text;
    }
    if (h->up)
        return NULL;
    snprintf(text, sizeof text, "repository \"%s\": %s", name, h->why);
    return text;
}
