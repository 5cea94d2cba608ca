/* SPDX-License-Identifier: GPL-2.0-or-later */
/* job.h - one job of the schedule, and what is due at a given time: pure functions */
#ifndef SNAPFERRY_DAEMON_SCHEDULE_JOB_H
#define SNAPFERRY_DAEMON_SCHEDULE_JOB_H

#include "cfg/cfg.h"
#include "daemon/records/types.h"
#include "daemon/schedule/calendar.h"

#include <stdbool.h>

struct sched_job {
    char name[128], on_calendar[256];
    struct calendar *calendar;          /* NULL: manual runs only */
    bool persistent, paused, elsewhere; /* elsewhere: only-on-node names other nodes */
    int64_t jitter_s, offset_ns;        /* offset: the part of the jitter of this node and job */
    struct job_run memory;              /* its state in the records */
    int64_t asked_ns;                   /* the latest time that became due in this process */

    /* A run that is due and has not been started. */
    bool due, caught_up; /* caught_up: it is late, and covers all missed runs */
    int64_t planned_ns;
    int64_t retry_ns; /* its start has failed: not before this */
    unsigned tries;
    /* A run that is being started. */
    bool starting, noted;
    int64_t starting_ns;   /* when it was planned */
    struct job_run before; /* the row before it was updated */
    /* Numbers of the last changes that are not recorded: of what memory_keep() and memory_failed() write; 0: none */
    uint64_t keep_change, failed_change;

    /* The schedule's */
    unsigned index; /* in the order of the configuration */
    bool queued;
    int64_t look_ns;                 /* next evaluation; INT64_MAX: never */
    struct sched_job *same;          /* the first job with this on_calendar: it has the interval */
    int64_t interval_s, interval_ns; /* calendar_interval_s(), and when that was worked out; 0: not yet */
};

int sched_job_new(struct sched_job **ret, const struct cfg *c, const struct cfg_job *from, struct err *e);
void sched_job_free(struct sched_job *j);
/* `to` is initialized. */
void sched_memory_copy(struct job_run *to, const struct job_run *from);

static inline bool sched_job_active(const struct sched_job *j)
{
    return j->calendar && !j->paused && !j->elsewhere;
}

/*
 * What is due of an active job at `now`: sets due, caught_up and planned_ns when a time has come, and look_ns. Each
 * time becomes due once; missed runs become due as one run, or not at all if it is not persistent. Returns true if the
 * time of a past run is in the future by more than the clock may go back without a repeated run (an hour, or the
 * interval of the job): that time is dropped, and the job counts from now on.
 */
bool sched_job_judge(struct sched_job *j, int64_t now_ns);
/* When the next run begins, including jitter: of one that is due, its planned time; INT64_MAX: never. Any job. */
int64_t sched_job_next(const struct sched_job *j, int64_t now_ns, bool *due);
/* The start of the run has failed: it is due again after a delay. */
void sched_job_retry(struct sched_job *j, int64_t now_ns);

/* 0 to jitter, always the same for the same node and job. */
int64_t sched_offset_ns(const char *node, const char *job, int64_t jitter_s);

#endif
