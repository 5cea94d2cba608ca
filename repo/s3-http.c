/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/s3-http.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "repo/curl-lib.h"
#include "repo/s3-target.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <strings.h>

#define KEPT_MAX 16           /* idle handles, each with a connection */
#define LOOK_MS 100           /* how often `stop` is looked at */
#define BUFFER (128L << 10)   /* of libcurl, of a transfer in either direction */
#define THROTTLED (16L << 10) /* likewise, of a transfer with a limit */

struct handle {
    CURLM *multi;
    CURL *easy;
    struct handle *next;
};

struct s3_http {
    const struct curl_lib *lib;
    char *ca_file, *ca_text;
    unsigned stall_s, connect_s, hurry_s;
    pthread_mutex_t lock;
    struct handle *idle;
    unsigned n_idle;
    /* Where somebody else makes the connections. */
    const struct s3_dial *dial;
    struct s3_target targets[S3_TARGETS_MAX];
    unsigned n_targets;
    struct curl_slist *resolved; /* of libcurl, which must not resolve names: each target's is a number */
    char proxy[512];             /* instead of that of the environment; "": that one */
};

static int dial_prepare(struct s3_http *h, const struct s3_http_opts *o);

int s3_http_new(struct s3_http **ret, const struct s3_http_opts *o, struct err *e)
{
    const struct curl_lib *lib = curl_lib(e);
    if (!lib)
        return -ENOTSUP;
    struct s3_http *h = calloc(1, sizeof *h);
    if (!h)
        return err_nomem(e);
    h->lib = lib;
    pthread_mutex_init(&h->lock, NULL);
    h->stall_s = o->stall_s;
    h->connect_s = o->connect_s;
    h->hurry_s = o->hurry_s;
    if ((o->ca_file && *o->ca_file && !(h->ca_file = strdup(o->ca_file))) ||
        (o->ca_text && !(h->ca_text = strdup(o->ca_text))) || (o->dial && dial_prepare(h, o) < 0)) {
        s3_http_free(h);
        return err_nomem(e);
    }
    *ret = h;
    return 0;
}

static void handle_free(const struct curl_lib *lib, struct handle *n)
{
    if (n->easy)
        lib->easy_cleanup(n->easy);
    if (n->multi)
        lib->multi_cleanup(n->multi);
    free(n);
}

void s3_http_free(struct s3_http *h)
{
    if (!h)
        return;
    while (h->idle) {
        struct handle *n = h->idle;
        h->idle = n->next;
        handle_free(h->lib, n);
    }
    h->lib->slist_free_all(h->resolved);
    pthread_mutex_destroy(&h->lock);
    free(h->ca_file);
    free(h->ca_text);
    free(h);
}

/* The one used last: its connection is the most likely to be alive. */
static struct handle *handle_get(struct s3_http *h)
{
    pthread_mutex_lock(&h->lock);
    struct handle *n = h->idle;
    if (n) {
        h->idle = n->next;
        h->n_idle--;
    }
    pthread_mutex_unlock(&h->lock);
    if (n || !(n = calloc(1, sizeof *n)))
        return n;
    n->multi = h->lib->multi_init();
    n->easy = h->lib->easy_init();
    if (!n->multi || !n->easy) {
        handle_free(h->lib, n);
        return NULL;
    }
    h->lib->multi_setopt(n->multi, CURLMOPT_MAXCONNECTS, 1L);
    return n;
}

/* One whose transfer failed is not used again: neither its connection nor its state can be relied on. */
static void handle_put(struct s3_http *h, struct handle *n, bool good)
{
    /* Nothing of the request stays in it: it had a session token. The connection is the multi handle's. */
    h->lib->easy_reset(n->easy);
    pthread_mutex_lock(&h->lock);
    const bool keep = good && h->n_idle < KEPT_MAX;
    if (keep) {
        n->next = h->idle;
        h->idle = n;
        h->n_idle++;
    }
    pthread_mutex_unlock(&h->lock);
    if (!keep)
        handle_free(h->lib, n);
}

/* ---- what libcurl calls ---- */

static bool stopped(const struct s3_exchange *x)
{
    return x->stop && atomic_load_explicit(x->stop, memory_order_relaxed);
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    struct s3_exchange *x = arg;
    const size_t len = size * n;
    if (x->sink && !x->page && (x->status == 200 || x->status == 206)) {
        throttle_wait(x->reads, len);
        return x->sink(x, data, len) >= 0 ? len : CURL_WRITEFUNC_ERROR;
    }
    const size_t room = S3_ERROR_BODY - x->error_len, keep = len < room ? len : room;
    memcpy(x->error + x->error_len, data, keep);
    x->error_len += keep;
    x->error[x->error_len] = '\0';
    return len;
}

static size_t on_request_body(char *to, size_t size, size_t n, void *arg)
{
    struct s3_exchange *x = arg;
    uint64_t len = size * n;
    if (len > x->length - x->sent)
        len = x->length - x->sent;
    if (len == 0)
        return 0;
    if (x->data) {
        memcpy(to, (const char *)x->data + x->sent, len);
    } else {
        const ssize_t got = pread(x->fd, to, len, (off_t)x->sent);
        if (got <= 0)
            return CURL_READFUNC_ABORT;
        len = (uint64_t)got;
    }
    throttle_wait(x->writes, len);
    x->sent += len;
    return len;
}

/* A kept connection that the server had closed: the body is sent once more over a new one. */
static int on_rewind(void *arg, curl_off_t to, int whence)
{
    struct s3_exchange *x = arg;
    if (whence != SEEK_SET || to < 0 || (uint64_t)to > x->length)
        return CURL_SEEKFUNC_FAIL;
    x->sent = (uint64_t)to;
    return CURL_SEEKFUNC_OK;
}

/* The value of a header of that name, as a string in `out`. */
static bool header_is(const char *line, size_t len, const char *name, char *out, size_t cap)
{
    const size_t n = strlen(name);
    if (len <= n || strncasecmp(line, name, n) != 0 || line[n] != ':')
        return false;
    size_t from = n + 1;
    while (from < len && (line[from] == ' ' || line[from] == '\t'))
        from++;
    while (len > from && strchr(" \t\r\n", line[len - 1]))
        len--;
    snprintf(out, cap, "%.*s", (int)(len - from), line + from);
    return true;
}

static int64_t date_of(const struct s3_exchange *x, const char *text)
{
    const time_t t = x->by->lib->getdate(text, NULL);
    return t > 0 && t < INT64_MAX / NS_PER_S ? (int64_t)t * NS_PER_S : 0;
}

static void on_range(struct s3_exchange *x, const char *text)
{
    long long from, to, total;
    if (sscanf(text, "bytes %lld-%lld/%lld", &from, &to, &total) == 3 && from >= 0 && to >= from && total > to) {
        x->range_from = from;
        x->range_total = total;
    }
}

static void response_reset(struct s3_exchange *x)
{
    x->status = 0;
    x->date_ns = x->modified_ns = 0;
    x->content_length = x->range_from = x->range_total = -1;
    x->retry_after_s = 0;
    x->page = false;
    x->region[0] = x->error[0] = '\0';
    x->error_len = 0;
}

static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
    struct s3_exchange *x = arg;
    const size_t len = size * n;
    char v[128];
    if (len > 9 && !strncmp(line, "HTTP/", 5)) { /* of an interim response or of the final one */
        response_reset(x);
        const char *blank = memchr(line, ' ', len);
        x->status = blank ? strtol(blank, NULL, 10) : 0;
    } else if (header_is(line, len, "date", v, sizeof v)) {
        x->date_ns = date_of(x, v);
    } else if (header_is(line, len, "last-modified", v, sizeof v)) {
        x->modified_ns = date_of(x, v);
    } else if (header_is(line, len, "content-range", v, sizeof v)) {
        on_range(x, v);
    } else if (header_is(line, len, "content-length", v, sizeof v)) {
        x->content_length = strtoll(v, NULL, 10);
    } else if (header_is(line, len, "content-type", v, sizeof v)) {
        x->page = !strncasecmp(v, "text/html", 9);
    } else if (header_is(line, len, "retry-after", v, sizeof v)) {
        const long s = strtol(v, NULL, 10); /* a date has none */
        x->retry_after_s = s > 0 && s < 86400 ? (unsigned)s : 0;
    } else if (header_is(line, len, "x-amz-bucket-region", v, sizeof v)) {
        snprintf(x->region, sizeof x->region, "%s", v);
    }
    return len;
}

/* ---- connections of somebody else ---- */

struct pace {
    curl_off_t moved;
    int64_t since_ns;
};

/* Whether nothing has moved for hurry_s since it was wanted that transfers end. */
static bool too_slow(const struct s3_http *h, const struct s3_exchange *x, curl_off_t moved, struct pace *p)
{
    if (!x->hurry || !atomic_load_explicit(x->hurry, memory_order_relaxed))
        return false;
    const int64_t now = mono_ns();
    if (!p->since_ns || p->moved != moved)
        *p = (struct pace){moved, now};
    return now - p->since_ns > h->hurry_s * NS_PER_S;
}

/*
 * libcurl takes a connected socket, but it insists on an address first. So it finds one for each target that is a name:
 * 192.0.2.1, 192.0.2.2 (RFC 5737, of nobody), by which it is known again when the socket is wanted. What is an address
 * already stays one. Names of URLs, of TLS and of requests to a proxy are not affected.
 */
#define NUMBERED "192.0.2.%u"

static bool is_address(const char *host)
{
    struct in6_addr any;
    return inet_pton(AF_INET, host, &any) == 1 || inet_pton(AF_INET6, host, &any) == 1;
}

static int dial_prepare(struct s3_http *h, const struct s3_http_opts *o)
{
    h->dial = o->dial;
    h->n_targets = s3_targets(h->targets, o->scheme, o->host);
    s3_proxy_by_name(h->proxy, sizeof h->proxy, s3_proxy_variable(o->scheme));
    for (unsigned i = 0; i < h->n_targets; i++) {
        char text[320];
        if (is_address(h->targets[i].host))
            continue;
        snprintf(text, sizeof text, "%s:%u:" NUMBERED, h->targets[i].host, h->targets[i].port, i + 1);
        struct curl_slist *more = h->lib->slist_append(h->resolved, text);
        if (!more)
            return -ENOMEM;
        h->resolved = more;
    }
    return 0;
}

static bool target_has(const struct s3_target *t, unsigned i, const struct sockaddr *a)
{
    char number[INET6_ADDRSTRLEN];
    const char *host = t->host;
    const void *of = a->sa_family == AF_INET ? (const void *)&((const struct sockaddr_in *)a)->sin_addr
                                             : (const void *)&((const struct sockaddr_in6 *)a)->sin6_addr;
    uint8_t want[sizeof(struct in6_addr)];
    if (!is_address(host)) {
        snprintf(number, sizeof number, NUMBERED, i + 1);
        host = number;
    }
    /* The port is at the same place in both. */
    return inet_pton(a->sa_family, host, want) == 1 &&
           !memcmp(want, of, a->sa_family == AF_INET ? sizeof(struct in_addr) : sizeof(struct in6_addr)) &&
           ntohs(((const struct sockaddr_in *)a)->sin_port) == t->port;
}

struct wish {
    const struct s3_exchange *x;
    struct pace pace;
};

static bool given_up(void *arg)
{
    struct wish *w = arg;
    return stopped(w->x) || too_slow(w->x->by, w->x, 0, &w->pace);
}

static curl_socket_t on_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct s3_exchange *x = arg;
    const struct s3_http *h = x->by;
    struct wish wish = {.x = x};
    unsigned i = 0;
    while (i < h->n_targets && !target_has(&h->targets[i], i, &a->addr))
        i++;
    if (purpose != CURLSOCKTYPE_IPCXN || (a->family != AF_INET && a->family != AF_INET6) || i == h->n_targets) {
        x->dialed = -EPERM;
        snprintf(x->dial_why, sizeof x->dial_why, "it is not where this repository is");
        return CURL_SOCKET_BAD;
    }
    x->dial_why[0] = '\0';
    const int fd =
        h->dial->dial(h->dial->arg, &h->targets[i], mono_ns() + h->connect_s * NS_PER_S, given_up, &wish, x->dial_why);
    x->dialed = fd < 0 ? fd : 0;
    return fd < 0 ? CURL_SOCKET_BAD : fd;
}

static int on_connect(void *arg, curl_socket_t fd, curlsocktype purpose)
{
    (void)arg;
    (void)fd;
    (void)purpose;
    return CURL_SOCKOPT_ALREADY_CONNECTED;
}

static bool set_dial(const struct s3_http *h, CURL *c, struct s3_exchange *x)
{
    const struct curl_lib *lib = h->lib;
    if (!h->dial)
        return true;
    return lib->easy_setopt(c, CURLOPT_RESOLVE, h->resolved) == CURLE_OK &&
           lib->easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, on_socket) == CURLE_OK &&
           lib->easy_setopt(c, CURLOPT_OPENSOCKETDATA, x) == CURLE_OK &&
           lib->easy_setopt(c, CURLOPT_SOCKOPTFUNCTION, on_connect) == CURLE_OK &&
           (!h->proxy[0] || lib->easy_setopt(c, CURLOPT_PROXY, h->proxy) == CURLE_OK);
}

/* Of an exchange that has got no connection. */
static enum s3_result dial_result(struct s3_exchange *x)
{
    snprintf(x->why, sizeof x->why, "%s", x->dial_why);
    switch (x->dialed) {
    case -ENOENT:
        return S3_NO_HOST;
    case -ECANCELED: /* a hurry: a stop was seen before */
    case -ETIMEDOUT:
        return S3_STALLED;
    case -ENOMEM:
        return S3_NO_MEMORY;
    default:
        return S3_UNREACHABLE;
    }
}

/* ---- a request ---- */

static bool set_authorities(const struct s3_http *h, CURL *c)
{
    struct curl_blob text = {h->ca_text, h->ca_text ? strlen(h->ca_text) : 0, CURL_BLOB_NOCOPY};
    if (!h->ca_text && !h->ca_file)
        return true;
    const struct curl_lib *lib = h->lib;
    return lib->easy_setopt(c, CURLOPT_CAPATH, NULL) == CURLE_OK &&
           lib->easy_setopt(c, CURLOPT_CAINFO, h->ca_text ? NULL : h->ca_file) == CURLE_OK &&
           (!h->ca_text || lib->easy_setopt(c, CURLOPT_CAINFO_BLOB, &text) == CURLE_OK);
}

static bool set_up(struct s3_http *h, CURL *c, struct s3_exchange *x, struct curl_slist *headers)
{
#define SET(option, value)                                                                                             \
    do {                                                                                                               \
        if (h->lib->easy_setopt(c, CURLOPT_##option, value) != CURLE_OK)                                               \
            return false;                                                                                              \
    } while (0)
    SET(URL, x->url);
    SET(PROTOCOLS_STR, "http,https");
    SET(HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(NOSIGNAL, 1L);
#if LIBCURL_VERSION_NUM >= 0x075700
    /* A stop does not wait for a name server; the library that is loaded may be older, and does. */
    h->lib->easy_setopt(c, CURLOPT_QUICK_EXIT, 1L);
#endif
    SET(FOLLOWLOCATION, 0L);
    SET(PATH_AS_IS, 1L);
    SET(HTTPHEADER, headers);
    SET(ERRORBUFFER, x->why);
    SET(USERAGENT, "snapferry/" SNAPFERRY_VERSION);
    SET(CONNECTTIMEOUT, (long)h->connect_s);
    SET(LOW_SPEED_LIMIT, 1024L);
    SET(LOW_SPEED_TIME, (long)h->stall_s);
    SET(TCP_KEEPALIVE, 1L);
    SET(BUFFERSIZE, x->reads && x->reads->rate ? THROTTLED : BUFFER);
    SET(UPLOAD_BUFFERSIZE, x->writes && x->writes->rate ? THROTTLED : BUFFER);
    SET(SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (!set_authorities(h, c) || !set_dial(h, c, x))
        return false;
    SET(HEADERFUNCTION, on_header);
    SET(HEADERDATA, x);
    SET(WRITEFUNCTION, on_body);
    SET(WRITEDATA, x);
    if (x->has_body) {
        SET(UPLOAD, 1L);
        SET(INFILESIZE_LARGE, (curl_off_t)x->length);
        SET(READFUNCTION, on_request_body);
        SET(READDATA, x);
        SET(SEEKFUNCTION, on_rewind);
        SET(SEEKDATA, x);
    } else if (!strcmp(x->method, "HEAD")) {
        SET(NOBODY, 1L);
    }
    SET(CUSTOMREQUEST, x->method);
    return true;
#undef SET
}

static enum s3_result result_of(CURLcode code)
{
    switch (code) {
    case CURLE_OK:
        return S3_ANSWERED;
    case CURLE_WRITE_ERROR:
    case CURLE_ABORTED_BY_CALLBACK:
    case CURLE_READ_ERROR:
        return S3_SINK;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return S3_NO_HOST;
    case CURLE_COULDNT_CONNECT:
        return S3_UNREACHABLE;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CONNECT_ERROR:
        return S3_CERTIFICATE;
    case CURLE_OPERATION_TIMEDOUT:
        return S3_STALLED;
    case CURLE_OUT_OF_MEMORY:
        return S3_NO_MEMORY;
    default:
        return S3_BROKEN;
    }
}

static curl_off_t moved_bytes(const struct s3_http *h, CURL *c)
{
    curl_off_t up = 0, down = 0;
    h->lib->easy_getinfo(c, CURLINFO_SIZE_UPLOAD_T, &up);
    h->lib->easy_getinfo(c, CURLINFO_SIZE_DOWNLOAD_T, &down);
    return up + down;
}

static enum s3_result transfer(const struct s3_http *h, CURLM *m, CURL *c, struct s3_exchange *x)
{
    int running = 1;
    struct pace pace = {0, 0};
    for (;;) {
        if (h->lib->multi_perform(m, &running) != CURLM_OK)
            return S3_NO_MEMORY;
        if (stopped(x))
            return S3_STOPPED;
        if (!running)
            break;
        if (too_slow(h, x, moved_bytes(h, c), &pace))
            return S3_STALLED;
        if (h->lib->multi_poll(m, NULL, 0, LOOK_MS, NULL) != CURLM_OK)
            return S3_NO_MEMORY;
    }
    int left;
    const CURLMsg *msg = h->lib->multi_info_read(m, &left);
    if (!msg || msg->msg != CURLMSG_DONE)
        return S3_BROKEN;
    if (msg->data.result != CURLE_OK && x->dialed < 0)
        return dial_result(x);
    if (msg->data.result != CURLE_OK && !x->why[0])
        snprintf(x->why, sizeof x->why, "%s", h->lib->easy_strerror(msg->data.result));
    long tunnel = 0;
    h->lib->easy_getinfo(c, CURLINFO_HTTP_CONNECTCODE, &tunnel);
    if (msg->data.result != CURLE_OK && tunnel >= 400 && tunnel < 500) {
        x->status = tunnel;
        return S3_PROXY;
    }
    return result_of(msg->data.result);
}

static struct curl_slist *headers_of(const struct curl_lib *lib, const struct s3_exchange *x)
{
    /* No "Expect: 100-continue", which costs a round trip. */
    struct curl_slist *all = lib->slist_append(NULL, "Expect:");
    for (const char *const *h = x->headers; all && *h; h++) {
        struct curl_slist *more = lib->slist_append(all, *h);
        if (!more) {
            lib->slist_free_all(all);
            return NULL;
        }
        all = more;
    }
    return all;
}

enum s3_result s3_http_do(struct s3_http *h, struct s3_exchange *x)
{
    response_reset(x);
    x->by = h;
    x->sent = 0;
    x->why[0] = '\0';
    x->dialed = 0;
    if (stopped(x))
        return S3_STOPPED;
    struct handle *n = handle_get(h);
    struct curl_slist *headers = n ? headers_of(h->lib, x) : NULL;
    enum s3_result ret = S3_NO_MEMORY;
    if (headers && set_up(h, n->easy, x, headers) && h->lib->multi_add_handle(n->multi, n->easy) == CURLM_OK) {
        ret = transfer(h, n->multi, n->easy, x);
        h->lib->multi_remove_handle(n->multi, n->easy);
    }
    if (n)
        handle_put(h, n, ret == S3_ANSWERED);
    /* A session token is among them. */
    for (struct curl_slist *i = headers; i; i = i->next)
        explicit_bzero(i->data, strlen(i->data));
    h->lib->slist_free_all(headers);
    return ret;
}
