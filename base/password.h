/* SPDX-License-Identifier: GPL-2.0-or-later */
/* password.h - passwords from files and credentials: never from arguments, wiped after use */
#ifndef SNAPFERRY_BASE_PASSWORD_H
#define SNAPFERRY_BASE_PASSWORD_H

#include "base/err.h"

#include <stdbool.h>
#include <sys/stat.h>

/* Reads a password from a file (or "cred:NAME": systemd credential in $CREDENTIALS_DIRECTORY), strips Unicode white
 * space at both ends as stock clients do, refuses an empty one (ERR_USAGE), files over 64 KiB, and files that others
 * can read unless `insecure` (then a warning). The caller wipes and frees it with password_free(). */
int password_read(char **ret, const char *file, bool insecure, struct err *e);
void password_free(char *p);

/* The same for another secret: `what` is its name in messages, as in "the credentials file". Never of a file that
 * others can read. */
int secret_read(char **ret, const char *what, const char *file, struct err *e);

/* Whether password_read() would find one now; without its warning. */
int password_check(const char *file, bool insecure, struct err *e);

/* Whether others than its owner, root's group and this process's group can read an open file, or one by its path (`fd`
 * negative): permission bits, and an access control list that names anybody. Files in $CREDENTIALS_DIRECTORY, where
 * systemd grants access by such a list, never are. */
bool password_exposed(int fd, const char *path, const struct stat *st);

struct stat;
/* A pipe without a name in a file system, which has its writer: of COMMAND <(COMMAND). */
bool is_inherited_pipe(int fd, const struct stat *st);

#endif
