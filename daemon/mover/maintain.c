/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/maintain-impl.h"

#include "base/units.h"
#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"
#include "repo/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#define DOCUMENTS ((uint64_t)96 << 20) /* held in memory at a time */
#define TIME_LOOKS 3
#define LISTED_NS (30 * NS_PER_S)
#define COMPACTION_ROOM ((uint64_t)4 << 20)

int run_pause(const struct run *m, int64_t ns, struct err *e)
{
    const int64_t until = mono_ns() + ns;
    int rc = run_interrupted(m, e);
    for (int64_t left; rc == 0 && (left = until - mono_ns()) > 0; rc = run_interrupted(m, e)) {
        const struct timespec t = ns_timespec(left < 50 * NS_PER_MS ? left : 50 * NS_PER_MS);
        nanosleep(&t, NULL);
    }
    return rc;
}

/* ---- may it run ---- */

int maintain_params(struct repo *r, const char *owner, const char *machine, struct maintenance_params *ret,
                    struct err *e)
{
    int rc = maintenance_params_load(r, ret, e);
    const bool ours = rc == 0 && !strcmp(ret->owner, owner) && !maintain_of_another_machine(ret, machine);
    if (rc < 0 || ours || !blobs_lists_lag(repo_blobs(r)))
        return rc;
    rc = tidy_check(r, e);
    return rc < 0 ? rc : maintenance_params_load(r, ret, e);
}

static int check_owner(const struct run *m, struct err *e)
{
    const struct maintenance_params *p = &m->params;
    if (!repo_format(m->r)->epochs.enabled) {
        err_plain(e, ERR_FORMAT, ENOTSUP, "repository %s has no epochs, and is not maintained by snapferry",
                  blobs_location(repo_blobs(m->r)));
        return err_hint(e, "let stock Kopia maintain it, or upgrade its format with stock Kopia");
    }
    if (m->o->dry_run)
        return 0;
    const int copy = copy_is_marked(repo_blobs(m->r), e);
    if (copy < 0)
        return copy;
    if (copy) {
        err_plain(e, ERR_FORMAT, ENOTSUP, "repository %s is a copy of another one, and is not maintained",
                  blobs_location(repo_blobs(m->r)));
        return err_hint(e, "maintain the original, and copy again; if it is lost, --take-ownership makes the copy a "
                           "repository of its own");
    }
    if (strcmp(p->owner, m->o->owner) != 0) {
        err_plain(e, ERR_PERMISSION, EPERM, "maintenance of repository %s belongs to %s, this is %s",
                  blobs_location(repo_blobs(m->r)), *p->owner ? p->owner : "nobody", m->o->owner);
        return err_hint(e, "run it there; or take it over with --take-ownership when the other one does not run it any "
                           "more");
    }
    if (maintain_of_another_machine(p, m->o->machine)) {
        err_plain(e, ERR_PERMISSION, EPERM,
                  "maintenance of repository %s belongs to %s on another machine: this one has the same node name, but "
                  "another machine id",
                  blobs_location(repo_blobs(m->r)), m->o->owner);
        return err_hint(e, MAINTAIN_MACHINE_HINT);
    }
    if (p->taken_ns != INT64_MIN && now_ns() - p->taken_ns < MAINTAIN_TAKE_OVER_NS) {
        char from[TIME_TEXT];
        time_text((p->taken_ns + MAINTAIN_TAKE_OVER_NS) / NS_PER_S * NS_PER_S, from);
        return err_plain(e, ERR_BUSY, EAGAIN,
                         "maintenance was taken over at less than 30 minutes ago: the former owner may still run it; "
                         "it can run from %s on",
                         from);
    }
    return 0;
}

/* Two runs of this node. Others are noticed by the schedule. */
static int lock_node(const struct run *m, int *fd, struct err *e)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/maintenance.lock", repo_cache_dir(m->r));
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot open %s", path);
    if (flock(*fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK
                   ? err_plain(e, ERR_BUSY, EBUSY, "maintenance of repository %s is already running on this node",
                               blobs_location(repo_blobs(m->r)))
                   : err_set(e, ERR_GENERIC, errno, "cannot lock %s", path);
    return 0;
}

/* Some servers answer with what they have at hand. */
static int schedule_time(struct run *m, int64_t before, struct err *e)
{
    struct blob_info info;
    for (unsigned i = 0; blobs_lists_lag(repo_blobs(m->r)) && i < TIME_LOOKS; i++) {
        if (m->schedule.mtime_ns >= before - CLOCK_LIMIT_NS)
            break;
        int rc = run_pause(m, NS_PER_S, e);
        if (rc == 0)
            rc = blobs_stat(repo_blobs(m->r), MAINTENANCE_SCHEDULE, &info, e);
        if (rc < 0)
            return rc;
        m->schedule.mtime_ns = info.mtime_ns;
    }
    return 0;
}

/* What has been put is listed within a short time: the lists by which this run judges are not much older. Packs and
 * contents are judged when they are a day old, so that what was put meanwhile does not matter. */
static int wait_until_listed(struct run *m, struct err *e)
{
    const int64_t until = mono_ns() + LISTED_NS;
    int64_t pause = 100 * NS_PER_MS;
    if (!blobs_lists_lag(repo_blobs(m->r)))
        return 0;
    for (;;) {
        int rc = blobs_is_listed(repo_blobs(m->r), MAINTENANCE_SCHEDULE, m->schedule.mtime_ns, e);
        if (rc)
            return rc < 0 ? rc : 0;
        if (mono_ns() >= until) {
            err_plain(e, ERR_GENERIC, EAGAIN,
                      "lists of %s lag by more than %d seconds behind what is put: nothing was removed",
                      blobs_location(repo_blobs(m->r)), (int)(LISTED_NS / NS_PER_S));
            return err_hint(e, "is the service overloaded, or being repaired? Run it again when it is well");
        }
        rc = run_pause(m, pause, e);
        if (rc < 0)
            return rc;
        pause = pause < NS_PER_S ? 2 * pause : pause;
    }
}

/* The start time is the storage's. */
static int begin(struct run *m, struct err *e)
{
    int64_t before = now_ns();
    m->started_ns = m->wall_ns = before;
    m->boot_ns = boot_ns();
    if (m->o->dry_run)
        return 0;
    int rc = maintenance_next(&m->schedule, &m->params, m->o->full, before, e);
    if (rc == 0)
        rc = maintenance_store(m->r, &m->schedule, e);
    if (rc < 0)
        return rc;
    crash_point("maintenance-begun");
    rc = schedule_time(m, before, e);
    if (rc < 0)
        return rc;
    m->started_ns = m->schedule.mtime_ns;
    rc = run_check_times(m, before, m->started_ns, now_ns(), e);
    return rc == 0 ? wait_until_listed(m, e) : rc;
}

/* ---- the run ---- */

/* Ends a task and records it, also if it failed. */
static int task_end(struct run *m, enum maintenance_task t, int rc, struct err *e)
{
    struct err own = ERR_INIT;
    if (m->o->dry_run && rc < 0)
        return rc;
    int noted = maintenance_note(&m->schedule, t, m->task_ns, now_ns(), rc < 0 ? e->msg : NULL, rc < 0 ? &own : e);
    if (noted == 0 && !m->o->dry_run && rc != -ESTALE)
        noted = maintenance_store(m->r, &m->schedule, rc < 0 ? &own : e);
    return rc < 0 ? rc : noted;
}

static uint64_t collections(const json_t *schedule)
{
    const json_t *list = json_object_get(json_object_get(schedule, "runs"), maintenance_task_name(MAINT_SNAPSHOT_GC));
    uint64_t n = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        n += json_is_true(json_object_get(json_array_get(list, i), "success"));
    return n;
}

/* Behind the deletion of packs, so that each run may do both: deleting has to wait for an hour after this. Where
 * nothing was rewritten there is no record, and no wait. */
static int rewrite(struct run *m, struct err *e)
{
    int rc = 0;
    if (!m->o->unsafe && !maintenance_rewrite_due(m->schedule.doc))
        return 0;
    run_phase(m, PHASE_MOVING);
    blobs_use_reserve(repo_blobs(m->r), false);
    rc = run_rewrite(m, e);
    blobs_use_reserve(repo_blobs(m->r), !m->o->dry_run);
    if (rc == 0 && !m->ret->rewritten.n && !m->ret->renewed.n)
        return 0;
    rc = task_end(m, MAINT_REWRITE, rc, e);
    return rc == 0 ? run_task_begin(m, e) : rc;
}

/* What is skipped leaves no record. */
static int compact_manifests(struct run *m, struct err *e)
{
    int rc = run_task_begin(m, e);
    if (rc == 0) {
        rc = run_manifests(m, e);
        if (rc < 0 || m->ret->manifests.merged)
            rc = task_end(m, MAINT_MANIFESTS, rc, e);
    }
    return rc;
}

/* Frees space. */
static int run_full(struct run *m, struct err *e)
{
    int64_t late_s;
    int rc = run_task_begin(m, e);
    run_phase(m, PHASE_CHECKING);
    if (rc == 0)
        rc = run_look(m, e);
    if (rc == 0)
        rc = run_collect(m, e);
    rc = task_end(m, MAINT_SNAPSHOT_GC, rc, e);
    m->ret->collections = collections(m->schedule.doc);
    if (rc == 0)
        rc = compact_manifests(m, e);
    if (rc == 0)
        rc = run_task_begin(m, e);
    if (rc < 0)
        return rc;

    rc = run_drop(m, &late_s, e);
    if (rc < 0 || m->ret->watermark_ns != INT64_MIN) /* what is skipped leaves no record */
        rc = task_end(m, MAINT_DROP_DELETED, rc, e);
    if (rc == 0)
        rc = run_task_begin(m, e);
    if (rc < 0)
        return rc;

    /* Without delays what is rewritten comes first, so that the old packs are deleted in the same run. */
    if (m->o->unsafe)
        rc = rewrite(m, e);
    m->ret->delete_from_ns = maintenance_delete_time(m->schedule.doc, m->safety);
    if (rc == 0 && m->task_ns >= m->ret->delete_from_ns) {
        rc = run_delete(m, late_s, e);
        rc = task_end(m, MAINT_DELETE_BLOBS, rc, e);
    }
    if (rc == 0 && !m->o->unsafe)
        rc = run_task_begin(m, e);
    if (rc == 0 && !m->o->unsafe)
        rc = rewrite(m, e);
    if (rc < 0 || !run_extends(m))
        return rc;
    rc = run_task_begin(m, e);
    return rc < 0 ? rc : task_end(m, MAINT_EXTEND_LOCKS, run_extend(m, e), e);
}

/* What compacts the index needs room for the result. Where there is none it waits, and leaves no record; what follows
 * deletes. */
static bool is_left_for_later(struct run *m, enum maintenance_task t, int rc, struct err *e)
{
    if (rc >= 0 || e->cls != ERR_NO_SPACE || !m->o->full || (t != MAINT_SINGLE_EPOCH && t != MAINT_RANGE))
        return false;
    log_warning("left for later: %s", e->msg);
    m->ret->needs += COMPACTION_ROOM;
    *e = (struct err)ERR_INIT;
    return true;
}

static int run_tasks(struct run *m, struct err *e)
{
    static const struct {
        enum maintenance_task task;
        int (*fn)(struct repo *r, bool dry_run, struct epoch_tidied *ret, struct err *e);
        bool full_only;
    } index[] = {{MAINT_SINGLE_EPOCH, tidy_single_epochs, false},
                 {MAINT_ADVANCE_EPOCH, tidy_advance, false},
                 {MAINT_RANGE, tidy_range, true},
                 {MAINT_MARKERS, tidy_markers, true},
                 {MAINT_SUPERSEDED, tidy_superseded, true}};
    int rc = m->o->full ? run_full(m, e) : compact_manifests(m, e);
    run_phase(m, PHASE_COMMITTING);
    for (size_t i = 0; i < sizeof index / sizeof *index && rc == 0; i++) {
        if (index[i].full_only && !m->o->full)
            continue;
        rc = run_task_begin(m, e);
        if (rc == 0) {
            const bool small = index[i].task != MAINT_SINGLE_EPOCH && index[i].task != MAINT_RANGE;
            const bool before = blobs_use_reserve(repo_blobs(m->r), small && m->o->full && !m->o->dry_run);
            rc = index[i].fn(m->r, m->o->dry_run, &m->ret->index, e);
            blobs_use_reserve(repo_blobs(m->r), before);
            rc = is_left_for_later(m, index[i].task, rc, e) ? 0 : task_end(m, index[i].task, rc, e);
        }
    }
    if (rc == 0 && m->o->full)
        rc = run_task_begin(m, e);
    if (rc < 0 || !m->o->full)
        return rc;
    rc = run_clean_logs(m, e);
    rc = task_end(m, MAINT_CLEANUP_LOGS, rc, e);
    return rc == 0 ? run_leftovers(m, e) : rc;
}

/* What can be deleted without writing goes first where there is little room, or none to say that a run has begun. */
static int begin_with_room(struct run *m, struct err *e)
{
    const bool frees = m->o->full && !m->o->dry_run, first = frees && run_is_short(m);
    int rc = first ? run_free_first(m, e) : 0;
    if (rc == 0)
        rc = begin(m, e);
    if (frees && !first && rc < 0 && e->cls == ERR_NO_SPACE) {
        *e = (struct err)ERR_INIT;
        m->lean = true;
        rc = run_free_first(m, e);
        if (rc == 0)
            rc = begin(m, e);
    }
    m->lean = frees && run_is_short(m);
    return rc;
}

/* After all else, which may have made the room for it. The next run does it if this one cannot. */
static void note_machine(const struct run *m)
{
    struct err own = ERR_INIT;
    if (m->o->dry_run || !m->o->machine || !*m->o->machine || m->params.machine[0])
        return;
    if (maintenance_note_machine(m->r, m->o->owner, m->o->machine, &own) < 0)
        log_warning("the machine of the owner of maintenance was not noted: %s", own.msg);
}

int maintain_run(struct repo *r, const struct maintain_opts *o, struct maintain_result *ret, struct err *e)
{
    const double began = mono_s();
    CLEANUP_CLOSE int lock = -1;
    struct run m = {.r = r, .o = o, .ret = ret, .e = e};
    m.safety = o->unsafe ? &maintenance_safety_none : &maintenance_safety_full;
    *ret = (struct maintain_result){.watermark_ns = INT64_MIN,
                                    .delete_from_ns = INT64_MIN,
                                    .next_full_ns = INT64_MIN,
                                    .waiting_since_ns = INT64_MIN};
    const _Atomic bool *stop = o->cancel ? &o->cancel->requested : NULL, *before = blobs_stop(repo_blobs(r), stop);
    struct throttle reads = mover_reads(o->read_limit, o->cancel), writes = mover_writes(o->write_limit, o->cancel);
    blobs_limit(repo_blobs(r), &reads, &writes);
    int rc = maintain_params(r, o->owner, o->machine, &m.params, e);
    if (rc == 0)
        rc = check_owner(&m, e);
    if (rc == 0 && !o->dry_run)
        rc = lock_node(&m, &lock, e);
    if (rc == 0)
        rc = maintenance_load(r, &m.schedule, e);
    if (rc < 0) {
        blobs_limit(repo_blobs(r), NULL, NULL);
        blobs_stop(repo_blobs(r), before);
        return rc;
    }
    repo_memory(r, DOCUMENTS);
    const bool reserve = blobs_use_reserve(repo_blobs(r), o->full && !o->dry_run);
    rc = begin_with_room(&m, e);
    ret->started_ns = m.started_ns;
    if (rc == 0)
        rc = run_tasks(&m, e);
    if (rc == 0)
        note_machine(&m);
    blobs_use_reserve(repo_blobs(r), reserve);
    if (!o->dry_run)
        rc = run_explain_full(&m, rc, e);
    if (o->full && !o->dry_run)
        blobs_reserve(repo_blobs(r));
    ret->drop_from_ns = maintenance_drop_from(m.schedule.doc, m.safety,
                                              ret->marked.n ? m.task_ns : ret->waiting_since_ns, &ret->drop_runs);
    if (m.params.full_ns)
        ret->next_full_ns = now_ns() + m.params.full_ns;
    run_forget(&m);
    maintenance_clear(&m.schedule);
    blobs_limit(repo_blobs(r), NULL, NULL);
    blobs_stop(repo_blobs(r), before);
    repo_memory(r, 0);
    ret->seconds = mono_s() - began;
    if (rc == 0 && ret->damaged + ret->unreadable.n) {
        err_set(e, ERR_DAMAGE, EBADMSG, "%" PRIu64 " needed content%s cannot be read; all else was done",
                ret->damaged + ret->unreadable.n, plural(ret->damaged + ret->unreadable.n));
        err_hint(e, "they were left where they are: run verify to see which snapshots need them");
        rc = -EBADMSG;
    }
    return rc;
}
