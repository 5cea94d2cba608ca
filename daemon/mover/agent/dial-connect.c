/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/agent/dial-connect.h"

#include "base/cleanup.h"
#include "base/time.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define AT_ONCE 16
#define NEXT_NS (NS_PER_S / 4)

struct race {
    struct pollfd p[1 + AT_ONCE]; /* the first: whether it is still wanted */
    unsigned n;
    int sys; /* of the first that failed, rather of one that was on its way */
};

/* An address for which this machine has no way, often the one of IPv6, says least about why none was reached. */
static bool is_of_here(int sys)
{
    return sys == ENETUNREACH || sys == EADDRNOTAVAIL || sys == EAFNOSUPPORT;
}

static void race_failed(struct race *r, int sys)
{
    if (!r->sys || (is_of_here(r->sys) && !is_of_here(sys)))
        r->sys = sys;
}

/* A socket that is connected at once, or -1: it is on its way, or has failed. */
static int race_enter(struct race *r, const struct addrinfo *a)
{
    CLEANUP_CLOSE int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0)
        return take_fd(&fd);
    if (fd < 0 || errno != EINPROGRESS)
        race_failed(r, errno);
    else
        r->p[1 + r->n++] = (struct pollfd){.fd = take_fd(&fd), .events = POLLOUT};
    return -1;
}

/* The one that is connected, or -1. */
static int race_look(struct race *r, bool *failed)
{
    for (unsigned i = 1; i <= r->n;) {
        int sys = 0;
        socklen_t len = sizeof sys;
        if (!r->p[i].revents) {
            i++;
            continue;
        }
        const int fd = r->p[i].fd;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &sys, &len) < 0)
            sys = errno;
        r->p[i] = r->p[r->n--];
        if (sys == 0)
            return fd;
        close(fd);
        race_failed(r, sys);
        *failed = true;
    }
    return -1;
}

static int race_run(struct race *r, const struct addrinfo *next, int64_t until_ns)
{
    for (int64_t next_ns = 0;;) {
        const int64_t now = mono_ns();
        bool failed = false;
        int fd;
        if (now >= until_ns)
            return -ETIMEDOUT;
        if (next && r->n < AT_ONCE && now >= next_ns) {
            const unsigned before = r->n;
            if ((fd = race_enter(r, next)) >= 0)
                return fd;
            next = next->ai_next;
            next_ns = r->n > before ? now + NEXT_NS : now;
            continue;
        }
        if (r->n == 0 && !next)
            return r->sys ? -r->sys : -EADDRNOTAVAIL;
        const int64_t at = next && r->n < AT_ONCE && next_ns < until_ns ? next_ns : until_ns;
        const int64_t ms = (at - now) / NS_PER_MS + 1;
        if (poll(r->p, 1 + r->n, ms < 1000 ? (int)ms : 1000) <= 0)
            continue;
        if (r->p[0].revents)
            return -ECANCELED;
        if ((fd = race_look(r, &failed)) >= 0)
            return fd;
        if (failed)
            next_ns = 0;
    }
}

int dial_addresses(const struct addrinfo *list, const struct s3_target *to, int64_t until_ns, int wanted, char why[256])
{
    struct race r = {.p = {{.fd = wanted}}};
    const int fd = race_run(&r, list, until_ns);
    for (unsigned i = 1; i <= r.n; i++)
        close(r.p[i].fd);
    if (fd < 0)
        snprintf(why, 256, "Failed to connect to %.180s port %u: %s", to->host, to->port, strerror(-fd));
    return fd;
}

int dial_host(const struct s3_target *to, int64_t until_ns, int wanted, char why[256])
{
    const struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    char port[8];
    snprintf(port, sizeof port, "%u", to->port);
    const int rc = getaddrinfo(to->host, port, &want, &list), sys = errno;
    if (rc != 0) {
        snprintf(why, 256, "Could not resolve host: %.180s (%s)", to->host,
                 rc == EAI_SYSTEM ? strerror(sys) : gai_strerror(rc));
        return rc == EAI_MEMORY ? -ENOMEM : -ENOENT;
    }
    const int fd = dial_addresses(list, to, until_ns, wanted, why);
    freeaddrinfo(list);
    return fd;
}
