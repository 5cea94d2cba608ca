/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/reach.h"

#include "base/bytes.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAN 32                    /* files of which one is made */
#define LEVELS 8                  /* of files made of files: more than any disk has room for */
#define BUFFER ((size_t)64 << 10) /* of a file that is read or written */

/* 26 bytes of a keyed hash distinguish contents as well as the whole hash. Compared as bytes, pairs are in the order of
 * the index, and those of one content in the order of their volumes. */
struct pair {
    uint8_t prefix, hash[26], len;
    uint8_t volume[4]; /* big-endian */
};
_Static_assert(sizeof(struct pair) == 32, "compared and written as bytes");
#define KEY offsetof(struct pair, volume)
#define PER_BUFFER (BUFFER / sizeof(struct pair))

/* Sorted pairs, each once. */
struct run {
    int fd;
    uint64_t n; /* pairs in the file */
};

/* A run that is read. */
struct feed {
    int fd; /* borrowed; -1: all of it is in `at` */
    uint64_t left;
    struct pair *buffer; /* NULL: borrowed */
    const struct pair *at;
    size_t n, next; /* pairs there; the one that comes next */
};

/* Several runs as one: a heap of feeds, the one with the least pair first. */
struct merge {
    struct feed *feeds;
    size_t *heap, n;
    size_t n_feeds;
    bool any;
    struct pair last;
};

struct reach {
    char *dir;
    struct pair *batch;
    size_t n, cap; /* pairs in memory; half of it, since sorting takes as much again */
    struct run runs[LEVELS][FAN];
    unsigned n_runs[LEVELS];
    struct merge merged; /* of all, once settled */
    bool has_next;
    struct pair next; /* of it, not counted yet */
    uint32_t *group;  /* volumes of one content */
    size_t group_cap;
};

static int compare_pairs(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct pair));
}

/* ---- files ---- */

static int file_failed(int sys, const char *what, const struct reach *x, struct err *e)
{
    err_set(e, ERR_GENERIC, sys, "cannot %s a table in %s", what, x->dir);
    return err_hint(e, "free space there, or use another cache directory");
}

static int file_new(const struct reach *x, int *fd, struct err *e)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/table.XXXXXX", x->dir);
    *fd = mkostemp(path, O_CLOEXEC);
    if (*fd < 0)
        return file_failed(errno, "create", x, e);
    unlink(path);
    return 0;
}

static int write_pairs(const struct reach *x, int fd, const struct pair *p, size_t n, struct err *e)
{
    const uint8_t *at = (const uint8_t *)p;
    for (size_t left = n * sizeof *p; left;) {
        const ssize_t done = write(fd, at, left);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return file_failed(done < 0 ? errno : EIO, "write", x, e);
        at += done;
        left -= (size_t)done;
    }
    return 0;
}

/* ---- runs that are read ---- */

/* The next pairs of a file, from its position. */
static int feed_fill(const struct reach *x, struct feed *f, struct err *e)
{
    const size_t n = f->left < PER_BUFFER ? (size_t)f->left : PER_BUFFER;
    uint8_t *at = (uint8_t *)f->buffer;
    for (size_t left = n * sizeof(struct pair); left;) {
        const ssize_t done = read(f->fd, at, left);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return file_failed(done < 0 ? errno : EIO, "read", x, e);
        at += done;
        left -= (size_t)done;
    }
    f->at = f->buffer;
    f->n = n;
    f->next = 0;
    f->left -= n;
    return 0;
}

static const struct pair *feed_pair(const struct merge *m, size_t at)
{
    const struct feed *f = &m->feeds[m->heap[at]];
    return &f->at[f->next];
}

static void heap_down(struct merge *m, size_t at)
{
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < m->n; child++)
            if (compare_pairs(feed_pair(m, child), feed_pair(m, least)) < 0)
                least = child;
        if (least == at)
            return;
        const size_t other = m->heap[at];
        m->heap[at] = m->heap[least];
        m->heap[least] = other;
        at = least;
    }
}

static void merge_clear(struct merge *m)
{
    for (size_t i = 0; i < m->n_feeds; i++)
        free(m->feeds[i].buffer);
    free(m->feeds);
    free(m->heap);
    *m = (struct merge){0};
}

/* Of files, and of pairs in memory (n_more may be 0), none of which are changed. */
static int merge_open(const struct reach *x, struct merge *m, const struct run *const *runs, size_t n_runs,
                      const struct pair *more, size_t n_more, struct err *e)
{
    *m = (struct merge){.feeds = calloc(n_runs + 1, sizeof *m->feeds), .heap = calloc(n_runs + 1, sizeof *m->heap)};
    int rc = m->feeds && m->heap ? 0 : err_nomem(e);
    for (size_t i = 0; i < n_runs && rc == 0; i++) {
        struct feed *f = &m->feeds[m->n_feeds++];
        *f = (struct feed){.fd = runs[i]->fd, .left = runs[i]->n, .buffer = malloc(BUFFER)};
        if (!f->buffer)
            rc = err_nomem(e);
        else if (lseek(f->fd, 0, SEEK_SET) < 0)
            rc = file_failed(errno, "read", x, e);
        else
            rc = feed_fill(x, f, e);
    }
    if (rc == 0 && n_more)
        m->feeds[m->n_feeds++] = (struct feed){.fd = -1, .at = more, .n = n_more};
    for (size_t i = 0; i < m->n_feeds && rc == 0; i++)
        if (m->feeds[i].n)
            m->heap[m->n++] = i;
    for (size_t i = m->n; i-- > 0 && rc == 0;)
        heap_down(m, i);
    if (rc < 0)
        merge_clear(m);
    return rc;
}

/* 1: *ret is the next pair, each comes once; 0: there are no more. */
static int merge_next(const struct reach *x, struct merge *m, struct pair *ret, struct err *e)
{
    while (m->n) {
        struct feed *f = &m->feeds[m->heap[0]];
        *ret = f->at[f->next++];
        if (f->next == f->n && f->left) {
            const int rc = feed_fill(x, f, e);
            if (rc < 0)
                return rc;
        }
        if (f->next == f->n)
            m->heap[0] = m->heap[--m->n];
        heap_down(m, 0);
        if (m->any && compare_pairs(&m->last, ret) == 0)
            continue;
        m->any = true;
        m->last = *ret;
        return 1;
    }
    return 0;
}

/* ---- adding ---- */

int reach_new(struct reach **ret, const char *dir, size_t memory, struct err *e)
{
    struct reach *x = calloc(1, sizeof *x);
    if (x)
        x->cap = memory / 2 / sizeof *x->batch;
    if (!x || !(x->dir = strdup(dir)) || !(x->batch = malloc(x->cap * sizeof *x->batch))) {
        reach_free(x);
        return err_nomem(e);
    }
    *ret = x;
    return 0;
}

static void runs_close(struct reach *x, unsigned level)
{
    for (unsigned i = 0; i < x->n_runs[level]; i++)
        close(x->runs[level][i].fd);
    x->n_runs[level] = 0;
}

void reach_free(struct reach *x)
{
    if (!x)
        return;
    merge_clear(&x->merged);
    for (unsigned level = 0; level < LEVELS; level++)
        runs_close(x, level);
    free(x->group);
    free(x->batch);
    free(x->dir);
    free(x);
}

/* The files of a level become one. */
static int level_write(const struct reach *x, unsigned level, struct run *ret, struct err *e)
{
    CLEANUP_CLOSE int fd = -1;
    CLEANUP_FREE struct pair *out = malloc(BUFFER);
    const struct run *from[FAN];
    struct merge m;
    uint64_t n = 0;
    size_t fill = 0;
    if (!out)
        return err_nomem(e);
    for (unsigned i = 0; i < x->n_runs[level]; i++)
        from[i] = &x->runs[level][i];
    int rc = file_new(x, &fd, e);
    if (rc == 0)
        rc = merge_open(x, &m, from, x->n_runs[level], NULL, 0, e);
    if (rc < 0)
        return rc;
    while ((rc = merge_next(x, &m, &out[fill], e)) > 0) {
        n++;
        if (++fill < PER_BUFFER)
            continue;
        rc = write_pairs(x, fd, out, fill, e);
        fill = 0;
        if (rc < 0)
            break;
    }
    merge_clear(&m);
    if (rc == 0)
        rc = write_pairs(x, fd, out, fill, e);
    if (rc == 0)
        *ret = (struct run){.fd = take_fd(&fd), .n = n};
    return rc;
}

/* So that there is room for one more file of that level. */
static int level_make_room(struct reach *x, unsigned level, struct err *e)
{
    if (x->n_runs[level] < FAN)
        return 0;
    if (level + 1 == LEVELS)
        return err_set(e, ERR_GENERIC, EFBIG, "too many contents for the table in %s", x->dir);
    int rc = level_make_room(x, level + 1, e);
    if (rc == 0)
        rc = level_write(x, level, &x->runs[level + 1][x->n_runs[level + 1]], e);
    if (rc < 0)
        return rc;
    x->n_runs[level + 1]++;
    runs_close(x, level);
    return 0;
}

/* Sorts what is in memory; each pair stays once. */
static void batch_sort(struct reach *x)
{
    size_t n = 0;
    if (x->n > 1)
        qsort(x->batch, x->n, sizeof *x->batch, compare_pairs);
    for (size_t i = 0; i < x->n; i++)
        if (!n || compare_pairs(&x->batch[n - 1], &x->batch[i]) != 0)
            x->batch[n++] = x->batch[i];
    x->n = n;
}

static int batch_write(struct reach *x, struct err *e)
{
    CLEANUP_CLOSE int fd = -1;
    batch_sort(x);
    if (x->n < x->cap / 2) /* most were there more than once: there is room again */
        return 0;
    int rc = level_make_room(x, 0, e);
    if (rc == 0)
        rc = file_new(x, &fd, e);
    if (rc == 0)
        rc = write_pairs(x, fd, x->batch, x->n, e);
    if (rc < 0)
        return rc;
    x->runs[0][x->n_runs[0]++] = (struct run){.fd = take_fd(&fd), .n = x->n};
    x->n = 0;
    return 0;
}

static struct pair pair_of(const struct content_id *id, uint32_t volume)
{
    struct pair p = {.prefix = (uint8_t)id->prefix, .len = id->len};
    memcpy(p.hash, id->hash, sizeof p.hash);
    put_be32(p.volume, volume);
    return p;
}

int reach_add(struct reach *x, const struct content_id *id, uint32_t volume, struct err *e)
{
    x->batch[x->n++] = pair_of(id, volume);
    return x->n < x->cap ? 0 : batch_write(x, e);
}

/* ---- counting ---- */

/* The next pair, or that there is none. */
static int pair_read(struct reach *x, struct err *e)
{
    const int rc = merge_next(x, &x->merged, &x->next, e);
    x->has_next = rc > 0;
    return rc < 0 ? rc : 0;
}

int reach_settle(struct reach *x, struct err *e)
{
    const struct run *from[LEVELS * FAN];
    size_t n = 0;
    batch_sort(x);
    for (unsigned level = 0; level < LEVELS; level++)
        for (unsigned i = 0; i < x->n_runs[level]; i++)
            from[n++] = &x->runs[level][i];
    const int rc = merge_open(x, &x->merged, from, n, x->batch, x->n, e);
    return rc < 0 ? rc : pair_read(x, e);
}

/* The volumes of the content of the next pair, into x->group; returns how many. */
static int64_t group_read(struct reach *x, struct err *e)
{
    const struct pair first = x->next;
    size_t n = 0;
    while (x->has_next && memcmp(&first, &x->next, KEY) == 0) {
        if (n == x->group_cap) {
            const size_t cap = n ? 2 * n : 64;
            uint32_t *more = reallocarray(x->group, cap, sizeof *more);
            if (!more)
                return err_nomem(e);
            x->group = more;
            x->group_cap = cap;
        }
        x->group[n++] = get_be32(x->next.volume);
        const int rc = pair_read(x, e);
        if (rc < 0)
            return rc;
    }
    return (int64_t)n;
}

static void sum_content(struct reach_sum *s, uint32_t packed)
{
    s->n++;
    s->bytes += packed;
}

/* Contents before that of `until`, or all that are left if it is NULL: the index does not have them. */
static int count_missing(struct reach *x, const struct pair *until, struct reach_volume *volumes,
                         struct reach_total *total, struct err *e)
{
    while (x->has_next && (!until || memcmp(&x->next, until, KEY) < 0)) {
        const int64_t n = group_read(x, e);
        if (n < 0)
            return (int)n;
        total->missing++;
        for (int64_t i = 0; i < n; i++)
            volumes[x->group[i]].missing++;
    }
    return 0;
}

int reach_count(struct reach *x, const struct content_id *id, uint32_t packed, struct reach_volume *volumes,
                struct reach_total *total, struct err *e)
{
    const struct pair at = pair_of(id, 0);
    const int rc = count_missing(x, &at, volumes, total, e);
    if (rc < 0)
        return rc;
    const int64_t n = x->has_next && memcmp(&x->next, &at, KEY) == 0 ? group_read(x, e) : 0;
    if (n < 0)
        return (int)n;
    sum_content(n == 0 ? &total->unreached : n == 1 ? &total->exclusive : &total->shared, packed);
    for (int64_t i = 0; i < n; i++)
        sum_content(n == 1 ? &volumes[x->group[i]].exclusive : &volumes[x->group[i]].shared, packed);
    return 0;
}

int reach_end(struct reach *x, struct reach_volume *volumes, struct reach_total *total, struct err *e)
{
    return count_missing(x, NULL, volumes, total, e);
}
