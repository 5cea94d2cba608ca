/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ages.c - ages, times to come, percentages */
#include "base/time.h"
#include "daemon/cli/daemon.h"
#include "base/pace.h"

#include <math.h>

#define TURNS 8
/* Differences up to this are not shown as a time in the future. */
#define SLACK_S 5

/* Seconds from a to b, without overflow. */
static double seconds_between(int64_t a, int64_t b)
{
    return ((double)b - (double)a) * 1e-9;
}

/* An age in one unit. */
static void age_text(double s, char *out, size_t cap)
{
    static const struct {
        double below, unit;
        const char *name;
    } units[] = {{60, 1, "s"}, {3600, 60, "min"}, {48 * 3600, 3600, "h"}, {730 * 86400.0, 86400, "d"}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (s < units[i].below) {
            snprintf(out, cap, "%.0f %s", floor(s / units[i].unit), units[i].name);
            return;
        }
    }
    snprintf(out, cap, "%.0f y", floor(s / (365.25 * 86400)));
}

static char *next_buffer(void)
{
    static char buf[TURNS][48];
    static unsigned turn;
    return buf[turn++ % TURNS];
}

const char *text_ago(int64_t ns)
{
    if (ns <= 0)
        return "never";
    char *out = next_buffer(), s[32];
    double age = seconds_between(ns, now_ns());
    /* A clock is or was wrong: shown as "ahead". */
    age_text(age < -SLACK_S ? -age : age < 0 ? 0 : age, s, sizeof s);
    snprintf(out, sizeof(char[48]), "%s %s", s, age < -SLACK_S ? "ahead" : "ago");
    return out;
}

const char *text_in(int64_t ns)
{
    if (ns <= 0)
        return "-";
    char *out = next_buffer(), s[32];
    double left = seconds_between(now_ns(), ns);
    age_text(left < 0 ? -left : left, s, sizeof s);
    if (left < -60)
        snprintf(out, sizeof(char[48]), "%s late", s);
    else if (left < 1)
        snprintf(out, sizeof(char[48]), "now");
    else
        snprintf(out, sizeof(char[48]), "in %s", s);
    return out;
}

const char *text_took(int64_t from, int64_t to)
{
    return from > 0 && to >= from ? text_seconds(seconds_between(from, to)) : "";
}

const char *doc_took(const json_t *doc)
{
    const int64_t started = jint(doc, "started_ns");
    const int64_t from = started > 0 || jint(doc, "recorded_ns") ? started : jint(doc, "created_ns");
    const int64_t to = jint(doc, "ended_ns");
    return from > 0 && to > 0 ? text_took(from, to - jint(doc, "clock_set_ns")) : "";
}

const char *text_percent(const json_t *progress)
{
    int percent = pace_percent(jint(progress, "done"), jint(progress, "total"), false);
    if (percent < 0)
        return "";
    char *out = next_buffer();
    snprintf(out, sizeof(char[48]), "%d%%", percent);
    return out;
}

const char *text_left(double seconds)
{
    /* Rounded up in steps of at most a tenth, so that the text does not change with each update and is right. */
    const double step = seconds < 20 ? 1 : seconds < 60 ? 2 : seconds < 120 ? 5 : 10;
    if (seconds >= 0 && seconds < 3600)
        seconds = ceil(seconds / step) * step;
    char *out = next_buffer();
    if (seconds < 10)
        snprintf(out, sizeof(char[48]), "%.0f s left", seconds);
    else
        snprintf(out, sizeof(char[48]), "%s left", text_seconds(seconds));
    return out;
}
