/* SPDX-License-Identifier: GPL-2.0-or-later */
/* target-impl.h - shared by target.c and writer.c (internal to io/, and for tests) */
#ifndef SNAPFERRY_IO_TARGET_IMPL_H
#define SNAPFERRY_IO_TARGET_IMPL_H

#include "io/target.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

/* Ways to zero that have not been refused yet. Tests disable some. */
enum { WAY_PUNCH = 1, WAY_DISCARD = 2, WAY_ZEROOUT = 4 };

#define DIRTY_SLOTS 64

struct write_buffer;
struct nbd_target;

struct target {
    char path[4096];
    struct target_opts o;
    int fd, direct;         /* direct: the same with O_DIRECT; -1: none */
    struct nbd_target *nbd; /* an export, which counts as a device; NULL: fd */
    bool is_block, is_new, created;
    bool by_fd; /* received as a descriptor: the path is only a name */
    uint64_t size;
    _Atomic uint64_t least; /* a file: bytes that it must have by now */
    dev_t rdev;
    uint32_t discard; /* granularity in bytes, 0: never discard */
    bool unmaps;      /* a device that can take space back */

    pthread_mutex_t mu;
    /* Under mu. */
    unsigned ways;
    struct target_stats st;
    int bad_sys; /* writeback failed; fsync may not report it again */
    uint64_t bad_pos;
    struct {
        uint64_t pos, len;
    } dirty[DIRTY_SLOTS]; /* written, writeback started, oldest first */
    unsigned dirty_head, dirty_len;
    uint64_t dirty_bytes;

    /* Files: queue of buffers to be written, oldest first, and whether a thread is writing. Exports: queue_moved only.
     */
    pthread_mutex_t queue_mu;
    pthread_cond_t queue_moved; /* a buffer was written */
    struct write_buffer *queue_first, *queue_last;
    bool writing;
};

/* `len` bytes at pos have been written to the page cache: starts writeback, and waits for earlier writeback if there is
 * too much of it. Any thread. */
void target_wrote(struct target *t, uint64_t pos, uint64_t len);
/* `len` bytes have been written with O_DIRECT. */
void target_count_written(struct target *t, uint64_t len);
/* Adds time spent writing, and waiting for writes. */
void target_spent(struct target *t, uint64_t write_ns, uint64_t wait_ns);

/* Refuses a file that is shorter than it must be by now. Any thread. */
int target_unchanged(const struct target *t, struct err *e);
/* The same, and a target whose name is gone or means another one now. */
int target_present(const struct target *t, struct err *e);

/* Refuses a range outside a device. */
int target_check_range(const struct target *t, uint64_t pos, uint64_t len, struct err *e);

int target_write_error(const struct target *t, uint64_t pos, uint64_t len, int sys, struct err *e);

#endif
