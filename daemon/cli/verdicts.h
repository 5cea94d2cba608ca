/* SPDX-License-Identifier: GPL-2.0-or-later */
/* verdicts.h - decisions of retention, printed in the same way with -r and by the daemon */
#ifndef SNAPFERRY_DAEMON_CLI_VERDICTS_H
#define SNAPFERRY_DAEMON_CLI_VERDICTS_H

#include "daemon/cli/daemon.h"

struct verdict_line {
    const char *source, *volume; /* volume: "" if unknown */
    const char *policy;          /* "latest 10, daily 7"; NULL: not printed */
    const char *id, *why;
    int64_t start_ns;
    bool keep, explain; /* explain: also kept ones, and the policy */
};

/* Prints a heading if the source differs from `last` ("" at first), then a line for the snapshot. Kept ones only with
 * `explain`. */
/* Files of killed writers that expire removed, or would remove; nothing for 0. */
void print_leftovers(uint64_t files, uint64_t bytes, bool dry_run);
void verdict_print(const struct verdict_line *v, char last[5000]);

#endif
