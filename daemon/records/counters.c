/* SPDX-License-Identifier: GPL-2.0-or-later */
/* counters.c - counters in memory, read from disk and written to it */
#include "daemon/records/records-impl.h"

#include <errno.h>
#include <math.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int counter_order(const void *a, const void *b)
{
    const struct counter *x = a, *y = b;
    int d = (x->hash > y->hash) - (x->hash < y->hash);
    d = d ? d : strcmp(x->name, y->name);
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
    if (c) {
        c->hash = counter_hash(name, labels);
        c->n = r->counter_n ? r->counters[r->counter_n - 1]->n + 1 : 0;
    }
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
    const struct counter key = {
        .name = (char *)(uintptr_t)name, .labels = (char *)(uintptr_t)labels, .hash = counter_hash(name, labels)};
    void **node = tfind(&key, &r->counter_tree, counter_order);
    return node ? *node : NULL;
}

int records_counter_find(struct records *r, const char *name, const char *labels, struct counter **ret, struct err *e)
{
    *ret = records_counter_known(r, name, labels);
    return *ret ? 0 : counter_new(r, name, labels, ret, e);
}

/* ---- from disk ---- */

static int load_names(struct records *r, sqlite3_stmt *st, struct err *e)
{
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct counter *c;
        const char *name = (const char *)sqlite3_column_text(st, 1), *labels = (const char *)sqlite3_column_text(st, 2);
        const int fail = name && labels ? counter_new(r, name, labels, &c, e) : 0;
        if (fail)
            return fail;
        if (!name || !labels)
            continue;
        c->n = (uint64_t)sqlite3_column_int64(st, 0);
        c->kept = c->named = true;
    }
    return rc == SQLITE_DONE ? 0 : records_fail(&r->writer, rc, false, e, "read");
}

/* The values of a page, in columns; `at` is the first counter that may have one of them. Those that follow. */
static size_t load_page(struct records *r, size_t at, uint64_t page, const char *text)
{
    double values[COUNTERS_OF_PAGE] = {0};
    const size_t len = strlen(text);
    for (unsigned i = 0; i < COUNTERS_OF_PAGE && (size_t)i * COUNTER_WIDTH < len; i++)
        values[i] = strtod(text + (size_t)i * COUNTER_WIDTH, NULL);
    for (; at < r->counter_n && r->counters[at]->n / COUNTERS_OF_PAGE <= page; at++)
        if (r->counters[at]->n / COUNTERS_OF_PAGE == page)
            r->counters[at]->value = values[r->counters[at]->n % COUNTERS_OF_PAGE];
    return at;
}

static int load_values(struct records *r, sqlite3_stmt *st, struct err *e)
{
    size_t at = 0;
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(st, 1);
        at = load_page(r, at, (uint64_t)sqlite3_column_int64(st, 0), text ? text : "");
    }
    return rc == SQLITE_DONE ? 0 : records_fail(&r->writer, rc, false, e, "read");
}

static int load_by(struct records *r, const char *sql, int (*load)(struct records *, sqlite3_stmt *, struct err *),
                   struct err *e)
{
    sqlite3_stmt *st = NULL;
    const int rc = sqlite3_prepare_v2(r->writer.db, sql, -1, &st, NULL);
    const int fail = rc == SQLITE_OK ? load(r, st, e) : records_fail(&r->writer, rc, false, e, "read");
    sqlite3_finalize(st);
    return fail;
}

int records_counters_load(struct records *r, struct err *e)
{
    char sql[100];
    snprintf(sql, sizeof sql, "SELECT n,name,labels FROM counter_names ORDER BY n LIMIT %d", RECORDS_COUNTERS_MAX);
    const int rc = load_by(r, sql, load_names, e);
    return rc < 0 ? rc : load_by(r, "SELECT page,numbers FROM counter_values ORDER BY page", load_values, e);
}

/* ---- to disk ---- */

static bool is_taken(const struct counter *c, bool all)
{
    return all || c->dirty;
}

static int counted_list_make(const struct records *r, bool all, struct counted_list *ret, struct err *e)
{
    size_t n = 0, pages = 0;
    uint64_t last = UINT64_MAX;
    for (size_t i = 0; i < r->counter_n; i++) {
        const struct counter *c = r->counters[i];
        if (!is_taken(c, all))
            continue;
        n++;
        pages += c->n / COUNTERS_OF_PAGE != last;
        last = c->n / COUNTERS_OF_PAGE;
    }
    *ret = (struct counted_list){.v = calloc(n + 1, sizeof *ret->v), .pages = calloc(pages + 1, sizeof *ret->pages)};
    if (ret->v && ret->pages)
        return 0;
    free(ret->v);
    free(ret->pages);
    *ret = (struct counted_list){.v = NULL};
    return err_nomem(e);
}

/* The values of all counters of the pages, changed or not. */
static void pages_fill(const struct records *r, struct counted_list *l)
{
    size_t k = 0;
    for (size_t i = 0; i < r->counter_n; i++) {
        const struct counter *c = r->counters[i];
        const uint64_t page = c->n / COUNTERS_OF_PAGE;
        while (k < l->n_pages && l->pages[k].page < page)
            k++;
        if (k < l->n_pages && l->pages[k].page == page && !c->gone)
            l->pages[k].values[c->n % COUNTERS_OF_PAGE] = c->value;
    }
}

int records_counters_take(struct records *r, bool all, struct counted_list *ret, struct err *e)
{
    *ret = (struct counted_list){.v = NULL};
    if (!all && !r->counters_dirty)
        return 0;
    const int rc = counted_list_make(r, all, ret, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < r->counter_n; i++) {
        struct counter *c = r->counters[i];
        const uint64_t page = c->n / COUNTERS_OF_PAGE;
        if (!is_taken(c, all))
            continue;
        ret->v[ret->n++] = (struct counted){c, c->value, c->undo, c->gone, c->held, c->named && !all};
        if (!ret->n_pages || ret->pages[ret->n_pages - 1].page != page)
            ret->pages[ret->n_pages++].page = page;
        c->in_doubt = c->held;
        c->kept = !c->gone;
        c->undo_in_doubt = c->dirty = c->held = false;
    }
    pages_fill(r, ret);
    r->counters_dirty = false;
    return 0;
}

/* A new name, or one that goes. */
static int write_name(struct connection *c, const struct counted *x, struct err *e)
{
    sqlite3_stmt *st;
    if (x->gone != x->named)
        return 0;
    const int rc = records_stmt(c, x->gone ? OS_COUNTER_DELETE : OS_COUNTER_NAME, &st, e);
    if (rc < 0)
        return rc;
    sqlite3_bind_int64(st, 1, (sqlite3_int64)x->counter->n);
    if (!x->gone) {
        sqlite3_bind_text(st, 2, x->counter->name, -1, SQLITE_STATIC);
        sqlite3_bind_text(st, 3, x->counter->labels, -1, SQLITE_STATIC);
    }
    return records_step(c, st, e, "write");
}

#define EXACT 9007199254740992.0 /* up to here each integer is a value of its own */

static void put_value(char *to, double v)
{
    char text[40];
    const int n = fabs(v) <= EXACT && !islessgreater(trunc(v), v)
                      ? snprintf(text, sizeof text, "%lld", (long long)v)
                      : snprintf(text, sizeof text, "%.17g", isfinite(v) ? v : 0);
    memcpy(to, text, n < COUNTER_WIDTH ? (size_t)n : COUNTER_WIDTH);
}

static int write_page(struct connection *c, const struct counter_page *p, struct err *e)
{
    char text[COUNTERS_OF_PAGE * COUNTER_WIDTH];
    sqlite3_stmt *st;
    const int rc = records_stmt(c, OS_COUNTER_VALUES, &st, e);
    if (rc < 0)
        return rc;
    memset(text, ' ', sizeof text);
    for (unsigned i = 0; i < COUNTERS_OF_PAGE; i++)
        put_value(text + (size_t)i * COUNTER_WIDTH, p->values[i]);
    sqlite3_bind_int64(st, 1, (sqlite3_int64)p->page);
    sqlite3_bind_text(st, 2, text, sizeof text, SQLITE_TRANSIENT);
    return records_step(c, st, e, "write");
}

int records_counters_write(struct connection *c, const struct counted_list *l, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc >= 0 && i < l->n; i++)
        rc = write_name(c, &l->v[i], e);
    for (size_t i = 0; rc >= 0 && i < l->n_pages; i++)
        rc = write_page(c, &l->pages[i], e);
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
        else
            l->v[i].counter->named = !l->v[i].gone;
        l->v[i].counter->in_doubt = l->v[i].counter->undo_in_doubt = false;
    }
    free(l->v);
    free(l->pages);
    *l = (struct counted_list){.v = NULL};
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
