/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/indexset.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/resident.h"
#include "repo/epoch-test.h"
#include "repo/index-ahead.h"
#include "repo/index-cache.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define DEFAULT_MAPPED_CAP (UINT64_C(64) << 20)
#define MIN_PAGES 256
#define ATTEMPTS 10
#define PROBE_PIECE ((size_t)1 << 20)
#define FIRST_PAUSE INT64_C(100000000)
#define LONGEST_PAUSE INT64_C(2000000000)

/* The state used by look-ups: immutable. A look-up keeps a reference to the view it began with. */
struct view {
    unsigned refs; /* under the set's lock */
    size_t n;
    struct index_map **map; /* sorted by name */
    struct epoch_state st;  /* without its blobs */
    uint64_t entries, bytes;
};

struct index_set {
    struct blobs *blobs;
    const struct sealer *sealer;
    const struct repo_format *format;
    struct index_cache cache;
    char *cache_dir;
    struct epoch_ahead *ahead; /* of the first refresh */
    bool damaged;              /* opened for repair: */
    struct epoch_without without;
    pthread_mutex_t refresh; /* one refresh or addition at a time; taken before `lock` */
    pthread_mutex_t lock;    /* short: the current view, reference counts, the list of maps */
    struct view *view;
    struct index_map *maps; /* every live one, of old views too */
    uint64_t cache_bytes;
    uint64_t cap_pages;            /* of 4 KiB */
    _Atomic uint64_t pages;        /* resident at most, since pages were last released */
    _Atomic uint64_t look_at;      /* so many: it is time to measure them */
    uint64_t before;               /* pages of files that the process had then; under the lock */
    _Atomic uint64_t filter_pages; /* of all maps */
};

/* ---- resident pages --------------------------------------------------------------------------------------------- */

/* Filters remain resident, and the rest of the budget is for tables, unless they would need more than half of it. */
static bool keeps_filters(struct index_set *x)
{
    return atomic_load(&x->filter_pages) <= x->cap_pages / 2;
}

static uint64_t page_budget(struct index_set *x)
{
    return x->cap_pages - (keeps_filters(x) ? atomic_load(&x->filter_pages) : 0);
}

/* Under the lock. */
static void drop_all(struct index_set *x, bool keep_filters)
{
    atomic_store(&x->pages, 0);
    atomic_store(&x->look_at, 0);
    for (struct index_map *m = x->maps; m; m = m->next)
        index_map_drop(m, keep_filters);
    x->before = resident_shared() / 4096;
}

/*
 * Pages are counted by what a fault maps at least, but it may be up to WORST times as much: of the page cache's folio,
 * all (Linux 6.18 and later). So from time to time the kernel's own count is taken, before the cap can be exceeded. It
 * is of all files of the process: what others map meanwhile only releases pages earlier.
 */
#define WORST 32

static void pages_measure(struct index_set *x)
{
    pthread_mutex_lock(&x->lock);
    uint64_t pages = atomic_load(&x->pages);
    if (pages >= atomic_load(&x->look_at)) {
        const uint64_t now = resident_shared() / 4096, budget = page_budget(x);
        if (now < x->before)
            x->before = now;
        if (now - x->before > pages) {
            pages = now - x->before;
            atomic_store(&x->pages, pages);
        }
        if (pages >= budget) {
            drop_all(x, keeps_filters(x));
            pages = 0;
        }
        atomic_store(&x->look_at, pages + (budget - pages) / WORST + 1);
    }
    pthread_mutex_unlock(&x->lock);
}

static void page_touched(struct index_set *x, struct index_map *m, const void *at)
{
    unsigned n = index_map_touch(m, at);
    if (n && atomic_fetch_add(&x->pages, n) + n >= atomic_load(&x->look_at))
        pages_measure(x);
}

/* Adds to or subtracts from the filters; when they are no longer kept, they are released immediately. Under the
 * lock. */
static void count_filter(struct index_set *x, const struct index_map *m, bool add)
{
    bool kept = keeps_filters(x);
    if (add)
        atomic_fetch_add(&x->filter_pages, index_map_filter_pages(m));
    else
        atomic_fetch_sub(&x->filter_pages, index_map_filter_pages(m));
    if (kept && !keeps_filters(x))
        drop_all(x, false);
    atomic_store(&x->look_at, 0); /* the budget has changed */
}

static void touch_trace(struct index_set *x, struct index_map *m, const struct index_trace *tr)
{
    for (unsigned i = 0; i < tr->n; i++)
        page_touched(x, m, tr->at[i]);
}

/* ---- views ------------------------------------------------------------------------------------------------------ */

static struct view *view_get(struct index_set *x)
{
    pthread_mutex_lock(&x->lock);
    struct view *v = x->view;
    v->refs++;
    pthread_mutex_unlock(&x->lock);
    return v;
}

/* Removes a map from the list when its last view is freed. Under the lock; returns it if it is to be freed. */
static struct index_map *map_unref(struct index_set *x, struct index_map *m)
{
    if (--m->refs > 0)
        return NULL;
    count_filter(x, m, false);
    *m->prev = m->next;
    if (m->next)
        m->next->prev = m->prev;
    return m;
}

static void view_put(struct index_set *x, struct view *v)
{
    if (!v)
        return;
    pthread_mutex_lock(&x->lock);
    bool last = --v->refs == 0;
    for (size_t i = 0; last && i < v->n; i++)
        v->map[i] = map_unref(x, v->map[i]);
    pthread_mutex_unlock(&x->lock);
    if (!last)
        return;
    for (size_t i = 0; i < v->n; i++)
        index_map_free(v->map[i]);
    free(v->map);
    free(v);
}

static struct view *view_new(size_t room)
{
    struct view *v = calloc(1, sizeof *v);
    if (!v)
        return NULL;
    v->map = calloc(room + 1, sizeof *v->map);
    if (!v->map) {
        free(v);
        return NULL;
    }
    v->refs = 1;
    v->st.watermark = INT64_MIN;
    return v;
}

/* Adds a map to a view that is being built, which holds a reference from then on. */
static void view_add(struct index_set *x, struct view *v, struct index_map *m)
{
    pthread_mutex_lock(&x->lock);
    if (m->refs++ == 0) {
        m->next = x->maps;
        m->prev = &x->maps;
        if (m->next)
            m->next->prev = &m->next;
        x->maps = m;
        count_filter(x, m, true);
    }
    pthread_mutex_unlock(&x->lock);
    v->map[v->n++] = m;
    v->entries += m->t.count;
    v->bytes += m->file_len;
}

static int by_map_name(const void *pa, const void *pb)
{
    const struct index_map *a = *(struct index_map *const *)pa, *b = *(struct index_map *const *)pb;
    return strcmp(a->name, b->name);
}

static struct index_map *view_find(const struct view *v, const char *name)
{
    size_t lo = 0, hi = v->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strcmp(v->map[mid]->name, name);
        if (c == 0)
            return v->map[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

static void view_swap(struct index_set *x, struct view *v, uint64_t cache_bytes)
{
    pthread_mutex_lock(&x->lock);
    struct view *old = x->view;
    x->view = v;
    x->cache_bytes = cache_bytes;
    pthread_mutex_unlock(&x->lock);
    view_put(x, old);
}

/* ---- opening and refreshing ------------------------------------------------------------------------------------- */

/* Opening a map reads its header; a view of many small tables must not fill memory with their first pages. */
static void map_opened(struct index_set *x, struct index_map *m)
{
    page_touched(x, m, m->t.data);
}

int index_set_leave_out(struct index_set *x, const char *name, struct err *e)
{
    struct epoch_without *w = &x->without;
    void *all = reallocarray(w->names, w->n + 1, sizeof *w->names);
    if (!all)
        return err_nomem(e);
    w->names = all;
    snprintf(w->names[w->n++], sizeof *w->names, "%s", name);
    return 0;
}

bool index_set_leaves_out(const struct index_set *x, const char *name)
{
    for (size_t i = 0; i < x->without.n; i++)
        if (strcmp(x->without.names[i], name) == 0)
            return true;
    return false;
}

void index_set_least_epoch(struct index_set *x, int64_t epoch)
{
    x->without.least_epoch = epoch;
}

/* The errors of its storage, not of the cache: it is read once more, past it. */
static bool is_on_bad_sector(struct index_set *x, const struct blob_info *b)
{
    struct err why = ERR_INIT;
    int r = 0;
    CLEANUP_FREE uint8_t *piece = malloc(PROBE_PIECE);
    for (uint64_t at = 0; piece && r == 0 && at < b->length; at += PROBE_PIECE)
        r = blobs_read(x->blobs, b->name, at, piece,
                       b->length - at < PROBE_PIECE ? (size_t)(b->length - at) : PROBE_PIECE, &why);
    return r < 0 && why.sys == EIO;
}

bool index_set_is_bad(struct index_set *x, const struct blob_info *blob, int rc, const struct err *e)
{
    if (rc >= 0 || rc == -ENOENT)
        return false;
    return e->cls == ERR_DAMAGE || e->cls == ERR_FORMAT ||
           (e->sys == EIO && blobs_are_files(x->blobs) && is_on_bad_sector(x, blob));
}

/* The tables of a selection that the current view does not have. */
struct fetched {
    struct index_map **map;
    bool *want;
    size_t n;
};

static void fetched_clear(struct fetched *f)
{
    for (size_t i = 0; f->map && i < f->n; i++)
        if (f->map[i])
            index_map_free(f->map[i]);
    free(f->map);
    free(f->want);
}

/* Only a refresh, of which there is one at a time, changes x->view. */
static struct index_map *known_map(struct index_set *x, const char *name)
{
    return x->view ? view_find(x->view, name) : NULL;
}

static int fetch_ahead(struct index_set *x, const struct epoch_state *st, struct fetched *f, struct err *e)
{
    f->n = st->n_blobs;
    f->map = calloc(f->n + 1, sizeof(struct index_map *));
    f->want = calloc(f->n + 1, sizeof *f->want);
    if (!f->map || !f->want)
        return err_nomem(e);
    for (size_t i = 0; i < f->n; i++)
        f->want[i] = !known_map(x, st->blobs[i].name);
    index_fetch_ahead(&x->cache, st->blobs, f->n, f->want, f->map);
    return 0;
}

/* *left_out: a damaged blob was left out (a set for repair), so that the selection has to be made anew. NULL: that is
 * an error. */
static int build_view(struct index_set *x, const struct epoch_state *st, struct view *v, bool *left_out, struct err *e)
{
    CLEANUP(fetched_clear) struct fetched f = {.n = 0};
    int r = fetch_ahead(x, st, &f, e);
    if (r < 0)
        return r;
    for (size_t i = 0; i < st->n_blobs; i++) {
        struct index_map *m = f.want[i] ? take_ptr(&f.map[i]) : known_map(x, st->blobs[i].name);
        if (!m) {
            r = index_cache_get(&m, &x->cache, &st->blobs[i], e);
            if (r < 0 && left_out && index_set_is_bad(x, &st->blobs[i], r, e)) {
                r = index_set_leave_out(x, st->blobs[i].name, e);
                if (r < 0)
                    return r;
                *left_out = true;
                *e = (struct err)ERR_INIT;
                continue;
            }
            if (r < 0)
                return r;
        }
        view_add(x, v, m);
        if (f.want[i])
            map_opened(x, m);
    }
    v->st = *st;
    v->st.blobs = NULL;
    v->st.n_blobs = 0;
    return 0;
}

/* One attempt. -ENOENT: a blob was deleted after it was listed. 1: damaged blobs were left out, once more. */
static int refresh_once(struct index_set *x, struct err *e)
{
    struct epoch_state st;
    int r =
        epoch_load_listed(&st, take_ptr(&x->ahead), x->blobs, x->sealer, x->format, x->damaged ? &x->without : NULL, e);
    if (r < 0)
        return r == -ENOENT ? -EIO : r;
    bool again = false;
    uint64_t bytes = 0;
    r = index_cache_make_room(&x->cache, st.blobs, st.n_blobs, &bytes, e);
    struct view *v = NULL;
    if (r == 0) {
        v = view_new(st.n_blobs);
        r = v ? build_view(x, &st, v, x->damaged ? &again : NULL, e) : err_nomem(e);
    }
    if (r < 0 && r != -ENOENT && v && x->format->epochs.enabled && (e->cls == ERR_DAMAGE || e->cls == ERR_FORMAT))
        err_hint(e, "`repo repair` sets it aside, and rebuilds what it held from the packs; see "
                    "snapferry-recovery(7), THE INDEX IS LOST");
    epoch_state_clear(&st);
    if (r < 0 || again)
        view_put(x, v);
    else
        view_swap(x, v, bytes);
    return again ? 1 : r;
}

static int try_refresh(struct index_set *x, struct err *e)
{
    int r;
    do
        r = refresh_once(x, e);
    while (r == 1);
    return r;
}

int index_set_refresh(struct index_set *x, struct err *e)
{
    int64_t pause = FIRST_PAUSE;
    pthread_mutex_lock(&x->refresh);
    int r = try_refresh(x, e);
    for (unsigned attempt = 1; r == -ENOENT && attempt < ATTEMPTS; attempt++) {
        epoch_sleep_ns(pause);
        pause = pause * 2 < LONGEST_PAUSE ? pause * 2 : LONGEST_PAUSE;
        r = try_refresh(x, e);
    }
    pthread_mutex_unlock(&x->refresh);
    return r;
}

void index_set_state(struct index_set *x, struct epoch_state *ret)
{
    pthread_mutex_lock(&x->lock);
    *ret = x->damaged ? (struct epoch_state){.watermark = INT64_MIN} : x->view->st;
    pthread_mutex_unlock(&x->lock);
}

int index_set_recall(struct index_set *x, const struct blob_info *listed, size_t n, int64_t before_ns, struct err *e)
{
    struct epoch_state st = {.n_blobs = 0};
    int r = index_cache_recall(&x->cache, listed, n, before_ns, e);
    if (r == 0)
        r = epoch_select(&st, listed, n, e);
    if (r < 0)
        return r;
    struct view *v = view_get(x);
    for (size_t i = 0; r == 0 && i < st.n_blobs; i++)
        r = st.blobs[i].mtime_ns < before_ns && !view_find(v, st.blobs[i].name);
    view_put(x, v);
    epoch_state_clear(&st);
    return r;
}

int index_set_open(struct index_set **ret, struct blobs *b, const struct sealer *s, const struct repo_format *f,
                   const struct index_set_opts *o, struct err *e)
{
    struct index_set *x = calloc(1, sizeof *x);
    if (!x)
        return err_nomem(e);
    uint64_t cap = o->mapped_cap ? o->mapped_cap : DEFAULT_MAPPED_CAP;
    x->cap_pages = cap / 4096 > MIN_PAGES ? cap / 4096 : MIN_PAGES;
    x->before = resident_shared() / 4096;
    x->blobs = b;
    x->sealer = s;
    x->format = f;
    x->damaged = o->damaged && f->epochs.enabled;
    x->cache.dirfd = -1;
    pthread_mutex_init(&x->refresh, NULL);
    pthread_mutex_init(&x->lock, NULL);
    x->cache_dir = strdup(o->cache_dir);
    int r = x->cache_dir ? index_cache_open(&x->cache, x->cache_dir, o->cache_cap, b, s, f->ecc_percent > 0, e)
                         : err_nomem(e);
    x->cache.spare = o->cache_spare;
    x->ahead = o->ahead;
    if (r == 0)
        r = index_set_refresh(x, e);
    if (r < 0)
        index_set_free(x);
    else
        *ret = x;
    return r;
}

#define CHECK_ROUND 64

static int check_round(struct index_set *x, const struct blob_info *b, size_t n, struct index_checked *checked,
                       index_bad_fn *fn, void *arg, uint64_t *corrected, struct err *e)
{
    int r = 0;
    index_check_ahead(&x->cache, b, n, checked);
    for (size_t i = 0; r == 0 && i < n; i++) {
        struct index_checked *k = &checked[i];
        if (!k->done) {
            k->why = (struct err)ERR_INIT;
            k->rc = index_cache_check(&x->cache, &b[i], &k->corrected, &k->why);
        }
        *corrected += k->rc == 0 && k->corrected;
        if (k->rc == 0)
            continue;
        if (k->rc == -ENOENT || (k->why.cls != ERR_DAMAGE && k->why.cls != ERR_FORMAT)) {
            *e = k->why;
            return k->rc;
        }
        r = fn(b[i].name, k->why.msg, arg);
    }
    return r;
}

static int check_blobs(struct index_set *x, const struct epoch_state *st, const _Atomic bool *stop, index_bad_fn *fn,
                       void *arg, uint64_t *corrected, struct err *e)
{
    CLEANUP_FREE struct index_checked *checked = calloc(CHECK_ROUND, sizeof *checked);
    int r = checked ? 0 : err_nomem(e);
    for (size_t i = 0; r == 0 && i < st->n_blobs; i += CHECK_ROUND) {
        const size_t left = st->n_blobs - i;
        if (stop && atomic_load(stop))
            return err_set(e, ERR_INTERRUPTED, ECANCELED, "interrupted while index blobs were read");
        r = check_round(x, &st->blobs[i], left < CHECK_ROUND ? left : CHECK_ROUND, checked, fn, arg, corrected, e);
    }
    return r;
}

int index_set_check(struct index_set *x, const _Atomic bool *stop, index_bad_fn *fn, void *arg, uint64_t *corrected,
                    struct err *e)
{
    int r = -ENOENT;
    /* -ENOENT: compacted by another client after it was listed. */
    for (unsigned attempt = 0; r == -ENOENT && attempt < ATTEMPTS; attempt++) {
        struct epoch_state st;
        *e = (struct err)ERR_INIT;
        *corrected = 0;
        r = epoch_load(&st, x->blobs, x->sealer, x->format, e);
        if (r < 0)
            return r;
        r = check_blobs(x, &st, stop, fn, arg, corrected, e);
        epoch_state_clear(&st);
    }
    return r;
}

void index_set_free(struct index_set *x)
{
    if (!x)
        return;
    view_put(x, x->view);
    index_cache_close(&x->cache);
    free(x->without.names);
    free(x->cache_dir);
    pthread_mutex_destroy(&x->refresh);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

static int add_to_view(struct index_set *x, const char *name, const uint8_t *data, size_t len, struct err *e)
{
    struct view *old = x->view;
    if (view_find(old, name))
        return 0;
    CLEANUP_FREE struct blob_info *needed = calloc(old->n + 1, sizeof *needed);
    if (!needed)
        return err_nomem(e);
    for (size_t i = 0; i < old->n; i++) {
        strcpy(needed[i].name, old->map[i]->name);
        needed[i].length = item_sealed_len(x->sealer, old->map[i]->t.size);
    }
    size_t at = old->n;
    for (; at > 0 && strcmp(needed[at - 1].name, name) > 0; at--)
        needed[at] = needed[at - 1];
    snprintf(needed[at].name, sizeof needed[at].name, "%s", name);
    needed[at].length = item_sealed_len(x->sealer, len);
    uint64_t bytes = 0;
    int r = index_cache_make_room(&x->cache, needed, old->n + 1, &bytes, e);
    if (r < 0)
        return r;

    struct index_map *m;
    r = index_cache_add(&m, &x->cache, name, data, len, e);
    if (r < 0)
        return r;
    struct view *v = view_new(old->n + 1);
    if (!v) {
        index_map_free(m);
        return err_nomem(e);
    }
    for (size_t i = 0; i < old->n; i++)
        view_add(x, v, old->map[i]);
    view_add(x, v, m);
    map_opened(x, m);
    qsort(v->map, v->n, sizeof *v->map, by_map_name);
    v->st = old->st;
    view_swap(x, v, bytes);
    return 0;
}

int index_set_add(struct index_set *x, const char *name, const uint8_t *data, size_t len, struct err *e)
{
    pthread_mutex_lock(&x->refresh);
    int r = add_to_view(x, name, data, len, e);
    pthread_mutex_unlock(&x->refresh);
    return r;
}

int64_t index_set_loaded_ns(const struct index_set *cx)
{
    struct index_set *x = (struct index_set *)(uintptr_t)cx; /* the lock is not visible to the caller */
    pthread_mutex_lock(&x->lock);
    int64_t t = x->view->st.loaded_ns;
    pthread_mutex_unlock(&x->lock);
    return t;
}

void index_set_stats(struct index_set *x, struct index_set_stats *ret)
{
    pthread_mutex_lock(&x->lock);
    const struct view *v = x->view;
    *ret = (struct index_set_stats){.blobs = v->n,
                                    .entries = v->entries,
                                    .mapped_bytes = v->bytes,
                                    .cache_bytes = x->cache_bytes,
                                    .write_epoch = v->st.write_epoch,
                                    .watermark = v->st.watermark};
    pthread_mutex_unlock(&x->lock);
}

/* ---- looking up ------------------------------------------------------------------------------------------------- */

/* Decided only after all tables are merged (P14). */
static bool entry_hidden(const struct view *v, const struct index_entry *x)
{
    return x->deleted && x->time <= v->st.watermark;
}

static bool may_have(struct index_set *x, struct index_map *m, uint64_t key_hash, bool count)
{
    if (!m->filter_len)
        return true;
    const void *at;
    bool may = index_map_may_have(m, key_hash, &at);
    if (count)
        page_touched(x, m, at);
    return may;
}

/* 1: there is an entry, but it is hidden. */
static int find_in_view(struct index_set *x, const struct view *v, const struct content_id *id, struct index_entry *ret,
                        struct err *e)
{
    struct index_entry other, *to = ret; /* the first one is written directly to the result */
    uint64_t key_hash = index_key_hash(id);
    bool count = !keeps_filters(x);
    for (size_t i = 0; i < v->n; i++) {
        struct index_map *m = v->map[i];
        if (!may_have(x, m, key_hash, count))
            continue;
        struct index_trace tr;
        tr.n = 0;
        int r = index_find_traced(&m->t, id, to, &tr, e);
        touch_trace(x, m, &tr);
        if (r < 0)
            return err_wrap(e, "index blob %s", m->name);
        if (r == 0)
            continue;
        if (to == &other && index_entry_wins(&other, ret))
            *ret = other;
        to = &other;
    }
    return to == ret ? -ENOENT : entry_hidden(v, ret);
}

int index_set_find(struct index_set *x, const struct content_id *id, struct index_entry *ret, struct err *e)
{
    struct view *v = view_get(x);
    int r = find_in_view(x, v, id, ret, e);
    view_put(x, v);
    return r > 0 ? -ENOENT : r;
}

int index_set_knows(struct index_set *x, const struct content_id *id, struct err *e)
{
    struct index_entry en;
    struct view *v = view_get(x);
    int r = find_in_view(x, v, id, &en, e);
    view_put(x, v);
    return r == -ENOENT ? 0 : r < 0 ? r : 1;
}

int index_set_find_any(struct index_set *x, const struct content_id *id, struct index_entry *ret, bool *hidden,
                       struct err *e)
{
    struct view *v = view_get(x);
    int r = find_in_view(x, v, id, ret, e);
    view_put(x, v);
    *hidden = r > 0;
    return r > 0 ? 0 : r;
}

bool index_set_views(struct index_set *x, const char *name)
{
    struct view *v = view_get(x);
    const bool has = view_find(v, name);
    view_put(x, v);
    return has;
}

void index_set_forget(struct index_set *x, const char *name)
{
    index_cache_forget(&x->cache, name);
}

int index_set_cached(struct index_set *x, index_cached_fn *fn, void *arg, struct err *e)
{
    return index_cache_each(&x->cache, fn, arg, e);
}

/* ---- walking ---------------------------------------------------------------------------------------------------- */

/*
 * Each entry is from another table than the last one, and with hundreds of tables the pages that all need do not fit
 * into the budget: entries are decoded several at a time then, so that the pages are needed once for all of them.
 */
#define AHEAD_TABLES 16 /* from as many on; */
#define AHEAD_BYTES ((size_t)8 << 20)
#define AHEAD_MAX 256 /* of one table */
struct decoded {
    struct index_entry x;
    uint8_t key[1 + sizeof((struct content_id){0}).hash];
};

/* Where the walk is in one table. */
struct cursor {
    struct index_map *m;
    uint64_t i, end;
    uint64_t front; /* of the key, as a number: nearly always decides */
    const uint8_t *key;
    struct decoded *ahead; /* entries from `from` on, n_ahead of them; NULL: none are decoded ahead */
    uint64_t from;
    unsigned n_ahead;
};

static int cursor_cmp(const struct cursor *a, const struct cursor *b)
{
    if (a->front != b->front)
        return a->front < b->front ? -1 : 1;
    unsigned la = a->m->t.key_len, lb = b->m->t.key_len;
    int r = memcmp(a->key, b->key, la < lb ? la : lb);
    return r ? r : (la > lb) - (la < lb);
}

/* A heap of cursors, the smallest key on top. */
struct walk {
    struct index_set *x;
    const struct view *v;
    struct cursor *c;
    size_t n;
    struct decoded *ahead; /* of all cursors, */
    unsigned each;         /* so many of each; NULL, 0: none */
};

static int entry_decode(struct walk *w, const struct cursor *c, uint64_t i, struct index_entry *ret, struct err *e)
{
    struct index_trace tr;
    tr.n = 0;
    int r = index_entry_at_traced(&c->m->t, i, ret, &tr, e);
    touch_trace(w->x, c->m, &tr);
    return r < 0 ? err_wrap(e, "index blob %s", c->m->name) : 0;
}

static int decode_ahead(struct walk *w, struct cursor *c, struct err *e)
{
    const uint64_t left = c->end - c->i;
    c->from = c->i;
    c->n_ahead = left < w->each ? (unsigned)left : w->each;
    for (unsigned k = 0; k < c->n_ahead; k++) {
        const uint8_t *key = index_key_at(&c->m->t, c->i + k);
        page_touched(w->x, c->m, key);
        memcpy(c->ahead[k].key, key, c->m->t.key_len);
        int r = entry_decode(w, c, c->i + k, &c->ahead[k].x, e);
        if (r < 0)
            return r;
    }
    return 0;
}

/* The key of entry c->i. */
static int set_key(struct walk *w, struct cursor *c, struct err *e)
{
    uint8_t front[8] = {0};
    if (c->ahead) {
        int r = c->i - c->from < c->n_ahead ? 0 : decode_ahead(w, c, e);
        if (r < 0)
            return r;
        c->key = c->ahead[c->i - c->from].key;
    } else {
        c->key = index_key_at(&c->m->t, c->i);
        page_touched(w->x, c->m, c->key);
    }
    memcpy(front, c->key, c->m->t.key_len < sizeof front ? c->m->t.key_len : sizeof front);
    c->front = get_be64(front);
    return 0;
}

static void sift_down(struct walk *w, size_t i)
{
    struct cursor c = w->c[i];
    for (size_t k; (k = 2 * i + 1) < w->n; i = k) {
        if (k + 1 < w->n && cursor_cmp(&w->c[k + 1], &w->c[k]) < 0)
            k++;
        if (cursor_cmp(&c, &w->c[k]) <= 0)
            break;
        w->c[i] = w->c[k];
    }
    w->c[i] = c;
}

/* Moves the top cursor to its next entry. */
static int cursor_advance(struct walk *w, struct err *e)
{
    struct cursor *c = &w->c[0];
    if (++c->i == c->end) {
        w->c[0] = w->c[--w->n];
    } else {
        uint8_t before[sizeof((struct decoded){0}).key];
        memcpy(before, c->key, c->m->t.key_len);
        int r = set_key(w, c, e);
        if (r < 0)
            return r;
        /* Unsorted keys would silently break the merge. */
        if (memcmp(c->key, before, c->m->t.key_len) < 0)
            return err_set(e, ERR_DAMAGE, EBADMSG, "index blob %s is damaged: keys not sorted", c->m->name);
    }
    if (w->n)
        sift_down(w, 0);
    return 0;
}

static int decode_top(struct walk *w, struct index_entry *ret, struct err *e)
{
    const struct cursor *c = &w->c[0];
    if (!c->ahead)
        return entry_decode(w, c, c->i, ret, e);
    *ret = c->ahead[c->i - c->from].x;
    return 0;
}

/* The winner among all entries with the smallest key left; moves behind them. `loser` (NULL: not needed) is called for
 * each of the others. */
static int next_winner(struct walk *w, struct index_entry *ret, index_all_fn *loser, void *arg, struct err *e)
{
    struct index_entry other;
    int r = decode_top(w, ret, e);
    if (r == 0)
        r = cursor_advance(w, e);
    while (r == 0 && w->n) {
        const struct cursor *c = &w->c[0];
        if (c->m->t.key_len != ret->id.len + 1u || c->key[0] != (uint8_t)ret->id.prefix ||
            memcmp(c->key + 1, ret->id.hash, ret->id.len) != 0)
            break;
        r = decode_top(w, &other, e);
        if (r == 0 && index_entry_wins(&other, ret)) {
            const struct index_entry t = *ret;
            *ret = other;
            other = t;
        }
        if (r == 0 && loser)
            r = loser(&other, INDEX_LOSER, arg);
        if (r == 0)
            r = cursor_advance(w, e);
    }
    return r;
}

static void walk_clear(struct walk *w)
{
    free(w->c);
    free(w->ahead);
}

static int walk_alloc(struct walk *w, struct err *e)
{
    const size_t n = w->v->n;
    w->c = calloc(n + 1, sizeof *w->c);
    if (!w->c)
        return err_nomem(e);
    if (n < AHEAD_TABLES)
        return 0;
    const size_t each = AHEAD_BYTES / sizeof *w->ahead / n;
    w->each = each > AHEAD_MAX ? AHEAD_MAX : each < 2 ? 2 : (unsigned)each;
    w->ahead = malloc(n * w->each * sizeof *w->ahead);
    return w->ahead ? 0 : err_nomem(e);
}

/* Entries with a prefix; -1: all. walk_clear() in any case. */
static int walk_start(struct walk *w, int prefix, struct err *e)
{
    int r = walk_alloc(w, e);
    for (size_t i = 0; r == 0 && i < w->v->n; i++) {
        struct cursor c = {.m = w->v->map[i], .end = w->v->map[i]->t.count};
        if (prefix > 0)
            c.i = index_lower_bound(&c.m->t, &(struct content_id){.prefix = (char)prefix});
        if (prefix >= 0)
            c.end = index_lower_bound(&c.m->t, &(struct content_id){.prefix = (char)(prefix + 1)});
        if (c.i >= c.end)
            continue;
        c.ahead = w->ahead ? w->ahead + w->n * w->each : NULL;
        r = set_key(w, &c, e);
        w->c[w->n++] = c;
    }
    for (size_t i = w->n / 2; r == 0 && i-- > 0;)
        sift_down(w, i);
    return r;
}

static int walk_view(struct walk *w, index_set_fn *fn, void *arg, struct err *e)
{
    struct index_entry x;
    while (w->n) {
        int r = next_winner(w, &x, NULL, NULL, e);
        if (r < 0)
            return r;
        if (entry_hidden(w->v, &x))
            continue;
        r = fn(&x, arg);
        if (r)
            return r;
    }
    return 0;
}

int index_set_each(struct index_set *x, int prefix, index_set_fn *fn, void *arg, struct err *e)
{
    struct view *v = view_get(x);
    CLEANUP(walk_clear) struct walk w = {.x = x, .v = v};
    int r = walk_start(&w, prefix, e);
    if (r == 0)
        r = walk_view(&w, fn, arg, e);
    view_put(x, v);
    return r;
}

static int walk_all(struct walk *w, bool losers, index_all_fn *fn, void *arg, struct err *e)
{
    struct index_entry x;
    while (w->n) {
        int r = next_winner(w, &x, losers ? fn : NULL, arg, e);
        if (r == 0)
            r = fn(&x, entry_hidden(w->v, &x) ? INDEX_HIDDEN : INDEX_WINNER, arg);
        if (r)
            return r;
    }
    return 0;
}

static int each_in_view(struct index_set *x, const struct view *v, bool losers, index_all_fn *fn, void *arg,
                        struct err *e)
{
    CLEANUP(walk_clear) struct walk w = {.x = x, .v = v};
    int r = walk_start(&w, -1, e);
    return r < 0 ? r : walk_all(&w, losers, fn, arg, e);
}

int index_set_each_all(struct index_set *x, index_all_fn *fn, void *arg, struct err *e)
{
    struct view *v = view_get(x);
    int r = each_in_view(x, v, true, fn, arg, e);
    view_put(x, v);
    return r;
}

int index_set_merge(struct index_set *x, const struct blob_info *blobs, size_t n, index_all_fn *fn, void *arg,
                    struct err *e)
{
    const struct epoch_state st = {.watermark = INT64_MIN, .blobs = (struct blob_info *)(uintptr_t)blobs, .n_blobs = n};
    struct view *v = view_new(n);
    if (!v)
        return err_nomem(e);
    pthread_mutex_lock(&x->refresh);
    int r = build_view(x, &st, v, NULL, e);
    pthread_mutex_unlock(&x->refresh);
    if (r == 0)
        r = each_in_view(x, v, false, fn, arg, e);
    view_put(x, v);
    return r;
}

int index_set_check_blob(struct index_set *x, const struct blob_info *blob, struct err *e)
{
    bool ignored;
    return index_cache_check(&x->cache, blob, &ignored, e);
}
