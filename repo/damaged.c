/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * damaged.c - contents that could not be read, and packs that were missing or too short
 *
 * What was found by any process of this machine is kept in a file of the cache directory, sealed with a key of the
 * repository, so that the next backup that meets such a content stores it again. A content is known by its place, as a
 * hash of 64 bits: once it is stored elsewhere the record means nothing any more, and a collision stores one content
 * more. Those that error correction had to restore are among them, by another hash: they can be read. The file may be
 * deleted at any time.
 */
#include "base/bytes.h"
#include "base/cleanup.h"
#include "repo/format-parse.h"
#include "repo/repo-impl.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>

#define KNOWN_MAX ((size_t)65536) /* of each kind; the oldest are forgotten first */
#define FILE_NAME "damaged"
#define HEADER 8
static const char aad[] = "snapferry damaged 1";

/*
 * Numbers in the order in which they became known. `sorted` is of those of the file. Others are added behind them, and
 * to `added`, a hash table with an empty slot (0) behind each run: verify asks for each content of a missing pack.
 */
struct known {
    uint64_t *all, *sorted;
    _Atomic uint64_t *added;
    size_t n_file;
    _Atomic size_t n;
};
#define ADDED_SLOTS (2 * KNOWN_MAX)

/* A pack that was missing or too short, asked for again. */
struct asked {
    uint64_t pack, length;
};

struct damage {
    struct known places, packs;
    struct asked *asked;
    size_t n_asked;
    bool changed;
};

/* ---- what is known ---- */

static uint64_t mix(uint64_t h, const void *data, size_t len)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * UINT64_C(1099511628211);
    h ^= h >> 29;
    return h * UINT64_C(0xbf58476d1ce4e5b9);
}

static uint64_t hash_pack(const char *pack)
{
    return mix(UINT64_C(14695981039346656037), pack, strlen(pack));
}

static uint64_t hash_place(const struct index_entry *x)
{
    uint64_t h = mix(hash_pack(x->pack), &x->offset, sizeof x->offset);
    h = mix(h, &x->id.prefix, 1);
    return mix(h, x->id.hash, x->id.len);
}

/* Of one that error correction had to restore. */
static uint64_t hash_corrected(uint64_t place)
{
    return mix(place, "corrected", 9);
}

static int by_number(const void *pa, const void *pb)
{
    const uint64_t *a = pa, *b = pb;
    return (*a > *b) - (*a < *b);
}

/* Where it is among the added ones, or the empty slot where it belongs. */
static _Atomic uint64_t *added_slot(const struct known *k, uint64_t h)
{
    for (size_t i = (h >> 32) % ADDED_SLOTS;; i = (i + 1) % ADDED_SLOTS) {
        const uint64_t there = atomic_load_explicit(&k->added[i], memory_order_relaxed);
        if (there == h || there == 0)
            return &k->added[i];
    }
}

static bool known_has(const struct known *k, uint64_t h)
{
    h += h == 0; /* 0 is an empty slot */
    const size_t n = atomic_load_explicit(&k->n, memory_order_acquire);
    if (n == 0)
        return false;
    if (k->n_file && bsearch(&h, k->sorted, k->n_file, sizeof h, by_number))
        return true;
    return n > k->n_file && atomic_load_explicit(added_slot(k, h), memory_order_relaxed) == h;
}

/* Under the lock. */
static bool known_add(struct known *k, uint64_t h)
{
    if (!k->all)
        k->all = calloc(2 * KNOWN_MAX, sizeof *k->all);
    h += h == 0;
    if (!k->added)
        k->added = calloc(ADDED_SLOTS, sizeof *k->added);
    const size_t n = k->n;
    if (!k->all || !k->added || n - k->n_file >= KNOWN_MAX || known_has(k, h))
        return false;
    k->all[n] = h;
    atomic_store_explicit(added_slot(k, h), h, memory_order_relaxed);
    atomic_store_explicit(&k->n, n + 1, memory_order_release);
    return true;
}

static void known_clear(struct known *k)
{
    free(k->all);
    free(k->sorted);
    free((void *)k->added);
    *k = (struct known){0};
}

/* ---- the file ---- */

static int damage_key(const struct repo *r, uint8_t key[32], struct err *e)
{
    const struct repo_format *f = atomic_load(&r->format); /* repo.c is above this */
    return hkdf_sha256(f->secret, f->secret_len, f->unique_id, f->unique_id_len, "snapferry damaged contents", key, 32,
                       e);
}

/* Numbers of a file: *p is moved behind them. */
static bool known_parse(struct known *k, const uint8_t **p, const uint8_t *end, size_t n)
{
    if (n > KNOWN_MAX || (size_t)(end - *p) < n * sizeof *k->all)
        return false;
    if (n == 0)
        return true;
    k->all = calloc(2 * KNOWN_MAX, sizeof *k->all);
    k->sorted = calloc(n, sizeof *k->sorted);
    if (!k->all || !k->sorted)
        return false;
    for (size_t i = 0; i < n; i++, *p += sizeof *k->all)
        k->sorted[i] = k->all[i] = get_le64(*p);
    qsort(k->sorted, n, sizeof *k->sorted, by_number);
    k->n_file = n;
    atomic_store(&k->n, n);
    return true;
}

static void file_path(const struct repo *r, const char *suffix, char path[4400])
{
    snprintf(path, 4400, "%s/" FILE_NAME "%s", r->cache_dir, suffix);
}

/* False: there is none, or it is not valid. */
static bool file_read(const struct repo *r, struct damage *d)
{
    char path[4400];
    uint8_t key[32];
    struct err ignored = ERR_INIT;
    struct stat st;
    file_path(r, "", path);
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const size_t most = HEADER + 2 * KNOWN_MAX * sizeof(uint64_t) + FORMAT_LAYER_OVERHEAD;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < FORMAT_LAYER_OVERHEAD + HEADER ||
        (uint64_t)st.st_size > most || damage_key(r, key, &ignored) < 0)
        return false;
    const size_t len = (size_t)st.st_size;
    CLEANUP_FREE uint8_t *sealed = malloc(len), *plain = malloc(len);
    bool ok = sealed && plain && pread(fd, sealed, len, 0) == (ssize_t)len &&
              document_open(key, aad, sizeof aad, sealed, len, plain, &ignored) >= HEADER;
    OPENSSL_cleanse(key, sizeof key);
    if (!ok)
        return false;
    const uint8_t *p = plain + HEADER, *end = plain + len - FORMAT_LAYER_OVERHEAD;
    if (known_parse(&d->places, &p, end, get_le32(plain)) && known_parse(&d->packs, &p, end, get_le32(plain + 4)))
        return true;
    known_clear(&d->places);
    known_clear(&d->packs);
    return false;
}

static size_t known_put(const struct known *k, uint8_t *out)
{
    const size_t skip = k->n > KNOWN_MAX ? k->n - KNOWN_MAX : 0;
    for (size_t i = skip; i < k->n; i++)
        put_le64(out + (i - skip) * sizeof *k->all, k->all[i]);
    return k->n - skip;
}

static int file_write(const struct repo *r, const struct damage *d, struct err *e)
{
    char path[4400], temp[4400];
    uint8_t key[32];
    const size_t most = HEADER + 2 * KNOWN_MAX * sizeof(uint64_t);
    CLEANUP_FREE uint8_t *plain = malloc(most), *sealed = malloc(most + FORMAT_LAYER_OVERHEAD);
    if (!plain || !sealed)
        return err_nomem(e);
    const size_t n = known_put(&d->places, plain + HEADER);
    const size_t m = known_put(&d->packs, plain + HEADER + n * sizeof(uint64_t));
    const size_t len = HEADER + (n + m) * sizeof(uint64_t), sealed_len = len + FORMAT_LAYER_OVERHEAD;
    put_le32(plain, (uint32_t)n);
    put_le32(plain + 4, (uint32_t)m);
    int rc = damage_key(r, key, e);
    if (rc == 0)
        rc = document_seal(key, aad, sizeof aad, plain, len, sealed, e);
    OPENSSL_cleanse(key, sizeof key);
    if (rc < 0)
        return rc;
    file_path(r, "", path);
    file_path(r, ".new", temp);
    CLEANUP_CLOSE int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write(fd, sealed, sealed_len) != (ssize_t)sealed_len || rename(temp, path) < 0) {
        rc = err_set(e, ERR_GENERIC, errno, "cannot write %s", path);
        unlink(temp);
    }
    return rc;
}

/* What this process found is added to what others have found meanwhile. */
static int file_merge(const struct repo *r, const struct damage *d, struct err *e)
{
    char path[4400];
    struct damage now = {0};
    file_path(r, ".lock", path);
    CLEANUP_CLOSE int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock < 0 || flock(lock, LOCK_EX) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot lock %s", path);
    file_read(r, &now);
    for (size_t i = d->places.n_file; i < d->places.n; i++)
        known_add(&now.places, d->places.all[i]);
    for (size_t i = d->packs.n_file; i < d->packs.n; i++)
        known_add(&now.packs, d->packs.all[i]);
    int rc = file_write(r, &now, e);
    known_clear(&now.places);
    known_clear(&now.packs);
    return rc;
}

/* ---- of a repository ---- */

int damage_open(struct repo *r, struct err *e)
{
    r->damage = calloc(1, sizeof *r->damage);
    if (!r->damage)
        return err_nomem(e);
    file_read(r, r->damage);
    return 0;
}

void repo_save_damage(struct repo *r)
{
    struct err why = ERR_INIT;
    pthread_mutex_lock(&r->damaged_lock);
    if (r->damage && r->damage->changed && file_merge(r, r->damage, &why) < 0)
        log_warning("what was found to be damaged cannot be remembered for the next backup: %s", why.msg);
    else if (r->damage)
        r->damage->changed = false;
    pthread_mutex_unlock(&r->damaged_lock);
}

void damage_close(struct repo *r)
{
    if (!r->damage)
        return;
    repo_save_damage(r);
    known_clear(&r->damage->places);
    known_clear(&r->damage->packs);
    free(r->damage->asked);
    free(r->damage);
}

void repo_note_damage(struct repo *r, const struct index_entry *x)
{
    pthread_mutex_lock(&r->damaged_lock);
    if (known_add(&r->damage->places, hash_place(x)))
        r->damage->changed = true;
    pthread_mutex_unlock(&r->damaged_lock);
}

void repo_on_corrected(struct repo *r, repo_corrected_fn *fn, void *arg)
{
    r->on_corrected = fn;
    r->on_corrected_arg = arg;
}

void repo_note_corrected(struct repo *r, const struct index_entry *x)
{
    pthread_mutex_lock(&r->damaged_lock);
    if (known_add(&r->damage->places, hash_corrected(hash_place(x))))
        r->damage->changed = true;
    pthread_mutex_unlock(&r->damaged_lock);
    if (r->on_corrected)
        r->on_corrected(x, r->on_corrected_arg);
}

bool repo_is_corrected(struct repo *r, const struct index_entry *x)
{
    const struct known *k = &r->damage->places;
    const uint64_t h = k->n > 0 ? hash_place(x) : 0;
    return k->n > 0 && known_has(k, hash_corrected(h)) && !known_has(k, h);
}

void repo_note_bad_pack(struct repo *r, const char *pack)
{
    pthread_mutex_lock(&r->damaged_lock);
    if (known_add(&r->damage->packs, hash_pack(pack)))
        r->damage->changed = true;
    pthread_mutex_unlock(&r->damaged_lock);
}

/* Its length now, 0: it is missing. Each is asked for once: it may have come back. */
static int pack_length(struct repo *r, const char *pack, uint64_t *ret, struct err *e)
{
    struct damage *d = r->damage;
    const uint64_t h = hash_pack(pack);
    struct blob_info info = {0};
    struct err own = ERR_INIT;
    for (size_t i = 0; i < d->n_asked; i++) {
        if (d->asked[i].pack == h) {
            *ret = d->asked[i].length;
            return 0;
        }
    }
    int rc = blobs_stat(r->blobs, pack, &info, &own);
    if (rc < 0 && rc != -ENOENT) {
        if (e)
            *e = own;
        return rc;
    }
    *ret = rc == 0 ? info.length : 0;
    struct asked *all = realloc(d->asked, (d->n_asked + 1) * sizeof *all);
    if (all) {
        d->asked = all;
        all[d->n_asked++] = (struct asked){h, *ret};
    }
    return 0;
}

int repo_is_damaged(struct repo *r, const struct index_entry *x, struct err *e)
{
    struct damage *d = r->damage;
    uint64_t length = 0;
    const uint64_t place = d->places.n > 0 ? hash_place(x) : 0;
    if (d->places.n > 0 && (known_has(&d->places, place) || known_has(&d->places, hash_corrected(place))))
        return 1;
    if (!known_has(&d->packs, hash_pack(x->pack)))
        return 0;
    pthread_mutex_lock(&r->damaged_lock);
    int rc = pack_length(r, x->pack, &length, e);
    pthread_mutex_unlock(&r->damaged_lock);
    return rc < 0 ? rc : (uint64_t)x->offset + x->packed > length;
}
