/* SPDX-License-Identifier: GPL-2.0-or-later */
/* manifest-compact.c - many small contents of manifests become few; manifest-compact.h says how, and why it is safe */
#include "repo/manifest-compact.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"
#include "base/units.h"
#include "repo/manifest-parts.h"
#include "repo/marker.h"
#include "repo/tombstones.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/rand.h>
#include <zlib.h>

#define CONTENT_BYTES ((size_t)4 << 20) /* compressed; what is read ahead may be twice as long */
#define SMALL_PART 4                    /* of it: shorter contents are merged by their number */
#define TINY_PART 64                    /* and these always */
#define SMALL_MOST 16                   /* as many as with stock clients */
#define MERGED_MOST 32768               /* contents at a time: their marks are one index blob */
#define HELD ((size_t)16 << 20)         /* compressed contents in memory between the two readings */
#define AHEAD_MEMORY ((size_t)8 << 20)
#define TRIES 3
#define YOUNG_NS (30 * NS_PER_MIN) /* by clocks that differ by 5 minutes at most */
#define BACK_NS (10 * NS_PER_MIN)  /* what was stored longer ago is not taken back */
#define CONFLICT 1
#define LISTED_NS (30 * NS_PER_S)
#define OWN_MOST 8 /* index blobs of a session */

/* What is known of a content, by its number in manifests.contents. */
struct part {
    uint8_t *held; /* its bytes, length of the content; NULL: to be read again */
    uint64_t total, stands;
    bool foreign; /* with entries that only other clients can make something of */
    bool chosen;
};

/* A field of the head of a gzip stream: 2 bytes of name, 2 of length, random ones. */
#define MARK (2 + 2 + 12)

/* A collection that is being written. */
struct writer {
    z_stream z;
    gz_header head;
    uint8_t mark[MARK];
    bool open;
    uint8_t *out;
    size_t len, cap;
    uint64_t entries;
};

struct compaction {
    struct repo *r;
    const struct manifest_compact_opts *o;
    struct manifest_compacted *ret;
    struct manifests *m;
    struct part *parts;
    uint32_t *order; /* numbers of the contents, the longest first */
    size_t held, limit;
    struct writer w;
    struct session *s;
    struct put_scratch *scratch;
    struct content_id *written;
    size_t n_written;
    int64_t put_ns; /* boot_ns() before it was stored */
};

static void compaction_clear(struct compaction *c)
{
    for (size_t i = 0; c->parts && i < c->m->n_contents; i++)
        free(c->parts[i].held);
    free(c->parts);
    free(c->order);
    if (c->w.open)
        deflateEnd(&c->w.z);
    free(c->w.out);
    put_scratch_free(c->scratch);
    session_free(c->s);
    free(c->written);
    manifests_free(c->m);
}

static int may_write(const struct compaction *c, uint64_t bytes, struct err *e)
{
    return c->o->may_write ? c->o->may_write(c->o->arg, bytes, e) : 1;
}

/* ---- reading ---- */

static void part_ahead(void *compaction, size_t i, struct content_ahead_job *j)
{
    const struct compaction *c = compaction;
    struct index_entry x;
    const uint8_t *ignored;
    manifest_place_entry(&c->m->contents[c->order[i]], &x);
    content_ahead_read(j, &x, &ignored);
}

static int at_content(const struct content_id *id, struct err *e)
{
    char text[CONTENT_ID_TEXT];
    return err_wrap(e, "manifest content %s", content_id_text(id, text));
}

static int part_note(const struct raw_manifest *raw, void *compaction, struct err *e)
{
    struct compaction *c = compaction;
    c->parts[c->m->at].total++;
    return manifests_note(raw, c->m, e);
}

static int part_read(struct compaction *c, uint32_t i, struct content_ahead *ahead, struct err *e)
{
    struct part *p = &c->parts[i];
    const struct manifest_place *at = &c->m->contents[i];
    uint8_t *gz CLEANUP_FREE = NULL;
    uint64_t foreign = 0;
    c->m->at = i;
    const int64_t n = manifests_get(c->m, at, ahead, &gz, e);
    if (n < 0)
        return (int)n;
    const int rc = manifest_collection_each(gz, (size_t)n, part_note, c, &foreign, e);
    if (rc < 0)
        return at_content(&at->id, e);
    p->foreign = foreign > 0;
    if ((uint64_t)n == at->length && c->held + at->length <= HELD) {
        p->held = take_ptr(&gz);
        c->held += at->length;
    }
    return 0;
}

static int longest_first(const void *pa, const void *pb, void *contents)
{
    const struct manifest_place *all = contents;
    const uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;
    if (all[a].length != all[b].length)
        return all[a].length < all[b].length ? 1 : -1;
    return (a > b) - (a < b);
}

/*
 * Reads all contents once, for the winners; as many as there is memory for stay for the second reading. Of equal
 * entries the one in the longest content counts: what a run that was killed has stored together is not stored once
 * more, unless that is small itself.
 */
static int parts_read(struct compaction *c, struct err *e)
{
    const size_t n = c->m->n_contents;
    c->order = malloc((n + 1) * sizeof *c->order);
    if (!c->order)
        return err_nomem(e);
    for (size_t i = 0; i < n; i++)
        c->order[i] = (uint32_t)i;
    qsort_r(c->order, n, sizeof *c->order, longest_first, c->m->contents);
    CLEANUP(content_ahead_freep)
    struct content_ahead *ahead = n < 2 ? NULL : content_ahead_new(c->r, AHEAD_MEMORY, n, part_ahead, c);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        content_ahead_at(ahead, i);
        rc = part_read(c, c->order[i], ahead, e);
    }
    return rc;
}

/* ---- which ---- */

/* Whether a winner is to be in what is written, if its content is merged. */
static bool is_kept(const struct compaction *c, const struct manifest_winner *w)
{
    return !w->deleted || !c->o->drop_tombstones || w->entries > 1 ||
           c->o->now_ns - w->modified_ns < c->o->tombstone_age_ns;
}

static int shortest_first(const void *pa, const void *pb, void *contents)
{
    return -longest_first(pa, pb, contents);
}

/* The numbers of small contents, sorted by length. */
static int small_list(const struct compaction *c, uint32_t **ret, size_t *n, struct err *e)
{
    uint32_t *all = malloc((c->m->n_contents + 1) * sizeof *all);
    *n = 0;
    if (!all)
        return err_nomem(e);
    for (size_t i = 0; i < c->m->n_contents; i++)
        if (c->m->contents[i].length < c->limit / SMALL_PART && !c->parts[i].foreign)
            all[(*n)++] = (uint32_t)i;
    qsort_r(all, *n, sizeof *all, shortest_first, c->m->contents);
    *ret = all;
    return 0;
}

static void small_choose(struct compaction *c, const uint32_t *small, size_t n)
{
    size_t last = 0;
    uint64_t before = 0;
    n = n < MERGED_MOST ? n : MERGED_MOST;
    for (size_t i = 0; i < n; i++) {
        const uint64_t length = c->m->contents[small[i]].length;
        if (length <= before || length < c->limit / TINY_PART)
            last = i + 1;
        before += length;
    }
    for (size_t i = 0; i < last; i++)
        c->parts[small[i]].chosen = true;
}

/* Contents most of whose entries have been deleted or replaced since. */
static void sparse_choose(struct compaction *c)
{
    for (size_t i = 0; i < c->m->cap; i++) {
        const struct manifest_winner *w = &c->m->table[i];
        if (w->used && is_kept(c, w))
            c->parts[w->place].stands++;
    }
    for (size_t i = 0; i < c->m->n_contents; i++) {
        struct part *p = &c->parts[i];
        if (!p->foreign && p->stands * 2 < p->total && c->m->contents[i].length >= c->limit / TINY_PART)
            p->chosen = true;
    }
}

/* What another client is just storing together it may take back: nothing may be left out because it is there. */
static void young_choose(struct compaction *c)
{
    const int64_t since = (c->o->now_ns - YOUNG_NS) / NS_PER_S;
    for (size_t i = 0; i < c->m->n_contents; i++)
        if (c->m->contents[i].time > since && !c->parts[i].foreign)
            c->parts[i].chosen = true;
}

static uint64_t chosen_count(const struct compaction *c, uint64_t *bytes)
{
    uint64_t n = 0;
    *bytes = 0;
    for (size_t i = 0; i < c->m->n_contents; i++) {
        n += c->parts[i].chosen;
        *bytes += c->parts[i].chosen ? c->m->contents[i].length : 0;
    }
    return n;
}

/* Returns how many; negative: error. Contents are read where the choice depends on it. */
static int64_t parts_choose(struct compaction *c, struct err *e)
{
    CLEANUP_FREE uint32_t *small = NULL;
    size_t n;
    int rc = small_list(c, &small, &n, e);
    if (rc < 0 || (n < SMALL_MOST && !c->o->thorough))
        return rc;
    rc = parts_read(c, e);
    if (rc < 0)
        return rc;
    if (c->o->thorough)
        sparse_choose(c);
    free(take_ptr(&small));
    rc = small_list(c, &small, &n, e); /* without those with foreign entries */
    if (rc < 0)
        return rc;
    if (n >= SMALL_MOST)
        small_choose(c, small, n);
    if (chosen_count(c, &c->ret->merged_bytes))
        young_choose(c);
    return (int64_t)chosen_count(c, &c->ret->merged_bytes);
}

/* ---- writing ---- */

static int writer_put(struct writer *w, const void *data, size_t len, int flush, struct err *e)
{
    int rc = Z_OK;
    w->z.next_in = (Bytef *)(uintptr_t)data;
    w->z.avail_in = (uInt)len; /* MANIFEST_MAX at most */
    do {
        if (w->len == w->cap) {
            const size_t cap = w->cap ? w->cap * 2 : (size_t)64 << 10;
            uint8_t *more = realloc(w->out, cap);
            if (!more)
                return err_nomem(e);
            w->out = more;
            w->cap = cap;
        }
        w->z.next_out = w->out + w->len;
        w->z.avail_out = (uInt)(w->cap - w->len);
        rc = deflate(&w->z, flush);
        w->len = w->cap - w->z.avail_out;
        if (rc == Z_STREAM_ERROR)
            return err_set(e, ERR_GENERIC, EINVAL, "deflate: %s", w->z.msg ? w->z.msg : "failed");
    } while (w->z.avail_in || (flush == Z_FINISH && rc != Z_STREAM_END));
    return 0;
}

/* Begins a collection. Of the same manifests another run makes another content, which has an id of its own: what one
 * run takes back is never what the other one has left. */
static int writer_begin(struct writer *w, struct err *e)
{
    static const char head[] = "{\"entries\":[";
    if (RAND_bytes(w->mark + 4, MARK - 4) != 1)
        return err_set(e, ERR_GENERIC, 0, "the cryptographic library has no random bytes");
    memcpy(w->mark, "sf", 2);
    put_le16(w->mark + 2, MARK - 4);
    w->z = (z_stream){.next_in = NULL};
    if (deflateInit2(&w->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return err_nomem(e);
    w->open = true;
    w->len = 0;
    w->entries = 0;
    w->head = (gz_header){.os = 255, .extra = w->mark, .extra_len = MARK};
    if (deflateSetHeader(&w->z, &w->head) != Z_OK)
        return err_set(e, ERR_GENERIC, EINVAL, "deflate: no head can be written");
    return writer_put(w, head, sizeof head - 1, Z_NO_FLUSH, e);
}

static int writer_add(struct writer *w, const struct raw_manifest *raw, struct err *e)
{
    int rc = 0;
    if (!w->open) {
        rc = writer_begin(w, e);
    } else {
        rc = writer_put(w, ",", 1, Z_NO_FLUSH, e);
    }
    w->entries++;
    return rc < 0 ? rc : writer_put(w, raw->whole, raw->whole_len, Z_NO_FLUSH, e);
}

static int entry_count(const struct raw_manifest *raw, void *n, struct err *e)
{
    (void)raw;
    (void)e;
    ++*(uint64_t *)n;
    return 0;
}

/* Begins the session when there is something to be put. */
static int session_begin(struct compaction *c, struct err *e)
{
    int rc = c->s ? 0 : session_new(&c->s, c->r, &(struct session_opts){.no_adopt = true}, e);
    return rc < 0 || c->scratch ? rc : put_scratch_new(&c->scratch, c->r, MANIFEST_COMPRESSION, c->limit, e);
}

/* Ends the collection and stores it. One that cannot be read would make all manifests inaccessible: verify it first. */
static int writer_finish(struct compaction *c, struct err *e)
{
    struct writer *w = &c->w;
    uint64_t seen = 0, foreign = 0;
    if (!w->open)
        return 0;
    int rc = writer_put(w, "]}\n", 3, Z_FINISH, e);
    deflateEnd(&w->z);
    w->open = false;
    if (rc == 0)
        rc = manifest_collection_each(w->out, w->len, entry_count, &seen, &foreign, e);
    if (rc < 0)
        return err_wrap(e, "manifests to be stored together");
    if (seen != w->entries || foreign)
        return err_set(e, ERR_GENERIC, EINVAL, "manifests to be stored together do not read back");
    struct content_id *all = reallocarray(c->written, c->n_written + 1, sizeof *all);
    if (!all)
        return err_nomem(e);
    c->written = all;
    rc = session_begin(c, e);
    if (rc == 0)
        rc = session_put_bytes(c->s, c->scratch, MANIFEST_PREFIX, w->out, w->len, MANIFEST_COMPRESSION,
                               &c->written[c->n_written], e);
    if (rc < 0)
        return rc;
    c->n_written++;
    c->ret->written++;
    c->ret->written_bytes += w->len;
    c->ret->entries += w->entries;
    return 0;
}

static int entry_write(const struct raw_manifest *raw, void *compaction, struct err *e)
{
    struct compaction *c = compaction;
    uint8_t id[16];
    hex_decode(id, raw->id, 32);
    struct manifest_winner *w = manifests_winner(c->m, id);
    int rc = blobs_stopped(repo_blobs(c->r), e);
    if (rc < 0 || !w->used || w->place != c->m->at || w->modified_ns != raw->modified_ns ||
        w->deleted != raw->deleted || w->delivered)
        return rc;
    w->delivered = 1;
    if (!is_kept(c, w)) {
        c->ret->dropped++;
        return 0;
    }
    if (c->o->dry_run) {
        c->ret->entries++;
        return 0;
    }
    rc = writer_add(&c->w, raw, e);
    return rc == 0 && c->w.len >= c->limit ? writer_finish(c, e) : rc;
}

/* Stores what stands in the chosen contents, durably, and in the index. */
static int parts_write(struct compaction *c, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->m->n_contents; i++) {
        const struct part *p = &c->parts[i];
        const struct manifest_place *at = &c->m->contents[i];
        uint8_t *gz CLEANUP_FREE = NULL;
        if (!p->chosen)
            continue;
        c->m->at = (uint32_t)i;
        const int64_t n = p->held ? (int64_t)at->length : manifests_get(c->m, at, NULL, &gz, e);
        rc = n < 0 ? (int)n : manifest_collection_each(p->held ? p->held : gz, (size_t)n, entry_write, c, NULL, e);
    }
    if (rc == 0)
        rc = writer_finish(c, e);
    c->put_ns = boot_ns();
    if (rc == 0 && c->s)
        rc = session_flush(c->s, e);
    /* Nothing of it is pending any more: its lock must not be held while the index is read for long. */
    session_free(c->s);
    c->s = NULL;
    return rc;
}

/* ---- whether it is still right ---- */

static int by_id(const void *pa, const void *pb)
{
    return content_id_cmp(pa, pb);
}

static bool is_written(const struct compaction *c, const struct content_id *id)
{
    return c->n_written && bsearch(id, c->written, c->n_written, sizeof *c->written, by_id);
}

/* `id` is the first member of a place. */
_Static_assert(offsetof(struct manifest_place, id) == 0, "an id is compared with a place");

static const struct manifest_place *place_find(const struct manifests *m, const struct content_id *id)
{
    return m->n_contents ? bsearch(id, m->contents, m->n_contents, sizeof *m->contents, by_id) : NULL;
}

static bool is_same(const struct manifest_place *a, const struct manifest_place *b)
{
    return b && a->time == b->time && a->offset == b->offset && !strcmp(a->pack, b->pack);
}

/* Ends with CONFLICT at an entry of a manifest that was merged. */
static int entry_check(const struct raw_manifest *raw, void *compaction, struct err *e)
{
    const struct compaction *c = compaction;
    uint8_t id[16];
    (void)e;
    hex_decode(id, raw->id, 32);
    const struct manifest_winner *w = manifests_winner(c->m, id);
    return w->used && c->parts[w->place].chosen ? CONFLICT : 0;
}

/* 0, or CONFLICT: others have changed what was merged. `after`: the contents in a new view of the index. */
static int parts_check(struct compaction *c, const struct manifests *after, struct err *e)
{
    for (size_t i = 0; i < c->m->n_contents; i++)
        if (!is_same(&c->m->contents[i], place_find(after, &c->m->contents[i].id)))
            return CONFLICT;
    for (size_t i = 0; i < c->n_written; i++)
        if (!place_find(after, &c->written[i]))
            return CONFLICT;
    for (size_t i = 0; i < after->n_contents; i++) {
        const struct manifest_place *at = &after->contents[i];
        uint8_t *gz CLEANUP_FREE = NULL;
        if (is_written(c, &at->id) || place_find(c->m, &at->id))
            continue;
        const int64_t n = manifests_get(after, at, NULL, &gz, e);
        const int rc = n < 0 ? (int)n : manifest_collection_each(gz, (size_t)n, entry_check, c, NULL, e);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- marking ---- */

/* Marks contents deleted: those that were merged, or (`back`) those that were written. */
static int parts_mark(struct compaction *c, const struct manifests *after, bool back, struct err *e)
{
    CLEANUP(tombstones_freep) struct tombstones *t = NULL;
    int rc = tombstones_new(&t, c->r, e);
    for (size_t i = 0; rc == 0 && i < after->n_contents; i++) {
        const struct manifest_place *at = &after->contents[i], *was = place_find(c->m, &at->id);
        const bool written = is_written(c, &at->id), merged = was && c->parts[was - c->m->contents].chosen;
        struct index_entry x;
        if (back ? !written : !merged)
            continue;
        manifest_place_entry(at, &x);
        rc = tombstones_add(t, &x, e);
    }
    if (rc == 0)
        rc = tombstones_flush(t, e);
    if (rc == 0 && !back)
        c->ret->merged = tombstones_count(t, &c->ret->merged_bytes);
    return rc;
}

/* ---- lists that lag ---- */

/* The index blobs of the session that has written. */
struct own_indexes {
    char session[SESSION_ID_TEXT];
    struct blob_info all[OWN_MOST];
    unsigned n;
};

static int own_index(const struct blob_info *i, void *arg)
{
    struct own_indexes *own = arg;
    char session[SESSION_ID_TEXT];
    if (own->n < OWN_MOST && session_id_of_blob(i->name, session) && !strcmp(session, own->session))
        own->all[own->n++] = *i;
    return 0;
}

/* By the pack that has it; in a compacted index blob, whose name is none of the session's, others have seen it. */
static int own_find(const struct compaction *c, struct own_indexes *own, struct err *e)
{
    struct index_entry written;
    int rc = index_set_find(repo_index(c->r), &c->written[0], &written, e);
    if (rc == -ENOENT) {
        *e = (struct err)ERR_INIT; /* a conflict, which is found as such */
        return 0;
    }
    return rc < 0 || !session_id_of_blob(written.pack, own->session)
               ? rc
               : blobs_list(repo_blobs(c->r), "x", own_index, own, e);
}

/*
 * 1: whoever lists the index from now on finds what was written, or finds no marks either; 0: not yet, after some time.
 * A client that finds the marks alone has lost all of these manifests, and its maintenance takes their data for
 * garbage.
 */
static int written_listed(const struct compaction *c, struct err *e)
{
    struct blobs *b = repo_blobs(c->r);
    struct own_indexes own = {.n = 0};
    const int64_t until = mono_ns() + (c->o->listed_ns ? c->o->listed_ns : LISTED_NS);
    if (!c->n_written || !blobs_lists_lag(b))
        return 1;
    int rc = own_find(c, &own, e);
    for (unsigned i = 0; rc >= 0 && i < own.n;) {
        rc = blobs_is_listed(b, own.all[i].name, own.all[i].mtime_ns, e);
        i += rc > 0;
        if (rc)
            continue;
        if (mono_ns() >= until)
            return 0;
        const struct timespec pause = {.tv_nsec = 100 * NS_PER_MS};
        nanosleep(&pause, NULL);
        rc = blobs_stopped(b, e);
    }
    if (rc >= 0) /* others have written meanwhile */
        rc = index_set_refresh(repo_index(c->r), e);
    return rc < 0 ? rc : 1;
}

/* What was written is durable: the rest. CONFLICT: it was taken back. */
static int parts_replace(struct compaction *c, struct err *e)
{
    CLEANUP(manifests_freep) struct manifests *after = NULL;
    if (c->n_written)
        qsort(c->written, c->n_written, sizeof *c->written, by_id);
    int rc = index_set_refresh(repo_index(c->r), e);
    if (rc == 0)
        rc = written_listed(c, e);
    if (rc == 0)
        log_info("manifests that were stored together are not listed yet: the next maintenance marks the old ones");
    if (rc <= 0)
        return rc;
    rc = manifests_list(&after, c->r, e);
    if (rc == 0)
        rc = parts_check(c, after, e);
    if (rc < 0)
        return rc;
    const bool back = rc == CONFLICT;
    crash_point("maintenance-manifests-checked");
    /* After a suspension: what was stored may be all that others have left by now. Entries in two contents do no harm.
     */
    if (back && boot_ns() - c->put_ns > BACK_NS)
        return CONFLICT;
    rc = may_write(c, 0, e);
    if (rc > 0)
        rc = parts_mark(c, after, back, e);
    return rc < 0 ? rc : back ? CONFLICT : 0;
}

static int compact_once(struct repo *r, const struct manifest_compact_opts *o, struct manifest_compacted *ret,
                        struct err *e)
{
    CLEANUP(compaction_clear)
    struct compaction c = {.r = r, .o = o, .ret = ret, .limit = o->content_bytes ? o->content_bytes : CONTENT_BYTES};
    int rc = o->dry_run ? 0 : index_set_refresh(repo_index(r), e); /* what would be done can be a little old */
    if (rc == 0)
        rc = manifests_list(&c.m, r, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < c.m->n_contents; i++)
        ret->bytes += c.m->contents[i].length;
    ret->contents = c.m->n_contents;
    c.parts = calloc(c.m->n_contents + 1, sizeof *c.parts);
    if (!c.parts)
        return err_nomem(e);
    const int64_t chosen = parts_choose(&c, e);
    if (chosen <= 0)
        return (int)chosen;
    if (o->dry_run)
        ret->merged = (uint64_t)chosen;
    rc = o->dry_run ? 1 : may_write(&c, ret->merged_bytes, e);
    if (rc <= 0) {
        ret->merged_bytes = 0;
        return rc;
    }
    rc = parts_write(&c, e);
    if (rc < 0 || o->dry_run)
        return rc;
    crash_point("maintenance-manifests-written");
    rc = parts_replace(&c, e);
    crash_point("maintenance-manifests-compacted");
    return rc;
}

int manifests_compact(struct repo *r, const struct manifest_compact_opts *o, struct manifest_compacted *ret,
                      struct err *e)
{
    int rc = CONFLICT;
    unsigned conflicts = 0;
    while (rc == CONFLICT && conflicts < TRIES) {
        *ret = (struct manifest_compacted){.conflicts = conflicts};
        rc = compact_once(r, o, ret, e);
        conflicts += rc == CONFLICT;
    }
    if (rc != CONFLICT)
        return rc;
    *ret = (struct manifest_compacted){.contents = ret->contents, .bytes = ret->bytes, .conflicts = conflicts};
    log_info("manifests are left as they are until the next maintenance: other clients keep changing them");
    return 0;
}
