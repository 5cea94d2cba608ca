/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * maintain-first.c - maintenance where the storage is full
 *
 * Deletions need no room, but what a run writes before them does: that it has begun, and what it marks. So where little
 * is free, a run first deletes what may be deleted by what earlier runs have written, and only then begins. For what is
 * written after that the repository's directory keeps a reserve (repo/blob-reserve.h). What needs more room than that,
 * short packs that are rewritten and the compaction of the index, waits until there is some.
 */
#include "daemon/mover/maintain-impl.h"

#include "base/crash.h"
#include "repo/leftovers.h"

/* Whether the run must end for it; else the next one is tried. */
static bool is_final(const struct err *e)
{
    return e->cls == ERR_INTERRUPTED || e->cls == ERR_CLOCK || e->cls == ERR_BUSY || e->cls == ERR_PERMISSION ||
           e->cls == ERR_MEMORY || e->cls == ERR_FORMAT;
}

static int start_time(struct run *m, struct err *e)
{
    const int64_t before = now_ns();
    m->wall_ns = before;
    m->boot_ns = boot_ns();
    int rc = blobs_clock(repo_blobs(m->r), &m->started_ns, e);
    return rc == 0 ? run_check_times(m, before, m->started_ns, now_ns(), e) : rc;
}

int run_leftovers(struct run *m, struct err *e)
{
    struct blob_leftovers left;
    int rc = leftovers_remove(m->r, m->o->dry_run, &left, e);
    m->ret->leftovers.n += left.files;
    m->ret->leftovers.bytes += left.bytes;
    crash_point("maintenance-leftovers");
    return rc;
}

static int free_index(struct run *m, struct err *e)
{
    return tidy_superseded(m->r, false, &m->ret->index, e);
}

/* Packs that nothing refers to. That it was done cannot be recorded: a later run rewrites contents a day later for
 * that.
 */
static int free_packs(struct run *m, struct err *e)
{
    if (!m->o->unsafe && m->task_ns < maintenance_delete_time(m->schedule.doc, m->safety))
        return 0;
    int rc = run_look(m, e);
    if (rc == 0)
        rc = run_mark(m, e);
    if (rc == 0)
        rc = run_check_alone(m, e);
    return rc == 0 ? run_delete(m, INT64_MIN, e) : rc;
}

int run_free_first(struct run *m, struct err *e)
{
    static int (*const steps[])(struct run * m, struct err * e) = {run_leftovers, run_clean_logs, free_index,
                                                                   free_packs};
    struct maintain_result *res = m->ret;
    int rc = start_time(m, e);
    run_phase(m, PHASE_CHECKING);
    for (size_t i = 0; rc == 0 && i < sizeof steps / sizeof *steps; i++) {
        struct err own = ERR_INIT;
        rc = run_task_begin(m, e);
        if (rc == 0 && (rc = steps[i](m, &own)) < 0) {
            if (is_final(&own))
                *e = own;
            else
                log_warning("some of what may be deleted from the full repository is not: %s", own.msg);
            rc = is_final(&own) ? rc : 0;
        }
    }
    run_forget(m);
    crash_point("maintenance-freed-first");
    /* What the run itself finds is counted anew. */
    *res = (struct maintain_result){.watermark_ns = INT64_MIN,
                                    .delete_from_ns = INT64_MIN,
                                    .next_full_ns = INT64_MIN,
                                    .waiting_since_ns = INT64_MIN,
                                    .deleted = res->deleted,
                                    .markers = res->markers,
                                    .logs = res->logs,
                                    .leftovers = res->leftovers,
                                    .index = res->index};
    return rc;
}
