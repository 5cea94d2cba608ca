/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * control.c - the control socket: who may connect, lines in, lines out, and what an unfriendly client cannot do
 *
 * Nothing here blocks. A client owns at most one input line (1 MiB) and its unread answers; both have deadlines, the
 * answers of all clients together have a limit, and a client with much unread output is not read from. A client that is
 * cut off is marked dead at once and freed by the next tick, so that no caller holds a stale pointer.
 */
#include "daemon/control/control-impl.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

struct client {
    struct client *next;
    struct control *control;
    int fd;
    sd_event_source *io;
    uid_t uid;
    pid_t pid;
    bool other; /* neither root nor our user */
    bool eof;   /* it sends no more */
    bool dead;
    char *in;
    size_t in_len, in_cap, in_seen; /* seen: no newline before it */
    char *out;
    size_t out_at, out_len, out_cap;
    unsigned garbage, requests;
    uint32_t events;
    int64_t in_since, out_since, idle_since; /* seconds, CLOCK_MONOTONIC */
};

/* A client whose unread output is longer than this is not read from, and gets only the newest event. */
#define OUT_SLOW (256u << 10)

static int64_t now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

static void client_kill(struct client *c, const char *why);

/* ---- requests ---- */

static void request_free(struct request *q)
{
    request_release(q);
    *q->prev = q->next;
    if (q->next)
        q->next->prev = q->prev;
    if (q->client)
        q->client->requests--;
    json_decref(q->id);
    json_decref(q->late);
    free(q->what);
    free(q);
}

static struct request *request_new(struct client *c, json_t *id)
{
    struct request *q = calloc(1, sizeof *q);
    if (!q)
        return NULL;
    q->control = c->control;
    q->client = c;
    q->id = json_incref(id);
    q->next = c->control->requests;
    q->prev = &c->control->requests;
    if (q->next)
        q->next->prev = &q->next;
    c->control->requests = q;
    c->requests++;
    return q;
}

void request_release(struct request *q)
{
    if (q->waiting && q->control)
        engine_unwait(q->control->engine, q);
    q->waiting = false;
}

/* ---- output ---- */

static void client_events(struct client *c)
{
    size_t left = c->out_len - c->out_at;
    uint32_t want = (left ? (uint32_t)EPOLLOUT : 0) | (c->eof || left > OUT_SLOW ? 0 : (uint32_t)EPOLLIN);
    if (want == c->events || c->dead)
        return;
    c->events = want;
    if (sd_event_source_set_io_events(c->io, want) < 0)
        client_kill(c, "its descriptor cannot be watched");
}

/* Sends what the socket takes. */
static void client_flush(struct client *c)
{
    while (c->out_at < c->out_len) {
        ssize_t n = send(c->fd, c->out + c->out_at, c->out_len - c->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            client_kill(c, NULL);
            return;
        }
        c->out_at += (size_t)n;
        c->control->pending -= (size_t)n;
        c->out_since = now_s();
    }
    if (c->out_at == c->out_len && c->out_cap) {
        free(c->out);
        c->out = NULL;
        c->out_at = c->out_len = c->out_cap = 0;
    }
}

static int client_append(struct client *c, const char *text, size_t n)
{
    if (c->out_at && c->out_at == c->out_len)
        c->out_at = c->out_len = 0;
    if (c->out_at && c->out_len + n > c->out_cap) {
        memmove(c->out, c->out + c->out_at, c->out_len - c->out_at);
        c->out_len -= c->out_at;
        c->out_at = 0;
    }
    if (c->out_len + n > c->out_cap) {
        size_t cap = c->out_len + n + 4096;
        char *more = realloc(c->out, cap);
        if (!more)
            return -ENOMEM;
        c->out = more;
        c->out_cap = cap;
    }
    if (c->out_len == c->out_at)
        c->out_since = now_s();
    memcpy(c->out + c->out_len, text, n);
    c->out_len += n;
    c->control->pending += n;
    return 0;
}

/* One line. -E2BIG: longer than an answer may be; -ENOBUFS: all clients together hold too much. */
static int client_send(struct client *c, const json_t *line)
{
    if (c->dead)
        return 0;
    CLEANUP_FREE char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    if (!text)
        return -ENOMEM;
    size_t n = strlen(text);
    if (n >= CONTROL_ANSWER_MAX)
        return -E2BIG;
    if (c->control->pending + n > CONTROL_PENDING_MAX)
        return -ENOBUFS;
    text[n] = '\n';
    int rc = client_append(c, text, n + 1);
    if (rc < 0)
        return rc;
    client_flush(c);
    client_events(c);
    return 0;
}

static json_t *error_json(const struct err *e)
{
    return json_pack("{s:s, s:i, s:s, s:s}", "class", err_class_name(e->cls), "code", (int)e->cls, "message", e->msg,
                     "hint", e->hint);
}

static void client_fail(struct client *c, json_t *id, const struct err *e)
{
    CLEANUP_JSON json_t *line = json_pack("{s:O, s:b, s:o}", "id", id, "ok", 0, "error", error_json(e));
    if (client_send(c, line) < 0)
        client_kill(c, "its answer cannot be held in memory");
}

void request_fail(struct request *q, const struct err *e)
{
    request_release(q); /* a client that is cut off now frees what is still waiting */
    if (q->client && !q->discard)
        client_fail(q->client, q->id, e);
    else if (q->discard)
        log_warning("%s, as asked over the control socket: %s", q->verb, e->msg);
    request_free(q);
}

void request_answer(struct request *q, json_t *answer)
{
    int rc = 0;
    request_release(q);
    if (q->client && !q->discard) {
        CLEANUP_JSON json_t *line =
            answer ? json_pack("{s:O, s:b, s:O}", "id", q->id, "ok", 1, "answer", answer) : NULL;
        rc = client_send(q->client, line);
    }
    json_decref(answer);
    if (rc == 0) {
        request_free(q);
        return;
    }
    struct err e = ERR_INIT;
    if (rc == -E2BIG) {
        err_set(&e, ERR_BUSY, 0, "the answer is longer than %u MiB", CONTROL_ANSWER_MAX >> 20);
        err_hint(&e, "ask for less: a limit, one class, one volume");
    } else if (rc == -ENOBUFS) {
        err_set(&e, ERR_BUSY, 0, "other clients do not take their answers, and there is no room for more");
        err_hint(&e, "try again in half a minute");
    } else {
        err_set(&e, ERR_MEMORY, ENOMEM, "the answer cannot be put together");
    }
    request_fail(q, &e);
}

bool request_event(struct request *q, const json_t *event, bool keep)
{
    struct client *c = q->client;
    if (!c || q->discard)
        return true;
    CLEANUP_JSON json_t *line = json_pack("{s:O, s:O}", "id", q->id, "event", event);
    if (!keep && c->out_len - c->out_at > 0) {
        json_decref(q->late);
        q->late = json_incref(line);
        return true;
    }
    if (client_send(c, line) < 0 && keep)
        client_kill(c, "it does not take its events");
    return !c->dead;
}

void request_reply(json_t *answer, const struct err *e, void *arg)
{
    struct request *q = arg;
    if (!q->control) { /* the daemon ends */
        json_decref(q->id);
        json_decref(q->late);
        free(q->what);
        free(q);
    } else if (e && e->cls) {
        request_fail(q, e);
    } else if (answer) {
        request_answer(q, json_incref(answer));
    } else {
        struct err none = ERR_INIT;
        err_set(&none, ERR_GENERIC, 0, "%s failed without a reason", q->verb);
        request_fail(q, &none);
    }
}

/* What a slow client missed, once it has caught up. */
static void client_send_late(struct client *c)
{
    for (struct request *q = c->control->requests; q && c->out_at == c->out_len; q = q->next) {
        if (q->client != c || !q->late)
            continue;
        json_t *line = q->late;
        q->late = NULL;
        (void)client_send(c, line);
        json_decref(line);
        if (c->dead) /* and q is gone */
            return;
    }
}

/* ---- clients ---- */

static void client_kill(struct client *c, const char *why)
{
    if (c->dead)
        return;
    if (why)
        log_warning("control socket: process %ld of user %lu is cut off: %s", (long)c->pid, (unsigned long)c->uid, why);
    c->dead = true;
    struct control *ctl = c->control;
    ctl->n_clients--;
    ctl->n_others -= c->other;
    ctl->pending -= c->out_len - c->out_at;
    c->out_at = c->out_len;
    sd_event_source_disable_unref(c->io);
    c->io = NULL;
    close(c->fd);
    c->fd = -1;
    for (struct request *q = ctl->requests, *next; q; q = next) {
        next = q->next;
        if (q->client != c)
            continue;
        bool ours = q->waiting;
        request_release(q);
        q->client = NULL;
        if (ours)
            request_free(q);
    }
}

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

static void garbage(struct client *c, const char *what)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_USAGE, 0, "%s", what);
    err_hint(
        &e,
        "a request is one line, {\"id\": NUMBER, \"verb\": \"...\", \"args\": {...}}; docs/control.md has the rest");
    client_fail(c, json_null(), &e);
    if (++c->garbage >= CONTROL_GARBAGE_MAX)
        client_kill(c, "it sends garbage");
}

/* Requests that the engine has yet to answer, also of clients that went away: each may be a child at work. */
static unsigned working(const struct control *ctl)
{
    unsigned n = 0;
    for (const struct request *q = ctl->requests; q; q = q->next)
        n += !q->waiting;
    return n;
}

static void client_line(struct client *c, const char *line, size_t n)
{
    if (n && line[n - 1] == '\r')
        n--;
    json_error_t je;
    CLEANUP_JSON json_t *o = json_loadb(line, n, JSON_REJECT_DUPLICATES, &je);
    if (!json_is_object(o)) {
        garbage(c, o ? "a request is a JSON object" : "this line is not JSON");
        return;
    }
    json_t *id = json_object_get(o, "id"), *verb = json_object_get(o, "verb"), *args = json_object_get(o, "args");
    if (!json_is_integer(id) || !json_is_string(verb) || (args && !json_is_object(args))) {
        garbage(c, "a request has an integer \"id\", a string \"verb\" and an object \"args\" or none");
        return;
    }
    struct err e = ERR_INIT;
    if (working(c->control) >= CONTROL_WORKING_MAX) {
        err_set(&e, ERR_BUSY, 0, "%u requests of all clients are under way", CONTROL_WORKING_MAX);
        err_hint(&e, "try again in a moment");
        client_fail(c, id, &e);
        return;
    }
    if (c->requests >= CONTROL_REQUESTS_MAX) {
        err_set(&e, ERR_BUSY, 0, "%u requests of this connection are under way", c->requests);
        client_fail(c, id, &e);
        return;
    }
    struct request *q = request_new(c, id);
    if (!q) {
        client_kill(c, "there is no memory for its request");
        return;
    }
    snprintf(q->verb, sizeof q->verb, "%.20s", json_string_value(verb));
    CLEANUP_JSON json_t *none = args ? NULL : json_object();
    control_dispatch(q, json_string_value(verb), args ? args : none);
}

/* All whole lines that are there; what is left moves to the front. */
static void client_lines(struct client *c)
{
    size_t at = 0;
    while (!c->dead && c->out_len - c->out_at <= OUT_SLOW) {
        char *nl = memchr(c->in + c->in_seen, '\n', c->in_len - c->in_seen);
        if (!nl) {
            c->in_seen = c->in_len;
            break;
        }
        size_t end = (size_t)(nl - c->in);
        if (end > at)
            client_line(c, c->in + at, end - at);
        at = c->in_seen = end + 1;
        c->in_since = now_s();
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
        garbage(c, "this line is longer than 1 MiB");
        client_kill(c, "it sends a line without end");
        return false;
    }
    char *more = realloc(c->in, cap);
    if (!more) {
        client_kill(c, "there is no memory for its request");
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
        c->in_since = now_s();
    c->in_len += (size_t)n;
    c->idle_since = now_s();
    client_lines(c);
}

static int on_client(sd_event_source *s, int fd, uint32_t revents, void *arg)
{
    (void)s;
    (void)fd;
    struct client *c = arg;
    if (revents & (EPOLLHUP | EPOLLERR)) {
        /* Both directions are gone: nobody is there to answer. */
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
    int64_t now = now_s();
    for (struct client *c = ctl->clients; c; c = c->next) {
        if (c->dead)
            continue;
        if (c->out_len > c->out_at && now - c->out_since >= ctl->stuck_s)
            client_kill(c, "it does not take its answers");
        else if (c->in_len && c->out_len == c->out_at && now - c->in_since >= ctl->stuck_s)
            client_kill(c, "it does not finish its request");
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

/* ---- who may ---- */

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

/* A line to somebody who does not become a client. */
static void turn_away(int fd, const struct err *e)
{
    CLEANUP_JSON json_t *line = json_pack("{s:n, s:b, s:o}", "id", "ok", 0, "error", error_json(e));
    CLEANUP_FREE char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    if (!text)
        return;
    size_t n = strlen(text);
    text[n] = '\n';
    (void)!send(fd, text, n + 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static bool admit(struct control *ctl, int fd, struct ucred *u, struct err *e)
{
    socklen_t len = sizeof *u;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, u, &len) < 0) {
        err_set(e, ERR_PERMISSION, 0, "it is not known who you are");
        return false;
    }
    bool other = u->uid != 0 && u->uid != geteuid();
    if (other && !(ctl->has_group && in_group(fd, u->gid, ctl->group))) {
        err_set(e, ERR_PERMISSION, 0, "user %lu may not use the control socket", (unsigned long)u->uid);
        err_hint(e, "root and the members of the group that [daemon] socket-group names may");
        return false;
    }
    if (ctl->n_clients >= CONTROL_CLIENTS_MAX ||
        (other && ctl->n_others >= CONTROL_CLIENTS_MAX - CONTROL_CLIENTS_RESERVED)) {
        err_set(e, ERR_BUSY, 0, "there are %u connections to the control socket", ctl->n_clients);
        err_hint(e, "end some of the snapferry commands that wait, or try again");
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
    c->idle_since = c->in_since = c->out_since = now_s();
    int rc = sd_event_add_io(ctl->loop, &c->io, fd, EPOLLIN, on_client, c);
    if (rc < 0) {
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
    if (!admit(ctl, peer, &u, &e)) {
        log_warning("control socket: process %ld is turned away: %s", (long)u.pid, e.msg);
        turn_away(peer, &e);
        return 0;
    }
    if (client_new(ctl, peer, &u) == 0)
        take_fd(&peer);
    return 0;
}

/* ---- the whole ---- */

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
            rc = sd_event_add_time(loop, &c->tick, CLOCK_MONOTONIC, 0, 100000, on_tick, c);
        if (rc >= 0)
            rc = sd_event_source_set_enabled(c->tick, SD_EVENT_OFF);
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
    while (c->requests) {
        struct request *q = c->requests;
        c->requests = q->next;
        q->control = NULL; /* request_reply() frees it */
    }
    sd_event_source_disable_unref(c->accept);
    sd_event_source_disable_unref(c->tick);
    if (c->fd >= 0)
        close(c->fd);
    if (c->bound)
        unlink(c->path);
    sd_event_unref(c->loop);
    free(c);
}

unsigned control_clients(const struct control *c)
{
    return c->n_clients;
}
