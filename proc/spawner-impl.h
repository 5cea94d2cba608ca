/* SPDX-License-Identifier: GPL-2.0-or-later */
/* spawner-impl.h - requests to the spawner. 1: *ret has pid and pidfd; 0: the caller has to fork itself; or an error.
 */
#ifndef SNAPFERRY_PROC_SPAWNER_IMPL_H
#define SNAPFERRY_PROC_SPAWNER_IMPL_H

#include "proc/spawn.h"

/* `report` and `go`: the child's ends; go -1 if it does not wait. */
int spawner_program(struct spawned *ret, const struct spawn *s, int report, int go, struct err *e);
/* Of a function whose argument is bytes (arg_len). */
int spawner_function(struct spawned *ret, const struct spawn_function *f, struct err *e);

#endif
