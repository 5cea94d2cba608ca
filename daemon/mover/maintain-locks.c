/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * maintain-locks.c - object locks of all blobs that a repository consists of are extended, by the period with which
 * they are put (Kopia repository format, sections 2.3 and 14.6)
 *
 * A request for each blob: some are in progress at a time. Whatever is put meanwhile is locked for the whole period.
 */
#include "daemon/mover/maintain-impl.h"

#include "base/cleanup.h"
#include "base/team.h"
#include "base/units.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 1000          /* names held in memory */
#define FRESH_NS NS_PER_MIN /* a blob that was put so shortly before the run is left to the next one */
#define LONGER_NS (24 * NS_PER_H)

struct batch {
    struct run *m;
    char (*names)[BLOB_NAME_MAX + 1];
    size_t n;
    pthread_mutex_t lock; /* of the rest */
    uint64_t failed;
    struct err first; /* why */
    struct err *e;
};

bool run_extends(const struct run *m)
{
    return m->params.extend_locks && repo_format(m->r)->retention_mode[0] && blobs_have_locks(repo_blobs(m->r));
}

static int extend_one(void *arg, size_t i, struct err *e)
{
    struct batch *b = arg;
    struct err own = ERR_INIT;
    int rc = run_interrupted(b->m, e);
    if (rc < 0)
        return rc;
    rc = blobs_extend(repo_blobs(b->m->r), b->names[i], &own);
    pthread_mutex_lock(&b->lock);
    if (rc == 0)
        b->m->ret->locks.n++;
    else if (rc != -ENOENT && !b->failed++) /* deleted since it was listed */
        b->first = own;
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
    if (i->mtime_ns > b->m->started_ns - FRESH_NS)
        return 0;
    b->m->ret->locks.bytes += i->length;
    if (b->m->o->dry_run) {
        b->m->ret->locks.n++;
        return 0;
    }
    memcpy(b->names[b->n++], i->name, sizeof i->name);
    return b->n < BATCH ? 0 : batch_extend(b);
}

int run_extend(struct run *m, struct err *e)
{
    /* The same as those that are locked when they are put. */
    static const char *const prefixes[] = {"n", "x", "p", "q", "kopia.repository", "kopia.blobcfg"};
    CLEANUP_FREE char(*names)[BLOB_NAME_MAX + 1] = malloc(BATCH * sizeof *names);
    struct batch b = {.m = m, .names = names, .lock = PTHREAD_MUTEX_INITIALIZER, .e = e};
    int rc = names ? 0 : err_nomem(e);
    if (m->params.full_ns && repo_format(m->r)->retention_period_ns < m->params.full_ns + LONGER_NS)
        log_warning("the object lock of repository %s is not 24 hours longer than the interval of full maintenance: "
                    "it may end before it is extended",
                    blobs_location(repo_blobs(m->r)));
    for (size_t i = 0; rc == 0 && i < sizeof prefixes / sizeof *prefixes; i++)
        rc = blobs_list(repo_blobs(m->r), prefixes[i], blob_extend, &b, e);
    if (rc == 0 && b.n)
        rc = batch_extend(&b);
    pthread_mutex_destroy(&b.lock);
    if (rc < 0 || !b.failed)
        return rc;
    *e = b.first;
    return err_wrap(e, "object locks of %" PRIu64 " blob%s could not be extended", b.failed, plural(b.failed));
}
