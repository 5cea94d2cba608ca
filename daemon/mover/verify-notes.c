/* SPDX-License-Identifier: GPL-2.0-or-later */
/* verify-notes.c - see verify-notes.h. Crash point: verify-noted (a block was written). */
#include "daemon/mover/verify-notes.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"
#include "repo/item.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define NOTE_SECONDS 2  /* of reading are done again after a kill, */
#define SYNC_SECONDS 30 /* and after a power failure */
#define KEYS_MAX 8192   /* of a block */
#define DAMAGED_MAX 256
#define NOTED_TAG 254 /* in the set */
#define AGE_NS (VERIFY_RESUME_DAYS * NS_PER_DAY)
#define FUTURE_NS (5 * NS_PER_MIN)

#define KEY 8
#define MAC 16
#define PREFIX "verify-"
#define FORMAT_BLOB "kopia.repository"
static const char magic[8] = "sfread1\n";
#define HEAD (sizeof magic + 8 + 8 + MAC) /* salt, time, hash */
#define BLOCK_HEAD (8 + MAC)              /* kind, number of items, hash */
#define KIND_WHOLE 1u
#define KIND_DAMAGED 2u
#define DAMAGED_ITEM (2 + HASH_MAX) /* prefix, length, hash */

struct verify_notes {
    struct repo *repo;
    char path[4400];
    uint8_t choice[MAC], mac[MAC]; /* what is verified; the last block written or read */
    uint64_t salt;
    int64_t began_ns;
    bool resumed, failed;
    pthread_mutex_t lock; /* of what follows */
    int fd;               /* locked; -1: nothing written yet */
    uint64_t end;         /* of the last whole block */
    int64_t noted_ns, synced_ns;
    unsigned keys_n;
    uint8_t block[BLOCK_HEAD + KEYS_MAX * KEY];
    struct content_id damaged[DAMAGED_MAX], /* by this run, to be written */
        before[DAMAGED_MAX];                /* by the interrupted one */
    unsigned damaged_n, before_n;
};

/* With the key of the cache, not that of contents: whose hashes are their ids, of any data that somebody has backed up.
 * False: the cryptographic library failed. */
static bool digest(const struct repo *r, const void *data, size_t len, uint8_t ret[MAC])
{
    uint8_t out[EVP_MAX_MD_SIZE];
    unsigned n;
    if (!HMAC(EVP_sha256(), sealer_cache_key(repo_sealer(r)), 32, data, len, out, &n) || n < MAC)
        return false;
    memcpy(ret, out, MAC);
    return true;
}

/* Of a content at its place: what is stored elsewhere was not read there. */
static void key_of(const struct verify_notes *n, const struct index_entry *en, uint8_t ret[KEY])
{
    uint8_t text[32 + HASH_MAX + BLOB_NAME_MAX + 1] = "verified", out[HASH_MAX];
    const size_t pack = strlen(en->pack);
    size_t at = 8;
    put_le32(text + at, en->offset);
    put_le32(text + at + 4, en->packed);
    at += 8;
    text[at++] = (uint8_t)en->id.prefix;
    text[at++] = en->id.len;
    memcpy(text + at, en->id.hash, en->id.len);
    at += en->id.len;
    memcpy(text + at, en->pack, pack);
    hasher_digest(sealer_hasher(repo_sealer(n->repo)), text, at + pack, out);
    memcpy(ret, out, KEY);
}

/* ---- the file ---- */

static bool head_make(const struct verify_notes *n, uint64_t salt, int64_t began_ns, uint8_t ret[HEAD])
{
    uint8_t text[HEAD];
    memcpy(ret, magic, sizeof magic);
    put_le64(ret + 8, salt);
    put_le64(ret + 16, (uint64_t)began_ns);
    memcpy(text, ret, HEAD - MAC);
    memcpy(text + HEAD - MAC, n->choice, MAC);
    return digest(n->repo, text, HEAD, ret + HEAD - MAC);
}

/* Of a block, which has its hash at its place: over the hash before it and all but itself. Changes the block. */
static bool block_mac(const struct verify_notes *n, uint8_t *block, size_t len, uint8_t ret[MAC])
{
    memcpy(block + 8, n->mac, MAC);
    return digest(n->repo, block, len, ret);
}

/* And not of a run that has come to its end since the file was opened. */
static bool is_recent(int fd, int64_t began_ns)
{
    const int64_t now = now_ns();
    struct stat st;
    if (fstat(fd, &st) < 0 || st.st_nlink == 0)
        return false;
    const int64_t noted = timespec_ns(st.st_mtim);
    return noted >= now - AGE_NS && noted <= now + FUTURE_NS && began_ns <= now + FUTURE_NS;
}

static bool head_read(struct verify_notes *n, int64_t not_before_ns)
{
    uint8_t found[HEAD], want[HEAD];
    if (pread(n->fd, found, HEAD, 0) != (ssize_t)HEAD)
        return false;
    const uint64_t salt = get_le64(found + 8);
    const int64_t began_ns = (int64_t)get_le64(found + 16);
    if (!head_make(n, salt, began_ns, want) || memcmp(found, want, HEAD) != 0 || !is_recent(n->fd, began_ns) ||
        began_ns < not_before_ns)
        return false;
    n->salt = salt;
    n->began_ns = began_ns;
    memcpy(n->mac, found + HEAD - MAC, MAC);
    return true;
}

static bool write_at(int fd, const void *data, size_t len, uint64_t pos)
{
    const ssize_t done = pwrite(fd, data, len, (off_t)pos);
    if (done >= 0 && (size_t)done < len)
        errno = ENOSPC;
    return done == (ssize_t)len;
}

/* From now on nothing is noted; what is there stays. */
static void notes_fail(struct verify_notes *n)
{
    const int sys = errno;
    n->failed = true;
    if (n->fd < 0 && sys == EWOULDBLOCK) {
        log_info("another process verifies the same: what this one reads is not noted");
        return;
    }
    if (n->fd >= 0 && ftruncate(n->fd, (off_t)n->end) < 0)
        log_debug("cannot cut %s: %s", n->path, strerror(errno));
    log_warning(
        "cannot note in %s what was verified: %s; if this run is interrupted, what it reads from now on is read "
        "again",
        n->path, strerror(sys));
}

static bool file_create(struct verify_notes *n)
{
    uint8_t head[HEAD];
    n->fd = open(n->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (n->fd >= 0 && flock(n->fd, LOCK_EX | LOCK_NB) < 0) { /* it is that of another process */
        const int sys = errno;
        close(n->fd);
        n->fd = -1;
        errno = sys;
    }
    if (n->fd < 0)
        return false;
    if (!head_make(n, n->salt, n->began_ns, head)) {
        errno = EIO;
        return false;
    }
    if (ftruncate(n->fd, 0) < 0 || !write_at(n->fd, head, HEAD, 0))
        return false;
    memcpy(n->mac, head + HEAD - MAC, MAC);
    n->end = HEAD;
    return true;
}

/* Items are behind the head of the block. With the lock. */
static bool block_write(struct verify_notes *n, uint32_t kind, uint8_t *block, unsigned items, size_t item)
{
    uint8_t mac[MAC];
    const size_t len = BLOCK_HEAD + items * item;
    if (n->end == 0 && !file_create(n))
        return false;
    put_le32(block, kind);
    put_le32(block + 4, items);
    if (!block_mac(n, block, len, mac)) {
        errno = EIO;
        return false;
    }
    memcpy(block + 8, mac, MAC);
    if (!write_at(n->fd, block, len, n->end))
        return false;
    memcpy(n->mac, mac, MAC);
    n->end += len;
    crash_point("verify-noted");
    return true;
}

static bool damaged_write(struct verify_notes *n)
{
    uint8_t block[BLOCK_HEAD + DAMAGED_MAX * DAMAGED_ITEM] = {0};
    for (unsigned i = 0; i < n->damaged_n; i++) {
        uint8_t *p = block + BLOCK_HEAD + (size_t)i * DAMAGED_ITEM;
        p[0] = (uint8_t)n->damaged[i].prefix;
        p[1] = n->damaged[i].len;
        memcpy(p + 2, n->damaged[i].hash, HASH_MAX);
    }
    return block_write(n, KIND_DAMAGED, block, n->damaged_n, DAMAGED_ITEM);
}

/* With the lock. */
static void notes_write(struct verify_notes *n)
{
    bool ok = !n->keys_n || block_write(n, KIND_WHOLE, n->block, n->keys_n, KEY);
    ok = ok && (!n->damaged_n || damaged_write(n));
    n->keys_n = n->damaged_n = 0;
    n->noted_ns = mono_ns();
    if (!ok)
        notes_fail(n);
}

/* ---- what was read before ---- */

static void add_damaged(struct verify_notes *n, const uint8_t *p)
{
    struct content_id *id = &n->before[n->before_n];
    if (n->before_n == DAMAGED_MAX || p[1] > HASH_MAX)
        return;
    *id = (struct content_id){.prefix = (char)p[0], .len = p[1]};
    memcpy(id->hash, p + 2, id->len);
    n->before_n++;
}

static int items_add(struct verify_notes *n, uint32_t kind, const uint8_t *p, unsigned items, struct id_set *set,
                     struct err *e)
{
    int rc = 0;
    for (unsigned i = 0; i < items && rc >= 0; i++) {
        struct content_id key = {.len = KEY};
        if (kind == KIND_DAMAGED) {
            add_damaged(n, p + (size_t)i * DAMAGED_ITEM);
            continue;
        }
        memcpy(key.hash, p + (size_t)i * KEY, KEY);
        rc = id_set_add_later(set, &key, NOTED_TAG, e);
    }
    return rc;
}

/* The block at n->end. 1: it is whole; 0: it is not, or there is none; or an error of the set. */
static int block_read(struct verify_notes *n, struct id_set *set, struct err *e)
{
    uint8_t mac[MAC], found[MAC], head[BLOCK_HEAD];
    if (pread(n->fd, head, BLOCK_HEAD, (off_t)n->end) != (ssize_t)BLOCK_HEAD)
        return 0;
    const uint32_t kind = get_le32(head), items = get_le32(head + 4);
    const bool whole = kind == KIND_WHOLE;
    if ((!whole && kind != KIND_DAMAGED) || !items || items > (whole ? KEYS_MAX : DAMAGED_MAX))
        return 0;
    const size_t len = BLOCK_HEAD + items * (whole ? KEY : DAMAGED_ITEM);
    if (pread(n->fd, n->block, len, (off_t)n->end) != (ssize_t)len)
        return 0;
    memcpy(found, n->block + 8, MAC);
    if (!block_mac(n, n->block, len, mac) || memcmp(found, mac, MAC) != 0)
        return 0;
    const int rc = items_add(n, kind, n->block + BLOCK_HEAD, items, set, e);
    if (rc < 0)
        return rc;
    memcpy(n->mac, mac, MAC);
    n->end += len;
    return 1;
}

int verify_notes_load(struct verify_notes *n, struct id_set *set, struct err *e)
{
    char began[TIME_TEXT];
    int rc = 1;
    if (!n->resumed)
        return 0;
    n->end = HEAD;
    while (rc > 0)
        rc = block_read(n, set, e);
    if (rc >= 0)
        rc = id_set_settle(set, e);
    if (rc >= 0 && ftruncate(n->fd, (off_t)n->end) < 0)
        notes_fail(n);
    if (rc >= 0)
        log_info("resuming a verification that was interrupted, begun at %s: what it has read is not read again",
                 time_text(n->began_ns, began));
    return rc;
}

uint64_t verify_notes_expected(const struct verify_notes *n)
{
    struct stat st;
    return n->resumed && fstat(n->fd, &st) == 0 && st.st_size > 0 ? (uint64_t)st.st_size / KEY : 0;
}

bool verify_notes_has(const struct verify_notes *n, struct id_set *set, const struct index_entry *en)
{
    struct content_id key = {.len = KEY};
    if (!n->resumed)
        return false;
    key_of(n, en, key.hash);
    return id_set_has(set, &key, NOTED_TAG);
}

int64_t verify_notes_since(const struct verify_notes *n)
{
    return n->began_ns;
}

bool verify_notes_exist(const struct verify_notes *n)
{
    return n->end > HEAD || (!n->failed && n->keys_n);
}

/* ---- what is read now ---- */

/* Another worker may read on meanwhile. */
static void sync_if_due(struct verify_notes *n)
{
    const int64_t now = mono_ns();
    pthread_mutex_lock(&n->lock);
    const int fd = n->fd >= 0 && now - n->synced_ns >= SYNC_SECONDS * NS_PER_S ? n->fd : -1;
    if (fd >= 0)
        n->synced_ns = now;
    pthread_mutex_unlock(&n->lock);
    if (fd >= 0 && fdatasync(fd) < 0)
        log_debug("%s: %s", n->path, strerror(errno));
}

/* With the lock, which it gives back. */
static void note_end(struct verify_notes *n)
{
    const bool due =
        n->keys_n == KEYS_MAX || n->damaged_n == DAMAGED_MAX || mono_ns() - n->noted_ns >= NOTE_SECONDS * NS_PER_S;
    if (due)
        notes_write(n);
    pthread_mutex_unlock(&n->lock);
    if (due)
        sync_if_due(n);
}

static void log_whole_again(const struct verify_notes *n, const struct index_entry *en)
{
    char text[CONTENT_ID_TEXT];
    for (unsigned i = 0; i < n->before_n; i++)
        if (content_id_equal(&n->before[i], &en->id))
            log_warning("content %s in pack %s could not be read before the verification was interrupted, and can be "
                        "now: check the storage",
                        content_id_text(&en->id, text), en->pack);
}

void verify_notes_whole(struct verify_notes *n, const struct index_entry *en)
{
    uint8_t key[KEY];
    if (!n)
        return;
    if (n->before_n)
        log_whole_again(n, en);
    if (repo_is_corrected(n->repo, en))
        return;
    key_of(n, en, key);
    pthread_mutex_lock(&n->lock);
    if (!n->failed)
        memcpy(n->block + BLOCK_HEAD + (size_t)n->keys_n++ * KEY, key, KEY);
    note_end(n);
}

void verify_notes_damaged(struct verify_notes *n, const struct content_id *id)
{
    if (!n)
        return;
    pthread_mutex_lock(&n->lock);
    if (!n->failed)
        n->damaged[n->damaged_n++] = *id;
    note_end(n);
}

/* ---- beginning and end ---- */

/* Of runs that nobody went on with. */
static void old_remove(const char *dir_name)
{
    DIR *d = opendir(dir_name);
    const int64_t before = now_ns() - AGE_NS;
    for (const struct dirent *x; d && (x = readdir(d));) {
        struct stat st;
        if (strncmp(x->d_name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        CLEANUP_CLOSE int fd = openat(dirfd(d), x->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && timespec_ns(st.st_mtim) < before &&
            flock(fd, LOCK_EX | LOCK_NB) == 0)
            unlinkat(dirfd(d), x->d_name, 0);
    }
    if (d)
        closedir(d);
}

/*
 * Which repository, beside its key: a copy has the same, its directory in the cache is the same, and each of its packs
 * has the name and the contents of one of the original. So where it is; and since disks with copies may change at that
 * place, when the blob of its format was stored there.
 */
static bool choice_make(struct verify_notes *n, const void *choice, size_t len)
{
    struct blobs *b = repo_blobs(n->repo);
    const char *at = blobs_location(b);
    const size_t at_len = strlen(at) + 1;
    struct blob_info format = {.mtime_ns = 0};
    struct err ignored = ERR_INIT;
    CLEANUP_FREE uint8_t *text = malloc(8 + at_len + len);
    if (!text)
        return false;
    if (blobs_stat(b, FORMAT_BLOB, &format, &ignored) < 0)
        format.mtime_ns = 0; /* whatever is wrong is found again */
    put_le64(text, (uint64_t)format.mtime_ns);
    memcpy(text + 8, at, at_len);
    memcpy(text + 8 + at_len, choice, len);
    return digest(n->repo, text, 8 + at_len + len, n->choice);
}

int verify_notes_open(struct verify_notes **ret, struct repo *r, const void *choice, size_t len, int64_t not_before_ns,
                      uint64_t *salt, struct err *e)
{
    struct verify_notes *n = calloc(1, sizeof *n);
    if (!n)
        return err_nomem(e);
    const char *dir = repo_cache_dir(r);
    n->repo = r;
    n->salt = *salt;
    n->began_ns = now_ns();
    n->noted_ns = n->synced_ns = mono_ns();
    pthread_mutex_init(&n->lock, NULL);
    if (!choice_make(n, choice, len)) {
        pthread_mutex_destroy(&n->lock);
        free(n);
        return err_nomem(e);
    }
    int at = snprintf(n->path, sizeof n->path, "%s/" PREFIX, dir);
    for (unsigned i = 0; i < MAC; i++)
        at += snprintf(n->path + at, sizeof n->path - (size_t)at, "%02x", n->choice[i]);
    old_remove(dir);
    n->fd = open(n->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (n->fd >= 0 && flock(n->fd, LOCK_EX | LOCK_NB) < 0) {
        log_info("another process verifies the same: what this one reads is not noted");
        n->failed = true;
    } else if (n->fd >= 0 && !(n->resumed = head_read(n, not_before_ns))) {
        unlink(n->path);
        close(n->fd);
        n->fd = -1;
    }
    *salt = n->salt;
    *ret = n;
    return 0;
}

void verify_notes_close(struct verify_notes *n, bool finished)
{
    if (!n)
        return;
    if (finished && n->fd >= 0 && (n->end || n->resumed))
        unlink(n->path);
    else if (!finished && !n->failed)
        notes_write(n);
    if (!finished && n->fd >= 0 && fdatasync(n->fd) < 0)
        log_debug("%s: %s", n->path, strerror(errno));
    if (n->fd >= 0)
        close(n->fd);
    pthread_mutex_destroy(&n->lock);
    free(n);
}
