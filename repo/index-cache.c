/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/index-cache.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "repo/epoch-test.h"

#include <errno.h>
#include <fcntl.h>
#include <isa-l/crc64.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define BLOB_MAX (UINT64_C(2) << 30) /* 16 million entries, the most that stock puts into one, are 0.7 GB */
#define PIECE (4u << 20)             /* a blob is read in such pieces */
#define CHECK_BUFFER (256u << 10)    /* stays in the second-level cache while it is copied and checked */
#define TEMP_PREFIX ".making-"
#define TEMP_GRACE 60 /* seconds between making a file and locking it, by far */

static const uint8_t magic[8] = "snapfix1";

/* ---- the directory ---------------------------------------------------------------------------------------------- */

int index_cache_open(struct index_cache *c, const char *path, uint64_t cap, struct blobs *b, const struct sealer *s,
                     bool ecc, struct err *e)
{
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_set(e, ERR_GENERIC, errno, "cannot make the index cache directory %s", path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot open the index cache directory %s", path);
    *c = (struct index_cache){.path = path, .dirfd = fd, .cap = cap, .blobs = b, .sealer = s, .ecc = ecc};
    return 0;
}

void index_cache_close(struct index_cache *c)
{
    if (c->dirfd >= 0)
        close(c->dirfd);
    c->dirfd = -1;
}

/* Only what looks like an index blob's name is ours to delete, whatever else lies in the directory. */
static bool index_name(const char *name)
{
    if (name[0] == 'x' && (name[1] == 'n' || name[1] == 's' || name[1] == 'r'))
        return name[2] >= '0' && name[2] <= '9';
    return name[0] == 'n' && strspn(name + 1, "0123456789abcdef") >= 32;
}

static int bad_name(const char *name, struct err *e)
{
    return err_set(e, ERR_DAMAGE, EBADMSG, "index blob %s has a name that no index blob can have", name);
}

/* The iv of a named blob: the 32 hex digits in front of the first dash, or at the end (section 5.3). */
static int iv_of_name(const char *name, uint8_t iv[16], struct err *e)
{
    size_t len = strcspn(name, "-");
    if (!index_name(name) || strchr(name, '/') || len < 32 || hex_decode(iv, name + len - 32, 32) < 0)
        return bad_name(name, e);
    return 0;
}

/* ---- maps ------------------------------------------------------------------------------------------------------- */

void index_map_free(struct index_map *m)
{
    if (!m)
        return;
    if (m->t.data)
        munmap((void *)(uintptr_t)m->t.data, m->file_len);
    free((void *)m->windows);
    free(m);
}

static void index_map_freep(struct index_map **m)
{
    index_map_free(*m);
}

bool index_map_touch(struct index_map *m, const void *at)
{
    size_t w = ((uintptr_t)at >> INDEX_WINDOW_SHIFT) - ((uintptr_t)m->t.data >> INDEX_WINDOW_SHIFT);
    if (w >= m->n_windows)
        return false;
    uint64_t bit = UINT64_C(1) << w % 64;
    if (atomic_load_explicit(&m->windows[w / 64], memory_order_relaxed) & bit)
        return false;
    return !(atomic_fetch_or_explicit(&m->windows[w / 64], bit, memory_order_relaxed) & bit);
}

/* The bits go first: a page touched in between is then marked for nothing, never resident unmarked. */
void index_map_drop(struct index_map *m)
{
    for (size_t i = 0; i < (m->n_windows + 63) / 64; i++)
        atomic_store(&m->windows[i], 0);
    madvise((void *)(uintptr_t)m->t.data, m->file_len, MADV_DONTNEED);
}

/* Maps a checked file of `len` bytes and a footer. */
static int map_file(struct index_map **ret, int fd, const char *name, size_t len, struct err *e)
{
    struct index_map *new = calloc(1, sizeof *new);
    if (!new)
        return err_nomem(e);
    CLEANUP(index_map_freep) struct index_map *m = new;
    m->file_len = len + INDEX_FOOTER;
    snprintf(m->name, sizeof m->name, "%s", name);
    void *p = mmap(NULL, m->file_len, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return err_set(e, ERR_GENERIC, errno, "cannot map the cached index blob %s", name);
    m->t.data = p;
    /* A fault must not map more than its window. */
    madvise(p, m->file_len, MADV_NOHUGEPAGE);
    m->n_windows = (((uintptr_t)p + m->file_len - 1) >> INDEX_WINDOW_SHIFT) - ((uintptr_t)p >> INDEX_WINDOW_SHIFT) + 1;
    m->windows = calloc((m->n_windows + 63) / 64, sizeof *m->windows);
    if (!m->windows)
        return err_nomem(e);
    struct index_table t;
    int r = index_parse(&t, p, len, e);
    if (r < 0)
        return err_wrap(e, "index blob %s", name);
    m->t = t;
    *ret = take_ptr(&m);
    return 0;
}

/* ---- the footer ------------------------------------------------------------------------------------------------- */

/* The name is part of it: a file under another name is another blob's. */
static uint64_t crc_of_name(const char *name)
{
    return crc64_ecma_refl(0, (const uint8_t *)name, strlen(name));
}

static void footer_build(uint8_t out[INDEX_FOOTER], uint64_t len, uint64_t crc)
{
    memcpy(out, magic, sizeof magic);
    put_le64(out + 8, len);
    put_le64(out + 16, crc64_ecma_refl(crc, out, 16));
}

static int read_all(int fd, void *buf, size_t len, uint64_t at)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = pread(fd, (uint8_t *)buf + done, len - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EBADMSG;
        done += (size_t)n;
    }
    return 0;
}

/*
 * Checks a cache file; *len is the plaintext's. Read, not mapped: that counts against no page budget, and a disk error
 * is an error instead of a signal.
 */
static int check_file(int fd, const char *name, size_t *len)
{
    struct stat st;
    uint8_t footer[INDEX_FOOTER], want[INDEX_FOOTER];
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_size < INDEX_FOOTER || (uint64_t)st.st_size > BLOB_MAX + INDEX_FOOTER)
        return -EBADMSG;
    uint64_t size = (uint64_t)st.st_size - INDEX_FOOTER, crc = crc_of_name(name);
    int r = read_all(fd, footer, sizeof footer, size);
    if (r < 0)
        return r;
    if (memcmp(footer, magic, sizeof magic) != 0 || get_le64(footer + 8) != size)
        return -EBADMSG;
    CLEANUP_FREE uint8_t *buf = malloc(CHECK_BUFFER);
    if (!buf)
        return -ENOMEM;
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    for (uint64_t at = 0; at < size;) {
        size_t n = size - at < CHECK_BUFFER ? (size_t)(size - at) : CHECK_BUFFER;
        r = read_all(fd, buf, n, at);
        if (r < 0)
            return r;
        crc = crc64_ecma_refl(crc, buf, n);
        at += n;
    }
    footer_build(want, size, crc);
    if (memcmp(footer, want, sizeof want) != 0)
        return -EBADMSG;
    *len = (size_t)size;
    return 0;
}

/* 1: mapped; 0: not in the cache, or thrown out of it. */
static int get_cached(struct index_map **ret, const struct index_cache *c, const char *name, struct err *e)
{
    CLEANUP_CLOSE int fd = openat(c->dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return 0;
    size_t len = 0;
    int r = check_file(fd, name, &len);
    if (r == -ENOMEM)
        return err_nomem(e);
    if (r < 0) {
        log_warning("cached index blob %s/%s is damaged (%s) and is made again", c->path, name, strerror(-r));
        unlinkat(c->dirfd, name, 0);
        return 0;
    }
    futimens(fd, NULL); /* its age is that of its last use */
    r = map_file(ret, fd, name, len, e);
    return r < 0 ? r : 1;
}

/* ---- making a file ---------------------------------------------------------------------------------------------- */

static int no_space(const struct index_cache *c, int sys, const char *name, struct err *e)
{
    return err_set(e, ERR_GENERIC, sys, "cannot write index blob %s to the cache in %s", name, c->path);
}

/* A file that is being made, locked so that nobody takes it for a dead one. */
struct temp {
    const struct index_cache *c;
    int fd;
    char name[64];
    void *map;
    size_t map_len;
};

static void temp_clear(struct temp *t)
{
    if (t->map)
        munmap(t->map, t->map_len);
    if (t->fd >= 0) {
        unlinkat(t->c->dirfd, t->name, 0); /* gone already after a rename */
        close(t->fd);
    }
}

static int temp_new(struct temp *t, const char *name, struct err *e)
{
    static atomic_uint counter;
    snprintf(t->name, sizeof t->name, TEMP_PREFIX "%ld-%u", (long)getpid(), atomic_fetch_add(&counter, 1));
    unlinkat(t->c->dirfd, t->name, 0); /* of a process long dead with our number */
    t->fd = openat(t->c->dirfd, t->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (t->fd < 0 || flock(t->fd, LOCK_EX | LOCK_NB) < 0)
        return no_space(t->c, errno, name, e);
    return 0;
}

/*
 * Backs `len` bytes with disk space first: a full disk must be an error here, not a signal later. File-backed memory
 * is not anonymous: the kernel can write it out at any time, however large the blob.
 */
static int temp_map(struct temp *t, size_t len, const char *name, struct err *e)
{
    int r = posix_fallocate(t->fd, 0, (off_t)len);
    if (r)
        return no_space(t->c, r, name, e);
    t->map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, t->fd, 0);
    if (t->map == MAP_FAILED) {
        t->map = NULL;
        return no_space(t->c, errno, name, e);
    }
    t->map_len = len;
    return 0;
}

/* Cuts the file to `len` bytes of plaintext, adds the footer, gives it its name and maps it. */
static int temp_finish(struct index_map **ret, struct temp *t, size_t len, uint64_t crc, const char *name,
                       struct err *e)
{
    uint8_t footer[INDEX_FOOTER];
    footer_build(footer, len, crc);
    ssize_t n = pwrite(t->fd, footer, sizeof footer, (off_t)len);
    if (n != (ssize_t)sizeof footer || ftruncate(t->fd, (off_t)(len + sizeof footer)) < 0)
        return no_space(t->c, n < 0 || n == (ssize_t)sizeof footer ? errno : ENOSPC, name, e);
    struct index_map *m = NULL;
    int r = map_file(&m, t->fd, name, len, e);
    if (r < 0)
        return r;
    epoch_step("link");
    if (renameat(t->c->dirfd, t->name, t->c->dirfd, name) < 0) {
        index_map_free(m);
        return no_space(t->c, errno, name, e);
    }
    close(take_fd(&t->fd));
    *ret = m;
    return 0;
}

int index_cache_add(struct index_map **ret, const struct index_cache *c, const char *name, const uint8_t *data,
                    size_t len, struct err *e)
{
    CLEANUP(temp_clear) struct temp t = {.c = c, .fd = -1};
    if (!index_name(name) || strchr(name, '/'))
        return bad_name(name, e);
    int r = temp_new(&t, name, e);
    if (r < 0)
        return r;
    for (size_t done = 0; done < len;) {
        ssize_t n = pwrite(t.fd, data + done, len - done, (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return no_space(c, errno, name, e);
        done += (size_t)n;
    }
    return temp_finish(ret, &t, len, crc64_ecma_refl(crc_of_name(name), data, len), name, e);
}

/* Reads the stored bytes into a mapping, giving pages back behind. */
static int download(const struct index_cache *c, const struct blob_info *b, uint8_t *to, struct err *e)
{
    epoch_step("fetch");
    for (uint64_t at = 0; at < b->length; at += PIECE) {
        size_t n = b->length - at < PIECE ? (size_t)(b->length - at) : PIECE;
        int r = blobs_read(c->blobs, b->name, at, to + at, n, e);
        if (r < 0)
            return err_wrap(e, "index blob %s", b->name);
        if (n == PIECE)
            madvise(to + at, n, MADV_DONTNEED);
    }
    return 0;
}

/* Decrypts into the front of t's mapping: in place, or with error correction by way of two more files. */
static int64_t unseal(const struct index_cache *c, const struct blob_info *b, struct temp *t, struct err *e)
{
    uint8_t iv[16];
    CLEANUP(temp_clear) struct temp sealed = {.c = c, .fd = -1}, scratch = {.c = c, .fd = -1};
    size_t stored = (size_t)b->length, plain = item_opened_max(c->sealer, stored), own = c->ecc ? plain : stored;
    uint8_t *in = NULL;
    int r = iv_of_name(b->name, iv, e);
    if (r == 0)
        r = temp_new(t, b->name, e);
    if (r == 0)
        r = temp_map(t, own + INDEX_FOOTER, b->name, e);
    if (r < 0)
        return r;
    in = t->map;
    if (c->ecc) {
        r = temp_new(&sealed, b->name, e);
        if (r == 0)
            r = temp_map(&sealed, stored + 1, b->name, e);
        if (r == 0)
            r = temp_new(&scratch, b->name, e);
        if (r == 0)
            r = temp_map(&scratch, item_scratch_len(c->sealer, plain) + 1, b->name, e);
        if (r < 0)
            return r;
        in = sealed.map;
    }
    r = download(c, b, in, e);
    if (r < 0)
        return r;
    bool repaired = false;
    int64_t len = item_open(c->sealer, iv, sizeof iv, in, stored, t->map, scratch.map, &repaired, e);
    if (len < 0)
        return err_wrap(e, "index blob %s in %s", b->name, blobs_location(c->blobs));
    if (repaired)
        log_warning("index blob %s in %s was damaged; its error correction mended it", b->name,
                    blobs_location(c->blobs));
    return len;
}

int index_cache_get(struct index_map **ret, const struct index_cache *c, const struct blob_info *b, struct err *e)
{
    if (!index_name(b->name) || strchr(b->name, '/'))
        return bad_name(b->name, e);
    int r = get_cached(ret, c, b->name, e);
    if (r)
        return r < 0 ? r : 0;
    if (b->length < ITEM_OVERHEAD || b->length > BLOB_MAX)
        return err_set(e, ERR_DAMAGE, EBADMSG, "index blob %s in %s is damaged: it has %llu bytes", b->name,
                       blobs_location(c->blobs), (unsigned long long)b->length);
    CLEANUP(temp_clear) struct temp t = {.c = c, .fd = -1};
    int64_t len = unseal(c, b, &t, e);
    if (len < 0)
        return (int)len;
    uint64_t crc = crc64_ecma_refl(crc_of_name(b->name), t.map, (uint64_t)len);
    return temp_finish(ret, &t, (size_t)len, crc, b->name, e);
}

/* ---- room ------------------------------------------------------------------------------------------------------- */

struct old_file {
    struct timespec used;
    uint64_t size;
    char *name;
};

struct old_files {
    struct old_file *f;
    size_t n, room;
};

static void old_files_clear(struct old_files *o)
{
    for (size_t i = 0; i < o->n; i++)
        free(o->f[i].name);
    free(o->f);
}

static int old_files_add(struct old_files *o, const char *name, const struct stat *st)
{
    if (o->n == o->room) {
        size_t room = o->room ? 2 * o->room : 32;
        struct old_file *f = realloc(o->f, room * sizeof *f);
        if (!f)
            return -ENOMEM;
        o->f = f;
        o->room = room;
    }
    char *copy = strdup(name);
    if (!copy)
        return -ENOMEM;
    o->f[o->n++] = (struct old_file){st->st_mtim, (uint64_t)st->st_size, copy};
    return 0;
}

static int by_use(const void *pa, const void *pb)
{
    const struct old_file *a = pa, *b = pb;
    if (a->used.tv_sec != b->used.tv_sec)
        return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
    if (a->used.tv_nsec != b->used.tv_nsec)
        return a->used.tv_nsec < b->used.tv_nsec ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int by_name(const void *pa, const void *pb)
{
    const struct blob_info *a = pa, *b = pb;
    return strcmp(a->name, b->name);
}

static bool is_needed(const struct blob_info *needed, size_t n, const char *name)
{
    struct blob_info key;
    snprintf(key.name, sizeof key.name, "%s", name);
    return n && bsearch(&key, needed, n, sizeof *needed, by_name);
}

/* A half-made file that nobody holds a lock on: whoever made it is dead. */
static void remove_dead(const struct index_cache *c, const char *name, const struct stat *st)
{
    if (st->st_ctim.tv_sec > epoch_now_ns() / 1000000000 - TEMP_GRACE)
        return;
    CLEANUP_CLOSE int fd = openat(c->dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(c->dirfd, name, 0);
}

/* Collects files that are not needed; *total is their size. */
static int find_old(const struct index_cache *c, const struct blob_info *needed, size_t n, struct old_files *o,
                    uint64_t *total, struct err *e)
{
    int fd = openat(c->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP_CLOSEDIR DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        int sys = errno;
        if (fd >= 0)
            close(fd);
        return err_set(e, ERR_GENERIC, sys, "cannot read the index cache directory %s", c->path);
    }
    for (struct dirent *x; (x = readdir(d));) {
        struct stat st;
        bool temp = strncmp(x->d_name, TEMP_PREFIX, strlen(TEMP_PREFIX)) == 0;
        if ((!temp && !index_name(x->d_name)) || fstatat(c->dirfd, x->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode))
            continue;
        if (temp) {
            remove_dead(c, x->d_name, &st);
        } else if (!is_needed(needed, n, x->d_name)) {
            if (old_files_add(o, x->d_name, &st) < 0)
                return err_nomem(e);
            *total += (uint64_t)st.st_size;
        }
    }
    return 0;
}

int index_cache_make_room(const struct index_cache *c, const struct blob_info *needed, size_t n, uint64_t *total,
                          struct err *e)
{
    uint64_t want = 0, have = 0;
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        if (fstatat(c->dirfd, needed[i].name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size >= INDEX_FOOTER)
            want += (uint64_t)st.st_size;
        else if (needed[i].length <= BLOB_MAX)
            want += item_opened_max(c->sealer, (size_t)needed[i].length) + INDEX_FOOTER;
    }
    if (want > c->cap) {
        err_set(e, ERR_NO_SPACE, ENOSPC,
                "the index of the repository in %s needs %llu bytes in the cache %s, which may have %llu",
                blobs_location(c->blobs), (unsigned long long)want, c->path, (unsigned long long)c->cap);
        return err_hint(e, "allow more with --cache-size");
    }
    CLEANUP(old_files_clear) struct old_files o = {.n = 0};
    int r = find_old(c, needed, n, &o, &have, e);
    if (r < 0)
        return r;
    if (want + have > c->cap) {
        qsort(o.f, o.n, sizeof *o.f, by_use);
        for (size_t i = 0; i < o.n && want + have > c->cap; i++) {
            if (unlinkat(c->dirfd, o.f[i].name, 0) < 0 && errno != ENOENT)
                return err_set(e, ERR_GENERIC, errno, "cannot delete %s from the index cache in %s", o.f[i].name,
                               c->path);
            have -= o.f[i].size;
        }
    }
    *total = want + have;
    return 0;
}
