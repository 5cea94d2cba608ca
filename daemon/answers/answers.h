/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * answers.h - records as the documents of docs/control.md
 *
 * Pure functions over records, so that the command gives the same answers from the files when the daemon is down. What
 * only a running daemon knows (progress of this second) is added by the engine. New references; NULL: no memory.
 */
#ifndef SNAPFERRY_DAEMON_ANSWERS_H
#define SNAPFERRY_DAEMON_ANSWERS_H

#include "daemon/records/records.h"

json_t *answer_operation(const struct operation *op);
/* `r` for the operations of the backup. */
json_t *answer_backup(struct records *r, const struct backup *b, bool with_operations);
json_t *answer_native(const struct native_row *n);
/* Adds to the state of a repository what the counters know of it: stored, backed_up, added, dedup, verified. */
void answer_repository_counts(struct records *r, json_t *repository);
/* Adds `last_result` to a job: how its last backup ended, and when. */
void answer_job_result(struct records *r, json_t *job);
/* Velero's name of a backup's phase (AO-10..13), for those who know it: "WaitingForPluginOperations". */
const char *velero_phase(enum backup_state state, bool degraded);

#endif
