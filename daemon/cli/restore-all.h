/* SPDX-License-Identifier: GPL-2.0-or-later */
/* restore-all.h - all volumes of a backup into the classes of --class-map */
#ifndef SNAPFERRY_DAEMON_CLI_RESTORE_ALL_H
#define SNAPFERRY_DAEMON_CLI_RESTORE_ALL_H

#include "daemon/cli/daemon.h"

/* `backup`: its id; `args`: of submit-restore, for each volume. */
int restore_all(const struct options *o, const char *backup, const json_t *args, struct err *e);

#endif
