/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rbd-mapped.c - images that the kernel has mapped on this node (Documentation/ABI/testing/sysfs-bus-rbd) */
#include "io/native/rbd.h"

#include "base/cleanup.h"
#include "io/blockdev.h"
#include "io/native/freeze.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAPPED_MAX 16

static bool has(const char *dir, const char *attribute, const char *value)
{
    char line[256];
    return sysfs_line(dir, attribute, line, sizeof line) && strcmp(line, value) == 0;
}

size_t rbd_mapped(const char *fsid, const struct rbd_image *i, char (*ret)[RBD_DEVICE_MAX], size_t max)
{
    char bus[PATH_MAX], dir[PATH_MAX], pool[24];
    const struct dirent *d;
    size_t n = 0;
    snprintf(pool, sizeof pool, "%" PRIu64, i->pool_id);
    snprintf(bus, sizeof bus, "%s/bus/rbd/devices", blockdev_sysfs_root());
    CLEANUP_CLOSEDIR DIR *devices = opendir(bus);
    while (devices && n < max && (d = readdir(devices)))
        if (d->d_name[strspn(d->d_name, "0123456789")] == '\0' &&
            snprintf(dir, sizeof dir, "%s/%s", bus, d->d_name) < (int)sizeof dir && has(dir, "cluster_fsid", fsid) &&
            has(dir, "pool_id", pool) && has(dir, "image_id", i->id) && has(dir, "current_snap", "-"))
            snprintf(ret[n++], RBD_DEVICE_MAX, "/dev/rbd%.16s", d->d_name);
    return n;
}

struct frozen *rbd_freeze(const struct driver_class *c, const char *fsid, const struct rbd_image *i)
{
    char device[MAPPED_MAX][RBD_DEVICE_MAX];
    const char *path[MAPPED_MAX];
    const size_t n = rbd_mapped(fsid, i, device, MAPPED_MAX);
    for (size_t k = 0; k < n; k++)
        path[k] = device[k];
    return n ? freeze_devices(path, n, c->unfrozen) : NULL;
}
