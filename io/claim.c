/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/claim.h"

#include "base/cleanup.h"
#include "io/blockdev.h"
#include "io/in-use.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define LOCK_WAIT_MS 5000 /* udev locks a device for a moment while it looks at it */
#define USER_WAIT_MS 1000 /* programs that only look at a device or file */
#define POLL_MS 50
#define LOOPS_MAX 8

/* Anything in use is refused with the same hint; with --force only this program's own lock counts. Its name is not in
 * the hint: what is in use is to be released, and the daemon has no such option. */
static int refuse_user(const char *path, const char *who, struct err *e)
{
    err_plain(e, ERR_TARGET, EBUSY, "restore target %s is in use (%s)", path, who);
    err_hint(e, "unmount or release it first: overwriting it would destroy the data of its user");
    return -EBUSY;
}

int claim_refused(const char *path, const struct stat *st, struct err *e)
{
    char who[PATH_MAX];
    return refuse_user(path, in_use(st, who, sizeof who) ? who : "by another program or by the kernel", e);
}

/* The file below a loop device, or below the disk of a partition. */
static bool loop_file(dev_t dev, char *ret, size_t cap)
{
    char dir[PATH_MAX];
    return blockdev_sysfs(dev, dir, sizeof dir) &&
           (sysfs_line(dir, "loop/backing_file", ret, cap) || sysfs_line(dir, "../loop/backing_file", ret, cap));
}

/* The directory in which something is, or is to be. */
static int directory_open(const char *path)
{
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (!slash)
        snprintf(dir, sizeof dir, ".");
    else
        slash[slash == dir] = '\0';
    return open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* A device whose bytes are those of a blob. */
static int refuse_blob_below(dev_t dev, const char *path, struct err *e)
{
    char file[PATH_MAX], where[PATH_MAX];
    struct stat st;
    for (unsigned depth = 0; depth < LOOPS_MAX && loop_file(dev, file, sizeof file); depth++) {
        if (stat(file, &st) == 0 && S_ISBLK(st.st_mode)) {
            dev = st.st_rdev;
            continue;
        }
        CLEANUP_CLOSE int fd = directory_open(file);
        if (fd < 0 || !in_repository(fd, where, sizeof where))
            return 0;
        err_plain(e, ERR_TARGET, EINVAL, "restore target %s is a loop device over %s in the directory of a repository",
                  path, file);
        err_hint(e, "restore to another device");
        return -EINVAL;
    }
    return 0;
}

int claim_target(int fd, const char *path, bool force, struct err *e)
{
    struct stat st;
    char who[PATH_MAX];
    if (fstat(fd, &st) < 0)
        return err_set(e, ERR_TARGET, errno, "cannot stat restore target %s", path);
    int rc = S_ISBLK(st.st_mode) ? refuse_blob_below(st.st_rdev, path, e) : 0;
    if (rc < 0)
        return rc;
    for (int waited = 0; flock(fd, LOCK_EX | LOCK_NB) < 0 && errno != EINTR; waited += POLL_MS) {
        if (errno != EWOULDBLOCK) {
            log_debug("restore target %s cannot be locked: %s", path, strerror(errno));
            break; /* a file system without locks */
        }
        if (waited >= (S_ISBLK(st.st_mode) ? LOCK_WAIT_MS : 0)) {
            err_plain(e, ERR_TARGET, EBUSY, "restore target %s is locked by another program, such as another restore",
                      path);
            err_hint(e, "wait until the other one ends (`lsof %s` shows it), or restore to another target", path);
            return -EBUSY;
        }
        usleep(POLL_MS * 1000);
    }
    if (force)
        return 0;
    enum use use;
    for (int waited = 0; (use = in_use(&st, who, sizeof who)) != USE_NONE; waited += POLL_MS) {
        if (use == USE_HELD || waited >= USER_WAIT_MS)
            return refuse_user(path, who, e);
        usleep(POLL_MS * 1000);
    }
    return 0;
}

/* Whether the directory belongs to the file system of device nodes, which is in memory. */
static bool among_devices(int dir)
{
    struct stat here, devices;
    return fstat(dir, &here) == 0 && stat("/dev", &devices) == 0 && here.st_dev == devices.st_dev &&
           stat("/", &here) == 0 && here.st_dev != devices.st_dev;
}

/* Where a file is that exists, whatever links lead there. */
static int place_open(int file, const char *path)
{
    char self[64], real[PATH_MAX];
    snprintf(self, sizeof self, "/proc/self/fd/%d", file);
    const ssize_t n = file < 0 ? -1 : readlink(self, real, sizeof real - 1);
    if (n < 0)
        return directory_open(path);
    real[n] = '\0';
    return directory_open(real);
}

int claim_place_of_file(const char *path, struct err *e)
{
    char where[PATH_MAX];
    CLEANUP_CLOSE int file = open(path, O_PATH | O_CLOEXEC);
    CLEANUP_CLOSE int fd = place_open(file, path);
    if (fd < 0)
        return 0; /* a missing directory is reported where the file is opened */
    if (in_repository(fd, where, sizeof where) || (file >= 0 && in_repository(file, where, sizeof where))) {
        err_plain(e, ERR_TARGET, EINVAL, "restore target %s lies in the directory of a repository, %s", path, where);
        err_hint(e, "restore to a place outside of it");
        return -EINVAL;
    }
    if (among_devices(fd)) {
        err_plain(e, ERR_TARGET, ENODEV,
                  "restore target %s: there is no such device, and a file among devices is lost "
                  "when the machine goes down",
                  path);
        err_hint(e, "make the volume first, or restore with the daemon to a name that a storage class of its driver "
                    "matches: then the volume is made");
        return -ENODEV;
    }
    return 0;
}
