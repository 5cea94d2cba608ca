/* SPDX-License-Identifier: GPL-2.0-or-later */
/* jobs.c - last and next runs of jobs */
#include "base/time.h"
#include "daemon/answers/answers-impl.h"
#include "daemon/answers/counted.h"

#define AHEAD_NS NS_PER_MIN

/* Adds `last_result` to a job: how its last backup ended, and when. What has a time in the future was recorded before
 * the clock was set back: any other is newer. */
static void put_result(struct records *r, const char *name, int64_t now_ns, json_t *job)
{
    static const char *const results[][2] = {{"completed", "Completed"},
                                             {"partially_failed", "PartiallyFailed"},
                                             {"failed", "Failed"},
                                             {"canceled", "Canceled"}};
    const char *state = NULL;
    int64_t at_ns = -1;
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        CLEANUP_JSON json_t *labels = json_pack("{s:s, s:s}", "schedule", name, "result", results[i][0]);
        int64_t then;
        if (!counted(r, "backup_last_end_timestamp_seconds", labels, 1e9, &then))
            continue;
        const bool ahead = then > now_ns + AHEAD_NS, was_ahead = at_ns > now_ns + AHEAD_NS;
        if (!state || (ahead == was_ahead ? then > at_ns : was_ahead)) {
            at_ns = then;
            state = results[i][1];
        }
    }
    if (state)
        json_object_set_new(job, "last_result", json_pack("{s:s, s:I}", "state", state, "ended_ns", (json_int_t)at_ns));
}

/* ---- runs that only a repository knew ---- */

#define REBUILT_LOOKED_AT 500 /* the newest records */

struct rebuilt {
    const char *job;
    char id[256];
    enum backup_state state;
    int64_t ended_ns;
};
static int note_rebuilt(const struct backup *b, void *arg)
{
    struct rebuilt *x = arg;
    if (!b->rebuilt || b->unproven || strcmp(b->job, x->job) != 0 || b->completed_ns <= x->ended_ns ||
        !backup_state_terminal(b->state))
        return 0;
    snprintf(x->id, sizeof x->id, "%s", b->id);
    x->state = b->state;
    x->ended_ns = b->completed_ns;
    return 0;
}

/* A job without a run in the records, which were lost: its last one as the repository has it. */
static void put_rebuilt(const struct answer_facts *f, const char *name, json_t *job)
{
    const struct backup_filter newest = {.newest_first = true, .limit = REBUILT_LOOKED_AT};
    struct rebuilt x = {.job = name};
    backup_each(f->records, &newest, note_rebuilt, &x, NULL);
    if (!x.ended_ns)
        return;
    const char *state = backup_state_name(x.state);
    jset_int(job, "last", x.ended_ns);
    jset_str(job, "last_backup", x.id);
    jset_str(job, "last_state", state);
    json_object_set_new(job, "last_result",
                        json_pack("{s:s, s:I}", "state", state, "ended_ns", (json_int_t)x.ended_ns));
}

/* Whether runs may have been that the records do not have: of before they were rebuilt, or in a repository that has not
 * been scanned yet. */
static bool is_history_lost(const struct answer_facts *f)
{
    double at;
    for (unsigned i = 0; i < f->n_repositories; i++)
        if (f->repositories[i].unscanned)
            return true;
    return records_counter_get(f->records, RECORDS_REBUILT, NULL, &at);
}

/* Its last run, and what became of its last start. */
static json_t *past_document(const struct answer_facts *f, const char *name, int64_t last_ns, const char *backup,
                             const struct job_failure *failed, const json_t *missing)
{
    struct records *r = f->records;
    CLEANUP(backup_clear) struct backup b = ROW_INIT;
    json_t *o = json_object();
    jset_str(o, "job", name);
    jset_int(o, "last", last_ns);
    put_text(o, "last_backup", backup);
    if (backup[0] && backup_get(r, backup, &b, NULL) == 0) {
        jset_str(o, "last_state", backup_state_name(b.state));
        put_gone(o, &b);
    }
    put_result(r, name, f->now_ns, o);
    if (!last_ns && !json_object_get(o, "last_result"))
        put_rebuilt(f, name, o);
    if (!last_ns && !json_object_get(o, "last_result") && is_history_lost(f))
        jset_bool(o, "unknown", true);
    if (failed)
        json_object_set_new(o, "failed",
                            json_pack("{s:s, s:s, s:I}", "message", failed->message, "hint", failed->hint, "at_ns",
                                      (json_int_t)failed->at_ns));
    if (json_array_size(missing))
        json_object_set(o, "missing", (json_t *)(uintptr_t)missing);
    return o;
}

static json_t *job_document(const struct answer_facts *f, const struct job_view *v)
{
    json_t *o = past_document(f, v->name, v->last_ns, v->last_backup, v->failed, v->missing);
    jset_str(o, "on_calendar", v->on_calendar);
    jset_int(o, "next", v->next_ns);
    jset_bool(o, "due", v->due);
    jset_bool(o, "paused", v->paused);
    jset_bool(o, "elsewhere", v->elsewhere);
    put_text(o, "idle_because", v->idle_because);
    jset_int(o, "since_ns", v->since_ns);
    jset_int(o, "interval_s", v->interval_s);
    jset_int(o, "jitter_s", v->jitter_s);
    return o;
}

struct past_jobs {
    const struct answer_facts *facts;
    json_t *list;
};
/* A job that only the records know. */
static int add_past_job(const struct job_run *m, void *arg)
{
    const struct past_jobs *p = arg;
    if (m->maintain.there || m->verification.there || m->copy.there)
        return 0;
    json_t *o =
        past_document(p->facts, m->id, m->last_run_ns, m->last_backup, m->failed.there ? &m->failed : NULL, m->missing);
    jset_str(o, "on_calendar", m->on_calendar);
    jset_str(o, "idle_because", "the configuration cannot be read");
    return json_array_append_new(p->list, o);
}

json_t *list_jobs(const struct answer_facts *f)
{
    struct past_jobs p = {f, json_array()};
    for (unsigned i = 0; i < f->jobs.n; i++)
        json_array_append_new(p.list, job_document(f, &f->jobs.v[i]));
    if (!f->jobs.v)
        job_run_each(f->records, NULL, add_past_job, &p, NULL);
    return p.list;
}

json_t *answer_jobs(const struct answer_facts *f)
{
    return json_pack("{s:o}", "jobs", list_jobs(f));
}
