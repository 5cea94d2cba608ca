/* SPDX-License-Identifier: GPL-2.0-or-later */
/* steps-repository.c - steps that look at the storage of repositories and at the daemon's own, in their children */
#include "base/password.h"
#include "base/s3-keys.h"
#include "daemon/engine/engine-impl.h"
#include "daemon/records/step-request.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

static void put_room(const char *path, json_t **out)
{
    struct statvfs s;
    if (statvfs(path, &s) == 0)
        *out = json_pack("{s:I,s:I,s:b}", "free", (json_int_t)(s.f_bavail * s.f_frsize), "total",
                         (json_int_t)(s.f_blocks * s.f_frsize), "read_only", (s.f_flag & ST_RDONLY) != 0);
}

/* How much room is left where the daemon's own files are: by a step, since a dead NFS server may hold it. */
int step_room(const json_t *in, json_t **out, int *fd, struct err *e)
{
    CLEANUP(step_request_clear) struct step_request r;
    if (step_request_load(&r, in, e) < 0)
        return -ENOMEM;
    (void)fd;
    put_room(r.path, out);
    return *out ? 0 : err_set(e, ERR_GENERIC, errno, "cannot determine the free space of %s", r.path);
}

/* Another file, or other contents of it: then it is opened again. */
static void put_stamp(char *out, size_t cap, const char *file)
{
    struct stat st;
    const size_t n = strlen(out);
    if (stat(file, &st) < 0)
        memset(&st, 0, sizeof st);
    snprintf(out + n, cap - n, "%lx.%lx.%lx.%lx.%lx.%lx ", (long)st.st_dev, (long)st.st_ino, (long)st.st_size,
             (long)st.st_mtim.tv_sec, (long)st.st_mtim.tv_nsec, (long)st.st_ctim.tv_nsec);
}

static void put_secret_stamp(char *out, size_t cap, const char *file)
{
    char path[PATH_MAX];
    const char *dir = getenv("CREDENTIALS_DIRECTORY");
    if (!strncmp(file, "cred:", 5))
        snprintf(path, sizeof path, "%s/%s", dir ? dir : "", file + 5);
    put_stamp(out, cap, strncmp(file, "cred:", 5) ? file : path);
}

static bool is_exposed(const char *file)
{
    struct stat st;
    return file[0] == '/' && stat(file, &st) == 0 && password_exposed(-1, file, &st);
}

/* Reading a FIFO or a terminal would wait for somebody. */
static int check_password(const char *file, bool insecure, struct err *e)
{
    struct stat st;
    if (!file[0])
        return 0; /* none is named: who needs one says so */
    if (strncmp(file, "cred:", 5) && stat(file, &st) == 0 && !S_ISREG(st.st_mode))
        return err_set(e, ERR_USAGE, 0, "the password file %s is not a regular file", file);
    return password_check(file, insecure, e);
}

/* The keys of a bucket, and the certificates, can be read; whether the bucket can be used a mover finds out. */
static int look_at_bucket(const struct step_request *r, json_t **out, struct err *e)
{
    char stamp[256] = "";
    put_secret_stamp(stamp, sizeof stamp, r->password_file);
    put_secret_stamp(stamp, sizeof stamp, r->credentials);
    if (r->ca_file[0])
        put_stamp(stamp, sizeof stamp, r->ca_file);
    *out = json_pack("{s:s,s:i,s:i}", "stamp", stamp, "free", -1, "total", -1);
    if (*out && is_exposed(r->password_file))
        jset_bool(*out, "exposed", true);
    if (!*out)
        return err_nomem(e);
    char *text = NULL;
    int rc = check_password(r->password_file, r->insecure, e);
    if (rc >= 0)
        rc = s3_keys_check(r->credentials, e);
    if (rc >= 0 && r->ca_file[0])
        rc = authorities_read(r->ca_file, &text, e);
    free(text);
    return rc;
}

/* A repository's directory is there and has its format blob, and its password can be read: a missing mount, file or
 * credential is seen here, and not by the first mover of the night. */
int step_repository(const json_t *in, json_t **out, int *fd, struct err *e)
{
    CLEANUP(step_request_clear) struct step_request r;
    if (step_request_load(&r, in, e) < 0)
        return -ENOMEM;
    if (r.credentials[0])
        return look_at_bucket(&r, out, e);
    static const char *const format[] = {"kopia.repository.f", "kopia.repository"};
    const char *path = r.path;
    char name[4200];
    struct stat st;
    (void)fd;
    if (stat(path, &st) < 0)
        return err_set(e, errno == ENOENT ? ERR_NO_REPO : ERR_GENERIC, errno,
                       "the repository directory %s cannot be reached", path);
    for (unsigned i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s/%s", path, format[i]);
        if (stat(name, &st) == 0) {
            char stamp[256] = "";
            put_room(path, out);
            put_stamp(stamp, sizeof stamp, name);
            put_secret_stamp(stamp, sizeof stamp, r.password_file);
            if (*out)
                jset_str(*out, "stamp", stamp);
            if (*out && is_exposed(r.password_file))
                jset_bool(*out, "exposed", true);
            return check_password(r.password_file, r.insecure, e);
        }
        if (errno != ENOENT)
            return err_set(e, ERR_GENERIC, errno, "%s cannot be read", name);
    }
    return err_set(e, ERR_NO_REPO, 0, "there is no repository in %s (is its file system mounted?)", path);
}
