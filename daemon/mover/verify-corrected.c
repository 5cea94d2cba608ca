/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/verify-corrected.h"

#include "daemon/mover/mapped.h"
#include "repo/item.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CONTENT 0
#define PACK 1

struct corrected {
    struct repo *repo;
    pthread_mutex_t lock;
    struct id_set *seen; /* contents, and packs by a hash of their name: documents are read more than once */
    uint64_t contents, packs;
};

/* What cannot be noted for lack of memory is counted, perhaps twice. */
static bool is_new(struct corrected *x, const struct content_id *id, uint8_t tag)
{
    struct err ignored = ERR_INIT;
    return id_set_add(x->seen, id, tag, &ignored) != 0;
}

static void note(const struct index_entry *en, void *arg)
{
    struct corrected *x = arg;
    struct content_id pack = {.len = 16};
    uint8_t digest[HASH_MAX];
    hasher_digest(sealer_hasher(repo_sealer(x->repo)), en->pack, strlen(en->pack), digest);
    memcpy(pack.hash, digest, pack.len);
    pthread_mutex_lock(&x->lock);
    x->contents += is_new(x, &en->id, CONTENT);
    x->packs += is_new(x, &pack, PACK);
    pthread_mutex_unlock(&x->lock);
}

int corrected_begin(struct corrected **ret, struct repo *r, struct err *e)
{
    struct corrected *x = calloc(1, sizeof *x);
    if (!x)
        return err_nomem(e);
    x->repo = r;
    pthread_mutex_init(&x->lock, NULL);
    *ret = x;
    const int rc = id_set_new(&x->seen, repo_cache_dir(r), 0, e);
    if (rc >= 0)
        repo_on_corrected(r, note, x);
    return rc;
}

void corrected_end(struct corrected *x, struct verify_result *ret)
{
    if (!x)
        return;
    repo_on_corrected(x->repo, NULL, NULL);
    ret->corrected = x->contents;
    ret->corrected_packs = x->packs;
    id_set_free(x->seen);
    pthread_mutex_destroy(&x->lock);
    free(x);
}
