/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * movers-cgroup.c - a cgroup (version 2) for a forked mover, and what it tells
 *
 * Under systemd the unit has one. Elsewhere a directory is made beneath the daemon's own cgroup where that can be
 * written; which limits are in force depends on the controllers that were delegated to us, and is visible.
 */
#include "daemon/movers/movers-impl.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
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
    char path[64], line[4200];
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
    char path[4400];
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

static void set_limits(struct mover_cgroup *g, const struct mover_launch *l)
{
    const struct cfg_mover *c = l->limits;
    char text[64];
    g->memory_max = l->memory_max;
    g->memory = put_number(g->path, "memory.max", l->memory_max);
    if (g->memory) {
        put_number(g->path, "memory.high", l->memory_max - l->memory_max / 16);
        put_number(g->path, "memory.swap.max", 0);
        put_number(g->path, "memory.oom.group", 1);
    }
    g->pids = c->tasks_max && put_number(g->path, "pids.max", c->tasks_max);
    if (c->cpu_quota) {
        snprintf(text, sizeof text, "%llu 100000", c->cpu_quota * 1000ull);
        g->cpu = put_text(g->path, "cpu.max", text) == 0;
    }
    if (c->cpu_weight)
        g->cpu |= put_number(g->path, "cpu.weight", c->cpu_weight);
    if (c->io_weight) {
        snprintf(text, sizeof text, "default %u", c->io_weight);
        g->io = put_text(g->path, "io.weight", text) == 0;
    }
}

/* Several daemons may live in one cgroup, each with a runtime directory of its own: none may end another's movers. */
static void last_part(char *out, size_t cap, const struct movers *m, const char *operation)
{
    char both[4096 + OPERATION_MAX + 2], hash[33];
    snprintf(both, sizeof both, "%s\n%s", m->runtime_dir, operation);
    operation_hash(hash, both);
    snprintf(out, cap, "snapferry-mover-%s", hash);
}

static bool path_of(char *out, size_t cap, const char *own, const struct movers *m, const char *operation)
{
    char part[64];
    last_part(part, sizeof part, m, operation);
    return own[0] && snprintf(out, cap, "%s/%s", own, part) < (int)cap;
}

void cgroup_find(struct mover *v)
{
    char part[64];
    cgroup_of(v->id.pid, v->cgroup.path, sizeof v->cgroup.path);
    last_part(part, sizeof part, v->owner, v->operation);
    v->cgroup.made = strstr(v->cgroup.path, part) != NULL;
}

/* A mover that nobody watched to its end leaves its directory. */
void cgroup_forget(const struct movers *m, const char *operation)
{
    char own[4096], path[4200];
    cgroup_of(getpid(), own, sizeof own);
    if (path_of(path, sizeof path, own, m, operation))
        rmdir(path);
}

void cgroup_make(struct mover *v, const struct mover_launch *l)
{
    struct mover_cgroup *g = &v->cgroup;
    char own[4096];
    cgroup_of(getpid(), own, sizeof own);
    if (!own[0])
        return;
    /* May be refused: a cgroup that has processes cannot hand its controllers on. Then there are no limits there. */
    static const char *const controllers[] = {"+memory", "+pids", "+cpu", "+io"};
    for (size_t i = 0; i < sizeof controllers / sizeof *controllers; i++)
        put_text(own, "cgroup.subtree_control", controllers[i]);
    if (!path_of(g->path, sizeof g->path, own, v->owner, v->operation)) {
        g->path[0] = '\0';
        return;
    }
    if (mkdir(g->path, 0755) < 0 && errno != EEXIST) {
        g->path[0] = '\0';
        return;
    }
    g->made = true;
    set_limits(g, l);
}

uint64_t cgroup_number(const struct mover_cgroup *g, const char *file, const char *key)
{
    char path[4400], line[256];
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

void cgroup_kill(const struct mover_cgroup *g)
{
    if (g->path[0] && g->made)
        put_text(g->path, "cgroup.kill", "1");
}

void cgroup_remove(struct mover_cgroup *g)
{
    if (g->path[0] && g->made)
        rmdir(g->path);
    g->path[0] = '\0';
}
