/* SPDX-License-Identifier: GPL-2.0-or-later */
/* s3-call.h - requests of an S3 store: made, signed, repeated, and their errors explained (internal to blob-s3.c) */
#ifndef SNAPFERRY_REPO_S3_CALL_H
#define SNAPFERRY_REPO_S3_CALL_H

#include "repo/blob-ops.h"
#include "repo/s3-http.h"
#include "repo/s3-journal.h"
#include "repo/s3-recent.h"
#include "repo/s3-sign.h"
#include "repo/s3-xml.h"

#include <pthread.h>

struct s3_classes;
struct s3_past;
struct s3_spool;
struct s3_summer;

struct s3_store {
    struct blobs base;
    struct s3_past *past; /* NULL: the objects are used as they are now (s3-past.h) */
    struct s3_http *http;
    char *scheme, *host, *bucket, *prefix, *region, *credentials;
    struct s3_spool *spool;
    struct s3_classes *classes; /* of objects that are put (s3-class.h) */
    struct s3_summer *summer;   /* of what is uploaded: with SHA-256 where TLS does not protect it */
    bool tls;
    bool dotted; /* the bucket has a dot, and is part of a name for which there is a certificate */
    unsigned tries, pause_ms;
    pthread_rwlock_t keys_lock; /* of the next four */
    char lock_mode[16];         /* of objects that are put; "": none */
    int64_t lock_ns;
    struct s3_keys *keys;     /* those in use, and room for those that may follow them (under `renewing`): in memory of
                                 its own that is not in a core dump */
    unsigned keys_number;     /* how many there were */
    pthread_mutex_t renewing; /* one thread at a time gets others */
    int (*renew)(struct s3_keys *ret, void *arg);
    void *renew_arg;
    unsigned renew_s;
    _Atomic bool accepted;   /* a request has succeeded: the keys were right once */
    _Atomic int64_t skew_ns; /* the server's clock minus this machine's, where requests were refused for it */
    _Atomic bool answered;   /* ever */
    struct s3_recent recent;
    struct s3_journal *journal; /* NULL: of a view of the past */
};

/* One operation: what is asked, and what the last attempt gave. */
struct s3_call {
    struct s3_store *s;
    const char *method, *name; /* of the blob, NULL: of the bucket */
    const char *query;         /* "" or sorted and encoded */
    char range[64];            /* "" or the value of the header */
    const char *md5;           /* of the body, base64; NULL: no body */
    const char *body_hash;     /* SHA-256 of the body in hex; NULL: none */
    const char *storage_class; /* of a put; NULL or "": that of the bucket */
    int (*restart)(void *arg); /* of x.arg, before each attempt; NULL: nothing to do */
    struct s3_exchange x;
    enum s3_result result;
    unsigned keys_number; /* with which it was made */
    struct s3_error error;
};

/* Repeats a request until it has an answer that counts. 0: q->x has it, of whatever status; negative: stopped, or no
 * request could be made. Any thread. */
int s3_call(struct s3_call *q, struct err *e);
/* Of the last answer: a status of success; there is no such blob. */
bool s3_succeeded(const struct s3_call *q);
bool s3_missing(const struct s3_call *q);
/* What a call that did not succeed means, as an error. `what`: "read blob p... in ...". */
int s3_call_failed(const struct s3_call *q, const char *what, struct err *e);

#endif
