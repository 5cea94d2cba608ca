/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * copies.h - repositories are copied to other places, by schedule or on request, and what is known of it
 *
 * A copy that has been made is expected to be there: where its place has none the next time, a file system is not
 * mounted, or it was deleted. Pure functions; a time is the wall clock's, in ns.
 */
#ifndef SNAPFERRY_DAEMON_DECIDE_COPIES_H
#define SNAPFERRY_DAEMON_DECIDE_COPIES_H

#include "daemon/decide/decide.h"

/* It has not been made for so many intervals of its schedule. */
#define COPY_OVERDUE 3

/* What follows for one copy. */
struct copy_times {
    int64_t next_ns; /* in the past: due; INT64_MAX: never */
    int64_t late_ns; /* time of the last complete run, or since when there is a schedule, if it is overdue; else 0 */
};
/* `m`: what is known; NULL: nothing. */
void copy_times(const struct cfg_copy *k, const struct copy_memory *m, int64_t now_ns, struct copy_times *ret);

/* From the records; NULL: nothing is known. Borrowed until the records are written. */
const struct copy_memory *copy_known(const struct records *r, const char *copy);
/* Whether it was complete once, at the place where it is to be now. */
bool copy_is_expected(const struct cfg_copy *k, const struct copy_memory *m);

/* That the schedule is in force from now on, or (without one) no more, if that is not known; in the transaction of the
 * caller. */
int copy_begin(struct decide *d, const struct cfg_copy *k, struct err *e);
/* What the one who asks for a run allows. */
struct copy_allow {
    bool anew;        /* its place may have none, although one was made there */
    bool delete_most; /* delete-after may delete more than half of it */
};
/* A run, in the transaction of the caller. ERR_BUSY: one is under way, and `id` is its operation. */
int copy_submit(struct decide *d, const struct cfg_copy *k, struct copy_allow allow, char id[512], struct err *e);
/* One has ended. */
void copy_ended(struct decide *d, const struct operation *op);

#endif
