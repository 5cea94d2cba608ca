/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tail.h - lines of a file as a process appends them
 *
 * Read parts are given back to the file system, so that a process that talks for days needs no space. One thread.
 */
#ifndef SNAPFERRY_PROC_TAIL_H
#define SNAPFERRY_PROC_TAIL_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct tail;
/* `len` bytes without the newline, not NUL-terminated; valid for the call. */
typedef void tail_fn(const char *line, size_t len, void *arg);

int tail_open(struct tail **ret, const char *path, struct err *e);
void tail_free(struct tail *t);
/* Hands on what is new, at most 256 KiB. 0: that is all; 1: there is more; -EFBIG: the process is more than 8 MiB
 * ahead, or a line is longer than 64 KiB; else -errno. `last`: the process has ended, a last line may lack its newline.
 */
int tail_read(struct tail *t, bool last, tail_fn *fn, void *arg);

#endif
