/* SPDX-License-Identifier: GPL-2.0-or-later */
/* client.c - client of the control socket */
#include "base/time.h"
#include "daemon/cli/live.h"
#include "daemon/records/records.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

/* After this time "waiting for the daemon" is shown. */
#define WAITING_SHOWN_MS 3000
/* An answer line; docs/control.md limits it to 16 MiB. */
#define LINE_MAX_BYTES ((size_t)17 << 20)

struct daemon {
    int fd;
    char *in;
    size_t at, len, cap;
    json_int_t next_id;
    char path[4096 + 32];
    struct live waiting; /* "waiting for the daemon" */
};

static int no_answer(struct err *e)
{
    err_set(e, ERR_NO_DAEMON, 0, "the daemon does not answer");
    e->sys = ETIMEDOUT; /* for the caller; not part of the message */
    return err_hint(e, "see journalctl -u snapferryd; it can be restarted, running backups and restores continue");
}

static int no_daemon(const struct daemon *d, int sys, struct err *e)
{
    if (sys == EACCES || sys == EPERM) {
        err_set(e, ERR_PERMISSION, sys, "cannot use the daemon's socket %s", d->path);
        struct stat st;
        const struct group *g = stat(d->path, &st) == 0 && st.st_mode & S_IWGRP ? getgrgid(st.st_gid) : NULL;
        if (g && st.st_gid != 0)
            return err_hint(e, "run this as root or as a member of group %s", g->gr_name);
        return err_hint(e, "run this as root or as a member of the group set by [daemon] socket-group");
    }
    if (sys == EAGAIN || sys == ETIMEDOUT) /* its queue is full: it does not accept connections */
        return no_answer(e);
    err_set(e, ERR_NO_DAEMON, sys, "the daemon is not running: cannot connect to %s", d->path);
    return err_hint(e, "start it with systemctl start snapferryd, or set its directory with --runtime-dir");
}

static int connect_daemon(struct daemon *d, const char *dir, struct err *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    CLEANUP_CLOSE int dirfd = -1;
    if (strlen(d->path) < sizeof a.sun_path) {
        memcpy(a.sun_path, d->path, strlen(d->path) + 1);
    } else {
        dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (dirfd < 0)
            return no_daemon(d, errno, e);
        snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/control.sock", dirfd);
    }
    d->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (d->fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot create a socket");
    /* connect() would block if the queue of a hung daemon is full. */
    const struct timeval limit = {.tv_sec = 10};
    setsockopt(d->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    while (connect(d->fd, (const struct sockaddr *)&a, sizeof a) < 0) {
        if (errno == EINTR)
            continue;
        return no_daemon(d, errno, e);
    }
    return 0;
}

/* The daemon holds a lock as long as it lives (control_announce()). */
bool daemon_is_there(const struct options *o, struct err *e)
{
    char path[4096 + 32];
    struct flock held = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    snprintf(path, sizeof path, "%s/daemon.lock", o->runtime_dir);
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fcntl(fd, F_GETLK, &held) == 0 && held.l_type == F_WRLCK)
        return true;
    err_set(e, ERR_NO_DAEMON, 0, "the daemon is not running, and waiting does not start it");
    err_hint(e, "start it with systemctl start snapferryd, or set its directory with --runtime-dir");
    return false;
}

static bool elsewhere;

bool daemon_elsewhere(void)
{
    return elsewhere;
}

/* Nobody listens there, but somebody has the records open. */
static void look_elsewhere(const struct options *o, const struct daemon *d, struct err *e)
{
    const int sys = e->sys;
    const pid_t pid =
        e->cls == ERR_NO_DAEMON && (sys == ENOENT || sys == ECONNREFUSED) ? records_holder(o->state_dir) : 0;
    elsewhere = pid > 0;
    if (!elsewhere)
        return;
    err_set(e, ERR_NO_DAEMON, sys, "a daemon is running (process %ld), but cannot be reached at %s", (long)pid,
            d->path);
    err_hint(e, "if its runtime directory was removed: `systemctl restart snapferryd` (what runs continues); if it has "
                "another one: --runtime-dir");
}

int daemon_open(struct daemon **ret, const struct options *o, struct err *e)
{
    struct daemon *d = calloc(1, sizeof *d);
    if (!d)
        return err_nomem(e);
    d->fd = -1;
    snprintf(d->path, sizeof d->path, "%s/control.sock", o->runtime_dir);
    int rc = connect_daemon(d, o->runtime_dir, e);
    if (rc < 0) {
        look_elsewhere(o, d, e);
        daemon_close(d);
        return rc;
    }
    *ret = d;
    return 0;
}

void daemon_close(struct daemon *d)
{
    if (!d)
        return;
    if (d->fd >= 0)
        close(d->fd);
    free(d->in);
    free(d);
}

static int connection_lost(const struct daemon *d, int sys, struct err *e)
{
    err_set(e, ERR_NO_DAEMON, sys, "the daemon closed the connection (%s)", d->path);
    return err_hint(e, "operations resume when the daemon returns; see snapferry status");
}

static int send_all(struct daemon *d, const char *text, size_t n, struct err *e)
{
    while (n) {
        ssize_t w = send(d->fd, text, n, MSG_NOSIGNAL);
        if (w < 0 && errno == EINTR)
            continue;
        /* A daemon that refused the connection has closed it, but its reason can still be read. */
        if (w < 0 && errno == EPIPE)
            return 0;
        if (w < 0)
            return connection_lost(d, errno == EAGAIN ? ETIMEDOUT : errno, e);
        text += w;
        n -= (size_t)w;
    }
    return 0;
}

/* Waits for data. */
static int await_data(struct daemon *d, int64_t until_ms, struct err *e)
{
    const struct mover_cancel *cancel = cli_cancel();
    int64_t since = mono_ns() / NS_PER_MS;
    for (;;) {
        /* So that the command does not seem to hang. */
        if (until_ms && !d->waiting.n && mono_ns() / NS_PER_MS - since >= WAITING_SHOWN_MS && live_possible())
            live_draw(&d->waiting, (char *[]){(char *)(uintptr_t) "waiting for the daemon..."}, 1);
        if (atomic_load(&cancel->requested))
            return err_set(e, ERR_INTERRUPTED, EINTR, "interrupted");
        int64_t left = until_ms ? until_ms - mono_ns() / NS_PER_MS : 1000;
        if (left <= 0)
            return no_answer(e);
        struct pollfd p = {.fd = d->fd, .events = POLLIN};
        int n = poll(&p, 1, left > 1000 ? 1000 : (int)left);
        if (n < 0 && errno != EINTR)
            return err_set(e, ERR_GENERIC, errno, "cannot wait for the daemon");
        if (n > 0)
            return 0;
    }
}

/* One line without the newline; *line is valid until the next call. */
static int read_line(struct daemon *d, int64_t until_ms, const char **line, size_t *n, struct err *e)
{
    size_t seen = d->at;
    for (;;) {
        char *nl = d->len > seen ? memchr(d->in + seen, '\n', d->len - seen) : NULL;
        if (nl) {
            *line = d->in + d->at;
            *n = (size_t)(nl - *line);
            d->at = (size_t)(nl - d->in) + 1;
            return 0;
        }
        if (d->at) {
            memmove(d->in, d->in + d->at, d->len - d->at);
            d->len -= d->at;
            d->at = 0;
        }
        seen = d->len;
        if (d->len == d->cap) {
            size_t cap = d->cap ? d->cap * 2 : 65536;
            char *more = cap > 2 * LINE_MAX_BYTES ? NULL : realloc(d->in, cap);
            if (!more)
                return err_nomem(e);
            d->in = more;
            d->cap = cap;
        }
        int rc = await_data(d, until_ms, e);
        live_clear(&d->waiting);
        if (rc < 0)
            return rc;
        ssize_t r = recv(d->fd, d->in + d->len, d->cap - d->len, 0);
        if (r < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (r <= 0)
            return connection_lost(d, r < 0 ? errno : 0, e);
        d->len += (size_t)r;
    }
}

/* Converts the error of the daemon. */
static int daemon_error(const json_t *error, struct err *e)
{
    int64_t code = jint(error, "code");
    const char *msg = jstr(error, "message"), *hint = jstr(error, "hint");
    err_set(e, code > 0 && code <= 255 ? (enum err_class)code : ERR_GENERIC, 0, "%s",
            *msg ? msg : "the daemon refused the request without a reason");
    return err_hint(e, "%s", hint);
}

static int bad_answer(struct err *e)
{
    err_set(e, ERR_GENERIC, 0, "malformed answer from the daemon");
    return err_hint(e,
                    "command and daemon may be of different versions: restart the daemon after an upgrade, systemctl "
                    "restart snapferryd");
}

static int call_daemon(struct daemon *d, const char *verb, json_t *args, unsigned timeout_s, daemon_event_fn *on_event,
                       void *arg, json_t **answer, struct err *e)
{
    CLEANUP_JSON json_t *req = json_pack("{s:I, s:s, s:o*}", "id", ++d->next_id, "verb", verb, "args", args);
    CLEANUP_FREE char *text = req ? json_dumps(req, JSON_COMPACT) : NULL;
    if (!text)
        return err_nomem(e);
    size_t n = strlen(text);
    text[n] = '\n';
    int rc = send_all(d, text, n + 1, e);
    int64_t until = timeout_s ? mono_ns() / NS_PER_MS + (int64_t)timeout_s * 1000 : 0;
    while (rc >= 0) {
        const char *line = NULL;
        rc = read_line(d, until, &line, &n, e);
        if (rc < 0)
            return rc;
        CLEANUP_JSON json_t *o = json_loadb(line, n, 0, NULL);
        if (!json_is_object(o))
            return bad_answer(e);
        const json_t *id = json_object_get(o, "id");
        if (json_is_integer(id) && json_integer_value(id) != d->next_id)
            continue; /* answer to an abandoned request */
        json_t *event = json_object_get(o, "event"), *got = jobj(o, "answer");
        if (event) {
            rc = on_event ? on_event(event, arg) : 0;
        } else if (jbool(o, "ok") && got) {
            *answer = json_incref(got);
            return 0;
        } else if (jobj(o, "error")) {
            return daemon_error(jobj(o, "error"), e);
        } else {
            return bad_answer(e);
        }
    }
    return rc;
}

/* After a usage error: adds a hint if the versions of daemon and command differ. */
static void compare_versions(struct daemon *d, struct err *e)
{
    CLEANUP_JSON json_t *answer = NULL;
    struct err ignored = ERR_INIT;
    if (call_daemon(d, "ping", NULL, 2, NULL, NULL, &answer, &ignored) < 0)
        return;
    const char *version = jstr(answer, "version");
    if (*version && strcmp(version, SNAPFERRY_VERSION) != 0)
        err_hint(e, "the daemon is version %.40s, this command %s: systemctl restart snapferryd after an upgrade",
                 version, SNAPFERRY_VERSION);
}

int daemon_call(struct daemon *d, const char *verb, json_t *args, unsigned timeout_s, daemon_event_fn *on_event,
                void *arg, json_t **answer, struct err *e)
{
    int rc = call_daemon(d, verb, args, timeout_s, on_event, arg, answer, e);
    if (rc < 0 && ((e->cls == ERR_USAGE && !e->hint[0]) || e->cls == ERR_GENERIC))
        compare_versions(d, e);
    return rc;
}

int daemon_ask(const struct options *o, const char *verb, json_t *args, json_t **answer, struct err *e)
{
    CLEANUP(daemon_closep) struct daemon *d = NULL;
    int rc = daemon_open(&d, o, e);
    if (rc < 0) {
        json_decref(args);
        return rc;
    }
    /* Some answers come from storage, and storage may be slow. */
    return daemon_call(d, verb, args, 600, NULL, NULL, answer, e);
}
