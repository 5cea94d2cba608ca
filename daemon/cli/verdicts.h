/* SPDX-License-Identifier: GPL-2.0-or-later */
/* verdicts.h - what retention decides about snapshots, printed the same with -r and by the daemon */
#ifndef SNAPFERRY_DAEMON_CLI_VERDICTS_H
#define SNAPFERRY_DAEMON_CLI_VERDICTS_H

#include "daemon/cli/daemon.h"

struct verdict_line {
    const char *source, *volume; /* volume: "" where the snapshots do not tell */
    const char *policy;          /* "latest 10, daily 7"; NULL: is not told */
    const char *id, *why;
    int64_t start_ns;
    bool keep, explain; /* explain: also what is kept, and the policy */
};

/* Source by source: a heading whenever `last` (the source before, "" at first) is another one, then a line for the
 * snapshot. What is kept is not told without `explain`. */
void verdict_print(const struct verdict_line *v, char last[5000]);

#endif
