/* SPDX-License-Identifier: GPL-2.0-or-later */
/* usage.c - what each volume takes in a repository: its snapshots are found, walked volume by volume, and counted */
#include "daemon/mover/usage.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "base/units.h"
#include "daemon/mover/usage-walk.h"
#include "repo/tree-ahead.h"

#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#define DOCUMENTS ((uint64_t)96 << 20) /* held in memory at a time */
#define AHEAD_MEMORY ((size_t)16 << 20)

/* What is walked of a snapshot. */
struct root {
    uint32_t volume;
    bool dir;
    struct object_id obj;
    uint64_t bytes;
};

struct survey {
    struct repo *r;
    const struct usage_opts *o;
    struct usage_result *ret;
    void *tree; /* volumes by source */
    size_t cap; /* of ret->volumes */
    struct root *roots;
    size_t n_roots, roots_cap;
    size_t at; /* of the roots: the one that is visited next */
    struct usage_walk walk;
    struct reach_volume *reach; /* of each volume, by its number */
    struct err *e;
};

/* ---- which snapshots there are ---- */

static int compare_sources(const void *a, const void *b)
{
    const struct usage_volume *x = a, *y = b;
    int d = strcmp(x->host, y->host);
    if (d == 0)
        d = strcmp(x->path, y->path);
    return d ? d : strcmp(x->user, y->user);
}

static void volume_free(struct usage_volume *v)
{
    if (!v)
        return;
    free(v->host);
    free(v->user);
    free(v->path);
    free(v->name);
    free(v);
}

static struct usage_volume *volume_new(const struct snapshot_source *source)
{
    struct usage_volume *v = malloc(sizeof *v);
    if (!v)
        return NULL;
    *v = (struct usage_volume){.host = strdup(source->host),
                               .user = strdup(source->user),
                               .path = strdup(source->path),
                               .newest_ns = INT64_MIN,
                               .size = -1};
    if (v->host && v->user && v->path)
        return v;
    volume_free(v);
    return NULL;
}

/* Room for one more in a list; 0 or negative. */
static int list_grow(void **list, size_t n, size_t *cap, size_t size, struct err *e)
{
    if (n < *cap)
        return 0;
    const size_t more = *cap ? 2 * *cap : 64;
    void *p = reallocarray(*list, more, size);
    if (!p)
        return err_nomem(e);
    *list = p;
    *cap = more;
    return 0;
}

/* The volume of a source, a new one if there is none. NULL: no memory. */
static struct usage_volume *volume_of(struct survey *s, const struct snapshot_source *source)
{
    struct usage_result *u = s->ret;
    void *list = u->volumes;
    struct usage_volume *v = volume_new(source), **at = v ? tsearch(v, &s->tree, compare_sources) : NULL;
    if (!at || *at != v) {
        volume_free(v);
        return at ? *at : NULL;
    }
    if (u->n == UINT32_MAX || list_grow(&list, u->n, &s->cap, sizeof *u->volumes, s->e) < 0) {
        tdelete(v, &s->tree, compare_sources);
        volume_free(v);
        return NULL;
    }
    u->volumes = list;
    v->number = (uint32_t)u->n;
    u->volumes[u->n++] = v;
    return v;
}

static int64_t size_of(const struct snapshot *x)
{
    if (x->total_size > 0)
        return x->total_size;
    return x->root.has_summary ? x->root.sum_size : x->root.size;
}

/* A complete one is newer than any that is not. */
static int note_newest(struct usage_volume *v, const struct snapshot *x, struct err *e)
{
    const bool complete = !*x->incomplete, first = v->snapshots + v->incomplete == 0;
    const char *name = json_string_value(json_object_get(x->tags, "tag:volume"));
    if (!first &&
        (complete ? v->snapshots > 0 && x->start_ns < v->newest_ns : v->snapshots > 0 || x->start_ns < v->newest_ns))
        return 0;
    v->newest_ns = x->start_ns;
    v->size = size_of(x);
    free(v->name);
    v->name = name && *name ? strdup(name) : NULL;
    return name && *name && !v->name ? err_nomem(e) : 0;
}

static int add_snapshot(struct snapshot *x, void *arg)
{
    struct survey *s = arg;
    struct usage_volume *v = volume_of(s, &x->source);
    void *list = s->roots;
    if (!v)
        return err_nomem(s->e);
    int rc = usage_stopped(s->o->cancel, s->e);
    if (rc == 0)
        rc = note_newest(v, x, s->e);
    if (rc == 0)
        rc = list_grow(&list, s->n_roots, &s->roots_cap, sizeof *s->roots, s->e);
    s->roots = list;
    if (rc < 0)
        return rc;
    const int64_t size = size_of(x);
    s->roots[s->n_roots++] = (struct root){
        .volume = v->number, .dir = x->root.type == 'd', .obj = x->root.obj, .bytes = size > 0 ? (uint64_t)size : 0};
    if (*x->incomplete) {
        v->incomplete++;
        s->ret->incomplete++;
    } else {
        v->snapshots++;
        s->ret->snapshots++;
    }
    if (s->o->progress)
        atomic_fetch_add(&s->o->progress->total, s->roots[s->n_roots - 1].bytes);
    return 0;
}

/* ---- what they reach ---- */

static int by_volume(const void *a, const void *b)
{
    const struct root *x = a, *y = b;
    if (x->volume != y->volume)
        return x->volume < y->volume ? -1 : 1;
    return content_id_cmp(&x->obj.content, &y->obj.content);
}

static void volume_end(struct survey *s)
{
    if (!s->walk.seen)
        return;
    s->ret->volumes[s->walk.volume]->unreadable = s->walk.unreadable;
    s->ret->unreadable += s->walk.unreadable;
    id_set_free(s->walk.seen);
    s->walk.seen = NULL;
}

static int volume_begin(struct survey *s, uint32_t volume, struct err *e)
{
    struct usage_walk *w = &s->walk;
    const struct usage_volume *v = s->ret->volumes[volume];
    volume_end(s);
    w->volume = volume;
    w->last = (struct content_id){.len = 0};
    w->unreadable = 0;
    snprintf(w->source, sizeof w->source, "%s@%s:%s", v->user, v->host, v->path);
    return id_set_new(&w->seen, repo_cache_dir(s->r), 0, e);
}

/* Snapshots come in the order in which they were added. */
static int visit_snapshot(struct snapshot *x, struct content_ahead *ahead, void *arg)
{
    struct survey *s = arg;
    const struct root *root = &s->roots[s->at++];
    int rc = usage_stopped(s->o->cancel, s->e);
    if (rc == 0 && (!s->walk.seen || s->walk.volume != root->volume))
        rc = volume_begin(s, root->volume, s->e);
    if (rc == 0)
        rc = usage_walk_object(&s->walk, ahead, &x->root.obj, root->dir, s->e);
    if (rc == 0 && s->o->progress)
        atomic_fetch_add(&s->o->progress->done, root->bytes);
    return rc;
}

static int walk_volumes(struct survey *s, struct err *e)
{
    struct tree_ahead *trees CLEANUP(tree_ahead_freep) = NULL;
    struct err inner = ERR_INIT;
    s->e = &inner;
    int rc = tree_ahead_new(&trees, s->r, AHEAD_MEMORY, visit_snapshot, s, e);
    if (rc < 0)
        return rc;
    if (s->n_roots > 1)
        qsort(s->roots, s->n_roots, sizeof *s->roots, by_volume);
    for (size_t i = 0; i < s->n_roots && rc == 0; i++) {
        struct snapshot x = {.root = {.type = s->roots[i].dir ? 'd' : 'f', .obj = s->roots[i].obj}};
        rc = tree_ahead_add(trees, &x, false);
    }
    rc = tree_ahead_end(trees, rc, &inner);
    volume_end(s);
    if (rc < 0)
        *e = inner;
    return rc;
}

/* ---- counting ---- */

static void sum_entry(struct reach_sum *sum, const struct index_entry *x)
{
    sum->n++;
    sum->bytes += x->packed;
}

static int count_entry(const struct index_entry *x, void *arg)
{
    struct survey *s = arg;
    int rc = usage_stopped(s->o->cancel, s->e);
    if (rc < 0)
        return rc;
    sum_entry(&s->ret->total, x);
    const struct reach_sum before = s->ret->reach.unreached;
    rc = reach_count(s->walk.reach, &x->id, x->packed, s->reach, &s->ret->reach, s->e);
    if (rc == 0 && x->id.prefix == MANIFEST_PREFIX && !x->deleted && s->ret->reach.unreached.n > before.n) {
        s->ret->reach.unreached = before;
        sum_entry(&s->ret->manifests, x);
    }
    return rc;
}

static int count_contents(struct survey *s, struct err *e)
{
    struct usage_result *u = s->ret;
    s->e = e;
    s->reach = calloc(u->n + 1, sizeof *s->reach);
    int rc = s->reach ? reach_settle(s->walk.reach, e) : err_nomem(e);
    if (rc == 0)
        rc = index_set_each(repo_index(s->r), -1, count_entry, s, e);
    if (rc == 0)
        rc = reach_end(s->walk.reach, s->reach, &u->reach, e);
    for (size_t i = 0; i < u->n && rc == 0; i++)
        u->volumes[i]->reach = s->reach[i];
    return rc;
}

static int by_exclusive(const void *a, const void *b)
{
    const struct usage_volume *x = *(struct usage_volume *const *)a, *y = *(struct usage_volume *const *)b;
    if (x->reach.exclusive.bytes != y->reach.exclusive.bytes)
        return x->reach.exclusive.bytes > y->reach.exclusive.bytes ? -1 : 1;
    return compare_sources(x, y);
}

static int survey_run(struct survey *s, struct err *e)
{
    unsigned bad = 0;
    s->e = e;
    int rc = reach_new(&s->walk.reach, repo_cache_dir(s->r), REACH_MEMORY, e);
    if (rc == 0)
        rc = snapshots_each(s->r, NULL, false, add_snapshot, s, &bad, e);
    s->ret->malformed = bad;
    if (rc == 0 && s->o->progress)
        atomic_store(&s->o->progress->phase, PHASE_MOVING);
    if (rc == 0)
        rc = walk_volumes(s, e);
    if (rc == 0 && s->o->progress)
        atomic_store(&s->o->progress->phase, PHASE_CHECKING);
    if (rc == 0)
        rc = count_contents(s, e);
    if (rc == 0 && s->ret->n > 1)
        qsort(s->ret->volumes, s->ret->n, sizeof *s->ret->volumes, by_exclusive);
    return rc;
}

static void tree_node_keep(void *v)
{
    (void)v; /* it is in the list, too */
}

static int partial(const struct usage_result *u, struct err *e)
{
    const uint64_t objects = u->unreadable, contents = u->reach.missing, manifests = u->malformed;
    err_set(e, ERR_DAMAGE, EBADMSG,
            "the numbers are lower bounds: %" PRIu64 " object%s, %" PRIu64 " content%s and %" PRIu64
            " manifest%s of snapshots are missing or cannot be read",
            objects, plural(objects), contents, plural(contents), manifests, plural(manifests));
    return err_hint(e, "run verify: it lists what is damaged");
}

int usage_of_volumes(struct repo *r, const struct usage_opts *o, struct usage_result *ret, struct err *e)
{
    const double began = mono_s();
    const _Atomic bool *stop = o->cancel ? &o->cancel->requested : NULL, *before = blobs_stop(repo_blobs(r), stop);
    struct survey s = {.r = r, .o = o, .ret = ret, .walk = {.r = r, .cancel = o->cancel}};
    *ret = (struct usage_result){.seconds = 0};
    repo_memory(r, DOCUMENTS);
    int rc = survey_run(&s, e);
    repo_memory(r, 0);
    blobs_stop(repo_blobs(r), before);
    tdestroy(s.tree, tree_node_keep);
    reach_free(s.walk.reach);
    free(s.roots);
    free(s.reach);
    ret->seconds = mono_s() - began;
    ret->complete = rc == 0;
    ret->blocks_read = s.walk.blocks_read;
    ret->blocks_known = s.walk.blocks_known;
    return rc == 0 && usage_is_partial(ret) ? partial(ret, e) : rc;
}

void usage_clear(struct usage_result *u)
{
    for (size_t i = 0; i < u->n; i++)
        volume_free(u->volumes[i]);
    free(u->volumes);
    *u = (struct usage_result){.seconds = 0};
}

bool usage_is_partial(const struct usage_result *u)
{
    return u->malformed || u->unreadable || u->reach.missing;
}

bool usage_volume_is_partial(const struct usage_volume *v)
{
    return v->unreadable || v->reach.missing;
}
