/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * nbd-server.h - an NBD server in a thread, for tests, that serves the bytes of reader.h and breaks the protocol on
 * request: what qemu-nbd and nbdkit cannot be made to do. They are tested in tests/e2e/nbd*.sh. With `mem` it can be
 * written to.
 */
#ifndef SNAPFERRY_TESTS_UNIT_NBD_SERVER_H
#define SNAPFERRY_TESTS_UNIT_NBD_SERVER_H

#include "tests/unit/reader.h"

#include "io/nbd-link.h"

#include <sys/socket.h>

enum nbd_fault {
    NBD_SOUND,
    NBD_SILENT_HANDSHAKE, /* sends nothing at all */
    NBD_NO_EXPORT,
    NBD_ODD_BLOCK,  /* a minimum block size that is no power of two */
    NBD_NO_SIZE,    /* a size that is no multiple of the minimum block size */
    NBD_SILENT,     /* stops to answer reads at `at` */
    NBD_CLOSE,      /* closes the connection there */
    NBD_CUT,        /* closes it in the middle of data */
    NBD_SHORT,      /* leaves out the last 512 bytes of the answer */
    NBD_TWICE,      /* sends the first half twice, and not the second */
    NBD_BEYOND,     /* sends bytes that were not asked for */
    NBD_BACKWARDS,  /* the second half first: allowed */
    NBD_MANY_HOLES, /* each second 4 KiB as a hole chunk: allowed, they are zeros */
    NBD_WRONG_COOKIE,
    NBD_ERROR,      /* answers with `error` at [at, at + 512) */
    NBD_LATE_ERROR, /* data first, then `error` */
    NBD_ZERO_EXTENT,
    NBD_OTHER_EXTENT, /* of another context id */
    NBD_EXTENT_ERROR,
    NBD_WRITE_ERROR,  /* answers a write at `at` with `error` */
    NBD_WRITE_SILENT, /* does not answer it, and nothing after it */
    NBD_WRITE_CLOSE,  /* closes the connection */
    NBD_ZERO_ERROR,   /* answers to zeroing more than `at` bytes with `error` */
    NBD_FLUSH_ERROR
};

struct nbd_server {
    enum nbd_fault fault;
    uint64_t size, at;
    uint32_t error, min_block, max_block;
    bool no_map, no_structured;
    const uint32_t *map; /* pairs of length and flags, ends with 0 */
    uint8_t *mem;        /* what is behind it, NULL: the bytes of fill(), read-only */
    bool no_zero;
    int fd;
    pthread_t thread;
    unsigned reads, maps, writes, zeros, flushes, odd; /* odd: requests that are no whole blocks, or too long */
    size_t longest;
};

static inline bool nbd_in(int fd, void *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t k = recv(fd, (char *)p + at, n - at, 0);
        if (k <= 0)
            return false;
        at += (size_t)k;
    }
    return true;
}

static inline void nbd_out(int fd, const void *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t k = send(fd, (const char *)p + at, n - at, MSG_NOSIGNAL);
        if (k <= 0)
            return;
        at += (size_t)k;
    }
}

static inline void nbd_put(uint8_t *p, uint64_t v, unsigned bytes)
{
    while (bytes--)
        *p++ = (uint8_t)(v >> (8 * bytes));
}

static inline uint64_t nbd_get(const uint8_t *p, unsigned bytes)
{
    uint64_t v = 0;
    while (bytes--)
        v = v << 8 | *p++;
    return v;
}

static inline void nbd_opt_reply(struct nbd_server *s, uint32_t opt, uint32_t type, const void *data, uint32_t len)
{
    uint8_t h[20];
    nbd_put(h, 0x3e889045565a9, 8);
    nbd_put(h + 8, opt, 4);
    nbd_put(h + 12, type, 4);
    nbd_put(h + 16, len, 4);
    nbd_out(s->fd, h, sizeof h);
    nbd_out(s->fd, data, len);
}

static inline bool nbd_option(struct nbd_server *s, bool *go)
{
    uint8_t h[16], d[64] = {0};
    if (!nbd_in(s->fd, h, sizeof h))
        return false;
    const uint32_t opt = (uint32_t)nbd_get(h + 8, 4), len = (uint32_t)nbd_get(h + 12, 4);
    uint8_t *data = calloc(1, len + 1);
    const bool got = data && nbd_in(s->fd, data, len);
    free(data);
    if (!got)
        return false;
    if (opt == 8 && !s->no_structured) {
        nbd_opt_reply(s, opt, 1, NULL, 0);
    } else if (opt == 10 && !s->no_map) {
        nbd_put(d, 7, 4);
        memcpy(d + 4, "base:allocation", 15);
        nbd_opt_reply(s, opt, 4, d, 19);
        nbd_opt_reply(s, opt, 1, NULL, 0);
    } else if (opt == 7 && s->fault == NBD_NO_EXPORT) {
        nbd_opt_reply(s, opt, 0x80000006u, NULL, 0);
    } else if (opt == 7) {
        nbd_put(d + 2, s->size, 8);
        nbd_put(d + 10, !s->mem ? 1 | 2 : s->no_zero ? 1 | 4 : 1 | 4 | 64, 2);
        nbd_opt_reply(s, opt, 3, d, 12);
        if (s->min_block) {
            nbd_put(d, 3, 2);
            nbd_put(d + 2, s->min_block, 4);
            nbd_put(d + 6, s->min_block > 4096 ? s->min_block : 4096, 4);
            nbd_put(d + 10, s->max_block, 4);
            nbd_opt_reply(s, opt, 3, d, 14);
        }
        nbd_opt_reply(s, opt, 1, NULL, 0);
        *go = true;
    } else {
        nbd_opt_reply(s, opt, 0x80000001u, NULL, 0);
    }
    return true;
}

static inline void nbd_chunk(struct nbd_server *s, bool last, unsigned type, const uint8_t *cookie, uint32_t len)
{
    uint8_t h[20];
    nbd_put(h, 0x668e33ef, 4);
    nbd_put(h + 4, last, 2);
    nbd_put(h + 6, type, 2);
    memcpy(h + 8, cookie, 8);
    if (s->fault == NBD_WRONG_COOKIE)
        h[8] ^= 0x55;
    nbd_put(h + 16, len, 4);
    nbd_out(s->fd, h, sizeof h);
}

static inline void nbd_data(struct nbd_server *s, bool last, const uint8_t *cookie, uint64_t pos, size_t len)
{
    uint8_t at[8];
    uint8_t *buf = malloc(len + 1);
    if (!buf)
        return;
    nbd_put(at, pos, 8);
    if (s->mem)
        memcpy(buf, s->mem + pos, len);
    else
        fill(buf, len, pos);
    nbd_chunk(s, last, 1, cookie, (uint32_t)len + 8);
    nbd_out(s->fd, at, 8);
    nbd_out(s->fd, buf, s->fault == NBD_CUT && pos <= s->at && s->at < pos + len ? len / 2 : len);
    free(buf);
}

static inline void nbd_error_chunk(struct nbd_server *s, const uint8_t *cookie)
{
    uint8_t d[6];
    nbd_put(d, s->error, 4);
    nbd_put(d + 4, 0, 2);
    nbd_chunk(s, true, 0x8001, cookie, 6);
    nbd_out(s->fd, d, sizeof d);
}

/* False: the connection is to be closed. */
static inline bool nbd_serve_read(struct nbd_server *s, const uint8_t *cookie, uint64_t pos, size_t len)
{
    const bool here = pos <= s->at && s->at < pos + len;
    const size_t half = len / 2;
    s->reads++;
    s->longest = len > s->longest ? len : s->longest;
    if (!here || s->fault == NBD_SOUND || s->fault >= NBD_ZERO_EXTENT || s->fault == NBD_WRONG_COOKIE) {
        if (s->no_structured) {
            uint8_t h[16];
            uint8_t *buf = malloc(len);
            nbd_put(h, 0x67446698, 4);
            nbd_put(h + 4, 0, 4);
            memcpy(h + 8, cookie, 8);
            nbd_out(s->fd, h, sizeof h);
            if (buf)
                fill(buf, len, pos);
            nbd_out(s->fd, buf, len);
            free(buf);
        } else
            nbd_data(s, true, cookie, pos, len);
        return true;
    }
    switch (s->fault) {
    case NBD_CLOSE:
        return false;
    case NBD_CUT:
        nbd_data(s, true, cookie, pos, len);
        return false;
    case NBD_SHORT:
        nbd_data(s, true, cookie, pos, len - 512);
        return true;
    case NBD_TWICE:
        nbd_data(s, false, cookie, pos, half);
        nbd_data(s, true, cookie, pos, half);
        return true;
    case NBD_BEYOND:
        nbd_data(s, true, cookie, pos + 512, len);
        return true;
    case NBD_BACKWARDS:
        nbd_data(s, false, cookie, pos + half, len - half);
        nbd_data(s, true, cookie, pos, half);
        return true;
    case NBD_MANY_HOLES:
        for (size_t at = 0; at < len; at += 8192) {
            uint8_t d[12];
            nbd_data(s, false, cookie, pos + at, 4096);
            nbd_put(d, pos + at + 4096, 8);
            nbd_put(d + 8, 4096, 4);
            nbd_chunk(s, at + 8192 >= len, 2, cookie, 12);
            nbd_out(s->fd, d, sizeof d);
        }
        return true;
    case NBD_LATE_ERROR:
        nbd_data(s, false, cookie, pos, len);
        nbd_error_chunk(s, cookie);
        return true;
    case NBD_ERROR:
        nbd_error_chunk(s, cookie);
        return true;
    default: /* silent */
        return true;
    }
}

static inline void nbd_serve_map(struct nbd_server *s, const uint8_t *cookie, uint64_t pos, size_t len)
{
    uint8_t d[4 + 8 * 64];
    uint64_t from = 0, end = pos + len;
    uint32_t n = 4;
    s->maps++;
    if (s->fault == NBD_EXTENT_ERROR) {
        s->error = 22;
        nbd_error_chunk(s, cookie);
        return;
    }
    nbd_put(d, s->fault == NBD_OTHER_EXTENT ? 8 : 7, 4);
    for (const uint32_t *m = s->map; m && *m && n < sizeof d; from += m[0], m += 2) {
        const uint64_t a = from > pos ? from : pos, b = from + m[0] < end ? from + m[0] : end;
        if (a >= b)
            continue;
        nbd_put(d + n, s->fault == NBD_ZERO_EXTENT ? 0 : b - a, 4);
        nbd_put(d + n + 4, m[1], 4);
        n += 8;
    }
    if (!s->map) {
        nbd_put(d + n, len, 4);
        nbd_put(d + n + 4, 0, 4);
        n += 8;
    }
    nbd_chunk(s, true, 5, cookie, n);
    nbd_out(s->fd, d, n);
}

/* False: the connection is to be closed. */
static inline bool nbd_serve_change(struct nbd_server *s, uint64_t type, const uint8_t *cookie, uint64_t pos,
                                    size_t len)
{
    const bool here = pos <= s->at && s->at < pos + len;
    uint8_t *data = type == 1 ? malloc(len + 1) : NULL;
    uint32_t error = 0;
    bool answers = true, open = true;
    if (type == 1 && !nbd_in(s->fd, data, len)) {
        free(data);
        return false;
    }
    if (s->min_block && (pos % s->min_block || len % s->min_block || (type == 1 && len > s->max_block)))
        s->odd++;
    if (type == 1 && here && s->fault >= NBD_WRITE_ERROR && s->fault <= NBD_WRITE_CLOSE) {
        error = s->fault == NBD_WRITE_ERROR ? s->error : 0;
        answers = error > 0;
        open = s->fault != NBD_WRITE_CLOSE;
    } else if ((type == 6 && s->fault == NBD_ZERO_ERROR && len > s->at) || (type == 3 && s->fault == NBD_FLUSH_ERROR)) {
        error = s->error;
    } else if (type == 1) {
        memcpy(s->mem + pos, data, len);
    } else if (type == 6) {
        memset(s->mem + pos, 0, len);
    }
    s->writes += type == 1;
    s->zeros += type == 6;
    s->flushes += type == 3;
    free(data);
    if (error) {
        s->error = error;
        nbd_error_chunk(s, cookie);
    } else if (answers) {
        nbd_chunk(s, true, 0, cookie, 0);
    } else if (open) {
        while (nbd_in(s->fd, &(uint8_t){0}, 1))
            ; /* silent until the other end goes */
        return false;
    }
    return open;
}

static inline void *nbd_serve(void *arg)
{
    struct nbd_server *s = arg;
    uint8_t h[28];
    bool go = false, on = s->fault != NBD_SILENT_HANDSHAKE;
    if (!on)
        on = nbd_in(s->fd, h, 1) && false;
    if (on) {
        memcpy(h, "NBDMAGICIHAVEOPT", 16);
        nbd_put(h + 16, 3, 2);
        nbd_out(s->fd, h, 18);
        on = nbd_in(s->fd, h, 4);
    }
    while (on && !go)
        on = nbd_option(s, &go);
    while (on && nbd_in(s->fd, h, 28)) {
        const uint64_t type = nbd_get(h + 6, 2), pos = nbd_get(h + 16, 8), len = nbd_get(h + 24, 4);
        if (type == 2)
            break;
        if (type == 0)
            on = nbd_serve_read(s, h + 8, pos, len);
        else if (type == 7)
            nbd_serve_map(s, h + 8, pos, len);
        else if (s->mem && (type == 1 || type == 3 || type == 6))
            on = nbd_serve_change(s, type, h + 8, pos, len);
        else
            nbd_error_chunk(s, h + 8);
    }
    close(s->fd);
    return NULL;
}

/* Starts it; the other end of its socket. */
static inline int nbd_server_start(struct nbd_server *s)
{
    int fd[2];
    assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), errno);
    s->fd = fd[1];
    assert_int_equal(pthread_create(&s->thread, NULL, nbd_serve, s), 0);
    return fd[0];
}

#endif
