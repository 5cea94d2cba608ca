/* SPDX-License-Identifier: GPL-2.0-or-later */
/* repair-impl.h - one repair; for the files repair*.c only */
#ifndef SNAPFERRY_DAEMON_MOVER_REPAIR_IMPL_H
#define SNAPFERRY_DAEMON_MOVER_REPAIR_IMPL_H

#include "daemon/mover/mapped.h"
#include "daemon/mover/repair.h"
#include "repo/marker.h"

#include <errno.h>
#include <string.h>

struct repair {
    struct repo *r;
    const struct repair_opts *o;
    struct repair_result *ret;
    struct pack_table *packs;
    struct session_marker *markers;
    size_t n_markers;
    struct blob_info *listed; /* index blobs, epoch markers and watermarks */
    size_t n_listed;
    struct repair_aside {
        char name[BLOB_NAME_MAX + 1];
        bool whole; /* what is left of a set of which a part is lost */
    } * bad;
    size_t n_bad;
    bool authentic;            /* something could be decrypted */
    struct index_entry *batch; /* to be published */
    size_t n_batch;
    struct err *e;
};

/* Flags of pack records. */
#define REPAIR_NAMED 1u    /* an index has a content of it */
#define REPAIR_IN_BATCH 2u /* a content of it was published just now */

static inline int repair_stopped(const struct repair *m, struct err *e)
{
    return m->o->cancel && atomic_load_explicit(&m->o->cancel->requested, memory_order_relaxed)
               ? err_set(e, ERR_INTERRUPTED, ECANCELED, "interrupted; the next repair goes on")
               : 0;
}

/* Damaged, or on a bad sector. */
static inline bool repair_unreadable(int rc, const struct err *e)
{
    return rc < 0 && (e->cls == ERR_DAMAGE || e->cls == ERR_FORMAT || e->sys == EIO);
}

static inline bool repair_same_place(const struct index_entry *a, const struct index_entry *b)
{
    return a->offset == b->offset && strcmp(a->pack, b->pack) == 0;
}

/* repair-write.c */
/* Whether the pack of an entry is there, and long enough. */
bool repair_is_stored(const struct repair *m, const struct index_entry *x);
/* Damaged (`why`), or of no use any more (NULL): it is set aside in the end, and left out until then. */
int repair_leave_out(struct repair *m, const char *name, const char *why, struct err *e);
/* Adds an entry to the batch, which is published when it is full. */
int repair_add(struct repair *m, const struct index_entry *x, struct err *e);
int repair_publish(struct repair *m, struct err *e);
/* What is left of compacted sets, once its entries are published. */
int repair_partial_sets(struct repair *m, struct err *e);
/* The marker of the write epoch, and what stands for epochs without index blobs. */
int repair_epoch(struct repair *m, struct err *e);
int repair_lost_epochs(struct repair *m, struct err *e);
int repair_set_aside(struct repair *m, struct err *e);

/* repair-packs.c */
int repair_packs(struct repair *m, struct err *e);

#endif
