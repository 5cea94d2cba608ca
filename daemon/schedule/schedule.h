/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * schedule.h - when jobs run: transient systemd timers from the accepted configuration, or the daemon's own clock
 *
 * Under systemd each job with on-calendar is a transient timer snapferry-job-NAME.timer (`systemctl list-timers`) whose
 * service runs `snapferry backup --job NAME --from-timer`; they are made anew from each accepted configuration and
 * removed with it. Elsewhere timers of the event loop do the same. Missed runs (daemon down, node off, clock jump) are
 * caught up once (persistent), found from the last run that is in the records (REC_JOB), not from timers' own memory.
 * Jitter is a fixed offset per node and job.
 */
#ifndef SNAPFERRY_DAEMON_SCHEDULE_H
#define SNAPFERRY_DAEMON_SCHEDULE_H

#include "cfg/cfg.h"
#include "daemon/records/records.h"

#include <systemd/sd-event.h>

struct schedule;
/* A job is due: the callback submits it. planned_ns is when it should have run, caught_up that this is late: missed,
 * and run once for all that was missed. Called once for each time in a process, whether or not the run is noted then;
 * after a restart again if it was not. It must not call schedule_apply() or schedule_free() before it returns. */
typedef void schedule_due_fn(const char *job, int64_t planned_ns, bool caught_up, void *arg);

struct schedule_opts {
    sd_event *loop;
    struct records *records;
    const char *command;     /* absolute path of snapferry, for the timers' services */
    const char *runtime_dir; /* for its --runtime-dir */
    bool systemd;            /* use timers; false: own clock */
    schedule_due_fn *due;
    void *arg;
};
int schedule_new(struct schedule **ret, const struct schedule_opts *o, struct err *e);
/* Own clock's timers end; transient timers stay (they start the daemon again through the socket). */
void schedule_free(struct schedule *s);
/* Accepts a configuration (at start and after each reload). */
int schedule_apply(struct schedule *s, const struct cfg *c, struct err *e);
/* Removes all transient timers of ours (package removal). */
int schedule_clear(struct schedule *s, struct err *e);
/* Notes a run in the records so that it is not caught up again. Called by the engine when a job was submitted, best in
 * the transaction that adds the backup. planned_ns 0 (a timer's run, or one by hand): the latest time that has passed;
 * so a run by hand makes up for one that was missed. missing: [{"volume", "reason"}] of what the job names and this
 * start did not find, kept until the next start; NULL: nothing. */
int schedule_ran(struct schedule *s, const char *job, int64_t planned_ns, const json_t *missing, struct err *e);
/* Notes that a job could not be started; forgotten with its next run. */
int schedule_failed(struct schedule *s, const char *job, const struct err *why, const json_t *missing, struct err *e);
/* How many jobs of this node could not be started last time; of the first one the name and the reason, both borrowed.
 */
unsigned schedule_failing(const struct schedule *s, const char **job, const char **why);
/* For a request of a timer (from_timer without planned_ns): which of the job's times it stands for. False: that one has
 * had its run already (timer and daemon were both late), or the job is paused or for other nodes. */
bool schedule_claims(const struct schedule *s, const char *job, int64_t *planned_ns);
/* {"job", "on_calendar", "next", "last", "paused", "interval_s"} for each job (new reference). Times are "2026-11-21T
 * 02:00:00Z" or null; next has the jitter in it where the daemon's clock runs the job; interval_s is the longest time
 * between two runs in the coming weeks (weekdays: over the weekend), that which spans now among them, 0 if there are
 * not two runs. Beside them: "jitter_s", "idle_because" ("" or why it has no next run), "runs_by" ("systemd" or
 * "daemon"), "problem" ("" or why its timer could not be made), "elsewhere" (it is for other nodes), "since_ns" (since
 * when it has this schedule), "failed" ({"message", "hint", "at_ns"} if its last start failed), "missing" (what its
 * last start did not find, if there is any). */
json_t *schedule_to_json(const struct schedule *s);

/*
 * systemd.time(7) calendar events, as far as jobs use them: weekdays and ranges, dates with *, lists, ranges, steps and
 * "~" (last days), times, time zone suffix "UTC" or a name, shorthands (minutely, hourly, daily, weekly, monthly,
 * quarterly, semiannually, yearly).
 */
struct calendar;
int calendar_parse(struct calendar **ret, const char *text, struct err *e); /* ERR_USAGE naming the part */
void calendar_free(struct calendar *c);
/* The first time strictly after `after_ns`, INT64_MAX if there is none (as for 30 February). Local time zone unless the
 * text names one; daylight saving: a time that does not exist runs at the next that does (systemd leaves it out; the
 * daemon catches it up), one that exists twice runs once, the first time, hourly events too (as with systemd).
 * Immutable after parsing; the local zone is the process's at the time of the call. */
int64_t calendar_next(const struct calendar *c, int64_t after_ns);

#endif
