/* SPDX-License-Identifier: GPL-2.0-or-later */
/* histogram.c - distributions as counters that survive restart */
#include "daemon/records/records-impl.h"

#include "base/cleanup.h"
#include "base/json.h"
#include "daemon/records/opaque.h"

#include <errno.h>
#include <math.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOUNDS_MAX 64
#define BUCKET_SUFFIX "_in"

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
    const int h = (x->hash > y->hash) - (x->hash < y->hash), d = h ? h : strcmp(x->name, y->name),
              l = d ? d : strcmp(x->labels, y->labels);
    return l ? l : (x->n > y->n) - (x->n < y->n);
}

static char *bucket_labels(const json_t *labels, double bound)
{
    char text[32];
    CLEANUP_JSON json_t *own = labels ? json_copy((json_t *)(uintptr_t)labels) : json_object();
    if (!own || json_object_set_new(own, "le", json_string(records_bound_text(bound, text))) < 0)
        return NULL;
    return records_labels_text(own);
}

/*
 * Versions before this one kept what is exposed, NAME_bucket: each value that is not above the bound. What they counted
 * becomes the counter of the bucket when the histogram is needed first, whatever becomes of what is counted then.
 */
static int take_over(struct records *r, const char *name, const char *labels, struct counter *bucket, double *below,
                     struct err *e)
{
    char old_name[160];
    struct counter *old;
    snprintf(old_name, sizeof old_name, "%s_bucket", name);
    if (!(old = records_counter_known(r, old_name, labels)) || old->gone)
        return 0;
    const double own = old->value - *below;
    *below = old->value;
    const bool apart = r->counters_apart;
    records_counters_apart(r, true);
    int rc = records_counter_change(r, bucket, own > 0 ? own : 0, true, e);
    if (rc >= 0)
        rc = records_counter_forget(r, old, e);
    records_counters_apart(r, apart);
    return rc;
}

static int find_counters(struct records *r, struct histogram *h, const json_t *labels, const double *bounds,
                         struct err *e)
{
    char part[160];
    double below = 0;
    int rc = 0;
    for (size_t i = 0; i <= h->n && rc >= 0; i++) {
        CLEANUP_FREE char *text = bucket_labels(labels, i < h->n ? bounds[i] : INFINITY);
        snprintf(part, sizeof part, "%s" BUCKET_SUFFIX, h->name);
        rc = text ? records_counter_find(r, part, text, &h->buckets[i], e) : err_nomem(e);
        if (rc >= 0)
            rc = take_over(r, h->name, text, h->buckets[i], &below, e);
    }
    snprintf(part, sizeof part, "%s_sum", h->name);
    if (rc >= 0)
        rc = records_counter_find(r, part, h->labels, &h->sum, e);
    snprintf(part, sizeof part, "%s_count", h->name);
    if (rc >= 0)
        rc = records_counter_find(r, part, h->labels, &h->count, e);
    for (size_t i = 0; rc >= 0 && i <= h->n; i++) {
        h->buckets[i]->histogram = h;
        h->buckets[i]->bucket = i;
    }
    return rc;
}

/* A name and labels always have the same bounds. */
static int find_histogram(struct records *r, const char *name, const json_t *labels, const double *bounds, size_t n,
                          struct histogram **ret, struct err *e)
{
    CLEANUP_FREE char *text = records_labels_text(labels);
    if (!text)
        return err_nomem(e);
    const struct histogram key = {
        .name = (char *)(uintptr_t)name, .labels = text, .hash = counter_hash(name, text), .n = n};
    void **node = tfind(&key, &r->histogram_tree, histogram_order);
    if (node) {
        *ret = *node;
        return 0;
    }
    struct histogram *h = calloc(1, sizeof *h + (n + 1) * sizeof *h->buckets);
    if (!h)
        return err_nomem(e);
    h->n = n;
    h->hash = key.hash;
    int rc = (h->name = strdup(name)) && (h->labels = strdup(text)) && tsearch(h, &r->histogram_tree, histogram_order)
                 ? find_counters(r, h, labels, bounds, e)
                 : err_nomem(e);
    if (rc < 0) {
        tdelete(h, &r->histogram_tree, histogram_order);
        histogram_free(h);
        return rc;
    }
    *ret = h;
    return 0;
}

/* ---- those that were read from disk ---- */

struct loaded {
    char *name;
    json_t *labels; /* without the bound */
    char *text;     /* of them */
    double bound;
};
static int loaded_order(const void *a, const void *b)
{
    const struct loaded *x = a, *y = b;
    const int d = strcmp(x->name, y->name), l = d ? d : strcmp(x->text, y->text);
    return l ? l : (x->bound > y->bound) - (x->bound < y->bound);
}

/* 1: it is a bucket; 0: it is not, or not one of ours. */
static int load_bucket(const struct counter *c, struct loaded *ret, struct err *e)
{
    const size_t len = strlen(c->name), suffix = sizeof BUCKET_SUFFIX - 1;
    char *end;
    if (len <= suffix || strcmp(c->name + len - suffix, BUCKET_SUFFIX) != 0)
        return 0;
    CLEANUP_JSON json_t *labels = json_loads(c->labels, 0, NULL);
    const char *le = counter_label(labels, "le");
    const double bound = strtod(le, &end);
    if (!le[0] || *end || isnan(bound))
        return 0;
    *ret = (struct loaded){.name = strndup(c->name, len - suffix), .bound = bound};
    json_object_del(labels, "le");
    ret->text = records_labels_text(labels);
    ret->labels = json_incref(labels);
    return ret->name && ret->text ? 1 : err_nomem(e);
}

/* One whose last bound is not +Inf, or that has too many, is not ours; it is found again when it is needed. */
static int load_histogram(struct records *r, const struct loaded *l, size_t n, struct err *e)
{
    double bounds[BOUNDS_MAX];
    struct histogram *h;
    if (n < 2 || n > BOUNDS_MAX || !isinf(l[n - 1].bound))
        return 0;
    for (size_t i = 0; i + 1 < n; i++)
        bounds[i] = l[i].bound;
    return find_histogram(r, l->name, l->labels, bounds, n - 1, &h, e);
}

int records_histograms_load(struct records *r, struct err *e)
{
    const size_t counters = r->counter_n;
    size_t n = 0;
    int rc = 0;
    struct loaded *v = calloc(counters + 1, sizeof *v);
    if (!v)
        return err_nomem(e);
    for (size_t i = 0; i < counters && rc >= 0; i++)
        if ((rc = load_bucket(r->counters[i], &v[n], e)) != 0)
            n++;
    qsort(v, n, sizeof *v, loaded_order);
    for (size_t i = 0, end; i < n && rc >= 0; i = end) {
        for (end = i + 1; end < n && !strcmp(v[i].name, v[end].name) && !strcmp(v[i].text, v[end].text); end++)
            ;
        rc = load_histogram(r, &v[i], end - i, e);
    }
    for (size_t i = 0; i < n; i++) {
        free(v[i].name);
        free(v[i].text);
        json_decref(v[i].labels);
    }
    free(v);
    return rc < 0 ? rc : 0;
}

/* ---- counting ---- */

int records_histogram_add(struct records *r, const char *name, const json_t *labels, const double *bounds, size_t n,
                          const uint64_t *counts, double sum, struct err *e)
{
    struct histogram *h = NULL;
    uint64_t all = 0;
    int rc = records_refuse_read_only(r, e);
    if (rc < 0)
        return rc;
    if (!name[0] || (labels && !json_is_object(labels)))
        return err_set(e, ERR_GENERIC, EINVAL, "\"%s\" cannot be counted so", name);
    if ((rc = find_histogram(r, name, labels, bounds, n, &h, e)) < 0)
        return rc;
    for (size_t i = 0; i <= n && rc >= 0; i++) {
        all += counts[i];
        rc = records_counter_change(r, h->buckets[i], (double)counts[i], true, e);
    }
    if (rc >= 0)
        rc = records_counter_change(r, h->sum, isfinite(sum) && sum > 0 ? sum : 0, true, e);
    return rc < 0 ? rc : records_counter_change(r, h->count, (double)all, true, e);
}

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
