/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/snapshot.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "repo/docstream.h"
#include "repo/gojson.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define METADATA_COMPRESSION 0x1101 /* zstd-fastest */

/* ---- sources ---- */

int snapshot_source_parse(struct snapshot_source *ret, const char *text, struct err *e)
{
    const char *at = strchr(text, '@'), *colon = at ? strchr(at, ':') : NULL;
    const char *path = colon ? colon + 1 : NULL;
    if (!path || at == text || colon == at + 1 || *path != '/')
        return err_set(e, ERR_USAGE, 0, "invalid snapshot source \"%s\": USER@HOST:/PATH expected", text);
    json_t *utf8 CLEANUP(json_decrefp) = json_string(text);
    if (!utf8)
        return err_set(e, ERR_USAGE, 0, "a snapshot source must be valid UTF-8");
    for (const char *p = text; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return err_set(e, ERR_USAGE, 0, "a snapshot source must not contain control characters");
    }
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    struct snapshot_source s = {.user = ""};
    if ((size_t)(at - text) >= sizeof s.user || (size_t)(colon - at - 1) >= sizeof s.host || n >= sizeof s.path)
        return err_set(e, ERR_USAGE, 0, "snapshot source too long: at most %zu, %zu and %zu bytes", sizeof s.user - 1,
                       sizeof s.host - 1, sizeof s.path - 1);
    memcpy(s.user, text, (size_t)(at - text));
    memcpy(s.host, at + 1, (size_t)(colon - at - 1));
    memcpy(s.path, path, n);
    *ret = s;
    return 0;
}

char *snapshot_source_text(const struct snapshot_source *s, char *out, size_t cap)
{
    snprintf(out, cap, "%s@%s:%s", s->user, s->host, s->path);
    return out;
}

bool snapshot_source_equal(const struct snapshot_source *a, const struct snapshot_source *b)
{
    return !strcmp(a->user, b->user) && !strcmp(a->host, b->host) && !strcmp(a->path, b->path);
}

/* ---- parsing ---- */

void snapshot_clear(struct snapshot *s)
{
    dir_entry_clear(&s->root);
    json_decref(s->tags);
    json_decref(s->pins);
    s->tags = s->pins = NULL;
}

static bool copy_text(char *out, size_t cap, const char *text)
{
    size_t n = strlen(text);
    if (n >= cap)
        return false;
    memcpy(out, text, n + 1);
    return true;
}

static bool parse_source(struct snapshot_source *s, const json_t *data)
{
    const json_t *v = go_member(data, "source");
    const char *host = "", *user = "", *path = "";
    if (!v)
        return true;
    return json_is_object(v) && go_string(v, "host", &host) == 0 && go_string(v, "userName", &user) == 0 &&
           go_string(v, "path", &path) == 0 && copy_text(s->host, sizeof s->host, host) &&
           copy_text(s->user, sizeof s->user, user) && copy_text(s->path, sizeof s->path, path);
}

static bool parse_stats(struct snapshot *s, const json_t *data)
{
    /* Members that are not stored are validated all the same. */
    int64_t other = 0;
    const struct {
        const char *key;
        int64_t max, *to;
    } fields[] = {
        {"totalSize", INT64_MAX, &s->total_size},   {"excludedTotalSize", INT64_MAX, &other},
        {"fileCount", INT32_MAX, &s->file_count},   {"cachedFiles", INT32_MAX, &other},
        {"nonCachedFiles", INT32_MAX, &other},      {"dirCount", INT32_MAX, &s->dir_count},
        {"excludedFileCount", INT32_MAX, &other},   {"excludedDirCount", INT32_MAX, &other},
        {"errorCount", INT32_MAX, &s->error_count}, {"ignoredErrorCount", INT32_MAX, &s->ignored_errors},
    };
    const json_t *v = go_member(data, "stats");
    if (!v)
        return true;
    if (!json_is_object(v))
        return false;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (go_int(v, fields[i].key, -fields[i].max - 1, fields[i].max, fields[i].to) < 0)
            return false;
    }
    return true;
}

static bool strings_only(const json_t *v)
{
    const char *k;
    json_t *x;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)v, k, x)
    {
        if (!json_is_string(x))
            return false;
    }
    json_array_foreach(v, i, x)
    {
        if (!json_is_string(x))
            return false;
    }
    return true;
}

int snapshot_parse(struct snapshot *ret, const struct manifest *m, const char **why)
{
    const json_t *d = m->data;
    struct snapshot s = {.modified_ns = m->modified_ns};
    const char *id = "", *description = "", *incomplete = "", *bad = NULL;
    memcpy(s.id, m->id, sizeof s.id);
    if (!json_is_object(d))
        bad = "document";
    else if (go_string(d, "id", &id) < 0)
        bad = "id";
    else if (!parse_source(&s.source, d))
        bad = "source";
    else if (go_string(d, "description", &description) < 0)
        bad = "description";
    else if (go_time(d, "startTime", &s.start_ns) < 0)
        bad = "startTime";
    else if (go_time(d, "endTime", &s.end_ns) < 0)
        bad = "endTime";
    else if (!parse_stats(&s, d))
        bad = "stats";
    else if (go_string(d, "incomplete", &incomplete) < 0)
        bad = "incomplete";
    const json_t *tags = bad ? NULL : go_member(d, "tags"), *pins = bad ? NULL : go_member(d, "pins");
    if (tags && (!json_is_object(tags) || !strings_only(tags)))
        bad = "tags";
    else if (pins && (!json_is_array(pins) || !strings_only(pins)))
        bad = "pins";
    if (!bad) {
        int rc = dir_entry_parse(&s.root, go_member(d, "rootEntry"));
        if (rc == -ENOMEM)
            return rc;
        if (rc < 0 || !s.root.obj.content.len)
            bad = "rootEntry";
    }
    if (bad) {
        dir_entry_clear(&s.root);
        if (why)
            *why = bad;
        return -EINVAL;
    }
    go_copy_cut(s.description, sizeof s.description, description);
    go_copy_cut(s.incomplete, sizeof s.incomplete, incomplete);
    s.tags = json_incref((json_t *)(uintptr_t)tags);
    s.pins = json_incref((json_t *)(uintptr_t)pins);
    *ret = s;
    return 0;
}

/* ---- reading ---- */

struct each {
    const struct snapshot_source *only;
    snapshot_want_fn *want;
    snapshot_fn *fn;
    void *arg;
    unsigned bad;
    char first[80]; /* of them, and why */
};

static int snapshot_each(const struct manifest *m, void *arg)
{
    struct each *a = arg;
    struct snapshot s;
    const char *why = "";
    int rc = snapshot_parse(&s, m, &why);
    if (rc == -EINVAL) {
        if (a->bad++ == 0)
            snprintf(a->first, sizeof a->first, "%s (%s)", m->id, why);
        return 0;
    }
    if (rc < 0)
        return rc;
    rc = a->only && !snapshot_source_equal(a->only, &s.source) ? 0 : a->fn(&s, a->arg);
    snapshot_clear(&s);
    return rc;
}

/* For sorting: all snapshots, and the ones of a window of that order while they are collected. */
struct key {
    int64_t start;
    uint8_t id[16];
};
#define WINDOW 2048

struct sorted {
    struct key *keys;
    size_t n, cap;
    struct key *by_id;     /* the window's keys in order of id */
    struct snapshot **got; /* parallel to by_id */
    size_t n_window;
};

static int add_key(struct snapshot *s, void *arg)
{
    struct sorted *o = arg;
    if (o->n == o->cap) {
        size_t cap = o->cap ? o->cap * 2 : 64;
        struct key *p = realloc(o->keys, cap * sizeof *p);
        if (!p)
            return -ENOMEM;
        o->keys = p;
        o->cap = cap;
    }
    o->keys[o->n].start = s->start_ns;
    hex_decode(o->keys[o->n++].id, s->id, 32);
    return 0;
}

static int by_id(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    return memcmp(x->id, y->id, sizeof x->id);
}

static int by_start(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    return x->start != y->start ? (x->start < y->start ? -1 : 1) : by_id(a, b);
}

static struct key *window_find(const struct sorted *o, const char *id)
{
    struct key k = {0};
    hex_decode(k.id, id, 32);
    return bsearch(&k, o->by_id, o->n_window, sizeof k, by_id);
}

static bool want_window(const char *id, void *arg)
{
    const struct each *a = arg;
    return window_find(a->arg, id);
}

static int window_collect(struct snapshot *s, void *arg)
{
    struct sorted *o = arg;
    struct key *k = window_find(o, s->id);
    if (!k)
        return 0;
    struct snapshot *copy = malloc(sizeof *copy);
    if (!copy)
        return -ENOMEM;
    *copy = *s;
    memset(s, 0, sizeof *s); /* moved */
    o->got[k - o->by_id] = copy;
    return 0;
}

static void window_clear(struct sorted *o)
{
    for (size_t i = 0; i < o->n_window; i++) {
        if (o->got[i])
            snapshot_clear(o->got[i]);
        free(o->got[i]);
        o->got[i] = NULL;
    }
}

static void sorted_clear(struct sorted *o)
{
    if (o->got)
        window_clear(o);
    free(o->keys);
    free(o->by_id);
    free(o->got);
}

static int each_sorted(struct manifests *m, struct each *a, struct err *e)
{
    struct sorted o CLEANUP(sorted_clear) = {0};
    struct each inner = {.only = a->only, .fn = add_key, .arg = &o};
    int rc = manifests_walk(m, "snapshot", NULL, snapshot_each, &inner, e);
    a->bad = inner.bad;
    memcpy(a->first, inner.first, sizeof a->first);
    if (rc < 0)
        return rc == -ENOMEM ? err_nomem(e) : rc;
    if (!o.n)
        return 0;
    qsort(o.keys, o.n, sizeof *o.keys, by_start);
    size_t window = o.n < WINDOW ? o.n : WINDOW;
    o.by_id = malloc(window * sizeof *o.by_id);
    o.got = calloc(window, sizeof(struct snapshot *));
    if (!o.by_id || !o.got)
        return err_nomem(e);
    inner = (struct each){.fn = window_collect, .arg = &o};
    for (size_t from = 0; from < o.n; from += window) {
        o.n_window = o.n - from < window ? o.n - from : window;
        memcpy(o.by_id, o.keys + from, o.n_window * sizeof *o.by_id);
        qsort(o.by_id, o.n_window, sizeof *o.by_id, by_id);
        rc = manifests_walk(m, "snapshot", want_window, snapshot_each, &inner, e);
        if (rc < 0)
            return rc == -ENOMEM ? err_nomem(e) : rc;
        for (size_t i = 0; i < o.n_window; i++) {
            const struct key *k = bsearch(&o.keys[from + i], o.by_id, o.n_window, sizeof *k, by_id);
            struct snapshot *s = k ? o.got[k - o.by_id] : NULL;
            if (s && (rc = a->fn(s, a->arg)) != 0)
                return rc;
        }
        window_clear(&o);
    }
    return 0;
}

static void report_bad(const struct each *a)
{
    if (a->bad == 1)
        log_warning("malformed snapshot manifest %s: ignored", a->first);
    else if (a->bad)
        log_warning("%u malformed snapshot manifests ignored; the first: %s", a->bad, a->first);
}

int snapshots_each(struct repo *r, const struct snapshot_source *only, bool sorted, snapshot_fn *fn, void *arg,
                   unsigned *bad, struct err *e)
{
    struct manifests *m CLEANUP(manifests_freep) = NULL;
    int rc = manifests_open(&m, r, e);
    if (rc < 0)
        return rc;
    struct each a = {.only = only, .fn = fn, .arg = arg};
    rc = sorted ? each_sorted(m, &a, e) : manifests_walk(m, "snapshot", NULL, snapshot_each, &a, e);
    if (bad)
        *bad = a.bad;
    report_bad(&a);
    return rc == -ENOMEM ? err_nomem(e) : rc;
}

static bool manifest_wanted(const struct manifest *m, void *arg)
{
    const struct each *a = arg;
    return a->want(m->id, m->labels, a->arg);
}

int snapshots_wanted(struct repo *r, snapshot_want_fn *want, snapshot_fn *fn, void *arg, unsigned *bad, struct err *e)
{
    struct manifests *m CLEANUP(manifests_freep) = NULL;
    struct each a = {.want = want, .fn = fn, .arg = arg};
    int rc = manifests_open(&m, r, e);
    if (rc < 0)
        return rc;
    rc = manifests_choose(m, "snapshot", manifest_wanted, snapshot_each, &a, e);
    if (bad)
        *bad = a.bad;
    report_bad(&a);
    return rc == -ENOMEM ? err_nomem(e) : rc;
}

bool snapshot_labels_differ(const json_t *labels, const struct snapshot_source *source)
{
    const char *host = json_string_value(json_object_get(labels, "hostname"));
    const char *user = json_string_value(json_object_get(labels, "username"));
    const char *path = json_string_value(json_object_get(labels, "path"));
    return host && user && path &&
           (strcmp(host, source->host) != 0 || strcmp(user, source->user) != 0 ||
            (source->path[0] && strcmp(path, source->path) != 0));
}

/* ---- finding ---- */

#define NAMED_MAX 5 /* candidates that a message names */

struct search {
    const char *prefix; /* lower case; NULL: the latest complete one */
    size_t prefix_len;
    struct snapshot best;
    bool found;
    unsigned n;      /* matches (prefix), sources (latest) */
    char named[640]; /* some of them, for a message */
    struct snapshot_source sources[NAMED_MAX];
    bool by_root;     /* prefix is of a root directory's object */
    bool bad_match;   /* a manifest of that id exists but cannot be parsed */
    bool other_match; /* one of another source than the one searched for */
};

static void move_snapshot(struct search *a, struct snapshot *s)
{
    if (a->found)
        snapshot_clear(&a->best);
    a->best = *s;
    memset(s, 0, sizeof *s);
    a->found = true;
}

static void candidate_name(struct search *a, const char *text)
{
    size_t n = strlen(a->named);
    if (a->n <= NAMED_MAX)
        snprintf(a->named + n, sizeof a->named - n, "%s%.120s", n ? ", " : "", text);
    else if (a->n == NAMED_MAX + 1)
        snprintf(a->named + n, sizeof a->named - n, ", ...");
}

static void note_source(struct search *a, const struct snapshot_source *s)
{
    for (unsigned i = 0; i < a->n && i < NAMED_MAX; i++) {
        if (snapshot_source_equal(&a->sources[i], s))
            return;
    }
    char text[sizeof *s + 8];
    if (a->n < NAMED_MAX)
        a->sources[a->n] = *s;
    a->n++;
    candidate_name(a, snapshot_source_text(s, text, sizeof text));
}

static bool is_later(const struct snapshot *a, const struct snapshot *b)
{
    if (a->start_ns != b->start_ns)
        return a->start_ns > b->start_ns;
    return a->end_ns != b->end_ns ? a->end_ns > b->end_ns : strcmp(a->id, b->id) > 0;
}

static int prefix_search(struct snapshot *s, void *arg)
{
    struct search *a = arg;
    if (a->prefix) {
        char root[OBJECT_ID_TEXT];
        const char *id = a->by_root ? object_id_text(&s->root.obj, root) : s->id;
        if (strncmp(id, a->prefix, a->prefix_len) != 0)
            return 0;
        a->n++;
        candidate_name(a, s->id);
        move_snapshot(a, s);
        return 0;
    }
    note_source(a, &s->source);
    if (!*s->incomplete && (!a->found || is_later(s, &a->best)))
        move_snapshot(a, s);
    return 0;
}

/* A manifest that was not among the snapshots searched: it cannot be parsed, or is of another source. */
static int manifest_left_out(const struct manifest *m, void *arg)
{
    struct search *a = arg;
    if (strncmp(m->id, a->prefix, a->prefix_len) != 0)
        return 0;
    struct snapshot *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    if (snapshot_parse(s, m, NULL) < 0) {
        a->bad_match = true;
    } else {
        a->other_match = true;
        snapshot_clear(s);
    }
    free(s);
    return 0;
}

static int prefix_result(struct repo *r, struct search *a, const struct snapshot_source *only, const char *what,
                         struct err *e)
{
    if (a->n > 1) {
        err_set(e, ERR_USAGE, 0, "the snapshot id \"%s\" is ambiguous: %s", what, a->named);
        return err_hint(e, "%s", a->by_root ? "use the id of one of them" : "use more digits");
    }
    if (a->n == 1)
        return 0;
    int rc = a->by_root ? 0 : manifests_each(r, "snapshot", manifest_left_out, a, e);
    if (rc < 0)
        return rc;
    if (a->other_match) {
        char text[sizeof *only + 8];
        return err_plain(e, ERR_NOT_FOUND, ENOENT, "snapshot %s is not of %s", what,
                         snapshot_source_text(only, text, sizeof text));
    }
    if (a->bad_match)
        return err_set(e, ERR_DAMAGE, EBADMSG, "malformed manifest of snapshot %s", what);
    err_plain(e, ERR_NOT_FOUND, ENOENT, "no snapshot with id \"%s\"", what);
    return err_hint(e, "`snapferry -r REPOSITORY snapshot list --all` lists all snapshots");
}

static int latest_result(struct search *a, const struct snapshot_source *only, struct err *e)
{
    if (!only && a->n > 1) {
        err_set(e, ERR_USAGE, 0, "\"latest\" of which source? There are %s", a->named);
        return err_hint(e, "select one with --as USER@HOST:/PATH");
    }
    if (a->found)
        return 0;
    char text[sizeof *only + 8] = "";
    if (only)
        snapshot_source_text(only, text, sizeof text);
    return err_plain(e, ERR_NOT_FOUND, ENOENT, "no complete snapshot%s%s", only ? " of " : "", text);
}

int snapshot_find(struct repo *r, const char *what, const struct snapshot_source *only, struct snapshot *ret,
                  struct err *e)
{
    struct search *a CLEANUP_FREE = calloc(1, sizeof *a);
    char prefix[OBJECT_ID_TEXT];
    if (!a)
        return err_nomem(e);
    if (strcmp(what, "latest") != 0) {
        size_t n = strlen(what), letter = *what == 'k';
        a->by_root = letter;
        if (!n || n > (letter ? sizeof prefix - 1 : 32) ||
            strspn(what + letter, "0123456789abcdefABCDEF") != n - letter) {
            err_plain(e, ERR_NOT_FOUND, ENOENT, "no snapshot \"%s\"", what);
            return err_hint(e, "use its id, at least 4 digits of it, or \"latest\"");
        }
        if (n < 4 + letter)
            return err_set(e, ERR_USAGE, 0, "snapshot id \"%s\" is too short: at least 4 digits", what);
        for (size_t i = 0; i <= n; i++)
            prefix[i] = what[i] >= 'A' && what[i] <= 'F' ? (char)(what[i] | 0x20) : what[i];
        a->prefix = prefix;
        a->prefix_len = n;
    }
    int rc = snapshots_each(r, only, false, prefix_search, a, NULL, e);
    if (rc == 0)
        rc = a->prefix ? prefix_result(r, a, only, what, e) : latest_result(a, only, e);
    if (rc == 0)
        *ret = a->best;
    else if (a->found)
        snapshot_clear(&a->best);
    return rc;
}

/* Parents: all incomplete ones are collected, since which are newer is known only at the end. */
struct parents {
    const struct snapshot_source *source;
    struct search complete, incomplete;
    char (*ids)[33];
    size_t n, cap;
};

static bool parent_wanted(const char *id, const json_t *labels, void *arg)
{
    (void)id;
    return !snapshot_labels_differ(labels, ((const struct parents *)arg)->source);
}

static int parent_one(struct snapshot *s, void *arg)
{
    struct parents *p = arg;
    if (!snapshot_source_equal(p->source, &s->source))
        return 0;
    struct search *a = *s->incomplete ? &p->incomplete : &p->complete;
    if (*s->incomplete) {
        if (p->n == p->cap) {
            size_t cap = p->cap ? p->cap * 2 : 16;
            char(*ids)[33] = realloc(p->ids, cap * sizeof *ids);
            if (!ids)
                return -ENOMEM;
            p->ids = ids;
            p->cap = cap;
        }
        memcpy(p->ids[p->n++], s->id, sizeof s->id);
    }
    if (!a->found || is_later(s, &a->best))
        move_snapshot(a, s);
    return 0;
}

int snapshot_parents(struct repo *r, const struct snapshot_source *src, struct snapshot *complete, bool *has_complete,
                     struct snapshot *incomplete, bool *has_incomplete, char (**old_ids)[33], size_t *n_old,
                     struct err *e)
{
    struct parents *p CLEANUP_FREE = calloc(1, sizeof *p);
    if (!p)
        return err_nomem(e);
    p->source = src;
    int rc = snapshots_wanted(r, parent_wanted, parent_one, p, NULL, e);
    if (rc == 0 && p->incomplete.found && p->complete.found && !is_later(&p->incomplete.best, &p->complete.best)) {
        snapshot_clear(&p->incomplete.best);
        p->incomplete.found = false;
    }
    if (rc < 0) {
        if (p->complete.found)
            snapshot_clear(&p->complete.best);
        if (p->incomplete.found)
            snapshot_clear(&p->incomplete.best);
        free(p->ids);
        return rc;
    }
    *has_complete = p->complete.found;
    *has_incomplete = p->incomplete.found;
    *complete = p->complete.best;
    *incomplete = p->incomplete.best;
    *old_ids = p->ids;
    *n_old = p->n;
    return 0;
}

/* ---- JSON of ours ---- */

static json_t *time_json(int64_t ns)
{
    char text[TIME_TEXT];
    return json_string(time_text(ns, text));
}

static json_t *source_json(const struct snapshot_source *s)
{
    return json_pack("{s:s, s:s, s:s}", "host", s->host, "userName", s->user, "path", s->path);
}

json_t *snapshot_to_json(const struct snapshot *s)
{
    json_t *v = json_object();
    int rc = v ? 0 : -1;
    rc |= go_set(v, "id", json_string(s->id));
    rc |= go_set(v, "source", source_json(&s->source));
    rc |= go_set(v, "description", json_string(s->description));
    rc |= go_set(v, "startTime", time_json(s->start_ns));
    rc |= go_set(v, "endTime", time_json(s->end_ns));
    if (*s->incomplete)
        rc |= go_set(v, "incomplete", json_string(s->incomplete));
    rc |= go_set(v, "stats",
                 json_pack("{s:I, s:I, s:I, s:I, s:I}", "totalSize", (json_int_t)s->total_size, "fileCount",
                           (json_int_t)s->file_count, "dirCount", (json_int_t)s->dir_count, "errorCount",
                           (json_int_t)s->error_count, "ignoredErrorCount", (json_int_t)s->ignored_errors));
    rc |= go_set(v, "rootEntry", dir_entry_to_json(&s->root));
    if (s->tags)
        rc |= go_set(v, "tags", go_sorted_map(s->tags));
    if (s->pins)
        rc |= go_set(v, "pins", json_incref(s->pins));
    if (rc == 0)
        return v;
    json_decref(v);
    return NULL;
}

/* ---- writing a volume's snapshot ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* A directory read back by the rules of readers: entries and summary must be as intended. */
struct text_source {
    const char *p;
    size_t n;
};

static int64_t read_text(void *arg, void *buf, size_t len, struct err *e)
{
    (void)e;
    struct text_source *t = arg;
    size_t n = t->n < len ? t->n : len;
    memcpy(buf, t->p, n);
    t->p += n;
    t->n -= n;
    return (int64_t)n;
}

static bool same_entry(const struct dir_entry *a, const struct dir_entry *b)
{
    return !strcmp(a->name, b->name) && a->type == b->type && a->mode == b->mode && a->size == b->size &&
           a->mtime_ns == b->mtime_ns && a->uid == b->uid && a->gid == b->gid && object_id_equal(&a->obj, &b->obj) &&
           a->has_summary == b->has_summary && a->sum_size == b->sum_size && a->sum_files == b->sum_files &&
           a->sum_dirs == b->sum_dirs && a->sum_max_time_ns == b->sum_max_time_ns && a->sum_failed == b->sum_failed &&
           !strcmp(a->sum_incomplete, b->sum_incomplete);
}

static int check_directory(const char *text, size_t len, const struct dir_entry *entries, size_t n, struct err *e)
{
    struct text_source t = {text, len};
    struct docstream *d CLEANUP(docstream_freep) = NULL;
    int rc = docstream_new(&d, "kopia:directory", (size_t)1 << 20, read_text, &t, e);
    const char *elem;
    size_t elem_len, i = 0;
    while (rc >= 0 && (rc = docstream_next(d, &elem, &elem_len, e)) == 1) {
        json_t *v CLEANUP(json_decrefp) = go_parse(elem, elem_len);
        struct dir_entry entry CLEANUP(dir_entry_clear) = {0};
        if (dir_entry_parse(&entry, v) < 0 || i >= n || !same_entry(&entry, &entries[i++]))
            return err_set(e, ERR_GENERIC, EINVAL, "a directory to be written does not read back");
    }
    if (rc == 0 && (i != n || !docstream_summary(d, NULL)))
        rc = err_set(e, ERR_GENERIC, EINVAL, "a directory to be written does not read back");
    return rc;
}

static int put_directory(struct session *s, struct put_scratch *p, const struct dir_entry *entries, size_t n,
                         json_t *summary, struct object_id *ret, struct err *e)
{
    json_t *doc CLEANUP(json_decrefp) = json_object();
    json_t *list = json_array();
    int rc = doc && list ? 0 : -1;
    for (size_t i = 0; i < n && rc == 0; i++) {
        json_t *x = dir_entry_to_json(&entries[i]);
        rc = x ? json_array_append_new(list, x) : -1;
    }
    rc |= go_set(doc, "stream", json_string("kopia:directory"));
    rc |= go_set(doc, "entries", list);
    rc |= summary ? json_object_set(doc, "summary", summary) : -1;
    size_t len;
    char *text CLEANUP_FREE = rc == 0 ? json_go_text(doc, true, &len) : NULL;
    if (!text)
        return err_nomem(e);
    rc = check_directory(text, len, entries, n, e);
    return rc < 0 ? rc : object_put(s, p, 'k', text, len, METADATA_COMPRESSION, ret, e);
}

/* The list of errors that stock clients show beside numFailed. */
static int add_errors(json_t *summary, const char *name, unsigned errors)
{
    char text[96];
    snprintf(text, sizeof text, "%u unreadable range%s of the volume stored as zeros", errors, errors == 1 ? "" : "s");
    return go_set(summary, "errors", json_pack("[{s:s, s:s}]", "path", name, "error", text));
}

static int check_input(const struct volume_snapshot *v, const char *json, struct err *e)
{
    struct snapshot_source again;
    char text[sizeof v->source + 8];
    int rc = snapshot_source_parse(&again, snapshot_source_text(&v->source, text, sizeof text), e);
    if (rc < 0)
        return rc;
    if (!snapshot_source_equal(&again, &v->source))
        return err_set(e, ERR_USAGE, EINVAL, "source \"%s\" of a snapshot is not normalized", text);
    if (!v->image.content.len || v->size > INT64_MAX - strlen(json) || v->errors > INT32_MAX || v->end_ns < v->start_ns)
        return err_set(e, ERR_GENERIC, EINVAL, "invalid snapshot: object id, size, times or counters out of range");
    return 0;
}

/* Labels and tags of the manifest. */
static int make_labels(const struct volume_snapshot *v, json_t **labels, json_t **tags)
{
    *labels = json_pack("{s:s, s:s, s:s, s:s}", "type", "snapshot", "hostname", v->source.host, "username",
                        v->source.user, "path", v->source.path);
    *tags = json_object();
    int rc = *labels && *tags ? 0 : -1;
    const char *k;
    json_t *x;
    json_object_foreach(v->tags, k, x)
    {
        char *key CLEANUP_FREE = NULL;
        if (!json_is_string(x) || asprintf(&key, "tag:%s", k) < 0) {
            key = NULL;
            return -1;
        }
        rc |= json_object_set(*labels, key, x);
        rc |= json_object_set(*tags, key, x);
    }
    return rc;
}

static json_t *make_manifest(const struct volume_snapshot *v, int64_t total, const struct dir_entry *root,
                             json_t *errors, json_t *tags)
{
    const int64_t cached = v->cached ? 1 : 0;
    json_t *d = json_object();
    int rc = d ? 0 : -1;
    rc |= go_set(d, "id", json_string(""));
    rc |= go_set(d, "source", source_json(&v->source));
    rc |= go_set(d, "description", json_string(v->description ? v->description : ""));
    rc |= go_set(d, "startTime", time_json(v->start_ns));
    rc |= go_set(d, "endTime", time_json(v->end_ns));
    rc |= go_set(d, "stats",
                 json_pack("{s:I, s:i, s:i, s:I, s:I, s:i, s:i, s:i, s:i, s:I}", "totalSize", (json_int_t)total,
                           "excludedTotalSize", 0, "fileCount", 2, "cachedFiles", (json_int_t)cached, "nonCachedFiles",
                           (json_int_t)(2 - cached), "dirCount", 1, "excludedFileCount", 0, "excludedDirCount", 0,
                           "ignoredErrorCount", 0, "errorCount", (json_int_t)v->errors));
    if (v->incomplete)
        rc |= go_set(d, "incomplete", json_string(v->incomplete));
    json_t *entry = dir_entry_to_json(root);
    if (entry && errors)
        rc |= json_object_set(json_object_get(entry, "summ"), "errors", errors);
    rc |= go_set(d, "rootEntry", entry);
    if (json_object_size(tags))
        rc |= go_set(d, "tags", go_sorted_map(tags));
    if (rc == 0)
        return d;
    json_decref(d);
    return NULL;
}

/* Pitfall P1: stock clients treat unparsable manifests as garbage, and their data as well. */
static int check_manifest(const struct volume_snapshot *v, json_t *data, int64_t total, const struct dir_entry *root,
                          struct err *e)
{
    size_t len;
    char *text CLEANUP_FREE = json_go_text(data, false, &len);
    json_t *again CLEANUP(json_decrefp) = text ? go_parse(text, len) : NULL;
    struct manifest m = {.data = again};
    struct snapshot s = {.id = ""};
    const char *why = "document";
    if (!again || snapshot_parse(&s, &m, &why) < 0)
        return err_set(e, ERR_GENERIC, EINVAL, "a snapshot manifest to be written does not parse: %s", why);
    bool same = snapshot_source_equal(&s.source, &v->source) && s.start_ns == v->start_ns && s.end_ns == v->end_ns &&
                s.total_size == total && s.error_count == v->errors && s.file_count == 2 && s.dir_count == 1 &&
                !strcmp(s.incomplete, v->incomplete ? v->incomplete : "") && same_entry(&s.root, root);
    snapshot_clear(&s);
    return same ? 0 : err_set(e, ERR_GENERIC, EINVAL, "a snapshot manifest to be written does not read back");
}

static int make_name(const struct volume_snapshot *v, char name[80], struct err *e)
{
    uint8_t bin[16];
    char hex[33];
    snprintf(name, 80, "volume.img");
    if (!v->incomplete)
        return 0;
    if (getrandom(bin, sizeof bin, 0) != (ssize_t)sizeof bin)
        return err_set(e, ERR_GENERIC, errno, "cannot get random bytes");
    /* Such a name is never matched by a later run of a stock client (section 12.7). */
    snprintf(name, 80, ".checkpointed.volume.img.%s", hex_encode(hex, bin, sizeof bin));
    return 0;
}

int volume_snapshot_write(struct session *s, struct put_scratch *p, const struct volume_snapshot *v,
                          struct manifest_batch *b, char manifest_id[33], struct err *e)
{
    size_t json_len;
    char *json CLEANUP_FREE = v->volume_json ? json_go_text(v->volume_json, true, &json_len) : NULL;
    if (!json)
        return err_nomem(e);
    int rc = check_input(v, json, e);
    if (rc < 0)
        return rc;
    char name[80], json_name[] = "volume.json", *root_name = (char *)(uintptr_t)base_name(v->source.path);
    rc = make_name(v, name, e);
    if (rc < 0)
        return rc;
    /* Both files have the time of the volume's state, so that an unchanged volume gives an unchanged directory. */
    struct dir_entry entries[2] = {
        {.name = name,
         .type = 'f',
         .mode = 0600,
         .size = (int64_t)v->size,
         .mtime_ns = v->image_mtime_ns,
         .obj = v->image},
        {.name = json_name, .type = 'f', .mode = 0644, .size = (int64_t)json_len, .mtime_ns = v->image_mtime_ns},
    };
    const int64_t total = (int64_t)v->size + (int64_t)json_len;
    struct dir_entry root = {.name = root_name,
                             .type = 'd',
                             .mode = 0755,
                             .size = -1,
                             .mtime_ns = v->image_mtime_ns,
                             .has_summary = true,
                             .sum_size = total,
                             .sum_files = 2,
                             .sum_dirs = 1,
                             .sum_max_time_ns = v->image_mtime_ns,
                             .sum_failed = v->errors};
    if (v->incomplete && !copy_text(root.sum_incomplete, sizeof root.sum_incomplete, v->incomplete))
        return err_set(e, ERR_GENERIC, EINVAL, "reason of an incomplete snapshot too long");
    rc = object_put(s, p, 0, json, json_len, METADATA_COMPRESSION, &entries[1].obj, e);
    if (rc < 0)
        return rc;

    json_t *form CLEANUP(json_decrefp) = dir_entry_to_json(&root);
    json_t *summary = json_object_get(form, "summ");
    if (!summary || (v->errors && add_errors(summary, name, v->errors) < 0))
        return err_nomem(e);
    rc = put_directory(s, p, entries, 2, summary, &root.obj, e);
    if (rc < 0)
        return rc;

    json_t *labels CLEANUP(json_decrefp) = NULL, *tags CLEANUP(json_decrefp) = NULL;
    if (make_labels(v, &labels, &tags) < 0)
        return err_set(e, ERR_USAGE, EINVAL, "labels or tags of a snapshot are not UTF-8 strings");
    json_t *data CLEANUP(json_decrefp) = make_manifest(v, total, &root, json_object_get(summary, "errors"), tags);
    if (!data)
        return err_set(e, ERR_USAGE, EINVAL, "source or description of a snapshot are not UTF-8 strings");
    rc = check_manifest(v, data, total, &root, e);
    return rc < 0 ? rc : manifest_batch_add(b, labels, data, manifest_id, e);
}
