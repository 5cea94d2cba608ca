/* SPDX-License-Identifier: GPL-2.0-or-later */
/* repo-impl.h - the inside of an open repository; for the files of repo/ that make up repo.h only */
#ifndef SNAPFERRY_REPO_REPO_IMPL_H
#define SNAPFERRY_REPO_REPO_IMPL_H

#include "base/time.h"
#include "repo/expanded.h"
#include "repo/metadata-cache.h"
#include "repo/packset.h"
#include "repo/repo.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/random.h>

/* Limits of index entries (section 8.2). */
#define CONTENT_LEN_LIMIT (UINT32_C(1) << 28)
#define PACK_OFFSET_LIMIT (UINT32_C(1) << 30)

struct repo {
    struct blobs *blobs;
    _Atomic(const struct repo_format *)
        format; /* the newest; older ones are kept until repo_free(): callers hold them */
    struct repo_format **formats;
    size_t n_formats;
    bool key_given;
    struct sealer *sealer;
    struct index_set *index;
    struct pack_set *packs; /* repo_check_packs(); NULL: the index is believed */
    struct expanded *expanded;
    struct metadata_cache *metadata; /* NULL: none */
    uint64_t cache_cap;

    pthread_mutex_t damaged_lock;
    struct damage *damage; /* damaged.c */
    char *cache_dir, *username, *hostname;

    pthread_mutex_t fresh_lock; /* one thread refreshes */
    _Atomic int64_t format_checked_ns;
    atomic_uint misses; /* index refreshes because of missing contents (content.c) */

    pthread_rwlock_t sessions_lock; /* the list below */
    struct session *sessions;

    uint64_t memory_cap; /* repo_memory() */
    _Atomic uint64_t held, refused;

    _Atomic int64_t skew_ns; /* of the store's clock; SKEW_UNKNOWN: never compared */

    repo_corrected_fn *on_corrected; /* NULL: nobody wants to know */
    void *on_corrected_arg;
};

#define SKEW_UNKNOWN INT64_MIN
void repo_note_skew(struct repo *r, int64_t ns);

/* Fills with random bytes. */
static inline int random_bytes(void *p, size_t len, struct err *e)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = getrandom((char *)p + done, len - done, 0);
        if (n < 0 && errno != EINTR)
            return err_set(e, ERR_GENERIC, errno, "cannot get random bytes");
        if (n > 0)
            done += (size_t)n;
    }
    return 0;
}

/* A buffer that only grows: no allocation in steady state. */
struct grown {
    uint8_t *data;
    size_t cap;
};
int grown_fit(struct grown *g, size_t len, struct err *e);

/* The iv of a content: the last 16 bytes of its hash (section 5.2). NULL: the id is too short to have one. */
static inline const uint8_t *content_iv(const struct content_id *id)
{
    return id->len >= 16 && id->len <= 32 ? id->hash + id->len - 16 : NULL;
}

/*
 * A content was found to be damaged: from now on its place counts as missing for what is written, here and in later
 * runs of this machine, so that it is stored again where it is needed. Thread-safe. repo_is_damaged(): 1; 0; or an
 * error of the store, which is asked once for each pack that was bad.
 */
void repo_note_damage(struct repo *r, const struct index_entry *x);
int repo_is_damaged(struct repo *r, const struct index_entry *x, struct err *e);
/* A content could be read only with the help of error correction: its place counts as missing, too, and whoever asked
 * for that is told (repo_on_corrected()). Thread-safe. */
void repo_note_corrected(struct repo *r, const struct index_entry *x);
/* Loads what earlier runs found; saves what this one did. */
int damage_open(struct repo *r, struct err *e);
void damage_close(struct repo *r);

/* Whether what an entry of the index refers to exists: its pack, as far as packs were listed, and it was not found to
 * be damaged. 1, 0, or an error. Thread-safe. */
int repo_pack_there(struct repo *r, const struct index_entry *x, struct err *e);

/* The cache for contents like this one; NULL: there is none. */
struct metadata_cache *repo_metadata_cache(struct repo *r, const struct content_id *id);

/*
 * For what is read ahead of whoever needs it, where nothing may depend on it. content_reader_apart(): the memory of
 * this reader is not counted by repo_memory(), whoever uses it limits it. content_read_memory(): what reading a content
 * takes at most, its bytes included. content_try_entry(): as content_read_entry(), without any effect but the read:
 * nothing is noted as damaged (what error correction restored is), no list is made anew. Negative: it could not be
 * read.
 */
void content_reader_apart(struct content_reader *c);
size_t content_read_memory(const struct repo *r, const struct index_entry *n);
int64_t content_try_entry(struct content_reader *c, const struct index_entry *n, void *out, size_t cap);

/* Makes a directory and its parents (0700). */
int make_dirs(const char *path, struct err *e);

/* Contents that sessions of this process hold, not yet in the index. find: 0, or -ENOENT. read: from a pack that is
 * still being written; -ENOENT: no such pack is (it is durable, or not ours). */
int sessions_find(struct repo *r, const struct content_id *id, struct index_entry *ret);
int sessions_read(struct repo *r, const char *pack, uint64_t offset, void *dst, size_t len, struct err *e);

#endif
