/* SPDX-License-Identifier: GPL-2.0-or-later */
/* damaged.c - contents that could not be read since the repository was opened */
#include "repo/repo-impl.h"

#include <stdlib.h>

#define DAMAGED_MAX 1024 /* contents remembered: more mean a repository to be verified, not a run to be saved */

void repo_note_damage(struct repo *r, const struct content_id *id)
{
    pthread_mutex_lock(&r->damaged_lock);
    if (!r->damaged)
        r->damaged = calloc(DAMAGED_MAX, sizeof *r->damaged);
    const size_t n = r->n_damaged;
    if (r->damaged && n < DAMAGED_MAX) {
        r->damaged[n] = *id;
        r->n_damaged = n + 1;
    }
    pthread_mutex_unlock(&r->damaged_lock);
}

bool repo_is_damaged(struct repo *r, const struct content_id *id)
{
    const size_t n = atomic_load_explicit(&r->n_damaged, memory_order_acquire);
    for (size_t i = 0; i < n; i++)
        if (content_id_equal(&r->damaged[i], id))
            return true;
    return false;
}
