/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * crash.h - places where a test may kill the process
 *
 * A test hook, always compiled in so that the tested program is the shipped one: when the environment variable
 * SNAPFERRY_CRASH_AT names a point ("pack-renamed", or "pack-renamed:3" for the third time it is passed), the process
 * kills itself there with SIGKILL, as after a power failure or by the OOM killer. Without the variable a point costs
 * one look-up in the environment; points belong where something becomes durable, not in inner loops.
 *
 * Points of repo/: marker-put, pack-written (bytes written, not yet visible), pack-renamed (visible and durable),
 * index-written, marker-deleted. Other rooms list theirs in their files.
 */
#ifndef SNAPFERRY_BASE_CRASH_H
#define SNAPFERRY_BASE_CRASH_H

void crash_point(const char *name);

#endif
