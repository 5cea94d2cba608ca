/* SPDX-License-Identifier: GPL-2.0-or-later */
/* names.h - what people call a backup, an operation or a native snapshot */
#ifndef SNAPFERRY_DAEMON_RECORDS_NAMES_H
#define SNAPFERRY_DAEMON_RECORDS_NAMES_H

#include "daemon/records/records.h"
#include "base/json.h"

#define NAME_BACKUP (1u << ROW_BACKUP)
#define NAME_OPERATION (1u << ROW_OPERATION)
#define NAME_NATIVE (1u << ROW_NATIVE)

/*
 * Finds the kind and id of the row that `name` means among the kinds of `among`: an id; BACKUP/VOLUME for an operation;
 * the beginning of an id, at least four characters; or an id cut in the middle as tables do ("up-nightly…db1").
 * Several: ERR_USAGE, the newest of them in the hint. None: ERR_NOT_FOUND.
 */
#define NAME_ID_MAX 512
int name_find(struct records *r, const char *name, unsigned among, enum row_kind *kind, char id[NAME_ID_MAX],
              struct err *e);

/* Whether an operation's volume is called so: by its name or its id, and, if `rooted`, by its name without the slash
 * that it begins with, since BACKUP/VOLUME has that slash already. */
bool name_is_volume(const struct volume_desc *volume, const char *name, bool rooted);

/* 0 if the records know a volume of that name or id, else ERR_NOT_FOUND, with the one that was probably meant. */
int volume_known(struct records *r, const char *name, struct err *e);
/* The known volume that was probably meant: a string, NULL if none is near. */
json_t *volume_near(struct records *r, const char *name);

/* 0 for a state in which operations, or backups and restores, are shown, else ERR_USAGE. */
int state_known(enum row_kind k, const char *state, struct err *e);

#endif
