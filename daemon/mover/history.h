/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * history.h - which source of the repository a volume's snapshots belong to
 *
 * A new history is named after the volume, so that a person recognises it in any client's list: a file by its path, a
 * device by its path and, since device names are given anew at each start, its id: "/dev/vg0/db1@device:fs-uuid:...". A
 * history that exists keeps its name, whatever the volume is called by now and whoever began it, the daemon or -r.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_HISTORY_H
#define SNAPFERRY_DAEMON_MOVER_HISTORY_H

#include "repo/snapshot.h"

struct history {
    const char *volume_id; /* "": not known (a file with -r, which is identified by its path) */
    const char *name;      /* of the volume: its path */
    bool block;
};

/* Finds the history of user and host in *as, or names a new one: sets as->path. Earlier versions named them after the
 * volume's id ("/VOLUME-ID"), -r after the device's stable name ("/fs-uuid/..."). */
int history_find(struct repo *r, const struct history *h, struct snapshot_source *as, struct err *e);

#endif
