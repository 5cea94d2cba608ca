/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * maintain.h - maintenance of repositories: when it is due, and what is known of it (CF-36, CF-37)
 *
 * Who maintains a repository, and how often, is written in the repository, which the daemon never opens: its movers
 * report it, and it is kept in the records (struct maintain_memory). Pure functions; a time is the wall clock's, in ns.
 */
#ifndef SNAPFERRY_DAEMON_DECIDE_MAINTAIN_H
#define SNAPFERRY_DAEMON_DECIDE_MAINTAIN_H

#include "daemon/decide/decide.h"
#include "daemon/decide/judge.h"
#include "daemon/schedule/job.h"

/* Intervals as long as nothing is known of the repository: those that stock Kopia writes into a new one. */
#define MAINTAIN_QUICK_S 3600
#define MAINTAIN_FULL_S 86400
/* A repository that another client maintains, or nobody can, is asked again after this. */
#define MAINTAIN_ASK_S 86400
/* It has not been maintained for so many intervals. */
#define MAINTAIN_OVERDUE 3

enum maintain_standing {
    MAINTAIN_OFF,   /* maintenance = no */
    MAINTAIN_NEW,   /* not tried yet */
    MAINTAIN_OURS,  /* this node does it */
    MAINTAIN_OTHERS /* another client, or nobody: maintain_memory.why */
};

/* What follows for one repository. Times: INT64_MAX is never. */
struct maintain_times {
    enum maintain_standing standing;
    int64_t quick_ns, full_ns;           /* next runs; in the past: due */
    int64_t quick_interval_s;            /* 0: no such runs */
    int64_t full_interval_s;             /* likewise; of a calendar, the longest */
    int64_t quick_late_ns, full_late_ns; /* time of the last good run if it is overdue, since_ns if there was none;
                                            0: it is not */
    int64_t silent_ns; /* since when the owner, another one, has not run it, when it was last asked; 0: it does */
};
/* `m`: what is known; NULL: nothing. */
void maintain_times(const struct cfg *c, const struct cfg_repository *r, const struct maintain_memory *m,
                    int64_t now_ns, struct maintain_times *ret);

/* From the records; NULL: nothing is known. Borrowed until the records are written. */
const struct maintain_memory *maintain_known(const struct records *r, const char *repository);

/* A run that is due waits while a job that backs up into the repository is about to start, or has just been started;
 * but not for more than half an hour. */
bool maintain_gives_way(const struct cfg *c, const char *repository, const struct jobs_now *jobs, int64_t due_ns,
                        int64_t now_ns);

/* That this node looks after the repository from now on, if that is not known; in the transaction of the caller. */
int maintain_begin(struct decide *d, const char *repository, struct err *e);
/* A run, in the transaction of the caller. ERR_BUSY: one of the repository is queued or running already, and `id` is
 * its name. */
int maintain_submit(struct decide *d, const char *repository, const struct maintain_order *order, char id[512],
                    struct err *e);
/* It has ended: what it found out is noted, and counted. */
void maintain_ended(struct decide *d, const struct operation *op);

#endif
