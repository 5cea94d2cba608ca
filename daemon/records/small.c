/* SPDX-License-Identifier: GPL-2.0-or-later */
/* records_small.c - intents, counters and small values */
#include "daemon/records/records-impl.h"

#include "base/cleanup.h"
#include "base/time.h"

#include <errno.h>
#include <math.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNTERS_WRITE_NS (30 * NS_PER_S)

/* ---- intents ---- */

void intent_clear(struct intent *i)
{
    json_decref(i->doc);
    memset(i, 0, sizeof *i);
}

static int doc_text(json_t *doc, char **ret, struct err *e)
{
    *ret = doc ? json_dumps(doc, JSON_COMPACT | JSON_SORT_KEYS) : strdup("{}");
    bool object = !doc || json_is_object(doc);
    json_decref(doc);
    if (!*ret)
        return err_nomem(e);
    if (object && strlen(*ret) <= RECORDS_DOC_MAX)
        return 0;
    free(*ret);
    *ret = NULL;
    return err_set(e, ERR_GENERIC, EINVAL, "the document of an intent must be a JSON object of at most %u bytes",
                   RECORDS_DOC_MAX);
}

static int intent_insert(struct records *r, const char *owner, const char *kind, const char *name, const char *doc,
                         uint64_t *id, struct err *e)
{
    sqlite3_stmt *st;
    int rc = records_next_seq(r, id, e);
    if (rc < 0 || (rc = records_stmt(r, OS_INTENT_ADD, &st, e)) < 0)
        return rc;
    sqlite3_bind_int64(st, 1, (sqlite3_int64)*id);
    sqlite3_bind_text(st, 2, owner, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 3, kind, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 4, name, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 5, doc, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 6, records_clock());
    return records_step(r, st, e, "write");
}

int records_intent_add(struct records *r, const char *owner, const char *kind, const char *name, json_t *doc,
                       uint64_t *id, struct err *e)
{
    CLEANUP_FREE char *text = NULL;
    uint64_t unused;
    int rc = doc_text(doc, &text, e);
    if (rc < 0 || (rc = records_refuse_read_only(r, e)) < 0)
        return rc;
    struct intent limits;
    if (strlen(owner) >= sizeof limits.owner || strlen(kind) >= sizeof limits.kind ||
        strlen(name) >= sizeof limits.name)
        return err_set(e, ERR_GENERIC, ENAMETOOLONG, "the intent %s of %s cannot be recorded", name, owner);
    if ((rc = records_tx_begin(r, e)) < 0)
        return rc;
    return records_tx_end(r, intent_insert(r, owner, kind, name, text, id ? id : &unused, e), e);
}

/* Runs a statement on intent `id`, `doc` if it has a second value. */
static int intent_change(struct records *r, enum one_stmt which, uint64_t id, const char *doc, struct err *e)
{
    sqlite3_stmt *st;
    int rc = records_refuse_read_only(r, e);
    if (rc < 0 || (rc = records_tx_begin(r, e)) < 0)
        return rc;
    if ((rc = records_stmt(r, which, &st, e)) >= 0) {
        sqlite3_bind_int64(st, 1, (sqlite3_int64)id);
        if (doc)
            sqlite3_bind_text(st, 2, doc, -1, SQLITE_STATIC);
        rc = records_step(r, st, e, "write");
    }
    if (rc >= 0 && sqlite3_changes64(r->db) == 0)
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "there is no intent %llu", (unsigned long long)id);
    return records_tx_end(r, rc, e);
}

int records_intent_update(struct records *r, uint64_t id, json_t *doc, struct err *e)
{
    CLEANUP_FREE char *text = NULL;
    int rc = doc_text(doc, &text, e);
    return rc < 0 ? rc : intent_change(r, OS_INTENT_UPDATE, id, text, e);
}

int records_intent_resolve(struct records *r, uint64_t id, struct err *e)
{
    return intent_change(r, OS_INTENT_RESOLVE, id, NULL, e);
}

static void column_text(sqlite3_stmt *st, int col, char *out, size_t cap)
{
    const char *t = (const char *)sqlite3_column_text(st, col);
    snprintf(out, cap, "%s", t ? t : "");
}

static int intent_load(struct records *r, uint64_t id, struct intent *ret, struct err *e)
{
    sqlite3_stmt *st;
    memset(ret, 0, sizeof *ret);
    int rc = records_stmt(r, OS_INTENT_GET, &st, e);
    if (rc < 0)
        return rc;
    sqlite3_bind_int64(st, 1, (sqlite3_int64)id);
    rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        ret->id = id;
        column_text(st, 0, ret->owner, sizeof ret->owner);
        column_text(st, 1, ret->kind, sizeof ret->kind);
        column_text(st, 2, ret->name, sizeof ret->name);
        const char *doc = (const char *)sqlite3_column_text(st, 3);
        ret->doc = doc ? json_loadb(doc, (size_t)sqlite3_column_bytes(st, 3), JSON_ALLOW_NUL, NULL) : NULL;
    }
    int fail = rc == SQLITE_ROW ? 0 : rc == SQLITE_DONE ? -ENOENT : records_fail(r, rc, false, e, "read");
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    if (fail < 0)
        return fail;
    /* An intent is never dropped: its kind and name are enough to find the object. */
    if (!json_is_object(ret->doc)) {
        log_warning("the document of intent %llu (%s %s) cannot be used", (unsigned long long)id, ret->kind, ret->name);
        json_decref(ret->doc);
        if (!(ret->doc = json_object()))
            return err_nomem(e);
    }
    return 0;
}

int records_intents(struct records *r, const char *owner, intent_fn *fn, void *arg, struct err *e)
{
    CLEANUP_FREE uint64_t *ids = NULL;
    size_t n = 0;
    sqlite3_stmt *st;
    int rc = records_ready(r, e);
    if (rc < 0 || (rc = records_stmt(r, owner ? OS_INTENT_IDS_OF : OS_INTENT_IDS, &st, e)) < 0)
        return rc;
    if (owner)
        sqlite3_bind_text(st, 1, owner, -1, SQLITE_STATIC);
    if ((rc = records_collect(r, st, &ids, &n, e)) < 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        struct intent it;
        rc = intent_load(r, ids[i], &it, e);
        if (rc == -ENOENT)
            continue; /* resolved meanwhile */
        if (rc >= 0)
            rc = fn(&it, arg);
        intent_clear(&it);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- counters ---- */

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

static int counter_find(struct records *r, char *name, char *labels, struct counter **ret, struct err *e)
{
    struct counter key = {.name = name, .labels = labels};
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

int records_flush(struct records *r, struct err *e)
{
    int rc = records_refuse_read_only(r, e);
    if (rc < 0 || r->depth > 0 || !r->counters_dirty || (rc = records_tx_begin(r, e)) < 0)
        return rc;
    return records_tx_end(r, 0, e);
}

char *records_labels_text(const json_t *labels)
{
    return labels ? json_dumps(labels, JSON_COMPACT | JSON_SORT_KEYS) : strdup("{}");
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
    CLEANUP_FREE char *key = strdup(name);
    if (!text || !key)
        return err_nomem(e);
    if ((rc = counter_find(r, key, text, &c, e)) < 0)
        return rc;
    if (c->gone)
        c->value = 0;
    c->gone = false;
    if (r->holds && !c->held) {
        c->held = true;
        c->undo = c->value;
    }
    c->value = add ? c->value + v : v;
    c->dirty = r->counters_dirty = true;
    if (r->depth == 0 && !r->holds && mono_ns() - r->counters_written >= COUNTERS_WRITE_NS)
        return records_flush(r, e);
    return 0;
}

int records_counter_add(struct records *r, const char *name, const json_t *labels, double delta, struct err *e)
{
    return counter_change(r, name, labels, delta, true, e);
}

int records_counter_set(struct records *r, const char *name, const json_t *labels, double value, struct err *e)
{
    return counter_change(r, name, labels, value, false, e);
}

bool records_counter_get(struct records *r, const char *name, const json_t *labels, double *value)
{
    CLEANUP_FREE char *text = records_labels_text(labels);
    CLEANUP_FREE char *own = strdup(name);
    struct counter key = {.name = own, .labels = text};
    void **node = own && text ? tfind(&key, &r->counter_tree, counter_order) : NULL;
    const struct counter *c = node ? *node : NULL;
    if (!c || c->gone)
        return false;
    *value = c->value;
    return true;
}

void records_counter_remove(struct records *r, const char *name, const json_t *labels)
{
    CLEANUP_FREE char *text = records_labels_text(labels);
    for (size_t i = 0; text && i < r->counter_n; i++) {
        struct counter *c = r->counters[i];
        if (!c->gone && !strcmp(c->name, name) && !strcmp(c->labels, text)) {
            c->value = 0;
            c->gone = c->dirty = r->counters_dirty = true;
            c->held = false;
        }
    }
}

void records_counters_hold(struct records *r)
{
    r->holds++;
}

void records_counters_settle(struct records *r)
{
    if (!r->holds || --r->holds)
        return;
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
        int rc = fn(c->name, labels, c->value, arg);
        json_decref(labels);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- small values ---- */

/* The store keeps its own under the same roof. */
static bool key_is_ours(const char *key)
{
    return strcmp(key, "schema") == 0 || strcmp(key, "seq") == 0;
}

int records_meta_set(struct records *r, const char *key, const char *text, struct err *e)
{
    sqlite3_stmt *st;
    int rc = records_refuse_read_only(r, e);
    if (rc < 0)
        return rc;
    if (!key[0] || key_is_ours(key))
        return err_set(e, ERR_GENERIC, EINVAL, "the value \"%s\" of the records cannot be set", key);
    if ((rc = records_tx_begin(r, e)) < 0)
        return rc;
    if ((rc = records_stmt(r, text ? OS_META_SET : OS_META_DELETE, &st, e)) >= 0) {
        sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
        if (text)
            sqlite3_bind_text(st, 2, text, -1, SQLITE_STATIC);
        rc = records_step(r, st, e, "write");
    }
    return records_tx_end(r, rc, e);
}

int records_meta_get(struct records *r, const char *key, char *ret, size_t cap, struct err *e)
{
    sqlite3_stmt *st;
    ret[0] = '\0';
    int rc = records_ready(r, e);
    if (rc < 0 || (rc = records_stmt(r, OS_META_GET, &st, e)) < 0)
        return rc;
    sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
    rc = sqlite3_step(st);
    int fail = 0;
    if (rc == SQLITE_ROW) {
        const char *t = (const char *)sqlite3_column_text(st, 0);
        if ((size_t)sqlite3_column_bytes(st, 0) >= cap)
            fail = err_set(e, ERR_GENERIC, ERANGE, "the value %s of the records is too long", key);
        else
            snprintf(ret, cap, "%s", t ? t : "");
    } else if (rc == SQLITE_DONE) {
        fail = err_plain(e, ERR_NOT_FOUND, ENOENT, "the value %s of the records is not set", key);
    } else {
        fail = records_fail(r, rc, false, e, "read");
    }
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    return fail;
}
