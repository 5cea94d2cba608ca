/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * link.c - the sockets that movers connect to
 *
 * One listening socket for each user that movers run as, mode 0600 and owned by that user. The peer is identified by
 * its process id, or as the child of that process: a mover whose repository is in S3 cannot connect, and has its
 * dialer, the only child that a mover can have, connect again for it (agent/dialer.h). A connection of any other
 * process is closed immediately. Messages are limited in size and rate.
 */
#include "daemon/movers/builtin-impl.h"

#include "base/json-text.h"
#include "base/cleanup.h"
#include "base/time.h"
#include "proc/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BATCH 32 /* messages of one mover before others are served */
#define BATCH_BYTES (64u << 10)
#define MESSAGES_PER_S 400 /* a higher rate is a flood */
#define BYTES_PER_S (1u << 20)
#define DRAIN_MAX 4096 /* the capacity of a socket's buffer */
#define VIOLATIONS_MAX 3
#define ACCEPT_BATCH 16
#define DIALS_MAX 100 /* in ten seconds; a mover waits between attempts */

struct listener {
    struct listener *next;
    struct builtin_movers *owner;
    uid_t uid;
    int fd;
    char path[108];
    sd_event_source *source;
};

struct conn {
    struct mover *mover;
    int fd;
    sd_event_source *source;
    bool greeted;
    int64_t window_ns;
    unsigned in_window, bytes_in_window;
};

/* ---- listening ---- */

static int on_connect(sd_event_source *s, int fd, uint32_t events, void *arg);

static int listen_at(struct listener *n, struct err *e)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    memcpy(sa.sun_path, n->path, sizeof sa.sun_path);
    n->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (n->fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot create a socket for movers");
    unlink(n->path);
    mode_t old = umask(0177);
    int rc = bind(n->fd, (struct sockaddr *)&sa, sizeof sa) < 0 ? -errno : 0;
    umask(old);
    if (rc == 0 && n->uid != geteuid() && chown(n->path, n->uid, (gid_t)-1) < 0)
        rc = -errno;
    if (rc == 0 && listen(n->fd, 64) < 0)
        rc = -errno;
    if (rc == 0)
        rc = sd_event_add_io(n->owner->loop, &n->source, n->fd, EPOLLIN, on_connect, n);
    return rc < 0 ? err_set(e, ERR_GENERIC, -rc, "cannot listen for movers at %s", n->path) : 0;
}

static void listener_free(struct listener *n)
{
    sd_event_source_disable_unref(n->source);
    closep(&n->fd);
    free(n);
}

int movers_listen(struct builtin_movers *m, uid_t uid, const char **path, struct err *e)
{
    for (struct listener *n = m->listeners; n; n = n->next) {
        if (n->uid == uid) {
            *path = n->path;
            return 0;
        }
    }
    struct listener *n = calloc(1, sizeof *n);
    if (!n)
        return err_nomem(e);
    n->owner = m;
    n->uid = uid;
    n->fd = -1;
    int len = uid == geteuid() ? snprintf(n->path, sizeof n->path, "%s/mover.sock", m->runtime_dir)
                               : snprintf(n->path, sizeof n->path, "%s/mover-%u.sock", m->runtime_dir, (unsigned)uid);
    int rc = len < (int)sizeof n->path
                 ? listen_at(n, e)
                 : err_set(e, ERR_USAGE, ENAMETOOLONG, "the runtime directory %s is too long for a socket path",
                           m->runtime_dir);
    if (rc < 0) {
        listener_free(n);
        return rc;
    }
    n->next = m->listeners;
    m->listeners = n;
    *path = n->path;
    return 0;
}

/* The paths remain: the next daemon may have bound them already. */
void movers_unlisten(struct builtin_movers *m)
{
    while (m->listeners) {
        struct listener *n = m->listeners;
        m->listeners = n->next;
        listener_free(n);
    }
}

/* ---- connections ---- */

void conn_close(struct mover *v)
{
    struct conn *c = v->conn;
    if (!c)
        return;
    v->conn = NULL;
    sd_event_source_disable_unref(c->source);
    close(c->fd);
    free(c);
}

static int64_t second_ns(void)
{
    return NS_PER_S;
}

/* A single violation of the protocol may be a bug of an older version; repeated ones are not tolerated. A version that
 * this one does not have will not become another one. */
static void protocol_violated(struct mover *v)
{
    log_warning("mover of %s: %s; connection closed", v->operation, v->violation);
    conn_close(v);
    if ((++v->violations >= VIOLATIONS_MAX || v->other_version) && !v->gone)
        v->owner->ops->misbehaved(v);
}

/* 1: one message was read, whose length is added to *bytes; 0: none is available; -EPIPE: the end; -EBADMSG: a protocol
 * violation. */
static int message_read(struct mover *v, size_t *bytes)
{
    static char buf[WIRE_MAX + 1]; /* the loop has one thread */
    struct conn *c = v->conn;
    int flags;
    CLEANUP_CLOSE int fd = -1; /* of KEY; with any other message it is closed */
    ssize_t n = descriptors_receive(c->fd, buf, sizeof buf, &fd, 1, &flags);
    if (n < 0)
        return n == -EAGAIN ? 0 : -EPIPE;
    if (n == 0 && !(flags & MSG_TRUNC))
        return -EPIPE;
    *bytes += (size_t)n;
    int64_t now = mono_ns();
    if (now - c->window_ns > second_ns()) {
        c->window_ns = now;
        c->in_window = c->bytes_in_window = 0;
    }
    c->bytes_in_window += (unsigned)n;
    if (++c->in_window > MESSAGES_PER_S && !v->gone) {
        snprintf(v->violation, sizeof v->violation, "more than %d messages a second", MESSAGES_PER_S);
        return -EBADMSG;
    }
    if (c->bytes_in_window > BYTES_PER_S && !v->gone) {
        snprintf(v->violation, sizeof v->violation, "more than %u MiB of messages a second", BYTES_PER_S >> 20);
        return -EBADMSG;
    }
    if ((flags & MSG_TRUNC) || (size_t)n > WIRE_MAX) {
        snprintf(v->violation, sizeof v->violation, "message of more than %u KiB", WIRE_MAX >> 10);
        return -EBADMSG;
    }
    v->received_fd = fd;
    const bool ok = v->owner->ops->message(v, buf, (size_t)n, &c->greeted);
    fd = take_fd(&v->received_fd);
    return ok ? 1 : -EBADMSG;
}

static int on_message(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    struct mover *v = arg;
    (void)s;
    (void)fd;
    (void)events;
    size_t bytes = 0;
    /* A callback may have closed the connection. */
    for (unsigned i = 0; i < BATCH && bytes < BATCH_BYTES && v->conn; i++) {
        int rc = message_read(v, &bytes);
        if (rc == -EPIPE)
            conn_close(v);
        else if (rc == -EBADMSG)
            protocol_violated(v);
        if (rc <= 0)
            return 0;
    }
    return 0;
}

bool conn_drain(struct mover *v)
{
    for (unsigned i = 0; i < DRAIN_MAX && v->conn; i++) {
        size_t bytes = 0;
        int rc = message_read(v, &bytes);
        if (rc == 0)
            return false;
        if (rc < 0) {
            conn_close(v);
            return true;
        }
    }
    conn_close(v);
    return true;
}

static struct mover *peer_mover(struct builtin_movers *m, const struct ucred *peer)
{
    const pid_t parent = process_parent(peer->pid);
    for (struct mover *v = m->list; v; v = v->next) {
        if (v->gone)
            continue;
        if (v->id.pid ? v->id.pid == peer->pid || v->id.pid == parent : process_in_unit(peer->pid, v->id.unit))
            return v;
    }
    return NULL;
}

static bool connects_too_often(struct mover *v)
{
    int64_t now = mono_ns();
    if (now - v->dial_window_ns > 10 * second_ns()) {
        v->dial_window_ns = now;
        v->dials = 0;
    }
    if (++v->dials <= DIALS_MAX)
        return false;
    snprintf(v->violation, sizeof v->violation, "too many connections");
    log_warning("mover of %s: %s; killed", v->operation, v->violation);
    v->owner->ops->misbehaved(v);
    return true;
}

static void connection_adopt(struct builtin_movers *m, int fd)
{
    struct ucred peer = {0};
    socklen_t len = sizeof peer;
    struct err e = ERR_INIT;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0) {
        close(fd);
        return;
    }
    struct mover *v = peer_mover(m, &peer);
    if (!v || peer.uid != v->uid) {
        if (m->unknown_peers++ % 100 == 0)
            log_warning("process %d of user %u connected to the movers' socket but is not a mover: refused",
                        (int)peer.pid, (unsigned)peer.uid);
        close(fd);
        return;
    }
    if (!v->id.pid && mover_watch(v, peer.pid, &e) < 0) {
        close(fd); /* it has ended meanwhile: its unit has the status */
        return;
    }
    if (connects_too_often(v)) {
        close(fd);
        return;
    }
    conn_close(v); /* it reconnects because it has lost the old connection */
    struct conn *c = calloc(1, sizeof *c);
    if (c) {
        c->mover = v;
        c->fd = fd;
        c->window_ns = mono_ns();
    }
    if (!c || sd_event_add_io(m->loop, &c->source, fd, EPOLLIN, on_message, v) < 0) {
        free(c);
        close(fd);
        return;
    }
    v->conn = c;
}

static int on_connect(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    struct listener *n = arg;
    (void)s;
    (void)events;
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        int c = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (c < 0)
            break;
        connection_adopt(n->owner, c);
    }
    return 0;
}

/* ---- saying ---- */

static int socket_send(struct mover *v, json_t *msg, const int *fds, unsigned n_fds)
{
    CLEANUP_FREE char *text = msg ? json_text(msg, NULL) : NULL;
    json_decref(msg);
    if (!text || !v->conn)
        return text ? -ENOTCONN : -ENOMEM;
    ssize_t n = descriptors_send(v->conn->fd, text, strlen(text), fds, n_fds, MSG_DONTWAIT);
    if (n >= 0)
        return 0;
    /* A mover that does not read a few small messages counts as not connected. */
    conn_close(v);
    return (int)n;
}

int mover_send(struct mover *v, const char *type)
{
    return socket_send(v, json_pack("{s:s, s:s}", "type", type, "operation", v->operation), NULL, 0);
}

int mover_send_credentials(struct mover *v, bool copy, int fd)
{
    return socket_send(
        v, json_pack("{s:s, s:s, s:b}", "type", WIRE_CREDENTIALS, "operation", v->operation, WIRE_OF_COPY, (int)copy),
        &fd, fd >= 0);
}

int mover_send_limits(struct mover *v, int64_t read, int64_t write)
{
    return socket_send(v,
                       json_pack("{s:s, s:s, s:I, s:I}", "type", WIRE_LIMITS, "operation", v->operation, "read_limit",
                                 (json_int_t)read, "write_limit", (json_int_t)write),
                       NULL, 0);
}

int mover_send_job(struct mover *v)
{
    const struct {
        const char *role;
        int *fd;
    } all[] = {{WIRE_FD_JOB, &v->job_fd},
               {WIRE_FD_RESULT, &v->result_fd},
               {WIRE_FD_DEVICE, &v->device_fd},
               {WIRE_FD_PASSWORD, &v->password_fd},
               {WIRE_FD_KEY, &v->key_fd},
               {WIRE_FD_CHANGES, &v->changes_fd},
               {WIRE_FD_CREDENTIALS, &v->credentials_fd},
               {WIRE_FD_COPY_CREDENTIALS, &v->copy_credentials_fd},
               {WIRE_FD_LISTING, &v->listing_fd}};
    int fds[WIRE_FDS_MAX];
    unsigned n = 0;
    json_t *names = json_array();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (*all[i].fd < 0 || n == WIRE_FDS_MAX)
            continue;
        fds[n++] = *all[i].fd;
        json_array_append_new(names, json_string(all[i].role));
    }
    int rc = socket_send(v,
                         json_pack("{s:s, s:s, s:i, s:o, s:I, s:b}", "type", WIRE_JOB, "operation", v->operation,
                                   "protocol", MOVER_PROTOCOL, "fds", names, "goTimeout", (json_int_t)v->go_timeout_s,
                                   "keyWanted", (int)v->key_wanted),
                         fds, n);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        closep(all[i].fd);
        *all[i].fd = -1;
    }
    return rc;
}
