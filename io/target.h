/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * target.h - a block device, file or NBD export that a volume is restored to
 */
#ifndef SNAPFERRY_IO_TARGET_H
#define SNAPFERRY_IO_TARGET_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct target;

struct target_opts {
    uint64_t size;      /* the image's exact size: a file gets it, a device must have at least it */
    bool force;         /* allow a mounted or in-use device, an existing non-empty file (which is then overwritten) */
    bool keep_contents; /* differential or partial restore: an existing file is expected, neither truncated nor refused
                         */
    bool resume;        /* an existing file is the target of an interrupted restore */
    bool no_uring;
    const _Atomic bool *stop; /* a cancel, NULL: none; an NBD server that does not answer is not waited for then */
};

enum target_zero_how { ZERO_SKIPPED, ZERO_PUNCHED, ZERO_BLKZEROOUT, ZERO_WRITTEN };

struct target_stats {
    uint64_t written, punched, zeroed_out, zero_written; /* bytes */
    uint64_t write_ns, wait_ns;                          /* sums over all threads: writing, waiting for writes */
};

/*
 * Opens a device with O_EXCL (the kernel refuses devices that are mounted or in use with EBUSY) or a file (created with
 * mode 0600 if missing), and claims it. The size of a device is read from the descriptor. An address of an NBD export
 * (nbd-uri.h) is connected to; whether others use it cannot be known. Errors: ERR_TARGET (mounted, in use, locked, too
 * small, not empty, in a repository, neither device nor regular file; connection lost: errno ESHUTDOWN), ERR_NO_SPACE,
 * ERR_PERMISSION, ERR_NOT_FOUND (no such directory, socket or export), ERR_USAGE (no such address, no libnbd).
 */
int target_open(struct target **ret, const char *path, const struct target_opts *o, struct err *e);
/* As target_open(), for a descriptor opened for reading and writing (a mover receives it by SCM_RIGHTS), which is
 * duplicated and remains the caller's. `name` is for messages. Whether a device is claimed (O_EXCL) depends on how it
 * was opened. A connected socket is one of the NBD server whose export has the address `name`. */
int target_from_fd(struct target **ret, int fd, const char *name, const struct target_opts *o, struct err *e);
/* Closes without syncing; a restore is successful only after target_finish(). NULL allowed. */
void target_free(struct target *t);
static inline void target_freep(struct target **t)
{
    target_free(*t);
}

/* Existing contents that a restore to a path would overwrite. */
struct target_contents {
    bool is_block;
    uint64_t size;
    char user[256]; /* of a device, as blockdev_user(); "" for none */
};
/* True if there is a file that is not empty, or a device or NBD export with data in its first or last MiB (or a device
 * that cannot be read). Nothing is opened for writing. */
bool target_contents(const char *path, struct target_contents *ret);

bool target_is_block(const struct target *t);

/* Reads back exactly `len` bytes, fewer at the end of a file (returns bytes read >= 0, or negative errno). Any thread.
 */
int64_t target_read(struct target *t, void *buf, size_t len, uint64_t pos, struct err *e);

/* Whether a range is known to read as zeros, as an NBD server declares it; false if it is not known. Any thread. */
bool target_is_zero(struct target *t, uint64_t pos, uint64_t len);

/* The range will be read back soon. Any thread. */
void target_ahead(struct target *t, uint64_t pos, uint64_t len);

/* Makes a range read as zeros. Export: WRITE_ZEROES, holes allowed. New file: no action. File: a hole is punched.
 * Device: BLKZEROOUT (which unmaps if the device guarantees zeros), because discard does not guarantee zeros; if it is
 * not supported, zeros are written. Any thread. */
int target_zero(struct target *t, uint64_t pos, uint64_t len, enum target_zero_how *how, struct err *e);

/* How much of a range to zero at once: a device without a command for it writes all of it, for hours if it is a large
 * one, and neither reports nor stops in between. As much of it is discarded as if it were all done at once. */
uint64_t target_zero_step(const struct target *t, uint64_t pos, uint64_t len);
/* Likewise of a range that is compared first: a MiB, or the device's unit of discarding where that is larger. */
uint64_t target_compare_step(const struct target *t, uint64_t pos, uint64_t len);

/* Within data: the shortest aligned run of zeros, in bytes, that is to be zeroed and not written, since zeros need take
 * no space there (thin volumes, files, exports, other devices that unmap). 0: all is written. Any thread. */
uint64_t target_zero_unit(const struct target *t);

/* Syncs the data written and flushed so far (fdatasync). An error if the target was removed, renamed or truncated. */
int target_sync(struct target *t, struct err *e);

/* Sets the exact size of a file, syncs file and directory (or device), does not close. On success all data is durable,
 * under the name that was given. */
int target_finish(struct target *t, struct err *e);

void target_stats(const struct target *t, struct target_stats *ret);

/*
 * writer: buffers of one thread, written in any order. A file is written by one thread at a time on behalf of all; a
 * device by all threads, with io_uring, with O_DIRECT where possible; an export likewise, by its connection. Not
 * thread-safe: each worker has its own.
 */
struct writer;
int writer_new(struct writer **ret, struct target *t, unsigned buffers, size_t buffer_size, struct err *e);
void writer_free(struct writer *w); /* waits for writes in flight, ignoring errors */
static inline void writer_freep(struct writer **w)
{
    writer_free(*w);
}
/* A free buffer of buffer_size bytes; if there is none, waits for a write in flight (and reports its error). `pos`:
 * position of its first byte, if known (for a device the buffer has the same alignment). */
int writer_buffer(struct writer *w, uint64_t pos, uint8_t **ret, struct err *e);
/* Starts writing buf[skip, skip+len) at pos and takes the buffer back. Short writes are continued. */
int writer_submit(struct writer *w, uint8_t *buf, size_t skip, size_t len, uint64_t pos, struct err *e);
/* Returns an unused buffer. */
void writer_return(struct writer *w, uint8_t *buf);
/* Waits for all writes. Reports the first error. */
int writer_flush(struct writer *w, struct err *e);

#endif
