/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * memory.h - the state of jobs in the records
 *
 * A row of the table of jobs has the last run of a job's schedule and the result of its last start; it is kept when the
 * job is removed from the configuration. The event loop's thread only.
 */
#ifndef SNAPFERRY_DAEMON_SCHEDULE_MEMORY_H
#define SNAPFERRY_DAEMON_SCHEDULE_MEMORY_H

#include "daemon/records/records.h"
#include "daemon/schedule/job.h"

/* Reads the state into j->memory. A job that is new, or whose schedule differs from the recorded one (or that was
 * paused, or for other nodes), counts from `now` on: *changed is then true, and memory_keep() must be called. */
int memory_load(struct records *r, struct sched_job *j, int64_t now_ns, bool *changed, struct err *e);
/* Writes the schedule of a job, and from when on its times count. */
int memory_keep(struct records *r, const struct sched_job *j, struct err *e);
/* Writes of `m` last_planned_ns, last_run_ns, last_backup, missing; its last start has not failed. */
int memory_ran(struct records *r, const char *job, const struct job_run *m, struct err *e);
/* Writes of `m` failed and missing. */
int memory_failed(struct records *r, const char *job, const struct job_run *m, struct err *e);
/* Calls fn for each job that the records have as running by its schedule. fn may write to the records. */
typedef int memory_fn(const char *job, void *arg);
int memory_each_active(struct records *r, memory_fn *fn, void *arg);
/* The job was removed from the configuration: if it is added again, it counts from then on. */
int memory_forget(struct records *r, const char *job, struct err *e);
/* The latest time that was run, of a job that need not be in the configuration; 0: none. */
int64_t memory_last_planned(struct records *r, const char *job);

#endif
