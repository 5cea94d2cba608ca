/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * transactions.c - changes are made in memory and written together
 *
 * Crash points: records-commit (all written, not yet durable), records-committed (durable, the caller not yet told).
 */
#include "daemon/records/records-impl.h"

#include "base/crash.h"
#include "base/time.h"

#include <errno.h>

uint64_t records_next_seq(struct records *r)
{
    return r->next_seq++;
}

/* ---- who watches ---- */

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

/* All of the transaction is undone, which is reported as well. */
static void undo(struct records *r)
{
    for (const struct object *obj = r->image.changed; obj; obj = obj->next_changed)
        if (obj->now || obj->was)
            report(r, obj->kind, obj->id, obj->now, obj->was);
    image_undo(&r->image);
}

/* ---- begin, commit ---- */

int records_ready(struct records *r, struct err *e)
{
    if (r->depth > 0)
        return 0;
    r->corrupt |= records_integrity_bad(r);
    if (!r->corrupt)
        return 0;
    if (mono_ns() < r->recover_after)
        return err_set(e, ERR_DAMAGE, EBADMSG, "%s is damaged and could not be replaced yet", r->path);
    int rc = records_recover(r, e);
    if (rc >= 0)
        report(r, ROW_KINDS, "", NULL, NULL);
    return rc;
}

static int refuse_doomed(struct err *e)
{
    return err_set(e, ERR_GENERIC, ECANCELED, "the transaction of the records was undone by an earlier failure in it");
}

int records_tx_begin(struct records *r, struct err *e)
{
    if (r->depth > 0 && (r->doomed || r->corrupt))
        return refuse_doomed(e); /* what is written now would stand alone */
    int rc = records_ready(r, e);
    if (rc < 0)
        return rc;
    r->depth++;
    return 0;
}

static int write_all(struct records *r, struct err *e)
{
    int rc = records_sql_begin(r, e);
    if (rc < 0)
        return rc;
    rc = records_write_changes(r, e);
    if (rc >= 0)
        crash_point("records-commit");
    return records_sql_end(r, rc, e);
}

static int commit(struct records *r, struct err *e)
{
    bool rows = image_is_changed(&r->image) || r->next_seq != r->seq_written;
    if (!rows && !r->counters_dirty)
        return 0;
    int rc = write_all(r, e);
    if (rc < 0)
        return rc;
    crash_point("records-committed");
    r->seq_written = r->next_seq;
    records_counters_written(r);
    r->degraded = false; /* something reached the disk */
    image_settle(&r->image);
    return 0;
}

int records_tx_end(struct records *r, int rc, struct err *e)
{
    if (--r->depth > 0)
        return rc >= 0 && r->doomed ? refuse_doomed(e) : rc;
    if (rc >= 0 && (r->doomed || r->corrupt))
        rc = refuse_doomed(e);
    if (rc >= 0) {
        int fail = commit(r, e);
        rc = fail < 0 ? fail : rc;
    }
    if (rc < 0)
        undo(r);
    r->doomed = false;
    return rc;
}

int records_begin(struct records *r, struct err *e)
{
    int rc = records_refuse_read_only(r, e);
    return rc < 0 ? rc : records_tx_begin(r, e);
}

int records_commit(struct records *r, struct err *e)
{
    if (r->depth == 0)
        return err_set(e, ERR_GENERIC, EINVAL, "there is no transaction of the records to commit");
    return records_tx_end(r, 0, e);
}

void records_rollback(struct records *r)
{
    if (r->depth == 0)
        return;
    undo(r);
    r->doomed = --r->depth > 0;
}

uint64_t records_write_errors(const struct records *r)
{
    return r->write_errors;
}

bool records_degraded(const struct records *r)
{
    return r->degraded;
}
