/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/verify-lost.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "repo/copy.h"
#include "repo/item.h"
#include "repo/pack.h"

#include <stdlib.h>
#include <string.h>

/*
 * A session writes its marker, packs, their index, and deletes the marker. A young pack that neither an index has nor a
 * session, with contents that no index has: its index was lost. An older one may be garbage that maintenance has not
 * deleted yet. With epochs the index still has an entry for each of its contents then, elsewhere or deleted; without
 * them compaction drops such entries.
 */
#define LOST_INDEX_AGE_S (20 * 3600)

struct lost_packs {
    struct repo *repo;
    struct pack_table *packs;
    int64_t since_ns;
    bool epochs;
    struct pack_table *suspects;
    unsigned n, sessions_n, sessions_room;
    char (*sessions)[BLOB_NAME_MAX + 1];
    lost_pack_fn *fn;
    void *arg;
    struct err *e;
};

static int add_suspect(const struct blob_info *i, void *arg)
{
    struct lost_packs *l = arg;
    const struct pack_record *p = pack_table_find(l->packs, i->name);
    if (!p || (p->damage & PACK_INDEXED) || (i->mtime_ns < l->since_ns && !l->epochs))
        return 0;
    l->n++;
    return pack_table_add(l->suspects, i->name, i->length, l->e);
}

static int add_session(const struct blob_info *i, void *arg)
{
    struct lost_packs *l = arg;
    if (l->sessions_n == l->sessions_room) {
        unsigned room = l->sessions_room ? 2 * l->sessions_room : 16;
        void *p = realloc(l->sessions, room * sizeof *l->sessions);
        if (!p)
            return err_nomem(l->e);
        l->sessions = p;
        l->sessions_room = room;
    }
    memcpy(l->sessions[l->sessions_n++], i->name, sizeof i->name);
    return 0;
}

/* Names of packs and markers end in the id of their session. */
static bool in_session(const struct lost_packs *l, const char *pack)
{
    const char *id = strchr(pack, '-');
    for (unsigned i = 0; id && i < l->sessions_n; i++) {
        const char *other = strchr(l->sessions[i], '-');
        if (other && strcmp(id, other) == 0)
            return true;
    }
    return id == NULL;
}

/* Superseded entries count: clients that store the same data at the same time leave packs with no other. */
static int mark_indexed(const struct index_entry *en, enum index_standing standing, void *arg)
{
    struct lost_packs *l = arg;
    (void)standing;
    struct pack_record *p = pack_table_find(l->suspects, en->pack);
    if (p)
        p->damage |= PACK_INDEXED;
    return 0;
}

static int is_unknown(const struct index_entry *en, void *arg)
{
    struct lost_packs *l = arg;
    int rc = index_set_knows(repo_index(l->repo), &en->id, l->e);
    return rc < 0 ? rc : !rc;
}

/* 1: the pack's own index has a content that no index has. An old one that cannot be read is not needed. */
static int has_unknown(struct lost_packs *l, const struct blob_info *i)
{
    struct err e = ERR_INIT;
    int rc = pack_read_local_index(repo_blobs(l->repo), repo_sealer(l->repo), i->name, i->length, is_unknown, l, &e);
    if (rc < 0 && e.cls == ERR_DAMAGE)
        return i->mtime_ns >= l->since_ns;
    if (rc < 0 && e.cls)
        *l->e = e;
    return rc;
}

static int report_lost(const struct blob_info *i, void *arg)
{
    struct lost_packs *l = arg;
    const struct pack_record *p = pack_table_find(l->suspects, i->name);
    if (!p || (p->damage & PACK_INDEXED) || in_session(l, i->name))
        return 0;
    int lost = has_unknown(l, i);
    if (lost > 0)
        l->fn(i->name, l->arg);
    return lost < 0 ? lost : 0;
}

/* A copy has packs of backups that ran while it was made, or of a run that did not come to its end: their indexes come
 * with the next run. */
int lost_packs_each(struct repo *r, struct pack_table *packs, lost_pack_fn *fn, void *arg, struct err *e)
{
    struct blobs *b = repo_blobs(r);
    const int copy = copy_is_marked(b, e);
    if (copy != 0)
        return copy < 0 ? copy : 0;
    CLEANUP(pack_table_freep) struct pack_table *suspects = NULL;
    struct lost_packs l = {.repo = r,
                           .packs = packs,
                           .fn = fn,
                           .arg = arg,
                           .since_ns = now_ns() - LOST_INDEX_AGE_S * NS_PER_S,
                           .epochs = repo_format(r)->epochs.enabled,
                           .e = e};
    int rc = pack_table_new(&suspects, repo_cache_dir(r), e);
    l.suspects = suspects;
    if (rc >= 0)
        rc = blobs_list(b, "p", add_suspect, &l, e);
    if (rc >= 0)
        rc = blobs_list(b, "q", add_suspect, &l, e);
    if (rc >= 0 && l.n) {
        /* In this order: a session that ends meanwhile has written its index before its marker is gone. */
        rc = pack_table_index(suspects, e);
        if (rc >= 0)
            rc = blobs_list(b, "s", add_session, &l, e);
        if (rc >= 0)
            rc = index_set_refresh(repo_index(r), e);
        if (rc >= 0)
            rc = index_set_each_all(repo_index(r), mark_indexed, &l, e);
        if (rc >= 0)
            rc = blobs_list(b, "p", report_lost, &l, e);
        if (rc >= 0)
            rc = blobs_list(b, "q", report_lost, &l, e);
    }
    free(l.sessions);
    return rc;
}
