/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/index-cache.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/time.h"
#include "repo/epoch-test.h"
#include "repo/file-mac.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define BLOB_MAX (UINT64_C(2) << 30) /* 16 million entries, the maximum that stock clients put into one, are 0.7 GB */
#define PIECE (4u << 20)             /* a blob is read in such pieces */
#define PASSED ((size_t)1 << 20)     /* pages that were read or written are released in such steps, */
#define PASSED_EACH 4096             /* looked at after so many entries */
#define CHECK_BUFFER (256u << 10)    /* stays in the second-level cache while it is copied and checked */
#define SHORTEST_RECORD 33           /* of a table worth a filter: a key of 17 bytes and an entry of 16 */
#define TEMP_PREFIX ".making-"
#define HUGE_MIN (UINT64_C(2) << 20) /* shorter files have no huge pages */
#define USED_S 60                    /* a time of use that is not older is left as it is */
#define TEMP_GRACE 60                /* seconds; far more than between creating a file and locking it */

/* The last character is the version: a file of another one is made again. */
static const uint8_t magic[8] = "snapfix3";

/* ---- the directory ---------------------------------------------------------------------------------------------- */

int index_cache_open(struct index_cache *c, const char *path, uint64_t cap, struct blobs *b, const struct sealer *s,
                     bool ecc, struct err *e)
{
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_set(e, ERR_GENERIC, errno, "cannot create index cache directory %s", path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot open index cache directory %s", path);
    *c = (struct index_cache){.path = path, .dirfd = fd, .cap = cap, .blobs = b, .sealer = s, .ecc = ecc};
    return 0;
}

void index_cache_close(struct index_cache *c)
{
    if (c->dirfd >= 0)
        close(c->dirfd);
    c->dirfd = -1;
}

/* Only files with names of index blobs are deleted, no others in the directory. */
static bool index_name(const char *name)
{
    if (name[0] == 'x' && (name[1] == 'n' || name[1] == 's' || name[1] == 'r'))
        return name[2] >= '0' && name[2] <= '9';
    return name[0] == 'n' && strspn(name + 1, "0123456789abcdef") >= 32;
}

static int name_invalid(const char *name, struct err *e)
{
    return err_set(e, ERR_DAMAGE, EBADMSG, "invalid name of index blob %s", name);
}

/* The iv of a named blob: the 32 hex digits in front of the first dash, or at the end (section 5.3). */
static int iv_of_name(const char *name, uint8_t iv[16], struct err *e)
{
    size_t len = strcspn(name, "-");
    if (!index_name(name) || strchr(name, '/') || len < 32 || hex_decode(iv, name + len - 32, 32) < 0)
        return name_invalid(name, e);
    return 0;
}

/* ---- filters ---------------------------------------------------------------------------------------------------- */

#define FILTER_BLOCK 32
#define FILTER_BITS 12 /* for each key: about one in 250 absent ids passes */

static uint64_t hash_key(const uint8_t *key, size_t len)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ len;
    for (size_t i = 0; i < len; i += 8) {
        uint8_t word[8] = {0};
        memcpy(word, key + i, len - i < 8 ? len - i : 8);
        h = (h ^ get_le64(word)) * 0x9fb21c651e98df25u;
        h ^= h >> 32;
    }
    return h * 0x9e3779b97f4a7c15u;
}

uint64_t index_key_hash(const struct content_id *id)
{
    uint8_t key[1 + sizeof id->hash];
    size_t len = id->len <= sizeof id->hash ? id->len : sizeof id->hash;
    key[0] = (uint8_t)id->prefix;
    memcpy(key + 1, id->hash, len);
    return hash_key(key, len + 1);
}

/* Each of the block's eight words of 32 bits has one bit for the key. */
static void filter_bits(uint64_t h, uint8_t byte[8], uint8_t bit[8])
{
    static const uint32_t salt[8] = {0x9e3779b1, 0x85ebca77, 0xc2b2ae3d, 0x27d4eb2f,
                                     0x165667b1, 0xd3a2646d, 0xfd7046c5, 0xb55a4f09};
    for (unsigned i = 0; i < 8; i++) {
        uint32_t n = ((uint32_t)h * salt[i]) >> 27;
        byte[i] = (uint8_t)(4 * i + n / 8);
        bit[i] = (uint8_t)(1 << n % 8);
    }
}

static size_t filter_block(uint64_t h, size_t filter_len)
{
    return (size_t)((h >> 32) * (uint64_t)(filter_len / FILTER_BLOCK) >> 32) * FILTER_BLOCK;
}

bool index_map_may_have(const struct index_map *m, uint64_t h, const void **at)
{
    const uint8_t *block = m->base + m->filter_at + filter_block(h, m->filter_len);
    uint8_t byte[8], bit[8];
    filter_bits(h, byte, bit);
    *at = block;
    for (unsigned i = 0; i < 8; i++)
        if (!(block[byte[i]] & bit[i]))
            return false;
    return true;
}

/* Searching a table of one window is as cheap as its filter. */
static size_t filter_size(const struct index_table *t, size_t table_len)
{
    if (table_len <= INDEX_WINDOW || t->count == 0)
        return 0;
    return (size_t)((t->count * FILTER_BITS + FILTER_BLOCK * 8 - 1) / (FILTER_BLOCK * 8) * FILTER_BLOCK);
}

/* ---- files and maps --------------------------------------------------------------------------------------------- */

/* Layout of a cache file. */
struct layout {
    uint64_t table_len, filter_at, filter_len;
};

static struct layout layout_of(uint64_t table_len, uint64_t filter_len)
{
    uint64_t at = table_len;
    if (filter_len)
        at = (at + INDEX_WINDOW - 1) / INDEX_WINDOW * INDEX_WINDOW;
    return (struct layout){table_len, at, filter_len};
}

static uint64_t layout_end(const struct layout *l)
{
    return l->filter_at + l->filter_len;
}

void index_map_free(struct index_map *m)
{
    if (!m)
        return;
    if (m->base)
        munmap(m->base, m->file_len);
    free((void *)m->windows);
    free(m);
}

static void index_map_freep(struct index_map **m)
{
    index_map_free(*m);
}

unsigned index_map_touch(struct index_map *m, const void *at)
{
    size_t w = (size_t)((const uint8_t *)at - m->base) >> INDEX_WINDOW_SHIFT;
    if (w >= m->n_windows)
        return 0;
    uint64_t bit = UINT64_C(1) << w % 64;
    if ((atomic_load_explicit(&m->windows[w / 64], memory_order_relaxed) & bit) ||
        (atomic_fetch_or_explicit(&m->windows[w / 64], bit, memory_order_relaxed) & bit))
        return 0;
    size_t left = m->file_len - (w << INDEX_WINDOW_SHIFT);
    return (unsigned)(((left < INDEX_WINDOW ? left : INDEX_WINDOW) + 4095) / 4096);
}

/* The bits are set first: a page touched in between is then marked needlessly, but never resident unmarked. */
void index_map_drop(struct index_map *m, bool keep_filter)
{
    uint64_t touched = 0;
    for (size_t i = 0; i < (m->n_windows + 63) / 64; i++)
        touched |= atomic_exchange(&m->windows[i], 0);
    /* Reading the filter may have mapped pages in front of it, too. */
    if (!touched && keep_filter && !m->filter_len)
        return;
    madvise(m->base, keep_filter && m->filter_len ? m->filter_at : m->file_len, MADV_DONTNEED);
}

/* Maps a file at the beginning of a window. */
static uint8_t *map_aligned(int fd, size_t len)
{
    size_t page = 4096, room = ((len + page - 1) / page) * page + INDEX_WINDOW;
    uint8_t *p = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    size_t before = -(uintptr_t)p & (INDEX_WINDOW - 1), used = room - INDEX_WINDOW;
    if (before)
        munmap(p, before);
    if (INDEX_WINDOW - before)
        munmap(p + before + used, INDEX_WINDOW - before);
    if (mmap(p + before, len, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        int sys = errno;
        munmap(p + before, used);
        errno = sys;
        return NULL;
    }
    return p + before;
}

/* Maps a checked file. */
static int map_file(struct index_map **ret, int fd, const char *name, const struct layout *l, struct err *e)
{
    struct index_map *new = calloc(1, sizeof *new);
    if (!new)
        return err_nomem(e);
    CLEANUP(index_map_freep) struct index_map *m = new;
    m->file_len = (size_t)layout_end(l) + INDEX_FOOTER;
    m->filter_at = (size_t)l->filter_at;
    m->filter_len = (size_t)l->filter_len;
    snprintf(m->name, sizeof m->name, "%s", name);
    m->base = map_aligned(fd, m->file_len);
    if (!m->base)
        return err_set(e, ERR_GENERIC, errno, "cannot map the cached index blob %s", name);
    /* A fault must not map more than its window. */
    if (m->file_len >= HUGE_MIN)
        madvise(m->base, m->file_len, MADV_NOHUGEPAGE);
    m->n_windows = (m->file_len + INDEX_WINDOW - 1) / INDEX_WINDOW;
    m->windows = calloc((m->n_windows + 63) / 64, sizeof *m->windows);
    if (!m->windows)
        return err_nomem(e);
    int r = index_parse(&m->t, m->base, (size_t)l->table_len, e);
    if (r < 0)
        return err_wrap(e, "index blob %s", name);
    *ret = take_ptr(&m);
    return 0;
}

/* ---- the footer ------------------------------------------------------------------------------------------------- */

#define AT_TABLE_LEN 8
#define AT_FILTER_LEN 16
#define AT_NONCE 24
#define AT_TAG (AT_NONCE + FILE_MAC_NONCE)

_Static_assert(AT_TAG + FILE_MAC_TAG == INDEX_FOOTER, "the tag is the end of a file");

/* The code of a file begins with the nonce of its footer and ends with all of the footer that is in front of its
 * tag. */
static int mac_begin(struct file_mac **ret, const struct index_cache *c, const char *name,
                     const uint8_t footer[INDEX_FOOTER], struct err *e)
{
    return file_mac_new(ret, sealer_cache_key(c->sealer), name, footer + AT_NONCE, e);
}

static int mac_end(struct file_mac *m, const uint8_t footer[INDEX_FOOTER], uint8_t tag[FILE_MAC_TAG], struct err *e)
{
    file_mac_add(m, footer, AT_TAG);
    return file_mac_end(m, tag, e);
}

/* All but its tag. */
static int footer_build(uint8_t out[INDEX_FOOTER], const struct layout *l, struct err *e)
{
    memcpy(out, magic, sizeof magic);
    put_le64(out + AT_TABLE_LEN, l->table_len);
    put_le64(out + AT_FILTER_LEN, l->filter_len);
    if (RAND_bytes(out + AT_NONCE, FILE_MAC_NONCE) != 1)
        return err_set(e, ERR_GENERIC, 0, "the cryptographic library has no random bytes");
    return 0;
}

/* As earlier versions made it, with a checksum: what is to be replaced, and no damage. */
static bool footer_outdated(const uint8_t in[INDEX_FOOTER])
{
    return memcmp(in + INDEX_FOOTER - 32, "snapfix2", sizeof magic) == 0;
}

/* False: invalid lengths for a file with `size` bytes before its footer. */
static bool footer_layout(const uint8_t in[INDEX_FOOTER], uint64_t size, struct layout *l)
{
    uint64_t table = get_le64(in + AT_TABLE_LEN), filter = get_le64(in + AT_FILTER_LEN);
    if (memcmp(in, magic, sizeof magic) != 0 || table > size || filter > size || filter % FILTER_BLOCK)
        return false;
    *l = layout_of(table, filter);
    return layout_end(l) == size;
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

/* The code of all in front of the footer, and of the footer. */
static int mac_of_file(int fd, struct file_mac *m, uint64_t size, const uint8_t footer[INDEX_FOOTER],
                       uint8_t tag[FILE_MAC_TAG], int *sys, struct err *e)
{
    CLEANUP_FREE uint8_t *buf = malloc(size < CHECK_BUFFER ? (size_t)size + 1 : CHECK_BUFFER);
    if (!buf)
        return err_nomem(e);
    if (size > CHECK_BUFFER)
        posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    for (uint64_t at = 0; at < size && *sys == 0;) {
        size_t n = size - at < CHECK_BUFFER ? (size_t)(size - at) : CHECK_BUFFER;
        *sys = -read_all(fd, buf, n, at);
        if (*sys == 0)
            file_mac_add(m, buf, n);
        at += n;
    }
    return mac_end(m, footer, tag, e);
}

/*
 * Checks a cache file: *sys is 0, or why it is not valid. By read, not mmap: this does not count against the page
 * budget, and a disk error is an error instead of a signal.
 */
static int check_file(const struct index_cache *c, int fd, const char *name, struct layout *l, int64_t *used_ns,
                      int *sys, struct err *e)
{
    struct stat st;
    uint8_t footer[INDEX_FOOTER], tag[FILE_MAC_TAG];
    *sys = fstat(fd, &st) < 0 ? errno : 0;
    if (*sys == 0 && (!S_ISREG(st.st_mode) || st.st_size < INDEX_FOOTER || (uint64_t)st.st_size > 2 * BLOB_MAX))
        *sys = EBADMSG;
    if (*sys)
        return 0;
    const uint64_t size = (uint64_t)st.st_size - INDEX_FOOTER;
    *used_ns = timespec_ns(st.st_mtim);
    *sys = -read_all(fd, footer, sizeof footer, size);
    if (*sys == 0 && !footer_layout(footer, size, l))
        *sys = footer_outdated(footer) ? ESTALE : EBADMSG;
    if (*sys)
        return 0;
    CLEANUP(file_mac_freep) struct file_mac *m = NULL;
    int r = mac_begin(&m, c, name, footer, e);
    if (r == 0)
        r = mac_of_file(fd, m, size, footer, tag, sys, e);
    if (r == 0 && *sys == 0 && CRYPTO_memcmp(footer + AT_TAG, tag, sizeof tag) != 0)
        *sys = EBADMSG;
    return r;
}

/* 1: mapped; 0: not in the cache, or discarded. */
static int get_cached(struct index_map **ret, const struct index_cache *c, const char *name, struct err *e)
{
    CLEANUP_CLOSE int fd = openat(c->dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return 0;
    struct layout l;
    int64_t used_ns = 0;
    int sys, r = check_file(c, fd, name, &l, &used_ns, &sys, e);
    if (r < 0)
        return r;
    if (sys) {
        if (sys != ESTALE)
            log_warning("cached index blob %s/%s is damaged (%s): discarded", c->path, name, strerror(sys));
        unlinkat(c->dirfd, name, 0);
        return 0;
    }
    /* Its age is the time of its last use. */
    const int64_t now = now_ns();
    if (used_ns > now || now - used_ns > USED_S * NS_PER_S)
        futimens(fd, NULL);
    r = map_file(ret, fd, name, &l, e);
    return r < 0 ? r : 1;
}

/* ---- making a file ---------------------------------------------------------------------------------------------- */

void cache_hint(struct err *e)
{
    if (e && (e->sys == ENOSPC || e->sys == EDQUOT))
        err_hint(e, "free space on the file system of the cache directory, or use another one: --cache-dir, for the "
                    "daemon cache-dir");
    else
        err_hint(e, "use a cache directory that is writable: --cache-dir, for the daemon cache-dir");
}

static int cache_full(const struct index_cache *c, int sys, const char *name, struct err *e)
{
    const int rc = err_set(e, ERR_GENERIC, sys, "cannot write index blob %s to the cache in %s", name, c->path);
    cache_hint(e);
    return rc;
}

/* A file being written, locked so that other processes do not remove it as stale. */
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
    unlinkat(t->c->dirfd, t->name, 0); /* of a process with the same pid that no longer exists */
    t->fd = openat(t->c->dirfd, t->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (t->fd < 0 || flock(t->fd, LOCK_EX | LOCK_NB) < 0)
        return cache_full(t->c, errno, name, e);
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
        return cache_full(t->c, r, name, e);
    t->map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, t->fd, 0);
    if (t->map == MAP_FAILED) {
        t->map = NULL;
        return cache_full(t->c, errno, name, e);
    }
    t->map_len = len;
    return 0;
}

/* Releases the pages from *from on that end before `to`: all that was written stays in the file. Of a table that is not
 * in t's map, nothing. */
static void temp_passed(struct temp *t, const uint8_t **from, const uint8_t *to)
{
    const uintptr_t map = (uintptr_t)t->map, begin = (uintptr_t)*from, end = (uintptr_t)to / 4096 * 4096;
    if (!t->map || begin < map || end > map + t->map_len || end < begin + PASSED)
        return;
    madvise((uint8_t *)t->map + (begin - map), end - begin, MADV_DONTNEED);
    *from += end - begin;
}

static void filter_fill(uint8_t *filter, size_t filter_len, const struct index_table *table, struct temp *t)
{
    const uint8_t *from = table->data;
    for (uint64_t i = 0; i < table->count; i++) {
        const uint8_t *key = index_key_at(table, i);
        uint64_t h = hash_key(key, table->key_len);
        uint8_t byte[8], bit[8], *block = filter + filter_block(h, filter_len);
        filter_bits(h, byte, bit);
        for (unsigned k = 0; k < 8; k++)
            block[byte[k]] |= bit[k];
        if (i % PASSED_EACH == 0)
            temp_passed(t, &from, key);
    }
}

static void table_mac(struct file_mac *m, const uint8_t *data, size_t len, struct temp *t)
{
    const uint8_t *from = data;
    for (size_t at = 0, n; at < len; at += n) {
        n = len - at < PASSED ? len - at : PASSED;
        file_mac_add(m, data + at, n);
        temp_passed(t, &from, data + at + n);
    }
}

/* Writes the filter after the table and continues the code. */
static int temp_filter(struct temp *t, const struct index_table *table, const struct layout *l, struct file_mac *m,
                       const char *name, struct err *e)
{
    static const uint8_t zeros[INDEX_WINDOW];
    uint8_t *filter = mmap(NULL, l->filter_len, PROT_READ | PROT_WRITE, MAP_SHARED, t->fd, (off_t)l->filter_at);
    if (filter == MAP_FAILED)
        return cache_full(t->c, errno, name, e);
    filter_fill(filter, l->filter_len, table, t);
    file_mac_add(m, zeros, l->filter_at - l->table_len);
    file_mac_add(m, filter, l->filter_len);
    munmap(filter, l->filter_len);
    return 0;
}

/* Writes what follows a table: filter and footer. */
static int temp_rest(struct temp *t, const struct index_table *table, const uint8_t *data, const struct layout *l,
                     const char *name, struct err *e)
{
    CLEANUP(file_mac_freep) struct file_mac *m = NULL;
    uint8_t footer[INDEX_FOOTER];
    const size_t len = (size_t)l->table_len;
    const uint64_t end = layout_end(l);
    int r = footer_build(footer, l, e);
    if (r == 0)
        r = mac_begin(&m, t->c, name, footer, e);
    if (r < 0)
        return r;
    table_mac(m, data, len, t);
    /* Removes what unsealing left after the table; then there is space for the rest, or an error here. */
    if (ftruncate(t->fd, (off_t)len) < 0)
        return cache_full(t->c, errno, name, e);
    r = posix_fallocate(t->fd, (off_t)len, (off_t)(end + INDEX_FOOTER - len));
    if (r)
        return cache_full(t->c, r, name, e);
    r = l->filter_len ? temp_filter(t, table, l, m, name, e) : 0;
    if (r == 0)
        r = mac_end(m, footer, footer + AT_TAG, e);
    if (r < 0)
        return r;
    ssize_t n = pwrite(t->fd, footer, sizeof footer, (off_t)end);
    return n == (ssize_t)sizeof footer ? 0 : cache_full(t->c, n < 0 ? errno : ENOSPC, name, e);
}

/* Completes a file that begins with the table (of which `data` are the bytes), gives it its name and maps it. */
static int temp_finish(struct index_map **ret, struct temp *t, const uint8_t *data, size_t len, const char *name,
                       struct err *e)
{
    struct index_table table;
    int r = index_parse(&table, data, len, e);
    if (r < 0)
        return err_wrap(e, "index blob %s", name);
    struct layout l = layout_of(len, filter_size(&table, len));
    r = temp_rest(t, &table, data, &l, name, e);
    if (r < 0)
        return r;
    struct index_map *m = NULL;
    r = map_file(&m, t->fd, name, &l, e);
    if (r < 0)
        return r;
    epoch_step("link");
    if (renameat(t->c->dirfd, t->name, t->c->dirfd, name) < 0) {
        index_map_free(m);
        return cache_full(t->c, errno, name, e);
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
        return name_invalid(name, e);
    int r = temp_new(&t, name, e);
    if (r < 0)
        return r;
    for (size_t done = 0; done < len;) {
        ssize_t n = pwrite(t.fd, data + done, len - done, (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return cache_full(c, errno, name, e);
        done += (size_t)n;
    }
    return temp_finish(ret, &t, data, len, name, e);
}

/* Reads the stored bytes into a mapping, releasing pages as it proceeds. */
static int blob_download(const struct index_cache *c, const struct blob_info *b, uint8_t *to, struct err *e)
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

/* Reads and decrypts piece by piece, in place, and moves each to where the one before ended. Until the end of it what
 * is in the file is not authenticated, and the file has no name. */
static int pieces_open(const struct index_cache *c, const struct blob_info *b, const uint8_t iv[16], struct temp *t,
                       struct item_stream **st, struct err *e)
{
    uint8_t *map = t->map;
    const uint8_t *from = map;
    const size_t end = (size_t)b->length - ITEM_TAIL;
    epoch_step("fetch");
    for (size_t at = 0, n; at < b->length; at += n) {
        n = b->length - at < PIECE ? (size_t)b->length - at : PIECE;
        int r = blobs_read(c->blobs, b->name, at, map + at, n, e);
        if (r < 0)
            return err_wrap(e, "index blob %s", b->name);
        if (at == 0)
            r = item_open_begin(c->sealer, iv, 16, map, st, e);
        const size_t first = at > 0 ? at : ITEM_HEAD, behind = at + n < end ? at + n : end;
        if (r == 0 && first < behind) {
            r = item_open_step(*st, map + first, behind - first, map + first, e);
            memmove(map + first - ITEM_HEAD, map + first, behind - first);
            temp_passed(t, &from, map + behind - ITEM_HEAD);
        }
        if (r < 0)
            return err_wrap(e, "index blob %s in %s", b->name, blobs_location(c->blobs));
    }
    return 0;
}

static int64_t unseal_pieces(const struct index_cache *c, const struct blob_info *b, const uint8_t iv[16],
                             struct temp *t, struct err *e)
{
    CLEANUP(item_stream_freep) struct item_stream *st = NULL;
    int r = pieces_open(c, b, iv, t, &st, e);
    if (r < 0)
        return r;
    r = item_open_end(take_ptr(&st), (const uint8_t *)t->map + b->length - ITEM_TAIL, e);
    return r < 0 ? err_wrap(e, "index blob %s in %s", b->name, blobs_location(c->blobs))
                 : (int64_t)b->length - ITEM_OVERHEAD;
}

/* With error correction, which needs all of the blob: by two more files. */
static int64_t unseal_whole(const struct index_cache *c, const struct blob_info *b, const uint8_t iv[16],
                            struct temp *t, bool *corrected, struct err *e)
{
    CLEANUP(temp_clear) struct temp sealed = {.c = c, .fd = -1}, scratch = {.c = c, .fd = -1};
    const size_t stored = (size_t)b->length, plain = item_opened_max(c->sealer, stored);
    int r = temp_new(&sealed, b->name, e);
    if (r == 0)
        r = temp_map(&sealed, stored + 1, b->name, e);
    if (r == 0)
        r = temp_new(&scratch, b->name, e);
    if (r == 0)
        r = temp_map(&scratch, item_scratch_len(c->sealer, plain) + 1, b->name, e);
    if (r == 0)
        r = blob_download(c, b, sealed.map, e);
    if (r < 0)
        return r;
    int64_t len = item_open(c->sealer, iv, 16, sealed.map, stored, t->map, scratch.map, corrected, e);
    if (len < 0)
        return err_wrap(e, "index blob %s in %s", b->name, blobs_location(c->blobs));
    if (*corrected)
        log_warning("index blob %s in %s was damaged and has been repaired by error correction", b->name,
                    blobs_location(c->blobs));
    return len;
}

/* Decrypts into the beginning of t's mapping. */
static int64_t blob_unseal(const struct index_cache *c, const struct blob_info *b, struct temp *t, bool *corrected,
                           struct err *e)
{
    uint8_t iv[16];
    const size_t stored = (size_t)b->length;
    int r = iv_of_name(b->name, iv, e);
    if (r == 0)
        r = temp_new(t, b->name, e);
    if (r == 0)
        r = temp_map(t, (c->ecc ? item_opened_max(c->sealer, stored) : stored) + 1, b->name, e);
    if (r < 0)
        return r;
    return c->ecc ? unseal_whole(c, b, iv, t, corrected, e) : unseal_pieces(c, b, iv, t, e);
}

/* Decrypts a blob of the store into t. Returns the length of the table. */
static int64_t blob_fetch(const struct index_cache *c, const struct blob_info *b, struct temp *t, bool *corrected,
                          struct err *e)
{
    *corrected = false;
    if (b->length < ITEM_OVERHEAD || b->length > BLOB_MAX)
        return err_set(e, ERR_DAMAGE, EBADMSG, "index blob %s in %s is damaged: %llu bytes", b->name,
                       blobs_location(c->blobs), (unsigned long long)b->length);
    return blob_unseal(c, b, t, corrected, e);
}

int index_cache_get(struct index_map **ret, const struct index_cache *c, const struct blob_info *b, struct err *e)
{
    if (!index_name(b->name) || strchr(b->name, '/'))
        return name_invalid(b->name, e);
    int r = get_cached(ret, c, b->name, e);
    if (r)
        return r < 0 ? r : 0;
    CLEANUP(temp_clear) struct temp t = {.c = c, .fd = -1};
    bool corrected;
    int64_t len = blob_fetch(c, b, &t, &corrected, e);
    if (len < 0)
        return (int)len;
    return temp_finish(ret, &t, t.map, (size_t)len, b->name, e);
}

int index_cache_check(const struct index_cache *c, const struct blob_info *b, bool *corrected, struct err *e)
{
    CLEANUP(temp_clear) struct temp t = {.c = c, .fd = -1};
    struct index_table table;
    if (!index_name(b->name) || strchr(b->name, '/'))
        return name_invalid(b->name, e);
    int64_t len = blob_fetch(c, b, &t, corrected, e);
    if (len < 0)
        return (int)len;
    int r = index_parse(&table, t.map, (size_t)len, e);
    return r < 0 ? err_wrap(e, "index blob %s", b->name) : 0;
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

static int compare_use(const void *pa, const void *pb)
{
    const struct old_file *a = pa, *b = pb;
    if (a->used.tv_sec != b->used.tv_sec)
        return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
    if (a->used.tv_nsec != b->used.tv_nsec)
        return a->used.tv_nsec < b->used.tv_nsec ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int compare_names(const void *pa, const void *pb)
{
    const struct blob_info *a = pa, *b = pb;
    return strcmp(a->name, b->name);
}

static bool is_needed(const struct blob_info *needed, size_t n, const char *name)
{
    struct blob_info key;
    snprintf(key.name, sizeof key.name, "%s", name);
    return n && bsearch(&key, needed, n, sizeof *needed, compare_names);
}

/* A temporary file without a lock: its process no longer exists. */
static void remove_dead(const struct index_cache *c, const char *name, const struct stat *st)
{
    if (st->st_ctim.tv_sec > epoch_now_ns() / NS_PER_S - TEMP_GRACE)
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
        return err_set(e, ERR_GENERIC, sys, "cannot read index cache directory %s", c->path);
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

/* Upper bound of the size of a table's file. */
static uint64_t expected_size(uint64_t table_len)
{
    const struct index_table t = {.count = table_len / SHORTEST_RECORD};
    struct layout l = layout_of(table_len, filter_size(&t, (size_t)table_len));
    return layout_end(&l) + INDEX_FOOTER;
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
            want += expected_size(item_opened_max(c->sealer, (size_t)needed[i].length));
    }
    if (want > c->cap) {
        err_set(e, ERR_NO_SPACE, ENOSPC,
                "the index of the repository in %s needs %llu bytes in the cache %s, whose limit is %llu",
                blobs_location(c->blobs), (unsigned long long)want, c->path, (unsigned long long)c->cap);
        return err_hint(e, "raise the limit: cache-max in [daemon], or with -r --cache-size");
    }
    CLEANUP(old_files_clear) struct old_files o = {.n = 0};
    int r = find_old(c, needed, n, &o, &have, e);
    if (r < 0)
        return r;
    const uint64_t limit = c->spare < c->cap && want <= c->cap - c->spare ? c->cap - c->spare : c->cap;
    if (want + have > limit) {
        qsort(o.f, o.n, sizeof *o.f, compare_use);
        for (size_t i = 0; i < o.n && want + have > limit; i++) {
            if (unlinkat(c->dirfd, o.f[i].name, 0) < 0 && errno != ENOENT)
                return err_set(e, ERR_GENERIC, errno, "cannot delete %s from the index cache in %s", o.f[i].name,
                               c->path);
            have -= o.f[i].size;
        }
    }
    *total = want + have;
    return 0;
}

int index_cache_recall(const struct index_cache *c, const struct blob_info *listed, size_t n, int64_t before_ns,
                       struct err *e)
{
    CLEANUP(old_files_clear) struct old_files o = {.n = 0};
    uint64_t bytes = 0;
    int r = find_old(c, listed, n, &o, &bytes, e);
    for (size_t i = 0; r == 0 && i < o.n; i++) {
        struct blob_info info;
        struct err own = ERR_INIT;
        r = blobs_stat(c->blobs, o.f[i].name, &info, &own);
        if (r == -ENOENT) {
            unlinkat(c->dirfd, o.f[i].name, 0);
            r = 0;
        } else if (r < 0) {
            *e = own;
        } else if (info.mtime_ns < before_ns) {
            err_plain(e, ERR_GENERIC, EAGAIN, "the list of index blobs in %s lacks %s, which is there",
                      blobs_location(c->blobs), o.f[i].name);
            r = err_hint(e, "lists of this storage lag behind, or are being repaired: nothing was removed; run it "
                            "again when the service is well");
        }
    }
    return r;
}

int index_cache_each(const struct index_cache *c, int (*fn)(const char *name, void *arg), void *arg, struct err *e)
{
    CLEANUP(old_files_clear) struct old_files o = {.n = 0};
    uint64_t bytes = 0;
    int r = find_old(c, NULL, 0, &o, &bytes, e);
    for (size_t i = 0; r == 0 && i < o.n; i++)
        r = fn(o.f[i].name, arg);
    return r;
}

void index_cache_forget(const struct index_cache *c, const char *name)
{
    if (index_name(name) && !strchr(name, '/'))
        unlinkat(c->dirfd, name, 0);
}
