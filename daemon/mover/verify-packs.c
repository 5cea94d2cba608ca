/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/verify-packs.h"

#include <stdio.h>
#include <string.h>

bool pack_is_there(struct repo *r, const char *name, uint64_t least, struct pack_asked *last)
{
    if (strcmp(last->name, name) != 0) {
        struct blob_info i;
        struct err ignored = ERR_INIT;
        snprintf(last->name, sizeof last->name, "%s", name);
        last->length = blobs_stat(repo_blobs(r), name, &i, &ignored) == 0 ? i.length : 0;
    }
    return last->length > 0 && last->length >= least;
}
