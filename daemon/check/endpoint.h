/* SPDX-License-Identifier: GPL-2.0-or-later */
/* endpoint.h - whether this machine has what [metrics] names */
#ifndef SNAPFERRY_DAEMON_CHECK_ENDPOINT_H
#define SNAPFERRY_DAEMON_CHECK_ENDPOINT_H

#include "cfg/cfg.h"

/* Adds complaints about groups and directories that are not there. Looks at the file system. */
void check_endpoint(struct cfg *c);

#endif
