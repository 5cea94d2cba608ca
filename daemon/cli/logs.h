/* SPDX-License-Identifier: GPL-2.0-or-later */
/* logs.h - log lines of an operation, from the journal or a file */
#ifndef SNAPFERRY_DAEMON_CLI_LOGS_H
#define SNAPFERRY_DAEMON_CLI_LOGS_H

#include "daemon/cli/daemon.h"

struct logs;
int logs_open(struct logs **ret, const struct options *o, const char *id, struct err *e);
void logs_close(struct logs *l);
static inline void logs_closep(struct logs **l)
{
    logs_close(*l);
}
/* Called for each line; at_ns 0: unknown. Non-zero ends it. */
typedef int log_entry_fn(int64_t at_ns, const char *level, const char *text, void *arg);
/* The lines since the last call. */
int logs_read(struct logs *l, log_entry_fn *fn, void *arg);
/* Where the lines came from. */
bool logs_in_journal(const struct logs *l);

#endif
