/* SPDX-License-Identifier: GPL-2.0-or-later */
/* jobs.c - jobs with their last and next runs */
#include "daemon/cli/results.h"

#include <string.h>

void job_next(const json_t *job, bool offline, char *out, size_t cap)
{
    const char *idle = jstr(job, "idle_because");
    if (jbool(job, "paused"))
        snprintf(out, cap, "paused");
    else if (*idle)
        snprintf(out, cap, "not scheduled: %.200s", idle);
    else if (offline && jbool(job, "due"))
        snprintf(out, cap, "when the daemon starts");
    else if (offline && jint(job, "next"))
        snprintf(out, cap, "%s, if the daemon runs", text_in(jint(job, "next")));
    else
        snprintf(out, cap, "%s", jint(job, "next") ? text_in(jint(job, "next")) : "no next run");
}

/* Of its last backup while that runs, else of the last one that ended. */
static const char *result_of(const json_t *j)
{
    const char *state = jstr(j, "last_state");
    return *state ? state : jstr(jobj(j, "last_result"), "state");
}

static void job_notes(struct table *t, const json_t *j)
{
    const json_t *failed = jobj(j, "failed"), *missing = jarr(j, "missing");
    const size_t n = json_array_size(missing);
    char text[1400];
    if (!jbool(j, "paused"))
        table_note(t, TINT_DIM, jstr(j, "idle_because"));
    if (failed) {
        snprintf(text, sizeof text, "could not be started %s: %.1200s", text_ago(jint(failed, "at_ns")),
                 jstr(failed, "message"));
        table_note(t, TINT_BAD, text);
    }
    if (jint(j, "gone_ns")) {
        snprintf(text, sizeof text, "%.190s: ", jstr(j, "last_backup"));
        const size_t n_id = strlen(text);
        gone_text(j, text + n_id, sizeof text - n_id);
        table_note(t, TINT_BAD, text);
    }
    if (failed && *jstr(failed, "hint")) {
        snprintf(text, sizeof text, "→ %.1200s", jstr(failed, "hint"));
        table_note(t, TINT_NONE, text);
    }
    if (n && !failed) {
        snprintf(text, sizeof text, "not found by its last run: %.600s%s", jstr(json_array_get(missing, 0), "reason"),
                 n > 1 ? "; --json lists all" : "");
        table_note(t, TINT_WARN, text);
    }
}

int ask_jobs(const struct options *o, struct err *e)
{
    CLEANUP_JSON json_t *answer = NULL;
    int rc = ask_or_read(o, "jobs", NULL, &answer, e);
    if (rc < 0)
        return rc;
    if (answered(o, answer))
        return 0;
    static const char *const heads[] = {"JOB", "LAST RUN", "RESULT", "NEXT RUN", "SCHEDULE"};
    const bool offline = jbool(answer, "offline");
    struct table *t = table_new(heads, "sLllE");
    const json_t *j;
    size_t i;
    json_array_foreach(jarr(answer, "jobs"), i, j)
    {
        const char *state = result_of(j);
        char next[256];
        const bool idle = *jstr(j, "idle_because") && !jbool(j, "paused"); /* a note says why */
        job_next(j, offline, next, sizeof next);
        table_cell(t, TINT_NONE, "%s", jstr(j, "job"));
        table_cell(t, TINT_NONE, "%s", jbool(j, "unknown") ? "unknown" : text_ago(jint(j, "last")));
        table_cell(t, tint_of_state(state), "%s", *state ? state : "-");
        table_cell(t, TINT_NONE, "%s", idle ? "-" : next);
        table_cell(t, TINT_NONE, "%s", *jstr(j, "on_calendar") ? jstr(j, "on_calendar") : "-");
        job_notes(t, j);
    }
    if (!table_rows(t))
        puts("No jobs.");
    table_print(t, stdout, "");
    return 0;
}
