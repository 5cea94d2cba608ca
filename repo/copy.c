/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/copy.h"
#include "repo/copy-gone.h"
#include "repo/copy-lock.h"

#include "base/units.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/time.h"
#include "repo/blob-locks.h"
#include "repo/format-parse.h"
#include "repo/leftovers.h"
#include "repo/pack.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PIECE ((size_t)4 << 20)
#define AT_ONCE 4
#define AT_ONCE_MAX 64
#define BATCH 256
#define ROUNDS 5
#define FORMAT_MAX ((size_t)1 << 20)
#define MARK_MAX 1024
#define FORMAT_BLOB "kopia.repository"
#define CONFIG_BLOB "kopia.blobcfg"

/* ---- what is in the copy ---- */

struct known {
    uint8_t hash[16]; /* of the name */
    uint64_t length;
    int64_t mtime_ns;
    bool wanted; /* the original has it, too */
};

struct name {
    char text[BLOB_NAME_MAX + 1];
    uint64_t length;
};

/* Of object locks, in the mark: what was in the copy at that time, and in the original, was locked from then on. */
struct locks {
    char mode[16]; /* "": nothing is known */
    int64_t period_s, since_s;
};

struct copy {
    struct repo *repo;
    struct blobs *from, *to;
    const struct copy_opts *o;
    struct copy_lock *lock;
    struct copy_result *result;
    struct known *known;
    size_t n_known, cap_known;
    struct name *indexes; /* of the original, as listed before its packs */
    size_t n_indexes, cap_indexes;
    bool packs;                      /* it has some */
    char changed[BLOB_NAME_MAX + 1]; /* the first blob of result->changed */
    bool complete;                   /* the last run came to its end: */
    int64_t mark_ns;                 /* then, by the clock of the copy's storage */
    bool has_mark;
    bool locking; /* what is put is locked */
    struct locks locks;
    int64_t oldest_ns; /* of what is locked, in the copy, and in the original, too; INT64_MAX: nothing */
    struct extended extended;
    struct batch {
        struct name names[BATCH];
        size_t n;
    } batch;
};

static void name_hash(const char *name, uint8_t out[16])
{
    uint8_t whole[32] = {0};
    EVP_Digest(name, strlen(name), whole, NULL, EVP_sha256(), NULL);
    memcpy(out, whole, 16);
}

static int by_hash(const void *a, const void *b)
{
    return memcmp(((const struct known *)a)->hash, ((const struct known *)b)->hash, 16);
}

static bool is_pack(const char *name)
{
    return name[0] == 'p' || name[0] == 'q';
}

/* Those that make the repository, except for its format: not what says who is writing or maintains it, nor logs. */
static bool is_copied(const char *name)
{
    return strchr("pqnmx", name[0]) != NULL;
}

/* `all`, with room for one behind n; NULL: no memory, and all is as it was. */
static void *with_room(void *all, size_t *cap, size_t n, size_t size)
{
    if (n < *cap)
        return all;
    const size_t more = *cap ? 2 * *cap : 1024;
    void *p = reallocarray(all, more, size);
    if (p)
        *cap = more;
    return p;
}

static int known_add(const struct blob_info *i, void *arg)
{
    struct copy *c = arg;
    if (!strcmp(i->name, COPY_MARK)) {
        c->has_mark = true;
        c->mark_ns = i->mtime_ns;
        return 0;
    }
    if (!strncmp(i->name, COPY_LOCK_PREFIX, strlen(COPY_LOCK_PREFIX)))
        return 0;
    struct known *all = with_room(c->known, &c->cap_known, c->n_known, sizeof *all);
    if (!all)
        return -ENOMEM;
    c->known = all;
    struct known *k = &all[c->n_known++];
    *k = (struct known){.length = i->length, .mtime_ns = i->mtime_ns, .wanted = !is_copied(i->name)};
    name_hash(i->name, k->hash);
    return 0;
}

static struct known *known_find(const struct copy *c, const char *name)
{
    struct known k;
    name_hash(name, k.hash);
    return c->n_known ? bsearch(&k, c->known, c->n_known, sizeof k, by_hash) : NULL;
}

#define MARK_CODE (2 * 32 + 1)

/* What proves that a mark was written by somebody who knows the password, for this place: whoever can write to the copy
 * could otherwise have the locks end, by a time that was never, or by the mark of another copy. */
static int mark_code(const struct copy *c, const char *text, size_t len, char hex[MARK_CODE], struct err *e)
{
    const struct repo_format *f = repo_format(c->repo);
    uint8_t key[32], code[32];
    unsigned n;
    CLEANUP_FREE char *all = NULL;
    const int all_len = asprintf(&all, "%s\n%.*s", blobs_location(c->to), (int)len, text);
    if (all_len < 0) {
        all = NULL;
        return err_nomem(e);
    }
    const int rc = hkdf_sha256(f->master_key, f->master_key_len, f->unique_id, f->unique_id_len, "snapferry copy mark",
                               key, sizeof key, e);
    if (rc < 0)
        return rc;
    const bool made = HMAC(EVP_sha256(), key, sizeof key, (const uint8_t *)all, (size_t)all_len, code, &n) != NULL;
    OPENSSL_cleanse(key, sizeof key);
    if (!made)
        return err_set(e, ERR_GENERIC, 0, "the cryptographic library cannot sign the mark of a copy");
    hex_encode(hex, code, sizeof code);
    return 0;
}

/* The time of a mark counts only with that proof. Without one, as of an earlier version, the locks are extended. */
static int mark_locks(struct copy *c, const char *text, struct err *e)
{
    char want[MARK_CODE];
    struct locks l;
    const char *locks = strstr(text, "\nlocked "), *code = locks ? strstr(locks, "\nsigned ") : NULL;
    if (!code || sscanf(locks, "\nlocked %15[A-Z] %" SCNd64 " %" SCNd64 "\n", l.mode, &l.period_s, &l.since_s) != 3)
        return 0;
    const int rc = mark_code(c, text, (size_t)(code + 1 - text), want, e);
    code += strlen("\nsigned ");
    if (rc == 0 && strlen(code) >= MARK_CODE - 1 && CRYPTO_memcmp(code, want, MARK_CODE - 1) == 0)
        c->locks = l;
    return rc;
}

/* "complete" or "running", of which repository. */
static int mark_read(struct copy *c, char id[2 * FORMAT_ID_MAX + 1], struct err *e)
{
    CLEANUP_FREE uint8_t *data = NULL;
    size_t len;
    char state[16] = "";
    int rc = blobs_get(c->to, COPY_MARK, MARK_MAX, &data, &len, e);
    if (rc < 0)
        return rc;
    if (sscanf((char *)data, "copy of repository %128[0-9a-f]\nstate %15[a-z]\n", id, state) != 2)
        return err_plain(e, ERR_DAMAGE, EBADMSG, "blob %s in %s does not say what it is a copy of", COPY_MARK,
                         blobs_location(c->to));
    c->complete = !strcmp(state, "complete");
    return mark_locks(c, (const char *)data, e);
}

static int mark_write(struct copy *c, const char *state, struct err *e)
{
    const struct repo_format *f = repo_format(c->repo);
    char id[2 * FORMAT_ID_MAX + 1], text[MARK_MAX], code[MARK_CODE];
    int n = snprintf(text, sizeof text, "copy of repository %s\nstate %s\n",
                     hex_encode(id, f->unique_id, f->unique_id_len), state);
    if (c->locking && c->locks.mode[0]) { /* what is put without a lock ends what was known of locks */
        n += snprintf(text + n, sizeof text - (size_t)n, "locked %s %" PRId64 " %" PRId64 "\n", c->locks.mode,
                      c->locks.period_s, c->locks.since_s);
        const int rc = mark_code(c, text, (size_t)n, code, e);
        if (rc < 0)
            return rc;
        n += snprintf(text + n, sizeof text - (size_t)n, "signed %s\n", code);
    }
    return c->o->dry_run ? 0 : blobs_put(c->to, COPY_MARK, text, (size_t)n, e);
}

/* ---- may it be written to ---- */

static int not_ours(const struct copy *c, const char *why, struct err *e)
{
    err_plain(e, ERR_EXISTS, EEXIST, "cannot copy repository %s to %s: %s", blobs_location(c->from),
              blobs_location(c->to), why);
    return err_hint(e, "use an empty directory or bucket, or a prefix of its own");
}

/* What a file system that is not mounted leaves is an empty directory. */
static int not_there(const struct copy *c, struct err *e)
{
    err_plain(e, ERR_GENERIC, ENODEV, "the copy of repository %s that was made in %s is not there",
              blobs_location(c->from), blobs_location(c->to));
    return err_hint(e,
                    "mount its file system; if it was removed on purpose, `snapferry copy NAME --new` makes another");
}

static int check_place(struct copy *c, struct err *e)
{
    const struct repo_format *f = repo_format(c->repo);
    CLEANUP_FREE uint8_t *data = NULL;
    CLEANUP(format_outer_clear) struct format_outer there = {.doc = NULL};
    char ours[2 * FORMAT_ID_MAX + 1], of[2 * FORMAT_ID_MAX + 1] = "";
    size_t len;
    struct err none = ERR_INIT;
    int rc = blobs_get(c->to, FORMAT_BLOB, FORMAT_MAX, &data, &len, &none);
    if (rc < 0 && rc != -ENOENT) {
        *e = none;
        return rc;
    }
    if (rc >= 0) {
        if (format_parse_outer(&there, data, len, &none) < 0 || there.unique_id_len != f->unique_id_len ||
            memcmp(there.unique_id, f->unique_id, f->unique_id_len) != 0)
            return not_ours(c, "another repository is there", e);
        if (!c->has_mark)
            return not_ours(c, "this repository is there, and not as a copy", e);
    }
    if (!c->has_mark && c->o->expected && !c->n_known)
        return not_there(c, e);
    if (!c->has_mark)
        return c->n_known ? not_ours(c, "it is not empty", e) : 0;
    rc = mark_read(c, of, e);
    if (rc < 0)
        return rc;
    return strcmp(of, hex_encode(ours, f->unique_id, f->unique_id_len)) != 0
               ? not_ours(c, "it is a copy of another repository", e)
               : 0;
}

/* What the copy alone has was in the original once, or was written there by somebody else. */
static int check_surplus(struct copy *c, struct err *e)
{
    struct copy_sum later = {0};
    for (size_t i = 0; i < c->n_known; i++) {
        const struct known *k = &c->known[i];
        if (k->wanted)
            continue;
        c->result->surplus.n++;
        c->result->surplus.bytes += k->length;
        if (c->complete && k->mtime_ns > c->mark_ns)
            later.n++;
    }
    if (!later.n)
        return 0;
    err_plain(e, ERR_EXISTS, EEXIST,
              "the copy in %s has diverged from repository %s: %llu blob%s written to it since the last run",
              blobs_location(c->to), blobs_location(c->from), (unsigned long long)later.n,
              later.n == 1 ? " was" : "s were");
    return err_hint(e, "if it is a repository in its own right now, copy to another place; else remove it, and copy "
                       "anew");
}

/* ---- blobs ---- */

static int stopped(const struct copy *c, struct err *e)
{
    return c->o->stop && atomic_load_explicit(c->o->stop, memory_order_relaxed)
               ? err_set(e, ERR_INTERRUPTED, ECANCELED, "interrupted")
               : 0;
}

static int hash_failed(struct err *e)
{
    return err_set(e, ERR_GENERIC, EIO, "OpenSSL has no SHA-256");
}

/* All of a blob, in pieces, into the hash and to the writer if there is one. */
static int pass(struct copy *c, struct blobs *b, const struct name *n, uint8_t *buffer, struct blob_writer *w,
                EVP_MD_CTX *sum, struct err *e)
{
    int rc = EVP_DigestInit_ex(sum, EVP_sha256(), NULL) == 1 ? 0 : hash_failed(e);
    for (uint64_t at = 0; rc == 0 && at < n->length;) {
        const size_t len = n->length - at < PIECE ? (size_t)(n->length - at) : PIECE;
        rc = stopped(c, e);
        if (rc == 0)
            rc = copy_lock_keep(c->lock, false, e);
        if (rc == 0)
            rc = blobs_read(b, n->text, at, buffer, len, e);
        if (rc == 0 && EVP_DigestUpdate(sum, buffer, len) != 1)
            rc = hash_failed(e);
        if (rc == 0 && w) {
            rc = blob_writer_write(w, at, buffer, len, e);
            if (rc == 0 && c->o->done)
                atomic_fetch_add_explicit(c->o->done, len, memory_order_relaxed);
        }
        at += len;
    }
    return rc;
}

static int read_back(struct copy *c, const struct name *n, uint8_t *buffer, EVP_MD_CTX *sum, const uint8_t want[32],
                     struct err *e)
{
    uint8_t got[32];
    int rc = pass(c, c->to, n, buffer, NULL, sum, e);
    if (rc == 0 && EVP_DigestFinal_ex(sum, got, NULL) != 1)
        rc = hash_failed(e);
    if (rc == -ENOENT || (rc == 0 && memcmp(got, want, sizeof got) != 0))
        rc = err_plain(e, ERR_DAMAGE, EBADMSG, "blob %s was copied to %s, and is not the same there", n->text,
                       blobs_location(c->to));
    return rc;
}

static int copy_blob(struct copy *c, const struct name *n, uint8_t *buffer, EVP_MD_CTX *sum, struct err *e)
{
    struct blob_writer *w;
    uint8_t want[32];
    int rc = blob_writer_new(&w, c->to, n->text, e);
    if (rc < 0)
        return rc;
    rc = pass(c, c->from, n, buffer, w, sum, e);
    if (rc == 0 && EVP_DigestFinal_ex(sum, want, NULL) != 1)
        rc = hash_failed(e);
    if (rc < 0) {
        blob_writer_abort(w);
        return rc;
    }
    rc = blob_writer_commit(w, n->length, e);
    return rc == 0 && c->o->verify ? read_back(c, n, buffer, sum, want, e) : rc;
}

struct team {
    struct copy *c;
    _Atomic size_t next;
    pthread_mutex_t lock;
    _Atomic int rc; /* of the first failure, with its message: */
    struct err err;
};

static void *team_member(void *arg)
{
    struct team *t = arg;
    struct err e = ERR_INIT;
    int rc = 0;
    uint8_t *buffer = aligned_alloc(4096, PIECE);
    EVP_MD_CTX *sum = EVP_MD_CTX_new();
    if (!buffer || !sum)
        rc = err_nomem(&e);
    for (size_t i; rc == 0 && atomic_load(&t->rc) == 0 && (i = atomic_fetch_add(&t->next, 1)) < t->c->batch.n;)
        rc = copy_blob(t->c, &t->c->batch.names[i], buffer, sum, &e);
    if (rc < 0) {
        pthread_mutex_lock(&t->lock);
        if (atomic_load(&t->rc) == 0) {
            t->err = e;
            atomic_store(&t->rc, rc);
        }
        pthread_mutex_unlock(&t->lock);
    }
    EVP_MD_CTX_free(sum);
    free(buffer);
    return NULL;
}

/* Copies what has been collected, several at a time. -ENOENT: one has vanished in the original. */
static int batch_copy(struct copy *c, struct err *e)
{
    struct team t = {.c = c, .err = ERR_INIT};
    pthread_t threads[AT_ONCE_MAX];
    const unsigned most = c->o->at_once ? c->o->at_once : AT_ONCE;
    unsigned n = 0;
    pthread_mutex_init(&t.lock, NULL);
    while (n + 1 < most && n + 1 < AT_ONCE_MAX && n + 1 < c->batch.n &&
           pthread_create(&threads[n], NULL, team_member, &t) == 0)
        n++;
    team_member(&t); /* with no other thread, too */
    while (n > 0)
        pthread_join(threads[--n], NULL);
    pthread_mutex_destroy(&t.lock);
    for (size_t i = 0; t.rc == 0 && i < c->batch.n; i++) {
        c->result->copied.n++;
        c->result->copied.bytes += c->batch.names[i].length;
    }
    c->batch.n = 0;
    if (t.rc < 0)
        *e = t.err;
    return t.rc;
}

/* ---- lists ---- */

struct walk {
    struct copy *c;
    struct err *e;
};

/* Every name of the original: what the copy has of it, and how much is to be copied. */
static int look(const struct blob_info *i, void *arg)
{
    struct copy *c = arg;
    struct known *k = is_copied(i->name) ? known_find(c, i->name) : NULL;
    if (k)
        k->wanted = true;
    if (!is_copied(i->name))
        return 0;
    c->packs |= is_pack(i->name);
    if (k && k->length == i->length) {
        c->result->present.n++;
        c->result->present.bytes += i->length;
        if (blob_is_locked(i->name) && k->mtime_ns < c->oldest_ns)
            c->oldest_ns = k->mtime_ns;
    } else if (c->o->total) {
        atomic_fetch_add_explicit(c->o->total, i->length, memory_order_relaxed);
    }
    return 0;
}

static int collect_index(const struct blob_info *i, void *arg)
{
    struct copy *c = arg;
    if (is_pack(i->name) || !is_copied(i->name))
        return 0;
    struct name *all = with_room(c->indexes, &c->cap_indexes, c->n_indexes, sizeof *all);
    if (!all)
        return -ENOMEM;
    c->indexes = all;
    struct name *n = &all[c->n_indexes++];
    memcpy(n->text, i->name, sizeof n->text);
    n->length = i->length;
    return 0;
}

static int take_entry(const struct index_entry *en, void *arg)
{
    (void)en;
    (void)arg;
    return 0;
}

/* A blob never changes: of two with other lengths one is damaged. A pack tells of itself whether it is whole; of an
 * index a person has to find out. Negative: an error. */
static int is_whole(struct copy *c, const char *name, uint64_t length, struct err *e)
{
    struct err why = ERR_INIT;
    if (!is_pack(name))
        return 1;
    int rc = pack_read_local_index(c->to, repo_sealer(c->repo), name, length, take_entry, NULL, &why);
    if (rc < 0 && why.cls != ERR_DAMAGE) {
        *e = why;
        return rc;
    }
    return rc >= 0;
}

static int want(struct walk *v, const char *name, uint64_t length)
{
    struct copy *c = v->c;
    const struct known *k = known_find(c, name);
    const int whole = k && k->length != length ? is_whole(c, name, k->length, v->e) : 0;
    if (whole < 0 || (k && k->length == length))
        return whole;
    if (whole) {
        c->result->changed.n++;
        c->result->changed.bytes += length;
        if (!c->changed[0])
            snprintf(c->changed, sizeof c->changed, "%s", name);
        return 0;
    }
    if (c->o->dry_run) {
        c->result->copied.n++;
        c->result->copied.bytes += length;
        return stopped(c, v->e);
    }
    struct name *n = &c->batch.names[c->batch.n++];
    snprintf(n->text, sizeof n->text, "%s", name);
    n->length = length;
    return c->batch.n == BATCH ? batch_copy(c, v->e) : 0;
}

static int want_pack(const struct blob_info *i, void *arg)
{
    return want(arg, i->name, i->length);
}

static int copy_packs(struct copy *c, struct err *e)
{
    struct walk v = {.c = c, .e = e};
    int rc = blobs_list(c->from, "p", want_pack, &v, e);
    if (rc == 0)
        rc = blobs_list(c->from, "q", want_pack, &v, e);
    return rc == 0 ? batch_copy(c, e) : rc;
}

static int copy_indexes(struct copy *c, struct err *e)
{
    struct walk v = {.c = c, .e = e};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->n_indexes; i++)
        rc = want(&v, c->indexes[i].text, c->indexes[i].length);
    return rc == 0 ? batch_copy(c, e) : rc;
}

/* What somebody has overwritten since the repository was opened. */
static int check_format(const struct copy *c, const uint8_t *data, size_t len, struct err *e)
{
    const struct repo_format *f = repo_format(c->repo);
    CLEANUP(format_outer_clear) struct format_outer now = {.doc = NULL};
    struct err none = ERR_INIT;
    if (format_parse_outer(&now, data, len, &none) == 0 && now.unique_id_len == f->unique_id_len &&
        !memcmp(now.unique_id, f->unique_id, f->unique_id_len))
        return 0;
    return err_plain(e, ERR_DAMAGE, EBADMSG, "blob " FORMAT_BLOB " of repository %s was damaged meanwhile",
                     blobs_location(c->from));
}

/* Written again only where it differs: after a change of the password. */
static int copy_format(struct copy *c, const char *name, struct err *e)
{
    CLEANUP_FREE uint8_t *ours = NULL, *theirs = NULL;
    size_t len, have = 0;
    struct err none = ERR_INIT;
    int rc = blobs_get(c->from, name, FORMAT_MAX, &ours, &len, e);
    if (rc == -ENOENT && !strcmp(name, CONFIG_BLOB))
        return 0;
    if (rc == 0 && !strcmp(name, FORMAT_BLOB))
        rc = check_format(c, ours, len, e);
    if (rc < 0 || c->o->dry_run)
        return rc;
    rc = blobs_get(c->to, name, FORMAT_MAX, &theirs, &have, &none);
    if (rc < 0 && rc != -ENOENT) {
        *e = none;
        return rc;
    }
    return rc == 0 && have == len && !memcmp(ours, theirs, len) ? 0 : blobs_put(c->to, name, ours, len, e);
}

/* The time of the copy's storage: that of the mark, which is written for that but in a dry run. */
static int storage_time(struct copy *c, int64_t *ret, struct err *e)
{
    struct blob_info mark;
    struct err none = ERR_INIT;
    if (c->o->dry_run) {
        if (!c->to || blobs_clock(c->to, ret, &none) < 0)
            *ret = now_ns();
        return 0;
    }
    int rc = mark_write(c, "running", e);
    if (rc == 0)
        rc = blobs_stat(c->to, COPY_MARK, &mark, e);
    if (rc == 0)
        *ret = mark.mtime_ns;
    return rc;
}

/* ---- object locks ---- */

/*
 * Where one of them ends before half of its period is over all are extended, so that one time in the mark is enough: to
 * ask for each lock would cost as many requests in each run as to extend it does twice in a period. What the original
 * did not have at that time and has again waits for the next time.
 */
static bool locks_are_due(const struct copy *c, int64_t now_ns)
{
    const struct repo_format *f = repo_format(c->repo);
    const int64_t period_s = f->retention_period_ns / NS_PER_S, now_s = now_ns / NS_PER_S;
    const struct locks *l = &c->locks;
    if (!c->locking || c->oldest_ns == INT64_MAX)
        return false;
    if (strcmp(l->mode, f->retention_mode) != 0 || l->period_s < period_s || l->since_s > now_s)
        return true;
    const int64_t put_s = c->oldest_ns / NS_PER_S;
    return (put_s > l->since_s ? put_s : l->since_s) + period_s / 2 < now_s;
}

static bool is_needed(const char *name, void *arg)
{
    const struct known *k = known_find(arg, name);
    return k && k->wanted;
}

static int goes_on(void *arg, struct err *e)
{
    const struct copy *c = arg;
    int rc = stopped(c, e);
    return rc == 0 ? copy_lock_keep(c->lock, false, e) : rc;
}

/* A lock that cannot be extended does not end the run: what is copied is worth as much without it. */
static int extend_locks(struct copy *c, int64_t now_ns, struct err *e)
{
    const struct repo_format *f = repo_format(c->repo);
    const bool due = locks_are_due(c, now_ns);
    const struct extend_opts o = {
        .blobs = c->to, .now_ns = now_ns, .dry_run = c->o->dry_run, .wanted = is_needed, .go_on = goes_on, .arg = c};
    c->extended = (struct extended){.n = 0};
    const int rc = due ? blob_locks_extend(&o, &c->extended, e) : 0;
    c->result->extended = (struct copy_sum){c->extended.n, c->extended.bytes};
    /* All that was put by this run is locked, too. */
    if (rc == 0 && c->locking && !c->extended.failed && (due || c->oldest_ns == INT64_MAX)) {
        c->locks = (struct locks){.period_s = f->retention_period_ns / NS_PER_S, .since_s = now_ns / NS_PER_S};
        snprintf(c->locks.mode, sizeof c->locks.mode, "%.15s", f->retention_mode);
    }
    return rc;
}

/* ---- deletions ---- */

static bool is_surplus(const char *name, void *arg)
{
    const struct known *k = is_copied(name) ? known_find(arg, name) : NULL;
    return k && !k->wanted;
}

static int delete_gone(struct copy *c, struct err *e)
{
    const struct copy_result *r = c->result;
    int64_t now_ns = 0;
    if (!c->o->delete_after_ns || c->o->dry_run)
        return 0;
    const int rc = storage_time(c, &now_ns, e); /* the run may have begun long ago */
    const struct gone_opts o = {.from = c->repo,
                                .to = c->to,
                                .after_ns = c->o->delete_after_ns,
                                .now_ns = now_ns,
                                .copy_bytes = r->present.bytes + r->copied.bytes + r->surplus.bytes,
                                .empty = !c->n_indexes || !c->packs,
                                .most = c->o->delete_most,
                                .surplus = is_surplus,
                                .go_on = goes_on,
                                .arg = c};
    return rc == 0 ? copy_delete_gone(&o, c->result, e) : rc;
}

/* ---- the whole ---- */

static int list_failed(int rc, struct err *e)
{
    return rc == -ENOMEM ? err_nomem(e) : rc;
}

static int list_copy(struct copy *c, struct err *e)
{
    c->n_known = 0;
    c->has_mark = c->complete = false;
    int rc = c->to ? list_failed(blobs_list(c->to, "", known_add, c, e), e) : 0;
    return rc == 0 && c->to ? check_place(c, e) : rc;
}

static int round_run(struct copy *c, struct err *e)
{
    int64_t began_ns;
    c->n_indexes = c->batch.n = 0;
    c->packs = false;
    c->oldest_ns = INT64_MAX;
    c->locks = (struct locks){.mode = ""};
    c->changed[0] = '\0';
    c->result->changed = (struct copy_sum){0};
    c->result->present = c->result->surplus = (struct copy_sum){0};
    int rc = list_copy(c, e);
    if (rc < 0)
        return rc;
    if (c->n_known)
        qsort(c->known, c->n_known, sizeof *c->known, by_hash);
    rc = list_failed(blobs_list(c->from, "", collect_index, c, e), e);
    if (c->o->total)
        atomic_store(c->o->total, c->result->copied.bytes);
    if (rc == 0)
        rc = blobs_list(c->from, "", look, c, e);
    if (rc == 0)
        rc = check_surplus(c, e);
    if (rc == 0)
        rc = storage_time(c, &began_ns, e);
    if (rc == 0)
        rc = copy_packs(c, e);
    if (rc == 0)
        rc = copy_indexes(c, e);
    if (rc == 0)
        rc = copy_format(c, CONFIG_BLOB, e);
    if (rc == 0)
        rc = copy_format(c, FORMAT_BLOB, e);
    if (rc == 0 && !c->o->dry_run)
        rc = copy_lock_keep(c->lock, true, e);
    if (rc == 0)
        rc = extend_locks(c, began_ns, e);
    if (rc == 0)
        rc = delete_gone(c, e);
    return rc == 0 ? mark_write(c, "complete", e) : rc;
}

/* What is put is locked from then on, as clients of the repository do, if the place has object locks. */
static int retain_copied(struct copy *c, struct err *e)
{
    const struct repo_format *f = repo_format(c->repo);
    struct err why = ERR_INIT;
    if (!c->to || !f->retention_mode[0] || !blobs_have_locks(c->to))
        return 0;
    const int rc = blobs_take_locks(c->to, &why);
    c->locking = rc > 0;
    if (rc > 0)
        blobs_retain(c->to, f->retention_mode, f->retention_period_ns);
    else if (rc == 0 || rc == -EACCES)
        log_warning("what is copied to %s is not locked: %s", blobs_location(c->to),
                    rc == 0 ? "its bucket has no object lock" : why.msg);
    else
        *e = why;
    return rc > 0 || rc == -EACCES ? 0 : rc;
}

/* No lock is put where no copy may be. */
static int lock_copy(struct copy *c, struct err *e)
{
    const int marked = c->o->dry_run ? 1 : copy_is_marked(c->to, e);
    int rc = marked < 0 ? marked : marked ? 0 : list_copy(c, e);
    /* Two that begin at the same time would not see each other's blobs. */
    if (rc == 0 && !c->o->dry_run && blobs_layout_is_guessed(c->to))
        rc = err_plain(e, ERR_BUSY, EBUSY, "another process is making the copy in %s", blobs_location(c->to));
    return rc == 0 && !c->o->dry_run ? copy_lock_take(&c->lock, c->to, c->o->owner, c->o->stop, e) : rc;
}

/* Before anything is written: they may be what fills the place. */
static int remove_leftovers(struct copy *c, struct err *e)
{
    struct blob_leftovers left;
    if (!c->to)
        return 0;
    const int rc = leftovers_remove_in(c->to, c->o->dry_run, &left, e);
    c->result->left = (struct copy_sum){left.files, left.bytes};
    return rc;
}

static int changed_there(const struct copy *c, struct err *e)
{
    err_plain(
        e, ERR_DAMAGE, EBADMSG,
        "%llu blob%s of repository %s changed after the copy was made, %s is the first: the copy in %s keeps its own",
        (unsigned long long)c->result->changed.n, plural(c->result->changed.n), blobs_location(c->from), c->changed,
        blobs_location(c->to));
    return err_hint(e, "verify both: if the repository is damaged, or somebody has written to it, the copy has what it "
                       "lacks (docs/copies.md)");
}

static int not_extended(const struct copy *c, struct err *e)
{
    const int rc = blob_locks_failed(&c->extended, e);
    return rc == 0 ? 0
                   : err_hint(e, "all is copied, and the next run tries it again. The key needs the right "
                                 "s3:PutObjectRetention; no lock can be made to end earlier, as after a shorter "
                                 "retention was set");
}

static int rounds_run(struct copy *c, struct err *e)
{
    int rc;
    do {
        c->result->rounds++;
        rc = round_run(c, e);
    } while (rc == -ENOENT && c->result->rounds < ROUNDS);
    if (rc == -ENOENT)
        rc = err_plain(e, ERR_BUSY, EAGAIN, "blobs of repository %s vanished in each of %d attempts to copy it",
                       blobs_location(c->from), ROUNDS);
    return rc;
}

int repo_copy(struct repo *from, struct blobs *to, const struct copy_opts *o, struct copy_result *ret, struct err *e)
{
    *ret = (struct copy_result){.rounds = 0};
    if (!repo_format(from)->epochs.enabled) {
        err_plain(e, ERR_FORMAT, ENOTSUP, "repository %s has no epochs, and cannot be copied by snapferry",
                  blobs_location(repo_blobs(from)));
        return err_hint(e,
                        "let stock Kopia copy it (kopia repository sync-to), or upgrade its format with stock Kopia");
    }
    struct copy *c = calloc(1, sizeof *c);
    if (!c)
        return err_nomem(e);
    c->repo = from;
    c->from = repo_blobs(from);
    c->to = to;
    c->o = o;
    c->result = ret;
    int rc = to ? blobs_prepare(to, e) : 0;
    if (rc == 0)
        rc = lock_copy(c, e);
    if (rc == 0)
        rc = remove_leftovers(c, e);
    if (rc == 0)
        rc = retain_copied(c, e);
    if (rc == 0)
        rc = rounds_run(c, e);
    if (rc == 0 && to && !o->dry_run)
        rc = blobs_check_layout(to, e);
    if (rc == 0 && ret->changed.n)
        rc = changed_there(c, e);
    else if (rc == 0)
        rc = not_extended(c, e);
    copy_lock_free(c->lock);
    free(c->known);
    free(c->indexes);
    free(c);
    return rc;
}

int copy_is_marked(struct blobs *b, struct err *e)
{
    struct blob_info i;
    struct err own = ERR_INIT;
    const int rc = blobs_stat(b, COPY_MARK, &i, &own);
    if (rc == 0)
        return 1;
    if (rc == -ENOENT)
        return 0;
    *e = own;
    return rc;
}
