/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * spawn.h - the one place that forks: a program with its resources, or a function in a child
 *
 * No descriptor of the caller remains open in the child unless named here; signals have their defaults. Thread-safe;
 * the child of spawn_function() may use only what is safe after fork() in the calling program. Where a spawner was
 * started (spawner.h) it forks programs, and functions whose argument is bytes; the child is the caller's all the same.
 * Supervision, limits and termination of the child: process.h, cgroup.h.
 */
#ifndef SNAPFERRY_PROC_SPAWN_H
#define SNAPFERRY_PROC_SPAWN_H

#include "base/err.h"
#include "proc/user.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- programs ---- */

/* Steps of a child before it executes the program, in this order. */
enum spawn_phase {
    SPAWN_SESSION,
    SPAWN_CGROUP,
    SPAWN_LOG,
    SPAWN_DESCRIPTORS,
    SPAWN_LIMITS,
    SPAWN_PRIORITY,
    SPAWN_NETWORK,
    SPAWN_MOUNTS,
    SPAWN_USER,
    SPAWN_EXEC
};
/* "becoming its user". Static. */
const char *spawn_phase_text(enum spawn_phase p);

/* A failure in the child. Without a session, its descriptors, user or program it ends (`fatal`); without limits,
 * priority, cgroup, log file and namespaces it continues. */
struct spawn_report {
    int phase, sys, fatal;
};

struct spawn_limits {
    uint64_t memlock;      /* RLIMIT_MEMLOCK, bytes */
    uint64_t data;         /* RLIMIT_DATA, bytes; 0: unchanged */
    uint64_t files;        /* RLIMIT_NOFILE */
    int oom_score_adj;     /* 0: unchanged */
    int nice;              /* 0: unchanged */
    int io_class;          /* IOPRIO_CLASS_*, 0: unchanged */
    const cpu_set_t *cpus; /* NULL: any */
};

/* All borrowed until spawn_program() returns. Begin with SPAWN_INIT. */
struct spawn {
    const char *const *argv; /* NULL-terminated; argv[0] an absolute path */
    int program;             /* of program_open(): it is executed, and argv[0] only its name; -1: argv[0] */
    const char *const *env;  /* NULL-terminated, the whole environment */
    int in, out, err;        /* standard descriptors, -1: /dev/null */
    /* NULL, or a path, a line (with its end) and NULL: standard output and error are appended to that file, which the
     * child makes if it is not there (mode 0600, no symbolic link), and begins with that line. */
    const char *const *log;
    int cgroup; /* its cgroup.procs (cgroup_open_procs()), -1: the caller's cgroup */
    const struct user *user;
    const struct spawn_limits *limits; /* with these: no core dumps */
    bool private_network, no_new_privileges;
    /* NULL-terminated, at most SPAWN_WRITABLE_MAX paths; NULL: mounts are as in the caller. Else the whole system is
     * read-only for it and has no devices, without these, in a mount namespace of its own; also one for IPC. Both
     * namespaces need root. */
    const char *const *writable;
    bool dies_with_parent; /* SIGKILL when the calling thread ends */
    bool waits;            /* for spawn_go(), before it executes the program; ends if the caller ends before */
};
#define SPAWN_WRITABLE_MAX 8
#define SPAWN_INIT                                                                                                     \
    {                                                                                                                  \
        .in = -1, .out = -1, .err = -1, .cgroup = -1, .program = -1                                                    \
    }

/* A child: its pid is its own until it is waited for. Descriptors are close-on-exec, -1 when there is none. */
struct spawned {
    pid_t pid;
    int pidfd;
    int report; /* readable when spawn_report_next() has a report; not blocking */
    int go;
};
#define SPAWNED_INIT                                                                                                   \
    {                                                                                                                  \
        .pid = -1, .pidfd = -1, .report = -1, .go = -1                                                                 \
    }

/* Starts a program in a session and process group of its own, working directory "/", umask 022. Failures in the
 * child are reported by spawn_report_next(). */
int spawn_program(struct spawned *ret, const struct spawn *s, struct err *e);
/* 1: *r is another report; 0: none yet; -EPIPE: there will be no more, the program runs or its process has ended. */
int spawn_report_next(struct spawned *p, struct spawn_report *r);
/* Closes `report`, which must not be watched any more. */
void spawn_report_close(struct spawned *p);
/* Waits for the program to begin: 0, or the fatal report's phase in *r and -errno. */
int spawn_begun(struct spawned *p, struct spawn_report *r);
/* Lets a waiting one begin. */
void spawn_go(struct spawned *p);
/* Closes its descriptors; the process remains, to be waited for by the caller. */
void spawned_close(struct spawned *p);

/* Starts a program and waits for its end: an error, which names `what`, unless its exit code is 0. */
int spawn_and_wait(const struct spawn *s, const char *what, struct err *e);

/* ---- functions ---- */

/* Runs in the child; when it returns the child ends with 0. */
typedef void spawn_fn(int channel, void *arg);

struct spawn_function {
    const char *name; /* of the process, at most 15 bytes; static */
    spawn_fn *fn;
    void *arg;
    size_t arg_len; /* of bytes without pointers, which the child gets a copy of; 0: arg is a pointer of the caller's */
    int channel;    /* borrowed; in the child it is another number, close-on-exec */
    bool no_standard;      /* 0 to 2 are closed, too */
    bool dies_with_parent; /* as above */
    bool detached;         /* a session of its own; SIGTERM, SIGINT, SIGHUP and SIGPIPE are ignored */
};
/* ret->report and ->go are -1. */
int spawn_function(struct spawned *ret, const struct spawn_function *f, struct err *e);

#endif
