/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * source.h - a block device, image file or NBD export to be read completely
 *
 * A source is opened read-only. Its size is fixed when it is opened; a source that turns out to be shorter while it is
 * read is an error of class ERR_SOURCE and is never padded.
 */
#ifndef SNAPFERRY_IO_SOURCE_H
#define SNAPFERRY_IO_SOURCE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct source;

enum source_media { MEDIA_UNKNOWN, MEDIA_HDD, MEDIA_SSD, MEDIA_NVME, MEDIA_NETWORK };

struct source_info {
    char path[4096];   /* as given */
    char id[4096];     /* persistent path for the repository, see below */
    char id_kind[32];  /* origin of the id: "fs-uuid", "serial", "wwid", "dm-uuid", "partuuid", "file", ... */
    uint64_t size;     /* exact, bytes */
    uint32_t sector;   /* logical sector size: 512 or 4096 for devices; for files the alignment required by O_DIRECT */
    uint32_t physical; /* physical sector size, 0 if unknown */
    bool is_block;     /* block device or NBD export (else regular file) */
    bool is_nbd;       /* NBD export: there is a socket and no file; is_block, too */
    bool mounted_rw;   /* block device mounted read-write: the image is not crash-consistent */
    enum source_media media;
    unsigned depth;   /* default queue depth for this medium */
    int64_t mtime_ns; /* regular file: modification time; device: 0 */
    dev_t rdev;       /* block device: its number; NBD export: 0 */
};

/*
 * Opens `path`. The id is an absolute path that identifies the volume independently of the device name: for a file its
 * real path; for a device "/dev/disk/..."-like persistent names, in order of preference: file system UUID
 * ("/fs-uuid/UUID", probed from the superblock or taken from udev's database), dm uuid, partition uuid, wwid or serial
 * of the disk, loop device: "/loop" + the real path of its backing file (+ "@offset" if not 0). If there is none: an
 * error of class ERR_USAGE whose hint names --as. Members of one btrfs, RAID or pool share a UUID:
 * "/fs-uuid/UUID/SUB-UUID". An address of NBD (nbd-uri.h) is opened as an export; its id is the server's address and
 * the name of the export: "/nbd-unix" + the path of the socket + "/EXPORT", "/nbd/HOST:PORT/EXPORT". A disk with
 * neither wwid nor serial is identified by the UUID of its partition table
 * ("/ptuuid/..."). Control characters, backslashes and malformed UTF-8 are written as \xHH. Errors: ERR_NOT_FOUND (no
 * such file), ERR_PERMISSION, ERR_SOURCE (neither file nor block device, size unknown).
 */
int source_open(struct source **ret, const char *path, struct err *e);
/* As source_open(), for a descriptor that becomes the source's (a mover receives it by SCM_RIGHTS); `id` may be NULL. A
 * connected socket is one to the NBD server of `name`, which must be an address then. */
int source_from_fd(struct source **ret, int fd, const char *name, const char *id, struct err *e);
void source_free(struct source *s);
static inline void source_freep(struct source **s)
{
    source_free(*s);
}

/* The id of an export, as of an opened one. -ENAMETOOLONG. */
struct nbd_uri;
int source_nbd_id(const struct nbd_uri *u, char *id, size_t size);

const struct source_info *source_info(const struct source *s);
int source_fd(const struct source *s); /* stays owned by the source; -1: an NBD export */
struct nbd_link;
struct nbd_link *source_nbd(const struct source *s); /* likewise; NULL: a descriptor */

/* What lies outside of these ranges is known to be zeros (of a thin volume: not mapped). `c` is finished and outlives
 * the source; NULL: nothing is known. To be called before any thread uses the source, or when none does any more. */
struct changes;
void source_set_allocated(struct source *s, const struct changes *c);

struct extent {
    uint64_t start, len; /* bytes */
    bool hole;           /* known to be zeros without reading */
};

/* The extent that begins at `pos` < size (start == pos, len >= 1, clipped to the size). Block devices are one data
 * extent, unless source_set_allocated() was called; files are asked with SEEK_DATA/SEEK_HOLE, where the file system
 * knows, NBD servers for base:allocation. Thread-safe. */
int source_extent(struct source *s, uint64_t pos, struct extent *ret, struct err *e);

/*
 * Reads bytes [pos, pos + len) at once, outside of a reader, also while one is at work with O_DIRECT. `buf`: aligned to
 * 4096 bytes and SOURCE_READ_EXTRA longer than len; *ret points to the byte at `pos` in it. ERR_SOURCE if they cannot
 * be read, or the source ends before. Thread-safe.
 */
#define SOURCE_READ_EXTRA ((size_t)128 << 10)
int source_read(struct source *s, uint64_t pos, size_t len, void *buf, const uint8_t **ret, struct err *e);

/* Checks that the source still is what it was: size unchanged (a grown source is reported through *grown, a shrunk or
 * vanished one is ERR_SOURCE), and for a file the modification time (through *changed). An NBD server cannot be asked
 * for the size again: whether the connection still works. Pointers may be NULL. */
int source_recheck(struct source *s, bool *grown, bool *changed, struct err *e);

/* Reads `len` bytes at `pos`: their number, or negative errno. */
typedef int64_t source_pread_fn(void *arg, void *buf, size_t len, uint64_t pos);

/*
 * Whether the source can still be read at all: at its begin, its end or in its middle. A COW snapshot of LVM that has
 * overflowed refuses every read from that moment on: what was read until then is right, and no more will be. `read_at`
 * gets 4096 bytes or a sector, with the alignment that O_DIRECT requires. ERR_SOURCE, and in words whether it is such a
 * snapshot. A source of less than 4096 bytes: 0. An NBD export must be readable at its end: an export of something that
 * has become smaller looks like one with an unreadable end.
 */
int source_probe(struct source *s, source_pread_fn *read_at, void *arg, struct err *e);

/* source_probe() of a block device or NBD export past the page cache, after the last read: nothing else may read the
 * source meanwhile. A file: 0. */
int source_readable(struct source *s, struct err *e);

#endif
