/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/agent/link.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "proc/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define QUEUE_MAX 128
#define DIAL_FIRST_MS 100u
#define DIAL_MAX_MS 5000u
#define DIAL_TRIES 20 /* at the start: about five seconds */
#define DIAL_STEP_MS 250
#define RENEW_AGAIN_S 10 /* what was sent to a daemon that ended is sent again */
#define LOOK_MS 100

struct link {
    char socket[108], operation[OPERATION_MAX + 1];
    int fd, wake;
    int (*connect)(void *); /* NULL: by itself */
    void *connect_arg;
    bool started; /* the thread runs */
    pthread_t thread;
    struct mover_cancel *cancel;
    struct mover_progress *progress;
    uint64_t began_ns;
    uint8_t *buf; /* WIRE_MAX bytes, of whoever receives */

    pthread_mutex_t mu;
    /* Under mu. */
    json_int_t seq;
    struct {
        char type[16];
        char *text;
        int fd; /* sent with it, -1: none */
    } queue[QUEUE_MAX];
    unsigned head, len;
    uint64_t dropped;
    bool finishing;
    int64_t finish_ns;  /* monotonic */
    bool of_copy;       /* what is renewed */
    bool answered;      /* RENEW was */
    int credentials;    /* the answer, -1: none */
    int64_t renewed_ns; /* when it was sent */

    pthread_mutex_t renewing; /* one store at a time */
};

static void jsonp(json_t **j)
{
    json_decref(*j);
}

/* ---- the socket ---- */

static int socket_connect(const struct link *l)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    memcpy(sa.sun_path, l->socket, sizeof sa.sun_path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    return fd;
}

/* 0, -EAGAIN, or the error that broke the connection. */
static int message_send_fd(int fd, const char *text, int with)
{
    ssize_t n = descriptors_send(fd, text, strlen(text), &with, with >= 0, MSG_DONTWAIT);
    if (n >= 0)
        return 0;
    return n == -ENOBUFS ? -EAGAIN : (int)n;
}

static int message_send(int fd, const char *text)
{
    return message_send_fd(fd, text, -1);
}

/* Text of a message; NULL if there is no memory or it is too long. */
static char *message_text(struct link *l, const char *type, json_t *members)
{
    json_t *m CLEANUP(jsonp) = members ? members : json_object();
    if (!m)
        return NULL;
    json_object_set_new(m, "type", json_string(type));
    json_object_set_new(m, "operation", json_string(l->operation));
    pthread_mutex_lock(&l->mu);
    json_object_set_new(m, "seq", json_integer(++l->seq));
    pthread_mutex_unlock(&l->mu);
    char *text = json_dumps(m, JSON_COMPACT);
    if (text && strlen(text) > WIRE_MAX) {
        free(text);
        return NULL;
    }
    return text;
}

static char *hello_send(struct link *l, bool resumed)
{
    return message_text(l, WIRE_HELLO,
                        json_pack("{s:i, s:i, s:b, s:s}", "protocol", MOVER_PROTOCOL, "pid", (int)getpid(), "resumed",
                                  (int)resumed, "version", SNAPFERRY_VERSION));
}

int link_dial(struct link **ret, const char *socket, const char *operation, struct mover_cancel *cancel, struct err *e)
{
    struct link *l = calloc(1, sizeof *l);
    if (!l || !(l->buf = malloc(WIRE_MAX))) {
        free(l);
        return err_nomem(e);
    }
    l->fd = l->credentials = -1;
    pthread_mutex_init(&l->mu, NULL);
    pthread_mutex_init(&l->renewing, NULL);
    l->cancel = cancel;
    l->began_ns = mono_ns();
    l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = 0;
    if (l->wake < 0)
        rc = err_set(e, ERR_GENERIC, errno, "cannot make an event descriptor");
    else if (strlen(socket) >= sizeof l->socket || strlen(operation) > OPERATION_MAX)
        rc = err_set(e, ERR_USAGE, ENAMETOOLONG, "the socket's path or the operation's name is too long");
    if (rc == 0) {
        snprintf(l->socket, sizeof l->socket, "%s", socket);
        snprintf(l->operation, sizeof l->operation, "%s", operation);
        for (int i = 0; i < DIAL_TRIES && l->fd < 0 && !atomic_load(&cancel->requested); i++) {
            if (i)
                poll(NULL, 0, DIAL_STEP_MS);
            l->fd = socket_connect(l);
        }
        if (l->fd < 0)
            rc = err_set(e, ERR_GENERIC, -l->fd, "cannot reach the daemon at %s", socket);
    }
    char *text CLEANUP_FREE = rc == 0 ? hello_send(l, false) : NULL;
    if (rc == 0 && (!text || message_send(l->fd, text) < 0))
        rc = err_set(e, ERR_GENERIC, EPIPE, "the daemon at %s does not listen", socket);
    if (rc < 0)
        link_free(l);
    else
        *ret = l;
    return rc;
}

void link_free(struct link *l)
{
    if (!l)
        return;
    if (l->started)
        link_finish(l, 0);
    closep(&l->fd);
    closep(&l->wake);
    closep(&l->credentials);
    for (; l->len; l->len--, l->head++) {
        free(l->queue[l->head % QUEUE_MAX].text);
        closep(&l->queue[l->head % QUEUE_MAX].fd);
    }
    pthread_mutex_destroy(&l->mu);
    pthread_mutex_destroy(&l->renewing);
    free(l->buf);
    free(l);
}

/* ---- step by step ---- */

int link_send(struct link *l, const char *type, json_t *members, struct err *e)
{
    char *text CLEANUP_FREE = message_text(l, type, members);
    if (!text)
        return err_nomem(e);
    int rc = message_send(l->fd, text);
    for (int i = 0; rc == -EAGAIN && i < 10; i++) {
        poll(&(struct pollfd){.fd = l->fd, .events = POLLOUT}, 1, 100);
        rc = message_send(l->fd, text);
    }
    return rc < 0 ? err_set(e, ERR_GENERIC, -rc, "cannot send %s to the daemon", type) : 0;
}

/* A message that is available; -EAGAIN if none is, -EPIPE at the end, -EBADMSG if malformed. */
static int message_receive(struct link *l, json_t **msg, int fds[WIRE_FDS_MAX])
{
    int flags;
    ssize_t n = descriptors_receive(l->fd, l->buf, WIRE_MAX, fds, WIRE_FDS_MAX, &flags);
    if (n < 0)
        return n == -EAGAIN ? -EAGAIN : -EPIPE;
    if (n == 0)
        return -EPIPE;
    if (flags & (MSG_TRUNC | MSG_CTRUNC))
        return -EBADMSG;
    *msg = json_loadb((char *)l->buf, (size_t)n, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_string(json_object_get(*msg, "type")))
        return 0;
    json_decref(*msg);
    *msg = NULL;
    return -EBADMSG;
}

int link_receive(struct link *l, unsigned seconds, json_t **msg, int fds[WIRE_FDS_MAX], struct err *e)
{
    const int64_t end = mono_ns() + seconds * NS_PER_S;
    for (int i = 0; i < WIRE_FDS_MAX; i++)
        fds[i] = -1;
    for (;;) {
        if (atomic_load(&l->cancel->requested))
            return err_set(e, ERR_INTERRUPTED, ECANCELED, "terminated by a signal before the start");
        const int64_t t = mono_ns();
        if (t >= end)
            return err_set(e, ERR_GENERIC, ETIMEDOUT, "no message from the daemon for %u s", seconds);
        /* In steps, so that a signal that arrived before poll() is noticed. */
        const int64_t ms = (end - t) / NS_PER_MS + 1;
        poll(&(struct pollfd){.fd = l->fd, .events = POLLIN}, 1, ms < 200 ? (int)ms : 200);
        int rc = message_receive(l, msg, fds);
        if (rc == 0)
            return 0;
        for (int i = 0; i < WIRE_FDS_MAX; i++) {
            closep(&fds[i]);
            fds[i] = -1;
        }
        if (rc == -EPIPE)
            return err_set(e, ERR_GENERIC, EPIPE, "the daemon closed the connection");
        if (rc == -EBADMSG)
            return err_set(e, ERR_GENERIC, EBADMSG, "malformed message from the daemon");
    }
}

void link_connect_by(struct link *l, int (*make)(void *), void *arg)
{
    l->connect = make;
    l->connect_arg = arg;
}

/* ---- the thread ---- */

void link_post(struct link *l, const char *type, json_t *members)
{
    link_post_fd(l, type, members, -1);
}

void link_post_fd(struct link *l, const char *type, json_t *members, int fd)
{
    char *text = message_text(l, type, members);
    if (!text) {
        closep(&fd);
        return;
    }
    pthread_mutex_lock(&l->mu);
    if (l->len == QUEUE_MAX) {
        /* Only LOG occurs in such numbers: the oldest is dropped. */
        unsigned i = 0;
        while (i + 1 < l->len && strcmp(l->queue[(l->head + i) % QUEUE_MAX].type, WIRE_LOG) != 0)
            i++;
        free(l->queue[(l->head + i) % QUEUE_MAX].text);
        closep(&l->queue[(l->head + i) % QUEUE_MAX].fd);
        for (; i + 1 < l->len; i++)
            l->queue[(l->head + i) % QUEUE_MAX] = l->queue[(l->head + i + 1) % QUEUE_MAX];
        l->len--;
        l->dropped++;
    }
    unsigned at = (l->head + l->len++) % QUEUE_MAX;
    snprintf(l->queue[at].type, sizeof l->queue[at].type, "%s", type);
    l->queue[at].text = text;
    l->queue[at].fd = fd;
    pthread_mutex_unlock(&l->mu);
    eventfd_write(l->wake, 1);
}

static const char *phase_name(int phase)
{
    static const char *const names[] = {WIRE_PHASES}; /* in the order of enum mover_phase */
    _Static_assert(sizeof names / sizeof *names == PHASE_DONE + 1, "each phase has a name");
    return phase >= 0 && phase <= PHASE_DONE ? names[phase] : names[PHASE_OPENING];
}

static json_t *progress_json(struct link *l)
{
    struct mover_progress *p = l->progress;
    json_t *j = json_pack("{s:s, s:f}", "phase", phase_name(mover_progress_phase(p)), "seconds",
                          (double)(mono_ns() - l->began_ns) * 1e-9);
#define PUT_COUNTER(name) json_object_set_new(j, #name, json_integer((json_int_t)atomic_load(&p->name)));
    WIRE_COUNTERS(PUT_COUNTER)
#undef PUT_COUNTER
    json_object_set_new(j, "done", json_integer((json_int_t)mover_progress_done(p)));
    json_object_set_new(j, WIRE_REQUESTS, json_integer((json_int_t)atomic_load(&p->requests)));
    return j;
}

/* False: the connection is broken. */
static bool send_queue(struct link *l)
{
    int rc = 0;
    pthread_mutex_lock(&l->mu);
    while (l->len && rc == 0) {
        char *text = l->queue[l->head].text;
        rc = message_send_fd(l->fd, text, l->queue[l->head].fd);
        if (rc == 0 || rc == -EMSGSIZE) {
            rc = 0;
            free(text);
            closep(&l->queue[l->head].fd);
            l->head = (l->head + 1) % QUEUE_MAX;
            l->len--;
        }
    }
    pthread_mutex_unlock(&l->mu);
    return rc == 0 || rc == -EAGAIN;
}

/* A late answer about the other store is none to this question. */
static void credentials_take(struct link *l, bool copy, int *fd)
{
    pthread_mutex_lock(&l->mu);
    if (copy == l->of_copy) {
        closep(&l->credentials);
        l->credentials = take_fd(fd);
        l->answered = true;
    }
    pthread_mutex_unlock(&l->mu);
}

static int wait_renewed(struct link *l, bool copy, int64_t until)
{
    int64_t again = l->renewed_ns ? l->renewed_ns + WIRE_RENEW_S * NS_PER_S : 0;
    for (;;) {
        const int64_t now = mono_ns();
        if (atomic_load(&l->cancel->requested))
            return -ECANCELED;
        if (now >= until)
            return -ETIMEDOUT;
        if (now >= again) {
            l->renewed_ns = now;
            again = now + RENEW_AGAIN_S * NS_PER_S;
            link_post(l, WIRE_RENEW, copy ? json_pack("{s:b}", WIRE_OF_COPY, 1) : NULL);
        }
        pthread_mutex_lock(&l->mu);
        const bool answered = l->answered;
        const int fd = answered ? take_fd(&l->credentials) : -1;
        pthread_mutex_unlock(&l->mu);
        if (answered)
            return fd >= 0 ? fd : -ENOENT;
        poll(NULL, 0, LOOK_MS);
    }
}

int link_renew(struct link *l, bool copy, unsigned seconds)
{
    pthread_mutex_lock(&l->renewing);
    pthread_mutex_lock(&l->mu);
    l->of_copy = copy;
    l->answered = false;
    closep(&l->credentials);
    l->credentials = -1;
    pthread_mutex_unlock(&l->mu);
    const int rc = wait_renewed(l, copy, mono_ns() + seconds * NS_PER_S);
    pthread_mutex_unlock(&l->renewing);
    return rc;
}

/* A rate of LIMITS as throttle.changed has it: in bytes per second, 0: there is none any more. */
static bool rate_read(const json_t *msg, const char *member, uint64_t *ret)
{
    const json_t *j = json_object_get(msg, member);
    const json_int_t n = json_integer_value(j);
    if (!json_is_integer(j) || n < 0)
        return false;
    *ret = n == 0 ? THROTTLE_NONE : (uint64_t)n < THROTTLE_MIN ? THROTTLE_MIN : (uint64_t)n;
    return true;
}

/* Both or neither. */
static void limits_take(struct mover_cancel *c, const json_t *msg)
{
    uint64_t read, write;
    if (!rate_read(msg, "read_limit", &read) || !rate_read(msg, "write_limit", &write)) {
        log_warning(
            "malformed message LIMITS from the daemon ignored: the limits of reads and writes stay as they are");
        return;
    }
    atomic_store(&c->read_limit, read);
    atomic_store(&c->write_limit, write);
}

/* False: the connection is broken. */
static bool message_handle(struct link *l)
{
    for (;;) {
        json_t *msg CLEANUP(jsonp) = NULL;
        int fds[WIRE_FDS_MAX] = WIRE_NO_FDS;
        int rc = message_receive(l, &msg, fds);
        const char *type = rc < 0 ? "" : json_string_value(json_object_get(msg, "type"));
        if (!strcmp(type, WIRE_CANCEL))
            atomic_store(&l->cancel->requested, true);
        else if (!strcmp(type, WIRE_CREDENTIALS))
            credentials_take(l, json_is_true(json_object_get(msg, WIRE_OF_COPY)), &fds[0]);
        else if (!strcmp(type, WIRE_LIMITS))
            limits_take(l->cancel, msg);
        else if (rc == -EBADMSG)
            log_warning("malformed message from the daemon: connecting to it again");
        for (int i = 0; i < WIRE_FDS_MAX; i++)
            closep(&fds[i]);
        if (rc < 0)
            return rc == -EAGAIN;
    }
}

static bool link_reconnect(struct link *l)
{
    int fd = l->connect ? l->connect(l->connect_arg) : socket_connect(l);
    if (fd < 0)
        return false;
    char *text CLEANUP_FREE = hello_send(l, true);
    if (!text || message_send(fd, text) < 0) {
        close(fd);
        return false;
    }
    pthread_mutex_lock(&l->mu);
    l->fd = fd;
    pthread_mutex_unlock(&l->mu);
    return true;
}

struct rhythm {
    int64_t progress_ns, dial_ns;
    unsigned backoff_ms;
    bool told_cancel;
};

static void link_disconnect(struct link *l, struct rhythm *t)
{
    close(l->fd);
    pthread_mutex_lock(&l->mu);
    l->fd = -1;
    pthread_mutex_unlock(&l->mu);
    t->backoff_ms = DIAL_FIRST_MS;
    t->dial_ns = mono_ns() + t->backoff_ms * NS_PER_MS;
}

static void send_progress(struct link *l, struct rhythm *t)
{
    char *text CLEANUP_FREE = message_text(l, WIRE_PROGRESS, progress_json(l));
    t->progress_ns = mono_ns() + NS_PER_S;
    /* Only the newest value counts: one that does not fit is not kept. */
    if (text && message_send(l->fd, text) < 0)
        return;
}

static int wait_ms(const struct link *l, const struct rhythm *t, int64_t finish_ns)
{
    int64_t now = mono_ns(), at = l->fd >= 0 ? t->progress_ns : t->dial_ns;
    if (finish_ns && finish_ns < at)
        at = finish_ns;
    const int64_t ms = at > now ? (at - now) / NS_PER_MS + 1 : 0;
    return ms > 500 ? 500 : (int)ms; /* a cancel by signal is reported within half a second */
}

static void *link_main(void *arg)
{
    struct link *l = arg;
    struct rhythm t = {0};
    for (;;) {
        pthread_mutex_lock(&l->mu);
        const bool finishing = l->finishing, idle = l->len == 0;
        const int64_t finish_ns = l->finish_ns;
        pthread_mutex_unlock(&l->mu);
        if (finishing && (idle || mono_ns() >= finish_ns))
            return NULL;
        struct pollfd p[2] = {{.fd = l->wake, .events = POLLIN}, {.fd = l->fd, .events = POLLIN}};
        if (!idle)
            p[1].events |= POLLOUT;
        poll(p, 2, wait_ms(l, &t, finishing ? finish_ns : 0));
        eventfd_t n;
        eventfd_read(l->wake, &n);
        if (l->fd < 0 && mono_ns() >= t.dial_ns && !link_reconnect(l)) {
            t.backoff_ms = t.backoff_ms * 2 > DIAL_MAX_MS ? DIAL_MAX_MS : t.backoff_ms * 2;
            t.dial_ns = mono_ns() + t.backoff_ms * NS_PER_MS;
        }
        if (l->fd < 0)
            continue;
        if (atomic_load(&l->cancel->requested) && !t.told_cancel) {
            t.told_cancel = true;
            link_post(l, WIRE_CANCELLING, NULL);
        }
        bool ok = message_handle(l) && send_queue(l);
        if (ok && mono_ns() >= t.progress_ns)
            send_progress(l, &t);
        if (!ok)
            link_disconnect(l, &t);
    }
}

int link_detach(struct link *l, struct mover_progress *progress, struct err *e)
{
    l->progress = progress;
    int rc = pthread_create(&l->thread, NULL, link_main, l);
    if (rc)
        return err_set(e, ERR_GENERIC, rc, "cannot start the thread for the connection to the daemon");
    l->started = true;
    return 0;
}

void link_finish(struct link *l, unsigned ms)
{
    if (!l->started)
        return;
    pthread_mutex_lock(&l->mu);
    l->finishing = true;
    l->finish_ns = mono_ns() + ms * NS_PER_MS;
    pthread_mutex_unlock(&l->mu);
    eventfd_write(l->wake, 1);
    pthread_join(l->thread, NULL);
    l->started = false;
}
