/* SPDX-License-Identifier: GPL-2.0-or-later */
/* control-names.h - what people call a backup, an operation or a native snapshot */
#ifndef SNAPFERRY_DAEMON_CONTROL_NAMES_H
#define SNAPFERRY_DAEMON_CONTROL_NAMES_H

#include "daemon/records.h"

#define NAME_BACKUP (1u << REC_BACKUP)
#define NAME_OPERATION (1u << REC_OPERATION)
#define NAME_NATIVE (1u << REC_NATIVE)

/*
 * Finds the row that `name` means among the kinds of `among`: an id; BACKUP/VOLUME for an operation; the beginning of
 * an id, at least four characters; or an id cut in the middle as tables do ("up-nightly…db1"). Several: ERR_USAGE.
 * None: ERR_NOT_FOUND.
 */
int name_find(struct records *r, const char *name, unsigned among, enum rec_kind *kind, struct rec *ret, struct err *e);

#endif
