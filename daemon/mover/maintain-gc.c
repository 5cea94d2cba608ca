/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * maintain-gc.c - what snapshots need is marked, what they do not need is marked deleted, and later dropped from the
 * index; logs of clients; and what stands before each task of a run
 */
#include "daemon/mover/maintain-impl.h"

#include "base/units.h"
#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"
#include "repo/tombstones.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- before each task ---- */

int run_check_times(const struct run *m, int64_t before, int64_t then, int64_t after, struct err *e)
{
    char ours[TIME_TEXT], theirs[TIME_TEXT];
    if (then >= before - CLOCK_LIMIT_NS && then <= after + CLOCK_LIMIT_NS)
        return 0;
    time_text(after / NS_PER_S * NS_PER_S, ours);
    time_text(then / NS_PER_S * NS_PER_S, theirs);
    err_set(e, ERR_CLOCK, 0,
            "clocks differ by more than 5 minutes: local time %s, time of the repository's storage %s (%s)", ours,
            theirs, blobs_location(repo_blobs(m->r)));
    return err_hint(e, "set the clock that is wrong (see timedatectl), then retry");
}

/* The times of runs decide what may be dropped: they must not come from a clock that was set meanwhile. */
static int check_clock(const struct run *m, struct err *e)
{
    const int64_t off = (m->task_ns - m->wall_ns) - (boot_ns() - m->boot_ns);
    if (off >= -CLOCK_LIMIT_NS && off <= CLOCK_LIMIT_NS)
        return 0;
    err_set(e, ERR_CLOCK, 0, "the clock was set by more than 5 minutes while maintenance ran; it was stopped");
    return err_hint(e, "the work done so far is complete; run it again");
}

int run_task_begin(struct run *m, struct err *e)
{
    m->task_ns = now_ns();
    int rc = run_interrupted(m, e);
    if (rc == 0)
        rc = check_clock(m, e);
    if (rc == 0)
        rc = repo_keep_fresh(m->r, e); /* an upgrade lock ends all work */
    return rc < 0 || m->o->dry_run ? rc : maintenance_current(m->r, &m->schedule, e);
}

int run_check_alone(const struct run *m, struct err *e)
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

void run_forget(struct run *m)
{
    id_set_free(m->mark.used);
    id_set_free(m->mark.objects);
    m->mark = (struct maintain_mark){.checkpoint_ns = INT64_MIN};
    pack_table_free(m->packs);
    m->packs = NULL;
    free(m->markers);
    m->markers = NULL;
    m->n_markers = 0;
    m->missing = 0;
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
    uint64_t due, parts; /* contents to be marked; of the packs, so many parts, one of which is done now */
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
    const uint64_t missing = id_set_count(m->mark.used) - w.found;
    err_set(e, ERR_DAMAGE, EBADMSG, "%" PRIu64 " content%s that snapshots need %s in no index: nothing is removed",
            missing, plural(missing), missing == 1 ? "is" : "are");
    return err_hint(e, "run verify to see which, and `repo repair` to rebuild the index from the packs; see "
                       "snapferry-recovery(7)");
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

/* Contents have the time of their writer, whose clock may be slow: its pack has the storage's. One that is not in the
 * listing was written since. */
static int64_t stored_ns(const struct run *m, const struct index_entry *en)
{
    const struct pack_record *p = pack_table_find(m->packs, en->pack);
    const int64_t time_ns = ns_of_seconds(en->time), there_ns = p ? p->time_ns : m->started_ns;
    return there_ns > time_ns ? there_ns : time_ns;
}

static int count_due(const struct index_entry *en, enum index_standing standing, void *arg)
{
    struct sweep *w = arg;
    if (standing == INDEX_WINNER && !en->deleted && en->id.prefix != MANIFEST_PREFIX && !is_used(w, en) &&
        w->m->started_ns - stored_ns(w->m, en) >= w->m->safety->content_age)
        w->due++;
    return run_interrupted(w->m, w->e);
}

/* Where there is no room to mark all, the contents of some packs are marked, so that these go as a whole. */
static int plan_marks(struct sweep *w, struct err *e)
{
    struct blob_room room;
    w->parts = 1;
    if (!w->m->lean || w->m->o->dry_run || blobs_room(repo_blobs(w->m->r), &room, NULL) < 0)
        return 0;
    int rc = index_set_each_all(repo_index(w->m->r), count_due, w, e);
    const uint64_t have = (room.free + room.reserve) / 2, need = w->due * ENTRY_ROOM;
    if (rc == 0 && need > have)
        w->parts = need / (have > ENTRY_ROOM ? have : ENTRY_ROOM) + 1;
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
    time_ns = stored_ns(m, en);
    if (m->started_ns - time_ns < m->safety->content_age) {
        sum_add(&res->young, en->packed);
        if (time_ns + m->safety->content_age > res->young_until_ns)
            res->young_until_ns = time_ns + m->safety->content_age;
        return 0;
    }
    if (w->parts > 1 && run_part_of(en->pack, w->parts) != 0) {
        sum_add(&res->unmarked, en->packed);
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
        rc = plan_marks(&w, e);
    if (rc == 0)
        rc = index_set_each_all(repo_index(m->r), sweep_one, &w, e);
    if (rc == 0 && out)
        rc = tombstones_flush(out, e);
    if (out)
        m->ret->marked.n = tombstones_count(out, &m->ret->marked.bytes);
    m->ret->needs += m->ret->unmarked.n * ENTRY_ROOM;
    return rc;
}

/* What snapshots need, and that it is there. */
int run_mark(struct run *m, struct err *e)
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
    return rc == 0 ? check_complete(m, e) : rc;
}

int run_collect(struct run *m, struct err *e)
{
    int rc = run_mark(m, e);
    if (rc == 0)
        rc = run_check_alone(m, e);
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

int run_drop(struct run *m, int64_t *late_s, struct err *e)
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

int run_clean_logs(struct run *m, struct err *e)
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
        crash_point("maintenance-log-deleted");
    }
    free(l.all);
    return rc;
}
