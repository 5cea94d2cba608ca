/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * schedule.h - when jobs run
 *
 * The daemon runs its jobs itself, with or without systemd; there is no other scheduler. A time of a job that has come
 * is due until its run was started: due jobs are queued, a few are started at a time, so that none is lost. Missed runs
 * (daemon down, node off, clock jump) are caught up once (persistent), determined from the last run in the records
 * (struct job_run). Jitter is a fixed offset per node and job. Due jobs stay due over a reload.
 *
 * The event loop's thread only. Every function takes the wall clock's time from its caller.
 */
#ifndef SNAPFERRY_DAEMON_SCHEDULE_H
#define SNAPFERRY_DAEMON_SCHEDULE_H

#include "cfg/cfg.h"
#include "daemon/records/records.h"

#include <systemd/sd-event.h>

struct schedule;
/* Starts a run. Answered by schedule_ran() or schedule_failed() with the same planned_ns, once, before this returns
 * or later; if the daemon ends before that, it is started again at the next start. planned_ns is the planned time,
 * caught_up that it is late: missed, and run once for all missed runs. It must not call schedule_apply(),
 * schedule_look() or schedule_free(). */
typedef void schedule_start_fn(const char *job, int64_t planned_ns, bool caught_up, void *arg);

struct schedule_opts {
    struct records *records;
    sd_event *loop;           /* NULL: its owner calls schedule_look() */
    schedule_start_fn *start; /* NULL: read-only, nothing is started and nothing is written */
    /* What is known of jobs has changed: schedule_write() is to be called, at once or later. */
    void (*changed)(void *arg);
    void *arg;
};
int schedule_new(struct schedule **ret, const struct schedule_opts *o, struct err *e);
void schedule_free(struct schedule *s);
/* Accepts a configuration (at start and after each reload). On failure the old one stays in force. */
int schedule_apply(struct schedule *s, const struct cfg *c, int64_t now_ns, struct err *e);
/* Starts due jobs. Returns when to call it again, in a minute at the latest; with a loop that happens automatically. */
int64_t schedule_look(struct schedule *s, int64_t now_ns);

/* Records what has changed of jobs, in a transaction of the caller; when that is durable, schedule_written() is called.
 * Until then it is written again. */
int schedule_write(struct schedule *s, struct err *e);
void schedule_written(struct schedule *s);
/* Whether something of it is not recorded. */
bool schedule_is_changed(const struct schedule *s);

/*
 * Records a run, in the transaction that adds the backup: it is not caught up again. planned_ns 0 is a manual run,
 * which replaces a missed one. missing: [{"volume", "reason"}] of volumes that the job names and this start did not
 * find, kept until the next start; NULL: none. If the transaction fails, schedule_failed() is called as well.
 */
int schedule_ran(struct schedule *s, const char *job, int64_t planned_ns, const char *backup, const json_t *missing,
                 int64_t now_ns, struct err *e);
/* Notes that a job could not be started; cleared by its next run. `again`: for a transient reason, so that a
 * persistent job is started again after a delay (one minute at first, then up to 15). */
int schedule_failed(struct schedule *s, const char *job, int64_t planned_ns, const struct err *why, bool again,
                    const json_t *missing, int64_t now_ns, struct err *e);

/* The current state of a job; texts and documents belong to the schedule, until one of the functions above is
 * called. */
struct job_view {
    const char *name, *on_calendar, *last_backup /* "": none, or not known */;
    const char *idle_because; /* "", or why it has no next run */
    int64_t next_ns;          /* with jitter; 0: none */
    int64_t last_ns;          /* 0: never */
    int64_t since_ns;         /* since when it has this schedule */
    int64_t jitter_s;
    int64_t interval_s; /* the longest time between two runs, see calendar_interval_s(); 0: there are not two */
    bool paused, elsewhere;
    bool due;                         /* it is queued, waits for another attempt, or (nothing runs) for the daemon */
    const struct job_failure *failed; /* NULL: its last start has not failed */
    const json_t *missing;            /* volumes that its last start did not find; NULL: none */
};
/* All jobs, in the order of the configuration; malloc()ed. NULL: no memory, and *n is 0. `s` may be
 * NULL: there is none yet. */
struct job_view *schedule_views(const struct schedule *s, int64_t now_ns, unsigned *n);
/* How many jobs run on a schedule. */
unsigned schedule_active(const struct schedule *s);
/* How many jobs of this node could not be started last time; name and reason of the first one, both borrowed. */
unsigned schedule_failing(const struct schedule *s, const char **job, const char **why);

#endif
