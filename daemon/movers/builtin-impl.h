/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * builtin-impl.h - what the parts of the built-in movers share (internal to the room)
 *
 * builtin.c supervises; the parts below it handle the processes' sockets (link.c, messages.c), their units (unit.c,
 * systemd.c) or children (forked.c), their files and their ends (files.c, judge.c). A part reports events to builtin.c
 * by struct mover_ops and calls nothing above it.
 */
#ifndef SNAPFERRY_DAEMON_MOVERS_BUILTIN_IMPL_H
#define SNAPFERRY_DAEMON_MOVERS_BUILTIN_IMPL_H

#include "daemon/movers/builtin.h"
#include "daemon/movers/keys.h"
#include "daemon/protocol/mover-files.h"
#include "daemon/protocol/mover-wire.h"
#include "proc/cgroup.h"
#include "proc/parser.h"
#include "proc/spawn.h"
#include "proc/unit.h"

struct conn;
struct listener;
struct mover;

#define LOG_TAIL 16
#define MOVER_UNIT_PREFIX "snapferry-mover@"

enum kill_reason { KILL_NONE, KILL_CANCEL, KILL_STALL, KILL_DURATION, KILL_START, KILL_PROTOCOL, KILL_VERSION };

/* How to start one, made from a spec once, for both back ends. */
struct mover_launch {
    const char *program, *socket; /* borrowed */
    struct user as;
    const char *user; /* the same by name, NULL: no change */
    struct mover_limits limits;
    uint64_t memory_max, memlock; /* bytes */
    int64_t stop_timeout_s;
    bool private_network;                      /* its repository, and its copy, are on this machine */
    const char *repository_path, *device_path; /* "" if none */
    const char *copy_path;                     /* likewise: the directory to which the repository is copied */
    const char *cache_dir;                     /* the job's, or the one in it of `user`; "" if none */
    const char *volume, *backup;               /* for the journal */
    bool writes_device;
    const char *const *env;
};

struct mover {
    struct builtin_movers *owner;
    struct mover *next;
    char operation[OPERATION_MAX + 1], kind[16];
    struct process_identity id; /* pid 0: not known yet */
    uid_t uid;
    bool adopted;
    /* what was received and sent */
    bool job_sent, ready, go, start_seen;
    bool canceled;         /* by movers_cancel() */
    bool gone;             /* the process has ended */
    bool looked_for;       /* it was, before this daemon began */
    struct parse *reading; /* its result */
    enum kill_reason killed;
    bool killed_now;     /* SIGKILL was sent */
    char violation[200]; /* of the protocol, the last one */
    unsigned violations;
    bool other_version; /* its protocol is none that this daemon has: no message of it can be relied on */
    int64_t renewed_ns; /* when it last requested credentials, monotonic */
    int64_t dial_window_ns;
    unsigned dials; /* in that window */

    struct conn *conn; /* NULL: not connected */
    int pidfd;
    sd_event_source *pid_source;
    char begin_error[512]; /* phase and reason */
    json_t *refused;       /* error of a mover that refused its job */

    /* descriptors of JOB, and of the log */
    int job_fd, result_fd, device_fd, password_fd, key_fd, changes_fd, credentials_fd, copy_credentials_fd, listing_fd;
    int received_fd;   /* of the message being handled, -1: none */
    bool key_wanted;   /* a key that it derives is kept */
    struct key_id key; /* for which repository and password */

    struct rates {
        bool known;          /* else it keeps to those in its job */
        int64_t read, write; /* bytes per second, 0: none */
        struct cfg_times times;
    } rates;
    int64_t told_read, told_write; /* what it keeps to; -1: not known, since another daemon began it */

    int64_t go_timeout_s, stall_timeout_s, cancel_grace_s, max_duration_s;
    int64_t began_ns, ready_ns, go_ns, life_ns, gone_ns; /* monotonic; life: last sign of life */
    int64_t kill_at_ns;                                  /* mono_ns(), 0: never */

    json_t *progress;
    int64_t progress_ns, progress_seq;
    int64_t requests; /* of the last PROGRESS */
    uint64_t cpu_ticks;
    char log[LOG_TAIL][256];
    unsigned log_next;

    struct cgroup cgroup;
    uint64_t memory_max; /* its limit */
    int status;          /* wait status, -1 unknown */
    uint64_t memory_peak, oom_kills;
    double cpu_seconds;
    bool oom; /* reported by systemd */

    struct spawned child; /* forked.c: reports why it could not start */
    sd_event_source *report_source;

    /* systemd.c */
    struct unit_call *call;
    char unit_job[128]; /* the manager's job that starts it */
    unsigned unit_tries;
    int64_t retry_ns, asked_ns;
    struct mover_launch *launch; /* kept until the unit runs */
};

/* From the parts to builtin.c. */
struct mover_ops {
    /* A message of a mover: false if it breaks the protocol, with v->violation. `greeted`: HELLO has come. */
    bool (*message)(struct mover *v, const char *text, size_t len, bool *greeted);
    /* It violated the protocol repeatedly. */
    void (*misbehaved)(struct mover *v);
    /* The process has ended. May free v. */
    void (*gone)(struct mover *v);
    /* All facts about its end are known. Frees v. */
    void (*known)(struct mover *v);
};

/*
 * Result files that are used again while many movers are started (`busy`): to create and to remove one each time costs
 * the daemon more than all else that it writes for a mover (allocation of inodes). `ended`: operations whose mover was
 * seen to end with a result, so that no process has the file; `of`: whose file a spare one was, "" for none.
 */
#define RESULT_SPARES 8
struct result_spares {
    char ended[RESULT_SPARES][OPERATION_MAX + 1], of[RESULT_SPARES][OPERATION_MAX + 1];
    unsigned next;
    unsigned starts, level; /* starts: at the last tick; level: of each second, halved with each later one */
    bool busy;
};

struct builtin_movers {
    sd_event *loop;
    const struct movers_events *events;
    void *arg;
    const struct mover_ops *ops;
    char runtime_dir[4096], state_dir[4096], results_dir[4200], logs_dir[4200], program[4096];
    struct mover *list;
    struct listener *listeners;
    sd_event_source *tick;
    struct unit_manager *units; /* NULL: movers are children */
    unsigned unknown_peers;     /* connections of processes that are not movers */
    unsigned starts;
    struct keys *keys;
    struct result_spares spares;
    struct parser *parser; /* of results */
};

/* ---- watch.c ---- */
struct mover *mover_find(const struct builtin_movers *m, const char *operation);
/* The process is known: watches it, ops->gone() will be called. -ESRCH: it has ended already. */
int mover_watch(struct mover *v, pid_t pid, struct err *e);

/* ---- names.c ---- */
/* The unit of an operation's mover. */
void mover_unit_name(char *out, size_t cap, const char *operation);
/* The operation in a unit's name; false: not a unit of a mover. */
bool mover_unit_operation(const char *unit, char *out, size_t cap);
/* Contains the runtime directory: several daemons may share a system, each with one of its own. */
void mover_unit_description(char *out, size_t cap, const char *runtime_dir, const char *operation, const char *volume);
bool mover_unit_is_ours(const char *description, const char *runtime_dir, const char *operation);
/* The last component of the path of its cgroup; unique among several daemons. */
#define MOVER_CGROUP_NAME 64
void mover_cgroup_name(char out[MOVER_CGROUP_NAME], const char *runtime_dir, const char *operation);

/* ---- files.c ---- */
int make_dir(const char *path, mode_t mode, struct err *e);
int result_create(struct builtin_movers *m, const char *operation, struct err *e); /* descriptor */
/* The names of all that were created are durable. Thread-safe. */
int results_sync(const struct builtin_movers *m, struct err *e);
/* Begins to read the result file of an operation; NULL: no memory. */
struct parse *result_begin(const struct builtin_movers *m, const char *operation, parse_done_fn *done, void *arg);
/* What a document lacks to be its result, NULL: nothing. `kind` "", `pid` 0: any. */
const char *result_fault(const json_t *j, const char *operation, const char *kind, pid_t pid);
int result_forget(struct builtin_movers *m, const char *operation, struct err *e);
/* The process that had its result file has been seen to end: the file may be used again after result_forget(). */
void result_ended(struct builtin_movers *m, const char *operation);
/* Removes those that would be used again; `of_others`: also of an earlier process. */
void results_spare_none(struct builtin_movers *m, bool of_others);
/* movers_left_results() */
struct left_results *results_left(const struct builtin_movers *m);
/* Each second: are they needed? */
void results_spare_tick(struct builtin_movers *m);
void log_bound(const struct mover *v);
void logs_prune(struct builtin_movers *m);

/* ---- launch.c ---- */
/* `socket` (link.c) and `program` are borrowed. */
int launch_new(struct mover_launch **ret, const struct mover_spec *s, struct err *e);
void launch_free(struct mover_launch *l);
static inline void launch_freep(struct mover_launch **l)
{
    launch_free(*l);
}

/* ---- link.c ---- */
/* The socket that `uid` may connect to; created if missing. The path belongs to m. */
int movers_listen(struct builtin_movers *m, uid_t uid, const char **path, struct err *e);
void movers_unlisten(struct builtin_movers *m);
/* {"type": type, ...}; 0 or -errno. */
int mover_send(struct mover *v, const char *type);
/* With CREDENTIALS goes a descriptor; negative: there are none now. `copy`: those of the copy. */
int mover_send_credentials(struct mover *v, bool copy, int fd);
int mover_send_limits(struct mover *v, int64_t read, int64_t write);
int mover_send_job(struct mover *v);
/* Reads what is left. True: the other end is closed. */
bool conn_drain(struct mover *v);
void conn_close(struct mover *v);

/* ---- rates.c ---- */
/* The limits of its policy, as they are now. */
void rates_set(struct mover *v, const struct mover_limits *l);
/* A new one begins with those that hold now: they replace those in its job. */
int rates_begin(struct mover *v, json_t *job, struct err *e);
/* Tells it those that hold now, if it keeps to others and works. */
void rates_tell(struct mover *v);

/* ---- messages.c ---- */
/* For struct mover_ops. */
bool mover_message(struct mover *v, const char *text, size_t len, bool *greeted);

/* ---- forked.c, systemd.c: the back ends ---- */
int forked_start(struct mover *v, const struct mover_launch *l, struct err *e);
/* Reads the last report of a child that ended immediately. */
void forked_last_report(struct mover *v);

/* Monitors a unit that is slow to start. */
int systemd_start(struct mover *v, struct err *e);
/* struct unit_manager_opts.job_ended */
void systemd_job_ended(const char *job, const char *unit, const char *result, void *arg);
/* Looks after a unit that is slow to start. */
void systemd_tick(struct mover *v);
/* Asks for the unit's exit status, then ops->known(); false: it cannot be asked. */
bool systemd_ask_end(struct mover *v);
/* Synchronously (bounded): how the operation's unit ended, if it did. */
void systemd_read_end(struct mover *v);

/* ---- unit.c ---- */
/* unit_describe_fn of a `const struct mover`. */
int mover_unit_describe(struct unit_properties *p, const void *arg, struct err *e);

/* ---- judge.c ---- */
/* Outcome and message from all facts. `result`: what its file has, NULL: nothing, and `why`. end->result is it, with a
 * reference of its own, unless it is no result of v. */
void mover_judge(const struct mover *v, json_t *result, const char *why, struct mover_end *end);

#endif
