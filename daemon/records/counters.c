/* SPDX-License-Identifier: GPL-2.0-or-later */
/* counters.c - counters in memory, read from disk and written to it */
#include "daemon/records/records-impl.h"

#include "base/time.h"

#include <errno.h>
#include <search.h>
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
    for (size_t i = 0; i < r->counter_n; i++)
        counter_free(r->counters[i]);
    free(r->counters);
    r->counter_tree = NULL;
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

int records_counter_find(struct records *r, const char *name, const char *labels, struct counter **ret, struct err *e)
{
    const struct counter key = {.name = (char *)(uintptr_t)name, .labels = (char *)(uintptr_t)labels};
    void **node = tfind(&key, &r->counter_tree, counter_order);
    if (node) {
        *ret = *node;
        return 0;
    }
    return counter_new(r, name, labels, ret, e);
}

int records_counters_load(struct records *r, struct err *e)
{
    sqlite3_stmt *st = NULL;
    r->counters_written = mono_ns();
    int rc = sqlite3_prepare_v2(r->db, "SELECT name,labels,value FROM counters ORDER BY name,labels LIMIT ?1", -1, &st,
                                NULL);
    if (rc == SQLITE_OK)
        sqlite3_bind_int(st, 1, RECORDS_COUNTERS_MAX);
    int fail = 0;
    while (rc == SQLITE_OK && !fail && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct counter *c;
        const char *name = (const char *)sqlite3_column_text(st, 0), *labels = (const char *)sqlite3_column_text(st, 1);
        if (name && labels && (fail = counter_new(r, name, labels, &c, e)) == 0)
            c->value = sqlite3_column_double(st, 2);
        rc = SQLITE_OK;
    }
    if (!fail && rc != SQLITE_DONE)
        fail = records_fail(r, rc, false, e, "read");
    sqlite3_finalize(st);
    return fail;
}

int records_counters_write(struct records *r, struct err *e)
{
    sqlite3_stmt *st;
    if (!r->counters_dirty)
        return 0;
    int rc = 0;
    for (size_t i = 0; rc >= 0 && i < r->counter_n; i++) {
        const struct counter *c = r->counters[i];
        if (!c->dirty)
            continue;
        if ((rc = records_stmt(r, c->gone ? OS_COUNTER_DELETE : OS_COUNTER_SET, &st, e)) < 0)
            break;
        sqlite3_bind_text(st, 1, c->name, -1, SQLITE_STATIC);
        sqlite3_bind_text(st, 2, c->labels, -1, SQLITE_STATIC);
        if (!c->gone)
            sqlite3_bind_double(st, 3, c->value);
        rc = records_step(r, st, e, "write");
    }
    return rc;
}

void records_counters_written(struct records *r)
{
    for (size_t i = 0; r->counters_dirty && i < r->counter_n; i++)
        r->counters[i]->dirty = r->counters[i]->held = false;
    r->counters_dirty = false;
    r->counters_written = mono_ns();
}

char *records_labels_text(const json_t *labels)
{
    return labels ? json_dumps(labels, JSON_COMPACT | JSON_SORT_KEYS) : strdup("{}");
}

bool records_counter_get(struct records *r, const char *name, const json_t *labels, double *value)
{
    char *text = records_labels_text(labels);
    const struct counter key = {.name = (char *)(uintptr_t)name, .labels = text};
    void **node = text ? tfind(&key, &r->counter_tree, counter_order) : NULL;
    const struct counter *c = node ? *node : NULL;
    free(text);
    if (!c || c->gone)
        return false;
    *value = c->value;
    return true;
}
