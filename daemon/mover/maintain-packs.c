/* SPDX-License-Identifier: GPL-2.0-or-later */
/* maintain-packs.c - packs that nothing needs, and the session markers beside them */
#include "daemon/mover/maintain-impl.h"

#include "base/cleanup.h"
#include "base/time.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A coarse clock of the storage, and packs that were being finished when the run began. */
#define LISTING_MARGIN_NS (10 * NS_PER_MIN)
/* Where lists may lag, an index blob that was put just now may not be listed, while its session's marker is gone from
 * the list already: as long as a session may write before it puts an index. */
#define LAGGING_MARGIN_NS (2 * NS_PER_H)
/* Data that no index has, and no session accounts for, may be all that is left of a lost index. */
#define UNKNOWN_AGE_NS (14 * NS_PER_DAY)

static const char pack_letters[] = {'p', 'q'};

static int pack_listed(const struct blob_info *i, void *arg)
{
    struct run *m = arg;
    int rc = run_interrupted(m, m->e);
    if (rc == 0)
        rc = pack_table_add(m->packs, i->name, i->length, m->e);
    if (rc < 0)
        return rc;
    sum_add(&m->ret->packs, i->length);
    return 0;
}

static int entry_known(const struct index_entry *en, enum index_standing standing, void *arg)
{
    struct run *m = arg;
    (void)standing;
    struct pack_record *p = pack_table_find(m->packs, en->pack);
    if (p)
        p->damage |= PACK_KNOWN | (en->deleted ? 0 : PACK_LIVE);
    return 0;
}

/* The newest sign of life of the session of a blob; INT64_MIN: it has no marker. */
static int64_t session_seen(const struct run *m, const char *blob)
{
    char id[SESSION_ID_TEXT];
    int64_t seen = INT64_MIN;
    if (!session_id_of_blob(blob, id))
        return INT64_MIN;
    for (size_t i = 0; i < m->n_markers; i++)
        if (!strcmp(m->markers[i].id, id) && m->markers[i].seen_ns > seen)
            seen = m->markers[i].seen_ns;
    return seen;
}

/* ---- before anything is judged ---- */

struct suspects {
    struct run *m;
    struct pack_lookups *lookups;
};

static int pack_suspect(const struct blob_info *i, void *arg)
{
    const struct suspects *s = arg;
    struct run *m = s->m;
    struct pack_record *p = pack_table_find(m->packs, i->name);
    const int64_t margin = blobs_lists_lag(repo_blobs(m->r)) ? LAGGING_MARGIN_NS : LISTING_MARGIN_NS;
    if (p)
        p->time_ns = i->mtime_ns;
    /* However old it is: an index blob may be lost at any time. What a killed client leaves has its marker. Marks of
     * deleted contents alone, which are elsewhere in the index, do not show that the blob of their backup is there.
     * Manifests are in packs with q only (section 7.2). */
    if (!p || i->name[0] != 'q' || (p->damage & PACK_LIVE) || i->mtime_ns > m->started_ns - margin ||
        session_seen(m, i->name) != INT64_MIN)
        return run_interrupted(m, m->e);
    return pack_lookups_add(s->lookups, i, m->e);
}

static int suspect_judge(struct run *m, const struct blob_info *i, const struct pack_said *said, struct err *e)
{
    (void)m;
    if (!(said->manifest && said->unknown))
        return 0;
    err_set(e, ERR_DAMAGE, EBADMSG,
            "no index has pack %s, which contains snapshots or policies, and no session is writing it: its index may "
            "have been lost, so nothing is removed",
            i->name);
    return err_hint(e, "run `repo repair` to rebuild the index from the packs: after that maintenance runs again, "
                       "and frees what is not needed");
}

/* What is marked deleted would at once count as dropped, without the time in which others are seen to need it. */
static int check_watermark(const struct run *m, struct err *e)
{
    struct index_set_stats is;
    char until[TIME_TEXT];
    index_set_stats(repo_index(m->r), &is);
    if (is.watermark <= (m->started_ns + CLOCK_LIMIT_NS) / NS_PER_S || m->o->unsafe)
        return 0;
    err_set(e, ERR_CLOCK, 0,
            "what is marked deleted until %s counts as dropped, and that time has not come: the clock of a client that "
            "ran maintenance was wrong; nothing is removed",
            time_text(ns_of_seconds(is.watermark), until));
    return err_hint(e, "check the clocks of all clients; maintenance runs again after that time");
}

int run_look(struct run *m, struct err *e)
{
    struct blobs *b = repo_blobs(m->r);
    CLEANUP(pack_lookups_freep) struct pack_lookups *lookups = NULL;
    int rc = markers_load(m->r, &m->markers, &m->n_markers, e);
    if (rc == 0)
        rc = index_set_refresh(repo_index(m->r), e);
    if (rc == 0)
        rc = tidy_check(m->r, e);
    if (rc == 0)
        rc = check_watermark(m, e);
    if (rc == 0)
        rc = pack_table_new(&m->packs, repo_cache_dir(m->r), e);
    m->e = e;
    for (size_t i = 0; rc == 0 && i < sizeof pack_letters; i++)
        rc = blobs_list(b, (char[]){pack_letters[i], 0}, pack_listed, m, e);
    if (rc == 0)
        rc = pack_table_index(m->packs, e);
    if (rc == 0)
        rc = index_set_each_all(repo_index(m->r), entry_known, m, e);
    if (rc == 0)
        rc = pack_lookups_new(&lookups, m, suspect_judge, e);
    struct suspects s = {m, lookups};
    for (size_t i = 0; rc == 0 && i < sizeof pack_letters; i++)
        rc = blobs_list(b, (char[]){pack_letters[i], 0}, pack_suspect, &s, e);
    return rc == 0 ? pack_lookups_end(lookups, e) : rc;
}

/* ---- deleting ---- */

#define LOSERS_MAX 16

struct deletion {
    struct run *m;
    struct pack_lookups *lookups;
    int64_t late_s;
    struct index_entry losers[LOSERS_MAX]; /* of the content whose entries are being read */
    size_t n_losers;
    struct err *e;
};

static struct pack_record *refer(struct run *m, const char *pack)
{
    struct pack_record *p = pack_table_find(m->packs, pack);
    if (p)
        p->damage |= PACK_REFERRED;
    return p;
}

static void add_dead(struct run *m, const struct index_entry *en)
{
    struct pack_record *p = pack_table_find(m->packs, en->pack);
    if (p)
        p->dead += en->packed;
}

static bool same_place(const struct index_entry *a, const struct index_entry *b)
{
    return a->offset == b->offset && strcmp(a->pack, b->pack) == 0;
}

static void loser_add(struct deletion *d, const struct index_entry *en)
{
    for (size_t i = 0; i < d->n_losers; i++)
        if (same_place(en, &d->losers[i]))
            return;
    if (d->n_losers < LOSERS_MAX)
        d->losers[d->n_losers++] = *en;
    else
        refer(d->m, en->pack); /* more than can be looked at: kept */
}

/* A dry run has not marked anything deleted, where a run without delays would already have dropped it. */
static bool would_drop(const struct deletion *d, const struct index_entry *en)
{
    const struct run *m = d->m;
    if (en->deleted)
        return en->time <= d->late_s;
    return m->o->dry_run && m->o->unsafe && en->id.prefix != MANIFEST_PREFIX && !id_set_has(m->mark.used, &en->id, 0);
}

/* Whether clients may still read a content at the place of a superseded entry: it was stored again, by whomever, a
 * short time ago. A run that was killed while it did that has left no record of it. */
static bool moved_lately(const struct run *m, const struct index_entry *en, const struct pack_record *p)
{
    const int64_t time_ns = ns_of_seconds(en->time), there_ns = p ? p->time_ns : m->started_ns;
    return !en->deleted && m->started_ns - (time_ns > there_ns ? time_ns : there_ns) < m->safety->rewrite_to_delete;
}

/* The pack of every entry that stands is needed, and so is that of one that was dropped although a snapshot needs it.
 * Where that pack is missing, a superseded entry may lead to the last copy. */
static int entry_refers(const struct index_entry *en, enum index_standing standing, void *arg)
{
    struct deletion *d = arg;
    struct run *m = d->m;
    if (standing == INDEX_LOSER) {
        loser_add(d, en);
        return 0;
    }
    const size_t n = d->n_losers;
    const bool dropped = (standing == INDEX_HIDDEN || would_drop(d, en)) && !id_set_has(m->mark.used, &en->id, 0);
    const struct pack_record *p = dropped ? NULL : refer(m, en->pack);
    /* Not one that this run has just written. */
    const bool missing = !p && !(m->o->unsafe && ns_of_seconds(en->time) >= m->started_ns - NS_PER_S);
    d->n_losers = 0;
    if (dropped)
        add_dead(m, en);
    for (size_t i = 0; i < n; i++) {
        if (!dropped && (missing || moved_lately(m, en, p)))
            refer(m, d->losers[i].pack);
        else if (!same_place(en, &d->losers[i]))
            add_dead(m, &d->losers[i]);
    }
    return run_interrupted(m, d->e);
}

static void hold(struct run *m, struct maintain_sum *why, int64_t *until, int64_t then, uint64_t bytes)
{
    sum_add(why, bytes);
    sum_add(&m->ret->held, bytes);
    if (then > *until)
        *until = then;
}

/* A pack of the listing of the run. */
static int pack_judge(const struct blob_info *i, void *arg)
{
    struct deletion *d = arg;
    struct run *m = d->m;
    struct maintain_result *res = m->ret;
    const struct pack_record *p = pack_table_find(m->packs, i->name);
    const int64_t now = m->started_ns + NS_PER_S, seen = session_seen(m, i->name);
    if (!p)
        return 0; /* younger than the run */
    if (p->damage & PACK_REFERRED) {
        res->trapped += p->dead;
        return 0;
    }
    if (i->mtime_ns > now || now - i->mtime_ns < m->safety->pack_age) {
        hold(m, &res->fresh, &res->fresh_until_ns, i->mtime_ns + m->safety->pack_age, i->length);
        return 0;
    }
    if (seen != INT64_MIN && now - seen < m->safety->session_age) {
        hold(m, &res->session, &res->session_until_ns, seen + m->safety->session_age, i->length);
        return 0;
    }
    return pack_lookups_add(d->lookups, i, d->e);
}

/* One to which nothing refers. */
static int unreferred_judge(struct run *m, const struct blob_info *i, const struct pack_said *said, struct err *e)
{
    struct maintain_result *res = m->ret;
    const struct pack_record *p = pack_table_find(m->packs, i->name);
    const int64_t now = m->started_ns + NS_PER_S;
    (void)e;
    if (said->needed) {
        log_warning(
            "pack %s is kept: no index has it, but it contains what snapshots need and what is missing where the "
            "index has it; `repo repair` puts it into the index",
            i->name);
        hold(m, &res->unknown, &res->unknown_until_ns, now + m->safety->pack_age, i->length);
        return 0;
    }
    const bool known = p && (p->damage & PACK_KNOWN);
    const bool doubtful = said->unknown || said->manifest || (said->unreadable && !known);
    if (doubtful && session_seen(m, i->name) == INT64_MIN && now - i->mtime_ns < UNKNOWN_AGE_NS) {
        hold(m, &res->unknown, &res->unknown_until_ns, i->mtime_ns + UNKNOWN_AGE_NS, i->length);
        return 0;
    }
    return 1;
}

/* Behind the packs: the marker of a session accounts for its packs until they are gone. */
static int markers_delete(struct run *m, struct err *e)
{
    const int64_t now = m->started_ns + NS_PER_S;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < m->n_markers; i++) {
        const struct session_marker *a = &m->markers[i];
        if (a->mtime_ns > now || now - a->mtime_ns < m->safety->pack_age ||
            now - session_seen(m, a->name) < m->safety->session_age)
            continue;
        if (!m->o->dry_run)
            rc = blobs_delete(repo_blobs(m->r), a->name, e);
        if (rc == 0)
            sum_add(&m->ret->markers, 0);
    }
    return rc;
}

int run_delete(struct run *m, int64_t late_s, struct err *e)
{
    CLEANUP(pack_lookups_freep) struct pack_lookups *lookups = NULL;
    struct deletion *d CLEANUP_FREE = calloc(1, sizeof *d);
    if (!d)
        return err_nomem(e);
    d->m = m;
    d->late_s = late_s;
    d->e = e;
    /* Markers again: a session may have begun to reuse an old id's packs (adoption), or have given a sign of life. */
    struct session_marker *newer = NULL;
    size_t n = 0;
    int rc = markers_load(m->r, &newer, &n, e);
    if (rc < 0)
        return rc;
    struct session_marker *both = realloc(m->markers, (m->n_markers + n + 1) * sizeof *both);
    if (both) {
        m->markers = both;
        if (n)
            memcpy(both + m->n_markers, newer, n * sizeof *newer);
    }
    free(newer);
    if (!both)
        return err_nomem(e);
    const size_t before = m->n_markers;
    m->n_markers += n;
    rc = index_set_refresh(repo_index(m->r), e);
    if (rc == 0 && blobs_lists_lag(repo_blobs(m->r)))
        rc = tidy_check(m->r, e);
    if (rc == 0)
        rc = index_set_each_all(repo_index(m->r), entry_refers, d, e);
    if (rc == 0)
        rc = pack_lookups_new(&lookups, m, unreferred_judge, e);
    d->lookups = lookups;
    for (size_t i = 0; rc == 0 && i < sizeof pack_letters; i++)
        rc = blobs_list(repo_blobs(m->r), (char[]){pack_letters[i], 0}, pack_judge, d, e);
    if (rc == 0)
        rc = pack_lookups_end(lookups, e);
    m->n_markers = before; /* each once */
    return rc == 0 ? markers_delete(m, e) : rc;
}
