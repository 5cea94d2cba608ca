/* SPDX-License-Identifier: GPL-2.0-or-later */
/* old-timers.h - the transient timers of systemd that ran jobs up to version 0.1: a step that removes them. As long
 * as `snapferry backup` accepts --from-timer. */
#ifndef SNAPFERRY_DAEMON_SCHEDULE_OLD_TIMERS_H
#define SNAPFERRY_DAEMON_SCHEDULE_OLD_TIMERS_H

#include "base/err.h"

#include <jansson.h>

/* A step_fn. *out: {"stopped": n}. Idempotent. */
int old_timers_step(const json_t *in, json_t **out, int *fd, struct err *e);

#endif
