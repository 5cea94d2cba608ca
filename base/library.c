/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "base/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

bool library_load(const char *file, const struct library_symbol *symbols, size_t n, void *table, char why[256])
{
    void *so = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!so) {
        snprintf(why, 256, "%.250s", dlerror());
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        void *symbol = dlsym(so, symbols[i].name);
        if (!symbol) {
            snprintf(why, 256, "%s has no %s", file, symbols[i].name);
            return false;
        }
        memcpy((char *)table + symbols[i].at, &symbol, sizeof symbol);
    }
    return true;
}
