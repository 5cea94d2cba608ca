/* SPDX-License-Identifier: GPL-2.0-or-later */
/* stages.h - the time of a backup by stage, and its bottleneck (internal to the mover) */
#ifndef SNAPFERRY_DAEMON_MOVER_STAGES_H
#define SNAPFERRY_DAEMON_MOVER_STAGES_H

#include "daemon/mover/mover.h"
#include "daemon/mover/pipeline.h"

/* Fills stages, n_stages and bottleneck from the pipeline's numbers, ret->reader and the time commits took. */
void stages_fill(struct backup_result *ret, const struct pipeline_stats *p, double commit_s, double pack_s);

/* [{name, busySeconds, stalledSeconds, bytes}]; NULL without memory. */
json_t *stages_json(const struct stage_time *s, unsigned n);

#endif
