/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * retention.h - which snapshots of a source are kept, and why (Kopia repository format, section 13.3)
 */
#ifndef SNAPFERRY_BASE_RETENTION_H
#define SNAPFERRY_BASE_RETENTION_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RETENTION_REASONS 7

/* A negative number stands for "not set" (null in the policy). */
struct retention_policy {
    int latest, hourly, daily, weekly, monthly, annual;
};

enum retention_kind {
    RETENTION_LATEST,
    RETENTION_HOURLY,
    RETENTION_DAILY,
    RETENTION_WEEKLY,
    RETENTION_MONTHLY,
    RETENTION_ANNUAL,
    RETENTION_KINDS
};

/* Why a kind did not give a complete snapshot a reason. */
enum retention_miss {
    RETENTION_NOT_ASKED, /* the setting is 0 or not set (or a reason was given) */
    RETENTION_TOO_OLD,   /* before the cutoff, or the requested number of newer ones exists */
    RETENTION_STOOD_FOR  /* a newer snapshot is kept for its hour, day, week, month or year */
};

struct retention_item {
    int64_t start_ns, end_ns; /* since 1970, UTC */
    bool incomplete;
    bool pinned;
    char reasons[RETENTION_REASONS][24]; /* out: "latest-1", "daily-3", "incomplete", ... in Kopia's order */
    unsigned n_reasons;                  /* out: 0 and not pinned = to be deleted */
    uint8_t missed[RETENTION_KINDS];     /* out: enum retention_miss by kind, for explanations */
};

/*
 * Fills in the reasons of the n snapshots of ONE source, in any order (the order of the array is preserved). `tz` is a
 * time zone for the cutoffs and ISO weeks ("America/New_York", "UTC"; NULL: the process's local zone), as stock clients
 * use the local zone of the process that applies retention.
 */
int retention_apply(const struct retention_policy *p, struct retention_item *items, size_t n, const char *tz,
                    struct err *e);

#endif
