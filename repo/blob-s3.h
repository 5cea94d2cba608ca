/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blob-s3.h - blobs as objects of a bucket in S3-compatible storage (Kopia repository format, section 2.3)
 *
 * The key of an object is the prefix, as it is, followed by the name of the blob. A put is one PutObject with
 * Content-MD5, and the server's answer to it is what makes a blob durable; ETags are not looked at. A pack is written
 * into a file without a name until it is put. Lists contain what this process has put lately, and not what it has
 * deleted, whatever the server lists; what others that use the same directory have done is asked for where the list
 * does not agree (s3-journal.h). The object .storageconfig, which is no blob, says the storage class of what is put
 * (s3-class.h). Requests that fail for reasons that pass are repeated a bounded number of times with growing pauses;
 * each wait ends soon after blobs_stop()'s flag is set.
 */
#ifndef SNAPFERRY_REPO_BLOB_S3_H
#define SNAPFERRY_REPO_BLOB_S3_H

#include "repo/blob.h"
#include "repo/s3-sign.h"

#define S3_UPLOADS_MAX 32

/* Where a store connects to. */
struct s3_target {
    char host[256]; /* a name, or an address without brackets */
    uint16_t port;
};
#define S3_TARGETS_MAX 2

/*
 * Who makes the connections of a store in a process that may not. `dial` connects to one of s3_place_targets() until
 * the monotonic time `until_ns`, and asks `given_up` ten times a second whether the connection is still wanted. It
 * returns a connected, non-blocking socket (the caller's), or a negative errno and, in `why`, what happened: -ENOENT
 * the name has no address, -ETIMEDOUT, -ECANCELED given up, others no connection. Called by any number of threads at
 * the same time. The process must not be able to connect, and connect() must fail with EINPROGRESS: libcurl 7.88
 * connects what it was told is connected.
 */
struct s3_dial {
    int (*dial)(void *arg, const struct s3_target *to, int64_t until_ns, bool (*given_up)(void *), void *given_up_arg,
                char why[256]);
    void *arg;
};

struct s3_place {
    const char *endpoint;        /* "https://HOST[:PORT]" or "http://..."; without either https:// */
    const char *bucket, *prefix; /* prefix: "" or text of each key's beginning, mostly with a slash at its end */
    const char *region;          /* "": us-east-1 */
    const char *credentials;     /* file or cred:NAME, read again when the server refuses what it had; NULL: keys */
    const struct s3_keys *keys; /* NULL, or what to begin with, copied: then credentials is only its name in messages */
    /* With keys: gets those that are valid now, when the server refuses what it had; NULL: there are no others. It may
     * wait, and is called by one thread at a time. Negative: it could not. */
    int (*renew)(struct s3_keys *ret, void *arg);
    void *renew_arg;
    unsigned renew_s;    /* keys are refused after a request had succeeded: so long others are waited for; 0: not */
    const char *ca_file; /* PEM; NULL or "": the system's */
    const char *ca_text; /* PEM itself, instead of a file; NULL: none; copied */
    unsigned uploads;    /* packs at a time, at most S3_UPLOADS_MAX; 0: 5 */
    bool virtual_host;   /* BUCKET.HOST/KEY; else HOST/BUCKET/KEY */
    int64_t at_ns;       /* read only, as everything was at that time by the versions of the objects; 0: as it is */
    const struct s3_dial
        *dial;         /* makes all connections, and resolves all names; NULL: the store does. Must outlive it */
    const char *spool; /* directory for packs on their way and the journal; can be created */
    unsigned stall_s, connect_s, hurry_s; /* 0: defaults */
    unsigned tries, pause_ms;             /* likewise: requests at most, and the first pause between two */
};

/* Checks what can be checked without the server: ERR_USAGE. */
int s3_place_check(const struct s3_place *p, struct err *e);
/* Where such a store connects to, of its endpoint, which has been checked, and of the proxy that the environment of
 * this process names: how many there are. The proxy is there even if no_proxy has the endpoint. */
unsigned s3_place_targets(const struct s3_place *p, struct s3_target ret[S3_TARGETS_MAX]);

/*
 * Reads the credentials. BLOBS_OPEN makes no request (blobs_prepare() does one), or with at_ns one, which is for the
 * bucket's versioning; BLOBS_CREATE makes one list: the bucket must exist, and no object below the prefix (ERR_EXISTS).
 * Errors of requests: ERR_NO_REPO (no such bucket), ERR_PERMISSION (keys, rights), ERR_CLOCK (after one correction),
 * ERR_NO_SPACE, ERR_GENERIC with a hint.
 *
 * With at_ns: each blob is the newest version that is not newer, and does not exist if that is a delete marker; what
 * puts or deletes is -EROFS (ERR_USAGE). A bucket without versions is ERR_USAGE. A version that has been removed since
 * is a missing blob.
 */
int blobs_open_s3(struct blobs **ret, const struct s3_place *p, enum blobs_open_mode mode, struct err *e);

#endif
