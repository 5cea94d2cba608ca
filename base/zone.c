/* SPDX-License-Identifier: GPL-2.0-or-later */
/* zone.c - time zones from TZif files: transitions first, the POSIX rule of the footer after the last of them. */
#include "base/time.h"
#include "base/zone.h"

#include "base/bytes.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FILE_MAX (256 << 10)
#define HEADER_LEN 44

/* Day of a change between standard and daylight saving time, and the local second of it. */
struct rule_day {
    enum { RULE_MONTH_WEEK_DAY, RULE_DAY_1_365, RULE_DAY_0_365 } kind;
    int month, week, day;
    int64_t time;
};

struct zone {
    bool local; /* ask the C library */
    bool has_rule, rule_has_dst;
    int64_t std, dst; /* of the rule */
    struct rule_day dst_begin, dst_end;
    int64_t first; /* before any transition */
    size_t n;
    struct {
        int64_t at, offset;
    } change[];
};

static bool is_leap(int64_t y)
{
    return y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
}

static int64_t rule_seconds(const struct rule_day *r, int64_t year)
{
    int64_t jan1 = civil_days(year, 1, 1), day;
    if (r->kind == RULE_DAY_1_365) { /* 29 February is never counted */
        day = jan1 + r->day - 1 + (is_leap(year) && r->day >= 60);
    } else if (r->kind == RULE_DAY_0_365) {
        day = jan1 + r->day;
    } else {
        int64_t first = civil_days(year, r->month, 1), next = civil_days(year, r->month + 1, 1);
        int64_t weekday = (first + 4) % 7; /* 1970-01-01 was a Thursday; Sunday = 0 */
        weekday += weekday < 0 ? 7 : 0;
        day = first + (r->day - weekday + 7) % 7 + 7 * (r->week - 1);
        if (day >= next)
            day -= 7; /* week 5 is the last one */
    }
    return day * S_PER_DAY + r->time;
}

static int64_t rule_offset(const struct zone *z, int64_t utc)
{
    if (!z->rule_has_dst)
        return z->std;
    int64_t year;
    int month, day;
    civil_date(floor_div(utc + z->std, S_PER_DAY), &year, &month, &day);
    int64_t begin = rule_seconds(&z->dst_begin, year) - z->std, end = rule_seconds(&z->dst_end, year) - z->dst;
    bool dst = begin < end ? utc >= begin && utc < end : utc >= begin || utc < end;
    return dst ? z->dst : z->std;
}

int64_t zone_offset(const struct zone *z, int64_t utc)
{
    if (z->local) {
        time_t t = utc;
        struct tm tm;
        return localtime_r(&t, &tm) ? tm.tm_gmtoff : 0;
    }
    if (z->has_rule && (!z->n || utc >= z->change[z->n - 1].at))
        return rule_offset(z, utc);
    size_t lo = 0, hi = z->n; /* changes before lo are not after utc, those from hi on are */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (z->change[mid].at <= utc)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo ? z->change[lo - 1].offset : z->first;
}

/* The components of a POSIX TZ string. Each advances *p and returns whether it found what it expects. */
static bool parse_int(const char **p, int max, int *v)
{
    if (**p < '0' || **p > '9')
        return false;
    for (*v = 0; **p >= '0' && **p <= '9'; (*p)++) {
        *v = *v * 10 + (**p - '0');
        if (*v > max)
            return false;
    }
    return true;
}

static bool parse_name(const char **p)
{
    const char *s = *p;
    if (*s == '<') {
        s = strchr(s, '>');
        if (!s)
            return false;
        *p = s + 1;
        return true;
    }
    while ((*s >= 'A' && *s <= 'Z') || (*s >= 'a' && *s <= 'z'))
        s++;
    bool ok = s - *p >= 3;
    *p = s;
    return ok;
}

static bool parse_time(const char **p, int64_t *seconds)
{
    int sign = **p == '-' ? -1 : 1, h, m = 0, s = 0;
    if (**p == '-' || **p == '+')
        (*p)++;
    if (!parse_int(p, 167, &h)) /* RFC 8536 lets rules reach a week either way */
        return false;
    if (**p == ':') {
        (*p)++;
        if (!parse_int(p, 59, &m))
            return false;
        if (**p == ':') {
            (*p)++;
            if (!parse_int(p, 59, &s))
                return false;
        }
    }
    *seconds = sign * (h * 3600 + m * 60 + s);
    return true;
}

static bool parse_day(const char **p, struct rule_day *r)
{
    *r = (struct rule_day){.time = 2 * 3600};
    if (*(*p)++ != ',')
        return false;
    bool ok;
    if (**p == 'M') {
        (*p)++;
        r->kind = RULE_MONTH_WEEK_DAY;
        ok = parse_int(p, 12, &r->month) && r->month && *(*p)++ == '.' && parse_int(p, 5, &r->week) && r->week &&
             *(*p)++ == '.' && parse_int(p, 6, &r->day);
    } else if (**p == 'J') {
        (*p)++;
        r->kind = RULE_DAY_1_365;
        ok = parse_int(p, 365, &r->day) && r->day;
    } else {
        r->kind = RULE_DAY_0_365;
        ok = parse_int(p, 365, &r->day);
    }
    if (ok && **p == '/') {
        (*p)++;
        ok = parse_time(p, &r->time);
    }
    return ok;
}

/* "std offset [dst [offset] , begin , end]"; offsets count westwards. */
static bool parse_rule(struct zone *z, const char *p)
{
    if (!parse_name(&p) || !parse_time(&p, &z->std))
        return false;
    z->std = -z->std;
    z->has_rule = true;
    if (!*p)
        return true;
    z->rule_has_dst = true;
    z->dst = z->std + 3600;
    if (!parse_name(&p))
        return false;
    if (*p != ',') {
        if (!parse_time(&p, &z->dst))
            return false;
        z->dst = -z->dst;
    }
    return parse_day(&p, &z->dst_begin) && parse_day(&p, &z->dst_end) && !*p;
}

struct tzif {
    size_t n_utc, n_std, n_leap, n_time, n_type, n_char;
};

static bool parse_header(const uint8_t *p, size_t len, struct tzif *h)
{
    if (len < HEADER_LEN || memcmp(p, "TZif", 4))
        return false;
    size_t *field[] = {&h->n_utc, &h->n_std, &h->n_leap, &h->n_time, &h->n_type, &h->n_char};
    for (size_t i = 0; i < 6; i++) {
        *field[i] = get_be32(p + 20 + 4 * i);
        if (*field[i] > len)
            return false;
    }
    return h->n_type > 0;
}

static size_t body_len(const struct tzif *h, size_t w)
{
    return h->n_time * (w + 1) + h->n_type * 6 + h->n_char + h->n_leap * (w + 4) + h->n_std + h->n_utc;
}

static int not_tzif(struct err *e)
{
    return err_set(e, ERR_USAGE, EINVAL, "damaged time zone data");
}

int zone_parse(struct zone **ret, const uint8_t *data, size_t len, struct err *e)
{
    *ret = NULL;
    struct tzif h;
    if (len > FILE_MAX || !parse_header(data, len, &h))
        return not_tzif(e);
    size_t w = 4; /* width of times: since version 2 the file repeats all data with 8 bytes */
    const uint8_t *p = data + HEADER_LEN, *end = data + len;
    if (data[4] >= '2') {
        size_t skip = body_len(&h, 4);
        if (skip > (size_t)(end - p) || !parse_header(p + skip, (size_t)(end - p) - skip, &h))
            return not_tzif(e);
        p += skip + HEADER_LEN;
        w = 8;
    }
    if (body_len(&h, w) > (size_t)(end - p))
        return not_tzif(e);
    CLEANUP(zone_freep) struct zone *z = calloc(1, sizeof *z + h.n_time * sizeof z->change[0]);
    if (!z)
        return err_nomem(e);
    const uint8_t *types = p + h.n_time * (w + 1);
    z->first = (int32_t)get_be32(types);
    z->n = h.n_time;
    for (size_t i = 0; i < z->n; i++) {
        const uint8_t *t = p + i * w;
        uint8_t type = p[h.n_time * w + i];
        if (type >= h.n_type)
            return not_tzif(e);
        z->change[i].at = w == 8 ? (int64_t)get_be64(t) : (int32_t)get_be32(t);
        z->change[i].offset = (int32_t)get_be32(types + (size_t)type * 6);
        if (i && z->change[i].at <= z->change[i - 1].at)
            return not_tzif(e);
    }
    p += body_len(&h, w);
    if (w == 8 && end - p > 2 && *p == '\n') {
        const uint8_t *stop = memchr(p + 1, '\n', (size_t)(end - p) - 1);
        char rule[128];
        if (!stop || (size_t)(stop - p) > sizeof rule)
            return not_tzif(e);
        size_t n = (size_t)(stop - p) - 1;
        memcpy(rule, p + 1, n);
        rule[n] = '\0';
        if (n && !parse_rule(z, rule))
            return not_tzif(e);
    }
    *ret = take_ptr(&z);
    return 0;
}

int zone_load(struct zone **ret, const char *name, struct err *e)
{
    *ret = NULL;
    if (!name || !strcmp(name, "UTC")) {
        *ret = calloc(1, sizeof **ret);
        if (!*ret)
            return err_nomem(e);
        (*ret)->local = !name;
        return 0;
    }
    if (!*name || *name == '/' || strstr(name, ".."))
        return err_set(e, ERR_USAGE, EINVAL, "\"%s\" is not the name of a time zone", name);
    const char *dir = getenv("TZDIR");
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", dir ? dir : "/usr/share/zoneinfo", name);
    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(e, ERR_USAGE, ENAMETOOLONG, "\"%s\" is not the name of a time zone", name);
    CLEANUP_FCLOSE FILE *f = fopen(path, "re");
    if (!f) {
        err_set(e, ERR_USAGE, errno, "unknown time zone \"%s\": cannot read %s", name, path);
        err_hint(e, "is the package tzdata installed?");
        return e ? -e->sys : -EINVAL;
    }
    CLEANUP_FREE uint8_t *data = malloc(FILE_MAX + 1);
    if (!data)
        return err_nomem(e);
    size_t len = fread(data, 1, FILE_MAX + 1, f);
    if (ferror(f))
        return err_set(e, ERR_USAGE, EISDIR, "\"%s\" is not the name of a time zone: cannot read %s", name, path);
    int rc = zone_parse(ret, data, len, e);
    if (rc < 0)
        err_wrap(e, "%s", path);
    return rc;
}

void zone_free(struct zone *z)
{
    free(z);
}
