/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/blob-locks.h"

#include "base/cleanup.h"
#include "base/team.h"
#include "base/time.h"
#include "base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 1000          /* names held in memory */
#define FRESH_NS NS_PER_MIN /* a blob that was put so shortly before the run is left to the next one */

/* The same for what is put and for what is extended. */
static const char *const prefixes[] = {"n", "x", "p", "q", "kopia.repository", "kopia.blobcfg"};
#define PREFIXES (sizeof prefixes / sizeof *prefixes)

bool blob_is_locked(const char *name)
{
    for (size_t i = 0; i < PREFIXES; i++)
        if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
            return true;
    return false;
}

struct batch {
    const struct extend_opts *o;
    struct extended *ret;
    char (*names)[BLOB_NAME_MAX + 1];
    size_t n;
    pthread_mutex_t lock; /* of ret */
    struct err *e;
};

static int extend_one(void *arg, size_t i, struct err *e)
{
    struct batch *b = arg;
    struct err own = ERR_INIT;
    int rc = b->o->go_on(b->o->arg, e);
    if (rc < 0)
        return rc;
    rc = blobs_extend(b->o->blobs, b->names[i], &own);
    if (rc < 0 && own.cls == ERR_INTERRUPTED) {
        *e = own;
        return rc;
    }
    pthread_mutex_lock(&b->lock);
    if (rc == 0)
        b->ret->n++;
    else if (rc != -ENOENT && !b->ret->failed++) /* deleted since it was listed */
        b->ret->why = own;
    pthread_mutex_unlock(&b->lock);
    return 0;
}

static int batch_extend(struct batch *b)
{
    const int rc = team_run(TEAM_FAR, b->n, extend_one, b, b->e);
    b->n = 0;
    return rc;
}

static int blob_extend(const struct blob_info *i, void *arg)
{
    struct batch *b = arg;
    if (i->mtime_ns > b->o->now_ns - FRESH_NS || (b->o->wanted && !b->o->wanted(i->name, b->o->arg)))
        return 0;
    b->ret->bytes += i->length;
    if (b->o->dry_run) {
        b->ret->n++;
        return 0;
    }
    memcpy(b->names[b->n++], i->name, sizeof i->name);
    return b->n < BATCH ? 0 : batch_extend(b);
}

int blob_locks_extend(const struct extend_opts *o, struct extended *ret, struct err *e)
{
    CLEANUP_FREE char(*names)[BLOB_NAME_MAX + 1] = malloc(BATCH * sizeof *names);
    struct batch b = {.o = o, .ret = ret, .names = names, .lock = PTHREAD_MUTEX_INITIALIZER, .e = e};
    int rc = names ? 0 : err_nomem(e);
    *ret = (struct extended){.n = 0};
    for (size_t i = 0; rc == 0 && i < PREFIXES; i++)
        rc = blobs_list(o->blobs, prefixes[i], blob_extend, &b, e);
    if (rc == 0 && b.n)
        rc = batch_extend(&b);
    pthread_mutex_destroy(&b.lock);
    return rc;
}

int blob_locks_failed(const struct extended *r, struct err *e)
{
    if (!r->failed)
        return 0;
    *e = r->why;
    return err_wrap(e, "object locks of %" PRIu64 " blob%s could not be extended", r->failed, plural(r->failed));
}
