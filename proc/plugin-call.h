/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * plugin-call.h - the plugin protocol: one program, one exec per call, one JSON document in, one out
 *
 * The verb is argv[1]. Standard input is one JSON object: "protocol", "verb" and what the verb needs. Standard output
 * is one JSON object with "protocol" in it, or, for verbs that list, one object per line and a last line {"protocol":
 * 1, "count": N} that proves completeness. The exit code is the class of the error; snapferry-plugin(7) is the public
 * description, and a test compares it with the tables of this header.
 *
 * Answers are untrusted: size, depth, types, ranges and lengths are checked here or by the readers of plugin-answer.h.
 * Every call blocks and belongs into a step (proc/step.h) or another child.
 */
#ifndef SNAPFERRY_PROC_PLUGIN_CALL_H
#define SNAPFERRY_PROC_PLUGIN_CALL_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLUGIN_PROTOCOL 1 /* supported here; answers of N and N-1 are accepted */
#define PLUGIN_ID_MAX 128 /* characters of an operation id of a mover plugin (AP-22) */

enum plugin_kind { PLUGIN_DRIVER = 1 << 0, PLUGIN_MOVER = 1 << 1 };
const char *plugin_kind_name(enum plugin_kind k);

enum plugin_verb {
    PV_DESCRIBE,
    PV_APPLIES,
    /* driver: one to one with struct driver */
    PV_VOLUMES,
    PV_RESOLVE,
    PV_SNAPSHOT,
    PV_FIND,
    PV_LIST,
    PV_REMOVE,
    PV_EXPOSE,
    PV_UNEXPOSE,
    PV_EXPOSURES,
    PV_ALLOCATED,
    PV_CHANGED,
    PV_POOL,
    PV_TARGET,
    PV_TARGET_COMMIT,
    PV_TARGET_ABORT,
    PV_TARGET_FROM_NATIVE,
    /* mover */
    PV_START,
    PV_RUN,
    PV_PROGRESS,
    PV_WATCH,
    PV_CANCEL,
    PV_RESULT,
    PV_LOGS,
    PV_CLEANUP,
    PV_RESTORE,
    PV_DELETE,
    PV_VERIFY,
    PV_COUNT
};

/* Abilities of a plugin, in "abilities" of its answer to describe. */
enum plugin_ability {
    /* driver kind */
    PA_SNAPSHOT = 1 << 0,
    PA_NATIVE_RO = 1 << 1,
    PA_CLONE = 1 << 2,
    PA_OVERLAY = 1 << 3,
    PA_COPY_TARGET = 1 << 4,
    PA_ALLOCATED = 1 << 5,
    PA_CHANGED = 1 << 6,
    PA_TARGET = 1 << 7,
    PA_TARGET_FROM_NATIVE = 1 << 8,
    PA_POOL = 1 << 9,
    /* mover kind */
    PA_RUN = 1 << 16, /* the plugin's process is the mover: `run` instead of `start` and `restore` (AP-07 b) */
    PA_PROGRESS = 1 << 17,
    PA_WATCH = 1 << 18,
    PA_CANCEL = 1 << 19,
    PA_RESULT = 1 << 20,
    PA_LOGS = 1 << 21,
    PA_CLEANUP = 1 << 22,
    PA_RESTORE = 1 << 23,
    PA_DELETE = 1 << 24,
    PA_VERIFY = 1 << 25
};

struct plugin_verb_info {
    const char *name;
    unsigned kinds;     /* plugin_kind bits */
    unsigned ability;   /* the plugin must have one of these; 0: every plugin of the kind answers */
    unsigned timeout_s; /* default limit; 0 only for `run` and `watch`, which have none */
    bool lines;         /* answers with lines */
    const char *text;   /* one line of description */
};
/* NULL past the end. */
const struct plugin_verb_info *plugin_verb_at(unsigned verb);
struct plugin_ability_info {
    const char *name;
    unsigned bit;
    enum plugin_kind kind;
    const char *text;
};
const struct plugin_ability_info *plugin_ability_at(unsigned i);

/* Exit codes of a plugin. Anything else that is not 0 is an error without a class. */
struct plugin_exit_info {
    int code;
    enum err_class cls;
    int sys;
    const char *text;
};
const struct plugin_exit_info *plugin_exit_at(unsigned i);
#define PLUGIN_EXIT_NOT_FOUND 16
#define PLUGIN_EXIT_NO_VERB 64
#define PLUGIN_EXIT_PROTOCOL 65
#define PLUGIN_EXIT_TEMPORARY 75

/* The program of a [plugin "NAME"] section. Strings are borrowed. */
struct plugin_program {
    const char *name;       /* for messages: "..., plugin: NAME" */
    const char *path;       /* absolute */
    const char *user;       /* NULL or "": no change */
    unsigned max_timeout_s; /* a timeout declared by the plugin is limited to this; 0: 24 h */
};

struct plugin_info {
    int protocol;
    enum plugin_kind kind;
    char name[64], version[64], text[256];
    unsigned abilities;
    unsigned unknown_abilities;  /* unknown abilities: ignored */
    int max_retain;              /* native snapshots per volume that the storage can hold (RS-08), -1: not said */
    unsigned timeouts[PV_COUNT]; /* seconds, declared (AP-15), 0: not declared */
};
/* Calls `describe` and checks the answer. -ENOPKG: the program is not installed (AO-24). */
int plugin_describe(const struct plugin_program *p, struct plugin_info *ret, struct err *e);
/* Seconds allowed to a verb: the default, or what the plugin declares, up to p->max_timeout_s (AP-15). `info` may be
 * NULL. */
unsigned plugin_timeout(const struct plugin_program *p, const struct plugin_info *info, enum plugin_verb v);
/* -ENOTSUP with a message unless the plugin is of that kind and has the ability of the verb. */
int plugin_can(const struct plugin_program *p, const struct plugin_info *info, enum plugin_kind kind,
               enum plugin_verb v, struct err *e);

/* Whether a version in an answer is accepted by a caller of version `ours`: N and N-1, from 1 on. */
bool plugin_protocol_ok(json_int_t theirs, int ours);

/*
 * One call. `args` (object, borrowed, may be NULL) is added to protocol and verb in the request. *answer is a new
 * reference to an object. The class of an error is that of the plugin's exit code; its text is the plugin's {"error",
 * "hint"} or its standard error; all end in ", plugin: NAME" (AO-26). -ENOTSUP: unknown verb. -ETIMEDOUT: killed with
 * all its children. -EBADMSG: malformed answer. -EFBIG: too much output.
 */
int plugin_call(const struct plugin_program *p, enum plugin_verb v, const json_t *args, unsigned timeout_s,
                json_t **answer, struct err *e);

/* The same for verbs with lines: fn gets every line but the last, twice: when the whole answer was received and
 * counted, all lines with `act` false, to be checked; then all with `act` true. So that an incomplete answer is
 * never acted on. A negative return ends the call with it. */
typedef int plugin_line_fn(const json_t *line, bool act, void *arg, struct err *e);
int plugin_call_lines(const struct plugin_program *p, enum plugin_verb v, const json_t *args, unsigned timeout_s,
                      plugin_line_fn *fn, void *arg, struct err *e);

/* Text of a plugin safe for a message or terminal: control characters become spaces, truncated at a character's
 * border. */
void plugin_text(char *out, size_t cap, const char *text);

/* Sets e to "VERB: text, plugin: NAME"; the name is always included. The text of `sys` is not added: the plugin's
 * own message is better. Returns -sys. */
int plugin_fail(const struct plugin_program *p, enum plugin_verb v, enum err_class cls, int sys, struct err *e,
                const char *text);
/* A malformed answer: ERR_GENERIC, -EBADMSG, "VERB: what, plugin: NAME". */
int plugin_lies(const struct plugin_program *p, enum plugin_verb v, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The request of a call (new reference, NULL: no memory) and a line of output read as an object (NULL with `e` set),
 * for callers that run the program in another way. */
json_t *plugin_request(enum plugin_verb v, const json_t *args);
json_t *plugin_parse(const struct plugin_program *p, enum plugin_verb v, const char *text, size_t len, struct err *e);
/* Whether the program exists and may be run (AP-21): absolute, a file, owned by root or this user, not writable by
 * others, executable. -ENOPKG: not installed. */
int plugin_installed(const struct plugin_program *p, struct err *e);
/* One call's environment, NULL-terminated, static. */
const char *const *plugin_environment(void);

static inline void plugin_json_freep(json_t **j)
{
    json_decref(*j);
}
#define CLEANUP_PLUGIN_JSON CLEANUP(plugin_json_freep)

#endif
