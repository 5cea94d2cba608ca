/* SPDX-License-Identifier: GPL-2.0-or-later */
/* in-repository.c - whether something lies in the directory of a repository, also by a mount of a part of it */
#include "io/in-use.h"

#include "base/cleanup.h"
#include "io/mounts.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define BEYOND_MAX 16 /* mounts of parts of parts */

static bool same_inode(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* -1: not known, as with kernels before 5.8. */
static int mount_of(int fd)
{
    struct statx sx;
    const bool known =
        statx(fd, "", AT_EMPTY_PATH | AT_NO_AUTOMOUNT, STATX_MNT_ID, &sx) == 0 && (sx.stx_mask & STATX_MNT_ID);
    return known ? (int)sx.stx_mnt_id : -1;
}

static bool is_marked(int dir, char *out, size_t size)
{
    static const char *const marks[] = {"kopia.repository.f", "kopia.repository"};
    for (unsigned i = 0; i < sizeof marks / sizeof *marks; i++) {
        struct stat st;
        char self[64];
        if (fstatat(dir, marks[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        snprintf(self, sizeof self, "/proc/self/fd/%d", dir);
        ssize_t n = readlink(self, out, size - 1);
        if (n < 0)
            n = snprintf(out, size, "its directory");
        out[(size_t)n < size ? (size_t)n : size - 1] = '\0';
        return true;
    }
    return false;
}

/* ---- what lies above the root of a mount, on its file system ---- */

struct beyond {
    int id;
    const struct stat *st; /* of the root */
    dev_t dev;
    char root[PATH_MAX]; /* its path on the file system */
    int parent;          /* its directory there; -1: not found */
};

static bool note_mount(const struct mount_row *m, void *arg)
{
    struct beyond *b = arg;
    if (m->id != b->id)
        return false;
    b->dev = m->dev;
    snprintf(b->root, sizeof b->root, "%s", m->root);
    return true;
}

/* Another mount of the file system that has more of it. What something else is mounted over is not seen by this one. */
static bool find_parent(const struct mount_row *m, void *arg)
{
    struct beyond *b = arg;
    const size_t n = strcmp(m->root, "/") ? strlen(m->root) : 0;
    char path[2 * PATH_MAX];
    struct stat st;
    if (m->dev != b->dev || m->id == b->id || strncmp(b->root, m->root, n) != 0 || b->root[n] != '/')
        return false;
    snprintf(path, sizeof path, "%s%s", strcmp(m->point, "/") ? m->point : "", b->root + n);
    if (lstat(path, &st) < 0 || !same_inode(&st, b->st))
        return false;
    char *slash = strrchr(path, '/');
    slash[slash == path] = '\0';
    b->parent = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return b->parent >= 0;
}

static int parent_beyond(int id, const struct stat *st)
{
    struct beyond b = {.id = id, .st = st, .parent = -1};
    if (id >= 0 && mounts_each("/proc/self/mountinfo", note_mount, &b))
        mounts_each("/proc/self/mountinfo", find_parent, &b);
    return b.parent;
}

static bool is_within(int fd, unsigned depth, char *out, size_t size)
{
    CLEANUP_CLOSE int at = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    struct stat here, above;
    while (at >= 0 && fstat(at, &here) == 0) {
        if (S_ISDIR(here.st_mode) && is_marked(at, out, size))
            return true;
        CLEANUP_CLOSE int up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        const int id = mount_of(at);
        const bool crossed = up >= 0 && mount_of(up) != id;
        const bool top = up < 0 || fstat(up, &above) < 0 || (!crossed && same_inode(&above, &here));
        if (depth < BEYOND_MAX && (top || crossed)) {
            CLEANUP_CLOSE int beyond = parent_beyond(id, &here);
            if (beyond >= 0 && is_within(beyond, depth + 1, out, size))
                return true;
        }
        if (top)
            return false;
        close(at);
        at = take_fd(&up);
    }
    return false;
}

bool in_repository(int fd, char *out, size_t size)
{
    return is_within(fd, 0, out, size);
}
