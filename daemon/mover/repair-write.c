/* SPDX-License-Identifier: GPL-2.0-or-later */
/* repair-write.c - what a repair writes: index blobs, the marker of the write epoch; damaged blobs are set aside */
#include "daemon/mover/repair-impl.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"
#include "repo/epoch-parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 65536 /* entries of an index blob */
/* Younger packs are not deleted by any maintenance within a day (maintenance_safety). */
#define YOUNG_NS (12 * NS_PER_H)
#define EPOCH_MAX INT64_C(1000000000) /* higher ones are no epochs: one lasts a day */
#define LOST_EPOCHS 10000             /* of 27 years, where one lasts a day */
#define ASIDE_NAMES 100

bool repair_is_stored(const struct repair *m, const struct index_entry *x)
{
    const struct pack_record *p = pack_table_find(m->packs, x->pack);
    return p && (uint64_t)x->offset + x->packed <= p->length;
}

int repair_leave_out(struct repair *m, const char *name, const char *why, struct err *e)
{
    void *p = reallocarray(m->bad, m->n_bad + 1, sizeof *m->bad);
    if (!p)
        return err_nomem(e);
    m->bad = p;
    m->bad[m->n_bad].whole = !why;
    snprintf(m->bad[m->n_bad++].name, sizeof m->bad->name, "%s", name);
    m->ret->bad += why != NULL;
    if (why)
        m->o->report(REPAIR_BAD_INDEX, name, why, 0, m->o->arg);
    return index_set_leaves_out(repo_index(m->r), name) ? 0 : index_set_leave_out(repo_index(m->r), name, e);
}

/* ---- packs of a batch ---- */

struct protected
{
    char(*sessions)[SESSION_ID_TEXT];
    char(*markers)[BLOB_NAME_MAX + 1];
    size_t n;
};

static void protected_clear(struct protected *p)
{
    free(p->sessions);
    free(p->markers);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The sessions of old packs in the batch, each once, and `own`. */
static int find_sessions(struct repair *m, const char *own, struct protected *p, struct err *e)
{
    size_t n = 0;
    p->sessions = calloc(m->n_batch + 1, sizeof *p->sessions);
    if (!p->sessions)
        return err_nomem(e);
    for (size_t i = 0; i < m->n_batch; i++) {
        struct pack_record *r = pack_table_find(m->packs, m->batch[i].pack);
        if (!r || (r->damage & REPAIR_IN_BATCH))
            continue;
        r->damage |= REPAIR_IN_BATCH;
        if (now_ns() - r->time_ns > YOUNG_NS && session_id_of_blob(m->batch[i].pack, p->sessions[n]))
            n++;
    }
    snprintf(p->sessions[n++], SESSION_ID_TEXT, "%s", own);
    qsort(p->sessions, n, sizeof *p->sessions, by_text);
    for (size_t i = 0; i < n; i++)
        if (p->n == 0 || strcmp(p->sessions[p->n - 1], p->sessions[i]) != 0)
            memmove(p->sessions[p->n++], p->sessions[i], sizeof *p->sessions);
    p->markers = calloc(p->n, sizeof *p->markers);
    return p->markers ? 0 : err_nomem(e);
}

/* From then on no maintenance that begins deletes a pack of these sessions. Also shows that the store can be written
 * to, and that the clocks agree. */
static int markers_put(struct repair *m, struct protected *p, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        rc = repair_stopped(m, e);
        if (rc == 0)
            rc = marker_put(m->r, p->sessions[i], now_ns(), p->markers[i], e);
    }
    return rc;
}

static void markers_delete(struct repair *m, struct protected *p)
{
    for (size_t i = 0; p->markers && i < p->n; i++) {
        struct err why = ERR_INIT;
        if (p->markers[i][0] && blobs_delete(repo_blobs(m->r), p->markers[i], &why) < 0)
            log_warning("session marker %s is left for maintenance to delete: %s", p->markers[i], why.msg);
    }
}

/* ---- publishing ---- */

/* In a dry run the table gets into the view only. */
static int table_write(struct repair *m, const char *session, const uint8_t *data, size_t len, struct err *e)
{
    struct index_shard_data table = {.data = data, .len = len};
    char name[1][BLOB_NAME_MAX + 1];
    int rc = 0;
    if (m->o->dry_run) {
        char prefix[48];
        CLEANUP_FREE uint8_t *sealed = NULL;
        size_t sealed_len;
        snprintf(prefix, sizeof prefix, "xn0_");
        rc = named_seal(repo_sealer(m->r), prefix, session, data, len, name[0], &sealed, &sealed_len, e);
    }
    /* The epoch advanced twice meanwhile, nothing was left: once more, with a new listing. */
    for (int tries = 0; !m->o->dry_run && (tries == 0 || (rc == -EAGAIN && tries < 3)); tries++)
        rc = epoch_write_indexes(repo_blobs(m->r), repo_sealer(m->r), repo_format(m->r), session, &table, 1, name, e);
    m->ret->written += rc == 0;
    if (rc == 0)
        rc = index_set_add(repo_index(m->r), name[0], data, len, e);
    if (m->o->dry_run) /* a later run would take it for what this node has seen */
        index_set_forget(repo_index(m->r), name[0]);
    return rc;
}

static int entries_write(struct repair *m, const char *session, const struct index_entry *entries, size_t n,
                         struct err *e)
{
    CLEANUP_FREE uint8_t *data = NULL;
    size_t len;
    int rc = index_build(entries, n, repo_format(m->r)->index_version, false, &data, &len, e);
    return rc == 0 ? table_write(m, session, data, len, e) : rc;
}

static void count_batch(struct repair *m)
{
    for (size_t i = 0; i < m->n_batch; i++) {
        const struct index_entry *x = &m->batch[i];
        if (x->deleted)
            m->ret->marks++;
        else
            m->ret->contents = (struct maintain_sum){m->ret->contents.n + 1, m->ret->contents.bytes + x->packed};
    }
}

/*
 * A maintenance that had begun before the markers were there may have deleted a pack: its contents are marked deleted,
 * so that no client takes them for stored. Leaves these in the batch.
 */
static int keep_vanished(struct repair *m, struct err *e)
{
    size_t kept = 0;
    int rc = 0;
    for (size_t i = 0; i < m->n_batch; i++) {
        struct pack_record *p = pack_table_find(m->packs, m->batch[i].pack);
        struct blob_info info;
        struct err own = ERR_INIT;
        if (p && (p->damage & REPAIR_IN_BATCH)) {
            p->damage &= ~REPAIR_IN_BATCH;
            rc = blobs_stat(repo_blobs(m->r), m->batch[i].pack, &info, &own);
            if (rc < 0 && rc != -ENOENT) {
                *e = own;
                return rc;
            }
            if (rc == -ENOENT) {
                p->length = 0; /* by which its other entries are known */
                m->ret->vanished++;
            }
        }
        if (m->batch[i].deleted || !p || p->length)
            continue;
        m->batch[kept] = m->batch[i];
        m->batch[kept].deleted = true;
        m->batch[kept++].time++;
    }
    m->n_batch = kept;
    return 0;
}

static int batch_write(struct repair *m, const char *session, struct err *e)
{
    CLEANUP(protected_clear) struct protected p = {.n = 0};
    int rc = find_sessions(m, session, &p, e);
    if (rc == 0 && !m->o->dry_run)
        rc = markers_put(m, &p, e);
    crash_point("repair-marked");
    if (rc == 0)
        rc = entries_write(m, session, m->batch, m->n_batch, e);
    crash_point("repair-written");
    if (rc == 0)
        count_batch(m);
    if (rc == 0)
        rc = keep_vanished(m, e);
    if (rc == 0 && m->n_batch)
        rc = entries_write(m, session, m->batch, m->n_batch, e);
    markers_delete(m, &p);
    return rc < 0 ? err_wrap(e, "cannot put contents into the index again") : 0;
}

int repair_publish(struct repair *m, struct err *e)
{
    char session[SESSION_ID_TEXT];
    int rc = repair_stopped(m, e);
    if (rc < 0 || !m->n_batch)
        return rc;
    m->n_batch = index_sort(m->batch, m->n_batch);
    if (!m->o->dry_run)
        rc = repo_keep_fresh(m->r, e); /* an upgrade lock ends all work */
    if (rc == 0)
        rc = session_id_new(session, now_ns(), e);
    if (rc == 0)
        rc = batch_write(m, session, e);
    m->n_batch = 0;
    return rc;
}

int repair_add(struct repair *m, const struct index_entry *x, struct err *e)
{
    if (!m->batch && !(m->batch = malloc(BATCH * sizeof *m->batch)))
        return err_nomem(e);
    m->batch[m->n_batch++] = *x;
    return m->n_batch < BATCH ? 0 : repair_publish(m, e);
}

/* ---- epochs ---- */

/* The write epoch is at least that of any flush, and two ahead of every epoch that was compacted. */
static int64_t epoch_by_names(const struct repair *m)
{
    int64_t most = 0;
    for (size_t i = 0; i < m->n_listed; i++) {
        const char *name = m->listed[i].name;
        struct epoch_range r = {0, -1};
        int64_t epoch = -1;
        if (!name[0] || index_set_leaves_out(repo_index(m->r), name))
            continue;
        if (name[1] == 'n')
            epoch = epoch_of_name(name);
        else if (name[1] == 's')
            epoch = epoch_of_name(name) >= 0 ? epoch_of_name(name) + 2 : -1;
        else if (name[1] == 'r' && epoch_range_of_name(name, &r))
            epoch = r.max + 2;
        if (epoch > most && epoch <= EPOCH_MAX)
            most = epoch;
    }
    return most;
}

int repair_epoch(struct repair *m, struct err *e)
{
    static const char payload[] = "epoch-marker";
    const int64_t epoch = epoch_by_names(m);
    char name[32];
    int64_t marked = 0;
    for (size_t i = 0; i < m->n_listed; i++) {
        const int64_t n = m->listed[i].name[1] == 'e' ? epoch_of_name(m->listed[i].name) : -1;
        marked = n > marked ? n : marked;
    }
    if (epoch <= marked)
        return 0;
    m->ret->write_epoch = epoch;
    index_set_least_epoch(repo_index(m->r), epoch);
    if (m->o->dry_run)
        return 0;
    snprintf(name, sizeof name, "xe%" PRId64, epoch);
    int rc = blobs_put(repo_blobs(m->r), name, payload, sizeof payload - 1, e);
    crash_point("repair-epoch");
    return rc;
}

static int first_entry(const struct index_entry *x, void *arg)
{
    if (x->deleted)
        return 0;
    *(struct index_entry *)arg = *x;
    return 1;
}

struct names {
    struct repair *m;
    struct blob_info *b;
    size_t n, cap;
};

static int name_listed(const struct blob_info *i, void *arg)
{
    struct names *l = arg;
    if (index_set_leaves_out(repo_index(l->m->r), i->name))
        return 0;
    if (l->n == l->cap) {
        const size_t cap = l->cap ? 2 * l->cap : 256;
        void *p = reallocarray(l->b, cap, sizeof *l->b);
        if (!p)
            return err_nomem(l->m->e);
        l->b = p;
        l->cap = cap;
    }
    l->b[l->n++] = *i;
    return 0;
}

/*
 * An epoch before the write epoch without index blobs stops maintenance of all clients. It gets one, with an entry that
 * another one has, too. It is of the kind that clients write, which replaces nothing: if the lost ones come back, they
 * are read as well.
 */
static int stand_in(struct repair *m, int64_t epoch, const uint8_t *data, size_t len, struct err *e)
{
    char prefix[32], session[SESSION_ID_TEXT], suffix[SESSION_ID_TEXT + 8];
    char name[BLOB_NAME_MAX + 1], full[BLOB_NAME_MAX + 1];
    CLEANUP_FREE uint8_t *sealed = NULL;
    size_t sealed_len;
    int rc = session_id_new(session, now_ns(), e);
    if (rc < 0)
        return rc;
    snprintf(prefix, sizeof prefix, "xn%" PRId64 "_", epoch);
    snprintf(suffix, sizeof suffix, "%s-c1", session);
    rc = named_seal(repo_sealer(m->r), "", suffix, data, len, name, &sealed, &sealed_len, e);
    if (rc < 0)
        return rc;
    if (snprintf(full, sizeof full, "%s%s", prefix, name) >= (int)sizeof full)
        return err_set(e, ERR_GENERIC, ENAMETOOLONG, "name of index blob %s is too long", name);
    if (!m->o->dry_run)
        rc = blobs_put(repo_blobs(m->r), full, sealed, sealed_len, e);
    crash_point("repair-stand-in");
    m->ret->epochs += rc == 0;
    m->ret->written += rc == 0;
    return rc;
}

/* What they all get; NULL: an index without contents. */
static int stand_in_data(struct repair *m, uint8_t **data, size_t *len, struct err *e)
{
    struct index_entry any;
    const int rc = index_set_each(repo_index(m->r), -1, first_entry, &any, e);
    return rc <= 0 ? rc : index_build(&any, 1, repo_format(m->r)->index_version, false, data, len, e);
}

/* Too many: nothing is written. */
static int check_number(const struct epoch_listing *l, struct err *e)
{
    unsigned n = 0;
    int64_t epoch = -1;
    while ((epoch = epoch_missing(l, epoch + 1, e)) >= 0)
        if (++n > LOST_EPOCHS) {
            err_set(e, ERR_DAMAGE, EBADMSG, "more than %d epochs before epoch %" PRId64 " have no index blobs",
                    LOST_EPOCHS, l->write_epoch);
            return err_hint(e, "a marker xe%" PRId64 " that no client has written? Move it away, and repair again",
                            l->write_epoch);
        }
    return epoch == -1 ? 0 : (int)epoch;
}

static int stand_ins(struct repair *m, const struct epoch_listing *l, struct err *e)
{
    CLEANUP_FREE uint8_t *data = NULL;
    size_t len = 0;
    int64_t epoch = epoch_missing(l, 0, e);
    int rc = epoch < 0 ? 0 : check_number(l, e);
    if (rc == 0 && epoch >= 0)
        rc = stand_in_data(m, &data, &len, e);
    while (rc == 0 && data && epoch >= 0) {
        rc = repair_stopped(m, e);
        if (rc == 0)
            rc = stand_in(m, epoch, data, len, e);
        if (rc == 0)
            epoch = epoch_missing(l, epoch + 1, e);
    }
    return rc == 0 && epoch < -1 ? (int)epoch : rc;
}

int repair_lost_epochs(struct repair *m, struct err *e)
{
    CLEANUP(epoch_listing_clear) struct epoch_listing all = {0};
    struct names l = {.m = m};
    struct index_set_stats is;
    struct blob_info marker = {.name = ""};
    index_set_stats(repo_index(m->r), &is);
    snprintf(marker.name, sizeof marker.name, "xe%" PRId64, is.write_epoch);
    int rc = blobs_list(repo_blobs(m->r), "x", name_listed, &l, e);
    if (rc == 0)
        rc = name_listed(&marker, &l); /* in a dry run it is not there */
    if (rc < 0) {
        free(l.b);
        return rc;
    }
    rc = epoch_listing_make(&all, l.b, l.n, e);
    return rc == 0 ? stand_ins(m, &all, e) : rc;
}

/* ---- what is left of sets ---- */

/* Where "-s<id>-c<n>" begins in the name of a blob of a set, and how many there are; NULL: it is one by itself. */
static const char *set_of(const char *name, unsigned *count)
{
    const char *set = strstr(name, "-s"), *c = set ? strstr(set + 1, "-c") : NULL;
    return c && sscanf(c, "-c%u", count) == 1 ? set : NULL;
}

/* Of the same epoch, and of the same set or (`set` NULL) what flushes wrote. */
static size_t count_like(const struct repair *m, int64_t epoch, const char *set)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_listed; i++) {
        const char *name = m->listed[i].name;
        unsigned count;
        if (!name[0] || name[1] != (set ? 's' : 'n') || epoch_of_name(name) != epoch ||
            index_set_leaves_out(repo_index(m->r), name))
            continue;
        const char *own = set ? set_of(name, &count) : NULL;
        n += !set || (own && !strcmp(own, set));
    }
    return n;
}

static bool set_is_damaged(const struct repair *m, int64_t epoch, const char *set)
{
    for (size_t i = 0; i < m->n_bad; i++) {
        unsigned count;
        const char *own = m->bad[i].name[1] == 's' ? set_of(m->bad[i].name, &count) : NULL;
        if (own && epoch_of_name(m->bad[i].name) == epoch && !strcmp(own, set))
            return true;
    }
    return false;
}

/*
 * Other parts of a compacted set are damaged, or are gone with what the set had replaced. Maintenance takes the rest
 * for what an interrupted run has left, does not find it in the index blobs of its epoch, and ends.
 */
int repair_partial_sets(struct repair *m, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < m->n_listed; i++) {
        const char *name = m->listed[i].name;
        unsigned count = 0;
        if (!name[0] || name[1] != 's' || index_set_leaves_out(repo_index(m->r), name) ||
            index_set_views(repo_index(m->r), name))
            continue;
        const int64_t epoch = epoch_of_name(name);
        const char *set = set_of(name, &count);
        if (!set || epoch < 0 || count_like(m, epoch, set) >= count)
            continue;
        if (set_is_damaged(m, epoch, set) || !count_like(m, epoch, NULL))
            rc = repair_leave_out(m, name, NULL, e);
    }
    return rc;
}

/* ---- damaged index blobs ---- */

/* A name that no blob has. */
static int name_aside(struct repair *m, const char *name, char out[BLOB_NAME_MAX + 1], struct err *e)
{
    for (unsigned i = 1; i <= ASIDE_NAMES; i++) {
        struct blob_info info;
        struct err own = ERR_INIT;
        char number[16] = "";
        if (i > 1)
            snprintf(number, sizeof number, "%u-", i);
        if (snprintf(out, BLOB_NAME_MAX + 1, "damaged-%s%s", number, name) > BLOB_NAME_MAX)
            return err_set(e, ERR_GENERIC, ENAMETOOLONG, "name of index blob %s is too long", name);
        int rc = blobs_stat(repo_blobs(m->r), out, &info, &own);
        if (rc == -ENOENT)
            return 0;
        if (rc < 0) {
            *e = own;
            return rc;
        }
    }
    return err_plain(e, ERR_EXISTS, EEXIST, "index blob %s was set aside %d times", name, ASIDE_NAMES);
}

static int set_one_aside(struct repair *m, const struct repair_aside *x, struct err *e)
{
    const char *name = x->name;
    struct blob_info info = {.name = ""};
    struct err own = ERR_INIT;
    char aside[BLOB_NAME_MAX + 1];
    int rc = blobs_stat(repo_blobs(m->r), name, &info, &own);
    /* It may be gone, or be whole: what reads may be wrong once. */
    if (rc == 0)
        rc = index_set_check_blob(repo_index(m->r), &info, &own);
    if (rc == 0 && !x->whole)
        log_warning("index blob %s can be read now: it stays where it is", name);
    if ((rc == 0 && !x->whole) || (rc == -ENOENT && own.cls == ERR_DAMAGE))
        return 0;
    if (rc < 0 && !index_set_is_bad(repo_index(m->r), &info, rc, &own)) {
        *e = own;
        return rc;
    }
    rc = name_aside(m, name, aside, e);
    if (rc == 0 && !m->o->dry_run)
        rc = blobs_move(repo_blobs(m->r), name, aside, e);
    if (rc < 0)
        return err_wrap(e, "cannot set index blob %s aside", name);
    crash_point("repair-aside");
    m->ret->aside++;
    m->o->report(REPAIR_ASIDE, aside, "", 0, m->o->arg);
    return 0;
}

int repair_set_aside(struct repair *m, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < m->n_bad; i++) {
        rc = repair_stopped(m, e);
        if (rc == 0)
            rc = set_one_aside(m, &m->bad[i], e);
    }
    return rc;
}
