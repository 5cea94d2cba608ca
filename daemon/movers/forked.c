/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * forked.c - a mover as a child process, where systemd does not run
 *
 * The child leaves the daemon's session and cgroup, applies its limits, priorities and user, closes all descriptors and
 * executes the mover (proc/spawn.h). Failures on the way are reported as phase and errno (MS-55).
 */
#include "daemon/movers/builtin-impl.h"

#include "base/cleanup.h"

#include <errno.h>
#include <linux/ioprio.h>
#include <signal.h>
#include <string.h>

#define STACKS (UINT64_C(512) << 20) /* address space of thread stacks: counted by RLIMIT_DATA, hardly used */
#define FILES_MAX 4096
#define OOM_SCORE 500

static int on_report(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    struct mover *v = arg;
    struct spawn_report r;
    int rc;
    (void)s;
    (void)fd;
    (void)events;
    while ((rc = spawn_report_next(&v->child, &r)) == 1) {
        const char *what = spawn_phase_text((enum spawn_phase)r.phase);
        if (r.fatal)
            snprintf(v->begin_error, sizeof v->begin_error, "%s failed: %s", what, strerror(r.sys));
        else
            log_warning("mover of %s: %s failed: %s; continuing without it", v->operation, what, strerror(r.sys));
    }
    if (rc < 0) {
        v->report_source = sd_event_source_disable_unref(v->report_source);
        spawn_report_close(&v->child);
    }
    return 0;
}

void forked_last_report(struct mover *v)
{
    if (v->report_source)
        on_report(v->report_source, v->child.report, 0, v);
}

static bool parse_cpus(const char *text, cpu_set_t *set)
{
    uint8_t mask[CFG_CPUS_MAX / 8];
    const char *why;
    CPU_ZERO(set);
    if (cfg_parse_cpus(mask, text, &why) < 0)
        return false;
    for (unsigned i = 0; i < CFG_CPUS_MAX; i++)
        if (mask[i / 8] & 1u << i % 8)
            CPU_SET(i, set);
    return true;
}

static int io_class(const char *name)
{
    return !strcmp(name, "idle") ? IOPRIO_CLASS_IDLE : !strcmp(name, "best-effort") ? IOPRIO_CLASS_BE : 0;
}

static void make_cgroup(struct mover *v, const struct mover_launch *l)
{
    const struct mover_limits *m = &l->limits;
    const struct cgroup_limits limits = {.memory_max = l->memory_max,
                                         .tasks_max = (unsigned)m->tasks_max,
                                         .cpu_quota = (unsigned)m->cpu_quota,
                                         .cpu_weight = (unsigned)m->cpu_weight,
                                         .io_weight = (unsigned)m->io_weight};
    char name[MOVER_CGROUP_NAME];
    mover_cgroup_name(name, v->owner->runtime_dir, v->operation);
    cgroup_make(&v->cgroup, name, &limits);
}

/* Without a memory controller a runaway mover fails to allocate instead of exhausting the machine. */
static uint64_t data_limit(const struct mover *v, const struct mover_launch *l)
{
#ifdef __SANITIZE_ADDRESS__
    return 0; /* its shadow is terabytes of address space */
#endif
    return v->cgroup.memory ? 0 : l->memory_max + STACKS;
}

int forked_start(struct mover *v, const struct mover_launch *l, struct err *e)
{
    const struct mover_limits *m = &l->limits;
    const char *const argv[] = {l->program, "--socket", l->socket, "--operation", v->operation, NULL};
    cpu_set_t cpus;
    make_cgroup(v, l);
    struct spawn_limits limits = {.memlock = l->memlock,
                                  .data = data_limit(v, l),
                                  .files = FILES_MAX,
                                  .oom_score_adj = OOM_SCORE,
                                  .nice = (int)m->nice,
                                  .io_class = io_class(m->ioclass)};
    if (m->cpus[0] && parse_cpus(m->cpus, &cpus))
        limits.cpus = &cpus;
    else if (m->cpus[0])
        log_warning("mover of %s: invalid list of CPUs \"%s\"; not restricted", v->operation, m->cpus);
    char log[4300], head[OPERATION_MAX + 32];
    snprintf(head, sizeof head, "# operation %s\n", v->operation);
    int rc = mover_log_path(log, sizeof log, v->owner->state_dir, v->operation);
    if (rc < 0)
        return err_set(e, ERR_GENERIC, -rc, "no log file for %s in %s", v->operation, v->owner->state_dir);
    const char *const lines[] = {log, head, NULL};
    CLEANUP_CLOSE int procs = cgroup_open_procs(&v->cgroup);
    struct spawn s = SPAWN_INIT;
    s.argv = argv;
    s.env = l->env;
    s.log = lines;
    s.cgroup = procs;
    s.user = &l->as;
    s.limits = &limits;
    s.private_network = l->private_network;
    const char *writable[4] = {NULL}; /* the same as ReadWritePaths= of a unit */
    size_t n = 0;
    if (l->repository_path[0])
        writable[n++] = l->repository_path;
    if (l->copy_path[0])
        writable[n++] = l->copy_path;
    if (l->cache_dir[0])
        writable[n++] = l->cache_dir;
    s.writable = writable;
    s.no_new_privileges = true;
    rc = spawn_program(&v->child, &s, e);
    if (rc < 0)
        return err_wrap(e, "cannot start the mover of %s", v->operation);
    rc = mover_watch(v, v->child.pid, e);
    if (rc < 0) {
        process_signal(v->child.pidfd, SIGKILL);
        return rc;
    }
    rc = sd_event_add_io(v->owner->loop, &v->report_source, v->child.report, EPOLLIN, on_report, v);
    if (rc < 0)
        log_warning("mover of %s: cannot monitor its start: %s", v->operation, strerror(-rc));
    return 0;
}
