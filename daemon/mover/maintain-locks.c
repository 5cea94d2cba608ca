/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * maintain-locks.c - object locks of all blobs that a repository consists of are extended, by the period with which
 * they are put
 */
#include "daemon/mover/maintain-impl.h"

#include "repo/blob-locks.h"

#define LONGER_NS (24 * NS_PER_H)

bool run_extends(const struct run *m)
{
    return m->params.extend_locks && repo_format(m->r)->retention_mode[0] && blobs_have_locks(repo_blobs(m->r));
}

static int goes_on(void *arg, struct err *e)
{
    return run_interrupted(arg, e);
}

int run_extend(struct run *m, struct err *e)
{
    const struct extend_opts o = {
        .blobs = repo_blobs(m->r), .now_ns = m->started_ns, .dry_run = m->o->dry_run, .go_on = goes_on, .arg = m};
    struct extended done;
    if (m->params.full_ns && repo_format(m->r)->retention_period_ns < m->params.full_ns + LONGER_NS)
        log_warning("the object lock of repository %s is not 24 hours longer than the interval of full maintenance: "
                    "it may end before it is extended",
                    blobs_location(repo_blobs(m->r)));
    const int rc = blob_locks_extend(&o, &done, e);
    m->ret->locks.n += done.n;
    m->ret->locks.bytes += done.bytes;
    return rc < 0 ? rc : blob_locks_failed(&done, e);
}
