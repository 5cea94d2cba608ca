/* SPDX-License-Identifier: GPL-2.0-or-later */
/* plugin-call.c - one call of a plugin: request, answer, and all failures */
#include "proc/plugin-call.h"
#include "base/cleanup.h"
#include "proc/program-path.h"
#include "proc/program.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANSWER_MAX (1u << 20) /* bytes of one document */
#define LINES_MAX (64u << 20) /* bytes of a list */
#define LINE_MAX_BYTES (64u << 10)

const char *const *plugin_environment(void)
{
    static const char *const env[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                      "LANG=C.UTF-8", "SNAPFERRY_PROTOCOL=1", NULL};
    _Static_assert(PLUGIN_PROTOCOL == 1, "the environment names the protocol");
    return env;
}

void plugin_text(char *out, size_t cap, const char *text)
{
    size_t n = 0;
    for (; *text && n + 1 < cap; text++)
        out[n++] = (unsigned char)*text < 0x20 || *text == 0x7f ? ' ' : *text;
    if (*text) { /* truncated: not inside a character */
        size_t i = n;
        while (i && ((unsigned char)out[i - 1] & 0xc0) == 0x80)
            i--;
        unsigned char lead = i ? (unsigned char)out[i - 1] : 0;
        size_t need = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
        if (i && n - (i - 1) < need)
            n = i - 1;
    }
    while (n && out[n - 1] == ' ')
        n--;
    out[n] = '\0';
}

bool plugin_protocol_ok(json_int_t theirs, int ours)
{
    return theirs >= 1 && theirs <= ours && theirs >= ours - 1;
}

int plugin_fail(const struct plugin_program *p, enum plugin_verb v, enum err_class cls, int sys, struct err *e,
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
    return plugin_fail(p, v, ERR_GENERIC, EBADMSG, e, text);
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
                missing ? " does not exist" : " is not accessible", p->name);
        if (e)
            e->sys = sys;
        err_hint(e, "install it, or correct program = in [plugin \"%s\"]", p->name);
        return -sys;
    }
    char label[160];
    snprintf(label, sizeof label, "plugin %.140s", p->name);
    return program_check(label, p->path, e);
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
        plugin_lies(p, v, e, len ? "its answer is not JSON (%s)" : "no answer%.0s", why);
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
        return plugin_lies(p, v, e, "its answer has no protocol version");
    if (plugin_protocol_ok(json_integer_value(n), PLUGIN_PROTOCOL))
        return 0;
    char text[160];
    snprintf(text, sizeof text, "protocol version %lld, expected %d", (long long)json_integer_value(n),
             PLUGIN_PROTOCOL);
    plugin_fail(p, v, ERR_FORMAT, EPROTO, e, text);
    return err_hint(e, "install a version of the plugin that supports snapferry " SNAPFERRY_VERSION);
}

/* A plugin that exited with a code: its own message if there is one, else that of program_run(). */
static int call_failed(const struct plugin_program *p, enum plugin_verb v, int code, const char *out, size_t len,
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
        snprintf(text, sizeof text, "%s: verb not supported", p->path);
    else {
        /* The message of program_run() begins with its label, which is the verb that fail() adds again. */
        size_t skip = strlen(plugin_verb_at(v)->name) + 2;
        plugin_text(text, sizeof text, strlen(pe->msg) > skip ? pe->msg + skip : pe->msg);
    }
    plugin_fail(p, v, cls, sys, e, text);
    if (e && hint)
        plugin_text(e->hint, sizeof e->hint, hint);
    return -sys;
}

/* Runs it. *out is set only when it exited with code 0. */
static int call_run(const struct plugin_program *p, enum plugin_verb v, const json_t *args, unsigned timeout_s,
                    size_t max, char **out, size_t *len, struct err *e)
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
        return call_failed(p, v, status, text, *len, &pe, e);
    /* "Not found" is reserved for the plugin's own answers: a caller would treat it as a missing snapshot. */
    int sys = pe.sys == ENOENT ? ENOPKG : pe.sys ? pe.sys : EIO;
    size_t skip = strlen(verb) + 2;
    plugin_fail(p, v, pe.cls == ERR_NOT_FOUND ? ERR_GENERIC : pe.cls, sys, e,
                strlen(pe.msg) > skip ? pe.msg + skip : pe.msg);
    err_hint(e, "%s", pe.hint);
    return -sys;
}

int plugin_call(const struct plugin_program *p, enum plugin_verb v, const json_t *args, unsigned timeout_s,
                json_t **answer, struct err *e)
{
    CLEANUP_FREE char *out = NULL;
    size_t len = 0;
    int rc = call_run(p, v, args, timeout_s, ANSWER_MAX, &out, &len, e);
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
        return plugin_lies(l->p, l->verb, e, "output after the last line of its answer");
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
        return plugin_lies(l->p, l->verb, e, "its last line counts %lld lines, %llu received",
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
        return plugin_lies(l->p, l->verb, e, "last line with \"protocol\" and \"count\" missing: truncated?");
    return 0;
}

int plugin_call_lines(const struct plugin_program *p, enum plugin_verb v, const json_t *args, unsigned timeout_s,
                      plugin_line_fn *fn, void *arg, struct err *e)
{
    CLEANUP_FREE char *out = NULL;
    size_t len = 0;
    int rc = call_run(p, v, args, timeout_s, LINES_MAX, &out, &len, e);
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
