/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/mounts.h"

#include "base/cleanup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static void mount_unescape(char *s)
{
    char *w = s;
    for (; *s; s++) {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' && s[3] <= '7') {
            *w++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
            s += 3;
        } else {
            *w++ = *s;
        }
    }
    *w = '\0';
}

static bool parse_mount(char *line, struct mount_row *m)
{
    unsigned maj, min;
    int at = 0;
    if (sscanf(line, "%d %*d %u:%u %4095s %4095s %n", &m->id, &maj, &min, m->root, m->point, &at) < 5 || at == 0)
        return false;
    m->dev = makedev(maj, min);
    const char *sep = strstr(line + at, " - ");
    if (!sep)
        sep = strncmp(line + at, "- ", 2) == 0 ? line + at - 1 : NULL;
    char super[256];
    if (!sep || sscanf(sep + 3, "%63s %4095s %255s", m->type, m->source, super) != 3)
        return false;
    m->rw = strncmp(super, "rw", 2) == 0 && (super[2] == '\0' || super[2] == ',');
    mount_unescape(m->root);
    m->nouuid = strcmp(m->type, "xfs") == 0 && strstr(super, ",nouuid");
    mount_unescape(m->point);
    mount_unescape(m->source);
    return true;
}

bool mounts_each(const char *file, bool (*fn)(const struct mount_row *, void *), void *arg)
{
    CLEANUP_FCLOSE FILE *f = fopen(file, "re");
    if (!f)
        return false;
    CLEANUP_FREE char *line = NULL;
    CLEANUP_FREE struct mount_row *m = malloc(sizeof *m);
    size_t cap = 0;
    while (m && getline(&line, &cap, f) >= 0) {
        if (parse_mount(line, m) && fn(m, arg))
            return true;
    }
    return false;
}

dev_t mount_device(const struct mount_row *m)
{
    struct stat st;
    if (major(m->dev) == 0 && strncmp(m->source, "/dev/", 5) == 0 && stat(m->source, &st) == 0 && S_ISBLK(st.st_mode))
        return st.st_rdev;
    return m->dev;
}

bool mounts_is_swap(const struct stat *of)
{
    CLEANUP_FCLOSE FILE *f = fopen("/proc/swaps", "re");
    CLEANUP_FREE char *line = NULL;
    size_t cap = 0;
    while (f && getline(&line, &cap, f) >= 0) {
        line[strcspn(line, " \t\n")] = '\0';
        mount_unescape(line);
        struct stat st;
        if (line[0] != '/' || stat(line, &st) < 0 || (st.st_mode & S_IFMT) != (of->st_mode & S_IFMT))
            continue;
        if (S_ISBLK(st.st_mode) ? st.st_rdev == of->st_rdev : st.st_dev == of->st_dev && st.st_ino == of->st_ino)
            return true;
    }
    return false;
}
