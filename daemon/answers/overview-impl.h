/* SPDX-License-Identifier: GPL-2.0-or-later */
/* overview-impl.h - the operations' part of overview.h */
#ifndef SNAPFERRY_DAEMON_ANSWERS_OVERVIEW_IMPL_H
#define SNAPFERRY_DAEMON_ANSWERS_OVERVIEW_IMPL_H

#include "base/ranked.h"
#include "daemon/answers/overview.h"

/* An operation that is not finished. */
struct overview_op {
    struct ranked_node by_id, listed, troubled; /* listed: in the queue, or among those that run */
    char *id;                                   /* shared text */
    uint64_t seq;
    int64_t priority;
    enum op_kind kind;
    enum op_state state;
    bool is_troubled;
};
struct overview_ops {
    struct ranked by_id, queue, running, troubled;
    struct overview_counts counts;
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
