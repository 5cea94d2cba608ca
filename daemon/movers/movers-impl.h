/* SPDX-License-Identifier: GPL-2.0-or-later */
/* movers-impl.h - what the files of movers*.c share (internal to the daemon's mover supervision) */
#ifndef SNAPFERRY_DAEMON_MOVERS_IMPL_H
#define SNAPFERRY_DAEMON_MOVERS_IMPL_H

#include "daemon/movers/movers.h"
#include "daemon/protocol/mover-files.h"
#include "daemon/protocol/mover-wire.h"
#include "proc/cgroup.h"
#include "proc/spawn.h"

#include <stdbool.h>
#include <sys/types.h>

struct conn;
struct listener;
struct sd_bus;
struct sd_bus_slot;

#define LOG_TAIL 16

enum kill_reason { KILL_NONE, KILL_CANCEL, KILL_STALL, KILL_DURATION, KILL_START, KILL_NONSENSE };

/* How to start one, made from a spec once, for both back ends. */
struct mover_launch {
    const char *program, *socket;
    struct user as;
    const char *user; /* the same by name, NULL: no change */
    const struct cfg_mover *limits;
    uint64_t memory_max, memlock;
    int64_t stop_timeout_s;
    bool private_network;
    const char *repository_path, *device_path; /* "" if none */
    const char *cache_dir;                     /* the job's, or the one in it of `user`; "" if none */
    const char *volume, *backup;               /* for the journal */
    bool writes_device;
    const char *const *env;
};

struct mover {
    struct movers *owner;
    struct mover *next;
    char operation[OPERATION_MAX + 1], kind[16];
    struct process_identity id; /* pid 0: not known yet */
    uid_t uid;
    bool adopted;
    /* what was heard and said */
    bool job_sent, ready, go, start_seen, canceling, stopped;
    bool canceled; /* somebody asked for it */
    bool gone;     /* the process has ended */
    bool asking;   /* an answer of systemd about its end is awaited */
    enum kill_reason killed;
    bool killed_now; /* SIGKILL was sent */
    char nonsense[200];
    unsigned violations;
    int64_t dial_window_ns;
    unsigned dials; /* in that window */

    struct conn *conn;
    int pidfd;
    sd_event_source *pid_source;
    struct spawned child; /* forked child: tells why it could not begin */
    sd_event_source *exec_source;
    char begin_error[512]; /* phase and reason */
    json_t *refused;       /* error of a mover that did not want its job */

    /* what goes with JOB */
    int job_fd, result_fd, device_fd, password_fd, log_fd;

    int64_t go_timeout_s, stall_timeout_s, cancel_grace_s, max_duration_s;
    int64_t began_ns, ready_ns, go_ns, life_ns, gone_ns; /* monotonic; life: last sign of getting on */
    int64_t kill_at_ns;                                  /* realtime, 0: never */

    json_t *progress;
    int64_t progress_ns, progress_seq;
    uint64_t cpu_ticks;
    char log[LOG_TAIL][256];
    unsigned log_next;

    struct cgroup cgroup;
    uint64_t memory_max; /* its limit */
    int status;          /* wait status, -1 unknown */
    uint64_t memory_peak, oom_kills;
    double cpu_seconds;
    bool oom; /* systemd says so */
    char unit_result[32];

    /* systemd */
    struct sd_bus_slot *slot;
    char unit_job[128]; /* systemd's job that starts it */
    unsigned unit_tries;
    int64_t retry_ns, asked_ns;
    struct mover_launch *launch; /* kept until the unit runs */
};

struct movers {
    sd_event *loop;
    const struct movers_events *events;
    void *arg;
    char runtime_dir[4096], state_dir[4096], results_dir[4200], logs_dir[4200], program[4096];
    struct mover *list;
    struct listener *listeners;
    sd_event_source *tick;
    bool systemd;
    struct sd_bus *bus;
    bool subscribed, subscribing;
    json_t *fields;     /* units with a file for the journal, while systemd is asked which are left */
    unsigned strangers; /* connections of nobody we know */
    unsigned starts;
};

struct mover *movers_find(const struct movers *m, const char *operation);

/* ---- movers.c ---- */
/* The process is known: watches it. -ESRCH: it has ended already (and mover_gone() was not called). */
int mover_watch(struct mover *v, pid_t pid, struct err *e);
/* The process has ended: hears what is left, asks for the end's facts, tells. May free v. */
void mover_gone(struct mover *v);
/* All that can be known is known: makes the end, tells, frees v. */
void mover_finish(struct mover *v);
/* SIGKILL to all of it. */
void mover_kill(struct mover *v, enum kill_reason why);
void mover_free(struct mover *v);

/* ---- movers-link.c ---- */
/* The socket that `uid` may connect to; made if missing. The path belongs to m. */
int movers_listen(struct movers *m, uid_t uid, const char **path, struct err *e);
void movers_unlisten(struct movers *m);
/* {"type": type, ...}; 0 or -errno. */
int mover_say(struct mover *v, const char *type);
int mover_say_job(struct mover *v);
/* Reads what is left. True: the other end is closed. */
bool conn_drain(struct mover *v);
void conn_close(struct mover *v);
bool mover_connected(const struct mover *v);

/* ---- movers-messages.c ---- */
/* One message. False: it breaks the protocol (v->nonsense says how). */
bool mover_hear(struct mover *v, const char *text, size_t len, bool *greeted);

/* ---- movers-fork.c, movers-systemd.c ---- */
int fork_start(struct mover *v, const struct mover_launch *l, struct err *e);
/* A child that ended at once may have told why and not been heard. */
void fork_last_words(struct mover *v);
int systemd_start(struct mover *v, const struct mover_launch *l, struct err *e);
void systemd_kill(struct mover *v);
/* Asks for the unit's exit status and tells mover_finish(); false: it cannot be asked. */
bool systemd_ask_end(struct mover *v);
/* Looks after units that are slow to start. */
void systemd_tick(struct mover *v);
void systemd_forget(struct movers *m, const char *operation);
/* Synchronously (bounded): wait status of a unit that has ended, -1 unknown. */
int systemd_status(struct movers *m, const char *unit, bool *oom, char *result, size_t cap);
/* Connects, where that is possible now, and removes what movers of an earlier daemon have left in /run. */
void systemd_open(struct movers *m);
void systemd_close(struct movers *m);
void systemd_forget_slot(struct mover *v);
/* ---- names.c ---- */
/* The unit of an operation's mover. */
void mover_unit_name(char *out, size_t cap, const char *operation);
/* The operation in a unit's name; false: it is no unit of ours. */
bool mover_unit_operation(const char *unit, char *out, size_t cap);
/* Says whose mover it is: several daemons may share a system, each with a runtime directory of its own. */
void mover_unit_description(char *out, size_t cap, const char *runtime_dir, const char *operation, const char *volume);
bool mover_unit_is_ours(const char *description, const char *runtime_dir, const char *operation);
/* The last part of the path of its cgroup; none of another daemon's is the same. */
#define MOVER_CGROUP_NAME 64
void mover_cgroup_name(char out[MOVER_CGROUP_NAME], const char *runtime_dir, const char *operation);

/* ---- movers-unit.c ---- */
struct sd_bus_message;
int unit_properties_append(struct sd_bus_message *msg, const struct mover *v, const struct mover_launch *l,
                           struct err *e);

/* ---- movers-launch.c ---- */
int launch_new(struct mover_launch **ret, struct movers *m, const struct mover_spec *s, struct err *e);
void launch_free(struct mover_launch *l);
static inline void launch_freep(struct mover_launch **l)
{
    launch_free(*l);
}

/* ---- movers-end.c ---- */
/* Reads the result file of an operation: new reference, or NULL and why. `pid` 0: any. */
json_t *result_read(const struct movers *m, const char *operation, const char *kind, pid_t pid, char *why, size_t cap);
/* Outcome and words from all that is known; end->result gets a new reference. */
void mover_judge(const struct mover *v, struct mover_end *end);

/* ---- movers-files.c ---- */
int result_create(struct movers *m, const char *operation, struct err *e); /* descriptor */
int log_create(struct movers *m, const char *operation, struct err *e);    /* descriptor */
void log_bound(struct mover *v);
void logs_prune(struct movers *m);
int make_dir(const char *path, mode_t mode, struct err *e);

#endif
