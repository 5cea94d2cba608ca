/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "proc/systemd.h"

#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#define MANAGER_ADDRESS "unix:path=/run/systemd/private" /* as systemctl, for root only */

bool systemd_runs(void)
{
    const char *no = getenv("SNAPFERRY_NO_SYSTEMD");
    return !(no && strcmp(no, "1") == 0) && geteuid() == 0 && sd_booted() > 0;
}

int systemd_bus_open(sd_bus **ret)
{
    int rc = sd_bus_open_system(ret);
    if (rc >= 0)
        return rc;
    rc = sd_bus_new(ret);
    if (rc < 0)
        return rc;
    rc = sd_bus_set_address(*ret, MANAGER_ADDRESS);
    if (rc >= 0)
        rc = sd_bus_start(*ret);
    if (rc < 0)
        *ret = sd_bus_unref(*ret);
    return rc;
}
