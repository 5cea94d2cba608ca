/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blob-reserve.h - the room that a repository directory keeps for maintenance (internal to the directory store)
 *
 * Nothing can be deleted from a full repository without small blobs that say so. A file of incompressible bytes in the
 * repository's directory holds their room. It does not end in ".f", so that no client takes it for a blob, and lists
 * and copies of any client leave it out (Kopia repository format, section 2.2).
 */
#ifndef SNAPFERRY_REPO_BLOB_RESERVE_H
#define SNAPFERRY_REPO_BLOB_RESERVE_H

#include <stdint.h>

#define RESERVE_FILE ".snapferry-reserve"

/* Gives up to `bytes` (and some for what they need beside) back to the file system. 1: there was something to give; 0:
 * nothing is left; negative errno. `root`: descriptor of the repository's directory. */
int reserve_release(int root, uint64_t bytes);
/* Bytes that are left in it. */
uint64_t reserve_left(int root);
/* Makes it as large as it should be for its file system, if that leaves room enough for others. *fd: its descriptor
 * where it was made or changed, to be closed by the caller, else -1. Negative errno: it is as it was. */
int reserve_fill(int root, int *fd);

#endif
