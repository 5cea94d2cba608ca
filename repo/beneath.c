/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/beneath.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RACES_MAX 100 /* a rename somewhere above makes openat2() fail with EAGAIN */

/* One component, of `len` bytes. */
static int open_component(int dir, const char *name, size_t len, int flags, mode_t mode)
{
    char one[NAME_MAX + 1];
    int fd;
    if (len > NAME_MAX)
        return -ENAMETOOLONG;
    memcpy(one, name, len);
    one[len] = '\0';
    if (strcmp(one, "..") == 0)
        return -EXDEV;
    do
        fd = openat(dir, one, flags | O_NOFOLLOW | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return -errno;
    struct stat st;
    /* O_PATH opens the link itself. */
    if ((flags & O_PATH) && (fstat(fd, &st) < 0 || S_ISLNK(st.st_mode))) {
        close(fd);
        return -ELOOP;
    }
    return fd;
}

/* Without openat2(2), as on a kernel before 5.6. */
static int open_stepwise(int root, const char *path, int flags, mode_t mode)
{
    CLEANUP_CLOSE int dir = -1;
    if (path[0] == '/')
        return -EXDEV;
    for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
        if (slash == path)
            continue;
        int next = open_component(dir < 0 ? root : dir, path, (size_t)(slash - path), O_PATH, 0);
        if (next < 0)
            return next;
        if (dir >= 0)
            close(dir);
        dir = next;
    }
    return open_component(dir < 0 ? root : dir, path, strlen(path), flags, mode);
}

int beneath_open(int root, const char *path, int flags, mode_t mode)
{
    struct open_how how = {.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
                           .mode = flags & O_CREAT ? mode : 0,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    for (unsigned races = 0; races < RACES_MAX; races++) {
        int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
        if (fd >= 0)
            return fd;
        if (errno == ENOSYS || errno == EPERM) /* EPERM: also a filter that does not know it */
            break;
        if (errno != EINTR && errno != EAGAIN)
            return -errno;
    }
    return open_stepwise(root, path, flags, mode);
}

int beneath_parent(int root, const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    char dir[PATH_MAX];
    *name = slash ? slash + 1 : path;
    if (!slash)
        return beneath_open(root, ".", O_PATH | O_DIRECTORY, 0);
    if ((size_t)(slash - path) >= sizeof dir)
        return -ENAMETOOLONG;
    memcpy(dir, path, (size_t)(slash - path));
    dir[slash - path] = '\0';
    return beneath_open(root, dir, O_PATH | O_DIRECTORY, 0);
}

int beneath_unlink(int root, const char *path)
{
    const char *name;
    CLEANUP_CLOSE int dir = beneath_parent(root, path, &name);
    if (dir < 0)
        return dir;
    return unlinkat(dir, name, 0) < 0 ? -errno : 0;
}

int beneath_rename(int root, const char *from, const char *to)
{
    const char *name, *other = strrchr(to, '/');
    CLEANUP_CLOSE int dir = beneath_parent(root, from, &name);
    if (dir < 0)
        return dir;
    return renameat(dir, name, dir, other ? other + 1 : to) < 0 ? -errno : 0;
}
