/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * zfs-stream.h - what an incremental send stream of a zvol overwrites (internal to io/native)
 *
 * The stream is a row of records of 312 bytes, most with a payload behind them: struct dmu_replay_record of OpenZFS
 * (include/sys/zfs_ioctl.h), written in the byte order of the machine that made it. Only headers are looked at;
 * payloads are summed up for the checksum and dropped. Everything is a plain stream of one snapshot; compressed and
 * embedded blocks may be in it, encrypted ones not. Volumes keep their data in object 1.
 */
#ifndef SNAPFERRY_IO_NATIVE_ZFS_STREAM_H
#define SNAPFERRY_IO_NATIVE_ZFS_STREAM_H

#include "io/changes.h"

struct zfs_stream;

/* A parser of the stream from the snapshot with guid `from` (0: from nothing) to that with guid `to`; adds ranges to
 * `list`, which is borrowed: what is freed as zeros (never written, or discarded since). -ENOMEM. */
int zfs_stream_new(struct zfs_stream **ret, uint64_t from, uint64_t to, struct changes *list, struct err *e);
void zfs_stream_free(struct zfs_stream *s); /* NULL allowed */
static inline void zfs_stream_freep(struct zfs_stream **s)
{
    zfs_stream_free(*s);
}

/* The next bytes, cut anywhere. ERR_DAMAGE: malformed, or a checksum that is wrong; -ESTALE (ERR_SOURCE): of other
 * snapshots; -ENOTSUP (ERR_SOURCE): a stream that does not list all changes. After an error nothing more is taken. */
int zfs_stream_feed(struct zfs_stream *s, const void *p, size_t n, struct err *e);
/* After the last bytes: ERR_DAMAGE if the stream was not complete. */
int zfs_stream_end(const struct zfs_stream *s, struct err *e);
/* Bytes that were fed. */
uint64_t zfs_stream_bytes(const struct zfs_stream *s);

#endif
