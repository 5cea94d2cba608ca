/* SPDX-License-Identifier: GPL-2.0-or-later */
/* index-ahead.c - a thousand nodes write thousands of index blobs in a day: one after the other would be a delay each
 */
#include "repo/index-ahead.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 8
#define SMALL ((uint64_t)4 << 20) /* of larger ones the bytes take longer than the requests */

struct fetching {
    const struct index_cache *c;
    const struct blob_info *b;
    size_t n;
    const bool *want;
    struct index_map **ready;
    _Atomic size_t next;
    _Atomic bool failed;
};

static void *fetch_some(void *arg)
{
    struct fetching *f = arg;
    struct err why = ERR_INIT;
    for (size_t i; !atomic_load(&f->failed) && (i = atomic_fetch_add(&f->next, 1)) < f->n;)
        if (f->want[i] && f->b[i].length <= SMALL && index_cache_get(&f->ready[i], f->c, &f->b[i], &why) < 0)
            atomic_store(&f->failed, true);
    return NULL;
}

void index_fetch_ahead(const struct index_cache *c, const struct blob_info *b, size_t n, const bool *want,
                       struct index_map **ready)
{
    struct fetching f = {.c = c, .b = b, .n = n, .want = want, .ready = ready};
    pthread_t threads[THREADS];
    unsigned started = 0;
    size_t wanted = 0;
    for (size_t i = 0; i < n; i++)
        wanted += want[i] && b[i].length <= SMALL;
    if (wanted < 2 || blobs_are_files(c->blobs))
        return;
    while (started < THREADS && started < wanted && pthread_create(&threads[started], NULL, fetch_some, &f) == 0)
        started++;
    while (started > 0)
        pthread_join(threads[--started], NULL);
}
