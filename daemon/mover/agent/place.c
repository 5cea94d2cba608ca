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

static const char named[] = "the credentials of the [repository] section";

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
    struct err e = ERR_INIT;
    CLEANUP_CLOSE int fd = link_renew(arg, RENEW_S);
    const int rc = fd < 0 ? fd : keys_take(ret, fd, &e);
    if (rc < 0)
        log_warning("the credentials were refused, and there are no others: %s", e.cls ? e.msg : strerror(-rc));
    return rc;
}

static int bucket_open(struct blobs **ret, const struct job *j, int credentials, struct link *link, struct err *e)
{
    struct s3_keys keys;
    if (credentials < 0)
        return err_set(e, ERR_USAGE, EINVAL, "no credentials received with the job");
    if (!j->cache_dir)
        return err_set(e, ERR_USAGE, EINVAL, "no cache directory for the packs of a bucket received with the job");
    int rc = keys_take(&keys, credentials, e);
    if (rc < 0)
        return rc;
    const bool look = j->kind == JOB_LOOK;
    const struct store_place at = {.type = STORE_S3,
                                   .s3 = {.endpoint = j->s3.endpoint,
                                          .bucket = j->s3.bucket,
                                          .prefix = j->s3.prefix,
                                          .region = j->s3.region,
                                          .virtual_host = j->s3.virtual_host,
                                          .ca_text = j->s3.ca,
                                          .credentials = named,
                                          .keys = &keys,
                                          .renew = keys_renew,
                                          .renew_arg = link,
                                          .renew_s = look ? 0 : RENEW_S,
                                          .tries = look ? LOOK_TRIES : 0,
                                          .stall_s = look ? LOOK_STALL_S : 0,
                                          .spool = j->cache_dir}};
    rc = store_open(ret, &at, BLOBS_OPEN, NULL, 0, e);
    s3_keys_wipe(&keys);
    return rc;
}

int place_open(struct blobs **ret, const struct job *j, int credentials, struct link *link, struct err *e)
{
    const struct store_place at = {.type = STORE_DIR, .dir = j->repository_path};
    return j->remote ? bucket_open(ret, j, credentials, link, e) : store_open(ret, &at, BLOBS_OPEN, NULL, 0, e);
}

void place_unavailable(const struct job *j, struct err *e)
{
    static const int passing[] = {EHOSTUNREACH, ECONNREFUSED, ETIMEDOUT, ECONNRESET, EREMOTEIO}; /* of s3-call.c */
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        if (j->remote && e->cls == ERR_GENERIC && e->sys == passing[i])
            e->cls = ERR_NO_REPO;
}
