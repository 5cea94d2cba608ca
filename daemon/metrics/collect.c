/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * collect.c - the samples of a page: daemon, configuration, repositories, jobs; and all the rest
 *
 * All data comes from memory: counters of the records, facts (daemon/engine/facts.h), the last messages of movers. Only
 * memory of the kernel is read here (getrusage, /proc/self, cgroup files of the few running movers): no disk, no query.
 */
#include "daemon/metrics/collect.h"

#include "base/time.h"
#include "daemon/answers/overview.h"
#include "daemon/decide/copies.h"
#include "daemon/decide/maintain.h"
#include "daemon/decide/damaged.h"
#include "daemon/decide/verification.h"
#include "daemon/metrics/samples.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef SNAPFERRY_COMMIT
#define SNAPFERRY_COMMIT ""
#endif

/* ---- the daemon ---- */

static double resident(void)
{
    char text[128];
    unsigned long long size, rss;
    FILE *f = fopen("/proc/self/statm", "re");
    bool ok = f && fgets(text, sizeof text, f) && sscanf(text, "%llu %llu", &size, &rss) == 2;
    if (f)
        fclose(f);
    return ok ? (double)rss * (double)sysconf(_SC_PAGESIZE) : 0;
}

static double seconds_of(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static void of_daemon(struct samples *s)
{
    struct engine *g = s->engine;
    struct rusage u = {0};
    uint64_t room, total;
    getrusage(RUSAGE_SELF, &u);
    facts_room_get(g, &room, &total);
    sample(s, "build_info", 1, "version", SNAPFERRY_VERSION, "commit", SNAPFERRY_COMMIT, NULL);
    sample(s, "start_time_seconds", (double)g->started_ns / 1e9, NULL);
    sample(s, "process_cpu_seconds_total", seconds_of(u.ru_utime) + seconds_of(u.ru_stime), NULL);
    sample(s, "process_resident_memory_bytes", resident(), NULL);
    sample(s, "records_degraded", records_degraded(g->records), NULL);
    sample(s, "steps_running", steps_running(g->steps), NULL);
    sample(s, "steps_stuck", steps_stuck(g->steps), NULL);
    sample(s, "movers", movers_count(g->movers), NULL);
    if (total) {
        sample(s, "state_dir_free_bytes", (double)room, NULL);
        sample(s, "state_dir_size_bytes", (double)total, NULL);
    }
}

static void of_configuration(struct samples *s)
{
    const struct engine *g = s->engine;
    char start[13];
    snprintf(start, sizeof start, "%s", cfg_hash(g->cfg)); /* 48 bits: a number that a double holds */
    sample(s, "config_last_reload_successful", g->reload_ok, NULL);
    sample(s, "config_last_reload_timestamp_seconds", (double)g->reload_ns / 1e9, NULL);
    sample(s, "config_hash", (double)strtoull(start, NULL, 16), NULL);
    sample(s, "config_warnings", g->warnings, NULL);
}

static void of_owed(struct samples *s, const char *repository)
{
    const struct overview_owed x = overview_owed(s->engine->overview, repository);
    sample(s, "repository_outcomes_owed", (double)x.backups, "repository", repository, NULL);
    if (x.since_ns)
        sample(s, "repository_outcomes_owed_since_timestamp_seconds", (double)x.since_ns / 1e9, "repository",
               repository, NULL);
}

static void of_maintenance(struct samples *s, const struct cfg_repository *r)
{
    struct maintain_times t;
    maintain_times(s->engine->cfg, r, maintain_known(s->engine->records, r->name), now_ns(), &t);
    sample(s, "maintenance_overdue", t.quick_late_ns || t.full_late_ns || t.silent_ns, "repository", r->name, NULL);
}

static void of_verification(struct samples *s, const struct cfg_repository *r)
{
    const struct verify_memory *m = verification_known(s->engine->records, r->name);
    struct verification_times t;
    verification_times(r, m, now_ns(), &t);
    sample(s, "verify_overdue", t.late_ns != 0, "repository", r->name, NULL);
    sample(s, "verify_damages", m ? (double)m->damages : 0, "repository", r->name, NULL);
    sample(s, "verify_corrected", m ? (double)(m->corrected + m->corrected_indexes) : 0, "repository", r->name, NULL);
    sample(s, "damaged_snapshots", damaged_known(s->engine->records, m, NULL), "repository", r->name, NULL);
    if (m && m->all_ns)
        sample(s, "verify_all_read_timestamp_seconds", (double)(m->all_began_ns / NS_PER_S), "repository", r->name,
               NULL);
}

static void of_copies(struct samples *s)
{
    const struct cfg_copy *k;
    for (unsigned i = 0; (k = cfg_copy_at(s->engine->cfg, i)); i++) {
        const struct copy_memory *m = copy_known(s->engine->records, k->name);
        struct copy_times t;
        copy_times(k, m, now_ns(), &t);
        sample(s, "copy_overdue", t.late_ns != 0, "copy", k->name, NULL);
        sample(s, "copy_failed", m && m->outcome == OUTCOME_FAILED, "copy", k->name, NULL);
    }
}

static void of_repositories(struct samples *s)
{
    const struct cfg_repository *r;
    const struct repo_health *h;
    for (unsigned i = 0; (r = cfg_repository_at(s->engine->cfg, i)); i++) {
        of_owed(s, r->name);
        of_maintenance(s, r);
        of_verification(s, r);
    }
    for (h = s->engine->d.repos; h; h = h->next) {
        if (!h->known || !cfg_repository(s->engine->cfg, h->name))
            continue;
        sample(s, "repository_up", h->up, "repository", h->name, NULL);
        if (h->up && h->free_bytes >= 0)
            sample(s, "repository_free_bytes", (double)h->free_bytes, "repository", h->name, NULL);
        if (h->up && h->size_bytes > 0)
            sample(s, "repository_size_bytes", (double)h->size_bytes, "repository", h->name, NULL);
    }
}

static void of_jobs(struct samples *s)
{
    unsigned n;
    struct job_view *v CLEANUP_FREE = schedule_views(engine_schedule(s->engine), now_ns(), &n);
    for (unsigned i = 0; i < n; i++) {
        const struct job_view *j = &v[i];
        const bool idle = j->idle_because[0] != '\0';
        sample(s, "schedule_paused", j->paused, "schedule", j->name, NULL);
        if (!j->elsewhere)
            sample(s, "schedule_volumes_missing", (double)json_array_size(j->missing), "schedule", j->name, NULL);
        if (!idle && j->interval_s > 0)
            sample(s, "schedule_expected_interval_seconds", (double)j->interval_s, "schedule", j->name, NULL);
        if (!idle && j->since_ns > 0)
            sample(s, "schedule_since_timestamp_seconds", (double)j->since_ns / 1e9, "schedule", j->name, NULL);
        if (!idle && j->next_ns > 0)
            sample(s, "schedule_next_timestamp_seconds", (double)j->next_ns / 1e9, "schedule", j->name, NULL);
    }
}

/* ---- all of them ---- */

json_t *metrics_collect(struct engine *g)
{
    CLEANUP_JSON json_t *seen = json_object();
    struct samples s = {.engine = g, .list = json_array(), .seen = seen, .now_ns = now_ns()};
    facts_refresh(g);
    of_daemon(&s);
    of_configuration(&s);
    samples_of_operations(&s);
    samples_of_volumes(&s);
    samples_of_natives(&s);
    of_repositories(&s);
    of_copies(&s);
    of_jobs(&s);
    samples_of_counters(&s);
    samples_of_zeros(&s);
    return json_pack("{s:o}", "samples", s.list);
}
