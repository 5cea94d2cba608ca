/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * builtin.c - built-in movers from start to end
 *
 * The end of the process (pidfd; under systemd also its unit) and the result file determine the outcome. Messages only
 * set flags and the time of the last progress. A timer of one second enforces the deadlines: start, stall, duration,
 * cancel.
 *
 * Crash points: mover-files (result file created, no process yet), mover-started (the process runs), mover-go-sent.
 */
#include "daemon/movers/builtin-impl.h"

#include "base/json-text.h"
#include "base/cleanup.h"
#include "base/crash.h"
#include "base/time.h"
#include "proc/descriptors.h"
#include "proc/systemd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DRAIN_S 5
#define GO_TIMEOUT_S 60
#define CANCEL_GRACE_S 30
#define PRUNE_EVERY 50 /* starts */
#define TRACER_MS 500

static void mover_free(struct mover *v);
static void mover_gone(struct mover *v);
static void mover_finish(struct mover *v);
static void mover_read(json_t *result, const char *why, void *arg);
static void mover_kill(struct mover *v, enum kill_reason why);
static int on_tick(sd_event_source *s, uint64_t usec, void *arg);

/* ---- all of them ---- */

static void mover_misbehaved(struct mover *v)
{
    mover_kill(v, v->other_version ? KILL_VERSION : KILL_PROTOCOL);
}

static const struct mover_ops ops = {
    .message = mover_message, .misbehaved = mover_misbehaved, .gone = mover_gone, .known = mover_finish};

static int open_units(struct builtin_movers *m, struct err *e)
{
    const struct unit_manager_opts o = {
        .loop = m->loop, .prefix = MOVER_UNIT_PREFIX, .job_ended = systemd_job_ended, .arg = m};
    int rc = unit_manager_new(&m->units, &o, e);
    if (rc == 0)
        unit_manager_connect(m->units, NULL); /* later, if not now */
    return rc;
}

int builtin_new(struct builtin_movers **ret, const struct movers_opts *o, struct err *e)
{
    struct builtin_movers *m = calloc(1, sizeof *m);
    const char *path;
    if (!m)
        return err_nomem(e);
    m->loop = sd_event_ref(o->loop);
    m->events = o->events;
    m->arg = o->arg;
    m->ops = &ops;
    const bool systemd = systemd_runs();
    log_info("movers, hooks and plugins run as %s", systemd ? "units of systemd" : "child processes");
    snprintf(m->runtime_dir, sizeof m->runtime_dir, "%s", o->runtime_dir);
    snprintf(m->state_dir, sizeof m->state_dir, "%s", o->state_dir);
    snprintf(m->results_dir, sizeof m->results_dir, "%s/" MOVER_RESULTS, o->state_dir);
    snprintf(m->logs_dir, sizeof m->logs_dir, "%s/" MOVER_LOGS, o->state_dir);
    snprintf(m->program, sizeof m->program, "%s", o->program);
    int rc = 0;
    if (o->program[0] != '/' || access(o->program, X_OK) < 0)
        rc = err_set(e, ERR_USAGE, o->program[0] == '/' ? errno : EINVAL, "cannot execute the mover's program %s",
                     o->program);
    if (rc == 0)
        rc = make_dir(m->runtime_dir, 0755, e);
    if (rc == 0)
        rc = make_dir(o->state_dir, 0700, e);
    if (rc == 0)
        rc = make_dir(m->results_dir, 0700, e);
    if (rc == 0)
        rc = make_dir(m->logs_dir, 0700, e);
    if (rc == 0)
        rc = movers_listen(m, geteuid(), &path, e);
    if (rc == 0 && systemd)
        rc = open_units(m, e);
    if (rc == 0)
        rc = keys_new(&m->keys, e);
    if (rc == 0)
        rc = parser_new(&m->parser, m->loop, e);
    if (rc == 0) {
        rc = sd_event_add_time_relative(m->loop, &m->tick, CLOCK_MONOTONIC, 1000000, 100000, on_tick, m);
        if (rc < 0)
            err_set(e, ERR_GENERIC, -rc, "cannot create the movers' timer");
    }
    if (rc < 0) {
        builtin_free(m);
        return rc;
    }
    results_spare_none(m, true);
    logs_prune(m);
    *ret = m;
    return 0;
}

void builtin_free(struct builtin_movers *m)
{
    if (!m)
        return;
    while (m->list) {
        struct mover *v = m->list;
        m->list = v->next;
        mover_free(v);
    }
    results_spare_none(m, false);
    movers_unlisten(m);
    unit_manager_free(m->units);
    keys_free(m->keys);
    parser_free(m->parser);
    sd_event_source_disable_unref(m->tick);
    sd_event_unref(m->loop);
    free(m);
}

/* ---- one ---- */

static struct mover *mover_new(struct builtin_movers *m, const char *operation, const char *kind, struct err *e)
{
    struct mover *v = calloc(1, sizeof *v);
    if (!v) {
        err_nomem(e);
        return NULL;
    }
    v->owner = m;
    v->child = (struct spawned)SPAWNED_INIT;
    v->pidfd = v->job_fd = v->result_fd = v->device_fd = v->password_fd = v->key_fd = v->changes_fd =
        v->credentials_fd = v->copy_credentials_fd = v->listing_fd = v->received_fd = -1;
    v->status = -1;
    snprintf(v->operation, sizeof v->operation, "%s", operation);
    snprintf(v->kind, sizeof v->kind, "%s", kind ? kind : "");
    v->began_ns = v->life_ns = mono_ns();
    v->told_read = v->told_write = -1;
    return v;
}

static void mover_free(struct mover *v)
{
    if (!v)
        return;
    conn_close(v);
    sd_event_source_disable_unref(v->pid_source);
    sd_event_source_disable_unref(v->report_source);
    int *const fds[] = {&v->pidfd,  &v->job_fd,     &v->result_fd,      &v->device_fd,           &v->password_fd,
                        &v->key_fd, &v->changes_fd, &v->credentials_fd, &v->copy_credentials_fd, &v->listing_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        closep(fds[i]);
    spawned_close(&v->child);
    unit_call_drop(&v->call);
    parse_drop(v->reading);
    launch_free(v->launch);
    json_decref(v->progress);
    json_decref(v->refused);
    free(v);
}

static void unlink_mover(struct mover *v)
{
    for (struct mover **p = &v->owner->list; *p; p = &(*p)->next) {
        if (*p == v) {
            *p = v->next;
            return;
        }
    }
}

static void times_set(struct mover *v, const struct mover_times *t)
{
    v->go_timeout_s = t->go_timeout_s > 0 ? t->go_timeout_s : GO_TIMEOUT_S;
    v->stall_timeout_s = t->stall_timeout_s > 0 ? t->stall_timeout_s : 0;
    v->cancel_grace_s = t->cancel_grace_s > 0 ? t->cancel_grace_s : CANCEL_GRACE_S;
    v->max_duration_s = t->max_duration_s > 0 ? t->max_duration_s : 0;
}

/* ---- starting ---- */

static int check_spec(const struct mover_spec *s, struct err *e)
{
    size_t len = s->operation ? strlen(s->operation) : 0;
    if (!len || len > OPERATION_MAX)
        return err_set(e, ERR_USAGE, EINVAL, "invalid operation name: 1 to %d bytes expected", OPERATION_MAX);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)s->operation[i] < 0x21 || s->operation[i] == 0x7f)
            return err_set(e, ERR_USAGE, EINVAL, "the operation's name contains blanks or control characters");
    if (!s->kind || !json_is_object(s->job))
        return err_set(e, ERR_USAGE, EINVAL, "operation %s has no kind or no job", s->operation);
    return 0;
}

static int job_too_long(const struct mover *v, struct err *e)
{
    return err_set(e, ERR_USAGE, E2BIG, "the job of %s has more than %u MiB", v->operation, WIRE_JOB_MAX >> 20);
}

static int job_whole(struct mover *v, const char *text, struct err *e)
{
    const size_t len = strlen(text);
    if (len > WIRE_JOB_MAX)
        return job_too_long(v, e);
    v->job_fd = memory_sealed("job", text, len, e);
    return v->job_fd < 0 ? v->job_fd : 0;
}

/* `fd` has the first members of the object, `text` is one of the others. */
static int job_complete(struct mover *v, int fd, char *text, struct err *e)
{
    struct stat st;
    text[0] = ',';
    int rc = memory_append(fd, "job", text, strlen(text), e);
    if (rc == 0 && fstat(fd, &st) == 0 && st.st_size > WIRE_JOB_MAX)
        rc = job_too_long(v, e);
    if (rc == 0)
        rc = memory_seal(fd, "job", e);
    if (rc == 0 && (v->job_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0)
        rc = err_set(e, ERR_GENERIC, errno, "cannot duplicate the descriptor of the job of %s", v->operation);
    return rc;
}

static int job_create(struct mover *v, const struct mover_spec *s, const struct mover_launch *l, struct err *e)
{
    json_t *job = json_copy((json_t *)(uintptr_t)s->job);
    if (!job)
        return err_nomem(e);
    if (s->debug)
        json_object_set_new(job, "debug", json_true());
    if (l->cache_dir[0])
        json_object_set_new(job, "cache_dir", json_string(l->cache_dir));
    const int rc = rates_begin(v, job, e);
    CLEANUP_FREE char *text = rc < 0 ? NULL : json_text(job, NULL);
    json_decref(job);
    if (rc < 0)
        return rc;
    if (!text)
        return err_nomem(e);
    return s->job_fd > 0 ? job_complete(v, s->job_fd, text, e) : job_whole(v, text, e);
}

/* The key that an earlier mover derived, if there is one; else the key of this one is kept. */
static void key_prepare(struct mover *v, const struct mover_spec *s)
{
    struct keys *keys = v->owner->keys;
    v->key_wanted = keys_id(keys, json_object_get(s->job, "repository"), s->password, &v->key);
    const int fd = v->key_wanted ? keys_find(keys, &v->key) : -1;
    if (fd >= 0)
        v->key_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

static int credentials_create(int *fd, const char *text, struct err *e)
{
    if (text)
        *fd = memory_sealed("credentials", text, strlen(text), e);
    return text && *fd < 0 ? *fd : 0;
}

/* Everything that is sent with JOB, before there is a process. */
static int descriptors_create(struct mover *v, const struct mover_spec *s, const struct mover_launch *l, struct err *e)
{
    int rc = job_create(v, s, l, e);
    if (rc == 0 && s->password) {
        v->password_fd = memory_sealed("password", s->password, strlen(s->password), e);
        rc = v->password_fd < 0 ? v->password_fd : 0;
        key_prepare(v, s);
    }
    if (rc == 0)
        rc = credentials_create(&v->credentials_fd, s->credentials, e);
    if (rc == 0)
        rc = credentials_create(&v->copy_credentials_fd, s->copy_credentials, e);
    if (rc == 0 && s->device_fd >= 0 && (v->device_fd = fcntl(s->device_fd, F_DUPFD_CLOEXEC, 3)) < 0)
        rc = err_set(e, ERR_GENERIC, errno, "cannot duplicate the device's descriptor for %s", v->operation);
    if (rc == 0 && s->changes_fd > 0 && (v->changes_fd = fcntl(s->changes_fd, F_DUPFD_CLOEXEC, 3)) < 0)
        rc = err_set(e, ERR_GENERIC, errno, "cannot duplicate the descriptor of the changes for %s", v->operation);
    if (rc == 0 && s->listing_fd > 0 && (v->listing_fd = fcntl(s->listing_fd, F_DUPFD_CLOEXEC, 3)) < 0)
        rc = err_set(e, ERR_GENERIC, errno, "cannot duplicate the descriptor for lists for %s", v->operation);
    if (rc == 0) {
        v->result_fd = result_create(v->owner, v->operation, e);
        rc = v->result_fd < 0 ? v->result_fd : 0;
    }
    return rc;
}

/* The process; v is in the list from here on, also if that fails. */
static int start_process(struct mover *v, struct mover_launch **l, struct err *e)
{
    v->memory_max = (*l)->memory_max;
    v->uid = (*l)->as.uid;
    v->next = v->owner->list;
    v->owner->list = v;
    if (!v->owner->units)
        return forked_start(v, *l, e);
    v->launch = take_ptr(l);
    return systemd_start(v, e);
}

int builtin_start(struct builtin_movers *m, const struct mover_spec *s, struct err *e)
{
    CLEANUP(launch_freep) struct mover_launch *l = NULL;
    int rc = check_spec(s, e);
    struct mover *v = rc == 0 ? mover_new(m, s->operation, s->kind, e) : NULL;
    if (!v)
        return rc < 0 ? rc : -ENOMEM;
    times_set(v, &s->times);
    rates_set(v, s->limits);
    boot_id(v->id.boot_id);
    rc = launch_new(&l, s, e);
    if (rc == 0) {
        l->program = m->program;
        rc = movers_listen(m, l->as.uid, &l->socket, e);
    }
    if (rc == 0)
        rc = descriptors_create(v, s, l, e);
    const bool look = !strcmp(s->kind, MOVER_KIND_LOOK); /* no operation: none of its deaths matters */
    if (!look)
        crash_point("mover-files");
    if (rc == 0 && (rc = start_process(v, &l, e)) < 0)
        unlink_mover(v);
    if (rc < 0) {
        cgroup_remove(&v->cgroup);
        mover_free(v);
        return rc;
    }
    if (!look)
        crash_point("mover-started");
    if (++m->starts % PRUNE_EVERY == 0)
        logs_prune(m);
    return 0;
}

int builtin_go(struct builtin_movers *m, const char *operation, struct err *e)
{
    struct mover *v = mover_find(m, operation);
    if (!v || v->gone)
        return err_set(e, ERR_NOT_FOUND, ESRCH, "operation %s has no mover", operation);
    if (v->go)
        return 0;
    if (!v->ready)
        return err_set(e, ERR_BUSY, EAGAIN, "mover of %s is not ready", operation);
    v->go = true;
    v->go_ns = v->life_ns = mono_ns();
    int rc = mover_send(v, WIRE_GO);
    if (strcmp(v->kind, MOVER_KIND_LOOK) != 0)
        crash_point("mover-go-sent");
    /* It ends by itself: a mover that does not receive GO exits. */
    return rc < 0 ? err_set(e, ERR_GENERIC, -rc, "cannot send GO to the mover of %s", operation) : 0;
}

/* ---- adopting ---- */

/* The pidfd first: while it is held the pid identifies this process. */
static int identity_verify(struct mover *v, const struct process_identity *id, struct err *e)
{
    char name[MOVER_CGROUP_NAME];
    int rc = mover_watch(v, id->pid, e);
    if (rc < 0)
        return rc;
    if (v->id.start_time != id->start_time)
        return err_set(e, ERR_NOT_FOUND, ESRCH, "process %d is no longer the mover of %s", (int)id->pid, v->operation);
    if (id->unit[0] && !process_in_unit(id->pid, id->unit) && !process_is_zombie(id->pid))
        return err_set(e, ERR_NOT_FOUND, ESRCH, "process %d is not in unit %s", (int)id->pid, id->unit);
    v->id = *id;
    v->uid = process_uid(id->pid);
    mover_cgroup_name(name, v->owner->runtime_dir, v->operation);
    cgroup_find(&v->cgroup, id->pid, name);
    return 0;
}

int builtin_adopt(struct builtin_movers *m, const struct process_identity *id, const struct mover_spec *s,
                  struct err *e)
{
    char boot[BOOT_ID_TEXT];
    const char *path;
    boot_id(boot);
    if (id->pid <= 1 || strcmp(boot, id->boot_id) != 0)
        return err_set(e, ERR_NOT_FOUND, ESRCH, "the mover of %s was started before the last boot", s->operation);
    struct mover *v = mover_new(m, s->operation, s->kind, e);
    if (!v)
        return -ENOMEM;
    times_set(v, &s->times);
    rates_set(v, s->limits);
    v->adopted = v->go = v->ready = v->job_sent = true;
    v->go_ns = v->life_ns;
    int rc = identity_verify(v, id, e);
    if (rc == 0 && v->uid != (uid_t)-1)
        rc = movers_listen(m, v->uid, &path, e);
    if (rc < 0) {
        mover_free(v);
        return rc == -ENOENT ? -ESRCH : rc;
    }
    v->next = m->list;
    m->list = v;
    return 0;
}

int builtin_result(struct builtin_movers *m, const char *operation, struct err *e)
{
    struct mover *v = mover_new(m, operation, NULL, e);
    if (!v)
        return -ENOMEM;
    v->adopted = v->gone = v->looked_for = true;
    v->gone_ns = v->began_ns;
    if (m->units)
        systemd_read_end(v);
    v->reading = result_begin(m, operation, mover_read, v);
    if (!v->reading) {
        mover_free(v);
        return err_nomem(e);
    }
    v->next = m->list;
    m->list = v;
    return 0;
}

/* ---- ending ---- */

static void mover_kill(struct mover *v, enum kill_reason why)
{
    if (v->gone)
        return;
    if (v->killed == KILL_NONE || why != KILL_CANCEL)
        v->killed = why;
    v->killed_now = true;
    if (v->pidfd >= 0)
        process_signal(v->pidfd, SIGKILL);
    cgroup_kill(&v->cgroup);
    /* Its pid is not known: it has not started, and must not any more. */
    if (v->id.unit[0])
        unit_kill(v->owner->units, v->id.unit, SIGKILL, v->pidfd < 0);
    if (v->pidfd < 0 && !v->id.unit[0])
        mover_gone(v);
}

int builtin_cancel(struct builtin_movers *m, const char *operation, int64_t deadline_ns, struct err *e)
{
    struct mover *v = mover_find(m, operation);
    if (!v)
        return err_set(e, ERR_NOT_FOUND, ESRCH, "operation %s has no mover", operation);
    v->canceled = true;
    /* The clock may be set in between: no deadline is further away than it was when it was made. */
    const int64_t left = deadline_ns - now_ns(), grace = v->cancel_grace_s * NS_PER_S;
    const int64_t at_ns = mono_ns() + (deadline_ns <= 0 || left > grace ? grace : left > 0 ? left : 0);
    if (!v->kill_at_ns || at_ns < v->kill_at_ns)
        v->kill_at_ns = at_ns;
    if (v->gone)
        return 0;
    mover_send(v, WIRE_CANCEL);
    if (v->pidfd >= 0)
        process_signal(v->pidfd, SIGTERM);
    return 0;
}

/* 0: it has ended, but whoever traces it (strace, a debugger) has not taken note of that yet, which comes first. */
static pid_t child_wait(pid_t pid, int *status, struct rusage *u)
{
    pid_t rc = wait4(pid, status, WNOHANG, u);
    for (unsigned i = 0; rc == 0 && i < TRACER_MS; i++) {
        nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
        rc = wait4(pid, status, WNOHANG, u);
    }
    return rc;
}

static void child_reap(struct mover *v)
{
    struct rusage u;
    int status;
    pid_t pid = v->id.pid ? child_wait(v->id.pid, &status, &u) : -1;
    if (pid <= 0)
        return; /* not our child: adopted, or systemd's */
    v->status = status;
    v->cpu_seconds = (double)u.ru_utime.tv_sec + (double)u.ru_utime.tv_usec * 1e-6 + (double)u.ru_stime.tv_sec +
                     (double)u.ru_stime.tv_usec * 1e-6;
    if (!v->memory_peak)
        v->memory_peak = (uint64_t)u.ru_maxrss << 10;
}

static void read_cgroup(struct mover *v)
{
    if (!v->cgroup.made && !v->id.unit[0])
        return; /* shared with others */
    if (v->cgroup.made && !v->cgroup.memory && !v->adopted)
        return; /* without the memory controller */
    uint64_t peak = cgroup_number(&v->cgroup, "memory.peak", NULL);
    uint64_t now = peak ? peak : cgroup_number(&v->cgroup, "memory.current", NULL);
    if (now > v->memory_peak)
        v->memory_peak = now;
    v->oom_kills = cgroup_number(&v->cgroup, "memory.events", "oom_kill");
}

static void mover_gone(struct mover *v)
{
    if (v->gone)
        return;
    v->gone = true;
    v->gone_ns = mono_ns();
    sd_event_source_disable_unref(v->pid_source);
    v->pid_source = NULL;
    read_cgroup(v);
    child_reap(v);
    cgroup_kill(&v->cgroup);
    /* Its last messages are in the socket, followed by the end of the connection; waits at most 5 s if another
     * process holds it. */
    const bool heard = !v->conn || conn_drain(v);
    if (v->report_source)
        sd_event_source_set_enabled(v->report_source, SD_EVENT_OFF);
    if (v->id.unit[0] && systemd_ask_end(v))
        return;
    if (heard)
        mover_finish(v);
}

static void mover_judged(struct mover *v, json_t *result, const char *why)
{
    struct builtin_movers *m = v->owner;
    struct mover_end end;
    mover_judge(v, result, why, &end);
    unlink_mover(v);
    if (v->gone && !v->adopted && end.outcome == MOVER_OK)
        result_ended(m, v->operation);
    if (m->events->ended)
        m->events->ended(v->operation, &end, m->arg);
    json_decref(end.result);
    mover_free(v);
}

/* parse_done_fn */
static void mover_read(json_t *result, const char *why, void *arg)
{
    struct mover *v = arg;
    v->reading = NULL;
    mover_judged(v, result, why);
    json_decref(result);
}

/* All that it has said is known: its result is next. */
static void mover_finish(struct mover *v)
{
    if (v->reading)
        return;
    conn_close(v);
    forked_last_report(v);
    cgroup_remove(&v->cgroup);
    v->reading = result_begin(v->owner, v->operation, mover_read, v);
    if (!v->reading)
        mover_judged(v, NULL, "no memory to read it");
}

int builtin_forget(struct builtin_movers *m, const char *operation, struct err *e)
{
    char unit[UNIT_NAME_TEXT], name[MOVER_CGROUP_NAME];
    int rc = result_forget(m, operation, e);
    if (rc < 0)
        return rc;
    if (m->units) {
        mover_unit_name(unit, sizeof unit, operation);
        unit_forget(m->units, unit);
    } else {
        mover_cgroup_name(name, m->runtime_dir, operation);
        cgroup_forget(name);
    }
    return 0;
}

struct left_results *builtin_left_results(const struct builtin_movers *m)
{
    return results_left(m);
}

int builtin_sync(const struct builtin_movers *m, struct err *e)
{
    return results_sync(m, e);
}

void builtin_limit(struct builtin_movers *m, const char *operation, const struct mover_limits *l)
{
    struct mover *v = mover_find(m, operation);
    if (!v)
        return;
    rates_set(v, l);
    rates_tell(v);
}

void builtin_forget_keys(struct builtin_movers *m)
{
    keys_forget(m->keys);
}

bool builtin_has(const struct builtin_movers *m, const char *operation)
{
    return mover_find(m, operation) != NULL;
}

unsigned builtin_count(const struct builtin_movers *m)
{
    unsigned n = 0;
    for (const struct mover *v = m->list; v; v = v->next)
        n++;
    return n;
}

/* ---- deadlines ---- */

static bool deadline_passed(int64_t since_ns, int64_t limit_s, int64_t now)
{
    return limit_s > 0 && now - since_ns > limit_s * NS_PER_S;
}

/* Without messages, CPU time counts as activity. */
static void check_activity(struct mover *v, int64_t now)
{
    if (v->conn || !v->id.pid)
        return;
    uint64_t ticks = process_cpu_ticks(v->id.pid);
    if (ticks != v->cpu_ticks)
        v->life_ns = now;
    v->cpu_ticks = ticks;
}

static void mover_end_slowly(struct mover *v, enum kill_reason why)
{
    log_warning("mover of %s: max-duration exceeded; canceling", v->operation);
    v->killed = why;
    v->kill_at_ns = mono_ns() + v->cancel_grace_s * NS_PER_S;
    mover_send(v, WIRE_CANCEL);
    if (v->pidfd >= 0)
        process_signal(v->pidfd, SIGTERM);
}

/* May free v. */
static void mover_check(struct mover *v, int64_t now)
{
    if (v->gone) {
        if (!v->reading && deadline_passed(v->gone_ns, DRAIN_S, now))
            mover_finish(v);
        return;
    }
    systemd_tick(v);
    log_bound(v);
    rates_tell(v);
    read_cgroup(v);
    check_activity(v, now);
    if (v->kill_at_ns && now >= v->kill_at_ns)
        mover_kill(v, KILL_CANCEL);
    else if (v->killed_now)
        mover_kill(v, v->killed); /* repeated until it has ended */
    else if (!v->ready && deadline_passed(v->began_ns, v->go_timeout_s, now))
        mover_kill(v, KILL_START);
    else if (v->ready && !v->go && deadline_passed(v->ready_ns, 2 * v->go_timeout_s, now))
        mover_kill(v, KILL_START);
    else if (v->go && deadline_passed(v->life_ns, v->stall_timeout_s, now))
        mover_kill(v, KILL_STALL);
    else if (v->go && v->killed == KILL_NONE && deadline_passed(v->go_ns, v->max_duration_s, now))
        mover_end_slowly(v, KILL_DURATION);
}

static int on_tick(sd_event_source *s, uint64_t usec, void *arg)
{
    struct builtin_movers *m = arg;
    (void)usec;
    /* If movers end meanwhile, the list is walked again from its head; each is checked once. */
    const int64_t now = mono_ns();
    struct mover *next;
    for (struct mover *v = m->list; v; v = next) {
        next = v->next;
        mover_check(v, now);
    }
    results_spare_tick(m);
    sd_event_source_set_time_relative(s, 1000000);
    return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}
