/* SPDX-License-Identifier: GPL-2.0-or-later */
/* stray.c - movers that run, or have left a unit, without a record */
#include "daemon/movers/builtin-impl.h"

#include "base/cleanup.h"
#include "base/json.h"
#include "daemon/records/step-request.h"
#include "proc/systemd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- listing: in a step, because /proc/PID/cmdline and systemd may block ---- */

/* The operation of a process whose arguments are those of a mover with a socket of this daemon; false: not one. */
static bool is_mover(const char *runtime_dir, const char *pid, char *operation, size_t cap)
{
    char path[64], text[8192];
    snprintf(path, sizeof path, "/proc/%.20s/cmdline", pid);
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return false;
    text[n] = '\0';
    const char *args[5] = {NULL};
    unsigned count = 0;
    for (const char *p = text; p < text + n && count < 5; p += strlen(p) + 1)
        args[count++] = p;
    const size_t dir = strlen(runtime_dir);
    const char *name = count == 5 ? strrchr(args[0], '/') : NULL;
    return name && !strcmp(name, "/snapferry-mover") && !strcmp(args[1], "--socket") &&
           !strcmp(args[3], "--operation") && !strncmp(args[2], runtime_dir, dir) &&
           !strncmp(args[2] + dir, "/mover", 6) && !strchr(args[2] + dir + 1, '/') &&
           (size_t)snprintf(operation, cap, "%s", args[4]) < cap;
}

/* Whether it is in this PID namespace: a container may run another daemon, with the same path for its sockets. */
static bool is_in_our_namespace(const char *pid)
{
    char path[64], line[256];
    unsigned levels = 0;
    snprintf(path, sizeof path, "/proc/%.20s/status", pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "NSpid:", 6))
            for (char *save, *word = strtok_r(line + 6, " \t\n", &save); word; word = strtok_r(NULL, " \t\n", &save))
                levels++;
    if (f)
        fclose(f);
    return levels == 1;
}

struct listing {
    const char *runtime_dir;
    json_t *by_operation; /* operation -> its processes, an array that is in the answer too */
    json_t *movers;       /* the answer: struct mover_listed */
};

/* The list of an operation's processes, created if missing. */
static json_t *operation_processes(const struct listing *l, const char *operation)
{
    json_t *list = json_object_get(l->by_operation, operation);
    if (!list && json_object_set_new(l->by_operation, operation, json_array()) == 0) {
        list = json_object_get(l->by_operation, operation);
        json_array_append_new(l->movers, json_pack("{s:s, s:O}", "operation", operation, "processes", list));
    }
    return list;
}

static void list_processes(const struct listing *l)
{
    CLEANUP_CLOSEDIR DIR *d = opendir("/proc");
    const struct dirent *entry;
    while (d && (entry = readdir(d))) {
        char operation[OPERATION_MAX + 1];
        struct process_identity id;
        const pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        /* Identified first: if the pid is reused by then, the arguments are those of the other process, and its
         * start time does not match. */
        if (pid > 1 && process_identify(&id, pid) == 0 &&
            is_mover(l->runtime_dir, entry->d_name, operation, sizeof operation) && is_in_our_namespace(entry->d_name))
            json_array_append_new(operation_processes(l, operation),
                                  json_pack("{s:i, s:I}", "pid", (int)pid, "start_time", (json_int_t)id.start_time));
    }
}

static void add_unit(const char *unit, const char *description, void *arg)
{
    const struct listing *l = arg;
    char operation[OPERATION_MAX + 1];
    if (mover_unit_operation(unit, operation, sizeof operation) &&
        mover_unit_is_ours(description, l->runtime_dir, operation))
        operation_processes(l, operation);
}

int movers_list_step(const json_t *in, json_t **out, int *fd, struct err *e)
{
    CLEANUP(step_request_clear) struct step_request r;
    CLEANUP_JSON json_t *by_operation = json_object();
    (void)fd;
    if (step_request_load(&r, in, e) < 0)
        return -ENOMEM;
    const struct listing l = {r.path, by_operation, json_array()};
    *out = json_pack("{s:o}", "movers", l.movers);
    if (!*out)
        return err_nomem(e);
    list_processes(&l);
    const int rc = systemd_runs() ? systemd_list(MOVER_UNIT_PREFIX "*.service", add_unit, (void *)(uintptr_t)&l) : 0;
    if (rc < 0)
        log_debug("cannot list the units of movers: %s", strerror(-rc));
    return 0;
}

/* ---- their end ---- */

static bool kill_process(const struct mover_process *p)
{
    struct process_identity id = {.pid = (pid_t)p->pid, .start_time = p->start_time};
    boot_id(id.boot_id);
    CLEANUP_CLOSE int fd = id.pid > 1 ? process_open_running(&id) : -1;
    return fd >= 0 && process_signal(fd, SIGKILL) == 0;
}

int stray_kill(const struct mover_listed *stray)
{
    const struct mover_process *p = stray->processes.v;
    int killed = 0;
    for (unsigned i = 0; i < stray->processes.n; i++)
        killed += kill_process(&p[i]);
    return killed;
}
