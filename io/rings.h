/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * rings.h - io_urings, made before a process is locked down
 *
 * A system call filter does not see the requests of a ring. So a process that filters its calls makes its rings before,
 * restricted to reads or to writes, and the filter then refuses io_uring_setup and io_uring_register altogether
 * (MS-04). Where nothing was prepared, a ring is made when it is asked for.
 *
 * Thread-safe, but for rings_prepare(). Functions return 0 or a negative errno.
 */
#ifndef SNAPFERRY_IO_RINGS_H
#define SNAPFERRY_IO_RINGS_H

#include <liburing.h>
#include <stdbool.h>

#define RINGS_ENTRIES 512 /* of a prepared ring */
#define RINGS_MAX 64

enum ring_use {
    RING_READ,  /* one thread takes and uses it; files and buffers may be registered if it was not prepared */
    RING_WRITE, /* may be used by several threads in turn */
};

/* Makes `n` rings for `use`; no others can be taken afterwards, also if it failed or `n` is 0. While the process has
 * one thread. */
int rings_prepare(unsigned n, enum ring_use use);
bool rings_prepared(void);
/* A ring for `entries` requests at a time. `lower`: flags that are tried first are left out, for tests. -ENOENT: none
 * was prepared, or all are in use. */
int ring_take(struct io_uring *ret, unsigned entries, enum ring_use use, unsigned lower);
/* Nothing may be in flight, nothing registered. A prepared writer's ring can be taken again. */
void ring_give(struct io_uring *ring);

#endif
