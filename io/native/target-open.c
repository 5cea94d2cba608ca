/* SPDX-License-Identifier: GPL-2.0-or-later */
/* target-open.c - restore targets of any driver are opened and claimed */
#include "base/cleanup.h"
#include "io/blockdev.h"
#include "io/claim.h"
#include "io/native/driver.h"
#include "io/native/rbd.h"
#include "io/nbd-link.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define RELEASE_WAIT_MS 5000 /* the kernel closes the devices of a killed mover a little later */
#define POLL_MS 100

/* ---- which device it is ---- */

static bool boot_id(char *out, size_t size)
{
    return sysfs_line("/proc/sys/kernel/random", "boot_id", out, size);
}

/* Identity of a disk, without what is stored on it. */
static void disk_identity(const char *dir, char *out, size_t size)
{
    char v[512], offset[32] = "0", boot[64] = "";
    if (sysfs_line(dir, "dm/uuid", v, sizeof v)) {
        snprintf(out, size, "dm:%s", v);
    } else if (sysfs_line(dir, "loop/backing_file", v, sizeof v)) {
        sysfs_line(dir, "loop/offset", offset, sizeof offset);
        snprintf(out, size, "loop:%s@%s", v, offset);
    } else if (sysfs_line(dir, "wwid", v, sizeof v) || sysfs_line(dir, "device/wwid", v, sizeof v)) {
        snprintf(out, size, "wwid:%s", v);
    } else if (sysfs_line(dir, "device/serial", v, sizeof v) || sysfs_line(dir, "serial", v, sizeof v)) {
        snprintf(out, size, "serial:%s", v);
    } else {
        /* Anonymous: the same only until it is detached, or the machine goes down. */
        if (!sysfs_line(dir, "diskseq", v, sizeof v))
            snprintf(v, sizeof v, "0");
        boot_id(boot, sizeof boot);
        snprintf(out, size, "boot:%s:%s", boot, v);
    }
}

/* POOL/IMAGE or POOL/NAMESPACE/IMAGE: paths are absolute. */
static bool is_image(const char *name)
{
    return name[0] != '/' && name[0] != '.' && !nbd_uri_is(name) && rbd_name_check(name, NULL) == 0;
}

const char *driver_of_target(const char *name, bool block)
{
    return nbd_uri_is(name) ? "nbd" : is_image(name) ? "rbd" : block ? "device" : "reflink";
}

bool driver_target_is_remote(const char *name)
{
    return nbd_uri_is(name) || is_image(name);
}

bool driver_target_is_export(const char *path)
{
    return nbd_uri_is(path);
}

/* /dev/zvol/POOL/PATH, /dev/GROUP/VOLUME, and images. */
bool driver_target_labels(const char *name, char out[VOLUME_LABELS_MAX])
{
    static const char zvol[] = "/dev/zvol/", dev[] = "/dev/";
    if (strncmp(name, zvol, sizeof zvol - 1) == 0) {
        const char *dataset = name + sizeof zvol - 1;
        const size_t pool = strcspn(dataset, "/");
        return pool && dataset[pool] && !strchr(dataset, ' ') &&
               snprintf(out, VOLUME_LABELS_MAX, "dataset:%s pool:%.*s", dataset, (int)pool, dataset) <
                   VOLUME_LABELS_MAX;
    }
    if (is_image(name))
        return !strchr(name, ' ') && snprintf(out, VOLUME_LABELS_MAX, "pool:%.*s", (int)strcspn(name, "/"), name) > 0;
    if (strncmp(name, dev, sizeof dev - 1) != 0)
        return false;
    const char *group = name + sizeof dev - 1, *slash = strchr(group, '/');
    return slash && slash > group && slash[1] && !strchr(slash + 1, '/') && !strchr(name, ' ') &&
           snprintf(out, VOLUME_LABELS_MAX, "vg:%.*s", (int)(slash - group), group) < VOLUME_LABELS_MAX;
}

bool driver_target_identity(const char *path, char *out, size_t size)
{
    struct stat st;
    char dir[PATH_MAX], part[32], disk[700];
    if (nbd_uri_is(path)) { /* nothing is known but its address */
        snprintf(out, size, "export");
        return true;
    }
    if (stat(path, &st) < 0 || !S_ISBLK(st.st_mode) || !blockdev_sysfs(st.st_rdev, dir, sizeof dir))
        return false;
    if (!sysfs_line(dir, "partition", part, sizeof part)) {
        disk_identity(dir, out, size);
        return true;
    }
    char start[32] = "";
    sysfs_line(dir, "start", start, sizeof start);
    *strrchr(dir, '/') = '\0';
    disk_identity(dir, disk, sizeof disk);
    snprintf(out, size, "%s#%s+%s", disk, part, start);
    return true;
}

/* A connected socket: the mover negotiates. */
static int export_open(const char *address, int *fd, struct err *e)
{
    struct nbd_uri u;
    int rc = nbd_uri_parse(&u, address, e);
    if (rc == 0 && (rc = nbd_dial(&u, fd, NULL, e)) < 0) {
        /* As if the connection had been lost: the restore goes on when its server is back. */
        e->cls = ERR_TARGET;
        e->sys = ESHUTDOWN;
    }
    return rc;
}

int driver_target_open(const char *path, int *fd, struct err *e)
{
    struct stat st;
    if (nbd_uri_is(path))
        return export_open(path, fd, e);
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
