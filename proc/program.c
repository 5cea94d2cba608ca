/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * program.c - another program, from fork to the end of its last child
 *
 * The program gets a session and process group of its own. Beside it runs a guard: a tiny process that holds the read
 * end of a pipe and kills the group when the pipe breaks, so that nothing of the program remains when the caller is
 * killed. The leader is reaped last: until then its pid, and so the group's, cannot be reused.
 */
#include "proc/program.h"
#include "base/cleanup.h"
#include "base/time.h"
#include "proc/descriptors.h"
#include "proc/process.h"
#include "proc/program-path.h"
#include "proc/program-unit.h"
#include "proc/spawn.h"
#include "proc/systemd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUT_MAX_DEFAULT (1u << 20)
#define ERR_LINES_MAX 2000u       /* lines of standard error that reach the log */
#define ERR_BYTES_MAX (64u << 20) /* beyond this it is a flood */
#define DIE_MS 5000               /* how long SIGKILL may take */
#define DRAIN_MS 1000             /* how long output may stay open after the end */
#define SINK_PIECE (1u << 20)
#define SINK_DRAIN_MS 60000 /* the same where each byte counts */

static const char *const default_env[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                          "LANG=C.UTF-8", NULL};

struct run {
    const struct program *p;
    const char *label;
    struct program_unit unit; /* name "" without systemd */
    struct user who;
    const char *const *argv, *const *env;
    struct spawned process;
    struct spawned guard_process;
    int in, out, out_child, err, err_child, guard, guard_child, program;
    char *buf;
    size_t len, cap, max;
    char line[1024], tail[2048];
    size_t line_len, tail_len;
    unsigned lines;
    uint64_t err_bytes;
    int exec_errno;
    int sink_rc;
    struct err sink_err;
    bool gone, timed_out, out_flood, err_flood, no_memory;
};

/* ---- before ---- */

static int find_user(struct run *r, struct err *e)
{
    int rc = user_find(&r->who, r->p->user, true, e);
    if (rc != -ENOENT)
        return rc < 0 ? err_wrap(e, "%s", r->label) : 0;
    err_set(e, ERR_NOT_FOUND, ENOENT, "%s: unknown user \"%s\" for %s", r->label, r->p->user, r->p->argv[0]);
    return err_hint(e, "create it (the package does so with systemd-sysusers) or set another user");
}

/* A memory file: no pipe that could fill up, no SIGPIPE, and /dev/stdin can be opened. */
static int make_input(struct run *r, struct err *e)
{
    if (!r->p->input)
        return 0;
    r->in = memory_input("input", r->p->input, r->p->input_len, e);
    return r->in < 0 ? err_wrap(e, "%s", r->label) : 0;
}

static int make_pipe(int *ours, int *theirs, struct run *r, struct err *e)
{
    int fd[2];
    if (pipe2(fd, O_CLOEXEC) < 0)
        return err_set(e, ERR_GENERIC, errno, "%s: cannot create a pipe", r->label);
    *ours = fd[0];
    *theirs = fd[1];
    fcntl(fd[0], F_SETFL, O_NONBLOCK);
    /* So that the program can open /dev/stderr by name after the change of user. */
    if (r->who.change && fchown(fd[1], r->who.uid, (gid_t)-1) < 0)
        return err_set(e, ERR_GENERIC, errno, "%s: cannot pass a pipe", r->label);
    return 0;
}

static int make_pipes(struct run *r, struct err *e)
{
    int rc = make_input(r, e);
    if (rc == 0)
        rc = make_pipe(&r->out, &r->out_child, r, e);
    if (rc == 0 && r->p->sink)
        (void)fcntl(r->out, F_SETPIPE_SZ, SINK_PIECE); /* the default serves too */
    if (rc == 0)
        rc = make_pipe(&r->err, &r->err_child, r, e);
    if (rc == 0)
        rc = make_pipe(&r->guard_child, &r->guard, r, e);
    return rc;
}

/* ---- the two processes ---- */

/* Kills the program's group when the pipe breaks; a byte in it means normal termination. */
static void guard_main(int channel, void *arg)
{
    const struct run *r = arg;
    char c;
    ssize_t n;
    fcntl(channel, F_SETFL, 0);
    do
        n = read(channel, &c, 1);
    while (n < 0 && errno == EINTR);
    if (n == 1 || r->p->finish)
        return;
    kill(-r->process.pid, SIGKILL);
    if (r->unit.stop)
        execve(r->unit.stop[0], r->unit.stop, (char *const *)(uintptr_t)default_env);
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static int run_launch(struct run *r, struct err *e)
{
    struct spawn s = SPAWN_INIT;
    s.argv = r->argv;
    s.env = r->env;
    s.in = r->in;
    s.out = r->out_child;
    s.err = r->err_child;
    s.program = r->program;
    s.user = &r->who;
    s.dies_with_parent = !r->p->finish;
    int rc = spawn_program(&r->process, &s, e);
    if (rc < 0)
        return err_wrap(e, "%s", r->label);
    const struct spawn_function guard = {.name = "snapferry-guard",
                                         .fn = guard_main,
                                         .arg = r,
                                         .channel = r->guard_child,
                                         .no_standard = true,
                                         .detached = true};
    rc = spawn_function(&r->guard_process, &guard, e);
    if (rc < 0) {
        kill(r->process.pid, SIGKILL);
        waitpid(r->process.pid, NULL, 0);
        return err_wrap(e, "%s", r->label);
    }
    close_fd(&r->in);
    close_fd(&r->out_child);
    close_fd(&r->err_child);
    close_fd(&r->guard_child);
    return 0;
}

/* ---- while it runs ---- */

static void kill_all(struct run *r)
{
    /* Before its setsid() there is no such group: then the process itself. */
    if (!r->p->finish) {
        kill(-r->process.pid, SIGKILL);
        process_signal(r->process.pidfd, SIGKILL);
    }
    close_fd(&r->guard);
}

static void read_sink(struct run *r)
{
    if (!r->buf && !(r->buf = malloc(SINK_PIECE))) {
        r->no_memory = true;
        close_fd(&r->out);
        return;
    }
    ssize_t n = read(r->out, r->buf, SINK_PIECE);
    r->len += n > 0 ? (size_t)n : 0;
    r->out_flood = r->p->out_max && r->len > r->p->out_max;
    if (n > 0 && !r->out_flood)
        r->sink_rc = r->p->sink(r->buf, (size_t)n, r->p->sink_arg, &r->sink_err);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || r->sink_rc || r->out_flood)
        close_fd(&r->out);
}

static void read_out(struct run *r)
{
    if (r->p->sink) {
        read_sink(r);
        return;
    }
    if (r->len == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 4096;
        if (cap > r->max + 1)
            cap = r->max + 1;
        char *grown = cap > r->cap ? realloc(r->buf, cap + 1) : NULL;
        if (!grown) {
            r->no_memory = cap > r->cap;
            r->out_flood = !r->no_memory;
            close_fd(&r->out);
            return;
        }
        r->buf = grown;
        r->cap = cap;
    }
    ssize_t n = read(r->out, r->buf + r->len, r->cap - r->len);
    if (n > 0)
        r->len += (size_t)n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        close_fd(&r->out);
    if (r->len > r->max) {
        r->out_flood = true;
        close_fd(&r->out);
    }
}

static void end_line(struct run *r)
{
    if (!r->line_len)
        return;
    r->line[r->line_len] = '\0';
    if (r->lines < ERR_LINES_MAX)
        log_info("%s: %s", r->label, r->line);
    else if (r->lines == ERR_LINES_MAX)
        log_warning("%s: more than %u lines on standard error, further lines are not logged", r->label, ERR_LINES_MAX);
    r->lines++;
    r->line_len = 0;
}

static void keep_tail(struct run *r, const char *text, size_t n)
{
    size_t room = sizeof r->tail;
    if (n >= room) {
        memcpy(r->tail, text + n - room, room);
        r->tail_len = room;
        return;
    }
    if (r->tail_len + n > room) {
        size_t drop = r->tail_len + n - room;
        memmove(r->tail, r->tail + drop, r->tail_len - drop);
        r->tail_len -= drop;
    }
    memcpy(r->tail + r->tail_len, text, n);
    r->tail_len += n;
}

static void read_err(struct run *r)
{
    char chunk[4096];
    ssize_t n = read(r->err, chunk, sizeof chunk);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            close_fd(&r->err);
        return;
    }
    r->err_bytes += (uint64_t)n;
    r->err_flood = r->err_bytes > ERR_BYTES_MAX;
    keep_tail(r, chunk, (size_t)n);
    for (ssize_t i = 0; i < n; i++) {
        if (chunk[i] == '\n' || r->line_len == sizeof r->line - 1)
            end_line(r);
        if (chunk[i] != '\n')
            r->line[r->line_len++] = (unsigned char)chunk[i] < 0x20 || chunk[i] == 0x7f ? ' ' : chunk[i];
    }
}

static void read_report(struct run *r)
{
    struct spawn_report report;
    int rc;
    while ((rc = spawn_report_next(&r->process, &report)) == 1)
        if (report.fatal)
            r->exec_errno = report.sys;
    if (rc < 0)
        spawn_report_close(&r->process);
}

/* Handles all pending events once. */
static void poll_once(struct run *r, int64_t until)
{
    int64_t left = until - mono_ns() / NS_PER_MS;
    struct pollfd f[4] = {{r->gone ? -1 : r->process.pidfd, POLLIN, 0},
                          {r->out, POLLIN, 0},
                          {r->err, POLLIN, 0},
                          {r->process.report, POLLIN, 0}};
    if (poll(f, 4, left < 0 ? 0 : left > 60000 ? 60000 : (int)left) <= 0)
        return;
    if (f[3].revents)
        read_report(r);
    if (f[1].revents)
        read_out(r);
    if (f[2].revents)
        read_err(r);
    if (f[0].revents)
        r->gone = true;
}

static bool output_refused(const struct run *r)
{
    return r->out_flood || r->err_flood || r->no_memory || r->sink_rc;
}

/* Until the program has ended, and all its output was read; what remains of its group is then killed. */
static void program_watch(struct run *r)
{
    int64_t deadline = mono_ns() / NS_PER_MS + (int64_t)r->p->timeout_s * 1000;
    while (!r->gone && !output_refused(r)) {
        if (mono_ns() / NS_PER_MS >= deadline) {
            r->timed_out = true;
            break;
        }
        poll_once(r, deadline);
    }
    if (!r->gone || output_refused(r)) {
        kill_all(r);
        for (int64_t end = mono_ns() / NS_PER_MS + (r->p->finish ? 0 : DIE_MS);
             !r->gone && mono_ns() / NS_PER_MS < end;)
            poll_once(r, end);
    } else {
        kill(-r->process.pid, SIGKILL);
    }
    for (int64_t end = mono_ns() / NS_PER_MS + (r->p->sink ? SINK_DRAIN_MS : DRAIN_MS);
         (r->out >= 0 || r->err >= 0 || r->process.report >= 0) && !output_refused(r);) {
        if (mono_ns() / NS_PER_MS >= end)
            break;
        poll_once(r, end);
    }
    end_line(r);
}

/* The guard is ended first, then the leader: its pid must not be reused while the guard may still use it. */
static bool program_reap(struct run *r, siginfo_t *si)
{
    memset(si, 0, sizeof *si);
    if (r->guard >= 0) {
        (void)!write(r->guard, "", 1);
        close_fd(&r->guard);
    }
    while (waitpid(r->guard_process.pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (!r->gone)
        return false;
    while (waitid(P_PIDFD, (id_t)r->process.pidfd, si, WEXITED) < 0)
        if (errno != EINTR)
            return false;
    return true;
}

/* ---- after ---- */

/* The tail of standard error as part of a message: ": text", "" if there was none. */
static void stderr_tail(const struct run *r, char *out, size_t cap)
{
    out[0] = '\0';
    size_t n = r->tail_len;
    while (n && strchr(" \n\r\t", r->tail[n - 1]))
        n--;
    size_t from = n > cap - 64 ? n - (cap - 64) : 0;
    if (!n)
        return;
    size_t w = (size_t)snprintf(out, cap, ": %s", from ? "..." : "");
    for (size_t i = from; i < n && w + 3 < cap; i++) {
        char c = r->tail[i];
        if (c == '\n' && w + 4 < cap)
            out[w++] = ';';
        out[w++] = (unsigned char)c < 0x20 || c == 0x7f ? ' ' : c;
    }
    out[w] = '\0';
}

static int timed_out(const struct run *r, const char *text, struct err *e)
{
    err_set(e, ERR_GENERIC, 0, "%s: %s timed out after %u s and %s%s", r->label, r->p->argv[0], r->p->timeout_s,
            r->p->finish ? "goes on" : "was killed", text);
    if (e)
        e->sys = ETIMEDOUT; /* whose own text speaks of connections */
    return -ETIMEDOUT;
}

static int program_result(struct run *r, bool reaped, const siginfo_t *si, int *status, struct err *e)
{
    const char *prog = r->p->argv[0];
    char text[768];
    stderr_tail(r, text, sizeof text);
    if (r->exec_errno) {
        err_set(e, ERR_GENERIC, r->exec_errno, "%s: cannot start %s", r->label, prog);
        if (r->exec_errno == ENOENT)
            err_hint(e, "does the interpreter in its first line (#!) exist?");
        if (r->exec_errno == ENOEXEC)
            err_hint(e, "a script needs #! and its interpreter in the first line");
        return -r->exec_errno;
    }
    if (r->no_memory)
        return err_nomem(e);
    if (r->sink_rc) {
        if (e)
            *e = r->sink_err;
        return r->sink_rc;
    }
    if (r->out_flood)
        return err_set(e, ERR_GENERIC, EFBIG, "%s: %s wrote more than %zu bytes and was killed", r->label, prog,
                       r->max);
    if (r->err_flood)
        return err_set(e, ERR_GENERIC, EFBIG, "%s: %s flooded its standard error and was killed", r->label, prog);
    if (!reaped && !r->timed_out)
        return err_set(e, ERR_GENERIC, ECHILD, "%s: exit status of %s unknown", r->label, prog);
    if (r->timed_out)
        return timed_out(r, text, e);
    if (si->si_code != CLD_EXITED)
        return err_set(e, ERR_GENERIC, 0, "%s: %s was killed by signal %d (%s)%s", r->label, prog, si->si_status,
                       strsignal(si->si_status), text);
    if (status)
        *status = si->si_status;
    if (si->si_status) {
        err_set(e, ERR_GENERIC, 0, "%s: %s ended with exit code %d%s", r->label, prog, si->si_status, text);
        return status ? 0 : -EIO;
    }
    return 0;
}

static void run_clear(struct run *r)
{
    int *fds[] = {&r->in, &r->out, &r->out_child, &r->err, &r->err_child, &r->guard, &r->guard_child, &r->program};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        close_fd(fds[i]);
    spawned_close(&r->process);
    spawned_close(&r->guard_process);
    program_unit_free(&r->unit);
    free(r->buf);
}

static int run_prepare(struct run *r, struct err *e)
{
    const struct program *p = r->p;
    const char *const *env = p->env ? p->env : default_env;
    int rc = program_open(p->label, p->argv && p->argv[0] ? p->argv[0] : "", &r->program, e);
    if (rc == 0 && !p->timeout_s)
        rc = err_set(e, ERR_USAGE, EINVAL, "%s: no time limit for %s", p->label, p->argv[0]);
    if (rc < 0)
        return rc;
    r->argv = (const char *const *)p->argv;
    r->env = env;
    if (!systemd_runs())
        rc = find_user(r, e);
    else if ((rc = program_unit_make(&r->unit, p, env, e)) == 0) {
        r->argv = (const char *const *)r->unit.run;
        r->env = default_env;
        close_fd(&r->program); /* opened and checked once more in the unit */
    }
    return rc < 0 ? rc : make_pipes(r, e);
}

int program_run(const struct program *p, char **out, size_t *out_len, int *status, struct err *e)
{
    struct program named = *p;
    if (!named.label)
        named.label = "program";
    struct run r = {.p = &named, .label = named.label, .process = SPAWNED_INIT, .guard_process = SPAWNED_INIT};
    r.in = r.out = r.out_child = r.err = r.err_child = r.guard = r.guard_child = r.program = -1;
    r.max = p->out_max ? p->out_max : OUT_MAX_DEFAULT;
    if (out)
        *out = NULL;
    if (out_len)
        *out_len = 0;
    if (status)
        *status = -1;
    int rc = run_prepare(&r, e);
    if (rc == 0)
        rc = run_launch(&r, e);
    if (rc == 0) {
        program_watch(&r);
        siginfo_t si;
        bool reaped = program_reap(&r, &si);
        rc = program_result(&r, reaped, &si, status, e);
    }
    if (rc == 0 && out && !p->sink) {
        *out = r.buf ? take_ptr(&r.buf) : calloc(1, 1);
        if (!*out)
            rc = err_nomem(e);
        else
            (*out)[r.len] = '\0';
        if (out_len)
            *out_len = r.len;
    }
    run_clear(&r);
    return rc;
}
