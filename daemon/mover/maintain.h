/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * maintain.h - maintenance: what no snapshot needs is marked deleted, later dropped from the index, and its packs are
 * deleted; the index is compacted (Kopia repository format, sections 9 and 14)
 *
 * A run is judged by one view: the start time is the storage's time of the schedule blob after it was stored; then
 * session markers, index and packs are read, in this order, and all snapshots are walked. Nothing is removed by what an
 * earlier run found. A run that ends early, in whatever way, leaves the repository right: each step is complete by
 * itself, and the next run begins anew.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_MAINTAIN_H
#define SNAPFERRY_DAEMON_MOVER_MAINTAIN_H

#include "daemon/mover/mover.h"
#include "repo/epoch-tidy.h"
#include "repo/maintenance.h"
#include "repo/manifest-compact.h"

#define MAINTAIN_OWNER "snapferry-maintenance@" /* and the name of the node */
#define MAINTAIN_TAKE_OVER_NS (30 * NS_PER_MIN) /* a former owner that has not seen it yet has ended by then */

#define MAINTAIN_MACHINE_HINT                                                                                          \
    "give a cloned machine a node-name of its own; if it is a new machine, or installed again, in place of the "       \
    "former one, --take-ownership makes it the owner"

struct maintain_opts {
    const char *owner;                /* "USER@HOST": this client */
    const char *machine;              /* on this machine (base/machine.h); NULL or "": not told */
    bool full;                        /* also free space; else only the index is tidied */
    bool dry_run;                     /* nothing is written */
    bool unsafe;                      /* no delays: nobody else uses the repository */
    uint64_t read_limit, write_limit; /* bytes per second from and to the repository; 0: no limit */
    struct mover_progress *progress;
    struct mover_cancel *cancel; /* NULL: never */
};

/* A number of things and their bytes in packs. */
struct maintain_sum {
    uint64_t n, bytes;
};

struct maintain_result {
    int64_t started_ns; /* by the storage's clock; a dry run: by the local one */
    uint64_t snapshots, incomplete;
    struct maintain_sum used;    /* contents that snapshots, policies and the like need */
    struct maintain_sum young;   /* contents that nothing needs, too young to be marked deleted */
    int64_t young_until_ns;      /* when the last of them is old enough */
    struct maintain_sum marked;  /* contents marked deleted by this run */
    struct maintain_sum waiting; /* marked deleted by earlier runs, not yet dropped */
    int64_t waiting_since_ns;    /* when the last of them was marked */
    int64_t drop_from_ns;        /* when all that is marked can be dropped, by so many more runs: */
    unsigned drop_runs;
    struct maintain_sum restored;   /* contents marked deleted that a snapshot needs: stored again */
    struct maintain_sum dropped;    /* contents dropped from the index by this run */
    int64_t watermark_ns;           /* what was marked deleted until then is dropped; INT64_MIN: nothing */
    uint64_t collections;           /* successful collections in the history, with this one */
    struct maintain_sum packs;      /* all of them before the run, with their length */
    struct maintain_sum deleted;    /* packs deleted by this run */
    struct maintain_sum rewritten;  /* contents of short packs stored again in others, in a dry run: that would be */
    uint64_t rewritten_packs;       /* the packs that contained them */
    struct maintain_sum renewed;    /* contents that error correction had to restore, likewise stored again */
    struct maintain_sum unreadable; /* contents of short packs that are damaged: left where they are */
    struct maintain_sum held;       /* packs that nothing needs, kept for now: */
    struct maintain_sum fresh;      /* - too young */
    int64_t fresh_until_ns;
    struct maintain_sum session; /* - of a session that may still be writing */
    int64_t session_until_ns;
    struct maintain_sum unknown; /* - no index has their contents, and no session marker is left */
    int64_t unknown_until_ns;
    int64_t delete_from_ns;              /* packs may be deleted from then on; INT64_MIN: at any time */
    uint64_t trapped;                    /* bytes in packs that are kept for other contents in them */
    uint64_t damaged;                    /* contents that are needed, marked deleted and cannot be read */
    struct maintain_sum markers;         /* session markers deleted */
    struct maintain_sum logs;            /* log blobs deleted */
    struct maintain_sum leftovers;       /* files of killed writers, deleted */
    struct maintain_sum unmarked;        /* contents that would be marked deleted if there were room for the marks */
    uint64_t needs;                      /* bytes of room that what was left undone needs; 0: nothing was */
    uint64_t free;                       /* bytes that were free in the end, where `needs` */
    struct maintain_sum locks;           /* blobs whose object lock was extended; in a dry run: that would be */
    struct manifest_compacted manifests; /* stored together */
    struct epoch_tidied index;           /* epochs advanced and compacted, index blobs deleted */
    int64_t next_full_ns;                /* INT64_MIN: not scheduled */
    double seconds;
};

/*
 * One run. ERR_PERMISSION (-EPERM): another client owns maintenance; ERR_FORMAT: a repository without
 * epochs; ERR_BUSY: another run, or with `unsafe` another writer; ERR_CLOCK; ERR_DAMAGE: something that snapshots may
 * need cannot be read, nothing was removed after that was found; or, if ret->damaged or ret->unreadable is not 0, the
 * run was complete but for these; ERR_NO_SPACE: the error says what was freed, and ret->needs what the rest needs. *ret
 * is filled in as far as the run went.
 */
int maintain_run(struct repo *r, const struct maintain_opts *o, struct maintain_result *ret, struct err *e);

/* Who maintains the repository. Where lists may lag, that it is another one than `owner` on `machine` is not believed
 * of a list that lacks index blobs which this node has seen: -EAGAIN (ERR_GENERIC). */
int maintain_params(struct repo *r, const char *owner, const char *machine, struct maintenance_params *ret,
                    struct err *e);

/* ---- maintain-owner.c: of another owner ---- */

/* Its name is that of `machine`, but it is another one that maintains the repository. False where one is not known. */
bool maintain_of_another_machine(const struct maintenance_params *p, const char *machine);
/* Since when it has been silent; INT64_MIN: it is not, or the repository is a copy, which nobody maintains. */
int maintain_silent_since(struct repo *r, const struct maintenance_params *p, int64_t *ret, struct err *e);
/*
 * Makes `owner` on `machine` the owner if the present one is a snapferry that has been silent (`silent_ns`), and the
 * repository is one that snapferry maintains. 1: it is, as far as can be told now: others may have done the same, and
 * who has written last is found when a run is allowed, after 30 minutes. 0: it may not.
 */
int maintain_take_over(struct repo *r, const struct maintenance_params *p, int64_t silent_ns, const char *owner,
                       const char *machine, struct err *e);

/* The numbers of a run as a document: members of the command's result with --json, and of a mover's. New reference,
 * NULL: no memory. */
json_t *maintain_result_json(const struct maintain_result *r, bool full, bool dry_run);
/* Bytes that a run has freed, of all kinds. */
uint64_t maintain_freed(const struct maintain_result *r);
/* Bytes that nothing needs and that a full run has left for now, but for those in packs with needed contents. */
uint64_t maintain_reclaimable(const struct maintain_result *r);
/* When the first of them can be freed; INT64_MIN: there are none. */
int64_t maintain_back_from(const struct maintain_result *r);

/* ---- maintain-mark.c: what snapshots need ---- */

struct id_set;
struct maintain_mark {
    struct repo *r;
    const struct mover_cancel *cancel;
    struct id_set *used, *objects; /* contents; objects seen */
    uint64_t snapshots, incomplete;
    int64_t checkpoint_ns; /* of the newest incomplete snapshot; INT64_MIN: none */
};
/* ERR_INTERRUPTED (-ECANCELED) if it was requested. */
int maintain_stopped(const struct mover_cancel *c, struct err *e);
/* Adds the contents of all snapshots that exist now. ERR_DAMAGE: one of them cannot be read or understood. */
int maintain_mark(struct maintain_mark *m, struct err *e);

#endif
