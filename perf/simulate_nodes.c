/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * simulate_nodes - the index of one repository that many nodes write to, by days (make simulate-nodes, docs/scale.md)
 *
 *   simulate_nodes [--nodes N] [--contents N] [--changed PERCENT] [--per-pack N] [--flushes N] [--days N] [--dir DIR]
 *                  [--json]
 *
 * Each node has CONTENTS when it begins; each day it looks at the index and stores CHANGED percent anew, in FLUSHES
 * index blobs. The owner does each hour what quick maintenance does with the index, and each day what full maintenance
 * does. What writes, reads, compacts and deletes index blobs is the code of the product, on entries that are made up.
 * The store counts what it is asked, as an object storage would: a list has a request for each 1,000 names. Its clock,
 * and the wall clock of this process, are simulated; durations and CPU time are real. No contents are stored.
 *
 * Of the nodes that read, one is simulated, and a new one at the end.
 */
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/time.h"
#include "repo/blob-ops.h"
#include "repo/epoch-tidy.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 1000           /* names of a list request */
#define BLOB_ENTRIES 500000 /* of an index blob */
#define PUT_PRICE 0.005e-3  /* dollars: what large providers ask for a put or a list, */
#define GET_PRICE 0.0004e-3 /* and for a get or a head */
#define PACKED (4u << 20)
#define BEGIN (INT64_C(1800000000) * NS_PER_S)

/* ---- the clock ---- */

static _Atomic int64_t simulated_ns = BEGIN;

int clock_gettime(clockid_t c, struct timespec *t)
{
    if (c != CLOCK_REALTIME)
        return (int)syscall(SYS_clock_gettime, c, t);
    *t = ns_timespec(simulated_ns);
    return 0;
}

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- the store ---- */

struct tally {
    uint64_t puts, gets, lists, heads, deletes, put_bytes, get_bytes, listed;
};

struct stored {
    char *name;
    uint64_t at, len; /* in the file of all */
    int64_t time_ns;
};

struct store {
    struct blobs b;
    pthread_mutex_t lock;
    int fd; /* without a name; what is deleted leaves a hole */
    uint64_t end;
    struct stored *v; /* by name */
    size_t n, cap;
    struct tally asked; /* since it was last taken */
};

static struct store *store_of(struct blobs *b)
{
    return (struct store *)b;
}

/* The first that is not before `name`. */
static size_t store_place(const struct store *s, const char *name)
{
    size_t low = 0, high = s->n;
    while (low < high) {
        const size_t mid = (low + high) / 2;
        if (strcmp(s->v[mid].name, name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static struct stored *store_find(const struct store *s, const char *name)
{
    const size_t i = store_place(s, name);
    return i < s->n && !strcmp(s->v[i].name, name) ? &s->v[i] : NULL;
}

static void store_free(struct blobs *b)
{
    (void)b; /* of main(), which opens it more than once */
}

static int store_copy(struct store *s, const char *name, uint64_t offset, uint64_t max, struct stored *ret,
                      struct err *e)
{
    pthread_mutex_lock(&s->lock);
    const struct stored *x = store_find(s, name);
    if (x) {
        *ret = *x;
        const uint64_t left = offset < x->len ? x->len - offset : 0;
        s->asked.gets++;
        s->asked.get_bytes += left < max ? left : max;
    }
    pthread_mutex_unlock(&s->lock);
    return x ? 0 : blob_missing(&s->b, name, e);
}

static int store_read(struct blobs *b, const char *name, uint64_t offset, void *dst, size_t len, struct err *e)
{
    struct store *s = store_of(b);
    struct stored x;
    int rc = store_copy(s, name, offset, len, &x, e);
    if (rc < 0)
        return rc;
    if (offset > x.len || len > x.len - offset)
        return err_set(e, ERR_DAMAGE, EBADMSG, "blob %s is too short", name);
    return pread(s->fd, dst, len, (off_t)(x.at + offset)) == (ssize_t)len ? 0 : err_set(e, ERR_GENERIC, errno, "pread");
}

static int store_get(struct blobs *b, const char *name, size_t max, uint8_t **ret, size_t *len, struct err *e)
{
    struct store *s = store_of(b);
    struct stored x;
    int rc = store_copy(s, name, 0, max, &x, e);
    if (rc < 0)
        return rc;
    if (x.len > max)
        return err_set(e, ERR_DAMAGE, EFBIG, "blob %s is too long", name);
    uint8_t *data = malloc(x.len + 1);
    if (!data)
        return err_nomem(e);
    if (pread(s->fd, data, x.len, (off_t)x.at) != (ssize_t)x.len) {
        free(data);
        return err_set(e, ERR_GENERIC, errno, "pread");
    }
    data[x.len] = 0;
    *ret = data;
    *len = x.len;
    return 0;
}

static void info_of(const struct stored *x, struct blob_info *ret)
{
    *ret = (struct blob_info){.length = x->len, .mtime_ns = x->time_ns};
    snprintf(ret->name, sizeof ret->name, "%s", x->name);
}

static int store_stat(struct blobs *b, const char *name, struct blob_info *ret, struct err *e)
{
    struct store *s = store_of(b);
    pthread_mutex_lock(&s->lock);
    const struct stored *x = store_find(s, name);
    s->asked.heads++;
    if (x)
        info_of(x, ret);
    pthread_mutex_unlock(&s->lock);
    return x ? 0 : blob_missing(b, name, e);
}

static int store_insert(struct store *s, size_t at, const char *name, struct err *e)
{
    if (s->n == s->cap) {
        const size_t cap = s->cap ? 2 * s->cap : 4096;
        void *p = reallocarray(s->v, cap, sizeof *s->v);
        if (!p)
            return err_nomem(e);
        s->v = p;
        s->cap = cap;
    }
    char *copy = strdup(name);
    if (!copy)
        return err_nomem(e);
    memmove(&s->v[at + 1], &s->v[at], (s->n++ - at) * sizeof *s->v);
    s->v[at] = (struct stored){.name = copy};
    return 0;
}

static int store_put(struct blobs *b, const char *name, const void *data, size_t len, struct err *e)
{
    struct store *s = store_of(b);
    int rc = 0;
    pthread_mutex_lock(&s->lock);
    const size_t at = store_place(s, name);
    if (at == s->n || strcmp(s->v[at].name, name) != 0)
        rc = store_insert(s, at, name, e);
    if (rc == 0 && pwrite(s->fd, data, len, (off_t)s->end) != (ssize_t)len)
        rc = err_set(e, ERR_NO_SPACE, errno, "cannot write to the file of all blobs");
    if (rc == 0) {
        s->v[at].at = s->end;
        s->v[at].len = len;
        s->v[at].time_ns = now_ns();
        s->end += (len + 4095) & ~UINT64_C(4095);
        s->asked.puts++;
        s->asked.put_bytes += len;
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static int store_del(struct blobs *b, const char *name, struct err *e)
{
    struct store *s = store_of(b);
    (void)e;
    pthread_mutex_lock(&s->lock);
    struct stored *x = store_find(s, name);
    s->asked.deletes++;
    if (x) {
        fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)x->at,
                  (off_t)((x->len + 4095) & ~UINT64_C(4095)));
        free(x->name);
        memmove(x, x + 1, (size_t)(&s->v[--s->n] - x) * sizeof *x);
    }
    pthread_mutex_unlock(&s->lock);
    return 0;
}

static int store_list(struct blobs *b, const char *prefix, blob_list_fn *fn, void *arg, struct err *e)
{
    struct store *s = store_of(b);
    const size_t len = strlen(prefix);
    size_t n = 0, of = 0;
    int rc = 0;
    pthread_mutex_lock(&s->lock);
    for (size_t i = store_place(s, prefix); i + of < s->n && strncmp(s->v[i + of].name, prefix, len) == 0;)
        of++;
    struct blob_info *all = malloc((of + 1) * sizeof *all);
    for (size_t i = store_place(s, prefix); all && n < of; n++)
        info_of(&s->v[i + n], &all[n]);
    s->asked.lists += of / PAGE + 1;
    s->asked.listed += of;
    pthread_mutex_unlock(&s->lock);
    if (!all)
        return err_nomem(e);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = fn(&all[i], arg);
    free(all);
    return rc;
}

static const struct blobs_ops store_ops = {.free = store_free,
                                           .read = store_read,
                                           .get = store_get,
                                           .stat = store_stat,
                                           .put = store_put,
                                           .del = store_del,
                                           .list = store_list};

static struct tally store_asked(struct store *s)
{
    const struct tally t = s->asked;
    memset(&s->asked, 0, sizeof s->asked);
    return t;
}

static void tally_add(struct tally *sum, const struct tally *t)
{
    sum->puts += t->puts;
    sum->gets += t->gets;
    sum->lists += t->lists;
    sum->heads += t->heads;
    sum->deletes += t->deletes;
    sum->put_bytes += t->put_bytes;
    sum->get_bytes += t->get_bytes;
    sum->listed += t->listed;
}

/* ---- the nodes ---- */

struct settings {
    uint64_t nodes, contents, per_pack, flushes, days;
    double changed; /* percent */
    const char *dir;
    bool json;
};

struct part { /* of what is measured */
    struct tally asked;
    double seconds, cpu;
    uint64_t times;
};

struct simulation {
    struct settings set;
    struct store store;
    struct repo_format *f;
    struct sealer *s;
    struct repo *owner;
    struct index_set *reader;
    struct index_entry *x;
    uint64_t made, packs;
    char dir[512];
    struct part writing, reading, hourly, daily; /* of the day */
};

struct stopwatch {
    double wall, cpu;
};
static struct stopwatch watch_start(struct simulation *m)
{
    store_asked(&m->store);
    return (struct stopwatch){mono_s(), cpu_s()};
}
static void watch_stop(struct simulation *m, const struct stopwatch *w, struct part *p)
{
    const struct tally t = store_asked(&m->store);
    p->seconds += mono_s() - w->wall;
    p->cpu += cpu_s() - w->cpu;
    p->times++;
    tally_add(&p->asked, &t);
}

static uint64_t scramble(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* One index blob of n new contents. */
static int flush(struct simulation *m, uint64_t n, struct err *e)
{
    CLEANUP_FREE uint8_t *table = NULL;
    struct index_shard_data d = {.len = 0};
    char name[1][BLOB_NAME_MAX + 1], session[32];
    for (uint64_t i = 0; i < n; i++) {
        struct index_entry *x = &m->x[i];
        const uint64_t in_pack = i % m->set.per_pack;
        m->packs += in_pack == 0;
        *x = (struct index_entry){.id.len = 16,
                                  .offset = (uint32_t)in_pack * (PACKED + 28) + 32,
                                  .packed = PACKED + 28,
                                  .length = PACKED,
                                  .time = (int64_t)(now_ns() / NS_PER_S),
                                  .format_version = 3};
        put_le64(x->id.hash, scramble(++m->made));
        put_le64(x->id.hash + 8, scramble(~m->made));
        snprintf(x->pack, sizeof x->pack, "p%016llx%016llx-s%016llx144", (unsigned long long)scramble(m->packs),
                 (unsigned long long)scramble(~m->packs), (unsigned long long)m->packs);
    }
    int rc = index_build(m->x, index_sort(m->x, n), m->f->index_version, false, &table, &d.len, e);
    if (rc < 0)
        return rc;
    d.data = table;
    snprintf(session, sizeof session, "s%016llx144", (unsigned long long)scramble(m->made ^ 1));
    const struct stopwatch w = watch_start(m);
    rc = epoch_write_indexes(&m->store.b, m->s, m->f, session, &d, 1, name, e);
    watch_stop(m, &w, &m->writing);
    return rc;
}

static int node_writes(struct simulation *m, uint64_t contents, uint64_t flushes, struct err *e)
{
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < flushes; i++) {
        uint64_t n = contents / flushes;
        for (uint64_t part; rc == 0 && n > 0; n -= part) {
            part = n < BLOB_ENTRIES ? n : BLOB_ENTRIES;
            rc = flush(m, part, e);
        }
    }
    return rc;
}

static int owner_tidies(struct simulation *m, bool full, struct err *e)
{
    struct epoch_tidied t = {0};
    const struct stopwatch w = watch_start(m);
    int rc = index_set_refresh(repo_index(m->owner), e);
    if (rc == 0)
        rc = tidy_check(m->owner, e);
    if (rc == 0)
        rc = tidy_single_epochs(m->owner, false, &t, e);
    if (rc == 0)
        rc = tidy_advance(m->owner, false, &t, e);
    if (rc == 0 && full)
        rc = tidy_range(m->owner, false, &t, e);
    if (rc == 0 && full)
        rc = tidy_markers(m->owner, false, &t, e);
    if (rc == 0 && full)
        rc = tidy_superseded(m->owner, false, &t, e);
    watch_stop(m, &w, full ? &m->daily : &m->hourly);
    return rc;
}

static int node_reads(struct simulation *m, struct err *e)
{
    const struct stopwatch w = watch_start(m);
    const int rc = index_set_refresh(m->reader, e);
    watch_stop(m, &w, &m->reading);
    return rc;
}

/* ---- by days ---- */

static double price(const struct tally *t)
{
    return (double)(t->puts + t->lists) * PUT_PRICE + (double)(t->gets + t->heads) * GET_PRICE;
}

static void print_part(const char *name, const struct part *p, bool last)
{
    printf("\"%s\":{\"times\":%llu,\"seconds\":%.3f,\"cpu\":%.3f,\"puts\":%llu,\"putBytes\":%llu,\"gets\":%llu,"
           "\"getBytes\":%llu,\"lists\":%llu,\"listed\":%llu,\"heads\":%llu,\"deletes\":%llu,\"dollars\":%.6f}%s",
           name, (unsigned long long)p->times, p->seconds, p->cpu, (unsigned long long)p->asked.puts,
           (unsigned long long)p->asked.put_bytes, (unsigned long long)p->asked.gets,
           (unsigned long long)p->asked.get_bytes, (unsigned long long)p->asked.lists,
           (unsigned long long)p->asked.listed, (unsigned long long)p->asked.heads,
           (unsigned long long)p->asked.deletes, price(&p->asked), last ? "" : ",");
}

static void print_day(const struct simulation *m, uint64_t day)
{
    struct index_set_stats is;
    index_set_stats(m->reader, &is);
    if (m->set.json) {
        printf("{\"day\":%llu,\"contents\":%llu,\"stored\":%zu,\"blobs\":%llu,\"mappedBytes\":%llu,\"epoch\":%lld,",
               (unsigned long long)day, (unsigned long long)m->made, m->store.n, (unsigned long long)is.blobs,
               (unsigned long long)is.mapped_bytes, (long long)is.write_epoch);
        print_part("writes", &m->writing, false);
        print_part("reader", &m->reading, false);
        print_part("hourly", &m->hourly, false);
        print_part("daily", &m->daily, true);
        puts("}");
    } else {
        const struct part *w = &m->writing, *r = &m->reading;
        printf("%4llu %11llu %7llu %8.1f | %6.2f %6.2f | %7llu %8.1f %5llu %7.2f | %7.2f %7.2f %8.1f %8.1f\n",
               (unsigned long long)day, (unsigned long long)m->made, (unsigned long long)is.blobs,
               (double)is.mapped_bytes / 1048576, (double)w->asked.lists / (double)w->times,
               1e3 * w->seconds / (double)w->times, (unsigned long long)r->asked.gets,
               (double)r->asked.get_bytes / 1048576, (unsigned long long)r->asked.lists, r->seconds,
               m->hourly.seconds + m->daily.seconds, m->hourly.cpu + m->daily.cpu,
               (double)(m->hourly.asked.get_bytes + m->daily.asked.get_bytes) / 1048576,
               (double)(m->hourly.asked.put_bytes + m->daily.asked.put_bytes) / 1048576);
    }
    fflush(stdout);
}

/* The nodes begin in turn, all through the day; the one that is looked at comes last, when the most is new. */
static int one_day(struct simulation *m, uint64_t day, struct err *e)
{
    const struct settings *set = &m->set;
    const uint64_t contents = day ? (uint64_t)((double)set->contents * set->changed / 100) : set->contents;
    uint64_t hour = 0;
    int rc = 0;
    m->writing = m->reading = m->hourly = m->daily = (struct part){.times = 0};
    for (uint64_t n = 0; rc == 0 && n < set->nodes; n++) {
        simulated_ns = BEGIN + (int64_t)day * NS_PER_DAY + (int64_t)(n * (uint64_t)NS_PER_DAY / set->nodes);
        if (n * 24 / set->nodes >= hour) {
            rc = owner_tidies(m, hour == 0, e);
            hour = n * 24 / set->nodes + 1;
        }
        if (rc == 0)
            rc = node_writes(m, contents, day ? set->flushes : 1, e);
    }
    if (rc == 0)
        rc = node_reads(m, e);
    if (rc == 0)
        print_day(m, day);
    return rc;
}

static int open_index(struct simulation *m, const char *cache, struct index_set **ret, struct err *e)
{
    char dir[600];
    snprintf(dir, sizeof dir, "%s/%s", m->dir, cache);
    return index_set_open(ret, &m->store.b, m->s, m->f,
                          &(struct index_set_opts){.cache_dir = dir, .cache_cap = UINT64_MAX}, e);
}

static int new_node(struct simulation *m, struct err *e)
{
    struct index_set *x = NULL;
    struct part p = {.times = 0};
    const struct stopwatch w = watch_start(m);
    int rc = open_index(m, "new", &x, e);
    watch_stop(m, &w, &p);
    index_set_free(x);
    if (rc < 0)
        return rc;
    if (m->set.json) {
        printf("{");
        print_part("newNode", &p, true);
        puts("}");
    } else {
        printf("\nA new node: %llu gets, %llu lists, %.1f MiB, %.1f s (%.1f core-s)\n",
               (unsigned long long)p.asked.gets, (unsigned long long)p.asked.lists, (double)p.asked.get_bytes / 1048576,
               p.seconds, p.cpu);
    }
    return 0;
}

static int simulate(struct simulation *m, struct err *e)
{
    char cache[600];
    snprintf(cache, sizeof cache, "%s/owner", m->dir);
    const struct format_create c = {.key_algo = "pbkdf2-sha256-600000"};
    const struct repo_opts o = {.cache_dir = cache, .cache_cap = UINT64_MAX};
    int rc = format_create(&m->store.b, &c, "password", e);
    if (rc == 0)
        rc = format_load(&m->f, &m->store.b, "password", e);
    if (rc == 0)
        rc = sealer_new(&m->s, m->f, e);
    if (rc == 0)
        rc = repo_open(&m->owner, &m->store.b, "password", &o, e);
    if (rc == 0)
        rc = open_index(m, "reader", &m->reader, e);
    if (rc == 0 && !m->set.json)
        puts("                            MiB |  a write:     | the node that reads:          | the owner, all day:\n"
             " day    contents   blobs   mapped |  lists     ms |    gets      MiB lists       s |       s  core-s"
             "   MiB in  MiB out");
    for (uint64_t day = 0; rc == 0 && day < m->set.days; day++)
        rc = one_day(m, day, e);
    return rc == 0 ? new_node(m, e) : rc;
}

/* ---- the command line ---- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static int parse(int argc, char **argv, struct settings *s)
{
    static const struct option options[] = {
        {"nodes", 1, NULL, 'n'},    {"contents", 1, NULL, 'c'}, {"changed", 1, NULL, 'g'},
        {"per-pack", 1, NULL, 'p'}, {"flushes", 1, NULL, 'f'},  {"days", 1, NULL, 'd'},
        {"dir", 1, NULL, 'D'},      {"json", 0, NULL, 'j'},     {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        const uint64_t v = optarg ? strtoull(optarg, NULL, 10) : 0;
        switch (c) {
        case 'n':
            s->nodes = v;
            break;
        case 'c':
            s->contents = v;
            break;
        case 'g':
            s->changed = strtod(optarg, NULL);
            break;
        case 'p':
            s->per_pack = v;
            break;
        case 'f':
            s->flushes = v;
            break;
        case 'd':
            s->days = v;
            break;
        case 'D':
            s->dir = optarg;
            break;
        case 'j':
            s->json = true;
            break;
        default:
            return -EINVAL;
        }
    }
    return optind == argc && s->nodes && s->contents && s->per_pack && s->per_pack <= 256 && s->flushes && s->days
               ? 0
               : -EINVAL;
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    static struct simulation m = {
        .set = {.nodes = 100, .contents = 1000, .per_pack = 5, .flushes = 2, .days = 10, .changed = 1},
        .store = {.b = {.ops = &store_ops}, .lock = PTHREAD_MUTEX_INITIALIZER}};
    if (parse(argc, argv, &m.set) < 0) {
        fputs("usage: simulate_nodes [--nodes N] [--contents N] [--changed PERCENT] [--per-pack N] [--flushes N]\n"
              "                      [--days N] [--dir DIR] [--json]\n",
              stderr);
        return 2;
    }
    snprintf(m.dir, sizeof m.dir, "%s/snapferry-nodes-XXXXXX", m.set.dir ? m.set.dir : "/var/tmp");
    m.store.b.location = strdup("the simulated store");
    m.x = malloc(BLOB_ENTRIES * sizeof *m.x);
    if (!m.x || !mkdtemp(m.dir) || (m.store.fd = open(m.dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) < 0) {
        perror(m.dir);
        return 1;
    }
    const int rc = simulate(&m, &e);
    if (rc < 0)
        fprintf(stderr, "simulate_nodes: %s\n", e.msg);
    nftw(m.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return rc < 0;
}
