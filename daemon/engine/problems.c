/* SPDX-License-Identifier: GPL-2.0-or-later */
/* engine-problems.c - what `snapferry status` lists under Problems, as far as it is not about single operations */
#include "daemon/engine/engine-impl.h"

#include <inttypes.h>
#include <stdio.h>

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

void problems_of_jobs(const json_t *jobs, json_t *list)
{
    const json_t *j;
    size_t i;
    json_array_foreach(jobs, i, j)
    {
        const json_t *failed = jobj(j, "failed"), *missing = json_array_get(jarr(j, "missing"), 0);
        const size_t n = json_array_size(jarr(j, "missing"));
        if (jbool(j, "paused") || jbool(j, "elsewhere"))
            continue;
        if (missing && !failed)
            problem(list, "warning", n > 1 ? "`snapferry status --json` lists all" : "",
                    "job \"%s\" did not find %zu of what it names: %s", jstr(j, "job"), n, jstr(missing, "reason"));
        if (failed)
            problem(list, "error", jstr(failed, "hint"), "job \"%s\" could not be started: %s", jstr(j, "job"),
                    jstr(failed, "message"));
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
