/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/target-nbd.h"

#include "base/cleanup.h"
#include "base/time.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Zeroed by one request: more if the server is fast, since a long hole has many. */
#define ZERO_MIN ((uint64_t)32 << 20)
#define ZERO_MAX ((uint64_t)2 << 30)
#define ZERO_FAST_NS (500 * NS_PER_MS)

static const uint8_t zeros[1u << 20];

struct nbd_target {
    struct nbd_link *link;
    const struct nbd_facts *facts;
    char name[NBD_URI_MAX];
    const _Atomic bool *stop;
    pthread_mutex_t edge_mu; /* one block at a time is read, changed and written */
    _Atomic bool no_zero;    /* WRITE_ZEROES is not there, or was refused */
    _Atomic uint64_t zero_step;
};

static uint64_t round_down(uint64_t x, uint64_t a)
{
    return x - x % a;
}

/* ---- opening ---- */

/* The server is not there, or does not open it: as if the connection had been lost. */
static int as_target(int rc, struct err *e)
{
    if (!e || e->cls != ERR_SOURCE)
        return rc;
    e->cls = ERR_TARGET;
    e->sys = ESHUTDOWN;
    return -ESHUTDOWN;
}

static int check_export(const struct nbd_target *t, uint64_t size, struct err *e)
{
    if (t->facts->read_only) {
        err_set(e, ERR_PERMISSION, EROFS, "restore target %s is exported read-only", t->name);
        return err_hint(e, "qemu-nbd and nbdkit export read-only with --read-only (-r)");
    }
    if (t->facts->size < size) {
        err_set(e, ERR_TARGET, 0, "restore target %s is too small: it has %" PRIu64 " bytes, the image has %" PRIu64,
                t->name, t->facts->size, size);
        err_hint(e, "restore to an export of at least that size, or to a file");
        return -ENOSPC;
    }
    if (t->facts->size > size)
        log_warning("restore target %s has %" PRIu64 " bytes, the image %" PRIu64 ": the rest is left as it is",
                    t->name, t->facts->size, size);
    if (!t->facts->flush)
        log_warning("the server of %s has no FLUSH: what it has answered is taken for durable", t->name);
    return 0;
}

int nbd_target_open(struct nbd_target **ret, int fd, const char *address, uint64_t size, const _Atomic bool *stop,
                    struct err *e)
{
    CLEANUP_CLOSE int socket = fd;
    struct nbd_uri u;
    int rc = nbd_uri_parse(&u, address, e);
    if (rc < 0)
        return rc;
    struct nbd_target *t = calloc(1, sizeof *t);
    if (!t)
        return err_nomem(e);
    nbd_uri_text(&u, t->name);
    t->stop = stop;
    t->zero_step = ZERO_MIN;
    pthread_mutex_init(&t->edge_mu, NULL);
    if (socket < 0)
        rc = nbd_dial(&u, &socket, stop, e);
    if (rc == 0)
        rc = nbd_link_open(&t->link, take_fd(&socket), &u, &(struct nbd_link_opts){.target = true, .stop = stop}, e);
    if (rc == 0) {
        t->facts = nbd_link_facts(t->link);
        t->no_zero = !t->facts->zero;
        rc = check_export(t, size, e);
    }
    if (rc < 0) {
        nbd_target_free(t);
        return as_target(rc, e);
    }
    *ret = t;
    return 0;
}

void nbd_target_free(struct nbd_target *t)
{
    if (!t)
        return;
    nbd_link_free(t->link);
    pthread_mutex_destroy(&t->edge_mu);
    free(t);
}

uint64_t nbd_target_size(const struct nbd_target *t)
{
    return t->facts->size;
}

int nbd_target_check(struct nbd_target *t, struct err *e)
{
    return nbd_link_check(t->link, e);
}

/* ---- reading ---- */

/* A request has failed: for what the link has ended for, if it has. */
static int failed(struct nbd_target *t, const char *what, uint64_t pos, uint64_t len, int sys, struct err *e)
{
    int rc = nbd_target_check(t, e);
    if (rc < 0)
        return rc;
    return err_set(e, sys == ENOSPC || sys == EDQUOT ? ERR_NO_SPACE : ERR_TARGET, sys,
                   "cannot %s bytes %" PRIu64 " to %" PRIu64 " of restore target %s", what, pos,
                   pos + (len ? len - 1 : 0), t->name);
}

int64_t nbd_target_read(struct nbd_target *t, void *buf, size_t len, uint64_t pos, struct err *e)
{
    const uint64_t block = t->facts->min_block, size = t->facts->size;
    const uint64_t end = pos < size && len < size - pos ? pos + len : size;
    if (pos >= end)
        return 0;
    const uint64_t from = round_down(pos, block), to = end % block ? round_down(end, block) + block : end;
    int64_t n;
    if (from == pos && to == end) {
        n = nbd_link_pread(t->link, buf, (size_t)(end - pos), pos);
    } else {
        CLEANUP_FREE uint8_t *whole = malloc((size_t)(to - from));
        if (!whole)
            return err_nomem(e);
        n = nbd_link_pread(t->link, whole, (size_t)(to - from), from);
        if (n >= 0)
            memcpy(buf, whole + (pos - from), (size_t)(end - pos));
    }
    return n < 0 ? failed(t, "read", pos, end - pos, (int)-n, e) : (int64_t)(end - pos);
}

bool nbd_target_is_zero(struct nbd_target *t, uint64_t pos, uint64_t len)
{
    struct err e = ERR_INIT;
    while (len) {
        uint64_t n = 0;
        bool hole = false;
        if (!t->facts->allocation || nbd_link_extent(t->link, pos, &n, &hole, &e) < 0 || !hole)
            return false;
        n = n < len ? n : len;
        pos += n;
        len -= n;
    }
    return true;
}

/* ---- writing ---- */

/* Less than a block: the rest of it is kept. `buf` NULL: zeros. 0 or an errno. */
static int write_part(struct nbd_target *t, const uint8_t *buf, size_t len, uint64_t pos)
{
    const uint32_t block = t->facts->min_block;
    const uint64_t at = round_down(pos, block);
    CLEANUP_FREE uint8_t *whole = malloc(block);
    if (!whole)
        return ENOMEM;
    pthread_mutex_lock(&t->edge_mu);
    int64_t rc = nbd_link_pread(t->link, whole, block, at);
    if (rc >= 0 && buf)
        memcpy(whole + (pos - at), buf, len);
    else if (rc >= 0)
        memset(whole + (pos - at), 0, len);
    if (rc >= 0)
        rc = nbd_link_obey(t->link, NBD_WRITE, whole, block, at);
    pthread_mutex_unlock(&t->edge_mu);
    return rc < 0 ? (int)-rc : 0;
}

/* The bytes before the first whole block, and those behind the last one. */
static size_t head_of(const struct nbd_target *t, uint64_t pos, uint64_t len)
{
    const uint64_t head = -pos & (t->facts->min_block - 1);
    return (size_t)(head < len ? head : len);
}

static size_t tail_of(const struct nbd_target *t, uint64_t pos, uint64_t len)
{
    return (size_t)((pos + len) & (t->facts->min_block - 1));
}

static void write_next(struct nbd_write *w);

static void written(struct nbd_order *q, int res)
{
    struct nbd_write *w = q->arg;
    if (res < 0) {
        w->done(w, -res);
        return;
    }
    w->buf += q->len;
    w->pos += q->len;
    w->len -= q->len;
    write_next(w);
}

/* All of it are whole blocks. */
static void write_next(struct nbd_write *w)
{
    if (w->len == 0) {
        w->done(w, 0);
        return;
    }
    const uint32_t most = w->target->facts->max_block;
    w->order = (struct nbd_order){.act = NBD_WRITE,
                                  .buf = w->buf,
                                  .pos = w->pos,
                                  .len = w->len < most ? w->len : most,
                                  .done = written,
                                  .arg = w};
    nbd_link_order(w->target->link, &w->order);
}

void nbd_target_write(struct nbd_target *t, struct nbd_write *w)
{
    w->target = t;
    const size_t head = head_of(t, w->pos, w->len);
    int sys = head ? write_part(t, w->buf, head, w->pos) : 0;
    w->buf += head;
    w->pos += head;
    w->len -= head;
    const size_t tail = w->len ? tail_of(t, w->pos, w->len) : 0;
    w->len -= tail;
    if (!sys && tail)
        sys = write_part(t, w->buf + w->len, tail, w->pos + w->len);
    if (sys)
        w->done(w, sys);
    else
        write_next(w);
}

/* ---- zeros ---- */

static bool is_refused(int sys)
{
    return sys == ENOTSUP || sys == EOPNOTSUPP || sys == EINVAL || sys == ENOSYS;
}

static int is_stopped(const struct nbd_target *t, struct err *e)
{
    return t->stop && atomic_load(t->stop)
               ? err_set(e, ERR_INTERRUPTED, ECANCELED, "interrupted while zeroing restore target %s", t->name)
               : 0;
}

/* One request for whole blocks at the begin of the range: their length, or what prevents it. */
static int64_t zero_some(struct nbd_target *t, uint64_t pos, uint64_t len, uint64_t *written, struct err *e)
{
    const uint64_t step = atomic_load(&t->zero_step);
    const uint64_t n = len < step ? len : step, most = t->facts->max_block;
    if (!atomic_load(&t->no_zero)) {
        const int64_t from = mono_ns();
        const int sys = -nbd_link_obey(t->link, NBD_ZERO, NULL, n, pos);
        const int64_t took = mono_ns() - from;
        if (sys == 0) {
            if (n == step && took < ZERO_FAST_NS && step >= ZERO_MIN && step < ZERO_MAX)
                atomic_store(&t->zero_step, step * 2);
            else if (took > 2 * ZERO_FAST_NS && step > ZERO_MIN)
                atomic_store(&t->zero_step, step / 2);
            return (int64_t)n;
        }
        if (!is_refused(sys))
            return failed(t, "zero", pos, n, sys, e);
        if (sys == EINVAL && n > most) { /* one that limits these, too */
            atomic_store(&t->zero_step, most);
            return 0;
        }
        atomic_store(&t->no_zero, true);
    }
    const uint64_t some = len < sizeof zeros ? len : sizeof zeros, piece = some < most ? some : most;
    const int sys = -nbd_link_obey(t->link, NBD_WRITE, zeros, piece, pos);
    if (sys)
        return failed(t, "zero", pos, piece, sys, e);
    *written += piece;
    return (int64_t)piece;
}

int nbd_target_zero(struct nbd_target *t, uint64_t pos, uint64_t len, uint64_t *written, struct err *e)
{
    const size_t head = head_of(t, pos, len);
    *written = 0;
    int sys = head ? write_part(t, NULL, head, pos) : 0;
    pos += head;
    len -= head;
    const size_t tail = len ? tail_of(t, pos, len) : 0;
    len -= tail;
    if (!sys && tail)
        sys = write_part(t, NULL, tail, pos + len);
    if (sys)
        return failed(t, "zero", pos - head, head + len + tail, sys, e);
    *written = head + tail;
    while (len) {
        int64_t n = is_stopped(t, e);
        if (n == 0)
            n = zero_some(t, pos, len, written, e);
        if (n < 0)
            return (int)n;
        pos += (uint64_t)n;
        len -= (uint64_t)n;
    }
    return 0;
}

int nbd_target_flush(struct nbd_target *t, struct err *e)
{
    if (t->facts->flush) {
        const int sys = -nbd_link_obey(t->link, NBD_FLUSH, NULL, 0, 0);
        int rc = sys ? nbd_target_check(t, e) : 0;
        if (rc < 0)
            return rc;
        if (sys)
            return err_set(e, sys == ENOSPC || sys == EDQUOT ? ERR_NO_SPACE : ERR_TARGET, sys,
                           "cannot flush restore target %s", t->name);
    }
    nbd_link_forget_extents(t->link);
    return nbd_target_check(t, e);
}
