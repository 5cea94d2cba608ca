/* SPDX-License-Identifier: GPL-2.0-or-later */
/* examples.h - one or two calls of each verb for its help; tests/cli/docs.sh checks them against the table of options
 */
#ifndef SNAPFERRY_DAEMON_CLI_EXAMPLES_H
#define SNAPFERRY_DAEMON_CLI_EXAMPLES_H

#include "daemon/cli/cli.h"

/* Lines that begin with two spaces and end with a newline each; never NULL. */
const char *verb_example(enum verb v);

#endif
