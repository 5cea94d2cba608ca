/* SPDX-License-Identifier: GPL-2.0-or-later */
/* movers-unit.c - the properties of a mover's transient unit: rights, limits, and what is passed through */
#include "daemon/movers/movers-impl.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-bus.h>

#define MOVERS_SLICE "snapferry.slice" /* systemd/snapferry.slice */

/* ---- single properties ---- */

static int put_string(sd_bus_message *m, const char *name, const char *v)
{
    return sd_bus_message_append(m, "(sv)", name, "s", v);
}
static int put_bool(sd_bus_message *m, const char *name, bool v)
{
    return sd_bus_message_append(m, "(sv)", name, "b", (int)v);
}
static int put_u64(sd_bus_message *m, const char *name, uint64_t v)
{
    return sd_bus_message_append(m, "(sv)", name, "t", v);
}
static int put_i32(sd_bus_message *m, const char *name, int v)
{
    return sd_bus_message_append(m, "(sv)", name, "i", v);
}

static int put_strings(sd_bus_message *m, const char *name, const char *const *list)
{
    int rc = sd_bus_message_open_container(m, 'r', "sv");
    if (rc >= 0)
        rc = sd_bus_message_append(m, "s", name);
    if (rc >= 0)
        rc = sd_bus_message_open_container(m, 'v', "as");
    if (rc >= 0)
        rc = sd_bus_message_append_strv(m, (char **)(uintptr_t)list);
    if (rc >= 0)
        rc = sd_bus_message_close_container(m);
    return rc >= 0 ? sd_bus_message_close_container(m) : rc;
}

/* ---- what it may do ---- */

static bool below(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    return !strncmp(path, dir, n) && (path[n] == '/' || !path[n]);
}

/* Whether something that it needs lies there: hiding the place would hide that as well. */
static bool uses(const struct mover_launch *l, const char *const *places)
{
    const char *const paths[] = {l->repository_path, l->cache_dir, l->socket, l->program};
    for (; *places; places++)
        for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
            if (below(paths[i], *places))
                return true;
    return false;
}

static int put_set(sd_bus_message *m, const char *name, bool allow, const char *const *list)
{
    int rc = sd_bus_message_open_container(m, 'r', "sv");
    if (rc >= 0)
        rc = sd_bus_message_append(m, "s", name);
    if (rc >= 0)
        rc = sd_bus_message_open_container(m, 'v', "(bas)");
    if (rc >= 0)
        rc = sd_bus_message_open_container(m, 'r', "bas");
    if (rc >= 0)
        rc = sd_bus_message_append(m, "b", (int)allow);
    if (rc >= 0)
        rc = sd_bus_message_append_strv(m, (char **)(uintptr_t)list);
    for (int i = 0; i < 3 && rc >= 0; i++)
        rc = sd_bus_message_close_container(m);
    return rc;
}

/* Beside the mover's own filter, which knows arguments: this one is in force from the first instruction. */
static int filters(sd_bus_message *m, const struct mover_launch *l)
{
    static const char *const native[] = {"native", NULL}, *const unix_only[] = {"AF_UNIX", NULL};
    static const char *const calls[] = {"@system-service", "seccomp", NULL}, *const not_calls[] = {"@privileged",
                                                                                                   "@resources", NULL};
    int rc = put_strings(m, "SystemCallArchitectures", native);
    if (rc >= 0)
        rc = put_set(m, "SystemCallFilter", true, calls);
    if (rc >= 0)
        rc = put_set(m, "SystemCallFilter", false, not_calls);
    if (rc >= 0)
        rc = put_i32(m, "SystemCallErrorNumber", EPERM);
    if (rc >= 0)
        rc = put_set(m, "RestrictAddressFamilies", true, unix_only);
    /* 0.0.0.0/0 and ::/0 */
    static const uint8_t any[16];
    for (int i = 0; i < 2 && rc >= 0 && l->private_network; i++) {
        rc = sd_bus_message_open_container(m, 'r', "sv");
        if (rc >= 0)
            rc = sd_bus_message_append(m, "s", "IPAddressDeny");
        if (rc >= 0)
            rc = sd_bus_message_open_container(m, 'v', "a(iayu)");
        if (rc >= 0)
            rc = sd_bus_message_open_container(m, 'a', "(iayu)");
        if (rc >= 0)
            rc = sd_bus_message_open_container(m, 'r', "iayu");
        if (rc >= 0)
            rc = sd_bus_message_append(m, "i", (int32_t)(i ? AF_INET6 : AF_INET));
        if (rc >= 0)
            rc = sd_bus_message_append_array(m, 'y', any, i ? 16 : 4);
        if (rc >= 0)
            rc = sd_bus_message_append(m, "u", 0u);
        for (int k = 0; k < 4 && rc >= 0; k++)
            rc = sd_bus_message_close_container(m);
    }
    return rc;
}

static int rights(sd_bus_message *m, const struct mover_launch *l)
{
    static const char *const yes[] = {
        "NoNewPrivileges",   "PrivateDevices",       "ProtectKernelTunables",  "ProtectKernelModules",
        "ProtectKernelLogs", "ProtectControlGroups", "ProtectClock",           "ProtectHostname",
        "RestrictRealtime",  "RestrictSUIDSGID",     "MemoryDenyWriteExecute", "LockPersonality",
        "PrivateIPC",
    };
    int rc = 0;
    for (size_t i = 0; i < sizeof yes / sizeof *yes && rc >= 0; i++)
        rc = put_bool(m, yes[i], true);
    if (rc >= 0)
        rc = put_u64(m, "CapabilityBoundingSet", 0);
    if (rc >= 0)
        rc = put_u64(m, "AmbientCapabilities", 0);
    if (rc >= 0)
        rc = put_u64(m, "RestrictNamespaces", 0);
    if (rc >= 0)
        rc = put_string(m, "ProtectSystem", "strict");
    static const char *const homes[] = {"/home", "/root", "/run/user", NULL}, *const tmp[] = {"/tmp", "/var/tmp", NULL};
    if (rc >= 0)
        rc = put_string(m, "ProtectHome", uses(l, homes) ? "read-only" : "yes");
    if (rc >= 0)
        rc = put_string(m, "ProcSubset", "pid");
    if (rc >= 0)
        rc = put_string(m, "ProtectProc", "invisible");
    if (rc >= 0)
        rc = put_bool(m, "PrivateTmp", !uses(l, tmp));
    if (rc >= 0)
        rc = put_bool(m, "PrivateNetwork", l->private_network);
    if (rc >= 0)
        rc = sd_bus_message_append(m, "(sv)", "UMask", "u", 077u);
    if (rc >= 0)
        rc = filters(m, l);
    if (rc >= 0 && l->user)
        rc = put_string(m, "User", l->user);
    if (rc >= 0 && l->user)
        rc = put_bool(m, "PrivateUsers", true);
    if (rc >= 0 && l->user)
        rc = put_bool(m, "RemoveIPC", true);
    const char *write[3] = {NULL};
    size_t n = 0;
    if (l->repository_path[0])
        write[n++] = l->repository_path;
    if (l->cache_dir[0])
        write[n++] = l->cache_dir;
    return rc >= 0 && n ? put_strings(m, "ReadWritePaths", write) : rc;
}

/* ---- what it may use ---- */

static int cpu_list(sd_bus_message *m, const char *text)
{
    uint8_t mask[CFG_CPUS_MAX / 8];
    const char *why;
    size_t top = sizeof mask;
    if (cfg_parse_cpus(mask, text, &why) < 0)
        return 0; /* of an operation that an older version recorded */
    while (!mask[top - 1])
        top--;
    int rc = sd_bus_message_open_container(m, 'r', "sv");
    if (rc >= 0)
        rc = sd_bus_message_append(m, "s", "AllowedCPUs");
    if (rc >= 0)
        rc = sd_bus_message_open_container(m, 'v', "ay");
    if (rc >= 0)
        rc = sd_bus_message_append_array(m, 'y', mask, top);
    if (rc >= 0)
        rc = sd_bus_message_close_container(m);
    return rc >= 0 ? sd_bus_message_close_container(m) : rc;
}

static int bandwidth(sd_bus_message *m, const char *name, const char *path, uint64_t limit)
{
    return limit && *path ? sd_bus_message_append(m, "(sv)", name, "a(st)", 1, path, limit) : 0;
}

static int limits(sd_bus_message *m, const struct mover_launch *l)
{
    const struct cfg_mover *c = l->limits;
    int rc = put_u64(m, "MemoryMax", l->memory_max);
    if (rc >= 0)
        rc = put_u64(m, "MemoryHigh", l->memory_max - l->memory_max / 16);
    if (rc >= 0)
        rc = put_u64(m, "MemorySwapMax", 0);
    if (rc >= 0 && c->cpu_quota)
        rc = put_u64(m, "CPUQuotaPerSecUSec", c->cpu_quota * UINT64_C(10000));
    if (rc >= 0 && c->cpu_weight)
        rc = put_u64(m, "CPUWeight", c->cpu_weight);
    if (rc >= 0 && c->io_weight)
        rc = put_u64(m, "IOWeight", c->io_weight);
    if (rc >= 0)
        rc = put_u64(m, "TasksMax", c->tasks_max ? c->tasks_max : 256);
    if (rc >= 0 && c->nice)
        rc = put_i32(m, "Nice", c->nice);
    if (rc >= 0 && !strcmp(c->ioclass, "idle"))
        rc = put_i32(m, "IOSchedulingClass", 3);
    else if (rc >= 0 && !strcmp(c->ioclass, "best-effort"))
        rc = put_i32(m, "IOSchedulingClass", 2);
    if (rc >= 0 && c->cpus[0])
        rc = cpu_list(m, c->cpus);
    if (rc >= 0)
        rc = put_string(m, "Slice", c->slice[0] ? c->slice : MOVERS_SLICE);
    if (rc >= 0)
        rc = put_u64(m, "LimitMEMLOCK", l->memlock);
    if (rc >= 0)
        rc = put_u64(m, "LimitCORE", 0);
    if (rc >= 0)
        rc = put_u64(m, "LimitNOFILE", 4096);
    if (rc >= 0)
        rc = put_i32(m, "OOMScoreAdjust", 500);
    if (rc >= 0)
        rc = bandwidth(m, "IOReadBandwidthMax", l->writes_device ? l->repository_path : l->device_path, c->read_limit);
    if (rc >= 0)
        rc =
            bandwidth(m, "IOWriteBandwidthMax", l->writes_device ? l->device_path : l->repository_path, c->write_limit);
    return rc;
}

/* ---- what the administrator passes on ---- */

static const struct passed {
    const char *name;
    char type; /* 's', 'b', 't', 'i', 'S': list of words */
} passed[] = {
    {"CPUWeight", 't'},
    {"CPUQuotaPerSecUSec", 't'},
    {"IOWeight", 't'},
    {"MemoryHigh", 't'},
    {"MemoryMax", 't'},
    {"MemorySwapMax", 't'},
    {"TasksMax", 't'},
    {"Nice", 'i'},
    {"OOMScoreAdjust", 'i'},
    {"IOSchedulingPriority", 'i'},
    {"Slice", 's'},
    {"Description", 's'},
    {"PrivateNetwork", 'b'},
    {"PrivateTmp", 'b'},
    {"PrivateUsers", 'b'},
    {"PrivateDevices", 'b'},
    {"ProtectHome", 's'},
    {"ProtectSystem", 's'},
    {"SELinuxContext", '-'},
    {"LogLevelMax", 'i'},
    {"LimitNOFILE", 't'},
    {"LimitMEMLOCK", 't'},
    {"LimitFSIZE", 't'},
    {"OOMPolicy", 's'},
    {"ReadWritePaths", 'S'},
    {"ReadOnlyPaths", 'S'},
    {"InaccessiblePaths", 'S'},
    {"SupplementaryGroups", 'S'},
    {"ManagedOOMMemoryPressure", 's'},
    {"NUMAPolicy", 'i'},
    {"CPUSchedulingPolicy", 'i'},
    {"Group", 's'},
};

static int boolean(const char *v)
{
    if (!strcmp(v, "yes") || !strcmp(v, "true") || !strcmp(v, "1") || !strcmp(v, "on"))
        return 1;
    return !strcmp(v, "no") || !strcmp(v, "false") || !strcmp(v, "0") || !strcmp(v, "off") ? 0 : -1;
}

static int words(sd_bus_message *m, const char *name, const char *text)
{
    char copy[4096], *save = NULL;
    const char *list[64] = {NULL};
    size_t n = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *w = strtok_r(copy, " ", &save); w && n < 63; w = strtok_r(NULL, " ", &save))
        list[n++] = w;
    return put_strings(m, name, list);
}

static int pass_one(sd_bus_message *m, const struct passed *p, const char *v)
{
    char *end = NULL;
    uint64_t n = 0;
    switch (p->type) {
    case 's':
        return put_string(m, p->name, v);
    case 'S':
        return words(m, p->name, v);
    case 'b':
        return boolean(v) < 0 ? -EINVAL : put_bool(m, p->name, boolean(v) > 0);
    case 't':
        if (!strcmp(v, "infinity"))
            return put_u64(m, p->name, UINT64_MAX);
        return cfg_parse_bytes(&n, v) < 0 ? -EINVAL : put_u64(m, p->name, n);
    case 'i': {
        long i = strtol(v, &end, 10);
        return end == v || *end ? -EINVAL : put_i32(m, p->name, (int)i);
    }
    default:
        return -ENOTSUP;
    }
}

static int pass_on(sd_bus_message *m, const struct cfg_mover *c, struct err *e)
{
    for (size_t i = 0; c->unit_properties && c->unit_properties[i]; i++) {
        const char *text = c->unit_properties[i], *eq = strchr(text, '=');
        const struct passed *found = NULL;
        for (size_t k = 0; eq && k < sizeof passed / sizeof *passed; k++)
            if (strlen(passed[k].name) == (size_t)(eq - text) && !strncmp(passed[k].name, text, (size_t)(eq - text)))
                found = &passed[k];
        int rc = found ? pass_one(m, found, eq + 1) : -ENOTSUP;
        if (rc >= 0)
            continue;
        err_set(e, ERR_USAGE, EINVAL, "unit-property \"%.200s\" cannot be passed to a mover's unit", text);
        return err_hint(e, "other properties go into /etc/systemd/system/snapferry-mover@.service.d/*.conf");
    }
    return 0;
}

/* ---- its place among other units ---- */

/* systemd wants a path without "." and ".." here and would refuse the unit for another one. */
static bool is_plain(const char *path)
{
    if (path[0] != '/' || !path[1])
        return false;
    for (const char *p = strstr(path, "/."); p; p = strstr(p + 2, "/."))
        if (!p[2] || p[2] == '/' || (p[2] == '.' && (!p[3] || p[3] == '/')))
            return false;
    return true;
}

/*
 * When the machine goes down, units are stopped in the reverse of the order in which they start: the daemon first, so
 * that it takes no mover's end for a failure and begins nothing new, then the movers, which write a checkpoint, then
 * the file systems with the repository and the volume and what they are on. Who stops such a mount by name stops its
 * movers as well (RequiresMountsFor=).
 */
static int order(sd_bus_message *m, const struct mover_launch *l)
{
    static const char *const before[] = {"snapferryd.service", NULL};
    static const char *const after[] = {"remote-fs.target", "blk-availability.service", "zfs.target", NULL};
    const char *const paths[] = {l->repository_path, l->cache_dir, l->device_path};
    const char *mounts[4] = {NULL};
    size_t n = 0;
    for (size_t i = 0; i < 3; i++)
        if (is_plain(paths[i]) && !below(paths[i], "/dev"))
            mounts[n++] = paths[i];
    int rc = put_strings(m, "Before", before);
    if (rc >= 0)
        rc = put_strings(m, "After", after);
    return rc >= 0 && n ? put_strings(m, "RequiresMountsFor", mounts) : rc;
}

/* ---- the whole ---- */

static int journal_fields(sd_bus_message *m, const struct mover *v, const struct mover_launch *l)
{
    char fields[3][4300];
    snprintf(fields[0], sizeof fields[0], "OPERATION=%s", v->operation);
    snprintf(fields[1], sizeof fields[1], "VOLUME=%s", l->volume);
    snprintf(fields[2], sizeof fields[2], "BACKUP=%s", l->backup);
    int rc = sd_bus_message_open_container(m, 'r', "sv");
    if (rc >= 0)
        rc = sd_bus_message_append(m, "s", "LogExtraFields");
    if (rc >= 0)
        rc = sd_bus_message_open_container(m, 'v', "aay");
    if (rc >= 0)
        rc = sd_bus_message_open_container(m, 'a', "ay");
    for (size_t i = 0; i < 3 && rc >= 0; i++)
        rc = sd_bus_message_append_array(m, 'y', fields[i], strlen(fields[i]));
    for (int i = 0; i < 3 && rc >= 0; i++)
        rc = sd_bus_message_close_container(m);
    return rc;
}

static int command(sd_bus_message *m, const struct mover *v, const struct mover_launch *l)
{
    return sd_bus_message_append(m, "(sv)", "ExecStart", "a(sasb)", 1, l->program, 5, l->program, "--socket", l->socket,
                                 "--operation", v->operation, 0);
}

int unit_properties_append(sd_bus_message *m, const struct mover *v, const struct mover_launch *l, struct err *e)
{
    char description[4400];
    mover_unit_description(description, sizeof description, v->owner->runtime_dir, v->operation, l->volume);
    int rc = put_string(m, "Description", description);
    if (rc >= 0)
        rc = put_string(m, "Type", "exec");
    /* The exit status stays readable until the operation's record is durable, also for the next daemon. */
    if (rc >= 0)
        rc = put_bool(m, "RemainAfterExit", true);
    if (rc >= 0)
        rc = put_string(m, "Restart", "no");
    if (rc >= 0)
        rc = put_string(m, "KillMode", "control-group");
    if (rc >= 0)
        rc = put_u64(m, "TimeoutStopUSec", (uint64_t)l->stop_timeout_s * 1000000);
    if (rc >= 0)
        rc = put_string(m, "OOMPolicy", "kill");
    if (rc >= 0)
        rc = put_bool(m, "MemoryAccounting", true);
    if (rc >= 0)
        rc = put_bool(m, "CPUAccounting", true);
    if (rc >= 0)
        rc = command(m, v, l);
    if (rc >= 0)
        rc = put_strings(m, "Environment", l->env);
    if (rc >= 0)
        rc = put_string(m, "StandardInput", "null");
    if (rc >= 0)
        rc = put_string(m, "StandardOutput", "journal");
    if (rc >= 0)
        rc = put_string(m, "StandardError", "journal");
    if (rc >= 0)
        rc = put_string(m, "SyslogIdentifier", "snapferry-mover");
    if (rc >= 0)
        rc = journal_fields(m, v, l);
    if (rc >= 0)
        rc = order(m, l);
    if (rc >= 0)
        rc = rights(m, l);
    if (rc >= 0)
        rc = limits(m, l);
    if (rc < 0)
        return err_set(e, ERR_GENERIC, -rc, "the unit of the mover of %s cannot be described", v->operation);
    return pass_on(m, l->limits, e);
}
