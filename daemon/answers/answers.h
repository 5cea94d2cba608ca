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
#include "daemon/schedule/schedule.h"

json_t *answer_operation(const struct operation *op);
/* `r` for the operations of the backup. */
json_t *answer_backup(struct records *r, const struct backup *b, bool with_operations);
json_t *answer_native(const struct native_row *n);
/* Adds to the state of a repository what the counters know of it: stored, backed_up, added, dedup, verified. */
void answer_repository_counts(struct records *r, json_t *repository);
/* Jobs with their last and next runs: [{"job", ...}]. `r` for what became of their last backups. */
json_t *answer_jobs(const struct schedule *s, struct records *r, int64_t now_ns);
/* The same without a daemon, from its records and configuration (NULL: it cannot be read, and nothing is known of next
 * runs). */
json_t *answer_jobs_offline(const struct cfg *c, struct records *r, int64_t now_ns);
/* Velero's name of a backup's phase (AO-10..13), for those who know it: "WaitingForPluginOperations". */
const char *velero_phase(enum backup_state state, bool degraded);

#endif
