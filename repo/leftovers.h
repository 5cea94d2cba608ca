/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * leftovers.h - files that killed writers left in a repository
 *
 * A directory store writes NAME.f.tmp.<16 hex digits> and renames it. What a killed client leaves is seen by no reader,
 * and stock clients do not remove it. It is removed by the rule by which they remove packs that no index has:
 * the file is older than 24 h, and no marker younger than 96 h says that its session
 * is still writing. Ages are those of the storage's clock. A file that a process of this machine has open stays.
 */
#ifndef SNAPFERRY_REPO_LEFTOVERS_H
#define SNAPFERRY_REPO_LEFTOVERS_H

#include "repo/blob.h"
#include "repo/repo.h"

/* Stores whose blobs are no files have none: nothing is asked. Nothing to remove is no error, nor is a file that cannot
 * be removed (warning). */
int leftovers_remove_in(struct blobs *b, bool dry_run, struct blob_leftovers *ret, struct err *e);
int leftovers_remove(struct repo *r, bool dry_run, struct blob_leftovers *ret, struct err *e);

#endif
