/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * scanned.h - what a repository has, as a mover lists it: documents on the wire, decoded here, once
 *
 * An answer of a scan (docs/mover.md, verbs "scan" and "records"), a page of it, and the snapshots in that. They are
 * the word of whoever can write the repository: texts are "" and numbers 0 where a member is missing or of another
 * type, and nothing else is checked. Everything is borrowed from the document.
 */
#ifndef SNAPFERRY_DAEMON_RECORDS_SCANNED_H
#define SNAPFERRY_DAEMON_RECORDS_SCANNED_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct scan_answer {
    const json_t *pages;                      /* bytes of each page in the file for lists; NULL: it is the only one */
    const char *next;                         /* where the next list begins; "": it is the last one */
    int64_t unreadable;                       /* manifests of snapshots */
    int64_t other, stale, removed, malformed; /* records of outcomes; the last two: of all lists */
};
struct scan_answer scan_answer_read(const json_t *answer);

struct scan_page {
    const json_t *snapshots, *records; /* lists; NULL: none */
};
struct scan_page scan_page_read(const json_t *page);
/* Bytes of a page; 0: there is no such page, or its length is none. */
size_t scan_page_len(const struct scan_answer *a, size_t i);

/* A snapshot of a page: members of its manifest, and the tags that a backup of snapferry's gives it. */
struct scanned_snapshot {
    const char *id, *as; /* as: its source */
    const char *ended;   /* a time as in manifests */
    const char *incomplete;
    const char *backup, *operation, *job, *klass, *volume, *volume_id, *native;
    const char *size; /* of the volume, bytes, in digits */
};
struct scanned_snapshot scanned_snapshot_read(const json_t *snapshot);

/* When the record of an outcome was written. */
int64_t scanned_record_modified_ns(const json_t *record);

#endif
