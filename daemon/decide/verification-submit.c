/* SPDX-License-Identifier: GPL-2.0-or-later */
/* verification-submit.c - a verification by schedule is queued: one of a repository at a time */
#include "daemon/decide/verification.h"

#include "base/cleanup.h"

#include <errno.h>
#include <string.h>

static int is_of(const struct operation *op, void *arg)
{
    return op->kind == KIND_VERIFY && !strcmp(op->policy->repository, arg) ? 1 : 0;
}

int verification_submit(struct decide *d, const struct cfg_repository *r, struct err *e)
{
    const struct operation_filter live = {.live = true};
    const struct verify_memory *m = verification_known(d->records, r->name);
    const int64_t from = m ? m->from_ppm : 0;
    CLEANUP(operation_clear) struct operation op;
    char id[512];
    operation_init(&op);
    int rc = operation_each(d->records, &live, is_of, (void *)(uintptr_t)r->name, e);
    if (rc > 0)
        return err_plain(e, ERR_BUSY, EBUSY, "repository \"%s\" is being verified", r->name);
    if (rc < 0)
        return rc;
    op.read_percent = (double)r->verification_read_ppm * 100 / VERIFY_SHARES;
    op.read_from_ppm = from >= 0 && from < VERIFY_SHARES ? from : 0;
    return admin_add(d, KIND_VERIFY, "verify", r->name, &op, NULL, id, e);
}
