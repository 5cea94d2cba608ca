/* SPDX-License-Identifier: GPL-2.0-or-later */
/* index-ahead.c - index blobs read by several threads */
#include "repo/index-ahead.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 8
#define SMALL ((uint64_t)4 << 20)

/* One of `index_fetch_ahead` or `index_check_ahead`. */
struct team {
    const struct index_cache *c;
    const struct blob_info *b;
    size_t n;
    const bool *want;         /* NULL: all */
    struct index_map **ready; /* NULL: they are checked */
    struct index_checked *checked;
    _Atomic size_t next;
    _Atomic bool failed;
};

static bool is_wanted(const struct team *t, size_t i)
{
    return (!t->want || t->want[i]) && t->b[i].length <= SMALL;
}

static void read_one(struct team *t, size_t i)
{
    struct err why = ERR_INIT;
    if (t->ready) {
        if (index_cache_get(&t->ready[i], t->c, &t->b[i], &why) < 0)
            atomic_store(&t->failed, true);
        return;
    }
    const int rc = index_cache_check(t->c, &t->b[i], &why);
    t->checked[i] = (struct index_checked){.done = true, .rc = rc, .why = why};
}

static void *team_member(void *arg)
{
    struct team *t = arg;
    for (size_t i; !atomic_load(&t->failed) && (i = atomic_fetch_add(&t->next, 1)) < t->n;)
        if (is_wanted(t, i))
            read_one(t, i);
    return NULL;
}

static void team_run(struct team *t)
{
    pthread_t threads[THREADS];
    size_t wanted = 0;
    unsigned n = 0;
    for (size_t i = 0; i < t->n; i++)
        wanted += is_wanted(t, i);
    if (wanted < 2 || blobs_are_files(t->c->blobs))
        return;
    while (n < THREADS && n < wanted && pthread_create(&threads[n], NULL, team_member, t) == 0)
        n++;
    while (n > 0)
        pthread_join(threads[--n], NULL);
}

void index_fetch_ahead(const struct index_cache *c, const struct blob_info *b, size_t n, const bool *want,
                       struct index_map **ready)
{
    team_run(&(struct team){.c = c, .b = b, .n = n, .want = want, .ready = ready});
}

void index_check_ahead(const struct index_cache *c, const struct blob_info *b, size_t n, struct index_checked *ret)
{
    for (size_t i = 0; i < n; i++)
        ret[i].done = false;
    team_run(&(struct team){.c = c, .b = b, .n = n, .checked = ret});
}
