/* SPDX-License-Identifier: GPL-2.0-or-later */
/* stages.h - the time of each pipeline stage as text */
#ifndef SNAPFERRY_DAEMON_CLI_STAGES_H
#define SNAPFERRY_DAEMON_CLI_STAGES_H

#include "daemon/mover/mover.h"
#include "daemon/mover/stages.h"

/* "read 0.52 s (waited 0.10 s), hash 1.20 s; bottleneck: hash". Stages without time are omitted. */
void stages_text(char *out, size_t cap, const struct stage_time *s, unsigned n, const char *bottleneck);
/* The same as a line of the summary; nothing without stages. */
void stages_print(const struct stage_time *s, unsigned n, const char *bottleneck);
/* From a result or record: [{name, busySeconds, stalledSeconds}]; false without any time. */
bool stages_text_json(char *out, size_t cap, const json_t *stages, const char *bottleneck);

#endif
