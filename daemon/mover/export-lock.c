/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/export-lock.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int export_claim(struct export_lock *lock, const char *state_file, const char *name, struct err *e)
{
    snprintf(lock->path, sizeof lock->path, "%s.lock", state_file);
    for (;;) {
        struct stat st, now;
        CLEANUP_CLOSE int f = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (f < 0)
            return err_set(e, ERR_GENERIC, errno, "cannot create %s", lock->path);
        if (flock(f, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
            return err_set(e, ERR_TARGET, EBUSY, "another restore writes to %s", name);
        /* Locked, and still the file of that name. */
        if (fstat(f, &st) == 0 && stat(lock->path, &now) == 0 && st.st_ino == now.st_ino && st.st_dev == now.st_dev) {
            lock->fd = take_fd(&f);
            return 0;
        }
    }
}

void export_release(struct export_lock *lock)
{
    if (lock->fd < 0)
        return;
    unlink(lock->path);
    close(lock->fd);
}
