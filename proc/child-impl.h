/* SPDX-License-Identifier: GPL-2.0-or-later */
/* child-impl.h - both run in a child that was just forked, and do not return. `parent` is the process that waits. */
#ifndef SNAPFERRY_PROC_CHILD_IMPL_H
#define SNAPFERRY_PROC_CHILD_IMPL_H

#include "proc/spawn.h"

struct child {
    const struct spawn *s;
    pid_t parent;
    int null, report, go,
        go_parent; /* go_parent: the other end, which keeps read() from seeing the parent's death; or -1 */
};

void __attribute__((noreturn)) child_program(struct child *c);
void __attribute__((noreturn)) child_function(const struct spawn_function *f, pid_t parent);

#endif
