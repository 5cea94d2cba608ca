/* SPDX-License-Identifier: GPL-2.0-or-later */
/* run-copy.c - a mover's copy of a repository to another store (docs/mover.md) */
#include "daemon/mover/agent/agent.h"
#include "daemon/mover/agent/place.h"
#include "daemon/mover/mover.h"
#include "repo/copy.h"

#include "base/cleanup.h"
#include "base/time.h"

#include <errno.h>

#define FOR_EACH (UINT64_C(24) << 20) /* of its memory for each blob that is copied at the same time */
#define AT_ONCE_MAX 8

static void put_sum(json_t *o, const char *count, const char *bytes, const struct copy_sum *s)
{
    json_object_set_new(o, count, json_integer((json_int_t)s->n));
    json_object_set_new(o, bytes, json_integer((json_int_t)s->bytes));
}

/* As far as it came. */
static void put_numbers(json_t *result, const struct copy_result *r, bool verified, double seconds)
{
    json_t *o = json_pack("{s:f, s:i, s:b}", "seconds", seconds, "rounds", (int)r->rounds, "verified", (int)verified);
    put_sum(o, "copiedBlobs", "copiedBytes", &r->copied);
    put_sum(o, "presentBlobs", "presentBytes", &r->present);
    put_sum(o, "surplusBlobs", "surplusBytes", &r->surplus);
    put_sum(o, "deletedBlobs", "deletedBytes", &r->deleted);
    put_sum(o, "heldBlobs", "heldBytes", &r->held);
    put_sum(o, "lostBlobs", "lostBytes", &r->lost);
    put_sum(o, "leftovers", "leftoverBytes", &r->left);
    put_sum(o, "extendedBlobs", "extendedBytes", &r->extended);
    json_object_set_new(result, "copy", o);
}

static unsigned at_once(const struct job_limits *l)
{
    const uint64_t n = (l->memory ? l->memory : MEMORY_DEFAULT) / FOR_EACH;
    return n < 1 ? 1 : n > AT_ONCE_MAX ? AT_ONCE_MAX : (unsigned)n;
}

int run_copy(struct run_context *x, struct repo *r, struct err *e)
{
    const struct job *j = x->job;
    CLEANUP(blobs_freep) struct blobs *to = NULL;
    struct throttle reads = mover_reads(j->limits.read_limit, x->cancel),
                    writes = mover_writes(j->limits.write_limit, x->cancel);
    struct copy_result c = {.rounds = 0};
    char owner[512];
    const double since = mono_s();
    int rc = place_open_copy(&to, j, x->copy_credentials, x->link, x->dialer, e);
    if (rc < 0)
        return rc;
    /* The daemon runs one of each copy at a time: what a killed one has left is its own. */
    snprintf(owner, sizeof owner, "%s/%s", j->node, j->copy.name ? j->copy.name : "");
    const struct copy_opts o = {.owner = owner,
                                .verify = j->verify,
                                .delete_after_ns = j->delete_after_s * NS_PER_S,
                                .delete_most = j->delete_most,
                                .expected = j->expected,
                                .at_once = at_once(&j->limits),
                                .stop = &x->cancel->requested,
                                .total = &x->progress->total,
                                .done = &x->progress->done};
    blobs_stop(to, &x->cancel->requested);
    blobs_activity(to, &x->progress->requests);
    blobs_limit(repo_blobs(r), &reads, NULL);
    blobs_limit(to, NULL, &writes);
    atomic_store(&x->progress->phase, PHASE_MOVING);
    rc = repo_copy(r, to, &o, &c, e);
    blobs_limit(repo_blobs(r), NULL, NULL);
    put_numbers(x->result, &c, j->verify, mono_s() - since);
    return rc;
}
