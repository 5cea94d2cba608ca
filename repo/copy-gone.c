/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/copy-gone.h"

#include "base/cleanup.h"
#include "base/team.h"
#include "base/time.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GONE_MAX ((size_t)256 << 20) /* bytes of the record */
#define SKEW_NS (5 * NS_PER_MIN)

struct gone {
    char *name;
    uint64_t length;
    int64_t since_s; /* missed since then */
    bool earlier;    /* by an earlier run */
    bool needed;     /* the index of the original refers to it */
};

struct work {
    const struct gone_opts *o;
    struct gone *all;
    size_t n, cap;
};

static void work_clear(struct work *w)
{
    for (size_t i = 0; i < w->n; i++)
        free(w->all[i].name);
    free(w->all);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct gone *)a)->name, ((const struct gone *)b)->name);
}

/* ---- what is missed ---- */

static int add_surplus(const struct blob_info *i, void *arg)
{
    struct work *w = arg;
    if (!w->o->surplus(i->name, w->o->arg))
        return 0;
    if (w->n == w->cap) {
        const size_t more = w->cap ? 2 * w->cap : 256;
        struct gone *p = reallocarray(w->all, more, sizeof *p);
        if (!p)
            return -ENOMEM;
        w->all = p;
        w->cap = more;
    }
    struct gone *g = &w->all[w->n];
    *g = (struct gone){.name = strdup(i->name), .length = i->length, .since_s = w->o->now_ns / NS_PER_S};
    if (!g->name)
        return -ENOMEM;
    w->n++;
    return 0;
}

/* Since when the earlier runs have missed them. What the record has otherwise is not surplus any more. */
static int read_record(struct work *w, struct err *e)
{
    CLEANUP_FREE uint8_t *data = NULL;
    size_t len = 0;
    struct err none = ERR_INIT;
    char *save = NULL;
    int rc = blobs_get(w->o->to, COPY_GONE, GONE_MAX, &data, &len, &none);
    if (rc == -ENOENT)
        return 0;
    if (rc < 0) {
        *e = none;
        return rc;
    }
    for (char *line = strtok_r((char *)data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char name[BLOB_NAME_MAX + 1];
        int64_t since_s;
        if (sscanf(line, "%255s %" SCNd64, name, &since_s) != 2)
            continue;
        const struct gone key = {.name = name};
        struct gone *g = w->n ? bsearch(&key, w->all, w->n, sizeof *w->all, by_name) : NULL;
        if (g && since_s > 0 && since_s <= w->o->now_ns / NS_PER_S) {
            g->since_s = since_s;
            g->earlier = true;
        }
    }
    return 0;
}

static int write_record(const struct work *w, struct err *e)
{
    CLEANUP_FREE char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return err_nomem(e);
    for (size_t i = 0; i < w->n; i++)
        if (w->all[i].name[0])
            fprintf(f, "%s %" PRId64 "\n", w->all[i].name, w->all[i].since_s);
    if (fclose(f) != 0)
        return err_nomem(e);
    return blobs_put(w->o->to, COPY_GONE, text, len, e);
}

/* ---- what is deleted ---- */

static bool is_due(const struct work *w, const struct gone *g)
{
    return g->name[0] && g->earlier && !g->needed && w->o->now_ns / NS_PER_S - g->since_s >= w->o->after_ns / NS_PER_S;
}

static bool is_pack(const struct gone *g)
{
    return g->name[0] == 'p' || g->name[0] == 'q';
}

/* Those that are deleted now. */
struct deletion {
    const struct work *w;
    struct gone **due;
    pthread_mutex_t lock; /* of */
    struct copy_sum *deleted;
};

/* A list may lack what is there: each is asked for by its name. */
static int delete_one(void *arg, size_t k, struct err *e)
{
    struct deletion *d = arg;
    const struct gone_opts *o = d->w->o;
    struct gone *g = d->due[k];
    struct blob_info i;
    struct err none = ERR_INIT;
    int rc = o->go_on(o->arg, e);
    if (rc < 0)
        return rc;
    rc = blobs_stat(repo_blobs(o->from), g->name, &i, &none);
    if (rc == 0)
        return 0;
    if (rc != -ENOENT) {
        *e = none;
        return rc;
    }
    rc = blobs_delete(o->to, g->name, e);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&d->lock);
    d->deleted->n++;
    d->deleted->bytes += g->length;
    pthread_mutex_unlock(&d->lock);
    g->name[0] = '\0';
    return 0;
}

/* Indexes before packs. */
static int delete_due(const struct work *w, struct copy_sum *deleted, struct err *e)
{
    CLEANUP_FREE struct gone **due = malloc((w->n + 1) * sizeof *due);
    struct deletion d = {.w = w, .due = due, .lock = PTHREAD_MUTEX_INITIALIZER, .deleted = deleted};
    const bool near = blobs_are_files(w->o->to) && blobs_are_files(repo_blobs(w->o->from));
    int rc = due ? 0 : err_nomem(e);
    for (unsigned packs = 0; rc == 0 && packs < 2; packs++) {
        size_t n = 0;
        for (size_t i = 0; i < w->n; i++)
            if (is_due(w, &w->all[i]) && is_pack(&w->all[i]) == (packs == 1))
                due[n++] = &w->all[i];
        rc = team_run(near ? 1 : TEAM_FAR, n, delete_one, &d, e);
    }
    pthread_mutex_destroy(&d.lock);
    return rc;
}

static struct copy_sum sum_due(const struct work *w, bool packs)
{
    struct copy_sum due = {0};
    for (size_t i = 0; i < w->n; i++)
        if (is_due(w, &w->all[i]) && (!packs || is_pack(&w->all[i]))) {
            due.n++;
            due.bytes += w->all[i].length;
        }
    return due;
}

static int mark_needed(const struct index_entry *en, void *arg)
{
    struct work *w = arg;
    const struct gone key = {.name = (char *)(uintptr_t)en->pack};
    struct gone *g = bsearch(&key, w->all, w->n, sizeof *w->all, by_name);
    if (g)
        g->needed = true;
    return 0;
}

static int find_needed(struct work *w, struct copy_sum *lost, struct err *e)
{
    if (!sum_due(w, true).n)
        return 0;
    int rc = index_set_each(repo_index(w->o->from), -1, mark_needed, w, e);
    for (size_t i = 0; i < w->n; i++)
        if (w->all[i].needed) {
            lost->n++;
            lost->bytes += w->all[i].length;
        }
    return rc;
}

static int delete_if_few(struct work *w, struct copy_result *ret, struct err *e)
{
    const struct gone_opts *o = w->o;
    const struct copy_sum due = sum_due(w, false);
    const int64_t skew = now_ns() - o->now_ns;
    if (!due.n)
        return 0;
    if (skew > SKEW_NS || skew < -SKEW_NS) {
        log_warning("nothing is deleted in %s: its clock and this one's differ by %" PRId64 " s", blobs_location(o->to),
                    skew / NS_PER_S);
        return 0;
    }
    if (!o->empty && (o->most || due.bytes <= o->copy_bytes / 2))
        return delete_due(w, &ret->deleted, e);
    ret->held = due;
    return 0;
}

int copy_delete_gone(const struct gone_opts *o, struct copy_result *ret, struct err *e)
{
    CLEANUP(work_clear) struct work w = {.o = o};
    struct err second = ERR_INIT;
    int rc = blobs_list(o->to, "", add_surplus, &w, e);
    if (rc == -ENOMEM)
        return err_nomem(e);
    if (rc == 0 && w.n)
        qsort(w.all, w.n, sizeof *w.all, by_name);
    if (rc == 0)
        rc = read_record(&w, e);
    if (rc == 0)
        rc = find_needed(&w, &ret->lost, e);
    if (rc < 0)
        return rc;
    rc = delete_if_few(&w, ret, e);
    /* Also of what could not be deleted: since when does not change. */
    const int wrote = write_record(&w, rc < 0 ? &second : e);
    return rc < 0 ? rc : wrote;
}
