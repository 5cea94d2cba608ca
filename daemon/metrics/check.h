/* SPDX-License-Identifier: GPL-2.0-or-later */
/* check.h - whether this machine has what [metrics] names */
#ifndef SNAPFERRY_DAEMON_METRICS_CHECK_H
#define SNAPFERRY_DAEMON_METRICS_CHECK_H

#include "cfg/cfg.h"

/* Adds complaints: certificate and key that cannot be read or do not belong together, an expired certificate, files
 * that others may read or write, users without hashes, groups and directories that are not there. Reads files. */
void metrics_config_check(struct cfg *c);

#endif
