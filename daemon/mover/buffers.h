/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * buffers.h - a stack of equal buffers of one thread, on huge pages where available
 *
 * They are kept for the whole run, so that their pages are touched once; the one used last is the next one returned.
 */
#ifndef SNAPFERRY_DAEMON_MOVER_BUFFERS_H
#define SNAPFERRY_DAEMON_MOVER_BUFFERS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct buffers;

/* `n` buffers of at least `size` bytes. ERR_MEMORY. */
int buffers_new(struct buffers **ret, unsigned n, size_t size, struct err *e);
void buffers_free(struct buffers *b); /* NULL allowed */

/* NULL: all are in use. */
uint8_t *buffers_take(struct buffers *b);
void buffers_return(struct buffers *b, uint8_t *buf);

#endif
