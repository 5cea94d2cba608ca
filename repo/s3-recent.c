/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/s3-recent.h"

#include "base/time.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void s3_recent_init(struct s3_recent *r)
{
    *r = (struct s3_recent){.n = 0};
    pthread_mutex_init(&r->lock, NULL);
}

static void remove_at(struct s3_recent *r, size_t i)
{
    free(r->all[i].name);
    memmove(&r->all[i], &r->all[i + 1], (r->n - i - 1) * sizeof *r->all);
    r->n--;
}

/* The first `n`. */
static void forget(struct s3_recent *r, size_t n)
{
    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++)
        free(r->all[i].name);
    memmove(r->all, r->all + n, (r->n - n) * sizeof *r->all);
    r->n -= n;
}

void s3_recent_clear(struct s3_recent *r)
{
    forget(r, r->n);
    free(r->all);
    r->all = NULL;
    pthread_mutex_destroy(&r->lock);
}

static void expire(struct s3_recent *r)
{
    const int64_t now = mono_ns();
    size_t old = 0;
    while (old < r->n && now - r->all[old].since_ns > S3_RECENT_NS)
        old++;
    if (r->n - old >= S3_RECENT_MAX)
        old += S3_RECENT_MAX / 8;
    forget(r, old);
}

static void drop(struct s3_recent *r, const char *name)
{
    for (size_t i = r->n; i-- > 0;)
        if (!strcmp(r->all[i].name, name)) {
            remove_at(r, i);
            return;
        }
}

void s3_recent_drop(struct s3_recent *r, const char *name)
{
    pthread_mutex_lock(&r->lock);
    drop(r, name);
    pthread_mutex_unlock(&r->lock);
}

static int add(struct s3_recent *r, const struct s3_change *c)
{
    expire(r);
    drop(r, c->name);
    if (r->n == r->cap) {
        const size_t cap = r->cap ? 2 * r->cap : 64;
        struct s3_change *all = realloc(r->all, cap * sizeof *all);
        if (!all)
            return -ENOMEM;
        r->all = all;
        r->cap = cap;
    }
    r->all[r->n++] = *c;
    return 0;
}

int s3_recent_add(struct s3_recent *r, const char *name, uint64_t length, int64_t mtime_ns, bool deleted)
{
    const struct s3_change c = {
        .name = strdup(name), .length = length, .mtime_ns = mtime_ns, .since_ns = mono_ns(), .deleted = deleted};
    if (!c.name)
        return -ENOMEM;
    pthread_mutex_lock(&r->lock);
    const int rc = add(r, &c);
    pthread_mutex_unlock(&r->lock);
    if (rc < 0)
        free(c.name);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct s3_change *)a)->name, ((const struct s3_change *)b)->name);
}

static int copy(const struct s3_recent *r, const char *prefix, struct s3_changes *ret)
{
    const size_t len = strlen(prefix);
    ret->all = r->n ? malloc(r->n * sizeof *ret->all) : NULL;
    if (r->n && !ret->all)
        return -ENOMEM;
    for (size_t i = 0; i < r->n; i++) {
        if (strncmp(r->all[i].name, prefix, len) != 0)
            continue;
        ret->all[ret->n] = r->all[i];
        if (!(ret->all[ret->n].name = strdup(r->all[i].name)))
            return -ENOMEM;
        ret->n++;
    }
    return 0;
}

int s3_recent_copy(struct s3_recent *r, const char *prefix, struct s3_changes *ret)
{
    *ret = (struct s3_changes){.n = 0};
    pthread_mutex_lock(&r->lock);
    expire(r);
    const int rc = copy(r, prefix, ret);
    pthread_mutex_unlock(&r->lock);
    if (rc < 0)
        s3_changes_free(ret);
    else
        s3_changes_sort(ret);
    return rc;
}

void s3_changes_sort(struct s3_changes *c)
{
    if (c->n)
        qsort(c->all, c->n, sizeof *c->all, by_name);
}

void s3_changes_free(struct s3_changes *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->all[i].name);
    free(c->all);
    *c = (struct s3_changes){.n = 0};
}

struct s3_change *s3_changes_find(const struct s3_changes *c, const char *name)
{
    const struct s3_change key = {.name = (char *)(uintptr_t)name};
    return c->n ? bsearch(&key, c->all, c->n, sizeof *c->all, by_name) : NULL;
}
