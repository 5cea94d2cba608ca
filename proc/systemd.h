/* SPDX-License-Identifier: GPL-2.0-or-later */
/* systemd.h - whether systemd runs the machine, and the way to it */
#ifndef SNAPFERRY_PROC_SYSTEMD_H
#define SNAPFERRY_PROC_SYSTEMD_H

#include <stdbool.h>
#include <sys/types.h>
#include <systemd/sd-bus.h>

/*
 * Whether movers, hooks and plugins are units: systemd is PID 1 here, we are root, and SNAPFERRY_NO_SYSTEMD is
 * not 1. That systemd does not answer right now is no reason for a "no": inside of a unit's sandbox a child could not
 * become its user and reach its files. Who asks it then gets an error, and tries again.
 */
bool systemd_runs(void);

/* A connection to systemd, for sd_bus_flush_close_unref(): over the system bus or, where none can be reached (it is not
 * installed, not up yet, or has been stopped), over the manager's own socket, where the same calls work and JobRemoved
 * comes as well. 0 or -errno. Does not wait for an answer. */
int systemd_bus_open(sd_bus **ret);

/* The main process of a service: 0 and its number, -ESRCH if there is none, or -errno. Waits for systemd's answer. */
int systemd_main_pid(const char *unit, pid_t *ret);

/* The units whose names match a pattern of glob(7). Waits for systemd's answer: 0 or -errno. */
typedef void systemd_unit_fn(const char *unit, const char *description, void *arg);
int systemd_list(const char *pattern, systemd_unit_fn *fn, void *arg);

#endif
