/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * board.h - the operations that are not finished, arranged for decisions
 *
 * Made from the rows once and from each row that is written afterwards. It answers without a walk over all operations:
 * which of them have to be looked at, how many move data, how many would go before another one, when the next stored
 * deadline is, and how the operations of one backup stand. The cost of one event does not depend on how many there are.
 *
 * Not thread-safe: the event loop's thread. No function blocks or touches a row.
 */
#ifndef SNAPFERRY_DAEMON_DECIDE_BOARD_H
#define SNAPFERRY_DAEMON_DECIDE_BOARD_H

#include "base/time.h"
#include "daemon/records/types.h"

#define BOARD_ID_MAX 512

struct board;
/* NULL: no memory. */
struct board *board_new(void);
void board_free(struct board *b);

/* A row of an operation was written; now NULL: it is gone. Marks it and its backup. -ENOMEM: the board is not complete:
 * it has to be made again. */
int board_operation(struct board *b, const char *id, const struct operation *now);
/* A row of a backup was written; now NULL: it is gone. */
int board_backup(struct board *b, const char *id, const struct backup *now);

/* ---- what has to be looked at ---- */

/* Whether a repository is unavailable: what needs it holds up nobody. */
typedef bool board_down_fn(const char *repository, void *arg);

/* No effect if there is no live one of that id. */
void board_mark(struct board *b, const char *id);
int board_mark_backup(struct board *b, const char *id);
void board_mark_all(struct board *b);
/* Operations that wait for the end of another one: for what the repository answers. */
void board_mark_waiting(struct board *b);
/* Whether one of them waits for this check of a repository. */
bool board_waits_for(const struct board *b, const char *check);
/* Queued operations whose repository is unavailable: they may have waited for too long. */
void board_mark_down(struct board *b, board_down_fn *down, void *arg);
/* Operations whose stored deadline has come. */
void board_mark_due(struct board *b, int64_t now_ns);
/* The earliest stored deadline; 0: none. */
int64_t board_wake(const struct board *b);
/* The next marked one, which is marked no more; false: none. */
bool board_take(struct board *b, char id[BOARD_ID_MAX]);
bool board_take_backup(struct board *b, char id[BOARD_ID_MAX]);
bool board_is_marked(const struct board *b);

/* A queued backup waits for the end of this operation, or for an attempt of it that fails. */
void board_watch(struct board *b, const char *id);
/* Whether that has happened to one since the last call. */
bool board_released(struct board *b);

/* ---- slots and order (E-02) ---- */

/* What needs no slot answers somebody: that its repository stays away is an answer as well. */
#define ADMIN_OUTAGE_MAX_S 60

/* When an operation that waits for its repository fails; 0: never, or it does not wait for that. The outcome of a
 * backup is owed until it is recorded. */
static inline int64_t operation_gives_up_ns(const struct operation *op)
{
    const bool needs_slot = op->kind == KIND_BACKUP || op->kind == KIND_RESTORE;
    const int64_t most = needs_slot ? op->policy->repo_outage_max_s : op->records.n ? 0 : ADMIN_OUTAGE_MAX_S;
    return op->outage_ns && most ? op->outage_ns + most * NS_PER_S : 0;
}

struct board_usage {
    unsigned moving, moving_restores; /* a mover is started, runs or is being ended */
    unsigned exposed;                 /* these, and what is exposed or being exposed */
    unsigned coming;                  /* backups that have not been moved, and do not wait for a retry */
    uint64_t memory;                  /* of the movers */
    unsigned freed;                   /* how often a place was given back, of what is exposed or moves, since ever */
};
/* All but `except` (an id). */
struct board_usage board_usage(const struct board *b, const char *except);
unsigned board_in_class(const struct board *b, const char *klass, const char *except);
unsigned board_on_device(const struct board *b, const char *device, const char *except);
/* How many of the queued ones go before `op` by rule (restores have a queue of their own, then priority, then age);
 * *first (NULL: none): id of the first of them, borrowed until the board changes. */
unsigned board_ahead(const struct board *b, const struct operation *op, board_down_fn *down, void *arg,
                     const char **first);
/* Marks the first `n` queued ones of a queue (those that may be exposed next), and all that are exposed and wait for
 * their turn to move. */
void board_mark_next(struct board *b, bool restores, unsigned n, board_down_fn *down, void *arg);
void board_mark_ready(struct board *b);
/* Memory that a mover with this policy may take. */
uint64_t policy_memory(const struct policy *p);

/* ---- one backup ---- */

/* The operations of its volumes that have ended, all of them together. */
struct board_ended {
    unsigned n, completed, failed, canceled;
    int64_t size, fresh; /* bytes of the results: of the volumes, and new ones */
    int64_t total, done; /* as progress counts */
};
void board_ended_add(struct board_ended *sum, const struct operation *op);

struct board_run {
    unsigned live, snapshotting;
    unsigned failed, canceled; /* ended so since `counted` was set */
    bool counted;              /* the caller has added those that ended before */
    bool summed;               /* the same of `ended` */
    bool hooked;               /* an operation of it has a post-backup hook: these run at its end */
    unsigned n_phase_1;        /* its operations in phase 1 */
    struct board_ended ended;
};
/* NULL: no memory. Borrowed until the board changes. */
struct board_run *board_run(struct board *b, const char *backup);
/* Whether something is kept of the backup, which may have been counted. */
bool board_has_run(struct board *b, const char *backup);
/* Ids of the members of the next groups of phase 1, oldest first: at most `max` operations, a group never in part; NULL
 * terminated, malloc()ed, the ids borrowed until the board changes. *n: how many. NULL: no memory. */
const char **board_phase_1(struct board *b, const char *backup, unsigned max_groups, unsigned *n);

#endif
