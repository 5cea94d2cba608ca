/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * maintain-rewrite.c - contents of packs that are nearly empty are stored again, together, in new packs; so are those
 * that could be read with the help of error correction only, whatever their packs
 *
 * A pack goes as a whole, so what is needed in it holds what is not. Its needed contents get new entries, which
 * supersede the old ones; the old pack is deleted by a later run, by the rules for all packs. Contents that are marked
 * deleted stay where they are: storing them again would renew their time, and they would never be dropped. So do those
 * that no snapshot needs (yet): they are marked deleted soon, or are rewritten once a snapshot needs them.
 */
#include "daemon/mover/maintain-impl.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"
#include "daemon/mover/fetch-ahead.h"
#include "repo/compress.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SHORT_PERCENT 60             /* of the size of packs, as stock Kopia's */
#define READ ((uint64_t)8 << 20)     /* of a pack that is read with one request */
#define READS_FAR 4                  /* at a time, where each of them waits for a network */
#define READS_NEAR 2                 /* and where blobs are files */
#define GAP ((uint64_t)1 << 20)      /* between two contents that is read along */
#define BLOCK 1024                   /* contents whose reads are planned at a time */
#define LONGEST ((uint32_t)64 << 20) /* of a content that is rewritten */
#define PACK_EXTRA ((uint64_t)64 << 10)
#define BATCH ((uint64_t)1 << 17) /* contents held in memory, at 80 bytes */

/* A content that is to be stored again. */
struct piece {
    struct content_id id;
    uint8_t format_version;
    uint32_t offset, packed, length, compression;
    bool decayed; /* error correction had to restore it */
    const struct pack_record *pack;
};

struct rewrite {
    struct run *m;
    uint64_t threshold;   /* bytes of contents: a pack with less is short */
    uint64_t packs[2];    /* short ones, without and with prefix letter */
    uint64_t candidates;  /* contents in short packs, and those that error correction had to restore */
    uint64_t bytes;       /* of them */
    uint64_t part, parts; /* of the packs: one at a time is held in memory */
    struct piece *all;
    size_t n, room;
    struct session *s;
    struct put_scratch *scratch;
    struct content_reader *reader;
    struct fetch_ahead *ahead;
    struct fetch_item *items; /* two blocks: what is read for them, and for those that follow */
    size_t block, given;      /* contents: where the last block begins, how many were in blocks */
    struct err *e;
};

uint32_t run_compression(uint32_t id)
{
    struct err ignored = ERR_INIT;
    const char *name = id ? compress_name(id) : NULL;
    return name && compress_id_by_name(name, &ignored) == (int64_t)id ? id : 0;
}

static bool is_movable(const struct rewrite *w, const struct index_entry *en)
{
    const struct run *m = w->m;
    return !en->deleted && en->key_id == 0 && en->length <= LONGEST && en->packed <= LONGEST &&
           m->started_ns - ns_of_seconds(en->time) >= m->safety->rewrite_age && en->id.prefix != MANIFEST_PREFIX &&
           id_set_has(m->mark.used, &en->id, 0);
}

/* ---- which packs ---- */

static int pack_fill(const struct index_entry *en, enum index_standing standing, void *arg)
{
    struct rewrite *w = arg;
    struct pack_record *p = standing == INDEX_WINNER ? pack_table_find(w->m->packs, en->pack) : NULL;
    if (p) {
        p->live += en->packed;
        if (is_movable(w, en))
            p->damage |= PACK_MOVABLE;
    }
    return run_interrupted(w->m, w->e);
}

/* Of a short pack, if it has something to be moved. */
static struct pack_record *short_pack(const struct rewrite *w, const struct index_entry *en)
{
    struct pack_record *p = pack_table_find(w->m->packs, en->pack);
    return p && (p->damage & PACK_MOVABLE) && p->live < w->threshold ? p : NULL;
}

/* The only short pack of its kind is rewritten where that gives something back, which is more than what each pack has
 * beside its contents. */
static bool is_sparse(const struct pack_record *p)
{
    return p->live + PACK_EXTRA < p->length / 100 * SHORT_PERCENT;
}

/* What this machine could read with the help of error correction only, at this place. */
static bool is_decayed(const struct rewrite *w, const struct index_entry *en)
{
    return repo_is_corrected(w->m->r, en) && is_movable(w, en) && pack_table_find(w->m->packs, en->pack);
}

static int pack_count(const struct index_entry *en, enum index_standing standing, void *arg)
{
    struct rewrite *w = arg;
    struct pack_record *p = standing == INDEX_WINNER ? short_pack(w, en) : NULL;
    if (!p && !(standing == INDEX_WINNER && is_decayed(w, en)))
        return run_interrupted(w->m, w->e);
    if (p && !(p->damage & PACK_COUNTED))
        w->packs[p->name[0] != 'p'] += is_sparse(p) ? 2 : 1;
    if (p)
        p->damage |= PACK_COUNTED;
    w->candidates++;
    w->bytes += en->packed;
    return run_interrupted(w->m, w->e);
}

uint64_t run_part_of(const char *name, uint64_t parts)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * UINT64_C(1099511628211);
    return (h ^ h >> 32) % parts;
}

static int piece_add(const struct index_entry *en, enum index_standing standing, void *arg)
{
    struct rewrite *w = arg;
    struct pack_record *p = standing == INDEX_WINNER && is_movable(w, en) ? short_pack(w, en) : NULL;
    const bool decayed = standing == INDEX_WINNER && is_decayed(w, en);
    int rc = run_interrupted(w->m, w->e);
    if (p && w->packs[p->name[0] != 'p'] < 2)
        p = NULL;
    if (decayed)
        p = pack_table_find(w->m->packs, en->pack);
    if (rc < 0 || !p || run_part_of(en->pack, w->parts) != w->part)
        return rc;
    if (w->n == w->room) {
        size_t room = w->room ? 2 * w->room : 1024;
        void *all = realloc(w->all, room * sizeof *w->all);
        if (!all)
            return err_nomem(w->e);
        w->all = all;
        w->room = room;
    }
    w->all[w->n++] = (struct piece){.id = en->id,
                                    .format_version = en->format_version,
                                    .offset = en->offset,
                                    .packed = en->packed,
                                    .length = en->length,
                                    .compression = en->compression,
                                    .decayed = decayed,
                                    .pack = p};
    return 0;
}

static int by_place(const void *pa, const void *pb)
{
    const struct piece *a = pa, *b = pb;
    if (a->pack != b->pack)
        return a->pack < b->pack ? -1 : 1;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

/* ---- storing them again ---- */

static int rewrite_begin(struct rewrite *w, struct err *e)
{
    struct repo *r = w->m->r;
    if (w->s)
        return 0;
    int rc = session_new(&w->s, r, &(struct session_opts){.no_adopt = true}, e);
    if (rc == 0)
        rc = put_scratch_new(&w->scratch, r, 0, 0, e);
    if (rc == 0)
        rc = content_reader_new(&w->reader, r, e);
    const bool near = blobs_are_files(repo_blobs(r));
    if (rc == 0)
        rc = fetch_ahead_new(&w->ahead, repo_blobs(r), near ? READS_NEAR : READS_FAR, READ, GAP, e);
    if (rc == 0 && !(w->items = calloc(2 * BLOCK, sizeof *w->items)))
        rc = err_nomem(e);
    return rc;
}

static const char *name_of(const struct rewrite *w, const struct piece *p)
{
    return pack_table_name(w->m->packs, p->pack);
}

static struct index_entry entry_of(const struct rewrite *w, const struct piece *p)
{
    struct index_entry en = {.id = p->id,
                             .offset = p->offset,
                             .packed = p->packed,
                             .length = p->length,
                             .compression = p->compression,
                             .format_version = p->format_version};
    snprintf(en.pack, sizeof en.pack, "%s", name_of(w, p));
    return en;
}

/* `stored`: its bytes in the pack; NULL: to be read. What cannot be read stays where it is. */
static int piece_move(struct rewrite *w, const struct piece *p, const uint8_t *stored, struct err *e)
{
    struct maintain_result *res = w->m->ret;
    const struct index_entry en = entry_of(w, p);
    struct put_result put = {0};
    struct err own = ERR_INIT;
    CLEANUP_FREE uint8_t *data = malloc(p->length + 1u);
    int rc = data ? run_interrupted(w->m, e) : err_nomem(e);
    if (rc < 0)
        return rc;
    int64_t n = content_read_entry(w->reader, &en, stored, data, p->length, true, &own);
    if (n == -ENOENT || is_unreadable(n, &own)) {
        log_warning("cannot move a content to another pack: %s", own.msg);
        sum_add(&res->unreadable, p->packed);
        return 0;
    }
    if (n < 0) {
        *e = own;
        return (int)n;
    }
    rc = session_put_again(w->s, w->scratch, &p->id, data, (size_t)n, run_compression(p->compression), &put, e);
    if (rc == 0 && !put.existed)
        sum_add(p->decayed ? &res->renewed : &res->rewritten, p->packed);
    return rc;
}

/* Counts short packs: their pieces follow each other. */
static void pack_counted(struct rewrite *w, const struct piece *p, const struct pack_record **last)
{
    if (p->decayed)
        return;
    w->m->ret->rewritten_packs += *last != p->pack;
    *last = p->pack;
}

/* Reads of the next block are planned once nothing but the last one is left: the items before it are not in use. */
static void block_follow(struct rewrite *w, size_t i)
{
    if (w->given == w->n || i < w->block || !fetch_ahead_wants(w->ahead))
        return;
    struct fetch_item *items = w->items + w->given / BLOCK % 2 * BLOCK;
    const size_t n = w->n - w->given < BLOCK ? w->n - w->given : BLOCK;
    for (size_t k = 0; k < n; k++)
        items[k] = (struct fetch_item){.entry = entry_of(w, &w->all[w->given + k])};
    w->block = w->given;
    w->given += n;
    fetch_ahead_follow(w->ahead, items, n);
}

static int pieces_move(struct rewrite *w, struct err *e)
{
    size_t step;
    const struct pack_record *pack = NULL;
    int rc = w->n ? rewrite_begin(w, e) : 0;
    w->block = w->given = 0;
    for (size_t i = 0; rc == 0 && i < w->n; i += step) {
        uint64_t from;
        const uint8_t *sealed;
        const struct piece *p = &w->all[i];
        block_follow(w, i);
        step = fetch_ahead_next(w->ahead, &sealed, &from);
        for (size_t k = 0; rc == 0 && k < step; k++) {
            pack_counted(w, &p[k], &pack);
            rc = piece_move(w, &p[k], sealed ? sealed + (p[k].offset - from) : NULL, e);
        }
    }
    return rc;
}

static int dry_count(struct rewrite *w)
{
    const struct pack_record *pack = NULL;
    for (size_t i = 0; i < w->n; i++) {
        const struct piece *p = &w->all[i];
        pack_counted(w, p, &pack);
        sum_add(p->decayed ? &w->m->ret->renewed : &w->m->ret->rewritten, p->packed);
    }
    return 0;
}

int run_rewrite(struct run *m, struct err *e)
{
    struct rewrite w = {
        .m = m, .e = e, .threshold = repo_format(m->r)->max_pack_size / 100 * SHORT_PERCENT, .parts = 1};
    struct index_set *index = repo_index(m->r);
    int rc = index_set_refresh(index, e);
    if (rc == 0)
        rc = index_set_each_all(index, pack_fill, &w, e);
    if (rc == 0)
        rc = index_set_each_all(index, pack_count, &w, e);
    w.parts = (w.candidates + BATCH - 1) / BATCH;
    /* New packs that have no index yet free nothing, but take up the last room. */
    if (rc == 0 && !m->o->dry_run && w.candidates && !run_has_room(m, w.bytes + w.bytes / 8))
        w.parts = 0;
    for (w.part = 0; rc == 0 && w.part < w.parts; w.part++) {
        w.n = 0;
        rc = index_set_each_all(index, piece_add, &w, e);
        if (w.n)
            qsort(w.all, w.n, sizeof *w.all, by_place);
        if (rc == 0)
            rc = m->o->dry_run ? dry_count(&w) : pieces_move(&w, e);
    }
    if (rc == 0 && w.s) {
        crash_point("maintenance-rewriting");
        rc = session_flush(w.s, e);
        crash_point("maintenance-rewritten");
    }
    fetch_ahead_free(w.ahead);
    free(w.items);
    free(w.all);
    content_reader_free(w.reader);
    put_scratch_free(w.scratch);
    session_free(w.s);
    return rc;
}
