/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/s3-past.h"

#include "base/cleanup.h"
#include "base/time.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KNOWN 4096 /* names whose version is remembered, each in the slot of its hash */
#define TRIES 3    /* of a page that is no list of versions */

/* A name and, behind it, the id of its version. */
struct known {
    uint64_t length;
    int64_t mtime_ns;
    size_t name_len;
    char text[];
};

struct s3_past {
    int64_t at_ns;
    pthread_mutex_t lock;
    struct known *known[KNOWN];
};

static struct s3_store *past_store(struct blobs *b)
{
    return (struct s3_store *)b;
}

/* ---- which version a name has ---- */

static size_t known_slot(const char *name)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(1099511628211);
    return (h ^ h >> 32) % KNOWN;
}

static bool known_find(struct s3_past *p, const char *name, struct s3_version *ret)
{
    pthread_mutex_lock(&p->lock);
    const struct known *k = p->known[known_slot(name)];
    const bool found = k && !strcmp(k->text, name);
    if (found) {
        *ret = (struct s3_version){.blob = {.length = k->length, .mtime_ns = k->mtime_ns}};
        snprintf(ret->blob.name, sizeof ret->blob.name, "%s", name);
        snprintf(ret->id, sizeof ret->id, "%s", k->text + k->name_len + 1);
    }
    pthread_mutex_unlock(&p->lock);
    return found;
}

/* What cannot be remembered is asked for again. */
static void known_add(struct s3_past *p, const struct s3_version *v)
{
    const size_t name = strlen(v->blob.name), id = strlen(v->id);
    struct known *k = malloc(sizeof *k + name + id + 2);
    if (!k)
        return;
    k->length = v->blob.length;
    k->mtime_ns = v->blob.mtime_ns;
    k->name_len = name;
    memcpy(k->text, v->blob.name, name + 1);
    memcpy(k->text + name + 1, v->id, id + 1);
    pthread_mutex_lock(&p->lock);
    struct known **slot = &p->known[known_slot(v->blob.name)];
    free(*slot);
    *slot = k;
    pthread_mutex_unlock(&p->lock);
}

/* ---- pages of versions ---- */

struct walk {
    struct s3_versions page;
    struct s3_parser *parser;
    bool malformed;
    struct s3_turns turns;
    char key[S3_KEY_MAX + 1], id[S3_VERSION_MAX + 1]; /* markers of the page */
    struct s3_version best;                           /* of the name that is being walked over */
    char name[BLOB_NAME_MAX + 1];                     /* that name; "": none yet */
    bool found;
    int (*give)(const struct s3_version *v, void *arg); /* gets what there was */
    void *arg;
};

static int walk_restart(void *arg)
{
    struct walk *w = arg;
    s3_parser_free(w->parser);
    w->parser = NULL;
    return s3_versions_parser_new(&w->parser, &w->page, NULL);
}

static int walk_sink(struct s3_exchange *x, const void *data, size_t len)
{
    struct walk *w = x->arg;
    const int rc = s3_parser_feed(w->parser, data, len);
    w->malformed |= rc == -EBADMSG;
    return rc;
}

static void walk_free(struct walk **w)
{
    if (!*w)
        return;
    s3_parser_free((*w)->parser);
    s3_versions_free(&(*w)->page);
    free(*w);
}

#define VERSIONS_QUERY (3 * (2 * S3_KEY_MAX + S3_VERSION_MAX) + 256)
static int walk_query(const struct s3_store *s, const char *prefix, const struct walk *w, char out[VERSIONS_QUERY],
                      struct err *e)
{
    char full[512], encoded[1600], key[3 * S3_KEY_MAX + 1], id[3 * S3_VERSION_MAX + 1];
    if ((size_t)snprintf(full, sizeof full, "%s%s", s->prefix, prefix) >= sizeof full ||
        s3_encode(encoded, sizeof encoded, full, false) < 0 || s3_encode(key, sizeof key, w->key, false) < 0 ||
        s3_encode(id, sizeof id, w->id, false) < 0 ||
        (size_t)snprintf(
            out, VERSIONS_QUERY,
            "delimiter=%%2F&encoding-type=url%s%s&max-keys=%d&prefix=%s%s%s&versions=", *key ? "&key-marker=" : "", key,
            S3_PAGE_MAX, encoded, *id ? "&version-id-marker=" : "", id) >= VERSIONS_QUERY)
        return err_set(e, ERR_GENERIC, ENAMETOOLONG, "cannot list the versions in %s: the prefix is too long",
                       s->base.location);
    return 0;
}

/* The page of w's markers. */
static int walk_page(struct s3_store *s, const char *prefix, struct walk *w, struct err *e)
{
    char query[VERSIONS_QUERY], what[400];
    snprintf(what, sizeof what, "list the versions in %s", s->base.location);
    int rc = walk_query(s, prefix, w, query, e);
    for (unsigned n = 1; rc == 0; n++) {
        struct s3_call q = {.s = s, .method = "GET", .query = query, .restart = walk_restart};
        q.x.sink = walk_sink;
        q.x.arg = w;
        w->malformed = false;
        rc = s3_call(&q, e);
        if (rc < 0)
            break;
        const bool came = s3_succeeded(&q);
        const int end = came ? s3_parser_end(w->parser) : 0;
        if (came && end == 0)
            return 0;
        if (end == -ENOMEM)
            return err_nomem(e);
        if (!came && !w->malformed)
            return s3_call_failed(&q, what, e);
        if (n >= TRIES)
            return err_set(e, ERR_GENERIC, 0, "cannot %s: %s answered with no list of versions", what, s->host);
    }
    return rc;
}

/* The name that was walked over is at its end. */
static int walk_give(struct s3_store *s, struct walk *w)
{
    const bool there = w->found && !w->best.deleted && w->name[0] != '.';
    w->found = false;
    if (!there)
        return 0;
    known_add(s->past, &w->best);
    return w->give(&w->best, w->arg);
}

/* Of versions with the same time the first one counts: servers list the newest first, and some have times of whole
 * seconds. */
static void walk_see(const struct s3_past *p, struct walk *w, const struct s3_version *v)
{
    if (v->blob.mtime_ns > p->at_ns || (w->found && v->blob.mtime_ns <= w->best.blob.mtime_ns))
        return;
    w->best = *v;
    w->found = true;
}

static int walk_one(struct s3_store *s, struct walk *w, const struct s3_version *v, struct err *e)
{
    const int order = strcmp(v->blob.name, w->name);
    /* Versions of a name that are apart would be two blobs, or hide each other. */
    if (order < 0)
        return err_set(e, ERR_GENERIC, 0, "cannot list the versions in %s: %s lists keys in no order", s->base.location,
                       s->host);
    int rc = 0;
    if (order > 0) {
        rc = walk_give(s, w);
        snprintf(w->name, sizeof w->name, "%s", v->blob.name);
    }
    walk_see(s->past, w, v);
    return rc;
}

static int walk_next(const struct s3_store *s, struct walk *w, struct err *e)
{
    if ((!strcmp(w->key, w->page.next_key) && !strcmp(w->id, w->page.next_id)) ||
        s3_turns(&w->turns, w->page.sum, w->page.empty))
        return err_set(e, ERR_GENERIC, 0, "cannot list the versions in %s: %s repeats the same page", s->base.location,
                       s->host);
    memcpy(w->key, w->page.next_key, sizeof w->key);
    memcpy(w->id, w->page.next_id, sizeof w->id);
    return 0;
}

/* `only`: nothing but the name `prefix`, whose versions come before those of longer names. */
static int walk_all(struct s3_store *s, const char *prefix, bool only,
                    int (*give)(const struct s3_version *v, void *arg), void *arg, struct err *e)
{
    CLEANUP(walk_free) struct walk *w = calloc(1, sizeof *w);
    if (!w)
        return err_nomem(e);
    w->page.prefix = s->prefix;
    w->give = give;
    w->arg = arg;
    bool more = true;
    int rc = 0;
    while (rc == 0 && more) {
        rc = walk_page(s, prefix, w, e);
        more = rc == 0 && w->page.truncated;
        for (size_t i = 0; rc == 0 && i < w->page.n; i++) {
            if (only && strcmp(w->page.all[i].blob.name, prefix) != 0) {
                more = false;
                break;
            }
            rc = walk_one(s, w, &w->page.all[i], e);
        }
        if (rc == 0 && more)
            rc = walk_next(s, w, e);
    }
    return rc == 0 ? walk_give(s, w) : rc;
}

/* ---- operations ---- */

struct one {
    struct s3_version *to;
    bool found;
};

static int give_one(const struct s3_version *v, void *arg)
{
    struct one *o = arg;
    *o->to = *v;
    o->found = true;
    return 0;
}

static int past_find(struct s3_store *s, const char *name, struct s3_version *ret, struct err *e)
{
    struct one o = {.to = ret};
    if (known_find(s->past, name, ret))
        return 0;
    const int rc = walk_all(s, name, true, give_one, &o, e);
    return rc < 0 || o.found ? rc : blob_missing(&s->base, name, e);
}

int s3_past_query(struct s3_store *s, const char *name, char out[S3_PAST_QUERY], struct err *e)
{
    out[0] = '\0';
    if (!s->past)
        return 0;
    CLEANUP_FREE struct s3_version *v = malloc(sizeof *v);
    char id[3 * S3_VERSION_MAX + 1];
    if (!v)
        return err_nomem(e);
    const int rc = past_find(s, name, v, e);
    if (rc < 0)
        return rc;
    if (s3_encode(id, sizeof id, v->id, false) < 0)
        return err_nomem(e);
    snprintf(out, S3_PAST_QUERY, "versionId=%s", id);
    return 0;
}

int s3_past_stat(struct blobs *b, const char *name, struct blob_info *ret, struct err *e)
{
    CLEANUP_FREE struct s3_version *v = malloc(sizeof *v);
    if (!v)
        return err_nomem(e);
    const int rc = past_find(past_store(b), name, v, e);
    if (rc == 0)
        *ret = v->blob;
    return rc;
}

struct each {
    blob_list_fn *fn;
    void *arg;
};

static int give_each(const struct s3_version *v, void *arg)
{
    const struct each *x = arg;
    return x->fn(&v->blob, x->arg);
}

int s3_past_list(struct blobs *b, const char *prefix, blob_list_fn *fn, void *arg, struct err *e)
{
    struct each x = {fn, arg};
    return walk_all(past_store(b), prefix, false, give_each, &x, e);
}

static int read_only(const struct blobs *b, struct err *e)
{
    err_set(e, ERR_USAGE, 0, "repository %s cannot be changed: it is shown as it was", b->location);
    if (e)
        e->sys = EROFS;
    err_hint(e, "restore from it, or copy it to another place that can be used: snapferry -r REPO repo sync-to COPY "
                "--at TIME");
    return -EROFS;
}

int s3_past_put(struct blobs *b, const char *name, const void *data, size_t len, struct err *e)
{
    (void)name, (void)data, (void)len;
    return read_only(b, e);
}

int s3_past_delete(struct blobs *b, const char *name, struct err *e)
{
    (void)name;
    return read_only(b, e);
}

int s3_past_writer_new(struct blob_writer **ret, struct blobs *b, const char *name, struct err *e)
{
    (void)ret, (void)name;
    return read_only(b, e);
}

/* ---- opening ---- */

struct short_body {
    char text[4096];
    size_t len;
};

static int restart_short(void *arg)
{
    ((struct short_body *)arg)->len = 0;
    return 0;
}

static int sink_short(struct s3_exchange *x, const void *data, size_t len)
{
    struct short_body *t = x->arg;
    if (len > sizeof t->text - t->len)
        return -EFBIG;
    memcpy(t->text + t->len, data, len);
    t->len += len;
    return 0;
}

static int no_versions(const struct s3_store *s, struct err *e)
{
    err_set(e, ERR_USAGE, 0, "%s has no versions: the bucket keeps nothing of what was overwritten or deleted",
            s->base.location);
    return err_hint(e, "versioning must be enabled before something is lost; docs/ransomware.md has what else");
}

static int versioning_check(struct s3_store *s, struct err *e)
{
    struct short_body body = {.len = 0};
    char what[400], status[64];
    snprintf(what, sizeof what, "read whether %s has versions", s->base.location);
    struct s3_call q = {.s = s, .method = "GET", .query = "versioning=", .restart = restart_short};
    q.x.sink = sink_short;
    q.x.arg = &body;
    int rc = s3_call(&q, e);
    if (rc < 0)
        return rc;
    if (!s3_succeeded(&q)) {
        rc = s3_call_failed(&q, what, e);
        if (q.x.status == 403 && !strcmp(q.error.code, "AccessDenied"))
            err_hint(e, "the key needs the rights s3:GetBucketVersioning, s3:ListBucketVersions and "
                        "s3:GetObjectVersion");
        return rc;
    }
    if (s3_versioning_parse(status, body.text, body.len) < 0)
        return err_set(e, ERR_GENERIC, 0, "cannot %s: %s gave no answer of S3", what, s->host);
    if (!strcmp(status, "Suspended"))
        log_warning("versioning is suspended in %s: what was put since then may have replaced what was there",
                    s->base.location);
    else if (strcmp(status, "Enabled") != 0)
        return no_versions(s, e);
    return 0;
}

int s3_past_open(struct s3_store *s, int64_t at_ns, bool create, struct err *e)
{
    char text[TIME_TEXT];
    CLEANUP_FREE char *plain = s->base.location;
    if (asprintf(&s->base.location, "%s as of %s", plain, time_text(at_ns, text)) < 0) {
        s->base.location = NULL;
        return err_nomem(e);
    }
    if (create)
        return read_only(&s->base, e);
    s->past = calloc(1, sizeof *s->past);
    if (!s->past)
        return err_nomem(e);
    s->past->at_ns = at_ns;
    s->base.past = true;
    pthread_mutex_init(&s->past->lock, NULL);
    return versioning_check(s, e);
}

void s3_past_free(struct s3_past *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < KNOWN; i++)
        free(p->known[i]);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
