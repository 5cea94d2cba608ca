/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine-answers.c - what ran, what is protected, why not, what will be deleted when
 *
 * Answers come from records and memory and never wait for anything; those that look at the storage do it in a step.
 */
#include "base/nearest.h"
#include "base/time.h"
#include "daemon/answers/answers.h"
#include "daemon/engine/facts.h"

#include <errno.h>
#include <string.h>

/* A person waits for the list of volumes; the command gives up at 15 s. */
#define LOOK_S 12

/* ---- one record ---- */

static json_t *live_progress(struct engine *g, const struct operation *op)
{
    struct live *l = live_find(g, op->id);
    if (!l || !l->progress || op_state_terminal(op->state))
        return NULL;
    json_t *p = json_deep_copy(l->progress);
    double left = pace_left(&l->pace, (double)now_ns() / 1e9);
    if (json_object_get(p, "fresh"))
        json_object_set(p, "new", json_object_get(p, "fresh"));
    json_object_set_new(p, "rate", json_real(pace_rate(&l->pace)));
    if (left >= 0)
        json_object_set_new(p, "eta_s", json_real(left));
    jset_int(p, "at_ns", l->progress_ns);
    return p;
}

json_t *engine_operation_json(struct engine *g, const struct operation *op)
{
    json_t *o = answer_operation(op), *p = live_progress(g, op), *m = movers_to_json(g->movers, op->id);
    if (p)
        json_object_set_new(o, "progress", p);
    bool waits = op->state == OP_QUEUED || op->state == OP_EXPOSING;
    if (waits && !json_object_get(o, "why")) {
        char why[512] = "";
        operation_waits_for(g, op, why, sizeof why);
        if (why[0])
            jset_str(o, "why", why);
    }
    char asked[1300];
    if (!op_state_terminal(op->state) && !json_object_get(o, "why") && natives_asked(g, op, asked, sizeof asked))
        jset_str(o, "why", asked);
    if (m)
        json_object_set_new(o, "mover", m);
    const struct live *l = live_find(g, op->id);
    if (l && l->step)
        json_object_set_new(
            jobj(o, "details"), "doing",
            json_pack("{s:s,s:f}", "what", l->doing, "seconds", (double)(now_ns() - l->step_since_ns) / 1e9));
    return o;
}

struct overall {
    struct engine *engine;
    json_t *operations;
    int64_t total, done;
    double rate, bytes, left; /* bytes still to read; seconds of the one that takes longest, < 0: unknown */
    int64_t at;
    char phase[64];
    unsigned running;
};
static int add_progress(const struct operation *op, void *arg)
{
    struct overall *x = arg;
    struct live *l = live_find(x->engine, op->id);
    if (op->kind != KIND_BACKUP && op->kind != KIND_RESTORE)
        return 0;
    int64_t size = op->volume->size;
    const json_t *p = l && l->progress ? l->progress : op->progress;
    if (x->operations)
        json_array_append_new(x->operations, engine_operation_json(x->engine, op));
    if (jint(p, "total"))
        size = jint(p, "total");
    x->total += size;
    if (op_state_terminal(op->state)) {
        /* What failed or was cancelled has done what it has done. */
        const bool whole = op->state == OP_COMPLETED || op->state == OP_SKIPPED;
        x->done += whole ? size : jint(p, "done");
        return 0;
    }
    x->done += jint(p, "done");
    if (!l || !l->progress) {
        const int64_t allocated = op->volume->allocated;
        x->bytes += (double)(allocated > 0 && allocated < size ? allocated : size);
    } else {
        bool all = jint(p, "total") > 0 && jint(p, "done") >= jint(p, "total");
        double left = all ? 0 : pace_left(&l->pace, (double)now_ns() / 1e9), rate = pace_rate(&l->pace);
        x->rate += rate;
        x->bytes += left > 0 ? left * rate : 0;
        x->left = x->left < 0 || left < 0 ? -1 : left > x->left ? left : x->left;
        x->running++;
        if (l->progress_ns > x->at)
            x->at = l->progress_ns;
        snprintf(x->phase, sizeof x->phase, "%s", jstr(p, "phase"));
    }
    return 0;
}

json_t *engine_backup_json(struct engine *g, const struct backup *b, bool with_operations)
{
    json_t *o = answer_backup(g->records, b, false);
    struct overall x = {.engine = g, .operations = with_operations ? json_array() : NULL};
    struct operation_filter f = {.parent = b->id};
    operation_each(g->records, &f, add_progress, &x, NULL);
    if (b->state == BACKUP_QUEUED) {
        char by[192];
        jset_int(o, "position", backup_position(g, b, by));
        if (by[0])
            jset_str(o, "blocked_by", by);
    }
    if (x.operations)
        json_object_set_new(o, "operations", x.operations);
    if (!backup_state_terminal(b->state) && x.total > 0) {
        json_t *p = json_pack("{s:s,s:I,s:I,s:f,s:I}", "phase", x.phase[0] ? x.phase : backup_state_name(b->state),
                              "total", (json_int_t)x.total, "done", (json_int_t)x.done, "rate", x.rate, "at_ns",
                              (json_int_t)(x.at ? x.at : now_ns()));
        /* Those that wait will go at the pace of those that run. */
        if (x.running && x.left >= 0 && x.rate > 1 && x.bytes > 0)
            json_object_set_new(p, "eta_s", json_real(x.left > x.bytes / x.rate ? x.left : x.bytes / x.rate));
        json_object_set_new(o, "progress", p);
    }
    return o;
}

json_t *engine_native_json(struct engine *g, const struct native_row *n)
{
    json_t *o = answer_native(n);
    CLEANUP_FREE struct native_facts *f = NULL;
    struct native_rules rules;
    struct native_verdict v;
    size_t count = 0;
    char reasons[160];
    native_rules_from(&rules, n->policy, n->job, -1, false);
    if (natives_gather(g->records, n->volume_id, &f, &count, NULL) < 0)
        return o;
    natives_plan(&rules, f, count, &v);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(f[i].alias, n->id))
            continue;
        jset_str(o, "reasons", native_reasons_text(f[i].reasons, reasons, sizeof reasons));
        jset_str(o, "why", f[i].why);
        jset_bool(o, "prune", f[i].prune);
    }
    return o;
}

/* ---- status ---- */

struct screen {
    struct engine *engine;
    json_t *running, *queue, *problems, *volumes;
    unsigned used, queued, natives, n_next;
    json_t *seen; /* volumes */
    int64_t natives_used;
    json_t *next;
};

static int see_operation(const struct operation *op, void *arg)
{
    struct screen *s = arg;
    bool moves = op->state == OP_STARTING || op->state == OP_RUNNING || op->state == OP_CANCELLING;
    bool slot = op->kind == KIND_BACKUP || op->kind == KIND_RESTORE;
    const char *name = op->volume->name[0] ? op->volume->name : op->id;
    if (moves && slot)
        s->used++;
    if (op->state == OP_QUEUED) {
        s->queued++;
        if (json_array_size(s->queue) < 50) {
            json_t *o = engine_operation_json(s->engine, op);
            jset_int(o, "position", s->queued);
            json_array_append_new(s->queue, o);
        }
        char why[512] = "";
        if (slot && repository_down(s->engine, op->policy->repository))
            operation_waits_for(s->engine, op, why, sizeof why);
        if (why[0])
            problem(s->problems, "warning", "", "%s waits: %s", name, why);
    } else if (json_array_size(s->running) < 50) {
        json_array_append_new(s->running, engine_operation_json(s->engine, op));
    }
    if (op->cleanup_error[0])
        problem(s->problems, "warning", "it is tried again; what is left is removed as soon as the storage allows",
                "%s: what its backup made cannot be released: %s", name, op->cleanup_error);
    if (op->state == OP_RETRYING)
        problem(s->problems, "warning", op->error.hint, "%s is tried again: %s", name, op->error.message);
    return 0;
}

struct jobs_of {
    const struct cfg *cfg;
    const char *name;
    json_t *names;
    int64_t next;
    const struct jobs_now *jobs;
};
static void jobs_for(struct jobs_of *x)
{
    x->names = json_array();
    for (unsigned i = 0; i < x->jobs->n; i++) {
        const struct job_view *v = &x->jobs->v[i];
        const struct cfg_job *j = cfg_job(x->cfg, v->name);
        if (!j || !cfg_job_has(x->cfg, j, x->name))
            continue;
        json_array_append_new(x->names, json_string(j->name));
        if (v->next_ns > 0 && (!x->next || v->next_ns < x->next))
            x->next = v->next_ns;
    }
}

struct count_natives {
    unsigned n;
    int64_t used;
};
static int count_native(const struct native_row *n, void *arg)
{
    struct count_natives *c = arg;
    int64_t used = n->native->used;
    if (n->state == NATIVE_MISSING)
        return 0;
    c->n++;
    if (used > 0)
        c->used += used;
    return 0;
}

/* A volume's line. */
static json_t *volume_line(struct engine *g, const struct volume_row *v, const struct volume_desc *volume,
                           const char *klass, const struct jobs_now *now_jobs)
{
    const char *name = volume->name, *excluded = volume_excluded(g->cfg, name);
    struct jobs_of jobs = {g->cfg, name, NULL, 0, now_jobs};
    struct count_natives natives = {0, 0};
    const struct native_row_filter f = {.volume_id = volume->id};
    json_t *o = json_object();
    int64_t good = v ? v->last_success_ns : 0, now = now_ns();
    enum volume_state state =
        volume_judge(v && v->state == VOL_GONE, excluded != NULL, good, volume_interval(g->cfg, now_jobs, name), now);
    char why[1400];
    jobs_for(&jobs);
    volume_why(state, v, excluded, json_array_size(jobs.names) > 0, why, sizeof why);
    native_row_each(g->records, &f, count_native, &natives, NULL);
    jset_str(o, "name", name);
    jset_str(o, "id", volume->id);
    jset_str(o, "class", klass);
    jset_int(o, "size", volume->size);
    if (volume->allocated > 0)
        jset_int(o, "allocated", volume->allocated);
    jset_bool(o, "protected", state == VOLUME_PROTECTED);
    jset_str(o, "state", volume_states[state]);
    if (why[0])
        jset_str(o, "why", why);
    if (good) {
        jset_int(o, "last_success_ns", good);
        json_object_set_new(o, "age_s", json_real((double)(now - good) / 1e9));
    }
    if (v && v->last_backup[0])
        jset_str(o, "last_backup", v->last_backup);
    if (v && v->last_status != OUTCOME_NONE)
        jset_str(o, "last_state", outcome_name(v->last_status));
    if (jobs.next && state < VOLUME_GONE)
        jset_int(o, "next_ns", jobs.next);
    json_object_set_new(o, "jobs", jobs.names);
    jset_int(o, "natives", natives.n);
    jset_int(o, "used", natives.used);
    if (v && v->last_error.code)
        json_object_set_new(o, "error", op_error_to_json(&v->last_error));
    return o;
}

struct volumes_seen {
    struct engine *engine;
    json_t *list;
    const struct jobs_now *jobs;
};
static int see_volume(const struct volume_row *v, void *arg)
{
    struct volumes_seen *x = arg;
    return json_array_append_new(x->list, volume_line(x->engine, v, v->volume, v->klass, x->jobs));
}

/* Unprotected ones first, then the oldest; what does not count at the end. */
static int rank(const json_t *v)
{
    const char *state = jstr(v, "state");
    return !strcmp(state, "unprotected") ? 0 : !strcmp(state, "protected") ? 1 : !strcmp(state, "gone") ? 2 : 3;
}
static int by_need(const void *a, const void *b)
{
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    if (rank(x) != rank(y))
        return rank(x) - rank(y);
    int64_t p = jint(x, "last_success_ns"), q = jint(y, "last_success_ns");
    return p != q ? (p > q) - (p < q) : strcmp(jstr(x, "name"), jstr(y, "name"));
}

static void sort_volumes(json_t *list)
{
    size_t n = json_array_size(list);
    CLEANUP_FREE json_t **p = calloc(n + 1, sizeof(json_t *));
    if (!p)
        return;
    for (size_t i = 0; i < n; i++)
        p[i] = json_incref(json_array_get(list, i));
    qsort(p, n, sizeof *p, by_need);
    json_array_clear(list);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, p[i]);
}

/* What goes when the next backup of each volume makes room for its own snapshot. */
static void next_to_go(struct screen *s, const struct native_row *n)
{
    CLEANUP_FREE struct native_facts *f = NULL;
    struct native_rules rules;
    struct native_verdict v;
    size_t count = 0;
    native_rules_from(&rules, n->policy, n->job, -1, true);
    if (natives_gather(s->engine->records, n->volume_id, &f, &count, NULL) < 0)
        return;
    natives_plan(&rules, f, count, &v);
    for (size_t i = 0; i < count; i++) {
        CLEANUP(native_row_clear) struct native_row r;
        native_row_init(&r);
        if (!f[i].prune || native_row_read(s->engine, f[i].alias, &r) < 0)
            continue;
        s->n_next++;
        if (json_array_size(s->next) < 5) {
            json_t *o = engine_native_json(s->engine, &r);
            jset_str(o, "why", f[i].why);
            json_array_append_new(s->next, o);
        }
    }
}

static int see_native(const struct native_row *n, void *arg)
{
    struct screen *s = arg;
    int64_t used = n->native->used;
    if (n->state == NATIVE_MISSING)
        return 0;
    s->natives++;
    if (used > 0)
        s->natives_used += used;
    if (!json_object_get(s->seen, n->volume_id)) {
        json_object_set_new(s->seen, n->volume_id, json_true());
        next_to_go(s, n);
    }
    return 0;
}

static json_t *natives_summary(struct screen *s)
{
    char text[700];
    const json_t *first = json_array_get(s->next, 0);
    if (!s->natives)
        snprintf(text, sizeof text, "none");
    else if (!first)
        snprintf(text, sizeof text, "none of them goes with the next backups");
    else
        snprintf(text, sizeof text, "with the next backups %u of them %s, first %.8s of %.400s", s->n_next,
                 s->n_next == 1 ? "goes" : "go", jstr(first, "alias"), jstr(first, "volume"));
    return json_pack("{s:i,s:I,s:O,s:s}", "count", s->natives, "used", (json_int_t)s->natives_used, "next", s->next,
                     "text", text);
}

static json_t *repositories(struct engine *g, json_t *problems)
{
    char hint[600];
    json_t *list = json_array();
    const struct cfg_repository *r;
    for (unsigned i = 0; (r = cfg_repository_at(g->cfg, i)); i++) {
        json_t *o = json_pack("{s:s,s:s}", "name", r->name, "path", r->path);
        for (struct repo_health *h = g->repos; h; h = h->next) {
            if (strcmp(h->name, r->name) || !h->known)
                continue;
            jset_bool(o, "up", h->up);
            jset_int(o, "since_ns", h->since_ns);
            if (!h->up) {
                jset_str(o, "why", h->why);
                snprintf(hint, sizeof hint, "%s%sbackups into it wait until it is back", h->hint,
                         h->hint[0] ? "; " : "");
                problem(problems, "error", hint, "repository \"%s\": %s", r->name, h->why);
            }
            if (h->up && h->size_bytes > 0) {
                jset_int(o, "free", h->free_bytes);
                jset_int(o, "size", h->size_bytes);
                jset_bool(o, "full", repository_full(h));
            }
            problem_of_room(h, problems);
        }
        answer_repository_counts(g->records, o);
        json_array_append_new(list, o);
    }
    return list;
}

/* Pools over their high-water mark, as last looked at. */
static void full_pools(struct engine *g, json_t *list)
{
    const char *id;
    json_t *ratio;
    json_object_foreach(g->pools, id, ratio)
    {
        CLEANUP(volume_row_clear) struct volume_row v;
        volume_row_init(&v);
        struct cfg_policy p = {.effective = NULL};
        if (volume_row_read(g, id, &v) < 0)
            continue;
        const char *name = v.volume->name;
        if (cfg_policy(g->cfg, name, NULL, &p, NULL) == 0 && p.pool_high_water &&
            json_number_value(ratio) * 100 > p.pool_high_water)
            problem(list, "error", "retained native snapshots are pruned, oldest first; free space or extend the pool",
                    "the storage of %s is %.0f %% full, over its high-water mark of %u %%", name,
                    json_number_value(ratio) * 100, p.pool_high_water);
        cfg_policy_clear(&p);
    }
}

/* One volume that is removed is no problem. A class without any of its volumes rather is a file system that is not
 * mounted. */
static void empty_classes(struct engine *g, const json_t *volumes, json_t *list)
{
    const struct cfg_class *k;
    const json_t *v;
    size_t n;
    for (unsigned i = 0; (k = cfg_class_at(g->cfg, i)); i++) {
        unsigned gone = 0, there = 0;
        json_array_foreach(volumes, n, v) if (!strcmp(jstr(v, "class"), k->name))
        {
            gone += !strcmp(jstr(v, "state"), volume_states[VOLUME_GONE]);
            there += strcmp(jstr(v, "state"), volume_states[VOLUME_GONE]) != 0;
        }
        if (gone && !there && cfg_class_here(g->cfg, k))
            problem(
                list, "warning", "is its file system mounted? If they were removed: `snapferry forget VOLUME` for each",
                "storage class \"%s\": none of its %u volume%s is there any more", k->name, gone, gone == 1 ? "" : "s");
    }
}

static void look_problem(const char *text, bool passed_over, void *arg)
{
    json_t *list = arg;
    if (json_array_size(list) < 40)
        problem(list, "warning", passed_over ? "it is not backed up" : "its volumes are shown as they were last seen",
                "%s", text);
}

static void general_problems(struct engine *g, const struct jobs_now *jobs, json_t *list)
{
    if (records_degraded(g->records))
        problem(list, "error", "free space in the state directory; nothing new is started until then",
                "the records in %s cannot be written", g->paths.state_dir);
    if (!g->reload_ok)
        problem(list, "error", "`snapferry check-config` lists the errors; the old configuration stays in force",
                "the last reload was refused: %s", g->reload_error);
    if (g->news.recovered)
        problem(list, "warning", "", "%s", g->news.text);
    problems_of_jobs(jobs->v, jobs->n, list);
    if (g->orphans)
        problem(list, "warning",
                "they are removed when they are older than orphan-grace; `snapferry status --json` lists them",
                "%u objects with our tag are on the storage that no record knows", g->orphans);
    if (steps_stuck(g->steps))
        problem(list, "warning", "look at the storage below: dmesg, multipath, NFS server",
                "%u pieces of work hang in the kernel and cannot be ended", steps_stuck(g->steps));
    if (cfg_daemon(g->cfg)->slots == 0)
        problem(list, "warning", "set slots in [daemon] to let work go on",
                "maintenance mode: slots = 0, nothing is started");
}

/* Its problems are the daemon's. */
static void observer_status(struct engine *g, json_t *status)
{
    json_t *o = g->observer->status(g->observer->arg);
    json_array_extend(jarr(status, "problems"), jarr(o, "problems"));
    json_object_del(o, "problems");
    if (o)
        json_object_set_new(status, "metrics", o);
}

json_t *engine_status(struct engine *g)
{
    const struct cfg_daemon *d = cfg_daemon(g->cfg);
    struct screen s = {.engine = g,
                       .running = json_array(),
                       .queue = json_array(),
                       .problems = json_array(),
                       .next = json_array(),
                       .seen = json_object()};
    const struct operation_filter live = {.live = true};
    CLEANUP(jobs_now_clear) struct jobs_now jobs = jobs_now(g);
    struct volumes_seen vs = {g, json_array(), &jobs};
    json_t *steps = steps_to_json(g->steps);
    general_problems(g, &jobs, s.problems);
    json_t *repos = repositories(g, s.problems);
    operation_each(g->records, &live, see_operation, &s, NULL);
    volume_row_each(g->records, NULL, see_volume, &vs, NULL);
    native_row_each(g->records, NULL, see_native, &s, NULL);
    full_pools(g, s.problems);
    empty_classes(g, vs.list, s.problems);
    volumes_problems(g, look_problem, s.problems);
    sort_volumes(vs.list);
    const json_t *v;
    size_t i;
    unsigned warnings = 0;
    json_array_foreach(vs.list, i, v) if (rank(v) == 0 && json_array_size(s.problems) < 40)
        problem(s.problems, "warning", jstr(jobj(v, "error"), "hint"), "%s is not protected: %s", jstr(v, "name"),
                jstr(v, "why"));
    for (unsigned k = 0; cfg_complaint_at(g->cfg, k); k++)
        warnings += cfg_complaint_at(g->cfg, k)->severity == CFG_WARNING;
    json_t *daemon =
        json_pack("{s:s,s:i,s:s,s:I,s:b,s:b,s:o?,s:i}", "version", SNAPFERRY_VERSION, "pid", (int)getpid(), "node",
                  d->node_name, "started_ns", (json_int_t)g->started_ns, "degraded", records_degraded(g->records),
                  "maintenance", d->slots == 0, "steps", steps, "stuck", steps_stuck(g->steps));
    if (g->news.text[0])
        jset_str(daemon, "news", g->news.text);
    json_t *config = json_pack("{s:b,s:s,s:I,s:i}", "ok", g->reload_ok, "hash", cfg_hash(g->cfg), "loaded_ns",
                               (json_int_t)g->reload_ns, "warnings", warnings);
    if (g->reload_error[0])
        jset_str(config, "error", g->reload_error);
    json_t *o = json_pack("{s:o,s:o,s:o,s:{s:i,s:i,s:i,s:i},s:o,s:o,s:o,s:o,s:o,s:o}", "daemon", daemon, "config",
                          config, "repositories", repos, "slots", "total", d->slots, "used", s.used, "restore_reserved",
                          d->restore_reserved, "queued", s.queued, "running", s.running, "queue", s.queue, "volumes",
                          vs.list, "jobs", answer_jobs(g->schedule, g->records, now_ns()), "natives",
                          natives_summary(&s), "problems", s.problems);
    if (g->observer)
        observer_status(g, o);
    json_decref(s.next);
    json_decref(s.seen);
    return o;
}

/* ---- volumes: what the classes match now ---- */

struct look {
    struct engine *engine;
    engine_reply_fn *reply;
    void *arg;
    char what[VOLUME_NAME_MAX];
};

/* What the storage could not be asked is said: of these classes the records are all there is. */
static void unsure_of(json_t *unsure, const char *klass, const char *message)
{
    char text[1400];
    snprintf(text, sizeof text, "%s%s%s%s; its volumes are shown as the records have them",
             klass ? "storage class \"" : "the storage could not be asked: ", klass ? klass : "", klass ? "\": " : "",
             message);
    log_warning("%s", text);
    json_array_append_new(unsure, json_string(text));
}

static void volumes_done(struct step_result *s, void *arg)
{
    struct look *l = arg;
    struct engine *g = l->engine;
    CLEANUP_JSON json_t *list = json_array(), *seen = json_object(), *unsure = json_array();
    CLEANUP(jobs_now_clear) struct jobs_now jobs = jobs_now(g);
    const json_t *a, *v;
    size_t i, k;
    if (s->err.cls)
        unsure_of(unsure, NULL, s->err.msg);
    volumes_listed(g, json_object_get(s->out, "classes"));
    json_array_foreach(json_object_get(s->out, "classes"), i, a)
    {
        const char *klass = jstr(jobj(a, "class"), "name");
        if (jobj(a, "error"))
            unsure_of(unsure, klass, jstr(jobj(a, "error"), "message"));
        json_array_foreach(jarr(a, "passed"), k, v) json_array_append(unsure, (json_t *)(uintptr_t)v);
        json_array_foreach(jarr(a, "volumes"), k, v)
        {
            CLEANUP(volume_row_clear) struct volume_row r;
            volume_row_init(&r);
            const struct cfg_class *own = cfg_class_of(g->cfg, jstr(v, "name"));
            if (!own || strcmp(own->name, klass) || json_object_get(seen, jstr(v, "id")))
                continue;
            json_object_set_new(seen, jstr(v, "id"), json_true());
            bool known = volume_row_read(g, jstr(v, "id"), &r) == 0;
            CLEANUP(volume_desc_unrefp) const struct volume_desc *desc = volume_desc_from_json(v);
            json_array_append_new(list, volume_line(g, known ? &r : NULL, desc, klass, &jobs));
        }
    }
    /* Volumes that were backed up and are gone are still of interest. */
    struct volumes_seen vs = {g, json_array(), &jobs};
    volume_row_each(g->records, NULL, see_volume, &vs, NULL);
    json_t *line;
    json_array_foreach(vs.list, i, line)
    {
        if (json_object_get(seen, jstr(line, "id")) || (l->what[0] && strcmp(l->what, jstr(line, "class"))))
            continue;
        json_array_append(list, line);
    }
    json_decref(vs.list);
    sort_volumes(list);
    CLEANUP_JSON json_t *answer = json_pack("{s:O}", "volumes", list);
    if (json_array_size(unsure))
        json_object_set(answer, "unsure", unsure);
    if (s->canceled)
        l->reply(NULL, &s->err, l->arg);
    else
        l->reply(answer, NULL, l->arg);
    free(l);
}

static int start_look(struct engine *g, struct look *l, const struct cfg_class *only, const char *name,
                      unsigned timeout_s, step_done_fn *done, struct err *e)
{
    CLEANUP_JSON json_t *classes = json_array();
    const struct cfg_class *k;
    for (unsigned i = 0; (k = cfg_class_at(g->cfg, i)); i++) {
        struct cfg_policy p = {.effective = NULL};
        if ((only && only != k) || !driver_by_name(k->driver))
            continue;
        if (name)
            cfg_policy(g->cfg, name, NULL, &p, NULL);
        json_t *q = json_pack("{s:o}", "class", class_doc(g->cfg, k, &p));
        const struct cfg_class *into =
            name && p.backup_storage_class[0] ? cfg_class(g->cfg, p.backup_storage_class) : NULL;
        if (into && into != k)
            json_object_set_new(q, "into", class_doc(g->cfg, into, &p));
        cfg_policy_clear(&p);
        if (name)
            json_object_set_new(q, "names", json_pack("[s]", name));
        json_array_append_new(classes, q);
    }
    CLEANUP_JSON json_t *in = json_pack("{s:O}", "classes", classes);
    return step_start(g->steps, "look for volumes", step_volumes, in, timeout_s, done, l, NULL, e);
}

void engine_volumes(struct engine *g, const json_t *req, engine_reply_fn *reply, void *arg)
{
    struct look *l = calloc(1, sizeof *l);
    const char *klass = jstr(req, "class");
    const struct cfg_class *only = klass[0] ? cfg_class(g->cfg, klass) : NULL;
    struct err e = ERR_INIT;
    if (!l)
        err_nomem(&e);
    else if (klass[0] && !only) {
        err_set(&e, ERR_NOT_FOUND, 0, "there is no storage class \"%s\"", klass);
        nearest_hint(&e, cfg_near_class(g->cfg, klass), "`snapferry check-config` lists the classes");
    }
    if (!e.cls) {
        *l = (struct look){.engine = g, .reply = reply, .arg = arg};
        snprintf(l->what, sizeof l->what, "%s", klass);
        if (start_look(g, l, only, NULL, LOOK_S, volumes_done, &e) == 0)
            return;
    }
    free(l);
    reply(NULL, &e, arg);
}

/* ---- explain ---- */

static void say(json_t *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(json_t *text, const char *fmt, ...)
{
    char line[1200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    CLEANUP_JSON json_t *o = json_object();
    jset_str(o, "t", line);
    json_array_append(text, json_object_get(o, "t"));
}

static const char *mechanism_of(struct engine *g, const struct cfg_class *k, const struct cfg_policy *p,
                                const json_t *volume, unsigned own, unsigned into_abilities, char *why, size_t cap)
{
    CLEANUP_JSON json_t *own_doc = class_doc(g->cfg, k, p), *into_doc = NULL;
    const struct cfg_class *into = p->backup_storage_class[0] ? cfg_class(g->cfg, p->backup_storage_class) : NULL;
    struct class_view a = {.match = NULL}, b = {.match = NULL};
    struct expose_request q = {
        .read_only = p->backup_read_only, .own_abilities = own, .into_abilities = into_abilities};
    enum expose_mechanism m;
    struct err e = ERR_INIT;
    const char *ret = "";
    class_view(&a, own_doc, NULL);
    q.own = &a.c;
    if (into && into != k) {
        into_doc = class_doc(g->cfg, into, p);
        class_view(&b, into_doc, NULL);
        q.into = &b.c;
        q.same_pool = jbool(volume, "same_pool");
    }
    if (expose_choose(&q, &m, &e) == 0)
        ret = expose_mechanism_name(m);
    else
        snprintf(why, cap, "%s", e.msg);
    class_view_clear(&a);
    class_view_clear(&b);
    return ret;
}

static int add_native(const struct native_row *n, void *arg)
{
    struct volumes_seen *x = arg;
    return json_array_append_new(x->list, engine_native_json(x->engine, n));
}

static void explain_done(struct step_result *s, void *arg)
{
    struct look *l = arg;
    struct engine *g = l->engine;
    const struct cfg_class *k = cfg_class_of(g->cfg, l->what);
    CLEANUP_JSON json_t *text = json_array(), *notes = json_array(), *answer = json_object(), *natives = json_array();
    CLEANUP(jobs_now_clear) struct jobs_now jobs = jobs_now(g);
    const json_t *a, *volume = NULL, *missing = NULL;
    struct cfg_policy p = {.effective = NULL};
    struct err e = s->err;
    unsigned own = 0, into = 0;
    size_t i;
    if (s->timed_out) {
        say(notes, "the storage does not answer (%s): shown from configuration and records", e.msg);
        e = (struct err)ERR_INIT;
    }
    json_array_foreach(json_object_get(s->out, "classes"), i, a)
    {
        const char *name = jstr(jobj(a, "class"), "name");
        if (k && !strcmp(name, k->name)) {
            own = (unsigned)jint(a, "abilities");
            volume = json_array_get(jarr(a, "volumes"), 0);
            missing = json_array_get(jarr(a, "missing"), 0);
        }
    }
    if (!e.cls)
        cfg_policy(g->cfg, l->what, NULL, &p, &e);
    if (!e.cls) {
        json_array_foreach(json_object_get(s->out, "classes"), i,
                           a) if (!strcmp(jstr(jobj(a, "class"), "name"), p.backup_storage_class)) into =
            (unsigned)jint(a, "abilities");
        jset_str(answer, "volume", l->what);
        json_object_set_new(answer, "policy", cfg_policy_json(&p));
        if (!k) {
            say(notes, "no storage class matches %s: it is not backed up", l->what);
            const struct cfg_class *c;
            for (unsigned n = 0; (c = cfg_class_at(g->cfg, n)); n++)
                for (unsigned m = 0; c->match && c->match[m]; m++)
                    say(notes, "storage class \"%s\" (%s) matches %s", c->name, c->origin, c->match[m]);
        } else {
            char why[700] = "";
            json_object_set_new(answer, "class",
                                json_pack("{s:s,s:s,s:s}", "name", k->name, "driver", k->driver, "origin", k->origin));
            say(text, "Storage class \"%s\" (%s), driver %s.", k->name, k->origin, k->driver);
            const char *m = s->timed_out ? "" : mechanism_of(g, k, &p, volume, own, into, why, sizeof why);
            jset_str(answer, "mechanism", m);
            if (m[0])
                say(text, "A backup reads it through: %s%s%s, %s.", m, p.backup_storage_class[0] ? " in class " : "",
                    p.backup_storage_class, p.backup_read_only ? "read-only" : "writable");
            else if (!s->timed_out)
                say(notes, "it cannot be exposed: %s", why);
            if (!volume && !s->timed_out)
                say(notes, "not found: %s", missing ? jstr(missing, "message") : "the storage does not have it");
            if (p.exclude)
                say(text, "It is excluded (exclude = yes).");
            if (p.move_data)
                say(text, "Its data is moved to repository \"%s\"; %u native snapshot%s then retained.", p.repository,
                    p.snapshots_to_retain, p.snapshots_to_retain == 1 ? " is" : "s are");
            else
                say(text, "Only native snapshots are kept (move-data = no), the newest %u.", p.snapshot_only_keep);
        }
        CLEANUP(volume_row_clear) struct volume_row v;
        volume_row_init(&v);
        bool known = volume_find(g, l->what, &v) == 0;
        CLEANUP(volume_desc_unrefp) const struct volume_desc *vol = volume_desc_from_json(volume);
        if (known)
            volume_desc_set(&vol, v.volume);
        if (!is_none(vol)) {
            CLEANUP_JSON json_t *line = volume_line(g, known ? &v : NULL, vol, k ? k->name : "", &jobs);
            struct volumes_seen ns = {g, natives, NULL};
            const struct native_row_filter f = {.volume_id = vol->id};
            const json_t *n;
            say(text, "%s%s",
                jbool(line, "protected") ? "It is protected."
                : rank(line) == 3        ? "It is not backed up: "
                                         : "It is not protected: ",
                jstr(line, "why"));
            native_row_each(g->records, &f, add_native, &ns, NULL);
            json_array_foreach(natives, i, n) say(text, "Native snapshot %s: %s", jstr(n, "alias"), jstr(n, "why"));
            json_object_set(answer, "details", line);
        }
        json_array_foreach(notes, i, a) json_array_append(text, (json_t *)(uintptr_t)a);
        json_object_set(answer, "text", text);
        json_object_set(answer, "notes", notes);
        json_object_set(answer, "natives", natives);
    }
    cfg_policy_clear(&p);
    l->reply(e.cls ? NULL : answer, e.cls ? &e : NULL, l->arg);
    free(l);
}

void engine_explain(struct engine *g, const json_t *req, engine_reply_fn *reply, void *arg)
{
    struct look *l = calloc(1, sizeof *l);
    struct err e = ERR_INIT;
    if (!l)
        err_nomem(&e);
    else if (!jstr(req, "volume")[0])
        err_set(&e, ERR_USAGE, 0, "explain needs a volume");
    if (!e.cls) {
        *l = (struct look){.engine = g, .reply = reply, .arg = arg};
        snprintf(l->what, sizeof l->what, "%s", jstr(req, "volume"));
        if (start_look(g, l, NULL, l->what, LOOK_S, explain_done, &e) == 0)
            return;
    }
    free(l);
    reply(NULL, &e, arg);
}
