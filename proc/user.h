/* SPDX-License-Identifier: GPL-2.0-or-later */
/* user.h - the user that a program runs as */
#ifndef SNAPFERRY_PROC_USER_H
#define SNAPFERRY_PROC_USER_H

#include "base/err.h"

#include <stdbool.h>
#include <sys/types.h>

#define USER_GROUPS_MAX 64

struct user {
    bool change; /* false: the ids are those of this process, and user_become() does nothing */
    uid_t uid;
    gid_t gid, groups[USER_GROUPS_MAX];
    int n_groups;
};

/*
 * Looks up a name; `groups`: with the supplementary groups of the user, else with none. NULL, "" or a caller who is not
 * root: no change. -ENOENT: there is no such user, and e is left alone, so that the caller words it. Thread-safe; may
 * wait for the system's name service.
 */
int user_find(struct user *ret, const char *name, bool groups, struct err *e);

/* Becomes that user with all ids, for good; 0 or -errno. For a child between fork and exec: system calls only. */
int user_become(const struct user *u);

#endif
