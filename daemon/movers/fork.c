/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * movers-fork.c - a mover as a child process, where systemd does not run
 *
 * The child leaves our session and cgroup, takes its limits, priorities and user, closes everything and becomes the
 * mover. What goes wrong on the way comes back through a pipe that the exec closes: phase and errno (MS-55).
 */
#include "daemon/movers/movers-impl.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/ioprio.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACKS (UINT64_C(512) << 20) /* address space of thread stacks: counted by RLIMIT_DATA, hardly used */
#define FILES_MAX 4096

enum phase {
    PHASE_SESSION,
    PHASE_CGROUP,
    PHASE_DESCRIPTORS,
    PHASE_LIMITS,
    PHASE_PRIORITY,
    PHASE_NETWORK,
    PHASE_USER,
    PHASE_EXEC
};
static const char *const phase_text[] = {
    [PHASE_SESSION] = "making a session of its own",
    [PHASE_CGROUP] = "entering its cgroup",
    [PHASE_DESCRIPTORS] = "setting up its descriptors",
    [PHASE_LIMITS] = "setting its resource limits",
    [PHASE_PRIORITY] = "setting its priority",
    [PHASE_NETWORK] = "leaving the network",
    [PHASE_USER] = "becoming its user",
    [PHASE_EXEC] = "executing the program",
};

/* What the child reports; several that are not fatal may come before. */
struct report {
    int phase, sys, fatal;
};

struct child {
    const struct mover_launch *l;
    char *const *argv;
    int report, null, log, procs;
    bool limit_data;
    cpu_set_t cpus;
    bool pin;
};

/* ---- in the child: only system calls ---- */

static void tell(const struct child *c, enum phase p, bool fatal)
{
    struct report r = {.phase = p, .sys = errno, .fatal = fatal};
    if (write(c->report, &r, sizeof r) != sizeof r || fatal)
        _exit(127);
}

static void child_limits(const struct child *c)
{
    const struct rlimit core = {0, 0}, files = {FILES_MAX, FILES_MAX};
    const struct rlimit lock = {c->l->memlock, c->l->memlock};
    struct rlimit data = {c->l->memory_max + STACKS, c->l->memory_max + STACKS};
    if (setrlimit(RLIMIT_CORE, &core) < 0 || setrlimit(RLIMIT_NOFILE, &files) < 0)
        tell(c, PHASE_LIMITS, false);
    /* Without the right to raise it the reader does without registered buffers, and says so. */
    if (setrlimit(RLIMIT_MEMLOCK, &lock) < 0 && errno != EPERM)
        tell(c, PHASE_LIMITS, false);
    /* No memory controller: a runaway then fails to allocate instead of taking the machine down. */
    if (c->limit_data && setrlimit(RLIMIT_DATA, &data) < 0)
        tell(c, PHASE_LIMITS, false);
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, "500", 3) < 0)
        tell(c, PHASE_LIMITS, false);
}

static void child_priority(const struct child *c)
{
    const struct cfg_mover *m = c->l->limits;
    if (m->nice && setpriority(PRIO_PROCESS, 0, m->nice) < 0)
        tell(c, PHASE_PRIORITY, false);
    int class = !strcmp(m->ioclass, "idle")          ? IOPRIO_CLASS_IDLE
                : !strcmp(m->ioclass, "best-effort") ? IOPRIO_CLASS_BE
                                                     : 0;
    if (class &&
        syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(class, class == IOPRIO_CLASS_BE ? 6 : 0)) < 0)
        tell(c, PHASE_PRIORITY, false);
    if (c->pin && sched_setaffinity(0, sizeof c->cpus, &c->cpus) < 0)
        tell(c, PHASE_PRIORITY, false);
}

static void child_user(const struct child *c)
{
    /* A repository in a directory needs no network. */
    if (c->l->private_network && geteuid() == 0 && unshare(CLONE_NEWNET) < 0)
        tell(c, PHASE_NETWORK, false);
    if (c->l->user && (setgroups(0, NULL) < 0 || setresgid(c->l->gid, c->l->gid, c->l->gid) < 0 ||
                       setresuid(c->l->uid, c->l->uid, c->l->uid) < 0))
        tell(c, PHASE_USER, true);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        tell(c, PHASE_USER, true);
}

static void become(const struct child *c)
{
    sigset_t none;
    sigemptyset(&none);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (setsid() < 0)
        tell(c, PHASE_SESSION, true);
    if (c->procs >= 0 && write(c->procs, "0", 1) < 0)
        tell(c, PHASE_CGROUP, false);
    if (dup2(c->null, 0) < 0 || dup2(c->log, 1) < 0 || dup2(c->log, 2) < 0 || chdir("/") < 0)
        tell(c, PHASE_DESCRIPTORS, true);
    /* Whatever is open in the daemon, with or without the flag. */
    if (syscall(SYS_close_range, 3u, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */) < 0)
        tell(c, PHASE_DESCRIPTORS, true);
    child_limits(c);
    child_priority(c);
    child_user(c);
    execve(c->argv[0], c->argv, (char *const *)(uintptr_t)c->l->env);
    tell(c, PHASE_EXEC, true);
}

/* ---- in the daemon ---- */

/* The pipe speaks, or is closed by the exec. */
static int on_report(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    struct mover *v = arg;
    struct report r;
    (void)s;
    (void)events;
    ssize_t n = read(fd, &r, sizeof r);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n == sizeof r && r.phase >= 0 && r.phase <= PHASE_EXEC) {
        const char *what = phase_text[r.phase];
        if (!r.fatal) {
            log_warning("mover of %s: %s failed: %s; it goes on without", v->operation, what, strerror(r.sys));
            return 0;
        }
        snprintf(v->begin_error, sizeof v->begin_error, "%s failed: %s", what, strerror(r.sys));
    }
    sd_event_source_disable_unref(v->exec_source);
    v->exec_source = NULL;
    close(v->exec_fd);
    v->exec_fd = -1;
    return 0;
}

void fork_last_words(struct mover *v)
{
    for (int i = 0; i < 16 && v->exec_source; i++)
        on_report(v->exec_source, v->exec_fd, 0, v);
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

static int open_procs(const struct mover_cgroup *g)
{
    char path[4400];
    if (!g->path[0])
        return -1;
    snprintf(path, sizeof path, "%s/cgroup.procs", g->path);
    return open(path, O_WRONLY | O_CLOEXEC);
}

static int start_error(const struct mover *v, const char *phase, int sys, struct err *e)
{
    return err_set(e, ERR_GENERIC, sys, "the mover of %s cannot be started (%s)", v->operation, phase);
}

static pid_t start_child(struct mover *v, struct child *c, struct err *e)
{
    const struct cfg_mover *m = c->l->limits;
    CLEANUP_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return start_error(v, "opening /dev/null", errno, e);
    cgroup_make(v, c->l);
    CLEANUP_CLOSE int procs = open_procs(&v->cgroup);
    c->null = null;
    c->log = v->log_fd;
    c->procs = procs;
#ifdef __SANITIZE_ADDRESS__
    c->limit_data = false; /* its shadow is terabytes of address space */
#else
    c->limit_data = !v->cgroup.memory;
#endif
    if (m->cpus[0] && !(c->pin = parse_cpus(m->cpus, &c->cpus)))
        log_warning("mover of %s: \"%s\" is no list of CPUs; it runs on any", v->operation, m->cpus);
    pid_t pid = fork();
    if (pid < 0)
        return start_error(v, "fork", errno, e);
    if (pid == 0)
        become(c);
    return pid;
}

int fork_start(struct mover *v, const struct mover_launch *l, struct err *e)
{
    const char *argv[] = {l->program, "--socket", l->socket, "--operation", v->operation, NULL};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return start_error(v, "pipe", errno, e);
    v->exec_fd = ends[0];
    struct child c = {.l = l, .argv = (char *const *)(uintptr_t)argv, .report = ends[1]};
    v->uid = l->uid;
    pid_t pid = start_child(v, &c, e);
    close(ends[1]);
    if (pid < 0)
        return pid;
    int rc = mover_watch(v, pid, e);
    if (rc < 0) {
        kill(pid, SIGKILL); /* our child, not waited for: the number is still its */
        return rc;
    }
    rc = sd_event_add_io(v->owner->loop, &v->exec_source, v->exec_fd, EPOLLIN, on_report, v);
    if (rc < 0)
        log_warning("mover of %s: its start is not watched: %s", v->operation, strerror(-rc));
    return 0;
}
