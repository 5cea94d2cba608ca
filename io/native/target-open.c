/* SPDX-License-Identifier: GPL-2.0-or-later */
/* target-open.c - restore targets of any driver are opened and claimed */
#include "base/cleanup.h"
#include "io/claim.h"
#include "io/native/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define RELEASE_WAIT_MS 5000 /* the kernel closes the devices of a killed mover a little later */
#define POLL_MS 100

int driver_target_open(const char *path, int *fd, struct err *e)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_TARGET, errno, "cannot find restore target %s", path);
    const bool block = S_ISBLK(st.st_mode);
    if (!block && !S_ISREG(st.st_mode))
        return err_set(e, ERR_TARGET, 0, "restore target %s is neither a block device nor a regular file", path);
    /* O_EXCL on a device: the kernel refuses it while it is mounted or held. */
    const int flags = O_RDWR | O_CLOEXEC | O_NOCTTY | (block ? O_EXCL : O_NOFOLLOW | O_NONBLOCK);
    CLEANUP_CLOSE int f = open(path, flags);
    for (int waited = 0; f < 0 && errno == EBUSY && waited < RELEASE_WAIT_MS; waited += POLL_MS) {
        usleep(POLL_MS * 1000);
        f = open(path, flags);
    }
    if (f < 0 && errno == EBUSY)
        return claim_refused(path, &st, e);
    if (f < 0)
        return err_set(e, errno == EACCES || errno == EPERM || errno == EROFS ? ERR_PERMISSION : ERR_TARGET, errno,
                       "cannot open restore target %s for writing", path);
    int rc = claim_target(f, path, false, e);
    if (rc == 0)
        *fd = take_fd(&f);
    return rc;
}
