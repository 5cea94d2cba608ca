/* SPDX-License-Identifier: GPL-2.0-or-later */
/* packing.c - a session's packs: opened, filled by many threads, finished in the background */
#include "repo/session-impl.h"

#include "base/cleanup.h"
#include "base/crash.h"

#include <stdlib.h>
#include <string.h>

struct pack *pack_add(struct session *s, struct round *r, const char *name, struct err *e)
{
    uint32_t i = 0;
    while (i < s->n_packs && s->packs[i])
        i++;
    if (i == s->n_packs) {
        uint32_t n = s->n_packs ? 2 * s->n_packs : 16;
        struct pack **all = realloc(s->packs, n * sizeof(*all));
        if (!all) {
            err_nomem(e);
            return NULL;
        }
        memset(all + s->n_packs, 0, (n - s->n_packs) * sizeof(*all));
        s->packs = all;
        s->n_packs = n;
    }
    size_t len = strlen(name) + 1;
    struct pack *p = calloc(1, sizeof *p + len);
    if (!p) {
        err_nomem(e);
        return NULL;
    }
    memcpy(p->name, name, len);
    p->round = r;
    p->number = i;
    p->first = PENDING_NONE;
    p->next = r->packs;
    r->packs = p;
    s->packs[i] = p;
    return p;
}

void pack_link(struct session *s, struct pack *p, uint32_t entry)
{
    s->pending.entries[entry].pack = p->number;
    s->pending.entries[entry].next = p->first;
    p->first = entry;
    p->entries++;
}

void pack_unlink(struct session *s, struct pack *p, uint32_t entry)
{
    uint32_t *at = &p->first;
    while (*at != entry)
        at = &s->pending.entries[*at].next;
    *at = s->pending.entries[entry].next;
    p->entries--;
}

void session_entry(const struct session *s, uint32_t i, struct index_entry *ret)
{
    const struct pending_entry *p = &s->pending.entries[i];
    pending_id(p, &ret->id);
    strcpy(ret->pack, s->packs[p->pack]->name);
    ret->offset = p->offset & ~PENDING_DELETED;
    ret->deleted = (p->offset & PENDING_DELETED) != 0;
    ret->packed = p->packed;
    ret->length = p->length;
    ret->compression = p->compression;
    ret->time = p->time;
    ret->format_version = p->format_version;
    ret->key_id = p->key_id;
}

static void pack_enqueue(struct session *s, struct pack *p)
{
    p->queued = NULL;
    if (s->queue)
        s->queue_end->queued = p;
    else
        s->queue = p;
    s->queue_end = p;
    pthread_cond_broadcast(&s->finish);
}

void pack_close(struct session *s, struct pack *p)
{
    struct round *r = p->round;
    p->closed = true;
    if (s->closed)
        atomic_fetch_add(s->closed, p->end);
    for (int c = 0; c < 2; c++) {
        if (r->open[c] == p)
            r->open[c] = NULL;
    }
    r->unfinished++;
    s->unfinished++;
    if (p->writers == 0)
        pack_enqueue(s, p);
}

void pack_written(struct session *s, struct pack *p)
{
    if (--p->writers == 0 && p->closed)
        pack_enqueue(s, p);
}

/* Opens a pack without the lock: the marker may have to be put, the file made. Nothing of it is in the store. */
static int open_pack(struct session *s, struct round *r, bool prefixed, struct err *e)
{
    struct repo *repo = s->repo;
    char name[PACK_NAME_MAX];
    struct pack_writer *out = NULL;
    uint32_t start = 0;
    r->opening[prefixed] = true;
    const bool marking = r->marking; /* before the pack is in the store it is waited for */
    pthread_mutex_unlock(&s->lock);
    int rc = marking ? 0 : round_begin(s, r, e);
    if (rc == 0)
        rc = pack_name(name, prefixed ? 'q' : 'p', r->id, e);
    if (rc == 0)
        rc = pack_writer_new(&out, repo->blobs, repo->sealer, repo_format(repo), s->segments, name, &start, e);
    pthread_mutex_lock(&s->lock);
    r->opening[prefixed] = false;
    pthread_cond_broadcast(&s->changed);
    if (rc < 0)
        return rc;
    struct pack *p = pack_add(s, r, name, e);
    if (!p) {
        pack_writer_abort(out);
        return -ENOMEM;
    }
    p->out = out;
    p->end = start;
    r->open[prefixed] = p;
    return 0;
}

struct pack *pack_reserve(struct session *s, struct round *r, bool prefixed, uint32_t len, uint32_t *offset,
                          struct err *e)
{
    for (;;) {
        if (session_check(s, e) < 0)
            return NULL;
        if (r->open[prefixed])
            break;
        if (r->opening[prefixed] || s->unfinished >= s->uploads)
            pthread_cond_wait(&s->changed, &s->lock);
        else if (open_pack(s, r, prefixed, e) < 0)
            return NULL;
    }
    struct pack *p = r->open[prefixed];
    uint64_t full = repo_format(s->repo)->max_pack_size;
    if (full > PACK_OFFSET_LIMIT / 2)
        full = PACK_OFFSET_LIMIT / 2; /* a content more stays below the limit */
    *offset = p->end;
    p->end += len;
    p->writers++;
    s->stats.stored_bytes += len;
    if (s->appended)
        atomic_fetch_add(s->appended, len);
    /* Entries are linked when they are written; claimed ones count too. */
    if (p->end >= full || p->entries + p->writers >= TABLE_ENTRIES)
        pack_close(s, p);
    return p;
}

/* Writes what follows the contents of a pack. `empty`: no content of it is live. */
static int close_pack(struct session *s, struct pack *p, bool *empty, struct err *e)
{
    pthread_mutex_lock(&s->table_lock);
    pthread_mutex_lock(&s->lock);
    size_t n = 0;
    struct index_entry *all = p->entries ? malloc(p->entries * sizeof *all) : NULL;
    int rc = p->entries && !all ? err_nomem(e) : 0;
    for (uint32_t i = p->first; all && i != PENDING_NONE; i = s->pending.entries[i].next)
        session_entry(s, i, &all[n++]);
    pthread_mutex_unlock(&s->lock);
    *empty = n == 0;
    if (n > 0) {
        n = index_sort(all, n);
        rc = pack_writer_close(p->out, p->end, all, n, e);
    }
    free(all);
    pthread_mutex_unlock(&s->table_lock);
    return rc;
}

static int finish_pack(struct session *s, struct pack *p, struct err *e)
{
    bool empty = true;
    int rc = close_pack(s, p, &empty, e);
    pthread_mutex_lock(&s->lock);
    p->committing = true;
    while (p->readers > 0)
        pthread_cond_wait(&s->changed, &s->lock);
    if (rc == 0 && !empty)
        rc = round_marked(s, p->round, e);
    pthread_mutex_unlock(&s->lock);
    if (rc < 0 || empty) {
        pack_writer_abort(p->out);
    } else {
        crash_point("pack-written");
        rc = pack_writer_commit(p->out, e);
        if (rc == 0)
            crash_point("pack-renamed");
    }
    pthread_mutex_lock(&s->lock);
    p->out = NULL;
    p->committing = false;
    p->durable = rc == 0 && !empty;
    s->stats.packs += p->durable;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return rc < 0 ? err_wrap(e, "cannot finish pack %s", p->name) : 0;
}

void *session_finisher(void *session)
{
    struct session *s = session;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->queue && !s->stopping)
            pthread_cond_wait(&s->finish, &s->lock);
        struct pack *p = s->queue;
        if (!p)
            break;
        s->queue = p->queued;
        if (!s->failed) {
            struct err err = ERR_INIT;
            pthread_mutex_unlock(&s->lock);
            uint64_t from = mono_ns();
            int rc = finish_pack(s, p, &err);
            uint64_t ns = mono_ns() - from;
            pthread_mutex_lock(&s->lock);
            s->stats.fsync_ns += ns;
            if (rc < 0)
                session_fail(s, &err);
        }
        p->round->unfinished--;
        s->unfinished--;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}
