/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * maintain-lookup.c - what packs say of themselves: their own index is read and compared with that of the repository
 *
 * A request or two for each pack, and one for its deletion: where they wait for a network, some are in progress at a
 * time. All that is not a request is done by one thread at a time.
 */
#include "daemon/mover/maintain-impl.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/team.h"
#include "repo/pack.h"

#include <pthread.h>
#include <stdlib.h>

#define BATCH 512                     /* packs held in memory */
#define INDEX_MAX ((uint64_t)1 << 20) /* bytes of a pack's index of which some are in memory; a longer one is alone */

struct pack_lookups {
    struct run *m;
    pack_said_fn *judge;
    struct blob_info all[BATCH];
    size_t n;
    pthread_mutex_t lock; /* of everything that is not a request */
};

/* What is being asked of one pack. */
struct question {
    struct run *m;
    struct pack_said said;
    struct err *e;
};

int pack_lookups_new(struct pack_lookups **ret, struct run *m, pack_said_fn *judge, struct err *e)
{
    struct pack_lookups *x = calloc(1, sizeof *x);
    if (!x)
        return err_nomem(e);
    x->m = m;
    x->judge = judge;
    pthread_mutex_init(&x->lock, NULL);
    *ret = x;
    return 0;
}

void pack_lookups_freep(struct pack_lookups **x)
{
    if (*x)
        pthread_mutex_destroy(&(*x)->lock);
    free(*x);
}

static int entry_lookup(const struct index_entry *en, void *arg)
{
    struct question *q = arg;
    struct run *m = q->m;
    struct index_entry stands;
    int rc = index_set_knows(repo_index(m->r), &en->id, q->e);
    if (rc < 0)
        return rc;
    if (rc && m->missing && id_set_has(m->mark.used, &en->id, 0)) {
        struct err ignored = ERR_INIT;
        q->said.needed = q->said.needed || index_set_find(repo_index(m->r), &en->id, &stands, &ignored) < 0 ||
                         !pack_table_find(m->packs, stands.pack);
    }
    if (!rc && en->id.prefix == MANIFEST_PREFIX)
        q->said.manifest = true;
    else if (!rc)
        q->said.unknown = true;
    return 0;
}

/* A list may lag behind deletions; a pack that is cut short has no index, and is there. */
static bool is_gone(struct blobs *b, const char *name)
{
    struct blob_info ignored;
    struct err none = ERR_INIT;
    return blobs_stat(b, name, &ignored, &none) == -ENOENT;
}

/* Whether the pack has contents that no index has. Called with the lock held. */
static int ask(struct run *m, const struct blob_info *i, int rc, const uint8_t *index, size_t len, uint64_t end,
               struct pack_said *said, struct err *why, struct err *e)
{
    struct err inner = ERR_INIT;
    struct question q = {.m = m, .e = &inner};
    if (rc == 0)
        rc = pack_local_entries(index, len, i->name, end, entry_lookup, &q, why);
    if (inner.cls) {
        *e = inner;
        return rc;
    }
    q.said.unreadable = is_unreadable(rc, why);
    *said = q.said;
    if (rc < 0 && !said->unreadable)
        *e = *why;
    return said->unreadable ? 0 : rc;
}

/* Called with the lock held, which is left for requests. */
static int pack_one(struct pack_lookups *x, const struct blob_info *i, struct err *e)
{
    struct run *m = x->m;
    struct blobs *b = repo_blobs(m->r);
    CLEANUP_FREE uint8_t *index = NULL;
    size_t len = 0;
    uint64_t end = 0;
    struct pack_said said;
    struct err why = ERR_INIT;
    int rc = run_interrupted(m, e);
    if (rc < 0)
        return rc;
    pthread_mutex_unlock(&x->lock);
    rc = pack_fetch_local_index(b, repo_sealer(m->r), i->name, i->length, INDEX_MAX, &index, &len, &end, &why);
    const bool gone = rc == -ENOENT && is_gone(b, i->name);
    pthread_mutex_lock(&x->lock);
    if (gone)
        return 0;
    if (rc == -EFBIG) {
        why = (struct err)ERR_INIT;
        rc = pack_fetch_local_index(b, repo_sealer(m->r), i->name, i->length, UINT64_MAX, &index, &len, &end, &why);
    }
    rc = ask(m, i, rc, index, len, end, &said, &why, e);
    if (rc == 0)
        rc = x->judge(m, i, &said, e);
    if (rc <= 0)
        return rc;
    if (!m->o->dry_run) {
        pthread_mutex_unlock(&x->lock);
        rc = blobs_delete(b, i->name, e);
        crash_point("maintenance-pack-deleted");
        pthread_mutex_lock(&x->lock);
    }
    if (rc >= 0)
        sum_add(&m->ret->deleted, i->length);
    return rc < 0 ? rc : 0;
}

static int ask_one(void *arg, size_t i, struct err *e)
{
    struct pack_lookups *x = arg;
    pthread_mutex_lock(&x->lock);
    const int rc = pack_one(x, &x->all[i], e);
    pthread_mutex_unlock(&x->lock);
    return rc;
}

int pack_lookups_end(struct pack_lookups *x, struct err *e)
{
    const bool near = blobs_are_files(repo_blobs(x->m->r));
    const int rc = team_run(near ? 1 : TEAM_FAR, x->n, ask_one, x, e);
    x->n = 0;
    return rc;
}

int pack_lookups_add(struct pack_lookups *x, const struct blob_info *i, struct err *e)
{
    x->all[x->n++] = *i;
    return x->n < BATCH ? 0 : pack_lookups_end(x, e);
}
