/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/rbd/rbd-lib.h"

#include "base/library.h"

#include <errno.h>

const struct ceph_lib *ceph_lib(struct err *e)
{
#define CEPH_SYMBOL(type, f, args) {#f, offsetof(struct ceph_lib, f)},
    static const struct library_symbol rados[] = {RADOS_FUNCTIONS(CEPH_SYMBOL)};
    static const struct library_symbol rbd[] = {RBD_FUNCTIONS(CEPH_SYMBOL)};
#undef CEPH_SYMBOL
    static struct ceph_lib lib;
    static bool loaded;
    char missing[256];
    if (!loaded)
        loaded = library_load("librados.so.2", rados, sizeof rados / sizeof *rados, &lib, missing) &&
                 library_load("librbd.so.1", rbd, sizeof rbd / sizeof *rbd, &lib, missing);
    if (loaded)
        return &lib;
    err_set(e, ERR_USAGE, ENOTSUP, "images of Ceph need librbd of Ceph 14 or newer: %s", missing);
    err_hint(e, "apt install librbd1");
    return NULL;
}
