/* SPDX-License-Identifier: GPL-2.0-or-later */
/* blob-leftovers.h - blobs_leftovers() of the directory store */
#ifndef SNAPFERRY_REPO_BLOB_LEFTOVERS_H
#define SNAPFERRY_REPO_BLOB_LEFTOVERS_H

#include "repo/blob.h"

/* `root`: descriptor of the repository's directory. No link in it is followed. */
int blob_leftovers_sweep(int root, const char *location, blob_list_fn *fn, void *arg, bool dry_run,
                         struct blob_leftovers *ret, struct err *e);

#endif
