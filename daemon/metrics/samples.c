/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * engine-metrics.c - what the metrics endpoint hands out: daemon, configuration, repositories, jobs; and all the rest
 *
 * Everything comes from memory: counters of the records, facts (engine-facts.h), what movers said last. What is looked
 * at here is in the kernel's memory (getrusage, /proc/self, cgroup files of the few movers that run): no disk, no
 * query.
 */
#include "base/time.h"
#include "daemon/metrics/samples-impl.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef SNAPFERRY_COMMIT
#define SNAPFERRY_COMMIT ""
#endif

/* ---- samples ---- */

static json_t *labels_of(va_list ap)
{
    const char *label;
    json_t *labels = json_object();
    while (labels && (label = va_arg(ap, const char *)))
        jset_str(labels, label, va_arg(ap, const char *));
    return labels;
}

static void append(struct samples *s, const char *name, json_t *labels, double value)
{
    json_t *o = json_object();
    json_object_set_new(o, "name", json_string(name));
    if (json_object_size(labels))
        json_object_set(o, "labels", labels);
    json_object_set_new(o, "value", json_real(value));
    json_array_append_new(s->list, o);
}

void sample(struct samples *s, const char *name, double value, ...)
{
    va_list ap;
    va_start(ap, value);
    CLEANUP_JSON json_t *labels = labels_of(ap);
    va_end(ap);
    append(s, name, labels, value);
}

char *sample_key(const char *name, const json_t *labels)
{
    char *text = json_dumps(labels, JSON_COMPACT | JSON_SORT_KEYS), *key = NULL;
    if (text && asprintf(&key, "%s%s", name, text) < 0)
        key = NULL;
    free(text);
    return key;
}

static void zero(struct samples *s, const char *name, json_t *labels)
{
    CLEANUP_FREE char *key = sample_key(name, labels);
    if (key && !json_object_get(s->seen, key))
        append(s, name, labels, 0);
}

void sample_zero(struct samples *s, const char *name, ...)
{
    va_list ap;
    va_start(ap, name);
    CLEANUP_JSON json_t *labels = labels_of(ap);
    va_end(ap);
    zero(s, name, labels);
}

void sample_zero_histogram(struct samples *s, const char *name, const double *bounds, ...)
{
    char part[160], text[32];
    va_list ap;
    va_start(ap, bounds);
    CLEANUP_JSON json_t *labels = labels_of(ap);
    va_end(ap);
    snprintf(part, sizeof part, "%s_count", name);
    CLEANUP_FREE char *key = sample_key(part, labels);
    if (!key || json_object_get(s->seen, key))
        return;
    append(s, part, labels, 0);
    snprintf(part, sizeof part, "%s_sum", name);
    append(s, part, labels, 0);
    snprintf(part, sizeof part, "%s_bucket", name);
    for (size_t i = 0; i <= METRIC_BUCKETS; i++) {
        CLEANUP_JSON json_t *own = json_copy(labels);
        jset_str(own, "le", i < METRIC_BUCKETS ? records_bound_text(bounds[i], text) : "+Inf");
        append(s, part, own, 0);
    }
}

/* ---- counters ---- */

/* A class, job or repository that left the configuration takes its series along; what has none stays. */
static bool configured(const struct cfg *c, const json_t *labels)
{
    const char *klass = jstr(labels, "class"), *schedule = jstr(labels, "schedule"),
               *repository = jstr(labels, "repository");
    return (!klass[0] || cfg_class(c, klass)) && (!schedule[0] || cfg_job(c, schedule)) &&
           (!repository[0] || cfg_repository(c, repository));
}

/* Whether the family is known by that name with these labels: the records may hold what another version counted. */
static bool fits(const char *name, const json_t *labels)
{
    const struct metric_family *f = metric_family(name);
    size_t n = 0;
    if (!f)
        return false;
    for (const char *p = f->labels; *p; n++) {
        char label[40];
        size_t len = strcspn(p, ",");
        snprintf(label, sizeof label, "%.*s", (int)len, p);
        if (!json_object_get(labels, label))
            return false;
        p += len + (p[len] == ',');
    }
    return json_object_size(labels) == n + (json_object_get(labels, "le") ? 1 : 0);
}

struct sum {
    double uploads[3], downloads[3];
};
static void add_sum(struct sum *x, const char *name, const json_t *labels, double value)
{
    static const char *const results[] = {"completed", "failed", "canceled"};
    const char *direction = jstr(labels, "direction");
    if (strcmp(name, "operations_total"))
        return;
    for (int i = 0; i < 3; i++)
        if (!strcmp(jstr(labels, "result"), results[i])) {
            x->uploads[i] += !strcmp(direction, "backup") ? value : 0;
            x->downloads[i] += !strcmp(direction, "restore") ? value : 0;
        }
}

/* backups_total once more by families that have a result in their names, as Velero's have. */
static void by_result(struct samples *s, const char *name, const json_t *labels, double value)
{
    static const char *const names[][3] = {
        {"backup", "completed", "backup_successes_total"},
        {"backup", "partially_failed", "backup_partial_failures_total"},
        {"backup", "failed", "backup_failures_total"},
        {"restore", "completed", "restore_successes_total"},
        {"restore", "failed", "restore_failures_total"},
    };
    if (strcmp(name, "backups_total"))
        return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(jstr(labels, "direction"), names[i][0]) && !strcmp(jstr(labels, "result"), names[i][1])) {
            CLEANUP_JSON json_t *own = json_pack("{s:s}", "schedule", jstr(labels, "schedule"));
            CLEANUP_FREE char *key = sample_key(names[i][2], own);
            append(s, names[i][2], own, value);
            if (key)
                json_object_set_new(s->seen, key, json_true());
        }
}

struct counting {
    struct samples *samples;
    struct sum sum;
    json_t *attempts; /* schedule -> snapshots that were tried */
    double write_errors;
};
static int add_counter(const char *name, const json_t *labels, double value, void *arg)
{
    struct counting *x = arg;
    struct samples *s = x->samples;
    if (!strcmp(name, WRITE_ERRORS)) {
        x->write_errors = value;
        return 0;
    }
    add_sum(&x->sum, name, labels, value);
    if (!fits(name, labels) || !configured(s->engine->cfg, labels))
        return 0;
    CLEANUP_FREE char *key = sample_key(name, labels);
    if (key)
        json_object_set_new(s->seen, key, json_true());
    append(s, name, (json_t *)labels, value);
    by_result(s, name, labels, value);
    if (!strcmp(name, "snapshot_successes_total") || !strcmp(name, "snapshot_failures_total")) {
        const char *schedule = jstr(labels, "schedule");
        double before = json_number_value(json_object_get(x->attempts, schedule));
        json_object_set_new(x->attempts, schedule, json_real(before + value));
    }
    return 0;
}

static void add_attempts(struct samples *s, const json_t *attempts)
{
    const char *schedule;
    json_t *n;
    json_object_foreach((json_t *)attempts, schedule, n)
    {
        CLEANUP_JSON json_t *labels = json_pack("{s:s}", "schedule", schedule);
        CLEANUP_FREE char *key = sample_key("snapshot_attempts_total", labels);
        append(s, "snapshot_attempts_total", labels, json_number_value(n));
        if (key)
            json_object_set_new(s->seen, key, json_true());
    }
}

void samples_of_counters(struct samples *s)
{
    static const char *const up[] = {"uploads_completed_total", "uploads_failed_total", "uploads_canceled_total"},
                             *const down[] = {"downloads_completed_total", "downloads_failed_total",
                                              "downloads_canceled_total"};
    CLEANUP_JSON json_t *attempts = json_object();
    struct counting x = {s, {{0}, {0}}, attempts, 0};
    const char *node = cfg_daemon(s->engine->cfg)->node_name;
    records_counters(s->engine->records, add_counter, &x, NULL);
    add_attempts(s, attempts);
    const struct engine *g = s->engine;
    sample(s, WRITE_ERRORS, x.write_errors + (double)(records_write_errors(g->records) - g->write_errors_kept), NULL);
    for (int i = 0; i < 3; i++) {
        sample(s, up[i], x.sum.uploads[i], "node", node, NULL);
        sample(s, down[i], x.sum.downloads[i], "node", node, NULL);
    }
}

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
    unsigned warnings = 0;
    for (unsigned k = 0; cfg_complaint_at(g->cfg, k); k++)
        warnings += cfg_complaint_at(g->cfg, k)->severity == CFG_WARNING;
    snprintf(start, sizeof start, "%s", cfg_hash(g->cfg)); /* 48 bits: a number that a double holds */
    sample(s, "config_last_reload_successful", g->reload_ok, NULL);
    sample(s, "config_last_reload_timestamp_seconds", (double)g->reload_ns / 1e9, NULL);
    sample(s, "config_hash", (double)strtoull(start, NULL, 16), NULL);
    sample(s, "config_warnings", warnings, NULL);
}

static void of_repositories(struct samples *s)
{
    const struct repo_health *h;
    for (h = s->engine->repos; h; h = h->next) {
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
    const json_t *j;
    size_t i;
    json_array_foreach(facts_jobs(s->engine), i, j)
    {
        const char *name = jstr(j, "job");
        bool paused = jbool(j, "paused"), idle = jstr(j, "idle_because")[0] != '\0';
        int64_t next;
        if (time_parse(&next, jstr(j, "next")) < 0)
            next = 0;
        sample(s, "schedule_paused", paused, "schedule", name, NULL);
        if (!jbool(j, "elsewhere"))
            sample(s, "schedule_volumes_missing", (double)json_array_size(jarr(j, "missing")), "schedule", name, NULL);
        if (!idle && jint(j, "interval_s") > 0)
            sample(s, "schedule_expected_interval_seconds", (double)jint(j, "interval_s"), "schedule", name, NULL);
        if (!idle && jint(j, "since_ns") > 0)
            sample(s, "schedule_since_timestamp_seconds", (double)jint(j, "since_ns") / 1e9, "schedule", name, NULL);
        if (!idle && next > 0)
            sample(s, "schedule_next_timestamp_seconds", (double)next / 1e9, "schedule", name, NULL);
    }
}

/* ---- the answer ---- */

static int list_counter(const char *name, const json_t *labels, double value, void *arg)
{
    json_t *line = json_pack("{s:s, s:O, s:f}", "name", name, "labels", labels, "value", value);
    return json_array_append_new(arg, line) < 0 ? -1 : 0;
}

json_t *engine_metrics_facts(struct engine *g)
{
    json_t *o = json_object(), *counters = json_array();
    jset_int(o, "started_ns", g->started_ns);
    jset_int(o, "orphans", g->orphans);
    jset_int(o, "movers", movers_count(g->movers));
    jset_int(o, "steps", steps_running(g->steps));
    jset_int(o, "steps_stuck", steps_stuck(g->steps));
    jset_int(o, "record_write_errors", (int64_t)records_write_errors(g->records));
    jset_bool(o, "reload_ok", g->reload_ok);
    if (g->orphan_list)
        json_object_set(o, "orphan_list", g->orphan_list);
    records_counters(g->records, list_counter, counters, NULL);
    json_object_set_new(o, "counters", counters);
    return o;
}

json_t *engine_metrics(struct engine *g)
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
    of_jobs(&s);
    samples_of_counters(&s);
    samples_of_zeros(&s);
    return json_pack("{s:o}", "samples", s.list);
}
