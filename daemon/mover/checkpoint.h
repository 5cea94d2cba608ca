/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * checkpoint.h - the snapshots that a backup commits: incomplete ones during the run, the complete one at the end
 * (internal to the mover)
 */
#ifndef SNAPFERRY_DAEMON_MOVER_CHECKPOINT_H
#define SNAPFERRY_DAEMON_MOVER_CHECKPOINT_H

#include "daemon/mover/badmap.h"
#include "daemon/mover/volume-json.h"

/* What a run knows about its snapshots. */
struct checkpoints {
    struct repo *repo;
    struct session *session;
    struct put_scratch *scratch;
    struct refs *refs;
    struct badmap *bad;
    struct reader *reader; /* NULL: nothing to read */
    const struct backup_opts *o;
    struct volume_doc doc; /* all but end, complete, numbers and bad ranges is filled in */
    /* Snapshots of this source that the next one supersedes. */
    char own[33];    /* the last checkpoint of this run, "" none */
    char (*old)[33]; /* unfinished ones of earlier runs; owned */
    size_t n_old;
    char resumed[33];                             /* the one of them whose chunks are known, "" none ... */
    uint64_t resumed_covered;                     /* ... and its length */
    struct object_id parent_image;                /* of the latest complete one; content.len 0: none */
    int64_t committed_wall_ns, committed_boot_ns; /* when references were last safe */
    bool recorded;                                /* the record of its backup went with one of them, or was there */
};

void checkpoints_begin(struct checkpoints *c);
void checkpoints_clear(struct checkpoints *c);

/* Seconds since references were last made safe, by the clock that shows more (suspend, stopped virtual machines). */
int64_t checkpoints_age_ns(const struct checkpoints *c);

/*
 * Writes the documents and the manifest of the object made so far (`stats->pos` bytes of the volume); the snapshot
 * exists after the next session_flush(). `incomplete`: NULL, "checkpoint" or "canceled". Older incomplete snapshots of
 * this source are deleted in the same commit if this one replaces them. References older than 45 minutes are looked up
 * again first.
 */
int checkpoints_commit(struct checkpoints *c, const struct object_id *image, const struct pipeline_stats *stats,
                       const char *incomplete, char manifest_id[33], struct err *e);

#endif
