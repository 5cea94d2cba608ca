/* SPDX-License-Identifier: GPL-2.0-or-later */
/* scan-impl.h - a scan of a repository: scan.c asks and finds snapshots, scan-records.c takes outcomes over */
#ifndef SNAPFERRY_ENGINE_SCAN_IMPL_H
#define SNAPFERRY_ENGINE_SCAN_IMPL_H

#include "daemon/engine/engine-impl.h"
#include "proc/parser.h"

#define SNAPSHOTS_MAX 200000  /* of one scan: each becomes a record */
#define OPERATIONS_MAX 1000   /* of one scan: a repository of any size needs some hundred */
#define PROVISIONAL_PARTS 256 /* of one scan: documents of interrupted backups */

struct scan_counts {
    /* Of the snapshots each is one of these: in the records before, or since this scan; of a backup that was
     * interrupted; made without a daemon; passed over. */
    unsigned snapshots, matched, recorded, incomplete, untagged, passed;
    unsigned added, unreadable;  /* volumes of backups, with a snapshot or without; manifests */
    unsigned records, malformed; /* outcomes that were not known before; records that are none */
    unsigned elsewhere;          /* recent records of this node's name that another machine has made */
};

/*
 * First the records of outcomes, then the snapshots. A mover lists as many as there is room for in `listing`, in order,
 * and their pages are read from there, one after the other; the next mover begins where that one has ended. All of it
 * ends with the daemon: another scan begins anew.
 */
struct scan {
    struct scan *next;
    struct engine *engine;
    engine_reply_fn *reply; /* to a client */
    engine_wait_fn *told;   /* it is told of the operation that asks */
    scan_done_fn *done;     /* or to the engine itself */
    void *arg;
    char repository[128];
    char node[256];      /* whose */
    bool foreign;        /* another node's: only listed and restored here */
    bool remove;         /* stale provisional records go */
    bool periodic;       /* nobody reads its operations: each is removed when what it found is recorded */
    bool known_only;     /* adds nothing: looks whether what the records have is there */
    bool records;        /* these are asked for */
    char operation[512]; /* that asks */
    char after[512];     /* where what it asks for begins */
    unsigned operations; /* that were asked */
    int listing;         /* the memory file; -1: none yet */
    json_t *answer;      /* of the operation */
    size_t page_no;      /* of it, the one that is being recorded */
    uint64_t page_at;    /* in the file */
    json_t *doc;         /* the page */
    struct parse *reading;
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

/* A time that the repository has; one that is still to come is that of the scan: what somebody has dated ahead would be
 * the newest backup for ever, and missing in none. */
static inline int64_t scan_past(const struct scan *s, int64_t ns)
{
    return ns < s->began_ns ? ns : s->began_ns - 1;
}
/* A record of a page: the outcome of a backup that is not in the records is taken over. */
void scan_record(struct scan *s, const json_t *record);
/* When all snapshots were seen: backups of which there is only a provisional record were interrupted. */
void scan_interrupted(struct scan *s);
/* The row of a backup of which a snapshot was found, unless there is one. */
int scan_add_backup(struct scan *s, const char *id, const char *job, int64_t end_ns, struct err *e);
/* What is known of the volume of an operation that is new in the records. */
void scan_note_volume(struct scan *s, const struct operation *op);

#endif
