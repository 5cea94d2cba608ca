/* SPDX-License-Identifier: GPL-2.0-or-later */
/* nbd-context.c - what a metadata context of an export says of all its extents */
#include "base/cleanup.h"
#include "io/nbd-impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SPAN ((uint64_t)1 << 30) /* asked for at once */

struct walk {
    const char *context;
    uint32_t mask;
    uint64_t size, pos; /* pos: where the next extent begins */
    uint64_t end;       /* of what was asked for */
    nbd_flagged_fn *fn;
    void *arg;
    bool done, malformed;
    int error, stopped;
};

static int on_extents(void *arg, const char *context, uint64_t pos, uint32_t *entry, size_t n, int *error)
{
    struct walk *w = arg;
    (void)error;
    if (strcmp(context, w->context) != 0)
        return 0;
    w->malformed |= pos != w->pos;
    for (size_t i = 0; i + 1 < n && !w->malformed && !w->stopped; i += 2) {
        /* Only the last one may be longer than what was asked for. */
        if (entry[i] == 0 || w->pos >= w->end) {
            w->malformed = true;
            break;
        }
        const uint64_t len = entry[i] < w->size - w->pos ? entry[i] : w->size - w->pos;
        if (entry[i + 1] & w->mask)
            w->stopped = w->fn(w->pos, len, w->arg);
        w->pos += len;
    }
    return 0;
}

static int on_end(void *arg, int *error)
{
    struct walk *w = arg;
    w->error = *error;
    w->done = true;
    return 1;
}

static bool has_ended(void *arg)
{
    return ((const struct walk *)arg)->done;
}

/* One question: goes on at least by one extent. */
static int ask(const struct nbd_lib *lib, struct nbd_handle *h, struct walk *w, const char *name, struct err *e)
{
    const uint64_t from = w->pos, left = w->size - from;
    w->end = from + (left < SPAN ? left : SPAN);
    w->done = false;
    if (lib->aio_block_status(h, w->end - from, from, (nbd_extent_callback){.callback = on_extents, .user_data = w},
                              (nbd_completion_callback){.callback = on_end, .user_data = w}, 0) < 0)
        return err_plain(e, ERR_SOURCE, EPROTO, "cannot ask for the extents of %s: %s", name, lib->get_error());
    int rc = nbd_drive_until(lib, h, has_ended, w, NULL, name, e);
    if (rc < 0 || w->stopped)
        return rc < 0 ? rc : w->stopped;
    if (w->error)
        return err_plain(e, ERR_SOURCE, w->error, "the NBD server of %s does not say what %s is at %" PRIu64 ": %s",
                         name, w->context, from, strerror(w->error));
    if (w->malformed || w->pos == from)
        return err_plain(e, ERR_SOURCE, EPROTO, "the NBD server of %s does not describe %s at %" PRIu64, name,
                         w->context, from);
    return 0;
}

int nbd_each_flagged(const struct nbd_uri *u, const char *context, uint32_t mask, nbd_flagged_fn *fn, void *arg,
                     uint64_t *size, struct err *e)
{
    const struct nbd_lib *lib = nbd_lib(e);
    struct nbd_handle *h = NULL;
    struct nbd_facts facts;
    char name[NBD_URI_MAX];
    int fd;
    nbd_uri_text(u, name);
    int rc = lib ? nbd_dial(u, &fd, NULL, e) : -ENOTSUP;
    if (rc == 0)
        rc = nbd_handshake(lib, &h, fd, u, context, NULL, name, e);
    if (rc < 0)
        return rc;
    rc = nbd_facts_of(lib, h, name, &facts, e);
    if (rc == 0 && lib->can_meta_context(h, context) <= 0)
        rc = err_plain(e, ERR_SOURCE, ENOENT, "the NBD export %s has no context %s", name, context);
    struct walk w = {.context = context, .mask = mask, .size = rc == 0 ? facts.size : 0, .fn = fn, .arg = arg};
    while (rc == 0 && w.pos < w.size)
        rc = ask(lib, h, &w, name, e);
    lib->close(h);
    *size = w.size;
    return rc;
}
