/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * reader.h - sequential read-ahead of a source into a ring of fixed size
 *
 * A thread of the reader keeps the queue of the device full (io_uring, registered buffers and file, O_DIRECT; without
 * io_uring: preadv) and fills a ring buffer with the stream of the source's bytes. The first `window` bytes of the ring
 * are mapped a second time after its end, so that any `window` bytes of the stream are contiguous. Known holes are not
 * read. Of a hole longer than 2 * window only the first and the last `window` bytes are put into the ring, as zeros;
 * the middle is skipped, and reader_peek() returns the end of the hole, so that the splitter can skip it
 * arithmetically.
 *
 * One consumer thread calls reader_peek(); any thread may call reader_release(). Positions are byte offsets in the
 * source.
 *
 * Holes shorter than 64 KiB are read as data, which is faster. In a longer hole, a consumer at `pos` may continue at
 * any position it has been shown (below pos + avail) or at any position from zero_end - window; the range in between
 * may be skipped. A consumer that holds more than ring - want - 2 * block unreleased bytes below `pos` waits in
 * reader_peek() until another thread releases some.
 *
 * If only some ranges are to be read (reader_opts.range), what lies between them is skipped without zeros: there
 * reader_peek() returns no bytes and the end of the skipped part.
 */
#ifndef SNAPFERRY_IO_READER_H
#define SNAPFERRY_IO_READER_H

#include "base/throttle.h"
#include "io/source.h"

#include <stddef.h>

struct reader;

enum bad_read_policy {
    BAD_READ_FAIL, /* a range that is unreadable after retries is an error of class ERR_SOURCE */
    BAD_READ_MAP   /* its sectors are replaced by zeros and reported by on_bad */
};

struct reader_opts {
    uint64_t start;         /* first byte to read */
    size_t ring;            /* bytes of ring memory; rounded up to a multiple of `block`; at least 2*window + 2*block */
    size_t window;          /* maximum `want` of reader_peek(): the longest chunk */
    size_t block;           /* bytes per read, a power of two up to 64 MiB, raised to 4096 and the sector; 0: 1 MiB */
    unsigned depth;         /* reads in flight; 0: the source's default */
    struct throttle *limit; /* limit of the read rate; NULL: none. Must outlive the reader */
    bool no_uring;          /* use preadv even if io_uring is available (tests, --no-io-uring) */
    bool no_direct;         /* read through the page cache */
    enum bad_read_policy bad_read;
    unsigned retries; /* retries of a failed read before the policy applies; 0: 2 */
    /* BAD_READ_MAP: called by the reader's thread, in order of position, with adjacent sectors merged, before any byte
     * after the range is published. A device that is missing or has shrunk is an error in any case. */
    void (*on_bad)(uint64_t pos, uint64_t len, int sys, void *arg);
    void *on_bad_arg;
    /*
     * NULL: the whole source is read. Otherwise called by the reader's thread, with positions that never decrease: the
     * first range to be read that ends after `pos`, and 1; 0: there is none; negative: an error, which the next
     * reader_peek() returns. Ranges are widened to whole blocks. `start` must be 0 then.
     */
    int (*range)(uint64_t pos, struct extent *ret, void *arg, struct err *e);
    void *range_arg;
};

struct reader_stats {
    uint64_t read_bytes;               /* from the device */
    uint64_t hole_bytes;               /* known holes */
    uint64_t unread_bytes;             /* outside the ranges to be read */
    uint64_t bad_bytes;                /* mapped bad ranges */
    uint64_t wait_ns;                  /* time the consumer waited for data: the device is the bottleneck */
    uint64_t full_ns;                  /* time the reader waited for space: the following stages are the bottleneck */
    uint64_t reads;                    /* number of requests */
    unsigned inflight_max;             /* maximum in flight; 0: neither io_uring nor NBD is used */
    bool uring, direct, fixed_buffers; /* methods in use */
    char fallback[160];                /* why one is not used, "" if all are */
};

struct view {
    const uint8_t *data; /* the byte at `pos`; valid until released */
    size_t avail;        /* contiguous bytes, >= min(want, bytes left before a skipped middle or the end) */
    uint64_t zero_end;   /* end of the known hole at pos; pos if there is none */
    uint64_t unread_end; /* pos lies outside the ranges to be read: where the next one begins, or the end of the source;
                            avail is 0. Otherwise pos */
};

/* Starts the thread. `s` must outlive the reader. Ring memory is memfd-backed shared memory of `ring` bytes, in huge
 * pages if the kernel provides them. Registered buffers count against RLIMIT_MEMLOCK; if that is too small, the reader
 * does not use them and reports it in its stats. */
int reader_new(struct reader **ret, struct source *s, const struct reader_opts *o, struct err *e);
/* Stops the thread (waiting for reads in flight) and frees the ring. NULL allowed. */
void reader_free(struct reader *r);
static inline void reader_freep(struct reader **r)
{
    reader_free(*r);
}

/*
 * Waits until `want` (<= window) bytes at `pos` are available, or all up to the end of the source or the skipped middle
 * of a hole, or of a range to be read. `pos` must not be below the released position. A `pos` in the skipped middle of
 * a hole is an error of the caller (-EINVAL). At the end of the source: avail = 0.
 */
int reader_peek(struct reader *r, uint64_t pos, size_t want, struct view *ret, struct err *e);

/* Releases all bytes below `pos`, whose memory is then reused. Positions below the last one are ignored. Any thread. */
void reader_release(struct reader *r, uint64_t pos);

/* Makes a blocked reader_peek() return -ECANCELED (ERR_INTERRUPTED) soon. Any thread. */
void reader_cancel(struct reader *r);

void reader_stats(struct reader *r, struct reader_stats *ret);

/* Whether all `len` bytes are zero (ISA-L, at memory speed, stops early). */
bool zeros_only(const void *data, size_t len);

#endif
