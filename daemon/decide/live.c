/* SPDX-License-Identifier: GPL-2.0-or-later */
/* live.c - what is known of rows only while the daemon lives, and events that wait for their turn */
#include "daemon/decide/decide.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct live **bucket_of(const struct decide *d, const char *id)
{
    uint32_t h = 2166136261u;
    for (const char *p = id; *p; p++)
        h = (h ^ (uint8_t)*p) * 16777619u;
    return &d->live[h & (LIVE_BUCKETS - 1)];
}

struct live *live_find(const struct decide *d, const char *id)
{
    for (struct live *l = *bucket_of(d, id); l; l = l->next)
        if (!strcmp(l->id, id))
            return l;
    return NULL;
}

struct live *live_get(struct decide *d, const char *id)
{
    struct live *l = live_find(d, id), **bucket = bucket_of(d, id);
    if (l)
        return l;
    const size_t len = strlen(id) + 1;
    l = calloc(1, sizeof *l + len);
    if (!l)
        return NULL;
    memcpy(l->id, id, len);
    l->changes_fd = -1;
    l->next = *bucket;
    *bucket = l;
    return l;
}

void live_forget_changes(struct live *l)
{
    if (l->changes_fd >= 0)
        close(l->changes_fd);
    l->changes_fd = -1;
    l->changes_asked = false;
}

void live_drop(struct decide *d, const char *id)
{
    for (struct live **p = bucket_of(d, id); *p; p = &(*p)->next) {
        struct live *l = *p;
        if (strcmp(l->id, id) != 0 || l->step || l->events)
            continue;
        *p = l->next;
        json_decref(l->progress);
        live_forget_changes(l);
        free(l);
        return;
    }
}

/* Of an operation that waits for its turn nothing is to be remembered: there may be many of them. */
void live_tidy(struct decide *d, const char *id)
{
    const struct live *l = live_find(d, id);
    if (l && !l->working && !l->mover && !l->cancel_failed && !l->found && !l->undone && !l->progress)
        live_drop(d, id);
}

static bool is_planned(const struct decide *d, const struct live *l)
{
    return (d->in_turn || d->in_flight) && l->planned == d->turn;
}

bool busy(const struct decide *d, const char *id)
{
    const struct live *l = live_find(d, id);
    return l && (l->working || l->events || is_planned(d, l));
}

bool has_mover(const struct decide *d, const char *id)
{
    const struct live *l = live_find(d, id);
    return l && (l->mover || is_planned(d, l));
}

bool mover_was_undone(const struct live *l, const struct operation *op)
{
    return l && l->undone && op->state != OP_RUNNING && op->state != OP_CANCELLING;
}

void decide_look_at(struct decide *d, enum row_kind k, const char *id)
{
    if (k == ROW_BACKUP)
        board_mark_backup(d->board, id);
    else
        board_mark(d->board, id);
}

void decide_look_again(struct decide *d, enum row_kind k, const char *id)
{
    strs_add(k == ROW_OPERATION ? &d->again_ops : &d->again, id);
}

/* ---- events ---- */

struct event *event_new(enum event_kind kind, enum row_kind row, const char *id)
{
    struct event *ev = calloc(1, sizeof *ev);
    if (!ev)
        return NULL;
    ev->kind = kind;
    ev->row = row;
    ev->result.fd = -1;
    step_answer_init(&ev->result.asked);
    step_answer_init(&ev->result.answer);
    ev->report.status = -1;
    snprintf(ev->id, sizeof ev->id, "%s", id);
    return ev;
}

void event_free(struct event *ev)
{
    if (!ev)
        return;
    if (ev->result.fd >= 0)
        close(ev->result.fd);
    step_answer_clear(&ev->result.asked);
    step_answer_clear(&ev->result.answer);
    json_decref(ev->result.in);
    json_decref(ev->result.out);
    json_decref(ev->identity);
    json_decref(ev->report.result);
    free(ev);
}

static void event_add(struct decide *d, struct event *ev)
{
    ev->next = NULL;
    *d->events_end = ev;
    d->events_end = &ev->next;
}

void event_post(struct decide *d, struct event *ev)
{
    struct live *l = live_get(d, ev->id);
    if (l)
        l->events++;
    event_add(d, ev);
}

/* ---- requests ---- */

int request_post(struct decide *d, const struct request *q)
{
    struct event *ev = event_new(EVENT_REQUEST, ROW_KINDS, "");
    if (!ev)
        return -ENOMEM;
    ev->request = *q;
    event_add(d, ev);
    return 0;
}

bool requests_wait(const struct decide *d)
{
    for (const struct event *ev = d->events; ev; ev = ev->next)
        if (ev->kind == EVENT_REQUEST)
            return true;
    return false;
}

void requests_refuse(struct decide *d, const struct err *e)
{
    struct event *first = NULL, **end = &first;
    if (d->unit && d->unit->kind == EVENT_REQUEST)
        d->unit = NULL;
    d->part = NULL;
    d->events_end = &d->events;
    for (struct event *ev; (ev = *d->events_end);) {
        if (ev->kind != EVENT_REQUEST) {
            d->events_end = &ev->next;
            continue;
        }
        *d->events_end = ev->next;
        ev->next = NULL;
        *end = ev;
        end = &ev->next;
    }
    for (struct event *ev = first, *next; ev; ev = next) {
        next = ev->next;
        ev->request.ended(e, ev->request.arg); /* which may post others */
        event_free(ev);
    }
}
