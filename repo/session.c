/* SPDX-License-Identifier: GPL-2.0-or-later */
/* session.c - a writing session: begun, flushed round by round, ended; packs of crashed sessions adopted */
#include "repo/session-impl.h"
#include "repo/epoch.h"
#include "repo/manifest.h"
#include "repo/session-test.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"
#include "base/units.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_PENDING 131072
#define LEAST_PENDING 16
/* Other clients delete packs that no index has when their session has given no sign of life for 96 hours. */
#define SILENT_NS (48 * NS_PER_H)

/* ---- flush ---- */

/*
 * With `lock` held: waits until everything put in a sealed round is in durable packs. Contents without prefix first:
 * contents with a prefix (manifests, index documents) refer to them, lie in packs of their own, and must not exist
 * without them.
 */
static int round_settle(struct session *s, struct round *r, struct err *e)
{
    while ((r->claims > 0 || r->marking) && !s->failed)
        pthread_cond_wait(&s->changed, &s->lock);
    for (int c = 0; c < 2 && !s->failed; c++) {
        if (r->open[c])
            pack_close(s, r->open[c]);
        while (r->unfinished > 0 && !s->failed)
            pthread_cond_wait(&s->changed, &s->lock);
    }
    return session_check(s, e);
}

static int by_id(const void *a, const void *b, void *entries)
{
    const struct pending_entry *all = entries;
    return pending_cmp(&all[*(const uint32_t *)a], &all[*(const uint32_t *)b]);
}

/* Numbers of a sealed round's entries, sorted by id. They no longer change. */
static int entries_collect(struct session *s, const struct round *r, uint32_t **ret, size_t *n, struct err *e)
{
    size_t count = 0, at = 0;
    pthread_mutex_lock(&s->lock);
    for (const struct pack *p = r->packs; p; p = p->next)
        count += p->entries;
    uint32_t *all = malloc((count + 1) * sizeof *all);
    for (const struct pack *p = r->packs; p && all; p = p->next) {
        for (uint32_t i = p->first; i != PENDING_NONE; i = s->pending.entries[i].next)
            all[at++] = i;
    }
    pthread_mutex_unlock(&s->lock);
    if (!all)
        return err_nomem(e);
    qsort_r(all, count, sizeof *all, by_id, s->pending.entries);
    *ret = all;
    *n = count;
    return 0;
}

struct tables {
    struct index_shard_data *all;
    char (*names)[BLOB_NAME_MAX + 1];
    size_t n;
};

static void tables_clear(struct tables *t)
{
    for (size_t i = 0; i < t->n; i++)
        free((void *)(uintptr_t)t->all[i].data);
    free(t->all);
    free(t->names);
}

/* Tables of at most TABLE_ENTRIES each, so that few entries are in memory in their large form at a time. */
static int build_tables(struct session *s, const uint32_t *numbers, size_t n, struct tables *t, struct err *e)
{
    unsigned version = repo_format(s->repo)->index_version;
    size_t count = (n + TABLE_ENTRIES - 1) / TABLE_ENTRIES, most = n < TABLE_ENTRIES ? n : TABLE_ENTRIES;
    t->all = calloc(count, sizeof *t->all);
    t->names = calloc(count, sizeof *t->names);
    pthread_mutex_lock(&s->table_lock);
    struct index_entry *entries = malloc(most * sizeof *entries);
    int rc = t->all && t->names && entries ? 0 : err_nomem(e);
    for (size_t at = 0; rc == 0 && at < n; at += most) {
        size_t part = n - at < most ? n - at : most, len;
        uint8_t *data = NULL;
        pthread_mutex_lock(&s->lock);
        for (size_t i = 0; i < part; i++)
            session_entry(s, numbers[at + i], &entries[i]);
        pthread_mutex_unlock(&s->lock);
        rc = index_build(entries, part, version, false, &data, &len, e);
        if (rc == 0)
            t->all[t->n++] = (struct index_shard_data){.data = data, .len = len};
    }
    free(entries);
    pthread_mutex_unlock(&s->table_lock);
    return rc;
}

/* After days without a sign of life (the machine was suspended) the packs of a round may be gone: an index must not
 * refer to them. A round without a marker has written none. */
static int round_check_age(const struct round *r, struct err *e)
{
    const int64_t silent = now_ns() - r->marked_ns;
    if (!r->marked_ns || silent < SILENT_NS)
        return 0;
    err_set(e, ERR_CLOCK, 0,
            "data stored %lld hours ago were not indexed since then: other clients may have deleted them as unneeded",
            (long long)(silent / NS_PER_H));
    return err_hint(e, "was the machine suspended? Data flushed before is safe; start it again");
}

static int round_publish(struct session *s, const struct round *r, struct err *e)
{
    struct repo *repo = s->repo;
    CLEANUP_FREE uint32_t *numbers = NULL;
    CLEANUP(tables_clear) struct tables t = {0};
    size_t n = 0;
    int rc = round_check_age(r, e);
    if (rc == 0)
        rc = entries_collect(s, r, &numbers, &n, e);
    if (rc < 0 || n == 0)
        return rc;
    rc = build_tables(s, numbers, n, &t, e);
    if (rc < 0)
        return rc;
    /* "Extremely slow write": the epoch advanced twice meanwhile, nothing was left. Retry once, with a new listing. */
    struct epoch_state known;
    index_set_state(repo->index, &known);
    for (int tries = 0; tries == 0 || (rc == -EAGAIN && tries < 3); tries++)
        rc = epoch_write_known(tries == 0 ? &known : NULL, repo->blobs, repo->sealer, repo_format(repo), r->id, t.all,
                               t.n, t.names, e);
    if (rc < 0) {
        err_wrap(e, "cannot write the index of the data stored since the last flush");
        err_hint(e, "data flushed before is safe; the next run uses the finished packs");
        return rc;
    }
    crash_point("index-written");
    for (size_t i = 0; rc == 0 && i < t.n; i++)
        rc = index_set_add(repo->index, t.names[i], t.all[i].data, t.all[i].len, e);
    if (rc < 0)
        rc = index_set_refresh(repo->index, e);
    pthread_mutex_lock(&s->lock);
    s->stats.index_blobs += t.n;
    if (rc < 0) {
        struct err err = ERR_INIT;
        err = e ? *e : err;
        err_wrap(&err, "all data is stored and safe, but the index cannot be reloaded");
        session_fail(s, &err);
    }
    pthread_mutex_unlock(&s->lock);
    return 0;
}

/* With `lock` held: the oldest round is in the index now, no longer pending. */
static struct round *drop_first(struct session *s)
{
    struct round *r = s->rounds;
    while (r->packs) {
        struct pack *p = r->packs;
        for (uint32_t i = p->first; i != PENDING_NONE;) {
            uint32_t next = s->pending.entries[i].next;
            pending_remove(&s->pending, i);
            i = next;
        }
        r->packs = p->next;
        s->packs[p->number] = NULL;
        free(p);
    }
    s->rounds = r->next;
    s->flushes++;
    pthread_cond_broadcast(&s->changed);
    return r;
}

/* With `flush_lock` held. */
static int rounds_flush(struct session *s, struct err *e)
{
    int rc = repo_keep_fresh(s->repo, e);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&s->lock);
    rc = session_check(s, e);
    if (rc == 0 && s->current && (s->current->claims > 0 || s->current->packs)) {
        s->current->sealed = true;
        s->current = NULL;
    }
    while (rc == 0 && s->rounds && s->rounds->sealed) {
        struct round *r = s->rounds;
        rc = round_settle(s, r, e);
        if (rc < 0)
            break;
        pthread_mutex_unlock(&s->lock);
        rc = round_publish(s, r, e);
        pthread_mutex_lock(&s->lock);
        if (rc == 0) {
            drop_first(s);
            pthread_mutex_unlock(&s->lock);
            round_end(s, r, false);
            pthread_mutex_lock(&s->lock);
            rc = session_check(s, e);
        }
    }
    pthread_mutex_unlock(&s->lock);
    if (rc == 0 && !s->adopting)
        dead_sessions_clear(&s->dead, s->repo);
    return rc;
}

int session_flush(struct session *s, struct err *e)
{
    pthread_mutex_lock(&s->flush_lock);
    int rc = rounds_flush(s, e);
    pthread_mutex_unlock(&s->flush_lock);
    return rc;
}

int session_make_room(struct session *s, struct err *e)
{
    pthread_mutex_lock(&s->lock);
    uint32_t count = s->pending.count;
    pthread_mutex_unlock(&s->lock);
    if (count < s->flush_at)
        return 0;
    /* One thread flushes while the others fill the remaining room; then they wait for it. */
    if (count < s->pending.cap) {
        if (pthread_mutex_trylock(&s->flush_lock) != 0)
            return 0;
    } else {
        pthread_mutex_lock(&s->flush_lock);
    }
    pthread_mutex_lock(&s->lock);
    bool full = s->pending.count >= s->flush_at;
    pthread_mutex_unlock(&s->lock);
    int rc = full ? rounds_flush(s, e) : 0;
    pthread_mutex_unlock(&s->flush_lock);
    return rc;
}

/* ---- adoption ---- */

struct adoption {
    struct session *session;
    const char *pack;
    struct err *err;
    bool left; /* something of the pack is not adopted, and not in the index */
};

static struct pack *adopted_pack(struct session *s, const char *name, struct err *e)
{
    struct round *r = session_round(s, e);
    if (!r)
        return NULL;
    for (struct pack *p = r->packs; p; p = p->next) {
        if (!strcmp(p->name, name))
            return p;
    }
    return pack_add(s, r, name, e);
}

static int adopt_pending(struct session *s, const struct index_entry *n, uint32_t time, struct err *e)
{
    if (pending_find(&s->pending, &n->id) != PENDING_NONE)
        return 0; /* stored by two crashed sessions */
    struct pack *p = adopted_pack(s, n->pack, e);
    uint32_t i = p ? pending_add(&s->pending, &n->id) : PENDING_NONE;
    if (i == PENDING_NONE)
        return p ? err_set(e, ERR_GENERIC, ENOSPC, "too many pending contents") : -ENOMEM;
    struct pending_entry *a = &s->pending.entries[i];
    a->offset = n->offset;
    a->packed = n->packed;
    a->length = n->length;
    a->compression = (uint16_t)n->compression;
    a->format_version = n->format_version;
    a->time = time;
    a->state = PENDING_WRITTEN;
    pack_link(s, p, i);
    s->stats.adopted_packs += !p->counted;
    p->counted = true;
    s->stats.adopted_contents++;
    return 0;
}

/* Adopts contents that are missing in the index. R4: an entry that replaces a deleted one must be newer. */
static int adopt_entry(const struct index_entry *n, void *arg)
{
    struct adoption *a = arg;
    struct session *s = a->session;
    struct index_entry known;
    int rc;
    /* A snapshot of a session that crashed before its flush does not exist: its references may be incomplete. Without
     * the marker it would look as if the index of its pack was lost. */
    if (n->id.prefix == MANIFEST_PREFIX) {
        rc = index_set_find(s->repo->index, &n->id, &known, a->err);
        a->left = a->left || rc == -ENOENT;
        return rc == -ENOENT ? 0 : rc;
    }
    if (n->id.len != hasher_size(sealer_hasher(s->repo->sealer)) || n->key_id != 0 || n->compression > UINT16_MAX ||
        n->time < 0 || n->time >= UINT32_MAX)
        return 0;
    int64_t time = n->time;
    rc = index_set_find(s->repo->index, &n->id, &known, a->err);
    if (rc < 0 && rc != -ENOENT)
        return rc;
    if (rc == 0 && !known.deleted)
        return 0;
    if (rc == 0 && known.time >= time)
        time = known.time + 1;
    if (time >= UINT32_MAX)
        return 0;
    rc = session_make_room(s, a->err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&s->lock);
    rc = adopt_pending(s, n, (uint32_t)time, a->err);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static int adopt_pack(const struct blob_info *info, void *arg)
{
    struct session *s = arg;
    struct err err = ERR_INIT;
    struct adoption a = {.session = s, .pack = info->name, .err = &err};
    int rc = pack_read_local_index(s->repo->blobs, s->repo->sealer, info->name, info->length, adopt_entry, &a, &err);
    pthread_mutex_lock(&s->lock);
    bool failed = s->failed;
    pthread_mutex_unlock(&s->lock);
    if (rc == 0 || failed || rc == -ENOMEM)
        return failed ? -EIO : rc < 0 ? rc : a.left;
    /* It remains an orphan that maintenance collects; its contents are put again. */
    log_warning("cannot use a pack of an interrupted session: %s", err.msg);
    return 1;
}

static int packs_adopt(struct session *s, struct err *e)
{
    s->adopting = true;
    int rc = dead_sessions_find(&s->dead, s->repo, adopt_pack, s, e);
    s->adopting = false;
    if (rc < 0) {
        pthread_mutex_lock(&s->lock);
        int failed = session_check(s, e);
        pthread_mutex_unlock(&s->lock);
        return failed < 0 ? failed : rc == -ENOMEM ? err_nomem(e) : rc;
    }
    if (s->stats.adopted_contents > 0)
        log_info("using %llu content%s in %llu pack%s of an interrupted session",
                 (unsigned long long)s->stats.adopted_contents, plural(s->stats.adopted_contents),
                 (unsigned long long)s->stats.adopted_packs, plural(s->stats.adopted_packs));
    if (s->pending.count == 0)
        dead_sessions_clear(&s->dead, s->repo); /* nothing of theirs is waiting for a flush */
    return 0;
}

void session_test_age(struct session *s, int64_t ns)
{
    pthread_mutex_lock(&s->lock);
    for (struct round *r = s->rounds; r; r = r->next)
        r->marked_ns -= ns;
    pthread_mutex_unlock(&s->lock);
}

/* ---- begin and end ---- */

/* Pieces, and how many of them. */
static size_t buffer_plan(const struct session_opts *o, unsigned *count)
{
    size_t buffer = o && o->buffer ? o->buffer : SESSION_BUFFER;
    size_t piece = buffer < 6 * SEGMENT ? SEGMENT_SMALL : SEGMENT;
    *count = (unsigned)(buffer / piece > 6 ? buffer / piece : 6);
    return piece;
}

static int session_start(struct session *s, const struct session_opts *o, struct err *e)
{
    unsigned segments;
    size_t segment = buffer_plan(o, &segments);
    s->appended = o->appended;
    s->closed = o->closed;
    size_t cap = o->max_pending ? o->max_pending : DEFAULT_PENDING;
    cap = cap < LEAST_PENDING ? LEAST_PENDING : cap > (UINT32_C(1) << 26) ? UINT32_C(1) << 26 : cap;
    s->flush_at = (uint32_t)(cap - cap / 4);
    int rc = pending_init(&s->pending, (uint32_t)cap, e);
    if (rc == 0)
        rc = segments_new(&s->segments, segment, segments, e);
    if (rc == 0)
        rc = repo_keep_fresh(s->repo, e);
    struct round *r = rc == 0 ? session_round(s, e) : NULL;
    if (rc == 0)
        rc = !r                                                  ? -ENOMEM
             : o->mark_later && !blobs_are_files(s->repo->blobs) ? round_record(s, r, e)
                                                                 : round_begin(s, r, e);
    s->finishers = calloc(s->uploads, sizeof *s->finishers);
    if (rc == 0 && !s->finishers)
        rc = err_nomem(e);
    while (rc == 0 && s->n_finishers < s->uploads) {
        rc = -pthread_create(&s->finishers[s->n_finishers], NULL, session_finisher, s);
        if (rc < 0)
            return err_set(e, ERR_MEMORY, -rc, "cannot start a thread");
        s->n_finishers++;
    }
    return rc == 0 && !o->no_adopt ? packs_adopt(s, e) : rc;
}

int session_new(struct session **ret, struct repo *r, const struct session_opts *o, struct err *e)
{
    static const struct session_opts defaults = {0};
    struct session *s = calloc(1, sizeof *s);
    if (!s)
        return err_nomem(e);
    s->repo = r;
    s->uploads = blobs_uploads(r->blobs);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->flush_lock, NULL);
    pthread_mutex_init(&s->begin_lock, NULL);
    pthread_mutex_init(&s->table_lock, NULL);
    pthread_cond_init(&s->finish, NULL);
    pthread_cond_init(&s->changed, NULL);
    pthread_rwlock_wrlock(&r->sessions_lock);
    s->next = r->sessions;
    r->sessions = s;
    pthread_rwlock_unlock(&r->sessions_lock);
    int rc = session_start(s, o ? o : &defaults, e);
    if (rc < 0) {
        session_free(s);
        return rc;
    }
    *ret = s;
    return 0;
}

static void leave_repo(struct session *s)
{
    pthread_rwlock_wrlock(&s->repo->sessions_lock);
    struct session **at = &s->repo->sessions;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    pthread_rwlock_unlock(&s->repo->sessions_lock);
}

/* Discards what was not flushed. Finished packs remain, with their marker, for adoption by a later session. */
static void packs_abandon(struct session *s, struct round *r)
{
    bool durable = false;
    while (r->packs) {
        struct pack *p = r->packs;
        pack_writer_abort(p->out);
        durable = durable || p->durable;
        r->packs = p->next;
        free(p);
    }
    round_end(s, r, durable);
}

void session_free(struct session *s)
{
    if (!s)
        return;
    leave_repo(s);
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_broadcast(&s->finish);
    pthread_mutex_unlock(&s->lock);
    for (unsigned i = 0; i < s->n_finishers; i++)
        pthread_join(s->finishers[i], NULL);
    while (s->rounds) {
        struct round *r = s->rounds;
        s->rounds = r->next;
        packs_abandon(s, r);
    }
    free(s->finishers);
    segments_free(s->segments);
    dead_sessions_leave(&s->dead);
    free(s->packs);
    pending_clear(&s->pending);
    pthread_cond_destroy(&s->finish);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->flush_lock);
    pthread_mutex_destroy(&s->begin_lock);
    pthread_mutex_destroy(&s->table_lock);
    free(s);
}

struct repo *session_repo(const struct session *s)
{
    return s->repo;
}

uint64_t session_pending(struct session *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t n = s->pending.count;
    pthread_mutex_unlock(&s->lock);
    return n;
}

void session_stats(struct session *s, struct session_stats *ret)
{
    pthread_mutex_lock(&s->lock);
    *ret = s->stats;
    pthread_mutex_unlock(&s->lock);
    uint64_t wait_ns;
    segments_times(s->segments, &ret->write_ns, &wait_ns);
}

/* ---- what readers see of it ---- */

int sessions_find(struct repo *r, const struct content_id *id, struct index_entry *ret)
{
    int rc = -ENOENT;
    pthread_rwlock_rdlock(&r->sessions_lock);
    for (struct session *s = r->sessions; s && rc != 0; s = s->next) {
        pthread_mutex_lock(&s->lock);
        uint32_t i = pending_find(&s->pending, id);
        /* The content was reported to exist, but it is still being written: wait for it. */
        while (i != PENDING_NONE && s->pending.entries[i].state == PENDING_CLAIMED && !s->failed) {
            pthread_cond_wait(&s->changed, &s->lock);
            i = pending_find(&s->pending, id);
        }
        if (i != PENDING_NONE && s->pending.entries[i].state == PENDING_WRITTEN) {
            session_entry(s, i, ret);
            rc = 0;
        }
        pthread_mutex_unlock(&s->lock);
    }
    pthread_rwlock_unlock(&r->sessions_lock);
    return rc;
}

/* A pack of that name that is still an unnamed file; waits for one that is just being named. */
static struct pack *unfinished_pack(struct session *s, const char *name)
{
    for (uint32_t i = 0; i < s->n_packs; i++) {
        struct pack *p = s->packs[i];
        if (!p || !p->out || strcmp(p->name, name) != 0)
            continue;
        if (!p->committing)
            return p;
        pthread_cond_wait(&s->changed, &s->lock);
        i = UINT32_MAX; /* from the beginning: 0 comes next */
    }
    return NULL;
}

int sessions_read(struct repo *r, const char *pack, uint64_t offset, void *dst, size_t len, struct err *e)
{
    int rc = -ENOENT;
    pthread_rwlock_rdlock(&r->sessions_lock);
    for (struct session *s = r->sessions; s && rc == -ENOENT; s = s->next) {
        pthread_mutex_lock(&s->lock);
        struct pack *p = unfinished_pack(s, pack);
        if (p) {
            p->readers++;
            pthread_mutex_unlock(&s->lock);
            rc = pack_writer_read(p->out, offset, dst, len, e);
            pthread_mutex_lock(&s->lock);
            p->readers--;
            pthread_cond_broadcast(&s->changed);
        }
        pthread_mutex_unlock(&s->lock);
    }
    pthread_rwlock_unlock(&r->sessions_lock);
    return rc;
}
