/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * team.h - the same work for many things, by several threads
 *
 * For requests, each of which waits for a server: one after the other they would cost the delay of each.
 */
#ifndef SNAPFERRY_BASE_TEAM_H
#define SNAPFERRY_BASE_TEAM_H

#include "base/err.h"

#include <stddef.h>

/* Threads of a team where a request waits for a network; a store of files needs one. */
#define TEAM_FAR 8
#define TEAM_MOST 16

/* Thing i. By any thread of the team, by several at a time for different things. Negative ends all. */
typedef int team_fn(void *arg, size_t i, struct err *e);

/*
 * Calls fn for 0 to n - 1, begun in that order, by `threads` (1 to TEAM_MOST) threads at most, of which the caller's is
 * one: with one, or where none can be started, by the caller alone. After a failure no other is begun; those under way
 * are waited for. Returns the first failure, with its error, or 0.
 */
int team_run(unsigned threads, size_t n, team_fn *fn, void *arg, struct err *e);

#endif
