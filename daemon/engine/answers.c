/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * answers.c - gathers what is known for the builders of daemon/answers
 *
 * Answers come from records and memory and never wait for anything; those that look at the storage do it in a step.
 */
#include "base/time.h"
#include "daemon/answers/answers.h"
#include "daemon/engine/orphans.h"
#include "daemon/engine/facts.h"

#include <errno.h>
#include <string.h>

/* A person waits for the list of volumes; the command gives up at 15 s. */
#define LOOK_S 12
#define RECORDED_MAX 500 /* volumes of a page, from the records alone */

/* ---- facts ---- */

static bool live_facts(const struct operation *op, struct answer_live *ret, void *arg)
{
    const struct live *l = live_find(&((struct engine *)arg)->d, op->id);
    const int64_t now = boot_ns();
    if (!l)
        return false;
    ret->progress = l->progress;
    ret->progress_ns = l->progress_ns;
    ret->rate = pace_rate(&l->pace);
    ret->left_s = pace_left(&l->pace, (double)now / NS_PER_S);
    ret->doing = l->working ? work_name(l->working) : NULL;
    ret->doing_s = (double)(now - l->working_since_ns) / NS_PER_S;
    return true;
}

static json_t *mover_facts(const struct operation *op, void *arg)
{
    return movers_to_json(((struct engine *)arg)->movers, op->id);
}

/* To find it takes time that grows with the volumes of the backup, and an answer asks for many operations of one
 * backup: it is the same until a turn changes the records. */
static unsigned position_of(struct engine *g, const struct backup *b, char by[192])
{
    struct asked_position *p = &g->asked;
    if (p->turn != g->d.turn || strcmp(p->backup, b->id) != 0) {
        p->n = backup_position(&g->d, b, p->by);
        p->turn = g->d.turn;
        snprintf(p->backup, sizeof p->backup, "%s", b->id);
    }
    memcpy(by, p->by, sizeof p->by);
    return p->n;
}

/* Nothing holds it up but those before it, or what is done for its backup first. */
static void wait_for_turn(struct engine *g, const struct operation *op, char *why, size_t cap)
{
    const struct backup *b = op->parent[0] ? backup_peek(g->records, op->parent) : NULL;
    char by[192] = "";
    if (op->kind == KIND_BACKUP && b && b->state == BACKUP_QUEUED) {
        const unsigned n = position_of(g, b, by);
        if (by[0])
            snprintf(why, cap, "its backup waits for %s, which has the same volumes", by);
        else
            snprintf(why, cap, "its backup is number %u in the queue", n);
    } else if (op->kind == KIND_BACKUP && is_none(op->native_doc)) {
        snprintf(why, cap, "its native snapshot is taken next");
    } else if (op->kind == KIND_ADMIN || op->kind == KIND_VERIFY || op->kind == KIND_MAINTAIN ||
               op->kind == KIND_COPY) {
        const char *down = op->policy->mover[0] ? NULL : repository_down(&g->d, op->policy->repository);
        snprintf(why, cap, "%s",
                 down          ? down
                 : op->aliases ? "another check of the repository is running"
                               : "next in line");
    } else {
        snprintf(why, cap, "next in line");
    }
}

static void wait_facts(const struct operation *op, char *why, size_t cap, void *arg)
{
    char asked[1300];
    if (records_degraded(((struct engine *)arg)->records)) {
        snprintf(why, cap, "the records cannot be written, see `snapferry status`");
        return;
    }
    operation_waits_for(&((struct engine *)arg)->d, op, why, cap);
    if (!why[0] && natives_asked(&((struct engine *)arg)->d, op, asked, sizeof asked))
        snprintf(why, cap, "%s", asked);
    if (!why[0] && op->state == OP_QUEUED)
        wait_for_turn(arg, op, why, cap);
}

static unsigned position_facts(const struct backup *b, char by[192], void *arg)
{
    return position_of(arg, b, by);
}

static bool ended_facts(const struct backup *b, struct board_ended *ret, void *arg)
{
    return backup_ended_operations(&((struct engine *)arg)->d, b, ret);
}

static bool new_facts(const char *klass, void *arg)
{
    return volumes_listed_before(arg, klass);
}

static const struct answer_source source = {live_facts,     mover_facts, wait_facts,
                                            position_facts, new_facts,   ended_facts};

static void add_look(const char *severity, const char *text, const char *hint, void *arg)
{
    json_array_append_new(arg, json_pack("{s:s,s:s,s:s}", "severity", severity, "text", text, "hint", hint));
}

static void repository_facts(const struct engine *g, const struct repo_health *first, struct answer_facts *f)
{
    unsigned n = 0;
    for (const struct repo_health *h = first; h; h = h->next)
        n += h->known;
    f->repositories = calloc(n + 1, sizeof *f->repositories);
    for (const struct repo_health *h = first; f->repositories && h; h = h->next)
        if (h->known)
            f->repositories[f->n_repositories++] = (struct answer_repository){.name = h->name,
                                                                              .why = h->why,
                                                                              .hint = h->hint,
                                                                              .up = h->up,
                                                                              .full = repository_full(h),
                                                                              .exposed = h->exposed,
                                                                              .read_only = h->read_only,
                                                                              .unscanned = own_scan_is_due(g, h->name),
                                                                              .since_ns = h->since_ns,
                                                                              .seen_ns = h->seen_ns,
                                                                              .free_bytes = h->free_bytes,
                                                                              .size_bytes = h->size_bytes};
}

/* What waits because it cannot be recorded. */
static void add_asides(const struct decide *d, json_t *problems)
{
    char text[1400];
    for (const struct aside *a = d->asides; a; a = a->next) {
        snprintf(text, sizeof text, "%s waits, its state cannot be recorded: %s", a->id, a->err.msg);
        json_array_append_new(problems, json_pack("{s:s,s:s,s:s}", "severity", "error", "text", text, "hint",
                                                  "it is retried automatically; other operations continue"));
    }
}

enum facts_wanted { FACTS_OF_ROWS, FACTS_OF_JOBS, FACTS_OF_DAEMON, FACTS_ALL };
/* Of rows: records, configuration, what is live; of jobs: their views as well, and repositories; of the daemon: its
 * state. */
static void gather_facts(struct engine *g, enum facts_wanted wanted, struct answer_facts *f)
{
    clock_look(g);
    *f = (struct answer_facts){.records = g->records,
                               .cfg = g->cfg,
                               .now_ns = now_ns(),
                               .source = &source,
                               .arg = g,
                               .overview = g->overview,
                               .config = {g->reload_ok, g->reload_error, g->reload_ns, g->warnings}};
    f->pools = g->pools;
    if (wanted == FACTS_OF_JOBS || wanted == FACTS_ALL)
        f->jobs = jobs_now(g);
    if (wanted >= FACTS_OF_JOBS)
        f->orphans = orphans_for_answers(g, &f->n_orphans);
    if (wanted != FACTS_OF_ROWS)
        repository_facts(g, g->d.repos, f);
    if (wanted < FACTS_OF_DAEMON)
        return;
    f->failing = schedule_failing(g->schedule, &f->failing_job, &f->failing_why);
    f->own = (struct answer_daemon){.version = SNAPFERRY_VERSION,
                                    .state_dir = g->paths.state_dir,
                                    .news = g->news.text,
                                    .pid = (int)getpid(),
                                    .started_ns = g->started_ns,
                                    .degraded = records_degraded(g->records),
                                    .detached = records_detached(g->records),
                                    .recovered = g->news.recovered,
                                    .looked = volumes_looked(g),
                                    .stuck = steps_stuck(g->steps)};
    f->daemon = &f->own;
    if (wanted < FACTS_ALL)
        return;
    f->own.steps = steps_to_json(g->steps);
    f->own.looks = json_array();
    volumes_problems(g, add_look, f->own.looks);
    add_asides(&g->d, f->own.looks);
    f->own.metrics_problems = json_array();
    f->own.metrics = g->observer ? g->observer->status(f->own.metrics_problems, g->observer->arg) : NULL;
}

void engine_facts(struct engine *g, struct answer_facts *f)
{
    gather_facts(g, FACTS_OF_JOBS, f);
}

/* ---- rows and status ---- */

json_t *engine_operation_json(struct engine *g, const struct operation *op)
{
    CLEANUP(answer_facts_clear) struct answer_facts f;
    gather_facts(g, FACTS_OF_ROWS, &f);
    return answer_operation(&f, op);
}

json_t *engine_backup_json(struct engine *g, const struct backup *b, bool with_operations)
{
    CLEANUP(answer_facts_clear) struct answer_facts f;
    gather_facts(g, FACTS_OF_ROWS, &f);
    if (with_operations && (!backup_state_terminal(b->state) || b->volume_ids.n > ANSWER_OPERATIONS_MAX))
        return answer_backup_progress(&f, b);
    return answer_backup(&f, b, with_operations);
}

json_t *engine_status(struct engine *g)
{
    CLEANUP(answer_facts_clear) struct answer_facts f;
    kept_now(g);
    gather_facts(g, FACTS_ALL, &f);
    return answer_status(&f);
}

void engine_headline(struct engine *g, char *out, size_t cap)
{
    CLEANUP(answer_facts_clear) struct answer_facts f;
    gather_facts(g, FACTS_OF_DAEMON, &f);
    answer_headline(&f, out, cap);
}

/* ---- volumes: what the classes match now ---- */

struct look {
    struct engine *engine;
    engine_reply_fn *reply;
    void *arg;
    char what[VOLUME_NAME_MAX]; /* a class or ""; a volume */
    bool all;                   /* of a volume: all classes were asked for all they have */
};

static void volumes_done(struct step_result *s, void *arg)
{
    struct look *l = arg;
    const json_t *classes = json_object_get(s->out, "classes");
    if (s->err.cls)
        log_warning("the storage could not be asked for volumes: %s", s->err.msg);
    volumes_listed(l->engine, classes);
    CLEANUP(answer_facts_clear) struct answer_facts f;
    gather_facts(l->engine, FACTS_OF_JOBS, &f);
    CLEANUP_JSON json_t *answer =
        s->canceled ? NULL : answer_volumes(&f, l->what, classes, s->err.cls ? s->err.msg : NULL);
    struct err e = s->err;
    if (!answer && !s->canceled)
        err_nomem(&e);
    l->reply(answer, answer ? NULL : &e, l->arg);
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
            cfg_policy(g->cfg, recorded_subject(g, name), NULL, &p, NULL);
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

/* Takes `l` over; NULL: no memory. */
static void look_or_fail(struct engine *g, struct look *l, const struct cfg_class *only, const char *name,
                         step_done_fn *done, struct err *e, engine_reply_fn *reply, void *arg)
{
    if (!l)
        err_nomem(e);
    if (!e->cls && start_look(g, l, only, name, LOOK_S, done, e) == 0)
        return;
    free(l);
    reply(NULL, e, arg);
}

/* Of what step_volumes() says of a class; NULL: it has none. */
static const json_t *first_volume(const json_t *looked)
{
    return json_array_get(class_seen_of(looked).volumes, 0);
}

static struct look *new_look(struct engine *g, const char *what, engine_reply_fn *reply, void *arg)
{
    struct look *l = calloc(1, sizeof *l);
    if (l) {
        *l = (struct look){.engine = g, .reply = reply, .arg = arg};
        snprintf(l->what, sizeof l->what, "%s", what);
    }
    return l;
}

void engine_volumes(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    const char *klass = req->klass;
    CLEANUP(answer_facts_clear) struct answer_facts f;
    struct err e = ERR_INIT;
    gather_facts(g, FACTS_OF_JOBS, &f);
    answer_class_known(&f, klass, &e);
    if (!e.cls && req->recorded) {
        const int64_t limit = req->limit;
        kept_now(g);
        CLEANUP_JSON json_t *answer = answer_volumes_recorded(
            &f, klass, req->after, limit > 0 && limit < RECORDED_MAX ? (size_t)limit : RECORDED_MAX);
        if (!answer)
            err_nomem(&e);
        reply(answer, answer ? NULL : &e, arg);
        return;
    }
    look_or_fail(g, new_look(g, klass, reply, arg), klass[0] ? cfg_class(f.cfg, klass) : NULL, NULL, volumes_done, &e,
                 reply, arg);
}

/* ---- one volume ---- */

static bool is_listed(const json_t *classes)
{
    const json_t *a;
    size_t i;
    json_array_foreach(classes, i, a) if (first_volume(a)) return true;
    return false;
}

static void volume_done(struct step_result *s, void *arg)
{
    struct look *l = arg;
    const json_t *classes = json_object_get(s->out, "classes");
    struct err e = s->err;
    if (s->err.cls)
        log_warning("the storage could not be asked for volume %s: %s", l->what, s->err.msg);
    volumes_listed(l->engine, classes);
    if (!l->all && !s->err.cls && !is_listed(classes)) { /* it is gone, or what was asked for is no name */
        l->all = true;
        look_or_fail(l->engine, l, NULL, NULL, volume_done, &e, l->reply, l->arg);
        return;
    }
    CLEANUP(answer_facts_clear) struct answer_facts f;
    gather_facts(l->engine, FACTS_OF_JOBS, &f);
    CLEANUP_JSON json_t *answer =
        s->canceled ? NULL : answer_volume(&f, l->what, classes, s->err.cls ? s->err.msg : NULL);
    if (!answer && !s->canceled)
        err_nomem(&e);
    l->reply(answer, answer ? NULL : &e, l->arg);
    free(l);
}

/* The storage is asked for it alone, if it is known by name. */
void engine_volume(struct engine *g, const char *what, engine_reply_fn *reply, void *arg)
{
    CLEANUP(volume_row_clear) struct volume_row row = ROW_INIT;
    struct look *l = new_look(g, what, reply, arg);
    struct err e = ERR_INIT;
    const bool known = volume_find(&g->d, what, &row) == 0;
    const struct cfg_subject subject = known ? volume_subject(row.volume) : (struct cfg_subject){.name = what};
    const char *name = subject.name;
    const struct cfg_class *k = name[0] ? cfg_class_of(g->cfg, subject) : NULL;
    if (l)
        l->all = !k;
    look_or_fail(g, l, k, k ? name : NULL, volume_done, &e, reply, arg);
}

/* ---- explain ---- */

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
        q.same_pool = volume_seen_of(volume).same_pool;
    }
    if (expose_choose(&q, &m, &e) == 0)
        ret = expose_mechanism_name(m);
    else
        snprintf(why, cap, "%s", e.msg);
    class_view_clear(&a);
    class_view_clear(&b);
    return ret;
}

/* What step_volumes() says of a class; NULL: nothing. */
static const json_t *class_looked(const json_t *classes, const char *name)
{
    const json_t *a;
    size_t i;
    json_array_foreach(classes, i, a) if (!strcmp(class_seen_of(a).name, name)) return a;
    return NULL;
}

/* As its storage describes it now: by the class that it belongs to then. */
static struct cfg_subject subject_looked(struct engine *g, const json_t *classes, const char *name)
{
    const json_t *a;
    size_t i;
    json_array_foreach(classes, i, a)
    {
        const struct class_seen seen = class_seen_of(a);
        const json_t *v = json_array_get(seen.volumes, 0);
        const struct cfg_subject s = {name, volume_seen_of(v).labels};
        const struct cfg_class *k = v ? cfg_class_of(g->cfg, s) : NULL;
        if (k && !strcmp(k->name, seen.name))
            return s;
    }
    return recorded_subject(g, name);
}

/* What kept this one from being listed. */
static struct unseen unseen_named(const json_t *missing, const char *name)
{
    const json_t *m;
    size_t i;
    json_array_foreach(missing, i, m) if (!strcmp(unseen_of(m).volume, name)) return unseen_of(m);
    return unseen_of(NULL);
}

static void explain_done(struct step_result *s, void *arg)
{
    struct look *l = arg;
    CLEANUP(answer_facts_clear) struct answer_facts f;
    CLEANUP_JSON json_t *answer = NULL;
    struct cfg_policy p = {.effective = NULL};
    struct err e = s->timed_out ? (struct err)ERR_INIT : s->err;
    char why[700] = "";
    gather_facts(l->engine, FACTS_OF_JOBS, &f);
    const json_t *classes = json_object_get(s->out, "classes");
    const struct cfg_subject subject = subject_looked(l->engine, classes, l->what);
    const struct cfg_class *k = cfg_class_of(f.cfg, subject);
    const struct class_seen own = class_seen_of(k ? class_looked(classes, k->name) : NULL);
    const struct unseen unseen = unseen_named(own.missing, subject.name);
    struct answer_look look = {.asked = !s->timed_out,
                               .silent = s->timed_out ? s->err.msg : "",
                               .volume = json_array_get(own.volumes, 0),
                               .missing = own.failed ? class_message(own.name, own.error.message) : unseen.message,
                               .doubt = unseen.twice,
                               .mechanism = "",
                               .obstacle = why};
    /* Of a class that cannot be used the abilities are not known. */
    if (!e.cls && cfg_policy(f.cfg, subject, NULL, &p, &e) == 0 && k && look.asked && !own.failed)
        look.mechanism =
            mechanism_of(l->engine, k, &p, look.volume, own.abilities,
                         class_seen_of(class_looked(classes, p.backup_storage_class)).abilities, why, sizeof why);
    cfg_policy_clear(&p);
    if (!e.cls)
        answer_explain(&f, l->what, &look, &answer, &e);
    l->reply(answer, answer ? NULL : &e, l->arg);
    free(l);
}

void engine_explain(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    const char *volume = req->volume;
    struct err e = ERR_INIT;
    if (!volume[0])
        err_set(&e, ERR_USAGE, 0, "explain needs a volume");
    look_or_fail(g, new_look(g, volume, reply, arg), NULL, volume, explain_done, &e, reply, arg);
}
