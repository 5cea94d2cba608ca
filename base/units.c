/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MS_MAX (INT64_C(1000) * 86400 * 36525) /* a hundred years */

int parse_number(const char **p, uint64_t *ret)
{
    if (!isdigit((unsigned char)**p))
        return -EINVAL;
    uint64_t v = 0;
    for (; isdigit((unsigned char)**p); (*p)++) {
        unsigned d = (unsigned)(**p - '0');
        if (v > (UINT64_MAX - d) / 10)
            return -EINVAL;
        v = v * 10 + d;
    }
    *ret = v;
    return 0;
}

static void skip_blanks(const char **p)
{
    *p += strspn(*p, " \t");
}

int parse_bytes(uint64_t *ret, const char *text)
{
    uint64_t v;
    const char *p = text;
    if (parse_number(&p, &v) < 0)
        return -EINVAL;
    skip_blanks(&p);
    unsigned shift = 0;
    static const char letters[] = "KMGTPE";
    const char *l = *p ? strchr(letters, toupper((unsigned char)*p)) : NULL;
    if (l) {
        shift = 10 * (unsigned)(l - letters + 1);
        p++;
        if (*p == 'i')
            p++;
    }
    if (*p == 'B' || *p == 'b')
        p++;
    if (*p || (shift && v > (UINT64_MAX >> shift)))
        return -EINVAL;
    *ret = v << shift;
    return 0;
}

const struct duration_unit duration_units[] = {
    {"ms", 1},         {"msec", 1},        {"s", 1000},       {"sec", 1000},       {"second", 1000},
    {"seconds", 1000}, {"m", 60000},       {"min", 60000},    {"minute", 60000},   {"minutes", 60000},
    {"h", 3600000},    {"hr", 3600000},    {"hour", 3600000}, {"hours", 3600000},  {"d", 86400000},
    {"day", 86400000}, {"days", 86400000}, {"w", 604800000},  {"week", 604800000}, {"weeks", 604800000},
};

const unsigned n_duration_units = sizeof duration_units / sizeof *duration_units;

/* The unit at *p in milliseconds; none means seconds. 0: unknown. */
static int64_t take_unit(const char **p)
{
    size_t n = 0;
    while (isalpha((unsigned char)(*p)[n]))
        n++;
    if (!n)
        return 1000;
    for (size_t i = 0; i < n_duration_units; i++)
        if (strlen(duration_units[i].name) == n && !strncmp(duration_units[i].name, *p, n)) {
            *p += n;
            return duration_units[i].ms;
        }
    return 0;
}

int parse_duration_ms(int64_t *ret, const char *text)
{
    int64_t sum = 0;
    const char *p = text;
    if (!*p)
        return -EINVAL;
    while (*p) {
        uint64_t v;
        if (parse_number(&p, &v) < 0)
            return -EINVAL;
        skip_blanks(&p);
        int64_t unit = take_unit(&p);
        if (!unit || v > (uint64_t)(MS_MAX / unit) || (int64_t)v * unit > MS_MAX - sum)
            return -EINVAL;
        sum += (int64_t)v * unit;
        skip_blanks(&p);
    }
    *ret = sum;
    return 0;
}

int parse_duration(int64_t *ret, const char *text)
{
    int64_t ms;
    if (parse_duration_ms(&ms, text) < 0 || ms % 1000)
        return -EINVAL;
    *ret = ms / 1000;
    return 0;
}

/* ---- and back ---- */

static char *next_text(void)
{
    static _Thread_local char texts[4][32];
    static _Thread_local unsigned turn;
    return texts[turn++ % 4];
}

const char *bytes_text(int64_t n)
{
    static const char *const units[] = {" bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    char *out = next_text();
    unsigned u = 0;
    for (; n && n % 1024 == 0 && u < 6; u++)
        n /= 1024;
    snprintf(out, 32, "%lld%s", (long long)n, n == 1 && !u ? " byte" : units[u]);
    return out;
}

/* In the largest unit that divides it. */
static const char *exact_text(int64_t ms, const char *space)
{
    static const struct duration_unit units[] = {
        {"d", 86400000}, {"h", 3600000}, {"min", 60000}, {"s", 1000}, {"ms", 1}};
    char *out = next_text();
    unsigned u = 0;
    while (ms % units[u].ms)
        u++;
    snprintf(out, 32, "%lld%s%s", (long long)(ms / units[u].ms), space, units[u].name);
    return out;
}

const char *duration_text(int64_t ms)
{
    return exact_text(ms, "");
}

const char *duration_words(int64_t s)
{
    return exact_text(s * 1000, " ");
}

char *amount_text(double n, char *out, size_t cap)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned u = 0;
    for (; n >= 1023.95 && u + 1 < sizeof units / sizeof *units; u++)
        n /= 1024;
    snprintf(out, cap, u ? "%.1f %s" : "%.0f %s", n, units[u]);
    return out;
}

char *span_text(double s, char *out, size_t cap)
{
    const unsigned t = s > 0 && s < 4e9 ? (unsigned)(s + 0.5) : 0;
    if (!isfinite(s) || s < 0 || s > 100.0 * 86400 * 365)
        snprintf(out, cap, "-");
    else if (s < 9.95)
        snprintf(out, cap, "%.1f s", s);
    else if (t < 60)
        snprintf(out, cap, "%u s", t);
    else if (t < 3600)
        snprintf(out, cap, "%u min %02u s", t / 60, t % 60);
    else if (t < 86400)
        snprintf(out, cap, "%u h %02u min", t / 3600, t / 60 % 60);
    else
        snprintf(out, cap, "%u d %02u h", t / 86400, t / 3600 % 24);
    return out;
}
