/* SPDX-License-Identifier: GPL-2.0-or-later */
/* movers-identity.c - which process is which: pid, start time, boot, unit */
#include "daemon/movers/movers-impl.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

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

/* Field `number` (1-based, from 3 on) of /proc/PID/stat: what follows the name, which may hold anything. */
static int stat_field(pid_t pid, unsigned number, unsigned long long *ret)
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

int process_start_time(pid_t pid, uint64_t *ret)
{
    unsigned long long v = 0;
    int rc = stat_field(pid, 22, &v);
    *ret = v;
    return rc;
}

uint64_t process_cpu_ticks(pid_t pid)
{
    unsigned long long user = 0, system = 0;
    if (stat_field(pid, 14, &user) < 0 || stat_field(pid, 15, &system) < 0)
        return 0;
    return user + system;
}

uint64_t process_rss(pid_t pid)
{
    unsigned long long pages = 0;
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

void boot_id(char out[40])
{
    char text[64];
    memset(out, 0, 40);
    ssize_t n = read_proc(0, "sys/kernel/random/boot_id", text, sizeof text);
    if (n > 0) {
        text[strcspn(text, "\n")] = '\0';
        snprintf(out, 40, "%s", text);
    }
}

int pid_open(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    return fd < 0 ? -errno : fd;
}

int pid_signal(int pidfd, int sig)
{
    return syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0) < 0 ? -errno : 0;
}

json_t *mover_identity_to_json(const struct mover_identity *i)
{
    return json_pack("{s:i, s:I, s:s, s:s}", "pid", (int)i->pid, "startTime", (json_int_t)i->start_time, "bootId",
                     i->boot_id, "unit", i->unit);
}

int mover_identity_from_json(struct mover_identity *ret, const json_t *j, struct err *e)
{
    *ret = (struct mover_identity){0};
    const json_t *pid = json_object_get(j, "pid"), *start = json_object_get(j, "startTime");
    const char *boot = json_string_value(json_object_get(j, "bootId"));
    const char *unit = json_string_value(json_object_get(j, "unit"));
    if (!json_is_integer(pid) || json_integer_value(pid) <= 1 || json_integer_value(pid) > INT32_MAX ||
        !json_is_integer(start) || json_integer_value(start) < 0 || !boot || strlen(boot) >= sizeof ret->boot_id ||
        !unit || strlen(unit) >= sizeof ret->unit)
        return err_set(e, ERR_GENERIC, EBADMSG, "the record does not identify a mover's process");
    ret->pid = (pid_t)json_integer_value(pid);
    ret->start_time = (uint64_t)json_integer_value(start);
    strcpy(ret->boot_id, boot);
    strcpy(ret->unit, unit);
    return 0;
}
