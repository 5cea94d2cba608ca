/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * natives-plan.c - the plan: which native snapshots stay, which go, and why
 *
 * A pure function. It walks from the newest to the oldest and counts what it keeps, so that each decision depends only
 * on newer ones that stay: made again after it was carried out, it decides the same.
 */
#include "daemon/decide/natives-plan.h"

#include "base/time.h"
#include "base/units.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a snapshot is, before any limit is looked at. */
enum what {
    IS_MISSING,
    IS_REMOVING,
    IS_EXPIRED,
    IS_MOVED,
    IS_SNAPSHOT_ONLY,
    IS_FAILED,
    IS_UNKNOWN, /* not known to be complete in the repository: maybe still being moved */
};

struct plan {
    const struct native_rules *r;
    struct native_facts **by_age; /* newest first */
    size_t n;
    bool slot; /* a new one is about to be made */
    bool over_high_water;
    /* while walking */
    unsigned volume_count;        /* kept under the volume's number */
    unsigned snapshot_only_count; /* kept under snapshot-only-keep */
    bool newer_good;              /* a newer one has its data safe, or is a snapshot-only one */
    bool newer_failed;            /* a newer failed one is kept */
};

static enum what what_is(const struct native_facts *f)
{
    return f->missing         ? IS_MISSING
           : f->removing      ? IS_REMOVING
           : f->expired       ? IS_EXPIRED
           : f->moved         ? IS_MOVED
           : f->snapshot_only ? IS_SNAPSHOT_ONLY
           : f->failed        ? IS_FAILED
                              : IS_UNKNOWN;
}

/* Adds a clause to the sentence; the first one gets `first` before it. */
static void reason_say(struct native_facts *f, const char *first, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void reason_say(struct native_facts *f, const char *first, const char *fmt, ...)
{
    size_t n = strlen(f->why);
    if (n + 1 >= sizeof f->why)
        return;
    int m = snprintf(f->why + n, sizeof f->why - n, "%s", n ? "; also " : first);
    n += m > 0 ? (size_t)m : 0;
    if (n + 1 >= sizeof f->why)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f->why + n, sizeof f->why - n, fmt, ap);
    va_end(ap);
}
#define KEPT "kept: "
#define DUE "due for pruning: "

/* "backup B is complete in repository main" */
static const char *reason_complete(const struct native_facts *f, char *out, size_t cap)
{
    snprintf(out, cap, "its backup%s%.60s is complete in %srepository%s%.30s", f->backup[0] ? " " : "", f->backup,
             f->repository[0] ? "" : "the ", f->repository[0] ? " " : "", f->repository);
    return out;
}

/* A clock that went back makes nothing older. */
static bool over_age(const struct plan *p, const struct native_facts *f, int64_t max_s)
{
    int64_t created = f->created_ns > 0 ? f->created_ns : 0;
    return max_s > 0 && p->r->now_ns > created && (p->r->now_ns - created) / NS_PER_S > max_s;
}

/* ---- snapshots-to-retain ---- */

static bool of_the_rules(const struct plan *p, const struct native_facts *f)
{
    return strcmp(f->job, p->r->job) == 0;
}

/* No newer ones will come that take its place. */
static bool is_ended(const struct plan *p, const struct native_facts *f)
{
    return p->r->ended || f->job_ended;
}

static const char *ended_why(const struct plan *p, const struct native_facts *f, char *out, size_t cap)
{
    if (p->r->ended)
        snprintf(out, cap, "%s", p->r->ended);
    else
        snprintf(out, cap, "job %.60s no longer sets snapshots-to-retain for it", f->job);
    return out;
}

/* The number that counts for one: of a running backup the one it was begun with (RS-10), then what the rules say; of
 * another job's own number only the record tells (RS-29). */
static unsigned number_for(const struct plan *p, const struct native_facts *f)
{
    if (p->r->prune_ended && is_ended(p, f))
        return 0;
    bool recorded = f->effective_retain != UINT_MAX && (f->running || !of_the_rules(p, f));
    return recorded ? f->effective_retain : p->r->retain;
}

/* Whether the new snapshot will take one of the places that `f` competes for. */
static bool slot_in_retain(const struct plan *p, const struct native_facts *f)
{
    return p->slot && !p->r->prune_after && !p->r->snapshot_only && of_the_rules(p, f);
}

/* How many newer ones are kept under the same number. */
static unsigned newer_kept(const struct plan *p, size_t i)
{
    const struct native_facts *f = p->by_age[i];
    if (!f->job[0])
        return p->volume_count;
    unsigned count = 0;
    for (size_t k = 0; k < i; k++)
        count += (p->by_age[k]->reasons & (NATIVE_RETAINED | NATIVE_KEEP_ON_FAILURE)) &&
                 !(p->by_age[k]->reasons & NATIVE_ONLY_COPY) && strcmp(p->by_age[k]->job, f->job) == 0;
    return count;
}

static void count_kept(struct plan *p, const struct native_facts *f)
{
    if (!f->job[0])
        p->volume_count++;
}

/* "; pruned after 2 newer backups", and which of them count, and what may come before. */
static void say_until(const struct plan *p, struct native_facts *f, unsigned number, unsigned newer, unsigned slot)
{
    const unsigned more = number - newer;
    char which[100] = "", age[80] = "";
    if (f->job[0])
        snprintf(which, sizeof which, " of job %.80s", f->job);
    else if (p->r->jobs_retain)
        snprintf(which, sizeof which, " (jobs with a snapshots-to-retain of their own do not count)");
    if (p->r->retain_max_age_s > 0)
        snprintf(age, sizeof age, ", or once it is older than %s", duration_words(p->r->retain_max_age_s));
    reason_say(f, KEPT, "%u of %u retained; pruned after %u newer backup%s%s%s", newer + slot + 1, number, more,
               more == 1 ? "" : "s", which, age);
}

static void plan_moved(struct plan *p, size_t i)
{
    struct native_facts *f = p->by_age[i];
    unsigned number = number_for(p, f), newer = newer_kept(p, i), slot = slot_in_retain(p, f);
    char safe[160], ended[128];
    reason_complete(f, safe, sizeof safe);
    if (over_age(p, f, p->r->retain_max_age_s)) {
        reason_say(f, DUE, "%s, and it is older than %s (retain-max-age)", safe,
                   duration_words(p->r->retain_max_age_s));
    } else if (newer + slot < number) {
        f->reasons |= NATIVE_RETAINED;
        if (is_ended(p, f))
            reason_say(f, KEPT, "%u of %u retained; %s: only `native prune --gone` removes it", newer + slot + 1,
                       number, ended_why(p, f, ended, sizeof ended));
        else if (f->reasons & (NATIVE_HOLD | NATIVE_INSPECTION)) /* newer ones prune it only once it is released */
            reason_say(f, KEPT, "%u of %u retained", newer + slot + 1, number);
        else
            say_until(p, f, number, newer, slot);
        count_kept(p, f);
    } else if (p->r->prune_ended && is_ended(p, f)) {
        reason_say(f, DUE, "%s, and %s", safe, ended_why(p, f, ended, sizeof ended));
    } else if (number == 0) {
        reason_say(f, DUE, "%s, and snapshots-to-retain is 0", safe);
    } else if (newer < number) {
        reason_say(f, DUE, "%s, and its place (%u of %u) is needed for the new snapshot", safe, newer + 1, number);
    } else {
        reason_say(f, DUE, "%s, and %u newer one%s retained", safe, newer, newer == 1 ? " is" : "s are");
    }
    p->newer_good = true;
}

/* RS-03: goes, unless keep-on-failure asks for it; then within the same limit, and the newest of them until there is
 * something better. */
static void plan_failed(struct plan *p, size_t i)
{
    struct native_facts *f = p->by_age[i];
    unsigned number = number_for(p, f), newer = newer_kept(p, i), slot = slot_in_retain(p, f);
    if (number == 0)
        number = 1;
    if (!p->r->keep_on_failure) {
        reason_say(f, DUE, "its backup failed or was canceled, and keep-on-failure is off");
        return;
    }
    if (newer + slot < number) {
        f->reasons |= NATIVE_KEEP_ON_FAILURE;
        reason_say(f, KEPT,
                   "the move of its data failed and keep-on-failure is on; pruned when newer ones take its place");
        count_kept(p, f);
    } else if (!p->newer_good && !p->newer_failed) {
        /* Over the limit, so it takes nobody's place. */
        f->reasons |= NATIVE_KEEP_ON_FAILURE | NATIVE_ONLY_COPY;
        reason_say(f, KEPT, "the move of its data failed, keep-on-failure is on, and nothing newer is safe yet");
    } else {
        reason_say(f, DUE, "the move of its data failed, and newer ones are kept (%u of %u)", newer, number);
        return;
    }
    p->newer_failed = true;
}

/* ---- snapshot-only ---- */

static bool is_sole(const struct plan *p, size_t i)
{
    for (size_t k = 0; k < p->n; k++) {
        enum what w = what_is(p->by_age[k]);
        if (k != i && (w == IS_MOVED || w == IS_SNAPSHOT_ONLY))
            return false;
    }
    return true;
}

static void plan_snapshot_only(struct plan *p, size_t i)
{
    struct native_facts *f = p->by_age[i];
    unsigned keep = p->r->snapshot_only_keep, count = p->snapshot_only_count;
    unsigned slot = p->slot && !p->r->prune_after && p->r->snapshot_only;
    if (p->r->max_per_volume && keep > p->r->max_per_volume)
        keep = p->r->max_per_volume;
    bool old = over_age(p, f, p->r->snapshot_only_max_age_s), wanted = !old && count + slot < keep;
    if (wanted) {
        f->reasons |= NATIVE_SNAPSHOT_ONLY;
        reason_say(f, KEPT, "%u of %u snapshot%s without a backup (snapshot-only-keep)", count + slot + 1, keep,
                   plural(keep));
        p->snapshot_only_count++;
    }
    if (!p->newer_good && (!wanted || is_sole(p, i))) {
        f->reasons |= NATIVE_ONLY_COPY;
        reason_say(f, KEPT, "the only copy of the volume: there is no newer one, and no backup of it");
    } else if (old) {
        reason_say(f, DUE, "it is older than %s (snapshot-only-max-age), and there are newer copies",
                   duration_words(p->r->snapshot_only_max_age_s));
    } else if (!wanted) {
        reason_say(f, DUE, "snapshot-only-keep is %u, and %u newer one%s kept%s", keep, count,
                   count == 1 ? " is" : "s are", count < keep ? " besides the new one" : "");
    }
    p->newer_good = true;
}

/* ---- one snapshot ---- */

/* Of one that is gone its bookmark, which is of use only to a volume that is backed up. */
static bool is_base(const struct plan *p, const struct native_facts *f)
{
    return f->cbt_parent && p->r->keep_parent && !(p->r->prune_ended && is_ended(p, f)) && !f->expired &&
           !f->removing && (!f->missing || (f->bookmark && !p->r->ended));
}

static void plan_references(const struct plan *p, struct native_facts *f)
{
    if (f->in_use) {
        f->reasons |= NATIVE_IN_USE;
        reason_say(f, KEPT, "in use by an unfinished operation");
    }
    if (f->hold) {
        f->reasons |= NATIVE_HOLD;
        reason_say(f, KEPT, "held");
    }
    if (f->inspection) {
        f->reasons |= NATIVE_INSPECTION;
        reason_say(f, KEPT, "for inspection: its backup failed and expose-keep-on-failure is on");
    }
    if (f->releasing && !f->in_use) {
        f->reasons |= NATIVE_IN_USE;
        reason_say(f, KEPT, "its intermediate is removed first");
    }
    if (is_base(p, f)) {
        f->reasons |= NATIVE_CBT_PARENT;
        reason_say(f, KEPT,
                   f->missing ? "it is gone, and its bookmark is the base of the next incremental backup"
                   : p->r->ended
                       ? "the base of incremental backups, should its volume be backed up again (`native prune "
                         "--gone` removes it)"
                       : "the base of the next incremental backup");
    }
}

static void plan_one(struct plan *p, size_t i)
{
    struct native_facts *f = p->by_age[i];
    f->reasons = 0;
    f->for_pool = f->leaves_bookmark = false;
    f->why[0] = '\0';
    plan_references(p, f);
    /* What would be said of it without the references is only said if it adds a reason. */
    char referenced[sizeof f->why];
    memcpy(referenced, f->why, sizeof referenced);
    unsigned before = f->reasons;
    switch (what_is(f)) {
    case IS_MISSING:
        if (f->foreign)
            reason_say(
                f, "not recognized: ", "what is in its place does not have its tag; its record goes when that is gone");
        else
            reason_say(f, "removed from the records: ", "no longer on the storage");
        break;
    case IS_REMOVING:
        reason_say(f, DUE, "its removal has begun");
        break;
    case IS_EXPIRED:
        reason_say(f, DUE, "its backup%s%.100s was deleted or has expired", f->backup[0] ? " " : "", f->backup);
        break;
    case IS_MOVED:
        plan_moved(p, i);
        break;
    case IS_SNAPSHOT_ONLY:
        plan_snapshot_only(p, i);
        break;
    case IS_FAILED:
        plan_failed(p, i);
        break;
    case IS_UNKNOWN:
        if (f->in_use)
            break; /* it is being moved right now */
        f->reasons |= NATIVE_ONLY_COPY;
        reason_say(f, KEPT, "the only copy: its data is not known to be complete in a repository");
        break;
    }
    if (before && f->reasons == before)
        memcpy(f->why, referenced, sizeof referenced);
    f->prune = f->reasons == 0;
}

/* ---- limits over all ---- */

static unsigned on_storage(const struct plan *p)
{
    unsigned n = 0;
    for (size_t i = 0; i < p->n; i++)
        n += !p->by_age[i]->prune && !p->by_age[i]->missing;
    return n;
}

/* The oldest that only snapshots-to-retain keeps. */
static struct native_facts *oldest_retained(const struct plan *p)
{
    for (size_t i = p->n; i-- > 0;)
        if (p->by_age[i]->reasons == NATIVE_RETAINED)
            return p->by_age[i];
    return NULL;
}

/* The oldest that is only kept for the next incremental backup, or (`retained`) to be retained as well. */
static struct native_facts *oldest_parent(const struct plan *p, bool retained)
{
    for (size_t i = p->n; i-- > 0;)
        if (!p->by_age[i]->missing &&
            (p->by_age[i]->reasons & ~(retained ? (unsigned)NATIVE_RETAINED : 0u)) == NATIVE_CBT_PARENT)
            return p->by_age[i];
    return NULL;
}

/* At the limits. A parent goes first: without it, or a bookmark of it, all is read once, and what is retained was asked
 * for. */
static struct native_facts *next_to_go(const struct plan *p)
{
    struct native_facts *f = oldest_parent(p, false);
    if (!f)
        f = oldest_retained(p);
    return f ? f : oldest_parent(p, true);
}

static void let_go(struct native_facts *f, const char *because)
{
    char safe[160];
    f->leaves_bookmark = f->bookmark && f->reasons & NATIVE_CBT_PARENT;
    f->reasons = 0;
    f->prune = true;
    f->why[0] = '\0';
    reason_say(f, DUE, "%s, and %s", reason_complete(f, safe, sizeof safe), because);
}

static void keep_under_maximum(struct plan *p)
{
    unsigned limit = p->r->max_per_volume;
    char because[96];
    struct native_facts *f;
    if (!limit)
        return;
    snprintf(because, sizeof because, "max-snapshots-per-volume is %u", limit);
    for (unsigned kept = on_storage(p); kept + p->slot > limit && (f = next_to_go(p)); kept--)
        let_go(f, because);
}

/* RS-30. What goes anyway may be enough: its effect is seen first. */
static void keep_under_high_water(struct plan *p)
{
    char because[96];
    struct native_facts *f;
    for (size_t i = 0; i < p->n; i++)
        if (p->by_age[i]->prune && !p->by_age[i]->missing)
            return;
    if (!(f = next_to_go(p)))
        return;
    snprintf(because, sizeof because, "the pool is %.0f %% full (pool-high-water is %.0f %%)",
             p->r->pool_used_ratio * 100, p->r->pool_high_water * 100);
    let_go(f, because);
    f->for_pool = true;
}

static void plan_all(struct plan *p, bool slot)
{
    p->slot = slot;
    p->volume_count = p->snapshot_only_count = 0;
    p->newer_good = p->newer_failed = false;
    for (size_t i = 0; i < p->n; i++)
        plan_one(p, i);
    keep_under_maximum(p);
    if (p->over_high_water)
        keep_under_high_water(p);
}

/* ---- the verdict ---- */

static unsigned with_reason(const struct plan *p, unsigned reason)
{
    unsigned n = 0;
    for (size_t i = 0; i < p->n; i++)
        n += !p->by_age[i]->missing && (p->by_age[i]->reasons & reason) != 0;
    return n;
}

static void natives_judge(struct plan *p, struct native_verdict *v)
{
    unsigned kept = on_storage(p), gone = 0;
    for (size_t i = 0; i < p->n; i++)
        gone += p->by_age[i]->prune;
    v->over_high_water = p->over_high_water;
    v->may_create = true;
    if (p->r->max_per_volume && kept >= p->r->max_per_volume) {
        v->may_create = false;
        snprintf(
            v->why, sizeof v->why,
            "no new snapshot: max-snapshots-per-volume is %u and %u are kept (%u retained, %u in use, %u held, %u the "
            "only copy, %u without a backup, %u for incremental backups, %u for inspection)",
            p->r->max_per_volume, kept, with_reason(p, NATIVE_RETAINED), with_reason(p, NATIVE_IN_USE),
            with_reason(p, NATIVE_HOLD), with_reason(p, NATIVE_ONLY_COPY), with_reason(p, NATIVE_SNAPSHOT_ONLY),
            with_reason(p, NATIVE_CBT_PARENT), with_reason(p, NATIVE_INSPECTION));
    } else if (p->over_high_water && p->r->snapshot_only) {
        v->may_create = false;
        snprintf(v->why, sizeof v->why,
                 "no new snapshot: the pool is %.0f %% full (pool-high-water is %.0f %%) and the volume's snapshots "
                 "are its only copies (move-data is no)",
                 p->r->pool_used_ratio * 100, p->r->pool_high_water * 100);
    } else if (p->over_high_water) {
        snprintf(v->why, sizeof v->why, "the pool is %.0f %% full (pool-high-water is %.0f %%): %u kept, %u pruned",
                 p->r->pool_used_ratio * 100, p->r->pool_high_water * 100, kept, gone);
    } else {
        snprintf(v->why, sizeof v->why, "%u kept, %u pruned", kept, gone);
    }
}

static int newest_first(const void *a, const void *b)
{
    const struct native_facts *x = *(struct native_facts *const *)a, *y = *(struct native_facts *const *)b;
    return x->seq < y->seq ? 1 : x->seq > y->seq ? -1 : strcmp(x->alias, y->alias);
}

void natives_plan(const struct native_rules *r, struct native_facts *f, size_t n, struct native_verdict *v)
{
    struct plan p = {.r = r, .n = n};
    memset(v, 0, sizeof *v);
    p.over_high_water = r->pool_used_ratio >= 0 && r->pool_high_water > 0 && r->pool_used_ratio >= r->pool_high_water;
    p.by_age = calloc(n ? n : 1, sizeof *p.by_age);
    if (!p.by_age) {
        for (size_t i = 0; i < n; i++) {
            f[i].reasons = 0;
            f[i].prune = false;
            snprintf(f[i].why, sizeof f[i].why, "kept: out of memory");
        }
        snprintf(v->why, sizeof v->why, "no new snapshot: out of memory");
        return;
    }
    for (size_t i = 0; i < n; i++)
        p.by_age[i] = &f[i];
    qsort(p.by_age, n, sizeof *p.by_age, newest_first);
    plan_all(&p, r->about_to_create);
    natives_judge(&p, v);
    if (r->about_to_create && !v->may_create)
        plan_all(&p, false); /* nothing has to make room */
    free(p.by_age);
}

const char *native_reasons_text(unsigned reasons, char *out, size_t cap)
{
    static const char *const names[] = {"retained",  "in-use",        "cbt-parent",      "hold",
                                        "only-copy", "snapshot-only", "keep-on-failure", "inspection"};
    size_t n = 0;
    if (cap)
        out[0] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if ((reasons & 1u << i) && n < cap) {
            int m = snprintf(out + n, cap - n, "%s%s", n ? " " : "", names[i]);
            n += m > 0 ? (size_t)m : 0;
        }
    return out;
}
