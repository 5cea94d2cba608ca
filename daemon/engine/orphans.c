/* SPDX-License-Identifier: GPL-2.0-or-later */
/* orphans.c - see orphans.h */
#include "daemon/engine/orphans.h"

#include "daemon/answers/answers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REMOVE_S 600

/* Who asked for a release, until it is answered. */
struct release {
    struct release *next;
    char *alias; /* the beginning of one, "": all */
    bool dry_run;
    bool fresh;       /* the look at the storage that runs began behind it */
    unsigned running; /* steps */
    json_t *objects;  /* of the answer */
    engine_reply_fn *reply;
    void *arg;
};

/* A step that removes some. */
struct removal {
    struct removal *next;
    struct engine *engine;
    struct release *release; /* NULL: their grace is over */
    struct orphan *v;        /* copies, without requests */
    unsigned n;
};

struct orphans {
    struct orphan *v, *was;
    unsigned n, n_was;
    struct unswept {
        char *klass, *why;
    } * unswept, *unswept_was; /* classes that have not answered */
    unsigned n_unswept, n_unswept_was;
    struct release *releases;
    struct removal *removals;
};

/* ---- the list ---- */

static void orphan_clear(struct orphan *x)
{
    str_set(&x->alias, "");
    str_set(&x->klass, "");
    str_set(&x->volume, "");
    str_set(&x->handle, "");
    str_set(&x->error, "");
    str_set(&x->hint, "");
    json_take(&x->request, NULL);
}

static void list_free(struct orphan **v, unsigned *n)
{
    for (unsigned i = 0; i < *n; i++)
        orphan_clear(&(*v)[i]);
    free(*v);
    *v = NULL;
    *n = 0;
}

static struct orphan *orphan_find(struct orphan *v, unsigned n, const struct orphan *x)
{
    for (unsigned i = 0; i < n; i++)
        if (v[i].kind == x->kind && !strcmp(v[i].alias, x->alias))
            return &v[i];
    return NULL;
}

/* Appends a copy; `request` is taken over. NULL: no memory. */
static struct orphan *orphan_append(struct orphan **v, unsigned *n, const struct orphan *x, json_t *request)
{
    struct orphan *grown = realloc(*v, (*n + 1) * sizeof **v);
    if (!grown) {
        json_decref(request);
        return NULL;
    }
    *v = grown;
    struct orphan *ret = &grown[(*n)++];
    *ret = (struct orphan){.kind = x->kind,
                           .alias = str_empty,
                           .klass = str_empty,
                           .volume = str_empty,
                           .handle = str_empty,
                           .error = str_empty,
                           .hint = str_empty,
                           .created_ns = x->created_ns,
                           .made = x->made,
                           .stale = x->stale,
                           .request = request};
    str_set(&ret->alias, x->alias);
    str_set(&ret->klass, x->klass);
    str_set(&ret->volume, x->volume);
    str_set(&ret->handle, x->handle);
    str_set(&ret->error, x->error);
    str_set(&ret->hint, x->hint);
    return ret;
}

static void unswept_free(struct unswept **v, unsigned *n)
{
    for (unsigned i = 0; i < *n; i++) {
        str_set(&(*v)[i].klass, "");
        str_set(&(*v)[i].why, "");
    }
    free(*v);
    *v = NULL;
    *n = 0;
}

/* Why the class has not answered, "": it has. */
static const char *unswept_why(const struct unswept *v, unsigned n, const char *klass)
{
    for (unsigned i = 0; i < n; i++)
        if (!strcmp(v[i].klass, klass))
            return v[i].why;
    return "";
}

static void unswept_add(struct orphans *o, const char *klass, const char *why)
{
    struct unswept *grown = realloc(o->unswept, (o->n_unswept + 1) * sizeof *grown);
    if (!grown)
        return;
    o->unswept = grown;
    struct unswept *x = &grown[o->n_unswept++];
    *x = (struct unswept){str_empty, str_empty};
    str_set(&x->klass, klass);
    str_set(&x->why, why);
}

static bool is_due(const struct engine *g, const struct orphan *x)
{
    return now_ns() - x->created_ns > cfg_daemon(g->cfg)->orphan_grace_s * NS_PER_S;
}

void orphans_begin(struct engine *g)
{
    struct orphans *o = g->orphans ? g->orphans : (g->orphans = calloc(1, sizeof *o));
    if (!o)
        return;
    list_free(&o->was, &o->n_was);
    o->was = o->v;
    o->n_was = o->n;
    o->v = NULL;
    o->n = 0;
    unswept_free(&o->unswept_was, &o->n_unswept_was);
    o->unswept_was = o->unswept;
    o->n_unswept_was = o->n_unswept;
    o->unswept = NULL;
    o->n_unswept = 0;
}

void orphans_add(struct engine *g, const struct orphan *x, json_t *request)
{
    struct orphans *o = g->orphans;
    if (!o) {
        json_decref(request);
        return;
    }
    const struct orphan *was = orphan_find(o->was, o->n_was, x);
    struct orphan *ret = NULL;
    if (orphan_find(o->v, o->n, x)) /* also by another class */
        json_decref(request);
    else
        ret = orphan_append(&o->v, &o->n, x, request);
    if (ret && was) {
        str_set(&ret->error, was->error);
        str_set(&ret->hint, was->hint);
    }
}

void orphans_unswept(struct engine *g, const char *klass, const char *why)
{
    struct orphans *o = g->orphans;
    if (!o)
        return;
    if (strcmp(unswept_why(o->unswept_was, o->n_unswept_was, klass), why) != 0)
        log_warning("class \"%s\": it is not known what is left on its storage: %s", klass, why);
    unswept_add(o, klass, why);
    for (unsigned i = 0; i < o->n_was; i++)
        if (!strcmp(o->was[i].klass, klass)) {
            o->was[i].stale = true;
            orphans_add(g, &o->was[i], json_incref(o->was[i].request));
        }
}

unsigned orphans_count(const struct engine *g, enum orphan_kind k)
{
    unsigned n = 0;
    for (unsigned i = 0; g->orphans && i < g->orphans->n; i++)
        n += g->orphans->v[i].kind == k;
    return n;
}

const char *orphan_kind_name(enum orphan_kind k)
{
    static const char *const names[ORPHAN_KINDS] = {"native snapshot", "bookmark", "intermediate"};
    return names[k];
}

static struct answer_orphan as_answer(const struct engine *g, const struct orphan *x)
{
    const int64_t grace = cfg_daemon(g->cfg)->orphan_grace_s * NS_PER_S;
    return (struct answer_orphan){.kind = x->kind == ORPHAN_NATIVE ? "native" : orphan_kind_name(x->kind),
                                  .alias = x->alias,
                                  .klass = x->klass,
                                  .volume = x->volume,
                                  .handle = x->handle,
                                  .error = x->error,
                                  .hint = x->hint,
                                  .in_use = x->made,
                                  .stale = x->stale,
                                  .created_ns = x->created_ns,
                                  .due_ns = x->created_ns ? x->created_ns + grace : 0};
}

struct answer_orphan *orphans_for_answers(const struct engine *g, unsigned *n)
{
    const struct orphans *o = g->orphans;
    struct answer_orphan *v = o && o->n ? calloc(o->n, sizeof *v) : NULL;
    *n = v ? o->n : 0;
    for (unsigned i = 0; i < *n; i++)
        v[i] = as_answer(g, &o->v[i]);
    return v;
}

/* ---- who asked ---- */

static void release_end(struct engine *g, struct release *r, const struct err *why)
{
    struct release **at = &g->orphans->releases;
    while (*at && *at != r)
        at = &(*at)->next;
    if (*at)
        *at = r->next;
    CLEANUP_JSON json_t *answer = why ? NULL : json_pack("{s:O}", "objects", r->objects);
    if (r->reply)
        r->reply(answer, why, r->arg);
    json_decref(r->objects);
    free(r->alias);
    free(r);
}

static void note_object(struct engine *g, struct release *r, const struct orphan *x, const struct err *why)
{
    struct answer_orphan a = as_answer(g, x);
    a.error = why ? why->msg : "";
    a.hint = why ? why->hint : "";
    json_t *o = answer_orphan(&a);
    if (!r->dry_run)
        jset_bool(o, "released", !why);
    json_array_append_new(r->objects, o);
}

/* ---- removing ---- */

/* What became of one. `why` NULL: it is gone. */
static void note_removed(struct engine *g, struct release *r, const struct orphan *x, const struct err *why)
{
    struct orphans *o = g->orphans;
    struct orphan *now = orphan_find(o->v, o->n, x);
    const char *kind = orphan_kind_name(x->kind);
    if (!why)
        log_warning("%s %s%s%s had the tag of this node and was in no record: removed", kind, x->alias,
                    x->volume[0] ? " of " : "", x->volume);
    else if (!now || strcmp(now->error, why->msg) != 0)
        log_warning("%s %s%s%s, which is in no record, cannot be removed: %s%s%s%s", kind, x->alias,
                    x->volume[0] ? " of " : "", x->volume, why->msg, why->hint[0] ? " (" : "", why->hint,
                    why->hint[0] ? ")" : "");
    if (now && why) {
        str_set(&now->error, why->msg);
        str_set(&now->hint, why->hint);
    } else if (now) {
        orphan_clear(now);
        *now = o->v[--o->n];
    }
    if (r)
        note_object(g, r, x, why);
}

static void removal_end(struct removal *m)
{
    struct removal **at = &m->engine->orphans->removals;
    while (*at && *at != m)
        at = &(*at)->next;
    if (*at)
        *at = m->next;
    list_free(&m->v, &m->n);
    free(m);
}

static void orphans_removed(struct step_result *s, void *arg)
{
    struct removal *m = arg;
    struct engine *g = m->engine;
    struct release *r = m->release;
    CLEANUP(step_answer_clear) struct step_answer answer;
    step_answer_init(&answer);
    step_answer_load(&answer, s->out);
    const struct list_of_structs *list = answer.items.n ? &answer.items : &answer.intents;
    const struct step_item *item = list->v; /* in the order of the requests */
    for (unsigned i = 0; i < m->n; i++) {
        struct err why = s->err;
        if (!why.cls && i >= list->n)
            err_set(&why, ERR_GENERIC, EBADMSG, "the step ended without a result");
        else if (!why.cls)
            op_error_to_err(&why, &item[i].error);
        note_removed(g, r, &m->v[i], why.cls ? &why : NULL);
    }
    removal_end(m);
    if (r && --r->running == 0)
        release_end(g, r, NULL);
    engine_kick(g);
}

/* Since it was listed it may have got a record. */
static bool is_recorded(const struct engine *g, const struct orphan *x)
{
    return x->kind == ORPHAN_INTERMEDIATE ? kept_has(g->records, x->alias)
                                          : native_row_peek(g->records, x->alias) != NULL;
}

static bool is_asked_for(const struct engine *g, const struct release *r, const struct orphan *x)
{
    return !strncmp(x->alias, r->alias, strlen(r->alias)) && !is_recorded(g, x);
}

static bool is_chosen(const struct engine *g, const struct release *r, const struct orphan *x)
{
    if (x->made || x->stale || is_recorded(g, x))
        return false;
    return r ? is_asked_for(g, r, x) : is_due(g, x);
}

/* Why it is left alone for now, whoever asks. 0: it is not. */
static int left_alone(const struct engine *g, const struct orphan *x, struct err *e)
{
    if (x->made)
        return err_set(e, ERR_BUSY, EBUSY, "%s %s is being made or removed by an operation", orphan_kind_name(x->kind),
                       x->alias);
    if (x->stale)
        return err_set(e, ERR_SOURCE, EAGAIN, "%s %s is of class \"%s\", whose storage does not answer: %s",
                       orphan_kind_name(x->kind), x->alias, x->klass,
                       unswept_why(g->orphans->unswept, g->orphans->n_unswept, x->klass));
    return 0;
}

/* Those that are due, or were asked for: intermediates, or the others. */
static void remove_some(struct engine *g, struct release *r, bool intermediates)
{
    struct orphans *o = g->orphans;
    CLEANUP_JSON json_t *list = json_array();
    struct removal *m = calloc(1, sizeof *m);
    struct err e = ERR_INIT;
    if (!m)
        return;
    *m = (struct removal){.engine = g, .release = r};
    for (unsigned i = 0; i < o->n; i++)
        if ((o->v[i].kind == ORPHAN_INTERMEDIATE) == intermediates && is_chosen(g, r, &o->v[i]) &&
            orphan_append(&m->v, &m->n, &o->v[i], NULL))
            json_array_append(list, o->v[i].request);
    CLEANUP_JSON json_t *in = m->n ? json_pack("{s:O}", intermediates ? "intents" : "items", list) : NULL;
    m->next = o->removals;
    o->removals = m;
    if (in && step_start(g->steps, "remove orphans", intermediates ? step_undo : step_remove, in, REMOVE_S,
                         orphans_removed, m, NULL, &e) == 0) {
        if (r)
            r->running++;
        return;
    }
    for (unsigned i = 0; in && i < m->n; i++)
        note_removed(g, r, &m->v[i], &e);
    removal_end(m);
}

/* How many have an alias that begins so. */
static unsigned count_chosen(const struct engine *g, const struct release *r, const struct orphan **first)
{
    unsigned n = 0;
    for (unsigned i = 0; i < g->orphans->n; i++)
        if (!strncmp(g->orphans->v[i].alias, r->alias, strlen(r->alias)) && !n++)
            *first = &g->orphans->v[i];
    return n;
}

/* One alias may be that of a native snapshot and of its bookmark. */
static bool is_ambiguous(const struct engine *g, const struct release *r, const struct orphan *first)
{
    for (unsigned i = 0; r->alias[0] && i < g->orphans->n; i++)
        if (!strncmp(g->orphans->v[i].alias, r->alias, strlen(r->alias)) &&
            strcmp(g->orphans->v[i].alias, first->alias) != 0)
            return true;
    return false;
}

static int release_check(const struct engine *g, const struct release *r, struct err *e)
{
    const struct orphan *first = NULL;
    if (!count_chosen(g, r, &first)) {
        if (!r->alias[0])
            return 0;
        err_set(e, ERR_NOT_FOUND, 0, "nothing on the storage has the alias %s, our tag, and no record", r->alias);
        return err_hint(e, "`snapferry native list` shows what does");
    }
    if (is_ambiguous(g, r, first))
        return err_set(e, ERR_USAGE, 0, "alias %s is ambiguous: use more characters of it", r->alias);
    return r->alias[0] ? left_alone(g, first, e) : 0;
}

static void release_begin(struct engine *g, struct release *r)
{
    struct err e = ERR_INIT;
    if (release_check(g, r, &e) < 0) {
        release_end(g, r, &e);
        return;
    }
    r->running = 1;
    for (unsigned i = 0; i < g->orphans->n; i++) {
        const struct orphan *x = &g->orphans->v[i];
        struct err why = ERR_INIT;
        if (is_asked_for(g, r, x) && (left_alone(g, x, &why) < 0 || r->dry_run))
            note_object(g, r, x, why.cls ? &why : NULL);
    }
    for (unsigned intermediates = 0; !r->dry_run && intermediates < 2; intermediates++)
        remove_some(g, r, intermediates != 0);
    if (--r->running == 0)
        release_end(g, r, NULL);
}

void orphans_listed(struct engine *g)
{
    struct orphans *o = g->orphans;
    if (!o)
        return;
    for (struct release *r = o->releases, *next; r; r = next) {
        next = r->next;
        if (r->fresh && !r->running)
            release_begin(g, r);
    }
    if (o->removals)
        return; /* what they leave is looked at by the next sweep */
    remove_some(g, NULL, false);
    remove_some(g, NULL, true);
}

static void orphans_refuse(struct engine *g, const struct err *why, bool all)
{
    struct orphans *o = g->orphans;
    for (struct release *r = o ? o->releases : NULL, *next; r; r = next) {
        next = r->next;
        if (all || (r->fresh && !r->running))
            release_end(g, r, why);
    }
}

void orphans_not_listed(struct engine *g, const struct err *why)
{
    orphans_refuse(g, why, false);
}

bool orphans_asked(const struct engine *g)
{
    bool any = false;
    for (const struct release *r = g->orphans ? g->orphans->releases : NULL; r; r = r->next)
        any |= !r->running;
    return any;
}

void orphans_looking(struct engine *g)
{
    for (struct release *r = g->orphans ? g->orphans->releases : NULL; r; r = r->next)
        r->fresh |= !r->running;
}

void orphans_stop(struct engine *g, const struct err *why)
{
    for (struct removal *m = g->orphans ? g->orphans->removals : NULL; m; m = m->next)
        m->release = NULL;
    orphans_refuse(g, why, true);
}

void orphans_free(struct engine *g)
{
    struct orphans *o = g->orphans;
    if (!o)
        return;
    while (o->removals)
        removal_end(o->removals);
    list_free(&o->v, &o->n);
    list_free(&o->was, &o->n_was);
    unswept_free(&o->unswept, &o->n_unswept);
    unswept_free(&o->unswept_was, &o->n_unswept_was);
    free(o);
    g->orphans = NULL;
}

/* What a record has is removed by other verbs. */
static int ask_check(struct engine *g, const struct request_args *req, struct err *e)
{
    const struct native_row *n = req->native[0] ? native_row_peek(g->records, req->native) : NULL;
    if (!req->native[0] != req->all)
        return err_set(e, ERR_USAGE, 0, "name an alias, or ask for all");
    if (g->stopping)
        return err_set(e, ERR_BUSY, 0, "the daemon is stopping and takes no new work");
    if (n) {
        err_set(e, ERR_USAGE, 0, "native snapshot %s of %s is in the records: it is not released by this", n->id,
                n->volume->name);
        return err_hint(e,
                        "`snapferry describe %.40s` shows why it is kept; `native prune`, `unhold` and `delete` "
                        "remove it",
                        n->id);
    }
    if (req->native[0] && kept_has(g->records, req->native)) {
        err_set(e, ERR_USAGE, 0, "intermediate %s is kept for inspection", req->native);
        return err_hint(e, "`snapferry unhold` of its native snapshot removes it");
    }
    return 0;
}

bool orphans_ask(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg)
{
    struct err e = ERR_INIT;
    struct release *r = NULL;
    int rc = ask_check(g, req, &e);
    if (rc == 0 && (g->orphans || (g->orphans = calloc(1, sizeof *g->orphans))))
        r = calloc(1, sizeof *r);
    if (r)
        *r = (struct release){.next = g->orphans->releases,
                              .alias = strdup(req->native),
                              .dry_run = req->dry_run,
                              .objects = json_array(),
                              .reply = reply,
                              .arg = arg};
    if (r && r->alias && r->objects) {
        g->orphans->releases = r;
        return true;
    }
    if (rc == 0)
        err_nomem(&e);
    if (r) {
        json_decref(r->objects);
        free(r->alias);
        free(r);
    }
    reply(NULL, &e, arg);
    return false;
}
