/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * confirm.h - confirmation of destructive verbs
 *
 * Verbs that remove or overwrite data ask for confirmation if standard input and standard error are a terminal, and not
 * with --yes, --dry-run or --json. Without a terminal, data are protected by the refusals that only --force,
 * --even-kept or --overwrite override.
 */
#ifndef SNAPFERRY_DAEMON_CLI_CONFIRM_H
#define SNAPFERRY_DAEMON_CLI_CONFIRM_H

#include "daemon/cli/daemon.h"

/* True if confirm() asks; for verbs that first determine what would be lost. */
bool confirm_needed(const struct options *o);
/* Prints what will be lost (escaped here) and reads the answer; the default is no. 0: confirmed or not required. */
int confirm(const struct options *o, struct err *e, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same for the target of a restore, if it contains data. */
int confirm_target(const struct options *o, const char *path, struct err *e);

#endif
