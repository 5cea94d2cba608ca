/* SPDX-License-Identifier: GPL-2.0-or-later */
/* counting.c - what is counted goes with the next commit (see records.h) */
#include "daemon/records/records-impl.h"

#include "base/cleanup.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Before it changes. */
static int counter_remember(struct records *r, struct counter *c, struct err *e)
{
    struct counters_before *s = &r->save;
    if (!s->set)
        return 0;
    if (s->n == s->cap) {
        const size_t cap = s->cap ? 2 * s->cap : 16;
        struct counter_before *more = reallocarray(s->v, cap, sizeof *more);
        if (!more)
            return err_nomem(e);
        s->v = more;
        s->cap = cap;
    }
    s->v[s->n++] = (struct counter_before){c, c->value, c->gone};
    return 0;
}

void records_counters_savepoint(struct records *r)
{
    r->save.set = true;
    r->save.n = 0;
}

void records_counters_savepoint_end(struct records *r, bool undo)
{
    struct counters_before *s = &r->save;
    for (; undo && s->n; s->n--) {
        const struct counter_before *x = &s->v[s->n - 1];
        x->counter->value = x->value;
        x->counter->gone = x->gone;
    }
    s->n = 0;
    s->set = false;
}

void records_counters_apart(struct records *r, bool apart)
{
    r->counters_apart = apart;
}

/* What others would set it back to changes with it. */
static void change_apart(struct records *r, struct counter *c, double v, bool add)
{
    struct counters_before *s = &r->save;
    for (size_t i = 0; s->set && i < s->n; i++) {
        struct counter_before *x = &s->v[i];
        if (x->counter != c)
            continue;
        x->value = add && !x->gone ? x->value + v : v;
        x->gone = false;
    }
    if (c->held)
        c->undo = add ? c->undo + v : v;
}

static void remove_apart(struct records *r, const struct counter *c)
{
    struct counters_before *s = &r->save;
    for (size_t i = 0; s->set && i < s->n; i++)
        if (s->v[i].counter == c)
            s->v[i] = (struct counter_before){s->v[i].counter, 0, true};
}

int records_counter_change(struct records *r, struct counter *c, double v, bool add, struct err *e)
{
    if (add && v == 0 && c->kept && !c->gone)
        return 0;
    int rc = r->counters_apart ? 0 : counter_remember(r, c, e);
    if (rc < 0)
        return rc;
    if (c->gone)
        c->value = 0;
    c->gone = false;
    if (r->counters_apart) {
        change_apart(r, c, v, add);
    } else if (r->counter_holds && !c->held) {
        c->held = true;
        c->undo = c->value;
        c->undo_in_doubt = c->in_doubt;
    }
    c->value = add ? c->value + v : v;
    c->in_doubt &= add;
    c->dirty = r->counters_dirty = true;
    return 0;
}

static int counter_change(struct records *r, const char *name, const json_t *labels, double v, bool add, struct err *e)
{
    struct counter *c;
    int rc = records_refuse_read_only(r, e);
    if (rc < 0)
        return rc;
    if (!isfinite(v) || !name[0] || (labels && !json_is_object(labels)))
        return err_set(e, ERR_GENERIC, EINVAL, "\"%s\" cannot be counted so", name);
    CLEANUP_FREE char *text = records_labels_text(labels);
    if (!text)
        return err_nomem(e);
    rc = records_counter_find(r, name, text, &c, e);
    return rc < 0 ? rc : records_counter_change(r, c, v, add, e);
}

int records_counter_add(struct records *r, const char *name, const json_t *labels, double delta, struct err *e)
{
    return counter_change(r, name, labels, delta, true, e);
}

int records_counter_set(struct records *r, const char *name, const json_t *labels, double value, struct err *e)
{
    return counter_change(r, name, labels, value, false, e);
}

int records_counter_forget(struct records *r, struct counter *c, struct err *e)
{
    int rc = r->counters_apart ? 0 : counter_remember(r, c, e);
    if (rc < 0)
        return rc;
    if (r->counters_apart)
        remove_apart(r, c);
    c->value = 0;
    c->gone = c->dirty = r->counters_dirty = true;
    c->held = c->in_doubt = false;
    return 0;
}

int records_counter_remove(struct records *r, const char *name, const json_t *labels, struct err *e)
{
    CLEANUP_FREE char *text = records_labels_text(labels);
    struct counter *c = text ? records_counter_known(r, name, text) : NULL;
    if (!text)
        return err_nomem(e);
    return c && !c->gone ? records_counter_forget(r, c, e) : 0;
}

void records_counters_hold(struct records *r)
{
    if (r->counter_holds++)
        return;
    r->hold++;
    r->counters_apart = false;
}

void records_counters_settle(struct records *r)
{
    if (!r->counter_holds || --r->counter_holds)
        return;
    r->counters_apart = false;
    for (size_t i = 0; i < r->counter_n; i++) {
        struct counter *c = r->counters[i];
        if (c->held)
            c->value = c->undo;
        c->held = false;
    }
}

int records_counters(struct records *r, counter_fn *fn, void *arg, struct err *e)
{
    for (size_t i = 0; i < r->counter_n; i++) {
        const struct counter *c = r->counters[i];
        if (c->gone)
            continue;
        json_t *labels = json_loads(c->labels, 0, NULL);
        if (!json_is_object(labels)) {
            json_decref(labels);
            if (!(labels = json_object()))
                return err_nomem(e);
        }
        char bucket[RECORDS_BUCKET_NAME];
        const double value = c->histogram ? records_bucket_value(c, bucket) : c->value;
        int rc = fn(c->histogram ? bucket : c->name, labels, value, arg);
        json_decref(labels);
        if (rc)
            return rc;
    }
    return 0;
}
