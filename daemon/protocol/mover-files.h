/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * mover-files.h - where an operation's result and log are
 *
 * Thread-safe. Paths are written into `out`; -ENAMETOOLONG if they do not fit into `cap` bytes, else 0.
 */
#ifndef SNAPFERRY_DAEMON_PROTOCOL_MOVER_FILES_H
#define SNAPFERRY_DAEMON_PROTOCOL_MOVER_FILES_H

#include <stddef.h>

/* Directories below the state directory. */
#define MOVER_RESULTS "results"
#define MOVER_LOGS "logs"

#define OPERATION_HASH_TEXT 33

/* An operation's id as part of a file's name: 32 hex digits of its SHA-256. */
void operation_hash(char out[OPERATION_HASH_TEXT], const char *operation);

/* STATE-DIR/results/HASH.json (docs/mover.md). */
int mover_result_path(char *out, size_t cap, const char *state_dir, const char *operation);
/* STATE-DIR/logs/HASH.log: the lines of a mover that does not log to the journal. */
int mover_log_path(char *out, size_t cap, const char *state_dir, const char *operation);
/* STATE-DIR/logs/HASH.plugin.log: what a mover plugin answered to `logs`. */
int plugin_log_path(char *out, size_t cap, const char *state_dir, const char *operation);

#endif
