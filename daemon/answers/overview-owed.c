/* SPDX-License-Identifier: GPL-2.0-or-later */
/* overview-owed.c - outcomes that are not recorded in their repository yet, counted as their operations change */
#include "daemon/answers/overview-impl.h"

#include <stdlib.h>
#include <string.h>

#define OWING(node) RANKED_OF(node, struct overview_owing, by_age)

static bool owed_older(const struct ranked_node *a, const struct ranked_node *b)
{
    const struct overview_owing *x = OWING(a), *y = OWING(b);
    return x->created_ns != y->created_ns ? x->created_ns < y->created_ns : x->seq < y->seq;
}

static struct overview_debtor *debtor_get(struct overview_debtor **list, char *repository)
{
    for (struct overview_debtor *d = *list; d; d = d->next)
        if (!strcmp(d->repository, repository))
            return d;
    struct overview_debtor *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    *d = (struct overview_debtor){.next = *list, .repository = str_ref(repository), .by_age = RANKED_INIT(owed_older)};
    *list = d;
    return d;
}

static void owing_free(struct overview_debtor **list, struct overview_owing *o)
{
    struct overview_debtor *d = o->in, **at = list;
    ranked_remove(&d->by_age, &o->by_age);
    d->backups -= o->backups;
    str_clear(&o->id);
    free(o);
    if (ranked_n(&d->by_age))
        return;
    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
    str_clear(&d->repository);
    free(d);
}

struct overview_owing *overview_owing_set(struct overview_debtor **list, struct overview_owing *old,
                                          const struct operation *now, bool *failed)
{
    if (old)
        owing_free(list, old);
    if (!now || !now->records.n)
        return NULL;
    struct overview_owing *o = calloc(1, sizeof *o);
    struct overview_debtor *d = o ? debtor_get(list, now->policy->repository) : NULL;
    if (!d) {
        free(o);
        *failed = true;
        return NULL;
    }
    *o = (struct overview_owing){
        .in = d, .id = str_ref(now->id), .seq = now->seq, .created_ns = now->created_ns, .backups = now->records.n};
    ranked_add(&d->by_age, &o->by_age);
    d->backups += o->backups;
    return o;
}

struct overview_owed overview_owed_in(const struct overview_debtor *list, const char *repository)
{
    const struct overview_debtor *d = list;
    while (d && strcmp(d->repository, repository) != 0)
        d = d->next;
    if (!d)
        return (struct overview_owed){.backups = 0};
    const struct overview_owing *first = OWING(ranked_at(&d->by_age, 0));
    return (struct overview_owed){d->backups, first->created_ns, first->id};
}
