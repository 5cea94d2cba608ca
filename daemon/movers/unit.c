/* SPDX-License-Identifier: GPL-2.0-or-later */
/* unit.c - the properties of a mover's transient unit: rights, limits, and those of the administrator */
#include "base/units.h"
#include "daemon/movers/builtin-impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MOVERS_SLICE "snapferry.slice" /* systemd/snapferry.slice */

/* ---- what it may do ---- */

static bool is_below(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    return !strncmp(path, dir, n) && (path[n] == '/' || !path[n]);
}

/* Whether a needed path is below one of them: hiding it would hide that as well. */
static bool launch_uses(const struct mover_launch *l, const char *const *places)
{
    const char *const paths[] = {l->repository_path, l->copy_path, l->cache_dir, l->socket, l->program};
    for (; *places; places++)
        for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
            if (is_below(paths[i], *places))
                return true;
    return false;
}

/* In addition to the mover's own filter, which checks arguments: this one applies from the first instruction. */
static void put_filters(struct unit_properties *p, const struct mover_launch *l)
{
    static const char *const native[] = {"native", NULL}, *const unix_only[] = {"AF_UNIX", NULL};
    static const char *const internet[] = {"AF_UNIX", "AF_INET", "AF_INET6", NULL};
    static const char *const calls[] = {
        "@system-service", "seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", NULL};
    static const char *const not_calls[] = {"@privileged", "@resources", NULL};
    unit_put_strings(p, "SystemCallArchitectures", native);
    unit_put_set(p, "SystemCallFilter", true, calls);
    unit_put_set(p, "SystemCallFilter", false, not_calls);
    unit_put_i32(p, "SystemCallErrorNumber", EPERM);
    unit_put_set(p, "RestrictAddressFamilies", true, l->private_network ? unix_only : internet);
    if (l->private_network)
        unit_put_no_network(p);
}

static void put_rights(struct unit_properties *p, const struct mover_launch *l)
{
    static const char *const yes[] = {
        "NoNewPrivileges",   "PrivateDevices",       "ProtectKernelTunables",  "ProtectKernelModules",
        "ProtectKernelLogs", "ProtectControlGroups", "ProtectClock",           "ProtectHostname",
        "RestrictRealtime",  "RestrictSUIDSGID",     "MemoryDenyWriteExecute", "LockPersonality",
        "PrivateIPC",
    };
    static const char *const homes[] = {"/home", "/root", "/run/user", NULL}, *const tmp[] = {"/tmp", "/var/tmp", NULL};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        unit_put_bool(p, yes[i], true);
    unit_put_u64(p, "CapabilityBoundingSet", 0);
    unit_put_u64(p, "AmbientCapabilities", 0);
    unit_put_u64(p, "RestrictNamespaces", 0);
    unit_put_string(p, "ProtectSystem", "strict");
    unit_put_string(p, "ProtectHome", launch_uses(l, homes) ? "read-only" : "yes");
    unit_put_string(p, "ProcSubset", "pid");
    unit_put_string(p, "ProtectProc", "invisible");
    unit_put_bool(p, "PrivateTmp", !launch_uses(l, tmp));
    unit_put_bool(p, "PrivateNetwork", l->private_network);
    unit_put_u32(p, "UMask", 077);
    put_filters(p, l);
    if (l->user) {
        unit_put_string(p, "User", l->user);
        unit_put_bool(p, "PrivateUsers", true);
        unit_put_bool(p, "RemoveIPC", true);
    }
    const char *write[4] = {NULL};
    char copy[4200];
    size_t n = 0;
    if (l->repository_path[0])
        write[n++] = l->repository_path;
    /* One that is not there, for instance not mounted, is found out by the mover, which says so. */
    if (l->copy_path[0] && snprintf(copy, sizeof copy, "-%s", l->copy_path) < (int)sizeof copy)
        write[n++] = copy;
    if (l->cache_dir[0])
        write[n++] = l->cache_dir;
    if (n)
        unit_put_strings(p, "ReadWritePaths", write);
}

/* ---- what it may use ---- */

static void put_cpus(struct unit_properties *p, const char *text)
{
    uint8_t mask[CFG_CPUS_MAX / 8];
    const char *why;
    size_t top = sizeof mask;
    if (cfg_parse_cpus(mask, text, &why) < 0)
        return; /* of an operation that an older version recorded */
    while (!mask[top - 1])
        top--;
    unit_put_bytes(p, "AllowedCPUs", mask, top);
}

static void put_bandwidth(struct unit_properties *p, const char *name, const char *path, int64_t limit)
{
    if (limit && *path)
        unit_put_bandwidth(p, name, path, (uint64_t)limit);
}

static void put_limits(struct unit_properties *p, const struct mover_launch *l)
{
    const struct mover_limits *c = &l->limits;
    unit_put_u64(p, "MemoryMax", l->memory_max);
    unit_put_u64(p, "MemoryHigh", l->memory_max - l->memory_max / 16);
    unit_put_u64(p, "MemorySwapMax", 0);
    if (c->cpu_quota)
        unit_put_u64(p, "CPUQuotaPerSecUSec", (uint64_t)c->cpu_quota * 10000);
    if (c->cpu_weight)
        unit_put_u64(p, "CPUWeight", (uint64_t)c->cpu_weight);
    if (c->io_weight)
        unit_put_u64(p, "IOWeight", (uint64_t)c->io_weight);
    unit_put_u64(p, "TasksMax", c->tasks_max ? (uint64_t)c->tasks_max : 256);
    if (c->nice)
        unit_put_i32(p, "Nice", (int)c->nice);
    if (!strcmp(c->ioclass, "idle"))
        unit_put_i32(p, "IOSchedulingClass", 3);
    else if (!strcmp(c->ioclass, "best-effort"))
        unit_put_i32(p, "IOSchedulingClass", 2);
    if (c->cpus[0])
        put_cpus(p, c->cpus);
    unit_put_string(p, "Slice", c->slice[0] ? c->slice : MOVERS_SLICE);
    unit_put_u64(p, "LimitMEMLOCK", l->memlock);
    unit_put_u64(p, "LimitCORE", 0);
    unit_put_u64(p, "LimitNOFILE", 4096);
    unit_put_i32(p, "OOMScoreAdjust", 500);
    if (c->limit_times[0])
        return; /* what is on the unit would hold always */
    put_bandwidth(p, "IOReadBandwidthMax", l->writes_device ? l->repository_path : l->device_path, c->read_limit);
    put_bandwidth(p, "IOWriteBandwidthMax", l->writes_device ? l->device_path : l->repository_path, c->write_limit);
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

static void put_words(struct unit_properties *p, const char *name, const char *text)
{
    char copy[4096], *save = NULL;
    const char *list[64] = {NULL};
    size_t n = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *w = strtok_r(copy, " ", &save); w && n < 63; w = strtok_r(NULL, " ", &save))
        list[n++] = w;
    unit_put_strings(p, name, list);
}

/* False: invalid value. */
static bool put_passed(struct unit_properties *p, const struct passed *which, const char *v)
{
    char *end = NULL;
    uint64_t n = 0;
    switch (which->type) {
    case 's':
        unit_put_string(p, which->name, v);
        return true;
    case 'S':
        put_words(p, which->name, v);
        return true;
    case 'b':
        if (boolean(v) >= 0)
            unit_put_bool(p, which->name, boolean(v) > 0);
        return boolean(v) >= 0;
    case 't':
        if (!strcmp(v, "infinity"))
            n = UINT64_MAX;
        else if (parse_bytes(&n, v) < 0)
            return false;
        unit_put_u64(p, which->name, n);
        return true;
    case 'i': {
        long i = strtol(v, &end, 10);
        if (end == v || *end)
            return false;
        unit_put_i32(p, which->name, (int)i);
        return true;
    }
    default:
        return false;
    }
}

static int put_properties(struct unit_properties *p, const struct strs *properties, struct err *e)
{
    for (unsigned i = 0; i < properties->n; i++) {
        const char *text = properties->v[i], *eq = strchr(text, '=');
        const struct passed *found = NULL;
        for (size_t k = 0; eq && k < sizeof passed / sizeof *passed; k++)
            if (strlen(passed[k].name) == (size_t)(eq - text) && !strncmp(passed[k].name, text, (size_t)(eq - text)))
                found = &passed[k];
        if (found && put_passed(p, found, eq + 1))
            continue;
        err_set(e, ERR_USAGE, EINVAL, "unit-property \"%.200s\" not supported for movers", text);
        return err_hint(e, "set other properties in /etc/systemd/system/snapferry-mover@.service.d/*.conf");
    }
    return 0;
}

/* ---- its place among other units ---- */

/* systemd requires a path without "." and ".." here and rejects the unit otherwise. It takes "//" out itself, which
 * is_plain_path() refuses: a repository at such a path is to be unmounted after its movers as well. */
static bool is_mountable(const char *path)
{
    if (path[0] != '/' || !path[1])
        return false;
    for (const char *p = strstr(path, "/."); p; p = strstr(p + 2, "/."))
        if (!p[2] || p[2] == '/' || (p[2] == '.' && (!p[3] || p[3] == '/')))
            return false;
    return true;
}

/*
 * At shutdown, units are stopped in the reverse of the order in which they start: the daemon first, so that it does not
 * count a mover's end as a failure and starts nothing new, then the movers, which write a checkpoint, then the file
 * systems of the repository and the volume and what is below them. Stopping such a mount stops its movers as well
 * (RequiresMountsFor=).
 */
static void put_order(struct unit_properties *p, const struct mover_launch *l)
{
    static const char *const before[] = {"snapferryd.service", NULL};
    static const char *const after[] = {"remote-fs.target", "blk-availability.service", "zfs.target", NULL};
    const char *const paths[] = {l->repository_path, l->copy_path, l->cache_dir, l->device_path};
    const char *mounts[5] = {NULL};
    size_t n = 0;
    for (size_t i = 0; i < 4; i++)
        if (is_mountable(paths[i]) && !is_below(paths[i], "/dev"))
            mounts[n++] = paths[i];
    unit_put_strings(p, "Before", before);
    unit_put_strings(p, "After", after);
    if (n)
        unit_put_strings(p, "RequiresMountsFor", mounts);
}

/* ---- the whole ---- */

static void put_log_fields(struct unit_properties *p, const struct mover *v, const struct mover_launch *l)
{
    char text[3][4300];
    snprintf(text[0], sizeof text[0], "OPERATION=%s", v->operation);
    snprintf(text[1], sizeof text[1], "VOLUME=%s", l->volume);
    snprintf(text[2], sizeof text[2], "BACKUP=%s", l->backup);
    unit_put_log_fields(p, (const char *const[]){text[0], text[1], text[2]}, 3);
}

int mover_unit_describe(struct unit_properties *p, const void *arg, struct err *e)
{
    const struct mover *v = arg;
    const struct mover_launch *l = v->launch;
    const char *const argv[] = {l->program, "--socket", l->socket, "--operation", v->operation, NULL};
    char description[4400];
    mover_unit_description(description, sizeof description, v->owner->runtime_dir, v->operation, l->volume);
    unit_put_string(p, "Description", description);
    unit_put_string(p, "Type", "exec");
    /* The exit status remains readable until the operation's record is durable, also for the next daemon. */
    unit_put_bool(p, "RemainAfterExit", true);
    unit_put_string(p, "Restart", "no");
    unit_put_string(p, "KillMode", "control-group");
    unit_put_u64(p, "TimeoutStopUSec", (uint64_t)l->stop_timeout_s * 1000000);
    unit_put_string(p, "OOMPolicy", "kill");
    unit_put_bool(p, "MemoryAccounting", true);
    unit_put_bool(p, "CPUAccounting", true);
    unit_put_command(p, argv);
    unit_put_strings(p, "Environment", l->env);
    unit_put_string(p, "StandardInput", "null");
    unit_put_string(p, "StandardOutput", "journal");
    unit_put_string(p, "StandardError", "journal");
    unit_put_string(p, "SyslogIdentifier", "snapferry-mover");
    put_log_fields(p, v, l);
    put_order(p, l);
    put_rights(p, l);
    put_limits(p, l);
    return put_properties(p, &l->limits.unit_properties, e);
}
