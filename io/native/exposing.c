/* SPDX-License-Identifier: GPL-2.0-or-later */
/* exposing.c - choice of the mechanism that makes a native snapshot readable */
#include "io/native/driver.h"

#include <errno.h>
#include <string.h>

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
                "storage class \"%s\" cannot expose a native snapshot read-only: its driver %s can neither read a "
                "snapshot itself nor clone it",
                q->own->name, q->own->driver);
        err_hint(e, "set backup-read-only = no, or name another class in backup-storage-class");
        return -ENOTSUP;
    } else {
        err_set(e, ERR_USAGE, ENOTSUP,
                "storage class \"%s\" cannot make a writable intermediate: its driver %s supports neither clones nor "
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
    if (q->own_abilities & DRIVER_SOCKET)
        return err_set(
            e, ERR_USAGE, ENOTSUP,
            "storage class \"%s\" (driver %s) cannot have its intermediates in class \"%s\": it is read as it is",
            q->own->name, q->own->driver, into->name);
    if (q->into_abilities & DRIVER_COPY_TARGET) {
        *ret = EXPOSE_COPY;
        return 0;
    }
    err_set(e, ERR_USAGE, ENOTSUP,
            "storage class \"%s\" cannot take a%s intermediate of class \"%s\": %s, and its driver %s cannot hold a "
            "full copy%s",
            into->name, q->read_only ? " read-only" : " writable", q->own->name,
            q->same_pool   ? "driver of the source does not support clones"
            : q->read_only ? "it is on other storage, which excludes cloning"
                           : "it is on other storage and there is no overlay",
            into->driver, into->target && *into->target ? "" : " (no target is set)");
    err_hint(e, "leave backup-storage-class empty, or name a class with a target that can hold a copy");
    return -ENOTSUP;
}
