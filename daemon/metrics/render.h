/* SPDX-License-Identifier: GPL-2.0-or-later */
/* render.h - the exposition of any table of families; metrics.h gives that of the daemon's */
#ifndef SNAPFERRY_DAEMON_METRICS_RENDER_H
#define SNAPFERRY_DAEMON_METRICS_RENDER_H

#include "daemon/metrics/metrics.h"

/* As metrics_text(), of the families in `table` (ended by a NULL name). */
char *metrics_render(const struct metric_family *table, const json_t *samples, const struct metrics_options *o,
                     size_t *len);

#endif
