/* SPDX-License-Identifier: GPL-2.0-or-later */
/* status.c - the state of everything */
#include "daemon/answers/answers-impl.h"

#include <stdio.h>
#include <stdlib.h>

#define LISTED_MAX 50 /* running and queued operations */

/* ---- operations ---- */

struct operations_seen {
    const struct answer_facts *facts;
    json_t *running, *queue, *problems;
    unsigned used, queued;
};

/* Its repository is not available, or not looked at yet. */
static bool waits_for_repository(const struct answer_facts *f, const struct operation *op)
{
    const struct answer_repository *r = find_repository(f, op->policy->repository);
    return f->source && is_move(op) && !(r && r->up);
}

static void add_operation_problems(const struct operations_seen *s, const struct operation *op)
{
    const char *name = op->volume->name[0] ? op->volume->name : op->id;
    if (op->records.n && json_array_size(s->problems) < PROBLEMS_MAX) {
        if (op->tried)
            add_problem(s->problems, "warning",
                        "it is tried again; until then a node that was lost could not tell how they ended",
                        "the outcome of %u backup%s is not recorded in repository \"%s\": %s", op->records.n,
                        op->records.n == 1 ? "" : "s", op->policy->repository,
                        op->state == OP_RETRYING ? op->error.message : op->waiting);
        return;
    }
    char why[1300] = "";
    if (json_array_size(s->problems) >= PROBLEMS_MAX)
        return;
    if (op->state == OP_QUEUED && waits_for_repository(s->facts, op))
        s->facts->source->waits(op, why, sizeof why, s->facts->arg);
    if (why[0])
        add_problem(s->problems, "warning", "", "%s waits: %s", name, why);
    if (op->cleanup_error[0])
        add_problem(s->problems, "warning", "it is tried again; what is left is removed as soon as the storage allows",
                    "%s: what its backup made cannot be released: %s", name, op->cleanup_error);
    if (op->state == OP_RETRYING)
        add_problem(s->problems, "warning", op->error.hint, "%s is tried again: %s", name, op->error.message);
}

static int see_operation(const struct operation *op, void *arg)
{
    struct operations_seen *s = arg;
    const bool moves = op->state == OP_STARTING || op->state == OP_RUNNING || op->state == OP_CANCELLING;
    json_t *list = op->state == OP_QUEUED ? s->queue : s->running;
    s->used += moves && is_move(op);
    s->queued += op->state == OP_QUEUED;
    if (json_array_size(list) < LISTED_MAX)
        json_array_append_new(list, operation_line(s->facts, op));
    add_operation_problems(s, op);
    return 0;
}

/* ---- volumes ---- */

struct volumes_seen {
    struct volume_lines lines;
    unsigned *gone, *there; /* of each class of the configuration */
    unsigned classes;
};

static void count_classes(struct volumes_seen *x, const struct cfg *c)
{
    while (c && cfg_class_at(c, x->classes))
        x->classes++;
    x->gone = calloc(2 * (size_t)x->classes + 1, sizeof *x->gone);
    x->there = x->gone + x->classes;
}

static int see_volume(const struct volume_row *v, void *arg)
{
    struct volumes_seen *x = arg;
    const struct volume_line *l = volume_lines_add(&x->lines, v, v->volume, v->klass);
    for (unsigned i = 0; l && x->gone && i < x->classes; i++)
        if (!strcmp(v->klass, cfg_class_at(x->lines.facts->cfg, i)->name))
            ++*(l->state == VOLUME_GONE ? &x->gone[i] : &x->there[i]);
    return 0;
}

/* One volume that is removed is no problem. A class without any of its volumes rather is a file system that is not
 * mounted. */
static void add_empty_classes(const struct volumes_seen *x, json_t *problems)
{
    const struct cfg *c = x->lines.facts->cfg;
    for (unsigned i = 0; x->gone && i < x->classes; i++) {
        const struct cfg_class *k = cfg_class_at(c, i);
        if (x->gone[i] && !x->there[i] && cfg_class_here(c, k))
            add_problem(problems, "warning",
                        "is its file system mounted? If they were removed: `snapferry forget VOLUME` for each",
                        "storage class \"%s\": none of its %u volume%s is there any more", k->name, x->gone[i],
                        x->gone[i] == 1 ? "" : "s");
    }
}

/* Its backups run, and the last one failed: it is protected for a while yet. */
static void add_last_failures(const struct volumes_seen *x, json_t *problems)
{
    for (size_t i = 0; i < x->lines.n && json_array_size(problems) < PROBLEMS_MAX; i++) {
        const struct volume_line *l = &x->lines.line[i];
        const json_t *error = jobj(l->doc, "error");
        const char *message = jstr(error, "message");
        if (l->state == VOLUME_PROTECTED && l->failed)
            add_problem(problems, "error", jstr(error, "hint"), "the last backup of %s failed%s%s", l->name,
                        message[0] ? ": " : "", message);
    }
}

/* A job that would back up nothing. */
static void add_idle_jobs(const struct volumes_seen *x, json_t *problems)
{
    const struct answer_facts *f = x->lines.facts;
    CLEANUP_JSON json_t *busy = json_object();
    const json_t *name;
    size_t i, k;
    if (!f->daemon || !f->daemon->looked)
        return;
    for (i = 0; i < x->lines.n; i++) {
        const struct volume_line *l = &x->lines.line[i];
        if (l->state != VOLUME_GONE && l->state != VOLUME_EXCLUDED)
            json_array_foreach(jarr(l->doc, "jobs"), k, name)
                json_object_set_new(busy, json_string_value(name), json_true());
    }
    for (i = 0; i < f->jobs.n && json_array_size(problems) < PROBLEMS_MAX; i++) {
        const struct job_view *j = &f->jobs.v[i];
        if (!j->paused && !j->elsewhere && !j->failed && !json_object_get(busy, j->name))
            add_problem(problems, "error", "`snapferry volumes` lists what there is; see volumes in its section",
                        "job \"%s\" backs up nothing: no volume that is there is named by it", j->name);
    }
}

static void add_unprotected(const struct volumes_seen *x, json_t *problems)
{
    for (size_t i = 0; i < x->lines.n && json_array_size(problems) < PROBLEMS_MAX; i++) {
        const struct volume_line *l = &x->lines.line[i];
        if (l->state == VOLUME_UNPROTECTED)
            add_problem(problems, "warning", jstr(jobj(l->doc, "error"), "hint"), "%s is not protected: %s", l->name,
                        jstr(l->doc, "why"));
    }
}

/* ---- the daemon ---- */

static json_t *daemon_state(const struct answer_facts *f)
{
    static const struct answer_daemon none = {.version = "", .news = ""};
    const struct answer_daemon *d = f->daemon ? f->daemon : &none;
    const struct cfg_daemon *c = f->cfg ? cfg_daemon(f->cfg) : NULL;
    json_t *o = json_pack("{s:s,s:i,s:s,s:I,s:b,s:b,s:O*}", "version", d->version, "pid", d->pid, "node",
                          c ? c->node_name : "", "started_ns", (json_int_t)d->started_ns, "degraded", (int)d->degraded,
                          "maintenance", c && c->slots == 0, "steps", d->steps);
    if (f->daemon)
        jset_int(o, "stuck", d->stuck);
    put_text(o, "news", d->news);
    return o;
}

static json_t *config_state(const struct answer_facts *f)
{
    json_t *o = json_pack("{s:b,s:s,s:I,s:i}", "ok", (int)f->config.ok, "hash", f->cfg ? cfg_hash(f->cfg) : "",
                          "loaded_ns", (json_int_t)f->config.loaded_ns, "warnings", (int)f->config.warnings);
    put_text(o, "error", f->config.error);
    return o;
}

static json_t *slots_state(const struct answer_facts *f, const struct operations_seen *s)
{
    const struct cfg_daemon *c = f->cfg ? cfg_daemon(f->cfg) : NULL;
    return json_pack("{s:i,s:i,s:i,s:i}", "total", c ? c->slots : 0, "used", s->used, "restore_reserved",
                     c ? c->restore_reserved : 0, "queued", s->queued);
}

/* The problems of the metrics are those of the daemon. */
static void put_metrics(const struct answer_facts *f, json_t *status)
{
    json_t *metrics = f->daemon ? json_copy(f->daemon->metrics) : NULL;
    if (!metrics)
        return;
    json_array_extend(jarr(status, "problems"), jarr(metrics, "problems"));
    json_object_del(metrics, "problems");
    json_object_set_new(status, "metrics", metrics);
}

json_t *answer_standing(const struct answer_facts *f)
{
    json_t *problems = json_array();
    struct volumes_seen v = {.gone = NULL};
    volume_lines_init(&v.lines, f);
    count_classes(&v, f->cfg);
    volume_row_each(f->records, NULL, see_volume, &v, NULL);
    add_pool_problems(f, problems);
    add_empty_classes(&v, problems);
    add_look_problems(f, problems);
    volume_lines_sort(&v.lines);
    add_unprotected(&v, problems);
    add_last_failures(&v, problems);
    add_idle_jobs(&v, problems);
    json_t *o = json_pack("{s:o,s:o,s:o}", "volumes", volume_lines_list(&v.lines), "natives", natives_summary(f),
                          "problems", problems);
    free(v.gone);
    volume_lines_clear(&v.lines);
    return o;
}

static void add_problems(json_t *to, const json_t *from)
{
    json_t *p;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)from, i, p) if (json_array_size(to) < PROBLEMS_MAX)
        json_array_append(to, p);
}

json_t *answer_status(const struct answer_facts *f)
{
    static const struct operation_filter live = {.live = true};
    json_t *problems = json_array();
    CLEANUP_JSON json_t *places = queue_places(f);
    CLEANUP_JSON json_t *standing = f->standing ? json_incref((json_t *)(uintptr_t)f->standing) : answer_standing(f);
    struct answer_facts own = *f;
    own.places = places;
    struct operations_seen s = {.facts = &own, .running = json_array(), .queue = json_array(), .problems = problems};
    add_general_problems(f, problems);
    json_t *repositories = list_repositories(f, problems);
    operation_each(f->records, &live, see_operation, &s, NULL);
    add_problems(problems, jarr(standing, "problems"));
    json_t *o = json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:O,s:o,s:O,s:o}", "daemon", daemon_state(f), "config",
                          config_state(f), "repositories", repositories, "slots", slots_state(f, &s), "running",
                          s.running, "queue", s.queue, "volumes", json_object_get(standing, "volumes"), "jobs",
                          list_jobs(f), "natives", json_object_get(standing, "natives"), "problems", problems);
    put_metrics(f, o);
    return o;
}
