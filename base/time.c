/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "base/time.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

static int64_t clock_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return timespec_ns(t);
}

int64_t now_ns(void)
{
    return clock_ns(CLOCK_REALTIME);
}

int64_t mono_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

int64_t boot_ns(void)
{
    return clock_ns(CLOCK_BOOTTIME);
}

/* ---- dates ---- */

int64_t civil_days(int64_t year, int64_t month, int64_t day)
{
    year += floor_div(month - 1, 12);
    int64_t m = month - 1 - 12 * floor_div(month - 1, 12); /* 0 = January */
    /* Years that begin in March have their leap day at the end. */
    int64_t y = m < 2 ? year - 1 : year, from_march = m < 2 ? m + 10 : m - 2;
    int64_t leaps = floor_div(y, 4) - floor_div(y, 100) + floor_div(y, 400);
    return 365 * y + leaps + (153 * from_march + 2) / 5 + day - 1 - 719468; /* the last: 0000-03-01 to 1970-01-01 */
}

void civil_date(int64_t days, int64_t *year, int *month, int *day)
{
    /* The mean year gives the year or its neighbour. */
    int64_t y = floor_div((days + 719528) * 400, 146097);
    while (civil_days(y, 1, 1) > days)
        y--;
    while (civil_days(y + 1, 1, 1) <= days)
        y++;
    int m = 1;
    while (m < 12 && civil_days(y, m + 1, 1) <= days)
        m++;
    *year = y;
    *month = m;
    *day = (int)(days - civil_days(y, m, 1)) + 1;
}

/* ---- as text ---- */

char *time_text(int64_t ns, char out[TIME_TEXT])
{
    const int64_t sec = floor_div(ns, NS_PER_S), frac = (ns % NS_PER_S + NS_PER_S) % NS_PER_S;
    const int64_t days = floor_div(sec, S_PER_DAY), rest = sec - days * S_PER_DAY;
    int64_t y;
    int m, d;
    civil_date(days, &y, &m, &d);
    int n = snprintf(out, TIME_TEXT, "%04d-%02d-%02dT%02d:%02d:%02d", (int)y, m, d, (int)(rest / 3600),
                     (int)(rest / 60 % 60), (int)(rest % 60));
    if (frac) {
        n += snprintf(out + n, (size_t)(TIME_TEXT - n), ".%09d", (int)frac);
        while (out[n - 1] == '0')
            n--;
    }
    out[n] = 'Z';
    out[n + 1] = '\0';
    return out;
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Exactly n digits. */
static bool fixed(const char **p, unsigned n, unsigned *ret)
{
    *ret = 0;
    for (unsigned i = 0; i < n; i++, (*p)++) {
        if (!digit(**p))
            return false;
        *ret = *ret * 10 + (unsigned)(**p - '0');
    }
    return true;
}

static bool literal(const char **p, char c)
{
    if (**p != c)
        return false;
    (*p)++;
    return true;
}

static unsigned month_days(unsigned y, unsigned m)
{
    static const uint8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
    return m == 2 && leap ? 29 : days[m - 1];
}

int time_parse(int64_t *ret, const char *text)
{
    const char *p = text;
    unsigned y, mon, day, h, min, s;
    if (!fixed(&p, 4, &y) || !literal(&p, '-') || !fixed(&p, 2, &mon) || !literal(&p, '-') || !fixed(&p, 2, &day) ||
        !literal(&p, 'T'))
        return -EINVAL;
    if (mon < 1 || mon > 12 || day < 1 || day > month_days(y, mon))
        return -EINVAL;
    /* Go's layout takes an hour of one digit. */
    if (!fixed(&p, digit(p[0]) && !digit(p[1]) ? 1 : 2, &h) || !literal(&p, ':') || !fixed(&p, 2, &min) ||
        !literal(&p, ':') || !fixed(&p, 2, &s))
        return -EINVAL;
    if (h > 23 || min > 59 || s > 59)
        return -EINVAL;
    int64_t frac = 0;
    if ((*p == '.' || *p == ',') && digit(p[1])) {
        int64_t unit = NS_PER_S / 10;
        for (p++; digit(*p); p++, unit /= 10)
            frac += unit * (*p - '0'); /* unit is 0 behind the ninth digit */
    }
    int64_t offset = 0;
    if (*p == 'Z') {
        p++;
    } else if (*p == '+' || *p == '-') {
        int sign = *p++ == '+' ? 1 : -1;
        unsigned oh, om;
        if (!fixed(&p, 2, &oh) || !literal(&p, ':') || !fixed(&p, 2, &om) || oh > 24 || om > 60)
            return -EINVAL;
        offset = sign * (int64_t)(oh * 3600 + om * 60);
    } else {
        return -EINVAL;
    }
    if (*p)
        return -EINVAL;
    int64_t sec = civil_days(y, mon, day) * S_PER_DAY + h * 3600 + min * 60 + s - offset;
    /* Times outside 1678..2262 wrap, as they do for stock clients. */
    *ret = (int64_t)((uint64_t)sec * (uint64_t)NS_PER_S + (uint64_t)frac);
    return 0;
}

int time_read(int64_t *ret, const char *text)
{
    static const char *const forms[] = {"%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"};
    if (time_parse(ret, text) == 0)
        return 0;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct tm tm = {.tm_isdst = -1};
        const char *end = strptime(text, forms[i], &tm);
        const int day = tm.tm_mday;
        if (!end || *end)
            continue;
        const time_t t = mktime(&tm);
        if (t == (time_t)-1 || tm.tm_mday != day) /* February 30 */
            return -EINVAL;
        *ret = ns_of_seconds(t);
        return 0;
    }
    return -EINVAL;
}

char *time_stamp(int64_t ns, char out[TIME_STAMP])
{
    time_t t = (time_t)(ns / NS_PER_S);
    struct tm tm = {0};
    gmtime_r(&t, &tm);
    if (!strftime(out, TIME_STAMP, "%Y%m%dT%H%M%S", &tm))
        out[0] = '\0';
    return out;
}
