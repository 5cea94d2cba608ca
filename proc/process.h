/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * process.h - which process is which, and what /proc has on it
 *
 * A process id is reused; with its start time and the boot it is unique. A pidfd that was opened before these are
 * compared keeps meaning that process. All functions are thread-safe and never wait.
 */
#ifndef SNAPFERRY_PROC_PROCESS_H
#define SNAPFERRY_PROC_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BOOT_ID_TEXT 40
#define UNIT_NAME_TEXT 320

/* Proof that a process is the one that was started (MS-36). */
struct process_identity {
    pid_t pid;
    uint64_t start_time; /* field 22 of /proc/PID/stat: clock ticks since boot */
    char boot_id[BOOT_ID_TEXT];
    char unit[UNIT_NAME_TEXT]; /* its systemd unit, "" for a child */
};

/* "" if it cannot be read. */
void boot_id(char out[BOOT_ID_TEXT]);

/* Fills all but `unit`, which becomes "". -ESRCH: there is no such process. */
int process_identify(struct process_identity *ret, pid_t pid);
/* A pidfd (close-on-exec, the caller's) of the process that was identified; a zombie counts. -ESRCH: it is gone, or the
 * system was booted since. */
int process_open(const struct process_identity *i);
/* The same, and -ESRCH if it has ended. */
int process_open_running(const struct process_identity *i);
/* A pidfd of whatever has that number now, or -errno. */
int process_open_pid(pid_t pid);
/* 0 or -errno. */
int process_signal(int pidfd, int sig);
/* Whether it has ended, waited for or not. */
bool process_ended(int pidfd);

/* "run:PID:START:BOOT" without the unit, and back: -EINVAL if it is not of that form. */
void process_id_text(const struct process_identity *i, char *out, size_t cap);
int process_id_parse(struct process_identity *ret, const char *text);

/* 0 or -errno. */
int process_start_time(pid_t pid, uint64_t *ret);
pid_t process_parent(pid_t pid);       /* 0 unknown, or of another PID namespace */
uint64_t process_cpu_ticks(pid_t pid); /* user and system, of sysconf(_SC_CLK_TCK) a second; 0 unknown */
uint64_t process_rss(pid_t pid);       /* bytes; 0 unknown */
uid_t process_uid(pid_t pid);          /* the real one; (uid_t)-1 unknown */
bool process_is_zombie(pid_t pid);
/* Whether it is in the cgroup of that unit. */
bool process_in_unit(pid_t pid, const char *unit);

#endif
