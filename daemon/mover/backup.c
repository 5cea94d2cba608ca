/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * backup.c - one source into the repository
 *
 * Opens what a backup needs (parents, budget, session, reader), runs the pipeline with the keeper in parallel, and
 * commits: checkpoints during the run, the snapshot at the end.
 */
#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"
#include "daemon/mover/badmap.h"
#include "daemon/mover/budget.h"
#include "daemon/mover/checkpoint.h"
#include "daemon/mover/hints.h"
#include "daemon/mover/incremental.h"
#include "daemon/mover/keeper.h"
#include "daemon/mover/pipeline.h"
#include "daemon/mover/sample.h"
#include "daemon/mover/stages.h"
#include "daemon/mover/volume-json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What was read of a chunk that has no end yet counts as progress, but not all that fills the ring. */
#define PROGRESS_LEAD ((uint64_t)16 << 20)
#define SECTION_DEFAULT ((uint64_t)2 << 30) /* size at which stock clients split large files (section 11.3) */
#define CHECKPOINT_S 1800
#define CHECKPOINT_S_MAX 2700
#define FLUSH_BYTES ((uint64_t)20 << 30)
#define FLUSH_S 600
#define BAD_TOLD_MAX 32             /* unreadable ranges that are logged individually */
#define DOCUMENT_MAX (256u << 10)   /* longest content of our documents */
#define METADATA_COMPRESSION 0x1101 /* zstd-fastest */

struct run {
    struct repo *repo;
    struct source *src;
    const struct source_info *info;
    const struct backup_opts *o;
    struct backup_result *ret;
    struct splitter splitter;
    uint64_t section, checkpoint_ns;
    char parent[33];
    struct hints *hints;
    struct incremental inc; /* .unchanged NULL: everything is read */
    bool same;              /* the parent's image is the new one: nothing is read */
    struct budget budget;
    struct badmap bad;
    unsigned bad_told; /* the reader's thread only */
    struct session *session;
    struct put_scratch *scratch;
    struct object_table *table;
    struct refs *refs;
    struct throttle reads, writes;
    struct reader *reader;
    struct pipeline *pipeline;
    struct keeper *keeper;
    struct checkpoints points;
    uint64_t last_point; /* position of the last checkpoint */
    uint64_t keeper_flush_ns, commit_ns;
};

static void set_phase(const struct run *x, enum mover_phase p)
{
    if (x->o->progress)
        atomic_store(&x->o->progress->phase, p);
}

/* ---- parents ---- */

/* Uses a parent's chunks as hints if they were split in the same way. */
static void parent_add_hints(struct run *x, const struct snapshot *s, struct volume_parent *v)
{
    volume_parent_read(v, x->repo, s, NULL);
    if (!v->usable || x->o->full_scan || x->splitter.kind == SPLITTER_FIXED)
        return; /* fixed chunks need no search */
    if (strcmp(v->splitter, x->splitter.name) != 0 || v->section != x->section) {
        log_info("the parent snapshot %s was split by %s, this one is split by %s: all data is scanned", s->id,
                 v->splitter, x->splitter.name);
        return;
    }
    hints_add(x->hints, &v->image);
}

static int find_parents(struct run *x, struct err *e)
{
    struct snapshot complete, incomplete;
    bool has_complete = false, has_incomplete = false;
    int rc = snapshot_parents(x->repo, &x->o->as, &complete, &has_complete, &incomplete, &has_incomplete,
                              &x->points.old, &x->points.n_old, e);
    if (rc < 0)
        return rc;
    struct volume_parent v;
    if (has_incomplete) {
        memcpy(x->points.resumed, incomplete.id, sizeof x->points.resumed);
        memcpy(x->parent, incomplete.id, sizeof x->parent);
        x->points.resumed_covered = UINT64_MAX; /* unknown: deleted when a complete one exists */
        if (!x->o->no_parent) {
            parent_add_hints(x, &incomplete, &v);
            if (v.usable)
                x->points.resumed_covered = v.covered;
        }
        snapshot_clear(&incomplete);
    }
    if (has_complete) {
        memcpy(x->parent, complete.id, sizeof x->parent);
        if (!x->o->no_parent) {
            parent_add_hints(x, &complete, &v);
            x->points.parent_image = v.image;
        }
        snapshot_clear(&complete);
    }
    if (x->o->no_parent)
        *x->parent = '\0';
    return 0;
}

/* ---- opening ---- */

static int check_opts(struct run *x, struct err *e)
{
    const struct backup_opts *o = x->o;
    const struct repo_format *f = repo_format(x->repo);
    const char *splitter = o->splitter ? o->splitter : f->splitter;
    if (splitter_by_name(&x->splitter, splitter) < 0)
        return err_set(e, o->splitter ? ERR_USAGE : ERR_FORMAT, EINVAL, "unknown splitter \"%s\"", splitter);
    x->section = o->section ? o->section : SECTION_DEFAULT;
    unsigned s = o->checkpoint_s ? o->checkpoint_s : CHECKPOINT_S;
    x->checkpoint_ns = (uint64_t)(s < CHECKPOINT_S_MAX ? s : CHECKPOINT_S_MAX) * (uint64_t)NS_PER_S;
    if (o->compression && f->index_version < 2)
        log_warning("the repository's index format (version 1) has no compression: contents are stored uncompressed");
    return 0;
}

/* Uses the list of changes if there is one that can be used. */
static int open_incremental(struct run *x, struct err *e)
{
    if (!x->o->incremental)
        return 0;
    int rc = incremental_open(&x->inc, x->repo, x->o, &x->splitter, x->section, x->info->size, e);
    if (rc < 0)
        return rc;
    if (!x->inc.unchanged) {
        log_warning("%s: the whole volume is read: %s", x->info->path, x->inc.why);
        return 0;
    }
    memcpy(x->parent, x->inc.parent, sizeof x->parent);
    x->budget.reserved = incremental_memory(&x->inc, &x->splitter);
    x->budget.block_max = incremental_block(&x->splitter);
    x->same = incremental_is_same(&x->inc, x->repo, x->info->size);
    return 0;
}

static int plan_budget(struct run *x, struct err *e)
{
    const bool guessing = hints_any(x->hints) && !x->inc.unchanged;
    return budget_plan(&x->budget, x->repo, &x->splitter, x->o, x->info->size, guessing ? x->hints : NULL, e);
}

static void on_bad(uint64_t pos, uint64_t len, int sys, void *arg)
{
    struct run *x = arg;
    badmap_add(&x->bad, pos, len, sys);
    if (x->o->progress)
        atomic_fetch_add(&x->o->progress->errors, 1);
    if (x->bad_told == BAD_TOLD_MAX)
        log_warning("%s: further unreadable ranges are only listed in volume.json", x->info->path);
    else if (x->bad_told < BAD_TOLD_MAX)
        log_warning("%s: %" PRIu64 " bytes at %" PRIu64 " cannot be read (%s): zeros are stored instead", x->info->path,
                    len, pos, strerror(sys));
    x->bad_told++;
}

static int open_reader(struct run *x, struct err *e)
{
    if (x->info->size == 0 || x->same)
        return 0;
    const struct backup_opts *o = x->o;
    struct reader_opts ro = {
        .ring = x->budget.ring,
        .window = x->budget.window,
        .block = x->budget.block,
        .depth = o->depth,
        .limit = &x->reads,
        .no_uring = o->no_uring,
        .no_direct = o->no_direct,
        .bad_read = o->bad_read,
        .on_bad = on_bad,
        .on_bad_arg = x,
    };
    if (x->inc.unchanged) {
        /* As much in flight as with larger reads. */
        unsigned depth = o->depth ? o->depth : x->info->depth;
        ro.depth = depth * (unsigned)(((size_t)1 << 20) / x->budget.block);
        ro.range = unchanged_range;
        ro.range_arg = x->inc.unchanged;
    }
    return reader_new(&x->reader, x->src, &ro, e);
}

static int checkpoint_tick(void *arg, struct err *e);

static int open_pipeline(struct run *x, struct err *e)
{
    struct pipeline_setup ps = {
        .session = x->session,
        .reader = x->reader,
        .size = x->info->size,
        .section = x->section,
        .splitter = x->splitter,
        .budget = &x->budget,
        .compression = repo_format(x->repo)->index_version < 2 ? 0 : x->o->compression,
        .hints = x->budget.hints ? x->hints : NULL,
        .unchanged = x->inc.unchanged,
        .source = x->src,
        .table = x->table,
        .refs = x->refs,
        .progress = x->o->progress,
        .tick = checkpoint_tick,
        .tick_arg = x,
    };
    int rc = pipeline_new(&x->pipeline, &ps, e);
    if (rc < 0)
        return rc;
    struct keeper_setup ks = {
        .session = x->session,
        .reader = x->reader,
        .pipeline = x->pipeline,
        .flush_bytes = x->o->flush_bytes ? x->o->flush_bytes : FLUSH_BYTES,
        .flush_s = x->o->flush_s ? x->o->flush_s : FLUSH_S,
        .progress = x->o->progress,
        .cancel = x->o->cancel,
    };
    return keeper_new(&x->keeper, &ks, e);
}

static void begin_points(struct run *x)
{
    struct checkpoints *c = &x->points;
    c->repo = x->repo;
    c->session = x->session;
    c->scratch = x->scratch;
    c->refs = x->refs;
    c->bad = &x->bad;
    c->reader = x->reader;
    c->o = x->o;
    c->doc = (struct volume_doc){
        .source = x->info,
        .splitter = &x->splitter,
        .section = x->section,
        .compression = x->o->compression,
        .parent = x->parent,
        .start_ns = now_ns(),
        .facts = x->o->facts,
    };
    checkpoints_begin(c);
}

static int open_all(struct run *x, struct err *e)
{
    int rc = check_opts(x, e);
    if (rc == 0)
        rc = hints_new(&x->hints, x->repo, e);
    if (rc == 0)
        rc = find_parents(x, e);
    /* What is taken over without being read must exist, and a full read that was asked for mends what does not. */
    if (rc == 0 && (x->o->incremental || x->o->no_parent))
        rc = repo_check_packs(x->repo, e);
    if (rc == 0)
        rc = open_incremental(x, e);
    if (rc == 0)
        rc = plan_budget(x, e);
    x->ret->workers = x->budget.workers;
    struct session_opts so = {.mark_later = true,
                              .max_pending = x->budget.max_pending,
                              .buffer = x->budget.pack_buffer,
                              .appended = x->o->progress ? &x->o->progress->appended : NULL,
                              .closed = x->o->progress ? &x->o->progress->closed : NULL};
    if (rc == 0)
        rc = session_new(&x->session, x->repo, &so, e);
    if (rc == 0)
        rc = put_scratch_new(&x->scratch, x->repo, METADATA_COMPRESSION, DOCUMENT_MAX, e);
    if (rc == 0)
        rc = object_table_new(&x->table, x->session, 0, e);
    if (rc == 0)
        rc = refs_new(&x->refs, repo_cache_dir(x->repo), e);
    if (rc == 0)
        rc = open_reader(x, e);
    if (rc < 0)
        return rc;
    begin_points(x);
    return x->same ? 0 : open_pipeline(x, e);
}

static void close_all(struct run *x)
{
    keeper_end(x->keeper, &x->ret->flushes, &x->keeper_flush_ns);
    pipeline_free(x->pipeline);
    reader_free(x->reader);
    refs_free(x->refs);
    object_table_free(x->table);
    put_scratch_free(x->scratch);
    session_free(x->session);
    hints_free(x->hints);
    incremental_close(&x->inc);
    checkpoints_clear(&x->points);
    badmap_destroy(&x->bad);
}

/* ---- commits ---- */

/* What has been done so far; of the parts of a run that need no pipeline, too. */
static void run_stats(struct run *x, struct pipeline_stats *ret)
{
    *ret = (struct pipeline_stats){0};
    if (x->pipeline)
        pipeline_stats(x->pipeline, ret);
    else if (x->same)
        ret->pos = ret->cloned_bytes = x->info->size;
}

static int put_point(struct run *x, const char *incomplete, struct err *e)
{
    struct pipeline_stats st;
    pipeline_stats(x->pipeline, &st);
    struct object_id image;
    uint64_t t = mono_ns();
    int rc = object_table_checkpoint(x->table, &image, e);
    if (rc == 0)
        rc = checkpoints_commit(&x->points, &image, &st, incomplete, x->ret->manifest_id, e);
    x->commit_ns += mono_ns() - t;
    if (rc < 0)
        return err_wrap(e, "cannot write a checkpoint");
    x->ret->image = image;
    x->ret->incomplete = true;
    x->ret->checkpoints++;
    x->last_point = st.pos;
    return 0;
}

/* Between chunks, on the pipeline's thread. */
static int checkpoint_tick(void *arg, struct err *e)
{
    struct run *x = arg;
    if (x->o->cancel && atomic_load_explicit(&x->o->cancel->requested, memory_order_relaxed)) {
        pipeline_stop(x->pipeline, NULL);
        return 0;
    }
    if ((uint64_t)checkpoints_age_ns(&x->points) < x->checkpoint_ns)
        return 0;
    struct pipeline_stats st;
    pipeline_stats(x->pipeline, &st);
    if (st.pos == x->last_point)
        return 0;
    int rc = put_point(x, "checkpoint", e);
    if (rc == 0)
        keeper_flush(x->keeper);
    return rc;
}

static int point_flush(struct run *x, struct err *e)
{
    uint64_t t = mono_ns();
    int rc = session_flush(x->session, e);
    x->commit_ns += mono_ns() - t;
    x->ret->flushes++;
    return rc;
}

/* After a cancel: -ECANCELED with what the next run can use, or the error that occurred meanwhile. */
static int commit_canceled(struct run *x, struct err *e)
{
    struct pipeline_stats st;
    pipeline_stats(x->pipeline, &st);
    int rc = 0;
    if (st.pos > x->last_point)
        rc = put_point(x, "canceled", e);
    if (rc == 0)
        rc = point_flush(x, e);
    if (rc < 0)
        return rc;
    if (!*x->ret->manifest_id)
        return err_set(e, ERR_INTERRUPTED, ECANCELED, "backup of %s interrupted before any data was read",
                       x->info->path);
    err_set(e, ERR_INTERRUPTED, ECANCELED,
            "backup of %s interrupted after %" PRIu64 " of %" PRIu64 " bytes; checkpoint written", x->info->path,
            x->last_point, x->info->size);
    return err_hint(e, "the next backup resumes there");
}

static int check_source(struct run *x, struct err *e)
{
    bool grown = false, changed = false;
    int rc = source_recheck(x->src, &grown, &changed, e);
    if (rc == 0)
        rc = source_readable(x->src, e);
    if (rc < 0)
        return rc;
    if (grown)
        log_warning("%s has grown during the backup: its first %" PRIu64 " bytes are backed up", x->info->path,
                    x->info->size);
    if (changed)
        log_warning("%s was written to during the backup: the image may be inconsistent", x->info->path);
    return 0;
}

static int commit_complete(struct run *x, struct err *e)
{
    struct pipeline_stats st;
    run_stats(x, &st);
    uint64_t t = mono_ns();
    struct object_id image;
    char id[33];
    int rc = check_source(x, e);
    if (rc == 0 && x->same)
        image = x->inc.image;
    else if (rc == 0)
        rc = object_table_finish(x->table, &image, e);
    if (rc == 0)
        rc = checkpoints_commit(&x->points, &image, &st, NULL, id, e);
    x->commit_ns += mono_ns() - t;
    if (rc < 0)
        return rc;
    crash_point("before-final-flush");
    rc = point_flush(x, e);
    crash_point("after-final-flush");
    if (rc == 0)
        rc = blobs_check_layout(repo_blobs(x->repo), e);
    if (rc < 0)
        return rc;
    memcpy(x->ret->manifest_id, id, sizeof id);
    x->ret->image = image;
    x->ret->incomplete = false;
    return 0;
}

/* After an error finished data is committed if possible: the next run then finds it. */
static void save_progress(struct run *x, const struct err *why)
{
    struct err e = ERR_INIT;
    /* The session may be what has failed. */
    if (x->session && session_pending(x->session) > 0 && point_flush(x, &e) < 0 && !strstr(why->msg, e.msg))
        log_warning("cannot commit the data stored so far: %s", e.msg);
}

/* ---- the run ---- */

static void fill_result(struct run *x, uint64_t began)
{
    struct backup_result *ret = x->ret;
    ret->seconds = (double)(mono_ns() - began) / 1e9;
    ret->size = x->info->size;
    ret->recorded = x->points.recorded && ret->manifest_id[0];
    memcpy(ret->parent_id, x->parent, sizeof ret->parent_id);
    struct pipeline_stats st;
    run_stats(x, &st);
    if (x->pipeline)
        pipeline_stats_all(x->pipeline, &st);
    struct session_stats ss = {0};
    if (x->session)
        session_stats(x->session, &ss);
    if (x->reader)
        reader_stats(x->reader, &ret->reader);
    ret->scanned = st.pos;
    ret->hole_bytes = st.hole_bytes;
    ret->zero_bytes = st.zero_bytes;
    ret->read_bytes = ret->reader.read_bytes + st.extra_bytes + ret->sampled_bytes;
    ret->incremental = x->inc.unchanged != NULL;
    ret->cloned_bytes = st.cloned_bytes;
    ret->cloned_chunks = st.cloned_chunks;
    ret->duplicate_bytes = st.duplicate_bytes;
    ret->new_bytes = st.new_bytes;
    ret->stored_bytes = ss.stored_bytes;
    ret->chunks = st.chunks;
    ret->zero_chunks = st.zero_chunks;
    ret->duplicate_chunks = st.duplicate_chunks;
    ret->new_chunks = st.new_chunks;
    ret->hinted_chunks = st.hinted_chunks;
    ret->packs = ss.packs;
    ret->adopted_packs = ss.adopted_packs;
    struct err e = ERR_INIT;
    if (badmap_copy(&x->bad, &ret->bad, &ret->n_bad, &ret->bad_bytes, &e) < 0)
        ret->n_bad = 0;
    stages_fill(ret, &st, (double)x->commit_ns / 1e9, (double)(ss.write_ns + ss.fsync_ns) / 1e9);
    if (x->o->progress)
        atomic_store(&x->o->progress->read, ret->read_bytes);
}

/* Reads a random share of what was taken over. -ESTALE: the list of changes is wrong. */
static int check_sample(struct run *x, struct err *e)
{
    const struct backup_incremental *o = x->o->incremental;
    if (!x->inc.unchanged || o->sample <= 0)
        return 0;
    set_phase(x, PHASE_CHECKING);
    const struct sample_setup setup = {
        .repo = x->repo,
        .source = x->src,
        .image = &x->inc.image,
        .changes = x->inc.changes,
        .size = x->inc.common,
        .splitter = &x->splitter,
        .share = o->sample,
        .seconds = o->sample_s,
        .seed = o->sample_seed,
        .limit = &x->reads,
        .cancel = x->o->cancel,
    };
    struct sample_result found;
    int rc = sample_run(&setup, &found, e);
    x->ret->sampled_bytes = found.bytes;
    x->ret->sampled_chunks = found.chunks;
    if (rc == 0 && found.differs) {
        x->ret->distrusted = true;
        rc = err_plain(e, ERR_GENERIC, ESTALE,
                       "%" PRIu64 " bytes at %" PRIu64
                       " of %s differ from snapshot %s, but are not in the list of changes",
                       found.len, found.start, x->info->path, x->parent);
    }
    return rc;
}

/* Moves the data, commits, and closes everything. */
static int run_move(struct run *x, struct err *e)
{
    int rc = 0;
    set_phase(x, PHASE_MOVING);
    if (x->pipeline)
        rc = pipeline_run(x->pipeline, e);
    else if (x->o->progress)
        atomic_fetch_add(&x->o->progress->done, x->info->size),
            atomic_fetch_add(&x->o->progress->skipped, x->info->size);
    if (rc == 0)
        rc = check_sample(x, e);
    set_phase(x, PHASE_COMMITTING);
    keeper_end(x->keeper, &x->ret->flushes, &x->keeper_flush_ns);
    x->keeper = NULL;
    if (rc == 0)
        return commit_complete(x, e);
    if (rc == -ECANCELED && x->pipeline)
        return commit_canceled(x, e);
    return rc;
}

/* Whether a full read may succeed where this run has failed; with a warning, and the reason in the result. */
static bool should_read_all(struct run *x, int rc, const struct err *e)
{
    if (rc >= 0 || rc == -ECANCELED || !x->inc.unchanged)
        return false;
    if (!x->ret->distrusted && !unchanged_is_broken(x->inc.unchanged) && e->cls != ERR_DAMAGE &&
        e->cls != ERR_NOT_FOUND && e->cls != ERR_SOURCE)
        return false;
    snprintf(x->ret->fallback, sizeof x->ret->fallback, "%.*s", (int)sizeof x->ret->fallback - 1, e->msg);
    log_warning("%s: the whole volume is read: %s", x->info->path, e->msg);
    return true;
}

/* One attempt, with or without a list of changes. *again: the attempt with it has failed, one without it may succeed.
 */
static int run_once(struct repo *r, struct source *src, const struct backup_opts *o, struct backup_result *ret,
                    bool *again, struct err *e)
{
    const uint64_t began = (uint64_t)mono_ns();
    struct run x = {.repo = r, .src = src, .info = source_info(src), .o = o, .ret = ret};
    x.reads = mover_reads(o->limits.read_limit, o->cancel);
    x.writes = mover_writes(o->limits.write_limit, o->cancel);
    if (o->progress) {
        atomic_store(&o->progress->lead, PROGRESS_LEAD);
        atomic_store(&o->progress->closed, atomic_load(&o->progress->sent));
        atomic_store(&o->progress->appended, atomic_load(&o->progress->stored));
        x.writes.passed = &o->progress->sent;
    }
    blobs_limit(repo_blobs(r), NULL, &x.writes);
    badmap_init(&x.bad);
    /* The bytes of an attempt that has failed count as work, too. */
    if (o->progress)
        atomic_store(&o->progress->total, atomic_load(&o->progress->done) + x.info->size);
    set_phase(&x, PHASE_OPENING);
    const _Atomic bool *before = blobs_stop(repo_blobs(r), x.reads.stop);
    int rc = open_all(&x, e);
    blobs_stop(repo_blobs(r), NULL); /* a checkpoint is written after a cancel, but no server is waited for long */
    blobs_hurry(repo_blobs(r), x.reads.stop);
    if (rc == 0)
        session_mark(x.session);
    if (o->incremental && *x.inc.why)
        snprintf(ret->fallback, sizeof ret->fallback, "%s", x.inc.why);
    if (x.inc.unchanged)
        ret->changed_bytes = changes_bytes(x.inc.changes) - changes_zero_bytes(x.inc.changes);
    if (rc == 0)
        rc = run_move(&x, e);
    *again = should_read_all(&x, rc, e);
    if (*again && unchanged_is_broken(x.inc.unchanged))
        incremental_find_damage(&x.inc, r);
    if (rc < 0 && rc != -ECANCELED)
        save_progress(&x, e);
    fill_result(&x, began);
    close_all(&x);
    blobs_limit(repo_blobs(r), NULL, NULL);
    blobs_hurry(repo_blobs(r), NULL);
    blobs_stop(repo_blobs(r), before);
    return rc;
}

int backup_run(struct repo *r, struct source *src, const struct backup_opts *o, struct backup_result *ret,
               struct err *e)
{
    struct err own = ERR_INIT;
    bool again = false;
    if (!e)
        e = &own;
    memset(ret, 0, sizeof *ret);
    budget_tame_malloc();
    int rc = run_once(r, src, o, ret, &again, e);
    if (again) {
        const struct backup_result first = *ret;
        struct backup_opts full = *o;
        full.incremental = NULL;
        if (o->incremental) /* nor is what the list knew to be zeros relied upon */
            source_set_allocated(src, NULL);
        backup_result_clear(ret);
        memset(ret, 0, sizeof *ret);
        *e = (struct err)ERR_INIT;
        rc = run_once(r, src, &full, ret, &again, e);
        ret->distrusted = first.distrusted;
        ret->sampled_bytes = first.sampled_bytes;
        ret->sampled_chunks = first.sampled_chunks;
        ret->read_bytes += first.read_bytes;
        ret->seconds += first.seconds;
        memcpy(ret->fallback, first.fallback, sizeof ret->fallback);
    }
    if (o->progress) {
        atomic_store(&o->progress->closed, atomic_load(&o->progress->sent));
        atomic_store(&o->progress->phase, PHASE_DONE);
    }
    return rc;
}

void backup_result_clear(struct backup_result *b)
{
    free(b->bad);
    b->bad = NULL;
    b->n_bad = 0;
}
