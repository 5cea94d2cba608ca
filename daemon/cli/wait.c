/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * wait.c - progress of what the daemon does, until it has ended
 *
 * As the progress of the modes with -r: one live line on a terminal, plain lines every ten seconds elsewhere, JSON
 * objects with --json. A daemon that is restarted meanwhile is waited for: movers go on without it.
 */
#include "daemon/cli/daemon.h"

#include "daemon/records.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

/* How long a daemon may be away before a wait gives up. */
#define AWAY_S 120

struct waiting {
    const struct options *o;
    const char *id;
    bool live, drawn, quiet;
    int64_t told_ns;
    char state[32];
};

static enum err_class class_by_name(const char *name)
{
    for (int c = ERR_GENERIC; *name && c <= ERR_INTERRUPTED; c++)
        if (!strcmp(err_class_name((enum err_class)c), name))
            return (enum err_class)c;
    return ERR_FAILED_OP;
}

/* The class of an error document that may say 0 or nothing. */
static enum err_class class_of(const json_t *error)
{
    int64_t code = jint(error, "code");
    if (code > 0 && code <= 255)
        return code == ERR_GENERIC ? ERR_FAILED_OP : (enum err_class)code;
    return class_by_name(jstr(error, "class"));
}

/* The error of a backup is its own, or that of its first operation that failed. */
static const json_t *error_of(const json_t *ended)
{
    const json_t *error = jobj(ended, "error"), *op;
    size_t i;
    if (error)
        return error;
    json_array_foreach(jarr(ended, "operations"), i, op) if (jobj(op, "error")) return jobj(op, "error");
    return NULL;
}

int exit_code_of(const json_t *ended, struct err *e)
{
    const char *state = jstr(ended, "state");
    const json_t *error = error_of(ended);
    if (!strcmp(state, "Completed") || !strcmp(state, "Skipped"))
        return 0;
    if (!strcmp(state, "PartiallyFailed"))
        return ERR_PARTIAL;
    if (!strcmp(state, "Canceled"))
        return err_set(e, ERR_CANCELED, 0, "%s was canceled", jstr(ended, "id"));
    const char *msg = jstr(error, "message");
    err_set(e, class_of(error), 0, "%s failed%s%s", jstr(ended, "id"), *msg ? ": " : "", msg);
    return err_hint(e, "%s",
                    *jstr(error, "hint") ? jstr(error, "hint") : "snapferry describe and snapferry logs tell more");
}

static unsigned stderr_width(void)
{
    struct winsize ws;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col >= 20 ? ws.ws_col : 80;
}

static void add(char *line, size_t cap, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void add(char *line, size_t cap, const char *fmt, ...)
{
    size_t n = strlen(line);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line + n, cap - n, fmt, ap);
    va_end(ap);
}

/* "nightly-...: Moving 45% 12.3 GiB of 27.0 GiB, 210.0 MiB/s, 1 min 10 s left" */
static void format_state(const json_t *s, char *line, size_t cap)
{
    const json_t *p = jobj(s, "progress");
    snprintf(line, cap, "%s: %s", jstr(s, "id"), jstr(s, "state"));
    if (p && jint(p, "total") > 0) {
        add(line, cap, " %s %s of %s", text_percent(p), text_bytes((uint64_t)jint(p, "done")),
            text_bytes((uint64_t)jint(p, "total")));
        double rate = json_number_value(json_object_get(p, "rate"));
        const json_t *eta = json_object_get(p, "eta_s");
        if (rate > 0)
            add(line, cap, ", %s", text_rate(rate));
        if (json_is_number(eta))
            add(line, cap, ", %s left", text_seconds(json_number_value(eta)));
    }
    if (jint(s, "total") > 1)
        add(line, cap, ", %lld of %lld volumes", (long long)(jint(s, "completed") + jint(s, "failed")),
            (long long)jint(s, "total"));
    if (jint(s, "failed") > 0)
        add(line, cap, ", %lld FAILED", (long long)jint(s, "failed"));
    if (!strcmp(jstr(s, "state"), "Queued") && jint(s, "position") > 0)
        add(line, cap, ", position %lld", (long long)jint(s, "position"));
    if (*jstr(s, "why"))
        add(line, cap, " (%s)", jstr(s, "why"));
}

static void print_event(const json_t *state)
{
    json_t *j = json_pack("{s:s}", "type", "progress");
    if (j)
        json_object_update(j, (json_t *)(uintptr_t)state);
    print_json(j);
}

static int on_state(const json_t *state, void *arg)
{
    struct waiting *v = arg;
    if (v->quiet)
        return 0;
    if (v->o->json) {
        print_event(state);
        return 0;
    }
    char line[1024];
    format_state(state, line, sizeof line);
    int64_t now = clock_ns();
    bool changed = strcmp(v->state, jstr(state, "state")) != 0;
    snprintf(v->state, sizeof v->state, "%s", jstr(state, "state"));
    if (v->live) {
        fprintf(stderr, "\r\033[K%s", text_fit(text_name(line), stderr_width() - 1));
        v->drawn = true;
    } else if (changed || now - v->told_ns >= INT64_C(10000000000)) {
        fprintf(stderr, "%s\n", text_name(line));
        v->told_ns = now;
    }
    fflush(stderr);
    return 0;
}

static void wipe(struct waiting *v)
{
    if (v->drawn)
        fputs("\r\033[K", stderr);
    v->drawn = false;
}

/* Without a daemon: what has ended can be told from the records, the rest cannot. */
static int wait_offline(struct waiting *v, json_t **ended, const struct err *down, struct err *e)
{
    CLEANUP_JSON json_t *args = json_pack("{s:s}", "id", v->id), *found = NULL;
    struct err ignored = ERR_INIT;
    if (offline_ask(v->o, "describe", args, down, &found, &ignored) >= 0) {
        const char *kind = jstr(found, "kind");
        json_t *doc = jobj(found, kind);
        if (doc && state_terminal(jstr(doc, "state"))) {
            log_warning("%s", jstr(found, "offline_why"));
            json_object_set(doc, "offline", json_object_get(found, "offline"));
            json_object_set(doc, "offline_why", json_object_get(found, "offline_why"));
            *ended = json_incref(doc);
            return 0;
        }
    }
    *e = *down;
    return -EIO;
}

/* Waits over restarts of the daemon. */
static int wait_long(struct waiting *v, json_t **ended, struct err *e)
{
    int64_t away_since = 0;
    bool told = false, met = v->o->verb != VERB_WAIT; /* the others have just spoken with it */
    for (;;) {
        CLEANUP(daemon_closep) struct daemon *d = NULL;
        struct err now = ERR_INIT;
        int rc = daemon_open(&d, v->o, &now);
        bool was_there = rc >= 0;
        if (rc >= 0)
            rc = daemon_call(d, "wait", json_pack("{s:s}", "id", v->id), 0, on_state, v, ended, &now);
        if (rc >= 0)
            return rc;
        if (was_there)
            away_since = 0;
        met |= was_there;
        if (!met && now.cls == ERR_NO_DAEMON)
            return wait_offline(v, ended, &now, e);
        if (!away_since)
            away_since = clock_ns();
        const struct mover_cancel *cancel = cli_cancel();
        bool interrupted = atomic_load(&cancel->requested);
        if (now.cls != ERR_NO_DAEMON || interrupted || clock_ns() - away_since > AWAY_S * INT64_C(1000000000)) {
            *e = now;
            if (interrupted)
                err_set(e, ERR_INTERRUPTED, 0, "no longer waiting for %s, which goes on", v->id);
            return e->cls == ERR_INTERRUPTED ? err_hint(e, "snapferry cancel %s ends it", v->id) : rc;
        }
        if (!told) {
            wipe(v);
            log_warning("the daemon is away; waiting for it up to %d s, operations go on meanwhile", AWAY_S);
            told = true;
        }
        nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
    }
}

static void print_ended(const json_t *s)
{
    const char *state = jstr(s, "state");
    enum tint tint = tint_of_state(state);
    int64_t from = jint(s, "started_ns") ? jint(s, "started_ns") : jint(s, "created_ns"), to = jint(s, "ended_ns");
    printf("%s %s%s%s", text_name(jstr(s, "id")), tint_on(tint), text_name(state), tint_off(tint));
    if (to > from && from > 0)
        printf(" in %s", text_seconds((double)(to - from) * 1e-9));
    putchar('\n');
    size_t i;
    const json_t *op;
    json_array_foreach(jarr(s, "operations"), i, op)
    {
        const json_t *error = jobj(op, "error");
        if (!strcmp(jstr(op, "state"), "Completed"))
            continue;
        printf("  %s %s%s%s\n", text_name(jstr(op, "volume")), jstr(op, "state"),
               error              ? ": "
               : *jstr(op, "why") ? ": "
                                  : "",
               text_name(error ? jstr(error, "message") : jstr(op, "why")));
    }
}

int wait_until_ended(const struct options *o, const char *id, json_t **ended, struct err *e)
{
    cli_cancel(); /* from now on a signal ends the wait, not the operation */
    struct waiting v = {.o = o, .id = id};
    v.quiet = o->progress == PROGRESS_OFF || (o->quiet && o->progress != PROGRESS_ON);
    v.live = isatty(STDERR_FILENO) && !o->json;
    int rc = wait_long(&v, ended, e);
    wipe(&v);
    return rc;
}

int wait_for(const struct options *o, const char *id, struct err *e)
{
    CLEANUP_JSON json_t *ended = NULL;
    int rc = wait_until_ended(o, id, &ended, e);
    if (rc < 0)
        return rc;
    rc = exit_code_of(ended, e);
    if (o->json)
        print_answer(o, ended);
    else if (!o->quiet)
        print_ended(ended);
    return rc;
}
