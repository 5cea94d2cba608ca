/* SPDX-License-Identifier: GPL-2.0-or-later */
/* load.c - from disk into memory, and what cannot be used on the way */
#include "daemon/records/records-impl.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const records_kind_words[ROW_KINDS] = {
    [ROW_BACKUP] = "backup", [ROW_OPERATION] = "operation", [ROW_NATIVE] = "native snapshot", [ROW_VOLUME] = "volume",
    [ROW_JOB] = "job",
};

/* ---- one row ---- */

/* A text column. -EINVAL: it is none, or has a NUL in it. */
static int take_text(sqlite3_stmt *st, int col, char **ret)
{
    const char *t = (const char *)sqlite3_column_text(st, col);
    return t && !memchr(t, '\0', (size_t)sqlite3_column_bytes(st, col)) ? str_set(ret, t) : -EINVAL;
}

/* 0, -ENOMEM, or -EINVAL with *why. */
static int fill(enum row_kind k, sqlite3_stmt *st, void *row, const char **why)
{
    struct row *h = row;
    CLEANUP(str_clear) char *state = str_empty;
    const char *text = (const char *)sqlite3_column_text(st, 9);
    size_t n = (size_t)sqlite3_column_bytes(st, 9);
    *why = "its document is missing or too large";
    if (!text || n > RECORDS_DOC_MAX)
        return -EINVAL;
    *why = "its document is no JSON object";
    int rc = fields_read(row_types[k].fields, row, text, n);
    h->id = h->parent = h->volume_id = str_empty; /* fields_read() has emptied it */
    h->seq = (uint64_t)sqlite3_column_int64(st, 0);
    h->generation = (uint64_t)sqlite3_column_int64(st, 1);
    h->created_ns = sqlite3_column_int64(st, 6);
    h->updated_ns = sqlite3_column_int64(st, 7);
    h->wake_ns = sqlite3_column_int64(st, 8);
    if (rc < 0)
        return rc;
    *why = "its id, parent, volume or state is no text";
    if ((rc = take_text(st, 2, &h->id)) < 0 || (rc = take_text(st, 3, &h->parent)) < 0 ||
        (rc = take_text(st, 4, &h->volume_id)) < 0 || (rc = take_text(st, 5, &state)) < 0)
        return rc;
    *why = "it has no id";
    if (!h->id[0])
        return -EINVAL;
    *why = "its state is not known";
    row_set_state(k, row, enum_value(row_types[k].states, state));
    return state[0] && !row_state(k, row) ? -EINVAL : 0;
}

struct version *records_take_row(enum row_kind k, sqlite3_stmt *st, const char **why)
{
    struct version *v = version_blank(k);
    int rc = v ? fill(k, st, v->data, why) : -ENOMEM;
    if (rc != -EINVAL)
        *why = NULL;
    if (rc == 0)
        return v;
    version_unref(v);
    return NULL;
}

/* ---- what cannot be used ---- */

static int move_aside(struct connection *c, enum row_kind k, uint64_t seq, const char *reason, struct err *e)
{
    sqlite3_stmt *copy, *del, *trim;
    int rc;
    if ((rc = records_kind_stmt(c, k, KS_ASIDE_COPY, &copy, e)) < 0 ||
        (rc = records_kind_stmt(c, k, KS_ASIDE_DELETE, &del, e)) < 0 ||
        (rc = records_stmt(c, OS_ASIDE_TRIM, &trim, e)) < 0 || (rc = records_sql_begin(c, e)) < 0)
        return rc;
    sqlite3_bind_int64(copy, 1, (sqlite3_int64)seq);
    sqlite3_bind_text(copy, 2, row_types[k].table, -1, SQLITE_STATIC);
    sqlite3_bind_text(copy, 3, reason, -1, SQLITE_STATIC);
    sqlite3_bind_int64(copy, 4, records_clock());
    sqlite3_bind_int64(del, 1, (sqlite3_int64)seq);
    sqlite3_bind_int(trim, 1, RECORDS_SET_ASIDE_KEPT);
    if ((rc = records_step(c, copy, e, "write")) >= 0 && (rc = records_step(c, del, e, "write")) >= 0)
        rc = records_step(c, trim, e, "write");
    return records_sql_end(c, rc, e);
}

void records_set_row_aside(struct records *r, enum row_kind k, uint64_t seq, const char *id, const char *why)
{
    struct err e = ERR_INIT;
    if (r->commit.running)
        return; /* it will be met again */
    int rc = r->read_only ? 0 : move_aside(&r->writer, k, seq, why, &e);
    r->set_aside++;
    log_warning("record of %s %.200s (number %llu) cannot be used, %s%s%s", records_kind_words[k], id,
                (unsigned long long)seq, why,
                r->read_only ? ""
                : rc < 0     ? ": it could not be set aside: "
                             : ": set aside",
                rc < 0 ? e.msg : "");
}

/* ---- everything that is kept in memory ---- */

struct bad {
    struct bad *next;
    enum row_kind kind;
    uint64_t seq;
    char id[200], why[100];
};

static int note_bad(struct bad **list, enum row_kind k, sqlite3_stmt *st, const char *why, struct err *e)
{
    const char *id = (const char *)sqlite3_column_text(st, 2);
    struct bad *b = calloc(1, sizeof *b);
    if (!b)
        return err_nomem(e);
    *b = (struct bad){.next = *list, .kind = k, .seq = (uint64_t)sqlite3_column_int64(st, 0)};
    snprintf(b->id, sizeof b->id, "%s", id ? id : "");
    snprintf(b->why, sizeof b->why, "%s", why);
    *list = b;
    return 0;
}

static int load_kind(struct records *r, enum row_kind k, struct bad **bad, struct err *e)
{
    const char *t = row_types[k].table;
    bool all = row_types[k].terminal == INT_MAX;
    sqlite3_stmt *st = NULL;
    char sql[500];
    snprintf(sql, sizeof sql, "SELECT " ROW_COLUMNS " FROM %s%s%s%s ORDER BY seq", t, all ? "" : " INDEXED BY ",
             all ? "" : t, all ? "" : "_unfinished WHERE " RECORDS_LIVE_SQL("state"));
    int rc = sqlite3_prepare_v2(r->writer.db, sql, -1, &st, NULL), fail = 0;
    while (rc == SQLITE_OK && fail >= 0 && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *why;
        struct version *v = records_take_row(k, st, &why);
        if (v && image_find(&r->image, k, version_row(v)->id)) {
            version_unref(v); /* of two with one id, which the index forbids, the first stays */
            v = NULL;
            why = "its id is that of another one";
        }
        if (v)
            fail = image_put(&r->image, v) ? 0 : err_nomem(e);
        else
            fail = why ? note_bad(bad, k, st, why, e) : err_nomem(e);
        rc = SQLITE_OK;
    }
    if (fail >= 0 && rc != SQLITE_DONE)
        fail = records_fail(&r->writer, rc, false, e, "read");
    sqlite3_finalize(st);
    return fail;
}

/* A document that is no JSON: its kind and name are enough to find the object. */
static char *intent_doc(sqlite3_stmt *st)
{
    const char *doc = (const char *)sqlite3_column_text(st, 4);
    return strdup(doc ? doc : "{}");
}

static const char *column(sqlite3_stmt *st, int col)
{
    const char *t = (const char *)sqlite3_column_text(st, col);
    return t ? t : "";
}

static int load_intents(struct records *r, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(r->writer.db, "SELECT id,owner,kind,name,doc,created_ns FROM intents ORDER BY id", -1,
                                &st, NULL),
        fail = 0;
    while (rc == SQLITE_OK && fail >= 0 && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        char *doc = intent_doc(st);
        if (!doc || image_intent_add(&r->image, (uint64_t)sqlite3_column_int64(st, 0), column(st, 1), column(st, 2),
                                     column(st, 3), sqlite3_column_int64(st, 5), doc, true) < 0)
            fail = err_nomem(e);
        rc = SQLITE_OK;
    }
    if (fail >= 0 && rc != SQLITE_DONE)
        fail = records_fail(&r->writer, rc, false, e, "read");
    sqlite3_finalize(st);
    return fail;
}

int records_load(struct records *r, struct err *e)
{
    struct bad *bad = NULL, *next;
    int rc = 0;
    image_free(&r->image);
    records_counters_free(r);
    for (enum row_kind k = 0; rc >= 0 && k < ROW_KINDS; k++)
        rc = load_kind(r, k, &bad, e);
    if (rc >= 0)
        rc = load_intents(r, e);
    if (rc >= 0)
        rc = records_counters_load(r, e);
    for (struct bad *b = bad; b; b = next) {
        next = b->next;
        if (rc >= 0)
            records_set_row_aside(r, b->kind, b->seq, b->id, b->why);
        free(b);
    }
    return rc;
}
