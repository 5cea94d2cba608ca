/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * freeze.c - freezing and thawing file systems, and the process that thaws them whatever happens
 *
 * The watchdog gets the descriptor of each mount point before it is frozen, and a byte for one that was not: what
 * somebody else has frozen is his to thaw.
 *
 * Crash point: frozen (all of them are).
 */
#include "io/native/freeze.h"

#include "base/cleanup.h"
#include "base/crash.h"
#include "base/err.h"
#include "base/time.h"
#include "io/blockdev.h"
#include "io/mounts.h"
#include "proc/descriptors.h"
#include "proc/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FS_MAX 64
#define STACK_MAX 16

struct frozen {
    struct spawned watchdog;
    int channel;
    int64_t began_ns;
    int fd[FS_MAX];
    dev_t fs[FS_MAX];
    char point[FS_MAX][256];     /* for messages */
    size_t n, devices;           /* visited */
    bool asks;                   /* nothing is frozen: whether it could be */
    bool partly;                 /* something on the devices was not */
    const char *const *unfrozen; /* borrowed */
};

static unsigned limit_s = FREEZE_MAX_S;

void freeze_limit_test(unsigned seconds)
{
    limit_s = seconds;
}

/* ---- the watchdog ---- */

enum word { HOLD = 'h', DROP = 'd', DONE = 't' };

/* Those that are frozen; the others stay. One that cannot be thawed must not keep those that were frozen before it. */
static void thaw_all(int *fd, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fd[i] >= 0 && ioctl(fd[i], FITHAW, 0) == 0) {
            close(fd[i]);
            fd[i] = -1;
        }
}

/* A file system that waits for a write that hangs cannot be thawed in time, and will be frozen when that ends, also by
 * a process that was killed: so it waits for the end of that, too. */
static void watchdog_main(int channel, void *arg)
{
    const int64_t end = mono_ns() + limit_s * NS_PER_S;
    int fd[FS_MAX];
    size_t n = 0;
    bool late = false;
    (void)arg;
    for (;;) {
        const int64_t left = (end - mono_ns()) / NS_PER_MS;
        if (!late && left <= 0) {
            thaw_all(fd, n);
            late = true;
        }
        struct pollfd p = {.fd = channel, .events = POLLIN};
        char c = 0;
        int got = -1;
        const int ready = poll(&p, 1, late ? -1 : (int)left);
        if (ready == 0 || (ready < 0 && errno == EINTR))
            continue;
        const ssize_t bytes = ready > 0 ? descriptors_receive(channel, &c, 1, &got, 1, NULL) : 0;
        if (bytes == -EINTR || bytes == -EAGAIN)
            continue;
        if (bytes == 1 && c == DONE)
            return;
        if (bytes == 1 && c == HOLD && got >= 0 && n < FS_MAX) {
            fd[n++] = got;
        } else if (bytes == 1 && c == DROP && n) {
            if (fd[--n] >= 0)
                close(fd[n]);
        } else {
            thaw_all(fd, n);
            return;
        }
    }
}

static int watchdog_start(struct frozen *f, struct err *e)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot make the channel of the watchdog that thaws file systems");
    const struct spawn_function w = {
        .name = "snapferry-thaw", .fn = watchdog_main, .channel = pair[1], .detached = true};
    int rc = spawn_function(&f->watchdog, &w, e);
    close(pair[1]);
    if (rc < 0)
        close(pair[0]);
    else
        f->channel = pair[0];
    return rc;
}

static bool tell(struct frozen *f, enum word word, int fd)
{
    const char c = (char)word;
    return descriptors_send(f->channel, &c, 1, &fd, fd < 0 ? 0 : 1, 0) == 1;
}

/* ---- what is frozen ---- */

/* Of a path, or an open directory ("" with its descriptor); -1 if it is not there. */
static int mount_id(int fd, const char *path)
{
    struct statx sx;
    if (statx(fd, path, *path ? 0 : AT_EMPTY_PATH, STATX_MNT_ID, &sx) < 0 || !(sx.stx_mask & STATX_MNT_ID))
        return -1;
    return (int)sx.stx_mnt_id;
}

struct place {
    int id;
    dev_t fs;
};

static bool same_mount(const struct mount_row *m, void *arg)
{
    const struct place *p = arg;
    return m->id == p->id && m->dev == p->fs;
}

/* By the mount: subvolumes of btrfs have device numbers of their own. What does not exist yet, as the directory of a
 * repository that is being created, will be where the nearest directory above it is. */
static bool is_on(dev_t fs, const char *path)
{
    char at[PATH_MAX];
    struct place p = {-1, fs};
    if (snprintf(at, sizeof at, "%s", path) >= (int)sizeof at)
        return false;
    while ((p.id = mount_id(AT_FDCWD, at)) < 0 && errno == ENOENT) {
        char *slash = strrchr(at, '/');
        if (!slash || !at[1])
            return false;
        slash[slash == at] = '\0';
    }
    return p.id >= 0 && mounts_each("/proc/self/mountinfo", same_mount, &p);
}

/* A list as the service manager gives it: paths divided by colons. */
static bool is_on_any(dev_t fs, const char *list)
{
    char path[PATH_MAX];
    for (; list && *list; list += *list == ':') {
        const size_t n = strcspn(list, ":");
        snprintf(path, sizeof path, "%.*s", (int)n, list);
        if (is_on(fs, path))
            return true;
        list += n;
    }
    return false;
}

static bool is_needed(dev_t fs, const char *const *unfrozen)
{
    static const char *const system[] = {"/",    "/etc", "/usr",     "/var", "/var/lib",        "/var/log",
                                         "/run", "/tmp", "/var/tmp", "/dev", "/var/log/journal"};
    static const char *const variables[] = {"STATE_DIRECTORY", "CACHE_DIRECTORY", "RUNTIME_DIRECTORY",
                                            "LOGS_DIRECTORY"};
    for (size_t i = 0; i < sizeof system / sizeof *system; i++)
        if (is_on(fs, system[i]))
            return true;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if (is_on_any(fs, getenv(variables[i])))
            return true;
    for (; unfrozen && *unfrozen; unfrozen++)
        if (is_on(fs, *unfrozen))
            return true;
    return false;
}

static bool is_held(const struct frozen *f, dev_t fs)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->fs[i] == fs)
            return true;
    return false;
}

/* 0, or -1 with a line in the log. */
static int freeze_one(struct frozen *f, const char *point, dev_t fs, int fd)
{
    if (f->channel < 0) {
        struct err why = ERR_INIT;
        if (watchdog_start(f, &why) < 0) {
            log_warning("%s is not frozen, the snapshot is as of a crash: %s", point, why.msg);
            return -1;
        }
    }
    if (!tell(f, HOLD, fd)) {
        log_warning("%s is not frozen, the snapshot is as of a crash: its watchdog has ended", point);
        return -1;
    }
    if (ioctl(fd, FIFREEZE, 0) < 0) {
        const int sys = errno;
        tell(f, DROP, -1);
        if (sys == EBUSY)
            log_info("%s is frozen by another program", point);
        else
            log_warning("%s is not frozen, the snapshot is as of a crash: %s", point, strerror(sys));
        return -1;
    }
    const int64_t took = mono_ns() - f->began_ns;
    if (took >= limit_s * NS_PER_S) { /* the watchdog may have tried to thaw it before it was frozen */
        ioctl(fd, FITHAW, 0);
        tell(f, DROP, -1);
        log_warning("%s is not frozen, the snapshot is as of a crash: its writes have hung for %" PRId64 " s", point,
                    took / NS_PER_S);
        return -1;
    }
    snprintf(f->point[f->n], sizeof f->point[f->n], "%s", point);
    f->fd[f->n] = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (f->fd[f->n] < 0) { /* the watchdog has it */
        ioctl(fd, FITHAW, 0);
        return -1;
    }
    f->fs[f->n++] = fs;
    return 0;
}

struct query {
    struct frozen *f;
    dev_t dev;
    bool found; /* a file system that is mounted read-write */
};

/* What is not frozen is "partly". */
static int freeze_mount(struct frozen *f, const struct mount_row *m, int fd)
{
    const bool needed = is_needed(m->dev, f->unfrozen);
    if (f->asks && !needed) {
        f->fs[f->n++] = m->dev;
        return 0;
    }
    if (needed && !f->asks)
        log_warning("%s is not frozen, the snapshot is as of a crash: the system or snapferryd needs it", m->point);
    return needed ? -1 : freeze_one(f, m->point, m->dev, fd);
}

static bool mount_found(const struct mount_row *m, void *arg)
{
    struct query *q = arg;
    if (!m->rw || mount_device(m) != q->dev)
        return false;
    if (is_held(q->f, m->dev)) {
        q->found = true;
        return false;
    }
    if (q->f->n == FS_MAX) {
        log_warning("%s is not frozen, the snapshot is as of a crash: there are too many", m->point);
        q->f->partly = true;
        return true;
    }
    /* Another one may be mounted over it. */
    CLEANUP_CLOSE int fd = open(m->point, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || mount_id(fd, "") != m->id)
        return false;
    q->found = true;
    q->f->partly |= freeze_mount(q->f, m, fd) < 0;
    return false;
}

/* A device below which there is none, and that has no file system, may be written to by anybody. */
static bool freeze_on(dev_t dev, const char *name, int depth, void *arg)
{
    struct frozen *f = arg;
    struct query q = {.f = f, .dev = dev};
    char dir[PATH_MAX];
    (void)name;
    const size_t visited = ++f->devices;
    mounts_each("/proc/self/mountinfo", mount_found, &q);
    if (depth < STACK_MAX && blockdev_sysfs(dev, dir, sizeof dir)) {
        blockdev_children(dir, "", freeze_on, depth + 1, arg);
        blockdev_children(dir, "holders", freeze_on, depth + 1, arg);
    }
    f->partly |= !q.found && f->devices == visited;
    return false;
}

static void freeze_all(struct frozen *f, const char *const *device, size_t n, const char *const *unfrozen)
{
    struct stat st;
    f->channel = -1;
    f->unfrozen = unfrozen;
    f->watchdog = (struct spawned)SPAWNED_INIT;
    f->began_ns = mono_ns();
    for (size_t i = 0; i < n; i++)
        if (stat(device[i], &st) == 0 && S_ISBLK(st.st_mode))
            freeze_on(st.st_rdev, "", 0, f);
        else
            f->partly = true;
}

struct frozen *freeze_devices(const char *const *device, size_t n, const char *const *unfrozen)
{
    struct frozen *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    freeze_all(f, device, n, unfrozen);
    if (!f->n) {
        frozen_thaw(f);
        return NULL;
    }
    crash_point("frozen");
    return f;
}

bool freeze_can_hold(const char *const *device, size_t n, const char *const *unfrozen)
{
    CLEANUP_FREE struct frozen *f = calloc(1, sizeof *f);
    if (!f)
        return false;
    f->asks = true;
    freeze_all(f, device, n, unfrozen);
    return f->n && !f->partly;
}

bool frozen_holds(const struct frozen *f)
{
    return f && !f->partly;
}

bool frozen_thaw(struct frozen *f)
{
    bool held = true;
    if (!f)
        return true;
    for (size_t i = f->n; i-- > 0;) {
        if (ioctl(f->fd[i], FITHAW, 0) == 0)
            log_debug("%s was frozen for %.3f s", f->point[i], (double)(mono_ns() - f->began_ns) / 1e9);
        else if (errno == EINVAL) {
            log_warning("%s was thawed before the snapshot was taken, which is as of a crash", f->point[i]);
            held = false;
        } else
            log_warning("cannot thaw %s: %s", f->point[i], strerror(errno));
        close(f->fd[i]);
    }
    if (f->channel >= 0) {
        tell(f, DONE, -1);
        close(f->channel);
    }
    if (f->watchdog.pid > 0) {
        waitpid(f->watchdog.pid, NULL, 0);
        spawned_close(&f->watchdog);
    }
    free(f);
    return held;
}
