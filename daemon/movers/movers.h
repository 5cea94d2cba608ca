/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * movers.h - movers of the data of operations: start, supervision, adoption, cancellation, outcome
 *
 * A mover is the built-in one, a process of the program snapferry-mover (docs/mover.md), or a plugin that does the work
 * itself (snapferry-plugin(7), AP-07). Both are handled alike: a spec selects one, events report its state.
 *
 * The built-in one is a transient systemd unit (snapferry-mover@OPERATION-ESCAPED.service) or, without systemd, a child
 * in a session and cgroup of its own. It connects to RUNTIME-DIR/mover.sock (mover-UID.sock if it runs as another user
 * than the daemon), is identified by SO_PEERCRED, and receives its job (sealed memfd) and descriptors by SCM_RIGHTS. It
 * waits for movers_go() (at most go-timeout), works, writes its result file (descriptor, fsync), sends messages as
 * hints, and exits. If the connection breaks it continues to work and reconnects. The process's end (pidfd, unit state)
 * and the result file determine the outcome; messages are auxiliary (MS-24..28).
 *
 * A plugin has two styles. `start` or `restore` starts the work elsewhere and returns an id; `watch` or `progress`
 * report its progress. `run`: the plugin's process is the mover. Nothing is stored here: a restarted daemon needs the
 * id that was passed to ready(). After any end but MOVER_OK the plugin's cleanup has been called, so that another
 * attempt of the same operation starts from the beginning; after MOVER_OK it is called when ended() has returned.
 *
 * All of it belongs to the event loop's thread; nothing blocks but movers_result() (5 s at most). Results are read and
 * parsed in a thread (proc/parser.h): they may have 1 MiB, of a mover that is not trusted.
 */
#ifndef SNAPFERRY_DAEMON_MOVERS_MOVERS_H
#define SNAPFERRY_DAEMON_MOVERS_MOVERS_H

#include "cfg/cfg.h"
#include "daemon/protocol/mover-outcome.h"
#include "daemon/records/step-answer.h"
#include "proc/process.h"
#include "proc/step.h"

#include <jansson.h>
#include <systemd/sd-event.h>

struct movers;

/* In the operation's record: {"pid", "startTime", "bootId", "unit"}. New reference. */
json_t *mover_identity_to_json(const struct process_identity *i);
int mover_identity_from_json(struct process_identity *ret, const json_t *j, struct err *e);

/* ---- events ---- */

/* What the record needs to identify it again; borrowed. */
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
    bool looked_for;                 /* of movers_result() */
    uint64_t memory_peak, oom_kills; /* bytes; from the cgroup, 0 if unknown */
    double cpu_seconds;
    struct err err; /* for outcomes other than OK: process, signal, last progress, and a hint */
};

/* `arg` is movers_new()'s. */
struct movers_events {
    /* It has connected and received its job: the record may become Running; then movers_go() is to be called. Called
     * again after movers_adopt() of a plugin. */
    void (*ready)(const char *operation, const struct mover_ready *r, void *arg);
    void (*started)(const char *operation, void *arg);
    /* The last value counts: members as in docs/mover.md (phase, total, done, read, zero, ...). Borrowed. */
    void (*progress)(const char *operation, const json_t *p, void *arg);
    /* Once, when it has ended and its result was read. movers_has() is false from here on. */
    void (*ended)(const char *operation, const struct mover_end *end, void *arg);
    /* The keys of its storage (`copy`: of the copy that it makes) were refused: the text of those that are valid now,
     * for password_free(). Also of one that was adopted. NULL: there never are others. */
    int (*credentials)(const char *operation, bool copy, char **ret, void *arg, struct err *e);
};

struct movers_opts {
    sd_event *loop;
    struct steps *steps;                 /* for calls of plugins; NULL: there are no plugins */
    const char *runtime_dir, *state_dir; /* sockets, files of plugins; result files and logs (protocol/mover-files.h) */
    const char *program;                 /* absolute path of snapferry-mover */
    unsigned plugin_backoff_ms;          /* first pause after a failed call of a plugin, doubled each time; 0: 1000 */
    const struct movers_events *events;
    void *arg;
};
int movers_new(struct movers **ret, const struct movers_opts *o, struct err *e);
/* Does not stop movers: they continue and are adopted by the next daemon. */
void movers_free(struct movers *m);

/* ---- one mover ---- */

/* Seconds; 0: the default. */
struct mover_times {
    int64_t go_timeout_s;    /* from the start to ready(), and from there to movers_go(); 60 */
    int64_t stall_timeout_s; /* no counter changes for so long; 0: none, for a plugin 15 min */
    int64_t cancel_grace_s;  /* from cancel to SIGKILL or cleanup; 30 */
    int64_t max_duration_s;  /* none */
};

/* All borrowed. */
struct mover_spec {
    const char *operation;
    const struct cfg_plugin *plugin; /* plugin that moves the data; NULL: the built-in mover */
    struct mover_times times;
    /* The job: docs/mover.md, without a password; or the plugin's request: {"direction": "backup"|"restore", "volume",
     * "device": path, "size", ...}, to which "operation" is added. */
    const json_t *job;
    /* Of the built-in one: a memory file (memory_new()) that begins the text of the job, an object that is not closed
     * yet: what would take long to be made at once. It is completed and sealed; duplicated. 0 or less: none. */
    int job_fd;
    /* Of a plugin that is adopted: the id that was passed to ready(). */
    const char *plugin_id;
    /* Of the built-in one. */
    const char *kind;                  /* "backup", "restore", "verify", "admin", "look" */
    int device_fd;                     /* source (O_RDONLY) or target (O_RDWR); -1: none; duplicated */
    int changes_fd;                    /* list of changes (changes_pack()), duplicated; 0 or less: none */
    int listing_fd;                    /* where long lists go (memory_shared()), duplicated; 0 or less: none */
    const char *password;              /* passed in a sealed memfd; NULL: none */
    const char *credentials;           /* likewise: the text of the file of S3 keys */
    const char *copy_credentials;      /* likewise, of the place to which it copies the repository */
    const struct mover_limits *limits; /* of the policy in the record */
    bool debug;
};
/* Starts it. -EEXIST: that operation has one. -ENOPKG: the plugin is not installed (AO-24). Errors name phase and
 * errno (MS-55); later failures are reported by ended() with MOVER_NEVER_STARTED. */
int movers_start(struct movers *m, const struct mover_spec *s, struct err *e);
/* The names of the result files of all movers that were started become durable: before their go, so that a result
 * survives a power failure. It may wait for the disk, and may be called by any thread. */
int movers_sync(const struct movers *m, struct err *e);
/* The record is durable: it may begin (MS-19). A plugin begins by itself. */
int movers_go(struct movers *m, const char *operation, struct err *e);
/* Adopts what an earlier daemon started (MS-50, AO-06). Of the built-in one `identity` is verified and the job is
 * not needed; a plugin needs its id and request. 0: adopted, ended() will be called; -ESRCH: the process no longer
 * exists, movers_result() is next. */
int movers_adopt(struct movers *m, const struct process_identity *identity, const struct mover_spec *s, struct err *e);
/* The result of a built-in mover that has ended before it could be adopted: ended() will be called with it. */
int movers_result(struct movers *m, const char *operation, struct err *e);
/* Making the request durable is up to the caller. A cancel is sent (CANCEL and SIGTERM; `cancel` of a plugin); at
 * `deadline_ns` (realtime; 0: cancel_grace_s from now, which is also the most) follows SIGKILL, or `cleanup`. ended()
 * is called in any case. -ESRCH: there is none. */
int movers_cancel(struct movers *m, const char *operation, int64_t deadline_ns, struct err *e);
/* The limits of reads and writes, and their times, are others now. Of a built-in mover: a plugin keeps to its own. */
void movers_limit(struct movers *m, const char *operation, const struct mover_limits *l);
/* The record is terminal, or another attempt follows: result file, unit and cgroup of the built-in mover are
 * removed; with `plugin` its cleanup is called (again), in the background. -EBUSY: it runs. Idempotent. */
int movers_forget(struct movers *m, const char *operation, const struct cfg_plugin *plugin, const char *plugin_id,
                  struct err *e);

/* Keys of repositories that movers derived from passwords are kept in memory for later ones; this drops them all. A
 * key is also dropped when its repository is used with another password. */
void movers_forget_keys(struct movers *m);

bool movers_has(const struct movers *m, const char *operation);
unsigned movers_count(const struct movers *m);
/* Live facts for status, new reference; NULL if there is none. Built-in: pid, unit, memory, cpu_seconds, connected,
 * last_progress_s ...; plugin: plugin, id, state, style, watching, stopping, failures, last_progress_s. */
json_t *movers_to_json(const struct movers *m, const char *operation);

/* ---- strays: built-in movers without a record ---- */

/* step_fn (proc/step.h): {"path"} -> {"movers": [{"operation", "processes": [{"pid", "start_time"}]}]}, decoded by
 * movers_listed_load(): movers of a daemon with that runtime directory that run, and remaining units of such (without a
 * process: an empty list). */
int movers_list_step(const json_t *in, json_t **out, int *fd, struct err *e);
/* Ends a stray: SIGKILL to those of its processes whose identity is unchanged, its unit stopped, its result removed.
 * Returns how many processes were killed; -EBUSY if it is supervised. */
int movers_end_stray(struct movers *m, const struct mover_listed *stray, struct err *e);

/* ---- result files without an operation ---- */

/* A daemon that is killed behind the commit of an operation's end leaves its result file. */
struct left_results;
/* Those of operations without a mover that is supervised, at most 1000; NULL: there is none, or no memory. */
struct left_results *movers_left_results(const struct movers *m);
/* This operation has not ended: its file will be read. */
void left_results_keep(struct left_results *l, const char *operation);
/* Removes the others, and frees `l`; returns how many there were. */
unsigned left_results_remove(struct left_results *l);
void left_results_free(struct left_results *l);

#endif
