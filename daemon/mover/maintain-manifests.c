/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * maintain-manifests.c - the contents of manifests that backups have left are stored together, in few (CF-40)
 *
 * Whoever opens the repository reads all of them, so quick maintenance does it as well, by their number alone. A full
 * run does it behind the collection: by then it is known that no index was lost, so that tombstones may be left out.
 */
#include "daemon/mover/maintain-impl.h"

#include "base/crash.h"
#include "repo/manifest-compact.h"

static int may_write(void *run, uint64_t bytes, struct err *e)
{
    struct run *m = run;
    int rc = run_interrupted(m, e);
    if (rc == 0)
        rc = maintenance_current(m->r, &m->schedule, e);
    if (rc < 0)
        return rc;
    return !bytes || run_has_room(m, 2 * bytes);
}

int run_manifests(struct run *m, struct err *e)
{
    const struct manifest_compact_opts o = {.dry_run = m->o->dry_run,
                                            .thorough = m->o->full,
                                            .drop_tombstones = m->o->full,
                                            .now_ns = m->started_ns,
                                            .tombstone_age_ns = m->o->unsafe ? 0 : MANIFEST_TOMBSTONE_AGE_NS,
                                            .may_write = may_write,
                                            .arg = m};
    struct manifest_compacted done;
    if (m->lean)
        return 0;
    const bool before = blobs_use_reserve(repo_blobs(m->r), false);
    int rc = manifests_compact(m->r, &o, &done, e);
    blobs_use_reserve(repo_blobs(m->r), before);
    m->ret->manifests = done;
    if (is_unreadable(rc, e) || (rc < 0 && e->cls == ERR_NO_SPACE)) {
        log_warning("manifests are not stored together: %s", e->msg);
        m->ret->manifests = (struct manifest_compacted){.contents = done.contents, .bytes = done.bytes};
        *e = (struct err)ERR_INIT;
        rc = 0;
    }
    return rc;
}
