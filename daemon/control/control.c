/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * control.c - the control socket: access, input and output of clients, limits
 *
 * Nothing here blocks. A client has at most one input line (1 MiB) and its unread answers; both have deadlines, the
 * answers of all clients have a common limit, and no input is read from a client with much unread output. A
 * disconnected client is marked dead and freed by the next tick, so that no caller has a stale pointer.
 */
#include "base/json-text.h"
#include "base/time.h"
#include "daemon/control/control-impl.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

/* ---- clients ---- */

static void clients_reap(struct control *ctl)
{
    for (struct client **at = &ctl->clients; *at;) {
        struct client *c = *at;
        if (!c->dead) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        free(c->in);
        free(c->out);
        free(c);
    }
}

static void client_malformed(struct client *c, const char *what)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_USAGE, 0, "%s", what);
    err_hint(&e, "a request is one line, {\"id\": NUMBER, \"verb\": \"...\", \"args\": {...}}; see docs/control.md");
    client_fail(c, json_null(), &e);
    if (++c->malformed >= CONTROL_MALFORMED_MAX)
        client_kill(c, "malformed requests");
}

static void client_line(struct client *c, const char *line, size_t n)
{
    if (n && line[n - 1] == '\r')
        n--;
    json_error_t je;
    CLEANUP_JSON json_t *o = json_loadb(line, n, JSON_REJECT_DUPLICATES, &je);
    if (!json_is_object(o)) {
        client_malformed(c, o ? "a request is a JSON object" : "this line is not JSON");
        return;
    }
    json_t *id = json_object_get(o, "id"), *verb = json_object_get(o, "verb"), *args = json_object_get(o, "args");
    if (!json_is_integer(id) || !json_is_string(verb) || (args && !json_is_object(args))) {
        client_malformed(c, "a request has an integer \"id\", a string \"verb\" and an object \"args\" or none");
        return;
    }
    struct err e = ERR_INIT;
    if (c->requests >= CONTROL_REQUESTS_MAX) {
        err_set(&e, ERR_BUSY, 0, "too many requests of this connection (%u)", c->requests);
        client_fail(c, id, &e);
        return;
    }
    struct request *q = request_new(c, id);
    if (!q) {
        client_kill(c, "out of memory");
        return;
    }
    snprintf(q->verb, sizeof q->verb, "%.20s", json_string_value(verb));
    CLEANUP_JSON json_t *none = args ? NULL : json_object();
    control_dispatch(q, json_string_value(verb), args ? args : none);
}

/* All complete lines; the rest is moved to the front. */
static void client_lines(struct client *c)
{
    size_t at = 0;
    while (!c->dead && c->out_len - c->out_at <= CONTROL_OUT_SLOW) {
        char *nl = memchr(c->in + c->in_seen, '\n', c->in_len - c->in_seen);
        if (!nl) {
            c->in_seen = c->in_len;
            break;
        }
        size_t end = (size_t)(nl - c->in);
        if (end > at)
            client_line(c, c->in + at, end - at);
        at = c->in_seen = end + 1;
        c->in_since = mono_ns() / NS_PER_S;
    }
    if (at) {
        memmove(c->in, c->in + at, c->in_len - at);
        c->in_len -= at;
        c->in_seen -= at;
    }
    if (!c->in_len && c->in_cap > 65536) {
        free(c->in);
        c->in = NULL;
        c->in_cap = c->in_seen = 0;
    }
}

static bool client_grow(struct client *c)
{
    if (c->in_len < c->in_cap)
        return true;
    size_t cap = c->in_cap ? c->in_cap * 2 : 4096;
    if (cap > CONTROL_LINE_MAX + 1)
        cap = CONTROL_LINE_MAX + 1;
    if (cap <= c->in_len) {
        client_malformed(c, "this line is longer than 1 MiB");
        client_kill(c, "request line too long");
        return false;
    }
    char *more = realloc(c->in, cap);
    if (!more) {
        client_kill(c, "out of memory");
        return false;
    }
    c->in = more;
    c->in_cap = cap;
    return true;
}

static void client_read(struct client *c)
{
    if (!client_grow(c))
        return;
    ssize_t n = recv(c->fd, c->in + c->in_len, c->in_cap - c->in_len, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0) {
        client_kill(c, NULL);
        return;
    }
    if (n == 0) {
        c->eof = true;
        return;
    }
    if (!c->in_len)
        c->in_since = mono_ns() / NS_PER_S;
    c->in_len += (size_t)n;
    c->idle_since = mono_ns() / NS_PER_S;
    client_lines(c);
}

static int on_client(sd_event_source *s, int fd, uint32_t revents, void *arg)
{
    (void)s;
    (void)fd;
    struct client *c = arg;
    if (revents & (EPOLLHUP | EPOLLERR)) {
        /* Disconnected in both directions. */
        client_kill(c, NULL);
        return 0;
    }
    if (revents & EPOLLOUT) {
        client_flush(c);
        if (!c->dead)
            client_send_late(c);
        if (!c->dead && c->in_len)
            client_lines(c);
    }
    if (!c->dead && revents & EPOLLIN)
        client_read(c);
    if (!c->dead && c->eof && !c->requests && c->out_at == c->out_len)
        client_kill(c, NULL);
    if (!c->dead)
        client_events(c);
    return 0;
}

static int on_tick(sd_event_source *s, uint64_t usec, void *arg)
{
    struct control *ctl = arg;
    int64_t now = mono_ns() / NS_PER_S;
    for (struct client *c = ctl->clients; c; c = c->next) {
        if (c->dead)
            continue;
        if (c->out_len > c->out_at && now - c->out_since >= ctl->stuck_s)
            client_kill(c, "it does not read its answers");
        else if (c->in_len && c->out_len == c->out_at && now - c->in_since >= ctl->stuck_s)
            client_kill(c, "incomplete request");
        else if (!c->in_len && !c->requests && c->out_len == c->out_at &&
                 (c->eof || now - c->idle_since >= ctl->idle_s))
            client_kill(c, NULL);
    }
    clients_reap(ctl);
    sd_event_source_set_enabled(ctl->accept, SD_EVENT_ON);
    sd_event_source_set_time(s, usec + 1000000);
    sd_event_source_set_enabled(s, ctl->clients ? SD_EVENT_ON : SD_EVENT_OFF);
    return 0;
}

/* Those that waited for their turn, the oldest first. */
static int on_next(sd_event_source *s, void *arg)
{
    struct control *ctl = arg;
    (void)s;
    while (ctl->queued && ctl->working < CONTROL_WORKING_MAX) {
        struct request *oldest = NULL;
        for (struct request *q = ctl->requests; q; q = q->next)
            oldest = q->args ? q : oldest;
        control_begin(oldest);
    }
    return 0;
}

static void tick_on(struct control *ctl)
{
    uint64_t now;
    int on = SD_EVENT_OFF;
    sd_event_source_get_enabled(ctl->tick, &on);
    if (on == SD_EVENT_OFF && sd_event_now(ctl->loop, CLOCK_MONOTONIC, &now) >= 0) {
        sd_event_source_set_time(ctl->tick, now + 1000000);
        sd_event_source_set_enabled(ctl->tick, SD_EVENT_ON);
    }
}

/* ---- access ---- */

static bool in_group(int fd, gid_t primary, gid_t wanted)
{
    if (primary == wanted)
        return true;
    gid_t groups[1024];
    socklen_t len = sizeof groups;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len) < 0)
        return false;
    for (size_t i = 0; i < len / sizeof *groups; i++)
        if (groups[i] == wanted)
            return true;
    return false;
}

/* An error line to a refused peer. */
static void refuse_peer(int fd, const struct err *e)
{
    CLEANUP_JSON json_t *line = json_pack("{s:n, s:b, s:o}", "id", "ok", 0, "error", error_json(e));
    CLEANUP_FREE char *text = line ? json_text(line, NULL) : NULL;
    if (!text)
        return;
    size_t n = strlen(text);
    text[n] = '\n';
    (void)!send(fd, text, n + 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static bool client_admit(struct control *ctl, int fd, struct ucred *u, struct err *e)
{
    socklen_t len = sizeof *u;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, u, &len) < 0) {
        err_set(e, ERR_PERMISSION, 0, "cannot determine the user of the connection");
        return false;
    }
    bool other = u->uid != 0 && u->uid != geteuid();
    if (other && !(ctl->has_group && in_group(fd, u->gid, ctl->group))) {
        err_set(e, ERR_PERMISSION, 0, "user %lu may not use the control socket", (unsigned long)u->uid);
        err_hint(e, "allowed are root and members of the group set by [daemon] socket-group");
        return false;
    }
    if (ctl->n_clients >= CONTROL_CLIENTS_MAX ||
        (other && ctl->n_others >= CONTROL_CLIENTS_MAX - CONTROL_CLIENTS_RESERVED)) {
        err_set(e, ERR_BUSY, 0, "too many connections to the control socket (%u)", ctl->n_clients);
        err_hint(e, "end some waiting snapferry commands, or try again");
        return false;
    }
    return true;
}

static int client_new(struct control *ctl, int fd, const struct ucred *u)
{
    struct client *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    c->control = ctl;
    c->fd = fd;
    c->uid = u->uid;
    c->pid = u->pid;
    c->other = u->uid != 0 && u->uid != geteuid();
    c->events = EPOLLIN;
    c->idle_since = c->in_since = c->out_since = mono_ns() / NS_PER_S;
    int rc = sd_event_add_io(ctl->loop, &c->io, fd, EPOLLIN, on_client, c);
    if (rc >= 0)
        rc = sd_event_source_set_priority(c->io, CONTROL_PRIORITY);
    if (rc < 0) {
        sd_event_source_disable_unref(c->io);
        free(c);
        return rc;
    }
    c->next = ctl->clients;
    ctl->clients = c;
    ctl->n_clients++;
    ctl->n_others += c->other;
    tick_on(ctl);
    return 0;
}

static int on_accept(sd_event_source *s, int fd, uint32_t revents, void *arg)
{
    (void)revents;
    struct control *ctl = arg;
    clients_reap(ctl);
    CLEANUP_CLOSE int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (peer < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            log_warning("control socket: cannot accept a connection: %s", strerror(errno));
            sd_event_source_set_enabled(s, SD_EVENT_OFF); /* until the next tick */
            tick_on(ctl);
        }
        return 0;
    }
    struct ucred u = {0};
    struct err e = ERR_INIT;
    if (!client_admit(ctl, peer, &u, &e)) {
        log_warning("control socket: process %ld refused: %s", (long)u.pid, e.msg);
        refuse_peer(peer, &e);
        return 0;
    }
    if (client_new(ctl, peer, &u) == 0)
        take_fd(&peer);
    return 0;
}

/* ---- start and end ---- */

int control_new(struct control **ret, sd_event *loop, struct engine *g, const char *runtime_dir, const char *group,
                struct err *e)
{
    struct control *c = calloc(1, sizeof *c);
    if (!c)
        return err_nomem(e);
    c->loop = sd_event_ref(loop);
    c->engine = g;
    c->fd = -1;
    c->idle_s = 300;
    c->stuck_s = 30;
    snprintf(c->path, sizeof c->path, "%s/control.sock", runtime_dir);
    int rc = control_listen(c, runtime_dir, group, e);
    if (rc >= 0) {
        rc = sd_event_add_io(loop, &c->accept, c->fd, EPOLLIN, on_accept, c);
        if (rc >= 0)
            rc = sd_event_source_set_priority(c->accept, CONTROL_PRIORITY);
        if (rc >= 0)
            rc = sd_event_add_time(loop, &c->tick, CLOCK_MONOTONIC, 0, 100000, on_tick, c);
        if (rc >= 0)
            rc = sd_event_source_set_enabled(c->tick, SD_EVENT_OFF);
        if (rc >= 0)
            rc = sd_event_add_defer(loop, &c->next, on_next, c);
        if (rc >= 0)
            rc = sd_event_source_set_enabled(c->next, SD_EVENT_OFF);
        if (rc < 0)
            rc = err_set(e, ERR_GENERIC, -rc, "cannot watch the control socket");
    }
    if (rc < 0) {
        control_free(c);
        return rc;
    }
    *ret = c;
    return 0;
}

void control_free(struct control *c)
{
    if (!c)
        return;
    for (struct client *k = c->clients; k; k = k->next)
        client_kill(k, NULL);
    clients_reap(c);
    while (c->requests) { /* each has begun: its client was disconnected */
        struct request *q = c->requests;
        c->requests = q->next;
        q->control = NULL; /* request_reply() frees it */
    }
    sd_event_source_disable_unref(c->accept);
    sd_event_source_disable_unref(c->next);
    sd_event_source_disable_unref(c->tick);
    if (c->fd >= 0)
        close(c->fd);
    if (c->bound)
        unlink(c->path);
    sd_event_unref(c->loop);
    free(c);
}
