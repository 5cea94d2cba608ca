/* SPDX-License-Identifier: GPL-2.0-or-later */
/* engine-headline.c - one line for `systemctl status`: what runs, what waits, the first thing that is wrong */
#include "daemon/engine/engine-impl.h"

#include <stdio.h>

struct headline {
    unsigned backups, restores, others, queued, retrying;
    char retry[200]; /* the first one that is tried again */
};

static int count_operation(const struct operation *op, void *arg)
{
    struct headline *h = arg;
    if (op->state == OP_QUEUED) {
        h->queued++;
    } else if (op->state == OP_RETRYING) {
        if (!h->retrying++)
            snprintf(h->retry, sizeof h->retry, "%.180s", op->volume->name);
    } else if (op->kind == KIND_BACKUP) {
        h->backups++;
    } else if (op->kind == KIND_RESTORE) {
        h->restores++;
    } else {
        h->others++;
    }
    return 0;
}

struct line {
    char *out;
    size_t cap, len;
    unsigned parts;
};

static void add(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct line *l, const char *fmt, ...)
{
    va_list ap;
    if (l->len + 2 >= l->cap)
        return;
    if (l->parts++)
        l->len += (size_t)snprintf(l->out + l->len, l->cap - l->len, ", ");
    va_start(ap, fmt);
    int n = vsnprintf(l->out + l->len, l->cap - l->len, fmt, ap);
    va_end(ap);
    l->len += n > 0 ? (size_t)n : 0;
    if (l->len >= l->cap)
        l->len = l->cap - 1;
}

static void add_count(struct line *l, unsigned n, const char *one, const char *many)
{
    if (n)
        add(l, "%u %s", n, n == 1 ? one : many);
}

/* The worst first; the rest is counted. */
static void add_problem(struct engine *g, const struct headline *h, struct line *l)
{
    char first[400] = "";
    unsigned n = 0;
    if (records_degraded(g->records) && !n++)
        snprintf(first, sizeof first, "the records cannot be written");
    if (!g->reload_ok && !n++)
        snprintf(first, sizeof first, "the last reload was refused: %.300s", g->reload_error);
    for (const struct repo_health *r = g->repos; r; r = r->next)
        if (r->known && !r->up && !n++)
            snprintf(first, sizeof first, "repository \"%.64s\": %.300s", r->name, r->why);
        else if (r->known && repository_full(r) && !n++)
            snprintf(first, sizeof first, "repository \"%.64s\" is full", r->name);
    const char *job, *why;
    const unsigned failing = schedule_failing(g->schedule, &job, &why);
    if (failing && !n)
        snprintf(first, sizeof first, "job \"%.64s\" could not be started: %.300s", job, why);
    n += failing;
    if (steps_stuck(g->steps) && !n++)
        snprintf(first, sizeof first, "%u pieces of work hang in the kernel", steps_stuck(g->steps));
    if (h->retrying && !n++)
        snprintf(first, sizeof first, "%s is tried again", h->retry);
    if (!n)
        return;
    l->parts = 0;
    if (l->len + 2 < l->cap)
        l->len += (size_t)snprintf(l->out + l->len, l->cap - l->len, "; ");
    add(l, "%s", first);
    if (n > 1)
        add(l, "%u more problems", n - 1);
}

void engine_headline(struct engine *g, char *out, size_t cap)
{
    struct headline h = {0};
    struct line l = {.out = out, .cap = cap};
    const struct operation_filter live = {.live = true};
    out[0] = '\0';
    operation_each(g->records, &live, count_operation, &h, NULL);
    if (!cfg_daemon(g->cfg)->slots)
        add(&l, "Maintenance mode");
    add_count(&l, h.backups, "backup running", "backups running");
    add_count(&l, h.restores, "restore running", "restores running");
    add_count(&l, h.others, "other task running", "other tasks running");
    add_count(&l, h.queued, "queued", "queued");
    add_count(&l, h.retrying, "waiting for another attempt", "waiting for another attempt");
    if (!l.parts)
        add(&l, "Idle");
    add_problem(g, &h, &l);
}
