/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rows.c - rows of the records: add, save, get, delete. docs/records.md describes tables and documents. */
#include "daemon/records/records-impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int not_found(enum row_kind k, const char *id, struct err *e)
{
    return err_plain(e, ERR_NOT_FOUND, ENOENT, "there is no record of %s %s", records_kind_words[k], id);
}

/* Whether there are rows of that kind that are only on disk. */
static bool on_disk(enum row_kind k)
{
    return row_types[k].terminal != INT_MAX;
}

/* ---- from disk ---- */

int records_fetch(struct records *r, enum row_kind k, sqlite3_stmt *st, struct version **ret, struct err *e)
{
    const char *why = NULL;
    char id[200] = "";
    uint64_t seq = 0;
    int rc = sqlite3_step(st), fail = 0;
    *ret = NULL;
    if (rc == SQLITE_ROW && !(*ret = records_take_row(k, st, &why))) {
        const char *text = (const char *)sqlite3_column_text(st, 2);
        seq = (uint64_t)sqlite3_column_int64(st, 0);
        snprintf(id, sizeof id, "%s", text ? text : "");
        fail = why ? err_set(e, ERR_DAMAGE, EBADMSG, "the record of %s %s cannot be used: %s", records_kind_words[k],
                             id, why)
                   : err_nomem(e);
    } else if (rc != SQLITE_ROW) {
        fail = rc == SQLITE_DONE ? -ENOENT : records_fail(records_reader(r), rc, false, e, "read");
    }
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    if (why)
        records_set_row_aside(r, k, seq, id, why);
    return fail;
}

/* A finished one. -ENOENT without words if there is none. */
static int fetch_id(struct records *r, enum row_kind k, const char *id, struct version **ret, struct err *e)
{
    sqlite3_stmt *st;
    *ret = NULL;
    if (!on_disk(k))
        return -ENOENT;
    int rc = records_kind_stmt(records_reader(r), k, KS_BY_ID, &st, e);
    if (rc < 0)
        return rc;
    sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    return records_fetch(r, k, st, ret, e);
}

int row_get(struct records *r, enum row_kind k, const char *id, void *ret, struct err *e)
{
    struct version *v = NULL;
    row_init(row_types[k].fields, ret);
    int rc = records_ready(r, e);
    if (rc < 0)
        return rc;
    const struct object *obj = image_find(&r->image, k, id);
    if (obj) {
        rc = obj->now ? row_copy(row_types[k].fields, ret, obj->now->data) : -ENOENT;
    } else if ((v = image_recent_id(&r->image, k, id))) {
        rc = row_copy(row_types[k].fields, ret, v->data);
    } else if ((rc = fetch_id(r, k, id, &v, e)) >= 0) {
        rc = row_copy(row_types[k].fields, ret, v->data);
        image_note_recent(&r->image, v);
        version_unref(v);
    }
    return rc == -ENOENT ? not_found(k, id, e) : rc == -ENOMEM ? err_nomem(e) : rc;
}

const void *row_peek(const struct records *r, enum row_kind k, const char *id)
{
    const struct object *obj = image_find(&r->image, k, id);
    return obj && obj->now && image_keeps(k, version_state(obj->now)) ? obj->now->data : NULL;
}

/* ---- writing ---- */

/* A version of what is to be written; its text is made when that is written (commit.c). */
static int version_of(enum row_kind k, const void *row, struct version **ret, struct err *e)
{
    /* What could not be set for lack of memory is not written as if it had been. */
    *ret = strings_nomem() ? NULL : version_new(k, row);
    return *ret ? 0 : err_nomem(e);
}

static int no_memory(int rc, struct err *e)
{
    return rc == -ENOMEM ? err_nomem(e) : rc;
}

/* Whether the id is taken by a row that is only on disk. */
static int is_taken(struct records *r, enum row_kind k, const char *id, bool *ret, struct err *e)
{
    sqlite3_stmt *st;
    uint64_t *seq;
    size_t n = 0;
    const struct object *obj = image_find(&r->image, k, id);
    *ret = obj && obj->now;
    if (obj || !on_disk(k))
        return 0;
    int rc = records_kind_stmt(records_reader(r), k, KS_HAS_ID, &st, e);
    if (rc < 0)
        return rc;
    sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    rc = records_collect(records_reader(r), st, &seq, &n, e);
    free(seq);
    *ret = n > 0;
    return rc;
}

static int add(struct records *r, enum row_kind k, struct version *v, struct err *e)
{
    struct row *h = version_row(v);
    bool taken;
    int rc = is_taken(r, k, h->id, &taken, e);
    if (rc >= 0 && taken)
        rc = err_plain(e, ERR_EXISTS, EEXIST, "a record of %s %s exists already", records_kind_words[k], h->id);
    if (rc < 0) {
        version_unref(v);
        return rc;
    }
    h->seq = records_next_seq(r);
    h->generation = 1;
    h->created_ns = h->updated_ns = records_clock();
    if ((rc = image_add(&r->image, v)) >= 0)
        records_report_change(r, h->id, NULL, v);
    return no_memory(rc, e);
}

/* v NULL: it is deleted. */
static int change(struct records *r, struct object *obj, struct version *v)
{
    struct version *was = version_ref(obj->now);
    int rc = image_change(&r->image, obj, v);
    if (rc >= 0)
        records_report_change(r, obj->id, was, v);
    version_unref(was);
    return rc;
}

static void take_head(struct row *to, const struct row *from)
{
    to->seq = from->seq;
    to->generation = from->generation;
    to->created_ns = from->created_ns;
    to->updated_ns = from->updated_ns;
}

int row_add(struct records *r, enum row_kind k, void *row, struct err *e)
{
    struct row *h = row;
    struct version *v;
    int rc = records_refuse_read_only(r, e);
    if (rc < 0)
        return rc;
    if (!h->id[0])
        return err_set(e, ERR_GENERIC, EINVAL, "a record of a %s needs an id", records_kind_words[k]);
    if ((rc = version_of(k, row, &v, e)) < 0)
        return rc;
    version_ref(v);
    if ((rc = records_tx_begin(r, e)) < 0)
        version_unref(v);
    else
        rc = records_tx_end(r, add(r, k, v, e), e);
    if (rc >= 0)
        take_head(h, version_row(v));
    version_unref(v);
    return rc;
}

/* "Deleting" is the way out of a finished backup (RS-23); it ends with the record. */
static bool may_become(enum row_kind k, int from, int to)
{
    if (from == to)
        return true;
    if (k == ROW_BACKUP && from == BACKUP_DELETING)
        return false;
    return from < row_types[k].terminal || (k == ROW_BACKUP && to == BACKUP_DELETING);
}

static int check_change(enum row_kind k, struct version *old, struct version *v, struct err *e)
{
    const struct row *a = version_row(old), *b = version_row(v);
    const struct enum_names *names = row_types[k].states;
    if (a->seq != b->seq || a->generation != b->generation)
        return err_set(e, ERR_BUSY, ESTALE, "the record of %s %s was changed meanwhile", records_kind_words[k], b->id);
    if (!may_become(k, version_state(old), version_state(v)))
        return err_set(e, ERR_GENERIC, EINVAL, "%s %s is %s and cannot become %s", records_kind_words[k], b->id,
                       enum_name(names, version_state(old)), enum_name(names, version_state(v)));
    return 0;
}

/* The object of an id; one that is only on disk comes into memory. -ENOENT. */
static int find(struct records *r, enum row_kind k, const char *id, struct object **ret, struct err *e)
{
    *ret = image_find(&r->image, k, id);
    if (*ret)
        return (*ret)->now ? 0 : not_found(k, id, e);
    struct version *v = image_recent_id(&r->image, k, id);
    int rc = 0;
    if (v)
        version_ref(v);
    else
        rc = fetch_id(r, k, id, &v, e);
    if (rc < 0)
        return rc == -ENOENT ? not_found(k, id, e) : rc;
    *ret = image_put(&r->image, v);
    return *ret ? 0 : no_memory(-ENOMEM, e);
}

static int save(struct records *r, enum row_kind k, struct version *v, struct err *e)
{
    struct row *h = version_row(v);
    struct object *obj;
    int rc = find(r, k, h->id, &obj, e);
    if (rc >= 0 && (rc = check_change(k, obj->now, v, e)) < 0)
        image_tidy(&r->image, obj);
    if (rc < 0) {
        version_unref(v);
        return rc;
    }
    h->generation++;
    h->created_ns = version_row(obj->now)->created_ns;
    h->updated_ns = records_clock();
    if ((rc = change(r, obj, v)) < 0)
        image_tidy(&r->image, obj);
    return no_memory(rc, e);
}

int row_save(struct records *r, enum row_kind k, void *row, struct err *e)
{
    struct version *v;
    int rc = records_refuse_read_only(r, e);
    if (rc < 0 || (rc = version_of(k, row, &v, e)) < 0)
        return rc;
    version_ref(v);
    if ((rc = records_tx_begin(r, e)) < 0)
        version_unref(v);
    else
        rc = records_tx_end(r, save(r, k, v, e), e);
    if (rc >= 0)
        take_head(row, version_row(v));
    version_unref(v);
    return rc;
}

static int remove_row(struct records *r, enum row_kind k, const char *id, struct err *e)
{
    struct object *obj;
    int rc = find(r, k, id, &obj, e);
    return rc < 0 ? rc : change(r, obj, NULL);
}

int row_delete(struct records *r, enum row_kind k, const char *id, struct err *e)
{
    int rc = records_refuse_read_only(r, e);
    if (rc < 0 || (rc = records_tx_begin(r, e)) < 0)
        return rc;
    return records_tx_end(r, remove_row(r, k, id, e), e);
}

bool records_may_have_given(const struct records *r, uint64_t seq, int64_t at_ns)
{
    return seq >= r->first_seq && seq < r->next_seq && at_ns >= r->began_ns;
}

int records_seq_at_least(struct records *r, uint64_t seq, struct err *e)
{
    int rc = records_refuse_read_only(r, e);
    if (rc < 0 || seq < r->next_seq)
        return rc;
    if (seq >= INT64_MAX / 2)
        return err_set(e, ERR_GENERIC, ERANGE, "%llu is no number of a sequence", (unsigned long long)seq);
    if ((rc = records_tx_begin(r, e)) < 0)
        return rc;
    r->next_seq = seq + 1;
    return records_tx_end(r, 0, e);
}
