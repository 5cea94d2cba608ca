/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/schedule/old-timers.h"

#include "base/cleanup.h"
#include "proc/systemd.h"

#include <stdbool.h>
#include <string.h>

#define DESTINATION "org.freedesktop.systemd1"
#define MANAGER "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"
/* Of the timers and of their services. A unit of that name with another description is not touched. */
#define DESCRIPTION "Backups of snapferry's job "

static int bus_call(sd_bus *bus, const char *method, const char *unit, const char *mode, struct err *e)
{
    sd_bus_error error = SD_BUS_ERROR_NULL;
    int rc = mode ? sd_bus_call_method(bus, DESTINATION, MANAGER, method, &error, NULL, "ss", unit, mode)
                  : sd_bus_call_method(bus, DESTINATION, MANAGER, method, &error, NULL, "s", unit);
    if (rc < 0 && !sd_bus_error_has_name(&error, "org.freedesktop.systemd1.NoSuchUnit"))
        rc =
            err_plain(e, ERR_GENERIC, -rc, "%s of %s: %s", method, unit, error.message ? error.message : strerror(-rc));
    else
        rc = 0;
    sd_bus_error_free(&error);
    return rc;
}

/* A stopped timer disappears; a failed service stays listed until it is reset. */
static int remove_unit(sd_bus *bus, const char *unit, const char *active, struct err *e)
{
    int rc = strcmp(active, "failed") ? bus_call(bus, "StopUnit", unit, "replace", e) : 0;
    return rc < 0 || strcmp(active, "failed") ? rc : bus_call(bus, "ResetFailedUnit", unit, NULL, e);
}

static int remove_listed(sd_bus *bus, sd_bus_message *list, json_int_t *stopped, struct err *e)
{
    const char *unit, *description, *active;
    int rc = sd_bus_message_enter_container(list, 'a', "(ssssssouso)");
    while (rc > 0) {
        rc = sd_bus_message_read(list, "(ssssssouso)", &unit, &description, NULL, &active, NULL, NULL, NULL, NULL, NULL,
                                 NULL);
        if (rc <= 0 || strncmp(description, DESCRIPTION, sizeof DESCRIPTION - 1) != 0)
            continue;
        if ((rc = remove_unit(bus, unit, active, e)) < 0)
            return rc;
        *stopped += strstr(unit, ".timer") != NULL;
        rc = 1;
    }
    return rc < 0 ? err_set(e, ERR_GENERIC, -rc, "cannot read the list of units") : 0;
}

static void bus_closep(sd_bus **bus)
{
    sd_bus_flush_close_unref(*bus);
}

int old_timers_step(const json_t *in, json_t **out, int *fd, struct err *e)
{
    sd_bus *bus CLEANUP(bus_closep) = NULL;
    sd_bus_message *list = NULL;
    json_int_t stopped = 0;
    (void)in, (void)fd;
    int rc = systemd_bus_open(&bus);
    if (rc >= 0)
        rc = sd_bus_call_method(bus, DESTINATION, MANAGER, "ListUnitsByPatterns", NULL, &list, "asas", 0, 2,
                                "snapferry-job-*.timer", "snapferry-job-*.service");
    if (rc < 0)
        return err_set(e, ERR_GENERIC, -rc, "cannot list systemd units");
    rc = remove_listed(bus, list, &stopped, e);
    sd_bus_message_unref(list);
    if (rc == 0)
        *out = json_pack("{s:I}", "stopped", stopped);
    return rc;
}
