/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plugin-call.c - one call of a plugin: request in, answer out, every way in which that can go wrong */
#include "io/native/plugin-call.h"
#include "base/cleanup.h"
#include "proc/program.h"
#include "io/native/plugin-answer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANSWER_MAX (1u << 20) /* bytes of one document */
#define LINES_MAX (64u << 20) /* bytes of a list */
#define LINE_MAX_BYTES (64u << 10)
#define TIMEOUT_CEILING 86400u

const char *const *plugin_environment(void)
{
    static const char *const env[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                      "LANG=C.UTF-8", "SNAPFERRY_PROTOCOL=1", NULL};
    _Static_assert(PLUGIN_PROTOCOL == 1, "the environment names the protocol");
    return env;
}

bool plugin_protocol_ok(json_int_t theirs, int ours)
{
    return theirs >= 1 && theirs <= ours && theirs >= ours - 1;
}

/* Errors carry the plugin's name at their end whatever their length. `sys` does not add its text: the plugin's own
 * words are better. */
static int fail(const struct plugin_program *p, enum plugin_verb v, enum err_class cls, int sys, struct err *e,
                const char *text)
{
    err_set(e, cls, 0, "%s: %.800s, plugin: %.80s", plugin_verb_at(v)->name, text, p->name);
    if (e)
        e->sys = sys;
    return -sys;
}

int plugin_lies(const struct plugin_program *p, enum plugin_verb v, struct err *e, const char *fmt, ...)
{
    char text[800];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return fail(p, v, ERR_GENERIC, EBADMSG, e, text);
}

int plugin_installed(const struct plugin_program *p, struct err *e)
{
    struct stat st;
    if (!p->path || p->path[0] != '/')
        return err_set(e, ERR_USAGE, EINVAL, "plugin %s: \"%s\" is not an absolute path", p->name,
                       p->path ? p->path : "");
    if (stat(p->path, &st) < 0) {
        bool missing = errno == ENOENT || errno == ENOTDIR;
        int sys = missing ? ENOPKG : errno;
        err_set(e, ERR_GENERIC, missing ? 0 : sys, "plugin %s not installed: %s%s, plugin: %s", p->name, p->path,
                missing ? " does not exist" : " cannot be reached", p->name);
        if (e)
            e->sys = sys;
        err_hint(e, "install it, or correct program = in [plugin \"%s\"]", p->name);
        return -sys;
    }
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_USAGE, EINVAL, "plugin %s: %s is not a file", p->name, p->path);
    if (st.st_uid != 0 && (geteuid() == 0 || st.st_uid != geteuid())) {
        err_set(e, ERR_PERMISSION, EPERM, "plugin %s: %s belongs to user %u and is not run", p->name, p->path,
                (unsigned)st.st_uid);
        return err_hint(e, "make it root's: chown root %s", p->path);
    }
    if (st.st_mode & (S_IWGRP | S_IWOTH)) {
        err_set(e, ERR_PERMISSION, EPERM, "plugin %s: %s can be changed by others and is not run", p->name, p->path);
        return err_hint(e, "chmod go-w %s", p->path);
    }
    if (!(st.st_mode & S_IXUSR)) {
        err_set(e, ERR_PERMISSION, EACCES, "plugin %s: %s is not executable", p->name, p->path);
        return err_hint(e, "chmod +x %s", p->path);
    }
    return 0;
}

json_t *plugin_request(enum plugin_verb v, const json_t *args)
{
    CLEANUP_PLUGIN_JSON json_t *q = json_object();
    if (!q || (args && json_object_update(q, (json_t *)args) < 0) ||
        json_object_set_new(q, "protocol", json_integer(PLUGIN_PROTOCOL)) < 0 ||
        json_object_set_new(q, "verb", json_string(plugin_verb_at(v)->name)) < 0)
        return NULL;
    return take_ptr(&q);
}

json_t *plugin_parse(const struct plugin_program *p, enum plugin_verb v, const char *text, size_t len, struct err *e)
{
    json_error_t je;
    CLEANUP_PLUGIN_JSON json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    if (!j) {
        char why[160];
        plugin_text(why, sizeof why, je.text);
        plugin_lies(p, v, e, len ? "its answer is not JSON (%s)" : "it gave no answer%.0s", why);
        return NULL;
    }
    if (!json_is_object(j)) {
        plugin_lies(p, v, e, "its answer is not a JSON object");
        return NULL;
    }
    return take_ptr(&j);
}

static int check_protocol(const struct plugin_program *p, enum plugin_verb v, const json_t *answer, struct err *e)
{
    const json_t *n = json_object_get(answer, "protocol");
    if (!json_is_integer(n))
        return plugin_lies(p, v, e, "its answer does not say which version of the protocol it speaks");
    if (plugin_protocol_ok(json_integer_value(n), PLUGIN_PROTOCOL))
        return 0;
    char text[160];
    snprintf(text, sizeof text, "it speaks version %lld of the protocol, and this is version %d",
             (long long)json_integer_value(n), PLUGIN_PROTOCOL);
    fail(p, v, ERR_FORMAT, EPROTO, e, text);
    return err_hint(e, "install a version of the plugin that fits snapferry " SNAPFERRY_VERSION);
}

/* A plugin that ended with a code: its own words if there are some, else what program_run() made of it. */
static int failed(const struct plugin_program *p, enum plugin_verb v, int code, const char *out, size_t len,
                  const struct err *pe, struct err *e)
{
    enum err_class cls = ERR_GENERIC;
    int sys = EIO;
    for (unsigned i = 0; plugin_exit_at(i); i++)
        if (plugin_exit_at(i)->code == code) {
            cls = plugin_exit_at(i)->cls;
            sys = plugin_exit_at(i)->sys;
        }
    CLEANUP_PLUGIN_JSON json_t *j = len ? json_loadb(out, len, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const char *said = json_string_value(json_object_get(j, "error")),
               *hint = json_string_value(json_object_get(j, "hint"));
    char text[800];
    if (said && *said)
        plugin_text(text, sizeof text, said);
    else if (code == PLUGIN_EXIT_NO_VERB)
        snprintf(text, sizeof text, "%s does not know this verb", p->path);
    else {
        /* program_run() begins with its label, which is the verb that fail() puts in front again. */
        size_t skip = strlen(plugin_verb_at(v)->name) + 2;
        plugin_text(text, sizeof text, strlen(pe->msg) > skip ? pe->msg + skip : pe->msg);
    }
    fail(p, v, cls, sys, e, text);
    if (e && hint)
        plugin_text(e->hint, sizeof e->hint, hint);
    return -sys;
}

/* Runs it. *out is set only when it ended with code 0. */
static int run(const struct plugin_program *p, enum plugin_verb v, const json_t *args, unsigned timeout_s, size_t max,
               char **out, size_t *len, struct err *e)
{
    int rc = plugin_installed(p, e);
    if (rc < 0)
        return rc;
    const char *verb = plugin_verb_at(v)->name;
    CLEANUP_PLUGIN_JSON json_t *q = plugin_request(v, args);
    CLEANUP_FREE char *input = q ? json_dumps(q, JSON_COMPACT) : NULL;
    if (!input)
        return err_nomem(e);
    char *const argv[] = {(char *)p->path, (char *)verb, NULL};
    struct program r = {.argv = argv,
                        .env = plugin_environment(),
                        .user = p->user && *p->user ? p->user : NULL,
                        .label = verb,
                        .input = input,
                        .input_len = strlen(input),
                        .out_max = max,
                        .timeout_s = timeout_s ? timeout_s : plugin_timeout(p, NULL, v)};
    struct err pe = ERR_INIT;
    CLEANUP_FREE char *text = NULL;
    int status = 0;
    rc = program_run(&r, &text, len, &status, &pe);
    if (rc == 0 && status == 0) {
        *out = take_ptr(&text);
        return 0;
    }
    if (rc == 0)
        return failed(p, v, status, text, *len, &pe, e);
    /* "Not found" belongs to the plugin's own answers: a caller would take it for a snapshot that is gone. */
    int sys = pe.sys == ENOENT ? ENOPKG : pe.sys ? pe.sys : EIO;
    size_t skip = strlen(verb) + 2;
    fail(p, v, pe.cls == ERR_NOT_FOUND ? ERR_GENERIC : pe.cls, sys, e, strlen(pe.msg) > skip ? pe.msg + skip : pe.msg);
    err_hint(e, "%s", pe.hint);
    return -sys;
}

int plugin_call(const struct plugin_program *p, enum plugin_verb v, const json_t *args, unsigned timeout_s,
                json_t **answer, struct err *e)
{
    CLEANUP_FREE char *out = NULL;
    size_t len = 0;
    int rc = run(p, v, args, timeout_s, ANSWER_MAX, &out, &len, e);
    if (rc < 0)
        return rc;
    CLEANUP_PLUGIN_JSON json_t *j = plugin_parse(p, v, out, len, e);
    if (!j)
        return -EBADMSG;
    rc = check_protocol(p, v, j, e);
    if (rc == 0 && answer)
        *answer = take_ptr(&j);
    return rc;
}

struct lines {
    const struct plugin_program *p;
    enum plugin_verb verb;
    uint64_t n;
    bool ended, act;
    plugin_line_fn *fn;
    void *arg;
};

static int one_line(struct lines *l, const char *text, size_t len, struct err *e)
{
    if (len > LINE_MAX_BYTES)
        return plugin_lies(l->p, l->verb, e, "line %llu of its answer is longer than %u bytes",
                           (unsigned long long)l->n + 1, LINE_MAX_BYTES);
    if (l->ended)
        return plugin_lies(l->p, l->verb, e, "its answer goes on behind the last line");
    CLEANUP_PLUGIN_JSON json_t *j = plugin_parse(l->p, l->verb, text, len, e);
    if (!j)
        return -EBADMSG;
    const json_t *count = json_object_get(j, "count");
    if (!count || !json_object_get(j, "protocol")) {
        l->n++;
        return l->fn ? l->fn(j, l->act, l->arg, e) : 0;
    }
    int rc = check_protocol(l->p, l->verb, j, e);
    if (rc < 0)
        return rc;
    l->ended = true;
    if (!json_is_integer(count) || json_integer_value(count) < 0 || (uint64_t)json_integer_value(count) != l->n)
        return plugin_lies(l->p, l->verb, e, "its last line counts %lld lines, and there were %llu",
                           (long long)json_integer_value(count), (unsigned long long)l->n);
    return 0;
}

static int each_line(struct lines *l, const char *out, size_t len, struct err *e)
{
    l->n = 0;
    l->ended = false;
    for (const char *at = out, *end = out + len; at < end;) {
        const char *nl = memchr(at, '\n', (size_t)(end - at));
        size_t n = nl ? (size_t)(nl - at) : (size_t)(end - at);
        if (n > 0) {
            int rc = one_line(l, at, n, e);
            if (rc < 0)
                return rc;
        }
        at += n + 1;
    }
    if (!l->ended)
        return plugin_lies(l->p, l->verb, e, "its answer has no last line with \"protocol\" and \"count\": cut off?");
    return 0;
}

int plugin_call_lines(const struct plugin_program *p, enum plugin_verb v, const json_t *args, unsigned timeout_s,
                      plugin_line_fn *fn, void *arg, struct err *e)
{
    CLEANUP_FREE char *out = NULL;
    size_t len = 0;
    int rc = run(p, v, args, timeout_s, LINES_MAX, &out, &len, e);
    if (rc < 0)
        return rc;
    struct lines l = {.p = p, .verb = v};
    rc = each_line(&l, out, len, e);
    l.fn = fn;
    l.arg = arg;
    if (rc == 0)
        rc = each_line(&l, out, len, e);
    l.act = true;
    return rc == 0 ? each_line(&l, out, len, e) : rc;
}

unsigned plugin_timeout(const struct plugin_program *p, const struct plugin_info *info, enum plugin_verb v)
{
    unsigned ceiling = p->max_timeout_s ? p->max_timeout_s : TIMEOUT_CEILING, ours = plugin_verb_at(v)->timeout_s,
             theirs = info ? info->timeouts[v] : 0;
    return theirs ? (theirs < ceiling ? theirs : ceiling) : ours ? ours : ceiling;
}

int plugin_can(const struct plugin_program *p, const struct plugin_info *info, enum plugin_kind kind,
               enum plugin_verb v, struct err *e)
{
    const struct plugin_verb_info *i = plugin_verb_at(v);
    char text[160];
    if (info->kind != kind)
        snprintf(text, sizeof text, "it is a %s plugin, and a %s plugin is needed", plugin_kind_name(info->kind),
                 plugin_kind_name(kind));
    else if (i->ability && !(info->abilities & i->ability))
        snprintf(text, sizeof text, "it says in its abilities that it cannot do this");
    else
        return 0;
    return fail(p, v, ERR_GENERIC, ENOTSUP, e, text);
}

static int read_abilities(const struct plugin_program *p, const json_t *answer, struct plugin_info *ret, struct err *e)
{
    const json_t *list = json_object_get(answer, "abilities"), *word;
    if (!json_is_array(list) || json_array_size(list) > 256)
        return plugin_lies(p, PV_DESCRIBE, e, "\"abilities\" is not a list of words");
    size_t i;
    json_array_foreach(list, i, word)
    {
        if (!json_is_string(word))
            return plugin_lies(p, PV_DESCRIBE, e, "\"abilities\" has a member that is not a word");
        const struct plugin_ability_info *a, *found = NULL;
        for (unsigned k = 0; (a = plugin_ability_at(k)); k++)
            if (strcmp(a->name, json_string_value(word)) == 0)
                found = a;
        if (!found)
            ret->unknown_abilities++;
        else if (found->kind != ret->kind)
            return plugin_lies(p, PV_DESCRIBE, e, "ability \"%s\" is one of a %s, and the plugin says it is a %s",
                               found->name, plugin_kind_name(found->kind), plugin_kind_name(ret->kind));
        else
            ret->abilities |= found->bit;
    }
    return 0;
}

static int read_timeouts(const struct plugin_program *p, const json_t *answer, struct plugin_info *ret, struct err *e)
{
    const json_t *o = json_object_get(answer, "timeouts");
    if (!o)
        return 0;
    if (!json_is_object(o))
        return plugin_lies(p, PV_DESCRIBE, e, "\"timeouts\" is not an object");
    for (unsigned v = 0; v < PV_COUNT; v++) {
        const json_t *t = json_object_get(o, plugin_verb_at(v)->name);
        if (!t)
            continue;
        if (!json_is_integer(t) || json_integer_value(t) < 1 || json_integer_value(t) > 30 * TIMEOUT_CEILING)
            return plugin_lies(p, PV_DESCRIBE, e, "the timeout of \"%s\" is not a number of seconds",
                               plugin_verb_at(v)->name);
        ret->timeouts[v] = (unsigned)json_integer_value(t);
    }
    return 0;
}

static int read_kind(const struct plugin_program *p, const json_t *answer, struct plugin_info *ret, struct err *e)
{
    const char *kind = json_string_value(json_object_get(answer, "kind"));
    for (unsigned k = PLUGIN_DRIVER; kind && k <= PLUGIN_MOVER; k <<= 1)
        if (strcmp(kind, plugin_kind_name(k)) == 0)
            ret->kind = k;
    return ret->kind ? 0 : plugin_lies(p, PV_DESCRIBE, e, "\"kind\" is neither \"driver\" nor \"mover\"");
}

int plugin_describe(const struct plugin_program *p, struct plugin_info *ret, struct err *e)
{
    CLEANUP_PLUGIN_JSON json_t *answer = NULL;
    struct plugin_info i = {.max_retain = -1};
    int rc = plugin_call(p, PV_DESCRIBE, NULL, 0, &answer, e);
    if (rc < 0)
        return rc;
    struct answer a = {p, PV_DESCRIBE, answer, ""};
    uint64_t most = UINT64_MAX;
    i.protocol = (int)json_integer_value(json_object_get(answer, "protocol"));
    if ((rc = read_kind(p, answer, &i, e)) < 0 ||
        (rc = answer_text(&a, "name", ANSWER_REQUIRED, i.name, sizeof i.name, e)) < 0 ||
        (rc = answer_text(&a, "version", ANSWER_REQUIRED, i.version, sizeof i.version, e)) < 0 ||
        (rc = answer_text(&a, "text", 0, i.text, sizeof i.text, e)) < 0 ||
        (rc = answer_u64(&a, "max-retain", 0, &most, e)) < 0 || (rc = read_abilities(p, answer, &i, e)) < 0 ||
        (rc = read_timeouts(p, answer, &i, e)) < 0)
        return rc;
    if (most != UINT64_MAX && most > 1000000)
        return plugin_lies(p, PV_DESCRIBE, e, "\"max-retain\" is not a number of snapshots");
    i.max_retain = most == UINT64_MAX ? -1 : (int)most;
    *ret = i;
    return 0;
}
