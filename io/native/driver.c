/* SPDX-License-Identifier: GPL-2.0-or-later */
/* driver.c - the table of drivers, and operations that involve two of them */
#include "io/native/driver.h"

#include <errno.h>
#include <string.h>

static const struct driver *const drivers[] = {&driver_reflink, &driver_device, &driver_lvm_thin,
                                               &driver_lvm,     &driver_zfs,    &driver_nbd,
                                               &driver_qemu,    &driver_rbd,    &driver_plugin};
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

bool expose_same_pool(const struct driver_class *own, const struct volume *v, const struct driver_class *into)
{
    if (!into || into == own || strcmp(own->name ? own->name : "", into->name ? into->name : "") == 0)
        return true;
    const struct driver *d = driver_by_name(own->driver);
    return d && into->driver && strcmp(own->driver, into->driver) == 0 && d->same_pool && d->same_pool(own, v, into);
}

int driver_expose(const struct driver_class *c, const struct native *n, const struct driver_class *into,
                  enum expose_mechanism m, bool read_only, const char *alias, uint64_t rate, struct exposure *ret,
                  struct err *e)
{
    const struct driver *owner = driver_by_name(c->driver), *holder = into ? driver_by_name(into->driver) : owner;
    if (!owner || !holder)
        return err_set(e, ERR_USAGE, ENOTSUP, "driver \"%s\" is not implemented in this build (storage class \"%s\")",
                       owner ? into->driver : c->driver, owner ? into->name : c->name);
    if (m != EXPOSE_COPY)
        return owner->expose(c, n, into ? into : c, m, read_only, alias, ret, e);
    if (!into || !holder->copy)
        return err_set(e, ERR_USAGE, ENOTSUP, "storage class \"%s\" (driver %s) cannot hold a copy",
                       into ? into->name : c->name, into ? into->driver : c->driver);
    return holder->copy(into, owner, c, n, read_only, alias, rate, ret, e);
}
