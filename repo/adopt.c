/* SPDX-License-Identifier: GPL-2.0-or-later */
/* adopt.c - markers and finished packs of crashed sessions of this node. */
#include "repo/adopt.h"
#include "base/time.h"
#include "repo/marker.h"
#include "repo/repo-impl.h"

#include <stdlib.h>
#include <string.h>

/* Half of the age at which packs without index entries may be collected. */
#define ADOPT_AGE_NS (12 * NS_PER_H)
/* A session flushes, so that it leaves a bounded number of packs; their names are held in memory, hence this limit. */
#define ADOPT_PACKS 8192

struct dead_session {
    struct session_record *record;
    char **markers;
    size_t n_markers;
    bool leaves; /* packs that are not adopted, or not all of: its markers account for them until maintenance deletes
                    both; or a marker is not this node's */
};

struct search {
    struct dead_sessions *dead;
    struct blob_info *packs;
    size_t n_packs;
    struct err *err;
};

static int array_grow(void **array, size_t n, size_t size, struct err *e)
{
    if ((n & (n - 1)) != 0)
        return 0; /* capacity is doubled at powers of two */
    void *p = realloc(*array, (n ? 2 * n : 1) * size);
    if (!p)
        return err_nomem(e);
    *array = p;
    return 0;
}

static int add_record(struct session_record *record, void *arg)
{
    struct search *s = arg;
    struct dead_sessions *d = s->dead;
    int rc = array_grow((void **)&d->all, d->n, sizeof *d->all, s->err);
    if (rc < 0) {
        session_record_end(record, false);
        return rc;
    }
    d->all[d->n++] = (struct dead_session){.record = record};
    return 0;
}

static struct dead_session *session_of(const struct search *s, const char *blob)
{
    char id[SESSION_ID_TEXT];
    if (!session_id_of_blob(blob, id))
        return NULL;
    for (size_t i = 0; i < s->dead->n; i++) {
        if (!strcmp(id, session_record_id(s->dead->all[i].record)))
            return &s->dead->all[i];
    }
    return NULL;
}

static int add_marker(const struct blob_info *info, void *arg)
{
    struct search *s = arg;
    struct dead_session *d = session_of(s, info->name);
    if (!d)
        return 0;
    int rc = array_grow((void **)&d->markers, d->n_markers, sizeof *d->markers, s->err);
    if (rc < 0)
        return rc;
    d->markers[d->n_markers] = strdup(info->name);
    return d->markers[d->n_markers] ? (int)(d->n_markers++, 0) : err_nomem(s->err);
}

static int add_pack(const struct blob_info *info, void *arg)
{
    struct search *s = arg;
    struct dead_session *d = session_of(s, info->name);
    if (!d)
        return 0;
    if (now_ns() - info->mtime_ns > ADOPT_AGE_NS || s->n_packs >= ADOPT_PACKS) {
        d->leaves = true;
        return 0;
    }
    int rc = array_grow((void **)&s->packs, s->n_packs, sizeof *s->packs, s->err);
    if (rc < 0)
        return rc;
    s->packs[s->n_packs++] = *info;
    return 0;
}

/* Records lie in the cache directory, and are not authenticated: who may write to it must not have the marker of
 * another node's session deleted, which protects what that one is writing. The markers themselves are. */
static void check_markers(struct dead_sessions *d, struct repo *r)
{
    for (size_t i = 0; i < d->n; i++)
        for (size_t m = 0; m < d->all[i].n_markers && !d->all[i].leaves; m++)
            d->all[i].leaves = !marker_is_ours(r, d->all[i].markers[m]);
}

int dead_sessions_find(struct dead_sessions *ret, struct repo *r, dead_pack_fn *fn, void *arg, struct err *e)
{
    struct search s = {.dead = ret, .err = e};
    *ret = (struct dead_sessions){0};
    int rc = session_records_dead(r, add_record, &s, e);
    if (rc == 0 && ret->n > 0)
        rc = blobs_list(r->blobs, "s", add_marker, &s, e);
    if (rc == 0)
        check_markers(ret, r);
    if (rc == 0 && ret->n > 0)
        rc = blobs_list(r->blobs, "p", add_pack, &s, e);
    if (rc == 0 && ret->n > 0)
        rc = blobs_list(r->blobs, "q", add_pack, &s, e);
    for (size_t i = 0; rc == 0 && i < s.n_packs; i++) {
        rc = fn(&s.packs[i], arg);
        if (rc > 0) {
            session_of(&s, s.packs[i].name)->leaves = true;
            rc = 0;
        }
    }
    free(s.packs);
    if (rc != 0)
        dead_sessions_leave(ret);
    return rc;
}

static void sessions_release(struct dead_sessions *d, struct repo *clear_in)
{
    for (size_t i = 0; i < d->n; i++) {
        struct dead_session *s = &d->all[i];
        bool cleared = clear_in != NULL;
        for (size_t m = 0; m < s->n_markers; m++) {
            struct err err = ERR_INIT;
            if (clear_in && !s->leaves && blobs_delete(clear_in->blobs, s->markers[m], &err) < 0) {
                log_warning("cannot delete the marker of an interrupted session: %s", err.msg);
                cleared = false;
            }
            free(s->markers[m]);
        }
        free(s->markers);
        session_record_end(s->record, cleared);
    }
    free(d->all);
    *d = (struct dead_sessions){0};
}

void dead_sessions_clear(struct dead_sessions *d, struct repo *r)
{
    sessions_release(d, r);
}

void dead_sessions_leave(struct dead_sessions *d)
{
    sessions_release(d, NULL);
}
