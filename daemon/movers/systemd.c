/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * movers-systemd.c - a mover as a transient unit, snapferry-mover@OPERATION-ESCAPED.service
 *
 * Everything that happens while the daemon works is asynchronous: starting, killing, asking for the exit status. A unit
 * stays after its process has ended (RemainAfterExit), so that its status can be read, until movers_forget().
 */
#include "daemon/movers/movers-impl.h"

#include "base/cleanup.h"
#include "proc/systemd.h"
#include "base/json.h"
#include "base/time.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#define SERVICE "org.freedesktop.systemd1"
#define MANAGER_PATH "/org/freedesktop/systemd1"
#define MANAGER SERVICE ".Manager"
#define PROPERTIES "org.freedesktop.DBus.Properties"
#define UNIT_PREFIX "snapferry-mover@"
#define UNIT_SUFFIX ".service"
#define ASK_USEC 5000000
#define TRIES_MAX 10 /* a unit of an earlier attempt has to go first */
#define RETRY_NS INT64_C(500000000)
#define LOOK_NS INT64_C(3000000000)
#define FIELDS_DIR "/run/systemd/units/"
#define FIELDS_PREFIX "log-extra-fields:"

static void busp(sd_bus_message **m)
{
    sd_bus_message_unref(*m);
}

/* ---- the bus ---- */

static int on_job_removed(sd_bus_message *m, void *arg, sd_bus_error *error);

static int on_subscribed(sd_bus_message *m, void *arg, sd_bus_error *error)
{
    struct movers *w = arg;
    (void)error;
    w->subscribed = !sd_bus_message_is_method_error(m, NULL);
    return 0;
}

/*
 * The journal reads the fields of a unit's lines (LogExtraFields=) from a file of the manager, which does not remove it
 * with the unit (seen with systemd 252): one for each mover that ever ran would stay until the node is booted. So it
 * goes with systemd_forget(), and what an earlier daemon has left, when the bus is opened.
 */
static void fields_forget(const char *unit)
{
    char path[400];
    snprintf(path, sizeof path, FIELDS_DIR FIELDS_PREFIX "%s", unit);
    unlink(path);
}

/* Units that have such a file. */
static json_t *fields_list(void)
{
    json_t *list = json_array();
    DIR *dir = opendir(FIELDS_DIR);
    const struct dirent *d;
    while (dir && (d = readdir(dir)))
        if (!strncmp(d->d_name, FIELDS_PREFIX UNIT_PREFIX, sizeof FIELDS_PREFIX UNIT_PREFIX - 1))
            json_array_append_new(list, json_string(d->d_name + sizeof FIELDS_PREFIX - 1));
    if (dir)
        closedir(dir);
    return list;
}

/* Of the units that had a file before systemd was asked, those that it does not know are gone. */
static int on_fields_units(sd_bus_message *m, void *arg, sd_bus_error *error)
{
    struct movers *w = arg;
    CLEANUP_JSON json_t *live = json_object();
    const char *unit;
    (void)error;
    int rc = sd_bus_message_is_method_error(m, NULL) ? -EIO : sd_bus_message_enter_container(m, 'a', "(ssssssouso)");
    while (rc > 0 && (rc = sd_bus_message_read(m, "(ssssssouso)", &unit, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                                               NULL)) > 0)
        json_object_set_new(live, unit, json_true());
    for (size_t i = 0; rc >= 0 && i < json_array_size(w->fields); i++) {
        unit = json_string_value(json_array_get(w->fields, i));
        if (!json_object_get(live, unit))
            fields_forget(unit);
    }
    json_decref(w->fields);
    w->fields = NULL;
    return 0;
}

static void fields_sweep(struct movers *m)
{
    json_decref(m->fields);
    m->fields = fields_list();
    if (json_array_size(m->fields))
        sd_bus_call_method_async(m->bus, NULL, SERVICE, MANAGER_PATH, MANAGER, "ListUnitsByPatterns", on_fields_units,
                                 m, "asas", 0, 1, UNIT_PREFIX "*" UNIT_SUFFIX);
}

static int bus(struct movers *m, struct err *e)
{
    if (m->bus && sd_bus_is_open(m->bus) > 0)
        return 0;
    systemd_close(m);
    int rc = systemd_bus_open(&m->bus);
    if (rc >= 0)
        rc = sd_bus_attach_event(m->bus, m->loop, 0);
    if (rc >= 0)
        rc =
            sd_bus_match_signal_async(m->bus, NULL, NULL, MANAGER_PATH, MANAGER, "JobRemoved", on_job_removed, NULL, m);
    if (rc >= 0)
        rc = sd_bus_call_method_async(m->bus, NULL, SERVICE, MANAGER_PATH, MANAGER, "Subscribe", on_subscribed, m, "");
    if (rc >= 0) {
        fields_sweep(m);
        return 0;
    }
    systemd_close(m);
    err_set(e, ERR_GENERIC, -rc, "systemd does not answer");
    err_hint(e, "it is tried again; `systemctl status dbus` and `systemctl is-system-running` show how systemd fares");
    return rc;
}

void systemd_open(struct movers *m)
{
    bus(m, NULL);
}

void systemd_close(struct movers *m)
{
    if (!m->bus)
        return;
    sd_bus_detach_event(m->bus);
    sd_bus_flush_close_unref(m->bus);
    m->bus = NULL;
    json_decref(m->fields);
    m->fields = NULL;
}

void systemd_forget_slot(struct mover *v)
{
    v->slot = sd_bus_slot_unref(v->slot);
}

static void unit_path(const char *unit, char **ret)
{
    *ret = NULL;
    if (sd_bus_path_encode(MANAGER_PATH "/unit", unit, ret) < 0)
        *ret = NULL;
}

/* ---- what a unit tells ---- */

struct facts {
    uint32_t pid;
    int32_t code, status;
    uint64_t cpu_ns, memory_peak;
    char result[32];
};

static int read_fact(sd_bus_message *m, const char *name, struct facts *f)
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

static int read_facts(sd_bus_message *m, struct facts *f)
{
    *f = (struct facts){0};
    int rc = sd_bus_message_enter_container(m, 'a', "{sv}");
    while (rc >= 0 && (rc = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
        const char *name;
        rc = sd_bus_message_read(m, "s", &name);
        if (rc >= 0)
            rc = read_fact(m, name, f);
        if (rc >= 0)
            rc = sd_bus_message_exit_container(m);
    }
    return rc;
}

static int wait_status(const struct facts *f)
{
    if (f->code == CLD_EXITED)
        return (f->status & 0xff) << 8;
    return f->code == CLD_KILLED || f->code == CLD_DUMPED ? f->status & 0x7f : -1;
}

static void take_facts(struct mover *v, const struct facts *f)
{
    v->status = wait_status(f);
    snprintf(v->unit_result, sizeof v->unit_result, "%s", f->result);
    v->oom = !strcmp(f->result, "oom-kill");
    if (f->cpu_ns && f->cpu_ns != UINT64_MAX)
        v->cpu_seconds = (double)f->cpu_ns * 1e-9;
    if (f->memory_peak && f->memory_peak != UINT64_MAX && f->memory_peak > v->memory_peak)
        v->memory_peak = f->memory_peak;
    /* systemd could not even begin: its own exit codes, from 200 on, say at which step. */
    if (!v->start_seen && f->code == CLD_EXITED && f->status >= 200 && !v->begin_error[0])
        snprintf(v->begin_error, sizeof v->begin_error, "systemd could not execute it (status %d, see systemd.exec(5))",
                 f->status);
}

static int ask(struct mover *v, sd_bus_message_handler_t fn)
{
    CLEANUP_FREE char *path = NULL;
    CLEANUP(busp) sd_bus_message *m = NULL;
    unit_path(v->id.unit, &path);
    if (!path || bus(v->owner, NULL) < 0)
        return -ENOTCONN;
    systemd_forget_slot(v);
    int rc = sd_bus_message_new_method_call(v->owner->bus, &m, SERVICE, path, PROPERTIES, "GetAll");
    if (rc >= 0)
        rc = sd_bus_message_append(m, "s", SERVICE ".Service");
    return rc < 0 ? rc : sd_bus_call_async(v->owner->bus, &v->slot, m, fn, v, ASK_USEC);
}

static int on_end_facts(sd_bus_message *m, void *arg, sd_bus_error *error)
{
    struct mover *v = arg;
    struct facts f;
    (void)error;
    if (!sd_bus_message_is_method_error(m, NULL) && read_facts(m, &f) >= 0) {
        /* Our pidfd is faster than systemd's SIGCHLD: it will know in a moment. The tick ends this after 5 s. */
        if (f.code == 0 && mono_ns() - v->gone_ns < LOOK_NS && ask(v, on_end_facts) >= 0)
            return 0;
        take_facts(v, &f);
    }
    mover_finish(v);
    return 0;
}

bool systemd_ask_end(struct mover *v)
{
    v->asking = ask(v, on_end_facts) >= 0;
    return v->asking;
}

/* ---- starting ---- */

static int submit(struct mover *v, struct err *e);

static int on_begin_facts(sd_bus_message *m, void *arg, sd_bus_error *error)
{
    struct mover *v = arg;
    struct facts f;
    struct err e = ERR_INIT;
    (void)error;
    if (v->id.pid || v->gone || sd_bus_message_is_method_error(m, NULL) || read_facts(m, &f) < 0)
        return 0;
    if (f.pid && mover_watch(v, (pid_t)f.pid, &e) == 0)
        return 0;
    if (!f.pid && f.code == 0)
        return 0; /* not yet: the tick asks again */
    take_facts(v, &f);
    v->gone = true;
    v->gone_ns = mono_ns();
    mover_finish(v);
    return 0;
}

static int on_job_removed(sd_bus_message *m, void *arg, sd_bus_error *error)
{
    struct movers *w = arg;
    uint32_t id;
    const char *job, *unit, *result;
    (void)error;
    if (sd_bus_message_read(m, "uoss", &id, &job, &unit, &result) < 0)
        return 0;
    for (struct mover *v = w->list; v; v = v->next) {
        /* Other jobs of that name are those of an earlier attempt. */
        if (v->id.pid || v->gone || !v->unit_job[0] || strcmp(v->unit_job, job) != 0)
            continue;
        if (strcmp(result, "done") != 0 && !v->begin_error[0])
            snprintf(v->begin_error, sizeof v->begin_error, "systemd could not start its unit (%s)", result);
        ask(v, on_begin_facts);
        return 0;
    }
    return 0;
}

static void not_begun(struct mover *v, const char *why)
{
    snprintf(v->begin_error, sizeof v->begin_error, "systemd did not take its unit: %.300s", why);
    v->gone = true;
    v->gone_ns = mono_ns();
    mover_finish(v);
}

static int on_submitted(sd_bus_message *m, void *arg, sd_bus_error *error)
{
    struct mover *v = arg;
    (void)error;
    const sd_bus_error *x = sd_bus_message_get_error(m);
    const char *job;
    if (!x) {
        if (sd_bus_message_read(m, "o", &job) >= 0)
            snprintf(v->unit_job, sizeof v->unit_job, "%s", job);
        v->asked_ns = mono_ns();
        return 0;
    }
    /* The unit of an earlier attempt: it is told to go, and this one waits for that. */
    if (!strcmp(x->name, SERVICE ".UnitExists") && ++v->unit_tries < TRIES_MAX) {
        systemd_forget(v->owner, v->operation);
        v->retry_ns = mono_ns() + RETRY_NS;
        return 0;
    }
    not_begun(v, x->message ? x->message : x->name);
    return 0;
}

static int submit(struct mover *v, struct err *e)
{
    CLEANUP(busp) sd_bus_message *m = NULL;
    int rc = bus(v->owner, e);
    if (rc < 0)
        return rc;
    rc = sd_bus_message_new_method_call(v->owner->bus, &m, SERVICE, MANAGER_PATH, MANAGER, "StartTransientUnit");
    if (rc >= 0)
        rc = sd_bus_message_append(m, "ss", v->id.unit, "fail");
    if (rc >= 0)
        rc = sd_bus_message_open_container(m, 'a', "(sv)");
    if (rc < 0)
        return err_set(e, ERR_GENERIC, -rc, "the unit of the mover of %s cannot be described", v->operation);
    rc = unit_properties_append(m, v, v->launch, e);
    if (rc < 0)
        return rc;
    rc = sd_bus_message_close_container(m);
    if (rc >= 0)
        rc = sd_bus_message_append(m, "a(sa(sv))", 0);
    systemd_forget_slot(v);
    if (rc >= 0)
        rc = sd_bus_call_async(v->owner->bus, &v->slot, m, on_submitted, v, 0);
    return rc < 0 ? err_set(e, ERR_GENERIC, -rc, "systemd cannot be asked to start the mover of %s", v->operation) : 0;
}

int systemd_start(struct mover *v, const struct mover_launch *l, struct err *e)
{
    (void)l;
    mover_unit_name(v->id.unit, sizeof v->id.unit, v->operation);
    return submit(v, e);
}

void systemd_tick(struct mover *v)
{
    struct err e = ERR_INIT;
    const int64_t now = mono_ns();
    if (!v->id.unit[0] || v->gone)
        return;
    if (v->retry_ns && now >= v->retry_ns) {
        v->retry_ns = 0;
        if (submit(v, &e) < 0)
            log_warning("%s", e.msg);
    } else if (!v->id.pid && v->asked_ns && now - v->asked_ns > LOOK_NS) {
        v->asked_ns = now;
        ask(v, on_begin_facts);
    }
    if (v->id.pid && !v->cgroup.path[0])
        cgroup_of(v->id.pid, v->cgroup.path, sizeof v->cgroup.path);
}

/* ---- ending ---- */

void systemd_kill(struct mover *v)
{
    if (bus(v->owner, NULL) < 0)
        return;
    sd_bus_call_method_async(v->owner->bus, NULL, SERVICE, MANAGER_PATH, MANAGER, "KillUnit", NULL, NULL, "ssi",
                             v->id.unit, "all", (int32_t)SIGKILL);
    if (v->pidfd < 0) /* has not begun: may not do so any more */
        sd_bus_call_method_async(v->owner->bus, NULL, SERVICE, MANAGER_PATH, MANAGER, "StopUnit", NULL, NULL, "ss",
                                 v->id.unit, "replace");
}

void systemd_forget(struct movers *m, const char *operation)
{
    char unit[320];
    mover_unit_name(unit, sizeof unit, operation);
    if (bus(m, NULL) < 0)
        return;
    sd_bus_call_method_async(m->bus, NULL, SERVICE, MANAGER_PATH, MANAGER, "StopUnit", NULL, NULL, "ss", unit,
                             "replace");
    sd_bus_call_method_async(m->bus, NULL, SERVICE, MANAGER_PATH, MANAGER, "ResetFailedUnit", NULL, NULL, "s", unit);
    fields_forget(unit); /* now: another attempt of the operation makes it anew */
}

/* ---- at the start of a daemon: waits, bounded ---- */

int systemd_status(struct movers *m, const char *unit, bool *oom, char *result, size_t cap)
{
    CLEANUP_FREE char *path = NULL;
    CLEANUP(busp) sd_bus_message *call = NULL;
    CLEANUP(busp) sd_bus_message *reply = NULL;
    struct facts f;
    unit_path(unit, &path);
    if (!path || bus(m, NULL) < 0)
        return -1;
    int rc = sd_bus_message_new_method_call(m->bus, &call, SERVICE, path, PROPERTIES, "GetAll");
    if (rc >= 0)
        rc = sd_bus_message_append(call, "s", SERVICE ".Service");
    if (rc >= 0)
        rc = sd_bus_call(m->bus, call, ASK_USEC, NULL, &reply);
    if (rc < 0 || read_facts(reply, &f) < 0)
        return -1;
    snprintf(result, cap, "%s", f.result);
    *oom = !strcmp(f.result, "oom-kill");
    return wait_status(&f);
}
