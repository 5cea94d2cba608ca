/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fault.h - what is said when a mapped file cannot be read
 *
 * Files of the cache are mapped after they were checked. If such a file is truncated afterwards, or its disk fails, the
 * kernel sends SIGBUS: nothing is left but to end, with the name of the file.
 */
#ifndef SNAPFERRY_BASE_FAULT_H
#define SNAPFERRY_BASE_FAULT_H

/* From now on SIGBUS for such a file writes a sentence and a hint to standard error and ends the process: with exit
 * code `code`, or if that is 0 by the signal. Other causes of SIGBUS end it by the signal alone. `program` is kept.
 * Call it once, before threads are started. */
void fault_report(const char *program, int code);

#endif
