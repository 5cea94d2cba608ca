/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "proc/systemd.h"

#include "base/cleanup.h"

#include <errno.h>
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

static void bus_freep(sd_bus **bus)
{
    sd_bus_flush_close_unref(*bus);
}

int systemd_main_pid(const char *unit, pid_t *ret)
{
    CLEANUP(bus_freep) sd_bus *bus = NULL;
    CLEANUP_FREE char *path = NULL;
    sd_bus_error error = SD_BUS_ERROR_NULL;
    uint32_t pid = 0;
    int rc = sd_bus_path_encode("/org/freedesktop/systemd1/unit", unit, &path);
    if (rc >= 0)
        rc = systemd_bus_open(&bus);
    if (rc >= 0)
        rc = sd_bus_get_property_trivial(bus, "org.freedesktop.systemd1", path, "org.freedesktop.systemd1.Service",
                                         "MainPID", &error, 'u', &pid);
    sd_bus_error_free(&error);
    *ret = (pid_t)pid;
    return rc < 0 ? rc : pid ? 0 : -ESRCH;
}

static void message_freep(sd_bus_message **m)
{
    sd_bus_message_unref(*m);
}

int systemd_list(const char *pattern, systemd_unit_fn *fn, void *arg)
{
    CLEANUP(bus_freep) sd_bus *bus = NULL;
    CLEANUP(message_freep) sd_bus_message *reply = NULL;
    const char *unit, *description;
    int rc = systemd_bus_open(&bus);
    if (rc >= 0)
        rc = sd_bus_call_method(bus, "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
                                "org.freedesktop.systemd1.Manager", "ListUnitsByPatterns", NULL, &reply, "asas", 0, 1,
                                pattern);
    if (rc >= 0)
        rc = sd_bus_message_enter_container(reply, 'a', "(ssssssouso)");
    while (rc >= 0 && (rc = sd_bus_message_read(reply, "(ssssssouso)", &unit, &description, NULL, NULL, NULL, NULL,
                                                NULL, NULL, NULL, NULL)) > 0)
        fn(unit, description, arg);
    return rc;
}
