/* SPDX-License-Identifier: GPL-2.0-or-later */
/* qmp.c - a connection to the QMP socket of QEMU, and to its guest agent */
#include "io/native/qmp.h"

#include "base/cleanup.h"
#include "base/json.h"
#include "base/time.h"
#include "proc/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define CONNECT_S 5
#define READ_SIZE ((size_t)64 << 10)
#define LEAST_MAJOR 7 /* copy-before-write with on-cbw-error, bitmaps of other nodes in an export */
#define LEAST_MINOR 1
#define AGENT_MARK ((char)0xff) /* before what follows guest-sync-delimited */

struct qmp {
    int fd;
    char path[128];
    pid_t peer;
    bool agent, broken;
    int major;
    unsigned answer_s, greeting_s;
    uint64_t id; /* of the last command */
    char *text;  /* received, from the beginning of a document on */
    size_t n, room;
    /* of the document that is being received: how far it was looked at, and where that is */
    size_t seen;
    unsigned depth;
    bool quoted, escaped;
};

static const char *peer_name(const struct qmp *q)
{
    return q->agent ? "the guest agent" : "QEMU";
}

/* ---- bytes ---- */

static int connection_lost(struct qmp *q, int sys, const char *why, struct err *e)
{
    q->broken = true;
    return err_plain(e, ERR_SOURCE, sys, "%s at %s: %s%s%s", peer_name(q), q->path, why, sys ? ": " : "",
                     sys ? strerror(sys) : "");
}

/* 0: readable (writable with POLLOUT); 1: not until the deadline. */
static int wait_for(const struct qmp *q, short events, int64_t deadline)
{
    for (;;) {
        const int64_t left = deadline - mono_ns();
        struct pollfd p = {.fd = q->fd, .events = events};
        if (left <= 0)
            return 1;
        if (poll(&p, 1, (int)(left / NS_PER_MS) + 1) > 0)
            return 0;
    }
}

static int send_all(struct qmp *q, const char *text, size_t len, int fd, int64_t deadline, struct err *e)
{
    for (size_t at = 0; at < len;) {
        const ssize_t n = descriptors_send(q->fd, text + at, len - at, &fd, fd >= 0 && at == 0 ? 1 : 0, MSG_DONTWAIT);
        if (n > 0)
            at += (size_t)n;
        else if (n != -EAGAIN && n != -EINTR)
            return connection_lost(q, (int)-n, "the connection is lost", e);
        else if (wait_for(q, POLLOUT, deadline) != 0)
            return connection_lost(q, 0, "takes no command", e);
    }
    return 0;
}

static int receive_some(struct qmp *q, int64_t deadline, unsigned seconds, struct err *e)
{
    if (q->room - q->n < READ_SIZE) {
        char *more = realloc(q->text, q->n + 2 * READ_SIZE);
        if (!more)
            return err_nomem(e);
        q->text = more;
        q->room = q->n + 2 * READ_SIZE;
    }
    if (wait_for(q, POLLIN, deadline) != 0) {
        q->broken = true;
        return err_plain(e, ERR_SOURCE, ETIMEDOUT, "%s at %s has not answered for %u s", peer_name(q), q->path,
                         seconds);
    }
    const ssize_t n = recv(q->fd, q->text + q->n, READ_SIZE, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return connection_lost(q, n < 0 ? errno : 0, "the connection is lost", e);
    q->n += (size_t)n;
    if (q->n > QMP_ANSWER_MAX)
        return connection_lost(q, 0, "an answer is longer than 64 MiB", e);
    return 0;
}

/* ---- documents ---- */

/* Where the document that has been received so far ends; 0: it does not yet. Each byte is looked at once. */
static size_t document_end(struct qmp *q)
{
    while (q->seen < q->n) {
        const char c = q->text[q->seen++];
        if (q->quoted) {
            const bool escaped = q->escaped;
            q->escaped = !escaped && c == '\\';
            q->quoted = escaped || c != '"';
        } else if (c == '"') {
            q->quoted = true;
        } else if (c == '{' || c == '[') {
            q->depth++;
        } else if ((c == '}' || c == ']') && --q->depth == 0) {
            return q->seen;
        }
    }
    return 0;
}

/* The first `n` bytes are done. */
static void text_drop(struct qmp *q, size_t n)
{
    q->n -= n;
    if (n)
        memmove(q->text, q->text + n, q->n);
    q->seen = q->depth = 0;
    q->quoted = q->escaped = false;
}

/* The next document. */
static int receive_document(struct qmp *q, int64_t deadline, unsigned seconds, json_t **ret, struct err *e)
{
    size_t end = 0;
    *ret = NULL;
    while (!end) {
        size_t space = 0;
        while (!q->seen && space < q->n && q->text[space] && strchr("\r\n\t ", q->text[space]))
            space++;
        if (space)
            text_drop(q, space);
        if (q->n && q->text[0] != '{')
            return connection_lost(q, 0, q->text[0] == '[' ? "its answer is not an object" : "its answer is not JSON",
                                   e);
        end = document_end(q);
        const int rc = end ? 0 : receive_some(q, deadline, seconds, e);
        if (rc < 0)
            return rc;
    }
    *ret = json_loadb(q->text, end, JSON_REJECT_DUPLICATES, NULL);
    text_drop(q, end);
    return *ret ? 0 : connection_lost(q, 0, "its answer is not JSON", e);
}

static int answer_of(struct qmp *q, const char *command, json_t *answer, json_t **ret, struct err *e)
{
    const json_t *error = json_object_get(answer, "error");
    json_t *value = json_object_get(answer, "return");
    const char *text = json_string_value(json_object_get(error, "desc"));
    if (error && text)
        return err_plain(e, ERR_SOURCE, EREMOTEIO, "%s at %s refuses %s: %.600s", peer_name(q), q->path, command, text);
    if (error || !value)
        return connection_lost(q, 0, "an answer has neither a result nor the text of an error", e);
    if (ret)
        *ret = json_incref(value);
    return 0;
}

static int call_within(struct qmp *q, const char *command, json_t *args, int fd, unsigned seconds, json_t **ret,
                       struct err *e)
{
    const int64_t deadline = mono_ns() + seconds * NS_PER_S;
    CLEANUP_JSON json_t *doc = json_pack("{s:s,s:o*}", "execute", command, "arguments", args);
    if (ret)
        *ret = NULL;
    if (q->broken)
        return err_plain(e, ERR_SOURCE, EPIPE, "the connection to %s at %s has ended before %s", peer_name(q), q->path,
                         command);
    if (!doc || (!q->agent && json_object_set_new(doc, "id", json_integer((json_int_t)++q->id)) < 0))
        return err_nomem(e);
    char *text = json_dumps(doc, JSON_COMPACT);
    if (!text)
        return err_nomem(e);
    char *line = NULL;
    const int len = asprintf(&line, "%s\n", text);
    free(text);
    if (len < 0)
        return err_nomem(e);
    int rc = send_all(q, line, (size_t)len, fd, deadline, e);
    free(line);
    while (rc == 0) {
        CLEANUP_JSON json_t *answer = NULL;
        rc = receive_document(q, deadline, seconds, &answer, e);
        if (rc < 0 || json_object_get(answer, "event"))
            continue;
        const json_t *id = json_object_get(answer, "id");
        if (!q->agent && (!json_is_integer(id) || json_integer_value(id) != (json_int_t)q->id))
            return connection_lost(q, 0, "an answer is not that to our command", e);
        return answer_of(q, command, answer, ret, e);
    }
    return rc;
}

int qmp_call(struct qmp *q, const char *command, json_t *args, int fd, json_t **ret, struct err *e)
{
    return call_within(q, command, args, fd, q->answer_s, ret, e);
}

/* ---- the beginning ---- */

static int greeting_read(struct qmp *q, struct err *e)
{
    json_int_t major = 0, minor = 0;
    CLEANUP_JSON json_t *doc = NULL;
    int rc = receive_document(q, mono_ns() + q->greeting_s * NS_PER_S, q->greeting_s, &doc, e);
    if (rc == -ETIMEDOUT) {
        err_plain(e, ERR_BUSY, EBUSY, "QEMU does not greet at %s: another program is connected to this QMP socket",
                  q->path);
        err_hint(e, "give the machine a QMP socket of its own for snapferry: -qmp unix:PATH,server=on,wait=off");
        return -EBUSY;
    }
    if (rc < 0)
        return rc;
    if (json_unpack(doc, "{s:{s:{s:{s:I,s:I}}}}", "QMP", "version", "qemu", "major", &major, "minor", &minor) < 0)
        return connection_lost(q, 0, "does not greet as QMP does", e);
    q->major = major > 0 && major < 10000 ? (int)major : 0;
    if (major > LEAST_MAJOR || (major == LEAST_MAJOR && minor >= LEAST_MINOR))
        return qmp_call(q, "qmp_capabilities", NULL, -1, NULL, e);
    return err_set(e, ERR_USAGE, ENOTSUP, "QEMU at %s is version %d.%d: 7.1 or newer is needed", q->path, (int)major,
                   (int)minor);
}

static int dial(const char *path, int *fd, struct err *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const int64_t deadline = mono_ns() + CONNECT_S * NS_PER_S;
    CLEANUP_CLOSE int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot make a socket");
    if (strlen(path) >= sizeof a.sun_path)
        return err_set(e, ERR_USAGE, ENAMETOOLONG, "the path of the socket %.200s is longer than %zu bytes", path,
                       sizeof a.sun_path - 1);
    strcpy(a.sun_path, path);
    while (connect(s, (struct sockaddr *)&a, sizeof a) < 0) {
        const int sys = errno;
        if ((sys == EAGAIN || sys == EINTR) && mono_ns() < deadline) {
            usleep(50000);
            continue;
        }
        if (sys == ENOENT || sys == ENOTDIR || sys == ECONNREFUSED)
            return err_plain(e, ERR_NOT_FOUND, sys, "nothing listens at %s: the virtual machine is off", path);
        return err_set(e,
                       sys == EACCES || sys == EPERM ? ERR_PERMISSION
                       : sys == EAGAIN               ? ERR_BUSY
                                                     : ERR_SOURCE,
                       sys, "cannot connect to %s", path);
    }
    *fd = take_fd(&s);
    return 0;
}

static int qmp_new(struct qmp **ret, int fd, const char *path, bool agent, struct err *e)
{
    struct ucred who;
    socklen_t len = sizeof who;
    struct qmp *q = calloc(1, sizeof *q);
    if (!q) {
        close(fd);
        return err_nomem(e);
    }
    q->fd = fd;
    q->agent = agent;
    q->answer_s = QMP_ANSWER_S;
    q->greeting_s = QMP_GREETING_S;
    snprintf(q->path, sizeof q->path, "%s", path);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0)
        q->peer = who.pid;
    *ret = q;
    return 0;
}

void qmp_free(struct qmp *q)
{
    if (!q)
        return;
    closep(&q->fd);
    free(q->text);
    free(q);
}

static int greeted(struct qmp **ret, struct qmp *q, struct err *e)
{
    int rc = greeting_read(q, e);
    if (rc < 0)
        qmp_free(q);
    else
        *ret = q;
    return rc;
}

int qmp_open(struct qmp **ret, const char *path, struct err *e)
{
    struct qmp *q = NULL;
    int fd = -1, rc = dial(path, &fd, e);
    if (rc == 0)
        rc = qmp_new(&q, fd, path, false, e);
    return rc < 0 ? rc : greeted(ret, q, e);
}

int qmp_open_test(struct qmp **ret, int fd, unsigned seconds, struct err *e)
{
    struct qmp *q = NULL;
    int rc = qmp_new(&q, fd, "(test)", false, e);
    if (rc < 0)
        return rc;
    q->answer_s = q->greeting_s = seconds;
    return greeted(ret, q, e);
}

pid_t qmp_peer(const struct qmp *q)
{
    return q->peer;
}

int qmp_major(const struct qmp *q)
{
    return q->major;
}

/* ---- the guest agent ---- */

/* What comes before the mark was meant for somebody else. */
static int agent_synchronize(struct qmp *q, struct err *e)
{
    const json_int_t number = (json_int_t)(mono_ns() & 0x7fffffff);
    const int64_t deadline = mono_ns() + AGENT_SYNC_S * NS_PER_S;
    CLEANUP_JSON json_t *answer = NULL;
    char *line = NULL;
    json_int_t same = -1;
    const int len =
        asprintf(&line, "%c{\"execute\":\"guest-sync-delimited\",\"arguments\":{\"id\":%" JSON_INTEGER_FORMAT "}}\n",
                 AGENT_MARK, number);
    if (len < 0)
        return err_nomem(e);
    int rc = send_all(q, line, (size_t)len, -1, deadline, e);
    free(line);
    const char *mark = NULL;
    while (rc == 0 && !(mark = q->n ? memrchr(q->text, AGENT_MARK, q->n) : NULL))
        rc = receive_some(q, deadline, AGENT_SYNC_S, e);
    if (rc < 0)
        return rc;
    text_drop(q, (size_t)(mark + 1 - q->text));
    rc = receive_document(q, deadline, AGENT_SYNC_S, &answer, e);
    if (rc == 0 && (json_unpack(answer, "{s:I}", "return", &same) < 0 || same != number))
        rc = connection_lost(q, 0, "does not answer guest-sync-delimited", e);
    return rc;
}

int agent_open(struct qmp **ret, const char *path, struct err *e)
{
    struct qmp *q = NULL;
    int fd = -1, rc = dial(path, &fd, e);
    if (rc == 0)
        rc = qmp_new(&q, fd, path, true, e);
    if (rc == 0 && (rc = agent_synchronize(q, e)) < 0)
        qmp_free(q);
    else if (rc == 0)
        *ret = q;
    return rc;
}

int agent_adopt(struct qmp **ret, int fd, struct err *e)
{
    return qmp_new(ret, fd, "its socket", true, e);
}

int agent_fd(const struct qmp *q)
{
    return q->fd;
}

int agent_call(struct qmp *q, const char *command, unsigned seconds, json_int_t *ret, struct err *e)
{
    CLEANUP_JSON json_t *value = NULL;
    int rc = call_within(q, command, NULL, -1, seconds, &value, e);
    if (rc == 0 && !json_is_integer(value))
        rc = connection_lost(q, 0, "an answer is not a number", e);
    if (rc == 0)
        *ret = json_integer_value(value);
    return rc;
}
