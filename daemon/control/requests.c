/* SPDX-License-Identifier: GPL-2.0-or-later */
/* requests.c - requests until they are answered, and unread output of clients */
#include "base/json-text.h"
#include "base/time.h"
#include "daemon/control/control-impl.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* ---- requests ---- */

static void request_free(struct request *q)
{
    struct control *ctl = q->control;
    request_release(q);
    if (ctl && q->args) {
        ctl->queued--;
    } else if (ctl && q->heavy) {
        ctl->working--;
        if (ctl->queued) /* not from here: the caller may be the engine */
            sd_event_source_set_enabled(ctl->next, SD_EVENT_ONESHOT);
    }
    *q->prev = q->next;
    if (q->next)
        q->next->prev = q->prev;
    if (q->client)
        q->client->requests--;
    json_decref(q->id);
    json_decref(q->late);
    json_decref(q->args);
    json_decref(q->held);
    free(q->what);
    free(q);
}

struct request *request_new(struct client *c, json_t *id)
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

void client_events(struct client *c)
{
    size_t left = c->out_len - c->out_at;
    uint32_t want = (left ? (uint32_t)EPOLLOUT : 0) | (c->eof || left > CONTROL_OUT_SLOW ? 0 : (uint32_t)EPOLLIN);
    if (want == c->events || c->dead)
        return;
    c->events = want;
    if (sd_event_source_set_io_events(c->io, want) < 0)
        client_kill(c, "cannot watch its descriptor");
}

void client_flush(struct client *c)
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
        c->out_since = mono_ns() / NS_PER_S;
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
        c->out_since = mono_ns() / NS_PER_S;
    memcpy(c->out + c->out_len, text, n);
    c->out_len += n;
    c->control->pending += n;
    return 0;
}

/* One line. -E2BIG: too long for an answer; -ENOBUFS: too much unread output of all clients. */
static int client_send(struct client *c, const json_t *line)
{
    if (c->dead)
        return 0;
    CLEANUP_FREE char *text = line ? json_text(line, NULL) : NULL;
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

json_t *error_json(const struct err *e)
{
    return json_pack("{s:s, s:i, s:s, s:s}", "class", err_class_name(e->cls), "code", (int)e->cls, "message", e->msg,
                     "hint", e->hint);
}

void client_fail(struct client *c, json_t *id, const struct err *e)
{
    CLEANUP_JSON json_t *line = json_pack("{s:O, s:b, s:o}", "id", id, "ok", 0, "error", error_json(e));
    if (client_send(c, line) < 0)
        client_kill(c, "too much unread output");
}

void request_fail(struct request *q, const struct err *e)
{
    request_release(q); /* a client disconnected now frees requests that wait */
    if (q->client && !q->discard)
        client_fail(q->client, q->id, e);
    else if (q->discard)
        log_warning("%s, requested over the control socket: %s", q->verb, e->msg);
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
        err_hint(&e, "restrict the request: a limit, a class, a volume");
    } else if (rc == -ENOBUFS) {
        err_set(&e, ERR_BUSY, 0, "too much unread output of other clients");
        err_hint(&e, "try again in half a minute");
    } else {
        err_set(&e, ERR_MEMORY, ENOMEM, "cannot create the answer");
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
        client_kill(c, "it does not read its events");
    return !c->dead;
}

void request_reply(json_t *answer, const struct err *e, void *arg)
{
    struct request *q = arg;
    if (!q->control) { /* the daemon is stopping */
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

void client_send_late(struct client *c)
{
    for (struct request *q = c->control->requests; q && c->out_at == c->out_len; q = q->next) {
        if (q->client != c || !q->late)
            continue;
        json_t *line = q->late;
        q->late = NULL;
        (void)client_send(c, line);
        json_decref(line);
        if (c->dead) /* and q is freed */
            return;
    }
}

/* ---- the end of a client ---- */

void client_kill(struct client *c, const char *why)
{
    if (c->dead)
        return;
    if (why)
        log_warning("control socket: disconnected process %ld of user %lu: %s", (long)c->pid, (unsigned long)c->uid,
                    why);
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
        bool ours = q->waiting || q->args;
        request_release(q);
        q->client = NULL;
        if (ours)
            request_free(q);
    }
}

unsigned control_clients(const struct control *c)
{
    return c->n_clients;
}
