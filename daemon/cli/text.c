/* SPDX-License-Identifier: GPL-2.0-or-later */
/* text.c - sizes, times and names as text */
#include "base/time.h"
#include "base/units.h"
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

const char *text_bytes(uint64_t n)
{
    return amount_text((double)n, next_buffer(), TURN_LEN);
}

const char *text_rate(double bytes_per_second)
{
    if (!isfinite(bytes_per_second) || bytes_per_second < 0)
        return "-";
    char *out = amount_text(bytes_per_second, next_buffer(), TURN_LEN);
    size_t n = strlen(out);
    snprintf(out + n, TURN_LEN - n, "/s");
    return out;
}

const char *text_seconds(double s)
{
    return span_text(s, next_buffer(), TURN_LEN);
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
