/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * request-args.h - the arguments of all verbs of the control socket, decoded once into a struct
 *
 * Which of them a verb takes, and which it requires, is for the control room. Numbers: 0 where none was given, unless
 * it says otherwise; strings "". Not thread-safe, as fields.h.
 */
#ifndef SNAPFERRY_DAEMON_RECORDS_REQUEST_ARGS_H
#define SNAPFERRY_DAEMON_RECORDS_REQUEST_ARGS_H

#include "daemon/records/types.h"

struct request_args {
    char *id, *backup, *volume, *native, *repository, *copy, *node, *job, *klass, *state;
    char *after, *target, *note, *description;
    struct strs volumes;
    enum restore_from from; /* FROMS: "auto" */
    bool all, recorded, full, debug, from_timer, overwrite, only_new, allow_incomplete, verify, differential, check,
        dry_run, gone, explain, replaced, remove_stale, force, even_kept, unsafe, anew;
    json_t *move_data, *wait; /* a boolean, NULL: none was given */
    int64_t limit, before;
    int64_t offset, length; /* of a range, -1: none was given */
    double read_percent;    /* 100 unless given */
    json_t *class_map;      /* see request_class_for() */
    json_t *unknown;
    /* Of requests that the daemon makes itself, and that its verbs imply: no client sets them. */
    bool hold;
    bool caught_up, periodic;
    int64_t planned_ns; /* not 0: a run of the schedule */
};
FIELDS_LIFE(request_args)
/* `ret` is uninitialized; on failure (memory) it is initialized and empty. */
static inline int request_args_copy(struct request_args *ret, const struct request_args *a)
{
    return fields_copy(&request_args_fields, ret, a);
}
/* `a` is uninitialized, and initialized in any case. A value of another type than the table says is refused. */
int request_args_load(struct request_args *a, const json_t *doc, struct err *e);
/* The class that --class-map gives for `own`; "": it has none. */
const char *request_class_for(const struct request_args *a, const char *own);
/* Whether only a range is to be restored. */
static inline bool request_is_ranged(const struct request_args *a)
{
    return a->offset >= 0 || a->length >= 0;
}

#endif
