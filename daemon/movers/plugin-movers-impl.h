/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plugin-movers-impl.h - what the files of plugin-movers share (internal) */
#ifndef SNAPFERRY_DAEMON_PLUGIN_MOVERS_IMPL_H
#define SNAPFERRY_DAEMON_PLUGIN_MOVERS_IMPL_H

#include "base/time.h"
#include "daemon/movers/plugin-movers.h"
#include "proc/plugin-run.h"
#include "proc/service.h"
#include "proc/tail.h"
#include "daemon/movers/plugin.h"

#define PM_CLEANUP_TRIES 8
#define PM_WATCH_TRIES 3
#define PM_TAIL_USEC 500000u                  /* interval at which the output of a process is read */
#define PM_WATCH_POLL_USEC UINT64_C(60000000) /* progress is also polled, in case a stream has stopped */

#define PM_LOGS_S 15          /* seconds that the log of an operation that is being stopped may take */
#define PM_DIE_USEC 10000000u /* time to wait after SIGKILL */

enum pm_state { PM_BEGINNING, PM_RUNNING, PM_RESULT, PM_CLEANING, PM_ENDING };
enum pm_question {
    PM_Q_BEGIN,
    PM_Q_WATCH,
    PM_Q_PROGRESS,
    PM_Q_CANCEL,
    PM_Q_RESULT,
    PM_Q_LOGS,
    PM_Q_CLEANUP,
    PM_Q_STOP_UNIT
};

/* A long-running process of an operation: `run` or `watch`. */
struct pm_process {
    bool there, gone, flood;
    struct process_identity id;
    int pidfd;
    sd_event_source *on_exit;
    struct tail *out, *log;
};

struct pm_op {
    struct pm_op *next;
    struct plugin_movers *pm;
    char operation[512];
    struct cfg_plugin plugin; /* without its patterns */
    struct plugin_program prog;
    struct mover_times times;
    bool restore, style_run;
    unsigned abilities;
    json_t *request, *stored;
    char id[PLUGIN_ID_MAX + 1];
    enum pm_state state;
    bool unit_left; /* there was a long-running process: its unit may remain */
    bool logs_asked;
    bool aftermath; /* ended() was called, only a cleanup runs */
    /* the call in progress */
    struct step *step;
    enum pm_question question;
    uint64_t next_usec; /* not before: next progress, result, cleanup */
    unsigned failures, tries, watch_failures;
    uint64_t watch_again_usec;
    struct pm_process proc;
    /* its last progress */
    struct plugin_progress last;
    bool heard, told_started;
    uint64_t began_usec, changed_usec;
    char skip[256];
    /* why it is being stopped */
    bool stopping, cancel_acked, term_sent;
    enum mover_outcome stop_outcome;
    enum err_class stop_cls;
    char stop_text[900];
    uint64_t deadline, cancel_usec;
    /* how it ended */
    bool decided;
    enum mover_outcome outcome;
    struct err why;
    sd_event_source *timer;
};

struct plugin_movers {
    sd_event *loop;
    struct steps *steps;
    const struct movers_events *events;
    void *arg;
    unsigned backoff_ms;
    char dir[4096], state_dir[4096];
    struct pm_op *first;
};

/* Evaluated at `usec` (monotonic). */
static inline void pm_wake(struct pm_op *o, uint64_t usec)
{
    sd_event_source_set_time(o->timer, usec);
    sd_event_source_set_enabled(o->timer, SD_EVENT_ONESHOT);
}

/* Progress documents of the plugin, and their effects. */
void pm_heard(struct pm_op *o, enum plugin_verb v, const json_t *doc);
void pm_progress_failed(struct pm_op *o, const struct err *e);
uint64_t pm_backoff_usec(const struct pm_op *o, unsigned n);
/* Starts to stop it and records why: the first reason is kept, the earliest deadline (monotonic) applies. */
void pm_stop(struct pm_op *o, enum mover_outcome m, enum err_class cls, const char *text, uint64_t deadline);
void pm_stop_now(struct pm_op *o, enum mover_outcome m, const char *text);
/* Outcome and message; the first one is kept. _stopped: the reason for which it was stopped. */
void pm_outcome(struct pm_op *o, enum mover_outcome m, enum err_class cls, int sys, const char *text);
void pm_outcome_stopped(struct pm_op *o);
/* Adds to the message that the plugin may still be working, and why this is unknown. */
void pm_doubt(struct pm_op *o, const char *why);
/* No further progress is accepted from the plugin. */
void pm_conclude(struct pm_op *o);

/* Processes of `run` and `watch`. */
int pm_attach(struct pm_op *o, const char *id, enum plugin_verb v, struct err *e);
void pm_process_clear(struct pm_process *w);
void pm_kill_process(struct pm_op *o, int sig);
/* All new data in the process's files; true if there is more. */
bool pm_read_process(struct pm_op *o, bool last);
void pm_run_ended(struct pm_op *o);
void pm_watch_ended(struct pm_op *o);

/* Step: describe, then (unless "resume" names an id) applies and start, restore, or the process of `run`. Answers
 * {"abilities", "id", "skip", "completed", "error", "result"}. The argument is plugin_step_in()'s with "dir",
 * "operation", "resume", "restore". */
int pm_begin_step(const json_t *in, json_t **out, int *fd, struct err *e);

#endif
