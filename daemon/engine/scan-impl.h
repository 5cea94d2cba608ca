/* SPDX-License-Identifier: GPL-2.0-or-later */
/* scan-impl.h - a scan of a repository: scan.c asks and finds snapshots, scan-records.c takes outcomes over */
#ifndef SNAPFERRY_ENGINE_SCAN_IMPL_H
#define SNAPFERRY_ENGINE_SCAN_IMPL_H

#include "daemon/engine/engine-impl.h"

#define SNAPSHOTS_MAX 200000  /* of one scan: each becomes a record */
#define PROVISIONAL_PARTS 256 /* of one scan: documents of interrupted backups */

struct scan_counts {
    unsigned snapshots, added, matched, unreadable, passed;
    unsigned records, malformed; /* outcomes taken over; records that are none */
    unsigned elsewhere;          /* recent records of this node's name that another machine has made */
};

/* Comes in pages, each a mover's result: first the records of outcomes, then the snapshots. */
struct scan {
    struct engine *engine;
    engine_reply_fn *reply; /* to a client */
    scan_done_fn *done;     /* or to the engine itself */
    void *arg;
    char repository[128];
    char node[256];      /* whose */
    bool foreign;        /* another node's: only listed and restored here */
    bool remove;         /* stale provisional records go */
    bool periodic;       /* nobody reads its operations: each is removed when its page is recorded */
    bool records;        /* the pages of records are asked for */
    char operation[512]; /* that asks for a page */
    char after[512];     /* where the page begins */
    json_t *there;       /* operation -> true */
    json_t *provisional; /* documents of backups that may have been interrupted */
    int64_t began_ns;
    int64_t recorded_ns;            /* when this daemon first saw the repository; 0: just now */
    struct scan_counts total, page; /* page: of the one that is being recorded */
    unsigned lost, other, stale, removed;
    /* of the search for what is missing: numbers of the last row that was looked at, durable and of this part */
    uint64_t looked, reached;
    unsigned lost_now;
    bool more;
};

/* A record of a page: the outcome of a backup that is not in the records is taken over. */
void scan_record(struct scan *s, const json_t *record);
/* When all snapshots were seen: backups of which there is only a provisional record were interrupted. */
void scan_interrupted(struct scan *s);
/* The row of a backup of which a snapshot was found, unless there is one. */
int scan_add_backup(struct scan *s, const char *id, const char *job, int64_t end_ns, struct err *e);
/* What is known of the volume of an operation that is new in the records. */
void scan_note_volume(struct scan *s, const struct operation *op);

#endif
