/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/cli/stages.h"

#include "daemon/cli/daemon.h"

#include <stdarg.h>
#include <string.h>

#define SHOWN 0.0005 /* seconds; less would be 0.00 s */

struct line {
    char *out;
    size_t cap, len;
};

static void put_text(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put_text(struct line *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = l->len < l->cap ? vsnprintf(l->out + l->len, l->cap - l->len, fmt, ap) : 0;
    va_end(ap);
    l->len += n > 0 ? (size_t)n : 0;
}

static void put_stage(struct line *l, const char *name, double busy, double stalled)
{
    if (busy < SHOWN && stalled < SHOWN)
        return;
    put_text(l, "%s%s %.2f s", l->len ? ", " : "", name, busy);
    if (stalled >= 0.005)
        put_text(l, " (waited %.2f s)", stalled);
}

void stages_text(char *out, size_t cap, const struct stage_time *s, unsigned n, const char *bottleneck)
{
    struct line l = {out, cap, 0};
    *out = '\0';
    for (unsigned i = 0; i < n; i++)
        put_stage(&l, s[i].name, s[i].busy, s[i].stalled);
    if (l.len && bottleneck && *bottleneck)
        put_text(&l, "; bottleneck: %s", bottleneck);
}

bool stages_text_json(char *out, size_t cap, const json_t *stages, const char *bottleneck)
{
    struct line l = {out, cap, 0};
    size_t i;
    const json_t *s;
    *out = '\0';
    json_array_foreach(stages, i, s)
        put_stage(&l, jstr(s, "name"), json_number_value(json_object_get(s, "busySeconds")),
                  json_number_value(json_object_get(s, "stalledSeconds")));
    if (l.len && *bottleneck)
        put_text(&l, "; bottleneck: %s", bottleneck);
    return l.len > 0;
}

void stages_print(const struct stage_time *s, unsigned n, const char *bottleneck)
{
    char text[1024];
    stages_text(text, sizeof text, s, n, bottleneck);
    if (!*text)
        return;
    fputs("Time        ", stdout);
    print_paragraph(stdout, text, 12, 12);
}
