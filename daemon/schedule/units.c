/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * schedule-units.c - one transient timer of systemd for each job
 *
 * Level-triggered: there is a list of timers that are wanted, each with a number that stands for all of its settings,
 * and what systemd says is there, which carries that number in its description. What differs is stopped and started
 * anew, without blocking the loop; a timer that is as it should be is never touched, not by a restart of the daemon
 * either. Whatever fails is tried again with the next look, and meanwhile the job runs by the daemon's own clock.
 */
#include "daemon/schedule/schedule-impl.h"

#include "base/cleanup.h"
#include "proc/systemd.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <systemd/sd-bus.h>

#define DESTINATION "org.freedesktop.systemd1"
#define MANAGER "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"
#define PATTERN "snapferry-job-*.timer"
#define DESCRIPTION "Backups of snapferry's job "
#define CALL_TIMEOUT_US 10000000
#define AGAIN_US 300000 /* a stopped unit needs a moment to go */
#define TRIES 20
#define PROPERTIES                                                                                                     \
    "2"           /* another one whenever append_service() is changed: timers of an earlier version are replaced       \
                   */
#define UNKNOWN 1 /* a timer that is there, with other settings or none that we know */

struct unit {
    struct unit *next;
    struct units *owner;
    char job[128], timer[UNIT_TEXT], on_calendar[256];
    int64_t jitter_s;
    uint64_t want, have; /* 0: none */
    bool known;          /* `have` has been seen */
    unsigned tries;
    sd_bus_slot *call; /* one at a time */
    char problem[256];
};

struct units {
    sd_event *loop;
    sd_bus *bus;
    const char *command, *runtime_dir;
    struct unit *list;
    sd_bus_slot *listing;
    sd_event_source *again;
    bool wanted; /* units_want() was called: what is not wanted goes */
};

static void advance(struct unit *n);

/* ---- names ---- */

char *unit_name_of_job(const char *job, const char *suffix, char out[UNIT_TEXT])
{
    const size_t max = 200; /* of the job's part */
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    size_t n = (size_t)snprintf(out, UNIT_TEXT, "snapferry-job-"), from = n;
    bool cut = false;
    for (const char *p = job; *p; p++) {
        unsigned char c = (unsigned char)*p;
        h = (h ^ c) * UINT64_C(0x100000001b3);
        bool plain = (c < 0x80 && isalnum(c)) || c == '_' || c == '-' || c == '.' || c == ':';
        cut |= n - from + (plain ? 1 : 4) > max;
        if (!cut)
            n += (size_t)snprintf(out + n, UNIT_TEXT - n, plain ? "%c" : "\\x%02x", c);
    }
    snprintf(out + n, UNIT_TEXT - n, cut ? ".%016llx%s" : "%.0llu%s", (unsigned long long)(cut ? h : 0), suffix);
    return out;
}

static uint64_t add_hash(uint64_t h, const char *text)
{
    for (;; text++) {
        h = (h ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
        if (!*text)
            return h;
    }
}

/* Of everything that a timer and its service are made from. Never 0 or UNKNOWN. */
static uint64_t settings_of(const struct units *u, const struct sched_job *j)
{
    char jitter[32];
    snprintf(jitter, sizeof jitter, "%lld", (long long)j->jitter_s);
    uint64_t h = add_hash(UINT64_C(0xcbf29ce484222325), j->name);
    h = add_hash(add_hash(h, j->on_calendar), jitter);
    h = add_hash(add_hash(h, u->command), u->runtime_dir);
    h = add_hash(h, PROPERTIES);
    return h > UNKNOWN ? h : UNKNOWN + 1;
}

/* The number at the end of a description: "... (16 digits)". */
static uint64_t settings_in(const char *description)
{
    const char *open = strrchr(description, '(');
    char *end;
    if (strncmp(description, DESCRIPTION, sizeof DESCRIPTION - 1) != 0 || !open)
        return UNKNOWN;
    uint64_t h = strtoull(open + 1, &end, 16);
    return end == open + 17 && !strcmp(end, ")") && h ? h : UNKNOWN;
}

/* ---- one timer ---- */

static void unit_free(struct unit *n)
{
    sd_bus_slot_unref(n->call);
    free(n);
}

static void drop(struct units *u, struct unit *n)
{
    struct unit **at = &u->list;
    while (*at != n)
        at = &(*at)->next;
    *at = n->next;
    unit_free(n);
}

static struct unit *find_unit(const struct units *u, const char *timer)
{
    struct unit *n = u->list;
    while (n && strcmp(n->timer, timer) != 0)
        n = n->next;
    return n;
}

static struct unit *add_unit(struct units *u, const char *timer)
{
    struct unit *n = calloc(1, sizeof *n);
    if (!n)
        return NULL;
    n->owner = u;
    snprintf(n->timer, sizeof n->timer, "%s", timer);
    n->next = u->list;
    u->list = n;
    return n;
}

static int on_again(sd_event_source *source, uint64_t usec, void *arg)
{
    struct units *u = arg;
    (void)source;
    (void)usec;
    for (struct unit *n = u->list, *next; n; n = next) {
        next = n->next;
        advance(n);
    }
    return 0;
}

/* Tries all that is unfinished again in a moment. */
static void soon(struct units *u)
{
    uint64_t now;
    if (sd_event_now(u->loop, CLOCK_MONOTONIC, &now) < 0)
        return;
    if (!u->again)
        sd_event_add_time(u->loop, &u->again, CLOCK_MONOTONIC, now + AGAIN_US, 10000, on_again, u);
    else
        sd_event_source_set_time(u->again, now + AGAIN_US);
    if (u->again)
        sd_event_source_set_enabled(u->again, SD_EVENT_ONESHOT);
}

static void trouble(struct unit *n, const char *what, const char *why)
{
    bool news = !n->problem[0];
    snprintf(n->problem, sizeof n->problem, "%s %s: %s", what, n->timer, why);
    if (news)
        log_warning("%s; until then the daemon's own clock runs the job", n->problem);
}

static int on_stopped(sd_bus_message *m, void *arg, sd_bus_error *ret)
{
    struct unit *n = arg;
    const sd_bus_error *error = sd_bus_message_get_error(m);
    (void)ret;
    n->call = sd_bus_slot_unref(n->call);
    if (error && !sd_bus_error_has_name(error, "org.freedesktop.systemd1.NoSuchUnit")) {
        trouble(n, "cannot stop", error->message ? error->message : error->name);
        return 0;
    }
    n->have = 0;
    soon(n->owner);
    return 0;
}

static int stop(struct unit *n)
{
    return sd_bus_call_method_async(n->owner->bus, &n->call, DESTINATION, MANAGER, "StopUnit", on_stopped, n, "ss",
                                    n->timer, "replace");
}

static int on_started(sd_bus_message *m, void *arg, sd_bus_error *ret)
{
    struct unit *n = arg;
    const sd_bus_error *error = sd_bus_message_get_error(m);
    (void)ret;
    n->call = sd_bus_slot_unref(n->call);
    if (!error) {
        n->have = n->want;
        n->tries = 0;
        n->problem[0] = '\0';
        advance(n); /* it may be wanted otherwise by now */
        return 0;
    }
    /* The old one is on its way out, or somebody made one meanwhile. */
    if (sd_bus_error_has_name(error, "org.freedesktop.systemd1.UnitExists") && n->tries++ < TRIES) {
        n->have = n->tries % 5 ? 0 : UNKNOWN;
        soon(n->owner);
        return 0;
    }
    trouble(n, "cannot start", error->message ? error->message : error->name);
    return 0;
}

static int append_service(sd_bus_message *m, const struct unit *n)
{
    char service[UNIT_TEXT], description[200];
    const char *command = n->owner->command;
    unit_name_of_job(n->job, ".service", service);
    snprintf(description, sizeof description, DESCRIPTION "%s", n->job);
    int rc = sd_bus_message_open_container(m, 'a', "(sa(sv))");
    rc = rc < 0 ? rc : sd_bus_message_open_container(m, 'r', "sa(sv)");
    rc = rc < 0 ? rc : sd_bus_message_append(m, "s", service);
    rc = rc < 0 ? rc : sd_bus_message_open_container(m, 'a', "(sv)");
    rc = rc < 0 ? rc : sd_bus_message_append(m, "(sv)(sv)", "Description", "s", description, "Type", "s", "oneshot");
    rc = rc < 0 ? rc
                : sd_bus_message_append(m, "(sv)", "ExecStart", "a(sasb)", 1, command, 7, command, "--runtime-dir",
                                        n->owner->runtime_dir, "backup", "--job", n->job, "--from-timer", 0);
    /* Nobody listens because somebody stopped the socket: no failure of the job, which is caught up. */
    rc = rc < 0 ? rc : sd_bus_message_append(m, "(sv)", "SuccessExitStatus", "(aiai)", 1, ERR_NO_DAEMON, 0);
    for (int i = 0; i < 3 && rc >= 0; i++)
        rc = sd_bus_message_close_container(m);
    return rc;
}

static int start(struct unit *n)
{
    sd_bus_message *m = NULL;
    char description[256];
    snprintf(description, sizeof description, DESCRIPTION "%s (%016llx)", n->job, (unsigned long long)n->want);
    int rc = sd_bus_message_new_method_call(n->owner->bus, &m, DESTINATION, MANAGER, "StartTransientUnit");
    rc = rc < 0 ? rc : sd_bus_message_append(m, "ss", n->timer, "replace");
    rc = rc < 0 ? rc : sd_bus_message_open_container(m, 'a', "(sv)");
    rc = rc < 0 ? rc
                : sd_bus_message_append(m, "(sv)(sv)(sv)", "Description", "s", description, "AccuracyUSec", "t",
                                        (uint64_t)1000000, "TimersCalendar", "a(ss)", 1, "OnCalendar", n->on_calendar);
    if (n->jitter_s > 0)
        rc = rc < 0 ? rc
                    : sd_bus_message_append(m, "(sv)(sv)", "RandomizedDelayUSec", "t", (uint64_t)n->jitter_s * 1000000,
                                            "FixedRandomDelay", "b", 1);
    rc = rc < 0 ? rc : sd_bus_message_close_container(m);
    rc = rc < 0 ? rc : append_service(m, n);
    rc = rc < 0 ? rc : sd_bus_call_async(n->owner->bus, &n->call, m, on_started, n, CALL_TIMEOUT_US);
    sd_bus_message_unref(m);
    return rc;
}

/* One step from what is to what is to be. */
static void advance(struct unit *n)
{
    struct units *u = n->owner;
    if (n->call || !n->known || !u->bus)
        return;
    if (n->have == n->want) {
        n->problem[0] = '\0';
        if (!n->want && u->wanted)
            drop(u, n);
        return;
    }
    int rc = n->have ? stop(n) : start(n);
    if (rc < 0)
        trouble(n, n->have ? "cannot stop" : "cannot start", strerror(-rc));
}

/* ---- all of them ---- */

static void advance_all(struct units *u)
{
    on_again(NULL, 0, u);
}

static int note_unit(struct units *u, sd_bus_message *m)
{
    const char *name, *description, *active;
    int rc =
        sd_bus_message_read(m, "(ssssssouso)", &name, &description, NULL, &active, NULL, NULL, NULL, NULL, NULL, NULL);
    if (rc <= 0)
        return rc;
    struct unit *n = find_unit(u, name);
    if (!n)
        n = add_unit(u, name);
    if (!n)
        return -ENOMEM;
    n->known = true;
    if (!n->call)
        n->have = !strcmp(active, "active") ? settings_in(description) : UNKNOWN;
    return 1;
}

static int on_list(sd_bus_message *m, void *arg, sd_bus_error *ret)
{
    struct units *u = arg;
    const sd_bus_error *error = sd_bus_message_get_error(m);
    (void)ret;
    u->listing = sd_bus_slot_unref(u->listing);
    if (error) {
        log_warning("systemd does not list its timers: %s", error->message ? error->message : error->name);
        return 0;
    }
    for (struct unit *n = u->list; n; n = n->next) {
        n->known = true;
        if (!n->call)
            n->have = 0;
        n->tries = 0;
    }
    int rc = sd_bus_message_enter_container(m, 'a', "(ssssssouso)");
    while (rc > 0)
        rc = note_unit(u, m);
    if (u->wanted)
        advance_all(u);
    return 0;
}

static int open_bus(struct units *u)
{
    if (u->bus && sd_bus_is_open(u->bus) > 0)
        return 0;
    for (struct unit *n = u->list; n; n = n->next) {
        n->call = sd_bus_slot_unref(n->call);
        n->known = false;
    }
    u->listing = sd_bus_slot_unref(u->listing);
    u->bus = sd_bus_close_unref(u->bus);
    int rc = systemd_bus_open(&u->bus);
    rc = rc < 0 ? rc : sd_bus_set_method_call_timeout(u->bus, CALL_TIMEOUT_US);
    rc = rc < 0 ? rc : sd_bus_attach_event(u->bus, u->loop, SD_EVENT_PRIORITY_NORMAL);
    if (rc < 0)
        u->bus = sd_bus_close_unref(u->bus);
    return rc;
}

static int ask_for_list(struct units *u)
{
    int rc = open_bus(u);
    if (rc < 0 || u->listing)
        return rc;
    return sd_bus_call_method_async(u->bus, &u->listing, DESTINATION, MANAGER, "ListUnitsByPatterns", on_list, u,
                                    "asas", 0, 1, PATTERN);
}

void units_look(struct units *u)
{
    int rc = ask_for_list(u);
    if (rc < 0)
        log_debug("the bus of systemd cannot be reached: %s", strerror(-rc));
}

int units_new(struct units **ret, sd_event *loop, const char *command, const char *runtime_dir, struct err *e)
{
    struct units *u = calloc(1, sizeof *u);
    if (!u)
        return err_nomem(e);
    u->loop = loop;
    u->command = command;
    u->runtime_dir = runtime_dir;
    int rc = ask_for_list(u);
    if (rc < 0) /* units_look() tries again */
        log_warning("systemd does not answer (%s): until it does the daemon's own clock runs the jobs", strerror(-rc));
    *ret = u;
    return 0;
}

void units_free(struct units *u)
{
    if (!u)
        return;
    for (struct unit *n = u->list, *next; n; n = next) {
        next = n->next;
        unit_free(n);
    }
    sd_bus_slot_unref(u->listing);
    sd_event_source_disable_unref(u->again);
    sd_bus_flush_close_unref(u->bus);
    free(u);
}

int units_want(struct units *u, const struct sched_job *jobs, struct err *e)
{
    bool known = u->wanted && !u->listing; /* else the list that is under way tells */
    for (struct unit *n = u->list; n; n = n->next)
        n->want = 0;
    for (const struct sched_job *j = jobs; j; j = j->next) {
        char timer[UNIT_TEXT];
        if (!sched_job_active(j))
            continue;
        unit_name_of_job(j->name, ".timer", timer);
        struct unit *n = find_unit(u, timer);
        if (!n && !(n = add_unit(u, timer)))
            return err_nomem(e);
        n->known |= known;
        snprintf(n->job, sizeof n->job, "%s", j->name);
        snprintf(n->on_calendar, sizeof n->on_calendar, "%s", j->on_calendar);
        n->jitter_s = j->jitter_s;
        n->want = settings_of(u, j);
        n->tries = 0;
    }
    u->wanted = true;
    advance_all(u);
    return 0;
}

bool units_has(const struct units *u, const char *job, const char **problem)
{
    for (const struct unit *n = u->list; n; n = n->next) {
        if (!n->want || strcmp(n->job, job) != 0)
            continue;
        *problem = n->problem;
        /* What is about to be made is there as good as certain, until it is known to fail. */
        return !n->problem[0] && u->bus;
    }
    *problem = "";
    return false;
}

static int stop_now(struct units *u, const char *timer, struct err *e)
{
    sd_bus_error error = SD_BUS_ERROR_NULL;
    int rc = sd_bus_call_method(u->bus, DESTINATION, MANAGER, "StopUnit", &error, NULL, "ss", timer, "replace");
    if (rc < 0 && !sd_bus_error_has_name(&error, "org.freedesktop.systemd1.NoSuchUnit"))
        err_set(e, ERR_GENERIC, -rc, "cannot stop %s (%s)", timer, error.message ? error.message : "no reason given");
    else
        rc = 0;
    sd_bus_error_free(&error);
    return rc;
}

int units_clear(struct units *u, struct err *e)
{
    sd_bus_error error = SD_BUS_ERROR_NULL;
    sd_bus_message *m = NULL;
    struct err first = ERR_INIT;
    for (struct unit *n = u->list; n; n = n->next) {
        n->call = sd_bus_slot_unref(n->call);
        n->want = n->have = 0;
    }
    int rc = open_bus(u);
    if (rc >= 0)
        rc = sd_bus_call_method(u->bus, DESTINATION, MANAGER, "ListUnitsByPatterns", &error, &m, "asas", 0, 1, PATTERN);
    if (rc >= 0)
        rc = sd_bus_message_enter_container(m, 'a', "(ssssssouso)");
    if (rc < 0)
        err_set(&first, ERR_GENERIC, -rc, "systemd does not list its timers");
    const char *name;
    while (rc > 0 && (rc = sd_bus_message_read(m, "(ssssssouso)", &name, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                                               NULL)) > 0) {
        struct err why = ERR_INIT;
        if (stop_now(u, name, &why) < 0 && !first.cls)
            first = why;
    }
    sd_bus_message_unref(m);
    sd_bus_error_free(&error);
    if (!first.cls)
        return 0;
    if (e)
        *e = first;
    return first.sys ? -first.sys : -EIO;
}
