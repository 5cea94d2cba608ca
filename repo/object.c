/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * object.c - object ids, and objects read as parts or as bytes
 *
 * An index document is itself an object, so reading nests: the parts of II... come out of a document that is read from
 * the parts of I..., down to a document that is one content. Each of these levels is an object_reader that holds one
 * content. A part may also be an indirect object of its own (concatenations of concatenations): then its document is
 * pushed on a stack. Both kinds of nesting count against one limit.
 */
#include "repo/object.h"

#include "base/cleanup.h"
#include "repo/docstream.h"
#include "repo/gojson.h"

#include <errno.h>
#include <string.h>

#define LEVELS_MAX 16
#define CONTENT_MAX ((uint64_t)1 << 28) /* the format's limit of a content */
#define ENTRY_MAX ((size_t)64 << 10)    /* text of one entry of an index document */

/* ---- ids ---- */

int object_id_parse(struct object_id *ret, const char *text, size_t len)
{
    struct object_id id = {0};
    size_t i = 0;
    while (i < len && text[i] == 'I')
        i++;
    if (i > LEVELS_MAX)
        return -EINVAL;
    id.indirection = (uint8_t)i;
    if (i < len && text[i] == 'Z') {
        if (id.indirection)
            return -EINVAL;
        id.compressed = true;
        i++;
    }
    if (i < len && text[i] == 'D')
        i++;
    if (content_id_parse(&id.content, text + i, len - i) < 0 || !id.content.len)
        return -EINVAL;
    *ret = id;
    return 0;
}

char *object_id_text(const struct object_id *id, char out[OBJECT_ID_TEXT])
{
    size_t n = id->indirection <= LEVELS_MAX ? id->indirection : LEVELS_MAX;
    memset(out, 'I', n);
    if (id->compressed)
        out[n++] = 'Z';
    out[n] = '\0';
    if (id->content.len)
        content_id_text(&id->content, out + n);
    return out;
}

bool object_id_equal(const struct object_id *a, const struct object_id *b)
{
    return a->indirection == b->indirection && a->compressed == b->compressed &&
           content_id_equal(&a->content, &b->content);
}

/* ---- contents as objects ---- */

/* What reading contents needs, shared by all levels of one walk. */
struct access {
    struct repo *r;
    struct content_reader *c;
    struct content_ahead *ahead; /* NULL, or contents that may have been read already */
    struct compressor *z;        /* created for the first Z object */
    object_content_fn *seen;     /* NULL, or called for each content that is loaded: those of index documents */
    void *seen_arg;
};

static void access_clear(struct access *a)
{
    content_reader_free(a->c);
    compressor_free(a->z);
}

struct buffer {
    uint8_t *p;
    size_t cap;
};

static void buf_drop(struct access *a, struct buffer *b)
{
    repo_release(a->r, b->cap);
    free(b->p);
    *b = (struct buffer){0};
}

/* The old contents are not needed. */
static int buf_reserve(struct access *a, struct buffer *b, size_t n, struct err *e)
{
    if (n <= b->cap)
        return 0;
    buf_drop(a, b);
    int rc = repo_hold(a->r, n, e);
    if (rc < 0)
        return rc;
    if (!(b->p = malloc(n))) {
        repo_release(a->r, n);
        return err_nomem(e);
    }
    b->cap = n;
    return 0;
}

#define UNKNOWN UINT64_MAX

static int wrong_length(const struct object_id *id, uint64_t have, uint64_t want, struct err *e)
{
    char text[OBJECT_ID_TEXT];
    return err_set(e, ERR_DAMAGE, EBADMSG, "content %s has %llu bytes, %llu expected by its index document",
                   object_id_text(id, text), (unsigned long long)have, (unsigned long long)want);
}

/* Expands the payload of a Z object into b; `want` may be UNKNOWN. */
static int64_t payload_expand(struct access *a, const struct object_id *id, const uint8_t *in, size_t in_len,
                              uint64_t want, struct buffer *b, struct err *e)
{
    char text[OBJECT_ID_TEXT];
    int rc = a->z ? 0 : compressor_new(&a->z, e);
    /* Where the length is not known the output buffer grows until the payload fits. */
    size_t cap = want != UNKNOWN ? (size_t)want : in_len * 4 + ((size_t)64 << 10);
    while (rc >= 0) {
        rc = buf_reserve(a, b, cap ? cap : 1, e);
        if (rc < 0)
            break;
        struct err tmp = ERR_INIT;
        int64_t n = compressor_expand_upto(a->z, 0, in, in_len, b->p, cap, &tmp);
        if (n >= 0)
            return want != UNKNOWN && (uint64_t)n != want ? wrong_length(id, (uint64_t)n, want, e) : n;
        if (want != UNKNOWN || cap >= CONTENT_MAX || tmp.cls != ERR_DAMAGE) {
            rc = err_set(e, tmp.cls, tmp.sys, "content %s: %s", object_id_text(id, text), tmp.msg);
            break;
        }
        cap = cap * 4 < CONTENT_MAX ? cap * 4 : CONTENT_MAX;
    }
    return rc;
}

/* Reads the bytes of a direct object into b, exactly `want` unless that is UNKNOWN. Returns how many. */
static int64_t object_load(struct access *a, const struct object_id *id, uint64_t want, struct buffer *b, struct err *e)
{
    struct index_entry entry;
    struct err tmp = ERR_INIT;
    int rc = a->seen ? a->seen(&id->content, a->seen_arg, e) : 0;
    if (rc < 0)
        return rc;
    rc = repo_find(a->r, &id->content, &entry, &tmp);
    if (rc == 0 && !id->compressed) {
        if (want != UNKNOWN && entry.length != want)
            return wrong_length(id, entry.length, want, e);
        rc = buf_reserve(a, b, entry.length ? entry.length : 1, e);
        if (rc < 0)
            return rc;
        const int64_t taken = content_ahead_take(a->ahead, &entry, b->p);
        return taken >= 0 ? taken : content_read_entry(a->c, &entry, NULL, b->p, b->cap, false, e);
    }
    /* Not in the view: content_get() searches again after a refresh and reports the error. */
    uint8_t *data = NULL;
    int64_t n = content_get(a->c, &id->content, &data, CONTENT_MAX, e);
    if (n < 0)
        return n;
    if (id->compressed) {
        const uint64_t in = (uint64_t)n;
        rc = repo_hold(a->r, in, e);
        if (rc == 0) {
            n = payload_expand(a, id, data, (size_t)in, want, b, e);
            repo_release(a->r, in);
        }
        free(data);
        return rc < 0 ? rc : n;
    }
    buf_drop(a, b);
    int held = repo_hold(a->r, (uint64_t)n, e);
    if (held < 0) {
        free(data);
        return held;
    }
    b->p = data;
    b->cap = (size_t)n;
    return want != UNKNOWN && (uint64_t)n != want ? wrong_length(id, (uint64_t)n, want, e) : n;
}

/* ---- parts ---- */

static int reader_new(struct object_reader **ret, struct access *a, const struct access *own,
                      const struct object_id *id, unsigned depth, struct err *e);

struct frame {
    struct object_reader *src;
    struct docstream *doc;
    struct object_id id;
    uint64_t base;  /* where the object begins in the whole */
    uint64_t next;  /* where its next part must begin, in the whole */
    uint64_t limit; /* where it must end; UNKNOWN for the outermost */
    bool any;
    bool last_plain;   /* the last entry has the usual form */
    uint64_t last_len; /* of it */
    struct object_id last;
};

struct object_parts {
    struct access own, *a; /* a: own, or the one of the walk that this is a level of */
    unsigned depth;
    struct object_id id;
    bool direct, done;
    uint64_t seek;
    uint64_t *count; /* in object_parts_next_run() */
    unsigned n;
    struct frame stack[LEVELS_MAX];
};

static int64_t read_source(void *arg, void *buf, size_t len, struct err *e)
{
    return object_reader_read(arg, buf, len, e);
}

static int doc_push(struct object_parts *p, const struct object_id *id, uint64_t base, uint64_t limit, struct err *e)
{
    char text[OBJECT_ID_TEXT];
    unsigned depth = p->depth + p->n;
    if (depth + id->indirection > LEVELS_MAX)
        return err_set(e, ERR_DAMAGE, EBADMSG, "object %s is nested deeper than %d levels", object_id_text(id, text),
                       LEVELS_MAX);
    struct object_id document = *id;
    document.indirection--;
    struct frame *f = &p->stack[p->n];
    *f = (struct frame){.id = *id, .base = base, .next = base, .limit = limit};
    int rc = reader_new(&f->src, p->a, NULL, &document, depth + 1, e);
    if (rc < 0)
        return rc;
    rc = docstream_new(&f->doc, "kopia:indirect", ENTRY_MAX, read_source, f->src, e);
    if (rc < 0) {
        object_reader_free(f->src);
        return rc;
    }
    p->n++;
    return 0;
}

static void doc_pop(struct object_parts *p)
{
    struct frame *f = &p->stack[--p->n];
    docstream_free(f->doc);
    object_reader_free(f->src);
}

/* `a` NULL: the walk gets an access of its own, like `own`. */
static int parts_new(struct object_parts **ret, struct access *a, const struct access *own, const struct object_id *id,
                     unsigned depth, struct err *e)
{
    if (!id->content.len)
        return err_set(e, ERR_DAMAGE, EBADMSG, "empty object id");
    struct object_parts *p = calloc(1, sizeof *p);
    if (!p)
        return err_nomem(e);
    p->own = a ? (struct access){.r = a->r} : *own;
    p->a = a ? a : &p->own;
    p->depth = depth;
    p->id = *id;
    p->direct = id->indirection == 0;
    int rc = a ? 0 : content_reader_new(&p->own.c, p->own.r, e);
    if (rc == 0 && !p->direct)
        rc = doc_push(p, id, 0, UNKNOWN, e);
    if (rc < 0) {
        object_parts_free(p);
        return rc;
    }
    *ret = p;
    return 0;
}

int object_parts_open(struct object_parts **ret, struct repo *r, const struct object_id *id, struct err *e)
{
    return parts_new(ret, NULL, &(const struct access){.r = r}, id, 0, e);
}

int object_parts_open_ahead(struct object_parts **ret, struct repo *r, struct content_ahead *ahead,
                            const struct object_id *id, struct err *e)
{
    return parts_new(ret, NULL, &(const struct access){.r = r, .ahead = ahead}, id, 0, e);
}

void object_parts_free(struct object_parts *p)
{
    if (!p)
        return;
    while (p->n)
        doc_pop(p);
    access_clear(&p->own);
    free(p);
}

/* ---- entries of index documents ---- */

struct entry {
    uint64_t start, len;
    struct object_id id;
};

static bool number(const char **p, const char *end, uint64_t *ret)
{
    const char *q = *p;
    uint64_t v = 0;
    while (q < end && *q >= '0' && *q <= '9' && q - *p < 19)
        v = v * 10 + (uint64_t)(*q++ - '0');
    /* 19 digits fit 64 bits; longer numbers and leading zeros are parsed the slow way. */
    if (q == *p || q - *p == 19 || (q - *p > 1 && **p == '0'))
        return false;
    *p = q;
    *ret = v;
    return true;
}

static bool skip_text(const char **p, const char *end, const char *text, size_t n)
{
    if ((size_t)(end - *p) < n || memcmp(*p, text, n) != 0)
        return false;
    *p += n;
    return true;
}

/* The form of all known writers: {"s":N,"l":N,"o":"ID"}, each number absent if 0. */
static bool parse_plain(struct entry *ret, const char *p, size_t n)
{
    const char *end = p + n;
    *ret = (struct entry){0};
    if (!skip_text(&p, end, "{", 1))
        return false;
    if (skip_text(&p, end, "\"s\":", 4) && (!number(&p, end, &ret->start) || !skip_text(&p, end, ",", 1)))
        return false;
    if (skip_text(&p, end, "\"l\":", 4) && (!number(&p, end, &ret->len) || !skip_text(&p, end, ",", 1)))
        return false;
    if (!skip_text(&p, end, "\"o\":\"", 5) || end - p < 2 || end[-1] != '}' || end[-2] != '"')
        return false;
    return object_id_parse(&ret->id, p, (size_t)(end - 2 - p)) == 0;
}

/* Any other form. */
static int parse_unusual(struct entry *ret, const char *p, size_t n)
{
    *ret = (struct entry){0};
    json_t *v = go_parse(p, n);
    int64_t start = 0, len = 0;
    const char *id = "";
    bool ok = json_is_object(v) && go_int(v, "s", 0, INT64_MAX, &start) == 0 &&
              go_int(v, "l", 0, INT64_MAX, &len) == 0 && go_string(v, "o", &id) == 0 &&
              object_id_parse(&ret->id, id, strlen(id)) == 0;
    json_decref(v);
    ret->start = (uint64_t)start;
    ret->len = (uint64_t)len;
    return ok ? 0 : -EINVAL;
}

/* An entry that repeats the last one has another start only. */
static int next_entry(struct frame *f, struct entry *ret, const char *p, size_t n)
{
    const char *at = p + 5, *end = p + n; /* {"s": */
    if (f->last_plain && docstream_repeats(f->doc) && number(&at, end, &ret->start)) {
        ret->len = f->last_len;
        ret->id = f->last;
        return 0;
    }
    f->last_plain = parse_plain(ret, p, n);
    f->last_len = ret->len;
    f->last = ret->id;
    return f->last_plain ? 0 : parse_unusual(ret, p, n);
}

static int document_damaged(const struct frame *f, struct err *e, const char *why)
{
    char text[OBJECT_ID_TEXT];
    return err_set(e, ERR_DAMAGE, EBADMSG, "index document of object %s is malformed: %s at offset %llu",
                   object_id_text(&f->id, text), why, (unsigned long long)(f->next - f->base));
}

/* Passes over entries behind the last one that repeat it, up to one that ends behind `end`. Returns how many. */
static uint64_t repeats_skip(struct frame *f, uint64_t end)
{
    if (end > f->limit)
        end = f->limit;
    if (!f->last_plain || !f->last_len || f->last.indirection || end > INT64_MAX || end <= f->next)
        return 0;
    const uint64_t n = docstream_skip_repeats(f->doc, f->next - f->base, f->last_len, (end - f->next) / f->last_len);
    f->next += n * f->last_len;
    return n;
}

/* One step in the innermost document. 1: *ret is a part; 0: nothing to deliver yet. */
static int parts_step(struct object_parts *p, struct object_part *ret, struct err *e)
{
    struct frame *f = &p->stack[p->n - 1];
    const char *text;
    size_t n;
    int rc = docstream_next(f->doc, &text, &n, e);
    if (rc < 0) {
        char id[OBJECT_ID_TEXT];
        return err_wrap(e, "index document of object %s", object_id_text(&f->id, id));
    }
    if (rc == 0) {
        if (!f->any)
            return document_damaged(f, e, "no entries");
        if (f->limit != UNKNOWN && f->next != f->limit)
            return document_damaged(f, e, "too short");
        doc_pop(p);
        return 0;
    }
    struct entry x;
    if (next_entry(f, &x, text, n) < 0)
        return document_damaged(f, e, "not an entry");
    if (x.start != f->next - f->base)
        return document_damaged(f, e, x.start > f->next - f->base ? "a gap" : "overlapping parts");
    if (x.len > INT64_MAX - f->next || (f->limit != UNKNOWN && x.len > f->limit - f->next))
        return document_damaged(f, e, "too long");
    if (!x.id.indirection && x.len > CONTENT_MAX)
        return document_damaged(f, e, "part longer than a content");
    uint64_t start = f->next;
    f->next += x.len;
    f->any = true;
    if (start < p->seek && f->next <= p->seek) {
        repeats_skip(f, p->seek);
        return 0;
    }
    if (x.id.indirection) /* an empty one adds nothing: it is skipped, so that every step makes progress */
        return x.len ? doc_push(p, &x.id, start, start + x.len, e) : 0;
    *ret = (struct object_part){.start = start, .len = x.len, .id = x.id};
    if (p->count)
        *p->count += repeats_skip(f, INT64_MAX);
    return 1;
}

/* The single part of a direct object. */
static int direct_part(struct object_parts *p, struct object_part *ret, struct err *e)
{
    struct index_entry entry;
    uint64_t len = 0;
    int rc = p->id.compressed ? -ENOENT : repo_find(p->a->r, &p->id.content, &entry, e);
    if (rc == 0) {
        len = entry.length;
    } else if (rc != -ENOENT) {
        return rc;
    } else {
        struct buffer b = {0};
        int64_t n = object_load(p->a, &p->id, UNKNOWN, &b, e);
        buf_drop(p->a, &b);
        if (n < 0)
            return (int)n;
        len = (uint64_t)n;
    }
    *ret = (struct object_part){.start = 0, .len = len, .id = p->id};
    return 1;
}

int object_parts_next(struct object_parts *p, struct object_part *ret, struct err *e)
{
    if (p->direct) {
        if (p->done)
            return 0;
        p->done = true;
        int rc = direct_part(p, ret, e);
        return rc == 1 && p->seek && ret->len <= p->seek ? 0 : rc;
    }
    while (p->n) {
        int rc = parts_step(p, ret, e);
        if (rc)
            return rc;
    }
    return 0;
}

int object_parts_next_run(struct object_parts *p, struct object_part *ret, uint64_t *count, struct err *e)
{
    *count = 1;
    p->count = count;
    int rc = object_parts_next(p, ret, e);
    p->count = NULL;
    return rc;
}

int object_contents_each(struct repo *r, struct content_ahead *ahead, const struct object_id *id, object_content_fn *fn,
                         void *arg, struct err *e)
{
    const struct access own = {.r = r, .ahead = ahead, .seen = fn, .seen_arg = arg};
    struct object_parts *p CLEANUP(object_parts_freep) = NULL;
    struct object_part part;
    int rc = parts_new(&p, NULL, &own, id, 0, e);
    while (rc >= 0 && (rc = object_parts_next(p, &part, e)) > 0)
        rc = fn(&part.id.content, arg, e);
    return rc;
}

int object_parts_seek(struct object_parts *p, uint64_t offset, struct err *e)
{
    (void)e;
    if (offset > p->seek)
        p->seek = offset;
    return 0;
}

/* ---- bytes ---- */

struct object_reader {
    struct access own, *a;
    struct object_parts *parts; /* NULL: a direct object, one content without a length given elsewhere */
    struct object_id id;
    struct buffer buf;
    uint64_t start; /* of buf in the object */
    size_t len, at; /* of buf: bytes, and where reading goes on */
    bool end;
};

/* `a` NULL: the reader gets an access of its own, like `own`. */
static int reader_new(struct object_reader **ret, struct access *a, const struct access *own,
                      const struct object_id *id, unsigned depth, struct err *e)
{
    if (!id->content.len)
        return err_set(e, ERR_DAMAGE, EBADMSG, "empty object id");
    struct object_reader *o = calloc(1, sizeof *o);
    if (!o)
        return err_nomem(e);
    o->own = a ? (struct access){.r = a->r} : *own;
    o->a = a ? a : &o->own;
    o->id = *id;
    int rc = a ? 0 : content_reader_new(&o->own.c, o->own.r, e);
    if (rc == 0 && id->indirection)
        rc = parts_new(&o->parts, o->a, NULL, id, depth, e);
    if (rc < 0) {
        object_reader_free(o);
        return rc;
    }
    *ret = o;
    return 0;
}

int object_reader_open(struct object_reader **ret, struct repo *r, const struct object_id *id, struct err *e)
{
    return reader_new(ret, NULL, &(const struct access){.r = r}, id, 0, e);
}

int object_reader_open_ahead(struct object_reader **ret, struct repo *r, struct content_ahead *ahead,
                             const struct object_id *id, struct err *e)
{
    return reader_new(ret, NULL, &(const struct access){.r = r, .ahead = ahead}, id, 0, e);
}

void object_reader_free(struct object_reader *o)
{
    if (!o)
        return;
    buf_drop(o->a, &o->buf);
    object_parts_free(o->parts);
    access_clear(&o->own);
    free(o);
}

/* Loads the next part. 1 done, 0 end. */
static int reader_fetch(struct object_reader *o, struct err *e)
{
    struct object_part part = {.len = UNKNOWN, .id = o->id};
    if (o->end)
        return 0;
    if (o->parts) {
        int rc = object_parts_next(o->parts, &part, e);
        if (rc <= 0) {
            o->end = rc == 0;
            return rc;
        }
    } else {
        o->end = true; /* follows this one */
    }
    int64_t n = object_load(o->a, &part.id, part.len, &o->buf, e);
    if (n < 0)
        return (int)n;
    o->start = part.start;
    o->len = (size_t)n;
    o->at = 0;
    return 1;
}

int64_t object_reader_read(struct object_reader *o, void *buf, size_t len, struct err *e)
{
    if (!len)
        return 0;
    while (o->at == o->len) {
        int rc = reader_fetch(o, e);
        if (rc <= 0)
            return rc;
    }
    size_t n = o->len - o->at < len ? o->len - o->at : len;
    memcpy(buf, o->buf.p + o->at, n);
    o->at += n;
    return (int64_t)n;
}

int64_t object_get(struct repo *r, const struct object_id *id, uint8_t **ret, size_t max, struct err *e)
{
    struct object_reader *o CLEANUP(object_reader_freep) = NULL;
    int rc = object_reader_open(&o, r, id, e);
    if (rc < 0)
        return rc;
    size_t cap = 4096 < max ? 4096 : max, len = 0;
    uint8_t *p CLEANUP_FREE = malloc(cap + 1);
    if (!p)
        return err_nomem(e);
    for (;;) {
        /* One byte more than allowed distinguishes an object that is too long from one that just fits. */
        int64_t n = object_reader_read(o, p + len, cap + 1 - len, e);
        if (n < 0)
            return n;
        if (n == 0)
            break;
        len += (size_t)n;
        if (len <= cap)
            continue;
        if (cap == max) {
            char text[OBJECT_ID_TEXT];
            return err_set(e, ERR_DAMAGE, EFBIG, "object %s is longer than %zu bytes", object_id_text(id, text), max);
        }
        cap = cap < max / 2 ? cap * 2 : max;
        uint8_t *q = realloc(p, cap + 1);
        if (!q)
            return err_nomem(e);
        p = q;
    }
    p[len] = '\0';
    *ret = take_ptr(&p);
    return (int64_t)len;
}
