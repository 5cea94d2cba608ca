/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "proc/spawn.h"

#include "base/cleanup.h"
#include "proc/child-impl.h"
#include "proc/spawner-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void spawned_close(struct spawned *p)
{
    close_fd(&p->pidfd);
    close_fd(&p->report);
    close_fd(&p->go);
}

const char *spawn_phase_text(enum spawn_phase p)
{
    static const char *const text[] = {
        [SPAWN_SESSION] = "making a session of its own",
        [SPAWN_CGROUP] = "entering its cgroup",
        [SPAWN_LOG] = "opening its log file",
        [SPAWN_DESCRIPTORS] = "setting up its descriptors",
        [SPAWN_LIMITS] = "setting its resource limits",
        [SPAWN_PRIORITY] = "setting its priority",
        [SPAWN_NETWORK] = "leaving the network",
        [SPAWN_MOUNTS] = "making the system read-only for it",
        [SPAWN_USER] = "becoming its user",
        [SPAWN_EXEC] = "executing the program",
    };
    return p <= SPAWN_EXEC ? text[p] : "starting";
}

/* ---- in the parent ---- */

/* The child's pidfd; without one it is killed and waited for. */
static int watch_child(struct spawned *p, struct err *e)
{
    p->pidfd = pidfd_open(p->pid, 0);
    if (p->pidfd >= 0)
        return 0;
    int why = errno;
    kill(p->pid, SIGKILL);
    waitpid(p->pid, NULL, 0);
    spawned_close(p);
    return err_set(e, ERR_GENERIC, why, "cannot watch its process");
}

static int fork_program(struct spawned *ret, const struct spawn *s, int report, int go, struct err *e)
{
    CLEANUP_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot open /dev/null");
    struct child c = {.s = s, .parent = getpid(), .null = null, .report = report, .go = go, .go_parent = ret->go};
    ret->pid = fork();
    if (ret->pid == 0)
        child_program(&c);
    if (ret->pid < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot create a process");
    return watch_child(ret, e);
}

int spawn_program(struct spawned *ret, const struct spawn *s, struct err *e)
{
    int report[2], go[2] = {-1, -1};
    *ret = (struct spawned)SPAWNED_INIT;
    if (pipe2(report, O_CLOEXEC) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot create a pipe");
    ret->report = report[0];
    CLEANUP_CLOSE int report_child = report[1];
    if (s->waits && pipe2(go, O_CLOEXEC) < 0) {
        int why = errno;
        spawned_close(ret);
        return err_set(e, ERR_GENERIC, why, "cannot create a pipe");
    }
    ret->go = go[1];
    CLEANUP_CLOSE int go_child = go[0];
    if (fcntl(ret->report, F_SETFL, O_NONBLOCK) < 0) {
        int why = errno;
        spawned_close(ret);
        return err_set(e, ERR_GENERIC, why, "cannot create a pipe");
    }
    int rc = spawner_program(ret, s, report_child, go_child, e);
    if (rc == 0)
        rc = fork_program(ret, s, report_child, go_child, e);
    if (rc < 0)
        spawned_close(ret);
    return rc < 0 ? rc : 0;
}

int spawn_report_next(struct spawned *p, struct spawn_report *r)
{
    if (p->report < 0)
        return -EPIPE;
    ssize_t n;
    do
        n = read(p->report, r, sizeof *r);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return 0;
    return n == sizeof *r && r->phase >= 0 && r->phase <= SPAWN_EXEC ? 1 : -EPIPE;
}

void spawn_report_close(struct spawned *p)
{
    close_fd(&p->report);
}

int spawn_begun(struct spawned *p, struct spawn_report *r)
{
    for (;;) {
        int rc = spawn_report_next(p, r);
        if (rc == -EPIPE)
            return 0;
        if (rc == 1 && r->fatal)
            return -r->sys;
        if (rc == 0)
            poll(&(struct pollfd){.fd = p->report, .events = POLLIN}, 1, -1);
    }
}

void spawn_go(struct spawned *p)
{
    (void)!write(p->go, "", 1);
    close_fd(&p->go);
}

int spawn_and_wait(const struct spawn *s, const char *what, struct err *e)
{
    struct spawned p;
    struct spawn_report r;
    siginfo_t si = {0};
    int rc = spawn_program(&p, s, e);
    if (rc < 0)
        return err_wrap(e, "%s", what);
    const int begun = spawn_begun(&p, &r);
    while ((rc = waitid(P_PIDFD, (id_t)p.pidfd, &si, WEXITED) < 0 ? -errno : 0) == -EINTR)
        ;
    spawned_close(&p);
    if (begun < 0)
        return err_set(e, ERR_GENERIC, -begun, "%s: cannot run %s", what, s->argv[0]);
    if (rc < 0)
        return err_set(e, ERR_GENERIC, -rc, "%s: cannot wait for %s", what, s->argv[0]);
    if (si.si_code != CLD_EXITED || si.si_status)
        return err_set(e, ERR_GENERIC, EIO, "%s: %s failed (see the journal)", what, s->argv[0]);
    return 0;
}

/* ---- functions ---- */

int spawn_function(struct spawned *ret, const struct spawn_function *f, struct err *e)
{
    pid_t self = getpid();
    *ret = (struct spawned)SPAWNED_INIT;
    int rc = spawner_function(ret, f, e);
    if (rc)
        return rc < 0 ? rc : 0;
    fflush(NULL);
    ret->pid = fork();
    if (ret->pid == 0)
        child_function(f, self);
    if (ret->pid < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot create a process");
    return watch_child(ret, e);
}
