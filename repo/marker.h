/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * marker.h - the names used by a writer: session ids, their markers in the repository, their local records (Kopia
 * repository format, section 10)
 *
 * A marker blob announces to other clients that packs of this session are about to be indexed. A record is a file in
 * the local cache directory, named after the session id and locked while its process exists, so that a later run on
 * this machine can identify its own crashed sessions.
 */
#ifndef SNAPFERRY_REPO_MARKER_H
#define SNAPFERRY_REPO_MARKER_H

#include "repo/repo.h"

#define SESSION_ID_TEXT 40 /* 's', 16 hex digits, months since 2000 in hex */

int session_id_new(char out[SESSION_ID_TEXT], int64_t now_ns, struct err *e);
/* The session that wrote a pack, index or marker blob: the first part after the first '-' that begins with 's'. False
 * (and "") if there is none or it is longer than ours can be. */
bool session_id_of_blob(const char *blob, char out[SESSION_ID_TEXT]);

/*
 * Puts a marker and compares the store's clock with the local one: if they differ by over 5 minutes, in object storage
 * at three looks within two seconds, ERR_CLOCK with both times. `name` gets the blob's name, "" if nothing was
 * written. On failure the caller deletes it.
 */
int marker_put(struct repo *r, const char *session_id, int64_t start_ns, char name[BLOB_NAME_MAX + 1], struct err *e);

/* The session of a marker: its id, and when it last gave a sign of life. */
struct session_marker {
    char name[BLOB_NAME_MAX + 1], id[SESSION_ID_TEXT];
    int64_t seen_ns;  /* by its client's clock; now, if a process of this machine (with this cache) is writing it */
    int64_t mtime_ns; /* of the blob */
    bool repair;      /* put by a repair, for packs of a session that has ended (REPAIR_USER) */
};
/* The user name in such markers. */
#define REPAIR_USER "snapferry-repair"
/* All markers in the repository; *ret is malloc()ed. Those that vanish meanwhile are left out. One that cannot be read
 * is an error: packs that look unneeded may be its session's. */
int markers_load(struct repo *r, struct session_marker **ret, size_t *n, struct err *e);

/* Whether a marker, authenticated as it is, names this user and host. False also of one that cannot be read (logged) or
 * has gone. */
bool marker_is_ours(struct repo *r, const char *name);

struct session_record;
/* Makes a record and holds its lock. */
int session_record_new(struct session_record **ret, struct repo *r, const char *session_id, struct err *e);
/* Releases the lock; `remove`: nothing is left in the repository that a later run must handle. NULL allowed. */
void session_record_end(struct session_record *s, bool remove);
const char *session_record_id(const struct session_record *s);
/* Calls fn for each unlocked record of this user and host; fn owns the record, which is now locked. fn's non-zero
 * return ends it and is returned. */
typedef int session_record_fn(struct session_record *s, void *arg);
int session_records_dead(struct repo *r, session_record_fn *fn, void *arg, struct err *e);

#endif
