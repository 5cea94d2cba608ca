/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/agent/dialer.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "daemon/mover/agent/dialer-child.h"
#include "proc/descriptors.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define LOOK_MS 100
#define START_MS 20000
#define GRACE_NS (NS_PER_S / 2) /* its own deadline comes first */
#define DAEMON_S 5
#define END_STEPS 200 /* of 5 ms */

struct dialer {
    int channel;
    pid_t pid;
    struct dialer_places places;
};

/* ---- its beginning and its end ---- */

static int ready_wait(const struct dialer *d, struct err *e)
{
    struct dialer_answer a = {.sys = EPIPE, .why = "it has ended"};
    poll(&(struct pollfd){.fd = d->channel, .events = POLLIN}, 1, START_MS);
    const ssize_t n = descriptors_receive(d->channel, &a, sizeof a, NULL, 0, NULL);
    if (n == sizeof a && a.sys == 0)
        return 0;
    a.why[sizeof a.why - 1] = '\0';
    return err_set(e, ERR_GENERIC,
                   n == sizeof a  ? a.sys
                   : n == -EAGAIN ? ETIMEDOUT
                                  : EPIPE,
                   "cannot start the process that makes the connections: %s",
                   n == -EAGAIN ? "it does not answer" : a.why);
}

int dialer_start(struct dialer **ret, const struct s3_target *targets, unsigned n, const char *daemon, struct err *e)
{
    int pair[2];
    struct dialer *d = calloc(1, sizeof *d);
    if (!d)
        return err_nomem(e);
    if (n > DIALER_TARGETS_MAX || strlen(daemon) >= sizeof d->places.daemon) {
        free(d);
        return err_set(e, ERR_USAGE, E2BIG, "too many places to connect to, or the socket's path is too long");
    }
    if (n)
        memcpy(d->places.targets, targets, n * sizeof *targets);
    d->places.n = n;
    snprintf(d->places.daemon, sizeof d->places.daemon, "%s", daemon);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        const int sys = errno;
        free(d);
        return err_set(e, ERR_GENERIC, sys, "cannot make a pair of sockets");
    }
    const pid_t self = getpid();
    d->pid = fork();
    if (d->pid == 0)
        dialer_run(pair[1], self, &d->places);
    const int sys = errno;
    close(pair[1]);
    d->channel = pair[0];
    const int rc = d->pid < 0 ? err_set(e, ERR_GENERIC, sys, "cannot fork the process that makes the connections")
                              : ready_wait(d, e);
    if (rc < 0)
        dialer_end(d);
    else
        *ret = d;
    return rc;
}

void dialer_end(struct dialer *d)
{
    if (!d)
        return;
    close(d->channel);
    /* At once, but nothing may hold up the end of a mover: what remains is killed with it. */
    for (int i = 0; d->pid > 0 && i < END_STEPS && waitpid(d->pid, NULL, WNOHANG) == 0; i++)
        poll(NULL, 0, 5);
    free(d);
}

pid_t dialer_pid_for_test(const struct dialer *d)
{
    return d->pid;
}

/* ---- a connection ---- */

static int fail(int sys, const char *text, char why[256])
{
    snprintf(why, 256, "%s", text);
    return -sys;
}

/* 0, or why it is not waited for any longer. */
static int still_wanted(int64_t until_ns, bool (*given_up)(void *), void *arg, char why[256])
{
    if (given_up && given_up(arg))
        return fail(ECANCELED, "given up", why);
    return mono_ns() > until_ns + GRACE_NS
               ? fail(ETIMEDOUT, "no connection, and no address, within the time allowed", why)
               : 0;
}

static int request_send(const struct dialer *d, const struct dialer_request *q, int reply, bool (*given_up)(void *),
                        void *arg, char why[256])
{
    for (;;) {
        const ssize_t n = descriptors_send(d->channel, q, sizeof *q, &reply, 1, MSG_DONTWAIT);
        if (n >= 0)
            return 0;
        if (n != -EAGAIN && n != -ENOBUFS && n != -ETOOMANYREFS)
            return fail(EPIPE, "the process that makes the connections has ended", why);
        const int rc = still_wanted(q->until_ns, given_up, arg, why);
        if (rc < 0)
            return rc;
        poll(&(struct pollfd){.fd = d->channel, .events = POLLOUT}, 1, LOOK_MS);
    }
}

static int answer_wait(int socket, const struct dialer_request *q, bool (*given_up)(void *), void *arg, char why[256])
{
    for (;;) {
        struct dialer_answer a;
        CLEANUP_CLOSE int fd = -1;
        poll(&(struct pollfd){.fd = socket, .events = POLLIN}, 1, LOOK_MS);
        const ssize_t n = descriptors_receive(socket, &a, sizeof a, &fd, 1, NULL);
        if (n == sizeof a && a.sys == 0 && fd >= 0)
            return take_fd(&fd);
        if (n == sizeof a) {
            a.why[sizeof a.why - 1] = '\0';
            return fail(a.sys > 0 ? a.sys : EPROTO, a.why, why);
        }
        if (n != -EAGAIN && n != -EINTR)
            return fail(EPIPE, "the process that makes the connections has ended", why);
        const int rc = still_wanted(q->until_ns, given_up, arg, why);
        if (rc < 0)
            return rc;
    }
}

static int dial(const struct dialer *d, const struct dialer_request *q, bool (*given_up)(void *), void *arg,
                char why[256])
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return fail(errno, "no socket can be made", why);
    CLEANUP_CLOSE int mine = pair[0];
    int rc = request_send(d, q, pair[1], given_up, arg, why);
    close(pair[1]);
    return rc < 0 ? rc : answer_wait(mine, q, given_up, arg, why);
}

int dialer_connect(void *dialer, const struct s3_target *to, int64_t until_ns, bool (*given_up)(void *),
                   void *given_up_arg, char why[256])
{
    const struct dialer *d = dialer;
    struct dialer_request q = {.until_ns = until_ns};
    while (q.target < d->places.n &&
           (strcmp(d->places.targets[q.target].host, to->host) != 0 || d->places.targets[q.target].port != to->port))
        q.target++;
    return q.target < d->places.n ? dial(d, &q, given_up, given_up_arg, why)
                                  : fail(EPERM, "it is no place of this job", why);
}

int dialer_connect_daemon(void *dialer)
{
    const struct dialer_request q = {.until_ns = mono_ns() + DAEMON_S * NS_PER_S, .target = DIALER_DAEMON};
    char why[256];
    return dial(dialer, &q, NULL, NULL, why);
}
