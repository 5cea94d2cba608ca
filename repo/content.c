/* SPDX-License-Identifier: GPL-2.0-or-later */
/* content.c - contents read: fetched, opened, expanded, checked. */
#include "repo/item.h"
#include "repo/repo-impl.h"

#include "base/cleanup.h"

#include <stdlib.h>
#include <string.h>

struct content_reader {
    struct repo *repo;
    struct compressor *codec;
    struct grown sealed, opened, ecc;
};

int content_reader_new(struct content_reader **ret, struct repo *r, struct err *e)
{
    struct content_reader *c = calloc(1, sizeof *c);
    if (!c)
        return err_nomem(e);
    c->repo = r;
    int rc = compressor_new(&c->codec, e);
    if (rc < 0) {
        free(c);
        return rc;
    }
    *ret = c;
    return 0;
}

void content_reader_free(struct content_reader *c)
{
    if (!c)
        return;
    compressor_free(c->codec);
    free(c->sealed.data);
    free(c->opened.data);
    free(c->ecc.data);
    free(c);
}

/* Says which content could not be read, and where it should have been. */
static int wrap_place(const struct index_entry *n, struct err *e)
{
    char id[CONTENT_ID_TEXT];
    return err_wrap(e, "content %s in pack %s at %u+%u", content_id_text(&n->id, id), n->pack, n->offset, n->packed);
}

static int check_entry(const struct content_reader *c, const struct index_entry *n, struct err *e)
{
    if (n->key_id != 0)
        return err_set(e, ERR_FORMAT, ENOTSUP, "it is sealed with key %u, and only key 0 is known", n->key_id);
    if (!content_iv(&n->id) || n->length >= CONTENT_LEN_LIMIT || n->packed >= CONTENT_LEN_LIMIT ||
        n->packed < item_sealed_len(repo_sealer(c->repo), 0))
        return err_set(e, ERR_DAMAGE, EBADMSG, "its index entry is impossible (%u bytes, %u stored)", n->length,
                       n->packed);
    return 0;
}

/* The sealed bytes: the caller's, or fetched. */
static int fetch(struct content_reader *c, const struct index_entry *n, const void **stored, struct err *e)
{
    if (*stored)
        return 0;
    int rc = grown_fit(&c->sealed, n->packed, e);
    if (rc < 0)
        return rc;
    *stored = c->sealed.data;
    rc = sessions_read(c->repo, n->pack, n->offset, c->sealed.data, n->packed, e);
    return rc == -ENOENT ? blobs_read(c->repo->blobs, n->pack, n->offset, c->sealed.data, n->packed, e) : rc;
}

static int expand(struct content_reader *c, const struct index_entry *n, const void *stored, uint8_t *out, size_t cap,
                  struct err *e)
{
    const struct sealer *s = repo_sealer(c->repo);
    size_t max = item_opened_max(s, n->packed), scratch = item_scratch_len(s, n->packed);
    /* Straight into the caller's memory where the plaintext is the payload and has room. */
    bool direct = n->compression == 0 && max <= cap;
    int rc = direct ? 0 : grown_fit(&c->opened, max, e);
    if (rc == 0 && scratch > 0)
        rc = grown_fit(&c->ecc, scratch, e);
    if (rc < 0)
        return rc;
    uint8_t *plain = direct ? out : c->opened.data;
    bool repaired = false;
    int64_t len = item_open(s, content_iv(&n->id), 16, stored, n->packed, plain, c->ecc.data, &repaired, e);
    if (len < 0)
        return (int)len;
    if (repaired) {
        char id[CONTENT_ID_TEXT];
        log_warning("content %s in pack %s was damaged and has been repaired by error correction",
                    content_id_text(&n->id, id), n->pack);
    }
    if (n->compression != 0)
        return compressor_expand(c->codec, n->compression, plain, (size_t)len, out, n->length, e);
    if (len != n->length)
        return err_set(e, ERR_DAMAGE, EBADMSG, "it has %lld bytes where the index says %u", (long long)len, n->length);
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
        return err_set(e, ERR_DAMAGE, EBADMSG, "its id is not as long as the repository's hashes");
    hasher_digest(h, data, n->length, digest);
    if (memcmp(digest, n->id.hash, n->id.len) != 0)
        return err_set(e, ERR_DAMAGE, EBADMSG, "its bytes have another hash");
    return 0;
}

static int64_t read_entry(struct content_reader *c, const struct index_entry *n, const void *stored, void *out,
                          size_t cap, bool check_hash, struct err *e)
{
    if (n->length > cap)
        return err_set(e, ERR_GENERIC, ERANGE, "there is no room for its %u bytes", n->length);
    int rc = check_entry(c, n, e);
    if (rc == 0)
        rc = fetch(c, n, &stored, e);
    if (rc == 0)
        rc = expand(c, n, stored, out, cap, e);
    if (rc == 0 && check_hash)
        rc = check_content_hash(c, n, out, e);
    return rc < 0 ? (int64_t)rc : (int64_t)n->length;
}

/*
 * R8: what is not found may have come or moved since the index was loaded. Where a repository has lost much, each miss
 * would list it again: after the first few, the index is loaded for a miss at most every 2 seconds.
 */
static int refresh_for_miss(struct repo *r, struct err *e)
{
    if (atomic_fetch_add(&r->misses, 1) >= 8) {
        int64_t age = wall_ns() - index_set_loaded_ns(r->index);
        if (age >= 0 && age < 2 * NS_PER_S)
            return 0;
    }
    return index_set_refresh(r->index, e);
}

static bool same_place(const struct index_entry *a, const struct index_entry *b)
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
            !same_place(entry, &now)) {
            rc = read_entry(c, &now, NULL, out, cap, check_hash, e);
            if (rc < 0)
                wrap_place(&now, e);
            return rc;
        }
    }
    if (rc < 0)
        wrap_place(entry, e);
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
        err_set(e, ERR_DAMAGE, ENOENT, "content %s is not in the repository's index", content_id_text(id, text));
    }
    return rc;
}

int64_t content_read(struct content_reader *c, const struct content_id *id, void *out, size_t cap, bool check_hash,
                     struct err *e)
{
    struct index_entry n;
    int rc = find_or_refresh(c, id, &n, e);
    return rc < 0 ? rc : content_read_entry(c, &n, NULL, out, cap, check_hash, e);
}

int64_t content_get(struct content_reader *c, const struct content_id *id, uint8_t **out, size_t max, struct err *e)
{
    struct index_entry n;
    int rc = find_or_refresh(c, id, &n, e);
    if (rc < 0)
        return rc;
    if (n.length > max) {
        char text[CONTENT_ID_TEXT];
        return err_set(e, ERR_DAMAGE, EFBIG, "content %s has %u bytes where at most %zu make sense",
                       content_id_text(id, text), n.length, max);
    }
    CLEANUP_FREE uint8_t *p = malloc((size_t)n.length + 1);
    if (!p)
        return err_nomem(e);
    int64_t len = content_read_entry(c, &n, NULL, p, n.length, false, e);
    if (len < 0)
        return len;
    p[len] = '\0';
    *out = take_ptr(&p);
    return len;
}
