/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fetch.c - windows of contents, sorted by pack, read by workers that hash several at once */
#include "daemon/mover/fetch.h"

#include "daemon/mover/fetch-ahead.h"

#include "base/time.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define WINDOWS 3             /* one is being filled, the others are worked on */
#define WINDOW 1024           /* items sorted together */
#define WINDOW_AHEAD 2730     /* likewise, where reads wait for a network: 3 MB of memory for all */
#define RUN_ITEMS 64          /* items that one worker takes at a time, at most */
#define RUN_BYTES (16u << 20) /* and bytes */
#define BATCH_MAX 16
#define AHEAD_FEW 3   /* reads of a worker, before their number is reduced */
#define AHEAD_READS 5 /* of a worker: one is worked off, four are under way */

struct window {
    size_t n;     /* items in it */
    size_t taken; /* handed to workers */
    size_t ended; /* worked off */
    struct fetch_item items[];
};

struct fetcher {
    struct repo *repo;
    const struct hasher *hasher;
    struct fetch_sink sink;
    struct mover_cancel *cancel;
    unsigned batch_len, ahead;
    size_t window;    /* items */
    size_t run_items; /* that one worker takes at a time, at most */
    uint64_t run_bytes;
    uint64_t read_bytes; /* of one read ahead */
    pthread_mutex_t odd; /* held by the worker that has an item longer than usual */
    pthread_mutex_t lock;
    pthread_cond_t work;               /* a window is ready, a flush was requested, or the end */
    pthread_cond_t idle;               /* a run ended or a worker flushed */
    struct window *all[WINDOWS];       /* each of them is the one being filled, or: */
    struct window *ready[WINDOWS - 1]; /* with the workers, in the order in which they were handed over */
    struct window *spare[WINDOWS - 1]; /* empty */
    struct window *filling;
    unsigned n_ready, n_spare;
    uint64_t handed, ended; /* windows; those that have ended, and all before them */
    bool stop;
    _Atomic unsigned flush_wanted; /* generation */
    unsigned flushed;              /* workers that have reached it */
    int rc;                        /* first error */
    struct err err;
    struct fetch_stats stats;
    unsigned n_workers, started;
    struct fetch_worker {
        struct fetcher *f;
        pthread_t thread;
        unsigned number, flush_seen;
        struct content_reader *reader;
        struct compressor *compressor;
        uint8_t *group;            /* FETCH_GROUP_BYTES of sealed neighbours */
        struct fetch_ahead *ahead; /* instead of it; NULL: nothing is read ahead */
        bool run_begun;            /* the run is known there */
        uint8_t *payload;          /* of a 'Z' object */
        size_t payload_cap;
        void *state;
        bool has_state;
        const struct fetch_item *item;
        size_t left;  /* items of its run, from `item` on */
        bool checked; /* each item of the run: whether it is held */
        struct fetch_run {
            const struct fetch_item *item;
            size_t n; /* items */
            bool checked;
        } following[FETCH_AHEAD_MAX]; /* its next runs, which are being read ahead already */
        unsigned n_following;
        size_t in_group;       /* of them are neighbours: */
        const uint8_t *sealed; /* their bytes from group_from of the pack on, NULL: each is read apart */
        uint64_t group_from;
        unsigned window;       /* of its run, in fetcher.all */
        size_t ended[WINDOWS]; /* items worked off and not counted in their windows yet */
        struct lane {
            struct hash_job job;           /* first: returned by the hasher */
            const struct fetch_item *item; /* NULL: free */
            uint8_t *buf;
            bool held; /* buf has the present data of the target */
        } lanes[BATCH_MAX];
        /* The present data had another hash: to be fetched, into the same buffer. */
        struct {
            const struct fetch_item *item;
            uint8_t *buf;
        } other[BATCH_MAX];
        unsigned n_other;
        bool alone; /* an item longer than usual is in a lane: no other beside it */
        bool odd;   /* holds the fetcher's lock of that name */
        int rc;     /* first error, its message in err */
        struct err err;
        double not_hashing_s;
        struct fetch_stats stats;
        struct content_times times;
    } worker[];
};

static double seconds_since(double *from)
{
    const double now = mono_s(), s = now - *from;
    *from = now;
    return s;
}

unsigned fetch_batch(struct repo *r, unsigned buffers)
{
    unsigned batch = hasher_lanes(sealer_hasher(repo_sealer(r)));
    if (batch > BATCH_MAX)
        batch = BATCH_MAX;
    if (batch > buffers)
        batch = buffers;
    return batch ? batch : 1;
}

static bool canceled(const struct fetcher *f)
{
    return f->cancel && atomic_load_explicit(&f->cancel->requested, memory_order_relaxed);
}

/* ---- windows ---- */

/* The window of an item, which stays what it is until all of its items have ended. */
static unsigned window_of(const struct fetcher *f, const struct fetch_item *it)
{
    unsigned i = 0;
    while (i + 1 < WINDOWS && (it < f->all[i]->items || it >= f->all[i]->items + f->window))
        i++;
    return i;
}

/* The first window that has items for a worker; NULL: none has. Called with the lock held. */
static struct window *window_next(const struct fetcher *f)
{
    for (unsigned i = 0; i < f->n_ready; i++)
        if (f->ready[i]->taken < f->ready[i]->n)
            return f->ready[i];
    return NULL;
}

/* Counts the items that the worker has worked off. Called with the lock held. */
static void count_ended(struct fetch_worker *w)
{
    struct fetcher *f = w->f;
    for (unsigned i = 0; i < WINDOWS; i++) {
        f->all[i]->ended += w->ended[i];
        w->ended[i] = 0;
    }
    while (f->n_ready > 0 && f->ready[0]->ended == f->ready[0]->n) {
        struct window *v = f->ready[0];
        v->n = v->taken = v->ended = 0;
        f->spare[f->n_spare++] = v;
        f->n_ready--;
        memmove(&f->ready[0], &f->ready[1], f->n_ready * sizeof(struct window *));
        f->ended++;
    }
    pthread_cond_broadcast(&f->idle);
}

static void item_ended(struct fetch_worker *w, const struct fetch_item *it)
{
    const unsigned i = window_of(w->f, it);
    w->ended[i]++;
    if (i == w->window)
        return;
    /* One of the last of a window that others may be waiting for: the worker has begun the next one. */
    pthread_mutex_lock(&w->f->lock);
    count_ended(w);
    pthread_mutex_unlock(&w->f->lock);
}

/* ---- items ---- */

/* The sink decides whether a failed item ends the run. */
static int item_failed(struct fetch_worker *w, const struct fetch_item *it, uint8_t *buf, struct err *e)
{
    return w->f->sink.failed(w->state, it, buf, e);
}

static void keep_error(struct fetch_worker *w, int rc, const struct err *e)
{
    if (rc >= 0 || w->rc < 0)
        return;
    w->rc = rc;
    w->err = *e;
}

static int item_opened(struct fetch_worker *w, const struct fetch_item *it, uint8_t *buf, struct err *e)
{
    w->stats.contents++;
    w->stats.bytes += it->len;
    w->stats.packed_bytes += it->entry.packed;
    return w->f->sink.done(w->state, it, buf, e);
}

static bool is_odd(const struct fetcher *f, const struct fetch_item *it)
{
    const size_t usual = f->sink.usual_len;
    return it->len > usual || it->entry.length > usual ||
           it->entry.packed > item_sealed_len(repo_sealer(f->repo), usual) + usual / 64;
}

/* Items longer than usual are worked on one at a time: memory for one is all there may be. */
static void odd_begin(struct fetch_worker *w, const struct fetch_item *it)
{
    if (w->odd || !is_odd(w->f, it))
        return;
    double t = mono_s();
    pthread_mutex_lock(&w->f->odd);
    w->stats.idle_s += seconds_since(&t);
    w->odd = true;
}

static void odd_end(struct fetch_worker *w)
{
    if (!w->odd)
        return;
    content_reader_trim(w->reader);
    if (w->payload_cap > w->f->sink.usual_len) {
        repo_release(w->f->repo, w->payload_cap);
        free(w->payload);
        w->payload = NULL;
        w->payload_cap = 0;
    }
    w->odd = false;
    pthread_mutex_unlock(&w->f->odd);
}

static void job_done(void *arg, struct hash_job *job)
{
    struct fetch_worker *w = arg;
    struct lane *l = (struct lane *)job;
    const struct fetch_item *it = l->item;
    struct err e = ERR_INIT;
    double t = mono_s();
    l->item = NULL;
    int rc;
    bool right = !memcmp(job->out, it->entry.id.hash, it->entry.id.len);
    if (l->held && !right) {
        w->other[w->n_other].item = it;
        w->other[w->n_other++].buf = l->buf;
        return;
    }
    if (l->held) {
        rc = w->f->sink.kept(w->state, it, l->buf, &e);
    } else if (right) {
        rc = item_opened(w, it, l->buf, &e);
    } else {
        char id[CONTENT_ID_TEXT];
        err_set(&e, ERR_DAMAGE, EBADMSG, "content %s in pack %s: hash mismatch after decryption",
                content_id_text(&it->entry.id, id), it->entry.pack);
        rc = item_failed(w, it, l->buf, &e);
    }
    item_ended(w, it);
    odd_end(w);
    keep_error(w, rc, &e);
    double s = seconds_since(&t);
    w->stats.sink_s += s;
    w->not_hashing_s += s;
}

/* 'Z' objects of old repositories: the content is small enough to be read separately, checked, and expanded. */
static int read_compressed(struct fetch_worker *w, const struct fetch_item *it, const void *stored, uint8_t *buf,
                           struct err *e)
{
    if (w->payload_cap < it->entry.length) {
        repo_release(w->f->repo, w->payload_cap);
        free(w->payload);
        w->payload = NULL;
        w->payload_cap = 0;
        int rc = repo_hold(w->f->repo, it->entry.length, e);
        if (rc < 0)
            return rc;
        w->payload = malloc(it->entry.length);
        if (!w->payload) {
            repo_release(w->f->repo, it->entry.length);
            return err_nomem(e);
        }
        w->payload_cap = it->entry.length;
    }
    int64_t n = content_read_entry(w->reader, &it->entry, stored, w->payload, w->payload_cap, true, e);
    if (n < 0)
        return (int)n;
    double t = mono_s();
    int rc = compressor_expand(w->compressor, 0, w->payload, (size_t)n, buf, it->len, e);
    w->stats.expand_s += seconds_since(&t);
    return rc;
}

static struct lane *take_lane(struct fetch_worker *w, const struct fetch_item *it, uint8_t *buf, bool held)
{
    struct lane *l = w->lanes;
    while (l->item)
        l++;
    *l = (struct lane){.job = {.data = buf, .len = it->len}, .item = it, .buf = buf, .held = held};
    return l;
}

/* Reads and opens an item into a lane; without one if it needs no hash, or failed and the sink ignores that. */
static int read_item(struct fetch_worker *w, const struct fetch_item *it, const void *stored, uint8_t *buf,
                     struct lane **ret, struct err *e)
{
    int64_t n;
    if (it->compressed) {
        n = read_compressed(w, it, stored, buf, e);
    } else if (it->entry.length != it->len) {
        char id[CONTENT_ID_TEXT];
        n = err_set(e, ERR_DAMAGE, EBADMSG, "content %s has %u bytes, the object's part at %llu has %llu",
                    content_id_text(&it->entry.id, id), it->entry.length, (unsigned long long)it->pos,
                    (unsigned long long)it->len);
    } else {
        n = content_read_entry(w->reader, &it->entry, stored, buf, it->len, false, e);
    }
    w->times = *content_reader_times(w->reader);
    if (n < 0)
        return item_failed(w, it, buf, e);
    if (it->compressed)
        return item_opened(w, it, buf, e);
    *ret = take_lane(w, it, buf, false);
    return 0;
}

static int take_buffer(struct fetch_worker *w, const struct fetch_item *it, uint8_t **buf, struct err *e)
{
    double t = mono_s();
    int rc = w->f->sink.buffer(w->state, it, buf, e);
    w->stats.sink_s += seconds_since(&t);
    return rc;
}

/* Whether the target may hold the item. */
static bool is_checked(const struct fetcher *f, const struct fetch_item *it)
{
    const struct fetch_sink *s = &f->sink;
    return s->held && (!s->may_hold || s->may_hold(s->arg, it));
}

/* An equal share of the rest, so that the workers finish together; but not less than one read of small neighbours, or
 * than the lanes of the hash where there are none. */
static bool run_is_shared(const struct fetcher *f, size_t share, size_t n, uint64_t bytes)
{
    return f->ahead ? n >= share && bytes >= f->read_bytes : n >= share + f->batch_len;
}

/* Takes a run of a window: a few items, more while they are small; all of them are checked, or none. Returns how many
 * they are, 0: there are none. Called with the lock held. */
static size_t take_run(struct fetcher *f, const struct fetch_item **first)
{
    struct window *v = window_next(f);
    size_t n = 0;
    uint64_t bytes = 0;
    if (!v)
        return 0;
    *first = v->items + v->taken;
    const size_t share = (v->n - v->taken) / (2 * f->n_workers) + 1;
    while (v->taken + n < v->n && n < f->run_items && !run_is_shared(f, share, n, bytes) &&
           (n == 0 || bytes < f->run_bytes || n < f->batch_len) &&
           (n == 0 || is_checked(f, &v->items[v->taken + n]) == is_checked(f, &v->items[v->taken])))
        bytes += v->items[v->taken + n++].entry.packed;
    v->taken += n;
    return n;
}

/* All of its run is read or being read: the next one, or the network would be idle until the last of this one is worked
 * off. False: there is none. */
static bool run_follow(struct fetch_worker *w)
{
    struct fetcher *f = w->f;
    struct fetch_run *r = &w->following[w->n_following];
    r->n = 0;
    pthread_mutex_lock(&f->lock);
    if (!f->stop && f->rc >= 0)
        r->n = take_run(f, &r->item);
    pthread_mutex_unlock(&f->lock);
    if (r->n == 0)
        return false;
    w->n_following++;
    if (!(r->checked = is_checked(f, r->item)))
        fetch_ahead_follow(w->ahead, r->item, r->n);
    return true;
}

static bool may_follow(const struct fetch_worker *w)
{
    const unsigned n = w->n_following;
    return n < FETCH_AHEAD_MAX && (n == 0 || !w->following[n - 1].checked) && fetch_ahead_wants(w->ahead);
}

/* Adjacent items are read with one request. If it fails it is repeated item by item, so that the error names the
 * right one. The storage may start to read what follows. */
static void group_begin(struct fetch_worker *w)
{
    struct fetcher *f = w->f;
    uint64_t to;
    w->sealed = NULL;
    w->stats.runs++;
    if (w->ahead) {
        double since = mono_s();
        if (!w->run_begun)
            fetch_ahead_begin(w->ahead, w->item, w->left);
        w->run_begun = true;
        fetch_ahead_done(w->ahead);
        while (may_follow(w) && run_follow(w))
            ;
        w->in_group = fetch_ahead_next(w->ahead, &w->sealed, &w->group_from);
        w->stats.read_s += seconds_since(&since);
        return;
    }
    w->in_group = fetch_group(w->item, w->left, FETCH_GROUP_BYTES, FETCH_GROUP_GAP, &w->group_from, &to);
    content_reader_ahead(w->reader, &w->item->entry);
    if (w->left > w->in_group)
        content_reader_ahead(w->reader, &w->item[w->in_group].entry);
    if (w->in_group == 1)
        return;
    double t = mono_s();
    struct err ignored = ERR_INIT;
    if (blobs_read(repo_blobs(f->repo), w->item->entry.pack, w->group_from, w->group, (size_t)(to - w->group_from),
                   &ignored) >= 0)
        w->sealed = w->group;
    w->stats.read_s += seconds_since(&t);
}

/* Where data may be present already each item is checked individually: *ret, if there is something to compare. */
static int next_held(struct fetch_worker *w, struct lane **ret, struct err *e)
{
    const struct fetch_sink *sink = &w->f->sink;
    const struct fetch_item *it = w->item++;
    uint8_t *buf = NULL;
    w->left--;
    if (w->left && sink->expect)
        sink->expect(w->state, w->item);
    odd_begin(w, it);
    int rc = take_buffer(w, it, &buf, e);
    if (rc < 0)
        return rc;
    double t = mono_s();
    int held = it->compressed || it->entry.length != it->len ? 0 : sink->held(w->state, it, buf, e);
    w->stats.sink_s += seconds_since(&t);
    if (held < 0)
        return held;
    if (held) {
        *ret = take_lane(w, it, buf, true);
        return 0;
    }
    w->stats.runs++;
    return read_item(w, it, NULL, buf, ret, e);
}

/* The next item of the run; *ret: its lane, if it has one. */
static int next_item(struct fetch_worker *w, struct lane **ret, struct err *e)
{
    int rc;
    if (canceled(w->f))
        return err_set(e, ERR_INTERRUPTED, ECANCELED, "interrupted");
    const struct fetch_item *it = w->n_other ? w->other[w->n_other - 1].item : w->item;
    if (w->n_other) {
        w->n_other--;
        w->stats.runs++;
        rc = read_item(w, it, NULL, w->other[w->n_other].buf, ret, e);
    } else if (w->checked) {
        rc = next_held(w, ret, e);
    } else {
        if (!w->in_group)
            group_begin(w);
        uint8_t *buf = NULL;
        w->item++;
        w->left--;
        w->in_group--;
        odd_begin(w, it);
        rc = take_buffer(w, it, &buf, e);
        if (rc >= 0)
            rc = read_item(w, it, w->sealed ? w->sealed + (it->entry.offset - w->group_from) : NULL, buf, ret, e);
    }
    if (!*ret) {
        item_ended(w, it);
        odd_end(w);
    }
    return rc;
}

static void remember_error(struct fetcher *f, int rc, const struct err *e)
{
    if (f->rc < 0)
        return;
    f->rc = rc;
    f->err = *e;
}

static bool run_available(struct fetch_worker *w)
{
    struct fetcher *f = w->f;
    pthread_mutex_lock(&f->lock);
    count_ended(w);
    if (f->stop || f->rc < 0) {
        /* What follows is dropped with the rest. */
    } else if (w->n_following > 0) {
        const struct fetch_run r = w->following[0];
        memmove(&w->following[0], &w->following[1], --w->n_following * sizeof r);
        w->item = r.item;
        w->left = r.n;
        w->checked = r.checked;
        w->run_begun = !w->checked;
    } else if ((w->left = take_run(f, &w->item)) > 0) {
        w->checked = is_checked(f, w->item);
        w->in_group = 0;
        w->run_begun = false;
    }
    if (w->left > 0)
        w->window = window_of(f, w->item);
    pthread_mutex_unlock(&f->lock);
    return w->left > 0;
}

/* Whether there is memory for the next item beside those in `active` lanes. */
static bool has_room(struct fetch_worker *w, unsigned active)
{
    if (w->n_other > 0) /* has its buffer */
        return true;
    bool odd = is_odd(w->f, w->item);
    if (active > 0 && (odd || w->alone))
        return false;
    w->alone = odd;
    return true;
}

/* Called without the lock. */
static void worker_flush(struct fetch_worker *w)
{
    struct fetcher *f = w->f;
    struct err e = ERR_INIT;
    const unsigned wanted = atomic_load(&f->flush_wanted); /* one at a time */
    const int rc = w->has_state && f->sink.flush ? f->sink.flush(w->state, &e) : 0;
    pthread_mutex_lock(&f->lock);
    if (rc < 0)
        remember_error(f, rc, &e);
    w->flush_seen = wanted;
    f->flushed++;
    pthread_cond_broadcast(&f->idle);
    pthread_mutex_unlock(&f->lock);
}

static struct hash_job *next_job(void *arg, unsigned active)
{
    struct fetch_worker *w = arg;
    double t = mono_s();
    if (w->flush_seen != atomic_load(&w->f->flush_wanted)) {
        worker_flush(w);
        w->stats.sink_s += seconds_since(&t);
    }
    if (active >= w->f->batch_len) /* the sink has no more buffers */
        return NULL;
    struct lane *l = NULL;
    struct err e = ERR_INIT;
    while (!l && w->rc >= 0 && (w->n_other > 0 || w->left > 0 || run_available(w)) && has_room(w, active))
        keep_error(w, next_item(w, &l, &e), &e);
    w->not_hashing_s += seconds_since(&t);
    return l ? &l->job : NULL;
}

/* Called with the lock held. */
static void run_forget(struct fetch_worker *w)
{
    if (w->left)
        w->ended[window_of(w->f, w->item)] += w->left;
    for (unsigned i = 0; i < w->n_following; i++)
        w->ended[window_of(w->f, w->following[i].item)] += w->following[i].n;
    for (unsigned i = 0; i < w->n_other; i++)
        w->ended[window_of(w->f, w->other[i].item)]++;
    w->left = 0;
    w->n_following = w->n_other = 0;
}

/* Processes runs while there are any. Called with the lock held. */
static void worker_run(struct fetch_worker *w)
{
    struct fetcher *f = w->f;
    const struct hash_feed feed = {.next = next_job, .done = job_done, .arg = w};
    if (f->rc < 0) {
        /* After an error the remaining items count as completed. */
        const struct fetch_item *it = NULL;
        const size_t n = take_run(f, &it);
        w->ended[window_of(f, it)] += n;
    } else {
        pthread_mutex_unlock(&f->lock);
        double t = mono_s();
        w->not_hashing_s = 0;
        /* Once more for the item that waited to be alone, if the hasher has not requested it. */
        do
            hasher_run(f->hasher, &feed);
        while (w->rc >= 0 && (w->left > 0 || w->n_other > 0));
        w->stats.hash_s += seconds_since(&t) - w->not_hashing_s;
        pthread_mutex_lock(&f->lock);
        if (w->rc < 0)
            remember_error(f, w->rc, &w->err);
        w->rc = 0;
        if ((w->left || w->n_following) && w->ahead)
            fetch_ahead_drop(w->ahead);
        run_forget(w); /* only after an error is something left */
        odd_end(w);
    }
    count_ended(w);
}

static void *worker_main(void *arg)
{
    struct fetch_worker *w = arg;
    struct fetcher *f = w->f;
    struct err e = ERR_INIT;
    int rc = content_reader_new(&w->reader, f->repo, &e);
    if (rc >= 0)
        rc = compressor_new(&w->compressor, &e);
    if (rc >= 0 && f->ahead)
        rc = fetch_ahead_new(&w->ahead, repo_blobs(f->repo), f->ahead, fetch_ahead_bytes(f->repo, f->sink.usual_len),
                             FETCH_GROUP_GAP, &e);
    else if (rc >= 0 && !(w->group = malloc(FETCH_GROUP_BYTES)))
        rc = err_nomem(&e);
    if (rc >= 0)
        rc = f->sink.start(f->sink.arg, w->number, &w->state, &e);
    w->has_state = rc >= 0;
    pthread_mutex_lock(&f->lock);
    if (rc < 0)
        remember_error(f, rc, &e);
    while (!f->stop) {
        if (window_next(f)) {
            worker_run(w);
        } else if (w->flush_seen != atomic_load(&f->flush_wanted)) {
            pthread_mutex_unlock(&f->lock);
            worker_flush(w);
            pthread_mutex_lock(&f->lock);
        } else {
            double t = mono_s();
            pthread_cond_wait(&f->work, &f->lock);
            w->stats.idle_s += seconds_since(&t);
        }
    }
    pthread_mutex_unlock(&f->lock);
    if (w->has_state)
        f->sink.end(w->state);
    content_reader_free(w->reader);
    compressor_free(w->compressor);
    free(w->group);
    fetch_ahead_free(w->ahead);
    repo_release(f->repo, w->payload_cap);
    free(w->payload);
    return NULL;
}

uint64_t fetch_ahead_bytes(struct repo *r, uint64_t usual_len)
{
    const uint64_t n = item_sealed_len(repo_sealer(r), usual_len) + usual_len / 64;
    return n > FETCH_AHEAD_BYTES ? n : FETCH_AHEAD_BYTES;
}

unsigned fetch_ahead_plan(struct repo *r, uint64_t usual_len, uint64_t memory, uint64_t least, unsigned *workers)
{
    const uint64_t bytes = fetch_ahead_bytes(r, usual_len);
    if (blobs_are_files(repo_blobs(r)))
        return 0;
    for (;; --*workers) {
        const uint64_t each = memory / *workers, n = each > least ? (each - least) / bytes : 0;
        if (n >= AHEAD_FEW || *workers == 1)
            return n < AHEAD_READS ? (unsigned)n : AHEAD_READS;
    }
}

int fetcher_new(struct fetcher **ret, struct repo *r, const struct fetch_plan *p, const struct fetch_sink *sink,
                struct mover_cancel *cancel, struct err *e)
{
    const unsigned workers = p->workers;
    struct fetcher *f = calloc(1, sizeof *f + workers * sizeof f->worker[0]);
    if (!f)
        return err_nomem(e);
    f->repo = r;
    f->hasher = sealer_hasher(repo_sealer(r));
    f->sink = *sink;
    f->cancel = cancel;
    f->batch_len = p->batch;
    f->ahead = p->ahead;
    f->window = WINDOW;
    f->run_items = RUN_ITEMS;
    f->run_bytes = RUN_BYTES;
    if (f->ahead) { /* as much as is read ahead: the next run follows while the last of it is worked off */
        f->window = f->run_items = WINDOW_AHEAD;
        f->read_bytes = fetch_ahead_bytes(r, sink->usual_len);
        f->run_bytes = f->ahead * f->read_bytes;
    }
    f->n_workers = workers;
    pthread_mutex_init(&f->lock, NULL);
    pthread_mutex_init(&f->odd, NULL);
    pthread_cond_init(&f->work, NULL);
    pthread_cond_init(&f->idle, NULL);
    int rc = 0;
    for (unsigned i = 0; i < WINDOWS && rc == 0; i++)
        if (!(f->all[i] = calloc(1, sizeof *f->all[i] + f->window * sizeof f->all[i]->items[0])))
            rc = err_nomem(e);
    f->filling = f->all[0];
    for (unsigned i = 1; i < WINDOWS; i++)
        f->spare[f->n_spare++] = f->all[i];
    for (; rc >= 0 && f->started < workers; f->started++) {
        struct fetch_worker *w = &f->worker[f->started];
        w->f = f;
        w->number = f->started;
        if ((rc = fetch_thread(&w->thread, worker_main, w, "a worker thread", e)) < 0)
            break;
    }
    if (rc < 0) {
        fetcher_free(f);
        return rc;
    }
    *ret = f;
    return 0;
}

void fetcher_free(struct fetcher *f)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    f->stop = true;
    pthread_cond_broadcast(&f->work);
    pthread_mutex_unlock(&f->lock);
    for (unsigned i = 0; i < f->started; i++)
        pthread_join(f->worker[i].thread, NULL);
    for (unsigned i = 0; i < WINDOWS; i++)
        free(f->all[i]);
    pthread_cond_destroy(&f->work);
    pthread_cond_destroy(&f->idle);
    pthread_mutex_destroy(&f->lock);
    pthread_mutex_destroy(&f->odd);
    free(f);
}

static int compare_place(const void *pa, const void *pb)
{
    const struct fetch_item *a = pa, *b = pb;
    int c = strcmp(a->entry.pack, b->entry.pack);
    if (c)
        return c;
    if (a->entry.offset != b->entry.offset)
        return a->entry.offset < b->entry.offset ? -1 : 1;
    return a->pos < b->pos ? -1 : a->pos > b->pos;
}

/* Hands the filled window over when there is an empty one. Called with the lock held. */
static void window_hand_over(struct fetcher *f)
{
    while (f->n_spare == 0 && f->rc >= 0)
        pthread_cond_wait(&f->idle, &f->lock);
    if (f->rc < 0 || !f->filling->n)
        return;
    struct window *v = f->filling;
    pthread_mutex_unlock(&f->lock);
    qsort(v->items, v->n, sizeof v->items[0], compare_place);
    pthread_mutex_lock(&f->lock);
    f->ready[f->n_ready++] = v;
    f->filling = f->spare[--f->n_spare];
    f->handed++;
    pthread_cond_broadcast(&f->work);
}

static int error_report(struct fetcher *f, struct err *e)
{
    if (f->rc < 0 && e)
        *e = f->err;
    return f->rc;
}

int fetcher_add(struct fetcher *f, const struct fetch_item *it, struct err *e)
{
    f->filling->items[f->filling->n++] = *it;
    if (f->filling->n < f->window)
        return 0;
    pthread_mutex_lock(&f->lock);
    window_hand_over(f);
    if (f->rc < 0)
        f->filling->n = 0;
    int rc = error_report(f, e);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

/* Called with the lock held. */
static void flush_all(struct fetcher *f)
{
    f->flushed = 0;
    atomic_fetch_add(&f->flush_wanted, 1);
    pthread_cond_broadcast(&f->work);
    while (f->flushed < f->n_workers)
        pthread_cond_wait(&f->idle, &f->lock);
}

int fetcher_drain(struct fetcher *f, struct err *e)
{
    pthread_mutex_lock(&f->lock);
    window_hand_over(f);
    while (f->n_ready > 0)
        pthread_cond_wait(&f->idle, &f->lock);
    flush_all(f);
    int rc = error_report(f, e);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

int fetcher_mark(struct fetcher *f, uint64_t *mark, struct err *e)
{
    pthread_mutex_lock(&f->lock);
    window_hand_over(f);
    *mark = f->handed;
    int rc = error_report(f, e);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

int fetcher_reach(struct fetcher *f, uint64_t mark, struct err *e)
{
    pthread_mutex_lock(&f->lock);
    while (f->ended < mark && f->rc >= 0)
        pthread_cond_wait(&f->idle, &f->lock);
    if (f->rc >= 0)
        flush_all(f);
    int rc = error_report(f, e);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

void fetcher_stats(struct fetcher *f, struct fetch_stats *ret)
{
    *ret = (struct fetch_stats){0};
    for (unsigned i = 0; i < f->n_workers; i++) {
        const struct fetch_stats *s = &f->worker[i].stats;
        ret->contents += s->contents;
        ret->bytes += s->bytes;
        ret->packed_bytes += s->packed_bytes;
        ret->runs += s->runs;
        const struct content_times *t = &f->worker[i].times;
        ret->read_s += s->read_s + (double)t->read_ns * 1e-9;
        ret->open_s += (double)t->open_ns * 1e-9;
        ret->expand_s += s->expand_s + (double)t->expand_ns * 1e-9;
        ret->hash_s += s->hash_s;
        ret->sink_s += s->sink_s;
        ret->idle_s += s->idle_s;
    }
}

void fetch_stages(const struct fetch_stats *s, struct stage_time stages[FETCH_STAGES])
{
    stages[0] = (struct stage_time){"read", s->read_s, s->idle_s, s->packed_bytes};
    stages[1] = (struct stage_time){"decrypt", s->open_s, 0, s->packed_bytes};
    stages[2] = (struct stage_time){"decompress", s->expand_s, 0, s->expand_s > 0 ? s->bytes : 0};
    stages[3] = (struct stage_time){"hash", s->hash_s, 0, s->bytes};
}

const char *fetch_bottleneck(const struct stage_time *stages, unsigned n)
{
    const char *name = NULL;
    double most = 0;
    for (unsigned i = 0; i < n; i++) {
        /* Reading waits for the device while it is busy, writing is separate; the other stages wait for these two. */
        double took = stages[i].busy + (i < FETCH_STAGES ? 0 : stages[i].stalled);
        if (took > most) {
            most = took;
            name = stages[i].name;
        }
    }
    return name;
}
