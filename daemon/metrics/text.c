/* SPDX-License-Identifier: GPL-2.0-or-later */
/* text.c - the exposition of the daemon's own families */
#include "daemon/metrics/render.h"

char *metrics_text(const json_t *samples, const struct metrics_options *o, size_t *len)
{
    return metrics_render(metric_families, samples, o, len);
}
