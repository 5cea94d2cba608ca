/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/decide/copies.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "daemon/schedule/calendar.h"

#include <string.h>

/* ---- when ---- */

void copy_times(const struct cfg_copy *k, const struct copy_memory *m, int64_t now, struct copy_times *ret)
{
    const struct calendar_runs runs = {k->on_calendar, m ? m->since_ns : 0, m ? m->tried_ns : 0, m ? m->good_ns : 0};
    calendar_due(&runs, COPY_OVERDUE, now, &ret->next_ns, &ret->late_ns);
}

/* ---- what is known ---- */

const struct copy_memory *copy_known(const struct records *r, const char *copy)
{
    char id[MAINTAIN_ROW_MAX];
    const struct job_run *row = job_run_peek(r, copy_row_id(copy, id));
    return row && row->copy.there ? &row->copy : NULL;
}

bool copy_is_expected(const struct cfg_copy *k, const struct copy_memory *m)
{
    char place[CFG_PLACE_MAX];
    return m && m->good_ns && !strcmp(m->place, cfg_repository_place(&k->place, place));
}

static int row_read(struct decide *d, const char *copy, struct job_run *ret, struct err *e)
{
    char id[MAINTAIN_ROW_MAX];
    job_run_init(ret);
    return memory_row_read(d, copy_row_id(copy, id), ret, e);
}

int copy_begin(struct decide *d, const struct cfg_copy *k, struct err *e)
{
    CLEANUP(job_run_clear) struct job_run row;
    int rc = row_read(d, k->name, &row, e);
    if (rc < 0 || !row.copy.since_ns == !k->on_calendar[0])
        return rc;
    row.copy.there = true;
    row.copy.since_ns = k->on_calendar[0] ? decide_now(d) : 0;
    return repository_row_write(d, &row, e);
}

/* ---- runs ---- */

static void note_good(struct decide *d, struct copy_memory *m, const struct operation *op)
{
    const struct mover_copy r = mover_copy_of(&op->result);
    const struct cfg_copy *k = cfg_copy(d->world.cfg, op->target_name);
    char place[CFG_PLACE_MAX];
    m->good_ns = decide_now(d);
    if (k)
        str_set(&m->place, cfg_repository_place(&k->place, place));
    m->copied = r.copied;
    m->copied_bytes = r.copied_bytes;
    m->surplus = r.surplus - r.deleted;
    m->surplus_bytes = r.surplus_bytes - r.deleted_bytes;
    m->blobs = r.copied + r.present + m->surplus;
    m->bytes = r.copied_bytes + r.present_bytes + m->surplus_bytes;
    m->deleted_bytes = r.deleted_bytes;
    m->held_bytes = r.held_bytes;
    m->lost = r.lost;
}

void copy_ended(struct decide *d, const struct operation *op)
{
    CLEANUP(job_run_clear) struct job_run row;
    struct copy_memory *m = &row.copy;
    struct err e = ERR_INIT;
    if (row_read(d, op->target_name, &row, &e) < 0) {
        plan_fail(d, &e);
        return;
    }
    m->there = true;
    m->tried_ns = decide_now(d);
    m->outcome = op->outcome;
    str_set(&m->operation, op->id);
    str_set(&m->error, op->outcome == OUTCOME_FAILED ? op->error.message : "");
    if (op->outcome == OUTCOME_COMPLETED)
        note_good(d, m, op);
    count_copied(d, op);
    if (repository_row_write(d, &row, &e) < 0)
        plan_fail(d, &e);
}
