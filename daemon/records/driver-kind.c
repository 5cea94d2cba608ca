/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/records/driver-kind.h"

#include <stddef.h>
#include <string.h>

#define VG_BACK "connect its disks (`vgs` and `pvs` show which there are)"

static const struct driver_kind kinds[] = {
    {.driver = "device", .raw = "a raw device", .has_peers = true},
    {.driver = "reflink", .has_peers = true},
    {.driver = "nbd", .raw = "an NBD export"},
    {.driver = "lvm", .has_cow = true, .place = "volume group", .get_back = VG_BACK},
    {.driver = "lvm-thin", .place = "thin pool", .get_back = VG_BACK},
    {.driver = "zfs",
     .has_bookmarks = true,
     .place = "pool",
     .get_back = "import it (`zpool import` lists what can be)"},
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
