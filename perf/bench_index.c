/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench_index - how fast the index of a repository opens, cold and warm, and answers
 *
 *   bench_index [--contents N]... [--blobs M] [--mapped-cap BYTES] [--seconds S] [--dir DIR] [--json]
 *
 * For each N (default 10^4, 10^5, 10^6, 10^7) a repository is made in a directory of its own below DIR (default $TMPDIR
 * or /tmp) with N contents in M index blobs (default: one for each 500,000), as tests/tools/make_index does. "cold" is
 * the first opening, which decrypts; "warm" the best of three after it, which checks and maps. Look-ups are random:
 * known ids, and ids that are not there. Memory is the largest growth since before a warm opening, sampled all the
 * while.
 */
#include "base/bytes.h"
#include "base/cleanup.h"
#include "daemon/bench/bench.h"
#include "repo/format.h"
#include "repo/indexset.h"

#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct settings {
    uint64_t contents[16], blobs, mapped_cap;
    unsigned n;
    double seconds;
    const char *dir;
    bool json;
};

struct result {
    uint64_t contents, blobs, bytes, file_kib, anon_kib;
    double make, cold, warm, hits, misses, walk;
};

static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t status_kib(const char *what)
{
    CLEANUP_FCLOSE FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, what, strlen(what)) == 0)
            return strtoull(line + strlen(what) + 1, NULL, 10);
    return 0;
}

static struct content_id id_of(uint64_t i)
{
    struct content_id id = {.len = 16};
    put_le64(id.hash, splitmix64(&i));
    put_le64(id.hash + 8, splitmix64(&i));
    return id;
}

struct place {
    char dir[512], store[600], cache[600];
    struct blobs *b;
    struct repo_format *f;
    struct sealer *s;
};

static int make_blob(const struct place *p, uint64_t contents, uint64_t blobs, uint64_t nth, struct index_entry *x,
                     struct err *e)
{
    size_t n = 0;
    for (uint64_t i = nth; i < contents; i += blobs, n++) {
        x[n] = (struct index_entry){
            .id = id_of(i), .offset = 32, .packed = 128, .length = 100, .time = 1700000000, .format_version = 3};
        snprintf(x[n].pack, sizeof x[n].pack, "p%016llx%016llx-s0000000000000000144", (unsigned long long)nth,
                 (unsigned long long)n / 1000);
    }
    n = index_sort(x, n);
    struct index_shard_data d = {.len = 0};
    CLEANUP_FREE uint8_t *table = NULL;
    int r = n ? index_build(x, n, 2, false, &table, &d.len, e) : 0;
    if (r < 0 || !n)
        return r;
    d.data = table;
    char name[1][BLOB_NAME_MAX + 1];
    return epoch_write_indexes(p->b, p->s, p->f, "s0000000000000000144", &d, 1, name, e);
}

static int make_repository(struct place *p, uint64_t contents, uint64_t blobs, struct err *e)
{
    struct format_create c = {.key_algo = "pbkdf2-sha256-600000"};
    int r = blobs_open_dir(&p->b, p->store, BLOBS_CREATE, NULL, 0, e);
    if (r == 0)
        r = format_create(p->b, &c, "password", e);
    if (r == 0)
        r = format_load(&p->f, p->b, "password", e);
    if (r == 0)
        r = sealer_new(&p->s, p->f, e);
    if (r < 0)
        return r;
    CLEANUP_FREE struct index_entry *x = malloc((size_t)(contents / blobs + 1) * sizeof *x);
    if (!x)
        return err_nomem(e);
    for (uint64_t nth = 0; r == 0 && nth < blobs; nth++)
        r = make_blob(p, contents, blobs, nth, x, e);
    return r;
}

/* The most that has been seen. */
static void sample_memory(struct result *res)
{
    uint64_t file = status_kib("RssFile:"), anon = status_kib("RssAnon:");
    res->file_kib = file > res->file_kib ? file : res->file_kib;
    res->anon_kib = anon > res->anon_kib ? anon : res->anon_kib;
}

/* Look-ups per second of ids first, first + 1, ... in random order. */
static int lookups(struct index_set *x, uint64_t first, double duration, bool there, double *ret, struct result *res,
                   struct err *e)
{
    uint64_t seed = first + 1, done = 0, n = res->contents;
    double from = bench_wall(), now = from;
    while (now - from < duration) {
        for (unsigned i = 0; i < 256; i++, done++) {
            struct content_id id = id_of(first + splitmix64(&seed) % n);
            struct index_entry got;
            int r = index_set_find(x, &id, &got, e);
            if (r < 0 && r != -ENOENT)
                return r;
            if ((r == 0) != there)
                return err_set(e, ERR_GENERIC, 0, "a look-up gave the wrong answer");
        }
        now = bench_wall();
        if (done % 4096 == 0)
            sample_memory(res);
    }
    *ret = (double)done / (now - from);
    return 0;
}

struct walk {
    uint64_t n;
    struct result *res;
};

static int count_entry(const struct index_entry *x, void *arg)
{
    (void)x;
    struct walk *w = arg;
    if (++w->n % 65536 == 0)
        sample_memory(w->res);
    return 0;
}

static int measure_open(const struct settings *o, const struct place *p, struct index_set **x, double *took,
                        struct err *e)
{
    struct index_set_opts io = {.cache_dir = p->cache, .cache_cap = UINT64_C(64) << 30, .mapped_cap = o->mapped_cap};
    double from = bench_wall();
    int r = index_set_open(x, p->b, p->s, p->f, &io, e);
    *took = bench_wall() - from;
    return r;
}

static int measure(const struct settings *o, const struct place *p, struct result *res, struct err *e)
{
    struct index_set *x = NULL;
    int r = measure_open(o, p, &x, &res->cold, e);
    uint64_t file = 0, anon = 0;
    struct walk w = {.res = res};
    for (unsigned i = 0; r == 0 && i < 3; i++) {
        double took = 0;
        index_set_free(x);
        x = NULL;
        file = status_kib("RssFile:");
        anon = status_kib("RssAnon:");
        r = measure_open(o, p, &x, &took, e);
        if (i == 0 || took < res->warm)
            res->warm = took;
    }
    if (r == 0)
        r = lookups(x, 0, o->seconds, true, &res->hits, res, e);
    if (r == 0)
        r = lookups(x, UINT64_C(1) << 40, o->seconds, false, &res->misses, res, e);
    double from = bench_wall();
    if (r == 0)
        r = index_set_each(x, -1, count_entry, &w, e);
    res->walk = bench_wall() - from;
    if (r == 0) {
        struct index_set_stats st;
        sample_memory(res);
        index_set_stats(x, &st);
        res->bytes = st.mapped_bytes;
        res->blobs = st.blobs;
        res->file_kib -= file < res->file_kib ? file : res->file_kib;
        res->anon_kib -= anon < res->anon_kib ? anon : res->anon_kib;
        if (w.n != res->contents)
            r = err_set(e, ERR_GENERIC, 0, "%llu contents walked, not %llu", (unsigned long long)w.n,
                        (unsigned long long)res->contents);
    }
    index_set_free(x);
    return r;
}

static void print_result(const struct settings *o, const struct result *r)
{
    if (o->json) {
        printf("{\"contents\":%llu,\"blobs\":%llu,\"indexBytes\":%llu,\"makeSeconds\":%.3f,\"coldSeconds\":%.4f,"
               "\"warmSeconds\":%.4f,\"hitsPerSecond\":%.0f,\"missesPerSecond\":%.0f,\"walkSeconds\":%.3f,"
               "\"residentFileKiB\":%llu,\"residentHeapKiB\":%llu}\n",
               (unsigned long long)r->contents, (unsigned long long)r->blobs, (unsigned long long)r->bytes, r->make,
               r->cold, r->warm, r->hits, r->misses, r->walk, (unsigned long long)r->file_kib,
               (unsigned long long)r->anon_kib);
        return;
    }
    printf("%10llu %6llu %8.1f %8.3f %8.4f %10.0f %10.0f %8.2f %9llu %9llu\n", (unsigned long long)r->contents,
           (unsigned long long)r->blobs, (double)r->bytes / 1e6, r->cold, r->warm, r->hits, r->misses, r->walk,
           (unsigned long long)r->file_kib, (unsigned long long)r->anon_kib);
}

static int unlink_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static int run(const struct settings *o, uint64_t contents, struct err *e)
{
    struct place p = {.b = NULL};
    snprintf(p.dir, sizeof p.dir, "%s/bench_index.XXXXXX", o->dir);
    if (!mkdtemp(p.dir))
        return err_set(e, ERR_GENERIC, errno, "cannot make a directory in %s", o->dir);
    snprintf(p.store, sizeof p.store, "%s/store", p.dir);
    snprintf(p.cache, sizeof p.cache, "%s/cache", p.dir);
    struct result res = {.contents = contents};
    uint64_t blobs = o->blobs ? o->blobs : (contents + 499999) / 500000;
    double from = bench_wall();
    int r = make_repository(&p, contents, blobs, e);
    res.make = bench_wall() - from;
    if (r == 0)
        r = measure(o, &p, &res, e);
    if (r == 0)
        print_result(o, &res);
    sealer_free(p.s);
    format_free(p.f);
    blobs_free(p.b);
    nftw(p.dir, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
    return r;
}

static int usage(void)
{
    fputs("usage: bench_index [--contents N]... [--blobs M] [--mapped-cap BYTES] [--seconds S] [--dir DIR] [--json]\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"contents", required_argument, NULL, 'n'},
                                            {"blobs", required_argument, NULL, 'b'},
                                            {"mapped-cap", required_argument, NULL, 'm'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"dir", required_argument, NULL, 'd'},
                                            {"json", no_argument, NULL, 'j'},
                                            {NULL, 0, NULL, 0}};
    const char *tmp = getenv("TMPDIR");
    struct settings o = {.seconds = 2, .dir = tmp ? tmp : "/tmp"};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (c) {
        case 'n':
            if (o.n == sizeof o.contents / sizeof o.contents[0] || !(o.contents[o.n] = strtoull(optarg, NULL, 10)))
                return usage();
            o.n++;
            break;
        case 'b':
            o.blobs = strtoull(optarg, NULL, 10);
            break;
        case 'm':
            o.mapped_cap = strtoull(optarg, NULL, 10);
            break;
        case 's':
            o.seconds = strtod(optarg, NULL);
            break;
        case 'd':
            o.dir = optarg;
            break;
        case 'j':
            o.json = true;
            break;
        default:
            return usage();
        }
    if (optind != argc)
        return usage();
    if (o.n == 0)
        for (uint64_t n = 10000; n <= 10000000; n *= 10)
            o.contents[o.n++] = n;
    if (!o.json)
        printf("%10s %6s %8s %8s %8s %10s %10s %8s %9s %9s\n", "contents", "blobs", "MB", "cold s", "warm s", "hits/s",
               "misses/s", "walk s", "file KiB", "heap KiB");
    for (unsigned i = 0; i < o.n; i++) {
        struct err e = ERR_INIT;
        if (run(&o, o.contents[i], &e) < 0) {
            fprintf(stderr, "bench_index: %s\n", e.msg);
            return e.cls;
        }
        fflush(stdout);
    }
    return 0;
}
