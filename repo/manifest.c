/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * manifest.c - collections of manifests
 *
 * The state of the manifests is a union over all m contents, and the winner of an id may lie in any of them. So they
 * are read twice: the first time for id, time and tombstone of each, the second time for the documents of those that
 * won. Contents are expanded and scanned as a stream: a compacted collection may hold any number of manifests.
 */
#include "repo/manifest.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/time.h"
#include "repo/docstream.h"
#include "repo/gojson.h"
#include "repo/manifest-parts.h"

#include <errno.h>
#include <string.h>
#include <stdatomic.h>
#include <sys/random.h>

#include <zlib.h>

#define COLLECTION_MAX ((uint64_t)16 << 30) /* expanded; far above any repository */
#define AHEAD_MEMORY ((size_t)8 << 20)      /* collections that are read ahead */

/* ---- one collection ---- */

/* A gzip stream (any number of members) as the source of a docstream. */
struct gunzip {
    z_stream z;
    bool open, between; /* between: the last member has ended */
    uint64_t total;
};

static int64_t gunzip_read(void *arg, void *buf, size_t len, struct err *e)
{
    struct gunzip *g = arg;
    g->z.next_out = buf;
    g->z.avail_out = (uInt)(len < 1u << 30 ? len : 1u << 30);
    const uInt want = g->z.avail_out;
    while (g->z.avail_out == want) {
        if (g->between) {
            if (!g->z.avail_in)
                return 0;
            if (inflateReset(&g->z) != Z_OK)
                return err_set(e, ERR_DAMAGE, EBADMSG, "a manifest collection is not a gzip stream");
            g->between = false;
        }
        int rc = inflate(&g->z, Z_NO_FLUSH);
        if (rc == Z_STREAM_END)
            g->between = true;
        else if (rc == Z_MEM_ERROR)
            return err_nomem(e);
        else if (rc != Z_OK)
            return err_set(e, ERR_DAMAGE, EBADMSG, "a manifest collection is %s",
                           rc == Z_BUF_ERROR ? "truncated" : "not a gzip stream");
    }
    g->total += want - g->z.avail_out;
    if (g->total > COLLECTION_MAX)
        return err_set(e, ERR_DAMAGE, EBADMSG, "a manifest collection expands to more than %llu bytes",
                       (unsigned long long)COLLECTION_MAX);
    return want - g->z.avail_out;
}

static void gunzip_end(struct gunzip *g)
{
    if (g->open)
        inflateEnd(&g->z);
}

/* 1: parsed; 0: no client makes such an id (logged as a warning); -EINVAL. */
static int raw_parse(struct raw_manifest *ret, const char *text, size_t len)
{
    struct json_cursor c = {text, text + len, 0};
    char key[JSON_KEY_MAX];
    const char *v;
    size_t n;
    int rc;
    json_t *head CLEANUP(json_decrefp) = json_object();
    *ret = (struct raw_manifest){.modified_ns = GO_ZERO_TIME_NS};
    if (!head)
        return -EINVAL;
    while ((rc = json_cursor_next(&c, key, &v, &n)) == 1) {
        if (!strcasecmp(key, "data")) {
            ret->data = v;
            ret->data_len = n;
        } else if (!strcasecmp(key, "labels")) {
            ret->labels = v;
            ret->labels_len = n;
        } else if (!strcasecmp(key, "id") || !strcasecmp(key, "modified") || !strcasecmp(key, "deleted")) {
            json_t *member = go_parse(v, n);
            if (!member || json_object_set_new(head, key, member) < 0)
                return -EINVAL;
        }
    }
    const char *id = "", *modified = NULL;
    if (rc < 0 || go_string(head, "id", &id) < 0 || go_string(head, "modified", &modified) < 0 ||
        go_bool(head, "deleted", &ret->deleted) < 0)
        return -EINVAL;
    if (modified && time_parse(&ret->modified_ns, modified) < 0)
        return -EINVAL;
    uint8_t bin[16];
    if (strlen(id) != 32 || hex_decode(bin, id, 32) < 0) {
        static atomic_uint seen;
        const unsigned so_far = atomic_fetch_add(&seen, 1) + 1;
        if (so_far == 1 || so_far == 100 || so_far % 100000 == 0)
            log_warning("manifest with invalid id \"%.64s\" ignored (%u so far)", id, so_far);
        return 0;
    }
    hex_encode(ret->id, bin, sizeof bin);
    return 1;
}

int manifest_collection_each(const void *gz, size_t len, manifest_raw_fn *fn, void *arg, uint64_t *ignored,
                             struct err *e)
{
    struct gunzip g CLEANUP(gunzip_end) = {0};
    if (inflateInit2(&g.z, 15 + 16) != Z_OK)
        return err_nomem(e);
    g.open = true;
    g.z.next_in = (Bytef *)(uintptr_t)gz;
    g.z.avail_in = (uInt)len; /* MANIFEST_CONTENT_MAX at most */
    struct docstream *d CLEANUP(docstream_freep) = NULL;
    int rc = docstream_new(&d, NULL, MANIFEST_MAX, gunzip_read, &g, e);
    if (rc < 0)
        return rc;
    const char *text;
    size_t n;
    while ((rc = docstream_next(d, &text, &n, e)) == 1) {
        struct raw_manifest raw;
        rc = raw_parse(&raw, text, n);
        raw.whole = text;
        raw.whole_len = n;
        if (rc < 0)
            return err_set(e, ERR_DAMAGE, EBADMSG, "malformed entry in a manifest collection");
        if (rc == 1)
            rc = fn(&raw, arg, e);
        else if (ignored)
            ++*ignored;
        if (rc)
            return rc;
    }
    return rc;
}

/* Builds the labels of a raw entry; false: malformed, or no memory. */
static bool labels_parse(const struct raw_manifest *raw, struct manifest *ret)
{
    *ret = (struct manifest){.modified_ns = raw->modified_ns};
    memcpy(ret->id, raw->id, sizeof ret->id);
    ret->labels = raw->labels_json ? json_incref(raw->labels_json)
                  : raw->labels    ? go_parse(raw->labels, raw->labels_len)
                                   : json_object();
    if (json_is_null(ret->labels)) {
        json_decref(ret->labels);
        ret->labels = json_object();
    }
    return json_is_object(ret->labels);
}

/* All labels have to be texts. */
static bool labels_valid(const struct manifest *m)
{
    const char *k;
    json_t *v;
    json_object_foreach(m->labels, k, v) if (!json_is_string(v)) return false;
    return true;
}

static const char *type_of(const struct manifest *m)
{
    return json_string_value(json_object_get(m->labels, "type"));
}

static void data_parse(const struct raw_manifest *raw, struct manifest *ret)
{
    ret->data = raw->data ? go_parse(raw->data, raw->data_len) : NULL;
    if (!ret->data)
        ret->data = json_null();
}

static void documents_clear(struct manifest *m)
{
    json_decref(m->labels);
    json_decref(m->data);
}

struct parse_arg {
    int (*fn)(const struct manifest *m, bool deleted, void *arg);
    void *arg;
};

static int parse_one(const struct raw_manifest *raw, void *arg, struct err *e)
{
    const struct parse_arg *a = arg;
    struct manifest m CLEANUP(documents_clear);
    if (!labels_parse(raw, &m) || !labels_valid(&m))
        return err_set(e, ERR_DAMAGE, EBADMSG, "malformed labels of manifest %s", raw->id);
    data_parse(raw, &m);
    return a->fn(&m, raw->deleted, a->arg);
}

int manifest_collection_parse(const void *gz, size_t len, int (*fn)(const struct manifest *m, bool deleted, void *arg),
                              void *arg, struct err *e)
{
    struct parse_arg a = {fn, arg};
    if (len > MANIFEST_CONTENT_MAX)
        return err_set(e, ERR_DAMAGE, EBADMSG, "a manifest collection of %zu bytes", len);
    return manifest_collection_each(gz, len, parse_one, &a, NULL, e);
}

/* ---- all collections ---- */

/* Ids come from whoever wrote the manifest: without a key he could choose them so that all meet in one slot. */
static uint64_t winner_hash(const struct manifests *m, const uint8_t id[16])
{
    const unsigned __int128 a = (unsigned __int128)(get_le64(id) ^ m->key[0]) * (m->key[1] | 1);
    const unsigned __int128 b = (unsigned __int128)(get_le64(id + 8) ^ m->key[2]) * (m->key[3] | 1);
    const uint64_t x = (uint64_t)(a >> 64) ^ (uint64_t)a ^ (uint64_t)(b >> 64) ^ (uint64_t)b;
    return x ^ x >> 29;
}

struct manifest_winner *manifests_winner(const struct manifests *m, const uint8_t id[16])
{
    for (size_t i = winner_hash(m, id);; i++) {
        struct manifest_winner *w = &m->table[i & (m->cap - 1)];
        if (!w->used || !memcmp(w->id, id, 16))
            return w;
    }
}

static int table_grow(struct manifests *m, struct err *e)
{
    struct manifest_winner *old = m->table;
    size_t n = m->cap;
    struct manifest_winner *t = calloc(n * 2, sizeof *t);
    if (!t)
        return err_nomem(e);
    m->table = t;
    m->cap = n * 2;
    for (size_t i = 0; i < n; i++) {
        if (old[i].used)
            *manifests_winner(m, old[i].id) = old[i];
    }
    free(old);
    return 0;
}

int manifests_note(const struct raw_manifest *raw, void *arg, struct err *e)
{
    struct manifests *m = arg;
    uint8_t id[16];
    int stopped = blobs_stopped(repo_blobs(m->r), e);
    if (stopped < 0)
        return stopped;
    hex_decode(id, raw->id, 32);
    if (m->n >= m->cap - m->cap / 4) {
        int rc = table_grow(m, e);
        if (rc < 0)
            return rc;
    }
    struct manifest_winner *w = manifests_winner(m, id);
    w->entries += w->entries < UINT8_MAX;
    if (w->used && raw->modified_ns <= w->modified_ns)
        return 0;
    m->n += !w->used;
    memcpy(w->id, id, sizeof id);
    w->used = 1;
    w->deleted = raw->deleted;
    w->modified_ns = raw->modified_ns;
    w->place = m->at;
    return 0;
}

static int list_content(const struct index_entry *entry, void *arg)
{
    struct manifests *m = arg;
    if (entry->deleted)
        return 0;
    if (m->n_contents == m->cap_contents) {
        size_t cap = m->cap_contents ? m->cap_contents * 2 : 64;
        struct manifest_place *p = realloc(m->contents, cap * sizeof *p);
        if (!p) {
            m->nomem = true;
            return -ENOMEM;
        }
        m->contents = p;
        m->cap_contents = cap;
    }
    struct manifest_place *p = &m->contents[m->n_contents];
    *p = (struct manifest_place){.id = entry->id,
                                 .time = entry->time,
                                 .offset = entry->offset,
                                 .packed = entry->packed,
                                 .length = entry->length,
                                 .compression = entry->compression,
                                 .format_version = entry->format_version,
                                 .key_id = entry->key_id,
                                 .pack = strdup(entry->pack)};
    m->n_contents++;
    m->nomem |= !p->pack;
    return p->pack ? 0 : -ENOMEM;
}

void manifest_place_entry(const struct manifest_place *p, struct index_entry *ret)
{
    *ret = (struct index_entry){.id = p->id,
                                .time = p->time,
                                .offset = p->offset,
                                .packed = p->packed,
                                .length = p->length,
                                .compression = p->compression,
                                .format_version = p->format_version,
                                .key_id = p->key_id};
    snprintf(ret->pack, sizeof ret->pack, "%s", p->pack);
}

/* Where the index had it when the manifests were opened: to look each up again in all index blobs would take time with
 * the square of their number, before they are compacted. One that is there no more may be elsewhere now. */
int64_t manifests_get(const struct manifests *m, const struct manifest_place *p, struct content_ahead *ahead,
                      uint8_t **ret, struct err *e)
{
    struct err own = ERR_INIT;
    struct index_entry x;
    manifest_place_entry(p, &x);
    uint8_t *taken CLEANUP_FREE = ahead && x.length < AHEAD_MEMORY ? malloc(x.length + 1u) : NULL;
    const int64_t got = taken ? content_ahead_take(ahead, &x, taken) : -1;
    if (got >= 0) {
        *ret = take_ptr(&taken);
        return got;
    }
    const int64_t n = content_get_entry(m->c, &x, ret, MANIFEST_CONTENT_MAX, &own);
    return n < 0 ? content_get(m->c, &p->id, ret, MANIFEST_CONTENT_MAX, e) : n;
}

/* Keeps the entries that are read for the next walk. */
struct keep {
    struct expanded_content content;
    manifest_raw_fn *fn;
    void *arg;
};

static int keep_entry(const struct raw_manifest *raw, void *arg, struct err *e)
{
    struct keep *k = arg;
    expanded_entry(&k->content, raw);
    return k->fn(raw, k->arg, e);
}

static int content_read(struct manifests *m, size_t i, struct content_ahead *ahead, manifest_raw_fn *fn, void *arg,
                        struct err *e, struct err *inner)
{
    const struct manifest_place *p = &m->contents[i];
    struct expanded *kept = repo_expanded(m->r);
    uint8_t *gz CLEANUP_FREE = NULL;
    content_ahead_at(ahead, i);
    const int64_t n = manifests_get(m, p, ahead, &gz, e);
    if (n < 0)
        return (int)n;
    struct keep k = {.fn = fn, .arg = arg};
    expanded_begin(kept, &k.content, &p->id);
    const int rc = manifest_collection_each(gz, (size_t)n, keep_entry, &k, &k.content.ignored, inner);
    m->ignored += k.content.ignored;
    if (rc == 0)
        expanded_put(kept, &k.content);
    else
        expanded_content_clear(&k.content);
    return rc;
}

static int content_kept(struct manifests *m, const struct expanded_content *c, manifest_raw_fn *fn, void *arg,
                        struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->n; i++)
        rc = fn(&c->entries[i], arg, e);
    m->ignored += c->ignored;
    return rc;
}

static bool is_kept(const struct manifests *m, size_t i)
{
    return expanded_find(repo_expanded(m->r), &m->contents[i].id) != NULL;
}

static void collection_ahead(void *manifests, size_t i, struct content_ahead_job *j)
{
    const struct manifests *m = manifests;
    struct index_entry x;
    const uint8_t *ignored;
    if (is_kept(m, i))
        return;
    manifest_place_entry(&m->contents[i], &x);
    content_ahead_read(j, &x, &ignored);
}

/* Runs fn over the entries of every collection. */
static int contents_each(struct manifests *m, manifest_raw_fn *fn, void *arg, struct err *e)
{
    size_t missing = 0;
    for (size_t i = 0; i < m->n_contents && missing < 2; i++)
        missing += !is_kept(m, i);
    CLEANUP(content_ahead_freep)
    struct content_ahead *ahead =
        missing < 2 ? NULL : content_ahead_new(m->r, AHEAD_MEMORY, m->n_contents, collection_ahead, m);
    m->ignored = 0;
    for (size_t i = 0; i < m->n_contents; i++) {
        char text[CONTENT_ID_TEXT];
        struct err inner = ERR_INIT;
        m->at = (uint32_t)i;
        const struct expanded_content *kept = expanded_find(repo_expanded(m->r), &m->contents[i].id);
        const int rc = kept ? content_kept(m, kept, fn, arg, &inner) : content_read(m, i, ahead, fn, arg, e, &inner);
        if (rc && inner.cls != ERR_NONE)
            return err_set(e, inner.cls, inner.sys, "manifest content %s: %s",
                           content_id_text(&m->contents[i].id, text), inner.msg);
        if (rc)
            return rc;
    }
    return 0;
}

int manifests_list(struct manifests **ret, struct repo *r, struct err *e)
{
    struct manifests *m CLEANUP(manifests_freep) = calloc(1, sizeof *m);
    if (!m)
        return err_nomem(e);
    m->r = r;
    m->cap = 256;
    m->table = calloc(m->cap, sizeof *m->table);
    if (!m->table)
        return err_nomem(e);
    if (getrandom(m->key, sizeof m->key, 0) != (ssize_t)sizeof m->key)
        return err_set(e, ERR_GENERIC, errno, "getrandom");
    int rc = content_reader_new(&m->c, r, e);
    if (rc == 0)
        rc = index_set_each(repo_index(r), MANIFEST_PREFIX, list_content, m, e);
    if (rc < 0)
        return m->nomem ? err_nomem(e) : rc;
    *ret = take_ptr(&m);
    return 0;
}

int manifests_open(struct manifests **ret, struct repo *r, struct err *e)
{
    struct manifests *m CLEANUP(manifests_freep) = NULL;
    int rc = manifests_list(&m, r, e);
    if (rc == 0)
        rc = contents_each(m, manifests_note, m, e);
    if (rc < 0)
        return rc;
    *ret = take_ptr(&m);
    return 0;
}

void manifests_free(struct manifests *m)
{
    if (!m)
        return;
    content_reader_free(m->c);
    for (size_t i = 0; i < m->n_contents; i++)
        free(m->contents[i].pack);
    free(m->contents);
    free(m->table);
    free(m);
}

struct walk {
    struct manifests *m;
    const char *type;
    manifest_want_fn *want;
    manifest_choose_fn *choose;
    manifest_fn *fn;
    void *arg;
};

static int manifest_deliver(const struct raw_manifest *raw, void *arg, struct err *e)
{
    const struct walk *k = arg;
    uint8_t id[16];
    int stopped = blobs_stopped(repo_blobs(k->m->r), e);
    if (stopped < 0)
        return stopped;
    hex_decode(id, raw->id, 32);
    struct manifest_winner *w = manifests_winner(k->m, id);
    if (!w->used || w->deleted || raw->deleted || w->delivered || w->modified_ns != raw->modified_ns)
        return 0;
    w->delivered = 1;
    if (k->want && !k->want(raw->id, k->arg))
        return 0;
    /* Most manifests are not wanted: the labels are checked before the document is parsed. */
    struct manifest m CLEANUP(documents_clear);
    const bool parsed = labels_parse(raw, &m);
    const char *type = type_of(&m);
    if (k->type && parsed && (!type || strcmp(type, k->type) != 0))
        return 0;
    if (!parsed || !labels_valid(&m))
        return err_set(e, ERR_DAMAGE, EBADMSG, "malformed labels of manifest %s", raw->id);
    if (k->choose && !k->choose(&m, k->arg))
        return 0;
    data_parse(raw, &m);
    return k->fn(&m, k->arg);
}

static int walk(struct manifests *m, const struct walk *k, struct err *e)
{
    for (size_t i = 0; i < m->cap; i++)
        m->table[i].delivered = 0;
    return contents_each(m, manifest_deliver, (void *)(uintptr_t)k, e);
}

int manifests_walk(struct manifests *m, const char *type, manifest_want_fn *want, manifest_fn *fn, void *arg,
                   struct err *e)
{
    return walk(m, &(const struct walk){.m = m, .type = type, .want = want, .fn = fn, .arg = arg}, e);
}

int manifests_choose(struct manifests *m, const char *type, manifest_choose_fn *choose, manifest_fn *fn, void *arg,
                     struct err *e)
{
    return walk(m, &(const struct walk){.m = m, .type = type, .choose = choose, .fn = fn, .arg = arg}, e);
}

uint64_t manifests_ignored(const struct manifests *m)
{
    return m->ignored;
}

int manifests_each(struct repo *r, const char *type, manifest_fn *fn, void *arg, struct err *e)
{
    struct manifests *m CLEANUP(manifests_freep) = NULL;
    int rc = manifests_open(&m, r, e);
    return rc < 0 ? rc : manifests_walk(m, type, NULL, fn, arg, e);
}

/* ---- changes ---- */

struct manifest_batch {
    json_t *entries;
};

int manifest_batch_new(struct manifest_batch **ret, struct err *e)
{
    struct manifest_batch *b = calloc(1, sizeof *b);
    if (!b || !(b->entries = json_array())) {
        free(b);
        return err_nomem(e);
    }
    *ret = b;
    return 0;
}

void manifest_batch_free(struct manifest_batch *b)
{
    if (!b)
        return;
    json_decref(b->entries);
    free(b);
}

/* Appends an entry, members in the order in which stock clients write them. */
static int entry_append(struct manifest_batch *b, const char *id, json_t *labels, bool deleted, json_t *data,
                        struct err *e)
{
    char now[TIME_TEXT];
    json_t *x = json_object();
    int rc = x ? 0 : -1;
    rc |= go_set(x, "id", json_string(id));
    rc |= go_set(x, "labels", labels ? go_sorted_map(labels) : json_null());
    rc |= go_set(x, "modified", json_string(time_text(now_ns(), now)));
    if (deleted)
        rc |= go_set(x, "deleted", json_true());
    rc |= go_set(x, "data", data ? json_deep_copy(data) : json_null());
    if (rc == 0)
        return json_array_append_new(b->entries, x) < 0 ? err_nomem(e) : 0;
    json_decref(x);
    return err_nomem(e);
}

int manifest_batch_add(struct manifest_batch *b, json_t *labels, json_t *data, char id[33], struct err *e)
{
    uint8_t bin[16];
    char text[33];
    const char *k;
    json_t *v;
    if (!json_is_string(json_object_get(labels, "type")))
        return err_set(e, ERR_GENERIC, EINVAL, "a manifest without the label \"type\"");
    json_object_foreach(labels, k, v)
    {
        if (!json_is_string(v))
            return err_set(e, ERR_GENERIC, EINVAL, "label \"%s\" of a manifest is not a string", k);
    }
    if (getrandom(bin, sizeof bin, 0) != (ssize_t)sizeof bin)
        return err_set(e, ERR_GENERIC, errno, "cannot get random bytes");
    hex_encode(text, bin, sizeof bin);
    int rc = entry_append(b, text, labels, false, data, e);
    if (rc == 0 && id)
        memcpy(id, text, sizeof text);
    return rc;
}

int manifest_batch_delete(struct manifest_batch *b, const char *id, struct err *e)
{
    /* What was only planned leaves no trace. */
    for (size_t i = 0; i < json_array_size(b->entries); i++) {
        const char *other = json_string_value(json_object_get(json_array_get(b->entries, i), "id"));
        if (other && !strcmp(other, id)) {
            if (!json_object_get(json_array_get(b->entries, i), "deleted"))
                json_array_remove(b->entries, i);
            return 0;
        }
    }
    uint8_t bin[16];
    if (strlen(id) != 32 || hex_decode(bin, id, 32) < 0)
        return err_set(e, ERR_GENERIC, EINVAL, "invalid manifest id \"%.64s\"", id);
    return entry_append(b, id, NULL, true, NULL, e);
}

static int manifest_ignore(const struct manifest *m, bool deleted, void *arg)
{
    (void)m;
    (void)deleted;
    ++*(size_t *)arg;
    return 0;
}

int manifest_batch_put(struct manifest_batch *b, struct session *s, struct put_scratch *p, struct err *e)
{
    if (!json_array_size(b->entries))
        return 0;
    json_t *doc CLEANUP(json_decrefp) = json_pack("{s:O}", "entries", b->entries);
    size_t len;
    char *text CLEANUP_FREE = doc ? json_go_text(doc, true, &len) : NULL;
    if (!text)
        return err_nomem(e);
    uint8_t *gz CLEANUP_FREE = NULL;
    int64_t n = gzip_compress(text, len, &gz, e);
    if (n < 0)
        return (int)n;
    /* A collection that cannot be read would make all manifests of the repository inaccessible: verify it first. */
    size_t seen = 0;
    int rc = manifest_collection_parse(gz, (size_t)n, manifest_ignore, &seen, e);
    if (rc < 0)
        return err_wrap(e, "manifests to be written");
    if (seen != json_array_size(b->entries))
        return err_set(e, ERR_GENERIC, EINVAL, "manifests to be written do not read back");
    struct content_id id;
    rc = session_put_bytes(s, p, MANIFEST_PREFIX, gz, (size_t)n, MANIFEST_COMPRESSION, &id, e);
    if (rc < 0)
        return rc;
    json_array_clear(b->entries);
    return 0;
}

/* ---- a new repository ---- */

/* The documents that stock's `repository create` writes (section 13.1, 14.1). */
static const char global_policy[] =
    "{\"retention\":{\"keepLatest\":10,\"keepHourly\":48,\"keepDaily\":7,\"keepWeekly\":4,\"keepMonthly\":24,"
    "\"keepAnnual\":3,\"ignoreIdenticalSnapshots\":false},\"files\":{\"ignoreDotFiles\":[\".kopiaignore\"]},"
    "\"errorHandling\":{\"ignoreFileErrors\":false,\"ignoreDirectoryErrors\":false,\"ignoreUnknownTypes\":true},"
    "\"scheduling\":{\"runMissed\":true},\"compression\":{\"compressorName\":\"none\"},"
    "\"metadataCompression\":{\"compressorName\":\"zstd-fastest\"},\"splitter\":{},\"actions\":{},"
    "\"osSnapshots\":{\"volumeShadowCopy\":{\"enable\":0}},"
    "\"logging\":{\"directories\":{\"snapshotted\":5,\"ignored\":5},"
    "\"entries\":{\"snapshotted\":0,\"ignored\":5,\"cacheHit\":0,\"cacheMiss\":0}},"
    "\"upload\":{\"maxParallelSnapshots\":1,\"parallelUploadAboveSize\":2147483648}}";
static const char maintenance_params[] =
    "{\"owner\":\"\",\"quick\":{\"enabled\":true,\"interval\":3600000000000},"
    "\"full\":{\"enabled\":true,\"interval\":86400000000000},"
    "\"logRetention\":{\"maxTotalSize\":1073741824,\"maxCount\":10000,\"maxAge\":2592000000000000},"
    "\"extendObjectLocks\":false,\"listParallelism\":0}";

int manifests_initialise(struct repo *r, const char *owner, const char *machine, struct err *e)
{
    json_t *policy CLEANUP(json_decrefp) = go_parse(global_policy, sizeof global_policy - 1);
    json_t *params CLEANUP(json_decrefp) = go_parse(maintenance_params, sizeof maintenance_params - 1);
    json_t *labels CLEANUP(json_decrefp) = json_pack("{s:s, s:s}", "policyType", "global", "type", "policy");
    json_t *type CLEANUP(json_decrefp) = json_pack("{s:s}", "type", "maintenance");
    if (!policy || !params || !labels || !type)
        return err_nomem(e);
    if (go_set(params, "owner", json_string(owner)) < 0)
        return err_set(e, ERR_USAGE, EINVAL, "maintenance owner is not valid UTF-8");
    if (*machine && json_object_set_new(params, MAINTENANCE_MACHINE, json_string(machine)) < 0)
        return err_nomem(e);
    struct session *s CLEANUP(session_freep) = NULL;
    struct put_scratch *p CLEANUP(put_scratch_freep) = NULL;
    struct manifest_batch *b CLEANUP(manifest_batch_freep) = NULL;
    int rc = manifest_batch_new(&b, e);
    if (rc == 0)
        rc = manifest_batch_add(b, labels, policy, NULL, e);
    if (rc == 0)
        rc = manifest_batch_add(b, type, params, NULL, e);
    if (rc == 0)
        rc = session_new(&s, r, NULL, e);
    if (rc == 0)
        rc = put_scratch_new(&p, r, MANIFEST_COMPRESSION, (size_t)1 << 20, e);
    if (rc == 0)
        rc = manifest_batch_put(b, s, p, e);
    return rc == 0 ? session_flush(s, e) : rc;
}
