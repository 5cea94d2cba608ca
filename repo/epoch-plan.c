/* SPDX-License-Identifier: GPL-2.0-or-later */
/* epoch-plan.c - which index blobs are to be compacted and deleted: decided from a listing */
#include "base/cleanup.h"
#include "base/time.h"
#include "repo/epoch-parts.h"
#include "repo/epoch-tidy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define EPOCH_LAST (INT64_MAX - 2) /* no client gets there; what follows it can still be counted */

static int by_name(const void *pa, const void *pb)
{
    const struct blob_info *a = pa, *b = pb;
    return strcmp(a->name, b->name);
}

/* An index blob of a flush in this epoch: by the exact prefix by which clients list them. */
static bool of_epoch(const struct blob_info *b, int64_t epoch)
{
    char want[32];
    int n = snprintf(want, sizeof want, "xn%" PRId64 "_", epoch);
    return strncmp(b->name, want, (size_t)n) == 0;
}

static bool is_single(const struct blob_info *b, int64_t epoch)
{
    return b->name[1] == 's' && epoch_of_name(b->name) == epoch;
}

/* Where the blobs of `epoch`, or of the next one that has any, begin in l->at. */
static size_t epoch_begin(const struct epoch_listing *l, int64_t epoch)
{
    size_t lo = 0, hi = l->n_at;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (l->at[mid].epoch < epoch)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* How many there are from there on. */
static size_t epoch_count(const struct epoch_listing *l, size_t begin, int64_t epoch)
{
    size_t end = begin;
    while (end < l->n_at && l->at[end].epoch == epoch)
        end++;
    return end - begin;
}

/* The first epoch from `from` on that has index blobs, INT64_MAX: none. Markers and ranges of others are forged to name
 * any number: epochs are not counted through. */
static int64_t epoch_with_blobs(const struct epoch_listing *l, int64_t from)
{
    const size_t i = epoch_begin(l, from);
    return i < l->n_at ? l->at[i].epoch : INT64_MAX;
}

typedef bool blob_test(const struct blob_info *b, int64_t epoch);

static int list_add(struct blob_info **list, size_t *n, const struct blob_info *b, struct err *e)
{
    if ((*n & (*n - 1)) == 0) {
        void *p = realloc(*list, (*n ? 2 * *n : 1) * sizeof *b);
        if (!p)
            return err_nomem(e);
        *list = p;
    }
    (*list)[(*n)++] = *b;
    return 0;
}

/* The first complete set of those that pass; none: nothing is added. */
static int add_complete(const struct epoch_listing *l, blob_test *test, int64_t epoch, struct blob_info **list,
                        size_t *n, struct err *e)
{
    const size_t begin = epoch_begin(l, epoch), all = epoch_count(l, begin, epoch);
    CLEANUP_FREE const char **names = calloc(all + 1, sizeof(char *));
    CLEANUP_FREE size_t *at = malloc((all + 1) * sizeof *at);
    CLEANUP_FREE bool *member = calloc(all + 1, sizeof *member);
    size_t k = 0;
    if (!names || !at || !member)
        return err_nomem(e);
    for (size_t i = begin; i < begin + all; i++) {
        const struct blob_info *b = &l->b[l->at[i].i];
        if (test(b, epoch)) {
            names[k] = b->name;
            at[k++] = l->at[i].i;
        }
    }
    int rc = epoch_first_complete(names, k, member) < 0 ? err_nomem(e) : 0;
    for (size_t i = 0; rc == 0 && i < k; i++)
        if (member[i])
            rc = list_add(list, n, &l->b[at[i]], e);
    return rc;
}

static int add_new(const struct epoch_listing *l, int64_t epoch, struct blob_info **list, size_t *n, struct err *e)
{
    const size_t begin = epoch_begin(l, epoch), all = epoch_count(l, begin, epoch);
    int rc = 0;
    for (size_t i = begin; rc == 0 && i < begin + all; i++)
        if (of_epoch(&l->b[l->at[i].i], epoch))
            rc = list_add(list, n, &l->b[l->at[i].i], e);
    return rc;
}

/* ---- the listing ---- */

struct ranges {
    struct epoch_range *r;
    size_t n;
};

static int by_min(const void *pa, const void *pb)
{
    const struct epoch_range *a = pa, *b = pb;
    if (a->min != b->min)
        return a->min < b->min ? -1 : 1;
    return (a->max > b->max) - (a->max < b->max);
}

struct named_range {
    struct epoch_range r;
    const char *name;
};

/* By numbers, then by name. */
static int by_range(const void *pa, const void *pb)
{
    const struct named_range *a = pa, *b = pb;
    const int c = by_min(&a->r, &b->r);
    return c ? c : strcmp(a->name, b->name);
}

/* Only complete sets count. */
static int ranges_find(const struct epoch_listing *l, struct ranges *ret, struct err *e)
{
    CLEANUP_FREE struct named_range *all = calloc(l->n + 1, sizeof *all);
    CLEANUP_FREE const char **names = calloc(l->n + 1, sizeof(char *));
    CLEANUP_FREE bool *member = calloc(l->n + 1, sizeof *member);
    size_t n = 0;
    ret->r = calloc(l->n + 1, sizeof *ret->r);
    if (!all || !names || !member || !ret->r)
        return err_nomem(e);
    for (size_t i = 0; i < l->n; i++) {
        all[n].name = l->b[i].name;
        n += l->b[i].name[1] == 'r' && epoch_range_of_name(l->b[i].name, &all[n].r);
    }
    if (n)
        qsort(all, n, sizeof *all, by_range);
    for (size_t i = 0, k; i < n; i += k) {
        for (k = 0; i + k < n && by_min(&all[i].r, &all[i + k].r) == 0; k++)
            names[k] = all[i + k].name;
        const int64_t complete = epoch_first_complete(names, k, member);
        if (complete < 0)
            return err_nomem(e);
        if (complete)
            ret->r[ret->n++] = all[i].r;
    }
    return 0;
}

static int by_epoch(const void *pa, const void *pb)
{
    const struct epoch_at *a = pa, *b = pb;
    if (a->epoch != b->epoch)
        return a->epoch < b->epoch ? -1 : 1;
    return a->i < b->i ? -1 : a->i > b->i;
}

/* So that what is decided for each epoch takes the time of its blobs, not of all. */
static int epochs_sort(struct epoch_listing *l, struct err *e)
{
    l->at = malloc((l->n + 1) * sizeof *l->at);
    if (!l->at)
        return err_nomem(e);
    for (size_t i = 0; i < l->n; i++) {
        const char kind = l->b[i].name[1];
        const int64_t epoch = kind == 'n' || kind == 's' ? epoch_of_name(l->b[i].name) : -1;
        if (epoch >= 0)
            l->at[l->n_at++] = (struct epoch_at){epoch, i};
    }
    if (l->n_at)
        qsort(l->at, l->n_at, sizeof *l->at, by_epoch);
    return 0;
}

int epoch_listing_make(struct epoch_listing *ret, struct blob_info *b, size_t n, struct err *e)
{
    struct epoch_listing l = {.b = b, .n = n, .watermark = INT64_MIN};
    struct ranges ranges = {0};
    if (n)
        qsort(b, n, sizeof *b, by_name);
    for (size_t i = 0; i < n; i++) {
        int64_t v;
        if (b[i].name[1] == 'e' && (v = epoch_of_name(b[i].name)) > l.write_epoch)
            l.write_epoch = v < EPOCH_LAST ? v : EPOCH_LAST;
        if (epoch_watermark_of_name(b[i].name, &v) && v > l.watermark)
            l.watermark = v;
    }
    int rc = epochs_sort(&l, e);
    if (rc == 0)
        rc = ranges_find(&l, &ranges, e);
    CLEANUP_FREE size_t *chain = rc == 0 ? calloc(ranges.n + 1, sizeof *chain) : NULL;
    int64_t links = chain ? epoch_chain(ranges.r, ranges.n, chain) : -ENOMEM;
    if (links > 0)
        l.first = ranges.r[chain[links - 1]].max < EPOCH_LAST ? ranges.r[chain[links - 1]].max + 1 : EPOCH_LAST;
    free(ranges.r);
    if (links < 0) {
        free(b);
        free(l.at);
        return rc < 0 ? rc : err_nomem(e);
    }
    *ret = l;
    return 0;
}

void epoch_listing_clear(struct epoch_listing *l)
{
    free(l->b);
    free(l->at);
    l->b = NULL;
    l->at = NULL;
    l->n = l->n_at = 0;
}

/* ---- decisions ---- */

int64_t epoch_missing(const struct epoch_listing *l, int64_t from, struct err *e)
{
    for (int64_t epoch = from > l->first ? from : l->first; epoch < l->write_epoch; epoch++) {
        CLEANUP_FREE struct blob_info *have = NULL;
        size_t n = 0;
        if (epoch_with_blobs(l, epoch) != epoch)
            return epoch;
        int rc = add_new(l, epoch, &have, &n, e);
        if (rc == 0 && n == 0)
            rc = add_complete(l, is_single, epoch, &have, &n, e);
        if (rc < 0)
            return rc;
        if (n == 0)
            return epoch;
    }
    return -1;
}

bool epoch_advance_due(const struct epoch_listing *l, const struct epoch_params *p)
{
    int64_t oldest = INT64_MAX, newest = INT64_MIN, bytes = 0, count = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (!of_epoch(&l->b[i], l->write_epoch))
            continue;
        count++;
        bytes += (int64_t)l->b[i].length;
        oldest = l->b[i].mtime_ns < oldest ? l->b[i].mtime_ns : oldest;
        newest = l->b[i].mtime_ns > newest ? l->b[i].mtime_ns : newest;
    }
    return count > 0 && newest - oldest >= p->min_duration_ns &&
           (count >= p->advance_count || bytes >= p->advance_bytes);
}

int64_t epoch_single_due(const struct epoch_listing *l, struct blob_info **ret, size_t *n, struct err *e)
{
    CLEANUP_FREE struct blob_info *have = NULL;
    *ret = NULL;
    *n = 0;
    for (int64_t epoch = epoch_with_blobs(l, l->first); epoch <= l->write_epoch - 2;
         epoch = epoch_with_blobs(l, epoch + 1)) {
        size_t k = 0;
        int rc = add_complete(l, is_single, epoch, &have, &k, e);
        if (rc == 0 && k == 0)
            rc = add_new(l, epoch, ret, n, e);
        if (rc < 0)
            return rc;
        free(take_ptr(&have));
        if (*n)
            return epoch;
    }
    return -1;
}

int64_t epoch_range_due(const struct epoch_listing *l, const struct epoch_params *p, struct blob_info **ret, size_t *n,
                        struct err *e)
{
    const int64_t settled = l->write_epoch - 2;
    *ret = NULL;
    *n = 0;
    if (settled - l->first < p->full_checkpoint)
        return -1;
    for (int64_t epoch = epoch_with_blobs(l, l->first); epoch <= settled; epoch = epoch_with_blobs(l, epoch + 1)) {
        const size_t before = *n;
        int rc = add_complete(l, is_single, epoch, ret, n, e);
        if (rc == 0 && *n == before)
            rc = add_new(l, epoch, ret, n, e);
        if (rc < 0)
            return rc;
    }
    return *n ? settled : -1;
}

/* By the storage's clock, as far as the newest index blob shows it: what is older may be deleted. */
static int64_t cut_time(const struct epoch_listing *l, const struct epoch_params *p)
{
    int64_t newest = INT64_MIN;
    for (size_t i = 0; i < l->n; i++)
        for (int64_t epoch = l->write_epoch - 1; epoch <= l->write_epoch + 1; epoch++)
            if (of_epoch(&l->b[i], epoch) && l->b[i].mtime_ns > newest)
                newest = l->b[i].mtime_ns;
    return newest == INT64_MIN ? newest : newest - p->cleanup_margin_ns;
}

int epoch_old_markers(const struct epoch_listing *l, const struct epoch_params *p, struct blob_info **ret, size_t *n,
                      struct err *e)
{
    const int64_t cut = cut_time(l, p);
    int rc = 0;
    *ret = NULL;
    *n = 0;
    for (size_t i = 0; cut != INT64_MIN && rc == 0 && i < l->n; i++) {
        const struct blob_info *b = &l->b[i];
        int64_t v = b->name[1] == 'e' ? epoch_of_name(b->name) : -1;
        if ((v >= 0 && v < l->write_epoch - 1) ||
            (epoch_watermark_of_name(b->name, &v) && v != l->watermark && b->mtime_ns < cut))
            rc = list_add(ret, n, b, e);
    }
    return rc;
}

int epoch_superseded(const struct epoch_listing *l, const struct epoch_params *p, struct blob_info **ret, size_t *n,
                     struct err *e)
{
    const int64_t cut = cut_time(l, p);
    int64_t epoch = -1;
    bool old = false;
    *ret = NULL;
    *n = 0;
    for (size_t i = 0; cut != INT64_MIN && i < l->n; i++) {
        const struct blob_info *b = &l->b[i];
        const int64_t its = b->name[1] == 'n' ? epoch_of_name(b->name) : -1;
        if (its < 0 || !of_epoch(b, its))
            continue;
        if (its != epoch) {
            CLEANUP_FREE struct blob_info *set = NULL;
            size_t k = 0;
            int rc = add_complete(l, is_single, its, &set, &k, e);
            if (rc < 0)
                return rc;
            epoch = its;
            old = k > 0 && its <= l->write_epoch - 2;
            for (size_t j = 0; j < k; j++)
                old = old && set[j].mtime_ns < cut;
        }
        if (old && list_add(ret, n, b, e) < 0)
            return -ENOMEM;
    }
    return 0;
}
