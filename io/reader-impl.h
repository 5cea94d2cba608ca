/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * reader-impl.h - shared by the files of the reader: reader.c (planning, thread, consumer) uses reader-flight.c (reads
 * in flight), both use reader-hand.c (synchronous reads), and all use reader-lists.c (holes).
 */
#ifndef SNAPFERRY_IO_READER_IMPL_H
#define SNAPFERRY_IO_READER_IMPL_H

#include "io/nbd-link.h"
#include "io/reader-test.h"
#include "io/reader.h"

#include <liburing.h>
#include <pthread.h>

/*
 * Addresses. A position in the source is `pos`. Bytes in the ring have a second, gapless address v = pos - base and are
 * stored at v % ring. base is a multiple of `block` and grows by the length of each skipped middle of a hole, which is
 * a multiple of `block`, too. Therefore v and pos are equal modulo the block, reads have the alignment required by
 * O_DIRECT, and no block straddles the end of the ring.
 *
 * Pieces (a read, or zeros of a hole) are started in order, completed in any order, and published in order.
 */
#define PAGE ((size_t)4096)
#define HUGE_PAGE ((size_t)2 << 20)
#define BLOCK_DEFAULT ((size_t)1 << 20)
#define BLOCK_MAX ((size_t)64 << 20)
#define DEPTH_MAX 256u
#define POOL_MAX 8u                   /* threads used without io_uring */
#define FIXED_MAX ((size_t)512 << 20) /* bytes per registered buffer; the kernel allows at most 1 GiB */
#define HOLE_MIN ((uint64_t)64 << 10) /* shorter holes are read, which is cheaper than two requests */
#define AGAIN_MAX 64u

enum piece_state { PIECE_FLYING, PIECE_DONE, PIECE_BROKEN };

struct piece {
    uint64_t pos, v;
    size_t len;   /* requested length, sector-aligned if the position is */
    uint64_t end; /* end of the piece in the stream; may be less than pos + len at the end of the source */
    size_t got;
    unsigned again;
    enum piece_state state;  /* the reader's thread only */
    enum piece_state result; /* next state, set by the thread that read */
    struct piece *next;      /* in the pool's queues */
    struct nbd_read nbd;     /* of an NBD export */
    int64_t res;
    struct reader *reader;
};

struct hole {
    uint64_t start, end;
};

struct skip {
    uint64_t from, to; /* positions [from, to) are not in the ring */
    uint64_t base;     /* of positions before `from` */
    bool unread;       /* between two ranges to be read; else the middle of a hole */
};

/* Threads that call preadv if io_uring is not available; without threads, what the thread of an NBD link has read. */
struct pool {
    pthread_mutex_t mu;
    pthread_cond_t todo_cv, done_cv;
    struct piece *todo, **todo_tail, *done;
    pthread_t thread[POOL_MAX];
    unsigned threads;
    bool stop;
};

struct reader {
    struct source *src;
    const struct source_info *info;
    struct reader_opts o;
    struct reader_fault fault;
    uint64_t size, start;
    size_t ring, window, block, align;
    unsigned depth;
    uint8_t *mem;     /* the ring, followed by its mirror */
    uint8_t *mapping; /* the whole mapping */
    size_t mapped;

    int fd_direct, fd_plain; /* fd_direct -1: no O_DIRECT; fd_plain is the source's */
    int restore_flags;       /* of the source's descriptor, if O_DIRECT had to be set on it; else -1 */
    bool use_direct;         /* reader's thread, set before the pool starts */

    /* The reader's thread only. */
    struct piece *fifo;
    unsigned fifo_cap, fifo_head, fifo_len, flying, flying_max;
    uint64_t cursor, base; /* position of the next piece */
    uint64_t range_end;    /* end of the range that is being read, in whole blocks */
    struct extent ext;     /* last queried extent */
    bool ext_valid;
    struct io_uring uring;
    bool uring_up, fixed, files_fixed; /* fixed: buffers are registered */
    struct pool pool;
    struct nbd_link *nbd; /* the source is an NBD export: no io_uring, no descriptors; of the pool only its `done` */
    uint64_t bad_start, bad_end; /* a bad range that may continue in the next piece */
    int bad_sys;
    uint64_t reads, read_bytes;

    pthread_t thread;
    bool started;
    pthread_mutex_t mu;
    pthread_cond_t data_cv, room_cv;
    /* Under mu. */
    bool cancelled, finished;
    uint64_t filled; /* end of the published data */
    uint64_t released;
    uint64_t base_first; /* base before the first of skips */
    struct hole *holes;  /* rings of `list_cap` */
    struct skip *skips;
    size_t list_cap, hole_head, hole_len, skip_head, skip_len;
    struct reader_stats st;
    struct err err; /* cls ERR_NONE: none */
};

static inline uint64_t round_down(uint64_t x, uint64_t a)
{
    return x - x % a;
}

static inline uint64_t round_up(uint64_t x, uint64_t a)
{
    return x % a ? x + (a - x % a) : x;
}

static inline uint64_t min64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- reader-lists.c: holes and skips; mu is held ---- */

struct hole *reader_hole_at(struct reader *r, size_t i);
struct skip *reader_skip_at(struct reader *r, size_t i);
/* Number of holes that begin at or before pos. */
size_t reader_holes_until(struct reader *r, uint64_t pos);
/* Number of skips whose middle begins at or before pos. */
size_t reader_skips_until(struct reader *r, uint64_t pos);
/* The gapless address of a position; for a position in a skipped middle, that of its end. */
uint64_t reader_v_of(struct reader *r, uint64_t pos);
/* Drops released entries, except those at or after the cursor. The reader's thread only. */
void reader_forget_released(struct reader *r);

/* ---- reader-hand.c ---- */

void reader_fallback(struct reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool reader_is_cancelled(struct reader *r);
int reader_cancelled(struct reader *r, struct err *e);
void reader_wait_ms(struct reader *r, unsigned ms);
int64_t reader_pread(struct reader *r, int fd, void *buf, size_t len, uint64_t pos);
/* Repairs the first piece in order by synchronous reads, so that bad ranges are found in order. */
int reader_mend(struct reader *r, struct piece *p, struct err *e);
void reader_flush_bad(struct reader *r);

/* ---- reader-flight.c ---- */

int reader_uring_open(struct reader *r);
void reader_uring_fix_buffers(struct reader *r);
int reader_pool_start(struct reader *r);
void reader_pool_stop(struct reader *r);
void reader_begin_read(struct reader *r, struct piece *p);
/* Waits for at least one read in flight. */
int reader_wait_reads(struct reader *r, struct err *e);

#endif
