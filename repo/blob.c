/* SPDX-License-Identifier: GPL-2.0-or-later */
/* blob.c - the operations of every store: names are checked, requests counted, then passed to the store */
#include "repo/blob.h"
#include "base/cleanup.h"
#include "base/time.h"
#include "repo/blob-ops.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static void counter_add(uint64_t *counter, uint64_t n)
{
    __atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

/* A name becomes part of a path or an object key: it must not lead elsewhere. */
static int check_name(const struct blobs *b, const char *name, struct err *e)
{
    size_t len = strnlen(name, BLOB_NAME_MAX + 1);
    if (len >= 1 && len <= BLOB_NAME_MAX && name[0] != '.' && !strchr(name, '/') && !strstr(name, ".."))
        return 0;
    return err_set(e, ERR_GENERIC, EINVAL, "invalid blob name \"%.300s\" (repository %s)", name, b->location);
}

int blob_missing(const struct blobs *b, const char *name, struct err *e)
{
    err_set(e, ERR_DAMAGE, 0, "blob %s is missing in repository %s", name, b->location);
    if (e)
        e->sys = ENOENT; /* the message contains it already */
    return -ENOENT;
}

void blobs_free(struct blobs *b)
{
    if (!b)
        return;
    free(b->location);
    b->ops->free(b);
}

const char *blobs_location(const struct blobs *b)
{
    return b->location;
}

bool blobs_are_past(const struct blobs *b)
{
    return b->past;
}

void blobs_stats(struct blobs *b, struct blob_stats *ret)
{
    ret->puts = __atomic_load_n(&b->stats.puts, __ATOMIC_RELAXED);
    ret->put_bytes = __atomic_load_n(&b->stats.put_bytes, __ATOMIC_RELAXED);
    ret->gets = __atomic_load_n(&b->stats.gets, __ATOMIC_RELAXED);
    ret->get_bytes = __atomic_load_n(&b->stats.get_bytes, __ATOMIC_RELAXED);
    ret->deletes = __atomic_load_n(&b->stats.deletes, __ATOMIC_RELAXED);
    ret->lists = __atomic_load_n(&b->stats.lists, __ATOMIC_RELAXED);
}

unsigned blobs_uploads(const struct blobs *b)
{
    return b->uploads ? b->uploads : 2;
}

void blobs_limit(struct blobs *b, struct throttle *reads, struct throttle *writes)
{
    b->reads = reads;
    b->writes = writes;
}

const _Atomic bool *blobs_stop(struct blobs *b, const _Atomic bool *requested)
{
    const _Atomic bool *before = b->stop;
    b->stop = requested;
    return before;
}

void blobs_hurry(struct blobs *b, const _Atomic bool *requested)
{
    b->hurry = requested;
}

void blobs_activity(struct blobs *b, _Atomic uint64_t *counter)
{
    b->activity = counter;
}

void blobs_retain(struct blobs *b, const char *mode, int64_t period_ns)
{
    if (b->ops->retain)
        b->ops->retain(b, mode, period_ns);
}

int blobs_stopped(const struct blobs *b, struct err *e)
{
    return b->stop && atomic_load_explicit(b->stop, memory_order_relaxed)
               ? err_set(e, ERR_INTERRUPTED, ECANCELED, "interrupted while repository %s was read", b->location)
               : 0;
}

/* got NULL: all of it, or an error. */
static int read_range(struct blobs *b, const char *name, uint64_t offset, void *dst, size_t len, size_t *got,
                      struct err *e)
{
    int rc = check_name(b, name, e);
    if (rc < 0)
        return rc;
    if (offset > INT64_MAX || len > INT64_MAX - offset)
        return err_set(e, ERR_DAMAGE, EBADMSG, "read of blob %s in repository %s beyond the maximum length of a blob",
                       name, b->location);
    if (!b->ops->paced)
        throttle_wait(b->reads, len);
    const uint64_t since = mono_ns();
    rc = got ? b->ops->read_upto(b, name, offset, dst, len, got, e) : b->ops->read(b, name, offset, dst, len, e);
    blob_count(b, BLOB_REQUEST_GET, since, rc);
    if (rc < 0)
        return rc;
    counter_add(&b->stats.gets, 1);
    counter_add(&b->stats.get_bytes, got ? *got : len);
    return 0;
}

int blobs_read(struct blobs *b, const char *name, uint64_t offset, void *dst, size_t len, struct err *e)
{
    return read_range(b, name, offset, dst, len, NULL, e);
}

int blobs_read_upto(struct blobs *b, const char *name, uint64_t offset, void *dst, size_t len, size_t *got,
                    struct err *e)
{
    if (!b->ops->read_upto)
        return err_set(e, ERR_GENERIC, EOPNOTSUPP, "repository %s reads whole ranges only", b->location);
    return read_range(b, name, offset, dst, len, got, e);
}

int blobs_open_file(struct blobs *b, const char *name, struct err *e)
{
    int rc = check_name(b, name, e);
    if (rc < 0)
        return rc;
    if (!b->ops->open_file)
        return err_set(e, ERR_GENERIC, EOPNOTSUPP, "repository %s does not store blobs in files", b->location);
    return b->ops->open_file(b, name, e);
}

bool blobs_layout_is_guessed(const struct blobs *b)
{
    return b->guessed;
}

int blobs_check_layout(struct blobs *b, struct err *e)
{
    return b->ops->check_layout ? b->ops->check_layout(b, e) : 0;
}

bool blobs_are_files(const struct blobs *b)
{
    return b->ops->open_file != NULL;
}

int blobs_get(struct blobs *b, const char *name, size_t max, uint8_t **ret, size_t *len, struct err *e)
{
    int rc = check_name(b, name, e);
    if (rc == 0)
        rc = blobs_stopped(b, e);
    if (rc < 0)
        return rc;
    const uint64_t since = mono_ns();
    rc = b->ops->get(b, name, max, ret, len, e);
    blob_count(b, BLOB_REQUEST_GET, since, rc);
    if (rc < 0)
        return rc;
    counter_add(&b->stats.gets, 1);
    counter_add(&b->stats.get_bytes, *len);
    return 0;
}

int blobs_stat(struct blobs *b, const char *name, struct blob_info *ret, struct err *e)
{
    int rc = check_name(b, name, e);
    if (rc < 0)
        return rc;
    const uint64_t since = mono_ns();
    rc = b->ops->stat(b, name, ret, e);
    blob_count(b, BLOB_REQUEST_STAT, since, rc);
    return rc;
}

int blobs_put(struct blobs *b, const char *name, const void *data, size_t len, struct err *e)
{
    int rc = check_name(b, name, e);
    if (rc < 0)
        return rc;
    if (!b->ops->paced)
        throttle_wait(b->writes, len);
    const uint64_t since = mono_ns();
    rc = b->ops->put(b, name, data, len, e);
    blob_count(b, BLOB_REQUEST_PUT, since, rc);
    if (rc < 0)
        return rc;
    counter_add(&b->stats.puts, 1);
    counter_add(&b->stats.put_bytes, len);
    return 0;
}

bool blobs_have_locks(const struct blobs *b)
{
    return b->ops->extend != NULL;
}

int blobs_prepare(struct blobs *b, struct err *e)
{
    return b->ops->prepare ? b->ops->prepare(b, e) : 0;
}

int blobs_take_locks(struct blobs *b, struct err *e)
{
    return b->ops->takes_locks ? b->ops->takes_locks(b, e) : 0;
}

int blobs_extend(struct blobs *b, const char *name, struct err *e)
{
    int rc = check_name(b, name, e);
    if (rc < 0)
        return rc;
    if (!b->ops->extend)
        return err_set(e, ERR_GENERIC, EOPNOTSUPP, "repository %s has no object locks", b->location);
    const uint64_t since = mono_ns();
    rc = b->ops->extend(b, name, e);
    blob_count(b, BLOB_REQUEST_PUT, since, rc);
    return rc;
}

int blobs_delete(struct blobs *b, const char *name, struct err *e)
{
    int rc = check_name(b, name, e);
    if (rc < 0)
        return rc;
    const uint64_t since = mono_ns();
    rc = b->ops->del(b, name, e);
    blob_count(b, BLOB_REQUEST_DELETE, since, rc);
    if (rc < 0)
        return rc;
    counter_add(&b->stats.deletes, 1);
    return 0;
}

#define MOVE_PIECE ((size_t)1 << 20)

static int copy_under(struct blobs *b, const struct blob_info *from, const char *to, struct err *e)
{
    struct blob_writer *w;
    CLEANUP_FREE uint8_t *piece = malloc(MOVE_PIECE);
    if (!piece)
        return err_nomem(e);
    int rc = blob_writer_new(&w, b, to, e);
    if (rc < 0)
        return rc;
    for (uint64_t at = 0; rc == 0 && at < from->length; at += MOVE_PIECE) {
        const size_t n = from->length - at < MOVE_PIECE ? (size_t)(from->length - at) : MOVE_PIECE;
        rc = blobs_read(b, from->name, at, piece, n, e);
        if (rc == 0)
            rc = blob_writer_write(w, at, piece, n, e);
    }
    if (rc == 0)
        return blob_writer_commit(w, from->length, e);
    blob_writer_abort(w);
    return rc;
}

int blobs_move(struct blobs *b, const char *from, const char *to, struct err *e)
{
    struct blob_info info, copy;
    int rc = check_name(b, from, e);
    if (rc == 0)
        rc = check_name(b, to, e);
    if (rc < 0)
        return rc;
    if (b->ops->move) {
        const uint64_t since = mono_ns();
        rc = b->ops->move(b, from, to, e);
        blob_count(b, BLOB_REQUEST_PUT, since, rc);
        return rc;
    }
    rc = blobs_stat(b, from, &info, e);
    if (rc == 0)
        rc = copy_under(b, &info, to, e);
    if (rc == 0)
        rc = blobs_stat(b, to, &copy, e);
    if (rc == 0 && copy.length != info.length)
        return err_set(e, ERR_DAMAGE, EBADMSG, "copy %s of blob %s has another length", to, from);
    return rc == 0 ? blobs_delete(b, from, e) : rc;
}

struct listing {
    const struct blobs *b;
    blob_list_fn *fn;
    void *arg;
    struct err *e;
};
static int list_one(const struct blob_info *info, void *arg)
{
    const struct listing *l = arg;
    int rc = blobs_stopped(l->b, l->e);
    blob_activity(l->b);
    return rc < 0 ? rc : l->fn(info, l->arg);
}

int blobs_list(struct blobs *b, const char *prefix, blob_list_fn *fn, void *arg, struct err *e)
{
    struct listing l = {b, fn, arg, e};
    const bool own = b->stop || b->activity;
    counter_add(&b->stats.lists, 1);
    const uint64_t since = mono_ns();
    int rc = b->ops->list(b, prefix ? prefix : "", own ? list_one : fn, own ? (void *)&l : arg, e);
    /* What the caller's function returns is not an error of the store. */
    blob_count(b, BLOB_REQUEST_LIST, since, rc < 0 && e && e->cls ? rc : 0);
    return rc;
}

bool blobs_lists_lag(const struct blobs *b)
{
    return b->ops->is_listed != NULL;
}

int blobs_is_listed(struct blobs *b, const char *name, int64_t mtime_ns, struct err *e)
{
    int rc = check_name(b, name, e);
    if (rc < 0 || !b->ops->is_listed)
        return rc < 0 ? rc : 1;
    const uint64_t since = mono_ns();
    rc = b->ops->is_listed(b, name, mtime_ns, e);
    blob_count(b, BLOB_REQUEST_LIST, since, rc);
    if (rc >= 0)
        counter_add(&b->stats.lists, 1);
    return rc;
}

int blobs_leftovers(struct blobs *b, blob_list_fn *fn, void *arg, bool dry_run, struct blob_leftovers *ret,
                    struct err *e)
{
    struct listing l = {b, fn, arg, e};
    *ret = (struct blob_leftovers){0};
    return b->ops->leftovers ? b->ops->leftovers(b, list_one, &l, dry_run, ret, e) : 0;
}

bool blobs_use_reserve(struct blobs *b, bool on)
{
    return __atomic_exchange_n(&b->use_reserve, on, __ATOMIC_RELAXED);
}

void blobs_reserve(struct blobs *b)
{
    if (b->ops->reserve)
        b->ops->reserve(b);
}

int blobs_room(struct blobs *b, struct blob_room *ret, struct err *e)
{
    *ret = (struct blob_room){0};
    return b->ops->room ? b->ops->room(b, ret, e) : -EOPNOTSUPP;
}

int blobs_clock(struct blobs *b, int64_t *ns, struct err *e)
{
    return b->ops->clock ? b->ops->clock(b, ns, e) : -EOPNOTSUPP;
}

int blob_writer_new(struct blob_writer **ret, struct blobs *b, const char *name, struct err *e)
{
    int rc = check_name(b, name, e);
    if (rc < 0)
        return rc;
    const uint64_t since = mono_ns();
    rc = b->ops->writer_new(ret, b, name, e);
    if (rc < 0)
        blob_count(b, BLOB_REQUEST_PUT, since, rc);
    else
        (*ret)->busy_ns = mono_ns() - since;
    return rc;
}

int blob_writer_write(struct blob_writer *w, uint64_t offset, const void *data, size_t len, struct err *e)
{
    if (!w->b->ops->paced)
        throttle_wait(w->b->writes, len);
    const uint64_t since = mono_ns();
    int rc = w->b->ops->writer_write(w, offset, data, len, e);
    counter_add(&w->busy_ns, mono_ns() - since);
    if (rc < 0)
        blob_count(w->b, BLOB_REQUEST_PUT, since, rc);
    else
        blob_activity(w->b);
    return rc;
}

int blob_writer_read(struct blob_writer *w, uint64_t offset, void *data, size_t len, struct err *e)
{
    return w->b->ops->writer_read(w, offset, data, len, e);
}

bool blob_writer_at_once(const struct blob_writer *w)
{
    return w->b->ops->writer_at_once && w->b->ops->writer_at_once(w);
}

int blob_writer_commit(struct blob_writer *w, uint64_t length, struct err *e)
{
    struct blobs *b = w->b;
    /* The time between writes is not time of the store. */
    const uint64_t since = mono_ns() - __atomic_load_n(&w->busy_ns, __ATOMIC_RELAXED);
    int rc = b->ops->writer_commit(w, length, e);
    blob_count(b, BLOB_REQUEST_PUT, since, rc);
    if (rc < 0)
        return rc;
    counter_add(&b->stats.puts, 1);
    counter_add(&b->stats.put_bytes, length);
    return 0;
}

void blob_writer_abort(struct blob_writer *w)
{
    if (w)
        w->b->ops->writer_abort(w);
}
