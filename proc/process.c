/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "proc/process.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

/* Of /proc/PID/FILE, or of /proc/FILE for pid 0: bytes read, NUL-terminated, or -errno. */
static ssize_t read_proc(pid_t pid, const char *file, char *out, size_t cap)
{
    char path[64];
    if (pid)
        snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    else
        snprintf(path, sizeof path, "/proc/%s", file);
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = read(fd, out, cap - 1);
    if (n < 0)
        return -errno;
    out[n] = '\0';
    return n;
}

/* Field `number` (1-based, from 3 on) of /proc/PID/stat: behind the name, which may hold anything. */
static int stat_field(pid_t pid, unsigned number, uint64_t *ret)
{
    char text[2048];
    ssize_t n = read_proc(pid, "stat", text, sizeof text);
    if (n < 0)
        return (int)n;
    char *p = strrchr(text, ')');
    for (unsigned i = 2; p && i < number; i++)
        p = strchr(p + 1, ' ');
    if (!p)
        return -EBADMSG;
    *ret = strtoull(p + 1, NULL, 10);
    return 0;
}

void boot_id(char out[BOOT_ID_TEXT])
{
    char text[64];
    memset(out, 0, BOOT_ID_TEXT);
    if (read_proc(0, "sys/kernel/random/boot_id", text, sizeof text) <= 0)
        return;
    text[strcspn(text, "\n")] = '\0';
    snprintf(out, BOOT_ID_TEXT, "%.36s", text);
}

int process_start_time(pid_t pid, uint64_t *ret)
{
    *ret = 0;
    return stat_field(pid, 22, ret);
}

pid_t process_parent(pid_t pid)
{
    uint64_t parent;
    return stat_field(pid, 4, &parent) < 0 ? 0 : (pid_t)parent;
}

uint64_t process_cpu_ticks(pid_t pid)
{
    uint64_t user = 0, system = 0;
    if (stat_field(pid, 14, &user) < 0 || stat_field(pid, 15, &system) < 0)
        return 0;
    return user + system;
}

uint64_t process_rss(pid_t pid)
{
    uint64_t pages = 0;
    return stat_field(pid, 24, &pages) < 0 ? 0 : pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

uid_t process_uid(pid_t pid)
{
    char text[4096];
    if (read_proc(pid, "status", text, sizeof text) < 0)
        return (uid_t)-1;
    const char *p = strstr(text, "\nUid:\t");
    return p ? (uid_t)strtoul(p + 6, NULL, 10) : (uid_t)-1;
}

bool process_is_zombie(pid_t pid)
{
    char text[2048];
    const char *p = read_proc(pid, "stat", text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
    return p && !strncmp(p, ") Z", 3);
}

bool process_in_unit(pid_t pid, const char *unit)
{
    char text[8192];
    if (!*unit || read_proc(pid, "cgroup", text, sizeof text) < 0)
        return false;
    /* One line for each hierarchy; the unit is a whole component of a path. */
    size_t len = strlen(unit);
    for (const char *p = text; (p = strstr(p, unit)); p += len)
        if (p > text && p[-1] == '/' && (p[len] == '\n' || p[len] == '/' || !p[len]))
            return true;
    return false;
}

/* ---- identity ---- */

int process_identify(struct process_identity *ret, pid_t pid)
{
    *ret = (struct process_identity){.pid = pid};
    boot_id(ret->boot_id);
    return pid > 0 && process_start_time(pid, &ret->start_time) == 0 ? 0 : -ESRCH;
}

int process_open_pid(pid_t pid)
{
    int fd = pidfd_open(pid, 0);
    return fd < 0 ? -errno : fd;
}

int process_open(const struct process_identity *i)
{
    char boot[BOOT_ID_TEXT];
    uint64_t start;
    boot_id(boot);
    if (i->pid <= 1 || !boot[0] || strcmp(boot, i->boot_id) != 0)
        return -ESRCH;
    CLEANUP_CLOSE int fd = process_open_pid(i->pid);
    /* Compared after the open: from here on the pid cannot be reused. */
    if (fd < 0 || process_start_time(i->pid, &start) < 0 || start != i->start_time)
        return -ESRCH;
    return take_fd(&fd);
}

int process_open_running(const struct process_identity *i)
{
    CLEANUP_CLOSE int fd = process_open(i);
    return fd < 0 || process_ended(fd) ? -ESRCH : take_fd(&fd);
}

int process_signal(int pidfd, int sig)
{
    return pidfd_send_signal(pidfd, sig, NULL, 0) < 0 ? -errno : 0;
}

bool process_ended(int pidfd)
{
    struct pollfd ended = {pidfd, POLLIN, 0};
    return poll(&ended, 1, 0) > 0;
}

void process_id_text(const struct process_identity *i, char *out, size_t cap)
{
    snprintf(out, cap, "run:%d:%" PRIu64 ":%s", (int)i->pid, i->start_time, i->boot_id);
}

int process_id_parse(struct process_identity *ret, const char *text)
{
    struct process_identity i = {0};
    int pid, end = 0;
    if (sscanf(text, "run:%d:%" SCNu64 ":%36[0-9a-f-]%n", &pid, &i.start_time, i.boot_id, &end) != 3 || text[end] ||
        pid <= 1)
        return -EINVAL;
    i.pid = pid;
    *ret = i;
    return 0;
}
