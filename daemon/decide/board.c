/* SPDX-License-Identifier: GPL-2.0-or-later */
/* board.c - see board.h */
#include "daemon/decide/board.h"
#include "daemon/records/opaque.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096 /* a power of two */
#define TALLY_BUCKETS 64

/* How many movers run in one storage class or on one device. */
struct tally {
    struct tally *next;
    char *name;
    unsigned moving;
};

struct run;
struct lane;

struct entry {
    struct entry *next;
    struct run *run; /* NULL: it has no backup */
    struct lane *lane;
    struct tally *klass, *device;
    char *group; /* shared text; "": none */
    char *check; /* likewise: the operation whose answer it waits for */
    uint64_t seq, memory;
    int64_t priority, wake_ns;
    size_t marked, heap; /* place in these arrays + 1; 0: not there */
    bool restore, moving, coming, exposed, ready, snapshotting, phase_1, waiting;
    bool watched;
    char id[];
};

/* Entries in an order of their own. */
struct sorted {
    struct entry **v;
    size_t n, cap;
};

/* Queued operations that need one repository, and may go next. */
struct lane {
    struct lane *next;
    char *repository; /* shared text; "": they need none */
    bool restore;
    struct sorted queued;
};

struct run {
    struct run *next;
    struct board_run seen; /* first */
    struct sorted phase_1;
    size_t marked;
    bool gone; /* its backup is finished or was removed */
    char id[];
};

struct board {
    struct entry *ops[BUCKETS];
    struct run *runs[BUCKETS];
    struct tally *classes[TALLY_BUCKETS], *devices[TALLY_BUCKETS];
    struct lane *lanes;
    struct board_usage usage;
    struct sorted marked, heap, ready, waiting; /* marked: with holes */
    size_t marked_at;                           /* of `marked`: the next one to be taken */
    struct run **marked_runs;
    size_t n_marked_runs, cap_marked_runs, marked_runs_at;
    bool released; /* what was watched has ended, or failed for now */
};

static uint32_t hash(const char *s)
{
    uint32_t h = 2166136261u;
    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * 16777619u;
    return h;
}

struct board *board_new(void)
{
    return calloc(1, sizeof(struct board));
}

/* ---- arrays ---- */

static int sorted_room(struct sorted *s)
{
    if (s->n < s->cap)
        return 0;
    const size_t cap = s->cap ? 2 * s->cap : 16;
    struct entry **v = reallocarray(s->v, cap, sizeof *v);
    if (!v)
        return -ENOMEM;
    s->v = v;
    s->cap = cap;
    return 0;
}

typedef bool before_fn(const struct entry *a, const struct entry *b);

static bool entry_older(const struct entry *a, const struct entry *b)
{
    return a->seq < b->seq;
}

static bool goes_first(const struct entry *a, const struct entry *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->seq < b->seq;
}

/* How many of `s` come before `e`. */
static size_t sorted_rank(const struct sorted *s, const struct entry *e, before_fn *before)
{
    size_t low = 0, high = s->n;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (before(s->v[mid], e))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static int sorted_add(struct sorted *s, struct entry *e, before_fn *before)
{
    if (sorted_room(s) < 0)
        return -ENOMEM;
    const size_t at = sorted_rank(s, e, before);
    memmove(s->v + at + 1, s->v + at, (s->n - at) * sizeof *s->v);
    s->v[at] = e;
    s->n++;
    return 0;
}

static void sorted_remove(struct sorted *s, const struct entry *e, before_fn *before)
{
    const size_t at = sorted_rank(s, e, before);
    if (at < s->n && s->v[at] == e)
        memmove(s->v + at, s->v + at + 1, (--s->n - at) * sizeof *s->v);
}

/* ---- deadlines: a heap ---- */

static void heap_place(struct sorted *h, size_t at, struct entry *e)
{
    h->v[at] = e;
    e->heap = at + 1;
}

static void heap_up(struct sorted *h, size_t at)
{
    struct entry *e = h->v[at];
    for (; at > 0 && h->v[(at - 1) / 2]->wake_ns > e->wake_ns; at = (at - 1) / 2)
        heap_place(h, at, h->v[(at - 1) / 2]);
    heap_place(h, at, e);
}

static void heap_down(struct sorted *h, size_t at)
{
    struct entry *e = h->v[at];
    for (size_t child; (child = 2 * at + 1) < h->n; at = child) {
        if (child + 1 < h->n && h->v[child + 1]->wake_ns < h->v[child]->wake_ns)
            child++;
        if (h->v[child]->wake_ns >= e->wake_ns)
            break;
        heap_place(h, at, h->v[child]);
    }
    heap_place(h, at, e);
}

static void heap_remove(struct sorted *h, struct entry *e)
{
    if (!e->heap)
        return;
    const size_t at = e->heap - 1;
    struct entry *last = h->v[--h->n];
    e->heap = 0;
    if (last == e)
        return;
    heap_place(h, at, last);
    heap_up(h, at);
    heap_down(h, last->heap - 1);
}

static int heap_set(struct board *b, struct entry *e, int64_t wake_ns)
{
    if (e->wake_ns == wake_ns && (e->heap != 0) == (wake_ns != 0))
        return 0;
    heap_remove(&b->heap, e);
    e->wake_ns = wake_ns;
    if (!wake_ns)
        return 0;
    if (sorted_room(&b->heap) < 0)
        return -ENOMEM;
    heap_place(&b->heap, b->heap.n++, e);
    heap_up(&b->heap, b->heap.n - 1);
    return 0;
}

/* ---- entries ---- */

static struct entry *entry_find(const struct board *b, const char *id)
{
    for (struct entry *e = b->ops[hash(id) & (BUCKETS - 1)]; e; e = e->next)
        if (!strcmp(e->id, id))
            return e;
    return NULL;
}

static struct run *run_find(const struct board *b, const char *id)
{
    for (struct run *r = b->runs[hash(id) & (BUCKETS - 1)]; r; r = r->next)
        if (!strcmp(r->id, id))
            return r;
    return NULL;
}

static struct run *run_get(struct board *b, const char *id)
{
    struct run *r = run_find(b, id), **bucket = &b->runs[hash(id) & (BUCKETS - 1)];
    const size_t len = strlen(id) + 1;
    if (r || !(r = calloc(1, sizeof *r + len)))
        return r;
    memcpy(r->id, id, len);
    r->next = *bucket;
    *bucket = r;
    return r;
}

static void run_drop(struct board *b, struct run *r)
{
    if (!r->gone || r->seen.live || r->marked)
        return;
    struct run **p = &b->runs[hash(r->id) & (BUCKETS - 1)];
    while (*p != r)
        p = &(*p)->next;
    *p = r->next;
    free(r->phase_1.v);
    free(r);
}

static struct tally *tally_get(struct tally **table, char *name)
{
    struct tally **bucket = &table[hash(name) & (TALLY_BUCKETS - 1)], *t;
    for (t = *bucket; t; t = t->next)
        if (!strcmp(t->name, name))
            return t;
    t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->name = str_ref(name);
    t->next = *bucket;
    *bucket = t;
    return t;
}

static unsigned tally_read(struct tally *const *table, const char *name)
{
    for (const struct tally *t = table[hash(name) & (TALLY_BUCKETS - 1)]; t; t = t->next)
        if (!strcmp(t->name, name))
            return t->moving;
    return 0;
}

static struct lane *lane_get(struct board *b, char *repository, bool restore)
{
    for (struct lane *l = b->lanes; l; l = l->next)
        if (l->restore == restore && !strcmp(l->repository, repository))
            return l;
    struct lane *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->repository = str_ref(repository);
    l->restore = restore;
    l->next = b->lanes;
    b->lanes = l;
    return l;
}

/* Takes out of every list and count what the entry was in. */
static void entry_clear(struct board *b, struct entry *e)
{
    if (e->lane)
        sorted_remove(&e->lane->queued, e, goes_first);
    if (e->ready)
        sorted_remove(&b->ready, e, entry_older);
    if (e->waiting)
        sorted_remove(&b->waiting, e, entry_older);
    if (e->run && e->phase_1)
        sorted_remove(&e->run->phase_1, e, entry_older);
    if (e->run) {
        e->run->seen.snapshotting -= e->snapshotting;
        e->run->seen.n_phase_1 = (unsigned)e->run->phase_1.n;
    }
    b->usage.exposed -= e->exposed;
    b->usage.coming -= e->coming;
    if (e->moving) {
        b->usage.moving--;
        b->usage.moving_restores -= e->restore;
        b->usage.memory -= e->memory;
        e->klass->moving--;
        e->device->moving--;
    }
    e->lane = NULL;
    e->moving = e->coming = e->exposed = e->ready = e->snapshotting = e->phase_1 = e->waiting = false;
}

uint64_t policy_memory(const struct policy *p)
{
    const struct mover_limits *l = &p->limits;
    return (uint64_t)(l->memory_max > 0 ? l->memory_max : l->memory + l->index_memory + (64 << 20));
}

/* The repository whose absence holds it up; "": none. */
static char *repository_needed(const struct operation *op)
{
    const bool needs = !op->policy->mover[0] && !(op->kind == KIND_RESTORE && !is_none(op->native_doc));
    return needs ? op->policy->repository : str_empty;
}

static int entry_fill(struct board *b, struct entry *e, const struct operation *op)
{
    const bool backup = op->kind == KIND_BACKUP, native = !is_none(op->native_doc);
    int rc = heap_set(b, e, op->wake_ns);
    e->seq = op->seq;
    e->priority = op->policy->priority;
    e->memory = policy_memory(op->policy);
    e->restore = op->kind == KIND_RESTORE;
    str_clear(&e->check);
    e->check = str_ref(op->check_operation);
    e->waiting = op->check_operation[0] || op->kind == KIND_DELETE;
    if (e->waiting && sorted_add(&b->waiting, e, entry_older) < 0)
        rc = -ENOMEM;
    if (!backup && !e->restore)
        return rc;
    struct tally *klass = tally_get(b->classes, op->own->name), *device = tally_get(b->devices, op->volume->pool);
    if (!klass || !device)
        return -ENOMEM;
    str_clear(&e->group);
    e->group = str_ref(op->policy->group);
    e->klass = klass;
    e->device = device;
    e->moving = op->state == OP_STARTING || op->state == OP_RUNNING || op->state == OP_CANCELLING;
    e->exposed = e->moving || op->state == OP_EXPOSING;
    e->snapshotting = op->state == OP_SNAPSHOTTING;
    e->ready = op->state == OP_EXPOSING && (op->exposure || op->target);
    e->phase_1 = backup && op->state != OP_CLEANING_UP && op->stage != STAGE_SNAPPED;
    e->coming = backup && (e->exposed || e->snapshotting || op->state == OP_QUEUED);
    b->usage.exposed += e->exposed;
    b->usage.coming += e->coming;
    if (e->moving) {
        b->usage.moving++;
        b->usage.moving_restores += e->restore;
        b->usage.memory += e->memory;
        klass->moving++;
        device->moving++;
    }
    if (e->ready && sorted_add(&b->ready, e, entry_older) < 0)
        rc = -ENOMEM;
    if (op->state == OP_QUEUED && !op->cancel && (e->restore || native)) {
        e->lane = lane_get(b, repository_needed(op), e->restore);
        if (!e->lane || sorted_add(&e->lane->queued, e, goes_first) < 0)
            rc = -ENOMEM;
    }
    if (e->run) {
        e->run->seen.snapshotting += e->snapshotting;
        if (e->phase_1 && sorted_add(&e->run->phase_1, e, entry_older) < 0)
            rc = -ENOMEM;
        e->run->seen.n_phase_1 = (unsigned)e->run->phase_1.n;
    }
    return rc;
}

static void entry_remove(struct board *b, struct entry *e)
{
    entry_clear(b, e);
    heap_remove(&b->heap, e);
    if (e->marked)
        b->marked.v[e->marked - 1] = NULL;
    struct entry **p = &b->ops[hash(e->id) & (BUCKETS - 1)];
    while (*p != e)
        p = &(*p)->next;
    *p = e->next;
    str_clear(&e->group);
    str_clear(&e->check);
    free(e);
}

/* ---- marks ---- */

static int entry_mark(struct board *b, struct entry *e)
{
    if (e->marked)
        return 0;
    if (b->marked_at == b->marked.n)
        b->marked_at = b->marked.n = 0;
    if (sorted_room(&b->marked) < 0)
        return -ENOMEM;
    b->marked.v[b->marked.n++] = e;
    e->marked = b->marked.n;
    return 0;
}

static int mark_run(struct board *b, struct run *r)
{
    if (r->marked || r->gone)
        return 0;
    if (b->marked_runs_at == b->n_marked_runs)
        b->marked_runs_at = b->n_marked_runs = 0;
    if (b->n_marked_runs == b->cap_marked_runs) {
        const size_t cap = b->cap_marked_runs ? 2 * b->cap_marked_runs : 16;
        struct run **v = reallocarray(b->marked_runs, cap, sizeof *v);
        if (!v)
            return -ENOMEM;
        b->marked_runs = v;
        b->cap_marked_runs = cap;
    }
    b->marked_runs[b->n_marked_runs++] = r;
    r->marked = b->n_marked_runs;
    return 0;
}

void board_mark(struct board *b, const char *id)
{
    struct entry *e = entry_find(b, id);
    if (e)
        entry_mark(b, e);
}

int board_mark_backup(struct board *b, const char *id)
{
    struct run *r = run_get(b, id);
    return r ? mark_run(b, r) : -ENOMEM;
}

void board_mark_all(struct board *b)
{
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct entry *e = b->ops[i]; e; e = e->next)
            if (!e->lane && !(e->phase_1 && e->run))
                entry_mark(b, e);
        for (struct run *r = b->runs[i]; r; r = r->next)
            mark_run(b, r);
    }
}

void board_mark_waiting(struct board *b)
{
    for (size_t i = 0; i < b->waiting.n; i++) {
        struct entry *e = b->waiting.v[i];
        entry_mark(b, e);
        if (e->phase_1 && e->run)
            mark_run(b, e->run); /* whose snapshot it is that waits */
    }
}

bool board_waits_for(const struct board *b, const char *check)
{
    for (size_t i = 0; i < b->waiting.n; i++)
        if (!strcmp(b->waiting.v[i]->check, check))
            return true;
    return false;
}

void board_watch(struct board *b, const char *id)
{
    struct entry *e = entry_find(b, id);
    if (e)
        e->watched = true;
}

bool board_released(struct board *b)
{
    const bool released = b->released;
    b->released = false;
    return released;
}

void board_mark_ready(struct board *b)
{
    for (size_t i = 0; i < b->ready.n; i++)
        entry_mark(b, b->ready.v[i]);
}

void board_mark_due(struct board *b, int64_t now_ns)
{
    for (size_t i = 0; i < b->heap.n && b->heap.v[0]->wake_ns <= now_ns; i++)
        if (b->heap.v[i]->wake_ns <= now_ns)
            entry_mark(b, b->heap.v[i]);
}

int64_t board_wake(const struct board *b)
{
    return b->heap.n ? b->heap.v[0]->wake_ns : 0;
}

bool board_take(struct board *b, char id[BOARD_ID_MAX])
{
    while (b->marked_at < b->marked.n) {
        struct entry *e = b->marked.v[b->marked_at++];
        if (!e)
            continue;
        e->marked = 0;
        snprintf(id, BOARD_ID_MAX, "%s", e->id);
        return true;
    }
    return false;
}

bool board_take_backup(struct board *b, char id[BOARD_ID_MAX])
{
    while (b->marked_runs_at < b->n_marked_runs) {
        struct run *r = b->marked_runs[b->marked_runs_at++];
        const bool gone = r->gone;
        r->marked = 0;
        snprintf(id, BOARD_ID_MAX, "%s", r->id);
        run_drop(b, r);
        if (!gone)
            return true;
    }
    return false;
}

bool board_is_marked(const struct board *b)
{
    for (size_t i = b->marked_at; i < b->marked.n; i++)
        if (b->marked.v[i])
            return true;
    return b->marked_runs_at < b->n_marked_runs;
}

/* ---- rows ---- */

void board_ended_add(struct board_ended *sum, const struct operation *op)
{
    const struct mover_progress p = progress_read(op->progress);
    const int64_t size = p.total ? p.total : op->volume->size;
    if (op->kind != KIND_BACKUP && op->kind != KIND_RESTORE)
        return;
    sum->n++;
    sum->completed += op->state == OP_COMPLETED;
    sum->failed += op->state == OP_FAILED;
    sum->canceled += op->state == OP_CANCELED;
    result_bytes_add(&sum->size, op->result.total);
    result_bytes_add(&sum->fresh, op->result.incremental);
    sum->total += size;
    /* What failed or was canceled has done what it has done. */
    sum->done += op->state == OP_COMPLETED || op->state == OP_SKIPPED ? size : p.done;
}

int board_operation(struct board *b, const char *id, const struct operation *now)
{
    struct entry *e = entry_find(b, id), **bucket = &b->ops[hash(id) & (BUCKETS - 1)];
    const bool live = now && !op_state_terminal(now->state);
    int rc = 0;
    if (!e && !live)
        return 0;
    if (!e) {
        const size_t len = strlen(id) + 1;
        struct run *r = now->parent[0] ? run_get(b, now->parent) : NULL;
        e = calloc(1, sizeof *e + len);
        if (!e || (now->parent[0] && !r)) {
            free(e);
            return -ENOMEM;
        }
        memcpy(e->id, id, len);
        e->group = e->check = str_empty;
        e->run = r;
        if (r)
            r->seen.live++;
        e->next = *bucket;
        *bucket = e;
    }
    if (e->run)
        rc = mark_run(b, e->run);
    if (e->watched && (!live || now->state == OP_RETRYING)) {
        e->watched = false;
        b->released = true;
    }
    if (e->run && now && now->kind == KIND_BACKUP && now->policy->hook_post_backup[0])
        e->run->seen.hooked = true;
    if (live) {
        const bool exposed = e->exposed, moving = e->moving;
        entry_clear(b, e);
        const int filled = entry_fill(b, e, now);
        b->usage.freed += (exposed && !e->exposed) + (moving && !e->moving);
        return filled < 0 || entry_mark(b, e) < 0 ? -ENOMEM : rc;
    }
    struct run *r = e->run;
    if (r) {
        r->seen.live--;
        if (r->seen.counted && now) {
            r->seen.failed += now->state == OP_FAILED;
            r->seen.canceled += now->state == OP_CANCELED;
        }
        if (now)
            board_ended_add(&r->seen.ended, now);
    }
    b->usage.freed += e->exposed + e->moving;
    entry_remove(b, e);
    if (r)
        run_drop(b, r);
    board_mark_waiting(b);
    return rc;
}

int board_backup(struct board *b, const char *id, const struct backup *now)
{
    if (now && !backup_state_terminal(now->state)) {
        struct run *r = run_get(b, id);
        if (r)
            r->gone = false;
        return r ? mark_run(b, r) : -ENOMEM;
    }
    struct run *r = run_find(b, id);
    if (r) {
        r->gone = true;
        run_drop(b, r);
    }
    return 0;
}

/* ---- slots and order ---- */

struct board_usage board_usage(const struct board *b, const char *except)
{
    const struct entry *e = entry_find(b, except);
    struct board_usage u = b->usage;
    if (e) {
        u.exposed -= e->exposed;
        u.coming -= e->coming;
        u.moving -= e->moving;
        u.moving_restores -= e->moving && e->restore;
        u.memory -= e->moving ? e->memory : 0;
    }
    return u;
}

unsigned board_in_class(const struct board *b, const char *klass, const char *except)
{
    const struct entry *e = entry_find(b, except);
    return tally_read(b->classes, klass) - (e && e->moving && !strcmp(e->klass->name, klass));
}

unsigned board_on_device(const struct board *b, const char *device, const char *except)
{
    const struct entry *e = entry_find(b, except);
    if (!device[0])
        return 0;
    return tally_read(b->devices, device) - (e && e->moving && !strcmp(e->device->name, device));
}

static bool lane_is_down(const struct lane *l, board_down_fn *down, void *arg)
{
    return l->repository[0] && down(l->repository, arg);
}

unsigned board_ahead(const struct board *b, const struct operation *op, board_down_fn *down, void *arg,
                     const char **first)
{
    const struct entry own = {.seq = op->seq, .priority = op->policy->priority}, *best = NULL;
    size_t n = 0;
    for (const struct lane *l = b->lanes; l; l = l->next) {
        if (l->restore != (op->kind == KIND_RESTORE) || !l->queued.n || lane_is_down(l, down, arg))
            continue;
        const size_t rank = sorted_rank(&l->queued, &own, goes_first);
        n += rank;
        if (rank && (!best || goes_first(l->queued.v[0], best)))
            best = l->queued.v[0];
    }
    *first = best ? best->id : NULL;
    return (unsigned)n;
}

void board_mark_next(struct board *b, bool restores, unsigned n, board_down_fn *down, void *arg)
{
    for (struct lane *l = b->lanes; l; l = l->next) {
        if (l->restore != restores || !l->queued.n)
            continue;
        const size_t most = lane_is_down(l, down, arg) ? 0 : n;
        for (size_t i = 0; i < l->queued.n && i < most; i++)
            entry_mark(b, l->queued.v[i]);
    }
}

void board_mark_down(struct board *b, board_down_fn *down, void *arg)
{
    for (struct lane *l = b->lanes; l; l = l->next)
        if (l->queued.n && lane_is_down(l, down, arg))
            for (size_t i = 0; i < l->queued.n; i++)
                entry_mark(b, l->queued.v[i]);
}

/* ---- one backup ---- */

struct board_run *board_run(struct board *b, const char *backup)
{
    struct run *r = run_get(b, backup);
    return r ? &r->seen : NULL;
}

bool board_has_run(struct board *b, const char *backup)
{
    return run_find(b, backup) != NULL;
}

const char **board_phase_1(struct board *b, const char *backup, unsigned max_groups, unsigned *n)
{
    struct run *r = run_find(b, backup);
    const size_t all = r ? r->phase_1.n : 0;
    size_t at = 0;
    const char **ids = calloc(all + 1, sizeof *ids);
    *n = 0;
    if (!ids)
        return NULL;
    for (size_t i = 0; i < all && max_groups; i++) {
        const struct entry *e = r->phase_1.v[i];
        bool seen = false;
        for (size_t k = 0; k < at && e->group[0] && !seen; k++)
            seen = ids[k] == e->id;
        if (seen)
            continue;
        max_groups--;
        ids[at++] = e->id;
        for (size_t k = i + 1; k < all && e->group[0]; k++)
            if (!strcmp(r->phase_1.v[k]->group, e->group))
                ids[at++] = r->phase_1.v[k]->id;
    }
    *n = (unsigned)at;
    return ids;
}

/* ---- end ---- */

static void tallies_free(struct tally **table)
{
    for (size_t i = 0; i < TALLY_BUCKETS; i++)
        while (table[i]) {
            struct tally *t = table[i];
            table[i] = t->next;
            str_clear(&t->name);
            free(t);
        }
}

void board_free(struct board *b)
{
    if (!b)
        return;
    for (size_t i = 0; i < BUCKETS; i++) {
        while (b->ops[i]) {
            struct entry *e = b->ops[i];
            b->ops[i] = e->next;
            str_clear(&e->group);
            free(e);
        }
        while (b->runs[i]) {
            struct run *r = b->runs[i];
            b->runs[i] = r->next;
            free(r->phase_1.v);
            free(r);
        }
    }
    while (b->lanes) {
        struct lane *l = b->lanes;
        b->lanes = l->next;
        str_clear(&l->repository);
        free(l->queued.v);
        free(l);
    }
    tallies_free(b->classes);
    tallies_free(b->devices);
    free(b->marked.v);
    free(b->heap.v);
    free(b->ready.v);
    free(b->waiting.v);
    free(b->marked_runs);
    free(b);
}
