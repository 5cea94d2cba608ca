/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "io/nbd-lib.h"

#include "base/library.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

static struct nbd_lib lib;
static bool loaded;
static char missing[256];

static void lib_load(void)
{
#define NBD_SYMBOL(f) {"nbd_" #f, offsetof(struct nbd_lib, f)},
    static const struct library_symbol symbols[] = {NBD_FUNCTIONS(NBD_SYMBOL)};
#undef NBD_SYMBOL
    loaded = library_load("libnbd.so.0", symbols, sizeof symbols / sizeof *symbols, &lib, missing);
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
