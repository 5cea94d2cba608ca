/* SPDX-License-Identifier: GPL-2.0-or-later */
/* info.c - status of a built-in mover */
#include "daemon/movers/builtin-impl.h"

#include "base/time.h"

#include <unistd.h>

#define NS 1e-9

static json_t *limits_json(const struct mover *v)
{
    const struct cgroup *g = &v->cgroup;
    const bool unit = v->id.unit[0] != '\0';
    return json_pack("{s:I, s:b, s:b, s:b, s:b}", "memoryMax", (json_int_t)v->memory_max, "memoryEnforced",
                     (int)(unit || g->memory), "cpuEnforced", (int)(unit || g->cpu), "ioEnforced", (int)(unit || g->io),
                     "tasksEnforced", (int)(unit || g->pids));
}

static json_t *log_json(const struct mover *v)
{
    json_t *list = json_array();
    unsigned n = v->log_next < LOG_TAIL ? v->log_next : LOG_TAIL;
    for (unsigned i = v->log_next - n; i != v->log_next; i++) {
        json_t *line = json_string(v->log[i % LOG_TAIL]);
        if (line) /* truncated inside a character: omitted */
            json_array_append_new(list, line);
    }
    return list;
}

json_t *builtin_to_json(const struct builtin_movers *m, const char *operation)
{
    const struct mover *v = mover_find(m, operation);
    if (!v)
        return NULL;
    const int64_t now = mono_ns();
    const double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
    json_t *j = json_pack("{s:i, s:s, s:s, s:b, s:b, s:b, s:b, s:b, s:b, s:f}", "pid", (int)v->id.pid, "unit",
                          v->id.unit, "backend", v->id.unit[0] ? "systemd" : "fork", "adopted", (int)v->adopted,
                          "connected", (int)(v->conn != NULL), "ready", (int)v->ready, "go", (int)v->go, "started",
                          (int)v->start_seen, "cancel", (int)v->canceled, "age_s", (double)(now - v->began_ns) * NS);
    const uint64_t memory = cgroup_number(&v->cgroup, "memory.current", NULL);
    const bool own = v->cgroup.made || v->id.unit[0];
    json_object_set_new(j, "memory",
                        json_integer((json_int_t)(own && memory ? memory
                                                  : v->id.pid   ? process_rss(v->id.pid)
                                                                : 0)));
    json_object_set_new(j, "memory_peak", json_integer((json_int_t)v->memory_peak));
    json_object_set_new(j, "cpu_seconds", json_real((double)(v->id.pid ? process_cpu_ticks(v->id.pid) : 0) * tick));
    json_object_set_new(j, "last_progress_s",
                        v->progress ? json_real((double)(now - v->progress_ns) * NS) : json_null());
    json_object_set_new(j, "last_life_s", json_real((double)(now - v->life_ns) * NS));
    if (v->progress)
        json_object_set(j, "progress", v->progress);
    json_object_set_new(j, "requests", json_integer((json_int_t)v->requests));
    json_object_set_new(j, "limits", limits_json(v));
    json_object_set_new(j, "log", log_json(v));
    return j;
}
