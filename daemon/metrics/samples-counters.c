/* SPDX-License-Identifier: GPL-2.0-or-later */
/* samples-counters.c - counters of the records, and sums of them under the names of Velero */
#include "daemon/metrics/samples.h"

#include <stdlib.h>

/* When a class, job, repository or copy is removed from the configuration its series disappear; series without such a
 * label remain. */
static bool configured(const struct cfg *c, const json_t *labels)
{
    const char *klass = jstr(labels, "class"), *schedule = jstr(labels, "schedule"),
               *repository = jstr(labels, "repository"), *copy = jstr(labels, "copy");
    return (!klass[0] || cfg_class(c, klass)) && (!schedule[0] || cfg_job(c, schedule)) &&
           (!repository[0] || cfg_repository(c, repository)) && (!copy[0] || cfg_copy(c, copy));
}

/* Whether the family is known by that name with these labels: the records may have counters of another version. */
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

/* backups_total again as families with a result in their names, as Velero's. */
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
            sample_append(s, names[i][2], own, value);
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
    sample_append(s, name, (json_t *)labels, value);
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
        sample_append(s, "snapshot_attempts_total", labels, json_number_value(n));
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
