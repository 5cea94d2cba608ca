/* SPDX-License-Identifier: GPL-2.0-or-later */
/* dialer-child.c - the process that makes the connections of a mover; see dialer.h */
#include "daemon/mover/agent/dialer-child.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "daemon/mover/agent/dial-connect.h"
#include "daemon/mover/agent/lockdown-dialer.h"
#include "proc/descriptors.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#define AT_ONCE 64            /* more wait: names that nobody resolves keep a thread for some time */
#define LONGEST_S 300         /* whatever is requested */
#define STACK (1u << 20)      /* of a thread: what the name service needs */
#define NAME "snapferry-dial" /* not that of a mover, by which a daemon looks for those that it does not know */

static const struct dialer_places *places;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned busy;

struct errand {
    struct dialer_request q;
    int reply;
};

static int daemon_connect(char why[256])
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    CLEANUP_CLOSE int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    memcpy(a.sun_path, places->daemon, sizeof a.sun_path);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
        return take_fd(&fd);
    const int sys = errno;
    snprintf(why, 256, "%s", strerror(sys));
    return -sys;
}

static void errand_do(const struct errand *x)
{
    struct dialer_answer a = {.sys = 0};
    const int64_t latest = mono_ns() + LONGEST_S * NS_PER_S;
    CLEANUP_CLOSE int fd = -1;
    if (x->q.target == DIALER_DAEMON)
        fd = daemon_connect(a.why);
    else if (x->q.target < places->n)
        fd = dial_host(&places->targets[x->q.target], x->q.until_ns < latest ? x->q.until_ns : latest, x->reply, a.why);
    else
        fd = -EPERM;
    a.sys = fd < 0 ? -fd : 0;
    descriptors_send(x->reply, &a, sizeof a, &fd, fd >= 0, MSG_DONTWAIT);
}

static void errand_free(struct errand *x)
{
    close(x->reply);
    free(x);
}

static void *errand_main(void *arg)
{
    errand_do(arg);
    errand_free(arg);
    pthread_mutex_lock(&lock);
    busy--;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void errand_start(const struct dialer_request *q, int *reply, const pthread_attr_t *how)
{
    struct errand *x = malloc(sizeof *x);
    pthread_t t;
    if (!x)
        return;
    *x = (struct errand){*q, take_fd(reply)};
    pthread_mutex_lock(&lock);
    while (busy >= AT_ONCE)
        pthread_cond_wait(&changed, &lock);
    busy++;
    pthread_mutex_unlock(&lock);
    const int rc = pthread_create(&t, how, errand_main, x);
    if (rc == 0)
        return;
    const struct dialer_answer a = {.sys = rc, .why = "no thread for a connection can be started"};
    descriptors_send(x->reply, &a, sizeof a, NULL, 0, MSG_DONTWAIT);
    errand_free(x);
    pthread_mutex_lock(&lock);
    busy--;
    pthread_mutex_unlock(&lock);
}

static void requests_serve(int channel)
{
    pthread_attr_t how;
    pthread_attr_init(&how);
    pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&how, STACK);
    for (;;) {
        struct dialer_request q;
        CLEANUP_CLOSE int reply = -1;
        poll(&(struct pollfd){.fd = channel, .events = POLLIN}, 1, -1);
        const ssize_t n = descriptors_receive(channel, &q, sizeof q, &reply, 1, NULL);
        if (n == -EAGAIN || n == -EINTR)
            continue;
        if (n <= 0)
            return; /* the mover has ended, or needs it no more */
        if (n == sizeof q && reply >= 0)
            errand_start(&q, &reply, &how);
    }
}

/* Nothing of the mover's remains open but its standard descriptors. */
static void descriptors_close(int channel)
{
    if (channel > 3)
        close_range(3, (unsigned)channel - 1, 0);
    close_range((unsigned)channel + 1, ~0u, 0);
}

/* The name of a program in its arguments becomes that of the dialer, and no password of a proxy remains in its
 * environment. */
static void traces_change(void)
{
    char *slash = strrchr(program_invocation_name, '/'), *name = slash ? slash + 1 : program_invocation_name;
    const size_t n = strlen(name), len = strlen(NAME);
    memset(name, 0, n);
    memcpy(name, NAME, n < len ? n : len);
    prctl(PR_SET_NAME, NAME, 0, 0, 0);
    for (char **v = environ; v && *v; v++) {
        char *value = strchr(*v, '=');
        if (value && value - *v > 6 && !strncasecmp(value - 6, "_proxy", 6))
            explicit_bzero(value + 1, strlen(value + 1));
    }
}

/* It ends with the mover, not with the signals that ask a mover to end: that still has to store what it has. */
static void signals_set(void)
{
    static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGXFSZ};
    struct sigaction a = {.sa_handler = SIG_IGN};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        sigaction(ignored[i], &a, NULL);
}

void dialer_run(int channel, pid_t parent, const struct dialer_places *p)
{
    struct err e = ERR_INIT;
    struct dialer_answer a = {.sys = 0};
    places = p;
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != parent)
        _exit(1);
    signals_set();
    descriptors_close(channel);
    traces_change();
    mallopt(M_ARENA_MAX, 1);
    if (lockdown_dialer(&e) < 0) {
        a.sys = e.sys ? e.sys : EPERM;
        snprintf(a.why, sizeof a.why, "%.255s", e.msg);
    }
    if (descriptors_send(channel, &a, sizeof a, NULL, 0, 0) < 0 || a.sys)
        _exit(1);
    requests_serve(channel);
    _exit(0);
}
