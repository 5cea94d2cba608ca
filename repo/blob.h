/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blob.h - a store of named immutable byte strings (Kopia repository format, section 2)
 *
 * Guarantees of every store: a put is atomic for readers and lists, and durable when it returns (file synced, renamed,
 * directory synced). Deleting a missing blob succeeds. A missing blob is -ENOENT (class ERR_DAMAGE, since the caller
 * expects it to exist), distinct from every other error. All functions are thread-safe.
 */
#ifndef SNAPFERRY_REPO_BLOB_H
#define SNAPFERRY_REPO_BLOB_H

#include "base/err.h"
#include "base/throttle.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLOB_NAME_MAX 255

struct blobs;

struct blob_info {
    char name[BLOB_NAME_MAX + 1];
    uint64_t length;  /* bytes */
    int64_t mtime_ns; /* by the storage's clock, since 1970 */
};

/* Counters since opening, for summaries and tests. */
struct blob_stats {
    uint64_t puts, put_bytes, gets, get_bytes, deletes, lists;
};

/* Requests since opening, for metrics: results and latencies. Invalid requests are not counted. A read that
 * continues the previous one is not counted separately. */
enum blob_request { BLOB_REQUEST_GET, BLOB_REQUEST_PUT, BLOB_REQUEST_LIST, BLOB_REQUEST_DELETE, BLOB_REQUEST_STAT };
#define BLOB_REQUESTS 5
enum blob_code { BLOB_OK, BLOB_NOT_FOUND, BLOB_NO_SPACE, BLOB_PERMISSION, BLOB_DAMAGE, BLOB_ERROR };
#define BLOB_CODES 6
#define BLOB_BOUNDS 12
extern const char *const blob_request_names[BLOB_REQUESTS]; /* "get", ... */
extern const char *const blob_code_names[BLOB_CODES];       /* "ok", "not-found", ... */
extern const double blob_bounds[BLOB_BOUNDS];               /* seconds, ascending */
struct blob_request_stats {
    struct {
        uint64_t codes[BLOB_CODES], ns;
        uint64_t took[BLOB_BOUNDS + 1]; /* above blob_bounds[i - 1], up to blob_bounds[i]; the last: above all */
    } of[BLOB_REQUESTS];
    uint64_t retries; /* repeated requests */
};

enum blobs_open_mode {
    BLOBS_OPEN,  /* an existing directory; .shards missing: [3,3] is assumed as stock clients do, never written */
    BLOBS_CREATE /* created if missing, else must be empty (except lost+found): ERR_EXISTS; .shards is written first */
};

/*
 * A directory, sharded according to its .shards ("default", "overrides", "maxNonShardedLength"). `shards` is the
 * "default" of a new store, NULL for {1,3}; n_shards its length (0 with non-NULL shards: flat). Files written by root
 * get the owner and group of the repository's directory. Errors: ERR_NO_REPO (no such directory), ERR_EXISTS,
 * ERR_DAMAGE (bad .shards, or lost although the repository is visibly not [3,3]), ERR_PERMISSION.
 */
int blobs_open_dir(struct blobs **ret, const char *dir, enum blobs_open_mode mode, const int *shards, size_t n_shards,
                   struct err *e);
void blobs_free(struct blobs *b);
static inline void blobs_freep(struct blobs **b)
{
    blobs_free(*b);
}

const char *blobs_location(const struct blobs *b); /* for messages: "/srv/backup" */
/* Limits the rate of reads and writes of blobs, each where not NULL; the throttles are owned by the caller and must
 * remain valid until limits of NULL are set. Not while requests are in progress. */
void blobs_limit(struct blobs *b, struct throttle *reads, struct throttle *writes);
/*
 * Once *requested is true, what reads documents, manifests or indexes, or lists blobs, ends with ERR_INTERRUPTED
 * (-ECANCELED): a repository can be arbitrarily large. Reads of data (which have a cancel of their own) and writes
 * do where they wait for a server. NULL: never. Not while requests are in progress. Returns what was set before: who
 * borrows the store puts it back.
 */
const _Atomic bool *blobs_stop(struct blobs *b, const _Atomic bool *requested);
/*
 * Once *requested is true, a store that waits for a server gives up soon: what is still written, a checkpoint, is worth
 * a few seconds and not minutes. NULL: never. Not while requests are in progress.
 */
void blobs_hurry(struct blobs *b, const _Atomic bool *requested);
int blobs_stopped(const struct blobs *b, struct err *e);
/* *counter grows with each request that succeeds, and with each part of a long one: a sign that work goes on which has
 * no other counter. NULL: none. Not while requests are in progress. */
void blobs_activity(struct blobs *b, _Atomic uint64_t *counter);
/* Object lock: blobs of packs, indexes and the format that are put from now on can be neither deleted nor changed for
 * `period_ns`. `mode`: "GOVERNANCE", "COMPLIANCE" or "" (no lock). Stores without object lock ignore it. Thread-safe.
 */
void blobs_retain(struct blobs *b, const char *mode, int64_t period_ns);
bool blobs_have_locks(const struct blobs *b); /* whether the kind of store knows object lock */
/* Whether this one does, as far as it can be asked: 1 or 0. -EACCES: the key may not ask. */
int blobs_take_locks(struct blobs *b, struct err *e);
/* Locks a blob for that period from now on, as if it were put now. -EOPNOTSUPP: stores without object lock.
 * Thread-safe. */
int blobs_extend(struct blobs *b, const char *name, struct err *e);
/* Whether it is shown as it was at an earlier time, read only. */
bool blobs_are_past(const struct blobs *b);
void blobs_stats(struct blobs *b, struct blob_stats *ret);
void blobs_request_stats(struct blobs *b, struct blob_request_stats *ret);

/* Exactly dst[0..len) from `offset`; a shorter blob is ERR_DAMAGE (-EBADMSG), a missing one -ENOENT. */
int blobs_read(struct blobs *b, const char *name, uint64_t offset, void *dst, size_t len, struct err *e);
/* What there is of dst[0..len) from `offset`, which must be in the blob: *got is less than len where it ends before.
 * Stores of files do not offer it (-EOPNOTSUPP). */
int blobs_read_upto(struct blobs *b, const char *name, uint64_t offset, void *dst, size_t len, size_t *got,
                    struct err *e);
/* A descriptor of the blob, open for reading and owned by the caller, from stores that keep blobs in files; from
 * others -EOPNOTSUPP. Not counted as a get. */
int blobs_open_file(struct blobs *b, const char *name, struct err *e);
bool blobs_are_files(const struct blobs *b);
/* A directory that was opened without a .shards: it may be one that another process is making just now, with another
 * layout than the one that was assumed. */
bool blobs_layout_is_guessed(const struct blobs *b);
/* Whether who opens the store now finds its blobs where this process does. ERR_DAMAGE: what defines that was changed
 * or lost since it was opened. */
int blobs_check_layout(struct blobs *b, struct err *e);
/* Reads what the store has to know before it is written to, unless that was done: in object storage one request, for
 * what says the storage class of blobs. A put does it by itself; done earlier, errors are those of opening.
 * Thread-safe. */
int blobs_prepare(struct blobs *b, struct err *e);
/* A whole blob of at most `max` bytes into malloc()ed memory (followed by a NUL). */
int blobs_get(struct blobs *b, const char *name, size_t max, uint8_t **ret, size_t *len, struct err *e);
int blobs_stat(struct blobs *b, const char *name, struct blob_info *ret, struct err *e);
/* Writes or replaces. */
int blobs_put(struct blobs *b, const char *name, const void *data, size_t len, struct err *e);
int blobs_delete(struct blobs *b, const char *name, struct err *e);
/* Gives a blob another name, under which there is none. Where the store cannot rename it is copied, and deleted when
 * the copy was made; a failure in between leaves both. -ENOENT: there is no such blob. */
int blobs_move(struct blobs *b, const char *from, const char *to, struct err *e);

/* Calls fn for every blob whose name begins with `prefix`, in no order; a non-zero result of fn ends the walk and is
 * returned. Directories that cannot contain such a name are not entered. Memory does not grow with the number of
 * blobs. */
typedef int blob_list_fn(const struct blob_info *info, void *arg);
int blobs_list(struct blobs *b, const char *prefix, blob_list_fn *fn, void *arg, struct err *e);

/*
 * Whether lists may lag behind what was put and deleted, as in object storage. What this process has put and deleted
 * within the last 15 minutes is right in its lists all the same, as is what others of this node have; the rest may lag.
 * blobs_is_listed() asks whether the storage's own list has a blob with this time (to a second) or a later one: 1 or 0.
 */
bool blobs_lists_lag(const struct blobs *b);
int blobs_is_listed(struct blobs *b, const char *name, int64_t mtime_ns, struct err *e);

/* Files of killed writers, which are no blobs: fn gets the name of the blob that was being written, and returns 1 for
 * one to remove, 0 for one to leave. One that a process of this machine has open stays. Stores without such files:
 * none. */
struct blob_leftovers {
    uint64_t files, bytes; /* removed; with dry_run: would be */
    uint64_t kept;
};
int blobs_leftovers(struct blobs *b, blob_list_fn *fn, void *arg, bool dry_run, struct blob_leftovers *ret,
                    struct err *e);

/*
 * Room. A directory store keeps a small file whose room is given back, piece by piece, to writes that would otherwise
 * fail because the file system or a quota is full, while blobs_use_reserve() allows it: for the small blobs without
 * which nothing can be deleted, never for backups. blobs_reserve() makes the file, or makes it whole again, where that
 * leaves enough room for others; that it cannot be made is logged. Stores without it do nothing. blobs_use_reserve()
 * returns what was set before. blobs_room(): -EOPNOTSUPP (no error is set) where it is unknown.
 */
struct blob_room {
    uint64_t free, reserve; /* bytes: for who is not privileged; left in the reserve */
};
bool blobs_use_reserve(struct blobs *b, bool on);
void blobs_reserve(struct blobs *b);
int blobs_room(struct blobs *b, struct blob_room *ret, struct err *e);
/* The storage's clock, without writing data; -EOPNOTSUPP (no error is set): only a put shows it. */
int blobs_clock(struct blobs *b, int64_t *ns, struct err *e);

/*
 * A blob written in pieces, never entirely in memory: pieces at any offsets, from any thread, concurrently.
 * Page-aligned pieces at page-aligned offsets may bypass the page cache. commit makes it visible and durable; abort (or
 * a crash) leaves nothing visible to readers and lists. commit and abort free the writer (also on failure).
 */
struct blob_writer;
int blob_writer_new(struct blob_writer **ret, struct blobs *b, const char *name, struct err *e);
int blob_writer_write(struct blob_writer *w, uint64_t offset, const void *data, size_t len, struct err *e);
/* Reads back what was written (its own pieces only). */
int blob_writer_read(struct blob_writer *w, uint64_t offset, void *data, size_t len, struct err *e);
/* Whether concurrent writes are faster than sequential ones. */
bool blob_writer_at_once(const struct blob_writer *w);
int blob_writer_commit(struct blob_writer *w, uint64_t length, struct err *e);
void blob_writer_abort(struct blob_writer *w);
/* How many blobs may be committed at a time: in object storage one commit is one connection. */
unsigned blobs_uploads(const struct blobs *b);

#endif
