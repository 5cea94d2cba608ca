/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * messages.c - messages of movers, and their validation
 *
 * Nothing here decides how an operation ends; the process's end and its result file do. A message that is not a JSON
 * object, of another operation, of an unknown type or out of order is a protocol violation. Progress must consist of
 * plausible numbers, else it is ignored.
 */
#include "base/cleanup.h"
#include "base/json-bounds.h"
#include "base/password.h"
#include "base/time.h"
#include "daemon/movers/builtin-impl.h"
#include "proc/descriptors.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define COUNTER_NAME(name) #name,
static const char *const counters[] = {WIRE_COUNTERS(COUNTER_NAME)};
#define N_COUNTERS (sizeof counters / sizeof *counters)

static bool set_violation(struct mover *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool set_violation(struct mover *v, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(v->violation, sizeof v->violation, fmt, ap);
    va_end(ap);
    for (char *p = v->violation; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    return false;
}

static bool on_hello(struct mover *v, const json_t *m)
{
    const json_t *protocol = json_object_get(m, "protocol");
    json_int_t p = json_integer_value(protocol);
    bool resumed = json_is_true(json_object_get(m, "resumed"));
    if (!json_is_integer(protocol) || (p != MOVER_PROTOCOL && p != MOVER_PROTOCOL - 1)) {
        v->other_version = json_is_integer(protocol);
        return set_violation(v, "it has protocol %lld, this snapferryd has %d", (long long)p, MOVER_PROTOCOL);
    }
    if (resumed != v->go)
        return set_violation(v, resumed ? "claims to be working without GO" : "requests its job a second time");
    if (!resumed) {
        if (v->job_sent)
            return set_violation(v, "requests its job a second time");
        v->job_sent = true;
        if (mover_send_job(v) < 0)
            log_warning("mover of %s: cannot send its job", v->operation);
    }
    if (resumed)
        v->told_read = v->told_write = -1; /* what was sent last may not have come */
    if (v->canceled)
        mover_send(v, WIRE_CANCEL);
    return true;
}

static bool on_ready(struct mover *v, const json_t *m)
{
    const struct mover_ready r = {.identity = &v->id, .plugin_id = ""};
    (void)m;
    if (v->ready || !v->job_sent)
        return set_violation(v, "READY out of order");
    v->ready = true;
    v->ready_ns = mono_ns();
    if (v->owner->events->ready)
        v->owner->events->ready(v->operation, &r, v->owner->arg);
    return true;
}

/* A key derived from the password, for later movers of the same repository. */
static bool on_key(struct mover *v, const json_t *m)
{
    const int fd = take_fd(&v->received_fd);
    const bool wanted = v->key_wanted && v->go;
    (void)m;
    if (fd >= 0 && v->adopted) { /* the daemon that requested it has ended */
        close(fd);
        return true;
    }
    v->key_wanted = false;
    if (fd >= 0 && wanted)
        return keys_put(v->owner->keys, &v->key, fd) || set_violation(v, "invalid key");
    closep(&fd);
    return set_violation(v, wanted ? "key without a descriptor" : "key out of order");
}

/* The server refuses the keys that it was given: it gets those of now. */
static bool on_renew(struct mover *v, const json_t *m)
{
    const struct movers_events *events = v->owner->events;
    const int64_t now = mono_ns();
    CLEANUP_CLOSE int fd = -1;
    char *text = NULL;
    struct err e = ERR_INIT;
    const bool copy = json_is_true(json_object_get(m, WIRE_OF_COPY));
    if (!v->go)
        return set_violation(v, "requests credentials before GO");
    if (v->renewed_ns && now - v->renewed_ns < WIRE_RENEW_S * NS_PER_S / 2)
        return true; /* several that waited for the connection: one answer is enough */
    v->renewed_ns = now;
    if (!events->credentials || events->credentials(v->operation, copy, &text, v->owner->arg, &e) < 0)
        log_warning("mover of %s: no credentials to renew those that were refused: %s", v->operation, e.msg);
    else if ((fd = memory_sealed("credentials", text, strlen(text), &e)) < 0)
        log_warning("mover of %s: %s", v->operation, e.msg);
    password_free(text);
    mover_send_credentials(v, copy, fd);
    return true;
}

/* Known types without an effect. */
static bool on_hint(struct mover *v, const json_t *m)
{
    (void)v;
    (void)m;
    return true;
}

static bool on_refused(struct mover *v, const json_t *m)
{
    json_decref(v->refused);
    v->refused = json_incref(json_object_get(m, "error"));
    return true;
}

static bool on_start(struct mover *v, const json_t *m)
{
    (void)m;
    if (!v->go)
        return set_violation(v, "started before GO");
    if (v->start_seen)
        return true;
    v->start_seen = true;
    v->life_ns = mono_ns();
    if (v->owner->events->started)
        v->owner->events->started(v->operation, v->owner->arg);
    return true;
}

/* A copy with the known, valid members; NULL if one is invalid. */
static json_t *progress_is_valid(const struct mover *v, const json_t *m)
{
    static const char *const phases[] = {WIRE_PHASES};
    const char *phase = json_string_value(json_object_get(m, "phase"));
    json_t *p = json_object();
    bool ok = false;
    for (size_t i = 0; phase && i < sizeof phases / sizeof *phases; i++)
        ok |= !strcmp(phase, phases[i]);
    json_object_set_new(p, "phase", json_string(ok ? phase : phases[0]));
    const json_t *seconds = json_object_get(m, "seconds");
    if (json_is_number(seconds) && json_number_value(seconds) >= 0 && json_number_value(seconds) < 1e12)
        json_object_set_new(p, "seconds", json_real(json_number_value(seconds)));
    for (size_t i = 0; ok && i < N_COUNTERS; i++) {
        const json_t *n = json_object_get(m, counters[i]);
        ok = json_is_integer(n) && json_integer_value(n) >= 0;
        json_object_set_new(p, counters[i], json_integer(json_integer_value(n)));
    }
    /* The counters of reading back restart. */
    json_int_t total = json_integer_value(json_object_get(p, "total")),
               done = json_integer_value(json_object_get(p, "done"));
    if (ok && total && done > total)
        json_object_set_new(p, "done", json_integer(total));
    (void)v;
    if (ok)
        return p;
    json_decref(p);
    return NULL;
}

static bool same_position(const json_t *a, const json_t *b)
{
    for (size_t i = 0; i < N_COUNTERS; i++)
        if (json_integer_value(json_object_get(a, counters[i])) != json_integer_value(json_object_get(b, counters[i])))
            return false;
    return !strcmp(json_string_value(json_object_get(a, "phase")), json_string_value(json_object_get(b, "phase")));
}

static bool on_progress(struct mover *v, const json_t *m)
{
    if (!v->go)
        return set_violation(v, "progress before GO");
    json_int_t seq = json_integer_value(json_object_get(m, "seq"));
    json_t *p = progress_is_valid(v, m);
    if (!p)
        return set_violation(v, "invalid progress");
    if (v->progress && seq < v->progress_seq) { /* an older one that arrived late */
        json_decref(p);
        return true;
    }
    int64_t now = mono_ns();
    const int64_t requests = json_integer_value(json_object_get(m, WIRE_REQUESTS));
    if (!v->progress || !same_position(v->progress, p) || requests != v->requests)
        v->life_ns = now;
    v->requests = requests;
    json_decref(v->progress);
    v->progress = p;
    v->progress_ns = now;
    v->progress_seq = seq;
    if (v->owner->events->progress)
        v->owner->events->progress(v->operation, p, v->owner->arg);
    return true;
}

static bool on_log(struct mover *v, const json_t *m)
{
    const char *level = json_string_value(json_object_get(m, "level"));
    const char *line = json_string_value(json_object_get(m, "line"));
    if (!level || !line)
        return set_violation(v, "log line without level or text");
    char *to = v->log[v->log_next++ % LOG_TAIL];
    size_t n = (size_t)snprintf(to, sizeof v->log[0], "%.10s: %s", level, line);
    for (size_t i = 0; i < n && to[i]; i++)
        if ((unsigned char)to[i] < 0x20 || to[i] == 0x7f)
            to[i] = '?';
    return true;
}

static bool on_result(struct mover *v, const json_t *m)
{
    const json_t *code = json_object_get(m, "code");
    if (!json_is_integer(code) || json_integer_value(code) < 0 || json_integer_value(code) >= RESULT_CODES)
        return set_violation(v, "unknown result code");
    v->life_ns = mono_ns();
    return true;
}

static const struct {
    const char *type;
    bool (*take)(struct mover *v, const json_t *m);
} types[] = {
    {WIRE_HELLO, on_hello},       {WIRE_READY, on_ready},   {WIRE_REFUSED, on_refused}, {WIRE_START, on_start},
    {WIRE_PROGRESS, on_progress}, {WIRE_LOG, on_log},       {WIRE_KEY, on_key},         {WIRE_RENEW, on_renew},
    {WIRE_CANCELLING, on_hint},   {WIRE_RESULT, on_result}, {WIRE_STOPPED, on_hint},
};

static bool message_dispatch(struct mover *v, const json_t *m, bool *greeted)
{
    const char *type = json_string_value(json_object_get(m, "type"));
    const char *operation = json_string_value(json_object_get(m, "operation"));
    const json_t *seq = json_object_get(m, "seq");
    if (!type || !operation || !json_is_integer(seq) || json_integer_value(seq) <= 0)
        return set_violation(v, "message without type, operation or number");
    if (strcmp(operation, v->operation) != 0)
        return set_violation(v, "message for another operation (%.60s)", operation);
    const bool hello = !strcmp(type, WIRE_HELLO);
    if (hello == *greeted)
        return set_violation(v, hello ? "second HELLO" : "first message is not HELLO");
    *greeted = true;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].type, type))
            return types[i].take(v, m);
    return set_violation(v, "message of unknown type \"%.40s\"", type);
}

bool mover_message(struct mover *v, const char *text, size_t len, bool *greeted)
{
    static const struct json_bounds bounds = {WIRE_VALUES_MAX, WIRE_DEPTH_MAX};
    const bool fits = json_within(text, len, &bounds);
    json_t *m = fits ? json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (!fits)
        return set_violation(v, "message of more than %d values", WIRE_VALUES_MAX);
    bool ok = json_is_object(m) ? message_dispatch(v, m, greeted) : set_violation(v, "message is not a JSON object");
    json_decref(m);
    return ok;
}
