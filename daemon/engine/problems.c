/* SPDX-License-Identifier: GPL-2.0-or-later */
/* engine-problems.c - what `snapferry status` lists under Problems, as far as it is not about single operations */
#include "daemon/engine/engine-impl.h"

#include <inttypes.h>
#include <stdio.h>

#define PROBLEMS_MAX 40 /* more than a person reads */

void problem(json_t *list, const char *severity, const char *hint, const char *fmt, ...)
{
    char text[1400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    json_t *o = json_object();
    jset_str(o, "severity", severity);
    jset_str(o, "text", text);
    if (hint && hint[0])
        jset_str(o, "hint", hint);
    json_array_append_new(list, o);
}

void problems_of_jobs(const struct job_view *jobs, unsigned n, json_t *list)
{
    for (unsigned i = 0; i < n && json_array_size(list) < PROBLEMS_MAX; i++) {
        const struct job_view *j = &jobs[i];
        const json_t *first = json_array_get(j->missing, 0);
        const size_t missing = json_array_size(j->missing);
        if (j->paused || j->elsewhere)
            continue;
        if (missing && !j->failed)
            problem(list, "warning", missing > 1 ? "`snapferry jobs --json` lists all" : "",
                    "job \"%s\" did not find %zu of what it names: %s", j->name, missing, jstr(first, "reason"));
        if (j->failed)
            problem(list, "error", j->failed->hint, "job \"%s\" could not be started: %s", j->name, j->failed->message);
    }
}

void problem_of_room(const struct repo_health *h, json_t *list)
{
    if (!h->known || !repository_full(h))
        return;
    problem(list, "error", "give it room, or keep less (keep-*) and run maintenance with kopia",
            "repository \"%s\" is full: %.1f %% of its file system (%" PRId64 " MiB) are free", h->name,
            100 * (double)h->free_bytes / (double)h->size_bytes, h->free_bytes >> 20);
}
