/* SPDX-License-Identifier: GPL-2.0-or-later */
/* watch.c - changes of rows are reported to the watchers as they are made, and as they are undone */
#include "daemon/records/records-impl.h"

#include <errno.h>

int rows_watch(struct records *r, rows_watch_fn *fn, void *arg)
{
    if (r->n_watchers == WATCHERS_MAX)
        return -ENOBUFS;
    r->watchers[r->n_watchers++] = (struct watcher){fn, arg};
    return 0;
}

void rows_unwatch(struct records *r, const void *arg)
{
    unsigned n = 0;
    for (unsigned i = 0; i < r->n_watchers; i++)
        if (r->watchers[i].arg != arg)
            r->watchers[n++] = r->watchers[i];
    r->n_watchers = n;
}

static void report(const struct records *r, enum row_kind k, const char *id, const struct version *was,
                   const struct version *now)
{
    for (unsigned i = 0; i < r->n_watchers; i++)
        r->watchers[i].fn(k, id, was ? was->data : NULL, now ? now->data : NULL, r->watchers[i].arg);
}

void records_report_change(const struct records *r, const char *id, const struct version *was,
                           const struct version *now)
{
    report(r, was ? was->kind : now->kind, id, was, now);
}

void records_report_replaced(const struct records *r)
{
    report(r, ROW_KINDS, "", NULL, NULL);
}

void records_report_undone(const struct object *obj, const struct version *from, const struct version *to, void *arg)
{
    if (from || to)
        report(arg, obj->kind, obj->id, from, to);
}

void records_undo(struct records *r)
{
    for (const struct object *obj = r->image.changed; obj; obj = obj->next_changed)
        records_report_undone(obj, obj->now, obj->was, r);
    image_undo(&r->image);
}
