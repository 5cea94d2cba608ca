/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * confirm.h - the question of destructive verbs
 *
 * A verb that removes or overwrites data asks where a person can answer: standard input and standard error are a
 * terminal. --yes answers it, --dry-run and --json need no answer. Without a terminal nothing is asked: what protects
 * data from a script are the refusals that only --force, --even-kept or --overwrite override.
 */
#ifndef SNAPFERRY_DAEMON_CLI_CONFIRM_H
#define SNAPFERRY_DAEMON_CLI_CONFIRM_H

#include "daemon/cli/daemon.h"

/* Whether confirm() would ask; for verbs that have to find out first what would be lost. */
bool confirm_needed(const struct options *o);
/* Prints what will be lost (escaped here) and waits for the answer, which is no unless it is y or yes. 0: confirmed, or
 * not to be asked. */
int confirm(const struct options *o, struct err *e, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same for a device or file that a restore would overwrite. */
int confirm_target(const struct options *o, const char *path, struct err *e);

#endif
