/* SPDX-License-Identifier: GPL-2.0-or-later */
/* samples.h - how the files behind metrics_collect() make samples */
#ifndef SNAPFERRY_DAEMON_METRICS_SAMPLES_H
#define SNAPFERRY_DAEMON_METRICS_SAMPLES_H

#include "daemon/engine/facts.h"
#include "daemon/metrics/metrics.h"

struct samples {
    struct engine *engine;
    json_t *list;
    json_t *seen; /* counters and gauges from the records: name and labels as text -> true */
    int64_t now_ns;
};

/* A sample; `labels` is borrowed. */
void sample_append(struct samples *s, const char *name, json_t *labels, double value);
/* The same; labels are pairs of texts, ended by NULL. */
void sample(struct samples *s, const char *name, double value, ...) __attribute__((sentinel));
/* The same with value 0 unless the records have one: possible series are exported from the start. */
void sample_zero(struct samples *s, const char *name, ...) __attribute__((sentinel));
/* All samples of a histogram, likewise. */
void sample_zero_histogram(struct samples *s, const char *name, const double *bounds, ...) __attribute__((sentinel));
/* Text of a sample's name and labels; malloc()ed. */
char *sample_key(const char *name, const json_t *labels);

void samples_of_counters(struct samples *s);
void samples_of_zeros(struct samples *s);
void samples_of_operations(struct samples *s);
void samples_of_volumes(struct samples *s);
void samples_of_natives(struct samples *s);

#endif
