/* SPDX-License-Identifier: GPL-2.0-or-later */
/* begin.c - which of the queued backups may begin */
#include "base/cleanup.h"
#include "daemon/decide/decide.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_restore(const struct backup *b)
{
    return b->kind == KIND_RESTORE;
}

/* ---- whose volumes are in use (AO-47) ---- */

/* What goes before a queued backup: an operation of one of its volumes. */
struct blocking {
    struct decide *decide;
    const struct backup *b;
    unsigned busy, retrying;
    char by[192];             /* the backup of the first of them */
    char watch[BOARD_ID_MAX]; /* the last one that is at work; when it ends this is looked at again */
    json_t *retries;          /* those that wait for another attempt */
    const char **set;         /* its volumes, once they were asked for; a hash table of `mask` + 1 places */
    size_t mask;
};

/* Tried already, and waits: it has nothing but a native snapshot. One that was interrupted resumes soon. */
static bool is_in_backoff(const struct operation *op)
{
    return op->state == OP_RETRYING && op->attempt > 0;
}

static int note_operation(const struct operation *op, void *arg)
{
    struct blocking *x = arg;
    if (op->kind != KIND_BACKUP || op->seq > x->b->seq || !strcmp(op->parent, x->b->id))
        return 0;
    if (!x->by[0])
        snprintf(x->by, sizeof x->by, "%s", op->parent);
    if (is_in_backoff(op)) {
        x->retrying++;
        json_array_append_new(x->retries, json_string(op->id));
    } else {
        x->busy++;
        snprintf(x->watch, sizeof x->watch, "%s", op->id);
    }
    return 0;
}

/* Texts are shared: equal ones have one address. Where that is in the table, or would be. */
static size_t place_of(const struct blocking *x, const char *volume_id)
{
    size_t i = ((uintptr_t)volume_id >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20;
    for (i &= x->mask; x->set[i] && x->set[i] != volume_id; i = (i + 1) & x->mask)
        ;
    return i;
}

/* False: no memory. */
static bool set_make(struct blocking *x)
{
    size_t places = 16;
    if (x->set)
        return true;
    while (places < 2 * (size_t)x->b->volume_ids.n)
        places *= 2;
    if (!(x->set = calloc(places, sizeof *x->set)))
        return false;
    x->mask = places - 1;
    for (unsigned i = 0; i < x->b->volume_ids.n; i++)
        x->set[place_of(x, x->b->volume_ids.v[i])] = x->b->volume_ids.v[i];
    return true;
}

/* Whether it has a volume of the queued one. Without memory: it is as if it had, and the queued one is looked at again
 * when it has ended. */
static bool restore_overlaps(struct blocking *x, const struct backup *r)
{
    if (!set_make(x))
        return true;
    for (unsigned i = 0; i < r->volume_ids.n; i++)
        if (x->set[place_of(x, r->volume_ids.v[i])])
            return true;
    return false;
}

static void blocking_clear(struct blocking *x)
{
    json_decref(x->retries);
    free(x->set);
}

/* The volumes of a backup are free one by one, as their operations end; all at its end if hooks follow then. */
static int note_backup(const struct backup *r, void *arg)
{
    struct blocking *x = arg;
    const struct board_run *run = board_run(x->decide->board, r->id);
    const struct operation_filter of_it = {.parent = r->id, .live = true};
    const bool whole = r->state == BACKUP_FINALIZING || !run || run->hooked;
    if (is_restore(r) || r->state == BACKUP_QUEUED || r->seq > x->b->seq || !whole || !restore_overlaps(x, r))
        return 0;
    if (r->state == BACKUP_FINALIZING)
        x->busy++;
    else
        operation_each(x->decide->records, &of_it, note_operation, x, NULL);
    if (!x->by[0])
        snprintf(x->by, sizeof x->by, "%s", r->id);
    return 0;
}

static void blocking_of(struct decide *d, const struct backup *b, struct blocking *ret)
{
    const struct backup_filter live = {.live = true};
    *ret = (struct blocking){.decide = d, .b = b, .retries = json_array()};
    for (unsigned i = 0; i < b->volume_ids.n; i++) {
        const struct operation_filter f = {.volume_id = b->volume_ids.v[i], .live = true};
        operation_each(d->records, &f, note_operation, ret, NULL);
    }
    backup_each(d->records, &live, note_backup, ret, NULL);
}

struct place {
    const struct backup *b;
    unsigned position;
};
static int count_before(const struct backup *r, void *arg)
{
    struct place *x = arg;
    x->position += r->state == BACKUP_QUEUED && !is_restore(r) && r->seq < x->b->seq;
    return 0;
}

unsigned backup_position(struct decide *d, const struct backup *b, char by[192])
{
    const struct backup_filter live = {.live = true};
    struct place p = {b, 1};
    struct blocking x;
    backup_each(d->records, &live, count_before, &p, NULL);
    blocking_of(d, b, &x);
    blocking_clear(&x);
    memcpy(by, x.by, sizeof x.by);
    return p.position;
}

/* ---- which may begin ---- */

struct begin {
    struct decide *decide;
    unsigned running;
    json_t *ids, *retries; /* backups that may begin; operations that are not tried again -> for which backup */
};

static int note_running(const struct backup *b, void *arg)
{
    struct begin *x = arg;
    x->running += b->state == BACKUP_SNAPSHOTTING && !is_restore(b);
    return 0;
}

/* Never before an earlier one with the same volumes: no starvation (AO-47). */
static int note_queued(const struct backup *b, void *arg)
{
    struct begin *x = arg;
    struct decide *d = x->decide;
    struct blocking blocking = {.busy = 0};
    const json_t *id;
    size_t i;
    /* concurrent-backups is of those that take snapshots: a restore is not counted, and does not wait for them. */
    if (b->state != BACKUP_QUEUED || b->cancel || is_aside(d, b->id) ||
        (!is_restore(b) && x->running >= cfg_daemon(d->world.cfg)->concurrent_backups))
        return 0;
    if (!is_restore(b))
        blocking_of(d, b, &blocking);
    if (blocking.busy) {
        if (blocking.watch[0])
            board_watch(d->board, blocking.watch);
    } else if (blocking.retrying) {
        json_array_foreach(blocking.retries, i, id) jset_str(x->retries, json_string_value(id), b->id);
    } else {
        x->running += !is_restore(b);
        json_array_append_new(x->ids, json_string(b->id));
    }
    blocking_clear(&blocking);
    return 0;
}

/* What it would try again is done by a later backup, with newer data, which it would hold up. */
static void backup_supersede(struct decide *d, const char *id)
{
    CLEANUP(operation_clear) struct operation op;
    struct err e = ERR_INIT;
    char last[sizeof e.msg], stage[64];
    if (operation_read(d, id, &op) < 0 || !is_in_backoff(&op))
        return;
    op_error_to_err(&e, &op.error);
    snprintf(last, sizeof last, "%.900s", e.msg);
    snprintf(stage, sizeof stage, "%s", op.error.stage);
    err_plain(&e, e.cls, e.sys, "%s; not tried again: backup %s waits for its volumes", last, d->later);
    operation_fail(d, &op, stage, &e);
}

static void backup_begin_now(struct decide *d, const char *id)
{
    CLEANUP(backup_clear) struct backup b;
    const struct board_run *r = board_run(d->board, id);
    if (backup_read(d, id, &b) < 0 || b.state != BACKUP_QUEUED || !r || !r->live)
        return;
    b.started_ns = decide_now(d);
    b.clock_ns = 0;
    if (backup_become(d, &b, is_restore(&b) ? BACKUP_MOVING : BACKUP_SNAPSHOTTING) == 0)
        plan_crash_point(d, "engine-backup-snapshotting");
}

void begin_backups(struct decide *d, unsigned n)
{
    struct begin x = {.decide = d, .ids = json_array(), .retries = json_object()};
    const struct backup_filter live = {.live = true};
    const json_t *id;
    const char *operation;
    json_t *later;
    size_t i, k = 0;
    if (backup_each(d->records, &live, note_running, &x, NULL) == 0 &&
        backup_each(d->records, &live, note_queued, &x, NULL) == 0) {
        json_array_foreach(x.ids, i, id) if (k++ < n)
            unit_of_row(d, ROW_BACKUP, json_string_value(id), backup_begin_now);
        json_object_foreach(x.retries, operation, later)
        {
            d->later = json_string_value(later);
            if (k++ < n)
                unit_of_row(d, ROW_OPERATION, operation, backup_supersede);
        }
    }
    d->later = NULL;
    d->backups_changed |= k > n;
    json_decref(x.ids);
    json_decref(x.retries);
}
