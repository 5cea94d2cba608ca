/* SPDX-License-Identifier: GPL-2.0-or-later */
/* blob-s3.c - the operations of an S3 store */
#include "repo/blob-s3.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/time.h"
#include "repo/repo-impl.h"
#include "repo/s3-call.h"
#include "repo/s3-class.h"
#include "repo/s3-past.h"
#include "repo/s3-put.h"
#include "repo/s3-target.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define STALL_S 60
#define CONNECT_S 15
#define HURRY_S 10
#define TRIES 8
#define PAUSE_MS 200
#define UPLOADS 5
#define TOLD_MAX 1000                           /* questions of one list about what other processes have told */
#define KEYS_BYTES (2 * sizeof(struct s3_keys)) /* s3-call.h */

static struct s3_store *store_of(struct blobs *b)
{
    return (struct s3_store *)b;
}

static void describe(char out[400], const char *verb, const struct s3_store *s, const char *name)
{
    snprintf(out, 400, "%s %s in %s", verb, name ? name : "the blobs", s->base.location);
}

/* ---- reading ---- */

struct reading {
    uint8_t *to;
    size_t len, at;
    uint64_t offset;
    bool upto; /* the blob may end before */
};

static int sink_range(struct s3_exchange *x, const void *data, size_t len)
{
    struct reading *r = x->arg;
    /* A server that ignores Range sends the object from its beginning: as good if that is wanted, and all of it. */
    const bool whole = x->status == 200 && r->upto && r->offset == 0;
    if ((x->status != 206 || x->range_from != (int64_t)r->offset) && !whole)
        return -EBADMSG;
    if (len > r->len - r->at)
        return -EBADMSG;
    memcpy(r->to + r->at, data, len);
    r->at += len;
    return 0;
}

static int shorter(const struct s3_store *s, const char *name, uint64_t offset, size_t len, struct err *e)
{
    return err_set(e, ERR_DAMAGE, EBADMSG, "blob %s of repository %s is shorter than %llu bytes", name,
                   s->base.location, (unsigned long long)(offset + len));
}

static int restart_range(void *arg)
{
    ((struct reading *)arg)->at = 0;
    return 0;
}

/* One range, once more if what came is not what was asked. */
static int read_range(struct s3_store *s, const char *name, struct reading *r, struct err *e)
{
    char what[400];
    describe(what, "read blob", s, name);
    char version[S3_PAST_QUERY];
    int rc = s3_past_query(s, name, version, e);
    for (unsigned n = 1; rc == 0; n++) {
        struct s3_call q = {.s = s, .method = "GET", .name = name, .query = version, .restart = restart_range};
        q.x.sink = sink_range;
        q.x.arg = r;
        snprintf(q.range, sizeof q.range, "bytes=%llu-%llu", (unsigned long long)r->offset,
                 (unsigned long long)(r->offset + r->len - 1));
        rc = s3_call(&q, e);
        if (rc < 0)
            return rc;
        if (s3_missing(&q))
            return blob_missing(&s->base, name, e);
        const bool ends_before =
            q.x.status == 206 && q.x.range_total >= 0 && (uint64_t)q.x.range_total < r->offset + r->len;
        if (q.result == S3_ANSWERED && (q.x.status == 416 || (ends_before && !r->upto)))
            return shorter(s, name, r->offset, r->len, e);
        const bool all = r->upto && ((ends_before && r->offset + r->at == (uint64_t)q.x.range_total) ||
                                     (q.x.status == 200 && q.x.content_length == (int64_t)r->at));
        if (s3_succeeded(&q) && (r->at == r->len || all))
            return 0;
        if (q.result != S3_SINK && !s3_succeeded(&q))
            return s3_call_failed(&q, what, e);
        if (n >= 3)
            return err_set(e, ERR_GENERIC, 0, "cannot %s: %s does not answer with the range that was asked for", what,
                           s->host);
    }
    return rc;
}

static int s3_read(struct blobs *b, const char *name, uint64_t offset, void *dst, size_t len, struct err *e)
{
    struct s3_store *s = store_of(b);
    struct blob_info i;
    if (len == 0) { /* it must exist all the same */
        const int rc = b->ops->stat(b, name, &i, e);
        return rc < 0 ? rc : offset > i.length ? shorter(s, name, offset, len, e) : 0;
    }
    struct reading r = {.to = dst, .len = len, .offset = offset};
    return read_range(s, name, &r, e);
}

static int s3_read_upto(struct blobs *b, const char *name, uint64_t offset, void *dst, size_t len, size_t *got,
                        struct err *e)
{
    struct reading r = {.to = dst, .len = len, .offset = offset, .upto = true};
    const int rc = read_range(store_of(b), name, &r, e);
    *got = r.at;
    return rc;
}

struct getting {
    uint8_t *data;
    size_t len, cap, max;
    bool too_long, no_memory, part;
};

static int sink_whole(struct s3_exchange *x, const void *data, size_t len)
{
    struct getting *g = x->arg;
    if (x->status != 200) { /* a cache in between has had a part of it */
        g->part = true;
        return -EBADMSG;
    }
    if (x->content_length > 0 && (uint64_t)x->content_length > g->max)
        g->too_long = true;
    if (g->too_long || len > g->max - g->len) {
        g->too_long = true;
        return -EFBIG;
    }
    if (len >= g->cap - g->len) { /* room for a NUL */
        size_t cap = x->content_length > 0 && !g->cap ? (size_t)x->content_length + 1 : 2 * (g->len + len + 1);
        if (cap <= g->len + len)
            cap = g->len + len + 1;
        uint8_t *more = realloc(g->data, cap);
        if (!more) {
            g->no_memory = true;
            return -ENOMEM;
        }
        g->data = more;
        g->cap = cap;
    }
    memcpy(g->data + g->len, data, len);
    g->len += len;
    return 0;
}

static int restart_whole(void *arg)
{
    ((struct getting *)arg)->len = 0;
    return 0;
}

/* What has no length of its own may end anywhere. */
static int is_all(struct s3_store *s, const char *name, const struct s3_call *q, size_t len, struct err *e)
{
    struct blob_info i = {.length = len};
    const int rc = q->x.content_length < 0 ? s->base.ops->stat(&s->base, name, &i, e) : 0;
    return rc < 0 ? rc : i.length == len;
}

static int get_whole(struct s3_store *s, const char *name, struct getting *g, struct err *e)
{
    char what[400];
    describe(what, "read blob", s, name);
    char version[S3_PAST_QUERY];
    int rc = s3_past_query(s, name, version, e);
    if (rc < 0)
        return rc;
    for (unsigned n = 1;; n++) {
        struct s3_call q = {.s = s, .method = "GET", .name = name, .query = version, .restart = restart_whole};
        q.x.sink = sink_whole;
        q.x.arg = g;
        g->part = false;
        rc = s3_call(&q, e);
        if (rc < 0)
            return rc;
        if (g->too_long)
            return err_set(e, ERR_DAMAGE, EBADMSG, "blob %s of repository %s has more than the expected %zu bytes",
                           name, s->base.location, g->max);
        if (g->no_memory)
            return err_nomem(e);
        if (s3_missing(&q))
            return blob_missing(&s->base, name, e);
        if (!s3_succeeded(&q) && !g->part)
            return s3_call_failed(&q, what, e);
        rc = g->part ? 0 : is_all(s, name, &q, g->len, e);
        if (rc != 0)
            return rc < 0 ? rc : 0;
        if (n >= 3)
            return err_set(e, ERR_GENERIC, 0, "cannot %s: %s does not answer with all of it", what, s->host);
    }
}

static int s3_get(struct blobs *b, const char *name, size_t max, uint8_t **ret, size_t *len, struct err *e)
{
    struct getting g = {.max = max};
    int rc = get_whole(store_of(b), name, &g, e);
    if (rc == 0 && !g.data && !(g.data = malloc(1)))
        rc = err_nomem(e);
    if (rc < 0) {
        free(g.data);
        return rc;
    }
    g.data[g.len] = '\0';
    *ret = g.data;
    *len = g.len;
    return 0;
}

static int sink_nothing(struct s3_exchange *x, const void *data, size_t len)
{
    (void)x, (void)data, (void)len;
    return 0;
}

/* The answer to a HEAD has no document that tells a blob that is missing from a bucket that is, or refused keys from
 * missing rights. 0: it is there after all, and has that length; -1: unknown. */
static int ask_by_get(struct s3_store *s, const char *name, const char *what, int64_t *length, struct err *e)
{
    struct s3_call q = {.s = s, .method = "GET", .name = name, .query = "", .range = "bytes=0-0"};
    q.x.sink = sink_nothing;
    const int rc = s3_call(&q, e);
    if (rc < 0)
        return rc;
    if (s3_missing(&q))
        return blob_missing(&s->base, name, e);
    *length = q.x.status == 416 ? 0 : q.x.status == 206 ? q.x.range_total : q.x.content_length;
    return s3_succeeded(&q) || q.x.status == 416 ? 0 : s3_call_failed(&q, what, e);
}

static int s3_stat(struct blobs *b, const char *name, struct blob_info *ret, struct err *e)
{
    struct s3_store *s = store_of(b);
    char what[400];
    describe(what, "look at blob", s, name);
    struct s3_call q;
    int64_t length;
    for (unsigned n = 1;; n++) {
        q = (struct s3_call){.s = s, .method = "HEAD", .name = name, .query = ""};
        int rc = s3_call(&q, e);
        if (rc < 0)
            return rc;
        if (s3_succeeded(&q))
            break;
        if ((rc = ask_by_get(s, name, what, &length, e)) < 0)
            return rc;
        if (n >= 3)
            return s3_call_failed(&q, what, e);
    }
    length = q.x.content_length;
    const int rc = length < 0 ? ask_by_get(s, name, what, &length, e) : 0;
    if (rc < 0)
        return rc;
    if (length < 0)
        return err_set(e, ERR_GENERIC, 0, "cannot %s: the response of %s has no length", what, s->host);
    snprintf(ret->name, sizeof ret->name, "%s", name);
    ret->length = (uint64_t)length;
    ret->mtime_ns = q.x.modified_ns;
    return 0;
}

/* ---- writing ---- */

static int s3_delete(struct blobs *b, const char *name, struct err *e)
{
    struct s3_store *s = store_of(b);
    char what[400];
    describe(what, "delete blob", s, name);
    struct s3_call q = {.s = s, .method = "DELETE", .name = name, .query = ""};
    const int rc = s3_call(&q, e);
    if (rc < 0)
        return rc;
    if (!s3_succeeded(&q) && !s3_missing(&q))
        return s3_call_failed(&q, what, e);
    const int64_t when = q.x.date_ns ? q.x.date_ns : now_ns();
    s3_journal_add(s->journal, name, 0, when, true);
    if (s3_recent_add(&s->recent, name, 0, when, true) < 0)
        return err_nomem(e);
    return 0;
}

/* ---- lists ---- */

struct listing {
    struct s3_page page;
    struct s3_parser *parser;
    bool malformed;
};

static int restart_page(void *arg)
{
    struct listing *l = arg;
    s3_parser_free(l->parser);
    l->parser = NULL;
    return s3_parser_new(&l->parser, &l->page, NULL);
}

static int sink_page(struct s3_exchange *x, const void *data, size_t len)
{
    struct listing *l = x->arg;
    const int rc = s3_parser_feed(l->parser, data, len);
    l->malformed |= rc == -EBADMSG;
    return rc;
}

static int page_query(const struct s3_store *s, const char *prefix, const char *token, unsigned keys, char out[],
                      size_t cap, struct err *e)
{
    char full[512], encoded[1600], next[3 * S3_TOKEN_MAX + 1];
    if ((size_t)snprintf(full, sizeof full, "%s%s", s->prefix, prefix) >= sizeof full ||
        s3_encode(encoded, sizeof encoded, full, false) < 0 || s3_encode(next, sizeof next, token, false) < 0 ||
        (size_t)snprintf(out, cap, "%s%s%sdelimiter=%%2F&encoding-type=url&list-type=2&max-keys=%u&prefix=%s",
                         *token ? "continuation-token=" : "", next, *token ? "&" : "", keys, encoded) >= cap)
        return err_set(e, ERR_GENERIC, ENAMETOOLONG, "cannot list the blobs in %s: the prefix is too long",
                       s->base.location);
    return 0;
}

/* The next page into l->page. */
static int list_page(struct s3_store *s, const char *prefix, const char *token, unsigned keys, struct listing *l,
                     struct err *e)
{
    char query[3400], what[400];
    describe(what, "list", s, NULL);
    int rc = page_query(s, prefix, token, keys, query, sizeof query, e);
    for (unsigned n = 1; rc == 0; n++) {
        struct s3_call q = {.s = s, .method = "GET", .query = query, .restart = restart_page};
        q.x.sink = sink_page;
        q.x.arg = l;
        l->malformed = false;
        rc = s3_call(&q, e);
        if (rc < 0)
            break;
        const bool came = s3_succeeded(&q);
        const int end = came ? s3_parser_end(l->parser) : 0;
        if (came && end == 0)
            return 0;
        if (end == -ENOMEM)
            return err_nomem(e);
        if (!came && !l->malformed)
            return s3_call_failed(&q, what, e);
        if (n >= 3)
            return err_set(e, ERR_GENERIC, 0, "cannot %s: %s answered with no list of S3", what, s->host);
    }
    return rc;
}

/* As it is now, where the list does not agree with what was done. */
static int list_asked(struct s3_store *s, const struct s3_change *c, blob_list_fn *fn, void *arg, struct err *e)
{
    struct blob_info i;
    struct err own = ERR_INIT;
    const int rc = s3_stat(&s->base, c->name, &i, &own);
    if (rc == -ENOENT) {
        if (!c->told) /* deleted by another client */
            s3_recent_drop(&s->recent, c->name);
        return 0;
    }
    if (rc < 0) {
        if (e)
            *e = own;
        return rc;
    }
    return fn(&i, arg);
}

/* A listed blob. One that was deleted here is none; a later time than that is of a new one. What another process has
 * deleted is asked for. */
static int list_seen(struct s3_store *s, struct s3_change *c, const struct blob_info *i, unsigned *asks,
                     blob_list_fn *fn, void *arg, struct err *e)
{
    if (c)
        c->seen = true;
    if (!c || !c->deleted || i->mtime_ns > c->mtime_ns || (c->told && *asks == 0))
        return fn(i, arg);
    if (!c->told)
        return 0;
    --*asks;
    return list_asked(s, c, fn, arg, e);
}

static int newest_first(const void *a, const void *b)
{
    const int64_t x = ((const struct s3_change *)a)->since_ns, y = ((const struct s3_change *)b)->since_ns;
    return (x < y) - (x > y);
}

/* `own` is in another order afterwards. */
static int list_all(struct s3_store *s, const char *prefix, struct listing *l, struct s3_changes *own, blob_list_fn *fn,
                    void *arg, struct err *e)
{
    char token[S3_TOKEN_MAX + 1] = "";
    unsigned asks = TOLD_MAX;
    struct s3_turns turns = {.pages = 0};
    int rc = 0;
    do {
        rc = list_page(s, prefix, token, S3_PAGE_MAX, l, e);
        if (rc == 0 && l->page.truncated &&
            (!strcmp(token, l->page.token) || s3_turns(&turns, l->page.sum, l->page.empty)))
            rc = err_set(e, ERR_GENERIC, 0, "cannot list the blobs in %s: %s repeats the same page", s->base.location,
                         s->host);
        for (size_t i = 0; rc == 0 && i < l->page.n; i++) {
            const struct blob_info *b = &l->page.blobs[i];
            if (b->name[0] != '.')
                rc = list_seen(s, s3_changes_find(own, b->name), b, &asks, fn, arg, e);
        }
        memcpy(token, l->page.token, sizeof token);
    } while (rc == 0 && l->page.truncated);
    if (own->n)
        qsort(own->all, own->n, sizeof *own->all, newest_first);
    for (size_t i = 0; rc == 0 && i < own->n; i++) {
        const struct s3_change *c = &own->all[i];
        if (c->seen || c->deleted || (c->told && asks == 0))
            continue;
        asks -= c->told;
        rc = list_asked(s, c, fn, arg, e);
    }
    return rc;
}

static void listing_end(struct listing *l)
{
    s3_parser_free(l->parser);
    s3_page_free(&l->page);
}

static int s3_list(struct blobs *b, const char *prefix, blob_list_fn *fn, void *arg, struct err *e)
{
    struct s3_store *s = store_of(b);
    struct s3_changes own;
    CLEANUP(listing_end) struct listing l = {.page = {.prefix = s->prefix}};
    int rc = s3_recent_copy(&s->recent, prefix, &own);
    if (rc == 0)
        rc = s3_journal_merge(s->journal, prefix, &own);
    rc = rc < 0 ? err_nomem(e) : list_all(s, prefix, &l, &own, fn, arg, e);
    s3_changes_free(&own);
    return rc;
}

/* Times of lists and of headers are rounded in different ways. */
static int s3_is_listed(struct blobs *b, const char *name, int64_t mtime_ns, struct err *e)
{
    struct s3_store *s = store_of(b);
    CLEANUP(listing_end) struct listing l = {.page = {.prefix = s->prefix}};
    const int rc = list_page(s, name, "", 2, &l, e);
    for (size_t i = 0; rc == 0 && i < l.page.n; i++)
        if (!strcmp(l.page.blobs[i].name, name))
            return l.page.blobs[i].mtime_ns > mtime_ns - NS_PER_S;
    return rc;
}

/* ---- opening ---- */

static void s3_free(struct blobs *b)
{
    struct s3_store *s = store_of(b);
    s3_http_free(s->http);
    s3_past_free(s->past);
    s3_recent_clear(&s->recent);
    s3_journal_free(s->journal);
    pthread_rwlock_destroy(&s->keys_lock);
    pthread_mutex_destroy(&s->renewing);
    if (s->keys) {
        s3_keys_wipe(s->keys);
        munmap(s->keys, KEYS_BYTES);
    }
    free(s->scheme);
    free(s->host);
    free(s->bucket);
    free(s->prefix);
    free(s->region);
    free(s->credentials);
    s3_spool_free(s->spool);
    s3_summer_free(s->summer);
    s3_classes_free(s->classes);
    free(s);
}

static void s3_retain(struct blobs *b, const char *mode, int64_t period_ns)
{
    struct s3_store *s = store_of(b);
    pthread_rwlock_wrlock(&s->keys_lock);
    snprintf(s->lock_mode, sizeof s->lock_mode, "%s", mode);
    s->lock_ns = period_ns;
    pthread_rwlock_unlock(&s->keys_lock);
}

/* PutObjectRetention. */
static int s3_extend(struct blobs *b, const char *name, struct err *e)
{
    struct s3_store *s = store_of(b);
    struct s3_sums m;
    char what[400], until[TIME_TEXT], body[300];
    describe(what, "extend the lock of blob", s, name);
    pthread_rwlock_rdlock(&s->keys_lock);
    const bool locks = s->lock_mode[0];
    time_text((now_ns() + atomic_load(&s->skew_ns) + s->lock_ns) / NS_PER_S * NS_PER_S + NS_PER_S, until);
    const int len = snprintf(body, sizeof body,
                             "<Retention xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Mode>%s</Mode>"
                             "<RetainUntilDate>%s</RetainUntilDate></Retention>",
                             s->lock_mode, until);
    pthread_rwlock_unlock(&s->keys_lock);
    int rc = locks ? s3_summer_memory(s->summer, body, (size_t)len, &m, e) : 0;
    if (rc < 0 || !locks)
        return rc;
    struct s3_call q = {.s = s, .method = "PUT", .name = name, .query = "retention=", .md5 = m.md5};
    q.body_hash = s->tls ? NULL : m.sha;
    q.x.has_body = true;
    q.x.data = body;
    q.x.fd = -1;
    q.x.length = (uint64_t)len;
    rc = s3_call(&q, e);
    if (rc < 0)
        return rc;
    if (s3_missing(&q))
        return blob_missing(&s->base, name, e);
    return s3_succeeded(&q) ? 0 : s3_call_failed(&q, what, e);
}

struct lock_answer {
    char text[1024];
    size_t len;
};

static int restart_lock_answer(void *arg)
{
    ((struct lock_answer *)arg)->len = 0;
    return 0;
}

/* The beginning says it. A service that does not know the question may answer another one. */
static int sink_lock_answer(struct s3_exchange *x, const void *data, size_t len)
{
    struct lock_answer *a = x->arg;
    const size_t n = len < sizeof a->text - 1 - a->len ? len : sizeof a->text - 1 - a->len;
    memcpy(a->text + a->len, data, n);
    a->len += n;
    return 0;
}

/* GetObjectLockConfiguration. */
static int s3_takes_locks(struct blobs *b, struct err *e)
{
    struct s3_store *s = store_of(b);
    struct lock_answer a = {.len = 0};
    char what[400];
    snprintf(what, sizeof what, "read whether %s has object locks", s->base.location);
    struct s3_call q = {.s = s, .method = "GET", .query = "object-lock=", .restart = restart_lock_answer};
    q.x.sink = sink_lock_answer;
    q.x.arg = &a;
    const int rc = s3_call(&q, e);
    if (rc < 0)
        return rc;
    if (q.x.status == 403 && !strcmp(q.error.code, "AccessDenied")) {
        err_plain(e, ERR_PERMISSION, EACCES, "the key lacks the right s3:GetBucketObjectLockConfiguration");
        return -EACCES;
    }
    if (q.x.status == 400 || q.x.status == 404 || q.x.status == 405 || q.x.status == 501)
        return 0;
    if (!s3_succeeded(&q))
        return s3_call_failed(&q, what, e);
    a.text[a.len] = '\0';
    return strstr(a.text, "<ObjectLockEnabled>Enabled<") != NULL;
}

static int s3_prepare(struct blobs *b, struct err *e)
{
    return s3_classes_read(store_of(b), e);
}

/* As any answer shows it. */
static int s3_clock(struct blobs *b, int64_t *ns, struct err *e)
{
    struct s3_store *s = store_of(b);
    struct s3_call q = {.s = s, .method = "HEAD", .name = "kopia.repository", .query = ""};
    const int rc = s3_call(&q, e);
    if (rc < 0)
        return rc;
    if (!s3_succeeded(&q) || !q.x.date_ns)
        return err_set(e, ERR_GENERIC, 0, "cannot determine the time of %s", s->base.location);
    *ns = q.x.date_ns;
    return 0;
}

static const struct blobs_ops s3_ops = {
    .free = s3_free,
    .read = s3_read,
    .read_upto = s3_read_upto,
    .get = s3_get,
    .stat = s3_stat,
    .put = s3_put,
    .del = s3_delete,
    .list = s3_list,
    .is_listed = s3_is_listed,
    .prepare = s3_prepare,
    .writer_new = s3_writer_new,
    .writer_write = s3_writer_write,
    .writer_read = s3_writer_read,
    .writer_commit = s3_writer_commit,
    .writer_abort = s3_writer_abort,
    .retain = s3_retain,
    .extend = s3_extend,
    .takes_locks = s3_takes_locks,
    .clock = s3_clock,
    .paced = true,
};

/* Of a view of the past: reads are those of any bucket, by the version. */
static const struct blobs_ops s3_past_ops = {
    .free = s3_free,
    .read = s3_read,
    .read_upto = s3_read_upto,
    .get = s3_get,
    .stat = s3_past_stat,
    .put = s3_past_put,
    .del = s3_past_delete,
    .list = s3_past_list,
    .writer_new = s3_past_writer_new,
    .paced = true,
};

/* "https", and what follows it. */
static const char *host_of(const char *endpoint, const char **scheme)
{
    const char *rest = strstr(endpoint, "://");
    *scheme = rest && !strncmp(endpoint, "http:", 5) ? "http" : "https";
    return rest ? rest + 3 : endpoint;
}

static int bad_endpoint(const char *endpoint, struct err *e)
{
    err_set(e, ERR_USAGE, EINVAL, "invalid endpoint \"%.200s\"", endpoint);
    return err_hint(e,
                    "use https://HOST or https://HOST:PORT (http:// without encryption); the bucket has a key of its "
                    "own");
}

int s3_place_check(const struct s3_place *p, struct err *e)
{
    const char *scheme, *host = host_of(p->endpoint, &scheme);
    size_t len = strlen(host);
    if (len > 0 && host[len - 1] == '/')
        len--;
    if (len == 0 || len > 200 ||
        (host != p->endpoint && strncmp(p->endpoint, "http://", 7) != 0 && strncmp(p->endpoint, "https://", 8) != 0) ||
        strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]") < len)
        return bad_endpoint(p->endpoint, e);
    const size_t bucket = strlen(p->bucket);
    /* The colon: tenants of Ceph. */
    if (bucket == 0 || bucket > 128 ||
        strspn(p->bucket, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:") < bucket)
        return err_set(e, ERR_USAGE, EINVAL, "invalid name of a bucket \"%.200s\"", p->bucket);
    if (strlen(p->prefix) > 200 || p->prefix[0] == '/' || strstr(p->prefix, "//") || strstr(p->prefix, "..")) {
        err_set(e, ERR_USAGE, EINVAL, "invalid prefix \"%.220s\"", p->prefix);
        return err_hint(e, "a prefix does not begin with a slash, and mostly ends with one: prefix = backups/");
    }
    return 0;
}

/* The host of its URLs, with the port. */
static int place_host(const struct s3_place *p, const char **scheme, char ret[512])
{
    const char *host = host_of(p->endpoint, scheme);
    const int n = snprintf(ret, 512, "%s%s%.*s", p->virtual_host ? p->bucket : "", p->virtual_host ? "." : "",
                           (int)strcspn(host, "/"), host);
    return n < 512 ? 0 : -ENAMETOOLONG;
}

unsigned s3_place_targets(const struct s3_place *p, struct s3_target ret[S3_TARGETS_MAX])
{
    const char *scheme;
    char host[512];
    return place_host(p, &scheme, host) < 0 ? 0 : s3_targets(ret, scheme, host);
}

/* "a" and "b" in one new string. */
static bool text_set(char **to, const char *a, const char *b)
{
    if (asprintf(to, "%s%s", a, b) >= 0)
        return true;
    *to = NULL;
    return false;
}

static int set_names(struct s3_store *s, const struct s3_place *p, struct err *e)
{
    const char *scheme, *host = host_of(p->endpoint, &scheme);
    const int host_len = (int)strcspn(host, "/");
    char full[512];
    if (place_host(p, &scheme, full) < 0)
        return err_set(e, ERR_USAGE, ENAMETOOLONG, "the name of the host of %.200s is too long", p->endpoint);
    s->tls = !strcmp(scheme, "https");
    s->dotted = s->tls && p->virtual_host && strchr(p->bucket, '.');
    s->tries = p->tries ? p->tries : TRIES;
    s->pause_ms = p->pause_ms ? p->pause_ms : PAUSE_MS;
    bool ok = text_set(&s->host, full, "") && text_set(&s->scheme, scheme, "") && text_set(&s->prefix, p->prefix, "") &&
              text_set(&s->region, *p->region ? p->region : "us-east-1", "") &&
              (!p->credentials || text_set(&s->credentials, p->credentials, ""));
    if (ok && !p->virtual_host)
        ok = text_set(&s->bucket, p->bucket, "");
    if (ok && asprintf(&s->base.location, "%s://%.*s/%s%s%s", scheme, host_len, host, p->bucket, *p->prefix ? "/" : "",
                       p->prefix) < 0) {
        s->base.location = NULL;
        ok = false;
    }
    return ok ? 0 : err_nomem(e);
}

static int file_renew(struct s3_keys *ret, void *arg)
{
    const struct s3_store *s = arg;
    struct err unread = ERR_INIT; /* as good as unchanged */
    return s3_keys_read(ret, s->credentials, &unread);
}

static int set_keys(struct s3_store *s, const struct s3_place *p, struct err *e)
{
    void *memory = mmap(NULL, KEYS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return err_nomem(e);
    s->keys = memory;
    /* Neither in a core dump nor, where that is permitted, in swap. */
    madvise(memory, KEYS_BYTES, MADV_DONTDUMP);
    mlock(memory, KEYS_BYTES);
    s->keys_number = 1;
    s->renew_s = p->renew_s;
    if (p->keys) {
        *s->keys = *p->keys;
        s->renew = p->renew;
        s->renew_arg = p->renew_arg;
        return 0;
    }
    s->renew = file_renew;
    s->renew_arg = s;
    return s3_keys_read(s->keys, p->credentials, e);
}

static int must_be_empty(struct s3_store *s, struct err *e)
{
    CLEANUP(listing_end) struct listing l = {.page = {.prefix = s->prefix}};
    struct blob_info i;
    int rc = list_page(s, "", "", 2, &l, e);
    size_t n = 0;
    while (rc == 0 && n < l.page.n && l.page.blobs[n].name[0] == '.')
        n++;
    if (rc < 0 || n == l.page.n)
        return rc;
    struct err ignored = ERR_INIT;
    if (s3_stat(&s->base, "kopia.repository", &i, &ignored) == 0)
        err_plain(e, ERR_EXISTS, EEXIST, "repository %s already exists", s->base.location);
    else
        err_set(e, ERR_EXISTS, ENOTEMPTY,
                "cannot create a repository in %s: the bucket is not empty there (\"%.255s\")", s->base.location,
                l.page.blobs[n].name);
    err_hint(e, "use an empty bucket, or set a prefix of its own, as in prefix = backups/");
    return e ? -e->sys : -EEXIST;
}

static int open_parts(struct s3_store *s, const struct s3_place *p, enum blobs_open_mode mode, struct err *e)
{
    const unsigned puts = p->uploads == 0 ? UPLOADS : p->uploads > S3_UPLOADS_MAX ? S3_UPLOADS_MAX : p->uploads;
    s->base.uploads = puts + s3_summer_ahead();
    int rc = set_names(s, p, e);
    if (rc == 0)
        rc = set_keys(s, p, e);
    if (rc == 0 && !(s->spool = s3_spool_new(p->spool, s->base.uploads, puts, e)))
        rc = -ENOMEM;
    if (rc == 0 && !(s->classes = s3_classes_new(e)))
        rc = -ENOMEM;
    if (rc == 0 && !(s->summer = s3_summer_new(!s->tls, e)))
        rc = -ENOMEM;
    const struct s3_http_opts o = {.ca_file = p->ca_file,
                                   .ca_text = p->ca_text,
                                   .stall_s = p->stall_s ? p->stall_s : STALL_S,
                                   .connect_s = p->connect_s ? p->connect_s : CONNECT_S,
                                   .hurry_s = p->hurry_s ? p->hurry_s : HURRY_S,
                                   .dial = p->dial,
                                   .scheme = s->scheme,
                                   .host = s->host};
    if (rc == 0)
        rc = s3_http_new(&s->http, &o, e);
    if (rc == 0 && p->at_ns) {
        s->base.ops = &s3_past_ops;
        return s3_past_open(s, p->at_ns, mode == BLOBS_CREATE, e);
    }
    if (rc == 0 && !(s->journal = s3_journal_new(p->spool, s->base.location)))
        rc = err_nomem(e);
    if (rc == 0 && mode == BLOBS_CREATE)
        rc = must_be_empty(s, e);
    return rc;
}

int blobs_open_s3(struct blobs **ret, const struct s3_place *p, enum blobs_open_mode mode, struct err *e)
{
    int rc = s3_place_check(p, e);
    if (rc < 0)
        return rc;
    struct s3_store *s = calloc(1, sizeof *s);
    if (!s)
        return err_nomem(e);
    s->base.ops = &s3_ops;
    pthread_rwlock_init(&s->keys_lock, NULL);
    pthread_mutex_init(&s->renewing, NULL);
    s3_recent_init(&s->recent);
    rc = open_parts(s, p, mode, e);
    if (rc < 0) {
        blobs_free(&s->base);
        return rc;
    }
    *ret = &s->base;
    return 0;
}
