/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * spawner.h - a small process that forks in place of a large one
 *
 * fork() copies the page tables of the caller, and every page that either writes to afterwards: with a daemon of 20 MiB
 * this costs more than all else that a child needs. A process that was forked while the daemon was small has few pages.
 * It forks on request with CLONE_PARENT: the child is the daemon's own, which waits for it, kills it and is its parent
 * for PR_SET_PDEATHSIG. Nothing depends on the spawner once a child runs, and it keeps no state.
 *
 * It ends with the thread that started it. If it ends before, the request at hand forks the caller itself, and the next
 * one starts another: with the pages of the daemon as it is then. Used by spawn.h only in the thread that started it.
 */
#ifndef SNAPFERRY_PROC_SPAWNER_H
#define SNAPFERRY_PROC_SPAWNER_H

#include "base/err.h"

/* Starts it, of a process that has one thread and little memory. Without it spawn.h forks the caller. */
int spawner_start(struct err *e);
/* Ends it. */
void spawner_stop(void);

/* Set before it is started: called in it when it has forked, and how long its answer is waited for (0: as always). */
extern struct spawner_test {
    void (*forked)(void);
    int answer_ms;
} spawner_test;
/* Its pid, 0 if there is none. */
int spawner_pid_test(void);

#endif
