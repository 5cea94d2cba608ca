/* SPDX-License-Identifier: GPL-2.0-or-later */
/* results.h - what an operation of the daemon did, in words (docs/mover.md has the results) */
#ifndef SNAPFERRY_DAEMON_CLI_RESULTS_H
#define SNAPFERRY_DAEMON_CLI_RESULTS_H

#include "daemon/cli/daemon.h"

/* What an operation without a volume is about: "check main", "verify main", "delete nightly-...". Static buffers, four
 * in turn. */
const char *result_task(const json_t *op);

/* Bytes that its volume has and bytes of new chunks, from the result or from the progress; "" where neither tells. */
const char *result_size(const json_t *op);
const char *result_new(const json_t *op);

/* On standard output, after `indent` blanks: "NAME: 64.0 MiB in 0.5 s (128.0 MiB/s), 4.0 MiB new, ..." (NULL: no name);
 * with `details` counts and the time of each stage, too. Nothing for an operation without a result. */
void result_print(const json_t *op, const char *name, unsigned indent, bool details);

#endif
