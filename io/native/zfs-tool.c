/* SPDX-License-Identifier: GPL-2.0-or-later */
/* zfs-tool.c - calls of zfs(8) and zpool(8) */
#include "io/native/zfs.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "proc/program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARGS_MAX 160
#define OUT_MAX (48u << 20)
#define LOOK_SECONDS 300
#define CHANGE_SECONDS 900
#define SEND_SECONDS (24 * 3600) /* the step's own deadline is shorter */
#define BUSY_SECONDS 20

static const char *zfs_program = "/usr/sbin/zfs", *zpool_program = "/usr/sbin/zpool";

static const char *const environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "LC_ALL=C.UTF-8", NULL};

void zfs_programs_test(const char *zfs, const char *zpool)
{
    zfs_program = zfs;
    zpool_program = zpool;
}

int zfs_installed(struct err *e)
{
    const char *missing = access(zfs_program, X_OK) != 0     ? zfs_program
                          : access(zpool_program, X_OK) != 0 ? zpool_program
                                                             : NULL;
    if (!missing)
        return 0;
    err_set(e, ERR_USAGE, errno, "cannot run %s: %s", missing, strerror(errno));
    return err_hint(e, "install OpenZFS (packages zfsutils-linux and zfs-dkms of Debian's contrib)");
}

static int call(struct program *p, const char *program, const char *const *args, char **out, int *status, struct err *e)
{
    const char *argv[ARGS_MAX + 2] = {program};
    size_t n = 0;
    int rc = zfs_installed(e);
    for (; rc == 0 && args[n]; n++) {
        if (n == ARGS_MAX)
            return err_set(e, ERR_GENERIC, E2BIG, "%s: too many arguments", program);
        argv[n + 1] = args[n];
    }
    if (rc < 0)
        return rc;
    p->argv = (char *const *)(uintptr_t)argv;
    p->env = environment;
    return program_run(p, out, NULL, status, e);
}

static bool says(const struct err *e, const char *const *texts)
{
    for (; *texts; texts++)
        if (strstr(e->msg, *texts))
            return true;
    return false;
}

static const char *const says_absent[] = {"dataset does not exist",
                                          "no such pool",
                                          "could not find any snapshots to",
                                          "snapshot does not exist",
                                          "operation not applicable to datasets of this type",
                                          NULL};
static const char *const says_busy[] = {"dataset is busy", "pool or dataset is busy", NULL};

static int look(const char *program, const char *label, const char *const *args, char **out, struct err *e)
{
    struct program p = {.label = label, .out_max = OUT_MAX, .timeout_s = LOOK_SECONDS};
    struct err why = ERR_INIT;
    int status = 0;
    *out = NULL;
    int rc = call(&p, program, args, out, &status, &why);
    if (rc == 0 && status == 0)
        return 0;
    free(*out);
    *out = NULL;
    if (rc == 0 && says(&why, says_absent))
        return -ENOENT;
    if (strstr(why.msg, "ermission denied")) {
        why.cls = ERR_PERMISSION;
        snprintf(why.hint, sizeof why.hint, "run snapferryd as root");
    } else if (strstr(why.msg, "modules cannot be auto-loaded") || strstr(why.msg, "modules are not loaded") ||
               strstr(why.msg, "/dev/zfs")) {
        why.cls = ERR_SOURCE;
        snprintf(why.hint, sizeof why.hint, "load the kernel module: modprobe zfs");
    }
    if (e)
        *e = why;
    return rc < 0 ? rc : -EIO;
}

int zfs_look(const char *const *args, char **out, struct err *e)
{
    return look(zfs_program, "zfs", args, out, e);
}

static int report(struct zfs_report *ret, const char *const *args, struct err *e)
{
    char *out;
    *ret = (struct zfs_report)ZFS_REPORT_INIT;
    int rc = zfs_look(args, &out, e);
    return rc == -ENOENT ? 0 : rc < 0 ? rc : zfs_report_parse(ret, out, e);
}

int zfs_report_read(struct zfs_report *ret, const char *of, struct err *e)
{
    const char *all[] = {"get", "-Hp", "-t", "volume", "-o", "name,property,source,value", zfs_properties, NULL};
    const char *one[] = {"get", "-Hp", "-o", "name,property,source,value", zfs_properties, of, NULL};
    if (!of)
        return report(ret, all, e);
    return strchr(of, '@') ? report(ret, one, e) : zfs_report_snapshots(ret, &of, 1, e);
}

int zfs_report_volume(struct zfs_report *ret, const char *name, struct err *e)
{
    const char *args[] = {"get", "-Hp", "-t", "volume", "-o", "name,property,source,value", zfs_properties, name, NULL};
    return report(ret, args, e);
}

int zfs_report_snapshots(struct zfs_report *ret, const char *const *names, size_t n, struct err *e)
{
    const char *args[ARGS_MAX] = {
        "get", "-Hp", "-d", "1", "-t", "volume,snapshot", "-o", "name,property,source,value", zfs_properties};
    size_t k = 9;
    for (size_t i = 0; i < n && k + 1 < ARGS_MAX; i++)
        args[k++] = names[i];
    return report(ret, args, e);
}

int zfs_pool_read(struct zfs_pool *ret, const char *dataset, struct err *e)
{
    char pool[ZFS_NAME_MAX];
    CLEANUP_FREE char *out = NULL;
    zfs_pool_of(dataset, pool);
    const char *args[] = {"get", "-Hp", "-o", "name,property,value", ZFS_POOL_PROPERTIES, pool, NULL};
    int rc = look(zpool_program, "zpool", args, &out, e);
    if (rc == -ENOENT)
        return err_plain(e, ERR_NOT_FOUND, ENOENT, "there is no ZFS pool %s", pool);
    return rc < 0 ? rc : zfs_pool_parse(ret, out, e);
}

/* What the words of ZFS mean; anything else is general. */
static const struct {
    const char *text;
    enum err_class cls;
    const char *hint;
} meanings[] = {
    {"out of space", ERR_NO_SPACE,
     "free space in the pool, or raise the quota; a snapshot of a volume with a refreservation (thick) needs as much "
     "free space as the volume holds: zfs set refreservation=none makes it thin"},
    {"quota exceeded", ERR_NO_SPACE, "raise the quota, or remove what is not needed"},
    {"insufficient replicas", ERR_SOURCE, "see zpool status"},
    {"pool I/O is currently suspended", ERR_SOURCE, "see zpool status; zpool clear resumes it"},
    {"read-only", ERR_PERMISSION, "the pool is imported read-only"},
    {"ermission denied", ERR_PERMISSION, "run snapferryd as root"},
    {"dataset is busy", ERR_BUSY, "`lsof` and `zfs holds` show its users"},
    {"has dependent clones", ERR_BUSY, "`zfs get clones` shows them"},
    {"has children", ERR_BUSY, "`zfs list -r -t all` shows them"},
    {"dataset already exists", ERR_TARGET, ""},
    {"dataset does not exist", ERR_NOT_FOUND, ""},
    {"' does not exist", ERR_NOT_FOUND, ""}, /* a bookmark */
    {"bookmark feature not enabled", ERR_USAGE, "zpool set feature@bookmarks=enabled POOL (or zpool upgrade POOL)"},
    {"could not find any snapshots to", ERR_NOT_FOUND, ""},
};

int zfs_change(const char *what, const char *const *args, struct err *e)
{
    struct err why;
    int status, rc;
    const double end = mono_s() + BUSY_SECONDS;
    for (;;) {
        struct program p = {.label = "zfs", .out_max = 1u << 16, .timeout_s = CHANGE_SECONDS, .finish = true};
        why = (struct err)ERR_INIT;
        status = 0;
        rc = call(&p, zfs_program, args, NULL, &status, &why);
        if (rc == 0 && status == 0)
            return 0;
        if (rc < 0 || !says(&why, says_busy) || mono_s() > end)
            break;
        usleep(200000);
    }
    enum err_class cls = why.cls;
    const char *hint = why.hint;
    if (rc == 0) /* its own words are the reason */
        for (size_t i = 0; cls == why.cls && i < sizeof meanings / sizeof *meanings; i++)
            if (strstr(why.msg, meanings[i].text)) {
                cls = meanings[i].cls;
                hint = meanings[i].hint;
            }
    err_plain(e, cls, why.sys ? why.sys : cls == ERR_NOT_FOUND ? ENOENT : EIO, "%s: %.700s", what, why.msg);
    if (*hint)
        err_hint(e, "%s", hint);
    return rc < 0 ? rc : cls == ERR_NOT_FOUND ? -ENOENT : -EIO;
}

int zfs_send(const char *const *args, int (*fn)(const void *, size_t, void *, struct err *), void *arg, struct err *e)
{
    struct program p = {.label = "zfs send", .timeout_s = SEND_SECONDS, .sink = fn, .sink_arg = arg};
    return call(&p, zfs_program, args, NULL, NULL, e);
}
