/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/index.h"

#include "base/bytes.h"
#include "base/cleanup.h"

#include <errno.h>
#include <isa-l/crc.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* ---- content ids ------------------------------------------------------------------------------------------------ */

int content_id_parse(struct content_id *ret, const char *text, size_t len)
{
    struct content_id id = {.prefix = 0};
    if (len % 2 == 1) {
        if (text[0] < 'g' || text[0] > 'z')
            return -EINVAL;
        id.prefix = text[0];
        text++;
        len--;
    }
    if (len == 0 || len / 2 > sizeof id.hash || hex_decode(id.hash, text, len) < 0)
        return -EINVAL;
    id.len = (uint8_t)(len / 2);
    *ret = id;
    return 0;
}

char *content_id_text(const struct content_id *id, char out[CONTENT_ID_TEXT])
{
    char *p = out;
    if (id->prefix)
        *p++ = id->prefix;
    hex_encode(p, id->hash, id->len <= sizeof id->hash ? id->len : sizeof id->hash);
    return out;
}

#define KEY_MAX 33 /* prefix byte and hash */

static size_t key_of(const struct content_id *id, uint8_t key[KEY_MAX])
{
    size_t n = id->len <= sizeof id->hash ? id->len : sizeof id->hash;
    key[0] = (uint8_t)id->prefix;
    memcpy(key + 1, id->hash, n);
    return n + 1;
}

static int key_cmp(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
    int r = memcmp(a, b, a_len < b_len ? a_len : b_len);
    if (r)
        return r;
    return (a_len > b_len) - (a_len < b_len);
}

int content_id_cmp(const struct content_id *a, const struct content_id *b)
{
    uint8_t pa = (uint8_t)a->prefix, pb = (uint8_t)b->prefix;
    if (pa != pb)
        return pa < pb ? -1 : 1;
    return key_cmp(a->hash, a->len, b->hash, b->len);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

#define V1_HEADER 8
#define V1_ENTRY 20
#define V2_HEADER 17
#define V2_PACK 5
#define V2_FORMAT 6
#define V2_ENTRY_MIN 16
#define V2_ENTRY_MAX 19
#define V1_EMPTY_KEY 255
#define OVERHEAD 28 /* of a stored content: version 1 derives the plaintext's length from it */

static int table_damaged(struct err *e, const char *what)
{
    return err_set(e, ERR_DAMAGE, EBADMSG, "index table: %s", what);
}

static uint32_t get_be24(const uint8_t *p)
{
    return (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
}

static void put_be24(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 16);
    put_be16(p + 1, (uint16_t)v);
}

/* With keys of at most 255 + entries of at most 20 bytes and 32-bit counts nothing here can overflow 64 bits. */
static int parse_v2(struct index_table *t, struct err *e)
{
    const uint8_t *p = t->data;
    if (t->size < V2_HEADER)
        return table_damaged(e, "header truncated");
    t->entry_len = get_be16(p + 2);
    t->packs = get_be32(p + 8);
    t->formats = p[12];
    t->base_time = get_be32(p + 13);
    if (t->entry_len < V2_ENTRY_MIN || t->entry_len > V2_ENTRY_MAX)
        return err_set(e, ERR_DAMAGE, EBADMSG, "index table: entries of %u bytes (16 to 19 supported)", t->entry_len);
    uint64_t end = V2_HEADER + t->count * (t->key_len + t->entry_len);
    uint64_t formats_at = end + (uint64_t)t->packs * V2_PACK;
    if (formats_at + (uint64_t)t->formats * V2_FORMAT > t->size)
        return err_set(e, ERR_DAMAGE, EBADMSG, "index table: %zu bytes are too few for %llu entries and %u packs",
                       t->size, (unsigned long long)t->count, t->packs);
    t->packs_at = (size_t)end;
    t->formats_at = (size_t)formats_at;
    return 0;
}

static int parse_v1(struct index_table *t, struct err *e)
{
    t->entry_len = get_be16(t->data + 2);
    if (t->key_len == V1_EMPTY_KEY && t->count == 0) {
        t->packs_at = t->formats_at = V1_HEADER;
        return 0;
    }
    if (t->entry_len != V1_ENTRY)
        return err_set(e, ERR_DAMAGE, EBADMSG, "index table: entries of %u bytes in version 1", t->entry_len);
    uint64_t end = V1_HEADER + t->count * (t->key_len + t->entry_len);
    if (end > t->size)
        return err_set(e, ERR_DAMAGE, EBADMSG, "index table: %zu bytes are too few for %llu entries", t->size,
                       (unsigned long long)t->count);
    t->packs_at = t->formats_at = (size_t)end;
    return 0;
}

int index_parse(struct index_table *ret, const void *data, size_t size, struct err *e)
{
    struct index_table t = {.data = data, .size = size};
    if (size < V1_HEADER)
        return table_damaged(e, "header truncated");
    t.version = t.data[0];
    t.key_len = t.data[1];
    t.count = get_be32(t.data + 4);
    if (t.version != 1 && t.version != 2)
        return err_set(e, ERR_DAMAGE, EBADMSG, "index table: unsupported version %u (1 and 2 supported)", t.version);
    if (t.count && (t.key_len < 2 || t.key_len > KEY_MAX))
        return err_set(e, ERR_DAMAGE, EBADMSG, "index table: keys of %u bytes", t.key_len);
    int r = t.version == 1 ? parse_v1(&t, e) : parse_v2(&t, e);
    if (r < 0)
        return r;
    *ret = t;
    return 0;
}

static const uint8_t *record_at(const struct index_table *t, uint64_t i)
{
    return t->data + (t->version == 1 ? V1_HEADER : V2_HEADER) + i * (t->key_len + t->entry_len);
}

const uint8_t *index_key_at(const struct index_table *t, uint64_t i)
{
    return record_at(t, i);
}

static void id_of_key(const struct index_table *t, const uint8_t *key, struct content_id *id)
{
    id->prefix = (char)key[0];
    id->len = (uint8_t)(t->key_len - 1);
    memcpy(id->hash, key + 1, id->len);
    memset(id->hash + id->len, 0, sizeof id->hash - id->len);
}

static int copy_name(const struct index_table *t, uint32_t at, uint8_t len, struct index_entry *ret, struct err *e)
{
    if ((uint64_t)at + len > t->size)
        return table_damaged(e, "pack name outside the table");
    memcpy(ret->pack, t->data + at, len);
    ret->pack[len] = '\0';
    if (memchr(ret->pack, '\0', len))
        return table_damaged(e, "pack name contains a zero byte");
    return 0;
}

static void trace_add(struct index_trace *tr, const uint8_t *at)
{
    if (tr && tr->n < INDEX_TRACE_MAX)
        tr->at[tr->n++] = at;
}

static int entry_v1(const struct index_table *t, const uint8_t *p, struct index_entry *ret, struct index_trace *tr,
                    struct err *e)
{
    uint32_t where = get_be32(p + 12);
    ret->time = (int64_t)((uint64_t)get_be16(p) << 32 | get_be32(p + 2));
    ret->format_version = p[6];
    ret->key_id = 0;
    ret->compression = 0;
    ret->deleted = where >> 31;
    ret->offset = where & 0x7fffffff;
    ret->packed = get_be32(p + 16);
    ret->length = ret->packed > OVERHEAD ? ret->packed - OVERHEAD : 0;
    uint32_t name = get_be32(p + 8);
    if (name < t->size)
        trace_add(tr, t->data + name);
    return copy_name(t, name, p[7], ret, e);
}

static int entry_v2(const struct index_table *t, const uint8_t *p, struct index_entry *ret, struct index_trace *tr,
                    struct err *e)
{
    uint32_t where = get_be32(p + 4), pack = get_be16(p + 14), format = 0;
    ret->time = (int64_t)t->base_time + get_be32(p);
    ret->deleted = where >> 31;
    ret->offset = where & 0x7fffffff;
    ret->length = get_be24(p + 8);
    ret->packed = get_be24(p + 11);
    if (t->entry_len > 16)
        format = p[16];
    if (t->entry_len > 17)
        pack |= (uint32_t)p[17] << 16;
    if (t->entry_len > 18) {
        ret->length |= (uint32_t)(p[18] >> 4) << 24;
        ret->packed |= (uint32_t)(p[18] & 15) << 24;
    }
    if (format >= t->formats)
        return table_damaged(e, "entry with an unknown format");
    if (pack >= t->packs)
        return table_damaged(e, "entry with an unknown pack");
    const uint8_t *fr = t->data + t->formats_at + (size_t)format * V2_FORMAT;
    ret->compression = get_be32(fr);
    ret->format_version = fr[4];
    ret->key_id = fr[5];
    const uint8_t *pr = t->data + t->packs_at + (size_t)pack * V2_PACK;
    uint32_t name = get_be32(pr + 1);
    trace_add(tr, fr);
    trace_add(tr, pr);
    if (name < t->size)
        trace_add(tr, t->data + name);
    return copy_name(t, name, pr[0], ret, e);
}

static int entry_decode(const struct index_table *t, uint64_t i, struct index_entry *ret, struct index_trace *tr,
                        struct err *e)
{
    const uint8_t *key = record_at(t, i);
    id_of_key(t, key, &ret->id);
    const uint8_t *p = key + t->key_len;
    return t->version == 1 ? entry_v1(t, p, ret, tr, e) : entry_v2(t, p, ret, tr, e);
}

int index_entry_at_traced(const struct index_table *t, uint64_t i, struct index_entry *ret, struct index_trace *tr,
                          struct err *e)
{
    if (i >= t->count)
        return table_damaged(e, "entry number out of range");
    return entry_decode(t, i, ret, tr, e);
}

int index_entry_at(const struct index_table *t, uint64_t i, struct index_entry *ret, struct err *e)
{
    return index_entry_at_traced(t, i, ret, NULL, e);
}

/* ---- searching -------------------------------------------------------------------------------------------------- */

/* The first bytes of the hash as a number, to estimate the position of a key. */
static uint64_t key_number(const uint8_t *key, size_t key_len)
{
    uint64_t v = 0;
    for (size_t i = 1; i < 9; i++)
        v = v << 8 | (i < key_len ? key[i] : 0);
    return v;
}

/*
 * Hashes are evenly distributed, so that interpolation is off by about sqrt(n) records and a second estimate is
 * adjacent: two or three pages of a mapped table are touched instead of log2(n). Interpolation is done only within one
 * prefix letter and only a few times; bisection ends the search for any table.
 */
#define GUESSES 6

static uint64_t lower_bound(const struct index_table *t, const uint8_t *key, size_t key_len, struct index_trace *tr)
{
    uint64_t lo = 0, hi = t->count; /* keys before lo are smaller, keys from hi on are not */
    uint64_t low_number = 0, high_number = UINT64_MAX;
    bool low_same = false, high_same = false; /* the bounding numbers belong to our prefix letter */
    uint64_t want = key_number(key, key_len);
    if (hi > 0) {
        const uint8_t *first = record_at(t, 0), *last = record_at(t, hi - 1);
        trace_add(tr, first);
        trace_add(tr, last);
        if (key_cmp(first, t->key_len, key, key_len) >= 0)
            return 0;
        if (key_cmp(last, t->key_len, key, key_len) < 0)
            return hi;
        low_same = first[0] == key[0];
        high_same = last[0] == key[0];
    }
    for (unsigned turn = 0; lo < hi; turn++) {
        uint64_t n = hi - lo, mid = lo + n / 2;
        if (n > 8 && low_same && high_same && turn < GUESSES && want >= low_number && want < high_number) {
            unsigned __int128 part = (unsigned __int128)(want - low_number) * n;
            mid = lo + (uint64_t)(part / (high_number - low_number));
            if (mid >= hi)
                mid = hi - 1;
        }
        const uint8_t *k = record_at(t, mid);
        trace_add(tr, k);
        bool same = k[0] == key[0];
        if (key_cmp(k, t->key_len, key, key_len) < 0) {
            lo = mid + 1;
            low_same = same;
            low_number = key_number(k, t->key_len);
        } else {
            hi = mid;
            high_same = same;
            high_number = key_number(k, t->key_len);
        }
    }
    return lo;
}

uint64_t index_lower_bound(const struct index_table *t, const struct content_id *id)
{
    uint8_t key[KEY_MAX];
    size_t n = key_of(id, key);
    return lower_bound(t, key, n, NULL);
}

int index_find_traced(const struct index_table *t, const struct content_id *id, struct index_entry *ret,
                      struct index_trace *tr, struct err *e)
{
    uint8_t key[KEY_MAX];
    size_t n = key_of(id, key);
    if (n != t->key_len)
        return 0;
    uint64_t i = lower_bound(t, key, n, tr);
    if (i == t->count || memcmp(record_at(t, i), key, n) != 0)
        return 0;
    int r = entry_decode(t, i, ret, tr, e);
    return r < 0 ? r : 1;
}

bool index_entry_wins(const struct index_entry *a, const struct index_entry *b)
{
    if (a->time != b->time)
        return a->time > b->time;
    if (a->deleted != b->deleted)
        return !a->deleted;
    const int pack = strcmp(a->pack, b->pack);
    if (pack != 0)
        return pack > 0;
    /* Clients write no two such entries. Stock takes that of the blob that it loaded first; here it must not matter. */
    if (a->offset != b->offset)
        return a->offset > b->offset;
    if (a->packed != b->packed)
        return a->packed > b->packed;
    if (a->length != b->length)
        return a->length > b->length;
    if (a->compression != b->compression)
        return a->compression > b->compression;
    if (a->format_version != b->format_version)
        return a->format_version > b->format_version;
    return a->key_id > b->key_id;
}

/* ---- building --------------------------------------------------------------------------------------------------- */

/* Names of packs in order of first appearance. Slots hold number + 1. */
struct pack_names {
    uint32_t *slot;
    const char **name;
    uint32_t *at; /* offset in the extra data */
    size_t slots, n, room;
    uint64_t bytes;
};

static void pack_names_clear(struct pack_names *p)
{
    free(p->slot);
    free(p->name);
    free(p->at);
}

static uint64_t name_hash(const char *s)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * 0x100000001b3u;
    return h ^ h >> 29;
}

static size_t name_slot(const struct pack_names *p, const char *name)
{
    size_t i = name_hash(name) & (p->slots - 1);
    while (p->slot[i] && strcmp(p->name[p->slot[i] - 1], name) != 0)
        i = (i + 1) & (p->slots - 1);
    return i;
}

static int pack_names_grow(struct pack_names *p)
{
    size_t room = p->room ? p->room * 2 : 64, slots = room * 2;
    const char **name = realloc(p->name, room * sizeof *name);
    if (!name)
        return -ENOMEM;
    p->name = name;
    uint32_t *at = realloc(p->at, room * sizeof *at);
    if (!at)
        return -ENOMEM;
    p->at = at;
    uint32_t *slot = calloc(slots, sizeof *slot);
    if (!slot)
        return -ENOMEM;
    free(p->slot);
    p->slot = slot;
    p->slots = slots;
    p->room = room;
    for (size_t i = 0; i < p->n; i++)
        p->slot[name_slot(p, p->name[i])] = (uint32_t)i + 1;
    return 0;
}

/* Number of a name (a new one if it is not known yet), negative: no memory. */
static int64_t pack_number(struct pack_names *p, const char *name)
{
    if (p->n == p->room && pack_names_grow(p) < 0)
        return -ENOMEM;
    size_t i = name_slot(p, name);
    if (p->slot[i])
        return p->slot[i] - 1;
    p->name[p->n] = name;
    p->at[p->n] = (uint32_t)p->bytes;
    p->bytes += strlen(name);
    p->slot[i] = (uint32_t)++p->n;
    return (int64_t)p->n - 1;
}

struct format {
    uint32_t compression;
    uint8_t version, key_id;
};

struct formats {
    struct format f[255];
    unsigned n;
};

/* Number of the entry's format, -ERANGE if there are more than 255. */
static int format_number(struct formats *fs, const struct index_entry *e)
{
    for (unsigned i = 0; i < fs->n; i++)
        if (fs->f[i].compression == e->compression && fs->f[i].version == e->format_version &&
            fs->f[i].key_id == e->key_id)
            return (int)i;
    if (fs->n == sizeof fs->f / sizeof fs->f[0])
        return -ERANGE;
    fs->f[fs->n++] = (struct format){e->compression, e->format_version, e->key_id};
    return (int)fs->n - 1;
}

static int entry_unfit(const struct index_entry *x, struct err *e, const char *why)
{
    char text[CONTENT_ID_TEXT];
    return err_set(e, ERR_GENERIC, ERANGE, "content %s does not fit into an index table: %s",
                   content_id_text(&x->id, text), why);
}

static int check_entry(const struct index_entry *x, const struct index_entry *before, unsigned version, struct err *e)
{
    if (x->id.len == 0 || x->id.len > sizeof x->id.hash)
        return entry_unfit(x, e, "empty or too long id");
    if (before && before->id.len != x->id.len)
        return entry_unfit(x, e, "ids of different lengths");
    if (before && content_id_cmp(&before->id, &x->id) >= 0)
        return entry_unfit(x, e, "ids not sorted");
    if (x->offset >= 1u << 30)
        return entry_unfit(x, e, "offset in the pack of 1 GiB or more");
    if (x->time < 0 || x->time >= (version == 1 ? INT64_C(1) << 48 : INT64_C(1) << 32))
        return entry_unfit(x, e, "time out of range");
    if (version == 2)
        return x->packed >= 1u << 28 || x->length >= 1u << 28 ? entry_unfit(x, e, "length of 256 MiB or more") : 0;
    if (x->compression || x->key_id)
        return entry_unfit(x, e, "compression not supported in version 1");
    if (x->packed < OVERHEAD || x->length != x->packed - OVERHEAD)
        return entry_unfit(x, e, "separate length not supported in version 1");
    return 0;
}

static void put_entry_v1(uint8_t *p, const struct index_entry *x, uint32_t name_at)
{
    put_be16(p, (uint16_t)(x->time >> 32));
    put_be32(p + 2, (uint32_t)x->time);
    p[6] = x->format_version;
    p[7] = (uint8_t)strlen(x->pack);
    put_be32(p + 8, name_at);
    put_be32(p + 12, x->offset | (uint32_t)x->deleted << 31);
    put_be32(p + 16, x->packed);
}

static void put_entry_v2(uint8_t *p, const struct index_entry *x, uint32_t pack, unsigned format, unsigned entry_len)
{
    put_be32(p, (uint32_t)x->time);
    put_be32(p + 4, x->offset | (uint32_t)x->deleted << 31);
    put_be24(p + 8, x->length & 0xffffff);
    put_be24(p + 11, x->packed & 0xffffff);
    put_be16(p + 14, (uint16_t)pack);
    if (entry_len > 16)
        p[16] = (uint8_t)format;
    if (entry_len > 17)
        p[17] = (uint8_t)(pack >> 16);
    if (entry_len > 18)
        p[18] = (uint8_t)(x->length >> 24 << 4 | x->packed >> 24);
}

/* Numbers all packs and formats and determines the size of entries. */
static int entries_survey(const struct index_entry *entries, size_t n, unsigned version, struct pack_names *packs,
                          struct formats *formats, unsigned *entry_len, struct err *e)
{
    bool large = false;
    for (size_t i = 0; i < n; i++) {
        const struct index_entry *x = &entries[i];
        int r = check_entry(x, i ? x - 1 : NULL, version, e);
        if (r < 0)
            return r;
        if (i == 0 || strcmp(x->pack, x[-1].pack) != 0) {
            int64_t p = pack_number(packs, x->pack);
            if (p < 0)
                return err_nomem(e);
            if (p >= 1 << 24)
                return entry_unfit(x, e, "more than 16 million packs");
        }
        if (version == 2 && format_number(formats, x) < 0)
            return entry_unfit(x, e, "more than 255 formats");
        large = large || x->length >= 1u << 24 || x->packed >= 1u << 24;
    }
    if (version == 1)
        *entry_len = V1_ENTRY;
    else if (large)
        *entry_len = 19;
    else if (packs->n > 65536)
        *entry_len = 18;
    else
        *entry_len = formats->n > 1 ? 17 : 16;
    return 0;
}

#define RANDOM_SUFFIX 32

int index_build(const struct index_entry *entries, size_t n, unsigned version, bool random_suffix, uint8_t **ret,
                size_t *len, struct err *e)
{
    if (n == 0 || n > UINT32_MAX || (version != 1 && version != 2))
        return err_set(e, ERR_GENERIC, ERANGE, "index table of version %u cannot hold %zu entries", version, n);
    CLEANUP(pack_names_clear) struct pack_names packs = {.n = 0};
    struct formats formats = {.n = 0};
    unsigned entry_len = 0;
    int r = entries_survey(entries, n, version, &packs, &formats, &entry_len, e);
    if (r < 0)
        return r;

    unsigned key_len = entries[0].id.len + 1u, header = version == 1 ? V1_HEADER : V2_HEADER;
    uint64_t packs_at = header + (uint64_t)n * (key_len + entry_len), extra = packs_at;
    if (version == 2)
        extra += packs.n * V2_PACK + formats.n * V2_FORMAT;
    uint64_t size = extra + packs.bytes + (random_suffix ? RANDOM_SUFFIX : 0);
    if (size > UINT32_MAX)
        return err_set(e, ERR_GENERIC, ERANGE, "index table of %zu entries would exceed 4 GiB", n);
    CLEANUP_FREE uint8_t *buf = malloc(size);
    if (!buf)
        return err_nomem(e);

    buf[0] = (uint8_t)version;
    buf[1] = (uint8_t)key_len;
    put_be16(buf + 2, (uint16_t)entry_len);
    put_be32(buf + 4, (uint32_t)n);
    uint8_t *p = buf + V1_HEADER;
    if (version == 2) {
        put_be32(p, (uint32_t)packs.n);
        p[4] = (uint8_t)formats.n;
        put_be32(p + 5, 0);
        p = buf + V2_HEADER;
    }
    uint32_t pack = 0;
    for (size_t i = 0; i < n; i++) {
        const struct index_entry *x = &entries[i];
        p += key_of(&x->id, p);
        if (i == 0 || strcmp(x->pack, x[-1].pack) != 0)
            pack = packs.slot[name_slot(&packs, x->pack)] - 1;
        if (version == 1)
            put_entry_v1(p, x, (uint32_t)extra + packs.at[pack]);
        else
            put_entry_v2(p, x, pack, (unsigned)format_number(&formats, x), entry_len);
        p += entry_len;
    }
    for (size_t i = 0; version == 2 && i < packs.n; i++, p += V2_PACK) {
        p[0] = (uint8_t)strlen(packs.name[i]);
        put_be32(p + 1, (uint32_t)extra + packs.at[i]);
    }
    for (unsigned i = 0; version == 2 && i < formats.n; i++, p += V2_FORMAT) {
        put_be32(p, formats.f[i].compression);
        p[4] = formats.f[i].version;
        p[5] = formats.f[i].key_id;
    }
    for (size_t i = 0; i < packs.n; i++) {
        size_t l = strlen(packs.name[i]);
        memcpy(p, packs.name[i], l);
        p += l;
    }
    if (random_suffix && getrandom(p, RANDOM_SUFFIX, 0) != RANDOM_SUFFIX)
        return err_set(e, ERR_GENERIC, errno, "cannot get random bytes");
    *len = (size_t)size;
    *ret = take_ptr(&buf);
    return 0;
}

static int by_id_winner_first(const void *pa, const void *pb)
{
    const struct index_entry *a = pa, *b = pb;
    int r = content_id_cmp(&a->id, &b->id);
    if (r)
        return r;
    return (int)index_entry_wins(b, a) - (int)index_entry_wins(a, b);
}

size_t index_sort(struct index_entry *entries, size_t n)
{
    if (n == 0)
        return 0;
    qsort(entries, n, sizeof *entries, by_id_winner_first);
    size_t kept = 1;
    for (size_t i = 1; i < n; i++) {
        if (content_id_equal(&entries[i].id, &entries[kept - 1].id))
            continue;
        if (i != kept)
            entries[kept] = entries[i];
        kept++;
    }
    return kept;
}

/* ---- postamble -------------------------------------------------------------------------------------------------- */

static size_t put_uvarint(uint8_t *p, uint64_t v)
{
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        p[n++] = (uint8_t)(v | 0x80);
    p[n++] = (uint8_t)v;
    return n;
}

/* Bytes used, 0: truncated or more than 64 bits. */
static size_t get_uvarint(const uint8_t *p, size_t len, uint64_t *v)
{
    *v = 0;
    for (size_t i = 0; i < len && i < 10; i++) {
        if (i == 9 && p[i] > 1)
            return 0;
        *v |= (uint64_t)(p[i] & 0x7f) << (7 * i);
        if (p[i] < 0x80)
            return i + 1;
    }
    return 0;
}

int postamble_parse(struct postamble *ret, const uint8_t *tail, size_t tail_len, uint64_t pack_len)
{
    size_t n = tail_len ? tail[tail_len - 1] : 0;
    if (n < 5 || n + 1 > tail_len)
        return -ENOENT;
    const uint8_t *body = tail + tail_len - 1 - n;
    n -= 4;
    if (crc32_gzip_refl(0, body, n) != get_be32(body + n))
        return -ENOENT;

    struct postamble p = {.iv_len = 0};
    uint64_t v;
    size_t at = 0, used = get_uvarint(body, n, &v);
    if (!used || v != 1)
        return -ENOENT;
    at += used;
    used = get_uvarint(body + at, n - at, &v);
    if (!used || v > sizeof p.iv || v > n - at - used)
        return -ENOENT;
    at += used;
    p.iv_len = (size_t)v;
    memcpy(p.iv, body + at, p.iv_len);
    at += p.iv_len;
    used = get_uvarint(body + at, n - at, &p.offset);
    at += used;
    if (!used || !get_uvarint(body + at, n - at, &p.length))
        return -ENOENT;
    if (p.offset > pack_len || p.length > pack_len - p.offset)
        return -ENOENT;
    *ret = p;
    return 0;
}

size_t postamble_build(const struct postamble *p, uint8_t out[128])
{
    size_t n = put_uvarint(out, 1), iv_len = p->iv_len <= sizeof p->iv ? p->iv_len : sizeof p->iv;
    n += put_uvarint(out + n, iv_len);
    memcpy(out + n, p->iv, iv_len);
    n += iv_len;
    n += put_uvarint(out + n, p->offset);
    n += put_uvarint(out + n, p->length);
    put_be32(out + n, crc32_gzip_refl(0, out, n));
    out[n + 4] = (uint8_t)(n + 4);
    return n + 5;
}
