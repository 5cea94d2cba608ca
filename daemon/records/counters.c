/* SPDX-License-Identifier: GPL-2.0-or-later */
/* counters.c - counters in memory, read from disk and written to it */
#include "daemon/records/records-impl.h"

#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int counter_order(const void *a, const void *b)
{
    const struct counter *x = a, *y = b;
    int d = strcmp(x->name, y->name);
    return d ? d : strcmp(x->labels, y->labels);
}

static void counter_free(struct counter *c)
{
    if (!c)
        return;
    free(c->name);
    free(c->labels);
    free(c);
}

static void keep_node(void *node)
{
    (void)node;
}

void records_counters_free(struct records *r)
{
    tdestroy(r->counter_tree, keep_node);
    tdestroy(r->histogram_tree, histogram_free);
    for (size_t i = 0; i < r->counter_n; i++)
        counter_free(r->counters[i]);
    free(r->counters);
    free(r->save.v);
    r->save = (struct counters_before){.set = false};
    r->counter_tree = r->histogram_tree = NULL;
    r->counters = NULL;
    r->counter_n = r->counter_cap = 0;
}

static int counter_new(struct records *r, const char *name, const char *labels, struct counter **ret, struct err *e)
{
    if (r->counter_n >= RECORDS_COUNTERS_MAX)
        return err_set(e, ERR_GENERIC, E2BIG, "there are %d counters already: %s is not counted", RECORDS_COUNTERS_MAX,
                       name);
    if (r->counter_n == r->counter_cap) {
        size_t cap = r->counter_cap ? 2 * r->counter_cap : 64;
        struct counter **more = reallocarray(r->counters, cap, sizeof *more);
        if (!more)
            return err_nomem(e);
        r->counters = more;
        r->counter_cap = cap;
    }
    struct counter *c = calloc(1, sizeof *c);
    if (!c || !(c->name = strdup(name)) || !(c->labels = strdup(labels)) ||
        !tsearch(c, &r->counter_tree, counter_order)) {
        counter_free(c);
        return err_nomem(e);
    }
    r->counters[r->counter_n++] = c;
    *ret = c;
    return 0;
}

struct counter *records_counter_known(const struct records *r, const char *name, const char *labels)
{
    const struct counter key = {.name = (char *)(uintptr_t)name, .labels = (char *)(uintptr_t)labels};
    void **node = tfind(&key, &r->counter_tree, counter_order);
    return node ? *node : NULL;
}

int records_counter_find(struct records *r, const char *name, const char *labels, struct counter **ret, struct err *e)
{
    *ret = records_counter_known(r, name, labels);
    return *ret ? 0 : counter_new(r, name, labels, ret, e);
}

int records_counters_load(struct records *r, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(r->writer.db, "SELECT name,labels,value FROM counters ORDER BY name,labels LIMIT ?1",
                                -1, &st, NULL);
    if (rc == SQLITE_OK)
        sqlite3_bind_int(st, 1, RECORDS_COUNTERS_MAX);
    int fail = 0;
    while (rc == SQLITE_OK && !fail && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct counter *c;
        const char *name = (const char *)sqlite3_column_text(st, 0), *labels = (const char *)sqlite3_column_text(st, 1);
        if (name && labels && (fail = counter_new(r, name, labels, &c, e)) == 0) {
            c->value = sqlite3_column_double(st, 2);
            c->kept = true;
        }
        rc = SQLITE_OK;
    }
    if (!fail && rc != SQLITE_DONE)
        fail = records_fail(&r->writer, rc, false, e, "read");
    sqlite3_finalize(st);
    return fail;
}

int records_counters_take(struct records *r, bool all, struct counted_list *ret, struct err *e)
{
    size_t n = 0;
    *ret = (struct counted_list){NULL, 0};
    for (size_t i = 0; (all || r->counters_dirty) && i < r->counter_n; i++)
        n += all || r->counters[i]->dirty;
    if (n && !(ret->v = calloc(n, sizeof *ret->v)))
        return err_nomem(e);
    for (size_t i = 0; ret->n < n; i++) {
        struct counter *c = r->counters[i];
        if (!all && !c->dirty)
            continue;
        ret->v[ret->n++] = (struct counted){c, c->value, c->undo, c->gone, c->held};
        c->in_doubt = c->held;
        c->kept = !c->gone;
        c->undo_in_doubt = c->dirty = c->held = false;
    }
    r->counters_dirty = false;
    return 0;
}

int records_counters_write(struct connection *c, const struct counted_list *l, struct err *e)
{
    sqlite3_stmt *st;
    int rc = 0;
    for (size_t i = 0; rc >= 0 && i < l->n; i++) {
        const struct counted *x = &l->v[i];
        if ((rc = records_stmt(c, x->gone ? OS_COUNTER_DELETE : OS_COUNTER_SET, &st, e)) < 0)
            break;
        sqlite3_bind_text(st, 1, x->counter->name, -1, SQLITE_STATIC);
        sqlite3_bind_text(st, 2, x->counter->labels, -1, SQLITE_STATIC);
        if (!x->gone)
            sqlite3_bind_double(st, 3, x->value);
        rc = records_step(c, st, e, "write");
    }
    return rc;
}

static void take_off(double *at, const struct counted *x)
{
    *at = *at == x->value ? x->undo : *at - (x->value - x->undo);
}

/* What the hold has counted happens again, and is counted again then. */
static void take_back(struct records *r, const struct counted *x, bool hold_is_open)
{
    struct counter *c = x->counter;
    c->dirty = r->counters_dirty = true;
    if (x->held && hold_is_open) {
        c->held = true;
        c->undo = x->undo;
    } else if (x->held) {
        if (c->in_doubt)
            take_off(&c->value, x);
        if (c->held && c->undo_in_doubt)
            take_off(&c->undo, x);
    }
}

void records_counters_ended(struct records *r, struct counted_list *l, bool written, unsigned hold)
{
    for (size_t i = 0; i < l->n; i++) {
        if (!written)
            take_back(r, &l->v[i], r->counter_holds && r->hold == hold);
        l->v[i].counter->in_doubt = l->v[i].counter->undo_in_doubt = false;
    }
    free(l->v);
    *l = (struct counted_list){NULL, 0};
}

double records_bucket_value(const struct counter *c, char name[RECORDS_BUCKET_NAME])
{
    double v = 0;
    snprintf(name, RECORDS_BUCKET_NAME, "%s_bucket", c->histogram->name);
    for (size_t i = 0; i <= c->bucket; i++)
        v += c->histogram->buckets[i]->value;
    return v;
}

char *records_labels_text(const json_t *labels)
{
    return labels ? json_dumps(labels, JSON_COMPACT | JSON_SORT_KEYS) : strdup("{}");
}

bool records_counter_get(struct records *r, const char *name, const json_t *labels, double *value)
{
    char *text = records_labels_text(labels);
    const struct counter *c = text ? records_counter_known(r, name, text) : NULL;
    free(text);
    if (!c || c->gone)
        return false;
    *value = c->value;
    return true;
}
