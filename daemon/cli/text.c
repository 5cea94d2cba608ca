/* SPDX-License-Identifier: GPL-2.0-or-later */
/* text.c - sizes, times and names as text */
#include "base/time.h"
#include "daemon/cli/daemon.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define TURNS 8
#define TURN_LEN 64

static char *next_buffer(void)
{
    static _Thread_local char buf[TURNS][TURN_LEN];
    static _Thread_local unsigned turn;
    return buf[turn++ % TURNS];
}

static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

static const char *scaled_text(double v, const char *suffix)
{
    char *out = next_buffer();
    unsigned u = 0;
    while (v >= 1023.95 && u + 1 < sizeof units / sizeof *units) {
        v /= 1024;
        u++;
    }
    if (u == 0)
        snprintf(out, TURN_LEN, "%.0f %s%s", v, units[u], suffix);
    else
        snprintf(out, TURN_LEN, "%.1f %s%s", v, units[u], suffix);
    return out;
}

const char *text_bytes(uint64_t n)
{
    return scaled_text((double)n, "");
}

const char *text_rate(double bytes_per_second)
{
    if (!isfinite(bytes_per_second) || bytes_per_second < 0)
        return "-";
    return scaled_text(bytes_per_second, "/s");
}

const char *text_seconds(double s)
{
    char *out = next_buffer();
    if (!isfinite(s) || s < 0 || s > 100.0 * 86400 * 365)
        return "-";
    uint64_t t = (uint64_t)(s + 0.5);
    if (s < 9.95)
        snprintf(out, TURN_LEN, "%.1f s", s);
    else if (t < 60)
        snprintf(out, TURN_LEN, "%u s", (unsigned)t);
    else if (t < 3600)
        snprintf(out, TURN_LEN, "%u min %02u s", (unsigned)(t / 60), (unsigned)(t % 60));
    else if (t < 86400)
        snprintf(out, TURN_LEN, "%u h %02u min", (unsigned)(t / 3600), (unsigned)(t / 60 % 60));
    else
        snprintf(out, TURN_LEN, "%u d %02u h", (unsigned)(t / 86400), (unsigned)(t / 3600 % 24));
    return out;
}

const char *text_local_time(int64_t ns)
{
    char *out = next_buffer();
    time_t t = (time_t)(ns / NS_PER_S);
    struct tm tm;
    if (!localtime_r(&t, &tm) || !strftime(out, TURN_LEN, "%Y-%m-%d %H:%M:%S %Z", &tm))
        return "-";
    return out;
}

/* Length of the UTF-8 character at s, 0 for invalid ones and those with an effect on a terminal: C0 and C1 controls,
 * overlong forms, surrogates, invisible characters (direction marks, separators, tags). */
static size_t safe_char(const unsigned char *s, uint32_t *ret)
{
    *ret = s[0];
    if (s[0] < 0x80)
        return s[0] >= 0x20 && s[0] != 0x7f;
    size_t n = s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : s[0] >= 0xe0 && s[0] < 0xf0 ? 3 : s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;
    uint32_t u = n ? s[0] & (0x7fu >> n) : 0;
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        u = u << 6 | (s[i] & 0x3f);
    }
    if (u < 0xa0 || (n == 3 && u < 0x800) || (n == 4 && u < 0x10000) || (u >= 0xd800 && u < 0xe000) || u > 0x10ffff)
        return 0;
    *ret = u;
    return char_acts(u) ? 0 : n;
}

/* More combining marks than scripts use would cover the lines above and below. */
#define MARKS_MAX 6

const char *text_name(const char *s)
{
    static _Thread_local char buf[TURNS][4 * 4096 + 1];
    static _Thread_local unsigned turn;
    char *out = buf[turn++ % TURNS];
    size_t n = 0;
    unsigned marks = MARKS_MAX; /* none without a base character */
    while (*s && n + 5 < sizeof buf[0]) {
        uint32_t u;
        size_t len = safe_char((const unsigned char *)s, &u);
        bool mark = len && char_width(u) == 0;
        if (mark && marks == MARKS_MAX)
            len = 0;
        marks = mark && marks < MARKS_MAX ? marks + 1 : mark ? marks : 0;
        if (!len)
            n += (size_t)snprintf(out + n, 5, "\\x%02x", (unsigned char)*s);
        for (size_t i = 0; i < len; i++)
            out[n++] = s[i];
        s += len ? len : 1;
    }
    out[n] = '\0';
    return out;
}

const char *text_size(const json_t *doc, const char *member)
{
    const json_t *v = json_object_get(doc, member);
    return json_is_integer(v) && json_integer_value(v) >= 0 ? text_bytes((uint64_t)json_integer_value(v)) : "-";
}

int size_parse(uint64_t *ret, const char *text)
{
    if (!isdigit((unsigned char)text[0]))
        return -EINVAL;
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno)
        return -EINVAL;
    unsigned shift = 0;
    if (*end) {
        static const char letters[] = "KMGTPE";
        const char *l = strchr(letters, toupper((unsigned char)*end));
        if (l && *l) {
            shift = 10 * (unsigned)(l - letters + 1);
            end++;
            if (*end == 'i')
                end++;
        }
        if (*end == 'B' || *end == 'b')
            end++;
        if (*end)
            return -EINVAL;
    }
    if (shift && v > (UINT64_MAX >> shift))
        return -EINVAL;
    *ret = (uint64_t)v << shift;
    return 0;
}
