/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * usage.h - what each volume takes in a repository: for itself, and together with others
 *
 * A volume is a source of snapshots (USER@HOST:/PATH), also one of a stock client. All its snapshots are walked down to
 * the last content, incomplete ones included; what several of them have in common is read once for each volume. What
 * was reached is sorted on disk and merged with the index (reach.h), so that memory does not grow with the repository,
 * but for 64 bytes a snapshot and about 400 bytes a volume.
 *
 * What cannot be read or understood is reported and left out: numbers of its volume are lower bounds then, and what
 * others share with it may seem to be theirs alone.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_USAGE_H
#define SNAPFERRY_DAEMON_MOVER_USAGE_H

#include "daemon/mover/mover.h"
#include "daemon/mover/reach.h"

struct usage_opts {
    struct mover_progress *progress; /* bytes of snapshots that were walked; NULL: none */
    struct mover_cancel *cancel;     /* NULL: never */
};

struct usage_volume {
    char *host, *user, *path;       /* its source */
    char *name;                     /* tag "volume" of the newest snapshot, as the daemon sets it; NULL: none */
    uint64_t snapshots, incomplete; /* complete and incomplete ones */
    int64_t newest_ns;              /* start of the newest snapshot, a complete one if there is any */
    int64_t size;                   /* of its data, bytes; -1: not known */
    uint64_t unreadable;            /* directories and index documents that cannot be read */
    uint32_t number;                /* in the order in which they were found */
    struct reach_volume reach;
};

struct usage_result {
    struct usage_volume **volumes; /* what takes most for itself first; then by source */
    size_t n;
    uint64_t snapshots, incomplete;
    uint64_t malformed;                 /* snapshots whose manifest cannot be understood: their volume is not known */
    uint64_t unreadable;                /* of all volumes */
    uint64_t blocks_read, blocks_known; /* of index documents of large volumes: read; known from another snapshot */
    bool complete;                      /* all was looked at, as far as it can be read: the numbers are valid */
    struct reach_total reach;
    struct reach_sum manifests; /* contents of manifests that are not marked deleted; no volume has them */
    struct reach_sum total;     /* all contents in the index: exclusive, shared, manifests, and what nothing reaches */
    double seconds;
};

/*
 * Looks at all snapshots that exist now, and writes nothing into the repository. *ret is filled in, and to be cleared
 * in any case. ERR_DAMAGE: something could not be read, the numbers are lower bounds (ret->complete), or manifests or
 * the index could not be read at all; ERR_INTERRUPTED; ERR_NO_SPACE: in the cache directory.
 */
int usage_of_volumes(struct repo *r, const struct usage_opts *o, struct usage_result *ret, struct err *e);
void usage_clear(struct usage_result *u);
/* Whether something was left out of the numbers; of one volume. */
bool usage_is_partial(const struct usage_result *u);
bool usage_volume_is_partial(const struct usage_volume *v);
/* The result as a document: members of the command's result with --json. New reference, NULL: no memory. */
json_t *usage_to_json(const struct usage_result *u);

#endif
