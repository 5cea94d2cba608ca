/* SPDX-License-Identifier: GPL-2.0-or-later */
/* movers-info.c - what movers there are: for status, and for the sweep */
#include "daemon/movers/movers-impl.h"

#include "base/cleanup.h"
#include "base/time.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NS 1e-9

bool movers_has(const struct movers *m, const char *operation)
{
    return movers_find(m, operation) != NULL;
}

unsigned movers_count(const struct movers *m)
{
    unsigned n = 0;
    for (const struct mover *v = m->list; v; v = v->next)
        n++;
    return n;
}

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
        if (line) /* cut inside a character: not shown */
            json_array_append_new(list, line);
    }
    return list;
}

json_t *movers_to_json(const struct movers *m, const char *operation)
{
    const struct mover *v = movers_find(m, operation);
    if (!v)
        return NULL;
    const int64_t now = mono_ns();
    const double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
    json_t *j = json_pack("{s:i, s:s, s:s, s:b, s:b, s:b, s:b, s:b, s:b, s:f}", "pid", (int)v->id.pid, "unit",
                          v->id.unit, "backend", v->id.unit[0] ? "systemd" : "fork", "adopted", (int)v->adopted,
                          "connected", (int)mover_connected(v), "ready", (int)v->ready, "go", (int)v->go, "started",
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
    json_object_set_new(j, "limits", limits_json(v));
    json_object_set_new(j, "log", log_json(v));
    return j;
}

/* ---- strays ---- */

/* Arguments of a process whose socket is one of ours: its operation, and 0; else -1. */
static int our_operation(const struct movers *m, const char *pid, char *out, size_t cap)
{
    char path[64], text[8192];
    snprintf(path, sizeof path, "/proc/%.20s/cmdline", pid);
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return -1;
    text[n] = '\0';
    const char *args[5] = {NULL};
    unsigned count = 0;
    for (const char *p = text; p < text + n && count < 5; p += strlen(p) + 1)
        args[count++] = p;
    size_t dir = strlen(m->runtime_dir);
    const char *name = count == 5 ? strrchr(args[0], '/') : NULL;
    if (!name || strcmp(name, "/snapferry-mover") != 0 || strcmp(args[1], "--socket") != 0 ||
        strcmp(args[3], "--operation") != 0 || strncmp(args[2], m->runtime_dir, dir) != 0 ||
        strncmp(args[2] + dir, "/mover", 6) != 0 || strchr(args[2] + dir + 1, '/'))
        return -1;
    return snprintf(out, cap, "%s", args[4]) < (int)cap ? 0 : -1;
}

static bool listed(const json_t *list, const char *operation)
{
    if (json_is_object(list))
        return json_object_get(list, operation) != NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *s = json_string_value(json_array_get(list, i));
        if (s && !strcmp(s, operation))
            return true;
    }
    return false;
}

typedef void process_fn(pid_t pid, const char *operation, void *arg);

static void each_process(const struct movers *m, process_fn *fn, void *arg)
{
    CLEANUP_CLOSEDIR DIR *d = opendir("/proc");
    const struct dirent *entry;
    while (d && (entry = readdir(d))) {
        char operation[OPERATION_MAX + 1];
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' || pid <= 1)
            continue;
        if (our_operation(m, entry->d_name, operation, sizeof operation) == 0)
            fn(pid, operation, arg);
    }
}

static void note_process(pid_t pid, const char *operation, void *arg)
{
    (void)pid;
    json_t *list = arg;
    json_t *name = json_string(operation);
    if (name && !listed(list, operation))
        json_array_append_new(list, name);
    else
        json_decref(name);
}

json_t *movers_stray(struct movers *m, const json_t *known_operations)
{
    json_t *all = json_array(), *stray = json_array();
    each_process(m, note_process, all);
    if (m->systemd)
        systemd_units(m, all);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const char *operation = json_string_value(json_array_get(all, i));
        if (!movers_find(m, operation) && !listed(known_operations, operation) && !listed(stray, operation))
            json_array_append(stray, json_array_get(all, i));
    }
    json_decref(all);
    return stray;
}

static void end_process(pid_t pid, const char *operation, void *arg)
{
    const char *which = arg;
    if (strcmp(operation, which) != 0)
        return;
    CLEANUP_CLOSE int fd = process_open_pid(pid);
    if (fd >= 0)
        process_signal(fd, SIGKILL);
}

int movers_end_stray(struct movers *m, const char *operation, struct err *e)
{
    if (movers_find(m, operation))
        return err_set(e, ERR_BUSY, EBUSY, "the mover of %s is no stray: it is watched", operation);
    each_process(m, end_process, (void *)(uintptr_t)operation);
    return movers_forget(m, operation, e);
}
