/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * crash.h - places where a test may kill the process
 *
 * A test hook, always compiled in so that what is tested is what is shipped: when the environment variable
 * SNAPFERRY_CRASH_AT names a point ("pack-renamed", or "pack-renamed:3" for the third time it is passed), the process
 * kills itself there with SIGKILL, as a power cut or the OOM killer would. Without the variable a point costs one look
 * into the environment; put points where something becomes durable, not in inner loops.
 *
 * Points of repo/: marker-put, pack-written (bytes written, not yet visible), pack-renamed (visible and durable),
 * index-written, marker-deleted. Other rooms list theirs where they call it.
 */
#ifndef SNAPFERRY_BASE_CRASH_H
#define SNAPFERRY_BASE_CRASH_H

void crash_point(const char *name);

#endif
