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

struct blockers {
    const struct backup *b;
    unsigned position;
    char *by;
};

/* Texts are shared: equal ones have one address. */
static bool overlap(const struct backup *a, const struct backup *b)
{
    for (unsigned i = 0; i < a->volume_ids.n; i++)
        for (unsigned k = 0; k < b->volume_ids.n; k++)
            if (a->volume_ids.v[i] == b->volume_ids.v[k])
                return true;
    return false;
}

static int find_blocker(const struct backup *r, void *arg)
{
    struct blockers *x = arg;
    const bool queued = r->state == BACKUP_QUEUED;
    if (!strcmp(r->id, x->b->id) || is_restore(r) || (queued && r->seq > x->b->seq))
        return 0;
    x->position += queued;
    if (!x->by[0] && overlap(r, x->b))
        snprintf(x->by, 192, "%s", r->id);
    return 0;
}

unsigned backup_position(struct decide *d, const struct backup *b, char by[192])
{
    struct blockers x = {.b = b, .position = 1, .by = by};
    const struct backup_filter live = {.live = true};
    by[0] = '\0';
    backup_each(d->records, &live, find_blocker, &x, NULL);
    return x.position;
}

/* Texts by address: the volumes of backups that go first. */
struct volume_set {
    const char **v;
    size_t n, cap; /* cap: a power of two */
};

static size_t volume_slot(const struct volume_set *s, const char *id)
{
    size_t at = ((uintptr_t)id >> 4) * 0x9E3779B97F4A7C15u & (s->cap - 1);
    while (s->v[at] && s->v[at] != id)
        at = (at + 1) & (s->cap - 1);
    return at;
}

static int volume_set_add(struct volume_set *s, const char *id)
{
    if (2 * (s->n + 1) > s->cap) {
        struct volume_set more = {.cap = s->cap ? 2 * s->cap : 64};
        more.v = calloc(more.cap, sizeof *more.v);
        if (!more.v)
            return -ENOMEM;
        for (size_t i = 0; i < s->cap; i++)
            if (s->v[i])
                more.v[volume_slot(&more, s->v[i])] = s->v[i];
        more.n = s->n;
        free(s->v);
        *s = more;
    }
    const size_t at = volume_slot(s, id);
    s->n += !s->v[at];
    s->v[at] = id;
    return 0;
}

struct begin {
    struct decide *decide;
    struct volume_set taken;
    unsigned running;
    json_t *ids; /* those that may begin */
};

static int take_volumes(struct begin *x, const struct backup *b)
{
    int rc = 0;
    for (unsigned i = 0; i < b->volume_ids.n && rc == 0; i++)
        rc = volume_set_add(&x->taken, b->volume_ids.v[i]);
    return rc;
}

static int note_running(const struct backup *b, void *arg)
{
    struct begin *x = arg;
    if (b->state == BACKUP_QUEUED || is_restore(b))
        return 0;
    x->running += b->state == BACKUP_SNAPSHOTTING;
    return take_volumes(x, b);
}

/* Never before an earlier one with the same volumes: no starvation (AO-47). */
static int note_queued(const struct backup *b, void *arg)
{
    struct begin *x = arg;
    bool blocked = is_aside(x->decide, b->id) || x->running >= cfg_daemon(x->decide->world.cfg)->concurrent_backups;
    if (b->state != BACKUP_QUEUED || b->cancel)
        return 0;
    for (unsigned i = 0; i < b->volume_ids.n && x->taken.cap && !blocked; i++)
        blocked = x->taken.v[volume_slot(&x->taken, b->volume_ids.v[i])] != NULL;
    if (!blocked) {
        x->running += !is_restore(b);
        json_array_append_new(x->ids, json_string(b->id));
    }
    return is_restore(b) ? 0 : take_volumes(x, b);
}

static void begin(struct decide *d, const char *id)
{
    CLEANUP(backup_clear) struct backup b;
    const struct board_run *r = board_run(d->board, id);
    if (backup_read(d, id, &b) < 0 || b.state != BACKUP_QUEUED || !r || !r->live)
        return;
    b.started_ns = decide_now(d);
    if (backup_become(d, &b, is_restore(&b) ? BACKUP_MOVING : BACKUP_SNAPSHOTTING) == 0)
        plan_crash_point(d, "engine-backup-snapshotting");
}

void begin_backups(struct decide *d, unsigned n)
{
    struct begin x = {.decide = d, .ids = json_array()};
    const struct backup_filter live = {.live = true};
    const json_t *id;
    size_t i;
    if (backup_each(d->records, &live, note_running, &x, NULL) == 0 &&
        backup_each(d->records, &live, note_queued, &x, NULL) == 0)
        json_array_foreach(x.ids, i, id) if (i < n) unit_of_row(d, ROW_BACKUP, json_string_value(id), begin);
    d->backups_changed |= json_array_size(x.ids) > n;
    free(x.taken.v);
    json_decref(x.ids);
}
