/* SPDX-License-Identifier: GPL-2.0-or-later */
/* records-test.h - what tests ask of shared strings and structs */
#ifndef SNAPFERRY_DAEMON_RECORDS_TEST_H
#define SNAPFERRY_DAEMON_RECORDS_TEST_H

#include <stddef.h>

/* How many different ones there are. */
size_t str_count(void);
size_t shared_count(void);

#endif
