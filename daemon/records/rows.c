/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rows.c - typed rows over the untyped ones, as long as both are in use */
#include "daemon/records/records.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int fits(const char *what, const char *text, size_t cap, struct err *e)
{
    return strlen(text) < cap ? 0 : err_set(e, ERR_GENERIC, ENAMETOOLONG, "the %s %.64s... is too long", what, text);
}

int row_to_rec(enum row_kind k, const void *row, struct rec *ret, struct err *e)
{
    const struct row *h = row;
    *ret = (struct rec){.seq = h->seq,
                        .generation = h->generation,
                        .created_ns = h->created_ns,
                        .updated_ns = h->updated_ns,
                        .wake_ns = h->wake_ns};
    int rc = strings_nomem() ? err_nomem(e) : fits("id", h->id, sizeof ret->id, e);
    if (rc >= 0)
        rc = fits("parent", h->parent, sizeof ret->parent, e);
    if (rc >= 0)
        rc = fits("volume", h->volume_id, sizeof ret->volume, e);
    if (rc < 0)
        return rc;
    snprintf(ret->id, sizeof ret->id, "%s", h->id);
    snprintf(ret->parent, sizeof ret->parent, "%s", h->parent);
    snprintf(ret->volume, sizeof ret->volume, "%s", h->volume_id);
    snprintf(ret->state, sizeof ret->state, "%s", enum_name(row_types[k].states, row_state(k, row)));
    ret->doc = fields_to_json(row_types[k].fields, row);
    return ret->doc ? 0 : err_nomem(e);
}

int row_from_rec(enum row_kind k, const struct rec *rec, void *row, struct err *e)
{
    struct row *h = row;
    h->seq = rec->seq;
    h->generation = rec->generation;
    h->created_ns = rec->created_ns;
    h->updated_ns = rec->updated_ns;
    h->wake_ns = rec->wake_ns;
    int rc = fields_load(row_types[k].fields, row, rec->doc);
    *h = (struct row){str_empty,       str_empty,       str_empty,       rec->seq,
                      rec->generation, rec->created_ns, rec->updated_ns, rec->wake_ns};
    row_set_state(k, row, enum_value(row_types[k].states, rec->state));
    if (rc < 0 || str_set(&h->id, rec->id) < 0 || str_set(&h->parent, rec->parent) < 0 ||
        str_set(&h->volume_id, rec->volume) < 0) {
        row_clear(row_types[k].fields, row);
        return err_nomem(e);
    }
    return 0;
}

static int written(int rc, const struct rec *rec, void *row)
{
    struct row *h = row;
    if (rc >= 0) {
        h->seq = rec->seq;
        h->generation = rec->generation;
        h->created_ns = rec->created_ns;
        h->updated_ns = rec->updated_ns;
    }
    return rc;
}

int row_add(struct records *r, enum row_kind k, void *row, struct err *e)
{
    CLEANUP(rec_clearp) struct rec rec = REC_INIT;
    int rc = row_to_rec(k, row, &rec, e);
    return rc < 0 ? rc : written(records_add(r, (enum rec_kind)k, &rec, e), &rec, row);
}

int row_save(struct records *r, enum row_kind k, void *row, struct err *e)
{
    CLEANUP(rec_clearp) struct rec rec = REC_INIT;
    int rc = row_to_rec(k, row, &rec, e);
    return rc < 0 ? rc : written(records_save(r, (enum rec_kind)k, &rec, e), &rec, row);
}

int row_get(struct records *r, enum row_kind k, const char *id, void *ret, struct err *e)
{
    CLEANUP(rec_clearp) struct rec rec = REC_INIT;
    row_init(row_types[k].fields, ret);
    int rc = records_get(r, (enum rec_kind)k, id, &rec, e);
    return rc < 0 ? rc : row_from_rec(k, &rec, ret, e);
}

int row_delete(struct records *r, enum row_kind k, const char *id, struct err *e)
{
    return records_delete(r, (enum rec_kind)k, id, e);
}

struct visit {
    enum row_kind kind;
    row_fn *fn;
    void *arg;
    struct err *e;
};
static int visit(struct rec *rec, void *arg)
{
    const struct visit *v = arg;
    const struct fields *t = row_types[v->kind].fields;
    void *row = calloc(1, t->size);
    if (!row)
        return err_nomem(v->e);
    row_init(t, row);
    int rc = row_from_rec(v->kind, rec, row, v->e);
    if (rc >= 0)
        rc = v->fn(row, v->arg);
    row_clear(t, row);
    free(row);
    return rc;
}

static struct rec_filter untyped(enum row_kind k, const struct row_filter *f)
{
    if (!f)
        return (struct rec_filter){.parent = NULL};
    return (struct rec_filter){.parent = f->parent,
                               .volume = f->volume_id,
                               .state = f->state ? enum_name(row_types[k].states, f->state) : NULL,
                               .live = f->live,
                               .newest_first = f->newest_first,
                               .limit = f->limit};
}

int row_each(struct records *r, enum row_kind k, const struct row_filter *f, row_fn *fn, void *arg, struct err *e)
{
    const struct rec_filter any = untyped(k, f);
    struct visit v = {k, fn, arg, e};
    return records_each(r, (enum rec_kind)k, &any, visit, &v, e);
}

int row_count(struct records *r, enum row_kind k, const struct row_filter *f, uint64_t *ret, struct err *e)
{
    const struct rec_filter any = untyped(k, f);
    return records_count(r, (enum rec_kind)k, &any, ret, e);
}
