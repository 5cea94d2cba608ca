/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * movers.h - what moves the data of operations: started, watched, adopted, cancelled, and how it ended
 *
 * A mover is the built-in one, a process of the program snapferry-mover (docs/mover.md), or a plugin that does the work
 * itself (snapferry-plugin(7), AP-07). Both are handled alike: a spec says which it is, events say what becomes of it.
 *
 * The built-in one is a transient systemd unit (snapferry-mover@OPERATION-ESCAPED.service) or, without systemd, a child
 * in a session and cgroup of its own. It connects to RUNTIME-DIR/mover.sock (mover-UID.sock where it runs as another
 * user than the daemon), is checked by SO_PEERCRED, and gets its job (sealed memfd) and descriptors by SCM_RIGHTS. It
 * waits for movers_go() (at most go-timeout), works, writes its result file (descriptor, fsync), sends messages as
 * hints, and exits. When the connection breaks it goes on working and connects again. Decisive are the process's end
 * (pidfd, unit state) and the result file; messages are auxiliary (MS-24..28).
 *
 * A plugin has two styles. `start` or `restore` begins the work elsewhere and returns an id; `watch` or `progress` tell
 * how far it is. `run`: the plugin's process is the mover. Nothing is stored here: what a restarted daemon needs is the
 * id that came with ready(). After any end but MOVER_OK the plugin has been asked to clean up, so that a further
 * attempt of the same operation begins anew; after MOVER_OK it is asked when ended() has returned.
 *
 * All of it belongs to the event loop's thread; nothing waits but movers_result() (5 s at most).
 */
#ifndef SNAPFERRY_DAEMON_MOVERS_MOVERS_H
#define SNAPFERRY_DAEMON_MOVERS_MOVERS_H

#include "cfg/cfg.h"
#include "daemon/protocol/mover-outcome.h"
#include "daemon/records/types.h"
#include "proc/process.h"
#include "proc/step.h"

#include <jansson.h>
#include <systemd/sd-event.h>

struct movers;

/* In the operation's record: {"pid", "startTime", "bootId", "unit"}. New reference. */
json_t *mover_identity_to_json(const struct process_identity *i);
int mover_identity_from_json(struct process_identity *ret, const json_t *j, struct err *e);

/* ---- events ---- */

/* What the record needs to find it again; borrowed. */
struct mover_ready {
    const struct process_identity *identity; /* all zeros for a plugin that works elsewhere */
    const char *plugin_id;                   /* "" for the built-in one */
};

/* How a mover ended. */
struct mover_end {
    enum mover_outcome outcome;
    /*
     * Built-in: contents of the result file, NULL if none or unreadable. Plugin, MOVER_OK: {"plugin", "id", "bytes",
     * "stored": what `result` answered}, or {"skip": reason} if it declined. Borrowed.
     */
    json_t *result;
    int status;                      /* wait status if known, else -1 */
    uint64_t memory_peak, oom_kills; /* bytes; from the cgroup, 0 if unknown */
    double cpu_seconds;
    struct err err; /* for outcomes other than OK: one sentence that names process, signal, last progress, and a hint */
};

/* `arg` is movers_new()'s. */
struct movers_events {
    /* It is there, and has its job: the record may say Running; then movers_go() is to be called. Comes again after
     * movers_adopt() of a plugin. */
    void (*ready)(const char *operation, const struct mover_ready *r, void *arg);
    void (*started)(const char *operation, void *arg);
    /* Last value wins: members as in docs/mover.md (phase, total, done, read, zero, ...). Borrowed. */
    void (*progress)(const char *operation, const json_t *p, void *arg);
    /* Once, when it is gone and its result was read. movers_has() is false from here on. */
    void (*ended)(const char *operation, const struct mover_end *end, void *arg);
};

struct movers_opts {
    sd_event *loop;
    struct steps *steps;                 /* in which plugins are asked; NULL: there are no plugins */
    const char *runtime_dir, *state_dir; /* sockets, files of plugins; result files and logs (protocol/mover-files.h) */
    const char *program;                 /* absolute path of snapferry-mover */
    unsigned plugin_backoff_ms; /* first pause after a failed question to a plugin, doubled each time; 0: 1000 */
    const struct movers_events *events;
    void *arg;
};
int movers_new(struct movers **ret, const struct movers_opts *o, struct err *e);
/* Leaves the movers alone: they go on and are adopted by the next daemon. */
void movers_free(struct movers *m);

/* ---- one mover ---- */

/* Seconds; 0: the default. */
struct mover_times {
    int64_t go_timeout_s;    /* from the start to ready(), and from there to movers_go(); 60 */
    int64_t stall_timeout_s; /* no counter moves for so long; none, of a plugin 15 min */
    int64_t cancel_grace_s;  /* from cancel to SIGKILL or cleanup; 30 */
    int64_t max_duration_s;  /* none */
};

/* All borrowed. */
struct mover_spec {
    const char *operation;
    const struct cfg_plugin *plugin; /* who moves the data; NULL: the built-in mover */
    struct mover_times times;
    /* The job: docs/mover.md, without a password; or the plugin's request: {"direction": "backup"|"restore", "volume",
     * "device": path, "size", ...}, to which "operation" is added. */
    const json_t *job;
    /* Of a plugin that is adopted: the id that came with ready(). */
    const char *plugin_id;
    /* Of the built-in one. */
    const char *kind;                  /* "backup", "restore", "verify", "admin" */
    int device_fd;                     /* source (O_RDONLY) or target (O_RDWR); -1: none; duplicated */
    const char *password;              /* handed over in a sealed memfd; NULL: none */
    const struct mover_limits *limits; /* of the policy in the record */
    bool debug;
};
/* Starts it. -EEXIST: that operation has one. -ENOPKG: the plugin is not installed (AO-24). Errors name phase and errno
 * (MS-55); what fails later comes by ended() with MOVER_NEVER_STARTED. */
int movers_start(struct movers *m, const struct mover_spec *s, struct err *e);
/* The record is durable: it may begin (MS-19). A plugin has begun by itself. */
int movers_go(struct movers *m, const char *operation, struct err *e);
/* Takes over what an earlier daemon started (MS-50, AO-06). Of the built-in one `identity` is proved and the job is not
 * needed; a plugin needs its id and request. 0: adopted, ended() will come; -ESRCH: the process is gone, and
 * movers_result() says what it left. */
int movers_adopt(struct movers *m, const struct process_identity *identity, const struct mover_spec *s, struct err *e);
/* What a built-in mover that is gone left: fills `end`, whose result is a new reference here. */
int movers_result(struct movers *m, const char *operation, struct mover_end *end, struct err *e);
/* The durable flag is the caller's. It is asked to end (CANCEL and SIGTERM; `cancel` of a plugin); what is left of it
 * at `deadline_ns` (realtime; 0: cancel_grace_s from now) gets SIGKILL, or `cleanup`. ended() comes in any case.
 * -ESRCH: there is none. */
int movers_cancel(struct movers *m, const char *operation, int64_t deadline_ns, struct err *e);
/* The record is terminal, or another attempt is to come: result file, unit and cgroup of the built-in mover are
 * removed; with `plugin` it is asked to clean up (again), in the background. -EBUSY: it runs. Idempotent. */
int movers_forget(struct movers *m, const char *operation, const struct cfg_plugin *plugin, const char *plugin_id,
                  struct err *e);

/* Keys of repositories that movers derived from passwords are kept in memory for those that come after them; this
 * forgets them all. One is forgotten as well when its repository is used with another password. */
void movers_forget_keys(struct movers *m);

bool movers_has(const struct movers *m, const char *operation);
unsigned movers_count(const struct movers *m);
/* Live facts for status, new reference; NULL if there is none. Built-in: pid, unit, memory, cpu_seconds, connected,
 * last_progress_s ...; plugin: plugin, id, state, style, watching, stopping, failures, last_progress_s. */
json_t *movers_to_json(const struct movers *m, const char *operation);

/* ---- strays: built-in movers that no record knows ---- */

/* step_fn (proc/step.h): {"runtime_dir"} -> {"movers": {OPERATION: [{"pid", "start_time"}]}}: what runs as a mover of a
 * daemon with that runtime directory, and units of such that are left (without a process: an empty list). */
int movers_list_step(const json_t *in, json_t **out, int *fd, struct err *e);
/* Ends one of them that no record knows: SIGKILL to those of `processes` that still are what they were, its unit
 * stopped, its result forgotten. Returns how many processes were killed; -EBUSY if it is one of ours. */
int movers_end_stray(struct movers *m, const char *operation, const json_t *processes, struct err *e);

#endif
