/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * test_backup.c - volumes into a repository: the parts of every image are those of a naive cut, whatever its shape and
 * whatever the parent; memory, cancel, crash.
 */
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
    if (read_delay_us)
        nanosleep(&(struct timespec){0, (long)read_delay_us * 1000}, NULL);
    return syscall(SYS_preadv, fd, iov, n, (long)pos, 0L);
}

static int make_scratch(void **state)
{
    (void)state;
    strcpy(scratch_dir, "/tmp/snapferry-backup-XXXXXX");
    return mkdtemp(scratch_dir) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)st, (void)type, (void)f;
    return remove(path);
}

static int remove_scratch(void **state)
{
    (void)state;
    return nftw(scratch_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *path_of(const char *name)
{
    static char buf[4][256];
    static unsigned turn;
    char *p = buf[turn++ % 4];
    snprintf(p, sizeof buf[0], "%s/%s", scratch_dir, name);
    return p;
}

/* ---- repositories ---- */

static struct repo *open_repo(const char *name)
{
    struct err e = ERR_INIT;
    struct blobs *b;
    assert_ok(blobs_open_dir(&b, path_of(name), BLOBS_OPEN, NULL, 0, &e), &e);
    struct repo_opts o = {.cache_dir = path_of("cache"), .username = "snapferry", .hostname = "test"};
    struct repo *r;
    assert_ok(repo_open(&r, b, "secret", &o, &e), &e);
    return r;
}

static struct repo *new_repo(const char *name, const struct format_create *c)
{
    struct err e = ERR_INIT;
    static const uint8_t secret[32] = {1, 2, 3}, master[32] = {4, 5, 6};
    struct format_create f = c ? *c : (struct format_create){0};
    f.secret = secret;
    f.master_key = master;
    if (!f.splitter)
        f.splitter = SMALL;
    struct blobs *b;
    assert_ok(blobs_open_dir(&b, path_of(name), BLOBS_CREATE, NULL, 0, &e), &e);
    assert_ok(format_create(b, &f, "secret", &e), &e);
    blobs_free(b);
    struct repo *r = open_repo(name);
    assert_ok(manifests_initialise(r, "owner@test", &e), &e);
    return r;
}

/* ---- images ---- */

struct image {
    uint8_t *p;
    size_t len;
};

static void fill_random(uint8_t *p, size_t len, uint64_t seed)
{
    for (size_t i = 0; i < len; i += 8) {
        uint64_t v = splitmix64(&seed);
        memcpy(p + i, &v, len - i < 8 ? len - i : 8);
    }
}

/* Random data, zeros, a repeated byte and text-like data in turns, of lengths that `seed` chooses. */
static struct image mixed_image(size_t len, uint64_t seed)
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
static void write_image(const char *path, const struct image *m, bool sparse)
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

static size_t naive_parts(struct repo *r, const struct image *m, const char *splitter, uint64_t section,
                          struct part **ret)
{
    struct splitter s;
    assert_int_equal(splitter_by_name(&s, splitter), 0);
    const struct hasher *h = sealer_hasher(repo_sealer(r));
    size_t n = 0, room = m->len / s.min + m->len / (section < m->len ? section : m->len + 1) + 16;
    struct part *list = calloc(room, sizeof *list);
    assert_non_null(list);
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
        hasher_digest(h, m->p + at, len, list[n].id.hash);
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

static void assert_parts(struct repo *r, const struct object_id *image, const struct part *want, size_t n)
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

static void assert_bytes(struct repo *r, const struct object_id *image, const struct image *m)
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
        assert_memory_equal(buf, m->p + at, n);
        at += (size_t)n;
    }
    assert_int_equal(at, m->len);
}

/* ---- runs ---- */

static int try_backup(struct repo *r, const char *path, const struct backup_opts *o, struct backup_result *ret,
                      struct err *e)
{
    struct source *CLEANUP(source_freep) s = NULL;
    assert_ok(source_open(&s, path, e), e);
    return backup_run(r, s, o, ret, e);
}

static struct backup_result backup(struct repo *r, const char *path, const struct backup_opts *o)
{
    struct err e = ERR_INIT;
    struct backup_result ret;
    assert_ok(try_backup(r, path, o, &ret, &e), &e);
    assert_false(ret.incomplete);
    assert_int_equal(ret.hole_bytes + ret.zero_bytes + ret.duplicate_bytes + ret.new_bytes, ret.size);
    assert_int_equal(ret.scanned, ret.size);
    return ret;
}

static struct backup_opts opts_for(const char *volume)
{
    struct backup_opts o = {.as = {.user = "snapferry", .host = "test"}};
    snprintf(o.as.path, sizeof o.as.path, "/%s", volume);
    return o;
}

/* Backs an image up and holds the result against the naive cut and the image. */
static struct backup_result check_image(struct repo *r, const struct image *m, const struct backup_opts *o, bool sparse)
{
    write_image(path_of("image"), m, sparse);
    struct backup_result ret = backup(r, path_of("image"), o);
    struct part *CLEANUP_FREE want = NULL;
    const char *splitter = o->splitter ? o->splitter : repo_format(r)->splitter;
    size_t n = naive_parts(r, m, splitter, o->section ? o->section : (uint64_t)2 << 30, &want);
    assert_int_equal(ret.chunks, n);
    assert_parts(r, &ret.image, want, n);
    assert_bytes(r, &ret.image, m);
    unlink(path_of("image"));
    return ret;
}

static void every_size_is_cut_right(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("sizes", NULL);
    struct splitter s;
    static const char *const names[] = {SMALL, "FIXED-128K", "DYNAMIC-128K-RABINKARP"};
    for (size_t k = 0; k < 3; k++) {
        assert_int_equal(splitter_by_name(&s, names[k]), 0);
        const size_t sizes[] = {0,         1,         511,           512,           s.min - 1,  s.min,
                                s.min + 1, s.max - 1, s.max,         s.max + 1,     10 * s.min, 10 * s.min + 1,
                                7 * s.max, MIB,       3 * MIB + 777, 5 * MIB - 4096};
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            struct backup_opts o = opts_for(names[k]);
            o.splitter = names[k];
            o.memory = MEMORY_MIN;
            struct image random = {calloc(1, sizes[i] + 1), sizes[i]};
            assert_non_null(random.p);
            struct backup_result ret = check_image(r, &random, &o, true); /* one hole */
            assert_true(ret.zero_chunks + 2 >= ret.chunks);
            fill_random(random.p, random.len, i + 1);
            o.section = i % 2 ? 1 * MIB : 0; /* some have an empty last section */
            check_image(r, &random, &o, false);
            free(random.p);
        }
    }
}

static void shapes_and_sections(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("shapes", NULL);
    static const uint64_t sections[] = {0, 1u << 20, 777777, 64u << 10, 100000, UINT64_MAX, 3u << 20, 5000};
    static const char *const names[] = {SMALL, "FIXED-256K", "DYNAMIC-256K-RABINKARP", "FIXED-128K"};
    unsigned rounds = SANITIZED ? 6 : 24;
    for (unsigned i = 0; i < rounds; i++) {
        struct image m = mixed_image(6 * MIB + i * 12345, 1000 + i);
        struct backup_opts o = opts_for("shapes");
        o.section = sections[i % 8];
        o.splitter = names[i / 2 % 4];
        o.workers = 1 + i % 3;
        o.no_uring = i % 5 == 0;
        struct mover_progress g = {0};
        o.progress = &g;
        struct backup_result ret = check_image(r, &m, &o, i % 3 != 0);
        assert_int_equal(g.total, m.len);
        assert_int_equal(g.done, m.len);
        assert_int_equal(g.skipped, ret.hole_bytes);
        assert_int_equal(g.zero, ret.zero_bytes);
        assert_int_equal(g.duplicate + g.fresh + g.zero + g.skipped, m.len);
        assert_int_equal(g.read, ret.read_bytes);
        assert_int_equal(g.phase, PHASE_DONE);
        free(m.p);
    }
}

/* Long holes, with data at odd places: holes longer than the reader's windows, section joins inside them. */
static void holes_between_data(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("holes", NULL);
    uint64_t seed = 77;
    for (unsigned i = 0; i < (SANITIZED ? 2u : 6u); i++) {
        struct image m = {calloc(1, 48 * MIB + 4097 * i), 48 * MIB + 4097 * i};
        assert_non_null(m.p);
        for (unsigned k = 0; k < 9; k++) {
            size_t at = splitmix64(&seed) % (m.len - MIB), n = splitmix64(&seed) % (300 * KIB) + 1;
            fill_random(m.p + at, n, splitmix64(&seed));
        }
        struct backup_opts o = opts_for("holes");
        static const uint64_t sections[] = {0, 5000000, 1u << 20};
        o.section = sections[i % 3];
        struct backup_result ret = check_image(r, &m, &o, true);
        assert_true(ret.hole_bytes > 20 * MIB);
        assert_true(ret.read_bytes < 12 * MIB);
        free(m.p);
    }
}

/* The same secret: other repositories make the same ids. Splitters of the default's size work in the least memory. */
static void default_splitter(void **state)
{
    (void)state;
    struct format_create c = {.splitter = "DYNAMIC-4M-BUZHASH"};
    struct repo *CLEANUP(repo_freep) r = new_repo("default", &c);
    struct image m = mixed_image((SANITIZED ? 24 : 90) * MIB + 4321, 5);
    fill_random(m.p + MIB, 20 * MIB, 6);
    struct backup_opts o = opts_for("default");
    o.memory = MEMORY_MIN;
    o.compression = 0x1101;
    struct backup_result a = check_image(r, &m, &o, true);
    fill_random(m.p + 9 * MIB, 100, 8);
    struct backup_result b = check_image(r, &m, &o, true);
    assert_false(object_id_equal(&a.image, &b.image));
    assert_true(b.hinted_chunks > 0);
    assert_true(b.new_bytes <= 16 * MIB);
    struct repo *CLEANUP(repo_freep) fresh = new_repo("default2", &c);
    struct backup_result again = check_image(fresh, &m, &o, false);
    assert_true(object_id_equal(&b.image, &again.image));
    free(m.p);
}

/* Every other hash, cipher, format version. */
static void variations(void **state)
{
    (void)state;
    static const struct format_create list[] = {
        {.version = 1, .hash = "BLAKE3-256"},
        {.version = 2, .hash = "HMAC-SHA256", .encryption = "CHACHA20-POLY1305-HMAC-SHA256", .ecc_percent = 5},
        {.version = 3, .hash = "BLAKE2S-256", .splitter = "FIXED-128K"},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        char name[16];
        snprintf(name, sizeof name, "var%zu", i);
        struct repo *CLEANUP(repo_freep) r = new_repo(name, &list[i]);
        struct image m = mixed_image(4 * MIB + 17, 50 + i);
        struct backup_opts o = opts_for("v");
        o.compression = 0x1101;
        check_image(r, &m, &o, true);
        struct backup_result second = check_image(r, &m, &o, true);
        assert_int_equal(second.new_bytes, 0);
        free(m.p);
    }
}

/* ---- parents ---- */

/* Changes an image as volumes and files change. */
static void mutate(struct image *m, uint64_t *seed)
{
    unsigned n = (unsigned)(splitmix64(seed) % 4);
    for (unsigned i = 0; i <= n; i++) {
        size_t at = m->len ? splitmix64(seed) % m->len : 0, left = m->len - at;
        size_t len = splitmix64(seed) % (splitmix64(seed) % 3 ? 5000 : 700000);
        len = len < left ? len : left;
        switch (splitmix64(seed) % 8) {
        case 0:
        case 1: /* overwrite */
            fill_random(m->p + at, len, splitmix64(seed));
            break;
        case 2: /* zeros */
            memset(m->p + at, 0, len);
            break;
        case 3: /* delete: all behind moves */
            memmove(m->p + at, m->p + at + len, left - len);
            m->len -= len;
            break;
        case 4: /* insert, dropping what goes over the end */
            memmove(m->p + at + len, m->p + at, left - len);
            fill_random(m->p + at, len, splitmix64(seed));
            break;
        case 5: /* copy another range here */
            len = len < m->len - len ? len : 0;
            memmove(m->p + at, m->p + splitmix64(seed) % (m->len - len + 1), len);
            break;
        case 6: { /* grow: zeros or data */
            uint8_t *p = realloc(m->p, m->len + len + 1);
            assert_non_null(p);
            m->p = p;
            memset(p + m->len, 0, len);
            if (splitmix64(seed) % 2)
                fill_random(p + m->len, len, splitmix64(seed));
            m->len += len;
            break;
        }
        default: /* shrink */
            m->len -= len / 2;
        }
    }
}

static void parents_change_nothing_but_the_time(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("property", NULL);
    struct timespec began, now;
    clock_gettime(CLOCK_MONOTONIC, &began);
    const char *env = getenv("SNAPFERRY_TEST_SECONDS");
    const long limit = env ? atol(env) : 10;
    static const uint64_t sections[] = {0, 1u << 20, 999999, 0, 2u << 20};
    static const char *const names[] = {SMALL, "DYNAMIC-128K-RABINKARP", SMALL, "FIXED-128K"};
    uint64_t hinted = 0, rounds = 0;
    unsigned s = 0;
    do {
        uint64_t seed = 31 * s + 7;
        struct image m = mixed_image(splitmix64(&seed) % (4 * MIB) + 1, seed);
        char volume[32];
        snprintf(volume, sizeof volume, "p%u", s);
        struct backup_opts o = opts_for(volume);
        o.section = sections[s % 5];
        o.splitter = names[s % 4];
        o.workers = 1 + s % 3;
        check_image(r, &m, &o, s % 2);
        for (unsigned k = 0; k < 3; k++) {
            mutate(&m, &seed);
            struct backup_opts scan = opts_for("scan"), alone = opts_for("alone");
            scan.section = alone.section = o.section;
            scan.splitter = alone.splitter = o.splitter;
            scan.full_scan = true;
            alone.no_parent = true;
            struct backup_result a = check_image(r, &m, &o, s % 3);
            struct backup_result b = check_image(r, &m, k % 2 ? &scan : &alone, s % 2);
            assert_string_not_equal(a.parent_id, "");
            assert_true(object_id_equal(&a.image, &b.image));
            assert_int_equal(b.hinted_chunks, 0);
            assert_int_equal(b.new_bytes, 0);
            hinted += a.hinted_chunks;
            rounds++;
        }
        free(m.p);
        s++;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - began.tv_sec < limit);
    print_message("%u volumes, %llu backups with a parent, %llu chunks by hint\n", s, (unsigned long long)rounds,
                  (unsigned long long)hinted);
    assert_true(hinted > rounds);
}

/* The longest chunks there are in the least memory that holds them: the ring has hardly room for two, and guesses that
 * fail have to be cut anew in it. */
static void a_ring_of_two_chunks_is_enough(void **state)
{
    (void)state;
    /* Error correction needs each sealed content whole, twice. */
    struct format_create c = {.version = 2, .splitter = "DYNAMIC-8M-BUZHASH", .ecc_percent = 1};
    struct repo *CLEANUP(repo_freep) r = new_repo("tight", &c);
    struct backup_opts o = opts_for("tight"), scan = opts_for("tight-scan");
    struct image m = {malloc(96 * MIB), 96 * MIB};
    assert_non_null(m.p);
    fill_random(m.p, m.len, 8);
    memset(m.p + 50 * MIB, 0, 21 * MIB);
    write_image(path_of("tight.img"), &m, true);
    struct err e = ERR_INIT;
    struct backup_result ret;
    unsigned enough = 0;
    o.memory = MEMORY_MIN;
    o.compression = 0x1101;
    assert_int_equal(try_backup(r, path_of("tight.img"), &o, &ret, &e), -ENOMEM);
    assert_int_equal(sscanf(e.hint, "give --memory %uMiB", &enough), 1);
    o.memory = scan.memory = (uint64_t)enough << 20;
    scan.full_scan = true;
    uint64_t seed = 3;
    check_image(r, &m, &o, true);
    for (unsigned i = 0; i < (SANITIZED ? 1u : 3u); i++) {
        size_t at = splitmix64(&seed) % (m.len / 2), n = splitmix64(&seed) % MIB;
        memmove(m.p + at + n, m.p + at, m.len - at - n); /* all behind moves: the next guesses are wrong */
        fill_random(m.p + at, n, splitmix64(&seed));
        mutate(&m, &seed);
        struct backup_result a = check_image(r, &m, &o, true), b = check_image(r, &m, &scan, i % 2);
        assert_true(object_id_equal(&a.image, &b.image));
    }
    print_message("%u MiB were enough\n", enough);
    free(m.p);
}

/* Nothing changed: every chunk that is not zeros is proven by the parent's id, none is searched for. */
static void an_unchanged_volume_is_not_scanned(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("unchanged", NULL);
    struct image m = mixed_image(20 * MIB + 99, 12);
    struct backup_opts o = opts_for("unchanged");
    struct backup_result a = check_image(r, &m, &o, true), b = check_image(r, &m, &o, true);
    assert_true(object_id_equal(&a.image, &b.image));
    assert_string_equal(b.parent_id, a.manifest_id);
    assert_int_equal(b.new_chunks, 0);
    assert_int_equal(b.hinted_chunks, b.duplicate_chunks);
    for (unsigned i = 0; i < b.n_stages; i++) {
        if (strcmp(b.stages[i].name, "split") == 0)
            assert_int_equal(b.stages[i].bytes, 0);
        if (strcmp(b.stages[i].name, "hash") == 0)
            assert_true(b.stages[i].bytes <= b.duplicate_bytes + b.zero_bytes + MIB);
    }
    /* Another splitter: the parent is of no use, and does no harm. */
    o.splitter = "DYNAMIC-256K-BUZHASH";
    struct backup_result c = check_image(r, &m, &o, true);
    assert_int_equal(c.hinted_chunks, 0);
    o.splitter = SMALL;
    o.section = 1 * MIB; /* nor is a parent with other sections */
    c = check_image(r, &m, &o, true);
    assert_int_equal(c.hinted_chunks, 0);
    free(m.p);
}

/* ---- what is stored ---- */

static int count_entry(const struct index_entry *entry, void *arg)
{
    (void)entry;
    ++*(uint64_t *)arg;
    return 0;
}

static int by_id(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    return memcmp(x->id.hash, y->id.hash, x->id.len);
}

/* Cuts move where bytes are inserted: what was found behind the parent's ranges there is wrong and must not be stored.
 * The repository holds the chunks of both images, the two volume.json, and nothing else. */
static void guesses_are_not_stored(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 3; workers++) {
        char name[32];
        snprintf(name, sizeof name, "guesses%u", workers);
        struct repo *CLEANUP(repo_freep) r = new_repo(name, NULL);
        struct image m = {.p = malloc(12 * MIB), .len = 12 * MIB};
        assert_non_null(m.p);
        fill_random(m.p, m.len, workers);
        struct backup_opts o = opts_for("guesses");
        o.workers = workers;
        check_image(r, &m, &o, false);
        struct part *CLEANUP_FREE first = NULL, *CLEANUP_FREE second = NULL;
        size_t n = naive_parts(r, &m, repo_format(r)->splitter, (uint64_t)2 << 30, &first);
        for (size_t at = MIB; at < m.len; at += MIB) {
            memmove(m.p + at + 1000, m.p + at, m.len - at - 1000);
            fill_random(m.p + at, 1000, at + workers);
        }
        struct backup_result b = check_image(r, &m, &o, false);
        assert_true(b.hinted_chunks > 0);
        assert_true(b.new_chunks > 10);
        size_t k = naive_parts(r, &m, repo_format(r)->splitter, (uint64_t)2 << 30, &second);
        struct part *CLEANUP_FREE all = malloc((n + k) * sizeof *all);
        assert_non_null(all);
        memcpy(all, first, n * sizeof *all);
        memcpy(all + n, second, k * sizeof *all);
        qsort(all, n + k, sizeof *all, by_id);
        uint64_t distinct = 1, stored = 0;
        for (size_t i = 1; i < n + k; i++)
            distinct += by_id(&all[i - 1], &all[i]) != 0;
        struct err e = ERR_INIT;
        assert_ok(index_set_refresh(repo_index(r), &e), &e);
        assert_ok(index_set_each(repo_index(r), 0, count_entry, &stored, &e), &e);
        assert_int_equal(stored, distinct + 2);
        free(m.p);
    }
}

/* ---- cancel, checkpoints ---- */

struct canceler {
    struct mover_progress progress;
    struct mover_cancel cancel;
    uint64_t at;
    _Atomic bool end;
};

static void *cancel_at(void *arg)
{
    struct canceler *c = arg;
    while (!atomic_load(&c->end) && atomic_load(&c->progress.done) < c->at)
        nanosleep(&(struct timespec){0, 200000}, NULL);
    atomic_store(&c->cancel.requested, true);
    return NULL;
}

static unsigned count_incomplete;
static int count_snapshot(struct snapshot *s, void *arg)
{
    (void)arg;
    count_incomplete += *s->incomplete ? 1 : 0;
    return 0;
}

static unsigned incomplete_ones(struct repo *r, const struct backup_opts *o)
{
    struct err e = ERR_INIT;
    count_incomplete = 0;
    unsigned bad = 0;
    assert_ok(snapshots_each(r, &o->as, false, count_snapshot, NULL, &bad, &e), &e);
    assert_int_equal(bad, 0);
    return count_incomplete;
}

static void a_canceled_run_is_resumed(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("cancel", NULL);
    struct image m = {malloc(64 * MIB), 64 * MIB};
    assert_non_null(m.p);
    fill_random(m.p, m.len, 99);
    write_image(path_of("image"), &m, false);
    struct backup_opts o = opts_for("cancel");
    o.no_uring = true;
    o.depth = 1;
    read_delay_us = 15000; /* of each read: long enough for the cancel to come in the midst of it */
    uint64_t put = 0;
    bool resumed = false;
    for (unsigned i = 1; i <= 2; i++) {
        struct canceler c = {.at = m.len / 4 * i};
        o.progress = &c.progress;
        o.cancel = &c.cancel;
        pthread_t t;
        assert_int_equal(pthread_create(&t, NULL, cancel_at, &c), 0);
        struct err e = ERR_INIT;
        struct backup_result ret;
        int rc = try_backup(r, path_of("image"), &o, &ret, &e);
        atomic_store(&c.end, true);
        pthread_join(t, NULL);
        assert_int_equal(rc, -ECANCELED);
        assert_int_equal(e.cls, ERR_INTERRUPTED);
        assert_true(ret.incomplete);
        assert_true(ret.scanned >= c.at && ret.scanned <= m.len); /* what was in work is finished */
        assert_string_not_equal(ret.manifest_id, "");
        assert_int_equal(ret.hinted_chunks > 0, resumed);
        assert_int_equal(incomplete_ones(r, &o), 1);
        put += ret.new_chunks;
        resumed = true;
    }
    read_delay_us = 0;
    o.progress = NULL;
    o.cancel = NULL;
    struct backup_result ret = check_image(r, &m, &o, false);
    assert_int_equal(incomplete_ones(r, &o), 0);
    assert_int_equal(put + ret.new_chunks, ret.chunks);
    free(m.p);
}

/* Checkpoints by time: an unfinished snapshot exists while the run goes on, and none when it is done. */
static void checkpoints_are_committed_on_the_way(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("points", NULL);
    struct image m = mixed_image(3 * MIB, 4);
    struct backup_opts o = opts_for("points");
    o.checkpoint_s = 1;
    o.flush_s = 1;
    read_delay_us = 400000; /* of each read: the run takes some seconds */
    o.no_uring = true;
    o.depth = 1;
    struct backup_result ret = check_image(r, &m, &o, false);
    read_delay_us = 0;
    assert_true(ret.checkpoints >= 1);
    assert_true(ret.flushes >= 2);
    assert_int_equal(incomplete_ones(r, &o), 0);
    free(m.p);
}

/* ---- sources that misbehave ---- */

static void bad_ranges_are_mapped_or_fatal(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("bad", NULL);
    struct image m = {malloc(3 * MIB), 3 * MIB};
    assert_non_null(m.p);
    fill_random(m.p, m.len, 3);
    write_image(path_of("bad.img"), &m, false);
    struct backup_opts o = opts_for("bad");
    o.no_uring = true;
    bad_from = MIB + 8192;
    bad_to = MIB + 20480;
    struct err e = ERR_INIT;
    struct backup_result ret;
    assert_true(try_backup(r, path_of("bad.img"), &o, &ret, &e) < 0);
    assert_int_equal(e.cls, ERR_SOURCE);
    assert_string_equal(ret.manifest_id, "");
    backup_result_clear(&ret);
    o.bad_read = BAD_READ_MAP;
    assert_ok(try_backup(r, path_of("bad.img"), &o, &ret, &e), &e);
    assert_int_equal(ret.n_bad, 1);
    assert_int_equal(ret.bad[0].pos, bad_from);
    assert_int_equal(ret.bad[0].len, bad_to - bad_from);
    assert_int_equal(ret.bad[0].sys, EIO);
    assert_int_equal(ret.bad_bytes, bad_to - bad_from);
    memset(m.p + bad_from, 0, bad_to - bad_from);
    assert_bytes(r, &ret.image, &m);
    struct snapshot s;
    assert_ok(snapshot_find(r, ret.manifest_id, NULL, &s, &e), &e);
    assert_int_equal(s.error_count, 1);
    struct dir_entry d;
    assert_ok(dir_lookup(r, &s.root, "volume.json", &d, &e), &e);
    uint8_t *CLEANUP_FREE doc = NULL;
    assert_ok(object_get(r, &d.obj, &doc, MIB, &e), &e);
    json_t *j = json_loads((char *)doc, 0, NULL);
    json_t *range = json_array_get(json_object_get(j, "badRanges"), 0);
    assert_int_equal(json_integer_value(json_array_get(range, 0)), bad_from);
    assert_int_equal(json_integer_value(json_array_get(range, 1)), bad_to - bad_from);
    assert_int_equal(json_integer_value(json_array_get(range, 2)), EIO);
    assert_int_equal(json_integer_value(json_object_get(j, "size")), m.len);
    json_decref(j);
    dir_entry_clear(&d);
    snapshot_clear(&s);
    backup_result_clear(&ret);
    bad_from = bad_to = 0;
    free(m.p);
}

static void many_bad_ranges_stay_a_bounded_list(void **state)
{
    (void)state;
    struct badmap *m = malloc(sizeof *m);
    assert_non_null(m);
    badmap_init(m);
    struct err e = ERR_INIT;
    struct bad_range *list;
    size_t n;
    uint64_t bytes;
    badmap_add(m, 4096, 512, EIO);
    badmap_add(m, 5120, 512, EIO);
    badmap_add(m, 4608, 512, EIO); /* fills the gap */
    badmap_add(m, 0, 512, EIO);
    badmap_add(m, 512, 512, ENODATA); /* touches, but is of another kind */
    assert_ok(badmap_copy(m, &list, &n, &bytes, &e), &e);
    assert_int_equal(n, 3);
    assert_int_equal(list[2].pos, 4096);
    assert_int_equal(list[2].len, 1536);
    assert_int_equal(bytes, 5 * 512);
    free(list);
    for (uint64_t i = 0; i < 3 * BAD_RANGES_MAX; i++)
        badmap_add(m, (1000 - i % 1000) * 65536 + i / 1000 * MIB * 1000, 512, EIO);
    assert_ok(badmap_copy(m, &list, &n, &bytes, &e), &e);
    assert_int_equal(n, BAD_RANGES_MAX);
    assert_int_equal(bytes, (5 + 3 * BAD_RANGES_MAX) * 512);
    for (size_t i = 1; i < n; i++)
        assert_true(list[i - 1].pos + list[i - 1].len <= list[i].pos);
    free(list);
    badmap_destroy(m);
    free(m);
}

struct resizer {
    struct mover_progress progress;
    const char *path;
    off_t size;
};

static void *resize_midway(void *arg)
{
    struct resizer *z = arg;
    while (atomic_load(&z->progress.read) == 0 && atomic_load(&z->progress.phase) != PHASE_DONE)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    if (truncate(z->path, z->size))
        z->size = -1;
    return NULL;
}

static int backup_resized(struct repo *r, const struct image *m, off_t size, struct backup_opts *o,
                          struct backup_result *ret, struct err *e)
{
    write_image(path_of("resized"), m, false);
    char path[256];
    snprintf(path, sizeof path, "%s", path_of("resized"));
    struct resizer z = {.path = path, .size = size};
    o->progress = &z.progress;
    o->no_uring = true;
    o->depth = 1;
    read_delay_us = 300000;
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, resize_midway, &z), 0);
    int rc = try_backup(r, z.path, o, ret, e);
    pthread_join(t, NULL);
    read_delay_us = 0;
    assert_int_equal(z.size, size);
    return rc;
}

static void sources_that_grow_or_shrink(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("resize", NULL);
    struct image m = mixed_image(4 * MIB, 21);
    struct backup_opts o = opts_for("resize");
    struct err e = ERR_INIT;
    struct backup_result ret;
    assert_ok(backup_resized(r, &m, (off_t)(6 * MIB), &o, &ret, &e), &e);
    assert_int_equal(ret.size, m.len);
    assert_bytes(r, &ret.image, &m);
    assert_true(backup_resized(r, &m, (off_t)(m.len - 4096), &o, &ret, &e) < 0);
    assert_int_equal(e.cls, ERR_SOURCE);
    assert_string_equal(ret.manifest_id, "");
    free(m.p);
}

/* ---- references that a collector took away meanwhile ---- */

static void references_are_looked_up_again(void **state)
{
    (void)state;
    struct repo *CLEANUP(repo_freep) r = new_repo("refs", NULL);
    struct err e = ERR_INIT;
    struct session *CLEANUP(session_freep) s = NULL;
    struct put_scratch *CLEANUP(put_scratch_freep) p = NULL;
    assert_ok(session_new(&s, r, &(struct session_opts){0}, &e), &e);
    assert_ok(put_scratch_new(&p, r, 0, 4096, &e), &e);
    struct refs *CLEANUP(refs_freep) x = NULL;
    assert_ok(refs_new(&x, repo_cache_dir(r), &e), &e);
    struct object_id image = {0};
    for (unsigned i = 0; i < 1500; i++) { /* more than one buffer */
        struct content_id id;
        assert_ok(session_put_bytes(s, p, 0, &i, sizeof i, 0, &id, &e), &e);
        assert_ok(refs_add(x, &id, &e), &e);
        image.content = id;
    }
    assert_ok(session_flush(s, &e), &e);
    assert_ok(refs_check(x, s, &image, &e), &e);
    assert_ok(session_delete_content(s, &image.content, &e), &e);
    assert_ok(session_flush(s, &e), &e);
    assert_int_equal(refs_check(x, s, &image, &e), -ESTALE);
    assert_ok(refs_clear(x, &e), &e);
    assert_ok(refs_check(x, s, &image, &e), &e); /* none is left that could be missing */
}

/* ---- memory ---- */

struct sampler {
    _Atomic bool end;
    uint64_t peak; /* KiB */
};

static void *sample(void *arg)
{
    struct sampler *s = arg;
    while (!atomic_load(&s->end)) {
        FILE *f = fopen("/proc/self/status", "re");
        char line[256];
        unsigned long anon = 0, shmem = 0;
        while (f && fgets(line, sizeof line, f)) {
            sscanf(line, "RssAnon: %lu", &anon);
            sscanf(line, "RssShmem: %lu", &shmem);
        }
        if (f)
            fclose(f);
        if (anon + shmem > s->peak)
            s->peak = anon + shmem;
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    return NULL;
}

struct usage {
    int rc;
    uint64_t peak; /* bytes */
    char msg[512];
};

/* Runs a backup in a process of its own and tells its peak of anonymous and shared memory. */
static struct usage measure(const char *repo, const char *path, const struct backup_opts *o)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct usage u = {0};
        struct sampler s = {.end = false};
        pthread_t t;
        struct err e = ERR_INIT;
        char image[256];
        snprintf(image, sizeof image, "%s", path);
        struct repo *r = open_repo(repo);
        struct source *src;
        struct backup_result ret;
        pthread_create(&t, NULL, sample, &s);
        u.rc = source_open(&src, image, &e);
        if (u.rc == 0)
            u.rc = backup_run(r, src, o, &ret, &e);
        atomic_store(&s.end, true);
        pthread_join(t, NULL);
        u.peak = s.peak << 10;
        snprintf(u.msg, sizeof u.msg, "%.400s %.100s", e.msg, e.hint);
        _exit(write(fds[1], &u, sizeof u) == sizeof u ? 0 : 1);
    }
    close(fds[1]);
    struct usage u;
    assert_int_equal(read(fds[0], &u, sizeof u), sizeof u);
    close(fds[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return u;
}

static void memory_stays_in_the_budget(void **state)
{
    (void)state;
    if (SANITIZED) {
        print_message("not measured: a sanitizer's own memory would be\n");
        skip();
    }
    struct format_create c = {.splitter = "DYNAMIC-4M-BUZHASH"};
    struct format_create big = {.version = 2, .splitter = "DYNAMIC-8M-BUZHASH", .ecc_percent = 1};
    repo_free(new_repo("memory", &c));
    repo_free(new_repo("memory8", &big));
    /* 4 TiB, nearly all of it holes. */
    int fd = open(path_of("sparse"), O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    uint8_t *p = malloc(MIB);
    assert_non_null(p);
    assert_int_equal(ftruncate(fd, (off_t)4 << 40), 0);
    uint64_t seed = 5;
    for (unsigned i = 0; i < 40; i++) {
        fill_random(p, MIB, i);
        assert_int_equal(pwrite(fd, p, MIB, (off_t)(splitmix64(&seed) % ((uint64_t)4 << 40))), MIB);
    }
    close(fd);
    /* Incompressible, more than any budget here. */
    fd = open(path_of("random"), O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    for (unsigned i = 0; i < 320; i++) {
        fill_random(p, MIB, 1000 + i);
        assert_int_equal(write(fd, p, MIB), MIB);
    }
    close(fd);
    free(p);
    static const struct {
        const char *repo, *image;
        uint64_t memory;
    } runs[] = {
        {"memory", "sparse", MEMORY_MIN}, {"memory", "sparse", MEMORY_MIN}, {"memory", "random", MEMORY_MIN},
        {"memory", "random", 200 * MIB},  {"memory8", "random", 128 * MIB}, {"memory8", "random", 0},
    };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        struct backup_opts o = opts_for(i < 2 ? "sparse" : "random");
        o.memory = runs[i].memory;
        o.compression = 0x1101;
        o.workers = 4;
        struct usage u = measure(runs[i].repo, path_of(runs[i].image), &o);
        if (u.rc < 0)
            fail_msg("%s: %s", runs[i].image, u.msg);
        uint64_t budget = o.memory ? o.memory : MEMORY_DEFAULT;
        print_message("%s, budget %3llu MiB: peak %llu MiB\n", runs[i].image, (unsigned long long)budget >> 20,
                      (unsigned long long)u.peak >> 20);
        assert_true(u.peak > 4 * MIB);
        assert_true(u.peak < budget);
    }
    /* Too little is refused with the number that is enough. */
    struct repo *CLEANUP(repo_freep) r = open_repo("memory8");
    struct backup_opts o = opts_for("random");
    struct err e = ERR_INIT;
    struct backup_result ret;
    o.memory = MEMORY_MIN - 1;
    assert_int_equal(try_backup(r, path_of("random"), &o, &ret, &e), -EINVAL);
    assert_int_equal(e.cls, ERR_USAGE);
    o.memory = MEMORY_MIN;
    o.compression = 0x1101;
    assert_int_equal(try_backup(r, path_of("random"), &o, &ret, &e), -ENOMEM);
    assert_int_equal(e.cls, ERR_MEMORY);
    unsigned enough = 0;
    assert_int_equal(sscanf(e.hint, "give --memory %uMiB", &enough), 1);
    assert_true(enough > 96 && enough < 128);
    unlink(path_of("sparse"));
    unlink(path_of("random"));
}

/* ---- a repository that takes no more ---- */

static void a_store_that_fails_ends_the_run(void **state)
{
    (void)state;
    repo_free(new_repo("full", NULL));
    struct image m = {malloc(24 * MIB), 24 * MIB};
    assert_non_null(m.p);
    fill_random(m.p, m.len, 2);
    char path[256];
    snprintf(path, sizeof path, "%s", path_of("full.img"));
    write_image(path, &m, false);
    struct backup_opts o = opts_for("full");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        /* No file may get longer: packs cannot be written. */
        struct rlimit limit = {3 * MIB, 3 * MIB};
        signal(SIGXFSZ, SIG_IGN);
        struct err e = ERR_INIT;
        struct backup_result ret;
        struct source *src;
        struct repo *r = open_repo("full");
        if (setrlimit(RLIMIT_FSIZE, &limit) || source_open(&src, path, &e) < 0)
            _exit(2);
        int rc = backup_run(r, src, &o, &ret, &e);
        _exit(rc < 0 && rc != -ECANCELED && e.sys == EFBIG && !*ret.manifest_id ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    struct repo *CLEANUP(repo_freep) r = open_repo("full");
    assert_int_equal(incomplete_ones(r, &o), 0);
    struct backup_result ret = backup(r, path, &o);
    assert_bytes(r, &ret.image, &m);
    free(m.p);
}

/* ---- kill -9 ---- */

static int read_snapshot(struct snapshot *s, void *arg)
{
    struct repo *r = arg;
    struct err e = ERR_INIT;
    static const char *const names[] = {"volume.img", "volume.json"};
    for (unsigned i = 0; i < 2; i++) {
        if (i == 0 && *s->incomplete)
            continue; /* it has a longer name then; its bytes are those that the next run reuses */
        struct dir_entry d;
        assert_ok(dir_lookup(r, &s->root, names[i], &d, &e), &e);
        struct object_reader *CLEANUP(object_reader_freep) o = NULL;
        assert_ok(object_reader_open(&o, r, &d.obj, &e), &e);
        uint8_t *CLEANUP_FREE buf = malloc(MIB);
        int64_t n, all = 0;
        while ((n = object_reader_read(o, buf, MIB, &e)) > 0)
            all += n;
        assert_ok(n, &e);
        assert_int_equal(all, d.size);
        dir_entry_clear(&d);
    }
    return 0;
}

static int count_blob(const struct blob_info *info, void *arg)
{
    (void)info;
    ++*(unsigned *)arg;
    return 0;
}

static unsigned packs_in(struct repo *r)
{
    struct err e = ERR_INIT;
    unsigned n = 0;
    assert_ok(blobs_list(repo_blobs(r), "p", count_blob, &n, &e), &e);
    return n;
}

/* A backup in a process of its own that kills itself at a crash point. */
static void crash_at(const char *repo, const char *point, const char *path, const struct backup_opts *o)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("SNAPFERRY_CRASH_AT", point, 1);
        struct err e = ERR_INIT;
        struct backup_result ret;
        struct source *src;
        struct repo *r = open_repo(repo);
        if (source_open(&src, path, &e) == 0)
            backup_run(r, src, o, &ret, &e);
        fprintf(stderr, "still alive: %s\n", e.msg);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail_msg("the backup did not die at %s: status %x", point, status);
}

static void a_killed_run_harms_nothing_and_is_resumed(void **state)
{
    (void)state;
    static const char *const points[] = {
        "marker-put",    "chunk-stored",   "chunk-stored:200",   "pack-written:2",          "pack-renamed:3",
        "index-written", "marker-deleted", "before-final-flush", "checkpoint-manifest-put", "after-final-flush",
    };
    struct format_create c = {.pack_size = 10 << 20};
    struct image m = {malloc(44 * MIB), (SANITIZED ? 36 : 44) * MIB};
    assert_non_null(m.p);
    fill_random(m.p, m.len, 64);
    char path[256];
    snprintf(path, sizeof path, "%s", path_of("killed"));
    write_image(path, &m, false);
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        char name[16];
        snprintf(name, sizeof name, "kill%zu", i);
        struct repo *first = new_repo(name, &c);
        struct backup_opts o = opts_for("killed");
        repo_free(first);
        if (strcmp(points[i], "checkpoint-manifest-put") == 0)
            o.checkpoint_s = 1;
        read_delay_us = o.checkpoint_s ? 100000 : 0;
        o.no_uring = o.checkpoint_s != 0;
        o.depth = o.checkpoint_s ? 1 : 0;
        crash_at(name, points[i], path, &o);
        read_delay_us = 0;
        struct repo *CLEANUP(repo_freep) r = open_repo(name);
        struct err e = ERR_INIT;
        unsigned bad = 0, before = packs_in(r);
        assert_ok(snapshots_each(r, NULL, false, read_snapshot, r, &bad, &e), &e);
        assert_int_equal(bad, 0);
        o = opts_for("killed");
        struct backup_result ret = backup(r, path, &o);
        assert_bytes(r, &ret.image, &m);
        assert_ok(snapshots_each(r, NULL, false, read_snapshot, r, &bad, &e), &e);
        assert_int_equal(incomplete_ones(r, &o), 0);
        /* Finished packs are full but for their last chunk, and are not stored again. */
        uint64_t kept = (uint64_t)before * (c.pack_size - 2 * 256 * KIB);
        print_message("killed at %s: %u packs were finished, then %llu of %llu MiB new\n", points[i], before,
                      (unsigned long long)ret.new_bytes >> 20, (unsigned long long)m.len >> 20);
        assert_true(ret.new_bytes + kept <= m.len + (before ? c.pack_size : 0));
        if (strcmp(points[i], "pack-renamed:3") == 0)
            assert_true(before >= 3 && ret.adopted_packs >= 3);
    }
    free(m.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_is_cut_right),
        cmocka_unit_test(shapes_and_sections),
        cmocka_unit_test(holes_between_data),
        cmocka_unit_test(default_splitter),
        cmocka_unit_test(variations),
        cmocka_unit_test(an_unchanged_volume_is_not_scanned),
        cmocka_unit_test(parents_change_nothing_but_the_time),
        cmocka_unit_test(a_ring_of_two_chunks_is_enough),
        cmocka_unit_test(guesses_are_not_stored),
        cmocka_unit_test(a_canceled_run_is_resumed),
        cmocka_unit_test(checkpoints_are_committed_on_the_way),
        cmocka_unit_test(bad_ranges_are_mapped_or_fatal),
        cmocka_unit_test(many_bad_ranges_stay_a_bounded_list),
        cmocka_unit_test(sources_that_grow_or_shrink),
        cmocka_unit_test(references_are_looked_up_again),
        cmocka_unit_test(a_store_that_fails_ends_the_run),
        cmocka_unit_test(memory_stays_in_the_budget),
        cmocka_unit_test(a_killed_run_harms_nothing_and_is_resumed),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
