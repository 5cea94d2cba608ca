/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * messages.c - what movers say, and how far it is believed
 *
 * Nothing here decides how an operation ends; the process's end and its result file do. A message that is no JSON
 * object, of another operation, of an unknown type or out of turn breaks the protocol. Progress has to be numbers that
 * can be true, else it is not taken.
 */
#include "base/cleanup.h"
#include "base/time.h"
#include "daemon/movers/builtin-impl.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define COUNTER_NAME(name) #name,
static const char *const counters[] = {WIRE_COUNTERS(COUNTER_NAME)};
#define N_COUNTERS (sizeof counters / sizeof *counters)

static bool violation(struct mover *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool violation(struct mover *v, const char *fmt, ...)
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
        snprintf(v->begin_error, sizeof v->begin_error, "it speaks another protocol than %d", MOVER_PROTOCOL);
        return violation(v, "it speaks protocol %lld, not %d", (long long)p, MOVER_PROTOCOL);
    }
    if (resumed != v->go)
        return violation(v, resumed ? "it says that it works already, and nobody told it to"
                                    : "it asks for its job a second time");
    if (!resumed) {
        if (v->job_sent)
            return violation(v, "it asks for its job a second time");
        v->job_sent = true;
        if (mover_send_job(v) < 0)
            log_warning("mover of %s: its job cannot be sent", v->operation);
    }
    if (v->canceled)
        mover_send(v, WIRE_CANCEL);
    return true;
}

static bool on_ready(struct mover *v, const json_t *m)
{
    const struct mover_ready r = {.identity = &v->id, .plugin_id = ""};
    (void)m;
    if (v->ready || !v->job_sent)
        return violation(v, "it says READY out of turn");
    v->ready = true;
    v->ready_ns = mono_ns();
    if (v->owner->events->ready)
        v->owner->events->ready(v->operation, &r, v->owner->arg);
    return true;
}

/* What it derived from the password, for the movers of the same repository that come after it. */
static bool on_key(struct mover *v, const json_t *m)
{
    const int fd = take_fd(&v->received_fd);
    const bool wanted = v->key_wanted && v->go;
    (void)m;
    if (fd >= 0 && v->adopted) { /* the daemon that wanted it is gone */
        close(fd);
        return true;
    }
    v->key_wanted = false;
    if (fd >= 0 && wanted)
        return keys_put(v->owner->keys, &v->key, fd) || violation(v, "it sends a key that is none");
    closep(&fd);
    return violation(v, wanted ? "it sends a key without a descriptor" : "it sends a key out of turn");
}

/* Known types that tell nothing that has to be remembered. */
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
        return violation(v, "it begins before it was told to");
    if (v->start_seen)
        return true;
    v->start_seen = true;
    v->life_ns = mono_ns();
    if (v->owner->events->started)
        v->owner->events->started(v->operation, v->owner->arg);
    return true;
}

/* A copy with the members that are known and can be true; NULL if one cannot. */
static json_t *believable(const struct mover *v, const json_t *m)
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
    /* What a restore read back counts anew. */
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

static bool same_place(const json_t *a, const json_t *b)
{
    for (size_t i = 0; i < N_COUNTERS; i++)
        if (json_integer_value(json_object_get(a, counters[i])) != json_integer_value(json_object_get(b, counters[i])))
            return false;
    return !strcmp(json_string_value(json_object_get(a, "phase")), json_string_value(json_object_get(b, "phase")));
}

static bool on_progress(struct mover *v, const json_t *m)
{
    if (!v->go)
        return violation(v, "it reports progress before it was told to begin");
    json_int_t seq = json_integer_value(json_object_get(m, "seq"));
    json_t *p = believable(v, m);
    if (!p)
        return violation(v, "it reports a progress that cannot be");
    if (v->progress && seq < v->progress_seq) { /* an older one came late */
        json_decref(p);
        return true;
    }
    int64_t now = mono_ns();
    if (!v->progress || !same_place(v->progress, p))
        v->life_ns = now;
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
        return violation(v, "it sends a log line without level or text");
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
        return violation(v, "it reports a result code that there is not");
    v->life_ns = mono_ns();
    return true;
}

static const struct {
    const char *type;
    bool (*take)(struct mover *v, const json_t *m);
} types[] = {
    {WIRE_HELLO, on_hello},       {WIRE_READY, on_ready},  {WIRE_REFUSED, on_refused}, {WIRE_START, on_start},
    {WIRE_PROGRESS, on_progress}, {WIRE_LOG, on_log},      {WIRE_KEY, on_key},         {WIRE_CANCELLING, on_hint},
    {WIRE_RESULT, on_result},     {WIRE_STOPPED, on_hint},
};

static bool take(struct mover *v, const json_t *m, bool *greeted)
{
    const char *type = json_string_value(json_object_get(m, "type"));
    const char *operation = json_string_value(json_object_get(m, "operation"));
    const json_t *seq = json_object_get(m, "seq");
    if (!type || !operation || !json_is_integer(seq) || json_integer_value(seq) <= 0)
        return violation(v, "it sent a message without type, operation or number");
    if (strcmp(operation, v->operation) != 0)
        return violation(v, "it speaks for another operation (%.60s)", operation);
    const bool hello = !strcmp(type, WIRE_HELLO);
    if (hello == *greeted)
        return violation(v, hello ? "it says HELLO twice" : "it does not say HELLO first");
    *greeted = true;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].type, type))
            return types[i].take(v, m);
    return violation(v, "it sent a message of the unknown type \"%.40s\"", type);
}

bool mover_message(struct mover *v, const char *text, size_t len, bool *greeted)
{
    json_t *m = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    bool ok = json_is_object(m) ? take(v, m, greeted) : violation(v, "it sent something that is no JSON object");
    json_decref(m);
    return ok;
}
