/* SPDX-License-Identifier: GPL-2.0-or-later */
/* content.c - reading contents: fetch, decrypt, expand, check */
#include "repo/blob-reader.h"
#include "repo/item.h"
#include "repo/repo-impl.h"

#include "base/cleanup.h"
#include "base/time.h"

#include <stdlib.h>
#include <string.h>

/* Sealed bytes that are read and decrypted at a time: together with their output they stay in the second-level
 * cache. */
#define PIECE (128u << 10)
#define WHOLE_MAX (32u << 20) /* sealed bytes that are read as a whole to determine an error */

struct content_reader {
    struct repo *repo;
    bool apart; /* content_reader_apart() */
    struct compressor *codec;
    struct blob_reader blobs;
    struct grown sealed, opened, ecc;
    uint8_t *piece; /* 64 bytes apart: ITEM_HEAD, PIECE, ITEM_TAIL */
    struct content_times times;
};

/* Adds the time since *from, and restarts it. */
static void time_add(uint64_t *sum, uint64_t *from)
{
    uint64_t now = mono_ns();
    *sum += now - *from;
    *from = now;
}

int content_reader_new(struct content_reader **ret, struct repo *r, struct err *e)
{
    struct content_reader *c = calloc(1, sizeof *c);
    if (!c)
        return err_nomem(e);
    c->repo = r;
    blob_reader_init(&c->blobs, r->blobs);
    int rc = compressor_new(&c->codec, e);
    if (rc < 0) {
        free(c);
        return rc;
    }
    *ret = c;
    return 0;
}

static int reader_hold(struct content_reader *c, uint64_t n, struct err *e)
{
    return c->apart ? 0 : repo_hold(c->repo, n, e);
}

static void reader_release(struct content_reader *c, uint64_t n)
{
    if (!c->apart)
        repo_release(c->repo, n);
}

static int held_fit(struct content_reader *c, struct grown *g, size_t n, struct err *e)
{
    if (n <= g->cap && g->data)
        return 0;
    reader_release(c, g->cap);
    free(g->data);
    *g = (struct grown){0};
    int rc = reader_hold(c, n, e);
    if (rc < 0)
        return rc;
    rc = grown_fit(g, n, e);
    if (g->cap > n) /* rounded up; nothing on failure */
        reader_hold(c, g->cap - n, e);
    if (rc < 0)
        reader_release(c, n);
    return rc;
}

static void held_drop(struct content_reader *c, struct grown *g)
{
    reader_release(c, g->cap);
    free(g->data);
    *g = (struct grown){0};
}

void content_reader_trim(struct content_reader *c)
{
    held_drop(c, &c->sealed);
    held_drop(c, &c->opened);
    held_drop(c, &c->ecc);
}

void content_reader_free(struct content_reader *c)
{
    if (!c)
        return;
    content_reader_trim(c);
    compressor_free(c->codec);
    blob_reader_clear(&c->blobs);
    free(c->piece);
    free(c);
}

const struct content_times *content_reader_times(const struct content_reader *c)
{
    return &c->times;
}

void content_reader_ahead(struct content_reader *c, const struct index_entry *n)
{
    blob_reader_ahead(&c->blobs, n->pack, n->offset, n->packed);
}

/* Adds to the error which content could not be read, and its place. */
static int err_add_place(const struct index_entry *n, struct err *e)
{
    char id[CONTENT_ID_TEXT];
    return err_wrap(e, "content %s in pack %s at %u+%u", content_id_text(&n->id, id), n->pack, n->offset, n->packed);
}

static int check_entry(const struct content_reader *c, const struct index_entry *n, struct err *e)
{
    if (n->key_id != 0)
        return err_set(e, ERR_FORMAT, ENOTSUP, "sealed with unknown key %u, only key 0 is supported", n->key_id);
    if (!content_iv(&n->id) || n->length >= CONTENT_LEN_LIMIT || n->packed >= CONTENT_LEN_LIMIT ||
        n->packed < item_sealed_len(repo_sealer(c->repo), 0))
        return err_set(e, ERR_DAMAGE, EBADMSG, "invalid index entry (%u bytes, %u stored)", n->length, n->packed);
    return 0;
}

/* From the store, with what is around it if that is little: a small pack of metadata is one request. */
static int around_fetch(struct content_reader *c, const struct index_entry *n, struct metadata_cache *m, uint8_t *dst,
                        struct err *e)
{
    uint8_t around[2 * METADATA_BLOCK];
    struct err ignored = ERR_INIT;
    const uint64_t from = n->offset - n->offset % METADATA_BLOCK, end = (uint64_t)n->offset + n->packed;
    const size_t want = (size_t)((end - from + METADATA_BLOCK - 1) / METADATA_BLOCK * METADATA_BLOCK);
    size_t got = 0;
    if (want <= sizeof around && blobs_read_upto(c->repo->blobs, n->pack, from, around, want, &got, &ignored) == 0 &&
        from + got >= end) {
        memcpy(dst, around + (n->offset - from), n->packed);
        metadata_cache_put(m, n->pack, from, around, got);
        return 0;
    }
    const int rc = blobs_read(c->repo->blobs, n->pack, n->offset, dst, n->packed, e);
    if (rc == 0)
        metadata_cache_put(m, n->pack, n->offset, dst, n->packed);
    return rc;
}

/* From the store, or *cached. */
static int stored_read(struct content_reader *c, const struct index_entry *n, uint8_t *dst, bool *cached, struct err *e)
{
    struct metadata_cache *m = repo_metadata_cache(c->repo, &n->id);
    if (!m)
        return blobs_read(c->repo->blobs, n->pack, n->offset, dst, n->packed, e);
    *cached = metadata_cache_get(m, n->pack, n->offset, dst, n->packed);
    return *cached ? 0 : around_fetch(c, n, m, dst, e);
}

/* The sealed bytes: the caller's, or fetched. */
static int sealed_fetch(struct content_reader *c, const struct index_entry *n, const void **stored, bool *cached,
                        struct err *e)
{
    *cached = false;
    if (*stored)
        return 0;
    int rc = held_fit(c, &c->sealed, n->packed, e);
    if (rc < 0)
        return rc;
    *stored = c->sealed.data;
    rc = sessions_read(c->repo, n->pack, n->offset, c->sealed.data, n->packed, e);
    return rc == -ENOENT ? stored_read(c, n, c->sealed.data, cached, e) : rc;
}

/* One piece of the stored bytes, at `from` of the content; the first call checks whether the pack is still being
 * written and must be read from its segments. */
static int read_piece(struct content_reader *c, const struct index_entry *n, uint8_t *to, size_t from, size_t len,
                      struct err *e)
{
    if (from == 0) {
        int rc = sessions_read(c->repo, n->pack, n->offset, to, len, e);
        if (rc != -ENOENT)
            return rc < 0 ? rc : -EAGAIN;
    }
    return blob_reader_read(&c->blobs, n->pack, (uint64_t)n->offset + from, to, len, e);
}

static int decrypt_pieces(struct content_reader *c, const struct index_entry *n, uint8_t *plain, struct err *e)
{
    const size_t len = n->packed - ITEM_OVERHEAD;
    uint8_t *const body = c->piece + 64, *const head = body - ITEM_HEAD;
    CLEANUP(item_stream_freep) struct item_stream *st = NULL;
    uint64_t t = mono_ns();
    size_t at = 0;
    do {
        const size_t step = len - at < PIECE ? len - at : PIECE;
        const size_t before = at == 0 ? ITEM_HEAD : 0, after = at + step == len ? ITEM_TAIL : 0;
        int rc = read_piece(c, n, body - before, at == 0 ? 0 : ITEM_HEAD + at, before + step + after, e);
        time_add(&c->times.read_ns, &t);
        if (rc == 0 && at == 0)
            rc = item_open_begin(repo_sealer(c->repo), content_iv(&n->id), 16, head, &st, e);
        if (rc == 0)
            rc = item_open_step(st, body, step, plain + at, e);
        if (rc == 0 && after)
            rc = item_open_end(take_ptr(&st), body + step, e);
        time_add(&c->times.open_ns, &t);
        if (rc < 0)
            return rc;
        at += step;
    } while (at < len);
    return 0;
}

/* Reads and decrypts piece by piece, so that the sealed bytes do not pass through memory. -EAGAIN: to be done as a
 * whole, which also determines the error, but for contents so large that this takes too much memory. `plain` is not
 * used before the tag at the end has been verified. */
static int open_pieces(struct content_reader *c, const struct index_entry *n, uint8_t *plain, struct err *e)
{
    if (!c->piece && !(c->piece = aligned_alloc(64, 64 + PIECE + 64)))
        return -EAGAIN;
    struct err own = ERR_INIT;
    int rc = decrypt_pieces(c, n, plain, &own);
    if (rc == 0 || rc == -EAGAIN)
        return rc;
    if (n->packed <= WHOLE_MAX)
        return -EAGAIN;
    *e = own;
    return rc;
}

/* Fetches and opens in one. Returns the length of what was sealed. */
static int64_t open_whole(struct content_reader *c, const struct index_entry *n, const void *stored, uint8_t *plain,
                          struct err *e)
{
    const struct sealer *s = repo_sealer(c->repo);
    size_t scratch = item_scratch_len(s, n->packed);
    uint64_t t = mono_ns();
    bool repaired = false, cached;
    int rc = sealed_fetch(c, n, &stored, &cached, e);
    time_add(&c->times.read_ns, &t);
    if (rc == 0 && scratch > 0)
        rc = held_fit(c, &c->ecc, scratch, e);
    if (rc < 0)
        return rc;
    struct err own = ERR_INIT;
    int64_t len =
        item_open(s, content_iv(&n->id), 16, stored, n->packed, plain, c->ecc.data, &repaired, cached ? &own : e);
    time_add(&c->times.open_ns, &t);
    if (len < 0 && cached) { /* whatever is in the file: the store decides */
        metadata_cache_forget(c->repo->metadata, n->pack, n->offset, n->packed);
        rc = blobs_read(c->repo->blobs, n->pack, n->offset, c->sealed.data, n->packed, e);
        if (rc < 0)
            return rc;
        len = item_open(s, content_iv(&n->id), 16, stored, n->packed, plain, c->ecc.data, &repaired, e);
    }
    if (repaired && len >= 0) {
        char id[CONTENT_ID_TEXT];
        log_warning("content %s in pack %s was damaged and has been repaired by error correction",
                    content_id_text(&n->id, id), n->pack);
        repo_note_corrected(c->repo, n);
    }
    return len;
}

bool repo_reads_in_pieces(struct repo *r)
{
    return item_in_pieces(repo_sealer(r)) && blobs_are_files(r->blobs);
}

static int payload_expand(struct content_reader *c, const struct index_entry *n, const void *stored, uint8_t *out,
                          size_t cap, struct err *e)
{
    size_t max = item_opened_max(repo_sealer(c->repo), n->packed);
    /* Directly into the caller's memory if the plaintext is the payload and fits. */
    bool direct = n->compression == 0 && max <= cap;
    int rc = direct ? 0 : held_fit(c, &c->opened, max, e);
    if (rc < 0)
        return rc;
    uint8_t *plain = direct ? out : c->opened.data;
    const bool pieces = !stored && repo_reads_in_pieces(c->repo);
    int64_t len = pieces ? open_pieces(c, n, plain, e) : -EAGAIN;
    if (len == 0)
        len = n->packed - ITEM_OVERHEAD;
    else if (len == -EAGAIN)
        len = open_whole(c, n, stored, plain, e);
    if (pieces && c->sealed.data) {
        /* Only needed to determine the error: not part of budgets. */
        held_drop(c, &c->sealed);
    }
    if (len < 0)
        return (int)len;
    uint64_t t = mono_ns();
    if (n->compression != 0) {
        rc = compressor_expand(c->codec, n->compression, plain, (size_t)len, out, n->length, e);
        time_add(&c->times.expand_ns, &t);
        return rc;
    }
    if (len != n->length)
        return err_set(e, ERR_DAMAGE, EBADMSG, "%lld bytes, %u expected by the index", (long long)len, n->length);
    if (!direct && len > 0)
        memcpy(out, plain, (size_t)len);
    return 0;
}

static int check_content_hash(const struct content_reader *c, const struct index_entry *n, const void *data,
                              struct err *e)
{
    const struct hasher *h = sealer_hasher(repo_sealer(c->repo));
    uint8_t digest[HASH_MAX];
    if (n->id.len != hasher_size(h))
        return err_set(e, ERR_DAMAGE, EBADMSG, "the length of its id is not that of the repository's hashes");
    hasher_digest(h, data, n->length, digest);
    if (memcmp(digest, n->id.hash, n->id.len) != 0)
        return err_set(e, ERR_DAMAGE, EBADMSG, "hash mismatch");
    return 0;
}

static int64_t read_entry(struct content_reader *c, const struct index_entry *n, const void *stored, void *out,
                          size_t cap, bool check_hash, struct err *e)
{
    if (n->length > cap)
        return err_set(e, ERR_GENERIC, ERANGE, "buffer too small for %u bytes", n->length);
    int rc = check_entry(c, n, e);
    if (rc == 0)
        rc = payload_expand(c, n, stored, out, cap, e);
    if (rc == 0 && check_hash)
        rc = check_content_hash(c, n, out, e);
    return rc < 0 ? (int64_t)rc : (int64_t)n->length;
}

void content_reader_apart(struct content_reader *c)
{
    c->apart = true;
}

size_t content_read_memory(const struct repo *r, const struct index_entry *n)
{
    /* Sealed, opened, and what error correction takes. */
    return n->length + 2 * (size_t)n->packed + item_scratch_len(repo_sealer(r), n->packed);
}

int64_t content_try_entry(struct content_reader *c, const struct index_entry *n, void *out, size_t cap)
{
    struct err ignored = ERR_INIT;
    return blobs_stopped(c->repo->blobs, &ignored) < 0 ? -ECANCELED : read_entry(c, n, NULL, out, cap, false, &ignored);
}

int repo_find(struct repo *r, const struct content_id *id, struct index_entry *ret, struct err *e)
{
    /* In this order: a flush adds to the index before it removes from the session. */
    if (sessions_find(r, id, ret) == 0)
        return 0;
    return index_set_find(r->index, id, ret, e);
}

/*
 * R8: a missing content may have been added or moved since the index was loaded. In a repository with many missing
 * contents each miss would reload the index: after the first few, it is reloaded at most every 2 seconds.
 */
static int refresh_for_miss(struct repo *r, struct err *e)
{
    if (atomic_fetch_add(&r->misses, 1) >= 8) {
        int64_t age = now_ns() - index_set_loaded_ns(r->index);
        if (age >= 0 && age < 2 * NS_PER_S)
            return 0;
    }
    return index_set_refresh(r->index, e);
}

static bool entry_same_place(const struct index_entry *a, const struct index_entry *b)
{
    return a->offset == b->offset && a->packed == b->packed && !strcmp(a->pack, b->pack);
}

int64_t content_read_entry(struct content_reader *c, const struct index_entry *entry, const void *stored, void *out,
                           size_t cap, bool check_hash, struct err *e)
{
    int64_t rc = read_entry(c, entry, stored, out, cap, check_hash, e);
    if (rc == -ENOENT && !stored) {
        struct index_entry now;
        struct err again = ERR_INIT;
        if (refresh_for_miss(c->repo, &again) == 0 && repo_find(c->repo, &entry->id, &now, &again) == 0 &&
            !entry_same_place(entry, &now)) {
            rc = read_entry(c, &now, NULL, out, cap, check_hash, e);
            if (rc < 0)
                err_add_place(&now, e);
            return rc;
        }
    }
    if (rc < 0) {
        if (rc == -EBADMSG || rc == -ENOENT)
            repo_note_damage(c->repo, entry);
        err_add_place(entry, e);
    }
    return rc;
}

static int find_or_refresh(struct content_reader *c, const struct content_id *id, struct index_entry *ret,
                           struct err *e)
{
    int rc = repo_find(c->repo, id, ret, e);
    if (rc != -ENOENT)
        return rc;
    rc = refresh_for_miss(c->repo, e);
    if (rc == 0)
        rc = repo_find(c->repo, id, ret, e);
    if (rc == -ENOENT) {
        char text[CONTENT_ID_TEXT];
        err_plain(e, ERR_DAMAGE, ENOENT, "content %s is not in the repository's index", content_id_text(id, text));
    }
    return rc;
}

int64_t content_get_entry(struct content_reader *c, const struct index_entry *n, uint8_t **out, size_t max,
                          struct err *e)
{
    int rc = blobs_stopped(c->repo->blobs, e);
    if (rc < 0)
        return rc;
    if (n->length > max) {
        char text[CONTENT_ID_TEXT];
        return err_set(e, ERR_DAMAGE, EFBIG, "content %s has %u bytes, at most %zu expected",
                       content_id_text(&n->id, text), n->length, max);
    }
    rc = repo_hold(c->repo, n->length, e);
    if (rc < 0)
        return err_add_place(n, e);
    CLEANUP_FREE uint8_t *p = malloc((size_t)n->length + 1);
    int64_t len = p ? content_read_entry(c, n, NULL, p, n->length, false, e) : err_nomem(e);
    repo_release(c->repo, n->length); /* the caller's from now on */
    if (len < 0)
        return len;
    p[len] = '\0';
    *out = take_ptr(&p);
    return len;
}

int64_t content_get(struct content_reader *c, const struct content_id *id, uint8_t **out, size_t max, struct err *e)
{
    struct index_entry n;
    int rc = blobs_stopped(c->repo->blobs, e);
    if (rc == 0)
        rc = find_or_refresh(c, id, &n, e);
    return rc < 0 ? rc : content_get_entry(c, &n, out, max, e);
}
