/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * verify-notes.h - which contents an interrupted verification has read, so that the next one goes on (internal to the
 * mover)
 *
 * A file of the cache directory, one for each choice of what is verified: a header, then blocks that are appended every
 * NOTE_SECONDS while contents are read, each with a keyed hash over itself and all before it; what a killed process or
 * a power failure left of the last one is cut off. A content is noted by 8 bytes of a keyed hash of its id and its
 * place in a pack, when it was read there and was whole. So notes stay true whatever happens meanwhile: contents of new
 * packs, and those that maintenance has stored elsewhere, are not noted and are read. Contents that were damaged, or
 * that error correction had to restore, are not noted as read: the next run reads them again and counts them in its own
 * result.
 *
 * The index, the list of packs and the documents of snapshots are not noted: each run looks at all of them.
 *
 * Notes older than VERIFY_RESUME_DAYS (mover.h), of another repository, of a copy or the original of this one, or that
 * another process is writing, are not used. One that cannot be written is logged, and costs only that the next run
 * reads more.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_VERIFY_NOTES_H
#define SNAPFERRY_DAEMON_MOVER_VERIFY_NOTES_H

#include "daemon/mover/fetch.h"
#include "daemon/mover/mapped.h"
#include "repo/repo.h"

struct verify_notes;

/* Finds the notes of an interrupted run that verified the same at the same place: `choice` (`len` bytes) says what.
 * Those of a run that was begun before `not_before_ns` (wall clock) are removed. *salt is replaced by that of the
 * interrupted run, if there was one. Nothing is written yet. One thread. ERR_MEMORY. */
int verify_notes_open(struct verify_notes **ret, struct repo *r, const void *choice, size_t len, int64_t not_before_ns,
                      uint64_t *salt, struct err *e);
/* About how many contents are noted. */
uint64_t verify_notes_expected(const struct verify_notes *n);
/* Adds the notes to `set`, with a tag of their own that is below 255: they are asked for there. Before anything is
 * read. One thread. 0, or an error of the set. */
int verify_notes_load(struct verify_notes *n, struct id_set *set, struct err *e);
/* Whether an earlier run has read it at this place. By the thread that uses the set. */
bool verify_notes_has(const struct verify_notes *n, struct id_set *set, const struct index_entry *en);
/* It was read and is whole; it cannot be read. Thread-safe. NULL allowed: nothing is noted. */
void verify_notes_whole(struct verify_notes *n, const struct index_entry *en);
void verify_notes_damaged(struct verify_notes *n, const struct content_id *id);

/* Wall clock: when what was read first was begun to be read, by this run or by an interrupted one. */
int64_t verify_notes_since(const struct verify_notes *n);
/* Whether there is something to go on with, once it is closed. */
bool verify_notes_exist(const struct verify_notes *n);

/* When all threads that use it have ended. `finished`: the verification was, and the notes are removed; else what was
 * not written is. NULL allowed. */
void verify_notes_close(struct verify_notes *n, bool finished);

#endif
