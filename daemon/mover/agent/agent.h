/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * agent.h - the parts of a mover process: what it runs, what it logs, what it leaves (internal to the mover process)
 */
#ifndef SNAPFERRY_DAEMON_MOVER_AGENT_AGENT_H
#define SNAPFERRY_DAEMON_MOVER_AGENT_AGENT_H

#include "daemon/mover/agent/dialer.h"
#include "daemon/mover/agent/job.h"
#include "daemon/mover/agent/link.h"
#include "daemon/mover/agent/lockdown.h"
#include "repo/repo.h"
#include "base/retention.h"

/* What a run works with. */
struct run_context {
    const struct job *job;
    int device;  /* -1: none; owned by the caller */
    int changes; /* likewise */
    int listing; /* likewise: the file for long lists */
    struct mover_progress *progress;
    struct mover_cancel *cancel;
    int copy_credentials; /* likewise */
    struct link *link;
    struct dialer *dialer; /* NULL: no store is reached over the network */
    json_t *result;        /* members are added to it */
    size_t listed;         /* bytes of the lists in it, see list_add() */
    size_t listed_values;  /* likewise */
};

/* Adds `item` (taken over, NULL: no memory) to a list of the result if there is room for it; false: it was dropped. */
bool list_add(struct run_context *x, json_t *list, json_t *item);

/* The work of each kind, on an open repository: adds its members to the result. */
int run_backup(struct run_context *x, struct repo *r, struct err *e);
int run_restore(struct run_context *x, struct repo *r, struct err *e);
int run_verify(struct run_context *x, struct repo *r, struct err *e);
int run_admin(struct run_context *x, struct repo *r, struct err *e);
int run_maintain(struct run_context *x, struct repo *r, struct err *e);
int run_copy(struct run_context *x, struct repo *r, struct err *e);
/* Its step "check" (docs/mover.md). */
int admin_check(struct run_context *x, struct repo *r, const json_t *step, json_t *answer, struct err *e);
/* Its steps "record" and "records" (run-records.c). */
int admin_record(struct run_context *x, struct repo *r, const json_t *step, json_t *answer, struct err *e);
int admin_records(struct run_context *x, struct repo *r, const json_t *step, json_t *answer, struct err *e);
/* After snapshots were removed: records of backups that have none left go, too. A failure is logged, the next one tries
 * again. */
void admin_records_tidy(struct run_context *x, struct repo *r, json_t *answer);

/* Adds "repository": requests to its store and how long they took, bytes, size of the index, clock skew. */
void repository_result(json_t *result, struct repo *r);

/* Writes the source's retention where stock clients look for it; durable when it returns. */
int policy_write(struct repo *r, const struct snapshot_source *src, const struct retention_policy *keep, struct err *e);

/* Code of an error: transient or not (docs/mover.md). `remote`: the repository is reached over the network. */
enum result_code result_code_of(const struct err *e, bool remote, bool cancel_requested);
const char *result_code_name(enum result_code c);
json_t *result_error_json(const struct err *e);
/* Replaces the file's contents by the document and makes them durable. */
int result_write(int fd, const json_t *result, struct err *e);

/* Log lines go to standard error (with the journal's level prefix if that is its reader, else with the time) and, as
 * hints, to the daemon. `l` may be NULL. A flood is cut off, and counted. */
void agent_log_start(bool debug);
void agent_log_link(struct link *l);

/* The whole life of a mover. Returns the exit status. */
int agent_main(const char *socket, const char *operation);

#endif
