/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/schedule/job.h"

#include "base/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A run that starts later than planned by more than this was missed. */
#define LATE_NS NS_PER_MIN
#define RETRY_FIRST_NS NS_PER_MIN
#define RETRY_MAX_NS (15 * NS_PER_MIN)

static int64_t max_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- one job ---- */

int sched_job_new(struct sched_job **ret, const struct cfg *c, const struct cfg_job *from, struct err *e)
{
    const struct cfg_daemon *d = cfg_daemon(c);
    struct sched_job *j = calloc(1, sizeof *j);
    if (!j)
        return err_nomem(e);
    job_run_init(&j->memory);
    job_run_init(&j->before);
    snprintf(j->name, sizeof j->name, "%s", from->name);
    snprintf(j->on_calendar, sizeof j->on_calendar, "%s", from->on_calendar);
    j->persistent = from->persistent;
    j->paused = from->paused;
    j->elsewhere =
        !cfg_node_matches(from->only_on_node, d->node_name) || !cfg_node_matches(d->only_on_node, d->node_name);
    j->jitter_s = from->jitter_s;
    j->offset_ns = sched_offset_ns(d->node_name, j->name, j->jitter_s);
    j->look_ns = INT64_MAX;
    int rc = *j->on_calendar ? calendar_parse(&j->calendar, j->on_calendar, e) : 0;
    if (rc < 0) {
        err_wrap(e, "%s: [job \"%s\"]", from->origin, from->name);
        sched_job_free(j);
        return rc;
    }
    *ret = j;
    return 0;
}

void sched_job_free(struct sched_job *j)
{
    if (!j)
        return;
    calendar_free(j->calendar);
    job_run_clear(&j->memory);
    job_run_clear(&j->before);
    free(j);
}

void sched_memory_copy(struct job_run *to, const struct job_run *from)
{
    job_run_clear(to);
    job_run_copy(to, from); /* without memory it is empty, and the next write of a row fails */
}

/* ---- what it asks for ---- */

/* From when on its times count. One that is not persistent skips late ones. */
static int64_t reference_time(const struct sched_job *j, int64_t now)
{
    int64_t ref = max_of(j->memory.since_ns, max_of(j->memory.last_planned_ns, j->asked_ns));
    return j->persistent ? ref : max_of(ref, now - j->offset_ns - LATE_NS - 1);
}

/* The clock was set back. */
static bool forget_future(struct sched_job *j, int64_t now)
{
    int64_t ref = max_of(j->memory.since_ns, max_of(j->memory.last_planned_ns, j->asked_ns));
    if (ref <= now)
        return false;
    int64_t next = calendar_next(j->calendar, now), after = calendar_next(j->calendar, next);
    int64_t interval = after == INT64_MAX ? NS_PER_H : after - next;
    if (ref - now <= (interval < NS_PER_H ? interval : NS_PER_H))
        return false;
    j->memory.since_ns = j->memory.last_planned_ns = j->asked_ns = now;
    j->due = j->due && j->planned_ns <= now;
    return true;
}

bool sched_job_judge(struct sched_job *j, int64_t now)
{
    const bool forgotten = forget_future(j, now);
    const int64_t ref = reference_time(j, now);
    int64_t planned = calendar_next(j->calendar, ref);
    if (planned <= now - j->offset_ns) {
        const int64_t latest = max_of(planned, calendar_latest(j->calendar, ref, now - j->offset_ns));
        j->caught_up = j->due || latest != planned || now - latest - j->offset_ns > LATE_NS;
        j->due = true;
        j->planned_ns = j->asked_ns = latest;
        j->retry_ns = 0;
        j->tries = 0;
        planned = calendar_next(j->calendar, latest);
    }
    j->look_ns = planned > INT64_MAX - j->offset_ns ? INT64_MAX : planned + j->offset_ns;
    return forgotten;
}

int64_t sched_job_next(const struct sched_job *j, int64_t now, bool *due)
{
    *due = false;
    if (!sched_job_active(j))
        return INT64_MAX;
    struct sched_job copy = *j;
    sched_job_judge(&copy, now);
    *due = copy.due;
    if (!copy.due)
        return copy.look_ns;
    return copy.retry_ns > now ? copy.retry_ns : copy.planned_ns + copy.offset_ns;
}

void sched_job_retry(struct sched_job *j, int64_t now)
{
    if (j->due) /* a later time, which covers this one as well */
        return;
    int64_t wait = RETRY_FIRST_NS << (j->tries < 4 ? j->tries : 4);
    j->due = true;
    j->planned_ns = j->starting_ns;
    j->tries++;
    j->retry_ns = now + (wait < RETRY_MAX_NS ? wait : RETRY_MAX_NS);
}

int64_t sched_offset_ns(const char *node, const char *job, int64_t jitter_s)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    if (jitter_s <= 0)
        return 0;
    for (const char *p = node; *p; p++)
        h = (h ^ (uint8_t)*p) * UINT64_C(0x100000001b3);
    h *= UINT64_C(0x100000001b3); /* a NUL between them */
    for (const char *p = job; *p; p++)
        h = (h ^ (uint8_t)*p) * UINT64_C(0x100000001b3);
    /* The low bits of this hash are weak. */
    h ^= h >> 32;
    h *= UINT64_C(0xd6e8feb86659fd93);
    h ^= h >> 32;
    return (int64_t)(h % ((uint64_t)jitter_s * 1000 + 1)) * (NS_PER_S / 1000);
}
