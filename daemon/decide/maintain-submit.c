/* SPDX-License-Identifier: GPL-2.0-or-later */
/* maintain-submit.c - a run of maintenance is queued: one of a repository at a time (CF-35) */
#include "daemon/decide/maintain.h"

#include "base/cleanup.h"

#include <errno.h>
#include <string.h>

struct running {
    const char *repository;
    char id[512];
};
static int note_running(const struct operation *op, void *arg)
{
    struct running *x = arg;
    if (op->kind == KIND_MAINTAIN && !strcmp(op->policy->repository, x->repository))
        snprintf(x->id, sizeof x->id, "%s", op->id);
    return 0;
}

int maintain_submit(struct decide *d, const char *repository, const struct maintain_order *order, char id[512],
                    struct err *e)
{
    const struct operation_filter live = {.live = true};
    struct running x = {.repository = repository};
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    int rc = operation_each(d->records, &live, note_running, &x, e);
    if (rc < 0)
        return rc;
    if (x.id[0]) {
        memcpy(id, x.id, sizeof x.id);
        err_plain(e, ERR_BUSY, EBUSY, "maintenance of repository \"%s\" is under way: %s", repository, x.id);
        return err_hint(e, "`snapferry wait %s` shows its progress", x.id);
    }
    op.maintain.there = true;
    op.maintain.full = order->full;
    op.maintain.dry_run = order->dry_run;
    op.maintain.unsafe = order->unsafe;
    op.maintain.scheduled = order->scheduled;
    return admin_add(d, KIND_MAINTAIN, order->full ? "maintain-full" : "maintain", repository, &op, NULL, id, e);
}
