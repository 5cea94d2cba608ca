/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * nbd-link.h - a connection to one export of an NBD server
 *
 * A link has a thread that drives libnbd; any thread submits requests, many at a time. A server that does not answer a
 * request for NBD_STALL_S, closes the connection, violates the protocol or refuses a request with anything but EIO
 * ends the link: that request and all others fail with -ESHUTDOWN, and nbd_link_check() has the reason. Only EIO is an
 * error of the medium: another request may succeed.
 */
#ifndef SNAPFERRY_IO_NBD_LINK_H
#define SNAPFERRY_IO_NBD_LINK_H

#include "io/nbd-uri.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct nbd_link;

#define NBD_HANDSHAKE_S 30 /* for connecting, and again for the negotiation */
#define NBD_STALL_S 60
#define NBD_SLOW 10  /* times NBD_STALL_S: for a flush, or for zeroing, which a server may do by writing */
#define NBD_SPANS 16 /* pieces of an answer that are waiting for those between them */

struct nbd_facts {
    uint64_t size;      /* bytes, a multiple of min_block */
    uint32_t min_block; /* a power of two: positions and lengths of requests are its multiples */
    uint32_t max_block; /* bytes per request, a multiple of 4096 and of min_block */
    bool read_only;     /* writes are refused */
    bool allocation;    /* nbd_link_extent() knows holes */
    bool flush, zero;   /* what the server offers */
};

/* A connected socket: Unix or TCP, with a time limit. `stop` (NULL: none): ERR_INTERRUPTED within a second after it was
 * set. Errors: ERR_NOT_FOUND (no such socket), ERR_PERMISSION, ERR_SOURCE. The descriptor is the caller's; it can be
 * passed to another process. */
int nbd_dial(const struct nbd_uri *u, int *fd, const _Atomic bool *stop, struct err *e);

struct nbd_link_opts {
    unsigned stall_s; /* 0: NBD_STALL_S */
    bool target;      /* the export is written to: what ends the link is an ERR_TARGET with errno ESHUTDOWN */
    /* A cancel, NULL: none. As nbd_dial(); what the server has not answered 3 s later is given up, and the reason of
     * the link's end is ERR_INTERRUPTED. */
    const _Atomic bool *stop;
};
/* Negotiates with the server at the other end of `fd`, which becomes the link's also on failure. `o` NULL: all 0.
 * ERR_NOT_FOUND: no such export; ERR_SOURCE; ERR_USAGE without libnbd. */
int nbd_link_open(struct nbd_link **ret, int fd, const struct nbd_uri *u, const struct nbd_link_opts *o, struct err *e);
/* Ends the thread and the connection; requests in flight have failed then. NULL allowed. */
void nbd_link_free(struct nbd_link *l);

const struct nbd_facts *nbd_link_facts(const struct nbd_link *l);

/* A read. The owner keeps it, and the buffer, until `done` was called, in the link's thread, with the number of bytes
 * (all that was asked for) or a negative errno. */
struct nbd_read {
    void *buf;
    size_t len; /* of nbd_link_fit() */
    uint64_t pos;
    void (*done)(struct nbd_read *q, int64_t res);
    void *arg;
    /* The link's. */
    struct nbd_link *link;
    struct nbd_read *next;
    struct nbd_span {
        uint64_t from, to;
    } got[NBD_SPANS]; /* what the server has sent */
    unsigned n_got;
    bool broken; /* it sent the same twice, or in too many pieces */
};
void nbd_link_read(struct nbd_link *l, struct nbd_read *q);
/* How much of a range one read may ask for. */
size_t nbd_link_fit(const struct nbd_link *l, uint64_t pos, size_t len);
/* The same, and waits. Any length; short only at the end of the export. Negative errno. */
int64_t nbd_link_pread(struct nbd_link *l, void *buf, size_t len, uint64_t pos);

/* A change of what is behind the export. The owner keeps it, and the buffer, until `done` was called, in the link's
 * thread or in the caller's, with 0 or a negative errno; -ESHUTDOWN: the link has ended. */
enum nbd_act {
    NBD_WRITE,
    NBD_ZERO, /* WRITE_ZEROES; the server may make a hole */
    NBD_FLUSH /* of what was answered before it was asked for */
};
struct nbd_order {
    enum nbd_act act;
    const void *buf;   /* NBD_WRITE */
    uint64_t pos, len; /* multiples of min_block; NBD_WRITE: at most max_block, NBD_ZERO: less than 4 GiB */
    void (*done)(struct nbd_order *q, int res);
    void *arg;
    /* The link's. */
    struct nbd_link *link;
    struct nbd_order *next;
};
void nbd_link_order(struct nbd_link *l, struct nbd_order *q);
/* The same, and waits. */
int nbd_link_obey(struct nbd_link *l, enum nbd_act act, const void *buf, uint64_t len, uint64_t pos);

/* The extent that begins at `pos`: *hole only if the server says that it reads as zeros (a hole alone may have
 * anything in it). Without base:allocation all is data. Thread-safe. */
int nbd_link_extent(struct nbd_link *l, uint64_t pos, uint64_t *len, bool *hole, struct err *e);
/* What the server has said of extents is asked for again: they have been written to. */
void nbd_link_forget_extents(struct nbd_link *l);

/* 0: the link works as far as it is known. Otherwise why it has ended. */
int nbd_link_check(struct nbd_link *l, struct err *e);
/* Ends the link soon: what is in flight fails. Any thread. */
void nbd_link_abort(struct nbd_link *l);

/* Calls fn for each export that the server at `u` (its export is ignored) lists. A value other than 0 ends the walk and
 * is returned. ERR_SOURCE, as nbd_dial(). */
typedef int nbd_export_fn(const char *name, void *arg);
int nbd_each_export(const struct nbd_uri *u, nbd_export_fn *fn, void *arg, struct err *e);
/* Asks for the size of an export without opening it. */
int nbd_export_facts(const struct nbd_uri *u, struct nbd_facts *ret, struct err *e);
/* Calls fn for each extent of the export that has a flag of `mask` in the metadata context ("qemu:dirty-bitmap:NAME":
 * flag 1 is dirty), in order. A value other than 0 ends the walk and is returned. *size: of the export. ERR_SOURCE: it
 * has no such context, or what it answers leaves something out. */
typedef int nbd_flagged_fn(uint64_t start, uint64_t len, void *arg);
int nbd_each_flagged(const struct nbd_uri *u, const char *context, uint32_t mask, nbd_flagged_fn *fn, void *arg,
                     uint64_t *size, struct err *e);

#endif
