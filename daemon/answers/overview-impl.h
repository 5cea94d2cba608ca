/* SPDX-License-Identifier: GPL-2.0-or-later */
/* overview-impl.h - the operations' part of overview.h */
#ifndef SNAPFERRY_DAEMON_ANSWERS_OVERVIEW_IMPL_H
#define SNAPFERRY_DAEMON_ANSWERS_OVERVIEW_IMPL_H

#include "base/ranked.h"
#include "daemon/answers/overview.h"

/* An operation that has to record outcomes of backups in a repository. */
struct overview_owing {
    struct ranked_node by_age;
    struct overview_debtor *in;
    char *id; /* shared text */
    uint64_t seq;
    int64_t created_ns;
    unsigned backups;
};
/* A repository in which some are not recorded yet. */
struct overview_debtor {
    struct overview_debtor *next;
    char *repository; /* shared text */
    int64_t backups;
    struct ranked by_age;
};
/* Takes `old` out (NULL: none) and adds what `now` owes (NULL: it is gone). NULL: nothing, or no memory (*failed). */
struct overview_owing *overview_owing_set(struct overview_debtor **list, struct overview_owing *old,
                                          const struct operation *now, bool *failed);
struct overview_owed overview_owed_in(const struct overview_debtor *list, const char *repository);

/* An operation that is not finished. */
struct overview_op {
    struct ranked_node by_id, listed, troubled; /* listed: in the queue, or among those that run */
    char *id;                                   /* shared text */
    uint64_t seq;
    int64_t priority;
    enum op_kind kind;
    enum op_state state;
    bool waits; /* queued, or prepared and waiting for its turn to move */
    bool is_troubled;
    struct overview_owing *owing; /* NULL: it owes nothing */
};
struct overview_ops {
    struct ranked by_id, queue, running, troubled;
    struct overview_counts counts;
    struct overview_debtor *debtors;
    bool failed; /* one is missing for lack of memory */
};
void overview_ops_init(struct overview_ops *x);
void overview_ops_clear(struct overview_ops *x);
/* now NULL, or finished: it is gone. */
void overview_ops_row(struct overview_ops *x, const char *id, const struct operation *now);
unsigned overview_ops_place(const struct overview_ops *x, const struct operation *op);
/* Id of the operation at that place of one of its lists; NULL: there are not so many. */
const char *overview_ops_listed_at(const struct ranked *list, size_t place);
const char *overview_ops_troubled_at(const struct overview_ops *x, size_t place);

#endif
