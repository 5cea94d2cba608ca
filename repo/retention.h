/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * retention.h - which snapshots of a source are kept, and why (Kopia repository format, section 13.3)
 */
#ifndef SNAPFERRY_REPO_RETENTION_H
#define SNAPFERRY_REPO_RETENTION_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RETENTION_REASONS 7

/* A negative number stands for "not set" (null in the policy). */
struct retention_policy {
    int latest, hourly, daily, weekly, monthly, annual;
};

struct retention_item {
    int64_t start_ns, end_ns; /* since 1970, UTC */
    bool incomplete;
    bool pinned;
    char reasons[RETENTION_REASONS][24]; /* out: "latest-1", "daily-3", "incomplete", ... in Kopia's order */
    unsigned n_reasons;                  /* out: 0 and not pinned = to be deleted */
};

/*
 * Fills in the reasons of the n snapshots of ONE source, in any order (the array is left in its order). `tz` is a time
 * zone for the cutoffs and ISO weeks ("America/New_York", "UTC"; NULL: the process's local zone), as stock clients use
 * the local zone of whoever applies retention.
 */
int retention_apply(const struct retention_policy *p, struct retention_item *items, size_t n, const char *tz,
                    struct err *e);

#endif
