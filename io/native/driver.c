/* SPDX-License-Identifier: GPL-2.0-or-later */
/* driver.c - which drivers there are, and what decides how a native snapshot is made readable */
#include "io/native/driver.h"

#include "base/bytes.h"
#include "io/native/fsinfo.h"
#include "io/native/tag.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const struct driver *const drivers[] = {&driver_reflink, &driver_device, &driver_plugin};
#define PLUGIN_PREFIX "plugin:"

const struct driver *driver_at(unsigned i)
{
    return i < sizeof drivers / sizeof drivers[0] ? drivers[i] : NULL;
}

const struct driver *driver_by_name(const char *name)
{
    if (!name)
        return NULL;
    if (strncmp(name, PLUGIN_PREFIX, sizeof PLUGIN_PREFIX - 1) == 0)
        return name[sizeof PLUGIN_PREFIX - 1] ? &driver_plugin : NULL;
    for (unsigned i = 0; i < sizeof drivers / sizeof drivers[0]; i++)
        if (drivers[i] != &driver_plugin && strcmp(drivers[i]->name, name) == 0)
            return drivers[i];
    return NULL;
}

bool driver_known_elsewhere(const char *name)
{
    static const char *const known[] = {"lvm-thin", "lvm", "zfs", "rbd"};
    for (size_t i = 0; name && i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i], name) == 0)
            return true;
    return false;
}

void alias_new(char ret[ALIAS_LEN + 1])
{
    uint8_t b[16];
    char hex[33];
    /* For 16 bytes getrandom() can only fail before the kernel has its entropy; it waits for that. */
    while (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b) {
        if (errno != EINTR)
            abort();
    }
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40); /* version 4: random */
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80); /* variant of RFC 9562 */
    hex_encode(hex, b, sizeof b);
    snprintf(ret, ALIAS_LEN + 1, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
}

const char *expose_mechanism_name(enum expose_mechanism m)
{
    switch (m) {
    case EXPOSE_NATIVE:
        return "native";
    case EXPOSE_CLONE:
        return "clone";
    case EXPOSE_OVERLAY:
        return "overlay";
    case EXPOSE_COPY:
        return "copy";
    }
    return "unknown";
}

/* ---- choosing a mechanism ---- */

static int choose_own(const struct expose_request *q, enum expose_mechanism *ret, struct err *e)
{
    unsigned can = q->own_abilities;
    if (q->read_only && (can & DRIVER_NATIVE_RO)) {
        *ret = EXPOSE_NATIVE;
    } else if (can & DRIVER_CLONE) {
        *ret = EXPOSE_CLONE; /* read-only: only where the snapshot itself cannot be read (PVC-02) */
    } else if (!q->read_only && (can & DRIVER_OVERLAY)) {
        *ret = EXPOSE_OVERLAY;
    } else if (q->read_only) {
        err_set(e, ERR_USAGE, ENOTSUP,
                "storage class \"%s\" cannot show a native snapshot read-only: its driver %s can neither read a "
                "snapshot itself nor clone it",
                q->own->name, q->own->driver);
        err_hint(e, "set backup-read-only = no, or name another class in backup-storage-class");
        return -ENOTSUP;
    } else {
        err_set(e, ERR_USAGE, ENOTSUP,
                "storage class \"%s\" cannot make a writable intermediate: its driver %s has neither clones nor "
                "overlays",
                q->own->name, q->own->driver);
        err_hint(e, "set backup-read-only = yes, or name a class that can hold a copy in backup-storage-class");
        return -ENOTSUP;
    }
    return 0;
}

int expose_choose(const struct expose_request *q, enum expose_mechanism *ret, struct err *e)
{
    const struct driver_class *into = q->into ? q->into : q->own;
    if (into == q->own || strcmp(into->name, q->own->name) == 0)
        return choose_own(q, ret, e);
    if (q->same_pool && (q->own_abilities & DRIVER_CLONE)) {
        *ret = EXPOSE_CLONE;
        return 0;
    }
    if (!q->read_only && (q->own_abilities & DRIVER_OVERLAY)) {
        *ret = EXPOSE_OVERLAY;
        return 0;
    }
    if (q->into_abilities & DRIVER_COPY_TARGET) {
        *ret = EXPOSE_COPY;
        return 0;
    }
    err_set(e, ERR_USAGE, ENOTSUP,
            "storage class \"%s\" cannot take a%s intermediate of class \"%s\": %s, and its driver %s cannot hold a "
            "full copy%s",
            into->name, q->read_only ? " read-only" : " writable", q->own->name,
            q->same_pool   ? "driver of the source has no clones"
            : q->read_only ? "it lies elsewhere, so that cloning is impossible"
                           : "it lies elsewhere and there is no overlay",
            into->driver, into->target && *into->target ? "" : " (no target is set)");
    err_hint(e, "leave backup-storage-class empty, or name a class with a target that can hold a copy");
    return -ENOTSUP;
}

static bool same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

bool expose_same_pool(const struct driver_class *own, const struct volume *v, const struct driver_class *into)
{
    if (!into || into == own || same_text(own->name, into->name))
        return true;
    const struct driver *d = driver_by_name(own->driver);
    if (!d || d != driver_by_name(into->driver) || !same_text(own->driver, into->driver) || d == &driver_device)
        return false;
    if (d == &driver_reflink) {
        struct fs_info fs, source;
        char dir[VOLUME_NAME_MAX];
        const char *name, *pool = v->pool;
        /* A volume that is known by its native snapshot alone. */
        if (!*pool && path_split(v->name, dir, &name, NULL) == 0 && fs_info_path(dir, &source, NULL) == 0)
            pool = source.pool;
        return into->target && *into->target && fs_info_path(into->target, &fs, NULL) == 0 && fs.reflink &&
               strcmp(fs.pool, pool) == 0;
    }
    /* A plugin's pools are words of its own: a class of the same plugin is in the volume's pool if its target names
     * that, or names the same place as the volume's class. */
    return into->target && *into->target && (same_text(into->target, v->pool) || same_text(into->target, own->target));
}
