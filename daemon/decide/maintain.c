/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/decide/maintain.h"

#include "base/cleanup.h"
#include "base/time.h"

#include <string.h>

#define GIVE_WAY_BEFORE_NS (5 * NS_PER_MIN) /* a job starts within this time */
#define GIVE_WAY_AFTER_NS (2 * NS_PER_MIN)  /* or has been started */
#define GIVE_WAY_MAX_NS (30 * NS_PER_MIN)

/* ---- when ---- */

static bool is_others(enum maintain_refusal r)
{
    return r == REFUSED_OWNER || r == REFUSED_UNSUPPORTED || r == REFUSED_MACHINE;
}

/* The first time after `last` that this node uses for the repository: a fixed minute, different from node to node and
 * from repository to repository. A time in the future comes from a clock that was wrong. */
static int64_t next_slot(int64_t last, int64_t interval_s, int64_t offset_ns, int64_t now)
{
    const int64_t interval = interval_s * NS_PER_S;
    if (last > now)
        last = now;
    const int64_t since = last - offset_ns % interval;
    return last - (since - floor_div(since, interval) * interval) + interval;
}

static int64_t time_later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The time of the last good run, if that is too long ago; 0: it is not. */
static int64_t late_since(int64_t good, int64_t since, int64_t interval_s, int64_t now)
{
    const int64_t last = time_later(good, since);
    return interval_s && last && now - last > MAINTAIN_OVERDUE * interval_s * NS_PER_S ? last : 0;
}

static void by_calendar(const char *text, int64_t last, int64_t now, struct maintain_times *t)
{
    struct calendar *c = NULL;
    struct err e = ERR_INIT;
    if (calendar_parse(&c, text, &e) < 0)
        return; /* check-config refuses it */
    t->full_ns = calendar_next(c, last < now ? last : now);
    t->full_interval_s = calendar_interval_s(c, now);
    calendar_free(c);
}

void maintain_times(const struct cfg *c, const struct cfg_repository *r, const struct maintain_memory *m, int64_t now,
                    struct maintain_times *ret)
{
    const int64_t since = m && m->since_ns ? m->since_ns : now;
    const int64_t full_tried = m ? time_later(m->full.tried_ns, since) : since,
                  tried = m ? time_later(m->quick.tried_ns, full_tried) : since;
    const bool others = m && is_others(m->refused);
    const int64_t offset = sched_offset_ns(cfg_daemon(c)->node_name, r->name, MAINTAIN_FULL_S);
    *ret = (struct maintain_times){.quick_ns = INT64_MAX, .full_ns = INT64_MAX};
    if (!r->maintenance) {
        ret->standing = MAINTAIN_OFF;
        return;
    }
    if (others) {
        ret->standing = MAINTAIN_OTHERS;
        ret->silent_ns = m->silent_ns;
        ret->quick_ns = next_slot(tried, MAINTAIN_ASK_S, offset, now);
        return;
    }
    ret->standing = m && (m->quick.operation[0] || m->full.operation[0]) ? MAINTAIN_OURS : MAINTAIN_NEW;
    ret->quick_interval_s = m && m->quick_s >= 0 ? m->quick_s : MAINTAIN_QUICK_S;
    ret->full_interval_s = m && m->full_s >= 0 ? m->full_s : MAINTAIN_FULL_S;
    if (ret->quick_interval_s)
        ret->quick_ns = next_slot(tried, ret->quick_interval_s, offset, now);
    if (r->maintenance_full[0])
        by_calendar(r->maintenance_full, full_tried, now, ret);
    else if (ret->full_interval_s)
        ret->full_ns = next_slot(full_tried, ret->full_interval_s, offset, now);
    if (m) {
        ret->full_late_ns = late_since(m->full.good_ns, since, ret->full_interval_s, now);
        ret->quick_late_ns =
            late_since(time_later(m->quick.good_ns, m->full.good_ns), since, ret->quick_interval_s, now);
    }
}

static bool backs_up_into(const struct cfg *c, const char *job, const char *repository)
{
    struct cfg_policy p = {.effective = NULL};
    struct err e = ERR_INIT;
    const bool there = cfg_policy(c, cfg_named(""), job, &p, &e) == 0;
    const bool into = there && !strcmp(p.repository, repository);
    cfg_policy_clear(&p);
    return into;
}

bool maintain_gives_way(const struct cfg *c, const char *repository, const struct jobs_now *jobs, int64_t due_ns,
                        int64_t now)
{
    if (now - due_ns >= GIVE_WAY_MAX_NS)
        return false;
    for (unsigned i = 0; i < jobs->n; i++) {
        const struct job_view *j = &jobs->v[i];
        const bool near = (j->next_ns && j->next_ns - now < GIVE_WAY_BEFORE_NS) ||
                          (j->last_ns && j->last_ns <= now && now - j->last_ns < GIVE_WAY_AFTER_NS);
        if (near && backs_up_into(c, j->name, repository))
            return true;
    }
    return false;
}

/* ---- what is known ---- */

const struct maintain_memory *maintain_known(const struct records *r, const char *repository)
{
    char id[MAINTAIN_ROW_MAX];
    const struct job_run *row = job_run_peek(r, maintain_row_id(repository, id));
    return row && row->maintain.there ? &row->maintain : NULL;
}

static int memory_read(struct decide *d, const char *repository, struct job_run *ret, struct err *e)
{
    int rc = repository_row_read(d, repository, ret, e);
    if (rc == 0 && !ret->maintain.there) {
        ret->maintain.there = true;
        ret->maintain.since_ns = decide_now(d);
    }
    return rc;
}

int maintain_begin(struct decide *d, const char *repository, struct err *e)
{
    CLEANUP(job_run_clear) struct job_run row;
    job_run_init(&row);
    if (maintain_known(d->records, repository))
        return 0;
    int rc = memory_read(d, repository, &row, e);
    return rc < 0 ? rc : repository_row_write(d, &row, e);
}

/* ---- runs ---- */

/* What the repository itself says. */
static void note_parameters(struct maintain_memory *m, const struct mover_maintenance *r)
{
    str_set(&m->owner, r->owner);
    if (r->quick_s >= 0)
        m->quick_s = r->quick_s;
    if (r->full_s >= 0)
        m->full_s = r->full_s;
}

static void note_standing(struct maintain_memory *m, const struct operation *op, int64_t now)
{
    const struct mover_maintenance *r = &op->result.maintenance;
    if (is_others(m->refused) && !is_others(r->refused))
        m->since_ns = now; /* it has become this node's */
    m->refused = r->refused;
    m->silent_ns = is_others(r->refused) ? r->silent_ns : 0;
    str_set(&m->why, r->refused ? op->skip_reason : "");
    str_set(&m->hint, r->refused ? r->hint : "");
}

static void note_run(struct maintain_cycle *x, const struct operation *op, int64_t now)
{
    x->tried_ns = now;
    x->outcome = op->outcome;
    str_set(&x->operation, op->id);
    str_set(&x->error, op->outcome == OUTCOME_FAILED ? op->error.message : "");
    if (op->outcome == OUTCOME_COMPLETED)
        x->good_ns = now;
}

static int64_t bytes_reported(int64_t bytes)
{
    return bytes > 0 ? bytes : 0;
}

static void note_space(struct maintain_memory *m, const struct mover_maintenance *r)
{
    m->freed = bytes_reported(r->freed);
    m->packs = bytes_reported(r->packs);
    m->reclaimable = bytes_reported(r->reclaimable);
    m->trapped = bytes_reported(r->trapped);
    m->back_from_ns = r->back_from_ns;
}

/* What maintenance stored again has not decayed any more. Contents: index blobs are found whole by a verification. */
static void note_renewed(struct verify_memory *v, const struct mover_maintenance *r)
{
    const int64_t n = bytes_reported(r->renewed);
    v->corrected = v->corrected > n ? v->corrected - n : 0;
    if (n && !v->corrected && !v->corrected_indexes)
        v->corrected_ns = 0;
}

void maintain_ended(struct decide *d, const struct operation *op)
{
    const struct mover_maintenance *r = &op->result.maintenance;
    CLEANUP(job_run_clear) struct job_run row;
    struct maintain_memory *m = &row.maintain;
    struct err e = ERR_INIT;
    job_run_init(&row);
    if (memory_read(d, op->policy->repository, &row, &e) < 0) {
        plan_fail(d, &e);
        return;
    }
    if (r->there) {
        note_parameters(m, r);
        if (!op->maintain.dry_run)
            note_standing(m, op, decide_now(d));
    }
    if (!op->maintain.dry_run) {
        note_run(op->maintain.full ? &m->full : &m->quick, op, decide_now(d));
        if (op->maintain.full && r->there && op->outcome == OUTCOME_COMPLETED)
            note_space(m, r);
        if (r->there)
            note_renewed(&row.verification, r);
        count_maintained(d, op);
    }
    if (repository_row_write(d, &row, &e) < 0)
        plan_fail(d, &e);
}
