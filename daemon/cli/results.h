/* SPDX-License-Identifier: GPL-2.0-or-later */
/* results.h - results of operations as text (docs/mover.md) */
#ifndef SNAPFERRY_DAEMON_CLI_RESULTS_H
#define SNAPFERRY_DAEMON_CLI_RESULTS_H

#include "daemon/cli/daemon.h"

/* The task of an operation without a volume: "check main", "delete nightly-...". Static buffers, four in turn. */
const char *result_task(const json_t *op);

/* Why all data of a volume was read, from the reason's word; an unknown word is returned as it is. */
const char *full_reason_text(const char *word);

/* Size of the volume, and bytes of new chunks, from result or progress; "" if unknown. */
const char *result_size(const json_t *op);
const char *result_new(const json_t *op);

/* Of a backup, an operation or a job's last backup with `gone_ns`: "not whole in the repository since TIME (1 h ago):
 * CAUSE".
 * Returns `out`. */
const char *gone_text(const json_t *doc, char *out, size_t cap);
/* Of a backup: "no longer in the repository: it has expired, TIME (1 h ago); nothing of it is left". Returns `out`, or
 * "": nothing has expired, or gone_text() is to be said instead. */
const char *lost_text(const json_t *doc, char *out, size_t cap);

/* On standard output, after `indent` blanks: "NAME: 64.0 MiB in 0.5 s (128.0 MiB/s), 4.0 MiB new, ..." (NULL: no name);
 * with `details` counts and the time of each stage, too. Nothing for an operation without a result. */
void result_print(const json_t *op, const char *name, unsigned indent, bool details);

/* The same behind the label "Result" (labels.h). */
void result_print_labelled(const json_t *op);

#endif
