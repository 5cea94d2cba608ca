/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * steps.c - what the daemon's children do: calls into drivers that may block
 *
 * Each function runs in a process of its own with its arguments as a document, answers with a document, and leaves
 * nothing behind in memory. All are idempotent: after a crash the same step is run again.
 */
#include "base/crash.h"
#include "base/throttle.h"
#include "base/time.h"
#include "cfg/cfg.h"
#include "daemon/engine/engine-impl.h"
#include "daemon/engine/hooks.h"
#include "daemon/engine/steps-impl.h"
#include "daemon/records/opaque.h"
#include "daemon/records/step-request.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int driver_of(const struct class_view *v, const struct driver **ret, struct err *e)
{
    *ret = driver_by_name(v->c.driver);
    if (!*ret) {
        err_set(e, ERR_USAGE, 0, "storage class \"%s\": this build has no driver \"%s\"", v->c.name, v->c.driver);
        return err_hint(e, "`snapferry check-config` shows what each driver of this build can do");
    }
    return 0;
}

int step_place_open(struct step_place *p, const json_t *doc, struct err *e)
{
    memset(p, 0, sizeof *p);
    int rc = class_view(&p->v, doc, e);
    return rc < 0 ? rc : driver_of(&p->v, &p->d, e);
}
void step_place_clear(struct step_place *p)
{
    class_view_clear(&p->v);
}

json_t *step_error_doc(const struct err *e)
{
    json_t *o = json_object();
    jset_int(o, "class", e->cls);
    jset_int(o, "errno", e->sys);
    jset_str(o, "message", e->msg);
    jset_str(o, "hint", e->hint);
    return o;
}

/* ---- volumes ---- */

static int add_volume(const struct volume *v, void *arg)
{
    json_t *list = arg, *j = volume_to_json(v);
    return j && json_array_append_new(list, j) == 0 ? 0 : -ENOMEM;
}

/* explain asks whether the other class could clone it natively, which only the storage tells. */
static void note_same_pool(const struct step_place *own, const struct volume *v, const json_t *into_doc, json_t *volume)
{
    CLEANUP(step_place_clear) struct step_place into = {.d = NULL};
    if (step_place_open(&into, into_doc, NULL) == 0)
        jset_bool(volume, "same_pool", expose_same_pool(&own->v.c, v, &into.v.c));
}

/* Warnings about single volumes are part of the answer: who looks often tells each once. */
struct collector {
    log_fn *fn;
    void *arg;
    json_t *passed;
};
static void log_collect(enum log_level lvl, const char *line, void *arg)
{
    struct collector *c = arg;
    json_t *text = NULL;
    if (lvl == LOG_LVL_WARNING && json_array_size(c->passed) < 100 && (text = json_string(line)))
        json_array_append_new(c->passed, text);
    else if (c->fn)
        c->fn(lvl, line, c->arg);
}

/* What a class has: its volumes, those of which it cannot be told which they are, and the pools of its places. */
struct listed {
    json_t *volumes, *missing, *places;
};

static int add_missing(json_t *missing, const char *name, const char *id, const char *labels, const struct err *why)
{
    json_t *m = step_error_doc(why);
    jset_str(m, "volume", name);
    jset_str(m, "id", id);
    jset_str(m, "labels", labels);
    return m && json_array_append_new(missing, m) == 0 ? 0 : -ENOMEM;
}

static int add_listed(const struct volume *v, void *arg)
{
    struct listed *l = arg;
    if (!v->doubt && !v->id[0])
        return json_object_set_new(l->places, v->pool, json_true()) == 0 ? 0 : -ENOMEM;
    return v->doubt ? add_missing(l->missing, v->name, v->id, v->labels, v->doubt) : add_volume(v, l->volumes);
}

static int list_volumes(const struct step_place *p, struct listed *list, json_t *passed, struct err *e)
{
    struct collector c = {.passed = passed};
    log_sink(&c.fn, &c.arg);
    log_to(log_collect, &c);
    int rc = p->d->volumes(&p->v.c, add_listed, list, e);
    log_to(c.fn, c.arg);
    return rc;
}

/* Volumes of classes: all that match, or those that are named. Each class answers for itself. */
int step_volumes(const json_t *in, json_t **out, int *fd, struct err *e)
{
    CLEANUP_JSON json_t *classes = json_array();
    const json_t *q;
    size_t i;
    (void)fd;
    json_array_foreach(json_object_get(in, "classes"), i, q)
    {
        CLEANUP(step_request_clear) struct step_request r;
        if (step_request_load(&r, q, e) < 0)
            return -ENOMEM;
        CLEANUP(step_place_clear) struct step_place p = {.d = NULL};
        struct err ce = ERR_INIT;
        json_t *list = json_array(), *missing = json_array(), *answer = json_object(), *passed = json_array();
        json_t *places = json_object();
        const json_t *names = r.names, *name;
        unsigned abilities = 0;
        size_t k;
        json_object_set(answer, "class", json_object_get(q, "class"));
        json_object_set_new(answer, "volumes", list);
        json_object_set_new(answer, "missing", missing);
        json_object_set_new(answer, "passed", passed);
        json_object_set_new(answer, "places", places);
        json_array_append_new(classes, answer);
        int rc = step_place_open(&p, r.klass, &ce);
        if (rc == 0 && (rc = p.d->abilities(&p.v.c, &abilities, &ce)) == 0)
            jset_int(answer, "abilities", abilities);
        if (rc == 0 && !names)
            rc = list_volumes(&p, &(struct listed){list, missing, places}, passed, &ce);
        if (rc < 0) {
            json_object_set_new(answer, "error", step_error_doc(&ce));
            continue;
        }
        jset_bool(answer, "all", !names);
        json_array_foreach(names, k, name)
        {
            struct volume *v = calloc(1, sizeof *v);
            struct err ve = ERR_INIT;
            if (!v)
                return err_nomem(e);
            if (p.d->resolve(&p.v.c, json_string_value(name), v, &ve) == 0) {
                add_volume(v, list);
                if (r.into)
                    note_same_pool(&p, v, r.into, json_array_get(list, json_array_size(list) - 1));
            } else {
                add_missing(missing, json_string_value(name), "", "", &ve);
            }
            free(v);
        }
    }
    *out = json_pack("{s:O}", "classes", classes);
    return *out ? 0 : err_nomem(e);
}

int step_pool(const json_t *in, json_t **out, int *fd, struct err *e)
{
    CLEANUP_JSON json_t *answers = json_array();
    const json_t *q;
    size_t i;
    (void)fd;
    json_array_foreach(json_object_get(in, "items"), i, q)
    {
        CLEANUP(step_request_clear) struct step_request r;
        if (step_request_load(&r, q, e) < 0)
            return -ENOMEM;
        CLEANUP(step_place_clear) struct step_place p = {.d = NULL};
        CLEANUP_FREE struct volume *v = calloc(1, sizeof *v);
        CLEANUP(volume_desc_unrefp) const struct volume_desc *known = volume_desc_from_json(r.volume);
        struct pool_usage u = {.used_ratio = -1};
        struct err pe = ERR_INIT;
        if (!v)
            return err_nomem(e);
        usleep((useconds_t)r.pause_ms * 1000);
        const int64_t begin_ns = now_ns();
        if (step_place_open(&p, r.klass, &pe) == 0 && p.d->pool && volume_from_json(v, r.volume, &pe) == 0)
            p.d->pool(&p.v.c, v, &u, &pe);
        json_array_append_new(answers, json_pack("{s:s,s:f,s:I,s:I,s:I}", "volume_id", known->id, "used_ratio",
                                                 u.used_ratio, "size", (json_int_t)u.size, "free", (json_int_t)u.free,
                                                 "begin_ns", (json_int_t)begin_ns));
    }
    *out = json_pack("{s:O}", "items", answers);
    return *out ? 0 : err_nomem(e);
}

/* ---- native snapshots ---- */

/* Each item of a list of a request, and one answer for each: with an error where it failed. */
typedef int item_fn(const struct step_request *r, json_t *answer, struct err *e);
static int step_items(const json_t *in, json_t **out, const char *member, item_fn *one, struct err *e)
{
    CLEANUP_JSON json_t *answers = json_array();
    const json_t *q;
    size_t i;
    json_array_foreach(json_object_get(in, member), i, q)
    {
        CLEANUP(step_request_clear) struct step_request r;
        if (step_request_load(&r, q, e) < 0)
            return -ENOMEM;
        struct err own = ERR_INIT;
        json_t *a = json_object();
        json_array_append_new(answers, a);
        if (one(&r, a, &own) < 0)
            json_object_set_new(a, "error", step_error_doc(&own));
    }
    *out = json_pack("{s:O}", member, answers);
    return *out ? 0 : err_nomem(e);
}

struct find_native {
    const char *alias;
    bool found;
};
static int match_native(const struct native *n, void *arg)
{
    struct find_native *x = arg;
    x->found |= !strcmp(n->tag.alias, x->alias);
    return 0;
}

/* One that the storage did not have when it was last looked at: nothing is removed, it is only looked for again. One
 * that is only not recognized any more keeps its record: nobody else would know of its file (RS-11). */
static int look_again(const struct step_place *p, const char *alias, const struct native *n, json_t *answer,
                      struct err *e)
{
    struct find_native x = {alias, false};
    CLEANUP_FREE struct native *found = calloc(1, sizeof *found);
    struct err why = ERR_INIT;
    if (!found)
        return err_nomem(e);
    int rc = p->d->list(&p->v.c, match_native, &x, e);
    if (rc == 0 && !x.found) {
        rc = p->d->find(&p->v.c, NULL, alias, n->handle, found, &why);
        x.found = rc == 0;
        if (why.cls == ERR_NOT_FOUND) /* not remove(): the tag may be there again by now */
            rc = p->d->untagged ? p->d->untagged(&p->v.c, n, e) : 0;
        else if (rc < 0)
            *e = why;
    }
    if (rc < 0)
        return rc;
    jset_bool(answer, x.found ? "there" : "gone", true);
    return 0;
}

/* What is left of one that is gone. */
static int remove_bookmark(const struct step_place *p, const struct native *n, struct err *e)
{
    return p->d->bookmark_remove ? p->d->bookmark_remove(&p->v.c, n, e) : 0;
}

static int undo_one(const struct step_request *r, struct err *e);

static int remove_one(const struct step_request *r, json_t *answer, struct err *e)
{
    CLEANUP(step_place_clear) struct step_place p = {.d = NULL};
    CLEANUP_FREE struct native *n = calloc(1, sizeof *n);
    bool gone = false;
    if (!n)
        return err_nomem(e);
    if (r->unseen) { /* only its record is there */
        jset_bool(answer, "gone", true);
        return 0;
    }
    int rc = step_place_open(&p, r->klass, e);
    if (rc == 0)
        rc = native_from_json(n, r->native, e);
    if (rc == 0 && r->kept) { /* the intermediate that was kept with it comes first: it may be made of it */
        CLEANUP(step_request_clear) struct step_request kept;
        rc = step_request_load(&kept, r->kept, e);
        if (rc == 0)
            rc = undo_one(&kept, e);
    }
    if (rc == 0 && r->missing && p.d->list) {
        rc = look_again(&p, r->alias, n, answer, e);
    } else {
        gone = r->only_bookmark;
        if (rc == 0 && !gone)
            rc = p.d->remove(&p.v.c, n, &gone, e);
        jset_bool(answer, "gone", gone);
    }
    if (rc == 0 && r->leave_bookmark)
        jset_bool(answer, "bookmark", true);
    else if (rc == 0 && r->bookmark && !json_object_get(answer, "there"))
        rc = remove_bookmark(&p, n, e);
    return rc;
}

static int remove_item(const struct step_request *r, json_t *answer, struct err *e)
{
    jset_str(answer, "alias", r->alias);
    const int rc = remove_one(r, answer, e);
    crash_point("engine-native-removed");
    return rc;
}

int step_remove(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)fd;
    return step_items(in, out, "items", remove_item, e);
}

int step_find(const json_t *in, json_t **out, int *fd, struct err *e)
{
    CLEANUP(step_request_clear) struct step_request r;
    if (step_request_load(&r, in, e) < 0)
        return -ENOMEM;
    CLEANUP(step_place_clear) struct step_place p = {.d = NULL};
    CLEANUP_FREE struct volume *v = calloc(1, sizeof *v);
    CLEANUP_FREE struct native *n = calloc(1, sizeof *n);
    (void)fd;
    if (!v || !n)
        return err_nomem(e);
    int rc = step_place_open(&p, r.klass, e);
    if (rc == 0)
        rc = volume_from_json(v, r.volume, e);
    if (rc == 0)
        rc = p.d->find(&p.v.c, v, r.alias, r.hint, n, e);
    if (rc < 0)
        return rc;
    *out = native_to_json(n);
    return *out ? 0 : err_nomem(e);
}

/* ---- exposing ---- */

/* For a mover that may start at once. If it fails it is tried again, and reported then, by a step of its own. */
static void open_exposed(const struct step_place *own, const struct step_place *into, struct exposure *x, int *fd)
{
    const struct step_place *p = x->mechanism == EXPOSE_COPY && into ? into : own;
    const bool read_only = x->read_only;
    x->read_only = true;
    if (p->d->open(&p->v.c, x, fd, NULL) < 0)
        *fd = -1;
    x->read_only = read_only;
}

/* Another attempt is of the same time, or there is none (RS-03). */
static int find_again(const struct step_place *own, const struct volume *v, const struct native *n, struct err *e)
{
    CLEANUP_FREE struct native *found = calloc(1, sizeof *found);
    if (!found)
        return err_nomem(e);
    int rc = own->d->find ? own->d->find(&own->v.c, v, n->tag.alias, n->handle, found, e) : 0;
    if (rc < 0 && e && e->cls == ERR_NOT_FOUND) {
        err_wrap(e, "%s is not tried again: native snapshot %s is gone", v->name, n->tag.alias);
        err_hint(e, "back up the volume again: a snapshot taken now would contain later data");
    }
    return rc;
}

int step_expose(const json_t *in, json_t **out, int *fd, struct err *e)
{
    CLEANUP(step_request_clear) struct step_request r;
    if (step_request_load(&r, in, e) < 0)
        return -ENOMEM;
    CLEANUP(step_place_clear) struct step_place own, into = {.d = NULL};
    CLEANUP_FREE struct native *n = calloc(1, sizeof *n);
    CLEANUP_FREE struct volume *v = calloc(1, sizeof *v);
    CLEANUP_FREE struct exposure *x = calloc(1, sizeof *x);
    struct expose_request q = {.read_only = r.read_only};
    enum expose_mechanism m;
    if (!n || !v || !x)
        return err_nomem(e);
    memset(&into, 0, sizeof into);
    int rc = step_place_open(&own, r.own, e);
    if (rc == 0 && r.into)
        rc = step_place_open(&into, r.into, e);
    if (rc == 0)
        rc = native_from_json(n, r.native, e);
    if (rc == 0)
        rc = volume_from_json(v, r.volume, e);
    if (rc == 0 && r.again)
        rc = find_again(&own, v, n, e);
    if (rc == 0)
        rc = own.d->abilities(&own.v.c, &q.own_abilities, e);
    if (rc == 0 && into.d)
        rc = into.d->abilities(&into.v.c, &q.into_abilities, e);
    if (rc < 0)
        return rc;
    q.own = &own.v.c;
    if (into.d) {
        q.into = &into.v.c;
        q.same_pool = expose_same_pool(&own.v.c, v, &into.v.c);
    }
    rc = expose_choose(&q, &m, e);
    if (rc < 0)
        return rc;
    const double began = mono_s();
    rc = driver_expose(&own.v.c, n, into.d ? &into.v.c : NULL, m, q.read_only, r.alias, r.rate, x, e);
    if (rc < 0)
        return err_wrap(e, "%s of the native snapshot of %s into class \"%s\"", expose_mechanism_name(m), v->name,
                        into.d ? into.v.c.name : own.v.c.name);
    x->seconds = mono_s() - began;
    crash_point("engine-exposed");
    *out = exposure_to_json(x);
    if (*out && exposure_made_nothing(into.d ? into.d : own.d, x))
        jset_bool(*out, "nothing_made", true);
    /* Then a list is made before it is opened. */
    const bool listable = r.allocated && x->mechanism != EXPOSE_COPY && (q.own_abilities & DRIVER_ALLOCATED);
    if (*out && listable)
        jset_bool(*out, "allocated", true);
    if (*out && r.open && !listable)
        open_exposed(&own, into.d ? &into : NULL, x, fd);
    return *out ? 0 : err_nomem(e);
}

int step_open(const json_t *in, json_t **out, int *fd, struct err *e)
{
    CLEANUP(step_request_clear) struct step_request r;
    if (step_request_load(&r, in, e) < 0)
        return -ENOMEM;
    CLEANUP(step_place_clear) struct step_place p = {.d = NULL};
    CLEANUP_FREE struct exposure *x = calloc(1, sizeof *x);
    (void)out;
    if (!x)
        return err_nomem(e);
    int rc = exposure_from_json(x, r.exposure, e);
    /* A copy is the business of the class where it lies, all else of the snapshot's owner. */
    memset(&p, 0, sizeof p);
    if (rc == 0)
        rc = step_place_open(&p, x->mechanism == EXPOSE_COPY && r.into ? r.into : r.own, e);
    /* A mover only reads, also what a hook could write (PVC-07). */
    x->read_only = true;
    return rc < 0 ? rc : p.d->open(&p.v.c, x, fd, e);
}

/* ---- what changed ---- */

static enum full_reason reason_of(enum changed_state s)
{
    switch (s) {
    case CHANGED_LISTED:
        return FULL_NONE;
    case CHANGED_UNSUPPORTED:
        return FULL_UNSUPPORTED;
    case CHANGED_BASE_LOST:
        return FULL_PARENT_LOST;
    case CHANGED_BASE_OTHER:
        return FULL_PARENT_OTHER;
    case CHANGED_UNCERTAIN:
        return FULL_UNCERTAIN;
    case CHANGED_BUSY:
        return FULL_BUSY;
    case CHANGED_FAILED:
    case CHANGED_STATES:
        break;
    }
    return FULL_FAILED;
}

/* Everything is to be read: all but what is known to be zeros. */
static int list_allocated(const struct step_place *p, const json_t *doc, int *fd, struct changed_answer *ret,
                          struct err *e)
{
    CLEANUP_FREE struct exposure *x = calloc(1, sizeof *x);
    if (!x)
        return err_nomem(e);
    int rc = exposure_from_json(x, doc, e);
    if (rc == 0)
        rc = driver_allocated_sealed(&p->v.c, x, fd, ret, e);
    if (rc == 0 && ret->state != CHANGED_LISTED)
        log_info("class \"%s\": unallocated parts of %s are read, too: %s", p->v.c.name, x->path, ret->why);
    return rc;
}

/* `doc`: a rate, the times of the week at which it holds, and for how long; NULL: no limit. */
static void limit_reads(struct driver_class *c, struct throttle *t, const json_t *doc)
{
    json_int_t rate, seconds;
    const char *times, *why;
    struct cfg_times week;
    if (!doc || json_unpack((json_t *)doc, "{s:I,s:s,s:I}", "rate", &rate, "times", &times, "seconds", &seconds) < 0)
        return;
    if (times[0] && cfg_parse_times(&week, times, &why) == 0 &&
        !cfg_times_hold_at(&week, (time_t)(now_ns() / NS_PER_S)))
        return;
    t->rate = (uint64_t)rate;
    c->list_reads = t;
    c->list_reads_until = mono_ns() + seconds * NS_PER_S;
}

int step_changes(const json_t *in, json_t **out, int *fd, struct err *e)
{
    CLEANUP(step_place_clear) struct step_place p = {.d = NULL};
    CLEANUP_FREE struct native *base = calloc(1, sizeof *base), *n = calloc(1, sizeof *n);
    struct changed_answer answer = {.state = CHANGED_FAILED}, allocated = {.state = CHANGED_FAILED};
    json_t *own, *new, *old = NULL, *exposure = NULL, *limit = NULL;
    struct throttle reads = {.rate = 0};
    if (!base || !n)
        return err_nomem(e);
    if (json_unpack((json_t *)in, "{s:o,s?o,s:o,s?o,s?o}", "class", &own, "base", &old, "native", &new, "allocated",
                    &exposure, "reads", &limit) < 0)
        return err_set(e, ERR_GENERIC, EINVAL, "the request for a list of changes is not complete");
    int rc = step_place_open(&p, own, e);
    if (rc == 0)
        limit_reads(&p.v.c, &reads, limit);
    if (rc == 0 && old)
        rc = native_from_json(base, old, e);
    if (rc == 0)
        rc = native_from_json(n, new, e);
    if (rc == 0 && old) {
        rc = driver_changed_sealed(&p.v.c, base, n, fd, &answer, e);
        log_debug("%s: changes since native snapshot %s: %s", n->tag.operation, base->tag.alias,
                  changed_state_name(answer.state));
    }
    if (rc == 0 && exposure && answer.state != CHANGED_LISTED && answer.state != CHANGED_BUSY)
        rc = list_allocated(&p, exposure, fd, &allocated, e);
    if (rc < 0)
        return rc;
    const struct changed_answer *made = answer.state == CHANGED_LISTED ? &answer : &allocated;
    *out = json_pack("{s:b,s:s,s:s,s:I,s:I}", "listed", answer.state == CHANGED_LISTED, "doubt",
                     full_reason_name(reason_of(answer.state)), "why", answer.why, "ranges", (json_int_t)made->ranges,
                     "bytes", (json_int_t)made->bytes);
    return *out ? 0 : err_nomem(e);
}

/* ---- undoing what intents name ---- */

static enum target_use use_of(const struct step_request *r)
{
    return r->keep == TARGET_KEEP_REST    ? TARGET_PATCH
           : r->keep == TARGET_KEEP_EQUAL ? TARGET_UPDATE
           : r->overwrite                 ? TARGET_REPLACE
                                          : TARGET_NEW;
}

static bool driver_is_known(const json_t *doc)
{
    CLEANUP(class_desc_unrefp) const struct class_desc *k = class_desc_from_json(doc);
    return driver_by_name(k->driver) != NULL;
}

struct seeking {
    const char *alias;
    struct exposure *ret;
    bool found;
};

static int note_sought(const struct exposure *x, const struct native_tag *t, void *arg)
{
    struct seeking *s = arg;
    (void)t;
    if (strcmp(x->alias, s->alias) != 0)
        return 0;
    *s->ret = *x;
    s->found = true;
    return 1;
}

/* A target that cannot be made again to learn its names: what there is of it, the sweep would find. */
static int undo_unmade(const struct step_place *p, const char *alias, struct err *e)
{
    CLEANUP_FREE struct exposure *x = calloc(1, sizeof *x);
    struct seeking s = {alias, x, false};
    if (!x)
        return err_nomem(e);
    int rc = p->d->exposures(&p->v.c, note_sought, &s, e);
    return s.found ? p->d->unexpose(&p->v.c, x, e) : rc;
}

static int undo_one(const struct step_request *r, struct err *e)
{
    CLEANUP(step_place_clear) struct step_place p = {.d = NULL};
    CLEANUP(step_request_clear) struct step_request doc;
    int rc = step_request_load(&doc, r->doc, e);
    if (rc < 0)
        return rc;
    memset(&p, 0, sizeof p);
    if (r->kind == INTENT_HOOK_POST) {
        json_t *ignored = NULL;
        int fd = -1;
        rc = hook_step(r->doc, &ignored, &fd, e);
        json_decref(ignored);
        if (rc < 0)
            log_warning("the post-snapshot hook of %s, at clean-up: %s", doc.operation, e ? e->msg : "");
        return 0; /* it ran; what it says is in the log, running it for ever helps nobody */
    }
    if (r->kind == INTENT_EXPOSURE) {
        CLEANUP_FREE struct exposure *x = calloc(1, sizeof *x);
        if (!x)
            return err_nomem(e);
        if (!doc.exposure && !driver_is_known(doc.into))
            return 0; /* a driver that this build lacks has made nothing */
        rc = step_place_open(&p, doc.into, e);
        if (rc < 0)
            return rc;
        if (doc.exposure)
            rc = exposure_from_json(x, doc.exposure, e);
        else /* It may or may not have been made: the alias finds it. */
            snprintf(x->alias, sizeof x->alias, "%s", r->name);
        if (rc == 0 && p.d->unexpose)
            rc = p.d->unexpose(&p.v.c, x, e);
        crash_point("engine-unexposed");
        return rc;
    }
    if (r->kind == INTENT_TARGET) {
        CLEANUP_FREE struct restore_target *t = calloc(1, sizeof *t);
        if (!t)
            return err_nomem(e);
        rc = step_place_open(&p, doc.klass, e);
        if (rc == 0 && doc.target)
            rc = target_from_json(t, doc.target, e);
        else if (rc == 0) {
            /* Not known whether it was made: making it again (idempotent by alias) tells its names. */
            rc = p.d->target(&p.v.c, doc.name, doc.size, r->name, use_of(&doc), t, e);
            if (rc == -EEXIST || rc == -EROFS || rc == -ENOENT || (e && e->cls == ERR_TARGET))
                return 0; /* refused, or no place for it: there was nothing of ours */
            if (rc < 0 && e && e->cls == ERR_NO_SPACE && p.d->exposures && p.d->unexpose)
                return undo_unmade(&p, r->name, e);
        }
        return rc < 0 ? rc : p.d->target_abort(&p.v.c, t, e);
    }
    if (r->kind == INTENT_NATIVE) {
        CLEANUP_FREE struct native *n = calloc(1, sizeof *n);
        CLEANUP_FREE struct volume *v = calloc(1, sizeof *v);
        bool gone;
        if (!n || !v)
            return err_nomem(e);
        rc = step_place_open(&p, doc.klass, e);
        if (rc == 0)
            rc = volume_from_json(v, doc.volume, e);
        if (rc < 0)
            return rc;
        struct err fe = ERR_INIT;
        if (p.d->find(&p.v.c, v, r->name, "", n, &fe) < 0) {
            if (fe.cls == ERR_NOT_FOUND && !p.d->group) /* else what it was to be made of may be there */
                return 0;
            /* Half-made ones are not found healthy, but removed by their tag all the same. */
            snprintf(n->tag.alias, sizeof n->tag.alias, "%s", r->name);
            snprintf(n->tag.volume_id, sizeof n->tag.volume_id, "%s", v->id);
            snprintf(n->tag.volume_name, sizeof n->tag.volume_name, "%s", v->name);
        }
        rc = p.d->remove(&p.v.c, n, &gone, e);
        return rc < 0 ? rc : remove_bookmark(&p, n, e);
    }
    return 0;
}

static int undo_item(const struct step_request *r, json_t *answer, struct err *e)
{
    jset_int(answer, "id", r->id);
    return undo_one(r, e);
}

int step_undo(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)fd;
    return step_items(in, out, "intents", undo_item, e);
}

/* ---- restore targets ---- */

#define DEVICE_IDENTITY_MAX 800

#define REPORTS_NS NS_PER_S /* as often as movers do */

struct filling {
    uint64_t size;
    int64_t next_ns;
};

/* In the words of a mover's progress (docs/mover.md). */
static void fill_moved(const struct fill_progress *now, void *arg)
{
    struct filling *f = arg;
    const int64_t at = mono_ns();
    if (at < f->next_ns && now->done < f->size)
        return;
    f->next_ns = at + REPORTS_NS;
    step_report(json_pack("{s:s,s:I,s:I,s:I,s:I}", "phase", "moving", "total", (json_int_t)f->size, "done",
                          (json_int_t)now->done, "read", (json_int_t)now->read, "skipped", (json_int_t)now->skipped));
}

int step_target(const json_t *in, json_t **out, int *fd, struct err *e)
{
    CLEANUP(step_request_clear) struct step_request r;
    if (step_request_load(&r, in, e) < 0)
        return -ENOMEM;
    CLEANUP(step_place_clear) struct step_place p = {.d = NULL};
    CLEANUP_FREE struct restore_target *t = calloc(1, sizeof *t);
    (void)fd;
    if (!t)
        return err_nomem(e);
    int rc = step_place_open(&p, r.klass, e);
    if (rc < 0)
        return rc;
    if (!p.d->target)
        return err_set(e, ERR_USAGE, 0, "driver \"%s\" cannot make %s as a volume to restore into", p.v.c.driver,
                       r.name);
    rc = p.d->target(&p.v.c, r.name, r.size, r.alias, use_of(&r), t, e);
    if (rc < 0)
        return rc;
    *out = json_object();
    json_object_set_new(*out, "target", target_to_json(t));
    /* A device that an interrupted restore has begun to overwrite is opened again only if it is still the same. */
    char identity[DEVICE_IDENTITY_MAX];
    if (driver_target_identity(t->path, identity, sizeof identity))
        jset_str(json_object_get(*out, "target"), "device", identity);
    if (r.native) {
        /* The fast way: from the native snapshot, where the storage can. */
        CLEANUP(step_place_clear) struct step_place own = {.d = NULL};
        CLEANUP_FREE struct volume *v = calloc(1, sizeof *v);
        CLEANUP_FREE struct native *n = calloc(1, sizeof *n), *found = calloc(1, sizeof *found);
        struct filling f = {.size = t->size};
        const struct fill how = {.rate = r.rate, .progress = fill_moved, .arg = &f};
        if (!v || !n || !found)
            return err_nomem(e);
        rc = step_place_open(&own, r.own, e);
        if (rc == 0)
            rc = native_from_json(n, r.native, e);
        if (rc == 0)
            rc = volume_from_json(v, r.volume, e);
        if (rc == 0) /* it must still exist and be healthy (RS-22) */
            rc = own.d->find(&own.v.c, v, n->tag.alias, n->handle, found, e);
        if (rc == 0 && !p.d->target_from_native)
            rc = err_set(e, ERR_USAGE, 0, "driver \"%s\" cannot fill %s from a native snapshot", p.v.c.driver, r.name);
        if (rc == 0)
            rc = p.d->target_from_native(&p.v.c, found, t, &how, e);
        if (rc < 0)
            return rc;
        jset_bool(*out, "filled", true);
    }
    crash_point("engine-target-made");
    return 0;
}

static int target_open(const struct step_request *r, const char *path, int *fd, struct err *e)
{
    CLEANUP(step_place_clear) struct step_place p = {.d = NULL};
    CLEANUP_FREE struct restore_target *t = calloc(1, sizeof *t);
    if (!t)
        return err_nomem(e);
    int rc = step_place_open(&p, r->klass, e);
    if (rc < 0 || !p.d->target_open)
        return rc < 0 ? rc : driver_target_open(path, fd, e);
    rc = target_from_json(t, r->target, e);
    return rc < 0 ? rc : p.d->target_open(&p.v.c, t, fd, e);
}

int step_target_open(const json_t *in, json_t **out, int *fd, struct err *e)
{
    CLEANUP(step_request_clear) struct step_request r;
    if (step_request_load(&r, in, e) < 0)
        return -ENOMEM;
    const struct target_paths t = target_paths_read(r.target);
    const char *path = t.path, *was = t.device;
    char now[DEVICE_IDENTITY_MAX];
    (void)out;
    int rc = target_open(&r, path, fd, e);
    if (rc < 0 || !was[0] || (driver_target_identity(path, now, sizeof now) && strcmp(now, was) == 0))
        return rc;
    close(*fd);
    *fd = -1;
    err_plain(e, ERR_TARGET, ESTALE,
              "restore target %s cannot be recognised as the device that the restore began on (%s)", path, was);
    return err_hint(e,
                    "the device that it began on is incomplete: restore again, with --overwrite, by a name that stays "
                    "the same, such as one of /dev/disk/by-id");
}

int step_target_commit(const json_t *in, json_t **out, int *fd, struct err *e)
{
    CLEANUP(step_request_clear) struct step_request r;
    if (step_request_load(&r, in, e) < 0)
        return -ENOMEM;
    CLEANUP(step_place_clear) struct step_place p = {.d = NULL};
    CLEANUP_FREE struct restore_target *t = calloc(1, sizeof *t);
    (void)fd;
    if (!t)
        return err_nomem(e);
    int rc = step_place_open(&p, r.klass, e);
    if (rc == 0)
        rc = target_from_json(t, r.target, e);
    if (rc < 0)
        return rc;
    rc = p.d->target_commit(&p.v.c, t, e);
    if (rc < 0 && p.d->target_kept && p.d->target_kept(&p.v.c, t))
        *out = json_pack("{s:b}", "kept", 1);
    return rc;
}

/* ---- looking around ---- */

static int add_native(const struct native *n, void *arg)
{
    json_t *j = native_to_json(n);
    return j && json_array_append_new(arg, j) == 0 ? 0 : -ENOMEM;
}

/* Which native snapshots are there: alias -> true. */
static int note_found(const struct native *n, void *arg)
{
    return json_object_set_new(arg, n->tag.alias, json_true()) < 0 ? -ENOMEM : 0;
}

int step_natives(const json_t *in, json_t **out, int *fd, struct err *e)
{
    CLEANUP(step_request_clear) struct step_request r;
    if (step_request_load(&r, in, e) < 0)
        return -ENOMEM;
    CLEANUP_JSON json_t *found = json_object(), *natives = json_array();
    struct err first = ERR_INIT;
    const json_t *doc;
    size_t i;
    (void)fd;
    json_array_foreach(json_object_get(in, "classes"), i, doc)
    {
        CLEANUP(step_place_clear) struct step_place p = {.d = NULL};
        struct err ce = ERR_INIT;
        int rc = step_place_open(&p, doc, &ce);
        if (rc == 0 && p.d->list)
            rc = p.d->list(&p.v.c, note_found, found, &ce);
        if (rc < 0 && !first.cls)
            first = ce;
    }
    /* Where a class could not be listed nothing is known to be missing. */
    for (unsigned k = 0; k < r.aliases.n; k++) {
        const bool there = json_object_get(found, r.aliases.v[k]) != NULL;
        const enum seen_state state = there ? SEEN_PRESENT : first.cls ? SEEN_UNKNOWN : SEEN_MISSING;
        json_array_append_new(natives, json_pack("{s:s,s:s,s:s}", "alias", r.aliases.v[k], "state",
                                                 enum_name(&seen_state_names, (int)state), "why",
                                                 state == SEEN_UNKNOWN ? first.msg : ""));
    }
    *out = json_pack("{s:O}", "natives", natives);
    return *out ? 0 : err_nomem(e);
}

static int add_exposure(const struct exposure *x, const struct native_tag *t, void *arg)
{
    json_t *j = exposure_to_json(x);
    if (!j)
        return -ENOMEM;
    jset_str(j, "operation", t->operation);
    jset_int(j, "created_ns", t->created_ns);
    return json_array_append_new(arg, j) == 0 ? 0 : -ENOMEM;
}

int step_storage(const json_t *in, json_t **out, int *fd, struct err *e)
{
    CLEANUP_JSON json_t *classes = json_array();
    const json_t *doc;
    size_t i;
    (void)fd;
    json_array_foreach(json_object_get(in, "classes"), i, doc)
    {
        CLEANUP(step_place_clear) struct step_place p = {.d = NULL};
        struct err ce = ERR_INIT, be = ERR_INIT;
        json_t *a = json_object(), *natives = json_array(), *exposures = json_array(), *bookmarks = json_array();
        json_object_set(a, "class", (json_t *)doc);
        json_object_set_new(a, "natives", natives);
        json_object_set_new(a, "exposures", exposures);
        json_object_set_new(a, "bookmarks", bookmarks);
        json_array_append_new(classes, a);
        int rc = step_place_open(&p, doc, &ce);
        if (rc == 0 && p.d->list)
            rc = p.d->list(&p.v.c, add_native, natives, &ce);
        if (rc == 0 && p.d->exposures)
            rc = p.d->exposures(&p.v.c, add_exposure, exposures, &ce);
        if (rc == 0 && p.d->bookmarks && p.d->bookmarks(&p.v.c, add_native, bookmarks, &be) < 0)
            log_debug("class \"%s\": bookmarks cannot be listed: %s", p.v.c.name, be.msg);
        if (rc < 0)
            json_object_set_new(a, "error", step_error_doc(&ce));
    }
    *out = json_pack("{s:O}", "classes", classes);
    return *out ? 0 : err_nomem(e);
}
