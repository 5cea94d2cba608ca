/* SPDX-License-Identifier: GPL-2.0-or-later */
/* check.h - whether this machine has what [metrics] names */
#ifndef SNAPFERRY_DAEMON_METRICS_CHECK_H
#define SNAPFERRY_DAEMON_METRICS_CHECK_H

#include "cfg/cfg.h"

/* Adds complaints about groups and directories that are not there. Looks at the file system. */
void metrics_config_check(struct cfg *c);

#endif
