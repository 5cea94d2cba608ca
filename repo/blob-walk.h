/* SPDX-License-Identifier: GPL-2.0-or-later */
/* blob-walk.h - the blobs below a directory (internal to the directory store) */
#ifndef SNAPFERRY_REPO_BLOB_WALK_H
#define SNAPFERRY_REPO_BLOB_WALK_H

#include "base/err.h"
#include "repo/blob.h"

/*
 * blobs_list() below the descriptor `root`, whose path `location` is for messages. Links are not followed. What has the
 * name of a blob and is no regular file is an error, as a list without it would be wrong; of packs it is logged, and
 * they are left out, as packs are looked for by name.
 */
int blob_walk(int root, const char *location, const char *prefix, blob_list_fn *fn, void *arg, struct err *e);

#endif
