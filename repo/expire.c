/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * expire.c - snapshots that expire by the retention of their sources, and their deletion
 *
 * Crash points: expire-decided (before anything is written), expire-deleted (durable).
 */
#include "repo/expire-impl.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"

#include <errno.h>
#include <search.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

/* ---- what there is ---- */

static int by_text(const void *a, const void *b)
{
    const struct seen_source *x = a, *y = b;
    return x->len != y->len ? (x->len < y->len ? -1 : 1) : memcmp(x->text, y->text, x->len);
}

static struct seen_source *source_intern(struct seen *all, const struct snapshot_source *s)
{
    size_t nu = strlen(s->user) + 1, nh = strlen(s->host) + 1, np = strlen(s->path) + 1;
    CLEANUP_FREE struct seen_source *n = malloc(sizeof *n + nu + nh + np);
    if (!n)
        return NULL;
    n->volume = NULL;
    n->volume_ns = INT64_MIN;
    n->len = nu + nh + np;
    memcpy(n->text, s->user, nu);
    memcpy(n->text + nu, s->host, nh);
    memcpy(n->text + nu + nh, s->path, np);
    void *node = tsearch(n, &all->sources, by_text);
    if (!node)
        return NULL;
    struct seen_source *found = *(struct seen_source **)node;
    if (found == n) {
        all->n_sources++;
        (void)take_ptr(&n);
    }
    return found;
}

void seen_source_get(const struct seen_source *s, struct snapshot_source *ret)
{
    const char *host = s->text + strlen(s->text) + 1, *path = host + strlen(host) + 1;
    memcpy(ret->user, s->text, (size_t)(host - s->text));
    memcpy(ret->host, host, (size_t)(path - host));
    memcpy(ret->path, path, strlen(path) + 1);
}

static void source_free(void *arg)
{
    struct seen_source *s = arg;
    free(s->volume);
    free(s);
}

void seen_fini(struct seen *all)
{
    tdestroy(all->sources, source_free);
    for (size_t i = 0; i < all->n; i++)
        free(all->list[i].operation);
    free(all->list);
}

/* The name of a volume may change; its source does not. */
static int note_volume(struct seen_source *n, const struct snapshot *s)
{
    const char *name = json_string_value(json_object_get(s->tags, "tag:volume"));
    if (!name || s->start_ns < n->volume_ns)
        return 0;
    char *copy = strdup(name);
    if (!copy)
        return -ENOMEM;
    free(n->volume);
    n->volume = copy;
    n->volume_ns = s->start_ns;
    return 0;
}

#define OPERATION_MAX 500 /* bytes of a tag: what is longer was not written by a daemon */

int seen_add(struct seen *all, const struct snapshot *s)
{
    if (all->n == all->cap) {
        size_t cap = all->cap ? all->cap * 2 : 64;
        struct seen_snapshot *list = realloc(all->list, cap * sizeof *list);
        if (!list)
            return -ENOMEM;
        all->list = list;
        all->cap = cap;
    }
    struct seen_snapshot *n = &all->list[all->n];
    *n = (struct seen_snapshot){.modified_ns = s->modified_ns,
                                .start_ns = s->start_ns,
                                .end_ns = s->end_ns,
                                .size = s->total_size,
                                .incomplete = s->incomplete[0],
                                .pinned = s->pins && json_array_size(s->pins)};
    struct seen_source *source = source_intern(all, &s->source);
    if (!source || note_volume(source, s) < 0)
        return -ENOMEM;
    n->source = source;
    hex_decode(n->id, s->id, 32);
    all->n++;
    const json_t *operation = json_object_get(s->tags, "tag:operation");
    if (!json_is_string(operation) || json_string_length(operation) > OPERATION_MAX)
        return 0;
    n->operation = strdup(json_string_value(operation));
    return n->operation ? 0 : -ENOMEM;
}

/* Sources together, each newest first. */
static int by_source(const void *a, const void *b)
{
    const struct seen_snapshot *x = a, *y = b;
    int c = x->source == y->source ? 0 : by_text(x->source, y->source);
    if (c)
        return c;
    if (x->start_ns != y->start_ns)
        return x->start_ns > y->start_ns ? -1 : 1;
    if (x->end_ns != y->end_ns)
        return x->end_ns > y->end_ns ? -1 : 1;
    return memcmp(x->id, y->id, sizeof x->id);
}

void seen_sort(struct seen *all)
{
    if (all->n)
        qsort(all->list, all->n, sizeof *all->list, by_source);
}

size_t seen_group(const struct seen *all, size_t from)
{
    size_t n = from;
    while (n < all->n && all->list[n].source == all->list[from].source)
        n++;
    return n - from;
}

/* ---- deleting ---- */

/* Tombstones in one content; each is looked up in the batch. */
#define TOMBSTONES 2000
#define MANIFEST_COMPRESSION 0x1101 /* zstd-fastest */
#define MANIFESTS_MAX ((size_t)1 << 20)

/* A tombstone is effective only if it is newer than what it deletes. */
#define WAIT_MAX_NS INT64_C(2000000000)

int wait_until_younger(int64_t modified_ns, const char *id, struct err *e)
{
    const int64_t at = ns_bounded(modified_ns);
    int64_t ahead = at - now_ns();
    if (ahead > WAIT_MAX_NS) {
        char t[TIME_TEXT];
        err_set(e, ERR_CLOCK, 0, "snapshot %s is newer than this node's clock: cannot be deleted before %s", id,
                time_text(modified_ns, t));
        return err_hint(e, "synchronize the clocks of the machines that use this repository");
    }
    while ((ahead = at - now_ns()) >= 0 && ahead <= WAIT_MAX_NS)
        nanosleep(&(struct timespec){.tv_sec = ahead / NS_PER_S, .tv_nsec = ahead % NS_PER_S + 1}, NULL);
    return 0;
}

static int batch_write(struct repo *r, struct manifest_batch *b, struct err *e)
{
    CLEANUP(session_freep) struct session *s = NULL;
    CLEANUP(put_scratch_freep) struct put_scratch *p = NULL;
    int rc = session_new(&s, r, &(struct session_opts){.no_adopt = true}, e);
    if (rc == 0)
        rc = put_scratch_new(&p, r, MANIFEST_COMPRESSION, MANIFESTS_MAX, e);
    if (rc == 0)
        rc = manifest_batch_put(b, s, p, e);
    return rc == 0 ? session_flush(s, e) : rc;
}

/* On a full file system nothing is freed before snapshots can be deleted: what that writes may use the reserve. */
int batch_commit(struct repo *r, struct manifest_batch *b, struct err *e)
{
    const bool before = blobs_use_reserve(repo_blobs(r), true);
    const int rc = batch_write(r, b, e);
    blobs_use_reserve(repo_blobs(r), before);
    return rc;
}

static int tombstones_write(struct repo *r, const struct seen *all, struct err *e)
{
    CLEANUP(session_freep) struct session *s = NULL;
    CLEANUP(put_scratch_freep) struct put_scratch *p = NULL;
    CLEANUP(manifest_batch_freep) struct manifest_batch *b = NULL;
    char id[33];
    int rc = 0;
    for (size_t i = 0; i < all->n && rc == 0; i++) {
        hex_encode(id, all->list[i].id, 16);
        rc = all->list[i].goes ? wait_until_younger(all->list[i].modified_ns, id, e) : 0;
    }
    if (rc == 0)
        rc = session_new(&s, r, &(struct session_opts){.no_adopt = true}, e);
    if (rc == 0)
        rc = put_scratch_new(&p, r, MANIFEST_COMPRESSION, MANIFESTS_MAX, e);
    for (size_t i = 0, n = 0; i < all->n && rc == 0; i++) {
        if (!all->list[i].goes)
            continue;
        hex_encode(id, all->list[i].id, 16);
        if (n++ % TOMBSTONES == 0) {
            rc = b ? manifest_batch_put(b, s, p, e) : 0;
            manifest_batch_free(take_ptr(&b));
            if (rc == 0)
                rc = manifest_batch_new(&b, e);
        }
        if (rc == 0)
            rc = manifest_batch_delete(b, id, e);
    }
    if (rc == 0 && b)
        rc = manifest_batch_put(b, s, p, e);
    crash_point("expire-decided");
    if (rc == 0)
        rc = session_flush(s, e);
    crash_point("expire-deleted");
    return rc;
}

int seen_delete(struct repo *r, const struct seen *all, struct err *e)
{
    const bool before = blobs_use_reserve(repo_blobs(r), true);
    const int rc = tombstones_write(r, all, e);
    blobs_use_reserve(repo_blobs(r), before);
    return rc;
}

/* ---- retention ---- */

struct plan {
    struct seen seen;
    const struct expire_opts *o;
};

static int snapshots_collect(struct snapshot *s, void *arg)
{
    struct plan *p = arg;
    if (!p->o->source && ((p->o->user && strcmp(p->o->user, s->source.user) != 0) ||
                          (p->o->host && strcmp(p->o->host, s->source.host) != 0)))
        return 0;
    return seen_add(&p->seen, s);
}

__attribute__((format(printf, 2, 3))) static void reason_add(struct expire_verdict *v, const char *fmt, ...)
{
    size_t n = strlen(v->why);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(v->why + n, sizeof v->why - n, fmt, ap);
    va_end(ap);
}

static const char *const too_old[RETENTION_KINDS] = {NULL, "hourly", "daily", "weekly", "monthly", "annual"};
static const char *const periods[RETENTION_KINDS] = {NULL, "hour", "day", "week", "month", "year"};

static void reason_not_kept(struct expire_verdict *v, const struct retention_item *it, const struct retention_policy *p)
{
    const int keep[RETENTION_KINDS] = {p->latest, p->hourly, p->daily, p->weekly, p->monthly, p->annual};
    const char *between = "";
    if (it->missed[RETENTION_LATEST] == RETENTION_TOO_OLD) {
        reason_add(v, "not among the newest %d", keep[RETENTION_LATEST]);
        between = "; ";
    }
    bool first = true;
    for (int k = RETENTION_HOURLY; k < RETENTION_KINDS; k++) {
        if (it->missed[k] != RETENTION_TOO_OLD)
            continue;
        reason_add(v, "%s%d %s", first ? *between ? "; older than " : "older than " : ", ", keep[k], too_old[k]);
        first = false;
        between = "; ";
    }
    first = true;
    for (int k = RETENTION_HOURLY; k < RETENTION_KINDS; k++) {
        if (it->missed[k] != RETENTION_STOOD_FOR)
            continue;
        reason_add(v, "%s%s%s", first ? between : ", ", first ? "a newer snapshot is kept for the " : "", periods[k]);
        first = false;
    }
}

static void snapshot_judge(struct expire_verdict *v, const struct retention_item *it, bool last_good,
                           const struct retention_policy *p)
{
    v->keep = it->n_reasons || v->pinned || last_good;
    v->why[0] = '\0';
    for (unsigned i = 0; i < it->n_reasons; i++)
        reason_add(v, "%s%s", i ? ", " : "", it->reasons[i]);
    if (v->pinned)
        reason_add(v, "%spinned", *v->why ? ", " : "");
    if (!*v->why && last_good)
        reason_add(v, "the newest complete one");
    else if (!v->keep && v->incomplete)
        reason_add(v, "incomplete, and a newer or a complete one exists");
    else if (!v->keep)
        reason_not_kept(v, it, p);
    if (!*v->why)
        reason_add(v, "keep limits are 0");
}

struct group {
    struct seen_snapshot *list;
    size_t n;
    struct snapshot_source source;
    struct retention_policy keep;
    struct retention_origin origin;
};

static int source_judge(struct group *g, const struct expire_opts *o, expire_fn *fn, void *arg,
                        struct expire_result *res, struct err *e)
{
    struct retention_item *items CLEANUP_FREE = calloc(g->n, sizeof *items);
    if (!items)
        return err_nomem(e);
    for (size_t i = 0; i < g->n; i++) {
        items[i] = (struct retention_item){.start_ns = g->list[i].start_ns,
                                           .end_ns = g->list[i].end_ns,
                                           .incomplete = g->list[i].incomplete,
                                           .pinned = g->list[i].pinned};
    }
    int rc = retention_apply(&g->keep, items, g->n, o->tz, e);
    bool complete_seen = false;
    for (size_t i = 0; i < g->n && rc == 0; i++) {
        struct seen_snapshot *s = &g->list[i];
        struct expire_verdict v = {.source = &g->source,
                                   .volume = s->source->volume ? s->source->volume : "",
                                   .policy = &g->keep,
                                   .origin = &g->origin,
                                   .start_ns = s->start_ns,
                                   .end_ns = s->end_ns,
                                   .size = s->size,
                                   .incomplete = s->incomplete,
                                   .pinned = s->pinned,
                                   .reasons = (const char(*)[24])items[i].reasons,
                                   .n_reasons = items[i].n_reasons};
        v.operation = s->operation ? s->operation : "";
        hex_encode(v.id, s->id, 16);
        snapshot_judge(&v, &items[i], !s->incomplete && !complete_seen, &g->keep);
        complete_seen |= !s->incomplete;
        s->goes = !v.keep;
        res->kept += v.keep;
        res->expired += !v.keep;
        rc = fn ? fn(&v, arg) : 0;
    }
    return rc;
}

static int sources_judge(struct repo *r, struct plan *p, expire_fn *fn, void *arg, struct expire_result *res,
                         struct err *e)
{
    CLEANUP(policies_freep) struct policies *policies = NULL;
    CLEANUP_FREE struct group *g = malloc(sizeof *g);
    if (!g)
        return err_nomem(e);
    int rc = p->o->keep || !p->seen.n ? 0 : policies_load(&policies, r, e);
    for (size_t at = 0; at < p->seen.n && rc == 0; at += g->n) {
        *g = (struct group){.list = p->seen.list + at,
                            .n = seen_group(&p->seen, at),
                            .origin = {"given", "given", "given", "given", "given", "given"}};
        seen_source_get(p->seen.list[at].source, &g->source);
        res->sources++;
        if (p->o->keep)
            g->keep = *p->o->keep;
        else
            rc = policies_effective(policies, &g->source, &g->keep, &g->origin, e);
        if (rc == 0)
            rc = source_judge(g, p->o, fn, arg, res, e);
    }
    return rc;
}

static void plan_fini(struct plan *p)
{
    seen_fini(&p->seen);
}

int snapshots_expire(struct repo *r, const struct expire_opts *o, expire_fn *fn, void *arg, struct expire_result *res,
                     struct err *e)
{
    struct plan p CLEANUP(plan_fini) = {.o = o};
    struct expire_result done = {0};
    int rc = snapshots_each(r, o->source, false, snapshots_collect, &p, &done.unreadable, e);
    if (rc < 0)
        return rc;
    seen_sort(&p.seen);
    rc = sources_judge(r, &p, fn, arg, &done, e);
    if (rc == 0 && !o->dry_run && done.expired)
        rc = seen_delete(r, &p.seen, e);
    if (rc == 0 && res)
        *res = done;
    return rc;
}
