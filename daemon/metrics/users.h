/* SPDX-License-Identifier: GPL-2.0-or-later */
/* users.h - who may read the metrics: lines USER:HASH, hashes of crypt(5) */
#ifndef SNAPFERRY_DAEMON_METRICS_USERS_H
#define SNAPFERRY_DAEMON_METRICS_USERS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* A small file, or "cred:NAME": malloc'ed text with a NUL behind it; wiped and freed by small_file_free(). More than 64
 * KiB or a NUL in it is refused. `what` names it in errors ("the users file"). */
int small_file(char **ret, const char *what, const char *name, struct err *e);
void small_file_free(char *text);

struct users;
/* Of the file's text; a line that is none, or whose hash would take seconds, is an error that names it. Empty lines and
 * those with # are skipped. */
int users_parse(struct users **ret, const char *text, struct err *e);
void users_free(struct users *u);

enum users_verdict { USERS_RIGHT, USERS_WRONG, USERS_TOO_MANY };
/* Hashes are dear by design: a password that was right is remembered, and after some wrong ones within a second, or
 * when hashing them took a tenth of the time, nothing is hashed for a while (USERS_TOO_MANY), so that guessing costs
 * this thread little. One thread at a time. */
enum users_verdict users_check(struct users *u, const char *name, const char *password);

#endif
