/* SPDX-License-Identifier: GPL-2.0-or-later */
/* times.c - times of the week, such as "Mon..Fri 08:00-18:00, Sat 09:00-12:00" */
#include "cfg/internal.h"

#include "base/units.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define DAY_MINUTES (24 * 60)

static const char *const days[] = {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"};

/* The number of the day that *p begins with, behind which it points then; -1: none. */
static int parse_day(const char **p)
{
    for (int i = 0; i < 7; i++)
        if (!strncmp(*p, days[i], 3)) {
            *p += 3;
            return i;
        }
    return -1;
}

/* "Mon..Fri", "Sat"; nothing: each day. */
static int parse_days(const char **p, uint8_t *ret)
{
    *ret = 0x7f;
    if (**p >= '0' && **p <= '9')
        return 0;
    const int first = parse_day(p);
    int last = first;
    if (first >= 0 && !strncmp(*p, "..", 2)) {
        *p += 2;
        last = parse_day(p);
    }
    if (first < 0 || last < 0 || **p != ' ')
        return -EINVAL;
    *p += strspn(*p, " ");
    *ret = 0;
    for (int i = first;; i = (i + 1) % 7) {
        *ret |= (uint8_t)(1u << i);
        if (i == last)
            return 0;
    }
}

/* "08:00" to "24:00", in minutes. */
static int parse_clock(const char **p, uint16_t *ret)
{
    uint64_t hours, minutes;
    if (parse_number(p, &hours) < 0 || **p != ':')
        return -EINVAL;
    (*p)++;
    const char *from = *p;
    if (parse_number(p, &minutes) < 0 || *p - from != 2 || hours > 24 || minutes > 59 || (hours == 24 && minutes))
        return -EINVAL;
    *ret = (uint16_t)(hours * 60 + minutes);
    return 0;
}

static int parse_span(const char **p, struct cfg_time_span *ret)
{
    int rc = parse_days(p, &ret->days);
    if (rc == 0)
        rc = parse_clock(p, &ret->from);
    if (rc == 0 && **p != '-')
        rc = -EINVAL;
    (*p)++;
    return rc == 0 ? parse_clock(p, &ret->to) : rc;
}

int cfg_parse_times(struct cfg_times *ret, const char *text, const char **why)
{
    *ret = (struct cfg_times){.n = 0};
    for (const char *p = text; *p; p++) {
        p += strspn(p, " ");
        struct cfg_time_span s;
        *why = "times such as Mon..Fri 08:00-18:00, Sat 09:00-12:00 expected";
        if (parse_span(&p, &s) < 0)
            return -EINVAL;
        if (s.from == s.to || s.from == DAY_MINUTES) {
            *why = "times that begin when they end";
            return -EINVAL;
        }
        p += strspn(p, " ");
        if (*p && *p != ',')
            return -EINVAL;
        *why = "too many times";
        if (ret->n == CFG_TIMES_MAX)
            return -EINVAL;
        ret->v[ret->n++] = s;
        if (!*p)
            return 0;
        *why = "nothing behind the comma";
        if (!p[1 + strspn(p + 1, " ")])
            return -EINVAL;
    }
    return 0;
}

static bool span_holds(const struct cfg_time_span *s, unsigned day, unsigned minute)
{
    const unsigned before = (day + 6) % 7;
    if (s->from < s->to)
        return (s->days >> day & 1) && minute >= s->from && minute < s->to;
    /* Over midnight: of the day on which they begin. */
    return ((s->days >> day & 1) && minute >= s->from) || ((s->days >> before & 1) && minute < s->to);
}

bool cfg_times_hold(const struct cfg_times *t, const struct tm *local)
{
    const unsigned day = (unsigned)(local->tm_wday + 6) % 7, minute = (unsigned)(local->tm_hour * 60 + local->tm_min);
    for (unsigned i = 0; i < t->n; i++)
        if (span_holds(&t->v[i], day, minute))
            return true;
    return t->n == 0;
}

bool cfg_times_hold_at(const struct cfg_times *t, time_t when)
{
    struct tm local;
    return !localtime_r(&when, &local) || cfg_times_hold(t, &local);
}
