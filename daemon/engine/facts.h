/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * facts.h - what metrics need of the records, kept in memory; the engine's files include it
 *
 * The records report each row that is changed (rows_watch), so that a scrape reads no row: with thousands of native
 * snapshots it would parse megabytes of documents while the event loop waits. Finished operations and backups are not
 * kept: they are counted when they end.
 */
#ifndef SNAPFERRY_DAEMON_ENGINE_FACTS_H
#define SNAPFERRY_DAEMON_ENGINE_FACTS_H

#include "daemon/engine/engine-impl.h"

/* States of operations that are not finished, and phases of runs, in the order of a life. */
#define FACT_STATES 8
#define FACT_PHASES 5
#define FACT_DIRECTIONS 7
extern const char *const fact_states[FACT_STATES];
extern const char *const fact_phases[FACT_PHASES];
extern const char *const fact_directions[FACT_DIRECTIONS];

struct fact {
    enum row_kind kind;
    char *id;
    char *name;   /* of the volume (operation, native, volume) */
    char *volume; /* its id */
    char *klass, *pool;
    char *labels; /* volume: as struct volume_desc; NULL: none */
    uint64_t seq;
    bool used_here;               /* volume: the configuration says that it is backed up */
    bool gone;                    /* volume: its class was listed without it; native: not on the storage */
    unsigned direction, state;    /* of the arrays above; FACT_STATES: none of them */
    bool waits;                   /* operation: operation_waits() */
    int64_t created_ns, since_ns; /* since: of the state; of a volume, of its being gone */
    /* native */
    bool hold, planned;
    unsigned reasons; /* NATIVE_*, as last planned */
    int64_t used;     /* -1: not known */
    bool moved, failed, snapshot_only;
    bool bookmark;                 /* it is gone, and a base by its bookmark */
    bool inspection, intermediate; /* kept for inspection, and its intermediate */
    int64_t kept_ns, kept_used;    /* since when, and the bytes of both */
    /* volume */
    bool good;  /* how its last backup ended */
    bool tried; /* there was one */
    int64_t size, allocated, last_success_ns, last_end_ns, last_snapshot_ns, last_changed;
    int64_t expected_ns; /* since when there is an interval_s; 0: not yet noted */
    int64_t interval_s;  /* of the most frequent job that has a schedule for it; 0: none */
    json_t *samples;     /* of the volume, while nothing here changes; made by who needs them */
};

/* Of an operation; OP_NONE: it is finished. */
static inline enum op_state fact_op_state(const struct fact *f)
{
    return f->state < FACT_STATES ? (enum op_state)(OP_QUEUED + f->state) : OP_NONE;
}

struct facts;
/* Reads the records once and listens from then on. */
int facts_new(struct engine *g, struct err *e);
void facts_free(struct engine *g);
/* What depends on the configuration and the schedule is brought up to date, and rows are read again after damage. */
void facts_refresh(struct engine *g);
typedef void fact_fn(struct fact *f, void *arg);
void facts_each(const struct engine *g, enum row_kind k, fact_fn *fn, void *arg);
/* NULL: there is none. Borrowed until the records are written again. */
const struct fact *facts_find(const struct engine *g, enum row_kind k, const char *id);
/* The reasons of native snapshots that a plan has found. */
void facts_plan(struct engine *g, const struct native_facts *f, size_t n);
/* Room of the state directory, as last looked at; total 0: not yet. */
void facts_room(struct engine *g, uint64_t free_bytes, uint64_t total);
void facts_room_get(const struct engine *g, uint64_t *free_bytes, uint64_t *total);
/* Notes in the records of volumes since when a job with a schedule names them. */
void volumes_expect(struct engine *g);
/* How a volume is judged: volume_judge(). */
enum volume_state fact_volume_state(const struct fact *volume, int64_t now);

#endif
