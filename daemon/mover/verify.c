/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * verify.c - checks of a repository
 *
 * Three passes. (1) Every index entry against the listing of packs. (2) Every object of the chosen snapshots, each one
 * once: all contents known, their packs long enough, and a share of them read, decrypted, expanded and hashed. (3) Only
 * if damage was found: the snapshots once more, to determine which files and byte ranges each damage affects.
 */
#include "daemon/mover/buffers.h"
#include "daemon/mover/fetch.h"
#include "daemon/mover/mapped.h"
#include "daemon/mover/verify-corrected.h"
#include "daemon/mover/verify-lost.h"
#include "daemon/mover/verify-notes.h"
#include "daemon/mover/verify-packs.h"
#include "repo/item.h"
#include "repo/tree-ahead.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/time.h"
#include "base/units.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#define DEPTH_MAX 512 /* nested directories */
#define PATH_LEN 4096
#define BASE_MEMORY (24u << 20) /* of the process, its tables and sets */
#define AHEAD_MEMORY (8u << 20)
#define SHARES 1000000u /* by their hashes, contents are in so many shares */
#define WHY_MAX 256     /* damaged contents whose reason is kept as text */
#define BATCH_FEW 2     /* contents hashed at a time, before reads ahead are given up for more */
#define PACK_MISSING 1u
#define PACK_SHORT 2u

struct verify {
    struct repo *repo;
    const struct verify_opts *o;
    struct verify_result *result;
    struct mover_progress *progress;
    struct pack_table *packs;
    struct pack_asked asked;
    struct verify_notes *notes;        /* of what was read; NULL: none */
    bool finished;                     /* all was looked at */
    struct err *each_err;              /* of what is called for each entry of the index */
    struct id_set *contents, *objects; /* seen */
    struct content_id last;            /* of `contents`, the last one: an image without data has millions in a row */
    bool last_compressed;
    struct id_set *damaged; /* contents; guarded by lock */
    struct id_set *told;    /* third pass: directories of this snapshot */
    struct fetcher *fetcher;
    uint64_t salt, from, threshold;            /* sampling, of millionths */
    struct fetch_item least[VERIFY_LEAST_MAX]; /* of those that are not in the sample, each as likely as any other */
    uint64_t unread, lottery;
    size_t max_len;
    unsigned batch; /* contents that a worker hashes together */
    pthread_mutex_t lock;
    struct {
        struct content_id id;
        const char *kind;
        char why[320];
    } why[WHY_MAX];
    unsigned n_why;
    _Atomic uint64_t whole_n, whole_bytes; /* contents that were read now */
    uint64_t indexed;                      /* packs that the index knows */
    bool bad_index;                        /* it is damaged */
    bool shut;                             /* and who has no cache of it cannot open the repository */
    bool by_bytes;    /* progress is what was read of what the index has, else what was walked of the snapshots */
    uint64_t to_read; /* bytes, by the index */
    struct throttle *reads;
    /* of the walk */
    struct content_ahead *ahead;
    struct snapshot *snapshot;
    char source[4500];
    char path[PATH_LEN];
    bool telling;             /* third pass */
    bool hit;                 /* this snapshot is damaged */
    unsigned documents;       /* unreadable documents met in the second pass */
    struct verify_damage run; /* third pass: damaged range being put together */
    char run_content[CONTENT_ID_TEXT], run_why[320], run_pack[BLOB_NAME_MAX + 1];
};

static bool canceled(const struct verify *v)
{
    return v->o->cancel && atomic_load_explicit(&v->o->cancel->requested, memory_order_relaxed);
}

static int interrupted(struct err *e)
{
    return err_set(e, ERR_INTERRUPTED, ECANCELED, "interrupted: verification incomplete");
}

static void damage_report(struct verify *v, const struct verify_damage *d)
{
    if (v->o->on_damage)
        v->o->on_damage(d, v->o->on_damage_arg);
}

/* ---- first pass: index against packs ---- */

static int list_pack(const struct blob_info *i, void *arg)
{
    struct verify *v = arg;
    struct err e = ERR_INIT;
    if (canceled(v))
        return -ECANCELED;
    return pack_table_add(v->packs, i->name, i->length, &e);
}

/* Marks and reports a pack once, however many of its contents are affected. 1: *kind is what is wrong with it; 0: the
 * pack is intact; negative: it cannot be determined, or no memory. */
static int pack_damage(struct verify *v, const struct index_entry *en, bool report, const char **kind, char *why,
                       size_t cap, struct err *e)
{
    struct pack_record *p = pack_table_find(v->packs, en->pack);
    uint64_t end = (uint64_t)en->offset + en->packed;
    if (p && end <= p->length)
        return 0;
    int there = p ? 0 : pack_is_there(repo_blobs(v->repo), en->pack, end, &v->asked, e);
    if (there)
        return there < 0 ? there : 0;
    *kind = p ? "short-pack" : "missing-pack";
    repo_note_bad_pack(v->repo, en->pack);
    if (p)
        snprintf(why, cap, "pack has %llu bytes, %llu expected by the index", (unsigned long long)p->length,
                 (unsigned long long)end);
    else
        snprintf(why, cap, "pack missing in the repository");
    if (!report)
        return 1;
    if (!p) {
        /* A record without length stands for the missing one, so that it is reported once. */
        struct content_id key = {.len = 16};
        hasher_digest(sealer_hasher(repo_sealer(v->repo)), en->pack, strlen(en->pack), key.hash);
        const int fresh = id_set_add(v->objects, &key, 255, e);
        if (fresh <= 0)
            return fresh < 0 ? fresh : 1;
    } else if (p->damage & PACK_SHORT) {
        return 1;
    } else {
        p->damage |= PACK_SHORT;
    }
    v->result->damages++;
    atomic_fetch_add(&v->progress->errors, 1);
    damage_report(v, &(struct verify_damage){.kind = *kind,
                                             .pack = en->pack,
                                             .content = "",
                                             .snapshot = "",
                                             .source = "",
                                             .path = "",
                                             .start = en->offset,
                                             .len = en->packed,
                                             .why = why});
    return 1;
}

static bool is_sampled(const struct verify *v, const struct content_id *id)
{
    uint64_t h = v->salt;
    for (unsigned i = 0; i < id->len; i++)
        h = (h ^ id->hash[i]) * 1099511628211u;
    return ((h ^ h >> 32) % SHARES + SHARES - v->from) % SHARES < v->threshold;
}

static int check_index_entry(const struct index_entry *en, void *arg)
{
    struct verify *v = arg;
    char why[200];
    v->result->index_entries++;
    if (!(v->result->index_entries & 0xfff) && canceled(v))
        return -ECANCELED;
    struct pack_record *p = pack_table_find(v->packs, en->pack);
    if (p && !(p->damage & PACK_INDEXED)) {
        p->damage |= PACK_INDEXED;
        v->indexed++;
    }
    if (!en->deleted) {
        v->result->index_bytes += en->packed;
        if (!en->id.prefix && is_sampled(v, &en->id))
            v->to_read += en->length;
        const char *kind;
        const int rc = pack_damage(v, en, true, &kind, why, sizeof why, v->each_err);
        return rc < 0 ? rc : 0;
    }
    return 0;
}

/* A repository has index entries from its creation on. */
static void index_damage(struct verify *v, const char *kind, const char *pack, const char *why)
{
    v->result->damages++;
    v->bad_index = true;
    atomic_fetch_add(&v->progress->errors, 1);
    damage_report(v,
                  &(struct verify_damage){
                      .kind = kind, .pack = pack, .content = "", .snapshot = "", .source = "", .path = "", .why = why});
}

/* A new client would read it, and fail. */
static int bad_index(const char *name, const char *why, void *arg)
{
    struct verify *v = arg;
    v->shut = true;
    index_damage(v, "bad-index", name, why);
    return 0;
}

static void lost_index(const char *pack, void *arg)
{
    index_damage(arg, "lost-index", pack,
                 "no index has this pack, and no session is writing it: its index blob was lost; the pack has a copy "
                 "of it, see `repo repair`");
}

static int list_packs(struct verify *v, struct err *e)
{
    int rc = blobs_list(repo_blobs(v->repo), "p", list_pack, v, e);
    if (rc >= 0)
        rc = blobs_list(repo_blobs(v->repo), "q", list_pack, v, e);
    if (rc >= 0)
        rc = pack_table_index(v->packs, e);
    return rc == -ECANCELED ? interrupted(e) : rc;
}

static int check_index(struct verify *v, struct err *e)
{
    atomic_store(&v->progress->phase, PHASE_CHECKING);
    if (v->o->quick)
        return list_packs(v, e);
    /* From the store: the cached copies say nothing about what a new node would find. */
    int rc = index_set_check(repo_index(v->repo), v->o->cancel ? &v->o->cancel->requested : NULL, bad_index, v,
                             &v->result->corrected_indexes, e);
    rc = rc >= 0 ? list_packs(v, e) : rc;
    /* Packs that were finished after the listing belong to indexes that are not in this view: no need to list again. */
    v->each_err = e;
    if (rc >= 0)
        rc = index_set_each(repo_index(v->repo), -1, check_index_entry, v, e);
    v->result->index_whole = rc >= 0;
    v->result->packs = pack_table_count(v->packs);
    v->result->packs_not_indexed = v->result->packs - v->indexed;
    if (rc == -ECANCELED)
        return interrupted(e);
    if (rc >= 0 && v->result->index_entries == 0 && v->result->packs > 0)
        index_damage(v, "lost-index", "",
                     "there are packs, but no index: each pack has a copy of its part of the index, see "
                     "`repo repair`");
    else if (rc >= 0 && v->result->packs_not_indexed > 0)
        rc = lost_packs_each(v->repo, v->packs, lost_index, v, e);
    return rc;
}

/* ---- second pass: reading ---- */

struct worker {
    struct verify *v;
    struct buffers *buffers;
};

static int worker_start(void *arg, unsigned number, void **state, struct err *e)
{
    (void)number;
    struct verify *v = arg;
    struct worker *w = calloc(1, sizeof *w);
    if (!w)
        return err_nomem(e);
    w->v = v;
    int rc = buffers_new(&w->buffers, v->batch, v->max_len, e);
    if (rc < 0) {
        free(w);
        return rc;
    }
    *state = w;
    return 0;
}

static void worker_end(void *state)
{
    struct worker *w = state;
    buffers_free(w->buffers);
    free(w);
}

static int worker_buffer(void *state, const struct fetch_item *it, uint8_t **ret, struct err *e)
{
    struct worker *w = state;
    if (it->len <= w->v->max_len) {
        *ret = buffers_take(w->buffers);
        return *ret ? 0 : err_nomem(e);
    }
    char id[CONTENT_ID_TEXT];
    int rc = repo_hold(w->v->repo, it->len, e);
    if (rc < 0)
        return err_wrap(e, "content %s", content_id_text(&it->entry.id, id));
    if (!(*ret = malloc(it->len))) {
        repo_release(w->v->repo, it->len);
        return err_nomem(e);
    }
    return 0;
}

static void buffer_put(struct worker *w, const struct fetch_item *it, uint8_t *buf)
{
    if (it->len <= w->v->max_len) {
        buffers_return(w->buffers, buf);
    } else {
        repo_release(w->v->repo, it->len);
        free(buf);
    }
}

static int worker_done(void *state, const struct fetch_item *it, uint8_t *buf, struct err *e)
{
    (void)e;
    struct worker *w = state;
    buffer_put(w, it, buf);
    verify_notes_whole(w->v->notes, &it->entry);
    atomic_fetch_add(&w->v->whole_n, 1);
    atomic_fetch_add(&w->v->whole_bytes, it->len);
    atomic_fetch_add(&w->v->progress->read, it->len);
    if (w->v->by_bytes)
        atomic_fetch_add(&w->v->progress->done, it->len);
    return 0;
}

/* Records a damaged content; reported in the third pass, with what it affects. */
static int content_damaged(struct verify *v, const struct content_id *id, const char *kind, const char *why,
                           struct err *e)
{
    pthread_mutex_lock(&v->lock);
    int rc = id_set_add(v->damaged, id, 0, e);
    if (rc > 0) {
        v->result->damages++;
        atomic_fetch_add(&v->progress->errors, 1);
        if (v->n_why < WHY_MAX) {
            v->why[v->n_why].id = *id;
            v->why[v->n_why].kind = kind;
            snprintf(v->why[v->n_why++].why, sizeof v->why[0].why, "%s", why);
        }
    }
    pthread_mutex_unlock(&v->lock);
    return rc < 0 ? rc : 0;
}

static int worker_failed(void *state, const struct fetch_item *it, uint8_t *buf, struct err *e)
{
    struct worker *w = state;
    if (buf)
        buffer_put(w, it, buf);
    if (e->cls != ERR_DAMAGE && e->cls != ERR_FORMAT)
        return e->sys > 0 ? -e->sys : -EIO;
    if (w->v->by_bytes)
        atomic_fetch_add(&w->v->progress->done, it->len);
    char why[320];
    snprintf(why, sizeof why, "%s", e->msg);
    verify_notes_damaged(w->v->notes, &it->entry.id);
    return content_damaged(w->v, &it->entry.id, "unreadable-content", why, e);
}

/* A content that is intact as far as the index goes, and is not read: unless none is. */
static void note_unread(struct verify *v, const struct fetch_item *it)
{
    const unsigned n = v->o->read_least < VERIFY_LEAST_MAX ? v->o->read_least : VERIFY_LEAST_MAX;
    uint64_t place = v->unread++;
    if (place >= n) {
        v->lottery = v->lottery * 6364136223846793005u + 1442695040888963407u;
        place = (v->lottery >> 32) % v->unread;
    }
    if (place < n)
        v->least[place] = *it;
}

static int content_read(struct verify *v, const struct fetch_item *it, struct err *e)
{
    v->result->contents_read++;
    v->result->bytes_read += it->len;
    if (v->notes && verify_notes_has(v->notes, v->contents, &it->entry)) {
        v->result->resumed_contents++;
        v->result->resumed_bytes += it->len;
        if (v->by_bytes)
            atomic_fetch_add(&v->progress->done, it->len);
        return 0;
    }
    return fetcher_add(v->fetcher, it, e);
}

static int read_least(struct verify *v, struct err *e)
{
    int rc = 0;
    for (unsigned i = 0; i < VERIFY_LEAST_MAX && i < v->o->read_least && i < v->unread && rc >= 0; i++)
        rc = content_read(v, &v->least[i], e);
    return rc;
}

/* Of `count` parts, one after the other, that are the same but for their place. */
static int check_part(struct verify *v, const struct object_part *p, uint64_t count, struct err *e)
{
    if (!v->by_bytes)
        atomic_fetch_add(&v->progress->done, p->len * count);
    if (p->id.compressed == v->last_compressed && content_id_equal(&p->id.content, &v->last))
        return 0;
    int fresh = id_set_add(v->contents, &p->id.content, p->id.compressed, e);
    if (fresh < 0)
        return fresh;
    v->last = p->id.content;
    v->last_compressed = p->id.compressed;
    if (!fresh)
        return 0;
    v->result->contents++;
    struct fetch_item it = {.compressed = p->id.compressed, .pos = p->start, .len = p->len};
    struct err missing = ERR_INIT;
    int rc = repo_find(v->repo, &p->id.content, &it.entry, &missing);
    if (rc == -ENOENT)
        return content_damaged(v, &p->id.content, "missing-content", "content not in the index", e);
    if (rc < 0) {
        *e = missing;
        return rc;
    }
    char why[200];
    const char *kind = NULL;
    rc = pack_damage(v, &it.entry, false, &kind, why, sizeof why, e);
    if (rc < 0)
        return rc;
    if (!kind && !p->id.compressed && it.entry.length != p->len) {
        kind = "unreadable-content";
        snprintf(why, sizeof why, "content has %u bytes, the object's part at %llu has %llu", it.entry.length,
                 (unsigned long long)p->start, (unsigned long long)p->len);
    }
    if (kind)
        return content_damaged(v, &p->id.content, kind, why, e);
    if (is_sampled(v, &p->id.content))
        return content_read(v, &it, e);
    note_unread(v, &it);
    return 0;
}

/* ---- third pass: what a damaged content affects ---- */

static void end_run(struct verify *v)
{
    if (!v->run.len)
        return;
    damage_report(v, &v->run);
    v->run.len = 0;
}

static void part_report(struct verify *v, const struct object_part *p)
{
    if (!id_set_has(v->damaged, &p->id.content, 0)) {
        end_run(v);
        return;
    }
    v->hit = true;
    char text[CONTENT_ID_TEXT];
    content_id_text(&p->id.content, text);
    uint64_t len = p->len ? p->len : 1;
    if (v->run.len && v->run.start + v->run.len == p->start && !strcmp(text, v->run_content)) {
        v->run.len += len;
        return;
    }
    end_run(v);
    const char *kind = "unreadable-content";
    snprintf(v->run_why, sizeof v->run_why, "content damaged");
    for (unsigned i = 0; i < v->n_why; i++) {
        if (content_id_equal(&v->why[i].id, &p->id.content)) {
            kind = v->why[i].kind;
            memcpy(v->run_why, v->why[i].why, sizeof v->run_why);
        }
    }
    struct index_entry en;
    struct err ignored = ERR_INIT;
    v->run_pack[0] = '\0';
    if (repo_find(v->repo, &p->id.content, &en, &ignored) >= 0)
        memcpy(v->run_pack, en.pack, sizeof v->run_pack);
    memcpy(v->run_content, text, sizeof text);
    v->run = (struct verify_damage){.kind = kind,
                                    .pack = v->run_pack,
                                    .content = v->run_content,
                                    .snapshot = v->snapshot->id,
                                    .source = v->source,
                                    .path = v->path,
                                    .start = p->start,
                                    .len = len,
                                    .why = v->run_why};
}

/* ---- the walk, common to the second and third pass ---- */

static void bad_document(struct verify *v, const struct dir_entry *d, const struct err *why)
{
    if (!v->telling) {
        v->documents++;
        v->result->damages++;
        atomic_fetch_add(&v->progress->errors, 1);
        return;
    }
    v->hit = true;
    char id[CONTENT_ID_TEXT] = "";
    if (d->obj.content.len)
        content_id_text(&d->obj.content, id);
    damage_report(v, &(struct verify_damage){.kind = "bad-document",
                                             .pack = "",
                                             .content = id,
                                             .snapshot = v->snapshot->id,
                                             .source = v->source,
                                             .path = v->path,
                                             .start = 0,
                                             .len = d->size > 0 ? (uint64_t)d->size : 0,
                                             .why = why->msg});
}

/* Damage in a document (directory, index document) is counted and reported; other errors end the run. */
static int damage_or_error(struct verify *v, const struct dir_entry *d, int rc, struct err *e)
{
    if (rc >= 0)
        return 0;
    if (e->cls != ERR_DAMAGE)
        return rc;
    bad_document(v, d, e);
    *e = (struct err)ERR_INIT;
    return 0;
}

static int walk_parts(struct verify *v, const struct dir_entry *d, struct err *e)
{
    CLEANUP(object_parts_freep) struct object_parts *parts = NULL;
    int rc = object_parts_open_ahead(&parts, v->repo, v->ahead, &d->obj, e);
    while (rc >= 0) {
        struct object_part p;
        uint64_t count = 1;
        rc = v->telling ? object_parts_next(parts, &p, e) : object_parts_next_run(parts, &p, &count, e);
        if (rc <= 0)
            break;
        if (canceled(v))
            return interrupted(e);
        if (v->telling) {
            part_report(v, &p);
        } else {
            rc = check_part(v, &p, count, e);
            if (rc < 0)
                return rc;
        }
    }
    end_run(v);
    return damage_or_error(v, d, rc, e);
}

struct level {
    struct verify *v;
    unsigned depth;
    size_t path_len;
    struct err *e;
};

static int walk_entry(struct verify *v, const struct dir_entry *d, unsigned depth, struct err *e);

static int walk_child(struct dir_entry *d, void *arg)
{
    struct level *l = arg;
    struct verify *v = l->v;
    snprintf(v->path + l->path_len, sizeof v->path - l->path_len, "%s%s", l->path_len ? "/" : "",
             d->name ? d->name : "");
    int rc = walk_entry(v, d, l->depth + 1, l->e);
    v->path[l->path_len] = '\0';
    return rc;
}

static int walk_entry(struct verify *v, const struct dir_entry *d, unsigned depth, struct err *e)
{
    if (canceled(v))
        return interrupted(e);
    if (!d->obj.content.len) {
        struct err why = ERR_INIT;
        err_set(&why, ERR_DAMAGE, 0, "entry without object");
        if (d->type == 'f' || d->type == 'd' || d->type == 's')
            bad_document(v, d, &why);
        return 0;
    }
    if (!v->telling) {
        int fresh = id_set_add(v->objects, &d->obj.content, object_tag(&d->obj, d->type == 'd'), e);
        if (fresh < 0)
            return fresh;
        if (!fresh) {
            int64_t size = d->type == 'd' ? d->sum_size : d->size;
            if (size > 0 && !v->by_bytes)
                atomic_fetch_add(&v->progress->done, (uint64_t)size);
            return 0;
        }
        v->result->objects++;
    } else if (d->type == 'd') {
        /* Once in a snapshot: directories that contain each other's copies have more paths than can be walked. */
        int fresh = id_set_add(v->told, &d->obj.content, d->obj.indirection, e);
        if (fresh <= 0)
            return fresh;
    }
    int rc = walk_parts(v, d, e);
    if (rc < 0 || d->type != 'd')
        return rc;
    if (depth >= DEPTH_MAX) {
        err_set(e, ERR_DAMAGE, 0, "directories nested deeper than %d", DEPTH_MAX);
        return damage_or_error(v, d, -EBADMSG, e);
    }
    struct err inner = ERR_INIT;
    struct level l = {.v = v, .depth = depth, .path_len = strlen(v->path), .e = &inner};
    struct err own = ERR_INIT;
    rc = dir_each_ahead(v->repo, v->ahead, &d->obj, walk_child, &l, &own);
    if (rc < 0 && inner.cls != ERR_NONE) {
        *e = inner;
        return rc;
    }
    if (rc < 0)
        *e = own;
    return damage_or_error(v, d, rc, e);
}

struct chosen {
    struct verify *v;
    char (*ids)[33]; /* sorted */
    size_t n;
    struct tree_ahead *trees; /* in walk_snapshots() */
    struct err *e;
};

static int compare_ids(const void *a, const void *b)
{
    return strcmp(a, b);
}

static bool is_chosen(const struct chosen *c, const char *id)
{
    return bsearch(id, c->ids, c->n, sizeof *c->ids, compare_ids);
}

static int walk_snapshot(struct snapshot *s, struct content_ahead *ahead, void *arg)
{
    struct chosen *c = arg;
    struct verify *v = c->v;
    v->snapshot = s;
    v->ahead = ahead;
    v->hit = false;
    v->path[0] = '\0';
    snapshot_source_text(&s->source, v->source, sizeof v->source);
    if (!v->telling)
        v->result->snapshots++;
    int rc = v->telling ? id_set_new(&v->told, repo_cache_dir(v->repo), 0, c->e) : 0;
    if (rc >= 0)
        rc = walk_entry(v, &s->root, 0, c->e);
    id_set_free(v->told);
    v->told = NULL;
    v->result->snapshots_damaged += v->hit;
    return rc;
}

static int add_snapshot(struct snapshot *s, void *arg)
{
    const struct chosen *c = arg;
    const struct object_id *o = &s->root.obj;
    const bool known = !c->v->telling && id_set_has(c->v->objects, &o->content, object_tag(o, s->root.type == 'd'));
    return tree_ahead_add(c->trees, s, known);
}

static int sum_snapshot(struct snapshot *s, void *arg)
{
    struct chosen *c = arg;
    if (s->total_size > 0)
        atomic_fetch_add(&c->v->progress->total, (uint64_t)s->total_size);
    return 0;
}

static bool is_wanted(const char *id, const json_t *labels, void *arg)
{
    (void)labels;
    return is_chosen(arg, id);
}

/* All of them oldest first. Some are looked up: what else is there is not read for them, and its damage not theirs. */
static int each_snapshot(struct chosen *c, snapshot_fn *fn, unsigned *bad, struct err *e)
{
    struct err own = ERR_INIT;
    c->e = e;
    int rc = c->n ? snapshots_wanted(c->v->repo, is_wanted, fn, c, bad, &own)
                  : snapshots_each(c->v->repo, NULL, true, fn, c, bad, &own);
    if (rc < 0 && e->cls == ERR_NONE)
        *e = own;
    return rc;
}

static int walk_snapshots(struct chosen *c, unsigned *bad, struct err *e)
{
    CLEANUP(tree_ahead_freep) struct tree_ahead *trees = NULL;
    int rc = tree_ahead_new(&trees, c->v->repo, AHEAD_MEMORY, walk_snapshot, c, e);
    c->trees = trees;
    return rc < 0 ? rc : tree_ahead_end(trees, each_snapshot(c, add_snapshot, bad, e), e);
}

static int verify_all(struct verify *v, struct chosen *c, struct err *e)
{
    int rc = check_index(v, e);
    if (rc < 0)
        return rc;
    unsigned bad = 0;
    v->by_bytes = c->n == 0 && v->to_read > 0;
    if (v->by_bytes)
        atomic_store(&v->progress->total, v->to_read);
    else
        rc = c->n ? each_snapshot(c, sum_snapshot, NULL, e)
                  : snapshots_each(v->repo, NULL, false, sum_snapshot, c, NULL, e);
    atomic_store(&v->progress->phase, PHASE_MOVING);
    if (v->by_bytes)
        v->reads->passed = &v->progress->taken_in; /* no thread reads yet */
    if (rc >= 0)
        rc = walk_snapshots(c, &bad, e);
    if (rc >= 0 && !v->result->contents_read)
        rc = read_least(v, e);
    int drained = fetcher_drain(v->fetcher, rc < 0 ? NULL : e);
    v->reads->passed = NULL;
    if (v->by_bytes) /* the rest of the index belongs to no snapshot */
        atomic_store(&v->progress->total, atomic_load(&v->progress->done));
    if (rc >= 0)
        rc = drained;
    if (rc >= 0 && (id_set_count(v->damaged) || v->documents)) {
        v->telling = true;
        rc = walk_snapshots(c, NULL, e);
    }
    if (rc < 0)
        return rc;
    v->finished = true;
    v->result->damages += bad;
    if (!v->result->damages)
        return 0;
    const char *s = plural(v->result->damages);
    if (v->shut) /* what this node reads by its cache is affected, too: a restore may be on another one */
        err_set(e, ERR_DAMAGE, EBADMSG,
                "damage found: %llu damaged index blob%s, pack%s, content%s or document%s; a node without a cache of "
                "the index can read none of %llu snapshot%s",
                (unsigned long long)v->result->damages, s, s, s, s, (unsigned long long)v->result->snapshots,
                plural(v->result->snapshots));
    else
        err_set(e, ERR_DAMAGE, EBADMSG,
                "damage found: %llu damaged %spack%s, content%s or document%s; %llu of %llu snapshot%s affected%s",
                (unsigned long long)v->result->damages, v->bad_index ? "or not indexed " : "", s, s, s,
                (unsigned long long)v->result->snapshots_damaged, (unsigned long long)v->result->snapshots,
                plural(v->result->snapshots), v->bad_index ? ", and those that only the lost index lists" : "");
    if (v->bad_index)
        return err_hint(e, "first `repo repair`, which rebuilds the index from the packs, then verify again: see "
                           "snapferry-recovery(7)");
    return err_hint(e, "snapshots that are not listed are intact; the next backup stores again what it meets of the "
                       "damaged data: see snapferry-recovery(7)");
}

static void fill_stages(struct verify *v)
{
    struct fetch_stats s;
    fetcher_stats(v->fetcher, &s);
    fetch_stages(&s, v->result->stages);
    v->result->n_stages = FETCH_STAGES;
    v->result->bottleneck = fetch_bottleneck(v->result->stages, FETCH_STAGES);
}

static void verify_clear(struct verify *v)
{
    fetcher_free(v->fetcher);
    pack_table_free(v->packs);
    id_set_free(v->contents);
    id_set_free(v->objects);
    id_set_free(v->damaged);
    pthread_mutex_destroy(&v->lock);
}

/* Returns what is left beside the buffers of the workers: for their readers, for documents, and for contents that are
 * longer than usual, of which one is read at a time. */
static uint64_t plan_memory(const struct verify *v, uint64_t memory, struct fetch_plan *p)
{
    /* The reader's scratch, as in a restore. */
    const unsigned scratch = repo_reads_in_pieces(v->repo) ? 1 : 2;
    /* Room for a content of the longest splitter, compressed, beside all the buffers. */
    const uint64_t odd = memory / 8 < 32u << 20 ? memory / 8 : 32u << 20;
    const uint64_t fixed = (40u << 20) + odd, reader = scratch * (uint64_t)v->max_len + (1u << 20);
    unsigned workers = v->o->limits.workers ? v->o->limits.workers : (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    unsigned batch = fetch_batch(v->repo, 16);
    while (workers > 1 && fixed + workers * (reader + (batch + 1) / 2 * (uint64_t)v->max_len) > memory)
        workers--;
    /* Reads that wait for a network come before full lanes of the hash, as in a restore. */
    const unsigned few = batch < BATCH_FEW ? batch : BATCH_FEW;
    const unsigned ahead = fetch_ahead_plan(v->repo, v->max_len, memory > fixed ? memory - fixed : 0,
                                            reader + few * (uint64_t)v->max_len, &workers);
    const uint64_t reads = ahead * fetch_ahead_bytes(v->repo, v->max_len);
    while (batch > 1 && fixed + workers * (reader + reads + batch * (uint64_t)v->max_len) > memory)
        batch--;
    *p = (struct fetch_plan){workers, batch, ahead};
    return memory - BASE_MEMORY - workers * ((1u << 20) + batch * (uint64_t)v->max_len) -
           (uint64_t)workers * ahead * fetch_ahead_bytes(v->repo, v->max_len);
}

/* A content or nested directories that did not fit: with how much memory they do. */
static int hint_memory(const struct verify *v, uint64_t memory, int rc, struct err *e)
{
    const uint64_t need = repo_refused(v->repo);
    struct fetch_plan p;
    if (rc >= 0 || !need || e->cls != ERR_MEMORY)
        return rc;
    while (plan_memory(v, memory, &p) < need)
        memory += 16u << 20;
    return err_hint(e, "use --memory %lluMiB (daemon: memory in [mover])", (unsigned long long)(memory >> 20));
}

static int verify_open(struct verify *v, uint64_t memory, struct err *e)
{
    const char *dir = repo_cache_dir(v->repo);
    struct index_set_stats is;
    index_set_stats(repo_index(v->repo), &is);
    struct splitter sp = {.max = 8u << 20};
    splitter_by_name(&sp, repo_format(v->repo)->splitter);
    v->max_len = sp.max;
    const uint64_t noted = v->notes ? verify_notes_expected(v->notes) : 0;
    int rc = pack_table_new(&v->packs, dir, e);
    if (rc >= 0)
        rc = id_set_new(&v->contents, dir, is.entries + noted, e);
    if (rc >= 0 && v->notes)
        rc = verify_notes_load(v->notes, v->contents, e);
    if (rc >= 0)
        rc = id_set_new(&v->objects, dir, 0, e);
    if (rc >= 0)
        rc = id_set_new(&v->damaged, dir, 0, e);
    if (rc < 0)
        return rc;
    struct fetch_plan p;
    const uint64_t rest = plan_memory(v, memory, &p);
    v->batch = p.batch;
    repo_memory(v->repo, rest);
    const struct fetch_sink sink = {.start = worker_start,
                                    .end = worker_end,
                                    .buffer = worker_buffer,
                                    .done = worker_done,
                                    .failed = worker_failed,
                                    .arg = v,
                                    .usual_len = v->max_len};
    return fetcher_new(&v->fetcher, v->repo, &p, &sink, v->o->cancel, e);
}

/* What decides which contents are read. */
static int open_notes(struct verify *v, char (*ids)[33], size_t n, struct err *e)
{
    const bool any = v->o->read_from < 0;
    const size_t len = 33 + n * sizeof *ids;
    CLEANUP_FREE uint8_t *choice = calloc(1, len);
    if (!choice)
        return err_nomem(e);
    put_le64(choice, v->threshold);
    put_le64(choice + 8, v->from);
    put_le64(choice + 16, v->o->read_least);
    choice[24] = any;
    put_le64(choice + 25, n);
    if (n)
        memcpy(choice + 33, ids, n * sizeof *ids);
    return verify_notes_open(&v->notes, v->repo, choice, len, v->o->anew_ns, &v->salt, e);
}

/* What was handed to the workers and what they have read are not the same if they were stopped. */
static void count_read(struct verify *v)
{
    struct verify_result *ret = v->result;
    if (v->finished)
        return;
    ret->contents_read = ret->resumed_contents + atomic_load(&v->whole_n);
    ret->bytes_read = ret->resumed_bytes + atomic_load(&v->whole_bytes);
}

static void close_notes(struct verify *v, int rc, struct err *e)
{
    struct verify_result *ret = v->result;
    if (!v->notes)
        return;
    ret->since_ns = verify_notes_since(v->notes);
    const bool exist = !v->finished && verify_notes_exist(v->notes);
    verify_notes_close(v->notes, v->finished);
    v->notes = NULL;
    if (rc < 0 && exist && (e->cls == ERR_INTERRUPTED || !e->hint[0]))
        err_hint(e, "the next verification of the same goes on from there, within %d days", VERIFY_RESUME_DAYS);
}

int verify_run(struct repo *r, char (*ids)[33], size_t n, const struct verify_opts *o, struct verify_result *ret,
               struct err *e)
{
    struct mover_progress unseen = {0};
    const double began = mono_s();
    *ret = (struct verify_result){0};
    uint64_t memory = o->limits.memory ? o->limits.memory : MEMORY_DEFAULT;
    if (memory < MEMORY_MIN)
        return err_set(e, ERR_USAGE, 0, "memory budget of %llu MiB is too small: at least %u MiB needed",
                       (unsigned long long)(memory >> 20), MEMORY_MIN >> 20);
    CLEANUP_FREE struct verify *v = calloc(1, sizeof *v);
    if (!v)
        return err_nomem(e);
    v->repo = r;
    v->o = o;
    v->result = ret;
    v->progress = o->progress ? o->progress : &unseen;
    v->threshold = (uint64_t)(o->read_percent * 10000 + 0.5);
    pthread_mutex_init(&v->lock, NULL);
    if (o->read_from >= 0)
        v->from = (uint64_t)(o->read_from * 10000 + 0.5) % SHARES;
    else if (getrandom(&v->salt, sizeof v->salt, 0) != sizeof v->salt)
        v->salt = (uint64_t)mono_ns();
    CLEANUP_FREE char(*sorted)[33] = calloc(n + 1, sizeof *sorted);
    if (!sorted)
        return err_nomem(e);
    if (n)
        memcpy(sorted, ids, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_ids);
    struct chosen c = {.v = v, .ids = sorted, .n = n};
    struct throttle reads = mover_reads(o->limits.read_limit, o->cancel);
    v->reads = &reads;
    blobs_limit(repo_blobs(r), &reads, NULL);
    const _Atomic bool *before = blobs_stop(repo_blobs(r), o->cancel ? &o->cancel->requested : NULL);
    struct corrected *corrected = NULL;
    int rc = o->resume ? open_notes(v, sorted, n, e) : 0;
    v->lottery = v->salt;
    if (rc >= 0)
        rc = corrected_begin(&corrected, r, e);
    if (rc >= 0)
        rc = verify_open(v, memory, e);
    if (rc >= 0)
        rc = verify_all(v, &c, e);
    if (rc >= 0)
        rc = blobs_check_layout(repo_blobs(r), e); /* or nobody else finds what was read */
    rc = hint_memory(v, memory, rc, e);
    if (v->fetcher)
        fill_stages(v);
    count_read(v);
    repo_save_damage(r);
    verify_clear(v);
    close_notes(v, rc, e);
    corrected_end(corrected, ret);
    repo_memory(r, 0);
    blobs_limit(repo_blobs(r), NULL, NULL);
    blobs_stop(repo_blobs(r), before);
    ret->seconds = mono_s() - began;
    atomic_store(&v->progress->phase, PHASE_DONE);
    return rc;
}
