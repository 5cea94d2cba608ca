/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * steps-snapshot.c - the step that takes native snapshots: those of a group at one instant where the storage can, else
 * one after the other
 *
 * What was taken at one instant has the same number ("instant") in the answer; a skew lies between all others.
 *
 * Crash point: engine-snapshot-taken (after each snapshot, and after those of one instant).
 */
#include "base/crash.h"
#include "base/time.h"
#include "daemon/engine/steps-impl.h"
#include "daemon/records/opaque.h"
#include "daemon/records/step-request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One member of the request. */
struct item {
    struct step_request r;
    json_t *answer;         /* borrowed */
    const struct driver *d; /* NULL: its native snapshot is taken by itself */
    char domain[VOLUME_ID_MAX];
    bool done;
};

struct items {
    struct item *v;
    size_t n;
    struct step_request r; /* the request itself */
    const char **unfrozen;
};

static void items_free(struct items *x)
{
    for (size_t i = 0; i < x->n; i++)
        step_request_clear(&x->v[i].r);
    free(x->v);
    free(x->unfrozen);
    step_request_clear(&x->r);
}

/* A volume as it is now, and the native snapshot that is to be taken of it. */
struct subject {
    struct step_place p;
    struct volume *v;
    struct native_tag *t;
    struct native *n;
};

static void subject_close(struct subject *s)
{
    step_place_clear(&s->p);
    free(s->v);
    free(s->t);
    free(s->n);
}

static int tag_from_json(struct native_tag *t, const json_t *doc)
{
    CLEANUP(tag_desc_unrefp) const struct tag_desc *d = tag_desc_from_json(doc);
    memset(t, 0, sizeof *t);
    snprintf(t->alias, sizeof t->alias, "%s", d->alias);
    snprintf(t->volume_id, sizeof t->volume_id, "%s", d->volume_id);
    snprintf(t->volume_name, sizeof t->volume_name, "%s", d->volume_name);
    snprintf(t->backup, sizeof t->backup, "%s", d->backup);
    snprintf(t->operation, sizeof t->operation, "%s", d->operation);
    snprintf(t->repository, sizeof t->repository, "%s", d->repository);
    t->created_ns = d->created_ns;
    t->seq = d->seq;
    return t->alias[0] ? 0 : -EINVAL;
}

/* `s` is zeroed. The name may have come to mean something else since the request: the id tells. */
static int subject_open(struct subject *s, const struct items *all, const struct step_request *r, struct err *e)
{
    CLEANUP_FREE struct volume *was = calloc(1, sizeof *was);
    s->v = calloc(1, sizeof *s->v);
    s->t = calloc(1, sizeof *s->t);
    s->n = calloc(1, sizeof *s->n);
    if (!was || !s->v || !s->t || !s->n)
        return err_nomem(e);
    int rc = step_place_open(&s->p, r->klass, e);
    s->p.v.c.unfrozen = all->unfrozen;
    if (rc == 0)
        rc = volume_from_json(was, r->volume, e);
    if (rc < 0)
        return rc;
    if (tag_from_json(s->t, r->tag) < 0)
        return err_set(e, ERR_GENERIC, EINVAL, "the record of %s names no alias", was->name);
    rc = s->p.d->resolve(&s->p.v.c, was->name, s->v, e);
    if (rc < 0)
        return rc;
    if (strcmp(s->v->id, was->id))
        return err_set(e, ERR_SOURCE, 0, "%s is another volume now (%s, it was %s)", was->name, s->v->id, was->id);
    return 0;
}

static void item_failed(struct item *x, const struct err *e)
{
    json_object_set_new(x->answer, "error", step_error_doc(e));
    x->done = true;
}

static void item_taken(struct item *x, const struct subject *s, int64_t begin_ns, unsigned instant)
{
    jset_int(x->answer, "begin_ns", begin_ns);
    jset_int(x->answer, "end_ns", now_ns());
    if (instant)
        jset_int(x->answer, "instant", instant);
    json_object_set_new(x->answer, "native", native_to_json(s->n));
    json_object_set_new(x->answer, "volume", volume_to_json(s->v));
    x->done = true;
}

/* Without one the native snapshot is as good. */
static void make_bookmark(const struct item *x, const struct subject *s)
{
    struct err why = ERR_INIT;
    char text[sizeof why.msg + sizeof why.hint + 8];
    if (!x->r.bookmark || !s->p.d->bookmark)
        return;
    if (s->p.d->bookmark(&s->p.v.c, s->n, &why) == 0) {
        jset_bool(x->answer, "bookmark", true);
        return;
    }
    snprintf(text, sizeof text, "%s%s%s%s", why.msg, why.hint[0] ? " (" : "", why.hint, why.hint[0] ? ")" : "");
    jset_str(x->answer, "no_bookmark", text);
}

static void take_one(const struct items *all, struct item *x)
{
    CLEANUP(subject_close) struct subject s = {.v = NULL};
    struct err e = ERR_INIT;
    int rc = subject_open(&s, all, &x->r, &e);
    const int64_t begin_ns = now_ns();
    if (rc == 0)
        rc = s.p.d->snapshot(&s.p.v.c, s.v, s.t, s.n, &e);
    if (rc < 0)
        item_failed(x, &e);
    else
        item_taken(x, &s, begin_ns, 0);
    crash_point("engine-snapshot-taken");
    if (rc == 0)
        make_bookmark(x, &s);
}

/* ---- at one instant ---- */

/* Those of one domain. */
struct together {
    struct item **item;
    struct subject *subject;
    struct group_member *member;
    size_t n, opened;
};

static void together_close(struct together *t)
{
    for (size_t i = 0; i < t->opened; i++)
        subject_close(&t->subject[i]);
    free(t->item);
    free(t->subject);
    free(t->member);
}

/* One that is not there, or is another volume, fails alone. */
static int together_open(struct together *t, struct items *all, const struct item *first, struct err *e)
{
    t->item = calloc(all->n, sizeof *t->item);
    t->subject = calloc(all->n, sizeof *t->subject);
    t->member = calloc(all->n, sizeof *t->member);
    if (!t->item || !t->subject || !t->member)
        return err_nomem(e);
    for (size_t i = 0; i < all->n; i++) {
        struct item *x = &all->v[i];
        struct subject *s = &t->subject[t->n];
        struct err why = ERR_INIT;
        if (x->done || x->d != first->d || strcmp(x->domain, first->domain) != 0)
            continue;
        if (subject_open(s, all, &x->r, &why) < 0) {
            subject_close(s);
            memset(s, 0, sizeof *s);
            item_failed(x, &why);
            continue;
        }
        t->item[t->n] = x;
        t->member[t->n++] = (struct group_member){.c = &s->p.v.c, .v = s->v, .tag = s->t, .ret = s->n};
        t->opened = t->n;
    }
    return 0;
}

/* Its native snapshots are taken one after the other, and the skew is measured. */
static void take_apart(struct together *t)
{
    for (size_t i = 0; i < t->n; i++)
        t->item[i]->d = NULL;
}

static int take_together(struct items *all, const struct item *first, unsigned instant, struct err *e)
{
    CLEANUP(together_close) struct together t = {.n = 0};
    struct err why = ERR_INIT;
    int rc = together_open(&t, all, first, e);
    if (rc < 0)
        return rc;
    if (t.n < 2) {
        take_apart(&t);
        return 0;
    }
    const int64_t begin_ns = now_ns();
    rc = first->d->group(t.member, t.n, &why);
    if (rc == -ENOTSUP) {
        log_warning("the native snapshots of %s and %zu more are taken one after the other: %s", t.subject[0].v->name,
                    t.n - 1, why.msg);
        take_apart(&t);
        return 0;
    }
    for (size_t i = 0; i < t.n; i++) {
        if (rc < 0)
            item_failed(t.item[i], &why);
        else if (t.member[i].err.cls)
            item_failed(t.item[i], &t.member[i].err);
        else
            item_taken(t.item[i], &t.subject[i], begin_ns, instant);
    }
    crash_point("engine-snapshot-taken");
    for (size_t i = 0; i < t.n; i++)
        if (rc == 0 && !t.member[i].err.cls)
            make_bookmark(t.item[i], &t.subject[i]);
    return 0;
}

/* Whose snapshots can be taken at one instant. What the storage does not answer is left to the snapshot itself. */
static int find_domain(const struct items *all, struct item *x, struct err *e)
{
    CLEANUP(step_place_clear) struct step_place p = {.d = NULL};
    CLEANUP_FREE struct volume *v = calloc(1, sizeof *v);
    struct err why = ERR_INIT;
    if (!v)
        return err_nomem(e);
    if (step_place_open(&p, x->r.klass, NULL) < 0 || !p.d->group || volume_from_json(v, x->r.volume, NULL) < 0)
        return 0;
    p.v.c.unfrozen = all->unfrozen;
    if (p.d->group_domain(&p.v.c, v, x->domain, &why) < 0)
        log_warning("%s: the native snapshot is taken by itself: %s", v->name, why.msg);
    else if (x->domain[0])
        x->d = p.d;
    return 0;
}

static int load_items(const json_t *in, struct items *ret, json_t *answers, struct err *e)
{
    const json_t *q, *list = json_object_get(in, "items");
    size_t i;
    if (step_request_load(&ret->r, in, e) < 0 || !(ret->unfrozen = texts_of(&ret->r.unfrozen)))
        return err_nomem(e);
    ret->v = json_array_size(list) ? calloc(json_array_size(list), sizeof *ret->v) : NULL;
    if (json_array_size(list) && !ret->v)
        return err_nomem(e);
    json_array_foreach(list, i, q)
    {
        struct item *x = &ret->v[ret->n++];
        if (step_request_load(&x->r, q, e) < 0)
            return -ENOMEM;
        x->answer = json_object();
        jset_str(x->answer, "operation", x->r.operation);
        if (json_array_append_new(answers, x->answer) < 0)
            return err_nomem(e);
    }
    return 0;
}

int step_snapshot(const json_t *in, json_t **out, int *fd, struct err *e)
{
    CLEANUP(items_free) struct items all = {.n = 0};
    CLEANUP_JSON json_t *answers = json_array();
    unsigned instant = 0;
    (void)fd;
    int rc = load_items(in, &all, answers, e);
    for (size_t i = 0; rc == 0 && all.n > 1 && i < all.n; i++)
        rc = find_domain(&all, &all.v[i], e);
    for (size_t i = 0; rc == 0 && i < all.n; i++) {
        if (!all.v[i].done && all.v[i].d)
            rc = take_together(&all, &all.v[i], ++instant, e);
        if (rc == 0 && !all.v[i].done)
            take_one(&all, &all.v[i]);
    }
    if (rc < 0)
        return rc;
    *out = json_pack("{s:O}", "items", answers);
    return *out ? 0 : err_nomem(e);
}
