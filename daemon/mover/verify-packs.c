/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/mover/verify-packs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int pack_is_there(struct blobs *b, const char *name, uint64_t least, struct pack_asked *last, struct err *e)
{
    if (strcmp(last->name, name) != 0) {
        struct blob_info i;
        struct err own = ERR_INIT;
        const int rc = blobs_stat(b, name, &i, &own);
        if (rc < 0 && rc != -ENOENT && own.cls != ERR_DAMAGE) {
            if (e)
                *e = own;
            return err_wrap(e, "cannot determine whether a pack exists that the list of packs lacks");
        }
        snprintf(last->name, sizeof last->name, "%s", name);
        last->length = rc < 0 ? 0 : i.length;
    }
    return last->length > 0 && last->length >= least;
}
