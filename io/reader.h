/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * reader.h - the bytes of a source, in order, ahead of need, in a ring of fixed size
 *
 * A thread of the reader keeps the device's queue full (io_uring, registered buffers and file, O_DIRECT; where io_uring
 * is refused: preadv) and fills a ring buffer with the stream of the source's bytes. The ring lies in memory twice in
 * part: its first `window` bytes are mapped again behind its end, so that any `window` bytes of the stream are
 * contiguous wherever they lie. Known holes are not read. Of a hole longer than 2 * window only the first and the last
 * `window` bytes are put into the ring, as zeros; the middle is skipped, and reader_peek() tells where the hole ends,
 * so that the splitter can step over it by arithmetic.
 *
 * One consumer thread calls peek; release may be called from any thread. Positions are byte offsets in the source.
 *
 * Holes shorter than 64 KiB count as data: reading through them is cheaper than reading around them. In a longer hole,
 * a consumer at `pos` may go on to any position that it was shown (below pos + avail) or to any from zero_end - window
 * on; what lies between may be skipped. Whoever holds on to more than ring - want - 2 * block bytes below `pos` (not
 * released) waits in reader_peek() until another thread releases some.
 */
#ifndef SNAPFERRY_IO_READER_H
#define SNAPFERRY_IO_READER_H

#include "base/throttle.h"
#include "io/source.h"

#include <stddef.h>

struct reader;

enum bad_read_policy {
    BAD_READ_FAIL, /* an unreadable range (after retries) is an error of class ERR_SOURCE */
    BAD_READ_MAP   /* its sectors are replaced by zeros and reported through on_bad */
};

struct reader_opts {
    uint64_t start;         /* first byte to read: where the caller begins */
    size_t ring;            /* bytes of ring memory; rounded up to a multiple of `block`; at least 2*window + 2*block */
    size_t window;          /* longest contiguous piece that reader_peek() may be asked for: the longest chunk */
    size_t block;           /* bytes per read, a power of two up to 64 MiB, raised to 4096 and the sector; 0: 1 MiB */
    unsigned depth;         /* reads in flight; 0: the source's default */
    struct throttle *limit; /* of what is read; NULL: none. Must outlive the reader */
    bool no_uring;          /* use preadv even where io_uring works (tests, --no-io-uring) */
    bool no_direct;         /* use the page cache */
    enum bad_read_policy bad_read;
    unsigned retries; /* per failed read before the policy applies; 0: 2 */
    /* BAD_READ_MAP: called by the reader's thread, in order of position, adjacent sectors merged into one range, before
     * any byte behind the range is handed out. A device that is gone or has shrunk is an error all the same. */
    void (*on_bad)(uint64_t pos, uint64_t len, int sys, void *arg);
    void *on_bad_arg;
};

struct reader_stats {
    uint64_t read_bytes;               /* from the device */
    uint64_t hole_bytes;               /* known holes */
    uint64_t bad_bytes;                /* mapped bad ranges */
    uint64_t wait_ns;                  /* the consumer waited for data: the device is the bottleneck */
    uint64_t full_ns;                  /* the reader waited for room: what follows is the bottleneck */
    uint64_t reads;                    /* requests */
    unsigned inflight_max;             /* most of them at once; 0: io_uring is not used */
    bool uring, direct, fixed_buffers; /* what is really used */
    char fallback[160];                /* why not, "" if all are */
};

struct view {
    const uint8_t *data; /* the byte at `pos`; valid until released */
    size_t avail;        /* contiguous bytes there, >= min(want, what is left before a skipped middle or the end) */
    uint64_t zero_end;   /* if pos lies in a known hole: its end; else pos */
};

/* Starts the thread. `s` must outlive the reader. Ring memory is memfd-backed shared memory of `ring` bytes, in
 * huge pages where the kernel makes them.
 * Registered buffers count against RLIMIT_MEMLOCK; where that is too small the reader does without and says so. */
int reader_new(struct reader **ret, struct source *s, const struct reader_opts *o, struct err *e);
/* Stops the thread (waits for reads in flight) and frees the ring. NULL allowed. */
void reader_free(struct reader *r);
static inline void reader_freep(struct reader **r)
{
    reader_free(*r);
}

/*
 * Waits until `want` (<= window) bytes at `pos` are there, or all that can be: up to the end of the source, or up to
 * the skipped middle of a hole. `pos` must not lie below what was released. A `pos` inside the skipped middle of a hole
 * is an error of the caller (-EINVAL). At the end of the source: avail = 0.
 */
int reader_peek(struct reader *r, uint64_t pos, size_t want, struct view *ret, struct err *e);

/* Everything below `pos` is no longer needed: its memory may be filled again. Never goes back. Any thread. */
void reader_release(struct reader *r, uint64_t pos);

/* Lets a blocked reader_peek() return -ECANCELED (ERR_INTERRUPTED) soon. Any thread. */
void reader_cancel(struct reader *r);

void reader_stats(struct reader *r, struct reader_stats *ret);

/* True if all `len` bytes are zero (ISA-L, at memory speed, stops early). */
bool zeros_only(const void *data, size_t len);

#endif
