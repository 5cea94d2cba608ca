/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/maintain-impl.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"
#include "repo/copy.h"
#include "repo/tombstones.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#define TAKE_OVER_NS (30 * NS_PER_MIN) /* a former owner that has not seen it yet has ended by then */
#define DOCUMENTS ((uint64_t)96 << 20) /* held in memory at a time */
#define CONTENT_MAX ((size_t)1 << 28)
#define TIME_LOOKS 3
#define LISTED_NS (30 * NS_PER_S)

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

int maintain_params(struct repo *r, const char *owner, struct maintenance_params *ret, struct err *e)
{
    int rc = maintenance_params_load(r, ret, e);
    if (rc < 0 || !strcmp(ret->owner, owner) || !blobs_lists_lag(repo_blobs(r)))
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
    if (p->taken_ns != INT64_MIN && now_ns() - p->taken_ns < TAKE_OVER_NS) {
        char from[TIME_TEXT];
        time_text((p->taken_ns + TAKE_OVER_NS) / NS_PER_S * NS_PER_S, from);
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
    const int64_t then = m->schedule.mtime_ns, after = now_ns();
    m->started_ns = then;
    if (then >= before - CLOCK_LIMIT_NS && then <= after + CLOCK_LIMIT_NS)
        return wait_until_listed(m, e);
    char ours[TIME_TEXT], theirs[TIME_TEXT];
    time_text(after / NS_PER_S * NS_PER_S, ours);
    time_text(then / NS_PER_S * NS_PER_S, theirs);
    err_set(e, ERR_CLOCK, 0,
            "clocks differ by more than 5 minutes: local time %s, time of the repository's storage %s (%s)", ours,
            theirs, blobs_location(repo_blobs(m->r)));
    return err_hint(e, "set the clock that is wrong (see timedatectl), then retry");
}

/* Without delays nobody else may use the repository. */
static int check_alone(const struct run *m, struct err *e)
{
    const int64_t since = now_ns() - maintenance_safety_full.session_age;
    if (!m->o->unsafe)
        return 0;
    for (size_t i = 0; i < m->n_markers; i++) {
        if (m->markers[i].seen_ns <= since)
            continue;
        err_plain(e, ERR_BUSY, EBUSY, "session marker %s is younger than 96 hours: a client may be writing",
                  m->markers[i].name);
        return err_hint(e, "use --safety=full, which is safe while others write");
    }
    if (m->mark.checkpoint_ns <= since)
        return 0;
    err_plain(e, ERR_BUSY, EBUSY, "an incomplete snapshot is younger than 96 hours: its backup may be running");
    return err_hint(e, "use --safety=full, which is safe while others write");
}

/* ---- snapshot GC ---- */

struct sweep {
    struct run *m;
    struct tombstones *out;
    struct session *s;
    struct put_scratch *scratch;
    struct content_reader *reader;
    uint64_t found, lost;
    int64_t watermark_s; /* entries deleted until then are to be dropped */
    int64_t needed_s;    /* when the first of those that are needed was marked; INT64_MAX: none is */
    struct err *e;
};

static bool is_used(struct sweep *w, const struct index_entry *en)
{
    return id_set_has(w->m->mark.used, &en->id, 0);
}

/* All that snapshots need must be in the index: else an index blob was lost, and with it perhaps snapshots. */
static int count_used(const struct index_entry *en, enum index_standing standing, void *arg)
{
    struct sweep *w = arg;
    if (standing == INDEX_LOSER)
        return 0;
    if (is_used(w, en))
        w->found++;
    /* Its pack was not there, unless it was written since. */
    if (!en->deleted && is_used(w, en) && !pack_table_find(w->m->packs, en->pack) &&
        ns_of_seconds(en->time) < w->m->started_ns - NS_PER_H) {
        w->m->missing++;
        repo_note_bad_pack(w->m->r, en->pack);
    }
    return run_interrupted(w->m, w->e);
}

static int check_complete(struct run *m, struct err *e)
{
    struct sweep w = {.m = m, .e = e};
    int rc = index_set_each_all(repo_index(m->r), count_used, &w, e);
    if (rc < 0 || w.found == id_set_count(m->mark.used))
        return rc;
    err_set(e, ERR_DAMAGE, EBADMSG, "%" PRIu64 " contents that snapshots need are in no index: nothing is removed",
            id_set_count(m->mark.used) - w.found);
    return err_hint(e, "run verify to see which, and snapferry-recovery(7) to rebuild the index");
}

/* A content that is needed, and that somebody marked deleted, is stored again. */
static int restore_content(struct sweep *w, const struct index_entry *en)
{
    struct maintain_result *res = w->m->ret;
    if (w->m->o->dry_run) {
        sum_add(&res->restored, en->packed);
        return 0;
    }
    struct err own = ERR_INIT;
    int rc = 0;
    if (!w->s) {
        rc = session_new(&w->s, w->m->r, &(struct session_opts){.no_adopt = true}, w->e);
        if (rc == 0)
            rc = put_scratch_new(&w->scratch, w->m->r, 0, 0, w->e);
        if (rc == 0)
            rc = content_reader_new(&w->reader, w->m->r, w->e);
        if (rc < 0)
            return rc;
    }
    CLEANUP_FREE uint8_t *data = malloc(en->length + 1u);
    if (!data)
        return err_nomem(w->e);
    int64_t n = content_read_entry(w->reader, en, NULL, data, en->length, true, &own);
    if (is_unreadable(n, &own)) {
        log_warning("cannot store a deleted content again that snapshots need: %s", own.msg);
        res->damaged++;
        return 0;
    }
    if (n < 0) {
        *w->e = own;
        return (int)n;
    }
    rc = session_put(w->s, w->scratch, &en->id, data, (size_t)n, run_compression(en->compression), NULL, w->e);
    if (rc == 0)
        sum_add(&res->restored, en->packed);
    return rc;
}

static int restore_one(const struct index_entry *en, enum index_standing standing, void *arg)
{
    struct sweep *w = arg;
    int rc = run_interrupted(w->m, w->e);
    if (rc < 0 || standing == INDEX_LOSER || !en->deleted || en->id.prefix == MANIFEST_PREFIX || !is_used(w, en))
        return rc;
    return restore_content(w, en);
}

static int restore_used(struct run *m, struct err *e)
{
    struct sweep w = {.m = m, .e = e};
    int rc = index_set_each_all(repo_index(m->r), restore_one, &w, e);
    if (rc == 0 && w.s)
        rc = session_flush(w.s, e);
    content_reader_free(w.reader);
    put_scratch_free(w.scratch);
    session_free(w.s);
    crash_point("maintenance-restored");
    return rc;
}

static int sweep_one(const struct index_entry *en, enum index_standing standing, void *arg)
{
    struct sweep *w = arg;
    struct run *m = w->m;
    struct maintain_result *res = m->ret;
    int rc = run_interrupted(m, w->e);
    if (rc < 0 || standing != INDEX_WINNER)
        return rc;
    if (is_used(w, en) || (en->id.prefix == MANIFEST_PREFIX && !en->deleted)) {
        sum_add(&res->used, en->packed);
        return 0;
    }
    int64_t time_ns = ns_of_seconds(en->time);
    if (en->deleted) {
        sum_add(&res->waiting, en->packed);
        if (time_ns > res->waiting_since_ns)
            res->waiting_since_ns = time_ns;
        return 0;
    }
    /* Contents have the time of their writer, whose clock may be slow: its pack has the storage's. One that is not in
     * the listing was written since. */
    const struct pack_record *p = pack_table_find(m->packs, en->pack);
    const int64_t stored_ns = p ? p->time_ns : m->started_ns;
    time_ns = stored_ns > time_ns ? stored_ns : time_ns;
    if (m->started_ns - time_ns < m->safety->content_age) {
        sum_add(&res->young, en->packed);
        if (time_ns + m->safety->content_age > res->young_until_ns)
            res->young_until_ns = time_ns + m->safety->content_age;
        return 0;
    }
    if (!m->o->dry_run)
        return tombstones_add(w->out, en, w->e);
    sum_add(&res->marked, en->packed);
    return 0;
}

static int sweep(struct run *m, struct err *e)
{
    CLEANUP(tombstones_freep) struct tombstones *out = NULL;
    struct sweep w = {.m = m, .e = e};
    int rc = m->o->dry_run ? 0 : tombstones_new(&out, m->r, e);
    w.out = out;
    if (rc == 0)
        rc = index_set_each_all(repo_index(m->r), sweep_one, &w, e);
    if (rc == 0 && out)
        rc = tombstones_flush(out, e);
    if (out)
        m->ret->marked.n = tombstones_count(out, &m->ret->marked.bytes);
    return rc;
}

static int collect(struct run *m, struct err *e)
{
    struct index_set_stats is;
    index_set_stats(repo_index(m->r), &is);
    m->mark = (struct maintain_mark){.r = m->r, .cancel = m->o->cancel, .checkpoint_ns = INT64_MIN};
    int rc = id_set_new(&m->mark.used, repo_cache_dir(m->r), is.entries, e);
    if (rc == 0)
        rc = id_set_new(&m->mark.objects, repo_cache_dir(m->r), 0, e);
    if (rc == 0)
        rc = maintain_mark(&m->mark, e);
    /* Walking takes hours: what was added meanwhile is walked too, so that as little as possible is marked deleted that
     * the next collection would have to restore. */
    if (rc == 0)
        rc = index_set_refresh(repo_index(m->r), e);
    if (rc == 0)
        rc = maintain_mark(&m->mark, e);
    m->ret->snapshots = m->mark.snapshots;
    m->ret->incomplete = m->mark.incomplete;
    if (rc == 0)
        rc = check_complete(m, e);
    if (rc == 0)
        rc = check_alone(m, e);
    if (rc == 0)
        rc = restore_used(m, e);
    return rc == 0 ? sweep(m, e) : rc;
}

/* ---- dropping ---- */

static int drop_one(const struct index_entry *en, enum index_standing standing, void *arg)
{
    struct sweep *w = arg;
    if (standing != INDEX_WINNER || !en->deleted || en->time > w->watermark_s)
        return run_interrupted(w->m, w->e);
    if (is_used(w, en) && en->time < w->needed_s)
        w->needed_s = en->time;
    sum_add(&w->m->ret->dropped, en->packed);
    return 0;
}

/* *late_s: watermark that a dry run would set. */
static int drop(struct run *m, int64_t *late_s, struct err *e)
{
    struct maintain_result *res = m->ret;
    struct index_set_stats is;
    struct sweep w = {.m = m, .e = e, .needed_s = INT64_MAX};
    int64_t safe =
        m->safety->two_collections ? maintenance_drop_time(m->schedule.doc, m->safety, m->task_ns) : m->task_ns;
    *late_s = INT64_MIN;
    int rc = index_set_refresh(repo_index(m->r), e);
    index_set_stats(repo_index(m->r), &is);
    if (rc < 0 || safe == INT64_MIN || safe / NS_PER_S <= is.watermark)
        return rc;
    w.watermark_s = safe / NS_PER_S;
    rc = index_set_each_all(repo_index(m->r), drop_one, &w, e);
    if (rc == 0 && w.needed_s != INT64_MAX && !m->o->dry_run) {
        /* It could not be stored again because it cannot be read: it stays listed, and what was marked later with it.
         * What is wrong with it may yet be mended. */
        w.watermark_s = w.needed_s - 1;
        safe = w.watermark_s * NS_PER_S;
        res->dropped = (struct maintain_sum){0};
        if (w.watermark_s <= is.watermark)
            return 0;
        rc = index_set_each_all(repo_index(m->r), drop_one, &w, e);
    }
    if (rc < 0) {
        res->dropped = (struct maintain_sum){0};
        return rc;
    }
    *late_s = w.watermark_s;
    res->watermark_ns = safe;
    /* By the sweep's count they were waiting, but for those that it has only just marked. */
    res->waiting.n -= res->dropped.n < res->waiting.n ? res->dropped.n : res->waiting.n;
    res->waiting.bytes -= res->dropped.bytes < res->waiting.bytes ? res->dropped.bytes : res->waiting.bytes;
    if (m->o->dry_run)
        return 0;
    static const char payload[] = "deletion-watermark";
    char name[32];
    snprintf(name, sizeof name, "xw%" PRId64, w.watermark_s);
    rc = blobs_put(repo_blobs(m->r), name, payload, sizeof payload - 1, e);
    crash_point("maintenance-dropped");
    return rc;
}

/* ---- logs of clients ---- */

struct log {
    char name[BLOB_NAME_MAX + 1];
    uint64_t length;
    int64_t mtime_ns;
};
struct logs {
    struct log *all;
    size_t n;
    struct err *e;
};

static int log_listed(const struct blob_info *i, void *arg)
{
    struct logs *l = arg;
    if ((l->n & (l->n - 1)) == 0) {
        void *p = realloc(l->all, (l->n ? 2 * l->n : 1) * sizeof *l->all);
        if (!p)
            return err_nomem(l->e);
        l->all = p;
    }
    struct log *a = &l->all[l->n++];
    memcpy(a->name, i->name, sizeof a->name);
    a->length = i->length;
    a->mtime_ns = i->mtime_ns;
    return 0;
}

static int newest_first(const void *pa, const void *pb)
{
    const struct log *a = pa, *b = pb;
    return (a->mtime_ns < b->mtime_ns) - (a->mtime_ns > b->mtime_ns);
}

static int clean_logs(struct run *m, struct err *e)
{
    struct logs l = {.e = e};
    const struct maintenance_params *p = &m->params;
    int64_t bytes = 0;
    int rc = blobs_list(repo_blobs(m->r), "_log_", log_listed, &l, e);
    if (l.n)
        qsort(l.all, l.n, sizeof *l.all, newest_first);
    for (size_t i = 0; rc == 0 && i < l.n; i++) {
        bytes += (int64_t)l.all[i].length;
        if ((p->log_bytes <= 0 || bytes <= p->log_bytes) && (p->log_count <= 0 || (int64_t)i < p->log_count) &&
            (p->log_age_ns <= 0 || m->started_ns - l.all[i].mtime_ns <= p->log_age_ns))
            continue;
        rc = run_interrupted(m, e);
        if (rc == 0 && !m->o->dry_run)
            rc = blobs_delete(repo_blobs(m->r), l.all[i].name, e);
        if (rc == 0)
            sum_add(&m->ret->logs, l.all[i].length);
    }
    free(l.all);
    return rc;
}

/* ---- the run ---- */

/* The times of runs decide what may be dropped: they must not come from a clock that was set meanwhile. */
static int check_clock(const struct run *m, struct err *e)
{
    const int64_t off = (m->task_ns - m->wall_ns) - (boot_ns() - m->boot_ns);
    if (off >= -CLOCK_LIMIT_NS && off <= CLOCK_LIMIT_NS)
        return 0;
    err_set(e, ERR_CLOCK, 0, "the clock was set by more than 5 minutes while maintenance ran; it was stopped");
    return err_hint(e, "what it has done is complete; run it again");
}

/* Begins a task: nobody else has begun maintenance. */
static int task_begin(struct run *m, struct err *e)
{
    m->task_ns = now_ns();
    int rc = run_interrupted(m, e);
    if (rc == 0)
        rc = check_clock(m, e);
    if (rc == 0)
        rc = repo_keep_fresh(m->r, e); /* an upgrade lock ends all work */
    return rc < 0 || m->o->dry_run ? rc : maintenance_current(m->r, &m->schedule, e);
}

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
    rc = run_rewrite(m, e);
    if (rc == 0 && !m->ret->rewritten.n)
        return 0;
    rc = task_end(m, MAINT_REWRITE, rc, e);
    return rc == 0 ? task_begin(m, e) : rc;
}

/* Frees space. */
static int run_full(struct run *m, struct err *e)
{
    int64_t late_s;
    int rc = task_begin(m, e);
    run_phase(m, PHASE_CHECKING);
    if (rc == 0)
        rc = run_look(m, e);
    if (rc == 0)
        rc = collect(m, e);
    rc = task_end(m, MAINT_SNAPSHOT_GC, rc, e);
    m->ret->collections = collections(m->schedule.doc);
    if (rc == 0)
        rc = task_begin(m, e);
    if (rc < 0)
        return rc;

    rc = drop(m, &late_s, e);
    if (rc < 0 || m->ret->watermark_ns != INT64_MIN) /* what is skipped leaves no record */
        rc = task_end(m, MAINT_DROP_DELETED, rc, e);
    if (rc == 0)
        rc = task_begin(m, e);
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
        rc = task_begin(m, e);
    if (rc == 0 && !m->o->unsafe)
        rc = rewrite(m, e);
    if (rc < 0 || !run_extends(m))
        return rc;
    rc = task_begin(m, e);
    return rc < 0 ? rc : task_end(m, MAINT_EXTEND_LOCKS, run_extend(m, e), e);
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
    int rc = m->o->full ? run_full(m, e) : 0;
    run_phase(m, PHASE_COMMITTING);
    for (size_t i = 0; i < sizeof index / sizeof *index && rc == 0; i++) {
        if (index[i].full_only && !m->o->full)
            continue;
        rc = task_begin(m, e);
        if (rc == 0) {
            rc = index[i].fn(m->r, m->o->dry_run, &m->ret->index, e);
            rc = task_end(m, index[i].task, rc, e);
        }
    }
    if (rc == 0 && m->o->full)
        rc = task_begin(m, e);
    if (rc < 0 || !m->o->full)
        return rc;
    rc = clean_logs(m, e);
    return task_end(m, MAINT_CLEANUP_LOGS, rc, e);
}

static void run_clear(struct run *m)
{
    maintenance_clear(&m->schedule);
    id_set_free(m->mark.used);
    id_set_free(m->mark.objects);
    pack_table_free(m->packs);
    free(m->markers);
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
    const _Atomic bool *before = blobs_stop(repo_blobs(r), o->cancel ? &o->cancel->requested : NULL);
    int rc = maintain_params(r, o->owner, &m.params, e);
    if (rc == 0)
        rc = check_owner(&m, e);
    if (rc == 0 && !o->dry_run)
        rc = lock_node(&m, &lock, e);
    if (rc == 0)
        rc = maintenance_load(r, &m.schedule, e);
    if (rc < 0) {
        blobs_stop(repo_blobs(r), before);
        return rc;
    }
    repo_memory(r, DOCUMENTS);
    rc = begin(&m, e);
    ret->started_ns = m.started_ns;
    if (rc == 0)
        rc = run_tasks(&m, e);
    ret->drop_from_ns = maintenance_drop_from(m.schedule.doc, m.safety,
                                              ret->marked.n ? m.task_ns : ret->waiting_since_ns, &ret->drop_runs);
    if (m.params.full_ns)
        ret->next_full_ns = now_ns() + m.params.full_ns;
    run_clear(&m);
    blobs_stop(repo_blobs(r), before);
    repo_memory(r, 0);
    ret->seconds = mono_s() - began;
    if (rc == 0 && ret->damaged + ret->unreadable.n) {
        err_set(e, ERR_DAMAGE, EBADMSG, "%" PRIu64 " contents that are needed cannot be read; all else was done",
                ret->damaged + ret->unreadable.n);
        err_hint(e, "they were left where they are: run verify to see which snapshots need them");
        rc = -EBADMSG;
    }
    return rc;
}
