/* SPDX-License-Identifier: GPL-2.0-or-later */
/* backup.h - repositories and images for the tests of backups, and the naive cut that they are held against. */
#ifndef SNAPFERRY_TESTS_UNIT_BACKUP_H
#define SNAPFERRY_TESTS_UNIT_BACKUP_H

#include "chunker/hash.h"
#include "chunker/splitter.h"
#include "daemon/mover/badmap.h"
#include "daemon/mover/mover.h"
#include "daemon/mover/refs.h"
#include "repo/item.h"
#include "repo/session-test.h"
#include "tests/unit/test.h"
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define SMALL "DYNAMIC-128K-BUZHASH"

static char scratch_dir[64];

/* Faults of reads where io_uring is not used: the library's calls end up here. */
static _Atomic uint64_t bad_from, bad_to;
static _Atomic unsigned read_delay_us;
static void (*_Atomic before_first_read)(void); /* called once */

ssize_t preadv64(int fd, const struct iovec *iov, int n, off64_t pos)
{
    uint64_t len = 0, end = (uint64_t)pos;
    for (int i = 0; i < n; i++)
        len += iov[i].iov_len;
    end += len;
    if (bad_to > bad_from && (uint64_t)pos < bad_to && end > bad_from) {
        errno = EIO;
        return -1;
    }
    void (*hook)(void) = atomic_exchange(&before_first_read, NULL);
    if (hook)
        hook();
    if (read_delay_us)
        nanosleep(&(struct timespec){0, (long)read_delay_us * 1000}, NULL);
    return syscall(SYS_preadv, fd, iov, n, (long)pos, 0L);
}

static inline int make_scratch(void **state)
{
    (void)state;
    return scratch_new(scratch_dir, sizeof scratch_dir) ? 0 : -1;
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)st, (void)type, (void)f;
    return remove(path);
}

static inline int remove_scratch(void **state)
{
    (void)state;
    return nftw(scratch_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline const char *path_of(const char *name)
{
    static char buf[4][256];
    static unsigned turn;
    char *p = buf[turn++ % 4];
    snprintf(p, sizeof buf[0], "%s/%s", scratch_dir, name);
    return p;
}

/* ---- repositories ---- */

static inline struct repo *open_repo(const char *name)
{
    struct err e = ERR_INIT;
    struct blobs *b;
    assert_ok(blobs_open_dir(&b, path_of(name), BLOBS_OPEN, NULL, 0, &e), &e);
    struct repo_opts o = {.cache_dir = path_of("cache"), .username = "snapferry", .hostname = "test"};
    struct repo *r;
    assert_ok(repo_open(&r, b, "secret", &o, &e), &e);
    return r;
}

static inline struct repo *new_repo(const char *name, const struct format_create *c)
{
    struct err e = ERR_INIT;
    static const uint8_t secret[32] = {1, 2, 3}, master[32] = {4, 5, 6};
    struct format_create f = c ? *c : (struct format_create){0};
    f.unique_id = test_unique_id; /* its key is derived once in a process (keys.c) */
    f.secret = secret;
    f.master_key = master;
    if (!f.splitter)
        f.splitter = SMALL;
    struct blobs *b;
    assert_ok(blobs_open_dir(&b, path_of(name), BLOBS_CREATE, NULL, 0, &e), &e);
    assert_ok(format_create(b, &f, "secret", &e), &e);
    blobs_free(b);
    struct repo *r = open_repo(name);
    assert_ok(manifests_initialise(r, "owner@test", "", &e), &e);
    return r;
}

/* ---- images ---- */

struct image {
    uint8_t *p;
    size_t len;
};

static inline void fill_random(uint8_t *p, size_t len, uint64_t seed)
{
    for (size_t i = 0; i < len; i += 8) {
        uint64_t v = splitmix64(&seed);
        memcpy(p + i, &v, len - i < 8 ? len - i : 8);
    }
}

/* Random data, zeros, a repeated byte and text-like data in turns, of lengths that `seed` chooses. */
static inline struct image mixed_image(size_t len, uint64_t seed)
{
    struct image m = {calloc(1, len ? len : 1), len};
    assert_non_null(m.p);
    for (size_t at = 0; at < len;) {
        size_t n = splitmix64(&seed) % (768 * KIB) + 1;
        n = n < len - at ? n : len - at;
        switch (splitmix64(&seed) % 4) {
        case 0:
        case 1:
            fill_random(m.p + at, n, splitmix64(&seed));
            break;
        case 2:
            break;
        default:
            memset(m.p + at, (int)(splitmix64(&seed) % 256), n);
        }
        at += n;
    }
    return m;
}

/* Writes an image, leaving blocks of zeros out: a sparse file. */
static inline void write_image(const char *path, const struct image *m, bool sparse)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)m->len), 0);
    for (size_t at = 0; at < m->len;) {
        size_t n = m->len - at < 4096 ? m->len - at : 4096;
        if (!sparse || !zeros_only(m->p + at, n))
            assert_int_equal(pwrite(fd, m->p + at, n, (off_t)at), n);
        at += n;
    }
    close(fd);
}

/* ---- the naive cut ---- */

struct part {
    uint64_t start, len;
    struct content_id id;
};

static inline size_t naive_parts(struct repo *r, const struct image *m, const char *splitter, uint64_t section,
                                 struct part **ret)
{
    struct splitter s;
    assert_int_equal(splitter_by_name(&s, splitter), 0);
    const struct hasher *h = sealer_hasher(repo_sealer(r));
    size_t n = 0, room = m->len / s.min + m->len / (section < m->len ? section : m->len + 1) + 16;
    struct part *list = calloc(room, sizeof *list);
    assert_non_null(list);
    struct part zeros = {0}; /* the last part of zeros: images have many of one length */
    for (size_t at = 0;;) {
        size_t in = section < m->len ? (size_t)(at % section) : at;
        size_t left = m->len - at;
        if (section < m->len && section - in < left)
            left = (size_t)(section - in);
        size_t len = splitter_cut(&s, m->p + at, left, 0);
        if (!len)
            len = left;
        assert_true(n < room);
        list[n] = (struct part){.start = at, .len = len, .id = {.len = (uint8_t)hasher_size(h)}};
        const bool zero = len && zeros_only(m->p + at, len);
        if (zero && zeros.len == len)
            list[n].id = zeros.id;
        else
            hasher_digest(h, m->p + at, len, list[n].id.hash);
        if (zero)
            zeros = list[n];
        n++;
        at += len;
        if (at < m->len)
            continue;
        if (len && m->len > section && m->len % section == 0)
            continue; /* once more, for the empty last section */
        break;
    }
    *ret = list;
    return n;
}

static inline void assert_parts(struct repo *r, const struct object_id *image, const struct part *want, size_t n)
{
    struct err e = ERR_INIT;
    struct object_parts *CLEANUP(object_parts_freep) p = NULL;
    assert_ok(object_parts_open(&p, r, image, &e), &e);
    struct object_part got;
    size_t i = 0;
    int rc;
    for (; (rc = object_parts_next(p, &got, &e)) > 0; i++) {
        assert_true(i < n);
        assert_int_equal(got.start, want[i].start);
        assert_int_equal(got.len, want[i].len);
        assert_int_equal(got.id.indirection, 0);
        assert_true(content_id_equal(&got.id.content, &want[i].id));
    }
    assert_ok(rc, &e);
    assert_int_equal(i, n);
}

static inline void assert_bytes(struct repo *r, const struct object_id *image, const struct image *m)
{
    struct err e = ERR_INIT;
    struct object_reader *CLEANUP(object_reader_freep) o = NULL;
    assert_ok(object_reader_open(&o, r, image, &e), &e);
    uint8_t *CLEANUP_FREE buf = malloc(MIB);
    assert_non_null(buf);
    size_t at = 0;
    for (;;) {
        int64_t n = object_reader_read(o, buf, MIB, &e);
        assert_ok(n, &e);
        if (!n)
            break;
        assert_true(at + (size_t)n <= m->len);
        if (memcmp(buf, m->p + at, (size_t)n) != 0) /* cmocka compares byte by byte */
            assert_memory_equal(buf, m->p + at, n);
        at += (size_t)n;
    }
    assert_int_equal(at, m->len);
}

/* ---- runs ---- */

static inline int try_backup(struct repo *r, const char *path, const struct backup_opts *o, struct backup_result *ret,
                             struct err *e)
{
    struct source *CLEANUP(source_freep) s = NULL;
    assert_ok(source_open(&s, path, e), e);
    return backup_run(r, s, o, ret, e);
}

static inline struct backup_result backup(struct repo *r, const char *path, const struct backup_opts *o)
{
    struct err e = ERR_INIT;
    struct backup_result ret;
    assert_ok(try_backup(r, path, o, &ret, &e), &e);
    assert_false(ret.incomplete);
    assert_int_equal(ret.hole_bytes + ret.zero_bytes + ret.duplicate_bytes + ret.new_bytes + ret.cloned_bytes,
                     ret.size);
    assert_int_equal(ret.scanned, ret.size);
    return ret;
}

static inline struct backup_opts opts_for(const char *volume)
{
    struct backup_opts o = {.as = {.user = "snapferry", .host = "test"}};
    snprintf(o.as.path, sizeof o.as.path, "/%s", volume);
    return o;
}

/* Backs an image up and holds the result against the naive cut and the image. */
static inline struct backup_result check_image(struct repo *r, const struct image *m, const struct backup_opts *o,
                                               bool sparse)
{
    write_image(path_of("image"), m, sparse);
    struct backup_result ret = backup(r, path_of("image"), o);
    struct part *CLEANUP_FREE want = NULL;
    const char *splitter = o->splitter ? o->splitter : repo_format(r)->splitter;
    size_t n = naive_parts(r, m, splitter, o->section ? o->section : (uint64_t)2 << 30, &want);
    if (ret.chunks || ret.cloned_bytes != ret.size) /* else the parent's image was taken as it is */
        assert_int_equal(ret.chunks, n);
    assert_parts(r, &ret.image, want, n);
    assert_bytes(r, &ret.image, m);
    unlink(path_of("image"));
    return ret;
}

/* ---- cancels ---- */

/* A thread runs cancel_at() until `end` is set. */
struct canceler {
    struct mover_progress progress;
    struct mover_cancel cancel;
    uint64_t at;
    _Atomic bool end;
};

static inline void *cancel_at(void *arg)
{
    struct canceler *c = arg;
    while (!atomic_load(&c->end) && atomic_load(&c->progress.done) < c->at)
        nanosleep(&(struct timespec){0, 200000}, NULL);
    atomic_store(&c->cancel.requested, true);
    return NULL;
}

#endif
