/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "proc/cgroup.h"

#include "base/cleanup.h"
#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static const char *mount_point(void)
{
    static const char *const places[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    struct statfs s;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (statfs(places[i], &s) == 0 && s.f_type == CGROUP2_SUPER_MAGIC)
            return places[i];
    return NULL;
}

void cgroup_of(pid_t pid, char *out, size_t cap)
{
    char path[64], line[CGROUP_PATH];
    const char *top = mount_point();
    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    *out = '\0';
    CLEANUP_FCLOSE FILE *f = top ? fopen(path, "re") : NULL;
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (!strncmp(line, "0::/", 4) && !strstr(line, "/../") &&
            snprintf(out, cap, "%s%s", top, strcmp(line, "0::/") ? line + 3 : "") >= (int)cap)
            *out = '\0';
    }
}

static int put_text(const char *dir, const char *file, const char *text)
{
    char path[CGROUP_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

static bool put_number(const char *dir, const char *file, uint64_t n)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)n);
    return put_text(dir, file, text) == 0;
}

static void set_limits(struct cgroup *g, const struct cgroup_limits *l)
{
    char text[64];
    g->memory = put_number(g->path, "memory.max", l->memory_max);
    if (g->memory) {
        put_number(g->path, "memory.high", l->memory_max - l->memory_max / 16);
        put_number(g->path, "memory.swap.max", 0);
        put_number(g->path, "memory.oom.group", 1);
    }
    g->pids = l->tasks_max && put_number(g->path, "pids.max", l->tasks_max);
    if (l->cpu_quota) {
        snprintf(text, sizeof text, "%llu 100000", l->cpu_quota * 1000ull);
        g->cpu = put_text(g->path, "cpu.max", text) == 0;
    }
    if (l->cpu_weight)
        g->cpu |= put_number(g->path, "cpu.weight", l->cpu_weight);
    if (l->io_weight) {
        snprintf(text, sizeof text, "default %u", l->io_weight);
        g->io = put_text(g->path, "io.weight", text) == 0;
    }
}

#define OWN_LASTS_NS NS_PER_S

/* The cgroup of this process, "" if there is none; whoever manages it may move the process, seldom. */
static const char *own_cgroup(void)
{
    /* May be refused: a cgroup that has processes cannot delegate its controllers. Then there are no limits. */
    static const char *const controllers[] = {"+memory", "+pids", "+cpu", "+io"};
    static char own[CGROUP_PATH];
    static int64_t seen_ns;
    if (seen_ns && mono_ns() - seen_ns < OWN_LASTS_NS)
        return own;
    seen_ns = mono_ns();
    cgroup_of(getpid(), own, sizeof own);
    for (size_t i = 0; own[0] && i < sizeof controllers / sizeof *controllers; i++)
        put_text(own, "cgroup.subtree_control", controllers[i]);
    return own;
}

void cgroup_make(struct cgroup *ret, const char *name, const struct cgroup_limits *l)
{
    const char *own = own_cgroup();
    *ret = (struct cgroup){.path = ""};
    if (!own[0])
        return;
    if (snprintf(ret->path, sizeof ret->path, "%s/%s", own, name) >= (int)sizeof ret->path ||
        (mkdir(ret->path, 0755) < 0 && errno != EEXIST)) {
        ret->path[0] = '\0';
        return;
    }
    ret->made = true;
    set_limits(ret, l);
}

int cgroup_open_procs(const struct cgroup *g)
{
    char path[CGROUP_PATH + 64];
    if (!g->path[0])
        return -1;
    snprintf(path, sizeof path, "%s/cgroup.procs", g->path);
    return open(path, O_WRONLY | O_CLOEXEC);
}

void cgroup_find(struct cgroup *ret, pid_t pid, const char *name)
{
    *ret = (struct cgroup){.path = ""};
    cgroup_of(pid, ret->path, sizeof ret->path);
    ret->made = strstr(ret->path, name) != NULL;
}

uint64_t cgroup_number(const struct cgroup *g, const char *file, const char *key)
{
    char path[CGROUP_PATH + 64], line[256];
    if (!g->path[0])
        return 0;
    snprintf(path, sizeof path, "%s/%s", g->path, file);
    CLEANUP_FCLOSE FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        size_t len = key ? strlen(key) : 0;
        if (!key || (!strncmp(line, key, len) && line[len] == ' '))
            return strtoull(line + len, NULL, 10);
    }
    return 0;
}

void cgroup_kill(const struct cgroup *g)
{
    if (g->path[0] && g->made)
        put_text(g->path, "cgroup.kill", "1");
}

void cgroup_remove(struct cgroup *g)
{
    if (g->path[0] && g->made)
        rmdir(g->path);
    g->path[0] = '\0';
}

void cgroup_forget(const char *name)
{
    const char *own = own_cgroup();
    char path[CGROUP_PATH + 64];
    if (own[0] && snprintf(path, sizeof path, "%s/%s", own, name) < (int)sizeof path)
        rmdir(path);
}
