/* SPDX-License-Identifier: GPL-2.0-or-later */
/* stages.c - where the time of movers goes, added up over all of them */
#include "base/cleanup.h"
#include "daemon/decide/decide.h"

#include <math.h>

/* A year of a thousand threads: no operation takes longer, and a sum stays exact enough. */
#define SECONDS_MAX (1000.0 * 366 * 86400)

/* A mover's result is the word of a process that reads foreign data: only names that are known become labels, so that
 * the number of counters is fixed. */
static const char *stage_label(const char *name)
{
    static const char *const known[] = {"read",     "fetch",   "zero",    "split",      "hash",  "lookup",
                                        "compress", "encrypt", "decrypt", "decompress", "write", "commit"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i]))
            return known[i];
    return "other";
}

static void add_seconds(struct records *r, const char *counter, const json_t *labels, double s)
{
    if (isfinite(s) && s > 0 && s <= SECONDS_MAX)
        records_counter_add(r, counter, labels, s, NULL);
}

void count_stages(struct records *r, const char *direction, const struct mover_figures *f)
{
    const struct mover_stage *stage = f->result.stages.v;
    for (unsigned i = 0; i < f->result.stages.n && i < STAGES_OF_A_RESULT; i++) {
        CLEANUP_JSON json_t *labels =
            json_pack("{s:s,s:s}", "direction", direction, "stage", stage_label(stage[i].name));
        add_seconds(r, "stage_busy_seconds_total", labels, stage[i].busy_s);
        add_seconds(r, "stage_stall_seconds_total", labels, stage[i].stalled_s);
    }
    const char *bound = f->bottleneck;
    if (!bound[0])
        return;
    CLEANUP_JSON json_t *labels = json_pack("{s:s,s:s}", "direction", direction, "stage", stage_label(bound));
    records_counter_add(r, "bottleneck_total", labels, 1, NULL);
}
