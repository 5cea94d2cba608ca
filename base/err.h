/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * err.h - errors: what failed, where, why and what to do
 *
 * Every fallible function of the rooms takes a `struct err *` as its last argument and returns 0 (or a documented
 * non-negative value) on success and a negative errno on failure. On failure the struct holds the class (which is also
 * the exit code of the command), the errno, a message, and a hint. On success it is not changed, so that one struct can
 * serve a whole function. NULL is allowed if the caller does not need the message.
 */
#ifndef SNAPFERRY_BASE_ERR_H
#define SNAPFERRY_BASE_ERR_H

#include <stddef.h>

/* Class of an error. The numbers are the exit codes of snapferry(8): never renumber. */
enum err_class {
    ERR_NONE = 0,
    ERR_GENERIC = 1,      /* anything without a class of its own */
    ERR_USAGE = 2,        /* wrong option, argument or configuration */
    ERR_PARTIAL = 3,      /* done, but unreadable ranges of the source were mapped */
    ERR_PASSWORD = 10,    /* wrong password (or a damaged encrypted format block: AEAD cannot tell them apart) */
    ERR_NO_REPO = 11,     /* no repository at that place */
    ERR_EXISTS = 12,      /* repo create: a repository or other files exist already */
    ERR_FORMAT = 13,      /* newer format version, unknown algorithm or required feature */
    ERR_BUSY = 14,        /* repository under an upgrade lock, or a needed resource is in use */
    ERR_DAMAGE = 15,      /* stored data is damaged or missing */
    ERR_NOT_FOUND = 16,   /* no such snapshot, path in a snapshot, or source file */
    ERR_TARGET = 17,      /* restore target refused: mounted, in use, too small, not empty */
    ERR_NO_SPACE = 18,    /* no space (or quota) left for writing */
    ERR_SOURCE = 19,      /* the source cannot be read: I/O error, vanished, shrank */
    ERR_PERMISSION = 20,  /* permission denied or read-only file system */
    ERR_CLOCK = 21,       /* clock differs from the repository's by more than 5 minutes */
    ERR_MEMORY = 22,      /* the memory budget is too small for this repository, or the system has no memory left */
    ERR_NO_DAEMON = 23,   /* the daemon does not run, or does not respond */
    ERR_CANCELED = 24,    /* the backup, restore or operation that was waited for was canceled */
    ERR_FAILED_OP = 25,   /* it failed, and its record has no class of its own */
    ERR_INTERRUPTED = 130 /* SIGINT or SIGTERM; a checkpoint was written where one was possible */
};

struct err {
    enum err_class cls; /* ERR_NONE until something failed */
    int sys;            /* positive errno, 0 if none applies */
    char msg[1024];     /* what, where, why; no newline, no full stop at the end */
    char hint[384];     /* what to do; "" if there is none */
};

#define ERR_INIT                                                                                                       \
    {                                                                                                                  \
        ERR_NONE, 0, "", ""                                                                                            \
    }

/*
 * Records a failure: `fmt` is the message. If `sys` is a positive errno its text is appended (": No space left on
 * device"), except for ERR_USAGE, ERR_INTERRUPTED, EBADMSG and ENOTSUP, where the message is complete; and, where `cls`
 * is ERR_GENERIC, the class is derived from it (ENOSPC/EDQUOT: ERR_NO_SPACE, EACCES/EPERM/ EROFS: ERR_PERMISSION,
 * ENOMEM: ERR_MEMORY). Returns -sys, or -EIO when sys is 0: `return err_set(e, ...)`. Overwrites the previous error: it
 * is called once, where the failure occurs; callers add context with err_wrap().
 */
int err_set(struct err *e, enum err_class cls, int sys, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));

/* The same, and the text of `sys` is never appended: for "there is no ..." and "... exists already". */
int err_plain(struct err *e, enum err_class cls, int sys, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));

/* Prepends "context: " to the message. Returns the negative errno that e holds. Does nothing for NULL. */
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));

/* Sets the hint (replacing one that is there). Returns the negative errno that e holds. */
int err_hint(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));

/* err_set() for a failed allocation: ERR_MEMORY, -ENOMEM. */
int err_nomem(struct err *e) __attribute__((cold));

/* Name of a class for JSON and logs: "password", "no-space", ... */
const char *err_class_name(enum err_class cls);

/* One log line, from any room, on any thread (a room never prints). */
enum log_level { LOG_LVL_DEBUG, LOG_LVL_INFO, LOG_LVL_WARNING, LOG_LVL_ERROR };
/* Below it nothing is worth showing: what the receiver of lines goes by. LOG_LVL_INFO until it is set. */
void log_least_set(enum log_level lvl);
enum log_level log_least(void);
typedef void log_fn(enum log_level lvl, const char *line, void *arg);
/* Sets where log lines go. Not thread-safe: call it before threads start. NULL: lines are dropped (the default). */
void log_to(log_fn *fn, void *arg);
/* The current target, for a caller that replaces it temporarily. */
void log_sink(log_fn **fn, void **arg);
/* How many bytes at `text` make a terminal act, or reorder what a person reads, 0: none; control characters but the
 * tab, also those above U+007F, and marks of direction and of lines. Names of volumes are anybody's. */
size_t text_acts(const char *text);
/* Characters that make a terminal act are written as \xNN, byte by byte: what is logged has names in it. */
void log_line(enum log_level lvl, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define log_debug(...) log_line(LOG_LVL_DEBUG, __VA_ARGS__)
#define log_info(...) log_line(LOG_LVL_INFO, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LVL_WARNING, __VA_ARGS__)

#endif
