/* SPDX-License-Identifier: GPL-2.0-or-later */
/* repair.c - one repair: which index blobs are damaged, and what others know of their entries; its order */
#include "daemon/mover/repair-impl.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"
#include "base/units.h"
#include "repo/copy.h"

#include <stdlib.h>
#include <string.h>

/* ---- may it be repaired ---- */

static int check_allowed(struct repair *m, struct err *e)
{
    struct blobs *b = repo_blobs(m->r);
    if (!repo_format(m->r)->epochs.enabled) {
        err_plain(e, ERR_FORMAT, ENOTSUP, "repository %s has an index without epochs, which is not repaired",
                  blobs_location(b));
        return err_hint(e, "stock Kopia rebuilds it from the packs: see snapferry-recovery(7), THE INDEX IS LOST");
    }
    const int copy = copy_is_marked(b, e);
    if (copy < 0)
        return copy;
    if (copy && !m->o->dry_run) {
        err_plain(e, ERR_PERMISSION, EPERM, "repository %s is a copy: it is not changed by itself", blobs_location(b));
        return err_hint(e, "`repo sync-to` copies missing blobs again; if the original is lost, remove the blob "
                           "" COPY_MARK " there, and repair what is then a repository of its own");
    }
    return 0;
}

/* ---- index blobs ---- */

static int blob_listed(const struct blob_info *i, void *arg)
{
    struct repair *m = arg;
    if ((m->n_listed & (m->n_listed - 1)) == 0) {
        void *p = reallocarray(m->listed, m->n_listed ? 2 * m->n_listed : 1, sizeof *m->listed);
        if (!p)
            return err_nomem(m->e);
        m->listed = p;
    }
    m->listed[m->n_listed++] = *i;
    return repair_stopped(m, m->e);
}

static bool is_index(const char *name)
{
    return name[0] == 'x' && (name[1] == 'n' || name[1] == 's' || name[1] == 'r');
}

/* Every one that is there is read from the store, also those that no client reads at present: without a damaged one
 * they may be read again. */
static int check_indexes(struct repair *m, struct err *e)
{
    int rc = blobs_list(repo_blobs(m->r), "x", blob_listed, m, e);
    for (size_t i = 0; rc == 0 && i < m->n_listed; i++) {
        struct err why = ERR_INIT;
        rc = repair_stopped(m, e);
        if (rc < 0 || !is_index(m->listed[i].name))
            continue;
        rc = index_set_check_blob(repo_index(m->r), &m->listed[i], &why);
        if (rc == -ENOENT && why.cls == ERR_DAMAGE) {
            m->listed[i].name[0] = '\0'; /* replaced by others meanwhile */
            rc = 0;
            continue;
        }
        m->ret->indexes++;
        if (rc == 0)
            m->authentic = true;
        else if (index_set_is_bad(repo_index(m->r), &m->listed[i], rc, &why))
            rc = repair_leave_out(m, m->listed[i].name, why.msg, e);
        else
            *e = why;
    }
    return rc;
}

/* ---- what other index blobs know ---- */

struct index_source {
    struct repair *m;
    bool marks; /* marks of deleted contents count */
    struct err *e;
};

/* An entry of an index blob that no client reads at present. */
static int source_takes(const struct index_entry *x, enum index_standing standing, void *arg)
{
    const struct index_source *s = arg;
    struct repair *m = s->m;
    struct index_entry stands;
    bool hidden;
    (void)standing;
    int rc = repair_stopped(m, s->e);
    if (rc < 0 || (x->deleted && !s->marks))
        return rc;
    rc = index_set_find_any(repo_index(m->r), &x->id, &stands, &hidden, s->e);
    if (rc < 0 && rc != -ENOENT)
        return rc;
    if (rc == 0 && !index_entry_wins(x, &stands))
        return 0;
    if (!x->deleted && !repair_is_stored(m, x)) {
        m->ret->missing += s->marks; /* what is only in the cache was mostly removed by maintenance */
        return 0;
    }
    return repair_add(m, x, s->e);
}

/* What cannot be read is left out. */
static int blob_read_entries(struct repair *m, const char *name, uint64_t length, bool marks, struct err *e)
{
    struct index_source s = {.m = m, .marks = marks, .e = e};
    struct blob_info b = {.length = length};
    struct err own = ERR_INIT;
    snprintf(b.name, sizeof b.name, "%s", name);
    if (index_set_views(repo_index(m->r), name))
        return 0;
    /* Errors of the callback are in *e. */
    int rc = index_set_merge(repo_index(m->r), &b, 1, source_takes, &s, &own);
    if (rc < 0 && own.cls && (rc == -ENOENT || repair_unreadable(rc, &own)))
        return 0;
    if (rc < 0 && own.cls)
        *e = own;
    return rc;
}

static bool is_listed(const struct repair *m, const char *name)
{
    for (size_t i = 0; i < m->n_listed; i++)
        if (!strcmp(m->listed[i].name, name))
            return true;
    return false;
}

/*
 * A blob that is in the cache of this node, and not in the store. Mostly it was replaced by others. It may be of a
 * later state of a repository that was put back from a copy, so that marks in it do not count.
 */
static int source_cached(const char *name, void *arg)
{
    struct repair *m = arg;
    if (!is_index(name) || is_listed(m, name))
        return 0;
    return blob_read_entries(m, name, 0, false, m->e);
}

/* Sets of which a part is damaged, what they had replaced, and damaged ones that this node has in its cache. */
static int read_sources(struct repair *m, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < m->n_listed; i++)
        if (is_index(m->listed[i].name))
            rc = blob_read_entries(m, m->listed[i].name, m->listed[i].length, true, e);
    if (rc == 0)
        rc = index_set_cached(repo_index(m->r), source_cached, m, e);
    return rc;
}

/* ---- the order ---- */

static int pack_listed(const struct blob_info *i, void *arg)
{
    struct repair *m = arg;
    int rc = repair_stopped(m, m->e);
    if (rc == 0)
        rc = pack_table_add(m->packs, i->name, i->length, m->e);
    m->ret->packs += rc == 0;
    if (rc == 0 && m->o->progress)
        atomic_fetch_add(&m->o->progress->total, i->length);
    return rc;
}

static int list_packs(struct repair *m, struct err *e)
{
    int rc = pack_table_new(&m->packs, repo_cache_dir(m->r), e);
    if (rc == 0)
        rc = blobs_list(repo_blobs(m->r), "p", pack_listed, m, e);
    if (rc == 0)
        rc = blobs_list(repo_blobs(m->r), "q", pack_listed, m, e);
    return rc == 0 ? pack_table_index(m->packs, e) : rc;
}

/* Who may be writing. A marker that cannot be read stands for nobody: what comes back too early does no harm. */
static void look_for_sessions(struct repair *m)
{
    struct err why = ERR_INIT;
    if (markers_load(m->r, &m->markers, &m->n_markers, &why) < 0)
        log_warning("session markers are left out: %s", why.msg);
}

static int run(struct repair *m, struct err *e)
{
    int rc = check_allowed(m, e);
    if (rc == 0)
        rc = check_indexes(m, e);
    if (rc == 0)
        rc = list_packs(m, e);
    if (rc < 0)
        return rc;
    look_for_sessions(m);
    rc = repair_epoch(m, e);
    if (rc == 0)
        rc = index_set_refresh(repo_index(m->r), e);
    if (rc == 0)
        rc = read_sources(m, e);
    if (rc == 0)
        rc = repair_packs(m, e);
    if (rc == 0)
        rc = repair_publish(m, e);
    crash_point("repair-published");
    if (rc == 0 && !m->authentic && (m->n_bad || m->ret->packs)) {
        err_plain(e, ERR_DAMAGE, EBADMSG, "neither an index blob nor a pack of repository %s can be decrypted",
                  blobs_location(repo_blobs(m->r)));
        return err_hint(e, "kopia.repository may be that of another repository: nothing was changed");
    }
    if (rc == 0)
        rc = repair_partial_sets(m, e);
    if (rc == 0)
        rc = repair_lost_epochs(m, e);
    if (rc == 0)
        rc = repair_set_aside(m, e);
    return rc;
}

static int outcome(const struct repair *m, struct err *e)
{
    const struct repair_result *res = m->ret;
    if (res->vanished) {
        err_plain(e, ERR_BUSY, EBUSY, "%llu pack%s deleted while %s contents were put into the index",
                  (unsigned long long)res->vanished, res->vanished == 1 ? " was" : "s were",
                  res->vanished == 1 ? "its" : "their");
        return err_hint(e, "maintenance runs, by another client: stop it, and run the repair once more");
    }
    if (res->unknown)
        err_plain(e, ERR_DAMAGE, EBADMSG, "what is in %llu pack%s is not known: %s be read",
                  (unsigned long long)res->unknown, plural(res->unknown),
                  res->unknown == 1 ? "its local index cannot" : "their local indexes cannot");
    else if (res->manifests)
        err_plain(e, ERR_DAMAGE, EBADMSG,
                  "%llu content%s of manifests that no index has cannot be read: which snapshots %s had is not known",
                  (unsigned long long)res->manifests, plural(res->manifests), res->manifests == 1 ? "it" : "they");
    else
        return 0;
    return err_hint(e, "`verify` shows which snapshots lack something; see snapferry-recovery(7)");
}

int repair_run(struct repo *r, const struct repair_opts *o, struct repair_result *ret, struct err *e)
{
    struct repair m = {.r = r, .o = o, .ret = ret, .e = e};
    const uint64_t since = mono_ns();
    *ret = (struct repair_result){.write_epoch = -1};
    const _Atomic bool *before = blobs_stop(repo_blobs(r), o->cancel ? &o->cancel->requested : NULL);
    int rc = run(&m, e);
    blobs_stop(repo_blobs(r), before);
    pack_table_free(m.packs);
    free(m.markers);
    free(m.listed);
    free(m.bad);
    free(m.batch);
    ret->seconds = (double)(mono_ns() - since) / NS_PER_S;
    ret->complete = rc == 0;
    return rc == 0 ? outcome(&m, e) : rc;
}
