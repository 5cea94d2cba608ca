/* SPDX-License-Identifier: GPL-2.0-or-later */
/* resident.h - the part of mapped files that is in memory */
#ifndef SNAPFERRY_BASE_RESIDENT_H
#define SNAPFERRY_BASE_RESIDENT_H

#include <stdint.h>

/* Bytes of pages of files and of shared memory that this process has mapped, programs and libraries included (RssFile
 * and RssShmem). 0: unknown. Takes about a microsecond. */
uint64_t resident_shared(void);

#endif
