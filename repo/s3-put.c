/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/s3-put.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/time.h"
#include "repo/repo-impl.h"
#include "repo/s3-class.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file that is used for longer is written to the disk by the kernel, of which shorter ones are spared. */
#define SPOOL_NS (15 * NS_PER_S)

static struct s3_store *store_of(struct blobs *b)
{
    return (struct s3_store *)b;
}

/* ---- files ---- */

struct spooled {
    int fd;
    int64_t made_ns; /* mono_ns() */
};

struct s3_spool {
    char *dir;
    pthread_mutex_t lock; /* of free, n_free and putting */
    pthread_cond_t put;
    unsigned n_free, keep, putting, puts;
    struct spooled free[];
};

struct s3_spool *s3_spool_new(const char *dir, unsigned keep, unsigned puts, struct err *e)
{
    struct s3_spool *p = calloc(1, sizeof *p + keep * sizeof *p->free);
    if (p)
        p->dir = strdup(dir);
    if (!p || !p->dir) {
        free(p);
        err_nomem(e);
        return NULL;
    }
    p->keep = keep;
    p->puts = puts;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->put, NULL);
    return p;
}

void s3_spool_free(struct s3_spool *p)
{
    if (!p)
        return;
    while (p->n_free > 0)
        close(p->free[--p->n_free].fd);
    pthread_cond_destroy(&p->put);
    pthread_mutex_destroy(&p->lock);
    free(p->dir);
    free(p);
}

static int spool_failed(const struct s3_store *s, const char *verb, int sys, struct err *e)
{
    err_set(e, ERR_GENERIC, sys, "cannot %s a temporary file in %s, where packs wait for their upload", verb,
            s->spool->dir);
    return sys == ENOSPC || sys == EDQUOT ? err_hint(e, "free space there: the packs of a backup need up to 250 MB")
           : e                            ? -e->sys
                                          : -EIO;
}

static int spool_make(const struct s3_store *s, struct err *e)
{
    const char *dir = s->spool->dir;
    int rc = make_dirs(dir, e);
    if (rc < 0)
        return rc;
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
        CLEANUP_FREE char *path = NULL;
        if (asprintf(&path, "%s/.pack-XXXXXX", dir) < 0) {
            path = NULL;
            return err_nomem(e);
        }
        fd = mkostemp(path, O_CLOEXEC);
        if (fd >= 0)
            unlink(path);
    }
    return fd < 0 ? spool_failed(s, "make", errno, e) : fd;
}

/* A file of any length and content. */
static int spool_take(const struct s3_store *s, struct spooled *ret, struct err *e)
{
    struct s3_spool *p = s->spool;
    *ret = (struct spooled){.fd = -1};
    pthread_mutex_lock(&p->lock);
    while (p->n_free > 0 && ret->fd < 0) {
        *ret = p->free[--p->n_free];
        if (mono_ns() - ret->made_ns > SPOOL_NS) {
            close(ret->fd);
            ret->fd = -1;
        }
    }
    pthread_mutex_unlock(&p->lock);
    if (ret->fd >= 0)
        return 0;
    ret->made_ns = mono_ns();
    ret->fd = spool_make(s, e);
    return ret->fd < 0 ? ret->fd : 0;
}

static void spool_give(struct s3_spool *p, struct spooled f)
{
    pthread_mutex_lock(&p->lock);
    const bool keep = p->n_free < p->keep;
    if (keep)
        p->free[p->n_free++] = f;
    pthread_mutex_unlock(&p->lock);
    if (!keep)
        close(f.fd);
}

/* ---- a blob ---- */

static int put_body(struct s3_store *s, const char *name, const struct s3_sums *m, const void *data, int fd,
                    uint64_t length, struct err *e)
{
    char what[400], class[S3_CLASS_MAX + 1];
    int rc = s3_class_of(s, name, class, e);
    if (rc < 0)
        return rc;
    snprintf(what, sizeof what, "write blob %s in %s", name, s->base.location);
    struct s3_call q = {.s = s, .method = "PUT", .name = name, .query = "", .md5 = m->md5};
    q.body_hash = s->tls ? NULL : m->sha;
    q.storage_class = class;
    q.x.has_body = true;
    q.x.data = data;
    q.x.fd = fd;
    q.x.length = length;
    rc = s3_call(&q, e);
    if (rc < 0)
        return rc;
    if (!s3_succeeded(&q))
        return q.result == S3_SINK ? spool_failed(s, "read", EIO, e) : s3_call_failed(&q, what, e);
    const int64_t when = q.x.date_ns ? q.x.date_ns : now_ns();
    s3_journal_add(s->journal, name, length, when, false);
    if (s3_recent_add(&s->recent, name, length, when, false) < 0)
        return err_nomem(e);
    return 0;
}

int s3_put(struct blobs *b, const char *name, const void *data, size_t len, struct err *e)
{
    struct s3_store *s = store_of(b);
    struct s3_sums m;
    const int rc = s3_summer_memory(s->summer, data, len, &m, e);
    return rc < 0 ? rc : put_body(s, name, &m, len ? data : "", -1, len, e);
}

/* ---- packs ---- */

struct s3_writer {
    struct blob_writer base;
    struct spooled file;
    pthread_mutex_t lock; /* of the next */
    uint64_t end;         /* of what was written: behind it the file has what it had before */
    char name[BLOB_NAME_MAX + 1];
};

static struct s3_writer *writer_of(struct blob_writer *w)
{
    return (struct s3_writer *)w;
}

int s3_writer_new(struct blob_writer **ret, struct blobs *b, const char *name, struct err *e)
{
    struct s3_writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_nomem(e);
    const int rc = spool_take(store_of(b), &w->file, e);
    if (rc < 0) {
        free(w);
        return rc;
    }
    pthread_mutex_init(&w->lock, NULL);
    w->base.b = b;
    snprintf(w->name, sizeof w->name, "%s", name);
    *ret = &w->base;
    return 0;
}

static int write_file(struct s3_writer *w, uint64_t offset, const void *data, size_t len, struct err *e)
{
    for (size_t done = 0; done < len;) {
        const ssize_t n = pwrite(w->file.fd, (const char *)data + done, len - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return spool_failed(store_of(w->base.b), "write", n < 0 ? errno : EIO, e);
        done += (size_t)n;
    }
    return 0;
}

/* The end of the blob is at least `end`. What is between the old end and `from` is a hole, until it is written. */
static int writer_extend(struct s3_writer *w, uint64_t from, uint64_t end, struct err *e)
{
    static const uint8_t zeros[64 << 10];
    int rc = 0;
    pthread_mutex_lock(&w->lock);
    while (rc == 0 && w->end < from) {
        const size_t n = from - w->end < sizeof zeros ? (size_t)(from - w->end) : sizeof zeros;
        rc = write_file(w, w->end, zeros, n, e);
        w->end += n;
    }
    w->end = w->end < end ? end : w->end;
    pthread_mutex_unlock(&w->lock);
    return rc;
}

int s3_writer_write(struct blob_writer *base, uint64_t offset, const void *data, size_t len, struct err *e)
{
    struct s3_writer *w = writer_of(base);
    int rc = writer_extend(w, offset, offset + len, e);
    if (rc == 0)
        rc = write_file(w, offset, data, len, e);
    s3_summer_written(store_of(base->b)->summer);
    return rc;
}

int s3_writer_read(struct blob_writer *base, uint64_t offset, void *data, size_t len, struct err *e)
{
    const struct s3_writer *w = writer_of(base);
    while (len > 0) {
        const ssize_t n = pread(w->file.fd, data, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return spool_failed(store_of(base->b), "read", n < 0 ? errno : EIO, e);
        data = (char *)data + n;
        offset += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

void s3_writer_abort(struct blob_writer *base)
{
    struct s3_writer *w = writer_of(base);
    spool_give(store_of(base->b)->spool, w->file);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* More packs than are uploaded at a time may wait for their sums. */
static void put_begin(struct s3_spool *p)
{
    pthread_mutex_lock(&p->lock);
    while (p->putting >= p->puts)
        pthread_cond_wait(&p->put, &p->lock);
    p->putting++;
    pthread_mutex_unlock(&p->lock);
}

static void put_end(struct s3_spool *p)
{
    pthread_mutex_lock(&p->lock);
    p->putting--;
    pthread_cond_signal(&p->put);
    pthread_mutex_unlock(&p->lock);
}

/* Less than was written is possible. */
int s3_writer_commit(struct blob_writer *base, uint64_t length, struct err *e)
{
    struct s3_writer *w = writer_of(base);
    struct s3_store *s = store_of(base->b);
    struct s3_sums sums;
    int read = length > w->end ? -EIO : 0;
    int rc = read ? read : s3_summer_file(s->summer, w->file.fd, length, &sums, &read, e);
    if (read)
        rc = spool_failed(s, "read", -read, e);
    if (rc == 0) {
        put_begin(s->spool);
        rc = put_body(s, w->name, &sums, NULL, w->file.fd, length, e);
        put_end(s->spool);
    }
    s3_writer_abort(base);
    return rc;
}
