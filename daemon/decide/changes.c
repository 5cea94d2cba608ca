/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * changes.c - whether only what changed is read: the parent, the list of changes, what the mover made of it
 *
 * The parent is the last complete backup of the volume in this repository whose native snapshot is still there, or a
 * bookmark of it: that one is kept for it (RS-28). What differs between it and the new native snapshot is listed by a
 * step, once for each attempt; the mover gets the list and the parent's snapshot id, looks for that snapshot in the
 * repository as it is now, and checks that it was made of this very native snapshot. Wherever something is missing all
 * data is read: never an error, and the record says why (CF-10).
 */
#include "base/cleanup.h"
#include "base/time.h"
#include "daemon/decide/decide.h"
#include "daemon/records/driver-kind.h"
#include "daemon/records/opaque.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_S 600  /* longest time for listing changes */
#define SAMPLE_S 60 /* longest time for verify-sample */
#define FULL_EVERY_S (30 * 86400)
#define SAMPLE_PPM 1000

struct parent_search {
    struct decide *d;
    const struct operation *op;
    const struct native_row *best;
    bool lost; /* there was one */
};

static bool is_of_repository(const struct native_row *n, const struct operation *op)
{
    return !strcmp(n->native->repository, op->policy->repository);
}

static int base_consider(const struct native_row *seen, void *arg)
{
    struct parent_search *x = arg;
    const struct native_row *n = native_row_peek(x->d->records, seen->id);
    if (!n || !n->cbt_parent || !is_of_repository(n, x->op) || !strcmp(n->id, x->op->native))
        return 0;
    if (n->state != NATIVE_PRESENT && !native_row_is_bookmark(n)) {
        x->lost = true;
        return 0;
    }
    if (n->moved && n->moved_verified && !n->expired && n->snapshot[0] && n->native->change_id[0] &&
        (!x->best || n->seq > x->best->seq))
        x->best = n;
    return 0;
}

/* Operations that an earlier version recorded have no full-every: as if they had the default. */
static bool is_due(const struct policy *policy, const struct native_row *parent, int64_t now)
{
    const int64_t every = policy->full_every_s < 0 ? FULL_EVERY_S : policy->full_every_s;
    return every && now - parent->full_ns >= every * NS_PER_S;
}

/* The row is borrowed from the records; NULL: *why is the reason. */
static const struct native_row *parent_choose(struct decide *d, const struct operation *op, enum full_reason *why)
{
    const struct native_row_filter of_volume = {.volume_id = op->volume_id};
    const struct policy *policy = op->policy;
    struct parent_search x = {.d = d, .op = op};
    const struct volume_row *v = volume_row_peek(d->records, op->volume_id);
    *why = policy->full                ? FULL_FORCED
           : !policy->backup_read_only ? FULL_WRITABLE
           : v && v->distrusted_ns     ? FULL_DISTRUSTED
                                       : FULL_NONE;
    if (*why || native_row_each(d->records, &of_volume, base_consider, &x, NULL) < 0)
        return NULL;
    if (!x.best)
        *why = x.lost ? FULL_PARENT_LOST : FULL_NO_PARENT;
    else if (strcmp(x.best->klass->driver, op->own->driver) != 0)
        *why = FULL_PARENT_OTHER;
    else if (is_due(policy, x.best, decide_now(d)))
        *why = FULL_PERIODIC;
    return *why ? NULL : x.best;
}

static bool is_asked_for(const struct operation *op)
{
    return op->kind == KIND_BACKUP && op->policy->changed_blocks && !op->policy->mover[0] && op->policy->move_data;
}

/* Whether it was asked for, and its storage could tell at all; of all else nothing is recorded. */
static bool is_tracked(const struct operation *op)
{
    return is_asked_for(op) && !is_none(op->native_doc) && op->native_doc->change_id[0];
}

bool changes_want_bookmark(const struct operation *op)
{
    return is_asked_for(op) && op->policy->backup_read_only && driver_kind_of(op->own->driver)->has_bookmarks;
}

bool changes_expected(struct decide *d, const struct operation *op)
{
    enum full_reason why;
    return is_tracked(op) && parent_choose(d, op, &why) != NULL;
}

/* Who wants to read everything, because a list may be wrong, wants that of this list, too. */
static bool may_skip(enum full_reason why)
{
    return why != FULL_FORCED && why != FULL_PERIODIC && why != FULL_WRITABLE && why != FULL_DISTRUSTED;
}

bool changes_may_skip(struct decide *d, const struct operation *op)
{
    enum full_reason why;
    if (!is_tracked(op))
        return false;
    parent_choose(d, op, &why);
    return may_skip(why);
}

static void read_fully(struct operation *op, enum full_reason why, const char *text)
{
    op->full_reason = why;
    str_set(&op->full_why, text);
    str_clear(&op->base);
    str_clear(&op->base_snapshot);
    str_clear(&op->base_state);
    op->list_ranges = op->list_bytes = 0;
}

static int64_t list_s(struct decide *d, const struct operation *op)
{
    const int64_t half = prepare_left_s(d, op) / 2;
    return half < 1 ? 1 : half < LIST_S ? half : LIST_S;
}

bool changes_list(struct decide *d, struct operation *op)
{
    enum full_reason why;
    struct live *l = live_get(d, op->id);
    if (!l || l->changes_asked || !is_tracked(op))
        return false;
    const struct native_row *n = parent_choose(d, op, &why);
    read_fully(op, why, "");
    const bool allocated = exposure_read(op->exposure).allocated && may_skip(why);
    if (!n && !allocated) {
        l->changes_asked = true;
        operation_write(d, op);
        return false;
    }
    if (n) {
        str_set(&op->base, n->id);
        str_set(&op->base_snapshot, n->snapshot);
        str_set(&op->base_state, n->native->change_id);
    }
    json_t *base = n ? native_desc_to_json(n->native) : NULL;
    if (base && native_row_is_bookmark(n))
        jset_bool(base, "gone", true);
    if (base && native_row_is_bookmark(n) && n->why_removed[0])
        jset_bool(base, "removed", true);
    json_t *in = json_pack("{s:o,s:o*,s:o,s:O*}", "class", class_desc_to_json(op->own), "base", base, "native",
                           native_desc_to_json(op->native_doc), "allocated", allocated ? op->exposure : NULL);
    const int64_t seconds = list_s(d, op);
    if (in && op->policy->limits.read_limit) /* a list that is late costs a full read: then rather too fast */
        json_object_set_new(in, "reads",
                            json_pack("{s:I,s:s,s:I}", "rate", (json_int_t)op->policy->limits.read_limit, "times",
                                      op->policy->limits.limit_times, "seconds", (json_int_t)(seconds / 2)));
    operation_write(d, op);
    plan_work(d, ROW_OPERATION, op->id, WORK_CHANGES, in, seconds);
    plan_crash_point(d, "engine-changes-begun");
    return true;
}

void changes_skip(struct decide *d, struct operation *op)
{
    enum full_reason why;
    if (is_tracked(op)) {
        parent_choose(d, op, &why);
        read_fully(op, why ? why : FULL_NO_PARENT, "");
    }
}

void changes_listed(struct decide *d, struct operation *op, struct work_result *s)
{
    struct live *l = live_get(d, op->id);
    if (!l)
        return;
    /* If this event is looked at again the list is there already. */
    if (s->fd >= 0) {
        live_forget_changes(l);
        l->changes_fd = s->fd;
        s->fd = -1;
    }
    l->changes_asked = true;
    const bool compared = op->base[0];
    if (!compared)
        ; /* only what is allocated was asked for: why all data is read is known */
    else if (s->timed_out)
        read_fully(op, FULL_TIMEOUT, "");
    else if (s->err.cls)
        read_fully(op, FULL_FAILED, s->err.msg);
    else if (!s->answer.listed)
        read_fully(op, s->answer.doubt ? s->answer.doubt : FULL_FAILED, s->answer.why);
    else if (l->changes_fd < 0)
        read_fully(op, FULL_FAILED, "the list of changes was lost");
    op->list_ranges = op->base[0] ? s->answer.ranges : 0;
    op->list_bytes = op->base[0] ? s->answer.bytes : 0;
    if (compared && !op->base[0])
        plan_log(d, LOG_LVL_INFO, "%s: all data is read (%s)%s%s", operation_label(op),
                 full_reason_name(op->full_reason), op->full_why[0] ? ": " : "", op->full_why);
    operation_write(d, op);
    plan_crash_point(d, "engine-changes-listed");
}

const char *changes_member(const struct operation *op)
{
    return op->base[0] ? "incremental" : "allocated";
}

json_t *changes_job(const struct operation *op)
{
    json_t *job =
        json_pack("{s:s,s:I,s:I}", "source", op->own->driver, "sample_ppm",
                  (json_int_t)(op->policy->verify_sample_ppm < 0 ? SAMPLE_PPM : op->policy->verify_sample_ppm),
                  "sample_s", (json_int_t)SAMPLE_S);
    if (op->base[0]) {
        jset_str(job, "parent", op->base_snapshot);
        jset_str(job, "change_id", op->base_state);
    }
    return job;
}

/* ---- the end ---- */

/* Since when; 0: it is trusted again. */
static void volume_distrust(struct volume_row *v, const void *arg)
{
    v->distrusted_ns = *(const int64_t *)arg;
}

/* A full read that somebody asked for is how it is trusted again. */
static void trust_again(struct decide *d, const struct operation *op)
{
    static const int64_t never = 0;
    const struct volume_row *v = volume_row_peek(d->records, op->volume_id);
    if (!v || !v->distrusted_ns || op->kind != KIND_BACKUP || !op->policy->full)
        return;
    volume_note(d, op->volume, op->own->name, volume_distrust, &never);
    plan_log(d, LOG_LVL_INFO, "%s: all data was read on request: what driver %s lists as changed is used again",
             operation_label(op), op->own->driver);
}

/* What incremental backups of the class store for what has changed. */
static void count_amplification(struct decide *d, const struct operation *op)
{
    const struct {
        const char *counter;
        int64_t n;
    } all[] = {
        {"incremental_runs_total", 1},
        {"incremental_changed_bytes_total", op->list_bytes},
        {"incremental_changed_ranges_total", op->list_ranges},
        {"incremental_new_bytes_total", op->result.incremental},
    };
    CLEANUP_JSON json_t *labels = json_pack("{s:s}", "class", op->own->name);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].n > 0)
            records_counter_add(d->records, all[i].counter, labels, (double)all[i].n, NULL);
}

void changes_used(struct decide *d, struct operation *op)
{
    const struct mover_incremental *x = &op->result.incremental_run;
    trust_again(d, op);
    if (!is_tracked(op))
        return;
    if (op->base[0] && !x->there) {
        read_fully(op, FULL_FAILED, "the list of changes was lost");
    } else if (op->base[0] ? !x->used : x->there && x->distrusted) {
        const bool wrong = x->distrusted;
        char *why = strdup(x->why);
        read_fully(op, wrong ? FULL_MISMATCH : x->failed ? FULL_FAILED : FULL_PARENT_UNFIT, why ? why : "");
        free(why);
        plan_log(d, wrong ? LOG_LVL_ERROR : LOG_LVL_INFO, "%s: all data was read (%s): %s", operation_label(op),
                 full_reason_name(op->full_reason), op->full_why);
        if (wrong) {
            records_counter_add(d->records, "cbt_verify_mismatch_total", NULL, 1, NULL);
            const int64_t now = decide_now(d);
            volume_note(d, op->volume, op->own->name, volume_distrust, &now);
        }
    }
    CLEANUP_JSON json_t *runs =
        json_pack("{s:s,s:s}", "source", op->own->driver, "result", op->base[0] ? "incremental" : "full");
    CLEANUP_JSON json_t *full = json_pack("{s:s}", "reason", full_reason_name(op->full_reason));
    records_counter_add(d->records, "cbt_runs_total", runs, 1, NULL);
    if (!op->base[0])
        records_counter_add(d->records, "full_fallback_total", full, 1, NULL);
    else
        count_amplification(d, op);
}

struct parents {
    struct decide *d;
    const struct operation *op;
    struct strs old;
    int64_t full_ns; /* of the one that this backup was based on */
};

static int note_parent(const struct native_row *seen, void *arg)
{
    struct parents *x = arg;
    const struct native_row *n = native_row_peek(x->d->records, seen->id);
    if (!n || !n->cbt_parent || !is_of_repository(n, x->op) || !strcmp(n->id, x->op->native))
        return 0;
    if (!strcmp(n->id, x->op->base))
        x->full_ns = n->full_ns;
    return strs_add(&x->old, n->id);
}

/* Those before it are no longer needed. A row that is being removed keeps its state. */
static void parents_release(struct decide *d, struct parents *x)
{
    for (size_t i = 0; i < x->old.n; i++) {
        CLEANUP(native_row_clear) struct native_row n;
        native_row_init(&n);
        if (native_row_read(d, x->old.v[i], &n) < 0)
            continue;
        n.cbt_parent = false;
        native_row_write(d, &n);
    }
}

void changes_keep_parent(struct decide *d, const struct operation *op, struct native_row *n)
{
    const struct native_row_filter of_volume = {.volume_id = op->volume_id};
    struct parents x = {.d = d, .op = op};
    if (!is_tracked(op) || !op->policy->backup_read_only || !op->result.snapshot[0])
        return;
    if (native_row_each(d->records, &of_volume, note_parent, &x, NULL) >= 0)
        parents_release(d, &x);
    strs_clear(&x.old);
    n->cbt_parent = true;
    /* Unset where the row of its base is gone: the next one reads all. */
    n->full_ns = op->base[0] ? x.full_ns : decide_now(d);
}
