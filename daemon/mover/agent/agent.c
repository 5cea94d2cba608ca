/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * agent.c - the life of a mover: connect, receive the job, check it, lock down, wait for "go", work, write a result,
 * exit
 *
 * Crash points: mover-ready (before READY is sent), mover-go (GO was received), mover-worked (the work is done, the
 * result not written), result-written, result-durable (result.c), mover-told (all messages were sent).
 */
#include "daemon/mover/agent/agent.h"
#include "daemon/mover/agent/key.h"
#include "daemon/mover/agent/place.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/crash.h"
#include "base/fault.h"
#include "base/time.h"
#include "daemon/protocol/mover-wire.h"
#include "repo/format.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GO_TIMEOUT_S 60
#define FINISH_MS 2000 /* for the last messages: the result file has everything */
#define PASSWORD_MAX 65536

static struct mover_cancel cancel;

static void on_signal(int sig)
{
    (void)sig;
    atomic_store(&cancel.requested, true);
}

static void take_signals(void)
{
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGINT, &a, NULL);
    a.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &a, NULL);
    sigaction(SIGXFSZ, &a, NULL); /* a limit on the size of files is an error of the write */
    sigaction(SIGHUP, &a, NULL);
    fault_report("snapferry-mover", 0); /* the daemon sees the signal, and tries again */
}

struct agent {
    const char *operation, *socket;
    struct link *link;
    struct dialer *dialer; /* NULL: nothing is reached over the network */
    struct job job;
    struct lockdown locks;
    struct mover_progress progress;
    int job_fd, result_fd, device_fd, password_fd, key_fd, changes_fd, credentials_fd, copy_credentials_fd, listing_fd;
    bool key_wanted; /* the daemon keeps the derived key */
    int64_t go_timeout_s;
    char *password;
    char location[512]; /* of the repository, for messages */
    json_t *result;
    bool started;
};

/* ---- the job and what comes with it ---- */

static int take_descriptors(struct agent *a, const json_t *msg, int fds[WIRE_FDS_MAX], struct err *e)
{
    const struct {
        const char *role;
        int *fd;
    } roles[] = {{WIRE_FD_JOB, &a->job_fd},
                 {WIRE_FD_RESULT, &a->result_fd},
                 {WIRE_FD_DEVICE, &a->device_fd},
                 {WIRE_FD_PASSWORD, &a->password_fd},
                 {WIRE_FD_KEY, &a->key_fd},
                 {WIRE_FD_CHANGES, &a->changes_fd},
                 {WIRE_FD_CREDENTIALS, &a->credentials_fd},
                 {WIRE_FD_COPY_CREDENTIALS, &a->copy_credentials_fd},
                 {WIRE_FD_LISTING, &a->listing_fd}};
    const json_t *names = json_object_get(msg, "fds");
    for (size_t i = 0; i < json_array_size(names) && i < WIRE_FDS_MAX; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        for (size_t k = 0; k < sizeof roles / sizeof *roles; k++)
            if (name && !strcmp(name, roles[k].role) && *roles[k].fd < 0)
                *roles[k].fd = take_fd(&fds[i]);
    }
    for (int i = 0; i < WIRE_FDS_MAX; i++)
        closep(&fds[i]);
    if (a->job_fd < 0 || a->result_fd < 0)
        return err_set(e, ERR_USAGE, EINVAL, "no %s received with the job", a->job_fd < 0 ? "document" : "result file");
    struct stat st;
    if (fstat(a->result_fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        closep(&a->result_fd);
        a->result_fd = -1;
        return err_set(e, ERR_USAGE, EINVAL, "the result file received with the job is not a regular file");
    }
    return 0;
}

static int take_password(struct agent *a, struct err *e)
{
    struct stat st;
    if (a->password_fd < 0)
        return 0;
    if (fstat(a->password_fd, &st) < 0 || st.st_size < 0 || st.st_size > PASSWORD_MAX)
        return err_set(e, ERR_USAGE, EINVAL, "the password received with the job is unreadable or too long");
    size_t len = (size_t)st.st_size;
    a->password = malloc(len + 1);
    if (!a->password)
        return err_nomem(e);
    ssize_t n = pread(a->password_fd, a->password, len, 0);
    a->password[n > 0 ? n : 0] = '\0';
    closep(&a->password_fd);
    a->password_fd = -1;
    if (n != (ssize_t)len || strlen(a->password) != len)
        return err_set(e, ERR_USAGE, EINVAL, "the password received with the job is truncated or contains a NUL");
    return 0;
}

/* Before the mover has any key: the dialer is a copy of it. */
static int dialer_begin(struct agent *a, struct err *e)
{
    struct s3_target targets[2 * S3_TARGETS_MAX];
    if (!a->job.remote)
        return 0;
    const unsigned n = place_targets(&a->job, targets);
    const int rc = dialer_start(&a->dialer, targets, n, a->socket, e);
    if (rc == 0)
        link_connect_by(a->link, dialer_connect_daemon, a->dialer);
    return rc;
}

static int wait_for(struct agent *a, const char *type, unsigned seconds, json_t **msg, int fds[WIRE_FDS_MAX],
                    struct err *e)
{
    for (;;) {
        int rc = link_receive(a->link, seconds, msg, fds, e);
        if (rc < 0)
            return rc == -ETIMEDOUT ? err_wrap(e, "waiting for %s", type) : rc;
        const char *got = json_string_value(json_object_get(*msg, "type"));
        const char *operation = json_string_value(json_object_get(*msg, "operation"));
        if (!strcmp(got, WIRE_CANCEL))
            atomic_store(&cancel.requested, true);
        else if (!operation || strcmp(operation, a->operation) != 0)
            return err_set(e, ERR_USAGE, EBADMSG, "the daemon sent the job of another operation");
        else if (!strcmp(got, type))
            return 0;
        for (int i = 0; i < WIRE_FDS_MAX; i++)
            closep(&fds[i]);
        json_decref(*msg);
        *msg = NULL;
    }
}

static int take_job(struct agent *a, struct err *e)
{
    int fds[WIRE_FDS_MAX] = WIRE_NO_FDS;
    json_t *msg = NULL;
    int rc = wait_for(a, WIRE_JOB, WIRE_JOB_WAIT_S, &msg, fds, e);
    if (rc == 0) {
        a->go_timeout_s = json_integer_value(json_object_get(msg, "goTimeout"));
        a->key_wanted = json_is_true(json_object_get(msg, "keyWanted"));
        if (a->go_timeout_s <= 0 || a->go_timeout_s > 86400)
            a->go_timeout_s = GO_TIMEOUT_S;
        rc = take_descriptors(a, msg, fds, e);
    } else {
        for (int i = 0; i < WIRE_FDS_MAX; i++)
            closep(&fds[i]);
    }
    json_decref(msg);
    if (rc == 0)
        rc = job_read(&a->job, a->job_fd, a->operation, e);
    if (rc < 0)
        return rc;
    agent_log_start(a->job.debug);
    for (size_t i = 0; i < json_array_size(a->job.ignored); i++)
        log_warning("unknown member \"%s\" of the job ignored", json_string_value(json_array_get(a->job.ignored, i)));
    rc = dialer_begin(a, e);
    return rc < 0 ? rc : take_password(a, e);
}

static int wait_for_go(struct agent *a, struct err *e)
{
    int fds[WIRE_FDS_MAX] = WIRE_NO_FDS;
    json_t *msg = NULL;
    crash_point("mover-ready");
    int rc = link_send(a->link, WIRE_READY, json_pack("{s:i}", "pid", (int)getpid()), e);
    if (rc == 0)
        rc = wait_for(a, WIRE_GO, (unsigned)a->go_timeout_s, &msg, fds, e);
    for (int i = 0; i < WIRE_FDS_MAX; i++)
        closep(&fds[i]);
    json_decref(msg);
    crash_point("mover-go");
    return rc;
}

/* ---- the work ---- */

/* For later movers; without it each of them derives the key itself. */
static void key_send(struct agent *a, const struct repo_format *f)
{
    struct err e = ERR_INIT;
    int fd = key_sealed(f, &e);
    if (fd < 0)
        log_debug("%s", e.msg);
    else
        link_post_fd(a->link, WIRE_KEY, NULL, fd);
}

static const char *put_identity(struct agent *a, const struct repo_format *f)
{
    char id[2 * FORMAT_ID_MAX + 1];
    hex_encode(id, f->unique_id, f->unique_id_len);
    json_object_set_new(a->result, "uniqueID", json_string(id));
    return json_string_value(json_object_get(a->result, "uniqueID"));
}

/* Another repository at the same place is none of this node's (CF-31). */
static int check_identity(struct agent *a, const struct repo_format *f, struct err *e)
{
    const char *id = put_identity(a, f);
    if (!a->job.repository_id || !strcmp(a->job.repository_id, id))
        return 0;
    err_set(e, ERR_NO_REPO, 0,
            "another repository is at %s: its unique id is %.16s..., the one recorded by this node is %.16s...",
            a->location, id, a->job.repository_id);
    return err_hint(e, "%s? `snapferry status` shows what to do",
                    a->job.repository.remote ? "are endpoint, bucket and prefix right"
                                             : "is the right file system mounted");
}

/* Whoever has had it before is not told to make another one. */
static int is_away(const struct agent *a, int rc, struct err *e)
{
    if (rc < 0 && e->cls == ERR_NO_REPO && a->job.repository_id)
        err_hint(e, "%s? it has been there before: do not make another one",
                 a->job.repository.remote ? "are endpoint, bucket and prefix right"
                                          : "is the right file system mounted");
    return rc;
}

static int blobs_of(struct agent *a, struct blobs **ret, struct err *e)
{
    if (!a->password)
        return err_set(e, ERR_USAGE, EINVAL, "no password received with the job");
    int rc = is_away(a, place_open(ret, &a->job, a->credentials_fd, a->link, a->dialer, e), e);
    closep(&a->credentials_fd);
    a->credentials_fd = -1;
    if (rc < 0)
        return rc;
    blobs_stop(*ret, &cancel.requested);
    blobs_activity(*ret, &a->progress.requests);
    snprintf(a->location, sizeof a->location, "%s", blobs_location(*ret));
    return 0;
}

/* The format alone: whether the password opens it, and which repository it is. */
static int look(struct agent *a, struct err *e)
{
    CLEANUP(blobs_freep) struct blobs *b = NULL;
    struct repo_format *f = NULL;
    int rc = blobs_of(a, &b, e);
    if (rc >= 0)
        rc = format_load(&f, b, a->password, e);
    password_free(take_ptr(&a->password));
    if (rc >= 0) {
        put_identity(a, f);
        if (a->key_wanted && a->key_fd < 0)
            key_send(a, f);
    }
    format_free(f);
    return rc;
}

/* Whether what was read before will do: who verifies, decides about native snapshots or copies must see the store. */
static bool may_use_cache(enum job_kind k)
{
    return k == JOB_BACKUP || k == JOB_RESTORE || k == JOB_MAINTAIN;
}

static int open_repository(struct agent *a, struct repo **ret, struct err *e)
{
    struct blobs *b;
    struct format_key key;
    int rc = blobs_of(a, &b, e);
    if (rc < 0)
        return rc;
    const bool given = a->key_fd >= 0 && key_read(&key, a->key_fd);
    const struct repo_opts ro = {.cache_dir = a->job.cache_dir,
                                 .cache_cap = a->job.cache_size,
                                 .mapped_cap = a->job.limits.index_memory,
                                 .username = "snapferry",
                                 .hostname = a->job.node,
                                 .cached_metadata = may_use_cache(a->job.kind),
                                 .key = given ? &key : NULL};
    closep(&a->key_fd);
    a->key_fd = -1;
    rc = is_away(a, repo_open(ret, b, a->password, &ro, e), e);
    if (given)
        OPENSSL_cleanse(&key, sizeof key);
    if (rc < 0)
        return rc;
    json_object_set_new(a->result, "keyDerived", json_boolean(!repo_key_given(*ret)));
    if (a->key_wanted && !repo_key_given(*ret))
        key_send(a, repo_format(*ret));
    return check_identity(a, repo_format(*ret), e);
}

static int job_run(struct agent *a, struct err *e)
{
    static int (*const run[])(struct run_context *, struct repo *, struct err *) = {
        [JOB_BACKUP] = run_backup, [JOB_RESTORE] = run_restore,   [JOB_VERIFY] = run_verify,
        [JOB_ADMIN] = run_admin,   [JOB_MAINTAIN] = run_maintain, [JOB_COPY] = run_copy};
    CLEANUP(repo_freep) struct repo *r = NULL;
    if (a->job.kind == JOB_LOOK)
        return look(a, e);
    struct run_context x = {.job = &a->job,
                            .device = a->device_fd,
                            .changes = a->changes_fd,
                            .listing = a->listing_fd,
                            .progress = &a->progress,
                            .cancel = &cancel,
                            .copy_credentials = a->copy_credentials_fd,
                            .link = a->link,
                            .dialer = a->dialer,
                            .result = a->result};
    if (a->job.kind == JOB_RESTORE)
        json_object_set_new(a->result, "targetUntouched", json_true()); /* until it begins */
    int rc = open_repository(a, &r, e);
    password_free(take_ptr(&a->password));
    if (rc < 0)
        return rc;
    /* What these do has counters. Besides, a backup keeps its session alive, also while its source hangs. */
    if (a->job.kind == JOB_BACKUP || a->job.kind == JOB_RESTORE)
        blobs_activity(repo_blobs(r), NULL);
    rc = run[a->job.kind](&x, r, e);
    repository_result(a->result, r);
    return rc;
}

/* ---- the result ---- */

static void result_describe(struct agent *a, enum result_code code, int64_t began_ns, const struct err *e)
{
    char t[TIME_TEXT];
    json_t *o = a->result;
    json_object_set_new(o, "protocol", json_integer(MOVER_PROTOCOL));
    json_object_set_new(o, "operation", json_string(a->operation));
    json_object_set_new(o, "kind", a->job.doc ? json_string(job_kind_name(a->job.kind)) : json_null());
    json_object_set_new(o, "code", json_integer(code));
    json_object_set_new(o, "codeName", json_string(result_code_name(code)));
    json_object_set_new(o, "error", result_error_json(e));
    json_object_set_new(o, "started", json_boolean(a->started));
    json_object_set_new(o, "pid", json_integer(getpid()));
    json_object_set_new(o, "version", json_string(SNAPFERRY_VERSION));
    json_object_set_new(o, "startTime", json_string(time_text(began_ns, t)));
    json_object_set_new(o, "endTime", json_string(time_text(now_ns(), t)));
    if (a->job.ignored)
        json_object_set(o, "ignoredMembers", a->job.ignored);
    if (a->started)
        json_object_set_new(
            o, "lockdown",
            json_pack("{s:b, s:o}", "boundingSetEmpty", (int)a->locks.bounding, "memlock",
                      a->locks.memlock == UINT64_MAX ? json_null() : json_integer((json_int_t)a->locks.memlock)));
}

static int result_leave(struct agent *a, enum result_code code, int64_t began_ns, const struct err *e)
{
    struct err we = ERR_INIT;
    result_describe(a, code, began_ns, e);
    const char *lost = a->result_fd < 0                                 ? "no result file"
                       : result_write(a->result_fd, a->result, &we) < 0 ? we.msg
                                                                        : NULL;
    /* The last line is all that is known of a mover without a result. */
    if (code != RESULT_OK)
        log_line(LOG_LVL_ERROR, "%s: %s%s%s", result_code_name(code), e->msg, lost ? "; no result written: " : "",
                 lost ? lost : "");
    else if (lost)
        log_line(LOG_LVL_ERROR, "no result written: %s", lost);
    return code;
}

static void result_send(struct agent *a, enum result_code code, const struct err *e)
{
    /* A hint: short, whatever the result contains. */
    link_post(a->link, WIRE_RESULT, json_pack("{s:i, s:o}", "code", (int)code, "error", result_error_json(e)));
    link_post(a->link, WIRE_STOPPED, NULL);
}

static int mover_run(struct agent *a, struct err *e)
{
    int rc = take_job(a, e);
    /* A backup reads by one, a restore to a device has a writer for each worker. */
    const bool reads = a->job.kind == JOB_BACKUP, writes = a->job.kind == JOB_RESTORE;
    const unsigned workers =
        a->job.limits.workers ? (unsigned)a->job.limits.workers : (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    if (rc == 0)
        rc = lockdown(&a->locks, a->job.limits.memory ? a->job.limits.memory : MEMORY_DEFAULT,
                      reads    ? 1
                      : writes ? workers
                               : 0,
                      writes ? RING_WRITE : RING_READ, a->job.remote, e);
    if (rc == 0)
        rc = wait_for_go(a, e);
    if (rc == 0)
        rc = link_detach(a->link, &a->progress, e);
    if (rc < 0)
        return rc;
    agent_log_link(a->link);
    a->started = true;
    link_post(a->link, WIRE_START, NULL);
    log_info("%s %s begins", job_kind_name(a->job.kind), a->operation);
    return job_run(a, e);
}

/* Nothing is done before GO: after a closed connection or a timeout a retry is possible. */
static enum result_code early_code(const struct err *e)
{
    return atomic_load(&cancel.requested) ? RESULT_CANCELED
           : e->sys == EPIPE || e->sys == ETIMEDOUT || e->sys == ENOENT || e->sys == ECONNREFUSED || e->sys == EAGAIN
               ? RESULT_TRANSIENT
               : RESULT_FAILED;
}

int agent_main(const char *socket, const char *operation)
{
    struct agent a = {.operation = operation,
                      .socket = socket,
                      .job_fd = -1,
                      .result_fd = -1,
                      .device_fd = -1,
                      .changes_fd = -1,
                      .password_fd = -1,
                      .key_fd = -1,
                      .credentials_fd = -1,
                      .copy_credentials_fd = -1,
                      .listing_fd = -1,
                      .result = json_object()};
    struct err e = ERR_INIT;
    const int64_t began_ns = now_ns();
    umask(077);
    take_signals();
    agent_log_start(false);
    int rc = link_dial(&a.link, socket, operation, &cancel, &e);
    if (rc == 0)
        rc = mover_run(&a, &e);
    place_unavailable(&a.job, &e);
    crash_point("mover-worked");
    enum result_code code = rc >= 0      ? RESULT_OK
                            : !a.started ? early_code(&e)
                                         : result_code_of(&e, a.job.remote, atomic_load(&cancel.requested));
    result_leave(&a, code, began_ns, &e);
    if (a.started) {
        log_info("%s ends: %s", operation, result_code_name(code));
        result_send(&a, code, &e);
        agent_log_link(NULL);
        link_finish(a.link, FINISH_MS);
    } else if (a.link) {
        link_send(a.link, WIRE_REFUSED, json_pack("{s:i, s:o}", "code", (int)code, "error", result_error_json(&e)),
                  NULL);
    }
    crash_point("mover-told");
    if (a.password)
        password_free(a.password);
    link_free(a.link);
    dialer_end(a.dialer);
    job_clear(&a.job);
    json_decref(a.result);
    return (int)code;
}
