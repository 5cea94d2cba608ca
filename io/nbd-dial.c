/* SPDX-License-Identifier: GPL-2.0-or-later */
/* nbd-dial.c - connecting to an NBD server, and what it says of its exports */
#include "io/nbd-impl.h"

#include "base/cleanup.h"
#include "base/time.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define MIN_BLOCK_MAX 65536u /* as the protocol demands */
#define PAYLOAD ((uint32_t)1 << 20 << 4)
#define UNIT 4096u
#define POLL_MS 1000
#define NAME_POLL_MS 200

static int dial_error(const char *name, int sys, struct err *e)
{
    const bool absent = sys == ENOENT || sys == ENOTDIR;
    err_set(e,
            absent                          ? ERR_NOT_FOUND
            : sys == EACCES || sys == EPERM ? ERR_PERMISSION
                                            : ERR_SOURCE,
            sys, "cannot connect to the NBD server of %s", name);
    if (absent || sys == ECONNREFUSED)
        err_hint(e, "does the server run, and listen there?");
    return -sys;
}

static bool is_stopped(const _Atomic bool *stop)
{
    return stop && atomic_load(stop);
}

static int stopped(const char *name, struct err *e)
{
    return err_set(e, ERR_INTERRUPTED, ECANCELED, "interrupted while connecting to the NBD server of %s", name);
}

/* 0, or the error; the socket is non-blocking. */
static int connect_within(int fd, const struct sockaddr *a, socklen_t len, int64_t deadline, const _Atomic bool *stop)
{
    if (connect(fd, a, len) == 0)
        return 0;
    if (errno != EINPROGRESS && errno != EINTR)
        return errno;
    for (;;) {
        const int64_t left = (deadline - mono_ns()) / NS_PER_MS;
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        int sys = 0;
        socklen_t n = sizeof sys;
        if (left < 0 || is_stopped(stop))
            return left < 0 ? ETIMEDOUT : ECANCELED;
        if (poll(&p, 1, left < POLL_MS ? (int)left + 1 : POLL_MS) > 0)
            return getsockopt(fd, SOL_SOCKET, SO_ERROR, &sys, &n) < 0 ? errno : sys;
    }
}

static int dial_unix(const struct nbd_uri *u, int64_t deadline, const _Atomic bool *stop, int *fd)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    CLEANUP_CLOSE int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0)
        return errno;
    snprintf(a.sun_path, sizeof a.sun_path, "%s", u->socket);
    /* EAGAIN: its queue is full, as of a server that is stopped. */
    int sys;
    while ((sys = connect_within(s, (struct sockaddr *)&a, sizeof a, deadline, stop)) == EAGAIN &&
           mono_ns() < deadline && !is_stopped(stop))
        usleep(50000);
    if (sys == 0)
        *fd = take_fd(&s);
    return sys == EAGAIN ? ETIMEDOUT : sys;
}

/* A look-up of a name, which cannot be ended: its thread may outlive the one that asks. */
struct lookup {
    char host[sizeof((struct nbd_uri *)0)->host], port[sizeof((struct nbd_uri *)0)->port];
    pthread_mutex_t mu;
    pthread_cond_t cv;
    /* Under mu. */
    bool done, left; /* left: nobody waits for it */
    int rc, sys;
    struct addrinfo *found;
};

static void lookup_free(struct lookup *x)
{
    if (x->found)
        freeaddrinfo(x->found);
    pthread_cond_destroy(&x->cv);
    pthread_mutex_destroy(&x->mu);
    free(x);
}

static void *lookup_main(void *arg)
{
    struct lookup *x = arg;
    const struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *found = NULL;
    const int rc = getaddrinfo(x->host, x->port, &want, &found), sys = errno;
    pthread_mutex_lock(&x->mu);
    x->rc = rc;
    x->sys = sys;
    x->found = rc == 0 ? found : NULL;
    x->done = true;
    const bool left = x->left;
    pthread_cond_signal(&x->cv);
    pthread_mutex_unlock(&x->mu);
    if (left)
        lookup_free(x);
    return NULL;
}

/* As getaddrinfo(3); -ECANCELED if it was stopped, -errno if there is no thread. */
static int lookup(const struct nbd_uri *u, const _Atomic bool *stop, struct addrinfo **found)
{
    struct lookup *x = calloc(1, sizeof *x);
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t all, old;
    if (!x)
        return -ENOMEM;
    memcpy(x->host, u->host, sizeof x->host);
    memcpy(x->port, u->port, sizeof x->port);
    pthread_mutex_init(&x->mu, NULL);
    pthread_cond_init(&x->cv, NULL);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&thread, &detached, lookup_main, x);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&detached);
    if (rc != 0) {
        lookup_free(x);
        return -rc;
    }
    pthread_mutex_lock(&x->mu);
    while (!x->done && !is_stopped(stop)) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += NAME_POLL_MS * NS_PER_MS;
        if (until.tv_nsec >= NS_PER_S) {
            until.tv_sec++;
            until.tv_nsec -= NS_PER_S;
        }
        pthread_cond_timedwait(&x->cv, &x->mu, &until);
    }
    x->left = true;
    const bool done = x->done;
    const int sys = x->sys;
    rc = done ? x->rc : -ECANCELED;
    *found = done ? take_ptr(&x->found) : NULL;
    pthread_mutex_unlock(&x->mu);
    if (done)
        lookup_free(x);
    errno = sys;
    return rc;
}

static int dial_tcp(const struct nbd_uri *u, const char *name, int64_t deadline, const _Atomic bool *stop, int *fd,
                    struct err *e)
{
    struct addrinfo *found = NULL;
    int sys = ENOENT;
    const int rc = lookup(u, stop, &found);
    if (rc == -ECANCELED)
        return stopped(name, e);
    if (rc == -ENOMEM || rc == -EAGAIN)
        return err_set(e, ERR_GENERIC, -rc, "cannot start a thread for %s", name);
    if (rc != 0) {
        err_plain(e, ERR_SOURCE, EHOSTUNREACH, "cannot find the host of %s: %s", name,
                  rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
        return -EHOSTUNREACH;
    }
    for (const struct addrinfo *a = found; a && *fd < 0; a = a->ai_next) {
        CLEANUP_CLOSE int s = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        const int one = 1;
        sys = s < 0 ? errno : connect_within(s, a->ai_addr, a->ai_addrlen, deadline, stop);
        if (sys)
            continue;
        setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        *fd = take_fd(&s);
    }
    freeaddrinfo(found);
    return *fd >= 0 ? 0 : sys == ECANCELED ? stopped(name, e) : dial_error(name, sys, e);
}

int nbd_dial(const struct nbd_uri *u, int *fd, const _Atomic bool *stop, struct err *e)
{
    const int64_t deadline = mono_ns() + NBD_HANDSHAKE_S * NS_PER_S;
    char name[NBD_URI_MAX];
    nbd_uri_text(u, name);
    *fd = -1;
    if (!u->socket[0])
        return dial_tcp(u, name, deadline, stop, fd, e);
    const int sys = dial_unix(u, deadline, stop, fd);
    return sys == ECANCELED || (sys == ETIMEDOUT && is_stopped(stop)) ? stopped(name, e)
           : sys                                                      ? dial_error(name, sys, e)
                                                                      : 0;
}

/* ---- negotiation ---- */

int nbd_drive(const struct nbd_lib *lib, struct nbd_handle *h, int wake, int timeout_ms)
{
    const unsigned want = lib->aio_get_direction(h);
    struct pollfd p[] = {
        {.fd = lib->aio_get_fd(h),
         .events = (short)((want & LIBNBD_AIO_DIRECTION_READ ? POLLIN : 0) |
                           (want & LIBNBD_AIO_DIRECTION_WRITE ? POLLOUT : 0))},
        {.fd = wake, .events = POLLIN},
    };
    if (p[0].fd < 0)
        return -1;
    if (poll(p, 2, timeout_ms) < 0 && errno != EINTR)
        return -1;
    int rc = 0;
    if ((p[0].revents & (POLLIN | POLLHUP | POLLERR)) && (want & LIBNBD_AIO_DIRECTION_READ))
        rc = lib->aio_notify_read(h);
    else if ((p[0].revents & (POLLOUT | POLLHUP | POLLERR)) && (want & LIBNBD_AIO_DIRECTION_WRITE))
        rc = lib->aio_notify_write(h);
    return rc < 0 || lib->aio_is_dead(h) || lib->aio_is_closed(h) ? -1 : 0;
}

static int handshake_error(const struct nbd_lib *lib, const char *name, struct err *e)
{
    const int sys = lib->get_errno();
    const char *why = lib->get_error();
    char text[512];
    snprintf(text, sizeof text, "%s", why ? why : "the connection was closed");
    if (sys == ENOENT)
        return err_plain(e, ERR_NOT_FOUND, ENOENT, "the NBD server has no export %s: %s", name, text);
    return err_plain(e, ERR_SOURCE, EPROTO, "the NBD server of %s does not open it: %s", name, text);
}

int nbd_drive_until(const struct nbd_lib *lib, struct nbd_handle *h, bool (*done)(void *), void *arg,
                    const _Atomic bool *stop, const char *name, struct err *e)
{
    const int64_t deadline = mono_ns() + NBD_HANDSHAKE_S * NS_PER_S;
    while (!done(arg)) {
        if (nbd_drive(lib, h, -1, POLL_MS) < 0 && !done(arg))
            return handshake_error(lib, name, e);
        if (is_stopped(stop))
            return stopped(name, e);
        if (mono_ns() > deadline)
            return err_plain(e, ERR_SOURCE, ETIMEDOUT, "the NBD server of %s has not answered for %d s", name,
                             NBD_HANDSHAKE_S);
    }
    return 0;
}

struct negotiation {
    const struct nbd_lib *lib;
    struct nbd_handle *h;
};

static bool is_negotiated(void *arg)
{
    const struct negotiation *n = arg;
    return n->lib->aio_is_ready(n->h) > 0 || n->lib->aio_is_negotiating(n->h) > 0;
}

int nbd_handshake(const struct nbd_lib *lib, struct nbd_handle **ret, int fd, const struct nbd_uri *u,
                  const char *context, const _Atomic bool *stop, const char *name, struct err *e)
{
    struct nbd_handle *h = lib->create();
    if (!h) {
        close(fd);
        return err_nomem(e);
    }
    int rc = 0;
    const bool opt = !context;
    const char *export = opt ? "" : u->export;
    if (lib->set_export_name(h, export) < 0 || (opt && lib->set_opt_mode(h, true) < 0) ||
        lib->set_pread_initialize(h, false) < 0 ||
        (u->no_extents && !opt && strcmp(context, LIBNBD_CONTEXT_BASE_ALLOCATION) == 0
             ? lib->set_request_structured_replies(h, false) < 0
             : !opt && lib->add_meta_context(h, context) < 0)) {
        close(fd);
        rc = handshake_error(lib, name, e);
    } else if (lib->aio_connect_socket(h, fd) < 0) { /* has taken the descriptor */
        rc = handshake_error(lib, name, e);
    }
    struct negotiation n = {lib, h};
    if (rc == 0)
        rc = nbd_drive_until(lib, h, is_negotiated, &n, stop, name, e);
    if (rc == 0 && !opt && lib->aio_is_ready(h) <= 0)
        rc = err_plain(e, ERR_SOURCE, EPROTO, "the NBD server of %s has not opened it", name);
    if (rc < 0)
        lib->close(h);
    else
        *ret = h;
    return rc;
}

int nbd_facts_of(const struct nbd_lib *lib, struct nbd_handle *h, const char *name, struct nbd_facts *ret,
                 struct err *e)
{
    const int64_t size = lib->get_size(h);
    int64_t least = lib->get_block_size(h, LIBNBD_SIZE_MINIMUM), most = lib->get_block_size(h, LIBNBD_SIZE_MAXIMUM);
    if (size < 0)
        return handshake_error(lib, name, e);
    if (least <= 0)
        least = 1;
    if (most <= 0 || most > PAYLOAD)
        most = PAYLOAD;
    const uint32_t unit = least > UNIT ? (uint32_t)least : UNIT;
    if ((least & (least - 1)) != 0 || least > MIN_BLOCK_MAX || size % least != 0 || most < unit)
        return err_plain(e, ERR_SOURCE, EPROTO,
                         "the NBD server of %s contradicts itself: %" PRId64 " bytes in blocks of %" PRId64
                         ", at most %" PRId64 " bytes per request",
                         name, size, least, most);
    *ret = (struct nbd_facts){
        .size = (uint64_t)size,
        .min_block = (uint32_t)least,
        .max_block = (uint32_t)most - (uint32_t)most % unit,
        .read_only = lib->is_read_only(h) != 0,
        .allocation = lib->can_meta_context(h, LIBNBD_CONTEXT_BASE_ALLOCATION) > 0,
        .flush = lib->can_flush(h) > 0,
        .zero = lib->can_zero(h) > 0,
    };
    return 0;
}

/* ---- questions without opening an export ---- */

struct listing {
    char **name;
    size_t n, room;
    bool ended;
    int error; /* of the server; -ENOMEM */
};

#define EXPORTS_MAX 100000

static int list_one(void *arg, const char *name, const char *description)
{
    struct listing *x = arg;
    (void)description;
    if (x->n == x->room) {
        const size_t room = x->room ? 2 * x->room : 16;
        char **more = x->n < EXPORTS_MAX ? reallocarray(x->name, room, sizeof *more) : NULL;
        if (!more)
            return x->error = -ENOMEM;
        x->name = more;
        x->room = room;
    }
    if (!(x->name[x->n] = strdup(name)))
        return x->error = -ENOMEM;
    x->n++;
    return 0;
}

static int question_ended(void *arg, int *error)
{
    struct listing *x = arg;
    x->ended = true;
    if (*error && !x->error)
        x->error = *error;
    return 1;
}

static bool has_ended(void *arg)
{
    return ((struct listing *)arg)->ended;
}

static int open_question(const struct nbd_lib **lib, struct nbd_handle **h, const struct nbd_uri *u, const char *name,
                         struct err *e)
{
    int fd;
    if (!(*lib = nbd_lib(e)))
        return -ENOTSUP;
    int rc = nbd_dial(u, &fd, NULL, e);
    return rc < 0 ? rc : nbd_handshake(*lib, h, fd, u, NULL, NULL, name, e);
}

/* Servers log a connection that ends without a word. */
static void close_question(const struct nbd_lib *lib, struct nbd_handle *h)
{
    if (lib->aio_is_negotiating(h) > 0)
        lib->aio_opt_abort(h);
    lib->close(h);
}

int nbd_each_export(const struct nbd_uri *u, nbd_export_fn *fn, void *arg, struct err *e)
{
    const struct nbd_lib *lib;
    struct nbd_handle *h = NULL;
    struct listing x = {.name = NULL};
    char name[NBD_URI_MAX];
    nbd_uri_text(u, name);
    int rc = open_question(&lib, &h, u, name, e);
    if (rc < 0)
        return rc;
    if (lib->aio_opt_list(h, (nbd_list_callback){.callback = list_one, .user_data = &x},
                          (nbd_completion_callback){.callback = question_ended, .user_data = &x}) < 0)
        rc = handshake_error(lib, name, e);
    if (rc == 0)
        rc = nbd_drive_until(lib, h, has_ended, &x, NULL, name, e);
    close_question(lib, h);
    if (rc == 0 && x.error)
        rc = x.error == -ENOMEM
                 ? err_nomem(e)
                 : err_plain(e, ERR_SOURCE, x.error, "the NBD server of %s does not list its exports: %s", name,
                             strerror(x.error));
    for (size_t i = 0; i < x.n; i++) {
        if (rc == 0)
            rc = fn(x.name[i], arg);
        free(x.name[i]);
    }
    free(x.name);
    return rc;
}

int nbd_export_facts(const struct nbd_uri *u, struct nbd_facts *ret, struct err *e)
{
    const struct nbd_lib *lib;
    struct nbd_handle *h = NULL;
    struct listing x = {.name = NULL};
    char name[NBD_URI_MAX];
    nbd_uri_text(u, name);
    int rc = open_question(&lib, &h, u, name, e);
    if (rc < 0)
        return rc;
    /* A server that is too old for questions has opened its only export already. */
    if (lib->aio_is_negotiating(h) > 0 &&
        (lib->set_export_name(h, u->export) < 0 ||
         lib->aio_opt_info(h, (nbd_completion_callback){.callback = question_ended, .user_data = &x}) < 0))
        rc = handshake_error(lib, name, e);
    else if (lib->aio_is_negotiating(h) > 0 || !x.ended)
        rc = lib->aio_is_ready(h) > 0 ? 0 : nbd_drive_until(lib, h, has_ended, &x, NULL, name, e);
    if (rc == 0 && x.error == ENOENT)
        rc = err_plain(e, ERR_NOT_FOUND, ENOENT, "the NBD server has no export %s", name);
    else if (rc == 0 && x.error)
        rc = err_plain(e, ERR_SOURCE, x.error, "the NBD server says nothing about %s: %s", name, strerror(x.error));
    if (rc == 0)
        rc = nbd_facts_of(lib, h, name, ret, e);
    close_question(lib, h);
    return rc;
}
