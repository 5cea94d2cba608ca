/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "proc/service.h"
#include "base/cleanup.h"
#include "base/crash.h"
#include "proc/program-path.h"
#include "proc/spawn.h"
#include "proc/systemd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SYSTEMD_RUN "/usr/bin/systemd-run"
#define SYSTEMCTL "/usr/bin/systemctl"
#define PATH_TEXT 4400
#define WORDS_MAX 64 /* of the command that makes a unit */

static const char *const tool_env[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                       "LANG=C.UTF-8", NULL};

/* ---- files ---- */

void service_path(char *out, size_t cap, const char *dir, const char *name, const char *suffix)
{
    snprintf(out, cap, "%s/%s.%s", dir, name, suffix);
}

void service_forget(const char *dir, const char *name)
{
    static const char *const suffixes[] = {"in", "out", "log", "id", "id.new"};
    char path[PATH_TEXT];
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        service_path(path, sizeof path, dir, name, suffixes[i]);
        unlink(path);
    }
}

static int make_file(const char *path, const char *text, int *ret, struct err *e)
{
    CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot create %s", path);
    size_t n = strlen(text);
    if (n && write(fd, text, n) != (ssize_t)n)
        return err_set(e, ERR_GENERIC, errno ? errno : EIO, "cannot write %s", path);
    if (lseek(fd, 0, SEEK_SET) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot rewind %s", path);
    *ret = take_fd(&fd);
    return 0;
}

static int sync_dir(const char *dir)
{
    CLEANUP_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

static int write_identity(const struct service *s, const struct process_identity *i, struct err *e)
{
    char text[256], path[PATH_TEXT], fresh[PATH_TEXT];
    CLEANUP_CLOSE int fd = -1;
    process_id_text(i, text, sizeof text);
    service_path(path, sizeof path, s->dir, s->name, "id");
    service_path(fresh, sizeof fresh, s->dir, s->name, "id.new");
    int rc = make_file(fresh, text, &fd, e);
    if (rc < 0)
        return rc;
    if (fsync(fd) < 0 || rename(fresh, path) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot write %s", path);
    rc = sync_dir(s->dir);
    return rc < 0 ? err_set(e, ERR_GENERIC, -rc, "cannot write %s", path) : 0;
}

/* The process of an earlier start, if it still runs. */
static bool service_runs(const struct service *s, struct process_identity *ret)
{
    char path[PATH_TEXT], text[256];
    service_path(path, sizeof path, s->dir, s->name, "id");
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return false;
    text[n] = '\0';
    if (process_id_parse(ret, text) < 0)
        return false;
    CLEANUP_CLOSE int pidfd = process_open_running(ret);
    return pidfd >= 0;
}

/* ---- as a child ---- */

static int start_failed(const struct service *s, int sys, struct err *e)
{
    bool other = s->user && *s->user;
    return err_set(e, ERR_GENERIC, sys, "%s: cannot start %s%s%s", s->label, s->argv[0], other ? " as user " : "",
                   other ? s->user : "");
}

static int start_child(const struct service *s, const int fds[3], struct process_identity *ret, struct err *e)
{
    struct user user;
    struct spawned p;
    struct spawn_report r;
    int rc = user_find(&user, s->user, true, e);
    if (rc < 0)
        return rc == -ENOENT ? start_failed(s, ENOENT, e) : rc;
    struct spawn x = SPAWN_INIT;
    CLEANUP_CLOSE int program = -1;
    rc = program_open(s->label, s->argv[0], &program, e);
    if (rc < 0)
        return rc;
    x.argv = s->argv;
    x.program = program;
    x.env = s->env;
    x.in = fds[0];
    x.out = fds[1];
    x.err = fds[2];
    x.user = &user;
    x.waits = true;
    rc = spawn_program(&p, &x, e);
    if (rc < 0)
        return err_wrap(e, "%s", s->label);
    crash_point("plugin-run-forked");
    if (process_identify(ret, p.pid) < 0)
        rc = err_set(e, ERR_GENERIC, ESRCH, "%s: its process ended immediately", s->label);
    if (rc == 0)
        rc = write_identity(s, ret, e);
    if (rc == 0) {
        crash_point("plugin-run-identified");
        spawn_go(&p);
        int why = spawn_begun(&p, &r);
        if (why < 0)
            rc = start_failed(s, -why, e);
    }
    spawned_close(&p); /* it ends without spawn_go() */
    return rc;
}

/* ---- as a unit ---- */

/* A unit of its own, outside the daemon's sandbox. A second one of that name cannot start. */
static int start_unit(const struct service *s, const char *const paths[3], struct process_identity *ret, struct err *e)
{
    static const char *const streams[] = {"StandardInput=file:", "StandardOutput=append:", "StandardError=append:"};
    char unit[160], stream[3][PATH_TEXT + 64], user[128];
    char self[PATH_TEXT];
    int rc = program_self(self, sizeof self, e);
    if (rc < 0)
        return rc;
    const char *argv[WORDS_MAX] = {SYSTEMD_RUN, "--quiet", "--collect"};
    size_t n = 3;
    snprintf(unit, sizeof unit, "--unit=%s", s->unit);
    snprintf(user, sizeof user, "--property=User=%s", s->user && *s->user ? s->user : "root");
    argv[n++] = unit;
    for (int i = 0; i < 3; i++) {
        snprintf(stream[i], sizeof stream[i], "--property=%s%s", streams[i], paths[i]);
        argv[n++] = stream[i];
    }
    argv[n++] = user;
    argv[n++] = "--property=KillMode=control-group";
    argv[n++] = "--property=TimeoutStopSec=10";
    argv[n++] = "--";
    argv[n++] = self;
    argv[n++] = PROGRAM_RUN_OPTION;
    argv[n++] = s->label;
    for (size_t i = 0; s->env[i] && n < WORDS_MAX - 1; i++)
        argv[n++] = s->env[i];
    argv[n++] = "--";
    for (size_t i = 0; s->argv[i] && n < WORDS_MAX - 1; i++)
        argv[n++] = s->argv[i];
    struct spawn x = SPAWN_INIT;
    x.argv = argv;
    x.env = tool_env;
    x.err = STDERR_FILENO;
    rc = spawn_and_wait(&x, s->label, e);
    if (rc < 0)
        return rc;
    pid_t pid;
    if (systemd_main_pid(s->unit, &pid) < 0 || process_identify(ret, pid) < 0) {
        /* It has ended already: its output is in its file, and the identity belongs to no living process. */
        *ret = (struct process_identity){.pid = 2, .start_time = UINT64_MAX};
        boot_id(ret->boot_id);
    }
    return write_identity(s, ret, e);
}

/* ---- */

int service_start(const struct service *s, struct process_identity *ret, struct err *e)
{
    static const char *const suffixes[] = {"in", "out", "log"};
    char paths[3][PATH_TEXT];
    int fds[3] = {-1, -1, -1}, rc = 0;
    if (service_runs(s, ret))
        return 0;
    for (int i = 0; i < 3 && rc == 0; i++) {
        service_path(paths[i], sizeof paths[i], s->dir, s->name, suffixes[i]);
        rc = make_file(paths[i], i ? "" : s->input, &fds[i], e);
    }
    if (rc == 0 && systemd_runs())
        rc = start_unit(s, (const char *const[]){paths[0], paths[1], paths[2]}, ret, e);
    else if (rc == 0)
        rc = start_child(s, fds, ret, e);
    for (int i = 0; i < 3; i++)
        closep(&fds[i]);
    return rc;
}

void service_signal(const struct process_identity *i, int pidfd, int sig)
{
    /* Alive according to its pidfd, so the pid is still its own and its group's. */
    if (pidfd >= 0 && !process_ended(pidfd) && kill(-i->pid, sig) < 0)
        process_signal(pidfd, sig);
}

void service_kill_group(const struct process_identity *i)
{
    kill(-i->pid, SIGKILL);
}

int service_stop(const struct service *s, struct err *e)
{
    struct process_identity i;
    pid_t pid;
    if (service_runs(s, &i))
        service_kill_group(&i);
    if (!systemd_runs() || systemd_main_pid(s->unit, &pid) < 0)
        return 0;
    const char *const argv[] = {SYSTEMCTL, "stop", s->unit, NULL};
    struct spawn x = SPAWN_INIT;
    x.argv = argv;
    x.env = tool_env;
    x.err = STDERR_FILENO;
    return spawn_and_wait(&x, s->unit, e);
}
