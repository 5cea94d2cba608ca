/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cgroup.h - a cgroup (version 2) for a forked child: limits, usage, and termination of all its processes
 *
 * Under systemd, units have one. Elsewhere a directory is created below the daemon's own cgroup if that is writable;
 * which limits are in force depends on the controllers that were delegated, and is reported. No failure is an error:
 * without a cgroup the path is "", and the functions do nothing. One thread.
 */
#ifndef SNAPFERRY_PROC_CGROUP_H
#define SNAPFERRY_PROC_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CGROUP_PATH 4200

struct cgroup {
    char path[CGROUP_PATH]; /* directory, "" none */
    bool made;              /* by cgroup_make() or an earlier daemon's: for this process alone, and removed with it */
    bool memory, cpu, io, pids; /* limits that are in force */
};

struct cgroup_limits {
    uint64_t memory_max;            /* bytes */
    unsigned tasks_max;             /* 0: none */
    unsigned cpu_quota;             /* percent of one CPU, 0: none */
    unsigned cpu_weight, io_weight; /* 1..10000, 0: unset */
};

/* A cgroup below the daemon's, named `name`, with these limits; an existing one is used. */
void cgroup_make(struct cgroup *ret, const char *name, const struct cgroup_limits *l);
/* The descriptor of its cgroup.procs, into which a child writes "0" to enter; -1: none. The caller's. */
int cgroup_open_procs(const struct cgroup *g);
/* That of a process started by an earlier daemon; its own if `name` is part of it. */
void cgroup_find(struct cgroup *ret, pid_t pid, const char *name);
/* The directory of the cgroup that a process is in, "" unknown. */
void cgroup_of(pid_t pid, char *out, size_t cap);

/* The first number of a file ("memory.current"), or the one behind `key` ("memory.events", "oom_kill"); 0 unknown. */
uint64_t cgroup_number(const struct cgroup *g, const char *file, const char *key);
/* SIGKILL to all its processes, if it is exclusive. */
void cgroup_kill(const struct cgroup *g);
/* Removes it if it is exclusive and empty; `path` becomes "". */
void cgroup_remove(struct cgroup *g);
/* The same by name, for a process that was not supervised to its end. */
void cgroup_forget(const char *name);

#endif
