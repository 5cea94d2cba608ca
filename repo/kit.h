/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * kit.h - what is needed to open a repository again, as lines that can be printed, and typed in
 *
 * The blobs kopia.repository and kopia.blobcfg as they are in the store (Kopia repository format, section 3), and the
 * password. Each line has 30 bytes in base 32 without letters that look like digits, its number, and a checksum of 20
 * bits of both, so that what is typed wrong is found line by line. Lines may be in any order, in small letters, and
 * with other blanks; all else in the text is for people, and is not read.
 */
#ifndef SNAPFERRY_REPO_KIT_H
#define SNAPFERRY_REPO_KIT_H

#include "base/err.h"

#include <stdint.h>
#include <stdio.h>

struct kit {
    uint8_t *format, *blobcfg; /* malloc()ed; blobcfg NULL: there is none */
    size_t format_len, blobcfg_len;
    char *password; /* malloc()ed, wiped; NULL: it is not in the kit */
};
void kit_clear(struct kit *k);

/* The lines alone. */
int kit_write(FILE *f, const struct kit *k, struct err *e);
/* `bad` is called for each line that is wrong: its number in the kit, 0 if that cannot be read, and why. ERR_DAMAGE
 * then, or where lines are missing; ERR_USAGE: the text has no lines of a kit. */
typedef void kit_bad_fn(unsigned number, const char *why, void *arg);
int kit_read(struct kit *ret, const char *text, kit_bad_fn *bad, void *arg, struct err *e);

#endif
