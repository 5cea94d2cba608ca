/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rbd-tool.c - calls of snapferry-rbd */
#include "io/native/rbd.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "io/native/json-fields.h"
#include "proc/program-path.h"
#include "proc/program.h"
#include "proc/socket-program.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ARGS_MAX 64
#define OUT_MAX (64u << 20)
#define LOOK_SECONDS 900
#define CHANGE_SECONDS 300
#define CHANGE_BYTES_PER_S (UINT64_C(4) << 20)
#define PRINT_SECONDS (24 * 3600) /* the step's own deadline is shorter */
#define READY_SECONDS 60

static const char *program_for_tests;

void rbd_program_test(const char *path)
{
    program_for_tests = path;
}

/* Beside this program (a build directory), or under the prefix where that is installed. */
static void program_path(char ret[PATH_MAX])
{
    static const char name[] = "snapferry-rbd";
    char self[PATH_MAX - 64];
    if (program_for_tests || program_self(self, sizeof self, NULL) < 0) {
        snprintf(ret, PATH_MAX, "%s", program_for_tests ? program_for_tests : "/usr/libexec/snapferry/snapferry-rbd");
        return;
    }
    for (unsigned i = 0; i < 2; i++) {
        char *slash = strrchr(self, '/');
        if (slash)
            *slash = '\0';
        snprintf(ret, PATH_MAX, "%s%s/%s", self, i ? "/libexec/snapferry" : "", name);
        if (access(ret, X_OK) == 0)
            return;
    }
}

int rbd_installed(struct err *e)
{
    char path[PATH_MAX];
    program_path(path);
    if (access(path, X_OK) == 0)
        return 0;
    err_set(e, ERR_SOURCE, errno, "cannot run %s", path);
    return err_hint(e, "images of Ceph need the package snapferry-rbd");
}

/* ---- a command line ---- */

struct call {
    char path[PATH_MAX], crash[256];
    const char *argv[ARGS_MAX + 6];
    const char *env[8];
    struct program p;
};

static const char *option_of(const struct driver_class *c, const char *key)
{
    const char *text = json_string_value(json_object_get(c->options, key));
    return text && *text ? text : NULL;
}

static int call_make(struct call *k, const struct driver_class *c, const char *const *args, struct err *e)
{
    const char *config = option_of(c, "ceph-config"), *user = option_of(c, "ceph-user");
    const char *crash = getenv("SNAPFERRY_CRASH_AT"); /* of tests (base/crash.h) */
    size_t n = 0;
    program_path(k->path);
    k->argv[n++] = k->path;
    if (config) {
        k->argv[n++] = "--config";
        k->argv[n++] = config;
    }
    if (user) {
        k->argv[n++] = "--user";
        k->argv[n++] = user;
    }
    for (size_t i = 0; args[i]; i++) {
        if (i == ARGS_MAX)
            return err_set(e, ERR_USAGE, E2BIG, "storage class \"%s\" has too many patterns", c->name);
        k->argv[n++] = args[i];
    }
    k->argv[n] = NULL;
    n = 0;
    k->env[n++] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    k->env[n++] = "LANG=C.UTF-8";
    if (crash) {
        snprintf(k->crash, sizeof k->crash, "SNAPFERRY_CRASH_AT=%s", crash);
        k->env[n++] = k->crash;
    }
    k->env[n] = NULL;
    k->p = (struct program){.argv = (char *const *)(uintptr_t)k->argv, .env = k->env, .label = "snapferry-rbd"};
    return rbd_installed(e);
}

/* The last line of a program that has failed. */
static int failure(const char *line, struct err *e)
{
    static const enum err_class known[] = {ERR_GENERIC,  ERR_USAGE,      ERR_BUSY,   ERR_NOT_FOUND, ERR_SOURCE,
                                           ERR_NO_SPACE, ERR_PERMISSION, ERR_MEMORY, ERR_TARGET};
    json_t *j = json_loads(line, 0, NULL);
    const char *message = json_string_value(json_object_get(j, "message"));
    const char *hint = json_string_value(json_object_get(j, "hint"));
    const json_int_t cls = json_integer_value(json_object_get(j, "class"));
    const json_int_t sys = json_integer_value(json_object_get(j, "errno"));
    enum err_class found = ERR_NONE;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if ((json_int_t)known[i] == cls)
            found = known[i];
    int rc = -EIO;
    if (message && found) {
        rc = err_plain(e, found, sys > 0 && sys < 4096 ? (int)sys : EIO, "%.900s", message);
        if (hint && *hint)
            err_hint(e, "%.380s", hint);
    }
    json_decref(j);
    return message && found ? rc : 0;
}

static const char *last_line(const char *text)
{
    const char *line = text;
    for (const char *p = text; (p = strchr(p, '\n')) && p[1]; p++)
        line = p + 1;
    return line;
}

static int call_run(struct call *k, char **out, struct err *e)
{
    struct err why = ERR_INIT;
    CLEANUP_FREE char *text = NULL;
    int status = 0;
    int rc = program_run(&k->p, &text, NULL, &status, &why);
    if (rc == 0 && status == 0) {
        if (out)
            *out = take_ptr(&text);
        return 0;
    }
    if (rc == 0 && text && (rc = failure(last_line(text), e)) < 0)
        return rc;
    if (e)
        *e = why;
    return rc < 0 ? rc : -EIO;
}

int rbd_change(const struct driver_class *c, const char *what, const char *const *args, const char *input,
               struct err *e)
{
    return rbd_change_all(c, what, args, input, 0, e);
}

int rbd_change_all(const struct driver_class *c, const char *what, const char *const *args, const char *input,
                   uint64_t size, struct err *e)
{
    struct call k;
    int rc = call_make(&k, c, args, e);
    if (rc < 0)
        return rc;
    const uint64_t seconds = CHANGE_SECONDS + size / CHANGE_BYTES_PER_S;
    k.p.timeout_s = seconds < PRINT_SECONDS ? (unsigned)seconds : PRINT_SECONDS;
    k.p.input = input;
    k.p.input_len = input ? strlen(input) : 0;
    /* A client that is killed while it holds the lock of an image keeps others from writing for half a minute. */
    k.p.finish = true;
    rc = call_run(&k, NULL, e);
    return rc < 0 ? err_wrap(e, "%s", what) : 0;
}

/* ---- what is printed ---- */

struct printing {
    int (*fn)(const void *, size_t, void *, struct err *);
    void *arg;
    char line[2048]; /* the last one, as far as it has come */
    size_t n;
};

static int print_part(const void *part, size_t len, void *arg, struct err *e)
{
    struct printing *x = arg;
    const char *p = part;
    for (size_t i = 0; i < len; i++) {
        if (x->n && x->line[x->n - 1] == '\n')
            x->n = 0;
        if (x->n + 1 < sizeof x->line)
            x->line[x->n++] = p[i];
    }
    return x->fn(part, len, x->arg, e);
}

int rbd_print(const struct driver_class *c, const char *const *args,
              int (*fn)(const void *, size_t, void *, struct err *), void *arg, struct err *e)
{
    struct call k;
    struct err why = ERR_INIT;
    struct printing x = {.fn = fn, .arg = arg};
    int status = 0, rc = call_make(&k, c, args, e);
    if (rc < 0)
        return rc;
    k.p.timeout_s = PRINT_SECONDS;
    k.p.sink = print_part;
    k.p.sink_arg = &x;
    rc = program_run(&k.p, NULL, NULL, &status, &why);
    if (rc == 0 && status == 0)
        return 0;
    x.line[x.n] = '\0';
    if (rc == 0 && (rc = failure(x.line, e)) < 0)
        return rc;
    if (e)
        *e = why;
    return rc < 0 ? rc : -EIO;
}

/* ---- the report ---- */

static const char *text_of(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}

static bool number_of(const json_t *j, const char *key, uint64_t *ret)
{
    const json_t *n = json_object_get(j, key);
    *ret = (uint64_t)json_integer_value(n);
    return json_is_integer(n) && json_integer_value(n) >= 0;
}

static bool image_parse(const json_t *j, struct rbd_image *ret)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    ret->pool = text_of(j, "pool");
    ret->space = text_of(j, "namespace");
    ret->name = text_of(j, "name");
    ret->id = text_of(j, "id");
    ret->watched = json_is_true(json_object_get(j, "watched"));
    ret->created_ns = (int64_t)json_integer_value(json_object_get(j, "created")) * NS_PER_S;
    ret->snaps = json_object_get(j, "snaps");
    ret->meta = json_object_get(j, "meta");
    return *ret->pool && *ret->name && *ret->id && !ret->id[strspn(ret->id, allowed)] && strlen(ret->id) < 64 &&
           number_of(j, "pool_id", &ret->pool_id) && number_of(j, "size", &ret->size) && json_is_array(ret->snaps) &&
           json_is_object(ret->meta);
}

int rbd_report_parse(struct rbd_report *ret, const struct driver_class *c, char *text, struct err *e)
{
    *ret = (struct rbd_report){.doc = json_loads(text, 0, NULL)};
    free(text);
    const json_t *images = json_object_get(ret->doc, "images"), *skipped = json_object_get(ret->doc, "skipped"), *j;
    size_t i;
    ret->fsid = text_of(ret->doc, "fsid");
    if (!json_is_array(images) || strlen(ret->fsid) != ALIAS_LEN)
        return err_set(e, ERR_GENERIC, EINVAL, "snapferry-rbd: its answer is no report");
    if (!(ret->image = calloc(json_array_size(images) + 1, sizeof *ret->image)))
        return err_nomem(e);
    json_array_foreach(images, i, j) if (!image_parse(j, &ret->image[ret->n++])) return err_set(
        e, ERR_GENERIC, EINVAL, "snapferry-rbd: image %zu of its report is malformed", i);
    json_array_foreach(skipped, i, j)
        log_warning("class \"%s\": ignored: %s", c->name, json_is_string(j) ? json_string_value(j) : "?");
    return 0;
}

int rbd_report_read(struct rbd_report *ret, const struct driver_class *c, const char *const *patterns, struct err *e)
{
    const char *args[ARGS_MAX + 2] = {"report"};
    struct call k;
    char *text = NULL;
    size_t n = 1;
    *ret = (struct rbd_report){.doc = NULL};
    for (; patterns[n - 1] && n <= ARGS_MAX; n++)
        args[n] = patterns[n - 1];
    int rc = call_make(&k, c, args, e);
    if (rc < 0)
        return rc;
    k.p.timeout_s = LOOK_SECONDS;
    k.p.out_max = OUT_MAX;
    rc = call_run(&k, &text, e);
    return rc < 0 ? rc : rbd_report_parse(ret, c, text, e);
}

void rbd_report_free(struct rbd_report *r)
{
    json_decref(r->doc);
    free(r->image);
    *r = (struct rbd_report){.doc = NULL};
}

/* ---- the server ---- */

int rbd_serve(const struct driver_class *c, const char *const *args, const char *name, int *fd, struct err *e)
{
    char said[2048];
    struct call k;
    CLEANUP_CLOSE int socket = -1;
    int rc = call_make(&k, c, args, e);
    if (rc < 0)
        return rc;
    k.p.timeout_s = READY_SECONDS;
    rc = socket_program_start(&k.p, &socket, said, sizeof said, e);
    if (rc < 0)
        return rc;
    if (strcmp(said, "ready") == 0) {
        *fd = take_fd(&socket);
        return 0;
    }
    rc = failure(said, e);
    return rc < 0 ? rc : err_plain(e, ERR_SOURCE, EIO, "snapferry-rbd has ended before it could serve %.300s", name);
}
