/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * step.h - one blocking piece of work in a child process of the daemon, with a deadline
 *
 * Whatever may block (a driver, a file system, a hook, a plugin, open() of a device) is a step: the daemon forks, the
 * child runs a function and sends its JSON result, its error and at most one descriptor back over a socket pair. The
 * event loop never waits. The child dies with the daemon (PR_SET_PDEATHSIG); all steps are idempotent and are begun
 * again by reconcile. A child that does not die of SIGKILL (stuck in the kernel) is reported as timed out, counted in
 * steps_stuck() and reaped if it ever ends.
 */
#ifndef SNAPFERRY_PROC_STEP_H
#define SNAPFERRY_PROC_STEP_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <systemd/sd-event.h>

struct steps;
struct step;

/* Runs in the child. `in` as given to step_start(). *out (may stay NULL) and *fd (stays -1 if none) go to the parent.
 * The child has no other descriptor of the daemon open than what step_start() was told to keep; log_line() works (goes
 * to the daemon's log with the step's name). */
typedef int step_fn(const json_t *in, json_t **out, int *fd, struct err *e);

struct step_result {
    json_t *out; /* borrowed, NULL if none */
    int fd;      /* -1 if none; the callback may take it by setting it to -1, else it is closed */
    bool timed_out, canceled;
    double seconds;
    struct err err; /* cls ERR_NONE: it succeeded. A child that crashed is an error that names the signal. */
};
/* Called once from the event loop. The step is freed afterwards. */
typedef void step_done_fn(struct step_result *r, void *arg);
/* How far it has got, in whatever words; from the event loop, never after the end. */
typedef void step_progress_fn(const json_t *doc, void *arg);

int steps_new(struct steps **ret, sd_event *loop, struct err *e);
/* Kills what runs; no callbacks are called. */
void steps_free(struct steps *s);

/* Starts; `in` is borrowed for the call. timeout_s 0 is refused. `name` is for logs and status ("snapshot vg0/db1").
 * Returns 0 and *ret (may be NULL), or an error if no process could be made. */
int step_start(struct steps *s, const char *name, step_fn *fn, const json_t *in, unsigned timeout_s, step_done_fn *done,
               void *arg, struct step **ret, struct err *e);
/* Passes on what its function reports (step_report()), from now on. */
void step_watch(struct step *t, step_progress_fn *fn, void *arg);
/* In the child, called by its function: an object of at most STEP_REPORT_MAX bytes as text, else it is dropped, as if
 * nobody watched. Takes `doc` over. */
#define STEP_REPORT_MAX 4096u
void step_report(json_t *doc);
/* SIGKILL now; done is called with canceled set. */
void step_cancel(struct step *t);

/* Children that ignore SIGKILL, and all that run (name, pid, seconds), as a JSON array for status. */
unsigned steps_stuck(const struct steps *s);
unsigned steps_running(const struct steps *s);
json_t *steps_to_json(const struct steps *s);

#endif
