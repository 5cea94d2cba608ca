/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * wait.c - progress of an operation of the daemon until it has ended
 *
 * Like the progress with -r: live lines on a terminal (one for the whole and one for each running volume), plain lines
 * every ten seconds elsewhere, JSON objects with --json. Failures and restarts are printed in lines that stay. If the
 * daemon is restarted, the wait continues: movers run without it.
 */
#include "base/time.h"
#include "daemon/cli/live.h"
#include "daemon/cli/results.h"

#include "daemon/records/records.h"

#include <errno.h>
#include <string.h>
#include <time.h>

/* A wait fails when the daemon has been unavailable for so long. */
#define AWAY_S 120

struct waiting {
    const struct options *o;
    const char *id; /* "": of a request */
    char now[512];  /* the id of what was told of last */
    bool deletes;   /* which cannot be canceled once it has begun */
    bool quiet;
    struct live live;
    double printed; /* time of the last plain line */
    char state[32];
    char why[600]; /* what was waited for when it was last printed */
    json_t *seen;  /* by operation: its last state, to detect changes */
};

static enum err_class class_by_name(const char *name)
{
    for (int c = ERR_GENERIC; *name && c <= ERR_INTERRUPTED; c++)
        if (!strcmp(err_class_name((enum err_class)c), name))
            return (enum err_class)c;
    return ERR_FAILED_OP;
}

/* The class of an error document; its code may be 0 or absent. */
static enum err_class class_of(const json_t *error)
{
    int64_t code = jint(error, "code");
    if (code > 0 && code <= 255)
        return code == ERR_GENERIC ? ERR_FAILED_OP : (enum err_class)code;
    return class_by_name(jstr(error, "class"));
}

/* The error of a backup, or of its first failed operation. */
static const json_t *error_of(const json_t *ended)
{
    const json_t *error = jobj(ended, "error"), *op;
    size_t i;
    if (error)
        return error;
    json_array_foreach(jarr(ended, "operations"), i, op) if (jobj(op, "error")) return jobj(op, "error");
    return NULL;
}

/* The reason is that of one of several volumes; print_ended() prints it. */
static bool printed_by_volume(const json_t *ended)
{
    return json_array_size(jarr(ended, "operations")) > 1 && !jobj(ended, "error");
}

/* What the operation of a restore that did not complete has left of its target; "" for others. */
static const char *target_left_by(const json_t *op)
{
    static const struct {
        const char *state, *text;
    } states[] = {{"untouched", "its target is untouched"},
                  {"incomplete", "its target is incomplete: parts of it were overwritten"},
                  {"unknown", "whether its target was replaced is not known"}};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (!strcmp(jstr(op, "target_state"), states[i].state))
            return states[i].text;
    return "";
}

static const char *target_left(const json_t *ended)
{
    const json_t *ops = jarr(ended, "operations");
    return target_left_by(json_array_size(ops) ? json_array_get(ops, 0) : ended);
}

int exit_code_of(const struct options *o, const json_t *ended, struct err *e)
{
    const char *state = jstr(ended, "state");
    const json_t *error = error_of(ended);
    if (!strcmp(state, "Completed") || !strcmp(state, "Skipped"))
        return 0;
    if (!strcmp(state, "PartiallyFailed") || !strcmp(state, STATE_UNKNOWN))
        return ERR_PARTIAL;
    const char *left = target_left(ended);
    if (!strcmp(state, "Canceled"))
        return err_set(e, ERR_CANCELED, 0, "%s was canceled%s%s", jstr(ended, "id"), *left ? "; " : "", left);
    const char *msg = jstr(error, "message");
    if (!o->quiet && !o->json && printed_by_volume(ended))
        msg = "no volume completed";
    err_set(e, class_of(error), 0, "%s failed%s%s%s%s", jstr(ended, "id"), *msg ? ": " : "", msg, *left ? "; " : "",
            left);
    return err_hint(e, "%s", *jstr(error, "hint") ? jstr(error, "hint") : "see snapferry describe and snapferry logs");
}

/* ---- what is shown meanwhile ---- */

static void print_change(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void print_change(const char *fmt, ...)
{
    char text[3000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    live_print(text_name(text));
}

static const char *name_of(const json_t *s)
{
    return *jstr(s, "volume") ? jstr(s, "volume") : jstr(s, "id");
}

/* Prints changes that must not be missed: an operation that failed while others continue, or is restarted. */
static void print_changes(struct waiting *v, const json_t *op, bool one_of_many)
{
    const char *id = jstr(op, "id"), *state = jstr(op, "state"), *phase = jstr(jobj(op, "progress"), "phase");
    const json_t *error = jobj(op, "error");
    int64_t done = jint(jobj(op, "progress"), "done");
    json_t *before = json_object_get(v->seen, id);
    if (!before) {
        before = json_pack("{s:s, s:s, s:I, s:f}", "state", state, "phase", phase, "done", (json_int_t)done, "moved",
                           mono_s());
        json_object_set_new(v->seen, id, before);
        return;
    }
    bool other = strcmp(jstr(before, "state"), state) != 0;
    bool same_phase = !strcmp(jstr(before, "phase"), phase);
    if (other && one_of_many && !strcmp(state, "Failed"))
        print_change("%s failed%s%s", name_of(op), error ? ": " : "", jstr(error, "message"));
    else if (other && !strcmp(state, "Retrying"))
        print_change("%s: retrying%s%s", name_of(op), error ? ": " : "", jstr(error, "message"));
    else if (same_phase && done < jint(before, "done") && !state_terminal(state))
        print_change("%s: restarted%s%s", name_of(op), jint(op, "attempt") > 1 ? " (new attempt)" : "",
                     !strcmp(jstr(op, "kind"), "backup") ? "; stored data are not stored again" : "");
    if (done != jint(before, "done") || !same_phase || other)
        json_object_set_new(before, "moved", json_real(mono_s()));
    json_object_set_new(before, "state", json_string(state));
    json_object_set_new(before, "phase", json_string(phase));
    json_object_set_new(before, "done", json_integer(done));
}

/* The line of one operation. */
static void operation_line(const struct waiting *v, const json_t *op, const char *indent, unsigned width, char *out,
                           size_t cap)
{
    struct shown s;
    char what[1100], next[100] = "";
    const char *state = jstr(op, "state");
    /* A restore that the storage itself copies has no mover, and is not Running before it is complete. */
    const bool moves =
        !strcmp(state, "Running") || (!strcmp(state, "Exposing") && !strcmp(jstr(op, "kind"), "restore"));
    /* What a repository is asked has steps, not bytes. */
    bool runs = moves && jobj(op, "progress") && strcmp(jstr(op, "kind"), "admin") != 0;
    const json_t *before = json_object_get(v->seen, jstr(op, "id"));
    shown_from_json(&s, runs ? jobj(op, "progress") : NULL);
    snprintf(what, sizeof what, "%s%s", indent, name_of(op));
    s.what = what;
    if (jint(op, "retry_ns") > 0)
        snprintf(next, sizeof next, "attempt %lld %s", (long long)jint(op, "attempt"), text_in(jint(op, "retry_ns")));
    s.rest = !runs && *next ? next : jstr(op, "why");
    if (!runs || !*s.phase)
        s.phase = state;
    if (runs && before && !strcmp(s.phase, "moving"))
        s.stalled = mono_s() - json_number_value(json_object_get(before, "moved"));
    progress_line(&s, width, out, cap);
}

/* "nightly-...: Moving 45%, 12.3 GiB of 27.0 GiB, 210.0 MiB/s, 1 min 10 s left, 2 of 4 volumes" */
static void whole_line(const json_t *s, unsigned width, char *out, size_t cap)
{
    struct shown x;
    char rest[1200] = "";
    size_t n = 0;
    shown_from_json(&x, jobj(s, "progress"));
    x.what = jstr(s, "id");
    x.phase = jstr(s, "state");
    x.stalled = 0;
    if (jint(s, "total") > 1)
        n += (size_t)snprintf(rest + n, sizeof rest - n, "%lld of %lld volumes",
                              (long long)(jint(s, "completed") + jint(s, "failed") + jint(s, "canceled")),
                              (long long)jint(s, "total"));
    if (jint(s, "failed") > 0 && n < sizeof rest)
        n += (size_t)snprintf(rest + n, sizeof rest - n, "%s%lld FAILED", n ? ", " : "", (long long)jint(s, "failed"));
    if (jint(s, "canceled") > 0 && n < sizeof rest)
        n += (size_t)snprintf(rest + n, sizeof rest - n, "%s%lld canceled", n ? ", " : "",
                              (long long)jint(s, "canceled"));
    if (!strcmp(x.phase, "Queued") && jint(s, "position") > 0 && n < sizeof rest)
        n += (size_t)snprintf(rest + n, sizeof rest - n, "%sposition %lld", n ? ", " : "",
                              (long long)jint(s, "position"));
    if (*jstr(s, "why") && n < sizeof rest)
        snprintf(rest + n, sizeof rest - n, "%s%s", n ? ", " : "", jstr(s, "why"));
    x.rest = rest;
    progress_line(&x, width, out, cap);
}

/* Running operations, then those before running, as far as they fit. */
static unsigned lines_of(struct waiting *v, const json_t *s, char (*text)[2048], unsigned max, unsigned width)
{
    const json_t *ops = jarr(s, "operations"), *op;
    size_t i, n_ops = json_array_size(ops), left = 0;
    unsigned n = 0;
    if (!n_ops) {
        if (*jstr(s, "kind") && strcmp(jstr(s, "kind"), "backup") && strcmp(jstr(s, "kind"), "restore"))
            operation_line(v, s, "", width, text[n++], sizeof text[0]);
        else if (*jstr(s, "volume"))
            operation_line(v, s, "", width, text[n++], sizeof text[0]);
        else
            whole_line(s, width, text[n++], sizeof text[0]);
        return n;
    }
    if (n_ops == 1) {
        op = json_array_get(ops, 0);
        bool runs = !state_terminal(jstr(op, "state")) && strcmp(jstr(op, "state"), "Queued") != 0;
        if (runs)
            operation_line(v, op, "", width, text[n++], sizeof text[0]);
        else
            whole_line(s, width, text[n++], sizeof text[0]);
        return n;
    }
    whole_line(s, width, text[n++], sizeof text[0]);
    for (unsigned pass = 0; pass < 2; pass++) {
        json_array_foreach(ops, i, op)
        {
            const char *state = jstr(op, "state");
            if (state_terminal(state) || !strcmp(state, "Queued") || !strcmp(state, "Running") != (pass == 0))
                continue;
            if (n + 1 < max)
                operation_line(v, op, "  ", width, text[n++], sizeof text[0]);
            else
                left++;
        }
    }
    if (left && n < max)
        snprintf(text[n++], sizeof text[0], "  and %zu more", left);
    return n;
}

static void print_event(const json_t *state)
{
    json_t *j = json_pack("{s:s}", "type", "progress");
    if (j)
        json_object_update(j, (json_t *)(uintptr_t)state);
    print_json(j);
}

/* It is Running while it waits for its repository. */
static bool is_deletion(const json_t *s)
{
    return !strcmp(jstr(s, "kind"), "delete");
}

/* It has a place in the queue: also one that is prepared, which is Exposing until it has a slot and its repository. */
static bool is_waiting(const json_t *op)
{
    return !strcmp(jstr(op, "state"), "Queued") || jint(op, "position") > 0 || is_deletion(op);
}

/* What the first one waits for while nothing runs, and when that ends: "main is away; gives up in 59 min". */
static bool waiting_text(const json_t *s, char *why, size_t cap, char *until, size_t until_cap)
{
    const json_t *ops = jarr(s, "operations"), *op = json_array_get(ops, 0), *first = NULL;
    size_t i;
    const bool whole = !strcmp(jstr(s, "kind"), "backup") || !strcmp(jstr(s, "kind"), "restore");
    if (!json_array_size(ops))
        op = *jstr(s, "volume") || !whole ? s : NULL;
    *why = *until = '\0';
    for (i = 0; op; op = json_array_get(ops, ++i)) {
        const bool ended = state_terminal(jstr(op, "state"));
        if (!ended && !is_waiting(op))
            return false;
        if (!ended && !first)
            first = op;
        if (!json_array_size(ops))
            break;
    }
    if (!first || !*jstr(first, "why"))
        return false;
    snprintf(why, cap, "%s%s: %s", text_name(name_of(first)), is_deletion(first) ? "" : " waits", jstr(first, "why"));
    if (jint(first, "gives_up_ns"))
        snprintf(until, until_cap, "; gives up %s", text_in(jint(first, "gives_up_ns")));
    return true;
}

/* At once, when it changes, and every minute. */
static bool print_waiting(struct waiting *v, const json_t *s)
{
    char why[sizeof v->why], until[100];
    if (!waiting_text(s, why, sizeof why, until, sizeof until)) {
        v->why[0] = '\0';
        return false;
    }
    if (strcmp(why, v->why) != 0 || mono_s() - v->printed >= 59) {
        snprintf(v->why, sizeof v->why, "%s", why);
        v->printed = mono_s();
        print_change("%s%s", why, until);
    }
    return true;
}

/* Plain lines for the whole and for running volumes. */
static void show_plain(struct waiting *v, const json_t *s)
{
    char text[LIVE_LINES][2048];
    unsigned n = lines_of(v, s, text, LIVE_LINES, SCREEN_ENDLESS);
    for (unsigned i = 0; i < n; i++)
        fprintf(stderr, "%s\n", text[i]);
    fflush(stderr);
    v->printed = mono_s();
}

static void show_live(struct waiting *v, const json_t *s)
{
    char text[LIVE_LINES][2048], *lines[LIVE_LINES];
    unsigned columns, rows;
    live_size(&columns, &rows);
    unsigned n = lines_of(v, s, text, rows < LIVE_LINES + 1 ? (rows > 1 ? rows - 1 : 1) : LIVE_LINES, columns - 1);
    for (unsigned i = 0; i < n; i++)
        lines[i] = text[i];
    live_draw(&v->live, lines, n);
}

static int on_state(const json_t *state, void *arg)
{
    struct waiting *v = arg;
    snprintf(v->now, sizeof v->now, "%s", jstr(state, "id"));
    v->deletes = is_deletion(state);
    const json_t *ops = jarr(state, "operations"), *op;
    size_t i;
    if (v->quiet)
        return 0;
    if (v->o->json) {
        print_event(state);
        return 0;
    }
    if (json_array_size(ops))
        json_array_foreach(ops, i, op) print_changes(v, op, json_array_size(ops) > 1);
    else
        print_changes(v, state, false);
    bool changed = strcmp(v->state, jstr(state, "state")) != 0;
    snprintf(v->state, sizeof v->state, "%s", jstr(state, "state"));
    const bool waits = print_waiting(v, state);
    if (v->live.on)
        show_live(v, state);
    else if (waits)
        return 0;
    else if ((changed && *v->id) || mono_s() - v->printed >= 10)
        show_plain(v, state);
    return 0;
}

/* ---- waiting ---- */

/* Without the daemon: the result of an ended operation is in the records. */
static int wait_offline(struct waiting *v, json_t **ended, const struct err *down, struct err *e)
{
    CLEANUP_JSON json_t *args = json_pack("{s:s}", "id", v->id), *found = NULL;
    struct err ignored = ERR_INIT;
    if (offline_ask(v->o, "describe", args, down, false, &found, &ignored) >= 0) {
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

/* Also across restarts of the daemon. */
static int wait_long(struct waiting *v, json_t **ended, struct err *e)
{
    int64_t away_since = 0;
    bool warned = false, met = v->o->verb != VERB_WAIT; /* other verbs have just sent a request */
    for (;;) {
        CLEANUP(daemon_closep) struct daemon *d = NULL;
        struct err now = ERR_INIT;
        /* One that has been stopped since stays stopped. */
        int rc = (met && !away_since) || daemon_is_there(v->o, &now) ? daemon_open(&d, v->o, &now) : -ENOTCONN;
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
            away_since = now_ns();
        const struct mover_cancel *cancel = cli_cancel();
        bool interrupted = atomic_load(&cancel->requested);
        if (now.cls != ERR_NO_DAEMON || interrupted || now_ns() - away_since > AWAY_S * NS_PER_S) {
            *e = now;
            if (interrupted)
                err_set(e, ERR_INTERRUPTED, 0, "interrupted; %s continues", v->id);
            if (e->cls == ERR_INTERRUPTED && v->deletes)
                return err_hint(e, "a deletion that has begun cannot be canceled; snapferry wait %s shows its end",
                                v->id);
            return e->cls == ERR_INTERRUPTED ? err_hint(e, "snapferry cancel %s cancels it", v->id) : rc;
        }
        if (!warned) {
            log_warning("lost the connection to the daemon; waiting up to %d s, operations continue", AWAY_S);
            warned = true;
        }
        nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
    }
}

/* The result of a volume, or its error, unless it is printed as the error of the command. */
static void print_volume(const struct options *o, const json_t *s, const json_t *op)
{
    const json_t *error = jobj(op, "error");
    const char *state = jstr(op, "state"), *why = error ? jstr(error, "message") : jstr(op, "why");
    char line[2600];
    if (o->verb == VERB_CANCEL && *target_left_by(op)) /* who has restored is told by the error of that command */
        why = target_left_by(op);
    if (!strcmp(state, "Completed")) {
        const char *target = jstr(s, "target");
        snprintf(line, sizeof line, "%.1200s%s%.1200s", name_of(op), *target ? " to " : "", target);
        result_print(op, line, 2, o->verbose);
    } else if (printed_by_volume(s) || strcmp(state, "Failed") != 0 || strcmp(jstr(s, "state"), "Failed") != 0) {
        snprintf(line, sizeof line, "%.900s %.64s%s%.1200s", name_of(op), state, *why ? ": " : "", why);
        fputs("  ", stdout);
        print_paragraph(stdout, line, 2, 4);
    }
}

static void print_ended(const struct options *o, const json_t *s)
{
    const char *state = jstr(s, "state");
    enum tint tint = tint_of_state(state);
    const char *took = doc_took(s);
    printf("%s %s%s%s", text_name(jstr(s, "id")), tint_on(tint), text_name(state), tint_off(tint));
    printf("%s%s\n", *took ? " in " : "", took);
    size_t i, failed = 0;
    const json_t *op;
    json_array_foreach(jarr(s, "operations"), i, op)
    {
        print_volume(o, s, op);
        failed += !strcmp(jstr(op, "state"), "Failed");
    }
    if (!failed && !strcmp(state, "PartiallyFailed") && *jstr(jobj(s, "error"), "message")) {
        fputs("  ", stdout); /* of none of its volumes: a hook */
        print_paragraph(stdout, jstr(jobj(s, "error"), "message"), 2, 4);
    }
    const size_t listed = json_array_size(jarr(s, "operations")), all = (size_t)jint(s, "total");
    if (listed && all > listed)
        printf("  and %zu more: snapferry operations --all --backup %s\n", all - listed, text_name(jstr(s, "id")));
    if (!jarr(s, "operations"))
        result_print(s, *jstr(s, "volume") ? jstr(s, "volume") : NULL, 2, o->verbose);
}

static int waiting_begin(struct waiting *v, const struct options *o, const char *id, struct err *e)
{
    fflush(stdout); /* keeps the order of output in a file */
    cli_cancel();   /* a signal ends the wait, not the operation */
    *v = (struct waiting){.o = o, .id = id, .seen = json_object()};
    v->quiet = o->progress == PROGRESS_OFF || (o->quiet && o->progress != PROGRESS_ON);
    v->live.on = !o->json && live_possible();
    return v->seen ? 0 : err_nomem(e);
}

static void waiting_end(struct waiting *v)
{
    live_clear(&v->live);
    json_decref(v->seen);
}

int wait_until_ended(const struct options *o, const char *id, json_t **ended, struct err *e)
{
    struct waiting v;
    int rc = waiting_begin(&v, o, id, e);
    if (rc < 0)
        return rc;
    rc = wait_long(&v, ended, e);
    waiting_end(&v);
    return rc;
}

int ask_shown(const struct options *o, const char *verb, json_t *args, json_t **answer, struct err *e)
{
    CLEANUP(daemon_closep) struct daemon *d = NULL;
    struct waiting v;
    int rc = waiting_begin(&v, o, "", e);
    v.quiet |= o->json && o->progress != PROGRESS_ON;
    v.printed = mono_s(); /* it may take several operations: their states are of no interest */
    if (rc >= 0)
        rc = daemon_open(&d, o, e);
    if (rc < 0)
        json_decref(args);
    else
        rc = daemon_call(d, verb, args, 0, on_state, &v, answer, e);
    waiting_end(&v);
    if (rc < 0 && e->cls == ERR_INTERRUPTED && v.now[0]) {
        err_set(e, ERR_INTERRUPTED, 0, "interrupted; the %s continues", verb);
        return err_hint(e, "snapferry cancel %s cancels it", text_name(v.now));
    }
    return rc;
}

int wait_for(const struct options *o, const char *id, struct err *e)
{
    CLEANUP_JSON json_t *ended = NULL;
    int rc = wait_until_ended(o, id, &ended, e);
    if (rc < 0)
        return rc;
    rc = exit_code_of(o, ended, e);
    if (o->json)
        print_answer(o, ended);
    else if (!o->quiet)
        print_ended(o, ended);
    else if (rc == ERR_PARTIAL)
        log_warning("%s is %s%s%s; see snapferry describe", jstr(ended, "id"), jstr(ended, "state"),
                    *jstr(error_of(ended), "message") ? ": " : "", jstr(error_of(ended), "message"));
    return rc;
}
