/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * make_index - puts index blobs of N made-up contents into a repository, for tests of large indexes
 *
 *   make_index [--contents N] [--blobs M] [--seed S] [--packs] REPOSITORY PASSWORD-FILE
 *
 * Content i of seed S has the id of the 16 (or as many as the repository's hash has) bytes that SplitMix64 gives in
 * little-endian order from state mix(S, i); blob b holds contents b, b + M, b + 2M, ... A pack is named for each 1000
 * contents of a blob. --packs also stores those packs: a few bytes each, so that they exist.
 */
#include "base/bytes.h"
#include "base/cleanup.h"
#include "repo/epoch.h"
#include "repo/format.h"
#include "repo/index.h"
#include "repo/item.h"

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define PER_PACK 1000
#define THREADS 2

struct job {
    struct blobs *b;
    struct repo_format *f;
    struct sealer *s;
    uint64_t contents, blobs, seed;
    bool packs;
    uint8_t id_len;
    int64_t now;
    atomic_ulong next; /* blob to be made */
    atomic_int failed; /* negative errno */
    pthread_mutex_t lock;
    struct err e; /* of the first failure, under lock */
};

static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* before: the blob's entry before it, or NULL. */
static void make_entry(const struct job *j, uint64_t blob, uint64_t i, const struct index_entry *before,
                       struct index_entry *x)
{
    uint64_t state = j->seed * 0x9e3779b97f4a7c15u ^ i;
    uint8_t hash[32];
    for (unsigned k = 0; k < 4; k++)
        put_le64(hash + 8 * k, splitmix64(&state));
    x->id.prefix = 0;
    x->id.len = j->id_len;
    memset(x->id.hash, 0, sizeof x->id.hash);
    memcpy(x->id.hash, hash, j->id_len);
    uint64_t nth = i / j->blobs;
    if (before && nth % PER_PACK)
        memcpy(x->pack, before->pack, sizeof x->pack);
    else
        snprintf(x->pack, sizeof x->pack, "p%016llx%08llx%08llx-s0000000000000000144", (unsigned long long)j->seed,
                 (unsigned long long)blob, (unsigned long long)(nth / PER_PACK));
    x->offset = 32 + (uint32_t)(nth % PER_PACK) * 28;
    x->packed = 28;
    x->length = 0;
    x->compression = 0;
    x->time = j->now;
    x->deleted = false;
    x->format_version = (uint8_t)j->f->version;
    x->key_id = 0;
}

static int put_packs(const struct job *j, const struct index_entry *x, size_t n, struct err *e)
{
    static const uint8_t body[32 + PER_PACK * 28];
    const char *before = "";
    for (size_t i = 0; i < n; i += PER_PACK) {
        if (strcmp(before, x[i].pack) == 0)
            continue;
        int r = blobs_put(j->b, x[i].pack, body, sizeof body, e);
        if (r < 0)
            return r;
        before = x[i].pack;
    }
    return 0;
}

static int make_blob(struct job *j, uint64_t blob, struct index_entry *x, struct err *e)
{
    size_t n = 0;
    for (uint64_t i = blob; i < j->contents; i += j->blobs, n++)
        make_entry(j, blob, i, n ? &x[n - 1] : NULL, &x[n]);
    if (n == 0)
        return 0;
    int r = j->packs ? put_packs(j, x, n, e) : 0;
    if (r < 0)
        return r;
    n = index_sort(x, n);
    struct index_shard_data d = {.data = NULL};
    CLEANUP_FREE uint8_t *table = NULL;
    r = index_build(x, n, j->f->index_version, false, &table, &d.len, e);
    if (r < 0)
        return r;
    d.data = table;
    char name[1][BLOB_NAME_MAX + 1], session[64];
    snprintf(session, sizeof session, "s%016llx144", (unsigned long long)(j->seed * 1000003 + blob));
    return epoch_write_indexes(j->b, j->s, j->f, session, &d, 1, name, e);
}

static void *work(void *arg)
{
    struct job *j = arg;
    struct err e = ERR_INIT;
    size_t room = (size_t)(j->contents / j->blobs + 1);
    CLEANUP_FREE struct index_entry *x = malloc(room * sizeof *x);
    int r = x ? 0 : err_nomem(&e);
    while (r == 0 && !atomic_load(&j->failed)) {
        uint64_t blob = atomic_fetch_add(&j->next, 1);
        if (blob >= j->blobs)
            break;
        r = make_blob(j, blob, x, &e);
    }
    if (r < 0) {
        pthread_mutex_lock(&j->lock);
        if (!atomic_exchange(&j->failed, r))
            j->e = e;
        pthread_mutex_unlock(&j->lock);
    }
    return NULL;
}

static int open_repository(struct job *j, const char *dir, const char *password_file, struct err *e)
{
    char *password = NULL;
    int r = blobs_open_dir(&j->b, dir, BLOBS_OPEN, NULL, 0, e);
    if (r == 0)
        r = password_read(&password, password_file, false, e);
    if (r == 0)
        r = format_load(&j->f, j->b, password, e);
    if (r == 0)
        r = sealer_new(&j->s, j->f, e);
    password_free(password);
    if (r == 0) {
        size_t len = hasher_size(sealer_hasher(j->s));
        j->id_len = (uint8_t)(len < 32 ? len : 32);
    }
    return r;
}

static int number(const char *text, uint64_t *ret)
{
    char *end;
    errno = 0;
    *ret = strtoull(text, &end, 10);
    return errno || *end || end == text || *ret == 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"contents", required_argument, NULL, 'n'},
                                            {"blobs", required_argument, NULL, 'b'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"packs", no_argument, NULL, 'p'},
                                            {NULL, 0, NULL, 0}};
    struct job j = {.contents = 10000000, .blobs = 0, .seed = 1, .now = time(NULL), .lock = PTHREAD_MUTEX_INITIALIZER};
    int bad = 0;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (c) {
        case 'n':
            bad |= number(optarg, &j.contents);
            break;
        case 'b':
            bad |= number(optarg, &j.blobs);
            break;
        case 's':
            bad |= number(optarg, &j.seed);
            break;
        case 'p':
            j.packs = true;
            break;
        default:
            bad = -1;
        }
    if (bad || argc - optind != 2) {
        fputs("usage: make_index [--contents N] [--blobs M] [--seed S] [--packs] REPOSITORY PASSWORD-FILE\n", stderr);
        return 2;
    }
    if (!j.blobs)
        j.blobs = j.contents < 500000 ? 1 : (j.contents + 499999) / 500000;
    int r = open_repository(&j, argv[optind], argv[optind + 1], &j.e);
    if (r == 0) {
        pthread_t t[THREADS];
        unsigned n = 0;
        while (n < THREADS && pthread_create(&t[n], NULL, work, &j) == 0)
            n++;
        if (n == 0)
            work(&j);
        while (n > 0)
            pthread_join(t[--n], NULL);
        r = atomic_load(&j.failed);
    }
    sealer_free(j.s);
    format_free(j.f);
    blobs_free(j.b);
    if (r < 0) {
        fprintf(stderr, "make_index: %s\n", j.e.msg);
        return j.e.cls;
    }
    printf("%llu contents in %llu index blobs\n", (unsigned long long)j.contents, (unsigned long long)j.blobs);
    return 0;
}
