/* SPDX-License-Identifier: GPL-2.0-or-later */
/* pack.c - the frame around the contents of a pack blob, written and read */
#include "repo/pack.h"
#include "repo/repo-impl.h"

#include "base/bytes.h"
#include "base/cleanup.h"

#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

#define PREAMBLE_LEN 32
#define ALIGNMENT 4096                /* of the local index */
#define RECOVERY_LIMIT 65000          /* longest format blob with its HMAC that a recovery block can hold */
#define TAIL_LEN 8192                 /* what is read at first to find the postamble */
#define LOCAL_INDEX_LIMIT (32u << 20) /* a pack of ours has at most 16384 entries */

struct pack_writer {
    struct blob_writer *out;
    struct segmented *body;
    const struct sealer *sealer;
    unsigned index_version;
    uint64_t len;
};

int pack_name(char out[PACK_NAME_MAX], char letter, const char *session_id, struct err *e)
{
    uint8_t r[16];
    char hex[33];
    int rc = random_bytes(r, sizeof r, e);
    if (rc < 0)
        return rc;
    snprintf(out, PACK_NAME_MAX, "%c%s-%s", letter, hex_encode(hex, r, sizeof r), session_id);
    return 0;
}

/* Section 3.7: where the password cannot be changed, every pack has a copy of the format blob. */
static int recovery_block(const struct repo_format *f, uint8_t **ret, size_t *len, struct err *e)
{
    size_t body = f->blob_len + 32;
    if (body > RECOVERY_LIMIT)
        return err_set(e, ERR_FORMAT, EFBIG, "kopia.repository is too long (%zu bytes) to be copied into packs",
                       f->blob_len);
    uint8_t *p = malloc(body + 4);
    if (!p)
        return err_nomem(e);
    static const char key[] = "kopia-repository";
    unsigned mac_len = 32;
    put_le16(p, (uint16_t)body);
    memcpy(p + 2, f->blob, f->blob_len);
    if (!HMAC(EVP_sha256(), key, sizeof key - 1, f->blob, f->blob_len, p + 2 + f->blob_len, &mac_len)) {
        free(p);
        return err_set(e, ERR_GENERIC, 0, "HMAC-SHA256 is not available on this system");
    }
    put_le16(p + 2 + body, (uint16_t)body);
    *ret = p;
    *len = body + 4;
    return 0;
}

static int write_head(struct pack_writer *w, const struct repo_format *f, struct err *e)
{
    uint8_t preamble[PREAMBLE_LEN];
    if (!f->password_change) {
        CLEANUP_FREE uint8_t *block = NULL;
        size_t len = 0;
        int rc = recovery_block(f, &block, &len, e);
        if (rc == 0)
            rc = segmented_put(w->body, 0, block, len, e);
        if (rc < 0)
            return rc;
        w->len = len;
    }
    int rc = random_bytes(preamble, sizeof preamble, e);
    if (rc == 0)
        rc = segmented_put(w->body, w->len, preamble, sizeof preamble, e);
    w->len += sizeof preamble;
    return rc;
}

int pack_writer_new(struct pack_writer **ret, struct blobs *b, const struct sealer *s, const struct repo_format *f,
                    struct segments *segments, const char *name, uint32_t *start, struct err *e)
{
    struct pack_writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_nomem(e);
    w->sealer = s;
    w->index_version = f->index_version;
    int rc = blob_writer_new(&w->out, b, name, e);
    if (rc < 0) {
        free(w);
        return rc;
    }
    rc = segmented_new(&w->body, segments, w->out, e);
    if (rc == 0)
        rc = write_head(w, f, e);
    if (rc < 0) {
        pack_writer_abort(w);
        return rc;
    }
    *start = (uint32_t)w->len;
    *ret = w;
    return 0;
}

/* Encrypts straight into the segments. */
static int seal_in_pieces(struct pack_writer *w, uint64_t offset, const uint8_t *iv, size_t iv_len, const uint8_t *in,
                          size_t len, uint64_t *wait_ns, struct err *e)
{
    uint8_t head[ITEM_HEAD], tail[ITEM_TAIL];
    CLEANUP(item_stream_freep) struct item_stream *st = NULL;
    int rc = item_seal_begin(w->sealer, iv, iv_len, head, &st, e);
    if (rc == 0)
        rc = segmented_put(w->body, offset, head, sizeof head, e);
    offset += sizeof head;
    while (rc == 0 && len > 0) {
        uint8_t *to;
        size_t n;
        uint64_t from = mono_ns();
        rc = segmented_span(w->body, offset, len, &to, &n, e);
        *wait_ns += mono_ns() - from;
        if (rc == 0)
            rc = item_seal_step(st, in, n, to, e);
        if (rc < 0)
            break;
        segmented_filled(w->body, offset, n);
        in += n;
        offset += n;
        len -= n;
    }
    if (rc == 0)
        rc = item_seal_end(take_ptr(&st), tail, e);
    return rc < 0 ? rc : segmented_put(w->body, offset, tail, sizeof tail, e);
}

int pack_writer_seal(struct pack_writer *w, uint32_t offset, const uint8_t *iv, size_t iv_len, const void *in,
                     size_t len, void *scratch, void *ecc, uint64_t *wait_ns, struct err *e)
{
    if (item_in_pieces(w->sealer))
        return seal_in_pieces(w, offset, iv, iv_len, in, len, wait_ns, e);
    int rc = item_seal(w->sealer, iv, iv_len, in, len, scratch, ecc, e);
    uint64_t from = mono_ns();
    if (rc == 0)
        rc = segmented_put(w->body, offset, scratch, item_sealed_len(w->sealer, len), e);
    *wait_ns += mono_ns() - from;
    return rc;
}

int pack_writer_read(struct pack_writer *w, uint64_t offset, void *data, size_t len, struct err *e)
{
    return segmented_read(w->body, offset, data, len, e);
}

/* Seals a local index: its iv is its whole hash. */
static int seal_local_index(const struct sealer *s, const uint8_t *index, size_t len, struct postamble *p,
                            uint8_t **sealed, struct err *e)
{
    p->iv_len = hasher_size(sealer_hasher(s));
    hasher_digest(sealer_hasher(s), index, len, p->iv);
    p->length = item_sealed_len(s, len);
    size_t scratch_len = item_scratch_len(s, len);
    CLEANUP_FREE uint8_t *scratch = scratch_len ? malloc(scratch_len) : NULL;
    *sealed = malloc(p->length);
    if (!*sealed || (scratch_len && !scratch))
        return err_nomem(e);
    return item_seal(s, p->iv, p->iv_len, index, len, *sealed, scratch, e);
}

int pack_writer_close(struct pack_writer *w, uint32_t end, const struct index_entry *entries, size_t n, struct err *e)
{
    /* Never empty: 1..4096 bytes. */
    size_t pad = ALIGNMENT - end % ALIGNMENT;
    uint8_t padding[ALIGNMENT];
    CLEANUP_FREE uint8_t *index = NULL, *sealed = NULL;
    size_t index_len;
    int rc = random_bytes(padding, pad, e);
    if (rc == 0)
        rc = segmented_put(w->body, end, padding, pad, e);
    if (rc == 0)
        rc = index_build(entries, n, w->index_version, true, &index, &index_len, e);
    struct postamble p = {.offset = (uint64_t)end + pad};
    if (rc == 0)
        rc = seal_local_index(w->sealer, index, index_len, &p, &sealed, e);
    if (rc == 0)
        rc = segmented_put(w->body, p.offset, sealed, p.length, e);
    if (rc < 0)
        return rc;
    uint8_t tail[128];
    size_t tail_len = postamble_build(&p, tail);
    w->len = p.offset + p.length + tail_len;
    return segmented_put(w->body, p.offset + p.length, tail, tail_len, e);
}

int pack_writer_commit(struct pack_writer *w, struct err *e)
{
    int rc = segmented_end(w->body, w->len, e);
    if (rc < 0) {
        pack_writer_abort(w);
        return rc;
    }
    segmented_free(w->body);
    rc = blob_writer_commit(w->out, w->len, e);
    free(w);
    return rc;
}

void pack_writer_abort(struct pack_writer *w)
{
    if (!w)
        return;
    segmented_free(w->body);
    blob_writer_abort(w->out);
    free(w);
}

int pack_local_all(const uint8_t *index, size_t len, const char *name, uint64_t end, pack_entry_fn *fn, void *arg,
                   struct err *e)
{
    struct index_table t;
    struct index_entry n;
    int rc = index_parse(&t, index, len, e);
    for (uint64_t i = 0; rc == 0 && i < t.count; i++) {
        rc = index_entry_at(&t, i, &n, e);
        if (rc < 0)
            return rc;
        if (!n.deleted && !strcmp(n.pack, name) && ((uint64_t)n.offset + n.packed > end || n.packed == 0))
            return err_set(e, ERR_DAMAGE, EBADMSG, "entry %llu of the local index is outside the pack",
                           (unsigned long long)i);
        rc = fn(&n, arg);
    }
    return rc;
}

struct own_entries {
    const char *pack;
    pack_entry_fn *fn;
    void *arg;
};

static int own_entry(const struct index_entry *n, void *arg)
{
    const struct own_entries *o = arg;
    return n->deleted || strcmp(n->pack, o->pack) != 0 ? 0 : o->fn(n, o->arg);
}

int pack_local_entries(const uint8_t *index, size_t len, const char *name, uint64_t end, pack_entry_fn *fn, void *arg,
                       struct err *e)
{
    struct own_entries o = {name, fn, arg};
    return pack_local_all(index, len, name, end, own_entry, &o, e);
}

int pack_fetch_local_index(struct blobs *b, const struct sealer *s, const char *name, uint64_t pack_len, uint64_t max,
                           uint8_t **ret, size_t *ret_len, uint64_t *end, struct err *e)
{
    uint8_t tail[TAIL_LEN];
    size_t tail_len = pack_len < sizeof tail ? (size_t)pack_len : sizeof tail;
    struct postamble p;
    int rc = blobs_read(b, name, pack_len - tail_len, tail, tail_len, e);
    if (rc < 0)
        return rc;
    if (postamble_parse(&p, tail, tail_len, pack_len) < 0) {
        err_plain(e, ERR_DAMAGE, ENOENT, "pack %s has no local index at its end", name);
        return -ENOENT;
    }
    if (p.offset > pack_len || p.length > pack_len - p.offset || p.length > LOCAL_INDEX_LIMIT)
        return err_set(e, ERR_DAMAGE, EBADMSG, "local index of pack %s is outside of it, or too long", name);
    if (p.length > max)
        return err_set(e, ERR_MEMORY, EFBIG, "local index of pack %s has %llu bytes", name,
                       (unsigned long long)p.length);
    size_t scratch_len = item_scratch_len(s, (size_t)p.length);
    CLEANUP_FREE uint8_t *sealed = malloc((size_t)p.length + 1),
                         *index = malloc(item_opened_max(s, (size_t)p.length) + 1), *scratch = malloc(scratch_len + 1);
    if (!sealed || !index || !scratch)
        return err_nomem(e);
    /* Mostly it is in what was read already. */
    if (p.offset >= pack_len - tail_len)
        memcpy(sealed, tail + (p.offset - (pack_len - tail_len)), (size_t)p.length);
    else
        rc = blobs_read(b, name, p.offset, sealed, (size_t)p.length, e);
    if (rc < 0)
        return rc;
    int64_t len = item_open(s, p.iv, p.iv_len, sealed, (size_t)p.length, index, scratch, NULL, e);
    if (len < 0)
        return err_wrap(e, "cannot read the local index of pack %s", name);
    *ret = take_ptr(&index);
    *ret_len = (size_t)len;
    *end = p.offset;
    return 0;
}

int pack_read_local_index(struct blobs *b, const struct sealer *s, const char *name, uint64_t pack_len,
                          pack_entry_fn *fn, void *arg, struct err *e)
{
    CLEANUP_FREE uint8_t *index = NULL;
    size_t len;
    uint64_t end;
    int rc = pack_fetch_local_index(b, s, name, pack_len, LOCAL_INDEX_LIMIT, &index, &len, &end, e);
    if (rc < 0)
        return rc;
    rc = pack_local_entries(index, len, name, end, fn, arg, e);
    return rc < 0 ? err_wrap(e, "cannot read the local index of pack %s", name) : rc;
}
