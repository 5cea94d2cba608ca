/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/s3-call.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "repo/blob-locks.h"

#include <errno.h>
#include <openssl/rand.h>
#include <stdatomic.h>
#include <string.h>

#define TRIES_FIRST 3 /* of a server that has never answered: more likely a wrong address than an outage */
#define PAUSE_MAX_MS 20000
#define RETRY_AFTER_MAX_S 60 /* of a pause that the server asks for */
#define TRIES_HURRY 2
#define LOOK_MS 50    /* how often a pause looks at the stop flag */
#define RENEW_MS 2000 /* between two looks for other keys */
#define RENEWALS 3    /* of one call: they may be replaced while it is repeated */
#define URL_MAX 4096
#define EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* ---- a request ---- */

static int make_url(const struct s3_call *q, char url[URL_MAX], char host[256], char path[URL_MAX], struct err *e)
{
    const struct s3_store *s = q->s;
    char key[1200], encoded[3700];
    snprintf(host, 256, "%s", s->host);
    snprintf(key, sizeof key, "%s%s", q->name ? s->prefix : "", q->name ? q->name : "");
    if (s3_encode(encoded, sizeof encoded, key, true) < 0)
        return err_set(e, ERR_USAGE, ENAMETOOLONG, "the key of blob %s is too long", q->name);
    /* A host of the bucket's own has been prefixed at opening. */
    if (s->bucket)
        snprintf(path, URL_MAX, "/%s%s%s", s->bucket, q->name ? "/" : "", encoded);
    else
        snprintf(path, URL_MAX, "/%s", encoded);
    if ((size_t)snprintf(url, URL_MAX, "%s://%s%s%s%s", s->scheme, s->host, path, *q->query ? "?" : "", q->query) >=
        URL_MAX)
        return err_set(e, ERR_USAGE, ENAMETOOLONG, "a request to %s is too long", s->base.location);
    return 0;
}

struct header_list {
    struct s3_header h[12];
    size_t n;
};

static void header_add(struct header_list *l, const char *name, const char *value)
{
    if (value && *value)
        l->h[l->n++] = (struct s3_header){name, value};
}

/* Signs with what is known now, and makes the request once. */
static int attempt(struct s3_call *q, struct err *e)
{
    struct s3_store *s = q->s;
    char url[URL_MAX], path[URL_MAX], host[256], date[S3_DATE], sum[S3_AUTHORIZATION], *lines[13] = {NULL};
    char token[sizeof s->keys->token];
    char until[TIME_TEXT] = "", mode[sizeof s->lock_mode] = "";
    struct header_list l = {.n = 0};
    int rc = make_url(q, url, host, path, e);
    if (rc < 0)
        return rc;
    if (q->restart && q->restart(q->x.arg) < 0)
        return err_nomem(e);
    const int64_t now = now_ns() + atomic_load(&s->skew_ns);
    s3_date(date, now);
    pthread_rwlock_rdlock(&s->keys_lock);
    if (q->md5 && !*q->query && s->lock_mode[0] && blob_is_locked(q->name)) {
        memcpy(mode, s->lock_mode, sizeof mode);
        /* Whole seconds, rounded up: some servers know no fractions. */
        time_text((now / NS_PER_S + s->lock_ns / NS_PER_S + 1) * NS_PER_S, until);
    }
    memcpy(token, s->keys->token, sizeof token);
    q->keys_number = s->keys_number;
    const char *hash = q->body_hash ? q->body_hash : q->md5 ? S3_UNSIGNED : EMPTY_HASH;
    header_add(&l, "content-md5", q->md5);
    header_add(&l, "content-type", q->md5 ? "application/x-kopia" : NULL);
    header_add(&l, "host", host);
    header_add(&l, "range", q->range);
    header_add(&l, "x-amz-content-sha256", hash);
    header_add(&l, "x-amz-date", date);
    header_add(&l, "x-amz-object-lock-mode", mode);
    header_add(&l, "x-amz-object-lock-retain-until-date", until);
    header_add(&l, "x-amz-security-token", token);
    header_add(&l, "x-amz-storage-class", q->storage_class);
    const struct s3_request r = {.method = q->method,
                                 .region = s->region,
                                 .path = path,
                                 .query = q->query,
                                 .headers = l.h,
                                 .n_headers = l.n,
                                 .payload_hash = hash,
                                 .date = date};
    rc = s3_sign(sum, &r, s->keys, e);
    pthread_rwlock_unlock(&s->keys_lock);
    header_add(&l, "authorization", sum);
    for (size_t i = 0; rc == 0 && i < l.n; i++)
        if (asprintf(&lines[i], "%s: %s", l.h[i].name, l.h[i].value) < 0) {
            lines[i] = NULL;
            rc = err_nomem(e);
        }
    if (rc == 0) {
        q->x.method = q->method;
        q->x.url = url;
        q->x.headers = (const char *const *)lines;
        q->x.reads = s->base.reads;
        q->x.writes = s->base.writes;
        q->x.stop = s->base.stop;
        q->x.hurry = s->base.hurry;
        q->result = s3_http_do(s->http, &q->x);
    }
    explicit_bzero(token, sizeof token);
    for (size_t i = 0; i < l.n && lines[i]; i++) {
        explicit_bzero(lines[i], strlen(lines[i]));
        free(lines[i]);
    }
    return rc;
}

/* ---- what to do about an answer ---- */

enum verdict { OK, AGAIN, AGAIN_FIRST, AGAIN_CLOCK, AGAIN_KEYS, FINAL };

static bool code_is(const struct s3_call *q, const char *const *codes)
{
    for (; *codes; codes++)
        if (!strcmp(q->error.code, *codes))
            return true;
    return false;
}

/* Of a name in this list the server may say it while it is busy or the request was damaged on its way. */
static const char *const passing[] = {
    "SlowDown",       "InternalError",    "ServiceUnavailable",        "RequestTimeout",
    "Throttling",     "RequestTimeout",   "ThrottlingException",       "BadDigest",
    "IncompleteBody", "OperationAborted", "XAmzContentSHA256Mismatch", NULL};
static const char *const of_keys[] = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken",
                                      "InvalidToken",       "TokenRefreshRequired",  NULL};
/* Of Ceph, AWS and what follows it, and MinIO. */
static const char *const of_room[] = {"QuotaExceeded",     "InsufficientCapacity",           "InsufficientStorage",
                                      "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", NULL};
static const char *const of_clock[] = {"RequestTimeTooSkewed", "RequestExpired", NULL};

/* A status of success, and a document in the place of what was asked: of what stands before the server, or of a server
 * that has failed since it had sent the status. */
static bool is_other_document(const struct s3_call *q)
{
    const char *text = q->x.error;
    /* Swift has that type for an empty body. */
    if (q->x.page && (q->x.error_len > 0 || (!strcmp(q->method, "HEAD") && q->x.content_length != 0)))
        return true;
    return q->x.error_len > 0 && (q->error.code[0] || (q->x.has_body && text[strspn(text, " \t\r\n")] == '<'));
}

static enum verdict judge_status(const struct s3_call *q)
{
    const long status = q->x.status;
    const bool good = status == 200 || status == 204 || status == 206;
    if (good && !is_other_document(q))
        return OK;
    if (code_is(q, of_room)) /* whatever the status: some services say so with 403 or 503 */
        return FINAL;
    if (code_is(q, of_clock))
        return AGAIN_CLOCK;
    if (code_is(q, of_keys))
        return AGAIN_KEYS;
    if (good || code_is(q, passing) || status == 429 || status == 408 ||
        (status >= 500 && status != 501 && status != 505 && status != 507))
        return AGAIN;
    return FINAL;
}

static enum verdict judge(const struct s3_call *q)
{
    switch (q->result) {
    case S3_ANSWERED:
        return judge_status(q);
    case S3_NO_HOST:
    case S3_UNREACHABLE:
        return AGAIN_FIRST;
    case S3_STALLED:
    case S3_BROKEN:
        return AGAIN;
    case S3_STOPPED:
    case S3_SINK:
    case S3_PROXY:
    case S3_CERTIFICATE:
    case S3_NO_MEMORY:
        break;
    }
    return FINAL;
}

static int stopped(const struct s3_store *s, struct err *e)
{
    return s->base.stop && atomic_load_explicit(s->base.stop, memory_order_relaxed)
               ? err_set(e, ERR_INTERRUPTED, ECANCELED, "interrupted while %s was waited for", s->base.location)
               : 0;
}

static bool hurried(const struct s3_store *s)
{
    return s->base.hurry && atomic_load_explicit(s->base.hurry, memory_order_relaxed);
}

static void pause_ms(const struct s3_store *s, uint64_t ms)
{
    const int64_t until = mono_ns() + (int64_t)ms * NS_PER_MS;
    for (int64_t left; (left = until - mono_ns()) > 0 && stopped(s, NULL) == 0 && !hurried(s);) {
        const struct timespec t = ns_timespec(left < LOOK_MS * NS_PER_MS ? left : LOOK_MS * NS_PER_MS);
        nanosleep(&t, NULL);
    }
}

/* Between half and all of a pause that doubles; what the server asks for where that is longer. */
static void wait_before(const struct s3_store *s, unsigned tries, unsigned asked_s)
{
    uint64_t ms = s->pause_ms;
    for (unsigned i = 1; i < tries && ms < PAUSE_MAX_MS; i++)
        ms *= 2;
    if (ms > PAUSE_MAX_MS)
        ms = PAUSE_MAX_MS;
    uint32_t random = 0;
    RAND_bytes((uint8_t *)&random, sizeof random);
    const uint64_t asked_ms = 1000 * (uint64_t)(asked_s < RETRY_AFTER_MAX_S ? asked_s : RETRY_AFTER_MAX_S);
    ms = ms / 2 + random % (ms / 2 + 1);
    pause_ms(s, asked_ms > ms ? asked_ms + ms : ms);
}

/* Whether other keys than those that were refused are there now. */
static bool keys_look(struct s3_store *s, unsigned refused)
{
    struct s3_keys *k = s->keys + 1;
    bool others = false;
    pthread_mutex_lock(&s->renewing);
    pthread_rwlock_rdlock(&s->keys_lock);
    others = s->keys_number != refused; /* another thread has got them */
    pthread_rwlock_unlock(&s->keys_lock);
    if (!others && s->renew && s->renew(k, s->renew_arg) >= 0) {
        pthread_rwlock_wrlock(&s->keys_lock);
        others = strcmp(k->access, s->keys->access) || strcmp(k->secret, s->keys->secret) ||
                 strcmp(k->token, s->keys->token);
        if (others) {
            *s->keys = *k;
            s->keys_number++;
            log_info("the credentials in %s have changed and were read again",
                     s->credentials ? s->credentials : "the configuration");
        }
        pthread_rwlock_unlock(&s->keys_lock);
    }
    s3_keys_wipe(k);
    pthread_mutex_unlock(&s->renewing);
    return others;
}

/* Keys that were replaced are read again. Those that worked until now are about to be: whoever replaces them may
 * revoke them first. */
static bool keys_renew(const struct s3_call *q, unsigned *renewals)
{
    struct s3_store *s = q->s;
    const int64_t until = mono_ns() + (atomic_load(&s->accepted) ? s->renew_s : 0) * NS_PER_S;
    if (++*renewals > RENEWALS)
        return false;
    for (;;) {
        if (keys_look(s, q->keys_number))
            return true;
        if (mono_ns() >= until || stopped(s, NULL) < 0 || hurried(s))
            return false;
        pause_ms(s, RENEW_MS);
    }
}

/* The server's clock, once for a call. */
static bool clock_follow(struct s3_call *q, bool *corrected)
{
    if (*corrected || !q->x.date_ns)
        return false;
    *corrected = true;
    const int64_t skew = q->x.date_ns - now_ns();
    atomic_store(&q->s->skew_ns, skew);
    log_warning("the clock of %s differs from this machine's by %lld s: requests are dated by its clock", q->s->host,
                (long long)(skew / NS_PER_S));
    return true;
}

/* What went wrong, for a log line. */
static const char *reason(const struct s3_call *q)
{
    return q->result != S3_ANSWERED ? (q->x.why[0] ? q->x.why : "no answer") : q->error.code[0] ? q->error.code : "";
}

/* How often a request is made at most. */
static unsigned tries_of(const struct s3_store *s, enum verdict v)
{
    unsigned most = s->tries;
    if (v == AGAIN_FIRST && !atomic_load(&s->answered) && most > TRIES_FIRST)
        most = TRIES_FIRST;
    return hurried(s) && most > TRIES_HURRY ? TRIES_HURRY : most;
}

int s3_call(struct s3_call *q, struct err *e)
{
    struct s3_store *s = q->s;
    bool corrected = false;
    unsigned renewals = 0;
    for (unsigned n = 1;; n++) {
        int rc = attempt(q, e);
        if (rc < 0)
            return rc;
        q->error = (struct s3_error){.code = ""};
        if (q->result == S3_ANSWERED) {
            atomic_store(&s->answered, true);
            if (q->x.error_len)
                s3_error_parse(&q->error, q->x.error, q->x.error_len);
        }
        if (q->result == S3_STOPPED || (rc = stopped(s, NULL)) < 0)
            return err_set(e, ERR_INTERRUPTED, ECANCELED, "interrupted while %s was waited for", s->base.location);
        const enum verdict v = judge(q);
        if (v == OK)
            atomic_store(&s->accepted, true);
        const unsigned most = tries_of(s, v);
        if (v == OK || v == FINAL)
            return 0;
        if (v == AGAIN_CLOCK ? !clock_follow(q, &corrected) : v == AGAIN_KEYS ? !keys_renew(q, &renewals) : n >= most)
            return 0;
        __atomic_fetch_add(&s->base.requests.retries, 1, __ATOMIC_RELAXED);
        log_debug("%s %s in %s: %ld %s, repeated", q->method, q->name ? q->name : "list", s->base.location, q->x.status,
                  reason(q));
        if (v == AGAIN || v == AGAIN_FIRST)
            wait_before(s, n, q->result == S3_ANSWERED ? q->x.retry_after_s : 0);
    }
}

/* ---- errors ---- */

/* The variable that names the proxy, as libcurl chooses it: the one of the scheme first, which for http is not taken in
 * capitals, then the one for all; empty ones do not count. NULL: none does. */
static const char *proxy_variable(const struct s3_store *s)
{
    static const char *const tls[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", NULL};
    static const char *const plain[] = {"http_proxy", "all_proxy", "ALL_PROXY", NULL};
    for (const char *const *name = s->tls ? tls : plain; *name; name++) {
        const char *proxy = getenv(*name);
        if (proxy && *proxy)
            return *name;
    }
    return NULL;
}

/* Without TLS the answer of a proxy looks like one of the server, but 407 is a proxy's alone. */
static int fail_proxy(const struct s3_call *q, const char *what, struct err *e)
{
    err_set(e, ERR_PERMISSION, 0, "cannot %s: the proxy refuses to connect to %s (status %ld)", what, q->s->host,
            q->x.status);
    if (q->x.status == 407)
        return err_hint(e, "it wants a user and a password: set them in %s, as http://USER:PASSWORD@PROXY:PORT",
                        proxy_variable(q->s) ? proxy_variable(q->s) : "https_proxy");
    return err_hint(e, "allow it in the proxy, or name the server in no_proxy; the variables are those of the service");
}

static int fail_transport(const struct s3_call *q, const char *what, struct err *e)
{
    const struct s3_store *s = q->s;
    switch (q->result) {
    case S3_NO_HOST:
        err_plain(e, ERR_GENERIC, EHOSTUNREACH, "cannot %s: the name of %s has no address: %s", what, s->host,
                  q->x.why);
        return err_hint(e, "check endpoint, and the name service of this machine");
    case S3_UNREACHABLE:
        err_plain(e, ERR_GENERIC, ECONNREFUSED, "cannot %s: no connection to %s: %s", what, s->host, q->x.why);
        return err_hint(e, "check endpoint and its port; is the server running, and does a firewall let it through?");
    case S3_PROXY:
        return fail_proxy(q, what, e);
    case S3_CERTIFICATE:
        err_set(e, ERR_PERMISSION, 0, "cannot %s: the TLS connection to %s is not trusted: %s", what, s->host,
                q->x.why);
        if (s->dotted)
            return err_hint(
                e, "a certificate of the service fits no bucket with a dot in its name: set virtual-host = no; "
                   "for a certificate authority of your own set ca-file");
        return err_hint(e, "for a certificate authority of your own set ca-file; check the name in endpoint");
    case S3_STALLED:
        err_plain(e, ERR_GENERIC, ETIMEDOUT, "cannot %s: %s does not answer", what, s->host);
        return err_hint(e, "is the server overloaded, or the network down? The operation can be repeated");
    case S3_NO_MEMORY:
        return err_nomem(e);
    default:
        return err_plain(e, ERR_GENERIC, ECONNRESET, "cannot %s: the connection to %s failed: %s", what, s->host,
                         q->x.why);
    }
}

static int fail_keys(const struct s3_call *q, const char *what, struct err *e)
{
    const struct s3_store *s = q->s;
    const char *from = s->credentials ? s->credentials : "the configuration";
    err_set(e, ERR_PERMISSION, 0, "cannot %s: %s refuses the credentials: %s", what, s->host, q->error.code);
    if (!strcmp(q->error.code, "InvalidAccessKeyId"))
        return err_hint(e, "the server does not know the access-key in %s", from);
    if (!strcmp(q->error.code, "SignatureDoesNotMatch"))
        return err_hint(e, "the secret-key in %s does not belong to its access-key", from);
    return err_hint(e, "the session-token in %s has expired or is wrong: renew it", from);
}

static int fail_region(const struct s3_call *q, const char *what, const char *region, struct err *e)
{
    err_set(e, ERR_USAGE, 0, "cannot %s: the bucket is in another region than %s", what, q->s->region);
    return *region ? err_hint(e, "set region = %s", region) : err_hint(e, "set region to that of the bucket");
}

static int fail_final(const struct s3_call *q, const char *what, struct err *e)
{
    const struct s3_store *s = q->s;
    const char *text = q->error.message[0] ? q->error.message : q->error.code;
    if (q->x.status == 507 || code_is(q, of_room)) {
        err_set(e, ERR_NO_SPACE, ENOSPC, "cannot %s: %s", what, text);
        return err_hint(e,
                        "raise the quota of the bucket or the owner, or give the service room; maintenance frees what "
                        "no snapshot needs");
    }
    if (!strcmp(q->error.code, "InvalidObjectState")) {
        err_set(e, ERR_PERMISSION, 0, "cannot %s: it is in an archive of %s, and has to be restored there first", what,
                s->host);
        return err_hint(e, "restore the objects with the tools of the service (RestoreObject), then retry");
    }
    if (!strcmp(q->error.code, "InvalidStorageClass")) {
        err_set(e, ERR_USAGE, 0, "cannot %s: %s does not have the storage class %s", what, s->host,
                q->storage_class ? q->storage_class : "");
        return err_hint(e, "correct the object .storageconfig beside the blobs, or delete it");
    }
    if (q->x.status == 407)
        return fail_proxy(q, what, e);
    /* A refusal of the server has a document, but for HEAD. */
    if (q->x.status == 403 && !s->tls && !q->error.code[0] && strcmp(q->method, "HEAD") != 0 && proxy_variable(s))
        return fail_proxy(q, what, e);
    if (q->x.status == 403) {
        err_set(e, ERR_PERMISSION, 0, "cannot %s: %s denies it (%s)", what, s->host,
                q->error.code[0] ? q->error.code : "status 403");
        return err_hint(e, "the key needs the rights to list the bucket and to get, put and delete its objects");
    }
    if (q->x.status < 300) {
        err_plain(e, ERR_GENERIC, EREMOTEIO, "cannot %s: %s answers with %s%s%s", what, s->host,
                  q->error.code[0] ? "an error" : "a document that is none of S3", *text ? ": " : "", text);
        return err_hint(e, "does a proxy, a portal or another web server answer in the place of the storage? The "
                           "operation can be repeated");
    }
    /* What passes is worth another attempt of the whole operation. */
    err_plain(e, ERR_GENERIC, judge_status(q) == AGAIN ? EREMOTEIO : 0, "cannot %s: %s answered with status %ld%s%s",
              what, s->host, q->x.status, *text ? ": " : "", text);
    if (q->x.status == 501)
        return err_hint(e, "the server does not implement a request that is needed");
    if (judge_status(q) == AGAIN)
        err_hint(
            e,
            "the server is overloaded or out of order: look at its state and its log; the operation can be repeated");
    return e && e->sys ? -e->sys : -EIO;
}

int s3_call_failed(const struct s3_call *q, const char *what, struct err *e)
{
    const struct s3_store *s = q->s;
    if (q->result != S3_ANSWERED)
        return fail_transport(q, what, e);
    const char *region = q->error.region[0] ? q->error.region : q->x.region;
    if (!strcmp(q->error.code, "NoSuchBucket")) {
        /* Not ENOENT, which is a blob that is missing. */
        err_plain(e, ERR_NO_REPO, ENXIO, "cannot %s: there is no bucket of that name at %s", what, s->host);
        return err_hint(e,
                        "check bucket in the [repository] section, or create the bucket; this is never done for you");
    }
    if (code_is(q, of_clock)) {
        err_set(e, ERR_CLOCK, 0, "cannot %s: the clock of this machine is wrong for %s", what, s->host);
        return err_hint(e, "set the clock: `timedatectl` shows whether it is synchronised");
    }
    if (q->x.status == 301 || q->x.status == 307 || !strcmp(q->error.code, "AuthorizationHeaderMalformed") ||
        (q->x.status == 400 && *region))
        return fail_region(q, what, region, e);
    if (code_is(q, of_keys))
        return fail_keys(q, what, e);
    return fail_final(q, what, e);
}

/* A 404 without a document of S3 is no answer of the storage, but of what stands before it; HEAD has none. */
bool s3_missing(const struct s3_call *q)
{
    if (!q->error.code[0] && strcmp(q->method, "HEAD") != 0)
        return false;
    return q->result == S3_ANSWERED && q->x.status == 404 && strcmp(q->error.code, "NoSuchBucket") != 0;
}

bool s3_succeeded(const struct s3_call *q)
{
    return q->result == S3_ANSWERED && judge_status(q) == OK;
}
