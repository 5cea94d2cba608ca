/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static enum err_class class_of_errno(int sys)
{
    switch (sys) {
    case ENOSPC:
    case EDQUOT:
        return ERR_NO_SPACE;
    case EACCES:
    case EPERM:
    case EROFS:
        return ERR_PERMISSION;
    case ENOMEM:
        return ERR_MEMORY;
    default:
        return ERR_GENERIC;
    }
}

/* errno values chosen by this code add nothing to the message. */
static bool errno_is_appended(enum err_class cls, int sys)
{
    return sys > 0 && cls != ERR_USAGE && cls != ERR_INTERRUPTED && sys != EBADMSG && sys != ENOTSUP;
}

/* A write was cut by the limit on the size of files: no other advice helps. */
static bool hint_limit(struct err *e)
{
    struct rlimit limit;
    if (e->sys != EFBIG || e->cls == ERR_USAGE || e->cls == ERR_FORMAT || e->cls == ERR_DAMAGE ||
        getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
        return false;
    snprintf(e->hint, sizeof e->hint,
             "no file may have more than %llu bytes here: raise LimitFSIZE= of the unit, or `ulimit -f`",
             (unsigned long long)limit.rlim_cur);
    return true;
}

static int err_vset(struct err *e, enum err_class cls, int sys, bool tell, const char *fmt, va_list ap)
    __attribute__((format(printf, 5, 0)));
static int err_vset(struct err *e, enum err_class cls, int sys, bool tell, const char *fmt, va_list ap)
{
    int ret = sys > 0 ? -sys : -EIO;
    if (!e)
        return ret;
    /* The arguments may point into e itself (re-wording an error), so format into a copy first. */
    char msg[sizeof e->msg];
    int n = vsnprintf(msg, sizeof msg, fmt, ap);
    if (n < 0)
        n = 0;
    if (tell && (size_t)n < sizeof msg)
        snprintf(msg + n, sizeof msg - (size_t)n, ": %s", strerror(sys));
    memcpy(e->msg, msg, sizeof msg);
    e->cls = cls == ERR_GENERIC ? class_of_errno(sys) : cls;
    e->sys = sys;
    e->hint[0] = '\0';
    hint_limit(e);
    return ret;
}

int err_set(struct err *e, enum err_class cls, int sys, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = err_vset(e, cls, sys, errno_is_appended(cls, sys), fmt, ap);
    va_end(ap);
    return rc;
}

int err_plain(struct err *e, enum err_class cls, int sys, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = err_vset(e, cls, sys, false, fmt, ap);
    va_end(ap);
    return rc;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
    if (!e)
        return -EIO;
    char msg[sizeof e->msg];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof msg)
        snprintf(msg + n, sizeof msg - (size_t)n, ": %s", e->msg);
    memcpy(e->msg, msg, sizeof msg);
    return e->sys > 0 ? -e->sys : -EIO;
}

int err_hint(struct err *e, const char *fmt, ...)
{
    if (!e)
        return -EIO;
    if (hint_limit(e))
        return -EFBIG;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->hint, sizeof e->hint, fmt, ap);
    va_end(ap);
    return e->sys > 0 ? -e->sys : -EIO;
}

int err_nomem(struct err *e)
{
    return err_set(e, ERR_MEMORY, ENOMEM, "cannot allocate memory");
}

const char *err_class_name(enum err_class cls)
{
    switch (cls) {
    case ERR_NONE:
        return "none";
    case ERR_GENERIC:
        return "error";
    case ERR_USAGE:
        return "usage";
    case ERR_PARTIAL:
        return "partial";
    case ERR_PASSWORD:
        return "password";
    case ERR_NO_REPO:
        return "no-repository";
    case ERR_EXISTS:
        return "exists";
    case ERR_FORMAT:
        return "format";
    case ERR_BUSY:
        return "busy";
    case ERR_DAMAGE:
        return "damage";
    case ERR_NOT_FOUND:
        return "not-found";
    case ERR_TARGET:
        return "target";
    case ERR_NO_SPACE:
        return "no-space";
    case ERR_SOURCE:
        return "source";
    case ERR_PERMISSION:
        return "permission";
    case ERR_CLOCK:
        return "clock";
    case ERR_MEMORY:
        return "memory";
    case ERR_NO_DAEMON:
        return "no-daemon";
    case ERR_CANCELED:
        return "canceled";
    case ERR_FAILED_OP:
        return "failed";
    case ERR_INTERRUPTED:
        return "interrupted";
    }
    return "error";
}

static log_fn *sink;
static void *sink_arg;

void log_to(log_fn *fn, void *arg)
{
    sink = fn;
    sink_arg = arg;
}

void log_sink(log_fn **fn, void **arg)
{
    *fn = sink;
    *arg = sink_arg;
}

static _Atomic int least = LOG_LVL_INFO;

void log_least_set(enum log_level lvl)
{
    least = lvl;
}

enum log_level log_least(void)
{
    return (enum log_level)least;
}

size_t text_acts(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    if ((*s < 0x20 && *s != '\t') || *s == 0x7f)
        return *s ? 1 : 0;
    if ((s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0) || (s[0] == 0xd8 && s[1] == 0x9c))
        return 2;
    if (s[0] != 0xe2 || (s[1] != 0x80 && s[1] != 0x81))
        return 0;
    const bool mark =
        s[1] == 0x80 ? s[2] == 0x8e || s[2] == 0x8f || (s[2] >= 0xa8 && s[2] <= 0xae) : s[2] >= 0xa6 && s[2] <= 0xa9;
    return mark ? 3 : 0;
}

static void escape(const char *line, char *out, size_t cap)
{
    size_t n = 0;
    for (const unsigned char *s = (const unsigned char *)line; *s && n + 13 < cap;) {
        size_t k = text_acts((const char *)s);
        if (!k)
            out[n++] = (char)*s++;
        for (; k > 0; k--)
            n += (size_t)snprintf(out + n, 5, "\\x%02x", *s++);
    }
    out[n] = '\0';
}

void log_line(enum log_level lvl, const char *fmt, ...)
{
    if (!sink)
        return;
    char line[1536], escaped[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    escape(line, escaped, sizeof escaped);
    sink(lvl, escaped, sink_arg);
}
