/* SPDX-License-Identifier: GPL-2.0-or-later */
/* check-classes.h - the part of config_check() that calls the drivers */
#ifndef SNAPFERRY_DAEMON_CHECK_CLASSES_H
#define SNAPFERRY_DAEMON_CHECK_CLASSES_H

#include "cfg/cfg.h"

/* Drivers of all classes; with `storage` also their abilities there and the volumes. 0 or -ENOMEM. */
int check_classes(struct cfg *c, bool storage, struct err *e);

#endif
