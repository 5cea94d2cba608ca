/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/answers/answers.h"
#include "daemon/engine/orphans.h"
#include "daemon/engine/facts.h"
#include "daemon/answers/overview.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>

#define VIEW_FRESH_S 600 /* intervals of calendars change with the seasons only */

const char *const fact_states[FACT_STATES] = {"Queued",  "Snapshotting", "Exposing",   "Starting",
                                              "Running", "Retrying",     "Cancelling", "CleaningUp"};
const char *const fact_phases[FACT_PHASES] = {"Queued", "Snapshotting", "Moving", "Finalizing", "Deleting"};
const char *const fact_directions[FACT_DIRECTIONS] = {"backup", "restore",  "verify", "admin",
                                                      "delete", "maintain", "copy"};

struct facts {
    void *tree[ROW_KINDS]; /* tsearch(3) */
    bool stale;
    struct cfg *cfg; /* under which the volumes were looked at */
    int64_t view_ns;
    bool fresh_volumes; /* one was added or changed since */
    uint64_t free_bytes, total_bytes;
};

static int fact_order(const void *a, const void *b)
{
    return strcmp(((const struct fact *)a)->id, ((const struct fact *)b)->id);
}

static void fact_free(void *node)
{
    struct fact *f = node;
    free(f->id);
    free(f->name);
    free(f->volume);
    free(f->klass);
    free(f->pool);
    free(f->labels);
    json_decref(f->samples);
    free(f);
}

static void facts_reset(struct facts *x)
{
    for (int k = 0; k < ROW_KINDS; k++) {
        tdestroy(x->tree[k], fact_free);
        x->tree[k] = NULL;
    }
}

static struct fact *fact_find(const struct facts *x, enum row_kind k, const char *id)
{
    const struct fact key = {.id = (char *)(uintptr_t)id};
    void *const *node = tfind(&key, &x->tree[k], fact_order);
    return node ? *node : NULL;
}

static void fact_drop(struct facts *x, enum row_kind k, const char *id)
{
    struct fact *f = fact_find(x, k, id);
    if (!f)
        return;
    tdelete(f, &x->tree[k], fact_order);
    fact_free(f);
}

static void keep_text(char **at, const char *text)
{
    if (*at && !strcmp(*at, text))
        return;
    free(*at);
    *at = strdup(text);
}

/* Number of an enum's value among names that leave its first one out; n: it is none of them. */
static unsigned index_of(unsigned value, unsigned n)
{
    return value && value <= n ? value - 1 : n;
}

/* ---- what is kept of a row ---- */

static void of_run(struct fact *f, const struct backup *b)
{
    f->direction = b->kind == KIND_RESTORE;
    f->state = index_of(b->state, FACT_PHASES);
}

static void of_operation(struct fact *f, const struct operation *op)
{
    f->direction = index_of(op->kind, FACT_DIRECTIONS);
    f->state = index_of(op->state, FACT_STATES);
    f->waits = operation_waits(op);
    f->since_ns = op->state_since_ns ? op->state_since_ns : op->created_ns;
    keep_text(&f->name, op->volume->name);
}

static void of_native(struct fact *f, const struct native_row *n)
{
    keep_text(&f->name, n->volume->name);
    keep_text(&f->volume, n->volume_id);
    keep_text(&f->klass, n->klass->name);
    f->gone = n->state == NATIVE_MISSING;
    f->bookmark = native_row_is_bookmark(n);
    f->state = n->state == NATIVE_CREATING; /* 1: not there yet */
    f->hold = n->hold.held;
    f->moved = n->moved && n->moved_verified;
    f->failed = n->failed;
    f->snapshot_only = n->snapshot_only;
    f->used = n->native->used;
    f->inspection = n->kept.there;
    f->intermediate = n->kept.alias[0] != '\0';
    f->kept_ns = n->kept.at_ns;
    f->kept_used = kept_used(n);
    f->since_ns = n->native->created_ns ? n->native->created_ns : n->created_ns;
}

static void of_volume(struct facts *x, struct fact *f, const struct volume_row *v)
{
    if (!f->name || strcmp(f->name, v->volume->name) || !f->klass || strcmp(f->klass, v->klass) ||
        strcmp(f->labels ? f->labels : "", v->volume->labels))
        x->fresh_volumes = true;
    json_decref(f->samples);
    f->samples = NULL;
    keep_text(&f->name, v->volume->name);
    keep_text(&f->klass, v->klass);
    keep_text(&f->pool, v->volume->pool);
    if (f->labels || v->volume->labels[0])
        keep_text(&f->labels, v->volume->labels);
    f->gone = v->state == VOL_GONE;
    f->since_ns = v->gone_ns;
    f->size = v->volume->size;
    f->allocated = v->volume->allocated;
    enum outcome verdict = v->last_verdict, status = v->last_status; /* canceled or skipped: no verdict */
    if (verdict == OUTCOME_NONE && status != OUTCOME_CANCELED && status != OUTCOME_SKIPPED)
        verdict = status;
    f->tried = verdict != OUTCOME_NONE;
    f->good = verdict == OUTCOME_COMPLETED;
    f->last_success_ns = v->last_success_ns;
    f->last_end_ns = v->last_end_ns;
    f->expected_ns = v->expected_ns;
    f->last_snapshot_ns = v->last_snapshot_ns;
    f->last_changed = v->last_changed_bytes;
}

static struct fact *fact_keep(struct facts *x, enum row_kind k, const char *id)
{
    struct fact *f = fact_find(x, k, id);
    if (f)
        return f;
    f = calloc(1, sizeof *f);
    if (!f || !(f->id = strdup(id)) || !tsearch(f, &x->tree[k], fact_order)) {
        free(f ? f->id : NULL);
        free(f);
        x->stale = true; /* no memory now: read again later */
        return NULL;
    }
    f->kind = k;
    return f;
}

static void row_seen(enum row_kind k, const char *id, const void *was, const void *now, void *arg)
{
    struct facts *x = arg;
    const struct row *head = now;
    (void)was;
    if (k == ROW_KINDS) {
        x->stale = true;
        return;
    }
    if (k == ROW_JOB)
        return;
    if (!now || row_state(k, now) >= row_types[k].terminal) {
        fact_drop(x, k, id);
        return;
    }
    struct fact *f = fact_keep(x, k, id);
    if (!f)
        return;
    f->seq = head->seq;
    f->created_ns = head->created_ns;
    if (k == ROW_BACKUP)
        of_run(f, now);
    else if (k == ROW_OPERATION)
        of_operation(f, now);
    else if (k == ROW_NATIVE)
        of_native(f, now);
    else
        of_volume(x, f, now);
}

struct reading {
    struct facts *facts;
    enum row_kind kind;
};
static int read_row(const void *row, void *arg)
{
    struct reading *x = arg;
    row_seen(x->kind, ((const struct row *)row)->id, NULL, row, x->facts);
    return 0;
}

static int read_all(struct engine *g, struct err *e)
{
    static const struct row_filter live = {.live = true};
    struct facts *x = g->facts;
    facts_reset(x);
    x->stale = false;
    for (enum row_kind k = 0; k < ROW_JOB; k++) {
        struct reading r = {x, k};
        int rc = row_each(g->records, k, &live, read_row, &r, e);
        if (rc < 0) {
            x->stale = true;
            return rc;
        }
    }
    return 0;
}

int facts_new(struct engine *g, struct err *e)
{
    g->facts = calloc(1, sizeof *g->facts);
    if (!g->facts)
        return err_nomem(e);
    int rc = rows_watch(g->records, row_seen, g->facts);
    if (rc < 0)
        return err_set(e, ERR_GENERIC, -rc, "the records cannot be watched");
    return read_all(g, e);
}

void facts_free(struct engine *g)
{
    struct facts *x = g->facts;
    if (!x)
        return;
    if (g->records)
        rows_unwatch(g->records, x);
    facts_reset(x);
    cfg_free(x->cfg);
    free(x);
    g->facts = NULL;
}

/* ---- what the configuration makes of volumes ---- */

struct volume_looks {
    const struct engine *engine;
    struct jobs_now jobs;
};

static void look_at_volume(const struct volume_looks *l, struct fact *f)
{
    const struct cfg *c = l->engine->cfg;
    json_decref(f->samples);
    f->samples = NULL;
    const struct cfg_subject s = {f->name, f->labels};
    f->used_here = !volume_excluded(c, s, f->size);
    f->interval_s = volume_interval(c, &l->jobs, s);
}

static void visit_volume(const void *node, VISIT which, void *arg)
{
    if (which == postorder || which == leaf)
        look_at_volume(arg, *(struct fact *const *)node);
}

void facts_refresh(struct engine *g)
{
    struct facts *x = g->facts;
    int64_t now = now_ns();
    struct err e = ERR_INIT;
    bool other = x->cfg != g->cfg;
    if (x->stale && read_all(g, &e) < 0)
        log_warning("facts for metrics: %s", e.msg);
    if (!other && !x->fresh_volumes && now >= x->view_ns && now - x->view_ns < VIEW_FRESH_S * NS_PER_S)
        return;
    cfg_free(x->cfg);
    x->cfg = cfg_ref(g->cfg);
    x->view_ns = now;
    x->fresh_volumes = false;
    struct volume_looks l = {g, jobs_now(g)};
    twalk_r(x->tree[ROW_VOLUME], visit_volume, &l);
    jobs_now_clear(&l.jobs);
}

struct visit {
    fact_fn *fn;
    void *arg;
};
static void visit_fact(const void *node, VISIT which, void *arg)
{
    const struct visit *v = arg;
    if (which == postorder || which == leaf)
        v->fn(*(struct fact *const *)node, v->arg);
}

void facts_each(const struct engine *g, enum row_kind k, fact_fn *fn, void *arg)
{
    struct visit v = {fn, arg};
    twalk_r(g->facts->tree[k], visit_fact, &v);
}

const struct fact *facts_find(const struct engine *g, enum row_kind k, const char *id)
{
    return g->facts ? fact_find(g->facts, k, id) : NULL;
}

void facts_plan(struct engine *g, const struct native_facts *f, size_t n)
{
    for (size_t i = 0; g->facts && i < n; i++) {
        struct fact *x = fact_find(g->facts, ROW_NATIVE, f[i].alias);
        if (!x)
            continue;
        x->planned = true;
        x->reasons = f[i].prune ? 0 : f[i].reasons;
    }
}

enum volume_state fact_volume_state(const struct fact *v, int64_t now)
{
    return volume_judge(v->gone, !v->used_here, v->last_success_ns, v->interval_s, now);
}

/* ---- from the storage ---- */

void facts_room(struct engine *g, uint64_t free_bytes, uint64_t total)
{
    g->facts->free_bytes = free_bytes;
    g->facts->total_bytes = total;
}

void facts_room_get(const struct engine *g, uint64_t *free_bytes, uint64_t *total)
{
    *free_bytes = g->facts->free_bytes;
    *total = g->facts->total_bytes;
}

/* ---- the debug bundle ---- */

static int list_counter(const char *name, const json_t *labels, double value, void *arg)
{
    json_t *line = json_pack("{s:s, s:O, s:f}", "name", name, "labels", labels, "value", value);
    return json_array_append_new(arg, line) < 0 ? -1 : 0;
}

json_t *engine_debug_json(struct engine *g)
{
    json_t *o = json_object(), *counters = json_array();
    jset_int(o, "started_ns", g->started_ns);
    unsigned n_orphans;
    CLEANUP_FREE struct answer_orphan *orphans = orphans_for_answers(g, &n_orphans);
    jset_int(o, "orphans", n_orphans);
    jset_int(o, "movers", movers_count(g->movers));
    jset_int(o, "steps", steps_running(g->steps));
    jset_int(o, "steps_stuck", steps_stuck(g->steps));
    jset_int(o, "record_write_errors", (int64_t)records_write_errors(g->records));
    jset_bool(o, "reload_ok", g->reload_ok);
    if (orphans)
        json_object_set_new(o, "orphan_list", answer_orphans(orphans, n_orphans));
    records_counters(g->records, list_counter, counters, NULL);
    json_object_set_new(o, "counters", counters);
    return o;
}
