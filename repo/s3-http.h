/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * s3-http.h - one HTTP request at a time for each calling thread, over kept connections (libcurl; internal to repo/)
 *
 * Each request has a multi handle of its own with one transfer: its loop looks at `stop` ten times a second whatever
 * the transfer waits for (name service, connection, TLS, the server), and the number of connections is that of the
 * threads that call. A common multi handle would need a thread of its own, and all TLS would run in it. Handles are
 * pooled with their connections. Nothing is repeated here, and nothing is followed.
 */
#ifndef SNAPFERRY_REPO_S3_HTTP_H
#define SNAPFERRY_REPO_S3_HTTP_H

#include "base/err.h"
#include "base/throttle.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct s3_dial;
struct s3_http;

struct s3_http_opts {
    const char *ca_file; /* certificates to trust; NULL or "": the system's */
    const char *ca_text; /* the same as text, instead of a file; NULL: none */
    unsigned stall_s;    /* a transfer that moves less than 1 KiB/s for so long is given up */
    unsigned connect_s, hurry_s;
    /* Who makes the connections: blob-s3.h; with it the scheme and the host, with its port, of all URLs. NULL: libcurl
     * does. */
    const struct s3_dial *dial;
    const char *scheme, *host;
};

enum s3_result {
    S3_ANSWERED,    /* a whole response, of any status */
    S3_STOPPED,     /* `stop` was set */
    S3_SINK,        /* the sink refused, or the body of the request could not be read */
    S3_NO_HOST,     /* the name has no address */
    S3_UNREACHABLE, /* no connection */
    S3_PROXY,       /* the proxy of the environment refuses to connect: `status` is its own */
    S3_CERTIFICATE, /* the server's certificate or the TLS connection is refused */
    S3_STALLED,     /* nothing moved for too long */
    S3_BROKEN,      /* the connection ended, or what came is no HTTP or too short */
    S3_NO_MEMORY
};

#define S3_ERROR_BODY 8192

struct s3_exchange {
    /* the request; what is pointed to stays the caller's */
    const char *method, *url;
    const char *const *headers; /* "name: value", NULL-terminated */
    bool has_body;
    const void *data; /* the body: memory, or where NULL the first `length` bytes of fd */
    int fd;
    uint64_t length;
    /* Gets the body of a response of 200 or 206 that is no page; negative: ends the transfer. */
    int (*sink)(struct s3_exchange *x, const void *data, size_t len);
    void *arg;
    struct throttle *reads, *writes; /* of bodies; NULL: no limit */
    const _Atomic bool *stop;        /* NULL: never */
    const _Atomic bool *hurry;       /* once true a transfer that does not move at all is given up after hurry_s */
    /* the response */
    long status;
    int64_t date_ns, modified_ns;    /* of its headers Date and Last-Modified; 0: none */
    int64_t content_length;          /* -1: unknown */
    int64_t range_from, range_total; /* of Content-Range; -1: none */
    unsigned retry_after_s;          /* Retry-After in seconds; 0: none */
    bool page;                       /* it is a page of the web: of what stands before the server */
    char region[64];                 /* x-amz-bucket-region */
    char error[S3_ERROR_BODY + 1];   /* the body that no sink gets, cut */
    size_t error_len;
    char why[256]; /* of a failure, in words */
    /* private */
    uint64_t sent;
    const struct s3_http *by;
    int dialed;         /* negative: there was no connection */
    char dial_why[256]; /* then */
};

/* Thread-safe. ERR_USAGE: libcurl is not installed. */
int s3_http_new(struct s3_http **ret, const struct s3_http_opts *o, struct err *e);
void s3_http_free(struct s3_http *h); /* no request is in progress; NULL allowed */
/* Thread-safe, but for the same exchange. */
enum s3_result s3_http_do(struct s3_http *h, struct s3_exchange *x);

#endif
