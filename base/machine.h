/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * machine.h - which machine this is, for what several machines write into a repository
 *
 * An id derived from the machine id for this purpose alone, so that it tells nobody the machine id itself, which is to
 * be kept secret: 32 hexadecimal digits, the same for all of snapferry's programs. Not thread-safe at the first call.
 */
#ifndef SNAPFERRY_BASE_MACHINE_H
#define SNAPFERRY_BASE_MACHINE_H

#define MACHINE_TEXT 33

/* "": this machine has no machine id. */
const char *machine_text(void);

#endif
