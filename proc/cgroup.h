/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cgroup.h - a cgroup (version 2) for a forked child: limits, what is used, and an end for all that is in it
 *
 * Where systemd runs, units have one. Elsewhere a directory is made beneath the daemon's own cgroup if that can be
 * written; which limits are in force depends on the controllers that were delegated, and is visible. Nothing here is an
 * error: without a cgroup the path is "", and the functions do nothing. One thread.
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

/* One of its own beneath ours, named `name`, with these limits; one that is there is taken. */
void cgroup_make(struct cgroup *ret, const char *name, const struct cgroup_limits *l);
/* The descriptor of its cgroup.procs, into which a child writes "0" to enter; -1: none. The caller's. */
int cgroup_open_procs(const struct cgroup *g);
/* That of a process which an earlier daemon started; made if `name` is a part of it. */
void cgroup_find(struct cgroup *ret, pid_t pid, const char *name);
/* The directory of the cgroup that a process is in, "" unknown. */
void cgroup_of(pid_t pid, char *out, size_t cap);

/* The first number of a file ("memory.current"), or the one behind `key` ("memory.events", "oom_kill"); 0 unknown. */
uint64_t cgroup_number(const struct cgroup *g, const char *file, const char *key);
/* SIGKILL to all that is in it, if it is ours alone. */
void cgroup_kill(const struct cgroup *g);
/* Removes it if it is ours and empty; `path` becomes "". */
void cgroup_remove(struct cgroup *g);
/* The same by name, for one that nobody watched to its end. */
void cgroup_forget(const char *name);

#endif
