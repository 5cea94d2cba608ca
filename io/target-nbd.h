/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * target-nbd.h - an NBD export that a volume is restored to (internal to io)
 *
 * Positions and lengths are of any value: what shares a block of the server (min_block) with something else is read,
 * changed and written. Errors are ERR_TARGET, with errno ESHUTDOWN if the connection is lost; ERR_NO_SPACE; and
 * ERR_INTERRUPTED after a cancel.
 */
#ifndef SNAPFERRY_IO_TARGET_NBD_H
#define SNAPFERRY_IO_TARGET_NBD_H

#include "io/nbd-link.h"

struct nbd_target;

/*
 * Opens the export at `address` for an image of `size` bytes, over the connected socket `fd`, which becomes the
 * target's also on failure; -1: connects. `stop`: a cancel, NULL: none. ERR_PERMISSION: it is exported read-only;
 * ERR_NOT_FOUND: no such socket or export; ERR_USAGE: no address, or no libnbd.
 */
int nbd_target_open(struct nbd_target **ret, int fd, const char *address, uint64_t size, const _Atomic bool *stop,
                    struct err *e);
void nbd_target_free(struct nbd_target *t); /* NULL allowed */
uint64_t nbd_target_size(const struct nbd_target *t);

/* Bytes read, fewer than `len` only at the end of the export. Any thread. */
int64_t nbd_target_read(struct nbd_target *t, void *buf, size_t len, uint64_t pos, struct err *e);
/* Whether the server declares that a range reads as zeros. False if it is not known. What has been written since the
 * first question may not be asked for before nbd_target_flush(). Any thread. */
bool nbd_target_is_zero(struct nbd_target *t, uint64_t pos, uint64_t len);

/* A write. The owner keeps it, and the buffer, until `done` was called once, from any thread, perhaps before
 * nbd_target_write() returns. */
struct nbd_write {
    const uint8_t *buf;
    size_t len;
    uint64_t pos;
    void (*done)(struct nbd_write *w, int sys); /* 0 or an errno; ESHUTDOWN: nbd_target_check() says why */
    void *arg;
    /* The target's. */
    struct nbd_target *target;
    struct nbd_order order;
};
void nbd_target_write(struct nbd_target *t, struct nbd_write *w);
/* Makes a range read as zeros, by WRITE_ZEROES where the server has it: *written, of them, by writing. Any thread. */
int nbd_target_zero(struct nbd_target *t, uint64_t pos, uint64_t len, uint64_t *written, struct err *e);
/* What was written is durable, as far as the server knows. */
int nbd_target_flush(struct nbd_target *t, struct err *e);
/* 0, or why the connection has ended. */
int nbd_target_check(struct nbd_target *t, struct err *e);

#endif
