/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * movers.h - the processes that move data: started, watched, adopted, ended
 *
 * A mover is one process for one operation, program snapferry-mover. Two small back ends start it: a transient systemd
 * unit (snapferry-mover@OPERATION-ESCAPED.service over sd-bus, where systemd runs) or a forked child (setsid, own
 * cgroup if one can be made). In both the mover dials RUNTIME-DIR/mover.sock (mover-UID.sock where it runs as another
 * user than the daemon), says which operation it is, is checked by
 * SO_PEERCRED, and gets its job (sealed memfd) and descriptors by SCM_RIGHTS. It waits for "go" (at most go-timeout),
 * works, writes its result file (descriptor, fsync), sends messages as hints, and exits. When the connection breaks it
 * goes on working and dials again.
 *
 * Decisive: the process's end (pidfd, unit state) and the result file. Auxiliary: messages (MS-24..28).
 */
#ifndef SNAPFERRY_DAEMON_MOVERS_H
#define SNAPFERRY_DAEMON_MOVERS_H

#include "cfg/cfg.h"
#include "daemon/protocol/mover-outcome.h"
#include "proc/process.h"

#include <jansson.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

struct movers;

/* In the operation's record: {"pid", "startTime", "bootId", "unit"}. */
json_t *mover_identity_to_json(const struct process_identity *i);
int mover_identity_from_json(struct process_identity *ret, const json_t *j, struct err *e);

/* How a mover ended. */
struct mover_end {
    enum mover_outcome outcome;
    json_t *result;                  /* contents of the result file, NULL if none or unreadable; borrowed */
    int status;                      /* wait status if known, else -1 */
    uint64_t memory_peak, oom_kills; /* from the cgroup, 0 if unknown */
    double cpu_seconds;
    struct err err; /* for outcomes other than OK: one sentence that names process, signal, last progress, and a hint */
};

/* All are called from the event loop. `arg` is movers_new()'s. */
struct movers_events {
    /* It runs, is connected and has its job: the record may say Running; then call movers_go(). */
    void (*ready)(const char *operation, const struct process_identity *id, void *arg);
    void (*started)(const char *operation, void *arg);
    /* Last value wins: members as in docs/mover.md (phase, total, done, read, zero, ...). Borrowed. */
    void (*progress)(const char *operation, const json_t *p, void *arg);
    /* Once, when the process is gone and its result was read. The handle is gone afterwards. */
    void (*ended)(const char *operation, const struct mover_end *end, void *arg);
};

struct movers_opts {
    sd_event *loop;
    const char *runtime_dir, *state_dir; /* result files: STATE-DIR/results/OPERATION-HASH.json */
    const char *program;                 /* absolute path of snapferry-mover */
    const struct movers_events *events;
    void *arg;
};
int movers_new(struct movers **ret, const struct movers_opts *o, struct err *e);
/* Leaves the movers alone: they go on and are adopted by the next daemon. */
void movers_free(struct movers *m);

struct mover_spec {
    const char *operation;
    const char *kind;     /* "backup", "restore", "verify", "maintain", "admin" */
    const json_t *job;    /* docs/mover.md; borrowed. Never contains a password. */
    int device_fd;        /* source (O_RDONLY) or target (O_RDWR); -1: none; borrowed, duplicated */
    const char *password; /* passed in a sealed memfd; NULL: none; borrowed */
    const struct cfg_mover *limits;
    int64_t go_timeout_s, stall_timeout_s, cancel_grace_s, max_duration_s;
    bool debug;
};
/* Starts the process. -EEXIST if that operation has one. Errors name phase and errno (MS-55); asynchronous failures
 * come by ended() with MOVER_NEVER_STARTED. */
int movers_start(struct movers *m, const struct mover_spec *s, struct err *e);
/* The record is durable: begin (MS-19). */
int movers_go(struct movers *m, const char *operation, struct err *e);
/* Takes over a process of an earlier daemon (MS-50): proves identity, watches it, accepts its new connection. 0:
 * adopted (ended() will come); -ESRCH: it is gone: movers_result() tells what it left. */
int movers_adopt(struct movers *m, const char *operation, const struct process_identity *id, const struct mover_spec *s,
                 struct err *e);
/* What a gone mover left: fills `end` (its result is a new reference here). */
int movers_result(struct movers *m, const char *operation, struct mover_end *end, struct err *e);
/* Durable flag is the caller's. CANCEL message, SIGTERM, and SIGKILL of the whole cgroup at `deadline_ns` (realtime).
 */
int movers_cancel(struct movers *m, const char *operation, int64_t deadline_ns, struct err *e);
/* Result file and unit are forgotten: called after the record is terminal. Idempotent. */
int movers_forget(struct movers *m, const char *operation, struct err *e);
bool movers_has(const struct movers *m, const char *operation);
unsigned movers_count(const struct movers *m);
/* Live facts of one mover for status (pid, unit, memory, cpu_seconds, connected, last_progress_s); NULL if none. */
json_t *movers_to_json(const struct movers *m, const char *operation);

/* ---- strays: movers that no record knows ---- */

/* step_fn (proc/step.h): {"runtime_dir"} -> {"movers": {OPERATION: [{"pid", "start_time"}]}}: what runs as a mover of a
 * daemon with that runtime directory, and units of such that are left (without a process: an empty list). */
int movers_list_step(const json_t *in, json_t **out, int *fd, struct err *e);
/* Ends one of them that no record knows: SIGKILL to those of `processes` that still are what they were, its unit
 * stopped, its result forgotten. Returns how many processes were killed; -EBUSY if it is one of ours. */
int movers_end_stray(struct movers *m, const char *operation, const json_t *processes, struct err *e);

#endif
