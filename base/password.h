/* SPDX-License-Identifier: GPL-2.0-or-later */
/* password.h - passwords from files and credentials: never from arguments, wiped after use */
#ifndef SNAPFERRY_BASE_PASSWORD_H
#define SNAPFERRY_BASE_PASSWORD_H

#include "base/err.h"

/* Reads a password from a file (or "cred:NAME": systemd credential in $CREDENTIALS_DIRECTORY), strips Unicode white
 * space at both ends as stock clients do, refuses an empty one (ERR_USAGE) and files over 64 KiB. The caller wipes and
 * frees it with password_free(). */
int password_read(char **ret, const char *file, struct err *e);
void password_free(char *p);

/* Whether password_read() would find one now; without its warning about the mode of the file. */
int password_check(const char *file, struct err *e);

#endif
