/* SPDX-License-Identifier: GPL-2.0-or-later */
/* index-ahead.c - index blobs read by several threads */
#include "repo/index-ahead.h"

#include "base/team.h"

#define SMALL ((uint64_t)4 << 20)

/* One of `index_fetch_ahead` or `index_check_ahead`. */
struct readers {
    const struct index_cache *c;
    const struct blob_info *b;
    size_t n;
    const bool *want;         /* NULL: all */
    struct index_map **ready; /* NULL: they are checked */
    struct index_checked *checked;
};

static bool is_wanted(const struct readers *t, size_t i)
{
    return (!t->want || t->want[i]) && t->b[i].length <= SMALL;
}

static int read_one(void *arg, size_t i, struct err *e)
{
    struct readers *t = arg;
    if (!is_wanted(t, i))
        return 0;
    if (t->ready)
        return index_cache_get(&t->ready[i], t->c, &t->b[i], e);
    struct err why = ERR_INIT;
    bool corrected = false;
    const int rc = index_cache_check(t->c, &t->b[i], &corrected, &why);
    t->checked[i] = (struct index_checked){.done = true, .rc = rc, .corrected = corrected, .why = why};
    return 0;
}

/* Whoever needs what could not be read meets the error. */
static void read_all(struct readers *t)
{
    struct err ignored = ERR_INIT;
    size_t wanted = 0;
    for (size_t i = 0; i < t->n; i++)
        wanted += is_wanted(t, i);
    if (wanted > 1 && !blobs_are_files(t->c->blobs))
        team_run(TEAM_FAR, t->n, read_one, t, &ignored);
}

void index_fetch_ahead(const struct index_cache *c, const struct blob_info *b, size_t n, const bool *want,
                       struct index_map **ready)
{
    read_all(&(struct readers){.c = c, .b = b, .n = n, .want = want, .ready = ready});
}

void index_check_ahead(const struct index_cache *c, const struct blob_info *b, size_t n, struct index_checked *ret)
{
    for (size_t i = 0; i < n; i++)
        ret[i].done = false;
    read_all(&(struct readers){.c = c, .b = b, .n = n, .checked = ret});
}
