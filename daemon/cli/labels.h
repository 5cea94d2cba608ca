/* SPDX-License-Identifier: GPL-2.0-or-later */
/* labels.h - pages of labels and what belongs to them (describe, explain), on standard output */
#ifndef SNAPFERRY_DAEMON_CLI_LABELS_H
#define SNAPFERRY_DAEMON_CLI_LABELS_H

#include "daemon/cli/daemon.h"

#define LABEL_WIDTH 16

/* The label alone, the cursor in column LABEL_WIDTH behind it. */
void print_label(const char *name);
/* The label ("": none) and a text, escaped and wrapped. */
void print_line(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
