/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * freeze.h - file systems on a device, frozen while a native snapshot of it is taken (FIFREEZE)
 *
 * A frozen file system has written all that it had and waits: its state on the device is that of a clean unmount. For
 * storage that takes snapshots of devices without knowledge of what is mounted (not LVM: device-mapper does it).
 *
 * What is frozen always thaws: a process of its own waits from before the first freeze on, and thaws when the caller
 * has ended without having done so, or after FREEZE_MAX_S. Nothing is frozen later than that: a file system whose
 * writes hang for so long (its storage does not answer) goes on as soon as they do not.
 */
#ifndef SNAPFERRY_IO_NATIVE_FREEZE_H
#define SNAPFERRY_IO_NATIVE_FREEZE_H

#include <stdbool.h>
#include <stddef.h>

#define FREEZE_MAX_S 20

struct frozen;

/*
 * Freezes what is mounted read-write on any of these devices (paths), their partitions, and devices above them. What
 * cannot be frozen is not, with a line in the log: the snapshot is then as of a crash. Never frozen are file systems on
 * which the system or the daemon would wait for their thaw: the root, /usr, /var, /run, /tmp, the log, directories of
 * the daemon's service, and where the paths in `unfrozen` are (NULL-terminated, may be NULL). NULL: nothing is frozen.
 * For frozen_thaw().
 */
struct frozen *freeze_devices(const char *const *device, size_t n, const char *const *unfrozen);
/*
 * Whether all that could write to these devices is frozen: each of them, each partition, each device above them that
 * has none above it, has a file system that this node has mounted. Nothing is written to them until frozen_thaw().
 */
bool frozen_holds(const struct frozen *f);
/* Whether it would be so after freeze_devices(); nothing is frozen. */
bool freeze_can_hold(const char *const *device, size_t n, const char *const *unfrozen);
/* Thaws and frees. False: one of them had been thawed before (after FREEZE_MAX_S, or by another program). NULL is
 * allowed. */
bool frozen_thaw(struct frozen *f);

void freeze_limit_test(unsigned seconds); /* in place of FREEZE_MAX_S */

#endif
