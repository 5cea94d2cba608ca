/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * beneath.h - files of a directory that others may write, without following links out of it (internal to repo/)
 *
 * Root reads and writes repositories that belong to other users, who could place a symbolic link where a directory or
 * blob is expected. No component of a path may be a symbolic link or "..", not even one that stays inside. All
 * functions return a negative errno on failure: ELOOP, EXDEV or ENOTDIR for such a path. Thread-safe.
 */
#ifndef SNAPFERRY_REPO_BENEATH_H
#define SNAPFERRY_REPO_BENEATH_H

#include <sys/types.h>

/* As openat(2) with O_CLOEXEC, by openat2(2) where the kernel has it, else component by component. Returns the
 * descriptor. */
int beneath_open(int root, const char *path, int flags, mode_t mode);
/* Opens the parent directory of `path` (O_PATH); *name is its last component. Returns the descriptor. */
int beneath_parent(int root, const char *path, const char **name);

/* unlinkat(2), and renameat(2) within one directory. */
int beneath_unlink(int root, const char *path);
int beneath_rename(int root, const char *from, const char *to);

#endif
