/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * verify-corrected.h - what a verification could read only with the help of error correction
 *
 * Nothing of it is lost, and it is no damage: it is counted, once each, and stored again by the next backup of this
 * machine that meets it, or by the next full maintenance here (maintain-rewrite.c).
 */
#ifndef SNAPFERRY_DAEMON_MOVER_VERIFY_CORRECTED_H
#define SNAPFERRY_DAEMON_MOVER_VERIFY_CORRECTED_H

#include "daemon/mover/mover.h"

struct corrected;
/* Contents that are read from `r` from now on. Before other threads use it. */
int corrected_begin(struct corrected **ret, struct repo *r, struct err *e);
/* When they have ended: adds the numbers to the result. NULL allowed. */
void corrected_end(struct corrected *x, struct verify_result *ret);

#endif
