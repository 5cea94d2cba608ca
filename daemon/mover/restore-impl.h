/* SPDX-License-Identifier: GPL-2.0-or-later */
/* restore-impl.h - shared by restore.c and restore-position.c (internal to the mover) */
#ifndef SNAPFERRY_DAEMON_MOVER_RESTORE_IMPL_H
#define SNAPFERRY_DAEMON_MOVER_RESTORE_IMPL_H

#include "daemon/mover/fetch.h"
#include "io/target.h"

#include <stdatomic.h>
#include <sys/stat.h>

/* The target: a path or the address of an NBD export, or a descriptor with such a name. */
struct place {
    const char *name;
    int fd; /* -1: none */
};

struct restore {
    struct repo *repo;
    const struct restore_opts *o;
    struct target *target;
    struct restore_result *result;
    struct mover_progress *progress;
    struct throttle *writes;
    uint64_t from, to;     /* range of the object */
    size_t max_len;        /* longest content expected */
    unsigned buffers;      /* per worker */
    uint64_t zero_unit;    /* of the target, 0: zeros among data are written */
    uint64_t check_below;  /* resumed: data below it may be present already, and is compared by hash */
    char state_file[4400]; /* one for each target */
    char state_head[512];  /* identifies the object */
    _Atomic uint64_t written, zeroed, equal, fetched, resumed;
};

/* ---- how far the target is complete (restore-position.c) ---- */

/* A target has one state file, named after the target and not after the object: the next restore to it replaces the
 * file. */
void position_name(struct restore *r, const struct object_id *obj, const struct place *to, const struct stat *st);
/* Recorded position of an interrupted restore of this object to this target; -1 if there is none. */
int64_t position_read(const struct restore *r);
void position_note(const struct restore *r, uint64_t pos);

/* A position is recorded while the workers are busy with what is behind it. */
struct noting {
    uint64_t pos;        /* recorded */
    double since;        /* when */
    uint64_t stride;     /* until the next one, bytes */
    uint64_t next, mark; /* the next one, and the fetcher's mark of it: to be recorded when all before it is written */
};

void noting_begin(struct noting *n, const struct restore *r);
int note_if_due(struct noting *n, struct restore *r, struct fetcher *f, uint64_t pos, struct err *e);
/* Behind the last part: the position that was handed over is recorded while the rest is worked on. */
int note_last(struct noting *n, struct restore *r, struct fetcher *f, struct err *e);

#endif
