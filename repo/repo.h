/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * repo.h - an open repository: its contents, read and written
 *
 * The public interface of the room. Below it: blob.h (the store), format.h (parameters and keys), item.h (sealing),
 * index.h, epoch.h, indexset.h (locations of contents), compress.h. Above it: object.h (files made of contents),
 * manifest.h, snapshot.h.
 *
 * Reading is thread-safe throughout. Writing uses a session (one per run): puts from many threads, flushes from one.
 * The lock-free rules R1-R12 of the format (section 14.8) are implemented here: session marker before packs, packs
 * before indexes, indexes before the marker is deleted; deduplication only against entries that exist, are not deleted,
 * in a view no older than 15 minutes.
 */
#ifndef SNAPFERRY_REPO_REPO_H
#define SNAPFERRY_REPO_REPO_H

#include "repo/compress.h"
#include "repo/indexset.h"

struct repo;

struct repo_opts {
    const char *cache_dir; /* NULL: $XDG_CACHE_HOME or ~/.cache (root: /var/cache) /snapferry; the repository's unique
                              id is appended in hex */
    uint64_t cache_cap;    /* bytes of the cache: index blobs, and metadata; 0: 5 GiB */
    uint64_t mapped_cap;   /* bytes of mapped index pages; 0: 64 MiB */
    const char *username, *hostname; /* identity for session markers; NULL: "snapferry" and the node's short name */
    const struct format_key *key;    /* tried first, then the password; NULL: none */
    /* Manifests, directories and tables from object storage may be what another process has read before
     * (metadata-cache.h). Not for who has to know what the store has: for them it is what this process has read. */
    bool cached_metadata;
    bool damaged; /* for repair: index blobs that cannot be read are left out */
};

/* Opens format and index (format_load() and index_set_open() errors). The repo takes ownership of `b` (also on
 * failure). */
int repo_open(struct repo **ret, struct blobs *b, const char *password, const struct repo_opts *o, struct err *e);
void repo_free(struct repo *r);
static inline void repo_freep(struct repo **r)
{
    repo_free(*r);
}

/* The directory under which repositories keep their caches, created if missing: `dir`, or the default if NULL. *ret
 * is malloc()ed. For data that must be kept while the repository itself cannot be opened. */
int repo_cache_base(const char *dir, char **ret, struct err *e);

struct blobs *repo_blobs(struct repo *r);
const struct repo_format *repo_format(const struct repo *r);
/* Whether it was opened with repo_opts.key, without deriving one from the password. */
bool repo_key_given(const struct repo *r);
const struct sealer *repo_sealer(const struct repo *r);
struct index_set *repo_index(struct repo *r);
/* Entries of manifests that were read already (expanded.h). */
struct expanded *repo_expanded(struct repo *r);
/*
 * Contents and documents are held in memory as a whole, and whoever can write the repository determines their size.
 * Together they take at most `cap` bytes; more is refused (ERR_MEMORY, -ENOMEM). 0: no limit. hold and release count
 * the caller's own. repo_refused(): the cap with which the last refusal would not have been one; 0: none. Thread-safe,
 * but for repo_memory().
 */
void repo_memory(struct repo *r, uint64_t cap);
int repo_hold(struct repo *r, uint64_t bytes, struct err *e);
uint64_t repo_refused(const struct repo *r);
void repo_release(struct repo *r, uint64_t bytes);
const char *repo_cache_dir(const struct repo *r); /* this repository's own directory in the cache */

/* By how much the store's clock was ahead of the local one when a session last compared them (rule of 5 minutes):
 * false if not compared since opening. 0 while it is within the duration of the request. */
bool repo_clock_skew(struct repo *r, int64_t *ns);

/* Re-reads the format if it is older than 15 minutes (ERR_BUSY if an upgrade lock appeared) and refreshes the index
 * view if it is. Cheap otherwise. */
int repo_keep_fresh(struct repo *r, struct err *e);

/* ---- reading contents ---- */

/* Scratch memory of one reading thread. It grows on demand to the longest content read (the format's limit is 2^28
 * bytes), then reads allocate nothing. */
struct content_reader;
int content_reader_new(struct content_reader **ret, struct repo *r, struct err *e);
void content_reader_free(struct content_reader *c);
static inline void content_reader_freep(struct content_reader **c)
{
    content_reader_free(*c);
}

/* Where the time of its reads went. */
struct content_times {
    uint64_t read_ns, open_ns, expand_ns; /* fetching, decrypting, decompressing */
};
const struct content_times *content_reader_times(const struct content_reader *c);
/* Frees what it keeps for the next content, for example after an unusually large one. */
void content_reader_trim(struct content_reader *c);

/* A content that will be read soon by content_read_entry(): storage may start to fetch it. */
void content_reader_ahead(struct content_reader *c, const struct index_entry *entry);
/* Whether contents are read in small pieces. Else their sealed bytes pass through memory as a whole: with error
 * correction, and where each read of a blob is a request to a server. */
bool repo_reads_in_pieces(struct repo *r);

/* The entry of a content: index_set_find(), and what the open session has put but not flushed. */
int repo_find(struct repo *r, const struct content_id *id, struct index_entry *ret, struct err *e);

/*
 * From then on it is asked whether packs exist (again, if called twice): a content whose pack is gone or too short
 * counts as missing for repo_has() and session_has(), and session_put() stores it again, as with one that could not be
 * read since the repository was opened. Without it the index is believed, as stock clients do. Few packs are asked for
 * one by one, else all are listed. Not while other threads use the repository. A table of 24 bytes a pack in the cache
 * directory.
 */
int repo_check_packs(struct repo *r, struct err *e);
/* A pack is missing or shorter than the index says. Contents that it should have are stored again by the next backup of
 * this machine that meets them, unless the pack is back by then. Contents that could not be read are noted by
 * themselves. repo_free() saves both; repo_save_damage(): now. Thread-safe. */
void repo_note_bad_pack(struct repo *r, const char *pack);
void repo_save_damage(struct repo *r);
/*
 * The same goes for contents that error correction had to restore: nothing is lost, but the next sector of them that
 * decays may be one too many. fn is called for each of them, whenever one is read, by any thread; NULL: nothing. Not
 * while other threads use the repository. repo_is_corrected(): it was restored at this place, now or earlier by this
 * machine, and was not found to be beyond that since. Thread-safe.
 */
typedef void repo_corrected_fn(const struct index_entry *x, void *arg);
void repo_on_corrected(struct repo *r, repo_corrected_fn *fn, void *arg);
bool repo_is_corrected(struct repo *r, const struct index_entry *x);
/* Whether a content exists: an index or the open session has it, it is not deleted, and its pack is there as far as
 * packs were listed. 1, 0, or an error. Thread-safe. */
int repo_has(struct repo *r, const struct content_id *id, struct err *e);

/*
 * Reads the plaintext of a content whose entry is known (repo_find()) into out (cap >= entry->length, else -ERANGE);
 * returns its length. `stored`: the sealed bytes if the caller has fetched them (entry->packed of them), NULL to fetch.
 * Pack missing or short, authentication or length wrong: ERR_DAMAGE naming content, pack and range. `check_hash`: also
 * recompute the content's hash (verify and restore do).
 */
int64_t content_read_entry(struct content_reader *c, const struct index_entry *entry, const void *stored, void *out,
                           size_t cap, bool check_hash, struct err *e);
/* A whole content in malloc()ed memory of at most `max` bytes. Not found: index refreshed once and tried again (R8),
 * then ERR_DAMAGE (-ENOENT) naming the content. */
int64_t content_get(struct content_reader *c, const struct content_id *id, uint8_t **out, size_t max, struct err *e);
/* The same of one whose entry is known: nothing is looked up. */
int64_t content_get_entry(struct content_reader *c, const struct index_entry *entry, uint8_t **out, size_t max,
                          struct err *e);

/* ---- writing contents ---- */

struct session;

#define SESSION_BUFFER ((size_t)8 << 20)

struct session_opts {
    size_t max_pending; /* contents held since the last index flush; when 3/4 are reached a put flushes by itself;
                           0: 131072, at least 16 */
    size_t buffer;      /* memory for packs being filled, bytes; 0: SESSION_BUFFER. In pieces of 1 MiB (below 6 MiB:
                           of 256 KiB), two for each putting thread and four do; if there are less more are made */
    bool no_adopt;      /* do not look for finished packs of crashed sessions of this node */
    bool mark_later;    /* session_mark() follows: where the store is far away the first marker is put by that */
    /* Counters to which bytes are added: of contents that are appended to packs, and of packs that are full and so on
     * their way to the store. Borrowed; NULL: none. */
    _Atomic uint64_t *appended, *closed;
};

/*
 * Starts a writing session. Checks that the store is writable and the clock: when the first marker is put its storage
 * time is compared with the local time (over 5 minutes: ERR_CLOCK, marker deleted). Finished packs of earlier crashed
 * sessions (same user and host in the marker, recorded in the cache directory with an unlocked lock file) that are
 * younger than 12 h are adopted: their local indexes are read and published by the next flush; their markers are
 * deleted after that, but for those of sessions with older packs, which are left to maintenance.
 */
int session_new(struct session **ret, struct repo *r, const struct session_opts *o, struct err *e);
/* Begins to put the first marker, if it is not there yet, while contents are put already. No pack is in the store
 * before it and before the clock was checked; a failure of either is one of the session, which puts and flushes report.
 */
void session_mark(struct session *s);
/* Ends without flushing: open packs are discarded. After a successful session_flush() nothing is lost. NULL allowed. */
void session_free(struct session *s);
static inline void session_freep(struct session **s)
{
    session_free(*s);
}
struct repo *session_repo(const struct session *s); /* the repository it writes to (splitter, hash) */

/* Memory of one putting thread: compressor, compressed content, and with error correction the sealed one. */
struct put_scratch;
int put_scratch_new(struct put_scratch **ret, struct repo *r, uint32_t compression, size_t max_len, struct err *e);
void put_scratch_free(struct put_scratch *p);
static inline void put_scratch_freep(struct put_scratch **p)
{
    put_scratch_free(*p);
}
/* Bytes that put_scratch_new() takes (budget). */
size_t put_scratch_memory(const struct repo *r, uint32_t compression, size_t max_len);

struct put_result {
    bool existed;                            /* deduplicated: nothing stored */
    uint32_t stored;                         /* bytes appended to a pack */
    uint32_t compression;                    /* header id really used */
    uint64_t compress_ns, seal_ns, write_ns; /* where the time went; write_ns: waiting for the store */
};

/* True if a live content of that id exists (index view or this session): it may be referred to without being put. Marks
 * nothing. Thread-safe. 1 yes, 0 no, negative: error. */
int session_has(struct session *s, const struct content_id *id, struct err *e);

/*
 * Stores a content unless it exists. `id` is the hash of data (the caller hashes, in batches). `compression`: header id
 * to try, 0 none; ignored for index version 1. When it returns the bytes are being written to a pack; they are durable
 * and indexed only after session_flush(). A pack that reaches the format's pack size is finished (padding, local index,
 * postamble, fsync, rename) in the background. Thread-safe, each thread with its own scratch. An earlier background
 * failure is reported by the next call.
 */
int session_put(struct session *s, struct put_scratch *p, const struct content_id *id, const void *data, size_t len,
                uint32_t compression, struct put_result *ret, struct err *e);

/*
 * The same for a content that exists: it is stored once more, in another pack, and the new entry supersedes the old one
 * (maintenance: packs that are nearly empty). ret->existed: nothing was stored, because it does not exist any more, is
 * deleted, or was put since the last flush. `data` must have been compared with its hash.
 */
int session_put_again(struct session *s, struct put_scratch *p, const struct content_id *id, const void *data,
                      size_t len, uint32_t compression, struct put_result *ret, struct err *e);

/* Hash + put, for small documents. */
int session_put_bytes(struct session *s, struct put_scratch *p, char prefix, const void *data, size_t len,
                      uint32_t compression, struct content_id *ret, struct err *e);

/*
 * Makes everything put so far (by all threads, puts that returned before the call) durable and findable: finishes open
 * packs, waits for the background, writes the index, deletes the marker; later puts start a new session id. Other
 * threads may continue putting. Refreshes the view before it is 15 minutes old.
 */
int session_flush(struct session *s, struct err *e);

/* Puts since the last flush. */
uint64_t session_pending(struct session *s);

struct session_stats {
    uint64_t new_contents, new_bytes; /* plaintext */
    uint64_t stored_bytes;            /* appended to packs */
    uint64_t dup_contents, dup_bytes;
    uint64_t packs, adopted_packs, adopted_contents, index_blobs;
    uint64_t write_ns, fsync_ns; /* time in writing and in finishing packs (background) */
};
void session_stats(struct session *s, struct session_stats *ret);

#endif
