/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/engine/facts.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>

#define VIEW_FRESH_S 600 /* intervals of calendars change with the seasons only */

const char *const fact_states[FACT_STATES] = {"Queued",  "Snapshotting", "Exposing",   "Starting",
                                              "Running", "Retrying",     "Cancelling", "CleaningUp"};
const char *const fact_phases[FACT_PHASES] = {"Queued", "Snapshotting", "Moving", "Finalizing", "Deleting"};
const char *const fact_directions[FACT_DIRECTIONS] = {"backup", "restore", "verify", "admin", "delete"};

struct facts {
    void *tree[REC_KINDS]; /* tsearch(3) */
    bool stale;
    struct cfg *cfg; /* under which the volumes were looked at */
    int64_t view_ns;
    bool fresh_volumes; /* one was added or changed since */
    uint64_t free_bytes, total_bytes;
};

static int order(const void *a, const void *b)
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
    json_decref(f->samples);
    free(f);
}

static void clear(struct facts *x)
{
    for (int k = 0; k < REC_KINDS; k++) {
        tdestroy(x->tree[k], fact_free);
        x->tree[k] = NULL;
    }
}

static struct fact *find(const struct facts *x, enum rec_kind k, const char *id)
{
    const struct fact key = {.id = (char *)(uintptr_t)id};
    void *const *node = tfind(&key, &x->tree[k], order);
    return node ? *node : NULL;
}

static void drop(struct facts *x, enum rec_kind k, const char *id)
{
    struct fact *f = find(x, k, id);
    if (!f)
        return;
    tdelete(f, &x->tree[k], order);
    fact_free(f);
}

static void keep_text(char **at, const char *text)
{
    if (*at && !strcmp(*at, text))
        return;
    free(*at);
    *at = strdup(text);
}

static unsigned index_of(const char *const *names, unsigned n, const char *name)
{
    unsigned i = 0;
    while (i < n && strcmp(names[i], name))
        i++;
    return i;
}

/* ---- what is kept of a row ---- */

static void of_run(struct fact *f, const struct rec *r)
{
    f->direction = strcmp(jstr(r->doc, "kind"), "restore") ? 0 : 1;
    f->state = index_of(fact_phases, FACT_PHASES, r->state);
}

static void of_operation(struct fact *f, const struct rec *r)
{
    const char *name = jstr(jobj(r->doc, "volume"), "name");
    f->direction = index_of(fact_directions, FACT_DIRECTIONS, jstr(r->doc, "kind"));
    f->state = index_of(fact_states, FACT_STATES, r->state);
    f->since_ns = jint(r->doc, "state_since_ns");
    if (!f->since_ns)
        f->since_ns = r->created_ns;
    keep_text(&f->name, name);
}

static void of_native(struct fact *f, const struct rec *r)
{
    const json_t *n = jobj(r->doc, "native"), *c = jobj(r->doc, "class");
    keep_text(&f->name, jstr(jobj(r->doc, "volume"), "name"));
    keep_text(&f->volume, r->volume);
    keep_text(&f->klass, jstr(c, "name"));
    f->gone = !strcmp(r->state, "missing");
    f->state = !strcmp(r->state, "creating"); /* 1: not there yet */
    f->hold = json_object_get(r->doc, "hold") && !json_is_false(json_object_get(r->doc, "hold"));
    f->moved = jbool(r->doc, "moved") && jbool(r->doc, "moved_verified");
    f->failed = jbool(r->doc, "failed");
    f->snapshot_only = jbool(r->doc, "snapshot_only");
    f->used = json_is_integer(json_object_get(n, "used")) ? jint(n, "used") : -1;
    f->since_ns = jint(n, "created_ns") ? jint(n, "created_ns") : r->created_ns;
}

static void of_volume(struct facts *x, struct fact *f, const struct rec *r)
{
    const json_t *v = jobj(r->doc, "volume"), *d = r->doc;
    const char *name = jstr(v, "name"), *klass = jstr(d, "class");
    if (!f->name || strcmp(f->name, name) || !f->klass || strcmp(f->klass, klass))
        x->fresh_volumes = true;
    json_decref(f->samples);
    f->samples = NULL;
    keep_text(&f->name, name);
    keep_text(&f->klass, klass);
    keep_text(&f->pool, jstr(v, "pool"));
    f->gone = !strcmp(r->state, "gone");
    f->since_ns = jint(d, "gone_ns");
    f->size = jint(v, "size");
    f->allocated = json_is_integer(json_object_get(v, "allocated")) ? jint(v, "allocated") : -1;
    const char *verdict = jstr(d, "last_verdict"),
               *status = jstr(d, "last_status"); /* canceled or skipped: no verdict */
    if (!verdict[0] && strcmp(status, "Canceled") != 0 && strcmp(status, "Skipped") != 0)
        verdict = status;
    f->tried = verdict[0] != '\0';
    f->good = !strcmp(verdict, "Completed");
    f->last_success_ns = jint(d, "last_success_ns");
    f->last_end_ns = jint(d, "last_end_ns");
    f->expected_ns = jint(d, "expected_ns");
    f->last_snapshot_ns = jint(d, "last_snapshot_ns");
    f->last_changed = json_is_integer(json_object_get(d, "last_changed_bytes")) ? jint(d, "last_changed_bytes") : -1;
}

static struct fact *keep(struct facts *x, enum rec_kind k, const struct rec *r)
{
    struct fact *f = find(x, k, r->id);
    if (f)
        return f;
    f = calloc(1, sizeof *f);
    if (!f || !(f->id = strdup(r->id)) || !tsearch(f, &x->tree[k], order)) {
        free(f ? f->id : NULL);
        free(f);
        x->stale = true; /* no memory now: read again later */
        return NULL;
    }
    f->kind = k;
    return f;
}

static void row_seen(enum rec_kind k, const struct rec *r, void *arg)
{
    struct facts *x = arg;
    if (k == REC_KINDS) {
        x->stale = true;
        return;
    }
    if (k == REC_JOB)
        return;
    if (!r->doc || ((k == REC_OPERATION || k == REC_BACKUP) && state_terminal(r->state))) {
        drop(x, k, r->id);
        return;
    }
    struct fact *f = keep(x, k, r);
    if (!f)
        return;
    f->seq = r->seq;
    f->created_ns = r->created_ns;
    if (k == REC_BACKUP)
        of_run(f, r);
    else if (k == REC_OPERATION)
        of_operation(f, r);
    else if (k == REC_NATIVE)
        of_native(f, r);
    else
        of_volume(x, f, r);
}

struct reading {
    struct facts *facts;
    enum rec_kind kind;
};
static int read_row(struct rec *r, void *arg)
{
    struct reading *x = arg;
    row_seen(x->kind, r, x->facts);
    return 0;
}

static int read_all(struct engine *g, struct err *e)
{
    static const enum rec_kind kinds[] = {REC_BACKUP, REC_OPERATION, REC_NATIVE, REC_VOLUME};
    struct facts *x = g->facts;
    clear(x);
    x->stale = false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct rec_filter live = {.live = kinds[i] == REC_BACKUP || kinds[i] == REC_OPERATION};
        struct reading r = {x, kinds[i]};
        int rc = records_each(g->records, kinds[i], &live, read_row, &r, e);
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
    records_watch(g->records, row_seen, g->facts);
    return read_all(g, e);
}

void facts_free(struct engine *g)
{
    struct facts *x = g->facts;
    if (!x)
        return;
    if (g->records)
        records_watch(g->records, NULL, NULL);
    clear(x);
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
    f->used_here = !volume_excluded(c, f->name);
    f->interval_s = volume_interval(c, &l->jobs, f->name);
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
    twalk_r(x->tree[REC_VOLUME], visit_volume, &l);
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

void facts_each(const struct engine *g, enum rec_kind k, fact_fn *fn, void *arg)
{
    struct visit v = {fn, arg};
    twalk_r(g->facts->tree[k], visit_fact, &v);
}

const struct fact *facts_find(const struct engine *g, enum rec_kind k, const char *id)
{
    return g->facts ? find(g->facts, k, id) : NULL;
}

void facts_plan(struct engine *g, const struct native_facts *f, size_t n)
{
    for (size_t i = 0; g->facts && i < n; i++) {
        struct fact *x = find(g->facts, REC_NATIVE, f[i].alias);
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
    jset_int(o, "orphans", g->orphans);
    jset_int(o, "movers", movers_count(g->movers));
    jset_int(o, "steps", steps_running(g->steps));
    jset_int(o, "steps_stuck", steps_stuck(g->steps));
    jset_int(o, "record_write_errors", (int64_t)records_write_errors(g->records));
    jset_bool(o, "reload_ok", g->reload_ok);
    if (g->orphan_list)
        json_object_set(o, "orphan_list", g->orphan_list);
    records_counters(g->records, list_counter, counters, NULL);
    json_object_set_new(o, "counters", counters);
    return o;
}
