/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/tombstones.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"
#include "repo/marker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 65536 /* entries of an index blob */
#define VIEW_AGE_NS (5 * NS_PER_MIN)

struct tombstones {
    struct repo *r;
    struct index_entry *batch;
    size_t n;
    uint64_t count, bytes;
};

int tombstones_new(struct tombstones **ret, struct repo *r, struct err *e)
{
    struct tombstones *t = calloc(1, sizeof *t);
    if (!t || !(t->batch = malloc(BATCH * sizeof *t->batch))) {
        free(t);
        return err_nomem(e);
    }
    t->r = r;
    *ret = t;
    return 0;
}

void tombstones_free(struct tombstones *t)
{
    if (!t)
        return;
    free(t->batch);
    free(t);
}

uint64_t tombstones_count(const struct tombstones *t, uint64_t *bytes)
{
    *bytes = t->bytes;
    return t->count;
}

/* The view has become old: what was judged by it must still stand in a new one. */
static int judge_again(struct tombstones *t, struct err *e)
{
    size_t kept = 0;
    int rc = index_set_refresh(repo_index(t->r), e);
    for (size_t i = 0; rc == 0 && i < t->n; i++) {
        struct index_entry now;
        rc = index_set_find(repo_index(t->r), &t->batch[i].id, &now, e);
        if (rc == -ENOENT) {
            *e = (struct err)ERR_INIT;
            rc = 0;
            continue;
        }
        if (rc == 0 && !now.deleted && now.time == t->batch[i].time && !strcmp(now.pack, t->batch[i].pack) &&
            now.offset == t->batch[i].offset)
            t->batch[kept++] = t->batch[i];
    }
    if (rc == 0)
        t->n = kept;
    return rc;
}

static int publish(struct tombstones *t, struct err *e)
{
    CLEANUP_FREE uint8_t *data = NULL;
    char session[SESSION_ID_TEXT], name[1][BLOB_NAME_MAX + 1];
    size_t len;
    int rc = session_id_new(session, now_ns(), e);
    if (rc == 0)
        rc = index_build(t->batch, t->n, repo_format(t->r)->index_version, false, &data, &len, e);
    if (rc < 0)
        return rc;
    const struct index_shard_data table = {.data = data, .len = len};
    /* The epoch advanced twice meanwhile, nothing was left: once more, with a new listing. */
    for (int tries = 0; tries == 0 || (rc == -EAGAIN && tries < 3); tries++)
        rc = epoch_write_indexes(repo_blobs(t->r), repo_sealer(t->r), repo_format(t->r), session, &table, 1, name, e);
    return rc;
}

int tombstones_flush(struct tombstones *t, struct err *e)
{
    if (t->n && now_ns() - index_set_loaded_ns(repo_index(t->r)) > VIEW_AGE_NS) {
        int rc = judge_again(t, e);
        if (rc < 0)
            return rc;
    }
    if (!t->n)
        return 0;
    const int64_t seen = index_set_loaded_ns(repo_index(t->r)) / NS_PER_S;
    uint64_t bytes = 0;
    for (size_t i = 0; i < t->n; i++) {
        struct index_entry *x = &t->batch[i];
        x->time = x->time >= seen ? x->time + 1 : seen;
        x->deleted = true;
        bytes += x->packed;
    }
    crash_point("maintenance-marking");
    int rc = publish(t, e);
    if (rc < 0)
        return err_wrap(e, "cannot mark contents deleted");
    crash_point("maintenance-marked");
    t->count += t->n;
    t->bytes += bytes;
    t->n = 0;
    return 0;
}

int tombstones_add(struct tombstones *t, const struct index_entry *entry, struct err *e)
{
    if (t->n == BATCH) {
        int rc = tombstones_flush(t, e);
        if (rc < 0)
            return rc;
    }
    t->batch[t->n++] = *entry;
    return 0;
}
