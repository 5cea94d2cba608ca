/* SPDX-License-Identifier: GPL-2.0-or-later */
/* result.c - the result file of a mover, and the code that distinguishes transient errors */
#include "daemon/mover/agent/agent.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/json-bounds.h"

#include <errno.h>
#include <string.h>

const char *result_code_name(enum result_code c)
{
    static const char *const names[] = {"ok", "failed", "canceled", "transient", "source-lost"};
    return names[c];
}

/* Conditions that end by themselves or by intervention: full, unavailable, busy. */
static bool is_transient(int sys)
{
    static const int list[] = {EIO,      ENOSPC,      EDQUOT,   EBUSY,          EAGAIN,       ENOMEM,
                               EMFILE,   ENFILE,      ESTALE,   ETIMEDOUT,      EHOSTDOWN,    EHOSTUNREACH,
                               ENETDOWN, ENETUNREACH, ENOTCONN, ECONNRESET,     ECONNREFUSED, EREMOTEIO,
                               ENODEV,   ENXIO,       ENOLCK,   ENOTRECOVERABLE};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i] == sys)
            return true;
    return false;
}

enum result_code result_code_of(const struct err *e, bool remote, bool cancel_requested)
{
    switch (e->cls) {
    case ERR_NONE:
    case ERR_PARTIAL:
        return RESULT_OK;
    case ERR_INTERRUPTED:
        return cancel_requested ? RESULT_CANCELED : RESULT_TRANSIENT;
    case ERR_SOURCE:
        return RESULT_SOURCE_LOST;
    case ERR_NO_SPACE:
    case ERR_BUSY:
    case ERR_NO_REPO: /* a file system that is not mounted looks the same */
    case ERR_CLOCK:
        return RESULT_TRANSIENT;
    case ERR_MEMORY: /* without an errno it is the budget, which does not grow */
        return e->sys == ENOMEM ? RESULT_TRANSIENT : RESULT_FAILED;
    case ERR_GENERIC:
        return is_transient(e->sys) ? RESULT_TRANSIENT : RESULT_FAILED;
    case ERR_PERMISSION: /* a file system that became read-only after an error may recover */
        /* Keys and rights at a storage service are mended while the operation waits. */
        return e->sys == EROFS || remote ? RESULT_TRANSIENT : RESULT_FAILED;
    case ERR_USAGE:
    case ERR_PASSWORD:
    case ERR_EXISTS:
    case ERR_FORMAT:
    case ERR_DAMAGE:
    case ERR_NOT_FOUND:
    case ERR_NO_DAEMON:
    case ERR_CANCELED:
    case ERR_FAILED_OP:
        return RESULT_FAILED;
    case ERR_TARGET: /* the connection to the server of an NBD export is lost: it may come back */
        return e->sys == ESHUTDOWN ? RESULT_TRANSIENT : RESULT_FAILED;
    }
    return RESULT_FAILED;
}

json_t *result_error_json(const struct err *e)
{
    if (e->cls == ERR_NONE)
        return json_null();
    json_t *j = json_pack("{s:s, s:i, s:i}", "class", err_class_name(e->cls), "exit", (int)e->cls, "errno", e->sys);
    json_t *message = json_string(e->msg);
    json_object_set_new(j, "message", message ? message : json_string("(invalid message text)"));
    json_t *hint = json_string(e->hint);
    json_object_set_new(j, "hint", hint ? hint : json_string(""));
    return j;
}

bool list_add(struct run_context *x, json_t *list, json_t *item)
{
    const size_t len = item ? json_dumpb(item, NULL, 0, JSON_COMPACT) + 1 : 0;
    const size_t values = item ? json_values(item) + 1 : 0;
    if (!item || x->listed + len > WIRE_LIST_MAX || x->listed_values + values > WIRE_LIST_VALUES_MAX) {
        json_decref(item);
        return false;
    }
    x->listed += len;
    x->listed_values += values;
    return json_array_append_new(list, item) == 0;
}

/* Crash points: result-written (the bytes are there, not durable), result-durable. */
int result_write(int fd, const json_t *result, struct err *e)
{
    CLEANUP_FREE char *text = json_dumps(result, JSON_COMPACT);
    if (!text)
        return err_nomem(e);
    size_t len = strlen(text), at = 0;
    if (len >= WIRE_RESULT_MAX)
        return err_set(e, ERR_GENERIC, EFBIG, "the result has %zu bytes, at most %u are accepted", len,
                       WIRE_RESULT_MAX);
    text[len++] = '\n'; /* in place of the NUL: its length is known */
    while (at < len) {
        ssize_t n = pwrite(fd, text + at, len - at, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(e, ERR_GENERIC, n < 0 ? errno : ENOSPC, "cannot write the result file");
        at += (size_t)n;
    }
    /* After the write: before it, this would release the space that the daemon has allocated for it. */
    if (ftruncate(fd, (off_t)len) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot truncate the result file to its length");
    crash_point("result-written");
    if (fsync(fd) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot sync the result file");
    crash_point("result-durable");
    return 0;
}
