/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * table.c - index documents of large objects, written while their parts become known
 *
 * Level 0 is the document that lists the object's parts. Its text passes through the repository's default splitter;
 * each chunk becomes a content, which is a part of the object that the document is, and so an entry of level 1; and so
 * on. A level holds only the text after its last cut.
 *
 * An id can be computed at any time: the closing bracket is appended to the text of a level, the rest is cut and
 * stored, its chunks are carried up as extra entries, and the lengths are restored. Finishing is the same operation.
 */
#include "repo/object.h"

#include "base/cleanup.h"
#include "chunker/splitter.h"

#include <errno.h>
#include <string.h>

#define LEVELS_MAX 16
#define METADATA_COMPRESSION 0x1101 /* zstd-fastest, used by stock clients for documents of their own */

#define HEAD "{\"stream\":\"kopia:indirect\",\"entries\":["
#define TAIL "]}\n"
#define ENTRY_MAX 192 /* {"s":N,"l":N,"o":"ID"} with 20 digits twice and the longest id */

/* Amount of text collected before the next search for a cut. */
#define SCAN_STEP ((size_t)64 << 10)
/* An open text holds at most one chunk and what was added since the last search. Closing it yields at most this
 * many. */
#define TAIL_CHUNKS 16
#define SLACK (SCAN_STEP + (TAIL_CHUNKS + 2) * (size_t)ENTRY_MAX)

struct part {
    uint64_t len;
    struct object_id id;
};

struct level {
    char *buf;
    size_t cap, fill;
    size_t scanned; /* bytes of buf known to hold no cut */
    uint64_t parts, end;
    struct object_id first;
};

struct object_table {
    struct session *s;
    struct put_scratch *scratch; /* made for the first chunk */
    struct splitter split;
    char prefix; /* of documents */
    struct level levels[LEVELS_MAX];
};

static size_t room_max(const struct splitter *s)
{
    return (size_t)s->max + SLACK;
}

static int repo_splitter(struct splitter *ret, const struct repo *r, struct err *e)
{
    const struct repo_format *f = repo_format(r);
    if (splitter_by_name(ret, f->splitter) < 0)
        return err_set(e, ERR_FORMAT, ENOTSUP, "unknown splitter \"%s\" of the repository", f->splitter);
    return 0;
}

int object_table_new(struct object_table **ret, struct session *s, char prefix, struct err *e)
{
    struct object_table *t = calloc(1, sizeof *t);
    if (!t)
        return err_nomem(e);
    t->s = s;
    t->prefix = prefix ? prefix : 'x';
    int rc = repo_splitter(&t->split, session_repo(s), e);
    if (rc < 0) {
        free(t);
        return rc;
    }
    *ret = t;
    return 0;
}

void object_table_free(struct object_table *t)
{
    if (!t)
        return;
    for (unsigned i = 0; i < LEVELS_MAX; i++)
        free(t->levels[i].buf);
    put_scratch_free(t->scratch);
    free(t);
}

size_t object_table_memory(const struct repo *r)
{
    struct splitter s;
    if (repo_splitter(&s, r, NULL) < 0)
        return 0;
    size_t sum = sizeof(struct object_table) + put_scratch_memory(r, METADATA_COMPRESSION, s.max);
    /* A limit of parts from 64-bit numbers would be too large: 1 PiB in shortest chunks. */
    uint64_t parts = ((uint64_t)1 << 50) / s.min;
    while (parts > 1) {
        uint64_t text = parts * ENTRY_MAX;
        sum += text < room_max(&s) ? 2 * (size_t)text + SCAN_STEP : room_max(&s);
        parts = text / s.min;
    }
    return sum;
}

/* ---- text ---- */

static const char digits[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
                             "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
                             "8081828384858687888990919293949596979899";

/* Writes v in decimal at p, returns the position after it. */
static char *put_number(char *p, uint64_t v)
{
    char buf[20];
    size_t i = sizeof buf;
    while (v >= 100) {
        i -= 2;
        memcpy(buf + i, digits + v % 100 * 2, 2);
        v /= 100;
    }
    if (v >= 10) {
        i -= 2;
        memcpy(buf + i, digits + v * 2, 2);
    } else {
        buf[--i] = (char)('0' + v);
    }
    memcpy(p, buf + i, sizeof buf - i);
    return p + sizeof buf - i;
}

/* The members of an entry that do not change in a run: "l":N,"o":"ID"} */
struct entry_text {
    char p[ENTRY_MAX];
    size_t n;
};

static void format_entry(struct entry_text *t, uint64_t len, const struct object_id *id)
{
    char *q = t->p, text[OBJECT_ID_TEXT];
    if (len) {
        memcpy(q, "\"l\":", 4);
        q = put_number(q + 4, len);
        *q++ = ',';
    }
    size_t n = strlen(object_id_text(id, text));
    memcpy(q, "\"o\":\"", 5);
    memcpy(q + 5, text, n);
    memcpy(q + 5 + n, "\"}", 2);
    t->n = (size_t)(q - t->p) + 7 + n;
}

/* Makes room for an entry (and the head) in a level's text. */
static int text_reserve(const struct object_table *t, struct level *l, size_t n, struct err *e)
{
    size_t need = l->fill + n;
    if (need <= l->cap)
        return 0;
    if (need > room_max(&t->split))
        return err_set(e, ERR_GENERIC, EOVERFLOW, "the text of an index document exceeded its buffer");
    size_t cap = l->cap ? l->cap * 2 : SCAN_STEP;
    while (cap < need)
        cap *= 2;
    if (cap > room_max(&t->split))
        cap = room_max(&t->split);
    char *p = realloc(l->buf, cap);
    if (!p)
        return err_nomem(e);
    l->buf = p;
    l->cap = cap;
    return 0;
}

/* Appends one entry; `first`: it is the document's first. There is room for it. */
static void entry_append(struct level *l, bool first, uint64_t start, const struct entry_text *x)
{
    char *p = l->buf + l->fill;
    if (first) {
        memcpy(p, HEAD, sizeof HEAD - 1);
        p += sizeof HEAD - 1;
    } else {
        *p++ = ',';
    }
    *p++ = '{';
    if (start) {
        memcpy(p, "\"s\":", 4);
        p = put_number(p + 4, start);
        *p++ = ',';
    }
    memcpy(p, x->p, x->n);
    l->fill = (size_t)(p - l->buf) + x->n;
}

/* ---- levels ---- */

static int too_many(struct err *e)
{
    return err_set(e, ERR_GENERIC, EOVERFLOW, "too many parts of an object for %d levels of index", LEVELS_MAX);
}

static int chunk_store(struct object_table *t, const char *p, size_t n, struct part *ret, struct err *e)
{
    if (!t->scratch) {
        int rc = put_scratch_new(&t->scratch, session_repo(t->s), METADATA_COMPRESSION, t->split.max, e);
        if (rc < 0)
            return rc;
    }
    *ret = (struct part){.len = n};
    return session_put_bytes(t->s, t->scratch, t->prefix, p, n, METADATA_COMPRESSION, &ret->id.content, e);
}

static int level_add(struct object_table *t, unsigned k, uint64_t len, const struct object_id *id, uint64_t count,
                     struct err *e);

/* Stores what is complete of a level's text and carries it up. */
static int level_cut(struct object_table *t, unsigned k, struct err *e)
{
    struct level *l = &t->levels[k];
    size_t at = 0, n;
    while (l->fill - at >= t->split.min &&
           (n = splitter_cut(&t->split, (const uint8_t *)l->buf + at, l->fill - at, l->scanned)) != 0) {
        struct part part;
        int rc = chunk_store(t, l->buf + at, n, &part, e);
        if (rc == 0)
            rc = level_add(t, k + 1, part.len, &part.id, 1, e);
        if (rc < 0)
            return rc;
        at += n;
        l->scanned = 0;
    }
    l->fill -= at;
    memmove(l->buf, l->buf + at, l->fill);
    l->scanned = l->fill;
    return 0;
}

static int level_add(struct object_table *t, unsigned k, uint64_t len, const struct object_id *id, uint64_t count,
                     struct err *e)
{
    if (k == LEVELS_MAX)
        return too_many(e);
    struct level *l = &t->levels[k];
    if (len && count > (INT64_MAX - l->end) / len)
        return err_set(e, ERR_GENERIC, EOVERFLOW, "an object would exceed 2^63 bytes");
    struct entry_text x;
    format_entry(&x, len, id);
    for (; count; count--) {
        int rc = text_reserve(t, l, sizeof HEAD + ENTRY_MAX, e);
        if (rc < 0)
            return rc;
        if (!l->parts)
            l->first = *id;
        entry_append(l, !l->parts, l->end, &x);
        l->parts++;
        l->end += len;
        size_t pending = l->fill - l->scanned;
        if (l->fill >= t->split.max || (l->fill >= t->split.min && pending >= SCAN_STEP)) {
            rc = level_cut(t, k, e);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

/*
 * The id of the object whose parts are those of level k and n more, which are not kept. Everything below `fill` is
 * unchanged, and lengths are restored, so that the level can be continued.
 */
static int close_level(struct object_table *t, unsigned k, const struct part *extra, unsigned n, struct object_id *ret,
                       struct err *e)
{
    if (k == LEVELS_MAX)
        return too_many(e);
    struct level *l = &t->levels[k];
    if (l->parts + n == 1) {
        *ret = n ? extra->id : l->first;
        return 0;
    }
    const size_t fill = l->fill, scanned = l->scanned;
    uint64_t end = l->end;
    int rc = 0;
    for (unsigned i = 0; i < n && rc == 0; i++) {
        struct entry_text x;
        format_entry(&x, extra[i].len, &extra[i].id);
        rc = text_reserve(t, l, sizeof HEAD + ENTRY_MAX, e);
        if (rc == 0)
            entry_append(l, !l->parts && i == 0, end, &x);
        end += extra[i].len;
    }
    if (rc == 0)
        rc = text_reserve(t, l, sizeof TAIL, e);
    struct part up[TAIL_CHUNKS];
    unsigned n_up = 0;
    if (rc == 0) {
        memcpy(l->buf + l->fill, TAIL, sizeof TAIL - 1);
        l->fill += sizeof TAIL - 1;
        size_t at = 0, seen = scanned;
        while (at < l->fill && rc == 0) {
            size_t len = splitter_cut(&t->split, (const uint8_t *)l->buf + at, l->fill - at, seen);
            if (!len)
                len = l->fill - at;
            if (n_up == TAIL_CHUNKS)
                rc = err_set(e, ERR_GENERIC, EOVERFLOW, "too many cuts at the end of an index document");
            else
                rc = chunk_store(t, l->buf + at, len, &up[n_up++], e);
            at += len;
            seen = 0;
        }
    }
    l->fill = fill;
    l->scanned = scanned;
    if (rc == 0)
        rc = close_level(t, k + 1, up, n_up, ret, e);
    if (rc == 0)
        ret->indirection++;
    return rc;
}

int object_table_add(struct object_table *t, uint64_t len, const struct object_id *id, uint64_t count, struct err *e)
{
    return level_add(t, 0, len, id, count, e);
}

int object_table_checkpoint(struct object_table *t, struct object_id *ret, struct err *e)
{
    if (!t->levels[0].parts)
        return err_set(e, ERR_GENERIC, EINVAL, "an object without parts");
    return close_level(t, 0, NULL, 0, ret, e);
}

int object_table_finish(struct object_table *t, struct object_id *ret, struct err *e)
{
    return object_table_checkpoint(t, ret, e);
}

int object_put(struct session *s, struct put_scratch *p, char prefix, const void *data, size_t len,
               uint32_t compression, struct object_id *ret, struct err *e)
{
    struct splitter split;
    int rc = repo_splitter(&split, session_repo(s), e);
    if (rc < 0)
        return rc;
    struct object_table *t CLEANUP(object_table_freep) = NULL;
    const uint8_t *at = data;
    size_t rest = len;
    do {
        size_t n = rest ? splitter_cut(&split, at, rest, 0) : 0;
        if (!n)
            n = rest;
        struct object_id id = {0};
        rc = session_put_bytes(s, p, prefix, at, n, compression, &id.content, e);
        if (rc < 0)
            return rc;
        if (!t && n == rest) {
            *ret = id;
            return 0;
        }
        if (!t)
            rc = object_table_new(&t, s, prefix, e);
        if (rc == 0)
            rc = object_table_add(t, n, &id, 1, e);
        if (rc < 0)
            return rc;
        at += n;
        rest -= n;
    } while (rest);
    return object_table_finish(t, ret, e);
}
