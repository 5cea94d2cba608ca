/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "base/team.h"

#include <pthread.h>

struct team {
    size_t n;
    team_fn *fn;
    void *arg;
    pthread_mutex_t lock; /* of the rest */
    size_t next;
    int rc;
    struct err *e;
};

static void *member_main(void *arg)
{
    struct team *t = arg;
    pthread_mutex_lock(&t->lock);
    while (t->rc == 0 && t->next < t->n) {
        const size_t i = t->next++;
        struct err own = ERR_INIT;
        pthread_mutex_unlock(&t->lock);
        const int rc = t->fn(t->arg, i, &own);
        pthread_mutex_lock(&t->lock);
        if (rc < 0 && t->rc == 0) {
            t->rc = rc;
            if (t->e)
                *t->e = own;
        }
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

int team_run(unsigned threads, size_t n, team_fn *fn, void *arg, struct err *e)
{
    struct team t = {.n = n, .fn = fn, .arg = arg, .e = e};
    pthread_t others[TEAM_MOST];
    unsigned k = 0;
    pthread_mutex_init(&t.lock, NULL);
    while (k + 1 < threads && k + 1 < TEAM_MOST && k + 1 < n && pthread_create(&others[k], NULL, member_main, &t) == 0)
        k++;
    member_main(&t);
    while (k > 0)
        pthread_join(others[--k], NULL);
    pthread_mutex_destroy(&t.lock);
    return t.rc;
}
