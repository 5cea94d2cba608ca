/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/unit/test.h"

#include "base/resident.h"
#include "repo/epoch-test.h"
#include "repo/index-cache.h"
#include "repo/indexset.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct repo {
    char dir[64], store[96], cache[96];
    struct blobs *b;
    struct repo_format *f;
    struct sealer *s;
    struct index_set *x;
};

static const char session[] = "s0123456789abcdef144";

static void make_repo(struct repo *r, unsigned version, unsigned ecc)
{
    struct err e = ERR_INIT;
    memset(r, 0, sizeof *r);
    assert_non_null(scratch_new(r->dir, sizeof r->dir));
    snprintf(r->store, sizeof r->store, "%s/store", r->dir);
    snprintf(r->cache, sizeof r->cache, "%s/cache", r->dir);
    assert_ok(blobs_open_dir(&r->b, r->store, BLOBS_CREATE, NULL, 0, &e), &e);
    struct format_create c = {.version = version, .ecc_percent = ecc, .unique_id = test_unique_id};
    assert_ok(format_create(r->b, &c, "password", &e), &e);
    assert_ok(format_load(&r->f, r->b, "password", &e), &e);
    assert_ok(sealer_new(&r->s, r->f, &e), &e);
}

static int open_set(struct repo *r, uint64_t cache_cap, uint64_t mapped_cap, struct err *e)
{
    struct index_set_opts o = {.cache_dir = r->cache, .cache_cap = cache_cap, .mapped_cap = mapped_cap};
    return index_set_open(&r->x, r->b, r->s, r->f, &o, e);
}

static void close_set(struct repo *r)
{
    index_set_free(r->x);
    r->x = NULL;
}

static int unlink_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void drop_repo(struct repo *r)
{
    epoch_set_hooks(NULL);
    close_set(r);
    sealer_free(r->s);
    format_free(r->f);
    blobs_free(r->b);
    nftw(r->dir, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Content number k of the model; every third has a prefix. */
static struct content_id id_of(uint64_t k)
{
    struct content_id id = {.prefix = k % 3 == 0 ? "kmx"[k / 3 % 3] : 0, .len = 16};
    uint64_t state = k;
    put_le64(id.hash, splitmix64(&state));
    put_le64(id.hash + 8, splitmix64(&state));
    return id;
}

static struct index_entry entry_of(uint64_t k, int64_t time, bool deleted, unsigned pack)
{
    struct index_entry x = {.id = id_of(k), .offset = (uint32_t)k, .packed = 28 + pack, .length = pack, .time = time};
    x.deleted = deleted;
    x.format_version = 3;
    snprintf(x.pack, sizeof x.pack, "p%032u-%s", pack, session);
    return x;
}

/* Writes a table of n entries as a blob of the current epoch; its name. */
static void write_table(struct repo *r, struct index_entry *x, size_t n, unsigned version, char *ret)
{
    struct err e = ERR_INIT;
    CLEANUP_FREE uint8_t *data = NULL;
    struct index_shard_data d = {.len = 0};
    char name[1][BLOB_NAME_MAX + 1];
    n = index_sort(x, n);
    assert_ok(index_build(x, n, version, false, &data, &d.len, &e), &e);
    d.data = data;
    assert_ok(epoch_write_indexes(r->b, r->s, r->f, session, &d, 1, name, &e), &e);
    if (ret)
        strcpy(ret, name[0]);
}

static void assert_same(const struct index_entry *a, const struct index_entry *b)
{
    assert_true(content_id_equal(&a->id, &b->id));
    assert_string_equal(a->pack, b->pack);
    assert_int_equal(a->offset, b->offset);
    assert_int_equal(a->packed, b->packed);
    assert_int_equal(a->length, b->length);
    assert_int_equal(a->time, b->time);
    assert_int_equal(a->deleted, b->deleted);
}

/* ---- against a naive model -------------------------------------------------------------------------------------- */

#define IDS 400

struct model {
    bool there[IDS];
    struct index_entry winner[IDS];
    int64_t watermark;
};

static void model_add(struct model *m, const struct index_entry *x, uint64_t k)
{
    if (!m->there[k] || index_entry_wins(x, &m->winner[k]))
        m->winner[k] = *x;
    m->there[k] = true;
}

static bool model_exists(const struct model *m, uint64_t k)
{
    return m->there[k] && !(m->winner[k].deleted && m->winner[k].time <= m->watermark);
}

static void random_tables(struct repo *r, struct model *m, unsigned tables, uint64_t *seed)
{
    for (unsigned t = 0; t < tables; t++) {
        struct index_entry x[IDS];
        size_t n = 0, from = splitmix64(seed) % IDS, count = 1 + splitmix64(seed) % 60;
        for (size_t i = 0; i < count; i++) {
            uint64_t k = (from + i * (1 + t % 5)) % IDS;
            bool again = false;
            for (size_t p = 0; p < n; p++)
                again = again || x[p].offset == k;
            if (again)
                continue;
            x[n] = entry_of(k, 1000 + (int64_t)(splitmix64(seed) % 8), splitmix64(seed) % 3 == 0,
                            (unsigned)(splitmix64(seed) % 20));
            /* Also two of one pack and time that differ, as no client writes them. */
            const uint32_t more = (uint32_t)(splitmix64(seed) % 3) * 100;
            x[n].length += more;
            x[n].packed += more;
            model_add(m, &x[n++], k);
        }
        write_table(r, x, n, 1 + t % 2, NULL);
    }
}

struct seen {
    const struct model *m;
    struct index_entry last;
    unsigned n;
    int prefix;
    bool found[IDS];
    unsigned stop_after;
};

static int see(const struct index_entry *x, void *arg)
{
    struct seen *s = arg;
    assert_true(s->n == 0 || content_id_cmp(&s->last.id, &x->id) < 0);
    s->last = *x;
    s->n++;
    uint64_t k = x->offset;
    assert_true(k < IDS);
    assert_false(s->found[k]);
    s->found[k] = true;
    assert_true(model_exists(s->m, k));
    assert_same(x, &s->m->winner[k]);
    return s->n == s->stop_after ? 77 : 0;
}

static void check_model(struct repo *r, const struct model *m)
{
    struct err e = ERR_INIT;
    for (uint64_t k = 0; k < IDS + 50; k++) {
        struct content_id id = id_of(k);
        struct index_entry got;
        int rc = index_set_find(r->x, &id, &got, &e);
        if (k >= IDS || !model_exists(m, k)) {
            assert_int_equal(rc, -ENOENT);
            continue;
        }
        assert_ok(rc, &e);
        assert_same(&got, &m->winner[k]);
    }
    static const int prefixes[] = {-1, 0, 'k', 'm', 'x', 'g', 'z'};
    for (unsigned p = 0; p < sizeof prefixes / sizeof prefixes[0]; p++) {
        struct seen s = {.m = m, .prefix = prefixes[p]};
        assert_ok(index_set_each(r->x, prefixes[p], see, &s, &e), &e);
        unsigned want = 0;
        for (uint64_t k = 0; k < IDS; k++)
            want += model_exists(m, k) && (prefixes[p] < 0 || id_of(k).prefix == prefixes[p]);
        assert_int_equal(s.n, want);
        if (want > 3) {
            struct seen some = {.m = m, .stop_after = 3};
            assert_int_equal(index_set_each(r->x, prefixes[p], see, &some, &e), 77);
            assert_int_equal(some.n, 3);
        }
    }
}

static void against_model(unsigned version, unsigned ecc)
{
    struct repo r;
    struct err e = ERR_INIT;
    make_repo(&r, version, ecc);
    static struct model m;
    memset(&m, 0, sizeof m);
    m.watermark = INT64_MIN;
    uint64_t seed = 5 + version;
    assert_ok(open_set(&r, 1 << 24, 0, &e), &e);
    check_model(&r, &m);                                      /* an empty repository */
    static const unsigned more[] = {10, 10, 10, 10, 90, 330}; /* up to so many that entries are decoded ahead */
    for (unsigned turn = 0, tables = 0; turn < sizeof more / sizeof *more; turn++) {
        random_tables(&r, &m, more[turn], &seed);
        tables += more[turn];
        assert_ok(index_set_refresh(r.x, &e), &e);
        check_model(&r, &m);
        struct index_set_stats st;
        index_set_stats(r.x, &st);
        assert_int_equal(st.blobs, tables);
        assert_int_equal(st.watermark, INT64_MIN);
    }
    for (int64_t w = 1001; version > 1 && w < 1008; w += 3) {
        char name[32];
        snprintf(name, sizeof name, "xw%lld", (long long)w);
        assert_ok(blobs_put(r.b, name, "deletion-watermark", 18, &e), &e);
        assert_ok(index_set_refresh(r.x, &e), &e);
        m.watermark = w;
        check_model(&r, &m);
    }
    /* Opened again it comes from the cache alone. */
    close_set(&r);
    struct blob_stats before, after;
    blobs_stats(r.b, &before);
    assert_ok(open_set(&r, 1 << 24, 0, &e), &e);
    blobs_stats(r.b, &after);
    assert_int_equal(after.get_bytes, before.get_bytes);
    check_model(&r, &m);
    drop_repo(&r);
}

static void model_epochs(void **state)
{
    (void)state;
    against_model(3, 0);
}

static void model_ecc(void **state)
{
    (void)state;
    against_model(3, 10);
}

static void model_without_epochs(void **state)
{
    (void)state;
    against_model(1, 0);
}

/* ---- additions -------------------------------------------------------------------------------------------------- */

static void additions(void **state)
{
    (void)state;
    struct repo r;
    struct err e = ERR_INIT;
    make_repo(&r, 3, 0);
    assert_ok(open_set(&r, 1 << 24, 0, &e), &e);
    int64_t loaded = index_set_loaded_ns(r.x);
    assert_true(loaded > INT64_C(1600000000000000000));
    for (uint64_t k = 0; k < 20; k++) {
        struct index_entry x = entry_of(k, 5000, false, 1), got;
        CLEANUP_FREE uint8_t *data = NULL;
        struct index_shard_data d = {.len = 0};
        char name[1][BLOB_NAME_MAX + 1];
        assert_int_equal(index_set_find(r.x, &x.id, &got, &e), -ENOENT);
        assert_ok(index_build(&x, 1, 2, false, &data, &d.len, &e), &e);
        d.data = data;
        assert_ok(epoch_write_indexes(r.b, r.s, r.f, session, &d, 1, name, &e), &e);
        assert_ok(index_set_add(r.x, name[0], data, d.len, &e), &e);
        assert_ok(index_set_add(r.x, name[0], data, d.len, &e), &e); /* twice is once */
        assert_ok(index_set_find(r.x, &x.id, &got, &e), &e);
        assert_same(&got, &x);
    }
    assert_int_equal(index_set_loaded_ns(r.x), loaded);
    struct index_set_stats st;
    index_set_stats(r.x, &st);
    assert_int_equal(st.blobs, 20);
    assert_int_equal(st.entries, 20);
    struct blob_stats before, after;
    blobs_stats(r.b, &before);
    assert_ok(index_set_refresh(r.x, &e), &e);
    blobs_stats(r.b, &after);
    assert_int_equal(after.gets, before.gets); /* all known */
    index_set_stats(r.x, &st);
    assert_int_equal(st.blobs, 20);
    assert_true(index_set_add(r.x, "../escape", (const uint8_t *)"x", 1, &e) < 0);
    assert_true(index_set_add(r.x, "xn0_00000000000000000000000000000000-s1-c1", (const uint8_t *)"junk", 4, &e) < 0);
    assert_int_equal(e.cls, ERR_DAMAGE);
    drop_repo(&r);
}

/* ---- damage ----------------------------------------------------------------------------------------------------- */

static void blob_path(struct repo *r, const char *name, char out[512])
{
    snprintf(out, 512, "%s/%c/%.3s/%s.f", r->store, name[0], name + 1, name + 4);
}

static void flip(const char *path, off_t at, int whence)
{
    CLEANUP_CLOSE int fd = open(path, O_RDWR);
    uint8_t c;
    assert_true(fd >= 0);
    off_t pos = lseek(fd, at, whence);
    assert_int_equal(pread(fd, &c, 1, pos), 1);
    c ^= 0x10;
    assert_int_equal(pwrite(fd, &c, 1, pos), 1);
}

static unsigned cache_files(struct repo *r, uint64_t *bytes)
{
    CLEANUP_CLOSEDIR DIR *d = opendir(r->cache);
    unsigned n = 0;
    assert_non_null(d);
    *bytes = 0;
    for (struct dirent *x; (x = readdir(d));) {
        struct stat st;
        assert_int_equal(fstatat(dirfd(d), x->d_name, &st, 0), 0);
        if (!S_ISREG(st.st_mode))
            continue;
        assert_int_equal(st.st_mode & 0777, 0600);
        *bytes += (uint64_t)st.st_size;
        n++;
    }
    return n;
}

static void damaged_blobs(void **state)
{
    (void)state;
    struct repo r;
    struct err e = ERR_INIT;
    make_repo(&r, 3, 0);
    char name[3][BLOB_NAME_MAX + 1], path[512];
    for (uint64_t k = 0; k < 3; k++) {
        struct index_entry x = entry_of(k, 1, false, 1);
        write_table(&r, &x, 1, 2, name[k]);
    }
    uint64_t bytes;
    blob_path(&r, name[1], path);
    for (off_t at = 0; at < 60; at += 7) {
        flip(path, at, SEEK_SET);
        e = (struct err)ERR_INIT;
        assert_int_equal(open_set(&r, 1 << 24, 0, &e), -EBADMSG);
        assert_int_equal(e.cls, ERR_DAMAGE);
        assert_non_null(strstr(e.msg, name[1]));
        flip(path, at, SEEK_SET);
    }
    assert_int_equal(truncate(path, 20), 0);
    assert_int_equal(open_set(&r, 1 << 24, 0, &e), -EBADMSG);
    assert_non_null(strstr(e.msg, name[1]));
    assert_true(cache_files(&r, &bytes) <= 2); /* nothing half-made stays */
    assert_int_equal(unlink(path), 0);
    assert_ok(open_set(&r, 1 << 24, 0, &e), &e);

    /* A blob that decrypts but is no table. */
    char bad[BLOB_NAME_MAX + 1];
    CLEANUP_FREE uint8_t *sealed = NULL;
    size_t len;
    assert_ok(named_seal(r.s, "", "s9-c1", "not an index", 12, bad, &sealed, &len, &e), &e);
    memmove(bad + 4, bad, strlen(bad) + 1);
    memcpy(bad, "xn0_", 4);
    assert_ok(blobs_put(r.b, bad, sealed, len, &e), &e);
    assert_int_equal(index_set_refresh(r.x, &e), -EBADMSG);
    assert_non_null(strstr(e.msg, bad));
    /* The old view stays in use. */
    struct content_id id = id_of(0);
    struct index_entry got;
    assert_ok(index_set_find(r.x, &id, &got, &e), &e);
    drop_repo(&r);
}

static void mended_blob(void **state)
{
    (void)state;
    struct repo r;
    struct err e = ERR_INIT;
    make_repo(&r, 3, 10);
    struct index_entry x = entry_of(1, 1, false, 1), got;
    char name[BLOB_NAME_MAX + 1], path[512];
    write_table(&r, &x, 1, 2, name);
    blob_path(&r, name, path);
    flip(path, 40, SEEK_SET);
    assert_ok(open_set(&r, 1 << 24, 0, &e), &e);
    assert_ok(index_set_find(r.x, &x.id, &got, &e), &e);
    assert_same(&got, &x);
    drop_repo(&r);
}

/* A blob that is listed and gone when it is read. */
static struct {
    struct repo *r;
    char name[BLOB_NAME_MAX + 1];
    uint8_t *data;
    size_t len;
    unsigned sleeps, fetches, comes_back;
    bool stays_away;
} gone;

static void gone_step(void *arg, const char *step)
{
    (void)arg;
    if (strcmp(step, "fetch") == 0) {
        gone.fetches++;
        assert_int_equal(blobs_delete(gone.r->b, gone.name, NULL), 0);
    }
}

static void gone_sleep(void *arg, int64_t d)
{
    (void)arg;
    assert_true(d > 0 && d <= INT64_C(2000000000));
    gone.sleeps++;
    if (!gone.stays_away)
        assert_int_equal(blobs_put(gone.r->b, gone.name, gone.data, gone.len, NULL), 0);
}

static void vanishing_blobs(void **state)
{
    (void)state;
    static const struct epoch_hooks hooks = {NULL, gone_sleep, gone_step, NULL};
    struct repo r;
    struct err e = ERR_INIT;
    make_repo(&r, 3, 0);
    struct index_entry x = entry_of(1, 1, false, 1);
    memset(&gone, 0, sizeof gone);
    gone.r = &r;
    write_table(&r, &x, 1, 2, gone.name);
    assert_ok(blobs_get(r.b, gone.name, 1 << 20, &gone.data, &gone.len, &e), &e);
    epoch_set_hooks(&hooks);
    /* Listed each time, never there: ten listings, then damage with its name. */
    assert_int_equal(open_set(&r, 1 << 24, 0, &e), -ENOENT);
    assert_int_equal(e.cls, ERR_DAMAGE);
    assert_non_null(strstr(e.msg, gone.name));
    assert_int_equal(gone.sleeps, 9);
    assert_int_equal(gone.fetches, 10);
    /* Compacted away in between: not listed any more. */
    assert_int_equal(blobs_put(r.b, gone.name, gone.data, gone.len, NULL), 0);
    gone.stays_away = true;
    assert_ok(open_set(&r, 1 << 24, 0, &e), &e);
    struct index_set_stats st;
    index_set_stats(r.x, &st);
    assert_int_equal(st.blobs, 0);
    free(gone.data);
    drop_repo(&r);
}

static void cache_heals(void **state)
{
    (void)state;
    struct repo r;
    struct err e = ERR_INIT;
    make_repo(&r, 3, 0);
    enum { N = 3000 };
    CLEANUP_FREE struct index_entry *x = calloc(N, sizeof *x);
    assert_non_null(x);
    for (uint64_t k = 0; k < N; k++)
        x[k] = entry_of(k, 1, false, (unsigned)k / 10);
    char name[BLOB_NAME_MAX + 1], path[512], other[BLOB_NAME_MAX + 1];
    write_table(&r, x, N, 2, name);
    struct index_entry small = entry_of(7, 2, false, 9);
    write_table(&r, &small, 1, 2, other);
    assert_ok(open_set(&r, 1 << 24, 0, &e), &e);
    close_set(&r);
    snprintf(path, sizeof path, "%s/%s", r.cache, name);
    struct stat good, st;
    assert_int_equal(stat(path, &good), 0);
    for (unsigned i = 0; i < 14; i++) {
        switch (i) {
        case 0:
            flip(path, 0, SEEK_SET);
            break;
        case 1:
            flip(path, good.st_size / 2, SEEK_SET);
            break;
        case 2: /* checksum, lengths, magic */
        case 3:
        case 4:
        case 12:
            flip(path, -1 - 8 * (off_t)(i == 12 ? 3 : i - 2), SEEK_END);
            break;
        case 5:
            assert_int_equal(truncate(path, good.st_size - 1), 0);
            break;
        case 6:
            assert_int_equal(truncate(path, 10), 0);
            break;
        case 7:
            assert_int_equal(truncate(path, 0), 0);
            break;
        case 8:
            assert_int_equal(truncate(path, good.st_size + 100), 0);
            break;
        case 9: { /* another blob's file under this name */
            char from[512];
            snprintf(from, sizeof from, "%s/%s", r.cache, other);
            assert_int_equal(unlink(path), 0);
            assert_int_equal(link(from, path), 0);
            break;
        }
        case 10:
            assert_int_equal(unlink(path), 0);
            break;
        case 13: /* in the filter, at the end of the file */
            flip(path, -100, SEEK_END);
            break;
        case 11: { /* what is in the way is no file of ours */
            assert_int_equal(unlink(path), 0);
            assert_int_equal(symlink("/dev/null", path), 0);
            break;
        }
        }
        struct blob_stats before, after;
        blobs_stats(r.b, &before);
        assert_ok(open_set(&r, 1 << 24, 0, &e), &e);
        blobs_stats(r.b, &after);
        assert_true(after.get_bytes > before.get_bytes);
        for (uint64_t k = 0; k < N; k += 97) {
            struct index_entry got;
            assert_ok(index_set_find(r.x, &x[k].id, &got, &e), &e);
            assert_true(content_id_equal(&got.id, &x[k].id));
        }
        close_set(&r);
        assert_int_equal(lstat(path, &st), 0);
        assert_int_equal(st.st_size, good.st_size);
        assert_true(S_ISREG(st.st_mode));
    }
    drop_repo(&r);
}

/* ---- cap of the cache ------------------------------------------------------------------------------------------- */

static int64_t in_two_minutes(void *arg)
{
    (void)arg;
    return ((int64_t)time(NULL) + 120) * 1000000000;
}

static void cache_cap(void **state)
{
    (void)state;
    struct repo r;
    struct err e = ERR_INIT;
    make_repo(&r, 3, 0);
    char name[6][BLOB_NAME_MAX + 1], path[512];
    uint64_t bytes;
    for (uint64_t k = 0; k < 6; k++) {
        struct index_entry x = entry_of(k, 1, false, 1);
        write_table(&r, &x, 1, 2, name[k]);
    }
    assert_ok(open_set(&r, 1 << 24, 0, &e), &e);
    assert_int_equal(cache_files(&r, &bytes), 6);
    uint64_t each = bytes / 6;
    struct index_set_stats st;
    index_set_stats(r.x, &st);
    assert_int_equal(st.cache_bytes, bytes);
    close_set(&r);

    /* Foreign files are not ours to count or delete; half-made ones of the dead are. */
    snprintf(path, sizeof path, "%s/README", r.cache);
    CLEANUP_CLOSE int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);

    assert_int_equal(open_set(&r, 6 * each - 1, 0, &e), -ENOSPC);
    assert_int_equal(e.cls, ERR_NO_SPACE);
    char number[32];
    snprintf(number, sizeof number, "%llu bytes", (unsigned long long)(6 * each));
    assert_non_null(strstr(e.msg, number));
    snprintf(number, sizeof number, "%llu", (unsigned long long)(6 * each - 1));
    assert_non_null(strstr(e.msg, number));
    assert_non_null(strstr(e.hint, "--cache-size"));
    assert_ok(open_set(&r, 6 * each, 0, &e), &e);

    /* Three blobs leave the view: their files stay while there is room, and then the oldest goes first. */
    for (unsigned k = 0; k < 3; k++) {
        assert_ok(blobs_delete(r.b, name[k], &e), &e);
        snprintf(path, sizeof path, "%s/%s", r.cache, name[k]);
        struct timespec t[2] = {{.tv_sec = 1000 + 10 * (k == 1 ? -5 : (int)k)},
                                {.tv_sec = 1000 + 10 * (k == 1 ? -5 : (int)k)}};
        assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
    }
    assert_ok(index_set_refresh(r.x, &e), &e);
    assert_int_equal(cache_files(&r, &bytes), 7);
    index_set_stats(r.x, &st);
    assert_int_equal(st.blobs, 3);
    struct index_entry x = entry_of(10, 1, false, 1);
    write_table(&r, &x, 1, 2, NULL);
    assert_ok(index_set_refresh(r.x, &e), &e);
    assert_int_equal(cache_files(&r, &bytes), 7);
    snprintf(path, sizeof path, "%s/%s", r.cache, name[1]);
    assert_int_equal(access(path, F_OK), -1);
    snprintf(path, sizeof path, "%s/%s", r.cache, name[0]);
    assert_int_equal(access(path, F_OK), 0);
    close_set(&r);

    assert_ok(open_set(&r, 4 * each, 0, &e), &e);
    assert_int_equal(cache_files(&r, &bytes), 5);
    assert_int_equal(bytes, 4 * each + (1 << 20));
    /* An addition beyond the cap is refused as well. */
    struct index_entry y = entry_of(11, 1, false, 1);
    CLEANUP_FREE uint8_t *data = NULL;
    size_t len;
    assert_ok(index_build(&y, 1, 2, false, &data, &len, &e), &e);
    assert_int_equal(index_set_add(r.x, "xn0_00000000000000000000000000000000-s1-c1", data, len, &e), -ENOSPC);
    close_set(&r);

    /* A file that a killed process left, and one that a living one is making. */
    static const struct epoch_hooks later = {.now_ns = in_two_minutes};
    char dead[512], live[512];
    snprintf(dead, sizeof dead, "%s/.making-999999-0", r.cache);
    snprintf(live, sizeof live, "%s/.making-999999-1", r.cache);
    CLEANUP_CLOSE int dead_fd = open(dead, O_CREAT | O_WRONLY, 0600);
    CLEANUP_CLOSE int live_fd = open(live, O_CREAT | O_WRONLY, 0600);
    assert_true(dead_fd >= 0);
    assert_int_equal(flock(live_fd, LOCK_EX), 0);
    assert_ok(open_set(&r, 1 << 24, 0, &e), &e);
    assert_int_equal(access(dead, F_OK), 0); /* too young to tell */
    close_set(&r);
    epoch_set_hooks(&later);
    assert_ok(open_set(&r, 1 << 24, 0, &e), &e);
    assert_int_equal(access(dead, F_OK), -1);
    assert_int_equal(access(live, F_OK), 0);
    drop_repo(&r);
}

/* ---- threads ---------------------------------------------------------------------------------------------------- */

struct threads {
    struct repo *r;
    atomic_bool stop;
    atomic_uint looked, walked;
};

static int count(const struct index_entry *x, void *arg)
{
    (void)x;
    ++*(unsigned *)arg;
    return 0;
}

static void *look(void *arg)
{
    struct threads *t = arg;
    struct err e = ERR_INIT;
    for (uint64_t k = 0; !atomic_load(&t->stop); k = (k + 1) % 100) {
        struct content_id id = id_of(k);
        struct index_entry got;
        assert_ok(index_set_find(t->r->x, &id, &got, &e), &e);
        assert_int_equal(got.offset, k);
        atomic_fetch_add(&t->looked, 1);
        if (k == 50) {
            unsigned n = 0;
            assert_ok(index_set_each(t->r->x, -1, count, &n, &e), &e);
            assert_true(n >= 100);
            atomic_fetch_add(&t->walked, 1);
        }
    }
    return NULL;
}

static void refresh_under_lookups(void **state)
{
    (void)state;
    struct repo r;
    struct err e = ERR_INIT;
    make_repo(&r, 3, 0);
    struct index_entry x[100];
    char name[2][BLOB_NAME_MAX + 1];
    for (uint64_t k = 0; k < 100; k++)
        x[k] = entry_of(k, 1, false, 1);
    write_table(&r, x, 100, 2, name[0]);
    assert_ok(open_set(&r, 1 << 24, 1, &e), &e); /* the smallest page budget: pages are given back all the time */
    struct threads t = {.r = &r};
    pthread_t thread[3];
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, look, &t), 0);
    /* The same contents move from blob to blob, with others that come and go. */
    for (unsigned turn = 1; turn < 40; turn++) {
        struct index_entry y[120];
        for (uint64_t k = 0; k < 120; k++)
            y[k] = entry_of(k, 1 + turn, false, turn);
        write_table(&r, y, 120, 1 + turn % 2, name[turn % 2]);
        if (turn % 3)
            assert_ok(index_set_refresh(r.x, &e), &e);
        assert_ok(blobs_delete(r.b, name[(turn + 1) % 2], &e), &e);
        assert_ok(index_set_refresh(r.x, &e), &e);
        struct index_set_stats st;
        index_set_stats(r.x, &st);
        assert_true(st.blobs >= 1);
    }
    while (atomic_load(&t.looked) < 1000 || atomic_load(&t.walked) < 3)
        usleep(1000);
    atomic_store(&t.stop, true);
    for (unsigned i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    drop_repo(&r);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static uint64_t status_kib(const char *what)
{
    CLEANUP_FCLOSE FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, what, strlen(what)) == 0)
            return strtoull(line + strlen(what) + 1, NULL, 10);
    fail_msg("no %s", what);
    return 0;
}

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || HAS_FEATURE(address_sanitizer) ||                 \
    HAS_FEATURE(thread_sanitizer)
#define OWN_MEMORY 0 /* a sanitizer's shadow memory drowns ours */
#else
#define OWN_MEMORY 1
#endif

struct watch {
    uint64_t n, most_file, most_anon;
};

static int watch_one(const struct index_entry *x, void *arg)
{
    (void)x;
    struct watch *w = arg;
    if (++w->n % 20000 == 0) {
        uint64_t file = status_kib("RssFile:"), anon = status_kib("RssAnon:");
        w->most_file = file > w->most_file ? file : w->most_file;
        w->most_anon = anon > w->most_anon ? anon : w->most_anon;
    }
    return 0;
}

/* Writes of this length, and a disk that reads ahead far, leave large folios in the page cache, each of which a fault
 * may map as a whole. */
#define FOLIO ((size_t)256 << 10)

static int write_again(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)ftw;
    const size_t len = (size_t)st->st_size;
    CLEANUP_CLOSE int fd = type == FTW_F ? open(path, O_RDWR | O_CLOEXEC) : -1;
    CLEANUP_FREE uint8_t *all = malloc(len + 1);
    if (fd < 0)
        return 0;
    if (!all || pread(fd, all, len, 0) != (ssize_t)len || fsync(fd) < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
        return -1;
    for (size_t at = 0; at < len; at += FOLIO) {
        const size_t n = len - at < FOLIO ? len - at : FOLIO;
        if (pwrite(fd, all + at, n, (off_t)at) != (ssize_t)n)
            return -1;
    }
    return 0;
}

static uint64_t most_at_link;

static void look_at_link(void *arg, const char *step)
{
    (void)arg;
    const uint64_t now = resident_shared();
    if (strcmp(step, "link") == 0 && now > most_at_link)
        most_at_link = now;
}

/* Far more index than may be resident: look-ups and a walk stay below the cap, and the heap does not grow. */
static void resident_pages(void **state)
{
    (void)state;
    struct repo r;
    struct err e = ERR_INIT;
    make_repo(&r, 3, 0);
    enum { TABLES = 2, N = 240000 };
    struct index_entry *x = calloc(N, sizeof *x);
    assert_non_null(x);
    for (unsigned t = 0; t < TABLES; t++) {
        for (uint64_t k = 0; k < N; k++)
            x[k] = entry_of(t * N + k, 1, false, (unsigned)k / 10);
        write_table(&r, x, N, 2, NULL);
    }
    free(x);
    /* Cold: makes the cache. What a table was decrypted, checked and filtered in is not resident any more. */
    static const struct epoch_hooks hooks = {.step = look_at_link};
    const uint64_t before = resident_shared();
    epoch_set_hooks(&hooks);
    assert_ok(open_set(&r, 1 << 30, 0, &e), &e);
    epoch_set_hooks(NULL);
    close_set(&r);
    print_message("resident: %llu KiB behind the making of a table\n",
                  (unsigned long long)(most_at_link - before) / 1024);
    assert_true(most_at_link > 0 && most_at_link < before + (5 << 20));
    assert_int_equal(nftw(r.cache, write_again, 16, FTW_PHYS), 0);
    const uint64_t cap = 4 << 20, slack_kib = 2048;
    uint64_t file0 = status_kib("RssFile:"), anon0 = status_kib("RssAnon:");
    assert_ok(open_set(&r, 1 << 30, cap, &e), &e);
    struct index_set_stats st;
    index_set_stats(r.x, &st);
    assert_true(st.mapped_bytes > 4 * cap);
    assert_int_equal(st.entries, TABLES * N);
    struct watch w = {.n = 0};
    uint64_t seed = 1;
    for (unsigned i = 0; i < 6000; i++) {
        struct content_id id = id_of(splitmix64(&seed) % (TABLES * N));
        struct index_entry got;
        assert_ok(index_set_find(r.x, &id, &got, &e), &e);
        if (i % 100 == 0) {
            w.n = 19999;
            watch_one(&got, &w);
        }
    }
    w.n = 0;
    assert_ok(index_set_each(r.x, -1, watch_one, &w, &e), &e);
    assert_int_equal(w.n, TABLES * N);
    if (OWN_MEMORY && w.most_file > file0 + cap / 1024 + slack_kib)
        fail_msg("%llu KiB of file pages resident, %llu before", (unsigned long long)w.most_file,
                 (unsigned long long)file0);
    if (OWN_MEMORY && w.most_anon > anon0 + slack_kib)
        fail_msg("%llu KiB of heap, %llu before", (unsigned long long)w.most_anon, (unsigned long long)anon0);
    print_message("resident: %llu KiB of a cap of %llu, index %llu\n", (unsigned long long)(w.most_file - file0),
                  (unsigned long long)(cap / 1024), (unsigned long long)(st.mapped_bytes / 1024));
    drop_repo(&r);
}

/* Of a table that only its filter was read of, no more than that stays. */
static void pages_beside_a_filter(void **state)
{
    (void)state;
    struct repo r;
    struct err e = ERR_INIT;
    make_repo(&r, 3, 0);
    enum { N = 65000 }; /* the filter begins within a folio */
    struct index_entry *x = calloc(N, sizeof *x);
    assert_non_null(x);
    for (uint64_t k = 0; k < N; k++)
        x[k] = entry_of(k, 1, false, (unsigned)k / 10);
    struct blob_info b = {.length = 0};
    write_table(&r, x, N, 2, b.name);
    free(x);
    assert_ok(open_set(&r, 1 << 30, 0, &e), &e);
    close_set(&r);
    assert_int_equal(nftw(r.cache, write_again, 16, FTW_PHYS), 0);
    struct index_cache c;
    assert_ok(index_cache_open(&c, r.cache, 1 << 30, r.b, r.s, false, &e), &e);
    /* A folio is mapped as a whole where it does not lie across a border of 2 MiB: that of some of the maps does not.
     */
    struct index_map *m[16];
    for (size_t i = 0; i < sizeof m / sizeof *m; i++) {
        assert_ok(index_cache_get(&m[i], &c, &b, &e), &e);
        index_map_drop(m[i], false);
    }
    const uint64_t before = resident_shared();
    for (size_t i = 0; i < sizeof m / sizeof *m; i++) {
        assert_true(m[i]->filter_len > 0);
        for (uint64_t k = 0; k < 1000; k++) {
            const struct content_id id = id_of(k);
            const void *at;
            assert_true(index_map_may_have(m[i], index_key_hash(&id), &at));
        }
    }
    const uint64_t filters = sizeof m / sizeof *m * m[0]->filter_len, read = resident_shared() - before;
    for (size_t i = 0; i < sizeof m / sizeof *m; i++)
        index_map_drop(m[i], true);
    const uint64_t kept = resident_shared() - before;
    print_message("resident: %llu KiB, then %llu, filters %llu\n", (unsigned long long)read / 1024,
                  (unsigned long long)kept / 1024, (unsigned long long)filters / 1024);
    assert_true(read >= filters / 2);
    assert_true(kept <= filters + sizeof m / sizeof *m * 8192);
    for (size_t i = 0; i < sizeof m / sizeof *m; i++)
        index_map_free(m[i]);
    index_cache_close(&c);
    drop_repo(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_epochs),
        cmocka_unit_test(model_ecc),
        cmocka_unit_test(model_without_epochs),
        cmocka_unit_test(additions),
        cmocka_unit_test(damaged_blobs),
        cmocka_unit_test(mended_blob),
        cmocka_unit_test(vanishing_blobs),
        cmocka_unit_test(cache_heals),
        cmocka_unit_test(cache_cap),
        cmocka_unit_test(refresh_under_lookups),
        cmocka_unit_test(resident_pages),
        cmocka_unit_test(pages_beside_a_filter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
