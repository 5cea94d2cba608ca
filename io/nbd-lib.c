/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/nbd-lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

static struct nbd_lib lib;
static bool loaded;
static char missing[256];

static void lib_load(void)
{
    void *so = dlopen("libnbd.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!so) {
        snprintf(missing, sizeof missing, "%.250s", dlerror());
        return;
    }
    loaded = true;
#define NBD_LOAD(f)                                                                                                    \
    if (!(lib.f = (__typeof__(lib.f))dlsym(so, "nbd_" #f))) {                                                          \
        snprintf(missing, sizeof missing, "libnbd has no nbd_" #f);                                                    \
        loaded = false;                                                                                                \
    }
    NBD_FUNCTIONS(NBD_LOAD)
#undef NBD_LOAD
}

const struct nbd_lib *nbd_lib(struct err *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, lib_load);
    if (loaded)
        return &lib;
    err_set(e, ERR_USAGE, ENOTSUP, "exports of NBD need libnbd 1.14 or newer: %s", missing);
    err_hint(e, "apt install libnbd0");
    return NULL;
}
