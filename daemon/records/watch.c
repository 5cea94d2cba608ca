/* SPDX-License-Identifier: GPL-2.0-or-later */
/* records_watch.c - one listener is told of every row that was written, so that it need not read them all again */
#include "daemon/records/records-impl.h"

#include <stdio.h>

void records_watch(struct records *r, records_watch_fn *fn, void *arg)
{
    r->watch = fn;
    r->watch_arg = arg;
}

void records_tell(struct records *r, enum rec_kind k, const struct rec *rec)
{
    r->told |= r->depth > 0;
    if (r->watch)
        r->watch(k, rec, r->watch_arg);
    if (!r->rows_watch)
        return;
    union {
        struct row row;
        struct operation operation;
        struct backup backup;
        struct native_row native;
        struct volume_row volume;
        struct job_run job;
    } row;
    row_init(row_types[k].fields, &row);
    if (rec->doc && row_from_rec((enum row_kind)k, rec, &row, NULL) < 0)
        r->rows_watch(ROW_KINDS, NULL, NULL, NULL, r->rows_watch_arg);
    else
        r->rows_watch((enum row_kind)k, rec->id, NULL, rec->doc ? &row : NULL, r->rows_watch_arg);
    row_clear(row_types[k].fields, &row);
}

void rows_watch(struct records *r, rows_watch_fn *fn, void *arg)
{
    r->rows_watch = fn;
    r->rows_watch_arg = arg;
}

void records_tell_gone(struct records *r, enum rec_kind k, const char *id)
{
    struct rec gone = REC_INIT;
    snprintf(gone.id, sizeof gone.id, "%s", id);
    records_tell(r, k, &gone);
}

void records_tell_all(struct records *r)
{
    if (r->watch)
        r->watch(REC_KINDS, NULL, r->watch_arg);
    if (r->rows_watch)
        r->rows_watch(ROW_KINDS, NULL, NULL, NULL, r->rows_watch_arg);
}

void records_tell_end(struct records *r, bool undone)
{
    if (undone && r->told)
        records_tell_all(r);
    r->told = false;
}
