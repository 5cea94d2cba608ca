/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/epoch-tidy.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/crash.h"
#include "base/team.h"
#include "base/time.h"
#include "base/units.h"
#include "repo/item.h"
#include "repo/marker.h"
#include "repo/repo-impl.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SHARD 131072 /* entries of a compacted blob */
/* What was put within this time is left out where lists are compared: others may be writing. As long as stock clients
 * rely on a list of index blobs, and the difference of clocks. */
#define RECENT_NS (25 * NS_PER_MIN)
#define VIEW_ATTEMPTS 5
#define BESIDE ((uint64_t)256 << 10) /* room that directories and the history of runs need */

/* ---- listing ---- */

struct listed {
    struct blob_info *b;
    size_t n;
    struct err *e;
};

static int blob_listed(const struct blob_info *info, void *arg)
{
    struct listed *l = arg;
    if ((l->n & (l->n - 1)) == 0) {
        void *p = realloc(l->b, (l->n ? 2 * l->n : 1) * sizeof *l->b);
        if (!p)
            return err_nomem(l->e);
        l->b = p;
    }
    l->b[l->n++] = *info;
    return 0;
}

/* 1: the view lacks something that is listed. */
static int list_and_compare(struct repo *r, struct epoch_listing *ret, struct err *e)
{
    struct listed l = {.e = e};
    int rc = blobs_list(r->blobs, "x", blob_listed, &l, e);
    if (rc < 0) {
        free(l.b);
        return rc;
    }
    rc = epoch_listing_make(ret, l.b, l.n, e);
    return rc < 0 || !blobs_lists_lag(r->blobs) ? rc
                                                : index_set_recall(r->index, ret->b, ret->n, now_ns() - RECENT_NS, e);
}

static int list_index(struct repo *r, struct epoch_listing *ret, struct err *e)
{
    const int rc = list_and_compare(r, ret, e);
    return rc > 0 ? 0 : rc;
}

/* A listing in which every epoch has index blobs. */
static int check_epochs(const struct epoch_listing *l, struct err *e)
{
    const int64_t epoch = epoch_missing(l, 0, e);
    if (epoch < 0)
        return epoch == -1 ? 0 : (int)epoch;
    err_set(e, ERR_DAMAGE, EBADMSG,
            "all index blobs of epoch %" PRId64 " are lost (the write epoch is %" PRId64 "): nothing is removed", epoch,
            l->write_epoch);
    return err_hint(e, "run `repo repair` to rebuild the index from the packs, and verify; see "
                       "snapferry-recovery(7)");
}

int tidy_check(struct repo *r, struct err *e)
{
    int rc = 1;
    for (unsigned i = 0; rc == 1 && i < VIEW_ATTEMPTS; i++) {
        CLEANUP(epoch_listing_clear) struct epoch_listing l = {0};
        rc = list_and_compare(r, &l, e);
        const bool behind = rc == 1;
        if (rc >= 0)
            rc = check_epochs(&l, e);
        if (rc == 0 && behind)
            rc = index_set_refresh(r->index, e);
        if (rc == 0 && behind)
            rc = 1;
    }
    if (rc != 1)
        return rc;
    err_plain(e, ERR_GENERIC, EAGAIN, "lists of index blobs in %s differ from one another", blobs_location(r->blobs));
    return err_hint(e, "lists of this storage lag behind: nothing was removed; run it again when the service is well");
}

/* ---- comparing ---- */

/* Two merges that give the same entries in the same order have the same digest. */
struct digest {
    uint64_t a, b, count;
    struct repo *r;
    struct err *e;
};

static void mix(struct digest *d, const void *data, size_t len)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < len; i++) {
        d->a = (d->a ^ p[i]) * UINT64_C(1099511628211);
        d->b = (d->b + p[i] + 1) * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    }
}

static void digest_entry(struct digest *d, const struct index_entry *x)
{
    const uint64_t numbers[] = {x->offset,
                                x->packed,
                                x->length,
                                x->compression,
                                (uint64_t)x->time,
                                (uint64_t)x->deleted << 32 | (uint64_t)x->format_version << 16 | x->key_id,
                                (uint64_t)(uint8_t)x->id.prefix << 8 | x->id.len};
    mix(d, numbers, sizeof numbers);
    mix(d, x->id.hash, x->id.len);
    mix(d, x->pack, strlen(x->pack) + 1);
    d->count++;
}

static int digest_merged(const struct index_entry *x, enum index_standing standing, void *arg)
{
    struct digest *d = arg;
    (void)standing;
    digest_entry(d, x);
    return d->count & 0xfff ? 0 : blobs_stopped(d->r->blobs, d->e);
}

static int digest_blobs(struct repo *r, const struct blob_info *b, size_t n, struct digest *ret, struct err *e)
{
    *ret = (struct digest){.a = UINT64_C(14695981039346656037), .r = r, .e = e};
    return index_set_merge(r->index, b, n, digest_merged, ret, e);
}

static bool digest_equal(const struct digest *x, const struct digest *y)
{
    return x->a == y->a && x->b == y->b && x->count == y->count;
}

/* ---- compacting ---- */

struct compaction {
    struct repo *r;
    const char *prefix; /* "xs12_" */
    char suffix[64];
    uint64_t total;
    size_t shards, done;
    char (*names)[BLOB_NAME_MAX + 1];
    struct index_entry *batch;
    size_t n;
    struct digest in, out;
    struct err *e;
};

/* What a reader will find in the table. */
static int digest_table(struct compaction *c, const uint8_t *data, size_t len)
{
    struct index_table t;
    struct index_entry x;
    int rc = index_parse(&t, data, len, c->e);
    for (uint64_t i = 0; rc == 0 && i < t.count; i++) {
        rc = index_entry_at(&t, i, &x, c->e);
        if (rc == 0)
            digest_entry(&c->out, &x);
    }
    return rc;
}

static int shard_put(struct compaction *c)
{
    CLEANUP_FREE uint8_t *data = NULL, *sealed = NULL;
    char name[BLOB_NAME_MAX + 1];
    size_t len, sealed_len;
    if (c->done == c->shards)
        return err_set(c->e, ERR_GENERIC, 0, "more entries than before while index blobs were compacted");
    int rc = index_build(c->batch, c->n, repo_format(c->r)->index_version, false, &data, &len, c->e);
    if (rc == 0)
        rc = digest_table(c, data, len);
    if (rc == 0)
        rc = named_seal(c->r->sealer, "", c->suffix, data, len, name, &sealed, &sealed_len, c->e);
    if (rc < 0)
        return rc;
    /* The last one makes the set complete: from then on clients read it instead of what it replaces. */
    if (c->done + 1 == c->shards && !digest_equal(&c->in, &c->out))
        return err_set(c->e, ERR_DAMAGE, EBADMSG, "compacted index blobs differ from what they replace; discarded");
    char *full = c->names[c->done];
    if (snprintf(full, BLOB_NAME_MAX + 1, "%s%s", c->prefix, name) > BLOB_NAME_MAX)
        return err_set(c->e, ERR_GENERIC, ENAMETOOLONG, "name of index blob %s is too long", name);
    rc = blobs_put(c->r->blobs, full, sealed, sealed_len, c->e);
    crash_point("maintenance-compacting");
    c->done += rc == 0;
    c->n = 0;
    return rc;
}

static int compact_entry(const struct index_entry *x, enum index_standing standing, void *arg)
{
    struct compaction *c = arg;
    (void)standing;
    c->batch[c->n++] = *x;
    if (c->n < SHARD)
        return 0;
    int rc = blobs_stopped(c->r->blobs, c->e);
    return rc < 0 ? rc : shard_put(c);
}

/* Before anything is written: what is left of a set that was interrupted would take up the last room. */
static int check_room(const struct repo *r, const struct blob_info *in, size_t n, struct err *e)
{
    struct blob_room room;
    uint64_t bytes = BESIDE;
    for (size_t i = 0; i < n; i++)
        bytes += in[i].length + in[i].length / 8;
    if (blobs_room(r->blobs, &room, NULL) < 0 || room.free >= bytes)
        return 0;
    err_set(e, ERR_NO_SPACE, ENOSPC,
            "compacting %zu index blob%s needs %" PRIu64 " KiB, %" PRIu64 " KiB are free in %s", n, plural(n),
            bytes >> 10, room.free >> 10, blobs_location(r->blobs));
    return -ENOSPC;
}

/* Merges blobs into one set, deleted entries included. */
static int compact(struct repo *r, const char *prefix, const struct blob_info *in, size_t n, struct err *e)
{
    struct compaction c = {.r = r, .prefix = prefix, .e = e};
    uint8_t random[8];
    char hex[17];
    int rc = check_room(r, in, n, e);
    if (rc == 0)
        rc = digest_blobs(r, in, n, &c.in, e);
    if (rc == 0)
        rc = random_bytes(random, sizeof random, e);
    if (rc < 0 || c.in.count == 0)
        return rc;
    c.total = c.in.count;
    c.shards = (size_t)((c.total + SHARD - 1) / SHARD);
    c.out = (struct digest){.a = UINT64_C(14695981039346656037)};
    snprintf(c.suffix, sizeof c.suffix, "s%s-c%zu", hex_encode(hex, random, sizeof random), c.shards);
    char(*names)[BLOB_NAME_MAX + 1] CLEANUP_FREE = calloc(c.shards, sizeof *names);
    struct index_entry *batch CLEANUP_FREE = malloc((c.total < SHARD ? c.total : SHARD) * sizeof *batch);
    if (!names || !batch)
        return err_nomem(e);
    c.names = names;
    c.batch = batch;
    rc = index_set_merge(r->index, in, n, compact_entry, &c, e);
    if (rc == 0 && c.n)
        rc = shard_put(&c);
    if (rc == 0 && c.done != c.shards)
        rc = err_set(e, ERR_GENERIC, 0, "fewer entries than before while index blobs were compacted");
    for (size_t i = 0; rc < 0 && i < c.shards; i++) {
        struct err ignored = ERR_INIT;
        if (names[i][0])
            blobs_delete(r->blobs, names[i], &ignored);
    }
    return rc;
}

/* What is left of a compaction that was interrupted is contained in what was to be compacted. If it is not, index blobs
 * have been deleted, so the set was complete: the list lacks some of it, and what is listed must not replace it. */
static int check_partial(struct repo *r, const struct epoch_listing *l, int64_t epoch, const struct blob_info *in,
                         size_t n, struct err *e)
{
    CLEANUP_FREE struct blob_info *both = malloc((l->n + n + 1) * sizeof *both);
    struct digest alone, together;
    size_t all = n;
    if (!both)
        return err_nomem(e);
    memcpy(both, in, n * sizeof *both);
    for (size_t i = 0; i < l->n; i++)
        if (l->b[i].name[1] == 's' && epoch_of_name(l->b[i].name) == epoch)
            both[all++] = l->b[i];
    if (all == n)
        return 0;
    int rc = digest_blobs(r, in, n, &alone, e);
    if (rc == 0)
        rc = digest_blobs(r, both, all, &together, e);
    if (rc < 0 || digest_equal(&alone, &together))
        return rc;
    err_set(e, ERR_DAMAGE, EBADMSG,
            "the compacted index of epoch %" PRId64 " is incomplete, and index blobs that it replaces are gone", epoch);
    return err_hint(e, "nothing was changed; if lists of this storage lag behind, run it again later, else "
                       "`repo repair`");
}

int tidy_single_epochs(struct repo *r, bool dry_run, struct epoch_tidied *ret, struct err *e)
{
    for (;;) {
        CLEANUP(epoch_listing_clear) struct epoch_listing l = {0};
        CLEANUP_FREE struct blob_info *in = NULL;
        size_t n;
        char prefix[32];
        int rc = list_index(r, &l, e);
        if (rc < 0)
            return rc;
        int64_t epoch = epoch_single_due(&l, &in, &n, e);
        if (epoch < 0)
            return epoch == -1 && !n ? 0 : (int)epoch;
        ret->compacted++;
        if (dry_run)
            return 0;
        rc = check_partial(r, &l, epoch, in, n, e);
        if (rc < 0)
            return rc;
        snprintf(prefix, sizeof prefix, "xs%" PRId64 "_", epoch);
        rc = compact(r, prefix, in, n, e);
        if (rc < 0)
            return err_wrap(e, "epoch %" PRId64 " of the index", epoch);
    }
}

int tidy_range(struct repo *r, bool dry_run, struct epoch_tidied *ret, struct err *e)
{
    CLEANUP(epoch_listing_clear) struct epoch_listing l = {0};
    CLEANUP_FREE struct blob_info *in = NULL;
    size_t n = 0;
    char prefix[64];
    int rc = list_index(r, &l, e);
    if (rc < 0)
        return rc;
    rc = check_epochs(&l, e);
    if (rc < 0)
        return rc;
    int64_t last = epoch_range_due(&l, &repo_format(r)->epochs, &in, &n, e);
    if (last < 0)
        return last == -1 ? 0 : (int)last;
    ret->ranged = true;
    if (dry_run)
        return 0;
    snprintf(prefix, sizeof prefix, "xr%" PRId64 "_%" PRId64 "_", l.first, last);
    rc = compact(r, prefix, in, n, e);
    return rc < 0 ? err_wrap(e, "epochs %" PRId64 " to %" PRId64 " of the index", l.first, last) : 0;
}

int tidy_advance(struct repo *r, bool dry_run, struct epoch_tidied *ret, struct err *e)
{
    static const char payload[] = "epoch-marker";
    CLEANUP(epoch_listing_clear) struct epoch_listing l = {0};
    char name[32];
    int rc = list_index(r, &l, e);
    if (rc < 0)
        return rc;
    ret->write_epoch = l.write_epoch;
    if (!epoch_advance_due(&l, &repo_format(r)->epochs) || l.write_epoch >= INT64_MAX - 2)
        return 0;
    ret->advanced = true;
    ret->write_epoch++;
    if (dry_run)
        return 0;
    snprintf(name, sizeof name, "xe%" PRId64, ret->write_epoch);
    rc = blobs_put(r->blobs, name, payload, sizeof payload - 1, e);
    crash_point("maintenance-advanced");
    return rc;
}

/* ---- deleting ---- */

int tidy_markers(struct repo *r, bool dry_run, struct epoch_tidied *ret, struct err *e)
{
    CLEANUP(epoch_listing_clear) struct epoch_listing l = {0};
    CLEANUP_FREE struct blob_info *old = NULL;
    size_t n = 0;
    int rc = list_index(r, &l, e);
    if (rc == 0)
        rc = epoch_old_markers(&l, &repo_format(r)->epochs, &old, &n, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (!dry_run)
            rc = blobs_delete(r->blobs, old[i].name, e);
        ret->markers += rc == 0;
    }
    return rc;
}

/* The compacted set of an epoch, as clients read it. */
static int set_of_epoch(const struct epoch_listing *l, int64_t epoch, struct blob_info **ret, size_t *n, struct err *e)
{
    /* By the rule of clients, from a listing of this epoch's blobs alone. */
    struct epoch_listing only = *l;
    only.write_epoch = epoch + 2;
    only.first = epoch;
    const struct epoch_params p = {.full_checkpoint = 0};
    return epoch_range_due(&only, &p, ret, n, e) < 0 ? -EIO : 0;
}

/* A blob that is younger than the set of its epoch was written too late: nobody reads it, and its writer, who looks at
 * the epochs once more, deletes it and writes it again elsewhere. One that was killed before that leaves it: it is left
 * alone until whatever it refers to has been collected. Moves those that are not late to the front; returns how many.
 */
static size_t not_late(const struct blob_info *set, size_t k, struct blob_info *old, size_t n)
{
    int64_t made_ns = INT64_MIN;
    size_t kept = 0;
    for (size_t i = 0; i < k; i++)
        made_ns = set[i].mtime_ns > made_ns ? set[i].mtime_ns : made_ns;
    for (size_t i = 0; i < n; i++) {
        if (old[i].mtime_ns > made_ns)
            log_warning("index blob %s was written after its epoch was compacted, by a client that was interrupted: it "
                        "is not used",
                        old[i].name);
        else
            old[kept++] = old[i];
    }
    return kept;
}

/* Every blob of the set is in the store, undamaged, and those to be deleted add nothing to it. *count: how many of
 * `old` there are, and are to be deleted. */
static int check_covered(struct repo *r, const struct epoch_listing *l, int64_t epoch, struct blob_info *old,
                         size_t *count, struct err *e)
{
    size_t n;
    CLEANUP_FREE struct blob_info *set = NULL, *both = NULL;
    struct digest alone, together;
    size_t k = 0;
    int rc = set_of_epoch(l, epoch, &set, &k, e);
    for (size_t i = 0; rc == 0 && i < k; i++)
        rc = set[i].name[1] == 's' ? index_set_check_blob(r->index, &set[i], e) : -EIO;
    if (rc < 0)
        return e->cls ? rc : err_set(e, ERR_DAMAGE, EBADMSG, "epoch %" PRId64 " of the index is not compacted", epoch);
    *count = n = not_late(set, k, old, *count);
    both = malloc((n + k) * sizeof *both);
    if (!both)
        return err_nomem(e);
    memcpy(both, set, k * sizeof *both);
    memcpy(both + k, old, n * sizeof *both);
    rc = digest_blobs(r, set, k, &alone, e);
    if (rc == 0)
        rc = digest_blobs(r, both, n + k, &together, e);
    if (rc == 0 && !digest_equal(&alone, &together)) {
        err_set(e, ERR_DAMAGE, EBADMSG,
                "the compacted index of epoch %" PRId64 " lacks entries of the blobs that it replaces", epoch);
        return err_hint(e, "nothing was deleted; see snapferry-recovery(7)");
    }
    return rc;
}

/* Index blobs that a compacted set replaces. */
struct deletion {
    struct repo *r;
    const struct blob_info *old;
    bool dry_run;
    pthread_mutex_t lock; /* of */
    struct epoch_tidied *ret;
};

static int delete_one(void *arg, size_t i, struct err *e)
{
    struct deletion *d = arg;
    const int rc = d->dry_run ? 0 : blobs_delete(d->r->blobs, d->old[i].name, e);
    crash_point("maintenance-superseded");
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&d->lock);
    d->ret->superseded++;
    d->ret->bytes += d->old[i].length;
    pthread_mutex_unlock(&d->lock);
    return 0;
}

int tidy_superseded(struct repo *r, bool dry_run, struct epoch_tidied *ret, struct err *e)
{
    CLEANUP(epoch_listing_clear) struct epoch_listing l = {0};
    CLEANUP_FREE struct blob_info *old = NULL;
    size_t n = 0, end;
    int rc = list_index(r, &l, e);
    if (rc == 0)
        rc = epoch_superseded(&l, &repo_format(r)->epochs, &old, &n, e);
    for (size_t i = 0; rc == 0 && i < n; i = end) {
        const int64_t epoch = epoch_of_name(old[i].name);
        for (end = i; end < n && epoch_of_name(old[end].name) == epoch; end++)
            ;
        size_t count = end - i;
        rc = check_covered(r, &l, epoch, old + i, &count, e);
        struct deletion d = {r, old + i, dry_run, PTHREAD_MUTEX_INITIALIZER, ret};
        if (rc == 0)
            rc = team_run(blobs_are_files(r->blobs) || dry_run ? 1 : TEAM_FAR, count, delete_one, &d, e);
        pthread_mutex_destroy(&d.lock);
    }
    return rc;
}
