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

/* The first epoch from `from` on that has index blobs, INT64_MAX: none. Markers and ranges of others are forged to name
 * any number: epochs are not counted through. */
static int64_t epoch_with_blobs(const struct epoch_listing *l, int64_t from)
{
    int64_t first = INT64_MAX;
    for (size_t i = 0; i < l->n; i++) {
        const int64_t v = l->b[i].name[1] == 'n' || l->b[i].name[1] == 's' ? epoch_of_name(l->b[i].name) : -1;
        if (v >= from && v < first)
            first = v;
    }
    return first;
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
    CLEANUP_FREE const char **names = calloc(l->n + 1, sizeof(char *));
    CLEANUP_FREE size_t *at = malloc((l->n + 1) * sizeof *at);
    CLEANUP_FREE bool *member = calloc(l->n + 1, sizeof *member);
    size_t k = 0;
    if (!names || !at || !member)
        return err_nomem(e);
    for (size_t i = 0; i < l->n; i++) {
        if (test(&l->b[i], epoch)) {
            names[k] = l->b[i].name;
            at[k++] = i;
        }
    }
    int rc = 0;
    epoch_first_complete(names, k, member);
    for (size_t i = 0; rc == 0 && i < k; i++)
        if (member[i])
            rc = list_add(list, n, &l->b[at[i]], e);
    return rc;
}

static int add_new(const struct epoch_listing *l, int64_t epoch, struct blob_info **list, size_t *n, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < l->n; i++)
        if (of_epoch(&l->b[i], epoch))
            rc = list_add(list, n, &l->b[i], e);
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

/* Only complete sets count. */
static int ranges_find(const struct epoch_listing *l, struct ranges *ret, struct err *e)
{
    CLEANUP_FREE const char **names = calloc(l->n + 1, sizeof(char *));
    CLEANUP_FREE bool *member = calloc(l->n + 1, sizeof *member);
    ret->r = calloc(l->n + 1, sizeof *ret->r);
    if (!names || !member || !ret->r)
        return err_nomem(e);
    for (size_t i = 0; i < l->n; i++) {
        struct epoch_range r, other;
        size_t k = 0;
        bool seen = false;
        if (l->b[i].name[1] != 'r' || !epoch_range_of_name(l->b[i].name, &r))
            continue;
        for (size_t j = 0; j < ret->n; j++)
            seen = seen || (ret->r[j].min == r.min && ret->r[j].max == r.max);
        for (size_t j = 0; !seen && j < l->n; j++)
            if (l->b[j].name[1] == 'r' && epoch_range_of_name(l->b[j].name, &other) && other.min == r.min &&
                other.max == r.max)
                names[k++] = l->b[j].name;
        if (k && epoch_first_complete(names, k, member))
            ret->r[ret->n++] = r;
    }
    if (ret->n)
        qsort(ret->r, ret->n, sizeof *ret->r, by_min);
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
    int rc = ranges_find(&l, &ranges, e);
    CLEANUP_FREE size_t *chain = rc == 0 ? calloc(ranges.n + 1, sizeof *chain) : NULL;
    int64_t links = chain ? epoch_chain(ranges.r, ranges.n, chain) : -ENOMEM;
    if (links > 0)
        l.first = ranges.r[chain[links - 1]].max < EPOCH_LAST ? ranges.r[chain[links - 1]].max + 1 : EPOCH_LAST;
    free(ranges.r);
    if (links < 0) {
        free(b);
        return rc < 0 ? rc : err_nomem(e);
    }
    *ret = l;
    return 0;
}

void epoch_listing_clear(struct epoch_listing *l)
{
    free(l->b);
    l->b = NULL;
    l->n = 0;
}

/* ---- decisions ---- */

int64_t epoch_missing(const struct epoch_listing *l, struct err *e)
{
    for (int64_t epoch = l->first; epoch < l->write_epoch; epoch++) {
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
