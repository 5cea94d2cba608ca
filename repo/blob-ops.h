/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blob-ops.h - what a kind of store (directory, S3) provides to blob.c; included by stores only
 *
 * blob.c has checked every name (blob_name_ok()) before an operation is called, and updates the statistics. A store
 * embeds struct blobs as its first member. Operations follow the contract of blob.h.
 */
#ifndef SNAPFERRY_REPO_BLOB_OPS_H
#define SNAPFERRY_REPO_BLOB_OPS_H

#include "repo/blob.h"

struct blobs_ops {
    void (*free)(struct blobs *b);
    int (*read)(struct blobs *b, const char *name, uint64_t offset, void *dst, size_t len, struct err *e);
    /* As blobs_read_upto(). NULL: not from this store. */
    int (*read_upto)(struct blobs *b, const char *name, uint64_t offset, void *dst, size_t len, size_t *got,
                     struct err *e);
    /* A descriptor for reading the blob, owned by the caller. NULL: blobs are not files. */
    int (*open_file)(struct blobs *b, const char *name, struct err *e);
    int (*get)(struct blobs *b, const char *name, size_t max, uint8_t **ret, size_t *len, struct err *e);
    int (*stat)(struct blobs *b, const char *name, struct blob_info *ret, struct err *e);
    int (*put)(struct blobs *b, const char *name, const void *data, size_t len, struct err *e);
    int (*del)(struct blobs *b, const char *name, struct err *e);
    int (*move)(struct blobs *b, const char *from, const char *to, struct err *e); /* NULL: copied and deleted */
    int (*list)(struct blobs *b, const char *prefix, blob_list_fn *fn, void *arg, struct err *e);

    /* As blobs_is_listed(). NULL: lists are exact. */
    int (*is_listed)(struct blobs *b, const char *name, int64_t mtime_ns, struct err *e);

    /* As blobs_prepare(). NULL: there is nothing to read. */
    int (*prepare)(struct blobs *b, struct err *e);

    /* As blobs_check_layout(). NULL: there is none. */
    int (*check_layout)(struct blobs *b, struct err *e);

    /* NULL: a write leaves nothing behind. */
    int (*leftovers)(struct blobs *b, blob_list_fn *fn, void *arg, bool dry_run, struct blob_leftovers *ret,
                     struct err *e);

    /* NULL: unknown, nothing to reserve, no clock that can be read without writing. */
    int (*room)(struct blobs *b, struct blob_room *ret, struct err *e);
    void (*reserve)(struct blobs *b);
    int (*clock)(struct blobs *b, int64_t *ns, struct err *e);

    int (*writer_new)(struct blob_writer **ret, struct blobs *b, const char *name, struct err *e);
    int (*writer_write)(struct blob_writer *w, uint64_t offset, const void *data, size_t len, struct err *e);
    int (*writer_read)(struct blob_writer *w, uint64_t offset, void *data, size_t len, struct err *e);
    bool (*writer_at_once)(const struct blob_writer *w);                         /* NULL: never */
    int (*writer_commit)(struct blob_writer *w, uint64_t length, struct err *e); /* frees w in any case */
    void (*writer_abort)(struct blob_writer *w);                                 /* frees w */

    void (*retain)(struct blobs *b, const char *mode, int64_t period_ns); /* NULL: no object lock */
    int (*extend)(struct blobs *b, const char *name, struct err *e);      /* likewise */
    int (*takes_locks)(struct blobs *b, struct err *e);                   /* likewise */

    bool paced; /* the store keeps to blobs_limit() itself, while bytes move; else blob.c waits before */
};

struct blobs {
    const struct blobs_ops *ops;
    char *location;          /* malloc()ed by the store, freed by blobs_free() */
    struct blob_stats stats; /* changed atomically, like the next */
    struct blob_request_stats requests;
    struct throttle *reads, *writes; /* NULL: no limit */
    const _Atomic bool *stop;        /* NULL: never */
    const _Atomic bool *hurry;       /* likewise */
    _Atomic uint64_t *activity;      /* blobs_activity(); NULL: nobody's */
    unsigned uploads;                /* as blobs_uploads(); 0: 2, one may wait for the disk while the other writes */
    bool use_reserve;                /* blobs_use_reserve(); atomic */
    bool guessed;                    /* blobs_layout_is_guessed() */
    bool past;                       /* blobs_are_past() */
};

/* A store's writer embeds this first. */
struct blob_writer {
    struct blobs *b;
    uint64_t busy_ns; /* blob.c: in the store, of all threads; changed atomically */
};

static inline bool blobs_may_use_reserve(const struct blobs *b)
{
    return __atomic_load_n(&b->use_reserve, __ATOMIC_RELAXED);
}

/* A part of a request has succeeded. */
static inline void blob_activity(const struct blobs *b)
{
    if (b->activity)
        atomic_fetch_add_explicit(b->activity, 1, memory_order_relaxed);
}

/* ---- blob-stats.c ---- */
/* A request that began at `since_ns` has ended with rc (negative errno or not). */
void blob_count(struct blobs *b, enum blob_request q, uint64_t since_ns, int rc);

/* -ENOENT with class ERR_DAMAGE: the caller expects the blob to exist. */
int blob_missing(const struct blobs *b, const char *name, struct err *e);

#endif
