/* SPDX-License-Identifier: GPL-2.0-or-later */
/* time.h - the clocks, dates of the calendar, and times as text. Nanoseconds everywhere; any thread. */
#ifndef SNAPFERRY_BASE_TIME_H
#define SNAPFERRY_BASE_TIME_H

#include <stdint.h>
#include <time.h>

#define NS_PER_US INT64_C(1000)
#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)
#define NS_PER_MIN (60 * NS_PER_S)
#define NS_PER_H (60 * NS_PER_MIN)
#define NS_PER_DAY (24 * NS_PER_H)
#define S_PER_DAY INT64_C(86400)

/* Since 1970, changes when the clock is set: for records and display. */
int64_t now_ns(void);
/* Monotonic; stops while the machine is suspended. For durations. */
int64_t mono_ns(void);
/* The same, continues while the machine is suspended. */
int64_t boot_ns(void);

/* Seconds that somebody else has written, as ns; beyond 146 years about 1970 as if at that time, so that intervals can
 * be added and subtracted. */
static inline int64_t ns_of_seconds(int64_t s)
{
    const int64_t most = INT64_MAX / 2 / NS_PER_S;
    return (s > most ? most : s < -most ? -most : s) * NS_PER_S;
}
/* The same of a time that was read as ns. */
static inline int64_t ns_bounded(int64_t ns)
{
    const int64_t most = INT64_MAX / 2;
    return ns > most ? most : ns < -most ? -most : ns;
}
/* As ns_of_seconds(): times of files may be anything. */
static inline int64_t timespec_ns(struct timespec t)
{
    return ns_of_seconds(t.tv_sec) + t.tv_nsec;
}
static inline struct timespec ns_timespec(int64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}
/* mono_ns() in seconds. */
static inline double mono_s(void)
{
    return (double)mono_ns() / 1e9;
}
static inline int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* Days since 1970-01-01 of a date of the Gregorian calendar, extended both ways. `month` may be anything (13 is January
 * of the next year), and so may `day`. */
int64_t civil_days(int64_t year, int64_t month, int64_t day);
/* The date of a day; year within +-10^11. */
void civil_date(int64_t days, int64_t *year, int *month, int *day);

/* RFC 3339 in UTC with up to 9 digits of a fraction, without zeros at its end: "2026-11-21T02:00:00.25Z". */
#define TIME_TEXT 40
char *time_text(int64_t ns, char out[TIME_TEXT]);
/* With any offset from UTC, and everything else that Go's time.RFC3339Nano accepts. 0 or -EINVAL. */
int time_parse(int64_t *ret, const char *text);
/* What a person writes: as time_parse(), or "2026-11-21 02:00[:00]" or "2026-11-21" in local time. 0 or -EINVAL. */
int time_read(int64_t *ret, const char *text);
/* "20261121T020000", UTC, for names that sort by their time. */
#define TIME_STAMP 20
char *time_stamp(int64_t ns, char out[TIME_STAMP]);

#endif
