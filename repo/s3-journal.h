/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * s3-journal.h - what processes of this node have put and deleted lately, in a file of the cache directory (internal to
 * repo/)
 *
 * The next process begins where the server's lists may still lag behind the one before. So each appends what the server
 * has acknowledged to a file that belongs to the place (endpoint, bucket and prefix; a copy has the same identity as
 * its original), and its lists take what the others have appended within the last 15 minutes for something to be asked
 * about, one HEAD for each name that does not agree with the server's list.
 *
 * A record is a line: checksum, time, time by the storage's clock, length, p or d, writer, name. It is one write, and
 * begins with an end of line, so that one that a kill or a full disk has cut spoils no other. What is no valid line, or
 * of another place, is passed over; a file that is none of ours is begun anew. No lock is waited for. A file of 1 MiB,
 * or in which nothing was written for 15 minutes, becomes the old one of two. Nothing here is an error of the
 * operation: where a file cannot be used there is nothing known of others, as in a new cache directory.
 */
#ifndef SNAPFERRY_REPO_S3_JOURNAL_H
#define SNAPFERRY_REPO_S3_JOURNAL_H

#include "repo/s3-recent.h"

#define S3_JOURNAL_MAX (1u << 20) /* bytes of each of two files: some 7000 records */

struct s3_journal;

/* `place`: in words. NULL: no memory. */
struct s3_journal *s3_journal_new(const char *dir, const char *place);
void s3_journal_free(struct s3_journal *j);
/* Thread-safe, as the next. */
void s3_journal_add(struct s3_journal *j, const char *name, uint64_t length, int64_t mtime_ns, bool deleted);
/* Adds to the changes of this process those that others have told of, as `told`: the last one of each name that begins
 * with `prefix` and is not there. -ENOMEM. */
int s3_journal_merge(struct s3_journal *j, const char *prefix, struct s3_changes *c);

#endif
