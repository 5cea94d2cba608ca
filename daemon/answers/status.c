/* SPDX-License-Identifier: GPL-2.0-or-later */
/* status.c - the state of everything */
#include "daemon/answers/answers-impl.h"

#include "daemon/answers/counted.h"

#include <stdio.h>
#include <stdlib.h>

#define LISTED_MAX 50 /* running and queued operations */

/* ---- operations ---- */

/* Its repository is not available, or not looked at yet. */
static bool waits_for_repository(const struct answer_facts *f, const struct operation *op)
{
    const struct answer_repository *r = find_repository(f, op->policy->repository);
    return f->source && is_move(op) && !(r && r->up);
}

static const char *name_of(const struct operation *op)
{
    return op->volume->name[0] ? op->volume->name : op->id;
}

/* Without the repository's name before it, which the sentence has. */
static const char *why_not_recorded(const struct operation *op)
{
    const char *why = op->state == OP_RETRYING ? op->error.message : op->waiting;
    char name[200];
    const int n = snprintf(name, sizeof name, "repository \"%s\": ", op->policy->repository);
    return n > 0 && !strncmp(why, name, (size_t)n) ? why + n : why;
}

static void add_trouble(const struct operation *op, json_t *problems)
{
    if (op->records.n) {
        add_problem(problems, "warning",
                    "it is tried again; until then a node that was lost could not tell how they ended",
                    "the outcome of %u backup%s is not recorded in repository \"%s\": %s", op->records.n,
                    op->records.n == 1 ? "" : "s", op->policy->repository, why_not_recorded(op));
        return;
    }
    if (op->kind == KIND_DELETE) {
        char hint[700];
        snprintf(hint, sizeof hint,
                 "%.400s%sit is tried again each minute; `snapferry delete --force %.200s` does without "
                 "what cannot be reached",
                 op->error.hint, op->error.hint[0] ? "; " : "", op->deletes);
        add_problem(problems, "warning", hint, "backup %s cannot be deleted: %s", op->deletes, op->error.message);
        return;
    }
    if (op->cleanup_error[0])
        add_problem(problems, "warning", "it is tried again; what is left is removed as soon as the storage allows",
                    "%s: objects created for its backup cannot be removed: %s", name_of(op), op->cleanup_error);
    if (op->state == OP_RETRYING) {
        char hint[700];
        snprintf(hint, sizeof hint, "`snapferry logs %.300s` has what led to it; `snapferry cancel %.300s` gives it up",
                 op->id, op->id);
        add_problem(problems, "warning", op->error.hint[0] ? op->error.hint : hint, "%s is tried again%s%s",
                    name_of(op), op->error.message[0] ? ": " : "", op->error.message);
    }
}

static void add_wait(const struct answer_facts *f, const struct operation *op, json_t *problems)
{
    char why[1300] = "";
    if (waits_for_repository(f, op))
        f->source->waits(op, why, sizeof why, f->arg);
    if (why[0]) {
        char hint[700];
        snprintf(hint, sizeof hint, "it begins when that can be used; `snapferry cancel %.500s` cancels it", op->id);
        add_problem(problems, "warning", hint, "%s waits: %s", name_of(op), why);
    }
}

typedef const char *at_fn(const struct overview *s, size_t place);

/* Those at the beginning of a list. */
static json_t *list_operations(const struct answer_facts *f, at_fn *at)
{
    json_t *list = json_array();
    const char *id;
    for (size_t i = 0; i < LISTED_MAX && (id = at(f->overview, i)); i++) {
        const struct operation *op = operation_peek(f->records, id);
        if (op)
            json_array_append_new(list, operation_line(f, op));
    }
    return list;
}

static void add_operation_problems(const struct answer_facts *f, json_t *problems)
{
    const struct operation *op;
    const char *id;
    for (size_t i = 0; json_array_size(problems) < PROBLEMS_MAX && (id = overview_troubled_at(f->overview, i)); i++)
        if ((op = operation_peek(f->records, id)))
            add_trouble(op, problems);
    for (size_t i = 0; i < LISTED_MAX && json_array_size(problems) < PROBLEMS_MAX; i++)
        if ((id = overview_queued_at(f->overview, i)) && (op = operation_peek(f->records, id)))
            add_wait(f, op, problems);
}

/* ---- volumes ---- */

/* What may be wrong with the storage of a class that has disappeared as a whole. */
static const char *storage_question(const char *driver)
{
    static const struct {
        const char *driver, *question;
    } all[] = {{"reflink", "is its file system mounted"},  {"lvm", "is its volume group active"},
               {"lvm-thin", "is its volume group active"}, {"zfs", "is its pool imported"},
               {"nbd", "is its server running"},           {"qemu", "is its machine running"},
               {"rbd", "can its cluster be reached"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].driver, driver))
            return all[i].question;
    return "is its storage connected";
}

/* One volume that is removed is no problem. A class without any of its volumes rather is a file system that is not
 * mounted. */
static void add_empty_classes(const struct answer_facts *f, json_t *problems)
{
    const struct cfg_class *k;
    unsigned there, gone;
    for (unsigned i = 0; f->cfg && (k = cfg_class_at(f->cfg, i)); i++) {
        char hint[200];
        overview_class(f->overview, i, &there, &gone);
        snprintf(hint, sizeof hint, "%s? If they were removed: `snapferry forget VOLUME` for each",
                 storage_question(k->driver));
        if (gone && !there && cfg_class_here(f->cfg, k))
            add_problem(problems, "warning", hint, "storage class \"%s\": none of its %u volume%s is there any more",
                        k->name, gone, gone == 1 ? "" : "s");
    }
}

static const struct volume_line *line_of(const struct answer_facts *f, struct volume_lines *x, const char *id)
{
    const struct volume_row *v = volume_row_peek(f->records, id);
    return v ? volume_lines_add(x, v, v->volume, v->klass) : NULL;
}

/* What was not in a list of changes had changed: nobody knows why, and all is read until somebody looks after it. */
static void add_distrusted(const struct answer_facts *f, json_t *problems)
{
    const char *id;
    for (size_t i = 0; json_array_size(problems) < PROBLEMS_MAX && (id = overview_distrusted_at(f->overview, i)); i++) {
        const struct volume_row *v = volume_row_peek(f->records, id);
        if (v)
            add_problem(problems, "error",
                        "find out what writes to native snapshots; `snapferry backup --full VOLUME` reads all and uses "
                        "the lists again",
                        "the list of changes of %s was wrong (verify-sample): all of it is read in each backup",
                        v->volume->name);
    }
}

/* Its backups run, and the last one failed: it is protected for a while yet. Or none runs any more. */
static void add_last_failures(const struct answer_facts *f, json_t *problems)
{
    struct volume_lines x;
    const char *id;
    volume_lines_init(&x, f);
    for (size_t i = 0; json_array_size(problems) < PROBLEMS_MAX && (id = overview_failing_at(f->overview, i)); i++) {
        const struct volume_line *l = line_of(f, &x, id);
        char hint[1400];
        if (l && l->half) {
            snprintf(hint, sizeof hint,
                     "restore it again; if its contents are right, `snapferry delete %.1200s` clears this problem",
                     l->half);
            add_problem(problems, "error", hint,
                        "%s is incomplete: %s did not write all of it; so are the backups of it made since", l->name,
                        l->half);
        }
        snprintf(hint, sizeof hint,
                 l && l->unscheduled ? "add it to a [job], or exclude it; a backup by hand counts as well: `snapferry "
                                       "backup %.1200s`"
                                     : "`snapferry backup %.1300s --wait` tries it again, and shows what happens",
                 l ? l->name : "");
        if (l && l->unscheduled)
            add_problem(problems, "warning", hint,
                        "no job backs up %s any more: its last good backup is of the time when one did", l->name);
        else if (l && l->state == VOLUME_PROTECTED && l->failed)
            add_problem(problems, "error", l->hint[0] ? l->hint : hint, "the last backup of %s failed%s%s", l->name,
                        l->failure[0] ? ": " : "", l->failure);
    }
    volume_lines_clear(&x);
}

/* A job that would back up nothing. */
static void add_idle_jobs(const struct answer_facts *f, json_t *problems)
{
    if (!f->daemon || !f->daemon->looked || overview_is_behind(f->overview))
        return;
    for (unsigned i = 0; i < f->jobs.n && json_array_size(problems) < PROBLEMS_MAX; i++) {
        const struct job_view *j = &f->jobs.v[i];
        if (!j->paused && !j->elsewhere && !j->failed && !overview_job_is_busy(f->overview, i))
            add_problem(problems, "error", "`snapferry volumes` lists what there is; see volumes in its section",
                        "job \"%s\" backs up nothing: no volume that is there is named by it", j->name);
    }
}

static void add_unprotected(const struct volume_lines *x, json_t *problems)
{
    for (size_t i = 0; i < x->n && json_array_size(problems) < PROBLEMS_MAX; i++) {
        const struct volume_line *l = &x->line[i];
        char hint[1400];
        if (l->state != VOLUME_UNPROTECTED)
            continue;
        snprintf(hint, sizeof hint, "`snapferry explain %.1300s` shows what backs it up, and when", l->name);
        add_problem(problems, "warning", l->hint[0] ? l->hint : hint, "%s is not protected: %s", l->name, l->why);
    }
}

/* The most important ones, and what is wrong with all of them. */
static json_t *list_volumes(const struct answer_facts *f, json_t *problems)
{
    struct volume_lines x;
    const char *id;
    volume_lines_init(&x, f);
    for (size_t i = 0; i < ANSWER_VOLUMES_MAX && (id = overview_volume_at(f->overview, i)); i++)
        line_of(f, &x, id);
    add_native_problems(f, problems);
    add_pool_problems(f, problems);
    add_empty_classes(f, problems);
    add_look_problems(f, problems);
    volume_lines_sort(&x);
    add_unprotected(&x, problems);
    add_last_failures(f, problems);
    add_distrusted(f, problems);
    add_idle_jobs(f, problems);
    json_t *list = volume_lines_list(&x);
    volume_lines_clear(&x);
    return list;
}

static json_t *count_volumes(const struct overview *s)
{
    json_t *o = json_object();
    for (enum volume_state i = 0; i < VOLUME_STATES; i++)
        jset_int(o, volume_states[i], overview_volumes(s, i));
    return o;
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
    CLEANUP_JSON json_t *no_labels = json_object();
    int64_t rebuilt_ns;
    if (counted(f->records, RECORDS_REBUILT, no_labels, 1e9, &rebuilt_ns)) {
        jset_int(o, "rebuilt_ns", rebuilt_ns);
        jset_bool(o, "holds_unknown", records_holds_unknown(f->records));
    }
    return o;
}

static json_t *config_state(const struct answer_facts *f)
{
    json_t *o = json_pack("{s:b,s:s,s:I,s:i}", "ok", (int)f->config.ok, "hash", f->cfg ? cfg_hash(f->cfg) : "",
                          "loaded_ns", (json_int_t)f->config.loaded_ns, "warnings", (int)f->config.warnings);
    put_text(o, "error", f->config.error);
    return o;
}

static json_t *slots_state(const struct answer_facts *f)
{
    const struct overview_counts n = overview_counts(f->overview);
    const struct cfg_daemon *c = f->cfg ? cfg_daemon(f->cfg) : NULL;
    unsigned running = n.retrying;
    for (unsigned k = 0; k < KINDS; k++)
        running += n.running[k];
    return json_pack("{s:i,s:i,s:i,s:i,s:i}", "total", c ? c->slots : 0, "used", (int)n.used, "restore_reserved",
                     c ? c->restore_reserved : 0, "queued", (int)n.queued, "running", (int)running);
}

/* The problems of the metrics are those of the daemon. */
static void put_metrics(const struct answer_facts *f, json_t *status, json_t *problems)
{
    if (!f->daemon || !f->daemon->metrics)
        return;
    json_array_extend(problems, f->daemon->metrics_problems);
    json_object_set(status, "metrics", f->daemon->metrics);
}

json_t *answer_status(const struct answer_facts *facts)
{
    struct answer_facts own = *facts;
    const struct answer_facts *f = &own;
    CLEANUP(overview_freep) struct overview *made = overview_of_facts(&own);
    (void)made;
    if (!own.overview)
        return NULL;
    if (made)
        overview_work(made, SIZE_MAX, f->now_ns);
    json_t *problems = json_array();
    add_general_problems(f, problems);
    json_t *repositories = list_repositories(f, problems);
    json_t *copies = list_copies(f, problems);
    add_operation_problems(f, problems);
    json_t *volumes = list_volumes(f, problems);
    json_t *o = json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "daemon", daemon_state(f), "config",
                          config_state(f), "repositories", repositories, "slots", slots_state(f), "running",
                          list_operations(f, overview_running_at), "queue", list_operations(f, overview_queued_at),
                          "volumes", volumes, "volume_counts", count_volumes(f->overview), "jobs", list_jobs(f),
                          "natives", natives_summary(f), "problems", problems);
    if (json_array_size(copies))
        json_object_set(o, "copies", copies);
    json_decref(copies);
    put_metrics(f, o, problems);
    return o;
}
