/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * plugin-run.c - plugin processes that outlive whoever started them
 *
 * Crash points: plugin-run-forked (the process waits, nothing is written), plugin-run-identified (identity durable, the
 * program has not begun).
 */
#include "proc/plugin-run.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/crash.h"
#include "proc/program.h"
#include "proc/systemd.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <openssl/sha.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- identity ---- */

static int boot_id(char ret[40])
{
    CLEANUP_CLOSE int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, ret, 36);
    if (n != 36)
        return -EIO;
    ret[36] = '\0';
    return 0;
}

/* Field 22 of /proc/PID/stat; the name in field 2 may contain anything, so count from its last parenthesis. */
static int start_time(pid_t pid, uint64_t *ret)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return -ESRCH;
    text[n] = '\0';
    const char *p = strrchr(text, ')');
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p && sscanf(p, "%" SCNu64, ret) == 1 ? 0 : -ESRCH;
}

void plugin_process_text(const struct plugin_process *i, char *out, size_t cap)
{
    snprintf(out, cap, "run:%d:%" PRIu64 ":%s", (int)i->pid, i->start_time, i->boot_id);
}

int plugin_process_parse(struct plugin_process *ret, const char *text)
{
    struct plugin_process i;
    int pid, end = 0;
    if (sscanf(text, "run:%d:%" SCNu64 ":%36[0-9a-f-]%n", &pid, &i.start_time, i.boot_id, &end) != 3 || text[end] ||
        pid <= 1)
        return -EINVAL;
    i.pid = pid;
    *ret = i;
    return 0;
}

int plugin_process_open(const struct plugin_process *i)
{
    char boot[40];
    uint64_t start;
    if (boot_id(boot) < 0 || strcmp(boot, i->boot_id) != 0)
        return -ESRCH;
    CLEANUP_CLOSE int fd = pidfd_open(i->pid, 0);
    /* Compared after the open: from here on the number cannot come to mean another process. */
    if (fd < 0 || start_time(i->pid, &start) < 0 || start != i->start_time)
        return -ESRCH;
    struct pollfd ended = {fd, POLLIN, 0}; /* a zombie still has its number */
    return poll(&ended, 1, 0) > 0 ? -ESRCH : take_fd(&fd);
}

/* ---- files ---- */

static void hash_of(const char *operation, char ret[33])
{
    uint8_t h[SHA256_DIGEST_LENGTH];
    SHA256((const uint8_t *)operation, strlen(operation), h);
    hex_encode(ret, h, 16);
}

void plugin_run_path(char *out, size_t cap, const char *dir, const char *operation, enum plugin_verb v,
                     const char *suffix)
{
    char hash[33];
    hash_of(operation, hash);
    snprintf(out, cap, "%s/plugins/%s.%s.%s", dir, hash, plugin_verb_at(v)->name, suffix);
}

void plugin_run_forget(const char *dir, const char *operation, enum plugin_verb v)
{
    static const char *const suffixes[] = {"in", "out", "log", "id", "id.new"};
    char path[4200];
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        plugin_run_path(path, sizeof path, dir, operation, v, suffixes[i]);
        unlink(path);
    }
}

/* What the step is told, and the files it works with. */
struct launch {
    const char *dir, *operation;
    struct plugin_program p;
    enum plugin_verb verb;
    char in[4200], out[4200], log[4200], id[4200], unit[96];
};

static int launch_from(struct launch *l, const json_t *in, struct err *e)
{
    memset(l, 0, sizeof *l);
    l->dir = json_string_value(json_object_get(in, "dir"));
    l->operation = json_string_value(json_object_get(in, "operation"));
    l->p.name = json_string_value(json_object_get(in, "name"));
    l->p.path = json_string_value(json_object_get(in, "program"));
    l->p.user = json_string_value(json_object_get(in, "user"));
    l->verb = (enum plugin_verb)json_integer_value(json_object_get(in, "verb"));
    if (!l->dir || !l->operation || !l->p.name || !l->p.path || (l->verb != PV_RUN && l->verb != PV_WATCH))
        return err_set(e, ERR_GENERIC, EINVAL, "the arguments of a plugin step are incomplete");
    plugin_run_path(l->in, sizeof l->in, l->dir, l->operation, l->verb, "in");
    plugin_run_path(l->out, sizeof l->out, l->dir, l->operation, l->verb, "out");
    plugin_run_path(l->log, sizeof l->log, l->dir, l->operation, l->verb, "log");
    plugin_run_path(l->id, sizeof l->id, l->dir, l->operation, l->verb, "id");
    char hash[33];
    hash_of(l->operation, hash);
    snprintf(l->unit, sizeof l->unit, "snapferry-plugin-%s-%s.service", plugin_verb_at(l->verb)->name, hash);
    return 0;
}

static int make_file(const char *path, const char *text, int *ret, struct err *e)
{
    CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot make %s", path);
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
    char path[4200];
    snprintf(path, sizeof path, "%s/plugins", dir);
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

static int write_identity(const struct launch *l, const struct plugin_process *i, struct err *e)
{
    char text[PLUGIN_ID_MAX + 1], fresh[4210];
    CLEANUP_CLOSE int fd = -1;
    plugin_process_text(i, text, sizeof text);
    snprintf(fresh, sizeof fresh, "%s.new", l->id);
    int rc = make_file(fresh, text, &fd, e);
    if (rc < 0)
        return rc;
    if (fsync(fd) < 0 || rename(fresh, l->id) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot write %s", l->id);
    rc = sync_dir(l->dir);
    return rc < 0 ? err_set(e, ERR_GENERIC, -rc, "cannot write %s", l->id) : 0;
}

/* The process of an earlier step or daemon, if it still runs. */
static bool runs_already(const struct launch *l, struct plugin_process *ret)
{
    char text[PLUGIN_ID_MAX + 2];
    CLEANUP_CLOSE int fd = open(l->id, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return false;
    text[n] = '\0';
    if (plugin_process_parse(ret, text) < 0)
        return false;
    CLEANUP_CLOSE int pidfd = plugin_process_open(ret);
    return pidfd >= 0;
}

/* ---- starting ---- */

static int become(const char *user)
{
    if (!user || !*user || geteuid() != 0)
        return 0;
    struct passwd *pw = getpwnam(user);
    if (!pw)
        return -ENOENT;
    if (initgroups(user, pw->pw_gid) < 0 || setresgid(pw->pw_gid, pw->pw_gid, pw->pw_gid) < 0 ||
        setresuid(pw->pw_uid, pw->pw_uid, pw->pw_uid) < 0)
        return -errno;
    return 0;
}

static void __attribute__((noreturn)) process(const struct launch *l, int in, int out, int log, int go, int report)
{
    char c;
    setsid();
    /* Without this byte nobody has written down who we are. */
    if (read(go, &c, 1) != 1)
        _exit(127);
    int rc = dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(log, 2) < 0 || chdir("/") < 0 ? -errno : 0;
    umask(022);
    if (rc == 0)
        rc = become(l->p.user);
    if (rc == 0) {
        close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
        char *const argv[] = {(char *)l->p.path, (char *)plugin_verb_at(l->verb)->name, NULL};
        execve(l->p.path, argv, (char *const *)plugin_environment());
        rc = -errno;
    }
    (void)!write(report, &rc, sizeof rc);
    _exit(127);
}

static int fork_it(const struct launch *l, int in, int out, int log, struct plugin_process *ret, struct err *e)
{
    int go[2], report[2], why = 0;
    if (pipe2(go, O_CLOEXEC) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot make a pipe");
    CLEANUP_CLOSE int go_r = go[0], go_w = go[1];
    if (pipe2(report, O_CLOEXEC) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot make a pipe");
    CLEANUP_CLOSE int report_r = report[0], report_w = report[1];
    ret->pid = fork();
    if (ret->pid == 0) {
        close(go_w);
        process(l, in, out, log, go_r, report_w);
    }
    if (ret->pid < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot make a process");
    crash_point("plugin-run-forked");
    if (boot_id(ret->boot_id) < 0 || start_time(ret->pid, &ret->start_time) < 0)
        return err_set(e, ERR_GENERIC, ESRCH, "plugin %s: its process is gone at once", l->p.name);
    int rc = write_identity(l, ret, e);
    if (rc < 0)
        return rc;
    crash_point("plugin-run-identified");
    closep(&report_w);
    report_w = -1;
    if (write(go_w, "", 1) != 1 || read(report_r, &why, sizeof why) != (ssize_t)sizeof why)
        return 0;
    return err_set(e, ERR_GENERIC, -why, "cannot start %s%s%s, plugin: %s", l->p.path,
                   l->p.user && *l->p.user ? " as user " : "", l->p.user ? l->p.user : "", l->p.name);
}

static int wait_for(char *const argv[], const char *what, struct err *e)
{
    pid_t pid;
    int status;
    int rc = posix_spawn(&pid, argv[0], NULL, NULL, argv, (char *const *)plugin_environment());
    if (rc)
        return err_set(e, ERR_GENERIC, rc, "%s: cannot run %s", what, argv[0]);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_set(e, ERR_GENERIC, errno, "%s: cannot wait for %s", what, argv[0]);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        return err_set(e, ERR_GENERIC, EIO, "%s: %s failed (see the journal)", what, argv[0]);
    return 0;
}

static void unrefp(sd_bus **bus)
{
    sd_bus_flush_close_unref(*bus);
}

static int main_pid(const char *unit, pid_t *ret)
{
    CLEANUP(unrefp) sd_bus *bus = NULL;
    CLEANUP_FREE char *path = NULL;
    sd_bus_error error = SD_BUS_ERROR_NULL;
    uint32_t pid = 0;
    int rc = sd_bus_path_encode("/org/freedesktop/systemd1/unit", unit, &path);
    if (rc >= 0)
        rc = systemd_bus_open(&bus);
    if (rc >= 0)
        rc = sd_bus_get_property_trivial(bus, "org.freedesktop.systemd1", path, "org.freedesktop.systemd1.Service",
                                         "MainPID", &error, 'u', &pid);
    sd_bus_error_free(&error);
    *ret = (pid_t)pid;
    return rc < 0 ? rc : pid ? 0 : -ESRCH;
}

/* A unit of its own, outside of the daemon's sandbox. Its name comes from the operation: a second one cannot start. */
static int unit_it(const struct launch *l, struct plugin_process *ret, struct err *e)
{
    char unit[128], in[4300], out[4300], log[4300], user[128];
    snprintf(unit, sizeof unit, "--unit=%s", l->unit);
    snprintf(in, sizeof in, "--property=StandardInput=file:%s", l->in);
    snprintf(out, sizeof out, "--property=StandardOutput=append:%s", l->out);
    snprintf(log, sizeof log, "--property=StandardError=append:%s", l->log);
    snprintf(user, sizeof user, "--property=User=%s", l->p.user && *l->p.user ? l->p.user : "root");
    const char *const *env = plugin_environment();
    const char *argv[32] = {"/usr/bin/systemd-run",
                            "--quiet",
                            "--collect",
                            unit,
                            in,
                            out,
                            log,
                            user,
                            "--property=KillMode=control-group",
                            "--property=TimeoutStopSec=10",
                            "--",
                            "/usr/bin/env",
                            "-i"};
    size_t n = 13;
    for (size_t i = 0; env[i] && n < 28; i++)
        argv[n++] = env[i];
    argv[n++] = l->p.path;
    argv[n++] = plugin_verb_at(l->verb)->name;
    argv[n] = NULL;
    char what[160];
    snprintf(what, sizeof what, "plugin %s", l->p.name);
    int rc = wait_for((char *const *)argv, what, e);
    if (rc < 0)
        return rc;
    if (main_pid(l->unit, &ret->pid) < 0 || boot_id(ret->boot_id) < 0 || start_time(ret->pid, &ret->start_time) < 0) {
        /* It has ended already: what it said is in its file, and this identity matches no living process. */
        *ret = (struct plugin_process){.pid = 2, .start_time = UINT64_MAX};
        boot_id(ret->boot_id);
    }
    return write_identity(l, ret, e);
}

int plugin_run_step(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)fd;
    struct launch l;
    struct plugin_process i;
    char text[PLUGIN_ID_MAX + 1], dir[4200];
    int rc = launch_from(&l, in, e);
    if (rc == 0)
        rc = plugin_installed(&l.p, e);
    if (rc < 0)
        return rc;
    snprintf(dir, sizeof dir, "%s/plugins", l.dir);
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return err_set(e, ERR_GENERIC, errno, "cannot make %s", dir);
    if (!runs_already(&l, &i)) {
        CLEANUP_PLUGIN_JSON json_t *q = plugin_request(l.verb, json_object_get(in, "args"));
        CLEANUP_FREE char *request = q ? json_dumps(q, JSON_COMPACT) : NULL;
        CLEANUP_CLOSE int fin = -1, fout = -1, flog = -1;
        if (!request)
            return err_nomem(e);
        if ((rc = make_file(l.in, request, &fin, e)) < 0 || (rc = make_file(l.out, "", &fout, e)) < 0 ||
            (rc = make_file(l.log, "", &flog, e)) < 0)
            return rc;
        rc = systemd_runs() ? unit_it(&l, &i, e) : fork_it(&l, fin, fout, flog, &i, e);
        if (rc < 0)
            return rc;
    }
    plugin_process_text(&i, text, sizeof text);
    *out = json_pack("{s:s}", "id", text);
    return *out ? 0 : err_nomem(e);
}

int plugin_run_stop_step(const json_t *in, json_t **out, int *fd, struct err *e)
{
    (void)out;
    (void)fd;
    struct launch l;
    struct plugin_process i;
    int rc = launch_from(&l, in, e);
    if (rc < 0)
        return rc;
    if (runs_already(&l, &i))
        kill(-i.pid, SIGKILL);
    if (!systemd_runs())
        return 0;
    pid_t pid;
    if (main_pid(l.unit, &pid) < 0)
        return 0;
    const char *const argv[] = {"/usr/bin/systemctl", "stop", l.unit, NULL};
    return wait_for((char *const *)argv, l.unit, e);
}

/* ---- reading what they write ---- */

#define READ_AT_ONCE (256u << 10)
#define BEHIND_MAX (8u << 20)
#define LINE_MAX_BYTES (64u << 10)
#define GIVE_BACK (1u << 20)

struct plugin_tail {
    int fd;
    off_t at, freed;
    size_t len;
    bool lost; /* the beginning was given back by an earlier reader: skip to the next line */
    char line[LINE_MAX_BYTES];
};

int plugin_tail_open(struct plugin_tail **ret, const char *path, struct err *e)
{
    struct plugin_tail *t = calloc(1, sizeof *t);
    if (!t)
        return err_nomem(e);
    t->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (t->fd < 0) {
        int sys = errno;
        free(t);
        return err_set(e, ERR_GENERIC, sys, "cannot read %s", path);
    }
    off_t data = lseek(t->fd, 0, SEEK_DATA);
    if (data > 0) {
        t->at = t->freed = data;
        t->lost = true;
    }
    *ret = t;
    return 0;
}

void plugin_tail_free(struct plugin_tail *t)
{
    if (!t)
        return;
    close(t->fd);
    free(t);
}

static int take(struct plugin_tail *t, const char *text, size_t n, plugin_tail_fn *fn, void *arg)
{
    for (const char *end = text + n; text < end;) {
        const char *nl = memchr(text, '\n', (size_t)(end - text));
        size_t part = (size_t)((nl ? nl : end) - text);
        if (t->len + part > sizeof t->line)
            return -EFBIG;
        memcpy(t->line + t->len, text, part);
        t->len += part;
        text += part;
        if (!nl)
            break;
        text++;
        if (t->len && !t->lost)
            fn(t->line, t->len, arg);
        t->len = 0;
        t->lost = false;
    }
    return 0;
}

int plugin_tail_read(struct plugin_tail *t, bool last, plugin_tail_fn *fn, void *arg)
{
    struct stat st;
    char buf[16384];
    ssize_t n = 0;
    if (fstat(t->fd, &st) < 0)
        return -errno;
    if (st.st_size - t->at > (off_t)BEHIND_MAX)
        return -EFBIG;
    for (size_t done = 0; done < READ_AT_ONCE; done += (size_t)n) {
        n = pread(t->fd, buf, sizeof buf, t->at);
        if (n <= 0)
            break;
        t->at += n;
        int rc = take(t, buf, (size_t)n, fn, arg);
        if (rc < 0)
            return rc;
    }
    off_t whole = t->at - (off_t)t->len - GIVE_BACK;
    whole -= whole % 4096;
    if (whole > t->freed && fallocate(t->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, whole) == 0)
        t->freed = whole;
    if (n > 0)
        return 1;
    if (last && t->len && !t->lost) {
        fn(t->line, t->len, arg);
        t->len = 0;
    }
    return n < 0 ? -errno : 0;
}
