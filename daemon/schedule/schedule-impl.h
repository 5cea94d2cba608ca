/* SPDX-License-Identifier: GPL-2.0-or-later */
/* schedule-impl.h - what the files of schedule*.c share: jobs, and the transient timers of systemd */
#ifndef SNAPFERRY_DAEMON_SCHEDULE_IMPL_H
#define SNAPFERRY_DAEMON_SCHEDULE_IMPL_H

#include "base/time.h"
#include "daemon/schedule/schedule.h"

struct sched_job {
    struct sched_job *next;
    char name[128], on_calendar[256];
    struct calendar *calendar;
    bool persistent, paused, elsewhere; /* elsewhere: only-on-node names other nodes */
    int64_t jitter_s, offset_ns;        /* offset: this node's and job's own part of the jitter */
    /* from the records */
    int64_t since_ns;        /* nothing before it counts as missed */
    int64_t last_planned_ns; /* latest time that has had its run, 0: none */
    int64_t last_run_ns;
    int64_t known_ns;                /* since when it has this schedule, persistent or not */
    json_t *failed;                  /* why its last start failed: {"message", "hint", "at_ns"}; NULL: it did not */
    json_t *missing;                 /* what its last start did not find: [{"volume", "reason"}]; NULL: nothing */
    int64_t asked_ns;                /* latest time for which `due` was called in this process */
    int64_t interval_s, interval_ns; /* sched_interval_s(), and when that was worked out; 0: not yet */
};
static inline bool sched_job_active(const struct sched_job *j)
{
    return j->calendar && !j->paused && !j->elsewhere;
}

/* ---- pure parts ---- */

/* The latest time of a calendar that is at most `now` and after `from`; 0: none. */
int64_t calendar_latest(const struct calendar *c, int64_t from_ns, int64_t now_ns);

struct sched_verdict {
    bool due, caught_up;
    int64_t planned_ns; /* if due */
    int64_t next_ns;    /* INT64_MAX: never */
    int64_t look_ns;    /* when to ask again, jitter and patience included; INT64_MAX: never */
};
/* What a job asks for at `now`. `patience_ns`: somebody else's timer runs it, and is given so long. A reference that
 * lies in the future (the clock went back by more than an hour or the job's interval) is forgotten: *forgotten. */
void sched_judge(struct sched_job *j, int64_t now_ns, int64_t patience_ns, struct sched_verdict *v, bool *forgotten);

/* The longest time that may pass between two runs of a calendar, in seconds: of the distances around and after `now`,
 * the one that spans it among them, in the coming weeks and in ten runs at least. Distances are exact but for those
 * shorter than a hundredth of the time until they come. 0: there are not two runs. */
int64_t sched_interval_s(const struct calendar *c, int64_t now_ns);

/* 0 to jitter, always the same for the same node and job. */
int64_t sched_offset_ns(const char *node, const char *job, int64_t jitter_s);

/* ---- transient timers (schedule-units.c) ---- */

struct units;
/* Also while systemd does not answer: then units_has() says no, and units_look() tries again. */
int units_new(struct units **ret, sd_event *loop, const char *command, const char *runtime_dir, struct err *e);
void units_free(struct units *u);
/* The timers that there are to be: those of the active jobs in the list. What differs from them is made or removed in
 * the background; a timer that is as it should be is left alone. */
int units_want(struct units *u, const struct sched_job *jobs, struct err *e);
/* Looks again at what is there (each minute): timers that went away are made anew, a lost bus is opened again. */
void units_look(struct units *u);
/* True if systemd runs that job now; else *problem says why not ("": not yet known). */
bool units_has(const struct units *u, const char *job, const char **problem);
/* Removes every timer of ours and waits for it. Works without units_want() before. */
int units_clear(struct units *u, struct err *e);

/* snapferry-job-NAME.timer with what unit names do not take as \xHH; what is too long is cut and ends in a hash. */
#define UNIT_TEXT 256
char *unit_name_of_job(const char *job, const char *suffix, char out[UNIT_TEXT]);

#endif
