/* SPDX-License-Identifier: GPL-2.0-or-later */
/* document.h - a document with all of its members, for people (describe --verbose) */
#ifndef SNAPFERRY_DAEMON_CLI_DOCUMENT_H
#define SNAPFERRY_DAEMON_CLI_DOCUMENT_H

#include "daemon/cli/daemon.h"

/* On standard output, a line for each member, with the unit that the suffix of its name gives (docs/control.md); empty
 * members, long ones that are for machines, and `operations` are left out. */
void print_document(const json_t *doc);

#endif
