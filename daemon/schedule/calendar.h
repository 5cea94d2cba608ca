/* SPDX-License-Identifier: GPL-2.0-or-later */
/* calendar.h - calendar events of systemd.time(7): parsing and occurrences. Pure functions; see calendar_next(). */
#ifndef SNAPFERRY_DAEMON_SCHEDULE_CALENDAR_H
#define SNAPFERRY_DAEMON_SCHEDULE_CALENDAR_H

#include "base/err.h"

#include <stdint.h>

/*
 * systemd.time(7) calendar events, as far as jobs use them: weekdays and ranges, dates with *, lists, ranges, steps and
 * "~" (last days), times, time zone suffix "UTC" or a name, shorthands (minutely, hourly, daily, weekly, monthly,
 * quarterly, semiannually, yearly).
 */
struct calendar;
int calendar_parse(struct calendar **ret, const char *text, struct err *e); /* ERR_USAGE naming the part */
void calendar_free(struct calendar *c);
/* The first time strictly after `after_ns`, INT64_MAX if there is none (as for 30 February). Local time zone unless
 * the text names one; daylight saving: a time that does not exist runs at the next that does (systemd skips it), one
 * that exists twice runs once, the first time, hourly events too (as with systemd). Immutable after parsing; the
 * local zone is the process's at the time of the call. */
int64_t calendar_next(const struct calendar *c, int64_t after_ns);
/* The latest time that is at most `now` and after `from`; 0: none. */
int64_t calendar_latest(const struct calendar *c, int64_t from_ns, int64_t now_ns);
/* The longest time between two of them, in seconds: of the distances around and after `now`, including the current
 * one, in the coming weeks and in ten events at least. Distances are exact except those shorter than a hundredth of
 * the time until they occur. 0: there are not two events. */
int64_t calendar_interval_s(const struct calendar *c, int64_t now_ns);

/* What runs by a calendar event, and when it ran last; wall clock, in ns. */
struct calendar_runs {
    const char *on_calendar; /* "": it does not */
    int64_t since_ns;        /* since when it has this schedule; 0: since now */
    int64_t tried_ns;        /* when the last run ended; 0: never */
    int64_t done_ns;         /* when the last one ended that counts; 0: never */
};
/* *next_ns: of the next run, in the past: it is due; INT64_MAX: never, or the text is no event. *late_ns: if there was
 * none that counts for `overdue` intervals, the time of the last one, or since when there is a schedule; else 0. */
void calendar_due(const struct calendar_runs *runs, int overdue, int64_t now_ns, int64_t *next_ns, int64_t *late_ns);

#endif
