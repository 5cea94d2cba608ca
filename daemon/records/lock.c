/* SPDX-License-Identifier: GPL-2.0-or-later */
/* lock.c - the state directory, and the lock of the one writer (MS-11) */
#include "base/cleanup.h"
#include "daemon/records/records-impl.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_TRIES 100 /* times LOCK_PAUSE_US: how long a dead daemon's children may hold its lock */
#define LOCK_PAUSE_US 50000

/* Makes the directory and its parents; the last one is ours alone. */
int records_make_dir(const char *dir, struct err *e)
{
    char p[PATH_MAX];
    if (snprintf(p, sizeof p, "%s", dir) >= (int)sizeof p || !p[0])
        return err_set(e, ERR_USAGE, EINVAL, "\"%s\" is no state directory", dir);
    for (char *s = p + 1; (s = strchr(s, '/')); s++) {
        *s = '\0';
        if (mkdir(p, 0755) < 0 && errno != EEXIST)
            return err_set(e, ERR_GENERIC, errno, "cannot make the directory %s", p);
        *s = '/';
    }
    if (mkdir(p, 0700) < 0 && errno != EEXIST)
        return err_set(e, ERR_GENERIC, errno, "cannot make the state directory %s", p);
    struct stat st;
    if (stat(p, &st) < 0 || !S_ISDIR(st.st_mode))
        return err_set(e, ERR_GENERIC, ENOTDIR, "the state directory %s cannot be used", p);
    if (st.st_mode & 0022)
        log_warning("the state directory %s can be written by others than its owner", p);
    return 0;
}

int records_lock(struct records *r, struct err *e)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/records.lock", r->dir);
    r->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (r->lock_fd < 0)
        return err_set(e, ERR_GENERIC, errno, "cannot open %s", path);
    for (unsigned tries = 0; flock(r->lock_fd, LOCK_EX | LOCK_NB) < 0; tries++) {
        if (errno == EINTR)
            continue;
        if (errno != EWOULDBLOCK)
            return err_set(e, ERR_GENERIC, errno, "cannot lock %s", path);
        char holder[24] = "";
        ssize_t n = pread(r->lock_fd, holder, sizeof holder - 1, 0);
        holder[n > 0 ? strspn(holder, "0123456789") : 0] = '\0';
        /* A daemon that was killed while it forked leaves the lock to a child that is about to end or to close it. */
        long pid = strtol(holder, NULL, 10);
        if (pid > 0 && kill((pid_t)pid, 0) < 0 && errno == ESRCH && tries < LOCK_TRIES) {
            usleep(LOCK_PAUSE_US);
            continue;
        }
        err_set(e, ERR_BUSY, EBUSY, "the records in %s are held by another process%s%s", r->dir,
                holder[0] ? ", number " : "", holder);
        return err_hint(e, "one snapferryd at a time may use a state directory");
    }
    /* For the other one's message only: a failure to write it harms nothing. */
    char me[24];
    int n = snprintf(me, sizeof me, "%ld\n", (long)getpid());
    if (ftruncate(r->lock_fd, 0) < 0 || pwrite(r->lock_fd, me, (size_t)n, 0) < 0)
        log_debug("cannot write %s", path);
    return 0;
}

pid_t records_holder(const char *dir)
{
    char path[PATH_MAX + 16], line[256], holder[24] = "";
    struct stat st;
    snprintf(path, sizeof path, "%s/records.lock", dir);
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    const ssize_t n = fd < 0 || fstat(fd, &st) < 0 ? -1 : pread(fd, holder, sizeof holder - 1, 0);
    const long pid = n > 0 ? strtol(holder, NULL, 10) : 0;
    /* Not by trying to lock: a daemon that starts meanwhile would be refused. */
    CLEANUP_FCLOSE FILE *locks = pid > 0 ? fopen("/proc/locks", "re") : NULL;
    while (locks && fgets(line, sizeof line, locks)) {
        long owner;
        unsigned long long inode;
        if (sscanf(line, "%*s FLOCK %*s WRITE %ld %*[^:]:%*[^:]:%llu", &owner, &inode) == 2 && owner == pid &&
            inode == (unsigned long long)st.st_ino)
            return (pid_t)pid;
    }
    return 0;
}
