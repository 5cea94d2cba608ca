/* SPDX-License-Identifier: GPL-2.0-or-later */
/* blob-leftovers.c - files of killed writers in a repository directory */
#include "repo/blob-leftovers.h"

#include "base/cleanup.h"
#include "base/time.h"
#include "repo/shards.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TMP_INFIX ".tmp."
#define HEX_DIGITS 16

struct sweep {
    const char *location;
    blob_list_fn *fn;
    void *arg;
    struct blob_leftovers *ret;
    bool dry_run, told;
    struct err *e;
    struct blob_info info;
};

/* Length of the blob's name in "NAME.f.tmp.<16 hex digits>" or ".shards.tmp.<16 hex digits>"; -1: another file. */
static int name_len(const char *file, bool top)
{
    const size_t n = strlen(file), tail = strlen(TMP_INFIX) + HEX_DIGITS, suffix = strlen(BLOB_SUFFIX);
    if (n <= tail || memcmp(file + n - tail, TMP_INFIX, strlen(TMP_INFIX)) != 0 ||
        strspn(file + n - HEX_DIGITS, "0123456789abcdef") != HEX_DIGITS)
        return -1;
    const size_t len = n - tail;
    if (top && len == strlen(".shards") && memcmp(file, ".shards", len) == 0)
        return (int)len;
    if (len <= suffix || memcmp(file + len - suffix, BLOB_SUFFIX, suffix) != 0)
        return -1;
    return (int)(len - suffix);
}

/* A process of this machine has it open. Only a lease finds that out, and only where the file system has leases: what
 * cannot be asked is judged by age. The signal to the holder of a broken lease is one that is ignored. */
static bool is_open(int fd)
{
    if (fcntl(fd, F_SETSIG, SIGURG) < 0)
        return false;
    if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0)
        return errno == EAGAIN;
    fcntl(fd, F_SETLEASE, F_UNLCK);
    return false;
}

static int sweep_failed(struct sweep *s, int sys)
{
    return err_set(s->e, ERR_GENERIC, sys, "cannot look for files of killed writers in repository %s", s->location);
}

static int sweep_file(struct sweep *s, int dir, const char *file, size_t len, int name)
{
    struct stat st;
    if (len + (size_t)name > BLOB_NAME_MAX)
        return 0;
    CLEANUP_CLOSE int fd = openat(dir, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    memcpy(s->info.name + len, file, (size_t)name);
    s->info.name[len + (size_t)name] = '\0';
    s->info.length = (uint64_t)st.st_size;
    s->info.mtime_ns = timespec_ns(st.st_mtim);
    const int verdict = s->fn(&s->info, s->arg);
    if (verdict < 0)
        return verdict;
    if (verdict == 0 || is_open(fd)) {
        s->ret->kept++;
        return 0;
    }
    if (!s->dry_run && unlinkat(dir, file, 0) < 0) {
        if (errno == ENOENT)
            return 0;
        s->ret->kept++;
        if (!s->told)
            log_warning("cannot remove %s of a killed writer from repository %s: %s", file, s->location,
                        strerror(errno));
        s->told = true;
        return 0;
    }
    s->ret->files++;
    s->ret->bytes += s->info.length;
    return 0;
}

static int sweep_dir(struct sweep *s, int fd, size_t len);

static int sweep_entry(struct sweep *s, int dir, const struct dirent *de, size_t len)
{
    const char *name = de->d_name;
    const int blob = name_len(name, len == 0);
    if (blob > 0)
        return sweep_file(s, dir, name, len, blob);
    /* Directories as a listing enters them. */
    const size_t n = strlen(name);
    if ((de->d_type != DT_DIR && de->d_type != DT_UNKNOWN) || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        (len == 0 && (name[0] == '.' || strcmp(name, "lost+found") == 0)) || len + n > BLOB_NAME_MAX)
        return 0;
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : sweep_failed(s, errno);
    memcpy(s->info.name + len, name, n);
    return sweep_dir(s, fd, len + n);
}

/* Closes fd. The depth is bounded: every level adds a character to the name. */
static int sweep_dir(struct sweep *s, int fd, size_t len)
{
    CLEANUP_CLOSEDIR DIR *dir = fdopendir(fd);
    if (!dir) {
        int sys = errno;
        close(fd);
        return sweep_failed(s, sys);
    }
    for (;;) {
        errno = 0;
        const struct dirent *de = readdir(dir);
        if (!de)
            return errno == 0 || errno == ENOENT ? 0 : sweep_failed(s, errno);
        int rc = sweep_entry(s, dirfd(dir), de, len);
        if (rc != 0)
            return rc;
    }
}

int blob_leftovers_sweep(int root, const char *location, blob_list_fn *fn, void *arg, bool dry_run,
                         struct blob_leftovers *ret, struct err *e)
{
    struct sweep s = {.location = location, .fn = fn, .arg = arg, .ret = ret, .dry_run = dry_run, .e = e};
    int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? sweep_failed(&s, errno) : sweep_dir(&s, fd, 0);
}
