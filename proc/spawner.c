/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * spawner.c - the process that forks for another, and the requests to it
 *
 * A request is a header with its descriptors, and bytes: the argument of a function, or words: argv, env, writable. It
 * is the same program image on both sides, so a function is its address. The answer is the child's pid and pidfd, or
 * an errno.
 *
 * A child does nothing before the daemon knows it: it names itself at its gate and waits there. If the spawner ends or
 * stalls after it forked, the daemon learns of the child by that, and ends it before the request is carried out again:
 * no two children ever do the same work.
 */
#include "proc/spawner.h"
#include "base/cleanup.h"
#include "proc/child-impl.h"
#include "proc/descriptors.h"
#include "proc/process.h"
#include "proc/spawner-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOCKET_FD 3
#define ANSWER_S 10  /* a fork that takes longer is given up */
#define LOST_MS 2000 /* for a child that the spawner forked to name itself */
#define REQUEST_MAX (64u << 20)
#define RESTART_LIMIT 10 /* spawners of one daemon; afterwards it forks itself */

enum use { USE_IN, USE_OUT, USE_ERR, USE_CGROUP, USE_REPORT, USE_GO, USE_GATE, USE_PROGRAM, USES, USE_CHANNEL = 0 };

struct request {
    bool program;
    uint8_t uses; /* of its descriptors: a bit of each enum use, in that order */
    uint32_t n_argv, n_env, n_writable, n_log;
    uint64_t len; /* of the bytes that follow */
    struct spawn_function function;
    struct spawn spawn; /* pointers only say whether there is one */
    struct user user;
    struct spawn_limits limits;
    cpu_set_t cpus;
};
struct answer {
    pid_t pid;
    int sys; /* errno, 0: forked */
};

struct spawner_test spawner_test;

static struct {
    pid_t pid, owner; /* owner: the thread that may use it */
    int socket;
    unsigned started;
} spawner = {.socket = -1};

/* ---- the spawner ---- */

struct server {
    pid_t parent;
    int null;
    char *bytes;
    size_t cap;
    const char **words; /* argv, env, writable */
    size_t n_words;
};

static bool read_all(int fd, char *to, size_t n)
{
    while (n) {
        ssize_t got = recv(fd, to, n, MSG_WAITALL);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        to += got;
        n -= (size_t)got;
    }
    return true;
}

/* False: the daemon has ended, or the request is none. */
static bool request_receive(struct server *v, struct request *r, int fds[USES])
{
    struct pollfd p = {.fd = SOCKET_FD, .events = POLLIN};
    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        ;
    if (descriptors_receive(SOCKET_FD, r, sizeof *r, fds, USES, NULL) != (ssize_t)sizeof *r || r->len > REQUEST_MAX)
        return false;
    if (r->len + 1 > v->cap) {
        char *more = realloc(v->bytes, r->len + 1);
        if (!more)
            return false;
        v->bytes = more;
        v->cap = r->len + 1;
    }
    v->bytes[r->len] = '\0';
    return read_all(SOCKET_FD, v->bytes, r->len);
}

/* The lists from the bytes: zero-terminated words one after the other. */
static bool words_of(struct server *v, struct request *r)
{
    const uint32_t n_of[] = {r->n_argv, r->n_env, r->n_writable, r->n_log};
    const char *const **lists[] = {&r->spawn.argv, &r->spawn.env, &r->spawn.writable, &r->spawn.log};
    const size_t n = (size_t)r->n_argv + r->n_env + r->n_writable + r->n_log + 4;
    if (n > v->n_words) {
        const char **more = reallocarray((void *)v->words, n, sizeof *more);
        if (!more)
            return false;
        v->words = more;
        v->n_words = n;
    }
    const char *p = v->bytes, *end = p + r->len;
    size_t at = 0;
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        if (k < 2 || *lists[k])
            *lists[k] = v->words + at;
        for (uint32_t i = 0; i < n_of[k]; i++) {
            if (p >= end)
                return false;
            v->words[at++] = p;
            p += strlen(p) + 1;
        }
        v->words[at++] = NULL;
    }
    return true;
}

static void __attribute__((noreturn)) become(struct server *v, struct request *r, const int fd[USES])
{
    const pid_t self = getpid();
    char open_now;
    close(SOCKET_FD);
    /* The daemon may have opened it already, and be gone from there. */
    (void)!send(fd[USE_GATE], &self, sizeof self, MSG_NOSIGNAL);
    ssize_t n;
    /* Closed before it had read the name: a reset first, and then what it had sent. */
    while ((n = recv(fd[USE_GATE], &open_now, 1, 0)) < 0 && (errno == EINTR || errno == ECONNRESET))
        ;
    if (n != 1)
        _exit(127);
    close(fd[USE_GATE]);
    if (!r->program) {
        r->function.channel = fd[USE_CHANNEL];
        r->function.arg = v->bytes;
        child_function(&r->function, v->parent);
    }
    r->spawn.in = fd[USE_IN];
    r->spawn.out = fd[USE_OUT];
    r->spawn.err = fd[USE_ERR];
    r->spawn.cgroup = fd[USE_CGROUP];
    r->spawn.program = fd[USE_PROGRAM];
    r->spawn.user = r->spawn.user ? &r->user : NULL;
    if (r->spawn.limits) {
        r->spawn.limits = &r->limits;
        r->limits.cpus = r->limits.cpus ? &r->cpus : NULL;
    }
    struct child c = {.s = &r->spawn,
                      .parent = v->parent,
                      .null = v->null,
                      .report = fd[USE_REPORT],
                      .go = fd[USE_GO],
                      .go_parent = -1};
    child_program(&c);
}

static struct answer request_fork(struct server *v, struct request *r, const int fd[USES], int *pidfd)
{
    if (r->program && !words_of(v, r))
        return (struct answer){.sys = ENOMEM};
    /* fork() knows no CLONE_PARENT. What it does besides is for locks of other threads, of which there are none. Not
     * clone3(), whose flags no filter can read: RestrictNamespaces= of the unit makes it fail (ENOSYS). */
    const long pid = syscall(SYS_clone, (unsigned long)(CLONE_PARENT | CLONE_PIDFD), NULL, pidfd, NULL, NULL);
    if (pid == 0)
        become(v, r, fd);
    return pid < 0 ? (struct answer){.sys = errno} : (struct answer){.pid = (pid_t)pid};
}

static void __attribute__((noreturn)) serve(int socket, pid_t parent)
{
    static struct request r;
    struct server v = {.parent = parent};
    /* First of all, as in every child: what is inherited must not outlive the daemon here. */
    if (dup2(socket, SOCKET_FD) < 0 || fcntl(SOCKET_FD, F_SETFD, FD_CLOEXEC) < 0 ||
        close_range(SOCKET_FD + 1, ~0u, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        _exit(127);
    static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    prctl(PR_SET_NAME, "snapferry-spawn");
    log_to(NULL, NULL);
    v.null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (;;) {
        int fds[USES], fd[USES], pidfd = -1, next = 0;
        if (!request_receive(&v, &r, fds))
            _exit(0);
        for (int i = 0; i < USES; i++)
            fd[i] = r.uses & 1u << i ? fds[next++] : -1;
        const struct answer a = request_fork(&v, &r, fd, &pidfd);
        if (spawner_test.forked)
            spawner_test.forked();
        for (int i = 0; i < USES; i++)
            closep(&fds[i]);
        if (descriptors_send(SOCKET_FD, &a, sizeof a, &pidfd, pidfd >= 0, 0) != (ssize_t)sizeof a)
            _exit(0);
        closep(&pidfd);
    }
}

/* ---- in the daemon ---- */

static bool spawner_is_mine(void)
{
    return spawner.owner && spawner.owner == gettid();
}

/* Ended or not, it is no more. */
static void spawner_end(void)
{
    if (spawner.socket >= 0)
        close(spawner.socket);
    spawner.socket = -1;
    if (spawner.pid > 0) {
        kill(spawner.pid, SIGKILL);
        while (waitpid(spawner.pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    spawner.pid = 0;
}

int spawner_start(struct err *e)
{
    int pair[2];
    if (spawner.pid)
        return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot create the socket of the spawner");
    const struct timeval patience = {.tv_sec = ANSWER_S};
    const pid_t self = getpid();
    setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0)
        serve(pair[1], self);
    const int why = errno;
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return err_set(e, ERR_GENERIC, why, "cannot create the process of the spawner");
    }
    spawner.owner = gettid();
    spawner.pid = pid;
    spawner.socket = pair[0];
    spawner.started++;
    return 0;
}

void spawner_stop(void)
{
    if (!spawner_is_mine())
        return;
    spawner_end();
    spawner.owner = 0;
    spawner.started = 0;
}

int spawner_pid_test(void)
{
    return spawner.pid;
}

static bool spawner_there(void)
{
    struct err e = ERR_INIT;
    if (!spawner_is_mine())
        return false;
    if (spawner.pid)
        return true;
    if (spawner.started > RESTART_LIMIT)
        return false;
    if (spawner_start(&e) == 0)
        return true;
    log_warning("%s; the daemon forks itself", e.msg);
    return false;
}

static bool send_all(int socket, const char *p, size_t n)
{
    while (n) {
        ssize_t sent = send(socket, p, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        p += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* At once, so that the spawner wakes up once. */
static bool send_request(const struct request *r, const char *bytes, const int *fds, unsigned n)
{
    const size_t len = sizeof *r + r->len;
    CLEANUP_FREE char *all = malloc(len);
    if (!all)
        return false;
    memcpy(all, r, sizeof *r);
    memcpy(all + sizeof *r, bytes, r->len);
    const ssize_t sent = descriptors_send(spawner.socket, all, len, fds, n, 0);
    return sent > 0 && send_all(spawner.socket, all + sent, len - (size_t)sent);
}

/* The spawner is no more: of a child that it had forked for this request nobody else knows. `gate`: the daemon's end,
 * whose other ones only such a child can have. */
static void end_lost_child(int gate)
{
    struct pollfd p = {.fd = gate, .events = POLLIN};
    pid_t pid;
    int ready;
    while ((ready = poll(&p, 1, LOST_MS)) < 0 && errno == EINTR)
        ;
    if (ready > 0 && recv(gate, &pid, sizeof pid, MSG_DONTWAIT) == (ssize_t)sizeof pid) {
        kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        log_warning("process %d, which it had forked for the daemon, was ended before it did anything", (int)pid);
    }
    /* One that has not come to name itself finds its gate closed. */
}

/* As those of spawn.h; 0 also when the spawner has ended. */
static int ask(struct spawned *ret, struct request *r, const char *bytes, int fd[USES], struct err *e)
{
    int fds[USES], pair[2];
    unsigned n = 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot create a socket");
    CLEANUP_CLOSE int gate = pair[0];
    CLEANUP_CLOSE int gate_child = pair[1];
    fd[USE_GATE] = gate_child;
    for (int i = 0; i < USES; i++)
        if (fd[i] >= 0) {
            r->uses |= (uint8_t)(1u << i);
            fds[n++] = fd[i];
        }
    struct answer a;
    struct pollfd p = {.fd = spawner.socket, .events = POLLIN};
    ssize_t got = -1;
    bool silent = false;
    if (send_request(r, bytes, fds, n)) {
        int ready;
        while ((ready = poll(&p, 1, spawner_test.answer_ms ? spawner_test.answer_ms : ANSWER_S * 1000)) < 0 &&
               errno == EINTR)
            ;
        silent = ready == 0;
        if (ready > 0)
            got = descriptors_receive(spawner.socket, &a, sizeof a, &ret->pidfd, 1, NULL);
    }
    if (got != (ssize_t)sizeof a) {
        log_warning("the process that starts programs for the daemon %s; restarting it",
                    silent ? "does not answer" : "has ended");
        spawner_end();
        closep(&gate_child);
        gate_child = -1;
        end_lost_child(gate);
        return 0;
    }
    if (a.sys == ENOSYS || a.sys == EPERM) { /* a filter of whoever started the daemon */
        log_warning(
            "the process that starts programs for the daemon is not allowed to: %s; the daemon starts them itself",
            strerror(a.sys));
        spawner_end();
        spawner.started = RESTART_LIMIT + 1;
        return 0;
    }
    if (a.sys)
        return err_set(e, ERR_GENERIC, a.sys, "cannot create a process");
    ret->pid = a.pid;
    send(gate, "", 1, MSG_NOSIGNAL); /* if the child has ended meanwhile, its pidfd says so */
    return 1;
}

static size_t words_size(const char *const *words, uint32_t *n)
{
    size_t size = 0;
    for (*n = 0; words[*n]; ++*n)
        size += strlen(words[*n]) + 1;
    return size;
}

static char *words_put(char *to, const char *const *words)
{
    for (size_t i = 0; words[i]; i++)
        to = stpcpy(to, words[i]) + 1;
    return to;
}

int spawner_program(struct spawned *ret, const struct spawn *s, int report, int go, struct err *e)
{
    if (!spawner_there())
        return 0;
    struct request r = {.program = true, .spawn = *s};
    r.len = words_size(s->argv, &r.n_argv);
    r.len += words_size(s->env, &r.n_env);
    if (s->writable)
        r.len += words_size(s->writable, &r.n_writable);
    if (s->log)
        r.len += words_size(s->log, &r.n_log);
    if (s->user)
        r.user = *s->user;
    if (s->limits) {
        r.limits = *s->limits;
        if (s->limits->cpus)
            r.cpus = *s->limits->cpus;
    }
    CLEANUP_FREE char *words = malloc(r.len + 1);
    if (!words)
        return err_nomem(e);
    char *end = words_put(words_put(words, s->argv), s->env);
    if (s->writable)
        end = words_put(end, s->writable);
    if (s->log)
        words_put(end, s->log);
    return ask(ret, &r, words, (int[USES]){s->in, s->out, s->err, s->cgroup, report, go, -1, s->program}, e);
}

int spawner_function(struct spawned *ret, const struct spawn_function *f, struct err *e)
{
    if (!f->arg_len || f->arg_len > REQUEST_MAX || !spawner_there())
        return 0;
    struct request r = {.function = *f, .len = f->arg_len};
    return ask(ret, &r, f->arg, (int[USES]){f->channel, -1, -1, -1, -1, -1, -1, -1}, e);
}
