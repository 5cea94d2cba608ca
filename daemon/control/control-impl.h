/* SPDX-License-Identifier: GPL-2.0-or-later */
/* control-impl.h - internal to daemon/control */
#ifndef SNAPFERRY_DAEMON_CONTROL_IMPL_H
#define SNAPFERRY_DAEMON_CONTROL_IMPL_H

#include "base/cleanup.h"
#include "daemon/control/control.h"
#include "base/json.h"
#include "base/time.h"

#include <sys/types.h>
#include <time.h>

#define CONTROL_PROTOCOL 1
/* Before the engine's own work (ENGINE_PRIORITY), in turn with what it is told by movers and steps. */
#define CONTROL_PRIORITY SD_EVENT_PRIORITY_NORMAL
#define CONTROL_CLIENTS_MAX 576
#define CONTROL_CLIENTS_RESERVED 64 /* of them for root and the user of the daemon */
#define CONTROL_REQUESTS_MAX 16     /* per connection */
#define CONTROL_WORKING_MAX 48      /* requests of all clients that may be running in a child; further ones wait */
#define CONTROL_QUEUED_MAX 576      /* of those; each with arguments of at most ... bytes */
#define CONTROL_QUEUED_ARGS (64u << 10)
#define CONTROL_LINE_MAX (1u << 20)
#define CONTROL_ANSWER_MAX (16u << 20)
#define CONTROL_PENDING_MAX (64u << 20) /* unread output of all connections */
#define CONTROL_MALFORMED_MAX 4
#define CONTROL_PAGE_BYTES (256u << 10)
/* With more unread output, no input is read from a client, and it gets only the newest event. */
#define CONTROL_OUT_SLOW (256u << 10)

struct client {
    struct client *next;
    struct control *control;
    int fd;
    sd_event_source *io;
    uid_t uid;
    pid_t pid;
    bool other; /* neither root nor the user of the daemon */
    bool eof;   /* end of its input */
    bool dead;
    char *in;
    size_t in_len, in_cap, in_seen; /* seen: no newline before it */
    char *out;
    size_t out_at, out_len, out_cap;
    unsigned malformed, requests;
    uint32_t events;
    int64_t in_since, out_since, idle_since; /* seconds, CLOCK_MONOTONIC */
};

/* A request until it is answered. It may outlive its client and the control if the engine answers later. */
struct request {
    struct request *next, **prev; /* in the control's list */
    struct control *control;      /* NULL: freed */
    struct client *client;        /* NULL: disconnected */
    json_t *id;                   /* integer or null */
    char verb[24];
    json_t *late; /* newest event not yet sent to a slow client */
    bool waiting; /* in engine_wait() */
    bool heavy;   /* it may be running in a child */
    json_t *args; /* of one that waits for its turn; NULL: it has begun */
    json_t *held; /* its arguments while it waits until the pools have been looked at */
    bool discard; /* already answered; the answer of the engine is only logged */
    char *what;   /* describe: the id */
};

struct control {
    sd_event *loop;
    struct engine *engine;
    int fd;
    bool bound; /* by the daemon: the path is removed at the end */
    char path[4096 + 32];
    sd_event_source *accept, *tick, *next;
    unsigned working, queued; /* heavy requests: that have begun, that wait for their turn */
    gid_t group;
    bool has_group;
    struct client *clients;
    unsigned n_clients, n_others; /* others: neither root nor the user of the daemon */
    struct request *requests;
    size_t pending; /* bytes of unread output */
    unsigned idle_s, stuck_s;
};

/* ---- requests.c ---- */

/* NULL: no memory. Owned by the control until it is answered or its client is disconnected. */
struct request *request_new(struct client *c, json_t *id);
/* Answers and frees the request. Takes the reference to `answer`; NULL: no memory. */
void request_answer(struct request *q, json_t *answer);
void request_fail(struct request *q, const struct err *e);
/* An event line; only the newest is kept while the client is slow, unless `keep`. Borrowed. False: the client was
 * disconnected and the request freed. */
bool request_event(struct request *q, const json_t *event, bool keep);
/* Ends a wait of the request. */
void request_release(struct request *q);
/* engine_reply_fn: the answer of the engine is sent unchanged. */
void request_reply(json_t *answer, const struct err *e, void *arg);

/* {"class", "code", "message", "hint"} (new reference). */
json_t *error_json(const struct err *e);
/* An error without request, or of a refused one. */
void client_fail(struct client *c, json_t *id, const struct err *e);
/* Sends without blocking. */
void client_flush(struct client *c);
/* Sends the newest event to a client that is no longer slow. */
void client_send_late(struct client *c);
/* Sets the events to watch for. */
void client_events(struct client *c);
/* Disconnects a client; the next tick frees it. `why` is logged; NULL: closed by the client. */
void client_kill(struct client *c, const char *why);

/* listen.c: fills fd, bound, group. */
int control_listen(struct control *c, const char *runtime_dir, const char *group, struct err *e);
/* verbs.c: carries out the request; answers it now or later. */
void control_dispatch(struct request *q, const char *verb, const json_t *args);
/* The same for one that has waited for its turn. */
void control_begin(struct request *q);
/* lists.c */
void control_operations(struct request *q, struct request_args *args);
void control_backups(struct request *q, struct request_args *args);
void control_natives(struct request *q, struct request_args *args);
void control_jobs(struct request *q, struct request_args *args);
void control_describe(struct request *q, struct request_args *args);

#endif
