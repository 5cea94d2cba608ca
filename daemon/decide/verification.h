/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * verification.h - repositories are verified by schedule, and what is known of it (E-12)
 *
 * Each run looks at the whole index and all packs, and reads the share of the contents that follows that of the last
 * one: after a round all have been read. A run that is cut short is repeated. Pure functions; a time is the wall
 * clock's, in ns.
 */
#ifndef SNAPFERRY_DAEMON_DECIDE_VERIFICATION_H
#define SNAPFERRY_DAEMON_DECIDE_VERIFICATION_H

#include "daemon/decide/decide.h"

#define VERIFY_SHARES 1000000 /* all contents, of which verification-read is a part */
/* It has not been verified for so many intervals of its schedule. */
#define VERIFY_OVERDUE 3

/* What follows for one repository. */
struct verification_times {
    int64_t next_ns; /* in the past: due; INT64_MAX: never */
    int64_t late_ns; /* time of the last complete run, or since when there is a schedule, if it is overdue; else 0 */
};
/* `m`: what is known; NULL: nothing. */
void verification_times(const struct cfg_repository *r, const struct verify_memory *m, int64_t now_ns,
                        struct verification_times *ret);

/* From the records; NULL: nothing is known. Borrowed until the records are written. */
const struct verify_memory *verification_known(const struct records *r, const char *repository);

/* That the schedule is in force from now on, or (without one) no more, if that is not known; in the transaction of the
 * caller. */
int verification_begin(struct decide *d, const struct cfg_repository *r, struct err *e);
/* The run that is due, in the transaction of the caller. ERR_BUSY: the repository is being verified. */
int verification_submit(struct decide *d, const struct cfg_repository *r, struct err *e);
/* One has ended, by schedule or on request; or another operation of the repository, which has failed by damage. */
void verification_ended(struct decide *d, const struct operation *op);

#endif
