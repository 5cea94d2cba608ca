/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * retention.c - which snapshots of a source are kept
 *
 * The results of stock clients are reproduced with their quirks: one set of period keys for all kinds (so month 2024-05
 * hides ISO week 5 of 2024), keys in UTC except those of weeks, cutoffs by calendar arithmetic in local time where 31
 * March less one month is 2 or 3 March, and incomplete snapshots counted among the latest. One quirk is not reproduced:
 * if the hours exceed 64 bits of nanoseconds (292 years), there is no cutoff here, where stock clients would compute a
 * wrong one and delete.
 */
#include "base/retention.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "base/zone.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INCOMPLETE_AGE (4 * UINT64_C(3600) * (uint64_t)NS_PER_S)
#define INCOMPLETE_LAST 3

/* In the order in which they are tried. Reasons are listed in another order. */
enum kind { LATEST, ANNUAL, MONTHLY, WEEKLY, DAILY, HOURLY, N_KINDS };
static const char *const kind_names[N_KINDS] = {"latest", "annual", "monthly", "weekly", "daily", "hourly"};
static const enum kind listed[RETENTION_KINDS] = {LATEST, HOURLY, DAILY, WEEKLY, MONTHLY, ANNUAL};

struct moment {
    int64_t sec; /* since 1970 */
    int64_t ns;
};

struct key {
    char text[24];
};

/* Open addressing; never more than half full. */
struct key_set {
    struct key *slot;
    size_t mask;
};

static void key_set_fini(struct key_set *s)
{
    free(s->slot);
}

/* The position of the key, or the empty one for it. */
static struct key *key_slot(const struct key_set *s, const struct key *k)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (const char *p = k->text; *p; p++)
        h = (h ^ (uint8_t)*p) * UINT64_C(0x100000001b3);
    for (size_t i = (size_t)(h >> 20);; i++) {
        struct key *at = &s->slot[i & s->mask];
        if (!at->text[0] || !strcmp(at->text, k->text))
            return at;
    }
}

static struct moment moment_of(int64_t ns)
{
    int64_t sec = ns / NS_PER_S, rest = ns % NS_PER_S;
    return rest < 0 ? (struct moment){sec - 1, rest + NS_PER_S} : (struct moment){sec, rest};
}

static bool is_before(struct moment a, struct moment b)
{
    return a.sec != b.sec ? a.sec < b.sec : a.ns < b.ns;
}

/* Go's AddDate: the parts of the local date are changed separately, overflow carries over, and a local time that
 * occurs twice or never is resolved to one of the two adjacent offsets. */
static struct moment add_date(const struct zone *z, struct moment m, int64_t years, int64_t months, int64_t days)
{
    int64_t local = m.sec + zone_offset(z, m.sec), year;
    int month, day;
    civil_date(floor_div(local, S_PER_DAY), &year, &month, &day);
    int64_t in_day = local - floor_div(local, S_PER_DAY) * S_PER_DAY;
    int64_t want = civil_days(year + years, month + months, day + days) * S_PER_DAY + in_day;
    int64_t guess = want - zone_offset(z, want);
    return (struct moment){want - zone_offset(z, guess), m.ns};
}

static void week_key(const struct zone *z, int64_t sec, struct key *k)
{
    int64_t day = floor_div(sec + zone_offset(z, sec), S_PER_DAY), year;
    int64_t weekday = (day + 3) % 7; /* 1970-01-01 was a Thursday; Monday = 0 */
    weekday += weekday < 0 ? 7 : 0;
    int64_t thursday = day - weekday + 3; /* a week belongs to the year that has its Thursday */
    int m, d;
    civil_date(thursday, &year, &m, &d);
    snprintf(k->text, sizeof k->text, "%04d-%02d", (int)year, (int)((thursday - civil_days(year, 1, 1)) / 7) + 1);
}

static void make_key(const struct zone *z, enum kind kind, size_t i, struct moment start, struct key *k)
{
    int64_t year;
    int month, day;
    civil_date(floor_div(start.sec, S_PER_DAY), &year, &month, &day);
    int hour = (int)((start.sec - floor_div(start.sec, S_PER_DAY) * S_PER_DAY) / 3600), y = (int)year;
    switch (kind) {
    case LATEST:
        snprintf(k->text, sizeof k->text, "%zu", i);
        break;
    case ANNUAL:
        snprintf(k->text, sizeof k->text, "%04d", y);
        break;
    case MONTHLY:
        snprintf(k->text, sizeof k->text, "%04d-%02d", y, month);
        break;
    case WEEKLY:
        week_key(z, start.sec, k);
        break;
    case DAILY:
        snprintf(k->text, sizeof k->text, "%04d-%02d-%02d", y, month, day);
        break;
    default:
        snprintf(k->text, sizeof k->text, "%04d-%02d-%02d %02d", y, month, day, hour);
        break;
    }
}

struct order {
    const struct retention_item *item;
    size_t at;
};

/* Newest first; equal ones as they came. */
static int newest_first(const void *pa, const void *pb)
{
    const struct order *a = pa, *b = pb;
    if (a->item->start_ns != b->item->start_ns)
        return a->item->start_ns > b->item->start_ns ? -1 : 1;
    if (a->item->end_ns != b->item->end_ns)
        return a->item->end_ns > b->item->end_ns ? -1 : 1;
    return a->at < b->at ? -1 : 1;
}

static void keep_newest_incomplete(struct retention_item *items, const struct order *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct retention_item *it = &items[list[i].at];
        uint64_t age = (uint64_t)list[0].item->start_ns - (uint64_t)it->start_ns;
        if (!it->incomplete || (age >= INCOMPLETE_AGE && i >= INCOMPLETE_LAST))
            return;
        snprintf(it->reasons[it->n_reasons++], sizeof it->reasons[0], "incomplete");
    }
}

struct grants {
    const struct zone *z;
    const struct key_set *used;
    int keep[N_KINDS], granted[N_KINDS];
    struct moment cutoff[N_KINDS];
};

/* One complete snapshot, number i of the list: the reasons that it gets, and those that it does not. */
static void reason_grant(struct grants *g, struct retention_item *it, size_t i)
{
    struct moment start = moment_of(it->start_ns);
    int ordinal[N_KINDS] = {0};
    enum retention_miss missed[N_KINDS] = {RETENTION_NOT_ASKED};
    for (int k = 0; k < N_KINDS; k++) {
        if (g->keep[k] <= 0)
            continue;
        missed[k] = RETENTION_TOO_OLD;
        if (is_before(start, g->cutoff[k]))
            continue;
        struct key key, *slot;
        make_key(g->z, (enum kind)k, i, start, &key);
        slot = key_slot(g->used, &key);
        if (slot->text[0])
            missed[k] = RETENTION_STOOD_FOR;
        if (slot->text[0] || g->granted[k] >= g->keep[k])
            continue;
        *slot = key;
        ordinal[k] = ++g->granted[k];
        missed[k] = RETENTION_NOT_ASKED;
    }
    for (int k = 0; k < N_KINDS; k++) {
        it->missed[k] = (uint8_t)missed[listed[k]];
        if (ordinal[listed[k]])
            snprintf(it->reasons[it->n_reasons++], sizeof it->reasons[0], "%s-%d", kind_names[listed[k]],
                     ordinal[listed[k]]);
    }
}

static void cutoffs(struct grants *g, int64_t newest_ns)
{
    const int *keep = g->keep;
    struct moment last = moment_of(newest_ns);
    g->cutoff[LATEST] = (struct moment){INT64_MIN, 0};
    g->cutoff[ANNUAL] = add_date(g->z, last, -(int64_t)keep[ANNUAL], 0, 0);
    g->cutoff[MONTHLY] = add_date(g->z, last, 0, -(int64_t)keep[MONTHLY], 0);
    g->cutoff[WEEKLY] = add_date(g->z, last, 0, 0, -7 * (int64_t)keep[WEEKLY]);
    g->cutoff[DAILY] = add_date(g->z, last, 0, 0, -(int64_t)keep[DAILY]);
    g->cutoff[HOURLY] = (struct moment){last.sec - 3600 * (int64_t)keep[HOURLY], last.ns};
}

int retention_apply(const struct retention_policy *p, struct retention_item *items, size_t n, const char *tz,
                    struct err *e)
{
    CLEANUP(zone_freep) struct zone *z = NULL;
    int rc = zone_load(&z, tz, e);
    if (rc < 0)
        return rc;
    struct grants g = {.z = z, .keep = {p->latest, p->annual, p->monthly, p->weekly, p->daily, p->hourly}};
    bool any = false;
    for (int k = 0; k < N_KINDS; k++)
        any |= g.keep[k] > 0;
    if (!any)
        g.keep[LATEST] = INT_MAX;

    CLEANUP_FREE struct order *list = malloc((n ? n : 1) * sizeof *list);
    CLEANUP(key_set_fini) struct key_set used = {NULL, 1};
    while (used.mask < 2 * N_KINDS * n)
        used.mask *= 2;
    used.slot = calloc(used.mask, sizeof *used.slot);
    used.mask--;
    if (!list || !used.slot)
        return err_nomem(e);
    g.used = &used;

    bool found = false;
    int64_t newest = 0;
    for (size_t i = 0; i < n; i++) {
        items[i].n_reasons = 0;
        memset(items[i].missed, RETENTION_NOT_ASKED, sizeof items[i].missed);
        list[i] = (struct order){&items[i], i};
        if (!items[i].incomplete && (!found || items[i].start_ns > newest)) {
            found = true;
            newest = items[i].start_ns;
        }
    }
    qsort(list, n, sizeof *list, newest_first);

    cutoffs(&g, newest);
    for (size_t i = 0; i < n; i++) {
        struct retention_item *it = &items[list[i].at];
        if (it->incomplete)
            continue;
        reason_grant(&g, it, i);
    }
    keep_newest_incomplete(items, list, n);
    return 0;
}
