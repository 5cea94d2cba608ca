/* SPDX-License-Identifier: GPL-2.0-or-later */
/* put.c - one content into a pack: look-up, claim, compression, sealing, writing */
#include "base/time.h"
#include "repo/item.h"
#include "repo/session-impl.h"
#include "repo/session-test.h"

#include <stdlib.h>
#include <string.h>

struct put_scratch {
    struct repo *repo;
    struct compressor *codec;
    struct grown compressed, sealed, ecc;
};

/* Contents are encrypted directly into their pack, except where error correction needs the whole item first. */
static size_t sealed_len(const struct sealer *s, size_t len)
{
    return item_in_pieces(s) ? 0 : item_sealed_len(s, len);
}

static int fit_sealed(struct put_scratch *p, size_t len, struct err *e)
{
    const struct sealer *s = p->repo->sealer;
    if (item_in_pieces(s))
        return 0;
    int rc = grown_fit(&p->sealed, sealed_len(s, len), e);
    return rc < 0 ? rc : grown_fit(&p->ecc, item_scratch_len(s, len), e);
}

int put_scratch_new(struct put_scratch **ret, struct repo *r, uint32_t compression, size_t max_len, struct err *e)
{
    struct put_scratch *p = calloc(1, sizeof *p);
    if (!p)
        return err_nomem(e);
    p->repo = r;
    int rc = compressor_new(&p->codec, e);
    if (rc == 0 && compression != 0)
        rc = grown_fit(&p->compressed, max_len, e);
    if (rc == 0)
        rc = fit_sealed(p, max_len, e);
    if (rc < 0) {
        put_scratch_free(p);
        return rc;
    }
    *ret = p;
    return 0;
}

void put_scratch_free(struct put_scratch *p)
{
    if (!p)
        return;
    compressor_free(p->codec);
    free(p->compressed.data);
    free(p->sealed.data);
    free(p->ecc.data);
    free(p);
}

size_t put_scratch_memory(const struct repo *r, uint32_t compression, size_t max_len)
{
    return sizeof(struct put_scratch) + compressor_memory(compression, max_len) + (compression ? max_len : 0) +
           sealed_len(r->sealer, max_len) + item_scratch_len(r->sealer, max_len);
}

static int cannot_put(const struct content_id *id, struct err *e)
{
    char text[CONTENT_ID_TEXT];
    return err_wrap(e, "cannot store content %s", content_id_text(id, text));
}

/* R3: only what exists and is not deleted, in a recent view. *time: of an entry that must be superseded (deleted, or
 * its pack is gone), else 0. */
static int in_index(struct session *s, const struct content_id *id, uint32_t *time, struct err *e)
{
    struct index_entry n;
    *time = 0;
    int rc = repo_keep_fresh(s->repo, e);
    if (rc < 0)
        return rc;
    rc = index_set_find(s->repo->index, id, &n, e);
    if (rc == -ENOENT)
        return 0;
    if (rc < 0)
        return rc;
    if (!n.deleted) {
        rc = repo_pack_there(s->repo, &n, e);
        if (rc != 0)
            return rc;
    }
    *time = n.time < 0 ? 0 : n.time > UINT32_MAX ? UINT32_MAX : (uint32_t)n.time;
    return 0;
}

/* 0: it exists, and *time is that of its entry, which is to be superseded; 1: there is nothing to store again. */
static int in_index_alive(struct session *s, const struct content_id *id, uint32_t *time, struct err *e)
{
    struct index_entry n;
    int rc = repo_keep_fresh(s->repo, e);
    if (rc == 0)
        rc = index_set_find(s->repo->index, id, &n, e);
    if (rc == -ENOENT || (rc == 0 && n.deleted))
        return 1;
    *time = rc < 0 || n.time < 0 ? 0 : n.time > UINT32_MAX ? UINT32_MAX : (uint32_t)n.time;
    return rc;
}

int session_has(struct session *s, const struct content_id *id, struct err *e)
{
    uint32_t time;
    pthread_mutex_lock(&s->lock);
    int rc = session_check(s, e);
    uint32_t i = pending_find(&s->pending, id);
    bool known = i != PENDING_NONE, deleted = known && (s->pending.entries[i].offset & PENDING_DELETED);
    pthread_mutex_unlock(&s->lock);
    if (rc < 0 || known)
        return rc < 0 ? rc : !deleted;
    return in_index(s, id, &time, e);
}

/* Something changed meanwhile, or the table is full: restart. */
#define LOOK_AGAIN 2
/* A pending entry belongs to a round that is being published and can no longer be changed: restart when the index
 * has it. (Waiting is not possible: the flush may fail, and may never be called again.) */
#define FLUSH_FIRST 3

static int flush_first(struct session *s, struct err *e)
{
    int rc = session_flush(s, e);
    return rc < 0 ? rc : LOOK_AGAIN;
}

struct claim {
    struct round *round;
    uint32_t entry;
    uint32_t older; /* time of the deleted entry that the new one replaces, 0: none */
};

static int claim_in_round(struct session *s, struct claim *c, struct err *e)
{
    c->round = session_round(s, e);
    if (!c->round)
        return -ENOMEM;
    c->round->claims++;
    return 1;
}

/* The content is pending. 0: exists; 1: deleted, and claimed again; FLUSH_FIRST. */
static int claim_pending(struct session *s, struct claim *c, struct err *e)
{
    struct pending_entry *p = &s->pending.entries[c->entry];
    if (p->state == PENDING_CLAIMED || !(p->offset & PENDING_DELETED))
        return 0; /* a flush waits for claims too, so it may be referenced */
    struct pack *pack = s->packs[p->pack];
    if (pack->round->sealed)
        return FLUSH_FIRST;
    int rc = claim_in_round(s, c, e);
    if (rc < 0)
        return rc;
    pack_unlink(s, pack, c->entry);
    c->older = p->time;
    p->state = PENDING_CLAIMED;
    p->offset = 0;
    return 1;
}

/* 1: claimed; 0: it exists; LOOK_AGAIN; FLUSH_FIRST; negative: error. */
static int content_claim(struct session *s, const struct content_id *id, bool again, struct claim *c, struct err *e)
{
    pthread_mutex_lock(&s->lock);
    uint64_t flushes = s->flushes;
    int rc = session_check(s, e);
    if (rc == 0) {
        c->entry = pending_find(&s->pending, id);
        if (c->entry != PENDING_NONE)
            rc = claim_pending(s, c, e);
    }
    pthread_mutex_unlock(&s->lock);
    if (rc != 0 || c->entry != PENDING_NONE)
        return rc;

    rc = again ? in_index_alive(s, id, &c->older, e) : in_index(s, id, &c->older, e);
    if (rc != 0)
        return rc < 0 ? rc : 0;

    pthread_mutex_lock(&s->lock);
    rc = session_check(s, e);
    /* Other threads may have put it, and even flushed it, meanwhile. */
    if (rc == 0 && (s->flushes != flushes || pending_find(&s->pending, id) != PENDING_NONE))
        rc = LOOK_AGAIN;
    if (rc == 0) {
        c->entry = pending_add(&s->pending, id);
        rc = c->entry == PENDING_NONE ? LOOK_AGAIN : claim_in_round(s, c, e);
        if (rc < 0)
            pending_remove(&s->pending, c->entry);
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* What is written to a pack: the content, or its compressed form. */
struct payload {
    const void *data;
    size_t len;
    uint32_t stored; /* bytes in the pack */
};

/* Compresses if that makes it smaller. */
static int payload_prepare(struct put_scratch *p, const void *data, size_t len, uint32_t compression,
                           struct payload *ret, struct put_result *res, struct err *e)
{
    *ret = (struct payload){.data = data, .len = len};
    uint64_t from = mono_ns();
    if (compression != 0 && len > 0 && repo_format(p->repo)->index_version > 1) {
        int rc = grown_fit(&p->compressed, len, e);
        if (rc < 0)
            return rc;
        int64_t n = compressor_compress(p->codec, compression, data, len, p->compressed.data, len, false, e);
        if (n < 0)
            return (int)n;
        if (n > 0) {
            ret->data = p->compressed.data;
            ret->len = (size_t)n;
            res->compression = compression;
        }
    }
    res->compress_ns = mono_ns() - from;
    size_t stored = item_sealed_len(p->repo->sealer, ret->len);
    if (stored >= CONTENT_LEN_LIMIT)
        return err_set(e, ERR_GENERIC, EFBIG, "stored length of %zu bytes exceeds the limit of 2^28", stored);
    ret->stored = (uint32_t)stored;
    return fit_sealed(p, ret->len, e);
}

static uint32_t time_after(uint32_t older)
{
    int64_t now = now_ns() / NS_PER_S;
    uint32_t t = now < 0 ? 0 : now > UINT32_MAX ? UINT32_MAX : (uint32_t)now;
    return older >= t && older < UINT32_MAX ? older + 1 : t;
}

/* Seals into a pack and completes the claimed entry. */
static int content_store(struct session *s, struct put_scratch *scratch, const struct claim *c,
                         const struct content_id *id, const struct payload *what, uint32_t length,
                         struct put_result *res, struct err *e)
{
    uint32_t offset;
    uint64_t from = mono_ns();
    pthread_mutex_lock(&s->lock);
    struct pack *p = pack_reserve(s, c->round, id->prefix != 0, what->stored, &offset, e);
    pthread_mutex_unlock(&s->lock);
    if (!p)
        return -(e->sys ? e->sys : EIO);
    uint64_t sealing = mono_ns(), wait = 0;
    int rc = pack_writer_seal(p->out, offset, content_iv(id), 16, what->data, what->len, scratch->sealed.data,
                              scratch->ecc.data, &wait, e);
    res->seal_ns = mono_ns() - sealing - wait;
    res->write_ns = sealing - from + wait;
    if (rc < 0)
        cannot_put(id, e);

    pthread_mutex_lock(&s->lock);
    if (rc == 0) {
        struct pending_entry *n = &s->pending.entries[c->entry];
        n->offset = offset;
        n->packed = what->stored;
        n->length = length;
        n->compression = (uint16_t)res->compression;
        n->time = time_after(c->older);
        n->format_version = (uint8_t)repo_format(s->repo)->version;
        n->key_id = 0;
        n->state = PENDING_WRITTEN;
        pack_link(s, p, c->entry);
        s->stats.new_contents++;
        s->stats.new_bytes += length;
    }
    pack_written(s, p);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* Ends the claim. Others may have been told that the content exists, so a failure affects all of them. */
static void end_claim(struct session *s, const struct claim *c, int rc, struct err *e)
{
    pthread_mutex_lock(&s->lock);
    if (rc < 0) {
        session_fail(s, e);
        session_check(s, e); /* with the hint, or the first failure */
    }
    c->round->claims--;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static int put_content(struct session *s, struct put_scratch *p, const struct content_id *id, const void *data,
                       size_t len, uint32_t compression, bool again, struct put_result *ret, struct err *e)
{
    struct put_result res = {0};
    struct err own = ERR_INIT;
    struct claim c = {0};
    e = e ? e : &own;
    if (len >= CONTENT_LEN_LIMIT || id->len != hasher_size(sealer_hasher(s->repo->sealer)))
        return err_set(e, ERR_GENERIC, EINVAL, "invalid content of %zu bytes with an id of %u", len, id->len);
    int rc;
    do {
        rc = session_make_room(s, e);
        if (rc == 0)
            rc = content_claim(s, id, again, &c, e);
        if (rc == FLUSH_FIRST)
            rc = flush_first(s, e);
    } while (rc == LOOK_AGAIN);
    if (rc < 0)
        return rc;
    if (rc == 0) {
        pthread_mutex_lock(&s->lock);
        s->stats.dup_contents++;
        s->stats.dup_bytes += len;
        pthread_mutex_unlock(&s->lock);
        res.existed = true;
    } else {
        struct payload what;
        rc = payload_prepare(p, data, len, compression, &what, &res, e);
        if (rc < 0)
            cannot_put(id, e);
        if (rc == 0)
            rc = content_store(s, p, &c, id, &what, (uint32_t)len, &res, e);
        res.stored = what.stored;
        end_claim(s, &c, rc, e);
        if (rc < 0)
            return rc;
    }
    if (ret)
        *ret = res;
    return 0;
}

int session_put(struct session *s, struct put_scratch *p, const struct content_id *id, const void *data, size_t len,
                uint32_t compression, struct put_result *ret, struct err *e)
{
    return put_content(s, p, id, data, len, compression, false, ret, e);
}

int session_put_again(struct session *s, struct put_scratch *p, const struct content_id *id, const void *data,
                      size_t len, uint32_t compression, struct put_result *ret, struct err *e)
{
    return put_content(s, p, id, data, len, compression, true, ret, e);
}

int session_put_bytes(struct session *s, struct put_scratch *p, char prefix, const void *data, size_t len,
                      uint32_t compression, struct content_id *ret, struct err *e)
{
    const struct hasher *h = sealer_hasher(s->repo->sealer);
    struct content_id id = {.prefix = prefix, .len = (uint8_t)hasher_size(h)};
    hasher_digest(h, data, len, id.hash);
    int rc = session_put(s, p, &id, data, len, compression, NULL, e);
    if (rc == 0 && ret)
        *ret = id;
    return rc;
}

/* Deletion of an indexed content: a copy of its entry, pointing to its place. */
static int delete_indexed(struct session *s, const struct index_entry *n, uint32_t i, struct err *e)
{
    struct round *r = session_round(s, e);
    struct pack *p = r ? r->packs : NULL;
    while (p && strcmp(p->name, n->pack) != 0)
        p = p->next;
    if (r && !p)
        p = pack_add(s, r, n->pack, e);
    if (!p)
        return -ENOMEM;
    struct pending_entry *d = &s->pending.entries[i];
    d->offset = n->offset | PENDING_DELETED;
    d->packed = n->packed;
    d->length = n->length;
    d->compression = (uint16_t)n->compression;
    d->format_version = n->format_version;
    d->key_id = n->key_id;
    d->time = time_after((uint32_t)n->time);
    d->state = PENDING_WRITTEN;
    pack_link(s, p, i);
    return 0;
}

/* 0: done; LOOK_AGAIN; FLUSH_FIRST; negative: error. */
static int delete_once(struct session *s, const struct content_id *id, struct err *e)
{
    struct index_entry n;
    pthread_mutex_lock(&s->lock);
    uint64_t flushes = s->flushes;
    int rc = session_check(s, e);
    uint32_t i = pending_find(&s->pending, id);
    if (rc == 0 && i != PENDING_NONE) {
        struct pending_entry *p = &s->pending.entries[i];
        if (p->state == PENDING_CLAIMED) {
            pthread_cond_wait(&s->changed, &s->lock);
            rc = LOOK_AGAIN;
        } else if (s->packs[p->pack]->round->sealed) {
            rc = FLUSH_FIRST;
        } else if (!(p->offset & PENDING_DELETED)) {
            p->offset |= PENDING_DELETED;
            p->time = time_after(p->time);
        }
    }
    pthread_mutex_unlock(&s->lock);
    if (rc != 0 || i != PENDING_NONE)
        return rc;

    rc = repo_keep_fresh(s->repo, e);
    if (rc == 0)
        rc = index_set_find(s->repo->index, id, &n, e);
    if (rc == -ENOENT) {
        char text[CONTENT_ID_TEXT];
        err_plain(e, ERR_DAMAGE, ENOENT, "cannot delete content %s: it does not exist", content_id_text(id, text));
        return -ENOENT;
    }
    if (rc < 0 || n.deleted)
        return rc;
    if (n.compression > UINT16_MAX || n.time < 0 || n.time > UINT32_MAX)
        return err_set(e, ERR_DAMAGE, EBADMSG, "cannot copy the index entry of a content to be deleted");

    pthread_mutex_lock(&s->lock);
    rc = session_check(s, e);
    if (rc == 0 && (s->flushes != flushes || pending_find(&s->pending, id) != PENDING_NONE))
        rc = LOOK_AGAIN;
    if (rc == 0) {
        i = pending_add(&s->pending, id);
        rc = i == PENDING_NONE ? LOOK_AGAIN : delete_indexed(s, &n, i, e);
        if (rc < 0)
            pending_remove(&s->pending, i);
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

int session_delete_content(struct session *s, const struct content_id *id, struct err *e)
{
    int rc;
    do {
        rc = session_make_room(s, e);
        if (rc == 0)
            rc = delete_once(s, id, e);
        if (rc == FLUSH_FIRST)
            rc = flush_first(s, e);
    } while (rc == LOOK_AGAIN);
    return rc;
}
