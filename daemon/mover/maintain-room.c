/* SPDX-License-Identifier: GPL-2.0-or-later */
/* maintain-room.c - how much room there is for a run of maintenance, and what is told where there is too little */
#include "daemon/mover/maintain-impl.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define LITTLE ((uint64_t)64 << 20)
#define MARGIN ((uint64_t)2 << 20) /* left to others, and to the history of runs */
#define BEGIN_ROOM ((uint64_t)1 << 20)

bool run_is_short(struct run *m)
{
    struct blob_room room;
    struct err ignored = ERR_INIT;
    return blobs_room(repo_blobs(m->r), &room, &ignored) == 0 ? room.free < LITTLE : m->lean;
}

bool run_has_room(struct run *m, uint64_t bytes)
{
    struct blob_room room;
    struct err ignored = ERR_INIT;
    const int rc = blobs_room(repo_blobs(m->r), &room, &ignored);
    if (rc == 0 ? room.free >= bytes + MARGIN : !m->lean)
        return true;
    m->ret->needs += bytes + MARGIN;
    return false;
}

uint64_t maintain_freed(const struct maintain_result *r)
{
    return r->deleted.bytes + r->logs.bytes + r->leftovers.bytes + r->index.bytes;
}

/* ---- what is told ---- */

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

int run_explain_full(struct run *m, int rc, struct err *e)
{
    struct maintain_result *res = m->ret;
    struct blob_room room;
    const char *where = blobs_location(repo_blobs(m->r));
    const bool is_full = rc < 0 && e->cls == ERR_NO_SPACE;
    if (!is_full && !res->needs)
        return rc;
    if (is_full)
        res->needs += BEGIN_ROOM;
    res->free = blobs_room(repo_blobs(m->r), &room, NULL) == 0 ? room.free : 0;
    if (!is_full) {
        log_warning(
            "repository %s has %.1f MiB of room: what was left undone (%.1f MiB of contents not marked deleted, "
            "short packs, the index) needs about %.1f MiB",
            where, mib(res->free), mib(res->unmarked.bytes), mib(res->needs));
        return rc;
    }
    if (!m->o->full) {
        err_hint(e, "full maintenance frees space: `snapferry maintenance --full`, or with -r");
        return rc;
    }
    err_wrap(e, "maintenance freed %.1f MiB and stopped for lack of room, the rest needs about %.1f MiB",
             mib(maintain_freed(res)), mib(res->needs));
    err_hint(
        e,
        "give %.150s that much room (remove other files, extend the file system, raise the quota) and run it again; "
        "what was done is complete",
        where);
    return rc;
}
