/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/records/driver-kind.h"

#include <stddef.h>
#include <string.h>

static const struct driver_kind kinds[] = {
    {.driver = "device", .raw = "a raw device", .has_peers = true},
    {.driver = "reflink", .has_peers = true},
    {.driver = "nbd", .raw = "an NBD export"},
    {.driver = "lvm", .has_cow = true},
    {.driver = "rbd", .has_cluster = true},
};

const struct driver_kind *driver_kind_of(const char *driver)
{
    static const struct driver_kind other;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].driver, driver))
            return &kinds[i];
    return &other;
}
