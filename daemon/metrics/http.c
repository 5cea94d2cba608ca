/* SPDX-License-Identifier: GPL-2.0-or-later */
/* http.c - requests: what is served */
#include "daemon/metrics/http.h"

#include "base/cleanup.h"
#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define REQUEST_MEMORY 16384 /* of a connection: request line and headers must fit, or it is refused */
#define IDLE_SECONDS 15
#define TEXT "text/plain; charset=utf-8"
#define EXPOSITION "text/plain; version=0.0.4; charset=utf-8"

/* A connection, from accept to close; the list belongs to the serving thread. */
struct client {
    struct client *next, **prev;
    struct http *http;
    int fd;
    int64_t since_ns; /* of its beginning or its last answer */
    bool served;      /* at least once: it is idle, the others are unfinished */
};

struct http {
    struct MHD_Daemon *mhd;
    struct exchange *exchange;
    struct client *clients;
    unsigned n_clients;
    char complaint[256]; /* of libmicrohttpd, during its start */
    bool started;
};

static enum MHD_Result give(struct MHD_Connection *c, unsigned code, struct MHD_Response *r, const char *type)
{
    if (!r)
        return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result rc = MHD_queue_response(c, code, r);
    MHD_destroy_response(r);
    return rc;
}

static enum MHD_Result say(struct MHD_Connection *c, unsigned code, const char *line)
{
    return give(c, code, MHD_create_response_from_buffer(strlen(line), (void *)line, MHD_RESPMEM_MUST_COPY), TEXT);
}

/* ---- what is served ---- */

static void page_done(void *arg)
{
    page_unref(arg);
}

static enum MHD_Result metrics(struct http *h, struct MHD_Connection *c)
{
    int64_t age;
    char seconds[32];
    struct page *p = exchange_page(h->exchange, &age);
    if (!p)
        return say(c, MHD_HTTP_SERVICE_UNAVAILABLE, "There are no metrics yet.\n");
    size_t len;
    const char *text = page_text(p, &len);
    struct MHD_Response *r =
        text ? MHD_create_response_from_buffer_with_free_callback_cls(len, (void *)(uintptr_t)text, page_done, p)
             : NULL;
    if (!r) {
        page_unref(p);
        return MHD_NO;
    }
    snprintf(seconds, sizeof seconds, "%lld", (long long)(age / NS_PER_S));
    MHD_add_response_header(r, MHD_HTTP_HEADER_AGE, seconds);
    return give(c, MHD_HTTP_OK, r, EXPOSITION);
}

static enum MHD_Result health(struct http *h, struct MHD_Connection *c)
{
    char line[128];
    int64_t age = exchange_loop_age(h->exchange);
    if (age < LOOP_DEAD_NS)
        return say(c, MHD_HTTP_OK, "ok\n");
    snprintf(line, sizeof line, "The event loop has not turned for %lld s.\n", (long long)(age / NS_PER_S));
    return say(c, MHD_HTTP_SERVICE_UNAVAILABLE, line);
}

static enum MHD_Result readiness(struct http *h, struct MHD_Connection *c)
{
    char why[256], line[300];
    if (exchange_ready(h->exchange, why, sizeof why))
        return say(c, MHD_HTTP_OK, "ready\n");
    snprintf(line, sizeof line, "Not ready: %s.\n", why);
    return say(c, MHD_HTTP_SERVICE_UNAVAILABLE, line);
}

static bool has_body(struct MHD_Connection *c)
{
    const char *n = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return (n && strcmp(n, "0") != 0) ||
           MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_TRANSFER_ENCODING);
}

static enum MHD_Result answer(struct http *h, struct MHD_Connection *c, const char *url)
{
    if (!strcmp(url, "/metrics"))
        return metrics(h, c);
    if (!strcmp(url, "/healthz"))
        return health(h, c);
    if (!strcmp(url, "/readyz"))
        return readiness(h, c);
    return say(c, MHD_HTTP_NOT_FOUND, "There is nothing here; /metrics, /healthz and /readyz are served.\n");
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *url, const char *method,
                                  const char *version, const char *data, size_t *data_len, void **state)
{
    static char seen;
    struct http *h = arg;
    (void)version, (void)data;
    /* Requests that can be refused by their headers; the connection ends. */
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return say(c, MHD_HTTP_METHOD_NOT_ALLOWED, "Only GET and HEAD are served here.\n");
    if (has_body(c))
        return say(c, MHD_HTTP_CONTENT_TOO_LARGE, "A request has no body here.\n");
    if (!*state) {
        *state = &seen;
        return MHD_YES;
    }
    *data_len = 0;
    return answer(h, c, url);
}

/* ---- connections ---- */

/* Which of two is closed first when there is no room: unfinished requests before idle connections, the older first. */
static bool goes_before(const struct client *a, const struct client *b)
{
    if (a->served != b->served)
        return !a->served;
    return a->since_ns < b->since_ns;
}

static void make_room(struct http *h)
{
    struct client *worst = h->clients;
    for (struct client *c = h->clients; c; c = c->next)
        if (goes_before(c, worst))
            worst = c;
    /* The library sees the end of the stream and closes it. */
    if (worst) {
        shutdown(worst->fd, SHUT_RDWR);
        worst->since_ns = INT64_MAX; /* not once more */
        worst->served = true;
    }
}

static void on_connection(void *arg, struct MHD_Connection *c, void **context, enum MHD_ConnectionNotificationCode code)
{
    struct http *h = arg;
    struct client *k = *context;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        if (h->n_clients >= HTTP_CONNECTIONS)
            make_room(h);
        k = calloc(1, sizeof *k);
        if (!k || !info) {
            free(k);
            return;
        }
        *k = (struct client){h->clients, &h->clients, h, info->connect_fd, mono_ns(), false};
        if (h->clients)
            h->clients->prev = &k->next;
        h->clients = k;
        h->n_clients++;
        *context = k;
    } else if (k) {
        *k->prev = k->next;
        if (k->next)
            k->next->prev = k->prev;
        h->n_clients--;
        *context = NULL;
        free(k);
    }
}

static void on_completed(void *arg, struct MHD_Connection *c, void **state, enum MHD_RequestTerminationCode code)
{
    (void)arg, (void)state;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct client *k = info ? info->socket_context : NULL;
    if (!k || k->since_ns == INT64_MAX || code != MHD_REQUEST_TERMINATED_COMPLETED_OK)
        return;
    k->served = true;
    k->since_ns = mono_ns();
}

/* ---- begin and end ---- */

__attribute__((format(printf, 2, 0))) static void on_complaint(void *arg, const char *fmt, va_list ap)
{
    struct http *h = arg;
    if (h->started)
        return; /* about clients; they must not fill the journal */
    vsnprintf(h->complaint, sizeof h->complaint, fmt, ap);
    h->complaint[strcspn(h->complaint, "\n")] = '\0';
}

static int start_mhd(struct http *h, int fd, struct err *e)
{
    /* No Date header: the C library's lock of the time zone stays free for children. */
    const unsigned flags =
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC | MHD_USE_ERROR_LOG | MHD_USE_SUPPRESS_DATE_NO_CLOCK;
    h->mhd = MHD_start_daemon(flags, 0, NULL, NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_complaint, h,
                              MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)HTTP_CONNECTIONS * 2,
                              MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)REQUEST_MEMORY, MHD_OPTION_CONNECTION_TIMEOUT,
                              (unsigned)IDLE_SECONDS, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_CONNECTION,
                              on_connection, h, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
                              MHD_OPTION_THREAD_STACK_SIZE, (size_t)262144, MHD_OPTION_END);
    if (h->mhd)
        return 0;
    return err_set(e, ERR_GENERIC, 0, "the HTTP server does not start: %s",
                   h->complaint[0] ? h->complaint : "no reason given");
}

static bool same_socket(int a, int b)
{
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int http_start(struct http **ret, struct exchange *x, int listening, struct err *e)
{
    struct http *h = calloc(1, sizeof *h);
    if (!h)
        return err_nomem(e);
    h->exchange = x;
    int fd = fcntl(listening, F_DUPFD_CLOEXEC, 3);
    int rc = fd < 0 ? err_set(e, ERR_GENERIC, errno, "no descriptor is left for the HTTP server") : 0;
    if (rc == 0)
        rc = start_mhd(h, fd, e);
    if (rc < 0) {
        if (fd >= 0 && same_socket(fd, listening)) /* the library closes it, but not after every failure */
            close(fd);
        free(h);
        return rc;
    }
    h->started = true;
    *ret = h;
    return 0;
}

void http_stop(struct http *h)
{
    if (!h)
        return;
    MHD_stop_daemon(h->mhd);
    free(h);
}
