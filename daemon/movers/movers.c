/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * movers.c - movers from start to end
 *
 * Decisive are the process's end (pidfd; under systemd also its unit) and the result file. Messages set flags and the
 * time of the last progress, nothing else. A second's tick keeps the deadlines: start, stall, duration, cancel.
 *
 * Crash points: mover-files (result file made, no process yet), mover-started (the process runs), mover-go-sent.
 */
#include "daemon/movers/movers-impl.h"

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

struct mover *movers_find(const struct movers *m, const char *operation)
{
    for (struct mover *v = m->list; v; v = v->next)
        if (!strcmp(v->operation, operation))
            return v;
    return NULL;
}

static int on_tick(sd_event_source *s, uint64_t usec, void *arg);

/* ---- all of them ---- */

int movers_new(struct movers **ret, const struct movers_opts *o, struct err *e)
{
    struct movers *m = calloc(1, sizeof *m);
    const char *path;
    if (!m)
        return err_nomem(e);
    m->loop = sd_event_ref(o->loop);
    m->events = o->events;
    m->arg = o->arg;
    m->systemd = systemd_runs();
    log_info("movers, hooks and plugins run as %s", m->systemd ? "units of systemd" : "child processes");
    snprintf(m->runtime_dir, sizeof m->runtime_dir, "%s", o->runtime_dir);
    snprintf(m->state_dir, sizeof m->state_dir, "%s", o->state_dir);
    snprintf(m->results_dir, sizeof m->results_dir, "%s/" MOVER_RESULTS, o->state_dir);
    snprintf(m->logs_dir, sizeof m->logs_dir, "%s/" MOVER_LOGS, o->state_dir);
    snprintf(m->program, sizeof m->program, "%s", o->program);
    int rc = 0;
    if (o->program[0] != '/' || access(o->program, X_OK) < 0)
        rc = err_set(e, ERR_USAGE, o->program[0] == '/' ? errno : EINVAL, "the mover's program %s cannot be executed",
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
    if (rc == 0 && m->systemd)
        systemd_open(m);
    if (rc == 0) {
        rc = sd_event_add_time_relative(m->loop, &m->tick, CLOCK_MONOTONIC, 1000000, 100000, on_tick, m);
        if (rc < 0)
            err_set(e, ERR_GENERIC, -rc, "cannot make the movers' timer");
    }
    if (rc < 0) {
        movers_free(m);
        return rc;
    }
    logs_prune(m);
    *ret = m;
    return 0;
}

void movers_free(struct movers *m)
{
    if (!m)
        return;
    while (m->list) {
        struct mover *v = m->list;
        m->list = v->next;
        mover_free(v);
    }
    movers_unlisten(m);
    systemd_close(m);
    sd_event_source_disable_unref(m->tick);
    sd_event_unref(m->loop);
    free(m);
}

/* ---- one ---- */

static struct mover *mover_new(struct movers *m, const char *operation, const char *kind, struct err *e)
{
    struct mover *v = calloc(1, sizeof *v);
    if (!v) {
        err_nomem(e);
        return NULL;
    }
    v->owner = m;
    v->child = (struct spawned)SPAWNED_INIT;
    v->pidfd = v->job_fd = v->result_fd = v->device_fd = v->password_fd = v->log_fd = -1;
    v->status = -1;
    snprintf(v->operation, sizeof v->operation, "%s", operation);
    snprintf(v->kind, sizeof v->kind, "%s", kind ? kind : "");
    v->began_ns = v->life_ns = mono_ns();
    return v;
}

void mover_free(struct mover *v)
{
    if (!v)
        return;
    conn_close(v);
    sd_event_source_disable_unref(v->pid_source);
    sd_event_source_disable_unref(v->exec_source);
    int *const fds[] = {&v->pidfd, &v->job_fd, &v->result_fd, &v->device_fd, &v->password_fd, &v->log_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        closep(fds[i]);
    spawned_close(&v->child);
    systemd_forget_slot(v);
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

static void take_times(struct mover *v, const struct mover_spec *s)
{
    v->go_timeout_s = s && s->go_timeout_s > 0 ? s->go_timeout_s : GO_TIMEOUT_S;
    v->stall_timeout_s = s && s->stall_timeout_s > 0 ? s->stall_timeout_s : 0;
    v->cancel_grace_s = s && s->cancel_grace_s > 0 ? s->cancel_grace_s : CANCEL_GRACE_S;
    v->max_duration_s = s && s->max_duration_s > 0 ? s->max_duration_s : 0;
}

/* ---- starting ---- */

static int check_spec(const struct mover_spec *s, struct err *e)
{
    size_t len = s->operation ? strlen(s->operation) : 0;
    if (!len || len > OPERATION_MAX)
        return err_set(e, ERR_USAGE, EINVAL, "an operation needs a name of at most %d bytes", OPERATION_MAX);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)s->operation[i] < 0x21 || s->operation[i] == 0x7f)
            return err_set(e, ERR_USAGE, EINVAL, "the operation's name has blanks or control characters");
    if (!s->kind || !json_is_object(s->job))
        return err_set(e, ERR_USAGE, EINVAL, "operation %s has no kind or no job", s->operation);
    return 0;
}

static int make_job(struct mover *v, const struct mover_spec *s, const struct mover_launch *l, struct err *e)
{
    json_t *job = json_copy((json_t *)(uintptr_t)s->job);
    if (!job)
        return err_nomem(e);
    if (s->debug)
        json_object_set_new(job, "debug", json_true());
    if (l->cache_dir[0])
        json_object_set_new(job, "cache_dir", json_string(l->cache_dir));
    CLEANUP_FREE char *text = json_dumps(job, JSON_COMPACT);
    json_decref(job);
    if (!text)
        return err_nomem(e);
    size_t len = strlen(text);
    if (len > WIRE_JOB_MAX)
        return err_set(e, ERR_USAGE, E2BIG, "the job of %s has more than %u MiB", v->operation, WIRE_JOB_MAX >> 20);
    v->job_fd = memory_sealed("job", text, len, e);
    return v->job_fd < 0 ? v->job_fd : 0;
}

/* Everything that goes with JOB, before there is a process. */
static int make_parts(struct mover *v, const struct mover_spec *s, const struct mover_launch *l, struct err *e)
{
    int rc = make_job(v, s, l, e);
    if (rc == 0 && s->password) {
        v->password_fd = memory_sealed("password", s->password, strlen(s->password), e);
        rc = v->password_fd < 0 ? v->password_fd : 0;
    }
    if (rc == 0 && s->device_fd >= 0 && (v->device_fd = fcntl(s->device_fd, F_DUPFD_CLOEXEC, 3)) < 0)
        rc = err_set(e, ERR_GENERIC, errno, "cannot duplicate the device's descriptor for %s", v->operation);
    if (rc == 0) {
        v->result_fd = result_create(v->owner, v->operation, e);
        rc = v->result_fd < 0 ? v->result_fd : 0;
    }
    if (rc == 0) {
        v->log_fd = log_create(v->owner, v->operation, e);
        rc = v->log_fd < 0 ? v->log_fd : 0;
    }
    return rc;
}

int movers_start(struct movers *m, const struct mover_spec *s, struct err *e)
{
    int rc = check_spec(s, e);
    if (rc < 0)
        return rc;
    if (movers_find(m, s->operation))
        return err_plain(e, ERR_BUSY, EEXIST, "operation %s has a mover already", s->operation);
    struct mover *v = mover_new(m, s->operation, s->kind, e);
    if (!v)
        return -ENOMEM;
    CLEANUP(launch_freep) struct mover_launch *l = NULL;
    take_times(v, s);
    boot_id(v->id.boot_id);
    rc = launch_new(&l, m, s, e);
    if (rc == 0)
        rc = make_parts(v, s, l, e);
    crash_point("mover-files");
    if (rc == 0) {
        v->memory_max = l->memory_max;
        v->uid = l->as.uid;
        v->next = m->list;
        m->list = v;
        if (m->systemd) {
            v->launch = take_ptr(&l);
            rc = systemd_start(v, v->launch, e);
        } else {
            rc = fork_start(v, l, e);
        }
        if (rc < 0)
            unlink_mover(v);
    }
    if (rc < 0) {
        cgroup_remove(&v->cgroup);
        mover_free(v);
        return rc;
    }
    crash_point("mover-started");
    if (++m->starts % PRUNE_EVERY == 0)
        logs_prune(m);
    return 0;
}

static int on_pid(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    (void)s;
    (void)fd;
    (void)events;
    mover_gone(arg);
    return 0;
}

int mover_watch(struct mover *v, pid_t pid, struct err *e)
{
    if (v->id.pid)
        return 0;
    int fd = process_open_pid(pid);
    if (fd < 0)
        return err_set(e, ERR_GENERIC, -fd, "cannot watch the mover of %s (process %d)", v->operation, (int)pid);
    uint64_t start;
    int rc = process_start_time(pid, &start);
    if (rc == 0)
        rc = sd_event_add_io(v->owner->loop, &v->pid_source, fd, EPOLLIN, on_pid, v);
    if (rc < 0) {
        close(fd);
        return err_set(e, ERR_GENERIC, -rc, "cannot watch the mover of %s (process %d)", v->operation, (int)pid);
    }
    v->pidfd = fd;
    v->id.pid = pid;
    v->id.start_time = start;
    if (!v->id.boot_id[0])
        boot_id(v->id.boot_id);
    return 0;
}

int movers_go(struct movers *m, const char *operation, struct err *e)
{
    struct mover *v = movers_find(m, operation);
    if (!v || v->gone)
        return err_set(e, ERR_NOT_FOUND, ESRCH, "operation %s has no mover", operation);
    if (v->go)
        return 0;
    if (!v->ready)
        return err_set(e, ERR_BUSY, EAGAIN, "the mover of %s is not ready", operation);
    v->go = true;
    v->go_ns = v->life_ns = mono_ns();
    int rc = mover_say(v, WIRE_GO);
    crash_point("mover-go-sent");
    /* Its end comes by itself: a mover that cannot hear "go" exits. */
    return rc < 0 ? err_set(e, ERR_GENERIC, -rc, "the mover of %s does not hear \"go\"", operation) : 0;
}

/* ---- adopting ---- */

int movers_adopt(struct movers *m, const char *operation, const struct process_identity *id, const struct mover_spec *s,
                 struct err *e)
{
    char boot[40];
    const char *path;
    uint64_t start = 0;
    if (movers_find(m, operation))
        return err_plain(e, ERR_BUSY, EEXIST, "operation %s has a mover already", operation);
    boot_id(boot);
    if (id->pid <= 1 || strcmp(boot, id->boot_id) != 0)
        return err_set(e, ERR_NOT_FOUND, ESRCH, "the mover of %s ran before the system was started", operation);
    struct mover *v = mover_new(m, operation, s ? s->kind : NULL, e);
    if (!v)
        return -ENOMEM;
    take_times(v, s);
    /* The descriptor first: while it is held the number means this process. */
    int rc = mover_watch(v, id->pid, e);
    if (rc == 0 && (process_start_time(id->pid, &start) < 0 || start != id->start_time))
        rc = err_set(e, ERR_NOT_FOUND, ESRCH, "process %d is not the mover of %s any more", (int)id->pid, operation);
    if (rc == 0) {
        v->id = *id;
        v->uid = process_uid(id->pid);
        v->adopted = v->go = v->ready = v->job_sent = true;
        v->go_ns = v->life_ns;
        char name[MOVER_CGROUP_NAME];
        mover_cgroup_name(name, m->runtime_dir, operation);
        cgroup_find(&v->cgroup, id->pid, name);
        if (id->unit[0] && !process_in_unit(id->pid, id->unit) && !process_is_zombie(id->pid))
            rc = err_set(e, ERR_NOT_FOUND, ESRCH, "process %d is not in unit %s", (int)id->pid, id->unit);
    }
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

int movers_result(struct movers *m, const char *operation, struct mover_end *end, struct err *e)
{
    struct mover *v = mover_new(m, operation, NULL, e);
    if (!v)
        return -ENOMEM;
    v->adopted = true;
    char unit[320];
    if (m->systemd) {
        mover_unit_name(unit, sizeof unit, operation);
        v->status = systemd_status(m, unit, &v->oom, v->unit_result, sizeof v->unit_result);
        if (v->status >= 0)
            snprintf(v->id.unit, sizeof v->id.unit, "%s", unit);
    }
    mover_judge(v, end);
    mover_free(v);
    return 0;
}

/* ---- ending ---- */

void mover_kill(struct mover *v, enum kill_reason why)
{
    if (v->gone)
        return;
    if (v->killed == KILL_NONE || why != KILL_CANCEL)
        v->killed = why;
    v->killed_now = true;
    if (v->pidfd >= 0)
        process_signal(v->pidfd, SIGKILL);
    cgroup_kill(&v->cgroup);
    if (v->id.unit[0])
        systemd_kill(v);
    /* Never known by its number: it has not begun, and its unit's stop is its end. */
    if (v->pidfd < 0 && !v->id.unit[0])
        mover_gone(v);
}

int movers_cancel(struct movers *m, const char *operation, int64_t deadline_ns, struct err *e)
{
    struct mover *v = movers_find(m, operation);
    if (!v)
        return err_set(e, ERR_NOT_FOUND, ESRCH, "operation %s has no mover", operation);
    v->canceled = true;
    if (!v->kill_at_ns || deadline_ns < v->kill_at_ns)
        v->kill_at_ns = deadline_ns;
    if (v->gone)
        return 0;
    mover_say(v, WIRE_CANCEL);
    if (v->pidfd >= 0)
        process_signal(v->pidfd, SIGTERM);
    return 0;
}

static void reap(struct mover *v)
{
    struct rusage u;
    int status;
    pid_t pid = v->id.pid ? wait4(v->id.pid, &status, WNOHANG, &u) : -1;
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
    uint64_t peak = cgroup_number(&v->cgroup, "memory.peak", NULL);
    uint64_t now = peak ? peak : cgroup_number(&v->cgroup, "memory.current", NULL);
    if (!v->cgroup.made && !v->id.unit[0])
        return; /* shared with others */
    if (now > v->memory_peak)
        v->memory_peak = now;
    v->oom_kills = cgroup_number(&v->cgroup, "memory.events", "oom_kill");
}

void mover_gone(struct mover *v)
{
    if (v->gone)
        return;
    v->gone = true;
    v->gone_ns = mono_ns();
    sd_event_source_disable_unref(v->pid_source);
    v->pid_source = NULL;
    read_cgroup(v);
    reap(v);
    cgroup_kill(&v->cgroup);
    /* What it said last lies in the socket, and then the end; unless somebody else holds it, which takes 5 s at most.
     */
    const bool heard = !v->conn || conn_drain(v);
    if (v->exec_source)
        sd_event_source_set_enabled(v->exec_source, SD_EVENT_OFF);
    if (v->id.unit[0] && systemd_ask_end(v))
        return;
    if (heard)
        mover_finish(v);
}

void mover_finish(struct mover *v)
{
    struct movers *m = v->owner;
    struct mover_end end;
    conn_close(v);
    fork_last_words(v);
    mover_judge(v, &end);
    cgroup_remove(&v->cgroup);
    unlink_mover(v);
    if (m->events->ended)
        m->events->ended(v->operation, &end, m->arg);
    json_decref(end.result);
    mover_free(v);
}

int movers_forget(struct movers *m, const char *operation, struct err *e)
{
    char path[4400];
    if (movers_find(m, operation))
        return err_set(e, ERR_BUSY, EBUSY, "the mover of %s runs", operation);
    mover_result_path(path, sizeof path, m->state_dir, operation);
    if (unlink(path) < 0 && errno != ENOENT)
        return err_set(e, ERR_GENERIC, errno, "cannot remove the result file %s", path);
    if (m->systemd)
        systemd_forget(m, operation);
    else {
        char name[MOVER_CGROUP_NAME];
        mover_cgroup_name(name, m->runtime_dir, operation);
        cgroup_forget(name);
    }
    return 0;
}

/* ---- deadlines ---- */

static bool past(int64_t since_ns, int64_t limit_s, int64_t now)
{
    return limit_s > 0 && now - since_ns > limit_s * NS_PER_S;
}

/* While nobody hears from it, processor time is its sign of life. */
static void look_for_life(struct mover *v, int64_t now)
{
    if (v->conn || !v->id.pid)
        return;
    uint64_t ticks = process_cpu_ticks(v->id.pid);
    if (ticks != v->cpu_ticks)
        v->life_ns = now;
    v->cpu_ticks = ticks;
}

static void end_slowly(struct mover *v, enum kill_reason why)
{
    log_warning("mover of %s: it took longer than max-duration and is asked to end", v->operation);
    v->killed = why;
    v->kill_at_ns = now_ns() + v->cancel_grace_s * NS_PER_S;
    mover_say(v, WIRE_CANCEL);
    if (v->pidfd >= 0)
        process_signal(v->pidfd, SIGTERM);
}

/* May free v. */
static void look_after(struct mover *v, int64_t now, int64_t wall)
{
    if (v->gone) {
        if (past(v->gone_ns, DRAIN_S, now))
            mover_finish(v);
        return;
    }
    systemd_tick(v);
    log_bound(v);
    read_cgroup(v);
    look_for_life(v, now);
    if (v->kill_at_ns && wall >= v->kill_at_ns)
        mover_kill(v, KILL_CANCEL);
    else if (v->killed_now)
        mover_kill(v, v->killed); /* again, until it is gone */
    else if (!v->ready && past(v->began_ns, v->go_timeout_s, now))
        mover_kill(v, KILL_START);
    else if (v->ready && !v->go && past(v->ready_ns, 2 * v->go_timeout_s, now))
        mover_kill(v, KILL_START);
    else if (v->go && past(v->life_ns, v->stall_timeout_s, now))
        mover_kill(v, KILL_STALL);
    else if (v->go && v->killed == KILL_NONE && past(v->go_ns, v->max_duration_s, now))
        end_slowly(v, KILL_DURATION);
}

static int on_tick(sd_event_source *s, uint64_t usec, void *arg)
{
    struct movers *m = arg;
    (void)usec;
    /* Whatever ends in between, the list is walked again from its head; each is looked at once. */
    const int64_t now = mono_ns(), wall = now_ns();
    struct mover *next;
    for (struct mover *v = m->list; v; v = next) {
        next = v->next;
        look_after(v, now, wall);
    }
    sd_event_source_set_time_relative(s, 1000000);
    return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}
