/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * target.h - a block device or file that a volume is restored to
 */
#ifndef SNAPFERRY_IO_TARGET_H
#define SNAPFERRY_IO_TARGET_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct target;

struct target_opts {
    uint64_t size;      /* the image's exact size: a file gets it, a device must have at least it */
    bool force;         /* allow a mounted or in-use device, an existing non-empty file (which is then overwritten) */
    bool keep_contents; /* differential or partial restore: an existing file is expected, neither truncated nor refused
                         */
    bool resume;        /* an existing file is the rest of an interrupted restore */
    bool no_uring;
};

enum target_zero_how { ZERO_SKIPPED, ZERO_PUNCHED, ZERO_BLKZEROOUT, ZERO_WRITTEN };

struct target_stats {
    uint64_t written, punched, zeroed_out, zero_written; /* bytes */
    uint64_t write_ns, wait_ns; /* of all threads: in writing, in waiting until something was written */
};

/*
 * Opens a device with O_EXCL (the kernel refuses what is mounted or in use: EBUSY; mount tables only word the message)
 * or a file (created 0600 if missing). Size of a device is read from the descriptor. Errors: ERR_TARGET (mounted, in
 * use, too small, not empty, neither device nor regular file), ERR_NO_SPACE, ERR_PERMISSION, ERR_NOT_FOUND (no such
 * directory).
 */
int target_open(struct target **ret, const char *path, const struct target_opts *o, struct err *e);
/* As target_open(), on a descriptor opened for reading and writing (a mover gets it by SCM_RIGHTS), which stays the
 * caller's: it is duplicated. `name` is for messages. Whoever opened a device decides whether it was claimed (O_EXCL).
 */
int target_from_fd(struct target **ret, int fd, const char *name, const struct target_opts *o, struct err *e);
/* Closes without syncing: target_finish() is what makes a restore a success. NULL allowed. */
void target_free(struct target *t);
static inline void target_freep(struct target **t)
{
    target_free(*t);
}

/* What a restore to a path would overwrite. */
struct target_contents {
    bool is_block;
    uint64_t size;
    char user[256]; /* of a device, as blockdev_user(); "" for none */
};
/* True if there is a file that is not empty, or a device with data in its first or last MiB (or one that cannot be
 * read). Opens nothing for writing. */
bool target_contents(const char *path, struct target_contents *ret);

bool target_is_block(const struct target *t);

/* Reads back: exactly `len` bytes unless the file ends before (returns bytes read >= 0, or negative errno). Any thread.
 */
int64_t target_read(struct target *t, void *buf, size_t len, uint64_t pos, struct err *e);

/* The range will be read back soon. Any thread. */
void target_ahead(struct target *t, uint64_t pos, uint64_t len);

/* Makes a range read as zeros. New file: nothing to do. File: hole punched. Device: discard is not trusted to zero, so
 * BLKZEROOUT (which unmaps where the device guarantees zeros); where that is refused, zeros are written. Any thread. */
int target_zero(struct target *t, uint64_t pos, uint64_t len, enum target_zero_how *how, struct err *e);

/* Makes what was written and flushed so far durable (fdatasync). */
int target_sync(struct target *t, struct err *e);

/* Sets a file's exact size, fsyncs file and directory (or device), closes nothing. Success means durable. */
int target_finish(struct target *t, struct err *e);

void target_stats(const struct target *t, struct target_stats *ret);

/*
 * writer: buffers of one thread, written out of order. A file is written by one of the threads at a time, for all of
 * them; a device by all, with io_uring, past the page cache where possible. Not thread-safe: each worker has its own.
 */
struct writer;
int writer_new(struct writer **ret, struct target *t, unsigned buffers, size_t buffer_size, struct err *e);
void writer_free(struct writer *w); /* waits for writes in flight, ignoring errors */
static inline void writer_freep(struct writer **w)
{
    writer_free(*w);
}
/* A free buffer of buffer_size bytes; waits for a write in flight when there is none (and reports its error). `pos`:
 * where its first byte will be written, if that is known (a device is written from memory of the same alignment). */
int writer_buffer(struct writer *w, uint64_t pos, uint8_t **ret, struct err *e);
/* Starts writing buf[skip, skip+len) at pos; the buffer goes back to the writer. Short writes are continued. */
int writer_submit(struct writer *w, uint8_t *buf, size_t skip, size_t len, uint64_t pos, struct err *e);
/* Gives an unused buffer back. */
void writer_return(struct writer *w, uint8_t *buf);
/* Waits for all writes. The first error is reported. */
int writer_flush(struct writer *w, struct err *e);

#endif
