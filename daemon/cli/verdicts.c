/* SPDX-License-Identifier: GPL-2.0-or-later */
/* verdicts.c - see verdicts.h */
#include "daemon/cli/verdicts.h"

#include "base/units.h"

#include <string.h>

#define REASON_MIN 24 /* columns; on narrower screens the reason has its own line */

/* The name of the volume and the source, or the source alone. */
static void print_heading(const struct verdict_line *v, bool first)
{
    char line[10000];
    if (!first)
        putchar('\n');
    if (*v->volume)
        snprintf(line, sizeof line, "%.4400s (%.4400s)", v->volume, v->source);
    else
        snprintf(line, sizeof line, "%.4400s", v->source);
    print_paragraph(stdout, line, 0, 4);
    if (v->explain && v->policy) {
        snprintf(line, sizeof line, "keeps: %.4000s", *v->policy ? v->policy : "all");
        fputs("  ", stdout);
        print_paragraph(stdout, line, 2, 4);
    }
}

void verdict_print(const struct verdict_line *v, char last[5000])
{
    if (v->keep && !v->explain)
        return;
    if (strcmp(last, v->source) != 0) {
        print_heading(v, !*last);
        snprintf(last, 5000, "%s", v->source);
    }
    enum tint t = v->keep ? TINT_GOOD : TINT_WARN;
    char head[128];
    snprintf(head, sizeof head, "  %.16s  %s  ", v->id, text_local_time(v->start_ns));
    unsigned at = text_width(head) + 9;
    printf("%s%s%s%s", head, tint_on(t), v->keep ? "kept" : "expired", tint_off(t));
    if (screen_width() >= at + REASON_MIN) {
        printf("%*s", v->keep ? 5 : 2, "");
        print_paragraph(stdout, v->why, at, at);
    } else {
        fputs("\n      ", stdout);
        print_paragraph(stdout, v->why, 6, 6);
    }
}

void print_leftovers(uint64_t files, uint64_t bytes, bool dry_run)
{
    char size[32];
    if (files)
        printf("%llu unfinished file%s of killed writers %s (%s).\n", (unsigned long long)files, files == 1 ? "" : "s",
               dry_run ? "would be removed" : "removed", amount_text((double)bytes, size, sizeof size));
}
