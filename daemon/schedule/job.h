/* SPDX-License-Identifier: GPL-2.0-or-later */
/* job.h - one job of the schedule, and what it asks for at a given time: pure functions of it and of that time */
#ifndef SNAPFERRY_DAEMON_SCHEDULE_JOB_H
#define SNAPFERRY_DAEMON_SCHEDULE_JOB_H

#include "cfg/cfg.h"
#include "daemon/records/types.h"
#include "daemon/schedule/calendar.h"

#include <stdbool.h>

struct sched_job {
    char name[128], on_calendar[256];
    struct calendar *calendar;          /* NULL: by hand only */
    bool persistent, paused, elsewhere; /* elsewhere: only-on-node names other nodes */
    int64_t jitter_s, offset_ns;        /* offset: this node's and job's own part of the jitter */
    struct job_run memory;              /* what the records remember of it */
    int64_t asked_ns;                   /* the latest time that became due in this process */

    /* A run that is due and has not been started. */
    bool due, caught_up; /* caught_up: it is late, and stands for all that was missed */
    int64_t planned_ns;
    int64_t retry_ns; /* its start has failed: not before this */
    unsigned tries;
    /* A run that is being started. */
    bool starting, noted;
    int64_t starting_ns;   /* when it was planned */
    struct job_run before; /* noted: the memory without it */

    /* The schedule's */
    unsigned index; /* in the order of the configuration */
    bool queued;
    int64_t look_ns;                 /* when to ask again; INT64_MAX: never */
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
 * What an active job asks for at `now`: sets due, caught_up and planned_ns when a time has come, and look_ns. Each time
 * becomes due once; what was missed becomes due as one run, or not at all where it is not persistent. Returns true if a
 * time that has been run lies in the future, by more than the clock may go back without anything being run twice (an
 * hour, or the interval of the job): that time is forgotten, and the job counts from now on.
 */
bool sched_job_judge(struct sched_job *j, int64_t now_ns);
/* When the next run begins, jitter included: for one that is due when it should have; INT64_MAX: never. Any job. */
int64_t sched_job_next(const struct sched_job *j, int64_t now_ns, bool *due);
/* The start of the run that was being started has failed: it is due again after a while. */
void sched_job_retry(struct sched_job *j, int64_t now_ns);

/* 0 to jitter, always the same for the same node and job. */
int64_t sched_offset_ns(const char *node, const char *job, int64_t jitter_s);

#endif
