/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * backup-record.h - the record of a backup's outcome as it lies in a repository: Kopia manifests of a type of our own
 * (AO-16 to AO-18, docs/records.md)
 *
 * Stock clients keep and ignore them. They hold no references to objects: nothing depends on them as roots of a garbage
 * collection. A backup has one for each RECORD_VOLUMES volumes ("part"). The daemon makes and reads the document, the
 * mover carries it as {"labels", "data"} and checks only labels and size.
 */
#ifndef SNAPFERRY_DAEMON_PROTOCOL_BACKUP_RECORD_H
#define SNAPFERRY_DAEMON_PROTOCOL_BACKUP_RECORD_H

/* Labels beside "type". */
#define RECORD_TYPE "snapferry-backup"
#define RECORD_LABEL_BACKUP "backup"
#define RECORD_LABEL_NODE "node"       /* its configured name, as in the sources of its snapshots */
#define RECORD_LABEL_MACHINE "machine" /* an id derived from its machine id, 32 hexadecimal digits */
#define RECORD_LABEL_PART "part"       /* from 0 */
#define RECORD_LABEL_STATE "state"
#define RECORD_PROVISIONAL "provisional" /* written with the first snapshot of the backup */
#define RECORD_FINAL "final"

#define RECORD_VERSION 1
#define RECORD_VOLUMES 128            /* of a part, at most */
#define RECORD_PARTS_MAX 512          /* of a backup */
#define RECORD_BYTES_MAX (400u << 10) /* of the document of a part, as compact JSON */
#define RECORD_VALUES_MAX (64u << 10) /* in it; a volume has about twelve */
#define RECORD_ID_MAX 191             /* bytes of a backup's id */
#define RECORD_NODE_MAX 255
#define RECORD_NAME_MAX 4095 /* of a volume */
#define RECORD_ALIAS_MAX 36

/* Days after which the final record of a backup that left no snapshot is removed. */
#define RECORD_ALONE_DAYS 90

#endif
