/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "proc/unit.h"

#include "base/cleanup.h"
#include "proc/systemd.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define SERVICE "org.freedesktop.systemd1"
#define MANAGER_PATH "/org/freedesktop/systemd1"
#define MANAGER SERVICE ".Manager"
#define PROPERTIES "org.freedesktop.DBus.Properties"
#define ANSWER_USEC 5000000
#define FIELDS_DIR "/run/systemd/units/"
#define FIELDS_PREFIX "log-extra-fields:"
#define UNIT_ROW "(ssssssouso)" /* of ListUnits */

struct unit_manager {
    sd_event *loop;
    sd_bus *bus;
    char prefix[64];
    void (*job_ended)(const char *job, const char *unit, const char *result, void *arg);
    void *arg;
    struct name *named;    /* units with a file for the journal, while systemd is asked which are left */
    struct name *stopping; /* units that unit_forget() stops */
};

struct unit_call {
    struct unit_manager *owner;
    struct unit_call **handle;
    sd_bus_slot *slot;
    void *arg;
    unit_facts_fn *facts;
    unit_started_fn *started;
};

static void message_freep(sd_bus_message **m)
{
    sd_bus_message_unref(*m);
}

/* ---- questions ---- */

void unit_call_drop(struct unit_call **call)
{
    struct unit_call *c = *call;
    if (!c)
        return;
    *call = NULL;
    sd_bus_slot_unref(c->slot);
    free(c);
}

/* Sends `m`; `c` becomes *handle. */
static int call_begin(struct unit_call *c, sd_bus_message *m, sd_bus_message_handler_t fn, struct unit_call **handle,
                      uint64_t usec)
{
    unit_call_drop(handle);
    int rc = sd_bus_call_async(c->owner->bus, &c->slot, m, fn, c, usec);
    if (rc < 0) {
        free(c);
        return rc;
    }
    c->handle = handle;
    *handle = c;
    return 0;
}

/* Its answer has come: copies it, and nobody has it any more. */
static struct unit_call call_end(struct unit_call *c)
{
    struct unit_call copy = *c;
    *c->handle = NULL;
    sd_bus_slot_unref(c->slot);
    free(c);
    return copy;
}

static struct unit_call *call_new(struct unit_manager *u, void *arg)
{
    struct unit_call *c = calloc(1, sizeof *c);
    if (c) {
        c->owner = u;
        c->arg = arg;
    }
    return c;
}

/* ---- names of units ---- */

struct name {
    struct name *next;
    char text[];
};

static void names_add(struct name **list, const char *text)
{
    struct name *n = malloc(sizeof *n + strlen(text) + 1);
    if (!n)
        return;
    strcpy(n->text, text);
    n->next = *list;
    *list = n;
}

static bool names_have(const struct name *list, const char *text)
{
    for (; list; list = list->next)
        if (!strcmp(list->text, text))
            return true;
    return false;
}

static bool names_take(struct name **list, const char *text)
{
    for (; *list; list = &(*list)->next) {
        struct name *n = *list;
        if (strcmp(n->text, text) != 0)
            continue;
        *list = n->next;
        free(n);
        return true;
    }
    return false;
}

static void names_free(struct name **list)
{
    while (*list) {
        struct name *n = *list;
        *list = n->next;
        free(n);
    }
}

/* ---- the files of the journal's fields ---- */

/*
 * The journal reads the fields of a unit's lines (LogExtraFields=) from a file of the manager, which does not remove it
 * with the unit (seen with systemd 252): one for each that ever ran would stay until the node is booted. So it is
 * removed with unit_forget(), and what an earlier process left, when the connection is made.
 */
static void fields_forget(const char *unit)
{
    char path[400];
    snprintf(path, sizeof path, FIELDS_DIR FIELDS_PREFIX "%s", unit);
    unlink(path);
}

/* Of the units that had a file before systemd was asked, those that it does not know are gone. */
static int on_fields_units(sd_bus_message *m, void *arg, sd_bus_error *error)
{
    struct unit_manager *u = arg;
    struct name *alive = NULL;
    const char *unit;
    (void)error;
    int rc = sd_bus_message_is_method_error(m, NULL) ? -EIO : sd_bus_message_enter_container(m, 'a', UNIT_ROW);
    while (rc > 0 &&
           (rc = sd_bus_message_read(m, UNIT_ROW, &unit, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)) > 0)
        names_add(&alive, unit);
    for (const struct name *n = u->named; n && rc >= 0; n = n->next)
        if (!names_have(alive, n->text))
            fields_forget(n->text);
    names_free(&alive);
    names_free(&u->named);
    return 0;
}

static void fields_sweep(struct unit_manager *u)
{
    char prefix[sizeof u->prefix + sizeof FIELDS_PREFIX], pattern[sizeof u->prefix + 16];
    const size_t n = (size_t)snprintf(prefix, sizeof prefix, FIELDS_PREFIX "%s", u->prefix);
    CLEANUP_CLOSEDIR DIR *dir = opendir(FIELDS_DIR);
    const struct dirent *d;
    names_free(&u->named);
    while (dir && (d = readdir(dir)))
        if (!strncmp(d->d_name, prefix, n))
            names_add(&u->named, d->d_name + sizeof FIELDS_PREFIX - 1);
    snprintf(pattern, sizeof pattern, "%s*.service", u->prefix);
    if (u->named)
        sd_bus_call_method_async(u->bus, NULL, SERVICE, MANAGER_PATH, MANAGER, "ListUnitsByPatterns", on_fields_units,
                                 u, "asas", 0, 1, pattern);
}

/* ---- the connection ---- */

static void reset_failed(struct unit_manager *u, const char *unit)
{
    sd_bus_call_method_async(u->bus, NULL, SERVICE, MANAGER_PATH, MANAGER, "ResetFailedUnit", NULL, NULL, "s", unit);
}

static int on_job_removed(sd_bus_message *m, void *arg, sd_bus_error *error)
{
    struct unit_manager *u = arg;
    uint32_t id;
    const char *job, *unit, *result;
    (void)error;
    if (sd_bus_message_read(m, "uoss", &id, &job, &unit, &result) < 0)
        return 0;
    /* A process that was killed while its unit was stopped has left it as failed. */
    if (names_take(&u->stopping, unit))
        reset_failed(u, unit);
    u->job_ended(job, unit, result, u->arg);
    return 0;
}

static int on_subscribed(sd_bus_message *m, void *arg, sd_bus_error *error)
{
    (void)m;
    (void)arg;
    (void)error;
    return 0;
}

static void disconnect(struct unit_manager *u)
{
    names_free(&u->named);
    names_free(&u->stopping);
    if (!u->bus)
        return;
    sd_bus_detach_event(u->bus);
    u->bus = sd_bus_flush_close_unref(u->bus);
}

int unit_manager_connect(struct unit_manager *u, struct err *e)
{
    if (u->bus && sd_bus_is_open(u->bus) > 0)
        return 0;
    disconnect(u);
    int rc = systemd_bus_open(&u->bus);
    if (rc >= 0)
        rc = sd_bus_attach_event(u->bus, u->loop, 0);
    if (rc >= 0)
        rc =
            sd_bus_match_signal_async(u->bus, NULL, NULL, MANAGER_PATH, MANAGER, "JobRemoved", on_job_removed, NULL, u);
    if (rc >= 0)
        rc = sd_bus_call_method_async(u->bus, NULL, SERVICE, MANAGER_PATH, MANAGER, "Subscribe", on_subscribed, u, "");
    if (rc >= 0) {
        fields_sweep(u);
        return 0;
    }
    disconnect(u);
    err_set(e, ERR_GENERIC, -rc, "systemd does not answer");
    err_hint(e, "it is tried again; `systemctl status dbus` and `systemctl is-system-running` show how systemd fares");
    return rc;
}

int unit_manager_new(struct unit_manager **ret, const struct unit_manager_opts *o, struct err *e)
{
    struct unit_manager *u = calloc(1, sizeof *u);
    if (!u)
        return err_nomem(e);
    u->loop = sd_event_ref(o->loop);
    u->job_ended = o->job_ended;
    u->arg = o->arg;
    snprintf(u->prefix, sizeof u->prefix, "%s", o->prefix);
    *ret = u;
    return 0;
}

void unit_manager_free(struct unit_manager *u)
{
    if (!u)
        return;
    disconnect(u);
    sd_event_unref(u->loop);
    free(u);
}

/* ---- facts ---- */

/* As the manager has them. */
struct raw_facts {
    uint32_t pid;
    int32_t code, status;
    uint64_t cpu_ns, memory_peak;
    char result[32];
};

static int read_fact(sd_bus_message *m, const char *name, struct raw_facts *f)
{
    const struct {
        const char *name, *type;
        void *to;
    } known[] = {
        {"MainPID", "u", &f->pid},         {"ExecMainCode", "i", &f->code},      {"ExecMainStatus", "i", &f->status},
        {"CPUUsageNSec", "t", &f->cpu_ns}, {"MemoryPeak", "t", &f->memory_peak},
    };
    const char *text;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, name))
            return sd_bus_message_read(m, "v", known[i].type, known[i].to);
    if (!strcmp(name, "Result")) {
        int rc = sd_bus_message_read(m, "v", "s", &text);
        if (rc >= 0)
            snprintf(f->result, sizeof f->result, "%s", text);
        return rc;
    }
    return sd_bus_message_skip(m, "v");
}

static int read_facts(sd_bus_message *m, struct unit_facts *ret)
{
    struct raw_facts f = {0};
    int rc = sd_bus_message_enter_container(m, 'a', "{sv}");
    while (rc >= 0 && (rc = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
        const char *name;
        rc = sd_bus_message_read(m, "s", &name);
        if (rc >= 0)
            rc = read_fact(m, name, &f);
        if (rc >= 0)
            rc = sd_bus_message_exit_container(m);
    }
    *ret = (struct unit_facts){.pid = (pid_t)f.pid, .ended = f.code != 0, .status = -1};
    if (f.code == CLD_EXITED)
        ret->status = (f.status & 0xff) << 8;
    else if (f.code == CLD_KILLED || f.code == CLD_DUMPED)
        ret->status = f.status & 0x7f;
    ret->cpu_seconds = f.cpu_ns == UINT64_MAX ? 0 : (double)f.cpu_ns * 1e-9;
    ret->memory_peak = f.memory_peak == UINT64_MAX ? 0 : f.memory_peak;
    memcpy(ret->result, f.result, sizeof ret->result);
    return rc;
}

static int facts_message(struct unit_manager *u, const char *unit, sd_bus_message **ret)
{
    CLEANUP_FREE char *path = NULL;
    int rc = unit_manager_connect(u, NULL);
    if (rc >= 0)
        rc = sd_bus_path_encode(MANAGER_PATH "/unit", unit, &path);
    if (rc >= 0)
        rc = sd_bus_message_new_method_call(u->bus, ret, SERVICE, path, PROPERTIES, "GetAll");
    return rc < 0 ? rc : sd_bus_message_append(*ret, "s", SERVICE ".Service");
}

static int on_facts(sd_bus_message *m, void *arg, sd_bus_error *error)
{
    struct unit_call c = call_end(arg);
    struct unit_facts f;
    (void)error;
    const bool ok = !sd_bus_message_is_method_error(m, NULL) && read_facts(m, &f) >= 0;
    c.facts(ok ? &f : NULL, c.arg);
    return 0;
}

int unit_ask(struct unit_manager *u, const char *unit, unit_facts_fn *fn, void *arg, struct unit_call **call)
{
    CLEANUP(message_freep) sd_bus_message *m = NULL;
    int rc = facts_message(u, unit, &m);
    struct unit_call *c = rc < 0 ? NULL : call_new(u, arg);
    if (!c)
        return rc < 0 ? rc : -ENOMEM;
    c->facts = fn;
    return call_begin(c, m, on_facts, call, ANSWER_USEC);
}

int unit_ask_wait(struct unit_manager *u, const char *unit, struct unit_facts *ret)
{
    CLEANUP(message_freep) sd_bus_message *m = NULL;
    CLEANUP(message_freep) sd_bus_message *reply = NULL;
    int rc = facts_message(u, unit, &m);
    if (rc >= 0)
        rc = sd_bus_call(u->bus, m, ANSWER_USEC, NULL, &reply);
    if (rc >= 0)
        rc = read_facts(reply, ret);
    return rc < 0 ? rc : 0;
}

/* ---- starting ---- */

static int on_started(sd_bus_message *m, void *arg, sd_bus_error *error)
{
    struct unit_call c = call_end(arg);
    const sd_bus_error *refused = sd_bus_message_get_error(m);
    const char *job = NULL;
    (void)error;
    if (refused)
        c.started(NULL, !strcmp(refused->name, SERVICE ".UnitExists"),
                  refused->message ? refused->message : refused->name, c.arg);
    else
        c.started(sd_bus_message_read(m, "o", &job) >= 0 ? job : "", false, "", c.arg);
    return 0;
}

static int start_message(struct unit_manager *u, const char *unit, unit_describe_fn *describe, const void *description,
                         sd_bus_message **ret, struct err *e)
{
    int rc = unit_manager_connect(u, e);
    if (rc < 0)
        return rc;
    rc = sd_bus_message_new_method_call(u->bus, ret, SERVICE, MANAGER_PATH, MANAGER, "StartTransientUnit");
    if (rc >= 0)
        rc = sd_bus_message_append(*ret, "ss", unit, "fail");
    if (rc >= 0)
        rc = sd_bus_message_open_container(*ret, 'a', "(sv)");
    if (rc < 0)
        return err_set(e, ERR_GENERIC, -rc, "unit %s cannot be described", unit);
    struct unit_properties p = {.m = *ret};
    rc = describe(&p, description, e);
    if (rc < 0)
        return rc;
    rc = p.rc < 0 ? p.rc : sd_bus_message_close_container(*ret);
    if (rc >= 0)
        rc = sd_bus_message_append(*ret, "a(sa(sv))", 0);
    return rc < 0 ? err_set(e, ERR_GENERIC, -rc, "unit %s cannot be described", unit) : 0;
}

int unit_start(struct unit_manager *u, const char *unit, unit_describe_fn *describe, const void *description,
               unit_started_fn *fn, void *arg, struct unit_call **call, struct err *e)
{
    CLEANUP(message_freep) sd_bus_message *m = NULL;
    int rc = start_message(u, unit, describe, description, &m, e);
    if (rc < 0)
        return rc;
    struct unit_call *c = call_new(u, arg);
    if (!c)
        return err_nomem(e);
    c->started = fn;
    rc = call_begin(c, m, on_started, call, 0);
    return rc < 0 ? err_set(e, ERR_GENERIC, -rc, "systemd cannot be asked to start unit %s", unit) : 0;
}

/* ---- ending ---- */

static void stop(struct unit_manager *u, const char *unit)
{
    sd_bus_call_method_async(u->bus, NULL, SERVICE, MANAGER_PATH, MANAGER, "StopUnit", NULL, NULL, "ss", unit,
                             "replace");
}

void unit_kill(struct unit_manager *u, const char *unit, int sig, bool also_stop)
{
    if (unit_manager_connect(u, NULL) < 0)
        return;
    sd_bus_call_method_async(u->bus, NULL, SERVICE, MANAGER_PATH, MANAGER, "KillUnit", NULL, NULL, "ssi", unit, "all",
                             (int32_t)sig);
    if (also_stop)
        stop(u, unit);
}

struct stop_call {
    struct unit_manager *owner;
    char unit[];
};

static int on_stop_answer(sd_bus_message *m, void *arg, sd_bus_error *error)
{
    struct stop_call *c = arg;
    (void)error;
    if (sd_bus_message_is_method_error(m, NULL)) /* there is no such unit: no job will end */
        names_take(&c->owner->stopping, c->unit);
    return 0;
}

/* Stops it, and on_job_removed() resets it then. */
static void stop_and_reset(struct unit_manager *u, const char *unit)
{
    sd_bus_slot *slot = NULL;
    struct stop_call *c = malloc(sizeof *c + strlen(unit) + 1);
    if (!c)
        return;
    c->owner = u;
    strcpy(c->unit, unit);
    if (sd_bus_call_method_async(u->bus, &slot, SERVICE, MANAGER_PATH, MANAGER, "StopUnit", on_stop_answer, c, "ss",
                                 unit, "replace") < 0) {
        free(c);
        return;
    }
    sd_bus_slot_set_destroy_callback(slot, free);
    sd_bus_slot_set_floating(slot, 1);
    sd_bus_slot_unref(slot);
    if (!names_have(u->stopping, unit))
        names_add(&u->stopping, unit);
}

void unit_forget(struct unit_manager *u, const char *unit)
{
    if (unit_manager_connect(u, NULL) < 0)
        return;
    stop_and_reset(u, unit);
    reset_failed(u, unit);
    fields_forget(unit); /* now: another one of that name makes it anew */
}
