/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cfg.h - the configuration: INI files into checked values that know where they come from
 *
 * /etc/snapferry/snapferry.ini, then the *.ini files of conf.d beside it in name order; a later value wins. What is read so far are
 * the [repository "NAME"] sections, which -r NAME uses; sections of the other kinds are checked for their kind only.
 * Every error of all files is reported at once, each with file:line and, for unknown words, the nearest known one.
 */
#ifndef SNAPFERRY_CFG_CFG_H
#define SNAPFERRY_CFG_CFG_H

#include "base/err.h"

#define CFG_DEFAULT_FILE "/etc/snapferry/snapferry.ini"

struct cfg_repository {
    char name[128];
    char type[32];            /* "filesystem" */
    char path[4096];          /* absolute */
    char password_file[4096]; /* absolute path or cred:NAME; "" if not set */
    char splitter[40], compression[40]; /* "" if not set */
    char origin[4224];        /* file:line of the section */
};

struct cfg;

/* Reads `file` (NULL: the default) and its conf.d. A missing default file is an empty configuration; a missing named
 * one is ERR_USAGE. On errors e->msg holds the first and how many more; log_line() has been given each of them. */
int cfg_load(struct cfg **ret, const char *file, struct err *e);
void cfg_free(struct cfg *c);
static inline void cfg_freep(struct cfg **c) { cfg_free(*c); }

/* NULL if there is no such section. The result belongs to c. */
const struct cfg_repository *cfg_repository(const struct cfg *c, const char *name);
/* Section number i, NULL past the end. */
const struct cfg_repository *cfg_repository_at(const struct cfg *c, unsigned i);

#endif
