/* SPDX-License-Identifier: GPL-2.0-or-later */
/* endpoint.h - checks of [metrics] against this machine */
#ifndef SNAPFERRY_DAEMON_CHECK_ENDPOINT_H
#define SNAPFERRY_DAEMON_CHECK_ENDPOINT_H

#include "cfg/cfg.h"

/* Adds complaints about missing groups and directories. Accesses the file system. */
void check_endpoint(struct cfg *c);

#endif
