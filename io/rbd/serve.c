/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * serve.c - a snapshot, or an image to restore into, as an export of NBD for one client (the protocol: doc/proto.md of
 * NetworkBlockDevice/nbd)
 *
 * Threads take turns in reading requests and in writing replies; each answers what it has read, so that as many
 * requests are with Ceph as there are threads. The first thread watches for the end of the client. The process ends
 * then, whatever Ceph is doing; one that writes has to close the image first, and ends END_SECONDS later at the latest.
 */
#include "io/rbd/commands.h"

#include "base/bytes.h"
#include "base/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define THREADS 16
#define BLOCK_MAX (4u << 20)  /* of a read; usually the size of an object */
#define SPAN_MAX (256u << 20) /* of which extents are told at once */
#define EXTENTS_MAX 4096
#define OPTION_MAX 65536
#define ZERO_MAX (1u << 30) /* zeroed by one call of librbd */
#define END_SECONDS 40

#define OPT_MAGIC UINT64_C(0x49484156454F5054)
#define REP_MAGIC UINT64_C(0x3e889045565a9)
#define REQUEST_MAGIC 0x25609513u
#define SIMPLE_MAGIC 0x67446698u
#define CHUNK_MAGIC 0x668e33efu

enum { OPT_EXPORT_NAME = 1, OPT_ABORT, OPT_LIST, OPT_INFO = 6, OPT_GO, OPT_STRUCTURED, OPT_LIST_META, OPT_SET_META };
enum { REP_ACK = 1, REP_SERVER, REP_INFO, REP_META, REP_UNSUP = (int)0x80000001u, REP_INVALID = (int)0x80000003u };
enum { CMD_READ = 0, CMD_WRITE, CMD_DISC, CMD_FLUSH, CMD_ZERO = 6, CMD_BLOCK_STATUS };
enum { CHUNK_NONE = 0, CHUNK_DATA = 1, CHUNK_STATUS = 5, CHUNK_ERROR = 0x8001 };
#define CHUNK_DONE 1
#define FLAG_REQ_ONE 8
#define STATE_HOLE_ZERO 3u
#define CONTEXT_ID 1u
#define SNAPSHOT_FLAGS 0x0103u /* has flags, read only, many connections at once */
#define TARGET_FLAGS 0x0045u   /* has flags, flush, zeroes */
static const char context[] = "base:allocation";

struct server {
    struct image *image;
    uint64_t snap, size;
    int fd;
    bool writable; /* no snapshot, but the image */
    bool structured, meta;
    pthread_mutex_t in, out;
};

static bool get(const struct server *s, void *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        const ssize_t k = recv(s->fd, (char *)p + at, n - at, 0);
        if (k == 0 || (k < 0 && errno != EINTR))
            return false;
        at += k > 0 ? (size_t)k : 0;
    }
    return true;
}

static bool put(const struct server *s, const void *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        const ssize_t k = send(s->fd, (const char *)p + at, n - at, MSG_NOSIGNAL);
        if (k < 0 && errno != EINTR)
            return false;
        at += k > 0 ? (size_t)k : 0;
    }
    return true;
}

/* ---- negotiation ---- */

static bool reply(const struct server *s, uint32_t option, int type, const void *p, size_t n)
{
    uint8_t h[20];
    put_be64(h, REP_MAGIC);
    put_be32(h + 8, option);
    put_be32(h + 12, (uint32_t)type);
    put_be32(h + 16, (uint32_t)n);
    return put(s, h, sizeof h) && put(s, p, n);
}

static bool reply_info(const struct server *s, uint32_t option)
{
    uint8_t export[12], block[14];
    put_be16(export, 0); /* NBD_INFO_EXPORT */
    put_be64(export + 2, s->size);
    put_be16(export + 10, s->writable ? TARGET_FLAGS : SNAPSHOT_FLAGS);
    put_be16(block, 3); /* NBD_INFO_BLOCK_SIZE */
    put_be32(block + 2, 1);
    put_be32(block + 6, 4096);
    put_be32(block + 10, BLOCK_MAX);
    return reply(s, option, REP_INFO, export, sizeof export) && reply(s, option, REP_INFO, block, sizeof block) &&
           reply(s, option, REP_ACK, NULL, 0);
}

/* Whether the question names the context: a number of texts, after the name of the export. */
static bool asks_context(const uint8_t *p, size_t n)
{
    const size_t name = n >= 4 ? get_be32(p) : n;
    if (name > n || n - name < 8)
        return false;
    size_t at = 4 + name + 4;
    for (uint32_t i = get_be32(p + 4 + name); i && n - at >= 4; i--) {
        const size_t len = get_be32(p + at);
        if (len > n - at - 4)
            return false;
        if (len == sizeof context - 1 && memcmp(p + at + 4, context, len) == 0)
            return true;
        at += 4 + len;
    }
    return false;
}

static bool reply_meta(struct server *s, uint32_t option, const uint8_t *p, size_t n)
{
    uint8_t answer[4 + sizeof context - 1];
    const bool found = asks_context(p, n);
    if (!s->structured)
        return reply(s, option, REP_INVALID, NULL, 0);
    put_be32(answer, option == OPT_SET_META ? CONTEXT_ID : 0);
    memcpy(answer + 4, context, sizeof context - 1);
    if (option == OPT_SET_META)
        s->meta = found;
    return (!found || reply(s, option, REP_META, answer, sizeof answer)) && reply(s, option, REP_ACK, NULL, 0);
}

/* One option; *go: the transmission begins. */
static bool negotiate_one(struct server *s, uint8_t *buf, bool *go)
{
    uint8_t h[16];
    if (!get(s, h, sizeof h) || get_be64(h) != OPT_MAGIC)
        return false;
    const uint32_t option = get_be32(h + 8), n = get_be32(h + 12);
    if (n > OPTION_MAX || !get(s, buf, n))
        return false;
    switch (option) {
    case OPT_GO:
    case OPT_INFO:
        *go = option == OPT_GO;
        return reply_info(s, option);
    case OPT_STRUCTURED:
        s->structured = true;
        return reply(s, option, REP_ACK, NULL, 0);
    case OPT_LIST_META:
    case OPT_SET_META:
        return reply_meta(s, option, buf, n);
    case OPT_ABORT:
        (void)reply(s, option, REP_ACK, NULL, 0);
        return false;
    case OPT_EXPORT_NAME: /* of clients that know no other: ours does */
        return false;
    default:
        return reply(s, option, REP_UNSUP, NULL, 0);
    }
}

static bool negotiate(struct server *s)
{
    static const uint8_t greeting[18] = "NBDMAGICIHAVEOPT\0\3"; /* fixed newstyle, no zeroes */
    uint8_t flags[4];
    bool go = false;
    CLEANUP_FREE uint8_t *buf = malloc(OPTION_MAX);
    if (!buf || !put(s, greeting, sizeof greeting) || !get(s, flags, sizeof flags))
        return false;
    while (!go)
        if (!negotiate_one(s, buf, &go))
            return false;
    return true;
}

/* ---- requests ---- */

struct request {
    uint16_t flags, type;
    uint64_t cookie, pos;
    uint32_t len;
};

static bool request_get(const struct server *s, struct request *q)
{
    uint8_t h[28];
    if (!get(s, h, sizeof h) || get_be32(h) != REQUEST_MAGIC)
        return false;
    *q = (struct request){get_be16(h + 4), get_be16(h + 6), get_be64(h + 8), get_be64(h + 16), get_be32(h + 24)};
    return true;
}

/* A chunk, the last one of its answer: up to two parts. */
static bool chunk(struct server *s, const struct request *q, uint16_t type, const void *a, size_t n_a, const void *b,
                  size_t n_b)
{
    uint8_t h[20];
    put_be32(h, CHUNK_MAGIC);
    put_be16(h + 4, CHUNK_DONE);
    put_be16(h + 6, type);
    put_be64(h + 8, q->cookie);
    put_be32(h + 16, (uint32_t)(n_a + n_b));
    pthread_mutex_lock(&s->out);
    const bool good = put(s, h, sizeof h) && put(s, a, n_a) && put(s, b, n_b);
    pthread_mutex_unlock(&s->out);
    return good;
}

static bool simple(struct server *s, const struct request *q, uint32_t error, const void *p, size_t n)
{
    uint8_t h[16];
    put_be32(h, SIMPLE_MAGIC);
    put_be32(h + 4, error);
    put_be64(h + 8, q->cookie);
    pthread_mutex_lock(&s->out);
    const bool good = put(s, h, sizeof h) && put(s, p, n);
    pthread_mutex_unlock(&s->out);
    return good;
}

/* EIO is a part that cannot be read; anything else ends the client, with these words; no space is an error of a write.
 */
static bool refuse(struct server *s, const struct request *q, int sys, const char *why)
{
    uint8_t body[6];
    const size_t n = strlen(why);
    const uint32_t error = sys == EIO                       ? EIO
                           : sys == EINVAL || sys == EPERM  ? (uint32_t)sys
                           : sys == ENOSPC || sys == EDQUOT ? ENOSPC
                                                            : ESHUTDOWN;
    fprintf(stderr, "%s\n", why);
    put_be32(body, error);
    put_be16(body + 4, (uint16_t)n);
    return s->structured ? chunk(s, q, CHUNK_ERROR, body, sizeof body, why, n) : simple(s, q, error, NULL, 0);
}

static bool refuse_err(struct server *s, const struct request *q, int rc, const struct err *e)
{
    return refuse(s, q, -rc, e->msg);
}

/* What was read, or listed, was of what is served. */
static int is_there(const struct server *s, struct err *e)
{
    return s->writable ? 0 : ceph_image_has_snap(s->image, s->snap, e);
}

static bool answer_read(struct server *s, const struct request *q, char *buf)
{
    uint8_t pos[8];
    struct err e = ERR_INIT;
    size_t at = 0;
    if (!q->len || q->len > BLOCK_MAX)
        return refuse(s, q, EINVAL, "a read of an invalid length");
    while (at < q->len) {
        const ssize_t n = s->image->cluster->lib->rbd_read(s->image->rbd, q->pos + at, q->len - at, buf + at);
        if (n <= 0) {
            const int rc = n < 0 ? (int)n : -ENODATA;
            ceph_error(&e, rc, "cannot read image %s at %" PRIu64, s->image->name, q->pos + at);
            return refuse_err(s, q, rc, &e);
        }
        at += (size_t)n;
    }
    const int rc = is_there(s, &e);
    if (rc < 0)
        return refuse_err(s, q, rc == -EIO ? -ENODATA : rc, &e);
    put_be64(pos, q->pos);
    return s->structured ? chunk(s, q, CHUNK_DATA, pos, sizeof pos, buf, q->len) : simple(s, q, 0, buf, q->len);
}

/* ---- extents ---- */

struct extents {
    uint64_t from, to, at; /* at: where the next one begins */
    unsigned n, max;
    uint8_t body[4 + 8 * EXTENTS_MAX];
};

static bool extents_add(struct extents *x, uint64_t end, uint32_t state)
{
    uint8_t *last = x->n ? x->body + 4 + (size_t)8 * (x->n - 1) : NULL;
    if (end <= x->at)
        return true;
    const uint32_t len = (uint32_t)(end - x->at);
    if (last && get_be32(last + 4) == state) {
        put_be32(last, get_be32(last) + len);
    } else {
        if (x->n == x->max)
            return false;
        last = x->body + 4 + (size_t)8 * x->n++;
        put_be32(last, len);
        put_be32(last + 4, state);
    }
    x->at = end;
    return true;
}

/* In ascending order; what lies between holds nothing. */
static int on_data(uint64_t pos, size_t len, int exists, void *arg)
{
    struct extents *x = arg;
    const uint64_t from = pos < x->at ? x->at : pos, end = pos + len < x->to ? pos + len : x->to;
    if (exists && from < end && (!extents_add(x, from, STATE_HOLE_ZERO) || !extents_add(x, end, 0)))
        return -E2BIG;
    return 0;
}

static bool answer_extents(struct server *s, const struct request *q)
{
    struct err e = ERR_INIT;
    CLEANUP_FREE struct extents *x = calloc(1, sizeof *x);
    const uint64_t len = q->len < SPAN_MAX ? q->len : SPAN_MAX;
    if (!x || !s->meta || !q->len)
        return refuse(s, q, EINVAL, "extents were not asked for before");
    x->from = x->at = q->pos;
    x->to = q->pos + len;
    x->max = q->flags & FLAG_REQ_ONE ? 1 : EXTENTS_MAX;
    int rc = s->image->cluster->lib->rbd_diff_iterate2(s->image->rbd, NULL, q->pos, len, 1, 0, on_data, x);
    if (rc < 0 && rc != -E2BIG) {
        ceph_error(&e, rc, "cannot list what image %s holds", s->image->name);
        return refuse_err(s, q, rc, &e);
    }
    if (rc == 0)
        (void)extents_add(x, x->to, STATE_HOLE_ZERO);
    rc = is_there(s, &e);
    if (rc < 0)
        return refuse_err(s, q, rc, &e);
    put_be32(x->body, CONTEXT_ID);
    return chunk(s, q, CHUNK_STATUS, x->body, 4 + (size_t)8 * x->n, NULL, 0);
}

/* ---- changes ---- */

static bool done(struct server *s, const struct request *q)
{
    return s->structured ? chunk(s, q, CHUNK_NONE, NULL, 0, NULL, 0) : simple(s, q, 0, NULL, 0);
}

static bool answer_change(struct server *s, const struct request *q, int64_t rc, const char *what)
{
    struct err e = ERR_INIT;
    if (rc >= 0)
        return done(s, q);
    ceph_error(&e, (int)rc, "cannot %s image %s at %" PRIu64, what, s->image->name, q->pos);
    /* Nothing is known of what was written: an error of the medium would be taken for one of this part alone. */
    return refuse_err(s, q, rc == -EIO ? -ENODATA : (int)rc, &e);
}

/* Exactly, and as holes where Ceph has whole objects: a discard may leave out what is smaller than its granularity. */
static int zero(const struct server *s, uint64_t pos, uint64_t len)
{
    static const char zeros[512];
    const struct ceph_lib *lib = s->image->cluster->lib;
    while (len >= sizeof zeros) {
        const uint64_t n = len < ZERO_MAX ? len - len % sizeof zeros : ZERO_MAX;
        const ssize_t rc = lib->rbd_writesame(s->image->rbd, pos, n, zeros, sizeof zeros, 0);
        if (rc < 0)
            return (int)rc;
        pos += n;
        len -= n;
    }
    const ssize_t rc = len ? lib->rbd_write(s->image->rbd, pos, len, zeros) : 0;
    return rc < 0 ? (int)rc : 0;
}

static bool answer(struct server *s, const struct request *q, char *buf)
{
    const struct ceph_lib *lib = s->image->cluster->lib;
    const bool known = q->type == CMD_READ || q->type == CMD_BLOCK_STATUS;
    const bool change = q->type == CMD_WRITE || q->type == CMD_ZERO || q->type == CMD_FLUSH;
    if (!known && !(change && s->writable))
        return refuse(s, q, EPERM, s->writable ? "a request of an unknown kind" : "a snapshot can only be read");
    if (q->pos > s->size || q->len > s->size - q->pos)
        return refuse(s, q, EINVAL, "a request beyond the end of the image");
    switch (q->type) {
    case CMD_READ:
        return answer_read(s, q, buf);
    case CMD_WRITE:
        return answer_change(s, q, lib->rbd_write(s->image->rbd, q->pos, q->len, buf), "write to");
    case CMD_ZERO:
        return answer_change(s, q, zero(s, q->pos, q->len), "zero");
    case CMD_FLUSH:
        return answer_change(s, q, lib->rbd_flush(s->image->rbd), "flush");
    default:
        return answer_extents(s, q);
    }
}

/* A request, and what is to be written. False: the client ends. */
static bool take(struct server *s, struct request *q, char *buf)
{
    if (!request_get(s, q) || q->type == CMD_DISC)
        return false;
    return q->type != CMD_WRITE || (q->len <= BLOCK_MAX && get(s, buf, q->len));
}

/* Until the client has disconnected. */
static void *work(void *arg)
{
    struct server *s = arg;
    struct request q;
    char *buf = malloc(BLOCK_MAX);
    for (bool good = buf != NULL; good;) {
        pthread_mutex_lock(&s->in);
        good = take(s, &q, buf);
        if (!good && !s->writable)
            _exit(0);
        pthread_mutex_unlock(&s->in);
        if (good)
            good = answer(s, &q, buf);
    }
    free(buf);
    if (!s->writable)
        _exit(1);
    shutdown(s->fd, SHUT_RDWR); /* the others, and the first thread, end, too */
    return NULL;
}

/* Until the client has ended, perhaps while all threads are waiting for Ceph. *n: threads that run. */
static int serve(struct server *s, pthread_t threads[THREADS], unsigned *n, struct err *e)
{
    pthread_mutex_init(&s->in, NULL);
    pthread_mutex_init(&s->out, NULL);
    *n = 0;
    if (!negotiate(s))
        return 0;
    for (int rc = 0; rc == 0 && *n < THREADS;)
        if ((rc = pthread_create(&threads[*n], NULL, work, s)) == 0)
            ++*n;
        else if (*n == 0)
            return err_set(e, ERR_GENERIC, rc, "cannot start a thread");
    struct pollfd p = {.fd = s->fd, .events = POLLRDHUP};
    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        ;
    return 0;
}

int snapshot_serve(struct image *x, uint64_t snap, int fd, struct err *e)
{
    struct server s = {.image = x, .snap = snap, .fd = fd};
    pthread_t threads[THREADS];
    unsigned n;
    int rc = x->cluster->lib->rbd_get_size(x->rbd, &s.size);
    if (rc < 0)
        return ceph_error(e, rc, "cannot read the size of image %s", x->name);
    rc = serve(&s, threads, &n, e);
    if (n)
        _exit(0);
    return rc;
}

int target_serve(struct image *x, uint64_t size, int fd, struct err *e)
{
    struct server s = {.image = x, .size = size, .fd = fd, .writable = true};
    pthread_t threads[THREADS];
    unsigned n;
    int rc = serve(&s, threads, &n, e);
    alarm(END_SECONDS);
    while (n)
        pthread_join(threads[--n], NULL);
    return rc;
}
