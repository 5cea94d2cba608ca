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
}

void records_tell_end(struct records *r, bool undone)
{
    if (undone && r->told)
        records_tell_all(r);
    r->told = false;
}
