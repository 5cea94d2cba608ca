/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * usage-walk.c - the contents that snapshots of one volume reach
 *
 * Each backup of a large volume has an index document of its own, of which most is as in the one before. Such a
 * document is split into contents by what is in it, so that most of these blocks are the same, too: a block that was
 * read for this volume before is not read again, unless the one before or behind it is another one now, because the
 * entry across their border is another one then.
 */
#include "daemon/mover/usage-walk.h"

#include "base/cleanup.h"
#include "repo/object.h"

#include <errno.h>
#include <string.h>

#define DEPTH_MAX 512             /* nested directories */
#define DOCUMENTS_MAX 16          /* index documents in index documents */
#define WARNINGS 20               /* of unreadable objects; more are counted only */
#define ENTRY_MAX ((size_t)512)   /* text of an entry in the usual form */
#define PIECE ((size_t)256 << 10) /* of a document, in memory */
#define TAG_BLOCK 128             /* in `seen`, beside object_tag(), which is below 128 */
#define TAG_BORDER 129
#define HEAD "{\"stream\":\"kopia:indirect\",\"entries\":["

int usage_stopped(const struct mover_cancel *c, struct err *e)
{
    return c && atomic_load_explicit(&c->requested, memory_order_relaxed)
               ? err_set(e, ERR_INTERRUPTED, ECANCELED, "interrupted before all snapshots were looked at")
               : 0;
}

static int add_content(const struct content_id *id, void *arg, struct err *e)
{
    struct usage_walk *w = arg;
    if (content_id_equal(&w->last, id))
        return 0;
    w->last = *id;
    int rc = usage_stopped(w->cancel, e);
    if (rc == 0)
        rc = reach_add(w->reach, id, w->volume, e);
    w->broken |= rc < 0;
    return rc;
}

/* Whether it is the first time; a failure has nothing to do with the repository. */
static int add_seen(struct usage_walk *w, const struct content_id *id, uint8_t tag, struct err *e)
{
    const int rc = id_set_add(w->seen, id, tag, e);
    w->broken |= rc < 0;
    return rc;
}

/* Notes what is damaged or on a bad sector, and goes on: 0. What else has failed ends all. */
static int pass_over(struct usage_walk *w, const struct object_id *o, int rc, struct err *e)
{
    char text[OBJECT_ID_TEXT];
    if (rc >= 0 || w->broken || (e->cls != ERR_DAMAGE && e->sys != EIO))
        return rc;
    w->unreadable++;
    if (w->warned++ < WARNINGS)
        log_warning("%s: object %s cannot be read, what it leads to is not counted: %s", w->source,
                    object_id_text(o, text), e->msg);
    else if (w->warned == WARNINGS + 1)
        log_warning("more objects cannot be read; they are counted only");
    *e = (struct err)ERR_INIT;
    return 0;
}

/* ---- documents of several blocks ---- */

/* The text of a document, as far as it is read. */
struct scan {
    struct usage_walk *w;
    struct content_ahead *ahead;
    char *text; /* PIECE */
    size_t n;   /* bytes there; an entry that is not complete is at the beginning of the next piece */
    bool known; /* the text begins where the last entry ended; else somewhere in an entry */
    bool begun; /* behind HEAD */
    bool comma; /* an entry has to follow */
    bool ended; /* behind the last bracket */
};

static int walk_object(struct usage_walk *w, struct content_ahead *ahead, const struct object_id *o, bool dir,
                       unsigned depth, struct err *e);

static void skip_number(const char **p, const char *end, const char *name)
{
    const size_t n = strlen(name);
    const char *q = *p + n;
    if ((size_t)(end - *p) <= n || memcmp(*p, name, n) != 0)
        return;
    while (q < end && *q >= '0' && *q <= '9')
        q++;
    if (q < end && *q == ',')
        *p = q + 1;
}

/* An entry in the form of all known writers, {"s":N,"l":N,"o":"ID"}, each number absent if 0. */
static bool parse_entry(const char *p, const char *end, struct object_id *ret)
{
    static const char name[] = "\"o\":\"";
    p++;
    skip_number(&p, end, "\"s\":");
    skip_number(&p, end, "\"l\":");
    const size_t n = sizeof name - 1;
    return (size_t)(end - p) > n + 2 && memcmp(p, name, n) == 0 && end[-2] == '"' &&
           object_id_parse(ret, p + n, (size_t)(end - 2 - p) - n) == 0;
}

static size_t skip_space(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && (p[i] == ' ' || p[i] == '\n' || p[i] == '\r' || p[i] == '\t'))
        i++;
    return i;
}

/* What comes before the next entry. False: not the usual form. *used: bytes of it; all that is there, if no entry
 * begins in it. */
static bool skip_between(struct scan *s, const char *p, size_t n, size_t *used)
{
    *used = 0;
    if (!s->known) {
        const char *entry = memchr(p, '{', n);
        *used = entry ? (size_t)(entry - p) : n;
        s->known = s->begun = entry != NULL;
        s->comma = false;
        return true;
    }
    if (!s->begun) {
        if (n < sizeof HEAD - 1)
            return true;
        s->begun = memcmp(p, HEAD, sizeof HEAD - 1) == 0;
        *used = sizeof HEAD - 1;
        return s->begun;
    }
    if (s->ended) {
        *used = skip_space(p, n);
        return *used == n;
    }
    if (s->comma && n && *p == ',') {
        s->comma = false;
        *used = 1;
    } else if (s->comma && n >= 2 && p[0] == ']' && p[1] == '}') {
        s->ended = true;
        *used = 2;
    } else if (s->comma && n && *p != ']') {
        return false;
    }
    return true;
}

/* The entries in the text; the rest is moved to its beginning. 1: not in the usual form. */
static int scan_text(struct scan *s, uint64_t *entries, struct err *e)
{
    size_t at = 0;
    for (;;) {
        size_t used;
        if (!skip_between(s, s->text + at, s->n - at, &used))
            return 1;
        at += used;
        if (used)
            continue;
        const char *p = s->text + at, *close = memchr(p, '}', s->n - at);
        struct object_id id;
        if (at == s->n || !s->begun || s->comma)
            break;
        if (*p != '{')
            return 1;
        if (!close)
            break;
        if (!parse_entry(p, close + 1, &id))
            return 1;
        s->comma = true;
        ++*entries;
        at += (size_t)(close + 1 - p);
        const int rc =
            id.indirection ? walk_object(s->w, s->ahead, &id, false, 0, e) : add_content(&id.content, s->w, e);
        if (rc < 0)
            return rc;
    }
    s->n -= at;
    memmove(s->text, s->text + at, s->n);
    return s->n > ENTRY_MAX;
}

/* One block. 1: not in the usual form. */
static int scan_block(struct scan *s, const struct object_id *block, bool last, struct err *e)
{
    struct object_reader *o CLEANUP(object_reader_freep) = NULL;
    uint64_t entries = 0;
    int rc = object_reader_open_ahead(&o, s->w->r, s->ahead, block, e);
    int64_t got = 0;
    while (rc == 0 && (got = object_reader_read(o, s->text + s->n, PIECE - s->n, e)) > 0) {
        s->n += (size_t)got;
        rc = scan_text(s, &entries, e);
    }
    if (rc == 0 && got < 0)
        rc = (int)got;
    /* One that lies in a single entry: then what is across a border depends on three of them. */
    if (rc == 0 && !last && !entries)
        rc = 1;
    return rc == 0 && last && (s->n || (s->known && !s->ended)) ? 1 : rc;
}

/* Two blocks that follow each other; either may be NULL at the ends of a document. */
static int add_border(struct usage_walk *w, const struct object_id *a, const struct object_id *b, struct err *e)
{
    enum { HALF = 12 };
    struct content_id id = {.len = 2 * HALF};
    if (a)
        memcpy(id.hash, a->content.hash, HALF);
    if (b)
        memcpy(id.hash + HALF, b->content.hash, HALF);
    return add_seen(w, &id, TAG_BORDER, e);
}

/* Blocks of a document that were not read before, or lie beside others than before. 1: not in the usual form. */
static int scan_blocks(struct scan *s, struct object_parts *parts, struct err *e)
{
    struct object_part next;
    struct object_id block;
    int more = object_parts_next(parts, &next, e);
    int before = more > 0 ? add_border(s->w, NULL, &next.id, e) : 0, rc = before < 0 ? before : 0;
    while (rc == 0 && more > 0) {
        block = next.id;
        more = object_parts_next(parts, &next, e);
        if (more < 0)
            return more;
        const int behind = add_border(s->w, &block, more ? &next.id : NULL, e);
        const int is_new = behind < 0 ? behind : add_seen(s->w, &block.content, TAG_BLOCK, e);
        if (is_new < 0)
            return is_new;
        if (is_new || before || behind) {
            s->w->blocks_read++;
            rc = scan_block(s, &block, !more, e);
        } else {
            s->w->blocks_known++;
            s->known = false;
            s->n = 0;
        }
        before = behind;
    }
    return more < 0 ? more : rc;
}

/* An object whose index document has more than one content. */
static int walk_document(struct usage_walk *w, struct content_ahead *ahead, const struct object_id *o, struct err *e)
{
    if (w->documents == DOCUMENTS_MAX)
        return err_set(e, ERR_DAMAGE, EBADMSG, "index documents nested deeper than %d", DOCUMENTS_MAX);
    struct object_id document = *o;
    struct object_parts *parts CLEANUP(object_parts_freep) = NULL;
    CLEANUP_FREE char *text = malloc(PIECE);
    struct scan s = {.w = w, .ahead = ahead, .text = text, .known = true};
    document.indirection--;
    if (!text) {
        w->broken = true;
        return err_nomem(e);
    }
    int rc = object_contents_each(w->r, ahead, &document, add_content, w, e);
    if (rc >= 0)
        rc = object_parts_open_ahead(&parts, w->r, ahead, &document, e);
    w->documents++;
    if (rc >= 0)
        rc = scan_blocks(&s, parts, e);
    w->documents--;
    return rc > 0 ? object_contents_each(w->r, ahead, o, add_content, w, e) : rc;
}

/* ---- objects ---- */

struct level {
    struct usage_walk *w;
    struct content_ahead *ahead;
    unsigned depth;
    struct err *e;
};

static int walk_child(struct dir_entry *d, void *arg)
{
    const struct level *l = arg;
    return d->obj.content.len ? walk_object(l->w, l->ahead, &d->obj, d->type == 'd', l->depth, l->e) : 0;
}

static int walk_dir(struct usage_walk *w, struct content_ahead *ahead, const struct object_id *o, unsigned depth,
                    struct err *e)
{
    struct err inner = ERR_INIT;
    struct level l = {.w = w, .ahead = ahead, .depth = depth + 1, .e = &inner};
    if (depth >= DEPTH_MAX)
        return err_set(e, ERR_DAMAGE, EBADMSG, "directories nested deeper than %d", DEPTH_MAX);
    const int rc = dir_each_ahead(w->r, ahead, o, walk_child, &l, e);
    if (rc < 0 && inner.cls != ERR_NONE) {
        w->broken = true; /* or it would have been passed over there */
        *e = inner;
    }
    return rc;
}

static int walk_object(struct usage_walk *w, struct content_ahead *ahead, const struct object_id *o, bool dir,
                       unsigned depth, struct err *e)
{
    int rc = add_seen(w, &o->content, object_tag(o, dir), e);
    if (rc <= 0)
        return rc;
    if (o->indirection > 1)
        rc = walk_document(w, ahead, o, e);
    else if (o->indirection == 1)
        rc = object_contents_each(w->r, ahead, o, add_content, w, e);
    else
        rc = add_content(&o->content, w, e);
    if (rc >= 0 && dir)
        rc = walk_dir(w, ahead, o, depth, e);
    return pass_over(w, o, rc < 0 ? rc : 0, e);
}

int usage_walk_object(struct usage_walk *w, struct content_ahead *ahead, const struct object_id *o, bool dir,
                      struct err *e)
{
    return o->content.len ? walk_object(w, ahead, o, dir, 0, e) : 0;
}
