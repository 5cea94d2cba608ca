/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * unit.h - transient systemd units over sd-bus: started, asked, signalled, forgotten
 *
 * Nothing waits but what says so. The connection is made when it is needed and made again when it was lost. One thread,
 * the event loop's. The properties of a unit are written with unit-property.h.
 */
#ifndef SNAPFERRY_PROC_UNIT_H
#define SNAPFERRY_PROC_UNIT_H

#include "base/err.h"
#include "proc/unit-property.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

struct unit_manager;

struct unit_manager_opts {
    sd_event *loop;
    const char *prefix; /* what the names of its units begin with: "snapferry-mover@" */
    /* A job of the manager is done: `job` is what unit_started_fn got; `result` "done" or why not. */
    void (*job_ended)(const char *job, const char *unit, const char *result, void *arg);
    void *arg;
};
int unit_manager_new(struct unit_manager **ret, const struct unit_manager_opts *o, struct err *e);
void unit_manager_free(struct unit_manager *u);
/* Connects if it is not connected. -errno, with a hint, if systemd does not answer. */
int unit_manager_connect(struct unit_manager *u, struct err *e);

/* A question under way. The pointer to it becomes NULL before its answer is told; unit_call_drop(): no answer comes. */
struct unit_call;
void unit_call_drop(struct unit_call **call);

/* What a service says of its main process. */
struct unit_facts {
    pid_t pid;            /* 0: none (now) */
    bool ended;           /* it was there and has ended */
    int status;           /* then its wait status, -1 unknown */
    double cpu_seconds;   /* 0 unknown */
    uint64_t memory_peak; /* bytes, 0 unknown */
    char result[32];      /* "success", "oom-kill", "exit-code" ... */
};
/* NULL: no answer within 5 s. */
typedef void unit_facts_fn(const struct unit_facts *f, void *arg);
/* *call is dropped before. */
int unit_ask(struct unit_manager *u, const char *unit, unit_facts_fn *fn, void *arg, struct unit_call **call);
/* The same at once: waits for at most 5 s. */
int unit_ask_wait(struct unit_manager *u, const char *unit, struct unit_facts *ret);

/* Appends the unit's properties; returns 0 or -errno with `e` set. What is in p->rc is looked at by unit_start(). */
typedef int unit_describe_fn(struct unit_properties *p, const void *arg, struct err *e);
/* `job`: accepted. Else refused: `exists`, a unit of that name is still there; `why` in words. */
typedef void unit_started_fn(const char *job, bool exists, const char *why, void *arg);
/* Errors are of the description or the connection; all else is told by `fn`. *call is dropped before. */
int unit_start(struct unit_manager *u, const char *unit, unit_describe_fn *describe, const void *description,
               unit_started_fn *fn, void *arg, struct unit_call **call, struct err *e);

/* A signal to all its processes; `stop`: and it may not start any more. */
void unit_kill(struct unit_manager *u, const char *unit, int sig, bool stop);
/* Stops it and removes what the manager remembers of it. */
void unit_forget(struct unit_manager *u, const char *unit);

#endif
