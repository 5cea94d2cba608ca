/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * outcome-record.h - the record of a backup's outcome, to and from the document in a repository (AO-16 to AO-18)
 *
 * The document is {"labels", "data"}, see daemon/protocol/backup-record.h. Whoever can write the repository can write
 * records: what is read is checked as strictly as if nobody had checked it before. Not thread-safe, as fields.h.
 */
#ifndef SNAPFERRY_DAEMON_RECORDS_OUTCOME_RECORD_H
#define SNAPFERRY_DAEMON_RECORDS_OUTCOME_RECORD_H

#include "daemon/protocol/backup-record.h"
#include "daemon/records/types.h"

/* A new reference; NULL: no memory. Reasons are removed from `r` if it were larger than RECORD_BYTES_MAX with them. */
json_t *backup_record_to_json(struct backup_record *r);
/* `ret` is uninitialized, and initialized in any case. False: it is malformed, or not of `node`. */
bool backup_record_from_json(struct backup_record *ret, const json_t *record, const char *node);
void backup_record_clear(struct backup_record *r);
/* Not empty, at most `max` bytes, without control characters. */
bool record_is_text(const char *s, size_t max);

#endif
