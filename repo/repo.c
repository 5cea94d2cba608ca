/* SPDX-License-Identifier: GPL-2.0-or-later */
/* repo.c - an open repository: format, keys, index, cache directory, identity; refreshed while it is open */
#include "repo/repo-impl.h"
#include "repo/epoch.h"
#include "repo/index-cache.h"
#include "repo/item.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/time.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* R3, R10 (section 14.8): neither may be older than 15 minutes when it is relied on. It is renewed by the first
 * caller of the last minutes, so that nothing has to wait at the limit. */
#define FRESH_LIMIT_NS (15 * NS_PER_MIN)
#define FRESH_RENEW_NS (12 * NS_PER_MIN)

#define FORMAT_BLOB_LIMIT (4u << 20)

int grown_fit(struct grown *g, size_t len, struct err *e)
{
    if (len <= g->cap && g->data)
        return 0;
    size_t cap = len < 4096 ? 4096 : len;
    free(g->data); /* the old contents are not needed: no copying */
    g->cap = 0;
    g->data = malloc(cap);
    if (!g->data)
        return err_nomem(e);
    g->cap = cap;
    return 0;
}

void repo_memory(struct repo *r, uint64_t cap)
{
    r->memory_cap = cap;
    atomic_store(&r->refused, 0);
}

int repo_hold(struct repo *r, uint64_t bytes, struct err *e)
{
    const uint64_t now = atomic_fetch_add(&r->held, bytes) + bytes;
    if (!r->memory_cap || now <= r->memory_cap)
        return 0;
    repo_release(r, bytes);
    atomic_store(&r->refused, now);
    err_set(e, ERR_MEMORY, 0, "%llu MiB at a time do not fit into the memory budget",
            (unsigned long long)((bytes + (1u << 20) - 1) >> 20));
    return -ENOMEM;
}

void repo_release(struct repo *r, uint64_t bytes)
{
    atomic_fetch_sub(&r->held, bytes);
}

uint64_t repo_refused(const struct repo *r)
{
    return atomic_load(&r->refused);
}

int make_dirs(const char *path, struct err *e)
{
    CLEANUP_FREE char *p = strdup(path);
    if (!p)
        return err_nomem(e);
    for (char *s = p + 1;; s++) {
        if (*s != '/' && *s != '\0')
            continue;
        char c = *s;
        *s = '\0';
        if (mkdir(p, 0700) < 0 && errno != EEXIST) {
            int sys = errno;
            struct stat st;
            /* On read-only and protected file systems existing directories may fail with another errno than EEXIST. */
            if (stat(p, &st) < 0 || !S_ISDIR(st.st_mode))
                return err_set(e, ERR_GENERIC, sys, "cannot create directory %s", p);
        }
        if (c == '\0')
            return 0;
        *s = c;
    }
}

static int default_cache_dir(char **ret, struct err *e)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (xdg && xdg[0] == '/')
        n = asprintf(ret, "%s/snapferry", xdg);
    else if (geteuid() == 0 || !home || home[0] != '/')
        n = asprintf(ret, "/var/cache/snapferry");
    else
        n = asprintf(ret, "%s/.cache/snapferry", home);
    if (n < 0) {
        *ret = NULL;
        return err_nomem(e);
    }
    return 0;
}

int repo_cache_base(const char *dir, char **ret, struct err *e)
{
    CLEANUP_FREE char *base = NULL;
    int rc = 0;
    if (!dir)
        rc = default_cache_dir(&base, e);
    else if (!(base = strdup(dir)))
        rc = err_nomem(e);
    if (rc >= 0)
        rc = make_dirs(base, e);
    if (rc >= 0)
        *ret = take_ptr(&base);
    return rc;
}

static int open_cache(struct repo *r, const char *dir, struct err *e)
{
    const struct repo_format *f = repo_format(r);
    CLEANUP_FREE char *own = NULL;
    int rc;
    if (!dir) {
        rc = default_cache_dir(&own, e);
        if (rc < 0)
            return rc;
        dir = own;
    }
    char id[2 * FORMAT_ID_MAX + 1];
    hex_encode(id, f->unique_id, f->unique_id_len);
    /* What is found damaged or missing in the past says nothing of what is there now. */
    if (asprintf(&r->cache_dir, "%s/%s%s", dir, blobs_are_past(r->blobs) ? "past/" : "", id) < 0) {
        r->cache_dir = NULL;
        return err_nomem(e);
    }
    rc = make_dirs(r->cache_dir, e);
    if (rc < 0) {
        err_wrap(e, "cache directory not usable");
        if (e && e->cls == ERR_GENERIC)
            e->cls = ERR_PERMISSION;
        cache_hint(e);
        return rc;
    }
    if (access(r->cache_dir, W_OK | X_OK) < 0) {
        rc = err_set(e, ERR_PERMISSION, errno, "cache directory %s is not writable", r->cache_dir);
        cache_hint(e);
        return rc;
    }
    return 0;
}

static char *short_hostname(void)
{
    char name[256];
    if (gethostname(name, sizeof name) < 0)
        strcpy(name, "localhost");
    name[sizeof name - 1] = '\0';
    name[strcspn(name, ".")] = '\0';
    for (char *p = name; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    return strdup(name[0] ? name : "localhost");
}

static int format_replace(struct repo *r, struct repo_format *f, struct err *e)
{
    struct repo_format **all = realloc(r->formats, (r->n_formats + 1) * sizeof *all);
    if (!all) {
        format_free(f);
        return err_nomem(e);
    }
    r->formats = all;
    r->formats[r->n_formats++] = f;
    atomic_store(&r->format, f);
    blobs_retain(r->blobs, f->retention_mode, f->retention_period_ns);
    atomic_store(&r->format_checked_ns, f->loaded_ns);
    return 0;
}

/* ---- metadata of object storage ---- */

#define METADATA_SHARE 16 /* of the cache's limit */
#define METADATA_MAX (UINT64_C(64) << 20)
#define METADATA_OWN_MAX (UINT64_C(4) << 20) /* of one process */

static bool has_metadata_cache(const struct repo *r)
{
    return !blobs_are_files(r->blobs) && !blobs_are_past(r->blobs);
}

static uint64_t metadata_share(const struct repo *r)
{
    const uint64_t share = r->cache_cap / METADATA_SHARE;
    return share < METADATA_MAX ? share : METADATA_MAX;
}

/* The index comes first: without it nothing can be read. */
static bool index_leaves_room(struct repo *r)
{
    struct index_set_stats st;
    index_set_stats(r->index, &st);
    return st.cache_bytes <= r->cache_cap && r->cache_cap - st.cache_bytes >= metadata_share(r);
}

static void open_metadata_cache(struct repo *r, bool shared)
{
    const uint64_t share = metadata_share(r);
    if (!index_leaves_room(r)) {
        struct metadata_cache *m = metadata_cache_open(r->cache_dir, true, METADATA_MAX);
        if (m)
            metadata_cache_drop(m);
        metadata_cache_free(m);
        return;
    }
    r->metadata =
        metadata_cache_open(r->cache_dir, shared, shared || share < METADATA_OWN_MAX ? share : METADATA_OWN_MAX);
}

struct metadata_cache *repo_metadata_cache(struct repo *r, const struct content_id *id)
{
    if (!r->metadata || !id->prefix)
        return NULL;
    if (index_leaves_room(r))
        return r->metadata;
    metadata_cache_drop(r->metadata);
    return NULL;
}

/* Of a store far away, while the key is derived. After the format was read: what an upgrade has written is in it, then.
 */
struct listing_ahead {
    struct blobs *blobs;
    struct epoch_ahead *list;
};

static void list_ahead(void *arg)
{
    struct listing_ahead *a = arg;
    epoch_ahead_free(a->list);
    a->list = blobs_are_files(a->blobs) || blobs_are_past(a->blobs) ? NULL : epoch_ahead_new(a->blobs);
}

static void listing_ahead_end(struct listing_ahead *a)
{
    epoch_ahead_free(a->list);
}

static int open_parts(struct repo *r, const char *password, const struct repo_opts *o, struct err *e)
{
    struct repo_format *f = NULL;
    CLEANUP(listing_ahead_end) struct listing_ahead ahead = {.blobs = r->blobs};
    r->key_given = o->key && format_load_with_key(&f, r->blobs, o->key, NULL) == 0;
    int rc = r->key_given ? 0 : format_load_and(&f, r->blobs, password, list_ahead, &ahead, e);
    if (rc < 0)
        return rc;
    rc = format_replace(r, f, e);
    if (rc < 0)
        return rc;
    r->username = strdup(o->username ? o->username : "snapferry");
    r->hostname = o->hostname ? strdup(o->hostname) : short_hostname();
    if (!r->username || !r->hostname)
        return err_nomem(e);
    rc = sealer_new(&r->sealer, f, e);
    if (rc < 0)
        return rc;
    rc = open_cache(r, o->cache_dir, e);
    if (rc == 0)
        rc = damage_open(r, e);
    if (rc < 0)
        return rc;
    CLEANUP_FREE char *dir = NULL;
    if (asprintf(&dir, "%s/indexes", r->cache_dir) < 0) {
        dir = NULL;
        return err_nomem(e);
    }
    r->cache_cap = o->cache_cap ? o->cache_cap : UINT64_C(5) << 30;
    struct index_set_opts io = {
        .cache_dir = dir,
        .cache_cap = r->cache_cap,
        .cache_spare = has_metadata_cache(r) ? metadata_share(r) : 0,
        .mapped_cap = o->mapped_cap ? o->mapped_cap : UINT64_C(64) << 20,
        .damaged = o->damaged,
        .ahead = ahead.list,
    };
    rc = index_set_open(&r->index, r->blobs, r->sealer, f, &io, e);
    if (rc == 0 && !o->damaged && has_metadata_cache(r))
        open_metadata_cache(r, o->cached_metadata);
    return rc;
}

int repo_open(struct repo **ret, struct blobs *b, const char *password, const struct repo_opts *o, struct err *e)
{
    static const struct repo_opts defaults = {0};
    struct repo *r = calloc(1, sizeof *r);
    if (!r) {
        blobs_free(b);
        return err_nomem(e);
    }
    r->blobs = b;
    atomic_init(&r->skew_ns, SKEW_UNKNOWN);
    pthread_mutex_init(&r->damaged_lock, NULL);
    pthread_mutex_init(&r->fresh_lock, NULL);
    pthread_rwlock_init(&r->sessions_lock, NULL);
    int rc = (r->expanded = expanded_new()) ? open_parts(r, password, o ? o : &defaults, e) : err_nomem(e);
    if (rc < 0) {
        repo_free(r);
        return rc;
    }
    *ret = r;
    return 0;
}

bool repo_key_given(const struct repo *r)
{
    return r->key_given;
}

void repo_free(struct repo *r)
{
    if (!r)
        return;
    damage_close(r);
    pack_set_free(r->packs);
    expanded_free(r->expanded);
    metadata_cache_free(r->metadata);
    index_set_free(r->index);
    sealer_free(r->sealer);
    for (size_t i = 0; i < r->n_formats; i++)
        format_free(r->formats[i]);
    free(r->formats);
    free(r->username);
    free(r->hostname);
    free(r->cache_dir);
    blobs_free(r->blobs);
    pthread_mutex_destroy(&r->damaged_lock);
    pthread_mutex_destroy(&r->fresh_lock);
    pthread_rwlock_destroy(&r->sessions_lock);
    free(r);
}

struct blobs *repo_blobs(struct repo *r)
{
    return r->blobs;
}

const struct repo_format *repo_format(const struct repo *r)
{
    return atomic_load_explicit(&((struct repo *)r)->format, memory_order_acquire);
}

const struct sealer *repo_sealer(const struct repo *r)
{
    return r->sealer;
}

struct index_set *repo_index(struct repo *r)
{
    return r->index;
}

struct expanded *repo_expanded(struct repo *r)
{
    return r->expanded;
}

const char *repo_cache_dir(const struct repo *r)
{
    return r->cache_dir;
}

void repo_note_skew(struct repo *r, int64_t ns)
{
    atomic_store(&r->skew_ns, ns);
}

bool repo_clock_skew(struct repo *r, int64_t *ns)
{
    *ns = atomic_load(&r->skew_ns);
    return *ns != SKEW_UNKNOWN;
}

/* Parameters that must not change while a repository is open: data already read or written would not match. */
static bool same_repository(const struct repo_format *a, const struct repo_format *b)
{
    return a->unique_id_len == b->unique_id_len && !memcmp(a->unique_id, b->unique_id, a->unique_id_len) &&
           a->master_key_len == b->master_key_len && !memcmp(a->master_key, b->master_key, a->master_key_len) &&
           a->secret_len == b->secret_len && !memcmp(a->secret, b->secret, a->secret_len) &&
           !strcmp(a->hash, b->hash) && !strcmp(a->encryption, b->encryption) && a->ecc_percent == b->ecc_percent;
}

static int check_format(struct repo *r, struct err *e)
{
    const struct repo_format *f = repo_format(r);
    CLEANUP_FREE uint8_t *blob = NULL;
    size_t len;
    int64_t now = now_ns();
    int rc = blobs_get(r->blobs, "kopia.repository", FORMAT_BLOB_LIMIT, &blob, &len, e);
    if (rc < 0)
        return err_wrap(e, "cannot read the repository's format again");
    /* Every change seals the document with a new nonce, so equal bytes are an unchanged format. Otherwise it is
     * opened with the present key: deriving one would take 64 MiB during a run, and the password in memory. */
    if (len == f->blob_len && !memcmp(blob, f->blob, len)) {
        atomic_store(&r->format_checked_ns, now);
        return 0;
    }
    struct repo_format *changed = NULL;
    rc = format_reload(&changed, f, r->blobs, e);
    if (rc < 0)
        return err_wrap(e, "the repository's format was changed");
    if (!same_repository(f, changed) || f->version != changed->version ||
        f->epochs.enabled != changed->epochs.enabled) {
        format_free(changed);
        rc = err_set(e, ERR_BUSY, EBUSY, "the repository at %s was replaced or upgraded while it was in use",
                     blobs_location(r->blobs));
        err_hint(e, "run the command again");
        return rc;
    }
    return format_replace(r, changed, e);
}

/* A clock that was set back makes ages meaningless: times in the future count as too old. */
static bool is_older_than(int64_t then, int64_t limit)
{
    int64_t now = now_ns();
    return now - then > limit || then - now > NS_PER_MIN;
}

int repo_keep_fresh(struct repo *r, struct err *e)
{
    const struct repo_format *f = repo_format(r);
    /* A lock with advance notice takes effect without a change of the document. */
    if (f->lock.present && upgrade_lock_locked(&f->lock, now_ns())) {
        int rc = err_set(e, ERR_BUSY, EBUSY, "the repository at %s is being upgraded by %s", blobs_location(r->blobs),
                         f->lock.owner);
        err_hint(e, "retry when the upgrade is complete");
        return rc;
    }
    if (!is_older_than(atomic_load(&r->format_checked_ns), FRESH_RENEW_NS) &&
        !is_older_than(index_set_loaded_ns(r->index), FRESH_RENEW_NS))
        return 0;
    if (pthread_mutex_trylock(&r->fresh_lock) != 0) {
        if (!is_older_than(atomic_load(&r->format_checked_ns), FRESH_LIMIT_NS) &&
            !is_older_than(index_set_loaded_ns(r->index), FRESH_LIMIT_NS))
            return 0;
        pthread_mutex_lock(&r->fresh_lock);
    }
    int rc = 0;
    if (is_older_than(atomic_load(&r->format_checked_ns), FRESH_RENEW_NS))
        rc = check_format(r, e);
    if (rc == 0 && is_older_than(index_set_loaded_ns(r->index), FRESH_RENEW_NS))
        rc = index_set_refresh(r->index, e);
    pthread_mutex_unlock(&r->fresh_lock);
    return rc;
}
