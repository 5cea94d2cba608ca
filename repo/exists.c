/* SPDX-License-Identifier: GPL-2.0-or-later */
/* exists.c - whether what the index lists is really there */
#include "repo/repo-impl.h"

int repo_check_packs(struct repo *r, struct err *e)
{
    struct pack_set *packs;
    int rc = pack_set_new(&packs, r->blobs, r->cache_dir, e);
    if (rc < 0)
        return rc;
    pack_set_free(r->packs);
    r->packs = packs;
    return 0;
}

int repo_pack_there(struct repo *r, const struct index_entry *x, struct err *e)
{
    int rc = repo_is_damaged(r, x, e);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    return r->packs ? pack_set_has(r->packs, x->pack, (uint64_t)x->offset + x->packed, e) : 1;
}

int repo_has(struct repo *r, const struct content_id *id, struct err *e)
{
    struct index_entry x;
    struct err why = ERR_INIT;
    int rc = repo_find(r, id, &x, &why);
    if (rc == -ENOENT)
        return 0;
    if (rc < 0) {
        if (e)
            *e = why;
        return rc;
    }
    return x.deleted ? 0 : repo_pack_there(r, &x, e);
}
