/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * rbd-copy.c - an image is filled from a native snapshot
 *
 * Both servers are those that a mover would have (rbd_open(), rbd_target_open()): what is read is of the snapshot, the
 * image is locked, and what it was before is kept until the commit. They end when this process does. A new image gets
 * what the snapshot holds; of one that exists only what differs is written, so that no more than that takes space
 * beside what it was before. What is written obeys write-limit, as with a mover.
 */
#include "io/native/rbd.h"

#include "base/cleanup.h"
#include "base/throttle.h"
#include "io/source.h"
#include "io/target-nbd.h"

#include <errno.h>
#include <inttypes.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#define PIECE ((size_t)4 << 20) /* the usual size of an object */
#define PIECE_LEAST ((size_t)64 << 10)
#define SLOTS 4 /* pieces that are being written */

struct slot {
    uint8_t *buf;
    sem_t idle;
    int sys;    /* of its last write */
    size_t len; /* of that, until it is counted */
    struct nbd_write w;
};

struct copy {
    struct source *from;
    struct nbd_target *to;
    const char *name; /* for errors */
    bool in_place;
    uint8_t *now; /* in place: what is there */
    const struct fill *how;
    struct fill_progress progress;
    struct throttle writes;
    size_t piece;
    struct slot slot[SLOTS];
    unsigned next;
};

static void copy_freep(struct copy **c)
{
    struct copy *x = *c;
    if (!x)
        return;
    nbd_target_free(x->to); /* all writes have ended then */
    source_free(x->from);
    for (unsigned i = 0; i < SLOTS; i++) {
        sem_destroy(&x->slot[i].idle);
        free(x->slot[i].buf);
    }
    free(x->now);
    free(x);
}

static struct copy *copy_new(const char *name, bool in_place, const struct fill *how)
{
    struct copy *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->name = name;
    x->in_place = in_place;
    x->how = how;
    x->writes.rate = how->rate;
    x->piece = throttle_piece(&x->writes, PIECE_LEAST, PIECE); /* a low rate is even, and not in bursts */
    bool good = !in_place || (x->now = malloc(PIECE));
    for (unsigned i = 0; i < SLOTS; i++) {
        sem_init(&x->slot[i].idle, 0, 1);
        good = (x->slot[i].buf = aligned_alloc(4096, PIECE + SOURCE_READ_EXTRA)) && good;
    }
    if (!good)
        copy_freep(&x);
    return good ? x : NULL;
}

static void written(struct nbd_write *w, int sys)
{
    struct slot *s = w->arg;
    s->sys = sys;
    sem_post(&s->idle);
}

static void tell(struct copy *x, uint64_t done, uint64_t skipped)
{
    x->progress.done += done + skipped;
    x->progress.skipped += skipped;
    if (x->how->progress)
        x->how->progress(&x->progress, x->how->arg);
}

/* Waits until what it holds is written. */
static int slot_wait(struct copy *x, struct slot *s, struct err *e)
{
    while (sem_wait(&s->idle) < 0)
        ;
    if (s->sys == 0) {
        tell(x, s->len, 0);
        s->len = 0;
        return 0;
    }
    if (s->sys == ESHUTDOWN && nbd_target_check(x->to, e) < 0)
        return -ESHUTDOWN;
    return err_set(e, s->sys == ENOSPC ? ERR_NO_SPACE : ERR_TARGET, s->sys, "cannot write to %s at %" PRIu64, x->name,
                   s->w.pos);
}

/* Whether that is there already. */
static int is_equal(const struct copy *x, const uint8_t *want, size_t len, uint64_t pos, bool *ret, struct err *e)
{
    *ret = false;
    if (!x->in_place)
        return 0;
    const int64_t n = nbd_target_read(x->to, x->now, len, pos, e);
    if (n < 0)
        return (int)n;
    *ret = (size_t)n == len && memcmp(x->now, want, len) == 0;
    return 0;
}

static int copy_piece(struct copy *x, uint64_t pos, size_t len, struct err *e)
{
    struct slot *s = &x->slot[x->next];
    const uint8_t *p = NULL;
    bool equal = false;
    int rc = slot_wait(x, s, e);
    if (rc == 0)
        rc = source_read(x->from, pos, len, s->buf, &p, e);
    if (rc == 0)
        rc = is_equal(x, p, len, pos, &equal, e);
    if (rc == 0)
        x->progress.read += len;
    if (rc == 0 && equal)
        tell(x, 0, len);
    if (rc < 0 || equal) {
        sem_post(&s->idle);
        return rc;
    }
    throttle_wait(&x->writes, len);
    s->len = len;
    s->w = (struct nbd_write){.buf = p, .len = len, .pos = pos, .done = written, .arg = s};
    x->next = (x->next + 1) % SLOTS;
    nbd_target_write(x->to, &s->w);
    return 0;
}

static int copy_hole(struct copy *x, uint64_t pos, uint64_t len, struct err *e)
{
    uint64_t n;
    int rc = !x->in_place || nbd_target_is_zero(x->to, pos, len) ? 0 : nbd_target_zero(x->to, pos, len, &n, e);
    if (rc == 0)
        tell(x, 0, len);
    return rc;
}

static int copy_all(struct copy *x, uint64_t size, struct err *e)
{
    struct extent t;
    int rc = 0;
    for (uint64_t at = 0; rc == 0 && at < size; at = t.start + t.len) {
        if ((rc = source_extent(x->from, at, &t, e)) < 0)
            return rc;
        if (t.hole)
            rc = copy_hole(x, at, t.start + t.len - at, e);
        else
            for (uint64_t end = t.start + t.len; rc == 0 && at < end; at += x->piece)
                rc = copy_piece(x, at, end - at < x->piece ? (size_t)(end - at) : x->piece, e);
    }
    for (unsigned i = 0; rc == 0 && i < SLOTS; i++) {
        if ((rc = slot_wait(x, &x->slot[i], e)) == 0)
            sem_post(&x->slot[i].idle);
    }
    return rc < 0 ? rc : nbd_target_flush(x->to, e);
}

/* The servers of both. */
static int copy_open(struct copy *x, const struct driver_class *c, const struct exposure *from,
                     const struct restore_target *t, struct err *e)
{
    int fd = -1, rc = rbd_open(c, from, &fd, e);
    if (rc == 0)
        rc = source_from_fd(&x->from, fd, from->path, from->where, e);
    if (rc == 0)
        rc = rbd_target_open(c, t, &fd, e);
    return rc < 0 ? rc : nbd_target_open(&x->to, fd, t->path, t->size, NULL, e);
}

int rbd_target_from_native(const struct driver_class *c, const struct native *n, const struct restore_target *t,
                           const struct fill *how, struct err *e)
{
    struct err why = ERR_INIT;
    CLEANUP_FREE struct exposure *from = calloc(1, sizeof *from);
    CLEANUP(copy_freep) struct copy *x = copy_new(t->final, strchr(t->handle, '@') != NULL, how);
    if (!from || !x)
        return err_nomem(e);
    int rc = rbd_expose(c, n, c, EXPOSE_NATIVE, true, "", from, &why);
    if (rc < 0 && why.cls == ERR_NOT_FOUND) {
        err_set(e, ERR_USAGE, ENOTSUP,
                "cannot fill restore target %.300s: native snapshot %s is not in the cluster of storage class \"%s\"",
                t->final, n->tag.alias, c->name);
        return err_hint(e, "restore from the repository: --from repository");
    }
    if (rc < 0 && e)
        *e = why;
    if (rc == 0 && from->size != t->size)
        rc = err_set(e, ERR_USAGE, EINVAL, "native snapshot %.300s has %" PRIu64 " bytes, the target %" PRIu64,
                     n->handle, from->size, t->size);
    if (rc == 0)
        rc = copy_open(x, c, from, t, e);
    if (rc == 0)
        rc = copy_all(x, t->size, e);
    return rc < 0 ? err_wrap(e, "cannot fill restore target %.300s", t->final) : 0;
}
