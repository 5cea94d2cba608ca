/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * splitter-advice.c - what incremental backups of a class store for what has changed, and the splitter that would store
 * less
 *
 * A chunk is stored again if a byte of it has changed. With w ranges of l bytes each at random places of a volume of a
 * bytes, and chunks of c bytes, that is a·(1 − e^(−w·(c + l)/a)): each range meets (c + l)/c chunks, and some meet the
 * same. Only fixed lengths are recommended: what a list of changed blocks names does not move.
 */
#include "daemon/answers/answers-impl.h"

#include <string.h>

#define RUNS_MIN 3
#define GAIN_MIN 2.0   /* times less than what is stored now, or nothing is said: a change stores everything once */
#define NEAR_BEST 1.25 /* the largest chunks that store at most that much more than the best */
#define CONTENTS_MAX 4194304 /* of the volume: 150 MiB of index */

static const struct {
    const char *name;
    double bytes;
} candidates[] = {
    {"FIXED-128K", 131072}, {"FIXED-256K", 262144}, {"FIXED-512K", 524288}, {"FIXED-1M", 1048576},
    {"FIXED-2M", 2097152},  {"FIXED-4M", 4194304},  {"FIXED-8M", 8388608},
};
#define CANDIDATES (sizeof candidates / sizeof *candidates)

/* e^-x for x >= 0 to some percent, which is what the rest of it is worth: the daemon needs no libm. */
static double exp_decay(double x)
{
    double y = 1 / (1 + x / 1024);
    for (unsigned i = 0; i < 10; i++)
        y *= y;
    return y;
}

static double stored_by(double volume, double ranges, double length, double chunk)
{
    return volume * (1 - exp_decay(ranges * (chunk + length) / volume));
}

/* The one to recommend, and what it would store in a run; CANDIDATES: none suits. */
static size_t splitter_best(double volume, double ranges, double length, double *stored)
{
    size_t ret = CANDIDATES;
    double best = 0;
    for (size_t i = 0; i < CANDIDATES; i++) {
        const double n = stored_by(volume, ranges, length, candidates[i].bytes);
        if (volume / candidates[i].bytes > CONTENTS_MAX)
            continue;
        if (ret == CANDIDATES)
            best = n;
        if (n <= best * NEAR_BEST) {
            ret = i;
            *stored = n;
        }
    }
    return ret;
}

void splitter_advice(struct records *r, const char *klass, const char *splitter, double volume, json_t *answer,
                     json_t *text)
{
    static const char *const names[] = {"incremental_runs_total", "incremental_changed_bytes_total",
                                        "incremental_changed_ranges_total", "incremental_new_bytes_total"};
    double n[4] = {0}, estimate = 0;
    CLEANUP_JSON json_t *labels = json_pack("{s:s}", "class", klass);
    for (size_t i = 0; i < 4; i++)
        records_counter_get(r, names[i], labels, &n[i]);
    const double runs = n[0], changed = n[1], ranges = n[2], stored = n[3];
    if (runs < RUNS_MIN || changed <= 0 || ranges <= 0 || stored <= 0)
        return;
    json_t *o = json_pack("{s:I,s:I,s:I,s:I,s:f}", "runs", (json_int_t)runs, "changed_bytes", (json_int_t)changed,
                          "changed_ranges", (json_int_t)ranges, "new_bytes", (json_int_t)stored, "amplification",
                          stored / changed);
    json_object_set_new(answer, "splitter", o);
    add_text(
        text,
        "%.0f incremental backups in its class stored %.1f bytes for each byte that changed (%.0f KiB in a run, in "
        "ranges of %.0f KiB).",
        runs, stored / changed, changed / runs / 1024, changed / ranges / 1024);
    if (volume <= 0)
        return;
    const size_t i = splitter_best(volume, ranges / runs, changed / ranges, &estimate);
    if (i == CANDIDATES || !strcmp(candidates[i].name, splitter) || estimate * GAIN_MIN > stored / runs)
        return;
    jset_str(o, "recommended", candidates[i].name);
    json_object_set_new(o, "estimate", json_real(estimate * runs / changed));
    add_text(text,
             "With splitter = %s it would be about %.0f: set it in the class; the next backup then stores everything "
             "once more.",
             candidates[i].name, estimate * runs / changed);
}
