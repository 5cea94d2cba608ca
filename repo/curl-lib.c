/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "repo/curl-lib.h"

#include "base/library.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

static struct curl_lib lib;
static bool loaded;
static char missing[256];

static void lib_load(void)
{
#define CURL_SYMBOL(f) {"curl_" #f, offsetof(struct curl_lib, f)},
    static const struct library_symbol symbols[] = {CURL_FUNCTIONS(CURL_SYMBOL)};
#undef CURL_SYMBOL
    if (!library_load("libcurl.so.4", symbols, sizeof symbols / sizeof *symbols, &lib, missing))
        return;
    const CURLcode rc = lib.global_init(CURL_GLOBAL_DEFAULT);
    if (rc == CURLE_OK)
        loaded = true;
    else
        snprintf(missing, sizeof missing, "%.250s", lib.easy_strerror(rc));
}

const struct curl_lib *curl_lib(struct err *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, lib_load);
    if (loaded)
        return &lib;
    err_set(e, ERR_USAGE, ENOTSUP, "object storage needs libcurl 7.85 or newer: %s", missing);
    err_hint(e, "apt install libcurl4");
    return NULL;
}
