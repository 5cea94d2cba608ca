/* SPDX-License-Identifier: GPL-2.0-or-later */
/* histogram.c - distributions as counters that survive restart */
#include "daemon/records/records-impl.h"

#include "base/cleanup.h"
#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static int histogram_order(const void *a, const void *b)
{
    const struct histogram *x = a, *y = b;
    const int d = strcmp(x->name, y->name), l = d ? d : strcmp(x->labels, y->labels);
    return l ? l : (x->n > y->n) - (x->n < y->n);
}

static int find_bucket(struct records *r, const char *name, const json_t *labels, double bound, struct counter **ret,
                       struct err *e)
{
    char text[32], bucket[160];
    CLEANUP_JSON json_t *own = labels ? json_copy((json_t *)(uintptr_t)labels) : json_object();
    CLEANUP_FREE char *all = NULL;
    if (!own || json_object_set_new(own, "le", json_string(records_bound_text(bound, text))) < 0 ||
        !(all = records_labels_text(own)))
        return err_nomem(e);
    snprintf(bucket, sizeof bucket, "%s_bucket", name);
    return records_counter_find(r, bucket, all, ret, e);
}

static int find_counters(struct records *r, struct histogram *h, const json_t *labels, const double *bounds,
                         struct err *e)
{
    char part[160];
    int rc = 0;
    for (size_t i = 0; i <= h->n && rc >= 0; i++)
        rc = find_bucket(r, h->name, labels, i < h->n ? bounds[i] : INFINITY, &h->buckets[i], e);
    snprintf(part, sizeof part, "%s_sum", h->name);
    if (rc >= 0)
        rc = records_counter_find(r, part, h->labels, &h->sum, e);
    snprintf(part, sizeof part, "%s_count", h->name);
    return rc < 0 ? rc : records_counter_find(r, part, h->labels, &h->count, e);
}

/* A name and labels always have the same bounds. */
static int find_histogram(struct records *r, const char *name, const json_t *labels, const double *bounds, size_t n,
                          struct histogram **ret, struct err *e)
{
    CLEANUP_FREE char *text = records_labels_text(labels);
    const struct histogram key = {.name = (char *)(uintptr_t)name, .labels = text, .n = n};
    if (!text)
        return err_nomem(e);
    void **node = tfind(&key, &r->histogram_tree, histogram_order);
    if (node) {
        *ret = *node;
        return 0;
    }
    struct histogram *h = calloc(1, sizeof *h + (n + 1) * sizeof *h->buckets);
    if (!h)
        return err_nomem(e);
    h->n = n;
    int rc = (h->name = strdup(name)) && (h->labels = strdup(text)) ? 0 : err_nomem(e);
    if (rc == 0)
        rc = find_counters(r, h, labels, bounds, e);
    if (rc == 0 && !tsearch(h, &r->histogram_tree, histogram_order))
        rc = err_nomem(e);
    if (rc == 0)
        *ret = h;
    else
        histogram_free(h);
    return rc;
}

int records_histogram_add(struct records *r, const char *name, const json_t *labels, const double *bounds, size_t n,
                          const uint64_t *counts, double sum, struct err *e)
{
    struct histogram *h = NULL;
    uint64_t below = 0;
    int rc = records_refuse_read_only(r, e);
    if (rc < 0)
        return rc;
    if (!name[0] || (labels && !json_is_object(labels)))
        return err_set(e, ERR_GENERIC, EINVAL, "\"%s\" cannot be counted so", name);
    if ((rc = find_histogram(r, name, labels, bounds, n, &h, e)) < 0)
        return rc;
    for (size_t i = 0; i <= n && rc >= 0; i++) {
        below += counts[i];
        rc = records_counter_change(r, h->buckets[i], (double)below, true, e);
    }
    if (rc >= 0)
        rc = records_counter_change(r, h->sum, isfinite(sum) && sum > 0 ? sum : 0, true, e);
    return rc < 0 ? rc : records_counter_change(r, h->count, (double)below, true, e);
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
