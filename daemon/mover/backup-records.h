/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * backup-records.h - outcomes of backups in the repository (daemon/protocol/backup-record.h)
 *
 * A record as it is carried is an object {"labels": object of strings, "data": object}. Whoever can write the
 * repository can write records: those whose labels or size are not as they must be are counted, and nothing else.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_BACKUP_RECORDS_H
#define SNAPFERRY_DAEMON_MOVER_BACKUP_RECORDS_H

#include "repo/manifest.h"

/* Why a record cannot be one; NULL: its labels and size are as they must be. */
const char *backup_record_malformed(const json_t *labels, const json_t *data);

/* Adds a provisional record to the batch unless the repository has one of this backup, node and part. *added: it was.
 * It exists with the flush of the batch. */
int backup_record_provisional(struct repo *r, json_t *record, struct manifest_batch *b, bool *added, struct err *e);

/* Replaces all records of the backups that `records` (an array) are about, in one flush. */
int backup_records_write(struct repo *r, const json_t *records, struct err *e);

/* Removes all records of one backup of a node. *removed: how many. */
int backup_records_remove(struct repo *r, const char *node, const char *backup, unsigned *removed, struct err *e);

/* Removes all records of a node that is gone. */
int backup_records_forget(struct repo *r, const char *node, unsigned *removed, struct err *e);

/* Removes the provisional ones of all nodes but `node` that are older than `before_ns` (AO-17). */
int backup_records_remove_stale(struct repo *r, const char *node, int64_t before_ns, unsigned *removed, struct err *e);

/* Removes the final records of a node's backups that have no snapshot any more: at once where the backup had some,
 * after RECORD_ALONE_DAYS where it never had. */
int backup_records_tidy(struct repo *r, const char *node, int64_t now_ns, unsigned *removed, struct err *e);

/* Runs fn over the well-formed records of one node, in any order; those of others, and malformed ones, are counted. */
struct backup_records_counts {
    unsigned malformed;
    const char *why;       /* of the first malformed one */
    unsigned other, stale; /* well-formed ones of other nodes; provisional ones of these, modified before stale_ns */
};
int backup_records_each(struct repo *r, const char *node, int64_t stale_ns, manifest_fn *fn, void *arg,
                        struct backup_records_counts *counts, struct err *e);

#endif
