/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * commit.c - a transaction goes to disk: in place, or in a thread while the event loop goes on
 *
 * The thread has the writing connection, the changed intents and a copy of the counters; the event loop's thread leaves
 * these alone until it has joined it. Rows in memory are as the transaction has made them from its start, and are read
 * by both: the thread makes the text of each when it writes it. Counts of references and lists belong to the event
 * loop's thread alone. What is read from disk meanwhile is as it was before or as it is afterwards: rows that the
 * transaction has changed are found in memory first.
 *
 * What has to be durable before the transaction (records_commit_before(), the file of holds) is synced by the thread,
 * too.
 *
 * Crash points: records-commit (all written, not yet durable), records-committed (durable, the caller has no result
 * yet).
 */
#include "daemon/records/records-impl.h"

#include "base/crash.h"
#include "daemon/records/fields.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

static int write_changes(struct commit *c)
{
    records_before_fn *before = c->before;
    c->before = NULL;
    int rc = before ? before(c->before_arg, &c->err) : 0;
    if (rc >= 0)
        rc = records_holds_prepare(&c->holds, &c->err);
    if (rc >= 0 && (rc = records_sql_begin(c->writer, &c->err)) >= 0) {
        rc = records_write_changes(c, &c->err);
        if (rc >= 0)
            crash_point("records-commit");
        rc = records_sql_end(c->writer, rc, &c->err);
        if (rc >= 0)
            crash_point("records-committed");
    }
    records_holds_finish(&c->holds, rc >= 0);
    return rc;
}

static void commit_run(struct commit *c)
{
    c->rc = c->work ? c->work(c->writer, c->work_arg, &c->err) : write_changes(c);
    eventfd_write(c->fd, 1);
}

/* ---- the thread ---- */

static void sem_take(sem_t *s)
{
    while (sem_wait(s) < 0 && errno == EINTR)
        ;
}

static void *commit_thread(void *arg)
{
    struct commit *c = arg;
    for (;;) {
        sem_take(&c->go);
        if (c->ends)
            return NULL;
        commit_run(c);
        sem_post(&c->done);
    }
}

/* False: there is no thread. One that was started is there for all commits. */
static bool thread_go(struct commit *c)
{
    if (!c->there) {
        if (sem_init(&c->go, 0, 0) < 0 || sem_init(&c->done, 0, 0) < 0)
            return false;
        c->ends = false;
        c->there = records_thread(&c->thread, commit_thread, c) == 0;
    }
    return c->there && sem_post(&c->go) == 0;
}

void records_commit_thread_end(struct records *r)
{
    struct commit *c = &r->commit;
    records_write_wait(r);
    if (!c->there)
        return;
    c->ends = true;
    sem_post(&c->go);
    pthread_join(c->thread, NULL);
    sem_destroy(&c->go);
    sem_destroy(&c->done);
    c->there = false;
}

/* Texts that several rows share are kept with them, which only the event loop's thread may change; the thread makes
 * the texts of rows, one at a time. */
static int share_texts(struct image *m, struct err *e)
{
    for (struct object *obj = m->changed; obj; obj = obj->next_changed)
        if (obj->now && fields_share_texts(row_types[obj->now->kind].fields, obj->now->data) < 0)
            return err_nomem(e);
    return 0;
}

static int commit_prepare(struct records *r, struct err *e)
{
    struct commit *c = &r->commit;
    int rc = share_texts(&r->image, e);
    if (rc >= 0)
        rc = records_holds_take(r, &c->holds, e);
    if (rc >= 0 && (rc = records_counters_take(r, false, &c->counters, e)) < 0)
        records_holds_ended(r, &c->holds, false);
    if (rc < 0)
        return rc;
    c->writer = &r->writer;
    c->image = &r->image;
    c->next_seq = r->next_seq;
    c->seq_changed = r->next_seq != r->seq_written;
    c->hold = r->hold;
    c->work = NULL;
    c->noted = (struct failures){.corrupt = false};
    c->err = (struct err)ERR_INIT;
    r->writer.noted = &c->noted;
    return 0;
}

void records_commit_before(struct records *r, records_before_fn *fn, void *arg)
{
    r->commit.before = fn;
    r->commit.before_arg = arg;
}

static void take_failures(struct records *r)
{
    const struct failures *x = &r->commit.noted;
    r->writer.noted = &r->noted;
    r->noted.corrupt |= x->corrupt;
    r->noted.sys = x->degraded ? x->sys : r->noted.sys;
    r->noted.degraded |= x->degraded;
    r->noted.write_errors += x->write_errors;
}

/* It has ended: what it left becomes known. Rows are settled, or left to be undone. */
static int commit_finish(struct records *r)
{
    struct commit *c = &r->commit;
    take_failures(r);
    records_counters_ended(r, &c->counters, c->rc >= 0, c->hold);
    records_holds_ended(r, &c->holds, c->rc >= 0);
    if (c->rc < 0)
        return c->rc;
    r->noted.degraded = false; /* something reached the disk */
    r->seq_written = c->next_seq;
    image_settle(&r->image);
    return 0;
}

int records_write_out(struct records *r, bool beside, struct err *e)
{
    struct commit *c = &r->commit;
    if (!image_is_changed(&r->image) && r->next_seq == r->seq_written && !r->counters_dirty && !r->holds.stale)
        return 0;
    int rc = commit_prepare(r, e);
    if (rc < 0)
        return rc;
    c->running = beside && r->reader.db && thread_go(c);
    if (c->running)
        return 1;
    c->rc = write_changes(c);
    rc = commit_finish(r);
    if (rc < 0 && e)
        *e = c->err;
    return rc;
}

void records_write_wait(struct records *r)
{
    struct commit *c = &r->commit;
    if (!c->running)
        return;
    sem_take(&c->done);
    c->running = false;
    if (c->work)
        take_failures(r);
    else if (commit_finish(r) < 0)
        records_undo(r);
    r->ended = true;
    r->ended_rc = c->rc;
    r->ended_err = c->err;
}

void records_beside(struct records *r, beside_fn *work, void *arg)
{
    struct commit *c = &r->commit;
    c->writer = &r->writer;
    c->work = work;
    c->work_arg = arg;
    c->noted = (struct failures){.corrupt = false};
    c->err = (struct err)ERR_INIT;
    c->rc = 0;
    r->writer.noted = &c->noted;
    c->running = r->reader.db && thread_go(c);
    if (c->running)
        return;
    commit_run(c);
    take_failures(r);
    r->ended = true;
    r->ended_rc = c->rc;
    r->ended_err = c->err;
}
