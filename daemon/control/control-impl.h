/* SPDX-License-Identifier: GPL-2.0-or-later */
/* control-impl.h - what the files of the control socket share; nobody else includes it */
#ifndef SNAPFERRY_DAEMON_CONTROL_IMPL_H
#define SNAPFERRY_DAEMON_CONTROL_IMPL_H

#include "base/cleanup.h"
#include "daemon/control/control.h"
#include "base/json.h"
#include "base/time.h"

#include <sys/types.h>
#include <time.h>

#define CONTROL_PROTOCOL 1
#define CONTROL_CLIENTS_MAX 64
#define CONTROL_CLIENTS_RESERVED 16 /* of them, for root and the daemon's own user */
#define CONTROL_REQUESTS_MAX 16     /* under way, per connection */
#define CONTROL_WORKING_MAX 48      /* under way of all clients, waits aside */
#define CONTROL_LINE_MAX (1u << 20)
#define CONTROL_ANSWER_MAX (16u << 20)
#define CONTROL_PENDING_MAX (64u << 20) /* unread output of all connections */
#define CONTROL_GARBAGE_MAX 4
#define CONTROL_PAGE_BYTES (1u << 20)
/* A client whose unread output is longer than this is not read from, and gets only the newest event. */
#define CONTROL_OUT_SLOW (256u << 10)

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

/* A request until it is answered. It outlives its client and the whole control room where the engine answers later. */
struct request {
    struct request *next, **prev; /* in the control's list */
    struct control *control;      /* NULL: gone */
    struct client *client;        /* NULL: went away */
    json_t *id;                   /* integer or null */
    char verb[24];
    json_t *late; /* newest event that a slow client has not been sent */
    bool waiting; /* engine_wait() holds it */
    bool discard; /* answered already; the engine's own answer goes to the log only */
    char *what;   /* describe: what is looked for */
};

struct control {
    sd_event *loop;
    struct engine *engine;
    int fd;
    bool bound; /* by us: the path is removed at the end */
    char path[4096 + 32];
    sd_event_source *accept, *tick;
    gid_t group;
    bool has_group;
    struct client *clients;
    unsigned n_clients, n_others; /* others: neither root nor our user */
    struct request *requests;
    size_t pending; /* bytes of unread output */
    unsigned idle_s, stuck_s;
};

/* ---- requests.c ---- */

/* NULL: no memory. It belongs to the control, until it is answered or its client is gone. */
struct request *request_new(struct client *c, json_t *id);
/* Answers and forgets the request. `answer` is taken over; NULL with e == NULL is no memory. */
void request_answer(struct request *q, json_t *answer);
void request_fail(struct request *q, const struct err *e);
/* An event line; only the newest is kept while the client is slow, unless `keep`. Borrowed. False: the client was cut
 * off and the request is gone. */
bool request_event(struct request *q, const json_t *event, bool keep);
/* Ends what a request holds elsewhere (waits). */
void request_release(struct request *q);
/* engine_reply_fn for requests whose answer is the engine's as it is. */
void request_reply(json_t *answer, const struct err *e, void *arg);

/* {"class", "code", "message", "hint"} (new reference). */
json_t *error_json(const struct err *e);
/* An error that belongs to no request, or to one that was refused. */
void client_fail(struct client *c, json_t *id, const struct err *e);
/* Sends what the socket takes. */
void client_flush(struct client *c);
/* What a slow client missed, once it has caught up. */
void client_send_late(struct client *c);
/* Watches for what is of use now. */
void client_events(struct client *c);
/* Cuts a client off; the next tick frees it. `why` goes to the log, NULL: it went away by itself. */
void client_kill(struct client *c, const char *why);

/* listen.c: fills fd, bound, group. */
int control_listen(struct control *c, const char *runtime_dir, const char *group, struct err *e);
/* verbs.c: starts what the request asks for; answers it now or later. */
void control_dispatch(struct request *q, const char *verb, const json_t *args);
/* lists.c */
void control_operations(struct request *q, const json_t *args);
void control_backups(struct request *q, const json_t *args);
void control_natives(struct request *q, const json_t *args);
void control_jobs(struct request *q, const json_t *args);
void control_describe(struct request *q, const json_t *args);

#endif
