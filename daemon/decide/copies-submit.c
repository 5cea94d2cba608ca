/* SPDX-License-Identifier: GPL-2.0-or-later */
/* copies-submit.c - a run of a copy is queued: one of each copy at a time */
#include "daemon/decide/copies.h"

#include "base/cleanup.h"

#include <errno.h>
#include <string.h>

struct running {
    const char *copy;
    char *id;
};
static int note_running(const struct operation *op, void *arg)
{
    struct running *x = arg;
    if (op->kind != KIND_COPY || strcmp(op->target_name, x->copy) != 0)
        return 0;
    snprintf(x->id, 512, "%s", op->id);
    return 1;
}

int copy_submit(struct decide *d, const struct cfg_copy *k, struct copy_allow allow, char id[512], struct err *e)
{
    const struct operation_filter live = {.live = true};
    struct running x = {k->name, id};
    CLEANUP(operation_clear) struct operation op;
    operation_init(&op);
    int rc = operation_each(d->records, &live, note_running, &x, e);
    if (rc > 0) {
        err_plain(e, ERR_BUSY, EBUSY, "copy \"%s\" is under way: %s", k->name, id);
        return err_hint(e, "`snapferry wait %s` shows its progress", id);
    }
    if (rc < 0 || str_set(&op.target_name, k->name) < 0)
        return rc < 0 ? rc : err_nomem(e);
    op.verify = k->verify;
    op.overwrite = allow.anew;
    op.force = allow.delete_most;
    return admin_add(d, KIND_COPY, "copy", k->repository, &op, NULL, id, e);
}
