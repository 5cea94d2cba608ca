/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * wrapped_store.h - a directory store with a test in between: it counts, records the order of changes, and makes chosen
 * operations fail or tell another time, lists lack a blob, and reads of packs count and set a flag
 */
#ifndef SNAPFERRY_TESTS_UNIT_WRAPPED_STORE_H
#define SNAPFERRY_TESTS_UNIT_WRAPPED_STORE_H

#include "repo/blob-ops.h"

#include <pthread.h>

#define WRAP_LOG 4096

/* What a test sets and sees; lives as long as the test, longer than the store. */
struct wrap_control {
    pthread_mutex_t lock;
    unsigned changes; /* put, writer_new, writer_write, writer_commit, del so far */
    unsigned fail_at; /* the change that fails (1 = the next), 0: none */
    char fail_letter; /* or: the next change of a blob whose name begins with it */
    int fail_errno;
    bool failed;      /* it did */
    int64_t shift_ns; /* added to the store's time */
    /* Lists lack the blob of this name; and it is looked at with this error, 0: as it is. "": none. */
    char hidden[BLOB_NAME_MAX + 1];
    int hidden_errno;
    bool lags; /* lists may lag: set before the store is made. So often an index blob is not listed yet: */
    unsigned unlisted;
    /* Bytes read of packs; when they pass `flag_at` the flag is set, NULL: none. */
    _Atomic uint64_t pack_bytes;
    uint64_t flag_at;
    _Atomic bool *flag;
    int flag_errno; /* reads fail with it from then on, 0: they do not */
    unsigned packs; /* committed */
    struct {
        char op; /* 'P' put, 'C' pack committed, 'D' deleted */
        char name[BLOB_NAME_MAX + 1];
    } log[WRAP_LOG];
    unsigned n_log;
};

#define WRAP_INIT                                                                                                      \
    {                                                                                                                  \
        .lock = PTHREAD_MUTEX_INITIALIZER, .fail_errno = ENOSPC                                                        \
    }

struct wrap_store {
    struct blobs base;
    struct blobs *inner;
    struct wrap_control *c;
};

struct wrap_writer {
    struct blob_writer base;
    struct blob_writer *inner;
    char name[BLOB_NAME_MAX + 1];
};

static inline struct wrap_store *wrap_of(struct blobs *b)
{
    return (struct wrap_store *)(void *)b;
}

static inline int wrap_change(struct wrap_control *c, const char *name, struct err *e)
{
    pthread_mutex_lock(&c->lock);
    bool fail = ++c->changes == c->fail_at || (c->fail_letter && c->fail_letter == name[0]);
    if (fail)
        c->fail_letter = 0;
    c->failed = c->failed || fail;
    pthread_mutex_unlock(&c->lock);
    return fail ? err_set(e, ERR_GENERIC, c->fail_errno, "injected failure at %s", name) : 0;
}

static inline void wrap_note(struct wrap_control *c, char op, const char *name)
{
    pthread_mutex_lock(&c->lock);
    if (op == 'C')
        c->packs++;
    if (c->n_log < WRAP_LOG) {
        c->log[c->n_log].op = op;
        snprintf(c->log[c->n_log++].name, BLOB_NAME_MAX + 1, "%s", name);
    }
    pthread_mutex_unlock(&c->lock);
}

static void wrap_free(struct blobs *b)
{
    blobs_free(wrap_of(b)->inner);
    free(b);
}

static int wrap_read(struct blobs *b, const char *name, uint64_t offset, void *dst, size_t len, struct err *e)
{
    struct wrap_control *c = wrap_of(b)->c;
    if (name[0] == 'p' && atomic_fetch_add(&c->pack_bytes, len) + len > c->flag_at && c->flag)
        atomic_store(c->flag, true);
    if (name[0] == 'p' && c->flag_errno && c->pack_bytes > c->flag_at)
        return err_set(e, ERR_GENERIC, c->flag_errno, "cannot read %s", name);
    return blobs_read(wrap_of(b)->inner, name, offset, dst, len, e);
}

static int wrap_get(struct blobs *b, const char *name, size_t max, uint8_t **ret, size_t *len, struct err *e)
{
    return blobs_get(wrap_of(b)->inner, name, max, ret, len, e);
}

static int wrap_stat(struct blobs *b, const char *name, struct blob_info *ret, struct err *e)
{
    const struct wrap_control *c = wrap_of(b)->c;
    if (c->hidden_errno && !strcmp(c->hidden, name))
        return err_set(e, ERR_GENERIC, c->hidden_errno, "cannot look at %s", name);
    int rc = blobs_stat(wrap_of(b)->inner, name, ret, e);
    if (rc == 0)
        ret->mtime_ns += wrap_of(b)->c->shift_ns;
    return rc;
}

static int wrap_put(struct blobs *b, const char *name, const void *data, size_t len, struct err *e)
{
    int rc = wrap_change(wrap_of(b)->c, name, e);
    if (rc == 0)
        rc = blobs_put(wrap_of(b)->inner, name, data, len, e);
    if (rc == 0)
        wrap_note(wrap_of(b)->c, 'P', name);
    return rc;
}

static int wrap_del(struct blobs *b, const char *name, struct err *e)
{
    int rc = wrap_change(wrap_of(b)->c, name, e);
    if (rc == 0)
        rc = blobs_delete(wrap_of(b)->inner, name, e);
    if (rc == 0)
        wrap_note(wrap_of(b)->c, 'D', name);
    return rc;
}

static int wrap_is_listed(struct blobs *b, const char *name, int64_t mtime_ns, struct err *e)
{
    struct wrap_control *c = wrap_of(b)->c;
    (void)mtime_ns;
    (void)e;
    return name[0] != 'x' || !c->unlisted || c->unlisted-- == 0;
}

struct wrap_list_arg {
    blob_list_fn *fn;
    void *arg;
    int64_t shift_ns;
    const char *hidden;
};

static int wrap_list_one(const struct blob_info *info, void *arg)
{
    const struct wrap_list_arg *a = arg;
    struct blob_info shifted = *info;
    if (!strcmp(a->hidden, info->name))
        return 0;
    shifted.mtime_ns += a->shift_ns;
    return a->fn(&shifted, a->arg);
}

static int wrap_list(struct blobs *b, const char *prefix, blob_list_fn *fn, void *arg, struct err *e)
{
    struct wrap_list_arg a = {fn, arg, wrap_of(b)->c->shift_ns, wrap_of(b)->c->hidden};
    return blobs_list(wrap_of(b)->inner, prefix, wrap_list_one, &a, e);
}

static int wrap_writer_new(struct blob_writer **ret, struct blobs *b, const char *name, struct err *e)
{
    int rc = wrap_change(wrap_of(b)->c, name, e);
    if (rc < 0)
        return rc;
    struct wrap_writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_nomem(e);
    w->base.b = b;
    snprintf(w->name, sizeof w->name, "%s", name);
    rc = blob_writer_new(&w->inner, wrap_of(b)->inner, name, e);
    if (rc < 0) {
        free(w);
        return rc;
    }
    *ret = &w->base;
    return 0;
}

static int wrap_writer_write(struct blob_writer *bw, uint64_t offset, const void *data, size_t len, struct err *e)
{
    struct wrap_writer *w = (struct wrap_writer *)(void *)bw;
    int rc = wrap_change(wrap_of(bw->b)->c, w->name, e);
    return rc < 0 ? rc : blob_writer_write(w->inner, offset, data, len, e);
}

static int wrap_writer_read(struct blob_writer *bw, uint64_t offset, void *data, size_t len, struct err *e)
{
    return blob_writer_read(((struct wrap_writer *)(void *)bw)->inner, offset, data, len, e);
}

static void wrap_writer_abort(struct blob_writer *bw)
{
    blob_writer_abort(((struct wrap_writer *)(void *)bw)->inner);
    free(bw);
}

static int wrap_writer_commit(struct blob_writer *bw, uint64_t length, struct err *e)
{
    struct wrap_writer *w = (struct wrap_writer *)(void *)bw;
    struct wrap_control *c = wrap_of(bw->b)->c;
    int rc = wrap_change(c, w->name, e);
    if (rc < 0) {
        wrap_writer_abort(bw);
        return rc;
    }
    rc = blob_writer_commit(w->inner, length, e);
    if (rc == 0)
        wrap_note(c, 'C', w->name);
    free(w);
    return rc;
}

/* Takes over `inner`. */
static inline struct blobs *wrap_store_new(struct blobs *inner, struct wrap_control *c)
{
    static const struct blobs_ops exact = {
        .free = wrap_free,
        .read = wrap_read,
        .get = wrap_get,
        .stat = wrap_stat,
        .put = wrap_put,
        .del = wrap_del,
        .list = wrap_list,
        .writer_new = wrap_writer_new,
        .writer_write = wrap_writer_write,
        .writer_read = wrap_writer_read,
        .writer_commit = wrap_writer_commit,
        .writer_abort = wrap_writer_abort,
    };
    static struct blobs_ops lagging;
    struct wrap_store *w = calloc(1, sizeof *w);
    assert_non_null(w);
    lagging = exact;
    lagging.is_listed = wrap_is_listed;
    w->base.ops = c->lags ? &lagging : &exact;
    w->base.location = strdup(blobs_location(inner));
    w->inner = inner;
    w->c = c;
    return &w->base;
}

#endif
