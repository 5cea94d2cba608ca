/* SPDX-License-Identifier: GPL-2.0-or-later */
/* s3-keys.h - access keys of S3, from their file: read by the command and the daemon, used by movers. Any thread. */
#ifndef SNAPFERRY_BASE_S3_KEYS_H
#define SNAPFERRY_BASE_S3_KEYS_H

#include "base/err.h"

struct s3_keys {
    char access[129], secret[257];
    char token[4097]; /* session token, "" if there is none */
};

/* From a file that others cannot read, or "cred:NAME", with the lines `access-key = `, `secret-key = ` and, optional,
 * `session-token = `; empty lines and lines that begin with # do not count. On failure *ret is wiped. */
int s3_keys_read(struct s3_keys *ret, const char *file, struct err *e);
/* The same from the text of such a file, which is named `file` in messages. */
int s3_keys_parse(struct s3_keys *ret, const char *text, const char *file, struct err *e);
/* Whether s3_keys_read() would succeed now. */
int s3_keys_check(const char *file, struct err *e);
void s3_keys_wipe(struct s3_keys *k);

#endif
