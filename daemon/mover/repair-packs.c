/* SPDX-License-Identifier: GPL-2.0-or-later */
/* repair-packs.c - what each pack says of its contents, compared with the index */
#include "daemon/mover/repair-impl.h"

#include "base/cleanup.h"
#include "base/team.h"
#include "base/time.h"
#include "repo/manifest.h"
#include "repo/pack.h"

#include <stdlib.h>
#include <string.h>

#define ROUND 64  /* packs that are read at a time, */
#define READERS 8 /* by so many threads; of a directory: */
#define READERS_DIR 2
#define ROUND_BYTES ((uint64_t)64 << 20) /* of local indexes */
#define MANIFEST_MAX ((size_t)64 << 20)

/* A pack, and its local index once it was read. */
struct fetched {
    struct blob_info info;
    uint8_t *index;
    size_t len;
    uint64_t end;
    int rc;
    struct err err;
};

struct round {
    struct repair *m;
    struct fetched all[ROUND];
    size_t n;
    _Atomic uint64_t bytes;
    struct content_reader *reader;
    struct err *e;
};

/* ---- one pack ---- */

/* Contents of a pack as it says itself. */
struct own {
    struct repair *m;
    struct content_reader *reader;
    uint64_t found;
    struct index_entry *marks; /* of deleted manifests */
    size_t n_marks;
    uint64_t manifests; /* that are in this pack, */
    bool broken;        /* one of which cannot be read */
    uint64_t left_out;  /* of these, no index has them either */
    struct err *e;
};

static bool can_read(struct own *o, const struct index_entry *x)
{
    CLEANUP_FREE uint8_t *data = NULL;
    struct err why = ERR_INIT;
    return content_get_entry(o->reader, x, &data, MANIFEST_MAX, &why) >= 0;
}

static int mark_add(struct own *o, const struct index_entry *x)
{
    if ((o->n_marks & (o->n_marks - 1)) == 0) {
        void *p = reallocarray(o->marks, o->n_marks ? 2 * o->n_marks : 1, sizeof *o->marks);
        if (!p)
            return err_nomem(o->e);
        o->marks = p;
    }
    o->marks[o->n_marks++] = *x;
    return 0;
}

/* What the index has of a content may be right: something else takes its place only if it is whole. */
static bool is_whole(struct own *o, const struct index_entry *x)
{
    return x->length <= MANIFEST_MAX && can_read(o, x);
}

/* The index has this content elsewhere, and that pack is missing: this is a copy of it. */
static int use_copy(struct own *o, const struct index_entry *x, const struct index_entry *stands)
{
    struct index_entry copy = *x;
    if (!is_whole(o, x))
        return 0;
    copy.time = stands->time + 1;
    o->m->ret->elsewhere = (struct maintain_sum){o->m->ret->elsewhere.n + 1, o->m->ret->elsewhere.bytes + x->packed};
    o->found++;
    return repair_add(o->m, &copy, o->e);
}

/*
 * An entry of the local index. Marks of deleted contents are not put into the index again: were the content stored once
 * more later, in a pack whose local index is damaged, they would hide what is left of it. Those of manifests are, see
 * put_marks().
 */
static int own_entry(const struct index_entry *x, void *arg)
{
    struct own *o = arg;
    struct index_entry stands;
    bool hidden;
    if (x->deleted)
        return x->id.prefix == MANIFEST_PREFIX ? mark_add(o, x) : 0;
    if (!repair_is_stored(o->m, x))
        return 0;
    o->manifests += x->id.prefix == MANIFEST_PREFIX;
    int rc = index_set_find_any(repo_index(o->m->r), &x->id, &stands, &hidden, o->e);
    if (rc < 0 && rc != -ENOENT)
        return rc;
    if (rc == -ENOENT || (!repair_same_place(x, &stands) && index_entry_wins(x, &stands) &&
                          (hidden || !repair_is_stored(o->m, &stands) || is_whole(o, x)))) {
        /* All of the manifests are read by each client when it opens the repository: by one that is damaged none can.
         */
        if (x->id.prefix == MANIFEST_PREFIX && !is_whole(o, x)) {
            o->left_out += rc == -ENOENT;
            return 0;
        }
        o->found++;
        return repair_add(o->m, x, o->e);
    }
    return hidden || stands.deleted || repair_is_stored(o->m, &stands) ? 0 : use_copy(o, x, &stands);
}

static int check_manifest(const struct index_entry *x, void *arg)
{
    struct own *o = arg;
    if (!x->deleted && x->id.prefix == MANIFEST_PREFIX && repair_is_stored(o->m, x) && !can_read(o, x))
        o->broken = true;
    return 0;
}

/*
 * Stock clients merge manifests into one content and mark those that it replaces deleted, in the same pack. Where the
 * marks are lost, manifests of snapshots that were deleted long ago would be back. They are put into the index again if
 * the pack has what replaces them, and it can be read.
 */
static int put_marks(struct own *o, const struct fetched *f)
{
    int rc = 0;
    if (!o->n_marks || !o->manifests)
        return 0;
    rc = pack_local_all(f->index, f->len, f->info.name, f->end, check_manifest, o, o->e);
    for (size_t i = 0; rc == 0 && !o->broken && i < o->n_marks; i++) {
        struct index_entry stands;
        bool hidden;
        rc = index_set_find_any(repo_index(o->m->r), &o->marks[i].id, &stands, &hidden, o->e);
        if (rc == -ENOENT || (rc == 0 && index_entry_wins(&o->marks[i], &stands)))
            rc = repair_add(o->m, &o->marks[i], o->e);
    }
    return rc;
}

static int pack_compare(struct round *r, const struct fetched *f)
{
    struct repair *m = r->m;
    struct own o = {.m = m, .reader = r->reader, .e = r->e};
    struct err own = ERR_INIT;
    /* Errors of own_entry() are in *r->e. */
    int rc = pack_local_all(f->index, f->len, f->info.name, f->end, own_entry, &o, &own);
    if (rc < 0 && own.cls)
        *r->e = own;
    if (rc == 0)
        rc = put_marks(&o, f);
    free(o.marks);
    m->authentic = true;
    m->ret->manifests += o.left_out;
    if (o.left_out)
        m->o->report(REPAIR_MANIFESTS, f->info.name, "they cannot be read", o.left_out, m->o->arg);
    if (o.found) {
        m->ret->found++;
        m->o->report(REPAIR_PACK, f->info.name, "", o.found, m->o->arg);
    }
    return rc;
}

/* Its local index is damaged, or the pack is gone. */
static int pack_failed(struct round *r, const struct fetched *f)
{
    struct repair *m = r->m;
    const struct pack_record *p = pack_table_find(m->packs, f->info.name);
    const bool named = p && (p->damage & REPAIR_NAMED);
    struct blob_info info;
    struct err own = ERR_INIT;
    if (!repair_unreadable(f->rc, &f->err)) {
        *r->e = f->err;
        return f->rc;
    }
    if (blobs_stat(repo_blobs(m->r), f->info.name, &info, &own) == -ENOENT)
        return 0; /* deleted since it was listed */
    if (named)
        m->ret->unreadable++;
    else
        m->ret->unknown++;
    m->o->report(named ? REPAIR_UNREADABLE : REPAIR_UNKNOWN, f->info.name, f->err.msg, 0, m->o->arg);
    return 0;
}

/* ---- many at a time ---- */

static void fetch(struct repair *m, struct fetched *f, uint64_t max)
{
    f->err = (struct err)ERR_INIT;
    f->rc = pack_fetch_local_index(repo_blobs(m->r), repo_sealer(m->r), f->info.name, f->info.length, max, &f->index,
                                   &f->len, &f->end, &f->err);
}

static int round_read(void *arg, size_t i, struct err *e)
{
    struct round *r = arg;
    const uint64_t before = atomic_load(&r->bytes);
    const int rc = repair_stopped(r->m, e);
    if (rc < 0)
        return rc;
    fetch(r->m, &r->all[i], before < ROUND_BYTES ? (ROUND_BYTES - before) / READERS : 0);
    if (r->all[i].rc == 0)
        atomic_fetch_add(&r->bytes, r->all[i].len);
    return 0;
}

static int round_compare(struct round *r)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < r->n; i++) {
        struct fetched *f = &r->all[i];
        rc = repair_stopped(r->m, r->e);
        if (rc == 0 && f->rc == -EFBIG)
            fetch(r->m, f, UINT64_MAX); /* a large one, alone */
        if (rc == 0)
            rc = f->rc < 0 ? pack_failed(r, f) : pack_compare(r, f);
        free(f->index);
        f->index = NULL;
        r->m->ret->read++;
        if (r->m->o->progress)
            atomic_fetch_add(&r->m->o->progress->done, f->info.length);
    }
    return rc;
}

static int round_run(struct round *r)
{
    const unsigned most = blobs_are_files(repo_blobs(r->m->r)) ? READERS_DIR : READERS;
    for (size_t i = 0; i < r->n; i++)
        r->all[i].rc = -ECANCELED;
    atomic_store(&r->bytes, 0);
    int rc = team_run(most, r->n, round_read, r, r->e);
    if (rc == 0)
        rc = round_compare(r);
    for (size_t i = 0; i < r->n; i++) {
        free(r->all[i].index);
        r->all[i].index = NULL;
    }
    r->n = 0;
    return rc;
}

/* ---- all of them ---- */

static int named_entry(const struct index_entry *x, enum index_standing standing, void *arg)
{
    struct repair *m = arg;
    (void)standing;
    struct pack_record *p = pack_table_find(m->packs, x->pack);
    if (p)
        p->damage |= REPAIR_NAMED;
    return repair_stopped(m, m->e);
}

/* A session that may be writing puts its packs into the index itself. */
static bool is_awaited(const struct repair *m, const char *pack)
{
    char id[SESSION_ID_TEXT];
    if (!session_id_of_blob(pack, id))
        return false;
    for (size_t i = 0; i < m->n_markers; i++)
        if (!m->markers[i].repair && !strcmp(m->markers[i].id, id) &&
            now_ns() - m->markers[i].seen_ns < maintenance_safety_full.session_age)
            return true;
    return false;
}

static int pack_listed(const struct blob_info *i, void *arg)
{
    struct round *r = arg;
    struct repair *m = r->m;
    struct pack_record *p = pack_table_find(m->packs, i->name);
    if (!p) /* younger than the run */
        return repair_stopped(m, r->e);
    p->time_ns = i->mtime_ns;
    p->length = i->length;
    const bool known = p->damage & REPAIR_NAMED, awaited = !known && is_awaited(m, i->name);
    m->ret->waiting += awaited;
    if (awaited || (known && m->o->missing_only)) {
        if (m->o->progress)
            atomic_fetch_add(&m->o->progress->done, i->length);
        return repair_stopped(m, r->e);
    }
    r->all[r->n++].info = *i;
    return r->n < ROUND ? 0 : round_run(r);
}

int repair_packs(struct repair *m, struct err *e)
{
    struct round *r CLEANUP_FREE = calloc(1, sizeof *r);
    if (!r)
        return err_nomem(e);
    r->m = m;
    r->e = e;
    if (m->o->progress)
        atomic_store(&m->o->progress->phase, PHASE_MOVING);
    int rc = content_reader_new(&r->reader, m->r, e);
    if (rc == 0)
        rc = repair_publish(m, e); /* so that what other index blobs knew is seen */
    if (rc == 0)
        rc = index_set_each_all(repo_index(m->r), named_entry, m, e);
    if (rc == 0)
        rc = blobs_list(repo_blobs(m->r), "p", pack_listed, r, e);
    if (rc == 0)
        rc = blobs_list(repo_blobs(m->r), "q", pack_listed, r, e);
    if (rc == 0)
        rc = round_run(r);
    content_reader_free(r->reader);
    return rc;
}
