/* SPDX-License-Identifier: GPL-2.0-or-later */
/* units.c - sizes and times as people write them */
#include "cfg/internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MS_MAX (INT64_C(1000) * 86400 * 36525) /* a hundred years */

/* Digits at *p; leaves *p behind them. */
static int take_number(const char **p, uint64_t *ret)
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

int cfg_parse_bytes(uint64_t *ret, const char *text)
{
    uint64_t v;
    const char *p = text;
    if (take_number(&p, &v) < 0)
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

int parse_milliseconds(int64_t *ret, const char *text)
{
    int64_t sum = 0;
    const char *p = text;
    if (!*p)
        return -EINVAL;
    while (*p) {
        uint64_t v;
        if (take_number(&p, &v) < 0)
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

int cfg_parse_duration(int64_t *ret, const char *text)
{
    int64_t ms;
    if (parse_milliseconds(&ms, text) < 0 || ms % 1000)
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

const char *duration_text(int64_t ms)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {{"d", 86400000}, {"h", 3600000}, {"min", 60000}, {"s", 1000}, {"ms", 1}};
    char *out = next_text();
    unsigned u = 0;
    while (ms % units[u].ms)
        u++;
    snprintf(out, 32, "%lld%s", (long long)(ms / units[u].ms), units[u].name);
    return out;
}

/* ---- CPUs ---- */

static int take_cpu(const char **p, uint64_t *ret, const char **why)
{
    *why = "it wants a list such as 0-3,8";
    if (take_number(p, ret) < 0)
        return -EINVAL;
    *why = "CPUs have numbers from 0 to 1023";
    return *ret < CFG_CPUS_MAX ? 0 : -EINVAL;
}

int cfg_parse_cpus(uint8_t mask[CFG_CPUS_MAX / 8], const char *text, const char **why)
{
    memset(mask, 0, CFG_CPUS_MAX / 8);
    for (const char *p = text;; p++) {
        uint64_t first, last;
        if (take_cpu(&p, &first, why) < 0)
            return -EINVAL;
        last = first;
        if (*p == '-' && (p++, take_cpu(&p, &last, why) < 0))
            return -EINVAL;
        if (last < first) {
            *why = "a range ends before it begins";
            return -EINVAL;
        }
        for (; first <= last; first++)
            mask[first / 8] |= (uint8_t)(1u << first % 8);
        if (!*p)
            return 0;
        *why = "it wants a list such as 0-3,8";
        if (*p != ',')
            return -EINVAL;
    }
}
