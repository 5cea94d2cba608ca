/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/agent/place.h"

#include "base/cleanup.h"
#include "repo/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CREDENTIALS_MAX (64u << 10)
#define RENEW_S 120 /* the daemon may be restarting */
#define LOOK_TRIES 3
#define LOOK_STALL_S 20

static const char named[] = "the credentials of the [repository] section",
                  named_copy[] = "the credentials of the [copy] section";

/* Who renews the keys of a store. */
struct renewal {
    struct link *link;
    bool copy;
};
static struct renewal renewals[2]; /* of the repository, of the copy */
static struct s3_dial dials[2];    /* likewise */

static int keys_take(struct s3_keys *ret, int fd, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > CREDENTIALS_MAX)
        return err_set(e, ERR_USAGE, EINVAL, "the credentials received with the job are unreadable or too long");
    const size_t len = (size_t)st.st_size;
    char *text = malloc(len + 1);
    if (!text)
        return err_nomem(e);
    const ssize_t n = pread(fd, text, len, 0);
    text[n > 0 ? n : 0] = '\0';
    int rc = n == (ssize_t)len ? s3_keys_parse(ret, text, named, e)
                               : err_set(e, ERR_USAGE, EINVAL, "the credentials received with the job are truncated");
    explicit_bzero(text, len);
    free(text);
    return rc;
}

static int keys_renew(struct s3_keys *ret, void *arg)
{
    const struct renewal *x = arg;
    struct err e = ERR_INIT;
    CLEANUP_CLOSE int fd = link_renew(x->link, x->copy, RENEW_S);
    const int rc = fd < 0 ? fd : keys_take(ret, fd, &e);
    if (rc < 0)
        log_warning("the credentials were refused, and there are no others: %s", e.cls ? e.msg : strerror(-rc));
    return rc;
}

static unsigned bucket_targets(const struct job_s3 *s, struct s3_target *ret)
{
    const struct s3_place at = {.endpoint = s->endpoint,
                                .bucket = s->bucket,
                                .prefix = s->prefix,
                                .region = s->region,
                                .virtual_host = s->virtual_host};
    /* One that cannot be parsed is refused when it is opened. */
    return s3_place_check(&at, NULL) < 0 ? 0 : s3_place_targets(&at, ret);
}

unsigned place_targets(const struct job *j, struct s3_target *ret)
{
    unsigned n = j->repository.remote ? bucket_targets(&j->repository.s3, ret) : 0;
    return n + (j->copy.remote ? bucket_targets(&j->copy.s3, ret + n) : 0);
}

static int bucket_open(struct blobs **ret, const struct job *j, bool copy, int credentials, struct link *link,
                       struct dialer *dialer, struct err *e)
{
    const struct job_s3 *s = copy ? &j->copy.s3 : &j->repository.s3;
    struct s3_keys keys;
    if (credentials < 0)
        return err_set(e, ERR_USAGE, EINVAL, "no credentials received with the job");
    if (!j->cache_dir)
        return err_set(e, ERR_USAGE, EINVAL, "no cache directory for the packs of a bucket received with the job");
    int rc = keys_take(&keys, credentials, e);
    if (rc < 0)
        return rc;
    const bool look = j->kind == JOB_LOOK;
    renewals[copy] = (struct renewal){link, copy};
    dials[copy] = (struct s3_dial){dialer_connect, dialer};
    const struct store_place at = {.type = STORE_S3,
                                   .s3 = {.endpoint = s->endpoint,
                                          .bucket = s->bucket,
                                          .prefix = s->prefix,
                                          .region = s->region,
                                          .virtual_host = s->virtual_host,
                                          .uploads = s->parallel_puts,
                                          .at_ns = s->at_ns,
                                          .ca_text = s->ca,
                                          .credentials = copy ? named_copy : named,
                                          .keys = &keys,
                                          .renew = keys_renew,
                                          .renew_arg = &renewals[copy],
                                          .renew_s = look ? 0 : RENEW_S,
                                          .tries = look ? LOOK_TRIES : 0,
                                          .stall_s = look ? LOOK_STALL_S : 0,
                                          .dial = &dials[copy],
                                          .spool = j->cache_dir}};
    rc = store_open(ret, &at, BLOBS_OPEN, NULL, 0, e);
    s3_keys_wipe(&keys);
    return rc;
}

int place_open(struct blobs **ret, const struct job *j, int credentials, struct link *link, struct dialer *dialer,
               struct err *e)
{
    const struct store_place at = {.type = STORE_DIR, .dir = j->repository.path};
    return j->repository.remote ? bucket_open(ret, j, false, credentials, link, dialer, e)
                                : store_open(ret, &at, BLOBS_OPEN, NULL, 0, e);
}

int place_open_copy(struct blobs **ret, const struct job *j, int credentials, struct link *link, struct dialer *dialer,
                    struct err *e)
{
    const struct store_place at = {.type = STORE_DIR, .dir = j->copy.path};
    struct err not_new = ERR_INIT;
    struct stat st;
    if (j->copy.remote)
        return bucket_open(ret, j, true, credentials, link, dialer, e);
    if (stat(j->copy.path, &st) < 0) {
        err_set(e, ERR_GENERIC, errno, "the directory %s of the copy cannot be reached", j->copy.path);
        e->sys = errno == ENOENT ? ENODEV : e->sys; /* it may be mounted soon */
        return err_hint(e, "mount its file system; a new directory has to belong to the movers' user");
    }
    if (j->expected)
        return store_open(ret, &at, BLOBS_OPEN, NULL, 0, e);
    int rc = store_open(ret, &at, BLOBS_CREATE, NULL, 0, &not_new);
    if (rc < 0 && not_new.cls == ERR_EXISTS)
        return store_open(ret, &at, BLOBS_OPEN, NULL, 0, e);
    if (rc < 0)
        *e = not_new;
    return rc;
}

void place_unavailable(const struct job *j, struct err *e)
{
    static const int passing[] = {EHOSTUNREACH, ECONNREFUSED, ETIMEDOUT, ECONNRESET, EREMOTEIO}; /* of s3-call.c */
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        if (j->remote && e->cls == ERR_GENERIC && e->sys == passing[i])
            e->cls = ERR_NO_REPO;
}
