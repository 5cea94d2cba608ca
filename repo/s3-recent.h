/* SPDX-License-Identifier: GPL-2.0-or-later */
/* s3-recent.h - what a process has put and deleted lately, for lists of servers that lag (internal to repo/) */
#ifndef SNAPFERRY_REPO_S3_RECENT_H
#define SNAPFERRY_REPO_S3_RECENT_H

#include "repo/blob.h"

#include <pthread.h>

#define S3_RECENT_NS (15 * NS_PER_MIN) /* what stock clients assume of slow servers */
#define S3_RECENT_MAX 16384            /* then the oldest are forgotten: 5 MB */

struct s3_change {
    char *name;
    uint64_t length;
    int64_t mtime_ns, since_ns; /* storage's clock; monotonic */
    bool deleted;
    bool seen; /* in a copy: it was listed */
    bool told; /* in a copy: by another process (s3-journal.h) */
};

struct s3_recent {
    pthread_mutex_t lock;
    struct s3_change *all; /* oldest first */
    size_t n, cap;
};

void s3_recent_init(struct s3_recent *r);
void s3_recent_clear(struct s3_recent *r);
/* Replaces an earlier change of the same blob. Thread-safe, as the others. */
int s3_recent_add(struct s3_recent *r, const char *name, uint64_t length, int64_t mtime_ns, bool deleted);
/* It is gone after all. */
void s3_recent_drop(struct s3_recent *r, const char *name);

/* Copies of those that begin with `prefix`, sorted by name. */
struct s3_changes {
    struct s3_change *all;
    size_t n;
};
int s3_recent_copy(struct s3_recent *r, const char *prefix, struct s3_changes *ret);
void s3_changes_free(struct s3_changes *c);
void s3_changes_sort(struct s3_changes *c);
/* NULL: none of that name. */
struct s3_change *s3_changes_find(const struct s3_changes *c, const char *name);

#endif
