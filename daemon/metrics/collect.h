/* SPDX-License-Identifier: GPL-2.0-or-later */
/* collect.h - the samples of a page */
#ifndef SNAPFERRY_DAEMON_METRICS_COLLECT_H
#define SNAPFERRY_DAEMON_METRICS_COLLECT_H

#include "daemon/engine/engine.h"

/* {"samples": [...]} as metrics.h expects them (new reference): from memory, without access to disk or storage. */
json_t *metrics_collect(struct engine *g);

#endif
