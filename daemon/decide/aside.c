/* SPDX-License-Identifier: GPL-2.0-or-later */
/* aside.c - units of a turn, and what is kept aside because it cannot be recorded */
#include "base/time.h"
#include "daemon/decide/decide.h"

#include <stdlib.h>
#include <string.h>

#define AGAIN_MIN_S 10
#define AGAIN_MAX_S 300

static struct aside *aside_find(const struct decide *d, const char *id)
{
    struct aside *a = d->asides;
    while (a && strcmp(a->id, id) != 0)
        a = a->next;
    return a;
}

bool is_aside(const struct decide *d, const char *id)
{
    const struct aside *a = d->asides ? aside_find(d, id) : NULL;
    return a && a->until_ns;
}

/* 10 s, 20 s ... */
static int64_t pause_ns(unsigned tries)
{
    const int64_t s = tries > 5 ? AGAIN_MAX_S : AGAIN_MIN_S << tries;
    return (s > AGAIN_MAX_S ? AGAIN_MAX_S : s) * NS_PER_S;
}

void aside_add(struct decide *d, enum row_kind k, const char *id, const struct err *e)
{
    const size_t len = strlen(id) + 1;
    const int64_t now = decide_now(d);
    struct aside *a = aside_find(d, id);
    if (!a) {
        a = calloc(1, sizeof *a + len);
        if (!a)
            return; /* tried again in the next turn */
        memcpy(a->id, id, len);
        a->kind = k;
        a->since_ns = now;
        a->next = d->asides;
        d->asides = a;
        log_warning("%s cannot be recorded, retrying; other operations continue: %s", id, e->msg);
    }
    a->err = *e;
    a->until_ns = now + pause_ns(a->tries++);
    a->tried = false;
}

static bool is_live(const struct decide *d, const struct aside *a)
{
    return a->kind == ROW_BACKUP ? backup_peek(d->records, a->id) != NULL : operation_peek(d->records, a->id) != NULL;
}

void asides_due(struct decide *d)
{
    const int64_t now = decide_now(d);
    for (struct aside **at = &d->asides; *at;) {
        struct aside *a = *at;
        const bool due = a->until_ns <= now || a->until_ns > now + AGAIN_MAX_S * NS_PER_S; /* the clock was set back */
        if (due && !is_live(d, a)) { /* it has ended by other means */
            *at = a->next;
            free(a);
            continue;
        }
        if (due) {
            a->until_ns = 0;
            decide_look_at(d, a->kind, a->id);
        }
        at = &a->next;
    }
}

void aside_tried(struct decide *d, const char *id)
{
    struct aside *a = d->asides ? aside_find(d, id) : NULL;
    if (a)
        a->tried = true;
}

void asides_settle(struct decide *d, bool durable)
{
    for (struct aside **at = &d->asides; *at;) {
        struct aside *a = *at;
        if (durable && a->tried && !a->until_ns) {
            *at = a->next;
            log_info("%s can be recorded again", a->id);
            free(a);
        } else {
            a->tried = false;
            at = &a->next;
        }
    }
}

int64_t asides_wake(const struct decide *d)
{
    int64_t first = 0;
    for (const struct aside *a = d->asides; a; a = a->next)
        if (a->until_ns && (!first || a->until_ns < first))
            first = a->until_ns;
    return first;
}

void asides_free(struct decide *d)
{
    while (d->asides) {
        struct aside *a = d->asides;
        d->asides = a->next;
        free(a);
    }
}

/* ---- units ---- */

void unit_begin(struct decide *d)
{
    records_savepoint(d->records);
    d->unit_acts = d->plan.n;
    d->plan.err = (struct err)ERR_INIT;
}

bool unit_end(struct decide *d)
{
    struct plan *p = &d->plan;
    d->units++;
    if (!p->failed) {
        records_savepoint_keep(d->records);
        return true;
    }
    records_savepoint_undo(d->records);
    plan_cut(p, d->unit_acts);
    p->failed = false;
    if (!p->err.cls)
        err_nomem(&p->err);
    return false;
}

void unit_of_row(struct decide *d, enum row_kind k, const char *id, unit_fn *fn)
{
    if (is_aside(d, id))
        return;
    unit_begin(d);
    fn(d, id);
    d->unit = NULL;
    d->unit_row = k;
    snprintf(d->unit_id, sizeof d->unit_id, "%s", id);
    if (unit_end(d))
        aside_tried(d, id);
    else
        aside_add(d, k, id, &d->plan.err);
}
