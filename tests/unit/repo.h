/* SPDX-License-Identifier: GPL-2.0-or-later */
/* repo.h - repositories in a directory of their own, contents put into them and read, for the tests of sessions. */
#ifndef SNAPFERRY_TESTS_UNIT_REPO_H
#define SNAPFERRY_TESTS_UNIT_REPO_H

#include "tests/unit/test.h"
#include "tests/unit/wrapped_store.h"
#include "repo/item.h"
#include "repo/pack.h"
#include "repo/session-impl.h"
#include "repo/session-test.h"
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PASSWORD "a test's password"
#define MIB ((size_t)1 << 20)
#define ZSTD 0x1100

static struct err err;

/* ---- places ---- */

static char scratch_dir[256];

static inline int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static inline void remove_tree(const char *path)
{
    nftw(path, remove_one, 32, FTW_DEPTH | FTW_PHYS);
}

static inline int group_setup(void **state)
{
    (void)state;
    /* Much is synced: in memory, if there is a choice. */
    const char *tmp = getenv("TMPDIR");
    tmp = tmp ? tmp : access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(scratch_dir, sizeof scratch_dir, "%s/snapferry-repo-XXXXXX", tmp);
    return mkdtemp(scratch_dir) ? 0 : -1;
}

static inline int group_teardown(void **state)
{
    (void)state;
    remove_tree(scratch_dir);
    return 0;
}

/* A path of its own for each use. */
static inline const char *fresh_path(const char *what)
{
    static char buf[8][512];
    static unsigned turn, number;
    char *p = buf[turn++ % 8];
    snprintf(p, sizeof buf[0], "%s/%s-%d-%u", scratch_dir, what, (int)getpid(), number++);
    return p;
}

struct place {
    char dir[512], cache[512];
    struct wrap_control c;
    struct repo *repo;
};

static inline struct repo *open_repo(const char *dir, const char *cache, struct wrap_control *c)
{
    struct blobs *b;
    struct repo *r;
    struct repo_opts o = {.cache_dir = cache, .username = "tester", .hostname = "here"};
    assert_ok(blobs_open_dir(&b, dir, BLOBS_OPEN, NULL, 0, &err), &err);
    assert_ok(repo_open(&r, c ? wrap_store_new(b, c) : b, PASSWORD, &o, &err), &err);
    return r;
}

static inline void create_repo(const char *dir, const struct format_create *f)
{
    struct blobs *b;
    struct format_create c = *f;
    c.unique_id = test_unique_id;
    assert_ok(blobs_open_dir(&b, dir, BLOBS_CREATE, NULL, 0, &err), &err);
    assert_ok(format_create(b, &c, PASSWORD, &err), &err);
    blobs_free(b);
}

/* The repository of most tests is made once. */
static inline void copy_small_repo(const char *dir)
{
    static char first[512];
    static const char *const names[] = {"kopia.blobcfg", "kopia.repository"};
    struct blobs *from, *to;
    if (!first[0]) {
        snprintf(first, sizeof first, "%s", fresh_path("small"));
        create_repo(first, &(struct format_create){.pack_size = 10 * MIB});
    }
    assert_ok(blobs_open_dir(&from, first, BLOBS_OPEN, NULL, 0, &err), &err);
    assert_ok(blobs_open_dir(&to, dir, BLOBS_CREATE, NULL, 0, &err), &err);
    for (int i = 0; i < 2; i++) {
        CLEANUP_FREE uint8_t *data = NULL;
        size_t len;
        assert_ok(blobs_get(from, names[i], MIB, &data, &len, &err), &err);
        assert_ok(blobs_put(to, names[i], data, len, &err), &err);
    }
    blobs_free(from);
    blobs_free(to);
}

static inline struct place *place_new(const struct format_create *f)
{
    struct place *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->c = (struct wrap_control)WRAP_INIT;
    snprintf(p->dir, sizeof p->dir, "%s", fresh_path("repo"));
    snprintf(p->cache, sizeof p->cache, "%s", fresh_path("cache"));
    if (f)
        create_repo(p->dir, f);
    else
        copy_small_repo(p->dir);
    p->repo = open_repo(p->dir, p->cache, &p->c);
    return p;
}

static inline void place_reopen(struct place *p)
{
    repo_free(p->repo);
    p->repo = open_repo(p->dir, p->cache, &p->c);
}

static inline void place_free(struct place *p)
{
    repo_free(p->repo);
    remove_tree(p->dir);
    remove_tree(p->cache);
    free(p);
}

static inline struct session *begin(struct repo *r, size_t max_pending)
{
    struct session *s;
    struct session_opts o = {.max_pending = max_pending};
    assert_ok(session_new(&s, r, &o, &err), &err);
    return s;
}

static inline int count_one(const struct blob_info *info, void *arg)
{
    (void)info;
    ++*(unsigned *)arg;
    return 0;
}

static inline unsigned count_blobs(struct repo *r, const char *prefix)
{
    unsigned n = 0;
    assert_ok(blobs_list(repo_blobs(r), prefix, count_one, &n, &err), &err);
    return n;
}

static inline unsigned count_packs(struct repo *r)
{
    return count_blobs(r, "p") + count_blobs(r, "q");
}

/* Files in the store's directories that are no blobs: temporary ones that were left behind. */
static unsigned leftovers;
static inline int count_leftover(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    const char *name = path + ftw->base;
    size_t len = strlen(name);
    if (flag == FTW_F && strcmp(name, ".shards") != 0 && (len < 2 || strcmp(name + len - 2, ".f") != 0))
        leftovers++;
    return 0;
}

static inline unsigned count_leftovers(const char *dir)
{
    leftovers = 0;
    nftw(dir, count_leftover, 32, FTW_PHYS);
    return leftovers;
}

static inline unsigned count_records(const struct repo *r)
{
    char path[1024];
    unsigned n = 0;
    snprintf(path, sizeof path, "%s/sessions", repo_cache_dir(r));
    DIR *d = opendir(path);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* ---- contents ---- */

/* Bytes of content number n: incompressible, or lines of text. */
static inline void fill(uint8_t *p, size_t len, uint64_t n, bool text)
{
    uint64_t state = n * 1000003 + 7;
    for (size_t i = 0; i < len; i += 8) {
        uint64_t v = splitmix64(&state);
        char word[20];
        if (text) {
            snprintf(word, sizeof word, "word %02x\n", (unsigned)(v & 0x3f));
            memcpy(&v, word, sizeof v);
        }
        memcpy(p + i, &v, len - i < 8 ? len - i : 8);
    }
}

static inline struct put_scratch *scratch_for(struct repo *r, size_t max)
{
    struct put_scratch *p;
    assert_ok(put_scratch_new(&p, r, ZSTD, max, &err), &err);
    return p;
}

static inline void id_of(struct repo *r, char prefix, const void *data, size_t len, struct content_id *id)
{
    const struct hasher *h = sealer_hasher(repo_sealer(r));
    *id = (struct content_id){.prefix = prefix, .len = (uint8_t)hasher_size(h)};
    hasher_digest(h, data, len, id->hash);
}

/* Puts contents first..first+n-1 of `len` random bytes; returns what failed, or the number that was new. */
static inline int put_range(struct session *s, uint64_t first, unsigned n, size_t len, struct err *e)
{
    struct put_scratch *p = scratch_for(session_repo(s), len);
    uint8_t *data = malloc(len + 8);
    int fresh = 0;
    assert_non_null(data);
    for (unsigned i = 0; i < n && fresh >= 0; i++) {
        struct put_result res;
        struct content_id id;
        fill(data, len, first + i, false);
        id_of(session_repo(s), 0, data, len, &id);
        int rc = session_put(s, p, &id, data, len, 0, &res, e);
        fresh = rc < 0 ? rc : fresh + !res.existed;
    }
    free(data);
    put_scratch_free(p);
    return fresh;
}

/* Found after a refresh of the index, if need be; and once more, with its hash. */
static inline int64_t read_content(struct repo *r, struct content_reader *c, const struct content_id *id, void *out,
                                   size_t cap, struct err *e)
{
    CLEANUP_FREE uint8_t *p = NULL;
    struct index_entry n;
    int64_t rc = content_get(c, id, &p, cap, e);
    if (rc >= 0)
        rc = repo_find(r, id, &n, e);
    return rc < 0 ? rc : content_read_entry(c, &n, NULL, out, cap, true, e);
}

static inline int read_range(struct repo *r, uint64_t first, unsigned n, size_t len, struct err *e)
{
    struct content_reader *c;
    uint8_t *data = malloc(len + 8), *got = malloc(len + 8);
    int64_t rc = 0;
    assert_non_null(data);
    assert_non_null(got);
    assert_ok(content_reader_new(&c, r, &err), &err);
    for (unsigned i = 0; i < n && rc >= 0; i++) {
        struct content_id id;
        fill(data, len, first + i, false);
        id_of(r, 0, data, len, &id);
        rc = read_content(r, c, &id, got, len, e);
        if (rc >= 0) {
            assert_int_equal(rc, len);
            assert_memory_equal(got, data, len);
        }
    }
    content_reader_free(c);
    free(data);
    free(got);
    return rc < 0 ? (int)rc : 0;
}

/* ---- packs ---- */

static inline int check_pack(const struct blob_info *info, void *arg);

struct packs_check {
    struct repo *repo;
    unsigned entries, packs;
};

static inline int check_pack_entry(const struct index_entry *n, void *arg)
{
    struct packs_check *c = arg;
    struct index_entry known;
    assert_ok(repo_find(c->repo, &n->id, &known, &err), &err);
    assert_string_equal(known.pack, n->pack);
    assert_int_equal(known.offset, n->offset);
    assert_int_equal(known.packed, n->packed);
    assert_int_equal(known.time, n->time);
    c->entries++;
    return 0;
}

static inline int check_pack(const struct blob_info *info, void *arg)
{
    struct packs_check *c = arg;
    c->packs++;
    assert_ok(pack_read_local_index(repo_blobs(c->repo), repo_sealer(c->repo), info->name, info->length,
                                    check_pack_entry, c, &err),
              &err);
    return 0;
}

#endif
