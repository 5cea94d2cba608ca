/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * zone.h - offsets of a time zone from UTC, without touching the process's TZ
 *
 * Named zones are read from the TZif files (RFC 8536) of /usr/share/zoneinfo, or of $TZDIR. Immutable after loading;
 * any thread.
 */
#ifndef SNAPFERRY_BASE_ZONE_H
#define SNAPFERRY_BASE_ZONE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct zone;

/* `name` as in "Europe/Berlin"; "UTC" needs no file; NULL is the zone of the process. Unknown name or invalid file:
 * ERR_USAGE. */
int zone_load(struct zone **ret, const char *name, struct err *e);
void zone_free(struct zone *z);
static inline void zone_freep(struct zone **z)
{
    zone_free(*z);
}

/* The same from the bytes of a TZif file. */
int zone_parse(struct zone **ret, const uint8_t *data, size_t len, struct err *e);

/* Seconds that local time is ahead of UTC at that moment (seconds since 1970). */
int64_t zone_offset(const struct zone *z, int64_t utc);

#endif
