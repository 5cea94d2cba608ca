/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/decide/verification.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "daemon/decide/damaged.h"
#include "daemon/schedule/calendar.h"

#include <string.h>

/* ---- when ---- */

void verification_times(const struct cfg_repository *r, const struct verify_memory *m, int64_t now,
                        struct verification_times *ret)
{
    const struct calendar_runs runs = {r->verification, m ? m->since_ns : 0, m ? m->tried_ns : 0, m ? m->done_ns : 0};
    calendar_due(&runs, VERIFY_OVERDUE, now, &ret->next_ns, &ret->late_ns);
}

/* ---- what is known ---- */

const struct verify_memory *verification_known(const struct records *r, const char *repository)
{
    char id[MAINTAIN_ROW_MAX];
    const struct job_run *row = job_run_peek(r, maintain_row_id(repository, id));
    return row && row->verification.there ? &row->verification : NULL;
}

int verification_begin(struct decide *d, const struct cfg_repository *r, struct err *e)
{
    CLEANUP(job_run_clear) struct job_run row;
    job_run_init(&row);
    int rc = repository_row_read(d, r->name, &row, e);
    if (rc < 0 || !row.verification.since_ns == !r->verification[0])
        return rc;
    row.verification.there = true;
    row.verification.since_ns = r->verification[0] ? decide_now(d) : 0;
    return repository_row_write(d, &row, e);
}

/* ---- runs ---- */

static void damage_forget(struct verify_memory *m)
{
    m->damaged_ns = m->damages = 0;
    str_set(&m->damaged_by, "");
}

static void corrected_forget(struct verify_memory *m)
{
    m->corrected_ns = m->corrected = m->corrected_indexes = 0;
    str_set(&m->corrected_by, "");
}

/* Since when all that it counts as read has been read: it may have gone on with one that was interrupted. */
static int64_t read_since(const struct operation *op)
{
    const int64_t since = op->result.since_ns;
    return since > 0 && since < op->created_ns ? since : op->created_ns;
}

/* All has been read since `began_ns`, and is whole. */
static void note_whole(struct decide *d, struct verify_memory *m, const char *repository, int64_t began_ns)
{
    if (m->affected.n && m->affected_ns < began_ns)
        damaged_all_whole(d, repository, &m->affected);
    damage_forget(m);
}

/* A share of the contents has been read: where it begins is where the round stands, unless another run came between. */
static void note_share(struct decide *d, struct verify_memory *m, const struct operation *op, int64_t now)
{
    const int64_t from = op->read_from_ppm, to = from + (int64_t)(op->read_percent * VERIFY_SHARES / 100 + 0.5);
    if (from != m->from_ppm)
        return;
    const int64_t since = read_since(op);
    if (!from || !m->round_ns || m->round_ns > since)
        m->round_ns = since;
    m->from_ppm = to < VERIFY_SHARES ? to : 0;
    if (m->from_ppm || to == from)
        return;
    if (m->damaged_ns < m->round_ns)
        note_whole(d, m, op->policy->repository, m->round_ns);
    if (m->corrected_ns < m->round_ns)
        corrected_forget(m);
    if (m->all_began_ns < m->round_ns) {
        m->all_began_ns = m->round_ns;
        m->all_ns = now;
    }
    m->round_ns = 0;
}

static void note_schedule(struct verify_memory *m, const struct operation *op, bool found, int64_t now)
{
    m->tried_ns = now;
    m->outcome = op->outcome;
    str_set(&m->operation, op->id);
    str_set(&m->error, op->outcome == OUTCOME_FAILED && !found ? op->error.message : "");
}

static void note_damage(struct verify_memory *m, const struct operation *op, int64_t now)
{
    m->damaged_ns = now;
    m->damages = op->result.damages > 0 ? op->result.damages : 1;
    str_set(&m->damaged_by, op->id);
}

/* A run that reads a share finds a share of them: what is known is at least that. */
static void note_corrected(struct verify_memory *m, const struct operation *op, int64_t now)
{
    const int64_t n = result_bytes(op->result.corrected), blobs = result_bytes(op->result.corrected_indexes);
    if (!n && !blobs)
        return;
    m->corrected_ns = now;
    m->corrected = n > m->corrected ? n : m->corrected;
    m->corrected_indexes = blobs > m->corrected_indexes ? blobs : m->corrected_indexes;
    str_set(&m->corrected_by, op->id);
}

/* One on request has read all. What was found after that had begun to be read stays known: it may be among that. */
static void note_all(struct decide *d, struct verify_memory *m, const struct operation *op, bool damaged,
                     bool corrected, int64_t now)
{
    const int64_t since = read_since(op);
    m->all_began_ns = since;
    m->all_ns = now;
    if (!damaged && m->damaged_ns < since)
        note_whole(d, m, op->policy->repository, since);
    if (!corrected && m->corrected_ns >= since)
        return;
    if (!corrected)
        corrected_forget(m);
    m->corrected = result_bytes(op->result.corrected);
    m->corrected_indexes = result_bytes(op->result.corrected_indexes);
}

/* One on request that was not complete says nothing of the repository: it has its own record. */
static bool note_run(struct decide *d, struct verify_memory *m, const struct operation *op)
{
    const int64_t now = decide_now(d);
    const bool found = op->error.code == ERR_DAMAGE, done = op->outcome == OUTCOME_COMPLETED || found;
    const bool damaged = found || op->result.damages > 0;
    const bool corrected = op->result.corrected > 0 || op->result.corrected_indexes > 0;
    if (!done && !damaged && !corrected && op->read_from_ppm < 0)
        return false;
    m->there = true;
    if (op->read_from_ppm >= 0)
        note_schedule(m, op, found, now);
    if (damaged)
        note_damage(m, op, now);
    note_corrected(m, op, now);
    if (!done)
        return true;
    m->done_ns = now;
    if (op->read_from_ppm >= 0) {
        note_share(d, m, op, now);
    } else if (op->read_percent >= 100 && !op->snapshots) {
        note_all(d, m, op, damaged, corrected, now);
    }
    return true;
}

void verification_ended(struct decide *d, const struct operation *op)
{
    CLEANUP(job_run_clear) struct job_run row;
    struct err e = ERR_INIT;
    job_run_init(&row);
    if (repository_row_read(d, op->policy->repository, &row, &e) < 0) {
        plan_fail(d, &e);
        return;
    }
    if (op->kind != KIND_VERIFY) {
        row.verification.there = true;
        note_damage(&row.verification, op, decide_now(d));
    }
    if ((op->kind != KIND_VERIFY || note_run(d, &row.verification, op)) && repository_row_write(d, &row, &e) < 0)
        plan_fail(d, &e);
    if (op->kind == KIND_VERIFY)
        damaged_verified(d, op);
}
