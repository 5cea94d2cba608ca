/* SPDX-License-Identifier: GPL-2.0-or-later */
/* progress-line.c - progress in one line of any width */
#include "daemon/cli/live.h"
#include "base/pace.h"

#include <stdarg.h>
#include <string.h>

#define PARTS_MAX 12

/* Parts of a line; rank 0 is never omitted, the highest is omitted first. */
struct parts {
    char text[PARTS_MAX][256];
    unsigned rank[PARTS_MAX];
    unsigned n;
};

static void add_part(struct parts *p, unsigned rank, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void add_part(struct parts *p, unsigned rank, const char *fmt, ...)
{
    va_list ap;
    if (p->n == PARTS_MAX)
        return;
    va_start(ap, fmt);
    vsnprintf(p->text[p->n], sizeof p->text[0], fmt, ap);
    va_end(ap);
    p->rank[p->n++] = rank;
}

static void join_parts(const struct parts *p, const char *head, char *out, size_t cap)
{
    size_t n = (size_t)snprintf(out, cap, "%s", head);
    for (unsigned i = 0; i < p->n && n < cap; i++)
        n += (size_t)snprintf(out + n, cap - n, "%s%s", i ? ", " : *head ? " " : "", p->text[i]);
}

/* Removes the part of the highest rank, if it is at least `least`. */
static bool remove_part(struct parts *p, unsigned least)
{
    unsigned worst = 0;
    for (unsigned i = 1; i < p->n; i++)
        if (p->rank[i] >= p->rank[worst])
            worst = i;
    if (!p->n || p->rank[worst] < least)
        return false;
    p->n--;
    for (unsigned i = worst; i < p->n; i++) {
        memcpy(p->text[i], p->text[i + 1], sizeof p->text[0]);
        p->rank[i] = p->rank[i + 1];
    }
    return true;
}

/* Joins the parts; removes parts of rank `least` and higher, then shortens the name to `name_min` until they fit. */
static bool fit_parts(struct parts *p, const char *what, unsigned least, unsigned name_min, unsigned width, char *out,
                      size_t cap)
{
    char head[1024];
    unsigned have = text_width(what);
    snprintf(head, sizeof head, "%.1000s%s", what, *what ? ":" : "");
    join_parts(p, head, out, cap);
    while (text_width(out) > width && remove_part(p, least))
        join_parts(p, head, out, cap);
    unsigned now = text_width(out), over = now > width ? now - width : 0;
    if (!over)
        return true;
    if (have > name_min) {
        snprintf(head, sizeof head, "%.1000s:", text_fit(what, have > over + name_min ? have - over : name_min));
        join_parts(p, head, out, cap);
    }
    return text_width(out) <= width;
}

/* "12.3 GiB of 27.0 GiB" */
static void add_amounts(struct parts *p, const struct shown *s)
{
    if (s->total > 0)
        add_part(p, 4, "%s of %s", text_bytes((uint64_t)s->done), text_bytes((uint64_t)s->total));
    else if (s->done > 0)
        add_part(p, 4, "%s", text_bytes((uint64_t)s->done));
}

#define BAR 20       /* columns */
#define BAR_FROM 100 /* on narrower screens the words need the room */

/* "[========            ]" */
static const char *progress_bar(int percent)
{
    static char text[BAR + 3];
    memset(text, ' ', sizeof text - 1);
    memset(text + 1, '=', (size_t)(percent * BAR / 100));
    text[0] = '[';
    text[BAR + 1] = ']';
    return text;
}

void progress_line(const struct shown *s, unsigned width, char *out, size_t cap)
{
    struct parts p = {.n = 0};
    int percent = pace_percent(s->done, s->total, false);
    if (*s->phase && percent >= 0 && width >= BAR_FROM && width < SCREEN_ENDLESS)
        add_part(&p, 0, "%s %d%% %s", text_name(s->phase), percent, progress_bar(percent));
    else if (*s->phase && percent >= 0)
        add_part(&p, 0, "%s %d%%", text_name(s->phase), percent);
    else if (*s->phase)
        add_part(&p, 0, "%s", text_name(s->phase));
    add_amounts(&p, s);
    if (s->rate > 0)
        add_part(&p, 3, "%s", text_rate(s->rate));
    if (s->stalled >= LIVE_STALL)
        add_part(&p, 0, "no progress for %s", text_seconds(s->stalled));
    else if (s->left >= 0)
        add_part(&p, 0, "%s", text_left(s->left));
    if (s->errors)
        add_part(&p, 0, "%llu ERRORS", (unsigned long long)s->errors);
    if (*s->rest)
        add_part(&p, 2, "%.200s", text_name(s->rest));
    if (s->zero > 0)
        add_part(&p, 6, "%s zero", text_bytes((uint64_t)s->zero));
    if (s->skipped > 0)
        add_part(&p, 5, "%s skipped", text_bytes((uint64_t)s->skipped));
    if (s->duplicate > 0)
        add_part(&p, 7, "%s duplicate", text_bytes((uint64_t)s->duplicate));
    const char *what = text_name(s->what);
    /* Omitted in this order: zero and known amounts, some of the name, rate and amounts, more of the name. */
    if (!fit_parts(&p, what, 5, 20, width, out, cap))
        fit_parts(&p, what, 1, 8, width, out, cap);
}

void shown_from_json(struct shown *s, const json_t *progress)
{
    const json_t *eta = json_object_get(progress, "eta_s");
    *s = (struct shown){.what = "", .phase = jstr(progress, "phase"), .left = -1, .rest = ""};
    s->total = jint(progress, "total");
    s->done = jint(progress, "done") > 0 ? jint(progress, "done") : 0;
    s->zero = jint(progress, "zero");
    s->skipped = jint(progress, "skipped");
    s->duplicate = jint(progress, "duplicate");
    s->errors = jint(progress, "errors") > 0 ? (uint64_t)jint(progress, "errors") : 0;
    s->rate = json_number_value(json_object_get(progress, "rate"));
    if (json_is_number(eta))
        s->left = json_number_value(eta);
}
