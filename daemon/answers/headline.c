/* SPDX-License-Identifier: GPL-2.0-or-later */
/* headline.c - one line for `systemctl status`: what runs, what waits, the first problem */
#include "daemon/answers/answers-impl.h"

#include "base/units.h"

#include <stdarg.h>
#include <stdio.h>

struct headline {
    unsigned retrying;
    char retry[200]; /* the first one that is tried again */
};

static struct headline find_retried(const struct answer_facts *f)
{
    struct headline h = {.retrying = overview_counts(f->overview).retrying};
    const char *id = h.retrying ? overview_troubled_at(f->overview, 0) : NULL;
    const struct operation *op = id ? operation_peek(f->records, id) : NULL;
    if (op)
        snprintf(h.retry, sizeof h.retry, "%.180s", op->volume->name);
    return h;
}

struct line {
    char *out;
    size_t cap, len;
    unsigned parts;
};

static void add_part(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_part(struct line *l, const char *fmt, ...)
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
        add_part(l, "%u %s", n, n == 1 ? one : many);
}

/* The worst first; the rest is counted. */
static unsigned count_problems(const struct answer_facts *f, const struct headline *h, char *first, size_t cap)
{
    const struct answer_daemon *d = f->daemon;
    unsigned n = 0;
    if (d && d->degraded && !n++)
        snprintf(first, cap, "the records cannot be written");
    if (d && d->detached && !n++)
        snprintf(first, cap, "the file of the records was removed or replaced");
    if (!f->config.ok && !n++)
        snprintf(first, cap, "the last reload was refused: %.300s", f->config.error);
    for (unsigned i = 0; i < f->n_repositories; i++) {
        const struct answer_repository *r = &f->repositories[i];
        if (!r->up && !n++)
            snprintf(first, cap, "repository \"%.64s\": %.300s", r->name, r->why);
        else if (r->full && !n++)
            snprintf(first, cap, "repository \"%.64s\" is full", r->name);
    }
    if (f->failing && !n)
        snprintf(first, cap, "job \"%.64s\" could not be started: %.300s", f->failing_job, f->failing_why);
    n += f->failing;
    if (d && d->stuck && !n++)
        snprintf(first, cap, "%u piece%s of work %s in the kernel", d->stuck, plural(d->stuck),
                 d->stuck == 1 ? "hangs" : "hang");
    if (h->retrying && !n++)
        snprintf(first, cap, "%s is tried again", h->retry);
    return n;
}

void answer_headline(const struct answer_facts *facts, char *out, size_t cap)
{
    struct answer_facts own = *facts;
    const struct answer_facts *f = &own;
    CLEANUP(overview_freep) struct overview *made = overview_of_facts(&own);
    (void)made;
    out[0] = '\0';
    if (!own.overview)
        return;
    const struct headline h = find_retried(f);
    const struct overview_counts c = overview_counts(f->overview);
    struct line l = {.out = out, .cap = cap};
    char first[400] = "";
    if (f->cfg && !cfg_daemon(f->cfg)->slots)
        add_part(&l, "Maintenance mode");
    add_count(&l, c.running[KIND_BACKUP], "backup running", "backups running");
    add_count(&l, c.running[KIND_RESTORE], "restore running", "restores running");
    add_count(&l,
              c.running[KIND_NONE] + c.running[KIND_VERIFY] + c.running[KIND_ADMIN] + c.running[KIND_DELETE] +
                  c.running[KIND_MAINTAIN] + c.running[KIND_COPY],
              "other task running", "other tasks running");
    add_count(&l, c.queued, "queued", "queued");
    add_count(&l, c.retrying, "waiting for another attempt", "waiting for another attempt");
    if (!l.parts)
        add_part(&l, "Idle");
    const unsigned problems = count_problems(f, &h, first, sizeof first);
    if (!problems)
        return;
    l.parts = 0;
    if (l.len + 2 < l.cap)
        l.len += (size_t)snprintf(l.out + l.len, l.cap - l.len, "; ");
    add_part(&l, "%s", first);
    if (problems > 1)
        add_part(&l, "%u more problem%s", problems - 1, plural(problems - 1));
}
