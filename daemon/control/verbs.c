/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * verbs.c - the verbs of the control socket
 *
 * A table has the arguments of each verb and their types; other requests are refused before they reach the engine.
 */
#include "daemon/control/control-impl.h"
#include "base/nearest.h"
#include "daemon/records/names.h"

#include <errno.h>
#include <string.h>

#ifndef SNAPFERRY_VERSION
#define SNAPFERRY_VERSION "unknown"
#endif

#define ID_MAX_LEN 511
#define TEXT_MAX_LEN 4095

typedef void verb_fn(struct request *q, struct request_args *args);

/* ---- verbs answered by the engine ---- */

#define ENGINE_VERB(name, call)                                                                                        \
    static void name(struct request *q, struct request_args *args)                                                     \
    {                                                                                                                  \
        call(q->control->engine, args, request_reply, q);                                                              \
    }
ENGINE_VERB(do_submit_backup, engine_submit_backup)
ENGINE_VERB(do_native_prune, engine_native_prune)
ENGINE_VERB(do_native_release, engine_native_release)
ENGINE_VERB(do_expire, engine_expire)
ENGINE_VERB(do_detach, engine_detach)
ENGINE_VERB(do_forget, engine_forget)
ENGINE_VERB(do_volumes, engine_volumes)
ENGINE_VERB(do_explain, engine_explain)
ENGINE_VERB(do_verify, engine_verify)
ENGINE_VERB(do_maintenance, engine_maintain)
ENGINE_VERB(do_copy, engine_copy)

typedef void engine_fn(struct engine *g, const struct request_args *req, engine_reply_fn *reply, void *arg);

/* Replaces the id by the full one. An id that is not found is reported by the engine. */
static void with_id(struct request *q, struct request_args *args, char **id, unsigned among, engine_fn *call)
{
    char full[NAME_ID_MAX];
    struct err e = ERR_INIT;
    enum row_kind k;
    if (name_find(engine_records(q->control->engine), *id, among, &k, full, &e) >= 0)
        str_set(id, full);
    else if (e.cls != ERR_NOT_FOUND) {
        request_fail(q, &e);
        return;
    }
    call(q->control->engine, args, request_reply, q);
}

static void do_submit_restore(struct request *q, struct request_args *args)
{
    with_id(q, args, &args->backup, NAME_BACKUP, engine_submit_restore);
}

static void do_cancel(struct request *q, struct request_args *args)
{
    with_id(q, args, &args->id, NAME_BACKUP | NAME_OPERATION, engine_cancel);
}

static void do_logs(struct request *q, struct request_args *args)
{
    with_id(q, args, &args->id, NAME_OPERATION, engine_logs);
}

static void do_delete(struct request *q, struct request_args *args)
{
    with_id(q, args, &args->id, NAME_BACKUP, engine_delete);
}

static void do_retry(struct request *q, struct request_args *args)
{
    with_id(q, args, &args->backup, NAME_BACKUP, engine_retry);
}

static void do_hold(struct request *q, struct request_args *args)
{
    args->hold = true;
    with_id(q, args, &args->native, NAME_NATIVE | NAME_BACKUP, engine_hold);
}

static void do_unhold(struct request *q, struct request_args *args)
{
    with_id(q, args, &args->native, NAME_NATIVE | NAME_BACKUP, engine_hold);
}

static void do_reload(struct request *q, struct request_args *args)
{
    if (json_is_false(args->wait)) {
        /* Two requests: that of the client, answered now, and one that only logs the outcome. */
        struct request *own = calloc(1, sizeof *own);
        if (!own) {
            struct err e = ERR_INIT;
            err_nomem(&e);
            request_fail(q, &e);
            return;
        }
        own->control = q->control;
        own->discard = true;
        own->id = json_null();
        snprintf(own->verb, sizeof own->verb, "reload");
        own->next = q->control->requests;
        own->prev = &q->control->requests;
        if (own->next)
            own->next->prev = &own->next;
        q->control->requests = own;
        struct engine *g = q->control->engine;
        request_answer(q, json_pack("{s:b, s:b}", "reloaded", 0, "requested", 1));
        engine_reload(g, request_reply, own);
        return;
    }
    engine_reload(q->control->engine, request_reply, q);
}

/* ---- verbs that are answered here ---- */

static void do_ping(struct request *q, struct request_args *args)
{
    (void)args;
    request_answer(q, json_pack("{s:s, s:I, s:i}", "version", SNAPFERRY_VERSION, "pid", (json_int_t)getpid(),
                                "protocol", CONTROL_PROTOCOL));
}

static void do_status(struct request *q, struct request_args *args)
{
    (void)args;
    engine_status_asked(q->control->engine, request_reply, q);
}

static void do_debug(struct request *q, struct request_args *args)
{
    (void)args;
    struct engine *g = q->control->engine;
    json_t *facts =
        json_pack("{s:s, s:I, s:o*, s:o*, s:o*}", "version", SNAPFERRY_VERSION, "pid", (json_int_t)getpid(), "status",
                  engine_status(g), "metrics", engine_debug_json(g), "config", cfg_json(engine_cfg(g)));
    if (facts)
        json_object_set_new(facts, "clients", json_integer(control_clients(q->control)));
    request_answer(q, facts);
}

static void on_wait(const json_t *state, bool terminal, void *arg)
{
    struct request *q = arg;
    if (terminal)
        request_answer(q, json_incref((json_t *)(uintptr_t)state));
    else
        (void)request_event(q, state, false);
}

static void do_scan(struct request *q, struct request_args *args)
{
    engine_scan(q->control->engine, args, on_wait, request_reply, q);
}

static void do_wait(struct request *q, struct request_args *args)
{
    struct err e = ERR_INIT;
    char id[NAME_ID_MAX];
    enum row_kind k;
    struct engine *g = q->control->engine;
    q->waiting = true;
    /* If it has already ended, q is freed when engine_wait() returns. */
    if (name_find(engine_records(g), args->id, NAME_BACKUP | NAME_OPERATION, &k, id, &e) < 0 ||
        engine_wait(g, id, on_wait, q, &e) < 0)
        request_fail(q, &e);
}

/* ---- the table ---- */

/* Types: s text, d id, b boolean, i non-negative integer, n number, l list of texts, o object of texts; "!": required.
 */
static const struct {
    const char *name;
    verb_fn *fn;
    bool changes; /* logged */
    bool heavy;   /* may run in a child */
    const char *args;
} verbs[] = {
    {"ping", do_ping, false, false, ""},
    {"status", do_status, false, false, ""},
    {"operations", control_operations, false, false, "all:b backup:d volume:s state:s limit:i before:i"},
    {"backups", control_backups, false, false, "all:b state:s limit:i before:i"},
    {"volumes", do_volumes, false, true, "class:s recorded:b limit:i after:s"},
    {"jobs", control_jobs, false, false, ""},
    {"natives", control_natives, false, false, "volume:s limit:i before:i"},
    {"describe", control_describe, false, true, "id:s!"},
    {"explain", do_explain, false, true, "volume:s!"},
    {"submit-backup", do_submit_backup, true, true,
     "volumes:l job:s full:b move-data:b description:s debug:b from_timer:b"},
    {"submit-restore", do_submit_restore, true, true,
     "backup:d! volume:s target:s from:s overwrite:b new:b allow_incomplete:b class_map:o verify:b differential:b "
     "offset:i length:i check:b"},
    {"verify", do_verify, true, false, "repository:s read_percent:n anew:b"},
    {"maintenance", do_maintenance, true, false, "repository:s full:b dry_run:b unsafe:b"},
    {"copy", do_copy, true, false, "copy:s new:b force:b"},
    {"expire", do_expire, true, false, "volume:s dry_run:b explain:b"},
    {"scan", do_scan, true, false, "repository:s node:s replaced:b remove_stale:b"},
    {"detach", do_detach, false, false, "repository:s!"},
    {"forget", do_forget, true, false, "volume:s!"},
    {"logs", do_logs, false, true, "id:d!"},
    {"cancel", do_cancel, true, false, "id:d!"},
    {"delete", do_delete, true, false, "id:d! force:b even_kept:b"},
    {"retry", do_retry, true, true, "backup:d! volume:s"},
    {"hold", do_hold, true, false, "native:d! note:s"},
    {"unhold", do_unhold, true, false, "native:d! note:s"},
    {"native-prune", do_native_prune, true, true, "volume:s gone:b dry_run:b"},
    {"native-release", do_native_release, true, true, "native:s all:b dry_run:b"},
    {"reload", do_reload, true, true, "wait:b"},
    {"wait", do_wait, false, false, "id:d!"},
    {"debug", do_debug, false, false, ""},
};

static bool text_fits(const json_t *v, size_t max)
{
    return json_is_string(v) && json_string_length(v) <= max && strlen(json_string_value(v)) == json_string_length(v);
}

static bool type_fits(const json_t *v, char type)
{
    size_t i;
    const char *key;
    json_t *item;
    switch (type) {
    case 's':
        return text_fits(v, TEXT_MAX_LEN);
    case 'd':
        return text_fits(v, ID_MAX_LEN) && json_string_length(v) > 0;
    case 'b':
        return json_is_boolean(v);
    case 'i':
        return json_is_integer(v) && json_integer_value(v) >= 0;
    case 'n':
        return json_is_number(v);
    case 'l':
        json_array_foreach(v, i, item) if (!text_fits(item, TEXT_MAX_LEN)) return false;
        return json_is_array(v);
    case 'o':
        json_object_foreach((json_t *)(uintptr_t)v, key, item) if (!text_fits(item, TEXT_MAX_LEN)) return false;
        return json_is_object(v);
    default:
        return false;
    }
}

static const char *type_text(char type)
{
    switch (type) {
    case 's':
        return "a text of at most 4095 bytes";
    case 'd':
        return "an id, a text of 1 to 511 bytes";
    case 'b':
        return "true or false";
    case 'i':
        return "a non-negative integer";
    case 'n':
        return "a number";
    case 'l':
        return "a list of texts";
    default:
        return "an object of texts";
    }
}

/* The type of the entry "name:t" in the list of arguments, or NULL. */
static const char *argument_type(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; at && *at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
        if (!strncmp(at, name, n) && at[n] == ':')
            return at + n + 1;
    return NULL;
}

/* Names the argument that may have been meant. */
static int refuse_unknown(const char *verb, const char *list, const char *key, struct err *e)
{
    char names[512], near[64] = "";
    size_t n = 0;
    for (const char *at = list; *at && n + 1 < sizeof names; at += strcspn(at, " "), at += strspn(at, " ")) {
        const size_t len = strcspn(at, ":");
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%.*s", n ? " " : "", (int)len, at);
    }
    names[n < sizeof names ? n : sizeof names - 1] = '\0';
    err_set(e, ERR_USAGE, EINVAL, "%s has no argument \"%.64s\"", verb, key);
    if (!n)
        return err_hint(e, "it takes none");
    char listed[640];
    nearest_listed(key, names, near, sizeof near);
    snprintf(listed, sizeof listed, "its arguments are: %s", names);
    return nearest_hint(e, nearest_is_slip(key, near) ? near : NULL, listed);
}

static int check_args(const char *verb, const char *list, const json_t *args, struct err *e)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)args, key, v)
    {
        const char *type = argument_type(list, key);
        if (!type)
            return refuse_unknown(verb, list, key, e);
        if (!json_is_null(v) && !type_fits(v, *type))
            return err_set(e, ERR_USAGE, EINVAL, "argument \"%s\" of %s must be %s", key, verb, type_text(*type));
    }
    for (const char *at = list; at && *at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL) {
        size_t n = strcspn(at, ":");
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        v = json_object_get(args, name);
        if (at[n + 2] == '!' && (!v || json_is_null(v)))
            return err_set(e, ERR_USAGE, EINVAL, "%s requires the argument \"%s\"", verb, name);
    }
    return 0;
}

static void request_queue(struct request *q, const json_t *args)
{
    struct control *ctl = q->control;
    struct err e = ERR_INIT;
    if (ctl->queued >= CONTROL_QUEUED_MAX || json_dumpb(args, NULL, 0, JSON_COMPACT) > CONTROL_QUEUED_ARGS) {
        err_set(&e, ERR_BUSY, 0, "too many requests of all clients (%u)", ctl->working + ctl->queued);
        err_hint(&e, "try again in a moment");
        request_fail(q, &e);
        return;
    }
    q->args = json_incref((json_t *)(uintptr_t)args);
    ctl->queued++;
}

static void verb_call(struct request *q, verb_fn *fn, const json_t *args)
{
    CLEANUP(request_args_clear) struct request_args decoded;
    struct err e = ERR_INIT;
    if (request_args_load(&decoded, args, &e) < 0)
        request_fail(q, &e);
    else
        fn(q, &decoded);
}

static void on_pools(json_t *none, const struct err *failed, void *arg)
{
    struct request *q = arg;
    CLEANUP_JSON json_t *args = q->held;
    q->held = NULL;
    if (!q->control || failed) {
        request_reply(none, failed, q);
        return;
    }
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (!strcmp(q->verb, verbs[i].name)) {
            verb_call(q, verbs[i].fn, args);
            return;
        }
}

static void verb_begin(struct request *q, size_t verb, const json_t *args)
{
    verb_fn *fn = verbs[verb].fn;
    /* What these say of native snapshots depends on how full their pools are now. */
    if (fn != control_natives && fn != control_describe && fn != do_explain) {
        verb_call(q, fn, args);
        return;
    }
    q->held = json_incref((json_t *)(uintptr_t)args);
    engine_pools_asked(q->control->engine, on_pools, q);
}

void control_dispatch(struct request *q, const char *verb, const json_t *args)
{
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(verb, verbs[i].name) != 0)
            continue;
        if (check_args(verb, verbs[i].args, args, &e) < 0) {
            request_fail(q, &e);
            return;
        }
        if (verbs[i].changes) {
            CLEANUP_FREE char *text = json_dumps(args, JSON_COMPACT | JSON_ENSURE_ASCII);
            log_line(LOG_LVL_INFO, "request: %s %.400s", verb, text ? text : "");
        }
        if (verbs[i].heavy && q->control->working >= CONTROL_WORKING_MAX) {
            request_queue(q, args);
            return;
        }
        q->heavy = verbs[i].heavy;
        q->control->working += q->heavy;
        verb_begin(q, i, args);
        return;
    }
    err_set(&e, ERR_USAGE, EINVAL, "the daemon has no verb \"%.64s\"", verb);
    err_hint(&e, "this daemon is snapferryd " SNAPFERRY_VERSION "; the command may be of another version");
    request_fail(q, &e);
}

void control_begin(struct request *q)
{
    CLEANUP_JSON json_t *args = q->args;
    q->args = NULL;
    q->heavy = true;
    q->control->queued--;
    q->control->working++;
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (!strcmp(q->verb, verbs[i].name)) {
            verb_begin(q, i, args);
            return;
        }
}
