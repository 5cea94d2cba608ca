/* SPDX-License-Identifier: GPL-2.0-or-later */
/* zfs-stream.c - what an incremental send stream of a zvol overwrites */
#include "io/native/zfs-stream.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define RECORD 312
#define SUM_AT 280 /* drr_checksum: the last 32 bytes of each record but BEGIN */
#define MAGIC 0x00000002F5bacbacULL
#define BLOCK_MAX ((uint64_t)16 << 20) /* SPA_MAXBLOCKSIZE */
#define BEGIN_MAX ((uint64_t)16 << 20) /* properties of the dataset */
#define EMBEDDED_MAX 512               /* BPE_PAYLOAD_SIZE is 112 */
#define TO_END UINT64_MAX              /* DMU_OBJECT_END */
#define END_MAX ((uint64_t)INT64_MAX)
#define ZVOL_OBJECT 1
#define OST_ZVOL 3
#define HDR_SUBSTREAM 1
#define FEATURE_RAW ((uint64_t)1 << 24)
#define FEATURE_RESUMING ((uint64_t)1 << 20)
#define FEATURE_REDACTED ((uint64_t)1 << 21)

enum record {
    DRR_BEGIN,
    DRR_OBJECT,
    DRR_FREEOBJECTS,
    DRR_WRITE,
    DRR_FREE,
    DRR_END,
    DRR_WRITE_BYREF,
    DRR_SPILL,
    DRR_WRITE_EMBEDDED,
    DRR_OBJECT_RANGE,
    DRR_REDACT,
    DRR_TYPES
};

/* fletcher-4: four running sums over words of 32 bits. */
struct sums {
    uint64_t a, b, c, d;
};

struct zfs_stream {
    uint64_t from, to, bytes;
    struct changes *list;
    struct sums sums, before; /* up to now; up to the record */
    uint8_t record[RECORD];
    size_t have;      /* of the record */
    uint64_t payload; /* bytes of it that are to come */
    uint8_t odd[4];   /* of a payload: less than a word */
    size_t n_odd;
    bool begun, ended, failed, swapped;
};

int zfs_stream_new(struct zfs_stream **ret, uint64_t from, uint64_t to, struct changes *list, struct err *e)
{
    struct zfs_stream *s = calloc(1, sizeof *s);
    if (!s)
        return err_nomem(e);
    s->from = from;
    s->to = to;
    s->list = list;
    *ret = s;
    return 0;
}

void zfs_stream_free(struct zfs_stream *s)
{
    free(s);
}

uint64_t zfs_stream_bytes(const struct zfs_stream *s)
{
    return s->bytes;
}

static int malformed(const struct zfs_stream *s, const char *what, struct err *e)
{
    return err_set(e, ERR_DAMAGE, EBADMSG, "the send stream is malformed after %" PRIu64 " bytes: %s", s->bytes, what);
}

/* ---- words ---- */

static uint32_t u32(const struct zfs_stream *s, size_t at)
{
    uint32_t v;
    memcpy(&v, s->record + at, sizeof v);
    return s->swapped ? __builtin_bswap32(v) : v;
}

static uint64_t u64(const struct zfs_stream *s, size_t at)
{
    uint64_t v;
    memcpy(&v, s->record + at, sizeof v);
    return s->swapped ? __builtin_bswap64(v) : v;
}

static void sum_words(struct zfs_stream *s, const uint8_t *p, size_t n)
{
    struct sums x = s->sums;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t w;
        memcpy(&w, p + i, sizeof w);
        x.a += s->swapped ? __builtin_bswap32(w) : w;
        x.b += x.a;
        x.c += x.b;
        x.d += x.c;
    }
    s->sums = x;
}

static bool sums_are(const struct zfs_stream *s, size_t at, const struct sums *x)
{
    return u64(s, at) == x->a && u64(s, at + 8) == x->b && u64(s, at + 16) == x->c && u64(s, at + 24) == x->d;
}

/* A record whose sum was not filled in has zeros. */
static bool sum_absent(const struct zfs_stream *s, size_t at)
{
    return !(u64(s, at) | u64(s, at + 8) | u64(s, at + 16) | u64(s, at + 24));
}

/* ---- records ---- */

static int take_begin(struct zfs_stream *s, struct err *e)
{
    uint64_t magic;
    memcpy(&magic, s->record + 8, sizeof magic);
    s->swapped = magic == __builtin_bswap64(MAGIC);
    if (!s->swapped && magic != MAGIC)
        return malformed(s, "it does not begin with the magic number", e);
    if (u32(s, 0) != DRR_BEGIN)
        return malformed(s, "the first record is not BEGIN", e);
    const uint64_t info = u64(s, 16), features = info >> 2 & (((uint64_t)1 << 30) - 1);
    if ((info & 3) != HDR_SUBSTREAM || u32(s, 32) != OST_ZVOL)
        return malformed(s, "it is not the stream of a single volume", e);
    if (features & (FEATURE_RAW | FEATURE_REDACTED | FEATURE_RESUMING))
        return err_set(e, ERR_SOURCE, ENOTSUP, "a raw, redacted or resumed send stream does not list all changes");
    if (u64(s, 40) != s->to || u64(s, 48) != s->from)
        return err_plain(e, ERR_SOURCE, ESTALE,
                         "the send stream is from the snapshot with guid %" PRIu64 " to %" PRIu64 ", not from %" PRIu64
                         " to %" PRIu64,
                         u64(s, 48), u64(s, 40), s->from, s->to);
    s->begun = true;
    s->payload = u32(s, 4);
    return s->payload > BEGIN_MAX ? malformed(s, "the payload of BEGIN is too long", e) : 0;
}

static int check_range(const struct zfs_stream *s, uint64_t start, uint64_t len, struct err *e)
{
    return start > END_MAX || len > END_MAX - start ? malformed(s, "a range ends behind the last possible byte", e) : 0;
}

static int add_range(struct zfs_stream *s, uint64_t object, uint64_t start, uint64_t len, struct err *e)
{
    if (object != ZVOL_OBJECT)
        return 0;
    int rc = check_range(s, start, len, e);
    return rc < 0 ? rc : changes_add(s->list, start, len, e);
}

/* Whoever receives the stream has zeros there, unless another record writes them. */
static int add_freed(struct zfs_stream *s, uint64_t object, uint64_t start, uint64_t len, struct err *e)
{
    if (object != ZVOL_OBJECT)
        return 0;
    if (len == TO_END && start <= END_MAX)
        len = END_MAX - start;
    int rc = check_range(s, start, len, e);
    return rc < 0 ? rc : changes_add_zeros(s->list, start, len, e);
}

static int take_object(struct zfs_stream *s, struct err *e)
{
    const uint64_t bonus = u32(s, 28), raw = u32(s, 36);
    s->payload = raw ? raw : (bonus + 7) / 8 * 8;
    return s->payload > BLOCK_MAX ? malformed(s, "a bonus buffer is too long", e) : 0;
}

static int take_write(struct zfs_stream *s, struct err *e)
{
    const uint64_t size = u64(s, 32), packed = u64(s, 96);
    if (!size || size > BLOCK_MAX || packed > BLOCK_MAX)
        return malformed(s, "the length of a block", e);
    s->payload = s->record[50] ? packed : size;
    return add_range(s, u64(s, 8), u64(s, 24), size, e);
}

static int take_embedded(struct zfs_stream *s, struct err *e)
{
    const uint64_t size = u64(s, 24), packed = u32(s, 52);
    if (!size || size > BLOCK_MAX || packed > EMBEDDED_MAX)
        return malformed(s, "the length of an embedded block", e);
    s->payload = (packed + 7) / 8 * 8;
    return add_range(s, u64(s, 8), u64(s, 16), size, e);
}

static int take_spill(struct zfs_stream *s, struct err *e)
{
    s->payload = s->record[33] ? u64(s, 40) : u64(s, 16);
    return s->payload > BLOCK_MAX ? malformed(s, "the length of a spill block", e) : 0;
}

static int take_freed_objects(struct zfs_stream *s, struct err *e)
{
    const uint64_t first = u64(s, 8), n = u64(s, 16);
    if (first <= ZVOL_OBJECT && n > ZVOL_OBJECT - first)
        return err_set(e, ERR_SOURCE, ENOTSUP, "the object of the volume was made anew between both snapshots");
    return 0;
}

/* Its own sum is that of all records before it. */
static int take_end(struct zfs_stream *s, struct err *e)
{
    s->ended = true;
    return sums_are(s, 8, &s->before) || sum_absent(s, 8) ? 0 : malformed(s, "the checksum of the stream is wrong", e);
}

/* Where a record has the guid of its snapshot. */
static size_t guid_at(enum record type)
{
    static const size_t at[DRR_TYPES] = {
        [DRR_OBJECT] = 40,       [DRR_FREEOBJECTS] = 24, [DRR_WRITE] = 40, [DRR_FREE] = 32,
        [DRR_END] = 40,          [DRR_WRITE_BYREF] = 32, [DRR_SPILL] = 24, [DRR_WRITE_EMBEDDED] = 32,
        [DRR_OBJECT_RANGE] = 24, [DRR_REDACT] = 32};
    return at[type];
}

static int take_record(struct zfs_stream *s, enum record type, struct err *e)
{
    switch (type) {
    case DRR_OBJECT:
        return take_object(s, e);
    case DRR_FREEOBJECTS:
        return take_freed_objects(s, e);
    case DRR_WRITE:
        return take_write(s, e);
    case DRR_FREE:
        return add_freed(s, u64(s, 8), u64(s, 16), u64(s, 24), e);
    case DRR_WRITE_BYREF:
        return add_range(s, u64(s, 8), u64(s, 16), u64(s, 24), e);
    case DRR_END:
        return take_end(s, e);
    case DRR_SPILL:
        return take_spill(s, e);
    case DRR_WRITE_EMBEDDED:
        return take_embedded(s, e);
    case DRR_OBJECT_RANGE:
    case DRR_REDACT:
        return err_set(e, ERR_SOURCE, ENOTSUP, "a raw or redacted send stream does not list all changes");
    case DRR_BEGIN:
    case DRR_TYPES:
        break;
    }
    return malformed(s, "a second BEGIN", e);
}

static int take_header(struct zfs_stream *s, struct err *e)
{
    int rc;
    s->payload = 0;
    if (!s->begun) {
        rc = take_begin(s, e);
        sum_words(s, s->record, RECORD);
    } else {
        const uint32_t type = u32(s, 0);
        s->before = s->sums;
        sum_words(s, s->record, SUM_AT);
        if (type >= DRR_TYPES)
            return malformed(s, "an unknown record", e);
        if (!sums_are(s, SUM_AT, &s->sums) && !sum_absent(s, SUM_AT))
            return malformed(s, "the checksum of a record is wrong", e);
        if (guid_at(type) && u64(s, guid_at(type)) != s->to)
            return malformed(s, "a record is of another snapshot", e);
        rc = take_record(s, type, e);
        sum_words(s, s->record + SUM_AT, RECORD - SUM_AT);
    }
    if (rc == 0 && s->payload % 8)
        rc = malformed(s, "a payload is not a multiple of eight bytes", e);
    return rc;
}

static size_t take_payload(struct zfs_stream *s, const uint8_t *p, size_t n)
{
    size_t used = 0;
    if (n > s->payload)
        n = (size_t)s->payload;
    while (used < n && (s->n_odd || n - used < 4)) {
        s->odd[s->n_odd++] = p[used++];
        if (s->n_odd == 4) {
            sum_words(s, s->odd, 4);
            s->n_odd = 0;
        }
    }
    const size_t whole = (n - used) / 4 * 4;
    sum_words(s, p + used, whole);
    used += whole;
    s->payload -= used;
    return used;
}

int zfs_stream_feed(struct zfs_stream *s, const void *p, size_t n, struct err *e)
{
    const uint8_t *at = p;
    int rc = s->failed ? err_set(e, ERR_DAMAGE, EBADMSG, "the send stream is malformed") : 0;
    while (rc == 0 && n > 0) {
        size_t used;
        if (s->ended) {
            rc = malformed(s, "something follows its end", e);
            break;
        }
        if (s->payload) {
            used = take_payload(s, at, n);
        } else {
            used = n < RECORD - s->have ? n : RECORD - s->have;
            memcpy(s->record + s->have, at, used);
            s->have += used;
        }
        s->bytes += used;
        at += used;
        n -= used;
        if (s->have == RECORD) {
            s->have = 0;
            rc = take_header(s, e);
        }
    }
    s->failed |= rc < 0;
    return rc;
}

int zfs_stream_end(const struct zfs_stream *s, struct err *e)
{
    return s->ended && !s->failed ? 0 : malformed(s, "it ends in the middle", e);
}
