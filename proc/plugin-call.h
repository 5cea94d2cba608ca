/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * plugin-call.h - the plugin protocol: one program, one exec per call, one JSON document in, one out
 *
 * The verb is argv[1]. Standard input holds one JSON object: "protocol", "verb" and what the verb needs. Standard
 * output holds one JSON object with "protocol" in it, or, for verbs that list, one object per line and a last line
 * {"protocol": 1, "count": N} that proves that nothing was cut off. The exit code is the class of the error;
 * snapferry-plugin(7) is the public description, and a test compares it with the tables of this header.
 *
 * What comes back is hostile until proven otherwise: size, depth, types, ranges and lengths are checked here or by the
 * readers of plugin-answer.h. Every call blocks and belongs into a step (proc/step.h) or another child.
 */
#ifndef SNAPFERRY_PROC_PLUGIN_CALL_H
#define SNAPFERRY_PROC_PLUGIN_CALL_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLUGIN_PROTOCOL 1 /* spoken here; answers of N and N-1 are accepted */
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

/* What a plugin says it can, in "abilities" of its answer to describe. */
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
    const char *text;   /* one line for people */
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
    const char *name;       /* for words: "..., plugin: NAME" */
    const char *path;       /* absolute */
    const char *user;       /* NULL or "": as we are */
    unsigned max_timeout_s; /* a timeout that the plugin declares is cut to this; 0: 24 h */
};

struct plugin_info {
    int protocol;
    enum plugin_kind kind;
    char name[64], version[64], text[256];
    unsigned abilities;
    unsigned unknown_abilities;  /* how many words it used that we don't know: ignored */
    int max_retain;              /* native snapshots per volume that the storage can hold (RS-08), -1: not said */
    unsigned timeouts[PV_COUNT]; /* seconds, declared (AP-15), 0: not declared */
};
/* Asks `describe` and checks the answer. -ENOPKG: the program is not installed (AO-24). */
int plugin_describe(const struct plugin_program *p, struct plugin_info *ret, struct err *e);
/* Seconds allowed to a verb: the default, or what the plugin declares, up to p->max_timeout_s (AP-15). `info` may be
 * NULL. */
unsigned plugin_timeout(const struct plugin_program *p, const struct plugin_info *info, enum plugin_verb v);
/* -ENOTSUP with a sentence unless the plugin is of that kind and says that it can do the verb. */
int plugin_can(const struct plugin_program *p, const struct plugin_info *info, enum plugin_kind kind,
               enum plugin_verb v, struct err *e);

/* Whether a version in an answer is accepted by somebody who speaks `ours`: N and N-1, from 1 on. */
bool plugin_protocol_ok(json_int_t theirs, int ours);

/*
 * One call. `args` (object, borrowed, may be NULL) goes into the request beside protocol and verb. *answer is a new
 * reference to an object. The class of an error is the plugin's exit code's; its text is what the plugin says in
 * {"error", "hint"} or on standard error; all end in ", plugin: NAME" (AO-26). -ENOTSUP: it does not know the verb.
 * -ETIMEDOUT: killed with all its children. -EBADMSG: what it said is not an answer. -EFBIG: it said too much.
 */
int plugin_call(const struct plugin_program *p, enum plugin_verb v, const json_t *args, unsigned timeout_s,
                json_t **answer, struct err *e);

/* The same for verbs with lines: fn gets every line but the last, twice: when the whole answer is there and counted,
 * all lines with `act` false, to be checked; then all with `act` true. So nobody acts on half a truth. A negative
 * return ends the call with it. */
typedef int plugin_line_fn(const json_t *line, bool act, void *arg, struct err *e);
int plugin_call_lines(const struct plugin_program *p, enum plugin_verb v, const json_t *args, unsigned timeout_s,
                      plugin_line_fn *fn, void *arg, struct err *e);

/* Text of a plugin fit for a message or terminal: control characters become spaces, cut at a character's border. */
void plugin_text(char *out, size_t cap, const char *text);

/* Sets e to "VERB: text, plugin: NAME"; the name is there whatever the text's length. The text of `sys` is not added:
 * the plugin's own words are better. Returns -sys. */
int plugin_fail(const struct plugin_program *p, enum plugin_verb v, enum err_class cls, int sys, struct err *e,
                const char *text);
/* Says that an answer is wrong: ERR_GENERIC, -EBADMSG, "VERB: what, plugin: NAME". */
int plugin_lies(const struct plugin_program *p, enum plugin_verb v, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The request of a call (new reference, NULL: no memory) and a line of output read as an object (NULL with `e` set),
 * for those who run the program in another way. */
json_t *plugin_request(enum plugin_verb v, const json_t *args);
json_t *plugin_parse(const struct plugin_program *p, enum plugin_verb v, const char *text, size_t len, struct err *e);
/* Whether the program is there and may be run (AP-21): absolute, a file, root's or ours, not writable by others,
 * executable. -ENOPKG: not installed. */
int plugin_installed(const struct plugin_program *p, struct err *e);
/* One call's environment, NULL-terminated, static. */
const char *const *plugin_environment(void);

static inline void plugin_json_freep(json_t **j)
{
    json_decref(*j);
}
#define CLEANUP_PLUGIN_JSON CLEANUP(plugin_json_freep)

#endif
