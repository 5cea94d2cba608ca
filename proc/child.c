/* SPDX-License-Identifier: GPL-2.0-or-later */
/* child.c - what a child does before it executes its program or calls its function */
#include "proc/child-impl.h"
#include "proc/program-path.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ioprio.h>
#include <signal.h>
#include <string.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHANNEL_FD 3
#define ABOVE_STANDARD 10 /* descriptors of the child on their way to 0..2 */

/* ---- a program: only system calls ---- */

/* glibc's sigaction() refuses its own two signals. There are callers that ignore them. */
static void stop_ignoring(int sig)
{
    struct { /* the kernel's struct sigaction: the handler first, and no longer than this */
        void (*handler)(int);
        unsigned long rest[7];
    } action = {.handler = SIG_DFL};
    if (syscall(SYS_rt_sigaction, sig, NULL, &action, (size_t)NSIG / 8) < 0 || action.handler != SIG_IGN)
        return;
    memset(&action, 0, sizeof action);
    syscall(SYS_rt_sigaction, sig, &action, NULL, (size_t)NSIG / 8);
}

static void reset_signals(void)
{
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    for (int sig = 1; sig < NSIG; sig++)
        if (sigaction(sig, &dfl, NULL) < 0)
            stop_ignoring(sig);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void report_failure(const struct child *c, enum spawn_phase p, int sys, bool fatal)
{
    struct spawn_report r = {.phase = p, .sys = sys, .fatal = fatal};
    if (write(c->report, &r, sizeof r) != sizeof r || fatal)
        _exit(127);
}

static void wait_for_go(const struct child *c)
{
    char byte;
    if (c->go < 0)
        return;
    if (c->go_parent >= 0)
        close(c->go_parent);
    if (read(c->go, &byte, 1) != 1)
        _exit(127); /* no identity was recorded */
}

/* -1: it has none. It is done here since the name of a new file may take the file system long. */
static int child_log(const struct child *c)
{
    const char *const *log = c->s->log;
    if (!log)
        return -1;
    const int fd = open(log[0], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write(fd, log[1], strlen(log[1])) < 0)
        report_failure(c, SPAWN_LOG, errno, false);
    return fd;
}

/* Above 2 first: one of them may be 0..2 if the caller has these closed. */
static void child_descriptors(struct child *c)
{
    const struct spawn *s = c->s;
    const int log = child_log(c);
    const int out = log >= 0 ? log : s->out, err = log >= 0 ? log : s->err;
    const int from[3] = {s->in >= 0 ? s->in : c->null, out >= 0 ? out : c->null, err >= 0 ? err : c->null};
    int high[3], report = fcntl(c->report, F_DUPFD_CLOEXEC, ABOVE_STANDARD);
    if (report >= 0)
        c->report = report;
    for (int i = 0; i < 3; i++)
        if ((high[i] = fcntl(from[i], F_DUPFD_CLOEXEC, ABOVE_STANDARD)) < 0)
            report_failure(c, SPAWN_DESCRIPTORS, errno, true);
    for (int i = 0; i < 3; i++)
        if (dup2(high[i], i) < 0)
            report_failure(c, SPAWN_DESCRIPTORS, errno, true);
    /* Everything open in the caller, with or without the flag. */
    if (report < 0 || chdir("/") < 0 || close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
        report_failure(c, SPAWN_DESCRIPTORS, errno, true);
}

static void child_limits(const struct child *c, const struct spawn_limits *l)
{
    const struct rlimit core = {0, 0}, files = {l->files, l->files}, lock = {l->memlock, l->memlock},
                        data = {l->data, l->data};
    if (setrlimit(RLIMIT_CORE, &core) < 0 || setrlimit(RLIMIT_NOFILE, &files) < 0)
        report_failure(c, SPAWN_LIMITS, errno, false);
    /* Without the right to raise it the program has less locked memory. */
    if (setrlimit(RLIMIT_MEMLOCK, &lock) < 0 && errno != EPERM)
        report_failure(c, SPAWN_LIMITS, errno, false);
    if (l->data && setrlimit(RLIMIT_DATA, &data) < 0)
        report_failure(c, SPAWN_LIMITS, errno, false);
    if (!l->oom_score_adj)
        return;
    char text[12], *p = text + sizeof text;
    unsigned n = (unsigned)(l->oom_score_adj < 0 ? -l->oom_score_adj : l->oom_score_adj);
    do
        *--p = (char)('0' + n % 10);
    while (n /= 10);
    if (l->oom_score_adj < 0)
        *--p = '-';
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, p, (size_t)(text + sizeof text - p)) < 0)
        report_failure(c, SPAWN_LIMITS, errno, false);
}

static void child_priority(const struct child *c, const struct spawn_limits *l)
{
    if (l->nice && setpriority(PRIO_PROCESS, 0, l->nice) < 0)
        report_failure(c, SPAWN_PRIORITY, errno, false);
    const int level = l->io_class == IOPRIO_CLASS_BE ? 6 : 0;
    if (l->io_class && syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(l->io_class, level)) < 0)
        report_failure(c, SPAWN_PRIORITY, errno, false);
    if (l->cpus && sched_setaffinity(0, sizeof *l->cpus, l->cpus) < 0)
        report_failure(c, SPAWN_PRIORITY, errno, false);
}

/* The exceptions are copied before everything else becomes read-only, with the flags that they have. */
static int child_mounts(const char *const *writable)
{
    int tree[SPAWN_WRITABLE_MAX], n = 0, rc = 0;
    struct mount_attr locked = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    struct mount_attr open = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    if (unshare(CLONE_NEWNS | CLONE_NEWIPC) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return -errno;
    for (; writable[n] && n < SPAWN_WRITABLE_MAX; n++)
        tree[n] = open_tree(AT_FDCWD, writable[n], OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &locked, sizeof locked) < 0)
        rc = -errno;
    for (int i = 0; i < n; i++) {
        if (tree[i] < 0)
            continue; /* not there: nothing of it can be written */
        if (rc == 0 && (mount_setattr(tree[i], "", AT_EMPTY_PATH | AT_RECURSIVE, &open, sizeof open) < 0 ||
                        move_mount(tree[i], "", AT_FDCWD, writable[i], MOVE_MOUNT_F_EMPTY_PATH) < 0))
            rc = -errno;
        close(tree[i]);
    }
    return rc;
}

static void child_rights(const struct child *c)
{
    const struct spawn *s = c->s;
    const int mounts = s->writable && geteuid() == 0 ? child_mounts(s->writable) : 0;
    if (mounts < 0)
        report_failure(c, SPAWN_MOUNTS, -mounts, false);
    if (s->private_network && geteuid() == 0 && unshare(CLONE_NEWNET) < 0)
        report_failure(c, SPAWN_NETWORK, errno, false);
    int rc = s->user ? user_become(s->user) : 0;
    if (rc == 0 && s->no_new_privileges && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        rc = -errno;
    /* After the change of user, which clears it. */
    if (rc == 0 && s->dies_with_parent && prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        rc = -errno;
    if (rc < 0)
        report_failure(c, SPAWN_USER, -rc, true);
    if (s->dies_with_parent && getppid() != c->parent)
        _exit(127);
}

void child_program(struct child *c)
{
    const struct spawn *s = c->s;
    reset_signals();
    if (setsid() < 0)
        report_failure(c, SPAWN_SESSION, errno, true);
    wait_for_go(c);
    umask(022);
    if (s->cgroup >= 0 && write(s->cgroup, "0", 1) < 0)
        report_failure(c, SPAWN_CGROUP, errno, false);
    child_descriptors(c);
    if (s->limits) {
        child_limits(c, s->limits);
        child_priority(c, s->limits);
    }
    child_rights(c);
    char *const *argv = (char *const *)(uintptr_t)s->argv, *const *env = (char *const *)(uintptr_t)s->env;
    const int sys = s->program >= 0 ? program_execute(s->program, argv, env) : (execve(s->argv[0], argv, env), errno);
    report_failure(c, SPAWN_EXEC, sys, true);
    _exit(127);
}

/* ---- a function ---- */

void child_function(const struct spawn_function *f, pid_t parent)
{
    /* First of all: inherited resources, a lock for instance, must not outlive the parent here. */
    if (dup2(f->channel, CHANNEL_FD) < 0 || fcntl(CHANNEL_FD, F_SETFD, FD_CLOEXEC) < 0 ||
        close_range(CHANNEL_FD + 1, ~0u, 0) < 0)
        _exit(127);
    if (f->dies_with_parent && (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent))
        _exit(127);
    if (f->no_standard)
        close_range(0, CHANNEL_FD - 1, 0);
    reset_signals();
    if (f->detached) {
        setsid();
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        signal(SIGPIPE, SIG_IGN);
    }
    prctl(PR_SET_NAME, f->name);
    log_to(NULL, NULL);
    f->fn(CHANNEL_FD, f->arg);
    _exit(0);
}
