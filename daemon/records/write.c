/* SPDX-License-Identifier: GPL-2.0-or-later */
/* write.c - from memory to disk, inside a transaction of SQLite's */
#include "daemon/records/records-impl.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void bind_text(sqlite3_stmt *st, int i, const char *text)
{
    sqlite3_bind_text(st, i, text, -1, SQLITE_STATIC);
}

/* ---- rows ---- */

static int write_row(struct connection *c, struct version *v, enum kind_stmt which, struct err *e)
{
    const struct row *h = version_row(v);
    size_t n;
    sqlite3_stmt *st;
    int rc = records_kind_stmt(c, v->kind, which, &st, e);
    if (rc < 0)
        return rc;
    CLEANUP_FREE char *text = fields_text(row_types[v->kind].fields, v->data, &n);
    if (!text)
        return err_nomem(e);
    if (n > RECORDS_DOC_MAX)
        return err_plain(e, ERR_GENERIC, E2BIG, "the document of the record of %s %s is larger than %u bytes",
                         records_kind_words[v->kind], h->id, RECORDS_DOC_MAX);
    sqlite3_bind_int64(st, 1, (sqlite3_int64)h->seq);
    sqlite3_bind_int64(st, 2, (sqlite3_int64)h->generation);
    bind_text(st, 3, h->id);
    if (which != KS_UPDATE) {
        bind_text(st, 4, h->parent);
        bind_text(st, 5, h->volume_id);
    }
    bind_text(st, 6, enum_name(row_types[v->kind].states, version_state(v)));
    if (which == KS_INSERT)
        sqlite3_bind_int64(st, 7, h->created_ns);
    sqlite3_bind_int64(st, 8, h->updated_ns);
    sqlite3_bind_int64(st, 9, h->wake_ns);
    sqlite3_bind_text(st, 10, text, (int)n, SQLITE_STATIC);
    return records_step(c, st, e, "write");
}

static int delete_row(struct connection *c, enum row_kind k, uint64_t seq, struct err *e)
{
    sqlite3_stmt *st;
    int rc = records_kind_stmt(c, k, KS_DELETE, &st, e);
    if (rc < 0)
        return rc;
    sqlite3_bind_int64(st, 1, (sqlite3_int64)seq);
    return records_step(c, st, e, "write");
}

static bool in_place(const struct version *was, const struct version *now)
{
    const struct row *a = (const void *)was->data, *b = (const void *)now->data;
    return !strcmp(a->parent, b->parent) && !strcmp(a->volume_id, b->volume_id);
}

static int write_object(struct connection *c, const struct object *obj, struct err *e)
{
    struct version *now = obj->now, *was = obj->was;
    /* Made anew under the same id it is another row. */
    bool same = now && was && version_row(now)->seq == version_row(was)->seq;
    int rc = was && !same ? delete_row(c, was->kind, version_row(was)->seq, e) : 0;
    return rc < 0 || !now ? rc
                          : write_row(c, now,
                                      !same                ? KS_INSERT
                                      : in_place(was, now) ? KS_UPDATE
                                                           : KS_UPDATE_PLACE,
                                      e);
}

/* ---- intents ---- */

static int write_intent(struct connection *c, const struct noted *i, bool fresh, struct err *e)
{
    sqlite3_stmt *st;
    int rc;
    if (!i->doc && fresh)
        return 0; /* it came and went */
    if ((rc = records_stmt(c, !i->doc ? OS_INTENT_RESOLVE : fresh ? OS_INTENT_ADD : OS_INTENT_UPDATE, &st, e)) < 0)
        return rc;
    sqlite3_bind_int64(st, 1, (sqlite3_int64)i->id);
    if (i->doc && fresh) {
        bind_text(st, 2, i->owner->id);
        bind_text(st, 3, i->kind);
        bind_text(st, 4, i->name);
        bind_text(st, 5, i->doc);
        sqlite3_bind_int64(st, 6, i->created_ns);
    } else if (i->doc) {
        bind_text(st, 2, i->doc);
    }
    return records_step(c, st, e, "write");
}

/* ---- all of it ---- */

static int write_number(struct connection *c, const char *key, uint64_t n, struct err *e)
{
    sqlite3_stmt *st;
    char text[24];
    int rc = records_stmt(c, OS_META_SET, &st, e);
    if (rc < 0)
        return rc;
    snprintf(text, sizeof text, "%llu", (unsigned long long)n);
    bind_text(st, 1, key);
    bind_text(st, 2, text);
    return records_step(c, st, e, "write");
}

static int write_holds(struct connection *c, uint64_t number, bool unknown, struct err *e)
{
    int rc = write_number(c, "holds", number, e);
    return rc < 0 ? rc : write_number(c, "holds_unknown", unknown, e);
}

int records_write_changes(const struct commit *c, struct err *e)
{
    int rc = c->seq_changed ? write_number(c->writer, "seq", c->next_seq, e) : 0;
    if (rc >= 0 && c->holds.text)
        rc = write_holds(c->writer, c->holds.number, c->holds.unknown, e);
    for (const struct object *obj = c->image->changed; rc >= 0 && obj; obj = obj->next_changed)
        rc = write_object(c->writer, obj, e);
    for (const struct noted *i = c->image->changed_intents; rc >= 0 && i; i = i->next_changed)
        rc = write_intent(c->writer, i, !i->was_doc, e);
    return rc < 0 ? rc : records_counters_write(c->writer, &c->counters, e);
}

int records_write_all(struct records *r, const struct counted_list *counters, struct err *e)
{
    struct connection *c = &r->writer;
    int rc = write_number(c, "seq", r->next_seq, e);
    /* What has a lower one and is not among these rows may have been in the records that they replace. */
    rc = rc < 0 ? rc : write_number(c, "first", r->next_seq, e);
    rc = rc < 0 ? rc : write_number(c, "began", (uint64_t)records_clock(), e);
    if (rc >= 0 && r->holds.number) /* while it runs: what is held is in memory */
        rc = write_holds(c, r->holds.number, r->holds.unknown, e);
    for (enum row_kind k = 0; rc >= 0 && k < ROW_KINDS; k++)
        for (struct object *obj = image_first(&r->image, k, BY_AGE, NULL); rc >= 0 && obj; obj = obj->younger[BY_AGE])
            rc = write_row(c, obj->now, KS_INSERT, e);
    for (const struct noted *i = image_intents(&r->image, NULL); rc >= 0 && i; i = i->older[0])
        rc = write_intent(c, i, true, e);
    return rc < 0 ? rc : records_counters_write(c, counters, e);
}
