/* SPDX-License-Identifier: GPL-2.0-or-later */
/* histogram.c - distributions as counters that survive restart */
#include "daemon/records/records-impl.h"

#include "base/cleanup.h"
#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

const double histogram_bounds[HISTOGRAM_BOUNDS] = {1, 5, 15, 60, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400};
const double histogram_bounds_short[HISTOGRAM_BOUNDS] = {0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60};

const char *records_bound_text(double bound, char out[32])
{
    if (isinf(bound))
        snprintf(out, 32, "+Inf");
    else
        snprintf(out, 32, "%.10g", bound);
    return out;
}

static int add_bucket(struct records *r, const char *name, const json_t *labels, double bound, double n, struct err *e)
{
    char text[32], bucket[160];
    CLEANUP_JSON json_t *own = labels ? json_copy((json_t *)labels) : json_object();
    if (!own || json_object_set_new(own, "le", json_string(records_bound_text(bound, text))) < 0)
        return err_nomem(e);
    snprintf(bucket, sizeof bucket, "%s_bucket", name);
    return records_counter_add(r, bucket, own, n, e);
}

int records_histogram_add(struct records *r, const char *name, const json_t *labels, const double *bounds, size_t n,
                          const uint64_t *counts, double sum, struct err *e)
{
    char part[160];
    uint64_t below = 0;
    int rc = 0;
    if (labels && !json_is_object(labels))
        return err_set(e, ERR_GENERIC, EINVAL, "\"%s\" cannot be counted so", name);
    for (size_t i = 0; i <= n && rc >= 0; i++) {
        below += counts[i];
        rc = add_bucket(r, name, labels, i < n ? bounds[i] : INFINITY, (double)below, e);
    }
    snprintf(part, sizeof part, "%s_sum", name);
    if (rc >= 0)
        rc = records_counter_add(r, part, labels, isfinite(sum) && sum > 0 ? sum : 0, e);
    snprintf(part, sizeof part, "%s_count", name);
    return rc < 0 ? rc : records_counter_add(r, part, labels, (double)below, e);
}

#define BOUNDS_MAX 64

int records_histogram_observe(struct records *r, const char *name, const json_t *labels, const double *bounds, size_t n,
                              double value, struct err *e)
{
    uint64_t counts[BOUNDS_MAX + 1] = {0};
    size_t i = 0;
    if (!isfinite(value) || n > BOUNDS_MAX)
        return err_set(e, ERR_GENERIC, EINVAL, "\"%s\" cannot be counted so", name);
    while (i < n && value > bounds[i])
        i++;
    counts[i] = 1;
    return records_histogram_add(r, name, labels, bounds, n, counts, value, e);
}
