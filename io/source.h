/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * source.h - a block device or image file that is going to be read whole
 *
 * A source is opened read-only and never written. Its size is fixed at opening time; a source that turns out shorter
 * while it is read is an error of class ERR_SOURCE, never silently padded.
 */
#ifndef SNAPFERRY_IO_SOURCE_H
#define SNAPFERRY_IO_SOURCE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct source;

enum source_media { MEDIA_UNKNOWN, MEDIA_HDD, MEDIA_SSD, MEDIA_NVME, MEDIA_NETWORK };

struct source_info {
    char path[4096];   /* as given */
    char id[4096];     /* stable path for the repository: see below */
    char id_kind[32];  /* what id was made from: "fs-uuid", "serial", "wwid", "dm-uuid", "partuuid", "file", ... */
    uint64_t size;     /* exact, bytes */
    uint32_t sector;   /* logical sector size: 512 or 4096 for devices; for files what O_DIRECT wants */
    uint32_t physical; /* physical sector size, 0 if unknown */
    bool is_block;     /* block device (else regular file) */
    bool mounted_rw;   /* block device that is mounted read-write: the image will be crash-inconsistent at best */
    enum source_media media;
    unsigned depth;   /* default queue depth for this medium */
    int64_t mtime_ns; /* regular file: modification time; device: 0 */
    dev_t rdev;       /* block device: its number */
};

/*
 * Opens `path`. The stable id is an absolute path that names the volume and not the node through which it was reached:
 * for a file its real path; for a device "/dev/disk/..."-like names that do not move, best first: file system UUID
 * ("/fs-uuid/UUID", probed from the superblock or taken from udev's database), dm uuid, partition uuid, wwid or serial
 * of the disk, loop device: "/loop" + the real path of its backing file (+ "@offset" if not 0). If nothing stable is
 * known: an error of class ERR_USAGE whose hint names --as.
 * Members of one btrfs, RAID or pool share a UUID: "/fs-uuid/UUID/SUB-UUID". A disk with neither wwid nor serial goes
 * by its partition table's UUID ("/ptuuid/..."). Control characters, backslashes and malformed UTF-8 are written as
 * \xHH. Errors: ERR_NOT_FOUND (no such file), ERR_PERMISSION, ERR_SOURCE (neither file nor block device, size unknown).
 */
int source_open(struct source **ret, const char *path, struct err *e);
/* As source_open(), on a descriptor that the caller hands over (a mover gets it by SCM_RIGHTS); `id` may be NULL. */
int source_from_fd(struct source **ret, int fd, const char *name, const char *id, struct err *e);
void source_free(struct source *s);
static inline void source_freep(struct source **s)
{
    source_free(*s);
}

const struct source_info *source_info(const struct source *s);
int source_fd(const struct source *s); /* stays owned by the source */

struct extent {
    uint64_t start, len; /* bytes */
    bool hole;           /* known to read as zeros, without reading */
};

/* The extent that begins at `pos` < size (start == pos, len >= 1, clipped to the size). Block devices are one data
 * extent; files are asked with SEEK_DATA/SEEK_HOLE, where the file system knows. Thread-safe. */
int source_extent(struct source *s, uint64_t pos, struct extent *ret, struct err *e);

/* Checks that the source still is what it was: size unchanged (a grown source is reported through *grown, a shrunk or
 * vanished one is ERR_SOURCE), and for a file the modification time (through *changed). Pointers may be NULL. */
int source_recheck(struct source *s, bool *grown, bool *changed, struct err *e);

#endif
