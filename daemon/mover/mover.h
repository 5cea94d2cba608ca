/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * mover.h - the data path: a volume into the repository, and back
 *
 * One operation per call, in the caller's process (the command with -r, or a mover process of the daemon). Nothing is
 * printed: progress and results are values. Memory is a budget: anonymous and shared memory of the process stay under
 * `memory`, mapped index pages under the repo's own cap, whatever the sizes of volume and repository.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_MOVER_H
#define SNAPFERRY_DAEMON_MOVER_MOVER_H

#include "daemon/protocol/mover-limits.h"
#include "io/changes.h"
#include "io/reader.h"
#include "io/source.h"
#include "repo/snapshot.h"

#include <stdatomic.h>

#define MEMORY_DEFAULT (256u << 20)
#define MEMORY_MIN (96u << 20)

/* Progress, sampled by the caller's progress thread at any time. All counters only grow. */
enum mover_phase {
    PHASE_OPENING,    /* repository, source, parents */
    PHASE_MOVING,     /* backup: reading and storing; restore: writing; verify: reading contents */
    PHASE_COMMITTING, /* finishing packs, index, manifest; restore: fsync */
    PHASE_CHECKING,   /* verify: index against blobs; restore --verify: reading back */
    PHASE_DONE
};
struct mover_progress {
    _Atomic int phase;
    _Atomic uint64_t total;     /* bytes of the whole work, 0 while unknown */
    _Atomic uint64_t done;      /* of total: processed in whatever way */
    _Atomic uint64_t read;      /* bytes read from the source (backup) or fetched and expanded (restore, verify) */
    _Atomic uint64_t zero;      /* bytes that were read and are zero; not those of holes */
    _Atomic uint64_t skipped;   /* bytes that needed no work (known holes and zeros, unchanged, already equal) */
    _Atomic uint64_t duplicate; /* bytes of chunks that the repository had */
    _Atomic uint64_t fresh;     /* bytes of new chunks */
    _Atomic uint64_t stored;    /* bytes added to packs (backup), written to the target (restore) */
    _Atomic uint64_t errors;    /* bad ranges, damaged contents */
    /* Not in messages. */
    _Atomic uint64_t taken_in; /* backup: data that were read so far, also of chunks that have no end yet; restore and
                                  verify: fetched while moving, also of packs that are not complete yet */
    _Atomic uint64_t lead;     /* backup: by how much these may count before they are done; 0: all of them count */
    _Atomic uint64_t appended; /* backup: to packs, also behind a chunk that is still worked on; `stored` is up to it */
    _Atomic uint64_t closed;   /* backup: of packs that are full: more than `sent` while these wait for a slow store */
    _Atomic uint64_t sent;     /* backup: that the store has got, or that is being written to it */
    _Atomic uint64_t shown;    /* backup: what mover_progress_done() returned last */
    _Atomic uint64_t requests; /* to repositories that have succeeded, of work that has no counter for all it does */
};

/* Bytes of the source, of so many of packs. */
static inline uint64_t mover_progress_plain(const struct mover_progress *p, uint64_t packed)
{
    const uint64_t stored = atomic_load(&p->stored), fresh = atomic_load(&p->fresh);
    return stored ? (uint64_t)((double)packed * (double)fresh / (double)stored) : packed;
}

/* Bytes in full packs that the store has not got yet. */
static inline uint64_t mover_progress_waiting(const struct mover_progress *p)
{
    const uint64_t sent = atomic_load(&p->sent), closed = atomic_load(&p->closed);
    return closed > sent ? closed - sent : 0;
}

/* Bytes of the whole work for people and estimates: of a slow source a chunk takes seconds, and what was read of it
 * counts, but not all that is read ahead; with a slow store what waits for it does not count. That of a backup never
 * decreases. */
static inline uint64_t mover_progress_done(struct mover_progress *p)
{
    const uint64_t waiting = mover_progress_plain(p, mover_progress_waiting(p)), stored = atomic_load(&p->stored),
                   appended = atomic_load(&p->appended), lead = atomic_load(&p->lead), total = atomic_load(&p->total),
                   done = atomic_load(&p->done), seen = atomic_load(&p->skipped) + atomic_load(&p->taken_in);
    uint64_t more = seen < done ? done : lead && seen - done > lead ? done + lead : seen;
    const uint64_t ahead = appended > stored ? done + mover_progress_plain(p, appended - stored) : done;
    if (ahead > more)
        more = ahead;
    more -= waiting < more ? waiting : more;
    if (total && more > total)
        more = total;
    if (lead == 0)
        return more;
    uint64_t shown = atomic_load(&p->shown);
    while (shown < more && !atomic_compare_exchange_weak(&p->shown, &shown, more))
        ;
    return shown < more ? more : shown;
}

/* Its phase for people and estimates: what waits for a slow store is still being moved. */
static inline int mover_progress_phase(const struct mover_progress *p)
{
    const int phase = atomic_load(&p->phase);
    return phase == PHASE_COMMITTING && mover_progress_waiting(p) >> 20 ? PHASE_MOVING : phase;
}

/* Set from a signal handler or another thread: the operation ends soon, with a checkpoint if useful. And what else may
 * be told to one that runs: rates that replace those it began with, as throttle.changed. */
struct mover_cancel {
    _Atomic bool requested;
    _Atomic uint64_t read_limit, write_limit;
};
/* For bytes that are read, or written, at a rate (0: none). `c` may be NULL. */
static inline struct throttle mover_reads(uint64_t rate, const struct mover_cancel *c)
{
    return (struct throttle){.rate = rate, .stop = c ? &c->requested : NULL, .changed = c ? &c->read_limit : NULL};
}
static inline struct throttle mover_writes(uint64_t rate, const struct mover_cancel *c)
{
    return (struct throttle){.rate = rate, .stop = c ? &c->requested : NULL, .changed = c ? &c->write_limit : NULL};
}

/* Seconds in which a stage worked or waited, summed over its threads; and the bottleneck. */
struct stage_time {
    const char *name; /* "read", "zero", "split", "hash", "lookup", "compress", "encrypt", "write", "commit"; restore
                         and verify: "read", "decrypt", "decompress", "hash", "write" */
    double busy, stalled;
    uint64_t bytes;
};
#define STAGES_MAX 12

/* ---- backup ---- */

/* What is known to have changed since an earlier snapshot: the rest is taken over from that one without being read. */
struct backup_incremental {
    const char *parent;            /* manifest id, or a unique prefix of one, of a snapshot of the same source */
    const char *state;             /* change id that its volume.json must have (CF-09); NULL: not compared */
    const struct changes *changes; /* finished; borrowed */
    double sample;                 /* share of the unchanged bytes to be read and compared, 0 to 1 */
    unsigned sample_s;             /* seconds that this may take; 0: no limit */
    uint64_t sample_seed;          /* 0: random; else for tests */
};

struct backup_opts {
    /* memory: 0 is MEMORY_DEFAULT, below MEMORY_MIN is ERR_USAGE; workers: 0 is one per CPU, fewer if memory is small;
     * rates: 0 or at least THROTTLE_MIN */
    struct job_limits limits;
    uint32_t compression; /* header id, 0 none */
    const char *splitter; /* NULL: the repository's */
    const char *description;
    struct snapshot_source as; /* where it goes */
    json_t *tags;              /* object or NULL; borrowed */
    json_t
        *record; /* provisional record of its backup (backup-records.h), goes with the first snapshot; NULL, borrowed */
    json_t *facts; /* object or NULL, borrowed: additional members of volume.json (driver, class, native, ...) */
    enum bad_read_policy bad_read;
    unsigned depth; /* 0: by device */
    bool no_uring, no_direct;
    bool no_parent;                               /* do not look for a parent: no boundary hints */
    const struct backup_incremental *incremental; /* NULL: everything is read */
    bool full_scan;                               /* find the parent but scan every cut (property tests; hints off) */
    uint64_t section;      /* bytes per section; 0: 2 GiB as stock clients split large files; UINT64_MAX: none */
    unsigned checkpoint_s; /* seconds between checkpoints; 0: 1800, at most 2700 (45 min, rule R5) */
    uint64_t flush_bytes;  /* source bytes between index flushes; 0: 20 GiB */
    unsigned flush_s;      /* seconds between index flushes; 0: 600 */
    struct mover_progress *progress; /* NULL allowed */
    struct mover_cancel *cancel;     /* NULL allowed */
};

struct bad_range {
    uint64_t pos, len;
    int sys;
};
#define BAD_RANGES_MAX 1024 /* listed individually; beyond that adjacent ranges are merged */

struct backup_result {
    char manifest_id[33];
    bool incomplete; /* interrupted: manifest_id is the checkpoint's */
    bool recorded;   /* the repository has the provisional record, or had one */
    struct object_id image;
    char parent_id[33]; /* "" if none */
    uint64_t size, scanned, hole_bytes, zero_bytes, read_bytes, duplicate_bytes, new_bytes, stored_bytes;
    uint64_t chunks, zero_chunks, duplicate_chunks, new_chunks, hinted_chunks;
    uint64_t packs, adopted_packs, flushes, checkpoints;
    /* With backup_opts.incremental */
    bool incremental;   /* unchanged parts were taken over from parent_id */
    bool distrusted;    /* the list of changes was wrong: unchanged bytes differ from the parent's */
    char fallback[256]; /* why everything was read all the same, "" if it was not */
    uint64_t changed_bytes, cloned_bytes, cloned_chunks; /* in the list; taken over */
    uint64_t sampled_bytes, sampled_chunks;              /* of the latter, read and found equal */
    double seconds;
    struct bad_range *bad; /* malloc()ed by the run; backup_result_clear() */
    size_t n_bad;
    uint64_t bad_bytes;
    struct stage_time stages[STAGES_MAX];
    unsigned n_stages;
    const char *bottleneck; /* a stage's name */
    struct reader_stats reader;
    unsigned workers;
};

/*
 * Backs up one source. Returns 0 (complete; n_bad > 0 means partial: exit code ERR_PARTIAL), or -ECANCELED with class
 * ERR_INTERRUPTED after a cancel (a checkpoint was committed if anything was read: result->manifest_id), or an error.
 * On an error other than cancel finished data is flushed if possible, so that the next run finds it. The source is
 * re-checked before the snapshot is committed: one that shrank is ERR_SOURCE and no snapshot.
 *
 * With o->incremental the snapshot is the same as without, if the list of changes is right. Where the parent cannot be
 * used (gone, incomplete, of another splitter, unreadable), or a sample shows that the list is wrong, everything is
 * read, with a warning; ret->fallback has the reason.
 */
int backup_run(struct repo *r, struct source *src, const struct backup_opts *o, struct backup_result *ret,
               struct err *e);
void backup_result_clear(struct backup_result *b);

/* ---- restore ---- */

struct restore_opts {
    struct job_limits limits;
    bool force;        /* a target that is mounted, in use, not empty */
    bool differential; /* read the target and write only chunks that differ */
    bool verify;       /* read everything back after fsync and compare hashes */
    bool resume;       /* resume an interrupted restore (state file in the cache directory, checked) */
    bool no_uring;
    uint64_t offset, length; /* of the object; length 0: to the end */
    bool ranged; /* offset/length given: written at the same offset in the target, the rest of which is not changed */
    struct mover_progress *progress;
    struct mover_cancel *cancel;
};

struct restore_result {
    uint64_t size, fetched_bytes, written_bytes, zero_bytes, punched_bytes, equal_bytes, verified_bytes, resumed_bytes;
    uint64_t resumed_from; /* recorded position of the interrupted restore, in the object; 0: begun at the start */
    uint64_t contents, packs_read;
    double seconds;
    struct stage_time stages[STAGES_MAX];
    unsigned n_stages;
    const char *bottleneck;
};

/* Restores an object (volume.img or any file of a snapshot) to a device or file. Every content's hash is checked. A
 * damaged content is ERR_DAMAGE naming object range and pack; the rest of the target is not trusted then. */
int restore_run(struct repo *r, const struct object_id *obj, uint64_t size, const char *target,
                const struct restore_opts *o, struct restore_result *ret, struct err *e);

/* The same to a descriptor that was opened for reading and writing (stays the caller's); `name` is for messages. */
int restore_run_fd(struct repo *r, const struct object_id *obj, uint64_t size, int fd, const char *name,
                   const struct restore_opts *o, struct restore_result *ret, struct err *e);

/* ---- verify ---- */

struct verify_damage {
    const char *kind;     /* "bad-index", "lost-index", "missing-pack", "short-pack", "unreadable-content",
                             "missing-content",     "bad-document" */
    const char *pack;     /* "" if unknown */
    const char *content;  /* text of the id, "" if the pack as a whole */
    const char *snapshot; /* manifest id, "" while only the index is checked */
    const char *source;   /* user@host:/path, "" likewise */
    const char *path;     /* in the snapshot, "" likewise */
    uint64_t start, len;  /* byte range in that file */
    const char *why;
};
#define VERIFY_LEAST_MAX 16u
#define VERIFY_RESUME_DAYS 7
struct verify_opts {
    struct job_limits limits;
    double read_percent; /* 0..100 of contents that are read, decrypted, expanded and hashed; default 100 */
    /* Which: from this position (0 up to 100) in the order of their hashes on, after 100 from 0, so that runs one after
     * the other read all. Negative: any, others each time. */
    double read_from;
    /* If none of them is in that share: so many, chosen at random, up to VERIFY_LEAST_MAX. A volume without much data
     * has few contents. */
    unsigned read_least;
    /* Goes on where an interrupted run that verified the same ended (less than VERIFY_RESUME_DAYS ago), and lets the
     * next one do so: what was read and is where it was is not read again, all else is looked at. */
    bool resume;
    int64_t anew_ns; /* of runs that were begun before that time (wall clock) nothing counts; 0: of none */
    bool quick;      /* without (1): of the index and the packs only what the chosen snapshots need */
    struct mover_progress *progress;
    struct mover_cancel *cancel;
    /* One damage and what it affects. Called by one thread at a time. */
    void (*on_damage)(const struct verify_damage *d, void *arg);
    void *on_damage_arg;
};
struct verify_result {
    uint64_t packs_not_indexed; /* being written, or left by a crashed run */
    uint64_t index_entries, packs, snapshots, objects, contents, contents_read, bytes_read, damages, snapshots_damaged;
    /* Could be read with the help of error correction only: contents, and the packs that have them; index blobs. */
    uint64_t corrected, corrected_packs, corrected_indexes;
    /* Of contents_read and bytes_read: by the interrupted run. And when that began to read (else this one), wall clock;
     * 0 unless it may be resumed. */
    uint64_t resumed_contents, resumed_bytes;
    int64_t since_ns;
    uint64_t index_bytes; /* stored bytes of the contents in the index */
    bool index_whole;     /* all of its entries were seen: these numbers are of the repository */
    double seconds;
    struct stage_time stages[STAGES_MAX]; /* "read", "decrypt", "decompress", "hash" */
    unsigned n_stages;
    const char *bottleneck; /* a stage's name; NULL if nothing was read */
};

/*
 * Checks (1) every index entry against the blob listing, (2) every object of the chosen snapshots (ids; n == 0: all):
 * each content exists and its pack has the range, (3) reads a share of the contents. Returns 0 if no damage was found,
 * ERR_DAMAGE (-EBADMSG) otherwise (after everything was checked), other errors as they occur.
 */
int verify_run(struct repo *r, char (*ids)[33], size_t n, const struct verify_opts *o, struct verify_result *ret,
               struct err *e);

#endif
