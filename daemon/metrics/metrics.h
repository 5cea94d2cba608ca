/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * metrics.h - what Prometheus reads: families, their text, and who hands it out
 *
 * metrics_collect() gives samples, the table of families says what may be among them, metrics_text() makes
 * the exposition of them, a server or a text file hands it out. Format: Prometheus text 0.0.4
 * (https://prometheus.io/docs/instrumenting/exposition_formats/). Names here are without the common prefix
 * "snapferry_". Every family has its HELP and TYPE lines from the start, also while it has no sample.
 */
#ifndef SNAPFERRY_DAEMON_METRICS_METRICS_H
#define SNAPFERRY_DAEMON_METRICS_METRICS_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metric_family {
    const char *name;      /* without prefix, with _total for counters: "operations_total" */
    enum metric_type type; /* of a histogram the samples are NAME_bucket (label le), NAME_sum, NAME_count */
    const char *labels;    /* "direction,class": each sample has these and no others; "" none */
    const char *help;      /* one sentence: unit, when it changes */
    const char *alias;     /* name with compat-metrics = yes ("velero_..."), same labels and value; NULL: none */
};

/* In the order of the output, ended by a NULL name. The man page snapferry-metrics(7) is checked against it. */
extern const struct metric_family metric_families[];
/* NULL if there is none; a histogram is found by the names of its samples, too. Thread-safe. */
const struct metric_family *metric_family(const char *name);

struct metrics_options {
    bool compat;       /* aliases, too */
    size_t series_max; /* most samples of one family; what is beyond is left out and counted; 0: 10000 */
};

/*
 * samples: array of {"name": without prefix, "labels": object of strings or absent, "value": number}, in any order.
 * Returns malloc'ed text (caller frees) and its length, or NULL for no memory. A sample of no family, with other labels
 * than its family's, or given twice is left out and counted in metrics_dropped_samples (a family of its own): the text
 * is always valid. Label values are escaped. Does no I/O. Thread-safe.
 */
char *metrics_text(const json_t *samples, const struct metrics_options *o, size_t *len);

#endif
